//! Drafts of rows: filled while clients go on, and made the rows (docs/design/0020, steps 2 and 5).
//!
//! Invariants:
//! - A draft takes its row's place only with everything that the row holds, on all of its disks, flushed, its tables as well.
//! - What nobody can read is damaged in the draft, too: no checksum is made of what was not verified.
//!
//! Left to others: which rows have drafts, and when (`convert`); writing to drafts, which are rows like any (`write`, `stripe`).

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use dolmen_block_io::sync::join_all;
use dolmen_buffer::Scratch;
use dolmen_future_pool::pooled;
use dolmen_planted::mutation;
use dolmen_pool::{Purpose, keys};
use dolmen_units::BLOCK_BYTES;
use smallvec::SmallVec;

use crate::error::{SpaceError, UnreadableReason};
use crate::layout::{BLOCK, Shape};
use crate::locks::Range;
use crate::moving::Watch;
use crate::progress::Progress;
use crate::read::{READ_BYTES_MAX, Segment, Segments};
use crate::record::BlockState;
use crate::resync::hull;
use crate::row::Row;
use crate::shared::{place_in_page, push_stretch};
use crate::space::Space;
use crate::stripe::stripe_at;

/// Pieces that are copied beside each other, at most.
const PIECES_AT_A_TIME: usize = 4;
/// Large frames of metadata memory that copying a piece takes: it is read into one, and put together in another.
const FRAMES_OF_PIECE: u64 = 2;

/// A row, what is about to take its place, and what is known of it meanwhile.
pub(crate) struct Drafted {
    pub(crate) row: Rc<Row>,
    pub(crate) draft: Rc<Row>,
    pub(crate) watch: Watch,
    /// Something stands in the way: it stays as it is for now.
    pub(crate) is_left: Cell<bool>,
}

