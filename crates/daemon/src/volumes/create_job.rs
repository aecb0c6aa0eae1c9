//! The job that makes a volume, as the service of jobs and pools see it.

use std::rc::Rc;

use dolmen_api::{Change, JobState, Simple};
use dolmen_pool::LocalFuture;
use dolmen_volume::record::VolumeState;

use crate::answer::Answer;
use crate::job::{Ending, Job, JobWorker, Standing};
use crate::jobs::{Aim, Entry, Kind, Rank};
use crate::open_pool::OpenPool;
use crate::plan::Undo;
use crate::volumes::records::{self, Found};
use crate::volumes::service::Volumes;

/// Makes the file system of a volume, and mounts it.
pub(crate) struct VolumeCreateJob;

impl Kind for VolumeCreateJob {
    fn word(&self) -> &'static str {
        "volume_create"
    }

    fn verb(&self) -> &'static str {
        "make"
    }

    fn doing(&self) -> &'static str {
        "making"
    }

    /// It takes no slot: it writes to one space, as a client does.
    fn rank(&self) -> Option<Rank> {
        None
    }

    fn is_known_to_pool(&self) -> bool {
        true
    }

    fn is_about(&self, aim: Aim) -> bool {
        matches!(aim, Aim::Volume(_))
    }
}

impl Job for VolumeCreateJob {
    fn standing<'a>(&'a self, pool: &'a OpenPool, entry: &'a Entry) -> LocalFuture<'a, Standing> {
        Box::pin(async move {
            let Aim::Volume(id) = entry.aim else { return Standing::GoesOn };
            let Some(space) = pool.spaces.get(id) else { return Standing::ended(false) };
            match records::read(&space).await {
                Ok(Some(Found::Known(record))) if record.state == VolumeState::Making => Standing::GoesOn,
                Ok(Some(_)) => {
                    Standing::Ended(JobState::Done, "the volume was made when the daemon looked for it")
                }
                Ok(None) => Standing::ended(false),
                Err(_) => Standing::GoesOn,
            }
        })
    }
}

impl JobWorker for Volumes {
    fn resume<'a>(self: Rc<Self>, pool: &'a Rc<OpenPool>, entry: &'a Rc<Entry>) -> LocalFuture<'a, ()> {
        Box::pin(async move {
            let Aim::Volume(id) = entry.aim else { return };
            if let Some(space) = pool.spaces.get(id) {
                self.start_making(pool, &space, Some(Rc::clone(entry))).await;
            }
        })
    }

    fn ending(&self, _entry: &Entry) -> Ending {
        let step = "the space is deleted with what was made on it; a volume that is whole already stays";
        Ending { step, undo: Undo::ByNothing }
    }

    fn stop<'a>(self: Rc<Self>, entry: &'a Rc<Entry>, request: Simple) -> LocalFuture<'a, Answer<Change>> {
        Box::pin(async move { self.pool_jobs.stop_asked(self.as_ref(), entry, request).await })
    }
}
