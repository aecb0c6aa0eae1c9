//! The server: TLS, connections, signals and the notes to the supervisor.

mod certificate;
mod connections;
mod names;
mod notify;
mod stalled;
mod tls;
mod validity;

pub(crate) use certificate::{CertificateFiles, Subject};
pub(crate) use tls::{Certificates, facts};

use std::io::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use crate::alerts::Engine;
use crate::clock;
use crate::error::WebError;
use crate::http::{App, routes};

/// What the server is started with.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub listen: SocketAddr,
    pub state: PathBuf,
    pub socket: PathBuf,
    pub certificate: CertificateFiles,
    /// Names that clients use, for the certificate that the server makes.
    pub names: Vec<String>,
    /// The file of the settings of alerts, where one is named.
    pub alerts: Option<PathBuf>,
}

/// Serves until the system asks for the end.
pub(crate) fn run(settings: &Settings) -> Result<(), WebError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(WebError::Runtime)?;
    let served = runtime.block_on(serve(settings));
    // A thread that hashes a password keeps no end waiting.
    runtime.shutdown_background();
    served
}

async fn serve(settings: &Settings) -> Result<(), WebError> {
    let subject = Subject { address: settings.listen.ip(), names: settings.names.clone() };
    let certificates = Arc::new(Certificates::open(settings.certificate.clone(), subject)?);
    let alerts = Engine::open(&settings.state, settings.alerts.as_deref(), || clock::now().wall_s)?;
    let app = App::new(&settings.state, &settings.socket, Arc::clone(&certificates), Arc::clone(&alerts))?;
    let failed = |source| WebError::Listen { address: settings.listen, source };
    let listener = TcpListener::bind(settings.listen).await.map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    let (ending, ended) = watch::channel(false);
    let signals = [SignalKind::terminate(), SignalKind::interrupt(), SignalKind::hangup()].map(signal);
    let [terminate, interrupt, hangup] = signals;
    let (mut terminate, mut interrupt, mut hangup) = (
        terminate.map_err(WebError::Runtime)?,
        interrupt.map_err(WebError::Runtime)?,
        hangup.map_err(WebError::Runtime)?,
    );
    announce(address, &settings.state, &certificates);
    notify::note("READY=1\nSTATUS=serving the console and the API");
    let engine = tokio::spawn(Arc::clone(&alerts).run(app.daemon.clone(), Arc::clone(&certificates)));
    let connections = connections::accept(listener, routes(app), Arc::clone(&certificates), ended);
    let mut connections = std::pin::pin!(connections);
    loop {
        tokio::select! {
            () = &mut connections => return Ok(()),
            _ = terminate.recv() => break,
            _ = interrupt.recv() => break,
            _ = hangup.recv() => {
                certificates.reread();
                alerts.reread().await;
            }
        }
    }
    notify::note("STOPPING=1");
    tracing::info!("asked to end");
    // What it has noted is on disk; what is under way is sent again.
    engine.abort();
    ending.send_replace(true);
    connections.await;
    Ok(())
}

fn announce(address: SocketAddr, state: &Path, certificates: &Certificates) {
    let facts = certificates.facts();
    tracing::info!(%address, state = %state.display(), fingerprint = facts.sha256, version = env!("CARGO_PKG_VERSION"), "dolmen-web is running");
    // Whoever started it in a terminal reads the address there, and tests read the port.
    let _ = writeln!(std::io::stdout(), "https://{address}");
}
