//! Events: what was reported, and what changed since (docs/design/0016).

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;

use dolmen_api::{Event, EventCode, Finding, FindingCode, JobState, Object, VerbId};
use dolmen_units::{Bytes, PoolId};

use crate::jobs::{Entry, has_ended, kept, seconds_now};
use crate::state::event_record::{
    EventFile, Recorded, ReportedDisk, ReportedJob, ReportedPool, ReportedSpace, Trouble,
};

/// Changes that a comparison with what was reported does not show, or not as a change, and the event of each.
const RECORDED: [(VerbId, EventCode); 13] = [
    (VerbId::OfflineDisk, EventCode::DiskOffline),
    (VerbId::OnlineDisk, EventCode::DiskOnline),
    (VerbId::GrowDisk, EventCode::DiskGrew),
    (VerbId::SetDisk, EventCode::SettingChanged),
    (VerbId::SetDiskRole, EventCode::SettingChanged),
    (VerbId::SetEnclosure, EventCode::SettingChanged),
    (VerbId::SetLimits, EventCode::SettingChanged),
    (VerbId::SetReserve, EventCode::SettingChanged),
    (VerbId::ResizeWriteCache, EventCode::SettingChanged),
    (VerbId::DrainWriteCache, EventCode::SettingChanged),
    (VerbId::SetRepairAfter, EventCode::SettingChanged),
    (VerbId::SetKeepRoom, EventCode::SettingChanged),
    (VerbId::SetAlertAt, EventCode::SettingChanged),
];

/// A change as a client asked for it.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    /// User of the client's process, where the kernel names one.
    pub uid: Option<u32>,
    /// User of the console, where the request names one.
    pub user: Option<String>,
    /// The verb.
    pub verb: VerbId,
    /// Values of the parameters of its path, in order.
    pub values: Vec<String>,
}

impl Asked {
    fn value(&self, parameter: &str) -> Option<&str> {
        let mut parameters = self.verb.declaration().parameters.iter().zip(&self.values);
        parameters.find(|(name, _)| **name == parameter).map(|(_, value)| value.as_str())
    }

    /// Returns what the path names: a space, a disk by its number, or else the pool.
    fn object(&self) -> Option<Object> {
        let pool = self.value("pool")?;
        Some(match (self.value("space"), self.value("disk").map(str::parse)) {
            (Some(space), _) => Object::space(pool, space),
            (None, Some(Ok(slot))) => Object::disk(pool, slot),
            (None, Some(Err(_)) | None) => Object::pool(pool),
        })
    }

    fn user(&self) -> String {
        if let Some(user) = &self.user {
            return format!("user {user} of the console");
        }
        match self.uid {
            Some(0) => "root".to_owned(),
            Some(uid) => format!("user {uid}"),
            None => "a user that the kernel did not name".to_owned(),
        }
    }
}

/// Something that has changed.
pub(crate) type Change = (EventCode, Option<FindingCode>, Object, String);

pub(crate) fn change(code: EventCode, object: Object, text: String) -> Change {
    (code, None, object, text)
}

/// The events.
pub(crate) struct Events {
    pub(crate) file: EventFile,
    pub(crate) record: RefCell<Recorded>,
    /// The last event that anybody is told of.
    published: Cell<u64>,
    /// Whether there is an event that is not on record. What is the matter changes its figures all the time, and is not worth a file.
    pub(crate) is_changed: Cell<bool>,
    /// Whether writing failed the last time, so that it is told once.
    pub(crate) is_failing: Cell<bool>,
    /// Pools that are being made, of which it is not told that they were opened.
    pub(crate) making: RefCell<BTreeSet<PoolId>>,
    /// Pools of which whoever closes them tells what became.
    pub(crate) leaving: RefCell<BTreeSet<PoolId>>,
}

impl Events {
    pub(crate) fn new(file: EventFile) -> Self {
        Self {
            file,
            record: RefCell::default(),
            published: Cell::default(),
            is_changed: Cell::default(),
            is_failing: Cell::default(),
            making: RefCell::default(),
            leaving: RefCell::default(),
        }
    }

