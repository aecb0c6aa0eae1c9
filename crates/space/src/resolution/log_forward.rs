//! What has no home but the log is relogged before the log is trimmed: candidates that nobody can decide while their disks
//! are away, what tables on such disks have to be told, and what is cached in front of parity.
//!
//! It is said in the order in which the log names it, a part at a time, and the log is trimmed behind each part. So a log
//! that is full of it needs room for one part, not for all of it once more; and what a crash leaves half said goes on where
//! it was, however often that happens.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use dolmen_future_pool::pooled;
use dolmen_units::{BLOCK_BYTES, Lsn, RowId};
use smallvec::smallvec;

use crate::cache::relog::{CacheRelog, Cached};
use crate::format::error::SpaceError;
use crate::format::raw::PAGE_ENTRIES;
use crate::format::record::{BLOCK_STATED_BYTES, CHECKSUM_BYTES, RECORD_BYTES_MAX, extents};
use crate::layout::Covered;
use crate::resolution::recovery::{Restating, encode_candidates};
use crate::resources::locks::{Range, RangeGuard};
use crate::row_io::block_log::BlockLog;
use crate::row_io::flusher::Flusher;
use crate::table::candidates::{Candidate, InDoubt, RowCandidates};
use crate::table::page::place_in_page;
use crate::table::row::Row;
use crate::table::space::{Cache, Shared};

/// What is relogged at once: one of so many parts of the log, and what one record more makes of it; or half of the room
/// that the log has, if that is more.
const PARTS: u64 = 64;
/// Sixteenths of the log that what is relogged may fill.
const FILLED_SIXTEENTHS: u64 = 14;
/// Bytes of a state.
const STATE_BYTES: u64 = 4;
const _: () = assert!(STATE_BYTES == CHECKSUM_BYTES as u64);

/// An extent of blocks that the log names.
struct Named {
    lsn: Lsn,
    row: RowId,
    column: usize,
    range: Range,
}

/// Something that the log says of a cache.
type OfCache<'a> = (&'a Rc<Cache>, Cached);

/// A row, and columns of it whose tables have no home but the log.
type HomelessRow = (Rc<Row>, BTreeSet<usize>);

/// Rows with columns whose tables have no home but the log.
#[derive(Default)]
pub(crate) struct Homeless(BTreeMap<RowId, HomelessRow>);

impl Homeless {
    /// Notes a column.
    pub(crate) fn add(&mut self, row: &Rc<Row>, column: usize) {
        self.0.entry(row.id).or_insert_with(|| (Rc::clone(row), BTreeSet::new())).1.insert(column);
    }

    /// Notes all columns of those rows that are noted already and that `is_meant` means.
    pub(crate) fn take_all_of(&mut self, is_meant: impl Fn(&Row) -> bool) {
        let meant = self.0.values_mut().filter(|(row, _)| is_meant(row));
        meant.for_each(|(row, columns)| columns.extend(0..row.shape.columns()));
    }

    /// The rows, but for those that are gone.
    pub(crate) fn rows(&self) -> impl Iterator<Item = &Rc<Row>> {
        self.0.values().map(|(row, _)| row).filter(|row| !row.freed.get())
    }

    /// Whether a column of a row is noted.
    pub(crate) fn has(&self, row: &Row) -> bool {
        self.0.contains_key(&row.id)
    }

    /// The row of this id, if this column of it is noted.
    fn row_of(&self, row: RowId, column: usize) -> Option<&Rc<Row>> {
        self.0.get(&row).filter(|(_, columns)| columns.contains(&column)).map(|(row, _)| row)
    }
}

/// What nobody could decide yet, by the row that the log names.
type InDoubtRows = BTreeMap<RowId, Rc<RowCandidates>>;

fn by_row(in_doubt: &InDoubt) -> InDoubtRows {
    let row_of = |candidates: &RowCandidates| Some(candidates.values().flatten().next()?.row);
    let rows = in_doubt.values();
    rows.filter_map(|candidates| Some((row_of(candidates)?, Rc::clone(candidates)))).collect()
}

/// Blocks that were relogged since the checkpoint began: a bit for each, by row, column and page.
#[derive(Default)]
struct Relogged(BTreeMap<(RowId, usize, usize), [u64; PAGE_ENTRIES.div_ceil(64)]>);

impl Relogged {
    /// Notes a block; whether it is new.
    fn add(&mut self, row: RowId, column: usize, block: u32) -> bool {
        let (page, entry) = place_in_page(block);
        let bits = self.0.entry((row, column, page)).or_default();
        let Some(word) = bits.get_mut(entry / 64) else { return false };
        let bit = 1 << (entry % 64);
        let is_new = *word & bit == 0;
        *word |= bit;
        is_new
    }

