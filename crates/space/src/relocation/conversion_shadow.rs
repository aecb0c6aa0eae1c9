//! Conversion shadows of rows: filled while clients go on, and made the rows (docs/design/0020, steps 2 and 5).
//!
//! Invariants:
//! - A conversion shadow is promoted only with everything that the row holds, on all of its disks, flushed, its tables as well.
//! - What nobody can read is damaged in the conversion shadow, too: no checksum is made of what was not verified.
//!
//! Left to others: which rows have conversion shadows, and when (`convert`); writing to conversion shadows, which are rows like any
//! (`write`, `full_stripe`).

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use dolmen_block_io::sync::join_all;
use dolmen_buffer::Scratch;
use dolmen_future_pool::pooled;
use dolmen_mutation::mutation;
use dolmen_pool::{Purpose, keys};
use dolmen_units::BLOCK_BYTES;
use smallvec::SmallVec;

use crate::cache::space::Space;
use crate::format::error::{SpaceError, UnreadableReason};
use crate::format::record::{BlockState, push_extent};
use crate::layout::shape::{READ_BYTES_MAX, stripe_at};
use crate::layout::{BLOCK, Shape};
use crate::resources::locks::Range;
use crate::resources::progress::Progress;
use crate::row_io::segments::{Segment, Segments};
use crate::table::moving::Watch;
use crate::table::page::place_in_page;
use crate::table::row::Row;

/// Pieces that are copied beside each other, at most.
const PIECES_AT_A_TIME: usize = 4;
/// Large frames of metadata memory that copying a piece takes: it is read into one, and put together in another.
const FRAMES_OF_PIECE: u64 = 2;

/// A row, what is about to take its place, and what is known of it meanwhile.
pub(crate) struct ConversionShadow {
    pub(crate) row: Rc<Row>,
    pub(crate) conversion_shadow: Rc<Row>,
    pub(crate) watch: Watch,
    /// Something stands in the way: it stays as it is for now.
    pub(crate) is_left: Cell<bool>,
}

/// What a block of a row is, for its conversion shadow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Holds {
    Nothing,
    Data,
    Lost,
}

impl Space {
    /// Frees all rows that there are.
    pub(crate) async fn free_all_rows(&self) -> Result<(), SpaceError> {
        let mut rows = Vec::new();
        self.for_each_record(|index, _| rows.push(index)).await?;
        self.free_rows(&rows).await
    }

    /// Copies ranges of rows to their conversion shadows, several beside each other. Rows of which something cannot be read now are
    /// left.
    #[pooled]
    pub(crate) async fn copy_to_conversion_shadows(
        &self,
        conversion_shadows: &Space,
        conversion_shadow: &[ConversionShadow],
        ranges: Vec<Vec<Range>>,
        progress: &Progress,
    ) -> Result<(), SpaceError> {
        let of_rows = conversion_shadow.iter().zip(ranges);
        let pieces = of_rows.flat_map(|(one, ranges)| {
            ranges
                .into_iter()
                .flat_map(|range| pieces_of(&one.conversion_shadow.shape, range))
                .map(move |piece| (one, piece))
        });
        let pieces = RefCell::new(pieces);
        let work = async |_: usize| {
            loop {
                let next = pieces.borrow_mut().next();
                let Some((one, piece)) = next else { return Ok(()) };
                if one.is_left.get() {
                    continue;
                }
                let clock = &self.shared.pool.seams().clock;
                let began = clock.now();
                match self.copy_piece(conversion_shadows, one, piece).await {
                    Ok(()) => {}
                    Err(error) if error.may_pass() => one.is_left.set(true),
                    Err(error) => return Err(error),
                }
                progress.bytes.set(progress.bytes.get() + u64::from(piece.count) * BLOCK_BYTES);
                self.shared.throttle.rest(clock.as_ref(), began).await;
            }
        };
        let ended = join_all((0..PIECES_AT_A_TIME).map(work)).await;
        ended.into_iter().collect()
    }

