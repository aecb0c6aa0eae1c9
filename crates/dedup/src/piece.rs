//! Pieces of files: 64 KiB from a multiple of 64 KiB on, or what follows the last multiple; a smaller file is one piece.
//!
//! A piece that holds zeros alone, or lies in a hole, is left out: to share it would gain nothing.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::seam::{Extent, ExtentKind};
use crate::sort::length_of;

/// Bytes of a piece, but for the last of a file.
pub(crate) const PIECE_BYTES: u64 = 64 << 10;
/// [`PIECE_BYTES`] as a length in memory.
pub(crate) const PIECE_LENGTH: usize = 64 << 10;
const _: () = assert!(PIECE_BYTES == PIECE_LENGTH as u64);

/// A piece of a file, as it is sorted: equal content first, then equal place.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub(crate) struct Piece {
    /// First 16 bytes of the BLAKE3 hash.
    pub(crate) hash: u128,
    pub(crate) place: Place,
    /// Number of the file in the table of the run.
    pub(crate) file: u32,
    /// Number of the piece in the file.
    pub(crate) block: u32,
}
const _: () = assert!(size_of::<Piece>() == 32);

/// Length of a piece and an identity of its place on the device.
///
/// Bit 63: more than one extent. Bits 62..23: first byte on the device in units of 4 KiB. Bits 22..16: digest of all extents
/// where bit 63 is set. Bits 15..0: length less one. Pieces with the same place are one copy. A collision hides a gain.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(transparent)]
pub(crate) struct Place(pub(crate) u64);

impl Place {
    const FRAGMENTED: u64 = 1 << 63;

    /// Returns the place of the bytes of a piece; `extents` is the whole map of the file.
    pub(crate) fn of(extents: &[Extent], start: u64, length: u64) -> Self {
        let first = extents.partition_point(|extent| extent.end() <= start);
        let end = start.saturating_add(length);
        let inside = extents.iter().skip(first).take_while(|extent| extent.logical < end);
        let mut inside = inside.filter(|extent| extent.kind.has_data());
        let low = length.saturating_sub(1) & 0xffff;
        let Some(extent) = inside.next() else { return Self(low) };
        let physical = extent.physical.saturating_add(start.saturating_sub(extent.logical));
        let unit = ((physical >> 12) & ((1 << 40) - 1)) << 23;
        if extent.kind == ExtentKind::Plain && extent.logical <= start && extent.end() >= end {
            return Self(unit | low);
        }
        let mut digest = physical;
        for part in std::iter::once(extent).chain(inside) {
            for value in [part.physical, part.logical.wrapping_sub(start)] {
                digest = (digest.rotate_left(23) ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            }
        }
        Self(Self::FRAGMENTED | unit | ((digest >> 57) << 16) | low)
    }

    pub(crate) const fn is_fragmented(self) -> bool {
        self.0 & Self::FRAGMENTED != 0
    }

    pub(crate) const fn length(self) -> u64 {
        (self.0 & 0xffff) + 1
    }
}

/// Returns the first 16 bytes of the hash, or nothing for zeros.
pub(crate) fn hash(content: &[u8]) -> Option<u128> {
    if content.chunks(64).all(|part| part.iter().fold(0, |sum, byte| sum | byte) == 0) {
        return None;
    }
    let hash = blake3::hash(content);
    hash.as_bytes().first_chunk().map(|bytes| u128::from_le_bytes(*bytes))
}

/// Iterator over the numbers of pieces that hold data.
pub(crate) struct DataPieces<'a> {
    extents: &'a [Extent],
    size: u64,
    next: u64,
}

impl<'a> DataPieces<'a> {
    pub(crate) const fn new(extents: &'a [Extent], size: u64) -> Self {
        Self { extents, size, next: 0 }
    }

    /// Returns the next range of neighbours in bytes, at most `length_max` long.
    pub(crate) fn next_range(&mut self, length_max: u64) -> Option<std::ops::Range<u64>> {
        let first = self.next_piece()?;
        let mut last = first;
        while (last.saturating_sub(first).saturating_add(2)).saturating_mul(PIECE_BYTES) <= length_max {
            let before = self.next;
            match self.next_piece() {
                Some(piece) if piece == last.saturating_add(1) => last = piece,
                _ => {
                    self.next = before;
                    break;
                }
            }
        }
        let end = last.saturating_add(1).saturating_mul(PIECE_BYTES).min(self.size);
        Some(first.saturating_mul(PIECE_BYTES)..end)
    }

    fn next_piece(&mut self) -> Option<u64> {
        loop {
            let start = self.next.saturating_mul(PIECE_BYTES);
            let (extent, rest) = self.extents.split_first()?;
            if extent.end() <= start || !extent.kind.has_data() {
                self.extents = rest;
                continue;
            }
            let piece = self.next.max(extent.logical / PIECE_BYTES);
            if piece.saturating_mul(PIECE_BYTES) >= self.size || u32::try_from(piece).is_err() {
                return None;
            }
            self.next = piece.saturating_add(1);
            return Some(piece);
        }
    }
}

/// Returns the numbers, offsets and contents of the pieces of a range that was read.
pub(crate) fn pieces(start: u64, content: &[u8]) -> impl Iterator<Item = (u32, u64, &[u8])> {
    content.chunks(PIECE_LENGTH).scan(start, |offset, piece| {
        let at = *offset;
        *offset = at.saturating_add(length_of(piece));
        Some((u32::try_from(at / PIECE_BYTES).ok()?, at, piece))
    })
}
