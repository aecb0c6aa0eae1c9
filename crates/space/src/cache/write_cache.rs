//! The write cache in front of strict spaces: cache rows, filled one after another and emptied in turn (docs/design/0004).
//!
//! Invariants:
//! - A cache block is written only when it is fresh: nothing that a flush has covered is ever overwritten here.
//! - A row is filled again only when a flush has covered its discard, which comes behind a flush that covered that all of it
//!   was put in place, or was superseded.
//! - So many blocks are kept back from writes that the oldest row can always be emptied.
//!
//! Left to others: how large it is (`cache_size`); who gets room (`promise`); what is put in place, and how (`destage`);
//! copies, tables and checksums of cache rows, which are mirror rows.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::rc::Rc;

use dolmen_block_io::sync::Notify;
use dolmen_buffer::Shared as Bytes_;
use dolmen_future_pool::pooled;
use dolmen_journal::Wait;
use dolmen_units::{BLOCK_BYTES, Lsn, Name, SpaceId};

use crate::cache::drain_settings::WriteCacheDrain;
use crate::cache::gathering::Gathering;
use crate::cache::kept::Kept;
use crate::cache::promise::Reserved;
use crate::cache::redo::Redo;
use crate::cache::space::{Cache, Segment, Shared, Space, State};
use crate::format::error::{SpaceError, UnreadableReason};
use crate::format::record::{BlockState, Mapping, Place, RECORD_BYTES_MAX};
use crate::layout::BLOCK;
use crate::resources::flow::Flow;
use crate::resources::locks::Range;
use crate::resources::ranks;
use crate::resources::tickets::{FlushPoint, Ticket};
use crate::row_io::parts::{RecordExtra, Wrote};
use crate::table::mapping::{Content, IN_DOUBT, Version, Versions};
use crate::table::row::Row;

/// Bytes of a write that are cached in one go, at most.
pub(crate) const CACHED_BYTES_MAX: usize = 1 << 20;
/// The part of the log that saying the mappings of all caches again may take: so much that it fits beside a log in which
/// writes wait already, wherever in it they stand.
const RELOG_SHARE: u64 = 8;
/// Bytes that saying one mapping again takes, at most.
pub(crate) const RELOG_BYTES: u64 = 68;
/// Rows that are discarded in one turn, at most: a checkpoint waits for that, and each takes some of the log.
const DISCARDED_TOGETHER: usize = 16;
/// Flushes until a row that holds nothing any more can be filled: one covers that, another its discard.
const FLUSHES_TO_FREE: usize = 2;

/// Blocks of rows of strict spaces, by row.
pub(crate) type BlocksOfRows = BTreeMap<(SpaceId, u64), (Rc<Row>, Vec<u32>)>;

/// Which of the rows that are being filled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Filling {
    /// That of writes.
    Writes,
    /// That of parity.
    Parity,
}

impl Cache {
    /// The cache in the rows of a space, once these were recovered. What they hold is noted afterwards.
    #[pooled]
    pub(crate) async fn start(space: Rc<Space>) -> Result<Rc<Self>, SpaceError> {
        let count = space.size().0 / space.row_bytes();
        // As much memory as there is for small pieces of metadata, beside that.
        let kept = space.shared.pool.seams().metadata.frame_count(BLOCK);
        let of_row = u32::try_from(space.row_bytes() / BLOCK_BYTES).unwrap_or(u32::MAX);
        let drain = WriteCacheDrain::read(&space.shared.pool, space.id()).await?;
        let mut segments = Vec::new();
        for index in 0..count {
            let Some(row) = space.in_doubt_row(index).await? else { continue };
            segments.push(Segment::new(row, State::Drained(FlushPoint::default())));
        }
        let mutex = ranks::cache(space.id());
        Ok(Rc::new(Self {
            space,
            segments: RefCell::new(segments),
            full: RefCell::default(),
            open: Default::default(),
            reserved: Cell::new(0),
            promised: Cell::new(0),
            versions: Cell::new(0),
            owners: RefCell::default(),
            rows: RefCell::default(),
            unfinished: RefCell::default(),
            recorded: RefCell::default(),
            declared_lost: RefCell::default(),
            notify: Notify::new(),
            mutex,
            is_running: Cell::new(false),
            hurry: Rc::default(),
            drain: Cell::new(drain),
            waiting: Cell::new(0),
            gathering: Gathering::default(),
            kept: Kept::new(kept, of_row),
            tries: Cell::new(0),
            stuck: RefCell::default(),
            backing_full: RefCell::default(),
            waits_for_copies: Cell::new(false),
            not_brought: RefCell::default(),
            lacks_since: Cell::new(None),
            lacks_room: RefCell::default(),
            waits_for_others: Cell::new(false),
            size_mutex: ranks::cache_size(),
            is_deleting: Cell::new(false),
            filled: Flow::default(),
            destaged: Flow::default(),
        }))
    }

