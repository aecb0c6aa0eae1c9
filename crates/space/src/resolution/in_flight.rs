//! Stripes of rows with parity that were written in place as a whole and that no flush has covered, after a crash or when their
//! disks are back (docs/design/0004, *Fresh stripes in place*); and the slots that such stripes have left (docs/design/0026).
//!
//! Invariants:
//! - A stripe is all of what was written, or what it was before: so parity is of what its blocks are.
//! - A slot that a stripe has left is decided behind the one that it went to.
//!
//! Left to others: what is durable, and what is cached of these stripes (`replay`).

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use dolmen_block_io::sync::join_all;
use dolmen_buffer::{Buffer, Scratch};
use dolmen_future_pool::pooled;
use dolmen_journal::Wait;
use dolmen_mutation::mutation;
use smallvec::SmallVec;

use crate::format::error::{SpaceError, UnreadableReason};
use crate::format::record::{BlockState, RECORD_BYTES_MAX, push_extent};
use crate::in_doubt::sources::{SOURCES, SourceDecision, SourceFacts, TargetParity};
use crate::in_doubt::stripes::{Columns, Damaged, Newest, STRIPES, StripeDecision, StripeFacts, Tables};
use crate::layout::BLOCK;
use crate::resolution::recovery::{OpenBlock, Recovery, give_to_all};
use crate::resources::hedge_delay::{HedgeDelay, is_silence};
use crate::resources::locks::Range;
use crate::resources::tickets::Held;
use crate::row_io::block_log::BlockLog;
use crate::row_io::copies::{Copy, RowCopies, matches_state};
use crate::row_io::flusher::Flusher;
use crate::table::candidates::{Candidate, RowCandidates};
use crate::table::page::place_in_page;
use crate::table::pages::{StripeStates, TableStore};
use crate::table::row::{Row, Slab};
use crate::table::space::{Shared, SpaceRows};

/// Stripes that are decided beside each other.
const DECIDED_TOGETHER: usize = 8;

/// Copies of the blocks of a stripe, by column.
type Copies = Vec<SmallVec<[Copy; 4]>>;

/// Blocks of a stripe whose content is known, by column: `None` for zeros.
type Known<'a> = SmallVec<[(usize, Option<&'a [u8]>); 16]>;

/// Blocks of a stripe that were computed, by column.
type Made = SmallVec<[(usize, Buffer); 4]>;

/// What became of a stripe.
enum Decided {
    /// Its blocks are this.
    Is(StripeStates),
    /// Nobody here can tell.
    NotYet,
    /// All of it was said to be never written, as of the source of a flip: the row or shadow row beside this one tells.
    ByPartner(StripeStates),
}

/// Decides the stripes of these blocks. What cannot be decided goes to `left`, whole stripes; those that were left for the other
/// slot are returned.
#[pooled]
pub(crate) async fn decide_stripes(
    shared: &Shared,
    space: &SpaceRows,
    row: &Rc<Row>,
    open: Vec<OpenBlock>,
    held: &Held,
    left: &mut RowCandidates,
    recovery: &mut Recovery,
) -> Result<Vec<Source>, SpaceError> {
    let mut lines: BTreeMap<u32, Vec<OpenBlock>> = BTreeMap::new();
    for block in open {
        lines.entry(block.block).or_default().push(block);
    }
    let without_table: BTreeSet<u32> = left
        .iter()
        .filter(|(_, candidates)| candidates.iter().any(Candidate::is_in_doubt))
        .map(|((_, stripe), _)| *stripe)
        .collect();
    let lines: Vec<StripeInFlight<'_>> = lines
        .into_iter()
        .map(|(stripe, blocks)| StripeInFlight { shared, space, row, stripe, blocks })
        .collect();
    let mut decided = Vec::new();
    for together in lines.chunks(DECIDED_TOGETHER) {
        decided.extend(join_all(together.iter().map(|stripe| stripe.decide(&without_table))).await);
    }
    let mut sources = Vec::new();
    for (stripe, decided) in lines.into_iter().zip(decided) {
        let (decided, part) = decided?;
        recovery.add(part);
        match decided {
            Decided::Is(states) => all_are(&stripe.blocks, &states, shared, row, held),
            Decided::NotYet => leave_all(&stripe.blocks, row, left, recovery),
            Decided::ByPartner(before) => {
                sources.push(Source {
                    row: Rc::clone(row),
                    stripe: stripe.stripe,
                    blocks: stripe.blocks,
                    before,
                });
            }
        }
    }
    Ok(sources)
}

