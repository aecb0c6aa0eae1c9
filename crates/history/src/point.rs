//! What an object did in a stretch of time, and how two stretches fold into one.

use crate::latencies::Latencies;

/// Something with a history.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Object {
    /// The pool: what clients asked of all its spaces, and the room that is used.
    Pool,
    /// A space, by its id.
    Space(u64),
    /// A disk, by a number made of its identity.
    Disk(u64),
}

/// The least and the most of the samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Span {
    /// Least.
    pub least: u64,
    /// Most.
    pub most: u64,
}

impl Span {
    fn add(&mut self, other: Self) {
        *self = Self { least: self.least.min(other.least), most: self.most.max(other.most) };
    }
}

/// Requests of one kind.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Requests {
    /// Number.
    pub count: u64,
    /// Bytes.
    pub bytes: u64,
    /// Sum of the times that they took, in microseconds.
    pub total_us: u64,
    /// Number by how long they took. Empty where it had no room.
    pub latencies: Latencies,
    /// Number a second, of the samples: the least rounded down, the most up.
    pub per_s: Span,
    /// Bytes a second, of the samples.
    pub bytes_per_s: Span,
}

impl Requests {
    /// Those of one sample of so many seconds.
    #[must_use]
    pub fn sampled(seconds: u64, count: u64, bytes: u64, total_us: u64, latencies: Latencies) -> Self {
        let span = |sum: u64| Span { least: sum / seconds.max(1), most: sum.div_ceil(seconds.max(1)) };
        Self { count, bytes, total_us, latencies, per_s: span(count), bytes_per_s: span(bytes) }
    }

    pub(crate) fn is_none(&self) -> bool {
        *self == Self::default()
    }

    /// Adds those of another stretch.
    pub fn add(&mut self, other: &Self) {
        self.count = self.count.saturating_add(other.count);
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.total_us = self.total_us.saturating_add(other.total_us);
        self.latencies.add(&other.latencies);
        self.per_s.add(other.per_s);
        self.bytes_per_s.add(other.bytes_per_s);
    }
}

/// Something that has a value at each moment, in KiB.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Gauge {
    /// Least of the samples.
    pub least: u64,
    /// Sum of the samples: divided by their number, the mean.
    pub sum: u64,
    /// Most of the samples.
    pub most: u64,
}

impl Gauge {
    /// That of one sample.
    #[must_use]
    pub fn sampled(kib: u64) -> Self {
        Self { least: kib, sum: kib, most: kib }
    }

    fn add(&mut self, other: Self) {
        self.least = self.least.min(other.least);
        self.sum = self.sum.saturating_add(other.sum);
        self.most = self.most.max(other.most);
    }
}

/// What an object did in a stretch of time.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Point {
    /// Samples in it.
    pub samples: u64,
    /// Seconds that these cover.
    pub seconds: u64,
    /// Reads.
    pub reads: Requests,
    /// Writes.
    pub writes: Requests,
    /// Requests that failed.
    pub errors: u64,
    /// Milliseconds in which a request was under way.
    pub busy_ms: u64,
    /// Sum of the times for which requests were under way, in milliseconds.
    pub queue_ms: u64,
    /// Room that is used.
    pub used: Gauge,
    /// Bytes that wait in write caches.
    pub waiting: Gauge,
    /// Room that there is, at the end, in KiB.
    pub size_kib: u64,
}

impl Point {
    /// Adds a later stretch.
    pub fn add(&mut self, other: &Self) {
        if other.samples == 0 {
            return;
        }
        if self.samples == 0 {
            self.clone_from(other);
            return;
        }
        self.samples = self.samples.saturating_add(other.samples);
        self.seconds = self.seconds.saturating_add(other.seconds);
        self.reads.add(&other.reads);
        self.writes.add(&other.writes);
        self.errors = self.errors.saturating_add(other.errors);
        self.busy_ms = self.busy_ms.saturating_add(other.busy_ms);
        self.queue_ms = self.queue_ms.saturating_add(other.queue_ms);
        self.used.add(other.used);
        self.waiting.add(other.waiting);
        self.size_kib = other.size_kib;
    }

    /// Mean of a gauge of this point, in KiB.
    #[must_use]
    pub fn mean(&self, gauge: Gauge) -> u64 {
        gauge.sum / self.samples.max(1)
    }

    /// The same without the numbers by how long requests took, where these have no room.
    pub(crate) fn without_latencies(&self) -> Self {
        let mut bare = self.clone();
        bare.reads.latencies = Latencies::default();
        bare.writes.latencies = Latencies::default();
        bare
    }
}
