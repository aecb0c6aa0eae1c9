//! What a crash leaves of the write cache: mappings are found in the log, and stripes that may be half in place are finished from
//! the content that the cache has of them (docs/design/0004, *Recovery*).

use std::collections::BTreeMap;
use std::rc::Rc;

use dolmen_buffer::Buffer;
use dolmen_future_pool::pooled;
use dolmen_mutation::mutation;
use dolmen_pool::RecoveredBlock;
use dolmen_units::{Lsn, RowId, SpaceId};

use crate::cache::cached_read::{CachedRead, CachedReads};
use crate::cache::destage::{DestageWrites, Prepared};
use crate::cache::fill::SegmentFill;
use crate::cache::relog::CacheRelog;
use crate::cache::segment_copies::SegmentCopies;
use crate::cache::segments::{CacheIndex, may_hold};
use crate::cache::stripe_read::{Found, StripeReads};
use crate::cache::write_cache::CacheWrites;
use crate::format::error::SpaceError;
use crate::format::record::{BlockState, Entry, Place, ReadMapping, RedoBlock, RedoHead, entries, push_redo};
use crate::in_doubt::redos::{REDOS, RedoContent, RedoCopies, RedoDecision, RedoFacts, RedoRow};
use crate::in_doubt::versions::{PlaceState, VERSIONS, VersionDecision, VersionFacts, VersionKind};
use crate::layout::{BLOCK, Shape};
use crate::resolution::holders::Holders;
use crate::resolution::reach::Deferral;
use crate::resources::locks::Range;
use crate::resources::tickets::Ticket;
use crate::row_io::copies::RowCopies;
use crate::row_io::flusher::Flusher;
use crate::table::mapping::{Content, IN_DOUBT, Version};
use crate::table::redo::Redo;
use crate::table::row::Row;
use crate::table::space::{Cache, Shared, SpaceRows};

/// Rows of a cache for writes, beside those that are kept for parity, that are enough to go on with.
const ROWS_FOR_WRITES: usize = 1;
/// Stripes that are finished in one turn.
pub(crate) const FINISHED_TOGETHER: usize = 4;

/// A version as the log has it.
#[derive(Debug, Clone, Copy)]
struct Recorded {
    content: Content,
    relogged: Lsn,
    is_marked: bool,
    /// Whether it was said to be in doubt while the pool was open.
    was_deferred: bool,
}

/// A redo of a stripe as the log has it.
struct RecordedRedo {
    lsn: Lsn,
    blocks: Vec<RedoBlock>,
}

/// What the log says of one row of a strict space.
#[derive(Default)]
struct OfRow {
    /// Versions of blocks, by their first record.
    versions: BTreeMap<u32, BTreeMap<Lsn, Recorded>>,
    /// Redos that a flush has covered and that nothing has ended yet, by stripe, in their order.
    redos: BTreeMap<u32, Vec<RecordedRedo>>,
    /// The newest version that was put in place and ended with that, by stripe and column.
    ended: BTreeMap<(u32, usize), Lsn>,
    /// The row whose blocks its stripes have, if it was a shadow row.
    owner: Option<RowId>,
}

/// What the log says of the write cache.
#[derive(Default)]
pub(crate) struct Cached {
    rows: BTreeMap<RowId, OfRow>,
}

