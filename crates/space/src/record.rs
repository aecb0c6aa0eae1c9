//! Records of blocks: what the log says was written where.

use dolmen_units::{Epoch, RowId, SpaceId};
use zerocopy::{FromBytes, IntoBytes};

use crate::format::{RawStretch, STATE_DAMAGED, STATE_NEVER, STATE_VALID};

/// Bits of an epoch that an entry keeps.
const STAMP_BITS: u32 = 24;

/// The low bits of the epoch in which a block was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Stamp(pub(crate) [u8; 3]);

impl Stamp {
    /// The stamp of an epoch.
    pub(crate) fn of(epoch: Epoch) -> Self {
        let bytes = epoch.0.to_le_bytes();
        Self([bytes[0], bytes[1], bytes[2]])
    }

    /// Whether a block with this stamp was written in epoch `since` or later, `now` being the latest. A disk that stayed
    /// away for more epochs than stamps can tell apart missed everything.
    pub(crate) fn is_since(self, since: Epoch, now: Epoch) -> bool {
        let range = 1u64 << STAMP_BITS;
        if now.0.saturating_sub(since.0) >= range - 1 {
            return true;
        }
        let stamp = u64::from(u32::from_le_bytes([self.0[0], self.0[1], self.0[2], 0]));
        // How many epochs ago, which is less than the range by what was just checked.
        let ago = (now.0 % range + range - stamp) % range;
        ago <= now.0 - since.0
    }
}

/// What is known of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum BlockState {
    /// Reads as zeros.
    #[default]
    Never,
    /// Reads as data with this CRC-32C.
    Valid(u32),
    /// Reads fail.
    Damaged,
}

impl BlockState {
    /// The state of an entry; an unknown one is damage.
    pub(crate) fn from_parts(state: u8, checksum: u32) -> Self {
        match state {
            STATE_NEVER => Self::Never,
            STATE_VALID => Self::Valid(checksum),
            _ => Self::Damaged,
        }
    }

    /// The state as an entry has it.
    pub(crate) fn parts(self) -> (u8, u32) {
        match self {
            Self::Never => (STATE_NEVER, 0),
            Self::Valid(checksum) => (STATE_VALID, checksum),
            Self::Damaged => (STATE_DAMAGED, 0),
        }
    }
}

/// A stretch of blocks of one column with one state, as a record says it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stretch {
    pub(crate) space: SpaceId,
    pub(crate) row_index: u64,
    pub(crate) row: RowId,
    pub(crate) column: u8,
    pub(crate) first: u32,
    pub(crate) count: u32,
    pub(crate) stamp: Stamp,
    pub(crate) state: u8,
    pub(crate) intent: bool,
    /// Whether it is not settled, whatever its place in the log: nobody could decide it yet.
    pub(crate) undecided: bool,
    /// Whether it takes the place of all that the log says earlier of these blocks.
    pub(crate) anew: bool,
    /// Whether a flush had covered it before it was said, so that it needs no mark of the log.
    pub(crate) covered: bool,
    /// Low bits of the generation that the page of these blocks has on its disks for certain.
    pub(crate) generation: u16,
}

impl Stretch {
    /// The head of the stretch; a valid one is followed by `count` checksums of four bytes.
    pub(crate) fn head(&self) -> [u8; 40] {
        let raw = RawStretch {
            space: self.space.0.into(),
            row_index: self.row_index.into(),
            row: self.row.0.into(),
            first: self.first.into(),
            count: self.count.into(),
            stamp: self.stamp.0,
            state: self.state,
            column: self.column,
            intent: u8::from(self.intent)
                | u8::from(self.undecided) << 1
                | u8::from(self.anew) << 2
                | u8::from(self.covered) << 3,
            generation: self.generation.into(),
        };
        let mut bytes = [0; 40];
        bytes.copy_from_slice(raw.as_bytes());
        bytes
    }
}

/// A stretch that was read from the log, with its checksums.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReadStretch<'a> {
    pub(crate) stretch: Stretch,
    checksums: &'a [u8],
    /// Bytes from its head to the end of its checksums.
    pub(crate) bytes: usize,
}

