//! Destage: what is in the write cache is put in place, whole stripes at a time (docs/design/0004).
//!
//! With parity:
//! 1. Under the lock of the stripes' stripes: every input is read and verified, new parity computed.
//! 2. Parity goes to the cache together with a *redo* record that names everything the stripes will be; a flush makes it durable.
//! 3. Data and parity are written in place and flushed; *done* is recorded, and what was cached ends.
//!
//! Copies need no more than 3: what lies in place counts for nothing while a flush has covered what is cached of it. Their redo
//! and *done* are one record.
//!
//! Invariants:
//! - Nothing is written in place before all that a stripe will be is durable in the cache.
//! - A stripe of parity whose writing did not end is finished, from the same content, before anything else is made of it.
//!
//! Left to others: the rows of the cache (`cache`), what a crash leaves (`replay`).

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use dolmen_block_io::{DeviceError, Durability};
use dolmen_buffer::{Scratch, Shared as Bytes_};
use dolmen_future_pool::pooled;
use dolmen_journal::Wait;
use dolmen_mutation::mutation;
use dolmen_pool::ExcludeReason;
use dolmen_units::{BLOCK_BYTES, DiskSlot, SpaceId};

use crate::cache::segments::CacheIndex;
use crate::format::error::SpaceError;
use crate::format::raw::RawRedo;
use crate::format::record::{
    BLOCK_STATED_BYTES, RECORD_BYTES_MAX, RedoHead, done as done_record, push_extent, push_redo,
};
use crate::layout::{BLOCK, Unit};
use crate::resources::locks::Range;
use crate::row_io::absence::RowRecords;
use crate::row_io::block_log::BlockLog;
use crate::row_io::flusher::RECORDED_BYTES;
use crate::table::page::place_in_page;
use crate::table::pages::TableStore;
use crate::table::redo::Redo;
use crate::table::row::{Row, Slab};
use crate::table::space::Cache;

/// Stripes that go to a disk as one piece, at most: a frame.
const PIECE_STRIPES: usize = 16;
/// Blocks of which a round says something in the log, at most, as many as a stripe has columns; each is named in a redo and in what
/// follows *done*, which take up to 60 bytes together.
pub(crate) const ROUND_BLOCKS: u32 = 128 * 14 * 60 / 48;
const _: () = assert!(RECORDED_BYTES == 48 && size_of::<RawRedo>() as u64 + BLOCK_STATED_BYTES <= 60);
/// Bytes of parity that one record brings, at most: a frame.
pub(crate) const REDO_BYTES_MAX: usize = 64 * 1024;

/// A redo with its content, by the place of its blocks; `None` where there is none to be written.
pub(crate) struct Prepared {
    pub(crate) redo: Redo,
    pub(crate) contents: Vec<Option<Bytes_>>,
}

/// Content on its way to its place: blocks of a column from a stripe on.
#[derive(Clone)]
struct Outgoing<'a> {
    row: &'a Rc<Row>,
    column: usize,
    stripe: u32,
    content: Bytes_,
}

impl Outgoing<'_> {
    /// Whether another block comes next in the same column.
    fn goes_on_with(&self, other: &Self) -> bool {
        self.row.id == other.row.id && self.column == other.column && self.stripe + 1 == other.stripe
    }
}

/// Destage of computed stripes: writes them in place and logs that.
#[derive(Clone, Copy)]
pub(crate) struct DestageWrites<'a> {
    cache: &'a Rc<Cache>,
}

impl<'a> DestageWrites<'a> {
    /// Returns the service for a write cache.
    pub(crate) fn of(cache: &'a Rc<Cache>) -> Self {
        Self { cache }
    }
}

