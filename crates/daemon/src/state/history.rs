//! What this host has seen of the disks and the data of pools, on record.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::rc::Rc;

use dolmen_pool::DiskCounters;
use dolmen_space::{DataLossEvent, DataLossKind};
use dolmen_units::{BLOCK_BYTES, Bytes, DISKS_MAX, DiskId, PoolId, SpaceId};
use serde::{Deserialize, Serialize};

use crate::files::{FILE_BYTES_MAX, read_if_any, remove_durably, write_durably};
use crate::io_worker::IoWorker;
use crate::state::filling::Look;
use crate::state::latencies::Slow;

/// The version of the files: 2 since the names of its fields changed.
pub(crate) const VERSION: u32 = 2;

/// Ranges that are kept, at most; those noted first go first.
pub(crate) const RANGES_MAX: usize = 1000;

/// Bytes that are read at once to see whether a range is still lost.
pub(crate) const LOOK_BYTES: u64 = 16 * BLOCK_BYTES;

/// What an entry takes in a file, at most: each byte of a path may need six.
pub(crate) const DISK_TEXT_MAX: usize = 800 + 6 * PATH_BYTES_MAX;

pub(crate) const RANGE_TEXT_MAX: usize = 256;

/// Labels of a disk.
pub(crate) const LABELS: usize = 4;

/// Longer paths are not remembered.
pub(crate) const PATH_BYTES_MAX: usize = 1024;

const _: () = assert!(
    (DISKS_MAX * DISK_TEXT_MAX + RANGES_MAX * RANGE_TEXT_MAX) as u64 <= FILE_BYTES_MAX,
    "a file that was written is read whole"
);

/// Errors of a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Errors {
    pub(crate) reads: u64,
    pub(crate) writes: u64,
    pub(crate) backing_full_writes: u64,
    pub(crate) timed_out_reads: u64,
    pub(crate) checksums: u64,
    pub(crate) healed_blocks: u64,
}

impl From<DiskCounters> for Errors {
    fn from(counters: DiskCounters) -> Self {
        Self {
            reads: counters.read_errors,
            writes: counters.write_errors,
            backing_full_writes: counters.backing_full_writes,
            timed_out_reads: counters.timed_out_reads,
            checksums: counters.checksum_errors,
            healed_blocks: counters.healed_blocks,
        }
    }
}

