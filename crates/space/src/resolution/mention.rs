//! Where the log speaks of rows. What it says of their blocks is expanded a few rows at a time: an extent says a block in four
//! bytes, or thousands of discarded ones in none, and each takes some 80 once it can be decided on (docs/design/0002,
//! *Recovery*).

use std::ops::Range;

use dolmen_pool::RecoveredBlock;
use dolmen_units::{Lsn, RowId};

use crate::format::record::{EXTENT_HEAD_BYTES, ReadBlockExtent, Stamp, extent_at, extents};
use crate::table::candidates::{Candidate, RowCandidates};

/// Rows that are recovered beside each other: each waits for a few reads of different disks.
const ROWS_TOGETHER: usize = 32;
/// States of the rows that are recovered beside each other, at most, unless one row alone has more.
const STATES_TOGETHER: u64 = 64 * 1024;

/// An extent of the log, by the row that it names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Mention {
    row: RowId,
    /// Which of the records.
    record: u32,
    /// Its first byte in the record.
    at: u32,
}

const _: () =
    assert!(size_of::<Mention>() < EXTENT_HEAD_BYTES, "an extent takes fewer bytes here than in the log");

/// All extents of the log, in the order of rows, and for each row in that of the log.
pub(crate) struct Mentions {
    blocks: Vec<RecoveredBlock>,
    list: Vec<Mention>,
}

impl Mentions {
    /// Looks through the records once.
    ///
    /// # Errors
    /// The number of one that makes no sense.
    pub(crate) fn of(blocks: Vec<RecoveredBlock>) -> Result<Self, Lsn> {
        let mut list = Vec::new();
        for (record, block) in blocks.iter().enumerate() {
            let recorded = block.as_recorded();
            for read in extents(recorded.body) {
                let read = read.ok_or(recorded.lsn)?;
                list.push(Mention {
                    row: read.extent.row,
                    record: u32::try_from(record).map_err(|_| recorded.lsn)?,
                    at: u32::try_from(read.at).map_err(|_| recorded.lsn)?,
                });
            }
        }
        list.sort_unstable();
        Ok(Self { blocks, list })
    }

    /// The next rows after `from` extents, with the extents of each; none when there are no more.
    pub(crate) fn rows_from(&self, from: usize) -> Vec<(RowId, Range<usize>)> {
        let mut rows = Vec::new();
        let (mut first, mut states) = (from, 0);
        let rest = self.list.get(from..).unwrap_or_default();
        for of_row in rest.chunk_by(|one, next| one.row == next.row) {
            let named: u64 = of_row.iter().map(|mention| self.states(*mention)).sum();
            if !rows.is_empty() && (rows.len() == ROWS_TOGETHER || states + named > STATES_TOGETHER) {
                break;
            }
            states += named;
            let end = first + of_row.len();
            rows.extend(of_row.first().map(|mention| (mention.row, first..end)));
            first = end;
        }
        rows
    }

    fn states(&self, mention: Mention) -> u64 {
        let block = self.blocks.get(mention.record as usize);
        let read = block.and_then(|block| extent_at(block.as_recorded().body, mention.at as usize));
        read.map_or(0, |read| u64::from(read.extent.count))
    }

    /// What these extents, which are all of one row, say of each block; `blocks` is how many a column of it has.
    pub(crate) fn candidates(&self, of_row: Range<usize>, blocks: impl Fn(usize) -> u32) -> RowCandidates {
        let mut candidates = RowCandidates::new();
        for mention in self.list.get(of_row).unwrap_or_default() {
            let Some(block) = self.blocks.get(mention.record as usize) else { continue };
            let recorded = block.as_recorded();
            if let Some(read) = extent_at(recorded.body, mention.at as usize) {
                let blocks = blocks(usize::from(read.extent.column));
                add_candidates(recorded.durable, read, blocks, &mut candidates);
            }
        }
        candidates
    }
}

