//! One job: its state, its turn of the slot, its progress, and what came of it (docs/design/0011).
//!
//! Invariant: a job has the slot of its pool while it works, and the pool works with its priority. One that is held and stands has
//! given the slot up; one is held while another of a higher rank waits. A purge works concurrently with them.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::ops::Deref;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use dolmen_api::{Job, JobState};
use dolmen_block_io::ranks::scoped;
use dolmen_block_io::sync::{Either, Notify, either};
use dolmen_block_io::{Clock, Instant};
use dolmen_space::JobShare;
use dolmen_units::PoolId;

use crate::answer::Answer;
use crate::jobs::aim::Aim;
use crate::jobs::course::{Course, JobRate};
use crate::jobs::kind::{Kind, Rank};
use crate::jobs::record::{RecordedJob, kept, seconds_now};
use crate::jobs::share as job_share;
use crate::jobs::slot::{JobSlot, SlotGuard};

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
    pub(crate) kind: &'static dyn Kind,
    pub(crate) subject: String,
    pub(crate) aim: Aim,
    /// The job that goes on, where it is known; a replacement, a removal and a resync are found by what they are about.
    pub(crate) again: Option<Rc<Entry>>,
}

/// When a job was at work.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Times {
    /// Seconds since 1970.
    pub(super) began_s: Option<u64>,
    pub(super) ended_s: Option<u64>,
    /// How long it has worked, without what goes on since `since`.
    pub(super) ran: Duration,
    pub(super) since: Option<Instant>,
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
    slot_of_pool: &'a JobSlot,
    /// None of a job that works concurrently with the others.
    slot: Option<SlotGuard<'a>>,
}

impl Drop for AtWork<'_> {
    fn drop(&mut self) {
        if self.slot.is_none() {
            return;
        }
        self.slot_of_pool.set_job_share(JobShare::default());
    }
}

/// A job as documents show it, with its kind.
pub(crate) struct JobView {
    pub(crate) kind: &'static dyn Kind,
    pub(crate) job: Job,
}

impl Deref for JobView {
    type Target = Job;

    fn deref(&self) -> &Job {
        &self.job
    }
}

/// A job.
pub(crate) struct Entry {
    pub(crate) id: u64,
    pub(crate) pool: PoolId,
    pub(crate) pool_name: String,
    pub(crate) kind: &'static dyn Kind,
    pub(crate) subject: String,
    pub(crate) aim: Aim,
    pub(super) state: Cell<JobState>,
    /// Whether a person wants it to stand.
    is_paused: Cell<bool>,
    /// Whether somebody works on it, or waits to.
    pub(super) is_in_hand: Cell<bool>,
    has_slot: Cell<bool>,
    /// Whether its pool is being closed: it ends, and goes on with whoever opens the pool next.
    pub(super) is_let_go: Cell<bool>,
    /// Whether people are told of it.
    pub(super) is_on_record: Cell<bool>,
    /// Set while it is put off, or its pool is not open; it waits then, and takes no turn.
    waits_for: RefCell<Option<String>>,
    pub(super) course: Rc<Course>,
    /// Checkpoints when it was looked at last.
    checkpoints: Cell<u64>,
    job_share: Cell<JobShare>,
    rate: Cell<JobRate>,
    pub(super) times: Cell<Times>,
    result: RefCell<Option<String>>,
    pub(super) notify: Notify,
}

