//! An open pool.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::rc::{Rc, Weak};

use dolmen_block_io::sync::{AsyncMutex, Notify};
use dolmen_block_io::{Instant, Seams};
use dolmen_causes::in_one_line;
use dolmen_disk::{Extent, Generation, Member, MemberState};
use dolmen_future_pool::pooled;
use dolmen_journal::{Class, Log, Place, Usage, Wait};
use dolmen_mutation::mutation;
use dolmen_placement::DomainId;
use dolmen_store::{Key, Store};
use dolmen_units::{ALLOCATION_UNIT_BYTES, Bytes, DiskId, DiskSlot, Epoch, EpochId, Lsn, Name, PoolId};

use crate::arbiter::Arbiter;
use crate::checkpoint::{Left, TableOwner};
use crate::disk::{Disk, DiskState};
use crate::error::PoolError;
use crate::free::{FreeMap, Run};
use crate::members::Named;
use crate::roles::Role;

/// A record in the log: keys and values.
pub(crate) const RECORD_META: u8 = 1;
/// A record in the log: what was written to blocks; only the space above can read it.
pub(crate) const RECORD_BLOCKS: u8 = 2;
/// A record in the log: the first of an epoch.
pub(crate) const RECORD_OPEN: u8 = 3;

/// Allocation units that ordinary claims leave free on each disk: four slabs of 64 MiB with their tables, so that
/// moves and repairs find room on a full pool. On a small disk, a sixteenth.
const RESERVE_UNITS: u64 = 4 * (64 * 1024 * 1024 + 512 * 1024) / ALLOCATION_UNIT_BYTES;

/// Whether an open pool can be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PoolState {
    /// It can.
    Writable,
    /// It was opened for reading, because.
    ReadOnly(String),
    /// It has stopped, because.
    Latched(String),
}

/// Sixteenths of the log that a checkpoint may leave in use before writes are refused.
const RELOGGED_SIXTEENTHS_MAX: u64 = 11;
/// Sixteenths of the log in use at which writes wait for a checkpoint: the rest is for what follows the loss of a disk, for what
/// the checkpoint says, and for those who are under way.
const FULL_SIXTEENTHS: u64 = 12;

/// Room in the log that is kept for somebody until this is dropped.
#[derive(Debug)]
pub struct LogRoom<'a> {
    pool: &'a Pool,
    bytes: u64,
}

impl Drop for LogRoom<'_> {
    fn drop(&mut self) {
        self.pool.promised.set(self.pool.promised.get() - self.bytes);
        self.pool.room_notify.notify_all();
    }
}

/// Why a disk is excluded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExcludeReason {
    /// It failed, or did not answer, while data was written.
    MissedWrite,
    /// It failed while its log or metadata was written.
    MissedCommit,
    /// A flush failed: what it holds since the last good one is unknown.
    FailedFlush,
    /// A person said so.
    Asked,
}

/// A record of blocks, as the log had it when the pool was opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecoveredBlock {
    /// Its place in the log.
    pub lsn: Lsn,
    /// Whether a flush covered what it describes.
    pub durable: bool,
    /// The record.
    pub body: Vec<u8>,
}

impl RecoveredBlock {
    /// The same, to look at.
    #[must_use]
    pub fn as_recorded(&self) -> RecordedBlocks<'_> {
        RecordedBlocks { lsn: self.lsn, durable: self.durable, body: &self.body }
    }
}

/// A record of blocks in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordedBlocks<'a> {
    /// Its place in the log.
    pub lsn: Lsn,
    /// Whether a flush covered what it describes.
    pub durable: bool,
    /// The record.
    pub body: &'a [u8],
}

impl RecordedBlocks<'_> {
    /// The same, to keep.
    pub(crate) fn to_recovered(self) -> RecoveredBlock {
        RecoveredBlock { lsn: self.lsn, durable: self.durable, body: self.body.to_vec() }
    }
}

