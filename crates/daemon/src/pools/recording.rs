//! History of pools: sampled every ten seconds, and saved in the map of each pool, so that it moves with it (docs/design/0040).
//!
//! ```text
//! meters ─ sample, every 10 s ─ recorder, in memory
//!                        └────── file in the run folder            a daemon that is killed loses 10 s at most
//! save ─ changes of the map, then the file begins again
//!        each minute in which clients or jobs do something; once a day else; when the pool is closed
//! ```
//!
//! Invariant: an idle pool writes nothing to its disks for its history, but once a day.
//!
//! Invariant: no request of a client waits for any of this, or fails for it: the log is looked at before each change of a save, and
//! what it has no room for goes on with the next sample. A pool that is full or read only is not recorded, and says so.

use std::rc::{Rc, Weak};
use std::time::Duration;

use dolmen_block_io::sync::yield_now;
use dolmen_block_io::{Clock, Seams, sleep};
use dolmen_history::{Level, Object, Question, Recorder, Use, read_samples, write_sample};
use dolmen_pool::{PoolError, PoolState, keys};

use crate::base::Base;
use crate::jobs::{Jobs, seconds_now};
use crate::open_pool::OpenPool;
use crate::pools::history_reads::HistoryReads;
use crate::pools::saved_history::{self, Saved, delete_rest, has_log_room, saved_recorder};
use crate::state::{PoolRoom, Seen, Tail, TailLoss, Tails, object_of};

/// Seconds between two samples.
const SAMPLE_S: u64 = 10;
/// The pause between two saves of a pool that is used.
const SAVE_EVERY: Duration = Duration::from_secs(60);
/// The same of an idle one.
const SAVE_IDLE_EVERY: Duration = Duration::from_secs(24 * 3600);
/// Bytes of samples that wait in the file, at most: it is read as a whole.
const TAIL_BYTES_MAX: usize = 2 << 20;
/// Checkpoints that the last save of a pool has made for room in the log, at most.
const CHECKPOINTS_MAX: usize = 8;
/// Seconds back that the forecast reads: what is older says nothing of today.
const USES_S: u64 = 28 * 86_400;
/// How often the forecast reads what was used.
const USES_EVERY: Duration = Duration::from_secs(3600);

/// Samples pools, and saves their history.
pub(crate) struct Recordings {
    tails: Rc<Tails>,
    jobs: Rc<Jobs>,
    reads: Rc<HistoryReads>,
    seams: Seams,
}

impl Recordings {
    pub(crate) fn new(base: &Base) -> Self {
        Self {
            tails: Rc::clone(&base.tails),
            jobs: Rc::clone(&base.jobs),
            reads: Rc::clone(&base.history_reads),
            seams: base.seams.clone(),
        }
    }

    /// Loads the history of a pool, and records it for as long as it is open for writing.
    pub(crate) fn begin(self: &Rc<Self>, pool: &Rc<OpenPool>) {
        let task = record(Rc::downgrade(self), Rc::downgrade(pool), Rc::clone(&self.seams.clock));
        self.seams.spawner.spawn("history", Box::pin(task));
    }

    async fn load(&self, pool: &OpenPool) {
        let recording = &pool.recording;
        let _turn = recording.mutex.take().await;
        let (recorder, samples) = match self.loaded(pool).await {
            Ok(loaded) => loaded,
            Err(error) => {
                tracing::warn!(pool = pool.name(), %error, "the history of the pool cannot be read; none is recorded");
                recording.note_problem(Some(format!("the history cannot be read: {error}")));
                return;
            }
        };
        match pool.spaces.pool().state() {
            PoolState::Writable => self.begin_tail(pool, recorder.saves(), samples).await,
            PoolState::ReadOnly(_) => {
                let problem = "the pool is open for reading only".to_owned();
                recording.note_problem(Some(problem));
            }
            PoolState::Latched(_) => {}
        }
        recording.recorder.replace(Some(recorder));
        recording.begin(look(pool), self.seams.clock.now());
        self.read_uses(pool).await;
    }

    /// Reads what was saved, and the samples that no save has: as bytes as well, whole ones alone.
    async fn loaded(&self, pool: &OpenPool) -> Result<(Recorder, Vec<u8>), PoolError> {
        let mut recorder = saved_recorder(pool).await?;
        let tail = self.tails.read(pool.id()).await.filter(|tail| tail.saves == recorder.saves());
        let mut samples = Vec::new();
        for sample in tail.iter().flat_map(|tail| read_samples(&tail.samples)) {
            recorder.note(sample.at_s, &sample.points);
            samples.extend(write_sample(sample.at_s, &sample.points));
            pool.recording.is_active.set(true);
        }
        Ok((recorder, samples))
    }

