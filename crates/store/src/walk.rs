//! Every page of a checkpoint, in groups: for copying, comparing and checking. Depth first, so that what waits is
//! bounded by the tree's height and not by its size.

use crate::key::Key;
use crate::page::{Expect, Page, Shape};
use crate::replica::GROUP_PAGES_MAX;
use crate::store::{Pin, Store};

/// A page to look at, and where its keys must end.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Step {
    pub(crate) expect: Expect,
    pub(crate) upper: Option<Key>,
}

/// The pages that were named and not looked at yet.
pub(crate) struct Walk {
    todo: Vec<Step>,
}

impl Walk {
    /// Begins with the bitmap and the root.
    pub(crate) fn new(store: &Store, pin: &Pin) -> Self {
        let bitmaps = (0u16..).zip(&pin.tree().bitmaps).map(|(index, at)| {
            let shape = Shape::Bitmap { index };
            Step { expect: Expect { pool: store.pool, at: *at, shape, key: None }, upper: None }
        });
        let root = pin
            .tree()
            .root
            .map(|root| Step { expect: store.expect_tree(root.child, root.level), upper: None });
        Self { todo: bitmaps.chain(root).collect() }
    }

    /// The next pages.
    pub(crate) fn group(&mut self) -> Option<Vec<Step>> {
        let start = self.todo.len().saturating_sub(GROUP_PAGES_MAX);
        let group = self.todo.split_off(start);
        (!group.is_empty()).then_some(group)
    }

    /// Names the children of a page.
    pub(crate) fn descend(&mut self, store: &Store, step: &Step, page: &Page) {
        let Some(level) = page.level().checked_sub(1) else { return };
        for index in 0..page.count() {
            let Some(child) = page.child(index) else { return };
            let upper = page.child(index + 1).map(|next| next.key).or(step.upper);
            self.todo.push(Step { expect: store.expect_tree(child, level), upper });
        }
    }
}