    #[pooled]
    async fn copy_piece(
        &self,
        conversion_shadows: &Space,
        one: &ConversionShadow,
        piece: Range,
    ) -> Result<(), SpaceError> {
        let _memory = self.shared.conversion_shadows.take(FRAMES_OF_PIECE).await;
        // Whoever noted a block before is done with it then.
        drop(one.row.locks.lock(piece).await);
        let mut whole = self.shared.pool.seams().metadata.take(piece.count as usize * BLOCK).await;
        let mut holds: SmallVec<[Holds; 256]> = SmallVec::new();
        match self.read_for_job(one.row.index, piece).await {
            Ok(segments) => note_segments(&segments, &mut whole, &mut holds),
            Err(SpaceError::Unreadable { .. }) => {
                for (block, into) in (piece.first..).zip(whole.chunks_exact_mut(BLOCK)) {
                    match self.read_for_job(one.row.index, Range { first: block, count: 1 }).await {
                        Ok(segments) => note_segments(&segments, into, &mut holds),
                        Err(SpaceError::Unreadable { why, .. }) if why.is_final() => {
                            match mutation!(ConversionShadowOfDamage) {
                                true => holds.push(Holds::Data),
                                false => holds.push(Holds::Lost),
                            }
                        }
                        Err(error) => return Err(error),
                    }
                }
            }
            Err(error) => return Err(error),
        }
        let whole = whole.freeze();
        let mut at = 0;
        for is_same in holds.chunk_by(PartialEq::eq) {
            let first = piece.first + u32::try_from(at).unwrap_or(u32::MAX);
            let content = whole.slice(at * BLOCK..(at + is_same.len()) * BLOCK);
            at += is_same.len();
            let within = u64::from(first) * BLOCK_BYTES;
            match is_same.first() {
                Some(Holds::Data) => {
                    conversion_shadows
                        .store_in_conversion_shadow(one.conversion_shadow.index, within, content)
                        .await?
                }
                Some(Holds::Nothing) => {
                    let start = one.conversion_shadow.index * self.row_bytes() + within;
                    conversion_shadows.discard_range(start, content.len() as u64).await?;
                }
                Some(Holds::Lost) => {
                    for block in (first..).take(is_same.len()) {
                        conversion_shadows.lose_block(&one.conversion_shadow, block).await?;
                    }
                }
                None => {}
            }
        }
        Ok(())
    }

    /// Says of a block of a conversion shadow that what it is to hold is lost. With parity, nobody knows then what the parity of
    /// its stripe is of.
    #[pooled]
    async fn lose_block(&self, row: &Rc<Row>, block: u32) -> Result<(), SpaceError> {
        let columns = row.shape.computed_columns().len() + 1;
        let _log_room = self.shared.room_for(u32::try_from(columns).unwrap_or(1)).await?;
        let spot = row.shape.locate(block);
        let stripe = Range { first: spot.block, count: 1 };
        let _guard = row.locks.lock(row.shape.lock_range(spot.column, stripe)).await;
        if row.mappings.newest(block).is_some() || self.shared.is_deferred(row) {
            // It was there when it was read first: another draft begins without it.
            return Err(self.shared.unreadable(
                row,
                spot.column,
                spot.block as usize,
                UnreadableReason::Absent,
            ));
        }
        let held = self.shared.tickets.begin();
        let (stamp, now) = (self.shared.stamp(), self.shared.now(&held));
        let of_parity = row.shape.data_columns()..row.shape.columns();
        for column in [spot.column].into_iter().chain(of_parity) {
            let (index, entry) = place_in_page(spot.block);
            let page = self.shared.page(row, column, index).await?;
            if column != spot.column && page.state(entry) == BlockState::Never {
                continue;
            }
            let mut body = Scratch::new();
            let extent = self.shared.extent(row, column, stripe, stamp);
            push_extent(&mut body, extent, &[BlockState::Damaged], page.durable_generation());
            self.shared.record(&body, dolmen_journal::Wait::Written).await?;
            page.set(entry, BlockState::Damaged, stamp, now);
            self.shared.note_unflushed(held.ticket(), row, column, stripe);
        }
        self.shared.note_dirty(row);
        if self.shared.stamp() != stamp || self.shared.is_deferred(row) {
            let lost = [spot.column].into_iter().chain(row.shape.data_columns()..row.shape.columns());
            self.shared.leave_what_is_away(row, lost.map(|column| (column, stripe))).await?;
        }
        Ok(())
    }

    /// Whether a conversion shadow can be promoted now. The caller holds the lock of all of the row.
    fn is_conversion_shadow_ready(&self, conversion_shadows: &Space, one: &ConversionShadow) -> bool {
        let ConversionShadow { row, conversion_shadow, watch, is_left } = one;
        let known = self.rows.borrow().get(&row.index).cloned().flatten();
        let is_there = known.is_some_and(|known| Rc::ptr_eq(&known, row)) && !row.freed.get();
        if is_left.get()
            || !is_there
            || conversion_shadow.freed.get()
            || self.freed.get()
            || self.shared.is_deferred(row)
        {
            return false;
        }
        if row.layout() == conversion_shadow.layout() || conversion_shadow.layout() != self.layouts.get().now
        {
            return false;
        }
        let is_changed = !watch.is_untouched() && !mutation!(ConversionShadowMissesWrites);
        let cache = conversion_shadows.cache_of(conversion_shadow);
        let is_cached = !conversion_shadow.mappings.is_empty()
            || cache.is_some_and(|cache| cache.has_unfinished_pair(conversion_shadow));
        if is_changed || (is_cached && !mutation!(ConversionShadowWhileCached)) {
            return false;
        }
        let mut is_whole = true;
        conversion_shadow.for_each_slab(|_, slab| is_whole &= slab.readable(&self.shared.pool).is_some());
        let is_unflushed = || {
            self.shared.is_deferred(conversion_shadow)
                || self.shared.is_unflushed_away(conversion_shadow)
                || !self.shared.unflushed_of(conversion_shadow).is_empty()
        };
        is_whole
            && (mutation!(ConversionShadowBeforeFlush) || !is_unflushed())
            && are_tables_written(conversion_shadow)
    }

