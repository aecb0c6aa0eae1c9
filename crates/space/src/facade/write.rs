//! Writing: see docs/design/0002 for the three classes and why their orders differ.

use std::future::ready;
use std::pin::{Pin, pin};
use std::rc::Rc;

use dolmen_block_io::{DeviceError, Durability, IoKind};
use dolmen_buffer::{ALIGN_BYTES, Arena, Shared as Bytes_, is_zeros};
use dolmen_checksum::crc32c;
use dolmen_future_pool::pooled;
use dolmen_journal::Wait;
use dolmen_mutation::mutation;
use dolmen_pool::{ExcludeReason, PoolError};
use dolmen_units::{BLOCK_BYTES, Bytes, DiskSlot, Lsn};
use smallvec::SmallVec;

use crate::cache::promise::Reserved;
use crate::cache::space::Space;
use crate::facade::request::Request;
use crate::format::error::SpaceError;
use crate::format::record::{BlockState, push_extent};
use crate::layout::{BLOCK, Covered, Overwrites, Unit};
use crate::resources::locks::Range;
use crate::resources::tickets::Held;
use crate::row_io::parts::{Body, Pages, Part, Parts, RecordExtra, Whole, Written, Wrote, find, places_of};
use crate::table::page::{WriteClass, by_page, place_in_page};
use crate::table::row::{Row, Slab};
use crate::table::row_store::RowStore;

/// Bytes of zeros that are written at a time.
const ZEROS_BYTES: usize = 64 * 1024;
/// Bytes of whole blocks that are copied to aligned memory at a time.
const COPIED_BYTES_MAX: usize = 64 * 1024;

/// A write in place that has begun.
struct Begun {
    pages: Pages,
    held: Held,
    /// By the most demanding of its blocks.
    class: WriteClass,
}

/// Bytes of the future of a write, whatever it waits for.
const WRITE_BYTES_MAX: usize = 1280;
/// Bytes of the future of a write in place that it holds.
const PARTS_BYTES_MAX: usize = 2816;
const _: () = assert!(WRITE_BYTES_MAX + PARTS_BYTES_MAX <= 4096, "a write to a mirror holds 4 KiB at most");

impl Space {
    /// Writes `data` from byte `at` on. Acknowledged data survives the death of the daemon; durable data, and what a
    /// later flush covers, the loss of power.
    ///
    /// # Errors
    /// [`SpaceError`]; each block of the range then has its old or its new content.
    #[pooled(WRITE_BYTES_MAX)]
    pub async fn write(&self, at: u64, data: &Bytes_, durability: Durability) -> Result<(), SpaceError> {
        self.check_range(at, data.len() as u64)?;
        let request = self.asked(IoKind::Write, data.len() as u64).await;
        let written = self.write_range(&request, at, data, durability).await;
        request.ended(written)
    }

    /// As [`write`](Self::write), behind [`wait_to_write`](Self::wait_to_write).
    ///
    /// # Errors
    /// As there.
    #[pooled(WRITE_BYTES_MAX)]
    pub async fn write_waited(
        &self,
        at: u64,
        data: &Bytes_,
        durability: Durability,
    ) -> Result<(), SpaceError> {
        self.check_range(at, data.len() as u64)?;
        let request = self.asked_after_wait(IoKind::Write, data.len() as u64);
        let written = self.write_range(&request, at, data, durability).await;
        request.ended(written)
    }

    /// As [`write`](Self::write), of a request that has begun.
    ///
    /// # Errors
    /// As there.
    #[pooled(WRITE_BYTES_MAX)]
    pub async fn write_admitted(
        &self,
        request: Request<'_>,
        at: u64,
        data: &Bytes_,
        durability: Durability,
    ) -> Result<(), SpaceError> {
        let written = self.write_range(&request, at, data, durability).await;
        request.ended(written)
    }

    async fn write_range(
        &self,
        request: &Request<'_>,
        at: u64,
        data: &Bytes_,
        durability: Durability,
    ) -> Result<(), SpaceError> {
        // It may have been made smaller while this waited for its turn.
        self.check_range(at, data.len() as u64)?;
        if self.is_thin() && is_zeros(data) {
            // What is forgotten reads the same and takes no room: file systems fill their journals and tables so.
            self.zero_range(at, data.len() as u64).await?;
        } else {
            self.store(at, data).await?;
        }
        self.failed_reads.succeeded(at, data.len() as u64);
        if durability == Durability::Durable {
            request.is_stored();
            self.flush_all().await?;
        }
        Ok(())
    }

