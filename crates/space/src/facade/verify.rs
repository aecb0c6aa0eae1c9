//! Verification: every copy of every block is held against its checksum, every copy of a table against the one in memory,
//! the headers of slabs against the map, and the map against itself.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroUsize;
use std::rc::Rc;

use dolmen_future_pool::pooled;
use dolmen_pool::{Disk, Purpose, keys};
use dolmen_units::{BLOCK_BYTES, Bytes, DiskSlot, Name, RowId};

use crate::cache::space::{Cache, Space};
use crate::format::error::{SpaceError, UnreadableReason};
use crate::format::record::BlockState;
use crate::layout::shape::RUN_BLOCKS;
use crate::layout::{BLOCK, Overwrites};
use crate::policy::spaces::Spaces;
use crate::resources::events::SpaceRange;
use crate::resources::hedge_delay::{HedgeDelay, is_silence};
use crate::resources::locks::Range;
use crate::resources::progress::Progress;
use crate::row_io::copies::matches_state;
use crate::row_io::header::WrongHeader;
use crate::table::row::{Row, Slab};

/// Headers of slabs that a verification names, at most; more are counted.
pub const HEADERS_NAMED_MAX: usize = 1000;

/// What a verification has seen; ranges are in the order of spaces and rows.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Verification {
    /// Blocks with data that were read and verified, mended ones included.
    pub blocks: u64,
    /// What no copy can give.
    pub lost: Vec<SpaceRange>,
    /// What no copy that is here can give, while others are on disks that are away.
    pub out_of_reach: Vec<SpaceRange>,
    /// Headers of slabs that were not what the map says, at most [`HEADERS_NAMED_MAX`]; no content hangs on them.
    pub headers: Vec<WrongHeader>,
    /// How many there were of them.
    pub header_count: u64,
    /// How many of them were not rewritten.
    pub headers_unhealed: u64,
    /// Copies of blocks that were bad and were healed meanwhile, also by clients that read them.
    pub healed: u64,
    /// Whether it was stopped before it had seen everything.
    pub was_stopped: bool,
}

impl Verification {
    /// Whether everything could be read.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        !self.was_stopped && self.lost.is_empty() && self.out_of_reach.is_empty()
    }

    /// Everything that could not be read.
    pub fn unreadable(&self) -> impl Iterator<Item = &SpaceRange> {
        self.lost.iter().chain(&self.out_of_reach)
    }

    /// Adds what was seen behind it.
    pub(crate) fn absorb(&mut self, other: Self) {
        self.blocks += other.blocks;
        self.healed += other.healed;
        self.header_count += other.header_count;
        self.headers_unhealed += other.headers_unhealed;
        let room = HEADERS_NAMED_MAX.saturating_sub(self.headers.len());
        self.headers.extend(other.headers.into_iter().take(room));
        other.lost.into_iter().for_each(|range| join_range(&mut self.lost, range));
        other.out_of_reach.into_iter().for_each(|range| join_range(&mut self.out_of_reach, range));
        self.was_stopped |= other.was_stopped;
    }

    pub(crate) fn add(&mut self, space: &Name, verdict: RowVerdict) {
        self.add_headers(verdict.headers);
        self.blocks += verdict.blocks;
        join(&mut self.lost, space, &verdict.lost);
        join(&mut self.out_of_reach, space, &verdict.out_of_reach);
    }

    /// Adds what was seen of a row of a write cache: what cannot be read counts for the spaces that it belongs to.
    pub(crate) fn add_cached(&mut self, cache: &Cache, space: &Space, verdict: RowVerdict) {
        self.add_headers(verdict.headers);
        self.blocks += verdict.blocks;
        join_owners(&mut self.lost, cache, space, &verdict.lost);
        join_owners(&mut self.out_of_reach, cache, space, &verdict.out_of_reach);
    }

    fn add_headers(&mut self, wrong: Vec<WrongHeader>) {
        self.header_count += wrong.len() as u64;
        self.headers_unhealed += wrong.iter().filter(|header| !header.is_healed).count() as u64;
        let room = HEADERS_NAMED_MAX.saturating_sub(self.headers.len());
        self.headers.extend(wrong.into_iter().take(room));
    }
}

