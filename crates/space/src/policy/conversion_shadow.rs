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
use dolmen_units::BLOCK_BYTES;
use smallvec::SmallVec;

use crate::format::error::{SpaceError, UnreadableReason};
use crate::format::record::{BlockState, push_extent};
use crate::layout::shape::{READ_BYTES_MAX, stripe_at};
use crate::layout::{BLOCK, Shape};
use crate::relocation::exchange::{Exchange, Exchanges};
use crate::resolution::reach::Deferral;
use crate::resources::locks::Range;
use crate::resources::progress::Progress;
use crate::row_io::block_log::BlockLog;
use crate::row_io::flusher::Flusher;
use crate::row_io::segments::{Segment, Segments};
use crate::space_io::discard::Discards;
use crate::space_io::full_stripe::StripeWriter;
use crate::space_io::read::Reader;
use crate::table::moving::Watch;
use crate::table::page::place_in_page;
use crate::table::pages::TableStore;
use crate::table::row::Row;
use crate::table::space::SpaceRows;

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

/// Content that is copied to conversion shadow rows.
#[derive(Clone, Copy)]
pub(crate) struct ConversionCopy<'a> {
    space: &'a SpaceRows,
}

impl<'a> ConversionCopy<'a> {
    /// Returns the service for a space.
    pub(crate) fn of(space: &'a SpaceRows) -> Self {
        Self { space }
    }
}

impl ConversionCopy<'_> {
    /// Frees all rows that there are.
    pub(crate) async fn free_all_rows(self) -> Result<(), SpaceError> {
        let mut rows = Vec::new();
        self.space.for_each_record(|index, _| rows.push(index)).await?;
        Exchanges::of(self.space).free_rows(&rows).await
    }

    /// Copies ranges of rows to their conversion shadows, several beside each other. Rows of which something cannot be read now are
    /// left.
    #[pooled]
    pub(crate) async fn copy_to_conversion_shadows(
        self,
        conversion_shadows: &SpaceRows,
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
                let clock = &self.space.shared.pool.seams().clock;
                let began = clock.now();
                match self.copy_piece(conversion_shadows, one, piece).await {
                    Ok(()) => {}
                    Err(error) if error.may_pass() => one.is_left.set(true),
                    Err(error) => return Err(error),
                }
                progress.bytes.set(progress.bytes.get() + u64::from(piece.count) * BLOCK_BYTES);
                self.space.shared.throttle.rest(clock.as_ref(), began).await;
            }
        };
        let ended = join_all((0..PIECES_AT_A_TIME).map(work)).await;
        ended.into_iter().collect()
    }

    #[pooled]
    async fn copy_piece(
        self,
        conversion_shadows: &SpaceRows,
        one: &ConversionShadow,
        piece: Range,
    ) -> Result<(), SpaceError> {
        let _memory = self.space.shared.conversion_shadows.take(FRAMES_OF_PIECE).await;
        // Whoever noted a block before is done with it then.
        drop(one.row.locks.lock(piece).await);
        let mut whole = self.space.shared.pool.seams().metadata.take(piece.count as usize * BLOCK).await;
        let mut holds: SmallVec<[Holds; 256]> = SmallVec::new();
        match Reader::of(self.space).read_for_job(one.row.index, piece).await {
            Ok(segments) => note_segments(&segments, &mut whole, &mut holds),
            Err(SpaceError::Unreadable { .. }) => {
                for (block, into) in (piece.first..).zip(whole.chunks_exact_mut(BLOCK)) {
                    match Reader::of(self.space)
                        .read_for_job(one.row.index, Range { first: block, count: 1 })
                        .await
                    {
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
                    StripeWriter::of(conversion_shadows)
                        .store_in_conversion_shadow(one.conversion_shadow.index, within, content)
                        .await?
                }
                Some(Holds::Nothing) => {
                    let start = one.conversion_shadow.index * self.space.row_bytes() + within;
                    Discards::of(conversion_shadows).discard_range(start, content.len() as u64).await?;
                }
                Some(Holds::Lost) => {
                    for block in (first..).take(is_same.len()) {
                        ConversionCopy::of(conversion_shadows)
                            .lose_block(&one.conversion_shadow, block)
                            .await?;
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
    async fn lose_block(self, row: &Rc<Row>, block: u32) -> Result<(), SpaceError> {
        let columns = row.shape.computed_columns().len() + 1;
        let _log_room = Flusher::of(&self.space.shared).room_for(u32::try_from(columns).unwrap_or(1)).await?;
        let spot = row.shape.locate(block);
        let stripe = Range { first: spot.block, count: 1 };
        let _guard = row.locks.lock(row.shape.lock_range(spot.column, stripe)).await;
        if row.mappings.newest(block).is_some() || self.space.shared.is_deferred(row) {
            // It was there when it was read first: another draft begins without it.
            return Err(TableStore::of(&self.space.shared).unreadable(
                row,
                spot.column,
                spot.block as usize,
                UnreadableReason::Absent,
            ));
        }
        let held = self.space.shared.tickets.begin();
        let (stamp, now) = (self.space.shared.stamp(), self.space.shared.now(&held));
        let of_parity = row.shape.data_columns()..row.shape.columns();
        for column in [spot.column].into_iter().chain(of_parity) {
            let (index, entry) = place_in_page(spot.block);
            let page = TableStore::of(&self.space.shared).page(row, column, index).await?;
            if column != spot.column && page.state(entry) == BlockState::Never {
                continue;
            }
            let mut body = Scratch::new();
            let extent = BlockLog::of(&self.space.shared).extent(row, column, stripe, stamp);
            push_extent(&mut body, extent, &[BlockState::Damaged], page.durable_generation());
            BlockLog::of(&self.space.shared).record(&body, dolmen_journal::Wait::Written).await?;
            page.set(entry, BlockState::Damaged, stamp, now);
            Flusher::of(&self.space.shared).note_unflushed(held.ticket(), row, column, stripe);
        }
        self.space.shared.note_dirty(row);
        if self.space.shared.stamp() != stamp || self.space.shared.is_deferred(row) {
            let lost = [spot.column].into_iter().chain(row.shape.data_columns()..row.shape.columns());
            Deferral::of(&self.space.shared)
                .leave_what_is_away(row, lost.map(|column| (column, stripe)))
                .await?;
        }
        Ok(())
    }

    /// Promotes the conversion shadow of a row, if nothing has come between; returns whether it did.
    #[pooled]
    pub(crate) async fn change_to_conversion_shadow(
        self,
        conversion_shadows: &SpaceRows,
        one: &ConversionShadow,
    ) -> Result<bool, SpaceError> {
        let whole = Range { first: 0, count: one.row.shape.row_blocks() };
        let _guard = one.row.locks.lock(whole).await;
        // A scrub or a free of the shadow holds its own lock. The holder may wait for a flush, and the flush for the lock of the row:
        // this waits for neither.
        let shadow_guard = one.conversion_shadow.locks.try_lock(whole);
        if one.is_left.get() {
            return Ok(false);
        }
        let is_locked = shadow_guard.is_some();
        let (shadow, watch) = (&one.conversion_shadow, &one.watch);
        let exchange = Exchange::Conversion { shadow, shadows: conversion_shadows, watch, is_locked };
        Ok(Exchanges::of(self.space).commit_exchange(&[&one.row], &exchange).await?.is_done())
    }
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
