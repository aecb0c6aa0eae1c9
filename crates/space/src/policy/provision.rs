//! Thin spaces become fixed, and fixed ones thin (docs/design/0020, *Provisioning*).
//!
//! Invariant: a space is called fixed when all of its rows were claimed, and not before; killed on the way, it is thin.

use std::rc::Rc;

use dolmen_future_pool::pooled;
use dolmen_units::Bytes;

use crate::format::error::SpaceError;
use crate::format::spec::{Provisioning, SpaceSpec};
use crate::policy::convert::laid;
use crate::policy::handles::Changes;
use crate::relocation::allocator::Allocator;
use crate::relocation::unused_rows::UnusedRows;
use crate::resolution::decided_rows::DecidedRows;
use crate::resources::progress::Progress;
use crate::row_io::flusher::Flusher;
use crate::table::space::SpaceRows;

impl Changes<'_> {
    /// Has a space take its rows when they are first written, or all of them at once: the missing ones are claimed, or those that
    /// hold nothing given back, until it is stopped; whether all of that is done.
    ///
    /// # Errors
    /// [`SpaceError::TooLarge`] where a fixed one does not fit, or what the pool says.
    #[pooled]
    pub async fn provision(
        self,
        space: &Rc<SpaceRows>,
        to: Provisioning,
        progress: &Progress,
    ) -> Result<bool, SpaceError> {
        if to == Provisioning::Fixed {
            self.check_fixed(space)?;
        }
        let rows = space.size().0.div_ceil(space.row_bytes());
        progress.total.set(progress.done.get() + rows);
        if to == Provisioning::Thin {
            self.put_provisioning(space, to).await?;
        }
        // Where rows that hold nothing went on to take the places of those that are written, some would never be claimed.
        let _still = (to == Provisioning::Fixed).then(|| space.reserve.keep_still());
        for index in 0..rows {
            if !progress.may_go_on(&self.spaces.shared.closing).await || space.check_stays().is_err() {
                return Ok(false);
            }
            match to {
                Provisioning::Fixed => {
                    Flusher::of(&self.spaces.shared).gate().await?;
                    Allocator::of(space).claim_blank(index).await?;
                }
                Provisioning::Thin => match DecidedRows::of(space).row(index).await {
                    Ok(Some(row)) => UnusedRows::of(space).free_if_known_unused(&row).await?,
                    // Nobody can tell now: it stays.
                    Ok(None) | Err(SpaceError::Unreadable { .. }) => {}
                    Err(error) => return Err(error),
                },
            }
            progress.done.set(progress.done.get() + 1);
        }
        if to == Provisioning::Fixed {
            // Some may have been given back meanwhile.
            while space.row_count.get() < space.size().0.div_ceil(space.row_bytes()) {
                Allocator::of(space).claim_all().await?;
            }
            self.put_provisioning(space, to).await?;
            // Or come with another size.
            Allocator::of(space).claim_all().await?;
        }
        Ok(true)
    }

    /// Whether a space could be fixed with what is free now.
    ///
    /// # Errors
    /// [`SpaceError::TooLarge`] with the largest size that it could have.
    pub fn check_fixed(self, space: &SpaceRows) -> Result<(), SpaceError> {
        let (spec, row) = (laid(space, space.spec().layout()), space.row_bytes());
        let (has, needs) = (space.row_count.get(), spec.size.0.div_ceil(row));
        let most = has + self.rows_that_fit(&spec)?;
        if needs <= most {
            return Ok(());
        }
        Err(SpaceError::TooLarge { name: spec.name.clone(), wanted: spec.size, most: Bytes(most * row) })
    }

    async fn put_provisioning(
        self,
        space: &Rc<SpaceRows>,
        provisioning: Provisioning,
    ) -> Result<(), SpaceError> {
        let _exclusive = space.spec_mutex.take().await;
        let spec = SpaceSpec { provisioning, ..laid(space, space.spec().layout()) };
        self.put_spec(space, spec).await
    }
}
