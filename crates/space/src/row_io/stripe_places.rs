//! Places of stripes: the row or its shadow row.

use std::rc::Rc;

use crate::format::error::SpaceError;
use crate::format::record::BlockState;
use crate::table::page::place_in_page;
use crate::table::pages::TableStore;
use crate::table::row::Row;
use crate::table::space::SpaceRows;

/// Places of stripes: the row or its shadow row.
#[derive(Clone, Copy)]
pub(crate) struct StripePlaces<'a> {
    space: &'a SpaceRows,
}

impl<'a> StripePlaces<'a> {
    /// Returns the service for a space.
    pub(crate) fn of(space: &'a SpaceRows) -> Self {
        Self { space }
    }
}

impl StripePlaces<'_> {
    /// The row that has a stripe: the row itself, or its shadow row.
    pub(crate) async fn stripe_location(self, row: &Rc<Row>, stripe: u32) -> Result<Rc<Row>, SpaceError> {
        match row.shadow() {
            Some(shadow) if self.parity_of_shadow(&shadow, stripe).await? != BlockState::Never => Ok(shadow),
            Some(_) | None => Ok(Rc::clone(row)),
        }
    }

    /// Whether a row has a stripe itself.
    pub(crate) async fn is_in_row(self, row: &Rc<Row>, stripe: u32) -> Result<bool, SpaceError> {
        Ok(Rc::ptr_eq(&self.stripe_location(row, stripe).await?, row))
    }

    pub(crate) async fn parity_of_shadow(
        self,
        shadow: &Rc<Row>,
        stripe: u32,
    ) -> Result<BlockState, SpaceError> {
        let (index, entry) = place_in_page(stripe);
        Ok(TableStore::of(&self.space.shared)
            .page(shadow, shadow.shape.data_columns(), index)
            .await?
            .state(entry))
    }

    /// What a block of a stripe is, of which its table says this. Where a shadow row does not know what parity says of the stripe,
    /// nobody knows whose the blocks are that it lacks.
    pub(crate) async fn known_state(
        self,
        row: &Rc<Row>,
        stripe: u32,
        state: BlockState,
    ) -> Result<BlockState, SpaceError> {
        if state != BlockState::Never || !row.is_shadow() {
            return Ok(state);
        }
        Ok(match self.parity_of_shadow(row, stripe).await? {
            BlockState::Damaged => BlockState::Damaged,
            BlockState::Never | BlockState::Valid(_) => state,
        })
    }
}
