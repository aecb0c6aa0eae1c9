//! Listeners: addresses on which spaces are served over a network, and who may come through them.
//!
//! Which listeners should be open follows from what is served. A listener without TLS is a listener of the engine's own, on
//! loopback alone; one with TLS is the TLS acceptor's, whose connections arrive here once they have proved who they are.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::future::Future;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use dolmen_api::{ErrorBody, ErrorCode, TlsFiles};
use dolmen_block_io::sync::Notify;
use dolmen_block_io::{Seams, sleep, within};
use dolmen_block_linux::{Handle, Inbox, Listener, Socket};
use dolmen_causes::in_one_line;
use dolmen_nbd::Entrance;

use crate::answer::Answer;
use crate::base::Base;
use crate::exports::{
    Arrival, Client, Keys, Listeners, NbdServer, Network, OpenListener, Order, Origin, Stamps, Visitor,
    Watched, load, report_end,
};
use crate::open_pools::OpenPools;
use crate::state::Ledger;

/// How often a listener that cannot be opened is tried again.
const TRY_AGAIN: Duration = Duration::from_secs(5);
/// How often the dates of certificates are looked at while their files stay as they are.
const DATES_EVERY: Duration = Duration::from_secs(3600);
/// How long the TLS proxy has to deliver the last words of sessions that have ended.
const END_LIMIT: Duration = Duration::from_secs(3);
const ADVICE_TLS: &str = "name a certificate, its key and the authority of your clients: --tls-cert FILE --tls-key FILE --client-ca FILE; or listen on 127.0.0.1";

fn refused(code: ErrorCode, at: SocketAddr, message: String) -> ErrorBody {
    ErrorBody::new(code, message).on(at.to_string())
}

/// What may not listen, whatever else is true.
fn check_address(network: &Network) -> Answer<()> {
    let at = network.listen;
    if at.port() == 0 {
        let message = format!("{at} names no port; nothing was changed");
        return Err(refused(ErrorCode::BadRequest, at, message).hint("10809 is the usual one"));
    }
    if network.tls.is_none() && !at.ip().to_canonical().is_loopback() {
        let message = format!(
            "{at} can be reached from other machines, and a space is served there with TLS and certificates of clients alone; nothing was changed"
        );
        return Err(refused(ErrorCode::BadRequest, at, message).hint(ADVICE_TLS));
    }
    if network.tls.is_none() && !network.allow.is_empty() {
        let message =
            "names of certificates are allowed, but without TLS there are none; nothing was changed";
        return Err(refused(ErrorCode::BadRequest, at, message.to_owned()).hint(ADVICE_TLS));
    }
    Ok(())
}

/// Listeners on the network that exports want.
pub(crate) struct NetworkListeners {
    pools: Rc<OpenPools>,
    handle: Handle,
    seams: Seams,
    ledger: Rc<Ledger>,
    nbd: Rc<NbdServer>,
    listeners: Rc<Listeners>,
}

impl NetworkListeners {
    pub(crate) fn new(base: &Base) -> Self {
        Self {
            pools: Rc::clone(&base.pools),
            handle: base.handle.clone(),
            seams: base.seams.clone(),
            ledger: Rc::clone(&base.ledger),
            nbd: Rc::clone(&base.nbd),
            listeners: Rc::clone(&base.listeners),
        }
    }
}

impl NetworkListeners {
    /// Reads and checks all that a listener needs, changing nothing.
    pub(crate) async fn check_listener(&self, network: &Network) -> Answer<Option<Keys>> {
        check_address(network)?;
        let at = network.listen;
        let others =
            self.listeners.open.borrow().get(&at).is_some_and(|endpoint| endpoint.tls != network.tls);
        if others {
            let message =
                format!("{at} serves other spaces already, with other certificates; nothing was changed");
            return Err(refused(ErrorCode::Busy, at, message)
                .hint("serve it with the same files, or on another port"));
        }
        let Some(files) = network.tls.clone() else { return Ok(None) };
        let loaded = self.ledger.file_worker().run(move || Ok(load(&files))).await;
        match loaded {
            Ok(Ok(keys)) => Ok(Some(keys)),
            Ok(Err(error)) => {
                let message = format!("{}; nothing was changed", in_one_line(&error));
                Err(refused(ErrorCode::BadRequest, at, message))
            }
            Err(error) => {
                Err(refused(ErrorCode::Io, at, format!("the certificates cannot be read: {error}")))
            }
        }
    }

