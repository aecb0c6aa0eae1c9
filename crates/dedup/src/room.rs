//! Room: free ranges of the device that packs are led to.
//!
//! - **Holes** lie in rows that stay claimed. They cost the pool nothing, so they are filled first, each by what fits it best.
//! - **Open ranges** lie in rows that are unclaimed. They are filled one after another, and what is left of the last row that
//!   was begun becomes a hole.
//!
//! Rows that are to be emptied give no room. What others took meanwhile is found when a pack is made: the file system does not
//! give it.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use dolmen_mutation::mutation;

use crate::pack::Move;
use crate::rows::{Rows, State};
use crate::seam::DeviceRange;

/// Least length of a hole: the requests for a shorter one cost more than it holds.
pub(crate) const HOLE_BYTES_MIN: u64 = 16 << 10;
/// Ranges that are held; the shortest are left out first.
const HOLES_MAX: usize = 1 << 16;
const OPEN_MAX: usize = 1 << 12;

/// Length of a unit that is divided among holes, at most: a longer one fills rows of its own, and is read in one piece.
const DIVIDED_BYTES_MAX: u64 = 8 << 20;
/// Length of its parts, at least, and of the last of them: reading stays sequential.
const PART_BYTES_MIN: u64 = 1 << 20;
const REST_BYTES_MIN: u64 = 256 << 10;

/// Free ranges by their length.
struct Ranges {
    by_length: BTreeSet<(u64, u64)>,
    count_max: usize,
}

impl Ranges {
    const fn new(count_max: usize) -> Self {
        Self { by_length: BTreeSet::new(), count_max }
    }

    fn add(&mut self, range: DeviceRange) {
        self.by_length.insert((range.length, range.start));
        if self.by_length.len() > self.count_max {
            self.by_length.pop_first();
        }
    }

    /// Takes the shortest range of at least so many bytes.
    fn take(&mut self, bytes: u64) -> Option<DeviceRange> {
        let (length, start) = self.by_length.range((bytes, 0)..).next().copied()?;
        self.by_length.remove(&(length, start));
        Some(DeviceRange { start, length })
    }
}

/// Free ranges that packs are led to.
pub(crate) struct Room {
    row_bytes: u64,
    /// Bytes of all free ranges.
    free_bytes: u64,
    holes: Ranges,
    open: Ranges,
    /// Rest of the open range that is filled at present, and `true` if it was begun.
    present: Option<(DeviceRange, bool)>,
}

impl Room {
    pub(crate) fn new(row_bytes: u64) -> Self {
        let (holes, open) = (Ranges::new(HOLES_MAX), Ranges::new(OPEN_MAX));
        Self { row_bytes, free_bytes: 0, holes, open, present: None }
    }

    /// Returns the bytes that packs hold at a time, at most: half of what was free. The rest is left to writers.
    pub(crate) const fn bytes_max(&self) -> u64 {
        self.free_bytes / 2
    }

    /// Adds the parts of a free range that lie outside the rows that are to be emptied.
    pub(crate) fn add(&mut self, rows: &Rows, range: DeviceRange) {
        self.free_bytes = self.free_bytes.saturating_add(range.length);
        let mut last: Option<(bool, DeviceRange)> = None;
        for (number, part) in rows.parts(range.start, range.length) {
            let is_hole = match rows.state(number) {
                State::Unclaimed => Some(false),
                State::Claimed | State::Kept(_) => Some(true),
                State::Chosen => None,
            };
            let length = part.end.saturating_sub(part.start);
            match (&mut last, is_hole) {
                (Some((of_hole, last)), Some(is_hole)) if *of_hole == is_hole => {
                    last.length = last.length.saturating_add(length);
                }
                (last, _) => {
                    last.take().into_iter().for_each(|(is_hole, range)| self.put(is_hole, range));
                    *last = is_hole.map(|is_hole| (is_hole, DeviceRange { start: part.start, length }));
                }
            }
        }
        last.into_iter().for_each(|(is_hole, range)| self.put(is_hole, range));
    }

    fn put(&mut self, is_hole: bool, range: DeviceRange) {
        if range.length >= HOLE_BYTES_MIN {
            if is_hole { self.holes.add(range) } else { self.open.add(range) }
        }
    }

    /// Takes the hole that fits best, and returns its first byte.
    fn take_hole(&mut self, bytes: u64) -> Option<u64> {
        if mutation!(HolesUnused) {
            return None;
        }
        let hole = self.holes.take(bytes)?;
        self.put(true, after(hole, bytes));
        Some(hole.start)
    }

    /// Places units in holes, and returns those without a place; `placed` gets the rest, each with its first byte.
    ///
    /// Each unit takes the hole that fits it best, long units first. What is too long for all holes is divided among the longest.
    pub(crate) fn fill_holes(&mut self, mut units: Vec<Unit>, placed: &mut Vec<(u64, Unit)>) -> Vec<Unit> {
        let mut rest = Vec::new();
        units.sort_by_key(|unit| Reverse(unit.length));
        for mut unit in units {
            loop {
                if let Some(start) = self.take_hole(unit.length) {
                    placed.push((start, unit));
                    break;
                }
                let Some((start, part)) = self.take_part(unit.length) else {
                    rest.push(unit);
                    break;
                };
                let behind = unit.split_off(part);
                placed.push((start, std::mem::replace(&mut unit, behind)));
            }
        }
        rest
    }

