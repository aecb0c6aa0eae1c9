//! An only copy leaves: blocks that no flush had covered there cannot be told any more, and must not be called flushed.
//!
//! The table in memory has their newest state. The disk, when it is back, may hold that or any state since the last flush,
//! because its cache may be gone. So all that the log says of such a block is kept, as after a crash, and relogged at
//! every checkpoint; the row is decided when it is next used with its disk there (docs/design/0002).

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use dolmen_block_io::DeviceError;
use dolmen_future_pool::pooled;
use dolmen_journal::Wait;
use dolmen_pool::{ExcludeReason, RecordedBlocks};
use dolmen_units::{RowId, SpaceId};
use smallvec::{SmallVec, smallvec};

use crate::cache::relog::CacheRelog;
use crate::format::error::SpaceError;
use crate::format::ids::shadows_of;
use crate::format::record::BlockState;
use crate::in_doubt::failed_writes::{FAILED_WRITES, FailedCopies, FailedDecision, FailedFacts};
use crate::layout::{Covered, Unit};
use crate::resolution::recovery::{
    Restating, collect, encode_candidates, give_to_all, is_only_lost, is_out_of_reach, keep_latest,
};
use crate::resources::clients::Clients;
use crate::resources::hedge_delay::HedgeDelay;
use crate::resources::locks::Range;
use crate::resources::tickets::Held;
use crate::row_io::absence::RowRecords;
use crate::row_io::block_log::BlockLog;
use crate::row_io::copies::{Copy, RowCopies, matches_state};
use crate::row_io::flusher::Flusher;
use crate::table::candidates::{Candidate, RowCandidates};
use crate::table::page::place_in_page;
use crate::table::pages::TableStore;
use crate::table::row::{BlocksOfRows, Row};
use crate::table::space::{Shared, SpaceRows};

/// Blocks of a row, by column.
type ByColumn = BTreeMap<usize, Vec<u32>>;

/// Deferral of blocks that nothing can decide while disks are absent.
#[derive(Clone, Copy)]
pub(crate) struct Deferral<'a> {
    shared: &'a Shared,
}

impl<'a> Deferral<'a> {
    /// Returns the service for what the spaces of a pool share.
    pub(crate) fn of(shared: &'a Shared) -> Self {
        Self { shared }
    }
}

