//! The log of an open pool: whether it can be written, what is appended to it, and the room that is left.
//!
//! Invariant: a pool that lost its last voter, or its order of writes, is latched: nothing more is acknowledged.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::rc::{Rc, Weak};

use dolmen_block_io::Instant;
use dolmen_block_io::sync::Notify;
use dolmen_causes::in_one_line;
use dolmen_journal::{Class, Log, Place, Usage, Wait, recover};
use dolmen_units::{Bytes, Lsn};

use crate::disks::prepare::areas;
use crate::error::PoolError;
use crate::log::blocks::{RECORD_BLOCKS, RecordedBlocks};
use crate::log::blocks::{blocks_of, spans_of};
use crate::log::need::{Left, TableOwner};
use crate::members::identity::Identity;
use crate::members::table::Members;
use crate::metadata::map::MetadataMap;

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
    log: &'a PoolLog,
    bytes: u64,
}

impl fmt::Debug for PoolLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PoolLog({}, {:?})", self.identity.name, self.state())
    }
}

impl Drop for LogRoom<'_> {
    fn drop(&mut self) {
        self.log.promised.set(self.log.promised.get() - self.bytes);
        self.log.room_notify.notify_all();
    }
}

/// The log of an open pool, and whether the pool can be written.
pub struct PoolLog {
    pub(crate) identity: Rc<Identity>,
    pub(crate) members: Rc<Members>,
    pub(crate) map: Rc<MetadataMap>,
    /// None where the pool is only looked at.
    pub(crate) journal: Option<Rc<Log>>,
    pub(crate) state: RefCell<PoolState>,
    pub(crate) tail: Cell<Place>,
    /// What the last checkpoint has left in the log.
    pub(crate) left: Cell<Left>,
    /// Bytes of the log that are promised to those who are about to append.
    pub(crate) promised: Cell<u64>,
    /// Rings when some of that is given back.
    pub(crate) room_notify: Notify,
    /// Rings when a checkpoint or a stamp may be due.
    pub(crate) checkpoint_notify: Notify,
    /// When members are to be stamped, if something is written.
    pub(crate) stamp_due: Cell<Instant>,
    pub(crate) table_owner: RefCell<Option<Weak<dyn TableOwner>>>,
    pub(crate) stopping: Cell<bool>,
    /// Rings when the pool stops, for tasks that do not hold it.
    pub(crate) stop_notify: Rc<Notify>,
}

impl PoolLog {
    pub(crate) fn new(
        identity: &Rc<Identity>,
        members: &Rc<Members>,
        map: &Rc<MetadataMap>,
        journal: Option<Rc<Log>>,
        state: PoolState,
        tail: Place,
        stamp_due: Instant,
    ) -> Rc<Self> {
        Rc::new(Self {
            identity: Rc::clone(identity),
            members: Rc::clone(members),
            map: Rc::clone(map),
            journal,
            state: RefCell::new(state),
            tail: Cell::new(tail),
            left: Cell::default(),
            promised: Cell::new(0),
            room_notify: Notify::new(),
            checkpoint_notify: Notify::new(),
            stamp_due: Cell::new(stamp_due),
            table_owner: RefCell::new(None),
            stopping: Cell::new(false),
            stop_notify: Rc::default(),
        })
    }

    /// Whether it can be written.
    #[must_use]
    pub fn state(&self) -> PoolState {
        self.state.borrow().clone()
    }

    /// Fails where nothing can be written.
    ///
    /// # Errors
    /// [`PoolError::ReadOnly`] or [`PoolError::Latched`].
    pub fn check_writable(&self) -> Result<(), PoolError> {
        self.writable().map(drop)
    }

    /// The log.
    ///
    /// # Errors
    /// [`PoolError::ReadOnly`] or [`PoolError::Latched`].
    pub(crate) fn writable(&self) -> Result<&Rc<Log>, PoolError> {
        let name = || self.identity.name.clone();
        match (&*self.state.borrow(), &self.journal) {
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
            tracing::error!(pool = %self.identity.name, %cause, "the pool has stopped");
            *state = PoolState::Latched(cause);
        }
        drop(state);
        // Whoever waits for a record would wait for ever.
        if let Some(log) = &self.journal {
            log.failures().iter().for_each(|failure| self.members.note_failed_id(failure.disk));
            log.abandon();
        }
        self.members.changed.notify_all();
    }

