//! Writes within one row: in place, or to the write cache.

use std::rc::Rc;

use dolmen_buffer::ALIGN_BYTES;
use dolmen_buffer::Arena;
use dolmen_buffer::Shared as Bytes_;
use dolmen_future_pool::pooled;
use dolmen_mutation::mutation;
use dolmen_pool::PoolError;
use dolmen_units::BLOCK_BYTES;

use crate::cache::promise::{Reservations, Reserved};
use crate::cache::write_cache::CacheWrites;
use crate::format::error::SpaceError;
use crate::layout::BLOCK;
use crate::layout::plan::{WriteClass, WriteFacts, WritePlan};
use crate::relocation::allocator::Allocator;
use crate::resolution::space_doubt::SpaceDoubt;
use crate::resources::locks::{Range, blocks_of};
use crate::row_io::absence::RowRecords;
use crate::row_io::flusher::Flusher;
use crate::row_io::parts::{RecordExtra, Whole};
use crate::row_io::write_executor::{WriteExecutor, split};
use crate::space_io::read::Reader;
use crate::table::row::Row;
use crate::table::row_store::RowStore;
use crate::table::space::SpaceRows;

/// Writes within one row: in place, or to the write cache.
#[derive(Clone, Copy)]
pub(crate) struct RowWriter<'a> {
    space: &'a SpaceRows,
}

impl<'a> RowWriter<'a> {
    /// Returns the service for a space.
    pub(crate) fn of(space: &'a SpaceRows) -> Self {
        Self { space }
    }
}

