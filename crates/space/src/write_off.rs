//! A disk that is lost for good is written off: what it alone had is given up (docs/design/0025).
//!
//! Invariants:
//! - Nothing is given up that may be had from a disk that is here, or may come back.
//! - What takes the place of a lost slab is a disk whose every bit has rotted: nothing that stood there before is believed.
//!
//! Left to others: everything that the disk does not have alone (`removal`), and rebuilding what parity can give (`verify`).

use std::collections::BTreeSet;
use std::rc::Rc;

use dolmen_journal::Wait;
use dolmen_planted::{Bug, is_planted};
use dolmen_pool::{Change, Claim, Disk, ExcludeReason, Pool, Purpose, keys};
use dolmen_units::{DiskSlot, Epoch, SpaceId};
use smallvec::SmallVec;

use crate::cache::is_of_drafts;
use crate::error::SpaceError;
use crate::format::PAGE_ENTRIES;
use crate::homes::Homes;
use crate::locks::Range;
use crate::only::missing;
use crate::progress::Progress;
use crate::record::BlockState;
use crate::row::{Row, RowRecord, Slab};
use crate::shared::{joined, place_in_page, push_stretch};
use crate::space::Space;
use crate::spaces::Spaces;
use crate::table::Page;
use crate::verify::SpaceRange;

/// Stretches of blocks in a record: a record has room for some thousand.
const STRETCHES_AT_ONCE: usize = 1000;

/// How often a row is tried again whose new disk fails on the way.
const TRIES_MAX: u32 = 4;

/// What was given up with disks that are written off.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct GivenUp {
    /// Rows of which something was.
    pub rows: u64,
    /// What cannot be read any more, in the order of spaces and rows; of write caches, what belongs to spaces.
    pub lost: Vec<SpaceRange>,
    /// The spaces of rows that could not be given up, because no disk takes what has their place.
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
    /// No disk takes them.
    NoRoom,
    /// Something came between, or these disks, which were to take them, failed.
    Again(SmallVec<[DiskSlot; 2]>),
}

/// The columns of a row that are to be given up; none where they can be had, or may be.
fn columns_to_give_up(pool: &Pool, record: &RowRecord) -> Vec<usize> {
    let columns = missing(pool, record, |disk| pool.is_written_off(disk));
    if columns.len() > record.shape.parity_columns() { columns } else { Vec::new() }
}

fn is_lost_with_its_disk(pool: &Pool, slab: &Slab) -> bool {
    pool.disk(slab.disk).is_some_and(|disk| !disk.is_present() && pool.is_written_off(&disk))
}

impl Spaces {
    /// Gives up what absent disks that are written off had and nobody else has, row by row; everything else is left to their
    /// removal. Held and stopped between rows.
    ///
    /// # Errors
    /// [`SpaceError`]; called again, it goes on.
    pub async fn give_up_written_off(&self, progress: &Progress) -> Result<GivenUp, SpaceError> {
        let mut given_up = GivenUp::default();
        self.pool().take_back_returned().await?;
        // What was acknowledged and is out of reach is left undecided by then, and nothing is on its way there.
        self.shared.force_flush().await?;
        self.end_what_has_begun().await?;
        for space in self.all() {
            let mut rows = Vec::new();
            space
                .for_each_record(|index, record| {
                    if !columns_to_give_up(self.pool(), record).is_empty() {
                        rows.push(index);
                    }
                })
                .await?;
            if is_of_drafts(space.id()) {
                // They are begun anew.
                space.free_rows(&rows).await?;
                continue;
            }
            progress.total.set(progress.total.get() + rows.len() as u64);
            for index in rows {
                if !progress.may_go_on(&self.shared.closing).await {
                    given_up.was_stopped = true;
                    return Ok(given_up);
                }
                match space.give_up_lost(index).await? {
                    Exchanged::Nothing => {}
                    Exchanged::Lost => {
                        given_up.rows += 1;
                        match self.verify_given_up(&space, index, &mut given_up.lost).await {
                            // What others that are away have of it is told when they are back.
                            Ok(()) | Err(SpaceError::Unreadable { .. }) => {}
                            Err(error) => return Err(error),
                        }
                    }
                    Exchanged::NoRoom | Exchanged::Again(_) => drop(given_up.left.insert(space.id())),
                }
                progress.done.set(progress.done.get() + 1);
            }
        }
        if given_up.rows > 0 {
            self.shared.pool.checkpoint().await?;
        }
        Ok(given_up)
    }
}

