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
use dolmen_block_io::within;
use dolmen_mutation::mutation;

use crate::answer::Answer;
use crate::jobs::{Aim, Entry};
use crate::open_pool::OpenPool;
use crate::volumes::create_job::VolumeCreateJob;
use crate::volumes::service::Volumes;

/// Time that a request waits for steps that an earlier request, a job or the start of the daemon began. Clients wait 30 seconds for
/// an answer.
const SETTLE_LIMIT: Duration = Duration::from_secs(25);

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
pub(super) struct Transitions {
    under_way: RefCell<BTreeMap<SpaceKey, UnderWay>>,
    ended: Notify,
}

impl Transitions {
    /// Begins a step, which ends when the guard is dropped.
    pub(super) fn begin(self: &Rc<Self>, volume: SpaceKey, toward: Toward) -> Step {
        *self.under_way.borrow_mut().entry(volume).or_default().count(toward) += 1;
        Step { transitions: Rc::clone(self), volume, toward }
    }

    /// Returns the direction of the steps of a volume; none while there are none.
    fn of(&self, volume: SpaceKey) -> Option<Toward> {
        let under_way = self.under_way.borrow().get(&volume).copied()?;
        Some(if under_way.unmounting > 0 { Toward::Unmounted } else { Toward::Mounted })
    }

    fn any(&self, is_meant: &dyn Fn(SpaceKey) -> bool) -> Option<SpaceKey> {
        self.under_way.borrow().keys().copied().find(|key| is_meant(*key))
    }
}

/// A step under way.
#[derive(Debug)]
pub(super) struct Step {
    transitions: Rc<Transitions>,
    volume: SpaceKey,
    toward: Toward,
}

impl Drop for Step {
    fn drop(&mut self) {
        let mut all = self.transitions.under_way.borrow_mut();
        if let Some(under_way) = all.get_mut(&self.volume) {
            let count = under_way.count(self.toward);
            *count = count.saturating_sub(1);
            if (under_way.mounting, under_way.unmounting) == (0, 0) {
                all.remove(&self.volume);
            }
        }
        drop(all);
        self.transitions.ended.notify_all();
    }
}

impl Volumes {
    /// Returns the state of the mount of a volume whose file system is made; `is_mounted` is that of the table of mounts.
    pub(super) fn mount_state(&self, volume: SpaceKey, is_mounted: bool) -> MountState {
        let is_ending = self.creation_of(volume).is_some() && !mutation!(MountedBeforeJobEnds);
        match self.transitions.of(volume) {
            Some(Toward::Unmounted) => MountState::Unmounting,
            Some(Toward::Mounted) => MountState::Mounting,
            None if is_ending => MountState::Mounting,
            None if is_mounted => MountState::Mounted,
            None => MountState::Unmounted,
        }
    }

    /// Returns the job of a volume's creation that has not ended.
    fn creation_of(&self, volume: SpaceKey) -> Option<Rc<Entry>> {
        let aim = Aim::Volume(volume.space);
        let mut unfinished = self.jobs.unfinished_of(volume.pool).into_iter();
        unfinished.find(|entry| entry.is(&VolumeCreateJob) && entry.aim == aim && entry.is_taken())
    }

    /// Waits until no step of a volume is under way, nor the rest of its creation behind mkfs.
    ///
    /// # Errors
    /// A step takes longer than a request may wait.
    pub(super) async fn settle(&self, volume: SpaceKey, name: &str) -> Answer<()> {
        let settled = async {
            let is_meant = |key| key == volume;
            self.transitions.ended.wait_for(|| self.transitions.any(&is_meant).is_none().then_some(())).await;
            // One at mkfs takes as long as it takes, and refuses the request.
            if !self.uses.is_being_made(volume)
                && let Some(entry) = self.creation_of(volume)
            {
                entry.ends().await;
            }
        };
        let limit = self.seams.clock.now() + SETTLE_LIMIT;
        let settled = within(self.seams.clock.as_ref(), limit, settled).await;
        settled.ok_or_else(|| self.unsettled(volume, name))
    }

    /// Waits until no step of the volumes of pools is under way.
    ///
    /// # Errors
    /// As those of [`settle`](Self::settle).
    pub(super) async fn settle_pools(&self, pools: &[Rc<OpenPool>]) -> Answer<()> {
        let limit = self.seams.clock.now() + SETTLE_LIMIT;
        let is_meant = |key: SpaceKey| pools.iter().any(|pool| pool.id() == key.pool);
        let settled = async {
            self.transitions.ended.wait_for(|| self.transitions.any(&is_meant).is_none().then_some(())).await;
            for entry in pools.iter().flat_map(|pool| self.jobs.unfinished_of(pool.id())) {
                let Aim::Volume(space) = entry.aim else { continue };
                let key = SpaceKey { pool: entry.pool, space };
                if entry.is(&VolumeCreateJob) && entry.is_taken() && !self.uses.is_being_made(key) {
                    entry.ends().await;
                }
            }
        };
        if within(self.seams.clock.as_ref(), limit, settled).await.is_some() {
            return Ok(());
        }
        let Some(key) = self.transitions.any(&is_meant) else {
            let message = "a volume is still being mounted; nothing was changed";
            return Err(ErrorBody::new(ErrorCode::Busy, message).hint("`dolmen jobs` shows its job"));
        };
        let pool = pools.iter().find(|pool| pool.id() == key.pool);
        let space = pool.and_then(|pool| Some((pool.name(), pool.spaces.get(key.space)?)));
        let name = space.map(|(pool, space)| format!("{pool}/{}", space.name())).unwrap_or_default();
        Err(self.unsettled(key, &name))
    }

    fn unsettled(&self, volume: SpaceKey, name: &str) -> ErrorBody {
        let toward = match self.transitions.of(volume) {
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
    use dolmen_units::PoolId;

    use super::*;

    /// Scenario: an unmount waits for the lock while a mount holds it. The unmount is shown, then the mount, then neither.
    #[test]
    fn steps_that_overlap_end_each_for_itself() {
        let all = Rc::new(Transitions::default());
        let key = SpaceKey { pool: PoolId([7; 16]), space: dolmen_units::SpaceId(3) };
        let mount = all.begin(key, Toward::Mounted);
        let unmount = all.begin(key, Toward::Unmounted);
        assert_eq!(all.of(key), Some(Toward::Unmounted));
        drop(unmount);
        assert_eq!((all.of(key), all.any(&|_| true)), (Some(Toward::Mounted), Some(key)));
        drop(mount);
        assert_eq!((all.of(key), all.any(&|_| true)), (None, None));
    }
}
