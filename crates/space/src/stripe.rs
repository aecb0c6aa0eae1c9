//! Whole stripes that were never written go to their places at once, data and parity, with one record of both (docs/design/0004,
//! *Fresh stripes in place*).
//!
//! Invariants:
//! - Nothing is written in place with parity but whole lines of which a flush has covered that no block was ever written.
//! - Memory for parity is taken before any lock, and nobody waits for it who holds some.
//!
//! Left to others: what a crash leaves of it (`in_flight`); everything else that is written (`write`, `cache`).

use std::rc::Rc;

use dolmen_buffer::Shared as Bytes_;
use dolmen_units::BLOCK_BYTES;
use smallvec::SmallVec;

use crate::cache::CACHED_BYTES_MAX;
use crate::error::SpaceError;
use crate::layout::{BLOCK, Shape};
use crate::line::code_of;
use crate::locks::Range;
use crate::record::BlockState;
use crate::row::Row;
use crate::shared::place_in_page;
use crate::space::Space;
use crate::write::{Beside, Part, Parts};

/// Bytes of parity of one column that are computed as one piece, at most: a frame.
pub(crate) const PARITY_BYTES_MAX: usize = 64 * 1024;

impl Space {
    /// How much of what is to be written from byte `within` of a row goes out next: stripes that seem to be fresh by
    /// themselves, others as much as the write cache takes at once.
    pub(crate) async fn piece_for_parity(
        &self,
        index: u64,
        within: u64,
        length: usize,
    ) -> Result<usize, SpaceError> {
        let usual = length.min(CACHED_BYTES_MAX);
        let row = self.row_for_write(index).await?;
        let stripe = stripe_bytes(&row.shape);
        let skipped = usize::try_from(within.next_multiple_of(stripe as u64) - within).unwrap_or(usize::MAX);
        let whole = length.saturating_sub(skipped) / stripe;
        if whole == 0 || !self.seems_fresh(&row, within + skipped as u64).await? {
            return Ok(usual);
        }
        // What one request has under way is bounded by the memory for parity, but a stripe is not divided.
        let parity = stripe / row.shape.data_columns() * row.shape.parity_columns();
        let most = (CACHED_BYTES_MAX / stripe).min(CACHED_BYTES_MAX / 4 / parity).max(1);
        Ok(if skipped > 0 { skipped } else { whole.min(most) * stripe })
    }

