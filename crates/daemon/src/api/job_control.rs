//! What people and restarts do with jobs: listed, paused, resumed, stopped, set, gone on with (docs/design/0011).

use std::rc::Rc;

use dolmen_api::{Change, ErrorBody, ErrorCode, JobDocument, JobState, SCHEMA, SetJob, Simple};
use dolmen_block_io::{Seams, within};

use crate::answer::Answer;
use crate::base::Base;
use crate::job::{Standing, ending};
use crate::job_table::{JobWorkers, job_of};
use crate::jobs::{Entry, Jobs, seconds_now, share as job_share};
use crate::open_pool::OpenPool;
use crate::open_pools::OpenPools;
use crate::plan::{Undo, planned};
use crate::pool_jobs::{PoolJobs, TIMEOUT};
use crate::pools::RebalanceJob;

/// Control of jobs, for users and after restarts.
pub(crate) struct JobControl {
    pools: Rc<OpenPools>,
    pool_jobs: Rc<PoolJobs>,
    seams: Seams,
    jobs: Rc<Jobs>,
    job_workers: Rc<JobWorkers>,
}

impl JobControl {
    pub(crate) fn new(base: &Base, job_workers: &Rc<JobWorkers>) -> Self {
        Self {
            pools: Rc::clone(&base.pools),
            pool_jobs: Rc::clone(&base.pool_jobs),
            seams: base.seams.clone(),
            jobs: Rc::clone(&base.jobs),
            job_workers: Rc::clone(job_workers),
        }
    }
}

impl JobControl {
    /// Takes over what the last daemon has left on record.
    pub(crate) async fn recall_jobs(&self) {
        self.jobs.recall().await;
    }

    /// Ends jobs of pools that nobody waits for any more.
    pub(crate) async fn end_jobs_of_lost_pools(&self) {
        let is_known = |pool| {
            self.pools.open.borrow().contains_key(&pool) || self.pools.closed.borrow().contains_key(&pool)
        };
        for entry in self.jobs.unfinished().iter().filter(|entry| !is_known(entry.pool)) {
            let why = format!("pool {} is not known here any more", entry.pool_name);
            tracing::warn!(
                job = entry.id,
                pool = entry.pool_name,
                "a job is called off: its pool is not known here"
            );
            entry.end(JobState::CalledOff, why);
        }
        self.jobs.keep().await;
    }

    /// Ends jobs of an open pool for which nobody works and that the pool knows nothing of any more.
    pub(crate) async fn end_what_is_over(&self, pool: &OpenPool) {
        let idle = |entry: &Rc<Entry>| !entry.is_in_hand();
        for entry in self.jobs.unfinished_of(pool.id()).into_iter().filter(idle) {
            if let Some(job) = job_of(&entry.kind.wire())
                && let Standing::Ended(state, why) = job.standing(pool, &entry).await
                && !entry.has_ended()
                && !entry.is_in_hand()
            {
                entry.end(state, why.to_owned());
            }
        }
        self.jobs.keep().await;
    }

    async fn end_all_that_is_over(&self) {
        for pool in self.pools.open_pools().iter().filter(|pool| !pool.is_closing.get()) {
            self.end_what_is_over(pool).await;
        }
    }

    /// Goes on with jobs that only the record knows.
    pub(crate) async fn go_on_with_asked(&self, pool: &Rc<OpenPool>) {
        for entry in self.jobs.unfinished_of(pool.id()) {
            if self.jobs.is_left(&entry) && !entry.is_paused() && !entry.kind.is_known_to_pool() {
                self.take_up(pool, &entry).await;
            }
        }
    }

    /// Goes on with a job for which nobody works, as its pool needs it.
    async fn take_up(&self, pool: &Rc<OpenPool>, entry: &Rc<Entry>) {
        if let Some(worker) = self.job_workers.of(entry.kind) {
            worker.resume(pool, entry).await;
        }
    }

    pub(crate) async fn jobs(&self) -> Answer<dolmen_api::Jobs> {
        self.end_all_that_is_over().await;
        let jobs = self.jobs.list(self.seams.clock.now());
        Ok(dolmen_api::Jobs { schema: SCHEMA, jobs, now_s: seconds_now() })
    }

    pub(crate) async fn job(&self, id: u64) -> Answer<JobDocument> {
        self.end_all_that_is_over().await;
        let entry = self.pool_jobs.find_job(&id.to_string())?;
        Ok(JobDocument { schema: SCHEMA, job: entry.view(self.seams.clock.now()), now_s: seconds_now() })
    }

    /// A job that has not ended, to be changed.
    async fn job_to_change(&self, id: &str) -> Answer<Rc<Entry>> {
        self.pools.check_running()?;
        self.end_all_that_is_over().await;
        let entry = self.pool_jobs.find_job(id)?;
        let how = match entry.state() {
            JobState::Waiting | JobState::Running | JobState::Paused => return Ok(entry),
            JobState::Done => "it is done",
            JobState::CalledOff => "it was called off",
            JobState::Failed => "it failed",
        };
        let message = format!("job {id} has ended already: {how}; nothing was changed");
        let hint = format!("`dolmen jobs {id}` shows what came of it");
        Err(ErrorBody::new(ErrorCode::BadRequest, message).on(id).hint(hint))
    }

