//! Steps between `mounted` and `unmounted`, and requests that wait for their end.
//!
//! Invariant: a volume that is shown as mounted or unmounted has no step under way, so that a client that waited for that state
//! is not refused because of the step.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use dolmen_api::{ErrorBody, ErrorCode, MountState};
use dolmen_attach::SpaceKey;
use dolmen_block_io::sync::Notify;
use dolmen_block_io::{Clock, within};
use dolmen_mutation::mutation;
use dolmen_units::PoolId;

use crate::answer::Answer;
use crate::base::Base;
use crate::jobs::{Aim, Entry, Jobs, Kind};
use crate::open_pool::OpenPool;
use crate::state::VolumeUses;
use crate::volumes::workers::Workers;

/// Time that a request waits for steps that an earlier request, a job or the start of the daemon began. Clients wait 30 seconds for
/// an answer.
const WAIT_LIMIT: Duration = Duration::from_secs(25);

/// Time that the import of a pool waits for its mounts.
const OPENING_LIMIT: Duration = Duration::from_secs(15);

/// Direction of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Toward {
    Mounted,
    Unmounted,
}

/// Steps under way of one volume. A request may begin one while another waits for the lock of the volume.
#[derive(Debug, Clone, Copy, Default)]
struct UnderWay {
    mounting: usize,
    unmounting: usize,
}

impl UnderWay {
    fn count(&mut self, toward: Toward) -> &mut usize {
        match toward {
            Toward::Mounted => &mut self.mounting,
            Toward::Unmounted => &mut self.unmounting,
        }
    }
}

/// Steps under way of all volumes.
#[derive(Debug, Default)]
struct Steps {
    under_way: RefCell<BTreeMap<SpaceKey, UnderWay>>,
    ended: Notify,
}

impl Steps {
    fn begin(self: &Rc<Self>, volume: SpaceKey, toward: Toward) -> Step {
        *self.under_way.borrow_mut().entry(volume).or_default().count(toward) += 1;
        Step { steps: Rc::clone(self), volume, toward }
    }

    /// Returns the direction of the steps of a volume; none while there are none.
    fn of(&self, volume: SpaceKey) -> Option<Toward> {
        let under_way = self.under_way.borrow().get(&volume).copied()?;
        Some(if under_way.unmounting > 0 { Toward::Unmounted } else { Toward::Mounted })
    }

    fn any(&self, is_meant: &dyn Fn(SpaceKey) -> bool) -> Option<SpaceKey> {
        self.under_way.borrow().keys().copied().find(|key| is_meant(*key))
    }

    async fn end(&self, is_meant: &dyn Fn(SpaceKey) -> bool) {
        self.ended.wait_for(|| self.any(is_meant).is_none().then_some(())).await;
    }
}

/// A step under way; it ends when this is dropped.
#[derive(Debug)]
pub(super) struct Step {
    steps: Rc<Steps>,
    volume: SpaceKey,
    toward: Toward,
}

impl Drop for Step {
    fn drop(&mut self) {
        let mut all = self.steps.under_way.borrow_mut();
        if let Some(under_way) = all.get_mut(&self.volume) {
            let count = under_way.count(self.toward);
            *count = count.saturating_sub(1);
            if (under_way.mounting, under_way.unmounting) == (0, 0) {
                all.remove(&self.volume);
            }
        }
        drop(all);
        self.steps.ended.notify_all();
    }
}

/// Steps of volumes, and what else has to end before a volume is at rest.
pub(super) struct Transitions {
    steps: Rc<Steps>,
    jobs: Rc<Jobs>,
    uses: Rc<VolumeUses>,
    workers: Rc<Workers>,
    clock: Rc<dyn Clock>,
    /// Kind of the jobs that make volumes.
    creation: &'static dyn Kind,
}

impl Transitions {
    pub(super) fn new(base: &Base, workers: &Rc<Workers>, creation: &'static dyn Kind) -> Self {
        Self {
            steps: Rc::default(),
            jobs: Rc::clone(&base.jobs),
            uses: Rc::clone(&base.volume_uses),
            workers: Rc::clone(workers),
            clock: Rc::clone(&base.seams.clock),
            creation,
        }
    }

    /// Begins a step.
    pub(super) fn begin(&self, volume: SpaceKey, toward: Toward) -> Step {
        self.steps.begin(volume, toward)
    }

    /// Returns the state of the mount of a volume whose file system is made; `is_mounted` is that of the table of mounts.
    pub(super) fn state(&self, volume: SpaceKey, is_mounted: bool) -> MountState {
        let mut creations = self.creations(volume.pool).into_iter();
        let is_created = creations.any(|(key, _)| key == volume) && !mutation!(MountedBeforeJobEnds);
        match self.steps.of(volume) {
            Some(Toward::Unmounted) => MountState::Unmounting,
            Some(Toward::Mounted) => MountState::Mounting,
            None if is_created => MountState::Mounting,
            None if is_mounted => MountState::Mounted,
            None => MountState::Unmounted,
        }
    }

