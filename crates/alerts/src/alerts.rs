//! All alerts of a host: looks in, notifications out.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use dolmen_api::Finding;
use serde::{Deserialize, Serialize};

use crate::alert::{Alert, Phase, Step};
use crate::cause::{Cause, Condition, conditions, unanswered};
use crate::clock::Elapsed;
use crate::notification::{AlertContent, Kind, Notification};
use crate::outbox::{Abandoned, Failure, Outbox, TestState, WaitingOn};
use crate::policy::Policy;
use crate::severity::Severity;
use crate::silence::{NewSilence, SILENCES_MAX, Silence, SilenceError};
use crate::text::{Report, Tally, of_alert, of_heartbeat, of_test};

/// Alerts that are kept one by one, at most. Others are one alert of kind `further`.
pub const ALERTS_MAX: usize = 512;
/// Causes of which it is remembered how often they opened, at most.
const HISTORY_MAX: usize = 2 * ALERTS_MAX;
/// Openings of one cause that are remembered, at most.
const OPENINGS_MAX: usize = 16;
const DAY_S: u64 = 24 * 3600;
/// The least time between two heartbeats: a clock that jumps over the hour in both directions sends no more.
const HEARTBEAT_PAUSE_S: u64 = 3600;

/// What a caller saw at the daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Look<'a> {
    /// It answered, with all findings of pools and of itself.
    Answered(&'a [Finding]),
    /// It did not answer, for this reason.
    Unanswered(&'a str),
}

/// What is saved.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct State {
    pub(crate) clock: Elapsed,
    pub(crate) next_id: u64,
    #[serde(with = "crate::saved::by_cause")]
    pub(crate) alerts: BTreeMap<Cause, Alert>,
    /// Times at which alerts of a cause opened within a day, in seconds that elapsed.
    #[serde(with = "crate::saved::pairs")]
    pub(crate) openings: BTreeMap<Cause, VecDeque<u64>>,
    pub(crate) silences: Vec<Silence>,
    pub(crate) outbox: Outbox,
    pub(crate) is_answered: bool,
    pub(crate) heartbeat: Option<Heartbeat>,
}

/// The last heartbeat.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Heartbeat {
    /// Its day, counted from the second of the day at which it is sent.
    day: u64,
    /// When it was made, in seconds that elapsed; absent before the first one.
    at: Option<u64>,
}

/// Alerts of a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Alerts {
    pub(crate) policy: Policy,
    pub(crate) state: State,
}

impl Alerts {
    /// Returns alerts of a host of which nothing is known.
    #[must_use]
    pub fn new(policy: Policy) -> Self {
        Self { policy, state: State::default() }
    }

    /// Takes another policy. What waits for a channel that is no more is dropped.
    pub fn set_policy(&mut self, policy: Policy) {
        self.state.outbox.keep_channels(&policy);
        self.policy = policy;
    }

    /// Takes a look at the daemon, at seconds since 1970. Callers look every [`STEP_MAX_S`](crate::STEP_MAX_S) seconds
    /// at least; delays become longer otherwise.
    pub fn look(&mut self, now_s: u64, look: Look<'_>) {
        let elapsed = self.state.clock.step(now_s);
        self.state.silences.retain(|silence| !silence.is_over(now_s, elapsed));
        let (seen, hidden) = match look {
            Look::Answered(findings) => {
                let found = conditions(findings, &self.state.silences);
                (found.all, Hidden::Pools(found.hidden_pools))
            }
            Look::Unanswered(why) => (vec![unanswered(why, &self.state.silences)], Hidden::All),
        };
        self.state.is_answered = matches!(look, Look::Answered(_));
        let seen = self.see(seen, now_s, elapsed);
        self.step_all(&seen, &hidden, now_s, elapsed);
        self.send_openings(now_s, elapsed);
        self.beat(now_s, elapsed);
    }

