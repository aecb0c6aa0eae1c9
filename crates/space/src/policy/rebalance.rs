//! Rows that were laid before a disk was added are evened out: slabs move from full disks to emptier ones (docs/design/0012).
//!
//! Invariants:
//! - A slab moves only to a disk that is emptier than its own also behind the move, or out of a fault domain that it shares with
//!   another slab of which it should be apart, and never into one, so a rebalance comes to an end.
//! - A row whose redundancy is not whole is left to those who repair it, and rows that no client sees to those who made them.
//! - What a rebalance that was cut short left too much is given up by the next one, and before that costs room alone.
//!
//! Left to others: where slabs go (`slab_targets`), a move itself (`slab_moves`), filling them (`resync`).

use std::cell::RefCell;
use std::collections::{BTreeSet, VecDeque};
use std::rc::Rc;

use dolmen_disk::MemberState;
use dolmen_future_pool::pooled;
use dolmen_placement::Offer;
use dolmen_pool::{Disk, Pool};
use dolmen_units::{ALLOCATION_UNIT_BYTES, Bytes, DiskSlot, Epoch};

use crate::format::error::SpaceError;
use crate::layout::{Apart, Spread};
use crate::policy::handles::{Caches, Moves};
use crate::policy::replacement::PlaceOfRow;
use crate::policy::slab_targets::SlabTargets;
use crate::relocation::refill::next_lot;
use crate::relocation::resync::{Resynced, SlabChanges};
use crate::relocation::row_verify::RowVerify;
use crate::relocation::slab_moves::{Planner, RowToMove, SlabMove, Tried};
use crate::resources::progress::Progress;
use crate::table::row::{RowRecord, Slab, Slabs};

/// Looks at all rows, at most: each moves one slab of a row.
const PASSES_MAX: u32 = 64;

/// What a rebalance has to do, with what is free now.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RebalanceForecast {
    /// Rows of which a slab moves; another one may follow.
    pub rows: u64,
    /// Bytes that are claimed on emptier disks, and given up on fuller ones.
    pub moved: Bytes,
    /// Rows with a slab too many.
    pub surplus: u64,
}

impl RebalanceForecast {
    /// Whether there is nothing to do.
    #[must_use]
    pub fn is_even(&self) -> bool {
        self.rows_left() == 0
    }

    fn rows_left(&self) -> u64 {
        self.rows + self.surplus
    }
}

/// What a look at all rows found.
#[derive(Default)]
struct Uneven {
    forecast: RebalanceForecast,
    to_move: Vec<PlaceOfRow>,
    surplus: Vec<PlaceOfRow>,
}