    /// Makes a range read as zeros and take room, in a thin space too: whoever writes there later finds it.
    ///
    /// # Errors
    /// [`SpaceError`].
    #[pooled]
    pub async fn write_allocated_zeroes(&self, at: u64, length: u64) -> Result<(), SpaceError> {
        self.check_range(at, length)?;
        let request = self.asked(IoKind::Write, length).await;
        let written = self.allocate_range(at, length).await;
        request.ended(written)
    }

    #[pooled]
    async fn allocate_range(&self, at: u64, length: u64) -> Result<(), SpaceError> {
        let mut zeros = self.shared.pool.seams().data.take(ZEROS_BYTES).await;
        zeros.fill(0);
        let zeros = zeros.freeze();
        let (mut from, end) = (at, at + length);
        while from < end {
            // Up to the next multiple, so that later pieces are whole blocks.
            let room = ZEROS_BYTES as u64 - from % ZEROS_BYTES as u64;
            let piece = usize::try_from(room.min(end - from)).unwrap_or(ZEROS_BYTES);
            self.store(from, &zeros.slice(0..piece)).await?;
            from += piece as u64;
        }
        Ok(())
    }

    /// Writes `data`, whatever it is, from byte `at` on. The caller has checked the range.
    pub(crate) async fn store(&self, at: u64, data: &Bytes_) -> Result<(), SpaceError> {
        if self.has_stripes() {
            return self.store_with_parity(at, data).await;
        }
        self.shared.gate().await?;
        let mut done = 0;
        while done < data.len() {
            let (index, within) =
                ((at + done as u64) / self.row_bytes(), (at + done as u64) % self.row_bytes());
            let room = usize::try_from(self.row_bytes() - within).unwrap_or(usize::MAX);
            let part = data.slice(done..done + room.min(data.len() - done));
            done += part.len();
            self.write_in_row(index, within, part).await?;
        }
        Ok(())
    }

    /// Writes a part of a row, in place or to the write cache.
    pub(crate) async fn write_in_row(&self, index: u64, within: u64, data: Bytes_) -> Result<(), SpaceError> {
        let end = within + data.len() as u64;
        let range = blocks_of(within, end);
        let mut must_be_cached = false;
        loop {
            let row = match self.row_for_write(index).await {
                Err(SpaceError::Pool(PoolError::NoSpace { .. })) if mutation!(NoRoomAcknowledged) => {
                    return Ok(());
                }
                row => row?,
            };
            if row.moves.wait_while_held().await {
                continue;
            }
            let cache = self.cache_of(&row);
            let mut room = match &cache {
                Some(cache) if must_be_cached || self.seems_cached(&row, range).await? => {
                    Some(cache.reserve(range.count.into()).await?)
                }
                _ => None,
            };
            // Not before there is room in the cache: what makes room there needs room in the log.
            let _log_room = self.shared.room_for(range.count).await?;
            match self.decide_cached(&row, range).await {
                // Whole blocks take the place of whatever it is; whoever needs to read it finds this again.
                Ok(()) | Err(SpaceError::Unreadable { .. }) => {}
                Err(error) => return Err(error),
            }
            let is_whole = within.is_multiple_of(BLOCK_BYTES) && end.is_multiple_of(BLOCK_BYTES);
            let is_unlocked = !is_whole && mutation!(PartOfBlockUnlocked);
            let _guard = row.locks.lock(if is_unlocked { Range { first: 0, count: 0 } } else { range }).await;
            if !is_open_to_writes(&self.shared, &row) && !mutation!(RecheckSkipped)
                || room.as_ref().is_some_and(|room| !room.is_valid())
            {
                continue;
            }
            assert!(is_open_to_writes(&self.shared, &row), "row {index} was looked at again under its lock");
            // The space may have been made smaller while this waited for the lock.
            self.check_range(index * self.row_bytes() + within, data.len() as u64)?;
            row.moves.touch(range);
            if room.is_none() {
                self.shared.commit_absences(&row).await?;
            }
            let written = match is_whole {
                true => self.write_whole(&row, range.first, &data, &mut room).await?,
                false => self.write_unaligned(&row, within, &data, &mut room).await?,
            };
            match written {
                Whole::Written => return Ok(()),
                Whole::NeedsCache => must_be_cached = true,
            }
        }
    }