    /// Notes the conditions of a look, and returns their causes.
    fn see(&mut self, conditions: Vec<Condition>, now_s: u64, elapsed: u64) -> BTreeSet<Cause> {
        let is_known = |one: &Condition| self.state.alerts.contains_key(&one.cause);
        let (mut seen, mut fresh): (Vec<_>, Vec<_>) = conditions.into_iter().partition(is_known);
        // The worst come first where not all have room.
        fresh.sort_by_key(|one| std::cmp::Reverse(one.severity));
        let room = ALERTS_MAX.saturating_sub(self.state.alerts.len());
        let further = fresh.split_off(fresh.len().min(room));
        let unsilenced: Vec<Condition> = further.into_iter().filter(|one| !one.is_silenced).collect();
        if !unsilenced.is_empty() {
            fresh.push(Condition::further(&unsilenced));
        }
        seen.extend(fresh);
        let mut causes = BTreeSet::new();
        for condition in seen {
            causes.insert(condition.cause.clone());
            match self.state.alerts.get_mut(&condition.cause) {
                Some(alert) => alert.see(condition),
                None => {
                    self.state.next_id += 1;
                    let alert = Alert::new(self.state.next_id, condition, now_s, elapsed);
                    self.state.alerts.insert(alert.cause.clone(), alert);
                }
            }
        }
        causes
    }

    fn step_all(&mut self, seen: &BTreeSet<Cause>, hidden: &Hidden, now_s: u64, elapsed: u64) {
        self.forget_openings(elapsed);
        let causes: Vec<Cause> = self.state.alerts.keys().cloned().collect();
        for cause in causes {
            let openings = self.state.openings.get(&cause).map_or(0, VecDeque::len);
            let Some(alert) = self.state.alerts.get_mut(&cause) else { continue };
            let step = if seen.contains(&cause) {
                alert.step_present(elapsed, &self.policy)
            } else if hidden.hides(&cause) {
                // Whether it ended cannot be seen. The delay begins again when it can.
                alert.absent_since = None;
                Step::Stay
            } else {
                alert.step_absent(elapsed, openings, &self.policy)
            };
            self.follow(&cause, step, now_s, elapsed);
        }
    }

    /// Does what a step leads to.
    fn follow(&mut self, cause: &Cause, step: Step, now_s: u64, elapsed: u64) {
        let Some(alert) = self.state.alerts.get(cause) else { return };
        let (kind, before) = match step {
            Step::Stay => return,
            Step::Drop => {
                self.state.alerts.remove(cause);
                return;
            }
            Step::Open => {
                // `send_openings` sends it.
                let openings = self.state.openings.entry(cause.clone()).or_default();
                openings.push_back(elapsed);
                while openings.len() > OPENINGS_MAX {
                    openings.pop_front();
                }
                return;
            }
            Step::Severity { before } if alert.severity > before => (Kind::Raised, Some(before)),
            Step::Severity { before } => (Kind::Lowered, Some(before)),
            Step::Growth => (Kind::Grown, None),
            Step::Reminder => (Kind::Reminder, None),
            Step::Close => (Kind::Closed, None),
        };
        let alert = if kind == Kind::Closed { alert.as_reported() } else { alert.clone() };
        if kind == Kind::Closed {
            self.state.alerts.remove(cause);
        }
        let channels = alert.channels();
        self.put_alert(alert, (kind, before), &channels, now_s, elapsed);
    }

    /// Sends the opening of each open alert to the channels that do not know of it: to all when it opens, later to a channel that is new.
    fn send_openings(&mut self, now_s: u64, elapsed: u64) {
        let all: BTreeSet<String> = self.policy.channels().cloned().collect();
        let mut openings = Vec::new();
        for alert in self.state.alerts.values_mut() {
            let fresh = alert.take_channels(&all);
            if !fresh.is_empty() {
                openings.push((alert.clone(), fresh));
            }
        }
        for (alert, fresh) in openings {
            self.put_alert(alert, (Kind::Opened, None), &fresh, now_s, elapsed);
        }
    }

