//! Errors of spaces.

use dolmen_block_io::DeviceError;
use dolmen_placement::RequestError;
use dolmen_pool::PoolError;
use dolmen_units::{Bytes, Name};

use crate::format::attribute_fault::AttributeFault;
use crate::format::limit_fault::{LimitFault, LimitKind};
use crate::format::raw::{INTERLEAVE_BYTES, INTERLEAVE_RANGE};

/// Why a space did not do what it was asked for.
#[derive(Debug, Clone, thiserror::Error)]
pub enum SpaceError {
    /// Beyond the end of the space.
    #[error("{length} at byte {at} end beyond space {name}, which has {size}; ask for a range inside it")]
    Range {
        /// The space.
        name: Name,
        /// First byte.
        at: u64,
        /// Length.
        length: Bytes,
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
    /// Fewer disks carry the metadata than the space may lose.
    #[error(
        "{what} would survive its pool: the metadata is on {found} of its disks, and others are too small to carry it ({small}); it takes an area of {area}, a thousandth of a disk; add larger disks first, or choose less redundancy"
    )]
    TooFewVoters {
        /// The resiliency in words.
        what: String,
        /// Disks that carry the metadata.
        found: usize,
        /// Disks that cannot.
        small: String,
        /// How much room it takes.
        area: Bytes,
    },
    /// An interleave that cannot be.
    #[error("an interleave of {found} cannot be in rows of {row}: {}", interleaves_of(*row))]
    Interleave {
        /// What was asked for.
        found: Bytes,
        /// The length of the rows.
        row: Bytes,
    },
    /// A size that cannot be.
    #[error("a space of {found} cannot be made: {why}")]
    Size {
        /// What was asked for.
        found: Bytes,
        /// Why not.
        why: &'static str,
    },
    /// A fixed space cannot become so large.
    #[error(
        "space {name} cannot have {wanted}: it is fixed, so all of it has to fit the pool, where it can have {most} at most; \
         nothing was changed"
    )]
    TooLarge {
        /// The space.
        name: Name,
        /// The size that was asked for.
        wanted: Bytes,
        /// The largest that it can have now.
        most: Bytes,
    },
    /// So much cannot be reserved for a space.
    #[error("{wanted} cannot be reserved for space {name}, {most} at most: {why}; nothing was changed")]
    Reserve {
        /// The space.
        name: Name,
        /// What was asked for.
        wanted: Bytes,
        /// The most that it can have now.
        most: Bytes,
        /// Why not more.
        why: &'static str,
    },
    /// It is converted to something else already.
    #[error(
        "space {name} is being converted from {from} to {to}; let that end, or turn it round by converting it to what it was"
    )]
    Converting {
        /// The space.
        name: Name,
        /// What it was, in words.
        from: String,
        /// What it will be, in words.
        to: String,
    },
    /// There is no room for its rows in another layout.
    #[error(
        "space {name} cannot be converted: there is no room for {stuck} of its {rows} rows in that layout; add disks, or free room; \
         nothing was changed"
    )]
    NoRoomToConvert {
        /// The space.
        name: Name,
        /// Rows for which there is no room.
        stuck: u64,
        /// Rows that it has.
        rows: u64,
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
    #[error(
        "{name} is full, and what is in it cannot be put in place now; attach the disks that are absent, or wait until those that are back are up to date"
    )]
    CacheFull {
        /// The space of the cache.
        name: Name,
    },
    /// A change of the size of a write cache was stopped.
    #[error("another size of {name} was called off")]
    CalledOff {
        /// The space of the cache.
        name: Name,
    },
    /// A limit of a space makes no sense.
    #[error("{limit} of space {name} {fault}; nothing was changed")]
    Limit {
        /// The space.
        name: Name,
        /// Which.
        limit: LimitKind,
        /// What is wrong with it.
        fault: LimitFault,
    },
    /// An attribute of a space is refused.
    #[error("attribute {number} of type {kind} of space {name} {fault}; nothing was changed")]
    Attribute {
        /// The space.
        name: Name,
        /// Type of the attribute.
        kind: u8,
        /// Number within the type.
        number: u64,
        /// Reason.
        fault: AttributeFault,
    },
    /// A write cache cannot have this size.
    #[error("a write cache cannot have {found}: {limit}")]
    CacheSize {
        /// What was asked for.
        found: Bytes,
        /// What it may have.
        limit: CacheLimit,
    },
    /// A write cache cannot be emptied like that.
    #[error("{0}")]
    CacheDrain(DrainLimit),
    /// There is no such write cache.
    #[error(
        "the pool has no write cache for spaces that survive the loss of so many disks: {redundancy}; it is made with the first strict one"
    )]
    NoWriteCache {
        /// How many.
        redundancy: u8,
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
    Deleted {
        /// Which.
        name: Name,
    },
    /// It is in the trash.
    #[error("space {name} is in the trash")]
    Trashed {
        /// Which.
        name: Name,
    },
    /// It is not in the trash, and so cannot be restored.
    #[error("space {name} is not in the trash")]
    NotTrashed {
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

/// How a write cache may be emptied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DrainLimit {
    /// From between these parts on.
    #[error("a write cache can be emptied from 5 to 90 percent on, not from {0}")]
    Fill(u8),
    /// At least so fast.
    #[error("a write cache is emptied with 1 MiB a second at least, not with {0}")]
    Rate(Bytes),
}

/// How large a write cache may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CacheLimit {
    /// At least so large.
    #[error("it needs {0} at least, two rows for writes and one for each copy to put parity in")]
    Least(Bytes),
    /// A part of the pool at most.
    #[error("its copies may take a sixteenth of the pool, so it may have {0} at most")]
    OfPool(Bytes),
    /// As much as the log can name the blocks of.
    #[error("the pool's log can name what lies in {0} and no more, so the rest of it would stay empty")]
    OfLog(Bytes),
    /// As much as there is room for.
    #[error("the pool has room for {0}")]
    Room(Bytes),
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
    CorruptHere,
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
            Self::CorruptHere | Self::Absent | Self::Device(_) => false,
        }
    }
}