impl RowWriter<'_> {
    /// Writes a part of a row, in place or to the write cache.
    pub(crate) async fn write_in_row(self, index: u64, within: u64, data: Bytes_) -> Result<(), SpaceError> {
        let end = within + data.len() as u64;
        let range = blocks_of(within, end);
        let mut must_be_cached = false;
        loop {
            let row = match Allocator::of(self.space).row_for_write(index).await {
                Err(SpaceError::Pool(PoolError::NoSpace { .. })) if mutation!(NoRoomAcknowledged) => {
                    return Ok(());
                }
                row => row?,
            };
            if row.moves.wait_while_held().await {
                continue;
            }
            let cache = self.space.cache_of(&row);
            let mut room = match &cache {
                Some(cache) if must_be_cached || self.seems_cached(&row, range).await? => {
                    Some(Reservations::of(cache).reserve(range.count.into()).await?)
                }
                _ => None,
            };
            // Not before there is room in the cache: what makes room there needs room in the log.
            let _log_room = Flusher::of(&self.space.shared).room_for(range.count).await?;
            match SpaceDoubt::of(self.space).decide_cached(&row, range).await {
                // Whole blocks take the place of whatever it is; whoever needs to read it finds this again.
                Ok(()) | Err(SpaceError::Unreadable { .. }) => {}
                Err(error) => return Err(error),
            }
            let is_whole = within.is_multiple_of(BLOCK_BYTES) && end.is_multiple_of(BLOCK_BYTES);
            let is_unlocked = !is_whole && mutation!(PartOfBlockUnlocked);
            let _guard = row.locks.lock(if is_unlocked { Range { first: 0, count: 0 } } else { range }).await;
            if !is_open_to_writes(&self.space.shared, &row) && !mutation!(RecheckSkipped)
                || room.as_ref().is_some_and(|room| !room.is_valid())
            {
                continue;
            }
            assert!(
                is_open_to_writes(&self.space.shared, &row),
                "row {index} was looked at again under its lock"
            );
            // The space may have been made smaller while this waited for the lock.
            self.space.check_range(index * self.space.row_bytes() + within, data.len() as u64)?;
            row.moves.touch(range);
            if room.is_none() {
                RowRecords::of(&self.space.shared).commit_absences(&row).await?;
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

    /// Whether a write to blocks of a row looks as if it had to go to the write cache. Called without any lock: it may be
    /// otherwise by the time that it is written.
    async fn seems_cached(self, row: &Rc<Row>, range: Range) -> Result<bool, SpaceError> {
        if plan_of(row, range, WriteClass::Fresh) == WritePlan::Cached {
            return Ok(true);
        }
        let ranges = row.shape.parts_of(range);
        let pages = match WriteExecutor::of(self.space).pages_of(row, ranges.iter().copied()).await {
            Ok(pages) => pages,
            // Whoever writes in place says what is the matter with it.
            Err(SpaceError::Unreadable { .. }) => return Ok(false),
            Err(error) => return Err(error),
        };
        let held = self.space.shared.tickets.begin();
        let class = WriteExecutor::of(self.space).class_of(ranges.into_iter(), &pages, &held);
        Ok(plan_of(row, range, class) == WritePlan::Cached)
    }

    /// Writes whole blocks of a row: to the write cache if room was reserved there. The caller holds their lock.
    async fn write_whole(
        self,
        row: &Rc<Row>,
        first: u32,
        data: &Bytes_,
        room: &mut Option<Reserved<'_>>,
    ) -> Result<Whole, SpaceError> {
        match (self.space.cache_of(row), room) {
            (Some(cache), Some(room)) => CacheWrites::of(&cache).put(row, first, data, room).await?,
            (Some(_), None) => return self.write_unless_over(row, first, data).await,
            _ => WriteExecutor::of(self.space)
                .write_blocks(row, first, data, RecordExtra::Nothing)
                .await
                .map(drop)?,
        }
        Ok(Whole::Written)
    }

    /// Writes whole blocks of a row of a strict space in place, unless that would be over content that a flush has covered, or
    /// below content that is cached. The caller holds their lock.
    #[pooled]
    async fn write_unless_over(self, row: &Rc<Row>, first: u32, data: &Bytes_) -> Result<Whole, SpaceError> {
        let count = u32::try_from(data.len() / BLOCK).unwrap_or(u32::MAX);
        let range = Range { first, count };
        if plan_of(row, range, WriteClass::Fresh) == WritePlan::Cached {
            return Ok(Whole::NeedsCache);
        }
        let mut parts = split(row, first, data);
        let begun = WriteExecutor::of(self.space).begin(row, &parts).await?;
        if plan_of(row, range, begun.class) == WritePlan::Cached {
            return Ok(Whole::NeedsCache);
        }
        WriteExecutor::of(self.space).write_begun(row, &mut parts, begun, RecordExtra::Nothing).await?;
        Ok(Whole::Written)
    }

    /// Writes a range that begins or ends within a block, at any byte. A block at an end is read, verified, changed and
    /// written whole, so a crash leaves its other bytes as they are. The caller holds the lock of all blocks of the range.
    #[pooled]
    async fn write_unaligned(
        self,
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
                let memory = &self.space.shared.pool.seams().metadata;
                let content = aligned(memory, data.slice(done..done + whole)).await;
                (content.len(), content)
            } else {
                let length = (BLOCK - skip).min(data.len() - done);
                let mut buffer = self.space.shared.pool.seams().metadata.take(BLOCK).await;
                Reader::of(self.space).read_block_locked(row, block, &mut buffer).await?;
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
}

/// Plans a write of blocks of a row with a write cache. What the class alone cannot change shows with [`WriteClass::Fresh`], before
/// any page is read.
fn plan_of(row: &Row, range: Range, class: WriteClass) -> WritePlan {
    let is_cached = row.mappings.has_any_of(range);
    row.shape.plan_write(&WriteFacts { class, is_cached, is_strict: true, has_free_slot: false })
}

/// Returns the first blocks of `data` in memory that direct I/O accepts: all of them where they lie so already, else as many as
/// there is memory for at once, and one at least.
pub(crate) async fn aligned(memory: &Arena, data: Bytes_) -> Bytes_ {
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

/// Bytes of whole blocks that are copied to aligned memory at a time.
pub(crate) const COPIED_BYTES_MAX: usize = 64 * 1024;

/// Returns whether a row whose blocks are locked may be written: an exchange may have replaced it, a conversion may hold
/// it, and blocks of it may have become deferred while the writer waited for the lock.
pub(crate) fn is_open_to_writes(shared: &RowStore, row: &Row) -> bool {
    !row.freed.get() && !row.moves.is_held() && !shared.is_deferred(row)
}
