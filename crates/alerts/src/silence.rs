//! Silences: no notification of what matches, until a time.

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::evidence::Evidence;
use crate::pattern::{Pattern, PatternError};

/// Silences at a time, at most.
pub const SILENCES_MAX: usize = 256;
/// The longest silence, in seconds.
pub const SILENCE_S_MAX: u64 = 366 * 24 * 3600;
/// Bytes of an author or a comment, at most.
pub const NOTE_BYTES_MAX: usize = 500;

/// A request for a silence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewSilence {
    /// Codes of findings that it matches, such as `disk_*`.
    pub code: Pattern,
    /// Objects that it matches, as texts name them: `disk 3 of tank`, `tank/home`, `tank`, `daemon`.
    pub object: Pattern,
    /// The user who set it.
    pub author: String,
    /// The reason.
    pub comment: String,
    /// Its duration in seconds.
    pub for_s: u64,
}

/// A silence that is set.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Silence {
    /// Its number.
    pub id: u64,
    /// Codes of findings that it matches.
    pub code: Pattern,
    /// Objects that it matches.
    pub object: Pattern,
    /// The user who set it.
    pub author: String,
    /// The reason.
    pub comment: String,
    /// When it was set, in seconds since 1970.
    pub set_s: u64,
    /// When it expires, in seconds since 1970.
    pub until_s: u64,
    /// When it expires, in seconds that elapsed, so that a clock that jumped back does not prolong it.
    pub(crate) until_elapsed_s: u64,
}

/// A silence that is refused.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SilenceError {
    /// A pattern is refused.
    #[error("a pattern of the silence is refused")]
    Pattern(#[from] PatternError),
    /// There are too many.
    #[error("there are {SILENCES_MAX} silences, which is the most; remove one first")]
    TooMany,
    /// It lasts no time, or too long.
    #[error("the silence lasts {found_s} s, and may last 1 to {SILENCE_S_MAX} s")]
    Duration {
        /// Its duration.
        found_s: u64,
    },
    /// It names no author, or author or comment are too long.
    #[error(
        "the author has {found} bytes and the comment {comment} bytes; give an author, and {NOTE_BYTES_MAX} bytes at most for each"
    )]
    Note {
        /// Bytes of the author.
        found: usize,
        /// Bytes of the comment.
        comment: usize,
    },
    /// There is none with this number.
    #[error("there is no silence {id}")]
    Unknown {
        /// Its number.
        id: u64,
    },
}

impl NewSilence {
    pub(crate) fn check(&self) -> Result<(), SilenceError> {
        if self.for_s == 0 || self.for_s > SILENCE_S_MAX {
            return Err(SilenceError::Duration { found_s: self.for_s });
        }
        let (found, comment) = (self.author.len(), self.comment.len());
        if found == 0 || found > NOTE_BYTES_MAX || comment > NOTE_BYTES_MAX {
            return Err(SilenceError::Note { found, comment });
        }
        Ok(())
    }

    pub(crate) fn set(self, id: u64, now_s: u64, elapsed_s: u64) -> Silence {
        Silence {
            id,
            code: self.code,
            object: self.object,
            author: self.author,
            comment: self.comment,
            set_s: now_s,
            until_s: now_s.saturating_add(self.for_s),
            until_elapsed_s: elapsed_s.saturating_add(self.for_s),
        }
    }
}

impl Silence {
    /// Whether it is over, by either clock.
    pub(crate) const fn is_over(&self, now_s: u64, elapsed_s: u64) -> bool {
        now_s >= self.until_s || elapsed_s >= self.until_elapsed_s
    }

    /// Whether it matches a piece of evidence.
    #[must_use]
    pub fn matches(&self, evidence: &Evidence) -> bool {
        self.code.matches(&evidence.code) && self.object.matches(&evidence.object.to_string())
    }
}