    /// Takes the longest hole for a part of a unit that fits none; returns the first byte and the length of the part.
    fn take_part(&mut self, unit_bytes: u64) -> Option<(u64, u64)> {
        if unit_bytes > DIVIDED_BYTES_MAX {
            return None;
        }
        let (length, start) = self.holes.by_length.pop_last()?;
        let part = length.min(unit_bytes.saturating_sub(REST_BYTES_MIN));
        if part < PART_BYTES_MIN || mutation!(HolesUnused) {
            self.put(true, DeviceRange { start, length });
            return None;
        }
        self.put(true, after(DeviceRange { start, length }, part));
        Some((start, part))
    }

    /// Returns the first byte of so many in open ranges; [`take_open`](Self::take_open) takes them.
    pub(crate) fn find_open(&mut self, bytes: u64) -> Option<u64> {
        if self.present.is_none_or(|(range, _)| range.length < bytes) {
            self.end_open();
            self.present = self.open.take(bytes.max(self.row_bytes)).map(|range| (range, false));
            if self.present.is_none() {
                self.present = self.open.take(bytes).map(|range| (range, false));
            }
        }
        self.present.map(|(range, _)| range.start)
    }

    /// Takes bytes that were found.
    pub(crate) fn take_open(&mut self, bytes: u64) {
        self.present = self.present.map(|(range, _)| (after(range, bytes), true));
    }

    /// Drops the range that is filled at present: the file system cannot be led there.
    pub(crate) fn drop_open(&mut self) {
        self.present = None;
    }

    /// Ends the open range that is filled at present.
    fn end_open(&mut self) {
        let Some((range, is_begun)) = self.present.take() else { return };
        let row_end = range.start.next_multiple_of(self.row_bytes);
        let inside = if is_begun { row_end.saturating_sub(range.start).min(range.length) } else { 0 };
        self.put(true, DeviceRange { start: range.start, length: inside });
        self.put(false, after(range, inside));
    }
}

/// Returns what is left of a range behind its first bytes.
fn after(range: DeviceRange, bytes: u64) -> DeviceRange {
    DeviceRange { start: range.start.saturating_add(bytes), length: range.length.saturating_sub(bytes) }
}

/// Moves that stay together: they overlap, or continue one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Unit {
    /// The moves; their places are counted from the begin of the unit.
    pub(crate) moves: Vec<Move>,
    /// Length in bytes, whole blocks.
    pub(crate) length: u64,
}

impl Unit {
    /// Returns the moves in a pack where this unit begins at `start`.
    pub(crate) fn moved(&self, start: u64) -> impl Iterator<Item = Move> + use<'_> {
        self.moves.iter().map(move |range| Move { offset: start.saturating_add(range.offset), ..*range })
    }

    /// Cuts off what lies behind the first bytes, which are whole blocks.
    fn split_off(&mut self, bytes: u64) -> Self {
        let rest = self.length.saturating_sub(bytes);
        let (mut left, mut right) = (Vec::new(), Vec::new());
        for range in self.moves.drain(..) {
            let before = bytes.saturating_sub(range.offset).min(range.bytes);
            let covered = range.bytes.saturating_sub(range.fresh);
            if before > 0 {
                left.push(Move { bytes: before, fresh: before.saturating_sub(covered), ..range });
            }
            if before < range.bytes {
                let after = range.bytes.saturating_sub(before);
                right.push(Move {
                    logical: range.logical.saturating_add(before),
                    bytes: after,
                    offset: range.offset.saturating_add(before).saturating_sub(bytes),
                    fresh: after.saturating_sub(covered.saturating_sub(before)),
                    ..range
                });
            }
        }
        (self.moves, self.length) = (left, bytes);
        Self { moves: right, length: rest }
    }
}

/// Divides the moves of a batch, which come in their order in it.
pub(crate) fn units(moves: &[Move], block_bytes: u64) -> Vec<Unit> {
    let mut units: Vec<Unit> = Vec::new();
    let (mut start, mut last): (u64, Option<&Move>) = (0, None);
    for range in moves {
        let continues = last.is_some_and(|last| {
            last.file == range.file
                && last.logical.saturating_add(last.bytes) == range.logical
                && last.end() == range.offset
        });
        let end = range.end().next_multiple_of(block_bytes);
        match units.last_mut() {
            Some(unit) if continues || range.offset < start.saturating_add(unit.length) => {
                unit.moves.push(Move { offset: range.offset.saturating_sub(start), ..*range });
                unit.length = unit.length.max(end.saturating_sub(start));
            }
            _ => {
                start = range.offset;
                let moves = vec![Move { offset: 0, ..*range }];
                units.push(Unit { moves, length: end.saturating_sub(start) });
            }
        }
        last = Some(range);
    }
    units
}

