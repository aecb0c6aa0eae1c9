//! Of which moment something is that was rescued.

use std::fmt;

/// Of which moment something is that was rescued.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PointInTime {
    /// As the pool is: what a daemon would serve.
    Present,
    /// As the pool is, by an older checkpoint and all of the log since.
    Replayed {
        /// Which checkpoint.
        sequence: u64,
    },
    /// As of a checkpoint; each block as of the last time that its table page was written back.
    Checkpoint {
        /// Which one.
        sequence: u64,
    },
    /// What slabs say of themselves, as of the last time that their table pages were written back.
    Slabs,
}

impl PointInTime {
    /// Whether the log had its say.
    #[must_use]
    pub fn has_log(self) -> bool {
        matches!(self, Self::Present | Self::Replayed { .. })
    }

    /// In one word, for programs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Present => "present",
            Self::Replayed { .. } => "checkpoint_with_log",
            Self::Checkpoint { .. } => "checkpoint_without_log",
            Self::Slabs => "slabs",
        }
    }

    /// The checkpoint, where there is one.
    #[must_use]
    pub const fn checkpoint(self) -> Option<u64> {
        match self {
            Self::Replayed { sequence } | Self::Checkpoint { sequence } => Some(sequence),
            Self::Present | Self::Slabs => None,
        }
    }
}

impl fmt::Display for PointInTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Present => f.write_str("the present: what a daemon would serve"),
            Self::Replayed { sequence } => {
                write!(f, "the present, by checkpoint {sequence} and all of the log since")
            }
            Self::Checkpoint { sequence } => {
                write!(f, "checkpoint {sequence} without the log: what was written since is missing or bad")
            }
            Self::Slabs => f.write_str("what slabs say of themselves, without map and log"),
        }
    }
}