    /// Takes over what is on record. Of jobs that were there before anything was told, nothing is.
    pub(crate) async fn recall(&self, jobs: &[Rc<Entry>]) {
        let found = match self.file.read().await {
            Ok(found) => found,
            Err(error) => {
                tracing::error!(%error, "the record of events cannot be read; it begins again");
                Some(Recorded::empty(seconds_now()))
            }
        };
        let is_new = found.as_ref().is_none_or(|found| found.events.is_empty());
        let mut record = found.unwrap_or_default();
        if is_new {
            record.reported.last_job = jobs.iter().map(|job| job.id).max().unwrap_or(0);
            let open = jobs.iter().filter(|job| !job.has_ended());
            record.reported.jobs = open.map(|job| ReportedJob { id: job.id, state: job.state() }).collect();
        }
        let was_ended = record.events.back().map(|event| event.code == EventCode::DaemonEnded);
        self.published.set(record.last);
        self.record.replace(record);
        let how = match was_ended {
            None => "",
            Some(true) => "; the one before had ended well",
            Some(false) => "; the one before was killed, or the system went down",
        };
        let text = format!("the daemon, version {}, was started{how}", env!("CARGO_PKG_VERSION"));
        self.report(change(EventCode::DaemonStarted, Object::daemon(""), text));
        self.keep().await;
    }

    /// Notes that a pool is being made.
    pub(crate) fn note_making(&self, pool: PoolId) {
        self.making.borrow_mut().insert(pool);
    }

    /// Notes that whoever closes a pool tells what became of it.
    pub(crate) fn note_leaving(&self, pool: PoolId) {
        self.leaving.borrow_mut().insert(pool);
    }

    pub(crate) fn report(&self, (code, finding, object, text): Change) {
        let (number, at_s) = (0, seconds_now());
        self.is_changed.set(true);
        self.record.borrow_mut().add(Event { number, at_s, code, finding, object, text: kept(&text) });
    }

    /// Tells that a pool is no more, here at least.
    pub(crate) async fn report_unknown(&self, pool: PoolId, name: &str, code: EventCode, text: String) {
        let id = pool.to_string();
        self.record.borrow_mut().reported.pools.retain(|reported| reported.id != id);
        self.leaving.borrow_mut().remove(&pool);
        self.report(change(code, Object::pool(name), text));
        self.keep().await;
    }

    /// Reports a change that a client asked for, and its user, where no other event shows the change.
    pub(crate) async fn report_change(&self, asked: &Asked, message: &str) {
        let Some((_, code)) = RECORDED.iter().find(|(verb, _)| *verb == asked.verb) else { return };
        let Some(object) = asked.object() else { return };
        self.report(change(*code, object, format!("{message} (by {})", asked.user())));
        self.keep().await;
    }

    /// Tells that the daemon has ended well.
    pub(crate) async fn report_end(&self) {
        let text = "the daemon has closed its pools and ended".to_owned();
        self.report(change(EventCode::DaemonEnded, Object::daemon(""), text));
        self.keep().await;
    }

    /// Tells what has become of a pool that is open.
    pub(crate) fn see_pool(&self, pool: PoolId, mut now: ReportedPool, findings: &[Finding]) {
        self.leaving.borrow_mut().remove(&pool);
        let was_made = self.making.borrow_mut().remove(&pool);
        let before = self.take_reported(&now.id);
        let mut changes = Vec::new();
        if before.as_ref().is_none_or(|before| !before.is_open) {
            changes.push(opened(&now.name, was_made && before.is_none()));
        }
        if was_made && before.is_none() {
            changes.extend(of_spaces(&now.name, &[], &now.spaces));
        }
        if let Some(before) = &before {
            changes.extend(of_disks(&now.name, &before.disks, &now.disks));
            changes.extend(of_spaces(&now.name, &before.spaces, &now.spaces));
        }
        let troubles = before.map(|before| before.troubles).unwrap_or_default();
        let (troubles, reported) = of_troubles(troubles, findings, seconds_now());
        changes.extend(reported);
        (now.troubles, now.is_open) = (troubles, true);
        self.record.borrow_mut().reported.pools.push(now);
        self.report_all(changes);
    }

