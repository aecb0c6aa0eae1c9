//! Epochs: who may write to a pool, decided from what the labels of the present disks say.
//!
//! A pool is always in one *epoch*: a number, random bits, the epoch before it, an owner and the voters that
//! carry the log. Everything here is a decision about values; nothing reads or writes a disk.
//!
//! # Order of durable steps
//! A label holds two records at once, `base` (was in force) and `pending` (may be in force), and is replaced
//! as one; so pending a successor also settles, in the same write, the epoch that it builds on.
//!
//! A change of epoch (an opening, a voter voted out, voters moved or added):
//! 1. `base = built on`, `pending = successor` and the recovered log go to **every** voter of the successor,
//!    which are then flushed. [`commit_counts`] tells when that is reached. The arbiter is not touched before:
//!    brought back to the epoch built on, it would allow that epoch's other voters to go on alone while an
//!    abandoned export waits on these.
//! 2. The arbiter names the successor and is synced.
//! 3. Labels settle to `base = successor`, no `pending`, on every voter, and are flushed.
//! 4. The successor is in force: writes may be acknowledged under it. So nothing was ever acknowledged under
//!    an epoch that a present voter knows only as `pending`, and where two such successors of one epoch turn
//!    up together, an abandoned one and one that went further, either may be built on.
//!
//! A confirmed opening writes `base = successor`, no `pending`, in step 1: with `base = built on`, a crash
//! would leave labels that say of an epoch, which may never have been in force, that it was.
//!
//! An export: the arbiter's record is withdrawn and synced **first**, then step 1 with [`Owner::Exported`].
//! The other order leaves a host that believes its record while a majority of the disks is open elsewhere.
//!
//! A change that fails half-way is not taken back: the host stops acknowledging, closes the pool and opens it
//! again, which overwrites what the failed change left on the disks.
//!
//! | crash after | a later opening finds |
//! |---|---|
//! | step 1 on some voters | a pending record that a present voter lacks, or that the arbiter does not name: never in force |
//! | step 1 on all voters | a pending record that the arbiter does not name: the owner goes on from the epoch built on, others need all of that epoch's voters; nothing was acknowledged under it |
//! | step 2, or 3 on some voters | the successor, named by the arbiter; elsewhere as after step 1 |
//! | step 3 | the successor |
//! | withdrawal | all voters are needed, on any host: nothing was lost, nothing is split |
//!
//! # Invariants
//! - Each epoch's voters include one voter of the epoch that it builds on; an opening or an export includes
//!   every one that is present ([`next`] refuses anything else). Else a full set of old voters could be present with no disk among them that knows of the successor.
//! - The newest `base` among present disks was in force; nothing older is ever built on.
//! - Records that share a [`Fork`] are one line of history and are ordered by number. Only a confirmed opening
//!   of a set that may not write starts a new fork; sides that share no line are never merged, nor is one of
//!   them chosen without being told to.
//!
//! [`decide()`] says whether a set of disks may be written. Which of those disks take part in it is a question for
//! [`standing()`]: a disk that was put back from an older image does not, whether it votes or not.

mod change;
mod decide;
mod member;
#[cfg(test)]
mod model;
mod record;

pub use change::{ChangeError, Kind, Successor, commit_counts, next};
pub use decide::{Decision, DiskView, ReadOnlyReason, decide, labels_before_record};
pub use member::{
    Attendance, Claim, Entry, Facts, History, LabelAge, Standing, Vote, next_sequence, standing,
};
pub use record::{EpochRecord, Fork, LogSpan, Owner, RecordError, RecordParts, SPANS_MAX, VOTERS_MAX};
