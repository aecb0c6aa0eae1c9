//! Claimed rows of a space as ranges of their indexes, page by page.

use std::ops::Range;

use dolmen_future_pool::pooled;
use dolmen_pool::keys;

use crate::format::error::SpaceError;
use crate::table::space::SpaceRows;

/// Rows that one read of the map brings, at most.
const STEP: usize = 1024;

/// One page of claimed rows.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ClaimedRows {
    /// Ranges of indexes, in order; none touches the next.
    pub ranges: Vec<Range<u64>>,
    /// Index from which the next page begins; none behind the last page.
    pub next: Option<u64>,
}

impl ClaimedRows {
    /// Adds a row behind the last one. Returns whether the page takes it.
    fn add(&mut self, index: u64, ranges_max: usize) -> bool {
        let is_full = self.ranges.len() >= ranges_max;
        match self.ranges.last_mut() {
            Some(last) if last.end == index => last.end = index.saturating_add(1),
            Some(_) | None if is_full => return false,
            Some(_) | None => self.ranges.push(index..index.saturating_add(1)),
        }
        true
    }
}

/// Returns the claimed rows of a space from an index on, in at most `ranges_max` ranges. Rows that are claimed or freed between two
/// pages may be in neither or in both.
///
/// # Errors
/// Fails when the map cannot be read.
#[pooled]
pub(crate) async fn claimed_rows(
    space: &SpaceRows,
    from: u64,
    ranges_max: usize,
) -> Result<ClaimedRows, SpaceError> {
    let mut page = ClaimedRows::default();
    let mut from = from;
    loop {
        let places = keys::places(space.id(), from..u64::MAX);
        let found = space.shared.pool.map().scan(places, STEP).await?;
        let count = found.len();
        for (key, _) in found {
            let (_, _, index) = keys::parts(&key);
            if !page.add(index, ranges_max.max(1)) {
                page.next = Some(index);
                return Ok(page);
            }
            from = index.saturating_add(1);
        }
        if count < STEP {
            return Ok(page);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_are_one_range_and_a_full_page_takes_neighbours_only() {
        let mut page = ClaimedRows::default();
        let taken: Vec<bool> = [0, 1, 3, 4, 7].into_iter().map(|index| page.add(index, 2)).collect();
        assert_eq!(taken, [true, true, true, true, false]);
        assert_eq!(page.ranges, [0..2, 3..5]);
    }
}
