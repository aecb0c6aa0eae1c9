//! Records of blocks in the log, which only the space above can read.

use dolmen_epoch::EpochRecord;
use dolmen_journal::{Owner as SpanOwner, Recovered};
use dolmen_units::Lsn;

/// A record in the log: keys and values.
pub(crate) const RECORD_META: u8 = 1;
/// A record in the log: what was written to blocks; only the space above can read it.
pub(crate) const RECORD_BLOCKS: u8 = 2;
/// A record in the log: the first of an epoch.
pub(crate) const RECORD_OPEN: u8 = 3;

/// A record of blocks, as the log had it when the pool was opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecoveredBlock {
    /// Its place in the log.
    pub lsn: Lsn,
    /// Whether a flush covered what it describes.
    pub durable: bool,
    /// The record.
    pub body: Vec<u8>,
}

impl RecoveredBlock {
    /// The same, to look at.
    #[must_use]
    pub fn as_recorded(&self) -> RecordedBlocks<'_> {
        RecordedBlocks { lsn: self.lsn, durable: self.durable, body: &self.body }
    }
}

/// A record of blocks in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordedBlocks<'a> {
    /// Its place in the log.
    pub lsn: Lsn,
    /// Whether a flush covered what it describes.
    pub durable: bool,
    /// The record.
    pub body: &'a [u8],
}

impl RecordedBlocks<'_> {
    /// The same, to keep.
    pub(crate) fn to_recovered(self) -> RecoveredBlock {
        RecoveredBlock { lsn: self.lsn, durable: self.durable, body: self.body.to_vec() }
    }
}

/// Records of blocks, in order.
pub(crate) fn blocks_of(recovered: &Recovered) -> impl Iterator<Item = RecordedBlocks<'_>> {
    let durable = recovered.durable_mark();
    let blocks = recovered.records().filter(|(_, record)| record.kind == RECORD_BLOCKS);
    blocks.map(move |(lsn, record)| RecordedBlocks { lsn, durable: lsn <= durable, body: record.body })
}

pub(crate) fn spans_of(epoch: &EpochRecord) -> Vec<SpanOwner> {
    epoch.spans().iter().map(|span| SpanOwner { epoch: span.epoch, first: span.first }).collect()
}
