//! Compaction: empties rows of the space, so that a trim gives them back to the pool.
//!
//! 1. **Map.** The extents of all files are cut at the ends of rows and sorted by their place on the device.
//! 2. **Choose.** Rows are emptied from the least live bytes on, while these fit the free room of the rows that stay, or while a
//!    row is live by three quarters at most; and while they fit the budget. A row that holds metadata, or an extent that
//!    cannot be shared, stays.
//! 3. **Move.** Rows are emptied in batches. The live bytes of a batch go into one pack, which lies outside all rows that are
//!    to be emptied; each owner is pointed to it.
//!
//! The file system decides where a pack lies, mostly in rows that were unclaimed. The packs of a run take fewer of these than
//! the run has emptied and is about to empty. So a run that moves anything leaves fewer claimed rows, and some later run moves nothing. A file that
//! changed since it was mapped keeps its row; what the pool got back is measured by the caller, after the trim.

use std::collections::BTreeSet;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::index::{Entry, Table};
use crate::pack::{Move, Pack};
use crate::policy::{MEMORY_MIN, Policy};
use crate::run::{Environment, RunError};
use crate::scan::{listed, open_same};
use crate::seam::{Control, Extent, ExtentKind, FileError, Files, Phase, Scratch, Skipped};
use crate::sort::{Buffers, Reader, Run, Sorter, Writer, length_of};

/// Bytes of a pack after which a batch ends with its row; four rows if that is more, since a pack may take one.
const PACK_BYTES: u64 = 64 << 20;
/// Ranges of a batch after which it ends with its row, and ranges that one row may have.
const MOVES_MAX: usize = 1 << 15;
/// Extents that one call maps.
const MAP_MAX: usize = 4096;
/// Reservations that are held to push a pack elsewhere; each is twice as long as the one before.
const BALLAST_MAX: u32 = 6;
/// Unit in which live bytes are counted.
const UNIT: u64 = 4096;

/// Settings of a compaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompactPolicy {
    /// Length of a row of the space, a power of two.
    pub row_bytes: u64,
    /// Numbers of the rows that the pool has claimed.
    pub claimed: Vec<std::ops::Range<u64>>,
    /// Bytes that may be moved.
    pub budget_bytes: u64,
    /// Memory for buffers and the states of rows.
    pub memory_bytes: usize,
    /// Bytes of one request to share.
    pub call_bytes: u64,
}

/// Why a row with free room was not emptied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum RowKept {
    /// It holds metadata, or what else belongs to no file.
    Fixed,
    /// It holds room that was not written, or compressed bytes.
    Unmovable,
    /// Its bytes have too many owners.
    Owners,
    /// Its live bytes do not fit the free room of the other rows, or the budget.
    Fitting,
    /// The file system gave no room outside the rows that were to be emptied.
    NoRoom,
    /// An owner changed meanwhile, or a call failed.
    Changed,
}

/// What a compaction did.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Compacted {
    /// Rows whose live bytes all moved.
    pub rows_emptied: u64,
    /// Rows that held nothing before: a trim alone gives them back.
    pub rows_empty: u64,
    /// Rows that packs took although the pool had not claimed them.
    pub rows_taken: u64,
    /// Bytes that were copied.
    pub bytes_moved: u64,
    /// Files whose extents could not be mapped; their rows may look emptied.
    pub files_skipped: u64,
    /// Rows that were not emptied: why, how many, and the first of them.
    pub kept: Vec<(RowKept, u64, u64)>,
    /// `true` if the caller stopped it.
    pub stopped: bool,
}

/// A part of an extent inside one row.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
struct Live {
    physical: u64,
    length: u64,
    logical: u64,
    file: u32,
    reserved: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Unclaimed,
    Claimed,
    /// It is to be emptied, or was.
    Chosen,
    Kept(RowKept),
}

#[derive(Debug, Clone, Copy)]
struct Row {
    state: State,
    /// Bytes that files or metadata hold, in units.
    live: u32,
}

struct Rows {
    rows: Vec<Row>,
    bytes: u64,
}

