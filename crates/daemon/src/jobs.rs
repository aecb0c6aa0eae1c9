//! Jobs: long work that goes on behind the answer to its request.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::Future;
use std::rc::Rc;

use dolmen_api::{ErrorBody, ErrorCode, Eta, Job, JobDocument, JobKind, JobState, SCHEMA};
use dolmen_block_io::Moment;
use dolmen_pool::Disk;
use dolmen_space::Progress;
use dolmen_units::DiskId;

use crate::caller::Answer;
use crate::engine::{Engine, OpenPool};
use crate::words::counted;

/// Jobs that ended and are still remembered, at most.
const ENDED_MAX: usize = 64;
/// Jobs that run or wait, at most.
pub(crate) const RUNNING_MAX: usize = 64;

/// How fast a job has been.
#[derive(Debug, Clone, Copy, Default)]
struct Pace {
    at: Option<Moment>,
    rows: u64,
    bytes: u64,
    /// Bytes a second, lately.
    rate: u64,
    /// Thousandths of a row a second: the slowest and the fastest stretch.
    slowest: Option<u64>,
    fastest: Option<u64>,
}

/// How far a job is, and how far it may have to go.
#[derive(Default)]
pub(crate) struct Course {
    pub(crate) progress: Progress,
    /// Bytes that it copies or verifies, at most. Known when it begins, and the same until it ends.
    pub(crate) bytes_max: Cell<u64>,
}

/// What a job has come to.
pub(crate) enum Outcome {
    /// It is done; what it did, in words.
    Done(String),
    /// It has done what can be done now. The job stays, and goes on when its work is begun again.
    Put {
        /// What it did, and what is left.
        off: String,
        /// What the rest waits for.
        waits_for: String,
    },
}

struct Entry {
    id: u64,
    pool: String,
    kind: JobKind,
    subject: String,
    /// The disk that a replacement fills, or that is removed: what is put off is found again by it.
    target: Option<DiskId>,
    state: Cell<JobState>,
    /// Set while it is put off; it waits then, and takes no turn.
    waits_for: RefCell<Option<String>>,
    course: Rc<Course>,
    pace: Cell<Pace>,
    started: Cell<Option<Moment>>,
    ended: Cell<Option<Moment>>,
    result: RefCell<Option<String>>,
}

/// The jobs.
#[derive(Default)]
pub(crate) struct Jobs {
    entries: RefCell<BTreeMap<u64, Rc<Entry>>>,
    last: Cell<u64>,
}

impl Entry {
    fn is_running(&self) -> bool {
        matches!(self.state.get(), JobState::Waiting | JobState::Running)
    }

    fn is_put_off(&self) -> bool {
        self.waits_for.borrow().is_some()
    }

    fn sample(&self, now: Moment) {
        let mut pace = self.pace.get();
        let progress = &self.course.progress;
        let (rows, bytes) = (progress.done.get(), progress.bytes.get());
        let millis = pace.at.map_or(0, |at| u64::try_from(now.since(at).as_millis()).unwrap_or(u64::MAX));
        if pace.at.is_some() && millis < 500 {
            return;
        }
        let per_second = |count: u64, scale: u64| count.saturating_mul(scale).checked_div(millis);
        if let Some(rate) = per_second(bytes.saturating_sub(pace.bytes), 1000) {
            pace.rate = rate;
        }
        if let Some(stretch) =
            per_second(rows.saturating_sub(pace.rows), 1_000_000).filter(|stretch| *stretch > 0)
        {
            pace.slowest = Some(pace.slowest.map_or(stretch, |slowest| slowest.min(stretch)));
            pace.fastest = Some(pace.fastest.map_or(stretch, |fastest| fastest.max(stretch)));
        }
        self.pace.set(Pace { at: Some(now), rows, bytes, ..pace });
    }

    fn view(&self, now: Moment) -> Job {
        let progress = &self.course.progress;
        let (rows_total, rows_done) = (progress.total.get(), progress.done.get());
        let done_bytes = progress.bytes.get();
        let pace = self.pace.get();
        let left = rows_total.saturating_sub(rows_done).saturating_mul(1000);
        let eta = pace.fastest.zip(pace.slowest).filter(|_| self.state.get() == JobState::Running);
        Job {
            id: self.id,
            pool: self.pool.clone(),
            kind: self.kind,
            subject: self.subject.clone(),
            state: self.state.get(),
            rows_total,
            rows_done,
            total_bytes: self.course.bytes_max.get().max(done_bytes),
            done_bytes,
            rate_bytes_per_s: pace.rate,
            elapsed_s: self.started.get().map_or(0, |at| self.ended.get().unwrap_or(now).since(at).as_secs()),
            eta: eta.map(|(fastest, slowest)| Eta {
                earliest_s: left / fastest,
                latest_s: left.div_ceil(slowest),
            }),
            result: self.result.borrow().clone(),
            waits_for: self.waits_for.borrow().clone(),
        }
    }
}