    /// The space that its rows are of.
    pub(crate) fn space(&self) -> &Rc<Space> {
        &self.space
    }

    /// Notes a space that it is for, for rows of one of its layouts.
    pub(crate) fn add_owner(self: &Rc<Self>, space: &Rc<Space>, layout: u8) {
        self.owners.borrow_mut().insert(space.id(), Rc::downgrade(space));
        if let Some(cache) = space.caches.borrow_mut().get_mut(usize::from(layout)) {
            *cache = Some(Rc::clone(self));
        }
    }

    /// Notes that a space has no rows any more that it is for.
    pub(crate) fn forget_owner(&self, space: SpaceId) {
        self.owners.borrow_mut().remove(&space);
    }

    /// The space that it is for and that has this number.
    pub(crate) fn owner(&self, id: SpaceId) -> Option<Rc<Space>> {
        self.owners.borrow().get(&id)?.upgrade()
    }

    pub(crate) fn shared(&self) -> &Rc<Shared> {
        &self.space.shared
    }

    pub(crate) fn segment_blocks(&self) -> u32 {
        u32::try_from(self.space.row_bytes() / BLOCK_BYTES).unwrap_or(u32::MAX)
    }

    /// Blocks kept back: what it takes to put the oldest row in place, each block of it in a stripe of its own.
    pub(crate) fn kept(&self) -> u64 {
        u64::from(self.space.spec().resiliency.copies()) * u64::from(self.segment_blocks())
    }

    /// Blocks that can be filled.
    pub(crate) fn free(&self) -> u64 {
        let whole = u64::from(self.segment_blocks());
        let lacks_disks = self.shared().pool.members().lacks_disks();
        let of = |segment: &Segment| match segment.state {
            _ if segment.is_retiring => 0,
            // It waits for disks.
            _ if self.shared().is_deferred(&segment.row) => 0,
            _ if lacks_disks && !self.can_be_filled(&segment.row) => 0,
            State::Free => whole,
            State::Open => whole - u64::from(segment.filled),
            State::Full | State::Drained(_) | State::Discarded(_) | State::Leaving => 0,
        };
        self.segments.borrow().iter().map(of).sum()
    }

    /// Of them, those in the row that is being filled with parity, which writes do not get.
    pub(crate) fn free_for_parity(&self) -> u64 {
        let segments = self.segments.borrow();
        let open = self.open_for(Filling::Parity).get().and_then(|at| segments.get(at));
        let open = open.filter(|segment| !segment.is_retiring && self.can_be_filled(&segment.row));
        open.map_or(0, |segment| u64::from(self.segment_blocks() - segment.filled))
    }

    fn capacity(&self) -> u64 {
        let stay = self.segments.borrow().iter().filter(|segment| !segment.is_retiring).count();
        stay as u64 * u64::from(self.segment_blocks())
    }

    /// Versions that there may be: so that the log can say all of them again, with those of other caches.
    pub(crate) fn versions_max(&self) -> u64 {
        let (log, _) = self.shared().pool.identity().metadata_bytes();
        log.0 / RELOG_SHARE / RELOG_BYTES / self.shared().cache_count().max(1)
    }

    /// Whether it should be emptied.
    pub(crate) fn wants_room(&self) -> bool {
        self.has_waiting() || self.is_congested()
    }

