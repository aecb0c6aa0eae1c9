//! What all spaces of a pool share: tickets, the flush, the pages in memory.

use std::cell::{Cell, RefCell};
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::{Rc, Weak};
use std::time::Duration;

use dolmen_block_io::Instant;
use dolmen_block_io::ranks::LockRank;
use dolmen_block_io::sync::{AsyncMutex, Permit, Semaphore};
use dolmen_buffer::{FRAME_BYTES_MAX, Scratch};
use dolmen_future_pool::pooled;
use dolmen_journal::Wait;
use dolmen_mutation::mutation;
use dolmen_pool::{LogRoom, Pool, PoolError, PoolState, keys};
use dolmen_store::Key;
use dolmen_units::{BLOCK_BYTES, Bytes, DiskId, Epoch, Lsn, Name, RowId, SpaceId};
use smallvec::SmallVec;

use crate::cache::write_cache::{Cache, seen_as};
use crate::facade::full_stripe::PARITY_BYTES_MAX;
use crate::facade::space::Space;
use crate::facade::spaces::Clients;
use crate::format::error::{SpaceError, UnreadableReason};
use crate::format::raw::{PAGE_BYTES, STATE_VALID};
use crate::format::record::{BlockExtent, BlockState, Stamp};
use crate::layout::{Covered, Unit};
use crate::policy::minimum_rate::MinimumRates;
use crate::resolution::in_flight::decide_sources;
use crate::resolution::log_forward::InDoubt;
use crate::resolution::reach::BlocksOfRows;
use crate::resolution::recovery::{
    Below, Recovery, Restating, RowCandidates, RowKey, Unfound, abandon, encode_candidates, note_all_unfound,
    recover_row,
};
use crate::resources::locks::Range;
use crate::resources::progress::Closing;
use crate::resources::ranks;
use crate::resources::throttle::Throttle;
use crate::resources::tickets::{Held, Ticket, Tickets};
use crate::table::page::Now;
use crate::table::row::Row;

/// Blocks that may be unflushed before the engine flushes by itself: what recovery has to verify, at most. On a small log
/// fewer, because after the loss of a disk all of them are recorded again, at up to 44 bytes each.
const UNFLUSHED_BLOCKS_MAX: u64 = 64 * 1024;
/// Bytes of the log that a block takes at most which is written beside others: its checksum, in the cache also that of its
/// mapping; and if a disk leaves meanwhile, an extent of its own.
const RECORDED_BYTES: u64 = 64;
/// The part of the log that recording all unflushed blocks again may take; twice that, where the states below them are said
/// as well.
const RESTAMP_SHARE: u64 = 16;
/// Rows that are recorded again at once: their metadata fits one change.
const RESTAMP_ROWS: usize = 128;
/// Bytes of the rows that are changed together: they go into one record of the log.
pub(crate) const ROWS_BYTES_MAX: usize = 96 * 1024;
/// Bytes of a record of many blocks, at most.
pub(crate) const RECORD_BYTES_MAX: usize = 64 * 1024;
/// Incidents that are kept for people to read, at most.
const DATA_LOSS_EVENTS_MAX: usize = 1000;
/// Incidents that are told in the log within some time, at most.
const REPORTED_MAX: u32 = 100;
const REPORTED_WITHIN: Duration = Duration::from_secs(60);

/// The spaces of a pool, whoever made them.
pub(crate) type AllSpaces = RefCell<BTreeMap<SpaceId, Rc<Space>>>;

/// Something that happened to a range of a space.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DataLossEvent {
    /// Which space.
    pub space: SpaceId,
    /// First byte.
    pub at: u64,
    /// Length.
    pub length: Bytes,
    /// What happened.
    pub kind: DataLossKind,
}

impl DataLossEvent {
    fn end(&self) -> u64 {
        self.at.saturating_add(self.length.0)
    }

    fn is_like(&self, other: &Self) -> bool {
        (self.space, self.kind) == (other.space, other.kind)
    }

    fn covers(&self, other: &Self) -> bool {
        // Of what its table does not know, each block is lost.
        let is_of_table = self.space == other.space
            && (self.kind, other.kind) == (DataLossKind::TableLost, DataLossKind::Lost);
        (is_of_table || self.is_like(other)) && self.at <= other.at && other.end() <= self.end()
    }

    /// Whether another one begins where this ends. What was accepted unverified is told block by block.
    fn continues_with(&self, other: &Self) -> bool {
        self.is_like(other) && self.end() == other.at && self.kind != DataLossKind::AcceptedUnverified
    }
}

/// What happened to a range of a space.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DataLossKind {
    /// It was being overwritten when power failed, and its other copies were lost or damaged in that instant: taken as
    /// it was found (the one exception of P2).
    AcceptedUnverified,
    /// No copy matched its checksum.
    Lost,
    /// No copy that is here matched its checksum, and one on a disk that is absent may.
    CorruptHere,
    /// No copy of its table could be believed; what it held is unknown.
    TableLost,
}

