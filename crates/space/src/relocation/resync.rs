//! Resync: stale slabs get what they miss and are trusted again; and with the same means, slabs move to other disks.

use std::collections::BTreeSet;
use std::rc::Rc;

use dolmen_block_io::{DeviceError, Durability};
use dolmen_disk::MemberState;
use dolmen_future_pool::pooled;
use dolmen_mutation::mutation;
use dolmen_pool::{ExcludeReason, Purpose, keys};
use dolmen_store::Key;
use dolmen_units::{DiskSlot, Epoch};

use crate::format::error::SpaceError;
use crate::format::raw::PAGE_BYTES;
use crate::format::record::ROWS_BYTES_MAX;
use crate::layout::Covered;
use crate::resources::locks::Range;
use crate::row_io::block_log::BlockLog;
use crate::row_io::flusher::Flusher;
use crate::row_io::header::HeaderStore;
use crate::row_io::room::TableRoom;
use crate::table::page::Page;
use crate::table::pages::TableStore;
use crate::table::row::{Row, RowRecord, SLABS_MAX, Slab, TablePlace};
use crate::table::space::{Shared, SpaceRows};

/// How often tables that a disk has not got are written again before a slab stays where it is.
const TABLE_ROUNDS_MAX: u32 = 4;

/// Pages of a table whose slots are written at once: a frame of 64 KiB.
const PAGES_AT_ONCE: usize = 8;

/// What a resync did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Resynced {
    /// Slabs that are trusted again.
    pub slabs: u64,
    /// Blocks that were copied.
    pub blocks: u64,
    /// Blocks that no copy could give: reading them is an error.
    pub lost_blocks: u64,
    /// Of them, blocks that a disk is there for and cannot read.
    pub unreadable: u64,
    /// Slabs that stay stale, because their disk or all sources are absent, or because there is no room below.
    pub waiting: u64,
    /// Of them, slabs on disks that are here and whose file, or thin device, has no room.
    pub backing_full: u64,
}

/// A row some of whose stale slabs have everything but their tables.
pub(crate) struct Refilled {
    pub(crate) row: Rc<Row>,
    pub(crate) slabs: Vec<RefilledSlab>,
}

impl Refilled {
    /// Whether a slab of a column was filled that had nothing before.
    pub(crate) fn is_new(&self, column: usize) -> bool {
        self.slabs.iter().any(|filled| filled.column == column && filled.slab.has_nothing())
    }
}

pub(crate) struct RefilledSlab {
    pub(crate) column: usize,
    pub(crate) slab: Slab,
    /// Which seating of its disk got it all: one that left and came back may have lost it.
    pub(crate) seating: u64,
}

impl Resynced {
    /// Adds what a part of it did.
    pub(crate) fn add(&mut self, part: &Self) {
        let Self { slabs, blocks, lost_blocks, unreadable, waiting, backing_full } = *part;
        self.slabs += slabs;
        self.blocks += blocks;
        self.lost_blocks += lost_blocks;
        self.unreadable += unreadable;
        self.waiting += waiting;
        self.backing_full += backing_full;
    }
}

/// Slabs that a row gets and gives back.
#[derive(Clone, Copy)]
pub(crate) struct SlabChanges<'a> {
    space: &'a SpaceRows,
}

impl<'a> SlabChanges<'a> {
    /// Returns the service for a space.
    pub(crate) fn of(space: &'a SpaceRows) -> Self {
        Self { space }
    }
}

