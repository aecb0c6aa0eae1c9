//! Parts of a write: blocks of one column each, with the pages that they are noted in.

use std::fmt;
use std::rc::Rc;

use dolmen_block_io::DeviceError;
use dolmen_buffer::{Scratch, Shared as Bytes_};
use dolmen_mutation::mutation;
use dolmen_units::{DiskSlot, Lsn};
use smallvec::SmallVec;

use crate::format::error::SpaceError;
use crate::format::record::{BlockState, Mapping, push_extent, void_redos};
use crate::layout::{BLOCK, Covered};
use crate::resources::locks::Range;
use crate::resources::tickets::Held;
use crate::row_io::block_log::BlockLog;
use crate::row_io::flusher::Flusher;
use crate::table::gathering::States;
use crate::table::page::{Page, by_page, place_in_page};
use crate::table::row::Row;
use crate::table::row_store::RowStore;

/// Bytes of a record.
pub(crate) type Body = Scratch;

pub(crate) type Pages = SmallVec<[(usize, usize, Rc<Page>); 4]>;

/// A part of a write that lies in one piece in one column.
pub(crate) struct Part {
    pub(crate) column: usize,
    pub(crate) range: Range,
    pub(crate) content: Bytes_,
    pub(crate) states: States,
}

impl Part {
    /// Whole blocks of a column, from one on.
    pub(crate) fn new(column: usize, first: u32, content: Bytes_) -> Self {
        let count = u32::try_from(content.len() / BLOCK).unwrap_or(u32::MAX);
        Self { column, range: Range { first, count }, content, states: SmallVec::new() }
    }
}

pub(crate) type Parts = SmallVec<[Part; 2]>;

/// What the record of a write says beside what was written.
#[derive(Debug, Clone, Copy)]
pub(crate) enum RecordExtra<'a> {
    /// Nothing.
    Nothing,
    /// Whose blocks these are, one after another, with their checksums.
    Mappings(&'a [Mapping]),
    /// That stripes are about to be written in place.
    Redo(&'a [u8]),
    /// That the stripes are not where they were.
    SlotSwitch(&'a SlotSwitch),
}

impl RecordExtra<'_> {
    pub(crate) fn add_to(self, shared: &RowStore, body: &mut Body, parts: &Parts) {
        match self {
            Self::Nothing => {}
            Self::SlotSwitch(switch) => switch.add_to(shared, body),
            Self::Mappings(mappings) => add_mappings(mappings, body, parts),
            Self::Redo(redo) => body.extend_from_slice(redo),
        }
    }

    /// What says that it came to nothing, once it was recorded.
    pub(crate) fn void(self, lsn: Lsn, parts: &Parts) -> Body {
        let mut body = Body::new();
        match self {
            Self::Nothing | Self::SlotSwitch(_) => {}
            Self::Mappings(mappings) => {
                let void = |mapping: &Mapping| Mapping { since: Some(lsn), void: true, ..*mapping };
                let void: SmallVec<[Mapping; 16]> = mappings.iter().map(void).collect();
                add_mappings(&void, &mut body, parts);
            }
            Self::Redo(redo) => body.extend_from_slice(&void_redos(redo)),
        }
        body
    }
}

/// The page of a block among those that were loaded, and its entry there.
pub(crate) fn find(pages: &Pages, column: usize, block: u32) -> Option<(&Rc<Page>, usize)> {
    let (index, entry) = place_in_page(block);
    let (_, _, page) = pages.iter().find(|(c, i, _)| *c == column && *i == index)?;
    Some((page, entry))
}

/// Where parts are: columns, and blocks of them.
pub(crate) fn places_of(parts: &Parts) -> impl Iterator<Item = (usize, Range)> + '_ {
    parts.iter().map(|part| (part.column, part.range))
}

/// What became of a write of whole blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Whole {
    /// It was written.
    Written,
    /// It cannot be done in place, and no room was reserved in the write cache. What of it was written may be written again.
    NeedsCache,
}

/// Adds whose blocks of the write cache these are.
pub(crate) fn add_mappings(mappings: &[Mapping], body: &mut Body, parts: &Parts) {
    let mut states = parts.iter().flat_map(|part| &part.states);
    for mapping in mappings {
        body.extend_from_slice(&mapping.head());
        for state in states.by_ref().take(mapping.count as usize) {
            body.extend_from_slice(&state.parts().1.to_le_bytes());
        }
    }
}

/// Stripes that leave one slot for the other.
pub(crate) struct SlotSwitch {
    pub(crate) source: Rc<Row>,
    pub(crate) lines: Range,
    /// Pages of the source.
    pub(crate) pages: Pages,
}

impl fmt::Debug for SlotSwitch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Flip({:?} from {:?})", self.lines, self.source)
    }
}

impl SlotSwitch {
    /// Adds to a record that the source has the stripes no more.
    pub(crate) fn add_to(&self, shared: &RowStore, body: &mut Body) {
        let stamp = shared.stamp();
        for (column, range) in columns_of(&self.source, self.lines) {
            for range in by_page(range) {
                let extent = BlockLog::of(shared).extent(&self.source, column, range, stamp);
                let page = find(&self.pages, column, range.first);
                let generation = page.map_or(0, |(page, _)| page.durable_generation());
                push_extent(body, extent, &[BlockState::Never], generation);
            }
        }
    }

    /// The record is written and the target has the stripes.
    pub(crate) fn apply(&self, shared: &RowStore, held: &Held) {
        let (stamp, now) = (shared.stamp(), shared.now(held));
        for (column, range) in columns_of(&self.source, self.lines) {
            for (page, entry) in range.blocks().filter_map(|block| find(&self.pages, column, block)) {
                page.set(entry, BlockState::Never, stamp, now);
            }
            Flusher::of(shared).note_unflushed(held.ticket(), &self.source, column, range);
        }
        shared.note_dirty(&self.source);
    }

    /// It came to nothing: relogs what the source has.
    pub(crate) async fn relog_source(&self, shared: &RowStore, held: &Held) -> Result<(), SpaceError> {
        if mutation!(FailedSwitchKeeps) {
            return Ok(());
        }
        let unflushed = Flusher::of(shared).unflushed_of(&self.source);
        for (column, range) in columns_of(&self.source, self.lines) {
            let blocks: Vec<u32> = range.blocks().collect();
            let covered = |block| match unflushed.contains(&(column, block)) {
                true => Covered::ByTheNextFlush,
                false => Covered::Before,
            };
            BlockLog::of(shared)
                .record_blocks_again(&self.source, (column, &blocks), covered, held.ticket())
                .await?;
        }
        Ok(())
    }
}

/// What became of the data writes.
pub(crate) struct Written {
    /// Disks that failed, and how.
    pub(crate) failed: SmallVec<[(DiskSlot, DeviceError); 2]>,
    /// Whether every part is on at least one slab that holds everything else too, or can be made of the others.
    pub(crate) complete: bool,
    /// The record of it.
    pub(crate) lsn: Lsn,
}

/// Stripes of a row, by column: those that are longer than others have more.
pub(crate) fn columns_of(row: &Row, lines: Range) -> impl Iterator<Item = (usize, Range)> + use<> {
    let shape = row.shape;
    (0..shape.columns()).filter_map(move |column| {
        let count = lines.count.min(shape.column_blocks(column).saturating_sub(lines.first));
        (count > 0).then_some((column, Range { count, ..lines }))
    })
}