/// What the engine did since the pool was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SpaceCounters {
    /// Writes of blocks never written.
    pub fresh_writes: u64,
    /// Writes of blocks not flushed yet.
    pub rewrites: u64,
    /// Writes over flushed content.
    pub overwrites: u64,
    /// Flushes that reached the disks.
    pub flushes: u64,
    /// Flushes that another one covered.
    pub shared_flushes: u64,
    /// Table pages read.
    pub page_reads: u64,
    /// Table pages written, counted once for all copies.
    pub page_writes: u64,
    /// Blocks that did not match their checksum on one copy.
    pub checksum_errors: u64,
    /// Blocks rewritten from another copy.
    pub healed_blocks: u64,
    /// Blocks accepted unverified after a crash.
    pub accepted_unverified: u64,
    /// Blocks that no copy could give.
    pub lost_blocks: u64,
    /// Table pages that no copy could give.
    pub lost_pages: u64,
    /// Blocks copied to a disk that had missed them.
    pub resynced_blocks: u64,
    /// Shadow rows that were claimed.
    pub shadows_made: u64,
    /// Of all shadow rows, those that were promoted.
    pub shadows_promoted: u64,
    /// Stripes that were copied to shadow rows, because nobody had brought them, or back to rows.
    pub shadow_stripes_copied: u64,
    /// Of all shadow rows, those that gave their stripes back to their rows.
    pub shadows_dropped: u64,
    /// Stripes that went from a row to its shadow row or back, and are said to be there no more.
    pub stripes_switched: u64,
    /// Shadow rows that were there when the pool was opened.
    pub shadows_found: u64,
    /// Rows that were moved to another layout.
    pub converted_rows: u64,
}

/// A point in the order of writes, and of records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct FlushPoint {
    ticket: Ticket,
    lsn: Lsn,
}

impl FlushPoint {
    /// Behind a write and its record.
    pub(crate) fn after(ticket: Ticket, lsn: Lsn) -> Self {
        Self { ticket: Ticket(ticket.0 + 1), lsn: lsn.next() }
    }
}

/// Blocks whose last write no flush has covered.
#[derive(Clone)]
struct Unflushed {
    ticket: Ticket,
    row: Rc<Row>,
    column: usize,
    range: Range,
}

impl Unflushed {
    fn key(&self) -> RowKey {
        (self.row.space, self.row.index, self.row.id)
    }

    fn blocks(&self) -> std::ops::Range<u32> {
        self.range.first..self.range.first + self.range.count
    }
}