/// Room on a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiskRoom {
    /// Which disk.
    pub slot: DiskSlot,
    /// Data area.
    pub data: Bytes,
    /// Of it, not given to any slab.
    pub free: Bytes,
    /// Of that, kept for moves and repairs.
    pub reserve: Bytes,
    /// What may fail as one with it.
    pub domain: DomainId,
    /// Whether it is here.
    pub state: DiskState,
}

/// An open pool. Shared by reference; everything runs on one thread.
pub struct Pool {
    pub(crate) seams: Seams,
    pub(crate) id: PoolId,
    pub(crate) name: Name,
    pub(crate) arbiter: Rc<dyn Arbiter>,
    pub(crate) disks: RefCell<BTreeMap<DiskSlot, Rc<Disk>>>,
    /// The epoch in force and its members.
    pub(crate) now: RefCell<Generation>,
    pub(crate) highest: Cell<Epoch>,
    pub(crate) sequences: RefCell<BTreeMap<DiskId, u64>>,
    /// Labels that are known to be durable.
    pub(crate) named: RefCell<Named>,
    /// When members are to be stamped, if something is written.
    pub(crate) stamp_due: Cell<Instant>,
    pub(crate) stamp_mutex: AsyncMutex,
    /// Heartbeats written since the pool was made, as far as its labels tell.
    pub(crate) heartbeat: Cell<u64>,
    pub(crate) log_bytes: Bytes,
    pub(crate) page_bytes: Bytes,
    pub(crate) log: Option<Rc<Log>>,
    pub(crate) store: Rc<Store>,
    pub(crate) tail: Cell<Place>,
    pub(crate) free: RefCell<BTreeMap<DiskSlot, FreeMap>>,
    pub(crate) commit_mutex: AsyncMutex,
    /// The batch of the change that is in the log and not in the map yet.
    pub(crate) applying: Cell<Option<Lsn>>,
    pub(crate) epoch_mutex: AsyncMutex,
    pub(crate) checkpoint_mutex: AsyncMutex,
    pub(crate) checkpoint_notify: Notify,
    /// What the last checkpoint has left in the log.
    pub(crate) left: Cell<Left>,
    /// Bytes of the log that are promised to those who are about to append.
    pub(crate) promised: Cell<u64>,
    /// Rings when some of that is given back.
    pub(crate) room_notify: Notify,
    /// Whether a claim waits for what a checkpoint gives back to the map.
    pub(crate) wants_map_room: Cell<bool>,
    /// Whether the last checkpoint ended for want of pages.
    pub(crate) is_map_full: Cell<bool>,
    /// Rings when there may be too few voters.
    pub(crate) voters_notify: Rc<Notify>,
    /// Disks that were said to be too small to vote.
    pub(crate) reported_small: RefCell<Vec<DiskSlot>>,
    pub(crate) table_owner: RefCell<Option<Weak<dyn TableOwner>>>,
    pub(crate) state: RefCell<PoolState>,
    /// The last batch that may have been in the voters' caches when they were last flushed.
    pub(crate) log_flushed: Cell<Option<Lsn>>,
    pub(crate) order_number: Cell<u64>,
    /// Lost disks for which claims leave room.
    pub(crate) keep: Cell<u32>,
    /// Members that take no rows.
    pub(crate) roles: RefCell<BTreeMap<DiskId, Role>>,
    /// Members of which it is on record that they are declared lost.
    pub(crate) declared_lost: RefCell<BTreeSet<DiskId>>,
    /// Names of fault domains.
    pub(crate) domain_names: RefCell<BTreeMap<u32, Name>>,
    pub(crate) changed: Notify,
    pub(crate) stopping: Cell<bool>,
    /// Rings when the pool stops, for tasks that do not hold it.
    pub(crate) stop_notify: Rc<Notify>,
}

