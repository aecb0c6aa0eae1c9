//! The outbox: notifications that are to be sent, until they are confirmed.
//!
//! - Of one alert, a channel gets one notification at a time, in order: no all-clear overtakes its opening.
//! - An opening is tried for as long as its alert is open, with pauses that are bounded. Everything else has
//!   [`ATTEMPTS_MAX`](crate::ATTEMPTS_MAX) attempts.
//! - A test has one attempt, and neither waits for another notification nor makes one wait.
//! - When an opening is abandoned, so is everything else of its alert on that channel: no all-clear comes for what was never heard of.
//! - What was abandoned is listed.

use std::collections::{BTreeSet, VecDeque};

use serde::{Deserialize, Serialize};

use crate::evidence::one_line;
use crate::notification::{Kind, Notification};
use crate::policy::{ATTEMPTS_MAX, Policy};

/// Notifications that wait, at most.
pub const WAITING_MAX: usize = 4096;
/// Abandoned notifications that are listed, at most.
pub const ABANDONED_MAX: usize = 64;

/// A notification that waits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Waiting {
    notification: Notification,
    attempts: u32,
    /// When it is due, in seconds that elapsed.
    due: u64,
    /// Why the last attempt failed.
    why: Option<String>,
}

/// A notification that was abandoned.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Abandoned {
    /// Its number.
    pub id: u64,
    /// Its channel.
    pub channel: String,
    /// Its kind.
    pub kind: Kind,
    /// Its subject.
    pub subject: String,
    /// When it was abandoned, in seconds since 1970.
    pub at_s: u64,
    /// Attempts that failed.
    pub attempts: u32,
    /// Why the last of them failed.
    pub why: String,
}

/// What waits for a channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WaitingOn<'a> {
    /// Notifications that wait.
    pub count: usize,
    /// Attempts of the one that was tried most.
    pub attempts: u32,
    /// Why the last of these failed.
    pub why: Option<&'a str>,
}

/// How far a test is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TestState {
    /// It is not sent yet.
    Waiting,
    /// The channel has taken it.
    Sent,
    /// It was not sent, for this reason.
    Failed(String),
}

/// The outbox.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Outbox {
    /// By number.
    waiting: VecDeque<Waiting>,
    abandoned: VecDeque<Abandoned>,
    next_id: u64,
}

/// The sender's view of an attempt that failed.
pub(crate) struct Failure<'a> {
    pub(crate) id: u64,
    pub(crate) now_s: u64,
    pub(crate) elapsed: u64,
    pub(crate) why: &'a str,
    /// Whether the alert of this number is open.
    pub(crate) is_open: &'a dyn Fn(u64) -> bool,
}

fn alert_of(waiting: &Waiting) -> Option<u64> {
    waiting.notification.alert.as_ref().map(|alert| alert.id)
}

impl Outbox {
    /// Adds a notification, whose number it gives. It replaces those of its alert that are not sent and say less.
    pub(crate) fn add(
        &mut self,
        mut notification: Notification,
        now_s: u64,
        elapsed: u64,
        is_open: &dyn Fn(u64) -> bool,
    ) -> u64 {
        self.next_id += 1;
        let id = self.next_id;
        notification.id = id;
        let alert = notification.alert.as_ref().map(|alert| alert.id);
        let is_replaced = |one: &Waiting| {
            one.notification.channel == notification.channel
                && alert_of(one) == alert
                && !one.notification.kind.is_kept()
                && notification.kind != Kind::Test
                && one.notification.kind != Kind::Test
        };
        self.waiting.retain(|one| !is_replaced(one));
        self.waiting.push_back(Waiting { notification, attempts: 0, due: elapsed, why: None });
        self.bound(now_s, is_open);
        id
    }

    /// Makes room: first of alerts that have closed, the oldest first.
    fn bound(&mut self, now_s: u64, is_open: &dyn Fn(u64) -> bool) {
        while self.waiting.len() > WAITING_MAX {
            let is_past = |one: &Waiting| alert_of(one).is_none_or(|alert| !is_open(alert));
            let oldest = self.waiting.iter().find(|one| is_past(one)).or(self.waiting.front());
            let Some(id) = oldest.map(|one| one.notification.id) else { return };
            self.abandon(id, now_s, "too many notifications wait");
        }
    }

    /// Returns what is due, oldest first.
    pub(crate) fn due(&self, elapsed: u64) -> Vec<Notification> {
        let mut earlier = BTreeSet::new();
        let mut due = Vec::new();
        for one in &self.waiting {
            let is_test = one.notification.kind == Kind::Test;
            let is_first = is_test || earlier.insert((one.notification.channel.as_str(), alert_of(one)));
            if is_first && one.due <= elapsed {
                due.push(one.notification.clone());
            }
        }
        due
    }