/// Shared by all spaces of a pool.
pub(crate) struct Shared {
    pub(crate) pool: Rc<Pool>,
    pub(crate) tickets: Rc<Tickets>,
    /// The latest flush interval that a flush has covered to its end.
    covered_interval: Cell<Option<u64>>,
    pub(crate) frozen: Cell<Option<Ticket>>,
    flush_mutex: AsyncMutex,
    /// What the last flush covered: writes with an earlier ticket whose records have a lower LSN. A record may come to the log
    /// late, behind the cut of a flush that waited for its write.
    pub(crate) covered: Cell<(Ticket, Lsn)>,
    /// Behind the last record of blocks that has been written.
    recorded: Cell<Lsn>,
    /// Bytes that this checkpoint has recorded again.
    pub(crate) relogged: Cell<u64>,
    unflushed: RefCell<VecDeque<Unflushed>>,
    unflushed_blocks: Cell<u64>,
    /// The epoch up to which unflushed blocks have stamps that tell what an excluded disk missed.
    stamped: Cell<Epoch>,
    pub(crate) dirty_rows: RefCell<Vec<Rc<Row>>>,
    /// What the log says of rows whose disks were absent, so that nothing could be decided.
    pub(crate) deferred: RefCell<InDoubt>,
    /// Rows that were decided while the pool was open, and the number of the write-back before that: until a later one has
    /// ended, the decisions are not durable.
    becoming_durable: RefCell<BTreeMap<(SpaceId, u64), u64>>,
    /// What was just found to have no good copy, unless a write cache has it.
    pub(crate) unfound: RefCell<Vec<Unfound>>,
    /// Counts the write-backs that have begun.
    pub(crate) write_backs: Cell<u64>,
    /// Who may have been told of writes before the pool was opened.
    pub(crate) clients: Cell<Clients>,
    /// Rows of them with blocks that were acknowledged since the pool was opened and that no flush has covered.
    pub(crate) unflushed_away: RefCell<BTreeSet<(SpaceId, u64)>>,
    /// Spaces that have nothing on members that are away, as they were looked at when a disk had left for the last time (its
    /// seating), and that have claimed nothing there since.
    pub(crate) nothing_on: RefCell<BTreeMap<DiskId, (u64, BTreeSet<SpaceId>)>>,
    /// How often something was claimed on a member that is away.
    pub(crate) claims_on_absent: Cell<u64>,
    resolve_mutex: AsyncMutex,
    /// The row that is being decided, and whether blocks of it were left in doubt again meanwhile.
    pub(crate) deciding: Cell<Option<((SpaceId, u64), bool)>>,
    /// Held while decisions are made durable, for all that were taken before.
    durability_mutex: AsyncMutex,
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
    /// Held by write-backs from the moment on that they look at what is in doubt and at what pages say, and while slabs get the
    /// places of lost ones: what a write-back relogs and writes is of the slabs that a row had then.
    pub(crate) write_back_mutex: AsyncMutex,
    /// Held while slabs are filled until they are trusted: who fills one begins with zeros where its tables are.
    pub(crate) refill_mutex: AsyncMutex,
    /// Small frames of metadata memory for tables that are being written.
    pub(crate) frames: Share,
    /// The same for looks at the copies of blocks that are decided.
    pub(crate) looks: Share,
    /// The same for stripes with parity that are put in place: on the way, blocks may have to be decided.
    pub(crate) lines: Share,
    /// How hard jobs work while clients do.
    pub(crate) throttle: Throttle,
    /// What spaces are to get, and others leave to them.
    pub(crate) minimum_rates: MinimumRates,
    /// A part of the medium frames, for parity of fresh stripes.
    pub(crate) stripes: Share,
    /// Another part of them, for runs that are copied to slabs.
    pub(crate) refills: Share,
    /// A part of the large frames, for pieces that are copied to conversion shadows.
    pub(crate) conversion_shadows: Share,
    pub(crate) page_count: Cell<usize>,
    pub(crate) counters: Cell<SpaceCounters>,
    pub(crate) data_loss_events: RefCell<VecDeque<DataLossEvent>>,
    /// Since when incidents were told in the log, and how many.
    reported: Cell<(Instant, u32)>,
    pub(crate) closing: Closing,
    /// The spaces, whoever made them.
    pub(crate) spaces: RefCell<Weak<AllSpaces>>,
    /// Write caches.
    pub(crate) caches: RefCell<Vec<Weak<Cache>>>,
    /// Names of the spaces, for messages.
    names: RefCell<BTreeMap<SpaceId, Name>>,
}

/// A part of the small frames, which some kind of work keeps to.
pub(crate) struct Share {
    permits: Semaphore,
    all: u64,
}

impl Share {
    /// A part that is taken in the order of locks.
    fn of(frames: u64, rank: LockRank) -> Self {
        let all = frames.max(1);
        Self { permits: Semaphore::ranked(all, rank), all }
    }

    /// The part of recovery's looks at blocks, which end by themselves, whatever locks the task holds.
    fn of_looks(frames: u64) -> Self {
        let all = frames.max(1);
        Self { permits: Semaphore::new(all), all }
    }

    /// How many there are.
    pub(crate) fn all(&self) -> u64 {
        self.all
    }

    /// Takes so many, or all where there are fewer.
    #[track_caller]
    pub(crate) fn take(&self, count: u64) -> impl Future<Output = Permit<'_>> {
        self.permits.acquire(count.min(self.all))
    }
}

