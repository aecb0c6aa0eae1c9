//! The jobs of this host: long work that goes on behind the answer to its request, under a number that is its own for ever
//! (docs/design/0011).
//!
//! Invariant: nothing is told of a job before its number is on record, or the log says that it cannot be.
//!
//! Left to others: one job (`entry`), the files (`record`), how fast a job is (`course`), what people and restarts do with jobs
//! (`job_control`), the work itself.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::Future;
use std::io;
use std::rc::Rc;
use std::time::Duration;

use dolmen_api::{ErrorBody, ErrorCode, Job, JobState};
use dolmen_block_io::sync::{Either, either};
use dolmen_block_io::{Clock, Instant, Seams, sleep};
use dolmen_units::PoolId;

use crate::answer::Answer;
use crate::jobs::aim::Aim;
use crate::jobs::course::Course;
use crate::jobs::entry::{Entry, JobView, Outcome, Start};
use crate::jobs::kind::{Kind, Rank};
use crate::jobs::limits::{ENDED_MAX, RUNNING_MAX, UNFINISHED_MAX};
use crate::jobs::record::{JobFiles, Recorded, RecordedJob};
use crate::jobs::slot::JobSlot;

/// The pool of a job: what tells it from others, and its slot.
pub(crate) struct JobPool {
    pub(crate) id: PoolId,
    pub(crate) name: String,
    pub(crate) slot: Rc<JobSlot>,
}

/// The jobs.
pub(crate) struct Jobs {
    files: JobFiles,
    pub(super) entries: RefCell<BTreeMap<u64, Rc<Entry>>>,
    /// The last number that was given.
    last: Cell<u64>,
    /// The last one that is on record.
    last_on_record: Cell<u64>,
    /// What is on record.
    written: RefCell<Vec<u8>>,
    /// Whether something has changed that is to go on record.
    is_changed: Cell<bool>,
    /// Whether writing failed the last time, so that it is told once.
    is_failing: Cell<bool>,
}

impl Jobs {
    pub(crate) fn new(files: JobFiles) -> Self {
        Self {
            files,
            entries: RefCell::default(),
            last: Cell::default(),
            last_on_record: Cell::default(),
            written: RefCell::default(),
            is_changed: Cell::default(),
            is_failing: Cell::default(),
        }
    }

    /// Takes over what is on record, before any job begins.
    pub(crate) async fn recall(&self) {
        let found = match self.files.read().await {
            Ok(found) => found,
            Err(error) => {
                tracing::error!(%error, "the record of jobs cannot be read; numbers may be given twice");
                return;
            }
        };
        self.last.set(found.last);
        let recalled = |job: RecordedJob| Entry::recalled(self.files.kind_of(&job.kind)?, job);
        let entries = found.jobs.into_iter().filter_map(recalled);
        *self.entries.borrow_mut() = entries.map(|entry| (entry.id, Rc::new(entry))).collect();
        self.keep().await;
    }

    /// Looks at jobs that run, and puts on record what has changed.
    pub(crate) async fn tick(&self, now: Instant) {
        for entry in self.all().iter().filter(|entry| entry.state() == JobState::Running) {
            entry.sample(now);
        }
        let mut is_changed = self.is_changed.get();
        for entry in self.all() {
            is_changed |= entry.has_new_checkpoint();
        }
        if is_changed {
            self.keep().await;
        }
    }

    pub(super) fn all(&self) -> Vec<Rc<Entry>> {
        self.entries.borrow().values().cloned().collect()
    }

    /// A job that people know of.
    pub(crate) fn find(&self, id: u64) -> Option<Rc<Entry>> {
        self.entries.borrow().get(&id).filter(|entry| entry.is_on_record.get()).cloned()
    }

    /// All that people know of.
    pub(crate) fn list(&self, now: Instant) -> Vec<Job> {
        let all = self.all();
        all.iter().filter(|entry| entry.is_on_record.get()).map(|entry| entry.view(now)).collect()
    }

    /// The same, as they are.
    pub(crate) fn on_record(&self) -> Vec<Rc<Entry>> {
        let mut all = self.all();
        all.retain(|entry| entry.is_on_record.get());
        all
    }

    /// Jobs that have not ended.
    pub(crate) fn unfinished(&self) -> Vec<Rc<Entry>> {
        let mut all = self.all();
        all.retain(|entry| !entry.has_ended());
        all
    }

