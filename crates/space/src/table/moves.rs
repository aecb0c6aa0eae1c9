//! What changes in a row while a conversion shadow of it is made, and whether it is held.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use dolmen_block_io::sync::Notify;

use crate::resources::locks::Range;

/// What is known of a row of which a conversion shadow is made.
pub(crate) struct Moving {
    /// A bit for each block.
    pub(crate) touched: RefCell<Vec<u64>>,
    pub(crate) is_held: Cell<bool>,
    pub(crate) notify: Notify,
}

impl Moving {
    pub(crate) fn release(&self) {
        self.is_held.set(false);
        self.notify.notify_all();
    }
}

/// Changes of a row, noted while a watch of it lives.
#[derive(Default)]
pub(crate) struct Moves(RefCell<Option<Rc<Moving>>>);

impl Moves {
    /// Begins to note changes of a row of so many blocks.
    pub(crate) fn begin(&self, blocks: u32) -> Rc<Moving> {
        let words = (blocks as usize).div_ceil(64);
        let moving = Rc::new(Moving {
            touched: RefCell::new(vec![0; words]),
            is_held: Cell::new(false),
            notify: Notify::new(),
        });
        *self.0.borrow_mut() = Some(Rc::clone(&moving));
        moving
    }

    pub(crate) fn end(&self) {
        self.0.borrow_mut().take();
    }

    /// Notes that blocks are about to change. The caller holds their lock, or no task knows the row yet.
    pub(crate) fn touch(&self, range: Range) {
        let moving = self.0.borrow();
        let Some(moving) = &*moving else { return };
        let mut touched = moving.touched.borrow_mut();
        for block in range.first..range.first + range.count {
            if let Some(word) = touched.get_mut(block as usize / 64) {
                *word |= 1 << (block % 64);
            }
        }
    }

    /// Returns whether no task may change the row now.
    pub(crate) fn is_held(&self) -> bool {
        self.0.borrow().as_ref().is_some_and(|moving| moving.is_held.get())
    }

    /// Waits while the row is held, and returns whether it was. It may be another row by then.
    pub(crate) async fn wait_while_held(&self) -> bool {
        let moving = self.0.borrow().clone();
        let Some(moving) = moving.filter(|moving| moving.is_held.get()) else { return false };
        moving.notify.wait_for(|| (!moving.is_held.get()).then_some(())).await;
        true
    }
}
