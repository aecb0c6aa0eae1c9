//! Errors of pools.

use dolmen_block_io::DeviceError;
use dolmen_disk::{ExtentError, Foreign, LabelError, LabelIoError};
use dolmen_epoch::{ChangeError, ReadOnlyReason, RecordError};
use dolmen_journal::{LogError, RecoverError};
use dolmen_placement::NoRoom;
use dolmen_store::{CheckpointError, StoreError};
use dolmen_units::{Bytes, DiskId, DiskSlot, EpochId, Lsn, Name, PoolId};

use crate::arbiter::ArbiterError;

/// Why a pool could not be made. Nothing was written unless the message says so.
#[derive(Debug, thiserror::Error)]
pub enum CreateError {
    /// No device at all.
    #[error("a pool needs at least one disk; name the disks behind the pool's name")]
    NoDisks,
    /// More devices than a pool can have.
    #[error("{found} disks are more than the {limit} that a pool can have")]
    TooMany {
        /// How many.
        found: usize,
        /// How many there may be.
        limit: usize,
    },
    /// The same device twice.
    #[error("{name} is listed twice")]
    Twice {
        /// Which.
        name: String,
    },
    /// Too small.
    #[error("{name} cannot be a disk of a pool")]
    Extent {
        /// Which.
        name: String,
        /// Why.
        source: ExtentError,
    },
    /// It holds somebody else's data.
    #[error(
        "{name} holds {what}; nothing was written. If nobody needs it any more, confirm with --destroy={name}"
    )]
    Foreign {
        /// Which.
        name: String,
        /// What it holds.
        what: Foreign,
    },
    /// It belongs to a pool.
    #[error(
        "{name} is a disk of pool {pool_name} ({pool}); nothing was written. If nobody needs that pool any more, confirm with --destroy={name}"
    )]
    Member {
        /// Which.
        name: String,
        /// The pool's name.
        pool_name: Name,
        /// The pool.
        pool: PoolId,
    },
    /// It has labels that cannot be used.
    #[error(
        "{name} has labels of a pool that cannot be read; nothing was written. If nobody needs that pool any more, confirm with --destroy={name}"
    )]
    Unusable {
        /// Which.
        name: String,
        /// What is wrong with them.
        source: LabelError,
    },
    /// Zones that must be written in order.
    #[error("{name} is a host-managed zoned disk, which cannot be written at random; use another disk")]
    Zoned {
        /// Which.
        name: String,
    },
    /// A device failed while it was being prepared.
    #[error(
        "preparing {name} failed; it belongs to no pool, and disks named before it may be overwritten already"
    )]
    Device {
        /// Which.
        name: String,
        /// Why.
        source: DeviceError,
    },
    /// A label could not be read or written.
    #[error("the pool was not made")]
    Label(#[from] LabelIoError),
    /// The metadata could not be written.
    #[error("the pool was not made: its metadata could not be written")]
    Store(#[from] StoreError),
    /// The first epoch is impossible.
    #[error("the pool was not made: its first epoch is impossible")]
    Record(#[from] RecordError),
    /// It was made, and could not be opened.
    #[error("the pool was made and could not be opened")]
    Open(#[from] Box<OpenError>),
}

/// Why a pool could not be opened. Nothing was written.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// No disk of the pool was given.
    #[error("none of the disks given belongs to a pool")]
    NoDisks,
    /// Disks of more than one pool.
    #[error(
        "{first} belongs to pool {first_pool} and {second} to pool {second_pool}; open one pool at a time"
    )]
    TwoPools {
        /// A disk of one.
        first: String,
        /// Its pool.
        first_pool: PoolId,
        /// A disk of the other.
        second: String,
        /// Its pool.
        second_pool: PoolId,
    },
    /// Two devices with the same identity: a disk and its copy.
    #[error(
        "{first} and {second} both say that they are disk {disk}: one is a copy of the other; detach the copy, then try again"
    )]
    Duplicate {
        /// The identity.
        disk: DiskId,
        /// One.
        first: String,
        /// The other.
        second: String,
    },
    /// The pool is open on another host, or is being opened there.
    #[error(
        "pool {name} is open elsewhere, or just being opened: {by} writes to {disk}; nothing was changed here. Export it there first, or cut that host off from its disks"
    )]
    OpenElsewhere {
        /// Its name.
        name: Name,
        /// The disk whose label changes.
        disk: String,
        /// Who writes, as far as the label tells.
        by: String,
    },
    /// A member was cut short.
    #[error("{name} cannot be used")]
    Extent {
        /// Which.
        name: String,
        /// Why.
        source: ExtentError,
    },
    /// Only voters are here that cannot be believed or written.
    #[error(
        "{disk} of pool {name} carries its metadata and has {found} for it, which takes {needed}: log and data have \
         overwritten each other there; attach another disk that carries metadata, or open the pool read-only and copy what can be read"
    )]
    SmallVoter {
        /// The pool.
        name: Name,
        /// The disk.
        disk: String,
        /// Its metadata area.
        found: Bytes,
        /// Log, pages and checkpoint slots.
        needed: Bytes,
    },
    /// Not enough to open it at all.
    #[error(
        "pool {name} cannot be opened: no disk that carries its metadata is here; attach more of its disks"
    )]
    NoMetadata {
        /// Its name.
        name: Name,
    },
    /// All disks that carry its metadata and are here are as they were before.
    #[error("none of the disks here that carry the metadata of pool {name} is what it was; {disk}: {source}")]
    OnlyStrays {
        /// Its name.
        name: Name,
        /// One of them.
        disk: String,
        /// What is the matter with it.
        source: StrayReason,
    },
    /// It may only be opened read-only.
    #[error("pool {name} may not be written here")]
    ReadOnly {
        /// Its name.
        name: Name,
        /// Why, and what confirming risks.
        source: ReadOnlyReason,
    },
    /// The arbiter did not answer.
    #[error("the host's own record of the pool could not be used")]
    Arbiter(#[from] ArbiterError),
    /// The metadata map cannot be read.
    #[error("the pool's metadata cannot be read")]
    Store(#[from] StoreError),
    /// The log cannot be read.
    #[error("the pool's log cannot be read")]
    Recover(#[from] RecoverError),
    /// The log has holes where there must be none.
    #[error(
        "the pool's log is damaged: {what}; opened read-only at most. `dolmen check` lists what is affected"
    )]
    LogDamage {
        /// What is missing.
        what: String,
    },
    /// Installing the new epoch failed.
    #[error("the pool's new epoch could not be installed")]
    Pool(#[from] PoolError),
}

/// Why a disk that is here is not taken for what it was.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StrayReason {
    /// It was put back, or another was put in its place.
    #[error(
        "it is as it was in epoch {epoch}, and the pool has gone on with it to epoch {newest} since. If there is a newer one of it, attach that; if this is all that is left of it, take it back in: it gets what other copies have"
    )]
    Old {
        /// The newest epoch that it knows.
        epoch: EpochId,
        /// The epoch of the pool.
        newest: EpochId,
    },
    /// As [`Old`](Self::Old); its label tells it.
    #[error(
        "it is as it was in epoch {epoch}, with its label {label}, and the pool has gone on with it to its label {newest} since. If there is a newer one of it, attach that; if this is all that is left of it, take it back in: it gets what other copies have"
    )]
    OldLabel {
        /// The newest epoch that it knows.
        epoch: EpochId,
        /// Its newest label.
        label: u64,
        /// The label that it has had.
        newest: u64,
    },
    /// Somebody confirmed an opening on one side, and the other went on.
    #[error(
        "it may have gone on apart from the pool, up to its epoch {epoch}, and sides are never merged. To lose what only it has, replace the disk by itself, and confirm that it is to be destroyed"
    )]
    Apart {
        /// Its newest epoch.
        epoch: EpochId,
    },
    /// It does not reach to the end of its data any more.
    #[error(transparent)]
    CutShort {
        /// How short it is.
        source: ExtentError,
    },
}

