//! What was asked of spaces and disks, and how long it took (docs/design/0017).
//!
//! All figures only grow while an object is counted, so whoever looks twice knows what came in between, and no watcher disturbs
//! another. An object whose `run` or `since_us` differs from that of the earlier look has begun to be counted again meanwhile.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What was asked of all spaces and disks of open pools.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Figures {
    /// [`SCHEMA`](crate::SCHEMA).
    pub schema: u32,
    /// Which run of the daemon this is: no two have the same.
    pub run: String,
    /// When this was seen, in microseconds since the daemon began.
    pub at_us: u64,
    /// By pool and name.
    pub spaces: Vec<SpaceFigures>,
    /// Disks that are here, by pool and slot.
    pub disks: Vec<DiskFigures>,
}

/// What clients asked of a space.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SpaceFigures {
    /// The pool that it lies on.
    pub pool: String,
    /// Its name.
    pub name: String,
    /// What was asked of it.
    pub load: Load,
}

/// What the engine asked of a disk: data, tables, log and labels, for clients, jobs and itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DiskFigures {
    /// The pool.
    pub pool: String,
    /// Its place in the pool.
    pub slot: u16,
    /// Its identity.
    pub id: String,
    /// Where it is.
    pub name: String,
    /// What was asked of it.
    pub load: Load,
}

/// What was asked of an object.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
pub struct Load {
    /// Since when it is counted, in microseconds since the daemon began.
    pub since_us: u64,
    /// Requests under way.
    pub under_way: u32,
    /// The sum of the times for which requests were under way: divided by the time that passed, how many there were on average.
    pub queue_us: u64,
    /// For how long there was one at least.
    pub busy_us: u64,
    /// Requests that failed.
    pub errors: u64,
    /// Reads that ended well.
    pub reads: IoFigures,
    /// Writes that ended well.
    pub writes: IoFigures,
    /// Discards that ended well, and of spaces what was to read as zeros from then on.
    pub discards: IoFigures,
    /// Flushes that ended well.
    pub flushes: IoFigures,
}

/// Requests of one kind.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
pub struct IoFigures {
    /// How many.
    pub count: u64,
    /// Bytes of them.
    pub bytes: u64,
    /// How long all of them took together, in microseconds.
    pub total_us: u64,
    /// How long each took: buckets that hold one at least, shortest first.
    pub latency: Vec<LatencyBucket>,
}

/// Requests that took about as long.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LatencyBucket {
    /// The longest that falls into it, in microseconds. The shortest is at most a sixteenth less.
    pub up_to_us: u64,
    /// How many there were.
    pub count: u64,
}