    /// Returns the jobs of a pool that make volumes and have not ended.
    fn creations(&self, pool: PoolId) -> Vec<(SpaceKey, Rc<Entry>)> {
        let mut creations = Vec::new();
        for entry in self.jobs.unfinished_of(pool) {
            if let Aim::Volume(space) = entry.aim
                && entry.is(self.creation)
                && entry.is_taken()
            {
                creations.push((SpaceKey { pool, space }, entry));
            }
        }
        creations
    }

    /// Waits until no step of the volumes of a pool is under way, or they take long: a client that goes on when a pool is imported
    /// finds its files, not the folders below them.
    pub(super) async fn end_opening(&self, pool: PoolId) {
        let is_meant = |key: SpaceKey| key.pool == pool;
        let ended = self.steps.end(&is_meant);
        let _ = within(self.clock.as_ref(), self.clock.now() + OPENING_LIMIT, ended).await;
    }

    /// Waits until no step of a volume is under way, nor the rest of its creation after mkfs.
    ///
    /// # Errors
    /// A step takes longer than a request may wait.
    pub(super) async fn end(&self, volume: SpaceKey, name: &str) -> Answer<()> {
        let is_meant = |key| key == volume;
        let ended = within(self.clock.as_ref(), self.clock.now() + WAIT_LIMIT, async {
            self.steps.end(&is_meant).await;
            self.end_creations(volume.pool, &is_meant).await;
        });
        ended.await.ok_or_else(|| self.refusal(volume, name))
    }

    /// Waits until no step of the volumes of pools is under way, nor the rest of a creation after mkfs.
    ///
    /// # Errors
    /// A step takes longer than a request may wait.
    pub(super) async fn end_all(&self, pools: &[Rc<OpenPool>]) -> Answer<()> {
        let is_meant = |key: SpaceKey| pools.iter().any(|pool| pool.id() == key.pool);
        let ended = within(self.clock.as_ref(), self.clock.now() + WAIT_LIMIT, async {
            self.steps.end(&is_meant).await;
            for pool in pools {
                self.end_creations(pool.id(), &is_meant).await;
            }
        });
        if ended.await.is_some() {
            return Ok(());
        }
        let Some(key) = self.steps.any(&is_meant) else {
            let message = "a volume is still being mounted; nothing was changed";
            return Err(ErrorBody::new(ErrorCode::Busy, message).hint("`dolmen jobs` shows its job"));
        };
        let pool = pools.iter().find(|pool| pool.id() == key.pool);
        let space = pool.and_then(|pool| Some((pool.name(), pool.spaces.get(key.space)?)));
        let name = space.map(|(pool, space)| format!("{pool}/{}", space.name())).unwrap_or_default();
        Err(self.refusal(key, &name))
    }

    /// Waits for the end of creations that are past mkfs. One at mkfs takes as long as it takes, and refuses requests.
    async fn end_creations(&self, pool: PoolId, is_meant: &dyn Fn(SpaceKey) -> bool) {
        for (key, entry) in self.creations(pool) {
            if is_meant(key) && !self.uses.is_being_made(key) {
                entry.ends().await;
            }
        }
    }

    fn refusal(&self, volume: SpaceKey, name: &str) -> ErrorBody {
        let toward = match self.steps.of(volume) {
            Some(Toward::Unmounted) => "unmounted",
            Some(Toward::Mounted) | None => "mounted",
        };
        let by = self.workers.at_work(volume).map_or_else(String::new, |worker| {
            format!(": {} (process {}) has not ended", worker.operation, worker.pid)
        });
        let message = format!("volume {name} is still being {toward}{by}; nothing was changed");
        let hint = format!("`dolmen volume show {name}` shows when that has ended");
        ErrorBody::new(ErrorCode::Busy, message).on(name).hint(hint)
    }
}

#[cfg(test)]
mod tests {
    use dolmen_units::{PoolId, SpaceId};

    use super::*;

    /// Scenario: an unmount waits for the lock while a mount holds it. The unmount is shown, then the mount, then neither.
    #[test]
    fn steps_that_overlap_end_each_for_itself() {
        let all = Rc::new(Steps::default());
        let key = SpaceKey { pool: PoolId([7; 16]), space: SpaceId(3) };
        let mount = all.begin(key, Toward::Mounted);
        let unmount = all.begin(key, Toward::Unmounted);
        assert_eq!(all.of(key), Some(Toward::Unmounted));
        drop(unmount);
        assert_eq!((all.of(key), all.any(&|_| true)), (Some(Toward::Mounted), Some(key)));
        drop(mount);
        assert_eq!((all.of(key), all.any(&|_| true)), (None, None));
    }
}