/// What was seen of a row; blocks are named by their first byte in the space.
#[derive(Default)]
pub(crate) struct RowVerdict {
    blocks: u64,
    lost: Vec<u64>,
    out_of_reach: Vec<u64>,
    headers: Vec<WrongHeader>,
}

impl RowVerdict {
    /// Notes why a block cannot be read.
    ///
    /// # Errors
    /// The error, when it is about more than this block.
    fn note(&mut self, at: u64, error: SpaceError) -> Result<(), SpaceError> {
        match error {
            // Nothing may be concluded from the silence of a disk that has just left.
            SpaceError::Unreadable {
                why: UnreadableReason::Absent | UnreadableReason::CorruptHere, ..
            } => self.out_of_reach.push(at),
            SpaceError::Unreadable { why: UnreadableReason::Device(error), .. } if is_silence(error) => {
                self.out_of_reach.push(at);
            }
            SpaceError::Unreadable { .. } => self.lost.push(at),
            error => return Err(error),
        }
        Ok(())
    }
}

/// Adds blocks, in order, to ranges; those that follow each other become one.
fn join(ranges: &mut Vec<SpaceRange>, space: &Name, blocks: &[u64]) {
    for at in blocks {
        let range = SpaceRange { space: space.clone(), at: *at, length: Bytes(BLOCK_BYTES) };
        join_range(ranges, range);
    }
}

fn join_range(ranges: &mut Vec<SpaceRange>, range: SpaceRange) {
    let follows = |last: &&mut SpaceRange| last.at + last.length.0 == range.at && last.space == range.space;
    match ranges.last_mut().filter(follows) {
        Some(last) => last.length = last.length + range.length,
        None => ranges.push(range),
    }
}

/// Adds blocks of a write cache as what they are of the spaces that they belong to; what belongs to none any more does not
/// count.
fn join_owners(ranges: &mut Vec<SpaceRange>, cache: &Cache, space: &Space, places: &[u64]) {
    for at in places {
        let (index, within) = (at / space.row_bytes(), at % space.row_bytes() / BLOCK_BYTES);
        if let Some((name, at)) = cache.owner_of(index, within) {
            join(ranges, &name, &[at]);
        }
    }
}

impl Spaces {
    /// What nobody can tell yet: blocks that no flush has covered and whose disks are away. When these are back, each is what
    /// was written last there, or anything since the last flush if they lost their caches.
    ///
    /// # Errors
    /// [`SpaceError`] when the map cannot be read.
    #[pooled]
    pub async fn in_doubt(&self) -> Result<Vec<SpaceRange>, SpaceError> {
        let mut ranges = Vec::new();
        for (space, at) in self.in_doubt_blocks().await? {
            match self.cache_in(&space) {
                Some(cache) => join_owners(&mut ranges, &cache, &space, &[at]),
                None => join(&mut ranges, &space.name(), &[at]),
            }
        }
        Ok(ranges)
    }

    /// Reads and verifies every block of every copy, tables and headers of slabs, and heals what can be healed. Held and stopped
    /// between rows; what was seen by then is reported.
    ///
    /// # Errors
    /// [`SpaceError`] when the metadata cannot be read.
    #[pooled]
    pub async fn verify(&self, progress: &Progress) -> Result<Verification, SpaceError> {
        self.verify_together(progress, NonZeroUsize::MIN).await
    }

    /// Verifies a row of which something was declared lost, heals what can be healed, and adds what is lost to ranges.
    pub(crate) async fn verify_declared_lost(
        &self,
        space: &Rc<Space>,
        index: u64,
        lost: &mut Vec<SpaceRange>,
    ) -> Result<(), SpaceError> {
        let verdict = space.verify_row(index).await?;
        match self.cache_in(space) {
            Some(cache) => join_owners(lost, &cache, space, &verdict.lost),
            None => join(lost, &space.name(), &verdict.lost),
        }
        Ok(())
    }