impl Entry {
    pub(super) fn new(id: u64, (pool, pool_name): (PoolId, String), start: Start) -> Self {
        let before = start.again.as_ref();
        let job_share = before.map_or_else(|| start.kind.usual_share(), |before| before.job_share.get());
        let course = before.and_then(|before| before.course.resumed());
        let course = course.unwrap_or_else(|| Course::with(start.kind.own_state()));
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
            course: Rc::new(course),
            checkpoints: Cell::default(),
            job_share: Cell::new(job_share),
            rate: Cell::default(),
            times: Cell::new(before.map(|before| before.times.get()).unwrap_or_default()),
            result: RefCell::default(),
            notify: Notify::new(),
        }
    }

    /// A job that is on record, and that nobody works on yet.
    pub(super) fn recalled(kind: &'static dyn Kind, job: RecordedJob) -> Option<Self> {
        let (pool, aim, job_share) = (job.pool()?, job.aim(kind)?, job.job_share(kind));
        let own = job.own_state(kind);
        let start = Start { kind, subject: job.subject, aim, again: None };
        let mut entry = Self::new(job.id, (pool, job.pool_name), start);
        if own.is_some() {
            entry.course = Rc::new(Course::with(own));
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

    /// As it goes on record. How far it is stands there when it has ended, and always of one that
    /// has a state of its own.
    pub(super) fn recorded(&self) -> RecordedJob {
        let times = self.times.get();
        let mut job = RecordedJob::new(self.id, (self.pool, &self.pool_name), self.kind, self.aim);
        job.subject = kept(&self.subject);
        job.set_job_share(self.job_share.get());
        (job.began_s, job.ended_s, job.ran_s) = (times.began_s, times.ended_s, times.ran.as_secs());
        let progress = &self.course.progress;
        if !self.has_ended() {
            job.state = if self.is_paused.get() { JobState::Paused } else { JobState::Waiting };
            if let Some(own) = self.course.recorded() {
                job.set_own_state(own);
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

    /// Whether it is of this kind.
    pub(crate) fn is(&self, kind: &dyn Kind) -> bool {
        self.kind.word() == kind.word()
    }

    /// Whether it has taken a checkpoint since the last call.
    pub(super) fn has_new_checkpoint(&self) -> bool {
        let now = self.course.checkpoints();
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
    pub(crate) fn set_job_share(&self, slot: Option<&JobSlot>, job_share: JobShare) {
        self.job_share.set(job_share);
        if let Some(slot) = slot.filter(|_| self.has_slot.get() && self.rank().is_some()) {
            slot.set_job_share(job_share);
        }
    }

    pub(super) fn rank(&self) -> Option<Rank> {
        self.kind.rank()
    }

    /// Whether it has not ended, and is not to be begun by anybody else.
    pub(crate) fn is_taken(&self) -> bool {
        !self.has_ended() && (self.is_in_hand.get() || self.is_paused.get())
    }

    /// Whether it writes to its pool, or will without being asked again.
    pub(crate) fn is_at_work(&self) -> bool {
        !self.has_ended() && self.is_in_hand.get() && (self.has_slot.get() || !self.is_paused.get())
    }

    pub(super) fn wait_for_pool(&self) {
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

    /// Waits until nobody works on it.
    pub(super) async fn is_done_with(&self) {
        self.notify.wait_for(|| (!self.is_in_hand.get()).then_some(())).await;
    }

    fn is_wanted(&self) -> bool {
        !self.is_to_stop() && !self.is_let_go.get()
    }

    /// The turn of its pool, once it is its own and nobody wants the job to stand; nothing when it is to end before.
    async fn slot<'a>(&self, slot_of_pool: &'a JobSlot) -> Option<AtWork<'a>> {
        loop {
            let may_ask = || (!self.is_wanted() || !self.is_paused.get()).then_some(());
            self.notify.wait_for(may_ask).await;
            if !self.is_wanted() {
                return None;
            }
            let Some(rank) = self.rank() else { return Some(AtWork { slot_of_pool, slot: None }) };
            let otherwise = || (!self.is_wanted() || self.is_paused.get()).then_some(());
            let taken = either(self.notify.wait_for(otherwise), slot_of_pool.take(rank)).await;
            if let Either::Second(slot) = taken {
                return Some(AtWork { slot_of_pool, slot: Some(slot) });
            }
        }
    }

    fn begin(&self, slot: &JobSlot, now: Instant) {
        self.has_slot.set(true);
        match self.rank() {
            Some(rank) => {
                slot.set_job_share(self.job_share.get());
                slot.begin(self.kind, rank, &self.course);
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
    pub(super) async fn work<F>(
        &self,
        slot_of_pool: &JobSlot,
        clock: &dyn Clock,
        work: impl FnOnce(Rc<Course>) -> F,
    ) -> Option<Answer<Outcome>>
    where
        F: Future<Output = Answer<Outcome>>,
    {
        let mut slot = self.slot(slot_of_pool).await?;
        self.begin(slot_of_pool, clock.now());
        let mut work = pin!(scoped(work(Rc::clone(&self.course))));
        loop {
            let next = either(work.as_mut(), self.course.progress.halted()).await;
            if let Either::First(outcome) = next {
                return Some(outcome);
            }
            drop(slot);
            self.rest(clock.now());
            // It is looked at meanwhile: it ends where its spaces close.
            slot = match either(work.as_mut(), self.slot(slot_of_pool)).await {
                Either::First(outcome) => return Some(outcome),
                Either::Second(None) => return Some(work.await),
                Either::Second(Some(slot)) => slot,
            };
            self.begin(slot_of_pool, clock.now());
        }
    }

    /// Notes what it has come to.
    pub(super) fn conclude(&self, outcome: Option<Answer<Outcome>>, now: Instant) {
        self.rest(now);
        self.is_in_hand.set(false);
        let reported = match outcome {
            // It goes on with whoever opens the pool next.
            _ if self.is_let_go.get() => {
                self.wait_for_pool();
                return self.notify.notify_all();
            }
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

    pub(super) fn sample(&self, now: Instant) {
        let mut rate = self.rate.get();
        rate.sample(now, &self.course.progress);
        self.rate.set(rate);
    }

    /// Returns it as documents show it, with its kind.
    pub(crate) fn shown(&self, now: Instant) -> JobView {
        JobView { kind: self.kind, job: self.view(now) }
    }

    pub(crate) fn view(&self, now: Instant) -> Job {
        let progress = &self.course.progress;
        let done_bytes = progress.bytes.get();
        let (state, times, rate) = (self.state.get(), self.times.get(), self.rate.get());
        let is_running = state == JobState::Running;
        Job {
            id: self.id,
            pool: self.pool_name.clone(),
            kind: self.kind.wire(),
            verb: self.kind.wire_verb(),
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