    /// The same, whether somebody waits or not.
    pub(crate) fn is_congested(&self) -> bool {
        let live: u64 = self.segments.borrow().iter().map(|segment| u64::from(segment.live)).sum();
        live * 100 > self.capacity() * u64::from(self.drain.get().fill)
            || self.versions.get() * 2 > self.versions_max()
    }

    /// Whether it is crowded, and not least by what lies in the row that is being filled.
    pub(crate) fn is_congested_by_open(&self) -> bool {
        let segments = self.segments.borrow();
        let open = self.open_for(Filling::Writes).get().and_then(|at| segments.get(at));
        self.is_congested() && open.is_some_and(|open| u64::from(open.live) * 4 > self.versions.get())
    }

    /// Whether somebody waits for room.
    pub(crate) fn has_waiting(&self) -> bool {
        self.waiting.get() > 0
    }

    /// Writes to a row of the cache.
    #[pooled]
    pub(crate) async fn write(
        &self,
        (at, first): (usize, u32),
        data: &Bytes_,
        extra: RecordExtra<'_>,
    ) -> Result<Wrote, SpaceError> {
        let count = u32::try_from(data.len() / BLOCK).unwrap_or(0);
        let index = self.segments.borrow().get(at).map_or(0, |segment| segment.row.index);
        let row = self.decided_row(index, first).await?;
        let _guard = row.locks.lock(Range { first, count }).await;
        self.check_decided(&row, first)?;
        self.shared().commit_absences(&row).await?;
        self.space.write_blocks(&row, first, data, extra).await
    }

    /// A row of the cache. What the log says of it is not decided here: that ends in a checkpoint, and whoever calls may hold
    /// what a checkpoint waits for.
    async fn decided_row(&self, index: u64, block: u32) -> Result<Rc<Row>, SpaceError> {
        let row = self.space.in_doubt_row(index).await?;
        let row = row.ok_or_else(|| SpaceError::Deleted { name: self.space.name() })?;
        self.check_decided(&row, block)?;
        Ok(row)
    }

    fn check_decided(&self, row: &Row, block: u32) -> Result<(), SpaceError> {
        if row.freed.get() || self.shared().is_deferred(row) {
            return Err(self.shared().unreadable(row, 0, block as usize, UnreadableReason::Absent));
        }
        Ok(())
    }

    /// Decides what the log says of cache rows in which blocks of a row lie, now that their disks may be here. Called without
    /// any lock.
    ///
    /// # Errors
    /// [`SpaceError::Unreadable`] while they are not.
    pub(crate) async fn decide(&self, row: &Row, range: Range) -> Result<(), SpaceError> {
        if self.shared().has_decided_all() {
            return Ok(());
        }
        for block in row.mappings.in_range(range.first..range.first + range.count) {
            self.decide_versions(&row.mappings.versions(block)).await?;
        }
        Ok(())
    }

    /// Decides the versions of a block that are asked what it holds: an older one only where all that are newer came to nothing.
    async fn decide_versions(&self, versions: &Versions) -> Result<(), SpaceError> {
        for version in versions.iter().rev() {
            if let Some(place) = version.content.place().filter(|place| self.is_out_of_reach(*place)) {
                self.space.row(u64::from(place.index)).await?;
            }
            if !self.is_void(version).await? {
                break;
            }
        }
        Ok(())
    }

    /// The row of the cache that has this number among them.
    pub(crate) fn row_at(&self, at: usize) -> Option<Rc<Row>> {
        self.segments.borrow().get(at).map(|segment| Rc::clone(&segment.row))
    }

    fn place(&self, at: usize, block: u32) -> Place {
        let segments = self.segments.borrow();
        let row = segments.get(at).map(|segment| &segment.row);
        let index = row.and_then(|row| u32::try_from(row.index).ok()).unwrap_or(u32::MAX);
        Place { row: row.map(|row| row.id).unwrap_or_default(), index, block }
    }

