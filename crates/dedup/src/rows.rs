//! Rows of the space: what each holds, and which are to be emptied.

use std::collections::BTreeSet;
use std::ops::Range;

use crate::compact::{CompactPolicy, Compacted};
use crate::policy::MEMORY_MIN;
use crate::run::RunError;

/// Unit in which live bytes are counted.
const UNIT: u64 = 4096;
/// Parts of a row in which its free ranges are counted.
const PARTS: u64 = 1 << 15;

/// Why a row with free room was not emptied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum RowKept {
    /// It holds metadata, or what else belongs to no file.
    Fixed,
    /// It holds room that was not written, or compressed bytes.
    Unmovable,
    /// Its bytes have too many owners.
    Owners,
    /// Its live bytes do not fit the free room of the other rows, or the budget.
    Fitting,
    /// The file system gave no room outside the rows that were to be emptied.
    NoRoom,
    /// An owner changed meanwhile, or a call failed.
    Changed,
}

/// State of a row in a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    /// The pool has no room for it, or a pack of this run claimed it.
    Unclaimed,
    /// The pool has room for it, and it is a candidate for emptying.
    Claimed,
    /// It is to be emptied, or was.
    Chosen,
    /// It stays.
    Kept(RowKept),
}

/// A row.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Row {
    pub(crate) state: State,
    /// Bytes that files or metadata hold, in units.
    live: u32,
    /// Bytes of it that are free behind the pass, in units.
    emptied: u32,
    /// Part of it in free ranges that a pack can be led to, of [`PARTS`].
    free: u16,
}

/// The rows of a space.
pub(crate) struct Rows {
    rows: Vec<Row>,
    pub(crate) bytes: u64,
    /// End of the file system, as far as it was seen.
    end: u64,
}

impl Rows {
    pub(crate) fn new(policy: &CompactPolicy) -> Result<Self, RunError> {
        let bytes = policy.row_bytes;
        if !bytes.is_power_of_two() || !(1 << 16..=1 << 40).contains(&bytes) {
            return Err(RunError::RowLength { row_bytes: bytes });
        }
        let rows = policy.claimed.iter().map(|range| range.end).max().unwrap_or(0);
        let size = u64::try_from(size_of::<Row>()).unwrap_or(u64::MAX);
        // Half of it for the states; candidates for emptying take as much for a moment.
        let memory_bytes = u64::try_from(policy.memory_bytes.max(MEMORY_MIN)).unwrap_or(u64::MAX) / 4;
        let needed = rows.saturating_mul(size);
        let count =
            usize::try_from(rows).ok().filter(|_| needed <= memory_bytes && u32::try_from(rows).is_ok());
        let Some(count) = count else { return Err(RunError::TooManyRows { rows, needed, memory_bytes }) };
        let mut rows = Self {
            rows: vec![Row { state: State::Unclaimed, live: 0, emptied: 0, free: 0 }; count],
            bytes,
            end: 0,
        };
        for number in policy.claimed.iter().cloned().flatten() {
            if let Some(row) = rows.get(number) {
                row.state = State::Claimed;
            }
        }
        Ok(rows)
    }

    pub(crate) fn get(&mut self, number: u64) -> Option<&mut Row> {
        self.rows.get_mut(usize::try_from(number).ok()?)
    }

    pub(crate) fn number(&self, physical: u64) -> u64 {
        physical / self.bytes
    }

    /// Returns the parts of a range inside each row.
    pub(crate) fn parts(&self, start: u64, length: u64) -> impl Iterator<Item = (u64, Range<u64>)> + use<> {
        let (bytes, end) = (self.bytes, start.saturating_add(length));
        (start / bytes..end.div_ceil(bytes)).map(move |row| {
            let first = row.saturating_mul(bytes);
            (row, start.max(first)..end.min(first.saturating_add(bytes)))
        })
    }

    pub(crate) fn keep(&mut self, number: u64, why: RowKept) {
        if let Some(row) = self.get(number)
            && row.state != State::Unclaimed
        {
            row.state = State::Kept(why);
        }
    }

