//! Compaction: empties rows of the space, so that a trim gives them back to the pool.
//!
//! 1. **Map.** The extents of all files are cut at the ends of rows and sorted by their place on the device.
//! 2. **Choose.** Rows are emptied from the least live bytes on, while these fit the free room of the rows that stay, or while a
//!    row is live by three quarters at most; and while they fit the budget. A row that holds metadata, or an extent that
//!    cannot be shared, stays.
//! 3. **Place.** Rows are emptied in batches. The live bytes of a batch get their places before the first copy: first in the free
//!    room of rows that stay, then in unclaimed rows, and where the file system cannot be led, where it puts them.
//! 4. **Move.** The bytes are copied into packs in these places; each owner is pointed to them.
//!
//! The packs of a pass take fewer unclaimed rows than it empties. So a pass that moves anything leaves fewer claimed rows, and
//! some later run moves nothing. Packs hold half of the free room at most, so writers find the rest. A file that changed since it
//! was mapped keeps its row; what the pool got back is measured by the caller, after the trim.
//!
//! Metadata that pins a row may move while files do, so a run has several passes, as long as each gives back a part of the rows.

use std::collections::BTreeSet;
use std::ops::Range;

use dolmen_mutation::mutation;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::index::{Entry, Table};
use crate::pack::{Move, Pack};
use crate::policy::{MEMORY_MIN, Policy};
use crate::room::{HOLE_BYTES_MIN, Room, Unit, joined, units};
use crate::rows::{Chosen, RowKept, Rows, State};
use crate::run::{Environment, RunError};
use crate::scan::{listed, open_same};
use crate::seam::{Control, DeviceRange, Extent, ExtentKind, FileError, Files, Phase, Scratch, Skipped};
use crate::sort::{Buffers, Reader, Run, Sorter, Writer};

/// Bytes of the packs of a batch; four rows if that is more, since a pack may take one.
const PACK_BYTES: u64 = 64 << 20;
/// Ranges of a batch after which it ends with its row, and ranges that one row may have.
const MOVES_MAX: usize = 1 << 15;
/// Extents that one call maps.
const MAP_MAX: usize = 4096;
/// Passes of one run. Metadata moves while files do, so rows that it pinned can be emptied in the next pass.
const PASSES_MAX: u32 = 4;
/// Part of the claimed rows that a pass has to give back for another one to follow.
const PASS_GAIN_PART: u64 = 32;
/// Times that a pack is halved where the file system puts it into no row that stays.
const SPLITS_MAX: u32 = 6;

/// Settings of a compaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompactPolicy {
    /// Length of a row of the space, a power of two.
    pub row_bytes: u64,
    /// Numbers of the rows that the pool has claimed.
    pub claimed: Vec<Range<u64>>,
    /// Bytes that may be moved.
    pub budget_bytes: u64,
    /// Memory for buffers and the states of rows.
    pub memory_bytes: usize,
    /// Bytes of one request to share.
    pub call_bytes: u64,
}

/// What a compaction did.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Compacted {
    /// Rows whose live bytes all moved, and that are wholly free.
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
    /// Bytes that trims discarded.
    pub trimmed: u64,
    /// `true` if the caller stopped it.
    pub stopped: bool,
}

impl Compacted {
    /// Adds what a later pass did.
    fn add(&mut self, later: Self) {
        self.rows_emptied = self.rows_emptied.saturating_add(later.rows_emptied);
        self.rows_empty = self.rows_empty.saturating_add(later.rows_empty);
        self.rows_taken = self.rows_taken.saturating_add(later.rows_taken);
        self.bytes_moved = self.bytes_moved.saturating_add(later.bytes_moved);
        self.files_skipped = self.files_skipped.max(later.files_skipped);
        self.trimmed = self.trimmed.saturating_add(later.trimmed);
        // A pass that was stopped while it mapped has found nothing.
        if !later.stopped || !later.kept.is_empty() {
            self.kept = later.kept;
        }
        self.stopped = later.stopped;
    }
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

/// Empties rows, and gives them back to the pool after each pass: the next one claims rows again, and an error ends a run.
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
    let mut policy = policy.clone();
    for _ in 0..PASSES_MAX {
        let mut once = Compacted::default();
        let passed = pass(&mut environment, &policy, &mut once);
        let trimmed = if mutation!(TrimmedAtEnd) { Ok(0) } else { environment.files.trim() };
        let passed = passed?;
        once.trimmed = trimmed.map_err(RunError::Trim)?;
        policy.claimed = match passed {
            Some(Passed { mut rows, taken }) => {
                // The file system may have put something into a row meanwhile.
                let free = &mut |range: DeviceRange| rows.take_free(range.start, range.length);
                environment.files.free(free).map_err(RunError::List)?;
                rows.end_pass(&mut once);
                rows.claimed(&taken)
            }
            None => Vec::new(),
        };
        policy.budget_bytes = policy.budget_bytes.saturating_sub(once.bytes_moved);
        let gain = once.rows_emptied.saturating_sub(once.rows_taken);
        compacted.add(once);
        let rows = policy
            .claimed
            .iter()
            .fold(0u64, |rows, range| rows.saturating_add(range.end.saturating_sub(range.start)));
        if compacted.stopped || gain == 0 || gain < rows / PASS_GAIN_PART {
            break;
        }
    }
    Ok(compacted)
}

