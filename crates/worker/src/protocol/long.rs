//! Orders, commands and answers of long operations.
//!
//! A long operation reads a [`Command`] from each further line of its input. It writes a
//! [`Progress`](super::Message::Progress) once a second at most, and one `done` or `failed` at its end. The end of the input
//! stops it in good order, since a worker without its daemon yields to no client; a search for names goes on to its end.

use std::path::PathBuf;

use dolmen_volume::mount_point::Folder;
use dolmen_volume::record::DeduplicationMode;
use serde::{Deserialize, Serialize};

/// Bytes of memory that a long operation needs at least.
pub const MEMORY_BYTES_MIN: u64 = 40 << 20;
/// Bytes that the pool of a thin space keeps for others while an operation copies what lies on it.
pub const POOL_ROOM_BYTES_MIN: u64 = 128 << 20;
/// Bytes of a line with a command, at most.
pub const COMMAND_BYTES_MAX: u64 = 4096;

/// A line of input after the order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case", deny_unknown_fields)]
pub enum Command {
    /// Holds the operation before its next piece of work.
    Pause,
    /// Goes on.
    Resume,
    /// Ends in good order; what was reached stays, and is reported.
    Stop,
}

/// Load and memory of a long operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Load {
    /// Load that it may cause.
    pub mode: DeduplicationMode,
    /// Memory of the process, at least [`MEMORY_BYTES_MIN`].
    pub memory_bytes: u64,
}

/// Files that take part in a deduplication or an estimate.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Selection {
    /// Seconds since the last change of content, at least.
    pub age_seconds_min: u64,
    /// Bytes of a file, at least.
    pub file_bytes_min: u64,
    /// Folders that take no part, with all below them.
    #[serde(default)]
    pub excluded_folders: Vec<Folder>,
    /// Patterns of names that take no part: `*` is any number of bytes, `?` is one.
    #[serde(default)]
    pub excluded_names: Vec<String>,
}

/// Size of the sample of an estimate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SampleSize {
    /// Part of the bytes that is read, in millionths.
    pub part_ppm: u32,
    /// Bytes that are read at least, if the volume has them.
    pub bytes_min: u64,
}

/// Rows of the space that a compaction may empty.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Occupancy {
    /// Bytes of a row, a power of two.
    pub row_bytes: u64,
    /// Rows that the pool has claimed.
    pub claimed: Claimed,
}

/// Ranges of numbers of rows: the first, and the one behind the last.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Claimed {
    /// In the order itself.
    Ranges(Vec<(u64, u64)>),
    /// In a file, as a JSON list of pairs.
    File(PathBuf),
}

/// Progress of a long operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    /// Step that it is at.
    pub step: Step,
    /// Bytes that the step has done.
    pub done: u64,
    /// Bytes that the step has to do; 0 if that is unknown.
    pub total: u64,
    /// Files that the step has passed; 0 if it does not count them.
    pub files: u64,
    /// Bytes that the operation has freed so far.
    pub saved: u64,
    /// Whether a command holds it.
    pub paused: bool,
}

/// Steps of long operations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Step {
    /// It lists files.
    Scan,
    /// It reads and hashes new and changed files.
    Hash,
    /// It finds equal pieces.
    Plan,
    /// It asks the file system to share.
    Share,
    /// It maps the owners of rows.
    Map,
    /// It moves live bytes out of rows.
    Compact,
    /// It gives files bytes of their own.
    Undo,
    /// It reads a sample.
    Estimate,
}

/// Counts of a scrub.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scrubbed {
    /// Bytes that were read.
    pub bytes: u64,
    /// Reads that failed.
    pub read_errors: u64,
    /// Blocks with a wrong checksum.
    pub checksum_errors: u64,
    /// Blocks of metadata with a wrong content.
    pub verify_errors: u64,
    /// Superblocks that are wrong.
    pub super_errors: u64,
    /// Blocks that no copy could correct.
    pub uncorrectable: u64,
    /// Blocks that were corrected.
    pub corrected: u64,
    /// Lines of the kernel's log about the file system, 1,000 at most.
    pub messages: Vec<String>,
    /// Whether a command ended it.
    pub stopped: bool,
}

/// Files that took no part because of a failure or a change.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SkippedFiles {
    /// How many.
    pub count: u64,
    /// The first of them, each with its reason.
    pub first: Vec<String>,
}

