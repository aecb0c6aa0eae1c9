//! The merge of frozen changes into the tree: one walk in key order that rewrites what changes and hangs the rest, whole
//! subtrees at a time, into the new tree by its old pointers.
//!
//! Where the pages that are free may not do for all changes, the merge takes them in key order for as long as what is left
//! is enough to finish with, and hangs the rest of the old tree in as it is. The pages that it frees then serve the next part.
//!
//! Memory: a path of the old tree, what `fill` gathers on each level (three pages at most), and one batch of finished
//! pages. Nothing recurses: the old tree's depth is bounded by the levels that its pages say, which fall by one each.

use dolmen_future_pool::pooled;
use std::collections::btree_map;
use std::iter::Peekable;
use std::rc::Rc;

use crate::bitmap::Allocation;
use crate::block::Root;
use crate::cache::Caching;
use crate::error::{CheckpointError, Defect, StoreError};
use crate::fill::{Fill, Levels, all_levels};
use crate::key::{Key, Value};
use crate::overlay::{Change, Changes};
use crate::page::{Child, LEVELS_MAX, Page, Pointer, UnplacedPage};
use crate::replica::{BATCH_PAGES_MAX, Port, Replica};
use crate::store::{Pin, Store};

/// Pages that may have to be written on one level after the last change was taken: three that are gathered, what is left of
/// the page that was being taken apart, a neighbour on each side for a thin rest, and even cuts, which fill two thirds.
const FINISH_PAGES_PER_LEVEL: u64 = 8;

/// Pages with which a merge in parts takes some changes at least, and finishes: for a tree of so many levels.
pub(crate) fn finish_pages(levels: u64, bitmaps: u64) -> u64 {
    // A tree that grows gets one level more, and a root above it.
    (levels + 2) * FINISH_PAGES_PER_LEVEL + bitmaps
}

/// Pages that a checkpoint which makes the tree grow leaves: with them, a part that takes one delete and writes the pages
/// above it, and a thin page's neighbour on each level, finds room. So a full area is got out of by deletes.
pub(crate) fn last_pages(levels: u64, bitmaps: u64) -> u64 {
    2 * levels + bitmaps
}

/// How many of the changes a merge takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reach {
    /// All of them.
    Whole,
    /// As many as there is room for, one at least.
    Part,
}

/// An inner page of the old tree that is being walked.
struct Frame {
    page: Rc<Page>,
    next: usize,
    /// Where the next page of the same level begins.
    upper: Option<Key>,
}

/// A checkpoint in the making.
pub(crate) struct Merge<'a> {
    store: &'a Store,
    port: Port,
    to: &'a [Replica],
    pin: Pin,
    sequence: u64,
    changes: Peekable<btree_map::Iter<'a, Key, Change>>,
    reach: Reach,
    has_taken: bool,
    /// Whether a change of the leaf that is being merged was taken: it is rewritten.
    is_leaf_new: bool,
    /// Pages that are kept back to finish with.
    finish_pages: u64,
    levels: Levels,
    allocation: Allocation,
    /// Finished pages that are not written yet.
    batch: Vec<Rc<Page>>,
    entries: u64,
    free_at_start: u64,
}

/// A finished merge: every page was written to every replica, and nothing was flushed.
pub(crate) struct Merged {
    pub(crate) root: Option<Root>,
    pub(crate) entries: u64,
    pub(crate) bitmaps: Vec<Pointer>,
    /// The first change that was not taken.
    pub(crate) rest: Option<Key>,
    pub(crate) allocation: Allocation,
}

impl<'a> Merge<'a> {
    pub(crate) fn new(
        store: &'a Store,
        to: &'a [Replica],
        sequence: u64,
        changes: &'a Changes,
        reach: Reach,
    ) -> Self {
        let pin = store.pin();
        let tree = pin.tree();
        let levels = tree.root.map_or(0, |root| u64::from(root.level) + 1);
        let finish_pages = finish_pages(levels, tree.bitmaps.len() as u64);
        let space = store.space.borrow();
        let allocation = Allocation::new(&space.used, space.doubtful.as_ref(), space.cursor);
        Self {
            store,
            port: store.port(),
            to,
            sequence,
            changes: changes.iter().peekable(),
            reach,
            has_taken: false,
            is_leaf_new: false,
            finish_pages,
            levels: Levels::new(),
            allocation,
            batch: Vec::with_capacity(BATCH_PAGES_MAX),
            entries: pin.tree().entries,
            free_at_start: space.used.pages() - space.used.used(),
            pin,
        }
    }

