//! A change: edits of the metadata map and allocation units taken and given back, committed in one durable record or not at all.

use std::collections::BTreeMap;
use std::rc::Rc;

use dolmen_block_io::sync::AsyncMutex;
use dolmen_block_io::sync::Permit;
use dolmen_future_pool::pooled;
use dolmen_journal::{Class, Wait};
use dolmen_mutation::mutation;
use dolmen_store::{Key, VALUE_BYTES_MAX};
use dolmen_units::{Bytes, DiskSlot, Lsn};

use crate::error::PoolError;
use crate::log::blocks::RECORD_META;
use crate::log::pool_log::PoolLog;
use crate::members::identity::Identity;
use crate::members::table::Members;
use crate::metadata::edits::edit_bytes;
use crate::metadata::edits::{Edit, encode_edits};
use crate::metadata::map::{MetadataMap, Purpose, apply_edits};
use crate::ranks;
use crate::room::free_map::Run;
use crate::room::free_space::FreeSpace;

/// Bytes of one change in the log, at most.
const CHANGE_BYTES_MAX: usize = 192 * 1024;

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
    pub(crate) changes: &'a Rc<Changes>,
    pub(crate) purpose: Purpose,
    edits: BTreeMap<Key, Option<Vec<u8>>>,
    pub(crate) taken: Vec<(DiskSlot, Run)>,
    given: Vec<(DiskSlot, Run)>,
    has_room: bool,
    done: bool,
    _exclusive: Permit<'a>,
}

/// Begins the changes of an open pool, one at a time.
pub struct Changes {
    pub(crate) identity: Rc<Identity>,
    pub(crate) members: Rc<Members>,
    pub(crate) map: Rc<MetadataMap>,
    pub(crate) log: Rc<PoolLog>,
    pub(crate) free_space: Rc<FreeSpace>,
    pub(crate) mutex: AsyncMutex,
}

impl Changes {
    pub(crate) fn new(
        identity: &Rc<Identity>,
        members: &Rc<Members>,
        map: &Rc<MetadataMap>,
        log: &Rc<PoolLog>,
        free_space: &Rc<FreeSpace>,
    ) -> Rc<Self> {
        Rc::new(Self {
            identity: Rc::clone(identity),
            members: Rc::clone(members),
            map: Rc::clone(map),
            log: Rc::clone(log),
            free_space: Rc::clone(free_space),
            mutex: AsyncMutex::ranked(ranks::COMMIT.single()),
        })
    }

    /// Begins a change, when the one before is done.
    #[pooled]
    pub async fn begin<'a>(self: &'a Rc<Self>, purpose: Purpose) -> Change<'a> {
        if purpose == Purpose::Claim {
            // Waiting for room with the turn in hand would keep out those who make room.
            let _ = self.log.wait_for_room().await;
            self.wait_for_map().await;
        }
        let mutex = self.mutex.take().await;
        Change {
            changes: self,
            purpose,
            edits: BTreeMap::new(),
            taken: Vec::new(),
            given: Vec::new(),
            has_room: false,
            done: false,
            _exclusive: mutex,
        }
    }

    /// Where the map has no room for a claim, waits for a checkpoint: the bounds of what changes need are wide, and deletes
    /// give their pages back only then. A refused claim leaves no changes, so the next one does not wait.
    async fn wait_for_map(&self) {
        let checkpoints = self.map.store.stats().checkpoints;
        let is_worth_it = || {
            let is_open = self.log.writable().is_ok() && !self.log.stopping.get() && !self.map.is_full.get();
            is_open && self.log.table_owner().is_some() && self.map.store.overlay_bytes() > 0
        };
        while is_worth_it()
            && self.map.store.stats().checkpoints == checkpoints
            && !self.map.has_room(Purpose::Claim)
        {
            let changed = self.members.changed.wait();
            self.map.wants_room.set(true);
            self.log.checkpoint_notify.notify_all();
            changed.await;
        }
    }
}

