//! Jobs of open pools: begun, found, and called off.

use std::future::Future;
use std::rc::Rc;

use dolmen_api::{Change, ErrorBody, ErrorCode, Plan};
use dolmen_block_io::Seams;

use crate::answer::Answer;
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
}