impl Shared {
    pub(crate) fn new(pool: Rc<Pool>) -> Rc<Self> {
        let stamped = Cell::new(pool.epoch().number);
        let frames = pool.seams().metadata.frame_count(PAGE_BYTES) as u64;
        let medium = pool.seams().metadata.frame_count(PARITY_BYTES_MAX) as u64;
        let large = pool.seams().metadata.frame_count(FRAME_BYTES_MAX) as u64;
        Rc::new(Self {
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
            unfound: RefCell::default(),
            write_backs: Cell::new(0),
            clients: Cell::new(Clients::Ended),
            unflushed_away: RefCell::default(),
            nothing_on: RefCell::default(),
            claims_on_absent: Cell::new(0),
            resolve_mutex: ranks::resolve(),
            deciding: Cell::default(),
            durability_mutex: ranks::durability(),
            leaving: RefCell::default(),
            defer_mutex: ranks::defer(),
            deferred_now: RefCell::default(),
            recovering: Cell::new(false),
            table_mutex: ranks::table(),
            write_back_mutex: ranks::write_back(),
            refill_mutex: ranks::refill(),
            frames: Share::of(frames / 2, ranks::table_memory()),
            looks: Share::of_looks(frames / 4),
            lines: Share::of(frames / 8, ranks::stripe_read_memory()),
            throttle: Throttle::default(),
            minimum_rates: MinimumRates::default(),
            stripes: Share::of(medium / 2, ranks::stripe_memory()),
            refills: Share::of(medium / 4, ranks::refill_memory()),
            conversion_shadows: Share::of(large / 4, ranks::conversion_memory()),
            page_count: Cell::new(0),
            counters: Cell::default(),
            data_loss_events: RefCell::default(),
            reported: Cell::default(),
            closing: Closing::default(),
            spaces: RefCell::default(),
            caches: RefCell::default(),
            names: RefCell::default(),
        })
    }

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
    fn report(&self, data_loss: &DataLossEvent) {
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

    /// The write caches.
    pub(crate) fn caches(&self) -> Vec<Rc<Cache>> {
        self.caches.borrow().iter().filter_map(Weak::upgrade).collect()
    }

    /// How many write caches there are.
    pub(crate) fn cache_count(&self) -> u64 {
        self.caches.borrow().iter().filter(|cache| cache.strong_count() > 0).count() as u64
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

    /// Says of blocks of some columns of a row that nobody could decide that they are not to be taken as they are found, and, if they are
    /// lost, that they are, unless a copy turns up. Both are durable then: otherwise power could take them, and
    /// leave what the log says behind them. The caller holds the lock of all of the row.
    #[pooled]
    pub(crate) async fn declare_in_doubt_lost(
        &self,
        row: &Row,
        columns: &[usize],
        are_lost: bool,
    ) -> Result<(), SpaceError> {
        let _exclusive = self.defer_mutex.take().await;
        let key = (row.space, row.index);
        let mut candidates =
            self.deferred.borrow().get(&key).map(|candidates| (**candidates).clone()).unwrap_or_default();
        candidates
            .retain(|(column, _), candidates| columns.contains(column) && abandon(candidates, are_lost));
        if candidates.is_empty() || mutation!(LostAcceptedUnverified) {
            return Ok(());
        }
        for body in
            encode_candidates(row.space, row.index, &candidates, (Restating::Supersedes, Covered::Before))
        {
            self.record(&body, Wait::Durable).await?;
        }
        let mut deferred = self.deferred.borrow_mut();
        Rc::make_mut(deferred.entry(key).or_default()).extend(candidates);
        Ok(())
    }

    /// Forgets what could not be decided of a row that was freed.
    pub(crate) fn forget_row(&self, space: SpaceId, index: u64) {
        self.deferred.borrow_mut().remove(&(space, index));
        self.unflushed_away.borrow_mut().remove(&(space, index));
        self.becoming_durable.borrow_mut().remove(&(space, index));
    }

    /// Decides what the log says of a row and of its shadow row, now that their disks may be here.
    #[pooled]
    pub(crate) async fn resolve(&self, space: &Space, row: &Rc<Row>) -> Result<(), SpaceError> {
        let both: SmallVec<[Rc<Row>; 2]> = row.shadow().into_iter().chain([Rc::clone(row)]).collect();
        if both.iter().any(|row| self.is_being_deferred(row)) {
            drop(self.defer_mutex.take().await);
        }
        {
            let _exclusive = self.resolve_mutex.take().await;
            self.decide_both(space, row).await?;
        }
        // Nothing of the row is served before its decisions are durable.
        let _exclusive = self.durability_mutex.take().await;
        if both.iter().any(|row| self.becoming_durable.borrow().contains_key(&(row.space, row.index))) {
            let before = self.write_backs.get();
            self.pool.checkpoint().await?;
            self.becoming_durable.borrow_mut().retain(|_, decided| *decided > before);
        }
        Ok(())
    }

    /// Decides what waits of a shadow row and its row; a stripe of the shadow row that was left for the row, behind that.
    async fn decide_both(&self, space: &Space, row: &Rc<Row>) -> Result<(), SpaceError> {
        let decide = async |row: &Rc<Row>| {
            let waits = self.deferred.borrow().contains_key(&(row.space, row.index));
            if waits { self.decide_row(space, row).await } else { Ok(()) }
        };
        let Some(shadow) = row.shadow() else { return decide(row).await };
        let of_shadow = decide(&shadow).await;
        decide(row).await?;
        if of_shadow.is_err() { decide(&shadow).await } else { Ok(()) }
    }

    #[pooled]
    async fn decide_row(&self, space: &Space, row: &Rc<Row>) -> Result<(), SpaceError> {
        let key = (row.space, row.index);
        let mut recovery = Recovery::default();
        // Whoever began before the disk left is done with the row then. A checkpoint may need the lock as well.
        let _guard = row.locks.lock(Range { first: 0, count: row.shape.row_blocks() }).await;
        self.commit_absences(row).await?;
        row.touch(Range { first: 0, count: row.shape.row_blocks() });
        let candidates =
            self.deferred.borrow().get(&key).map(|candidates| (**candidates).clone()).unwrap_or_default();
        let places: Vec<(usize, u32)> = candidates.keys().copied().collect();
        self.deciding.set(Some((key, false)));
        let left = self.decide_candidates(space, row, candidates, &mut recovery).await;
        note_all_unfound(self, |row| space.cache_of(row), &mut recovery);
        let left_again = self.deciding.take().is_some_and(|(_, left_again)| left_again);
        let left = left?;
        if left_again && let Some((column, block)) = places.first() {
            // A disk left meanwhile, perhaps with what was just decided: all of the row is decided again.
            return Err(self.unreadable(row, *column, *block as usize, UnreadableReason::Absent));
        }
        let lost = recovery.reverted + recovery.damaged + recovery.accepted_unverified > 0;
        if lost && self.is_unflushed_away(row) {
            space.lost_unflushed.set(true);
        }
        self.note_decided(key, &places, &left);
        match left.keys().next() {
            Some((column, block)) => {
                Err(self.unreadable(row, *column, *block as usize, UnreadableReason::Absent))
            }
            None => Ok(()),
        }
    }

    #[pooled]
    async fn decide_candidates(
        &self,
        space: &Space,
        row: &Rc<Row>,
        candidates: RowCandidates,
        recovery: &mut Recovery,
    ) -> Result<RowCandidates, SpaceError> {
        let (mut left, sources) = recover_row(self, space, row, candidates, Below::Disk, recovery).await?;
        // Which slabs lack something is on record.
        let freed = decide_sources(self, space, sources, &mut left, recovery).await?;
        freed.iter().for_each(|source| source.is_deleting(self));
        Ok(left)
    }

    /// Notes that blocks of a row are decided. Claims that came meanwhile stay.
    fn note_decided(&self, key: (SpaceId, u64), places: &[(usize, u32)], left: &RowCandidates) {
        self.becoming_durable.borrow_mut().insert(key, self.write_backs.get());
        let mut deferred = self.deferred.borrow_mut();
        let Some(candidates) = deferred.get_mut(&key).map(Rc::make_mut) else { return };
        places
            .iter()
            .filter(|place| !left.contains_key(place))
            .for_each(|place| drop(candidates.remove(place)));
        if candidates.is_empty() {
            deferred.remove(&key);
            self.unflushed_away.borrow_mut().remove(&key);
            drop(deferred);
            // Whoever waits for room in a write cache may find some.
            self.caches().iter().for_each(|cache| cache.notify.notify_all());
        }
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

    /// Appends a record of blocks to the log.
    pub(crate) async fn record(&self, body: &[u8], wait: Wait) -> Result<Lsn, PoolError> {
        let lsn = self.pool.append_blocks(body, wait).await?;
        self.recorded.set(self.recorded.get().max(lsn.next()));
        Ok(lsn)
    }

    /// Records what was said before, so that the log can be trimmed behind that.
    pub(crate) async fn record_relogged(&self, body: &[u8]) -> Result<Lsn, PoolError> {
        // Heads of batches, and what is left at their ends.
        let bytes = (body.len() as u64 * 17 / 16).next_multiple_of(BLOCK_BYTES);
        self.relogged.set(self.relogged.get() + bytes);
        self.record(body, Wait::Written).await
    }

    /// Everything that was written and recorded until now.
    pub(crate) fn flush_point(&self) -> FlushPoint {
        FlushPoint { ticket: self.tickets.next(), lsn: self.recorded.get() }
    }

    /// Whether a flush has covered everything of before a moment.
    pub(crate) fn has_covered(&self, flush_point: FlushPoint) -> bool {
        let (ticket, lsn) = self.covered.get();
        ticket >= flush_point.ticket && lsn >= flush_point.lsn
    }

    /// Notes a write that no flush has covered.
    pub(crate) fn note_unflushed(&self, ticket: Ticket, row: &Rc<Row>, column: usize, range: Range) {
        self.unflushed_blocks.set(self.unflushed_blocks.get() + u64::from(range.count));
        self.unflushed.borrow_mut().push_back(Unflushed { ticket, row: Rc::clone(row), column, range });
    }

    /// The blocks of a row that were written and that no flush has covered, by column.
    pub(crate) fn unflushed_of(&self, row: &Row) -> BTreeSet<(usize, u32)> {
        let unflushed = self.unflushed.borrow();
        let of_row = unflushed.iter().filter(|entry| entry.row.id == row.id);
        of_row.flat_map(|entry| entry.blocks().map(|block| (entry.column, block))).collect()
    }

    /// Blocks of stripes of a row that hold nothing since a write that no flush has covered: of these stripes, the row beside it is
    /// the target.
    pub(crate) fn unflushed_sources(&self, row: &Row, lines: &BTreeSet<u32>) -> BTreeSet<(usize, u32)> {
        let unflushed = self.unflushed.borrow();
        let of_row = unflushed.iter().filter(|entry| entry.row.id == row.id);
        of_row
            .flat_map(|entry| entry.blocks().map(|block| (entry.column, block)))
            .filter(|place| {
                lines.contains(&place.1) && row.state_in_memory(*place) == Some(BlockState::Never)
            })
            .collect()
    }

    /// Waits until a write may begin: the log has room, and not too much is unflushed. Called without any lock or ticket.
    pub(crate) async fn gate(&self) -> Result<(), SpaceError> {
        self.pool.wait_for_log().await?;
        let (log, _) = self.pool.metadata_bytes();
        if self.unflushed_blocks.get() > UNFLUSHED_BLOCKS_MAX.min(log.0 / RESTAMP_SHARE / 44) {
            self.flush().await?;
        }
        Ok(())
    }

    /// Keeps the room in the log that the record of so many blocks takes, and the mark of a flush behind it, as long as what is
    /// returned lives. Called as [`gate`](Self::gate).
    pub(crate) async fn room_for(&self, blocks: u32) -> Result<LogRoom<'_>, SpaceError> {
        Ok(self.pool.log_room(Bytes(2 * BLOCK_BYTES + u64::from(blocks) * RECORDED_BYTES)).await?)
    }

    /// Makes every write that was acknowledged before this call durable.
    #[pooled]
    pub(crate) async fn flush(&self) -> Result<(), SpaceError> {
        let mine = (self.tickets.next(), self.recorded.get());
        let _exclusive = self.flush_mutex.take().await;
        let covered = self.covered.get();
        let is_marked = covered.1 >= mine.1 || mutation!(ConcurrentRecordUnmarked);
        if covered.0 >= mine.0 && is_marked {
            self.count(|counters| counters.shared_flushes += 1);
            return Ok(());
        }
        loop {
            let limit = self.tickets.next();
            let interval = self.tickets.next_interval();
            let cut = self.pool.cut()?;
            if !mutation!(FlushWaitsForNone) {
                self.tickets.wait_below(limit).await;
            }
            self.pool.written_below(cut).await?;
            if mutation!(MarkBeforeFlush) {
                self.pool.mark_durable(cut).await?;
            }
            self.pool.flush_disks().await?;
            if self.restamp().await? {
                continue;
            }
            if !mutation!(MarkBeforeFlush) && (!self.recovering.get() || mutation!(RecoveryNotFinal)) {
                self.pool.mark_durable(cut).await?;
            }
            // In recovery nothing is marked; it ends with a flush of its own, whose ticket is a later one.
            self.forget_durable(if mutation!(SettleAhead) { self.tickets.next() } else { limit });
            self.covered.set((limit, cut));
            self.covered_interval.set(Some(interval));
            self.count(|counters| counters.flushes += 1);
            return Ok(());
        }
    }

    /// Forgets the writes that a flush has covered.
    fn forget_durable(&self, limit: Ticket) {
        let have_ended = self.tickets.have_ended_below(limit) || mutation!(FlushWaitsForNone);
        assert!(have_ended, "a flush covers no write that is under way");
        let mut unflushed = self.unflushed.borrow_mut();
        unflushed.retain(|entry| entry.ticket >= limit || mutation!(SettleKeepsWrites));
        let all_are_later = unflushed.iter().all(|entry| entry.ticket >= limit);
        assert!(all_are_later, "after a flush no write that it covers counts as unflushed");
        let left = unflushed.iter().map(|entry| u64::from(entry.range.count)).sum();
        self.unflushed_blocks.set(left);
    }

    /// After a disk has left: blocks that no flush had covered on it may be missing there, so they are recorded again
    /// under the new epoch, and their rows say that the disk's slab is stale. Those that were only there stay in doubt.
    /// Returns whether the epoch is another one than the last time.
    #[pooled]
    async fn restamp(&self) -> Result<bool, SpaceError> {
        let now = self.pool.epoch().number;
        if self.stamped.get() == now {
            return Ok(false);
        }
        let mut by_row: BTreeMap<(SpaceId, u64, RowId), (Rc<Row>, UnflushedBlocks)> = BTreeMap::new();
        let mut away = BlocksOfRows::new();
        // That a stripe is in its other slot needs no disk of this one.
        let is_source = |entry: &Unflushed| {
            let first = entry.row.state_in_memory((entry.column, entry.range.first));
            entry.row.partner().is_some() && first == Some(BlockState::Never)
        };
        let is_away = |entry: &&Unflushed| !self.is_decidable(&entry.row, entry.column) && !is_source(entry);
        for entry in self.unflushed.borrow().iter().filter(is_away) {
            let (_, blocks) =
                away.entry(entry.key()).or_insert_with(|| (Rc::clone(&entry.row), BTreeSet::new()));
            blocks.extend(entry.blocks().map(|block| (entry.column, block)));
        }
        self.leave_in_doubt(away.clone()).await?;
        // Only now, because whoever finds them neither here nor there would take them for flushed.
        // Of one that came meanwhile, some blocks may have been left and others not.
        let is_away = |entry: &Unflushed| {
            away.get(&entry.key()).is_some_and(|(_, blocks)| {
                entry.blocks().all(|block| blocks.contains(&(entry.column, block)))
            })
        };
        self.unflushed.borrow_mut().retain(|entry| !is_away(entry));
        for entry in &*self.unflushed.borrow() {
            let (_, blocks) =
                by_row.entry(entry.key()).or_insert_with(|| (Rc::clone(&entry.row), BTreeMap::new()));
            blocks.extend(entry.blocks().map(|block| ((entry.column, block), entry.ticket)));
        }
        let rows: Vec<(Rc<Row>, UnflushedBlocks)> = by_row.into_values().collect();
        for group in rows.chunks(RESTAMP_ROWS) {
            self.restamp_rows(group).await?;
        }
        self.stamped.set(now);
        Ok(true)
    }

    /// One record for many blocks: each record by itself would take a batch of the log, which has no room for thousands.
    #[pooled]
    async fn restamp_rows(&self, rows: &[(Rc<Row>, UnflushedBlocks)]) -> Result<(), SpaceError> {
        self.commit_absences_of(rows.iter().map(|(row, _)| row)).await?;
        let mut guards = Vec::new();
        let mut has_unlocked = false;
        let mut body = Scratch::new();
        for (row, blocks) in rows {
            // With parity these are stripes in flight, which nobody writes over before a flush has covered them; and who puts
            // others in place waits for this flush, with locks of the row.
            if row.shape.unit() == Unit::Block {
                // Stripes that failed may be tried again while this waits for locks: what is said of them then is the newest.
                if std::mem::take(&mut has_unlocked) && !body.is_empty() {
                    self.record(&body, Wait::Written).await?;
                    body.clear();
                    guards.clear();
                }
                let numbers = blocks.keys().map(|(column, block)| row.shape.row_block(*column, *block));
                let numbers: BTreeSet<u32> = numbers.collect();
                guards.push(row.locks.lock_all(&joined(numbers.into_iter())).await);
            }
            if row.freed.get() {
                continue;
            }
            for (place, ticket) in blocks {
                // Of a write that failed; said already, and the next one may be on its way to the log.
                if row.shape.unit() == Unit::Stripe && row.state_in_memory(*place) == Some(BlockState::Never)
                {
                    continue;
                }
                self.restate(row, *place, Covered::ByTheNextFlush, *ticket, &mut body).await?;
                if body.len() > RECORD_BYTES_MAX {
                    self.record(&body, Wait::Written).await?;
                    body.clear();
                }
            }
            self.note_dirty(row);
            has_unlocked |= row.shape.unit() == Unit::Stripe;
            // What is in the body is still locked when it is appended: a write in between would be recorded before it.
            if body.is_empty() {
                guards.clear();
            }
        }
        if !body.is_empty() {
            self.record(&body, Wait::Written).await?;
        }
        Ok(())
    }

    /// Adds what the table in memory says of a block to a record, under the stamp of now.
    async fn restate(
        &self,
        row: &Rc<Row>,
        (column, block): (usize, u32),
        covered: Covered,
        ticket: Ticket,
        body: &mut Scratch,
    ) -> Result<(), SpaceError> {
        let (index, entry) = place_in_page(block);
        let stamp = self.stamp();
        let page = self.page(row, column, index).await?;
        let state = page.state(entry);
        page.restamp(entry, stamp, ticket, self.frozen.get());
        let mut extent = self.extent(row, column, Range { first: block, count: 1 }, stamp);
        extent.covered = covered == Covered::Before;
        push_extent(body, extent, &[state], page.durable_generation());
        Ok(())
    }

    /// Records what the table in memory says of blocks, under the stamp of now, in one record: of a stripe with parity a crash
    /// leaves all of it or nothing. The caller holds their locks.
    pub(crate) async fn record_again(
        &self,
        row: &Rc<Row>,
        places: impl Iterator<Item = (usize, u32)>,
        covered: Covered,
        ticket: Ticket,
    ) -> Result<(), SpaceError> {
        let mut body = Scratch::new();
        for place in places {
            self.restate(row, place, covered, ticket, &mut body).await?;
        }
        if body.is_empty() {
            return Ok(());
        }
        self.note_dirty(row);
        self.record(&body, Wait::Written).await?;
        Ok(())
    }

    /// As [`record_again`](Self::record_again), for blocks of a column of which a flush has covered some.
    pub(crate) async fn record_blocks_again(
        &self,
        row: &Rc<Row>,
        (column, blocks): (usize, &[u32]),
        covered: impl Fn(u32) -> Covered,
        ticket: Ticket,
    ) -> Result<(), SpaceError> {
        let mut body = Scratch::new();
        for block in blocks {
            self.restate(row, (column, *block), covered(*block), ticket, &mut body).await?;
        }
        self.note_dirty(row);
        self.record(&body, Wait::Written).await?;
        Ok(())
    }

    /// The head of a record for a range of a column; the state is filled in later.
    pub(crate) fn extent(&self, row: &Row, column: usize, range: Range, stamp: Stamp) -> BlockExtent {
        BlockExtent {
            space: row.space,
            row_index: row.index,
            row: row.id,
            column: u8::try_from(column).unwrap_or(0),
            first: range.first,
            count: range.count,
            stamp,
            state: STATE_VALID,
            intent: false,
            in_doubt: false,
            supersedes: false,
            covered: false,
            generation: 0,
        }
    }

    /// Commits that every page of the tables of rows is on its disks, many rows in one change: a record each would take more
    /// of the log than the checkpoint that this is a part of can trim. What else became of a row meanwhile stands: it is
    /// looked at only when no other change can come between, and a row that was freed stays freed.
    pub(crate) async fn commit_formatted(
        &self,
        rows: &[Rc<Row>],
        is_whole: impl Fn(&Rc<Row>) -> bool,
    ) -> Result<(), SpaceError> {
        let mut rows = rows.iter().filter(|row| is_whole(row)).peekable();
        while rows.peek().is_some() {
            let mut change = self.pool.change(dolmen_pool::Purpose::Release).await;
            let mut formatted = Vec::new();
            let mut bytes = 0;
            while bytes < ROWS_BYTES_MAX
                && let Some(row) = rows.next()
            {
                if row.freed.get() {
                    continue;
                }
                let mut record = row.record();
                record.formatted = true;
                let value = record.encode();
                bytes += size_of::<Key>() + value.len();
                change.put(keys::row(row.space, row.index), value);
                // Recovery has marked slabs stale in memory only, and the record must not be durable without its index.
                for slab in record.columns.iter().flatten().filter(|slab| slab.stale.is_some()) {
                    bytes += size_of::<Key>();
                    change.put(keys::stale(slab.disk, row.space, row.index), Vec::new());
                }
                formatted.push((row, record));
            }
            if !formatted.is_empty() {
                change.commit().await?;
            }
            formatted.into_iter().for_each(|(row, record)| row.adopt(record));
        }
        Ok(())
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

/// Blocks of a row, by column and block of the column, with the ticket of the last write.
type UnflushedBlocks = BTreeMap<(usize, u32), Ticket>;

/// Numbers in ascending order as ranges without gaps.
pub(crate) fn joined(numbers: impl Iterator<Item = u32>) -> Vec<Range> {
    let mut ranges: Vec<Range> = Vec::new();
    for number in numbers {
        match ranges.last_mut().filter(|last| last.first + last.count == number) {
            Some(last) => last.count += 1,
            None => ranges.push(Range { first: number, count: 1 }),
        }
    }
    ranges
}

/// The page of a block of a column, and its entry there.
pub(crate) fn place_in_page(block: u32) -> (usize, usize) {
    let block = block as usize;
    (block / crate::format::raw::PAGE_ENTRIES, block % crate::format::raw::PAGE_ENTRIES)
}

/// Cuts a range of a column where its table pages end.
pub(crate) fn by_page(range: Range) -> impl Iterator<Item = Range> {
    let end = range.first + range.count;
    let mut first = range.first;
    std::iter::from_fn(move || {
        if first == end {
            return None;
        }
        let entries = u32::try_from(crate::format::raw::PAGE_ENTRIES).unwrap_or(1);
        let to = end.min((first / entries + 1) * entries);
        let part = Range { first, count: to - first };
        first = to;
        Some(part)
    })
}

/// Appends an extent with the states of its blocks to a record. All states are alike but for checksums, and all blocks are
/// of one page, whose durable generation is given.
pub(crate) fn push_extent(
    body: &mut Vec<u8>,
    mut extent: BlockExtent,
    states: &[BlockState],
    generation: u64,
) {
    let (state, _) = states.first().copied().unwrap_or_default().parts();
    extent.state = state;
    let [low, high, ..] = generation.to_le_bytes();
    extent.generation = u16::from_le_bytes([low, high]);
    body.extend_from_slice(&extent.head());
    if state == STATE_VALID {
        for state in states {
            body.extend_from_slice(&state.parts().1.to_le_bytes());
        }
    }
}
