//! Room in the write cache that is promised to writes before they begin (docs/design/0004, *Room*).
//!
//! Invariant: what is promised comes on top of what is kept back for putting the oldest row in place.

use std::rc::Rc;

use dolmen_mutation::mutation;

use crate::cache::drain::Drain;
use crate::cache::segments::CacheIndex;
use crate::format::error::SpaceError;
use crate::table::space::Cache;

/// Room of a write cache that is reserved for writes and discards.
#[derive(Clone, Copy)]
pub(crate) struct Reservations<'a> {
    cache: &'a Rc<Cache>,
}

impl<'a> Reservations<'a> {
    /// Returns the service for a write cache.
    pub(crate) fn of(cache: &'a Rc<Cache>) -> Self {
        Self { cache }
    }
}

impl<'s> Reservations<'s> {
    /// Whether somebody is about to write what was reserved.
    pub(crate) fn has_promised(self) -> bool {
        self.cache.reserved.get() > 0 || self.cache.promised.get() > 0
    }

    /// Whether somebody is about to write what was reserved, who is to notify when it is written. Until then, whoever waits for
    /// room has nothing emptied: where nobody would notify, they would wait for ever.
    pub(crate) fn waits_for_them(self) -> bool {
        let has_promised = self.has_promised() || mutation!(WaitsForNobody);
        if has_promised {
            self.cache.waits_for_others.set(true);
        }
        has_promised
    }

    /// Waits until so many blocks can be cached. Called without any lock or ticket.
    ///
    /// # Errors
    /// When it is full of what cannot be put in place.
    pub(crate) async fn reserve(self, blocks: u64) -> Result<Reserved<'s>, SpaceError> {
        self.reserve_both(blocks, blocks).await
    }

    /// The same for blocks that are discarded: the log has to say so of each, and they take no room else.
    pub(crate) async fn reserve_discards(self, blocks: u64) -> Result<Reserved<'s>, SpaceError> {
        self.reserve_both(0, blocks).await
    }

    async fn reserve_both(self, blocks: u64, versions: u64) -> Result<Reserved<'s>, SpaceError> {
        let has_room = || {
            let free = CacheIndex::of(self.cache).free().saturating_sub(self.cache.reserved.get());
            let promised = self.cache.versions.get() + self.cache.promised.get();
            (blocks == 0 || free >= CacheIndex::of(self.cache).kept() + blocks)
                && promised + versions <= CacheIndex::of(self.cache).versions_max()
        };
        while !has_room() {
            self.cache.waiting.set(self.cache.waiting.get() + 1);
            let (notify, tries) = (self.cache.notify.wait(), self.cache.tries.get());
            if !self.cache.waits_for_others.get() {
                Drain::of(self.cache).empty_soon();
            }
            notify.await;
            self.cache.waiting.set(self.cache.waiting.get() - 1);
            // A try that had begun before this waited, or before what it has freed was taken by others, says nothing.
            let stuck = self.cache.stuck.borrow().clone().filter(|(nth, _)| *nth > tries);
            if let Some((_, error)) = stuck.filter(|_| !has_room()) {
                return Err(error);
            }
        }
        self.cache.reserved.set(self.cache.reserved.get() + blocks);
        self.cache.promised.set(self.cache.promised.get() + versions);
        Ok(Reserved { cache: self.cache, blocks, versions })
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
        CacheIndex::of(self.cache).free()
            >= self.cache.reserved.get() + CacheIndex::of(self.cache).free_for_parity()
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
