//! How long sessions live: 12 hours without a request, and 7 days at most, by two clocks.
//!
//! The clock of the wall may be set. A session whose beginning lies in the future has ended. The clock since the start of the system
//! bounds what a clock of the wall that is set back would add. A clock that is set forward ends sessions early.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use super::document::Session;
use crate::clock::Moment;

/// For how long a session lives without a request.
pub(crate) const IDLE_S: u64 = 12 * 3600;
/// For how long a session lives.
pub(crate) const EXPIRES_S: u64 = 7 * 86_400;
/// How far in the future a date may lie: clocks are corrected by seconds.
const AHEAD_S_MAX: u64 = 300;
/// Sessions of which the lives are kept, at most; beyond, those that no file has are forgotten.
const LIVES_MAX: usize = 16_384;

/// Returns whether a date lies in the past, as far as clocks are exact.
pub(crate) fn is_dated_here(date_s: u64, now_s: u64) -> bool {
    date_s <= now_s.saturating_add(AHEAD_S_MAX)
}

/// Life of a session by the clock since the start of the system.
#[derive(Debug, Clone, Copy)]
struct Life {
    first_boot_s: u64,
    /// Its age when it was first seen.
    first_age_s: u64,
    used_boot_s: u64,
    /// For how long it had not been used when it was first seen.
    first_idle_s: u64,
}

/// Lives of the sessions that this process has seen.
#[derive(Debug, Default)]
pub(crate) struct Lives(Mutex<BTreeMap<String, Life>>);

impl Lives {
    /// Returns whether a session lives.
    pub(crate) fn is_alive(&self, session: &Session, now: Moment) -> bool {
        self.look(session, now).is_some()
    }

    /// Returns whether a session lives, and notes that it is used.
    pub(crate) fn note_use(&self, session: &Session, now: Moment) -> bool {
        let Some(mut life) = self.look(session, now) else { return false };
        (life.used_boot_s, life.first_idle_s) = (now.boot_s, 0);
        let mut lives = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        lives.insert(session.id.clone(), life);
        true
    }

    /// Returns when a session was used last, as exactly as this process knows.
    pub(crate) fn used_s(&self, session: &Session, now: Moment) -> u64 {
        let used = self.look(session, now).map(|life| {
            let idle_s = now.boot_s.saturating_sub(life.used_boot_s).saturating_add(life.first_idle_s);
            now.wall_s.saturating_sub(idle_s)
        });
        used.unwrap_or(0).max(session.seen_s)
    }

    fn look(&self, session: &Session, now: Moment) -> Option<Life> {
        if !is_dated_here(session.created_s, now.wall_s) || !is_dated_here(session.seen_s, now.wall_s) {
            return None;
        }
        let wall_age_s = now.wall_s.saturating_sub(session.created_s);
        let wall_idle_s = now.wall_s.saturating_sub(session.seen_s);
        let mut lives = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if lives.len() >= LIVES_MAX {
            lives.clear();
        }
        let life = *lives.entry(session.id.clone()).or_insert(Life {
            first_boot_s: now.boot_s,
            first_age_s: wall_age_s,
            used_boot_s: now.boot_s,
            first_idle_s: wall_idle_s,
        });
        let age_s = now.boot_s.saturating_sub(life.first_boot_s).saturating_add(life.first_age_s);
        let idle_s = now.boot_s.saturating_sub(life.used_boot_s).saturating_add(life.first_idle_s);
        (age_s.max(wall_age_s) < EXPIRES_S && idle_s < IDLE_S).then_some(life)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY_S: u64 = 86_400;

    fn session(created_s: u64, seen_s: u64) -> Session {
        let text = String::new;
        Session {
            id: "s".to_owned(),
            digest: text(),
            user: text(),
            created_s,
            seen_s,
            address: text(),
            agent: text(),
        }
    }

    fn at(wall_s: u64, boot_s: u64) -> Moment {
        Moment { wall_s, boot_s }
    }

    #[test]
    fn a_session_ends_when_it_is_not_used_and_at_its_age() {
        let start = 1000 * DAY_S;
        let lives = Lives::default();
        let mut used = session(start, start);
        for hour in 0..7 * 24 {
            used.seen_s = start + hour * 3600;
            assert!(lives.note_use(&used, at(start + hour * 3600, hour * 3600)), "hour {hour}");
        }
        assert!(!lives.note_use(&used, at(start + 7 * DAY_S, 7 * DAY_S)));
        let lives = Lives::default();
        assert!(lives.note_use(&session(start, start), at(start + 1800, 1800)));
        let used_s = lives.used_s(&session(start, start), at(start + 2000, 2000));
        assert_eq!(used_s, start + 1800, "what the file does not note yet");
        let unused = session(start, start);
        assert!(Lives::default().is_alive(&unused, at(start + IDLE_S - 1, 0)));
        assert!(!Lives::default().is_alive(&unused, at(start + IDLE_S, 0)));
    }

    /// Scenario: the clock of the wall is set back again and again, by less than is refused at once. The session ends after 7 days all
    /// the same.
    #[test]
    fn a_clock_that_is_set_back_prolongs_no_session() {
        let start = 1000 * DAY_S;
        let lives = Lives::default();
        let alive =
            (0..20 * 24).filter(|hour| lives.note_use(&session(start, start), at(start, hour * 3600)));
        assert_eq!(alive.count(), 7 * 24);
    }

    #[test]
    fn a_session_of_the_future_has_ended() {
        let start = 1000 * DAY_S;
        for (created_s, is_alive) in
            [(start, true), (start + AHEAD_S_MAX, true), (start + AHEAD_S_MAX + 1, false)]
        {
            let found = Lives::default().is_alive(&session(created_s, created_s), at(start, 0));
            assert_eq!(found, is_alive, "{}", created_s - start);
        }
        assert!(!Lives::default().is_alive(&session(start, start + DAY_S), at(start, 0)));
    }
}
