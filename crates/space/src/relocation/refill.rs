//! Slabs get what they miss, as fast as disks can give and take it that nobody else wants (docs/design/0013).
//!
//! Invariants:
//! - Nothing is copied but what is as its table says; what nobody can give is named and never made up.
//! - Memory for a run is promised before the run is locked, so nobody waits for memory who keeps others from giving theirs back.
//! - A disk with heads takes part in one row of a lot at a time: they read and write in order, and several disks work beside each
//!   other.
//!
//! Left to others: which rows and when (`resync`, `removal`, `rebalance`), that slabs are trusted afterwards (`resync`), how hard
//! all of it works beside clients (`throttle`).

use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;

use dolmen_block_io::DeviceError;
use dolmen_block_io::sync::{AsyncMutex, Notify, join_all};
use dolmen_disk::MemberState;
use dolmen_future_pool::pooled;
use dolmen_mutation::mutation;
use dolmen_pool::{Disk, Pool};
use dolmen_units::{ALLOCATION_UNIT_BYTES, BLOCK_BYTES, DiskSlot, Epoch};
use smallvec::SmallVec;

use crate::cache::cached_blocks::CachedBlocks;
use crate::cache::stripe_read::{Rebuilt, StripeReads};
use crate::format::error::{SpaceError, UnreadableReason};
use crate::format::record::BlockState;
use crate::layout::BLOCK;
use crate::layout::shape::RUN_BLOCKS;
use crate::relocation::resync::{Refilled, RefilledSlab, Resynced, SlabChanges};
use crate::resolution::decided_rows::DecidedRows;
use crate::resources::events::DataLossKind;
use crate::resources::hedge_delay::HedgeDelay;
use crate::resources::locks::Range;
use crate::resources::progress::Progress;
use crate::resources::ranks;
use crate::row_io::copies::{RowCopies, matches_state};
use crate::row_io::header::HeaderStore;
use crate::row_io::stripe_places::StripePlaces;
use crate::table::page::place_in_page;
use crate::table::pages::TableStore;
use crate::table::row::{Row, Slab};
use crate::table::space::SpaceRows;

/// Rows of a lot that are filled beside each other, at most: no more than that many pairs of disks.
pub(crate) const ROWS_AT_A_TIME: usize = 16;
/// Rows of which a disk without heads takes part in the filling at a time: one begins while another one ends.
const ROWS_OF_A_DISK: usize = 3;
/// Runs of a slab that are under way beside each other: enough that neither the disk that gives nor the one that takes waits.
const RUNS_AT_A_TIME: usize = 8;
/// Blocks that one resync gives up because the disks with the only copies cannot read them, at most.
const DECLARED_LOST_MAX: u64 = 4096;
/// Blocks of a slab that are given up at once because the only copy of them cannot be read, at most: sectors have gone bad.
/// Where there are more, the disk or the way to it has a fault that may pass, and the slab waits.
const UNREADABLE_MAX: usize = 256;
/// The same in blocks of the slab: one of so many.
const UNREADABLE_SHARE: usize = 16;

/// Rows whose slabs are filled and trusted in one go, one after another: at least so many, and at most.
const LOT_ROWS: std::ops::RangeInclusive<usize> = 8..=128;
/// What may have to be copied for a lot with more than the least, for each disk that is here: nothing of it is trusted before all
/// is there, and others who would fill slabs wait for it.
const LOT_BYTES_OF_DISK: u64 = 256 << 20;

/// Takes the next rows that are filled together off a longer list.
///
/// # Errors
/// [`SpaceError`] when the map cannot be read.
pub(crate) async fn next_lot(
    rows: &mut VecDeque<(Rc<SpaceRows>, u64)>,
) -> Result<Vec<(Rc<SpaceRows>, u64)>, SpaceError> {
    let (mut lot, mut bytes) = (Vec::new(), 0);
    let pool = rows.front().map(|(space, _)| Rc::clone(&space.shared.pool));
    let disks = pool.map_or(0, |pool| pool.disks().iter().filter(|disk| disk.is_present()).count() as u64);
    while let Some((space, index)) = rows.front().filter(|_| lot.len() < *LOT_ROWS.end()) {
        let row = space.in_doubt_row(*index).await?;
        bytes += row.map_or(0, |row| row.map(0).units() * ALLOCATION_UNIT_BYTES);
        if lot.len() >= *LOT_ROWS.start() && bytes > LOT_BYTES_OF_DISK * disks {
            break;
        }
        lot.extend(rows.pop_front());
    }
    Ok(lot)
}