    /// Caches whole blocks of a row. The caller holds their lock, and has reserved room.
    #[pooled]
    pub(crate) async fn put(
        self: &Rc<Self>,
        row: &Rc<Row>,
        first: u32,
        data: &Bytes_,
        reserved: &mut Reserved<'_>,
    ) -> Result<(), SpaceError> {
        let held = self.shared().tickets.begin();
        let mut done = 0;
        while done < data.len() {
            let left = u32::try_from((data.len() - done) / BLOCK).unwrap_or(u32::MAX);
            let from = first + u32::try_from(done / BLOCK).unwrap_or(0);
            let Some((at, block, count)) = self.take(Filling::Writes, left) else {
                return Err(self.full_up());
            };
            reserved.release(count.into(), 0);
            let place = self.place(at, block);
            let piece = data.slice(done..done + count as usize * BLOCK);
            let mapping = mapping_of(row, from, count, Some(place));
            let wrote = self.write_mapped((at, block), piece.clone(), mapping).await?;
            self.note_written(at, row, Range { first: from, count });
            self.filled.add(self.now(), piece.len() as u64);
            self.kept.put(place, &piece);
            for (number, state) in (0..).zip(&wrote.states) {
                let BlockState::Valid(checksum) = *state else { continue };
                let content = Content::Cached { place: place.plus(number), checksum };
                self.add(row, from + number, version(content, wrote.lsn, held.ticket()));
            }
            // Not before they count themselves: as many as there are writes under way would come on top of what there may be.
            reserved.release(0, count.into());
            self.defer_what_left(at, (block, count)).await?;
            done += piece.len();
        }
        if self.wants_room() {
            self.empty_soon();
        }
        Ok(())
    }

    /// Caches that blocks of a row are discarded. The caller holds their lock.
    pub(crate) async fn discard(self: &Rc<Self>, row: &Rc<Row>, ranges: &[Range]) -> Result<(), SpaceError> {
        let held = self.shared().tickets.begin();
        for some in ranges.chunks(RECORD_BYTES_MAX / 64) {
            let bodies = some.iter().map(|range| mapping_of(row, range.first, range.count, None).head());
            let lsn = self.shared().record(&bodies.flatten().collect::<Vec<u8>>(), Wait::Written).await?;
            for range in some {
                for block in range.first..range.first + range.count {
                    self.add(row, block, version(Content::Discarded, lsn, held.ticket()));
                }
            }
        }
        Ok(())
    }

    /// Writes parity, or what else stripes become, together with the record that they are about to be written in place, to
    /// blocks that `body` names: it is given the first of them. The number of the record.
    pub(crate) async fn put_redo(
        &self,
        content: &Bytes_,
        body: impl FnOnce(Place) -> Vec<u8>,
    ) -> Result<Lsn, SpaceError> {
        let blocks = u32::try_from(content.len() / BLOCK).unwrap_or(0);
        let (at, first, _) = self.take(Filling::Parity, blocks).ok_or_else(|| self.full_up())?;
        let body = body(self.place(at, first));
        Ok(self.write((at, first), content, RecordExtra::Redo(&body)).await?.lsn)
    }

    fn full_up(&self) -> SpaceError {
        SpaceError::CacheFull { name: self.space.name() }
    }

    fn note_written(&self, at: usize, row: &Rc<Row>, range: Range) {
        if let Some(segment) = self.segments.borrow_mut().get_mut(at) {
            segment.contents.push((Rc::clone(row), range));
        }
    }

    /// Notes a version of a block.
    pub(crate) fn add(&self, row: &Rc<Row>, block: u32, version: Version) {
        let mut rows = self.rows.borrow_mut();
        let known = rows.entry((row.space, row.index)).or_insert_with(|| Rc::clone(row));
        if known.id != row.id {
            *known = Rc::clone(row);
        }
        drop(rows);
        self.versions.set(self.versions.get() + 1);
        if let Some(place) = version.content.place() {
            self.count_live(place);
        }
        row.mappings.add(block, version);
        let superseded = row.mappings.prune(block, |version| self.is_covered(version));
        self.forget(&superseded);
    }

