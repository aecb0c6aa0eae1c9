//! What `fio` answers, read into figures.
//!
//! Its document has the sum of reads and writes as `mixed`, which is what a load of both is judged by; beside it both
//! alone. Messages of `fio` may stand in front of the document and are skipped.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Bytes in the unit of bandwidth logs.
const KIB: u64 = 1024;
/// Intervals over time that are kept, at most: a day of seconds.
const SAMPLES_MAX: u64 = 86_400;
/// The sum of a log may be above what was moved by this part of it, for what rounding makes of it.
const SLACK_SHARE: u64 = 50;

/// An answer that gives no figures.
#[derive(Debug, thiserror::Error)]
pub enum FioError {
    /// No document in it.
    #[error("fio printed no document{}", message(.text))]
    None {
        /// What it printed instead.
        text: String,
    },
    /// Not the document that is known.
    #[error("fio's document cannot be read; fio 3.28 or newer is needed")]
    Form {
        /// What is wrong.
        #[source]
        source: serde_json::Error,
    },
    /// The load failed.
    #[error("fio ended with error {code} ({})", std::io::Error::from_raw_os_error(*code))]
    Failed {
        /// The number of the system's error.
        code: i32,
    },
    /// No I/O came to its end.
    #[error("not one I/O ended in {runtime_ms} ms; a longer --runtime, or a target that answers, is needed")]
    Nothing {
        /// How long was measured.
        runtime_ms: u64,
    },
}

fn message(text: &str) -> String {
    let line = text.lines().map(str::trim).find(|line| !line.is_empty());
    line.map(|line| format!(" but: {line}")).unwrap_or_default()
}

/// Latencies in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct Latency {
    /// The mean.
    pub mean_ns: f64,
    /// Half of all I/Os were faster.
    pub p50_ns: u64,
    /// 90 % were.
    pub p90_ns: u64,
    /// 95 %.
    pub p95_ns: u64,
    /// 99 %.
    pub p99_ns: u64,
    /// 99.9 %.
    pub p999_ns: u64,
    /// 99.99 %.
    pub p9999_ns: u64,
    /// The slowest one.
    pub max_ns: u64,
}

/// Reads or writes alone.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Share {
    /// How many ended.
    pub ios: u64,
    /// In a second.
    pub ios_per_s: f64,
    /// Bytes in a second.
    pub bytes_per_s: u64,
    /// How long they took.
    pub latency: Latency,
}

/// Bandwidth over an interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Sample {
    /// The end of the interval, from the beginning of the measurement.
    pub at_ms: u64,
    /// Bytes in a second, in that interval.
    pub bytes_per_s: u64,
}

/// The figures of one step.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Measured {
    /// What measured.
    pub fio_version: String,
    /// How long.
    pub runtime_ms: u64,
    /// I/Os that ended.
    pub ios: u64,
    /// In a second.
    pub ios_per_s: f64,
    /// Bytes in a second.
    pub bytes_per_s: u64,
    /// How long I/Os took, from the wish to the end.
    pub latency: Latency,
    /// Reads alone, where there are writes too.
    pub reads: Option<Share>,
    /// Writes alone, where there are reads too.
    pub writes: Option<Share>,
    /// Flushes that ended, the one at the end of a file aside.
    pub flushes: u64,
    /// Writes for each flush that there really were.
    pub writes_per_flush: Option<f64>,
    /// Half of all flushes were faster. Neither their mean nor their slowest is kept: fio 3.33 now and then counts one
    /// flush from the start of the machine on.
    pub flush_p50_ns: Option<u64>,
    /// Bandwidth over time.
    pub samples: Vec<Sample>,
}

#[derive(Deserialize)]
struct Document {
    #[serde(rename = "fio version")]
    version: String,
    jobs: Vec<Job>,
}

#[derive(Deserialize)]
struct Job {
    error: i32,
    read: Side,
    write: Side,
    mixed: Side,
    #[serde(default)]
    sync: Sync,
}

#[derive(Deserialize)]
struct Side {
    io_bytes: u64,
    bw_bytes: u64,
    iops: f64,
    runtime: u64,
    total_ios: u64,
    lat_ns: Times,
}

#[derive(Deserialize, Default)]
struct Sync {
    #[serde(default)]
    lat_ns: Times,
}

#[derive(Deserialize, Default)]
struct Times {
    #[serde(default, rename = "N")]
    count: u64,
    #[serde(default)]
    max: u64,
    #[serde(default)]
    mean: f64,
    #[serde(default)]
    percentile: BTreeMap<String, u64>,
}

