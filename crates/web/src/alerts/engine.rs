//! The engine: one look at the daemon every few seconds, and what follows from it.
//!
//! Alerts follow states, so the events of the daemon add nothing to its status: what an event reports is in the next look.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use dolmen_alerts::{Alerts, Look, Notification, STEP_MAX_S, TestState};
use dolmen_api::{ErrorBody, Finding, FindingCode, Health, Object, Status};
use dolmen_causes::in_one_line;
use serde_json::Value;
use tokio::sync::Notify;
use tokio::time::{MissedTickBehavior, interval, sleep};

use super::file::{Keep, StateFile};
use super::report::report;
use super::settings::Settings;
use crate::daemon::Daemon;
use crate::error::WebError;
use crate::server::Certificates;

/// How often the daemon is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(5);
const _: () =
    assert!(LOOK_EVERY.as_secs() + LOOK_LIMIT.as_secs() <= STEP_MAX_S, "delays count looks in full");
/// How long the daemon may take to answer.
const LOOK_LIMIT: Duration = Duration::from_secs(10);
/// Pause after a look or a change that freed notifications, so that a channel that refuses is not asked in a loop.
const AGAIN_AFTER: Duration = Duration::from_millis(200);
/// Name of the looks in the daemon's record.
const LOOKER: &str = "console/alerts";
const DAY_S: u64 = 86_400;
/// How long a test is waited for: longer than one attempt may take.
const TEST_LIMIT: Duration = Duration::from_secs(45);
/// How often a test that waits is looked at.
const TEST_EVERY: Duration = Duration::from_millis(250);

/// Alerts of this host.
pub(crate) struct Engine {
    file: StateFile,
    settings_path: Option<PathBuf>,
    settings: RwLock<Arc<Settings>>,
    /// Channels of which an attempt is under way.
    busy: Mutex<BTreeSet<String>>,
    /// Why the state cannot be saved.
    trouble: Mutex<Option<String>>,
    wake: Notify,
    /// Seconds since 1970.
    clock: fn() -> u64,
}

/// A test of one channel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Tested {
    pub channel: String,
    pub result: TestResult,
}

/// How a test ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum TestResult {
    Sent,
    Failed(String),
}

impl Engine {
    /// Reads settings and state. Either that cannot be used is refused by name.
    pub(crate) fn open(
        state: &Path,
        settings_path: Option<&Path>,
        clock: fn() -> u64,
    ) -> Result<Arc<Self>, WebError> {
        let settings = Settings::read(settings_path)?;
        let engine = Self {
            file: StateFile::in_folder(state),
            settings_path: settings_path.map(Path::to_path_buf),
            settings: RwLock::new(Arc::new(settings)),
            busy: Mutex::default(),
            trouble: Mutex::default(),
            wake: Notify::new(),
            clock,
        };
        engine.change_now(Keep::Change, |_| Ok(()))?;
        Ok(Arc::new(engine))
    }