/// What a pass leaves.
struct Passed {
    rows: Rows,
    /// Rows that packs claimed.
    taken: BTreeSet<u64>,
}

/// Maps the volume and empties rows once; `None` if the caller stopped it before.
fn pass<F: Files, S: Scratch, C: Control>(
    environment: &mut Environment<'_, F, S, C>,
    policy: &CompactPolicy,
    compacted: &mut Compacted,
) -> Result<Option<Passed>, RunError> {
    let mut rows = Rows::new(policy)?;
    let buffers = Buffers::of(policy.memory_bytes.max(MEMORY_MIN) / 2);
    let Some(Mapped { live, table }) = map(environment, policy, buffers, &mut rows, compacted)? else {
        compacted.stopped = true;
        return Ok(None);
    };
    count_free(environment.files, &mut rows)?;
    let chosen = rows.choose(policy.budget_bytes, compacted);
    let room = find_room(environment.files, &rows, policy.row_bytes)?;
    let bytes_max = PACK_BYTES.max(policy.row_bytes.saturating_mul(4)).min(room.bytes_max());
    let call_bytes = policy.call_bytes.clamp(1 << 16, crate::policy::THROUGHPUT_CALL_BYTES);
    let mut batch = Batch {
        table,
        rows,
        room,
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
        let full = batch.bytes.saturating_add(policy.row_bytes) > bytes_max || batch.moves.len() >= MOVES_MAX;
        if record.is_none() || row_ends && full {
            batch.move_all(environment, compacted)?;
        }
        let Some(record) = record else { break };
        if batch.rows.is_chosen(batch.rows.number(record.physical)) {
            batch.add(environment, &mut cluster, record)?;
        }
    }
    Ok(Some(Passed { rows: batch.rows, taken: batch.taken }))
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
        if end > covered {
            rows.add_live(record.physical.max(covered)..end);
        }
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

/// Counts the free ranges in each row that packs can be led to.
fn count_free<F: Files>(files: &mut F, rows: &mut Rows) -> Result<(), RunError> {
    let each = &mut |range: DeviceRange| {
        if range.length >= HOLE_BYTES_MIN {
            rows.add_free(range.start, range.length);
        }
    };
    files.free(each).map_err(RunError::List)
}

/// Finds the free ranges outside the rows that are to be emptied.
fn find_room<F: Files>(files: &mut F, rows: &Rows, row_bytes: u64) -> Result<Room, RunError> {
    let mut room = Room::new(row_bytes);
    files.free(&mut |range| room.add(rows, range)).map_err(RunError::List)?;
    Ok(room)
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

/// A pack, and what is to be moved into it.
struct Placed<H> {
    pack: Pack<H>,
    moves: Vec<Move>,
    /// Extents of the pack; none if its bytes lie at their own addresses.
    map: Option<Vec<Extent>>,
}

impl<H> Placed<H> {
    /// Returns the ranges of the device that the moves take.
    fn ranges(&self) -> Vec<DeviceRange> {
        let mut ranges = Vec::new();
        for range in &self.moves {
            match &self.map {
                None => ranges.push(DeviceRange { start: range.offset, length: range.bytes }),
                Some(map) => ranges.extend(map.iter().filter_map(|extent| {
                    let start = range.offset.max(extent.logical);
                    let length =
                        range.end().min(extent.end()).checked_sub(start).filter(|length| *length > 0)?;
                    let inside = start.saturating_sub(extent.logical);
                    Some(DeviceRange { start: extent.physical.saturating_add(inside), length })
                })),
            }
        }
        joined(ranges)
    }
}

/// Unclaimed rows that the packs of a batch take.
struct Takes {
    rows: BTreeSet<u64>,
    allowed: u64,
}

impl Takes {
    /// Adds rows, and returns `false` if they are more than allowed.
    fn add(&mut self, rows: impl Iterator<Item = u64>) -> bool {
        let mut new: BTreeSet<u64> = rows.filter(|row| !self.rows.contains(row)).collect();
        let is_allowed = count_of(&self.rows).saturating_add(count_of(&new)) <= self.allowed;
        if is_allowed {
            self.rows.append(&mut new);
        }
        is_allowed
    }
}

fn count_of<T>(set: &BTreeSet<T>) -> u64 {
    u64::try_from(set.len()).unwrap_or(u64::MAX)
}

/// Rows that are emptied by the packs of one batch.
struct Batch<S: Scratch> {
    table: Table<S>,
    rows: Rows,
    room: Room,
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
        moves.retain(|range| self.rows.is_chosen(range.row.into()));
        let rows: BTreeSet<u32> = moves.iter().map(|range| range.row).collect();
        for placed in self.place(environment.files, &moves, &rows, compacted) {
            self.move_into(environment, placed, compacted)?;
        }
        let emptied = if compacted.stopped { 0 } else { self.chosen_of(&rows) };
        compacted.rows_emptied = compacted.rows_emptied.saturating_add(emptied);
        moves.clear();
        self.moves = moves;
        Ok(())
    }

    /// Returns how many of these rows are still to be emptied.
    fn chosen_of(&self, rows: &BTreeSet<u32>) -> u64 {
        let chosen = rows.iter().filter(|row| self.rows.is_chosen((**row).into()));
        u64::try_from(chosen.count()).unwrap_or(u64::MAX)
    }

    /// Finds a place for all that is in the rows. A row stays if a part of it has none.
    ///
    /// All places are known before the first copy. So a row that stays costs no work, and packs take fewer rows than are emptied.
    fn place<F: Files>(
        &mut self,
        files: &mut F,
        moves: &[Move],
        rows: &BTreeSet<u32>,
        compacted: &mut Compacted,
    ) -> Vec<Placed<F::Handle>> {
        let mut units = units(moves, files.block_bytes().max(1));
        // Writers may have filled the volume since it was mapped, and a file system keeps free room for itself.
        let available = if mutation!(ReserveTaken) { u64::MAX } else { files.available().unwrap_or(0) };
        let most = self.room.bytes_max().min(available / 2);
        let mut held: u64 = 0;
        units.retain(|unit| {
            held = held.saturating_add(unit.length);
            let fits = held <= most;
            if !fits {
                unit.moves.iter().for_each(|range| self.rows.keep(range.row.into(), RowKept::NoRoom));
            }
            fits
        });
        let emptied = compacted.rows_emptied.saturating_add(self.chosen_of(rows));
        let mut takes = Takes {
            rows: BTreeSet::new(),
            allowed: emptied.saturating_sub(compacted.rows_taken).saturating_sub(1),
        };
        let (mut placed, mut led) = (Vec::new(), Vec::new());
        let mut rest = self.lead(units, &mut takes, &mut led);
        placed.extend(self.place_led(files, led, &mut rest));
        self.place_anywhere(files, &rest, SPLITS_MAX, &mut takes, &mut placed);
        for Placed { moves, .. } in &mut placed {
            moves.retain(|range| self.rows.is_chosen(range.row.into()));
        }
        let taken: BTreeSet<u64> =
            placed.iter().flat_map(Placed::ranges).flat_map(|range| self.taken_by(range)).collect();
        let taken_count = compacted.rows_taken.saturating_add(count_of(&taken));
        if !taken.is_empty() && taken_count >= compacted.rows_emptied.saturating_add(self.chosen_of(rows)) {
            rows.iter().for_each(|row| self.rows.keep((*row).into(), RowKept::NoRoom));
            return Vec::new();
        }
        compacted.rows_taken = taken_count;
        self.taken.extend(taken);
        placed
    }

    /// Chooses places for units: holes, then open ranges in their order. Returns the units that have none.
    fn lead(&mut self, units: Vec<Unit>, takes: &mut Takes, led: &mut Vec<(u64, Unit)>) -> Vec<Unit> {
        let mut rest = Vec::new();
        for unit in self.room.fill_holes(units, led) {
            let place = self.room.find_open(unit.length);
            let place = place.map(|first| DeviceRange { start: first, length: unit.length });
            match place.filter(|place| takes.add(self.taken_by(*place))) {
                Some(place) => {
                    self.room.take_open(place.length);
                    led.push((place.start, unit));
                }
                None => rest.push(unit),
            }
        }
        rest
    }

    /// Makes a pack in the chosen places; `rest` gets the units that the file system cannot be led to.
    fn place_led<F: Files>(
        &mut self,
        files: &mut F,
        mut led: Vec<(u64, Unit)>,
        rest: &mut Vec<Unit>,
    ) -> Option<Placed<F::Handle>> {
        led.sort_unstable_by_key(|(start, _)| *start);
        let wanted = led.iter().map(|(start, unit)| DeviceRange { start: *start, length: unit.length });
        let wanted: Vec<DeviceRange> = wanted.collect();
        let mut found = Vec::new();
        let handle = if wanted.is_empty() { None } else { files.pack_at(&wanted, &mut found).ok() };
        let (mut moves, mut ranges) = (Vec::new(), found.iter().peekable());
        for (start, unit) in led {
            if handle.is_some() && ranges.next_if(|range| range.start == start).is_some() {
                moves.extend(unit.moved(start));
                continue;
            }
            if self.rows.state(self.rows.number(start)) == State::Unclaimed {
                self.room.drop_open();
            }
            rest.push(unit);
        }
        Some(Placed { pack: Pack::of(handle?, found.last()?.end()), moves, map: None })
    }

    /// Places units by one pack where the file system puts it, or by two that are shorter if that is no place for them.
    fn place_anywhere<F: Files>(
        &mut self,
        files: &mut F,
        units: &[Unit],
        splits: u32,
        takes: &mut Takes,
        placed: &mut Vec<Placed<F::Handle>>,
    ) {
        if units.is_empty() {
            return;
        }
        let bytes = units.iter().fold(0u64, |bytes, unit| bytes.saturating_add(unit.length));
        if let Some((handle, map)) = self.pack_outside(files, bytes, takes) {
            let (mut offset, mut moves) = (0u64, Vec::new());
            for unit in units {
                moves.extend(unit.moved(offset));
                offset = offset.saturating_add(unit.length);
            }
            placed.push(Placed { pack: Pack::new(handle), moves, map: Some(map) });
            return;
        }
        let (left, right) = units.split_at(units.len() / 2);
        if left.is_empty() || splits == 0 {
            let moves = units.iter().flat_map(|unit| &unit.moves);
            moves.for_each(|range| self.rows.keep(range.row.into(), RowKept::NoRoom));
            return;
        }
        self.place_anywhere(files, left, splits.saturating_sub(1), takes, placed);
        self.place_anywhere(files, right, splits.saturating_sub(1), takes, placed);
    }

    /// Makes a pack, and returns it with its map if it lies outside the rows that are to be emptied.
    fn pack_outside<F: Files>(
        &mut self,
        files: &mut F,
        bytes: u64,
        takes: &mut Takes,
    ) -> Option<(F::Handle, Vec<Extent>)> {
        let pack = files.pack(bytes).ok()?;
        let mut map = Vec::new();
        let is_whole = files.extents(&pack, 0..bytes, MAP_MAX, &mut map).ok()?;
        let places =
            || map.iter().map(|extent| DeviceRange { start: extent.physical, length: extent.length });
        let mut rows = places().flat_map(|place| self.rows.parts(place.start, place.length));
        if !is_whole || rows.any(|(row, _)| self.rows.is_chosen(row)) {
            return None;
        }
        let taken: Vec<u64> = places().flat_map(|place| self.taken_by(place)).collect();
        takes.add(taken.into_iter()).then_some((pack, map))
    }

    /// Returns the unclaimed rows of a range that no pack of this run has taken.
    fn taken_by(&self, range: DeviceRange) -> impl Iterator<Item = u64> + use<'_, S> {
        let rows = self.rows.parts(range.start, range.length).map(|(row, _)| row);
        rows.filter(|row| self.rows.state(*row) == State::Unclaimed && !self.taken.contains(row))
    }

    fn move_into<F: Files, C: Control>(
        &mut self,
        environment: &mut Environment<'_, F, S, C>,
        placed: Placed<F::Handle>,
        compacted: &mut Compacted,
    ) -> Result<(), RunError> {
        let Placed { mut pack, mut moves, .. } = placed;
        if compacted.stopped {
            return Ok(());
        }
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
}
