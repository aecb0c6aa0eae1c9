//! Recovery: what the log says of blocks is decided for good before anything is served.
//!
//! Records that a flush has covered are applied as they are. For every block that a later record names, the copies are
//! read, and the newest state that one of them verifies is given to all; see docs/design/0002 for why this is enough.

use std::collections::BTreeMap;
use std::rc::Rc;

use dolmen_future_pool::pooled;
use dolmen_mutation::mutation;
use dolmen_pool::{ExcludeReason, PoolError, RecordedBlocks, keys};
use dolmen_units::{BLOCK_BYTES, Bytes, RowId, SpaceId};
use smallvec::SmallVec;

use crate::format::error::{SpaceError, UnreadableReason};
use crate::format::record::{BlockExtent, BlockState, extents, push_extent};
use crate::format::resiliency::Integrity;
use crate::in_doubt::blocks::{BLOCKS, Base, BlockDecision, BlockFacts, Copies, FirstMatch, LostClaims};
use crate::layout::Covered;
use crate::resolution::mention::add_candidates;
use crate::resources::events::{DataLossEvent, DataLossKind};
use crate::resources::hedge_delay::{HedgeDelay, is_silence};
use crate::resources::locks::Range;
use crate::resources::tickets::Held;
use crate::row_io::absence::RowRecords;
use crate::row_io::copies::{Copy, RowCopies, matches_state};
use crate::row_io::flusher::Flusher;
use crate::table::candidates::{Candidate, Candidates, RowCandidates, Unfound};
use crate::table::page::{Page, place_in_page};
use crate::table::pages::{Knowledge, PageOnDisk, TableStore};
use crate::table::row::{Row, Slab};
use crate::table::space::{Cache, Shared, SpaceRows};

/// Blocks of a row that are decided beside each other.
pub(crate) const DECIDED_TOGETHER: usize = 16;

/// What recovery did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Recovery {
    /// Rows that the log spoke of.
    pub rows: u64,
    /// Blocks whose state had to be decided by reading them.
    pub decided: u64,
    /// Of them, blocks that had to be rewritten on some copy.
    pub rewritten: u64,
    /// Of them, blocks that were accepted unverified.
    pub accepted_unverified: u64,
    /// Of them, blocks that are lost.
    pub damaged: u64,
    /// Of them, blocks whose last state was on no copy, so that they have an earlier one since the last flush.
    pub reverted: u64,
    /// Of all blocks, those that had been left in doubt, and are what they were before, or lost.
    pub went_back: u64,
    /// Of them, blocks of which no copy here is good, while disks are away that may have one.
    pub corrupt_here: u64,
    /// Blocks whose disks are not here, so that nothing could be decided.
    pub out_of_reach: u64,
    /// Stripes with parity that were in flight and stand, because enough of each was there.
    pub whole_stripes: u64,
    /// Stripes that were in flight and are what they were before.
    pub reverted_stripes: u64,
}

impl Recovery {
    pub(crate) fn add(&mut self, other: Self) {
        let Self {
            rows,
            decided,
            rewritten,
            accepted_unverified,
            damaged,
            reverted,
            went_back,
            corrupt_here,
            out_of_reach,
            whole_stripes,
            reverted_stripes,
        } = other;
        self.rows += rows;
        self.decided += decided;
        self.rewritten += rewritten;
        self.accepted_unverified += accepted_unverified;
        self.damaged += damaged;
        self.reverted += reverted;
        self.went_back += went_back;
        self.corrupt_here += corrupt_here;
        self.out_of_reach += out_of_reach;
        self.whole_stripes += whole_stripes;
        self.reverted_stripes += reverted_stripes;
    }
}

/// Notes what of a row could not be decided.
pub(crate) fn note_deferred(shared: &Shared, key: (SpaceId, u64), mut left: RowCandidates) {
    if left.is_empty() {
        return;
    }
    left.values_mut().for_each(keep_latest);
    if left.values().flatten().any(Candidate::is_of_an_open_write) {
        shared.unflushed_away.borrow_mut().insert(key);
    }
    Rc::make_mut(shared.deferred.borrow_mut().entry(key).or_default()).extend(left);
}