    /// Begins the file of samples that come after a save, with those that a daemon before has left.
    async fn begin_tail(&self, pool: &OpenPool, saves: u64, samples: Vec<u8>) {
        let tail = Tail { saves, samples };
        report(pool, pool.recording.samples.begin(&self.tails, pool.id(), tail).await);
    }

    /// Takes a sample, and saves if it is time to.
    async fn tick(&self, pool: &OpenPool) {
        let recording = &pool.recording;
        let _turn = recording.mutex.take().await;
        if pool.is_closing.get() {
            return;
        }
        if let PoolState::Latched(cause) = pool.spaces.pool().state() {
            recording.note_problem(Some(format!("the pool has stopped: {cause}")));
        }
        if pool.spaces.pool().state() != PoolState::Writable {
            return;
        }
        self.sample(pool).await;
        let since = self.seams.clock.now().since(recording.saved_at.get());
        let is_used = recording.is_active.get() && since >= SAVE_EVERY;
        let waits = recording.samples.len();
        let is_time =
            is_used || since >= SAVE_IDLE_EVERY || waits > TAIL_BYTES_MAX || recording.goes_on.get();
        // A save that the log has no room for is made once a checkpoint has emptied it.
        if is_time && has_log_room(pool) {
            let is_failed = self.save(pool).await.is_none();
            if is_failed && waits > TAIL_BYTES_MAX {
                self.begin_tail(pool, self.saves(pool), Vec::new()).await;
            }
        } else if let Err(error) = delete_rest(pool, || has_log_room(pool)).await {
            tracing::debug!(pool = pool.name(), %error, "old history stays in the map until a save deletes it");
        }
        if recording.samples.len() > 2 * TAIL_BYTES_MAX {
            // The log has had no room for long.
            self.begin_tail(pool, self.saves(pool), Vec::new()).await;
        }
    }

    async fn sample(&self, pool: &OpenPool) {
        let recording = &pool.recording;
        if recording.recorder.borrow().is_none() {
            return;
        }
        if recording.is_active.get()
            && let Ok(caches) = pool.spaces.caches().write_caches().await
        {
            recording.waiting.set(caches.iter().map(|cache| cache.waiting.0).sum());
        }
        let room = PoolRoom {
            used: pool.spaces.pool().free_space().used().0,
            size: pool.spaces.pool().disks().iter().map(|disk| disk.data_bytes().0).sum(),
            waiting: recording.waiting.get(),
        };
        let Some((seconds, points)) = recording.sample(look(pool), room, self.seams.clock.now()) else {
            return;
        };
        let at_s = seconds_now().saturating_sub(seconds.div_ceil(2));
        let is_asked =
            points.get(&Object::Pool).is_some_and(|point| point.reads.count + point.writes.count > 0);
        if is_asked || !self.jobs.at_work(pool.id()).is_empty() {
            recording.is_active.set(true);
        }
        if let Some(recorder) = recording.recorder.borrow_mut().as_mut() {
            recorder.note(at_s, &points);
        }
        let sample = write_sample(at_s, &points);
        report(pool, recording.samples.add(&self.tails, pool.id(), sample).await);
    }

    /// Saves what is not saved, as far as the log has room for it. What cannot be saved stays in memory, as far as that is bounded.
    /// Returns how far it came, if it has not failed.
    async fn save(&self, pool: &OpenPool) -> Option<Saved> {
        let recording = &pool.recording;
        if recording.recorder.borrow().is_none() {
            return None;
        }
        let saved = saved_history::save(pool, || has_log_room(pool)).await;
        recording.goes_on.set(matches!(saved, Ok(Saved::InPart)));
        if recording.goes_on.get() {
            return Some(Saved::InPart);
        }
        recording.saved_at.set(self.seams.clock.now());
        match saved {
            Ok(_) => {
                if recording.note_problem(None) {
                    tracing::info!(pool = pool.name(), "the history of the pool is recorded again");
                }
            }
            Err(error) => {
                if recording.note_problem(Some(error.to_string())) {
                    tracing::warn!(pool = pool.name(), %error, "the history of the pool is not recorded");
                }
                return None;
            }
        }
        recording.is_active.set(false);
        self.begin_tail(pool, self.saves(pool), Vec::new()).await;
        Some(Saved::All)
    }

    /// Returns how many times the history of a pool was saved.
    fn saves(&self, pool: &OpenPool) -> u64 {
        pool.recording.recorder.borrow().as_ref().map_or(0, Recorder::saves)
    }

