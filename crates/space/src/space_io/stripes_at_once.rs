//! Whole stripes that go in place at once.

use std::iter::repeat_n;
use std::rc::Rc;

use dolmen_buffer::Shared as Bytes_;
use dolmen_future_pool::pooled;
use dolmen_units::BLOCK_BYTES;
use smallvec::SmallVec;

use crate::format::error::SpaceError;
use crate::layout::plan::{WriteClass, WriteFacts, WritePlan};
use crate::layout::shape::{PARITY_BYTES_MAX, interleave_bytes, stripe_at};
use crate::layout::{BLOCK, RowShape, Shape, Unit};
use crate::relocation::allocator::Allocator;
use crate::relocation::destage_stripes::Destage;
use crate::relocation::shadow_rows::ShadowClaims;
use crate::relocation::slot_switch::{Slot, StripeSlots};
use crate::resources::forming::Pieces;
use crate::resources::locks::Range;
use crate::row_io::flusher::Flusher;
use crate::row_io::parts::{Part, Parts};
use crate::space_io::row_write::{RowWriter, is_open_to_writes};
use crate::table::row::Row;
use crate::table::space::SpaceRows;

/// Whole stripes that go in place at once.
#[derive(Clone, Copy)]
pub(crate) struct StripesAtOnce<'a> {
    space: &'a SpaceRows,
}

impl<'a> StripesAtOnce<'a> {
    /// Returns the service for a space.
    pub(crate) fn of(space: &'a SpaceRows) -> Self {
        Self { space }
    }
}

