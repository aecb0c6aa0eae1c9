//! Deduplications that are due by the schedule of their volume, and jobs that wait for their volume to be mounted.
//!
//! A run is due if its time lies between two looks of this daemon. One whose time passed while no daemon ran is left out.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::{Rc, Weak};
use std::time::Duration;

use dolmen_api::ImportMode;
use dolmen_attach::SpaceKey;
use dolmen_block_io::sleep;
use dolmen_volume::schedule::Schedule;

use crate::jobs::seconds_now;
use crate::open_pool::{OpenPool, key_of};
use crate::volumes::dedup::Dedups;
use crate::volumes::dedup_task::Task;
use crate::volumes::opening::follow_unmount;
use crate::volumes::records::{self, Found};
use crate::volumes::volume::Volume;

/// Pause between two looks.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// Runs that are due.
pub(crate) struct DedupSchedule {
    dedups: Rc<Dedups>,
    /// Minute of Unix time of the last look at each volume with a schedule.
    looked: RefCell<BTreeMap<SpaceKey, i64>>,
}

impl DedupSchedule {
    pub(crate) fn new(dedups: &Rc<Dedups>) -> Self {
        Self { dedups: Rc::clone(dedups), looked: RefCell::default() }
    }

    /// Looks at volumes for as long as the service lives.
    pub(crate) fn keep_looking(self: &Rc<Self>) {
        let service: Weak<Self> = Rc::downgrade(self);
        let seams = self.dedups.volumes.seams.clone();
        let clock = Rc::clone(&seams.clock);
        let looking = async move {
            let mut minute = None;
            while let Some(service) = service.upgrade() {
                let now = i64::try_from(seconds_now() / 60).unwrap_or(0);
                let is_new_minute = minute.replace(now) != Some(now);
                if !service.dedups.volumes.pools.is_stopping.get() {
                    service.look(is_new_minute.then_some(now)).await;
                }
                drop(service);
                sleep(clock.as_ref(), LOOK_EVERY).await;
            }
        };
        seams.spawner.spawn("deduplication", Box::pin(looking));
    }

    /// Goes on with jobs that wait, and starts runs that are due in a minute.
    async fn look(&self, minute: Option<i64>) {
        let mut seen = BTreeSet::new();
        for pool in self.dedups.volumes.pools.open_pools() {
            if pool.mode == ImportMode::Read || pool.is_closing.get() {
                continue;
            }
            for space in pool.spaces.list() {
                let key = key_of(&pool, &space);
                seen.insert(key);
                self.follow_unmount(key, format!("{}/{}", pool.name(), space.name()));
                let is_mounted = self.dedups.volumes.uses.mounted_at(key).is_some();
                if is_mounted {
                    self.go_on(&pool, key).await;
                }
                let Some(minute) = minute else { continue };
                let name = format!("{}/{}", pool.name(), space.name());
                let found = records::read(&space).await;
                if let Err(error) = &found {
                    tracing::warn!(volume = name, %error, "whether a deduplication is due is looked at in a minute");
                }
                if let Ok(Some(Found::Known(record))) = found {
                    let schedule = record.deduplication.as_ref().map(|_| record.schedules.deduplication);
                    let is_due = self.is_due(key, schedule.unwrap_or_default(), minute).await;
                    if is_due && !is_mounted {
                        tracing::warn!(
                            volume = name,
                            "a deduplication that is due is left out: the volume is not mounted"
                        );
                    }
                    if is_due && is_mounted {
                        let volume = Volume {
                            pool: Rc::clone(&pool),
                            space: space.clone(),
                            key,
                            name,
                            record: *record,
                        };
                        self.start(&volume).await;
                    }
                }
            }
        }
        self.looked.borrow_mut().retain(|key, _| seen.contains(key));
    }

    /// Follows an unmount by hand, on which jobs that wait would go on for nothing. It goes on after this returns.
    fn follow_unmount(&self, key: SpaceKey, name: String) {
        let volumes = Rc::clone(&self.dedups.volumes);
        let following = async move { follow_unmount(&volumes, key, &name).await };
        self.dedups.volumes.seams.spawner.spawn("unmounted volume", Box::pin(following));
    }

    async fn go_on(&self, pool: &Rc<OpenPool>, key: SpaceKey) {
        if let Some(entry) = self.dedups.job_of(key)
            && self.dedups.volumes.jobs.is_left(&entry)
            && !entry.is_paused()
        {
            self.dedups.go_on(pool, &entry).await;
        }
    }

    async fn is_due(&self, key: SpaceKey, schedule: Schedule, minute: i64) -> bool {
        if schedule == Schedule::Never {
            self.looked.borrow_mut().remove(&key);
            return false;
        }
        let before = *self.looked.borrow_mut().entry(key).or_insert(minute);
        // Without the local time the minutes since the last look are looked at later.
        let Some(offset) = self.dedups.utc_offset().await else { return false };
        self.looked.borrow_mut().insert(key, minute);
        is_between(schedule, before, minute, offset)
    }

    async fn start(&self, volume: &Volume) {
        let ready = self.dedups.check_ready(volume).await;
        let room = self.dedups.volumes.pool_jobs.check_job_room(&volume.pool);
        if let Err(error) = ready.and(room) {
            tracing::warn!(volume = volume.name, %error, "a deduplication that is due is left out");
            return;
        }
        let (pool, task) = (&volume.pool, Task::Dedup { mode: None });
        let job = self.dedups.start(pool, volume.key, &volume.name, task, None).await;
        tracing::info!(volume = volume.name, job = job.id, "a deduplication is due");
    }
}

/// Returns whether a schedule has a time behind one minute and not behind another.
fn is_between(schedule: Schedule, before: i64, now: i64, offset: i32) -> bool {
    schedule.next(before, offset).ok().flatten().is_some_and(|due| due <= now)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_due_once_at_the_first_look_after_its_time() {
        let daily: Schedule = "daily 03:00".parse().unwrap();
        let three = 3 * 60;
        assert!(!is_between(daily, three - 2, three - 1, 0));
        assert!(is_between(daily, three - 1, three, 0));
        assert!(!is_between(daily, three, three + 1, 0));
        assert!(is_between(daily, three - 5, three + 9, 0), "a daemon that was held up");
        assert!(!is_between(daily, three + 9, three - 5, 0), "a clock that was set back");
        assert!(is_between(daily, three - 61, three - 60, 60), "the clock of the host is an hour ahead");
    }
}
