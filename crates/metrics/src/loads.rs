//! Load of spaces and disks: counts, bytes, latency, queues.

use dolmen_api::{Figures, IoFigures, Load};

use crate::family::Family;
use crate::histogram::Folded;
use crate::text::{Number, Text};

/// Families of one kind of request. Flushes have no bytes.
struct OfRequests {
    count: Family,
    bytes: Option<Family>,
    duration: Family,
}

/// Families of the load of an object.
struct OfLoad {
    reads: OfRequests,
    writes: OfRequests,
    discards: OfRequests,
    flushes: OfRequests,
    failed: Family,
    depth: Family,
    queue: Family,
    busy: Family,
}

const fn requests(count: Family, bytes: Family, duration: Family) -> OfRequests {
    OfRequests { count, bytes: Some(bytes), duration }
}

const OF_SPACES: OfLoad = OfLoad {
    reads: requests(Family::SpaceReads, Family::SpaceReadBytes, Family::SpaceReadDuration),
    writes: requests(Family::SpaceWrites, Family::SpaceWrittenBytes, Family::SpaceWriteDuration),
    discards: requests(Family::SpaceDiscards, Family::SpaceDiscardBytes, Family::SpaceDiscardDuration),
    flushes: OfRequests { count: Family::SpaceFlushes, bytes: None, duration: Family::SpaceFlushDuration },
    failed: Family::SpaceFailedRequests,
    depth: Family::SpaceQueueDepth,
    queue: Family::SpaceQueueSeconds,
    busy: Family::SpaceBusySeconds,
};

const OF_DISKS: OfLoad = OfLoad {
    reads: requests(Family::DiskReads, Family::DiskReadBytes, Family::DiskReadDuration),
    writes: requests(Family::DiskWrites, Family::DiskWrittenBytes, Family::DiskWriteDuration),
    discards: requests(Family::DiskDiscards, Family::DiskDiscardBytes, Family::DiskDiscardDuration),
    flushes: OfRequests { count: Family::DiskFlushes, bytes: None, duration: Family::DiskFlushDuration },
    failed: Family::DiskFailedCommands,
    depth: Family::DiskQueueDepth,
    queue: Family::DiskQueueSeconds,
    busy: Family::DiskBusySeconds,
};

pub(crate) fn put(text: &mut Text, figures: &Figures) {
    for space in &figures.spaces {
        put_load(text, &OF_SPACES, [&space.pool, &space.name], &space.load);
    }
    for disk in &figures.disks {
        put_load(text, &OF_DISKS, [&disk.pool, &disk.slot.to_string()], &disk.load);
    }
}

fn put_load(text: &mut Text, of: &OfLoad, at: [&str; 2], load: &Load) {
    put_requests(text, &of.reads, at, &load.reads);
    put_requests(text, &of.writes, at, &load.writes);
    put_requests(text, &of.discards, at, &load.discards);
    put_requests(text, &of.flushes, at, &load.flushes);
    text.put(of.failed, &at, load.errors);
    text.put(of.depth, &at, u64::from(load.under_way));
    text.put(of.queue, &at, Number::Micros(load.queue_us));
    text.put(of.busy, &at, Number::Micros(load.busy_us));
}

fn put_requests(text: &mut Text, of: &OfRequests, at: [&str; 2], io: &IoFigures) {
    text.put(of.count, &at, io.count);
    if let Some(bytes) = of.bytes {
        text.put(bytes, &at, io.bytes);
    }
    text.put_histogram(of.duration, &at, Folded::of(io));
}