    /// Whether some of its rows are written in stripes.
    fn has_stripes(&self) -> bool {
        [0, 1].into_iter().any(|layout| self.resiliency_of(layout).layout().unit() == Unit::Stripe)
    }

    /// Whether something that is written to it goes to a write cache first.
    pub(crate) fn has_cache(&self) -> bool {
        self.caches.borrow().iter().any(Option::is_some)
    }

    /// Whether a write to blocks of a row looks as if it had to go to the write cache. Called without any lock: it may be
    /// otherwise by the time that it is written.
    async fn seems_cached(&self, row: &Rc<Row>, range: Range) -> Result<bool, SpaceError> {
        if row.shape.overwrites() == Overwrites::Cached || row.mappings.has_any_of(range) {
            return Ok(true);
        }
        let ranges = row.shape.parts_of(range);
        let pages = match self.pages_of(row, ranges.iter().copied()).await {
            Ok(pages) => pages,
            // Whoever writes in place says what is the matter with it.
            Err(SpaceError::Unreadable { .. }) => return Ok(false),
            Err(error) => return Err(error),
        };
        let held = self.shared.tickets.begin();
        let class = self.class_of(ranges.into_iter(), &pages, &held);
        Ok(class == WriteClass::Overwrite && !mutation!(StrictInPlace))
    }

    /// Writes whole blocks of a row: to the write cache if room was reserved there. The caller holds their lock.
    async fn write_whole(
        &self,
        row: &Rc<Row>,
        first: u32,
        data: &Bytes_,
        room: &mut Option<Reserved<'_>>,
    ) -> Result<Whole, SpaceError> {
        match (self.cache_of(row), room) {
            (Some(cache), Some(room)) => cache.put(row, first, data, room).await?,
            (Some(_), None) => return self.write_unless_over(row, first, data).await,
            _ => self.write_blocks(row, first, data, RecordExtra::Nothing).await.map(drop)?,
        }
        Ok(Whole::Written)
    }

    /// Writes whole blocks of a row of a strict space in place, unless that would be over content that a flush has covered, or
    /// below content that is cached. The caller holds their lock.
    #[pooled]
    async fn write_unless_over(&self, row: &Rc<Row>, first: u32, data: &Bytes_) -> Result<Whole, SpaceError> {
        let count = u32::try_from(data.len() / BLOCK).unwrap_or(u32::MAX);
        if row.mappings.has_any_of(Range { first, count }) {
            return Ok(Whole::NeedsCache);
        }
        let mut parts = split(row, first, data);
        let begun = self.begin(row, &parts).await?;
        if begun.class == WriteClass::Overwrite && !mutation!(StrictInPlace) {
            return Ok(Whole::NeedsCache);
        }
        self.write_begun(row, &mut parts, begun, RecordExtra::Nothing).await?;
        Ok(Whole::Written)
    }

    /// Writes a range that begins or ends within a block, at any byte. A block at an end is read, verified, changed and
    /// written whole, so a crash leaves its other bytes as they are. The caller holds the lock of all blocks of the range.
    #[pooled]
    async fn write_unaligned(
        &self,
        row: &Rc<Row>,
        within: u64,
        data: &Bytes_,
        room: &mut Option<Reserved<'_>>,
    ) -> Result<Whole, SpaceError> {
        let mut done = 0;
        while done < data.len() {
            let at = within + done as u64;
            let block = u32::try_from(at / BLOCK_BYTES).unwrap_or(0);
            let skip = usize::try_from(at % BLOCK_BYTES).unwrap_or(0);
            let whole = (data.len() - done) / BLOCK * BLOCK;
            let (length, content) = if skip == 0 && whole > 0 {
                let memory = &self.shared.pool.seams().metadata;
                let content = aligned(memory, data.slice(done..done + whole)).await;
                (content.len(), content)
            } else {
                let length = (BLOCK - skip).min(data.len() - done);
                let mut buffer = self.shared.pool.seams().metadata.take(BLOCK).await;
                self.read_block_locked(row, block, &mut buffer).await?;
                if mutation!(NeighboursZeroed) {
                    buffer.fill(0);
                }
                if let (Some(to), Some(from)) =
                    (buffer.get_mut(skip..skip + length), data.get(done..done + length))
                {
                    to.copy_from_slice(from);
                }
                (length, buffer.freeze())
            };
            if let Whole::NeedsCache = self.write_whole(row, block, &content, room).await? {
                return Ok(Whole::NeedsCache);
            }
            done += length;
        }
        Ok(Whole::Written)
    }

