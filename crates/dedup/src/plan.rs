//! Plan: from pieces sorted by content to ranges sorted by gain.
//!
//! Pieces of equal content form a group; pieces of a group with the same place are one copy. Copies are joined, in order, into
//! sets of at most [`SHARERS_MAX`] sharers. A copy is never divided, so what a run has shared is the same set in the next
//! run. The copy of a set that is in one extent and belongs to the first file is the source: neighbouring pieces of a file
//! then find neighbouring sources, and are joined into one range.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::index::Bits;
use crate::piece::{PIECE_BYTES, Piece};
use crate::run::{Counts, Environment, RunError};
use crate::seam::{Control, Files, Phase, Scratch};
use crate::sort::{Buffers, Sorted, Sorter};

/// Owners of one extent, at most.
pub const SHARERS_MAX: usize = 256;
/// Pieces of one group that are looked at together.
const WINDOW_MAX: usize = 4096;
/// Ranges of one file that are ordered together.
pub(crate) const RANGES_MAX: usize = 4096;
/// Unit of gains.
const GAIN_UNIT: u64 = 4096;

/// A piece of a file, and the piece whose bytes it is to share.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
struct Pair {
    target: u32,
    target_block: u32,
    source: u32,
    source_block: u32,
    length: u32,
    /// Bytes that are freed when all pieces of the copy have moved, counted at the first.
    gain: u32,
}
const _: () = assert!(size_of::<Pair>() == 24);

/// A range of a file, and the range whose bytes it is to share; the largest gain of a file sorts first.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub(crate) struct Range {
    /// `u32::MAX` less the gain of all ranges of the file in 4 KiB.
    order: u32,
    pub(crate) target: u32,
    pub(crate) target_block: u32,
    pub(crate) source: u32,
    pub(crate) source_block: u32,
    /// In units of 4 KiB.
    gain: u32,
    pub(crate) length: u64,
}
const _: () = assert!(size_of::<Range>() == 32);

impl Range {
    pub(crate) fn target_offset(&self) -> u64 {
        u64::from(self.target_block).saturating_mul(PIECE_BYTES)
    }

    pub(crate) fn source_offset(&self) -> u64 {
        u64::from(self.source_block).saturating_mul(PIECE_BYTES)
    }

    pub(crate) fn gain_bytes(&self) -> u64 {
        u64::from(self.gain).saturating_mul(GAIN_UNIT)
    }

    fn continues_with(&self, pair: &Pair) -> bool {
        let whole = self.length.is_multiple_of(PIECE_BYTES);
        let blocks = u32::try_from(self.length / PIECE_BYTES).unwrap_or(u32::MAX);
        whole
            && self.target == pair.target
            && self.source == pair.source
            && self.target_block.checked_add(blocks) == Some(pair.target_block)
            && self.source_block.checked_add(blocks) == Some(pair.source_block)
    }
}

/// Collector of the copies of one set.
struct Set<'a> {
    copies: Vec<&'a [Piece]>,
    sharers: usize,
}

impl<'a> Set<'a> {
    fn add<S: Scratch>(
        &mut self,
        scratch: &mut S,
        copy: &'a [Piece],
        pairs: &mut Sorter<S, Pair>,
    ) -> Result<(), RunError> {
        if self.sharers.saturating_add(copy.len()) > SHARERS_MAX {
            self.close(scratch, pairs)?;
        }
        self.sharers = self.sharers.saturating_add(copy.len());
        self.copies.push(copy);
        Ok(())
    }

    fn close<S: Scratch>(&mut self, scratch: &mut S, pairs: &mut Sorter<S, Pair>) -> Result<(), RunError> {
        let first = |copy: &&[Piece]| {
            copy.first().map(|piece| (piece.place.is_fragmented(), piece.file, piece.block))
        };
        let source =
            self.copies.iter().filter_map(|copy| copy.first().zip(first(copy))).min_by_key(|(_, key)| *key);
        if let Some((source, _)) = source {
            for copy in self
                .copies
                .iter()
                .filter(|copy| copy.first().is_some_and(|piece| piece.place != source.place))
            {
                for (at, piece) in copy.iter().enumerate() {
                    let length = piece.place.length();
                    let gain = if at == 0 { length.next_multiple_of(GAIN_UNIT) } else { 0 };
                    pairs.push(
                        scratch,
                        Pair {
                            target: piece.file,
                            target_block: piece.block,
                            source: source.file,
                            source_block: source.block,
                            length: u32::try_from(length).unwrap_or(0),
                            gain: u32::try_from(gain).unwrap_or(0),
                        },
                    )?;
                }
            }
        }
        self.copies.clear();
        self.sharers = 0;
        Ok(())
    }
}

