//! Locks on ranges of blocks: writes that overlap are ordered here, before they fan out to copies, because else copies
//! could differ without any crash.

use std::cell::RefCell;
use std::fmt;

use dolmen_block_io::sync::Notify;

/// A range of blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Range {
    pub(crate) first: u32,
    pub(crate) count: u32,
}

impl Range {
    fn overlaps(self, other: Self) -> bool {
        self.first < other.first + other.count && other.first < self.first + self.count
    }
}

/// The ranges of a row that somebody works on. There are as many as requests under way, so a list is searched faster
/// than a tree.
#[derive(Default)]
pub(crate) struct RangeLocks {
    held: RefCell<Vec<(u64, Range)>>,
    bell: Notify,
    next: std::cell::Cell<u64>,
}

impl RangeLocks {
    /// Waits until nobody holds a block of the range.
    pub(crate) async fn lock(&self, range: Range) -> RangeGuard<'_> {
        let free = || {
            let mut held = self.held.borrow_mut();
            if held.iter().any(|(_, other)| other.overlaps(range)) {
                return None;
            }
            let ticket = self.next.get();
            self.next.set(ticket + 1);
            held.push((ticket, range));
            Some(ticket)
        };
        let ticket = self.bell.wait_for(free).await;
        RangeGuard { locks: self, ticket }
    }
}

impl fmt::Debug for RangeLocks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RangeLocks({} held)", self.held.borrow().len())
    }
}

/// A held range; free when dropped.
#[derive(Debug)]
pub(crate) struct RangeGuard<'a> {
    locks: &'a RangeLocks,
    ticket: u64,
}

impl Drop for RangeGuard<'_> {
    fn drop(&mut self) {
        let mut held = self.locks.held.borrow_mut();
        if let Some(index) = held.iter().position(|(ticket, _)| *ticket == self.ticket) {
            held.swap_remove(index);
        }
        drop(held);
        self.locks.bell.notify_all();
    }
}