    /// Writes whole blocks of a row. The caller holds their lock.
    pub(crate) async fn write_blocks(
        &self,
        row: &Rc<Row>,
        first: u32,
        data: &Bytes_,
        extra: RecordExtra<'_>,
    ) -> Result<Wrote, SpaceError> {
        self.write_parts(row, split(row, first, data), extra).await
    }

    /// Writes parts of a row in place; of one with parity, whole fresh stripes. The caller holds their lock.
    #[pooled(PARTS_BYTES_MAX)]
    pub(crate) async fn write_parts(
        &self,
        row: &Rc<Row>,
        mut parts: Parts,
        extra: RecordExtra<'_>,
    ) -> Result<Wrote, SpaceError> {
        let begun = self.begin(row, &parts).await?;
        self.write_begun(row, &mut parts, begun, extra).await
    }

    /// Begins a write in place: from here on flushes wait for it, and what is below it is not asked again.
    async fn begin(&self, row: &Rc<Row>, parts: &Parts) -> Result<Begun, SpaceError> {
        if !self.survives(row, parts, &[]) {
            return Err(self.unwritable(row, parts, DeviceError::Detached));
        }
        let pages = self.pages_of(row, places_of(parts)).await?;
        let held = self.shared.tickets.begin();
        let class = self.class_of(places_of(parts), &pages, &held);
        Ok(Begun { pages, held, class })
    }

    async fn write_begun(
        &self,
        row: &Rc<Row>,
        parts: &mut Parts,
        begun: Begun,
        extra: RecordExtra<'_>,
    ) -> Result<Wrote, SpaceError> {
        // Neither is moved out: a future keeps the place that a moved value was in.
        let (pages, held) = (&begun.pages, &begun.held);
        let begun_in = self.shared.stamp();
        for part in &mut *parts {
            let blocks = part.content.chunks_exact(BLOCK);
            part.states.extend(blocks.map(|block| BlockState::Valid(crc32c(block))));
        }
        let written = self.write_in_order(row, parts, pages, extra, begun.class).await?;
        if !written.complete {
            return Err(self.abandon(row, parts, extra, &written, held).await);
        }
        if !written.failed.is_empty() && !self.expel_failed(row, parts, &written.failed).await? {
            return Err(self.abandon(row, parts, extra, &written, held).await);
        }
        self.apply(row, parts, pages, held);
        if let RecordExtra::SlotSwitch(switch) = extra {
            switch.apply(&self.shared, held);
        }
        let wrote = |parts: &mut Parts| Wrote {
            lsn: written.lsn,
            states: parts.first_mut().map(|part| std::mem::take(&mut part.states)).unwrap_or_default(),
        };
        // A disk that was done with it may have left since, and a flush have recorded again, under the new epoch, what it knew
        // of; of this it did not know yet.
        if written.failed.is_empty() && self.shared.stamp() == begun_in && !self.shared.is_deferred(row) {
            return Ok(wrote(parts));
        }
        self.shared.commit_absences(row).await?;
        let blocks_of = |part: &Part| part.range.first..part.range.first + part.range.count;
        let blocks = parts.iter().flat_map(|part| blocks_of(part).map(|block| (part.column, block)));
        self.shared.record_again(row, blocks, Covered::ByTheNextFlush, held.ticket()).await?;
        // Meanwhile the last copy may have left, and a flush have left the blocks in doubt: what was just recorded must not
        // count as flushed with the next one, and what was left in doubt has to be told of it.
        self.shared.leave_what_is_away(row, parts.iter().map(|part| (part.column, part.range))).await?;
        Ok(wrote(parts))
    }

