//! Jobs: long work that goes on behind the answer to its request, under a number that is its own for ever
//! (docs/design/0011).
//!
//! Invariants:
//! - Nobody is told of a job before its number is on record, or the log says that it cannot be.
//! - A job has the turn of its pool while it works, and the pool works with its effort. One that is held and stands has given
//!   it up; one is held while another of a higher rank waits. A purge works concurrently with them.
//!
//! Left to others: the files (`job_record`), how fast a job is (`job_rate`), what people and restarts do with jobs (`job_control`),
//! the work itself.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::Future;
use std::io;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use dolmen_api::{ErrorBody, ErrorCode, Job, JobKind, JobState};
use dolmen_block_io::sync::{Either, Notify, either};
use dolmen_block_io::{Clock, Instant};
use dolmen_space::JobShare;
use dolmen_units::PoolId;

use crate::caller::Answer;
use crate::engine::{Engine, OpenPool};
use crate::jobs::course::{Course, JobRate};
use crate::jobs::record::{Aim, JobFiles, Recorded, RecordedJob, kept, seconds_now};
use crate::jobs::share as job_share;
use crate::jobs::slot::{Rank, SlotGuard};
use crate::scrub::RecordedScrub;

/// Jobs that ended and are still remembered, at most.
pub(crate) const ENDED_MAX: usize = 64;
/// Jobs of a pool that have not ended, at most, of those that somebody asks for.
pub(crate) const RUNNING_MAX: usize = 64;
/// The same of all pools.
pub(crate) const UNFINISHED_MAX: usize = 256;

/// What a job has come to.
pub(crate) enum Outcome {
    /// It is done; what it did, in words.
    Done(String),
    /// It is wanted no more, and has ended; what that means, in words.
    CalledOff(String),
    /// It has done what can be done now. The job stays, and goes on when its work is begun again.
    Put {
        /// What it did, and what is left.
        off: String,
        /// What the rest waits for.
        waits_for: String,
    },
}

/// Whether a job in this state will do nothing any more.
pub(crate) fn has_ended(state: JobState) -> bool {
    match state {
        JobState::Waiting | JobState::Running | JobState::Paused => false,
        JobState::Done | JobState::CalledOff | JobState::Failed => true,
    }
}

/// A job that is to begin, or to go on.
pub(crate) struct Start {
    pub(crate) kind: JobKind,
    pub(crate) subject: String,
    pub(crate) aim: Aim,
    /// The job that goes on, where it is known; a replacement, a removal and a resync are found by what they are about.
    pub(crate) again: Option<Rc<Entry>>,
}

/// When a job was at work.
#[derive(Debug, Clone, Copy, Default)]
struct Times {
    /// Seconds since 1970.
    began_s: Option<u64>,
    ended_s: Option<u64>,
    /// How long it has worked, without what goes on since `since`.
    ran: Duration,
    since: Option<Instant>,
}

impl Times {
    fn elapsed(&self, now: Instant) -> Duration {
        self.ran + self.since.map_or(Duration::ZERO, |since| now.since(since))
    }

    fn rests(self, now: Instant) -> Self {
        Self { ran: self.elapsed(now), since: None, ..self }
    }
}

/// The turn of a pool. What the engine does for no job, such as restoring rows of write caches, shares the disks as it is used to
/// from the end of the turn on.
struct AtWork<'a> {
    pool: &'a OpenPool,
    /// None of a job that works concurrently with the others.
    slot: Option<SlotGuard<'a>>,
}

impl Drop for AtWork<'_> {
    fn drop(&mut self) {
        if self.slot.is_none() {
            return;
        }
        self.pool.spaces.set_job_share(JobShare::default());
    }
}

/// A job.
pub(crate) struct Entry {
    pub(crate) id: u64,
    pub(crate) pool: PoolId,
    pub(crate) pool_name: String,
    pub(crate) kind: JobKind,
    pub(crate) subject: String,
    pub(crate) aim: Aim,
    state: Cell<JobState>,
    /// Whether a person wants it to stand.
    is_paused: Cell<bool>,
    /// Whether somebody works on it, or waits to.
    is_in_hand: Cell<bool>,
    has_slot: Cell<bool>,
    /// Whether its pool is being closed: it ends, and goes on with whoever opens the pool next.
    is_let_go: Cell<bool>,
    /// Whether people are told of it.
    is_on_record: Cell<bool>,
    /// Set while it is put off, or its pool is not open; it waits then, and takes no turn.
    waits_for: RefCell<Option<String>>,
    course: Rc<Course>,
    /// Checkpoints of a scrub when it was looked at last.
    checkpoints: Cell<u64>,
    job_share: Cell<JobShare>,
    rate: Cell<JobRate>,
    times: Cell<Times>,
    result: RefCell<Option<String>>,
    notify: Notify,
}

