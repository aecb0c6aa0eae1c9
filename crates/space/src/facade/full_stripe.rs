//! Whole stripes go in place at once, data and parity, with one record of both, where nothing was (docs/design/0004, *Fresh stripes in
//! place*): in the row, or in its shadow row.
//!
//! Invariants:
//! - Nothing is written in place with parity but whole stripes of which a flush has covered that no block was ever written there.
//! - Memory for parity is taken before any lock, and nobody waits for it who holds some.
//!
//! Left to others: what a crash leaves of it (`in_flight`); everything else that is written (`write`, `cache`).

use std::cell::Cell;
use std::iter::repeat_n;
use std::rc::Rc;

use dolmen_block_io::sync::join_all;
use dolmen_buffer::Shared as Bytes_;
use dolmen_future_pool::pooled;
use dolmen_units::BLOCK_BYTES;
use smallvec::SmallVec;

use crate::cache::space::Space;
use crate::cache::write_cache::CACHED_BYTES_MAX;
use crate::format::error::SpaceError;
use crate::layout::shape::{PARITY_BYTES_MAX, interleave_bytes, stripe_at};
use crate::layout::{BLOCK, RowShape, Shape, Unit};
use crate::relocation::shadow_rows::Followed;
use crate::relocation::slot_switch::Slot;
use crate::resources::forming::{Active, Pieces};
use crate::resources::locks::Range;
use crate::row_io::parts::{Part, Parts};
use crate::table::row::Row;

/// How often stripes look for a slot, of which flushes free some between.
const TRIES: usize = 8;

/// What became of whole stripes that were to go in place.
enum Tried {
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

/// What a request has for one row.
struct OfRow<'a> {
    index: u64,
    /// Its first byte in the row.
    within: u64,
    data: Bytes_,
    /// Under way from here on, for those who wait for the rest of a stripe, until its parts are.
    entering: Cell<Option<Active<'a>>>,
}

