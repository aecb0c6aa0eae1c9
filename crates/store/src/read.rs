//! Look-ups: overlay, then tree. A page that one replica has lost is read from another and healed on the way.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::rc::Rc;

use dolmen_block_io::{DeviceError, READ_HEDGE_DELAY};
use dolmen_future_pool::pooled;

use crate::block::Root;
use crate::cache::Caching;
use crate::error::{Answer, Defect, Fault, Step, StoreError};
use crate::key::{Key, Value};
use crate::overlay::Change;
use crate::page::{Child, Expect, Page, Shape};
use crate::replica::Replica;
use crate::store::{Pin, Store};

/// Overlay entries that one step of a scan looks at.
const SCAN_STEP_MAX: usize = 1024;

/// A leaf, and the key at which the next one begins.
struct Found {
    leaf: Option<Rc<Page>>,
    until: Option<Key>,
}

impl Store {
    /// The value of a key, as of the call.
    ///
    /// # Errors
    /// [`StoreError::PageLost`] when no replica has a page on the way, [`StoreError::Unfit`] when the tree is inconsistent.
    #[pooled]
    pub async fn get(&self, key: &Key) -> Result<Option<Value>, StoreError> {
        if let Some(change) = self.overlay.borrow().get(key) {
            return Ok(change);
        }
        // Pinned in the same instant: a change that moves from the overlay to a later tree cannot be of this key.
        let pin = self.pin();
        let Some(leaf) = self.find(&pin, key, Caching::Kept).await?.leaf else { return Ok(None) };
        let entry = leaf.entry(leaf.rank(key));
        Ok(entry.filter(|(found, _)| found == key).map(|(_, value)| Value::new(value)))
    }

    /// At most `max` keys of a range with their values, ascending; fewer only when the range has no more. Each value is
    /// the one that the key had at some instant of the call. To go on, call again from [`Key::next`] of the last key.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    #[pooled]
    pub async fn scan(&self, range: Range<Key>, max: usize) -> Result<Vec<(Key, Value)>, StoreError> {
        self.scan_cached(range, max, Caching::Kept).await
    }

    /// The same for long scans of what others do not need: it displaces a sixteenth of a full cache at most.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    #[pooled]
    pub async fn scan_aside(&self, range: Range<Key>, max: usize) -> Result<Vec<(Key, Value)>, StoreError> {
        self.scan_cached(range, max, Caching::Aside).await
    }

    #[pooled]
    async fn scan_cached(
        &self,
        range: Range<Key>,
        max: usize,
        caching: Caching,
    ) -> Result<Vec<(Key, Value)>, StoreError> {
        let mut found = Vec::new();
        let mut cursor = range.start;
        while cursor < range.end && found.len() < max {
            match self.scan_step(cursor..range.end, max, caching, &mut found).await? {
                Some(next) => cursor = next,
                None => break,
            }
        }
        Ok(found)
    }

    /// Adds what one leaf and the overlay over it hold; returns where to go on.
    #[pooled]
    async fn scan_step(
        &self,
        range: Range<Key>,
        max: usize,
        caching: Caching,
        found: &mut Vec<(Key, Value)>,
    ) -> Result<Option<Key>, StoreError> {
        let (leaf, mut until) = loop {
            let moves = self.moves.get();
            let pin = self.pin();
            let Found { leaf, until } = self.find(&pin, &range.start, caching).await?;
            // Were changes moved to another tree meanwhile, the overlay would not be the one over this leaf any more.
            if self.moves.get() == moves {
                break (leaf, until.unwrap_or(range.end).min(range.end));
            }
        };
        let over = self.overlay.borrow().range(range.start, Some(until), SCAN_STEP_MAX);
        if over.len() == SCAN_STEP_MAX
            && let Some(next) = over.last().and_then(|(last, _)| last.next())
        {
            until = until.min(next);
        }
        let mut merged: BTreeMap<Key, Change> = BTreeMap::new();
        if let Some(leaf) = leaf {
            let entries = (leaf.rank(&range.start)..leaf.count()).filter_map(|index| leaf.entry(index));
            let entries = entries.take_while(|(key, _)| *key < until);
            merged.extend(entries.map(|(key, value)| (key, Some(Value::new(value)))));
        }
        merged.extend(over);
        let live = merged.into_iter().filter_map(|(key, change)| Some((key, change?)));
        found.extend(live.take(max - found.len()));
        Ok((until < range.end).then_some(until))
    }

    /// The leaf in which `key` is, if it is anywhere.
    async fn find(&self, pin: &Pin, key: &Key, caching: Caching) -> Result<Found, StoreError> {
        let caching_of = |level: u8| if level == 0 { caching } else { Caching::Kept };
        let Some(Root { child, level }) = pin.tree().root else {
            return Ok(Found { leaf: None, until: None });
        };
        let mut page = self.tree_page(pin, child, level, caching_of(level)).await?;
        let mut until = None;
        while page.level() > 0 {
            let index = page.child_for(key);
            if let Some(next) = page.child(index + 1) {
                until = Some(next.key);
            }
            let caching = caching_of(page.level().saturating_sub(1));
            page = self.child_page(pin, &page, index, caching).await?;
        }
        Ok(Found { leaf: Some(page), until })
    }

