//! Pools: disks that share their space.
//!
//! - [`Pool`] is an open pool: who may write, the metadata map with its log, and the allocation units of every disk.
//! - [`create`] makes one of devices, [`open`] finds one on them, and [`discover`] only looks.
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
//! the log is trimmed (docs/design/0001). Where another host may reach the disks, `hosts` keeps two of them apart.
//!
//! Invariants:
//! - Allocation units are handed out only after the commit that freed them is durable on every voter.
//! - Nothing is committed before every voter holds it; a voter that does not answer is voted out first.
//! - A pool that lost its last voter, or its order of writes, is latched: nothing more is acknowledged.

mod arbiter;
mod bays;
mod change;
mod checkpoint;
mod claim;
mod create;
mod discover;
mod disk;
mod domains;
mod epochs;
mod error;
mod free;
mod hosts;
pub mod keys;
mod label_scrub;
mod members;
mod open;
mod pool;
mod ranks;
mod removal;
mod roles;
mod settings;
mod spared;
mod stamp;

pub use arbiter::{Arbiter, ArbiterError, HostRecord, LocalFuture, MemoryArbiter};
pub use bays::BAY_BYTES_MAX;
pub use change::{Change, Claim, Purpose, decode_edits};
pub use checkpoint::{LogNeed, TableOwner};
pub use create::{
    AbsentMember, CHECKPOINT_BYTES, CreateOptions, areas, check_devices, create, create_as, metadata_lengths,
};
pub use discover::{Candidate, Found, discover, name_of, owner_of};
pub use disk::{Ailment, Disk, DiskCounters, DiskState};
pub use dolmen_epoch::{ChangeError, VOTERS_MAX};
pub use error::{CreateError, OpenError, PoolError, StrayReason};
pub use free::{RUNS_MAX, Run};
pub use hosts::{HOLD, WATCH};
pub use label_scrub::DamagedLabels;
pub use members::{members_of, stray_reason};
pub use open::{Foreseen, OpenMode, OpenOptions, Opened, foresee, open};
pub use pool::{DiskRoom, ExcludeReason, LogRoom, Pool, PoolState, RecordedBlocks, RecoveredBlock};
pub use roles::Role;
pub use settings::{ALERTS_MAX, KEEP_ROOM_FOR_MAX};