/// Says that slabs on absent disks are stale, in memory: the checkpoint at the end makes it durable. A recovery that was cut
/// short may have got as far as the row, which comes before the index of stale rows in the order of keys, and the disk may
/// be here again: so the index is told of every slab that the row calls stale.
pub(crate) fn mark_absences(shared: &Shared, row: &Row) {
    if let Some((record, edits)) = RowRecords::of(shared).with_absences(row) {
        shared.pool.map().edit_before_checkpoint(edits);
        row.adopt(record);
    }
    let record = row.record();
    let stale = record.columns.iter().flatten().filter(|slab| slab.stale.is_some());
    let index = stale.map(|slab| (keys::stale(slab.disk, row.id), Vec::new()));
    shared.pool.map().edit_before_checkpoint(index.collect());
}

/// Adds what a record says of rows that are wanted.
pub(crate) fn collect(
    shared: &Shared,
    record: RecordedBlocks<'_>,
    wanted: impl Fn(RowId) -> bool,
    by_row: &mut BTreeMap<RowId, RowCandidates>,
) -> Result<(), PoolError> {
    for read in extents(record.body) {
        let read = read.ok_or_else(|| shared.malformed(record.lsn))?;
        let row = read.extent.row;
        if wanted(row) {
            add_candidates(record.durable, read, u32::MAX, by_row.entry(row).or_default());
        }
    }
    Ok(())
}

/// Where the state of a block is that a flush has covered, when the log does not say it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Below {
    /// In the table in memory, which was just read.
    Memory,
    /// In the table on the disks: in memory, later writes have replaced it.
    Disk,
}

