//! What a pool needs that nobody asks for: slabs are brought up to date and replacements gone on with whenever they can be,
//! and not only in the moment in which a disk comes back.
//!
//! A row that is claimed, or whose tables are written, in that very moment is seen by the next look; so is one that had to
//! wait for room below, or a replacement that waited for a space that is deleted by now.

use std::collections::BTreeMap;
use std::rc::{Rc, Weak};
use std::time::Duration;

use dolmen_api::{Job, JobKind, JobState};
use dolmen_block_io::{Clock, sleep};
use dolmen_pool::{Disk, PoolState};

use crate::engine::{Engine, OpenPool};
use crate::job_record::Aim;

/// How often a pool is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// How seldom it is tried, at the least, what has been tried in vain. Each try that leaves something doubles the pause,
/// until a disk comes or goes.
const TRY_AT_LEAST_EVERY: Duration = Duration::from_secs(3600);

/// Looks after a pool for as long as it is open.
pub(crate) async fn watch(engine: Weak<Engine>, pool: Weak<OpenPool>, clock: Rc<dyn Clock>) {
    let mut pause = LOOK_EVERY;
    let mut next_try = clock.now();
    let mut seated = BTreeMap::new();
    loop {
        sleep(clock.as_ref(), LOOK_EVERY).await;
        let (Some(engine), Some(pool)) = (engine.upgrade(), pool.upgrade()) else { return };
        if pool.is_closing.get() {
            return;
        }
        engine.look_for_absent(&pool).await;
        pool.tend_paces(clock.now());
        engine.keep_history(&pool).await;
        engine.tend_trash(&pool).await;
        let seats = pool.spaces.pool().seats();
        if seats != seated {
            (seated, pause, next_try) = (seats, LOOK_EVERY, clock.now());
            pool.absences.try_anew();
            pool.emptyings.try_anew();
        }
        if clock.now() < next_try {
            continue;
        }
        match engine.tend(&pool).await {
            Tended::Nothing => pause = LOOK_EVERY,
            Tended::IsBusy => {}
            Tended::Began => {
                pause = (pause * 2).min(TRY_AT_LEAST_EVERY);
                next_try = clock.now() + pause;
            }
        }
    }
}

/// What a look at a pool has come to.
enum Tended {
    /// There is nothing to do.
    Nothing,
    /// A job is at it already, or the pool takes no writes.
    IsBusy,
    /// A job was begun.
    Began,
}

impl Engine {
    async fn tend(self: &Rc<Self>, pool: &Rc<OpenPool>) -> Tended {
        let is_at_it = || {
            let jobs = self.jobs.of_pool(pool.id(), self.seams.clock.now());
            jobs.iter().any(|job| matches!(job.kind, JobKind::Resync | JobKind::Replace | JobKind::Drain))
        };
        if is_at_it() {
            return Tended::IsBusy;
        }
        // A disk that is just being taken back in has its own resync when that is done.
        let _turn = pool.turn.take().await;
        if is_at_it() || pool.spaces.pool().state() != PoolState::Writable {
            return Tended::IsBusy;
        }
        // What is paused stands for what the pool would begin by itself.
        let is_free = |kind, aim| !self.jobs.is_taken(pool.id(), kind, aim);
        // What a rebalance is filling, or the emptying of a disk, lacks everything meanwhile, and is no matter of anybody else.
        let jobs = self.jobs.of_pool(pool.id(), self.seams.clock.now());
        let moves = |job: &Job| matches!(job.kind, JobKind::Rebalance | JobKind::Empty);
        let is_moving = jobs.iter().any(|job| moves(job) && job.state == JobState::Running);
        let is_behind =
            !is_moving && is_free(JobKind::Resync, None) && pool.spaces.is_behind().await.unwrap_or_default();
        let is_for = |disk: &Disk| Some(Aim::Disk(disk.id()));
        let begun = pool.spaces.pool().replacements();
        let is_replacing = begun.iter().any(|(_, new)| is_free(JobKind::Replace, is_for(new)));
        let mut emptied = pool.spaces.drains();
        emptied.extend(pool.spaces.to_empty());
        let is_draining = emptied.iter().any(|disk| is_free(JobKind::Drain, is_for(disk)));
        let overdue = self.overdue(pool);
        if !is_behind && !is_replacing && !is_draining && overdue.is_empty() {
            let goes_on = !pool.is_closing.get() && !self.is_stopping.get();
            if goes_on && self.empty_if_sick(pool).await {
                return Tended::Began;
            }
            return match self.conversion_put_off(pool).filter(|_| goes_on) {
                Some(entry) => {
                    self.go_on_converting(pool, &entry).await;
                    Tended::Began
                }
                None => Tended::Nothing,
            };
        }
        if is_at_it() || pool.is_closing.get() || self.is_stopping.get() {
            return Tended::IsBusy;
        }
        // A removal that waits, for a disk that is away perhaps, keeps no other from being done without.
        if !is_behind && !is_replacing && (!is_draining || !overdue.is_empty()) {
            self.give_up_one(pool, &overdue).await;
            return Tended::Nothing;
        }
        if !self.go_on_replacing(pool).await && is_behind {
            self.start_resync(pool).await;
        }
        self.go_on_draining(pool).await;
        Tended::Began
    }
}
