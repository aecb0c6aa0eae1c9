//! What upper layers do for those below them.

use std::rc::{Rc, Weak};

use dolmen_pool::LocalFuture;

use crate::format::error::SpaceError;
use crate::policy::destage_rounds::empty_at_its_rate;
use crate::relocation::promote::promote_all;
use crate::resolution::reach::{Deferral, FailedWrites};
use crate::resources::locks::Range;
use crate::table::row::{BlocksOfRows, Row};
use crate::table::space::{Cache, FailedWrite, Shared, SpaceRows, UpperLayers};

/// The layers above the write cache, as those below reach them.
pub(crate) struct Layers;

impl UpperLayers for Layers {
    fn defer<'a>(&self, shared: &'a Shared, blocks: BlocksOfRows) -> LocalFuture<'a, Result<(), SpaceError>> {
        Box::pin(Deferral::of(shared).leave_in_doubt(blocks))
    }

    fn defer_absent<'a>(
        &self,
        shared: &'a Shared,
        row: &'a Rc<Row>,
        ranges: Vec<(usize, Range)>,
    ) -> LocalFuture<'a, Result<(), SpaceError>> {
        Box::pin(Deferral::of(shared).leave_what_is_away(row, ranges.into_iter()))
    }

    fn resolve_failed_write<'a>(
        &self,
        space: &'a SpaceRows,
        row: &'a Rc<Row>,
        write: FailedWrite<'a>,
    ) -> LocalFuture<'a, Result<(), SpaceError>> {
        let FailedWrite { blocks, failed, held } = write;
        Box::pin(FailedWrites::of(space).resolve_failed_write(row, blocks, failed, held))
    }

    fn destage(&self, cache: Weak<Cache>) -> LocalFuture<'static, ()> {
        Box::pin(empty_at_its_rate(cache))
    }

    fn promote(&self, space: Weak<SpaceRows>) -> LocalFuture<'static, ()> {
        Box::pin(promote_all(space))
    }
}
