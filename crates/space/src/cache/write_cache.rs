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

use std::fmt;
use std::rc::Rc;

use dolmen_buffer::Shared as Bytes_;
use dolmen_future_pool::pooled;
use dolmen_journal::Wait;
use dolmen_units::{Lsn, SpaceId};

use crate::cache::drain::Drain;
use crate::cache::fill::SegmentFill;
use crate::cache::gather::Gather;
use crate::cache::promise::Reserved;
use crate::cache::relog::CacheRelog;
use crate::cache::segment_io::SegmentIo;
use crate::cache::segments::{CacheIndex, Filling, mapping_of, may_hold, version};
use crate::format::error::{SpaceError, UnreadableReason};
use crate::format::record::{BlockState, Mapping, Place, RECORD_BYTES_MAX};
use crate::layout::BLOCK;
use crate::resources::locks::Range;
use crate::row_io::block_log::BlockLog;
use crate::row_io::copies::RowCopies;
use crate::row_io::parts::RecordExtra;
use crate::table::mapping::{Content, IN_DOUBT, Version};
use crate::table::row::Row;
use crate::table::space::Cache;

/// Bytes of a write that are cached in one go, at most.
pub(crate) const CACHED_BYTES_MAX: usize = 1 << 20;
/// Blocks that go to a write cache, come from it, and are decided there.
#[derive(Clone, Copy)]
pub(crate) struct CacheWrites<'a> {
    cache: &'a Rc<Cache>,
}

impl<'a> CacheWrites<'a> {
    /// Returns the service for a write cache.
    pub(crate) fn of(cache: &'a Rc<Cache>) -> Self {
        Self { cache }
    }
}