    /// Adds a notification of an alert for each of these channels.
    fn put_alert(
        &mut self,
        alert: Alert,
        (kind, before): (Kind, Option<Severity>),
        channels: &BTreeSet<String>,
        now_s: u64,
        elapsed: u64,
    ) {
        let words = of_alert(&alert, &Report { kind, host: &self.policy.host, now_s, before });
        let content = Notification {
            id: 0,
            channel: String::new(),
            kind,
            severity: alert.severity,
            host: self.policy.host.clone(),
            at_s: now_s,
            subject: words.subject,
            body: words.body,
            commands: words.commands,
            alert: Some(AlertContent {
                id: alert.id,
                cause: alert.cause,
                since_s: alert.since_s,
                evidence: alert.evidence,
                left_out: alert.left_out,
            }),
        };
        self.put(&content, channels, elapsed);
    }

    /// Adds a notification for each of these channels.
    fn put(&mut self, content: &Notification, channels: &BTreeSet<String>, elapsed: u64) {
        let open = open_alerts(&self.state.alerts);
        for channel in channels {
            let notification = Notification { channel: channel.clone(), ..content.clone() };
            self.state.outbox.add(notification, content.at_s, elapsed, &|id| open.contains(&id));
        }
    }

    /// Forgets openings that are older than a day, and those of the causes that opened longest ago where there are too many.
    fn forget_openings(&mut self, elapsed: u64) {
        let openings = &mut self.state.openings;
        for times in openings.values_mut() {
            times.retain(|at| elapsed.saturating_sub(*at) < DAY_S);
        }
        openings.retain(|_, times| !times.is_empty());
        while openings.len() > HISTORY_MAX {
            let oldest = openings.iter().min_by_key(|(_, times)| times.back().copied());
            let Some(oldest) = oldest.map(|(cause, _)| cause.clone()) else { return };
            openings.remove(&oldest);
        }
    }

    /// Sends a heartbeat where the hour for one has passed since the last.
    fn beat(&mut self, now_s: u64, elapsed: u64) {
        let Some(at_s) = self.policy.heartbeat_at_s else {
            self.state.heartbeat = None;
            return;
        };
        let day = now_s.saturating_add(DAY_S).saturating_sub(at_s % DAY_S) / DAY_S;
        let last = *self.state.heartbeat.get_or_insert(Heartbeat { day, at: None });
        let is_paused = last.at.is_some_and(|at| elapsed.saturating_sub(at) < HEARTBEAT_PAUSE_S);
        if day == last.day || is_paused {
            return;
        }
        self.state.heartbeat = Some(Heartbeat { day, at: Some(elapsed) });
        let tally = Tally {
            is_answered: self.state.is_answered,
            open: self.open().count(),
            silences: self.state.silences.len(),
        };
        let words = of_heartbeat(&tally, &self.policy.host);
        let content = Notification {
            id: 0,
            channel: String::new(),
            kind: Kind::Heartbeat,
            severity: Severity::Notice,
            host: self.policy.host.clone(),
            at_s: now_s,
            subject: words.subject,
            body: words.body,
            commands: words.commands,
            alert: None,
        };
        self.put(&content, &self.policy.channels().cloned().collect(), elapsed);
    }

    /// Returns what is to be sent now. Each is returned again until [`sent`](Self::sent) or [`failed`](Self::failed) is called for it.
    #[must_use]
    pub fn due(&mut self, now_s: u64) -> Vec<Notification> {
        let elapsed = self.state.clock.step(now_s);
        self.state.outbox.due(elapsed)
    }

    /// Notes that a notification was sent. Returns whether it was waiting.
    pub fn sent(&mut self, id: u64, now_s: u64) -> bool {
        self.state.clock.step(now_s);
        self.state.outbox.sent(id)
    }

    /// Notes that sending failed: it is tried again after a pause. Returns whether it was waiting.
    pub fn failed(&mut self, id: u64, now_s: u64, why: &str) -> bool {
        let elapsed = self.state.clock.step(now_s);
        let open = open_alerts(&self.state.alerts);
        let is_open = |id: u64| open.contains(&id);
        self.state.outbox.failed(&Failure { id, now_s, elapsed, why, is_open: &is_open }, &self.policy)
    }