/// Notes what the blocks of a stripe are.
fn all_are(blocks: &[OpenBlock], states: &StripeStates, shared: &Shared, row: &Rc<Row>, held: &Held) {
    for block in blocks {
        block.is(states.get(block.column).copied().unwrap_or_default(), shared, row, held);
    }
}

/// Leaves the blocks of a stripe to be decided later.
fn leave_all(blocks: &[OpenBlock], row: &Row, left: &mut RowCandidates, recovery: &mut Recovery) {
    for block in blocks {
        recovery.out_of_reach += u64::from(block.column < row.shape.data_columns());
        left.insert((block.column, block.block), block.candidates.clone());
    }
}

/// A stripe that is said to be in the other slot, where no flush has covered that (docs/design/0026).
pub(crate) struct Source {
    row: Rc<Row>,
    stripe: u32,
    blocks: Vec<OpenBlock>,
    /// What it is if it is not there.
    before: StripeStates,
}

/// Decides stripes that were left for the other slot, by what was decided of that; what cannot be decided goes to `left`. Those
/// that are there stay as they were, and are returned: that they are not here may go to tables when those say that they are there.
#[pooled]
pub(crate) async fn decide_sources(
    shared: &Shared,
    space: &SpaceRows,
    sources: Vec<Source>,
    left: &mut RowCandidates,
    recovery: &mut Recovery,
) -> Result<Vec<Source>, SpaceError> {
    let held = shared.tickets.begin();
    let mut freed = Vec::new();
    for source in sources {
        let (rule, decision) = decide_source(shared, &source.row, source.stripe).await?;
        tracing::trace!(rule, row = source.row.index, stripe = source.stripe, "a stripe that was left");
        let decision = match decision {
            SourceDecision::Stands | SourceDecision::StandsAlone if mutation!(SwitchByHalves) => {
                SourceDecision::Switched
            }
            decision => decision,
        };
        match decision {
            SourceDecision::Stands | SourceDecision::StandsAlone => {
                let Source { row, stripe, blocks, before } = source;
                let stripe = StripeInFlight { shared, space, row: &row, stripe, blocks };
                // A slab that was filled since has been given nothing of it.
                let _frames = shared.looks.take(stripe.frames()).await;
                stripe.make_whole(&before, &stripe.copies_of(&before).await, recovery).await?;
                all_are(&stripe.blocks, &before, shared, &row, &held);
                shared.note_dirty(&row);
                if decision == SourceDecision::StandsAlone {
                    clear_target(shared, &row, stripe.stripe, &held).await?;
                }
            }
            SourceDecision::Switched if mutation!(SourceDroppedEarly) => source.is_deleting(shared),
            SourceDecision::Switched => freed.push(source),
            SourceDecision::ReadTarget | SourceDecision::Defer => {
                leave_all(&source.blocks, &source.row, left, recovery);
            }
        }
    }
    Ok(freed)
}

impl Source {
    /// Notes that it is not here.
    pub(crate) fn is_deleting(&self, shared: &Shared) {
        let held = shared.tickets.begin();
        all_are(&self.blocks, &StripeStates::new(), shared, &self.row, &held);
        shared.note_dirty(&self.row);
    }

    /// Has the log keep what it says of it.
    pub(crate) fn keep(&self, shared: &Shared) {
        if mutation!(SourceDroppedEarly) {
            return;
        }
        let mut deferred = shared.deferred.borrow_mut();
        let candidates = deferred.entry((self.row.space, self.row.index)).or_default();
        let own = self.blocks.iter().map(|block| ((block.column, block.block), block.candidates.clone()));
        Rc::make_mut(candidates).extend(own);
    }

