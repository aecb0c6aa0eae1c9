//! Locks on ranges of blocks: writes that overlap are ordered here, before they fan out to copies, because else copies
//! could differ without any crash.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::panic::Location;

use dolmen_block_io::ranks::{HeldRank, LockRank};
use dolmen_block_io::sync::Notify;
use dolmen_units::BLOCK_BYTES;
use smallvec::SmallVec;

/// A range of blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Range {
    pub(crate) first: u32,
    pub(crate) count: u32,
}

impl Range {
    /// Its blocks.
    pub(crate) fn blocks(self) -> std::ops::Range<u32> {
        self.first..self.first + self.count
    }

    pub(crate) fn overlaps(self, other: Self) -> bool {
        self.first < other.first + other.count && other.first < self.first + self.count
    }
}

/// The ranges of a row that somebody works on. There are as many as requests under way, so a list is searched faster
/// than a tree.
///
/// Whoever waits is passed by nobody who came later and wants one of the same blocks: a row that is written without a pause
/// would else never be had as a whole. So who holds a range of a row does not wait for another one of that row; several are
/// taken at once.
pub(crate) struct RangeLocks {
    rank: Cell<LockRank>,
    held: RefCell<Vec<(u64, Range)>>,
    /// Those that wait, in the order in which they came.
    waiting: RefCell<Vec<(u64, SmallVec<[Range; 1]>)>>,
    notify: Notify,
    next: Cell<u64>,
}

impl RangeLocks {
    /// Locks of a row, with their place in the order of locks.
    pub(crate) fn new(rank: LockRank) -> Self {
        let (held, waiting, notify, next) = Default::default();
        Self { rank: Cell::new(rank), held, waiting, notify, next }
    }

    /// Returns their place in the order of locks.
    pub(crate) fn rank(&self) -> LockRank {
        self.rank.get()
    }

    /// Gives them another place in the order of locks: the row has another layout from now on.
    pub(crate) fn rerank(&self, rank: LockRank) {
        self.rank.set(rank);
    }

    /// Waits until nobody holds a block of the range.
    #[track_caller]
    pub(crate) fn lock(&self, range: Range) -> impl Future<Output = RangeGuard<'_>> {
        let place = Location::caller();
        async move { self.lock_from(&[range], place).await }
    }

    /// Waits until nobody holds a block of any of these ranges, which do not overlap.
    #[track_caller]
    pub(crate) fn lock_all<'a, 'b>(
        &'a self,
        ranges: &'b [Range],
    ) -> impl Future<Output = RangeGuard<'a>> + use<'a, 'b> {
        self.lock_from(ranges, Location::caller())
    }

    async fn lock_from<'a>(&'a self, ranges: &[Range], place: &'static Location<'static>) -> RangeGuard<'a> {
        let rank = self.rank.get().take(place);
        let ticket = self.next.get();
        self.next.set(ticket + 1);
        if !self.are_free(ticket, ranges) {
            self.waiting.borrow_mut().push((ticket, SmallVec::from_slice(ranges)));
            let _place = Waiting { locks: self, ticket };
            self.notify.wait_for(|| self.are_free(ticket, ranges).then_some(())).await;
        }
        self.held.borrow_mut().extend(ranges.iter().map(|range| (ticket, *range)));
        RangeGuard { locks: self, ticket, _rank: rank }
    }

    /// The range, if nobody holds a block of it or waits for one.
    #[track_caller]
    pub(crate) fn try_lock(&self, range: Range) -> Option<RangeGuard<'_>> {
        let ticket = self.next.get();
        if !self.are_free(ticket, &[range]) {
            return None;
        }
        self.next.set(ticket + 1);
        self.held.borrow_mut().push((ticket, range));
        Some(RangeGuard { locks: self, ticket, _rank: self.rank.get().hold(Location::caller()) })
    }

    /// Whether nobody holds any of these ranges, nor waits for it since before `ticket`.
    fn are_free(&self, ticket: u64, ranges: &[Range]) -> bool {
        let overlap = |other: &Range| ranges.iter().any(|range| range.overlaps(*other));
        let is_held = self.held.borrow().iter().any(|(_, other)| overlap(other));
        let waiting = self.waiting.borrow();
        let mut before = waiting.iter().take_while(|(other, _)| *other < ticket);
        !is_held && !before.any(|(_, others)| others.iter().any(overlap))
    }
}

impl fmt::Debug for RangeLocks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RangeLocks({} held, {} waiting)", self.held.borrow().len(), self.waiting.borrow().len())
    }
}

/// A place among those that wait, left on success and on cancellation alike.
struct Waiting<'a> {
    locks: &'a RangeLocks,
    ticket: u64,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.locks.waiting.borrow_mut().retain(|(ticket, _)| *ticket != self.ticket);
        self.locks.notify.notify_all();
    }
}

/// Held ranges; free when dropped.
#[derive(Debug)]
pub(crate) struct RangeGuard<'a> {
    locks: &'a RangeLocks,
    ticket: u64,
    _rank: HeldRank,
}

impl Drop for RangeGuard<'_> {
    fn drop(&mut self) {
        self.locks.held.borrow_mut().retain(|(ticket, _)| *ticket != self.ticket);
        self.locks.notify.notify_all();
    }
}

/// Numbers in ascending order as ranges without gaps.
pub(crate) fn joined(numbers: impl Iterator<Item = u32>) -> Vec<Range> {
    let mut ranges: Vec<Range> = Vec::new();
    for number in numbers {
        match ranges.last_mut().filter(|last| last.first + last.count == number) {
            Some(last) => last.count += 1,
            None => ranges.push(Range { first: number, count: 1 }),
        }
    }
    ranges
}

/// The blocks of a row that a range of bytes touches.
pub(crate) fn blocks_of(start: u64, end: u64) -> Range {
    let first = start / BLOCK_BYTES;
    let last = end.div_ceil(BLOCK_BYTES);
    Range { first: u32::try_from(first).unwrap_or(0), count: u32::try_from(last - first).unwrap_or(0) }
}