    pub(crate) fn settings(&self) -> Arc<Settings> {
        Arc::clone(&self.settings.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Reads the settings again. Those that cannot be used leave the ones in force.
    pub(crate) async fn reread(self: &Arc<Self>) {
        match Settings::read(self.settings_path.as_deref()) {
            Ok(settings) => {
                let policy = settings.policy.clone();
                *self.settings.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(settings);
                tracing::info!(channels = policy.channels.len(), "the settings of alerts are read again");
                self.change_or_note(move |alerts| alerts.set_policy(policy)).await;
                self.wake.notify_one();
            }
            Err(error) => {
                tracing::error!(error = in_one_line(&error), "the settings of alerts stay as they were");
            }
        }
    }

    /// Changes the alerts, and waits for the disk.
    fn change_now<T>(
        &self,
        keep: Keep,
        change: impl FnOnce(&mut Alerts) -> Result<T, WebError>,
    ) -> Result<T, WebError> {
        let settings = self.settings();
        self.file.change(Some(&settings.policy), keep, change)
    }

    /// Changes the alerts, on a thread that may wait for the disk. What cannot be written is undone.
    pub(crate) async fn change<T: Send + 'static>(
        self: &Arc<Self>,
        change: impl FnOnce(&mut Alerts, u64) -> Result<T, WebError> + Send + 'static,
    ) -> Result<T, WebError> {
        let engine = Arc::clone(self);
        let changed = tokio::task::spawn_blocking(move || {
            let now_s = (engine.clock)();
            engine.change_now(Keep::Before, |alerts| change(alerts, now_s))
        });
        let changed = changed.await.map_err(|_| WebError::CutShort)?;
        self.wake.notify_one();
        changed
    }

    /// Notes what was seen or sent. It holds in memory where it cannot be written, and the next change writes it.
    async fn change_or_note(self: &Arc<Self>, change: impl FnOnce(&mut Alerts) + Send + 'static) {
        let engine = Arc::clone(self);
        let changed = tokio::task::spawn_blocking(move || {
            engine.change_now(Keep::Change, |alerts| {
                change(alerts);
                Ok(())
            })
        });
        let trouble = match changed.await {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(in_one_line(&error).to_string()),
            Err(_) => Some("a change of the alerts was cut short".to_owned()),
        };
        let mut before = self.trouble.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(trouble) = &trouble
            && before.as_ref() != Some(trouble)
        {
            tracing::error!(
                error = trouble,
                "the state of alerts cannot be saved; after a restart notifications may be sent again"
            );
        }
        *before = trouble;
    }

    /// Returns alerts, silences and channels as a document.
    pub(crate) async fn report(self: &Arc<Self>) -> Result<Value, WebError> {
        let settings = self.settings();
        let trouble = self.trouble.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let engine = Arc::clone(self);
        let made = tokio::task::spawn_blocking(move || {
            let (now_s, mut made) = ((engine.clock)(), None);
            let read = engine.change_now(Keep::Before, |alerts| {
                made = Some(report(alerts, Some(&settings), now_s, trouble.as_deref()));
                Ok(())
            });
            // A state that cannot be saved is shown all the same; `trouble` says so.
            made.map_or_else(|| read.map(|()| Value::Null), Ok)
        });
        made.await.map_err(|_| WebError::CutShort)?
    }

    /// Sends a test to a channel, or to all, the way that every notification goes; returns how it ended for each.
    pub(crate) async fn test(
        self: &Arc<Self>,
        channel: Option<String>,
        author: String,
    ) -> Result<Vec<Tested>, WebError> {
        let settings = self.settings();
        let known = settings.channels.iter().map(|one| one.name.clone());
        let channels: Vec<String> =
            known.filter(|name| channel.as_ref().is_none_or(|asked| asked == name)).collect();
        if channels.is_empty() {
            return Err(WebError::NoChannel { channel });
        }
        let asked = self.change(move |alerts, now_s| {
            let tests = channels.into_iter().map(|channel| {
                let id = alerts.test(&channel, &author, now_s);
                (channel, id)
            });
            Ok(tests.collect::<Vec<_>>())
        });
        let mut waiting = asked.await?;
        let mut tested = Vec::new();
        let mut left = TEST_LIMIT;
        while !waiting.is_empty() {
            let is_last = left.is_zero();
            let ids: Vec<u64> = waiting.iter().map(|(_, id)| *id).collect();
            let states = self.change(move |alerts, now_s| {
                Ok(ids
                    .into_iter()
                    .map(|id| alerts.state_of_test(id, is_last.then_some(now_s)))
                    .collect::<Vec<_>>())
            });
            let states = states.await?;
            let mut still = Vec::new();
            for ((channel, id), state) in waiting.into_iter().zip(states) {
                let result = match state {
                    TestState::Waiting => {
                        still.push((channel, id));
                        continue;
                    }
                    TestState::Sent => TestResult::Sent,
                    TestState::Failed(why) => TestResult::Failed(why),
                };
                tested.push(Tested { channel, result });
            }
            waiting = still;
            if !waiting.is_empty() {
                sleep(TEST_EVERY).await;
                left = left.saturating_sub(TEST_EVERY);
            }
        }
        Ok(tested)
    }

    /// Looks and sends until the server ends.
    pub(crate) async fn run(self: Arc<Self>, daemon: Daemon, certificates: Arc<Certificates>) {
        let mut ticks = interval(LOOK_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = ticks.tick() => self.look(&daemon, &certificates).await,
                () = self.wake.notified() => sleep(AGAIN_AFTER).await,
            }
            self.send_due().await;
        }
    }

    async fn look(self: &Arc<Self>, daemon: &Daemon, certificates: &Certificates) {
        let seen = findings_of(daemon.look("/v1/status", LOOKER, LOOK_LIMIT).await);
        let now_s = (self.clock)();
        certificates.follow(now_s);
        let until_s = certificates.facts().until_s;
        let own = certificate_finding(until_s, now_s, self.settings().certificate_days);
        self.change_or_note(move |alerts| match seen {
            Ok(mut findings) => {
                findings.extend(own);
                alerts.look(now_s, Look::Answered(&findings));
            }
            Err(why) => alerts.look(now_s, Look::Unanswered(&why)),
        })
        .await;
    }

