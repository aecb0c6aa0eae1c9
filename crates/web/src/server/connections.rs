//! Connections: a bounded number of them, and little time for those that say nothing.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;

use super::stalled::Bounded;
use super::tls::Certificates;
use crate::clock;
use crate::http::Client;
use crate::limits::{CONNECTIONS, RateKey, Rates, network_of};

/// Connections at a time.
const CONNECTIONS_MAX: usize = 256;
/// Connections of one network at a time.
const CONNECTIONS_OF_NETWORK_MAX: usize = 64;
/// How long a handshake may take.
const HANDSHAKE_LIMIT: Duration = Duration::from_secs(5);
/// How long the head of a request may take, and how long a connection may say nothing.
const HEAD_LIMIT: Duration = Duration::from_secs(10);
/// Bytes of the head of a request, at most.
const HEAD_BYTES_MAX: usize = 32 * 1024;
/// Headers of a request, at most.
const HEADERS_MAX: usize = 64;
/// Pause after a connection that could not be accepted.
const PAUSE: Duration = Duration::from_millis(200);
/// How long answers under way may take at the end.
const GOODBYE: Duration = Duration::from_secs(3);

/// Places for connections.
#[derive(Debug, Clone)]
struct Places {
    all: Arc<Semaphore>,
    by_network: Arc<Mutex<BTreeMap<IpAddr, usize>>>,
    rates: Arc<Rates>,
}

/// A place, free again when this ends.
struct Place {
    _one: OwnedSemaphorePermit,
    places: Places,
    network: IpAddr,
}

impl Places {
    fn new() -> Self {
        let all = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        Self { all, by_network: Arc::default(), rates: Arc::new(Rates::new(CONNECTIONS)) }
    }

    fn take(&self, address: IpAddr, now_ms: u64) -> Option<Place> {
        // Programs of the host have its processors anyway, and a proxy there speaks for many.
        let is_local = address.to_canonical().is_loopback();
        if !is_local && !self.rates.take(&RateKey::Network(network_of(address)), now_ms) {
            return None;
        }
        let one = Arc::clone(&self.all).try_acquire_owned().ok()?;
        let network = network_of(address);
        let mut by_network = self.by_network.lock().unwrap_or_else(PoisonError::into_inner);
        let count = by_network.entry(network).or_default();
        if *count >= CONNECTIONS_OF_NETWORK_MAX {
            return None;
        }
        *count = count.saturating_add(1);
        Some(Place { _one: one, places: self.clone(), network })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut by_network = self.places.by_network.lock().unwrap_or_else(PoisonError::into_inner);
        let left = by_network.get_mut(&self.network).map(|count| {
            *count = count.saturating_sub(1);
            *count
        });
        if left == Some(0) {
            by_network.remove(&self.network);
        }
    }
}

/// Accepts connections until the end, and lets answers under way leave.
pub(super) async fn accept(
    listener: TcpListener,
    routes: Router,
    certificates: Arc<Certificates>,
    mut ended: watch::Receiver<bool>,
) {
    let places = Places::new();
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = ending(&mut ended) => break,
            Some(_) = connections.join_next() => continue,
        };
        match accepted {
            Ok((stream, peer)) => {
                // Without a place the connection ends at once: whoever waits in a queue learns nothing.
                let Some(place) = places.take(peer.ip(), clock::boot_ms()) else { continue };
                let acceptor = TlsAcceptor::from(certificates.config());
                let (routes, ended) = (routes.clone(), ended.clone());
                connections.spawn(async move {
                    serve(stream, peer, acceptor, routes, ended).await;
                    drop(place);
                });
            }
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted; it is tried again");
                sleep(PAUSE).await;
            }
        }
    }
    drop(listener);
    let _ = timeout(GOODBYE, async { while connections.join_next().await.is_some() {} }).await;
    connections.shutdown().await;
}

async fn serve(
    stream: TcpStream,
    peer: SocketAddr,
    acceptor: TlsAcceptor,
    routes: Router,
    mut ended: watch::Receiver<bool>,
) {
    let _ = stream.set_nodelay(true);
    let stream = match timeout(HANDSHAKE_LIMIT, acceptor.accept(stream)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => {
            tracing::debug!(%peer, %error, "no handshake");
            return;
        }
        Err(_) => {
            tracing::debug!(%peer, "the handshake took too long");
            return;
        }
    };
    let client = Client { address: peer.ip().to_canonical() };
    let routes = TowerToHyperService::new(routes);
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(client);
        routes.call(request)
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_LIMIT)
        .max_buf_size(HEAD_BYTES_MAX)
        .max_headers(HEADERS_MAX)
        .serve_connection(TokioIo::new(Bounded::new(stream)), service);
    let mut connection = std::pin::pin!(connection);
    let served = tokio::select! {
        served = connection.as_mut() => served,
        () = ending(&mut ended) => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = served {
        tracing::debug!(%peer, %error, "the connection ended");
    }
}

/// Waits until the server ends.
async fn ending(ended: &mut watch::Receiver<bool>) {
    let _ = ended.wait_for(|is_ended| *is_ended).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_bounded_in_all_and_by_network() {
        let places = Places::new();
        let taken = |address: &str| places.take(address.parse().unwrap(), 0);
        let held: Vec<_> = (0..100).filter_map(|_| taken("192.0.2.1")).collect();
        assert_eq!(held.len(), CONNECTIONS_OF_NETWORK_MAX);
        let others: Vec<_> = (0..255).filter_map(|last| taken(&format!("198.51.100.{last}"))).collect();
        assert_eq!(held.len() + others.len(), CONNECTIONS_MAX);
        drop((held, others));
        assert!(taken("192.0.2.2").is_some());
        assert!(places.by_network.lock().unwrap().len() <= 1);
    }

    /// Scenario: a network connects and ends, again and again. It is let in so often a second and no oftener, others are served
    /// meanwhile, and programs of the host always.
    #[test]
    fn new_connections_of_a_network_have_a_rate() {
        let places = Places::new();
        let taken = |address: &str, now_ms| {
            (0..1000).filter(|_| places.take(address.parse().unwrap(), now_ms).is_some()).count()
        };
        assert_eq!(taken("192.0.2.1", 0), 100);
        assert_eq!(taken("192.0.2.1", 1000), 20);
        assert_eq!(taken("192.0.2.2", 1000), 100);
        assert_eq!(taken("127.0.0.1", 1000), 1000);
        assert_eq!(taken("::ffff:127.0.0.1", 1000), 1000);
    }
}