    /// The conversion shadow of a row takes its place, if nothing has come between; whether it did.
    #[pooled]
    pub(crate) async fn change_to_conversion_shadow(
        &self,
        conversion_shadows: &Space,
        one: &ConversionShadow,
    ) -> Result<bool, SpaceError> {
        let ConversionShadow { row, conversion_shadow, .. } = one;
        let whole = Range { first: 0, count: row.shape.row_blocks() };
        let _guard = row.locks.lock(whole).await;
        // A scrub or a free of the shadow holds its own lock. The holder may wait for a flush, and the flush for the lock of the row:
        // this waits for neither.
        let shadow_guard = conversion_shadow.locks.try_lock(whole);
        if shadow_guard.is_none() && !mutation!(ConversionShadowUnlocked) {
            return Ok(false);
        }
        // A write-back that is under way may have taken pages since.
        let _tables = self.shared.table_mutex.take().await;
        let mut change = self.shared.pool.change(Purpose::Release).await;
        if !self.is_conversion_shadow_ready(conversion_shadows, one) {
            return Ok(false);
        }
        let (old, record) = (row.record(), conversion_shadow.record());
        for slab in old.columns.iter().flatten() {
            change.release(slab.disk, &slab.runs);
            change.delete(keys::stale(slab.disk, self.id(), row.index));
        }
        let shadow = row.shadow();
        if let Some(shadow) = &shadow {
            self.release_shadow(&mut change, shadow).await?;
        }
        change.delete(keys::row(conversion_shadows.id(), row.index));
        let count = change.add(keys::row_count(conversion_shadows.id()), -1).await?;
        change.put(keys::row(self.id(), row.index), record.encode());
        let set_deleting = |is_deleting| {
            [Some(row), Some(conversion_shadow), shadow.as_ref()]
                .into_iter()
                .flatten()
                .for_each(|row| row.freed.set(is_deleting));
        };
        // Whoever waits for the row's lock must look it up again.
        set_deleting(true);
        if let Err(error) = change.commit().await {
            set_deleting(false);
            return Err(error.into());
        }
        conversion_shadows.row_count.set(count);
        conversion_shadows.rows.borrow_mut().insert(row.index, None);
        let new = conversion_shadow.promoted_as(row, record);
        self.rows.borrow_mut().insert(row.index, Some(Rc::clone(&new)));
        if let Some(shadow) = &shadow {
            self.shared.forget_pages(shadow);
            self.forget_shadow(row);
        }
        self.shared.forget_pages(row);
        if let Some(cache) = self.cache_of(row) {
            cache.forget_row(row);
        }
        self.shared.forget_row(self.id(), row.index);
        // Counted again when it is asked for.
        self.own.borrow_mut().clear();
        self.shared.count(|counters| counters.converted_rows += 1);
        tracing::debug!(space = %self.name(), row = row.index, "a row has another layout");
        self.shared.write_headers(&new, |_| true).await?;
        Ok(true)
    }
}

/// Whether the tables of a conversion shadow are on its disks; there are none where it holds nothing.
fn are_tables_written(conversion_shadow: &Row) -> bool {
    if mutation!(ConversionShadowBeforeFlush) || mutation!(ConversionShadowBeforeTables) {
        return true;
    }
    let mut are_durable = !conversion_shadow.dirty.get();
    for (_, _, page) in conversion_shadow.pages() {
        are_durable &= page.is_durable() && (conversion_shadow.is_formatted() || page.used_count() == 0);
    }
    are_durable
}

/// Cuts a range of a row into pieces that are copied one by one: where the conversion shadow has parity, into whole stripes as far
/// as they fit the memory for a piece.
fn pieces_of(shape: &Shape, range: Range) -> impl Iterator<Item = Range> + use<> {
    let blocks = |bytes: usize| u32::try_from(bytes / BLOCK).unwrap_or(u32::MAX);
    let (_, stripe) = stripe_at(shape, 0);
    let most = match READ_BYTES_MAX / stripe {
        0 => READ_BYTES_MAX,
        stripes => stripes * stripe,
    };
    let (most, end) = (blocks(most), range.first + range.count);
    let mut first = range.first;
    std::iter::from_fn(move || {
        (first < end).then(|| {
            // Up to where the next whole piece begins.
            let count = (most - first % most).min(end - first);
            let piece = Range { first, count };
            first += count;
            piece
        })
    })
}

/// Notes what was read, block by block.
fn note_segments(segments: &Segments, into: &mut [u8], holds: &mut SmallVec<[Holds; 256]>) {
    let mut at = 0;
    for segment in segments {
        let (kind, place) = (segment, into.get_mut(at..at + segment.len()));
        at += segment.len();
        match (kind, place) {
            (Segment::Data(data), Some(place)) => {
                place.copy_from_slice(data);
                holds.extend(std::iter::repeat_n(Holds::Data, segment.len() / BLOCK));
            }
            (Segment::Zeros(length), _) => holds.extend(std::iter::repeat_n(Holds::Nothing, length / BLOCK)),
            (Segment::Data(_), None) => {}
        }
    }
}