/// A page of which the log speaks, with the low bits of the generation that it has at least; `None` while no disk is here that
/// could tell.
pub(crate) async fn page_in_reach(
    shared: &Shared,
    row: &Rc<Row>,
    (column, index): (usize, usize),
    minimum: u16,
) -> Result<Option<Rc<Page>>, SpaceError> {
    match TableStore::of(shared).page_knowing(row, column, index, Knowledge::AtLeast(minimum)).await {
        Ok(page) => Ok(Some(page)),
        Err(SpaceError::Unreadable { why: UnreadableReason::Absent, .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// A block of which the log says what no flush has covered.
pub(crate) struct OpenBlock {
    pub(crate) column: usize,
    pub(crate) block: u32,
    pub(crate) page: Rc<Page>,
    pub(crate) candidates: Candidates,
    /// What it was when a flush covered it last; `None` while no disk is here that could tell.
    pub(crate) base: Option<BlockState>,
}

/// Notes what blocks were when a flush covered them last. Each page is looked up once for all of its blocks: a row may have
/// thousands that cannot be decided while disks are away, and everybody who comes asks again.
#[pooled]
pub(crate) async fn note_bases(shared: &Shared, row: &Rc<Row>, open: &mut [OpenBlock], below: Below) {
    let mut latest: Option<((usize, usize), PageOnDisk)> = None;
    for block in open {
        let (index, entry) = place_in_page(block.block);
        if below == Below::Memory || !block.candidates.iter().all(Candidate::is_in_doubt) {
            block.base = Some(block.page.state(entry));
            continue;
        }
        let place = (block.column, index);
        let known = match latest.take() {
            Some((other, known)) if other == place => known,
            _ => {
                // Both slots of each copy.
                let mut frames = 0;
                row.for_each_table(block.column, |_, _| frames += 2);
                let _frames = shared.looks.take(frames).await;
                TableStore::of(shared).page_on_disk(row, place, &block.page).await
            }
        };
        block.base = known.state(entry);
        latest = Some((place, known));
    }
}

impl OpenBlock {
    /// What was said of it last.
    pub(crate) fn newest(&self) -> BlockState {
        self.candidates.last().map(|candidate| candidate.state).unwrap_or_default()
    }

    /// Notes what it is.
    pub(crate) fn is(&self, decided: BlockState, shared: &Shared, row: &Rc<Row>, held: &Held) {
        self.page.set(place_in_page(self.block).1, decided, shared.stamp(), shared.now(held));
        // What the copies were given is in their caches until a flush.
        let range = Range { first: self.block, count: 1 };
        Flusher::of(shared).note_unflushed(held.ticket(), row, self.column, range);
    }

    /// Decides what it holds, if its disks answer; what that took.
    pub(crate) async fn decide(
        &self,
        shared: &Shared,
        space: &SpaceRows,
        row: &Rc<Row>,
    ) -> Result<(Option<BlockState>, Recovery), SpaceError> {
        let Self { column, block, candidates, base, .. } = self;
        // What each slab has and one to give; taken in one go, as many look beside each other.
        let slabs = row.with_slabs(*column, <[Slab]>::len) as u64;
        let _frames = shared.looks.take(slabs + 1).await;
        let mut part = Recovery::default();
        let open: SmallVec<[Candidate; 4]> =
            candidates.iter().filter(|candidate| !candidate.durable).copied().collect();
        let decided = decide(shared, space, row, (*column, *block), *base, &open, &mut part).await?;
        Ok((decided, part))
    }
}

/// Bytes of one record of claims at which it is closed.
const CANDIDATES_BYTES_MAX: usize = 64 * 1024;
/// Candidates of blocks that follow each other, times blocks, that are said together.
const CANDIDATES_TOGETHER_MAX: usize = 4096;
/// Candidates of one block that are relogged: a record has room for as many. A block that was written over more often since
/// the last flush, and whose disk kept none of the latest, counts as lost.
const CANDIDATES_OF_BLOCK_MAX: usize = 1024;

/// Keeps as many candidates of a block as are relogged: what a flush has covered, and the latest.
pub(crate) fn keep_latest(candidates: &mut Candidates) {
    let covered = usize::from(candidates.first().is_some_and(|candidate| candidate.durable));
    let surplus = candidates.len().saturating_sub(CANDIDATES_OF_BLOCK_MAX);
    candidates.drain(covered..covered + surplus);
}

/// Whether nothing is claimed of a block since the last flush but that it is lost.
pub(crate) fn is_only_lost(candidates: &[Candidate]) -> bool {
    candidates.iter().any(Candidate::is_in_doubt) && !candidates.iter().any(Candidate::is_of_an_open_write)
}

/// Has nothing that is claimed of a block excuse that it is taken as it is found; and if it is lost, says so behind all of that, which holds
/// unless a copy turns up. Whether something else is claimed than before.
pub(crate) fn abandon(candidates: &mut Candidates, is_lost: bool) -> bool {
    let mut is_changed = candidates.iter().any(Candidate::has_intent);
    candidates.iter_mut().for_each(|candidate| candidate.intent = false);
    if let Some(last) = candidates.last().copied().filter(|last| is_lost && last.is_written()) {
        candidates.push(last.lost());
        keep_latest(candidates);
        is_changed = true;
    }
    is_changed
}

/// What records of candidates are to the log before them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Restating {
    /// They take the place of all that it says of these blocks.
    Supersedes,
    /// They are the last that it says.
    Again,
}

/// Candidates as records: those that a flush has covered count as such again once the next flush has, the others stay
/// in doubt. All candidates of a block are in one record, so that none is believed without the others.
pub(crate) fn encode_candidates(
    candidates: &RowCandidates,
    (restating, covered): (Restating, Covered),
) -> Vec<Vec<u8>> {
    let mut bodies = vec![Vec::new()];
    for run in runs_of(candidates) {
        if bodies.last().is_some_and(|body| body.len() > CANDIDATES_BYTES_MAX) {
            bodies.push(Vec::new());
        }
        let Some(body) = bodies.last_mut() else { continue };
        for (number, candidate) in run.is_same().iter().enumerate() {
            let extent = BlockExtent {
                row: candidate.row,
                column: u8::try_from(run.column).unwrap_or(0),
                first: run.first,
                count: u32::try_from(run.blocks.len()).unwrap_or(0),
                stamp: candidate.stamp,
                state: 0,
                intent: candidate.intent,
                in_doubt: !candidate.durable,
                supersedes: number == 0 && restating == Restating::Supersedes,
                covered: candidate.durable && covered == Covered::Before,
                generation: 0,
            };
            let states: Vec<BlockState> = run
                .blocks
                .iter()
                .filter_map(|block| block.get(number))
                .map(|candidate| candidate.state)
                .collect();
            push_extent(body, extent, &states, u64::from(candidate.generation));
        }
    }
    bodies.retain(|body| !body.is_empty());
    bodies
}

/// Blocks that follow each other and of which the same is claimed, but for checksums.
struct CandidateRun<'a> {
    column: usize,
    first: u32,
    blocks: Vec<&'a [Candidate]>,
}

impl CandidateRun<'_> {
    fn is_same(&self) -> &[Candidate] {
        self.blocks.first().copied().unwrap_or_default()
    }

    /// Whether a block may be said together with these.
    fn takes(&self, column: usize, block: u32, candidates: &[Candidate]) -> bool {
        let count = u32::try_from(self.blocks.len()).unwrap_or(u32::MAX);
        let follows = self.column == column && self.first.checked_add(count) == Some(block);
        let room = (self.blocks.len() + 1) * candidates.len().max(1) <= CANDIDATES_TOGETHER_MAX;
        let same_page = place_in_page(self.first).0 == place_in_page(block).0;
        let mut pairs = self.is_same().iter().zip(candidates);
        let is_same =
            self.is_same().len() == candidates.len() && pairs.all(|(one, other)| one.is_like(other));
        follows && room && same_page && is_same
    }
}

fn runs_of(candidates: &RowCandidates) -> Vec<CandidateRun<'_>> {
    let mut runs: Vec<CandidateRun<'_>> = Vec::new();
    for ((column, block), candidates) in candidates {
        match runs.last_mut().filter(|run| run.takes(*column, *block, candidates)) {
            Some(run) => run.blocks.push(candidates),
            None => runs.push(CandidateRun { column: *column, first: *block, blocks: vec![candidates] }),
        }
    }
    runs
}

