//! Writes of blocks to the copies of a row, in the order of their class.

use std::future::ready;
use std::pin::Pin;
use std::pin::pin;
use std::rc::Rc;

use dolmen_block_io::DeviceError;
use dolmen_block_io::Durability;
use dolmen_buffer::Shared as Bytes_;
use dolmen_checksum::crc32c;
use dolmen_future_pool::pooled;
use dolmen_journal::Wait;
use dolmen_mutation::mutation;
use dolmen_pool::ExcludeReason;
use dolmen_pool::PoolError;
use dolmen_units::BLOCK_BYTES;
use dolmen_units::Bytes;
use dolmen_units::DiskSlot;
use dolmen_units::Lsn;
use smallvec::SmallVec;

use crate::format::error::SpaceError;
use crate::format::record::{BlockState, push_extent};
use crate::layout::plan::WriteClass;
use crate::layout::{BLOCK, Covered};
use crate::resources::locks::Range;
use crate::resources::tickets::Held;
use crate::row_io::absence::RowRecords;
use crate::row_io::block_log::BlockLog;
use crate::row_io::flusher::Flusher;
use crate::row_io::parts::{Body, Pages, Part, Parts, RecordExtra, Written, find, places_of};
use crate::table::gathering::Wrote;
use crate::table::page::{by_page, place_in_page};
use crate::table::pages::TableStore;
use crate::table::row::{Row, Slab};
use crate::table::space::{FailedWrite, SpaceRows};

/// Writes of blocks to the copies of a row, in the order of their class.
#[derive(Clone, Copy)]
pub(crate) struct WriteExecutor<'a> {
    space: &'a SpaceRows,
}

impl<'a> WriteExecutor<'a> {
    /// Returns the service for a space.
    pub(crate) fn of(space: &'a SpaceRows) -> Self {
        Self { space }
    }
}

