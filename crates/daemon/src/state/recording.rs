//! What is recorded of an open pool, in memory: the recorder, and the looks that samples are made of.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::time::Duration;

use dolmen_block_io::sync::AsyncMutex;
use dolmen_block_io::{Figures, Instant, IoFigures};
use dolmen_checksum::crc64;
use dolmen_history::{Gauge, Latencies, Object, Point, Points, Recorder, Requests, Use};
use dolmen_units::DiskId;

use crate::ranks;
use crate::state::tail::Samples;

/// Returns the number of a disk in the history: it stays the same wherever the disk is.
pub(crate) fn object_of(disk: DiskId) -> Object {
    Object::Disk(crc64(&disk.0))
}

/// Returns whole KiB of a number of bytes.
pub(crate) fn kib(bytes: u64) -> u64 {
    bytes / 1024
}

/// What is recorded of a pool.
pub(crate) struct Recording {
    /// Whoever samples, saves or loads has it.
    pub(crate) mutex: AsyncMutex,
    /// None before history is loaded, and after the last save.
    pub(crate) recorder: RefCell<Option<Recorder>>,
    looks: RefCell<BTreeMap<Object, Figures>>,
    pub(crate) sampled_at: Cell<Instant>,
    pub(crate) saved_at: Cell<Instant>,
    /// Whether clients or jobs did anything since the last save.
    pub(crate) is_active: Cell<bool>,
    /// Samples since the last save.
    pub(crate) samples: Samples,
    /// Whether the map has no slot that the index does not name, but those which a save is putting.
    pub(crate) is_swept: Cell<bool>,
    /// Whether a save was broken off, and goes on.
    pub(crate) goes_on: Cell<bool>,
    /// Bytes that waited in write caches at the last look.
    pub(crate) waiting: Cell<u64>,
    /// Room that was used, for the forecast, and when it was read.
    pub(crate) uses: RefCell<Vec<Use>>,
    pub(crate) uses_at: Cell<Option<Instant>>,
    /// Why nothing is saved.
    pub(crate) problem: RefCell<Option<String>>,
}

impl Default for Recording {
    fn default() -> Self {
        Self {
            mutex: AsyncMutex::ranked(ranks::RECORDING.single()),
            recorder: RefCell::default(),
            looks: RefCell::default(),
            sampled_at: Cell::new(Instant(0)),
            saved_at: Cell::new(Instant(0)),
            is_active: Cell::default(),
            samples: Samples::default(),
            is_swept: Cell::default(),
            goes_on: Cell::default(),
            waiting: Cell::default(),
            uses: RefCell::default(),
            uses_at: Cell::default(),
            problem: RefCell::default(),
        }
    }
}

impl Recording {
    /// Notes why nothing is saved, or that it is. Returns whether that is news.
    pub(crate) fn note_problem(&self, problem: Option<String>) -> bool {
        let is_news = *self.problem.borrow() != problem;
        self.problem.replace(problem);
        is_news
    }

    /// Begins to count from these looks on.
    pub(crate) fn begin(&self, looks: Vec<Seen>, now: Instant) {
        self.looks.replace(looks.into_iter().map(|seen| (seen.object, seen.figures)).collect());
        self.sampled_at.set(now);
        self.saved_at.set(now);
    }

    /// Returns the samples since the last looks, which these replace; `None` where no second has passed. The pool has what its spaces
    /// have together.
    pub(crate) fn sample(&self, looks: Vec<Seen>, pool: PoolRoom, now: Instant) -> Option<(u64, Points)> {
        let passed = now.since(self.sampled_at.get()) + Duration::from_millis(500);
        let seconds = passed.as_secs();
        if seconds == 0 {
            return None;
        }
        self.sampled_at.set(now);
        let (mut points, mut of_pool, mut next) = (Points::new(), Sums::default(), BTreeMap::new());
        let mut looked = self.looks.borrow_mut();
        for Seen { object, figures, used, size } in looks {
            let sums = Sums::since(&figures, looked.get(&object));
            if matches!(object, Object::Space(_)) {
                of_pool.add(&sums);
            }
            let room = Point { used: Gauge::sampled(kib(used)), size_kib: kib(size), ..Point::default() };
            points.insert(object, sums.point(seconds, room));
            next.insert(object, figures);
        }
        *looked = next;
        let room = Point {
            used: Gauge::sampled(kib(pool.used)),
            waiting: Gauge::sampled(kib(pool.waiting)),
            size_kib: kib(pool.size),
            ..Point::default()
        };
        points.insert(Object::Pool, of_pool.point(seconds, room));
        Some((seconds, points))
    }
}

/// What an object was seen at.
pub(crate) struct Seen {
    pub(crate) object: Object,
    pub(crate) figures: Figures,
    /// Bytes of it that are used.
    pub(crate) used: u64,
    /// Bytes that it has.
    pub(crate) size: u64,
}

/// Room of a pool, in bytes on all disks.
pub(crate) struct PoolRoom {
    pub(crate) used: u64,
    pub(crate) size: u64,
    pub(crate) waiting: u64,
}

/// Sums of what came between two looks.
#[derive(Default)]
struct Sums {
    reads: KindSums,
    writes: KindSums,
    errors: u64,
    busy_ms: u64,
    queue_ms: u64,
}

#[derive(Default)]
struct KindSums {
    count: u64,
    bytes: u64,
    total_us: u64,
    latencies: Latencies,
}

impl KindSums {
    fn since(now: &IoFigures, before: Option<&IoFigures>) -> Self {
        let latency = before.map_or_else(|| now.latency.clone(), |before| now.latency.since(&before.latency));
        Self {
            count: latency.count(),
            bytes: now.bytes.saturating_sub(before.map_or(0, |before| before.bytes)),
            total_us: latency.total_us(),
            latencies: Latencies::of(latency.counts()),
        }
    }

    fn add(&mut self, other: &Self) {
        self.count += other.count;
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.total_us = self.total_us.saturating_add(other.total_us);
        self.latencies.add(&other.latencies);
    }

    fn requests(self, seconds: u64) -> Requests {
        Requests::sampled(seconds, self.count, self.bytes, self.total_us, self.latencies)
    }
}

impl Sums {
    /// All of it came since, where another meter counts it.
    fn since(now: &Figures, before: Option<&Figures>) -> Self {
        let before = before.filter(|before| before.since == now.since);
        let ms = |time: Duration, before: Option<Duration>| {
            u64::try_from(time.saturating_sub(before.unwrap_or_default()).as_millis()).unwrap_or(u64::MAX)
        };
        Self {
            reads: KindSums::since(&now.reads, before.map(|before| &before.reads)),
            writes: KindSums::since(&now.writes, before.map(|before| &before.writes)),
            errors: now.errors.saturating_sub(before.map_or(0, |before| before.errors)),
            busy_ms: ms(now.busy, before.map(|before| before.busy)),
            queue_ms: ms(now.queue, before.map(|before| before.queue)),
        }
    }

    /// Adds those of another object. What is busy at the same time adds up to no time.
    fn add(&mut self, other: &Self) {
        self.reads.add(&other.reads);
        self.writes.add(&other.writes);
        self.errors += other.errors;
        self.queue_ms = self.queue_ms.saturating_add(other.queue_ms);
        self.busy_ms = self.busy_ms.max(other.busy_ms);
    }

    fn point(self, seconds: u64, room: Point) -> Point {
        Point {
            samples: 1,
            seconds,
            reads: self.reads.requests(seconds),
            writes: self.writes.requests(seconds),
            errors: self.errors,
            busy_ms: self.busy_ms,
            queue_ms: self.queue_ms,
            ..room
        }
    }
}