/// The generation that each page must have at least: the latest that a record of one of its blocks names.
pub(crate) fn minimum_generations(candidates: &RowCandidates) -> BTreeMap<(usize, usize), u16> {
    let mut minimum_rates: BTreeMap<(usize, usize), u16> = BTreeMap::new();
    for ((column, block), candidates) in candidates {
        let minimum = minimum_rates
            .entry((*column, place_in_page(*block).0))
            .or_insert_with(|| candidates.first().map_or(0, |candidate| candidate.generation));
        for candidate in candidates {
            // Which of two is later shows in their difference, since a page is not written 32,768 times in between.
            if candidate.generation.wrapping_sub(*minimum) < 1 << 15 {
                *minimum = candidate.generation;
            }
        }
    }
    minimum_rates
}

/// The state of a block in doubt, given to all copies that are here; `None` while no disk is here that could tell.
#[pooled]
pub(crate) async fn decide(
    shared: &Shared,
    space: &SpaceRows,
    row: &Rc<Row>,
    (column, block): (usize, u32),
    base: Option<BlockState>,
    open: &[Candidate],
    recovery: &mut Recovery,
) -> Result<Option<BlockState>, SpaceError> {
    let mut read = None;
    let (rule, decision) = loop {
        let facts = facts_of((space, row, column), base, open, read.as_deref());
        match crate::in_doubt::decide(BLOCKS, &facts) {
            (_, BlockDecision::ReadCopies) => {
                read = Some(RowCopies::of(space).read_copies(row, column, block, HedgeDelay::Long).await);
            }
            decided => break decided,
        }
    };
    tracing::trace!(rule, space = %space.name(), row = row.index, column, block, "a block in doubt");
    let (Some(base), Some(copies)) = (base, read) else { return Ok(None) };
    let newest = newest_known(base, open);
    let is_reverted = decision == BlockDecision::Reverted;
    let found = match decision {
        BlockDecision::ReadCopies | BlockDecision::Defer => return Ok(None),
        BlockDecision::Stands | BlockDecision::Reverted => first_match(base, open, &copies),
        BlockDecision::AcceptedUnverified => {
            let readable = copies.iter().find(|copy| copy.trusted && copy.result.is_ok());
            readable.map(|copy| (BlockState::Valid(dolmen_checksum::crc32c(&copy.bytes)), Some(copy)))
        }
        BlockDecision::Torn | BlockDecision::DeclaredLost => Some((BlockState::Damaged, None)),
        BlockDecision::CorruptHere | BlockDecision::Corrupt => Some((newest, None)),
    };
    let (state, good) = found.unwrap_or((newest, None));
    recovery.decided += 1;
    recovery.reverted += u64::from(is_reverted);
    recovery.went_back += u64::from(has_reverted(open, state, decision));
    if let Some(good) = good {
        recovery.rewritten += u64::from(give_to_all(shared, space, &copies, &good.bytes).await?);
    }
    let event = |kind| data_loss(space, row, (column, block), kind);
    match decision {
        BlockDecision::ReadCopies
        | BlockDecision::Defer
        | BlockDecision::Stands
        | BlockDecision::Reverted => {}
        BlockDecision::AcceptedUnverified => {
            recovery.accepted_unverified += 1;
            shared.count(|counters| counters.accepted_unverified += 1);
            shared.note_data_loss(event(DataLossKind::AcceptedUnverified));
        }
        BlockDecision::Torn => note_lost(shared, event(DataLossKind::Lost), recovery),
        BlockDecision::DeclaredLost | BlockDecision::CorruptHere | BlockDecision::Corrupt => {
            let is_here = decision == BlockDecision::CorruptHere;
            let data_loss = event(if is_here { DataLossKind::CorruptHere } else { DataLossKind::Lost });
            if space.cache_of(row).is_some() {
                // The write cache may stand in for it, and it be half in place.
                shared.unfound.borrow_mut().push(Unfound { row: Rc::clone(row), column, block, data_loss });
            } else {
                note_unfound(shared, data_loss, recovery);
            }
        }
    }
    Ok(Some(state))
}