impl WriteExecutor<'_> {
    /// Writes whole blocks of a row. The caller holds their lock.
    pub(crate) async fn write_blocks(
        self,
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
        self,
        row: &Rc<Row>,
        mut parts: Parts,
        extra: RecordExtra<'_>,
    ) -> Result<Wrote, SpaceError> {
        let begun = self.begin(row, &parts).await?;
        self.write_begun(row, &mut parts, begun, extra).await
    }

    /// Begins a write in place: from here on flushes wait for it, and what is below it is not asked again.
    pub(crate) async fn begin(self, row: &Rc<Row>, parts: &Parts) -> Result<Begun, SpaceError> {
        if !self.survives(row, parts, &[]) {
            return Err(self.unwritable(row, parts, DeviceError::Detached));
        }
        let pages = self.pages_of(row, places_of(parts)).await?;
        let held = self.space.shared.tickets.begin();
        let class = self.class_of(places_of(parts), &pages, &held);
        Ok(Begun { pages, held, class })
    }

    pub(crate) async fn write_begun(
        self,
        row: &Rc<Row>,
        parts: &mut Parts,
        begun: Begun,
        extra: RecordExtra<'_>,
    ) -> Result<Wrote, SpaceError> {
        // Neither is moved out: a future keeps the place that a moved value was in.
        let (pages, held) = (&begun.pages, &begun.held);
        let begun_in = self.space.shared.stamp();
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
            switch.apply(&self.space.shared, held);
        }
        let wrote = |parts: &mut Parts| Wrote {
            lsn: written.lsn,
            states: parts.first_mut().map(|part| std::mem::take(&mut part.states)).unwrap_or_default(),
        };
        // A disk that was done with it may have left since, and a flush have recorded again, under the new epoch, what it knew
        // of; of this it did not know yet.
        if written.failed.is_empty()
            && self.space.shared.stamp() == begun_in
            && !self.space.shared.is_deferred(row)
        {
            return Ok(wrote(parts));
        }
        RowRecords::of(&self.space.shared).commit_absences(row).await?;
        let blocks_of = |part: &Part| part.range.first..part.range.first + part.range.count;
        let blocks = parts.iter().flat_map(|part| blocks_of(part).map(|block| (part.column, block)));
        BlockLog::of(&self.space.shared)
            .record_again(row, blocks, Covered::ByTheNextFlush, held.ticket())
            .await?;
        // Meanwhile the last copy may have left, and a flush have left the blocks in doubt: what was just recorded must not
        // count as flushed with the next one, and what was left in doubt has to be told of it.
        let ranges = parts.iter().map(|part| (part.column, part.range)).collect();
        self.space.shared.upper.defer_absent(&self.space.shared, row, ranges).await?;
        Ok(wrote(parts))
    }

    /// Has the disks leave that failed a write, and says in the map that they lack it; whether that is on record. It cannot be where
    /// those that have it have left meanwhile: the others may be back first then, and would be believed.
    #[pooled]
    async fn expel_failed(
        self,
        row: &Rc<Row>,
        parts: &Parts,
        failed: &[(DiskSlot, DeviceError)],
    ) -> Result<bool, SpaceError> {
        for (slot, _) in failed {
            self.space.shared.pool.exclude(*slot, ExcludeReason::MissedWrite).await?;
        }
        RowRecords::of(&self.space.shared).commit_absences(row).await?;
        let has_failed = |slab: &Slab| failed.iter().any(|(slot, _)| *slot == slab.disk);
        let is_reported = |slab: &Slab| slab.stale.is_some() || !has_failed(slab);
        let is_reported_of = |part: &Part| row.with_slabs(part.column, |slabs| slabs.iter().all(is_reported));
        Ok(parts.iter().all(is_reported_of) || mutation!(AbsenceNotCommitted))
    }

    /// Record and data in the order that the class demands.
    async fn write_in_order(
        self,
        row: &Rc<Row>,
        parts: &Parts,
        pages: &Pages,
        extra: RecordExtra<'_>,
        class: WriteClass,
    ) -> Result<Written, SpaceError> {
        let mut body = self.body(row, parts, pages, class);
        extra.add_to(&self.space.shared, &mut body, parts);
        let append = |wait| BlockLog::of(&self.space.shared).record(&body, wait);
        // The record is pinned here, so that the writes of data hold a pointer to it.
        match class {
            WriteClass::Fresh => {
                self.space.shared.count(|counters| counters.fresh_writes += 1);
                self.write_data(row, parts, pin!(append(Wait::Written))).await
            }
            WriteClass::Rewrite => {
                self.space.shared.count(|counters| counters.rewrites += 1);
                if mutation!(RewriteInParallel) {
                    return self.write_data(row, parts, pin!(append(Wait::Written))).await;
                }
                let lsn = append(Wait::Written).await?;
                self.write_data(row, parts, pin!(ready(Ok(lsn)))).await
            }
            WriteClass::Overwrite => {
                self.space.shared.count(|counters| counters.overwrites += 1);
                if mutation!(IntentNotWaited) {
                    return self.write_data(row, parts, pin!(append(Wait::Written))).await;
                }
                let lsn = append(Wait::Durable).await?;
                self.write_data(row, parts, pin!(ready(Ok(lsn)))).await
            }
        }
    }

    /// The record of a write.
    fn body(self, row: &Rc<Row>, parts: &Parts, pages: &Pages, class: WriteClass) -> Body {
        let mut body = Body::new();
        let stamp = self.space.shared.stamp();
        for part in parts {
            for range in by_page(part.range) {
                let mut extent = BlockLog::of(&self.space.shared).extent(row, part.column, range, stamp);
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
        self,
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
                    let Some(disk) = slab.present(&self.space.shared.pool) else {
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
    pub(crate) fn survives(self, row: &Row, parts: &Parts, failed: &[(DiskSlot, DeviceError)]) -> bool {
        let is_there = |part: &Part| {
            row.with_slabs(part.column, |slabs| {
                slabs.iter().any(|slab| {
                    let here = slab.stale.is_none() && slab.present(&self.space.shared.pool).is_some();
                    here && !failed.iter().any(|(slot, _)| *slot == slab.disk)
                })
            })
        };
        can_do_without(row, parts.iter().map(|part| (part, is_there(part))))
    }

    /// Ends a write that failed: what it recorded is taken back, as far as what is on the disks allows. What to say of it.
    #[pooled]
    async fn abandon(
        self,
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
        if let Err(error) = self
            .space
            .shared
            .upper
            .resolve_failed_write(
                self.space,
                row,
                FailedWrite { blocks: &blocks, failed: &written.failed, held },
            )
            .await
        {
            return error;
        }
        if let RecordExtra::SlotSwitch(switch) = extra
            && let Err(error) = switch.relog_source(&self.space.shared, held).await
        {
            return error;
        }
        // Before a flush counts this write as ended: what it said beside would be durable by that.
        let void = extra.void(written.lsn, parts);
        if !void.is_empty()
            && let Err(error) = BlockLog::of(&self.space.shared).record(&void, Wait::Written).await
        {
            return error.into();
        }
        let errors = || written.failed.iter().map(|(_, error)| *error);
        if errors().any(|error| error == DeviceError::NoSpace) {
            return SpaceError::NoSpaceBelow { name: self.space.name() };
        }
        self.unwritable(row, parts, errors().next().unwrap_or(DeviceError::Detached))
    }

    fn unwritable(self, row: &Row, parts: &Parts, source: DeviceError) -> SpaceError {
        let part = parts.first();
        let block = part.map_or(0, |part| row.shape.row_block(part.column, part.range.first));
        let of_data = parts.iter().filter(|part| part.column < row.shape.data_columns());
        let blocks: u64 = of_data.map(|part| u64::from(part.range.count)).sum();
        SpaceError::Unwritable {
            name: self.space.name(),
            at: row.index * self.space.row_bytes() + u64::from(block) * BLOCK_BYTES,
            length: Bytes(blocks * BLOCK_BYTES),
            source,
        }
    }

    /// Changes the tables in memory and remembers that no flush has covered the blocks.
    fn apply(self, row: &Rc<Row>, parts: &Parts, pages: &Pages, held: &Held) {
        let (stamp, now) = (self.space.shared.stamp(), self.space.shared.now(held));
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
            Flusher::of(&self.space.shared).note_unflushed(held.ticket(), row, part.column, part.range);
        }
        self.space.shared.note_dirty(row);
    }

    pub(crate) async fn pages_of(
        self,
        row: &Rc<Row>,
        places: impl Iterator<Item = (usize, Range)>,
    ) -> Result<Pages, SpaceError> {
        let mut pages = Pages::new();
        for (column, range) in places {
            let (first, _) = place_in_page(range.first);
            let (last, _) = place_in_page(range.first + range.count - 1);
            for index in first..=last {
                pages.push((
                    column,
                    index,
                    TableStore::of(&self.space.shared).page(row, column, index).await?,
                ));
            }
        }
        Ok(pages)
    }

    /// The most demanding class of these blocks.
    pub(crate) fn class_of(
        self,
        places: impl Iterator<Item = (usize, Range)>,
        pages: &Pages,
        held: &Held,
    ) -> WriteClass {
        let now = self.space.shared.now(held);
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

/// Cuts a write into parts that lie in one piece in one column.
pub(crate) fn split(row: &Row, first: u32, data: &Bytes_) -> Parts {
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

/// Bytes of the future of a write in place that it holds.
pub(crate) const PARTS_BYTES_MAX: usize = 2816;

/// A write in place that has begun.
pub(crate) struct Begun {
    pages: Pages,
    held: Held,
    /// By the most demanding of its blocks.
    pub(crate) class: WriteClass,
}

/// Whether what is written can be had although parts of it are not there.
pub(crate) fn can_do_without<'a>(row: &Row, parts: impl Iterator<Item = (&'a Part, bool)>) -> bool {
    row.shape.decodable_without(parts.filter(|(_, good)| !good).map(|(part, _)| part.column))
}