impl CacheWrites<'_> {
    /// Caches whole blocks of a row. The caller holds their lock, and has reserved room.
    #[pooled]
    pub(crate) async fn put(
        self,
        row: &Rc<Row>,
        first: u32,
        data: &Bytes_,
        reserved: &mut Reserved<'_>,
    ) -> Result<(), SpaceError> {
        let held = self.cache.shared().tickets.begin();
        let mut done = 0;
        while done < data.len() {
            let left = u32::try_from((data.len() - done) / BLOCK).unwrap_or(u32::MAX);
            let from = first + u32::try_from(done / BLOCK).unwrap_or(0);
            let Some((at, block, count)) = SegmentFill::of(self.cache).take(Filling::Writes, left) else {
                return Err(self.full_up());
            };
            reserved.release(count.into(), 0);
            let place = CacheIndex::of(self.cache).place(at, block);
            let piece = data.slice(done..done + count as usize * BLOCK);
            let mapping = mapping_of(row, from, count, Some(place));
            let wrote = Gather::of(self.cache).write_mapped((at, block), piece.clone(), mapping).await?;
            CacheIndex::of(self.cache).note_written(at, row, Range { first: from, count });
            self.cache.filled.add(CacheIndex::of(self.cache).now(), piece.len() as u64);
            self.cache.kept.put(place, &piece);
            for (number, state) in (0..).zip(&wrote.states) {
                let BlockState::Valid(checksum) = *state else { continue };
                let content = Content::Cached { place: place.plus(number), checksum };
                CacheIndex::of(self.cache).add(
                    row,
                    from + number,
                    version(content, wrote.lsn, held.ticket()),
                );
            }
            // Not before they count themselves: as many as there are writes under way would come on top of what there may be.
            reserved.release(0, count.into());
            CacheRelog::of(self.cache).defer_what_left(at, (block, count)).await?;
            done += piece.len();
        }
        if CacheIndex::of(self.cache).wants_room() {
            Drain::of(self.cache).empty_soon();
        }
        Ok(())
    }

    /// Caches that blocks of a row are discarded. The caller holds their lock.
    pub(crate) async fn discard(self, row: &Rc<Row>, ranges: &[Range]) -> Result<(), SpaceError> {
        let held = self.cache.shared().tickets.begin();
        for some in ranges.chunks(RECORD_BYTES_MAX / 64) {
            let bodies = some.iter().map(|range| mapping_of(row, range.first, range.count, None).head());
            let lsn = BlockLog::of(self.cache.shared())
                .record(&bodies.flatten().collect::<Vec<u8>>(), Wait::Written)
                .await?;
            for range in some {
                for block in range.first..range.first + range.count {
                    CacheIndex::of(self.cache).add(
                        row,
                        block,
                        version(Content::Discarded, lsn, held.ticket()),
                    );
                }
            }
        }
        Ok(())
    }

    /// Writes parity, or what else stripes become, together with the record that they are about to be written in place, to
    /// blocks that `body` names: it is given the first of them. The number of the record.
    pub(crate) async fn put_redo(
        self,
        content: &Bytes_,
        body: impl FnOnce(Place) -> Vec<u8>,
    ) -> Result<Lsn, SpaceError> {
        let blocks = u32::try_from(content.len() / BLOCK).unwrap_or(0);
        let (at, first, _) =
            SegmentFill::of(self.cache).take(Filling::Parity, blocks).ok_or_else(|| self.full_up())?;
        let body = body(CacheIndex::of(self.cache).place(at, first));
        Ok(SegmentIo::of(self.cache).write((at, first), content, RecordExtra::Redo(&body)).await?.lsn)
    }

    fn full_up(self) -> SpaceError {
        SpaceError::CacheFull { name: self.cache.space.name() }
    }

    /// What the cache's own table says of a block.
    pub(crate) async fn state(self, place: Place) -> Result<BlockState, SpaceError> {
        let Some(row) = self.cache.row_of(place) else { return Ok(BlockState::Never) };
        let states =
            RowCopies::of(&self.cache.space).states(&row, 0, Range { first: place.block, count: 1 }).await?;
        Ok(states.first().copied().unwrap_or_default())
    }

    /// As [`state`](Self::state), `None` while no disk is here that could tell.
    pub(crate) async fn state_in_reach(self, place: Place) -> Result<Option<BlockState>, SpaceError> {
        match self.state(place).await {
            Ok(state) => Ok(Some(state)),
            Err(SpaceError::Unreadable { why: UnreadableReason::Absent, .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Whether a version that no flush has covered was found to be nothing, when its cache row was decided.
    pub(crate) async fn is_void(self, version: &Version) -> Result<bool, SpaceError> {
        let Content::Cached { place, checksum } = version.content else { return Ok(false) };
        Ok(!CacheIndex::of(self.cache).is_covered(version) && !may_hold(self.state(place).await?, checksum))
    }

    /// Settles which versions of a block count of those that nobody could decide, now that their cache rows are decided. The
    /// caller holds the block's lock.
    pub(crate) async fn resolve_in_doubt(self, row: &Rc<Row>, block: u32) -> Result<(), SpaceError> {
        for version in row.mappings.versions(block) {
            let Content::Cached { place, checksum } = version.content else { continue };
            if version.ticket != Some(IN_DOUBT) || CacheIndex::of(self.cache).is_out_of_reach(place) {
                continue;
            }
            match self.state_in_reach(place).await? {
                Some(state) if may_hold(state, checksum) => row.mappings.note_decided(block, version.since),
                Some(_) => self.abandon(row, block, &version),
                None => {}
            }
        }
        CacheIndex::of(self.cache).forget_if_empty(row);
        Ok(())
    }

    /// What a block of a row holds, if it is in the cache. The caller holds its lock, or looks again if it is not that.
    pub(crate) async fn content(self, row: &Rc<Row>, block: u32) -> Result<Option<Content>, SpaceError> {
        while let Some(version) = row.mappings.newest(block) {
            if !CacheIndex::of(self.cache).is_covered(&version)
                && let Some(place) = version.content.place()
            {
                SegmentIo::of(self.cache).decided_row(place)?;
            }
            if !self.is_void(&version).await? {
                row.mappings.note_decided(block, version.since);
                return Ok(Some(version.content));
            }
            self.abandon(row, block, &version);
        }
        CacheIndex::of(self.cache).forget_if_empty(row);
        Ok(None)
    }

    /// Forgets a version that came to nothing. If it was acknowledged and left with its copies, and nothing took its place since,
    /// the next flush of its space tells that.
    fn abandon(self, row: &Row, block: u32, version: &Version) {
        let is_newest = row.mappings.newest(block).is_some_and(|newest| newest.since == version.since);
        let space = self.cache.owner(row.space).filter(|_| is_newest && version.ticket == Some(IN_DOUBT));
        if let Some(space) = space {
            space.lost_unflushed.set(true);
        }
        CacheIndex::of(self.cache).forget(&row.mappings.void(block, version.since));
        row.moves.touch(Range { first: block, count: 1 });
        if let Content::Cached { place, checksum } = version.content {
            let mapping = mapping_of(row, block, 1, Some(place));
            let void = Mapping { since: Some(version.since), void: true, ..mapping };
            self.cache.declared_lost.borrow_mut().push((void, checksum));
        }
    }

    /// Rows of a space with versions of which nobody could tell whether they are whole, and their blocks; but for those that one
    /// has taken the place of which a flush has covered.
    pub(crate) fn in_doubt_of(self, space: SpaceId) -> Vec<(Rc<Row>, Vec<u32>)> {
        let rows = self.cache.rows.borrow();
        let mut in_doubt = Vec::new();
        for row in rows.range((space, 0)..=(space, u64::MAX)).map(|(_, row)| row) {
            let mut all = row.mappings.all();
            all.retain(|(_, version)| version.ticket == Some(IN_DOUBT));
            let counts = |(block, version): &(u32, Version)| {
                let versions = row.mappings.versions(*block);
                !versions
                    .iter()
                    .any(|newer| newer.since > version.since && CacheIndex::of(self.cache).is_covered(newer))
            };
            let blocks: Vec<u32> = all.iter().filter(|one| counts(one)).map(|(block, _)| *block).collect();
            if !blocks.is_empty() {
                in_doubt.push((Rc::clone(row), blocks));
            }
        }
        in_doubt
    }

    /// Whether nobody could tell of something that is cached of a space whether it is whole.
    pub(crate) fn has_in_doubt_of(self, space: SpaceId) -> bool {
        !self.in_doubt_of(space).is_empty()
    }
}

impl fmt::Debug for Cache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Cache({} of {} blocks free, {} versions)",
            CacheIndex::of(self).free(),
            CacheIndex::of(self).capacity(),
            self.versions.get()
        )
    }
}
