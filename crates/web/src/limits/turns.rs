//! Requests that are carried out at a time: in all, and of each session, token and network.
//!
//! Requests about accounts have places of their own: whoever fills all others keeps nobody from signing out, or from ending the session
//! that does so.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::RateKey;

/// Requests at a time, but for those about accounts.
const ALL_MAX: usize = 64;
/// Requests about accounts at a time.
const ACCOUNT_MAX: usize = 8;
/// Requests of a session, a token or a network at a time.
const EACH_MAX: usize = 8;
/// Callers that are kept before those without a request are forgotten. Connections bound how many have one.
const KEPT: usize = 64;

/// What a request is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Matter {
    /// Users, sessions and tokens.
    Account,
    /// Everything else.
    Other,
}

/// The places.
#[derive(Debug)]
pub(crate) struct Turns {
    all: Arc<Semaphore>,
    account: Arc<Semaphore>,
    each: Mutex<BTreeMap<RateKey, Arc<Semaphore>>>,
}

/// A place, free again when this ends.
#[derive(Debug)]
#[must_use]
pub(crate) struct Turn {
    _each: OwnedSemaphorePermit,
    _all: OwnedSemaphorePermit,
}

impl Default for Turns {
    fn default() -> Self {
        let places = |count| Arc::new(Semaphore::new(count));
        Self { all: places(ALL_MAX), account: places(ACCOUNT_MAX), each: Mutex::default() }
    }
}

impl Turns {
    /// Waits for a place of the caller, and then for one of all. Nothing closes the places, so there is one at last.
    pub(crate) async fn take(&self, key: RateKey, matter: Matter) -> Option<Turn> {
        let each = self.of(key).acquire_owned().await.ok()?;
        let all = match matter {
            Matter::Account => &self.account,
            Matter::Other => &self.all,
        };
        let all = Arc::clone(all).acquire_owned().await.ok()?;
        Some(Turn { _each: each, _all: all })
    }

    fn of(&self, key: RateKey) -> Arc<Semaphore> {
        let mut each = self.each.lock().unwrap_or_else(PoisonError::into_inner);
        if each.len() >= KEPT {
            // A request that has or awaits a place holds another handle.
            each.retain(|_, places| Arc::strong_count(places) > 1);
        }
        Arc::clone(each.entry(key).or_insert_with(|| Arc::new(Semaphore::new(EACH_MAX))))
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future as _;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    fn try_take(turns: &Turns, key: &RateKey, matter: Matter) -> Option<Turn> {
        match pin!(turns.take(key.clone(), matter)).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(turn) => turn,
            Poll::Pending => None,
        }
    }

    /// Scenario: a token asks 1,000 things at once, then so many sessions that all places are taken. The token gets its share, another
    /// one is served meanwhile, and requests about accounts are served always.
    #[test]
    fn one_caller_takes_no_place_of_the_others() {
        let turns = Turns::default();
        let token = RateKey::Token("t".to_owned());
        let session = |number: usize| RateKey::Session(number.to_string());
        let mut held: Vec<_> = (0..1000).filter_map(|_| try_take(&turns, &token, Matter::Other)).collect();
        assert_eq!(held.len(), EACH_MAX);
        assert!(try_take(&turns, &session(0), Matter::Other).is_some());
        held.extend((0..1000).filter_map(|number| try_take(&turns, &session(number), Matter::Other)));
        assert_eq!(held.len(), ALL_MAX);
        assert!(try_take(&turns, &session(2000), Matter::Other).is_none());
        assert!(try_take(&turns, &session(2000), Matter::Account).is_some());
        assert!(try_take(&turns, &token, Matter::Account).is_none(), "its share counts for both");
        drop(held);
        assert!(try_take(&turns, &token, Matter::Other).is_some());
        (0..1000).for_each(|number| drop(try_take(&turns, &session(number), Matter::Other)));
        assert!(turns.each.lock().unwrap().len() <= KEPT);
    }
}
