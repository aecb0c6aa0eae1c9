//! One alert: from a condition that is seen to its notifications.
//!
//! ```text
//!            condition holds long enough,          absent long enough
//!            severe enough, not silenced
//!  pending ───────────────────────────────▶ open ─────────────────────▶ closed
//!     │            opening                  │  ▲          all-clear
//!     └▶ dropped: absent as long            └──┘ severity, growth, reminder
//! ```
//! A condition that comes and goes faster than these times stays pending or open: it is neither missed nor reported again and again.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::cause::{Cause, CauseKind, Condition, EVIDENCE_MAX};
use crate::evidence::Evidence;
use crate::policy::Policy;
use crate::severity::Severity;

/// Causes that an alert remembers to have reported.
const CAUSES_MAX: usize = 8 * EVIDENCE_MAX;

/// State of an alert.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum Phase {
    /// Its condition was seen first at this time, and nothing was reported.
    Pending {
        /// In seconds that elapsed.
        since: u64,
    },
    /// Its opening is on its way or was sent.
    Open(Reported),
}

/// What was reported of an open alert. Times are seconds that elapsed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Reported {
    severity: Severity,
    /// Channels that its opening goes or went to. No other gets anything of it.
    pub(crate) channels: BTreeSet<String>,
    /// The evidence that was nearest to the cause so far, with what followed from it: the all-clear names the same.
    pub(crate) evidence: Vec<Evidence>,
    pub(crate) left_out: usize,
    /// Its distance to the cause.
    distance: u8,
    /// Identities of evidence at that distance.
    causes: BTreeSet<String>,
    amount: u64,
    /// When anything was reported last.
    at: u64,
    /// When anything but a reminder was reported last.
    changed_at: u64,
    reminders: u32,
    /// Since when the severity is another one, and which.
    other_severity: Option<(Severity, u64)>,
}

/// An alert.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Alert {
    pub(crate) id: u64,
    pub(crate) cause: Cause,
    pub(crate) severity: Severity,
    pub(crate) evidence: Vec<Evidence>,
    pub(crate) left_out: usize,
    /// When its condition was seen first, in seconds since 1970.
    pub(crate) since_s: u64,
    pub(crate) is_silenced: bool,
    pub(crate) phase: Phase,
    /// Since when its condition is absent, in seconds that elapsed.
    pub(crate) absent_since: Option<u64>,
}

/// What a step of an alert leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// Nothing.
    Stay,
    /// It opens.
    Open,
    /// It is another severity now.
    Severity {
        /// The severity before.
        before: Severity,
    },
    /// There is more of it.
    Growth,
    /// It is still open.
    Reminder,
    /// It closes.
    Close,
    /// It was never reported, and is forgotten.
    Drop,
}

impl Alert {
    /// Its number.
    #[must_use]
    pub const fn id(&self) -> u64 {
        self.id
    }

    /// Its cause.
    #[must_use]
    pub const fn cause(&self) -> &Cause {
        &self.cause
    }

    /// Its severity now.
    #[must_use]
    pub const fn severity(&self) -> Severity {
        self.severity
    }

    /// Its evidence, nearest to the cause first.
    #[must_use]
    pub fn evidence(&self) -> &[Evidence] {
        &self.evidence
    }

    /// Pieces of evidence that are not listed.
    #[must_use]
    pub const fn left_out(&self) -> usize {
        self.left_out
    }

    /// When its condition was seen first, in seconds since 1970.
    #[must_use]
    pub const fn since_s(&self) -> u64 {
        self.since_s
    }

    /// Whether a silence matches it.
    #[must_use]
    pub const fn is_silenced(&self) -> bool {
        self.is_silenced
    }

    /// Whether it is open: its opening was sent, or is on its way.
    #[must_use]
    pub const fn is_open(&self) -> bool {
        matches!(self.phase, Phase::Open(_))
    }

    pub(crate) fn new(id: u64, condition: Condition, now_s: u64, elapsed: u64) -> Self {
        Self {
            id,
            cause: condition.cause,
            severity: condition.severity,
            evidence: condition.evidence,
            left_out: condition.left_out,
            since_s: now_s,
            is_silenced: condition.is_silenced,
            phase: Phase::Pending { since: elapsed },
            absent_since: None,
        }
    }

    /// Takes the content of its condition.
    pub(crate) fn see(&mut self, condition: Condition) {
        self.severity = condition.severity;
        self.evidence = condition.evidence;
        self.left_out = condition.left_out;
        self.is_silenced = condition.is_silenced;
        self.absent_since = None;
    }

    fn distance(&self) -> u8 {
        self.evidence.first().map_or(0, |one| one.distance)
    }

    fn causes(&self) -> BTreeSet<String> {
        let distance = self.distance();
        let nearest = self.evidence.iter().take_while(|one| one.distance == distance);
        nearest.map(Evidence::identity).collect()
    }

    fn amount(&self) -> u64 {
        self.evidence.iter().fold(0, |sum, one| sum.saturating_add(one.amount))
    }