impl Pool {
    /// Its identity.
    #[must_use]
    pub fn id(&self) -> PoolId {
        self.id
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &Name {
        &self.name
    }

    /// The seams that it runs on.
    #[must_use]
    pub fn seams(&self) -> &Seams {
        &self.seams
    }

    /// Whether it can be written.
    #[must_use]
    pub fn state(&self) -> PoolState {
        self.state.borrow().clone()
    }

    /// The epoch in force.
    #[must_use]
    pub fn epoch(&self) -> EpochId {
        self.now.borrow().epoch.id()
    }

    /// Disks that carry log and metadata.
    #[must_use]
    pub fn voters(&self) -> Vec<DiskId> {
        self.now.borrow().epoch.voters().to_vec()
    }

    /// All members, present or not, by slot.
    #[must_use]
    pub fn disks(&self) -> Vec<Rc<Disk>> {
        self.disks.borrow().values().cloned().collect()
    }

    /// A member.
    #[must_use]
    pub fn disk(&self, slot: DiskSlot) -> Option<Rc<Disk>> {
        self.disks.borrow().get(&slot).cloned()
    }

    /// Whether a member is away.
    #[must_use]
    pub fn lacks_disks(&self) -> bool {
        self.disks.borrow().values().any(|disk| !disk.is_present())
    }

    /// Members that are here, and the number of their [`seating`](Disk::seating).
    #[must_use]
    pub fn attachments(&self) -> BTreeMap<DiskSlot, u64> {
        let disks = self.disks.borrow();
        disks.values().filter(|disk| disk.is_present()).map(|disk| (disk.slot(), disk.seating())).collect()
    }

    /// Replacements that are not at their end: a retired disk, and the one that gets its slabs. The epoch that took the new
    /// disk in says so, so that no moment is left in which a daemon that dies leaves a retired disk that nobody knows of.
    #[must_use]
    pub fn replacements(&self) -> Vec<(Rc<Disk>, Rc<Disk>)> {
        let retired = self.disks().into_iter().filter(|disk| disk.member().state == MemberState::Retired);
        retired.filter_map(|old| Some((Rc::clone(&old), self.disk(old.member().successor?)?))).collect()
    }

    /// Where what is on a disk is to be in the end: there, unless it is being replaced.
    #[must_use]
    pub fn destination(&self, slot: DiskSlot) -> DiskSlot {
        let disks = self.disks.borrow();
        let mut last = slot;
        // No chain is longer than there are members.
        for _ in 0..disks.len() {
            let member = disks.get(&last).map(|disk| disk.member());
            let retired = member.filter(|member| member.state == MemberState::Retired);
            let Some(next) = retired.and_then(|member| member.successor) else { break };
            last = next;
        }
        last
    }

    /// What a member may fail together with.
    #[must_use]
    pub fn domain_of(&self, slot: DiskSlot) -> Option<DomainId> {
        self.disks.borrow().get(&slot).map(|disk| domain_of(&disk.member()))
    }

    /// Rings whenever disks, epoch or state have changed.
    #[must_use]
    pub fn changed(&self) -> &Notify {
        &self.changed
    }

    /// The member that is `what`: the name of its device here, its id or the first digits of that, or its slot.
    ///
    /// # Errors
    /// [`PoolError::NoSuchDisk`], also when more than one disk is meant.
    pub fn find_disk(&self, what: &str) -> Result<Rc<Disk>, PoolError> {
        let disks = self.disks();
        let exact = disks.iter().filter(|disk| disk.name() == what || disk.slot().0.to_string() == what);
        let by_id = disks.iter().filter(|disk| what.len() >= 4 && disk.id().to_string().starts_with(what));
        let mut found: Vec<&Rc<Disk>> = exact.chain(by_id).collect();
        found.dedup_by_key(|disk| disk.slot());
        match found.as_slice() {
            [disk] => Ok(Rc::clone(disk)),
            _ => Err(PoolError::NoSuchDisk { name: self.name.clone(), what: what.to_owned() }),
        }
    }

    /// Room on every member, by slot.
    #[must_use]
    pub fn room(&self) -> Vec<DiskRoom> {
        let free = self.free.borrow();
        let room = |disk: &Rc<Disk>| {
            let units = free.get(&disk.slot()).map_or(0, FreeMap::total);
            DiskRoom {
                slot: disk.slot(),
                data: disk.data_bytes(),
                free: Bytes(units * ALLOCATION_UNIT_BYTES),
                reserve: Bytes(self.reserve_of(disk) * ALLOCATION_UNIT_BYTES),
                domain: domain_of(&disk.member()),
                state: disk.state(),
            }
        };
        self.disks().iter().map(room).collect()
    }

    /// Allocation units that ordinary claims leave on a disk, whether it is here or not: of one that is absent, its size is on
    /// record.
    pub(crate) fn reserve_of(&self, disk: &Disk) -> u64 {
        let extent = disk.extent().or_else(|| Extent::of(disk.member().capacity).ok());
        RESERVE_UNITS.min(extent.map_or(0, |extent| extent.unit_count()) / 16)
    }

    /// Free runs of a disk, in order of address; `None` while it has not been given its room, or has it no more.
    #[must_use]
    pub fn free_runs(&self, slot: DiskSlot) -> Option<Vec<Run>> {
        Some(self.free.borrow().get(&slot)?.runs().collect())
    }

    /// Waits until the log has room for ordinary records. Called before anything is held that a checkpoint waits for.
    ///
    /// # Errors
    /// When the pool cannot be written, and [`PoolError::LogOccupied`].
    pub async fn wait_for_log(&self) -> Result<(), PoolError> {
        loop {
            let log = self.writable_log()?;
            let usage = log.usage();
            let trimmed = self.changed.wait();
            if !self.is_full(usage) && !self.is_occupied(usage) {
                return Ok(());
            }
            if self.is_map_full.get() {
                return Err(PoolError::MetadataFull { name: self.name.clone() });
            }
            if self.is_occupied(usage) && !self.may_relog_less(usage) {
                return Err(PoolError::LogOccupied {
                    name: self.name.clone(),
                    kept: Bytes(self.left.get().relogged),
                    of: Bytes(usage.capacity_bytes),
                });
            }
            self.checkpoint_notify.notify_all();
            trimmed.await;
        }
    }

    /// As [`wait_for_log`](Self::wait_for_log), and keeps so many bytes for whoever calls, until what is returned is dropped. Many
    /// that had found room one by one could fill a small log together.
    ///
    /// # Errors
    /// As [`wait_for_log`](Self::wait_for_log).
    pub async fn log_room(&self, bytes: Bytes) -> Result<LogRoom<'_>, PoolError> {
        loop {
            self.wait_for_log().await?;
            let usage = self.writable_log()?.usage();
            let promised = self.promised.get();
            let released = self.room_notify.wait();
            // Whoever asks for more than there is gets it alone.
            if promised == 0
                || !self.is_full(Usage { used_bytes: usage.used_bytes + promised + bytes.0, ..usage })
            {
                self.promised.set(promised + bytes.0);
                return Ok(LogRoom { pool: self, bytes: bytes.0 });
            }
            released.await;
        }
    }