impl Times {
    fn latency(&self) -> Latency {
        let at = |name: &str| self.percentile.get(name).copied().unwrap_or(0);
        Latency {
            mean_ns: self.mean,
            p50_ns: at("50.000000"),
            p90_ns: at("90.000000"),
            p95_ns: at("95.000000"),
            p99_ns: at("99.000000"),
            p999_ns: at("99.900000"),
            p9999_ns: at("99.990000"),
            max_ns: self.max,
        }
    }
}

impl Side {
    fn share(&self) -> Share {
        Share {
            ios: self.total_ios,
            ios_per_s: self.iops,
            bytes_per_s: self.bw_bytes,
            latency: self.lat_ns.latency(),
        }
    }
}

/// Reads what `fio` printed, and its log of bandwidths.
///
/// # Errors
/// When there are no figures in it.
pub(crate) fn read(text: &str, log: &str, interval_ms: u32) -> Result<Measured, FioError> {
    let document = document_in(text)?;
    let Some(job) = document.jobs.first() else { return Err(FioError::None { text: text.to_owned() }) };
    if job.error != 0 {
        return Err(FioError::Failed { code: job.error });
    }
    if job.mixed.total_ios == 0 {
        return Err(FioError::Nothing { runtime_ms: job.mixed.runtime });
    }
    let is_both = job.read.total_ios > 0 && job.write.total_ios > 0;
    let flushes = job.sync.lat_ns.count;
    Ok(Measured {
        fio_version: document.version,
        runtime_ms: job.mixed.runtime,
        ios: job.mixed.total_ios,
        ios_per_s: job.mixed.iops,
        bytes_per_s: job.mixed.bw_bytes,
        latency: job.mixed.lat_ns.latency(),
        reads: is_both.then(|| job.read.share()),
        writes: is_both.then(|| job.write.share()),
        flushes,
        writes_per_flush: (flushes > 0).then(|| ratio(job.write.total_ios, flushes)),
        flush_p50_ns: (flushes > 0).then(|| job.sync.lat_ns.latency().p50_ns),
        samples: samples_in(log, interval_ms, job.mixed.io_bytes),
    })
}

/// Whether a part of a target was filled.
///
/// # Errors
/// When it was not.
pub(crate) fn check_fill(text: &str) -> Result<(), FioError> {
    #[derive(Deserialize)]
    struct Filled {
        jobs: Vec<Ended>,
    }
    #[derive(Deserialize)]
    struct Ended {
        error: i32,
    }
    let filled: Filled = parsed(text)?;
    match filled.jobs.first().map(|job| job.error) {
        Some(0) => Ok(()),
        Some(code) => Err(FioError::Failed { code }),
        None => Err(FioError::None { text: text.to_owned() }),
    }
}

fn document_in(text: &str) -> Result<Document, FioError> {
    parsed(text)
}

/// The document begins and ends with a brace on a line of its own.
fn parsed<T: serde::de::DeserializeOwned>(text: &str) -> Result<T, FioError> {
    let none = || FioError::None { text: text.to_owned() };
    let start = if text.starts_with("{\n") { 0 } else { text.find("\n{\n").ok_or_else(none)? + 1 };
    let end = text.rfind("\n}").ok_or_else(none)? + 2;
    let document = text.get(start..end).ok_or_else(none)?;
    serde_json::from_str(document).map_err(|source| FioError::Form { source })
}

/// Counts of a measurement stay far below 2^52.
#[allow(clippy::cast_precision_loss)]
fn ratio(part: u64, whole: u64) -> f64 {
    part as f64 / whole as f64
}

/// What one worker moved in one direction: the ends of intervals, with the rate in each.
type Stream = Vec<(u64, u64)>;

/// The streams of a log. Lines are `milliseconds, KiB/s, direction, …`, one worker behind the other: where time goes
/// back, the next one begins.
fn streams_in(log: &str) -> BTreeMap<(usize, u64), Stream> {
    let mut streams: BTreeMap<(usize, u64), Stream> = BTreeMap::new();
    let (mut worker, mut before) = (0, 0);
    for line in log.lines() {
        let mut fields = line.split(',').map(|field| field.trim().parse::<u64>());
        let (Some(Ok(at)), Some(Ok(kib)), Some(Ok(direction))) =
            (fields.next(), fields.next(), fields.next())
        else {
            continue;
        };
        worker += usize::from(at < before);
        before = at;
        streams.entry((worker, direction)).or_default().push((at, kib.saturating_mul(KIB)));
    }
    streams
}

/// A rate that held for a while.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Segment {
    worker: usize,
    start_ms: u64,
    end_ms: u64,
    bytes_per_s: u64,
}