    /// Makes the new tree and the new bitmap.
    #[pooled]
    pub(crate) async fn run(mut self) -> Result<Merged, CheckpointError> {
        let old = self.pin.tree().root;
        if let (Some(root), true) = (old, self.changes.peek().is_none()) {
            let bitmaps = self.bitmaps().await?;
            return Ok(self.finished(Some(root), bitmaps));
        }
        if let Some(root) = old {
            self.walk(root).await?;
        }
        while let Some((key, change)) = self.take_before(None) {
            self.insert(key, change);
            self.spill(0).await?;
        }
        let root = self.finish().await?;
        let bitmaps = self.bitmaps().await?;
        self.check_last_pages(root, bitmaps.len() as u64)?;
        Ok(self.finished(root, bitmaps))
    }

    fn check_last_pages(&self, root: Option<Root>, bitmaps: u64) -> Result<(), CheckpointError> {
        let next = self.allocation.next();
        let (before, total) = (next.pages() - self.free_at_start, next.pages());
        let levels = root.map_or(0, |root| u64::from(root.level) + 1);
        if next.used() > before && total - next.used() < last_pages(levels, bitmaps) {
            return Err(CheckpointError::Full { pool: self.store.pool, free: self.free_at_start, total });
        }
        Ok(())
    }

    fn finished(mut self, root: Option<Root>, bitmaps: Vec<Pointer>) -> Merged {
        let rest = self.changes.peek().map(|(key, _)| **key);
        Merged { root, entries: self.entries, bitmaps, rest, allocation: self.allocation }
    }

    async fn walk(&mut self, root: Root) -> Result<(), CheckpointError> {
        let mut path: Vec<Frame> = Vec::new();
        self.visit(root.child, root.level, None, &mut path).await?;
        while let Some(frame) = path.last_mut() {
            let Some(child) = frame.page.child(frame.next) else {
                path.pop();
                continue;
            };
            frame.next += 1;
            let upper = frame.page.child(frame.next).map(|next| next.key).or(frame.upper);
            let level = frame.page.level().saturating_sub(1);
            self.visit(child, level, upper, &mut path).await?;
        }
        Ok(())
    }

    /// Takes over a page of the old tree whose keys end before `upper`.
    #[pooled]
    async fn visit(
        &mut self,
        child: Child,
        level: u8,
        upper: Option<Key>,
        path: &mut Vec<Frame>,
    ) -> Result<(), CheckpointError> {
        if self.change_before(upper).is_none() && self.pass(child, level).await? {
            return Ok(());
        }
        let page = self.take_apart(child, level).await?;
        if level > 0 {
            path.push(Frame { page, next: 0, upper });
            return Ok(());
        }
        self.merge_leaf(&page, upper).await
    }

    fn change_before(&mut self, upper: Option<Key>) -> Option<(Key, &'a Change)> {
        let may_take = self.may_take();
        let (key, change) = self.changes.peek()?;
        (may_take && upper.is_none_or(|upper| **key < upper)).then_some((**key, *change))
    }

    /// Whether another change may be taken. Once it may not, none is: freed pages are not taken again.
    fn may_take(&self) -> bool {
        let is_ample = self.reach == Reach::Whole || self.allocation.left() >= self.finish_pages;
        is_ample || !self.has_taken
    }

    fn take_before(&mut self, upper: Option<Key>) -> Option<(Key, &'a Change)> {
        let taken = self.change_before(upper)?;
        Some(self.take_next(taken))
    }

