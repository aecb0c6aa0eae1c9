//! A caller: it looks, sends and restarts, and keeps what arrived.

use dolmen_alerts::{Alerts, Kind, Look, NewSilence, Notification, Pattern, Policy};
use dolmen_api::{Finding, FindingCode, Health, Object};

/// A usual time: 2026-11-30 13:28:54 UTC.
pub(crate) const BEGIN_S: u64 = 1_796_045_334;
pub(crate) const MINUTE_S: u64 = 60;
pub(crate) const HOUR_S: u64 = 3600;
pub(crate) const DAY_S: u64 = 24 * HOUR_S;

pub(crate) fn finding(code: FindingCode, object: Object, text: &str) -> Finding {
    Finding { code, health: Health::Warning, object, text: text.to_owned(), amount: 0 }
}

pub(crate) fn unhealthy(finding: Finding) -> Finding {
    Finding { health: Health::Unhealthy, ..finding }
}

pub(crate) fn disk_absent(slot: u16) -> Finding {
    let text = format!("/dev/sd{slot} of pool tank is absent");
    finding(FindingCode::DiskAbsent, Object::disk("tank", slot), &text)
}

pub(crate) fn space_degraded(name: &str) -> Finding {
    let text = format!("space tank/{name} is degraded: it survives the loss of 0 more disks instead of 1");
    finding(FindingCode::SpaceDegraded, Object::space("tank", name), &text)
}

pub(crate) fn policy() -> Policy {
    Policy {
        host: "store1".to_owned(),
        channels: vec!["mail".to_owned()],
        remind_after_s: None,
        ..Policy::default()
    }
}

pub(crate) fn silence(code: &str, object: &str, for_s: u64) -> NewSilence {
    NewSilence {
        code: Pattern::new(code).unwrap(),
        object: Pattern::new(object).unwrap(),
        author: "anna".to_owned(),
        comment: "disk is on its way".to_owned(),
        for_s,
    }
}

/// A host whose alerts are saved and restored after each step.
pub(crate) struct Host {
    pub(crate) alerts: Alerts,
    pub(crate) policy: Policy,
    /// The wall clock.
    pub(crate) now_s: u64,
    /// What arrived, in order.
    pub(crate) arrived: Vec<Notification>,
    pub(crate) is_sending: bool,
}

impl Host {
    pub(crate) fn new(policy: Policy) -> Self {
        let alerts = Alerts::new(policy.clone());
        Self { alerts, policy, now_s: BEGIN_S, arrived: Vec::new(), is_sending: true }
    }

    /// Restarts the caller: what is not in the saved state is lost.
    pub(crate) fn restart(&mut self) {
        let restored = Alerts::restore(&self.alerts.save().unwrap(), self.policy.clone()).unwrap();
        assert_eq!(restored, self.alerts, "a saved state reads back as it was");
        self.alerts = restored;
    }

    /// Restarts the caller where the state may have what its policy does not know.
    pub(crate) fn restart_with_the_policy(&mut self) {
        self.alerts = Alerts::restore(&self.alerts.save().unwrap(), self.policy.clone()).unwrap();
    }

    pub(crate) fn send(&mut self) {
        for notification in self.alerts.due(self.now_s) {
            if self.is_sending {
                assert!(self.alerts.sent(notification.id, self.now_s));
                self.arrived.push(notification);
            } else {
                assert!(self.alerts.failed(notification.id, self.now_s, "connection refused"));
            }
            self.restart();
        }
    }

    pub(crate) fn look(&mut self, look: Look<'_>) {
        self.alerts.look(self.now_s, look);
        self.restart();
        self.send();
    }

    /// Looks every ten seconds for so long.
    pub(crate) fn look_for(&mut self, seconds: u64, findings: &[Finding]) {
        for _ in 0..seconds / 10 {
            self.now_s += 10;
            self.look(Look::Answered(findings));
        }
    }

    pub(crate) fn kinds(&self) -> Vec<Kind> {
        self.arrived.iter().map(|one| one.kind).collect()
    }

    pub(crate) fn subjects(&self) -> Vec<&str> {
        self.arrived.iter().map(|one| one.subject.as_str()).collect()
    }
}