impl Rows {
    fn new(policy: &CompactPolicy) -> Result<Self, RunError> {
        let bytes = policy.row_bytes;
        if !bytes.is_power_of_two() || !(1 << 16..=1 << 40).contains(&bytes) {
            return Err(RunError::RowLength { row_bytes: bytes });
        }
        let rows = policy.claimed.iter().map(|range| range.end).max().unwrap_or(0);
        let size = u64::try_from(size_of::<Row>()).unwrap_or(u64::MAX);
        // Half of it for the states; candidates for emptying take as much for a moment.
        let memory_bytes = u64::try_from(policy.memory_bytes.max(MEMORY_MIN)).unwrap_or(u64::MAX) / 4;
        let needed = rows.saturating_mul(size);
        let count =
            usize::try_from(rows).ok().filter(|_| needed <= memory_bytes && u32::try_from(rows).is_ok());
        let Some(count) = count else { return Err(RunError::TooManyRows { rows, needed, memory_bytes }) };
        let mut rows = Self { rows: vec![Row { state: State::Unclaimed, live: 0 }; count], bytes };
        for number in policy.claimed.iter().cloned().flatten() {
            if let Some(row) = rows.get(number) {
                row.state = State::Claimed;
            }
        }
        Ok(rows)
    }

    fn get(&mut self, number: u64) -> Option<&mut Row> {
        self.rows.get_mut(usize::try_from(number).ok()?)
    }

    fn number(&self, physical: u64) -> u64 {
        physical / self.bytes
    }

    /// Returns the parts of a range inside each row.
    fn parts(&self, start: u64, length: u64) -> impl Iterator<Item = (u64, std::ops::Range<u64>)> + use<> {
        let (bytes, end) = (self.bytes, start.saturating_add(length));
        (start / bytes..end.div_ceil(bytes)).map(move |row| {
            let first = row.saturating_mul(bytes);
            (row, start.max(first)..end.min(first.saturating_add(bytes)))
        })
    }

    fn keep(&mut self, number: u64, why: RowKept) {
        if let Some(row) = self.get(number)
            && row.state != State::Unclaimed
        {
            row.state = State::Kept(why);
        }
    }

    fn add_live(&mut self, number: u64, bytes: u64) {
        if let Some(row) = self.get(number) {
            row.live = row.live.saturating_add(u32::try_from(bytes.div_ceil(UNIT)).unwrap_or(u32::MAX));
        }
    }

    /// Keeps the rows of a range that no file can be moved out of.
    fn pin(&mut self, start: u64, length: u64, why: RowKept) {
        for (row, part) in self.parts(start, length) {
            self.keep(row, why);
            self.add_live(row, part.end.saturating_sub(part.start));
        }
    }

    /// Chooses the rows that are to be emptied.
    fn choose(&mut self, budget_bytes: u64, compacted: &mut Compacted) -> Chosen {
        let units = self.bytes / UNIT;
        let free = |row: &Row| units.saturating_sub(row.live.into());
        let mut room: u64 = self.rows.iter().filter(|row| row.state != State::Unclaimed).map(free).sum();
        let claimed = self.rows.iter().enumerate().filter(|(_, row)| row.state == State::Claimed);
        let mut candidates: Vec<(u32, u32)> =
            claimed.filter_map(|(at, row)| Some((row.live, u32::try_from(at).ok()?))).collect();
        candidates.sort_unstable();
        let (mut moved, mut chosen, budget) = (0u64, 0u64, budget_bytes / UNIT);
        let mut fits = true;
        for (live, at) in candidates {
            let Some(row) = self.get(at.into()) else { continue };
            let left = room.saturating_sub(free(row));
            let after = moved.saturating_add(live.into());
            fits &= after <= budget && (after <= left || u64::from(live) <= units / 4 * 3);
            if live == 0 {
                compacted.rows_empty = compacted.rows_empty.saturating_add(1);
                room = left;
                row.state = State::Chosen;
            } else if fits {
                (moved, room, chosen) = (after, left, chosen.saturating_add(1));
                row.state = State::Chosen;
            } else if u64::from(live) < units {
                row.state = State::Kept(RowKept::Fitting);
            }
        }
        Chosen { rows: chosen, bytes: moved.saturating_mul(UNIT) }
    }
}

