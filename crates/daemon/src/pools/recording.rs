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

use std::collections::BTreeMap;
use std::rc::{Rc, Weak};
use std::time::Duration;

use dolmen_block_io::{Clock, Seams, sleep};
use dolmen_history::{
    Index, Level, Object, Point, Recorder, SLOT_BYTES_MAX, Saving, SlotKey, Use, budget_of, parse_slot,
    read_samples, write_sample,
};
use dolmen_pool::{PoolError, PoolState, Purpose, keys};

use crate::base::Base;
use crate::jobs::{Jobs, seconds_now};
use crate::open_pool::OpenPool;
use crate::rooms::yield_now;
use crate::state::{PoolRoom, Seen, Tail, Tails, object_of};

/// Seconds between two samples.
const SAMPLE_S: u64 = 10;
/// The pause between two saves of a pool that is used.
const SAVE_EVERY: Duration = Duration::from_secs(60);
/// The same of an idle one.
const SAVE_IDLE_EVERY: Duration = Duration::from_secs(24 * 3600);
/// Bytes of samples that wait in the file, at most: it is read as a whole.
const TAIL_BYTES_MAX: usize = 2 << 20;
/// Values of one change of the map, at most. The index and the names of slots come on top.
const CHANGE_BYTES_MAX: usize = 128 << 10;
/// Slots that one read of the map brings, at most.
const STEP: usize = 32;
/// How often the forecast reads what was used.
const USES_EVERY: Duration = Duration::from_secs(3600);

const _: () = assert!(CHANGE_BYTES_MAX > SLOT_BYTES_MAX, "a change holds a slot");

/// Samples pools, and saves their history.
pub(crate) struct Recordings {
    tails: Rc<Tails>,
    jobs: Rc<Jobs>,
    seams: Seams,
}

