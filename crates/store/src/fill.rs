//! How a stream of entries in key order becomes pages: full ones in the middle of a long stream, even ones at its end.
//!
//! Each level gathers what will be pages of that level. While much is gathered, full pages leave at the front. When the
//! stream meets a page that need not change, what is gathered is cut evenly, so that a page that grew by one entry
//! becomes two halves and not a full one and a crumb that would push on the next page, and so on to the end of the tree.
//!
//! Invariant: a page that leaves is at least a third full, unless it is all that was gathered.

use std::collections::VecDeque;

use crate::format::BODY_BYTES;
use crate::key::{Key, Value};
use crate::page::{CHILD_BYTES, Child, ENTRY_EXTRA_BYTES, LEVELS_MAX, UnplacedPage};

/// Less than this in a page, and it takes in a neighbour.
pub(crate) const FILL_MIN_BYTES: usize = BODY_BYTES / 3;
/// So much gathered, and a full page leaves: what remains can still be cut into two even pages or more.
const GATHERED_MAX_BYTES: usize = 3 * BODY_BYTES;

/// What is gathered for one level.
struct Gathered<T> {
    items: VecDeque<T>,
    bytes: usize,
}

trait Item {
    fn cost(&self) -> usize;
}

impl Item for (Key, Value) {
    fn cost(&self) -> usize {
        ENTRY_EXTRA_BYTES + self.1.len()
    }
}

impl Item for Child {
    fn cost(&self) -> usize {
        CHILD_BYTES
    }
}

impl<T: Item> Gathered<T> {
    fn new() -> Self {
        Self { items: VecDeque::new(), bytes: 0 }
    }

    fn push(&mut self, item: T) {
        self.bytes += item.cost();
        self.items.push_back(item);
    }

    fn push_before(&mut self, items: impl DoubleEndedIterator<Item = T>) {
        for item in items.rev() {
            self.bytes += item.cost();
            self.items.push_front(item);
        }
    }

    fn pop_last(&mut self) -> Option<T> {
        let item = self.items.pop_back()?;
        self.bytes -= item.cost();
        Some(item)
    }

    /// What the next page gets: as near to `target` bytes as the items allow, one at least, never more than fits.
    fn cut(&mut self, target: usize) -> Vec<T> {
        let mut taken = Vec::new();
        let mut bytes = 0;
        while let Some(cost) = self.items.front().map(Item::cost) {
            let nearer = bytes + cost / 2 <= target;
            if !taken.is_empty() && (!nearer || bytes + cost > BODY_BYTES) {
                break;
            }
            bytes += cost;
            taken.extend(self.items.pop_front());
        }
        self.bytes -= bytes;
        taken
    }
}

/// How much of what is gathered the next page gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fill {
    /// As much as fits.
    Full,
    /// As much as the pages after it.
    Even,
}

impl Fill {
    fn target(self, bytes: usize) -> usize {
        match self {
            Self::Full => BODY_BYTES,
            Self::Even => bytes.div_ceil(bytes.div_ceil(BODY_BYTES).max(1)),
        }
    }
}

/// All levels.
pub(crate) struct Levels {
    leaf: Gathered<(Key, Value)>,
    inner: Vec<Gathered<Child>>,
}

impl Levels {
    pub(crate) fn new() -> Self {
        Self { leaf: Gathered::new(), inner: (1..LEVELS_MAX).map(|_| Gathered::new()).collect() }
    }

    pub(crate) fn push_entry(&mut self, key: Key, value: Value) {
        self.leaf.push((key, value));
    }

    /// Adds a page of `level` to what is gathered one level above; `false` when there is no level above.
    pub(crate) fn push_page(&mut self, level: u8, page: Child) -> bool {
        let above = self.inner.get_mut(usize::from(level));
        above.map(|above| above.push(page)).is_some()
    }

    /// Takes back the last page of `level` that was added.
    pub(crate) fn pop_page(&mut self, level: u8) -> Option<Child> {
        self.inner.get_mut(usize::from(level))?.pop_last()
    }