impl Cached {
    /// Reads the records; `blocks_of` is how many blocks a row has, none where no place names it.
    ///
    /// # Errors
    /// The number of one that makes no sense.
    pub(crate) fn of(blocks: &[RecoveredBlock], blocks_of: impl Fn(RowId) -> u64) -> Result<Self, Lsn> {
        let mut cached = Self::default();
        for block in blocks {
            let record = block.as_recorded();
            for entry in entries(record.body) {
                let entry = entry.ok_or(record.lsn)?;
                let is_in_row = |read: &ReadMapping<'_>| {
                    let end = u64::from(read.mapping.first) + u64::from(read.mapping.count);
                    end <= blocks_of(read.mapping.row)
                };
                // What is said of blocks that its row does not have is said of nothing.
                if !matches!(&entry, Entry::Mapping(read) if !is_in_row(read)) {
                    cached.add(entry, record.lsn, record.durable);
                }
            }
        }
        Ok(cached)
    }

    fn add(&mut self, entry: Entry<'_>, lsn: Lsn, is_durable: bool) {
        match entry {
            Entry::BlockExtent(_) => {}
            Entry::Done(head) => {
                self.of_row(head).end(head.stripe);
            }
            Entry::Mapping(read) => {
                let mapping = read.mapping;
                let of_row = self.rows.entry(mapping.row).or_default();
                for number in 0..mapping.count {
                    let content = match mapping.place {
                        Some(place) => {
                            Content::Cached { place: place.plus(number), checksum: read.checksum(number) }
                        }
                        None => Content::Discarded,
                    };
                    let versions = of_row.versions.entry(mapping.first + number).or_default();
                    let since = mapping.since.unwrap_or(lsn);
                    if mapping.void {
                        versions.remove(&since);
                        continue;
                    }
                    let fresh = Recorded { content, relogged: lsn, is_marked: false, was_deferred: false };
                    let version = versions.entry(since).or_insert(fresh);
                    version.was_deferred |= mapping.in_doubt;
                    version.relogged = lsn;
                    // Said to be in doubt, it counts as that although a flush has passed over what was said before.
                    version.is_marked |= is_durable || mapping.covered;
                    version.is_marked &= !mapping.in_doubt;
                }
            }
            Entry::Redo(read) if read.head.void => {
                let blocks: Vec<RedoBlock> = read.blocks().collect();
                self.of_row(read.head).forget(read.head.stripe, &blocks);
            }
            // One that no flush has covered has touched nothing in place.
            Entry::Redo(read) if is_durable || read.head.covered => {
                let of_row = self.of_row(read.head);
                // Relogged, it takes the place of what was said before.
                let blocks: Vec<RedoBlock> = read.blocks().collect();
                of_row.forget(read.head.stripe, &blocks);
                of_row.redos.entry(read.head.stripe).or_default().push(RecordedRedo { lsn, blocks });
            }
            Entry::Redo(_) => {}
        }
    }

    /// What is said of the row of a redo or of a *done*.
    fn of_row(&mut self, head: RedoHead) -> &mut OfRow {
        let of_row = self.rows.entry(head.row).or_default();
        of_row.owner = head.owner.or(of_row.owner);
        of_row
    }

    /// Takes what is said of shadow rows that were dropped, by the row whose blocks they had.
    fn take_freed(&mut self, is_named: impl Fn(RowId) -> bool) -> BTreeMap<RowId, Vec<OfRow>> {
        let mut freed: BTreeMap<RowId, Vec<OfRow>> = BTreeMap::new();
        for (_, of_row) in self.rows.extract_if(.., |id, _| !is_named(*id)) {
            if let Some(owner) = of_row.owner {
                freed.entry(owner).or_default().push(of_row);
            }
        }
        freed
    }

    /// Notes in rows and caches what is cached, once cache rows were decided; stripes that may be half in place wait to be
    /// finished. The rows.
    #[pooled]
    pub(crate) async fn load(
        mut self,
        shared: &Shared,
        spaces: &BTreeMap<SpaceId, Rc<SpaceRows>>,
        holders: &Holders,
    ) -> Result<Vec<Rc<Row>>, SpaceError> {
        let mut rows = Vec::new();
        let held = shared.tickets.begin();
        let mut shadows: BTreeMap<(SpaceId, u64), (Rc<Row>, OfRow)> = BTreeMap::new();
        let mut freed = self.take_freed(|row| holders.get(row).is_some());
        let mut others = Vec::new();
        for (id, of_row) in self.rows {
            let Some((space, index)) = holders.get(id) else { continue };
            let Some(space) = spaces.get(&space) else { continue };
            let Some(row) = space.in_doubt_row(index).await?.filter(|row| row.id == id) else { continue };
            match row.is_shadow() {
                true => drop(shadows.insert((row.owner(), row.index), (row, of_row))),
                false => others.push((row, of_row)),
            }
        }
        // What is put in place of a shadow row ends versions of the row's blocks. There may be none of these, and a stripe that is
        // half in place.
        for (owner, index) in shadows.keys() {
            let is_there = |(row, _): &(Rc<Row>, OfRow)| (row.space, row.index) == (*owner, *index);
            if let Some(space) = spaces.get(owner).filter(|_| !others.iter().any(is_there))
                && let Some(row) = space.in_doubt_row(*index).await?
            {
                others.push((row, OfRow::default()));
            }
        }
        for (row, mut of_row) in others {
            of_row.end_freed(freed.remove(&row.id).unwrap_or_default(), &row.shape);
            let cache = spaces.get(&row.space).and_then(|space| space.cache_of(&row));
            let Some(cache) = cache else { continue };
            let shadow = shadows.remove(&(row.space, row.index));
            if of_row.load(&cache, &row, shadow, held.ticket()).await? == Loaded::Reverted {
                Deferral::of(shared).note_reverted(spaces.get(&row.space));
            }
            rows.push(row);
        }
        Ok(rows)
    }
}