    /// The log need not keep it any more.
    fn let_go(&self, shared: &Shared) {
        let key = (self.row.space, self.row.index);
        let mut deferred = shared.deferred.borrow_mut();
        let Some(candidates) = deferred.get_mut(&key).map(Rc::make_mut) else { return };
        self.blocks.iter().for_each(|block| drop(candidates.remove(&(block.column, block.block))));
        if candidates.is_empty() {
            deferred.remove(&key);
        }
    }

    /// Adds to a record that it is not here.
    fn add_to(&self, shared: &Shared, body: &mut Scratch) {
        for block in &self.blocks {
            let range = Range { first: self.stripe, count: 1 };
            let extent = BlockLog::of(shared).extent(&self.row, block.column, range, shared.stamp());
            push_extent(body, extent, &[BlockState::Never], block.page.durable_generation());
        }
    }
}

/// Says of stripes that they are not here, behind what tables have.
pub(crate) async fn log_moved(shared: &Shared, sources: &[Source]) -> Result<(), SpaceError> {
    let mut body = Scratch::new();
    for (nth, source) in (1..).zip(sources) {
        source.add_to(shared, &mut body);
        if body.len() > RECORD_BYTES_MAX || nth == sources.len() {
            BlockLog::of(shared).record(&body, Wait::Written).await?;
            body.clear();
        }
    }
    for source in sources {
        source.let_go(shared);
        source.is_deleting(shared);
    }
    Ok(())
}

/// Decides about a slot of a row by what the row or shadow row beside it has of the stripe.
async fn decide_source(
    shared: &Shared,
    row: &Row,
    stripe: u32,
) -> Result<(&'static str, SourceDecision), SpaceError> {
    let parity = row.shape.data_columns();
    let partner = row.partner();
    let mut facts = SourceFacts {
        has_partner: partner.is_some(),
        is_target_deferred: partner
            .as_ref()
            .is_some_and(|partner| shared.is_in_doubt(partner, parity, stripe)),
        parity: TargetParity::Unread,
    };
    let decided = crate::in_doubt::decide(SOURCES, &facts);
    let Some(partner) = partner.filter(|_| decided.1 == SourceDecision::ReadTarget) else {
        return Ok(decided);
    };
    let (index, entry) = place_in_page(stripe);
    facts.parity = match TableStore::of(shared).page(&partner, parity, index).await {
        Ok(page) => match page.state(entry) {
            BlockState::Never => TargetParity::Never,
            BlockState::Damaged => TargetParity::Damaged,
            BlockState::Valid(_) => TargetParity::Valid,
        },
        Err(SpaceError::Unreadable { why: UnreadableReason::Absent, .. }) => TargetParity::Away,
        Err(error) => return Err(error),
    };
    Ok(crate::in_doubt::decide(SOURCES, &facts))
}

/// Notes that a stripe is not in the row beside this one, whose table of it is lost: else reads would go there, and fail.
async fn clear_target(shared: &Shared, row: &Row, stripe: u32, held: &Held) -> Result<(), SpaceError> {
    let Some(target) = row.partner() else { return Ok(()) };
    let (index, entry) = place_in_page(stripe);
    let columns = (0..target.shape.columns()).filter(|column| stripe < target.shape.column_blocks(*column));
    for column in columns {
        let page = match TableStore::of(shared).page(&target, column, index).await {
            Ok(page) => page,
            // Parity alone tells which of the two rows has the stripe.
            Err(SpaceError::Unreadable { why: UnreadableReason::Absent, .. }) => continue,
            Err(error) => return Err(error),
        };
        page.set(entry, BlockState::Never, shared.stamp(), shared.now(held));
        Flusher::of(shared).note_unflushed(held.ticket(), &target, column, Range { first: stripe, count: 1 });
    }
    shared.note_dirty(&target);
    Ok(())
}

