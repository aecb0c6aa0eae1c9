//! A change: edits of the metadata map and allocation units taken and given back, committed in one durable record or not at all.

use std::collections::BTreeMap;
use std::rc::Rc;

use dolmen_block_io::sync::Permit;
use dolmen_future_pool::pooled;
use dolmen_journal::{Class, Wait};
use dolmen_mutation::mutation;
use dolmen_store::Key;
use dolmen_units::{Bytes, DiskSlot, Lsn};

use crate::error::PoolError;
use crate::free::{Edit, Run};
use crate::pool::{Pool, RECORD_META};

/// Bytes of one change in the log, at most.
const CHANGE_BYTES_MAX: usize = 192 * 1024;

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

/// A slab's room on a disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// Which disk.
    pub slot: DiskSlot,
    /// Its allocation units, in order.
    pub runs: Vec<Run>,
}

/// A change that is being put together. Dropped without [`commit`](Self::commit), it leaves no trace. Changes are made
/// one at a time: whoever holds one keeps others waiting.
pub struct Change<'a> {
    pub(crate) pool: &'a Rc<Pool>,
    pub(crate) purpose: Purpose,
    edits: BTreeMap<Key, Option<Vec<u8>>>,
    pub(crate) taken: Vec<(DiskSlot, Run)>,
    given: Vec<(DiskSlot, Run)>,
    has_room: bool,
    done: bool,
    _exclusive: Permit<'a>,
}

impl Pool {
    /// Begins a change, when the one before is done.
    #[pooled]
    pub async fn change<'a>(self: &'a Rc<Self>, purpose: Purpose) -> Change<'a> {
        if purpose == Purpose::Claim {
            // Waiting for room with the turn in hand would keep out those who make room.
            let _ = self.wait_for_log().await;
            self.wait_for_map().await;
        }
        let mutex = self.commit_mutex.take().await;
        Change {
            pool: self,
            purpose,
            edits: BTreeMap::new(),
            taken: Vec::new(),
            given: Vec::new(),
            has_room: false,
            done: false,
            _exclusive: mutex,
        }
    }
}

impl Change<'_> {
    /// A value as this change sees it.
    ///
    /// # Errors
    /// As [`Pool::get`].
    #[pooled]
    pub async fn get(&self, key: &Key) -> Result<Option<Vec<u8>>, PoolError> {
        match self.edits.get(key) {
            Some(value) => Ok(value.clone()),
            None => self.pool.get(key).await,
        }
    }

    /// Sets a value.
    pub fn put(&mut self, key: Key, value: Vec<u8>) {
        self.edits.insert(key, Some(value));
    }

    /// Removes a key.
    pub fn delete(&mut self, key: Key) {
        self.edits.insert(key, None);
    }

    /// The next number of a counter, given once.
    ///
    /// # Errors
    /// As [`Pool::get`].
    #[pooled]
    pub async fn number(&mut self, key: Key) -> Result<u64, PoolError> {
        let value = self.get(&key).await?;
        let number = value.and_then(|value| value.try_into().ok()).map_or(1, u64::from_le_bytes);
        self.put(key, (number + 1).to_le_bytes().to_vec());
        Ok(number)
    }

    /// Adds to a count, which is 0 where it is not written.
    ///
    /// # Errors
    /// As [`Pool::get`].
    #[pooled]
    pub async fn add(&mut self, key: Key, difference: i64) -> Result<u64, PoolError> {
        let value = self.get(&key).await?;
        let before = value.and_then(|value| value.try_into().ok()).map_or(0, u64::from_le_bytes);
        let after = before.saturating_add_signed(difference);
        self.put(key, after.to_le_bytes().to_vec());
        Ok(after)
    }

    /// Gives allocation units back. They can be taken again once the change is durable.
    pub fn release(&mut self, slot: DiskSlot, runs: &[Run]) {
        self.given.extend(runs.iter().map(|run| (slot, *run)));
    }

    /// Whether there is room for the change in the map. [`commit`](Self::commit) asks for it if nobody has before.
    ///
    /// # Errors
    /// When the pool cannot be written, and [`PoolError::MetadataFull`].
    pub fn check_room(&mut self) -> Result<(), PoolError> {
        self.pool.check_writable()?;
        let is_trapped = mutation!(ReleaseNeedsRoom) && !self.given.is_empty() && self.pool.is_short();
        if !self.pool.has_map_room(self.purpose) || is_trapped {
            return Err(PoolError::MetadataFull { name: self.pool.name.clone() });
        }
        self.has_room = true;
        Ok(())
    }

    /// Makes the change durable on every voter, then visible.
    ///
    /// # Errors
    /// When the pool cannot be written, or the change is too large; then nothing has changed.
    #[pooled]
    pub async fn commit(mut self) -> Result<(), PoolError> {
        let log = Rc::clone(self.pool.writable_log()?);
        if !self.has_room {
            self.check_room()?;
        }
        // Edits of free allocation units come last, when it is certain that the record will be written.
        let own: usize = self.edits.values().map(edit_bytes).sum();
        let units = (self.taken.len() + self.given.len()) * 3 * 48;
        if own + units > CHANGE_BYTES_MAX {
            let limit = Bytes(CHANGE_BYTES_MAX as u64);
            return Err(PoolError::TooLarge { found: Bytes((own + units) as u64), limit });
        }
        self.done = true;
        let frees = mutation!(FreeBeforeCommit) && !self.given.is_empty();
        give(self.pool, self.given.drain(..))?;
        let mut edits: Vec<Edit> = std::mem::take(&mut self.edits).into_iter().collect();
        for (slot, map) in self.pool.free.borrow_mut().iter_mut() {
            edits.extend(map.edits(*slot));
        }
        let body = encode_edits(&edits);
        let wait = if frees { Wait::Written } else { Wait::Durable };
        let placed = log.place(RECORD_META, &[&body], Class::Reserved, wait).await;
        let lsn = placed.map_err(|error| self.pool.log_failed(error))?;
        // No checkpoint trims the record before its edits are in the map.
        let applying = Applying::new(self.pool, lsn);
        let written = log.placed(lsn).await;
        if let Err(error) = written {
            let error = self.pool.log_failed(error);
            applying.done();
            return Err(error);
        }
        apply_edits(self.pool, edits);
        applying.done();
        if self.purpose == Purpose::Release {
            // It may have made the room that the last checkpoint did not find.
            self.pool.is_map_full.set(false);
        }
        self.pool.ring_if_filling(&log);
        Ok(())
    }
}

