//! Rows of a space, and what block groups of btrfs hold in them.

use std::ops::Range;

use dolmen_files::block_groups::BlockGroup;

/// A set of rows, a bit for each row of the space.
#[derive(Debug, Clone)]
pub(crate) struct RowSet {
    words: Vec<u64>,
}

impl RowSet {
    /// Returns the bytes of a set.
    pub(crate) const fn bytes(rows: u64) -> u64 {
        rows.div_ceil(64).saturating_mul(8)
    }

    /// Returns an empty set of a space with so many rows. Rows behind them are not taken.
    pub(crate) fn new(rows: u64) -> Self {
        let words = usize::try_from(rows.div_ceil(64)).unwrap_or(usize::MAX);
        Self { words: vec![0; words] }
    }

    /// Adds rows.
    pub(crate) fn add(&mut self, rows: Range<u64>) {
        let end = rows.end.min(u64::try_from(self.words.len()).unwrap_or(u64::MAX).saturating_mul(64));
        for row in rows.start..end {
            if let Some(word) = usize::try_from(row / 64).ok().and_then(|word| self.words.get_mut(word)) {
                *word |= 1 << (row % 64);
            }
        }
    }

    /// Returns the words of sets, for counts of rows that are in some of them and not in others.
    pub(crate) fn words<'a>(sets: [&'a Self; 3]) -> impl Iterator<Item = [u64; 3]> + 'a {
        let [first, second, third] = sets;
        let rest = second.words.iter().zip(&third.words);
        first.words.iter().zip(rest).map(|(first, (second, third))| [*first, *second, *third])
    }
}

/// What a block group holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Fill {
    /// Bytes in use, each once.
    pub(crate) used: u64,
    /// Bytes in use in all its places.
    pub(crate) stored: u64,
    /// Bytes of its parts of the rows that hold any of these.
    pub(crate) touched: u64,
    /// Rows that lie in it alone, and hold any.
    pub(crate) rows_alone: u64,
    /// Rows that hold any and have free room, and the first of them.
    pub(crate) rows_with_room: u64,
    pub(crate) first_with_room: u64,
}

/// The fill of a block group, while its extents are shown in their order.
#[derive(Debug)]
pub(crate) struct Filling {
    fill: Fill,
    logical: u64,
    row_bytes: u64,
    places: Vec<Place>,
}

/// A place of a group, with the last row there that holds anything and the bytes in use in it.
#[derive(Debug)]
struct Place {
    range: Range<u64>,
    last: Option<(u64, u64)>,
}

impl Filling {
    pub(crate) fn of(group: &BlockGroup, row_bytes: u64) -> Self {
        let place =
            |(_, start): &(u64, u64)| Place { range: *start..start.saturating_add(group.length), last: None };
        let places = group.places.iter().map(place).collect();
        Self { fill: Fill::default(), logical: group.logical, row_bytes: row_bytes.max(1), places }
    }

    /// Adds an extent, and its rows to a set.
    pub(crate) fn add(&mut self, extent: &Range<u64>, rows: &mut RowSet) {
        let (length, from) =
            (extent.end.saturating_sub(extent.start), extent.start.saturating_sub(self.logical));
        self.fill.used = self.fill.used.saturating_add(length);
        for place in &mut self.places {
            let start = place.range.start.saturating_add(from);
            let end = start.saturating_add(length).min(place.range.end);
            let (first, behind) = (start / self.row_bytes, end.div_ceil(self.row_bytes));
            rows.add(first..behind);
            for row in first..behind {
                let part = part_of(row, self.row_bytes, &(start..end));
                self.fill.stored = self.fill.stored.saturating_add(part);
                match &mut place.last {
                    Some((last, used)) if *last == row => *used = used.saturating_add(part),
                    last => {
                        let ended = last.replace((row, part));
                        self.fill.end_row(ended, self.row_bytes, &place.range);
                    }
                }
            }
        }
    }

    pub(crate) fn finish(mut self) -> Fill {
        for place in &mut self.places {
            self.fill.end_row(place.last.take(), self.row_bytes, &place.range);
        }
        self.fill
    }
}

impl Fill {
    fn end_row(&mut self, row: Option<(u64, u64)>, row_bytes: u64, place: &Range<u64>) {
        let Some((row, used)) = row else { return };
        let part = part_of(row, row_bytes, place);
        self.touched = self.touched.saturating_add(part);
        self.rows_alone += u64::from(part == row_bytes);
        if used < part {
            let is_first = self.rows_with_room == 0 || row < self.first_with_room;
            self.first_with_room = if is_first { row } else { self.first_with_room };
            self.rows_with_room += 1;
        }
    }
}

/// Returns the bytes of a row that lie in a range.
fn part_of(row: u64, row_bytes: u64, range: &Range<u64>) -> u64 {
    let start = row.saturating_mul(row_bytes);
    let end = start.saturating_add(row_bytes).min(range.end);
    end.saturating_sub(start.max(range.start))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(places: &[u64]) -> BlockGroup {
        BlockGroup {
            logical: 1000,
            length: 400,
            is_data: true,
            is_mixed: false,
            is_whole: true,
            places: places.iter().map(|start| (1, *start)).collect(),
        }
    }

    /// Scenario: a group of 400 bytes begins within a row of 100. Extents fill its part of the first row, a part of the second one, and
    /// reach from the third into the fourth. Expected: parts of rows count, and the fifth row holds nothing.
    #[test]
    fn a_group_counts_the_parts_of_its_rows() {
        let mut rows = RowSet::new(128);
        let mut filling = Filling::of(&group(&[350]), 100);
        for extent in [1000..1030, 1030..1050, 1060..1070, 1200..1260] {
            filling.add(&extent, &mut rows);
        }
        let fill = filling.finish();
        assert_eq!((fill.used, fill.stored), (120, 120));
        assert_eq!((fill.touched, fill.rows_alone), (50 + 100 + 100 + 100, 3));
        assert_eq!((fill.rows_with_room, fill.first_with_room), (3, 4));
        assert_eq!(rows.words, [0b111_1000, 0], "rows 3 to 6");
    }

    /// Scenario: a group with two copies. Expected: its bytes count once, and its rows for each copy.
    #[test]
    fn copies_of_a_group_are_stored_twice() {
        let mut rows = RowSet::new(64);
        let mut filling = Filling::of(&group(&[0, 1000]), 100);
        filling.add(&(1000..1050), &mut rows);
        let fill = filling.finish();
        assert_eq!((fill.used, fill.stored, fill.touched), (50, 100, 200));
        assert_eq!(rows.words, [1 | 1 << 10]);
    }

    #[test]
    fn rows_beyond_the_space_are_not_taken() {
        let mut rows = RowSet::new(10);
        rows.add(5..u64::MAX);
        assert_eq!(rows.words, [!0b1_1111]);
        assert_eq!(Filling::of(&group(&[0]), 100).finish(), Fill::default());
    }
}