impl Space {
    /// Puts slabs on other disks in the places of those of a row that are lost with disks that are written off.
    async fn give_up_lost(&self, index: u64) -> Result<Exchanged, SpaceError> {
        for _ in 0..TRIES_MAX {
            match self.exchange_lost(index).await {
                Ok(Exchanged::Again(failed)) => {
                    for slot in failed {
                        self.shared.pool.exclude(slot, ExcludeReason::MissedWrite).await?;
                    }
                }
                Err(SpaceError::NoSpaceBelow { .. }) => return Ok(Exchanged::NoRoom),
                exchanged => return exchanged,
            }
        }
        Ok(Exchanged::NoRoom)
    }

    async fn exchange_lost(&self, index: u64) -> Result<Exchanged, SpaceError> {
        let (shared, pool) = (&self.shared, &self.shared.pool);
        let again = || Ok(Exchanged::Again(SmallVec::new()));
        shared.gate().await?;
        // Who fills a slab begins with zeros where its tables are.
        let _filling = shared.refill_turn.take().await;
        let _write_back = shared.write_back_turn.take().await;
        let Some(row) = self.undecided_row(index).await? else { return Ok(Exchanged::Nothing) };
        let _guard = row.locks.lock(Range { first: 0, count: row.shape.row_blocks() }).await;
        if row.gone.get() {
            return again();
        }
        let columns = columns_to_give_up(pool, &row.record());
        if columns.is_empty() {
            return Ok(Exchanged::Nothing);
        }
        shared.withdraw_intents(&row, &columns).await?;
        // Held, so that they stay in memory: whoever reads one may want the turn below.
        let pages = self.pages_that_are_here(&row, &columns).await?;
        let _tables = shared.table_turn.take().await;
        let mut change = pool.change(Purpose::Move).await;
        let mut record = row.record();
        if columns_to_give_up(pool, &record) != columns {
            // What was said before is not of these.
            return again();
        }
        let Some(new) = take_places(pool, &mut change, (&row, &mut record), &columns)? else {
            return Ok(Exchanged::NoRoom);
        };
        let here = new.iter().filter_map(|(_, slab)| slab.present(pool));
        let disks: Vec<(Rc<Disk>, u64)> = here.map(|disk| (Rc::clone(&disk), disk.seating())).collect();
        let failed = self.make_ready(&row, &new, &disks).await?;
        let stayed = disks.iter().all(|(disk, seating)| disk.is_present() && disk.seating() == *seating);
        // One that is back may have it all.
        let is_lost_still = columns_to_give_up(pool, &row.record()) == columns;
        if !failed.is_empty() || !stayed || disks.len() < new.len() || !is_lost_still {
            return Ok(Exchanged::Again(failed));
        }
        if !is_planted(Bug::WrittenOffUnsaid) {
            self.say_lost(&row, &record, &new, &pages).await?;
        }
        change.put(keys::row(row.space, row.index), record.encode());
        change.commit().await?;
        row.adopt(record);
        self.have_tables_written(&row, &new);
        Ok(Exchanged::Lost)
    }