    /// What was told of a pool, which is told again.
    pub(crate) fn take_reported(&self, id: &str) -> Option<ReportedPool> {
        let pools = &mut self.record.borrow_mut().reported.pools;
        pools.iter().position(|reported| reported.id == id).map(|at| pools.swap_remove(at))
    }

    pub(crate) fn report_all(&self, changes: Vec<Change>) {
        changes.into_iter().for_each(|change| self.report(change));
    }

    /// Tells of pools that are known no more; those that are known and not open have no news.
    pub(crate) fn report_unknown_pools(
        &self,
        is_open: impl Fn(&str) -> bool,
        is_known: impl Fn(&str) -> bool,
    ) {
        let leaving: BTreeSet<String> = self.leaving.borrow().iter().map(ToString::to_string).collect();
        let mut gone = Vec::new();
        self.record.borrow_mut().reported.pools.retain_mut(|reported| {
            reported.is_open &= is_open(&reported.id);
            let stays = is_known(&reported.id) || leaving.contains(&reported.id);
            if !stays {
                let text = format!("pool {} is not known here any more", reported.name);
                gone.push(change(EventCode::PoolUnknown, Object::pool(reported.name.as_str()), text));
            }
            stays
        });
        self.report_all(gone);
    }

    pub(crate) fn see_besides(&self, findings: &[Finding]) {
        let troubles = std::mem::take(&mut self.record.borrow_mut().reported.besides);
        let (troubles, changes) = of_troubles(troubles, findings, seconds_now());
        self.record.borrow_mut().reported.besides = troubles;
        self.report_all(changes);
    }

    pub(crate) fn see_jobs(&self, jobs: &[Rc<Entry>]) {
        let mut record = self.record.borrow_mut();
        let (reported, last) = (std::mem::take(&mut record.reported.jobs), record.reported.last_job);
        record.reported.last_job = jobs.iter().map(|job| job.id).max().unwrap_or(0).max(last);
        let seen: Vec<SeenJob> = jobs.iter().map(|job| SeenJob::of(job)).collect();
        record.reported.jobs =
            seen.iter().filter(|job| !has_ended(job.state)).map(|job| job.reported()).collect();
        drop(record);
        self.report_all(of_jobs(&reported, last, &seen));
    }

    /// Puts all of it on record, if there is something new. Where that fails, people are told all the same, and the log says so
    /// once; it is tried again with the next look.
    pub(crate) async fn keep(&self) {
        if !self.is_changed.replace(false) {
            return;
        }
        let last = self.record.borrow().last;
        let text = self.record.borrow_mut().text();
        let result = match text {
            Ok(text) => self.file.write(text).await,
            Err(error) => Err(error),
        };
        self.is_changed.set(self.is_changed.get() || result.is_err());
        let was_failing = self.is_failing.replace(result.is_err());
        if let Err(error) = result
            && !was_failing
        {
            tracing::warn!(%error, "events are not on record; the next daemon will not know of them, and may give their numbers again");
        }
        self.published.set(self.published.get().max(last));
    }

    /// Events behind a number, of one pool or all, as far as people are told of them.
    pub(crate) fn after(&self, since: u64, pool: Option<&str>) -> dolmen_api::Events {
        self.record.borrow().after(since, self.published.get(), pool)
    }

    /// Since when something is the matter, in seconds since 1970, if that was told.
    pub(crate) fn since(&self, finding: &Finding) -> Option<u64> {
        let record = self.record.borrow();
        let all =
            record.reported.pools.iter().flat_map(|pool| &pool.troubles).chain(&record.reported.besides);
        let mut same = all.filter(|one| one.code == finding.code && one.object == finding.object);
        same.next().map(|one| one.since_s)
    }
}

pub(crate) fn opened(name: &str, was_made: bool) -> Change {
    let (code, text) = match was_made {
        true => (EventCode::PoolCreated, format!("pool {name} was made")),
        false => (EventCode::PoolOpened, format!("pool {name} was opened")),
    };
    change(code, Object::pool(name), text)
}