/// Whether a save may wait for room in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wait {
    ForRoom,
    Never,
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
        if pool.spaces.pool().state() == PoolState::Writable {
            self.begin_tail(pool, recorder.saves(), samples).await;
        }
        recording.recorder.replace(Some(recorder));
        recording.begin(look(pool), self.seams.clock.now());
        self.read_uses(pool).await;
    }

    /// Reads what was saved, and the samples that no save has: as bytes as well, whole ones alone.
    async fn loaded(&self, pool: &OpenPool) -> Result<(Recorder, Vec<u8>), PoolError> {
        let map = pool.spaces.pool().map();
        let index = match map.get(&keys::history_index()).await? {
            None => Index::default(),
            Some(bytes) => match Index::parse(&bytes) {
                Some(index) => index,
                None => rebuilt(pool).await?,
            },
        };
        let mut recorder = Recorder::load(&index, budget_of(map.pages_bytes().0));
        while let Some(key) = recorder.wanted() {
            // What cannot be read is history that is lost.
            let slot = map.get(&keys::history_slot(key.ring, key.sequence)).await.ok().flatten();
            recorder.recall(key, slot.as_deref());
            yield_now().await;
        }
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
        if pool.is_closing.get() || pool.spaces.pool().state() != PoolState::Writable {
            return;
        }
        self.sample(pool).await;
        let since = self.seams.clock.now().since(recording.saved_at.get());
        let is_used = recording.is_active.get() && since >= SAVE_EVERY;
        if is_used || since >= SAVE_IDLE_EVERY || recording.tail_bytes.get() > TAIL_BYTES_MAX {
            self.save(pool, Wait::ForRoom).await;
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
    async fn save(&self, pool: &OpenPool, wait: Wait) -> bool {
        let recording = &pool.recording;
        recording.saved_at.set(self.seams.clock.now());
        let saving = recording.recorder.borrow().as_ref().map(Recorder::save);
        let Some(saving) = saving else { return false };
        let index = saving.index.clone();
        match write(pool, saving, wait).await {
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
        let saves = recording.recorder.borrow_mut().as_mut().map(|recorder| {
            recorder.note_saved(&index);
            recorder.saves()
        });
        self.begin_tail(pool, saves.unwrap_or(0), Vec::new()).await;
        true
    }

    /// Drops slots whose points are older than they are kept; the next save deletes them.
    async fn drop_old(&self, pool: &OpenPool) {
        let (recording, now_s) = (&pool.recording, seconds_now());
        let unjudged = recording.recorder.borrow_mut().as_mut().map(|recorder| {
            recorder.judge_again(now_s);
            recorder.unjudged()
        });
        for key in unjudged.into_iter().flatten() {
            let Ok(slot) = pool.spaces.pool().map().get(&keys::history_slot(key.ring, key.sequence)).await
            else {
                continue;
            };
            if let Some(recorder) = recording.recorder.borrow_mut().as_mut() {
                recorder.judge(key, slot.as_deref(), now_s);
            }
        }
    }

    /// Saves all history of a pool that is about to be closed, and records no more of it.
    pub(crate) async fn finish(&self, pool: &OpenPool) {
        let recording = &pool.recording;
        let _turn = recording.mutex.take().await;
        if pool.spaces.pool().state() == PoolState::Writable && recording.recorder.borrow().is_some() {
            self.sample(pool).await;
            if self.save(pool, Wait::Never).await {
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

/// Finds the slots of a pool whose index is damaged.
async fn rebuilt(pool: &OpenPool) -> Result<Index, PoolError> {
    tracing::warn!(
        pool = pool.name(),
        "the index of the pool's history is damaged; it is made again of the slots"
    );
    let (mut range, mut found) = (keys::history_slots(), Vec::new());
    loop {
        let slots = pool.spaces.pool().map().scan(range.clone(), STEP).await?;
        let last = slots.last().and_then(|(key, _)| key.next()).filter(|_| slots.len() == STEP);
        for (key, _) in slots {
            let (_, ring, sequence) = keys::parts(&key);
            let ring = ring.checked_sub(1).and_then(|ring| u8::try_from(ring).ok());
            found.extend(ring.map(|ring| SlotKey { ring, sequence }));
        }
        match last {
            Some(next) => range.start = next,
            None => return Ok(Index::rebuilt(found)),
        }
        yield_now().await;
    }
}

/// Puts and deletes slots by as many changes of the map as that takes. The first has the index: what is cut short behind it is lost,
/// and not recorded twice.
async fn write(pool: &OpenPool, saving: Saving, wait: Wait) -> Result<(), PoolError> {
    let engine = pool.spaces.pool();
    let purpose = match wait {
        Wait::ForRoom => Purpose::Claim,
        // It neither waits nor takes what claims leave free.
        Wait::Never => Purpose::Move,
    };
    let full = || PoolError::MetadataFull { name: engine.name().clone() };
    let mut puts = saving.puts.into_iter().peekable();
    let (mut index, mut deletes) = (Some(saving.index.encode()), saving.deletes);
    while index.is_some() || puts.peek().is_some() {
        if !engine.map().has_room_for_claims() {
            return Err(full());
        }
        let mut change = engine.change(purpose).await;
        let mut bytes = 0;
        index.take().into_iter().for_each(|index| change.put(keys::history_index(), index));
        deletes
            .drain(..deletes.len().min(STEP * STEP))
            .for_each(|key| change.delete(keys::history_slot(key.ring, key.sequence)));
        while let Some((key, slot)) = puts.next_if(|(_, slot)| bytes + slot.len() <= CHANGE_BYTES_MAX) {
            bytes += slot.len();
            change.put(keys::history_slot(key.ring, key.sequence), slot);
        }
        change.commit().await?;
    }
    Ok(())
}

/// Returns the points of an object, complete or not, by time.
///
/// # Errors
/// [`PoolError`] when the map cannot be read.
pub(crate) async fn points_of(
    pool: &OpenPool,
    object: Object,
    level: Level,
) -> Result<BTreeMap<u64, Point>, PoolError> {
    let recording = &pool.recording;
    let mut points = BTreeMap::<u64, Point>::new();
    let found = recording.recorder.borrow().as_ref().map(|recorder| {
        // Both at one moment: a save moves points from the one to the other.
        (recorder.saved_slots(object, level), recorder.unsaved(object, level))
    });
    let Some(((ring, saved), unsaved)) = found else { return Ok(points) };
    let key = |sequence: u64| keys::history_slot(ring, sequence);
    let (mut range, end) = (key(saved.start)..key(saved.end), key(saved.end));
    while range.start < end {
        let slots = pool.spaces.pool().map().scan(range.clone(), STEP).await?;
        let last = slots.last().and_then(|(key, _)| key.next()).filter(|_| slots.len() == STEP);
        for (key, slot) in slots {
            let (_, _, sequence) = keys::parts(&key);
            let entries = parse_slot(&slot, SlotKey { ring, sequence }).into_iter().flatten();
            for entry in entries.filter(|entry| entry.object == object) {
                points.entry(entry.at_s).or_default().add(&entry.point);
            }
        }
        match last {
            Some(next) => range.start = next,
            None => break,
        }
        yield_now().await;
    }
    for (at_s, point) in unsaved {
        points.entry(at_s).or_default().add(&point);
    }
    Ok(points)
}
