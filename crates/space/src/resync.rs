//! Resync: stale slabs get what they miss and are trusted again; and with the same means, slabs move to other disks.

use std::collections::BTreeSet;
use std::rc::Rc;

use dolmen_block_io::{DeviceError, Durability};
use dolmen_disk::MemberState;
use dolmen_planted::{Bug, is_planted};
use dolmen_pool::{ExcludeReason, Purpose, keys};
use dolmen_units::{BLOCK_BYTES, DiskSlot, Epoch};

use crate::error::{SpaceError, UnreadableReason};
use crate::layout::BLOCK;
use crate::locks::Range;
use crate::read::matches_state;
use crate::record::BlockState;
use crate::recovery::Covered;
use crate::row::{Row, SLABS_MAX, Slab};
use crate::shared::{IncidentKind, Shared, place_in_page};
use crate::space::Space;

/// Blocks that are copied or verified at once: a frame of 64 KiB.
pub(crate) const RUN_BLOCKS: u32 = 16;

/// Blocks that one resync gives up because the disks with the only copies cannot read them, at most.
const GIVEN_UP_MAX: u64 = 4096;
/// Blocks of a slab that are given up at once because the only copy of them cannot be read, at most: sectors have gone bad.
/// Where there are more, the disk or the way to it has a fault that may pass, and the slab waits.
const UNREADABLE_MAX: usize = 256;
/// The same in blocks of the slab: one of so many.
const UNREADABLE_SHARE: usize = 16;

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
    pub crowded: u64,
}

/// A row some of whose stale slabs have everything but their tables.
pub(crate) struct Refilled {
    pub(crate) row: Rc<Row>,
    slabs: Vec<RefilledSlab>,
}