    fn take_next(&mut self, taken: (Key, &'a Change)) -> (Key, &'a Change) {
        self.changes.next();
        (self.has_taken, self.is_leaf_new) = (true, true);
        taken
    }

    /// The change of a key of the old tree, when it has one and may be made. In a leaf that is written anyway, one that needs
    /// no more room than there was costs no page: such are taken to the last page, or a part would be a change.
    fn take_of(&mut self, key: Key, old: &[u8]) -> Option<&'a Change> {
        let may_take = self.may_take();
        let (changed, change) = self.changes.peek().map(|(key, change)| (**key, *change))?;
        let is_no_longer = change.as_ref().is_none_or(|new| new.len() <= old.len());
        let is_free = self.is_leaf_new && is_no_longer;
        (changed == key && (may_take || is_free)).then(|| self.take_next((changed, change)).1)
    }

    /// Hangs an untouched page into the new tree, unless something thin before it wants its first entries.
    async fn pass(&mut self, child: Child, level: u8) -> Result<bool, CheckpointError> {
        for below in all_levels().take_while(|below| *below <= level) {
            if self.levels.is_thin(below) {
                return Ok(false);
            }
            self.drain(below).await?;
        }
        self.hang(child, level)?;
        self.spill(level + 1).await?;
        Ok(true)
    }

    /// Reads a page whose content moves to new pages; its place is free in the new tree.
    #[pooled]
    async fn take_apart(&mut self, child: Child, level: u8) -> Result<Rc<Page>, CheckpointError> {
        let waiting = self.batch.iter().find(|page| page.at() == child.at).cloned();
        let read = match waiting {
            Some(page) => Ok(page),
            None => self.store.tree_page(&self.pin, child, level, Caching::Kept).await,
        };
        let page = read.map_err(|source| self.unreadable(source))?;
        if !self.allocation.release(child.at.page) {
            let defect = Defect::Place { found: child.at.page, expected: 0 };
            return Err(self.unreadable(self.store.unfit(child.at.page, defect)));
        }
        Ok(page)
    }

    fn unreadable(&self, source: StoreError) -> CheckpointError {
        CheckpointError::Read { pool: self.store.pool, source: Box::new(source) }
    }

    #[pooled]
    async fn merge_leaf(&mut self, page: &Page, upper: Option<Key>) -> Result<(), CheckpointError> {
        self.is_leaf_new = false;
        for (key, value) in (0..page.count()).filter_map(|index| page.entry(index)) {
            while let Some((changed, change)) = self.take_before(Some(key)) {
                self.insert(changed, change);
                self.spill(0).await?;
            }
            match self.take_of(key, value) {
                Some(Some(value)) => self.levels.push_entry(key, value.clone()),
                Some(None) => self.entries = self.entries.saturating_sub(1),
                None => self.levels.push_entry(key, Value::new(value)),
            }
            self.spill(0).await?;
        }
        while let Some((changed, change)) = self.take_before(upper) {
            self.insert(changed, change);
            self.spill(0).await?;
        }
        Ok(())
    }

    /// A change of a key that the old tree does not have.
    fn insert(&mut self, key: Key, change: &Change) {
        if let Some(value) = change {
            self.levels.push_entry(key, value.clone());
            self.entries += 1;
        }
    }

    /// Lets full pages go where much is gathered, from `level` up.
    async fn spill(&mut self, level: u8) -> Result<(), CheckpointError> {
        for level in all_levels().skip(usize::from(level)) {
            if !self.levels.is_ample(level) {
                break;
            }
            while self.levels.is_ample(level) {
                self.emit(level, Fill::Full).await?;
            }
        }
        Ok(())
    }

    /// Makes pages of all that is gathered for a level.
    async fn drain(&mut self, level: u8) -> Result<(), CheckpointError> {
        while !self.levels.is_empty(level) {
            self.emit(level, Fill::Even).await?;
        }
        Ok(())
    }

    #[pooled]
    async fn emit(&mut self, level: u8, fill: Fill) -> Result<(), CheckpointError> {
        if let Some((key, unplaced)) = self.levels.cut(level, fill) {
            let at = self.add(unplaced).await?;
            self.hang(Child { key, at }, level)?;
        }
        Ok(())
    }

    fn hang(&mut self, child: Child, level: u8) -> Result<(), CheckpointError> {
        if self.levels.push_page(level, child) {
            return Ok(());
        }
        Err(CheckpointError::TooHigh { pool: self.store.pool, levels_max: LEVELS_MAX })
    }

