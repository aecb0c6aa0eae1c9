//! Rows of a thin space that are freed once they hold nothing.

use std::rc::Rc;

use dolmen_future_pool::pooled;

use crate::cache::block_discard::BlockDiscard;
use crate::format::error::SpaceError;
use crate::relocation::blanks::Blanks;
use crate::resolution::decided_rows::DecidedRows;
use crate::resolution::space_doubt::SpaceDoubt;
use crate::resources::locks::Range;
use crate::table::row::Row;
use crate::table::space::SpaceRows;

/// Rows of a thin space that are freed once they hold nothing.
#[derive(Clone, Copy)]
pub(crate) struct UnusedRows<'a> {
    space: &'a SpaceRows,
}

impl<'a> UnusedRows<'a> {
    /// Returns the service for a space.
    pub(crate) fn of(space: &'a SpaceRows) -> Self {
        Self { space }
    }
}

impl UnusedRows<'_> {
    /// Frees a row in which nothing is left. One of which nobody can tell that now stays, and what was discarded of it is.
    #[pooled]
    pub(crate) async fn free_if_known_unused(self, row: &Rc<Row>) -> Result<(), SpaceError> {
        let freed = async {
            let mut row = Rc::clone(row);
            loop {
                SpaceDoubt::of(self.space)
                    .decide_cached(&row, Range { first: 0, count: row.shape.row_blocks() })
                    .await?;
                if self.free_if_unused(&row).await? {
                    return Ok(());
                }
                // It was moved, and nobody else asks whether anything is left in the one that has its place now.
                let Some(other) = DecidedRows::of(self.space).row(row.index).await? else { return Ok(()) };
                row = other;
            }
        };
        match freed.await {
            Err(SpaceError::Unreadable { .. }) => Ok(()),
            freed => freed,
        }
    }

    /// Frees a row in which nothing is left; whether it was looked at, because it is there still.
    #[pooled]
    pub(crate) async fn free_if_unused(self, row: &Rc<Row>) -> Result<bool, SpaceError> {
        let _guard = row.locks.lock(Range { first: 0, count: row.shape.row_blocks() }).await;
        if row.freed.get() {
            return Ok(false);
        }
        if BlockDiscard::of(self.space).is_unused(row).await? {
            Blanks::of(self.space).release(row).await?;
        }
        Ok(true)
    }
}