impl Deferral<'_> {
    /// Keeps all that the log says of blocks that nobody can decide now, and says it again, so that no flush counts them in.
    /// Their spaces cannot be flushed until the blocks are decided.
    #[pooled]
    pub(crate) async fn leave_in_doubt(self, blocks: BlocksOfRows) -> Result<(), SpaceError> {
        if blocks.is_empty() {
            return Ok(());
        }
        let sources = Flusher::of(self.shared).sources_of(&blocks);
        for (key, (row, places)) in blocks.into_iter().chain(sources) {
            let mut leaving = self.shared.leaving.borrow_mut();
            leaving.entry(key).or_insert_with(|| (row, BTreeSet::new())).1.extend(places);
        }
        let _exclusive = self.shared.defer_mutex.take().await;
        // The log is read once for all that came while it was being read: a disk that leaves fails many writes.
        let blocks = std::mem::take(&mut *self.shared.leaving.borrow_mut());
        if blocks.is_empty() {
            // Done by the one before, unless that failed, which stops the pool.
            return Ok(self.shared.pool.log().check_writable()?);
        }
        self.shared.deferred_now.replace(blocks.keys().copied().collect());
        let left = self.leave_all(&blocks).await;
        self.shared.deferred_now.borrow_mut().clear();
        left
    }

    /// The caller has the turn.
    #[pooled]
    async fn leave_all(self, blocks: &BlocksOfRows) -> Result<(), SpaceError> {
        let mut known: BTreeMap<RowId, RowCandidates> = BTreeMap::new();
        let ids: BTreeSet<RowId> = blocks.values().map(|(row, _)| row.id).collect();
        let visit =
            |record: RecordedBlocks<'_>| collect(self.shared, record, |row| ids.contains(&row), &mut known);
        self.shared.pool.log().recorded_blocks(visit).await?;
        for (row, wanted) in blocks.values().filter(|(row, _)| !row.freed.get()) {
            let mut candidates = known.remove(&row.id).unwrap_or_default();
            candidates.retain(|place, _| wanted.contains(place));
            for (column, block) in wanted {
                let (index, entry) = place_in_page(*block);
                let Some(page) = row.page(*column, index) else { continue };
                // The log cannot say less than the table in memory; were a batch of it lost, the newest state is left.
                let newest = || smallvec![Candidate::of_table(row.id, &page, entry).in_doubt()];
                candidates.entry((*column, *block)).or_insert_with(newest);
            }
            candidates.values_mut().for_each(keep_latest);
            // That a block is lost was acknowledged to nobody.
            let is_missed = candidates.len() < wanted.len()
                || !candidates.values().all(|candidates| is_only_lost(candidates));
            if is_missed {
                tracing::error!(pool = %self.shared.pool.name(), space = %row.space, row = row.index, blocks = candidates.len(),
                    "unflushed blocks are out of reach");
            }
            let relogged = (Restating::Supersedes, Covered::Before);
            for body in encode_candidates(&candidates, relogged) {
                BlockLog::of(self.shared).record(&body, Wait::Written).await?;
            }
            if row.freed.get() {
                continue;
            }
            if let Some((deciding, _)) =
                self.shared.deciding.get().filter(|(key, _)| *key == (row.space, row.index))
            {
                self.shared.deciding.set(Some((deciding, true)));
            }
            {
                let mut deferred = self.shared.deferred.borrow_mut();
                Rc::make_mut(deferred.entry((row.space, row.index)).or_default()).extend(candidates);
            }
            if is_missed {
                self.shared.unflushed_away.borrow_mut().insert((row.space, row.index));
            }
            if let Some(cache) =
                self.shared.caches().into_iter().find(|cache| cache.space().id() == row.space)
            {
                CacheRelog::of(&cache).leave_in_doubt(row, wanted).await?;
            }
        }
        Ok(())
    }

    /// Whether what was just done to a block is to be left in doubt: it is out of reach, or what was known of it before was left.
    fn is_to_be_deferred(self, row: &Row, column: usize, block: u32) -> bool {
        self.shared.is_being_deferred(row)
            || !TableStore::of(self.shared).is_decidable(row, column)
            || self.shared.is_in_doubt(row, column, block)
    }

    /// As [`leave_in_doubt`](Self::leave_in_doubt), for what is out of reach of some ranges, or was left while it was written. The
    /// caller holds their lock, and the ticket under which they were recorded last.
    pub(crate) async fn leave_what_is_away(
        self,
        row: &Rc<Row>,
        ranges: impl Iterator<Item = (usize, Range)>,
    ) -> Result<(), SpaceError> {
        let blocks: BTreeSet<(usize, u32)> = ranges
            .flat_map(|(column, range)| {
                (range.first..range.first + range.count).map(move |block| (column, block))
            })
            .filter(|(column, block)| self.is_to_be_deferred(row, *column, *block))
            .collect();
        if blocks.is_empty() {
            return Ok(());
        }
        let key = (row.space, row.index, row.id);
        self.leave_in_doubt(BTreeMap::from([(key, (Rc::clone(row), blocks))])).await
    }

    /// Notes that an opening found acknowledged blocks of a space in an earlier state, so that its next flush says so to clients
    /// that have survived whoever had acknowledged them.
    pub(crate) fn note_reverted(self, space: Option<&Rc<SpaceRows>>) {
        let Some(space) = space.filter(|_| self.shared.clients.get() == Clients::MayLive) else { return };
        if !space.lost_unflushed.replace(true) {
            tracing::error!(pool = %self.shared.pool.name(), space = %space.name(),
                "acknowledged writes that no flush had covered are what was there before; the next flush says so");
        }
    }

    /// Rows of a space with unflushed blocks that are out of reach.
    pub(crate) fn rows_unflushed_away(self, space: &SpaceRows) -> Vec<u64> {
        let away = self.shared.unflushed_away.borrow();
        let of = |id: SpaceId| away.range((id, 0)..=(id, u64::MAX)).map(|(_, index)| *index);
        of(space.id()).chain(of(shadows_of(space.id()))).collect()
    }
}

/// Writes that failed on some copies: the old content or the new.
#[derive(Clone, Copy)]
pub(crate) struct FailedWrites<'a> {
    space: &'a SpaceRows,
}

impl<'a> FailedWrites<'a> {
    /// Returns the service for a space.
    pub(crate) fn of(space: &'a SpaceRows) -> Self {
        Self { space }
    }
}

