//! What callers can get wrong. All of it is found before the first byte of a block is written.

use std::fmt;

use crate::kernel::Kernel;
use crate::{DATA_COUNT_MAX, PARITY_COUNT_MAX};

/// Why there is no such code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CodeError {
    /// No data columns, or too many.
    #[error("a code has 1 to {DATA_COUNT_MAX} data columns, not {found}")]
    DataCount {
        /// How many were asked for.
        found: usize,
    },
    /// No parity columns, or too many.
    #[error("a code has 1 to {PARITY_COUNT_MAX} parity columns, not {found}")]
    ParityCount {
        /// How many were asked for.
        found: usize,
    },
    /// The processor lacks what the kernel is made of.
    #[error("this processor cannot run the {kernel} kernel")]
    Kernel {
        /// The kernel that was asked for.
        kernel: Kernel,
    },
}

/// Why columns cannot be computed from others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// More is lost than the code can replace.
    #[error("{found} columns are given, and any other follows from {expected} at least")]
    TooFew {
        /// Columns that are given.
        found: usize,
        /// Columns that are needed: as many as there are data columns.
        expected: usize,
    },
    /// A column that the code does not have.
    #[error("there is no column {column}: the code has columns 0 to {column_max}")]
    NoSuchColumn {
        /// The number that was named.
        column: usize,
        /// The highest number that there is.
        column_max: usize,
    },
    /// A column that is named a second time, as given or as wanted.
    #[error("column {column} is named twice among what is given and what is wanted")]
    NamedTwice {
        /// Its number.
        column: usize,
    },
}

/// What blocks are for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// All data blocks of a stripe.
    Data,
    /// All parity blocks of a stripe.
    Parity,
    /// Changes of data blocks.
    Changes,
    /// The blocks that a plan reads.
    Sources,
    /// The blocks that a plan writes.
    Targets,
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Data => "data blocks",
            Self::Parity => "parity blocks",
            Self::Changes => "changes",
            Self::Sources => "sources",
            Self::Targets => "targets",
        })
    }
}

/// Why the blocks that were given cannot be worked on; none of them was written to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BlocksError {
    /// There is not one place for each column.
    #[error("{found} {role} are given, the columns ask for {expected}")]
    Count {
        /// What they are for.
        role: Role,
        /// How many were given.
        found: usize,
        /// How many there have to be.
        expected: usize,
    },
    /// Blocks of one stripe differ in length.
    #[error(
        "{role} at place {place}: {found_bytes} bytes, the first block of the stripe has {expected_bytes}"
    )]
    Length {
        /// What the odd one is for.
        role: Role,
        /// Its place among those of its role.
        place: usize,
        /// Its length.
        found_bytes: usize,
        /// The length of the stripe's first block, parity and targets counted first.
        expected_bytes: usize,
    },
    /// A block without a byte.
    #[error("{role} at place {place}: a block has a byte at least")]
    Empty {
        /// What it is for.
        role: Role,
        /// Its place among those of its role.
        place: usize,
    },
    /// A change of something that is no data column.
    #[error("there is no data column {column} to be changed: the code has {data_count}")]
    NoSuchColumn {
        /// The number that was named.
        column: usize,
        /// How many data columns there are.
        data_count: usize,
    },
    /// Two changes of one data column.
    #[error("data column {column} is changed twice at once")]
    ChangedTwice {
        /// Its number.
        column: usize,
    },
}