/// What became of versions that the log has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Loaded {
    /// They stand, or nobody had relied on them.
    Whole,
    /// The newest of a block had been left in doubt, and came to nothing.
    Reverted,
}

/// Versions that end with a stripe: the block of the row, and the first record of the newest of them.
type Ends = Vec<(u32, Lsn)>;

impl OfRow {
    /// Forgets what was said of a stripe with these blocks.
    fn forget(&mut self, stripe: u32, blocks: &[RedoBlock]) {
        if let Some(of_stripe) = self.redos.get_mut(&stripe) {
            of_stripe.retain(|redo| redo.blocks != blocks);
        }
    }

    /// Ends what was said of a stripe until now: it is in place.
    fn end(&mut self, stripe: u32) {
        let blocks = self.redos.remove(&stripe).into_iter().flatten().flat_map(|redo| redo.blocks);
        for (column, since) in blocks.filter_map(|block| Some((block.column, block.since?))) {
            let newest = self.ended.entry((stripe, column)).or_default();
            *newest = since.max(*newest);
        }
    }

    /// Ends the versions that shadow rows had in place which were dropped since.
    fn end_freed(&mut self, freed: Vec<Self>, shape: &Shape) {
        for mut of_shadow in freed {
            of_shadow.redos.clear();
            self.end_what_is_at(&mut of_shadow, shape);
        }
    }

    /// Ends the versions of blocks that are in place; the stripes that may be half in place, with what ends with them.
    fn end_destaged(&mut self, shape: &Shape) -> Vec<(u32, RecordedRedo, Ends)> {
        let mut own = Self { redos: std::mem::take(&mut self.redos), ..Self::default() };
        own.ended = std::mem::take(&mut self.ended);
        self.end_what_is_at(&mut own, shape)
    }

    /// The same for what the log says of stripes of the row itself, or of its shadow row.
    fn end_what_is_at(
        &mut self,
        stripe_location: &mut Self,
        shape: &Shape,
    ) -> Vec<(u32, RecordedRedo, Ends)> {
        if mutation!(RedoEndsWithMark) {
            let lines: Vec<u32> = stripe_location.redos.keys().copied().collect();
            lines.into_iter().for_each(|stripe| stripe_location.end(stripe));
        }
        let is_data = |column: usize| column < shape.data_columns();
        for ((stripe, column), since) in
            stripe_location.ended.iter().filter(|((_, column), _)| is_data(*column))
        {
            // What they took the place of ends too: that may have been relogged behind them, and stand alone in the log.
            let versions = self.versions.entry(shape.row_block(*column, *stripe)).or_default();
            versions.retain(|other, _| other > since);
        }
        // Of a stripe that was moved within the cache, the last record has what it is.
        let last = std::mem::take(&mut stripe_location.redos).into_iter();
        let last = last.filter_map(|(stripe, mut of_stripe)| Some((stripe, of_stripe.pop()?)));
        last.map(|(stripe, redo)| {
            let data = redo.blocks.iter().filter(|block| is_data(block.column));
            let ends = data.filter_map(|block| Some((shape.row_block(block.column, stripe), block.since?)));
            let ends: Ends = ends.collect();
            (stripe, redo, ends)
        })
        .collect()
    }

