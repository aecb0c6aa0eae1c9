//! Rows of a space of which nothing is in doubt.

use std::rc::Rc;

use crate::format::error::SpaceError;
use crate::format::ids::is_of_shadows;
use crate::resolution::resolver::Resolver;
use crate::table::row::Row;
use crate::table::space::SpaceRows;

/// Rows of a space of which nothing is in doubt.
#[derive(Clone, Copy)]
pub(crate) struct DecidedRows<'a> {
    space: &'a SpaceRows,
}

impl<'a> DecidedRows<'a> {
    /// Returns the service for a space.
    pub(crate) fn of(space: &'a SpaceRows) -> Self {
        Self { space }
    }
}

impl DecidedRows<'_> {
    /// The row with this index, if it exists, once all that the log says of it was decided.
    ///
    /// # Errors
    /// [`SpaceError::Unreadable`] while the disks that could decide it are absent.
    pub(crate) async fn row(self, index: u64) -> Result<Option<Rc<Row>>, SpaceError> {
        if is_of_shadows(self.space.id) {
            return self.decided_shadow(index).await;
        }
        loop {
            let row = self.space.in_doubt_row(index).await?;
            match row.as_ref().filter(|row| self.space.shared.is_deferred(row)) {
                // Blocks of it may be left in doubt again while the decisions of others become durable.
                Some(in_doubt) => Resolver::of(&self.space.shared).resolve(self.space, in_doubt).await?,
                None => return Ok(row),
            }
        }
    }

    /// The shadow row with this index in a hidden space of shadow rows, once all that the log says of it and of its row was
    /// decided.
    pub(crate) async fn decided_shadow(self, index: u64) -> Result<Option<Rc<Row>>, SpaceError> {
        let owner = self.space.in_doubt_row(index).await?.map(|shadow| shadow.owner());
        let spaces = self.space.list.spaces.borrow().upgrade();
        let owner = owner.zip(spaces).and_then(|(owner, spaces)| spaces.borrow().get(&owner).cloned());
        let row = match owner {
            Some(owner) => Box::pin(DecidedRows::of(&owner).row(index)).await?,
            None => None,
        };
        Ok(row.and_then(|row| row.shadow()))
    }
}
