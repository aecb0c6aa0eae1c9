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

use dolmen_block_io::sync::join_all;
use dolmen_block_io::{DeviceError, Durability, Instant};
use dolmen_buffer::{Buffer, Scratch, Shared as Bytes_};
use dolmen_causes::in_one_line;
use dolmen_checksum::crc32c;
use dolmen_erasure::Change;
use dolmen_future_pool::pooled;
use dolmen_journal::Wait;
use dolmen_mutation::mutation;
use dolmen_pool::ExcludeReason;
use dolmen_units::{BLOCK_BYTES, DiskSlot, Lsn, SpaceId};
use smallvec::SmallVec;

use crate::cache::cached_read::CachedRead;
use crate::cache::redo::Redo;
use crate::cache::space::{Cache, Space};
use crate::cache::stripe_read::{Found, StripeStates};
use crate::cache::write_cache::{BlocksOfRows, Filling};
use crate::format::error::SpaceError;
use crate::format::record::{
    BlockState, Place, RECORD_BYTES_MAX, RedoBlock, RedoHead, done as done_record, push_extent, push_redo,
};
use crate::layout::{BLOCK, Unit};
use crate::resources::hedge_delay::HedgeDelay;
use crate::resources::locks::{Range, RangeGuard};
use crate::table::mapping::{Content, Version};
use crate::table::page::place_in_page;
use crate::table::row::{Row, Slab};

/// Stripes that are put in place between two flushes, at most.
const STRIPES_MAX: usize = 128;
/// Stripes that go to a disk as one piece, at most: a frame.
const PIECE_STRIPES: usize = 16;
/// Blocks of which a round says something in the log, at most, as many as a stripe has columns; each is named in a redo and in what
/// follows *done*, which take up to 80 bytes together.
pub(crate) const ROUND_BLOCKS: u32 = 128 * 14 * 80 / 64;
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

/// A block of the stripe that is cached.
struct Dirty {
    column: usize,
    block: u32,
    version: Version,
    content: Option<Buffer>,
    is_lost: bool,
}

impl Cache {
    /// Puts in place until nothing has to be; or until enough was for now, and until when it was.
    #[pooled]
    pub(crate) async fn empty(&self) -> Option<Instant> {
        loop {
            let has_promised = self.has_promised();
            let (began, before) = (self.now(), self.destaged.total());
            self.tries.set(self.tries.get() + 1);
            let stuck = match self.round().await {
                Ok(true) => None,
                Ok(false) => Some(SpaceError::CacheFull { name: self.space().name() }),
                Err(error) => Some(error),
            };
            let is_stuck = stuck.is_some();
            if is_stuck && has_promised {
                if !self.has_promised() {
                    // What they have written meanwhile may be put in place.
                    continue;
                }
                // They ring when they are done, and then it is tried again.
                self.waits_for_others.set(true);
                break;
            }
            if let Some(error) = &stuck {
                tracing::warn!(pool = %self.shared().pool.name(), error = %in_one_line(error), "the write cache cannot be emptied now");
            }
            *self.stuck.borrow_mut() = stuck.map(|error| (self.tries.get(), error));
            self.notify.notify_all();
            // Whoever waits looks first whether it has room now, and asks again if not.
            if is_stuck || !self.is_congested() {
                break;
            }
            let pause = self.pause_after(began, self.destaged.total() - before);
            if pause.is_some() {
                return pause;
            }
        }
        self.is_running.set(false);
        None
    }

    /// Puts everything in place that can be.
    ///
    /// # Errors
    /// What stands in the way.
    pub(crate) async fn empty_all(&self) -> Result<(), SpaceError> {
        if !mutation!(CopiesBeforeFlush) {
            self.shared().force_flush().await?;
        }
        self.close(Filling::Writes);
        while self.round().await? {
            self.close(Filling::Writes);
        }
        Ok(())
    }

