//! The running log: appending, cutting, settling, trimming, and changing the copies under way.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::fmt;
use std::rc::Rc;

use dolmen_block_io::Seams;
use dolmen_block_io::ranks::Rank;
use dolmen_block_io::sync::{AsyncMutex, Notify};
use dolmen_buffer::{Buffer, Take};
use dolmen_future_pool::pooled;
use dolmen_units::{DiskId, Epoch, EpochId, Lsn, PoolId};

use crate::format::{HEADER_BYTES, KIND_HOLES, record_bytes};
use crate::heal::{CopyError, Transfer};
use crate::recover::Recovered;
use crate::ring::{Class, Limit, Place, Ring};
use crate::state::{Collecting, FlightState, Hold, Live, Phase, Placed, State};
use crate::wait_queue::WaitQueue;
use crate::{COPIES_MAX, CopyFailure, LogCopy, writer};

/// The place in the order of locks of the mutex of epoch changes: above those of the pool and of the metadata store.
const EPOCH_CHANGE_RANK: Rank = Rank::new(64, "epoch change of a log");

/// What the completion of an append promises.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// Every copy has it: it survives the daemon, and power until a flush only if a copy's cache does.
    Written,
    /// Every copy has it on its medium.
    Durable,
}

/// Why something is not in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LogError {
    /// Every copy failed, or the log was given up. It may or may not be found there later.
    #[error("the log of pool {pool} was lost in {epoch}: no disk that holds it takes writes; the pool stops")]
    Lost {
        /// Whose.
        pool: PoolId,
        /// In which epoch.
        epoch: EpochId,
    },
    /// The log was stopped before the record was placed.
    #[error("the log of pool {pool} was closed before the record was placed")]
    Stopped {
        /// Whose.
        pool: PoolId,
    },
    /// A record that fits into no batch.
    #[error(
        "a record of {length_bytes} bytes does not fit into the log of pool {pool}, whose records have at most {max_bytes}"
    )]
    TooLarge {
        /// Whose.
        pool: PoolId,
        /// Its length.
        length_bytes: usize,
        /// What a batch can hold.
        max_bytes: usize,
    },
}

/// Where a log begins.
#[derive(Debug, Clone, Copy)]
pub enum Start<'a> {
    /// A new pool, or a log whose content was given up with its epoch.
    Fresh(Place),
    /// Behind what was recovered, and healed on every copy that is given.
    Recovered(&'a Recovered),
}

impl From<Place> for Start<'_> {
    fn from(place: Place) -> Self {
        Self::Fresh(place)
    }
}

impl<'a> From<&'a Recovered> for Start<'a> {
    fn from(recovered: &'a Recovered) -> Self {
        Self::Recovered(recovered)
    }
}

/// How full the ring is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    /// From the tail to the end of the last batch begun.
    pub used_bytes: u64,
    /// The ring.
    pub capacity_bytes: u64,
}

/// What a log has done since it was started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// Batches begun.
    pub batches: u64,
    /// Those that were written durably.
    pub durable_batches: u64,
    /// Records placed.
    pub records: u64,
    /// Bytes of their bodies.
    pub record_bytes: u64,
    /// Bytes of batches, on each copy.
    pub written_bytes: u64,
    /// Times that a record or mark found the batch or the ring full when it came.
    pub waits: u64,
    /// Changes of epoch.
    pub epoch_changes: u64,
    /// Buffers taken from the arena: two, and one for each that an excluded device kept.
    pub buffers: u64,
}

/// What the handle and the writer share.
pub(crate) struct Core {
    seams: Seams,
    pub(crate) state: RefCell<State>,
    /// There may be something to write.
    pub(crate) work: Notify,
    /// A batch with an even, or an odd, LSN was written. Only two LSNs are waited for at a time, that under way and
    /// that being collected, so nobody is woken for the other's sake.
    done: [Notify; 2],
    /// A copy failed.
    pub(crate) trouble: Notify,
    /// The writer has ended.
    ended: Notify,
    ordinary: WaitQueue,
    reserved: WaitQueue,
    marks: WaitQueue,
    epoch_change: AsyncMutex,
}

