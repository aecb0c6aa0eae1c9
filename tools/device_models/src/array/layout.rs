//! Where an array puts bytes: rows of one interleave from each member.

use super::{ArrayParameters, Level};
use crate::time::wide;

/// A part of a command within one interleave of one row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) row: u64,
    pub(super) column: usize,
    /// Where it begins and ends within the interleave.
    pub(super) from: u64,
    pub(super) to: u64,
}

/// The layout of an array.
#[derive(Debug, Clone, Copy)]
pub(super) struct Layout {
    level: Level,
    members: usize,
    pub(super) columns: usize,
    pub(super) interleave: u64,
}

impl Layout {
    pub(super) fn new(parameters: &ArrayParameters, members: usize) -> Self {
        let columns = match parameters.level {
            Level::Stripe => members,
            Level::Mirror => members / 2,
            Level::Parity => members.saturating_sub(1),
        };
        Self { level: parameters.level, members, columns, interleave: parameters.interleave_bytes }
    }

    /// Data of one row, in bytes.
    pub(super) fn row_bytes(&self) -> u64 {
        self.interleave.saturating_mul(wide(self.columns))
    }

    /// The pieces of a run of bytes, in order.
    pub(super) fn pieces(self, at: u64, length: u64) -> impl Iterator<Item = Piece> {
        let end = at.saturating_add(length);
        let mut next = at;
        std::iter::from_fn(move || {
            if next >= end {
                return None;
            }
            let unit = next / self.interleave;
            let stop = (unit + 1).saturating_mul(self.interleave).min(end);
            let start = unit * self.interleave;
            let columns = wide(self.columns).max(1);
            let column = usize::try_from(unit % columns).unwrap_or(0);
            let piece = Piece { row: unit / columns, column, from: next - start, to: stop - start };
            next = stop;
            Some(piece)
        })
    }

    /// The members that hold a column of a row. With two, either can be read.
    pub(super) fn holders(&self, row: u64, column: usize) -> (usize, Option<usize>) {
        match self.level {
            Level::Stripe => (column, None),
            Level::Mirror => (column * 2, Some(column * 2 + 1)),
            Level::Parity => {
                let parity = self.parity(row).unwrap_or(0);
                ((parity + 1 + column) % self.members.max(1), None)
            }
        }
    }

    /// The member that holds the parity of a row, if there is any. It moves on from row to row.
    pub(super) fn parity(&self, row: u64) -> Option<usize> {
        match self.level {
            Level::Stripe | Level::Mirror => None,
            Level::Parity => {
                let turn = usize::try_from(row % wide(self.members).max(1)).unwrap_or(0);
                Some(self.members.saturating_sub(1 + turn))
            }
        }
    }

    /// Where a piece lies on its member.
    pub(super) const fn member_at(&self, row: u64, from: u64) -> u64 {
        row.saturating_mul(self.interleave).saturating_add(from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::array::ArrayCache;
    use crate::catalogue::controller;
    use std::collections::BTreeSet;

    #[test]
    fn each_byte_has_its_own_place_and_parity_is_next_to_its_data() {
        // Every interleave of forty rows goes to a place that no other has, and never to the member with the parity.
        for (level, members) in
            [(Level::Stripe, 3), (Level::Mirror, 6), (Level::Parity, 3), (Level::Parity, 8)]
        {
            let layout = Layout::new(&controller(level, ArrayCache::WriteBack), members);
            let mut taken = BTreeSet::new();
            for piece in layout.pieces(0, layout.row_bytes() * 40) {
                assert_eq!((piece.from, piece.to), (0, layout.interleave));
                let (first, second) = layout.holders(piece.row, piece.column);
                for member in std::iter::once(first).chain(second) {
                    assert!(member < members);
                    assert_ne!(Some(member), layout.parity(piece.row));
                    assert!(
                        taken.insert((member, layout.member_at(piece.row, piece.from))),
                        "{level:?} {piece:?}"
                    );
                }
            }
            let parity = if level == Level::Parity { 40 } else { 0 };
            assert_eq!(taken.len() + parity, members * 40);
        }
    }

    #[test]
    fn pieces_cover_a_command_exactly() {
        let layout = Layout::new(&controller(Level::Parity, ArrayCache::WriteBack), 5);
        for (at, length) in [(0, 1), (65_535, 2), (100_000, 1_000_000), (4_096, 65_536)] {
            let pieces: Vec<Piece> = layout.pieces(at, length).collect();
            assert_eq!(pieces.iter().map(|piece| piece.to - piece.from).sum::<u64>(), length);
            let starts = pieces.iter().map(|piece| {
                (piece.row * wide(layout.columns) + wide(piece.column)) * layout.interleave + piece.from
            });
            assert!(starts.is_sorted(), "{pieces:?}");
            assert!(pieces.iter().all(|piece| piece.to <= layout.interleave));
        }
    }
}
