//! Errors of copies.

use std::io;
use std::path::{Path, PathBuf};

/// A copy that was not made.
#[derive(Debug, thiserror::Error)]
pub enum CopyError {
    /// The target has its name already.
    #[error("{} exists; the copy would replace it, and nothing was changed", path.display())]
    Exists {
        /// The target.
        path: PathBuf,
    },
    /// The target lies in the source.
    #[error("{} lies within {}, and a copy cannot hold itself; nothing was changed", target_path.display(), source_path.display())]
    Inside {
        /// The source.
        source_path: PathBuf,
        /// The target.
        target_path: PathBuf,
    },
    /// The root of the host has no name.
    #[error("{} is the root of this host; name a file or a folder below it", path.display())]
    Root {
        /// Path that was given.
        path: PathBuf,
    },
    /// Extents of a file cannot be shared.
    #[error(
        "{} cannot be shared: it lies on {source_system}, the copy on {target_system} ({why}); nothing was changed",
        path.display()
    )]
    NotShared {
        /// File of the source.
        path: PathBuf,
        /// Kind of its file system, and its mount point.
        source_system: String,
        /// The same of the target.
        target_system: String,
        /// Answer of the kernel.
        why: io::Error,
    },
    /// An entry is another than a moment before.
    #[error("{} was exchanged while it was copied; the copy was dropped", path.display())]
    Exchanged {
        /// The entry.
        path: PathBuf,
    },
    /// A call failed.
    #[error("cannot {step} {}: {source}", path.display())]
    Call {
        /// What was tried, as a verb.
        step: &'static str,
        /// Path that it was tried on.
        path: PathBuf,
        /// Answer of the kernel.
        source: io::Error,
    },
}

impl CopyError {
    pub(crate) fn at(step: &'static str, path: &Path) -> impl FnOnce(rustix::io::Errno) -> Self {
        move |error| Self::Call { step, path: path.to_owned(), source: error.into() }
    }

    pub(crate) fn io(step: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Call { step, path: path.to_owned(), source }
    }
}