    /// Has the disks leave that failed a write, and says in the map that they lack it; whether that is on record. It cannot be where
    /// those that have it have left meanwhile: the others may be back first then, and would be believed.
    #[pooled]
    async fn expel_failed(
        &self,
        row: &Rc<Row>,
        parts: &Parts,
        failed: &[(DiskSlot, DeviceError)],
    ) -> Result<bool, SpaceError> {
        for (slot, _) in failed {
            self.shared.pool.exclude(*slot, ExcludeReason::MissedWrite).await?;
        }
        self.shared.commit_absences(row).await?;
        let has_failed = |slab: &Slab| failed.iter().any(|(slot, _)| *slot == slab.disk);
        let is_reported = |slab: &Slab| slab.stale.is_some() || !has_failed(slab);
        let is_reported_of = |part: &Part| row.with_slabs(part.column, |slabs| slabs.iter().all(is_reported));
        Ok(parts.iter().all(is_reported_of) || mutation!(AbsenceNotCommitted))
    }

    /// Record and data in the order that the class demands.
    async fn write_in_order(
        &self,
        row: &Rc<Row>,
        parts: &Parts,
        pages: &Pages,
        extra: RecordExtra<'_>,
        class: WriteClass,
    ) -> Result<Written, SpaceError> {
        let mut body = self.body(row, parts, pages, class);
        extra.add_to(&self.shared, &mut body, parts);
        let append = |wait| self.shared.record(&body, wait);
        // The record is pinned here, so that the writes of data hold a pointer to it.
        match class {
            WriteClass::Fresh => {
                self.shared.count(|counters| counters.fresh_writes += 1);
                self.write_data(row, parts, pin!(append(Wait::Written))).await
            }
            WriteClass::Rewrite => {
                self.shared.count(|counters| counters.rewrites += 1);
                if mutation!(RewriteInParallel) {
                    return self.write_data(row, parts, pin!(append(Wait::Written))).await;
                }
                let lsn = append(Wait::Written).await?;
                self.write_data(row, parts, pin!(ready(Ok(lsn)))).await
            }
            WriteClass::Overwrite => {
                self.shared.count(|counters| counters.overwrites += 1);
                if mutation!(IntentNotWaited) {
                    return self.write_data(row, parts, pin!(append(Wait::Written))).await;
                }
                let lsn = append(Wait::Durable).await?;
                self.write_data(row, parts, pin!(ready(Ok(lsn)))).await
            }
        }
    }

    /// The record of a write.
    fn body(&self, row: &Rc<Row>, parts: &Parts, pages: &Pages, class: WriteClass) -> Body {
        let mut body = Body::new();
        let stamp = self.shared.stamp();
        for part in parts {
            for range in by_page(part.range) {
                let mut extent = self.shared.extent(row, part.column, range, stamp);
                extent.intent = class == WriteClass::Overwrite;
                let from = (range.first - part.range.first) as usize;
                let states = part.states.get(from..from + range.count as usize).unwrap_or_default();
                let page = find(pages, part.column, range.first);
                push_extent(&mut body, extent, states, page.map_or(0, |(page, _)| page.durable_generation()));
            }
        }
        body
    }

