//! Which row of a write cache is filled next, with what clients write and with the parity of what is put in place.
//!
//! Invariant: of a row only blocks are filled that were not written since it was discarded.
//!
//! Left to others: who gets room (`promise`), when a row can be filled again (`cache`).

use crate::cache::destage::REDO_BYTES_MAX;
use crate::cache::segment_copies::SegmentCopies;
use crate::cache::segments::{CacheIndex, Filling, queue};
use crate::layout::BLOCK;
use crate::table::space::{Cache, Segment, State};
use std::rc::Rc;

/// Choice of the segment that is filled next.
#[derive(Clone, Copy)]
pub(crate) struct SegmentFill<'a> {
    cache: &'a Rc<Cache>,
}

impl<'a> SegmentFill<'a> {
    /// Returns the service for a write cache.
    pub(crate) fn of(cache: &'a Rc<Cache>) -> Self {
        Self { cache }
    }
}

impl SegmentFill<'_> {
    /// Blocks of a row that follow each other and can be written: their segment, the first, and how many.
    pub(crate) fn take(self, filling: Filling, wanted: u32) -> Option<(usize, u32, u32)> {
        let open = CacheIndex::of(self.cache).open_for(filling);
        // Parity must not be had from one copy alone while its stripe is half in place.
        let wants_whole = filling == Filling::Parity && self.has_whole_room_for_parity(wanted);
        let mut segments = self.cache.segments.borrow_mut();
        let whole = CacheIndex::of(self.cache).segment_blocks();
        let is_good = |segment: &Segment| {
            !segment.is_retiring && SegmentCopies::of(self.cache).has_all_copies(&segment.row)
        };
        if let Some(at) = open.get() {
            let others = segments.iter().any(|other| other.state == State::Free && is_good(other));
            let segment = segments.get_mut(at)?;
            let fits = match filling {
                Filling::Writes => segment.filled < whole,
                // Parity of one record lies in one piece.
                Filling::Parity => whole - segment.filled >= wanted,
            };
            let lacks = wants_whole && !SegmentCopies::of(self.cache).has_all_copies(&segment.row);
            if !fits
                || !CacheIndex::of(self.cache).can_be_filled(&segment.row)
                || (!is_good(segment) && others)
                || lacks
            {
                open.set(None);
                self.note_full(at, segment);
            }
        }
        let at = match open.get() {
            Some(at) => at,
            None => {
                let is_free = |segment: &Segment| {
                    segment.state == State::Free && CacheIndex::of(self.cache).can_be_filled(&segment.row)
                };
                let free = segments.iter().enumerate().filter(|(_, segment)| is_free(segment));
                // Of those that are to go none, but where room that was promised before has no other; and for parity.
                let order = |segment: &Segment| {
                    let (goes, lacks) =
                        (segment.is_retiring, !SegmentCopies::of(self.cache).has_all_copies(&segment.row));
                    if filling == Filling::Parity { (lacks, goes) } else { (goes, lacks) }
                };
                let best = free.min_by_key(|(_, segment)| order(segment));
                match best.filter(|(_, segment)| {
                    !wants_whole || SegmentCopies::of(self.cache).has_all_copies(&segment.row)
                }) {
                    Some((at, _)) => at,
                    None => self.reopened(&segments, if filling == Filling::Parity { wanted } else { 1 })?,
                }
            }
        };
        open.set(Some(at));
        let segment = segments.get_mut(at)?;
        segment.state = State::Open;
        let first = segment.filled;
        let count = wanted.min(whole - first);
        segment.filled += count;
        Some((at, first, count))
    }

    /// A row that was closed before it was full and has so much room, where none is free: room of those that are kept for parity
    /// goes with every row that is closed because a disk of it leaves, and without any nothing could be emptied.
    fn reopened(self, segments: &[Segment], wanted: u32) -> Option<usize> {
        let has_room = |segment: &Segment| self.has_room_left(segment, wanted);
        let closed = segments.iter().enumerate().filter(|(_, segment)| has_room(segment));
        let (at, _) = closed
            .min_by_key(|(_, one)| (!SegmentCopies::of(self.cache).has_all_copies(&one.row), one.filled))?;
        self.cache.full.borrow_mut().retain(|other| *other != at);
        Some(at)
    }

    fn has_room_left(self, segment: &Segment, wanted: u32) -> bool {
        let is_closed = segment.state == State::Full && !segment.is_retiring;
        is_closed
            && CacheIndex::of(self.cache).segment_blocks() - segment.filled >= wanted
            && CacheIndex::of(self.cache).can_be_filled(&segment.row)
    }

    /// Whether the parity of one record, at its longest, has a place.
    pub(crate) fn has_room_for_parity(self) -> bool {
        let segments = self.cache.segments.borrow();
        let wanted = u32::try_from(REDO_BYTES_MAX / BLOCK).unwrap_or(u32::MAX);
        let open = CacheIndex::of(self.cache).open_for(Filling::Parity).get().and_then(|at| segments.get(at));
        let is_here = |segment: &Segment| CacheIndex::of(self.cache).can_be_filled(&segment.row);
        open.is_some_and(|segment| {
            is_here(segment) && CacheIndex::of(self.cache).segment_blocks() - segment.filled >= wanted
        }) || segments
            .iter()
            .any(|one| (one.state == State::Free && is_here(one)) || self.has_room_left(one, wanted))
    }

    /// Whether the parity of so many blocks has a place in a row with all of its copies.
    pub(crate) fn has_whole_room_for_parity(self, wanted: u32) -> bool {
        let segments = self.cache.segments.borrow();
        let open = CacheIndex::of(self.cache).open_for(Filling::Parity).get();
        let has_room = |(at, one): (usize, &Segment)| match one.state {
            State::Free => true,
            State::Open => {
                open == Some(at) && CacheIndex::of(self.cache).segment_blocks() - one.filled >= wanted
            }
            State::Full => self.has_room_left(one, wanted),
            State::Drained(_) | State::Discarded(_) | State::Leaving => false,
        };
        let mut whole = segments
            .iter()
            .enumerate()
            .filter(|(_, one)| SegmentCopies::of(self.cache).has_all_copies(&one.row));
        whole.any(|(at, one)| has_room((at, one)))
    }

    /// Closes the row that is being filled, so that it can be emptied: when there is no other.
    /// Whether there was one.
    pub(crate) fn close(self, filling: Filling) -> bool {
        let Some(at) = CacheIndex::of(self.cache).open_for(filling).take() else { return false };
        if let Some(segment) = self.cache.segments.borrow_mut().get_mut(at) {
            self.note_full(at, segment);
        }
        true
    }

    pub(crate) fn note_full(self, at: usize, segment: &mut Segment) {
        segment.state = State::Full;
        queue(&mut self.cache.full.borrow_mut(), at, segment.is_retiring);
        CacheIndex::of(self.cache).note_drained(at, segment);
    }
}