    /// Ends all writing: the pool is closed. A write that fails later, since its device has gone, changes no epoch and no label.
    pub(crate) fn end(&self) {
        let mut state = self.state.borrow_mut();
        if *state == PoolState::Writable {
            *state = PoolState::Latched("it was closed".to_owned());
        }
    }

    /// Waits until the log has room for ordinary records. Called before anything is held that a checkpoint waits for.
    ///
    /// # Errors
    /// When the pool cannot be written, and [`PoolError::LogOccupied`].
    pub async fn wait_for_room(&self) -> Result<(), PoolError> {
        loop {
            let log = self.writable()?;
            let usage = log.usage();
            let trimmed = self.members.changed.wait();
            if !self.is_full(usage) && !self.is_occupied(usage) {
                return Ok(());
            }
            if self.map.is_full.get() {
                return Err(PoolError::MetadataFull { name: self.identity.name.clone() });
            }
            if self.is_occupied(usage) && !self.may_relog_less(usage) {
                return Err(PoolError::LogOccupied {
                    name: self.identity.name.clone(),
                    kept: Bytes(self.left.get().relogged),
                    of: Bytes(usage.capacity_bytes),
                });
            }
            self.checkpoint_notify.notify_all();
            trimmed.await;
        }
    }

    /// As [`wait_for_room`](Self::wait_for_room), and keeps so many bytes for whoever calls, until what is returned is dropped. Many
    /// that had found room one by one could fill a small log together.
    ///
    /// # Errors
    /// As [`wait_for_room`](Self::wait_for_room).
    pub async fn reserve(&self, bytes: Bytes) -> Result<LogRoom<'_>, PoolError> {
        loop {
            self.wait_for_room().await?;
            let usage = self.writable()?.usage();
            let promised = self.promised.get();
            let released = self.room_notify.wait();
            // Whoever asks for more than there is gets it alone.
            if promised == 0
                || !self.is_full(Usage { used_bytes: usage.used_bytes + promised + bytes.0, ..usage })
            {
                self.promised.set(promised + bytes.0);
                return Ok(LogRoom { log: self, bytes: bytes.0 });
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
        usage.used_bytes != left.used || left.epoch != self.members.epoch().number
    }

    /// How often the beginning of the log has gone round its ring since the pool was made.
    #[must_use]
    pub fn laps(&self) -> u64 {
        self.tail.get().position / self.identity.log_bytes.0.max(1)
    }

    /// Bytes of the log that are in use, of how many; none where the pool is only looked at.
    #[must_use]
    pub fn usage(&self) -> Option<(Bytes, Bytes)> {
        let usage = self.journal.as_ref()?.usage();
        Some((Bytes(usage.used_bytes), Bytes(usage.capacity_bytes)))
    }

    /// Appends a record of blocks. Written: it survives the daemon. Durable: it survives a power cut.
    ///
    /// # Errors
    /// When the pool cannot be written.
    pub async fn append_blocks(&self, body: &[u8], wait: Wait) -> Result<Lsn, PoolError> {
        let log = self.writable()?;
        let result = log.append(RECORD_BLOCKS, &[body], Class::Reserved, wait).await;
        self.ring_if_filling(log);
        result.map_err(|error| self.log_failed(error))
    }

    pub(crate) fn log_failed(&self, error: dolmen_journal::LogError) -> PoolError {
        self.latch(in_one_line(&error));
        self.log_error(error)
    }

    pub(crate) fn log_error(&self, source: dolmen_journal::LogError) -> PoolError {
        PoolError::Log { name: self.identity.name.clone(), source }
    }

    /// Rings the checkpointer's bell when the log is half full, or members are to be stamped.
    pub(crate) fn ring_if_filling(&self, log: &Log) {
        let usage = log.usage();
        if usage.used_bytes * 2 > usage.capacity_bytes || self.is_stamp_due() {
            self.checkpoint_notify.notify_all();
        }
    }

    /// Whether the pool was written to, and the last stamp is long ago. Asked whenever the log was written.
    pub(crate) fn is_stamp_due(&self) -> bool {
        self.identity.seams.clock.now() >= self.stamp_due.get()
    }

    /// Closes the batch that is being collected: records placed later get an LSN of at least the one returned.
    ///
    /// # Errors
    /// When the pool cannot be written.
    pub fn cut(&self) -> Result<Lsn, PoolError> {
        Ok(self.writable()?.cut())
    }

    /// Waits until every batch below `cut` is complete on every voter: a flush that begins before that would not cover it.
    ///
    /// # Errors
    /// When the pool cannot be written.
    pub async fn written_below(&self, cut: Lsn) -> Result<(), PoolError> {
        let log = self.writable()?;
        log.written(Lsn(cut.0.saturating_sub(1))).await.map_err(|error| self.log_failed(error))
    }

    /// Declares that a flush has covered everything that records below `before` describe, durably.
    ///
    /// # Errors
    /// When the pool cannot be written.
    pub async fn mark_durable(&self, before: Lsn) -> Result<(), PoolError> {
        let log = self.writable()?;
        log.mark_durable(Lsn(before.0.saturating_sub(1)));
        log.mark().await.map(drop).map_err(|error| self.log_failed(error))
    }

    /// Epochs whose stretches of the log are not trimmed: the next epoch has to name them.
    pub(crate) fn spans_needed(&self) -> usize {
        let tail = self.tail.get().lsn;
        let now = self.members.now.borrow();
        let spans = now.epoch.spans();
        let ended = spans.iter().skip(1).filter(|next| next.first <= tail).count();
        spans.len() - ended
    }

    /// Tells the pool whom to ask before the log is trimmed. The owner holds the pool, so the pool does not hold the owner;
    /// while there is none, the log is not trimmed.
    pub fn set_table_owner(&self, owner: Weak<dyn TableOwner>) {
        *self.table_owner.borrow_mut() = Some(owner);
    }

    pub(crate) fn table_owner(&self) -> Option<Rc<dyn TableOwner>> {
        self.table_owner.borrow().as_ref().and_then(Weak::upgrade)
    }

    /// Shows the records of blocks that were written to the log before this call and that it still needs, in order.
    ///
    /// # Errors
    /// When the log cannot be read from any voter, or lacks what was written to it, or the pool cannot be written; and what
    /// `visit` says.
    pub async fn recorded_blocks(
        &self,
        visit: impl FnMut(RecordedBlocks<'_>) -> Result<(), PoolError>,
    ) -> Result<(), PoolError> {
        let cut = self.cut()?;
        self.written_below(cut).await?;
        let (ring, _) = areas(self.identity.log_bytes, self.identity.page_bytes);
        loop {
            let (tail, epoch) = (self.tail.get(), self.members.now.borrow().epoch.clone());
            let spans = spans_of(&epoch);
            let (copies, _) = self.members.copies_of(epoch.voters());
            let read =
                recover(&self.identity.seams, epoch.number(), self.identity.id, ring, &copies, tail, &spans)
                    .await;
            // What was trimmed meanwhile may have been overwritten while it was read.
            if self.tail.get() != tail || self.members.now.borrow().epoch.id() != epoch.id() {
                continue;
            }
            let source = |source| PoolError::LogUnreadable {
                name: self.identity.name.clone(),
                source: Rc::new(source),
            };
            // What it does not say would be taken for flushed.
            let read = read.map_err(source).inspect_err(|error| self.latch(in_one_line(error)))?;
            if let Some(lsn) = self.writable()?.missing_in(&read, cut) {
                let error = PoolError::LogCorrupt { name: self.identity.name.clone(), lsn };
                self.latch(in_one_line(&error));
                return Err(error);
            }
            return blocks_of(&read).try_for_each(visit);
        }
    }
}
