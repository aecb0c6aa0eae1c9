//! Lines of a row and its heir that go to and fro between the two: each has a slot in either, and what is written over it goes to
//! the one that it is not in (docs/design/0026).
//!
//! Invariants:
//! - A write to one slot says of the other, in the same record, that the line is not there, and nobody believes one half of that alone:
//!   the line is in its target if that stands, else where it was.
//! - A target is never written, and a flush has covered that.
//!
//! Left to others: what a crash leaves of it (`in_flight`); which rows have heirs (`heirs`).

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fmt;
use std::rc::Rc;

use dolmen_future_pool::pooled;
use dolmen_journal::Wait;
use dolmen_planted::mutation;

use crate::error::SpaceError;
use crate::locks::Range;
use crate::reach::BlocksOfRows;
use crate::record::BlockState;
use crate::recovery::Covered;
use crate::row::Row;
use crate::shared::{Moment, Shared, by_page, place_in_page, push_stretch};
use crate::space::Space;
use crate::table::WriteClass;
use crate::tickets::Held;
use crate::write::{Beside, Body, Pages, Parts, find, places_of};

/// Notes of lines that are kept before those are looked for that a flush has covered.
const MOVED_USUAL: usize = 32;

/// Where whole lines go in place at once.
pub(crate) enum Slot {
    /// Nowhere: the write cache takes them.
    None,
    /// Some to one slot and some to the other, or nobody can tell: one by one.
    Apart,
    /// To a slot that a flush has to free first.
    BehindFlush,
    /// Back to the row, once its heir is no more only for the stream that has brought them.
    OfStream,
    /// To the row, once it says that it has them no more: they are in its heir, as a flush has covered.
    Left(Rc<Row>),
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

/// Lines of a row and its heir that were written in place as a whole, until a flush has covered that: none of them flips before. Their
/// claims would else be of three versions, of which a crash may leave none.
#[derive(Default)]
pub(crate) struct Moved(RefCell<Vec<(Range, Moment)>>);

impl Moved {
    /// Notes lines that were written, or may have been, by now.
    pub(crate) fn note(&self, lines: Range, shared: &Shared) {
        let mut moved = self.0.borrow_mut();
        if moved.len() >= MOVED_USUAL && moved.len().is_power_of_two() {
            moved.retain(|(_, moment)| !shared.has_covered(*moment));
        }
        moved.push((lines, shared.moment()));
    }

    /// Whether no flush has covered what was written of some of these lines.
    fn has_open(&self, lines: Range, shared: &Shared) -> bool {
        let mut moved = self.0.borrow_mut();
        moved.retain(|(_, moment)| !shared.has_covered(*moment));
        moved.iter().any(|(other, _)| other.overlaps(lines))
    }
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
    #[pooled]
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
        let Some(is_heirs) = self.are_heirs(&heir, lines.clone()).await? else { return Ok(Slot::Apart) };
        if !is_heirs && self.freedom_of(row, parts).await? == Freedom::Free {
            return Ok(Slot::In(Rc::clone(row)));
        }
        let goes = self.heirs.goes_to_and_fro(row);
        if is_heirs && !goes {
            return Ok(Slot::OfStream);
        }
        let (target, source) = if is_heirs { (Rc::clone(row), heir) } else { (heir, Rc::clone(row)) };
        let range = Range { first: lines.start, count: lines.end - lines.start };
        let is_open = goes && row.moved.has_open(range, &self.shared) && !mutation!(SlotBeforeFlush);
        Ok(match self.freedom_of(&target, parts).await? {
            Freedom::Free | Freedom::Unflushed if is_open => Slot::BehindFlush,
            Freedom::Free if goes => Slot::Flip { target, source },
            Freedom::Free => Slot::In(target),
            Freedom::Unflushed => Slot::BehindFlush,
            // A stream has brought them, and left what the row had.
            Freedom::Taken if is_heirs && !is_open => Slot::Left(target),
            Freedom::Taken if is_heirs => Slot::BehindFlush,
            Freedom::Taken => Slot::Apart,
        })
    }