    /// Adds a test for a channel, and returns its number. It has one attempt.
    pub fn test(&mut self, channel: &str, author: &str, now_s: u64) -> u64 {
        let elapsed = self.state.clock.step(now_s);
        let words = of_test(author, &self.policy.host);
        let notification = Notification {
            id: 0,
            channel: channel.to_owned(),
            kind: Kind::Test,
            severity: Severity::Notice,
            host: self.policy.host.clone(),
            at_s: now_s,
            subject: words.subject,
            body: words.body,
            commands: words.commands,
            alert: None,
        };
        let open = open_alerts(&self.state.alerts);
        self.state.outbox.add(notification, now_s, elapsed, &|id| open.contains(&id))
    }

    /// Returns how far a test is. One that still waits is abandoned where `end_s`, the time, is given.
    pub fn state_of_test(&mut self, id: u64, end_s: Option<u64>) -> TestState {
        self.state.outbox.state_of_test(id, end_s)
    }

    /// Sets a silence, and returns its number.
    ///
    /// # Errors
    /// There are too many, or it has no author or a duration that is not allowed.
    pub fn silence(&mut self, new: NewSilence, now_s: u64) -> Result<u64, SilenceError> {
        let elapsed = self.state.clock.step(now_s);
        new.check()?;
        self.state.silences.retain(|silence| !silence.is_over(now_s, elapsed));
        if self.state.silences.len() >= SILENCES_MAX {
            return Err(SilenceError::TooMany);
        }
        self.state.next_id += 1;
        let id = self.state.next_id;
        self.state.silences.push(new.set(id, now_s, elapsed));
        Ok(id)
    }

    /// Removes a silence.
    ///
    /// # Errors
    /// There is none with this number.
    pub fn end_silence(&mut self, id: u64) -> Result<(), SilenceError> {
        let before = self.state.silences.len();
        self.state.silences.retain(|silence| silence.id != id);
        if self.state.silences.len() < before { Ok(()) } else { Err(SilenceError::Unknown { id }) }
    }

    /// Silences that are set. Those that are over go with the next look.
    #[must_use]
    pub fn silences(&self) -> &[Silence] {
        &self.state.silences
    }

    /// All alerts, those that are not open among them.
    pub fn all(&self) -> impl Iterator<Item = &Alert> {
        self.state.alerts.values()
    }

    /// Alerts that are open.
    pub fn open(&self) -> impl Iterator<Item = &Alert> {
        self.all().filter(|alert| alert.is_open())
    }

    /// Whether more differs from a saved state than the time that elapsed. The loss of that makes delays a step longer, so callers need not
    /// write each look.
    #[must_use]
    pub fn differs_from(&self, saved: &Self) -> bool {
        let with_clock = State { clock: self.state.clock, ..saved.state.clone() };
        with_clock != self.state
    }

    /// Whether something waits for time to elapse: an alert, a silence, a notification, or the next heartbeat. Where nothing does, the time
    /// need not be saved.
    #[must_use]
    pub fn measures_time(&self) -> bool {
        let state = &self.state;
        let is_idle = state.alerts.is_empty() && state.openings.is_empty() && state.silences.is_empty();
        !is_idle || state.heartbeat.is_some() || self.waiting() > 0
    }

    /// Whether the daemon answered the last look.
    #[must_use]
    pub const fn is_answered(&self) -> bool {
        self.state.is_answered
    }

    /// Returns what waits for a channel.
    #[must_use]
    pub fn waiting_on(&self, channel: &str) -> WaitingOn<'_> {
        self.state.outbox.waiting_on(channel)
    }

    /// Number of notifications that wait.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.state.outbox.len()
    }

    /// Notifications that were abandoned lately, oldest first.
    pub fn abandoned(&self) -> impl Iterator<Item = &Abandoned> {
        self.state.outbox.abandoned()
    }
}

fn open_alerts(alerts: &BTreeMap<Cause, Alert>) -> BTreeSet<u64> {
    alerts.values().filter(|alert| matches!(alert.phase, Phase::Open(_))).map(|alert| alert.id).collect()
}

/// Causes whose end cannot be seen.
enum Hidden {
    /// All but that of the daemon.
    All,
    /// Those of these pools.
    Pools(BTreeSet<String>),
}

impl Hidden {
    fn hides(&self, cause: &Cause) -> bool {
        match self {
            Self::All => *cause != Cause::daemon(),
            Self::Pools(pools) => cause.is_hidden(pools),
        }
    }
}