struct RefilledSlab {
    column: usize,
    slab: Slab,
    /// Which seating of its disk got it all: one that left and came back may have lost it.
    seating: u64,
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
        if self.has_unfinished(&row) {
            // What its lines are is known when they are in place.
            result.waiting += 1;
            return Ok(None);
        }
        let mut stale = Vec::new();
        row.for_each_slab(|column, slab| {
            if slab.stale.is_some() {
                stale.push((column, slab.clone()));
            }
        });
        let mut slabs = Vec::new();
        for (column, slab) in stale {
            let pool = &self.shared.pool;
            let has_source = self.shared.is_in_reach(&row, column);
            let Some(disk) = slab.present(pool).filter(|_| has_source) else {
                result.waiting += 1;
                continue;
            };
            let seating = disk.seating();
            match self.fill_slab(&row, column, &slab, result).await {
                Ok(true) => slabs.push(RefilledSlab { column, slab, seating }),
                Ok(false) => result.waiting += 1,
                Err(SpaceError::NoSpaceBelow { .. }) => {
                    result.waiting += 1;
                    result.crowded += 1;
                }
                Err(error) => return Err(error),
            }
        }
        Ok((!slabs.is_empty()).then_some(Refilled { row, slabs }))
    }

    /// Whether lines of a row may be half in place.
    fn has_unfinished(&self, row: &Row) -> bool {
        let cache = self.cache.borrow();
        cache
            .as_ref()
            .is_some_and(|cache| cache.unfinished.borrow().iter().any(|redo| redo.row.is_beside(row)))
    }

    /// Gives one slab what it misses; whether that could be done now.
    async fn fill_slab(
        &self,
        row: &Rc<Row>,
        column: usize,
        slab: &Slab,
        result: &mut Resynced,
    ) -> Result<bool, SpaceError> {
        if slab.stale == Some(Epoch(0)) && !self.make_table_room(row, column, slab).await? {
            return Ok(false);
        }
        Refill { space: self, row, column, slab, result, unreadable: Vec::new() }.all().await
    }

    /// Takes the room for the tables of a slab that was claimed while its disk was absent; whether there is any.
    async fn make_table_room(&self, row: &Rc<Row>, column: usize, slab: &Slab) -> Result<bool, SpaceError> {
        // What a write-back has put there goes, and comes again before the slab is trusted.
        let _turn = self.shared.table_turn.take().await;
        if row.gone.get() {
            return Ok(true);
        }
        let failed = self.take_table_room(&row.shape, &[(column, slab.clone())]).await?;
        let has_all = failed.is_empty();
        for slot in failed {
            self.shared.pool.exclude(slot, ExcludeReason::MissedWrite).await?;
        }
        Ok(has_all)
    }

    /// Gives the slab the tables that it has a copy of, as they are on the others. The next generation goes to the other slot, so that both
    /// slots are sound when the slab is trusted; else, alone, it would not be believed.
    async fn pair_slots(&self, row: &Rc<Row>, column: usize, slab: &Slab) -> Result<(), SpaceError> {
        let places = row.tables_on(column).flat_map(|(column, place)| {
            (0..row.map(column).pages()).map(move |index| (column, place, index))
        });
        for (column, place, index) in places {
            let page = self.shared.page(row, column, index).await?;
            let _turn = self.shared.table_turn.take().await;
            if row.gone.get() {
                return Ok(());
            }
            // A page that no write-back has taken yet goes to every slab, this one too, with both slots. Whether the row's
            // tables count already does not matter: those that were written before this slab was there may count later.
            if !page.was_sealed() {
                continue;
            }
            let mut buffer = self.shared.pool.seams().metadata.take(BLOCK).await;
            let generation = page.copy_sealed(self.shared.page_name(row, column, index), 0, &mut buffer);
            self.write_to_slab(slab, row.page_at(place, index, generation), buffer.freeze()).await?;
        }
        Ok(())
    }

    /// All of the column's pages go to their next generation on every copy, the refilled one included. A record for one
    /// block of each announces that: recovery then knows that a slot may be half-written.
    async fn announce_pages(&self, row: &Rc<Row>, holder: usize) -> Result<(), SpaceError> {
        self.shared.gate().await?;
        for (column, _) in row.tables_on(holder) {
            let firsts = (0..row.map(column).pages()).map(|index| index * crate::format::PAGE_ENTRIES);
            let firsts: Vec<u32> = firsts.filter_map(|first| u32::try_from(first).ok()).collect();
            let locked = firsts.iter().map(|first| hull(row, column, Range { first: *first, count: 1 }));
            let _guard = row.locks.lock_all(&locked.collect::<Vec<_>>()).await;
            if row.gone.get() {
                return Ok(());
            }
            // What is being left undecided just now must not be called settled behind that; its claims announce the page.
            let _turn = self.shared.leave_turn.take().await;
            let firsts: Vec<u32> =
                firsts.into_iter().filter(|first| !self.shared.is_undecided(row, column, *first)).collect();
            if firsts.is_empty() {
                continue;
            }
            let held = self.shared.tickets.begin();
            // What is in place with parity was flushed before its table said so, but for lines in flight.
            let in_flight = if row.has_parity() { self.shared.unsettled_of(row) } else { BTreeSet::new() };
            let covered = |block| match row.has_parity() && !in_flight.contains(&(column, block)) {
                true => Covered::Before,
                false => Covered::ByTheNextFlush,
            };
            self.shared.record_blocks_again(row, (column, &firsts), covered, held.ticket()).await?;
            for first in firsts.into_iter().filter(|_| !row.has_parity()) {
                self.shared.note_unsettled(held.ticket(), row, column, Range { first, count: 1 });
            }
        }
        Ok(())
    }

    /// Blocks that all hold data, from one trusted copy that verifies; `None` when there is none, or a block holds none.
    async fn read_verified(
        &self,
        row: &Rc<Row>,
        column: usize,
        run: Range,
    ) -> Result<Option<dolmen_buffer::Shared>, SpaceError> {
        let states = self.states(row, column, run).await?;
        if !states.iter().all(|state| matches!(state, BlockState::Valid(_))) {
            return Ok(None);
        }
        let pool = &self.shared.pool;
        let length = run.count as usize * BLOCK;
        let sources: Vec<Slab> = row.with_slabs(column, <[Slab]>::to_vec);
        for source in sources {
            let (Some(disk), Some(buffer)) = (source.readable(pool), pool.seams().metadata.try_take(length))
            else {
                continue;
            };
            let pieces = source.pieces(u64::from(run.first) * BLOCK_BYTES, length);
            let Some(piece) = pieces.first().filter(|_| pieces.len() == 1) else { continue };
            let (buffer, read) = disk.read(piece.at, buffer).await;
            let good =
                buffer.chunks_exact(BLOCK).zip(&states).all(|(bytes, state)| matches_state(bytes, *state));
            if read.is_ok() && good {
                return Ok(Some(buffer.freeze()));
            }
        }
        Ok(None)
    }

    /// What the table says of blocks that follow each other.
    pub(crate) async fn states(
        &self,
        row: &Rc<Row>,
        column: usize,
        run: Range,
    ) -> Result<Vec<BlockState>, SpaceError> {
        let mut states = Vec::with_capacity(run.count as usize);
        for block in run.first..run.first + run.count {
            let (index, entry) = place_in_page(block);
            states.push(self.shared.page(row, column, index).await?.state(entry));
        }
        Ok(states)
    }

    /// Writes to one slab, if its disk is here; a disk that fails otherwise than for lack of room leaves.
    async fn write_to_slab(
        &self,
        slab: &Slab,
        at: u64,
        content: dolmen_buffer::Shared,
    ) -> Result<(), SpaceError> {
        for piece in slab.pieces(at, content.len()) {
            let Some(disk) = slab.present(&self.shared.pool) else { return Ok(()) };
            let part = content.slice(piece.offset..piece.offset + piece.length);
            match disk.write(piece.at, part, Durability::Cached).await {
                Ok(()) => {}
                Err(DeviceError::NoSpace) => return Err(SpaceError::NoSpaceBelow { name: self.name() }),
                Err(_) => self.shared.pool.exclude(disk.slot(), ExcludeReason::MissedWrite).await?,
            }
        }
        Ok(())
    }

    /// Commits that refilled slabs hold everything. Their tables were written and flushed before.
    async fn trust(&self, refilled: &Refilled, result: &mut Resynced) -> Result<(), SpaceError> {
        let row = &refilled.row;
        let mut change = self.shared.pool.change(Purpose::Release).await;
        if row.gone.get() {
            return Ok(());
        }
        let mut record = row.record();
        for done in &refilled.slabs {
            // A slab whose disk left on the way, or that missed something else, is another one by now; and what it was given of
            // a line that is half in place is nothing.
            let disk = done.slab.present(&self.shared.pool);
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
        change.put(keys::row(row.space, row.index), record.encode());
        for RefilledSlab { slab: done, .. } in &refilled.slabs {
            if !record.is_stale_on(done.disk) {
                change.delete(keys::stale(done.disk, row.space, row.index));
            }
        }
        // Taken over before it is durable, and behind the look at the disks: a disk that leaves meanwhile is seen to lack what is
        // written from then on, and marked behind this. Taken over afterwards, nobody would have marked it in between.
        row.adopt(record);
        change.commit().await?;
        Ok(())
    }

    /// Gives those columns that are meant and have a slab on `from` another one, stale, on `to`.
    pub(crate) async fn add_slab(
        &self,
        row: &Rc<Row>,
        (from, to): (DiskSlot, DiskSlot),
        is_meant: impl Fn(usize) -> bool,
    ) -> Result<bool, SpaceError> {
        let pool = &self.shared.pool;
        // Nobody may be writing to a slab when its grains are given away.
        let is_full = row.record().columns.iter().any(|slabs| slabs.len() >= SLABS_MAX);
        let (_guard, _tables) = match is_full {
            true => {
                let whole = Range { first: 0, count: row.shape.row_blocks() };
                (Some(row.locks.lock(whole).await), Some(self.shared.table_turn.take().await))
            }
            false => (None, None),
        };
        let mut change = pool.change(Purpose::Move).await;
        // A move that was called off leaves nothing behind what was looked at to move it back.
        let is_target = || pool.disk(to).is_some_and(|disk| disk.member().state == MemberState::Active);
        if row.gone.get() || !is_target() {
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
            let grains = row.map(column).grains();
            let claim = change.take(to, grains)?;
            let slab = Slab { disk: to, runs: claim.runs, stale: Some(Epoch(0)) };
            added.push((column, slab.clone()));
            slabs.push(slab);
            change.put(keys::stale(to, row.space, row.index), Vec::new());
        }
        if added.is_empty() {
            return Ok(false);
        }
        let failed = self.take_table_room(&row.shape, &added).await?;
        if !failed.is_empty() {
            drop(change);
            self.shared.pool.exclude(to, ExcludeReason::MissedWrite).await?;
            return Ok(false);
        }
        if has_removed && !record.is_stale_on(from) {
            change.delete(keys::stale(from, row.space, row.index));
        }
        change.put(keys::row(row.space, row.index), record.encode());
        change.commit().await?;
        row.adopt(record);
        Ok(true)
    }

    /// Drops the slab on `from` wherever the column has enough others here that hold everything. Whether none is left there.
    pub(crate) async fn drop_slab(&self, row: &Rc<Row>, from: DiskSlot) -> Result<bool, SpaceError> {
        // Nobody may be writing to the slab when its grains are given away; whoever reads it verifies what was read.
        let _guard = row.locks.lock(Range { first: 0, count: row.shape.row_blocks() }).await;
        let _tables = self.shared.table_turn.take().await;
        let copies = usize::from(self.spec().resiliency.copies());
        let pool = &self.shared.pool;
        let mut change = pool.change(Purpose::Release).await;
        if row.gone.get() {
            return Ok(true);
        }
        let mut record = row.record();
        let (mut changed, mut left) = (false, false);
        for slabs in &mut record.columns {
            let Some(at) = slabs.iter().position(|slab| slab.disk == from) else { continue };
            // A copy that has left since it was trusted may never come back. Those that go to one disk in the end are one.
            let counts = |slab: &Slab| match is_planted(Bug::GivenUpUntrusted) {
                true => slab.present(pool).is_some(),
                false => slab.readable(pool).is_some(),
            };
            let others = slabs.iter().filter(|slab| slab.disk != from && counts(slab));
            let others: BTreeSet<DiskSlot> = others.map(|slab| pool.destination(slab.disk)).collect();
            if others.len() < copies {
                left = true;
                continue;
            }
            let slab = slabs.remove(at);
            change.release(slab.disk, &slab.runs);
            changed = true;
        }
        if changed {
            if !record.is_stale_on(from) {
                change.delete(keys::stale(from, row.space, row.index));
            }
            change.put(keys::row(row.space, row.index), record.encode());
            change.commit().await?;
            row.adopt(record);
        }
        Ok(!left)
    }
}

