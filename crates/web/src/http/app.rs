//! What all requests share.

use std::path::Path;
use std::sync::{Arc, OnceLock};

use tokio::sync::Semaphore;

use super::metrics::LastPage;
use super::passwords::PasswordWorker;
use super::refusal::Refusal;
use super::stream::Hub;
use crate::accounts::{Accounts, AccountsFile, Lives, Watched};
use crate::alerts::Engine;
use crate::audit::Audit;
use crate::daemon::Daemon;
use crate::error::WebError;
use crate::limits::{REQUESTS, Rates, SignIns, Turns};
use crate::server::Certificates;

/// The server's services.
pub(crate) struct App {
    pub accounts: Watched,
    pub lives: Lives,
    pub passwords: PasswordWorker,
    pub sign_ins: SignIns,
    pub rates: Rates,
    pub audit: Audit,
    pub daemon: Daemon,
    pub alerts: Arc<Engine>,
    pub certificates: Arc<Certificates>,
    pub turns: Turns,
    /// The one turn of the planner.
    pub(super) plans: Arc<Semaphore>,
    pub(super) metrics: LastPage,
    hub: OnceLock<Hub>,
}

/// A handle of them.
pub(crate) type Shared = Arc<App>;

impl App {
    /// Makes the services of a state folder. A damaged file of accounts is refused.
    pub(crate) fn new(
        state: &Path,
        socket: &Path,
        certificates: Arc<Certificates>,
        alerts: Arc<Engine>,
    ) -> Result<Shared, WebError> {
        let app = Arc::new(Self {
            accounts: Watched::new(AccountsFile::in_folder(state)),
            lives: Lives::default(),
            passwords: PasswordWorker::new()?,
            sign_ins: SignIns::default(),
            rates: Rates::new(REQUESTS),
            audit: Audit::in_folder(state),
            daemon: Daemon::new(socket),
            alerts,
            certificates,
            turns: Turns::default(),
            plans: Arc::new(Semaphore::new(1)),
            metrics: LastPage::default(),
            hub: OnceLock::new(),
        });
        app.accounts.current()?;
        Ok(app)
    }

    /// Returns the live data, whose poller the first listener starts.
    pub(crate) fn hub(self: &Arc<Self>) -> &Hub {
        self.hub.get_or_init(|| Hub::start(Arc::downgrade(self)))
    }

    /// Returns the accounts as the file has them.
    pub(crate) fn current(&self) -> Result<Arc<Accounts>, Refusal> {
        self.accounts.current().map_err(Refusal::from)
    }

    /// Changes the accounts, on a thread that may wait for the disk.
    pub(crate) async fn update<T: Send + 'static>(
        self: &Arc<Self>,
        change: impl FnOnce(&mut Accounts) -> Result<T, WebError> + Send + 'static,
    ) -> Result<T, Refusal> {
        let app = Arc::clone(self);
        let changed = tokio::task::spawn_blocking(move || app.accounts.update(change)).await;
        match changed {
            Ok(changed) => changed.map_err(Refusal::from),
            Err(_) => Err(Refusal::internal("the change of the accounts was cut short")),
        }
    }
}