/// Rows that are to be emptied.
#[derive(Debug, Clone, Copy)]
struct Chosen {
    rows: u64,
    /// Live bytes in them.
    bytes: u64,
}

/// Empties rows.
///
/// A run that is stopped or killed loses work alone. The next run maps the volume again.
///
/// # Errors
/// The scratch folder fails, the file system does not list its files, or the space has too many rows for the memory.
pub fn compact<F: Files, S: Scratch, C: Control>(
    files: &mut F,
    scratch: &mut S,
    control: &mut C,
    policy: &CompactPolicy,
) -> Result<Compacted, RunError> {
    let mut environment = Environment { files, scratch, control };
    let mut compacted = Compacted::default();
    let mut rows = Rows::new(policy)?;
    let buffers = Buffers::of(policy.memory_bytes.max(MEMORY_MIN) / 2);
    let Some(Mapped { live, table }) = map(&mut environment, policy, buffers, &mut rows, &mut compacted)?
    else {
        return Ok(Compacted { stopped: true, ..compacted });
    };
    let chosen = rows.choose(policy.budget_bytes, &mut compacted);
    let call_bytes = policy.call_bytes.clamp(1 << 16, crate::policy::THROUGHPUT_CALL_BYTES);
    let mut batch = Batch {
        table,
        rows,
        moves: Vec::new(),
        row_start: 0,
        bytes: 0,
        emptying: BTreeSet::new(),
        taken: BTreeSet::new(),
        chosen,
        call_bytes,
    };
    let mut reader = Reader::<S, Live>::new(live, buffers);
    let mut cluster = Cluster::default();
    while chosen.rows > 0 && !compacted.stopped {
        let record = reader.next(environment.scratch)?;
        let row = record.map(|record| batch.rows.number(record.physical));
        let row_ends = cluster.row.is_some() && cluster.row != row;
        if cluster.ends_before(record) {
            batch.take(&mut cluster);
        }
        let full = batch.bytes >= PACK_BYTES.max(policy.row_bytes.saturating_mul(4))
            || batch.moves.len() >= MOVES_MAX;
        if record.is_none() || row_ends && full {
            batch.move_all(&mut environment, &mut compacted)?;
        }
        let Some(record) = record else { break };
        if batch.rows.get(batch.rows.number(record.physical)).is_some_and(|row| row.state == State::Chosen) {
            batch.add(&mut environment, &mut cluster, record)?;
        }
    }
    batch.report(&mut compacted);
    Ok(compacted)
}

/// All extents, by their place on the device, and the files that own them.
struct Mapped<S: Scratch> {
    live: Run<S>,
    table: Table<S>,
}

/// Maps all files; `None` if the caller stopped it.
fn map<F: Files, S: Scratch, C: Control>(
    environment: &mut Environment<'_, F, S, C>,
    policy: &CompactPolicy,
    buffers: Buffers,
    rows: &mut Rows,
    compacted: &mut Compacted,
) -> Result<Option<Mapped<S>>, RunError> {
    let all = Policy {
        age_min_ns: 0,
        size_min: 1,
        memory_bytes: policy.memory_bytes / 2,
        ..Policy::background(i64::MAX)
    };
    let mut fixed = Vec::new();
    environment.files.fixed(&mut fixed).map_err(RunError::List)?;
    fixed.iter().for_each(|range| rows.pin(range.start, range.length, RowKept::Fixed));
    let Some(mut entries) = listed(environment, &all, buffers)? else { return Ok(None) };
    let mut table = Writer::new(environment.scratch, buffers)?;
    let mut sorter = Sorter::new(buffers);
    let (mut number, mut inode) = (0u32, None);
    while let Some(entry) = entries.next(environment.scratch)? {
        if inode.replace(entry.inode) == Some(entry.inode) || number == u32::MAX {
            continue;
        }
        if let Err(reason) = map_file(environment, &entry, number, rows, &mut sorter)? {
            compacted.files_skipped = compacted.files_skipped.saturating_add(1);
            environment.control.skipped(entry.id(), reason);
        }
        table.push(environment.scratch, entry)?;
        number = number.saturating_add(1);
        if environment.stops(Phase::Map, number.into(), 0, 0) {
            return Ok(None);
        }
    }
    drop(entries);
    let mut sorted = sorter.finish(environment.scratch)?;
    let mut live = Writer::new(environment.scratch, buffers)?;
    let mut covered: u64 = 0;
    while let Some(record) = sorted.next(environment.scratch)? {
        let end = record.physical.saturating_add(record.length);
        rows.add_live(rows.number(record.physical), end.saturating_sub(record.physical.max(covered)));
        covered = covered.max(end);
        live.push(environment.scratch, record)?;
    }
    let table = Table::new(table.finish(environment.scratch)?);
    Ok(Some(Mapped { live: live.finish(environment.scratch)?, table }))
}

