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
//! Invariant: no request of a client waits for any of this, or fails for it. A pool that is full or read only is not recorded, and
//! says so.

use std::rc::{Rc, Weak};
use std::time::Duration;

use dolmen_block_io::{Clock, Seams, sleep};
use dolmen_history::{Level, Object, Recorder, Use, read_samples, write_sample};
use dolmen_pool::{PoolError, PoolState, keys};

use crate::base::Base;
use crate::jobs::{Jobs, seconds_now};
use crate::open_pool::OpenPool;
use crate::pools::saved_history::{has_log_room, points_of, saved_recorder, write};
use crate::state::{PoolRoom, Seen, Tail, Tails, object_of};

/// Seconds between two samples.
const SAMPLE_S: u64 = 10;
/// The pause between two saves of a pool that is used.
const SAVE_EVERY: Duration = Duration::from_secs(60);
/// The same of an idle one.
const SAVE_IDLE_EVERY: Duration = Duration::from_secs(24 * 3600);
/// Bytes of samples that wait in the file, at most: it is read as a whole.
const TAIL_BYTES_MAX: usize = 2 << 20;
/// How often the forecast reads what was used.
const USES_EVERY: Duration = Duration::from_secs(3600);

/// Samples pools, and saves their history.
pub(crate) struct Recordings {
    tails: Rc<Tails>,
    jobs: Rc<Jobs>,
    seams: Seams,
}

impl Recordings {
    pub(crate) fn new(base: &Base) -> Self {
        Self { tails: Rc::clone(&base.tails), jobs: Rc::clone(&base.jobs), seams: base.seams.clone() }
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
        pool.recording.tail_bytes.set(samples.len());
        let begun = self.tails.begin(pool.id(), Tail { saves, samples }).await;
        self.report_tail(pool, begun);
    }

    fn report_tail(&self, pool: &OpenPool, done: std::io::Result<()>) {
        if let Err(error) = done {
            tracing::warn!(pool = pool.name(), %error, "samples cannot be kept in the run folder; a daemon that is killed loses them");
        }
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
        let is_long = recording.tail_bytes.get() > TAIL_BYTES_MAX;
        // A save that the log has no room for is made once a checkpoint has emptied it.
        let is_time = is_used || since >= SAVE_IDLE_EVERY || is_long;
        if !is_time || !has_log_room(pool) {
            return;
        }
        let is_saved = self.save(pool).await;
        if is_long && !is_saved {
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
        recording.tail_bytes.set(recording.tail_bytes.get() + sample.len());
        let appended = self.tails.append(pool.id(), sample).await;
        self.report_tail(pool, appended);
    }

    /// Saves what is not saved. What cannot be saved stays in memory, as far as that is bounded. Returns whether all is saved.
    async fn save(&self, pool: &OpenPool) -> bool {
        let recording = &pool.recording;
        recording.saved_at.set(self.seams.clock.now());
        let saving = recording.recorder.borrow().as_ref().map(Recorder::save);
        let Some(saving) = saving else { return false };
        let index = saving.index.clone();
        match write(pool, saving).await {
            Ok(()) => {
                if recording.note_problem(None) {
                    tracing::info!(pool = pool.name(), "the history of the pool is recorded again");
                }
            }
            Err(error) => {
                if recording.note_problem(Some(error.to_string())) {
                    tracing::warn!(pool = pool.name(), %error, "the history of the pool is not recorded");
                }
                return false;
            }
        }
        recording.is_active.set(false);
        if let Some(recorder) = recording.recorder.borrow_mut().as_mut() {
            recorder.note_saved(&index);
        }
        self.begin_tail(pool, self.saves(pool), Vec::new()).await;
        true
    }

    /// Returns how many times the history of a pool was saved.
    fn saves(&self, pool: &OpenPool) -> u64 {
        pool.recording.recorder.borrow().as_ref().map_or(0, Recorder::saves)
    }

    /// Drops slots whose points are older than they are kept; the next save deletes them.
    async fn drop_old(&self, pool: &OpenPool) {
        let (recording, now_s) = (&pool.recording, seconds_now());
        let unchecked_ages = recording.recorder.borrow_mut().as_mut().map(|recorder| {
            recorder.check_ages_again(now_s);
            recorder.unchecked_ages()
        });
        for key in unchecked_ages.into_iter().flatten() {
            let Ok(slot) = pool.spaces.pool().map().get(&keys::history_slot(key.ring, key.sequence)).await
            else {
                continue;
            };
            if let Some(recorder) = recording.recorder.borrow_mut().as_mut() {
                recorder.check_age(key, slot.as_deref(), now_s);
            }
        }
    }

    /// Saves all history of a pool that is about to be closed, and records no more of it.
    pub(crate) async fn finish(&self, pool: &OpenPool) {
        let recording = &pool.recording;
        let _turn = recording.mutex.take().await;
        if pool.spaces.pool().state() == PoolState::Writable && recording.recorder.borrow().is_some() {
            self.sample(pool).await;
            if self.save(pool).await {
                self.tails.remove(pool.id()).await;
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
        let Ok(points) = points_of(pool, Object::Pool, Level::HOURS).await else { return };
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