/// Adds what an extent of a record says to what is claimed of its row, whose column has so many blocks.
///
/// Of content that is relogged the later stamp counts, wherever it stands: of a stripe in flight a flush says under a newer epoch
/// what a checkpoint or a resync, which looked before, says behind that under the older one. Believed, that would let the disk that
/// left with the newer epoch do without the block.
pub(crate) fn add_candidates(
    is_durable: bool,
    read: ReadBlockExtent<'_>,
    blocks: u32,
    row: &mut RowCandidates,
) {
    let extent = read.extent;
    let durable = (is_durable || extent.covered) && !extent.in_doubt;
    for number in 0..extent.count.min(blocks.saturating_sub(extent.first)) {
        let candidates = row.entry((usize::from(extent.column), extent.first + number)).or_default();
        let state = read.state(number);
        let same =
            candidates.iter().filter(|candidate| candidate.row == extent.row && candidate.state == state);
        let stamp = same.map(|candidate| candidate.stamp).fold(extent.stamp, Stamp::latest);
        // What a flush has covered replaces everything before it, as does a record that begins again.
        if durable || extent.supersedes {
            candidates.clear();
        }
        candidates.push(Candidate {
            row: extent.row,
            durable,
            state,
            stamp,
            intent: extent.intent,
            left: extent.in_doubt,
            generation: extent.generation,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    use crate::format::raw::STATE_VALID;
    use crate::format::record::{BlockExtent, Stamp};
    use proptest::prelude::*;

    fn record(lsn: u32, durable: bool, extents: &[(u64, u32, u32, bool)]) -> RecoveredBlock {
        let mut body = Vec::new();
        for (row, first, count, supersedes) in extents {
            let extent = BlockExtent {
                row: RowId(*row),
                column: 0,
                first: *first,
                count: *count,
                stamp: Stamp::default(),
                state: STATE_VALID,
                intent: false,
                in_doubt: false,
                supersedes: *supersedes,
                covered: false,
                generation: 0,
            };
            body.extend(extent.head());
            (0..*count).for_each(|number| body.extend((number + lsn).to_le_bytes()));
        }
        RecoveredBlock { lsn: Lsn(lsn.into()), durable, body }
    }

    fn shown(candidates: &RowCandidates) -> Vec<String> {
        candidates.iter().map(|candidate| format!("{candidate:?}")).collect()
    }

    proptest! {
        // Records of any rows: what is expanded a few rows at a time is, row for row, what the log says in its order.
        #[test]
        fn a_few_rows_at_a_time_say_what_all_say_at_once(
            records in proptest::collection::vec(
                (any::<bool>(), proptest::collection::vec((0u64..80, 0u32..6, 1u32..5, any::<bool>()), 1..5)), 1..60)
        ) {
            let numbered = (0..).zip(&records);
            let blocks: Vec<_> = numbered.map(|(lsn, (durable, relogged))| record(lsn, *durable, relogged)).collect();
            let mut expected: BTreeMap<RowId, RowCandidates> = BTreeMap::new();
            for block in &blocks {
                for read in extents(&block.body).flatten() {
                    let row = expected.entry(read.extent.row).or_default();
                    add_candidates(block.durable, read, u32::MAX, row);
                }
            }
            let mentions = Mentions::of(blocks).unwrap();
            let mut found = BTreeMap::new();
            let mut next = 0;
            while let Some((_, last)) = mentions.rows_from(next).last().cloned() {
                let together = mentions.rows_from(next);
                prop_assert!(together.len() <= ROWS_TOGETHER);
                found.extend(together.into_iter().map(|(row, of_row)| (row, mentions.candidates(of_row, |_| u32::MAX))));
                next = last.end;
            }
            prop_assert_eq!(found.keys().collect::<Vec<_>>(), expected.keys().collect::<Vec<_>>());
            for (row, candidates) in &found {
                prop_assert_eq!(shown(candidates), shown(&expected[row]));
            }
        }
    }

    /// Rows with many states each, some of them with more than go together: no group but a row alone has more.
    #[test]
    fn rows_that_are_expanded_together_have_a_bounded_number_of_states() {
        let long = u32::try_from(STATES_TOGETHER / 3).unwrap();
        let records: Vec<_> = (0..20).map(|row| record(row, true, &[(row.into(), 0, long, false)])).collect();
        let over = record(20, true, &[(20, 0, 4 * long, false), (21, 0, 1, false)]);
        let mentions = Mentions::of(records.into_iter().chain([over]).collect()).unwrap();
        let (mut sizes, mut next) = (Vec::new(), 0);
        while let Some((_, last)) = mentions.rows_from(next).last().cloned() {
            let together = mentions.rows_from(next);
            let states: usize =
                together.iter().map(|(_, of)| mentions.candidates(of.clone(), |_| u32::MAX).len()).sum();
            assert!(together.len() == 1 || states as u64 <= STATES_TOGETHER, "{states} states together");
            sizes.push(together.len());
            next = last.end;
        }
        assert_eq!(sizes, [3, 3, 3, 3, 3, 3, 2, 1, 1]);
    }

    #[test]
    fn a_record_that_makes_no_sense_is_named() {
        let mut bad = record(7, true, &[(1, 0, 2, false)]);
        bad.body.pop();
        assert_eq!(Mentions::of(vec![record(6, true, &[(1, 0, 2, false)]), bad]).err(), Some(Lsn(7)));
    }
}