    /// Jobs of a pool that have not ended.
    pub(crate) fn unfinished_of(&self, pool: PoolId) -> Vec<Rc<Entry>> {
        let mut unfinished = self.unfinished();
        unfinished.retain(|entry| entry.pool == pool);
        unfinished
    }

    /// Jobs of a pool that run or wait for their turn. One that is put off, or paused and stands, is at work on nothing.
    pub(crate) fn at_work(&self, pool: PoolId) -> Vec<Rc<Entry>> {
        let mut at_work = self.unfinished_of(pool);
        at_work.retain(|entry| entry.is_at_work());
        at_work
    }

    /// The same, as documents show them.
    pub(crate) fn of_pool(&self, pool: PoolId, now: Instant) -> Vec<JobView> {
        self.at_work(pool).iter().map(|entry| entry.shown(now)).collect()
    }

    /// Whether a job of this kind is at work, waits for the slot, or is paused. With a disk, one for that disk.
    pub(crate) fn is_taken(&self, pool: PoolId, kind: &dyn Kind, aim: Option<Aim>) -> bool {
        let is_meant =
            |entry: &Rc<Entry>| entry.is(kind) && entry.is_taken() && aim.is_none_or(|aim| aim == entry.aim);
        self.unfinished_of(pool).iter().any(is_meant)
    }

    /// Whether a job of this kind is at work, or waits for the slot.
    pub(crate) fn is_at_work(&self, pool: PoolId, kind: &dyn Kind) -> bool {
        self.unfinished_of(pool).iter().any(|entry| entry.is(kind) && entry.is_at_work())
    }

    /// Whether a job has not ended, nobody works on it, and no other goes on under its number.
    pub(crate) fn is_left(&self, entry: &Rc<Entry>) -> bool {
        let is_itself = self.entries.borrow().get(&entry.id).is_some_and(|now| Rc::ptr_eq(now, entry));
        is_itself && !entry.has_ended() && !entry.is_in_hand()
    }

    /// Has jobs end that are for what is called off.
    pub(crate) fn stop(&self, pool: PoolId, kind: &dyn Kind, aim: Aim, why: &str) {
        let is_meant = |entry: &&Rc<Entry>| entry.is(kind) && entry.aim == aim;
        self.unfinished_of(pool).iter().filter(is_meant).for_each(|entry| entry.stop(why));
        self.is_changed.set(true);
    }

    /// Lets go of the jobs of a pool that is being closed: they end, and go on when it is opened again.
    pub(crate) fn let_go(&self, pool: PoolId) {
        for entry in self.unfinished_of(pool) {
            entry.is_let_go.set(true);
            entry.notify.notify_all();
            if !entry.is_in_hand.get() {
                entry.wait_for_pool();
            }
        }
    }

    /// Waits, up to a limit, until no job of a pool that was let go of is at work.
    pub(crate) async fn rest(&self, pool: PoolId, clock: &dyn Clock, limit: Duration) {
        let all_rest = async {
            for entry in self.unfinished_of(pool) {
                entry.is_done_with().await;
            }
        };
        if let Either::Second(()) = either(all_rest, sleep(clock, limit)).await {
            tracing::warn!(%pool, seconds = limit.as_secs(), "a job of a pool that closes is at work still; the next opening recovers it");
        }
    }

    /// Ends the jobs of a pool that is none of this host any more.
    pub(crate) async fn end_those_of(&self, pool: PoolId, why: &str) {
        self.unfinished_of(pool).iter().for_each(|entry| entry.end(JobState::CalledOff, why.to_owned()));
        self.keep().await;
    }

    /// A job that was put off, or went on when the daemon ended, and that a new one of this kind goes on with.
    fn left_over(&self, pool: PoolId, start: &Start) -> Option<Rc<Entry>> {
        let is_same = |entry: &Rc<Entry>| {
            start.kind.is_known_to_pool()
                && !entry.is_taken()
                && entry.is(start.kind)
                && entry.aim == start.aim
        };
        self.unfinished_of(pool).into_iter().find(is_same)
    }