    /// Blocks that were rewritten since the pool was opened, because what a disk had of them was bad.
    pub(crate) fn healed_blocks(&self) -> u64 {
        self.pool().disks().iter().map(|disk| disk.counters().healed_blocks).sum()
    }

    /// Checks that the map is consistent: every allocation unit of every disk belongs to one slab or is free, and every row fits
    /// its space. Returns what is wrong, in words. Changes of the map wait until it has looked at all of it: of two times, rows
    /// and free allocation units do not fit together.
    ///
    /// # Errors
    /// [`SpaceError`] when the metadata cannot be read.
    #[pooled]
    pub async fn check_map(&self) -> Result<Vec<String>, SpaceError> {
        let mut findings = Vec::new();
        let _exclusive = self.pool().change(Purpose::Release).await;
        let mut used: BTreeMap<DiskSlot, Vec<(u64, u64, String)>> = BTreeMap::new();
        let stale = self.pool().map().scan(keys::all(keys::Kind::Stale), usize::MAX).await?;
        let mut indexed: BTreeSet<(DiskSlot, RowId)> = stale
            .iter()
            .map(|(key, _)| {
                let (slot, id, _) = keys::parts(key);
                (DiskSlot(slot), RowId(id))
            })
            .collect();
        let mut unnamed = self.row_ids().await?;
        for space in self.all() {
            let limit = space.size().0.div_ceil(space.row_bytes());
            let mut rows = 0;
            let name = space.name();
            space
                .for_each_record(|index, record| {
                    rows += 1;
                    if index >= limit {
                        findings.push(format!("row {index} of space {name} lies behind its end"));
                    }
                    if !unnamed.remove(&record.id) {
                        findings.push(format!("row {index} of space {name} stands in another place as well"));
                    }
                    let stale: BTreeSet<DiskSlot> = record
                        .columns
                        .iter()
                        .flatten()
                        .filter(|slab| slab.stale.is_some())
                        .map(|slab| slab.disk)
                        .collect();
                    if stale.into_iter().any(|slot| !indexed.remove(&(slot, record.id))) {
                        findings
                            .push(format!("row {index} of space {name} is stale and no resync will find it"));
                    }
                    for slab in record.columns.iter().flatten() {
                        let owner = format!("row {index} of space {name}");
                        let runs = slab.runs.iter().map(|run| (run.first, run.count, owner.clone()));
                        used.entry(slab.disk).or_default().extend(runs);
                    }
                })
                .await?;
            if rows != space.row_count.get() {
                findings.push(format!("space {name} has {rows} rows, and counted {}", space.row_count.get()));
            }
        }
        findings.extend(unnamed.into_iter().map(|id| format!("{id} stands in no place")));
        findings.extend(indexed.into_iter().map(|(slot, id)| {
            format!("{id} has no stale slab on {slot}, and is on record among those that have")
        }));
        for disk in self.pool().disks() {
            let slabs = used.remove(&disk.slot());
            let free = self.pool().free_space().free_runs(disk.slot());
            if slabs.is_none() && free.is_none() {
                // It joins just now, or is about to be struck.
                continue;
            }
            let free =
                free.unwrap_or_default().into_iter().map(|run| (run.first, run.count, "free".to_owned()));
            findings.extend(check_runs(&disk, slabs.unwrap_or_default().into_iter().chain(free).collect()));
        }
        findings.extend(used.keys().map(|slot| format!("slabs lie on {slot}, which is no member")));
        Ok(findings)
    }

    /// Returns the ids of all rows that the map has a record of.
    async fn row_ids(&self) -> Result<BTreeSet<RowId>, SpaceError> {
        const STEP: usize = 256;
        let (mut ids, mut from) = (BTreeSet::new(), Some(RowId(0)));
        while let Some(first) = from {
            let found = self.pool().map().scan(keys::rows_from(first), STEP).await?;
            ids.extend(found.iter().map(|(key, _)| RowId(keys::parts(key).1)));
            let last = found.last().map(|(key, _)| RowId(keys::parts(key).1)).filter(|_| found.len() == STEP);
            from = last.and_then(|last| last.0.checked_add(1)).map(RowId);
        }
        Ok(ids)
    }
}