    /// Removes a notification that was sent. Returns whether it was there.
    pub(crate) fn sent(&mut self, id: u64) -> bool {
        let before = self.waiting.len();
        self.waiting.retain(|one| one.notification.id != id);
        self.waiting.len() < before
    }

    /// Notes that an attempt failed. Returns whether the notification was there.
    pub(crate) fn failed(&mut self, failure: &Failure<'_>, policy: &Policy) -> bool {
        let Some(one) = self.waiting.iter_mut().find(|one| one.notification.id == failure.id) else {
            return false;
        };
        one.attempts = one.attempts.saturating_add(1).min(ATTEMPTS_MAX);
        one.due = failure.elapsed.saturating_add(policy.retry_after(one.attempts));
        one.why = Some(one_line(failure.why));
        let is_endless = one.notification.kind == Kind::Opened && alert_of(one).is_some_and(failure.is_open);
        let attempts_max = if one.notification.kind == Kind::Test { 1 } else { ATTEMPTS_MAX };
        if one.attempts >= attempts_max && !is_endless {
            self.abandon(failure.id, failure.now_s, failure.why);
        }
        true
    }

    /// Abandons a notification; with an opening, all of its alert on that channel.
    fn abandon(&mut self, id: u64, now_s: u64, why: &str) {
        let Some(position) = self.waiting.iter().position(|one| one.notification.id == id) else { return };
        let Some(one) = self.waiting.remove(position) else { return };
        let (alert, channel) = (alert_of(&one), one.notification.channel.clone());
        let is_opening = one.notification.kind == Kind::Opened;
        self.abandoned.push_back(Abandoned {
            id,
            channel: channel.clone(),
            kind: one.notification.kind,
            subject: one.notification.subject,
            at_s: now_s,
            attempts: one.attempts,
            why: one_line(why),
        });
        while self.abandoned.len() > ABANDONED_MAX {
            self.abandoned.pop_front();
        }
        if is_opening {
            self.waiting.retain(|one| one.notification.channel != channel || alert_of(one) != alert);
        }
    }

    /// Removes what goes to channels that there are no more. A test says so to whoever waits for it.
    pub(crate) fn keep_channels(&mut self, policy: &Policy) {
        let is_known = |name: &String| policy.channels().any(|channel| channel == name);
        let tests = self.waiting.iter().map(|one| &one.notification).filter(|one| one.kind == Kind::Test);
        let lost: Vec<(u64, u64)> =
            tests.filter(|one| !is_known(&one.channel)).map(|one| (one.id, one.at_s)).collect();
        for (id, at_s) in lost {
            self.abandon(id, at_s, "there is no such channel");
        }
        self.waiting.retain(|one| policy.channels().any(|channel| *channel == one.notification.channel));
    }

    /// Returns what waits for a channel.
    pub(crate) fn waiting_on(&self, channel: &str) -> WaitingOn<'_> {
        let waiting = self.waiting.iter().filter(|one| one.notification.channel == channel);
        let failed = waiting.clone().filter(|one| one.why.is_some()).max_by_key(|one| one.attempts);
        WaitingOn {
            count: waiting.count(),
            attempts: failed.map_or(0, |one| one.attempts),
            why: failed.and_then(|one| one.why.as_deref()),
        }
    }

    /// Returns how far a test is; one that waits is abandoned at this time, if any is given.
    pub(crate) fn state_of_test(&mut self, id: u64, end_s: Option<u64>) -> TestState {
        if self.waiting.iter().any(|one| one.notification.id == id) {
            let Some(end_s) = end_s else { return TestState::Waiting };
            self.abandon(id, end_s, "it was not sent in time");
        }
        let abandoned = self.abandoned.iter().find(|one| one.id == id);
        abandoned.map_or(TestState::Sent, |one| TestState::Failed(one.why.clone()))
    }

    pub(crate) fn abandoned(&self) -> impl Iterator<Item = &Abandoned> {
        self.abandoned.iter()
    }

    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Whether numbers and bounds are as this build writes them.
    pub(crate) fn is_sound(&self) -> bool {
        let ids = self.waiting.iter().map(|one| one.notification.id);
        let is_sorted = ids.clone().is_sorted_by(|a, b| a < b);
        let are_given = ids.max().is_none_or(|last| last <= self.next_id);
        let is_bounded = self.waiting.len() <= WAITING_MAX && self.abandoned.len() <= ABANDONED_MAX;
        is_sorted && are_given && is_bounded && self.next_id < u64::MAX
    }
}
