//! Segments of a write cache and the count of what lies in them.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::collections::VecDeque;
use std::rc::Rc;

use dolmen_block_io::Instant;
use dolmen_units::BLOCK_BYTES;
use dolmen_units::Lsn;
use dolmen_units::Name;
use dolmen_units::SpaceId;

use crate::format::record::{BlockState, CHECKSUM_BYTES, MAPPING_HEAD_BYTES, Mapping, Place};
use crate::resources::locks::Range;
use crate::resources::tickets::{FlushPoint, Ticket};
use crate::row_io::flusher::Flusher;
use crate::table::mapping::{Content, Version, Versions};
use crate::table::pages::TableStore;
use crate::table::redo::Redo;
use crate::table::row::Row;
use crate::table::space::{Cache, Segment, State};

/// Segments of a write cache and the count of what lies in them.
#[derive(Clone, Copy)]
pub(crate) struct CacheIndex<'a> {
    cache: &'a Cache,
}

impl<'a> CacheIndex<'a> {
    /// Returns the service for a write cache.
    pub(crate) fn of(cache: &'a Cache) -> Self {
        Self { cache }
    }
}

impl<'s> CacheIndex<'s> {
    pub(crate) fn now(self) -> Instant {
        self.cache.shared().pool.seams().clock.now()
    }

    /// Whether a row of the cache has a copy here that counts, and nothing that the log says of it waits for disks.
    pub(crate) fn can_be_filled(self, row: &Row) -> bool {
        TableStore::of(self.cache.shared()).is_in_reach(row, 0) && !self.cache.shared().is_deferred(row)
    }