/// A change whose record is in the log and whose edits are not in the map yet. There is one at most at a time.
struct Applying<'a> {
    pool: &'a Pool,
    is_done: bool,
}

impl<'a> Applying<'a> {
    fn new(pool: &'a Pool, lsn: Lsn) -> Self {
        pool.applying.set(Some(lsn));
        Self { pool, is_done: false }
    }

    fn done(mut self) {
        self.is_done = true;
    }
}

impl Drop for Applying<'_> {
    fn drop(&mut self) {
        self.pool.applying.set(None);
        if !self.is_done {
            self.pool.latch("a change was given up while its record was being written".to_owned());
        }
        self.pool.changed.notify_all();
    }
}

impl Drop for Change<'_> {
    fn drop(&mut self) {
        if !self.done {
            // What was taken was free: it can be given back, unless the pool stops.
            let _ = give(self.pool, self.taken.drain(..));
        }
    }
}

impl Pool {
    /// Whether the map has room for a change of this kind.
    ///
    /// No checkpoint may end for want of pages: the log could not be trimmed, nor the pool closed or opened again. Those who
    /// give room back or mark slabs as stale cannot be refused, and what they do makes the tree grow before it shrinks: pages
    /// that lose entries stay at a third full, the runs of deleted rows take entries of their own, and so does each row with
    /// a stale slab, less than the row itself takes. So claims leave as many pages free as the tree has, beside those that a
    /// checkpoint in parts needs. Moves add a slab to a row for a while, and redundancy hangs on them: they leave an eighth.
    /// Where a checkpoint needs more than is free for all changes at once, it is made in parts.
    fn has_map_room(&self, purpose: Purpose) -> bool {
        let room = self.store.room();
        let tree = room.pages_tree + room.pages_new_max;
        let left = match purpose {
            Purpose::Claim => tree,
            Purpose::Move => tree / 8,
            Purpose::Release => return true,
        };
        room.pages_free >= room.pages_part + room.pages_new_max + left
    }