/// A running log. Dropping it without [`stop`](Self::stop) abandons what is not written yet.
pub struct Log {
    core: Rc<Core>,
}

impl Log {
    /// Starts the log and its writer. The first batch is durable and lists the holes of `from`; serve nothing before
    /// a [`mark`](Self::mark) has completed.
    ///
    /// The log keeps two frames of the metadata arena for its batches.
    ///
    /// # Panics
    /// When the ring is none, or there is no copy or more than [`COPIES_MAX`].
    #[must_use]
    pub fn start<'a>(
        seams: Seams,
        token: Epoch,
        pool: PoolId,
        ring: Ring,
        copies: Vec<LogCopy>,
        epoch: EpochId,
        from: impl Into<Start<'a>>,
    ) -> Rc<Self> {
        assert!(ring.check().is_ok(), "a log is started in a ring that was checked");
        assert!(!copies.is_empty() && copies.len() <= COPIES_MAX, "a log has 1 to {COPIES_MAX} copies");
        let mut state = State {
            pool,
            ring,
            flights: Vec::with_capacity(COPIES_MAX),
            copies,
            token,
            epoch,
            phase: Phase::Running,
            hold: Hold::Free,
            copied: Vec::new(),
            collecting: Collecting::default(),
            spare: None,
            under_way: None,
            live: VecDeque::new(),
            tail: Place::FIRST,
            next: Place::FIRST,
            completed: Lsn(0),
            last_cached: Lsn(0),
            last_durable: Lsn(0),
            durable_mark: Lsn(0),
            holes: Vec::new(),
            writer: None,
            ended: false,
            counters: Counters::default(),
        };
        state.go_on(from.into());
        let core = Rc::new(Core::new(seams, state));
        core.seams.spawner.spawn("log writer", Box::pin(writer::run(Rc::clone(&core))));
        Rc::new(Self { core })
    }

    /// Places a record whose body is `parts` one behind the other, and completes when its batch is written, or
    /// durable, on every copy. Returns the batch's LSN.
    ///
    /// The record is placed at the first poll unless the batch or the ring is full; appends of one class are placed
    /// in the order in which they came. Dropping the future after that does not take the record back. An append that
    /// waits for a durable batch makes the whole batch durable.
    ///
    /// # Errors
    /// See [`LogError`].
    ///
    /// # Panics
    /// When `kind` is [`KIND_HOLES`](crate::format::KIND_HOLES), which is the log's own.
    pub async fn append(&self, kind: u8, parts: &[&[u8]], class: Class, wait: Wait) -> Result<Lsn, LogError> {
        let lsn = self.place(kind, parts, class, wait).await?;
        self.placed(lsn).await
    }

    /// The first half of [`append`](Self::append): completes when the record has its place, and returns the batch's LSN.
    /// Nothing else runs between that and the return, so whoever must know what is under way can note it in time.
    ///
    /// # Errors
    /// See [`LogError`].
    ///
    /// # Panics
    /// As [`append`](Self::append).
    pub async fn place(&self, kind: u8, parts: &[&[u8]], class: Class, wait: Wait) -> Result<Lsn, LogError> {
        assert!(kind != KIND_HOLES, "record kind {KIND_HOLES} is the log's own");
        let core = &*self.core;
        core.check_length(parts)?;
        let queue = match class {
            Class::Ordinary => &core.ordinary,
            Class::Reserved => &core.reserved,
        };
        let mut waited = false;
        queue.pass(|| core.try_place(kind, parts, class, wait, &mut waited)).await
    }

    /// The second half of [`append`](Self::append): completes as it was asked for when the record was placed.
    ///
    /// # Errors
    /// [`LogError::Lost`].
    pub async fn placed(&self, lsn: Lsn) -> Result<Lsn, LogError> {
        let core = &*self.core;
        core.notify_of(lsn).wait_for(|| core.state.borrow().outcome(lsn)).await
    }

    /// Appends an empty durable batch, or makes the one being collected durable, and completes when it is. It carries
    /// the durable mark given before the call. Marks may use the last of the ring.
    ///
    /// # Errors
    /// See [`LogError`].
    pub async fn mark(&self) -> Result<Lsn, LogError> {
        let core = &*self.core;
        let mut waited = false;
        let mut place = || {
            let placed = core.state.borrow_mut().mark();
            core.noted(placed, &mut waited)
        };
        let lsn = core.marks.pass(&mut place).await?;
        core.notify_of(lsn).wait_for(|| core.state.borrow().outcome(lsn)).await
    }

    /// Closes the batch being collected: every record placed before has an LSN below the one returned, every record
    /// placed later has that or a higher one. The log's own list of holes is no record in this sense.
    #[must_use]
    pub fn cut(&self) -> Lsn {
        self.core.state.borrow_mut().cut()
    }

    /// Raises the durable mark that every later batch carries. The caller has flushed every copy since the batches
    /// up to it completed, and the disks that their records speak of.
    ///
    /// # Panics
    /// When a batch up to it is not complete.
    pub fn mark_durable(&self, upto: Lsn) {
        let mut state = self.core.state.borrow_mut();
        assert!(upto <= state.completed, "{upto} is durable, but only {} is complete", state.completed);
        state.durable_mark = state.durable_mark.max(upto);
    }

    /// The last batch that every copy has, and that was not written as a durable one: it may be in the disks' caches. Where
    /// this has grown since they were last flushed, they need it again.
    #[must_use]
    pub fn last_cached(&self) -> Lsn {
        self.core.state.borrow().last_cached
    }

    /// Waits until the batch with this LSN is written on every copy. With [`cut`](Self::cut), which gives the first
    /// LSN that is not meant, this is how a flush learns that what it covers is complete. An LSN for which nothing
    /// was placed is waited for until something is.
    ///
    /// # Errors
    /// [`LogError::Lost`].
    pub async fn written(&self, lsn: Lsn) -> Result<(), LogError> {
        let core = &*self.core;
        core.notify_of(lsn).wait_for(|| core.state.borrow().outcome(lsn)).await.map(|_| ())
    }

    /// How full the ring is.
    #[must_use]
    pub fn usage(&self) -> Usage {
        let state = self.core.state.borrow();
        Usage { used_bytes: state.next.position - state.tail.position, capacity_bytes: state.ring.length }
    }

    /// Where the first live batch with an LSN not below `lsn` begins, or the place of the batch being collected;
    /// `None` when `lsn` lies behind that.
    #[must_use]
    pub fn place_of(&self, lsn: Lsn) -> Option<Place> {
        self.core.state.borrow().place_of(lsn)
    }

    /// The first batch below an LSN that this log has written and not trimmed, and that a reading of its copies did not find.
    #[must_use]
    pub fn missing_in(&self, read: &Recovered, below: Lsn) -> Option<Lsn> {
        let state = self.core.state.borrow();
        let live = state.live.iter().map(|live| live.lsn).take_while(|lsn| *lsn < below);
        let mut lacking = live.filter(|lsn| {
            read.batches.binary_search_by_key(lsn, |sighting| sighting.batch.header.lsn).is_err()
        });
        lacking.next()
    }

    /// Lets the ring before `to` be used again. The caller has made durable on every voter that the log begins at
    /// `to`, as [`place_of`](Self::place_of) gave it.
    ///
    /// # Panics
    /// When `to` lies behind the end of the log.
    pub fn trim(&self, to: Place) {
        self.core.state.borrow_mut().trim(to);
        self.core.work.notify_all();
        self.core.wake_queues();
    }

    /// Waits until a copy has failed that is not excluded. The batch under way, and everything behind it, waits until
    /// [`change_epoch`](Self::change_epoch) has excluded it.
    pub async fn trouble(&self) -> DiskId {
        self.core.trouble.wait_for(|| self.failures().first().map(|failure| failure.disk)).await
    }

    /// Copies that failed and are not excluded.
    #[must_use]
    pub fn failures(&self) -> Vec<CopyFailure> {
        let state = self.core.state.borrow();
        let failed = state.flights.iter().filter_map(|flight| match flight.state {
            FlightState::Failed(error) => Some(CopyFailure { disk: flight.copy.disk, error }),
            FlightState::Waiting(_) | FlightState::Done => None,
        });
        failed.collect()
    }

    /// Runs `change` while no new batch is begun; then epoch, token and copies are those that it gave, and the batch
    /// under way completes on the copies that remain. `change` gets the first LSN of the new epoch, and has made the
    /// new epoch durable when it ends. One change at a time; others wait.
    ///
    /// A copy that was not one before, or has failed, must have been given the log with
    /// [`copy_to`](Self::copy_to) inside `change`.
    ///
    /// # Errors
    /// What `change` gave; then nothing changes, and a failed copy still holds up the batch under way.
    ///
    /// # Panics
    /// When a new copy was not given the log, or there is none.
    pub async fn change_epoch<E>(
        &self,
        change: impl AsyncFnOnce(Lsn) -> Result<(EpochId, Epoch, Vec<LogCopy>), E>,
    ) -> Result<(), E> {
        let core = &*self.core;
        let _exclusive = core.epoch_change.take().await;
        let _holding = Holding::new(core);
        let first = core.state.borrow().next.lsn;
        let (epoch, token, copies) = change(first).await?;
        assert!(copies.len() <= COPIES_MAX, "a log has at most {COPIES_MAX} copies");
        core.state.borrow_mut().install(epoch, token, copies);
        Ok(())
    }

    /// Brings a disk that is to become a copy to the live content of the log, the batch under way included, and
    /// flushes it. Each batch is verified against what was written.
    ///
    /// # Errors
    /// See [`CopyError`].
    ///
    /// # Panics
    /// Outside of [`change_epoch`](Self::change_epoch): batches begun meanwhile would be missing.
    #[pooled]
    pub async fn copy_to(&self, copy: &LogCopy) -> Result<(), CopyError> {
        let (transfer, live, under_way) = {
            let state = self.core.state.borrow();
            assert!(state.hold == Hold::Held, "a copy is made while no batch is begun");
            let under_way = state.under_way.as_ref();
            let flying = under_way.map(|batch| batch.live.lsn);
            let live: Vec<Live> =
                state.live.iter().filter(|live| Some(live.lsn) != flying).copied().collect();
            let under_way = under_way.map(|batch| {
                let length = crate::format::size(batch.live.length);
                (batch.live.position, batch.bytes.slice(0..length))
            });
            let sources = state.copies.iter().filter(|source| !source.is(copy)).cloned().collect();
            let seams = &self.core.seams;
            (Transfer { seams, token: state.token, ring: state.ring, sources, target: copy }, live, under_way)
        };
        transfer.run(&live, under_way).await?;
        self.core.state.borrow_mut().copied.push(copy.clone());
        Ok(())
    }

    /// Gives the log up: nothing is written any more, and every waiter gets [`LogError::Lost`]. For a pool that finds
    /// that it may not write any longer.
    pub fn abandon(&self) {
        self.core.lose();
    }

    /// What was done since the start.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.core.state.borrow().counters
    }

    /// Takes no more records, waits until what was placed is written, and ends the writer. With a failed copy that is
    /// not excluded it waits for that.
    pub async fn stop(&self) {
        let core = &*self.core;
        {
            let mut state = core.state.borrow_mut();
            if state.phase == Phase::Running {
                state.phase = Phase::Stopping;
            }
        }
        core.work.notify_all();
        core.wake_queues();
        core.ended.wait_for(|| core.state.borrow().has_ended()).await;
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        self.core.lose();
    }
}