/// Sorts ranges, and joins those that touch.
pub(crate) fn joined(mut ranges: Vec<DeviceRange>) -> Vec<DeviceRange> {
    ranges.sort_unstable();
    let mut joined: Vec<DeviceRange> = Vec::new();
    for range in ranges {
        match joined.last_mut() {
            Some(last) if range.start <= last.end() => {
                last.length = last.length.max(range.end().saturating_sub(last.start));
            }
            _ => joined.push(range),
        }
    }
    joined
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing)]
mod tests {
    use std::ops::Range;

    use super::*;

    const BLOCK: u64 = 4096;

    fn moved(file: u32, blocks: Range<u64>, fresh: u64) -> Move {
        let bytes = (blocks.end - blocks.start) * BLOCK;
        let offset = blocks.start * BLOCK;
        Move { file, row: 0, logical: 100 * BLOCK + offset, bytes, offset, fresh: fresh * BLOCK }
    }

    fn filled(units: Vec<Unit>, holes: &[(u64, u64)]) -> (Vec<(u64, Unit)>, Vec<Unit>) {
        let mut room = Room::new(8 << 20);
        for (start, length) in holes {
            room.put(true, DeviceRange { start: *start, length: *length });
        }
        let mut placed = Vec::new();
        let rest = room.fill_holes(units, &mut placed);
        (placed, rest)
    }

    #[test]
    fn moves_that_overlap_or_continue_a_file_are_one_unit() {
        let list = [moved(1, 0..4, 4), moved(2, 2..6, 2), moved(2, 6..8, 2), moved(3, 8..9, 1)];
        let units = units(&list, BLOCK);
        let lengths: Vec<u64> = units.iter().map(|unit| unit.length / BLOCK).collect();
        assert_eq!(lengths, [8, 1]);
        assert_eq!(units[1].moves[0].offset, 0);
    }

    #[test]
    fn a_unit_takes_the_hole_that_fits_it_best() {
        let unit = |file, blocks| units(&[moved(file, 0..blocks, blocks)], BLOCK).remove(0);
        let holes = [(0, 64 * BLOCK), (100 * BLOCK, 9 * BLOCK), (200 * BLOCK, 30 * BLOCK)];
        let (placed, rest) = filled(vec![unit(1, 8), unit(2, 30), unit(3, 60), unit(4, 80)], &holes);
        let starts: Vec<(u64, u32)> =
            placed.iter().map(|(start, unit)| (start / BLOCK, unit.moves[0].file)).collect();
        assert_eq!(starts, [(0, 3), (200, 2), (100, 1)]);
        assert_eq!(rest.len(), 1, "80 blocks fit no hole, and are too short to be divided");
    }

    #[test]
    fn a_divided_unit_keeps_each_byte_of_each_move_once() {
        // Two files share the middle of 3 MiB; holes of 1.5 MiB take it in two parts.
        let list = [moved(1, 0..600, 600), moved(2, 200..768, 168)];
        let unit = units(&list, BLOCK).remove(0);
        let (placed, rest) = filled(vec![unit], &[(0, 384 * BLOCK), (1 << 30, 400 * BLOCK)]);
        assert!(rest.is_empty());
        assert_eq!(
            placed.iter().map(|(start, unit)| (*start, unit.length / BLOCK)).collect::<Vec<_>>(),
            [(1 << 30, 400), (0, 368)]
        );
        let all: Vec<Move> = placed.iter().flat_map(|(start, unit)| unit.moved(*start)).collect();
        let fresh: u64 = all.iter().map(|range| range.fresh).sum();
        assert_eq!(fresh, 768 * BLOCK, "each byte is copied once");
        for (whole, file) in list.iter().zip([1, 2]) {
            let mut at = whole.logical;
            for range in all.iter().filter(|range| range.file == file) {
                assert_eq!(range.logical, at, "file {file}");
                let unit_start = if range.offset >= 1 << 30 { 1 << 30 } else { 0 };
                let in_batch = range.offset - unit_start + if unit_start == 0 { 400 * BLOCK } else { 0 };
                assert_eq!(in_batch, at - 100 * BLOCK, "file {file} lies elsewhere");
                at += range.bytes;
            }
            assert_eq!(at, whole.logical + whole.bytes, "file {file}");
        }
    }

    #[test]
    fn long_units_are_not_divided_and_parts_are_no_splinters() {
        let unit = |blocks| units(&[moved(1, 0..blocks, blocks)], BLOCK).remove(0);
        let holes = [(0, 512 * BLOCK), (1 << 30, 500 * BLOCK), (2 << 30, 100 * BLOCK)];
        let (placed, rest) = filled(vec![unit(2049)], &holes);
        assert!(placed.is_empty() && rest.len() == 1, "more than 8 MiB");
        let (placed, _) = filled(vec![unit(520)], &holes);
        let lengths: Vec<u64> = placed.iter().map(|(_, unit)| unit.length / BLOCK).collect();
        assert_eq!(lengths, [456, 64], "the last part has 256 KiB");
    }
}