    #[pooled]
    async fn load(
        mut self,
        cache: &Rc<Cache>,
        row: &Rc<Row>,
        shadow: Option<(Rc<Row>, Self)>,
        now: Ticket,
    ) -> Result<Loaded, SpaceError> {
        let of_row = self.end_destaged(&row.shape).into_iter().map(|one| (Rc::clone(row), one));
        let mut unfinished: Vec<_> = of_row.collect();
        if let Some((shadow, mut of_shadow)) = shadow {
            let more = self.end_what_is_at(&mut of_shadow, &row.shape);
            unfinished.extend(more.into_iter().map(|one| (Rc::clone(&shadow), one)));
        }
        let unfinished: Vec<Redo> = unfinished
            .into_iter()
            .map(|(stripe_location, (stripe, RecordedRedo { lsn, blocks }, ends))| {
                // Whatever of it was relogged behind it, it is relogged behind that.
                let relogged = ends.iter().filter_map(|(block, since)| {
                    let versions = self.versions.get(block)?;
                    versions.range(..=*since).map(|(_, version)| version.relogged).max()
                });
                let relogged = relogged.fold(lsn, Lsn::max);
                Redo { row: stripe_location, stripe, blocks, ends, relogged, owns_all: false }
            })
            .collect();
        let mut loaded = Loaded::Whole;
        for (block, versions) in self.versions {
            if block < row.shape.row_blocks()
                && load_versions(cache, row, block, &versions, now).await? == Loaded::Reverted
            {
                loaded = Loaded::Reverted;
            }
        }
        for redo in unfinished {
            redo.own_places().for_each(|place| CacheIndex::of(cache).count_live(place));
            CacheIndex::of(cache).leave_unfinished(redo);
        }
        Ok(loaded)
    }
}

#[pooled]
async fn load_versions(
    cache: &Rc<Cache>,
    row: &Rc<Row>,
    block: u32,
    versions: &BTreeMap<Lsn, Recorded>,
    now: Ticket,
) -> Result<Loaded, SpaceError> {
    let mut loaded = Loaded::Whole;
    let marked = versions.iter().rfind(|(_, version)| version.is_marked).map(|(since, _)| *since);
    for (since, recorded) in versions {
        let mut facts = recorded.facts(cache, *since, marked);
        let (rule, decision) = loop {
            match crate::in_doubt::decide(VERSIONS, &facts) {
                (_, VersionDecision::ReadPlace) => facts.place = recorded.state_of_place(cache).await?,
                decided => break decided,
            }
        };
        tracing::trace!(rule, row = row.index, block, since = %since, "a version");
        let ticket = match decision {
            VersionDecision::Superseded => continue,
            VersionDecision::Covered => None,
            // What is found to be whole is no more than found until recovery has made it durable.
            VersionDecision::Unflushed => Some(now),
            VersionDecision::InDoubt | VersionDecision::ReadPlace => Some(IN_DOUBT),
            VersionDecision::Void => {
                if recorded.was_deferred {
                    loaded = Loaded::Reverted;
                }
                continue;
            }
        };
        // What took its place stands.
        loaded = Loaded::Whole;
        let version =
            Version { content: recorded.content, since: *since, relogged: recorded.relogged, ticket };
        CacheIndex::of(cache).add_recovered(row, block, version);
    }
    Ok(loaded)
}

impl Recorded {
    /// Facts about a version with this first record that cost no read; the newest marked one has the other.
    fn facts(&self, cache: &Rc<Cache>, since: Lsn, marked: Option<Lsn>) -> VersionFacts {
        let place = self.content.place();
        VersionFacts {
            is_superseded: marked.is_some_and(|marked| since < marked),
            is_marked: self.is_marked,
            kind: if place.is_some() { VersionKind::Cached } else { VersionKind::Discard },
            is_in_reach: place.is_some_and(|place| !CacheIndex::of(cache).is_out_of_reach(place)),
            place: PlaceState::Unread,
        }
    }

    /// Reads what the table of the cache row says of a version's block.
    async fn state_of_place(&self, cache: &Rc<Cache>) -> Result<PlaceState, SpaceError> {
        let Content::Cached { place, checksum } = self.content else { return Ok(PlaceState::CannotHold) };
        Ok(match CacheWrites::of(cache).state_in_reach(place).await? {
            None => PlaceState::Unknown,
            Some(state) if may_hold(state, checksum) => PlaceState::MayHold,
            Some(_) => PlaceState::CannotHold,
        })
    }
}

/// Stripes that a crash left half in place.
#[derive(Clone, Copy)]
pub(crate) struct CacheReplay<'a> {
    cache: &'a Rc<Cache>,
}

impl<'a> CacheReplay<'a> {
    /// Returns the service for a write cache.
    pub(crate) fn of(cache: &'a Rc<Cache>) -> Self {
        Self { cache }
    }
}

