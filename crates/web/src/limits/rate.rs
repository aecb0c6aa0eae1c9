//! Requests a second of each session, token and network, and new connections a second of each network.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};

/// Requests of a session, a token, or a network without either.
pub(crate) const REQUESTS: Limit = Limit { per_second: 50, at_once: 100 };
/// New connections of a network: each costs a signature and more before anything is known of who asks.
pub(crate) const CONNECTIONS: Limit = Limit { per_second: 20, at_once: 100 };
/// One of them in the unit of a bucket: thousandths, one of which comes back for each millisecond and one a second.
const ONE: u64 = 1000;
/// Buckets that are kept, at most.
const BUCKETS_MAX: usize = 4096;

/// Whose requests are counted.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum RateKey {
    /// Requests of a session, by its id.
    Session(String),
    /// Requests with a token, by its name.
    Token(String),
    /// Requests of a network without either.
    Network(IpAddr),
}

/// How often something may be asked for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limit {
    per_second: u64,
    at_once: u64,
}

impl Limit {
    const fn full(self) -> u64 {
        self.at_once * ONE
    }
}

#[derive(Debug, Clone, Copy)]
struct Bucket {
    left: u64,
    at_ms: u64,
}

impl Bucket {
    fn filled(self, limit: Limit, now_ms: u64) -> u64 {
        let gained = now_ms.saturating_sub(self.at_ms).saturating_mul(limit.per_second);
        self.left.saturating_add(gained).min(limit.full())
    }
}

/// The buckets of a limit.
#[derive(Debug)]
pub(crate) struct Rates {
    limit: Limit,
    buckets: Mutex<BTreeMap<RateKey, Bucket>>,
}

impl Rates {
    pub(crate) fn new(limit: Limit) -> Self {
        Self { limit, buckets: Mutex::default() }
    }

    /// Takes one out of a bucket; returns whether there was one.
    pub(crate) fn take(&self, key: &RateKey, now_ms: u64) -> bool {
        let (limit, full) = (self.limit, self.limit.full());
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        if buckets.len() >= BUCKETS_MAX && !buckets.contains_key(key) {
            buckets.retain(|_, bucket| bucket.filled(limit, now_ms) < full);
            // All of them are in use: the fullest loses the least.
            let fullest = buckets.iter().max_by_key(|(_, bucket)| bucket.filled(limit, now_ms));
            if buckets.len() >= BUCKETS_MAX
                && let Some(fullest) = fullest.map(|(key, _)| key.clone())
            {
                buckets.remove(&fullest);
            }
        }
        let bucket = buckets.entry(key.clone()).or_insert(Bucket { left: full, at_ms: now_ms });
        let filled = bucket.filled(limit, now_ms);
        let is_there = filled >= ONE;
        *bucket = Bucket { left: if is_there { filled - ONE } else { filled }, at_ms: now_ms };
        is_there
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_is_taken_and_then_fifty_a_second() {
        let rates = Rates::new(REQUESTS);
        let key = RateKey::Session("s".to_owned());
        let taken = |now_ms| (0..500).filter(|_| rates.take(&key, now_ms)).count();
        assert_eq!(taken(0), 100);
        assert_eq!(taken(1000), 50);
        assert_eq!(taken(1010), 0);
        assert_eq!(taken(1020), 1);
        assert_eq!(taken(1_000_000), 100);
        assert_eq!(taken(0), 0, "a clock that goes back gives nothing");
        assert!(rates.take(&RateKey::Token("s".to_owned()), 0));
    }

    #[test]
    fn the_list_is_bounded() {
        let rates = Rates::new(REQUESTS);
        for number in 0..20_000u32 {
            assert!(rates.take(&RateKey::Network(std::net::Ipv4Addr::from(number).into()), 0));
        }
        assert!(rates.buckets.lock().unwrap().len() <= BUCKETS_MAX);
    }
}