    /// Whether the stripe that begins at a byte of a row looks as if it was never written.
    async fn seems_fresh(&self, row: &Rc<Row>, within: u64) -> Result<bool, SpaceError> {
        let block = u32::try_from(within / BLOCK_BYTES).unwrap_or(u32::MAX);
        let spot = row.shape.locate(block);
        let (page, entry) = place_in_page(spot.block);
        match self.shared.page(row, spot.column, page).await {
            Ok(page) => Ok(page.state(entry) == BlockState::Never && row.mappings.newest(block).is_none()),
            // The write cache takes it without having to know.
            Err(SpaceError::Unreadable { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Writes whole stripes of a row in place, if they are fresh and there is memory for their parity; whether it did.
    pub(crate) async fn write_stripes(
        &self,
        index: u64,
        within: u64,
        data: &Bytes_,
    ) -> Result<bool, SpaceError> {
        let row = self.row_for_write(index).await?;
        let stripe = stripe_bytes(&row.shape);
        if !row.has_parity() || !within.is_multiple_of(stripe as u64) || !data.len().is_multiple_of(stripe) {
            return Ok(false);
        }
        if !self.seems_fresh(&row, within).await? {
            return Ok(false);
        }
        let blocks = |bytes: u64| u32::try_from(bytes / BLOCK_BYTES).unwrap_or(u32::MAX);
        let range = Range { first: blocks(within), count: blocks(data.len() as u64) };
        let lines = range.count / u32::try_from(row.shape.data_columns()).unwrap_or(1);
        let parity_blocks = lines * u32::try_from(row.shape.parity_columns()).unwrap_or(1);
        let _frames = self.shared.stripes.take(frames_of(&row.shape, lines)).await;
        let Some(parts) = self.with_parity(&row.shape, range, data) else { return Ok(false) };
        let _log_room = self.shared.room_for(range.count + parity_blocks).await?;
        let _guard = row.locks.lock(range).await;
        if row.gone.get() || self.shared.is_unresolved(&row) {
            return Ok(false);
        }
        // The space may have been made smaller while this waited for the lock.
        self.check_range(index * self.row_bytes() + within, data.len() as u64)?;
        let first_line = row.shape.locate(range.first).block;
        let is_cached =
            row.mappings.has_any_of(range) || self.is_unfinished(&row, first_line..first_line + lines);
        if is_cached || !self.are_fresh(&row, &parts).await? {
            return Ok(false);
        }
        self.shared.settle_absences(&row).await?;
        self.write_parts(&row, parts, Beside::Nothing).await?;
        Ok(true)
    }

    /// Whether a line of these waits to be finished.
    fn is_unfinished(&self, row: &Row, lines: std::ops::Range<u32>) -> bool {
        let cache = self.cache.borrow();
        cache.as_ref().is_some_and(|cache| {
            cache.unfinished.borrow().iter().any(|redo| redo.row.id == row.id && lines.contains(&redo.line))
        })
    }

    /// Whole stripes cut into parts of columns, with their parity; `None` where there is no memory for it now.
    fn with_parity(&self, shape: &Shape, range: Range, data: &Bytes_) -> Option<Parts> {
        let columns = shape.data_columns();
        let of_interleave = usize::try_from(shape.interleave().0).unwrap_or(BLOCK);
        let first_line = shape.locate(range.first).block;
        let mut parts = Parts::new();
        let line_of = |offset: usize| first_line + u32::try_from(offset / BLOCK).unwrap_or(u32::MAX);
        for (nth, stripe) in (0..data.len()).step_by(columns * of_interleave).enumerate() {
            for column in 0..columns {
                let from = stripe + column * of_interleave;
                parts.push(Part::new(
                    column,
                    line_of(nth * of_interleave),
                    data.slice(from..from + of_interleave),
                ));
            }
        }
        let of_column = data.len() / columns;
        for piece in (0..of_column).step_by(PARITY_BYTES_MAX) {
            let length = PARITY_BYTES_MAX.min(of_column - piece);
            let arena = &self.shared.pool.seams().metadata;
            let mut parity: SmallVec<[_; 2]> = SmallVec::new();
            for _ in 0..shape.parity_columns() {
                parity.push(arena.try_take(length)?);
            }
            let mut done = 0;
            while done < length {
                let (stripe, within) = ((piece + done) / of_interleave, (piece + done) % of_interleave);
                let run = (of_interleave - within).min(length - done);
                let of_stripe = (0..columns).map(|column| {
                    let from = (stripe * columns + column) * of_interleave + within;
                    data.get(from..from + run)
                });
                let of_stripe: SmallVec<[Option<&[u8]>; 12]> = of_stripe.collect();
                let mut into: SmallVec<[Option<&mut [u8]>; 2]> =
                    parity.iter_mut().map(|buffer| buffer.get_mut(done..done + run)).collect();
                code_of(shape)
                    .encode(&of_stripe, &mut into)
                    .unwrap_or_else(|error| panic!("blocks of a line are blocks: {error}"));
                done += run;
            }
            for (column, buffer) in (columns..).zip(parity) {
                parts.push(Part::new(column, line_of(piece), buffer.freeze()));
            }
        }
        Some(parts)
    }
}

fn stripe_bytes(shape: &Shape) -> usize {
    let interleave = usize::try_from(shape.interleave().0).unwrap_or(usize::MAX);
    shape.data_columns() * interleave
}

/// Frames that the parity of so many lines takes.
fn frames_of(shape: &Shape, lines: u32) -> u64 {
    let of_column = u64::from(lines) * BLOCK_BYTES;
    of_column.div_ceil(PARITY_BYTES_MAX as u64) * shape.parity_columns() as u64
}