    /// Opens a listener, unless it is open: then its keys are used from the next connection on.
    pub(crate) fn open_listener(self: &Rc<Self>, network: &Network, keys: Option<Keys>) -> Answer<()> {
        let at = network.listen;
        if self.listeners.open.borrow().contains_key(&at) {
            if let (Some(keys), Ok(tls_acceptor)) = (keys, self.listeners.tls_acceptor()) {
                let _ = tls_acceptor.report(Order::Renew { at, keys });
            }
            return Ok(());
        }
        let failed = |error: &io::Error| {
            let message = format!("listening on {at} failed: {error}; nothing was changed");
            refused(ErrorCode::Io, at, message)
                .hint("`ip address` shows the addresses of this machine, `ss -ltnp` who listens where")
        };
        let listener = TcpListener::bind(at).map_err(|error| failed(&error))?;
        let socket = listener.try_clone().map_err(|error| failed(&error))?.into();
        let closed = Rc::default();
        match (network.tls.clone(), keys) {
            (Some(files), Some(keys)) => self.open_tls_listener(at, listener, files, keys)?,
            _ => self.open_plain_listener(at, listener, &closed),
        }
        self.listeners
            .open
            .borrow_mut()
            .insert(at, OpenListener { tls: network.tls.clone(), closed, socket });
        self.listeners.problems.borrow_mut().remove(&at);
        tracing::info!(endpoint = %at, tls = network.tls.is_some(), "a listener is open");
        Ok(())
    }

    fn open_tls_listener(
        &self,
        at: SocketAddr,
        listener: TcpListener,
        files: TlsFiles,
        keys: Keys,
    ) -> Answer<()> {
        let failed = |cause: String| {
            refused(ErrorCode::Io, at, format!("listening on {at} failed: {cause}; nothing was changed"))
        };
        listener.set_nonblocking(true).map_err(|error| failed(error.to_string()))?;
        let tls_acceptor = self.listeners.tls_acceptor().map_err(|error| failed(in_one_line(&error)))?;
        if tls_acceptor.report(Order::Open { at, listener, files, keys }) {
            return Ok(());
        }
        Err(failed("the TLS acceptor has too much to do".to_owned()).hint("try again in a moment"))
    }

    fn open_plain_listener(
        self: &Rc<Self>,
        at: SocketAddr,
        listener: TcpListener,
        closed: &Rc<(Cell<bool>, Notify)>,
    ) {
        let listener = Listener::from_tcp(&self.handle, listener);
        let (service, sign) = (Rc::downgrade(self), Rc::clone(closed));
        let clock = Rc::clone(&self.seams.clock);
        let listening = async move {
            let welcome = |socket: Socket| {
                if let Some(service) = service.upgrade() {
                    let visitor = Visitor::OpenListener { at, names: Vec::new() };
                    // Whoever reaches a loopback address is on this machine.
                    service.receive(socket, visitor, Entrance::Greeting, Origin::of(at.ip()));
                }
            };
            let taking = NbdServer::take_clients(&listener, clock.as_ref(), welcome);
            first_of(sign.1.wait_for(|| sign.0.get().then_some(())), taking).await;
        };
        self.seams.spawner.spawn("listener", Box::pin(listening));
    }

    /// Serves a client that came through a listener, or tells it why not.
    fn receive(&self, socket: Socket, visitor: Visitor, entrance: Entrance, origin: Origin) {
        let (server, client) = (self.nbd.server(), Rc::new(Client { socket }));
        let visit = self.listeners.visits.begin(origin);
        let session = async move {
            report_end(match visit {
                Ok(_visit) => server.serve(client, visitor, entrance).await,
                Err(refusal) => server.refuse_client(client, entrance, refusal).await,
            });
        };
        self.seams.spawner.spawn("nbd session", Box::pin(session));
    }

    /// Serves those whom the TLS acceptor has let in.
    pub(crate) async fn serve_arrivals(self: Rc<Self>, mut arrivals: Inbox<Arrival>) {
        while let Some(Arrival { stream, flags, endpoint, peer, names }) = arrivals.receive().await {
            let socket = Socket::from_unix(&self.handle, stream);
            let visitor = Visitor::OpenListener { at: endpoint, names };
            self.receive(socket, visitor, Entrance::AfterTls(flags), Origin::of(peer.ip()));
        }
    }

