//! Copies of blocks as they were read, and what their checksums say of them.

use std::rc::Rc;
use std::time::Duration;

use dolmen_block_io::DeviceError;
use dolmen_block_io::Durability;
use dolmen_buffer::Buffer;
use dolmen_checksum::crc32c;
use dolmen_future_pool::pooled;
use dolmen_mutation::mutation;
use dolmen_pool::Disk;
use dolmen_units::BLOCK_BYTES;
use smallvec::SmallVec;

use crate::format::error::{SpaceError, UnreadableReason};
use crate::format::record::BlockState;
use crate::layout::BLOCK;
use crate::resources::events::DataLossKind;
use crate::resources::hedge_delay::{HedgeDelay, is_silence};
use crate::resources::locks::Range;
use crate::row_io::read_hedging::Hedging;
use crate::row_io::stripe_places::StripePlaces;
use crate::table::page::place_in_page;
use crate::table::pages::TableStore;
use crate::table::row::Row;
use crate::table::space::SpaceRows;

/// A copy of a block as it was read.
pub(crate) struct Copy {
    pub(crate) disk: Rc<Disk>,
    pub(crate) at: u64,
    pub(crate) trusted: bool,
    pub(crate) bytes: Buffer,
    pub(crate) result: Result<(), DeviceError>,
    /// Nobody waited for it.
    pub(crate) is_timed_out: bool,
}

impl Copy {
    /// Whether it is trusted, and cannot be read or is not what the table says. Of one that nobody waited for nobody knows.
    pub(crate) fn is_to_be_healed(&self, state: BlockState) -> bool {
        let is_good = self.result.is_ok() && matches_state(&self.bytes, state);
        self.trusted && !self.is_timed_out && !is_good
    }
}

/// Whether a block has the content that its state promises.
pub(crate) fn matches_state(bytes: &[u8], state: BlockState) -> bool {
    match state {
        BlockState::Never => true,
        BlockState::Valid(checksum) => crc32c(bytes) == checksum,
        BlockState::Damaged => false,
    }
}

/// Copies of blocks of rows: reads, repairs and states of them.
#[derive(Clone, Copy)]
pub(crate) struct RowCopies<'a> {
    space: &'a SpaceRows,
}

impl<'a> RowCopies<'a> {
    /// Returns the service for a space.
    pub(crate) fn of(space: &'a SpaceRows) -> Self {
        Self { space }
    }
}