    /// Puts some stripes in place, or gets rows of the cache ready to be filled again; whether anything came of it.
    #[pooled]
    pub(crate) async fn round(&self) -> Result<bool, SpaceError> {
        let wants_copies = self.waits_for_copies.take() || !self.unfinished.borrow().is_empty();
        let has_brought = wants_copies && self.bring_rows(usize::MAX).await?;
        // Before the turn, which the checkpoint takes that makes room.
        let _log_room = self.shared().room_for(ROUND_BLOCKS).await?;
        let _exclusive = self.mutex.take().await;
        self.backing_full.borrow_mut().clear();
        self.lacks_room.borrow_mut().take();
        let mut has_done = self.recycle().await? || has_brought;
        if !self.unfinished.borrow().is_empty() {
            has_done |= self.make_ready().await?;
        }
        // Stripes that wait, for disks or for room, keep nothing else back.
        let waits = match self.finish_stripes().await {
            Ok(done) => {
                has_done |= done;
                None
            }
            Err(error) if error.may_pass() => Some(error),
            Err(error) => return Err(error),
        };
        has_done |= self.destage_some(has_done).await?;
        // The next round brings them.
        has_done |= self.waits_for_copies.get();
        if !has_done && self.has_recyclable() {
            // What was abandoned is not covered yet, then its discard.
            self.shared().force_flush().await?;
            has_done = self.recycle().await?;
            self.shared().force_flush().await?;
            has_done |= self.recycle().await?;
        }
        match waits.or(self.lacks_room.take()) {
            Some(error) if !has_done => Err(error),
            _ => Ok(has_done),
        }
    }

    /// Puts stripes in place: of the oldest row of the cache of which any can be; else of the row that is being filled with parity,
    /// and of that of writes, if room is wanted; else of those that were only discarded. What is in one row may wait for disks, and the rest not. Whether any was.
    #[pooled]
    async fn destage_some(&self, has_freed: bool) -> Result<bool, SpaceError> {
        for _ in 0..self.full_count() {
            let Some(oldest) = self.oldest() else { break };
            if self.destage_blocks(self.blocks_in(oldest), Some(oldest)).await? {
                return Ok(true);
            }
            self.pass_over(oldest);
        }
        // It may have been closed before, with what clients wrote in it.
        let of_parity = self.open_for(Filling::Parity).get().map(|at| self.blocks_in(at));
        if self.destage_blocks(of_parity.unwrap_or_default(), None).await? {
            return Ok(true);
        }
        let wants_open = !has_freed && (self.has_waiting() || self.is_congested_by_open());
        if wants_open && self.close(Filling::Writes) && self.destage_blocks(self.newest(), None).await? {
            return Ok(true);
        }
        self.destage_blocks(self.discarded(), None).await
    }

    /// Puts some of these blocks in place with their stripes; whether any was. Stripes that wait keep none behind them back. `row`
    /// is that of the cache which holds all of them, if one does.
    #[pooled]
    pub(crate) async fn destage_blocks(
        &self,
        mut blocks: BlocksOfRows,
        row: Option<usize>,
    ) -> Result<bool, SpaceError> {
        loop {
            let lines = self.choose(&blocks);
            if lines.is_empty() {
                return Ok(false);
            }
            for (row, tried) in &lines {
                let of_row = blocks.get_mut(&(row.space, row.index));
                let is_left = |block: &u32| !tried.contains(&row.shape.locate(*block).block);
                of_row.into_iter().for_each(|(_, blocks)| blocks.retain(is_left));
            }
            let has_freed = self.make_ready().await?;
            if let Some(at) = row {
                self.read_ahead(at).await;
            }
            if self.destage_all(lines).await? || has_freed {
                return Ok(true);
            }
        }
    }

    /// The stripes of these blocks, by row, as many as there is memory for; but for rows that lack more columns than they have
    /// parity, or lie on disks that have found no room below.
    fn choose(&self, blocks: &BlocksOfRows) -> Vec<(Rc<Row>, BTreeSet<u32>)> {
        let arena = &self.shared().pool.seams().metadata;
        let stripes_max =
            STRIPES_MAX.min(self.stripes_of_record() * (arena.frame_count(REDO_BYTES_MAX) / 8).max(1));
        let widest = blocks.values().map(|(row, _)| row.shape.columns()).max().unwrap_or(0);
        let all = self.shared().lines.all();
        let (mut count, mut frames) = (0, 0);
        let mut chosen = Vec::new();
        let backing_full = self.backing_full.borrow();
        // What found no room below is not tried again in this round: each try of parity takes room of the cache.
        let is_here = |row: &Row| {
            let lacks_room = |slab: &Slab| backing_full.contains(&slab.disk);
            (0..row.shape.columns()).all(|column| {
                self.shared().is_in_reach(row, column)
                    && !row.with_slabs(column, |slabs| slabs.iter().any(lacks_room))
            })
        };
        for (row, blocks) in blocks.values().filter(|(row, _)| is_here(row)) {
            let unfinished = self.unfinished.borrow();
            let is_busy = |stripe: &u32| {
                unfinished.iter().any(|redo| redo.row.is_paired_with(row) && redo.stripe == *stripe)
            };
            let lines = blocks.iter().map(|block| row.shape.locate(*block).block);
            // In the order of stripes, each once: neighbours go out together.
            let lines: BTreeSet<u32> = lines.filter(|stripe| !is_busy(stripe)).collect();
            let lines = lines.into_iter().take_while(|_| {
                let more = self.frames_of_stripe(row, count, widest);
                let fits = count == 0 || (count < stripes_max && frames + more <= all);
                count += usize::from(fits);
                frames += if fits { more } else { 0 };
                fits
            });
            let lines: BTreeSet<u32> = lines.collect();
            drop(unfinished);
            if lines.is_empty() {
                continue;
            }
            chosen.push((Rc::clone(row), lines));
        }
        chosen
    }

