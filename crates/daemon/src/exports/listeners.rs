//! Listeners of this host, and connections that are not greeted yet.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::Duration;

use dolmen_api::TlsFiles;
use dolmen_block_io::Instant;
use dolmen_block_io::sync::Notify;
use dolmen_block_linux::{Awaited, Mailbox};
use dolmen_nbd::option::RefusedOption;

use crate::error::DaemonError;
use crate::exports::listener::keys::Stamps;
use crate::exports::listener::pending::Origin;
use crate::exports::listener::proxy::Arrival;
use crate::exports::listener::tls_acceptor::TlsAcceptor;

/// Connections over all listeners: a quarter of all places stays with the Unix socket.
pub(crate) const VISITS_MAX: usize = 192;

/// Connections over all listeners from one origin.
pub(crate) const VISITS_OF_ORIGIN_MAX: usize = 128;

/// An open listener.
pub(crate) struct OpenListener {
    pub(crate) tls: Option<TlsFiles>,
    /// Ends the accept loop of a listener without TLS.
    pub(crate) closed: Rc<(Cell<bool>, Notify)>,
    /// The listening socket. Whoever accepts from it lets go of it a moment after it was told to; shut down here, it
    /// listens no more at once, and the address is free for the next listener.
    pub(crate) socket: OwnedFd,
}

/// What is known of the files of a listener.
pub(crate) struct Watched {
    pub(crate) stamps: Stamps,
    pub(crate) at: Instant,
    /// How long that is so, if the files stay as they are.
    pub(crate) fresh_for: Duration,
    /// What will keep clients out, or does already.
    pub(crate) warnings: Vec<String>,
}

/// What the engine knows of listeners.
pub(crate) struct Listeners {
    pub(crate) open: RefCell<BTreeMap<SocketAddr, OpenListener>>,
    pub(crate) problems: RefCell<BTreeMap<SocketAddr, String>>,
    pub(crate) watched: RefCell<BTreeMap<SocketAddr, Watched>>,
    pub(crate) tls_acceptor: RefCell<Option<(TlsAcceptor, Awaited<()>)>>,
    pub(crate) arrivals: Mailbox<Arrival>,
    pub(crate) visits: Rc<Visits>,
}

impl fmt::Debug for Listeners {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Listeners").field("visits", &self.visits).finish_non_exhaustive()
    }
}

/// Connections that came through listeners, by origin.
#[derive(Debug, Default)]
pub(crate) struct Visits {
    pub(crate) of_origins: RefCell<BTreeMap<Origin, usize>>,
    pub(crate) count: Cell<usize>,
}

/// One of them.
pub(crate) struct Visit {
    pub(crate) visits: Rc<Visits>,
    pub(crate) origin: Origin,
}

impl Visits {
    /// Counts one more, or says which limit is in its way.
    pub(crate) fn begin(self: &Rc<Self>, origin: Origin) -> Result<Visit, RefusedOption> {
        let mut of_origins = self.of_origins.borrow_mut();
        if of_origins.get(&origin).copied().unwrap_or(0) >= VISITS_OF_ORIGIN_MAX {
            return Err(RefusedOption::FullForAddress { connections_max: VISITS_OF_ORIGIN_MAX });
        }
        if self.count.get() >= VISITS_MAX {
            return Err(RefusedOption::Full { connections_max: VISITS_MAX });
        }
        *of_origins.entry(origin).or_default() += 1;
        self.count.set(self.count.get() + 1);
        Ok(Visit { visits: Rc::clone(self), origin })
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        let mut of_origins = self.visits.of_origins.borrow_mut();
        self.visits.count.set(self.visits.count.get() - 1);
        if let Some(count) = of_origins.get_mut(&self.origin) {
            *count -= 1;
            if *count == 0 {
                of_origins.remove(&self.origin);
            }
        }
    }
}

impl Listeners {
    pub(crate) fn new(arrivals: Mailbox<Arrival>) -> Self {
        let (open, problems, watched, tls_acceptor, visits) = Default::default();
        Self { open, problems, watched, tls_acceptor, arrivals, visits }
    }

    /// The TLS acceptor, who is there from the first listener with TLS on.
    pub(crate) fn tls_acceptor(&self) -> Result<TlsAcceptor, DaemonError> {
        if let Some((tls_acceptor, _)) = self.tls_acceptor.borrow().as_ref() {
            return Ok(tls_acceptor.clone());
        }
        let (tls_acceptor, ended) = TlsAcceptor::start(self.arrivals.clone())?;
        *self.tls_acceptor.borrow_mut() = Some((tls_acceptor.clone(), ended));
        Ok(tls_acceptor)
    }
}
