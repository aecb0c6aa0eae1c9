//! The rows of a pool in memory: pages that are dirty, blocks that no flush has covered, and blocks in doubt.

use std::cell::{Cell, RefCell};
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::{Rc, Weak};
use std::time::Duration;

use dolmen_block_io::Instant;
use dolmen_block_io::sync::AsyncMutex;
use dolmen_mutation::mutation;
use dolmen_pool::{LocalFuture, Pool, PoolState};
use dolmen_units::{BLOCK_BYTES, Epoch, Lsn, Name, SpaceId};

use crate::format::error::SpaceError;
use crate::format::ids::seen_as;
use crate::format::raw::PAGE_BYTES;
use crate::format::record::Stamp;
use crate::resources::events::{DataLossEvent, SpaceCounters};
use crate::resources::locks::Range;
use crate::resources::ranks;
use crate::resources::share::Share;
use crate::resources::tickets::{Held, Ticket, Tickets};
use crate::table::candidates::InDoubt;
use crate::table::page::{Now, place_in_page};
use crate::table::row::{BlocksOfRows, Row, RowKey};

/// Deferral of blocks that nothing can decide while disks are absent. Resolution decides them once the disks are back.
pub(crate) trait Defer {
    /// Keeps what the log says of blocks, and logs it again, so that no flush counts them in.
    fn defer(&self, blocks: BlocksOfRows) -> LocalFuture<'_, Result<(), SpaceError>>;
}

/// The rows of a pool in memory, with what the log says of their blocks.
pub(crate) struct RowStore {
    pub(crate) pool: Rc<Pool>,
    pub(crate) tickets: Rc<Tickets>,
    /// The latest flush interval that a flush has covered to its end.
    pub(crate) covered_interval: Cell<Option<u64>>,
    pub(crate) frozen: Cell<Option<Ticket>>,
    pub(crate) flush_mutex: AsyncMutex,
    /// What the last flush covered: writes with an earlier ticket whose records have a lower LSN. A record may come to the log
    /// late, behind the cut of a flush that waited for its write.
    pub(crate) covered: Cell<(Ticket, Lsn)>,
    /// Behind the last record of blocks that has been written.
    pub(crate) recorded: Cell<Lsn>,
    /// Bytes that this checkpoint has recorded again.
    pub(crate) relogged: Cell<u64>,
    pub(crate) unflushed: RefCell<VecDeque<Unflushed>>,
    pub(crate) unflushed_blocks: Cell<u64>,
    /// The epoch up to which unflushed blocks have stamps that tell what an excluded disk missed.
    pub(crate) stamped: Cell<Epoch>,
    pub(crate) dirty_rows: RefCell<Vec<Rc<Row>>>,
    /// What the log says of rows whose disks were absent, so that nothing could be decided.
    pub(crate) deferred: RefCell<InDoubt>,
    /// Rows that were decided while the pool was open, and the number of the write-back before that: until a later one has
    /// ended, the decisions are not durable.
    pub(crate) becoming_durable: RefCell<BTreeMap<(SpaceId, u64), u64>>,
    /// Counts the write-backs that have begun.
    pub(crate) write_backs: Cell<u64>,
    /// Rows of them with blocks that were acknowledged since the pool was opened and that no flush has covered.
    pub(crate) unflushed_away: RefCell<BTreeSet<(SpaceId, u64)>>,
    /// Blocks that are about to be left in doubt, and the turn of whoever does it for all of them.
    pub(crate) leaving: RefCell<BlocksOfRows>,
    pub(crate) defer_mutex: AsyncMutex,
    /// The rows of whose blocks that is being done.
    pub(crate) deferred_now: RefCell<BTreeSet<RowKey>>,
    /// Recovery is under way: what it decided is in memory, and the log still holds the records that it decided about. A
    /// settled mark now would call them covered by a flush, and a second crash would then believe the last of them.
    pub(crate) recovering: Cell<bool>,
    /// Held while tables are written to slabs, and while slabs are given away: a late table must not hit a new owner.
    pub(crate) table_mutex: AsyncMutex,
    /// Small frames of metadata memory for tables that are being written.
    pub(crate) frames: Share,
    pub(crate) page_count: Cell<usize>,
    pub(crate) counters: Cell<SpaceCounters>,
    pub(crate) data_loss_events: RefCell<VecDeque<DataLossEvent>>,
    /// Since when incidents were told in the log, and how many.
    pub(crate) reported: Cell<(Instant, u32)>,
    /// Names of the spaces, for messages.
    pub(crate) names: RefCell<BTreeMap<SpaceId, Name>>,
    /// Resolution, which keeps blocks that a disk took along.
    defer: Weak<dyn Defer>,
}