    pub(crate) fn entries_before(&mut self, entries: impl DoubleEndedIterator<Item = (Key, Value)>) {
        self.leaf.push_before(entries);
    }

    /// Puts pages of `level` in front of what is gathered one level above.
    pub(crate) fn pages_before(&mut self, level: u8, pages: impl DoubleEndedIterator<Item = Child>) {
        if let Some(above) = self.inner.get_mut(usize::from(level)) {
            above.push_before(pages);
        }
    }

    /// Gathered bytes that will be pages of `level`.
    fn bytes(&self, level: u8) -> usize {
        match level.checked_sub(1) {
            None => self.leaf.bytes,
            Some(below) => self.inner.get(usize::from(below)).map_or(0, |inner| inner.bytes),
        }
    }

    pub(crate) fn is_empty(&self, level: u8) -> bool {
        self.bytes(level) == 0
    }

    /// Whether a page of all that is gathered would be too small.
    pub(crate) fn is_thin(&self, level: u8) -> bool {
        let bytes = self.bytes(level);
        bytes > 0 && bytes < FILL_MIN_BYTES
    }

    /// Whether so much is gathered that a page must leave.
    pub(crate) fn is_ample(&self, level: u8) -> bool {
        self.bytes(level) >= GATHERED_MAX_BYTES
    }

    /// The lowest level above `level` for which something is gathered.
    pub(crate) fn first_above(&self, level: u8) -> Option<u8> {
        all_levels().filter(|above| *above > level).find(|above| !self.is_empty(*above))
    }

    /// The one page of `level` that is gathered, when there is just one.
    pub(crate) fn only_page(&self, level: u8) -> Option<Child> {
        let gathered = &self.inner.get(usize::from(level))?.items;
        if gathered.len() == 1 { gathered.front().copied() } else { None }
    }

    /// The next page of `level`, with its first key.
    pub(crate) fn cut(&mut self, level: u8, fill: Fill) -> Option<(Key, UnplacedPage)> {
        let target = fill.target(self.bytes(level));
        match level.checked_sub(1) {
            None => {
                let entries = self.leaf.cut(target);
                let first = entries.first()?.0;
                Some((first, UnplacedPage::leaf(entries.iter().map(|(key, value)| (*key, &**value)))))
            }
            Some(below) => {
                let children = self.inner.get_mut(usize::from(below))?.cut(target);
                Some((children.first()?.key, UnplacedPage::inner(level, children.into_iter())))
            }
        }
    }
}

/// All levels, the leaves first.
pub(crate) fn all_levels() -> impl Iterator<Item = u8> {
    (0u8..).take(LEVELS_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::VALUE_BYTES_MAX;
    use proptest::prelude::*;

    proptest! {
        // Whatever the lengths: full pages while there is plenty, then even ones, and none of them is thin unless it
        // is the only one.
        #[test]
        fn no_page_that_leaves_is_thin(lengths in proptest::collection::vec(prop_oneof![0usize..40, 0usize..=VALUE_BYTES_MAX], 1..400)) {
            let mut gathered: Gathered<(Key, Value)> = Gathered::new();
            let mut pages = Vec::new();
            for length in &lengths {
                gathered.push((Key::MIN, Value::new(&vec![0; *length])));
                if gathered.bytes >= GATHERED_MAX_BYTES {
                    pages.push(gathered.cut(Fill::Full.target(gathered.bytes)));
                }
            }
            while gathered.bytes > 0 {
                pages.push(gathered.cut(Fill::Even.target(gathered.bytes)));
            }
            prop_assert_eq!(pages.iter().map(Vec::len).sum::<usize>(), lengths.len());
            for page in &pages {
                let bytes: usize = page.iter().map(Item::cost).sum();
                prop_assert!(bytes <= BODY_BYTES);
                prop_assert!(bytes >= FILL_MIN_BYTES || pages.len() == 1, "{} of {}", bytes, pages.len());
            }
        }
    }
}
