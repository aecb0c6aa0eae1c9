//! What keeps the command from doing what it was asked for.

use std::io;
use std::path::PathBuf;

use dolmen_block_linux::{OpenError, RuntimeError};
use dolmen_rescue::RescueError;

/// Why nothing, or not all of it, came out.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ToolError {
    /// The system gives no way to read disks.
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
    /// A device cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// What is on the devices does not do for what was asked for.
    #[error(transparent)]
    Rescue(#[from] RescueError),
    /// The file is there.
    #[error("{} is there already; nothing was written, name a file that is not", path.display())]
    Exists {
        /// Which.
        path: PathBuf,
    },
    /// Nowhere to put the list of bad ranges.
    #[error("with the standard output as file, say with --bad-ranges where the list of bad ranges is to go")]
    NoList,
    /// The file lies on one of the disks that are read.
    #[error("{} is one of the disks that are read; nothing was written", path.display())]
    OnDisk {
        /// Which.
        path: PathBuf,
    },
    /// A file cannot be written.
    #[error("writing {} failed; what it has so far is not all", path.display())]
    Write {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// An answer cannot be made.
    #[error("the answer could not be written as a document")]
    Document(#[from] serde_json::Error),
    /// The standard output is gone.
    #[error("the answer could not be written")]
    Out(#[from] io::Error),
}

impl ToolError {
    /// The exit code.
    pub(crate) fn number(&self) -> u8 {
        match self {
            Self::NoList => 2,
            Self::Exists { .. } | Self::OnDisk { .. } => 73,
            Self::Open(OpenError::Denied { .. }) => 77,
            Self::Rescue(
                RescueError::NoSuchSpace { .. }
                | RescueError::NoSuchPool { .. }
                | RescueError::SeveralPools { .. }
                | RescueError::NoCheckpoint { .. }
                | RescueError::Twice { .. },
            ) => 2,
            Self::Open(OpenError::NotFound { .. } | OpenError::NotADisk { .. }) => 2,
            Self::Runtime(_)
            | Self::Open(_)
            | Self::Rescue(_)
            | Self::Write { .. }
            | Self::Document(_)
            | Self::Out(_) => 74,
        }
    }
}
