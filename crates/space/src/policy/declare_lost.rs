//! A disk that is lost for good is declared lost: what it alone had is given up (docs/design/0025).
//!
//! Invariants:
//! - Nothing is given up that may be had from a disk that is here, or may come back.
//! - What takes the place of a lost slab is a disk whose every bit has rotted: nothing that stood there before is believed.
//!
//! Left to others: everything that the disk does not have alone (`removal`), and rebuilding what parity can give (`verify`).

use std::collections::BTreeSet;
use std::rc::Rc;

use dolmen_block_io::sync::join_all;
use dolmen_future_pool::pooled;
use dolmen_journal::Wait;
use dolmen_mutation::mutation;
use dolmen_pool::{Change, Claim, Disk, ExcludeReason, Pool, Purpose, keys};
use dolmen_units::{DiskSlot, Epoch, SpaceId};
use smallvec::SmallVec;

use crate::cache::block_discard::BlockDiscard;
use crate::format::error::SpaceError;
use crate::format::ids::{is_of_conversion_shadows, seen_as};
use crate::format::record::BlockState;
use crate::layout::Overwrites;
use crate::layout::shape::blocks_of_page;
use crate::policy::handles::{Members, Moves, Scrubs};
use crate::policy::slab_targets::SlabTargets;
use crate::policy::sole_copy::missing;
use crate::relocation::exchange::Exchanges;
use crate::resolution::resolver::Resolver;
use crate::resources::events::SpaceRange;
use crate::resources::hedge_delay::{HedgeDelay, is_silence};
use crate::resources::locks::{Range, joined};
use crate::resources::progress::Progress;
use crate::resources::tickets::Held;
use crate::row_io::copies::{RowCopies, matches_state};
use crate::row_io::flusher::Flusher;
use crate::row_io::header::HeaderStore;
use crate::row_io::room::TableRoom;
use crate::table::page::{Page, place_in_page};
use crate::table::pages::TableStore;
use crate::table::row::{Row, RowRecord, Slab};
use crate::table::space::SpaceRows;

/// How often a row is tried again whose new disk fails on the way.
const TRIES_MAX: u32 = 4;

/// The log keeps room for what is said of a row in so many pieces. More of them, as a disk leaves that lacks single blocks all over a row,
/// take a part of what it has for records that may not wait.
const PIECES_WITH_ROOM: u32 = 2048;

/// Blocks of which copies are looked for beside each other.
const READ_TOGETHER: usize = 16;

/// What was given up with disks that are declared lost.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DeclaredLost {
    /// Rows of which something was.
    pub rows: u64,
    /// What cannot be read any more, in the order of spaces and rows; of write caches, what belongs to spaces.
    pub lost: Vec<SpaceRange>,
    /// The spaces of rows that could not be given up, because no disk takes what has their place, or one that may have some of them does
    /// not answer.
    pub left: BTreeSet<SpaceId>,
    /// Whether it was stopped before it had seen everything.
    pub was_stopped: bool,
}

/// What came of a row.
enum Exchanged {
    /// It is gone, or can be had, or may be.
    Nothing,
    /// Slabs on other disks have the places of those that are lost.
    Lost,
    /// No disk takes them; or one that may have some does not answer.
    NoRoom,
    /// Something came between, or these disks, which were to take them, failed.
    Again(SmallVec<[DiskSlot; 2]>),
}

/// The columns of a row that are to be given up; none where they can be had, or may be.
fn columns_to_declare_lost(pool: &Pool, record: &RowRecord) -> Vec<usize> {
    let columns = missing(pool, record, |disk| pool.members().is_declared_lost(disk));
    let is_decodable = record.row_shape().decodable_without(columns.iter().copied());
    if is_decodable { Vec::new() } else { columns }
}

fn is_lost_with_its_disk(pool: &Pool, slab: &Slab) -> bool {
    pool.disk(slab.disk).is_some_and(|disk| !disk.is_present() && pool.members().is_declared_lost(&disk))
}

