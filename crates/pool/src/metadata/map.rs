//! The metadata map of an open pool: keys and values on every voter, with the changes that no checkpoint has written yet.

use std::cell::Cell;
use std::rc::Rc;

use dolmen_future_pool::pooled;
use dolmen_store::{Key, PAGE_BYTES, Store};
use dolmen_units::{Bytes, Lsn};

use crate::error::PoolError;
use crate::members::identity::Identity;
use crate::metadata::edits::Edit;

/// What a change is for: how deep it may reach into reserves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// A client wants room: stops at the reserve of each disk and of the log.
    Claim,
    /// A move or a repair: may use the reserve of the disks.
    Move,
    /// Gives room back, or must go on when everything is full: is never refused for want of it.
    Release,
}

/// The metadata map of an open pool.
pub struct MetadataMap {
    pub(crate) identity: Rc<Identity>,
    pub(crate) store: Rc<Store>,
    /// The batch of the change that is in the log and not in the map yet.
    pub(crate) applying: Cell<Option<Lsn>>,
    /// Whether a claim waits for what a checkpoint gives back to the map.
    pub(crate) wants_room: Cell<bool>,
    /// Whether the last checkpoint ended for want of pages.
    pub(crate) is_full: Cell<bool>,
}

impl MetadataMap {
    pub(crate) fn new(identity: &Rc<Identity>, store: &Rc<Store>) -> Rc<Self> {
        Rc::new(Self {
            identity: Rc::clone(identity),
            store: Rc::clone(store),
            applying: Cell::default(),
            wants_room: Cell::default(),
            is_full: Cell::default(),
        })
    }

    /// A value of the metadata map.
    ///
    /// # Errors
    /// [`PoolError::Store`] when it cannot be read from any voter.
    #[pooled]
    pub async fn get(&self, key: &Key) -> Result<Option<Vec<u8>>, PoolError> {
        self.store
            .get(key)
            .await
            .map(|value| value.map(|value| value.to_vec()))
            .map_err(|error| self.store_error(error))
    }

    /// Keys and values of a range, ascending, `max` at most.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    #[pooled]
    pub async fn scan(
        &self,
        range: std::ops::Range<Key>,
        max: usize,
    ) -> Result<Vec<(Key, Vec<u8>)>, PoolError> {
        let found = self.store.scan(range, max).await.map_err(|error| self.store_error(error))?;
        Ok(found.into_iter().map(|(key, value)| (key, value.to_vec())).collect())
    }

    /// The same for long scans of what requests of clients do not need: what they need stays in the cache.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    #[pooled]
    pub async fn scan_aside(
        &self,
        range: std::ops::Range<Key>,
        max: usize,
    ) -> Result<Vec<(Key, Vec<u8>)>, PoolError> {
        let found = self.store.scan_aside(range, max).await.map_err(|error| self.store_error(error))?;
        Ok(found.into_iter().map(|(key, value)| (key, value.to_vec())).collect())
    }

    /// Whether the map has room for a change of this kind.
    ///
    /// No checkpoint may end for want of pages: the log could not be trimmed, nor the pool closed or opened again. Those who
    /// give room back or mark slabs as stale cannot be refused, and what they do makes the tree grow before it shrinks: pages
    /// that lose entries stay at a third full, the runs of deleted rows take entries of their own, and so does each row with
    /// a stale slab, less than the row itself takes. So claims leave as many pages free as the tree has, beside those that a
    /// checkpoint in parts needs. Moves add a slab to a row for a while, and redundancy hangs on them: they leave an eighth.
    /// Where a checkpoint needs more than is free for all changes at once, it is made in parts.
    pub(crate) fn has_room(&self, purpose: Purpose) -> bool {
        let room = self.store.room();
        let tree = room.pages_tree + room.pages_new_max;
        let left = match purpose {
            Purpose::Claim => tree,
            Purpose::Move => tree / 8,
            Purpose::Release => return true,
        };
        room.pages_free >= room.pages_part + room.pages_new_max + left
    }

    /// Returns whether a claim of room would find any in the map now, without waiting for a checkpoint.
    #[must_use]
    pub fn has_room_for_claims(&self) -> bool {
        self.has_room(Purpose::Claim)
    }

    /// Returns the bytes of pages that each voter has for the map.
    #[must_use]
    pub fn pages_bytes(&self) -> Bytes {
        Bytes(self.store.room().pages_total.saturating_mul(PAGE_BYTES as u64))
    }

    /// Changes the map in memory only. For recovery, before anything is served: the checkpoint that ends it makes the edits
    /// durable, and a crash before that repeats it. That checkpoint may be made in parts, in the order of keys: whoever
    /// repeats it may find some of the edits made.
    pub fn edit_before_checkpoint(&self, edits: Vec<(Key, Vec<u8>)>) {
        for (key, value) in edits {
            self.store.put(key, &value);
        }
    }

    pub(crate) fn store_error(&self, error: dolmen_store::StoreError) -> PoolError {
        PoolError::Store { name: self.identity.name.clone(), source: Rc::new(error) }
    }
}

pub(crate) fn apply_edits(map: &MetadataMap, edits: Vec<Edit>) {
    for (key, value) in edits {
        match value {
            Some(value) => map.store.put(key, &value),
            None => map.store.delete(key),
        }
    }
}
