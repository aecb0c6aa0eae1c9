//! The job that moves everything off a disk, as the service of jobs and pools see it.

use dolmen_api::JobState;
use dolmen_pool::LocalFuture;

use crate::job::{Job, Standing, disk_of};
use crate::jobs::{Aim, Entry, Kind, Rank};
use crate::open_pool::OpenPool;

/// Moves everything off a disk, to the others.
pub(crate) struct DrainJob;

impl Kind for DrainJob {
    fn word(&self) -> &'static str {
        "drain"
    }

    fn doing(&self) -> &'static str {
        "draining"
    }

    fn rank(&self) -> Option<Rank> {
        Some(Rank::Urgent)
    }

    fn is_known_to_pool(&self) -> bool {
        true
    }

    fn takes_disk_out(&self) -> bool {
        true
    }

    fn is_about(&self, aim: Aim) -> bool {
        matches!(aim, Aim::Disk(_))
    }
}

impl Job for DrainJob {
    fn standing<'a>(&'a self, pool: &'a OpenPool, entry: &'a Entry) -> LocalFuture<'a, Standing> {
        let Aim::Disk(leaving) = entry.aim else { return Box::pin(async { Standing::GoesOn }) };
        let inner = pool.spaces.pool();
        let standing = match disk_of(pool, leaving) {
            Some(disk) if inner.members().is_drained(&disk) => Standing::GoesOn,
            Some(disk) if inner.members().role_of(&disk).is_some() => {
                match inner.free_space().holds_rows(&disk) {
                    true => Standing::GoesOn,
                    false => Standing::Ended(JobState::Done, "it holds nothing any more"),
                }
            }
            left => Standing::ended(left.is_none()),
        };
        Box::pin(async { standing })
    }
}