    /// Drops all slots whose points are older than they are kept; the next save deletes them.
    async fn drop_old(&self, pool: &OpenPool) {
        let (recorder, now_s) = (&pool.recording.recorder, seconds_now());
        if let Some(recorder) = recorder.borrow_mut().as_mut() {
            recorder.check_ages_again(now_s);
        }
        let next = || recorder.borrow().as_ref()?.unchecked_ages().first().copied();
        while let Some(key) = next() {
            let slot = pool.spaces.pool().map().get(&keys::history_slot(key.ring, key.sequence)).await;
            let Ok(slot) = slot else { return };
            if let Some(recorder) = recorder.borrow_mut().as_mut() {
                recorder.check_age(key, slot.as_deref(), now_s);
            }
            yield_now().await;
        }
    }

    /// Saves all history of a pool that is about to be closed, and records no more of it.
    pub(crate) async fn finish(&self, pool: &OpenPool) {
        let recording = &pool.recording;
        let _turn = recording.mutex.take().await;
        if pool.spaces.pool().state() == PoolState::Writable && recording.recorder.borrow().is_some() {
            self.sample(pool).await;
            for _ in 0..CHECKPOINTS_MAX {
                match self.save(pool).await {
                    Some(Saved::InPart) => {}
                    Some(Saved::All) => {
                        self.tails.remove(pool.id()).await;
                        break;
                    }
                    None => break,
                }
                // Whoever closes the pool empties its log anyway.
                if pool.spaces.pool().checkpoint().await.is_err() {
                    break;
                }
            }
        }
        recording.recorder.replace(None);
    }

    /// Reads what the forecast is made of.
    async fn read_uses(&self, pool: &OpenPool) {
        let now = self.seams.clock.now();
        let recording = &pool.recording;
        if recording.uses_at.get().is_some_and(|at| now.since(at) < USES_EVERY) {
            return;
        }
        let now_s = seconds_now();
        let from_s = now_s.saturating_sub(USES_S);
        let question = Question { object: Object::Pool, level: Level::HOURS, from_s, to_s: now_s };
        let Ok(points) = self.reads.points_of(pool, question).await else { return };
        let uses = points.into_iter().map(|(at_s, point)| Use { at_s, used: point.mean(point.used) });
        recording.uses.replace(uses.collect());
        recording.uses_at.set(Some(now));
    }
}

/// Samples a pool for as long as it is open.
async fn record(recordings: Weak<Recordings>, pool: Weak<OpenPool>, clock: Rc<dyn Clock>) {
    let Some((service, open)) = recordings.upgrade().zip(pool.upgrade()) else { return };
    service.load(&open).await;
    drop((service, open));
    loop {
        sleep(clock.as_ref(), Duration::from_secs(SAMPLE_S - seconds_now() % SAMPLE_S)).await;
        let Some((service, pool)) = recordings.upgrade().zip(pool.upgrade()) else { return };
        if pool.is_closing.get() {
            return;
        }
        let saved_at = pool.recording.saved_at.get();
        service.tick(&pool).await;
        if pool.recording.saved_at.get() != saved_at {
            service.drop_old(&pool).await;
            service.read_uses(&pool).await;
        }
    }
}

/// Reports that the file of samples was lost.
fn report(pool: &OpenPool, loss: Option<TailLoss>) {
    match loss {
        None => {}
        Some(TailLoss::BegunAgain(error)) => {
            tracing::warn!(pool = pool.name(), %error, "samples in the run folder were lost; the file was begun again with all of them");
        }
        Some(TailLoss::Stays(error)) => {
            tracing::warn!(pool = pool.name(), %error, "samples cannot be kept in the run folder; a daemon that is killed loses them");
        }
    }
}

/// Looks at everything of a pool that has figures.
fn look(pool: &OpenPool) -> Vec<Seen> {
    let rooms = pool.spaces.pool().free_space().room();
    let spaces = pool.spaces.list().into_iter().map(|space| Seen {
        object: Object::Space(space.id().0),
        figures: space.figures(),
        used: space.claimed().0,
        size: space.size().0,
    });
    let disks = pool.spaces.pool().disks().into_iter().filter_map(|disk| {
        let figures = disk.device()?.meter()?.look();
        let room = rooms.iter().find(|room| room.slot == disk.slot())?;
        let used = room.data.0.saturating_sub(room.free.0);
        Some(Seen { object: object_of(disk.id()), figures, used, size: room.data.0 })
    });
    spaces.chain(disks).collect()
}