impl FailedWrites<'_> {
    /// After a write that failed on some copies and cannot stand: every block gets what it had, if a copy still has that, or
    /// else what was written, and all copies the same. The caller holds the blocks' lock and the ticket of the write.
    #[pooled]
    pub(crate) async fn resolve_failed_write(
        self,
        row: &Rc<Row>,
        written: &[(usize, u32, BlockState)],
        failed: &[(dolmen_units::DiskSlot, DeviceError)],
        held: &Held,
    ) -> Result<(), SpaceError> {
        for (slot, error) in failed {
            // A device that does not answer may still do what it was told, later.
            if matches!(
                error,
                DeviceError::Detached | DeviceError::TimedOut | DeviceError::Fenced | DeviceError::CacheLost
            ) {
                self.space.shared.pool.exclude(*slot, ExcludeReason::MissedWrite).await?;
            }
        }
        let (mut decided, mut in_doubt) = (ByColumn::new(), BTreeSet::new());
        for (column, block, new) in written {
            let (index, entry) = place_in_page(*block);
            let page = TableStore::of(&self.space.shared).page(row, *column, index).await?;
            match self.old_or_new(row, (*column, *block), page.state(entry), *new).await? {
                Some(state) => {
                    page.set(entry, state, self.space.shared.stamp(), self.space.shared.now(held));
                    decided.entry(*column).or_default().push(*block);
                }
                None => {
                    in_doubt.insert((*column, *block));
                }
            }
        }
        RowRecords::of(&self.space.shared).commit_absences(row).await?;
        // Noted before they are recorded: a flush that sees another epoch meanwhile records them again.
        for (column, blocks) in &decided {
            for first in blocks {
                Flusher::of(&self.space.shared).note_unflushed(
                    held.ticket(),
                    row,
                    *column,
                    Range { first: *first, count: 1 },
                );
            }
        }
        let places =
            || decided.iter().flat_map(|(column, blocks)| blocks.iter().map(move |block| (*column, *block)));
        // Nothing of a stripe with parity was ever there, as a flush has covered: behind one that is under way, which covers the
        // record that it was written, that must not count as what was there before.
        let covered = row.shape.covered();
        BlockLog::of(&self.space.shared).record_again(row, places(), covered, held.ticket()).await?;
        // The copies that they were given to may have left by now.
        in_doubt.extend(places().filter(|(column, block)| {
            Deferral::of(&self.space.shared).is_to_be_deferred(row, *column, *block)
        }));
        if in_doubt.is_empty() {
            return Ok(());
        }
        let key = (row.space, row.index, row.id);
        Deferral::of(&self.space.shared)
            .leave_in_doubt(BTreeMap::from([(key, (Rc::clone(row), in_doubt))]))
            .await
    }

    /// What a block is after a failed write, on all copies; `None` when no copy that answers has the one or the other.
    #[pooled]
    async fn old_or_new(
        self,
        row: &Rc<Row>,
        (column, block): (usize, u32),
        old: BlockState,
        new: BlockState,
    ) -> Result<Option<BlockState>, SpaceError> {
        let mut facts = FailedFacts { was_never: old == BlockState::Never, copies: FailedCopies::Unread };
        // Stripes go to slots that were never written: of one that failed there is nothing to take back.
        assert!(
            row.shape.unit() == Unit::Block || facts.was_never,
            "row {} had a stripe written over {old:?}",
            row.index
        );
        let mut copies = SmallVec::new();
        let decision = loop {
            match crate::in_doubt::decide(FAILED_WRITES, &facts) {
                (_, FailedDecision::ReadCopies) => {
                    copies =
                        RowCopies::of(self.space).read_copies(row, column, block, HedgeDelay::Long).await;
                    facts.copies = match good_copy(&copies, [old, new]) {
                        _ if is_out_of_reach(&copies) => FailedCopies::Silent,
                        None => FailedCopies::Neither,
                        Some((state, _)) if state == old => FailedCopies::Old,
                        Some(_) => FailedCopies::New,
                    };
                }
                (rule, decision) => {
                    tracing::trace!(rule, row = row.index, column, block, "a block of a failed write");
                    break decision;
                }
            }
        };
        match decision {
            FailedDecision::ReadCopies | FailedDecision::Defer => Ok(None),
            FailedDecision::Never => Ok(Some(BlockState::Never)),
            FailedDecision::Old | FailedDecision::New => {
                let Some((state, good)) = good_copy(&copies, [old, new]) else { return Ok(None) };
                give_to_all(&self.space.shared, self.space, &copies, &good.bytes).await?;
                Ok(Some(state))
            }
        }
    }
}

/// Returns the first of these states that a trusted copy has, and that copy.
fn good_copy(copies: &[Copy], states: [BlockState; 2]) -> Option<(BlockState, &Copy)> {
    states.into_iter().find_map(|state| {
        let is_good = |copy: &&Copy| copy.trusted && copy.result.is_ok() && matches_state(&copy.bytes, state);
        copies.iter().find(is_good).map(|good| (state, good))
    })
}
