//! Deduplication of a volume, which shares equal parts of files, and compaction, which empties rows of its space.
//!
//! The crate is pure. The file system, a folder for scratch files and the caller are the traits [`Files`], [`Scratch`] and
//! [`Control`]; all calls block, because a run has a process of its own.
//!
//! # A run
//! `scan` lists files and hashes the pieces of those that changed; `sort` brings equal pieces together; `plan` joins them
//! into ranges, largest gain first; `share` asks the file system.
//!
//! # Other runs
//! [`compact`] copies the live bytes of rows into an unnamed file, and points their owners to it. [`undo`] does the same for
//! what a file shares. [`estimate`] reads a sample.
//!
//! # Invariants
//! - No call writes to a file of a user. [`Files::share`] compares bytes under the locks of the file system.
//! - Index and runs are caches: absent, torn or wrong, they cost work, never content.
//! - A copy is durable before the first file is pointed to it.
//! - Memory is bounded by [`Policy::memory_bytes`] and named limits, whatever the number of files; the one exception is a bit
//!   for each file.
//! - A run that is killed anywhere and started again ends in the same state.

mod compact;
mod estimate;
mod index;
mod pack;
mod piece;
mod plan;
mod policy;
mod room;
mod rows;
mod run;
mod scan;
mod seam;
mod share;
mod sort;
mod undo;

pub use compact::{CompactPolicy, Compacted, compact};
pub use estimate::{Estimate, Sample, estimate};
pub use index::{follow_undos, mark_moved};
pub use plan::SHARERS_MAX;
pub use policy::{BACKGROUND_CALL_BYTES, Exclusion, MEMORY_MIN, Policy, THROUGHPUT_CALL_BYTES};
pub use rows::RowKept;
pub use run::{Counts, RunError, deduplicate};
pub use scan::EXTENTS_MAX;
pub use seam::{
    Action, Control, DeviceRange, Extent, ExtentKind, FileError, FileId, FileInfo, Files, Next, Phase,
    Progress, Scratch, ScratchAction, ScratchError, ShareRange, Shared, Skipped,
};
pub use share::{EXTENTS_PER_MIB_MAX, LARGE_FILE_BYTES};
pub use undo::{SharedBytes, SharedSum, UNDO_BYTES, Undone, undo};