    /// Has a job stand until it is resumed, also over restarts.
    pub(crate) async fn pause_job(&self, id: String, request: Simple) -> Answer<Change> {
        let entry = self.job_to_change(&id).await?;
        let what = entry.what();
        if entry.is_paused() {
            return Ok(self.pool_jobs.unchanged(&entry, format!("{what} is paused already")));
        }
        if entry.is_to_stop() {
            return Err(ending(&entry));
        }
        let steps = vec![format!("let {what} end what is under way, and hold it; others of its pool go on")];
        let plan = self.pool_jobs.plan_of(&entry, Undo::By(format!("dolmen job resume {id}")), steps);
        if request.dry_run {
            return Ok(planned(plan, format!("{what} would be paused")));
        }
        entry.pause();
        let recorded = self.jobs.record().await;
        let limit = self.seams.clock.now() + TIMEOUT;
        let _ = within(self.seams.clock.as_ref(), limit, entry.rests()).await;
        if recorded.is_ok() {
            // Where a scrub stands now.
            self.jobs.keep().await;
        }
        let message = match entry.state() {
            JobState::Paused => format!("{what} is paused"),
            JobState::Waiting | JobState::Running => {
                format!("{what} pauses as soon as the rows that are under way are done")
            }
            JobState::Done | JobState::CalledOff | JobState::Failed => {
                return Ok(self
                    .pool_jobs
                    .unchanged(&entry, format!("{what} ended before it could be paused")));
            }
        };
        let mut change = self.pool_jobs.stated(&entry, plan, message);
        change.warnings.extend(
            recorded
                .err()
                .map(|error| format!("that is not on record, and the next daemon goes on with it: {error}")),
        );
        Ok(change)
    }

    /// Lets a job that was paused go on.
    pub(crate) async fn resume_job(&self, id: String, request: Simple) -> Answer<Change> {
        let entry = self.job_to_change(&id).await?;
        let what = entry.what();
        if !entry.is_paused() {
            return Ok(self.pool_jobs.unchanged(&entry, format!("{what} is not paused")));
        }
        let steps = vec![format!("go on with {what} when the slot is free")];
        let plan = self.pool_jobs.plan_of(&entry, Undo::By(format!("dolmen job pause {id}")), steps);
        if request.dry_run {
            return Ok(planned(plan, format!("{what} would go on")));
        }
        entry.resume();
        let recorded = self.jobs.record().await;
        let mut message = format!("{what} goes on");
        match self.pools.open_pool_of(entry.pool) {
            // The pool may have gone on with it by itself meanwhile, or somebody have stopped it.
            Some(pool) if self.jobs.is_left(&entry) => self.take_up(&pool, &entry).await,
            Some(_) => {}
            None => message.push_str(&format!(" when pool {} is open", entry.pool_name)),
        }
        let entry = self.pool_jobs.find_job(&id)?;
        let mut change = self.pool_jobs.stated(&entry, plan, message);
        change.warnings.extend(
            recorded
                .err()
                .map(|error| format!("that is not on record, and the next daemon finds it paused: {error}")),
        );
        Ok(change)
    }

    /// Sets how a job shares the disks of its pool with clients, also over restarts.
    pub(crate) async fn set_job(&self, id: String, request: SetJob) -> Answer<Change> {
        let entry = self.job_to_change(&id).await?;
        let (what, before) = (entry.what(), entry.job_share());
        let after = job_share::asked_for(&request, before).map_err(|error| error.on(id.as_str()))?;
        let words = job_share::words_of(after);
        if after == before {
            return Ok(self.pool_jobs.unchanged(&entry, format!("{what} has {words} already")));
        }
        let steps = vec![format!("give {what} {words}, instead of {}", job_share::words_of(before))];
        let plan = self.pool_jobs.plan_of(&entry, Undo::By(job_share::command_for(entry.id, before)), steps);
        if request.dry_run {
            return Ok(planned(plan, format!("{what} would have {words}")));
        }
        let pool = self.pools.open_pool_of(entry.pool);
        entry.set_job_share(pool.as_deref().map(|pool| pool.job_slot.as_ref()), after);
        let recorded = self.jobs.record().await;
        let mut change = self.pool_jobs.stated(&entry, plan, format!("{what} has {words}"));
        change.warnings.extend(
            recorded
                .err()
                .map(|error| format!("that is not on record, and the next daemon forgets it: {error}")),
        );
        Ok(change)
    }

    /// Ends a job before it is done, as far as its kind can be.
    pub(crate) async fn stop_job(&self, id: String, request: Simple) -> Answer<Change> {
        if let Ok(entry) = self.pool_jobs.find_job(&id)
            && (entry.state() == JobState::CalledOff || (!entry.has_ended() && entry.is_to_stop()))
        {
            let is = if entry.has_ended() { "is" } else { "is being" };
            return Ok(self.pool_jobs.unchanged(&entry, format!("{} {is} called off already", entry.what())));
        }
        let entry = self.job_to_change(&id).await?;
        match self.job_workers.of(entry.kind) {
            Some(worker) => worker.stop(&entry, request).await,
            None => Err(ending(&entry)),
        }
    }

    /// Calls a rebalance off: what was moved stays where it is.
    pub(crate) async fn cancel_rebalance(&self, name: String, request: Simple) -> Answer<Change> {
        let pool = self.pools.pool_to_change(&name)?;
        let unfinished = self.jobs.unfinished_of(pool.id());
        let Some(entry) = unfinished.iter().find(|entry| entry.is(&RebalanceJob)) else {
            let message = format!("pool {name} is not being evened out; nothing was changed");
            return Err(ErrorBody::new(ErrorCode::BadRequest, message)
                .on(name.as_str())
                .hint("`dolmen jobs` shows what goes on, and what has ended"));
        };
        self.stop_job(entry.id.to_string(), request).await
    }
}