impl Entry {
    fn new(id: u64, (pool, pool_name): (PoolId, String), start: Start) -> Self {
        let before = start.again.as_ref();
        let job_share = before.map_or_else(|| job_share::usual(start.kind), |before| before.job_share.get());
        let course =
            before.filter(|before| before.kind == JobKind::Scrub).map(|before| before.course.resumed());
        Self {
            id,
            pool,
            pool_name,
            kind: start.kind,
            subject: start.subject,
            aim: start.aim,
            state: Cell::new(JobState::Waiting),
            is_paused: Cell::new(false),
            is_in_hand: Cell::new(true),
            has_slot: Cell::new(false),
            is_let_go: Cell::new(false),
            is_on_record: Cell::new(before.is_some()),
            waits_for: RefCell::default(),
            course: Rc::new(course.unwrap_or_default()),
            checkpoints: Cell::default(),
            job_share: Cell::new(job_share),
            rate: Cell::default(),
            times: Cell::new(before.map(|before| before.times.get()).unwrap_or_default()),
            result: RefCell::default(),
            notify: Notify::new(),
        }
    }

    /// A job that is on record, and that nobody works on yet.
    fn recalled(job: RecordedJob) -> Option<Self> {
        let (pool, aim, job_share) = (job.pool()?, job.aim()?, job.job_share());
        let start = Start { kind: job.kind, subject: job.subject, aim, again: None };
        let mut entry = Self::new(job.id, (pool, job.pool_name), start);
        if let Some(scrub) = job.scrub {
            let (scrub, found) = scrub.resume();
            entry.course = Rc::new(Course::of_scrub(scrub, found));
        }
        entry.is_in_hand.set(false);
        entry.is_on_record.set(true);
        entry.is_paused.set(job.state == JobState::Paused);
        entry.state.set(job.state);
        entry.job_share.set(job_share);
        entry.result.replace(job.result);
        let ran = Duration::from_secs(job.ran_s);
        entry.times.set(Times { began_s: job.began_s, ended_s: job.ended_s, ran, since: None });
        let progress = &entry.course.progress;
        progress.total.set(job.rows_total);
        progress.done.set(job.rows_done);
        progress.bytes.set(job.done_bytes);
        entry.course.bytes_max.set(job.total_bytes);
        if !entry.has_ended() {
            entry.wait_for_pool();
        }
        Some(entry)
    }

    /// As it goes on record. How far it is stands there when it has ended, and of a scrub always.
    fn recorded(&self) -> RecordedJob {
        let times = self.times.get();
        let mut job = RecordedJob::new(self.id, (self.pool, &self.pool_name), self.kind, self.aim);
        job.subject = kept(&self.subject);
        job.set_job_share(self.job_share.get());
        (job.began_s, job.ended_s, job.ran_s) = (times.began_s, times.ended_s, times.ran.as_secs());
        let progress = &self.course.progress;
        if !self.has_ended() {
            job.state = if self.is_paused.get() { JobState::Paused } else { JobState::Waiting };
            if self.kind == JobKind::Scrub {
                job.scrub = Some(RecordedScrub::of(&self.course));
                (job.rows_total, job.rows_done) = (progress.total.get(), progress.done.get());
                (job.total_bytes, job.done_bytes) = (self.course.bytes_max.get(), progress.bytes.get());
            }
            return job;
        }
        job.state = self.state.get();
        job.result = self.result.borrow().as_deref().map(kept);
        (job.rows_total, job.rows_done) = (progress.total.get(), progress.done.get());
        (job.total_bytes, job.done_bytes) = (self.course.bytes_max.get(), progress.bytes.get());
        job
    }

    pub(crate) fn course(&self) -> &Course {
        &self.course
    }

    /// Whether a scrub has taken a checkpoint since the last call.
    fn has_new_checkpoint(&self) -> bool {
        let now = self.course.scrub.checkpoints();
        !self.has_ended() && self.checkpoints.replace(now) != now
    }

    /// What people call it.
    pub(crate) fn what(&self) -> String {
        format!("job {} ({} {})", self.id, self.kind.verb(), self.subject)
    }

    pub(crate) fn state(&self) -> JobState {
        self.state.get()
    }

    /// What came of it, or has until now.
    pub(crate) fn result(&self) -> Option<String> {
        self.result.borrow().clone()
    }

    pub(crate) fn has_ended(&self) -> bool {
        has_ended(self.state.get())
    }

    pub(crate) fn is_paused(&self) -> bool {
        self.is_paused.get()
    }

    /// Whether somebody works on it, or waits for a turn to.
    pub(crate) fn is_in_hand(&self) -> bool {
        self.is_in_hand.get()
    }

    pub(crate) fn is_to_stop(&self) -> bool {
        self.course.progress.is_to_stop()
    }

    pub(crate) fn job_share(&self) -> JobShare {
        self.job_share.get()
    }

