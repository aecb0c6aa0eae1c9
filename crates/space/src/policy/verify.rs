//! Verification: every copy of every block is held against its checksum, every copy of a table against the one in memory,
//! the headers of slabs against the map, and the map against itself.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroUsize;
use std::rc::Rc;

use dolmen_future_pool::pooled;
use dolmen_pool::{Disk, Purpose, keys};
use dolmen_units::{BLOCK_BYTES, Bytes, DiskSlot, Name, RowId, SpaceId};

use crate::cache::segments::CacheIndex;
use crate::format::error::SpaceError;
use crate::policy::attributes::check_attributes_of;
use crate::policy::handles::Scrubs;
use crate::relocation::row_verify::{RowVerdict, RowVerify};
use crate::resources::events::SpaceRange;
use crate::resources::progress::Progress;
use crate::row_io::header::WrongHeader;
use crate::table::candidates::Candidate;
use crate::table::space::{Cache, SpaceRows};

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
    pub(crate) fn add_cached(&mut self, cache: &Cache, space: &SpaceRows, verdict: RowVerdict) {
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
fn join_owners(ranges: &mut Vec<SpaceRange>, cache: &Cache, space: &SpaceRows, places: &[u64]) {
    for at in places {
        let (index, within) = (at / space.row_bytes(), at % space.row_bytes() / BLOCK_BYTES);
        if let Some((name, at)) = CacheIndex::of(cache).owner_of(index, within) {
            join(ranges, &name, &[at]);
        }
    }
}

impl Scrubs<'_> {
    /// What nobody can tell yet: blocks that no flush has covered and whose disks are away. When these are back, each is what
    /// was written last there, or anything since the last flush if they lost their caches.
    ///
    /// # Errors
    /// [`SpaceError`] when the map cannot be read.
    #[pooled]
    pub async fn in_doubt(self) -> Result<Vec<SpaceRange>, SpaceError> {
        let mut ranges = Vec::new();
        for (space, at) in self.in_doubt_blocks().await? {
            match self.spaces.cache_in(&space) {
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
    pub async fn verify(self, progress: &Progress) -> Result<Verification, SpaceError> {
        self.verify_together(progress, NonZeroUsize::MIN).await
    }

    /// Verifies a row of which something was declared lost, heals what can be healed, and adds what is lost to ranges.
    pub(crate) async fn verify_declared_lost(
        self,
        space: &Rc<SpaceRows>,
        index: u64,
        lost: &mut Vec<SpaceRange>,
    ) -> Result<(), SpaceError> {
        let verdict = RowVerify::of(space).verify_row(index).await?;
        match self.spaces.cache_in(space) {
            Some(cache) => join_owners(lost, &cache, space, &verdict.lost),
            None => join(lost, &space.name(), &verdict.lost),
        }
        Ok(())
    }

    /// Blocks that were rewritten since the pool was opened, because what a disk had of them was bad.
    pub(crate) fn healed_blocks(self) -> u64 {
        self.spaces.pool().disks().iter().map(|disk| disk.counters().healed_blocks).sum()
    }

    /// Checks that the map is consistent: every allocation unit of every disk belongs to one slab or is free, and every row fits
    /// its space. Returns what is wrong, in words. Changes of the map wait until it has looked at all of it: of two times, rows
    /// and free allocation units do not fit together.
    ///
    /// # Errors
    /// [`SpaceError`] when the metadata cannot be read.
    #[pooled]
    pub async fn check_map(self) -> Result<Vec<String>, SpaceError> {
        let mut findings = Vec::new();
        let _exclusive = self.spaces.pool().change(Purpose::Release).await;
        let mut used: BTreeMap<DiskSlot, Vec<(u64, u64, String)>> = BTreeMap::new();
        let stale = self.spaces.pool().map().scan(keys::all(keys::Kind::Stale), usize::MAX).await?;
        let mut indexed: BTreeSet<(DiskSlot, RowId)> = stale
            .iter()
            .map(|(key, _)| {
                let (slot, id, _) = keys::parts(key);
                (DiskSlot(slot), RowId(id))
            })
            .collect();
        let mut unnamed = self.row_ids().await?;
        for space in self.spaces.all() {
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
        for disk in self.spaces.pool().disks() {
            let slabs = used.remove(&disk.slot());
            let free = self.spaces.pool().free_space().free_runs(disk.slot());
            if slabs.is_none() && free.is_none() {
                // It joins just now, or is about to be struck.
                continue;
            }
            let free =
                free.unwrap_or_default().into_iter().map(|run| (run.first, run.count, "free".to_owned()));
            findings.extend(check_runs(&disk, slabs.unwrap_or_default().into_iter().chain(free).collect()));
        }
        findings.extend(used.keys().map(|slot| format!("slabs lie on {slot}, which is no member")));
        let people_made: BTreeSet<SpaceId> =
            self.spaces.made_by_people().iter().map(|space| space.id()).collect();
        findings.extend(check_attributes_of(self.spaces.pool().map(), |id| people_made.contains(&id)).await?);
        Ok(findings)
    }

    /// Returns the ids of all rows that the map has a record of.
    async fn row_ids(self) -> Result<BTreeSet<RowId>, SpaceError> {
        const STEP: usize = 256;
        let (mut ids, mut from) = (BTreeSet::new(), Some(RowId(0)));
        while let Some(first) = from {
            let found = self.spaces.pool().map().scan(keys::rows_from(first), STEP).await?;
            ids.extend(found.iter().map(|(key, _)| RowId(keys::parts(key).1)));
            let last = found.last().map(|(key, _)| RowId(keys::parts(key).1)).filter(|_| found.len() == STEP);
            from = last.and_then(|last| last.0.checked_add(1)).map(RowId);
        }
        Ok(ids)
    }

    /// Blocks that no flush has covered and that nobody can decide now, by space and first byte.
    ///
    /// # Errors
    /// [`SpaceError`].
    #[pooled]
    pub(crate) async fn in_doubt_blocks(self) -> Result<Vec<(Rc<SpaceRows>, u64)>, SpaceError> {
        let in_doubt = self.spaces.shared.deferred.borrow().clone();
        let mut blocks = Vec::new();
        for ((id, index), candidates) in in_doubt {
            let space = self.spaces.all().into_iter().find(|space| space.id() == id);
            let Some(space) = space else { continue };
            let Some(row) = space.in_doubt_row(index).await? else { continue };
            let is_data = |(column, _): &(usize, u32)| *column < row.shape.data_columns();
            let open = candidates.iter().filter(|(place, candidates)| {
                is_data(place) && candidates.iter().any(Candidate::is_of_an_open_write)
            });
            let place_of = |(column, block): (usize, u32)| {
                index * space.row_bytes() + u64::from(row.shape.row_block(column, block)) * BLOCK_BYTES
            };
            let mut of_row: Vec<u64> = open.map(|(place, _)| place_of(*place)).collect();
            of_row.sort_unstable();
            blocks.extend(of_row.into_iter().map(|at| (Rc::clone(&space), at)));
        }
        Ok(blocks)
    }
}

pub(crate) async fn verify_one(
    space: &SpaceRows,
    index: u64,
    progress: &Progress,
) -> Result<RowVerdict, SpaceError> {
    let verdict = RowVerify::of(space).verify_row(index).await?;
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
