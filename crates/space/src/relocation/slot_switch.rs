//! Stripes of a row and its shadow row that alternate between the two: each has a slot in either, and what is written over it goes
//! to the one that it is not in (docs/design/0026).
//!
//! Invariants:
//! - A write to one slot says of the other, in the same record, that the stripe is not there, and nobody believes one half of that
//!   alone: the stripe is in its target if that stands, else where it was.
//! - A target is never written, and a flush has covered that.
//!
//! Left to others: what a crash leaves of it (`in_flight`); which rows have shadow rows (`shadow_rows`).

use std::rc::Rc;

use dolmen_future_pool::pooled;
use dolmen_journal::Wait;
use dolmen_mutation::mutation;

use crate::format::error::SpaceError;
use crate::format::record::BlockState;
use crate::layout::plan::WriteClass;
use crate::relocation::shadow_watch::ShadowWatch;
use crate::resources::locks::Range;
use crate::row_io::absence::RowRecords;
use crate::row_io::block_log::BlockLog;
use crate::row_io::flusher::Flusher;
use crate::row_io::parts::{Body, Pages, Parts, RecordExtra, SlotSwitch, columns_of, find, places_of};
use crate::row_io::stripe_places::StripePlaces;
use crate::row_io::write_executor::WriteExecutor;
use crate::table::page::place_in_page;
use crate::table::pages::TableStore;
use crate::table::row::Row;
use crate::table::space::SpaceRows;

/// Where whole stripes go in place at once.
pub(crate) enum Slot {
    /// Nowhere: the write cache takes them.
    None,
    /// Some to one slot and some to the other, or nobody can tell: one by one.
    Apart,
    /// To a slot that a flush has to free first.
    AfterFlush,
    /// Back to the row, once its shadow row is no more only for the stream that has brought them.
    OfStream,
    /// To the row, once it says that it has them no more: they are in its shadow row, as a flush has covered.
    Detached(Rc<Row>),
    /// To the row or its shadow row, whatever the other has of them.
    In(Rc<Row>),
    /// To the one, and the other says that it has them no more.
    Switch { target: Rc<Row>, source: Rc<Row> },
}

impl Slot {
    /// Whether stripes can go there now.
    pub(crate) fn is_free(&self) -> bool {
        matches!(self, Self::In(_) | Self::Switch { .. })
    }
}

/// What is known of a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Freedom {
    /// A flush has covered that it is never written.
    Free,
    /// It is never written, which no flush has covered.
    Unflushed,
    Taken,
}

/// Alternating stripe slots of a row and its shadow row.
#[derive(Clone, Copy)]
pub(crate) struct StripeSlots<'a> {
    space: &'a SpaceRows,
}

impl<'a> StripeSlots<'a> {
    /// Returns the service for a space.
    pub(crate) fn of(space: &'a SpaceRows) -> Self {
        Self { space }
    }
}

