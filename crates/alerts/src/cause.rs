//! Causes: which findings are one alert.
//!
//! The daemon lists findings one by one: a disk that was pulled is one, and so is each space that is degraded by it. [`conditions`] groups
//! them by the cause that a person removes. The table is a `match` over all codes, so that a new code does not compile without a place in
//! it.
//!
//! | cause | scope | findings, those nearest to the cause first |
//! |---|---|---|
//! | `daemon` | the daemon | it does not answer |
//! | `pool` | a pool | stopped, not open, read-only; if stopped or not open, all other findings of the pool |
//! | `redundancy` | a pool | disks absent, unplugged, cut short; unfit; spaces out of reach, degraded, corrupt here; replacements that wait; stale rows |
//! | `disk` | a disk | errors, slow, failing, defects, labels lost, backing full, file removed |
//! | `damage` | a pool | data lost, accepted unverified |
//! | `room` | a pool | nearly full, filling, room for repair used; spaces full, nearly full, without reserve, short of disks while none is absent |
//! | `volume` | a volume | errors, not mounted, not understood, slow; shares down |
//! | `volume_room` | a volume | nearly full, filling, inodes nearly used |
//! | `attachments` | the host | attachments that wait or ended |
//! | `listeners` | the host | listeners that are closed |
//! | `certificates` | the host | certificates that expire or cannot be read |
//! | `single` | code and object | everything else |
//! | `further` | the host | what is above [`ALERTS_MAX`](crate::ALERTS_MAX) |
//!
//! All absent disks of a pool are one alert: an enclosure that lost power is one cause, and the spaces that it degrades are the same.

use std::collections::{BTreeMap, BTreeSet};

use dolmen_api::{Finding, FindingCode, Object, ObjectKind};
use serde::{Deserialize, Serialize};

use crate::evidence::{Evidence, one_line};
use crate::severity::Severity;
use crate::silence::Silence;

/// Pieces of evidence that an alert keeps, at most.
pub const EVIDENCE_MAX: usize = 32;

/// Kind of a cause.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CauseKind {
    /// The daemon does not answer.
    Daemon,
    /// A pool is closed, stopped or read-only.
    Pool,
    /// Disks of a pool are absent, or rows are not on all of their disks.
    Redundancy,
    /// A disk that is here is failing.
    Disk,
    /// Data of a pool is lost, or was accepted unverified.
    Damage,
    /// The room of a pool ends.
    Room,
    /// A volume or its shares do not work.
    Volume,
    /// The room of a volume ends.
    VolumeRoom,
    /// Attached spaces wait, or are not attached any more.
    Attachments,
    /// Listeners are closed.
    Listeners,
    /// Certificates expire, or cannot be read.
    Certificates,
    /// One finding by itself.
    Single,
    /// More causes than are kept one by one.
    Further,
}

impl CauseKind {
    /// Returns its word in documents.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Daemon => "daemon",
            Self::Pool => "pool",
            Self::Redundancy => "redundancy",
            Self::Disk => "disk",
            Self::Damage => "damage",
            Self::Room => "room",
            Self::Volume => "volume",
            Self::VolumeRoom => "volume_room",
            Self::Attachments => "attachments",
            Self::Listeners => "listeners",
            Self::Certificates => "certificates",
            Self::Single => "single",
            Self::Further => "further",
        }
    }
}

/// The cause of an alert. No two open alerts have the same.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cause {
    /// Its kind.
    pub kind: CauseKind,
    /// What it is a cause of: a pool, `disk 3 of tank`, `tank/home`; empty for the host.
    pub scope: String,
    /// The pool that it belongs to.
    pub pool: Option<String>,
}

/// Findings of one cause.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Condition {
    pub(crate) cause: Cause,
    pub(crate) severity: Severity,
    /// Those nearest to the cause first, then the worst, at most [`EVIDENCE_MAX`].
    pub(crate) evidence: Vec<Evidence>,
    /// Pieces of evidence that are above the bound.
    pub(crate) left_out: usize,
    /// Whether silences match all evidence that is nearest to the cause.
    pub(crate) is_silenced: bool,
}