    pub(crate) fn open_for(self, filling: Filling) -> &'s Cell<Option<usize>> {
        let [writes, parity] = &self.cache.open;
        match filling {
            Filling::Writes => writes,
            Filling::Parity => parity,
        }
    }

    pub(crate) fn segment_blocks(self) -> u32 {
        u32::try_from(self.cache.space.row_bytes() / BLOCK_BYTES).unwrap_or(u32::MAX)
    }

    /// Blocks kept back: what it takes to put the oldest row in place, each block of it in a stripe of its own.
    pub(crate) fn kept(self) -> u64 {
        u64::from(self.cache.space.spec().resiliency.copies()) * u64::from(self.segment_blocks())
    }

    /// Blocks that can be filled.
    pub(crate) fn free(self) -> u64 {
        let whole = u64::from(self.segment_blocks());
        let lacks_disks = self.cache.shared().pool.members().lacks_disks();
        let of = |segment: &Segment| match segment.state {
            _ if segment.is_retiring => 0,
            // It waits for disks.
            _ if self.cache.shared().is_deferred(&segment.row) => 0,
            _ if lacks_disks && !self.can_be_filled(&segment.row) => 0,
            State::Free => whole,
            State::Open => whole - u64::from(segment.filled),
            State::Full | State::Drained(_) | State::Discarded(_) | State::Leaving => 0,
        };
        self.cache.segments.borrow().iter().map(of).sum()
    }

    /// Of them, those in the row that is being filled with parity, which writes do not get.
    pub(crate) fn free_for_parity(self) -> u64 {
        let segments = self.cache.segments.borrow();
        let open = self.open_for(Filling::Parity).get().and_then(|at| segments.get(at));
        let open = open.filter(|segment| !segment.is_retiring && self.can_be_filled(&segment.row));
        open.map_or(0, |segment| u64::from(self.segment_blocks() - segment.filled))
    }

    pub(crate) fn capacity(self) -> u64 {
        let stay = self.cache.segments.borrow().iter().filter(|segment| !segment.is_retiring).count();
        stay as u64 * u64::from(self.segment_blocks())
    }

    /// Versions that there may be: so that the log can say all of them again, with those of other caches.
    pub(crate) fn versions_max(self) -> u64 {
        let (log, _) = self.cache.shared().pool.identity().metadata_bytes();
        log.0 / RELOG_SHARE / RELOG_BYTES / self.cache.shared().cache_count().max(1)
    }

    /// Whether it should be emptied.
    pub(crate) fn wants_room(self) -> bool {
        self.has_waiting() || self.is_congested()
    }

    /// The same, whether somebody waits or not.
    pub(crate) fn is_congested(self) -> bool {
        let live: u64 = self.cache.segments.borrow().iter().map(|segment| u64::from(segment.live)).sum();
        live * 100 > self.capacity() * u64::from(self.cache.drain.get().fill)
            || self.cache.versions.get() * 2 > self.versions_max()
    }

    /// Whether it is crowded, and not least by what lies in the row that is being filled.
    pub(crate) fn is_congested_by_open(self) -> bool {
        let segments = self.cache.segments.borrow();
        let open = self.open_for(Filling::Writes).get().and_then(|at| segments.get(at));
        self.is_congested() && open.is_some_and(|open| u64::from(open.live) * 4 > self.cache.versions.get())
    }

    /// Whether somebody waits for room.
    pub(crate) fn has_waiting(self) -> bool {
        self.cache.waiting.get() > 0
    }

    pub(crate) fn place(self, at: usize, block: u32) -> Place {
        let segments = self.cache.segments.borrow();
        Place { row: segments.get(at).map(|segment| segment.row.id).unwrap_or_default(), block }
    }

    pub(crate) fn note_written(self, at: usize, row: &Rc<Row>, range: Range) {
        if let Some(segment) = self.cache.segments.borrow_mut().get_mut(at) {
            segment.contents.push((Rc::clone(row), range));
        }
    }

    /// Notes a version of a block.
    pub(crate) fn add(self, row: &Rc<Row>, block: u32, version: Version) {
        let mut rows = self.cache.rows.borrow_mut();
        let known = rows.entry((row.space, row.index)).or_insert_with(|| Rc::clone(row));
        if known.id != row.id {
            *known = Rc::clone(row);
        }
        drop(rows);
        self.cache.versions.set(self.cache.versions.get() + 1);
        if let Some(place) = version.content.place() {
            self.count_live(place);
        }
        row.mappings.add(block, version);
        let superseded = row.mappings.prune(block, |version| self.is_covered(version));
        self.forget(&superseded);
    }

    /// As [`add`](Self::add), for what recovery found: the row that it lies in has content.
    pub(crate) fn add_recovered(self, row: &Rc<Row>, block: u32, version: Version) {
        if let Some(at) = version.content.place().and_then(|place| self.cache.segment_of(place)) {
            self.note_written(at, row, Range { first: block, count: 1 });
        }
        self.add(row, block, version);
    }

    /// Notes that a block of the cache is needed.
    pub(crate) fn count_live(self, place: Place) {
        let Some(at) = self.cache.segment_of(place) else { return };
        let mut full = self.cache.full.borrow_mut();
        if let Some(segment) = self.cache.segments.borrow_mut().get_mut(at) {
            segment.live += 1;
            if matches!(segment.state, State::Drained(_)) {
                segment.state = State::Full;
                segment.filled = self.segment_blocks();
                queue(&mut full, at, segment.is_retiring);
            }
        }
    }

    /// Notes that a block of the cache is not needed any more, once a flush has covered what was recorded until now.
    pub(crate) fn count_dead(self, place: Place) {
        self.cache.kept.forget(place);
        let Some(at) = self.cache.segment_of(place) else { return };
        if let Some(segment) = self.cache.segments.borrow_mut().get_mut(at) {
            segment.live = segment.live.saturating_sub(1);
            self.note_drained(at, segment);
        }
    }

    pub(crate) fn note_drained(self, at: usize, segment: &mut Segment) {
        if segment.state == State::Full && segment.live == 0 {
            segment.state = State::Drained(Flusher::of(self.cache.shared()).flush_point());
            segment.contents.clear();
            self.cache.full.borrow_mut().retain(|other| *other != at);
        }
    }

    /// Notes that versions are none any more.
    pub(crate) fn forget(self, versions: &Versions) {
        self.cache.versions.set(self.cache.versions.get().saturating_sub(versions.len() as u64));
        versions
            .iter()
            .filter_map(|version| version.content.place())
            .for_each(|place| self.count_dead(place));
    }

    /// Notes that a row may be in place altogether.
    pub(crate) fn forget_if_empty(self, row: &Row) {
        let mut rows = self.cache.rows.borrow_mut();
        let key = (row.owner(), row.index);
        // Another row may have taken the place of one that somebody still reads.
        if row.mappings.is_empty() && rows.get(&key).is_some_and(|other| other.is_paired_with(row)) {
            rows.remove(&key);
        }
    }

    /// Notes that a row is freed: what is cached of it is nobody's.
    pub(crate) fn forget_row(self, row: &Row) {
        let versions: Versions = row.mappings.clear().into_iter().collect();
        self.forget(&versions);
        let mut unfinished = self.cache.unfinished.borrow_mut();
        let (freed, left) =
            std::mem::take(&mut *unfinished).into_iter().partition(|redo| redo.row.is_paired_with(row));
        *unfinished = left;
        drop(unfinished);
        let freed: Vec<Redo> = freed;
        freed.iter().for_each(|redo| self.forget_redo(redo));
        self.forget_if_empty(row);
        self.cache.notify.notify_all();
    }

    /// Keeps a stripe to be finished later. Its data may be written again meanwhile: what it needs of it stays in the cache.
    pub(crate) fn leave_unfinished(self, mut redo: Redo) {
        if !redo.owns_all {
            let parity: Vec<Place> = redo.own_places().collect();
            redo.owns_all = true;
            let data = redo.own_places().filter(|place| !parity.contains(place));
            data.for_each(|place| self.count_live(place));
        }
        self.cache.unfinished.borrow_mut().push(redo);
    }

    /// Notes that what a redo brought is not needed any more.
    pub(crate) fn forget_redo(self, redo: &Redo) {
        redo.own_places().for_each(|place| self.count_dead(place));
    }

    /// The space, and the byte of it, whose newest content lies in a block of the cache.
    pub(crate) fn owner_of(self, index: u64, block: u64) -> Option<(Name, u64)> {
        let segments = self.cache.segments.borrow();
        let cache_row = segments.iter().find(|segment| segment.row.index == index)?.row.id;
        let is_there = |place: Place| place.row == cache_row && u64::from(place.block) == block;
        self.cache.rows.borrow().values().find_map(|row| {
            let of_row = row.mappings.all();
            let (at, _) = of_row.iter().find(|(at, version)| {
                version.content.place().is_some_and(is_there) && row.mappings.newest(*at) == Some(*version)
            })?;
            Some((
                self.cache.owner(row.space)?.name(),
                row.index * row.bytes() + u64::from(*at) * BLOCK_BYTES,
            ))
        })
    }

    /// Whether a flush has covered a version, so that it takes the place of those before it for good.
    pub(crate) fn is_covered(self, version: &Version) -> bool {
        self.is_flushed(version) && !version.content.place().is_some_and(|place| self.is_out_of_reach(place))
    }

    /// The same, whether its place can be asked now or not.
    pub(crate) fn is_flushed(self, version: &Version) -> bool {
        let is_stale =
            |ticket| Flusher::of(self.cache.shared()).has_covered(FlushPoint::after(ticket, version.since));
        version.ticket.is_none_or(is_stale)
    }

    /// Whether what the log says of a cache row waits for absent disks.
    pub(crate) fn is_out_of_reach(self, place: Place) -> bool {
        self.cache.row_of(place).is_some_and(|row| self.cache.shared().is_deferred(&row))
    }

    /// Whether rows wait for a flush to be filled again.
    pub(crate) fn has_recyclable(self) -> bool {
        let segments = self.cache.segments.borrow();
        segments.iter().any(|segment| matches!(segment.state, State::Drained(_) | State::Discarded(_)))
    }

    /// The oldest full row.
    pub(crate) fn oldest(self) -> Option<usize> {
        self.cache.full.borrow().front().copied()
    }

    /// Blocks in the row that was closed last.
    pub(crate) fn newest(self) -> BlocksOfRows {
        let newest = self.cache.full.borrow().back().copied();
        newest.map(|at| self.blocks_in(at)).unwrap_or_default()
    }

    /// Blocks in a row.
    pub(crate) fn blocks_in(self, at: usize) -> BlocksOfRows {
        let mut found = BlocksOfRows::new();
        let segments = self.cache.segments.borrow();
        let Some(segment) = segments.get(at) else { return found };
        for (row, range) in segment.contents.iter().filter(|(row, _)| !row.freed.get()) {
            let entry = found.entry((row.space, row.index)).or_insert_with(|| (Rc::clone(row), Vec::new()));
            let is_here = |block: &u32| {
                let versions = row.mappings.versions(*block);
                let mut places = versions.iter().filter_map(|version| version.content.place());
                places.any(|place| place.row == segment.row.id)
            };
            entry.1.extend((range.first..range.first + range.count).filter(is_here));
        }
        found
    }

    /// Blocks of a row of the cache that hold a version of something.
    pub(crate) fn places_held(self, at: usize) -> BTreeSet<u32> {
        let segments = self.cache.segments.borrow();
        let Some(segment) = segments.get(at) else { return BTreeSet::new() };
        let contents = segment.contents.iter().filter(|(row, _)| !row.freed.get());
        let versions = contents.flat_map(|(row, range)| {
            let blocks = range.first..range.first + range.count;
            blocks.flat_map(|block| row.mappings.versions(block))
        });
        let places = versions.filter_map(|version| version.content.place());
        places.filter(|place| place.row == segment.row.id).map(|place| place.block).collect()
    }

    /// Blocks that were discarded.
    pub(crate) fn discarded(self) -> BlocksOfRows {
        let mut found = BlocksOfRows::new();
        for (key, row) in &*self.cache.rows.borrow() {
            let all = row.mappings.all().into_iter();
            let blocks: Vec<u32> = all
                .filter(|(_, version)| version.content.place().is_none())
                .map(|(block, _)| block)
                .collect();
            if !blocks.is_empty() {
                found.insert(*key, (Rc::clone(row), blocks));
            }
        }
        found
    }

    /// How many rows are full.
    pub(crate) fn full_count(self) -> usize {
        self.cache.full.borrow().len()
    }

    /// Puts the oldest row, which could not be emptied, behind the others.
    pub(crate) fn pass_over(self, oldest: usize) {
        let mut full = self.cache.full.borrow_mut();
        if full.front() == Some(&oldest) {
            full.rotate_left(1);
        }
    }

    /// Whether stripes of a row or of its shadow row may be half in place.
    pub(crate) fn has_unfinished_pair(self, row: &Row) -> bool {
        self.cache.unfinished.borrow().iter().any(|redo| redo.row.is_paired_with(row))
    }
}

