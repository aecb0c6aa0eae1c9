//! Rows of a space that hold nothing, kept in reserve.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;

use dolmen_block_io::sync::AsyncMutex;
use dolmen_units::Bytes;

use crate::resources::ranks;

/// What is reserved for a space, and rows of it that may hold nothing.
pub(crate) struct Reserve {
    pub(crate) bytes: Cell<Bytes>,
    /// Rows that held nothing when they were looked at last.
    pub(crate) blanks: RefCell<BTreeSet<u64>>,
    /// Rows that may hold nothing: they could not be looked at, or nobody has known since.
    pub(crate) doubtful: RefCell<BTreeSet<u64>>,
    /// How many keep rows that hold nothing from becoming others.
    pub(crate) still: Rc<Cell<u32>>,
    /// Whether rows that were never formatted were looked for.
    pub(crate) has_looked: Cell<bool>,
    /// Whether all others were.
    pub(crate) has_read: Cell<bool>,
    /// Held while it is decided whether a row is given back, and done.
    pub(crate) mutex: AsyncMutex,
}

impl Default for Reserve {
    fn default() -> Self {
        let (bytes, blanks, doubtful, still, has_looked, has_read) = Default::default();
        Self { bytes, blanks, doubtful, still, has_looked, has_read, mutex: ranks::reserve() }
    }
}

impl Reserve {
    /// The last of the rows before `end` that hold nothing, or may.
    pub(crate) fn last_before(&self, end: u64) -> Option<u64> {
        let last = |rows: &RefCell<BTreeSet<u64>>| rows.borrow().range(..end).next_back().copied();
        last(&self.blanks).max(last(&self.doubtful))
    }

    pub(crate) fn forget(&self, index: u64) {
        self.blanks.borrow_mut().remove(&index);
        self.doubtful.borrow_mut().remove(&index);
    }

    pub(crate) fn note(&self, index: u64) {
        self.doubtful.borrow_mut().remove(&index);
        self.blanks.borrow_mut().insert(index);
    }

    pub(crate) fn note_doubtful(&self, index: u64) {
        self.doubtful.borrow_mut().insert(index);
    }

    /// Notes that a row is not known any more: it was written, or not.
    pub(crate) fn doubt(&self, index: u64) {
        if self.blanks.borrow_mut().remove(&index) {
            self.note_doubtful(index);
        }
    }

    /// Keeps every row that holds nothing where it is, for as long as the guard lives.
    pub(crate) fn keep_still(&self) -> Still {
        self.still.set(self.still.get() + 1);
        Still(Rc::clone(&self.still))
    }
}

/// Rows that hold nothing stay where they are.
pub(crate) struct Still(Rc<Cell<u32>>);

impl Drop for Still {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}