impl Change<'_> {
    /// A value as this change sees it.
    ///
    /// # Errors
    /// As [`MetadataMap::get`].
    #[pooled]
    pub async fn get(&self, key: &Key) -> Result<Option<Vec<u8>>, PoolError> {
        match self.edits.get(key) {
            Some(value) => Ok(value.clone()),
            None => self.changes.map.get(key).await,
        }
    }

    /// Sets a value.
    ///
    /// # Panics
    /// If the value is longer than the map can hold: the record of such a change could not be applied.
    pub fn put(&mut self, key: Key, value: Vec<u8>) {
        assert!(value.len() <= VALUE_BYTES_MAX, "a value of the map has {VALUE_BYTES_MAX} bytes at most");
        self.edits.insert(key, Some(value));
    }

    /// Removes a key.
    pub fn delete(&mut self, key: Key) {
        self.edits.insert(key, None);
    }

    /// The next number of a counter, given once.
    ///
    /// # Errors
    /// As [`MetadataMap::get`].
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
    /// As [`MetadataMap::get`].
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
        self.changes.log.check_writable()?;
        let is_trapped =
            mutation!(ReleaseNeedsRoom) && !self.given.is_empty() && self.changes.free_space.is_short();
        if !self.changes.map.has_room(self.purpose) || is_trapped {
            return Err(PoolError::MetadataFull { name: self.changes.identity.name.clone() });
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
        let log = Rc::clone(self.changes.log.writable()?);
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
        give(self.changes, self.given.drain(..))?;
        let mut edits: Vec<Edit> = std::mem::take(&mut self.edits).into_iter().collect();
        for (slot, map) in self.changes.free_space.maps.borrow_mut().iter_mut() {
            edits.extend(map.edits(*slot));
        }
        let body = encode_edits(&edits);
        let wait = if frees { Wait::Written } else { Wait::Durable };
        let placed = log.place(RECORD_META, &[&body], Class::Reserved, wait).await;
        let lsn = placed.map_err(|error| self.changes.log.log_failed(error))?;
        // No checkpoint trims the record before its edits are in the map.
        let applying = Applying::new(self.changes, lsn);
        let written = log.placed(lsn).await;
        if let Err(error) = written {
            let error = self.changes.log.log_failed(error);
            applying.done();
            return Err(error);
        }
        apply_edits(&self.changes.map, edits);
        applying.done();
        if self.purpose == Purpose::Release {
            // It may have made the room that the last checkpoint did not find.
            self.changes.map.is_full.set(false);
        }
        self.changes.log.ring_if_filling(&log);
        Ok(())
    }
}

/// A change whose record is in the log and whose edits are not in the map yet. There is one at most at a time.
struct Applying<'a> {
    changes: &'a Changes,
    is_done: bool,
}

impl<'a> Applying<'a> {
    fn new(changes: &'a Changes, lsn: Lsn) -> Self {
        changes.map.applying.set(Some(lsn));
        Self { changes, is_done: false }
    }

    fn done(mut self) {
        self.is_done = true;
    }
}

impl Drop for Applying<'_> {
    fn drop(&mut self) {
        self.changes.map.applying.set(None);
        if !self.is_done {
            self.changes.log.latch("a change was given up while its record was being written".to_owned());
        }
        self.changes.members.changed.notify_all();
    }
}

impl Drop for Change<'_> {
    fn drop(&mut self) {
        if !self.done {
            // What was taken was free: it can be given back, unless the pool stops.
            let _ = give(self.changes, self.taken.drain(..));
        }
    }
}

/// Gives allocation units back in memory.
///
/// # Errors
/// [`PoolError::Corrupt`] where the map calls them free already, or has none such; the pool has stopped then, because nobody
/// knows whose they are.
pub(crate) fn give(changes: &Changes, runs: impl Iterator<Item = (DiskSlot, Run)>) -> Result<(), PoolError> {
    let mut wrong = None;
    let mut free = changes.free_space.maps.borrow_mut();
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
    changes.log.latch(format!("its metadata has {what}"));
    Err(PoolError::Corrupt { name: changes.identity.name.clone(), what })
}