impl Segment {
    fn bytes(&self) -> u64 {
        self.bytes_per_s.saturating_mul(self.end_ms - self.start_ms) / 1000
    }
}

/// The log as segments. A line that comes later than an interval behind the one before either covers all of that time,
/// because the logger was late, or only its last interval, because nothing ended before: such an interval has no line.
/// What was moved in all tells which: the longest gaps were stalls, as many of them as the sum of all segments is above
/// it.
fn segments_in(log: &str, interval_ms: u64, moved: u64) -> Vec<Segment> {
    let mut segments = Vec::new();
    for ((worker, _), stream) in streams_in(log) {
        let mut start_ms = 0;
        for (end_ms, bytes_per_s) in stream {
            segments.push(Segment { worker, start_ms, end_ms: end_ms.max(start_ms), bytes_per_s });
            start_ms = end_ms.max(start_ms);
        }
    }
    let mut sum: u64 = segments.iter().map(Segment::bytes).sum();
    let allowed = moved.saturating_add(moved / SLACK_SHARE);
    let mut late: Vec<&mut Segment> =
        segments.iter_mut().filter(|of| of.end_ms - of.start_ms > interval_ms * 3 / 2).collect();
    late.sort_by_key(|of| std::cmp::Reverse(of.end_ms - of.start_ms));
    for segment in late {
        if sum <= allowed {
            break;
        }
        let before = segment.bytes();
        segment.start_ms = segment.end_ms - interval_ms;
        sum -= before - segment.bytes();
    }
    segments
}

/// The rate of all workers and both directions over time. Where the first worker has come to its end, so has the curve.
fn samples_in(log: &str, interval_ms: u32, moved: u64) -> Vec<Sample> {
    let interval = u64::from(interval_ms.max(1));
    let segments = segments_in(log, interval, moved);
    let mut ends: BTreeMap<usize, u64> = BTreeMap::new();
    for segment in &segments {
        let end = ends.entry(segment.worker).or_default();
        *end = segment.end_ms.max(*end);
    }
    let end = ends.values().copied().min().unwrap_or(0);
    let count = ((end + interval / 2) / interval).min(SAMPLES_MAX);
    let sample = |at: u64| {
        let instant = at * interval - interval / 2;
        let holding = segments.iter().filter(|of| of.start_ms < instant && instant <= of.end_ms);
        Sample { at_ms: at * interval, bytes_per_s: holding.map(|of| of.bytes_per_s).sum() }
    };
    (1..=count).map(sample).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is no document is distinguished from a document that tells of a failure.
    #[test]
    fn answers_without_figures_are_named() {
        let message = |text: &str| read(text, "", 100).unwrap_err().to_string();
        assert_eq!(message(""), "fio printed no document");
        assert_eq!(
            message("fio: engine nbd not loadable\nmore"),
            "fio printed no document but: fio: engine nbd not loadable"
        );
        assert_eq!(
            message("{\n  \"jobs\" : 3\n}\n"),
            "fio's document cannot be read; fio 3.28 or newer is needed"
        );
        let failed = message(include_str!("../recorded/failed.json"));
        assert_eq!(failed, "fio ended with error 28 (No space left on device (os error 28))");
    }

    fn rates(log: &str, moved_kib: u64) -> Vec<(u64, u64)> {
        let samples = samples_in(log, 100, moved_kib * KIB);
        samples.iter().map(|sample| (sample.at_ms, sample.bytes_per_s / KIB)).collect()
    }

    /// Two workers, one of which stands still from 100 to 300 ms: what was moved says so.
    #[test]
    fn a_stall_is_seen_as_one() {
        let log = "100, 1000, 0, 0\n100, 500, 1, 0\n400, 1000, 0, 0\n400, 500, 1, 0\n520, 700, 0, 0\n\
                   99, 100, 0, 0\n200, 100, 0, 0\n300, 100, 0, 0\n420, 100, 0, 0\nodd\n";
        let moved = 150 + 150 + 84 + 42;
        assert_eq!(rates(log, moved), [(100, 1600), (200, 100), (300, 100), (400, 1600)]);
        assert_eq!(rates("", 0), []);
    }

    /// The same lines, while twice as much was moved: the logger was late, and nothing stood still.
    #[test]
    fn a_late_line_is_no_stall() {
        let log = "100, 1000, 0, 0\n400, 1000, 0, 0\n500, 1000, 0, 0\n";
        assert_eq!(rates(log, 500).iter().map(|(_, rate)| *rate).collect::<Vec<_>>(), [1000; 5]);
        assert_eq!(
            rates(log, 300).iter().map(|(_, rate)| *rate).collect::<Vec<_>>(),
            [1000, 0, 0, 1000, 1000]
        );
    }
}