impl Jobs {
    pub(crate) fn sample(&self, now: Moment) {
        self.entries.borrow().values().filter(|entry| entry.state.get() == JobState::Running).for_each(
            |entry| {
                entry.sample(now);
            },
        );
    }

    pub(crate) fn list(&self, now: Moment) -> Vec<Job> {
        self.entries.borrow().values().map(|entry| entry.view(now)).collect()
    }

    /// Jobs of a pool that run or wait for their turn. One that is put off is at work on nothing.
    pub(crate) fn of_pool(&self, pool: &str, now: Moment) -> Vec<Job> {
        let mut jobs = self.list(now);
        jobs.retain(|job| {
            let is_running = matches!(job.state, JobState::Waiting | JobState::Running);
            job.pool == pool && is_running && job.waits_for.is_none()
        });
        jobs
    }

    /// Forgets those that are put off and that nobody will go on with.
    fn retain_put_off(&self, is_meant: impl Fn(&str, DiskId) -> bool) {
        let is_meant = |entry: &Entry| entry.target.is_some_and(|target| is_meant(&entry.pool, target));
        self.entries.borrow_mut().retain(|_, entry| !entry.is_put_off() || is_meant(entry));
    }

    /// A new job, or the one that was put off and that this one goes on with.
    fn add(&self, pool: &str, kind: JobKind, subject: String, target: Option<DiskId>) -> Rc<Entry> {
        let is_same = |entry: &Entry| {
            entry.is_put_off() && entry.pool == pool && entry.kind == kind && entry.target == target
        };
        let put_off = self.entries.borrow().values().find(|entry| is_same(entry)).map(|entry| entry.id);
        let id = put_off.unwrap_or_else(|| self.last.get() + 1);
        self.last.set(self.last.get().max(id));
        let entry = Rc::new(Entry {
            id,
            pool: pool.to_owned(),
            kind,
            subject,
            target,
            state: Cell::new(JobState::Waiting),
            waits_for: RefCell::default(),
            course: Rc::default(),
            pace: Cell::default(),
            started: Cell::default(),
            ended: Cell::default(),
            result: RefCell::default(),
        });
        let mut entries = self.entries.borrow_mut();
        entries.insert(id, Rc::clone(&entry));
        let ended: Vec<u64> =
            entries.values().filter(|entry| !entry.is_running()).map(|entry| entry.id).collect();
        for old in ended.iter().take(ended.len().saturating_sub(ENDED_MAX)) {
            entries.remove(old);
        }
        entry
    }
}

impl Engine {
    /// Begins a job, or goes on with the one that was put off and has the same target. It waits until the pool's job
    /// before it has ended.
    pub(crate) fn start_job<F>(
        &self,
        pool: &Rc<OpenPool>,
        kind: JobKind,
        (subject, target): (String, Option<DiskId>),
        work: impl FnOnce(Rc<Course>) -> F + 'static,
    ) -> Job
    where
        F: Future<Output = Answer<Outcome>> + 'static,
    {
        let entry = self.jobs.add(&pool.name(), kind, subject, target);
        let view = entry.view(self.seams.clock.now());
        let (pool, clock) = (Rc::clone(pool), Rc::clone(&self.seams.clock));
        let task = async move {
            let _turn = pool.job_turn.take().await;
            entry.state.set(JobState::Running);
            entry.started.set(Some(clock.now()));
            entry.sample(clock.now());
            let (state, result, waits_for) = match work(Rc::clone(&entry.course)).await {
                Ok(Outcome::Done(text)) => (JobState::Done, text, None),
                Ok(Outcome::Put { off, waits_for }) => (JobState::Waiting, off, Some(waits_for)),
                Err(error) => (JobState::Failed, error.to_string(), None),
            };
            let told = if waits_for.is_some() { "a job is put off" } else { "a job has ended" };
            tracing::info!(pool = entry.pool, job = entry.id, kind = ?entry.kind, ?state, result, told);
            entry.sample(clock.now());
            entry.ended.set(Some(clock.now()));
            *entry.result.borrow_mut() = Some(result);
            *entry.waits_for.borrow_mut() = waits_for;
            entry.state.set(state);
        };
        self.seams.spawner.spawn("job", Box::pin(task));
        view
    }

