//! Events: what has happened to pools, disks, spaces and jobs, by number (docs/design/0016).
//!
//! Once a second what is there is compared with what was told; the difference are the events. Both go on record in one file, so
//! what happened while no daemon looked is told by the next one, and nothing twice. The engine is only asked, never held up: no
//! read or write of a client waits for any of this. What began and ended between two looks is not told.
//!
//! Invariants:
//! - Nobody is told of an event before it is on record, or the log says that it cannot be.
//! - What is the matter is what `findings` says, in its words.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;

use dolmen_api::{ErrorBody, ErrorCode, Event, EventCode, Finding, FindingCode, JobState, Object};
use dolmen_block_io::sleep;
use dolmen_units::{Bytes, PoolId};

use crate::answer::Answer;
use crate::engine::{Engine, OpenPool};
use crate::event_record::{
    EventFile, Recorded, ReportedDisk, ReportedJob, ReportedPool, ReportedSpace, Trouble,
};
use crate::findings::findings_at_a_glance;
use crate::health::not_open;
use crate::jobs::entry::{Entry, has_ended};
use crate::jobs::record::{kept, seconds_now};

/// The pause between two looks, at the least.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Looking takes no more than this part of the time: of a large pool with a disk that is away, rows are counted for it.
const LOOK_PARTS: u32 = 20;

/// Something that has changed.
type Change = (EventCode, Option<FindingCode>, Object, String);

fn change(code: EventCode, object: Object, text: String) -> Change {
    (code, None, object, text)
}

/// The events.
pub(crate) struct Events {
    file: EventFile,
    record: RefCell<Recorded>,
    /// The last event that anybody is told of.
    published: Cell<u64>,
    /// Whether there is an event that is not on record. What is the matter changes its figures all the time, and is not worth a file.
    is_changed: Cell<bool>,
    /// Whether writing failed the last time, so that it is told once.
    is_failing: Cell<bool>,
    /// Pools that are being made, of which it is not told that they were opened.
    making: RefCell<BTreeSet<PoolId>>,
    /// Pools of which whoever closes them tells what became.
    leaving: RefCell<BTreeSet<PoolId>>,
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