    /// Has it share the disks of its pool in another way with clients, at once if it is at work.
    pub(crate) fn set_job_share(&self, pool: Option<&OpenPool>, job_share: JobShare) {
        self.job_share.set(job_share);
        if let Some(pool) = pool.filter(|_| self.has_slot.get() && self.rank().is_some()) {
            pool.spaces.set_job_share(job_share);
        }
    }

    fn rank(&self) -> Option<Rank> {
        Rank::of(self.kind)
    }

    /// Whether it has not ended, and is not to be begun by anybody else.
    pub(crate) fn is_taken(&self) -> bool {
        !self.has_ended() && (self.is_in_hand.get() || self.is_paused.get())
    }

    /// Whether it writes to its pool, or will without being asked again.
    fn is_at_work(&self) -> bool {
        !self.has_ended() && self.is_in_hand.get() && (self.has_slot.get() || !self.is_paused.get())
    }

    fn wait_for_pool(&self) {
        self.waits_for.replace(Some(format!("pool {} to be open for writing", self.pool_name)));
    }

    /// Has it stand, once what is under way is done.
    pub(crate) fn pause(&self) {
        self.is_paused.set(true);
        self.course.progress.hold();
        if !self.has_slot.get() {
            self.state.set(JobState::Paused);
        }
        self.notify.notify_all();
    }

    /// Lets it go on, when the slot is free.
    pub(crate) fn resume(&self) {
        self.is_paused.set(false);
        match self.has_slot.get() {
            true => self.course.resume(),
            false => self.state.set(JobState::Waiting),
        }
        self.notify.notify_all();
    }

    /// Has it end, once what is under way is done; at once where nobody works on it.
    pub(crate) fn stop(&self, why: &str) {
        self.course.progress.stop();
        self.notify.notify_all();
        if !self.is_in_hand.get() {
            self.end(JobState::CalledOff, why.to_owned());
        }
    }

    /// Waits until it stands, or has ended.
    pub(crate) async fn rests(&self) {
        self.notify
            .wait_for(|| (self.state.get() == JobState::Paused || self.has_ended()).then_some(()))
            .await;
    }

    /// Waits until it has ended.
    pub(crate) async fn ends(&self) {
        self.notify.wait_for(|| self.has_ended().then_some(())).await;
    }

    /// Ends it.
    pub(crate) fn end(&self, state: JobState, result: String) {
        self.result.replace(Some(result));
        self.waits_for.replace(None);
        self.is_paused.set(false);
        self.times.set(Times { ended_s: Some(seconds_now()), ..self.times.get() });
        self.state.set(state);
        self.notify.notify_all();
    }

    fn is_wanted(&self) -> bool {
        !self.is_to_stop() && !self.is_let_go.get()
    }