/// Conditions of a look.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Conditions {
    pub(crate) all: Vec<Condition>,
    /// Pools of which nothing but their state can be seen: other conditions of theirs have not ended because they are not found.
    pub(crate) hidden_pools: BTreeSet<String>,
}

/// Scope of a cause, as the table of codes names it.
#[derive(Debug, Clone, Copy)]
enum Scope {
    Host,
    Pool,
    Object,
    CodeAndObject,
}

/// Returns the cause of a finding, and how near the finding is to it.
const fn placed(code: FindingCode, is_disk_absent: bool) -> (CauseKind, Scope, u8) {
    use CauseKind as Kind;
    match code {
        FindingCode::PoolStopped | FindingCode::PoolNotOpen | FindingCode::PoolReadOnly => {
            (Kind::Pool, Scope::Pool, 0)
        }
        FindingCode::DiskAbsent | FindingCode::DiskUnplugged | FindingCode::DiskCutShort => {
            (Kind::Redundancy, Scope::Pool, 0)
        }
        FindingCode::DiskUnfit => (Kind::Redundancy, Scope::Pool, 1),
        FindingCode::SpaceOutOfReach
        | FindingCode::SpaceDegraded
        | FindingCode::SpaceCorruptHere
        | FindingCode::ReplacementWaits => (Kind::Redundancy, Scope::Pool, 2),
        FindingCode::RowsStale => (Kind::Redundancy, Scope::Pool, 3),
        FindingCode::SpaceLacksDisks if is_disk_absent => (Kind::Redundancy, Scope::Pool, 2),
        FindingCode::DiskErrors
        | FindingCode::DiskSlow
        | FindingCode::DiskFailing
        | FindingCode::DiskDefects
        | FindingCode::DiskLabelsLost
        | FindingCode::DiskBackingFull
        | FindingCode::DiskFileRemoved => (Kind::Disk, Scope::Object, 0),
        FindingCode::SpaceDataLost | FindingCode::SpaceAcceptedUnverified => (Kind::Damage, Scope::Pool, 0),
        FindingCode::PoolNearlyFull | FindingCode::PoolFilling => (Kind::Room, Scope::Pool, 0),
        FindingCode::RoomForRepairUsed => (Kind::Room, Scope::Pool, 1),
        FindingCode::SpaceFull
        | FindingCode::SpaceNearlyFull
        | FindingCode::SpaceLacksReserve
        | FindingCode::SpaceLacksDisks => (Kind::Room, Scope::Pool, 2),
        FindingCode::VolumeErrors | FindingCode::VolumeNotMounted | FindingCode::VolumeNotUnderstood => {
            (Kind::Volume, Scope::Object, 0)
        }
        FindingCode::VolumeSlow | FindingCode::ShareDown => (Kind::Volume, Scope::Object, 1),
        FindingCode::VolumeNearlyFull | FindingCode::VolumeFilling | FindingCode::VolumeInodesNearlyUsed => {
            (Kind::VolumeRoom, Scope::Object, 0)
        }
        FindingCode::AttachedWaits | FindingCode::AttachmentEnded => (Kind::Attachments, Scope::Host, 0),
        FindingCode::ListenerClosed => (Kind::Listeners, Scope::Host, 0),
        FindingCode::CertificateTrouble => (Kind::Certificates, Scope::Host, 0),
        FindingCode::DiskGrown
        | FindingCode::MetadataOnFewDisks
        | FindingCode::RemovalWaits
        | FindingCode::RowsShareEnclosure => (Kind::Single, Scope::CodeAndObject, 0),
    }
}

/// Whether nothing else of a pool can be seen.
const fn hides_pool(code: FindingCode) -> bool {
    matches!(code, FindingCode::PoolStopped | FindingCode::PoolNotOpen)
}

