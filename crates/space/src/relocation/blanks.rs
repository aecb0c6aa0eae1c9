//! Reserved rows of a space that hold nothing.

use std::rc::Rc;

use dolmen_future_pool::pooled;
use dolmen_mutation::mutation;

use crate::cache::block_discard::BlockDiscard;
use crate::format::error::SpaceError;
use crate::relocation::exchange::{Disks, Exchange, Exchanges};
use crate::relocation::obstacles::Obstacle;
use crate::resources::locks::Range;
use crate::table::row::Row;
use crate::table::space::SpaceRows;

/// Reserved rows of a space that hold nothing.
#[derive(Clone, Copy)]
pub(crate) struct Blanks<'a> {
    space: &'a SpaceRows,
}

impl<'a> Blanks<'a> {
    /// Returns the service for a space.
    pub(crate) fn of(space: &'a SpaceRows) -> Self {
        Self { space }
    }
}

impl Blanks<'_> {
    /// Rows that its reserve takes.
    pub(crate) fn reserve_rows(self) -> u64 {
        self.space.reserve().0.min(self.space.size().0).div_ceil(self.space.row_bytes())
    }

    /// Whether rows that hold nothing take the places of those that are written. All rows of a fixed space are where they belong.
    fn has_movable_reserve(self) -> bool {
        self.space.is_thin() && self.reserve_rows() > 0 && self.space.reserve.still.get() == 0
    }

    /// A row that holds nothing, in the place of one that does not exist. `None` where there is none, or nothing is reserved.
    #[pooled]
    pub(crate) async fn take_blank(self, index: u64) -> Result<Option<Rc<Row>>, SpaceError> {
        if !self.has_movable_reserve() {
            return Ok(None);
        }
        self.look_for_unformatted().await?;
        match self.take_blank_on(index, Disks::All).await? {
            None if self.space.reserve.last_before(u64::MAX).is_some() => {
                self.take_blank_on(index, Disks::Enough).await
            }
            taken => Ok(taken),
        }
    }

    async fn take_blank_on(self, index: u64, disks: Disks) -> Result<Option<Rc<Row>>, SpaceError> {
        let mut end = u64::MAX;
        while let Some(blank) = self.space.reserve.last_before(end) {
            end = blank;
            let Some(row) = self.space.in_doubt_row(blank).await? else {
                self.space.reserve.forget(blank);
                continue;
            };
            let Some(_guard) = row.locks.try_lock(whole(&row)) else { continue };
            match self.renewed(&row, index, disks).await? {
                Renewed::Row(row) => return Ok(Some(row)),
                Renewed::InUse => self.space.reserve.forget(blank),
                Renewed::Busy => {}
            }
        }
        Ok(None)
    }

    /// Looks at all rows of a space that has no room for another: whether there were any among them that hold nothing.
    #[pooled]
    pub(crate) async fn finds_blanks(self) -> Result<bool, SpaceError> {
        if !self.has_movable_reserve() || self.space.reserve.has_read.get() {
            return Ok(false);
        }
        let mut rows = Vec::new();
        self.space.for_each_record(|index, record| rows.extend(record.formatted.then_some(index))).await?;
        let mut has_found = false;
        for index in rows {
            let Some(row) = self.space.in_doubt_row(index).await? else { continue };
            let guard = row.locks.try_lock(whole(&row)).filter(|_| !self.space.shared.is_deferred(&row));
            let holds_nothing = match guard {
                Some(_guard) => self.holds_nothing(&row).await?,
                None => None,
            };
            match holds_nothing {
                Some(true) => self.space.reserve.note(index),
                Some(false) => continue,
                // It is asked again when it is wanted.
                None => self.space.reserve.note_doubtful(index),
            }
            has_found = true;
        }
        self.space.reserve.has_read.set(true);
        Ok(has_found)
    }

    /// Whether nothing is in a row; `None` where its tables cannot be read now.
    async fn holds_nothing(self, row: &Rc<Row>) -> Result<Option<bool>, SpaceError> {
        match BlockDiscard::of(self.space).is_unused(row).await {
            Err(SpaceError::Unreadable { .. }) => Ok(None),
            other => other.map(Some),
        }
    }

    /// Finds rows that were never written, once.
    pub(crate) async fn look_for_unformatted(self) -> Result<(), SpaceError> {
        if self.space.reserve.has_looked.get() {
            return Ok(());
        }
        let mut rows = Vec::new();
        self.space.for_each_record(|index, record| rows.extend((!record.formatted).then_some(index))).await?;
        self.space.reserve.blanks.borrow_mut().extend(rows);
        self.space.reserve.has_looked.set(true);
        Ok(())
    }

    /// Frees a row in which nothing is left, or keeps it for what is reserved. The caller holds a lock on all of it.
    pub(crate) async fn release(self, row: &Rc<Row>) -> Result<(), SpaceError> {
        // Whoever reserves waits until it is done.
        let _exclusive = self.space.reserve.mutex.take().await;
        if self.space.row_count.get() > self.reserve_rows() || mutation!(ReserveReleased) {
            self.space.reserve.forget(row.index);
            return Exchanges::of(self.space).free_row(row).await;
        }
        // As one that was never formatted, it is known again behind the next opening.
        if row.is_formatted() {
            self.renewed(row, row.index, Disks::Enough).await?;
        }
        self.space.reserve.note(row.index);
        Ok(())
    }

    /// Renews a row that holds nothing, in a place where there is none, or in its own. The caller holds a lock on all of it.
    #[pooled]
    async fn renewed(self, row: &Rc<Row>, to: u64, disks: Disks) -> Result<Renewed, SpaceError> {
        let renewal = |holds_content| Exchange::Renewal { to, disks, holds_content };
        if !Exchanges::of(self.space).obstacles_of(row, &renewal(false)).is_empty() {
            return Ok(Renewed::Busy);
        }
        let Some(holds_nothing) = self.holds_nothing(row).await? else { return Ok(Renewed::Busy) };
        let exchange = renewal(!holds_nothing);
        if Exchanges::of(self.space).obstacles_of(row, &exchange).contains(&Obstacle::HoldsContent) {
            return Ok(Renewed::InUse);
        }
        if !Exchanges::of(self.space).commit_exchange(&[row], &exchange).await?.is_done() {
            return Ok(Renewed::Busy);
        }
        if to != row.index {
            self.space.reserve.forget(row.index);
        }
        let new = self.space.rows.borrow().get(&to).cloned().flatten();
        Ok(new.map_or(Renewed::Busy, Renewed::Row))
    }
}

pub(crate) fn whole(row: &Row) -> Range {
    Range { first: 0, count: row.shape.row_blocks() }
}

/// What came of a row that was to become another one.
pub(crate) enum Renewed {
    Row(Rc<Row>),
    /// It holds something.
    InUse,
    /// Somebody is at it, or a disk of it is away or lacks something: it may be had later.
    Busy,
}