/// Finds pairs in a group whose pieces are sorted by place.
fn group<S: Scratch>(scratch: &mut S, group: &[Piece], pairs: &mut Sorter<S, Pair>) -> Result<(), RunError> {
    let mut set = Set { copies: Vec::new(), sharers: 0 };
    for copy in group.chunk_by(|one, other| one.place == other.place) {
        set.add(scratch, copy, pairs)?;
    }
    set.close(scratch, pairs)
}

/// Plan of a run.
pub(crate) struct Plan<S: Scratch> {
    pub(crate) ranges: Sorted<S, Range>,
}

/// Plans; `None` if the caller stopped it.
pub(crate) fn plan<F: Files, S: Scratch, C: Control>(
    environment: &mut Environment<'_, F, S, C>,
    mut pieces: Sorted<S, Piece>,
    files: u32,
    buffers: Buffers,
    counts: &mut Counts,
) -> Result<Option<Plan<S>>, RunError> {
    let mut pairs = Sorter::new(buffers);
    let mut window: Vec<Piece> = Vec::with_capacity(WINDOW_MAX);
    let mut seen: u64 = 0;
    while let Some(piece) = pieces.next(environment.scratch)? {
        let same = window
            .first()
            .is_some_and(|first| first.hash == piece.hash && first.place.length() == piece.place.length());
        if !same || window.len() == WINDOW_MAX {
            if window.len() > 1 {
                group(environment.scratch, &window, &mut pairs)?;
            }
            window.clear();
        }
        window.push(piece);
        seen = seen.saturating_add(1);
        if seen.is_multiple_of(1 << 16) && environment.stops(Phase::Plan, 0, 0, 0) {
            return Ok(None);
        }
    }
    group(environment.scratch, &window, &mut pairs)?;
    drop((pieces, window));
    counts.pieces = seen;
    let pairs = pairs.finish(environment.scratch)?;
    let ranges = join(environment.scratch, pairs, files, buffers, counts)?;
    Ok(Some(Plan { ranges }))
}

fn join<S: Scratch>(
    scratch: &mut S,
    mut pairs: Sorted<S, Pair>,
    files: u32,
    buffers: Buffers,
    counts: &mut Counts,
) -> Result<Sorted<S, Range>, RunError> {
    let mut ranges = Sorter::new(buffers);
    let mut touched = Bits::zeros(files);
    let mut file: Vec<Range> = Vec::with_capacity(RANGES_MAX);
    while let Some(pair) = pairs.next(scratch)? {
        counts.planned_bytes = counts.planned_bytes.saturating_add(pair.gain.into());
        let gain = u32::try_from(u64::from(pair.gain) / GAIN_UNIT).unwrap_or(0);
        if let Some(last) = file.last_mut()
            && last.continues_with(&pair)
        {
            last.length = last.length.saturating_add(pair.length.into());
            last.gain = last.gain.saturating_add(gain);
            continue;
        }
        if file.last().is_some_and(|last| last.target != pair.target) || file.len() == RANGES_MAX {
            flush(scratch, &mut file, &mut touched, &mut ranges)?;
        }
        file.push(Range {
            order: 0,
            target: pair.target,
            target_block: pair.target_block,
            source: pair.source,
            source_block: pair.source_block,
            gain,
            length: pair.length.into(),
        });
    }
    flush(scratch, &mut file, &mut touched, &mut ranges)?;
    touched.keep(scratch)?;
    Ok(ranges.finish(scratch)?)
}

fn flush<S: Scratch>(
    scratch: &mut S,
    file: &mut Vec<Range>,
    touched: &mut Bits,
    ranges: &mut Sorter<S, Range>,
) -> Result<(), RunError> {
    let gain = file.iter().fold(0u32, |sum, range| sum.saturating_add(range.gain));
    for mut range in file.drain(..) {
        range.order = u32::MAX.saturating_sub(gain);
        touched.set(range.target);
        touched.set(range.source);
        ranges.push(scratch, range)?;
    }
    Ok(())
}