    /// A new job, or one that goes on under its number.
    fn add(&self, pool: &JobPool, mut start: Start) -> Rc<Entry> {
        start.again = start.again.take().or_else(|| self.left_over(pool.id, &start));
        let id = start.again.as_ref().map_or(self.last.get() + 1, |entry| entry.id);
        self.last.set(self.last.get().max(id));
        let entry = Rc::new(Entry::new(id, (pool.id, pool.name.clone()), start));
        self.entries.borrow_mut().insert(id, Rc::clone(&entry));
        self.is_changed.set(true);
        entry
    }

    /// Forgets jobs that ended first. One that took long has a low number, and people look for it when it has ended.
    pub(super) fn forget_oldest(&self) {
        let mut entries = self.entries.borrow_mut();
        let ended = entries.values().filter(|entry| entry.has_ended());
        let mut ended: Vec<_> = ended.map(|entry| (entry.times.get().ended_s, entry.id)).collect();
        ended.sort_unstable();
        for (_, old) in ended.iter().take(ended.len().saturating_sub(ENDED_MAX)) {
            entries.remove(old);
        }
    }

    /// Puts numbers and jobs on record, if they have changed.
    ///
    /// # Errors
    /// What the file system says. It is tried again each second.
    pub(crate) async fn record(&self) -> io::Result<()> {
        self.forget_oldest();
        self.is_changed.set(false);
        let result = self.write().await;
        if result.is_err() {
            self.is_changed.set(true);
        }
        result
    }

    async fn write(&self) -> io::Result<()> {
        let last = self.last.get();
        if last > self.last_on_record.get() {
            self.files.write_number(last).await?;
            self.last_on_record.set(self.last_on_record.get().max(last));
        }
        let jobs = self.all().iter().map(|entry| entry.recorded()).collect();
        let recorded = Recorded::new(self.last.get(), jobs);
        let mut text = serde_json::to_vec(&recorded).map_err(io::Error::other)?;
        text.push(b'\n');
        if *self.written.borrow() == text {
            return Ok(());
        }
        self.files.write(text.clone()).await?;
        self.written.replace(text);
        Ok(())
    }

    /// The same for whoever can do nothing about it; a failure is logged once.
    pub(crate) async fn keep(&self) {
        let result = self.record().await;
        let was_failing = self.is_failing.replace(result.is_err());
        if let Err(error) = result
            && !was_failing
        {
            tracing::warn!(%error, "jobs are not on record; the next daemon will not know of them, and may give their numbers again");
        }
    }

    /// Begins a job, or goes on with one that was left over and is about the same. It waits until the pool's job before it has
    /// ended, or stands.
    pub(crate) async fn start<F>(
        self: &Rc<Self>,
        seams: &Seams,
        pool: JobPool,
        start: Start,
        work: impl FnOnce(Rc<Course>) -> F + 'static,
    ) -> Job
    where
        F: Future<Output = Answer<Outcome>> + 'static,
    {
        let entry = self.add(&pool, start);
        let (jobs, started) = (Rc::clone(self), Rc::clone(&entry));
        let (slot, clock) = (pool.slot, Rc::clone(&seams.clock));
        let coming = (entry.rank() == Some(Rank::Urgent)).then(|| slot.announce());
        let task = async move {
            // It asks for the slot before anybody else goes on.
            drop(coming);
            let outcome = started.work(&slot, clock.as_ref(), work).await;
            started.conclude(outcome, clock.now());
            drop(slot);
            jobs.keep().await;
        };
        seams.spawner.spawn("job", Box::pin(task));
        let view = entry.view(seams.clock.now());
        self.keep().await;
        entry.is_on_record.set(true);
        view
    }

    /// Refuses another job of a pool while too many have not ended.
    pub(crate) fn check_room(&self, pool: PoolId, name: &str) -> Answer<()> {
        let of_pool = self.unfinished_of(pool).len();
        let (whose, count) = match self.unfinished().len() {
            all if all >= UNFINISHED_MAX => ("all pools have".to_owned(), all),
            _ if of_pool >= RUNNING_MAX => (format!("pool {name} has"), of_pool),
            _ => return Ok(()),
        };
        let message = format!("{whose} {count} jobs that run, wait or are paused already; nothing was begun");
        Err(ErrorBody::new(ErrorCode::Busy, message)
            .on(name)
            .hint("wait until some have ended, or end one with `dolmen job stop`"))
    }
}