impl SpaceError {
    /// Whether what it keeps from being put in place lies safe and may be put there later: with disks that come back, or room.
    pub(crate) fn may_pass(&self) -> bool {
        matches!(self, Self::Unreadable { .. } | Self::CacheFull { .. } | Self::NoSpaceBelow { .. })
    }
}

/// The interleaves that rows of this length can have, as people write them.
fn interleaves_of(row: Bytes) -> String {
    let (min, max) = INTERLEAVE_RANGE;
    let powers =
        std::iter::successors(Some(min.0), |power| power.checked_mul(2)).take_while(|power| *power <= max.0);
    let fitting: Vec<String> = powers
        .filter(|power| row.0.is_multiple_of(*power))
        .map(|power| format!("{}K", power >> 10))
        .collect();
    match fitting.split_last() {
        Some((last, [])) => format!("it is {last} there"),
        Some((last, others)) => {
            format!("it is {} or {last} there; {}K is usual", others.join(", "), INTERLEAVE_BYTES.0 >> 10)
        }
        None => format!("none fits; rows are a multiple of {}K", min.0 >> 10),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_impossible_interleave_is_reported_with_the_possible_ones() {
        let reported = |found, row| {
            SpaceError::Interleave { found: Bytes::kib(found), row: Bytes::kib(row) }.to_string()
        };
        assert_eq!(
            reported(48, 65536),
            "an interleave of 48 KiB cannot be in rows of 64 MiB: it is 16K, 32K, 64K, 128K, 256K, 512K or 1024K there; 256K is \
             usual"
        );
        assert!(
            reported(1024, 1536).ends_with("it is 16K, 32K, 64K, 128K, 256K or 512K there; 256K is usual")
        );
        assert!(reported(64, 1040).ends_with("it is 16K there"));
        assert!(reported(64, 1030).ends_with("none fits; rows are a multiple of 16K"));
    }
}