/// The rows of a lot with which nobody has begun, because the job is to stand or to stop.
pub(crate) fn not_begun(
    lot: &[(Rc<SpaceRows>, u64)],
    done: &[RowOfLot],
) -> impl DoubleEndedIterator<Item = (Rc<SpaceRows>, u64)> {
    let begun: BTreeSet<usize> = done.iter().map(|row| row.at).collect();
    lot.iter().enumerate().filter(move |(at, _)| !begun.contains(at)).map(|(_, row)| row.clone())
}

/// The rows of a lot that have slabs to trust, with their spaces.
pub(crate) fn of_spaces(
    lot: &[(Rc<SpaceRows>, u64)],
    done: Vec<RowOfLot>,
) -> impl Iterator<Item = (Rc<SpaceRows>, Refilled)> {
    done.into_iter().filter_map(|row| Some((Rc::clone(&lot.get(row.at)?.0), row.refilled?)))
}

/// Rows with the least redundancy left first: the next disk that fails takes of them what cannot be restored. In their order
/// otherwise.
///
/// # Errors
/// [`SpaceError`] when the map cannot be read.
pub(crate) async fn neediest_first(
    rows: Vec<(Rc<SpaceRows>, u64)>,
) -> Result<Vec<(Rc<SpaceRows>, u64)>, SpaceError> {
    let mut with_need = Vec::with_capacity(rows.len());
    for (space, index) in rows {
        let row = space.in_doubt_row(index).await?;
        let left = row.map_or(0, |row| redundancy_left(&space.shared.pool, &row));
        with_need.push((left, (space, index)));
    }
    with_need.sort_by_key(|(left, _)| *left);
    Ok(with_need.into_iter().map(|(_, row)| row).collect())
}

/// How many of the disks that have something of a row and are here may fail so that all of it can still be had.
pub(crate) fn redundancy_left(pool: &Pool, row: &Row) -> usize {
    let readable = |column| {
        row.with_slabs(column, |slabs| slabs.iter().filter(|slab| slab.readable(pool).is_some()).count())
    };
    row.shape.losses_left(readable)
}

/// What came of a row of a lot.
pub(crate) struct RowOfLot {
    /// Its place among the rows of the lot.
    pub(crate) at: usize,
    pub(crate) refilled: Option<Refilled>,
    pub(crate) result: Resynced,
}

/// A row of a lot that waits for its disks.
pub(crate) struct Waiting {
    pub(crate) at: usize,
    pub(crate) disks: BTreeSet<DiskSlot>,
    pub(crate) redundancy_left: usize,
}

/// The rows of a lot that wait for their disks.
pub(crate) struct Schedule {
    pub(crate) waiting: RefCell<Vec<Waiting>>,
    /// In how many rows disks take part that take part in any.
    pub(crate) busy: RefCell<BTreeMap<DiskSlot, usize>>,
    /// Disks with heads.
    pub(crate) rotating: BTreeSet<DiskSlot>,
    pub(crate) notify: Notify,
}

/// A row whose turn it is; its disks are free again when this is dropped.
pub(crate) struct ScheduledRow<'a> {
    pub(crate) schedule: &'a Schedule,
    pub(crate) at: usize,
    pub(crate) disks: BTreeSet<DiskSlot>,
}

impl Schedule {
    pub(crate) fn new(pool: &Pool, waiting: Vec<Waiting>) -> Self {
        let disks = pool.disks();
        let rotating =
            disks.iter().filter(|disk| disk.geometry().is_some_and(|geometry| geometry.rotational));
        let rotating = rotating.map(|disk| disk.slot()).collect();
        let (waiting, busy) = (RefCell::new(waiting), RefCell::default());
        Self { waiting, busy, rotating, notify: Notify::new() }
    }