/// What a block of a row is, for its draft.
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

    /// Copies ranges of rows to their drafts, several beside each other. Rows of which something cannot be read now are left.
    #[pooled]
    pub(crate) async fn copy_to_drafts(
        &self,
        drafts: &Space,
        drafted: &[Drafted],
        ranges: Vec<Vec<Range>>,
        progress: &Progress,
    ) -> Result<(), SpaceError> {
        let of_rows = drafted.iter().zip(ranges);
        let pieces = of_rows.flat_map(|(one, ranges)| {
            ranges
                .into_iter()
                .flat_map(|range| pieces_of(&one.draft.shape, range))
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
                match self.copy_piece(drafts, one, piece).await {
                    Ok(()) => {}
                    Err(error) if error.may_pass() => one.is_left.set(true),
                    Err(error) => return Err(error),
                }
                progress.bytes.set(progress.bytes.get() + u64::from(piece.count) * BLOCK_BYTES);
                self.shared.pace.rest(clock.as_ref(), began).await;
            }
        };
        let ended = join_all((0..PIECES_AT_A_TIME).map(work)).await;
        ended.into_iter().collect()
    }

    #[pooled]
    async fn copy_piece(&self, drafts: &Space, one: &Drafted, piece: Range) -> Result<(), SpaceError> {
        let _memory = self.shared.drafts.take(FRAMES_OF_PIECE).await;
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
                            match mutation!(DraftOfDamage) {
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
        for alike in holds.chunk_by(PartialEq::eq) {
            let first = piece.first + u32::try_from(at).unwrap_or(u32::MAX);
            let content = whole.slice(at * BLOCK..(at + alike.len()) * BLOCK);
            at += alike.len();
            let within = u64::from(first) * BLOCK_BYTES;
            match alike.first() {
                Some(Holds::Data) => drafts.store_in_draft(one.draft.index, within, content).await?,
                Some(Holds::Nothing) => {
                    let start = one.draft.index * self.row_bytes() + within;
                    drafts.discard_range(start, content.len() as u64).await?;
                }
                Some(Holds::Lost) => {
                    for block in (first..).take(alike.len()) {
                        drafts.lose_block(&one.draft, block).await?;
                    }
                }
                None => {}
            }
        }
        Ok(())
    }

    /// Says of a block of a draft that what it is to hold is lost. With parity, nobody knows then what the parity of its line is of.
    #[pooled]
    async fn lose_block(&self, row: &Rc<Row>, block: u32) -> Result<(), SpaceError> {
        let range = Range { first: block, count: 1 };
        let columns = row.shape.parity_columns() + 1;
        let _log_room = self.shared.room_for(u32::try_from(columns).unwrap_or(1)).await?;
        let spot = row.shape.locate(block);
        let line = Range { first: spot.block, count: 1 };
        let _guard = row.locks.lock(if row.has_parity() { hull(row, 0, line) } else { range }).await;
        if row.mappings.newest(block).is_some() || self.shared.is_unresolved(row) {
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
            let stretch = self.shared.stretch(row, column, line, stamp);
            push_stretch(&mut body, stretch, &[BlockState::Damaged], page.durable_generation());
            self.shared.record(&body, dolmen_journal::Wait::Written).await?;
            page.set(entry, BlockState::Damaged, stamp, now);
            self.shared.note_unsettled(held.ticket(), row, column, line);
        }
        self.shared.note_dirty(row);
        if self.shared.stamp() != stamp || self.shared.is_unresolved(row) {
            let lost = [spot.column].into_iter().chain(row.shape.data_columns()..row.shape.columns());
            self.shared.leave_what_is_away(row, lost.map(|column| (column, line))).await?;
        }
        Ok(())
    }

    /// Whether a draft can take the place of its row now. The caller holds the lock of all of the row.
    fn is_draft_ready(&self, drafts: &Space, one: &Drafted) -> bool {
        let Drafted { row, draft, watch, is_left } = one;
        let known = self.rows.borrow().get(&row.index).cloned().flatten();
        let is_there = known.is_some_and(|known| Rc::ptr_eq(&known, row)) && !row.gone.get();
        if is_left.get() || !is_there || draft.gone.get() || self.gone.get() || self.shared.is_unresolved(row)
        {
            return false;
        }
        if row.layout() == draft.layout() || draft.layout() != self.layouts.get().now {
            return false;
        }
        let is_changed = !watch.is_untouched() && !mutation!(DraftMissesWrites);
        let cache = drafts.cache_of(draft);
        let is_cached =
            !draft.mappings.is_empty() || cache.is_some_and(|cache| cache.has_unfinished_beside(draft));
        if is_changed || (is_cached && !mutation!(DraftWhileCached)) {
            return false;
        }
        let mut is_whole = true;
        draft.for_each_slab(|_, slab| is_whole &= slab.readable(&self.shared.pool).is_some());
        let is_unflushed = || {
            self.shared.is_unresolved(draft)
                || self.shared.is_unflushed_away(draft)
                || !self.shared.unsettled_of(draft).is_empty()
        };
        is_whole && (mutation!(DraftBeforeFlush) || !is_unflushed()) && are_tables_written(draft)
    }

    /// The draft of a row takes its place, if nothing has come between; whether it did.
    #[pooled]
    pub(crate) async fn change_to_draft(&self, drafts: &Space, one: &Drafted) -> Result<bool, SpaceError> {
        let Drafted { row, draft, .. } = one;
        let _guard = row.locks.lock(Range { first: 0, count: row.shape.row_blocks() }).await;
        // A write-back that is under way may have taken pages since.
        let _tables = self.shared.table_turn.take().await;
        let mut change = self.shared.pool.change(Purpose::Release).await;
        if !self.is_draft_ready(drafts, one) {
            return Ok(false);
        }
        let (old, record) = (row.record(), draft.record());
        for slab in old.columns.iter().flatten() {
            change.release(slab.disk, &slab.runs);
            change.delete(keys::stale(slab.disk, self.id(), row.index));
        }
        let heir = row.heir();
        if let Some(heir) = &heir {
            self.release_heir(&mut change, heir).await?;
        }
        change.delete(keys::row(drafts.id(), row.index));
        let count = change.add(keys::row_count(drafts.id()), -1).await?;
        change.put(keys::row(self.id(), row.index), record.encode());
        let set_gone = |is_gone| {
            [Some(row), Some(draft), heir.as_ref()]
                .into_iter()
                .flatten()
                .for_each(|row| row.gone.set(is_gone));
        };
        // Whoever waits for the row's lock must look it up again.
        set_gone(true);
        if let Err(error) = change.commit().await {
            set_gone(false);
            return Err(error.into());
        }
        drafts.row_count.set(count);
        drafts.rows.borrow_mut().insert(row.index, None);
        let new = draft.in_place_of(row, record);
        self.rows.borrow_mut().insert(row.index, Some(Rc::clone(&new)));
        if let Some(heir) = &heir {
            self.shared.forget_pages(heir);
            self.forget_heir(row);
        }
        self.shared.forget_pages(row);
        if let Some(cache) = self.cache_of(row) {
            cache.forget_row(row);
        }
        self.shared.forget_row(self.id(), row.index);
        // Counted anew when it is asked for.
        self.own.borrow_mut().clear();
        self.shared.count(|counters| counters.converted_rows += 1);
        tracing::debug!(space = %self.name(), row = row.index, "a row has another layout");
        self.shared.write_headers(&new, |_| true).await?;
        Ok(true)
    }
}

/// Whether the tables of a draft are on its disks; there are none where it holds nothing.
fn are_tables_written(draft: &Row) -> bool {
    if mutation!(DraftBeforeFlush) || mutation!(DraftBeforeTables) {
        return true;
    }
    let mut are_settled = !draft.dirty.get();
    for (_, _, page) in draft.pages() {
        are_settled &= page.is_settled() && (draft.is_formatted() || page.used_count() == 0);
    }
    are_settled
}

/// Cuts a range of a row into pieces that are copied one by one: where the draft has parity, into whole stripes as far as they fit
/// the memory for a piece.
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
