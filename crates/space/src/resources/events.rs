//! Losses of data and counters of what the engine did, for people to read.

use std::fmt;

use dolmen_units::{Bytes, Name, SpaceId};

/// Something that happened to a range of a space.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DataLossEvent {
    /// Which space.
    pub space: SpaceId,
    /// First byte.
    pub at: u64,
    /// Length.
    pub length: Bytes,
    /// What happened.
    pub kind: DataLossKind,
}

impl DataLossEvent {
    pub(crate) fn end(&self) -> u64 {
        self.at.saturating_add(self.length.0)
    }

    pub(crate) fn is_like(&self, other: &Self) -> bool {
        (self.space, self.kind) == (other.space, other.kind)
    }

    pub(crate) fn covers(&self, other: &Self) -> bool {
        // Of what its table does not know, each block is lost.
        let is_of_table = self.space == other.space
            && (self.kind, other.kind) == (DataLossKind::TableLost, DataLossKind::Lost);
        (is_of_table || self.is_like(other)) && self.at <= other.at && other.end() <= self.end()
    }

    /// Whether another one begins where this ends. What was accepted unverified is told block by block.
    pub(crate) fn continues_with(&self, other: &Self) -> bool {
        self.is_like(other) && self.end() == other.at && self.kind != DataLossKind::AcceptedUnverified
    }
}

/// What happened to a range of a space.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DataLossKind {
    /// It was being overwritten when power failed, and its other copies were lost or damaged in that instant: taken as
    /// it was found (the one exception of P2).
    AcceptedUnverified,
    /// No copy matched its checksum.
    Lost,
    /// No copy that is here matched its checksum, and one on a disk that is absent may.
    CorruptHere,
    /// No copy of its table could be believed; what it held is unknown.
    TableLost,
}

/// What the engine did since the pool was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SpaceCounters {
    /// Writes of blocks never written.
    pub fresh_writes: u64,
    /// Writes of blocks not flushed yet.
    pub rewrites: u64,
    /// Writes over flushed content.
    pub overwrites: u64,
    /// Flushes that reached the disks.
    pub flushes: u64,
    /// Flushes that another one covered.
    pub shared_flushes: u64,
    /// Table pages read.
    pub page_reads: u64,
    /// Table pages written, counted once for all copies.
    pub page_writes: u64,
    /// Blocks that did not match their checksum on one copy.
    pub checksum_errors: u64,
    /// Blocks rewritten from another copy.
    pub healed_blocks: u64,
    /// Blocks accepted unverified after a crash.
    pub accepted_unverified: u64,
    /// Blocks that no copy could give.
    pub lost_blocks: u64,
    /// Table pages that no copy could give.
    pub lost_pages: u64,
    /// Blocks copied to a disk that had missed them.
    pub resynced_blocks: u64,
    /// Shadow rows that were claimed.
    pub shadows_made: u64,
    /// Of all shadow rows, those that were promoted.
    pub shadows_promoted: u64,
    /// Stripes that were copied to shadow rows, because nobody had brought them, or back to rows.
    pub shadow_stripes_copied: u64,
    /// Of all shadow rows, those that gave their stripes back to their rows.
    pub shadows_dropped: u64,
    /// Stripes that went from a row to its shadow row or back, and are said to be there no more.
    pub stripes_switched: u64,
    /// Shadow rows that were there when the pool was opened.
    pub shadows_found: u64,
    /// Rows that were moved to another layout.
    pub converted_rows: u64,
}

/// Bytes of a space that follow each other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpaceRange {
    /// Which space.
    pub space: Name,
    /// First byte.
    pub at: u64,
    /// How many.
    pub length: Bytes,
}

impl fmt::Display for SpaceRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of space {} from byte {} on", self.length, self.space, self.at)
    }
}