    /// Begins to bring up to date what was away, if there is anything, and no such job waits already.
    pub(crate) async fn resync_if_needed(&self, pool: &Rc<OpenPool>) -> Option<Job> {
        let stale = pool.spaces.stale_rows().await.unwrap_or_default().len();
        let waiting = self.jobs.of_pool(&pool.name(), self.seams.clock.now());
        if stale == 0
            || waiting.iter().any(|job| job.kind == JobKind::Resync && job.state == JobState::Waiting)
        {
            return None;
        }
        Some(self.start_resync(pool))
    }

    pub(crate) fn start_resync(&self, pool: &Rc<OpenPool>) -> Job {
        let spaces = Rc::clone(&pool.spaces);
        let subject = (format!("pool {}", pool.name()), None);
        self.start_job(pool, JobKind::Resync, subject, move |course| async move {
            let stale = spaces.stale_rows().await.unwrap_or_default();
            let lengths: BTreeMap<_, _> =
                spaces.list().iter().map(|space| (space.id(), space.row_bytes())).collect();
            course.bytes_max.set(stale.iter().filter_map(|(space, _)| lengths.get(space)).sum());
            let done = spaces.resync(&course.progress).await.map_err(|error| crate::fault::space(&error))?;
            let mut text = format!(
                "{} brought up to date, {} copied",
                counted(done.slabs, "slab", "slabs"),
                counted(done.blocks, "block", "blocks")
            );
            if done.waiting > done.crowded {
                let slabs = counted(done.waiting - done.crowded, "slab waits", "slabs wait");
                text.push_str(&format!("; {slabs} for disks that are absent"));
            }
            if done.crowded > 0 {
                let slabs = counted(done.crowded, "slab waits", "slabs wait");
                text.push_str(&format!("; {slabs} for room below the files of their disks"));
            }
            if done.lost_blocks > 0 {
                text.push_str(&format!("; {} lost", counted(done.lost_blocks, "block is", "blocks are")));
            }
            Ok(Outcome::Done(text))
        })
    }

    /// Forgets jobs that were put off and whose replacement or removal is no more: the pool was closed, or the disk left it.
    fn forget_put_off(&self) {
        let pools = self.open_pools();
        let is_filling = |pool: &OpenPool, target| {
            let inner = pool.spaces.pool();
            let fills = |(_, new): &(Rc<Disk>, Rc<Disk>)| new.id() == target;
            inner.replacements().iter().any(fills)
                || pool.spaces.drains().iter().any(|disk| disk.id() == target)
        };
        self.jobs.retain_put_off(|name, target| {
            pools.iter().any(|pool| pool.name() == name && is_filling(pool, target))
        });
    }

    pub(crate) async fn jobs(self: Rc<Self>) -> Answer<dolmen_api::Jobs> {
        self.forget_put_off();
        let jobs = self.jobs.list(self.seams.clock.now());
        Ok(dolmen_api::Jobs { schema: SCHEMA, jobs })
    }

    pub(crate) async fn job(self: Rc<Self>, id: u64) -> Answer<JobDocument> {
        self.forget_put_off();
        let entry = self.jobs.entries.borrow().get(&id).cloned();
        let entry = entry.ok_or_else(|| {
            ErrorBody::new(ErrorCode::NoSuchJob, format!("there is no job {id}, or it is forgotten already"))
                .on(id.to_string())
                .hint("`dolmen jobs` shows all of them")
        })?;
        Ok(JobDocument { schema: SCHEMA, job: entry.view(self.seams.clock.now()) })
    }

    /// Refuses another job while too many wait.
    pub(crate) fn check_job_room(&self, pool: &OpenPool) -> Answer<()> {
        let running = self.jobs.of_pool(&pool.name(), self.seams.clock.now()).len();
        if running >= RUNNING_MAX {
            let message =
                format!("pool {} has {running} jobs waiting already; nothing was begun", pool.name());
            return Err(ErrorBody::new(ErrorCode::Busy, message)
                .on(pool.name())
                .hint("wait until some have ended"));
        }
        Ok(())
    }
}