    /// Counts a range inside one row that holds something.
    pub(crate) fn add_live(&mut self, range: Range<u64>) {
        self.end = self.end.max(range.end);
        let bytes = range.end.saturating_sub(range.start);
        let number = self.number(range.start);
        if let Some(row) = self.get(number) {
            row.live = row.live.saturating_add(u32::try_from(bytes.div_ceil(UNIT)).unwrap_or(u32::MAX));
        }
    }

    /// Counts a free range.
    pub(crate) fn add_free(&mut self, start: u64, length: u64) {
        let part_bytes = self.bytes / PARTS;
        for (number, part) in self.parts(start, length) {
            if let Some(row) = self.get(number) {
                let parts = part.end.saturating_sub(part.start) / part_bytes;
                row.free = row.free.saturating_add(u16::try_from(parts).unwrap_or(u16::MAX));
            }
        }
    }

    /// Returns `true` if the row is to be emptied.
    pub(crate) fn is_chosen(&self, number: u64) -> bool {
        self.state(number) == State::Chosen
    }

    /// Returns the state of a row; rows behind the last claimed one are unclaimed.
    pub(crate) fn state(&self, number: u64) -> State {
        let row = usize::try_from(number).ok().and_then(|number| self.rows.get(number));
        row.map_or(State::Unclaimed, |row| row.state)
    }

    /// Keeps the rows of a range that no file can be moved out of.
    pub(crate) fn pin(&mut self, start: u64, length: u64, why: RowKept) {
        for (row, part) in self.parts(start, length) {
            self.keep(row, why);
            self.add_live(part);
        }
    }

    /// Chooses the rows that are to be emptied.
    pub(crate) fn choose(&mut self, budget_bytes: u64, compacted: &mut Compacted) -> Chosen {
        let units = self.bytes / UNIT;
        let free = |row: &Row| u64::from(row.free).saturating_mul(units) / PARTS;
        let mut room: u64 = self.rows.iter().filter(|row| row.state != State::Unclaimed).map(free).sum();
        let claimed = self.rows.iter().enumerate().filter(|(_, row)| row.state == State::Claimed);
        let mut candidates: Vec<(u32, u32)> =
            claimed.filter_map(|(at, row)| Some((row.live, u32::try_from(at).ok()?))).collect();
        candidates.sort_unstable();
        let (mut moved, mut chosen, budget) = (0u64, 0u64, budget_bytes / UNIT);
        let mut fits = true;
        for (live, at) in candidates {
            let Some(row) = self.get(at.into()) else { continue };
            let left = room.saturating_sub(free(row));
            let after = moved.saturating_add(live.into());
            fits &= after <= budget && (after <= left || u64::from(live) <= units / 4 * 3);
            if live == 0 {
                compacted.rows_empty = compacted.rows_empty.saturating_add(1);
                room = left;
                row.state = State::Chosen;
            } else if fits {
                (moved, room, chosen) = (after, left, chosen.saturating_add(1));
                row.state = State::Chosen;
            } else if u64::from(live) < units {
                row.state = State::Kept(RowKept::Fitting);
            }
        }
        Chosen { rows: chosen, bytes: moved.saturating_mul(UNIT) }
    }

    /// Counts a range that is free behind the pass.
    pub(crate) fn take_free(&mut self, start: u64, length: u64) {
        self.end = self.end.max(start.saturating_add(length));
        for (number, part) in self.parts(start, length) {
            if let Some(row) = self.get(number) {
                let units = part.end.saturating_sub(part.start) / UNIT;
                row.emptied = row.emptied.saturating_add(u32::try_from(units).unwrap_or(u32::MAX));
            }
        }
    }