fn map_file<F: Files, S: Scratch, C: Control>(
    environment: &mut Environment<'_, F, S, C>,
    entry: &Entry,
    file: u32,
    rows: &mut Rows,
    sorter: &mut Sorter<S, Live>,
) -> Result<Result<(), Skipped>, RunError> {
    let handle = match open_same(environment, entry) {
        Ok(handle) => handle,
        Err(reason) => return Ok(Err(reason)),
    };
    let mut extents: Vec<Extent> = Vec::new();
    let (mut from, mut more) = (0, true);
    while more {
        extents.clear();
        match environment.files.extents(&handle, from..u64::MAX, MAP_MAX, &mut extents) {
            Ok(whole) => more = !whole && !extents.is_empty(),
            Err(error) => return Ok(Err(error.into())),
        }
        for extent in &extents {
            from = from.max(extent.end());
            match extent.kind {
                ExtentKind::Inline => {}
                ExtentKind::Unwritten | ExtentKind::Encoded => {
                    rows.pin(extent.physical, extent.length, RowKept::Unmovable);
                }
                ExtentKind::Plain
                    if extent.end() > entry.size.next_multiple_of(environment.files.block_bytes().max(1)) =>
                {
                    rows.pin(extent.physical, extent.length, RowKept::Unmovable);
                }
                ExtentKind::Plain => {
                    for (_, part) in rows.parts(extent.physical, extent.length) {
                        let logical =
                            extent.logical.saturating_add(part.start.saturating_sub(extent.physical));
                        let length = part.end.saturating_sub(part.start);
                        let live = Live { physical: part.start, length, logical, file, reserved: 0 };
                        sorter.push(environment.scratch, live)?;
                    }
                }
            }
        }
    }
    Ok(Ok(()))
}

/// Extents of one row that overlap each other: they are copied once.
#[derive(Default)]
struct Cluster {
    row: Option<u64>,
    start: u64,
    end: u64,
}

impl Cluster {
    fn ends_before(&self, record: Option<Live>) -> bool {
        self.row.is_some() && record.is_none_or(|record| record.physical >= self.end)
    }
}

/// Rows that are emptied by one pack.
struct Batch<S: Scratch> {
    table: Table<S>,
    rows: Rows,
    moves: Vec<Move>,
    /// First range of the row that is collected.
    row_start: usize,
    bytes: u64,
    emptying: BTreeSet<u64>,
    /// Rows that earlier packs claimed.
    taken: BTreeSet<u64>,
    chosen: Chosen,
    call_bytes: u64,
}

impl<S: Scratch> Batch<S> {
    /// Ends a cluster: its bytes have their place in the pack.
    fn take(&mut self, cluster: &mut Cluster) {
        self.bytes = self.bytes.saturating_add(cluster.end.saturating_sub(cluster.start));
        *cluster = Cluster::default();
    }

    fn add<F, C>(
        &mut self,
        environment: &mut Environment<'_, F, S, C>,
        cluster: &mut Cluster,
        record: Live,
    ) -> Result<(), RunError> {
        let number = self.rows.number(record.physical);
        if self.emptying.insert(number) {
            self.row_start = self.moves.len();
        }
        if cluster.row.is_none() {
            *cluster = Cluster { row: Some(number), start: record.physical, end: record.physical };
        }
        let Some(entry) = self.table.get(environment.scratch, record.file)? else {
            self.rows.keep(number, RowKept::Changed);
            return Ok(());
        };
        if self.moves.len().saturating_sub(self.row_start) >= MOVES_MAX {
            self.rows.keep(number, RowKept::Owners);
            return Ok(());
        }
        let end = record.physical.saturating_add(record.length);
        let bytes = record.length.min(entry.size.saturating_sub(record.logical));
        let covered = cluster.end.max(record.physical).saturating_sub(record.physical);
        self.moves.push(Move {
            file: record.file,
            row: u32::try_from(number).unwrap_or(u32::MAX),
            logical: record.logical,
            bytes,
            offset: self.bytes.saturating_add(record.physical.saturating_sub(cluster.start)),
            fresh: bytes.saturating_sub(covered),
        });
        cluster.end = cluster.end.max(end);
        Ok(())
    }