/// Counts of a deduplication.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Deduplicated {
    /// Files that take part.
    pub files: u64,
    /// Files that were new or changed.
    pub files_read: u64,
    /// Bytes that were read.
    pub bytes_read: u64,
    /// Bytes that sharing all equal pieces would free.
    pub planned: u64,
    /// Part of the planned bytes that was left out to keep reading sequential.
    pub left_out: u64,
    /// Bytes that are shared now and were not before.
    pub shared: u64,
    /// Requests that found a difference: content changed meanwhile.
    pub differing: u64,
    /// Saved in the volume: bytes of the device that lost their last owner. btrfs frees an extent when all of it has.
    pub saved: u64,
    /// Part of the saved bytes that was compressed; it is counted as files read it, and `freed` says what it was worth.
    #[serde(default)]
    pub encoded: u64,
    /// Free bytes of the volume after the run less before; writers change them too.
    pub freed: u64,
    /// Held elsewhere: bytes that lost an owner and have another one outside the run.
    pub held: u64,
    /// Folders that were not entered: other mounts, subvolumes, and what could not be read.
    pub folders_left_out: u64,
    /// Files that took no part.
    pub skipped: SkippedFiles,
    /// Whether a command ended it; the next run goes on.
    pub stopped: bool,
}

/// Result of an estimate; parts are millionths.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Estimated {
    /// Files that would take part.
    pub files: u64,
    /// Bytes of these files.
    pub bytes: u64,
    /// Bytes that were read.
    pub sample_bytes: u64,
    /// Part of the bytes that would be freed.
    pub saving_ppm: u32,
    /// Lower end of the interval at 95 %.
    pub low_ppm: u32,
    /// Upper end of the interval.
    pub high_ppm: u32,
    /// Files that took no part.
    pub skipped: SkippedFiles,
}

/// Counts of an undo.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Undone {
    /// Files that have bytes of their own now and shared some before.
    pub files: u64,
    /// Bytes that they own alone now, as they are read.
    pub bytes: u64,
    /// Free bytes of the volume before the undo less after it; writers change them too.
    #[serde(default)]
    pub taken: u64,
    /// Ranges that changed meanwhile; they stay shared.
    pub differing: u64,
    /// Files that took no part.
    pub skipped: SkippedFiles,
    /// Whether a command ended it.
    pub stopped: bool,
}

/// Counts of a compaction. What the pool got back is measured by the daemon: claimed rows before less after.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Compacted {
    /// Rows that held live bytes before, and hold none now.
    pub rows_emptied: u64,
    /// Rows that held nothing before.
    pub rows_empty: u64,
    /// Rows that copies took although the pool had not claimed them; on btrfs those of writers, too.
    pub rows_taken: u64,
    /// Bytes that were copied: on btrfs, what the moved block groups held.
    pub bytes_moved: u64,
    /// Bytes that trims discarded, as the file system counts them: btrfs counts in each what is free in its block groups.
    pub trimmed: u64,
    /// Rows that were not emptied.
    pub kept: Vec<KeptRows>,
    /// Files, or block groups of btrfs, that took no part.
    pub skipped: SkippedFiles,
    /// Whether a command ended it, or somebody cancelled the balance of btrfs.
    pub stopped: bool,
}

/// Rows with free room that were not emptied for one reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptRows {
    /// The reason.
    pub why: KeptReason,
    /// How many rows.
    pub rows: u64,
    /// The first of them.
    pub first: u64,
}

/// Reason why a row with free room was not emptied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KeptReason {
    /// It holds metadata, or what else belongs to no file.
    Fixed,
    /// It holds room that was not written, or compressed bytes.
    Unmovable,
    /// Its bytes have too many owners.
    Owners,
    /// Its live bytes do not fit the free room of the other rows, or the budget.
    Fitting,
    /// The file system gave no room outside the rows that were to be emptied.
    NoRoom,
    /// An owner changed meanwhile, a call failed, or a command came before.
    Changed,
    /// Its block group holds too much of its rows.
    Dense,
}

/// A range of the device of a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ByteRange {
    /// First byte.
    pub start: u64,
    /// Bytes.
    pub length: u64,
}

impl ByteRange {
    /// Returns the byte behind it.
    #[must_use]
    pub const fn end(&self) -> u64 {
        self.start.saturating_add(self.length)
    }
}

/// What lies at a range of the device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RangeNames {
    /// The range.
    pub range: ByteRange,
    /// What was found there, one entry for each owner.
    pub names: Vec<Name>,
    /// Parts that have more owners than were asked for.
    pub more: u64,
}

/// An owner of a part of a range.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Name {
    /// What it is.
    pub kind: NameKind,
    /// Path in the volume, without a slash before it; bytes that are no UTF-8 are replaced. A file with several names has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Number of the inode. One without a path has no name any more, or is a special file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inode: Option<u64>,
    /// First byte of the file that lies there; none if it is compressed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offset: Option<u64>,
    /// Bytes of the range that it owns.
    pub bytes: u64,
}

/// Kinds of owners.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NameKind {
    /// Content of a file.
    File,
    /// Entries of a folder.
    Folder,
    /// Metadata of the file system, or of the inode that is named.
    Metadata,
    /// The log of the file system.
    Log,
    /// Nothing.
    Free,
    /// Used, and no file of the volume has it: deleted and open, held by a larger extent, or not named by this file system.
    Unknown,
}
