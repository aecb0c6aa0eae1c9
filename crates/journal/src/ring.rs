//! Arithmetic of the ring: positions that only grow, addresses that go round, and who may fill it how far.

use dolmen_units::{BLOCK_BYTES, Lsn};

/// The longest batch, in bytes. A ring of less than four of these has shorter ones.
pub const BATCH_BYTES_MAX: u64 = 256 * 1024;
/// The smallest ring, in bytes.
pub const RING_BYTES_MIN: u64 = 16 * BLOCK_BYTES;
/// What only marks may use at the end of the ring, in bytes; a sixteenth of a small ring.
const MARK_ROOM_BYTES_MAX: u64 = 64 * 1024;
/// Batches per ring, at least. A batch and the gap before it are each shorter than one part, so that both fit into
/// what ordinary records may fill of an empty ring.
const BATCHES_PER_RING_MIN: u64 = 4;

const _: () =
    assert!(2 * 4 <= 3 * BATCHES_PER_RING_MIN, "a gap and a batch fit into three quarters of the ring");
const _: () =
    assert!(RING_BYTES_MIN / BATCHES_PER_RING_MIN >= BLOCK_BYTES, "the smallest ring holds batches");

/// The stretch of every copy that holds the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ring {
    /// Where it begins on each copy, in bytes.
    pub at: u64,
    /// Its length in bytes.
    pub length: u64,
}

/// Why a stretch cannot be a ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RingError {
    /// Begin or length is no multiple of a block.
    #[error("the log's ring at {at} with {length} bytes is not aligned to {BLOCK_BYTES} bytes")]
    Misaligned {
        /// Where it begins.
        at: u64,
        /// Its length.
        length: u64,
    },
    /// Too short, or beyond the end of what a disk can address.
    #[error(
        "the log's ring at {at} has {length} bytes, which is less than {RING_BYTES_MIN} or beyond any disk's end"
    )]
    Length {
        /// Where it begins.
        at: u64,
        /// Its length.
        length: u64,
    },
}

/// Where the batch with an LSN begins.
///
/// When that batch is not written yet, it may begin a little later, because no batch straddles the ring's end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// The LSN.
    pub lsn: Lsn,
    /// Bytes of log before it since the pool was made; modulo the ring's length its place in the ring.
    pub position: u64,
}

impl Place {
    /// The beginning of a new pool's log.
    pub const FIRST: Self = Self { lsn: Lsn(1), position: 0 };

    /// LSN and position, little-endian.
    #[must_use]
    pub fn to_bytes(self) -> [u8; 16] {
        (u128::from(self.lsn.0) | u128::from(self.position) << 64).to_le_bytes()
    }

    /// Undoes [`to_bytes`](Self::to_bytes).
    #[must_use]
    #[allow(clippy::cast_possible_truncation)] // the two halves of 128 bits
    pub fn from_bytes(bytes: [u8; 16]) -> Self {
        let both = u128::from_le_bytes(bytes);
        Self { lsn: Lsn(both as u64), position: (both >> 64) as u64 }
    }
}

/// How far somebody may fill the ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// Waits when more than 75 % would be used: claims, and whatever else can wait for a checkpoint.
    Ordinary,
    /// May use all but the last stretch, which is kept for marks: deletes, discards, epochs, new disks.
    Reserved,
}

/// How far the ring may be filled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Limit {
    Class(Class),
    Whole,
}

impl Ring {
    /// Checks alignment and length.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn check(&self) -> Result<(), RingError> {
        let Self { at, length } = *self;
        if !at.is_multiple_of(BLOCK_BYTES) || !length.is_multiple_of(BLOCK_BYTES) {
            return Err(RingError::Misaligned { at, length });
        }
        if length < RING_BYTES_MIN || at.checked_add(length).is_none() {
            return Err(RingError::Length { at, length });
        }
        Ok(())
    }

    /// The longest batch in this ring, in bytes.
    #[must_use]
    pub fn batch_bytes_max(&self) -> u64 {
        let part = self.length / BATCHES_PER_RING_MIN;
        (part - part % BLOCK_BYTES).min(BATCH_BYTES_MAX)
    }

    /// The address on each copy of a position.
    pub(crate) fn address(&self, position: u64) -> u64 {
        self.at + position % self.length
    }

    /// Where a batch of `length` bytes begins that comes behind `position`: there, or at the ring's start if it would
    /// straddle the end.
    pub(crate) fn begin(&self, position: u64, length: u64) -> u64 {
        let left = self.length - position % self.length;
        if length > left { position + left } else { position }
    }

    /// Bytes that may be in use at most.
    fn limit_bytes(&self, limit: Limit) -> u64 {
        match limit {
            Limit::Class(Class::Ordinary) => self.length / 4 * 3,
            Limit::Class(Class::Reserved) => self.length - (self.length / 16).min(MARK_ROOM_BYTES_MAX),
            Limit::Whole => self.length,
        }
    }

    /// Whether a batch of `length` bytes behind `position` stays within the limit while `tail` is live.
    pub(crate) fn fits(&self, tail: u64, position: u64, length: u64, limit: Limit) -> bool {
        self.begin(position, length) + length - tail <= self.limit_bytes(limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_ring_of_no_use_is_refused() {
        for (at, length) in [(1, 65536), (0, 65537), (0, 32768), (u64::MAX - 4095, 65536)] {
            assert!(Ring { at, length }.check().is_err(), "{at} {length}");
        }
        assert_eq!(Ring { at: 4096, length: 65536 }.check(), Ok(()));
    }

    proptest! {
        #[test]
        fn a_place_reads_back_as_it_was_written(lsn: u64, position: u64) {
            let place = Place { lsn: Lsn(lsn), position };
            prop_assert_eq!(Place::from_bytes(place.to_bytes()), place);
        }

        // Any batch in any ring: it lies within the ring, and an empty ring has room for it whatever its class.
        #[test]
        fn no_batch_straddles_the_end_and_an_empty_ring_takes_any(blocks in 16u64..400, at in 0u64..1000, size in 1u64..65) {
            let ring = Ring { at: 8192, length: blocks * BLOCK_BYTES };
            let length = (size * BLOCK_BYTES).min(ring.batch_bytes_max());
            let position = at * BLOCK_BYTES;
            let begin = ring.begin(position, length);
            prop_assert!(begin >= position && begin - position < length);
            prop_assert!(ring.address(begin) + length <= ring.at + ring.length);
            prop_assert!(ring.fits(position, position, length, Limit::Class(Class::Ordinary)));
        }
    }
}