impl Space {
    /// Whether nothing of a row may be had from disks that are away and from nobody else: every block is verified for it.
    ///
    /// # Errors
    /// [`SpaceError`] when the metadata cannot be read, or the pool has stopped.
    pub(crate) async fn can_do_without_absent(&self, index: u64) -> Result<bool, SpaceError> {
        Ok(self.verify_row(index).await?.out_of_reach.is_empty())
    }

    /// Reads and verifies every copy of every block of a row and of its tables, and the headers of its slabs; heals what differs.
    #[pooled]
    async fn verify_row(&self, index: u64) -> Result<RowVerdict, SpaceError> {
        let mut verdict = RowVerdict::default();
        let row = match self.row(index).await {
            Ok(Some(row)) => row,
            Ok(None) => return Ok(verdict),
            // What the log says of it waits for disks.
            Err(error @ SpaceError::Unreadable { .. }) => {
                let (first, end) =
                    (index * self.row_bytes(), self.size().0.min((index + 1) * self.row_bytes()));
                let blocks = (first..end).step_by(BLOCK);
                blocks.into_iter().try_for_each(|at| verdict.note(at, error.clone()))?;
                return Ok(verdict);
            }
            Err(error) => return Err(error),
        };
        let clock = &self.shared.pool.seams().clock;
        for column in 0..row.shape.columns() {
            let blocks = row.shape.column_blocks(column);
            for first in (0..blocks).step_by(RUN_BLOCKS as usize) {
                let run = Range { first, count: RUN_BLOCKS.min(blocks - first) };
                let began = clock.now();
                self.verify_run(&row, column, run, &mut verdict).await?;
                self.shared.throttle.rest(clock.as_ref(), began).await;
            }
            for index in 0..row.map(column).pages() {
                self.shared.verify_page(&row, column, index).await?;
            }
        }
        verdict.headers = self.shared.verify_headers(&row).await;
        if verdict.lost.is_empty() && verdict.out_of_reach.is_empty() {
            self.failed_reads.succeeded(index * self.row_bytes(), self.row_bytes());
        }
        verdict.lost.sort_unstable();
        verdict.out_of_reach.sort_unstable();
        Ok(verdict)
    }

    #[pooled]
    async fn verify_run(
        &self,
        row: &Rc<Row>,
        column: usize,
        run: Range,
        verdict: &mut RowVerdict,
    ) -> Result<(), SpaceError> {
        let place_of =
            |block| row.index * row.bytes() + u64::from(row.shape.row_block(column, block)) * BLOCK_BYTES;
        let _guard = row.locks.lock(row.shape.lock_range(column, run)).await;
        if row.freed.get() {
            return Ok(());
        }
        let states = match self.states(row, column, run).await {
            Ok(states) => states,
            Err(error @ SpaceError::Unreadable { .. }) => {
                let mut blocks = run.first..run.first + run.count;
                return blocks.try_for_each(|block| match self.is_needed(row, column, block) {
                    true => verdict.note(place_of(block), error.clone()),
                    false => Ok(()),
                });
            }
            Err(error) => return Err(error),
        };
        if states.iter().all(|state| *state == BlockState::Never) {
            return Ok(());
        }
        let suspect = self.suspects(row, column, run, &states).await;
        for ((block, state), suspect) in (run.first..).zip(&states).zip(suspect) {
            if *state == BlockState::Never || self.is_superseded(row, row.shape.row_block(column, block)) {
                continue;
            }
            let mut read = Ok(());
            if suspect {
                let mut buffer = self.shared.pool.seams().metadata.take(BLOCK).await;
                read = match row.shape.is_computable() {
                    true => self.read_main(row, (column, block), HedgeDelay::Long, &mut buffer).await,
                    false => {
                        self.read_copied_block(
                            row,
                            row.shape.row_block(column, block),
                            HedgeDelay::Long,
                            &mut buffer,
                        )
                        .await
                    }
                };
            }
            match read {
                // Nothing is lost with parity, nor with what is about to be replaced by what is in the cache, nor with what the
                // row's shadow row has.
                Err(SpaceError::Unreadable { .. }) if !self.is_needed(row, column, block) => {}
                Err(SpaceError::Unreadable { .. }) if !self.is_in_row(row, block).await? => {}
                Ok(()) => verdict.blocks += 1,
                Err(error) => verdict.note(place_of(block), error)?,
            }
        }
        Ok(())
    }

