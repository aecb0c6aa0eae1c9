//! Deduplication and compaction of volumes.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::volume::FileSystemKind;

/// Load that a deduplication may cause.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum DedupMode {
    /// It yields to clients.
    Background,
    /// It runs as fast as it can.
    Throughput,
}

/// Policy of the deduplication of a volume.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DedupPolicy {
    /// Load that it may cause.
    pub mode: DedupMode,
    /// Days since the last change of a file, at least.
    pub min_age_days: u32,
    /// Bytes of a file, at least.
    pub min_file_bytes: u64,
    /// Folders that it leaves out, with all below them; paths within the volume.
    pub excluded_folders: Vec<String>,
    /// Patterns of names that it leaves out: `*` is any number of bytes, `?` is one.
    pub excluded_names: Vec<String>,
    /// Memory that it may take.
    pub memory_bytes: u64,
    /// Times of runs: `never`, `hourly`, `daily 03:00` or `weekly sunday 02:00`, in local time.
    pub schedule: String,
}

/// Last deduplication of a volume.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DedupRun {
    /// Seconds from 1970 to its beginning.
    pub began_s: u64,
    /// Seconds from 1970 to its end.
    pub ended_s: u64,
    /// Load that it caused.
    pub mode: DedupMode,
    /// Saved in the volume: bytes of the device that lost their last owner.
    pub saved_bytes: u64,
    /// Given back to the pool: claimed bytes of the space before the run less after it; writers change it too.
    pub released_bytes: u64,
    /// Held elsewhere: bytes that lost an owner and have another one outside the run.
    pub held_bytes: u64,
    /// Part of the saved bytes that was compressed; they are counted as files read them.
    #[serde(default)]
    pub compressed_bytes: u64,
    /// Bytes by which the free room of the volume grew; writers change it too.
    #[serde(default)]
    pub freed_bytes: u64,
    /// Bytes that undos have given to files since the run.
    #[serde(default)]
    pub undone_bytes: u64,
    /// Whether it ended before all files were looked at.
    pub is_stopped: bool,
}

/// Deduplication, compaction, estimate or undo under way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DedupWork {
    /// Number of its job.
    pub job: u64,
    /// Step that its process is at; absent between two processes.
    #[serde(default)]
    pub step: Option<String>,
    /// Bytes that the step has done.
    pub done_bytes: u64,
    /// Bytes that the step has to do; 0 if that is unknown.
    pub total_bytes: u64,
    /// Files that the step has passed.
    pub files: u64,
    /// Bytes saved so far.
    pub saved_bytes: u64,
    /// Whether it stands so that clients get the disks.
    pub is_yielding: bool,
}

/// Deduplication of a volume.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Dedup {
    /// [`SCHEMA`](crate::SCHEMA).
    pub schema: u32,
    /// Pool of the volume.
    pub pool: String,
    /// Name of the volume.
    pub name: String,
    /// File system of the volume.
    pub file_system: FileSystemKind,
    /// Reason why its files cannot share bytes; absent if they can.
    #[serde(default)]
    pub unsupported: Option<String>,
    /// Policy; absent if deduplication is off.
    #[serde(default)]
    pub policy: Option<DedupPolicy>,
    /// Seconds from 1970 to the next run of the schedule.
    #[serde(default)]
    pub next_s: Option<u64>,
    /// Last run.
    #[serde(default)]
    pub last: Option<DedupRun>,
    /// Work under way.
    #[serde(default)]
    pub work: Option<DedupWork>,
    /// Seconds from 1970 to now, by the clock of the daemon.
    pub now_s: u64,
}

/// Estimates what a deduplication would save.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct EstimateDedup {
    /// Bytes that are read at least; 256 MiB when left out. A hundredth of the files is read in any case.
    #[serde(default)]
    pub sample_bytes: Option<u64>,
    /// Only tell what would happen.
    #[serde(default)]
    pub dry_run: bool,
}

/// Sets the policy of deduplication. What is left out stays, or is as usual.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct EnableDedup {
    /// Load that it may cause; usually `background`.
    #[serde(default)]
    pub mode: Option<DedupMode>,
    /// Days since the last change of a file, at least; usually 3.
    #[serde(default)]
    pub min_age_days: Option<u32>,
    /// Bytes of a file, at least; usually 32 KiB.
    #[serde(default)]
    pub min_file_bytes: Option<u64>,
    /// Folders that it leaves out, with all below them; paths within the volume.
    #[serde(default)]
    pub excluded_folders: Option<Vec<String>>,
    /// Patterns of names that it leaves out: `*` is any number of bytes, `?` is one.
    #[serde(default)]
    pub excluded_names: Option<Vec<String>>,
    /// Memory that it may take, 40 MiB at least; usually 256 MiB.
    #[serde(default)]
    pub memory_bytes: Option<u64>,
    /// Times of runs: `never`, `hourly`, `daily 03:00` or `weekly sunday 02:00`; usually `weekly sunday 02:00`.
    #[serde(default)]
    pub schedule: Option<String>,
    /// Take the policy and its schedule away; nothing else may be set.
    #[serde(default)]
    pub off: bool,
    /// Only tell what would happen.
    #[serde(default)]
    pub dry_run: bool,
}

/// Runs a deduplication.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RunDedup {
    /// Load that it may cause; that of the policy when left out.
    #[serde(default)]
    pub mode: Option<DedupMode>,
    /// Only tell what would happen.
    #[serde(default)]
    pub dry_run: bool,
}

/// Gives files bytes of their own again.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct UndoDedup {
    /// Files and folders, as paths within the volume or below its mount point; all of the volume when left out.
    #[serde(default)]
    pub paths: Vec<String>,
    /// Only tell what would happen.
    #[serde(default)]
    pub dry_run: bool,
}

/// Empties rows that hold little, and gives them back to the pool.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CompactVolume {
    /// Bytes that may be moved; no bound when left out.
    #[serde(default)]
    pub budget_bytes: Option<u64>,
    /// Only tell what would happen.
    #[serde(default)]
    pub dry_run: bool,
}
