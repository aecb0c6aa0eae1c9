//! Write caches of pools: shown, given another size, and emptied sooner or later, faster or slower.

use std::rc::Rc;

use dolmen_api::{Change, DrainWriteCache, ErrorBody, ErrorCode, ResizeWriteCache, Simple};
use dolmen_pool::LocalFuture;
use dolmen_space::{SpaceError, WriteCache, WriteCacheDrain, WriteCacheResize};
use dolmen_units::Bytes;

use crate::answer::Answer;
use crate::base::Base;
use crate::fault;
use crate::job::{Ending, Job, JobWorker};
use crate::jobs::{Aim, Entry, Kind, Outcome, Rank, Start};
use crate::open_pool::OpenPool;
use crate::open_pools::OpenPools;
use crate::plan::{Figures, Undo, made, planned, usual_room};
use crate::pool_jobs::PoolJobs;

/// What people call it.
fn name_of(pool: &str, redundancy: u8) -> String {
    let of = match redundancy {
        0 => "survive the loss of no disk".to_owned(),
        1 => "survive the loss of a disk".to_owned(),
        count => format!("survive the loss of {count} disks"),
    };
    format!("the write cache of pool {pool} for spaces that {of}")
}

/// What tells caches apart, in a row.
fn joined(caches: &[WriteCache]) -> String {
    let mut all: Vec<String> = caches.iter().map(|cache| cache.redundancy.to_string()).collect();
    all.sort_unstable();
    all.join(", ")
}

/// The cache that is meant.
fn which<'a>(pool: &str, caches: &'a [WriteCache], survives: Option<u8>) -> Answer<&'a WriteCache> {
    let refused = |message: String, hint: String| {
        Err(ErrorBody::new(ErrorCode::BadRequest, format!("{message}; nothing was changed"))
            .on(pool)
            .hint(hint))
    };
    match (caches, survives) {
        ([], _) => refused(
            format!("pool {pool} has no write cache"),
            "it is made with the first space that has parity or is strict".to_owned(),
        ),
        ([one], None) => Ok(one),
        (_, None) => refused(
            format!("pool {pool} has several write caches"),
            format!("say which with --survives and one of {}", joined(caches)),
        ),
        (_, Some(survives)) => match caches.iter().find(|cache| cache.redundancy == survives) {
            Some(cache) => Ok(cache),
            None => refused(
                format!("there is no such thing as {}", name_of(pool, survives)),
                "`dolmen pool show` shows those that it has".to_owned(),
            ),
        },
    }
}

/// From how much on it is emptied, and how fast, in words.
fn words_of(drain: WriteCacheDrain) -> String {
    let rate = match drain.rate {
        Some(rate) => format!("with {rate} a second at most"),
        None => "as fast as the disks take it".to_owned(),
    };
    format!("from {} % on, {rate}", drain.fill)
}

/// What is done, in words.
fn step_of(name: &str, change: &WriteCacheResize, waiting: Bytes) -> Vec<String> {
    let WriteCacheResize { before, after, .. } = *change;
    if after > before {
        return vec![format!(
            "claim {} on disks, and make {name} larger, from {before} to {after}",
            change.claimed()
        )];
    }
    vec![
        format!("put in place what lies in the part of {name} that goes, {waiting} at most"),
        format!("make it smaller, from {before} to {after}, and give {} on disks back", change.released()),
    ]
}

/// Gives a write cache another size.
pub(crate) struct WriteCacheJob;

impl Kind for WriteCacheJob {
    fn word(&self) -> &'static str {
        "write_cache"
    }

    fn doing(&self) -> &'static str {
        "changing the size of"
    }

    fn rank(&self) -> Option<Rank> {
        Some(Rank::Asked)
    }

    fn verb(&self) -> &'static str {
        "resize"
    }

    /// Rows that are to leave a write cache are not filled while its job is held, so it keeps the slot.
    fn yields(&self) -> bool {
        false
    }

    fn is_about(&self, aim: Aim) -> bool {
        matches!(aim, Aim::WriteCache { .. })
    }
}

impl Job for WriteCacheJob {}

impl JobWorker for WriteCaches {
    fn resume<'a>(self: Rc<Self>, pool: &'a Rc<OpenPool>, entry: &'a Rc<Entry>) -> LocalFuture<'a, ()> {
        Box::pin(async move {
            if let Aim::WriteCache { survives, size } = entry.aim {
                self.start_resizing(pool, (survives, size), Some(Rc::clone(entry))).await;
            }
        })
    }

    fn ending(&self, _entry: &Entry) -> Ending {
        Ending { step: "the write cache keeps the size that it has", undo: Undo::NotNeeded }
    }

    fn stop<'a>(self: Rc<Self>, entry: &'a Rc<Entry>, request: Simple) -> LocalFuture<'a, Answer<Change>> {
        Box::pin(async move { self.pool_jobs.stop_asked(self.as_ref(), entry, request).await })
    }
}

/// Write caches of pools.
pub(crate) struct WriteCaches {
    pools: Rc<OpenPools>,
    pool_jobs: Rc<PoolJobs>,
}

impl WriteCaches {
    pub(crate) fn new(base: &Base) -> Self {
        Self { pools: Rc::clone(&base.pools), pool_jobs: Rc::clone(&base.pool_jobs) }
    }
}

