//! A run of deduplication, from the scan to the report.

use crate::plan::plan;
use crate::policy::Policy;
use crate::scan::scan;
use crate::seam::{Control, FileError, Files, Next, Phase, Progress, Scratch, ScratchError};
use crate::share::share;
use crate::sort::Buffers;

/// End of a run before its time. What was shared until then stays shared.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The scratch folder failed.
    #[error(transparent)]
    Scratch(#[from] ScratchError),
    /// The file system does not list its files.
    #[error(
        "the files of the volume cannot be listed; nothing was changed; check the volume and start again"
    )]
    List(#[source] FileError),
    /// What is free cannot be discarded.
    #[error("what was freed cannot be given back to the pool; trim the volume later")]
    Trim(#[source] FileError),
    /// The rows of a space need more memory than the run has.
    #[error("{rows} rows need {needed} bytes of memory, more than {memory_bytes}; raise the limit")]
    TooManyRows {
        /// Number of rows.
        rows: u64,
        /// Bytes that they need.
        needed: u64,
        /// Bytes that the run has.
        memory_bytes: u64,
    },
    /// The length of a row is no power of two of at least 64 KiB.
    #[error(
        "a row of {row_bytes} bytes is no power of two of at least 65,536; ask the space for its row length"
    )]
    RowLength {
        /// The length.
        row_bytes: u64,
    },
}

/// The seams of a run.
pub(crate) struct Environment<'a, F, S, C> {
    pub(crate) files: &'a mut F,
    pub(crate) scratch: &'a mut S,
    pub(crate) control: &'a mut C,
}

impl<F, S, C: Control> Environment<'_, F, S, C> {
    /// Reports progress and returns `true` if the caller wants the end.
    pub(crate) fn stops(&mut self, phase: Phase, files: u64, bytes: u64, bytes_planned: u64) -> bool {
        self.ends(&Progress { phase, files, bytes, bytes_planned, bytes_saved: 0 })
    }

    /// As [`stops`](Self::stops), with all that there is to report.
    pub(crate) fn ends(&mut self, progress: &Progress) -> bool {
        self.control.next(progress) == Next::Stop
    }
}

/// What a run did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Files that take part.
    pub files: u64,
    /// Files that were new or changed.
    pub files_read: u64,
    /// Files that were left out because they changed or a call failed.
    pub files_skipped: u64,
    /// Bytes read and hashed.
    pub bytes_read: u64,
    /// Pieces that were compared by their hashes.
    pub pieces: u64,
    /// Bytes that sharing all equal pieces would free.
    pub planned_bytes: u64,
    /// Part of the planned bytes that was left out to keep reading sequential.
    pub left_out_bytes: u64,
    /// Requests to share.
    pub calls: u64,
    /// Bytes that requests shared.
    pub shared_bytes: u64,
    /// Requests that found a difference: content changed meanwhile.
    pub differing: u64,
    /// Saved in the volume: bytes on the device that lost their last owner.
    pub saved_bytes: u64,
    /// Part of the saved bytes that was compressed; it is counted as files read it.
    pub encoded_bytes: u64,
    /// Held elsewhere: bytes on the device that a file no longer owns and another owner still does.
    pub held_bytes: u64,
    /// `true` if the caller stopped the run.
    pub stopped: bool,
}

/// Shares equal pieces of files.
///
/// A run that is stopped or killed loses work alone: the next one begins with what the index knows, and finds shared what
/// was shared.
///
/// # Errors
/// The scratch folder fails, or the file system does not list its files.
pub fn deduplicate<F: Files, S: Scratch, C: Control>(
    files: &mut F,
    scratch: &mut S,
    control: &mut C,
    policy: &Policy,
) -> Result<Counts, RunError> {
    let mut environment = Environment { files, scratch, control };
    let mut counts = Counts::default();
    let buffers = Buffers::of(policy.memory_bytes());
    let stopped = Counts { stopped: true, ..counts };
    let Some(scanned) = scan(&mut environment, policy, &mut counts)? else { return Ok(stopped) };
    if scanned.stopped {
        counts.stopped = true;
        return Ok(counts);
    }
    match plan(&mut environment, scanned.pieces, scanned.files, buffers, &mut counts)? {
        Some(plan) => share(&mut environment, plan, &scanned.table, policy, &mut counts)?,
        None => counts.stopped = true,
    }
    Ok(counts)
}