impl Members<'_> {
    /// Gives up what absent disks that are declared lost had and nobody else has, row by row; everything else is left to their
    /// removal. Held and stopped between rows.
    ///
    /// # Errors
    /// [`SpaceError`]; called again, it goes on.
    #[pooled]
    pub async fn declare_rows_lost(self, progress: &Progress) -> Result<DeclaredLost, SpaceError> {
        let mut declared_lost = DeclaredLost::default();
        self.spaces.pool().membership().take_back_returned().await?;
        // What was acknowledged and is out of reach is left in doubt by then, and nothing is on its way there.
        Flusher::of(&self.spaces.shared).force_flush().await?;
        Moves::of(self.spaces).end_what_has_begun().await?;
        for space in self.spaces.all() {
            let mut rows = Vec::new();
            space
                .for_each_record(|index, record| {
                    if !columns_to_declare_lost(self.spaces.pool(), record).is_empty() {
                        rows.push(index);
                    }
                })
                .await?;
            if is_of_conversion_shadows(space.id()) {
                // They are begun again, but not while the conversion is about to promote one.
                let owner = self.spaces.spaces.borrow().get(&seen_as(space.id())).cloned();
                let _conversion = match &owner {
                    Some(owner) => Some(owner.conversion_mutex.take().await),
                    None => None,
                };
                Exchanges::of(&space).free_rows(&rows).await?;
                continue;
            }
            progress.total.set(progress.total.get() + rows.len() as u64);
            for index in rows {
                if !progress.may_go_on(&self.spaces.shared.closing).await {
                    declared_lost.was_stopped = true;
                    return Ok(declared_lost);
                }
                match LostSlabs::of(&space).replace_lost_slabs(index).await? {
                    Exchanged::Nothing => {}
                    Exchanged::Lost => {
                        declared_lost.rows += 1;
                        match Scrubs::of(self.spaces)
                            .verify_declared_lost(&space, index, &mut declared_lost.lost)
                            .await
                        {
                            // What others that are away have of it is told when they are back.
                            Ok(()) | Err(SpaceError::Unreadable { .. }) => {}
                            Err(error) => return Err(error),
                        }
                    }
                    Exchanged::NoRoom | Exchanged::Again(_) => drop(declared_lost.left.insert(space.id())),
                }
                progress.done.set(progress.done.get() + 1);
            }
        }
        if declared_lost.rows > 0 {
            self.spaces.shared.pool.checkpoint().await?;
        }
        Ok(declared_lost)
    }
}

/// Slabs of a row that are lost with their disks.
#[derive(Clone, Copy)]
pub(crate) struct LostSlabs<'a> {
    space: &'a SpaceRows,
}

impl<'a> LostSlabs<'a> {
    /// Returns the service for a space.
    pub(crate) fn of(space: &'a SpaceRows) -> Self {
        Self { space }
    }
}