/// A stripe of which the log says what no flush has covered.
struct StripeInFlight<'a> {
    shared: &'a Shared,
    space: &'a SpaceRows,
    row: &'a Rc<Row>,
    stripe: u32,
    /// Those of its blocks that the log names.
    blocks: Vec<OpenBlock>,
}

impl StripeInFlight<'_> {
    /// What its blocks are, if enough disks answer; what that took.
    #[pooled]
    async fn decide(&self, without_table: &BTreeSet<u32>) -> Result<(Decided, Recovery), SpaceError> {
        let mut part = Recovery::default();
        let data = self.row.shape.data_columns();
        let mut facts = self.facts(without_table);
        let mut frames = None;
        let (mut before, mut written) = (StripeStates::new(), StripeStates::new());
        let (mut copies, mut made) = (Copies::new(), None);
        let (rule, decision) = loop {
            match crate::in_doubt::decide(STRIPES, &facts) {
                (_, StripeDecision::ReadTables) => {
                    frames = Some(self.shared.looks.take(self.frames()).await);
                    match self.before_and_written().await? {
                        None => facts.tables = Tables::BaseAway,
                        Some(states) => {
                            (before, written) = states;
                            self.add_tables(&mut facts, &before, &written);
                        }
                    }
                }
                (_, StripeDecision::ReadColumns) => {
                    copies = self.copies_of(&written).await;
                    if mutation!(StripeInParts) {
                        return Ok((Decided::Is(in_parts(&written, &copies)), part));
                    }
                    made = match self.count_asked(&written, &copies) < data {
                        true => None,
                        false => Some(self.rebuild(&written, &copies).await),
                    };
                    facts.columns = match &made {
                        None => Columns::TooFew,
                        Some(None) => Columns::NotDecodable,
                        Some(Some(_)) => Columns::Decodable,
                    };
                }
                decided => break decided,
            }
        };
        tracing::trace!(rule, row = self.row.index, stripe = self.stripe, "a stripe in doubt");
        let decided = match decision {
            StripeDecision::ReadTables | StripeDecision::ReadColumns | StripeDecision::Defer => {
                Decided::NotYet
            }
            StripeDecision::ByTarget => Decided::ByPartner(before),
            StripeDecision::Newest => Decided::Is(written),
            StripeDecision::Whole => {
                self.give(&written, &copies, &made.flatten().unwrap_or_default(), &mut part).await?;
                part.decided += data as u64;
                part.whole_stripes += 1;
                Decided::Is(written)
            }
            StripeDecision::RevertedInFlight { damaged } => {
                self.count_reverted(&mut part);
                // Nothing goes in place at once but over what was never written. Whatever else is said to have been there is of
                // a write that failed while a flush waited for it, or of a decision that was cut short, and was never served.
                let was = |state: &BlockState| match state {
                    BlockState::Damaged if damaged == Damaged::Stays => BlockState::Damaged,
                    BlockState::Never | BlockState::Valid(_) | BlockState::Damaged => BlockState::Never,
                };
                Decided::Is(before.iter().map(was).collect())
            }
            StripeDecision::Reverted => {
                self.count_reverted(&mut part);
                Decided::Is(before)
            }
        };
        drop(frames);
        Ok((decided, part))
    }

    fn count_reverted(&self, part: &mut Recovery) {
        let data = self.row.shape.data_columns() as u64;
        part.decided += data;
        part.reverted += data;
        part.reverted_stripes += 1;
        if self.blocks.iter().any(|block| block.candidates.iter().any(Candidate::was_deferred)) {
            part.went_back += data;
        }
    }

    /// Facts that cost no read.
    fn facts(&self, without_table: &BTreeSet<u32>) -> StripeFacts {
        let data = self.row.shape.data_columns();
        let has_lost = |block: &OpenBlock| {
            block.candidates.iter().any(|candidate| candidate.state() == BlockState::Damaged)
        };
        StripeFacts {
            tables: if without_table.contains(&self.stripe) { Tables::ColumnAway } else { Tables::Unread },
            newest: Newest::Changed,
            had_parity: false,
            has_partner: self.row.partner().is_some(),
            was_in_flight: self.was_in_flight(),
            has_lost_claim: self.blocks.iter().any(has_lost),
            is_enough_here: self.row.count_columns(|slab| self.is_here(slab)) >= data,
            columns: Columns::Unread,
        }
    }

    /// Adds what tables and log say.
    fn add_tables(&self, facts: &mut StripeFacts, before: &StripeStates, written: &StripeStates) {
        facts.tables = Tables::Known;
        let parity = before.get(self.row.shape.data_columns());
        facts.had_parity = parity.is_some_and(|state| *state != BlockState::Never);
        facts.newest = match self.blocks.iter().all(|block| block.newest() == BlockState::Never) {
            true => Newest::Never,
            false if before == written => Newest::AsBase,
            false => Newest::Changed,
        };
        // Disks may have come or gone since.
        let data = self.row.shape.data_columns();
        facts.is_enough_here = self.row.count_columns(|slab| self.is_here(slab)) >= data;
        facts.has_partner = self.row.partner().is_some();
    }

    /// Memory for each copy, what is rebuilt, and one to give; taken in one go, as many look beside each other. Tables take no more.
    fn frames(&self) -> u64 {
        let mut frames = self.row.shape.computed_columns().len() as u64 + 1;
        self.row.for_each_slab(|_, _| frames += 1);
        frames
    }

    /// All copies of the blocks that hold something.
    async fn copies_of(&self, states: &StripeStates) -> Copies {
        let copies = states.iter().enumerate().map(async |(column, state)| match state {
            BlockState::Valid(_) => {
                RowCopies::of(self.space).read_copies(self.row, column, self.stripe, HedgeDelay::Long).await
            }
            BlockState::Never | BlockState::Damaged => SmallVec::new(),
        });
        join_all(copies).await
    }

    /// Whether it was written as a whole and no flush has covered that. Of one that a flush has covered, blocks may have been said
    /// again: some of them, or all behind what is durable.
    fn was_in_flight(&self) -> bool {
        let is_there = |column: &usize| self.stripe < self.row.shape.column_blocks(*column);
        let is_whole = self.blocks.len() == (0..self.row.shape.columns()).filter(is_there).count();
        let is_durable =
            |block: &OpenBlock| block.candidates.iter().any(|candidate| !candidate.is_in_doubt());
        let is_same =
            |block: &OpenBlock| block.candidates.iter().all(|candidate| candidate.state() == block.newest());
        is_whole && !(self.blocks.iter().any(is_durable) && self.blocks.iter().all(is_same))
    }

    /// Columns whose blocks, if there are any, could be read from slabs that hold everything else.
    fn count_asked(&self, written: &StripeStates, copies: &Copies) -> usize {
        let has_answered = |copy: &Copy| copy.trusted && !copy.result.is_err_and(is_silence);
        let asked = written.iter().zip(copies).enumerate().filter(|(column, (state, copies))| match state {
            BlockState::Valid(_) => copies.iter().any(has_answered),
            BlockState::Never | BlockState::Damaged => {
                self.row.with_slabs(*column, |slabs| slabs.iter().any(|slab| self.is_here(slab)))
            }
        });
        asked.count()
    }

    fn is_here(&self, slab: &Slab) -> bool {
        slab.stale.is_none() && slab.present(&self.shared.pool).is_some()
    }

    /// What the blocks were when a flush covered them last, and what was written since; `None` where no disk is here that could
    /// tell.
    async fn before_and_written(&self) -> Result<Option<(StripeStates, StripeStates)>, SpaceError> {
        let mut before = match TableStore::of(self.shared).stripe_states(self.row, self.stripe).await {
            Ok(states) => states,
            Err(SpaceError::Unreadable { why: UnreadableReason::Absent, .. }) => return Ok(None),
            Err(error) => return Err(error),
        };
        let mut written = before.clone();
        for block in &self.blocks {
            let Some(base) = block.base else { return Ok(None) };
            before.get_mut(block.column).into_iter().for_each(|state| *state = base);
            written.get_mut(block.column).into_iter().for_each(|state| *state = block.newest());
        }
        Ok(Some((before, written)))
    }

    /// Gives all columns what was written, if enough of them have it; whether they do.
    #[pooled]
    async fn make_whole(
        &self,
        written: &StripeStates,
        copies: &Copies,
        part: &mut Recovery,
    ) -> Result<bool, SpaceError> {
        let Some(made) = self.rebuild(written, copies).await else { return Ok(false) };
        self.give(written, copies, &made, part).await?;
        Ok(true)
    }

    /// Computes the blocks that no copy has, by column; `None` if too few columns have what was written.
    #[pooled]
    async fn rebuild(&self, written: &StripeStates, copies: &Copies) -> Option<Made> {
        let mut known: Known<'_> = SmallVec::new();
        let mut missing: SmallVec<[(usize, BlockState); 16]> = SmallVec::new();
        for (column, state) in written.iter().enumerate() {
            match (state, good_copy(copies, column, *state)) {
                (BlockState::Never, _) => known.push((column, None)),
                (BlockState::Valid(_), Some(copy)) => known.push((column, Some(&copy.bytes))),
                (BlockState::Valid(_) | BlockState::Damaged, _) => missing.push((column, *state)),
            }
        }
        let given: SmallVec<[usize; 16]> = known.iter().map(|(column, _)| *column).collect();
        let mut made = Made::new();
        for (column, state) in &missing {
            let plan = self.row.shape.rebuild(&given, &[*column])?;
            let bytes_of = |source: &usize| {
                known.iter().find(|(other, _)| other == source).and_then(|(_, bytes)| *bytes)
            };
            let sources: SmallVec<[Option<&[u8]>; 16]> = plan.sources().iter().map(bytes_of).collect();
            let mut buffer = self.shared.pool.seams().metadata.take(BLOCK).await;
            plan.reconstruct(&sources, &mut [&mut *buffer])
                .unwrap_or_else(|error| panic!("blocks of a stripe are blocks: {error}"));
            if !matches_state(&buffer, *state) {
                return None;
            }
            made.push((*column, buffer));
        }
        Some(made)
    }

    /// Gives all copies what was written: of some columns what was computed, of the others what a copy has.
    #[pooled]
    async fn give(
        &self,
        written: &StripeStates,
        copies: &Copies,
        made: &Made,
        part: &mut Recovery,
    ) -> Result<(), SpaceError> {
        for (column, content) in made {
            let copies = copies.get(*column).map(SmallVec::as_slice).unwrap_or_default();
            let is_given = give_to_all(self.shared, self.space, copies, content).await?;
            part.rewritten += u64::from(is_given);
        }
        for (column, state) in written.iter().enumerate() {
            let good = good_copy(copies, column, *state).filter(|_| *state != BlockState::Never);
            let (Some(good), Some(copies)) = (good, copies.get(column)) else { continue };
            part.rewritten += u64::from(give_to_all(self.shared, self.space, copies, &good.bytes).await?);
        }
        Ok(())
    }
}

/// Returns a copy that has this state.
fn good_copy(copies: &Copies, column: usize, state: BlockState) -> Option<&Copy> {
    let mut copies = copies.get(column).into_iter().flatten();
    copies.find(|copy| copy.result.is_ok() && matches_state(&copy.bytes, state))
}

/// What a mutant takes a stripe for: each block that a copy has, whatever became of the others.
fn in_parts(written: &StripeStates, copies: &Copies) -> StripeStates {
    let states = written.iter().enumerate();
    let is_good = |column: usize, state: BlockState| good_copy(copies, column, state).is_some();
    states.map(|(column, state)| if is_good(column, *state) { *state } else { BlockState::Never }).collect()
}