    /// A row all of whose disks can take part in another one; nothing when there is none left.
    #[pooled]
    pub(crate) async fn next(&self) -> Option<ScheduledRow<'_>> {
        self.notify
            .wait_for(|| {
                let mut waiting = self.waiting.borrow_mut();
                if waiting.is_empty() {
                    return Some(None);
                }
                let fits = |row: &&Waiting| row.disks.iter().all(|disk| self.has_room(*disk));
                // Of those with equally little redundancy the one whose disks others wait for most, so that few are left for one
                // disk in the end.
                let wanted = |row: &Waiting| {
                    waiting.iter().map(|other| other.disks.intersection(&row.disks).count()).sum::<usize>()
                };
                let order = |row: &&Waiting| (Reverse(row.redundancy_left), wanted(row), Reverse(row.at));
                let best = waiting.iter().filter(fits).max_by_key(order)?.at;
                let first = waiting.iter().position(|row| row.at == best)?;
                let Waiting { at, disks, .. } = waiting.remove(first);
                let mut busy = self.busy.borrow_mut();
                disks.iter().for_each(|disk| *busy.entry(*disk).or_default() += 1);
                Some(Some(ScheduledRow { schedule: self, at, disks }))
            })
            .await
    }

    fn has_room(&self, disk: DiskSlot) -> bool {
        let most = if self.rotating.contains(&disk) { 1 } else { ROWS_OF_A_DISK };
        self.busy.borrow().get(&disk).is_none_or(|rows| *rows < most)
    }

    /// No row is begun any more.
    pub(crate) fn end(&self) {
        self.waiting.borrow_mut().clear();
        self.notify.notify_all();
    }
}

impl Drop for ScheduledRow<'_> {
    fn drop(&mut self) {
        let mut busy = self.schedule.busy.borrow_mut();
        for disk in &self.disks {
            busy.entry(*disk).and_modify(|rows| *rows = rows.saturating_sub(1));
        }
        drop(busy);
        self.schedule.notify.notify_all();
    }
}

/// What those who fill slabs share.
#[derive(Clone, Copy)]
pub(crate) struct Filling<'a> {
    /// Blocks that were given up because no disk can read them.
    pub(crate) declared_lost: &'a Cell<u64>,
    pub(crate) progress: &'a Progress,
}

/// Refill of stale slabs of a row.
#[derive(Clone, Copy)]
pub(crate) struct RowRefill<'a> {
    space: &'a SpaceRows,
}

impl<'a> RowRefill<'a> {
    /// Returns the service for a space.
    pub(crate) fn of(space: &'a SpaceRows) -> Self {
        Self { space }
    }
}

