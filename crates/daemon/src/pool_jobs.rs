//! Jobs of open pools: begun, found, and called off.

use std::future::Future;
use std::rc::Rc;
use std::time::Duration;

use dolmen_api::{Change, ErrorBody, ErrorCode, JobState, Plan, Simple};
use dolmen_block_io::{Seams, within};

use crate::answer::Answer;
use crate::job::{Ending, JobWorker};
use crate::jobs::{Course, Entry, JobPool, Jobs, Outcome, Start};
use crate::open_pool::OpenPool;
use crate::open_pools::OpenPools;
use crate::plan::{Figures, Undo, made, planned};

/// Jobs of open pools: begun, found, and called off.
pub(crate) struct PoolJobs {
    pub(crate) pools: Rc<OpenPools>,
    pub(crate) seams: Seams,
    pub(crate) jobs: Rc<Jobs>,
}

impl PoolJobs {
    /// Begins a job of a pool, or goes on with one that was left over and is about the same.
    pub(crate) async fn start_job<F>(
        &self,
        pool: &OpenPool,
        start: Start,
        work: impl FnOnce(Rc<Course>) -> F + 'static,
    ) -> dolmen_api::Job
    where
        F: Future<Output = Answer<Outcome>> + 'static,
    {
        let of = JobPool { id: pool.id(), name: pool.name(), slot: Rc::clone(&pool.job_slot) };
        self.jobs.start(&self.seams, of, start, work).await
    }

    /// Refuses another job while too many have not ended.
    pub(crate) fn check_job_room(&self, pool: &OpenPool) -> Answer<()> {
        self.jobs.check_room(pool.id(), &pool.name())
    }

    pub(crate) fn find_job(&self, id: &str) -> Answer<Rc<Entry>> {
        let found = id.parse().ok().and_then(|id| self.jobs.find(id));
        found.ok_or_else(|| {
            ErrorBody::new(ErrorCode::NoSuchJob, format!("there is no job {id}, or it is forgotten already"))
                .on(id)
                .hint("`dolmen jobs` shows all of them")
        })
    }

    pub(crate) fn plan_of(&self, entry: &Entry, undo: Undo, steps: Vec<String>) -> Plan {
        match self.pools.open_pool_of(entry.pool) {
            Some(pool) => pool.plan(undo, steps),
            None => Figures::of_room(0, 0).plan(undo, steps),
        }
    }

    pub(crate) fn stated(&self, entry: &Entry, plan: Plan, message: String) -> Change {
        let mut change = made(plan, message);
        change.job = Some(entry.view(self.seams.clock.now()));
        change
    }

    pub(crate) fn unchanged(&self, entry: &Entry, message: String) -> Change {
        let mut change = planned(self.plan_of(entry, Undo::NotNeeded, Vec::new()), message);
        change.job = Some(entry.view(self.seams.clock.now()));
        change
    }

    /// Ends a job that only somebody's request has begun.
    pub(crate) async fn stop_asked(
        &self,
        worker: &dyn JobWorker,
        entry: &Entry,
        request: Simple,
    ) -> Answer<Change> {
        let what = entry.what();
        let Ending { step, undo } = worker.ending(entry);
        let plan = self.plan_of(entry, undo, vec![format!("end {what}; {step}")]);
        if request.dry_run {
            return Ok(planned(plan, format!("{what} would be called off")));
        }
        worker.note_stop(entry).await;
        entry.stop("it was called off");
        let limit = self.seams.clock.now() + TIMEOUT;
        let _ = within(self.seams.clock.as_ref(), limit, entry.ends()).await;
        self.jobs.keep().await;
        let message = match entry.state() {
            JobState::CalledOff => format!("{what} is called off"),
            JobState::Done | JobState::Failed => format!("{what} ended before it could be called off"),
            JobState::Waiting | JobState::Running | JobState::Paused => {
                format!("{what} ends as soon as the rows that are under way are done")
            }
        };
        Ok(self.stated(entry, plan, message))
    }
}

/// How long an answer waits for what is under way of a job that is to pause or to end.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(2);