    /// Whether lines are an heir's, all of them or none; `None` where some are and others not, or nobody can tell.
    pub(crate) async fn are_heirs(
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
            _ if mutation!(SlotBeforeFlush) => Freedom::Free,
            _ => Freedom::Unflushed,
        })
    }

    /// Whether a line may be put into a slot: nothing is there, and a flush has covered that. The caller holds its lock.
    pub(crate) async fn is_slot_free(&self, row: &Rc<Row>, line: u32) -> Result<bool, SpaceError> {
        if row.moved.has_open(Range { first: line, count: 1 }, &self.shared) {
            return Ok(false);
        }
        let mut pages = Pages::new();
        for (column, _) in columns_of(row, Range { first: line, count: 1 }) {
            let (index, _) = place_in_page(line);
            pages.push((column, index, self.shared.page(row, column, index).await?));
        }
        let held = self.shared.tickets.begin();
        let places = columns_of(row, Range { first: line, count: 1 });
        Ok(self.class_of(places, &pages, &held) == WriteClass::Fresh)
    }

    /// A flip of lines of which a row is the source; not where nobody here can tell what it has. The caller holds their lock.
    #[pooled]
    pub(crate) async fn flip_from(&self, source: Rc<Row>, lines: Range) -> Result<Option<Flip>, SpaceError> {
        let pages = match self.pages_of(&source, columns_of(&source, lines)).await {
            Err(SpaceError::Unreadable { .. }) => return Ok(None),
            pages => pages?,
        };
        self.shared.settle_absences(&source).await?;
        Ok(Some(Flip { source, lines, pages }))
    }

    /// Writes whole lines with parity to a slot of theirs that is free; whether it did. The caller holds their lock.
    #[pooled]
    pub(crate) async fn write_to_slot(
        &self,
        row: &Rc<Row>,
        slot: Slot,
        lines: Range,
        parts: Parts,
    ) -> Result<bool, SpaceError> {
        let (target, source) = match slot {
            Slot::In(target) => (target, None),
            Slot::Flip { target, source } => (target, Some(source)),
            Slot::None | Slot::Apart | Slot::BehindFlush | Slot::OfStream | Slot::Left(_) => {
                return Ok(false);
            }
        };
        let flip = match source {
            Some(source) => match self.flip_from(source, lines).await? {
                None => return Ok(false),
                flip => flip,
            },
            None => None,
        };
        self.shared.settle_absences(&target).await?;
        if !self.survives(&target, &parts, &[]) {
            return Ok(false);
        }
        let beside = flip.as_ref().map_or(Beside::Nothing, Beside::Flip);
        let written = self.write_parts(&target, parts, beside).await;
        if row.heir().is_some() {
            row.moved.note(lines, &self.shared);
        }
        written?;
        self.note_moved(row, &target, lines.count, flip.is_some());
        Ok(true)
    }

    /// Says of lines that a stream has brought to an heir that the row has them no more; not where nobody here can tell what it has.
    /// The caller holds their lock.
    pub(crate) async fn leave_slots(&self, row: &Rc<Row>, lines: Range) -> Result<bool, SpaceError> {
        let Some(flip) = self.flip_from(Rc::clone(row), lines).await? else { return Ok(false) };
        let held = self.shared.tickets.begin();
        let mut body = Body::new();
        flip.add_to(&self.shared, &mut body);
        self.shared.record(&body, Wait::Written).await?;
        flip.apply(&self.shared, &held);
        drop(held);
        row.moved.note(lines, &self.shared);
        Ok(true)
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
            shared.note_unsettled(held.ticket(), &self.source, column, range);
        }
        shared.note_dirty(&self.source);
    }

    /// It came to nothing: says again what the source has.
    pub(crate) async fn say_source_again(&self, shared: &Shared, held: &Held) -> Result<(), SpaceError> {
        if mutation!(FailedFlipKeeps) {
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
        if mutation!(SourceNotLeft) {
            return sources;
        }
        for (row, blocks) in targets.values() {
            let Some(partner) = row.partner() else { continue };
            let lines: BTreeSet<u32> = blocks.iter().map(|(_, line)| *line).collect();
            let of_row = self.unsettled_sources(&partner, &lines);
            if !of_row.is_empty() {
                let key = (partner.space, partner.index, partner.id);
                sources.insert(key, (partner, of_row));
            }
        }
        sources
    }
}