    fn move_all<F: Files, C: Control>(
        &mut self,
        environment: &mut Environment<'_, F, S, C>,
        compacted: &mut Compacted,
    ) -> Result<(), RunError> {
        let mut moves = std::mem::take(&mut self.moves);
        self.emptying.clear();
        (self.bytes, self.row_start) = (0, 0);
        let chosen = |rows: &mut Rows, row: u64| rows.get(row).is_some_and(|row| row.state == State::Chosen);
        moves.retain(|range| chosen(&mut self.rows, range.row.into()));
        self.move_rows(environment, &mut moves, compacted)?;
        moves.clear();
        self.moves = moves;
        Ok(())
    }

    /// Empties rows by one pack, or by two that are shorter where the file system has no room for one.
    fn move_rows<F: Files, C: Control>(
        &mut self,
        environment: &mut Environment<'_, F, S, C>,
        moves: &mut [Move],
        compacted: &mut Compacted,
    ) -> Result<(), RunError> {
        let block_bytes = environment.files.block_bytes().max(1);
        let Some(first) = moves.iter().map(|range| range.offset).min() else { return Ok(()) };
        let end = moves.iter().map(|range| range.offset.saturating_add(range.bytes)).max().unwrap_or(first);
        let bytes = end.saturating_sub(first).next_multiple_of(block_bytes);
        if compacted.stopped {
            return Ok(());
        }
        let rows: BTreeSet<u32> = moves.iter().map(|range| range.row).collect();
        if let Some(handle) = self.place(environment.files, bytes, &rows, compacted) {
            moves.iter_mut().for_each(|range| range.offset = range.offset.saturating_sub(first));
            self.move_into(environment, Pack::new(handle), moves, compacted)?;
            let chosen =
                |row: &u32| self.rows.get((*row).into()).is_some_and(|row| row.state == State::Chosen);
            let emptied = if compacted.stopped { 0 } else { rows.into_iter().filter(chosen).count() };
            compacted.rows_emptied =
                compacted.rows_emptied.saturating_add(u64::try_from(emptied).unwrap_or(0));
            return Ok(());
        }
        let middle = moves.get(moves.len() / 2).map_or(0, |range| range.row);
        let before = moves.partition_point(|range| range.row < middle);
        let until = moves.partition_point(|range| range.row <= middle);
        let (left, right) = moves.split_at_mut(if before > 0 { before } else { until });
        if right.is_empty() {
            left.iter().for_each(|range| self.rows.keep(range.row.into(), RowKept::NoRoom));
            return Ok(());
        }
        self.move_rows(environment, left, compacted)?;
        self.move_rows(environment, right, compacted)
    }

    /// Reserves a pack outside the rows that are to be emptied.
    ///
    /// What lies elsewhere is held while the next is reserved, so that the file system has to look further; then it is freed.
    fn place<F: Files>(
        &mut self,
        files: &mut F,
        bytes: u64,
        rows: &BTreeSet<u32>,
        compacted: &mut Compacted,
    ) -> Option<F::Handle> {
        let freed = compacted.rows_emptied.saturating_add(u64::try_from(rows.len()).unwrap_or(0));
        let mut ballast = Vec::new();
        for attempt in 0..BALLAST_MAX {
            let pack = files.pack(bytes).ok()?;
            let mut map = Vec::new();
            if files.extents(&pack, 0..bytes, MAP_MAX, &mut map).ok()? {
                let taken = self.taken_by(&map);
                if let Some(taken) =
                    taken.filter(|taken| length_of(taken).saturating_add(compacted.rows_taken) < freed)
                {
                    compacted.rows_taken = compacted.rows_taken.saturating_add(length_of(&taken));
                    self.taken.extend(taken);
                    return Some(pack);
                }
            }
            ballast.push(pack);
            if attempt > 0 {
                ballast.extend(files.pack(bytes << attempt).ok());
            }
        }
        None
    }