impl Errors {
    pub(crate) fn counters(self) -> DiskCounters {
        DiskCounters {
            read_errors: self.reads,
            write_errors: self.writes,
            backing_full_writes: self.backing_full_writes,
            timed_out_reads: self.timed_out_reads,
            checksum_errors: self.checksums,
            healed_blocks: self.healed_blocks,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RecordedDisk {
    pub(crate) id: String,
    #[serde(default)]
    pub(crate) path: Option<String>,
    #[serde(default)]
    pub(crate) counted: Errors,
    #[serde(default)]
    pub(crate) acknowledged: Errors,
    /// Whether the pool does without it because it stayed away.
    #[serde(default)]
    pub(crate) excluded: bool,
    /// Where labels had stood when it was taken in, unless somebody has acknowledged that.
    #[serde(default)]
    pub(crate) lost_labels: Vec<u64>,
    /// How slow it was beside the others, unless it is well again.
    #[serde(default)]
    pub(crate) slow: Option<Slow>,
    /// How many errors it had when its emptying was stopped, or left something.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) emptying_held_off: Option<u64>,
    /// Whether somebody wants nothing of it rebuilt while it is away.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) rebuilding_stopped: bool,
    /// Whether it said of itself that it fails, and nothing else since.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) is_failing: bool,
    /// Places that it said have gone bad, and somebody has acknowledged.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) acknowledged_defects: u64,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "so serde asks")]
pub(crate) fn is_zero(number: &u64) -> bool {
    *number == 0
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum RecordedKind {
    AcceptedUnverified,
    Lost,
    CorruptHere,
    TableLost,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RecordedRange {
    pub(crate) space: u64,
    pub(crate) at: u64,
    pub(crate) length: u64,
    pub(crate) kind: RecordedKind,
}

impl From<&DataLossEvent> for RecordedRange {
    fn from(one: &DataLossEvent) -> Self {
        let kind = match one.kind {
            DataLossKind::AcceptedUnverified => RecordedKind::AcceptedUnverified,
            DataLossKind::Lost => RecordedKind::Lost,
            DataLossKind::CorruptHere => RecordedKind::CorruptHere,
            DataLossKind::TableLost => RecordedKind::TableLost,
        };
        Self { space: one.space.0, at: one.at, length: one.length.0, kind }
    }
}

impl RecordedRange {
    /// The range, unless its numbers are none of a range.
    pub(crate) fn loss_of(&self) -> Option<DataLossEvent> {
        let kind = match self.kind {
            RecordedKind::AcceptedUnverified => DataLossKind::AcceptedUnverified,
            RecordedKind::Lost => DataLossKind::Lost,
            RecordedKind::CorruptHere => DataLossKind::CorruptHere,
            RecordedKind::TableLost => DataLossKind::TableLost,
        };
        self.at.checked_add(self.length).filter(|end| *end > self.at)?;
        Some(DataLossEvent { space: SpaceId(self.space), at: self.at, length: Bytes(self.length), kind })
    }
}

/// A pool's history, as it is on record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Recorded {
    pub(crate) version: u32,
    #[serde(default)]
    pub(crate) disks: Vec<RecordedDisk>,
    #[serde(default)]
    pub(crate) ranges: Vec<RecordedRange>,
    #[serde(default)]
    pub(crate) filled: Vec<Look>,
    /// By the ids of the spaces of volumes.
    #[serde(default)]
    pub(crate) volumes_filled: BTreeMap<u64, Vec<Look>>,
}

#[derive(Deserialize)]
pub(crate) struct Versioned {
    pub(crate) version: u32,
}

/// Returns what a file says; nothing but the version of one of another version, whose fields have other names.
pub(crate) fn parse(text: &str) -> serde_json::Result<Recorded> {
    let Versioned { version } = serde_json::from_str(text)?;
    if version != VERSION {
        return Ok(Recorded {
            version,
            disks: Vec::new(),
            ranges: Vec::new(),
            filled: Vec::new(),
            volumes_filled: BTreeMap::new(),
        });
    }
    serde_json::from_str(text)
}

/// The files.
#[derive(Debug)]
pub(crate) struct Histories {
    pub(crate) folder: PathBuf,
    pub(crate) file_worker: Rc<IoWorker>,
}

impl Histories {
    pub(crate) fn new(folder: PathBuf, file_worker: Rc<IoWorker>) -> Self {
        Self { folder, file_worker }
    }

    pub(crate) fn path(&self, pool: PoolId) -> PathBuf {
        self.folder.join(format!("{pool}.json"))
    }

    /// What is on record. What cannot be read is told, and is no history.
    pub(crate) async fn read(&self, pool: PoolId) -> Option<Recorded> {
        let path = self.path(pool);
        let shown = path.display().to_string();
        let text = self.file_worker.run(move || read_if_any(&path)).await;
        let parsed = text.map(|text| text.map(|text| parse(&text)));
        match parsed {
            Ok(None) => None,
            Ok(Some(Ok(recorded))) if recorded.version == VERSION => Some(recorded),
            Ok(Some(Ok(recorded))) => {
                tracing::warn!(
                    path = shown,
                    found = recorded.version,
                    expected = VERSION,
                    "another version wrote the history of a pool; it begins again"
                );
                None
            }
            Ok(Some(Err(error))) => {
                tracing::warn!(path = shown, %error, "the history of a pool makes no sense; it begins again");
                None
            }
            Err(error) => {
                tracing::warn!(path = shown, %error, "the history of a pool cannot be read; it begins again");
                None
            }
        }
    }

    pub(crate) async fn write(&self, pool: PoolId, text: Vec<u8>) -> io::Result<()> {
        let path = self.path(pool);
        self.file_worker.run(move || write_durably(&path, &text)).await
    }

    /// Forgets a pool that is no more, or belongs to whoever opens it next.
    pub(crate) async fn remove(&self, pool: PoolId) {
        let path = self.path(pool);
        if let Err(error) = self.file_worker.run(move || remove_durably(&path)).await {
            tracing::warn!(%pool, %error, "the history of a pool stays on record");
        }
    }
}

/// The history of a pool that is open.
#[derive(Default)]
pub(crate) struct History {
    /// Errors of disks that a person has seen: only those beyond them are a warning. The counters themselves stay.
    pub(crate) acknowledged: RefCell<BTreeMap<DiskId, DiskCounters>>,
    /// What people are told of, joined where it can be.
    pub(crate) ranges: RefCell<Vec<DataLossEvent>>,
    /// The engine's list at the last look.
    pub(crate) of_engine: RefCell<Vec<DataLossEvent>>,
    /// What is on record.
    pub(crate) written: RefCell<Vec<u8>>,
    /// Whether writing it failed the last time, so that it is told once.
    pub(crate) is_failing: Cell<bool>,
}

impl History {
    /// Adds what is new in the engine's list.
    pub(crate) fn see(&self, found: Vec<DataLossEvent>) {
        let before = self.of_engine.replace(found.clone());
        if before != found {
            let mut ranges = self.ranges.borrow_mut();
            // What has grown is in the list no more as it was.
            let grown: Vec<DataLossEvent> =
                before.iter().filter(|one| !found.contains(one)).cloned().collect();
            let new = found.into_iter().filter(|one| !before.contains(one));
            new.for_each(|one| add(&mut ranges, beyond(&grown, one)));
        }
    }

    /// Takes bytes of a space off the list, of those kinds that are meant.
    pub(crate) fn take_off(
        &self,
        space: SpaceId,
        (at, end): (u64, u64),
        is_meant: impl Fn(DataLossKind) -> bool,
    ) {
        let mut ranges = self.ranges.borrow_mut();
        let all = std::mem::take(&mut *ranges);
        for one in all {
            let (first, last) = (one.at, one.at + one.length.0);
            if one.space != space || !is_meant(one.kind) || end <= first || last <= at {
                ranges.push(one);
                continue;
            }
            for (first, last) in [(first, at.max(first)), (end.min(last), last)] {
                if first < last {
                    ranges.push(DataLossEvent { at: first, length: Bytes(last - first), ..one.clone() });
                }
            }
        }
    }
}

/// What is new of a range that may have been known to its part: that may have been taken off the list since.
pub(crate) fn beyond(known: &[DataLossEvent], one: DataLossEvent) -> DataLossEvent {
    let is_start =
        |other: &&DataLossEvent| (other.space, other.kind, other.at) == (one.space, one.kind, one.at);
    let length = known.iter().filter(is_start).map(|other| other.length.0).max().unwrap_or(0);
    if length >= one.length.0 {
        return one;
    }
    DataLossEvent { at: one.at + length, length: Bytes(one.length.0 - length), ..one }
}

/// Adds a range, joined to those of its kind that it touches.
pub(crate) fn add(ranges: &mut Vec<DataLossEvent>, mut new: DataLossEvent) {
    let end = |one: &DataLossEvent| one.at.saturating_add(one.length.0);
    ranges.retain(|one| {
        let touches =
            one.space == new.space && one.kind == new.kind && one.at <= end(&new) && new.at <= end(one);
        if touches {
            let (first, last) = (one.at.min(new.at), end(one).max(end(&new)));
            (new.at, new.length) = (first, Bytes(last - first));
        }
        !touches
    });
    if ranges.len() == RANGES_MAX {
        ranges.remove(0);
    }
    ranges.push(new);
}

/// Whether reading it again tells that nothing is the matter any more.
pub(crate) fn is_unreadable(kind: DataLossKind) -> bool {
    match kind {
        DataLossKind::Lost | DataLossKind::CorruptHere | DataLossKind::TableLost => true,
        DataLossKind::AcceptedUnverified => false,
    }
}
