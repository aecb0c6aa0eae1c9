//! Failed sign-ins, by user and by network: after five of them each further one doubles a wait, up to five minutes.
//!
//! An attempt counts as failed from its beginning, so that many at once get no more guesses.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};

/// Failures without a wait.
const FREE: u32 = 5;
/// The first wait.
const WAIT_MS: u64 = 5_000;
/// The longest wait.
const WAIT_MS_MAX: u64 = 300_000;
/// After how long without a failure earlier ones are forgotten.
const FORGET_MS: u64 = 900_000;
/// Users and networks that are kept, at most.
const KEPT_MAX: usize = 4096;

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    User(String),
    Network(IpAddr),
}

#[derive(Debug, Clone, Copy, Default)]
struct Failures {
    count: u32,
    last_ms: u64,
}

impl Failures {
    fn until_ms(self) -> u64 {
        let Some(over) = self.count.checked_sub(FREE) else { return 0 };
        let wait_ms = WAIT_MS.checked_shl(over).unwrap_or(u64::MAX).min(WAIT_MS_MAX);
        self.last_ms.saturating_add(if over >= 7 { WAIT_MS_MAX } else { wait_ms })
    }
}

/// The failures.
#[derive(Debug, Default)]
pub(crate) struct SignIns(Mutex<BTreeMap<Key, Failures>>);

/// An attempt under way.
#[derive(Debug)]
#[must_use]
pub(crate) struct Attempt([Key; 2]);

impl SignIns {
    /// Begins an attempt.
    ///
    /// # Errors
    /// The seconds to wait before the next one.
    pub(crate) fn begin(&self, user: &str, network: IpAddr, now_ms: u64) -> Result<Attempt, u64> {
        let keys = [Key::User(user.chars().take(64).collect()), Key::Network(network)];
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.retain(|_, failures| now_ms.saturating_sub(failures.last_ms) < FORGET_MS);
        let until_ms = keys.iter().filter_map(|key| kept.get(key)).map(|failures| failures.until_ms()).max();
        if let Some(left_ms) =
            until_ms.and_then(|until_ms| until_ms.checked_sub(now_ms)).filter(|left| *left > 0)
        {
            return Err(left_ms.div_ceil(1000));
        }
        for key in &keys {
            if kept.len() >= KEPT_MAX && !kept.contains_key(key) {
                let least = kept.iter().min_by_key(|(_, failures)| (failures.count, failures.last_ms));
                if let Some(least) = least.map(|(key, _)| key.clone()) {
                    kept.remove(&least);
                }
            }
            let failures = kept.entry(key.clone()).or_default();
            *failures = Failures { count: failures.count.saturating_add(1), last_ms: now_ms };
        }
        Ok(Attempt(keys))
    }

    /// Notes that an attempt has succeeded: it was no failure, and the user has none.
    pub(crate) fn succeed(&self, attempt: Attempt) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for key in attempt.0 {
            let is_user = matches!(key, Key::User(_));
            let left = kept.get_mut(&key).map(|failures| {
                failures.count = failures.count.saturating_sub(1);
                failures.count
            });
            if is_user || left == Some(0) {
                kept.remove(&key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn network(number: u32) -> IpAddr {
        Ipv4Addr::from(number).into()
    }

    /// Scenario: one guess after another at one user from ever new networks, and at ever new users from one network. Each takes five at
    /// once, and then waits that double up to five minutes.
    #[test]
    fn guesses_wait_longer_and_longer_by_user_and_by_network() {
        for is_by_user in [true, false] {
            let limits = SignIns::default();
            let (mut now_ms, mut waits, mut number) = (0, Vec::new(), 0);
            while waits.len() < 9 {
                number += 1;
                let (user, from) = if is_by_user { (0, number) } else { (number, 0) };
                match limits.begin(&user.to_string(), network(from), now_ms) {
                    Ok(_) => {}
                    Err(wait_s) => {
                        waits.push(wait_s);
                        now_ms += wait_s * 1000;
                    }
                }
            }
            assert_eq!(waits, [5, 10, 20, 40, 80, 160, 300, 300, 300]);
            assert!(number >= 5);
        }
    }

    #[test]
    fn a_success_forgives_the_user_and_not_the_network() {
        let limits = SignIns::default();
        for _ in 0..4 {
            let _ = limits.begin("anna", network(1), 0).unwrap();
        }
        let right = limits.begin("anna", network(1), 0).unwrap();
        limits.succeed(right);
        let _ = limits.begin("anna", network(1), 0).unwrap();
        assert_eq!(limits.begin("anna", network(1), 0).unwrap_err(), 5);
        assert!(limits.begin("anna", network(2), 0).is_ok());
    }

    #[test]
    fn the_list_is_bounded_and_keeps_those_with_most_failures() {
        let limits = SignIns::default();
        for number in 0..5 {
            let _ = limits.begin("anna", network(number), 0).unwrap();
        }
        for number in 0..10_000 {
            let _ = limits.begin(&format!("user{number}"), network(1000 + number), 1);
        }
        assert!(limits.0.lock().unwrap().len() <= KEPT_MAX);
        assert!(limits.begin("anna", network(9), 2).is_err());
    }
}