impl CacheReplay<'_> {
    /// Finds out how far rows are filled that a crash left, if few are left to be filled: each opening that dies would use up two
    /// of them else, until there is none for the parity that it takes to put anything in place. What the table of a row calls
    /// never written was not written since the row was discarded, and the checkpoint before has left the log nothing that names it.
    ///
    /// # Errors
    /// [`SpaceError`].
    #[pooled]
    pub(crate) async fn find_room_left(self) -> Result<(), SpaceError> {
        let (kept, whole) = (
            usize::from(self.cache.space().spec().resiliency.copies()),
            CacheIndex::of(self.cache).segment_blocks(),
        );
        let full: Vec<usize> = self.cache.full.borrow().iter().copied().collect();
        if self.cache.segments.borrow().len() - full.len() > kept + ROWS_FOR_WRITES {
            return Ok(());
        }
        for at in full {
            let Some(row) = self.cache.row_at(at).filter(|row| !self.cache.shared().is_deferred(row)) else {
                continue;
            };
            let states = match RowCopies::of(self.cache.space())
                .states(&row, 0, Range { first: 0, count: whole })
                .await
            {
                Ok(states) => states,
                // Its disks are away.
                Err(SpaceError::Unreadable { .. }) => continue,
                Err(error) => return Err(error),
            };
            let last = states.iter().rposition(|state| *state != BlockState::Never);
            let filled = last.and_then(|last| u32::try_from(last + 1).ok()).unwrap_or_default();
            if let Some(segment) = self.cache.segments.borrow_mut().get_mut(at) {
                segment.filled = filled;
            }
        }
        Ok(())
    }

    /// Finishes some of the stripes that may be half in place, as far as their columns are here; whether any was. The caller holds
    /// the turn, without which no room is made in the log: so there are few of them at a time.
    ///
    /// # Errors
    /// [`SpaceError`]; what was not finished is tried again.
    pub(crate) async fn finish_stripes(self) -> Result<bool, SpaceError> {
        let mut waiting = self.cache.unfinished.take();
        let others = waiting.split_off(waiting.len().min(FINISHED_TOGETHER));
        *self.cache.unfinished.borrow_mut() = others;
        let mut has_done = false;
        let mut waiting = waiting.into_iter();
        while let Some(redo) = waiting.next() {
            match self.finish_stripe(redo.clone()).await {
                Ok(done) => has_done |= done,
                Err(error) => {
                    let mut unfinished = self.cache.unfinished.borrow_mut();
                    if !unfinished.iter().any(|other| other.is_of(&redo.row, redo.stripe)) {
                        unfinished.push(redo);
                    }
                    unfinished.extend(waiting);
                    return Err(error);
                }
            }
        }
        Ok(has_done)
    }

    #[pooled]
    async fn finish_stripe(self, redo: Redo) -> Result<bool, SpaceError> {
        let row = Rc::clone(&redo.row);
        let mut facts = self.redo_facts(&redo);
        let (mut guard, mut found, mut finished) = (None, Vec::new(), redo.clone());
        let (rule, decision) = loop {
            match (crate::in_doubt::decide(REDOS, &facts), self.cache.owner(row.space)) {
                ((_, RedoDecision::TakeLock), _) => {
                    let lines = row.shape.stripes_of(Range { first: redo.stripe, count: 1 });
                    guard = Some(row.locks.lock(lines).await);
                    facts.row = if row.freed.get() { RedoRow::Detached } else { RedoRow::Locked };
                    facts.is_row_deferred = self.cache.shared().is_deferred(&row);
                }
                ((_, RedoDecision::ReadContent), Some(space)) => {
                    facts.content = self.read_redo(&space, &mut finished, &mut found).await?;
                    facts.copies = self.copies_of(&finished, &found);
                }
                (decided, _) => break decided,
            }
        };
        tracing::trace!(rule, row = row.index, stripe = redo.stripe, "a redo");
        let _guard = guard;
        match decision {
            RedoDecision::Void | RedoDecision::Done => {
                CacheIndex::of(self.cache).forget_redo(&redo);
                Ok(false)
            }
            RedoDecision::TakeLock | RedoDecision::ReadContent | RedoDecision::Wait => {
                CacheIndex::of(self.cache).leave_unfinished(redo);
                Ok(false)
            }
            RedoDecision::WaitForCopies => {
                self.note_lost_of(&redo, &finished);
                self.cache.waits_for_copies.set(true);
                CacheIndex::of(self.cache).leave_unfinished(finished);
                Ok(false)
            }
            RedoDecision::Move => {
                self.note_lost_of(&redo, &finished);
                match self.with_all_copies(finished, &found).await? {
                    Some(redo) => {
                        DestageWrites::of(self.cache).destage(vec![Prepared { redo, contents: found }]).await
                    }
                    None => Ok(false),
                }
            }
            RedoDecision::Lost | RedoDecision::Complete => {
                self.note_lost_of(&redo, &finished);
                DestageWrites::of(self.cache)
                    .destage(vec![Prepared { redo: finished, contents: found }])
                    .await
            }
        }
    }

    /// Facts about a redo that cost no read.
    fn redo_facts(self, redo: &Redo) -> RedoFacts {
        let row = &redo.row;
        let pool = &self.cache.shared().pool;
        let is_had = |column| row.has_blocks_on(column, |slab| slab.present(pool).is_some());
        let is_attached = self.cache.owner(row.space).is_some() && !row.freed.get();
        RedoFacts {
            row: if is_attached { RedoRow::Attached } else { RedoRow::Detached },
            is_done: false,
            has_columns: (0..row.shape.columns()).all(is_had),
            is_row_deferred: false,
            content: RedoContent::Unread,
            copies: RedoCopies::All,
        }
    }

    /// Reads the content of a redo, from the cache or from its place. What is lost becomes damaged, and parity with it. Ends at
    /// the first block that may be on disks that are away.
    #[pooled]
    async fn read_redo(
        self,
        space: &SpaceRows,
        redo: &mut Redo,
        found: &mut Vec<Option<dolmen_buffer::Shared>>,
    ) -> Result<RedoContent, SpaceError> {
        let row = Rc::clone(&redo.row);
        let computed = row.shape.computed_columns();
        let mut is_lost = false;
        for block in &mut redo.blocks {
            let is_left_out = is_left_out(block.column, &computed);
            let (BlockState::Valid(checksum), false) = (block.state, is_left_out) else {
                found.push(None);
                continue;
            };
            let read_cached = CachedReads::of(self.cache).read_cached(block.place, checksum).await?;
            let is_away = matches!(read_cached, CachedRead::Nothing);
            let content = match read_cached {
                CachedRead::Content(buffer) => Some(buffer),
                // Perhaps it got in place.
                CachedRead::Nothing | CachedRead::Lost | CachedRead::Freed => {
                    match StripeReads::of(space).look(&row, block.column, redo.stripe, block.state).await {
                        Found::Good(buffer) => Some(buffer),
                        Found::Never | Found::Damaged | Found::Bad if !is_away => None,
                        Found::Never | Found::Damaged | Found::Bad | Found::Away => {
                            return Ok(RedoContent::Away);
                        }
                    }
                }
            };
            if content.is_none() {
                is_lost = true;
                block.state = BlockState::Damaged;
            }
            found.push(content.map(Buffer::freeze));
        }
        if !is_lost {
            return Ok(RedoContent::Complete);
        }
        // Nobody knows what parity should be of.
        for (block, content) in redo.blocks.iter_mut().zip(found) {
            if computed.contains(&block.column) {
                (block.state, *content) = (BlockState::Damaged, None);
            }
        }
        Ok(RedoContent::Lost)
    }

    /// Notes what is lost of a redo, once all of it was read. Places of what is lost are free from here on.
    fn note_lost_of(self, redo: &Redo, finished: &Redo) {
        for (was, is) in redo.blocks.iter().zip(&finished.blocks) {
            let is_lost = was.state != BlockState::Damaged && is.state == BlockState::Damaged;
            if let Some(since) = was.since.filter(|_| is_lost) {
                CachedReads::of(self.cache).note_lost(
                    &redo.row,
                    redo.row.shape.row_block(was.column, redo.stripe),
                    since,
                );
            }
        }
        let is_kept = |place: &Place| finished.own_places().any(|other| other == *place);
        redo.own_places()
            .filter(|place| !is_kept(place))
            .for_each(|place| CacheIndex::of(self.cache).count_dead(place));
    }

    /// Copies that the cache rows have of a redo's content.
    fn copies_of(self, redo: &Redo, contents: &[Option<dolmen_buffer::Shared>]) -> RedoCopies {
        let count = u32::try_from(contents.iter().flatten().count()).unwrap_or(u32::MAX);
        match () {
            () if SegmentCopies::of(self.cache).is_whole(redo) => RedoCopies::All,
            () if SegmentFill::of(self.cache).has_whole_room_for_parity(count) => RedoCopies::FewerThanRoom,
            () if SegmentCopies::of(self.cache).can_be_brought_any() => RedoCopies::FewerThanDisks,
            () => RedoCopies::AsManyAsPossible,
        }
    }

    /// The redo with its content in rows of the cache that have all copies: what is written in place must not be there against
    /// the one copy that is left of it. `None` where that could not be had; it waits then. Only where no disk can take a copy
    /// that is away it has as many as there are.
    #[pooled]
    async fn with_all_copies(
        self,
        redo: Redo,
        contents: &[Option<dolmen_buffer::Shared>],
    ) -> Result<Option<Redo>, SpaceError> {
        let bytes: Vec<&dolmen_buffer::Shared> = contents.iter().flatten().collect();
        let mut buffer = self.cache.shared().pool.seams().metadata.take(bytes.len() * BLOCK).await;
        for (to, from) in buffer.chunks_exact_mut(BLOCK).zip(bytes) {
            to.copy_from_slice(from);
        }
        let mut moved = Redo { owns_all: true, ..redo.clone() };
        // No flush marks it before it is known whether it stands.
        let held = self.cache.shared().tickets.begin();
        let content = buffer.freeze();
        let put = CacheWrites::of(self.cache).put_redo(&content, |first| {
            let valid = moved.blocks.iter_mut().filter(|block| matches!(block.state, BlockState::Valid(_)));
            (0..).zip(valid).for_each(|(nth, block)| block.place = first.plus(nth));
            let mut body = Vec::new();
            push_redo(&mut body, moved.head(), &moved.blocks);
            body
        });
        let relogged = match put.await {
            Ok(relogged) => relogged,
            Err(error) => {
                CacheIndex::of(self.cache).leave_unfinished(redo);
                return Err(error);
            }
        };
        moved.relogged = relogged;
        moved.own_places().for_each(|place| CacheIndex::of(self.cache).count_live(place));
        *self.cache.recorded.borrow_mut() = vec![moved.clone()];
        CacheRelog::of(self.cache)
            .abandon_recorded(|place| CacheIndex::of(self.cache).is_out_of_reach(place))
            .await?;
        drop(held);
        Flusher::of(self.cache.shared()).force_flush().await?;
        if self.cache.recorded.take().is_empty() {
            CacheIndex::of(self.cache).forget_redo(&moved);
            CacheIndex::of(self.cache).leave_unfinished(redo);
            return Ok(None);
        }
        CacheIndex::of(self.cache).forget_redo(&redo);
        // A disk may have left with a copy meanwhile.
        if !SegmentCopies::of(self.cache).is_whole(&moved)
            && SegmentCopies::of(self.cache).can_be_brought_any()
        {
            self.cache.waits_for_copies.set(true);
            CacheIndex::of(self.cache).leave_unfinished(moved);
            return Ok(None);
        }
        Ok(Some(moved))
    }
}