impl StripeSlots<'_> {
    /// Where whole stripes of a row go, which hold these parts. The caller holds their lock.
    #[pooled]
    pub(crate) async fn slot_of(
        self,
        row: &Rc<Row>,
        lines: std::ops::Range<u32>,
        parts: &Parts,
    ) -> Result<Slot, SpaceError> {
        let Some(shadow) = row.shadow() else {
            return Ok(match self.freedom_of(row, parts).await? {
                Freedom::Free => Slot::In(Rc::clone(row)),
                Freedom::Unflushed | Freedom::Taken => Slot::None,
            });
        };
        let Some(is_shadows) = self.are_shadows(&shadow, lines.clone()).await? else {
            return Ok(Slot::Apart);
        };
        if !is_shadows && self.freedom_of(row, parts).await? == Freedom::Free {
            return Ok(Slot::In(Rc::clone(row)));
        }
        let goes = self.space.shadows.alternates(row);
        if is_shadows && !goes {
            return Ok(Slot::OfStream);
        }
        let (target, source) = if is_shadows { (Rc::clone(row), shadow) } else { (shadow, Rc::clone(row)) };
        let range = Range { first: lines.start, count: lines.end - lines.start };
        let is_open = goes
            && row.moved.has_open(range, |point| Flusher::of(&self.space.shared).has_covered(point))
            && !mutation!(SlotBeforeFlush);
        Ok(match self.freedom_of(&target, parts).await? {
            Freedom::Free | Freedom::Unflushed if is_open => Slot::AfterFlush,
            Freedom::Free if goes => Slot::Switch { target, source },
            Freedom::Free => Slot::In(target),
            Freedom::Unflushed => Slot::AfterFlush,
            // A stream has brought them, and left what the row had.
            Freedom::Taken if is_shadows && !is_open => Slot::Detached(target),
            Freedom::Taken if is_shadows => Slot::AfterFlush,
            Freedom::Taken => Slot::Apart,
        })
    }

    /// Whether stripes are a shadow row's, all of them or none; `None` where some are and others not, or nobody can tell.
    pub(crate) async fn are_shadows(
        self,
        shadow: &Rc<Row>,
        lines: std::ops::Range<u32>,
    ) -> Result<Option<bool>, SpaceError> {
        let mut are = None;
        for stripe in lines {
            let is = match StripePlaces::of(self.space).parity_of_shadow(shadow, stripe).await {
                Ok(BlockState::Valid(_)) => true,
                Ok(BlockState::Never) => false,
                Ok(BlockState::Damaged) | Err(SpaceError::Unreadable { .. }) => return Ok(None),
                Err(error) => return Err(error),
            };
            if are.is_some_and(|are| are != is) {
                return Ok(None);
            }
            are = Some(is);
        }
        Ok(are)
    }

    async fn freedom_of(self, row: &Rc<Row>, parts: &Parts) -> Result<Freedom, SpaceError> {
        let pages = match WriteExecutor::of(self.space).pages_of(row, places_of(parts)).await {
            Ok(pages) => pages,
            Err(SpaceError::Unreadable { .. }) => return Ok(Freedom::Taken),
            Err(error) => return Err(error),
        };
        let held = self.space.shared.tickets.begin();
        let is_never = || {
            let mut blocks = places_of(parts)
                .flat_map(|(column, range)| range.blocks().map(move |block| (column, block)))
                .filter_map(|(column, block)| find(&pages, column, block));
            blocks.all(|(page, entry)| page.state(entry) == BlockState::Never)
        };
        Ok(match WriteExecutor::of(self.space).class_of(places_of(parts), &pages, &held) {
            WriteClass::Fresh => Freedom::Free,
            _ if !is_never() => Freedom::Taken,
            _ if mutation!(SlotBeforeFlush) => Freedom::Free,
            _ => Freedom::Unflushed,
        })
    }

    /// Whether a stripe may be put into a slot: nothing is there, and a flush has covered that. The caller holds its lock.
    pub(crate) async fn is_slot_free(self, row: &Rc<Row>, stripe: u32) -> Result<bool, SpaceError> {
        if row.moved.has_open(Range { first: stripe, count: 1 }, |point| {
            Flusher::of(&self.space.shared).has_covered(point)
        }) {
            return Ok(false);
        }
        let mut pages = Pages::new();
        for (column, _) in columns_of(row, Range { first: stripe, count: 1 }) {
            let (index, _) = place_in_page(stripe);
            pages.push((column, index, TableStore::of(&self.space.shared).page(row, column, index).await?));
        }
        let held = self.space.shared.tickets.begin();
        let places = columns_of(row, Range { first: stripe, count: 1 });
        Ok(WriteExecutor::of(self.space).class_of(places, &pages, &held) == WriteClass::Fresh)
    }

    /// A flip of stripes of which a row is the source; not where nobody here can tell what it has. The caller holds their lock.
    #[pooled]
    pub(crate) async fn switch_from(
        self,
        source: Rc<Row>,
        lines: Range,
    ) -> Result<Option<SlotSwitch>, SpaceError> {
        let pages = match WriteExecutor::of(self.space).pages_of(&source, columns_of(&source, lines)).await {
            Err(SpaceError::Unreadable { .. }) => return Ok(None),
            pages => pages?,
        };
        RowRecords::of(&self.space.shared).commit_absences(&source).await?;
        Ok(Some(SlotSwitch { source, lines, pages }))
    }

    /// Writes whole stripes with parity to a slot of theirs that is free; whether it did. The caller holds their lock.
    #[pooled]
    pub(crate) async fn write_to_slot(
        self,
        row: &Rc<Row>,
        slot: Slot,
        lines: Range,
        parts: Parts,
    ) -> Result<bool, SpaceError> {
        let (target, source) = match slot {
            Slot::In(target) => (target, None),
            Slot::Switch { target, source } => (target, Some(source)),
            Slot::None | Slot::Apart | Slot::AfterFlush | Slot::OfStream | Slot::Detached(_) => {
                return Ok(false);
            }
        };
        let switch = match source {
            Some(source) => match self.switch_from(source, lines).await? {
                None => return Ok(false),
                switch => switch,
            },
            None => None,
        };
        RowRecords::of(&self.space.shared).commit_absences(&target).await?;
        if !WriteExecutor::of(self.space).survives(&target, &parts, &[]) {
            return Ok(false);
        }
        let extra = switch.as_ref().map_or(RecordExtra::Nothing, RecordExtra::SlotSwitch);
        let written = WriteExecutor::of(self.space).write_parts(&target, parts, extra).await;
        if row.shadow().is_some() {
            row.moved.note(lines, Flusher::of(&self.space.shared).flush_point(), |point| {
                Flusher::of(&self.space.shared).has_covered(point)
            });
        }
        written?;
        ShadowWatch::of(self.space).note_moved(row, &target, lines.count, switch.is_some());
        Ok(true)
    }

    /// Says of stripes that a stream has brought to a shadow row that the row has them no more; not where nobody here can tell what
    /// it has. The caller holds their lock.
    pub(crate) async fn leave_slots(self, row: &Rc<Row>, lines: Range) -> Result<bool, SpaceError> {
        let Some(switch) = self.switch_from(Rc::clone(row), lines).await? else { return Ok(false) };
        let held = self.space.shared.tickets.begin();
        let mut body = Body::new();
        switch.add_to(&self.space.shared, &mut body);
        BlockLog::of(&self.space.shared).record(&body, Wait::Written).await?;
        switch.apply(&self.space.shared, &held);
        drop(held);
        row.moved.note(lines, Flusher::of(&self.space.shared).flush_point(), |point| {
            Flusher::of(&self.space.shared).has_covered(point)
        });
        Ok(true)
    }
}
