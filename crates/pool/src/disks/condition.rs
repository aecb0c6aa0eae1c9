//! What an open pool knows of a member besides its device: its label, what rests in its cache, and why it is not used.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;

use dolmen_block_io::sync::AsyncMutex;
use dolmen_units::Epoch;

use crate::ranks;

/// State of the label of a member.
pub struct LabelState {
    /// The turn to write the label.
    pub(crate) mutex: AsyncMutex,
    /// The newest epoch that was written to it as pending, or may have been.
    pended: Cell<Epoch>,
    /// Where labels had stood when the disk was taken in, and something else was written over them.
    lost: RefCell<BTreeSet<u64>>,
}

impl Default for LabelState {
    fn default() -> Self {
        let (pended, lost) = Default::default();
        Self { mutex: AsyncMutex::ranked(ranks::LABEL.single()), pended, lost }
    }
}

impl LabelState {
    /// Returns whether the label may hold an epoch as pending that is later than the one in force. The caller holds the mutex.
    pub(crate) fn is_pending_after(&self, in_force: Epoch) -> bool {
        self.pended.get() > in_force
    }

    /// Notes that the label is about to be written with a pending epoch.
    pub(crate) fn begin_pending(&self, pending: Epoch) {
        self.pended.set(pending);
    }

    /// Returns where labels had stood when the disk was taken in, and something else was written over them: the writer may have
    /// written over data as well, which only reading all of it tells.
    #[must_use]
    pub fn lost(&self) -> Vec<u64> {
        self.lost.borrow().iter().copied().collect()
    }

    /// Adds such places, seen now or by an earlier opening of the pool.
    pub fn note_lost(&self, places: &[u64]) {
        self.lost.borrow_mut().extend(places);
    }

    /// Forgets such places: a person has acknowledged them.
    pub fn forget_lost(&self) {
        self.lost.borrow_mut().clear();
    }
}

/// Reasons why a member is not used.
#[derive(Default)]
pub struct Absence {
    unfit: RefCell<Option<String>>,
    is_old: Cell<bool>,
    has_failed: Cell<bool>,
}

impl Absence {
    /// Returns why the disk is absent although its device is here, if so.
    #[must_use]
    pub fn unfit(&self) -> Option<String> {
        self.unfit.borrow().clone()
    }

    pub(crate) fn note_unfit(&self, why: String) {
        *self.unfit.borrow_mut() = Some(why);
    }

    /// Returns whether the opening left the disk out because it is as it was before, and it has not been taken back in since.
    #[must_use]
    pub fn is_left_out_as_old(&self) -> bool {
        self.is_old.get()
    }

    pub(crate) fn note_old(&self) {
        self.is_old.set(true);
    }

    /// Returns whether the disk failed, and has not been taken back in since. In a pool that stopped for it, it is still a member
    /// with an attachment.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.has_failed.get()
    }

    pub(crate) fn note_failed(&self) {
        self.has_failed.set(true);
    }

    /// Forgets all reasons: the disk is taken in.
    pub(crate) fn clear(&self) {
        *self.unfit.borrow_mut() = None;
        self.is_old.set(false);
        self.has_failed.set(false);
    }
}

/// Writes to a member, as far as its cache and its label depend on them.
pub(crate) struct Activity {
    /// Goes up when a write begins and when it ends. Equal to `flushed` means that nothing rests in the device's cache.
    count: Cell<u64>,
    flushed: Cell<u64>,
    /// What `count` was when the disk got its last label.
    stamped: Cell<u64>,
}

impl Default for Activity {
    fn default() -> Self {
        Self { count: Cell::new(1), flushed: Cell::new(0), stamped: Cell::new(0) }
    }
}

impl Activity {
    /// Notes that a write begins or ends.
    pub(crate) fn note(&self) {
        self.count.set(self.count.get() + 1);
    }

    /// Returns what a flush that begins now covers; what [`note_flushed`](Self::note_flushed) takes.
    pub(crate) fn covered(&self) -> u64 {
        self.count.get()
    }

    pub(crate) fn note_flushed(&self, covered: u64) {
        self.flushed.set(self.flushed.get().max(covered));
    }

    /// Returns whether a completed write may rest in the device's cache.
    pub(crate) fn needs_flush(&self) -> bool {
        self.count.get() != self.flushed.get()
    }

    /// Returns whether something was written since the last stamp.
    pub(crate) fn needs_stamp(&self) -> bool {
        self.count.get() != self.stamped.get()
    }

    /// Notes that the label is about to be written; what [`end_stamp`](Self::end_stamp) takes.
    pub(crate) fn begin_stamp(&self) -> u64 {
        self.note();
        self.count.get()
    }

    /// Notes that the label is durable.
    pub(crate) fn end_stamp(&self, begun: u64) {
        self.stamped.set(begun);
    }
}
