//! Who waits to be let in: connections that have not proved who they are.
//!
//! Invariant: there are never more than [`PENDING_MAX`] connections, and a newcomer always finds a place. The one that goes is
//! the oldest of the address that has most, so that whoever floods a listener pushes its own connections out.

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Connections at a time, over all listeners.
pub(crate) const PENDING_MAX: usize = 256;

/// What counts as one address: this machine, one of IPv4, or the 2^64 of IPv6 that one site is given at least.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Origin(IpAddr);

impl Origin {
    pub(crate) fn of(address: IpAddr) -> Self {
        match address.to_canonical() {
            address if address.is_loopback() => Self(IpAddr::V4(Ipv4Addr::LOCALHOST)),
            IpAddr::V6(address) => Self(IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() >> 64 << 64))),
            address @ IpAddr::V4(_) => Self(address),
        }
    }
}

/// A connection's number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ConnectionId(u64);

/// The connections, by where they are from, oldest first.
#[derive(Debug, Default)]
pub(crate) struct PendingConnections {
    connections: BTreeMap<Origin, VecDeque<ConnectionId>>,
    count: usize,
    next: u64,
}

impl PendingConnections {
    /// Takes a connection in. Another one may have to go.
    pub(crate) fn enter(&mut self, origin: Origin) -> (ConnectionId, Option<ConnectionId>) {
        let out = if self.count >= PENDING_MAX { self.fullest() } else { None };
        let id = ConnectionId(self.next);
        self.next += 1;
        self.count += 1;
        self.connections.entry(origin).or_default().push_back(id);
        (id, out)
    }

    /// Takes the oldest connection of the fullest origin out.
    fn fullest(&mut self) -> Option<ConnectionId> {
        let fullest = self
            .connections
            .iter()
            .max_by_key(|(_, connections)| connections.len())
            .map(|(origin, _)| *origin)?;
        let oldest = self.connections.get(&fullest)?.front().copied()?;
        self.leave(fullest, oldest);
        Some(oldest)
    }

    /// Counts a connection no more, whether it was let in, left, or was sent away before.
    pub(crate) fn leave(&mut self, origin: Origin, id: ConnectionId) {
        let Some(connections) = self.connections.get_mut(&origin) else { return };
        if let Some(at) = connections.iter().position(|connection| *connection == id) {
            connections.remove(at);
            self.count -= 1;
        }
        if connections.is_empty() {
            self.connections.remove(&origin);
        }
    }

    /// Connections now.
    #[cfg(test)]
    pub(crate) fn count(&self) -> usize {
        self.count
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn origin(text: &str) -> Origin {
        Origin::of(text.parse().unwrap())
    }

    #[test]
    fn a_flood_pushes_its_own_connections_out_and_nobody_elses() {
        // Scenario: ten connections from ten addresses, then 100,000 from one. Expected: the ten stay, and the newest of the
        // flood are in.
        let mut pending = PendingConnections::default();
        let mut inside = BTreeSet::new();
        let others: Vec<_> = (0..10).map(|n| pending.enter(origin(&format!("10.0.0.{n}"))).0).collect();
        inside.extend(&others);
        let mut last = None;
        for _ in 0..100_000 {
            let (id, out) = pending.enter(origin("10.9.9.9"));
            inside.insert(id);
            assert!(out.is_none_or(|out| inside.remove(&out)), "who goes was in");
            assert_eq!((pending.count(), inside.len().min(PENDING_MAX)), (inside.len(), inside.len()));
            last = Some(id);
        }
        assert_eq!(inside.len(), PENDING_MAX);
        assert!(others.iter().all(|other| inside.contains(other)));
        assert!(inside.contains(&last.unwrap()));
        let newcomer = pending.enter(origin("10.0.1.1")).0;
        assert!((0..PENDING_MAX * 2).all(|_| pending.enter(origin("10.9.9.9")).1 != Some(newcomer)));
    }

    #[test]
    fn one_site_is_one_origin_however_it_writes_its_address() {
        assert_eq!(origin("127.0.0.1"), origin("127.9.9.9"));
        assert_eq!(origin("::1"), origin("127.0.0.1"));
        assert_eq!(origin("::ffff:10.0.0.1"), origin("10.0.0.1"));
        assert_eq!(origin("2001:db8::1"), origin("2001:db8::ffff:ffff:ffff:ffff"));
        assert_ne!(origin("2001:db8::1"), origin("2001:db8:0:1::1"));
        assert_ne!(origin("10.0.0.1"), origin("10.0.0.2"));
    }

    #[test]
    fn who_left_twice_is_counted_once() {
        let mut pending = PendingConnections::default();
        let (id, _) = pending.enter(origin("10.0.0.1"));
        pending.enter(origin("10.0.0.1"));
        pending.leave(origin("10.0.0.1"), id);
        pending.leave(origin("10.0.0.1"), id);
        pending.leave(origin("10.0.0.2"), id);
        assert_eq!(pending.count(), 1);
    }
}
