//! Resync: stale slabs get what they miss and are trusted again; and with the same means, slabs move to other disks.

use std::rc::Rc;

use dolmen_block_io::Durability;
use dolmen_pool::{ExcludeReason, Purpose, keys};
use dolmen_units::{BLOCK_BYTES, DiskSlot, Epoch};

use crate::error::{SpaceError, UnreadableReason};
use crate::layout::BLOCK;
use crate::layout::SlabMap;
use crate::locks::Range;
use crate::read::matches_state;
use crate::record::BlockState;
use crate::row::{Row, Slab};
use crate::shared::{Shared, place_in_page};
use crate::space::Space;

/// What a resync did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Resynced {
    /// Slabs that are trusted again.
    pub slabs: u64,
    /// Blocks that were copied.
    pub blocks: u64,
    /// Blocks that no trusted copy could give; they read as damaged.
    pub lost_blocks: u64,
    /// Slabs that stay stale, because their disk or all sources are absent.
    pub waiting: u64,
}

/// A row some of whose stale slabs have everything but their tables.
pub(crate) struct Refilled {
    pub(crate) row: Rc<Row>,
    slabs: Vec<(usize, Slab)>,
}

impl Space {
    /// Gives every stale slab of a row whose disk is here what it misses; those that hold everything afterwards, once
    /// their tables are written too.
    ///
    /// # Errors
    /// [`SpaceError`]; the slabs stay stale then, and nothing is lost.
    pub(crate) async fn refill_row(
        &self,
        index: u64,
        result: &mut Resynced,
    ) -> Result<Option<Refilled>, SpaceError> {
        let Some(row) = self.row(index).await? else { return Ok(None) };
        let mut stale = Vec::new();
        row.for_each_slab(|column, slab| {
            if slab.stale.is_some() {
                stale.push((column, slab.clone()));
            }
        });
        let mut slabs = Vec::new();
        for (column, slab) in stale {
            let pool = &self.shared.pool;
            let has_source =
                row.with_slabs(column, |slabs| slabs.iter().any(|slab| slab.readable(pool).is_some()));
            if slab.present(pool).is_none() || !has_source {
                result.waiting += 1;
                continue;
            }
            self.refill_slab(&row, column, &slab, result).await?;
            slabs.push((column, slab));
        }
        Ok((!slabs.is_empty()).then_some(Refilled { row, slabs }))
    }

    async fn refill_slab(
        &self,
        row: &Rc<Row>,
        column: usize,
        slab: &Slab,
        result: &mut Resynced,
    ) -> Result<(), SpaceError> {
        // A write that chose its disks before this one was here goes on without it; what it leaves has to be seen below.
        self.shared.tickets.wait_below(self.shared.tickets.next()).await;
        let now = self.shared.pool.epoch().number;
        let since = slab.stale.unwrap_or_default();
        for block in 0..row.shape.column_blocks(column) {
            let (index, entry) = place_in_page(block);
            let page = self.shared.page(row, column, index).await?;
            let stamp = page.stamp(entry);
            let skipped = cfg!(feature = "bug-resync-skips-newest") && stamp.is_since(now, now);
            if matches!(page.state(entry), BlockState::Valid(_)) && stamp.is_since(since, now) && !skipped {
                self.resync_block(row, column, block, slab, result).await?;
            }
        }
        // All of the column's pages go to their next generation on every copy, this one included. A record for one block of
        // each announces that: recovery then knows that a slot may be half-written.
        for index in 0..row.map(column).pages() {
            let first = u32::try_from(index * crate::format::PAGE_ENTRIES).unwrap_or(0);
            let row_block = row.shape.row_block(column, first);
            let _guard = row.locks.lock(Range { first: row_block, count: 1 }).await;
            if row.gone.get() {
                return Ok(());
            }
            let held = self.shared.tickets.begin();
            let range = Range { first, count: 1 };
            self.shared.record_again(row, column, range, held.ticket()).await?;
            self.shared.note_unsettled(held.ticket(), row, column, range);
        }
        Ok(())
    }

    /// Copies one block, under its lock, from a verified copy.
    async fn resync_block(
        &self,
        row: &Rc<Row>,
        column: usize,
        block: u32,
        slab: &Slab,
        result: &mut Resynced,
    ) -> Result<(), SpaceError> {
        let row_block = row.shape.row_block(column, block);
        let _guard = row.locks.lock(Range { first: row_block, count: 1 }).await;
        if row.gone.get() {
            return Ok(());
        }
        let mut buffer = self.shared.pool.seams().metadata.take(BLOCK).await;
        match self.read_block_locked(row, row_block, &mut buffer).await {
            Ok(()) => {}
            // What cannot be read is lost on this copy as well: nobody makes a checksum of unverified data.
            Err(SpaceError::Unreadable {
                why: UnreadableReason::NoGoodCopy | UnreadableReason::Damaged,
                ..
            }) => {
                result.lost_blocks += 1;
                return Ok(());
            }
            Err(error) => return Err(error),
        }
        let frozen = buffer.freeze();
        for piece in slab.pieces(u64::from(block) * BLOCK_BYTES, BLOCK) {
            let Some(disk) = slab.present(&self.shared.pool) else { return Ok(()) };
            if disk.write(piece.at, frozen.clone(), Durability::Cached).await.is_err() {
                self.shared.pool.exclude(disk.slot(), ExcludeReason::MissedWrite).await?;
            }
        }
        result.blocks += 1;
        self.shared.count(|counters| counters.resynced_blocks += 1);
        Ok(())
    }

