//! How large write caches are: when they are made, as they are seen, and changed while clients write (docs/design/0004, *Room*).
//!
//! - Growing: rows behind the end of the hidden space are claimed, then its size is made durable, then they are filled.
//! - Shrinking: rows at the end are closed, so that no task finds room there; what they hold is put in
//!   place; they are discarded, and a flush covers that; then the size is made durable, and they are freed.
//!
//! Invariants:
//! - Behind the durable end of a cache no row holds anything that counts. So a change that was cut short is undone, or
//!   finished, by freeing what lies there.
//! - What is left of a cache can be emptied: there is room for the parity of its rows before others go.
//!
//! Left to others: putting in place (`destage`), who gets room (`promise`), what is freed at an opening (`finish`).

use std::collections::BTreeSet;
use std::rc::Rc;

use dolmen_block_io::sync::{Either, either};
use dolmen_future_pool::pooled;
use dolmen_units::{ALLOCATION_UNIT_BYTES, BLOCK_BYTES, Bytes, DiskSlot};

use crate::cache::fill::SegmentFill;
use crate::cache::segments::{CacheIndex, Filling};
use crate::format::error::SpaceError;
use crate::format::spec::Footprint;
use crate::resources::flow::FlowView;
use crate::resources::progress::Progress;
use crate::table::drain_settings::WriteCacheDrain;
use crate::table::row::{Row, RowRecord};
use crate::table::space::{Cache, Segment, State};

/// Rows for writes, at least, beside those that are kept back for parity: one that is filled and one that is emptied.
pub(crate) const ROWS_FOR_WRITES_MIN: u64 = 2;
/// Blocks of a cache for each that the log can name: the others were written over, or wait to be filled again.
pub(crate) const USEFUL_PER_NAMED: u64 = 2;
/// A write cache, as it is seen from outside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WriteCache {
    /// Disks that the spaces that it is for may lose.
    pub redundancy: u8,
    /// Bytes that it holds when it is full.
    pub size: Bytes,
    /// Bytes in it that are not in place yet.
    pub waiting: Bytes,
    /// What its rows take on all disks.
    pub footprint: Footprint,
    /// The disks on which its rows lie.
    pub disks: Vec<DiskSlot>,
    /// From how much on it is emptied, and how fast.
    pub drain: WriteCacheDrain,
    /// What was written to it.
    pub filled: FlowView,
    /// What was put in place out of it.
    pub destaged: FlowView,
}

/// Another size of a write cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WriteCacheResize {
    /// Disks that the spaces that it is for may lose.
    pub redundancy: u8,
    /// What it holds now when it is full.
    pub before: Bytes,
    /// What it is to hold: whole rows.
    pub after: Bytes,
    /// What a byte of it takes on all disks, copies and tables included, as a ratio: allocation units of a row, and bytes of one.
    pub(crate) of_row: (u64, u64),
}

impl WriteCacheResize {
    /// Bytes that growing claims on all disks, copies and tables included.
    #[must_use]
    pub fn claimed(&self) -> Bytes {
        self.on_disks(self.after.saturating_sub(self.before))
    }

    /// Bytes that shrinking gives back on all disks.
    #[must_use]
    pub fn released(&self) -> Bytes {
        self.on_disks(self.before.saturating_sub(self.after))
    }

    fn on_disks(&self, size: Bytes) -> Bytes {
        let (units, row) = self.of_row;
        Bytes(size.0 / row.max(1) * units * ALLOCATION_UNIT_BYTES)
    }
}

/// Segments that join and leave a write cache.
#[derive(Clone, Copy)]
pub(crate) struct CacheResize<'a> {
    cache: &'a Rc<Cache>,
}

impl<'a> CacheResize<'a> {
    /// Returns the service for a write cache.
    pub(crate) fn of(cache: &'a Rc<Cache>) -> Self {
        Self { cache }
    }
}