impl Moves<'_> {
    /// What it would take to even out what is on the disks, and on those that may join them.
    ///
    /// # Errors
    /// [`SpaceError`] when the metadata cannot be read.
    #[pooled]
    pub async fn forecast_rebalance(self, more: &[Offer]) -> Result<RebalanceForecast, SpaceError> {
        Ok(self.uneven(more).await?.forecast)
    }

    /// Rows that would come apart with a fault domain although the members have domains enough.
    ///
    /// # Errors
    /// [`SpaceError`] when the metadata cannot be read.
    #[pooled]
    pub async fn rows_laid_badly(self) -> Result<u64, SpaceError> {
        let targets_for_slabs = SlabTargets::of(self.spaces.pool());
        let mut rows = 0;
        for space in self.spaces.made_by_people() {
            space
                .for_each_record(|_, record| {
                    if record.laid.resiliency.losses() == 0 {
                        return;
                    }
                    let mut slabs = record
                        .columns
                        .iter()
                        .enumerate()
                        .flat_map(|(column, slabs)| slabs.iter().map(move |slab| (column, slab.disk)));
                    rows += u64::from(slabs.any(|(column, disk)| {
                        targets_for_slabs.is_badly_placed(self.spaces.pool(), record, column, disk)
                    }));
                })
                .await?;
        }
        Ok(rows)
    }

    /// Moves slabs from full disks to emptier ones until they are even, or it is stopped. Redundancy is never lower on the
    /// way; killed, it goes on when called again. Whether all is even then, as far as the rules of placement and disks that
    /// are away allow. Held and stopped between lots of rows.
    ///
    /// # Errors
    /// [`SpaceError`].
    #[pooled]
    pub async fn rebalance(self, progress: &Progress) -> Result<bool, SpaceError> {
        Caches::of(self.spaces).finish_stripes().await?;
        let mut result = Resynced::default();
        let mut before = self.uneven(&[]).await?;
        for _ in 0..PASSES_MAX {
            if before.forecast.is_even() {
                return Ok(true);
            }
            progress.total.set(progress.done.get() + before.forecast.rows);
            let dropped = self.drop_surplus(&before.surplus, progress).await?;
            let mut waiting: VecDeque<_> = before.to_move.iter().cloned().collect();
            while !waiting.is_empty() {
                if !progress.may_go_on(&self.spaces.shared.closing).await {
                    return Ok(false);
                }
                let together = next_lot(&mut waiting).await?;
                let planner =
                    Rebalancing { targets_for_slabs: RefCell::new(SlabTargets::of(self.spaces.pool())) };
                let moved =
                    self.spaces.slab_moves().move_lot(&together, &planner, progress, &mut result).await?;
                self.drop_surplus(&together, &Progress::default()).await?;
                progress.done.set(progress.done.get() + (together.len() - moved.not_begun.len()) as u64);
                moved.not_begun.into_iter().rev().for_each(|row| waiting.push_front(row));
            }
            let after = self.uneven(&[]).await?;
            // What could not be moved is not tried again and again; clients who claim rows meanwhile are no reason to go on.
            if dropped == 0 && after.forecast.rows_left() >= before.forecast.rows_left() {
                return Ok(false);
            }
            before = after;
        }
        Ok(false)
    }

    /// Waits while a job is held; whether it goes on then, and is neither to stop nor has its spaces closed under it.
    #[pooled]
    pub async fn wait_while_held(self, progress: &Progress) -> bool {
        progress.may_go_on(&self.spaces.shared.closing).await
    }

    /// Looks at all rows of spaces that people made, reckoning with what each move takes and gives.
    #[pooled]
    async fn uneven(self, more: &[Offer]) -> Result<Uneven, SpaceError> {
        let mut targets_for_slabs = SlabTargets::with_more(self.spaces.pool(), more);
        let mut found = Uneven::default();
        for space in self.spaces.made_by_people() {
            let (mut to_move, mut surplus) = (Vec::new(), Vec::new());
            let mut moved = 0;
            space
                .for_each_record(|index, record| {
                    if surplus_of(self.spaces.pool(), &targets_for_slabs, record, record.copies()).is_some() {
                        surplus.push(index);
                        return;
                    }
                    if let Some(one) = move_of(self.spaces.pool(), &mut targets_for_slabs, record) {
                        to_move.push(index);
                        moved += record.shape.slab_map(one.column).units();
                    }
                })
                .await?;
            found.forecast.rows += to_move.len() as u64;
            found.forecast.surplus += surplus.len() as u64;
            found.forecast.moved.0 += moved * ALLOCATION_UNIT_BYTES;
            found.to_move.extend(to_move.into_iter().map(|index| (Rc::clone(&space), index)));
            found.surplus.extend(surplus.into_iter().map(|index| (Rc::clone(&space), index)));
        }
        Ok(found)
    }

    /// Gives up what rows have too much, where all else that they have is whole and here; how many slabs that were.
    async fn drop_surplus(self, rows: &[PlaceOfRow], progress: &Progress) -> Result<u64, SpaceError> {
        let mut dropped = 0;
        for (space, index) in rows {
            if !progress.may_go_on(&self.spaces.shared.closing).await {
                break;
            }
            // Whoever fills a slab goes on writing to it.
            let _exclusive = self.spaces.shared.refill_mutex.take().await;
            loop {
                let Some(row) = space.in_doubt_row(*index).await? else { break };
                let copies = row.copies();
                let found = surplus_of(
                    self.spaces.pool(),
                    &SlabTargets::of(self.spaces.pool()),
                    &row.record(),
                    copies,
                );
                let Some(Surplus { disk, was_filled }) = found else { break };
                let may_go = !was_filled || RowVerify::of(space).can_do_without_absent(*index).await?;
                if !may_go || !SlabChanges::of(space).drop_slab(&row, disk).await? {
                    break;
                }
                dropped += 1;
            }
        }
        Ok(dropped)
    }
}

/// Planner of a rebalance: one slab of each row goes to an emptier disk. The room that a move takes and gives counts for the rows
/// after it, although old slabs go with the last of them.
struct Rebalancing {
    targets_for_slabs: RefCell<SlabTargets>,
}

impl Planner for Rebalancing {
    fn next(&self, row: &RowToMove<'_>, tried: &Tried) -> Option<SlabMove> {
        if !tried.is_empty() {
            return None;
        }
        move_of(row.pool, &mut self.targets_for_slabs.borrow_mut(), row.record)
    }

    fn leaves(&self, tried: &Tried) -> Vec<DiskSlot> {
        tried.done.iter().map(|one| one.from).collect()
    }