/// Facts about a block with this base and these claims that no flush has covered, and about its copies once they were read.
fn facts_of(
    (space, row, column): (&SpaceRows, &Row, usize),
    base: Option<BlockState>,
    open: &[Candidate],
    copies: Option<&[Copy]>,
) -> BlockFacts {
    let is_lost = |candidate: &Candidate| candidate.state == BlockState::Damaged;
    let lost = match open.iter().filter(|candidate| is_lost(candidate)).count() {
        0 => LostClaims::None,
        count if count == open.len() => LostClaims::All,
        _ if open.last().is_some_and(is_lost) => LostClaims::Last,
        _ => LostClaims::Earlier,
    };
    let lost = match lost {
        LostClaims::Last | LostClaims::All if mutation!(LossForgotten) => LostClaims::Earlier,
        lost => lost,
    };
    let read = copies.unwrap_or_default();
    let has_answered = |copy: &&Copy| !copy.result.is_err_and(is_silence);
    let was_read = |slot| read.iter().filter(has_answered).any(|copy| copy.disk.slot() == slot);
    BlockFacts {
        base: match base {
            None => Base::Unknown,
            Some(BlockState::Never) => Base::Never,
            Some(BlockState::Damaged) => Base::Damaged,
            Some(BlockState::Valid(_)) => Base::Valid,
        },
        copies: match copies {
            None => Copies::Unread,
            Some(copies) if is_out_of_reach(copies) => Copies::Silent,
            Some(copies) => Copies::Read(match_of(base.unwrap_or(BlockState::Damaged), open, copies)),
        },
        lost,
        has_intent: open.iter().any(Candidate::has_intent),
        is_relaxed: row.laid().integrity == Integrity::Relaxed,
        is_readable: read.iter().any(|copy| copy.trusted && copy.result.is_ok()),
        may_be_elsewhere: row.may_have_other_good(column, was_read),
        has_cache: space.cache_of(row).is_some(),
    }
}

