//! What a pool needs that nobody asks for: slabs are brought up to date and replacements gone on with whenever they can be,
//! and not only in the moment in which a disk comes back.
//!
//! A row that is claimed, or whose tables are written, in that very moment is seen by the next look; so is one that had to
//! wait for room below, or a replacement that waited for a space that is deleted by now.

use std::collections::BTreeMap;
use std::rc::{Rc, Weak};
use std::time::Duration;

use dolmen_api::JobState;
use dolmen_block_io::{Clock, Instant, Seams, sleep};
use dolmen_pool::{Disk, PoolState};

use crate::api::JobControl;
use crate::base::Base;
use crate::disks::{DrainJob, Drains, Rebuilds, ReplaceJob, Replacements, tend_slow_disks};
use crate::job_table::JobServices;
use crate::jobs::{Aim, Entry, Jobs, Kind, Rank};
use crate::open_pool::OpenPool;
use crate::open_pools::OpenPools;
use crate::pools::resync::{ResyncJob, Resyncs};
use crate::pools::widening::Widths;
use crate::records::Records;
use crate::spaces::{Conversions, ConvertJob, Deletions, Purges, Scrubs};

/// How often a pool is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// How seldom it is tried, at the least, what has been tried in vain. Each try that leaves something doubles its pause,
/// until a disk comes or goes.
const TRY_AT_LEAST_EVERY: Duration = Duration::from_secs(3600);

/// How soon it is tried again what was tried in vain.
struct Pause {
    length: Duration,
    until: Instant,
}

impl Pause {
    const fn none() -> Self {
        Self { length: LOOK_EVERY, until: Instant(0) }
    }

    fn is_over(&self, now: Instant) -> bool {
        now >= self.until
    }

    /// It is tried now; should something be left, the next try is later.
    fn grow(&mut self, now: Instant) {
        self.length = (self.length * 2).min(TRY_AT_LEAST_EVERY);
        self.until = now + self.length;
    }
}

/// The pauses of a pool, each of its own: what waits for a disk delays nothing else.
struct Pauses {
    /// Of resyncs and replacements.
    repair: Pause,
    removal: Pause,
    conversion: Pause,
}

impl Pauses {
    const fn none() -> Self {
        Self { repair: Pause::none(), removal: Pause::none(), conversion: Pause::none() }
    }
}

/// What a pool needs.
struct Needs {
    /// Something here lacks what it missed.
    is_stale: bool,
    /// A disk is to take the place of another.
    is_replacing: bool,
    /// A disk is to hold nothing.
    is_draining: bool,
}

/// Looks after a pool for as long as it is open.
async fn watch(tending: Weak<Tending>, pool: Weak<OpenPool>, clock: Rc<dyn Clock>) {
    let mut pauses = Pauses::none();
    let mut attached = BTreeMap::new();
    loop {
        sleep(clock.as_ref(), LOOK_EVERY).await;
        let (Some(tending), Some(pool)) = (tending.upgrade(), pool.upgrade()) else { return };
        if pool.is_closing.get() {
            return;
        }
        tending.rebuilds.look_for_absent(&pool).await;
        tend_slow_disks(&pool, clock.now());
        tending.records.keep_history(&pool).await;
        tending.deletions.tend_trash(&pool).await;
        let attachments = pool.spaces.pool().members().attachments();
        if attachments != attached {
            (attached, pauses) = (attachments, Pauses::none());
            pool.absences.retry();
            pool.emptyings.retry();
        }
        tending.tend(&pool, &mut pauses).await;
    }
}

/// Work that a pool needs without a request.
pub(crate) struct Tending {
    records: Rc<Records>,
    deletions: Rc<Deletions>,
    pools: Rc<OpenPools>,
    purges: Rc<Purges>,
    scrubs: Rc<Scrubs>,
    conversions: Rc<Conversions>,
    widths: Rc<Widths>,
    resyncs: Rc<Resyncs>,
    replacements: Rc<Replacements>,
    drains: Rc<Drains>,
    rebuilds: Rc<Rebuilds>,
    job_control: Rc<JobControl>,
    seams: Seams,
    jobs: Rc<Jobs>,
}

impl Tending {
    pub(crate) fn new(
        base: &Base,
        services: &JobServices,
        deletions: &Rc<Deletions>,
        widths: &Rc<Widths>,
        job_control: &Rc<JobControl>,
    ) -> Self {
        Self {
            records: Rc::clone(&base.records),
            deletions: Rc::clone(deletions),
            pools: Rc::clone(&base.pools),
            purges: Rc::clone(&services.purges),
            scrubs: Rc::clone(&services.scrubs),
            conversions: Rc::clone(&services.conversions),
            widths: Rc::clone(widths),
            resyncs: Rc::clone(&services.resyncs),
            replacements: Rc::clone(&services.replacements),
            drains: Rc::clone(&services.drains),
            rebuilds: Rc::clone(&services.rebuilds),
            job_control: Rc::clone(job_control),
            seams: base.seams.clone(),
            jobs: Rc::clone(&base.jobs),
        }
    }
}

