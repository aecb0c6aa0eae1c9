//! The daemon, its engine, findings and certificates.

use dolmen_api::{Counters, Finding, FindingCode, Health, ObjectKind};

use crate::Looks;
use crate::family::Family;
use crate::text::{Number, Text};

/// Severities of findings, least first.
const HEALTHS: [Health; 3] = [Health::Healthy, Health::Warning, Health::Unhealthy];

/// Returns the number of a health: the worst of several is their maximum.
pub(crate) const fn health_number(health: Health) -> u64 {
    match health {
        Health::Healthy => 0,
        Health::Warning => 1,
        Health::Unhealthy => 2,
    }
}

/// Returns the severity of a finding that makes things so healthy.
const fn severity(health: Health) -> &'static str {
    match health {
        Health::Healthy => "notice",
        Health::Warning => "warning",
        Health::Unhealthy => "critical",
    }
}

const fn kind_word(kind: ObjectKind) -> &'static str {
    match kind {
        ObjectKind::Daemon => "daemon",
        ObjectKind::Pool => "pool",
        ObjectKind::Disk => "disk",
        ObjectKind::Space => "space",
        ObjectKind::Job => "job",
    }
}

pub(crate) fn put(text: &mut Text, looks: &Looks<'_>) {
    text.put(Family::Up, &[], looks.status.is_some());
    if let Some(status) = looks.status {
        let version = &status.version;
        text.put(Family::BuildInfo, &[&version.daemon, &version.api.to_string()], true);
        text.put(Family::UptimeSeconds, &[], status.uptime_s);
        text.put(Family::Health, &[], health_number(status.health));
    }
    if let Some(findings) = looks.findings {
        put_findings(text, findings);
    }
    if let Some(counters) = looks.counters {
        put_engine(text, counters);
    }
    for certificate in looks.certificates {
        text.put(Family::CertificateExpiry, &[certificate.name], certificate.expires_s);
    }
}

fn put_findings(text: &mut Text, findings: &[Finding]) {
    for (code, health) in FindingCode::ALL.iter().flat_map(|code| HEALTHS.map(|health| (*code, health))) {
        let count = findings.iter().filter(|one| one.code == code && one.health == health).count();
        text.put(Family::Findings, &[code.word(), severity(health)], count);
    }
    for finding in findings {
        let (object, pool) = (&finding.object, finding.object.pool.as_deref().unwrap_or_default());
        let labels =
            [finding.code.word(), severity(finding.health), kind_word(object.kind), pool, &object.name];
        text.put(Family::Finding, &labels, true);
    }
}

fn put_engine(text: &mut Text, counters: &Counters) {
    text.put(Family::EngineInfo, &[&counters.driver], true);
    for (family, count) in [
        (Family::EngineMessages, counters.messages),
        (Family::EngineWakeups, counters.unparks),
        (Family::EnginePolls, counters.polls),
    ] {
        text.put(family, &[], Number::Whole(count));
    }
}