/// What has become of disks.
pub(crate) fn of_disks(pool: &str, before: &[ReportedDisk], now: &[ReportedDisk]) -> Vec<Change> {
    let mut changes = Vec::new();
    for disk in now {
        let (name, object) = (&disk.name, Object::disk(pool, disk.slot));
        let Some(old) = before.iter().find(|old| old.id == disk.id) else {
            let text = format!("{name} is a disk of pool {pool} now, number {}", disk.slot);
            changes.push(change(EventCode::DiskAdded, object, text));
            continue;
        };
        let (code, text) = match (old.is_leaving, disk.is_leaving) {
            (_, true) if disk.is_excluded && !old.is_excluded => {
                (EventCode::DiskExcluded, "stayed away; what it had is rebuilt on the other disks")
            }
            (false, true) => (EventCode::DiskLeaves, "is to leave; what it has is moved to the other disks"),
            (true, false) => (EventCode::DiskStays, "is not to leave any more"),
            (true, true) | (false, false) => continue,
        };
        changes.push(change(code, object, format!("{name} of pool {pool} {text}")));
    }
    for old in before.iter().filter(|old| !now.iter().any(|disk| disk.id == old.id)) {
        let text = format!("{} is no disk of pool {pool} any more", old.name);
        changes.push(change(EventCode::DiskRemoved, Object::disk(pool, old.slot), text));
    }
    changes
}

/// What has become of spaces.
pub(crate) fn of_spaces(pool: &str, before: &[ReportedSpace], now: &[ReportedSpace]) -> Vec<Change> {
    let mut changes = Vec::new();
    for space in now {
        let object = Object::space(pool, space.name.as_str());
        let mut note = |code, text: String| {
            changes.push(change(code, object.clone(), format!("space {object} {text}")));
        };
        let old = before.iter().find(|old| old.id == space.id);
        match old {
            None => note(EventCode::SpaceCreated, format!("was made, of {}", Bytes(space.size_bytes))),
            Some(old) => {
                if old.name != space.name {
                    note(EventCode::SpaceRenamed, format!("was {pool}/{} before", old.name));
                }
                if old.size_bytes != space.size_bytes {
                    let (was, is) = (Bytes(old.size_bytes), Bytes(space.size_bytes));
                    note(EventCode::SpaceResized, format!("has {is}, where it had {was}"));
                }
            }
        }
        match (old.is_some_and(|old| old.is_in_trash), space.is_in_trash) {
            (false, true) => note(EventCode::SpaceTrashed, "was moved into the trash".to_owned()),
            (true, false) => note(EventCode::SpaceRestored, "was taken out of the trash".to_owned()),
            (true, true) | (false, false) => {}
        }
        let was_attached = old.and_then(|old| old.attached_at.as_ref());
        match (was_attached, &space.attached_at) {
            (None, Some(path)) => note(EventCode::SpaceAttached, format!("was attached as {path}")),
            (Some(path), None) => note(EventCode::SpaceDetached, format!("was detached from {path}")),
            (Some(_), Some(_)) | (None, None) => {}
        }
        let was_mounted = old.and_then(|old| old.mounted_at.as_ref());
        if was_mounted != space.mounted_at.as_ref() {
            let mut note = |code, text: String| {
                changes.push(change(code, object.clone(), format!("volume {object} {text}")));
            };
            if let Some(path) = was_mounted {
                note(EventCode::VolumeUnmounted, format!("was unmounted from {path}"));
            }
            if let Some(path) = &space.mounted_at {
                note(EventCode::VolumeMounted, format!("was mounted at {path}"));
            }
        }
        let mut note = |code, text: String| {
            changes.push(change(code, object.clone(), format!("space {object} {text}")));
        };
        match (old.is_some_and(|old| old.is_served), space.is_served) {
            (false, true) => note(EventCode::SpaceServed, "is served over NBD".to_owned()),
            (true, false) => note(EventCode::SpaceUnserved, "is served over NBD no more".to_owned()),
            (true, true) | (false, false) => {}
        }
    }
    for old in before.iter().filter(|old| !now.iter().any(|space| space.id == old.id)) {
        let object = Object::space(pool, old.name.as_str());
        let (code, text) = match old.is_in_trash {
            true => (EventCode::SpacePurged, "in the trash was purged"),
            false => (EventCode::SpaceDeleted, "was deleted"),
        };
        changes.push(change(code, object.clone(), format!("space {object} {text}")));
    }
    changes
}

