//! The pool's metadata map: 24-byte keys to values of at most 3 KiB, old or new after any crash.
//!
//! The map is a *checkpoint*, a copy-on-write B-tree in the page area of every replica, under an *overlay* of the
//! changes since, in memory. The caller's log repeats the overlay after a crash; this crate knows nothing of that log
//! but the caller's [`Anchor`], which is kept in the checkpoint block and so is old or new together with the map.
//!
//! Write order of checkpoint *n*, each step on all replicas before the next begins:
//!
//! | step | after a crash here |
//! |---|---|
//! | 1. pages of the new tree and of the new set of used pages, to places that neither *n* − 1 nor any block that may still count uses | *n* − 1: nothing of it was touched |
//! | 2. flush | *n* − 1 |
//! | 3. the checkpoint block, to slot *n* mod 2 | *n* where a replica has it whole: all its pages were flushed on all replicas in step 2; else *n* − 1, whose block is in the other slot |
//! | 4. flush | *n* |
//! | 5. (in memory) pages of *n* − 1 alone become free | *n* |
//!
//! When step 3 or 4 fails, nobody knows which of the two would be opened. Then the pages of both stay untouched until
//! the new block was erased everywhere, and the next attempt takes *n* + 2: the same slot, so that *n* − 1 is never
//! overwritten by an attempt, and no number stands for two contents.
//!
//! Invariants:
//! - A page counts only if its number, its checkpoint and its checksum are those that its parent names.
//! - A page that a reader may still use is not written: readers pin their checkpoint, and the next but one waits for
//!   them.
//! - A page is healed only while its checkpoint is pinned, so a late heal never lands on a page that was reused.
//! - What is written belongs to a task of its own: a caller that stops waiting cancels nothing half-way.
//! - Memory is bounded by the cache, the overlay (which the caller bounds by its log) and a constant.
//!
//! Left to others: which disks are replicas, when to checkpoint, and how full the area may become ([`Store::room`]).

mod bitmap;
mod block;
mod cache;
mod check;
mod checkpoint;
mod copy;
mod error;
mod fill;
mod format;
mod key;
mod merge;
mod open;
mod overlay;
mod page;
mod read;
mod replica;
mod show;
mod store;
mod walk;

pub use copy::Copied;
pub use error::{Answer, CheckpointError, Defect, Failure, Fault, Finding, Step, StoreError};
pub use format::{FORMAT_VERSION, KEY_BYTES, PAGE_BYTES, PAGES_MAX};
pub use key::{Anchor, Key, Value};
pub use open::Opened;
pub use page::VALUE_BYTES_MAX;
pub use replica::{Area, Replica};
pub use show::{CHECKPOINT_BLOCK_BYTES, CheckpointBlock, MapPage, PageContent, PageName};
pub use store::{Room, Store, StoreOptions, StoreStats};