/// Returns the pool that a finding belongs to. An attachment is an object of the daemon, with the pool in its name.
fn pool_of(finding: &Finding) -> Option<&str> {
    let object = &finding.object;
    let of_name = || object.name.split_once('/').map(|(pool, _)| pool);
    let is_attachment = object.kind == ObjectKind::Daemon && finding.code == FindingCode::AttachedWaits;
    object.pool.as_deref().or_else(|| is_attachment.then(of_name).flatten())
}

/// Groups findings by cause.
pub(crate) fn conditions(findings: &[Finding], silences: &[Silence]) -> Conditions {
    let of_code = |is_meant: fn(FindingCode) -> bool| -> BTreeSet<String> {
        let found = findings.iter().filter(|one| is_meant(one.code));
        found.filter_map(|one| one.object.pool.clone()).collect()
    };
    let hidden_pools = of_code(hides_pool);
    let with_absent_disks = of_code(|code| code == FindingCode::DiskAbsent);
    let mut groups: BTreeMap<Cause, BTreeSet<Evidence>> = BTreeMap::new();
    for finding in findings {
        let pool = pool_of(finding);
        let is_disk_absent = pool.is_some_and(|pool| with_absent_disks.contains(pool));
        let mut place = placed(finding.code, is_disk_absent);
        if pool.is_some_and(|pool| hidden_pools.contains(pool)) && !hides_pool(finding.code) {
            place = (CauseKind::Pool, Scope::Pool, 2);
        }
        let (kind, scope, distance) = place;
        let object = one_line(&finding.object.to_string());
        let scope = match scope {
            Scope::Host => String::new(),
            Scope::Pool => one_line(pool.unwrap_or(&finding.object.name)),
            Scope::Object => object,
            Scope::CodeAndObject => format!("{} {object}", finding.code.word()),
        };
        let pool = if kind == CauseKind::Attachments { None } else { pool.map(str::to_owned) };
        groups.entry(Cause { kind, scope, pool }).or_default().insert(Evidence::of(finding, distance));
    }
    let all = groups.into_iter().map(|(cause, evidence)| Condition::new(cause, evidence, silences)).collect();
    Conditions { all, hidden_pools }
}

/// Returns the condition that the daemon does not answer.
pub(crate) fn unanswered(why: &str, silences: &[Silence]) -> Condition {
    let evidence = Evidence {
        distance: 0,
        code: crate::evidence::UNANSWERED_CODE.to_owned(),
        object: Object::daemon(""),
        severity: Severity::Critical,
        text: one_line(&format!("the daemon does not answer: {why}")),
        amount: 0,
    };
    Condition::new(Cause::daemon(), BTreeSet::from([evidence]), silences)
}

impl Cause {
    /// The cause that the daemon does not answer.
    pub(crate) fn daemon() -> Self {
        Self { kind: CauseKind::Daemon, scope: String::new(), pool: None }
    }

    /// Whether the end of its condition cannot be seen, because its pool is not open.
    pub(crate) fn is_hidden(&self, hidden_pools: &BTreeSet<String>) -> bool {
        self.kind != CauseKind::Pool && self.pool.as_ref().is_some_and(|pool| hidden_pools.contains(pool))
    }
}

impl Condition {
    fn new(cause: Cause, evidence: BTreeSet<Evidence>, silences: &[Silence]) -> Self {
        let severity = evidence.iter().map(|one| one.severity).max().unwrap_or(Severity::Notice);
        let mut evidence: Vec<Evidence> = evidence.into_iter().collect();
        evidence.sort_by(|a, b| {
            let key = |one: &Evidence| (one.distance, std::cmp::Reverse(one.severity));
            key(a).cmp(&key(b)).then_with(|| a.cmp(b))
        });
        let nearest = evidence.first().map_or(0, |one| one.distance);
        let is_silenced = evidence
            .iter()
            .take_while(|one| one.distance == nearest)
            .all(|one| silences.iter().any(|silence| silence.matches(one)));
        let left_out = evidence.len().saturating_sub(EVIDENCE_MAX);
        evidence.truncate(EVIDENCE_MAX);
        Self { cause, severity, evidence, left_out, is_silenced }
    }