    /// Closes listeners on which nothing is served any more.
    pub(crate) fn close_unused_listeners(&self) {
        let wanted = self.wanted_listeners();
        let mut open = self.listeners.open.borrow_mut();
        open.retain(|at, endpoint| {
            let keep = wanted.contains_key(at);
            if !keep {
                self.close_listener(*at, endpoint);
            }
            keep
        });
        self.listeners.problems.borrow_mut().retain(|at, _| wanted.contains_key(at));
    }

    fn close_listener(&self, at: SocketAddr, endpoint: &OpenListener) {
        endpoint.closed.0.set(true);
        endpoint.closed.1.notify_all();
        if let (Some(_), Ok(tls_acceptor)) = (&endpoint.tls, self.listeners.tls_acceptor()) {
            let _ = tls_acceptor.report(Order::Close { at });
        }
        let _ = rustix::net::shutdown(&endpoint.socket, rustix::net::Shutdown::Both);
        tracing::info!(endpoint = %at, "a listener is closed");
    }

    fn wanted_listeners(&self) -> BTreeMap<SocketAddr, Network> {
        let served = self.nbd.list();
        let networks = served.iter().filter_map(|served| served.network.borrow().clone());
        networks.map(|network| (network.listen, network)).collect()
    }

    /// Opens the listeners that the last daemon had, and tries again those that cannot be opened.
    pub(crate) fn keep_listeners_open(self: &Rc<Self>) {
        let service = Rc::downgrade(self);
        let clock = Rc::clone(&self.seams.clock);
        let keeping = async move {
            while let Some(service) = service.upgrade() {
                if !service.pools.is_stopping.get() {
                    service.open_wanted_listeners().await;
                    service.watch_certificates().await;
                }
                drop(service);
                sleep(clock.as_ref(), TRY_AGAIN).await;
            }
        };
        self.seams.spawner.spawn("listeners", Box::pin(keeping));
    }

    async fn open_wanted_listeners(self: &Rc<Self>) {
        for (at, network) in self.wanted_listeners() {
            if self.listeners.open.borrow().contains_key(&at) {
                continue;
            }
            let checked = self.check_listener(&network).await;
            // While the files were read, it may have been opened, or nobody may want it any more.
            if !self.wanted_listeners().contains_key(&at) || self.pools.is_stopping.get() {
                continue;
            }
            let opened = checked.and_then(|keys| self.open_listener(&network, keys));
            if let Err(error) = opened {
                let text = error.message.trim_end_matches("; nothing was changed").to_owned();
                let before = self.listeners.problems.borrow_mut().insert(at, text.clone());
                if before.as_ref() != Some(&text) {
                    tracing::error!(endpoint = %at, error = text, "a listener cannot be opened; it is tried again");
                }
            }
        }
    }

    /// Looks at the files of open listeners: whether they have changed, from time to time at their dates, and when the first of
    /// them has ended. A listener whose files cannot be used any more goes on with what it has read; what clients meet then is said
    /// here.
    async fn watch_certificates(&self) {
        let files_of = |(at, endpoint): (&SocketAddr, &OpenListener)| Some((*at, endpoint.tls.clone()?));
        let listeners: Vec<_> = self.listeners.open.borrow().iter().filter_map(files_of).collect();
        self.listeners.watched.borrow_mut().retain(|at, _| listeners.iter().any(|(open, _)| open == at));
        for (at, files) in listeners {
            let now = self.seams.clock.now();
            let is_fresh = |known: &&Watched| now.since(known.at) < known.fresh_for;
            let stamps = self.listeners.watched.borrow().get(&at).filter(is_fresh).map(|known| known.stamps);
            let looked = self.ledger.file_worker().run(move || {
                let before = Stamps::now(&files);
                Ok((stamps != Some(before)).then(|| (before, load(&files))))
            });
            let Ok(Some((stamps, loaded))) = looked.await else { continue };
            let (warnings, fresh_for) = match loaded {
                Ok(keys) => (keys.warnings, keys.lasts.min(DATES_EVERY)),
                Err(error) => (vec![in_one_line(&error)], DATES_EVERY),
            };
            for warning in &warnings {
                tracing::warn!(endpoint = %at, warning, "the files of a listener");
            }
            self.listeners.watched.borrow_mut().insert(at, Watched { stamps, at: now, fresh_for, warnings });
        }
    }