    /// Starts attempts for what is due on channels without one.
    async fn send_due(self: &Arc<Self>) {
        let now_s = (self.clock)();
        let engine = Arc::clone(self);
        let due = tokio::task::spawn_blocking(move || {
            let mut due = Vec::new();
            let noted = engine.change_now(Keep::Change, |alerts| {
                due = alerts.due(now_s);
                Ok(())
            });
            // The look before has logged it. What cannot be saved is sent all the same: better twice than never.
            drop(noted);
            due
        });
        let Ok(due) = due.await else { return };
        let mut by_channel: BTreeMap<String, Vec<Notification>> = BTreeMap::new();
        for notification in due {
            by_channel.entry(notification.channel.clone()).or_default().push(notification);
        }
        let settings = self.settings();
        for (name, notifications) in by_channel {
            let Some(channel) = settings.channel(&name).cloned() else { continue };
            if !self.busy.lock().unwrap_or_else(PoisonError::into_inner).insert(name.clone()) {
                continue;
            }
            let engine = Arc::clone(self);
            tokio::spawn(async move {
                for notification in notifications {
                    let sent = channel.send(&notification).await;
                    engine.note(&notification, sent).await;
                }
                engine.busy.lock().unwrap_or_else(PoisonError::into_inner).remove(&name);
                engine.wake.notify_one();
            });
        }
    }

    /// Notes how an attempt ended.
    async fn note(self: &Arc<Self>, notification: &Notification, sent: Result<(), String>) {
        let (id, channel, subject, kind) =
            (notification.id, &notification.channel, &notification.subject, notification.kind.word());
        match &sent {
            Ok(()) => tracing::info!(id, channel, kind, subject, "a notification was sent"),
            Err(why) => tracing::warn!(id, channel, kind, subject, why, "a notification was not sent"),
        }
        let now_s = (self.clock)();
        self.change_or_note(move |alerts| {
            match sent {
                Ok(()) => alerts.sent(id, now_s),
                Err(why) => alerts.failed(id, now_s, &why),
            };
        })
        .await;
    }
}

/// Returns the findings of an answer, or why there is none.
fn findings_of(answer: Result<axum::body::Bytes, ErrorBody>) -> Result<Vec<Finding>, String> {
    let body = answer.map_err(|error| error.message)?;
    let status: Status =
        serde_json::from_slice(&body).map_err(|error| format!("its status cannot be read: {error}"))?;
    if status.findings.is_empty() && status.health != Health::Healthy {
        return Err("its status has no list of findings: it is of an earlier version; restart it".to_owned());
    }
    Ok(status.findings)
}

/// Returns the finding that the certificate of this server ends soon, or has ended.
fn certificate_finding(until_s: u64, now_s: u64, days: u64) -> Option<Finding> {
    let left_s = until_s.saturating_sub(now_s);
    if left_s >= days.saturating_mul(DAY_S) {
        return None;
    }
    let (health, ends) = match left_s {
        0 => (Health::Unhealthy, "has expired".to_owned()),
        left_s if left_s < DAY_S => (Health::Warning, "expires within a day".to_owned()),
        left_s => (Health::Warning, format!("expires within {} days", left_s / DAY_S + 1)),
    };
    let text = format!(
        "the certificate of dolmen-web {ends}; put the next one in its place, which is read by itself; one that dolmen-web makes is due for 30 days before, and its log says why it was not made"
    );
    let object = Object::daemon("dolmen-web");
    Some(Finding { code: FindingCode::CertificateTrouble, health, object, text, amount: 0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_that_ends_is_a_finding() {
        let health = |until_s| certificate_finding(until_s, 1000, 14).map(|finding| finding.health);
        assert_eq!(health(1000 + 14 * DAY_S), None);
        assert_eq!(health(1000 + 14 * DAY_S - 1), Some(Health::Warning));
        assert_eq!(health(1000), Some(Health::Unhealthy));
        assert_eq!(health(0), Some(Health::Unhealthy));
        let text = |until_s| certificate_finding(until_s, 0, 14).unwrap().text;
        assert!(text(13 * DAY_S).contains("within 14 days") && text(5).contains("within a day"));
    }

    #[test]
    fn a_status_without_findings_is_no_healthy_one() {
        let version = r#"{"schema":1,"daemon":"0","api":1}"#;
        let status = |health: &str, more: &str| {
            format!(
                r#"{{"schema":1,"health":"{health}","summary":"","why":[],"doing":[],"todo":[],"version":{version},"uptime_s":1,"pid":1,"pools":[],"spaces":[]{more}}}"#
            )
        };
        let of = |text: String| findings_of(Ok(text.into()));
        assert_eq!(of(status("healthy", "")), Ok(Vec::new()));
        assert!(of(status("warning", "")).unwrap_err().contains("earlier version"));
        let finding = r#","findings":[{"code":"disk_absent","health":"warning","object":{"kind":"disk","pool":"tank","name":"1"},"text":"a"}]"#;
        assert_eq!(of(status("warning", finding)).unwrap().len(), 1);
        assert!(of("{}".to_owned()).unwrap_err().contains("cannot be read"));
    }
}