/// A slab that is being given what it misses.
struct Refill<'a> {
    space: &'a Space,
    row: &'a Rc<Row>,
    column: usize,
    slab: &'a Slab,
    result: &'a mut Resynced,
    /// Blocks that are given up, by their place in the row, if there are not too many.
    unreadable: Vec<u32>,
}

impl Refill<'_> {
    async fn all(mut self) -> Result<bool, SpaceError> {
        let shared = &self.space.shared;
        // A write that chose its disks before this one was here goes on without it; what it leaves has to be seen below.
        shared.tickets.wait_below(shared.tickets.next()).await;
        if !self.lines_end().await {
            return Ok(false);
        }
        let since = self.slab.stale.unwrap_or_default();
        let mut run = Range { first: 0, count: 0 };
        for block in 0..self.row.shape.column_blocks(self.column) {
            let (index, entry) = place_in_page(block);
            let page = shared.page(self.row, self.column, index).await?;
            let stamp = page.stamp(entry);
            // A flush may have recorded the block again, meanwhile, under an epoch that is new since this began.
            let now = shared.pool.epoch().number;
            let skipped =
                is_planted(Bug::ResyncSkipsNewest) && stamp.is_since(Epoch(now.0.saturating_sub(2)), now);
            let missed =
                matches!(page.state(entry), BlockState::Valid(_)) && stamp.is_since(since, now) && !skipped;
            if !missed || run.count == RUN_BLOCKS {
                self.run(run).await?;
                run = Range { first: block, count: 0 };
            }
            if missed {
                run = if run.count == 0 { Range { first: block, count: 1 } } else { run };
                run.count = block - run.first + 1;
            }
        }
        self.run(run).await?;
        if self.space.has_unfinished(self.row) {
            // What was read beside them may be of no line that there is.
            return Ok(false);
        }
        self.result.lost_blocks += self.unreadable.len() as u64;
        self.result.unreadable += self.unreadable.len() as u64;
        if self.column < self.row.shape.data_columns() {
            self.unreadable.iter().for_each(|block| self.space.note(self.row, *block, IncidentKind::Lost));
        }
        self.space.pair_slots(self.row, self.column, self.slab).await?;
        self.space.announce_pages(self.row, self.column).await?;
        Ok(true)
    }

    /// Waits until lines that are being put in place are: they have chosen their slabs, and tell the tables at their end only.
    /// Whether none of the row was left half in place.
    async fn lines_end(&self) -> bool {
        let cache = self.space.cache.borrow().clone();
        if let Some(cache) = cache {
            drop(cache.turn.take().await);
        }
        !self.space.has_unfinished(self.row)
    }

    /// Copies blocks that follow each other, under their lock, from one verified copy; block by block where that fails.
    async fn run(&mut self, run: Range) -> Result<(), SpaceError> {
        if run.count == 0 {
            return Ok(());
        }
        let Self { space, row, column, .. } = *self;
        let _guard = row.locks.lock(hull(row, column, run)).await;
        if row.gone.get() {
            return Ok(());
        }
        let whole = space.read_verified(row, column, run).await?;
        let Some(content) = whole else {
            for block in run.first..run.first + run.count {
                self.block(block).await?;
            }
            return Ok(());
        };
        self.give(run, content).await
    }

    /// Copies one block from whichever copy verifies. The caller holds its lock.
    async fn block(&mut self, block: u32) -> Result<(), SpaceError> {
        let Self { space, row, column, .. } = *self;
        let row_block = row.shape.row_block(column, block);
        if space.is_superseded(row, row_block) {
            return Ok(());
        }
        let mut buffer = space.shared.pool.seams().metadata.take(BLOCK).await;
        let read = match row.has_parity() {
            true => space.read_in_place(row, column, block, &mut buffer).await,
            false => space.read_copied_block(row, row_block, &mut buffer).await,
        };
        match read {
            Ok(()) => self.give(Range { first: block, count: 1 }, buffer.freeze()).await,
            // What cannot be read is lost on this copy as well: nobody makes a checksum of unverified data.
            Err(SpaceError::Unreadable {
                why: UnreadableReason::NoGoodCopy | UnreadableReason::RottenHere | UnreadableReason::Damaged,
                ..
            }) => {
                // With what the row's heir has nothing is lost.
                self.result.lost_blocks += u64::from(space.is_at_home(row, block).await?);
                Ok(())
            }
            Err(SpaceError::Unreadable {
                why: UnreadableReason::Device(DeviceError::Medium { .. }), ..
            }) if self.may_give_up() => {
                self.unreadable.push(row_block);
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    fn may_give_up(&self) -> bool {
        let blocks = self.row.shape.column_blocks(self.column) as usize;
        self.unreadable.len() < (blocks / UNREADABLE_SHARE).clamp(1, UNREADABLE_MAX)
            && self.result.unreadable < GIVEN_UP_MAX
    }

    async fn give(&mut self, run: Range, content: dolmen_buffer::Shared) -> Result<(), SpaceError> {
        self.space.write_to_slab(self.slab, u64::from(run.first) * BLOCK_BYTES, content).await?;
        self.result.blocks += u64::from(run.count);
        self.space.shared.count(|counters| counters.resynced_blocks += u64::from(run.count));
        Ok(())
    }
}

/// The smallest range of a row that holds blocks of a column that follow each other; with parity, whatever shares it with them.
pub(crate) fn hull(row: &Row, column: usize, run: Range) -> Range {
    if row.shape.parity_columns() > 0 {
        return row.shape.stripes_of(run);
    }
    let first = row.shape.row_block(column, run.first);
    let last = row.shape.row_block(column, run.first + run.count.saturating_sub(1));
    Range { first, count: last - first + 1 }
}

impl Shared {
    /// Writes the tables of rows whose slabs were refilled, and commits that these hold everything.
    pub(crate) async fn trust_all(
        &self,
        refilled: &[(Rc<Space>, Refilled)],
        result: &mut Resynced,
    ) -> Result<(), SpaceError> {
        if !is_planted(Bug::TrustBeforeFlush) {
            self.pool.checkpoint().await?;
        }
        for (_, row) in refilled {
            let _tables = self.table_turn.take().await;
            if !row.row.gone.get() {
                let is_refilled = |slab: &Slab| row.slabs.iter().any(|refilled| refilled.slab == *slab);
                self.write_headers(&row.row, is_refilled).await?;
            }
        }
        if !is_planted(Bug::TrustBeforeFlush) {
            self.pool.flush_disks().await?;
        }
        for (space, row) in refilled {
            space.trust(row, result).await?;
        }
        Ok(())
    }

    /// Flushes although nobody may have written: recovery's decisions and heals.
    pub(crate) async fn force_flush(&self) -> Result<(), SpaceError> {
        // A ticket that ends at once makes the flush believe that there is something to cover.
        drop(self.tickets.begin());
        self.flush().await
    }
}
