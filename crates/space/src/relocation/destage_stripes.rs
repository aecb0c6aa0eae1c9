//! Destage of chosen blocks: computes their stripes and records them.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::rc::Rc;

use dolmen_block_io::sync::join_all;
use dolmen_buffer::Buffer;
use dolmen_buffer::Shared as Bytes_;
use dolmen_checksum::crc32c;
use dolmen_erasure::Change;
use dolmen_future_pool::pooled;
use dolmen_mutation::mutation;
use dolmen_pool::PoolError;
use dolmen_units::Lsn;
use smallvec::SmallVec;

use crate::cache::ahead::ReadAhead;
use crate::cache::cached_read::{CachedRead, CachedReads};
use crate::cache::destage::{DestageWrites, Prepared, REDO_BYTES_MAX, stripes};
use crate::cache::recycle::Recycling;
use crate::cache::relog::CacheRelog;
use crate::cache::segment_copies::SegmentCopies;
use crate::cache::segments::{BlocksOfRows, CacheIndex};
use crate::cache::stripe_read::{Found, StripeReads};
use crate::cache::write_cache::CacheWrites;
use crate::format::error::SpaceError;
use crate::format::record::{BlockState, Place, RedoBlock, push_redo};
use crate::layout::{BLOCK, Unit};
use crate::relocation::unused_rows::UnusedRows;
use crate::resources::hedge_delay::HedgeDelay;
use crate::resources::locks::{Range, RangeGuard};
use crate::row_io::flusher::Flusher;
use crate::row_io::stripe_places::StripePlaces;
use crate::table::mapping::{Content, Version};
use crate::table::pages::{StripeStates, TableStore};
use crate::table::redo::Redo;
use crate::table::row::{Row, Slab};
use crate::table::space::{Cache, SpaceRows};

/// Destage of chosen blocks: computes their stripes and records them.
#[derive(Clone, Copy)]
pub(crate) struct Destage<'a> {
    cache: &'a Rc<Cache>,
}

impl<'a> Destage<'a> {
    /// Returns the service for a write cache.
    pub(crate) fn of(cache: &'a Rc<Cache>) -> Self {
        Self { cache }
    }
}