impl RowStore {
    /// Returns the rows of a pool that was just opened.
    pub(crate) fn new(pool: Rc<Pool>, defer: Weak<dyn Defer>) -> Self {
        let stamped = Cell::new(pool.epoch().number);
        let frames = pool.seams().metadata.frame_count(PAGE_BYTES) as u64;
        Self {
            pool,
            tickets: Rc::default(),
            covered_interval: Cell::default(),
            frozen: Cell::new(None),
            flush_mutex: ranks::flush(),
            covered: Cell::default(),
            recorded: Cell::default(),
            relogged: Cell::new(0),
            unflushed: RefCell::default(),
            unflushed_blocks: Cell::new(0),
            stamped,
            dirty_rows: RefCell::default(),
            deferred: RefCell::default(),
            becoming_durable: RefCell::default(),
            write_backs: Cell::new(0),
            unflushed_away: RefCell::default(),
            leaving: RefCell::default(),
            defer_mutex: ranks::defer(),
            deferred_now: RefCell::default(),
            recovering: Cell::new(false),
            table_mutex: ranks::table(),
            frames: Share::of(frames / 2, ranks::table_memory()),
            page_count: Cell::new(0),
            counters: Cell::default(),
            data_loss_events: RefCell::default(),
            reported: Cell::default(),
            names: RefCell::default(),
            defer,
        }
    }

    /// Leaves blocks in doubt: their disks are absent.
    pub(crate) async fn defer(&self, blocks: BlocksOfRows) -> Result<(), SpaceError> {
        match self.defer.upgrade() {
            Some(defer) => defer.defer(blocks).await,
            // The pool is being closed.
            None => Ok(()),
        }
    }
}

impl RowStore {
    pub(crate) fn count(&self, change: impl FnOnce(&mut SpaceCounters)) {
        let mut counters = self.counters.get();
        change(&mut counters);
        self.counters.set(counters);
    }

    /// Notes what happened to a range, joined to what was noted before it where it goes on there.
    pub(crate) fn note_data_loss(&self, data_loss: DataLossEvent) {
        let mut data_loss_events = self.data_loss_events.borrow_mut();
        // What is lost is lost once, however often it is asked for.
        if data_loss_events.iter().any(|known| known.covers(&data_loss)) {
            return;
        }
        if let Some(last) = data_loss_events.back_mut().filter(|last| last.continues_with(&data_loss)) {
            last.length = last.length + data_loss.length;
            // That it grows is told as often as it has doubled.
            if (last.length.0 / BLOCK_BYTES).is_power_of_two() {
                self.report(last);
            }
            return;
        }
        self.report(&data_loss);
        if data_loss_events.len() == DATA_LOSS_EVENTS_MAX {
            data_loss_events.pop_front();
        }
        data_loss_events.push_back(data_loss);
    }

    /// Tells of an incident in the log, unless that has had many of late.
    pub(crate) fn report(&self, data_loss: &DataLossEvent) {
        let now = self.pool.seams().clock.now();
        let (since, count) = self.reported.get();
        let goes_on = count > 0 && now.since(since) < REPORTED_WITHIN;
        let (since, count) = if goes_on { (since, count) } else { (now, 0) };
        self.reported.set((since, count.saturating_add(1)));
        match count.cmp(&REPORTED_MAX) {
            Ordering::Less => {
                tracing::error!(?data_loss, pool = %self.pool.name(), "a range of a space was damaged");
            }
            Ordering::Equal => tracing::error!(
                pool = %self.pool.name(),
                "more ranges of spaces were damaged; those that follow within a minute are not told here"
            ),
            Ordering::Greater => {}
        }
    }

    /// Whether disks may be written: not where the pool is only looked at.
    pub(crate) fn may_write(&self) -> bool {
        self.pool.state() == PoolState::Writable
    }

    /// The stamp of writes that begin now.
    pub(crate) fn stamp(&self) -> Stamp {
        Stamp::of(self.pool.epoch().number)
    }

    pub(crate) fn now(&self, held: &Held) -> Now {
        Now {
            ticket: held.ticket(),
            interval: held.interval(),
            covered: self.covered_interval.get(),
            frozen: self.frozen.get(),
        }
    }

    /// Notes that a row has pages that are not on its disks.
    pub(crate) fn note_dirty(&self, row: &Rc<Row>) {
        if !row.dirty.replace(true) {
            self.dirty_rows.borrow_mut().push(Rc::clone(row));
        }
    }