impl WriteCaches {
    pub(crate) async fn drain_write_cache(&self, pool: String, request: DrainWriteCache) -> Answer<Change> {
        let pool = self.pools.pool_to_change(&pool)?;
        let _exclusive = self.pools.lock_for_change(&pool).await?;
        pool.spaces.pool().log().check_writable().map_err(|error| fault::pool(&error))?;
        let caches = pool.spaces.caches().write_caches().await.map_err(|error| fault::space(&error))?;
        let cache = which(&pool.name(), &caches, request.survives)?;
        let (redundancy, name) = (cache.redundancy, name_of(&pool.name(), cache.redundancy));
        let before = cache.drain;
        let rate = request.bytes_per_s_max.map(|rate| Some(Bytes(rate)).filter(|rate| rate.0 > 0));
        let after = WriteCacheDrain {
            fill: request.fill_percent.unwrap_or(before.fill),
            rate: rate.unwrap_or(before.rate),
        };
        let refused = |error| fault::space(&error).on(pool.name());
        pool.spaces.caches().plan_write_cache_drain(redundancy, after).map_err(refused)?;
        if after == before {
            let plan = pool.plan(Undo::NotNeeded, Vec::new());
            return Ok(planned(plan, format!("{name} is emptied {} already", words_of(after))));
        }
        let of = if caches.len() > 1 { format!(" --survives {redundancy}") } else { String::new() };
        let rate = before.rate.map_or_else(|| "max".to_owned(), |rate| rate.0.to_string());
        let undo = Undo::By(format!(
            "dolmen pool set {} --write-cache-fill {} --write-cache-drain {rate}{of}",
            pool.name(),
            before.fill
        ));
        let (before, after_words) = (words_of(before), words_of(after));
        let plan = pool.plan(undo, vec![format!("empty {name} {after_words}, instead of {before}")]);
        if request.dry_run {
            return Ok(planned(plan, format!("{name} would be emptied {after_words}")));
        }
        pool.spaces.caches().set_write_cache_drain(redundancy, after).await.map_err(refused)?;
        Ok(made(plan, format!("{name} is emptied {after_words}")))
    }

    pub(crate) async fn resize_write_cache(&self, pool: String, request: ResizeWriteCache) -> Answer<Change> {
        let pool = self.pools.pool_to_change(&pool)?;
        let _exclusive = self.pools.lock_for_change(&pool).await?;
        self.pool_jobs.check_job_room(&pool)?;
        pool.spaces.pool().log().check_writable().map_err(|error| fault::pool(&error))?;
        let caches = pool.spaces.caches().write_caches().await.map_err(|error| fault::space(&error))?;
        let cache = which(&pool.name(), &caches, request.survives)?;
        let (redundancy, name) = (cache.redundancy, name_of(&pool.name(), cache.redundancy));
        let size = Bytes(request.size_bytes);
        let change = pool
            .spaces
            .caches()
            .plan_write_cache(redundancy, size)
            .map_err(|error| fault::space(&error).on(pool.name()))?;
        let WriteCacheResize { before, after, .. } = change;
        if after == before {
            return Ok(planned(
                pool.plan(Undo::NotNeeded, Vec::new()),
                format!("{name} has {after} already"),
            ));
        }
        let of = if caches.len() > 1 { format!(" --survives {redundancy}") } else { String::new() };
        let undo = Undo::By(format!("dolmen pool set {} --write-cache {}{of}", pool.name(), before.0));
        let free = (pool.free() + change.released().0).saturating_sub(change.claimed().0);
        let moved = if after < before { cache.waiting } else { Bytes::ZERO };
        let room =
            Figures { before: usual_room(&pool.offers()), after: pool.room_with_free(free), moved: moved.0 };
        let plan = room.plan(undo, step_of(&name, &change, moved));
        if request.dry_run {
            return Ok(planned(plan, format!("{name} would have {after} instead of {before}")));
        }
        let job = self.start_resizing(&pool, (redundancy, size), None).await;
        let larger = if after > before { "larger" } else { "smaller" };
        let mut change = made(plan, format!("{name} is being made {larger}, to {after}, job {}", job.id));
        change.job = Some(job);
        Ok(change)
    }

    /// The job that gives a write cache another size, or goes on with that.
    pub(crate) async fn start_resizing(
        &self,
        pool: &Rc<OpenPool>,
        (survives, size): (u8, Bytes),
        again: Option<Rc<Entry>>,
    ) -> dolmen_api::Job {
        let (spaces, name) = (Rc::clone(&pool.spaces), name_of(&pool.name(), survives));
        let aim = Aim::WriteCache { survives, size };
        let start = Start { kind: &WriteCacheJob, subject: name.clone(), aim, again };
        self.pool_jobs
            .start_job(pool, start, move |course| async move {
                match spaces.caches().resize_write_cache(survives, size, &course.progress).await {
                    Ok(changed) => Ok(Outcome::Done(format!("{name} has {} now", changed.after))),
                    Err(SpaceError::CalledOff { .. }) => {
                        Ok(Outcome::CalledOff(format!("{name} keeps the size that it had")))
                    }
                    Err(error) => Err(fault::space(&error)),
                }
            })
            .await
    }
}
