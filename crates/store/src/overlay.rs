//! The changes since the checkpoint that stands: those that come in now, and those that a checkpoint is merging.

use std::collections::BTreeMap;
use std::rc::Rc;

use crate::format::KEY_BYTES;
use crate::key::{Key, Value};

/// What an entry costs beside its key and value, roughly: nodes, pointers, counts.
const ENTRY_EXTRA_BYTES: usize = 40;

/// A key's value, or that it is gone.
pub(crate) type Change = Option<Value>;
/// Changes in the order of their keys.
pub(crate) type Changes = BTreeMap<Key, Change>;

/// Two layers of changes; the open one hides the frozen one.
#[derive(Default)]
pub(crate) struct Overlay {
    open: Changes,
    open_bytes: usize,
    frozen: Option<Rc<Changes>>,
    frozen_bytes: usize,
}

fn cost(change: &Change) -> usize {
    KEY_BYTES + ENTRY_EXTRA_BYTES + change.as_deref().map_or(0, <[u8]>::len)
}

impl Overlay {
    pub(crate) fn set(&mut self, key: Key, change: Change) {
        self.open_bytes += cost(&change);
        if let Some(old) = self.open.insert(key, change) {
            self.open_bytes -= cost(&old);
        }
    }

    /// What the layers say of a key; `None` when they say nothing.
    pub(crate) fn get(&self, key: &Key) -> Option<Change> {
        self.open.get(key).or_else(|| self.frozen.as_ref()?.get(key)).cloned()
    }

    /// What the layers say of the keys from `from` to before `until`, at most `max` of them.
    pub(crate) fn range(&self, from: Key, until: Option<Key>, max: usize) -> Vec<(Key, Change)> {
        let within = |changes: &Changes| -> Vec<(Key, Change)> {
            let rest = changes.range(from..).take_while(|(key, _)| until.is_none_or(|until| **key < until));
            rest.take(max).map(|(key, change)| (*key, change.clone())).collect()
        };
        let mut merged: Changes =
            self.frozen.as_deref().map(within).unwrap_or_default().into_iter().collect();
        merged.extend(within(&self.open));
        merged.into_iter().take(max).collect()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.open_bytes + self.frozen_bytes
    }

    /// Entries and bytes of keys and values that a checkpoint begun now would merge.
    pub(crate) fn load(&self) -> (usize, usize) {
        (self.open.len() + self.frozen.as_ref().map_or(0, |frozen| frozen.len()), self.bytes())
    }

    /// Moves what came in so far to the frozen layer, for a checkpoint to merge; what a checkpoint that is made in parts has
    /// not come to yet stays alone there, so that its end does not move away from it.
    pub(crate) fn freeze(&mut self) -> Rc<Changes> {
        if let Some(rest) = &self.frozen {
            return Rc::clone(rest);
        }
        let frozen = Rc::new(std::mem::take(&mut self.open));
        self.frozen_bytes = std::mem::take(&mut self.open_bytes);
        self.frozen = Some(Rc::clone(&frozen));
        frozen
    }

    /// The frozen layer is in the tree now.
    pub(crate) fn drop_frozen(&mut self) {
        self.frozen = None;
        self.frozen_bytes = 0;
    }

    /// The frozen layer's keys before `rest` are in the tree now.
    pub(crate) fn drop_frozen_before(&mut self, rest: Key) {
        let Some(frozen) = self.frozen.take() else { return };
        let mut frozen = Rc::try_unwrap(frozen).unwrap_or_else(|shared| (*shared).clone());
        let rest = frozen.split_off(&rest);
        self.frozen_bytes = rest.values().map(cost).sum();
        self.frozen = Some(Rc::new(rest));
    }

    /// The checkpoint failed: the frozen layer is open again, under what came in meanwhile.
    pub(crate) fn thaw(&mut self) {
        let Some(frozen) = self.frozen.take() else { return };
        self.frozen_bytes = 0;
        let frozen = Rc::try_unwrap(frozen).unwrap_or_else(|shared| (*shared).clone());
        for (key, change) in frozen {
            if !self.open.contains_key(&key) {
                self.set(key, change);
            }
        }
    }
}