/// Returns the newest candidate that a copy has, with that copy. *Never* needs none.
fn first_match<'a>(
    base: BlockState,
    open: &[Candidate],
    copies: &'a [Copy],
) -> Option<(BlockState, Option<&'a Copy>)> {
    let states = || open.iter().map(|candidate| candidate.state);
    let matches = |state: BlockState| {
        // A copy that misses other writes is as good for a block that it has.
        let is_good = |copy: &&Copy| copy.result.is_ok() && matches_state(&copy.bytes, state);
        let good = copies.iter().find(is_good).filter(|_| state != BlockState::Never);
        (state == BlockState::Never || good.is_some()).then_some((state, good))
    };
    match mutation!(OldestStateWins) {
        false => states().rev().chain([base]).find_map(matches),
        true => [base].into_iter().chain(states()).find_map(matches),
    }
}

/// Returns which candidate the first match is.
fn match_of(base: BlockState, open: &[Candidate], copies: &[Copy]) -> FirstMatch {
    match first_match(base, open, copies) {
        None => FirstMatch::None,
        Some((state, _)) if state == newest_known(base, open) => FirstMatch::NewestKnown,
        Some((state, _)) if open.iter().any(|candidate| candidate.state == state) => FirstMatch::Older,
        Some(_) => FirstMatch::Base,
    }
}

/// Returns whether a block that is in this state has lost what it was when it was left in doubt.
fn has_reverted(open: &[Candidate], state: BlockState, decision: BlockDecision) -> bool {
    let is_found = matches!(decision, BlockDecision::Stands | BlockDecision::Reverted);
    let newer = open.iter().rev().take_while(|candidate| !is_found || candidate.state != state);
    newer.into_iter().any(Candidate::was_deferred)
}

/// Notes what was not found of strict spaces, but for what their write caches have.
pub(crate) fn note_all_unfound(
    shared: &Shared,
    cache_of: impl Fn(&Row) -> Option<Rc<Cache>>,
    recovery: &mut Recovery,
) {
    for Unfound { row, column, block, data_loss } in shared.unfound.take() {
        let Some(cache) = cache_of(&row) else { continue };
        let is_cached = row.mappings.newest(row.shape.row_block(column, block)).is_some();
        if !is_cached && !cache.unfinished.borrow().iter().any(|redo| redo.is_of(&row, block)) {
            note_unfound(shared, data_loss, recovery);
        }
    }
}

/// Notes a block that no copy here verifies, and that nobody was writing over: it has rotted, and is lost unless one that is
/// away is good.
fn note_unfound(shared: &Shared, data_loss: DataLossEvent, recovery: &mut Recovery) {
    match data_loss.kind {
        DataLossKind::CorruptHere => {
            recovery.corrupt_here += 1;
            shared.note_data_loss(data_loss);
        }
        DataLossKind::Lost | DataLossKind::AcceptedUnverified | DataLossKind::TableLost => {
            note_lost(shared, data_loss, recovery);
        }
    }
}

/// The newest state that is said of a block and is not that it is damaged.
fn newest_known(durable: BlockState, open: &[Candidate]) -> BlockState {
    let mut states = open.iter().rev().map(|candidate| candidate.state).chain([durable]);
    states.find(|state| *state != BlockState::Damaged).unwrap_or(BlockState::Damaged)
}

