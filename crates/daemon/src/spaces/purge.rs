//! The room of spaces that were deleted for good is given back (docs/design/0018).

use std::rc::Rc;

use dolmen_api::{Change, JobState, Simple};
use dolmen_block_io::Seams;
use dolmen_pool::{LocalFuture, PoolState};
use dolmen_space::Space;

use crate::answer::Answer;
use crate::base::Base;
use crate::fault;
use crate::job::{Ending, Job, JobWorker, Standing};
use crate::jobs::{Aim, Entry, Jobs, Kind, Outcome, Rank, Start};
use crate::open_pool::OpenPool;
use crate::open_pools::OpenPools;
use crate::plan::Undo;
use crate::pool_jobs::PoolJobs;
use crate::spaces::changes::full_name;
use crate::words::counted;

/// Gives back the room of spaces that were deleted for good.
pub(crate) struct PurgeJob;

impl Kind for PurgeJob {
    fn word(&self) -> &'static str {
        "purge"
    }

    fn doing(&self) -> &'static str {
        "purging"
    }

    /// It takes no slot: a full pool does not wait to be given room.
    fn rank(&self) -> Option<Rank> {
        None
    }

    fn is_known_to_pool(&self) -> bool {
        true
    }

    fn is_about(&self, aim: Aim) -> bool {
        aim == Aim::Pool
    }
}

impl Job for PurgeJob {
    fn standing<'a>(&'a self, pool: &'a OpenPool, _entry: &'a Entry) -> LocalFuture<'a, Standing> {
        Box::pin(async {
            match pool.spaces.condemned().is_empty() {
                true => Standing::Ended(JobState::Done, "nothing is left to be purged"),
                false => Standing::GoesOn,
            }
        })
    }
}

impl JobWorker for Purges {
    fn resume<'a>(self: Rc<Self>, pool: &'a Rc<OpenPool>, _entry: &'a Rc<Entry>) -> LocalFuture<'a, ()> {
        Box::pin(async move {
            self.purge_if_needed(pool).await;
        })
    }

    fn ending(&self, entry: &Entry) -> Ending {
        let condemned = self.pools.open_pool_of(entry.pool).map(|pool| pool.spaces.condemned());
        let first = condemned.and_then(|condemned| condemned.first().map(|space| space.id().0));
        let undo = first.map_or(Undo::NotNeeded, |first| {
            Undo::By(to_go_on(&entry.pool_name, first).trim_matches('`').to_owned())
        });
        Ending { step: "what it has freed is free, and what is left cannot be restored", undo }
    }

    fn stop<'a>(self: Rc<Self>, entry: &'a Rc<Entry>, request: Simple) -> LocalFuture<'a, Answer<Change>> {
        Box::pin(async move { self.pool_jobs.stop_asked(self.as_ref(), entry, request).await })
    }
}

/// Purges of deleted spaces.
pub(crate) struct Purges {
    pools: Rc<OpenPools>,
    pool_jobs: Rc<PoolJobs>,
    seams: Seams,
    jobs: Rc<Jobs>,
}

impl Purges {
    pub(crate) fn new(base: &Base) -> Self {
        Self {
            pools: Rc::clone(&base.pools),
            pool_jobs: Rc::clone(&base.pool_jobs),
            seams: base.seams.clone(),
            jobs: Rc::clone(&base.jobs),
        }
    }
}

impl Purges {
    /// The job that gives back the room of all that is condemned; the one that is at it, or is paused, if there is one.
    pub(crate) async fn start_purge(&self, pool: &Rc<OpenPool>) -> dolmen_api::Job {
        let unfinished = self.jobs.unfinished_of(pool.id());
        let is_at_it =
            unfinished.iter().find(|entry| entry.is(&PurgeJob) && entry.is_taken() && !entry.is_to_stop());
        if let Some(entry) = is_at_it {
            return entry.view(self.seams.clock.now());
        }
        let owner = Rc::clone(pool);
        let subject = what_is_purged(pool, &pool.spaces.condemned());
        let start = Start { kind: &PurgeJob, subject, aim: Aim::Pool, again: None };
        self.pool_jobs.start_job(pool, start, move |course| async move {
            let done = owner.spaces.trash().purge(&course.progress).await.map_err(|error| fault::space(&error))?;
            let rows = counted(course.progress.done.get(), "row", "rows");
            if done {
                return Ok(Outcome::Done(format!("{rows} given back")));
            }
            let condemned = owner.spaces.condemned();
            let left = counted(condemned.len(), "space", "spaces");
            let first = condemned.first().map_or(0, |space| space.id().0);
            Ok(Outcome::CalledOff(format!(
                "{rows} given back; what is left of {left} takes room until {}, or until the pool is opened again",
                to_go_on(&owner.name(), first)
            )))
        })
        .await
    }

    /// Goes on with what was purged in part.
    pub(crate) async fn purge_if_needed(&self, pool: &Rc<OpenPool>) -> Option<dolmen_api::Job> {
        let is_writable = pool.spaces.pool().state() == PoolState::Writable;
        let is_left = is_writable && !pool.spaces.condemned().is_empty();
        if !is_left || self.jobs.is_taken(pool.id(), &PurgeJob, None) {
            return None;
        }
        Some(self.start_purge(pool).await)
    }
}

/// How a purge that was stopped goes on: any space that was purged in part names it.
pub(super) fn to_go_on(pool: &str, space: u64) -> String {
    format!("`dolmen trash purge {pool}/{space}`")
}

/// Spaces that are purged, in words: one by its name and its number, which tells it from others that had the name.
pub(super) fn what_is_purged(pool: &OpenPool, spaces: &[Space]) -> String {
    match spaces {
        [one] => format!("space {} (number {})", full_name(pool, one), one.id().0),
        several => format!("{} of pool {}", counted(several.len(), "space", "spaces"), pool.name()),
    }
}
