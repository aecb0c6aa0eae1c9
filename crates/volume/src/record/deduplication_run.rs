//! The record of the last deduplication of a volume.

use super::{DeduplicationMode, Unknown, value_of_the_map};
use serde::{Deserialize, Serialize};

/// The last deduplication of a volume: when it ran, and what it gave.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeduplicationRun {
    /// Seconds from 1970 to its beginning.
    pub began_s: u64,
    /// Seconds from 1970 to its end.
    pub ended_s: u64,
    /// Load that it caused.
    pub mode: DeduplicationMode,
    /// Bytes of the device that lost their last owner.
    pub saved_bytes: u64,
    /// Claimed bytes of the space before the run less after it.
    pub released_bytes: u64,
    /// Bytes that lost an owner and have another one outside the run.
    pub held_bytes: u64,
    /// Part of the saved bytes that was compressed; they are counted as files read them.
    #[serde(default)]
    pub compressed_bytes: u64,
    /// Bytes by which the free room of the volume grew; writers change it too.
    #[serde(default)]
    pub freed_bytes: u64,
    /// Bytes that undos have given to files since the run.
    #[serde(default)]
    pub undone_bytes: u64,
    /// Undos of this volume that were begun, on any host: an index of files that is older names former places.
    #[serde(default, skip_serializing_if = "is_none")]
    pub undos: u64,
    /// Whether it ended before all files were looked at.
    #[serde(default)]
    pub is_stopped: bool,
    /// Fields of later builds.
    #[serde(flatten)]
    pub unknown: Unknown,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
const fn is_none(undos: &u64) -> bool {
    *undos == 0
}

value_of_the_map!(DeduplicationRun, "deduplication run");
