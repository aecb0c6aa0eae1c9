//! Events: what has happened to pools, disks, spaces and jobs, by number (docs/design/0016).
//!
//! Once a second what is there is compared with what was told; the difference are the events. Both go on record in one file, so
//! what happened while no daemon looked is told by the next one, and nothing twice. The engine is only asked, never held up: no
//! read or write of a client waits for any of this. What began and ended between two looks is not told.
//!
//! Invariants:
//! - Nobody is told of an event before it is on record, or the log says that it cannot be.
//! - What is the matter is what `findings` says, in its words.

use std::rc::Rc;
use std::time::Duration;

use dolmen_api::{ErrorBody, ErrorCode};
use dolmen_block_io::{Seams, sleep};

use crate::answer::Answer;
use crate::base::Base;
use crate::exports::NbdServer;
use crate::health::{Diagnosis, findings_at_a_glance, not_open};
use crate::jobs::{Jobs, kept};
use crate::open_pool::{OpenPool, key_of};
use crate::open_pools::OpenPools;
use crate::state::{Events, ReportedDisk, ReportedPool, ReportedSpace, VolumeUses};
use crate::views::Views;

/// The pause between two looks, at the least.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Looking takes no more than this part of the time: of a large pool with a disk that is away, rows are counted for it.
const LOOK_PARTS: u32 = 20;
/// The pause between two looks, at most. A look that a busy machine held up for seconds would be the last one for minutes.
const LOOK_PAUSE_MAX: Duration = Duration::from_secs(10);

/// Returns the pause after a look that took so long.
fn pause_after(look: Duration) -> Duration {
    (look * LOOK_PARTS).clamp(LOOK_EVERY, LOOK_PAUSE_MAX)
}

/// Events of pools, looked for once a second.
pub(crate) struct EventWatch {
    pools: Rc<OpenPools>,
    views: Rc<Views>,
    diagnosis: Rc<Diagnosis>,
    seams: Seams,
    jobs: Rc<Jobs>,
    events: Rc<Events>,
    nbd: Rc<NbdServer>,
    volume_uses: Rc<VolumeUses>,
}

impl EventWatch {
    pub(crate) fn new(base: &Base, diagnosis: &Rc<Diagnosis>) -> Self {
        Self {
            pools: Rc::clone(&base.pools),
            views: Rc::clone(&base.views),
            diagnosis: Rc::clone(diagnosis),
            seams: base.seams.clone(),
            jobs: Rc::clone(&base.jobs),
            events: Rc::clone(&base.events),
            nbd: Rc::clone(&base.nbd),
            volume_uses: Rc::clone(&base.volume_uses),
        }
    }
}

impl EventWatch {
    /// Looks for what has happened for as long as the daemon runs.
    pub(crate) async fn follow_events(self: Rc<Self>) {
        let (service, clock) = (Rc::downgrade(&self), Rc::clone(&self.seams.clock));
        drop(self);
        let mut pause = LOOK_EVERY;
        loop {
            sleep(clock.as_ref(), pause).await;
            let Some(service) = service.upgrade() else { return };
            if service.pools.is_stopping.get() {
                return;
            }
            let began = clock.now();
            service.look_for_events().await;
            pause = pause_after(clock.now().since(began));
            // A file that is written slowly takes no time of the engine.
            service.events.keep().await;
        }
    }

    async fn look_for_events(&self) {
        for open in self.pools.open_pools() {
            let findings = findings_at_a_glance(&open).await;
            // One that is being closed changes on the way.
            if !open.is_closing.get() && !self.pools.is_stopping.get() {
                self.events.see_pool(open.id(), self.as_reported(&open), &findings);
            }
        }
        if self.pools.is_stopping.get() {
            return;
        }
        let is_open = |id: &str| self.pools.open.borrow().keys().any(|pool| pool.to_string() == id);
        let is_closed = |id: &str| self.pools.closed.borrow().keys().any(|pool| pool.to_string() == id);
        self.events.report_unknown_pools(is_open, |id| is_open(id) || is_closed(id));
        let mut findings = self.diagnosis.findings_besides();
        findings.extend(self.pools.closed.borrow().values().map(not_open));
        self.events.see_besides(&findings);
        self.events.see_jobs(&self.jobs.on_record());
    }