    /// Returns the unclaimed rows that a pack takes, or nothing if it lies in a row that is to be emptied.
    fn taken_by(&mut self, map: &[Extent]) -> Option<Vec<u64>> {
        let mut taken = BTreeSet::new();
        for extent in map {
            for (number, _) in self.rows.parts(extent.physical, extent.length) {
                match self.rows.get(number).map(|row| row.state) {
                    Some(State::Chosen) => return None,
                    Some(State::Claimed | State::Kept(_)) => {}
                    Some(State::Unclaimed) | None if self.taken.contains(&number) => {}
                    Some(State::Unclaimed) | None => drop(taken.insert(number)),
                }
            }
        }
        Some(taken.into_iter().collect())
    }

    fn move_into<F: Files, C: Control>(
        &mut self,
        environment: &mut Environment<'_, F, S, C>,
        mut pack: Pack<F::Handle>,
        moves: &mut [Move],
        compacted: &mut Compacted,
    ) -> Result<(), RunError> {
        for sharing in [false, true] {
            let block_bytes = environment.files.block_bytes();
            if sharing {
                if let Err(error) = pack.seal(environment.files) {
                    moves.iter().for_each(|range| self.failed(range, &error));
                    return Ok(());
                }
                moves.sort_unstable_by_key(|range| range.order(block_bytes));
            }
            let mut open: Option<(u32, F::Handle)> = None;
            for range in moves.iter().filter(|range| sharing || range.fresh > 0) {
                if environment.stops(Phase::Compact, 0, compacted.bytes_moved, self.chosen.bytes) {
                    compacted.stopped = true;
                    return Ok(());
                }
                if open.as_ref().is_none_or(|(file, _)| *file != range.file) {
                    open = self.open(environment, range)?;
                }
                let Some((_, handle)) = &open else { continue };
                let done = if sharing {
                    pack.point(environment.files, handle, range, self.call_bytes)
                } else {
                    pack.fill(environment.files, handle, range).map(|bytes| {
                        compacted.bytes_moved = compacted.bytes_moved.saturating_add(bytes);
                        bytes == range.fresh
                    })
                };
                match done {
                    Ok(true) => {}
                    Ok(false) => self.rows.keep(range.row.into(), RowKept::Changed),
                    Err(error) => self.failed(range, &error),
                }
            }
        }
        Ok(())
    }

    fn failed(&mut self, range: &Move, error: &FileError) {
        let why = match error {
            FileError::NoRoom { .. } => RowKept::NoRoom,
            FileError::Deleted { .. } | FileError::Failed { .. } => RowKept::Changed,
        };
        self.rows.keep(range.row.into(), why);
    }

    /// Opens an owner if its state is that of the map; else its row stays.
    fn open<F: Files, C: Control>(
        &mut self,
        environment: &mut Environment<'_, F, S, C>,
        range: &Move,
    ) -> Result<Option<(u32, F::Handle)>, RunError> {
        let entry = self.table.get(environment.scratch, range.file)?;
        let opened = entry.map(|entry| open_same(environment, &entry));
        if let Some(Ok(handle)) = opened {
            return Ok(Some((range.file, handle)));
        }
        self.rows.keep(range.row.into(), RowKept::Changed);
        Ok(None)
    }

    fn report(&mut self, compacted: &mut Compacted) {
        let mut kept = std::collections::BTreeMap::new();
        for (number, row) in (0u64..).zip(&self.rows.rows) {
            if let State::Kept(why) = row.state
                && u64::from(row.live) < self.rows.bytes / UNIT
            {
                let (count, _) = kept.entry(why).or_insert((0u64, number));
                *count = count.saturating_add(1);
            }
        }
        compacted.kept = kept.into_iter().map(|(why, (count, first))| (why, count, first)).collect();
    }
}