fn data_loss(
    space: &SpaceRows,
    row: &Row,
    (column, block): (usize, u32),
    kind: DataLossKind,
) -> DataLossEvent {
    let at = row.index * row.bytes() + u64::from(row.shape.row_block(column, block)) * BLOCK_BYTES;
    DataLossEvent { space: space.id(), at, length: Bytes(BLOCK_BYTES), kind }
}

fn note_lost(shared: &Shared, data_loss: DataLossEvent, recovery: &mut Recovery) {
    recovery.damaged += 1;
    shared.count(|counters| counters.lost_blocks += 1);
    shared.note_data_loss(data_loss);
}

/// Whether no copy can tell anything because the disks do not answer: then nothing may be concluded from silence.
pub(crate) fn is_out_of_reach(copies: &[Copy]) -> bool {
    let unresponsive = |copy: &Copy| copy.result.is_err_and(is_silence);
    copies.iter().filter(|copy| copy.trusted).all(unresponsive)
}

/// Gives a block to every copy that has something else; whether there was one.
#[pooled]
pub(crate) async fn give_to_all(
    shared: &Shared,
    space: &SpaceRows,
    copies: &[Copy],
    content: &[u8],
) -> Result<bool, SpaceError> {
    if !shared.may_write() {
        return Ok(false);
    }
    let mut rewritten = false;
    for copy in copies.iter().filter(|copy| copy.result.is_err() || *copy.bytes != *content) {
        rewritten = true;
        let mut buffer = shared.pool.seams().metadata.take(content.len()).await;
        buffer.copy_in(content);
        let written = copy.disk.write(copy.at, buffer.freeze(), dolmen_block_io::Durability::Cached).await;
        if written.is_err() {
            tracing::warn!(space = %space.name(), disk = %copy.disk.name(), "a copy could not be brought up to date");
            shared.pool.exclude(copy.disk.slot(), ExcludeReason::MissedWrite).await?;
        }
    }
    Ok(rewritten)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::raw::STATE_VALID;
    use crate::format::record::Stamp;
    use dolmen_units::Epoch;

    /// What these records say of a block, each settled or not, of an epoch and with a checksum.
    fn candidates_of(records: &[(bool, u64, u32)]) -> Vec<(bool, Stamp, BlockState)> {
        let mut row = RowCandidates::new();
        for (is_durable, epoch, checksum) in records {
            let extent = BlockExtent {
                row: RowId(1),
                column: 0,
                first: 5,
                count: 1,
                stamp: Stamp::of(Epoch(*epoch)),
                state: STATE_VALID,
                intent: false,
                in_doubt: false,
                supersedes: false,
                covered: false,
                generation: 0,
            };
            let mut body = extent.head().to_vec();
            body.extend(checksum.to_le_bytes());
            extents(&body).flatten().for_each(|read| add_candidates(*is_durable, read, u32::MAX, &mut row));
        }
        let candidates = row.into_values().flatten();
        candidates.map(|candidate| (candidate.durable, candidate.stamp, candidate.state)).collect()
    }

    #[test]
    fn a_late_record_of_an_older_epoch_makes_no_stamp_older() {
        let is = |durable, epoch, checksum| (durable, Stamp::of(Epoch(epoch)), BlockState::Valid(checksum));
        assert_eq!(candidates_of(&[(true, 7, 1), (true, 6, 1)]), [is(true, 7, 1)]);
        assert_eq!(candidates_of(&[(true, 6, 1), (false, 7, 1), (true, 6, 1)]), [is(true, 7, 1)]);
        assert_eq!(candidates_of(&[(true, 6, 1), (true, 7, 1)]), [is(true, 7, 1)]);
        // Other content is another write, which has its own.
        assert_eq!(candidates_of(&[(true, 7, 1), (true, 6, 2)]), [is(true, 6, 2)]);
        assert_eq!(candidates_of(&[(true, 6, 1), (false, 7, 2)]), [is(true, 6, 1), is(false, 7, 2)]);
    }
}