impl SlabChanges<'_> {
    /// Takes the room for the tables of a slab that was claimed while its disk was absent; whether there is any.
    pub(crate) async fn make_table_room(
        self,
        row: &Rc<Row>,
        column: usize,
        slab: &Slab,
    ) -> Result<bool, SpaceError> {
        // What a write-back has put there goes, and comes again before the slab is trusted.
        let _exclusive = self.space.shared.table_mutex.take().await;
        if row.freed.get() || !row.has_slab(column, slab) {
            return Ok(true);
        }
        let failed = TableRoom::of(&self.space.shared)
            .take_table_room(self.space.id(), &row.shape, &[(column, slab.clone())])
            .await?;
        let has_all = failed.is_empty();
        for slot in failed {
            self.space.shared.pool.exclude(slot, ExcludeReason::MissedWrite).await?;
        }
        Ok(has_all)
    }

    /// Gives the slab the tables that it has a copy of, as they are on the others, in both slots: with one alone, it would not be believed
    /// once it is trusted and the others are gone.
    #[pooled]
    pub(crate) async fn pair_slots(
        self,
        row: &Rc<Row>,
        holder: usize,
        slab: &Slab,
    ) -> Result<(), SpaceError> {
        for (column, place) in row.tables_on(holder) {
            let mut indexes = 0..row.map(column).pages();
            while !indexes.is_empty() {
                let first = indexes.start;
                let mut pages = Vec::with_capacity(PAGES_AT_ONCE);
                for index in indexes.by_ref().take(PAGES_AT_ONCE) {
                    pages.push(TableStore::of(&self.space.shared).page(row, column, index).await?);
                }
                let _exclusive = self.space.shared.table_mutex.take().await;
                if row.freed.get() || !row.has_slab(holder, slab) {
                    return Ok(());
                }
                let mut index = first;
                for run in pages.chunk_by(|one, next| one.was_sealed() == next.was_sealed()) {
                    self.write_both_slots(row, slab, (column, place, index), run).await?;
                    index += run.len();
                }
            }
        }
        Ok(())
    }

    /// Writes pages of a table that follow each other, as they are, to both of their slots of a slab: the next generation need not go to
    /// the other one, because a write-back that is under way, and comes to nothing when another disk leaves, is done again under the same
    /// number.
    ///
    /// Pages that no write-back has taken yet go to every slab, this one too, with both slots. Whether the row's tables count already does
    /// not matter: those that were written before this slab was there may count later.
    async fn write_both_slots(
        self,
        row: &Row,
        slab: &Slab,
        (column, place, first): (usize, TablePlace, usize),
        pages: &[Rc<Page>],
    ) -> Result<(), SpaceError> {
        if !pages.iter().all(|page| page.was_sealed()) {
            return Ok(());
        }
        let mut buffer = self.space.shared.pool.seams().metadata.take(pages.len() * 2 * PAGE_BYTES).await;
        for ((index, page), slots) in (first..).zip(pages).zip(buffer.chunks_exact_mut(2 * PAGE_BYTES)) {
            page.copy_slots(TableStore::of(&self.space.shared).page_name(row, column, index), slots);
        }
        self.write_to_slab(slab, row.page_at(place, first, 0), buffer.freeze()).await
    }

    /// All of the column's pages go to their next generation on every copy, the refilled one included. A record for one
    /// block of each announces that: recovery then knows that a slot may be half-written.
    #[pooled]
    pub(crate) async fn announce_pages(self, row: &Rc<Row>, holder: usize) -> Result<(), SpaceError> {
        Flusher::of(&self.space.shared).gate().await?;
        for (column, _) in row.tables_on(holder) {
            let firsts = (0..row.map(column).pages()).map(|index| index * crate::format::raw::PAGE_ENTRIES);
            let firsts: Vec<u32> = firsts.filter_map(|first| u32::try_from(first).ok()).collect();
            let locked =
                firsts.iter().map(|first| row.shape.lock_range(column, Range { first: *first, count: 1 }));
            let _guard = row.locks.lock_all(&locked.collect::<Vec<_>>()).await;
            if row.freed.get() {
                return Ok(());
            }
            // What is being left in doubt just now must not be called durable behind that; its claims announce the page.
            let _exclusive = self.space.shared.defer_mutex.take().await;
            let firsts: Vec<u32> = firsts
                .into_iter()
                .filter(|first| !self.space.shared.is_in_doubt(row, column, *first))
                .collect();
            if firsts.is_empty() {
                continue;
            }
            let held = self.space.shared.tickets.begin();
            // What is in place with parity was flushed before its table said so, but for stripes in flight.
            let is_before = row.shape.covered() == Covered::Before;
            let in_flight =
                if is_before { Flusher::of(&self.space.shared).unflushed_of(row) } else { BTreeSet::new() };
            let covered = |block| match in_flight.contains(&(column, block)) {
                true => Covered::ByTheNextFlush,
                false => row.shape.covered(),
            };
            BlockLog::of(&self.space.shared)
                .record_blocks_again(row, (column, &firsts), covered, held.ticket())
                .await?;
            for first in firsts.into_iter().filter(|_| !is_before) {
                Flusher::of(&self.space.shared).note_unflushed(
                    held.ticket(),
                    row,
                    column,
                    Range { first, count: 1 },
                );
            }
        }
        Ok(())
    }

    /// Writes to one slab, if its disk is here; a disk that fails otherwise than for lack of room leaves.
    pub(crate) async fn write_to_slab(
        self,
        slab: &Slab,
        at: u64,
        content: dolmen_buffer::Shared,
    ) -> Result<(), SpaceError> {
        for piece in slab.pieces(at, content.len()) {
            let Some(disk) = slab.present(&self.space.shared.pool) else { return Ok(()) };
            let part = content.slice(piece.offset..piece.offset + piece.length);
            match disk.write(piece.at, part, Durability::Cached).await {
                Ok(()) => {}
                Err(DeviceError::NoSpace) => {
                    return Err(SpaceError::NoSpaceBelow { name: self.space.name() });
                }
                Err(_) => self.space.shared.pool.exclude(disk.slot(), ExcludeReason::MissedWrite).await?,
            }
        }
        Ok(())
    }

    /// The row when its refilled slabs are trusted.
    fn trusted(self, refilled: &Refilled, result: &mut Resynced) -> RowRecord {
        let row = &refilled.row;
        let mut record = row.record();
        for done in &refilled.slabs {
            // A slab whose disk left on the way, or that missed something else, is another one by now; and what it was given of
            // a stripe that is half in place is nothing.
            let disk = done.slab.present(&self.space.shared.pool);
            let stayed = disk.is_some_and(|disk| disk.seating() == done.seating);
            let is_good = stayed && !self.has_unfinished(row);
            let Some(slabs) = record.columns.get_mut(done.column).filter(|_| is_good) else {
                result.waiting += 1;
                continue;
            };
            for slab in slabs.iter_mut().filter(|slab| **slab == done.slab) {
                slab.stale = None;
                result.slabs += 1;
            }
        }
        record
    }

    /// Gives those columns that are meant and have a slab on `from` another one, stale, on `to`.
    pub(crate) async fn add_slab(
        self,
        row: &Rc<Row>,
        (from, to): (DiskSlot, DiskSlot),
        is_meant: impl Fn(usize) -> bool,
    ) -> Result<bool, SpaceError> {
        let pool = &self.space.shared.pool;
        // Nobody may be writing to a slab when its allocation units are given away.
        let is_full = row.record().columns.iter().any(|slabs| slabs.len() >= SLABS_MAX);
        let (_guard, _tables) = match is_full {
            true => {
                let whole = Range { first: 0, count: row.shape.row_blocks() };
                (Some(row.locks.lock(whole).await), Some(self.space.shared.table_mutex.take().await))
            }
            false => (None, None),
        };
        let mut change = pool.change(Purpose::Move).await;
        // A move that was called off leaves nothing behind what was looked at to move it back.
        let is_target = || pool.disk(to).is_some_and(|disk| disk.member().state == MemberState::Active);
        if row.freed.get() || !is_target() {
            return Ok(false);
        }
        let mut record = row.record();
        let mut added = Vec::new();
        let mut has_removed = false;
        for (column, slabs) in record.columns.iter_mut().enumerate() {
            let leaves = slabs.iter().any(|slab| slab.disk == from);
            if !leaves || !is_meant(column) || slabs.iter().any(|slab| slab.disk == to) {
                continue;
            }
            if slabs.len() >= SLABS_MAX {
                // A replacement that is replaced itself before it had everything makes room for the next.
                // If it became full just now, the next try does that.
                let is_useless = |slab: &Slab| is_full && slab.disk == from && slab.stale.is_some();
                let Some(at) = slabs.iter().position(is_useless) else { continue };
                let useless = slabs.remove(at);
                change.release(from, &useless.runs);
                has_removed = true;
            }
            let units = row.map(column).units();
            let claim = change.take(to, units)?;
            let slab = Slab { disk: to, runs: claim.runs, stale: Some(Epoch(0)) };
            added.push((column, slab.clone()));
            slabs.push(slab);
            change.put(keys::stale(to, row.id), Vec::new());
        }
        if added.is_empty() {
            return Ok(false);
        }
        let failed =
            TableRoom::of(&self.space.shared).take_table_room(self.space.id(), &row.shape, &added).await?;
        if !failed.is_empty() {
            drop(change);
            self.space.shared.pool.exclude(to, ExcludeReason::MissedWrite).await?;
            return Ok(false);
        }
        if has_removed && !record.is_stale_on(from) {
            change.delete(keys::stale(from, row.id));
        }
        change.put(keys::row(row.id), record.encode());
        change.commit().await?;
        row.adopt(record);
        Ok(true)
    }

    /// Drops the slab on `from` wherever the column has enough others here that hold everything, and tables that are read back where
    /// one slab alone will have them. Whether none is left there.
    pub(crate) async fn drop_slab(self, row: &Rc<Row>, from: DiskSlot) -> Result<bool, SpaceError> {
        for round in 1..=TABLE_ROUNDS_MAX {
            if self.is_stuck_on(row, from) && !row.freed.get() {
                return Ok(false);
            }
            // Clients and write-backs go on while tables are read. Where a write-back overtakes that again and again, they wait.
            let is_last = round == TABLE_ROUNDS_MAX;
            let early = if is_last { None } else { Some(self.look_at_tables(row, from).await) };
            // Nobody may be writing to the slab when its allocation units are given away; whoever reads it verifies what was read.
            let guard = row.locks.lock(Range { first: 0, count: row.shape.row_blocks() }).await;
            let tables = self.space.shared.table_mutex.take().await;
            let (seals, lacking) = match early {
                Some(looked) => looked,
                None => self.look_at_tables(row, from).await,
            };
            // Of a disk that does not answer nobody knows what it has.
            let Some(lacking) = lacking else { return Ok(false) };
            if lacking.is_empty() && seals == row.seals.get() {
                return self.drop_slab_with_mutexes(row, from).await;
            }
            drop((guard, tables));
            for (column, index) in &lacking {
                TableStore::of(&self.space.shared).verify_page(row, *column, *index).await?;
            }
            if !lacking.is_empty() {
                self.space.shared.pool.checkpoint().await?;
            }
        }
        Ok(false)
    }

    /// What tables a slab that is about to be alone lacks, as of so many write-backs of pages of the row; nothing where it does not
    /// answer.
    async fn look_at_tables(self, row: &Rc<Row>, from: DiskSlot) -> (u64, Option<Vec<(usize, usize)>>) {
        let seals = row.seals.get();
        match mutation!(SoleTableTrusted) {
            true => (seals, Some(Vec::new())),
            false => (seals, TableStore::of(&self.space.shared).tables_lacking_without(row, from).await),
        }
    }

    /// Whether a row has something on a disk, and no column can do without its slab there.
    pub(crate) fn is_stuck_on(self, row: &Row, from: DiskSlot) -> bool {
        let (copies, record) = (row.copies(), row.record());
        let mut there =
            record.columns.iter().filter(|slabs| slabs.iter().any(|slab| slab.disk == from)).peekable();
        there.peek().is_some() && !there.any(|slabs| self.other_copies(slabs, from) >= copies)
    }

    /// Slabs of a column that hold everything and are here, but for the one on a disk. A copy that has left since it was trusted may
    /// never come back. Those that go to one disk in the end are one.
    ///
    /// What is itself away gives nothing that others that are away do not give: beside one that is here, these count as well if they
    /// are about to leave too. Else two lost disks with copies of one column would each wait for the other.
    fn other_copies(self, slabs: &[Slab], from: DiskSlot) -> usize {
        let pool = &self.space.shared.pool;
        let counts = |slab: &Slab| match mutation!(DroppedUntrusted) {
            true => slab.present(pool).is_some(),
            false => slab.readable(pool).is_some(),
        };
        let is_away = |slab: &Slab| slab.present(pool).is_none();
        let others = || slabs.iter().filter(|slab| slab.disk != from);
        let is_lost = others().any(&counts) && slabs.iter().any(|slab| slab.disk == from && is_away(slab));
        let leaves = |slab: &Slab| {
            pool.disk(slab.disk).is_some_and(|disk| disk.member().state == MemberState::Retired)
        };
        let of_lost = |slab: &Slab| is_lost && is_away(slab) && leaves(slab) && !slab.has_nothing();
        let others = others().filter(|slab| counts(slab) || of_lost(slab));
        others.map(|slab| pool.members().destination(slab.disk)).collect::<BTreeSet<DiskSlot>>().len()
    }

    /// Drops what [`drop_slab`](Self::drop_slab) has looked at. The caller has the lock of all of the row, and the turn of tables.
    async fn drop_slab_with_mutexes(self, row: &Rc<Row>, from: DiskSlot) -> Result<bool, SpaceError> {
        let copies = row.copies();
        let pool = &self.space.shared.pool;
        let mut change = pool.change(Purpose::Release).await;
        if row.freed.get() {
            return Ok(true);
        }
        let mut record = row.record();
        let (mut changed, mut left) = (false, false);
        for slabs in &mut record.columns {
            let Some(at) = slabs.iter().position(|slab| slab.disk == from) else { continue };
            if self.other_copies(slabs, from) < copies {
                left = true;
                continue;
            }
            let slab = slabs.remove(at);
            change.release(slab.disk, &slab.runs);
            changed = true;
        }
        if changed {
            if !record.is_stale_on(from) {
                change.delete(keys::stale(from, row.id));
            }
            change.put(keys::row(row.id), record.encode());
            change.commit().await?;
            row.adopt(record);
        }
        Ok(!left)
    }

    /// Whether stripes of a row may be half in place.
    pub(crate) fn has_unfinished(self, row: &Row) -> bool {
        self.space
            .cache_of(row)
            .is_some_and(|cache| cache.unfinished.borrow().iter().any(|redo| redo.row.is_paired_with(row)))
    }
}

