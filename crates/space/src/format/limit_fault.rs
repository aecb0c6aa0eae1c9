//! Limits of spaces that make no sense, and why.

use std::fmt;

/// What is wrong with a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LimitFault {
    /// It is zero: nothing would be served any more, or left to it.
    Zero,
    /// The least is above the most.
    Crossed {
        /// The least.
        min: u64,
        /// The most.
        max: u64,
    },
    /// Bytes in a second that are not whole KiB.
    Unaligned {
        /// Bytes.
        found: u64,
    },
    /// More than can be said.
    TooMuch {
        /// What was asked for.
        found: u64,
        /// The most.
        most: u64,
    },
}

impl fmt::Display for LimitFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Zero => f.write_str("is 1 at least; none takes it away"),
            Self::Crossed { min, max } => write!(f, "has its minimum, {min}, above its maximum, {max}"),
            Self::Unaligned { found } => write!(f, "is in whole KiB, not {found} bytes"),
            Self::TooMuch { found, most } => write!(f, "is {most} at most, not {found}"),
        }
    }
}

/// Which limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LimitKind {
    /// Requests in a second.
    Requests,
    /// Bytes in a second.
    Bytes,
}

impl fmt::Display for LimitKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Requests => "a limit of I/Os in a second",
            Self::Bytes => "a limit of bytes in a second",
        })
    }
}