    /// The turn of its pool, once it is its own and nobody wants the job to stand; nothing when it is to end before.
    async fn slot<'a>(&self, pool: &'a OpenPool) -> Option<AtWork<'a>> {
        loop {
            let may_ask = || (!self.is_wanted() || !self.is_paused.get()).then_some(());
            self.notify.wait_for(may_ask).await;
            if !self.is_wanted() {
                return None;
            }
            let Some(rank) = self.rank() else { return Some(AtWork { pool, slot: None }) };
            let otherwise = || (!self.is_wanted() || self.is_paused.get()).then_some(());
            let taken = either(self.notify.wait_for(otherwise), pool.job_slot.take(rank)).await;
            if let Either::Second(slot) = taken {
                return Some(AtWork { pool, slot: Some(slot) });
            }
        }
    }

    fn begin(&self, pool: &OpenPool, now: Instant) {
        self.has_slot.set(true);
        match self.rank() {
            Some(rank) => {
                pool.spaces.set_job_share(self.job_share.get());
                pool.job_slot.begin(self.kind, rank, &self.course);
            }
            None => self.course.go_on(),
        }
        let times = self.times.get();
        let began_s = times.began_s.or_else(|| Some(seconds_now()));
        self.times.set(Times { began_s, since: Some(now), ..times });
        self.state.set(JobState::Running);
        self.sample(now);
        self.notify.notify_all();
    }

    fn rest(&self, now: Instant) {
        self.has_slot.set(false);
        self.sample(now);
        let mut rate = self.rate.get();
        rate.pause();
        self.rate.set(rate);
        self.times.set(self.times.get().rests(now));
        self.state.set(if self.is_paused.get() { JobState::Paused } else { JobState::Waiting });
        self.notify.notify_all();
    }

    /// Works until it is done or to end; nothing when it was to end before it had begun.
    async fn work<F>(
        &self,
        pool: &OpenPool,
        clock: &dyn Clock,
        work: impl FnOnce(Rc<Course>) -> F,
    ) -> Option<Answer<Outcome>>
    where
        F: Future<Output = Answer<Outcome>>,
    {
        let mut slot = self.slot(pool).await?;
        self.begin(pool, clock.now());
        let mut work = pin!(work(Rc::clone(&self.course)));
        loop {
            let next = either(work.as_mut(), self.course.progress.halted()).await;
            if let Either::First(outcome) = next {
                return Some(outcome);
            }
            drop(slot);
            self.rest(clock.now());
            // It is looked at meanwhile: it ends where its spaces close.
            slot = match either(work.as_mut(), self.slot(pool)).await {
                Either::First(outcome) => return Some(outcome),
                Either::Second(None) => return Some(work.await),
                Either::Second(Some(slot)) => slot,
            };
            self.begin(pool, clock.now());
        }
    }

    /// Notes what it has come to.
    fn conclude(&self, outcome: Option<Answer<Outcome>>, now: Instant) {
        self.rest(now);
        self.is_in_hand.set(false);
        let reported = match outcome {
            // It goes on with whoever opens the pool next.
            _ if self.is_let_go.get() => return self.wait_for_pool(),
            None => (JobState::CalledOff, "it was called off before it had begun".to_owned()),
            Some(Ok(Outcome::Done(text))) => (JobState::Done, text),
            Some(Ok(Outcome::CalledOff(text))) => (JobState::CalledOff, text),
            Some(Err(error)) => (JobState::Failed, error.to_string()),
            Some(Ok(Outcome::Put { off, waits_for })) => {
                tracing::info!(pool = self.pool_name, job = self.id, kind = ?self.kind, result = off, "a job is put off");
                self.result.replace(Some(off));
                self.waits_for.replace(Some(waits_for));
                return self.notify.notify_all();
            }
        };
        let (state, result) = reported;
        tracing::info!(pool = self.pool_name, job = self.id, kind = ?self.kind, ?state, result, "a job has ended");
        self.end(state, result);
    }

    fn sample(&self, now: Instant) {
        let mut rate = self.rate.get();
        rate.sample(now, &self.course.progress);
        self.rate.set(rate);
    }

    pub(crate) fn view(&self, now: Instant) -> Job {
        let progress = &self.course.progress;
        let done_bytes = progress.bytes.get();
        let (state, times, rate) = (self.state.get(), self.times.get(), self.rate.get());
        let is_running = state == JobState::Running;
        Job {
            id: self.id,
            pool: self.pool_name.clone(),
            kind: self.kind,
            subject: self.subject.clone(),
            state,
            is_pausing: is_running && self.is_paused.get(),
            is_stopping: !self.has_ended() && self.is_to_stop(),
            rows_total: progress.total.get(),
            rows_done: progress.done.get(),
            total_bytes: self.course.bytes_max.get().max(done_bytes),
            done_bytes,
            rate_bytes_per_s: rate.rate(),
            elapsed_s: times.elapsed(now).as_secs(),
            began_s: times.began_s,
            ended_s: times.ended_s,
            eta: rate.eta(&self.course).filter(|_| is_running),
            priority: Some(job_share::priority_of(self.job_share.get())),
            latency_limit_ms: job_share::limit_ms_of(self.job_share.get()),
            result: self.result.borrow().clone(),
            waits_for: self.waits_for.borrow().clone().filter(|_| state == JobState::Waiting),
        }
    }
}

