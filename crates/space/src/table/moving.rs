//! A row of which a conversion shadow is made (docs/design/0020): what clients change in it meanwhile, and who waits while it is
//! held.
//!
//! Invariants:
//! - A block is noted under its lock, by whoever changes it: so who takes what was noted, and then waits for the block's lock
//!   once, reads what it has become.
//! - Who waits for a row that is held has no lock, no room and no ticket. Behind its lock, whoever changes a row looks whether it
//!   is held, and lets go.

use std::rc::Rc;

use crate::resources::locks::Range;
use crate::table::moves::Moving;
use crate::table::row::Row;

/// Has a row note what changes in it, until this is dropped.
pub(crate) struct Watch {
    row: Rc<Row>,
    moving: Rc<Moving>,
}

impl Watch {
    /// Has the row note what changes in it. One watch at a time.
    pub(crate) fn of(row: &Rc<Row>) -> Self {
        Self { row: Rc::clone(row), moving: row.moves.begin(row.shape.row_blocks()) }
    }

    /// The blocks that were changed since this was asked last.
    pub(crate) fn take_touched(&self) -> Vec<Range> {
        let words = std::mem::take(&mut *self.moving.touched.borrow_mut());
        *self.moving.touched.borrow_mut() = vec![0; words.len()];
        let mut ranges: Vec<Range> = Vec::new();
        let is_touched =
            |block: &u32| words.get(*block as usize / 64).is_some_and(|word| word >> (block % 64) & 1 == 1);
        for block in (0..self.row.shape.row_blocks()).filter(is_touched) {
            match ranges.last_mut().filter(|last| last.first + last.count == block) {
                Some(last) => last.count += 1,
                None => ranges.push(Range { first: block, count: 1 }),
            }
        }
        ranges
    }

    /// Whether nothing was changed since.
    pub(crate) fn is_untouched(&self) -> bool {
        self.moving.touched.borrow().iter().all(|word| *word == 0)
    }

    /// Has whoever would change the row wait, and waits until those are done who are at it.
    pub(crate) async fn hold(&self) {
        self.moving.is_held.set(true);
        drop(self.row.locks.lock(Range { first: 0, count: self.row.shape.row_blocks() }).await);
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.row.moves.end();
        self.moving.release();
    }
}