impl RowCopies<'_> {
    /// What the table says of blocks that follow each other.
    pub(crate) async fn states(
        self,
        row: &Rc<Row>,
        column: usize,
        run: Range,
    ) -> Result<Vec<BlockState>, SpaceError> {
        let mut states = Vec::with_capacity(run.count as usize);
        for block in run.first..run.first + run.count {
            let (index, entry) = place_in_page(block);
            states.push(TableStore::of(&self.space.shared).page(row, column, index).await?.state(entry));
        }
        Ok(states)
    }

    /// Where a block is in place, and what it holds there: the row or its shadow row. Both are of one moment, as pages may come
    /// from disks in between.
    pub(crate) async fn main_location(
        self,
        row: &Rc<Row>,
        (column, stripe): (usize, u32),
    ) -> Result<(Rc<Row>, BlockState), SpaceError> {
        loop {
            let stripe_location = StripePlaces::of(self.space).stripe_location(row, stripe).await?;
            let state = self.state_of(&stripe_location, (column, stripe)).await?;
            let Some(shadow) = row.shadow().filter(|_| state == BlockState::Never) else {
                return Ok((stripe_location, state));
            };
            let parity = shadow.state_in_memory((row.shape.data_columns(), stripe));
            let is_shadows = parity.is_some_and(|parity| parity != BlockState::Never);
            if parity.is_some() && is_shadows == stripe_location.is_shadow() {
                return Ok((stripe_location, state));
            }
        }
    }

    /// What the table says of a block. Where nobody can tell, the error names that block, not all that share a page with it.
    pub(crate) async fn state_of(
        self,
        row: &Rc<Row>,
        (column, block): (usize, u32),
    ) -> Result<BlockState, SpaceError> {
        let (index, entry) = place_in_page(block);
        match TableStore::of(&self.space.shared).page(row, column, index).await {
            Ok(page) => StripePlaces::of(self.space).known_state(row, block, page.state(entry)).await,
            Err(SpaceError::Unreadable { why, .. }) => {
                Err(TableStore::of(&self.space.shared).unreadable(row, column, block as usize, why))
            }
            Err(error) => Err(error),
        }
    }

    /// What the table says of a block that is about to be read: damage is an error.
    pub(crate) async fn state_to_read(self, row: &Rc<Row>, row_block: u32) -> Result<BlockState, SpaceError> {
        let spot = row.shape.locate(row_block);
        let state = self.state_of(row, (spot.column, spot.block)).await?;
        if state == BlockState::Damaged {
            let why = UnreadableReason::Damaged;
            self.space.note(row, row_block, DataLossKind::Lost);
            return Err(TableStore::of(&self.space.shared).unreadable(
                row,
                spot.column,
                spot.block as usize,
                why,
            ));
        }
        Ok(state)
    }

    /// Reads one block of a row of copies from the least busy, and only if that does not verify from all. The caller holds its
    /// lock.
    #[pooled]
    pub(crate) async fn read_one_copy(
        self,
        row: &Rc<Row>,
        row_block: u32,
        into: &mut [u8],
    ) -> Result<(), SpaceError> {
        let spot = row.shape.locate(row_block);
        let state = self.state_to_read(row, row_block).await?;
        let range = Range { first: spot.block, count: 1 };
        let chosen = Hedging::of(&self.space.shared)
            .choose_copy(row, spot.column, range)
            .filter(|_| state != BlockState::Never);
        if let Some((disk, places)) = chosen
            && let Some((at, _)) = places.first()
        {
            let buffer = self.space.shared.pool.seams().metadata.take(BLOCK).await;
            let (bytes, result) = Hedging::of(&self.space.shared)
                .read_soon(row, (spot.column, range), (&disk, *at), buffer)
                .await;
            if result.is_ok() && matches_state(&bytes, state) {
                into.copy_from_slice(&bytes);
                return Ok(());
            }
        }
        self.read_copied_block(row, row_block, HedgeDelay::Short, into).await
    }

    /// Reads one block of a row of copies from whichever verifies, and heals the others. With little time, disks that take theirs are
    /// waited for only where no other copy verifies, and not healed. The caller holds its lock.
    #[pooled]
    pub(crate) async fn read_copied_block(
        self,
        row: &Rc<Row>,
        row_block: u32,
        wait: HedgeDelay,
        into: &mut [u8],
    ) -> Result<(), SpaceError> {
        let spot = row.shape.locate(row_block);
        let state = self.state_to_read(row, row_block).await?;
        if state == BlockState::Never {
            into.fill(0);
            return Ok(());
        }
        // A copy that misses other writes is as good for a block that it has.
        let is_good = |copy: &Copy| copy.result.is_ok() && matches_state(&copy.bytes, state);
        let mut copies = self.read_copies(row, spot.column, spot.block, wait).await;
        if copies.iter().any(|copy| copy.is_timed_out) && !copies.iter().any(is_good) {
            // Their memory first.
            copies.clear();
            copies = self.read_copies(row, spot.column, spot.block, HedgeDelay::Long).await;
        }
        let Some(good) = copies.iter().find(|copy| is_good(copy)) else {
            return Err(self.lost(row, spot.column, spot.block, &copies));
        };
        into.copy_from_slice(&good.bytes);
        for copy in copies.iter().filter(|copy| copy.is_to_be_healed(state)) {
            copy.disk.note(|counters| counters.checksum_errors += 1);
            self.space.shared.count(|counters| counters.checksum_errors += 1);
            tracing::warn!(space = %self.space.name(), disk = %copy.disk.name(), row = row.index, block = row_block, "healing a block");
            let source = if mutation!(HealFromBadCopy) { &copy.bytes } else { &good.bytes };
            self.write_copy(copy, source).await;
        }
        Ok(())
    }

    /// Rewrites one copy of a block.
    pub(crate) async fn write_copy(self, copy: &Copy, content: &[u8]) {
        if !self.space.shared.may_write() {
            return;
        }
        let mut buffer = self.space.shared.pool.seams().metadata.take(BLOCK).await;
        buffer.copy_in(content);
        if copy.disk.write(copy.at, buffer.freeze(), Durability::Cached).await.is_ok() {
            copy.disk.note(|counters| counters.healed_blocks += 1);
            self.space.shared.count(|counters| counters.healed_blocks += 1);
        }
    }

    /// Every copy of a block whose disk is here. With little time those that take theirs are late.
    #[pooled]
    pub(crate) async fn read_copies(
        self,
        row: &Rc<Row>,
        column: usize,
        block: u32,
        wait: HedgeDelay,
    ) -> SmallVec<[Copy; 4]> {
        let places: SmallVec<[(Rc<Disk>, u64, bool); 4]> = row.with_slabs(column, |slabs| {
            let here = slabs.iter().filter_map(|slab| Some((slab.present(&self.space.shared.pool)?, slab)));
            here.filter_map(|(disk, slab)| {
                let pieces = slab.pieces(u64::from(block) * BLOCK_BYTES, BLOCK);
                Some((disk, pieces.first()?.at, slab.stale.is_none()))
            })
            .collect()
        });
        let mut reads: SmallVec<[_; 4]> = SmallVec::new();
        for (disk, at, trusted) in places {
            let buffer = self.space.shared.pool.seams().metadata.take(BLOCK).await;
            let within = Hedging::of(&self.space.shared).hedge_delay_with_copy(row, column, &disk, wait);
            let read = match within {
                Some(Duration::ZERO) => Err(buffer),
                within => Ok(disk.read_within(at, buffer, within)),
            };
            reads.push((read, within, (disk, at, trusted)));
        }
        let mut copies = SmallVec::new();
        for (read, within, (disk, at, trusted)) in reads {
            let (bytes, result) = match read {
                Ok(read) => read.await,
                Err(buffer) => (buffer, Err(DeviceError::TimedOut)),
            };
            let is_timed_out = within.is_some() && result == Err(DeviceError::TimedOut);
            copies.push(Copy { disk, at, trusted, bytes, result, is_timed_out });
        }
        copies
    }

    fn lost(self, row: &Row, column: usize, block: u32, copies: &[Copy]) -> SpaceError {
        let errors = || copies.iter().filter(|copy| copy.trusted).filter_map(|copy| copy.result.err());
        let was_read = |slot| copies.iter().any(|copy| copy.disk.slot() == slot);
        let is_away = row.has_other_trusted(column, was_read);
        // The copy that is away may be the good one.
        let why = if is_away || !copies.iter().any(|copy| copy.trusted) {
            UnreadableReason::Absent
        } else if let Some(silence) = errors().find(|error| is_silence(*error)) {
            UnreadableReason::Device(silence)
        } else if row.may_have_other_good(column, was_read) {
            UnreadableReason::CorruptHere
        } else {
            errors().next().map_or(UnreadableReason::NoGoodCopy, UnreadableReason::Device)
        };
        let row_block = row.shape.row_block(column, block);
        match why {
            UnreadableReason::NoGoodCopy => {
                self.space.shared.count(|counters| counters.lost_blocks += 1);
                self.space.note(row, row_block, DataLossKind::Lost);
            }
            UnreadableReason::CorruptHere => self.space.note(row, row_block, DataLossKind::CorruptHere),
            _ => {}
        }
        TableStore::of(&self.space.shared).unreadable(row, column, block as usize, why)
    }
}
