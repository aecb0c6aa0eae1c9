//! Candidate versions of blocks, as the log names them: what recovery decides among, and what waits for absent disks.

use std::collections::BTreeMap;
use std::rc::Rc;

use dolmen_units::{RowId, SpaceId};
use smallvec::SmallVec;

use crate::format::record::{BlockState, Stamp};
use crate::resources::events::DataLossEvent;
use crate::table::page::Page;
use crate::table::row::Row;

/// What a record says of one block.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Candidate {
    pub(crate) row: RowId,
    pub(crate) durable: bool,
    pub(crate) state: BlockState,
    pub(crate) stamp: Stamp,
    pub(crate) intent: bool,
    /// Whether it was said when the only disks that have it had left: who wrote it was told that it was done, or that it failed.
    pub(crate) left: bool,
    /// Low bits of the generation that the block's page had on disk at least.
    pub(crate) generation: u16,
}

impl Candidate {
    /// What the table in memory says, which a flush has covered.
    pub(crate) fn of_table(row: RowId, page: &Page, entry: usize) -> Self {
        let [low, high, ..] = page.durable_generation().to_le_bytes();
        let generation = u16::from_le_bytes([low, high]);
        Self {
            row,
            durable: true,
            state: page.state(entry),
            stamp: page.stamp(entry),
            intent: false,
            left: false,
            generation,
        }
    }

    /// The same, not covered by a flush.
    pub(crate) fn in_doubt(self) -> Self {
        Self { durable: false, left: true, ..self }
    }

    /// Whether it excuses that the block is taken as it is found.
    pub(crate) fn has_intent(&self) -> bool {
        self.intent
    }

    /// That the block is lost, of which this was the last that was known.
    pub(crate) fn lost(self) -> Self {
        Self { durable: false, state: BlockState::Damaged, intent: false, ..self }
    }

    /// What it says.
    pub(crate) fn state(&self) -> BlockState {
        self.state
    }

    /// Whether no flush has covered it.
    pub(crate) fn is_in_doubt(&self) -> bool {
        !self.durable
    }

    /// Whether it may be of a write that was acknowledged and that no flush has covered.
    pub(crate) fn is_of_an_open_write(&self) -> bool {
        self.is_in_doubt() && self.is_written()
    }

    /// Whether it is of a write that was left in doubt while the pool was open.
    pub(crate) fn was_deferred(&self) -> bool {
        self.left && self.is_written()
    }

    /// Whether a client may have written it, as nobody has who says that the block is lost.
    pub(crate) fn is_written(&self) -> bool {
        self.state != BlockState::Damaged
    }

    /// Whether another says the same, but for the checksum.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        let Self { row, durable, state, stamp, intent, left, generation } = self;
        let kind = |state: BlockState| state.parts().0;
        let same = (*row, *durable, *stamp, *intent, *left, *generation)
            == (other.row, other.durable, other.stamp, other.intent, other.left, other.generation);
        same && kind(*state) == kind(other.state)
    }
}

/// What is claimed of one block, oldest first. Mostly it is one thing.
pub(crate) type Candidates = SmallVec<[Candidate; 1]>;

/// Everything that the log says of one row.
pub(crate) type RowCandidates = BTreeMap<(usize, u32), Candidates>;

/// What nobody could decide when the checkpoint began. What is decided meanwhile is not durable before the next one, so the
/// log still has to have the claims.
pub(crate) type InDoubt = BTreeMap<(SpaceId, u64), Rc<RowCandidates>>;

/// A block of a strict space that no copy here verifies.
pub(crate) struct Unfound {
    pub(crate) row: Rc<Row>,
    pub(crate) column: usize,
    pub(crate) block: u32,
    pub(crate) data_loss: DataLossEvent,
}