impl fmt::Debug for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.core.state.borrow();
        f.debug_struct("Log")
            .field("epoch", &state.epoch)
            .field("copies", &state.copies)
            .field("phase", &state.phase)
            .field("next", &state.next)
            .field("completed", &state.completed)
            .finish_non_exhaustive()
    }
}

impl Core {
    fn new(seams: Seams, state: State) -> Self {
        let core = Self {
            seams,
            state: RefCell::new(state),
            work: Notify::new(),
            done: [Notify::new(), Notify::new()],
            trouble: Notify::new(),
            ended: Notify::new(),
            ordinary: WaitQueue::default(),
            reserved: WaitQueue::default(),
            marks: WaitQueue::default(),
            epoch_change: AsyncMutex::ranked(EPOCH_CHANGE_RANK.single()),
        };
        core.borrow_buffers();
        core
    }

    /// Takes the buffers at once if the arena has them, so that the first append does not wait.
    fn borrow_buffers(&self) {
        let mut state = self.state.borrow_mut();
        let bytes = state.buffer_bytes();
        state.collecting.buffer = self.seams.metadata.try_take(bytes);
        state.spare = self.seams.metadata.try_take(bytes);
        state.counters.buffers =
            u64::from(state.collecting.buffer.is_some()) + u64::from(state.spare.is_some());
        state.list_holes();
    }