impl StrayReason {
    /// Whether the disk is as it was before: it may be taken back in, and then all of it is stale.
    #[must_use]
    pub fn is_old(&self) -> bool {
        match self {
            Self::Old { .. } | Self::OldLabel { .. } => true,
            Self::Apart { .. } | Self::CutShort { .. } => false,
        }
    }
}

/// Why an open pool did not do something.
#[derive(Debug, Clone, thiserror::Error)]
pub enum PoolError {
    /// Opened for reading.
    #[error("pool {name} is open read-only")]
    ReadOnly {
        /// Its name.
        name: Name,
    },
    /// It lost what it cannot go on without.
    #[error(
        "pool {name} has stopped: {cause}; nothing is written any more until its disks are back and the daemon is started again"
    )]
    Latched {
        /// Its name.
        name: Name,
        /// What was lost.
        cause: String,
    },
    /// There is no room for a slab.
    #[error("pool {name} has no room: {source}; add a disk, or delete or trim something")]
    NoSpace {
        /// Its name.
        name: Name,
        /// What is missing.
        source: NoRoom,
    },
    /// A disk has no run of allocation units of that length.
    #[error("{slot} of pool {name} has no {wanted} left in {runs_max} runs")]
    Fragmented {
        /// Its name.
        name: Name,
        /// Which disk.
        slot: DiskSlot,
        /// How much was wanted.
        wanted: Bytes,
        /// Runs of a slab, at most.
        runs_max: usize,
    },
    /// The metadata area is full.
    #[error(
        "the metadata area of pool {name} is full; delete spaces, or files, and run fstrim: the smallest \
         disk that carried metadata when the pool was made decided its length, and larger disks do not change it"
    )]
    MetadataFull {
        /// Its name.
        name: Name,
    },
    /// One change was too large for the log.
    #[error("a change of {found} does not fit the log at once, at most {limit}")]
    TooLarge {
        /// How large it was.
        found: Bytes,
        /// How large it may be.
        limit: Bytes,
    },
    /// So much of the log is kept for disks that are away that nothing more fits.
    #[error(
        "{kept} of the {of} of log of pool {name} are kept for spaces whose disks are away; attach those disks, or delete those spaces"
    )]
    LogOccupied {
        /// Its name.
        name: Name,
        /// How much is kept.
        kept: Bytes,
        /// Of how much.
        of: Bytes,
    },
    /// No voter could give back what the log says.
    #[error(
        "the log of pool {name} could not be read from any disk; see to its disks, then start the daemon again"
    )]
    LogUnreadable {
        /// Its name.
        name: Name,
        /// What happened.
        source: std::rc::Rc<dolmen_journal::RecoverError>,
    },
    /// The log failed.
    #[error("the log of pool {name} failed")]
    Log {
        /// Its name.
        name: Name,
        /// Why.
        source: LogError,
    },
    /// The metadata map failed.
    #[error("the metadata of pool {name} failed")]
    Store {
        /// Its name.
        name: Name,
        /// Why.
        source: std::rc::Rc<StoreError>,
    },
    /// No checkpoint could be made.
    #[error("no checkpoint of the metadata of pool {name} could be made")]
    Checkpoint {
        /// Its name.
        name: Name,
        /// Why.
        source: CheckpointError,
    },
    /// A device cannot join the pool.
    #[error("the device cannot join pool {name}")]
    Join {
        /// Its name.
        name: Name,
        /// Why.
        source: std::rc::Rc<CreateError>,
    },
    /// The next epoch is impossible.
    #[error("the next epoch of pool {name} is impossible")]
    Epoch {
        /// Its name.
        name: Name,
        /// Why.
        source: ChangeError,
    },
    /// The arbiter did not record the epoch.
    #[error("the epoch of pool {name} is not on record")]
    Arbiter {
        /// Its name.
        name: Name,
        /// Why.
        source: ArbiterError,
    },
    /// No such disk.
    #[error("{what} is no disk of pool {name}")]
    NoSuchDisk {
        /// Its name.
        name: Name,
        /// What was asked for.
        what: String,
    },
    /// A replacement cannot be called off, or was.
    #[error("{disk} of pool {name} stays as it is: {why}")]
    NotReplaced {
        /// Its name.
        name: Name,
        /// The disk that was to be replaced.
        disk: String,
        /// What stands in the way.
        why: &'static str,
    },
    /// A member does not have what it is taken for.
    #[error("{disk} is not taken back into pool {name}: {why}")]
    Stray {
        /// Its name.
        name: Name,
        /// The disk.
        disk: String,
        /// Why.
        why: StrayReason,
    },
    /// A disk failed.
    #[error("{slot} of pool {name} failed")]
    Disk {
        /// Its name.
        name: Name,
        /// Which disk.
        slot: DiskSlot,
        /// Why.
        source: DeviceError,
    },
    /// A disk's label could not be written.
    #[error("a label of pool {name} could not be written")]
    Label {
        /// Its name.
        name: Name,
        /// Why.
        source: LabelIoError,
    },
    /// A batch of the log that was written is on no copy any more.
    #[error("the log of pool {name} is damaged: batch {lsn} can be read from no disk any more")]
    LogCorrupt {
        /// Its name.
        name: Name,
        /// Which batch.
        lsn: Lsn,
    },
    /// Something the metadata holds cannot be.
    #[error("the metadata of pool {name} has {what}, which no version writes")]
    Corrupt {
        /// Its name.
        name: Name,
        /// What.
        what: String,
    },
    /// No slot is left, or the disk is known already.
    #[error("pool {name} cannot take another disk: {why}")]
    Full {
        /// Its name.
        name: Name,
        /// Why.
        why: &'static str,
    },
}
