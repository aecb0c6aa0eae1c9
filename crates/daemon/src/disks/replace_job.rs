//! The job that replaces a disk, as the service of jobs and pools see it.

use dolmen_pool::LocalFuture;

use crate::job::{Job, Standing, disk_of};
use crate::jobs::{Aim, Entry, Kind, Rank};
use crate::open_pool::OpenPool;

/// Moves everything from one disk to another.
pub(crate) struct ReplaceJob;

impl Kind for ReplaceJob {
    fn word(&self) -> &'static str {
        "replace"
    }

    fn doing(&self) -> &'static str {
        "replacing"
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

impl Job for ReplaceJob {
    fn standing<'a>(&'a self, pool: &'a OpenPool, entry: &'a Entry) -> LocalFuture<'a, Standing> {
        let Aim::Disk(new) = entry.aim else { return Box::pin(async { Standing::GoesOn }) };
        let begun = pool.spaces.pool().members().replacements();
        let standing = if begun.iter().any(|(_, other)| other.id() == new) {
            Standing::GoesOn
        } else {
            let is_turned = begun.iter().any(|(one, _)| one.id() == new);
            Standing::ended(disk_of(pool, new).is_some() && !is_turned)
        };
        Box::pin(async { standing })
    }
}