    /// Returns one condition for those that are above the bound of alerts.
    pub(crate) fn further(of: &[Self]) -> Self {
        let evidence = Evidence {
            distance: 0,
            code: crate::evidence::FURTHER_CODE.to_owned(),
            object: Object::daemon(""),
            severity: of.iter().map(|one| one.severity).max().unwrap_or(Severity::Notice),
            text: format!("there are {} more causes of findings than are reported one by one", of.len()),
            amount: 0,
        };
        let cause = Cause { kind: CauseKind::Further, scope: String::new(), pool: None };
        // What is silenced is not among them.
        Self::new(cause, BTreeSet::from([evidence]), &[])
    }
}

#[cfg(test)]
mod tests {
    use dolmen_api::Health;

    use super::*;

    fn finding(code: FindingCode, object: Object) -> Finding {
        Finding {
            code,
            health: Health::Warning,
            text: format!("{} {object}", code.word()),
            object,
            amount: 0,
        }
    }

    /// Scenario: of every code one finding, of one pool that goes on. Each is in exactly one condition.
    #[test]
    fn every_code_has_a_place() {
        let hides = |code: &&FindingCode| !hides_pool(**code);
        let findings: Vec<Finding> = FindingCode::ALL
            .iter()
            .filter(hides)
            .map(|code| finding(*code, Object::disk("tank", 1)))
            .collect();
        let found = conditions(&findings, &[]);
        let placed: usize = found.all.iter().map(|one| one.evidence.len()).sum();
        assert_eq!((placed, found.hidden_pools.len()), (findings.len(), 0));
    }

    /// Scenario: a pool stops, with an absent disk, a degraded space and an attachment. All is evidence of one alert; another pool is not.
    #[test]
    fn a_stopped_pool_is_the_cause_of_all_its_findings() {
        let found = conditions(
            &[
                finding(FindingCode::SpaceDegraded, Object::space("tank", "home")),
                finding(FindingCode::DiskAbsent, Object::disk("tank", 1)),
                finding(FindingCode::AttachedWaits, Object::daemon("tank/home")),
                finding(FindingCode::PoolStopped, Object::pool("tank")),
                finding(FindingCode::DiskErrors, Object::disk("other", 1)),
            ],
            &[],
        );
        let kinds: Vec<(CauseKind, usize)> =
            found.all.iter().map(|one| (one.cause.kind, one.evidence.len())).collect();
        assert_eq!(kinds, [(CauseKind::Pool, 4), (CauseKind::Disk, 1)]);
        assert_eq!(found.all[0].evidence[0].code, "pool_stopped");
        assert_eq!(found.hidden_pools, BTreeSet::from(["tank".to_owned()]));
    }

    /// Scenario: a thin space lacks disks, with one of them absent and without.
    #[test]
    fn a_space_lacks_disks_because_one_is_absent_or_because_there_are_too_few() {
        let lacks = finding(FindingCode::SpaceLacksDisks, Object::space("tank", "home"));
        let kind = |findings: &[Finding]| conditions(findings, &[]).all[0].cause.kind;
        assert_eq!(kind(std::slice::from_ref(&lacks)), CauseKind::Room);
        assert_eq!(
            kind(&[lacks, finding(FindingCode::DiskAbsent, Object::disk("tank", 1))]),
            CauseKind::Redundancy
        );
    }

    /// Scenario: more degraded spaces than an alert keeps. The cause stays, and the rest is counted.
    #[test]
    fn evidence_is_bounded_and_the_cause_stays() {
        let spaces = (0..100)
            .map(|number| finding(FindingCode::SpaceDegraded, Object::space("tank", number.to_string())));
        let mut findings: Vec<Finding> = spaces.collect();
        findings.push(finding(FindingCode::DiskAbsent, Object::disk("tank", 1)));
        let found = conditions(&findings, &[]).all.remove(0);
        assert_eq!((found.evidence.len(), found.left_out), (EVIDENCE_MAX, 101 - EVIDENCE_MAX));
        assert_eq!(found.evidence[0].code, "disk_absent");
    }
}