    /// Starts the writes of every part to every slab that is here, waits for the record, then for them.
    async fn write_data(
        &self,
        row: &Rc<Row>,
        parts: &Parts,
        record: Pin<&mut (dyn Future<Output = Result<Lsn, PoolError>> + '_)>,
    ) -> Result<Written, SpaceError> {
        let mut writes: SmallVec<[_; 4]> = SmallVec::new();
        let mut failed: SmallVec<[(DiskSlot, DeviceError); 2]> = SmallVec::new();
        let mut good: SmallVec<[bool; 8]> = SmallVec::from_elem(false, parts.len());
        for (number, part) in parts.iter().enumerate() {
            let start = u64::from(part.range.first) * BLOCK_BYTES;
            let bytes = &part.content;
            row.with_slabs(part.column, |slabs| {
                for slab in slabs {
                    let Some(disk) = slab.present(&self.shared.pool) else {
                        // One that holds everything and is away now began to leave since absences were durable.
                        if slab.stale.is_none() {
                            failed.push((slab.disk, DeviceError::Detached));
                        }
                        continue;
                    };
                    for piece in slab.pieces(start, bytes.len()) {
                        let from = bytes.slice(piece.offset..piece.offset + piece.length);
                        let write = disk.write(piece.at, from, Durability::Cached);
                        writes.push((number, disk.slot(), slab.stale.is_none(), write));
                    }
                }
            });
        }
        let recorded = record.await;
        for (number, slot, trusted, write) in writes.drain(..) {
            match write.await {
                Ok(()) if trusted => good.get_mut(number).into_iter().for_each(|good| *good = true),
                Ok(()) => {}
                Err(error) => failed.push((slot, error)),
            }
        }
        // A slab in two pieces of which one failed is not good; with another copy it is excluded, without the write failed.
        let lsn = recorded?;
        let lacks_few = can_do_without(row, parts.iter().zip(&good).map(|(part, good)| (part, *good)));
        let sole_loss = failed.iter().any(|(_, error)| *error == DeviceError::NoSpace);
        let complete = lacks_few && !sole_loss && self.survives(row, parts, &failed);
        Ok(Written { failed, complete, lsn })
    }

    /// Whether every part is on some trusted slab whose disk did not fail, or can be made of those that are.
    pub(crate) fn survives(&self, row: &Row, parts: &Parts, failed: &[(DiskSlot, DeviceError)]) -> bool {
        let is_there = |part: &Part| {
            row.with_slabs(part.column, |slabs| {
                slabs.iter().any(|slab| {
                    let here = slab.stale.is_none() && slab.present(&self.shared.pool).is_some();
                    here && !failed.iter().any(|(slot, _)| *slot == slab.disk)
                })
            })
        };
        can_do_without(row, parts.iter().map(|part| (part, is_there(part))))
    }

    /// Ends a write that failed: what it recorded is taken back, as far as what is on the disks allows. What to say of it.
    #[pooled]
    async fn abandon(
        &self,
        row: &Rc<Row>,
        parts: &Parts,
        extra: RecordExtra<'_>,
        written: &Written,
        held: &Held,
    ) -> SpaceError {
        let blocks: Vec<(usize, u32, BlockState)> = parts
            .iter()
            .flat_map(|part| {
                (part.range.first..).zip(&part.states).map(|(block, state)| (part.column, block, *state))
            })
            .collect();
        if let Err(error) = self.resolve_failed_write(row, &blocks, &written.failed, held).await {
            return error;
        }
        if let RecordExtra::SlotSwitch(switch) = extra
            && let Err(error) = switch.relog_source(&self.shared, held).await
        {
            return error;
        }
        // Before a flush counts this write as ended: what it said beside would be durable by that.
        let void = extra.void(written.lsn, parts);
        if !void.is_empty()
            && let Err(error) = self.shared.record(&void, Wait::Written).await
        {
            return error.into();
        }
        let errors = || written.failed.iter().map(|(_, error)| *error);
        if errors().any(|error| error == DeviceError::NoSpace) {
            return SpaceError::NoSpaceBelow { name: self.name() };
        }
        self.unwritable(row, parts, errors().next().unwrap_or(DeviceError::Detached))
    }

    fn unwritable(&self, row: &Row, parts: &Parts, source: DeviceError) -> SpaceError {
        let part = parts.first();
        let block = part.map_or(0, |part| row.shape.row_block(part.column, part.range.first));
        let of_data = parts.iter().filter(|part| part.column < row.shape.data_columns());
        let blocks: u64 = of_data.map(|part| u64::from(part.range.count)).sum();
        SpaceError::Unwritable {
            name: self.name(),
            at: row.index * self.row_bytes() + u64::from(block) * BLOCK_BYTES,
            length: Bytes(blocks * BLOCK_BYTES),
            source,
        }
    }

    /// Changes the tables in memory and remembers that no flush has covered the blocks.
    fn apply(&self, row: &Rc<Row>, parts: &Parts, pages: &Pages, held: &Held) {
        let (stamp, now) = (self.shared.stamp(), self.shared.now(held));
        for part in parts {
            assert_eq!(part.states.len(), part.range.count as usize, "each block of a write has a state");
            for (block, state) in (part.range.first..).zip(&part.states) {
                let Some((page, entry)) = find(pages, part.column, block) else {
                    panic!("the page of block {block} of column {} was loaded before the write", part.column)
                };
                if !mutation!(ApplySkipsABlock) || block != part.range.first {
                    page.set(entry, *state, stamp, now);
                }
                assert!(page.has_state(entry, *state), "the table says of block {block} what was written");
            }
            self.shared.note_unflushed(held.ticket(), row, part.column, part.range);
        }
        self.shared.note_dirty(row);
    }

    pub(crate) async fn pages_of(
        &self,
        row: &Rc<Row>,
        places: impl Iterator<Item = (usize, Range)>,
    ) -> Result<Pages, SpaceError> {
        let mut pages = Pages::new();
        for (column, range) in places {
            let (first, _) = place_in_page(range.first);
            let (last, _) = place_in_page(range.first + range.count - 1);
            for index in first..=last {
                pages.push((column, index, self.shared.page(row, column, index).await?));
            }
        }
        Ok(pages)
    }

    /// The most demanding class of these blocks.
    pub(crate) fn class_of(
        &self,
        places: impl Iterator<Item = (usize, Range)>,
        pages: &Pages,
        held: &Held,
    ) -> WriteClass {
        let now = self.shared.now(held);
        let blocks = places.flat_map(|(column, range)| {
            (range.first..range.first + range.count).map(move |block| (column, block))
        });
        blocks
            .filter_map(|(column, block)| find(pages, column, block))
            .map(|(page, entry)| page.class(entry, now))
            .max()
            .unwrap_or(WriteClass::Overwrite)
    }
}

/// The blocks of a row that a range of bytes touches.
pub(crate) fn blocks_of(start: u64, end: u64) -> Range {
    let first = start / BLOCK_BYTES;
    let last = end.div_ceil(BLOCK_BYTES);
    Range { first: u32::try_from(first).unwrap_or(0), count: u32::try_from(last - first).unwrap_or(0) }
}

/// Returns the first blocks of `data` in memory that direct I/O accepts: all of them where they lie so already, else as many as
/// there is memory for at once, and one at least.
async fn aligned(memory: &Arena, data: Bytes_) -> Bytes_ {
    if data.as_ptr().addr().is_multiple_of(ALIGN_BYTES) {
        return data;
    }
    let mut buffer = match memory.try_take(data.len().min(COPIED_BYTES_MAX)) {
        Some(buffer) => buffer,
        // Under a lock nothing waits for more than a block.
        None => memory.take(BLOCK).await,
    };
    let length = buffer.len();
    buffer.copy_from_slice(data.get(..length).unwrap_or_default());
    buffer.freeze()
}

/// Whether what is written can be had although parts of it are not there.
fn can_do_without<'a>(row: &Row, parts: impl Iterator<Item = (&'a Part, bool)>) -> bool {
    row.shape.decodable_without(parts.filter(|(_, good)| !good).map(|(part, _)| part.column))
}

/// Cuts a write into parts that lie in one piece in one column.
fn split(row: &Row, first: u32, data: &Bytes_) -> Parts {
    let mut parts = Parts::new();
    let mut block = first;
    let mut offset = 0;
    while offset < data.len() {
        let spot = row.shape.locate(block);
        let left = u32::try_from((data.len() - offset) / BLOCK).unwrap_or(u32::MAX);
        let count = spot.contiguous.min(left);
        let first = if mutation!(RowOffByOne) && block % 64 == 63 && spot.block > 0 {
            spot.block - 1
        } else {
            spot.block
        };
        let length = count as usize * BLOCK;
        parts.push(Part::new(spot.column, first, data.slice(offset..offset + length)));
        block += count;
        offset += length;
    }
    parts
}

/// Returns whether a row whose blocks are locked may be written: an exchange may have replaced it, a conversion may hold
/// it, and blocks of it may have become deferred while the writer waited for the lock.
fn is_open_to_writes(shared: &RowStore, row: &Row) -> bool {
    !row.freed.get() && !row.moves.is_held() && !shared.is_deferred(row)
}