    /// Commits that refilled slabs hold everything. Their tables were written and flushed before.
    pub(crate) async fn trust(&self, refilled: &Refilled, result: &mut Resynced) -> Result<(), SpaceError> {
        let row = &refilled.row;
        let mut change = self.shared.pool.change(Purpose::Release).await;
        if row.gone.get() {
            return Ok(());
        }
        let mut record = row.record();
        for (column, done) in &refilled.slabs {
            // A slab whose disk left on the way, or that missed something else, is another one by now.
            let Some(slabs) =
                record.columns.get_mut(*column).filter(|_| done.present(&self.shared.pool).is_some())
            else {
                result.waiting += 1;
                continue;
            };
            for slab in slabs.iter_mut().filter(|slab| *slab == done) {
                slab.stale = None;
                result.slabs += 1;
            }
        }
        change.put(keys::row(row.space, row.index), record.encode());
        for (_, done) in &refilled.slabs {
            let of_disk = |slab: &&Slab| slab.disk == done.disk && slab.stale.is_some();
            if !record.columns.iter().flatten().any(|slab| of_disk(&slab)) {
                change.delete(keys::stale(done.disk, row.space, row.index));
            }
        }
        change.commit().await?;
        row.adopt(record);
        Ok(())
    }

    /// Gives the column that has a slab on `from` another one, stale, on `to`.
    pub(crate) async fn add_slab(
        &self,
        row: &Rc<Row>,
        from: DiskSlot,
        to: DiskSlot,
    ) -> Result<bool, SpaceError> {
        let mut change = self.shared.pool.change(Purpose::Move).await;
        if row.gone.get() {
            return Ok(false);
        }
        let mut record = row.record();
        let mut added = false;
        for (column, slabs) in record.columns.iter_mut().enumerate() {
            let leaves = slabs.iter().any(|slab| slab.disk == from);
            if !leaves || slabs.iter().any(|slab| slab.disk == to) {
                continue;
            }
            let grains = SlabMap { blocks: row.shape.column_blocks(column) }.grains();
            let claim = change.take(to, grains)?;
            slabs.push(Slab { disk: to, runs: claim.runs, stale: Some(Epoch(0)) });
            change.put(keys::stale(to, row.space, row.index), Vec::new());
            added = true;
        }
        if added {
            change.put(keys::row(row.space, row.index), record.encode());
            change.commit().await?;
            row.adopt(record);
        }
        Ok(added)
    }

    /// Drops the slab on `from` wherever the column has enough others that hold everything. Whether none is left there.
    pub(crate) async fn drop_slab(&self, row: &Rc<Row>, from: DiskSlot) -> Result<bool, SpaceError> {
        // Nobody may be writing to the slab when its grains are given away; whoever reads it verifies what was read.
        let _guard = row.locks.lock(Range { first: 0, count: row.shape.row_blocks() }).await;
        let _tables = self.shared.table_turn.take().await;
        let copies = usize::from(self.spec().resiliency.copies());
        let mut change = self.shared.pool.change(Purpose::Release).await;
        if row.gone.get() {
            return Ok(true);
        }
        let mut record = row.record();
        let (mut changed, mut left) = (false, false);
        for slabs in &mut record.columns {
            let Some(at) = slabs.iter().position(|slab| slab.disk == from) else { continue };
            let trusted = slabs.iter().filter(|slab| slab.disk != from && slab.stale.is_none()).count();
            if trusted < copies {
                left = true;
                continue;
            }
            let slab = slabs.remove(at);
            change.release(slab.disk, &slab.runs);
            changed = true;
        }
        if changed {
            change.put(keys::row(row.space, row.index), record.encode());
            change.delete(keys::stale(from, row.space, row.index));
            change.commit().await?;
            row.adopt(record);
        }
        Ok(!left)
    }

    /// Reads and verifies every copy of every block of a row; heals what differs. Returns blocks without a good copy.
    pub(crate) async fn verify_row(&self, index: u64, bad: &mut Vec<u64>) -> Result<u64, SpaceError> {
        let Some(row) = self.row(index).await? else { return Ok(0) };
        let mut verified = 0;
        for block in 0..row.shape.row_blocks() {
            let _guard = row.locks.lock(Range { first: block, count: 1 }).await;
            if row.gone.get() {
                return Ok(verified);
            }
            let spot = row.shape.locate(block);
            let (page, entry) = place_in_page(spot.block);
            let state = self.shared.page(&row, spot.column, page).await?.state(entry);
            if state == BlockState::Never {
                continue;
            }
            let copies = self.read_copies(&row, spot.column, spot.block).await;
            let all_good = copies
                .iter()
                .filter(|copy| copy.trusted)
                .all(|copy| copy.result.is_ok() && matches_state(&copy.bytes, state));
            verified += 1;
            if !all_good || copies.is_empty() {
                let mut buffer = self.shared.pool.seams().metadata.take(BLOCK).await;
                if self.read_block_locked(&row, block, &mut buffer).await.is_err() {
                    bad.push(index * row.bytes() + u64::from(block) * BLOCK_BYTES);
                }
            }
        }
        Ok(verified)
    }
}

impl Shared {
    /// Flushes although nobody may have written: recovery's decisions and heals.
    pub(crate) async fn force_flush(&self) -> Result<(), SpaceError> {
        // A ticket that ends at once makes the flush believe that there is something to cover.
        drop(self.tickets.begin());
        self.flush().await
    }
}