    /// Whether ordinary records have to wait for a checkpoint.
    pub(crate) fn is_full(&self, usage: Usage) -> bool {
        usage.used_bytes > usage.capacity_bytes / 16 * FULL_SIXTEENTHS
    }

    /// Whether the last checkpoint had to leave so much in the log that there is no room to go on: above it, records that
    /// wait, those that follow the loss of a disk, and the next checkpoint's own still have to fit.
    pub(crate) fn is_occupied(&self, usage: Usage) -> bool {
        self.left.get().relogged > usage.capacity_bytes / 16 * RELOGGED_SIXTEENTHS_MAX
    }

    /// Whether another checkpoint may leave less than the last one did: a disk is back, or something was freed.
    pub(crate) fn may_relog_less(&self, usage: Usage) -> bool {
        let left = self.left.get();
        usage.used_bytes != left.used || left.epoch != self.epoch().number
    }

    /// Fails where nothing can be written.
    ///
    /// # Errors
    /// [`PoolError::ReadOnly`] or [`PoolError::Latched`].
    pub fn check_writable(&self) -> Result<(), PoolError> {
        self.writable_log().map(drop)
    }

    /// How often the beginning of the log has gone round its ring since the pool was made.
    #[must_use]
    pub fn log_laps(&self) -> u64 {
        self.tail.get().position / self.log_bytes.0.max(1)
    }

