//! Stripes that a shadow row has and lacks.

use std::rc::Rc;

use dolmen_future_pool::pooled;
use dolmen_mutation::mutation;

use crate::format::error::{SpaceError, UnreadableReason};
use crate::format::record::BlockState;
use crate::relocation::exchange::{HeldPages, may_replace};
use crate::relocation::obstacles::EndCause;
use crate::row_io::stripe_places::StripePlaces;
use crate::table::page::place_in_page;
use crate::table::pages::TableStore;
use crate::table::row::Row;
use crate::table::space::SpaceRows;

/// Stripes that a shadow row has and lacks.
#[derive(Clone, Copy)]
pub(crate) struct ShadowStripes<'a> {
    space: &'a SpaceRows,
}

impl<'a> ShadowStripes<'a> {
    /// Returns the service for a space.
    pub(crate) fn of(space: &'a SpaceRows) -> Self {
        Self { space }
    }
}

impl ShadowStripes<'_> {
    /// Returns the stripes that a shadow row has, and holds the pages that say so.
    pub(crate) async fn stripes_of_shadow(
        self,
        shadow: &Rc<Row>,
        held: &mut HeldPages,
    ) -> Result<Vec<u32>, SpaceError> {
        let mut lines = Vec::new();
        let parity = shadow.shape.data_columns();
        for stripe in 0..shadow.shape.column_blocks(parity) {
            if StripePlaces::of(self.space).parity_of_shadow(shadow, stripe).await? != BlockState::Never {
                lines.push(stripe);
            }
            hold_page(held, shadow, parity, stripe);
        }
        Ok(lines)
    }

    /// Returns whether one of a row and its shadow row may get all content of the other one, which goes then. The row that stays
    /// lacks no more columns than the row that goes, so that redundancy is no lower afterwards. For room that a claim lacks, it is
    /// enough that what stays can be decoded.
    pub(crate) fn may_replace(self, stays: &Rc<Row>, goes: &Rc<Row>, cause: EndCause) -> bool {
        may_replace(self.space, stays, goes, cause) || mutation!(PromotionDegrades)
    }

    /// Returns the stripes of a row that hold something and that its shadow row lacks, and holds the pages that say so.
    #[pooled]
    pub(crate) async fn lacking(
        self,
        row: &Rc<Row>,
        shadow: &Rc<Row>,
        held: &mut HeldPages,
    ) -> Result<Vec<u32>, SpaceError> {
        let (mut lacking, columns) = (Vec::new(), row.shape.data_columns());
        for stripe in 0..row.shape.column_blocks(columns) {
            let parity = StripePlaces::of(self.space).parity_of_shadow(shadow, stripe).await?;
            hold_page(held, shadow, columns, stripe);
            match parity {
                BlockState::Valid(_) => {}
                // Whose its blocks are is not known; a write to them makes it known.
                BlockState::Damaged => return Err(self.unknown_stripe(row, stripe)),
                BlockState::Never => {
                    let states = TableStore::of(&self.space.shared).stripe_states(row, stripe).await?;
                    (0..columns).for_each(|column| hold_page(held, row, column, stripe));
                    let mut data = states.iter().take(columns);
                    if data.any(|state| *state != BlockState::Never) {
                        lacking.push(stripe);
                    }
                }
            }
        }
        Ok(lacking)
    }

    /// The error for a stripe of which nobody can tell now whose it is.
    pub(crate) fn unknown_stripe(self, row: &Row, stripe: u32) -> SpaceError {
        TableStore::of(&self.space.shared).unreadable(row, 0, stripe as usize, UnreadableReason::Damaged)
    }
}

/// Holds the page that has a block, if it is in memory and not held already.
pub(crate) fn hold_page(held: &mut HeldPages, row: &Row, column: usize, block: u32) {
    let (index, _) = place_in_page(block);
    let page = row.page(column, index);
    held.extend(
        page.filter(|page| !held.iter().rev().take(row.shape.columns()).any(|other| Rc::ptr_eq(other, page))),
    );
}
