//! Lines of rows with parity: a block of each column, and what becomes of one that is gone (docs/design/0004).

use std::rc::Rc;

use dolmen_block_io::sync::join_all;
use dolmen_buffer::Buffer;
use dolmen_erasure::{Code, Shape as CodeShape};
use dolmen_planted::{Bug, is_planted};
use dolmen_units::BLOCK_BYTES;
use smallvec::SmallVec;

use crate::error::{SpaceError, UnreadableReason};
use crate::layout::{BLOCK, Shape};
use crate::read::{Copy, is_silence, matches_state};
use crate::record::BlockState;
use crate::row::Row;
use crate::shared::{Shared, place_in_page};
use crate::space::Space;

/// What the tables say of the blocks of a line, by column; one that a shorter column does not have was never written.
pub(crate) type LineStates = SmallVec<[BlockState; 16]>;

/// A block of a line as it was found.
pub(crate) enum Found {
    /// Zeros, which nobody wrote.
    Never,
    /// It is what its table says.
    Good(Buffer),
    /// It is lost, or its parity does not say what it is of.
    Damaged,
    /// Its disk is away or silent.
    Away,
    /// It is there, and is not what its table says.
    Bad,
}

impl Found {
    /// Its bytes, for parity to be computed with: `None` for zeros.
    pub(crate) fn bytes(&self) -> Option<&[u8]> {
        match self {
            Self::Good(buffer) => Some(buffer),
            Self::Never | Self::Damaged | Self::Away | Self::Bad => None,
        }
    }

    /// Whether its content is known.
    pub(crate) fn is_known(&self) -> bool {
        matches!(self, Self::Never | Self::Good(_))
    }
}

/// The code that a shape's parity is of.
pub(crate) fn code_of(shape: &Shape) -> Code {
    let columns = CodeShape { data_count: shape.data_columns(), parity_count: shape.parity_columns() };
    Code::new(columns).unwrap_or_else(|error| panic!("a shape keeps to the limits of codes: {error}"))
}

/// Whether a copy that counts was not among those that were read, or was silent. Its disk may be here by the time that this is
/// asked, which is no reason to call the block lost.
fn is_away(row: &Row, column: usize, copies: &[Copy]) -> bool {
    let was_read = |slot| copies.iter().any(|copy| copy.disk.slot() == slot);
    let is_silent = |copy: &Copy| copy.result.is_err_and(is_silence);
    row.has_trusted_beside(column, was_read)
        || copies.iter().any(|copy| copy.trusted && is_silent(copy))
        || copies.iter().all(is_silent)
}

impl Shared {
    /// What the tables say of a line.
    pub(crate) async fn line_states(&self, row: &Rc<Row>, line: u32) -> Result<LineStates, SpaceError> {
        let mut states = LineStates::new();
        for column in 0..row.shape.columns() {
            if line >= row.shape.column_blocks(column) {
                states.push(BlockState::Never);
                continue;
            }
            let (index, entry) = place_in_page(line);
            states.push(self.page(row, column, index).await?.state(entry));
        }
        // Of an heir that does not know what parity says of a line, nobody knows whose its blocks are that it lacks.
        if row.is_heir() && states.get(row.shape.data_columns()) == Some(&BlockState::Damaged) {
            let lacks = |(column, state): &(usize, &mut BlockState)| {
                **state == BlockState::Never && line < row.shape.column_blocks(*column)
            };
            states.iter_mut().enumerate().filter(lacks).for_each(|(_, state)| *state = BlockState::Damaged);
        }
        Ok(states)
    }
}