    /// A buffer for a batch.
    pub(crate) async fn take_buffer(&self) -> Buffer {
        let take: Take = self.seams.metadata.take(self.state.borrow().buffer_bytes());
        let buffer = take.await;
        self.state.borrow_mut().counters.buffers += 1;
        buffer
    }

    /// The bell of an LSN's batch.
    pub(crate) fn notify_of(&self, lsn: Lsn) -> &Notify {
        let [even, odd] = &self.done;
        if lsn.0.is_multiple_of(2) { even } else { odd }
    }

    pub(crate) fn wake_queues(&self) {
        for queue in [&self.ordinary, &self.reserved, &self.marks] {
            queue.wake();
        }
    }

    fn check_length(&self, parts: &[&[u8]]) -> Result<(), LogError> {
        let state = self.state.borrow();
        let length_bytes = parts.iter().map(|part| part.len()).fold(0, usize::saturating_add);
        let max_bytes = state.buffer_bytes() - HEADER_BYTES - record_bytes(0);
        if length_bytes > max_bytes {
            return Err(LogError::TooLarge { pool: state.pool, length_bytes, max_bytes });
        }
        Ok(())
    }

    fn try_place(&self, kind: u8, parts: &[&[u8]], class: Class, wait: Wait, waited: &mut bool) -> Placed {
        let mut state = self.state.borrow_mut();
        let placed = state.place(kind, parts, Limit::Class(class));
        if wait == Wait::Durable && matches!(placed, Some(Ok(_))) {
            state.collecting.set_durable();
        }
        drop(state);
        self.noted(placed, waited)
    }