    fn report(&self, (code, finding, object, text): Change) {
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

    /// Tells that the daemon has ended well.
    pub(crate) async fn report_end(&self) {
        let text = "the daemon has closed its pools and ended".to_owned();
        self.report(change(EventCode::DaemonEnded, Object::daemon(""), text));
        self.keep().await;
    }

    /// Tells what has become of a pool that is open.
    fn see_pool(&self, pool: PoolId, mut now: ReportedPool, findings: &[Finding]) {
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
    fn take_reported(&self, id: &str) -> Option<ReportedPool> {
        let pools = &mut self.record.borrow_mut().reported.pools;
        pools.iter().position(|reported| reported.id == id).map(|at| pools.swap_remove(at))
    }

    fn report_all(&self, changes: Vec<Change>) {
        changes.into_iter().for_each(|change| self.report(change));
    }

    /// Tells of pools that are known no more; those that are known and not open have no news.
    fn report_unknown_pools(&self, is_open: impl Fn(&str) -> bool, is_known: impl Fn(&str) -> bool) {
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

    fn see_besides(&self, findings: &[Finding]) {
        let troubles = std::mem::take(&mut self.record.borrow_mut().reported.besides);
        let (troubles, changes) = of_troubles(troubles, findings, seconds_now());
        self.record.borrow_mut().reported.besides = troubles;
        self.report_all(changes);
    }

    fn see_jobs(&self, jobs: &[Rc<Entry>]) {
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
    fn after(&self, since: u64, pool: Option<&str>) -> dolmen_api::Events {
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

fn opened(name: &str, was_made: bool) -> Change {
    let (code, text) = match was_made {
        true => (EventCode::PoolCreated, format!("pool {name} was made")),
        false => (EventCode::PoolOpened, format!("pool {name} was opened")),
    };
    change(code, Object::pool(name), text)
}

/// What has become of disks.
fn of_disks(pool: &str, before: &[ReportedDisk], now: &[ReportedDisk]) -> Vec<Change> {
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
fn of_spaces(pool: &str, before: &[ReportedSpace], now: &[ReportedSpace]) -> Vec<Change> {
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
fn of_troubles(before: Vec<Trouble>, findings: &[Finding], now_s: u64) -> (Vec<Trouble>, Vec<Change>) {
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
struct SeenJob {
    id: u64,
    pool: String,
    what: String,
    state: JobState,
    result: Option<String>,
}

impl SeenJob {
    fn of(job: &Entry) -> Self {
        let (pool, result) = (job.pool_name.clone(), job.result());
        Self { id: job.id, pool, what: job.what(), state: job.state(), result }
    }

    fn reported(&self) -> ReportedJob {
        ReportedJob { id: self.id, state: self.state }
    }
}

/// What has become of jobs; those up to `last` that are not among those told of had ended when that was told.
fn of_jobs(reported: &[ReportedJob], last: u64, now: &[SeenJob]) -> Vec<Change> {
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

impl Engine {
    /// Looks for what has happened for as long as the daemon runs.
    pub(crate) async fn follow_events(self: Rc<Self>) {
        let (engine, clock) = (Rc::downgrade(&self), Rc::clone(&self.seams.clock));
        drop(self);
        let mut pause = LOOK_EVERY;
        loop {
            sleep(clock.as_ref(), pause).await;
            let Some(engine) = engine.upgrade() else { return };
            if engine.is_stopping.get() {
                return;
            }
            let began = clock.now();
            engine.look_for_events().await;
            pause = (clock.now().since(began) * LOOK_PARTS).max(LOOK_EVERY);
        }
    }

    async fn look_for_events(&self) {
        for open in self.open_pools() {
            let findings = findings_at_a_glance(&open).await;
            // One that is being closed changes on the way.
            if !open.is_closing.get() && !self.is_stopping.get() {
                self.events.see_pool(open.id(), self.as_reported(&open), &findings);
            }
        }
        if self.is_stopping.get() {
            return;
        }
        let is_open = |id: &str| self.pools.borrow().keys().any(|pool| pool.to_string() == id);
        let is_closed = |id: &str| self.closed.borrow().keys().any(|pool| pool.to_string() == id);
        self.events.report_unknown_pools(is_open, |id| is_open(id) || is_closed(id));
        let mut findings = self.findings_besides();
        findings.extend(self.closed.borrow().values().map(not_open));
        self.events.see_besides(&findings);
        self.events.see_jobs(&self.jobs.on_record());
        self.events.keep().await;
    }

    fn as_reported(&self, open: &OpenPool) -> ReportedPool {
        let leaving = open.spaces.drains();
        let disk = |disk: &Rc<dolmen_pool::Disk>| ReportedDisk {
            id: disk.id().to_string(),
            slot: disk.slot().0,
            name: kept(&disk.name()),
            is_leaving: leaving.iter().any(|other| other.id() == disk.id()),
            is_excluded: open.absences.is_excluded(disk.id()),
        };
        let space = |space: &Rc<dolmen_space::Space>| ReportedSpace {
            id: space.id().0,
            name: space.name().to_string(),
            size_bytes: space.size().0,
            attached_at: self.attached_at(open, space),
            is_served: self.nbd.find(open.id(), space.id()).is_some(),
            is_in_trash: space.trashed_at().is_some(),
        };
        ReportedPool {
            id: open.id().to_string(),
            name: open.name(),
            disks: open.spaces.pool().disks().iter().map(disk).collect(),
            spaces: open.spaces.kept().iter().map(space).collect(),
            troubles: Vec::new(),
            is_open: true,
        }
    }

    pub(crate) async fn list_events(
        self: Rc<Self>,
        since: u64,
        pool: Option<String>,
    ) -> Answer<dolmen_api::Events> {
        let events = self.events.after(since, pool.as_deref());
        let is_known = |pool: &String| {
            let is_reported = !self.events.after(0, Some(pool)).events.is_empty();
            is_reported || self.pool(pool).is_ok()
        };
        if let Some(pool) = pool.filter(|pool| !is_known(pool)) {
            let message = format!("there is no pool {pool} here, and no event of one");
            return Err(ErrorBody::new(ErrorCode::NoSuchPool, message)
                .on(pool)
                .hint("`dolmen pool list` shows all pools"));
        }
        Ok(events)
    }
}

#[cfg(test)]
mod tests {
    use dolmen_api::Health;

    use super::*;

    fn codes(changes: &[Change]) -> Vec<EventCode> {
        changes.iter().map(|(code, ..)| *code).collect()
    }

    fn disk(id: &str, is_leaving: bool, is_excluded: bool) -> ReportedDisk {
        ReportedDisk { id: id.to_owned(), slot: 1, name: format!("/{id}"), is_leaving, is_excluded }
    }

    #[test]
    fn disk_events_are_reported_once() {
        let before = [disk("a", false, false), disk("b", false, false), disk("c", true, false)];
        let now =
            [disk("a", true, false), disk("b", true, true), disk("c", false, false), disk("d", false, false)];
        let reported = of_disks("tank", &before, &now);
        let expected =
            [EventCode::DiskLeaves, EventCode::DiskExcluded, EventCode::DiskStays, EventCode::DiskAdded];
        assert_eq!(codes(&reported), expected);
        assert_eq!(of_disks("tank", &now, &now), []);
        let gone = of_disks("tank", &now, &now[1..]);
        assert_eq!(codes(&gone), [EventCode::DiskRemoved]);
        assert_eq!(gone[0].3, "/a is no disk of pool tank any more");
    }

    #[test]
    fn trash_events_are_reported_once() {
        let space = |is_in_trash| ReportedSpace {
            id: 1,
            name: "x".to_owned(),
            size_bytes: 4096,
            attached_at: None,
            is_served: false,
            is_in_trash,
        };
        for (before, now, expected) in [
            (vec![space(false)], vec![space(true)], vec![EventCode::SpaceTrashed]),
            (vec![space(true)], vec![space(true)], vec![]),
            (vec![space(true)], vec![space(false)], vec![EventCode::SpaceRestored]),
            (vec![space(true)], vec![], vec![EventCode::SpacePurged]),
            (vec![space(false)], vec![], vec![EventCode::SpaceDeleted]),
        ] {
            assert_eq!(codes(&of_spaces("tank", &before, &now)), expected);
        }
    }

    #[test]
    fn space_events_are_reported_once() {
        let space = |id, name: &str| ReportedSpace {
            id,
            name: name.to_owned(),
            size_bytes: 4096,
            attached_at: None,
            is_served: false,
            is_in_trash: false,
        };
        let before = [space(1, "x"), space(2, "y")];
        let attached_at = Some("/dev/dolmen/tank/z".to_owned());
        let now = [
            ReportedSpace { size_bytes: 8192, attached_at, is_served: true, ..space(1, "z") },
            space(3, "n"),
        ];
        let reported = of_spaces("tank", &before, &now);
        let expected = [
            EventCode::SpaceRenamed,
            EventCode::SpaceResized,
            EventCode::SpaceAttached,
            EventCode::SpaceServed,
            EventCode::SpaceCreated,
            EventCode::SpaceDeleted,
        ];
        assert_eq!(codes(&reported), expected);
        assert_eq!(of_spaces("tank", &now, &now), []);
        let back = of_spaces("tank", &now, &before);
        let expected = [EventCode::SpaceDetached, EventCode::SpaceUnserved];
        assert_eq!(codes(&back)[2..4], expected, "{back:?}");
    }

    /// Errors of a disk, one after another, are told with the first and whenever they have more than doubled; since when is kept;
    /// and what was the matter is not over because a pool says nothing more.
    #[test]
    fn trouble_is_reported_when_it_begins_grows_and_ends() {
        let errors = |amount| Finding {
            code: FindingCode::DiskErrors,
            health: Health::Warning,
            object: Object::disk("tank", 1),
            text: format!("{amount} errors"),
            amount,
        };
        let (mut troubles, mut reported) = (Vec::new(), Vec::new());
        for amount in 1..=1000 {
            let (now, changes) = of_troubles(troubles, &[errors(amount)], amount);
            troubles = now;
            reported.extend(changes);
        }
        assert_eq!(reported.len(), 9, "{reported:?}");
        assert_eq!((reported[0].0, reported[1].0), (EventCode::TroubleBegan, EventCode::TroubleGrew));
        assert_eq!(troubles[0].since_s, 1);
        let stopped = Finding {
            code: FindingCode::PoolStopped,
            object: Object::pool("tank"),
            text: "it has stopped".to_owned(),
            ..errors(0)
        };
        let (troubles, changes) = of_troubles(troubles, &[stopped], 2000);
        assert_eq!((codes(&changes), troubles.len()), (vec![EventCode::TroubleBegan], 2));
        let (troubles, changes) = of_troubles(troubles, &[], 2001);
        assert_eq!((codes(&changes), troubles.len()), (vec![EventCode::TroubleOver; 2], 0));
        assert_eq!(changes[1].3, "over: 1000 errors");
    }

    /// A job that began and ended between two looks is told of, and one that had ended before is not told of again.
    #[test]
    fn job_events_are_reported_once() {
        let job = |id, state| SeenJob {
            id,
            pool: "tank".to_owned(),
            what: format!("job {id} (scrub pool tank)"),
            state,
            result: Some("all sound".to_owned()),
        };
        let reported =
            [ReportedJob { id: 3, state: JobState::Running }, ReportedJob { id: 4, state: JobState::Paused }];
        let now = [
            job(2, JobState::Failed),
            job(3, JobState::Paused),
            job(4, JobState::Waiting),
            job(5, JobState::Done),
            job(6, JobState::Running),
        ];
        let changes = of_jobs(&reported, 4, &now);
        let expected = [
            EventCode::JobPaused,
            EventCode::JobResumed,
            EventCode::JobBegun,
            EventCode::JobDone,
            EventCode::JobBegun,
        ];
        assert_eq!(codes(&changes), expected);
        assert_eq!(changes[3].3, "job 5 (scrub pool tank) is done: all sound");
        let again: Vec<ReportedJob> = now[1..].iter().map(|job| job.reported()).collect();
        assert_eq!(codes(&of_jobs(&again[..3], 6, &now[..3])), []);
    }
}