    /// Where the map has no room for a claim, waits for a checkpoint: the bounds of what changes need are wide, and deletes
    /// give their pages back only then. A refused claim leaves no changes, so the next one does not wait.
    async fn wait_for_map(&self) {
        let checkpoints = self.store.stats().checkpoints;
        let is_worth_it = || {
            let is_open = self.writable_log().is_ok() && !self.stopping.get() && !self.is_map_full.get();
            is_open && self.table_owner().is_some() && self.store.overlay_bytes() > 0
        };
        while is_worth_it()
            && self.store.stats().checkpoints == checkpoints
            && !self.has_map_room(Purpose::Claim)
        {
            let changed = self.changed.wait();
            self.wants_map_room.set(true);
            self.checkpoint_notify.notify_all();
            changed.await;
        }
    }

    /// Changes the map in memory only. For recovery, before anything is served: the checkpoint that ends it makes the edits
    /// durable, and a crash before that repeats it. That checkpoint may be made in parts, in the order of keys: whoever
    /// repeats it may find some of the edits made.
    pub fn edit_before_checkpoint(&self, edits: Vec<(Key, Vec<u8>)>) {
        for (key, value) in edits {
            self.store.put(key, &value);
        }
    }
}

/// Gives allocation units back in memory.
///
/// # Errors
/// [`PoolError::Corrupt`] where the map calls them free already, or has none such; the pool has stopped then, because nobody
/// knows whose they are.
pub(crate) fn give(pool: &Pool, runs: impl Iterator<Item = (DiskSlot, Run)>) -> Result<(), PoolError> {
    let mut wrong = None;
    let mut free = pool.free.borrow_mut();
    for (slot, run) in runs {
        // Allocation units of a disk that was forgotten belong to nobody.
        if free.get_mut(&slot).is_some_and(|map| map.give(run).is_err()) {
            wrong.get_or_insert((slot, run));
        }
    }
    drop(free);
    let Some((slot, Run { first, count })) = wrong else { return Ok(()) };
    let what =
        format!("a row with {count} allocation units from {first} on of {slot}, which are not all its own");
    pool.latch(format!("its metadata has {what}"));
    Err(PoolError::Corrupt { name: pool.name.clone(), what })
}

pub(crate) fn apply_edits(pool: &Pool, edits: Vec<Edit>) {
    for (key, value) in edits {
        match value {
            Some(value) => pool.store.put(key, &value),
            None => pool.store.delete(key),
        }
    }
}

fn edit_bytes(value: &Option<Vec<u8>>) -> usize {
    24 + 2 + value.as_ref().map_or(0, Vec::len)
}

/// Edits as the body of a record: {key 24, length u16 or 0xffff for a removal, value}, one after another.
pub(crate) fn encode_edits(edits: &[Edit]) -> Vec<u8> {
    let mut body = Vec::with_capacity(edits.iter().map(|(_, value)| edit_bytes(value)).sum());
    for (key, value) in edits {
        body.extend_from_slice(&key.0);
        let length = value.as_ref().map_or(u16::MAX, |value| u16::try_from(value.len()).unwrap_or(0));
        body.extend_from_slice(&length.to_le_bytes());
        body.extend_from_slice(value.as_deref().unwrap_or_default());
    }
    body
}

/// The edits of a record, or `None` when its lengths make no sense.
#[must_use]
pub fn decode_edits(mut body: &[u8]) -> Option<Vec<Edit>> {
    let mut edits = Vec::new();
    while !body.is_empty() {
        let (key, rest) = body.split_first_chunk::<24>()?;
        let (length, rest) = rest.split_first_chunk::<2>()?;
        let length = u16::from_le_bytes(*length);
        if length == u16::MAX {
            edits.push((Key(*key), None));
            body = rest;
            continue;
        }
        let (value, rest) = rest.split_at_checked(usize::from(length))?;
        edits.push((Key(*key), Some(value.to_vec())));
        body = rest;
    }
    Some(edits)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn edits_read_back_as_they_were_written(edits in proptest::collection::vec((any::<[u8; 24]>(), proptest::option::of(proptest::collection::vec(any::<u8>(), 0..100))), 0..20)) {
            let edits: Vec<Edit> = edits.into_iter().map(|(key, value)| (Key(key), value)).collect();
            prop_assert_eq!(decode_edits(&encode_edits(&edits)), Some(edits));
        }

        #[test]
        fn nonsense_in_a_record_does_no_harm(body in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = decode_edits(&body);
        }
    }
}
