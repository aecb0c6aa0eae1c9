//! A kind of job that only tests have. It proves that a job is one file and one line of the table.

use std::cell::Cell;
use std::rc::Rc;

use dolmen_api::{Change, JobState, Simple};
use dolmen_pool::LocalFuture;
use serde_json::Value;

use crate::answer::Answer;
use crate::job::{Ending, Job, JobWorker, Standing};
use crate::jobs::{Aim, Entry, Kind, OwnState, Rank};
use crate::open_pool::OpenPool;
use crate::plan::Undo;
use crate::pool_jobs::PoolJobs;

/// Counts, and remembers how far it came.
pub(crate) struct TestJob;

/// The service that counts.
pub(crate) struct TestJobs {
    pub(crate) pool_jobs: Rc<PoolJobs>,
}

/// The count.
#[derive(Default)]
pub(crate) struct Count(pub(crate) Cell<u64>);

impl OwnState for Count {
    fn checkpoints(&self) -> u64 {
        self.0.get()
    }

    fn recorded(&self) -> Value {
        self.0.get().into()
    }

    fn resumed(&self) -> Rc<dyn OwnState> {
        Rc::new(Self(self.0.clone()))
    }
}

impl Kind for TestJob {
    fn word(&self) -> &'static str {
        "test_only"
    }

    fn verb(&self) -> &'static str {
        "count"
    }

    fn doing(&self) -> &'static str {
        "counting"
    }

    fn rank(&self) -> Option<Rank> {
        Some(Rank::Pressing)
    }

    fn is_about(&self, aim: Aim) -> bool {
        aim == Aim::Pool
    }

    fn own_state(&self) -> Option<Rc<dyn OwnState>> {
        Some(Rc::new(Count::default()))
    }

    fn recalled_state(&self, recorded: &Value) -> Option<Rc<dyn OwnState>> {
        recorded.as_u64().map(|count| -> Rc<dyn OwnState> { Rc::new(Count(Cell::new(count))) })
    }
}

impl Job for TestJob {
    fn standing<'a>(&'a self, _pool: &'a OpenPool, _entry: &'a Entry) -> LocalFuture<'a, Standing> {
        Box::pin(async { Standing::Ended(JobState::Done, "everything is counted") })
    }
}

impl JobWorker for TestJobs {
    fn resume<'a>(self: Rc<Self>, _pool: &'a Rc<OpenPool>, entry: &'a Rc<Entry>) -> LocalFuture<'a, ()> {
        entry.end(JobState::Done, "counted".to_owned());
        Box::pin(async {})
    }

    fn ending(&self, _entry: &Entry) -> Ending {
        Ending { step: "what is counted stays counted", undo: Undo::NotNeeded }
    }

    fn stop<'a>(self: Rc<Self>, entry: &'a Rc<Entry>, request: Simple) -> LocalFuture<'a, Answer<Change>> {
        Box::pin(async move { self.pool_jobs.stop_asked(self.as_ref(), entry, request).await })
    }
}
