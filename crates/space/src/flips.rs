//! Lines of a row and its heir that go to and fro between the two: each has a slot in either, and what is written over it goes to
//! the one that it is not in (docs/design/0026).
//!
//! Invariants:
//! - A record says of both slots what they are, and nobody believes one half of it alone: the line is in its target if that stands,
//!   else where it was.
//! - A target is never written, and a flush has covered that.
//!
//! Left to others: what a crash leaves of it (`in_flight`); which rows have heirs (`heirs`).

use std::collections::BTreeSet;
use std::fmt;
use std::rc::Rc;

use dolmen_planted::{Bug, is_planted};

use crate::error::SpaceError;
use crate::locks::Range;
use crate::reach::BlocksOfRows;
use crate::record::BlockState;
use crate::recovery::Covered;
use crate::row::Row;
use crate::shared::{Shared, by_page, place_in_page, push_stretch};
use crate::space::Space;
use crate::table::WriteClass;
use crate::tickets::Held;
use crate::write::{Body, Pages, Parts, find, places_of};

/// Where whole lines go in place at once.
pub(crate) enum Slot {
    /// Nowhere: the write cache takes them.
    None,
    /// To a slot that a flush has to free first.
    BehindFlush,
    /// To the row or its heir, whatever the other has of them.
    In(Rc<Row>),
    /// To the one, and the other says that it has them no more.
    Flip { target: Rc<Row>, source: Rc<Row> },
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

/// Lines that leave one slot for the other.
pub(crate) struct Flip {
    source: Rc<Row>,
    lines: Range,
    /// Pages of the source.
    pages: Pages,
}

impl Space {
    /// Where whole lines of a row go, which hold these parts. The caller holds their lock.
    pub(crate) async fn slot_of(
        &self,
        row: &Rc<Row>,
        lines: std::ops::Range<u32>,
        parts: &Parts,
    ) -> Result<Slot, SpaceError> {
        let Some(heir) = row.heir() else {
            return Ok(match self.freedom_of(row, parts).await? {
                Freedom::Free => Slot::In(Rc::clone(row)),
                Freedom::Unflushed | Freedom::Taken => Slot::None,
            });
        };
        let Some(is_heirs) = self.are_heirs(&heir, lines.clone()).await? else { return Ok(Slot::None) };
        if !is_heirs && self.freedom_of(row, parts).await? == Freedom::Free {
            return Ok(Slot::In(Rc::clone(row)));
        }
        let goes = self.heirs.goes_to_and_fro(row);
        if is_heirs && !goes {
            return Ok(Slot::None);
        }
        let (target, source) = if is_heirs { (Rc::clone(row), heir) } else { (heir, Rc::clone(row)) };
        Ok(match self.freedom_of(&target, parts).await? {
            Freedom::Free if goes => Slot::Flip { target, source },
            Freedom::Free => Slot::In(target),
            Freedom::Unflushed => Slot::BehindFlush,
            Freedom::Taken => Slot::None,
        })
    }