    /// As [`add`](Self::add), for what recovery found: the row that it lies in has content.
    pub(crate) fn add_recovered(&self, row: &Rc<Row>, block: u32, version: Version) {
        if let Some(at) = version.content.place().and_then(|place| self.segment_of(place)) {
            self.note_written(at, row, Range { first: block, count: 1 });
        }
        self.add(row, block, version);
    }

    fn segment_of(&self, place: Place) -> Option<usize> {
        let segments = self.segments.borrow();
        let is_it = |one: &Segment| one.row.index == u64::from(place.index) && one.row.id == place.row;
        // Each has the place of its number, but behind one that could not be had.
        let usual = usize::try_from(place.index).ok().filter(|at| segments.get(*at).is_some_and(is_it));
        usual.or_else(|| segments.iter().position(is_it))
    }

    /// Notes that a block of the cache is needed.
    pub(crate) fn count_live(&self, place: Place) {
        let Some(at) = self.segment_of(place) else { return };
        let mut full = self.full.borrow_mut();
        if let Some(segment) = self.segments.borrow_mut().get_mut(at) {
            segment.live += 1;
            if matches!(segment.state, State::Drained(_)) {
                segment.state = State::Full;
                segment.filled = self.segment_blocks();
                queue(&mut full, at, segment.is_retiring);
            }
        }
    }

    /// Notes that a block of the cache is not needed any more, once a flush has covered what was recorded until now.
    pub(crate) fn count_dead(&self, place: Place) {
        self.kept.forget(place);
        let Some(at) = self.segment_of(place) else { return };
        if let Some(segment) = self.segments.borrow_mut().get_mut(at) {
            segment.live = segment.live.saturating_sub(1);
            self.note_drained(at, segment);
        }
    }

    pub(crate) fn note_drained(&self, at: usize, segment: &mut Segment) {
        if segment.state == State::Full && segment.live == 0 {
            segment.state = State::Drained(self.shared().flush_point());
            segment.contents.clear();
            self.full.borrow_mut().retain(|other| *other != at);
        }
    }

    /// Notes that versions are none any more.
    pub(crate) fn forget(&self, versions: &Versions) {
        self.versions.set(self.versions.get().saturating_sub(versions.len() as u64));
        versions
            .iter()
            .filter_map(|version| version.content.place())
            .for_each(|place| self.count_dead(place));
    }

    /// Notes that a row may be in place altogether.
    pub(crate) fn forget_if_empty(&self, row: &Row) {
        let mut rows = self.rows.borrow_mut();
        let key = (row.owner(), row.index);
        // Another row may have taken the place of one that somebody still reads.
        if row.mappings.is_empty() && rows.get(&key).is_some_and(|other| other.is_paired_with(row)) {
            rows.remove(&key);
        }
    }

    /// Notes that a row is freed: what is cached of it is nobody's.
    pub(crate) fn forget_row(&self, row: &Row) {
        let versions: Versions = row.mappings.clear().into_iter().collect();
        self.forget(&versions);
        let mut unfinished = self.unfinished.borrow_mut();
        let (freed, left) =
            std::mem::take(&mut *unfinished).into_iter().partition(|redo| redo.row.is_paired_with(row));
        *unfinished = left;
        drop(unfinished);
        let freed: Vec<Redo> = freed;
        freed.iter().for_each(|redo| self.forget_redo(redo));
        self.forget_if_empty(row);
        self.notify.notify_all();
    }

    /// Keeps a stripe to be finished later. Its data may be written again meanwhile: what it needs of it stays in the cache.
    pub(crate) fn leave_unfinished(&self, mut redo: Redo) {
        if !redo.owns_all {
            let parity: Vec<Place> = redo.own_places().collect();
            redo.owns_all = true;
            let data = redo.own_places().filter(|place| !parity.contains(place));
            data.for_each(|place| self.count_live(place));
        }
        self.unfinished.borrow_mut().push(redo);
    }

    /// Notes that what a redo brought is not needed any more.
    pub(crate) fn forget_redo(&self, redo: &Redo) {
        redo.own_places().for_each(|place| self.count_dead(place));
    }