impl Space {
    /// Writes `data` from byte `at` on, cut so that whole stripes go in place where they seem fresh. The caller has checked the
    /// range.
    #[pooled]
    pub(crate) async fn store_with_parity(&self, at: u64, data: &Bytes_) -> Result<(), SpaceError> {
        // Nothing is claimed for what cannot be written.
        self.shared.pool.log().wait_for_room().await?;
        let _request = self.forming.request();
        let entering = self.forming.begin();
        let stream = self.follow(at, data.len() as u64).await?;
        let mut of_rows: SmallVec<[OfRow<'_>; 2]> = SmallVec::new();
        let mut done = 0;
        while done < data.len() {
            let at = at + done as u64;
            let (index, within) = (at / self.row_bytes(), at % self.row_bytes());
            let room = usize::try_from(self.row_bytes() - within).unwrap_or(usize::MAX);
            let data = data.slice(done..done + room.min(data.len() - done));
            done += data.len();
            of_rows.push(OfRow { index, within, data, entering: Cell::new(Some(self.forming.begin())) });
        }
        drop(entering);
        let store = |of_row| self.store_in_row(of_row, stream);
        match of_rows.as_slice() {
            [one] => store(one).await,
            // Beside each other: what is of one row does not wait for the shadow row of the next.
            of_rows => join_all(of_rows.iter().map(store)).await.into_iter().collect(),
        }
    }

    /// Writes whole blocks to a row of a hidden space of conversion shadows.
    pub(crate) async fn store_in_conversion_shadow(
        &self,
        index: u64,
        within: u64,
        data: Bytes_,
    ) -> Result<(), SpaceError> {
        self.shared.gate().await?;
        let entering = Cell::new(Some(self.forming.begin()));
        self.store_in_row(&OfRow { index, within, data, entering }, Followed::default()).await
    }

    #[pooled]
    async fn store_in_row(&self, of_row: &OfRow<'_>, stream: Followed) -> Result<(), SpaceError> {
        let OfRow { index, within, data, entering } = of_row;
        match stream.lacks_shadows {
            Some(stream) => self.provide_shadow(*index, *within, stream).await?,
            None => self.provide_slots(*index, *within, data.len() as u64).await?,
        }
        let mut parts: SmallVec<[(u64, Bytes_); 3]> = SmallVec::new();
        let mut done = 0;
        while done < data.len() {
            let within = within + done as u64;
            let length = self.part_length(*index, within, data.len() - done).await?;
            parts.push((within, data.slice(done..done + length)));
            done += length;
        }
        let write = async |(within, part): &(u64, Bytes_)| {
            let _active = self.forming.begin();
            drop(entering.take());
            let done = self.write_stripes(*index, *within, &Pieces::one(part)).await?
                || self.form(*index, *within, part, stream.goes_on).await?;
            if done {
                return Ok(());
            }
            self.pass_gate().await?;
            self.write_in_row(*index, *within, part.clone()).await
        };
        match parts.as_slice() {
            [part] => write(part).await,
            // Beside each other: who waits for the rest of its first stripe has to bring that of its last one.
            parts => join_all(parts.iter().map(write)).await.into_iter().collect(),
        }
    }

    /// Waits until a write may begin. Who waits for what such a write brings knows that it is waiting here.
    async fn pass_gate(&self) -> Result<(), SpaceError> {
        let _held_up = self.forming.hold_up();
        self.shared.gate().await
    }

    /// How much of what is to be written from byte `within` of a row goes out as one: stripes that seem to be fresh, a part of
    /// one, or as much as the write cache takes at once.
    #[pooled]
    async fn part_length(&self, index: u64, within: u64, length: usize) -> Result<usize, SpaceError> {
        let usual = length.min(CACHED_BYTES_MAX);
        let row = self.row_for_write(index).await?;
        if row.shape.unit() == Unit::Block {
            return Ok(usual);
        }
        let (start, stripe) = stripe_at(&row.shape, within);
        let end = start + stripe as u64;
        if within > start {
            let before_end = usize::try_from(end - within).unwrap_or(usize::MAX);
            let is_cut = before_end < length
                && (self.location_of_new(&row, start).await?.is_some()
                    || self.location_of_new(&row, end).await?.is_some());
            return Ok(if is_cut { before_end } else { usual });
        }
        let whole = length / stripe;
        let stripe_location = self.location_of_new(&row, within).await?;
        if whole == 0 || (stripe_location.is_none() && row.shadow().is_none()) {
            return Ok(usual);
        }
        // What one request has under way is bounded by the memory for parity, but a stripe is not divided.
        let parity = interleave_bytes(&row.shape) * row.shape.computed_columns().len();
        let most = (CACHED_BYTES_MAX / stripe).min(CACHED_BYTES_MAX / 4 / parity).max(1);
        let mut count = 1;
        // They go out as one as far as they go to one place.
        while row.shadow().is_some() && count < whole.min(most) {
            let next = self.location_of_new(&row, within + (count * stripe) as u64).await?;
            if next.map(|next| next.id) != stripe_location.as_ref().map(|stripe_location| stripe_location.id)
            {
                return Ok(count * stripe);
            }
            count += 1;
        }
        Ok(whole.min(most) * stripe)
    }

    /// Writes whole stripes of a row in place, if they have a free slot and there is memory for their parity; whether it did.
    #[pooled]
    pub(crate) async fn write_stripes(
        &self,
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
                Tried::OfStream(row) if !self.let_alternate(&row) => return Ok(false),
                Tried::OfStream(_) => {}
                Tried::Cached(row, range) => {
                    let cache = self.cache_of(&row).filter(|_| self.shadows.alternates(&row));
                    let Some(cache) = cache.filter(|_| !is_destaged) else { return Ok(false) };
                    let _held_up = self.forming.hold_up();
                    match cache.destage_range(&row, range).await {
                        // The cache takes what replaces it.
                        Err(error) if error.may_pass() => return Ok(false),
                        put => put?,
                    }
                    is_destaged = true;
                }
                Tried::AfterFlush => {
                    let _held_up = self.forming.hold_up();
                    self.shared.flush().await?;
                }
            }
        }
        Ok(false)
    }

    /// As [`write_stripes`](Self::write_stripes), one after another, each wherever it goes.
    #[pooled]
    async fn write_apart(&self, index: u64, within: u64, data: &Pieces) -> Result<bool, SpaceError> {
        let row = self.row_for_write(index).await?;
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
                    self.write_in_row(index, within + from as u64, piece.clone()).await?;
                    from += piece.len();
                }
            }
            done += stripe;
        }
        Ok(true)
    }

    #[pooled]
    async fn try_stripes(&self, index: u64, within: u64, data: &Pieces) -> Result<Tried, SpaceError> {
        let row = self.row_for_write(index).await?;
        let (start, stripe) = stripe_at(&row.shape, within);
        if row.shape.unit() == Unit::Block || within != start || !data.len().is_multiple_of(stripe) {
            return Ok(Tried::NoSlot);
        }
        if row.shadow().is_none() && self.location_of_new(&row, within).await?.is_none() {
            return Ok(Tried::NoSlot);
        }
        self.pass_gate().await?;
        let blocks = |bytes: u64| u32::try_from(bytes / BLOCK_BYTES).unwrap_or(u32::MAX);
        let range = Range { first: blocks(within), count: blocks(data.len() as u64) };
        let lines = blocks((data.len() / stripe * interleave_bytes(&row.shape)) as u64);
        let parity_blocks = lines * u32::try_from(row.shape.computed_columns().len()).unwrap_or(1);
        let _frames = self.shared.stripes.take(frames_of(&row.shape, lines)).await;
        let Some(parts) = self.with_parity(&row.shape, range, data) else { return Ok(Tried::NoSlot) };
        // The other slot says a few words more.
        let _log_room = self.shared.room_for(range.count + 2 * parity_blocks).await?;
        let _guard = row.locks.lock(range).await;
        if row.freed.get() || row.moves.is_held() || self.shared.is_deferred(&row) {
            return Ok(Tried::NoSlot);
        }
        // The space may have been made smaller while this waited for the lock.
        self.check_range(index * self.row_bytes() + within, data.len() as u64)?;
        let first_stripe = row.shape.locate(range.first).block;
        let is_cached =
            row.mappings.has_any_of(range) || self.is_unfinished(&row, first_stripe..first_stripe + lines);
        if is_cached {
            return Ok(Tried::Cached(Rc::clone(&row), range));
        }
        let slot = self.slot_of(&row, first_stripe..first_stripe + lines, &parts).await?;
        row.moves.touch(range);
        let lines = Range { first: first_stripe, count: lines };
        Ok(match slot {
            Slot::AfterFlush => Tried::AfterFlush,
            Slot::OfStream => Tried::OfStream(Rc::clone(&row)),
            Slot::Detached(row) => match self.leave_slots(&row, lines).await? {
                true => Tried::AfterFlush,
                false => Tried::NoSlot,
            },
            Slot::Apart if data.len() > stripe => Tried::Apart,
            slot => match self.write_to_slot(&row, slot, lines, parts).await? {
                true => Tried::Written,
                false => Tried::NoSlot,
            },
        })
    }

    /// Whether a stripe of these waits to be finished.
    fn is_unfinished(&self, row: &Row, lines: std::ops::Range<u32>) -> bool {
        self.cache_of(row).is_some_and(|cache| {
            cache
                .unfinished
                .borrow()
                .iter()
                .any(|redo| redo.row.is_paired_with(row) && lines.contains(&redo.stripe))
        })
    }

    /// Whole stripes cut into parts of columns, with their parity; `None` where there is no memory for it now.
    fn with_parity(&self, shape: &RowShape, range: Range, data: &Pieces) -> Option<Parts> {
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
            let arena = &self.shared.pool.seams().metadata;
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

/// Frames that the parity of so many stripes takes.
fn frames_of(shape: &Shape, lines: u32) -> u64 {
    let of_column = u64::from(lines) * BLOCK_BYTES;
    of_column.div_ceil(PARITY_BYTES_MAX as u64) * shape.computed_columns().len() as u64
}
