//! Pools: disks that share their space.
//!
//! - [`Pool`] is an open pool. It holds services, each of which knows those before it alone:
//!
//! | service | has |
//! |---|---|
//! | [`Members`] | the table of members and the epoch in force |
//! | [`MetadataMap`] | keys and values |
//! | [`PoolLog`] | the log, and whether the pool can be written |
//! | [`FreeSpace`] | the allocation units of every disk |
//! | [`PoolLabels`], [`Epochs`], [`Flusher`] | labels, changes of the epoch, flushes of all disks |
//! | [`Checkpoints`], [`Changes`] | the trimming of the log, changes of the metadata |
//! | [`Heartbeat`], [`Stamps`], [`VoterTender`] | background tasks |
//! | [`Membership`], [`PoolSettings`] | changes of the members and of settings on request |
//!
//! - [`create`] makes a pool of devices, [`open`] finds one on them, and [`discover`] only looks.
//! - A [`Change`] alters the metadata in one durable step, allocation units included.
//!
//! What spaces and rows mean is not known here: they are keys, values and runs of allocation units.
//!
//! ```text
//! open:       labels ─ epoch decides ─ newest checkpoint ─ all voters' rings: the union ─ old members out
//!             ─ heal logs ─ pend ─ arbiter ─ settle ─ list holes ─ recovery of spaces ─ checkpoint ─ serve
//! change:     one record in one batch, durable on every voter ─ overlay of the map
//! checkpoint: tables of spaces ─ changed pages to free places, flush ─ block to slot n mod 2, flush ─ trim log
//! ```
//!
//! Write order of everything durable: labels and the arbiter as in crate `epoch`, the log before the map, the map before
//! the log is trimmed (docs/design/0001). Where another host may reach the disks, [`Heartbeat`] and the watch of an opening
//! keep two of them apart.
//!
//! Invariants:
//! - Allocation units are handed out only after the commit that freed them is durable on every voter.
//! - Nothing is committed before every voter holds it; a voter that does not answer is voted out first.
//! - A pool that lost its last voter, or its order of writes, is latched: nothing more is acknowledged.

mod arbiter;
mod changes;
mod disks;
mod epochs;
mod error;
pub mod keys;
mod log;
mod members;
mod membership;
mod metadata;
mod opening;
mod ranks;
mod room;

pub use arbiter::{Arbiter, ArbiterError, HostRecord, LocalFuture, MemoryArbiter};
pub use changes::change::{Change, Changes, Claim};
pub use changes::checkpoints::Checkpoints;
pub use disks::condition::{Absence, LabelState};
pub use disks::discover::{Candidate, Found, discover, name_of, owner_of};
pub use disks::disk::{Ailment, Disk, DiskCounters, DiskSize, DiskState};
pub use disks::prepare::{CHECKPOINT_BYTES, areas, check_devices};
pub use dolmen_epoch::{ChangeError, VOTERS_MAX};
pub use epochs::change::{Epochs, ExcludeReason};
pub use epochs::flusher::Flusher;
pub use epochs::heartbeat::Heartbeat;
pub use epochs::labels::{DamagedLabels, PoolLabels};
pub use epochs::stamps::Stamps;
pub use epochs::watch::{HOLD, WATCH};
pub use error::{CreateError, OpenError, PoolError, StrayReason};
pub use log::blocks::{RecordedBlocks, RecoveredBlock};
pub use log::need::{LogNeed, TableOwner};
pub use log::pool_log::{LogRoom, PoolLog, PoolState};
pub use members::entries::{members_of, stray_reason};
pub use members::identity::Identity;
pub use members::role::Role;
pub use members::table::Members;
pub use membership::admission::AbsentMember;
pub use membership::bays::BAY_BYTES_MAX;
pub use membership::requests::Membership;
pub use membership::settings::{ALERTS_MAX, KEEP_ROOM_FOR_MAX, PoolSettings};
pub use membership::voter_tender::VoterTender;
pub use metadata::edits::decode_edits;
pub use metadata::map::{MetadataMap, Purpose};
pub use opening::create::{CreateOptions, create, create_as, metadata_lengths};
pub use opening::open::{Foreseen, OpenMode, OpenOptions, Opened, foresee, open};
pub use opening::pool::Pool;
pub use room::free_map::{RUNS_MAX, Run};
pub use room::free_space::{DiskRoom, FreeSpace};
