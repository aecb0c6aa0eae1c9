//! Rows that were laid before a disk was added are evened out: slabs move from full disks to emptier ones (docs/design/0012).
//!
//! Invariants:
//! - A slab moves only to a disk that is emptier than its own also behind the move, so a rebalance comes to an end.
//! - A row whose redundancy is not whole is left to those who repair it, and rows that no client sees to those who made them.
//! - What a rebalance that was cut short left too much is given up by the next one, and before that costs room alone.
//!
//! Left to others: where slabs go (`homes`), a move itself (`removal`), filling them (`resync`).

use std::collections::BTreeSet;
use std::rc::Rc;

use dolmen_disk::MemberState;
use dolmen_placement::Offer;
use dolmen_pool::{Disk, Pool};
use dolmen_units::{Bytes, DiskSlot, Epoch, GRAIN_BYTES};

use crate::error::SpaceError;
use crate::homes::Homes;
use crate::removal::ROWS_TOGETHER;
use crate::resync::Resynced;
use crate::row::{Row, RowRecord, Slab, Slabs};
use crate::space::Space;
use crate::spaces::{Progress, Spaces};
use crate::spec::Resiliency;

/// What a rebalance has to do, with what is free now.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RebalanceForecast {
    /// Rows of which something moves.
    pub rows: u64,
    /// Bytes that are claimed on emptier disks, and given up on fuller ones.
    pub moved: Bytes,
    /// Rows with a slab too many.
    pub crowded: u64,
}

impl RebalanceForecast {
    /// Whether there is nothing to do.
    #[must_use]
    pub fn is_even(&self) -> bool {
        self.rows_left() == 0
    }

    fn rows_left(&self) -> u64 {
        self.rows + self.crowded
    }
}

/// What a look at all rows found.
#[derive(Default)]
struct Uneven {
    forecast: RebalanceForecast,
    to_move: Vec<(Rc<Space>, u64)>,
    crowded: Vec<(Rc<Space>, u64)>,
}

impl Spaces {
    /// What it would take to even out what is on the disks, and on those that may join them.
    ///
    /// # Errors
    /// [`SpaceError`] when the metadata cannot be read.
    pub async fn forecast_rebalance(&self, more: &[Offer]) -> Result<RebalanceForecast, SpaceError> {
        Ok(self.uneven(more).await?.forecast)
    }

    /// Moves slabs from full disks to emptier ones until they are even, or `goes_on` says no. Redundancy is never lower on the
    /// way; killed, it goes on when called again. Whether all is even then, as far as the rules of placement and disks that are
    /// away allow.
    ///
    /// # Errors
    /// [`SpaceError`].
    pub async fn rebalance(
        &self,
        progress: &Progress,
        goes_on: impl Fn() -> bool,
    ) -> Result<bool, SpaceError> {
        self.finish_lines().await?;
        let mut result = Resynced::default();
        loop {
            let uneven = self.uneven(&[]).await?;
            let before = uneven.forecast;
            self.thin_out(&uneven.crowded).await?;
            if before.is_even() {
                return Ok(true);
            }
            progress.total.set(progress.done.get() + before.rows);
            for together in uneven.to_move.chunks(ROWS_TOGETHER) {
                if !goes_on() {
                    return Ok(false);
                }
                let claim = async |space: &Space, row: &Rc<Row>| self.claim_emptier(space, row).await;
                self.move_slabs_of(together, claim, progress, &mut result).await?;
                self.thin_out(together).await?;
                progress.done.set(progress.done.get() + together.len() as u64);
            }
            // What could not be moved is not tried again and again; clients who claim rows meanwhile are no reason to go on.
            if self.uneven(&[]).await?.forecast.rows_left() >= before.rows_left() {
                return Ok(false);
            }
        }
    }

    /// Looks at all rows that clients see, reckoning with what each move takes and gives.
    async fn uneven(&self, more: &[Offer]) -> Result<Uneven, SpaceError> {
        let mut homes = Homes::with(self.pool(), more);
        let mut found = Uneven::default();
        for space in self.list() {
            let spec = space.spec();
            let copies = usize::from(spec.resiliency.copies());
            let (mut to_move, mut crowded) = (Vec::new(), Vec::new());
            let mut moved = 0;
            space
                .for_each_record(|index, record| {
                    if !slab_too_many(self.pool(), &homes, record, copies).is_empty() {
                        crowded.push(index);
                        return;
                    }
                    let moves = moves_of(self.pool(), &mut homes, record, &spec.resiliency);
                    if !moves.is_empty() {
                        to_move.push(index);
                        let grains = moves.iter().map(|one| record.shape.slab_map(one.column).grains());
                        moved += grains.sum::<u64>();
                    }
                })
                .await?;
            found.forecast.rows += to_move.len() as u64;
            found.forecast.crowded += crowded.len() as u64;
            found.forecast.moved.0 += moved * GRAIN_BYTES;
            found.to_move.extend(to_move.into_iter().map(|index| (Rc::clone(&space), index)));
            found.crowded.extend(crowded.into_iter().map(|index| (Rc::clone(&space), index)));
        }
        Ok(found)
    }