    /// Gives a page its place, and writes the batch when it is full.
    async fn add(&mut self, unplaced: UnplacedPage) -> Result<Pointer, CheckpointError> {
        let number = self.take_number()?;
        let page = Rc::new(unplaced.seal(self.store.pool, number, self.sequence));
        let at = page.at();
        self.batch.push(page);
        if self.batch.len() >= BATCH_PAGES_MAX {
            self.write().await?;
        }
        Ok(at)
    }

    fn take_number(&mut self) -> Result<u64, CheckpointError> {
        let total = self.allocation.next().pages();
        let full = CheckpointError::Full { pool: self.store.pool, free: self.free_at_start, total };
        self.allocation.take().ok_or(full)
    }

    #[pooled]
    async fn write(&mut self) -> Result<(), CheckpointError> {
        let batch = std::mem::replace(&mut self.batch, Vec::with_capacity(BATCH_PAGES_MAX));
        let failed = self.port.write_pages(self.to, &batch).await;
        if !failed.is_empty() {
            return Err(CheckpointError::Replicas { pool: self.store.pool, failed });
        }
        self.store.count(|counters| counters.page_writes += batch.len() as u64);
        let mut cache = self.store.cache.borrow_mut();
        batch.into_iter().for_each(|page| cache.insert(page, Caching::Kept));
        Ok(())
    }

    /// Makes the last pages of every level, then the root.
    #[pooled]
    async fn finish(&mut self) -> Result<Option<Root>, CheckpointError> {
        for level in all_levels() {
            if let (None, Some(below)) = (self.levels.first_above(level), level.checked_sub(1))
                && let Some(child) = self.levels.only_page(below)
            {
                return Ok(Some(Root { child, level: below }));
            }
            if self.levels.is_thin(level) && self.levels.first_above(level).is_some() {
                self.take_left_neighbour(level).await?;
            }
            self.drain(level).await?;
            if self.levels.first_above(level).is_none() {
                return Ok(None);
            }
        }
        Err(CheckpointError::TooHigh { pool: self.store.pool, levels_max: LEVELS_MAX })
    }

    /// Puts the content of the last page before the thin rest of `level` in front of it. Pages above that were passed
    /// as a whole are opened on the way down.
    #[pooled]
    async fn take_left_neighbour(&mut self, level: u8) -> Result<(), CheckpointError> {
        let Some(top) = self.levels.first_above(level) else { return Ok(()) };
        for below in (level..top).rev() {
            let Some(last) = self.levels.pop_page(below) else { return Ok(()) };
            let page = self.take_apart(last, below).await?;
            match below.checked_sub(1) {
                None => {
                    let entries = (0..page.count()).filter_map(|index| page.entry(index));
                    let entries = entries.map(|(key, value)| (key, Value::new(value)));
                    self.levels.entries_before(entries);
                }
                Some(lower) => {
                    let children = (0..page.count()).filter_map(|index| page.child(index));
                    self.levels.pages_before(lower, children);
                }
            }
        }
        Ok(())
    }

    /// Writes the new set of used pages. Its own pages are in it, so their numbers are taken first.
    #[pooled]
    async fn bitmaps(&mut self) -> Result<Vec<Pointer>, CheckpointError> {
        for old in self.pin.tree().bitmaps.clone() {
            self.allocation.release(old.page);
        }
        let count = self.pin.tree().bitmaps.len();
        let numbers = (0..count).map(|_| self.take_number()).collect::<Result<Vec<u64>, _>>()?;
        let mut pointers = Vec::with_capacity(count);
        for (index, number) in (0u16..).zip(numbers) {
            let unplaced = UnplacedPage::bitmap(index, &self.allocation.next().chunk(usize::from(index)));
            let page = Rc::new(unplaced.seal(self.store.pool, number, self.sequence));
            pointers.push(page.at());
            self.batch.push(page);
            if self.batch.len() >= BATCH_PAGES_MAX {
                self.write().await?;
            }
        }
        self.write().await?;
        Ok(pointers)
    }
}