    fn reported(&self, elapsed: u64) -> Reported {
        Reported {
            severity: self.severity,
            channels: BTreeSet::new(),
            evidence: self.evidence.clone(),
            left_out: self.left_out,
            distance: self.distance(),
            causes: self.causes(),
            amount: self.amount(),
            at: elapsed,
            changed_at: elapsed,
            reminders: 0,
            other_severity: None,
        }
    }

    /// Decides what follows from its condition holding at this time, and notes it.
    pub(crate) fn step_present(&mut self, elapsed: u64, policy: &Policy) -> Step {
        let is_daemon = self.cause.kind == CauseKind::Daemon;
        let after = if is_daemon { policy.unanswered_after_s } else { policy.open_after(self.severity) };
        let fresh = self.reported(elapsed);
        let (severity, is_silenced) = (self.severity, self.is_silenced);
        match &mut self.phase {
            Phase::Pending { since } => {
                let is_due = elapsed.saturating_sub(*since) >= after && severity >= policy.least;
                if !is_due || is_silenced {
                    return Step::Stay;
                }
                self.phase = Phase::Open(fresh);
                Step::Open
            }
            Phase::Open(reported) => {
                let step = reported.step(&fresh, elapsed, policy);
                if is_silenced || step == Step::Stay {
                    return Step::Stay;
                }
                reported.note(step, fresh);
                step
            }
        }
    }

    /// Returns the channels that know of it.
    pub(crate) fn channels(&self) -> BTreeSet<String> {
        match &self.phase {
            Phase::Open(reported) => reported.channels.clone(),
            Phase::Pending { .. } => BTreeSet::new(),
        }
    }

    /// Notes the channels that there are, and returns those that do not know of it yet, where it is open and not silenced.
    pub(crate) fn take_channels(&mut self, all: &BTreeSet<String>) -> BTreeSet<String> {
        let Phase::Open(reported) = &mut self.phase else { return BTreeSet::new() };
        reported.channels.retain(|channel| all.contains(channel));
        if self.is_silenced {
            return BTreeSet::new();
        }
        let fresh = all.difference(&reported.channels).cloned().collect();
        reported.channels.clone_from(all);
        fresh
    }

    /// Returns the alert as its all-clear names it: by what was reported, not by what ended last.
    pub(crate) fn as_reported(&self) -> Self {
        let mut alert = self.clone();
        if let Phase::Open(reported) = &self.phase {
            (alert.evidence, alert.left_out) = (reported.evidence.clone(), reported.left_out);
        }
        alert
    }

    /// Decides what follows from its condition being absent at this time.
    pub(crate) fn step_absent(&mut self, elapsed: u64, openings: usize, policy: &Policy) -> Step {
        let since = *self.absent_since.get_or_insert(elapsed);
        let absent_for = elapsed.saturating_sub(since);
        match &self.phase {
            Phase::Pending { .. } if absent_for >= policy.open_after(self.severity) => Step::Drop,
            Phase::Open(_) if absent_for >= policy.close_after(openings) => Step::Close,
            Phase::Pending { .. } | Phase::Open(_) => Step::Stay,
        }
    }
}

impl Reported {
    /// Decides whether something is to be reported again, by what would be reported now.
    fn step(&mut self, fresh: &Self, elapsed: u64, policy: &Policy) -> Step {
        let severity = fresh.severity;
        if severity == self.severity {
            self.other_severity = None;
        } else {
            let since = match self.other_severity {
                Some((other, since)) if other == severity => since,
                _ => elapsed,
            };
            self.other_severity = Some((severity, since));
            let is_raised = severity > self.severity;
            let hold = if is_raised { policy.open_after(severity) } else { policy.close_after_s };
            if elapsed.saturating_sub(since) >= hold {
                return Step::Severity { before: self.severity };
            }
            if is_raised {
                // What else is new is reported with it.
                return Step::Stay;
            }
        }
        // Evidence that is further from the cause than what was reported remains when the cause ends: it is no growth.
        let is_new_cause = fresh.distance <= self.distance && !fresh.causes.is_subset(&self.causes);
        let is_more = is_new_cause || fresh.amount > self.amount.saturating_mul(2);
        if is_more && elapsed.saturating_sub(self.changed_at) >= policy.growth_pause_s {
            return Step::Growth;
        }
        let reminder = policy.remind_after(self.reminders);
        match reminder.is_some_and(|after| elapsed.saturating_sub(self.at) >= after) {
            true => Step::Reminder,
            false => Step::Stay,
        }
    }

    /// Notes that this was reported.
    fn note(&mut self, step: Step, fresh: Self) {
        self.at = fresh.at;
        self.amount = self.amount.max(fresh.amount);
        if fresh.distance <= self.distance {
            (self.distance, self.evidence, self.left_out) = (fresh.distance, fresh.evidence, fresh.left_out);
            self.causes.extend(fresh.causes);
        }
        // What was reported stays in the set, so that a cause that comes and goes is reported once. Its size follows the alert's.
        while self.causes.len() > CAUSES_MAX {
            self.causes.pop_first();
        }
        if step == Step::Reminder {
            self.reminders = self.reminders.saturating_add(1);
        } else {
            (self.severity, self.other_severity) = (fresh.severity, None);
            (self.changed_at, self.reminders) = (fresh.at, 0);
        }
    }
}