    /// Claims slabs on emptier disks for a row; the disks that it leaves.
    async fn claim_emptier(&self, space: &Space, row: &Rc<Row>) -> Result<Vec<DiskSlot>, SpaceError> {
        let pool = self.pool();
        let mut homes = Homes::of(pool);
        let mut leaves = Vec::new();
        for Move { column, from, to } in moves_of(pool, &mut homes, &row.record(), &space.spec().resiliency) {
            match space.add_slab(row, (from, to), |other| other == column).await {
                Ok(true) => leaves.push(from),
                Ok(false) => {}
                // Its free grains lie in too many pieces, or somebody else was there first.
                Err(SpaceError::Pool(_)) => pool.check_writable()?,
                Err(error) => return Err(error),
            }
        }
        Ok(leaves)
    }

    /// Gives up what rows have too much, where all else that they have is whole and here.
    async fn thin_out(&self, rows: &[(Rc<Space>, u64)]) -> Result<(), SpaceError> {
        for (space, index) in rows {
            let Some(row) = space.undecided_row(*index).await? else { continue };
            let copies = usize::from(space.spec().resiliency.copies());
            let homes = Homes::of(self.pool());
            for from in slab_too_many(self.pool(), &homes, &row.record(), copies) {
                if space.can_do_without_absent(*index).await? {
                    space.drop_slab(&row, from).await?;
                }
            }
        }
        Ok(())
    }
}

/// A slab that goes to an emptier disk.
struct Move {
    column: usize,
    from: DiskSlot,
    to: DiskSlot,
}

/// What of a row moves; nothing of one that is not whole, or whose space lies where it lies.
fn moves_of(pool: &Pool, homes: &mut Homes, record: &RowRecord, resiliency: &Resiliency) -> Vec<Move> {
    let copies = usize::from(resiliency.copies());
    let is_whole = |slabs: &Slabs| slabs.len() == copies && slabs.iter().all(|slab| is_settled(pool, slab));
    // Rows of a span fill one disk before the next, so that little is lost with a disk.
    if *resiliency == Resiliency::Span || !record.columns.iter().all(is_whole) {
        return Vec::new();
    }
    let mut after = record.clone();
    let mut moves = Vec::new();
    for column in 0..record.columns.len() {
        let slabs = record.columns.get(column).into_iter().flatten();
        for from in slabs.map(|slab| slab.disk) {
            let Some(to) = homes.choose_emptier(pool, &after, column, from) else { continue };
            let slabs = after.columns.get_mut(column).into_iter().flatten();
            slabs.filter(|slab| slab.disk == from).for_each(|slab| slab.disk = to);
            moves.push(Move { column, from, to });
        }
    }
    moves
}

/// Whether a slab holds everything, on a disk that is here and stays.
fn is_settled(pool: &Pool, slab: &Slab) -> bool {
    let is_active = |disk: &Rc<Disk>| disk.member().state == MemberState::Active;
    slab.readable(pool).as_ref().is_some_and(is_active)
}

/// The disks whose slabs a row can do without: its columns have more than they need, all of it whole or never filled, on disks
/// that are here and stay.
fn slab_too_many(pool: &Pool, homes: &Homes, record: &RowRecord, copies: usize) -> BTreeSet<DiskSlot> {
    let is_new = |slab: &Slab| slab.stale == Some(Epoch(0));
    let of_column = |slabs: &Slabs| {
        let (settled, others): (Vec<&Slab>, Vec<&Slab>) =
            slabs.iter().partition(|slab| is_settled(pool, slab));
        if slabs.len() <= copies || settled.len() < copies || !others.iter().all(|slab| is_new(slab)) {
            return None;
        }
        if let Some(new) = others.first() {
            return Some(new.disk);
        }
        // What the others have to be apart from each other: copies those of the column, columns with parity all of the row.
        let apart: Vec<&Slab> = match record.shape.parity_columns() {
            0 => slabs.iter().collect(),
            _ => record.columns.iter().flatten().collect(),
        };
        let without = |slab: &&&Slab| {
            let rest = apart.iter().filter(|other| other.disk != slab.disk);
            let domains: BTreeSet<_> = rest.filter_map(|other| pool.domain_of(other.disk)).collect();
            (domains.len(), std::cmp::Reverse(homes.room_on(slab.disk)))
        };
        settled.iter().max_by_key(without).map(|slab| slab.disk)
    };
    record.columns.iter().filter_map(of_column).collect()
}