    /// Small frames for a stripe that is put in place behind so many others, at most: its blocks that change are kept until all
    /// are in place; those that one record brings are computed beside each other, and take as much again for each column.
    fn frames_of_stripe(&self, row: &Row, nth: usize, widest: usize) -> u64 {
        let to_compute = if nth < self.stripes_of_record() { widest * 2 } else { 0 };
        (row.shape.data_columns() + to_compute) as u64
    }

    /// Stripes whose parity one record brings.
    fn stripes_of_record(&self) -> usize {
        let parity = usize::from(self.space().spec().resiliency.copies()).saturating_sub(1).max(1);
        REDO_BYTES_MAX / BLOCK / parity
    }

    /// Puts stripes in place, the rows in their order; whether any was.
    async fn destage_all(&self, chosen: Vec<(Rc<Row>, BTreeSet<u32>)>) -> Result<bool, SpaceError> {
        // What no flush has covered stays.
        if !mutation!(CopiesBeforeFlush) {
            self.shared().flush().await?;
        }
        let is_of_stripes = |(row, _): &(Rc<Row>, _)| row.shape.unit() == Unit::Stripe;
        let (chosen, copied): (Vec<_>, Vec<_>) = chosen.into_iter().partition(is_of_stripes);
        // By themselves: a flush, for which parity waits with locks in hand, may want the locks of these.
        let has_done = !copied.is_empty() && self.destage_copies(copied).await?;
        if chosen.is_empty() {
            return Ok(has_done);
        }
        Ok(self.destage_stripes(chosen).await? || has_done)
    }

    /// Puts stripes of copies in place; whether any was. A flush has covered them.
    #[pooled]
    async fn destage_copies(&self, chosen: Vec<(Rc<Row>, BTreeSet<u32>)>) -> Result<bool, SpaceError> {
        let columns = chosen.iter().map(|(row, lines)| row.shape.data_columns() * lines.len());
        let _frames = self.shared().lines.take(columns.sum::<usize>() as u64).await;
        let mut guards: Vec<RangeGuard<'_>> = Vec::new();
        let mut lines: Vec<(&Rc<Row>, u32)> = Vec::new();
        for (row, of_row) in &chosen {
            let guard = row.locks.lock_all(&stripes(row, of_row)).await;
            if !row.freed.get() && !self.shared().is_deferred(row) {
                guards.push(guard);
                lines.extend(of_row.iter().map(|stripe| (row, *stripe)));
            }
        }
        let found = join_all(lines.into_iter().map(async |(row, stripe)| {
            let dirty = self.dirty_of(row, stripe).await?;
            Ok((!dirty.is_empty()).then(|| prepared_copies(row, stripe, dirty)))
        }));
        let found: Result<Vec<Option<Prepared>>, SpaceError> = found.await.into_iter().collect();
        let prepared: Vec<Prepared> = found?.into_iter().flatten().collect();
        let has_done = !prepared.is_empty() && self.write_main(&prepared).await?;
        drop(guards);
        for (row, _) in &chosen {
            self.free_if_unused(row).await?;
        }
        Ok(has_done)
    }

