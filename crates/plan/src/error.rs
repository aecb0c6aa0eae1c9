//! What can be wrong with what was asked: each message names where it stands, and what would do instead.

use std::fmt;

use dolmen_units::{Bytes, DISKS_MAX, ParseBytesError};

use crate::disks::DISK_BYTES_MAX;
use crate::layout::{WIDE_DATA_MAX, WIDE_PARITY_MAX};

/// Where a disk was written down.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// On the command line: the text itself.
    Typed {
        /// What was typed.
        text: String,
    },
    /// In a file.
    Line {
        /// The file.
        file: String,
        /// The line, from 1.
        line: usize,
        /// What stands there.
        text: String,
    },
    /// Found on this machine.
    Found {
        /// Its path.
        path: String,
    },
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Typed { text } => write!(f, "disk {text:?}"),
            Self::Line { file, line, text } => write!(f, "{file}:{line}: disk {text:?}"),
            Self::Found { path } => write!(f, "disk {path}"),
        }
    }
}

/// What is wrong with one disk of a list.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ListFault {
    /// The size is none.
    #[error("{0}; a disk is written [NAME=][COUNTx]SIZE[@DOMAIN], such as 8TB, 3x4TB or bay1=8TB@shelf2")]
    Size(ParseBytesError),
    /// No disk of a pool is so small.
    #[error("it has {found}; a disk of a pool has at least {}: check the unit", dolmen_disk::DISK_BYTES_MIN)]
    TooSmall {
        /// Its size.
        found: Bytes,
    },
    /// No disk is so large.
    #[error("it has {found}; the largest disk that is planned for has {DISK_BYTES_MAX}: check the unit")]
    TooLarge {
        /// Its size.
        found: Bytes,
    },
    /// The number before the `x`.
    #[error("{found:?} is no number of disks; write 1 to {DISKS_MAX} before the x, such as 3x4TB")]
    Count {
        /// What stands there.
        found: String,
    },
    /// A name of a disk or a fault domain.
    #[error(
        "{found:?} cannot be a name; write 1 to 64 characters, none of them a space, a control character, = or @"
    )]
    Name {
        /// What stands there.
        found: String,
    },
    /// Two disks of one name.
    #[error("there is a disk named {found:?} already; give each disk a name of its own, or none")]
    Twice {
        /// The name.
        found: String,
    },
    /// More than a pool can have.
    #[error(
        "with it there are more than {DISKS_MAX} disks, the most that a pool can have; plan for two pools"
    )]
    TooMany,
}

/// A list of disks that cannot be planned for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ListError {
    /// There is none.
    #[error(
        "no disks to plan for; write some, such as `dolmen plan 4x8TB`, name a file with --file, or say --here"
    )]
    Empty,
    /// One of them is wrong.
    #[error("{place}: {fault}")]
    Disk {
        /// Where it stands.
        place: Place,
        /// What is wrong with it.
        fault: ListFault,
    },
}

/// A word that names no layout.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LayoutError {
    /// Not a word of this command.
    #[error(
        "no resiliency is called {found:?}; there are simple, span, mirror, mirror:3, parity, parity:2, 8+3 (data and parity columns), mixed:30 (per cent in mirror rows) and mirror:2/parity (copies on fault domains, each protected within)"
    )]
    Unknown {
        /// What was given.
        found: String,
    },
    /// Copies out of range.
    #[error("{found:?} asks for {copies} copies; a mirror has 2 to {}", dolmen_placement::COPIES_MAX)]
    Copies {
        /// What was given.
        found: String,
        /// The copies in it.
        copies: u32,
    },
    /// Parity out of range.
    #[error(
        "{found:?} asks for {parity} parity columns; parity has 1 or {}, and a code written DATA+PARITY up to {WIDE_PARITY_MAX}",
        dolmen_placement::PARITY_MAX
    )]
    Parity {
        /// What was given.
        found: String,
        /// The parity columns in it.
        parity: u32,
    },
    /// Columns out of range.
    #[error("{found:?} asks for {data} data columns; a code has 2 to {WIDE_DATA_MAX}")]
    Data {
        /// What was given.
        found: String,
        /// The data columns in it.
        data: u32,
    },
    /// A share out of range.
    #[error(
        "{found:?} asks for {percent} % in mirror rows; write 1 to 99, or plan for a mirror or for parity alone"
    )]
    Percent {
        /// What was given.
        found: String,
        /// The share in it.
        percent: u32,
    },
    /// Something else than a mirror outside.
    #[error(
        "{found:?} has {outer:?} before the slash; only a mirror keeps copies on several fault domains: write mirror:2/{inner}"
    )]
    Outer {
        /// What was given.
        found: String,
        /// What stands before the slash.
        outer: String,
        /// What stands behind it.
        inner: String,
    },
    /// Something within that is no plain code.
    #[error(
        "{found:?} has {inner:?} behind the slash; within a fault domain there may be simple, mirror, parity or a code such as 8+2"
    )]
    Inner {
        /// What was given.
        found: String,
        /// What stands behind the slash.
        inner: String,
    },
}

/// Why a layout cannot be made of these disks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Problem {
    /// Too few fault domains.
    #[error(
        "needs {needed} fault domains, and there are {found}; add disks in further domains, or choose less redundancy"
    )]
    TooFewDomains {
        /// Domains needed.
        needed: u32,
        /// Domains there.
        found: u32,
    },
    /// Too few fault domains that have enough disks each.
    #[error(
        "needs {needed} fault domains of at least {disks} disks each, and {found} are so; say with @DOMAIN which disks belong together"
    )]
    TooFewWithin {
        /// Domains needed.
        needed: u32,
        /// Disks needed in each.
        disks: u32,
        /// Domains that have as many.
        found: u32,
    },
}