impl Destage<'_> {
    /// Puts some of these blocks in place with their stripes; whether any was. Stripes that wait keep none behind them back. `row`
    /// is that of the cache which holds all of them, if one does.
    #[pooled]
    pub(crate) async fn destage_blocks(
        self,
        mut blocks: BlocksOfRows,
        row: Option<usize>,
    ) -> Result<bool, SpaceError> {
        loop {
            let lines = self.choose(&blocks);
            if lines.is_empty() {
                return Ok(false);
            }
            for (row, tried) in &lines {
                let of_row = blocks.get_mut(&(row.space, row.index));
                let is_left = |block: &u32| !tried.contains(&row.shape.locate(*block).block);
                of_row.into_iter().for_each(|(_, blocks)| blocks.retain(is_left));
            }
            let has_freed = Recycling::of(self.cache).make_ready().await?;
            if let Some(at) = row {
                ReadAhead::of(self.cache).read_ahead(at).await;
            }
            if self.destage_all(lines).await? || has_freed {
                return Ok(true);
            }
        }
    }

    /// The stripes of these blocks, by row, as many as there is memory for; but for rows that lack more columns than they have
    /// parity, or lie on disks that have found no room below.
    fn choose(self, blocks: &BlocksOfRows) -> Vec<(Rc<Row>, BTreeSet<u32>)> {
        let arena = &self.cache.shared().pool.seams().metadata;
        let stripes_max =
            STRIPES_MAX.min(self.stripes_of_record() * (arena.frame_count(REDO_BYTES_MAX) / 8).max(1));
        let widest = blocks.values().map(|(row, _)| row.shape.columns()).max().unwrap_or(0);
        let all = self.cache.shared().lines.all();
        let (mut count, mut frames) = (0, 0);
        let mut chosen = Vec::new();
        let backing_full = self.cache.backing_full.borrow();
        // What found no room below is not tried again in this round: each try of parity takes room of the cache.
        let is_here = |row: &Row| {
            let lacks_room = |slab: &Slab| backing_full.contains(&slab.disk);
            (0..row.shape.columns()).all(|column| {
                TableStore::of(self.cache.shared()).is_in_reach(row, column)
                    && !row.with_slabs(column, |slabs| slabs.iter().any(lacks_room))
            })
        };
        for (row, blocks) in blocks.values().filter(|(row, _)| is_here(row)) {
            let unfinished = self.cache.unfinished.borrow();
            let is_busy = |stripe: &u32| {
                unfinished.iter().any(|redo| redo.row.is_paired_with(row) && redo.stripe == *stripe)
            };
            let lines = blocks.iter().map(|block| row.shape.locate(*block).block);
            // In the order of stripes, each once: neighbours go out together.
            let lines: BTreeSet<u32> = lines.filter(|stripe| !is_busy(stripe)).collect();
            let lines = lines.into_iter().take_while(|_| {
                let more = self.frames_of_stripe(row, count, widest);
                let fits = count == 0 || (count < stripes_max && frames + more <= all);
                count += usize::from(fits);
                frames += if fits { more } else { 0 };
                fits
            });
            let lines: BTreeSet<u32> = lines.collect();
            drop(unfinished);
            if lines.is_empty() {
                continue;
            }
            chosen.push((Rc::clone(row), lines));
        }
        chosen
    }

    /// Small frames for a stripe that is put in place behind so many others, at most: its blocks that change are kept until all
    /// are in place; those that one record brings are computed beside each other, and take as much again for each column.
    fn frames_of_stripe(self, row: &Row, nth: usize, widest: usize) -> u64 {
        let to_compute = if nth < self.stripes_of_record() { widest * 2 } else { 0 };
        (row.shape.data_columns() + to_compute) as u64
    }

    /// Stripes whose parity one record brings.
    fn stripes_of_record(self) -> usize {
        let parity = usize::from(self.cache.space().spec().resiliency.copies()).saturating_sub(1).max(1);
        REDO_BYTES_MAX / BLOCK / parity
    }

    /// Puts stripes in place, the rows in their order; whether any was.
    async fn destage_all(self, chosen: Vec<(Rc<Row>, BTreeSet<u32>)>) -> Result<bool, SpaceError> {
        // What no flush has covered stays.
        if !mutation!(CopiesBeforeFlush) {
            Flusher::of(self.cache.shared()).flush().await?;
        }
        let is_of_stripes = |(row, _): &(Rc<Row>, _)| row.shape.unit() == Unit::Stripe;
        let (chosen, copied): (Vec<_>, Vec<_>) = chosen.into_iter().partition(is_of_stripes);
        // By themselves: a flush, for which parity waits with locks in hand, may want the locks of these.
        let has_done = !copied.is_empty() && self.destage_copies(copied).await?;
        if chosen.is_empty() {
            return Ok(has_done);
        }
        Ok(self.destage_stripes(chosen).await? || has_done)
    }

    /// Puts stripes of copies in place; whether any was. A flush has covered them.
    #[pooled]
    async fn destage_copies(self, chosen: Vec<(Rc<Row>, BTreeSet<u32>)>) -> Result<bool, SpaceError> {
        let columns = chosen.iter().map(|(row, lines)| row.shape.data_columns() * lines.len());
        let _frames = self.cache.shared().lines.take(columns.sum::<usize>() as u64).await;
        let mut guards: Vec<RangeGuard<'_>> = Vec::new();
        let mut lines: Vec<(&Rc<Row>, u32)> = Vec::new();
        for (row, of_row) in &chosen {
            // Another row has its place, and its locks: with parity by now, these come before the ones that are held.
            if row.freed.get() {
                continue;
            }
            let guard = row.locks.lock_all(&stripes(row, of_row)).await;
            if !row.freed.get() && !self.cache.shared().is_deferred(row) {
                guards.push(guard);
                lines.extend(of_row.iter().map(|stripe| (row, *stripe)));
            }
        }
        let found = join_all(lines.into_iter().map(async |(row, stripe)| {
            let dirty = self.dirty_of(row, stripe).await?;
            Ok((!dirty.is_empty()).then(|| prepared_copies(row, stripe, dirty)))
        }));
        let found: Result<Vec<Option<Prepared>>, SpaceError> = found.await.into_iter().collect();
        let prepared: Vec<Prepared> = found?.into_iter().flatten().collect();
        let has_done = !prepared.is_empty() && DestageWrites::of(self.cache).write_main(&prepared).await?;
        drop(guards);
        for (row, _) in &chosen {
            self.free_if_unused(row).await?;
        }
        Ok(has_done)
    }

    /// Puts stripes of parity in place, the rows in their order; whether any was. A flush has covered them.
    #[pooled]
    async fn destage_stripes(self, chosen: Vec<(Rc<Row>, BTreeSet<u32>)>) -> Result<bool, SpaceError> {
        if SegmentCopies::of(self.cache).can_be_brought_any() {
            // The next round begins with that.
            self.cache.waits_for_copies.set(true);
            return Ok(true);
        }
        let widest = chosen.iter().map(|(row, _)| row.shape.columns()).max().unwrap_or(0);
        let rows = chosen.iter().flat_map(|(row, lines)| lines.iter().map(move |_| row));
        let frames = rows.enumerate().map(|(nth, row)| self.frames_of_stripe(row, nth, widest)).sum();
        let _frames = self.cache.shared().lines.take(frames).await;
        let mut guards: Vec<RangeGuard<'_>> = Vec::new();
        let mut lines: Vec<(Rc<Row>, u32)> = Vec::new();
        for (row, of_row) in &chosen {
            let guard = row.locks.lock_all(&stripes(row, of_row)).await;
            // What waits to be decided of a row would be decided over what it becomes here. A row that another one replaced may
            // be one of copies by now: the flush below takes its locks, so they are released here.
            if !row.freed.get() && !self.cache.shared().is_deferred(row) {
                guards.push(guard);
                lines.extend(of_row.iter().map(|stripe| (Rc::clone(row), *stripe)));
            }
        }
        self.cache.recorded.borrow_mut().clear();
        let mut records = Vec::new();
        for some in lines.chunks(self.stripes_of_record()) {
            match self.compute_all(some).await {
                Ok((computed, content)) => records.push(self.record(computed, content)),
                Err(error) if records.is_empty() => return Err(error),
                // What is computed goes in place; whatever is the matter is met again by the next round.
                Err(_) => break,
            }
        }
        let mut prepared = Vec::new();
        let mut failed = None;
        for recorded in join_all(records).await {
            match recorded {
                Ok(more) => prepared.extend(more),
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        if let Some(error) = failed.filter(|_| prepared.is_empty()) {
            return Err(error);
        }
        if prepared.is_empty() {
            return Ok(false);
        }
        if !mutation!(RedoNotFlushed) {
            Flusher::of(self.cache.shared()).flush().await?;
        }
        let prepared =
            SegmentCopies::of(self.cache).without_those_that_lack(self.without_abandoned(prepared));
        let has_done =
            DestageWrites::of(self.cache).destage(prepared).await? || self.cache.waits_for_copies.get();
        drop(guards);
        for (row, _) in &chosen {
            self.free_if_unused(row).await?;
        }
        Ok(has_done)
    }

    /// Those whose parity has not left with its only copies, before the flush that should have covered it.
    fn without_abandoned(self, prepared: Vec<Prepared>) -> Vec<Prepared> {
        let stand = self.cache.recorded.take();
        let halted = |one: &Prepared| stand.iter().any(|redo| redo.is_of(&one.redo.row, one.redo.stripe));
        let (stand, left): (Vec<Prepared>, Vec<Prepared>) = prepared.into_iter().partition(halted);
        left.iter().for_each(|one| CacheIndex::of(self.cache).forget_redo(&one.redo));
        stand
    }

    #[pooled]
    async fn free_if_unused(self, row: &Rc<Row>) -> Result<(), SpaceError> {
        match self.cache.owner(row.space) {
            Some(space) if space.is_thin() && row.mappings.is_empty() => {
                UnusedRows::of(&space).free_if_unused(row).await.map(|_| ())
            }
            _ => Ok(()),
        }
    }

    /// Computes what stripes will be, beside each other; their parity.
    #[pooled]
    async fn compute_all(self, lines: &[(Rc<Row>, u32)]) -> Result<(Vec<Computed>, Bytes_), SpaceError> {
        let parity = REDO_BYTES_MAX / BLOCK / self.stripes_of_record();
        let mut buffer = self.cache.shared().pool.seams().metadata.take(lines.len() * parity * BLOCK).await;
        buffer.fill(0);
        let places = buffer.chunks_exact_mut(parity * BLOCK);
        let found =
            join_all(lines.iter().zip(places).enumerate().map(async |(nth, ((row, stripe), into))| {
                let Some(space) = self.cache.owner(row.space) else { return Ok(None) };
                let dirty = self.dirty_of(row, *stripe).await?;
                if dirty.is_empty() {
                    return Ok(None);
                }
                let computed = async {
                    // Whose the stripe is does not change while something of it is cached.
                    let row = match mutation!(ShadowSkipped) {
                        true => Rc::clone(row),
                        false => StripePlaces::of(&space).stripe_location(row, *stripe).await?,
                    };
                    let after = compute(&space, &row, *stripe, &dirty, into).await?;
                    Ok((row, after))
                };
                match computed.await {
                    Ok((row, after)) => {
                        Ok(Some(Computed { at: nth * parity, row, stripe: *stripe, dirty, after }))
                    }
                    // It stays cached until its disks are back.
                    Err(SpaceError::Unreadable { .. }) => Ok(None),
                    Err(error) => Err(error),
                }
            }));
        let found: Result<Vec<Option<Computed>>, SpaceError> = found.await.into_iter().collect();
        Ok((found?.into_iter().flatten().collect(), buffer.freeze()))
    }

    /// Records what stripes will be together with their parity.
    #[pooled]
    async fn record(self, computed: Vec<Computed>, content: Bytes_) -> Result<Vec<Prepared>, SpaceError> {
        if computed.is_empty() {
            return Ok(Vec::new());
        }
        // No flush marks them before it is known whether they stand.
        let held = self.cache.shared().tickets.begin();
        let mut redos = Vec::new();
        let put = CacheWrites::of(self.cache).put_redo(&content, |first| {
            let mut body = Vec::new();
            for one in &computed {
                let redo = one.redo(first);
                push_redo(&mut body, redo.head(), &redo.blocks);
                redos.push(redo);
            }
            body
        });
        let relogged = put.await?;
        redos.iter_mut().for_each(|redo| redo.relogged = relogged);
        redos
            .iter()
            .flat_map(Redo::own_places)
            .for_each(|place| CacheIndex::of(self.cache).count_live(place));
        self.cache.recorded.borrow_mut().extend_from_slice(&redos);
        // They may have left before anybody knew of these stripes.
        CacheRelog::of(self.cache)
            .abandon_recorded(|place| CacheIndex::of(self.cache).is_out_of_reach(place))
            .await?;
        drop(held);
        Ok(redos.into_iter().zip(computed).map(|(redo, one)| one.prepared(redo, &content)).collect())
    }

    /// The blocks of a stripe that are cached, as a flush has covered them, with their content.
    #[pooled]
    async fn dirty_of(self, row: &Rc<Row>, stripe: u32) -> Result<SmallVec<[Dirty; 4]>, SpaceError> {
        let columns =
            (0..row.shape.data_columns()).filter(|column| stripe < row.shape.column_blocks(*column));
        let cached: SmallVec<[usize; 8]> = columns
            .filter(|column| !row.mappings.versions(row.shape.row_block(*column, stripe)).is_empty())
            .collect();
        let found = join_all(cached.into_iter().map(|column| self.dirty_block(row, column, stripe))).await;
        let found: Result<SmallVec<[Option<Dirty>; 8]>, SpaceError> = found.into_iter().collect();
        Ok(found?.into_iter().flatten().collect())
    }

    #[pooled]
    async fn dirty_block(
        self,
        row: &Rc<Row>,
        column: usize,
        stripe: u32,
    ) -> Result<Option<Dirty>, SpaceError> {
        let block = row.shape.row_block(column, stripe);
        CacheWrites::of(self.cache).resolve_in_doubt(row, block).await?;
        let versions = row.mappings.versions(block);
        let may_go = |version: &&Version| {
            CacheIndex::of(self.cache).is_covered(version)
                || (row.shape.unit() == Unit::Block && mutation!(CopiesBeforeFlush))
        };
        let Some(version) = versions.iter().rfind(may_go).copied() else {
            return Ok(None);
        };
        let mut dirty = Dirty { column, block, version, content: None, is_lost: false };
        if let Content::Cached { place, checksum } = version.content {
            match CachedReads::of(self.cache).read_cached(place, checksum).await? {
                CachedRead::Content(buffer) => dirty.content = Some(buffer),
                // It waits for the disks that have it.
                CachedRead::Nothing => return Ok(None),
                CachedRead::Freed => return Err(self.freed_under(row, block)),
                CachedRead::Lost => {
                    dirty.is_lost = true;
                    CachedReads::of(self.cache).note_lost(row, block, version.since);
                }
            }
        }
        Ok(Some(dirty))
    }

    /// Returns the error of a block whose content lies in a row of the write cache that was freed: nothing is put in its place.
    fn freed_under(self, row: &Row, block: u32) -> SpaceError {
        let name = self.cache.shared().pool.name().clone();
        let what = format!(
            "block {block} of row {}: its content is in a row of the write cache that was freed",
            row.id.0
        );
        SpaceError::Pool(PoolError::Corrupt { name, what })
    }

    /// Puts what is cached of a row in place, as far as that can be now.
    ///
    /// # Errors
    /// [`SpaceError`]: what stands in the way.
    pub(crate) async fn empty_row(self, row: &Rc<Row>) -> Result<(), SpaceError> {
        let rounds = u64::from(row.shape.row_blocks());
        for _ in 0..rounds {
            let _log_room =
                Flusher::of(self.cache.shared()).room_for(crate::cache::destage::ROUND_BLOCKS).await?;
            let _exclusive = self.cache.mutex.take().await;
            let blocks: Vec<u32> = row.mappings.all().into_iter().map(|(block, _)| block).collect();
            if blocks.is_empty() || row.freed.get() {
                break;
            }
            let of_row = BTreeMap::from([((row.space, row.index), (Rc::clone(row), blocks))]);
            if !self.destage_blocks(of_row, None).await? {
                break;
            }
        }
        Ok(())
    }

    /// Puts what is cached of blocks of a row in place, as far as that can be now.
    ///
    /// # Errors
    /// [`SpaceError`]: what stands in the way.
    pub(crate) async fn destage_range(self, row: &Rc<Row>, range: Range) -> Result<(), SpaceError> {
        let _log_room =
            Flusher::of(self.cache.shared()).room_for(crate::cache::destage::ROUND_BLOCKS).await?;
        let _exclusive = self.cache.mutex.take().await;
        let blocks: Vec<u32> = range.blocks().filter(|block| row.mappings.newest(*block).is_some()).collect();
        if !blocks.is_empty() && !row.freed.get() {
            let of_row = BTreeMap::from([((row.space, row.index), (Rc::clone(row), blocks))]);
            self.destage_blocks(of_row, None).await?;
        }
        Ok(())
    }
}

/// Stripes that are put in place between two flushes, at most.
pub(crate) const STRIPES_MAX: usize = 128;

/// A stripe of copies with its content.
pub(crate) fn prepared_copies(row: &Rc<Row>, stripe: u32, dirty: SmallVec<[Dirty; 4]>) -> Prepared {
    let redo = Redo {
        row: Rc::clone(row),
        stripe,
        blocks: dirty.iter().map(|one| one.redo(one.state())).collect(),
        ends: dirty.iter().map(|one| (one.block, one.version.since)).collect(),
        relogged: Lsn::default(),
        owns_all: false,
    };
    Prepared { redo, contents: dirty.into_iter().map(|one| one.content.map(Buffer::freeze)).collect() }
}

impl Computed {
    /// What the stripe will be: its changed blocks, then parity, whose content is in cache blocks from `first` on.
    fn redo(&self, first: Place) -> Redo {
        let state = |column: usize| self.after.get(column).copied().unwrap_or_default();
        let data = self.dirty.iter().map(|dirty| dirty.redo(state(dirty.column)));
        let shape = &self.row.shape;
        let parity = (shape.data_columns()..shape.columns()).zip(self.at..).map(|(column, at)| {
            let place = first.plus(u32::try_from(at).unwrap_or(u32::MAX));
            let is_there = matches!(state(column), BlockState::Valid(_));
            let place = if is_there { place } else { Place::default() };
            RedoBlock { column, state: state(column), place, since: None }
        });
        Redo {
            row: Rc::clone(&self.row),
            stripe: self.stripe,
            blocks: data.chain(parity).collect(),
            ends: self.dirty.iter().map(|dirty| (dirty.block, dirty.version.since)).collect(),
            relogged: Lsn::default(),
            owns_all: false,
        }
    }

    /// The redo with its content, of which parity is in `record`.
    fn prepared(self, redo: Redo, record: &Bytes_) -> Prepared {
        let mut data: BTreeMap<usize, Bytes_> = self
            .dirty
            .into_iter()
            .filter_map(|dirty| Some((dirty.column, dirty.content?.freeze())))
            .collect();
        let first = self.row.shape.data_columns();
        let contents = redo.blocks.iter().map(|block| match block.state {
            BlockState::Never | BlockState::Damaged => None,
            BlockState::Valid(_) => match block.column.checked_sub(first) {
                Some(nth) => Some(record.slice((self.at + nth) * BLOCK..(self.at + nth + 1) * BLOCK)),
                None => data.remove(&block.column),
            },
        });
        let contents = contents.collect();
        Prepared { redo, contents }
    }
}

/// A stripe whose parity was computed.
pub(crate) struct Computed {
    /// Which of the parity blocks of its record are its own, from here on.
    at: usize,
    row: Rc<Row>,
    stripe: u32,
    dirty: SmallVec<[Dirty; 4]>,
    after: StripeStates,
}

/// Computes the parity of a stripe into `into`; what its blocks will be.
#[pooled]
pub(crate) async fn compute(
    space: &SpaceRows,
    row: &Rc<Row>,
    stripe: u32,
    dirty: &[Dirty],
    into: &mut [u8],
) -> Result<StripeStates, SpaceError> {
    let shape = &row.shape;
    let before = TableStore::of(&space.shared).stripe_states(row, stripe).await?;
    let mut after = before.clone();
    for one in dirty {
        if let Some(place) = after.get_mut(one.column) {
            *place = one.state();
        }
    }
    let (data, _) = after.split_at(shape.data_columns());
    let is_nothing = data.iter().all(|state| *state == BlockState::Never);
    // The parity of a shadow row says that the stripe is the shadow row's: of nothing it is a block of zeros, or what the row had
    // would be there again.
    let keeps_parity = row.is_shadow() && !mutation!(ShadowForgetsStripes);
    let mut parity_state = if data.contains(&BlockState::Damaged) {
        Some(BlockState::Damaged)
    } else if is_nothing && !keeps_parity {
        Some(BlockState::Never)
    } else {
        None
    };
    let changes = (dirty, &before);
    let is_relogged = is_update_cheaper(row, changes);
    if parity_state.is_none()
        && !is_nothing
        && !(is_relogged && update_parity(space, row, stripe, changes, into).await)
    {
        match encode_fully(space, row, stripe, changes, into).await {
            Err(SpaceError::Unreadable { why, .. }) if why.is_final() => {
                // Of a block that does not change nobody knows what it is; what changes may do without it.
                if is_relogged || !update_parity(space, row, stripe, changes, into).await {
                    parity_state = Some(BlockState::Damaged);
                }
            }
            encoded => encoded?,
        }
    }
    let computed = into.chunks_exact(BLOCK).map(|block| BlockState::Valid(crc32c(block)));
    for (place, state) in after.iter_mut().skip(shape.data_columns()).zip(computed) {
        *place = parity_state.unwrap_or(state);
    }
    Ok(after)
}

/// Whether parity from what it was and what changes takes no more reads than computing it again.
pub(crate) fn is_update_cheaper(row: &Row, (dirty, before): (&[Dirty], &StripeStates)) -> bool {
    let is_valid = |column: &usize| matches!(before.get(*column), Some(BlockState::Valid(_)));
    let is_dirty = |column: &usize| dirty.iter().any(|one| one.column == *column);
    let relogged =
        dirty.iter().filter(|one| is_valid(&one.column)).count() + row.shape.computed_columns().len();
    let supersedes =
        (0..row.shape.data_columns()).filter(|column| is_valid(column) && !is_dirty(column)).count();
    relogged <= supersedes
}

/// Computes parity from what it was and what changes; not where something of it is not what its table says.
#[pooled]
pub(crate) async fn update_parity(
    space: &SpaceRows,
    row: &Rc<Row>,
    stripe: u32,
    (dirty, before): (&[Dirty], &StripeStates),
    into: &mut [u8],
) -> bool {
    let data = row.shape.data_columns();
    let columns = dirty.iter().map(|one| one.column).chain(data..row.shape.columns());
    let found = join_all(columns.map(async |column| {
        let state = before.get(column).copied().unwrap_or_default();
        StripeReads::of(space).look(row, column, stripe, state).await
    }))
    .await;
    if !found.iter().all(Found::is_known) {
        return false;
    }
    let (old, parity) = found.split_at(dirty.len());
    for (block, old) in into.chunks_exact_mut(BLOCK).zip(parity) {
        match old.bytes() {
            Some(old) => block.copy_from_slice(old),
            None => block.fill(0),
        }
    }
    let changes: SmallVec<[Change<'_>; 12]> = dirty
        .iter()
        .zip(old)
        .map(|(one, old)| Change { column: one.column, old: old.bytes(), new: one.content.as_deref() })
        .collect();
    let changes: SmallVec<[Change<'_>; 12]> =
        changes.into_iter().filter(|one| one.new.is_some() || !mutation!(NeverOnOneColumn)).collect();
    for _ in 0..if mutation!(DifferenceTwice) { 2 } else { 1 } {
        let mut parity: SmallVec<[Option<&mut [u8]>; 2]> = into.chunks_exact_mut(BLOCK).map(Some).collect();
        if mutation!(SecondParityNotUpdated) {
            parity.iter_mut().skip(1).for_each(|block| *block = None);
        }
        row.shape.update(&changes, &mut parity);
    }
    true
}

/// Computes parity from all data of a stripe: what does not change is read, or computed from the old parity.
#[pooled]
pub(crate) async fn encode_fully(
    space: &SpaceRows,
    row: &Rc<Row>,
    stripe: u32,
    (dirty, before): (&[Dirty], &StripeStates),
    into: &mut [u8],
) -> Result<(), SpaceError> {
    let data = row.shape.data_columns();
    let mut others: Vec<(usize, Buffer)> = Vec::new();
    for column in (0..data).filter(|column| !dirty.iter().any(|one| one.column == *column)) {
        if before.get(column).copied().unwrap_or_default() == BlockState::Never {
            continue;
        }
        let mut buffer = space.shared.pool.seams().metadata.take(BLOCK).await;
        StripeReads::of(space).read_main(row, (column, stripe), HedgeDelay::Long, &mut buffer).await?;
        others.push((column, buffer));
    }
    let bytes_of = |column: usize| -> Option<&[u8]> {
        match dirty.iter().find(|one| one.column == column) {
            Some(one) => one.content.as_deref(),
            None => others.iter().find(|(other, _)| *other == column).map(|(_, buffer)| &**buffer),
        }
    };
    let blocks: SmallVec<[Option<&[u8]>; 12]> = (0..data).map(bytes_of).collect();
    let mut parity: SmallVec<[Option<&mut [u8]>; 2]> = into.chunks_exact_mut(BLOCK).map(Some).collect();
    row.shape.encode(&blocks, &mut parity);
    Ok(())
}

impl Dirty {
    /// What its block will be.
    fn state(&self) -> BlockState {
        match &self.content {
            _ if self.is_lost => BlockState::Damaged,
            Some(content) => BlockState::Valid(crc32c(content)),
            None => BlockState::Never,
        }
    }

    /// What a redo says of it.
    fn redo(&self, state: BlockState) -> RedoBlock {
        let place = self.version.content.place().unwrap_or_default();
        RedoBlock { column: self.column, state, place, since: Some(self.version.since) }
    }
}

/// A block of the stripe that is cached.
pub(crate) struct Dirty {
    column: usize,
    block: u32,
    version: Version,
    content: Option<Buffer>,
    is_lost: bool,
}