impl Tending {
    /// Looks after a pool for as long as it is open.
    pub(crate) fn begin_to_watch(self: &Rc<Self>, pool: &Rc<OpenPool>) {
        let watching = watch(Rc::downgrade(self), Rc::downgrade(pool), Rc::clone(&self.seams.clock));
        self.seams.spawner.spawn("watch", Box::pin(watching));
    }

    /// Verifies everything of a pool whose labels were damaged.
    pub(crate) async fn verify_after_loss(&self, pool: &Rc<OpenPool>) {
        self.scrubs.verify_all(pool).await;
    }

    /// Begins what a pool needs most and is not at yet, if it takes writes.
    async fn tend(&self, pool: &Rc<OpenPool>, pauses: &mut Pauses) {
        let is_at_it = || {
            let jobs = self.jobs.at_work(pool.id());
            jobs.iter().any(|entry| entry.kind.rank() == Some(Rank::Urgent))
        };
        if is_at_it() {
            return;
        }
        // A disk that is just being taken back in has its own resync when that is done.
        let _exclusive = pool.mutex.take().await;
        if is_at_it() || pool.spaces.pool().state() != PoolState::Writable {
            return;
        }
        let needs = self.needs_of(pool).await;
        if is_at_it() || pool.is_closing.get() || self.pools.is_stopping.get() {
            return;
        }
        let put_off = self.conversions.conversion_put_off(pool);
        let is_converting = put_off.is_some() || self.jobs.is_at_work(pool.id(), &ConvertJob);
        for (is_left, pause) in [
            (needs.is_stale || needs.is_replacing, &mut pauses.repair),
            (needs.is_draining, &mut pauses.removal),
            (is_converting, &mut pauses.conversion),
        ] {
            if !is_left {
                *pause = Pause::none();
            }
        }
        let (now, overdue) = (self.seams.clock.now(), self.rebuilds.overdue(pool));
        if (needs.is_stale || needs.is_replacing) && pauses.repair.is_over(now) {
            pauses.repair.grow(now);
            if !self.replacements.go_on_replacing(pool).await && needs.is_stale {
                self.resyncs.start_resync(pool).await;
            }
        } else if !overdue.is_empty() {
            // A removal that waits, for a disk that is away perhaps, keeps no other from being done without.
            self.rebuilds.exclude_one(pool, &overdue).await;
        } else if needs.is_draining && pauses.removal.is_over(now) {
            pauses.removal.grow(now);
            self.drains.go_on_draining(pool).await;
        } else if !self.rebuilds.empty_if_failing(pool).await
            && let Some(entry) = put_off.filter(|entry| self.jobs.is_left(entry) && !entry.is_paused())
            && pauses.conversion.is_over(now)
        {
            pauses.conversion.grow(now);
            self.conversions.go_on_converting(pool, &entry).await;
        }
    }

    /// What a pool needs that nobody is at, or has paused.
    async fn needs_of(&self, pool: &OpenPool) -> Needs {
        // What is paused stands for what the pool would begin by itself.
        let is_free = |kind: &dyn Kind, aim| !self.jobs.is_taken(pool.id(), kind, aim);
        // What a rebalance is filling, or the emptying of a disk, lacks everything meanwhile, and is no matter of anybody else.
        let jobs = self.jobs.at_work(pool.id());
        let is_running = |entry: &Entry| entry.state() == JobState::Running;
        let is_moving = jobs.iter().any(|entry| entry.kind.fills_slabs() && is_running(entry));
        let is_stale = !is_moving
            && is_free(&ResyncJob, None)
            && pool.spaces.members().is_stale().await.unwrap_or_default();
        let is_for = |disk: &Disk| Some(Aim::Disk(disk.id()));
        let begun = pool.spaces.pool().members().replacements();
        let is_replacing = begun.iter().any(|(_, new)| is_free(&ReplaceJob, is_for(new)));
        let mut emptied = pool.spaces.moves().drains();
        emptied.extend(pool.spaces.moves().to_empty());
        let is_draining = emptied.iter().any(|disk| is_free(&DrainJob, is_for(disk)));
        Needs { is_stale, is_replacing, is_draining }
    }

    /// Goes on with what a pool has to do, and with what people had asked for, when it was opened.
    pub(crate) async fn go_on_with_jobs(&self, pool: &Rc<OpenPool>) {
        self.job_control.end_what_is_over(pool).await;
        // A replacement brings up to date what it meets, which is everything that is here.
        if !self.replacements.go_on_replacing(pool).await {
            self.resyncs.resync_if_needed(pool).await;
        }
        self.drains.go_on_draining(pool).await;
        self.purges.purge_if_needed(pool).await;
        self.job_control.go_on_with_asked(pool).await;
        if pool.spaces.moves().drains().is_empty() {
            self.widths.finish_widths(pool).await;
        }
    }
}