/// The jobs.
pub(crate) struct Jobs {
    files: JobFiles,
    entries: RefCell<BTreeMap<u64, Rc<Entry>>>,
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
        let entries = found.jobs.into_iter().filter_map(Entry::recalled);
        *self.entries.borrow_mut() = entries.map(|entry| (entry.id, Rc::new(entry))).collect();
        self.keep().await;
    }

    /// Looks at jobs that run, and puts on record what has changed.
    pub(crate) async fn tick(&self, now: Instant) {
        for entry in self.all().iter().filter(|entry| entry.state.get() == JobState::Running) {
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

    fn all(&self) -> Vec<Rc<Entry>> {
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
    pub(crate) fn of_pool(&self, pool: PoolId, now: Instant) -> Vec<Job> {
        let unfinished = self.unfinished_of(pool);
        unfinished.iter().filter(|entry| entry.is_at_work()).map(|entry| entry.view(now)).collect()
    }

    /// Whether a job of this kind is at work, waits for the slot, or is paused. With a disk, one for that disk.
    pub(crate) fn is_taken(&self, pool: PoolId, kind: JobKind, aim: Option<Aim>) -> bool {
        let is_meant = |entry: &Rc<Entry>| {
            entry.kind == kind && entry.is_taken() && aim.is_none_or(|aim| aim == entry.aim)
        };
        self.unfinished_of(pool).iter().any(is_meant)
    }

    /// Whether a job of this kind is at work, or waits for the slot.
    pub(crate) fn is_at_work(&self, pool: PoolId, kind: JobKind) -> bool {
        self.unfinished_of(pool).iter().any(|entry| entry.kind == kind && entry.is_at_work())
    }

    /// Whether a job has not ended, nobody works on it, and no other goes on under its number.
    pub(crate) fn is_left(&self, entry: &Rc<Entry>) -> bool {
        let is_itself = self.entries.borrow().get(&entry.id).is_some_and(|now| Rc::ptr_eq(now, entry));
        is_itself && !entry.has_ended() && !entry.is_in_hand()
    }

    /// Has jobs end that are for what is called off.
    pub(crate) fn stop(&self, pool: PoolId, kind: JobKind, aim: Aim, why: &str) {
        let is_meant = |entry: &&Rc<Entry>| entry.kind == kind && entry.aim == aim;
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

    /// Ends the jobs of a pool that is none of this host any more.
    pub(crate) async fn end_those_of(&self, pool: PoolId, why: &str) {
        self.unfinished_of(pool).iter().for_each(|entry| entry.end(JobState::CalledOff, why.to_owned()));
        self.keep().await;
    }

    /// A job that was put off, or went on when the daemon ended, and that a new one of this kind goes on with.
    fn left_over(&self, pool: PoolId, start: &Start) -> Option<Rc<Entry>> {
        let is_found_again = match start.kind {
            JobKind::Resync | JobKind::Replace | JobKind::Drain | JobKind::Purge => true,
            JobKind::Scrub | JobKind::WriteCache | JobKind::Rebalance | JobKind::Convert | JobKind::Empty => {
                false
            }
        };
        let is_same = |entry: &Rc<Entry>| {
            is_found_again && !entry.is_taken() && entry.kind == start.kind && entry.aim == start.aim
        };
        self.unfinished_of(pool).into_iter().find(is_same)
    }

    /// A new job, or one that goes on under its number.
    fn add(&self, pool: &OpenPool, mut start: Start) -> Rc<Entry> {
        start.again = start.again.take().or_else(|| self.left_over(pool.id(), &start));
        let id = start.again.as_ref().map_or(self.last.get() + 1, |entry| entry.id);
        self.last.set(self.last.get().max(id));
        let entry = Rc::new(Entry::new(id, (pool.id(), pool.name()), start));
        self.entries.borrow_mut().insert(id, Rc::clone(&entry));
        self.is_changed.set(true);
        entry
    }

    /// Forgets jobs that ended first. One that took long has a low number, and people look for it when it has ended.
    fn forget_oldest(&self) {
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
}

impl Engine {
    /// Begins a job, or goes on with one that was left over and is about the same. It waits until the pool's job before it has
    /// ended, or stands.
    pub(crate) async fn start_job<F>(
        &self,
        pool: &Rc<OpenPool>,
        start: Start,
        work: impl FnOnce(Rc<Course>) -> F + 'static,
    ) -> Job
    where
        F: Future<Output = Answer<Outcome>> + 'static,
    {
        let entry = self.jobs.add(pool, start);
        let (jobs, started) = (Rc::clone(&self.jobs), Rc::clone(&entry));
        let (pool, clock) = (Rc::clone(pool), Rc::clone(&self.seams.clock));
        let coming = (entry.rank() == Some(Rank::Urgent)).then(|| pool.job_slot.announce());
        let task = async move {
            // It asks for the slot before anybody else goes on.
            drop(coming);
            let outcome = started.work(&pool, clock.as_ref(), work).await;
            started.conclude(outcome, clock.now());
            drop(pool);
            jobs.keep().await;
        };
        self.seams.spawner.spawn("job", Box::pin(task));
        let view = entry.view(self.seams.clock.now());
        self.jobs.keep().await;
        entry.is_on_record.set(true);
        view
    }

    /// Refuses another job while too many have not ended.
    pub(crate) fn check_job_room(&self, pool: &OpenPool) -> Answer<()> {
        let of_pool = self.jobs.unfinished_of(pool.id()).len();
        let (whose, count) = match self.jobs.unfinished().len() {
            all if all >= UNFINISHED_MAX => ("all pools have".to_owned(), all),
            _ if of_pool >= RUNNING_MAX => (format!("pool {} has", pool.name()), of_pool),
            _ => return Ok(()),
        };
        let message = format!("{whose} {count} jobs that run, wait or are paused already; nothing was begun");
        Err(ErrorBody::new(ErrorCode::Busy, message)
            .on(pool.name())
            .hint("wait until some have ended, or end one with `dolmen job stop`"))
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use dolmen_api::ImportMode;
    use dolmen_block_io::{BlockDevice, Durability, Seams, sleep, within};
    use dolmen_buffer::ArenaConfig;
    use dolmen_pool::{CreateOptions, MemoryArbiter, create};
    use dolmen_sim::{DiskProfile, World};
    use dolmen_space::{Priority, Resiliency, SpaceSpec, Spaces};
    use dolmen_units::{Bytes, HostId};

    use super::*;
    use crate::io_worker::IoWorker;
    use crate::rebalance::even_out;

    const HIGH: JobShare = JobShare { priority: Priority::High, latency_limit: Some(Duration::from_secs(2)) };

    fn entry(id: u64, pool: &OpenPool, kind: JobKind) -> Rc<Entry> {
        let start = Start { kind, subject: String::new(), aim: Aim::Pool, again: None };
        Rc::new(Entry::new(id, (pool.id(), pool.name()), start))
    }

    fn done() -> Answer<Outcome> {
        Ok(Outcome::Done(String::new()))
    }

    /// A pool of two disks, with a space that has rows.
    async fn open_pool(seams: &Seams, devices: &[Rc<dyn BlockDevice>]) -> Rc<OpenPool> {
        let name = "tank".parse().unwrap();
        let options = CreateOptions { name, overwrite: Vec::new(), fault_domains: Vec::new() };
        let arbiter = MemoryArbiter::new(HostId([7; 16]));
        let opened = create(seams, arbiter, devices, &options).await.unwrap();
        let spaces = Spaces::start(opened).await.unwrap();
        let usual = SpaceSpec::usual("x".parse().unwrap(), Bytes::mib(96), Resiliency::Mirror { copies: 2 });
        let space = spaces.create(SpaceSpec { row: Some(Bytes::mib(1)), ..usual }).await.unwrap();
        for row in 0..96 {
            let mut block = seams.data.take(4096).await;
            block.fill(7);
            space.write(row << 20, &block.freeze(), Durability::Cached).await.unwrap();
        }
        OpenPool::new(spaces, ImportMode::Write)
    }

    /// Scenario: a job of days ends when as many are remembered as can be, all of which have higher numbers. The one that ended
    /// first is forgotten, and not the one that has just ended.
    #[test]
    fn what_ended_first_is_forgotten_and_not_what_began_first() {
        let jobs = Jobs::new(JobFiles::new(PathBuf::new(), Rc::new(IoWorker::start("test").unwrap())));
        let last = ENDED_MAX as u64 + 1;
        for id in 1..=last {
            let start = Start { kind: JobKind::Scrub, subject: String::new(), aim: Aim::Pool, again: None };
            let entry = Rc::new(Entry::new(id, (PoolId([1; 16]), "tank".to_owned()), start));
            entry.end(JobState::Done, String::new());
            let ended_s = Some(1000 + if id == 1 { last } else { id });
            entry.times.set(Times { ended_s, ..Times::default() });
            jobs.entries.borrow_mut().insert(id, entry);
        }
        jobs.forget_oldest();
        let left: Vec<u64> = jobs.all().iter().map(|entry| entry.id).collect();
        assert_eq!((left.len(), &left[..2]), (ENDED_MAX, &[1, 3][..]));
    }

    fn in_a_world<F>(body: impl FnOnce(Seams, Vec<Rc<dyn BlockDevice>>) -> F)
    where
        F: Future<Output = ()> + 'static,
    {
        let world = World::new(1);
        world.set_arenas(ArenaConfig::MODEST, ArenaConfig::MODEST);
        let profile = || DiskProfile::new(Bytes::mib(256));
        let names = ["a", "b", "c", "d"];
        let devices = names.map(|name| world.add_disk(name, profile()).attach(&world)).into();
        assert!(world.run(body(world.seams(), devices)).is_ok());
    }

    /// Begins a job that verifies everything, and notes its number when that is done.
    fn verifies(seams: &Seams, pool: &Rc<OpenPool>, entry: &Rc<Entry>, order: &Rc<RefCell<Vec<u64>>>) {
        let (entry, pool, order) = (Rc::clone(entry), Rc::clone(pool), Rc::clone(order));
        let clock = Rc::clone(&seams.clock);
        let task = async move {
            let spaces = Rc::clone(&pool.spaces);
            let work = |course: Rc<Course>| async move {
                spaces.verify(&course.progress).await.unwrap();
                done()
            };
            let outcome = entry.work(&pool, clock.as_ref(), work).await;
            order.borrow_mut().push(entry.id);
            entry.conclude(outcome, clock.now());
        };
        seams.spawner.spawn("job", Box::pin(task));
    }

    /// Scenario: a scrub is at work, a rebalance and another scrub wait, and then a resync comes. It is done before all of them,
    /// and each of them goes on behind it.
    #[test]
    fn what_can_wait_makes_way_for_what_restores_redundancy() {
        in_a_world(|seams, devices| async move {
            let pool = open_pool(&seams, &devices[..2]).await;
            let order = Rc::new(RefCell::new(Vec::new()));
            let kinds = [JobKind::Scrub, JobKind::Rebalance, JobKind::Scrub];
            let entries: Vec<Rc<Entry>> = (1..).zip(kinds).map(|(id, kind)| entry(id, &pool, kind)).collect();
            for entry in &entries {
                verifies(&seams, &pool, entry, &order);
            }
            // The first of them is in the midst of it.
            let begun = || entries.iter().any(|entry| entry.course.progress.done.get() > 0).then_some(());
            while begun().is_none() {
                sleep(seams.clock.as_ref(), Duration::from_micros(100)).await;
            }
            assert!(order.borrow().is_empty());
            let resync = entry(4, &pool, JobKind::Resync);
            verifies(&seams, &pool, &resync, &order);
            resync.ends().await;
            assert_eq!(*order.borrow(), [4]);
            for entry in &entries {
                entry.ends().await;
                assert_eq!(entry.state(), JobState::Done);
            }
            pool.spaces.close().await.unwrap();
        });
    }

    /// Scenario: a scrub is at work, and a failing disk is to be emptied; in the midst of that a resync comes. It is done first, then
    /// the emptying, then the scrub.
    #[test]
    fn an_emptying_goes_before_what_can_wait_and_makes_way_for_what_restores_redundancy() {
        in_a_world(|seams, devices| async move {
            let pool = open_pool(&seams, &devices[..2]).await;
            let order = Rc::new(RefCell::new(Vec::new()));
            let [scrub, emptying, resync] = [
                entry(1, &pool, JobKind::Scrub),
                entry(2, &pool, JobKind::Empty),
                entry(3, &pool, JobKind::Resync),
            ];
            for one in [&scrub, &emptying, &resync] {
                verifies(&seams, &pool, one, &order);
                while one.id < 3 && one.course.progress.done.get() == 0 {
                    sleep(seams.clock.as_ref(), Duration::from_micros(100)).await;
                }
            }
            scrub.ends().await;
            assert_eq!(*order.borrow(), [3, 2, 1]);
            pool.spaces.close().await.unwrap();
        });
    }

    /// Scenario: a scrub is at work, then a rebalance comes, then a conversion, each in the midst of the one before; and another size
    /// of a write cache behind the conversion. What a person asks for goes first, in the order of the requests, and the scrub last.
    #[test]
    fn what_a_person_asks_for_goes_before_what_goes_on_by_itself() {
        in_a_world(|seams, devices| async move {
            let pool = open_pool(&seams, &devices[..2]).await;
            let order = Rc::new(RefCell::new(Vec::new()));
            let kinds = [JobKind::Scrub, JobKind::Rebalance, JobKind::Convert, JobKind::WriteCache];
            let all: Vec<Rc<Entry>> = (1..).zip(kinds).map(|(id, kind)| entry(id, &pool, kind)).collect();
            for one in &all {
                verifies(&seams, &pool, one, &order);
                while one.id < 4 && one.course.progress.done.get() == 0 {
                    sleep(seams.clock.as_ref(), Duration::from_micros(100)).await;
                }
            }
            all[0].ends().await;
            assert_eq!(*order.borrow(), [3, 4, 2, 1]);
            pool.spaces.close().await.unwrap();
        });
    }

    /// Scenario: another size of a write cache is at work when a resync comes, and a scrub waits for longer than that. The write cache
    /// keeps the slot, since rows that are to leave it are not filled meanwhile; then the resync goes first.
    #[test]
    fn another_size_of_a_write_cache_keeps_its_slot() {
        in_a_world(|seams, devices| async move {
            let pool = open_pool(&seams, &devices[..2]).await;
            let order = Rc::new(RefCell::new(Vec::new()));
            let kinds = [JobKind::WriteCache, JobKind::Scrub, JobKind::Resync];
            let all: Vec<Rc<Entry>> = (1..).zip(kinds).map(|(id, kind)| entry(id, &pool, kind)).collect();
            for one in &all {
                verifies(&seams, &pool, one, &order);
                while all[0].course.progress.done.get() == 0 {
                    sleep(seams.clock.as_ref(), Duration::from_micros(100)).await;
                }
            }
            all[1].ends().await;
            assert_eq!(*order.borrow(), [1, 3, 2]);
            pool.spaces.close().await.unwrap();
        });
    }

    /// Scenario: two failing disks of a pool are emptied at once, because one of the jobs was paused when the other began. The second
    /// waits until the first is done, and both end.
    #[test]
    fn of_two_emptyings_none_holds_the_other() {
        in_a_world(|seams, devices| async move {
            let pool = open_pool(&seams, &devices[..2]).await;
            let order = Rc::new(RefCell::new(Vec::new()));
            let both = [1, 2].map(|id| entry(id, &pool, JobKind::Empty));
            for one in &both {
                verifies(&seams, &pool, one, &order);
            }
            let limit = seams.clock.now() + Duration::from_secs(600);
            for one in &both {
                assert!(within(seams.clock.as_ref(), limit, one.ends()).await.is_some());
            }
            assert_eq!(order.borrow().len(), 2);
            pool.spaces.close().await.unwrap();
        });
    }

    /// Scenario: the pool of a job that is paused is let go of, and stays open after all. The job is paused as before.
    #[test]
    fn a_paused_job_that_is_let_go_of_stays_paused() {
        in_a_world(|seams, devices| async move {
            let pool = open_pool(&seams, &devices[..2]).await;
            let scrub = entry(1, &pool, JobKind::Scrub);
            scrub.pause();
            scrub.is_let_go.set(true);
            let outcome = scrub.work(&pool, seams.clock.as_ref(), |_| async { done() }).await;
            scrub.conclude(outcome, seams.clock.now());
            assert_eq!((scrub.state(), scrub.is_in_hand()), (JobState::Paused, false));
            pool.spaces.close().await.unwrap();
        });
    }

    /// By how many bytes the fullest disk is fuller than the emptiest.
    fn unevenness(pool: &OpenPool) -> u64 {
        let free = || pool.spaces.pool().room().into_iter().map(|room| room.free.0);
        free().max().unwrap() - free().min().unwrap()
    }

    /// Scenario: a rebalance comes to its end in the moment in which a disk begins to leave, of which the job is not begun yet. It
    /// ends behind that one, and all is even.
    #[test]
    fn a_rebalance_ends_after_the_removal_that_is_about_to_begin() {
        in_a_world(|seams, devices| async move {
            let pool = open_pool(&seams, &devices[..2]).await;
            let inner = pool.spaces.pool();
            for device in &devices[2..] {
                inner.add_device(Rc::clone(device), &[], 0).await.unwrap();
            }
            let disk = inner.disks().into_iter().next().unwrap();
            let (rebalance, removal) = (entry(1, &pool, JobKind::Rebalance), entry(2, &pool, JobKind::Drain));
            let coming = pool.job_slot.announce();
            inner.retire(&disk).await.unwrap();
            let (one, owner, clock) = (Rc::clone(&rebalance), Rc::clone(&pool), Rc::clone(&seams.clock));
            let task = async move {
                let work = |course: Rc<Course>| {
                    let owner = Rc::clone(&owner);
                    async move { even_out(&owner, &course).await }
                };
                let outcome = one.work(&owner, clock.as_ref(), work).await;
                one.conclude(outcome, clock.now());
            };
            seams.spawner.spawn("job", Box::pin(task));
            sleep(seams.clock.as_ref(), Duration::from_secs(30)).await;
            assert_eq!(rebalance.state(), JobState::Running, "it is not at its end");
            drop(coming);
            let (spaces, leaving) = (&pool.spaces, &disk);
            let drained = removal.work(&pool, seams.clock.as_ref(), async move |course| {
                assert!(spaces.drain_disk(leaving, &course.progress).await.unwrap());
                inner.evict(leaving).await.unwrap();
                done()
            });
            let drained = drained.await;
            removal.conclude(drained, seams.clock.now());
            rebalance.ends().await;
            assert_eq!((rebalance.state(), removal.state()), (JobState::Done, JobState::Done));
            assert!(unevenness(&pool) <= 3 << 20, "{}", unevenness(&pool));
            pool.spaces.close().await.unwrap();
        });
    }

    /// Scenario: two jobs of a pool have their turns one after the other. The pool works with the effort of the one at work, also
    /// when that is set meanwhile, and not with what is set of one that waits; between them with none of theirs.
    #[test]
    fn the_pool_works_with_the_priority_of_the_running_job() {
        in_a_world(|seams, devices| async move {
            let pool = open_pool(&seams, &devices[..2]).await;
            let (clock, before) = (seams.clock.as_ref(), pool.spaces.job_share());
            let (scrub, resync) = (entry(1, &pool, JobKind::Scrub), entry(2, &pool, JobKind::Resync));
            let scrubbed = scrub.work(&pool, clock, |_| async {
                assert_eq!(pool.spaces.job_share(), job_share::usual(JobKind::Scrub));
                resync.set_job_share(Some(&pool), JobShare { priority: Priority::Low, ..HIGH });
                assert_eq!(pool.spaces.job_share(), job_share::usual(JobKind::Scrub));
                scrub.set_job_share(Some(&pool), HIGH);
                assert_eq!(pool.spaces.job_share(), HIGH);
                done()
            });
            assert!(scrubbed.await.is_some_and(|outcome| outcome.is_ok()));
            assert_eq!(pool.spaces.job_share(), before);
            let resynced = resync.work(&pool, clock, |_| async {
                assert_eq!(pool.spaces.job_share(), JobShare { priority: Priority::Low, ..HIGH });
                done()
            });
            assert!(resynced.await.is_some_and(|outcome| outcome.is_ok()));
            pool.spaces.close().await.unwrap();
        });
    }
}