impl Space {
    /// A block of a line from its own slabs.
    pub(crate) async fn look(&self, row: &Rc<Row>, column: usize, line: u32, state: BlockState) -> Found {
        match state {
            BlockState::Never => return Found::Never,
            BlockState::Damaged => return Found::Damaged,
            BlockState::Valid(_) => {}
        }
        let copies = self.read_copies(row, column, line).await;
        let is_good = |copy: &Copy| copy.result.is_ok() && matches_state(&copy.bytes, state);
        let is_away = is_away(row, column, &copies);
        let is_there =
            |copy: &Copy| is_good(copy) || (is_planted(Bug::InputsNotVerified) && copy.result.is_ok());
        match copies.into_iter().find(is_there) {
            Some(good) => Found::Good(good.bytes),
            None if is_away => Found::Away,
            None => Found::Bad,
        }
    }

    /// Computes a block of a line from the others, into `into`. The caller holds the line's lock, and what was read of the
    /// block's own slabs, none of which has it.
    ///
    /// # Errors
    /// [`SpaceError::Unreadable`].
    async fn reconstruct(
        &self,
        row: &Rc<Row>,
        (column, own): (usize, &[Copy]),
        line: u32,
        into: &mut [u8],
    ) -> Result<(), SpaceError> {
        let states = self.shared.line_states(row, line).await?;
        let others = states.iter().enumerate().filter(|(other, _)| *other != column);
        let found =
            join_all(others.map(async |(other, state)| (other, self.look(row, other, line, *state).await)))
                .await;
        let known: SmallVec<[&(usize, Found); 16]> =
            found.iter().filter(|(_, found)| found.is_known()).collect();
        let given: SmallVec<[usize; 16]> = known.iter().map(|(other, _)| *other).collect();
        // The block itself, or others of its line, may be whole on disks that are away.
        let mut is_away = is_away(row, column, own);
        is_away |= found.iter().any(|(_, found)| matches!(found, Found::Away));
        row.for_each_slab(|_, slab| {
            is_away |= slab.stale.is_none() && slab.present(&self.shared.pool).is_none();
        });
        let why = if is_away { UnreadableReason::Absent } else { UnreadableReason::NoGoodCopy };
        let error = || self.shared.unreadable(row, column, line as usize, why);
        let Ok(plan) = code_of(&row.shape).plan(&given, &[column]) else { return Err(error()) };
        let bytes_of = |source: &usize| {
            known.iter().find(|(other, _)| other == source).and_then(|(_, found)| found.bytes())
        };
        let sources: SmallVec<[Option<&[u8]>; 16]> = plan.sources().iter().map(bytes_of).collect();
        plan.reconstruct(&sources, &mut [&mut *into])
            .unwrap_or_else(|error| panic!("blocks of a line are blocks: {error}"));
        match states.get(column) {
            Some(state) if matches_state(into, *state) => Ok(()),
            _ => Err(error()),
        }
    }

    /// A block of a column in place: from its own slabs, or else from the others of its line; its own are healed then. The
    /// caller holds the line's lock.
    ///
    /// # Errors
    /// [`SpaceError::Unreadable`].
    pub(crate) async fn read_in_place(
        &self,
        row: &Rc<Row>,
        column: usize,
        line: u32,
        into: &mut [u8],
    ) -> Result<(), SpaceError> {
        let (index, entry) = place_in_page(line);
        let state = self.shared.page(row, column, index).await?.state(entry);
        let copies = self.read_copies(row, column, line).await;
        if let Some(good) =
            copies.iter().find(|copy| copy.result.is_ok() && matches_state(&copy.bytes, state))
        {
            into.copy_from_slice(&good.bytes);
            return Ok(());
        }
        self.reconstruct(row, (column, &copies), line, into).await?;
        for copy in copies.iter().filter(|copy| copy.trusted) {
            copy.disk.note(|counters| counters.checksum_errors += 1);
            self.shared.count(|counters| counters.checksum_errors += 1);
            tracing::warn!(space = %self.name(), disk = %copy.disk.name(), row = row.index, column, block = line,
                "healing a block");
            self.write_copy(copy, into).await;
        }
        Ok(())
    }
}

const _: () = assert!(BLOCK as u64 == BLOCK_BYTES, "a line is of blocks");
