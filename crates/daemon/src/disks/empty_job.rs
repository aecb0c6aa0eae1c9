//! The job that empties a failing disk, as the service of jobs and pools see it.

use dolmen_api::JobState;
use dolmen_pool::{Disk, LocalFuture};

use crate::job::{Job, Standing, disk_of};
use crate::jobs::{Aim, Entry, JobView, Kind, Rank};
use crate::open_pool::OpenPool;
use crate::state::is_here;

/// Moves everything off a disk that is failing, to the others, or rebuilds there what one that stays away has of spaces that can do
/// without it; the disk stays in the pool.
pub(crate) struct EmptyJob;

impl Kind for EmptyJob {
    fn word(&self) -> &'static str {
        "empty"
    }

    fn doing(&self) -> &'static str {
        "emptying"
    }

    fn rank(&self) -> Option<Rank> {
        Some(Rank::Pressing)
    }

    fn fills_slabs(&self) -> bool {
        true
    }

    fn is_about(&self, aim: Aim) -> bool {
        matches!(aim, Aim::Disk(_))
    }
}

impl Job for EmptyJob {
    fn standing<'a>(&'a self, pool: &'a OpenPool, entry: &'a Entry) -> LocalFuture<'a, Standing> {
        let Aim::Disk(id) = entry.aim else { return Box::pin(async { Standing::GoesOn }) };
        let (disk, is_paused) = (disk_of(pool, id), entry.is_paused());
        Box::pin(async move {
            match disk {
                // What is rebuilt of one that is away is begun again when that is time, but for what somebody has paused.
                Some(disk) if !is_here(&disk) && pool.spaces.pool().members().is_active(&disk) => {
                    match is_paused {
                        true => Standing::GoesOn,
                        false => Standing::Ended(JobState::CalledOff, "its disk is away by now"),
                    }
                }
                Some(disk) if pool.is_to_be_empty(&disk) => Standing::GoesOn,
                Some(_) | None => Standing::Ended(
                    JobState::CalledOff,
                    "its disk is well by now, or none of the pool any more",
                ),
            }
        })
    }
}

/// What becomes of what a failing disk has, in words.
pub(crate) fn outlook_of_failing(pool: &OpenPool, disk: &Disk, jobs: &[JobView]) -> Option<String> {
    let is_of_it = |job: &&JobView| job.kind.word() == EmptyJob.word() && job.subject == disk.name();
    if let Some(job) = jobs.iter().find(is_of_it) {
        return Some(format!("what it has is moved to the other disks (job {})", job.id));
    }
    if pool.bytes_on(disk) == 0 {
        return Some("it holds nothing of any space".to_owned());
    }
    if let Some(why) = pool.emptyings.refused.borrow().get(&disk.id()) {
        return Some(format!("what it has stays there: {why}"));
    }
    let is_held_off = pool.emptyings.is_held_off(disk.id(), pool.errors_of(disk));
    is_held_off.then(|| "what it has stays there, unless it has more errors".to_owned())
}
