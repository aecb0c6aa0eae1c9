//! Room in the write cache that is promised to writes before they begin (docs/design/0004, *Room*).
//!
//! Invariant: what is promised comes on top of what is kept back for putting the oldest row in place.

use std::rc::Rc;

use crate::cache::space::Cache;
use crate::format::error::SpaceError;

impl Cache {
    /// Whether somebody is about to write what was reserved.
    pub(crate) fn has_promised(&self) -> bool {
        self.reserved.get() > 0 || self.promised.get() > 0
    }

    /// Waits until so many blocks can be cached. Called without any lock or ticket.
    ///
    /// # Errors
    /// When it is full of what cannot be put in place.
    pub(crate) async fn reserve(self: &Rc<Self>, blocks: u64) -> Result<Reserved<'_>, SpaceError> {
        self.reserve_both(blocks, blocks).await
    }

    /// The same for blocks that are discarded: the log has to say so of each, and they take no room else.
    pub(crate) async fn reserve_discards(self: &Rc<Self>, blocks: u64) -> Result<Reserved<'_>, SpaceError> {
        self.reserve_both(0, blocks).await
    }

    async fn reserve_both(self: &Rc<Self>, blocks: u64, versions: u64) -> Result<Reserved<'_>, SpaceError> {
        let has_room = || {
            let free = self.free().saturating_sub(self.reserved.get());
            let promised = self.versions.get() + self.promised.get();
            (blocks == 0 || free >= self.kept() + blocks) && promised + versions <= self.versions_max()
        };
        while !has_room() {
            self.waiting.set(self.waiting.get() + 1);
            let (notify, tries) = (self.notify.wait(), self.tries.get());
            if !self.waits_for_others.get() {
                self.empty_soon();
            }
            notify.await;
            self.waiting.set(self.waiting.get() - 1);
            // A try that had begun before this waited, or before what it has freed was taken by others, says nothing.
            let stuck = self.stuck.borrow().clone().filter(|(nth, _)| *nth > tries);
            if let Some((_, error)) = stuck.filter(|_| !has_room()) {
                return Err(error);
            }
        }
        self.reserved.set(self.reserved.get() + blocks);
        self.promised.set(self.promised.get() + versions);
        Ok(Reserved { cache: self, blocks, versions })
    }
}

/// Blocks of the cache that are promised to somebody; what was not used is given back when it is dropped.
#[derive(Debug)]
pub(crate) struct Reserved<'a> {
    cache: &'a Cache,
    blocks: u64,
    versions: u64,
}

impl Reserved<'_> {
    /// Whether what was promised is there still: a row of the cache that was being filled may have been closed since, because a
    /// disk of it left, or to be emptied.
    pub(crate) fn is_valid(&self) -> bool {
        self.cache.free() >= self.cache.reserved.get() + self.cache.free_for_parity()
    }

    pub(crate) fn release(&mut self, blocks: u64, versions: u64) {
        let (blocks, versions) = (blocks.min(self.blocks), versions.min(self.versions));
        self.blocks -= blocks;
        self.versions -= versions;
        self.cache.reserved.set(self.cache.reserved.get() - blocks);
        self.cache.promised.set(self.cache.promised.get() - versions);
    }
}

impl Drop for Reserved<'_> {
    fn drop(&mut self) {
        let is_left = self.versions > 0;
        self.release(self.blocks, self.versions);
        if self.cache.waits_for_others.replace(false) || is_left {
            self.cache.notify.notify_all();
        }
    }
}