    /// What keeps clients of open listeners out soon, or does already, in words.
    pub(crate) fn certificate_warnings(&self) -> Vec<(String, String)> {
        let (watched, open) = (self.listeners.watched.borrow(), self.listeners.open.borrow());
        let of_open = watched.iter().filter(|(at, _)| open.contains_key(at));
        of_open
            .flat_map(|(at, known)| {
                known.warnings.iter().map(move |warning| (at.to_string(), format!("at {at}, {warning}")))
            })
            .collect()
    }

    /// What keeps listeners from being open, in words.
    pub(crate) fn listener_problems(&self) -> Vec<(String, String)> {
        let problems = self.listeners.problems.borrow();
        let text = |(at, problem): (&SocketAddr, &String)| {
            let text = format!("nobody can connect to {at}, where spaces are to be served: {problem}");
            (at.to_string(), text)
        };
        problems.iter().map(text).collect()
    }

    /// Opens no listener any more, and waits until those who were in have what they were answered.
    pub(crate) async fn end_listeners(&self) {
        let open = std::mem::take(&mut *self.listeners.open.borrow_mut());
        open.iter().for_each(|(at, endpoint)| self.close_listener(*at, endpoint));
        let tls_acceptor = self.listeners.tls_acceptor.borrow_mut().take();
        if let Some((tls_acceptor, ended)) = tls_acceptor {
            drop(tls_acceptor);
            let limit = self.seams.clock.now() + END_LIMIT;
            let _ = within(self.seams.clock.as_ref(), limit, ended).await;
        }
    }
}

/// Waits for the first of two.
async fn first_of(a: impl Future<Output = ()>, b: impl Future<Output = ()>) {
    let (mut a, mut b) = (pin!(a), pin!(b));
    std::future::poll_fn(|cx| {
        let done = a.as_mut().poll(cx).is_ready() || b.as_mut().poll(cx).is_ready();
        if done { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}

#[cfg(test)]
mod tests {
    use dolmen_nbd::option::RefusedOption;

    use super::*;
    use crate::exports::{VISITS_MAX, VISITS_OF_ORIGIN_MAX, Visits};

    fn network(listen: &str, is_tls: bool) -> Network {
        let file = || std::path::PathBuf::from("/nowhere");
        let tls = is_tls.then(|| TlsFiles { certificate: file(), key: file(), client_ca: file() });
        Network { listen: listen.parse().unwrap(), tls, allow: Vec::new() }
    }

    #[test]
    fn only_loopback_is_served_without_tls() {
        for (listen, is_tls, allowed) in [
            ("127.0.0.1:10809", false, true),
            ("127.8.9.1:1", false, true),
            ("[::1]:10809", false, true),
            ("[::ffff:127.0.0.1]:10809", false, true),
            ("0.0.0.0:10809", false, false),
            ("[::]:10809", false, false),
            ("10.0.0.1:10809", false, false),
            ("[::ffff:10.0.0.1]:10809", false, false),
            ("169.254.0.1:10809", false, false),
            ("0.0.0.0:10809", true, true),
            ("127.0.0.1:0", false, false),
            ("10.0.0.1:0", true, false),
        ] {
            assert_eq!(check_address(&network(listen, is_tls)).is_ok(), allowed, "{listen} {is_tls}");
        }
        let named = Network { allow: vec!["a".to_owned()], ..network("127.0.0.1:1", false) };
        assert!(check_address(&named).is_err(), "names need certificates");
    }

    #[test]
    fn visits_are_bounded_for_each_origin_and_in_all() {
        let visits = Rc::<Visits>::default();
        let origin = |n: u8| Origin::of(format!("10.0.0.{n}").parse().unwrap());
        let mut inside: Vec<_> =
            (0..VISITS_OF_ORIGIN_MAX).map(|_| visits.begin(origin(1)).ok().unwrap()).collect();
        let full = RefusedOption::FullForAddress { connections_max: VISITS_OF_ORIGIN_MAX };
        assert_eq!(visits.begin(origin(1)).err(), Some(full));
        inside.extend((0..VISITS_MAX - VISITS_OF_ORIGIN_MAX).map(|_| visits.begin(origin(2)).ok().unwrap()));
        let full = RefusedOption::Full { connections_max: VISITS_MAX };
        assert_eq!(visits.begin(origin(2)).err(), Some(full));
        drop(inside.pop());
        assert!(visits.begin(origin(3)).is_ok());
        inside.clear();
        assert_eq!((visits.count.get(), visits.of_origins.borrow().len()), (0, 0));
    }
}
