//! History of pools, spaces and disks, and when a pool is full (docs/design/0040).

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The query of a question about history.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct HistoryQuery {
    /// `pool`, `space` or `disk`; `pool` without it.
    #[serde(default)]
    pub of: Option<String>,
    /// Name of the space; path, id, its first digits, or slot of the disk.
    #[serde(default)]
    pub name: Option<String>,
    /// First moment, in seconds since 1970; an hour before the last without it.
    #[serde(default)]
    pub from_s: Option<u64>,
    /// Last moment; now without it.
    #[serde(default)]
    pub to_s: Option<u64>,
    /// Seconds of a point, at least: of 10, 60, 600, 3,600 and 86,400 the first that is no less. Without it, the least of which points
    /// are kept that far back, and few enough fit into an answer.
    #[serde(default)]
    pub step_s: Option<u64>,
}

impl HistoryQuery {
    /// Points of an answer, at most.
    pub const POINTS_MAX: u64 = 1500;
}

/// History of a pool, a space or a disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct History {
    /// [`SCHEMA`](crate::SCHEMA).
    pub schema: u32,
    /// The pool.
    pub pool: String,
    /// `pool`, `space` or `disk`.
    pub of: String,
    /// Name of the space, path of the disk; that of the pool otherwise.
    pub name: String,
    /// First moment, in seconds since 1970.
    pub from_s: u64,
    /// Last moment.
    pub to_s: u64,
    /// Seconds of a point.
    pub step_s: u64,
    /// Points, by time. Where nothing was recorded, there is none.
    pub points: Vec<HistoryPoint>,
    /// Why nothing is recorded now; left out where it is.
    #[serde(default)]
    pub problem: Option<String>,
}

/// What an object did in a stretch of time.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
pub struct HistoryPoint {
    /// When it begins, in seconds since 1970.
    pub at_s: u64,
    /// Seconds of it that were recorded: sums divided by them are means.
    pub covered_s: u64,
    /// Reads.
    pub reads: HistoryRequests,
    /// Writes.
    pub writes: HistoryRequests,
    /// Requests that failed.
    pub errors: u64,
    /// Milliseconds in which a request was under way; of a pool, those of its busiest space at each moment.
    pub busy_ms: u64,
    /// Sum of the times for which requests were under way: divided by the time that was recorded, how many there were on average.
    pub queue_ms: u64,
    /// Bytes that were used: by slabs on all disks, of a space those that are claimed, of a disk those of its slabs.
    pub used: HistoryBytes,
    /// Bytes that waited in write caches, of a pool.
    pub waiting: HistoryBytes,
    /// Bytes that there were at the end.
    pub size_bytes: u64,
}

/// Reads or writes.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
pub struct HistoryRequests {
    /// How many.
    pub count: u64,
    /// Bytes of them.
    pub bytes: u64,
    /// Number a second in the ten seconds with the fewest.
    pub per_s_min: u64,
    /// The same in those with the most.
    pub per_s_max: u64,
    /// Bytes a second in the ten seconds with the fewest.
    pub bytes_per_s_min: u64,
    /// The same in those with the most.
    pub bytes_per_s_max: u64,
    /// How long one took on average, in microseconds; left out of none.
    #[serde(default)]
    pub average_us: Option<u64>,
    /// The time that half of them did not exceed, at most a quarter too long.
    #[serde(default)]
    pub p50_us: Option<u64>,
    /// The same of 99 in a hundred.
    #[serde(default)]
    pub p99_us: Option<u64>,
}

/// Bytes over a stretch of time.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
pub struct HistoryBytes {
    /// Least.
    pub min: u64,
    /// Mean.
    pub mean: u64,
    /// Most.
    pub max: u64,
}

/// Whether a pool fills.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum FillState {
    /// Its history is shorter than two days.
    #[default]
    Unknown,
    /// It does not fill, or not within ten years.
    Steady,
    /// It fills.
    Filling,
}

/// When a pool is full, as far as its history says.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
pub struct FillForecast {
    /// Whether it fills.
    pub state: FillState,
    /// When it is full at the mean rate of the last four weeks, in seconds since 1970; left out unless it fills.
    #[serde(default)]
    pub full_at_s: Option<u64>,
    /// The same at a rate of two standard errors more.
    #[serde(default)]
    pub earliest_s: Option<u64>,
    /// The same at a rate of two standard errors less; left out where it does not fill at that.
    #[serde(default)]
    pub latest_s: Option<u64>,
}