/// What is the matter now, and what of that is news. A pool that has stopped says nothing but that: what was the matter before is
/// not over.
pub(crate) fn of_troubles(
    before: Vec<Trouble>,
    findings: &[Finding],
    now_s: u64,
) -> (Vec<Trouble>, Vec<Change>) {
    let has_stopped = findings.iter().any(|one| one.code == FindingCode::PoolStopped);
    let is_same = |trouble: &Trouble, one: &Finding| trouble.code == one.code && trouble.object == one.object;
    let (mut now, mut changes) = (Vec::new(), Vec::new());
    for one in findings {
        let old = before.iter().find(|trouble| is_same(trouble, one));
        // It is told again when it has doubled, and not with each of a thousand errors.
        let has_grown = old.is_some_and(|old| one.amount > old.amount.saturating_mul(2));
        let code = if has_grown { EventCode::TroubleGrew } else { EventCode::TroubleBegan };
        if old.is_none() || has_grown {
            changes.push((code, Some(one.code), one.object.clone(), one.text.clone()));
        }
        let amount = old.filter(|_| !has_grown).map_or(one.amount, |old| old.amount.min(one.amount));
        let since_s = old.map_or(now_s, |old| old.since_s);
        let (code, object, text) = (one.code, one.object.clone(), kept(&one.text));
        now.push(Trouble { code, object, text, since_s, amount });
    }
    for old in before {
        if findings.iter().any(|one| is_same(&old, one)) {
            continue;
        }
        if has_stopped {
            now.push(old);
        } else {
            let text = format!("over: {}", old.text);
            changes.push((EventCode::TroubleOver, Some(old.code), old.object, text));
        }
    }
    (now, changes)
}

/// A job, as it is told.
pub(crate) struct SeenJob {
    pub(crate) id: u64,
    pub(crate) pool: String,
    pub(crate) what: String,
    pub(crate) state: JobState,
    pub(crate) result: Option<String>,
}

impl SeenJob {
    pub(crate) fn of(job: &Entry) -> Self {
        let (pool, result) = (job.pool_name.clone(), job.result());
        Self { id: job.id, pool, what: job.what(), state: job.state(), result }
    }

    pub(crate) fn reported(&self) -> ReportedJob {
        ReportedJob { id: self.id, state: self.state }
    }
}

/// What has become of jobs; those up to `last` that are not among those told of had ended when that was told.
pub(crate) fn of_jobs(reported: &[ReportedJob], last: u64, now: &[SeenJob]) -> Vec<Change> {
    let mut changes = Vec::new();
    for job in now {
        let before = reported.iter().find(|reported| reported.id == job.id).map(|reported| reported.state);
        if before.is_none() && job.id <= last {
            continue;
        }
        let object = Object::job(job.pool.as_str(), job.id);
        let mut note = |code, text: &str| {
            changes.push(change(code, object.clone(), format!("{}{text}", job.what)));
        };
        if before.is_none() {
            note(EventCode::JobBegun, " was begun");
        }
        let result = || job.result.as_deref().map(|result| format!(": {result}")).unwrap_or_default();
        let was_paused = before == Some(JobState::Paused);
        match job.state {
            JobState::Waiting | JobState::Running if was_paused => note(EventCode::JobResumed, " goes on"),
            JobState::Waiting | JobState::Running => {}
            JobState::Paused if was_paused => {}
            JobState::Paused => note(EventCode::JobPaused, " is paused"),
            JobState::Done => note(EventCode::JobDone, &format!(" is done{}", result())),
            JobState::CalledOff => note(EventCode::JobCalledOff, &format!(" was called off{}", result())),
            JobState::Failed => note(EventCode::JobFailed, &format!(" has failed{}", result())),
        }
    }
    changes
}