impl CacheResize<'_> {
    /// How it is.
    ///
    /// # Errors
    /// When the metadata cannot be read.
    #[pooled]
    pub(crate) async fn view(self) -> Result<WriteCache, SpaceError> {
        let footprint = self.cache.space().footprint().await?;
        let mut disks = BTreeSet::new();
        let note =
            |_, record: &RowRecord| disks.extend(record.columns.iter().flatten().map(|slab| slab.disk));
        self.cache.space().for_each_record(note).await?;
        let live: u64 = self.cache.segments.borrow().iter().map(|segment| u64::from(segment.live)).sum();
        Ok(WriteCache {
            redundancy: self.cache.space().spec().resiliency.losses(),
            size: self.cache.space().size(),
            waiting: Bytes(live * BLOCK_BYTES),
            footprint,
            disks: disks.into_iter().collect(),
            drain: self.cache.drain.get(),
            filled: self.cache.filled.view(CacheIndex::of(self.cache).now()),
            destaged: self.cache.destaged.view(CacheIndex::of(self.cache).now()),
        })
    }

    /// Fills these rows too, from now on.
    pub(crate) fn take_in(self, rows: Vec<Rc<Row>>) {
        let new = rows.into_iter().map(|row| Segment::new(row, State::Free));
        self.cache.segments.borrow_mut().extend(new);
        self.cache.note_segments();
        self.ring();
    }

    /// Wakes those who wait for room: there is some that a try to empty the cache knew nothing of.
    fn ring(self) {
        self.cache.stuck.borrow_mut().take();
        self.cache.notify.notify_all();
    }

    /// Closes the rows from one on: they count no more as room, and are emptied before others.
    pub(crate) fn retire_from(self, first: u64) -> DeclaredLost {
        let is_meant = |segment: &&mut Segment| segment.row.index >= first;
        self.cache.segments.borrow_mut().iter_mut().filter(is_meant).for_each(|one| one.is_retiring = true);
        DeclaredLost { cache: Rc::clone(self.cache), is_done: false }
    }

    /// Closes rows that are to go and that room was taken from, and has them emptied first.
    pub(crate) fn close_retiring(self) {
        let is_retiring = |at: usize| self.cache.segments.borrow().get(at).is_some_and(|one| one.is_retiring);
        for filling in [Filling::Writes, Filling::Parity] {
            if CacheIndex::of(self.cache).open_for(filling).get().is_some_and(is_retiring) {
                SegmentFill::of(self.cache).close(filling);
            }
        }
        let mut full = self.cache.full.borrow_mut();
        let (first, others): (Vec<usize>, Vec<usize>) = full.drain(..).partition(|at| is_retiring(*at));
        full.extend(first.into_iter().chain(others));
    }

    /// Whether the rows that are to go are empty, and those that stay can be emptied without them; they are never filled again
    /// then.
    pub(crate) fn can_go(self) -> bool {
        let is_filled = |one: &Segment| one.is_retiring && one.state != State::Free;
        if self.cache.segments.borrow().iter().any(is_filled) || self.room_missing() > 0 {
            return false;
        }
        self.cache
            .segments
            .borrow_mut()
            .iter_mut()
            .filter(|one| one.is_retiring)
            .for_each(|one| one.state = State::Leaving);
        true
    }

    /// Blocks that the rows that stay lack for what is promised and kept back.
    pub(crate) fn room_missing(self) -> u64 {
        (CacheIndex::of(self.cache).kept() + self.cache.reserved.get())
            .saturating_sub(CacheIndex::of(self.cache).free())
    }

    /// What there is to do before rows can go: whoever works on that makes it less.
    pub(crate) fn left_to_do(self) -> u64 {
        let missing = self.room_missing();
        let whole = u64::from(CacheIndex::of(self.cache).segment_blocks());
        let segments = self.cache.segments.borrow();
        let of = |segment: &Segment| match segment.state {
            State::Free | State::Leaving => 0,
            // In the order of states that a row goes through: what lives in it counts, then how far it is.
            State::Open | State::Full => 3 + u64::from(segment.live),
            State::Drained(_) => 2,
            State::Discarded(_) => 1,
        };
        let counts = |segment: &&Segment| segment.is_retiring || missing > 0;
        // What is promised lives once it is written, and is then put in place.
        let promised = if missing > 0 { 2 * self.cache.reserved.get() } else { 0 };
        promised + missing.div_ceil(whole) + segments.iter().filter(counts).map(of).sum::<u64>()
    }

    /// Waits while a change of the size is held.
    ///
    /// # Errors
    /// [`SpaceError::CalledOff`] when it is to end; or that the cache is being deleted, which nobody may hold up.
    pub(crate) async fn may_resize_on(self, progress: &Progress) -> Result<(), SpaceError> {
        let goes = self.cache.notify.wait_for(|| self.cache.is_deleting.get().then_some(()));
        let answer = either(progress.may_go_on(&self.cache.shared().closing), goes).await;
        self.check_stays()?;
        match answer {
            Either::First(true) => Ok(()),
            Either::First(false) | Either::Second(()) => {
                Err(SpaceError::CalledOff { name: self.cache.space().name() })
            }
        }
    }

    pub(crate) fn empty_retiring_count(self) -> u64 {
        let segments = self.cache.segments.borrow();
        segments.iter().filter(|one| one.is_retiring && one.state == State::Free).count() as u64
    }

    /// Notes that it is being deleted, and waits until nobody changes its size any more.
    pub(crate) async fn note_deleting(self) {
        self.cache.is_deleting.set(true);
        self.cache.notify.notify_all();
        self.cache.hurry.notify_all();
        drop(self.cache.size_mutex.take().await);
    }

    pub(crate) fn check_stays(self) -> Result<(), SpaceError> {
        if self.cache.is_deleting.get() {
            Err(SpaceError::Deleted { name: self.cache.space().name() })
        } else {
            Ok(())
        }
    }

    /// Forgets the rows that go; these.
    pub(crate) fn let_go(self) -> Vec<Rc<Row>> {
        let mut segments = self.cache.segments.borrow_mut();
        let first = segments.iter().position(|one| one.state == State::Leaving).unwrap_or(segments.len());
        let rows = segments.drain(first..).map(|segment| segment.row).collect();
        drop(segments);
        self.cache.note_segments();
        rows
    }
}

/// Rows that are closed; dropping it before they are freed opens them again.
pub(crate) struct DeclaredLost {
    pub(crate) cache: Rc<Cache>,
    pub(crate) is_done: bool,
}

impl Drop for DeclaredLost {
    fn drop(&mut self) {
        if self.is_done {
            return;
        }
        for segment in &mut *self.cache.segments.borrow_mut() {
            segment.is_retiring = false;
            if segment.state == State::Leaving {
                segment.state = State::Free;
            }
        }
        CacheResize::of(&self.cache).ring();
    }
}
