//! What is known of the emptying of a pool's failing disks.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use dolmen_block_io::Instant;
use dolmen_pool::Disk;
use dolmen_units::DiskId;

use crate::state::failing::FAILING_ERRORS;

/// What is known of the emptying of a pool's disks.
#[derive(Default)]
pub(crate) struct Emptyings {
    /// How many errors a disk had when it was stopped, or left something.
    pub(crate) held_off: RefCell<BTreeMap<DiskId, u64>>,
    /// Why what a disk has does not fit on the others, at the last try.
    pub(crate) refused: RefCell<BTreeMap<DiskId, String>>,
    /// When that is tried again, and how long the pause was.
    pub(crate) next: Cell<(Instant, Duration)>,
}

impl Emptyings {
    /// What goes on record of a disk.
    pub(crate) fn held_off(&self, disk: DiskId) -> Option<u64> {
        self.held_off.borrow().get(&disk).copied()
    }

    /// Has it not begun again before the disk has had as many errors again.
    pub(crate) fn hold_off(&self, disk: DiskId, errors: u64) {
        self.held_off.borrow_mut().insert(disk, errors);
    }

    /// Whether nothing has happened since that a new try would be for.
    pub(crate) fn is_held_off(&self, disk: DiskId, errors: u64) -> bool {
        self.held_off(disk).is_some_and(|then| errors < then.saturating_add(then.max(FAILING_ERRORS)))
    }

    /// Has what did not fit tried again, at once.
    pub(crate) fn retry(&self) {
        self.refused.borrow_mut().clear();
        self.next.take();
    }

    pub(crate) fn forget_all_but(&self, failing: &[Rc<Disk>]) {
        let is_failing = |id: &DiskId| failing.iter().any(|disk| disk.id() == *id);
        self.held_off.borrow_mut().retain(|id, _| is_failing(id));
        self.refused.borrow_mut().retain(|id, _| is_failing(id));
    }
}