    fn as_reported(&self, open: &OpenPool) -> ReportedPool {
        let leaving = open.spaces.moves().drains();
        let disk = |disk: &Rc<dolmen_pool::Disk>| ReportedDisk {
            id: disk.id().to_string(),
            slot: disk.slot().0,
            name: kept(&disk.name()),
            is_leaving: leaving.iter().any(|other| other.id() == disk.id()),
            is_excluded: open.absences.is_excluded(disk.id()),
        };
        let space = |space: &dolmen_space::Space| ReportedSpace {
            id: space.id().0,
            name: space.name().to_string(),
            size_bytes: space.size().0,
            attached_at: self.views.attached_at(open, space),
            is_served: self.nbd.find(open.id(), space.id()).is_some(),
            is_in_trash: space.trashed_at().is_some(),
            mounted_at: self.volume_uses.mounted_at(key_of(open, space)),
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

    pub(crate) async fn list_events(&self, since: u64, pool: Option<String>) -> Answer<dolmen_api::Events> {
        let events = self.events.after(since, pool.as_deref());
        let is_known = |pool: &String| {
            let is_reported = !self.events.after(0, Some(pool)).events.is_empty();
            is_reported || self.pools.pool(pool).is_ok()
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

    use dolmen_api::{EventCode, Finding, FindingCode, JobState, Object};

    use super::*;
    use crate::state::{Change, ReportedJob, SeenJob, of_disks, of_jobs, of_spaces, of_troubles};

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

    /// Scenario: a look takes no time, a tenth of a second, and a minute on a machine that does much else.
    #[test]
    fn a_slow_look_delays_the_next_one_by_seconds_alone() {
        let pauses = [0, 100, 60_000].map(|ms| pause_after(Duration::from_millis(ms)).as_secs());
        assert_eq!(pauses, [1, 2, 10]);
    }

    /// Scenario: a volume is mounted, stays so, moves to another path, and is deleted while it is mounted. Each step is told once.
    #[test]
    fn mount_events_are_reported_once() {
        let space = |mounted_at: Option<&str>, is_in_trash| ReportedSpace {
            id: 1,
            name: "home".to_owned(),
            size_bytes: 4096,
            attached_at: None,
            is_served: false,
            is_in_trash,
            mounted_at: mounted_at.map(str::to_owned),
        };
        let (none, first, second) = (space(None, false), space(Some("/a"), false), space(Some("/b"), false));
        let told = |before: &ReportedSpace, now: &ReportedSpace| -> Vec<(EventCode, String)> {
            let changes = of_spaces("tank", std::slice::from_ref(before), std::slice::from_ref(now));
            changes.into_iter().map(|(code, _, _, text)| (code, text)).collect()
        };
        let mounted = (EventCode::VolumeMounted, "volume tank/home was mounted at /a".to_owned());
        let unmounted = (EventCode::VolumeUnmounted, "volume tank/home was unmounted from /a".to_owned());
        let moved = (EventCode::VolumeMounted, "volume tank/home was mounted at /b".to_owned());
        let trashed = (EventCode::SpaceTrashed, "space tank/home was moved into the trash".to_owned());
        assert_eq!(told(&none, &first), [mounted]);
        assert_eq!(told(&first, &first), []);
        assert_eq!(told(&first, &second), [unmounted.clone(), moved]);
        assert_eq!(told(&first, &none), std::slice::from_ref(&unmounted));
        assert_eq!(told(&first, &space(None, true)), [trashed, unmounted]);
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
            mounted_at: None,
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
            mounted_at: None,
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