    /// Whether a block in place is what its space reads there.
    fn is_needed(&self, row: &Row, column: usize, block: u32) -> bool {
        column < row.shape.data_columns() && row.mappings.newest(row.shape.row_block(column, block)).is_none()
    }

    /// Whether what lies in place of a block of copies counts for nothing: a flush has covered what the write cache has of it, and
    /// it may be half in place.
    pub(crate) fn is_superseded(&self, row: &Row, row_block: u32) -> bool {
        if row.shape.overwrites() == Overwrites::Cached || row.mappings.is_empty() {
            return false;
        }
        let cache = self.cache_of(row);
        let versions = row.mappings.versions(row_block);
        cache.is_some_and(|cache| versions.iter().any(|version| cache.is_flushed(version)))
    }

    /// Reads all copies of blocks; which of them have a bad copy, or none that is here and whole.
    #[pooled]
    async fn suspects(&self, row: &Row, column: usize, run: Range, states: &[BlockState]) -> Vec<bool> {
        let copies = row.with_slabs(column, |slabs| {
            let readable =
                slabs.iter().filter_map(|slab| Some((slab.readable(&self.shared.pool)?, slab.clone())));
            readable.collect::<Vec<(Rc<Disk>, Slab)>>()
        });
        let mut suspect = vec![copies.is_empty(); states.len()];
        for (disk, slab) in copies {
            let mut blocks = suspect.iter_mut().zip(states);
            for piece in slab.pieces(u64::from(run.first) * BLOCK_BYTES, states.len() * BLOCK) {
                let buffer = self.shared.pool.seams().metadata.take(piece.length).await;
                let (buffer, read) = disk.read(piece.at, buffer).await;
                for (bytes, (suspect, state)) in buffer.chunks_exact(BLOCK).zip(&mut blocks) {
                    *suspect |= read.is_err() || !matches_state(bytes, *state);
                }
            }
        }
        suspect
    }
}

pub(crate) async fn verify_one(
    space: &Space,
    index: u64,
    progress: &Progress,
) -> Result<RowVerdict, SpaceError> {
    let verdict = space.verify_row(index).await?;
    progress.done.set(progress.done.get() + 1);
    progress.bytes.set(progress.bytes.get() + verdict.blocks * BLOCK_BYTES);
    Ok(verdict)
}

/// Whether runs cover the disk's allocation units exactly once.
fn check_runs(disk: &Disk, mut runs: Vec<(u64, u64, String)>) -> Vec<String> {
    let mut findings = Vec::new();
    runs.sort_unstable();
    let mut at = 0;
    for (first, count, owner) in &runs {
        if *first > at {
            findings.push(format!("allocation units {at} to {first} of {} belong to nobody", disk.name()));
        }
        if *first < at {
            findings.push(format!(
                "allocation unit {first} of {} belongs to {owner} and to another",
                disk.name()
            ));
        }
        at = at.max(first + count);
    }
    if let Some(extent) = disk.extent().filter(|extent| extent.unit_count() != at) {
        findings.push(format!(
            "{} has {} allocation units, of which {at} are accounted for",
            disk.name(),
            extent.unit_count()
        ));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_that_follow_each_other_in_one_space_are_one_range() {
        let name = |text: &str| text.parse::<Name>().unwrap();
        let mut ranges = Vec::new();
        join(&mut ranges, &name("a"), &[4096, 8192, 20480]);
        join(&mut ranges, &name("a"), &[24576]);
        join(&mut ranges, &name("b"), &[28672]);
        let seen = ranges.iter().map(|range| (range.space.as_str(), range.at, range.length.0));
        let expected = [("a", 4096, 8192), ("a", 20480, 8192), ("b", 28672, 4096)];
        assert_eq!(seen.collect::<Vec<_>>(), expected);
    }
}