impl DestageWrites<'_> {
    /// Writes stripes in place, flushes, and says so. Stripes of rows that lack too many columns for it are left to be finished.
    /// Whether any stripe was done. The caller holds their locks, and a flush has covered their records.
    ///
    /// # Errors
    /// [`SpaceError`]; all of them are left to be finished then: their records count, and any of it may be in place.
    pub(crate) async fn destage(self, prepared: Vec<Prepared>) -> Result<bool, SpaceError> {
        let put = self.write_main(&prepared).await;
        if put.is_err() {
            let is_left = |redo: &Redo| {
                self.cache.unfinished.borrow().iter().any(|other| other.is_of(&redo.row, redo.stripe))
            };
            let others = prepared.into_iter().map(|one| one.redo).filter(|redo| !is_left(redo));
            others.for_each(|redo| CacheIndex::of(self.cache).leave_unfinished(redo));
        }
        put
    }

    pub(crate) async fn write_main(self, prepared: &[Prepared]) -> Result<bool, SpaceError> {
        let (done, left) = self.put_out(prepared).await?;
        // Copies stay cached, which is all that they need.
        let of_parity = left.into_iter().filter(|redo| redo.row.shape.unit() == Unit::Stripe);
        of_parity.for_each(|redo| CacheIndex::of(self.cache).leave_unfinished(redo.clone()));
        Ok(done > 0)
    }

    /// Writes stripes in place, flushes, and says so; how many, and those that not enough of their disks have. The caller holds
    /// their locks.
    #[pooled]
    pub(crate) async fn put_out(self, prepared: &[Prepared]) -> Result<(usize, Vec<&Redo>), SpaceError> {
        let shared = self.cache.shared();
        let pool = &shared.pool;
        let mut rows: BTreeMap<(SpaceId, u64), Rc<Row>> = BTreeMap::new();
        for one in prepared {
            rows.insert((one.redo.row.space, one.redo.row.index), Rc::clone(&one.redo.row));
        }
        let rows: Vec<Rc<Row>> = rows.into_values().collect();
        RowRecords::of(shared).commit_absences_of(rows.iter()).await?;
        let attachments = pool.members().attachments();
        let mut writes = Vec::new();
        for Outgoing { row, column, stripe, content } in self.pieces_of(prepared) {
            row.with_slabs(column, |slabs| {
                for slab in slabs {
                    let Some(disk) = slab.present(pool) else { continue };
                    for piece in slab.pieces(u64::from(stripe) * BLOCK_BYTES, content.len()) {
                        let part = content.slice(piece.offset..piece.offset + piece.length);
                        writes.push((disk.slot(), disk.write(piece.at, part, Durability::Cached)));
                    }
                }
            });
        }
        // Disks that have no room are sound: what was to go to them stays cached, and waits for room.
        let (mut failed, mut backing_full) = (BTreeSet::new(), BTreeSet::new());
        for (slot, write) in writes {
            match write.await {
                Ok(()) => false,
                Err(DeviceError::NoSpace) => backing_full.insert(slot),
                Err(_) => failed.insert(slot),
            };
        }
        for slot in failed {
            pool.exclude(slot, ExcludeReason::MissedWrite).await?;
        }
        if rows.iter().any(|row| row.shape.unit() == Unit::Stripe) || !mutation!(CopiesNotFlushed) {
            pool.flusher().flush_disks().await?;
        }
        // One that left and came back may have lost what it was given.
        let mut stayed = pool.members().attachments();
        stayed.retain(|slot, seating| attachments.get(slot) == Some(seating));
        let stayed: BTreeSet<DiskSlot> = stayed.into_keys().collect();
        RowRecords::of(shared).commit_missed_pages(&rows, &stayed).await?;
        let is_held = |redo: &&Redo| {
            let row = &redo.row;
            redo.blocks.iter().all(|block| {
                let lacks_room = |slab: &Slab| backing_full.contains(&slab.disk);
                row.has_blocks_on(block.column, |slab| stayed.contains(&slab.disk))
                    && !row.with_slabs(block.column, |slabs| slabs.iter().any(lacks_room))
            })
        };
        self.cache.backing_full.borrow_mut().extend(backing_full.iter().copied());
        let redos: Vec<&Redo> = prepared.iter().map(|one| &one.redo).collect();
        if let Some(space) = redos
            .first()
            .filter(|_| !backing_full.is_empty())
            .and_then(|redo| self.cache.owner(redo.row.space))
        {
            *self.cache.lacks_room.borrow_mut() = Some(SpaceError::NoSpaceBelow { name: space.name() });
        }
        let (held, unfinished): (Vec<&Redo>, Vec<&Redo>) = redos.into_iter().partition(is_held);
        // What is left in doubt just now must not be called flushed behind that: of such rows nothing is done.
        let _exclusive = shared.defer_mutex.take().await;
        let (done, in_doubt): (Vec<&Redo>, Vec<&Redo>) =
            held.into_iter().partition(|redo| !shared.is_deferred(&redo.row));
        let unfinished = [unfinished, in_doubt].concat();
        tracing::debug!(lines = done.len(), unfinished = unfinished.len(), "put in place");
        self.log_destaged(&done).await?;
        Ok((done.len(), unfinished))
    }

    /// What goes to disks of these stripes. Stripes of a column that follow each other are one piece, where there is memory for it.
    fn pieces_of<'a>(self, prepared: &'a [Prepared]) -> Vec<Outgoing<'a>> {
        let blocks_of = |one: &'a Prepared| {
            let Redo { row, stripe, blocks, .. } = &one.redo;
            let contents = blocks.iter().zip(&one.contents);
            contents.filter_map(|(block, content)| {
                Some(Outgoing { row, column: block.column, stripe: *stripe, content: content.clone()? })
            })
        };
        let mut blocks: Vec<Outgoing<'a>> = prepared.iter().flat_map(blocks_of).collect();
        blocks.sort_by_key(|one| (one.row.space, one.row.index, one.column, one.stripe));
        let mut pieces = Vec::new();
        for run in blocks.chunk_by(Outgoing::goes_on_with).flat_map(|run| run.chunks(PIECE_STRIPES)) {
            let memory = match run {
                [_] => None,
                _ => self.cache.shared().pool.seams().metadata.try_take(run.len() * BLOCK),
            };
            match (memory, run) {
                (Some(mut memory), [first, ..]) => {
                    for (to, from) in memory.chunks_exact_mut(BLOCK).zip(run) {
                        to.copy_from_slice(&from.content);
                    }
                    pieces.push(Outgoing { content: memory.freeze(), ..*first });
                }
                _ => pieces.extend_from_slice(run),
            }
        }
        pieces
    }

    /// Says that stripes are in place, and ends what was cached of them. The caller holds the turn of what is left in doubt.
    #[pooled]
    async fn log_destaged(self, done: &[&Redo]) -> Result<(), SpaceError> {
        let shared = self.cache.shared();
        let held = shared.tickets.begin();
        let stamp = shared.stamp();
        let mut body = Scratch::new();
        let mut entries = Vec::new();
        for redo in done {
            for block in &redo.blocks {
                let (index, entry) = place_in_page(redo.stripe);
                let page = TableStore::of(shared).page(&redo.row, block.column, index).await?;
                let range = Range { first: redo.stripe, count: 1 };
                let mut extent = BlockLog::of(shared).extent(&redo.row, block.column, range, stamp);
                extent.covered = true;
                push_extent(&mut body, extent, &[block.state], page.durable_generation());
                entries.push((page, entry, block.state));
            }
            if redo.row.shape.unit() == Unit::Block {
                // It says which versions end.
                push_redo(&mut *body, RedoHead { covered: true, ..redo.head() }, &redo.blocks);
            }
            body.extend_from_slice(&done_record(redo.head()));
            if body.len() > RECORD_BYTES_MAX {
                BlockLog::of(shared).record(&body, Wait::Written).await?;
                body.clear();
            }
        }
        if !body.is_empty() {
            BlockLog::of(shared).record(&body, Wait::Written).await?;
        }
        let now = shared.now(&held);
        entries.iter().for_each(|(page, entry, state)| page.set_destaged(*entry, *state, stamp, now));
        for redo in done {
            if !redo.ends.is_empty() {
                self.cache.destaged.add(CacheIndex::of(self.cache).now(), redo.content_bytes());
            }
            shared.note_dirty(&redo.row);
            for (block, since) in &redo.ends {
                CacheIndex::of(self.cache).forget(&redo.row.mappings.end(*block, *since));
            }
            CacheIndex::of(self.cache).forget_redo(redo);
            CacheIndex::of(self.cache).forget_if_empty(&redo.row);
        }
        Ok(())
    }
}

/// Returns stripes of a row as ranges in ascending order that do not touch.
pub(crate) fn stripes(row: &Row, lines: &BTreeSet<u32>) -> Vec<Range> {
    let mut ranges: Vec<Range> = Vec::new();
    for stripe in lines {
        let range = row.shape.stripes_of(Range { first: *stripe, count: 1 });
        match ranges.last_mut().filter(|last| last.first + last.count >= range.first) {
            Some(last) => last.count = last.count.max(range.first + range.count - last.first),
            None => ranges.push(range),
        }
    }
    ranges
}