/// Notes that a row is full.
pub(crate) fn queue(full: &mut VecDeque<usize>, at: usize, is_retiring: bool) {
    match is_retiring {
        true => full.push_front(at),
        false => full.push_back(at),
    }
}

pub(crate) fn version(content: Content, lsn: Lsn, ticket: Ticket) -> Version {
    Version { content, since: lsn, relogged: lsn, ticket: Some(ticket) }
}

/// Whether what lies in a block of the cache, of which its table says this, may be what was put there: its table may be lost.
pub(crate) fn may_hold(state: BlockState, checksum: u32) -> bool {
    matches!(state, BlockState::Damaged) || state == BlockState::Valid(checksum)
}

pub(crate) fn mapping_of(row: &Row, first: u32, count: u32, place: Option<Place>) -> Mapping {
    Mapping { row: row.id, first, count, place, since: None, in_doubt: false, covered: false, void: false }
}

/// Which of the rows that are being filled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Filling {
    /// That of writes.
    Writes,
    /// That of parity.
    Parity,
}

/// Blocks of rows of strict spaces, by row.
pub(crate) type BlocksOfRows = BTreeMap<(SpaceId, u64), (Rc<Row>, Vec<u32>)>;

/// Bytes that saying one mapping again takes, at most.
pub(crate) const RELOG_BYTES: u64 = 48;
const _: () = assert!(RELOG_BYTES == (MAPPING_HEAD_BYTES + CHECKSUM_BYTES) as u64, "a mapping of one block");

/// The part of the log that saying the mappings of all caches again may take: so much that it fits beside a log in which
/// writes wait already, wherever in it they stand.
pub(crate) const RELOG_SHARE: u64 = 8;
