//! Benchmarks of spaces: profiles, runs and reports.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Measures a space under load. Profiles that write overwrite it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct BenchSpace {
    /// A second space, as POOL/SPACE: it is compared with the first.
    #[serde(default)]
    pub against: Option<String>,
    /// Profiles, or groups of them; usually `load`.
    #[serde(default)]
    pub profiles: Vec<String>,
    /// Bytes of each space that are used, at most; usually 32 GiB.
    #[serde(default)]
    pub size_bytes: Option<u64>,
    /// Rounds; usually 3, and 5 with two spaces.
    #[serde(default)]
    pub rounds: Option<u32>,
    /// Seconds that each load is measured; usually 10.
    #[serde(default)]
    pub runtime_s: Option<u32>,
    /// Outstanding I/Os in place of those of the profiles.
    #[serde(default)]
    pub outstanding: Vec<u32>,
    /// Names of all measured spaces as POOL/SPACE, to confirm that their content is lost; for profiles that write.
    #[serde(default)]
    pub destroy: Vec<String>,
    /// Only tell what would happen.
    #[serde(default)]
    pub dry_run: bool,
}

/// Profile of load.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BenchmarkProfile {
    /// Its name.
    pub name: String,
    /// Group that it belongs to; absent in a report.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// What it stands for.
    pub title: String,
    /// Its load in words.
    pub summary: String,
    /// Percent of reads. Below 100, it overwrites what it runs on.
    pub reads_percent: u8,
}

/// Group of profiles.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BenchmarkGroup {
    /// Its name.
    pub name: String,
    /// What its profiles have in common.
    pub title: String,
}

/// Benchmark under way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BenchmarkWork {
    /// Number of its job.
    pub job: u64,
    /// Step that it is at, in words; absent before the first.
    #[serde(default)]
    pub step: Option<String>,
    /// Measurements done.
    pub done: u64,
    /// Measurements in all.
    pub total: u64,
    /// Seconds that it may still take, as far as that is known.
    #[serde(default)]
    pub left_s: Option<u64>,
}

/// Report in the list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BenchmarkSummary {
    /// Number of the job that measured.
    pub job: u64,
    /// Spaces, as POOL/SPACE.
    pub spaces: Vec<String>,
    /// Names of its profiles.
    pub profiles: Vec<String>,
    /// Begin, in seconds since 1970.
    pub started_s: u64,
    /// Points that were measured.
    pub points: u64,
    /// Whether everything was measured.
    pub is_complete: bool,
}

/// Profiles, the benchmark under way, and reports that are kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Benchmarks {
    /// [`SCHEMA`](crate::SCHEMA).
    pub schema: u32,
    /// Groups of profiles.
    pub groups: Vec<BenchmarkGroup>,
    /// Profiles.
    pub profiles: Vec<BenchmarkProfile>,
    /// Benchmark under way.
    #[serde(default)]
    pub work: Option<BenchmarkWork>,
    /// Reports, the newest first; 20 at most.
    pub reports: Vec<BenchmarkSummary>,
}

/// Measured space.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BenchmarkTarget {
    /// Its name, as POOL/SPACE.
    pub name: String,
    /// What the load was sent to.
    pub what: String,
    /// Bytes of it that were used.
    pub working_set_bytes: u64,
    /// Remarks about caches.
    pub notes: Vec<String>,
}

/// Figure of several rounds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct BenchmarkFigure {
    /// Median of the rounds.
    pub median: f64,
    /// The least.
    pub least: f64,
    /// The largest.
    pub most: f64,
    /// Largest less least, in percent of the median; absent with one round.
    #[serde(default)]
    pub spread_percent: Option<f64>,
}

/// All rounds of one load on one space. Latencies are medians of the rounds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct BenchmarkPoint {
    /// Name of the profile.
    pub profile: String,
    /// Space, as POOL/SPACE.
    pub target: String,
    /// Flushes beside writes: `none`, `every 32` or `end`.
    pub flush: String,
    /// Outstanding I/Os of all workers.
    pub outstanding: u64,
    /// Bytes of the file that was read or written once; absent otherwise.
    #[serde(default)]
    pub file_bytes: Option<u64>,
    /// Rounds.
    pub rounds: u64,
    /// I/Os a second.
    pub ios_per_s: BenchmarkFigure,
    /// Bytes a second.
    pub bytes_per_s: BenchmarkFigure,
    /// Mean latency.
    pub mean_ns: f64,
    /// Latency within which 50 % of the I/Os were done.
    pub p50_ns: f64,
    /// Of 95 %.
    pub p95_ns: f64,
    /// Of 99 %.
    pub p99_ns: f64,
    /// Of 99.9 %.
    pub p999_ns: f64,
    /// Writes for each flush, as they happened; absent without flushes.
    #[serde(default)]
    pub writes_per_flush: Option<f64>,
    /// Whether the rounds lie too far apart.
    pub is_noisy: bool,
}

/// Load with the greatest power of a curve: throughput divided by mean latency.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BenchmarkKnee {
    /// Name of the profile.
    pub profile: String,
    /// Space, as POOL/SPACE.
    pub target: String,
    /// Flushes beside writes.
    pub flush: String,
    /// Outstanding I/Os; absent where the curve was not followed that far.
    #[serde(default)]
    pub outstanding: Option<u64>,
}

/// Ratio of the rates of two spaces, round by round.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct BenchmarkRatio {
    /// Median of the rounds.
    pub median: f64,
    /// The least.
    pub least: f64,
    /// The largest.
    pub most: f64,
    /// Verdict: `faster`, `slower`, `equal`, `too_noisy`, `too_few_rounds` or `other_flushes`.
    pub verdict: String,
}

/// A space against the first one, under one load.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct BenchmarkComparison {
    /// Name of the profile.
    pub profile: String,
    /// Space, as POOL/SPACE.
    pub target: String,
    /// The first one.
    pub against: String,
    /// Flushes beside writes.
    pub flush: String,
    /// Outstanding I/Os of all workers.
    pub outstanding: u64,
    /// Bytes of the file that was read or written once; absent otherwise.
    #[serde(default)]
    pub file_bytes: Option<u64>,
    /// Rates of the space divided by those of the first one.
    pub ratio: BenchmarkRatio,
}

/// Figures of a benchmark.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct BenchmarkFigures {
    /// Whether everything was measured.
    pub is_complete: bool,
    /// Begin, in seconds since 1970.
    pub started_s: u64,
    /// Version of fio.
    #[serde(default)]
    pub fio_version: Option<String>,
    /// Seconds that each load was measured.
    pub runtime_s: u32,
    /// Rounds.
    pub rounds: u32,
    /// Remarks that a conclusion needs.
    pub warnings: Vec<String>,
    /// Measured spaces.
    pub targets: Vec<BenchmarkTarget>,
    /// Profiles.
    pub profiles: Vec<BenchmarkProfile>,
    /// Points of all curves.
    pub points: Vec<BenchmarkPoint>,
    /// Knees of curves.
    pub knees: Vec<BenchmarkKnee>,
    /// Comparisons with the first space.
    pub comparisons: Vec<BenchmarkComparison>,
}

/// Report of a benchmark.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct BenchmarkReport {
    /// [`SCHEMA`](crate::SCHEMA).
    pub schema: u32,
    /// Number of the job that measured.
    pub job: u64,
    /// File on the host of the daemon with each measurement by itself, as `dolmen bench --json` writes it.
    pub file: String,
    /// Figures.
    pub figures: BenchmarkFigures,
}
