//! Segments of what a read returns.

use dolmen_buffer::Shared as Bytes_;
use smallvec::SmallVec;

/// A part of what was read.
#[derive(Debug, Clone)]
pub enum Segment {
    /// So many zeros, for which nothing was read.
    Zeros(usize),
    /// Data.
    Data(Bytes_),
}

impl Segment {
    /// Its length in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::Zeros(length) => *length,
            Self::Data(data) => data.len(),
        }
    }

    /// Whether it has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(crate) fn slice(&self, from: usize, to: usize) -> Self {
        match self {
            Self::Zeros(_) => Self::Zeros(to - from),
            Self::Data(data) => Self::Data(data.slice(from..to)),
        }
    }
}

/// What was read, in order.
pub type Segments = SmallVec<[Segment; 4]>;
