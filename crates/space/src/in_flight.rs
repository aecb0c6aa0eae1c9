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

use crate::error::{SpaceError, UnreadableReason};
use crate::in_doubt::sources::{SOURCES, SourceDecision, SourceFacts, TargetParity};
use crate::in_doubt::stripes::{Columns, Newest, STRIPES, StripeDecision, StripeFacts, Tables};
use crate::layout::BLOCK;
use crate::locks::Range;
use crate::read::{Copy, is_silence, matches_state};
use crate::read_hedging::HedgeDelay;
use crate::record::BlockState;
use crate::recovery::{Candidate, OpenBlock, Recovery, RowCandidates, give_to_all};
use crate::row::{Row, Slab};
use crate::shared::{RECORD_BYTES_MAX, Shared, place_in_page, push_extent};
use crate::space::Space;
use crate::stripe_read::StripeStates;
use crate::tickets::Held;

/// Stripes that are decided beside each other.
const DECIDED_TOGETHER: usize = 8;

/// Copies of the blocks of a stripe, by column.
type Copies = Vec<SmallVec<[Copy; 4]>>;

/// Blocks of a stripe whose content is known, by column: `None` for zeros.
type Known<'a> = SmallVec<[(usize, Option<&'a [u8]>); 16]>;

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
    space: &Space,
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
    space: &Space,
    sources: Vec<Source>,
    left: &mut RowCandidates,
    recovery: &mut Recovery,
) -> Result<Vec<Source>, SpaceError> {
    let held = shared.tickets.begin();
    let mut freed = Vec::new();
    for source in sources {
        match other_has(shared, &source.row, source.stripe).await? {
            Some(false) if !mutation!(SwitchByHalves) => {
                let Source { row, stripe, blocks, before } = source;
                let stripe = StripeInFlight { shared, space, row: &row, stripe, blocks };
                // A slab that was filled since has been given nothing of it.
                let _frames = shared.looks.take(stripe.frames()).await;
                stripe.make_whole(&before, &stripe.copies_of(&before).await, recovery).await?;
                all_are(&stripe.blocks, &before, shared, &row, &held);
                shared.note_dirty(&row);
            }
            Some(_) if mutation!(SourceDroppedEarly) => source.is_deleting(shared),
            Some(_) => freed.push(source),
            None => leave_all(&source.blocks, &source.row, left, recovery),
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
            let extent = shared.extent(&self.row, block.column, range, shared.stamp());
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
            shared.record(&body, Wait::Written).await?;
            body.clear();
        }
    }
    for source in sources {
        source.let_go(shared);
        source.is_deleting(shared);
    }
    Ok(())
}

