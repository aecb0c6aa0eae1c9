//! Errors of calls to file systems.

use std::io;

/// A call that a file system refused.
#[derive(Debug, thiserror::Error)]
#[error("the file system refused to {what}: {source}")]
pub struct FilesError {
    /// What was asked for, as a verb with its object.
    pub what: &'static str,
    /// The kernel's answer.
    pub source: io::Error,
}

impl FilesError {
    pub(crate) fn of(what: &'static str) -> impl Fn(io::Error) -> Self {
        move |source| Self { what, source }
    }

    /// Returns whether the file system, or this kernel, does not have the call at all.
    #[must_use]
    pub fn is_unsupported(&self) -> bool {
        matches!(self.source.raw_os_error(), Some(libc::EOPNOTSUPP | libc::ENOTTY | libc::ENOSYS))
    }

    /// Returns whether the file that was named is there no more.
    #[must_use]
    pub fn is_deleted(&self) -> bool {
        matches!(self.source.raw_os_error(), Some(libc::ENOENT | libc::ESTALE))
    }

    /// Returns whether there is no room for what was asked.
    #[must_use]
    pub fn is_full(&self) -> bool {
        matches!(self.source.raw_os_error(), Some(libc::ENOSPC | libc::EDQUOT))
    }
}