    /// The pages of some columns of a row that can be had; none of a row that has a write cache, or parity: what is written over there is
    /// never taken as it is found.
    async fn pages_that_are_here(
        &self,
        row: &Rc<Row>,
        columns: &[usize],
    ) -> Result<Vec<(usize, usize, Rc<Page>)>, SpaceError> {
        let mut pages = Vec::new();
        if row.has_parity() || self.cache_of(row).is_some() {
            return Ok(pages);
        }
        for column in columns {
            for index in 0..row.map(*column).pages() {
                match self.shared.page(row, *column, index).await {
                    Ok(page) => pages.push((*column, index, page)),
                    Err(SpaceError::Unreadable { .. }) => {}
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(pages)
    }

    /// Says of every block of which the lost slabs had the only content that it is lost. Were it believed to be there, and power failed
    /// when it is written over, what lies in its place would be taken for a part of what was there, and is somebody else's.
    async fn say_lost(
        &self,
        row: &Rc<Row>,
        record: &RowRecord,
        new: &[(usize, Slab)],
        pages: &[(usize, usize, Rc<Page>)],
    ) -> Result<(), SpaceError> {
        let (shared, before) = (&self.shared, row.record());
        let is_lost = |slab: &Slab| is_lost_with_its_disk(&shared.pool, slab);
        // An older slab that is here may have some of it.
        let was_there = |column: usize, slab: &Slab| {
            let slabs = before.columns.get(column).into_iter().flatten();
            slabs.filter(|other| other.disk == slab.disk && !other.has_nothing()).count() > 0
        };
        let has_nothing_else = |column: usize| {
            let slab = new.iter().find(|(of, _)| *of == column).map(|(_, slab)| slab);
            let slabs = record.columns.get(column).into_iter().flatten();
            slab.is_some_and(|slab| {
                !was_there(column, slab)
                    && slabs.into_iter().all(|other| other.disk == slab.disk || is_lost(other))
            })
        };
        let held = shared.tickets.begin();
        let stamp = shared.stamp();
        let mut lost = Vec::new();
        for (column, index, page) in pages.iter().filter(|(column, ..)| has_nothing_else(*column)) {
            let block_of = |entry: usize| u32::try_from(entry).unwrap_or(u32::MAX);
            let first = block_of(index * PAGE_ENTRIES);
            let end = row.shape.column_blocks(*column).min(block_of((index + 1) * PAGE_ENTRIES));
            let is_valid = |block: &u32| {
                let is_open = shared.is_undecided(row, *column, *block);
                !is_open && matches!(page.state(place_in_page(*block).1), BlockState::Valid(_))
            };
            let blocks: Vec<u32> = (first..end).filter(is_valid).collect();
            lost.extend(joined(blocks.into_iter()).into_iter().map(|run| (*column, run, page)));
        }
        for some in lost.chunks(STRETCHES_AT_ONCE) {
            let mut body: SmallVec<[u8; 256]> = SmallVec::new();
            for (column, run, page) in some {
                let stretch = shared.stretch(row, *column, *run, stamp);
                push_stretch(&mut body, stretch, &[BlockState::Damaged], page.durable_generation());
            }
            shared.record(&body, Wait::Written).await?;
        }
        let now = shared.now(&held);
        for (column, run, page) in lost {
            for block in run.first..run.first + run.count {
                page.set(place_in_page(block).1, BlockState::Damaged, stamp, now);
            }
            shared.note_unsettled(held.ticket(), row, column, run);
        }
        shared.note_dirty(row);
        Ok(())
    }

    /// Gives slabs that are about to be a row's tables that say nothing, and headers, durably; the disks that failed.
    async fn make_ready(
        &self,
        row: &Row,
        new: &[(usize, Slab)],
        disks: &[(Rc<Disk>, u64)],
    ) -> Result<SmallVec<[DiskSlot; 2]>, SpaceError> {
        let is_meant = |_: &Disk| !is_planted(Bug::WrittenOffTablesKept);
        let mut failed = self.write_zeros_to_tables(&row.shape, new, is_meant).await?;
        if row.is_formatted() {
            failed.extend(self.shared.write_headers_ahead(row, new).await);
        }
        for (disk, _) in disks {
            if disk.flush().await.is_err() {
                failed.push(disk.slot());
            }
        }
        Ok(failed)
    }

    /// Has all pages in memory that new slabs of a row are to have written to both of their slots there.
    fn have_tables_written(&self, row: &Rc<Row>, new: &[(usize, Slab)]) {
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
        self.shared.note_dirty(row);
    }
}

/// Gives each of these columns of a row a slab in the place of a lost one: one that was claimed for that and holds nothing, or that lacks
/// what only the lost one had, or else another on a disk that has room. The new slabs, with their columns; none where there is no room.
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
        let Some(at) = whole.or_else(|| slabs.iter().position(is_lost)) else { return Ok(None) };
        let old = slabs.remove(at);
        let is_here = |slab: &Slab| slab.present(pool).is_some();
        let claimed = slabs.iter().position(|slab| slab.has_nothing() && is_here(slab));
        let claimed = claimed.or_else(|| slabs.iter().position(is_here));
        let slab = match claimed.map(|claimed| slabs.remove(claimed)) {
            Some(claimed) => Slab { stale: None, ..claimed },
            None => {
                let Some(claim) = claim_place(pool, change, record, *column, old.disk) else {
                    return Ok(None);
                };
                Slab { disk: claim.slot, runs: claim.runs, stale: None }
            }
        };
        change.release(old.disk, &old.runs);
        let Some(slabs) = record.columns.get_mut(*column) else { return Ok(None) };
        for other in slabs.iter_mut().filter(|other| other.stale.is_none()) {
            // It is lost as well, has nothing of what is written from now on, and is left to those who empty its disk.
            other.stale = Some(Epoch(0));
            change.put(keys::stale(other.disk, row.space, row.index), Vec::new());
        }
        slabs.push(slab.clone());
        for disk in [old.disk, slab.disk].into_iter().filter(|disk| !record.is_stale_on(*disk)) {
            change.delete(keys::stale(disk, row.space, row.index));
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
    let mut homes = Homes::of(pool);
    loop {
        let to = homes.choose(pool, record, column, from)?;
        match change.take(to, record.shape.slab_map(column).grains()) {
            Ok(claim) => return Some(claim),
            // Its free grains lie in too many pieces.
            Err(_) => homes.refuse(to),
        }
    }
}