impl ReadStretch<'_> {
    /// The state of block `index` of the stretch.
    pub(crate) fn state(&self, index: u32) -> BlockState {
        let at = index as usize * 4;
        let checksum = self
            .checksums
            .get(at..at + 4)
            .and_then(|bytes| bytes.try_into().ok())
            .map_or(0, u32::from_le_bytes);
        BlockState::from_parts(self.stretch.state, checksum)
    }
}

/// The stretch that begins at byte `at` of a record.
pub(crate) fn stretch_at(body: &[u8], at: usize) -> Option<ReadStretch<'_>> {
    next_stretch(&mut body.get(at..)?)
}

/// The stretches of a record; `None` in place of the rest when it makes no sense.
pub(crate) fn stretches(body: &[u8]) -> impl Iterator<Item = Option<ReadStretch<'_>>> {
    let mut rest = body;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let read = next_stretch(&mut rest);
        if read.is_none() {
            rest = &[];
        }
        Some(read)
    })
}

fn next_stretch<'a>(rest: &mut &'a [u8]) -> Option<ReadStretch<'a>> {
    let (raw, after) = RawStretch::read_from_prefix(rest).ok()?;
    let stretch = Stretch {
        space: SpaceId(raw.space.get()),
        row_index: raw.row_index.get(),
        row: RowId(raw.row.get()),
        column: raw.column,
        first: raw.first.get(),
        count: raw.count.get(),
        stamp: Stamp(raw.stamp),
        state: raw.state,
        intent: raw.intent & 1 != 0,
        undecided: raw.intent & 2 != 0,
        anew: raw.intent & 4 != 0,
        covered: raw.intent & 8 != 0,
        generation: raw.generation.get(),
    };
    let known = matches!(raw.state, STATE_NEVER | STATE_VALID | STATE_DAMAGED) && raw.intent <= 15;
    if !known || stretch.count == 0 || stretch.first.checked_add(stretch.count).is_none() {
        return None;
    }
    let length =
        if raw.state == STATE_VALID { usize::try_from(stretch.count).ok()?.checked_mul(4)? } else { 0 };
    let (checksums, after) = after.split_at_checked(length)?;
    let bytes = size_of::<RawStretch>() + length;
    *rest = after;
    Some(ReadStretch { stretch, checksums, bytes })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn stamps_order_epochs_across_their_wrap(now in 1u64..1 << 40, since in 0u64..1 << 24, written in 0u64..1 << 24) {
            let (since, written) = (now.saturating_sub(since), now.saturating_sub(written));
            let missed = Stamp::of(Epoch(written)).is_since(Epoch(since), Epoch(now));
            if now - since < (1 << 24) - 1 && now - written < 1 << 24 {
                prop_assert_eq!(missed, written >= since);
            } else {
                prop_assert!(missed || written < since);
            }
        }

        #[test]
        fn nonsense_in_a_record_does_no_harm(body in proptest::collection::vec(any::<u8>(), 0..300)) {
            for read in stretches(&body).flatten() {
                let _ = read.state(read.stretch.count - 1);
            }
        }
    }

    #[test]
    fn a_record_reads_back_as_it_was_written() {
        let stretch = Stretch {
            space: SpaceId(1),
            row_index: 2,
            row: RowId(3),
            column: 1,
            first: 7,
            count: 2,
            stamp: Stamp::of(Epoch(0x0102_0304)),
            state: STATE_VALID,
            intent: true,
            undecided: true,
            anew: true,
            covered: false,
            generation: 0x1234,
        };
        let mut body = stretch.head().to_vec();
        body.extend([1, 0, 0, 0, 2, 0, 0, 0]);
        let gone = Stretch { state: STATE_NEVER, count: 500, ..stretch };
        body.extend(gone.head());
        let read: Vec<_> = stretches(&body).map(Option::unwrap).collect();
        assert_eq!((read[0].stretch, read[1].stretch), (stretch, gone));
        assert_eq!((read[0].state(1), read[1].state(3)), (BlockState::Valid(2), BlockState::Never));
        assert_eq!((read[0].bytes, read[1].bytes), (48, 40));
        assert_eq!(stretch_at(&body, read[0].bytes).unwrap().stretch, gone);
    }
}
