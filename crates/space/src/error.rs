//! Errors of spaces.

use dolmen_block_io::DeviceError;
use dolmen_placement::RequestError;
use dolmen_pool::PoolError;
use dolmen_units::{Bytes, Name};

/// Why a space did not do what it was asked for.
#[derive(Debug, Clone, thiserror::Error)]
pub enum SpaceError {
    /// Beyond the end of the space, or not in whole sectors.
    #[error("{length} at byte {at} is no range of whole {sector} sectors inside space {name} of {size}")]
    Range {
        /// The space.
        name: Name,
        /// First byte.
        at: u64,
        /// Length.
        length: Bytes,
        /// Its sector.
        sector: Bytes,
        /// Its size.
        size: Bytes,
    },
    /// The data is lost: no copy matches its checksum, or the disks that hold it are not here.
    #[error("{length} at byte {at} of space {name} cannot be read: {why}")]
    Unreadable {
        /// The space.
        name: Name,
        /// First byte.
        at: u64,
        /// Length.
        length: Bytes,
        /// What is the matter.
        why: UnreadableReason,
    },
    /// No copy could be written.
    #[error("{length} at byte {at} of space {name} could not be written")]
    Unwritable {
        /// The space.
        name: Name,
        /// First byte.
        at: u64,
        /// Length.
        length: Bytes,
        /// What the last disk said.
        source: DeviceError,
    },
    /// Acknowledged blocks were on disks that left before a flush covered them.
    #[error(
        "space {name} could not be flushed: blocks that were written last are, or were, only on disks that left; attach those disks again, and write again what is missing"
    )]
    Unflushed {
        /// The space.
        name: Name,
    },
    /// A file that backs a disk could not grow.
    #[error(
        "space {name} could not be written: no space is left under the file that backs a disk of its pool; free some there"
    )]
    NoSpaceBelow {
        /// The space.
        name: Name,
    },
    /// The pool refused.
    #[error(transparent)]
    Pool(#[from] PoolError),
    /// The resiliency, width or lengths make no sense together.
    #[error("a space cannot be made like that")]
    Request(#[from] RequestError),
    /// Too few disks.
    #[error("{what} needs at least {needed} disks in different fault domains; the pool has {found}")]
    TooFewDisks {
        /// The resiliency in words.
        what: String,
        /// How many are needed.
        needed: u32,
        /// How many there are.
        found: usize,
    },
    /// A size that cannot be.
    #[error("a space of {found} cannot be made: {why}")]
    Size {
        /// What was asked for.
        found: Bytes,
        /// Why not.
        why: &'static str,
    },
    /// The name is taken.
    #[error("the pool has a space named {name} already")]
    NameTaken {
        /// Which.
        name: Name,
    },
    /// No such space.
    #[error("the pool has no space named {name}")]
    NoSuchSpace {
        /// Which.
        name: String,
    },
    /// The write cache is full of what cannot be put in place.
    #[error("{name} is full, and what is in it cannot be put in place now; attach the disks that are absent")]
    CacheFull {
        /// The space of the cache.
        name: Name,
    },
    /// Shrinking would cut off data.
    #[error(
        "space {name} cannot shrink to {wanted}: there is data behind that, up to byte {used_end}; trim or move it first"
    )]
    NotEmpty {
        /// The space.
        name: Name,
        /// The size asked for.
        wanted: Bytes,
        /// Where the data ends.
        used_end: u64,
    },
    /// It was deleted or the pool closed while the request was under way.
    #[error("space {name} is gone")]
    Gone {
        /// Which.
        name: Name,
    },
    /// What this version cannot do yet.
    #[error("{what} is not available in this version; {instead}")]
    Unsupported {
        /// What was asked for.
        what: &'static str,
        /// What can be done instead.
        instead: &'static str,
    },
}

/// Why a range cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum UnreadableReason {
    /// Known to be lost.
    #[error("its data was lost; write it again")]
    Damaged,
    /// Found just now: no copy matches.
    #[error("no copy can be read and matches its checksum; restore it from a backup and write it again")]
    NoGoodCopy,
    /// Found just now: no copy here matches, and a disk is absent that may have one which does.
    #[error(
        "no copy that is here can be read and matches its checksum; attach the disks that are absent, one may have a good copy"
    )]
    RottenHere,
    /// The disks are absent.
    #[error("the disks that hold it are absent; attach them")]
    Absent,
    /// The disks fail.
    #[error("the disks that hold it fail: {0}")]
    Device(DeviceError),
    /// Its table is lost.
    #[error("no copy of its table can be read; nothing is known about it")]
    NoTable,
}

impl UnreadableReason {
    /// Whether no disk that comes back can change it.
    pub(crate) fn is_final(self) -> bool {
        match self {
            Self::Damaged | Self::NoGoodCopy | Self::NoTable => true,
            Self::RottenHere | Self::Absent | Self::Device(_) => false,
        }
    }
}