    /// The space, and the byte of it, whose newest content lies in a block of the cache.
    pub(crate) fn owner_of(&self, index: u64, block: u64) -> Option<(Name, u64)> {
        let is_there = |place: Place| u64::from(place.index) == index && u64::from(place.block) == block;
        self.rows.borrow().values().find_map(|row| {
            let of_row = row.mappings.all();
            let (at, _) = of_row.iter().find(|(at, version)| {
                version.content.place().is_some_and(is_there) && row.mappings.newest(*at) == Some(*version)
            })?;
            Some((self.owner(row.space)?.name(), row.index * row.bytes() + u64::from(*at) * BLOCK_BYTES))
        })
    }

    /// Whether a flush has covered a version, so that it takes the place of those before it for good.
    pub(crate) fn is_covered(&self, version: &Version) -> bool {
        self.is_flushed(version) && !version.content.place().is_some_and(|place| self.is_out_of_reach(place))
    }

    /// The same, whether its place can be asked now or not.
    pub(crate) fn is_flushed(&self, version: &Version) -> bool {
        let is_stale = |ticket| self.shared().has_covered(FlushPoint::after(ticket, version.since));
        version.ticket.is_none_or(is_stale)
    }

    /// Whether what the log says of a cache row waits for absent disks.
    pub(crate) fn is_out_of_reach(&self, place: Place) -> bool {
        let segments = self.segments.borrow();
        let row = segments.iter().find(|segment| segment.row.index == u64::from(place.index));
        row.is_some_and(|segment| self.shared().is_deferred(&segment.row))
    }

    /// Discards rows that hold nothing any more, and frees those whose discard a flush has covered; whether any.
    #[pooled]
    pub(crate) async fn recycle(&self) -> Result<bool, SpaceError> {
        self.log_abandoned().await?;
        let (mut has_freed, mut discarded) = (false, 0);
        let count = self.segments.borrow().len();
        for at in 0..count {
            if discarded == DISCARDED_TOGETHER {
                break;
            }
            let found =
                self.segments.borrow().get(at).map(|segment| (segment.state, Rc::clone(&segment.row)));
            let Some((state, row)) = found else { continue };
            let next = match state {
                State::Drained(since) if self.shared().has_covered(since) => {
                    if self.shared().is_deferred(&row) {
                        continue;
                    }
                    match self.space.discard_row(&row).await {
                        Ok(0) => State::Free,
                        Ok(_) => {
                            discarded += 1;
                            State::Discarded(self.shared().flush_point())
                        }
                        // Its disks are away: it waits for them.
                        Err(SpaceError::Unreadable { .. }) => continue,
                        Err(error) => return Err(error),
                    }
                }
                State::Discarded(since) if self.shared().has_covered(since) => State::Free,
                State::Free
                | State::Open
                | State::Full
                | State::Drained(_)
                | State::Discarded(_)
                | State::Leaving => continue,
            };
            if let Some(segment) = self.segments.borrow_mut().get_mut(at) {
                if next == State::Free {
                    has_freed = true;
                    segment.filled = 0;
                    segment.contents.clear();
                }
                segment.state = next;
            }
        }
        if has_freed {
            self.stuck.borrow_mut().take();
            self.notify.notify_all();
        }
        Ok(has_freed)
    }

    /// Gets room for the parity of one record ready, if there is none: rows that hold nothing any more wait for flushes. Whether
    /// any row was freed.
    pub(crate) async fn make_ready(&self) -> Result<bool, SpaceError> {
        let mut has_freed = self.recycle().await?;
        if !self.has_room_for_parity() {
            // What is left of the row is too little for anybody; closed, it may be one that holds nothing any more.
            self.close(Filling::Parity);
        }
        for _ in 0..FLUSHES_TO_FREE {
            if self.has_room_for_parity() || !self.has_recyclable() {
                break;
            }
            self.shared().force_flush().await?;
            has_freed |= self.recycle().await?;
        }
        Ok(has_freed)
    }