impl RowRefill<'_> {
    /// Gives every stale slab of one row whose disk is here what it misses; those that hold everything afterwards, once their
    /// tables are written too.
    ///
    /// # Errors
    /// [`SpaceError`]; the slabs stay stale then, and nothing is lost.
    pub(crate) async fn refill_row(
        self,
        index: u64,
        result: &mut Resynced,
    ) -> Result<Option<Refilled>, SpaceError> {
        let (declared_lost, progress) = (Cell::new(0), Progress::default());
        let filling = Filling { declared_lost: &declared_lost, progress: &progress };
        let filled = self.fill_row(index, filling, result).await?;
        if let Some(row) = &filled {
            self.announce(row).await?;
        }
        Ok(filled)
    }

    /// The same, but for the log: what is returned is to be [announced](Self::announce).
    #[pooled]
    pub(crate) async fn fill_row(
        self,
        index: u64,
        filling: Filling<'_>,
        result: &mut Resynced,
    ) -> Result<Option<Refilled>, SpaceError> {
        let Some(row) = DecidedRows::of(self.space).row(index).await? else { return Ok(None) };
        if SlabChanges::of(self.space).has_unfinished(&row) {
            // What its stripes are is known when they are in place.
            result.waiting += 1;
            return Ok(None);
        }
        let mut stale = Vec::new();
        row.for_each_slab(|column, slab| {
            if slab.stale.is_some() {
                stale.push((column, slab.clone()));
            }
        });
        let mut slabs = Vec::new();
        for (column, slab) in stale {
            let pool = &self.space.shared.pool;
            let has_source = TableStore::of(&self.space.shared).is_in_reach(&row, column);
            let Some(disk) = slab.present(pool).filter(|_| has_source) else {
                result.waiting += 1;
                continue;
            };
            let seating = disk.seating();
            match self.fill_slab((&row, column, &slab), filling, result).await {
                Ok(true) => slabs.push(RefilledSlab { column, slab, seating }),
                Ok(false) => result.waiting += 1,
                Err(SpaceError::NoSpaceBelow { .. }) => {
                    result.waiting += 1;
                    result.backing_full += 1;
                }
                Err(error) => return Err(error),
            }
        }
        Ok((!slabs.is_empty()).then_some(Refilled { row, slabs }))
    }

    /// Says in the log that the tables of slabs that were filled are about to be written.
    pub(crate) async fn announce(self, filled: &Refilled) -> Result<(), SpaceError> {
        for slab in &filled.slabs {
            SlabChanges::of(self.space).announce_pages(&filled.row, slab.column).await?;
        }
        Ok(())
    }

    /// Gives one slab what it misses; whether that could be done now.
    #[pooled]
    async fn fill_slab(
        self,
        (row, column, slab): (&Rc<Row>, usize, &Slab),
        filling: Filling<'_>,
        result: &mut Resynced,
    ) -> Result<bool, SpaceError> {
        // Before its blocks, which may take all the room that there is below: who writes tables later has to find theirs.
        if slab.has_nothing() && !SlabChanges::of(self.space).make_table_room(row, column, slab).await? {
            return Ok(false);
        }
        let refill = Refill {
            space: self.space,
            row,
            column,
            slab,
            filling,
            next: Cell::new(0),
            scan: ranks::refill_scan(),
            is_over: Cell::new(false),
            result: Cell::new(Resynced::default()),
            unreadable: RefCell::default(),
        };
        let filled = refill.all().await;
        result.add(&refill.result.get());
        filled
    }

    /// Blocks that all hold data, from one trusted copy that verifies; `None` when there is none, or a block holds none.
    #[pooled]
    async fn read_verified(
        self,
        row: &Rc<Row>,
        column: usize,
        run: Range,
    ) -> Result<Option<dolmen_buffer::Shared>, SpaceError> {
        let states = RowCopies::of(self.space).states(row, column, run).await?;
        if !states.iter().all(|state| matches!(state, BlockState::Valid(_))) {
            return Ok(None);
        }
        let pool = &self.space.shared.pool;
        let length = run.count as usize * BLOCK;
        for (disk, source) in row.with_slabs(column, |slabs| sources_among(pool, slabs)) {
            let Some(buffer) = pool.seams().metadata.try_take(length) else { continue };
            let pieces = source.pieces(u64::from(run.first) * BLOCK_BYTES, length);
            let Some(piece) = pieces.first().filter(|_| pieces.len() == 1) else { continue };
            let (buffer, read) = disk.read(piece.at, buffer).await;
            let good =
                buffer.chunks_exact(BLOCK).zip(&states).all(|(bytes, state)| matches_state(bytes, *state));
            if read.is_ok() && good {
                return Ok(Some(buffer.freeze()));
            }
        }
        if !row.shape.is_computable() {
            return Ok(None);
        }
        let Some(mut buffer) = pool.seams().metadata.try_take(length) else { return Ok(None) };
        let rebuilt = StripeReads::of(self.space)
            .rebuild_run(row, column, (run.first, &states), HedgeDelay::Long, &mut buffer)
            .await?;
        Ok((rebuilt == Rebuilt::Whole).then(|| buffer.freeze()))
    }
}

/// A slab that is being given what it misses.
struct Refill<'a> {
    space: &'a SpaceRows,
    row: &'a Rc<Row>,
    column: usize,
    slab: &'a Slab,
    filling: Filling<'a>,
    /// The first block that nobody has looked at, and the turn of whoever looks on.
    next: Cell<u32>,
    scan: AsyncMutex,
    /// One of its runs has failed: no more are begun.
    is_over: Cell<bool>,
    result: Cell<Resynced>,
    /// Blocks that are given up, by their place in the row, if there are not too many.
    unreadable: RefCell<Vec<u32>>,
}