/// Whether the row or shadow row beside one has a stripe, once that is decided and while somebody here can tell.
async fn other_has(shared: &Shared, row: &Row, stripe: u32) -> Result<Option<bool>, SpaceError> {
    let facts = SourceFacts { has_partner: false, is_target_deferred: false, parity: TargetParity::Unread };
    let agrees = |facts: SourceFacts, is: &[SourceDecision]| {
        let (rule, decision) = crate::in_doubt::decide(SOURCES, &facts);
        debug_assert!(is.contains(&decision), "{rule} says {decision:?} of {facts:?}");
    };
    let Some(partner) = row.partner() else {
        agrees(facts, &[SourceDecision::Stands]);
        return Ok(Some(false));
    };
    let parity = row.shape.data_columns();
    let facts = SourceFacts { has_partner: true, ..facts };
    if shared.is_in_doubt(&partner, parity, stripe) {
        agrees(SourceFacts { is_target_deferred: true, ..facts }, &[SourceDecision::Defer]);
        return Ok(None);
    }
    agrees(facts, &[SourceDecision::ReadTarget]);
    let (index, entry) = place_in_page(stripe);
    match shared.page(&partner, parity, index).await {
        Ok(page) => {
            let has = matches!(page.state(entry), BlockState::Valid(_));
            let parity = match page.state(entry) {
                BlockState::Never => TargetParity::Never,
                BlockState::Damaged => TargetParity::Damaged,
                BlockState::Valid(_) => TargetParity::Valid,
            };
            let stands: &[_] = &[SourceDecision::Stands, SourceDecision::StandsAlone];
            agrees(SourceFacts { parity, ..facts }, if has { &[SourceDecision::Switched] } else { stands });
            Ok(Some(has))
        }
        Err(SpaceError::Unreadable { why: UnreadableReason::Absent, .. }) => {
            agrees(SourceFacts { parity: TargetParity::Away, ..facts }, &[SourceDecision::Defer]);
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// A stripe of which the log says what no flush has covered.
struct StripeInFlight<'a> {
    shared: &'a Shared,
    space: &'a Space,
    row: &'a Rc<Row>,
    stripe: u32,
    /// Those of its blocks that the log names.
    blocks: Vec<OpenBlock>,
}

impl StripeInFlight<'_> {
    /// What its blocks are, if enough disks answer; what that took.
    #[expect(clippy::too_many_lines, reason = "a table decides beside it, until it decides alone")]
    #[pooled]
    async fn decide(&self, without_table: &BTreeSet<u32>) -> Result<(Decided, Recovery), SpaceError> {
        let mut part = Recovery::default();
        let mut facts = self.facts(without_table);
        let agrees = |facts: &StripeFacts, is: StripeDecision| {
            let (rule, decision) = crate::in_doubt::decide(STRIPES, facts);
            debug_assert_eq!(decision, is, "{rule} of {facts:?}");
        };
        if without_table.contains(&self.stripe) {
            agrees(&facts, StripeDecision::Defer);
            return Ok((Decided::NotYet, part));
        }
        agrees(&facts, StripeDecision::ReadTables);
        let _frames = self.shared.looks.take(self.frames()).await;
        let Some((before, written)) = self.before_and_written().await? else {
            facts.tables = Tables::BaseAway;
            agrees(&facts, StripeDecision::Defer);
            return Ok((Decided::NotYet, part));
        };
        self.add_tables(&mut facts, &before, &written);
        let was_in_flight = self.was_in_flight();
        let is_nothing = self.blocks.iter().all(|block| block.newest() == BlockState::Never);
        let had_stripe =
            before.get(self.row.shape.data_columns()).is_some_and(|state| *state != BlockState::Never);
        if is_nothing && had_stripe && self.row.partner().is_some() {
            agrees(&facts, StripeDecision::ByTarget);
            return Ok((Decided::ByPartner(before), part));
        }
        if is_nothing || (before == written && !was_in_flight) {
            agrees(&facts, StripeDecision::Newest);
            return Ok((Decided::Is(written), part));
        }
        let data = self.row.shape.data_columns();
        // Nothing is read for what could not be told from it.
        if self.row.count_columns(|slab| self.is_here(slab)) < data {
            agrees(&facts, StripeDecision::Defer);
            return Ok((Decided::NotYet, part));
        }
        agrees(&facts, StripeDecision::ReadColumns);
        let copies = self.copies_of(&written).await;
        if mutation!(StripeInParts) {
            let is_good = |copies: &SmallVec<[Copy; 4]>, state: BlockState| {
                copies.iter().any(|copy| copy.result.is_ok() && matches_state(&copy.bytes, state))
            };
            let states = written.iter().zip(&copies);
            let states = states
                .map(|(state, copies)| if is_good(copies, *state) { *state } else { BlockState::Never });
            return Ok((Decided::Is(states.collect()), part));
        }
        if self.count_asked(&written, &copies) < data {
            facts.columns = Columns::TooFew;
            agrees(&facts, StripeDecision::Defer);
            return Ok((Decided::NotYet, part));
        }
        if self.make_whole(&written, &copies, &mut part).await? {
            facts.columns = Columns::Decodable;
            agrees(&facts, StripeDecision::Whole);
            part.decided += data as u64;
            part.whole_stripes += 1;
            return Ok((Decided::Is(written), part));
        }
        part.decided += data as u64;
        part.reverted += data as u64;
        part.reverted_stripes += 1;
        if self.blocks.iter().any(|block| block.candidates.iter().any(Candidate::was_deferred)) {
            part.went_back += data as u64;
        }
        facts.columns = Columns::NotDecodable;
        agrees(
            &facts,
            match was_in_flight {
                true => StripeDecision::RevertedInFlight,
                false => StripeDecision::Reverted,
            },
        );
        // Nothing goes in place at once but over what was never written. Whatever else is said to have been there is of a write
        // that failed while a flush waited for it, or of a decision that was cut short, and was never served.
        let was = |state: &BlockState| match state {
            BlockState::Valid(_) if was_in_flight => BlockState::Never,
            state => *state,
        };
        Ok((Decided::Is(before.iter().map(was).collect()), part))
    }

    /// Facts that cost no read.
    fn facts(&self, without_table: &BTreeSet<u32>) -> StripeFacts {
        let data = self.row.shape.data_columns();
        StripeFacts {
            tables: if without_table.contains(&self.stripe) { Tables::ColumnAway } else { Tables::Unread },
            newest: Newest::Changed,
            had_parity: false,
            has_partner: self.row.partner().is_some(),
            was_in_flight: self.was_in_flight(),
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
                self.space.read_copies(self.row, column, self.stripe, HedgeDelay::Long).await
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
        let mut before = match self.shared.stripe_states(self.row, self.stripe).await {
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
        let good = |column: usize, state: BlockState| {
            let mut copies = copies.get(column).into_iter().flatten();
            copies.find(|copy| copy.result.is_ok() && matches_state(&copy.bytes, state))
        };
        let mut known: Known<'_> = SmallVec::new();
        let mut missing: SmallVec<[(usize, BlockState); 16]> = SmallVec::new();
        for (column, state) in written.iter().enumerate() {
            match (state, good(column, *state)) {
                (BlockState::Never, _) => known.push((column, None)),
                (BlockState::Valid(_), Some(copy)) => known.push((column, Some(&copy.bytes))),
                (BlockState::Valid(_) | BlockState::Damaged, _) => missing.push((column, *state)),
            }
        }
        let given: SmallVec<[usize; 16]> = known.iter().map(|(column, _)| *column).collect();
        let mut made: SmallVec<[Buffer; 4]> = SmallVec::new();
        for (column, state) in &missing {
            let Some(plan) = self.row.shape.rebuild(&given, &[*column]) else { return Ok(false) };
            let bytes_of = |source: &usize| {
                known.iter().find(|(other, _)| other == source).and_then(|(_, bytes)| *bytes)
            };
            let sources: SmallVec<[Option<&[u8]>; 16]> = plan.sources().iter().map(bytes_of).collect();
            let mut buffer = self.shared.pool.seams().metadata.take(BLOCK).await;
            plan.reconstruct(&sources, &mut [&mut *buffer])
                .unwrap_or_else(|error| panic!("blocks of a stripe are blocks: {error}"));
            if !matches_state(&buffer, *state) {
                return Ok(false);
            }
            made.push(buffer);
        }
        for ((column, _), content) in missing.iter().zip(&made) {
            let copies = copies.get(*column).map(SmallVec::as_slice).unwrap_or_default();
            let is_given = give_to_all(self.shared, self.space, copies, content).await?;
            part.rewritten += u64::from(is_given);
        }
        for (column, content) in known {
            let (Some(content), Some(copies)) = (content, copies.get(column)) else { continue };
            part.rewritten += u64::from(give_to_all(self.shared, self.space, copies, content).await?);
        }
        Ok(true)
    }
}