    /// Whether rows wait for a flush to be filled again.
    pub(crate) fn has_recyclable(&self) -> bool {
        let segments = self.segments.borrow();
        segments.iter().any(|segment| matches!(segment.state, State::Drained(_) | State::Discarded(_)))
    }

    /// The oldest full row.
    pub(crate) fn oldest(&self) -> Option<usize> {
        self.full.borrow().front().copied()
    }

    /// Blocks in the row that was closed last.
    pub(crate) fn newest(&self) -> BlocksOfRows {
        let newest = self.full.borrow().back().copied();
        newest.map(|at| self.blocks_in(at)).unwrap_or_default()
    }

    /// Blocks in a row.
    pub(crate) fn blocks_in(&self, at: usize) -> BlocksOfRows {
        let mut found = BlocksOfRows::new();
        let segments = self.segments.borrow();
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
    pub(crate) fn places_held(&self, at: usize) -> BTreeSet<u32> {
        let segments = self.segments.borrow();
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
    pub(crate) fn discarded(&self) -> BlocksOfRows {
        let mut found = BlocksOfRows::new();
        for (key, row) in &*self.rows.borrow() {
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
    pub(crate) fn full_count(&self) -> usize {
        self.full.borrow().len()
    }

    /// Puts the oldest row, which could not be emptied, behind the others.
    pub(crate) fn pass_over(&self, oldest: usize) {
        let mut full = self.full.borrow_mut();
        if full.front() == Some(&oldest) {
            full.rotate_left(1);
        }
    }

    /// Reads a block of the cache, verified by what the table of its row says of it.
    #[pooled]
    pub(crate) async fn read(&self, place: Place, into: &mut [u8]) -> Result<(), SpaceError> {
        let row = self.decided_row(u64::from(place.index), place.block).await?;
        let _guard = row.locks.lock(Range { first: place.block, count: 1 }).await;
        self.check_decided(&row, place.block)?;
        self.space.read_one_copy(&row, place.block, into).await
    }

    /// What the cache's own table says of a block.
    pub(crate) async fn state(&self, place: Place) -> Result<BlockState, SpaceError> {
        let Some(row) =
            self.space.in_doubt_row(u64::from(place.index)).await?.filter(|row| row.id == place.row)
        else {
            return Ok(BlockState::Never);
        };
        let states = self.space.states(&row, 0, Range { first: place.block, count: 1 }).await?;
        Ok(states.first().copied().unwrap_or_default())
    }

    /// As [`state`](Self::state), `None` while no disk is here that could tell.
    pub(crate) async fn state_in_reach(&self, place: Place) -> Result<Option<BlockState>, SpaceError> {
        match self.state(place).await {
            Ok(state) => Ok(Some(state)),
            Err(SpaceError::Unreadable { why: UnreadableReason::Absent, .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Whether a version that no flush has covered was found to be nothing, when its cache row was decided.
    pub(crate) async fn is_void(&self, version: &Version) -> Result<bool, SpaceError> {
        let Content::Cached { place, checksum } = version.content else { return Ok(false) };
        Ok(!self.is_covered(version) && !may_hold(self.state(place).await?, checksum))
    }

    /// Settles which versions of a block count of those that nobody could decide, now that their cache rows are decided. The
    /// caller holds the block's lock.
    pub(crate) async fn resolve_in_doubt(&self, row: &Rc<Row>, block: u32) -> Result<(), SpaceError> {
        for version in row.mappings.versions(block) {
            let Content::Cached { place, checksum } = version.content else { continue };
            if version.ticket != Some(IN_DOUBT) || self.is_out_of_reach(place) {
                continue;
            }
            match self.state_in_reach(place).await? {
                Some(state) if may_hold(state, checksum) => row.mappings.note_decided(block, version.since),
                Some(_) => self.abandon(row, block, &version),
                None => {}
            }
        }
        self.forget_if_empty(row);
        Ok(())
    }

    /// What a block of a row holds, if it is in the cache. The caller holds its lock, or looks again if it is not that.
    pub(crate) async fn content(&self, row: &Rc<Row>, block: u32) -> Result<Option<Content>, SpaceError> {
        while let Some(version) = row.mappings.newest(block) {
            if !self.is_covered(&version)
                && let Some(place) = version.content.place()
            {
                self.decided_row(u64::from(place.index), place.block).await?;
            }
            if !self.is_void(&version).await? {
                row.mappings.note_decided(block, version.since);
                return Ok(Some(version.content));
            }
            self.abandon(row, block, &version);
        }
        self.forget_if_empty(row);
        Ok(None)
    }

    /// Forgets a version that came to nothing. If it was acknowledged and left with its copies, and nothing took its place since,
    /// the next flush of its space tells that.
    fn abandon(&self, row: &Row, block: u32, version: &Version) {
        let is_newest = row.mappings.newest(block).is_some_and(|newest| newest.since == version.since);
        let space = self.owner(row.space).filter(|_| is_newest && version.ticket == Some(IN_DOUBT));
        if let Some(space) = space {
            space.lost_unflushed.set(true);
        }
        self.forget(&row.mappings.void(block, version.since));
        row.moves.touch(Range { first: block, count: 1 });
        if let Content::Cached { place, checksum } = version.content {
            let mapping = mapping_of(row, block, 1, Some(place));
            let void = Mapping { since: Some(version.since), void: true, ..mapping };
            self.declared_lost.borrow_mut().push((void, checksum));
        }
    }

    /// Rows of a space with versions of which nobody could tell whether they are whole, and their blocks; but for those that one
    /// has taken the place of which a flush has covered.
    fn in_doubt_of(&self, space: SpaceId) -> Vec<(Rc<Row>, Vec<u32>)> {
        let rows = self.rows.borrow();
        let mut in_doubt = Vec::new();
        for row in rows.range((space, 0)..=(space, u64::MAX)).map(|(_, row)| row) {
            let mut all = row.mappings.all();
            all.retain(|(_, version)| version.ticket == Some(IN_DOUBT));
            let counts = |(block, version): &(u32, Version)| {
                let versions = row.mappings.versions(*block);
                !versions.iter().any(|newer| newer.since > version.since && self.is_covered(newer))
            };
            let blocks: Vec<u32> = all.iter().filter(|one| counts(one)).map(|(block, _)| *block).collect();
            if !blocks.is_empty() {
                in_doubt.push((Rc::clone(row), blocks));
            }
        }
        in_doubt
    }

    /// Whether nobody could tell of something that is cached of a space whether it is whole.
    pub(crate) fn has_in_doubt_of(&self, space: SpaceId) -> bool {
        !self.in_doubt_of(space).is_empty()
    }

    /// Decides what is cached of a space and waits for that, as far as its disks are here. Called without any lock.
    ///
    /// # Errors
    /// [`SpaceError`], but not for want of disks.
    #[pooled]
    pub(crate) async fn decide_all_of(&self, space: SpaceId) -> Result<(), SpaceError> {
        let in_doubt = self.in_doubt_of(space);
        let versions = in_doubt
            .iter()
            .flat_map(|(row, blocks)| blocks.iter().flat_map(|block| row.mappings.versions(*block)));
        let places = versions.filter_map(|version| version.content.place());
        // Each row of the cache once: all that it waits for is read to decide it.
        let indices: BTreeSet<u32> =
            places.filter(|place| self.is_out_of_reach(*place)).map(|place| place.index).collect();
        for index in indices {
            match self.space.row(u64::from(index)).await {
                Ok(_) | Err(SpaceError::Unreadable { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        for (row, blocks) in in_doubt {
            for block in blocks {
                let range = Range { first: block, count: 1 };
                let _guard = row.locks.lock(range).await;
                if !row.freed.get() {
                    self.resolve_in_doubt(&row, block).await?;
                }
            }
        }
        Ok(())
    }
}

impl fmt::Debug for Cache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Cache({} of {} blocks free, {} versions)",
            self.free(),
            self.capacity(),
            self.versions.get()
        )
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
    Mapping {
        space: row.space,
        row_index: row.index,
        row: row.id,
        first,
        count,
        place,
        since: None,
        in_doubt: false,
        covered: false,
        void: false,
    }
}