    /// Whether lines are an heir's, all of them or none; `None` where some are and others not, or nobody can tell.
    async fn are_heirs(
        &self,
        heir: &Rc<Row>,
        lines: std::ops::Range<u32>,
    ) -> Result<Option<bool>, SpaceError> {
        let mut are = None;
        for line in lines {
            let is = match self.parity_of_heir(heir, line).await {
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

    async fn freedom_of(&self, row: &Rc<Row>, parts: &Parts) -> Result<Freedom, SpaceError> {
        let pages = match self.pages_of(row, places_of(parts)).await {
            Ok(pages) => pages,
            Err(SpaceError::Unreadable { .. }) => return Ok(Freedom::Taken),
            Err(error) => return Err(error),
        };
        let held = self.shared.tickets.begin();
        let is_never = || {
            let mut blocks = places_of(parts)
                .flat_map(|(column, range)| range.blocks().map(move |block| (column, block)))
                .filter_map(|(column, block)| find(&pages, column, block));
            blocks.all(|(page, entry)| page.state(entry) == BlockState::Never)
        };
        Ok(match self.class_of(places_of(parts), &pages, &held) {
            WriteClass::Fresh => Freedom::Free,
            _ if !is_never() => Freedom::Taken,
            _ if is_planted(Bug::SlotBeforeFlush) => Freedom::Free,
            _ => Freedom::Unflushed,
        })
    }

    /// Whether a line may be put into a slot: nothing is there, and a flush has covered that. The caller holds its lock.
    pub(crate) async fn is_slot_free(&self, row: &Rc<Row>, line: u32) -> Result<bool, SpaceError> {
        let mut pages = Pages::new();
        for (column, _) in columns_of(row, Range { first: line, count: 1 }) {
            let (index, _) = place_in_page(line);
            pages.push((column, index, self.shared.page(row, column, index).await?));
        }
        let held = self.shared.tickets.begin();
        let places = columns_of(row, Range { first: line, count: 1 });
        Ok(self.class_of(places, &pages, &held) == WriteClass::Fresh)
    }

    /// A flip of lines of which a row is the source. The caller holds their lock.
    pub(crate) async fn flip_from(
        &self,
        source: Rc<Row>,
        lines: std::ops::Range<u32>,
    ) -> Result<Flip, SpaceError> {
        let lines = Range { first: lines.start, count: lines.end - lines.start };
        let pages = self.pages_of(&source, columns_of(&source, lines)).await?;
        self.shared.settle_absences(&source).await?;
        Ok(Flip { source, lines, pages })
    }
}

/// Lines of a row, by column: those that are longer than others have more.
fn columns_of(row: &Row, lines: Range) -> impl Iterator<Item = (usize, Range)> + use<> {
    let shape = row.shape;
    (0..shape.columns()).filter_map(move |column| {
        let count = lines.count.min(shape.column_blocks(column).saturating_sub(lines.first));
        (count > 0).then_some((column, Range { count, ..lines }))
    })
}

impl fmt::Debug for Flip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Flip({:?} from {:?})", self.lines, self.source)
    }
}

impl Flip {
    /// Adds to a record that the source has the lines no more.
    pub(crate) fn add_to(&self, shared: &Shared, body: &mut Body) {
        let stamp = shared.stamp();
        for (column, range) in columns_of(&self.source, self.lines) {
            for range in by_page(range) {
                let stretch = shared.stretch(&self.source, column, range, stamp);
                let page = find(&self.pages, column, range.first);
                let generation = page.map_or(0, |(page, _)| page.durable_generation());
                push_stretch(body, stretch, &[BlockState::Never], generation);
            }
        }
    }

    /// The record is written and the target has the lines.
    pub(crate) fn apply(&self, shared: &Shared, held: &Held) {
        let (stamp, now) = (shared.stamp(), shared.now(held));
        for (column, range) in columns_of(&self.source, self.lines) {
            for (page, entry) in range.blocks().filter_map(|block| find(&self.pages, column, block)) {
                page.set(entry, BlockState::Never, stamp, now);
            }
        }
        shared.note_dirty(&self.source);
    }

    /// It came to nothing: says again what the source has.
    pub(crate) async fn say_source_again(&self, shared: &Shared, held: &Held) -> Result<(), SpaceError> {
        if is_planted(Bug::FailedFlipKeeps) {
            return Ok(());
        }
        let unflushed = shared.unsettled_of(&self.source);
        for (column, range) in columns_of(&self.source, self.lines) {
            let blocks: Vec<u32> = range.blocks().collect();
            let covered = |block| match unflushed.contains(&(column, block)) {
                true => Covered::ByTheNextFlush,
                false => Covered::Before,
            };
            shared.record_blocks_again(&self.source, (column, &blocks), covered, held.ticket()).await?;
        }
        Ok(())
    }
}

impl Shared {
    /// Blocks of the sources of flips whose targets are among these blocks, where no flush has covered the flips.
    pub(crate) fn sources_of(&self, targets: &BlocksOfRows) -> BlocksOfRows {
        let mut sources = BlocksOfRows::new();
        if is_planted(Bug::SourceNotLeft) {
            return sources;
        }
        let covered = self.covered_interval.get();
        for (row, blocks) in targets.values() {
            let Some(partner) = row.partner() else { continue };
            let lines: BTreeSet<u32> = blocks.iter().map(|(_, line)| *line).collect();
            let parity = partner.shape.data_columns();
            let has_left = |line: &u32| {
                let (index, entry) = place_in_page(*line);
                let page = partner.page(parity, index);
                page.is_some_and(|page| page.is_forgotten_unflushed(entry, covered))
            };
            let of_row: BTreeSet<(usize, u32)> = lines
                .into_iter()
                .filter(has_left)
                .flat_map(|line| columns_of(&partner, Range { first: line, count: 1 }))
                .map(|(column, range)| (column, range.first))
                .collect();
            if !of_row.is_empty() {
                let key = (partner.space, partner.index, partner.id);
                sources.insert(key, (partner, of_row));
            }
        }
        sources
    }
}