/// Commit of slabs that were filled: from then on they are trusted.
#[derive(Clone, Copy)]
pub(crate) struct SlabTrust<'a> {
    shared: &'a Shared,
}

impl<'a> SlabTrust<'a> {
    /// Returns the service for what the spaces of a pool share.
    pub(crate) fn of(shared: &'a Shared) -> Self {
        Self { shared }
    }
}

impl SlabTrust<'_> {
    /// Writes the tables of rows whose slabs were refilled, and commits that these hold everything.
    #[pooled]
    pub(crate) async fn trust_all(
        self,
        refilled: &[(Rc<SpaceRows>, Refilled)],
        result: &mut Resynced,
    ) -> Result<(), SpaceError> {
        if !mutation!(TrustBeforeFlush) {
            self.shared.pool.checkpoint().await?;
        }
        for (_, row) in refilled {
            let _tables = self.shared.table_mutex.take().await;
            if !row.row.freed.get() {
                // New slabs got theirs with what they hold.
                let is_refilled = |slab: &Slab| row.slabs.iter().any(|refilled| refilled.slab == *slab);
                HeaderStore::of(self.shared)
                    .write_headers(&row.row, |slab| !slab.has_nothing() && is_refilled(slab))
                    .await?;
            }
        }
        if !mutation!(TrustBeforeFlush) {
            self.shared.pool.flusher().flush_disks().await?;
        }
        let mut left = refilled.iter().peekable();
        while left.peek().is_some() {
            self.trust_some(&mut left, result).await?;
        }
        Ok(())
    }

    /// Commits of as many rows as one change takes that their refilled slabs hold everything. Their tables were written and
    /// flushed before.
    async fn trust_some<'a>(
        self,
        refilled: &mut impl Iterator<Item = &'a (Rc<SpaceRows>, Refilled)>,
        result: &mut Resynced,
    ) -> Result<(), SpaceError> {
        let mut change = self.shared.pool.change(Purpose::Release).await;
        let mut bytes = 0;
        while bytes < ROWS_BYTES_MAX
            && let Some((space, done)) = refilled.next()
        {
            let row = &done.row;
            if row.freed.get() {
                continue;
            }
            let record = SlabChanges::of(space).trusted(done, result);
            let value = record.encode();
            bytes += value.len() + (1 + done.slabs.len()) * size_of::<Key>();
            change.put(keys::row(row.id), value);
            for RefilledSlab { slab, .. } in &done.slabs {
                if !record.is_stale_on(slab.disk) {
                    change.delete(keys::stale(slab.disk, row.id));
                }
            }
            // Taken over before it is durable, and behind the look at the disks: a disk that leaves meanwhile is seen to lack what
            // is written from then on, and marked behind this. Taken over afterwards, nobody would have marked it in between.
            row.adopt(record);
        }
        change.commit().await?;
        Ok(())
    }
}