impl LostSlabs<'_> {
    /// Puts slabs on other disks in the places of those of a row that are lost with disks that are declared lost.
    async fn replace_lost_slabs(self, index: u64) -> Result<Exchanged, SpaceError> {
        for _ in 0..TRIES_MAX {
            match self.exchange_lost(index).await {
                Ok(Exchanged::Again(failed)) => {
                    for slot in failed {
                        self.space.shared.pool.exclude(slot, ExcludeReason::MissedWrite).await?;
                    }
                }
                Err(SpaceError::NoSpaceBelow { .. }) => return Ok(Exchanged::NoRoom),
                exchanged => return exchanged,
            }
        }
        Ok(Exchanged::NoRoom)
    }

    #[pooled]
    async fn exchange_lost(self, index: u64) -> Result<Exchanged, SpaceError> {
        let (shared, pool) = (&self.space.shared, &self.space.shared.pool);
        let again = || Ok(Exchanged::Again(SmallVec::new()));
        let Some(row) = self.space.in_doubt_row(index).await? else { return Ok(Exchanged::Nothing) };
        if columns_to_declare_lost(pool, &row.record()).is_empty() {
            return Ok(Exchanged::Nothing);
        }
        if !Flusher::of(shared).unflushed_of(&row).is_empty() {
            // What was acknowledged there is left in doubt, so that the next flush of a client tells of it.
            Flusher::of(shared).force_flush().await?;
        }
        Flusher::of(shared).gate().await?;
        // Who fills a slab begins with zeros where its tables are.
        let _filling = shared.refill_mutex.take().await;
        let _log_room = Flusher::of(shared).room_for(row.shape.row_blocks().min(PIECES_WITH_ROOM)).await?;
        let _write_back = shared.write_back_mutex.take().await;
        let _guard = row.locks.lock(Range { first: 0, count: row.shape.row_blocks() }).await;
        let columns = columns_to_declare_lost(pool, &row.record());
        let is_retiring = |(column, _): &(usize, u32)| columns.contains(column);
        if row.freed.get() || Flusher::of(shared).unflushed_of(&row).iter().any(is_retiring) {
            return again();
        }
        if columns.is_empty() {
            return Ok(Exchanged::Nothing);
        }
        let attachments = attachments_of(pool, &row);
        Resolver::of(shared).declare_in_doubt_lost(&row, &columns, self.logs_what_is_lost(&row)).await?;
        // Held until they are to be written again: of what is out of date they alone may know what it is.
        let pages = self.known_pages(&row, &columns).await?;
        let Some(lost) = self.lost_blocks(&row, &pages).await else { return again() };
        let _tables = shared.table_mutex.take().await;
        let mut change = pool.change(Purpose::Move).await;
        let mut record = row.record();
        // What was said and found before is of these disks. One that is back may have it all.
        let is_as_it_was = || {
            columns_to_declare_lost(pool, &row.record()) == columns
                && attachments_of(pool, &row) == attachments
        };
        if !is_as_it_was() {
            return again();
        }
        let Some(new) = take_places(pool, &mut change, (&row, &mut record), &columns)? else {
            return Ok(Exchanged::NoRoom);
        };
        let here = new.iter().filter_map(|(_, slab)| slab.present(pool));
        let disks: Vec<(Rc<Disk>, u64)> = here.map(|disk| (Rc::clone(&disk), disk.seating())).collect();
        let failed = self.make_ready(&row, &new, &disks).await?;
        let stayed = disks.iter().all(|(disk, seating)| disk.is_present() && disk.seating() == *seating);
        if !failed.is_empty() || !stayed || disks.len() < new.len() || !is_as_it_was() {
            return Ok(Exchanged::Again(failed));
        }
        change.put(keys::row(row.id), record.encode());
        // Nothing is said to be lost for a change that is refused.
        change.check_room()?;
        let relogged = self.log_lost(&row, &lost).await?;
        change.commit().await?;
        row.adopt(record);
        drop(relogged);
        self.have_tables_written(&row, &new);
        drop(pages);
        Ok(Exchanged::Lost)
    }

    /// Whether of a row that is given up it is said what is lost. Of one that has a write cache, or parity, it is not: what is written over
    /// there is never taken as it is found.
    fn logs_what_is_lost(self, row: &Row) -> bool {
        row.shape.overwrites() == Overwrites::InPlace
            && self.space.cache_of(row).is_none()
            && !mutation!(DeclaredLostUnlogged)
    }

    /// The pages of some columns of a row that can be had, with column and number.
    async fn known_pages(
        self,
        row: &Rc<Row>,
        columns: &[usize],
    ) -> Result<Vec<(usize, usize, Rc<Page>)>, SpaceError> {
        let mut pages = Vec::new();
        for column in columns {
            for index in 0..row.map(*column).pages() {
                match TableStore::of(&self.space.shared).page(row, *column, index).await {
                    Ok(page) => pages.push((*column, index, page)),
                    Err(SpaceError::Unreadable { .. }) => {}
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(pages)
    }

    /// The blocks of these pages of a row of which it is said that they are lost, but for those that nobody could decide; nothing where a
    /// disk does not answer that may have them.
    async fn lost_blocks(
        self,
        row: &Rc<Row>,
        pages: &[(usize, usize, Rc<Page>)],
    ) -> Option<Vec<(usize, Range)>> {
        let mut lost = Vec::new();
        if !self.logs_what_is_lost(row) {
            return Some(lost);
        }
        for (column, index, page) in pages {
            let is_valid = |block: &u32| {
                let state = page.state(place_in_page(*block).1);
                matches!(state, BlockState::Valid(_)) && !self.space.shared.is_in_doubt(row, *column, *block)
            };
            let blocks = blocks_of_page(&row.shape, *column, *index).filter(is_valid);
            let blocks = self.without_copies(row, (*column, page), blocks.collect()).await?;
            lost.extend(joined(blocks.into_iter()).into_iter().map(|run| (*column, run)));
        }
        Some(lost)
    }

    /// Those of some blocks of a page that no slab has which is here: one that was being filled when the only other one was lost has
    /// some, and so has one that is out of date. Nothing where one does not answer.
    #[pooled]
    async fn without_copies(
        self,
        row: &Rc<Row>,
        (column, page): (usize, &Page),
        blocks: Vec<u32>,
    ) -> Option<Vec<u32>> {
        let pool = &self.space.shared.pool;
        let is_here = row.with_slabs(column, |slabs| slabs.iter().any(|slab| slab.present(pool).is_some()));
        if !is_here || mutation!(PartFilledDropped) {
            return Some(blocks);
        }
        let mut lost = Vec::new();
        for some in blocks.chunks(READ_TOGETHER) {
            let looks = join_all(some.iter().map(|block| async move {
                let state = page.state(place_in_page(*block).1);
                let copies =
                    RowCopies::of(self.space).read_copies(row, column, *block, HedgeDelay::Long).await;
                let is_found =
                    copies.iter().any(|copy| copy.result.is_ok() && matches_state(&copy.bytes, state));
                let is_unresponsive = copies.iter().any(|copy| copy.result.is_err_and(is_silence));
                (is_found || !is_unresponsive).then_some(is_found)
            }));
            for (block, is_found) in some.iter().zip(looks.await) {
                if !is_found? {
                    lost.push(*block);
                }
            }
        }
        Some(lost)
    }

    /// Says of blocks of which the lost slabs had the only content that they are lost. Were they believed to be there, and power failed
    /// when they are written over, what lies in their place would be taken for a part of what was there, and is somebody else's. The
    /// ticket is to be held until the row has its new slabs: a flush that came between would find the blocks out of reach.
    #[pooled]
    async fn log_lost(self, row: &Rc<Row>, lost: &[(usize, Range)]) -> Result<Held, SpaceError> {
        let shared = &self.space.shared;
        let held = shared.tickets.begin();
        let stamp = shared.stamp();
        // What the log says behind it may be there without it, unless it is durable.
        BlockDiscard::of(self.space)
            .record_state(row, lost, (BlockState::Damaged, Wait::Durable), stamp)
            .await?;
        let now = shared.now(&held);
        for (column, run) in lost {
            for block in run.first..run.first + run.count {
                let (index, entry) = place_in_page(block);
                if let Some(page) = row.page(*column, index) {
                    page.set(entry, BlockState::Damaged, stamp, now);
                }
            }
            Flusher::of(shared).note_unflushed(held.ticket(), row, *column, *run);
        }
        shared.note_dirty(row);
        Ok(held)
    }

    /// Gives slabs that are about to be a row's tables that say nothing, and headers, durably; the disks that failed.
    async fn make_ready(
        self,
        row: &Row,
        new: &[(usize, Slab)],
        disks: &[(Rc<Disk>, u64)],
    ) -> Result<SmallVec<[DiskSlot; 2]>, SpaceError> {
        let is_meant = |_: &Disk| !mutation!(LostTablesKept);
        let mut failed = TableRoom::of(&self.space.shared)
            .write_zeros_to_tables(self.space.id(), &row.shape, new, is_meant)
            .await?;
        if row.is_formatted() {
            failed.extend(HeaderStore::of(&self.space.shared).write_headers_ahead(row, new).await);
        }
        for (disk, _) in disks {
            if disk.flush().await.is_err() {
                failed.push(disk.slot());
            }
        }
        Ok(failed)
    }

    /// Has all pages in memory that new slabs of a row are to have written to both of their slots there.
    fn have_tables_written(self, row: &Rc<Row>, new: &[(usize, Slab)]) {
        if !row.is_formatted() {
            return;
        }
        for (column, _) in new.iter().flat_map(|(holder, _)| row.tables_on(*holder)) {
            for index in 0..row.map(column).pages() {
                if let Some(page) = row.page(column, index) {
                    page.write_again(true);
                }
            }
        }
        self.space.shared.note_dirty(row);
    }
}

/// The disks of a row that are here, and since when.
fn attachments_of(pool: &Pool, row: &Row) -> BTreeSet<(DiskSlot, u64)> {
    let mut attachments = BTreeSet::new();
    row.for_each_slab(|_, slab| {
        attachments.extend(slab.present(pool).map(|disk| (slab.disk, disk.seating())))
    });
    attachments
}

/// Gives each of these columns of a row a slab that is to count as whole, in the place of a lost one if there is one: one that is here and
/// was claimed for that, or lacks what nobody has any more, or else another on a disk that has room. These slabs, with their columns; none
/// where there is no room.
fn take_places(
    pool: &Rc<Pool>,
    change: &mut Change<'_>,
    (row, record): (&Row, &mut RowRecord),
    columns: &[usize],
) -> Result<Option<Vec<(usize, Slab)>>, SpaceError> {
    let mut new = Vec::new();
    for column in columns {
        let Some(slabs) = record.columns.get_mut(*column) else { return Ok(None) };
        let is_lost = |slab: &Slab| is_lost_with_its_disk(pool, slab);
        let whole = slabs.iter().position(|slab| slab.stale.is_none() && is_lost(slab));
        // Or one that was claimed on a disk which is away, and never filled: nobody waits for it.
        let is_empty = |slab: &Slab| slab.has_nothing() && slab.present(pool).is_none();
        let old =
            whole.or_else(|| slabs.iter().position(is_lost)).or_else(|| slabs.iter().position(is_empty));
        let old = old.map(|at| slabs.remove(at));
        let is_here = |slab: &Slab| slab.present(pool).is_some();
        let claimed = slabs.iter().position(|slab| slab.has_nothing() && is_here(slab));
        let claimed = claimed.or_else(|| slabs.iter().position(is_here));
        let slab = match (claimed.map(|claimed| slabs.remove(claimed)), &old) {
            (Some(claimed), _) => Slab { stale: None, ..claimed },
            (None, Some(old)) => {
                let Some(claim) = claim_place(pool, change, record, *column, old.disk) else {
                    return Ok(None);
                };
                Slab { disk: claim.slot, runs: claim.runs, stale: None }
            }
            (None, None) => return Ok(None),
        };
        if let Some(old) = &old {
            change.release(old.disk, &old.runs);
        }
        let Some(slabs) = record.columns.get_mut(*column) else { return Ok(None) };
        for other in slabs.iter_mut().filter(|other| is_lost(other)) {
            // It is lost as well, has nothing that anybody waits for, and is left to those who empty its disk.
            other.stale = Some(Epoch(0));
            change.put(keys::stale(other.disk, row.id), Vec::new());
        }
        slabs.push(slab.clone());
        let changed = old.iter().map(|old| old.disk).chain([slab.disk]);
        for disk in changed.filter(|disk| !record.is_stale_on(*disk)) {
            change.delete(keys::stale(disk, row.id));
        }
        new.push((*column, slab));
    }
    Ok(Some(new))
}

/// Room for the slab of a column on a disk that has some.
fn claim_place(
    pool: &Pool,
    change: &mut Change<'_>,
    record: &RowRecord,
    column: usize,
    from: DiskSlot,
) -> Option<Claim> {
    let mut targets_for_slabs = SlabTargets::of(pool);
    loop {
        let to = targets_for_slabs.choose(pool, record, column, from)?;
        match change.take(to, record.shape.slab_map(column).units()) {
            Ok(claim) => return Some(claim),
            // Its free allocation units lie in too many pieces.
            Err(_) => targets_for_slabs.refuse(to),
        }
    }
}
