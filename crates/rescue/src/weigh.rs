//! Which slabs of a row have what was written last, by their tables alone.
//!
//! With a map, a slab that missed writes is marked there. Without one, pages of tables tell: each counts its writes. A slab that
//! was moved away, or whose disk was away, has pages with lower generations than the others have.
//!
//! Invariant: a slab that is behind by more than a crash in a write-back explains never counts, whatever else is there.

use std::collections::BTreeMap;
use std::rc::Rc;

use dolmen_block_io::{BlockDevice, Seams};
use dolmen_future_pool::pooled;
use dolmen_pool::Run;
use dolmen_space::salvage::{RowShape, TABLE_PAGE_BYTES, generation_of};
use dolmen_units::{ALLOCATION_UNIT_BYTES, Epoch, PoolId, RowId};

use crate::gather::read_bytes;

/// A slab that may be one of a row.
pub(crate) struct Weighed {
    pub(crate) device: Rc<dyn BlockDevice>,
    pub(crate) data_start: u64,
    pub(crate) column: usize,
    pub(crate) runs: Vec<Run>,
    /// Epoch of its header: a slab that another one took over from has an older one.
    pub(crate) epoch: Epoch,
    /// Whether a label says that its disk missed writes.
    pub(crate) is_stale: bool,
}

/// What came of weighing the slabs of a row.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Weights {
    /// Slabs, by their place among those given, that do not count.
    pub(crate) stale: Vec<usize>,
    /// Pages of which a copy is torn that may have been the newest: column, index.
    pub(crate) doubtful: Vec<(usize, usize)>,
}

/// A copy of a page.
#[derive(Debug, Clone, Copy)]
struct PageCopy {
    slab: usize,
    /// The highest generation of a sound slot.
    newest: Option<u64>,
    /// Whether both slots are sound.
    is_whole: bool,
}

/// Address of a byte of a slab.
fn address(slab: &Weighed, offset: u64) -> Option<u64> {
    let mut skip = offset;
    for run in &slab.runs {
        let bytes = run.count * ALLOCATION_UNIT_BYTES;
        if skip < bytes {
            return slab
                .data_start
                .checked_add(run.first.checked_mul(ALLOCATION_UNIT_BYTES)?)?
                .checked_add(skip);
        }
        skip -= bytes;
    }
    None
}

/// Reads the tables of all slabs of a row, and compares them.
#[pooled]
pub(crate) async fn weigh(
    seams: &Seams,
    (pool, row, shape): (PoolId, RowId, RowShape),
    slabs: &[Weighed],
) -> Weights {
    let mut pages: BTreeMap<(usize, usize), Vec<PageCopy>> = BTreeMap::new();
    for place in shape.pages() {
        for (number, slab) in slabs.iter().enumerate().filter(|(_, slab)| slab.column == place.holder) {
            let mut copy = PageCopy { slab: number, newest: None, is_whole: true };
            for (slot, offset) in (0u64..).zip(place.slots) {
                let bytes = match address(slab, offset) {
                    Some(at) => read_bytes(seams, slab.device.as_ref(), at, TABLE_PAGE_BYTES).await,
                    None => None,
                };
                let generation =
                    bytes.and_then(|bytes| generation_of(&bytes, pool, row, place.column, place.index));
                let generation = generation.filter(|generation| generation % 2 == slot);
                copy.is_whole &= generation.is_some();
                copy.newest = copy.newest.max(generation);
            }
            pages.entry((place.column, place.index)).or_default().push(copy);
        }
    }
    decide(shape, slabs, &pages)
}

fn decide(shape: RowShape, slabs: &[Weighed], pages: &BTreeMap<(usize, usize), Vec<PageCopy>>) -> Weights {
    // By how many generations each slab is behind on some page, at most.
    let mut after = vec![0u64; slabs.len()];
    let mut has_any = vec![false; slabs.len()];
    for copies in pages.values() {
        let Some(newest) = copies.iter().filter_map(|copy| copy.newest).max() else { continue };
        for copy in copies {
            let Some(own) = copy.newest else { continue };
            for (number, (after, has_any)) in after.iter_mut().zip(&mut has_any).enumerate() {
                if number == copy.slab {
                    *after = (*after).max(newest - own);
                    *has_any = true;
                }
            }
        }
    }
    let is_left = |number: usize| slabs.get(number).is_some_and(|slab| slab.is_stale);
    let lag = |number: usize| after.get(number).copied().unwrap_or(0);
    let is_here = |number: usize| has_any.get(number).copied().unwrap_or(false);
    // A crash in a write-back leaves some copies one generation behind.
    let kept_at = |most: u64| move |number: usize| lag(number) <= most;
    let has_all_tables = |most: u64| {
        let is_kept = kept_at(most);
        let kept = |copy: &PageCopy| is_kept(copy.slab) && !is_left(copy.slab) && copy.is_whole;
        (0..shape.column_count()).all(|column| {
            let of_column = pages.range((column, 0)..(column + 1, 0));
            of_column.into_iter().all(|(_, copies)| copies.iter().any(kept))
        })
    };
    let most = if has_all_tables(0) { 0 } else { 1 };
    let stale: Vec<usize> =
        (0..slabs.len()).filter(|number| is_left(*number) || lag(*number) > most).collect();
    let mut doubtful = Vec::new();
    for (page, copies) in pages {
        let trusted = |copy: &&PageCopy| !stale.contains(&copy.slab) && copy.is_whole;
        let Some(believed) = copies.iter().filter(trusted).filter_map(|copy| copy.newest).max() else {
            continue;
        };
        let epoch = |copy: &PageCopy| slabs.get(copy.slab).map(|slab| slab.epoch);
        let written = copies.iter().filter(trusted).filter_map(epoch).max();
        // What the bad slot of a copy said may have been newer than what counts, unless its sound slot is older. Of a slab
        // without any sound page, its header tells whether it was dropped before the others were written.
        let hides = |copy: &&PageCopy| {
            let may_be_newer = copy.newest.is_none_or(|sound| sound >= believed);
            let is_in_use = is_here(copy.slab) || epoch(copy) >= written;
            !copy.is_whole && may_be_newer && is_in_use && !stale.contains(&copy.slab)
        };
        if copies.iter().any(|copy| hides(&copy)) {
            doubtful.push(*page);
        }
    }
    Weights { stale, doubtful }
}
