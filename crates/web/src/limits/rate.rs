//! Requests a second of each session, token and address.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};

/// Requests a second.
const PER_SECOND: u64 = 50;
/// Requests at once.
const BURST: u64 = 100;
/// A request in the unit of a bucket: thousandths, one of which comes back for each millisecond and request a second.
const REQUEST: u64 = 1000;
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

#[derive(Debug, Clone, Copy)]
struct Bucket {
    left: u64,
    at_ms: u64,
}

impl Bucket {
    fn filled(self, now_ms: u64) -> u64 {
        let gained = now_ms.saturating_sub(self.at_ms).saturating_mul(PER_SECOND);
        self.left.saturating_add(gained).min(BURST * REQUEST)
    }
}

/// The buckets.
#[derive(Debug, Default)]
pub(crate) struct Rates(Mutex<BTreeMap<RateKey, Bucket>>);

impl Rates {
    /// Takes a request out of a bucket; returns whether there was one.
    pub(crate) fn take(&self, key: &RateKey, now_ms: u64) -> bool {
        let mut buckets = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if buckets.len() >= BUCKETS_MAX && !buckets.contains_key(key) {
            buckets.retain(|_, bucket| bucket.filled(now_ms) < BURST * REQUEST);
            // All of them are in use: the fullest loses the least.
            let fullest = buckets.iter().max_by_key(|(_, bucket)| bucket.filled(now_ms));
            if buckets.len() >= BUCKETS_MAX
                && let Some(fullest) = fullest.map(|(key, _)| key.clone())
            {
                buckets.remove(&fullest);
            }
        }
        let bucket = buckets.entry(key.clone()).or_insert(Bucket { left: BURST * REQUEST, at_ms: now_ms });
        let filled = bucket.filled(now_ms);
        let is_there = filled >= REQUEST;
        *bucket = Bucket { left: if is_there { filled - REQUEST } else { filled }, at_ms: now_ms };
        is_there
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_is_taken_and_then_fifty_a_second() {
        let rates = Rates::default();
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
        let rates = Rates::default();
        for number in 0..20_000u32 {
            assert!(rates.take(&RateKey::Network(std::net::Ipv4Addr::from(number).into()), 0));
        }
        assert!(rates.0.lock().unwrap().len() <= BUCKETS_MAX);
    }
}