impl StripesAtOnce<'_> {
    /// Waits until a write may begin. Who waits for what such a write brings knows that it is waiting here.
    pub(crate) async fn pass_gate(self) -> Result<(), SpaceError> {
        let _held_up = self.space.forming.hold_up();
        Flusher::of(&self.space.shared).gate().await
    }

    /// Writes whole stripes of a row in place, if they have a free slot and there is memory for their parity; whether it did.
    #[pooled]
    pub(crate) async fn write_stripes(
        self,
        index: u64,
        within: u64,
        data: &Pieces,
    ) -> Result<bool, SpaceError> {
        let mut is_destaged = false;
        for _ in 0..TRIES {
            match self.try_stripes(index, within, data).await? {
                Tried::Written => return Ok(true),
                Tried::NoSlot => return Ok(false),
                Tried::Apart => return self.write_apart(index, within, data).await,
                Tried::OfStream(row) if !ShadowClaims::of(self.space).let_alternate(&row) => {
                    return Ok(false);
                }
                Tried::OfStream(_) => {}
                Tried::Cached(row, range) => {
                    let cache = self.space.cache_of(&row).filter(|_| self.space.shadows.alternates(&row));
                    let Some(cache) = cache.filter(|_| !is_destaged) else { return Ok(false) };
                    let _held_up = self.space.forming.hold_up();
                    match Destage::of(&cache).destage_range(&row, range).await {
                        // The cache takes what replaces it.
                        Err(error) if error.may_pass() => return Ok(false),
                        put => put?,
                    }
                    is_destaged = true;
                }
                Tried::AfterFlush => {
                    let _held_up = self.space.forming.hold_up();
                    Flusher::of(&self.space.shared).flush().await?;
                }
            }
        }
        Ok(false)
    }

    /// As [`write_stripes`](Self::write_stripes), one after another, each wherever it goes.
    #[pooled]
    async fn write_apart(self, index: u64, within: u64, data: &Pieces) -> Result<bool, SpaceError> {
        let row = Allocator::of(self.space).row_for_write(index).await?;
        let mut done = 0;
        while done < data.len() {
            let within = within + done as u64;
            let (_, stripe) = stripe_at(&row.shape, within);
            let stripe = stripe.min(data.len() - done);
            let mut from = 0;
            let one = data.part(done, stripe);
            if !Box::pin(self.write_stripes(index, within, &one)).await? {
                self.pass_gate().await?;
                while from < stripe {
                    let piece = one.at(from, stripe - from);
                    RowWriter::of(self.space)
                        .write_in_row(index, within + from as u64, piece.clone())
                        .await?;
                    from += piece.len();
                }
            }
            done += stripe;
        }
        Ok(true)
    }

    #[pooled]
    async fn try_stripes(self, index: u64, within: u64, data: &Pieces) -> Result<Tried, SpaceError> {
        let row = Allocator::of(self.space).row_for_write(index).await?;
        let (start, stripe) = stripe_at(&row.shape, within);
        if row.shape.unit() == Unit::Block || within != start || !data.len().is_multiple_of(stripe) {
            return Ok(Tried::NoSlot);
        }
        if row.shadow().is_none()
            && ShadowClaims::of(self.space).location_of_new(&row, within).await?.is_none()
        {
            return Ok(Tried::NoSlot);
        }
        self.pass_gate().await?;
        let blocks = |bytes: u64| u32::try_from(bytes / BLOCK_BYTES).unwrap_or(u32::MAX);
        let range = Range { first: blocks(within), count: blocks(data.len() as u64) };
        let lines = blocks((data.len() / stripe * interleave_bytes(&row.shape)) as u64);
        let parity_blocks = lines * u32::try_from(row.shape.computed_columns().len()).unwrap_or(1);
        let _frames = self.space.shared.stripes.take(frames_of(&row.shape, lines)).await;
        let Some(parts) = self.with_parity(&row.shape, range, data) else { return Ok(Tried::NoSlot) };
        // The other slot says a few words more.
        let _log_room = Flusher::of(&self.space.shared).room_for(range.count + 2 * parity_blocks).await?;
        let _guard = row.locks.lock(range).await;
        if !is_open_to_writes(&self.space.shared, &row) {
            return Ok(Tried::NoSlot);
        }
        // The space may have been made smaller while this waited for the lock.
        self.space.check_range(index * self.space.row_bytes() + within, data.len() as u64)?;
        let first_stripe = row.shape.locate(range.first).block;
        let is_cached =
            row.mappings.has_any_of(range) || self.is_unfinished(&row, first_stripe..first_stripe + lines);
        let plan_with = |has_free_slot| {
            let class = WriteClass::Fresh;
            row.shape.plan_write(&WriteFacts { class, is_cached, is_strict: true, has_free_slot })
        };
        if plan_with(true) == WritePlan::Cached {
            return Ok(Tried::Cached(Rc::clone(&row), range));
        }
        let slot =
            StripeSlots::of(self.space).slot_of(&row, first_stripe..first_stripe + lines, &parts).await?;
        row.moves.touch(range);
        let lines = Range { first: first_stripe, count: lines };
        if plan_with(slot.is_free()) == WritePlan::WholeStripes {
            return Ok(match StripeSlots::of(self.space).write_to_slot(&row, slot, lines, parts).await? {
                true => Tried::Written,
                false => Tried::NoSlot,
            });
        }
        Ok(match slot {
            Slot::AfterFlush => Tried::AfterFlush,
            Slot::OfStream => Tried::OfStream(Rc::clone(&row)),
            Slot::Detached(row) => match StripeSlots::of(self.space).leave_slots(&row, lines).await? {
                true => Tried::AfterFlush,
                false => Tried::NoSlot,
            },
            Slot::Apart if data.len() > stripe => Tried::Apart,
            _ => Tried::NoSlot,
        })
    }

    /// Whether a stripe of these waits to be finished.
    fn is_unfinished(self, row: &Row, lines: std::ops::Range<u32>) -> bool {
        self.space.cache_of(row).is_some_and(|cache| {
            cache
                .unfinished
                .borrow()
                .iter()
                .any(|redo| redo.row.is_paired_with(row) && lines.contains(&redo.stripe))
        })
    }

    /// Whole stripes cut into parts of columns, with their parity; `None` where there is no memory for it now.
    fn with_parity(self, shape: &RowShape, range: Range, data: &Pieces) -> Option<Parts> {
        let of_interleave = interleave_bytes(shape);
        // What the others have not counts as zeros.
        let columns = shape.data_columns().min(data.len() / of_interleave);
        let lacking = shape.data_columns() - columns;
        let of_column = data.len() / columns;
        let first_stripe = shape.locate(range.first).block;
        let stripe_of = |offset: usize| first_stripe + u32::try_from(offset / BLOCK).unwrap_or(u32::MAX);
        // What follows a byte of a column in one piece, so many bytes at most.
        let of_data = |column: usize, offset: usize, most: usize| {
            let (stripe, within) = (offset / of_interleave, offset % of_interleave);
            let from = (stripe * columns + column) * of_interleave + within;
            data.at(from, most.min(of_interleave - within))
        };
        let mut parts = Parts::new();
        for column in 0..columns {
            let mut done = 0;
            while done < of_column {
                let content = of_data(column, done, of_column - done);
                let block_stripe = stripe_of(done);
                done += content.len();
                parts.push(Part::new(column, block_stripe, content));
            }
        }
        for first in (0..of_column).step_by(PARITY_BYTES_MAX) {
            let length = PARITY_BYTES_MAX.min(of_column - first);
            let arena = &self.space.shared.pool.seams().metadata;
            let mut parity: SmallVec<[_; 2]> = SmallVec::new();
            for _ in shape.computed_columns() {
                parity.push(arena.try_take(length)?);
            }
            let mut done = 0;
            while done < length {
                let most = length - done;
                let blocks: SmallVec<[Bytes_; 12]> =
                    (0..columns).map(|column| of_data(column, first + done, most)).collect();
                let run = blocks.iter().map(|block| block.len()).min().unwrap_or(most);
                let blocks: SmallVec<[Option<&[u8]>; 12]> =
                    blocks.iter().map(|block| block.get(..run)).chain(repeat_n(None, lacking)).collect();
                let mut into: SmallVec<[Option<&mut [u8]>; 2]> =
                    parity.iter_mut().map(|buffer| buffer.get_mut(done..done + run)).collect();
                shape.encode(&blocks, &mut into);
                done += run;
            }
            for (column, buffer) in (shape.data_columns()..).zip(parity) {
                parts.push(Part::new(column, stripe_of(first), buffer.freeze()));
            }
        }
        Some(parts)
    }
}

/// How often stripes look for a slot, of which flushes free some between.
pub(crate) const TRIES: usize = 8;

/// What became of whole stripes that were to go in place.
pub(crate) enum Tried {
    Written,
    /// There is no slot for them, or not now.
    NoSlot,
    /// There is one when a flush has freed it.
    AfterFlush,
    /// Each by itself may have one.
    Apart,
    /// There is one when the shadow row of the row is no more only for its stream.
    OfStream(Rc<Row>),
    /// There may be one when what is cached of these blocks is in place.
    Cached(Rc<Row>, Range),
}

/// Frames that the parity of so many stripes takes.
pub(crate) fn frames_of(shape: &Shape, lines: u32) -> u64 {
    let of_column = u64::from(lines) * BLOCK_BYTES;
    of_column.div_ceil(PARITY_BYTES_MAX as u64) * shape.computed_columns().len() as u64
}