    /// Whether nothing waits to be decided.
    pub(crate) fn has_decided_all(&self) -> bool {
        let are_remaining = || !self.leaving.borrow().is_empty() || !self.deferred_now.borrow().is_empty();
        self.deferred.borrow().is_empty() && self.becoming_durable.borrow().is_empty() && !are_remaining()
    }

    /// Whether something that the log says of a row is not decided.
    pub(crate) fn is_deferred(&self, row: &Row) -> bool {
        if self.has_decided_all() {
            return false;
        }
        let (deferred, becoming_durable) = (self.deferred.borrow(), self.becoming_durable.borrow());
        let is_open = |row: &Row| {
            let key = (row.space, row.index);
            deferred.contains_key(&key) || becoming_durable.contains_key(&key) || self.is_being_deferred(row)
        };
        is_open(row) || row.partner().is_some_and(|partner| is_open(&partner))
    }

    /// Whether nobody could decide yet what the log says of a block.
    pub(crate) fn is_in_doubt(&self, row: &Row, column: usize, block: u32) -> bool {
        let deferred = self.deferred.borrow();
        deferred
            .get(&(row.space, row.index))
            .is_some_and(|candidates| candidates.contains_key(&(column, block)))
    }

    /// Forgets what could not be decided of a row that was freed.
    pub(crate) fn forget_row(&self, space: SpaceId, index: u64) {
        self.deferred.borrow_mut().remove(&(space, index));
        self.unflushed_away.borrow_mut().remove(&(space, index));
        self.becoming_durable.borrow_mut().remove(&(space, index));
    }

    /// Whether a page may not go to its disks now: it has blocks that are not decided, or were not when the write-back that
    /// is under way began.
    pub(crate) fn is_withheld(&self, row: &Row, column: usize, index: usize) -> bool {
        let key = (row.space, row.index);
        let delayed_writes = self
            .becoming_durable
            .borrow()
            .get(&key)
            .is_some_and(|decided| *decided >= self.write_backs.get());
        delayed_writes
            || self.deferred.borrow().get(&key).is_some_and(|candidates| {
                candidates.keys().any(|(other, block)| *other == column && place_in_page(*block).0 == index)
            })
    }

    /// Notes what a space is called.
    pub(crate) fn note_name(&self, space: SpaceId, name: Name) {
        self.names.borrow_mut().insert(space, name);
    }

    /// The name of a space; of the pool when the space is none any more.
    pub(crate) fn name_of(&self, space: SpaceId) -> Name {
        let space = seen_as(space);
        self.names.borrow().get(&space).cloned().unwrap_or_else(|| self.pool_name().clone())
    }

    /// The name of a pool for messages about its spaces.
    pub(crate) fn pool_name(&self) -> &Name {
        self.pool.name()
    }
}

/// Incidents that are kept for people to read, at most.
pub(crate) const DATA_LOSS_EVENTS_MAX: usize = 1000;

/// Incidents that are told in the log within some time, at most.
pub(crate) const REPORTED_MAX: u32 = 100;

pub(crate) const REPORTED_WITHIN: Duration = Duration::from_secs(60);

/// Blocks whose last write no flush has covered.
#[derive(Clone)]
pub(crate) struct Unflushed {
    pub(crate) ticket: Ticket,
    pub(crate) row: Rc<Row>,
    pub(crate) column: usize,
    pub(crate) range: Range,
}

impl Unflushed {
    pub(crate) fn key(&self) -> RowKey {
        (self.row.space, self.row.index, self.row.id)
    }

    pub(crate) fn blocks(&self) -> std::ops::Range<u32> {
        self.range.first..self.range.first + self.range.count
    }
}

impl RowStore {
    /// Whether blocks of a row are about to be left in doubt. What the log says of them is being read: nobody may write to the row
    /// before that is known, although its slabs may be in reach again, because it has got another one meanwhile.
    pub(crate) fn is_being_deferred(&self, row: &Row) -> bool {
        if mutation!(DeferredWhileWritten) {
            return false;
        }
        let key = (row.space, row.index, row.id);
        self.leaving.borrow().contains_key(&key) || self.deferred_now.borrow().contains(&key)
    }

    /// Whether a row has unflushed blocks that are out of reach.
    pub(crate) fn is_unflushed_away(&self, row: &Row) -> bool {
        self.unflushed_away.borrow().contains(&(row.space, row.index))
    }
}