    /// Length of the log's ring and of the page area on every voter.
    #[must_use]
    pub fn metadata_bytes(&self) -> (Bytes, Bytes) {
        (self.log_bytes, self.page_bytes)
    }

    /// Bytes of the log that are in use, of how many; none where the pool is only looked at.
    #[must_use]
    pub fn log_usage(&self) -> Option<(Bytes, Bytes)> {
        let usage = self.log.as_ref()?.usage();
        Some((Bytes(usage.used_bytes), Bytes(usage.capacity_bytes)))
    }

    /// The log.
    ///
    /// # Errors
    /// [`PoolError::ReadOnly`] or [`PoolError::Latched`].
    pub(crate) fn writable_log(&self) -> Result<&Rc<Log>, PoolError> {
        let name = || self.name.clone();
        match (&*self.state.borrow(), &self.log) {
            (PoolState::Latched(cause), _) => Err(PoolError::Latched { name: name(), cause: cause.clone() }),
            (PoolState::Writable, Some(log)) => Ok(log),
            (PoolState::ReadOnly(_), _) | (PoolState::Writable, None) => {
                Err(PoolError::ReadOnly { name: name() })
            }
        }
    }

    /// Stops the pool for good: its order of writes, or its last voter, is lost.
    pub(crate) fn latch(&self, cause: String) {
        let mut state = self.state.borrow_mut();
        if !matches!(*state, PoolState::Latched(_)) {
            tracing::error!(pool = %self.name, %cause, "the pool has stopped");
            *state = PoolState::Latched(cause);
        }
        drop(state);
        // Whoever waits for a record would wait for ever.
        if let Some(log) = &self.log {
            log.failures().iter().for_each(|failure| self.note_failed_id(failure.disk));
            log.abandon();
        }
        self.changed.notify_all();
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

    pub(crate) fn store_error(&self, error: dolmen_store::StoreError) -> PoolError {
        PoolError::Store { name: self.name.clone(), source: Rc::new(error) }
    }

    pub(crate) fn log_error(&self, source: dolmen_journal::LogError) -> PoolError {
        PoolError::Log { name: self.name.clone(), source }
    }

    /// Appends a record of blocks. Written: it survives the daemon. Durable: it survives a power cut.
    ///
    /// # Errors
    /// When the pool cannot be written.
    pub async fn append_blocks(&self, body: &[u8], wait: Wait) -> Result<Lsn, PoolError> {
        let log = self.writable_log()?;
        let result = log.append(RECORD_BLOCKS, &[body], Class::Reserved, wait).await;
        self.ring_if_filling(log);
        result.map_err(|error| self.log_failed(error))
    }

    pub(crate) fn log_failed(&self, error: dolmen_journal::LogError) -> PoolError {
        self.latch(in_one_line(&error));
        self.log_error(error)
    }

    /// Rings the checkpointer's bell when the log is half full, or members are to be stamped.
    pub(crate) fn ring_if_filling(&self, log: &Log) {
        let usage = log.usage();
        if usage.used_bytes * 2 > usage.capacity_bytes || self.is_stamp_due() {
            self.checkpoint_notify.notify_all();
        }
    }

    /// Closes the batch that is being collected: records placed later get an LSN of at least the one returned.
    ///
    /// # Errors
    /// When the pool cannot be written.
    pub fn cut(&self) -> Result<Lsn, PoolError> {
        Ok(self.writable_log()?.cut())
    }

    /// Waits until every batch below `cut` is complete on every voter: a flush that begins before that would not cover it.
    ///
    /// # Errors
    /// When the pool cannot be written.
    pub async fn written_below(&self, cut: Lsn) -> Result<(), PoolError> {
        let log = self.writable_log()?;
        log.written(Lsn(cut.0.saturating_sub(1))).await.map_err(|error| self.log_failed(error))
    }

    /// Flushes, in parallel, every disk with writes since its last good flush. A disk whose flush fails is excluded
    /// before this returns; its rows are the caller's business, as after any exclusion.
    ///
    /// # Errors
    /// When the pool cannot be written.
    #[pooled]
    pub async fn flush_disks(self: &Rc<Self>) -> Result<(), PoolError> {
        let log = self.writable_log()?;
        let mut disks: Vec<Rc<Disk>> = self.disks().into_iter().filter(|disk| disk.is_present()).collect();
        if mutation!(FlushSkipsADisk) {
            disks.pop();
        }
        // What is complete now, and not what was asked for: a flush covers no batch that is still under way.
        let cached = Some(log.last_cached());
        if self.log_flushed.replace(cached) != cached {
            let voters = self.voters();
            disks.iter().filter(|disk| voters.contains(&disk.id())).for_each(|disk| disk.note_other_write());
        }
        let flushes: Vec<_> = disks.iter().map(|disk| (Rc::clone(disk), disk.flush())).collect();
        let mut failed = Vec::new();
        for (disk, flushing) in flushes {
            if let Err(error) = flushing.await {
                tracing::warn!(pool = %self.name, disk = %disk.name(), %error, "a flush failed");
                failed.push(disk.slot());
            }
        }
        for slot in failed {
            self.exclude(slot, ExcludeReason::FailedFlush).await?;
        }
        // A disk that is about to leave was passed over: nothing counts as flushed before the epoch without it is in force.
        drop(self.epoch_mutex.take().await);
        self.writable_log().map(drop)
    }

    /// Declares that a flush has covered everything that records below `before` describe, durably.
    ///
    /// # Errors
    /// When the pool cannot be written.
    pub async fn mark_durable(&self, before: Lsn) -> Result<(), PoolError> {
        let log = self.writable_log()?;
        log.mark_durable(Lsn(before.0.saturating_sub(1)));
        log.mark().await.map(drop).map_err(|error| self.log_failed(error))
    }

    /// Members that are here and take new slabs.
    pub(crate) fn claimable(&self) -> Vec<Rc<Disk>> {
        let active = |disk: &Rc<Disk>| disk.is_present() && disk.member().state == MemberState::Active;
        self.disks().into_iter().filter(active).collect()
    }

    /// Stops the background tasks, so that the pool can be dropped.
    pub(crate) async fn stop(&self) {
        self.stopping.set(true);
        // A disk that is becoming a voter becomes one first.
        let _checkpoint = self.checkpoint_mutex.take().await;
        let _stamp = self.stamp_mutex.take().await;
        self.voters_notify.notify_all();
        self.checkpoint_notify.notify_all();
        self.changed.notify_all();
        if let Some(log) = &self.log {
            log.stop().await;
        }
        // Until here the guardian was needed: the log ends only when its copies have answered or left.
        self.stop_notify.notify_all();
    }
}

/// What may fail as one with a disk: the number it was given, or else itself alone.
pub(crate) fn domain_of(member: &Member) -> DomainId {
    const ALONE: u32 = 1 << 31;
    match member.fault_domain {
        0 => DomainId(ALONE + u32::from(member.slot.0)),
        number => DomainId(number),
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pool({}, {}, {:?})", self.name, self.epoch(), self.state())
    }
}