    fn has(&self, row: RowId, column: usize, block: u32) -> bool {
        let (page, entry) = place_in_page(block);
        let word = self.0.get(&(row, column, page)).and_then(|bits| bits.get(entry / 64));
        word.is_some_and(|word| word & 1 << (entry % 64) != 0)
    }
}

/// Records that are gathered until they are worth a batch of the log.
#[derive(Default)]
struct RelogBatch {
    body: Vec<u8>,
}

impl RelogBatch {
    async fn relog(&mut self, shared: &Shared, body: &[u8]) -> Result<(), SpaceError> {
        if self.body.len() + body.len() > RECORD_BYTES_MAX {
            self.write(shared).await?;
        }
        self.body.extend_from_slice(body);
        Ok(())
    }

    async fn write(&mut self, shared: &Shared) -> Result<(), SpaceError> {
        if !self.body.is_empty() {
            BlockLog::of(shared).record_relogged(&self.body).await?;
            self.body.clear();
        }
        Ok(())
    }
}

/// What the tables of a row say. It stays locked until that is written: a write in between would be recorded before it.
struct OfTables<'a> {
    row: &'a Rc<Row>,
    /// What a flush has covered since before, then what the next one covers.
    candidates: [(Covered, RowCandidates); 2],
    bodies: Vec<Vec<u8>>,
    _guard: RangeGuard<'a>,
}

impl<'a> OfTables<'a> {
    fn new(row: &'a Rc<Row>, candidates: RowCandidates, shared: &Shared, guard: RangeGuard<'a>) -> Self {
        // What recovery decided was flushed with the tables; of what is said while writes go on, some may not be yet. What is
        // in place with parity was flushed before its table said so, but for stripes in flight.
        let (before, later) = if shared.recovering.get() {
            (candidates, RowCandidates::new())
        } else if row.shape.covered() == Covered::Before {
            let in_flight = Flusher::of(shared).unflushed_of(row);
            candidates.into_iter().partition(|(place, _)| !in_flight.contains(place))
        } else {
            (RowCandidates::new(), candidates)
        };
        let candidates = [(Covered::Before, before), (Covered::ByTheNextFlush, later)];
        let mut this = Self { row, candidates, bodies: Vec::new(), _guard: guard };
        this.encode();
        this
    }

    fn encode(&mut self) {
        let bodies = |(covered, candidates): &(Covered, RowCandidates)| {
            encode_candidates(candidates, (Restating::Again, *covered))
        };
        self.bodies = self.candidates.iter().flat_map(bodies).collect();
    }

    /// Leaves out what was left in doubt since it was gathered.
    fn leave_out(&mut self, shared: &Shared) {
        let row = self.row;
        let mut is_changed = false;
        for (_, candidates) in &mut self.candidates {
            let before = candidates.len();
            candidates.retain(|(column, block), _| !shared.is_in_doubt(row, *column, *block));
            is_changed |= candidates.len() < before;
        }
        if is_changed {
            self.encode();
        }
    }
}

/// Log forwarding: what the log still has to say is written to its end.
#[derive(Clone, Copy)]
pub(crate) struct LogForward<'a> {
    shared: &'a Shared,
}

impl<'a> LogForward<'a> {
    /// Returns the service for what the spaces of a pool share.
    pub(crate) fn of(shared: &'a Shared) -> Self {
        Self { shared }
    }
}