    /// Puts stripes of parity in place, the rows in their order; whether any was. A flush has covered them.
    #[pooled]
    async fn destage_stripes(&self, chosen: Vec<(Rc<Row>, BTreeSet<u32>)>) -> Result<bool, SpaceError> {
        if self.can_be_brought_any() {
            // The next round begins with that.
            self.waits_for_copies.set(true);
            return Ok(true);
        }
        let widest = chosen.iter().map(|(row, _)| row.shape.columns()).max().unwrap_or(0);
        let rows = chosen.iter().flat_map(|(row, lines)| lines.iter().map(move |_| row));
        let frames = rows.enumerate().map(|(nth, row)| self.frames_of_stripe(row, nth, widest)).sum();
        let _frames = self.shared().lines.take(frames).await;
        let mut guards: Vec<RangeGuard<'_>> = Vec::new();
        let mut lines: Vec<(Rc<Row>, u32)> = Vec::new();
        for (row, of_row) in &chosen {
            let guard = row.locks.lock_all(&stripes(row, of_row)).await;
            // What waits to be decided of a row would be decided over what it becomes here. A row that another one replaced may
            // be one of copies by now: the flush below takes its locks, so they are released here.
            if !row.freed.get() && !self.shared().is_deferred(row) {
                guards.push(guard);
                lines.extend(of_row.iter().map(|stripe| (Rc::clone(row), *stripe)));
            }
        }
        self.recorded.borrow_mut().clear();
        let mut records = Vec::new();
        for some in lines.chunks(self.stripes_of_record()) {
            match self.compute_all(some).await {
                Ok((computed, content)) => records.push(self.record(computed, content)),
                Err(error) if records.is_empty() => return Err(error),
                // What is computed goes in place; whatever is the matter is met again by the next round.
                Err(_) => break,
            }
        }
        let mut prepared = Vec::new();
        let mut failed = None;
        for recorded in join_all(records).await {
            match recorded {
                Ok(more) => prepared.extend(more),
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        if let Some(error) = failed.filter(|_| prepared.is_empty()) {
            return Err(error);
        }
        if prepared.is_empty() {
            return Ok(false);
        }
        if !mutation!(RedoNotFlushed) {
            self.shared().flush().await?;
        }
        let prepared = self.without_those_that_lack(self.without_abandoned(prepared));
        let has_done = self.destage(prepared).await? || self.waits_for_copies.get();
        drop(guards);
        for (row, _) in &chosen {
            self.free_if_unused(row).await?;
        }
        Ok(has_done)
    }

    /// Those whose parity has not left with its only copies, before the flush that should have covered it.
    fn without_abandoned(&self, prepared: Vec<Prepared>) -> Vec<Prepared> {
        let stand = self.recorded.take();
        let halted = |one: &Prepared| stand.iter().any(|redo| redo.is_of(&one.redo.row, one.redo.stripe));
        let (stand, left): (Vec<Prepared>, Vec<Prepared>) = prepared.into_iter().partition(halted);
        left.iter().for_each(|one| self.forget_redo(&one.redo));
        stand
    }

    #[pooled]
    async fn free_if_unused(&self, row: &Rc<Row>) -> Result<(), SpaceError> {
        match self.owner(row.space) {
            Some(space) if space.is_thin() && row.mappings.is_empty() => {
                space.free_if_unused(row).await.map(|_| ())
            }
            _ => Ok(()),
        }
    }

    /// Computes what stripes will be, beside each other; their parity.
    #[pooled]
    async fn compute_all(&self, lines: &[(Rc<Row>, u32)]) -> Result<(Vec<Computed>, Bytes_), SpaceError> {
        let parity = REDO_BYTES_MAX / BLOCK / self.stripes_of_record();
        let mut buffer = self.shared().pool.seams().metadata.take(lines.len() * parity * BLOCK).await;
        buffer.fill(0);
        let places = buffer.chunks_exact_mut(parity * BLOCK);
        let found =
            join_all(lines.iter().zip(places).enumerate().map(async |(nth, ((row, stripe), into))| {
                let Some(space) = self.owner(row.space) else { return Ok(None) };
                let dirty = self.dirty_of(row, *stripe).await?;
                if dirty.is_empty() {
                    return Ok(None);
                }
                let computed = async {
                    // Whose the stripe is does not change while something of it is cached.
                    let row = match mutation!(ShadowSkipped) {
                        true => Rc::clone(row),
                        false => space.stripe_location(row, *stripe).await?,
                    };
                    let after = compute(&space, &row, *stripe, &dirty, into).await?;
                    Ok((row, after))
                };
                match computed.await {
                    Ok((row, after)) => {
                        Ok(Some(Computed { at: nth * parity, row, stripe: *stripe, dirty, after }))
                    }
                    // It stays cached until its disks are back.
                    Err(SpaceError::Unreadable { .. }) => Ok(None),
                    Err(error) => Err(error),
                }
            }));
        let found: Result<Vec<Option<Computed>>, SpaceError> = found.await.into_iter().collect();
        Ok((found?.into_iter().flatten().collect(), buffer.freeze()))
    }

    /// Records what stripes will be together with their parity.
    #[pooled]
    async fn record(&self, computed: Vec<Computed>, content: Bytes_) -> Result<Vec<Prepared>, SpaceError> {
        if computed.is_empty() {
            return Ok(Vec::new());
        }
        // No flush marks them before it is known whether they stand.
        let held = self.shared().tickets.begin();
        let mut redos = Vec::new();
        let put = self.put_redo(&content, |first| {
            let mut body = Vec::new();
            for one in &computed {
                let redo = one.redo(first);
                push_redo(&mut body, redo.head(), &redo.blocks);
                redos.push(redo);
            }
            body
        });
        let relogged = put.await?;
        redos.iter_mut().for_each(|redo| redo.relogged = relogged);
        redos.iter().flat_map(Redo::own_places).for_each(|place| self.count_live(place));
        self.recorded.borrow_mut().extend_from_slice(&redos);
        // They may have left before anybody knew of these stripes.
        self.abandon_recorded(|place| self.is_out_of_reach(place)).await?;
        drop(held);
        Ok(redos.into_iter().zip(computed).map(|(redo, one)| one.prepared(redo, &content)).collect())
    }

    /// The blocks of a stripe that are cached, as a flush has covered them, with their content.
    #[pooled]
    async fn dirty_of(&self, row: &Rc<Row>, stripe: u32) -> Result<SmallVec<[Dirty; 4]>, SpaceError> {
        let columns =
            (0..row.shape.data_columns()).filter(|column| stripe < row.shape.column_blocks(*column));
        let cached: SmallVec<[usize; 8]> = columns
            .filter(|column| !row.mappings.versions(row.shape.row_block(*column, stripe)).is_empty())
            .collect();
        let found = join_all(cached.into_iter().map(|column| self.dirty_block(row, column, stripe))).await;
        let found: Result<SmallVec<[Option<Dirty>; 8]>, SpaceError> = found.into_iter().collect();
        Ok(found?.into_iter().flatten().collect())
    }

    #[pooled]
    async fn dirty_block(
        &self,
        row: &Rc<Row>,
        column: usize,
        stripe: u32,
    ) -> Result<Option<Dirty>, SpaceError> {
        let block = row.shape.row_block(column, stripe);
        self.resolve_in_doubt(row, block).await?;
        let versions = row.mappings.versions(block);
        let may_go = |version: &&Version| {
            self.is_covered(version) || (row.shape.unit() == Unit::Block && mutation!(CopiesBeforeFlush))
        };
        let Some(version) = versions.iter().rfind(may_go).copied() else {
            return Ok(None);
        };
        let mut dirty = Dirty { column, block, version, content: None, is_lost: false };
        if let Content::Cached { place, checksum } = version.content {
            match self.read_cached(place, checksum).await? {
                CachedRead::Content(buffer) => dirty.content = Some(buffer),
                // It waits for the disks that have it.
                CachedRead::Nothing => return Ok(None),
                CachedRead::Lost => {
                    dirty.is_lost = true;
                    self.note_lost(row, block, version.since);
                }
            }
        }
        Ok(Some(dirty))
    }

    /// Writes stripes in place, flushes, and says so. Stripes of rows that lack too many columns for it are left to be finished.
    /// Whether any stripe was done. The caller holds their locks, and a flush has covered their records.
    ///
    /// # Errors
    /// [`SpaceError`]; all of them are left to be finished then: their records count, and any of it may be in place.
    pub(crate) async fn destage(&self, prepared: Vec<Prepared>) -> Result<bool, SpaceError> {
        let put = self.write_main(&prepared).await;
        if put.is_err() {
            let is_left = |redo: &Redo| {
                self.unfinished.borrow().iter().any(|other| other.is_of(&redo.row, redo.stripe))
            };
            let others = prepared.into_iter().map(|one| one.redo).filter(|redo| !is_left(redo));
            others.for_each(|redo| self.leave_unfinished(redo));
        }
        put
    }

    async fn write_main(&self, prepared: &[Prepared]) -> Result<bool, SpaceError> {
        let (done, left) = self.put_out(prepared).await?;
        // Copies stay cached, which is all that they need.
        let of_parity = left.into_iter().filter(|redo| redo.row.shape.unit() == Unit::Stripe);
        of_parity.for_each(|redo| self.leave_unfinished(redo.clone()));
        Ok(done > 0)
    }

    /// Writes stripes in place, flushes, and says so; how many, and those that not enough of their disks have. The caller holds
    /// their locks.
    #[pooled]
    pub(crate) async fn put_out<'a>(
        &self,
        prepared: &'a [Prepared],
    ) -> Result<(usize, Vec<&'a Redo>), SpaceError> {
        let shared = self.shared();
        let pool = &shared.pool;
        let mut rows: BTreeMap<(SpaceId, u64), Rc<Row>> = BTreeMap::new();
        for one in prepared {
            rows.insert((one.redo.row.space, one.redo.row.index), Rc::clone(&one.redo.row));
        }
        let rows: Vec<Rc<Row>> = rows.into_values().collect();
        shared.commit_absences_of(rows.iter()).await?;
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
        shared.commit_missed_pages(&rows, &stayed).await?;
        let is_held = |redo: &&Redo| {
            let row = &redo.row;
            redo.blocks.iter().all(|block| {
                let lacks_room = |slab: &Slab| backing_full.contains(&slab.disk);
                row.has_blocks_on(block.column, |slab| stayed.contains(&slab.disk))
                    && !row.with_slabs(block.column, |slabs| slabs.iter().any(lacks_room))
            })
        };
        self.backing_full.borrow_mut().extend(backing_full.iter().copied());
        let redos: Vec<&Redo> = prepared.iter().map(|one| &one.redo).collect();
        if let Some(space) =
            redos.first().filter(|_| !backing_full.is_empty()).and_then(|redo| self.owner(redo.row.space))
        {
            *self.lacks_room.borrow_mut() = Some(SpaceError::NoSpaceBelow { name: space.name() });
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
    fn pieces_of<'a>(&self, prepared: &'a [Prepared]) -> Vec<Outgoing<'a>> {
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
                _ => self.shared().pool.seams().metadata.try_take(run.len() * BLOCK),
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
    async fn log_destaged(&self, done: &[&Redo]) -> Result<(), SpaceError> {
        let shared = self.shared();
        let held = shared.tickets.begin();
        let stamp = shared.stamp();
        let mut body = Scratch::new();
        let mut entries = Vec::new();
        for redo in done {
            for block in &redo.blocks {
                let (index, entry) = place_in_page(redo.stripe);
                let page = shared.page(&redo.row, block.column, index).await?;
                let range = Range { first: redo.stripe, count: 1 };
                let mut extent = shared.extent(&redo.row, block.column, range, stamp);
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
                shared.record(&body, Wait::Written).await?;
                body.clear();
            }
        }
        if !body.is_empty() {
            shared.record(&body, Wait::Written).await?;
        }
        let now = shared.now(&held);
        entries.iter().for_each(|(page, entry, state)| page.set_destaged(*entry, *state, stamp, now));
        for redo in done {
            if !redo.ends.is_empty() {
                self.destaged.add(self.now(), redo.content_bytes());
            }
            shared.note_dirty(&redo.row);
            for (block, since) in &redo.ends {
                self.forget(&redo.row.mappings.end(*block, *since));
            }
            self.forget_redo(redo);
            self.forget_if_empty(&redo.row);
        }
        Ok(())
    }
}

impl Dirty {
    /// What its block will be.
    fn state(&self) -> BlockState {
        match &self.content {
            _ if self.is_lost => BlockState::Damaged,
            Some(content) => BlockState::Valid(crc32c(content)),
            None => BlockState::Never,
        }
    }

    /// What a redo says of it.
    fn redo(&self, state: BlockState) -> RedoBlock {
        let place = self.version.content.place().unwrap_or_default();
        RedoBlock { column: self.column, state, place, since: Some(self.version.since) }
    }
}

/// A stripe of copies with its content.
fn prepared_copies(row: &Rc<Row>, stripe: u32, dirty: SmallVec<[Dirty; 4]>) -> Prepared {
    let redo = Redo {
        row: Rc::clone(row),
        stripe,
        blocks: dirty.iter().map(|one| one.redo(one.state())).collect(),
        ends: dirty.iter().map(|one| (one.block, one.version.since)).collect(),
        relogged: Lsn::default(),
        owns_all: false,
    };
    Prepared { redo, contents: dirty.into_iter().map(|one| one.content.map(Buffer::freeze)).collect() }
}

/// A stripe whose parity was computed.
struct Computed {
    /// Which of the parity blocks of its record are its own, from here on.
    at: usize,
    row: Rc<Row>,
    stripe: u32,
    dirty: SmallVec<[Dirty; 4]>,
    after: StripeStates,
}

impl Computed {
    /// What the stripe will be: its changed blocks, then parity, whose content is in cache blocks from `first` on.
    fn redo(&self, first: Place) -> Redo {
        let state = |column: usize| self.after.get(column).copied().unwrap_or_default();
        let data = self.dirty.iter().map(|dirty| dirty.redo(state(dirty.column)));
        let shape = &self.row.shape;
        let parity = (shape.data_columns()..shape.columns()).zip(self.at..).map(|(column, at)| {
            let place = first.plus(u32::try_from(at).unwrap_or(u32::MAX));
            let is_there = matches!(state(column), BlockState::Valid(_));
            let place = if is_there { place } else { Place::default() };
            RedoBlock { column, state: state(column), place, since: None }
        });
        Redo {
            row: Rc::clone(&self.row),
            stripe: self.stripe,
            blocks: data.chain(parity).collect(),
            ends: self.dirty.iter().map(|dirty| (dirty.block, dirty.version.since)).collect(),
            relogged: Lsn::default(),
            owns_all: false,
        }
    }

    /// The redo with its content, of which parity is in `record`.
    fn prepared(self, redo: Redo, record: &Bytes_) -> Prepared {
        let mut data: BTreeMap<usize, Bytes_> = self
            .dirty
            .into_iter()
            .filter_map(|dirty| Some((dirty.column, dirty.content?.freeze())))
            .collect();
        let first = self.row.shape.data_columns();
        let contents = redo.blocks.iter().map(|block| match block.state {
            BlockState::Never | BlockState::Damaged => None,
            BlockState::Valid(_) => match block.column.checked_sub(first) {
                Some(nth) => Some(record.slice((self.at + nth) * BLOCK..(self.at + nth + 1) * BLOCK)),
                None => data.remove(&block.column),
            },
        });
        let contents = contents.collect();
        Prepared { redo, contents }
    }
}

/// Computes the parity of a stripe into `into`; what its blocks will be.
#[pooled]
async fn compute(
    space: &Space,
    row: &Rc<Row>,
    stripe: u32,
    dirty: &[Dirty],
    into: &mut [u8],
) -> Result<StripeStates, SpaceError> {
    let shape = &row.shape;
    let before = space.shared.stripe_states(row, stripe).await?;
    let mut after = before.clone();
    for one in dirty {
        if let Some(place) = after.get_mut(one.column) {
            *place = one.state();
        }
    }
    let (data, _) = after.split_at(shape.data_columns());
    let is_nothing = data.iter().all(|state| *state == BlockState::Never);
    // The parity of a shadow row says that the stripe is the shadow row's: of nothing it is a block of zeros, or what the row had
    // would be there again.
    let keeps_parity = row.is_shadow() && !mutation!(ShadowForgetsStripes);
    let mut parity_state = if data.contains(&BlockState::Damaged) {
        Some(BlockState::Damaged)
    } else if is_nothing && !keeps_parity {
        Some(BlockState::Never)
    } else {
        None
    };
    let changes = (dirty, &before);
    let is_relogged = is_update_cheaper(row, changes);
    if parity_state.is_none()
        && !is_nothing
        && !(is_relogged && update_parity(space, row, stripe, changes, into).await)
    {
        match encode_fully(space, row, stripe, changes, into).await {
            Err(SpaceError::Unreadable { why, .. }) if why.is_final() => {
                // Of a block that does not change nobody knows what it is; what changes may do without it.
                if is_relogged || !update_parity(space, row, stripe, changes, into).await {
                    parity_state = Some(BlockState::Damaged);
                }
            }
            encoded => encoded?,
        }
    }
    let computed = into.chunks_exact(BLOCK).map(|block| BlockState::Valid(crc32c(block)));
    for (place, state) in after.iter_mut().skip(shape.data_columns()).zip(computed) {
        *place = parity_state.unwrap_or(state);
    }
    Ok(after)
}

/// Whether parity from what it was and what changes takes no more reads than computing it again.
fn is_update_cheaper(row: &Row, (dirty, before): (&[Dirty], &StripeStates)) -> bool {
    let is_valid = |column: &usize| matches!(before.get(*column), Some(BlockState::Valid(_)));
    let is_dirty = |column: &usize| dirty.iter().any(|one| one.column == *column);
    let relogged =
        dirty.iter().filter(|one| is_valid(&one.column)).count() + row.shape.computed_columns().len();
    let supersedes =
        (0..row.shape.data_columns()).filter(|column| is_valid(column) && !is_dirty(column)).count();
    relogged <= supersedes
}

/// Computes parity from what it was and what changes; not where something of it is not what its table says.
#[pooled]
async fn update_parity(
    space: &Space,
    row: &Rc<Row>,
    stripe: u32,
    (dirty, before): (&[Dirty], &StripeStates),
    into: &mut [u8],
) -> bool {
    let data = row.shape.data_columns();
    let columns = dirty.iter().map(|one| one.column).chain(data..row.shape.columns());
    let found = join_all(columns.map(async |column| {
        let state = before.get(column).copied().unwrap_or_default();
        space.look(row, column, stripe, state).await
    }))
    .await;
    if !found.iter().all(Found::is_known) {
        return false;
    }
    let (old, parity) = found.split_at(dirty.len());
    for (block, old) in into.chunks_exact_mut(BLOCK).zip(parity) {
        match old.bytes() {
            Some(old) => block.copy_from_slice(old),
            None => block.fill(0),
        }
    }
    let changes: SmallVec<[Change<'_>; 12]> = dirty
        .iter()
        .zip(old)
        .map(|(one, old)| Change { column: one.column, old: old.bytes(), new: one.content.as_deref() })
        .collect();
    let changes: SmallVec<[Change<'_>; 12]> =
        changes.into_iter().filter(|one| one.new.is_some() || !mutation!(NeverOnOneColumn)).collect();
    for _ in 0..if mutation!(DifferenceTwice) { 2 } else { 1 } {
        let mut parity: SmallVec<[Option<&mut [u8]>; 2]> = into.chunks_exact_mut(BLOCK).map(Some).collect();
        if mutation!(SecondParityNotUpdated) {
            parity.iter_mut().skip(1).for_each(|block| *block = None);
        }
        row.shape.update(&changes, &mut parity);
    }
    true
}

/// Computes parity from all data of a stripe: what does not change is read, or computed from the old parity.
#[pooled]
async fn encode_fully(
    space: &Space,
    row: &Rc<Row>,
    stripe: u32,
    (dirty, before): (&[Dirty], &StripeStates),
    into: &mut [u8],
) -> Result<(), SpaceError> {
    let data = row.shape.data_columns();
    let mut others: Vec<(usize, Buffer)> = Vec::new();
    for column in (0..data).filter(|column| !dirty.iter().any(|one| one.column == *column)) {
        if before.get(column).copied().unwrap_or_default() == BlockState::Never {
            continue;
        }
        let mut buffer = space.shared.pool.seams().metadata.take(BLOCK).await;
        space.read_main(row, (column, stripe), HedgeDelay::Long, &mut buffer).await?;
        others.push((column, buffer));
    }
    let bytes_of = |column: usize| -> Option<&[u8]> {
        match dirty.iter().find(|one| one.column == column) {
            Some(one) => one.content.as_deref(),
            None => others.iter().find(|(other, _)| *other == column).map(|(_, buffer)| &**buffer),
        }
    };
    let blocks: SmallVec<[Option<&[u8]>; 12]> = (0..data).map(bytes_of).collect();
    let mut parity: SmallVec<[Option<&mut [u8]>; 2]> = into.chunks_exact_mut(BLOCK).map(Some).collect();
    row.shape.encode(&blocks, &mut parity);
    Ok(())
}

/// The stripes of stripes of a row, as ranges in ascending order that do not touch.
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