impl Refill<'_> {
    #[pooled]
    async fn all(&self) -> Result<bool, SpaceError> {
        let shared = &self.space.shared;
        // A write that chose its disks before this one was here goes on without it; what it leaves has to be seen below.
        shared.tickets.wait_below(shared.tickets.next()).await;
        if !self.stripes_end().await {
            return Ok(false);
        }
        self.look_up_tables().await?;
        let filled = join_all((0..RUNS_AT_A_TIME).map(|_| self.runs())).await;
        filled.into_iter().collect::<Result<(), SpaceError>>()?;
        if !self.is_slab_of_row() {
            return Ok(false);
        }
        if SlabChanges::of(self.space).has_unfinished(self.row) {
            // What was read beside them may be of no stripe that there is.
            return Ok(false);
        }
        let unreadable = self.unreadable.borrow().clone();
        self.count(|result| {
            result.lost_blocks += unreadable.len() as u64;
            result.unreadable += unreadable.len() as u64;
        });
        if self.column < self.row.shape.data_columns() {
            unreadable.iter().for_each(|block| self.space.note(self.row, *block, DataLossKind::Lost));
        }
        // Tables lie behind their blocks, and heads are there now.
        let (row, column, slab) = (self.row, self.column, self.slab);
        SlabChanges::of(self.space).pair_slots(row, column, slab).await?;
        if slab.has_nothing() {
            let _tables = shared.table_mutex.take().await;
            if !row.freed.get() {
                HeaderStore::of(shared).write_headers(row, |other| other == slab).await?;
            }
        }
        Ok(true)
    }

    /// Returns whether the row still has the slab.
    fn is_slab_of_row(&self) -> bool {
        self.row.has_slab(self.column, self.slab)
    }

    /// Reads the tables that copying needs, so that heads do not go to them and back on the way.
    async fn look_up_tables(&self) -> Result<(), SpaceError> {
        let row = self.row;
        let is_needed = |column: &usize| row.shape.is_computable() || *column == self.column;
        let columns = (0..row.shape.columns()).filter(is_needed);
        for column in columns {
            for index in 0..row.map(column).pages() {
                TableStore::of(&self.space.shared).page(row, column, index).await?;
            }
        }
        Ok(())
    }

    fn count(&self, change: impl FnOnce(&mut Resynced)) {
        let mut result = self.result.get();
        change(&mut result);
        self.result.set(result);
    }

    /// Waits until stripes that are being put in place are: they have chosen their slabs, and tell the tables at their end only.
    /// Whether none of the row was left half in place.
    async fn stripes_end(&self) -> bool {
        let cache = self.space.cache_of(self.row);
        if let Some(cache) = cache {
            drop(cache.mutex.take().await);
        }
        !SlabChanges::of(self.space).has_unfinished(self.row)
    }

    /// Copies one run after another until none is left, beside others who do the same.
    #[pooled]
    async fn runs(&self) -> Result<(), SpaceError> {
        while !self.is_over.get() {
            let clock = &self.space.shared.pool.seams().clock;
            let run = match self.next_run().await {
                Ok(Some(run)) => {
                    let began = clock.now();
                    let done = self.run(run).await;
                    self.space.shared.throttle.rest(clock.as_ref(), began).await;
                    done
                }
                Ok(None) => return Ok(()),
                Err(error) => Err(error),
            };
            if let Err(error) = run {
                self.is_over.set(true);
                return Err(error);
            }
        }
        Ok(())
    }

    /// The next blocks that follow each other and that the slab misses.
    #[pooled]
    async fn next_run(&self) -> Result<Option<Range>, SpaceError> {
        let _exclusive = self.scan.take().await;
        let blocks = self.row.shape.column_blocks(self.column);
        let mut run: Option<Range> = None;
        while self.next.get() < blocks {
            let block = self.next.get();
            let is_missed = self.is_missed(block).await?;
            match &mut run {
                Some(run) if !is_missed || run.count == RUN_BLOCKS => return Ok(Some(*run)),
                Some(run) => run.count += 1,
                None if is_missed => run = Some(Range { first: block, count: 1 }),
                None => {}
            }
            self.next.set(block + 1);
        }
        Ok(run)
    }

    /// Whether a block was written since the slab is out of date.
    async fn is_missed(&self, block: u32) -> Result<bool, SpaceError> {
        let shared = &self.space.shared;
        let (index, entry) = place_in_page(block);
        let page = TableStore::of(shared).page(self.row, self.column, index).await?;
        let stamp = page.stamp(entry);
        // A flush may have recorded the block again, meanwhile, under an epoch that is new since this began.
        let now = shared.pool.epoch().number;
        let since = self.slab.stale.unwrap_or_default();
        let skipped = mutation!(ResyncSkipsNewest) && stamp.is_since(Epoch(now.0.saturating_sub(2)), now);
        let is_since = stamp.is_since(since, now) || mutation!(ResyncCopiesAll);
        Ok(matches!(page.state(entry), BlockState::Valid(_)) && is_since && !skipped)
    }

    /// Copies blocks that follow each other, under their lock, in one piece if they verify so; block by block where that fails.
    async fn run(&self, run: Range) -> Result<(), SpaceError> {
        let Self { space, row, column, .. } = *self;
        let _memory = space.shared.refills.take(frames_of_run(row)).await;
        let _guard = row.locks.lock(row.shape.lock_range(column, run)).await;
        if row.freed.get() {
            return Ok(());
        }
        // A slab that was dropped has no allocation units any more. Whoever drops one holds the lock of the whole row.
        if !self.is_slab_of_row() && !mutation!(RefillOfADroppedSlab) {
            self.is_over.set(true);
            return Ok(());
        }
        let whole = RowRefill::of(space).read_verified(row, column, run).await?;
        let Some(content) = whole else {
            for block in run.first..run.first + run.count {
                self.block(block).await?;
            }
            return Ok(());
        };
        self.give(run, content).await
    }

    /// Copies one block from whichever copy verifies. The caller holds its lock.
    #[pooled]
    async fn block(&self, block: u32) -> Result<(), SpaceError> {
        let Self { space, row, column, .. } = *self;
        let row_block = row.shape.row_block(column, block);
        if CachedBlocks::of(space).is_superseded(row, row_block) {
            return Ok(());
        }
        let mut buffer = space.shared.pool.seams().metadata.take(BLOCK).await;
        let read = match row.shape.is_computable() {
            true => {
                StripeReads::of(space).read_main(row, (column, block), HedgeDelay::Long, &mut buffer).await
            }
            false => {
                RowCopies::of(space).read_copied_block(row, row_block, HedgeDelay::Long, &mut buffer).await
            }
        };
        match read {
            Ok(()) => self.give(Range { first: block, count: 1 }, buffer.freeze()).await,
            // What cannot be read is lost on this copy as well: nobody makes a checksum of unverified data.
            Err(SpaceError::Unreadable {
                why: UnreadableReason::NoGoodCopy | UnreadableReason::CorruptHere | UnreadableReason::Damaged,
                ..
            }) => {
                // With what the row's shadow row has nothing is lost.
                let is_lost = StripePlaces::of(space).is_in_row(row, block).await?;
                self.count(|result| result.lost_blocks += u64::from(is_lost));
                Ok(())
            }
            Err(SpaceError::Unreadable {
                why: UnreadableReason::Device(DeviceError::Medium { .. }), ..
            }) if self.may_declare_lost() => {
                self.unreadable.borrow_mut().push(row_block);
                self.filling.declared_lost.set(self.filling.declared_lost.get() + 1);
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    fn may_declare_lost(&self) -> bool {
        let blocks = self.row.shape.column_blocks(self.column) as usize;
        self.unreadable.borrow().len() < (blocks / UNREADABLE_SHARE).clamp(1, UNREADABLE_MAX)
            && self.filling.declared_lost.get() < DECLARED_LOST_MAX
    }

    async fn give(&self, run: Range, content: dolmen_buffer::Shared) -> Result<(), SpaceError> {
        SlabChanges::of(self.space)
            .write_to_slab(self.slab, u64::from(run.first) * BLOCK_BYTES, content)
            .await?;
        self.count(|result| result.blocks += u64::from(run.count));
        let bytes = &self.filling.progress.bytes;
        bytes.set(bytes.get() + u64::from(run.count) * BLOCK_BYTES);
        self.space.shared.count(|counters| counters.resynced_blocks += u64::from(run.count));
        Ok(())
    }
}

/// The slabs of a column that hold everything and are here; last those on disks that are about to leave, from which all the others
/// are copied.
fn sources_among(pool: &Pool, slabs: &[Slab]) -> SmallVec<[(Rc<Disk>, Slab); 2]> {
    let readable = slabs.iter().filter_map(|slab| Some((slab.readable(pool)?, slab.clone())));
    let mut sources: SmallVec<[(Rc<Disk>, Slab); 2]> = readable.collect();
    sources.sort_by_key(|(disk, _)| disk.member().state != MemberState::Active);
    sources
}

/// The disks that give and take while a row is filled, if all goes as it should.
pub(crate) fn disks_at_work(pool: &Pool, row: &Row) -> BTreeSet<DiskSlot> {
    let mut disks = BTreeSet::new();
    let source_of = |column| {
        row.with_slabs(column, |slabs| sources_among(pool, slabs).first().map(|(disk, _)| disk.slot()))
    };
    for column in 0..row.shape.columns() {
        let takes = |slab: &&Slab| slab.stale.is_some() && slab.present(pool).is_some();
        let taking: SmallVec<[DiskSlot; 2]> =
            row.with_slabs(column, |slabs| slabs.iter().filter(takes).map(|slab| slab.disk).collect());
        if taking.is_empty() {
            continue;
        }
        disks.extend(taking);
        match source_of(column) {
            Some(source) => disks.extend([source]),
            None => disks.extend((0..row.shape.columns()).filter_map(source_of)),
        }
    }
    disks
}

/// Frames that one run of a row takes while it is copied: the run itself, and with parity those that it is computed from.
fn frames_of_run(row: &Row) -> u64 {
    row.shape.sources() as u64 + 1
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use dolmen_units::Bytes;

    use super::*;
    use crate::format::resiliency::Resiliency;
    use crate::harness::Bench;
    use crate::relocation::refill::RowRefill;

    /// Scenario: a slab was added to a row, and is dropped again before a refill that has found it begins to write. The refill
    /// writes nothing to it: its allocation units may be those of another row by now.
    #[test]
    fn a_refill_ends_with_its_slab() {
        let bench = Bench::new(53, 3, Bytes::mib(128));
        bench
            .run(async move |lab| {
                let spaces = lab.create().await?;
                let space =
                    lab.space(&spaces, "data", Bytes::mib(8), Resiliency::Mirror { copies: 2 }).await?;
                lab.write(&space, 0, 256 << 10, 1).await?;
                spaces.flush().await?;
                let row = DecidedRows::of(&space).row(0).await?.ok_or("there is a row")?;
                let slots: Vec<DiskSlot> =
                    row.with_slabs(0, |slabs| slabs.iter().map(|slab| slab.disk).collect());
                let to = (0..3).map(DiskSlot).find(|slot| !slots.contains(slot)).ok_or("a disk is free")?;
                let from = *slots.first().ok_or("the row has slabs")?;
                assert!(SlabChanges::of(&space).add_slab(&row, (from, to), |column| column == 0).await?);
                let slab = row.with_slabs(0, |slabs| slabs.iter().find(|slab| slab.disk == to).cloned());
                let slab = slab.ok_or("a slab was added")?;
                assert!(SlabChanges::of(&space).drop_slab(&row, to).await?, "the others hold everything");
                let (declared_lost, progress) = (Cell::new(0), Progress::default());
                let filling = Filling { declared_lost: &declared_lost, progress: &progress };
                let mut result = Resynced::default();
                let filled = RowRefill::of(&space).fill_slab((&row, 0, &slab), filling, &mut result).await?;
                assert_eq!(result.blocks, 0, "blocks were written to a slab that was dropped");
                assert!(!filled, "nothing there is to be trusted");
                drop((space, row));
                lab.check_and_close(spaces).await
            })
            .unwrap();
    }
}