impl LogForward<'_> {
    /// Relogs what the log has to keep although it is trimmed before `cut`: of these columns, what is in doubt, and what is
    /// cached; how many bytes of the log that takes. Called with the turns of the caches, and never with a table turn: whoever
    /// holds a row's lock may wait for that.
    #[pooled]
    pub(crate) async fn forward(
        self,
        homeless: &Homeless,
        in_doubt: &InDoubt,
        caches: &[Rc<Cache>],
        cut: Lsn,
    ) -> Result<u64, SpaceError> {
        self.shared.relogged.set(0);
        let in_doubt = &by_row(in_doubt);
        let named = match homeless.0.is_empty() && in_doubt.is_empty() {
            true => Vec::new(),
            false => self.named_below(cut, homeless, in_doubt).await?,
        };
        let mut cached: Vec<OfCache<'_>> = caches
            .iter()
            .flat_map(|cache| {
                CacheRelog::of(cache).logged_below(cut).into_iter().map(move |one| (cache, one))
            })
            .collect();
        cached.sort_by_cached_key(|(_, one)| one.order());
        let mut relogged = Relogged::default();
        let (mut named, mut cached) = (named.as_slice(), cached.as_slice());
        while !named.is_empty() || !cached.is_empty() {
            let (of_named, of_cached) = self.length_of_part((named, cached), homeless, in_doubt, &relogged);
            let (part, named_after) = named.split_at(of_named);
            let (cached_part, cached_after) = cached.split_at(of_cached);
            self.relog_in_doubt(part, in_doubt, &mut relogged).await?;
            self.relog_tables(part, homeless, &mut relogged).await?;
            for cache in caches {
                let of_cache = cached_part.iter().filter(|(other, _)| Rc::ptr_eq(cache, other));
                CacheRelog::of(cache).relog_again(of_cache.map(|(_, one)| one)).await?;
            }
            // What was flushed is durable again, or else a damaged block would be taken for one in flight.
            Flusher::of(self.shared).force_flush().await?;
            self.shared.relogged.set(self.shared.relogged.get() + BLOCK_BYTES);
            (named, cached) = (named_after, cached_after);
            if let Some(next) = first_named(named, cached) {
                self.shared.pool.checkpoints().trim_log(next.min(cut), cut).await?;
            }
        }
        Ok(self.shared.relogged.get())
    }

    /// What the log names of blocks that have no other home, in its order.
    #[pooled]
    async fn named_below(
        self,
        cut: Lsn,
        homeless: &Homeless,
        in_doubt: &InDoubtRows,
    ) -> Result<Vec<Named>, SpaceError> {
        let mut named = Vec::new();
        let visit = |record: dolmen_pool::RecordedBlocks<'_>| {
            if record.lsn >= cut {
                return Ok(());
            }
            for read in extents(record.body) {
                let extent = read.ok_or_else(|| self.shared.malformed(record.lsn))?.extent;
                let (row, column) = (extent.row, usize::from(extent.column));
                let range = Range { first: extent.first, count: extent.count };
                if homeless.row_of(row, column).is_some() || in_doubt.contains_key(&row) {
                    named.push(Named { lsn: record.lsn, row, column, range });
                }
            }
            Ok(())
        };
        self.shared.pool.log().recorded_blocks(visit).await?;
        Ok(named)
    }

    /// How many of these extents and versions are said at once: whole records, so that the log can be trimmed behind them.
    fn length_of_part(
        self,
        (mut named, mut cached): (&[Named], &[OfCache<'_>]),
        homeless: &Homeless,
        in_doubt: &InDoubtRows,
        relogged: &Relogged,
    ) -> (usize, usize) {
        let (used, log) = self.shared.pool.log().usage().unwrap_or_default();
        let most = (log.0 / PARTS).max((log.0 / 16 * FILLED_SIXTEENTHS).saturating_sub(used.0) / 2);
        let (mut bytes, mut length) = (0, (0, 0));
        while let Some(lsn) = first_named(named, cached) {
            let (extents, named_after) = named.split_at(named.partition_point(|one| one.lsn == lsn));
            let (versions, cached_after) =
                cached.split_at(cached.partition_point(|(_, one)| one.relogged == lsn));
            bytes += extents.iter().map(|one| bytes_to_relog(one, homeless, in_doubt, relogged)).sum::<u64>();
            bytes += versions.iter().map(|(_, one)| one.bytes()).sum::<u64>();
            if length != (0, 0) && bytes > most {
                break;
            }
            length = (length.0 + extents.len(), length.1 + versions.len());
            (named, cached) = (named_after, cached_after);
        }
        length
    }

    /// Says all candidates of blocks that nobody could decide, in place of what the log says of them.
    #[pooled]
    async fn relog_in_doubt(
        self,
        part: &[Named],
        in_doubt: &InDoubtRows,
        relogged: &mut Relogged,
    ) -> Result<(), SpaceError> {
        let mut wanted: BTreeMap<RowId, RowCandidates> = BTreeMap::new();
        for one in part {
            let Some(candidates) = in_doubt.get(&one.row) else { continue };
            let blocks = (one.column, one.range.first)..(one.column, one.range.first + one.range.count);
            let new = candidates
                .range(blocks)
                .filter(|((column, block), _)| relogged.add(one.row, *column, *block));
            wanted.entry(one.row).or_default().extend(new.map(|(place, c)| (*place, c.clone())));
        }
        let mut batch = RelogBatch::default();
        for candidates in wanted.values() {
            for body in encode_candidates(candidates, (Restating::Supersedes, Covered::Before)) {
                batch.relog(self.shared, &body).await?;
            }
        }
        batch.write(self.shared).await
    }

    /// Says what the tables in memory say of blocks, with the stamps that they have.
    #[pooled]
    async fn relog_tables(
        self,
        part: &[Named],
        homeless: &Homeless,
        relogged: &mut Relogged,
    ) -> Result<(), SpaceError> {
        let mut wanted: BTreeMap<RowId, (&HomelessRow, Vec<&Named>)> = BTreeMap::new();
        for one in part {
            let Some(of_row) = homeless.0.get(&one.row) else { continue };
            wanted.entry(one.row).or_insert((of_row, Vec::new())).1.push(one);
        }
        // In the order of their locks: rows with parity come before those of copies.
        let mut wanted: Vec<_> = wanted.into_values().collect();
        wanted.sort_by_key(|((row, _), _)| row.locks.rank());
        let (mut gathered, mut bytes) = (Vec::new(), 0);
        for ((row, columns), extents) in wanted {
            // A row and its shadow row share their locks, and no task waits for a lock that it holds. An exchange may have given
            // the locks of a row a lower rank since they were sorted.
            let is_below = |one: &OfTables<'_>| row.locks.rank() < one.row.locks.rank();
            if gathered.iter().any(|one: &OfTables<'_>| one.row.is_paired_with(row) || is_below(one)) {
                self.write_of_tables(std::mem::take(&mut gathered)).await?;
                bytes = 0;
            }
            let guard = row.locks.lock(Range { first: 0, count: row.shape.row_blocks() }).await;
            if row.freed.get() {
                continue;
            }
            let mut candidates = RowCandidates::new();
            for one in extents.into_iter().filter(|one| columns.contains(&one.column)) {
                self.candidates_of_tables(row, one, relogged, &mut candidates);
            }
            if candidates.is_empty() {
                continue;
            }
            let one = OfTables::new(row, candidates, self.shared, guard);
            bytes += one.bodies.iter().map(Vec::len).sum::<usize>();
            gathered.push(one);
            if bytes > RECORD_BYTES_MAX {
                self.write_of_tables(std::mem::take(&mut gathered)).await?;
                bytes = 0;
            }
        }
        self.write_of_tables(gathered).await
    }

    async fn write_of_tables(self, mut gathered: Vec<OfTables<'_>>) -> Result<(), SpaceError> {
        // What is being left in doubt just now must not be called durable behind that.
        let _exclusive = self.shared.defer_mutex.take().await;
        let mut batch = RelogBatch::default();
        for one in &mut gathered {
            one.leave_out(self.shared);
            for body in &one.bodies {
                batch.relog(self.shared, body).await?;
            }
        }
        batch.write(self.shared).await
    }

    fn candidates_of_tables(
        self,
        row: &Rc<Row>,
        one: &Named,
        relogged: &mut Relogged,
        candidates: &mut RowCandidates,
    ) {
        let end = one.range.first.saturating_add(one.range.count).min(row.shape.column_blocks(one.column));
        for block in one.range.first..end {
            let (index, entry) = place_in_page(block);
            // A page that is not in memory says nothing that its disk does not say.
            let Some(page) = row.page(one.column, index) else { continue };
            if !self.shared.is_in_doubt(row, one.column, block) && relogged.add(one.row, one.column, block) {
                candidates.insert((one.column, block), smallvec![Candidate::of_table(row.id, &page, entry)]);
            }
        }
    }
}

/// The first record that names any of these, both in the order of the log.
fn first_named(named: &[Named], cached: &[OfCache<'_>]) -> Option<Lsn> {
    let lsns =
        named.first().map(|one| one.lsn).into_iter().chain(cached.first().map(|(_, one)| one.relogged));
    lsns.min()
}

/// What it takes to say the blocks of an extent again that were not said yet. Blocks that the log names in one piece take
/// seven times as much where each of them has another stamp since.
fn bytes_to_relog(one: &Named, homeless: &Homeless, in_doubt: &InDoubtRows, relogged: &Relogged) -> u64 {
    let in_doubt = in_doubt.get(&one.row);
    let row = homeless.row_of(one.row, one.column);
    let mut bytes = 0;
    let mut before: Option<Candidate> = None;
    for block in (one.range.first..).take(one.range.count as usize) {
        if relogged.has(one.row, one.column, block) {
            before = None;
            continue;
        }
        if let Some(candidates) = in_doubt.and_then(|candidates| candidates.get(&(one.column, block))) {
            bytes += BLOCK_STATED_BYTES * candidates.len() as u64;
            before = None;
            continue;
        }
        let (index, entry) = place_in_page(block);
        let page = row.and_then(|row| row.page(one.column, index));
        let candidate = row.zip(page).map(|(row, page)| Candidate::of_table(row.id, &page, entry));
        bytes += match (&candidate, &before) {
            (Some(candidate), Some(before)) if candidate.is_like(before) => STATE_BYTES,
            (Some(_), _) => BLOCK_STATED_BYTES,
            (None, _) => 0,
        };
        before = candidate;
    }
    bytes
}