    async fn child_page(
        &self,
        pin: &Pin,
        parent: &Page,
        index: usize,
        caching: Caching,
    ) -> Result<Rc<Page>, StoreError> {
        match (parent.child(index), parent.level().checked_sub(1)) {
            (Some(child), Some(level)) => self.tree_page(pin, child, level, caching).await,
            _ => Err(self.unfit(parent.at().page, Defect::Entries { entry: index })),
        }
    }

    pub(crate) fn unfit(&self, page: u64, defect: Defect) -> StoreError {
        StoreError::Unfit { pool: self.pool, page, defect }
    }

    pub(crate) fn expect_tree(&self, child: Child, level: u8) -> Expect {
        Expect { pool: self.pool, at: child.at, shape: Shape::Tree { level }, key: Some(child.key) }
    }

    /// A page of the pinned tree.
    #[pooled]
    pub(crate) async fn tree_page(
        &self,
        pin: &Pin,
        child: Child,
        level: u8,
        caching: Caching,
    ) -> Result<Rc<Page>, StoreError> {
        let cached = self.cache.borrow_mut().get(child.at, caching);
        if let Some(page) = cached {
            self.count(|counters| counters.cache_hits += 1);
            // Two parents of one page may disagree on what it is; only the disk path would notice.
            if page.level() != level || page.first_key() != Some(child.key) {
                return Err(self.unfit(child.at.page, Defect::Order { entry: 0 }));
            }
            return Ok(page);
        }
        let page = self.sound_page(pin, &self.expect_tree(child, level)).await?;
        self.cache.borrow_mut().insert(Rc::clone(&page), caching);
        Ok(page)
    }

    /// Reads a page from the first replica that has it, and heals those before. Those that take long are waited for when the
    /// others do not have it.
    #[pooled]
    pub(crate) async fn sound_page(&self, pin: &Pin, expect: &Expect) -> Result<Rc<Page>, StoreError> {
        let mut order: VecDeque<_> =
            self.set.borrow().for_reading(expect.at.page, pin.tree().sequence).into();
        let mut in_time = order.len();
        let port = self.port();
        let mut faults: Vec<Fault> = Vec::new();
        let mut bad: Vec<Replica> = Vec::new();
        while let Some(replica) = order.pop_front() {
            self.count(|counters| counters.page_reads += 1);
            let within = (in_time > 0 && !order.is_empty()).then_some(READ_HEDGE_DELAY);
            in_time = in_time.saturating_sub(1);
            match port.read_pages(&replica, std::slice::from_ref(expect), within).await.pop() {
                Some(Err(Fault { answer: Answer::Device(DeviceError::TimedOut), .. }))
                    if within.is_some() =>
                {
                    order.push_back(replica);
                }
                Some(Ok(page)) => {
                    let page = Rc::new(page);
                    bad.into_iter().for_each(|replica| self.heal(pin, replica, &page));
                    return Ok(page);
                }
                Some(Err(fault)) => {
                    faults.push(fault);
                    if self.can_be_healed(&fault, pin) {
                        bad.push(replica);
                    }
                }
                None => {}
            }
        }
        Err(StoreError::PageLost { pool: self.pool, page: expect.at.page, faults })
    }

    /// A stale replica is not healed page by page, and one that does not answer not at all.
    fn can_be_healed(&self, fault: &Fault, pin: &Pin) -> bool {
        let current = self.set.borrow().is_current(fault.disk, pin.tree().sequence);
        match fault.answer {
            Answer::Defect(_) | Answer::Device(DeviceError::Medium { .. }) => current,
            Answer::Device(_) => false,
        }
    }

    /// Rewrites a page on a replica, as a task of its own: the write must not survive the pin even when the reader is
    /// dropped.
    fn heal(&self, pin: &Pin, replica: Replica, page: &Rc<Page>) {
        let Some(store) = self.me.upgrade() else { return };
        let (pin, page) = (pin.clone(), Rc::clone(page));
        self.heals_under_way.set(self.heals_under_way.get() + 1);
        let task = async move {
            let failed = store.port().write_pages(std::slice::from_ref(&replica), &[page]).await;
            let failed: Vec<_> =
                failed.into_iter().map(|one| crate::Failure { step: Step::Heal, ..one }).collect();
            store.heals_under_way.set(store.heals_under_way.get() - 1);
            if failed.is_empty() {
                store.count(|counters| counters.pages_healed += 1);
            } else {
                store.count(|counters| counters.heals_failed += 1);
                // The next checkpoint looks at all its pages and writes what is missing, or names the disk.
                let mut set = store.set.borrow_mut();
                set.note(&failed);
                set.forget(replica.disk);
            }
            drop(pin);
        };
        self.seams.spawner.spawn("heal a metadata page", Box::pin(task));
    }

    /// Waits until no page is being healed.
    #[pooled]
    pub async fn heals_done(&self) {
        self.notify.wait_for(|| (self.heals_under_way.get() == 0).then_some(())).await;
    }
}
