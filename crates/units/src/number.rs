//! Numbers that only ever grow, and small indices, one type each.

use std::fmt;

macro_rules! number {
    ($(#[$doc:meta])* $name:ident($inner:ty), $prefix:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($prefix, "{}"), self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self.0)
            }
        }
    };
}

number! {
    /// The place of a batch in a pool's log. One order for everything that the pool records; 0 is before all.
    Lsn(u64), "lsn "
}
number! {
    /// The number of an epoch. Two epochs of different history may share a number; [`EpochId`] tells them apart.
    Epoch(u64), "epoch "
}
number! {
    /// A space of a pool. Given once, never again.
    SpaceId(u64), "space "
}
number! {
    /// One incarnation of a row: a stretch of a space together with the slabs that hold it. A row that is freed,
    /// moved or made again gets a new id, so that an old record never speaks of new slabs.
    RowId(u64), "row "
}
number! {
    /// A disk's place in its pool's table of members.
    DiskSlot(u16), "disk "
}

impl Lsn {
    /// The place behind this one.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl Epoch {
    /// The number behind this one.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

/// The identity of an epoch: its number, for order, and random bits, because two halves of a pool that were
/// separated may both have counted on.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct EpochId {
    /// The number.
    pub number: Epoch,
    /// Random bits, drawn when the epoch is made.
    pub nonce: u64,
}

impl fmt::Display for EpochId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{:016x}", self.number.0, self.nonce)
    }
}

impl fmt::Debug for EpochId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EpochId({self})")
    }
}