/// Whether a mutant leaves a column out where a stripe is finished; these columns are computed from others.
fn is_left_out(column: usize, computed: &std::ops::Range<usize>) -> bool {
    let is_computed = computed.contains(&column);
    (is_computed && mutation!(RedoOfNewDataOnly))
        || (is_computed && column != computed.start && mutation!(SecondParityNotRedone))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use dolmen_units::Bytes;

    use super::*;
    use crate::format::record::{Mapping, done};

    const ROW: RowId = RowId(3);

    fn mapping(block: u32, place: Option<u32>, since: Option<u64>) -> Vec<u8> {
        let mapping = Mapping {
            row: ROW,
            first: block,
            count: 1,
            place: place.map(|block| Place { row: RowId(9), block }),
            since: since.map(Lsn),
            in_doubt: false,
            covered: false,
            void: false,
        };
        let mut body = mapping.head().to_vec();
        if place.is_some() {
            body.extend([0; 4]);
        }
        body
    }

    fn head(stripe: u32) -> RedoHead {
        RedoHead { row: ROW, owner: None, stripe, covered: false, void: false }
    }

    /// A redo of the first block of a row, as a version of it that was said first at `since`.
    fn redo(state: BlockState, place: Option<u32>, since: u64) -> Vec<u8> {
        let place = place.map(|block| Place { row: RowId(9), block }).unwrap_or_default();
        let mut body = Vec::new();
        push_redo(&mut body, head(0), &[RedoBlock { column: 0, state, place, since: Some(Lsn(since)) }]);
        body
    }

    /// What is left of the first block, by first records, when the log has these records; and how many stripes are unfinished.
    fn left(records: &[(u64, Vec<u8>)]) -> (Vec<u64>, usize) {
        let record = |(lsn, body): &(u64, Vec<u8>)| RecoveredBlock {
            lsn: Lsn(*lsn),
            durable: true,
            body: body.clone(),
        };
        let mut cached = Cached::of(&records.iter().map(record).collect::<Vec<_>>(), |_| 1 << 10).unwrap();
        let mut of_row = cached.rows.remove(&ROW).unwrap();
        let shape = Shape::new(Bytes::mib(1), Bytes::kib(64), 2, 1).unwrap();
        let unfinished = of_row.end_destaged(&shape).len();
        (of_row.versions.remove(&0).unwrap_or_default().into_keys().map(|lsn| lsn.0).collect(), unfinished)
    }

    /// Wherever the log was trimmed: a version that was relogged behind a newer one does not live again when that one is in
    /// place, and one that is newer than what is in place lives.
    #[test]
    fn what_is_in_place_ends_what_it_took_the_place_of_wherever_the_log_begins() {
        for newer in [Some(7), None] {
            let state = if newer.is_some() { BlockState::Valid(0) } else { BlockState::Never };
            let records = [
                (10, mapping(0, Some(6), None)),
                (105, mapping(0, newer, None)),
                (110, mapping(0, Some(6), Some(10))),
                (120, redo(state, newer, 105)),
                (125, mapping(0, Some(8), None)),
                (130, done(head(0)).to_vec()),
            ];
            for begin in 0..5 {
                assert_eq!(left(&records[begin..]), (vec![125], 0), "from record {begin} on, {newer:?}");
            }
            assert_eq!(left(&records[..4]), (vec![10, 105], 1));
            assert_eq!(left(&records[2..4]), (vec![10], 1));
        }
    }

    /// Scenario: a version was put in place of a shadow row, and the shadow row was dropped. The version has ended, and a newer one
    /// lives; what the log says of a shadow row of another row ends nothing.
    #[test]
    fn what_a_dropped_shadow_row_had_in_place_has_ended() {
        let shape = Shape::new(Bytes::mib(1), Bytes::kib(64), 2, 1).unwrap();
        for (owner, lives) in [(ROW, vec![125]), (RowId(77), vec![10, 125])] {
            let of_shadow = RedoHead { row: RowId(4), owner: Some(owner), ..head(0) };
            let place = Place { row: RowId(9), block: 6 };
            let mut in_place = Vec::new();
            let block = RedoBlock { column: 0, state: BlockState::Valid(0), place, since: Some(Lsn(10)) };
            push_redo(&mut in_place, of_shadow, &[block]);
            in_place.extend(done(of_shadow));
            let records =
                [(10, mapping(0, Some(6), None)), (120, in_place), (125, mapping(0, Some(8), None))];
            let records = records.map(|(lsn, body)| RecoveredBlock { lsn: Lsn(lsn), durable: true, body });
            let mut cached = Cached::of(&records, |_| 1 << 10).unwrap();
            let mut freed = cached.take_freed(|row| row == ROW);
            let mut of_row = cached.rows.remove(&ROW).unwrap();
            of_row.end_freed(freed.remove(&ROW).unwrap_or_default(), &shape);
            let versions = of_row.versions.remove(&0).unwrap();
            let found: Vec<u64> = versions.into_keys().map(|lsn| lsn.0).collect();
            assert_eq!(found, lives, "a version lives again, or has ended, of a shadow row of {owner}");
        }
    }

    /// A stripe that was moved within the cache while it waited: its last record is what it is, whatever the flush has marked.
    #[test]
    fn the_last_record_of_a_moved_stripe_counts() {
        let records = [
            (10, mapping(0, Some(6), None)),
            (20, redo(BlockState::Valid(0), Some(6), 10)),
            (30, redo(BlockState::Valid(0), Some(9), 10)),
        ];
        assert_eq!(left(&records), (vec![10], 1));
        let ended = [&records[..], &[(40, done(head(0)).to_vec())]].concat();
        assert_eq!(left(&ended), (vec![], 0));
    }
}