    fn note_refusal(&self, refused: SlabMove, _: Option<SpaceError>) -> Result<(), SpaceError> {
        self.targets_for_slabs.borrow_mut().refuse(refused.to);
        Ok(())
    }

    fn goes_on(&self) -> bool {
        true
    }
}

/// The slab of a row that moves, one at a time, so that each is chosen by what the row really has; none of a row that is not
/// whole, or whose space lies where it lies.
fn move_of(pool: &Pool, targets_for_slabs: &mut SlabTargets, record: &RowRecord) -> Option<SlabMove> {
    let (resiliency, copies) = (record.laid.resiliency, record.copies());
    let is_whole = |slabs: &Slabs| slabs.len() == copies && slabs.iter().all(|slab| is_durable(pool, slab));
    // Rows of a span fill one disk before the next, so that little is lost with a disk.
    if resiliency.layout().spread() == Spread::DiskByDisk || !record.columns.iter().all(is_whole) {
        return None;
    }
    let columns = record.columns.iter().enumerate();
    let mut slabs: Vec<(usize, DiskSlot)> =
        columns.flat_map(|(column, slabs)| slabs.iter().map(move |slab| (column, slab.disk))).collect();
    slabs.sort_by_key(|(_, disk)| targets_for_slabs.room_on(*disk));
    // What may fail as one comes apart first, whatever is free where.
    let apart = |(column, from): &(usize, DiskSlot)| {
        let to = targets_for_slabs.choose_apart(pool, record, *column, *from)?;
        Some(SlabMove { column: *column, from: *from, to })
    };
    if resiliency.losses() > 0
        && let Some(found) = slabs.iter().find_map(apart)
    {
        return Some(found);
    }
    slabs.into_iter().find_map(|(column, from)| {
        targets_for_slabs.choose_emptier(pool, record, column, from).map(|to| SlabMove { column, from, to })
    })
}

/// Whether a slab is on a disk that is here and stays.
fn is_here(pool: &Pool, slab: &Slab) -> bool {
    let is_active = |disk: &Rc<Disk>| disk.member().state == MemberState::Active;
    slab.present(pool).as_ref().is_some_and(is_active)
}

/// Whether it holds everything, too.
fn is_durable(pool: &Pool, slab: &Slab) -> bool {
    slab.stale.is_none() && is_here(pool, slab)
}

/// A slab that a row can do without.
struct Surplus {
    disk: DiskSlot,
    /// Whether it may hold anything.
    was_filled: bool,
}

/// A slab that a row can do without: its column has more than it needs, all of it whole or never filled, on disks that are here
/// and stay. The others are as far apart as they can be without it.
fn surplus_of(
    pool: &Pool,
    targets_for_slabs: &SlabTargets,
    record: &RowRecord,
    copies: usize,
) -> Option<Surplus> {
    let was_filled = |slab: &Slab| slab.stale != Some(Epoch(0));
    let has_surplus = |slabs: &&Slabs| {
        slabs.len() > copies
            && slabs.iter().filter(|slab| is_durable(pool, slab)).count() >= copies
            && slabs.iter().all(|slab| is_here(pool, slab) && (slab.stale.is_none() || !was_filled(slab)))
    };
    let backing_full: Vec<&Slabs> = record.columns.iter().filter(has_surplus).collect();
    if let Some(new) = backing_full.iter().flat_map(|slabs| slabs.iter()).find(|slab| !was_filled(slab)) {
        return Some(Surplus { disk: new.disk, was_filled: false });
    }
    let apart_without = |slabs: &Slabs, freed: &Slab| {
        // Copies have to be apart from those of their column, columns with parity from all of the row.
        let all: Vec<&Slab> = match record.row_shape().placement().apart {
            Apart::Column => slabs.iter().collect(),
            Apart::Row => record.columns.iter().flatten().collect(),
        };
        let rest = || all.iter().filter(|slab| !std::ptr::eq(**slab, freed)).map(|slab| slab.disk);
        let disks: BTreeSet<DiskSlot> = rest().collect();
        let domains: BTreeSet<_> = rest().filter_map(|disk| pool.members().domain_of(disk)).collect();
        (disks.len(), domains.len())
    };
    let candidates = backing_full.into_iter().flat_map(|slabs| slabs.iter().map(move |slab| (slabs, slab)));
    let best = candidates.max_by_key(|(slabs, slab)| {
        let room = std::cmp::Reverse(targets_for_slabs.room_on(slab.disk));
        (apart_without(slabs, slab), pool.members().ailment_of(slab.disk), room)
    });
    best.map(|(_, slab)| Surplus { disk: slab.disk, was_filled: true })
}
