//! The job that grows the file system of a mounted volume: a tool does it, and the result of the job keeps what that printed.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use dolmen_api::{Change, ErrorBody, JobState, Simple};
use dolmen_block_io::within;
use dolmen_pool::LocalFuture;

use crate::answer::Answer;
use crate::job::{Ending, Job, JobWorker, Standing};
use crate::jobs::{Aim, Entry, Kind, Outcome, Rank, Start};
use crate::open_pool::OpenPool;
use crate::plan::Undo;
use crate::volumes::grow::{VolumeGrowth, grow_file_system};
use crate::volumes::volume::Volume;
use crate::volumes::workers::Wait;

/// Time that a request waits for the end of its job, which goes on then.
const REQUEST_LIMIT: Duration = Duration::from_secs(60);
/// What is said of a growth that another daemon began.
const CUT_SHORT: &str = "the daemon or its pool was closed meanwhile; the next mount goes on with the growth";

/// Grows the file system of a volume to all of its space.
pub(crate) struct VolumeGrowJob;

impl Kind for VolumeGrowJob {
    fn word(&self) -> &'static str {
        "volume_grow"
    }

    fn verb(&self) -> &'static str {
        "grow"
    }

    fn doing(&self) -> &'static str {
        "growing"
    }

    /// It takes no slot: it writes to one space, as a client does.
    fn rank(&self) -> Option<Rank> {
        None
    }

    fn is_about(&self, aim: Aim) -> bool {
        matches!(aim, Aim::Volume(_))
    }
}

impl Job for VolumeGrowJob {
    fn standing<'a>(&'a self, _pool: &'a OpenPool, _entry: &'a Entry) -> LocalFuture<'a, Standing> {
        Box::pin(async { Standing::Ended(JobState::CalledOff, CUT_SHORT) })
    }
}

impl JobWorker for VolumeGrowth {
    fn resume<'a>(self: Rc<Self>, _pool: &'a Rc<OpenPool>, entry: &'a Rc<Entry>) -> LocalFuture<'a, ()> {
        entry.end(JobState::CalledOff, CUT_SHORT.to_owned());
        Box::pin(async {})
    }

    fn ending(&self, _entry: &Entry) -> Ending {
        Ending { step: "its tool ends by itself, and the file system keeps its size", undo: Undo::ByNothing }
    }

    fn stop<'a>(self: Rc<Self>, entry: &'a Rc<Entry>, request: Simple) -> LocalFuture<'a, Answer<Change>> {
        Box::pin(async move { self.volumes.pool_jobs.stop_asked(self.as_ref(), entry, request).await })
    }
}

impl VolumeGrowth {
    /// Grows the file system of a volume by a job. Returns the job, which has ended unless it takes longer than a request may.
    ///
    /// # Errors
    /// Why the file system did not grow; the job has what the tool printed as well.
    pub(super) async fn grow_by_job(&self, volume: &Volume) -> Answer<dolmen_api::Job> {
        let volumes = &self.volumes;
        let clock = Rc::clone(&volumes.seams.clock);
        let aim = Aim::Volume(volume.space.id());
        let start =
            Start { kind: &VolumeGrowJob, subject: format!("volume {}", volume.name), aim, again: None };
        let refused = Rc::<RefCell<Option<ErrorBody>>>::default();
        let (service, pool, told) = (Rc::clone(volumes), Rc::clone(&volume.pool), Rc::clone(&refused));
        let space = volume.space.name().to_string();
        let work = move |_| async move {
            let volume = service.find(&pool, &space).await?;
            let Err(unanswered) = grow_file_system(&service, &volume, Wait::UntilDone).await else {
                let (kind, size) = (volume.record.file_system, volume.space.size());
                return Ok(Outcome::Done(format!("{kind} of volume {} has all of its {size}", volume.name)));
            };
            let printed = unanswered.printed().map(|printed| format!("; it printed: {printed}"));
            let error = unanswered.body();
            let message = format!("{}{}", error.message, printed.unwrap_or_default());
            told.replace(Some(error.clone()));
            Err(ErrorBody { message, ..error })
        };
        let job = volumes.pool_jobs.start_job(&volume.pool, start, work).await;
        let Some(entry) = volumes.jobs.find(job.id) else { return Ok(job) };
        within(clock.as_ref(), clock.now() + REQUEST_LIMIT, entry.ends()).await;
        match refused.take() {
            None => Ok(entry.view(clock.now())),
            Some(error) => {
                let more = error.hint.as_deref().map(|hint| format!("; {hint}")).unwrap_or_default();
                let hint = format!("`dolmen jobs {}` shows what the tool printed{more}", job.id);
                Err(error.hint(hint))
            }
        }
    }
}