    /// Counts the chosen rows that are wholly free, and keeps the others.
    pub(crate) fn end_pass(&mut self, compacted: &mut Compacted) {
        let (bytes, end) = (self.bytes, self.end);
        (compacted.rows_emptied, compacted.rows_empty) = (0, 0);
        for (number, row) in (0u64..).zip(&mut self.rows).filter(|(_, row)| row.state == State::Chosen) {
            // The last row may be longer than what the file system has of it.
            let held = end.saturating_sub(number.saturating_mul(bytes)).min(bytes);
            match u64::from(row.emptied) >= held / UNIT {
                true if row.live == 0 => compacted.rows_empty = compacted.rows_empty.saturating_add(1),
                true => compacted.rows_emptied = compacted.rows_emptied.saturating_add(1),
                // What a stopped pass has not come to is no row that something stands in the way of.
                false if compacted.stopped => row.state = State::Claimed,
                false => row.state = State::Kept(RowKept::Changed),
            }
        }
        compacted.kept = self.kept();
    }

    /// Returns the rows that stay claimed, and those that packs took beyond the last of them.
    pub(crate) fn claimed(&self, taken: &BTreeSet<u64>) -> Vec<Range<u64>> {
        let count = u64::try_from(self.rows.len()).unwrap_or(u64::MAX);
        let stay = (0u64..).zip(&self.rows).filter(|(number, row)| {
            matches!(row.state, State::Claimed | State::Kept(_)) || taken.contains(number)
        });
        let mut ranges: Vec<Range<u64>> = Vec::new();
        for number in stay.map(|(number, _)| number).chain(taken.range(count..).copied()) {
            match ranges.last_mut() {
                Some(last) if last.end == number => last.end = number.saturating_add(1),
                _ => ranges.push(number..number.saturating_add(1)),
            }
        }
        ranges
    }

    /// Returns the rows with free room that stay: why, how many, and the first of them.
    pub(crate) fn kept(&self) -> Vec<(RowKept, u64, u64)> {
        let mut kept = std::collections::BTreeMap::new();
        for (number, row) in (0u64..).zip(&self.rows) {
            if let State::Kept(why) = row.state
                && u64::from(row.live) < self.bytes / UNIT
            {
                let (count, _) = kept.entry(why).or_insert((0u64, number));
                *count = count.saturating_add(1);
            }
        }
        kept.into_iter().map(|(why, (count, first))| (why, count, first)).collect()
    }
}

/// Rows that are to be emptied.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Chosen {
    pub(crate) rows: u64,
    /// Live bytes in them.
    pub(crate) bytes: u64,
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const ROW: u64 = 1 << 20;

    /// Rows 0 to 3 are chosen; 0 held nothing, and the file system ends in the midst of 3.
    fn chosen() -> Rows {
        let claimed = std::iter::once(0..4).collect();
        let memory_bytes = MEMORY_MIN;
        let policy =
            CompactPolicy { row_bytes: ROW, claimed, budget_bytes: u64::MAX, memory_bytes, call_bytes: 1 };
        let mut rows = Rows::new(&policy).unwrap();
        (1..4).for_each(|row| rows.add_live(row * ROW..row * ROW + UNIT));
        rows.rows.iter_mut().for_each(|row| row.state = State::Chosen);
        rows.take_free(0, 2 * ROW);
        rows.take_free(2 * ROW + UNIT, ROW + ROW / 2 - UNIT);
        rows
    }

    #[test]
    fn a_row_counts_as_emptied_where_it_is_wholly_free() {
        // Scenario: a block is in row 2 at the end of a pass; row 3 is free as far as the file system goes.
        let (mut rows, mut compacted) = (chosen(), Compacted::default());
        rows.end_pass(&mut compacted);
        assert_eq!((compacted.rows_emptied, compacted.rows_empty), (2, 1));
        assert_eq!(compacted.kept, [(RowKept::Changed, 1, 2)]);
        assert_eq!(rows.claimed(&BTreeSet::new()), std::iter::once(2..3).collect::<Vec<_>>());
    }

    #[test]
    fn a_pass_that_was_stopped_says_nothing_against_rows_that_it_did_not_come_to() {
        // Scenario: the same, of a pass that was stopped: row 2 stays claimed, and no reason is given.
        let (mut rows, mut compacted) = (chosen(), Compacted { stopped: true, ..Compacted::default() });
        rows.end_pass(&mut compacted);
        assert_eq!((compacted.rows_emptied, compacted.kept.len()), (2, 0));
        assert_eq!(rows.state(2), State::Claimed);
    }
}
