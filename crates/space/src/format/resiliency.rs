//! Resiliency and integrity: how the rows of a space survive losses, and how flushed content is written over.

use std::fmt;
use std::ops::RangeInclusive;

use dolmen_placement::Resiliency as Code;

/// The copies that a mirror may have.
pub(crate) const MIRROR_COPIES: RangeInclusive<u8> = 2..=4;

/// How a space survives the loss of disks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resiliency {
    /// Striped over disks, one copy.
    Simple,
    /// One disk after another, one copy.
    Span,
    /// 2 to 4 copies, striped.
    Mirror {
        /// Copies.
        copies: u8,
    },
    /// Striped, with parity over the columns.
    Parity {
        /// Parity columns: how many disks may be lost.
        parity: u8,
    },
}

impl Resiliency {
    /// Copies of every block.
    #[must_use]
    pub fn copies(self) -> u8 {
        match self {
            Self::Simple | Self::Span | Self::Parity { .. } => 1,
            Self::Mirror { copies } => copies,
        }
    }

    /// Parity columns of a row.
    #[must_use]
    pub fn parity_columns(self) -> u8 {
        match self {
            Self::Parity { parity } => parity,
            Self::Simple | Self::Span | Self::Mirror { .. } => 0,
        }
    }

    /// Disks that may be lost.
    #[must_use]
    pub fn redundancy(self) -> u8 {
        self.copies() - 1 + self.parity_columns()
    }

    /// Whether a row of so many data columns may have it.
    pub(crate) fn fits_row(self, data_columns: usize, integrity: Integrity) -> bool {
        match self {
            Self::Simple => true,
            Self::Span => data_columns == 1,
            Self::Mirror { copies } => MIRROR_COPIES.contains(&copies),
            Self::Parity { parity } => parity > 0 && integrity == Integrity::Strict,
        }
    }

    /// As records have it.
    pub(crate) fn number(self) -> u8 {
        match self {
            Self::Simple => 1,
            Self::Span => 2,
            Self::Mirror { .. } => 3,
            Self::Parity { .. } => 4,
        }
    }

    /// The one that records have with these copies and parity columns; `None` for what no version writes.
    pub(crate) fn of(record: (u8, u8, u8)) -> Option<Self> {
        match record {
            (1, 1, 0) => Some(Self::Simple),
            (2, 1, 0) => Some(Self::Span),
            (3, copies, 0) => Some(Self::Mirror { copies }),
            (4, 1, parity) => Some(Self::Parity { parity }),
            _ => None,
        }
    }

    /// As placement calls it.
    #[must_use]
    pub fn code(self) -> Code {
        match self {
            Self::Simple => Code::Striped { copies: 1 },
            Self::Span => Code::Span,
            Self::Mirror { copies } => Code::Striped { copies: u32::from(copies) },
            Self::Parity { parity } => Code::Parity { parity: u32::from(parity) },
        }
    }
}

impl fmt::Display for Resiliency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Simple => f.pad("simple"),
            Self::Span => f.pad("span"),
            Self::Mirror { copies } => f.pad(&format!("mirror ({copies} copies)")),
            Self::Parity { parity: 1 } => f.pad("parity"),
            Self::Parity { parity: 2 } => f.pad("dual parity"),
            Self::Parity { parity } => f.pad(&format!("parity ({parity} disks)")),
        }
    }
}

/// How content that a flush has covered is written over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Integrity {
    /// In place: a block whose every copy was damaged meanwhile is accepted unverified, counted and listed.
    Relaxed,
    /// Through a write cache: until the new content is safe, nothing touches the old one.
    Strict,
}

impl Integrity {
    /// What a space has when nobody asks for more.
    #[must_use]
    pub const fn usual(resiliency: Resiliency) -> Self {
        match resiliency {
            Resiliency::Parity { .. } => Self::Strict,
            Resiliency::Simple | Resiliency::Span | Resiliency::Mirror { .. } => Self::Relaxed,
        }
    }

    /// As records have it.
    pub(crate) fn number(self) -> u8 {
        match self {
            Self::Relaxed => 1,
            Self::Strict => 2,
        }
    }

    /// The one that records have; `None` for what no version writes.
    pub(crate) fn of(number: u8) -> Option<Self> {
        match number {
            1 => Some(Self::Relaxed),
            2 => Some(Self::Strict),
            _ => None,
        }
    }

    /// The redundancy of the write cache that a space needs, if it needs one: what is strict is not written over in place.
    #[must_use]
    pub fn write_cache(self, resiliency: Resiliency) -> Option<u8> {
        (self == Self::Strict).then(|| resiliency.redundancy())
    }
}