    /// Tells the writer of what was placed, and counts what has to wait, once.
    fn noted(&self, placed: Placed, waited: &mut bool) -> Placed {
        match &placed {
            Some(_) => self.work.notify_all(),
            None if !*waited => {
                *waited = true;
                self.state.borrow_mut().counters.waits += 1;
            }
            None => {}
        }
        placed
    }

    /// Lets the writer look again at the batch under way.
    fn wake_writer(&self) {
        self.work.notify_all();
        if let Some(writer) = self.state.borrow().writer.as_ref() {
            writer.wake_by_ref();
        }
    }

    fn lose(&self) {
        self.state.borrow_mut().phase = Phase::Lost;
        self.wake_writer();
    }

    /// The writer's last act: frees its memory and tells everybody.
    pub(crate) fn end(&self) {
        self.state.borrow_mut().release();
        for notify_of in self.done.iter().chain([&self.ended]) {
            notify_of.notify_all();
        }
        self.wake_queues();
    }
}

/// The time during which an epoch is changed; it ends when this is dropped, however that comes.
struct Holding<'a> {
    core: &'a Core,
}

impl<'a> Holding<'a> {
    fn new(core: &'a Core) -> Self {
        core.state.borrow_mut().hold = Hold::Held;
        Self { core }
    }
}

impl Drop for Holding<'_> {
    fn drop(&mut self) {
        {
            let mut state = self.core.state.borrow_mut();
            state.hold = Hold::Free;
            state.copied.clear();
        }
        self.core.wake_writer();
        self.core.trouble.notify_all();
    }
}
