//! What slabs, rows and tables say, for whoever has to put a map together without one (docs/design/0019), and for whoever prints
//! what stands on a disk.
//!
//! Everything here is a function of bytes. Nothing is believed: what no version writes is `None`.
//!
//! Left to others: finding headers, and deciding which of several slabs counts.

pub use crate::layout::shape::TABLE_PAGE_BLOCKS;

use std::ops::Range;

use dolmen_checksum::crc64;
use dolmen_pool::Run;
use dolmen_units::{Bytes, DiskId, DiskSlot, Epoch, PoolId, RowId, SpaceId};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use crate::format::ids::{cache_id, is_of_conversion_shadows, is_of_shadows, seen_as};
use crate::format::layouts::Layouts;
use crate::format::raw::{
    PAGE_BYTES, PAGE_ENTRIES, PAGE_MAGIC, RawBlockExtent, RawPage, RawSlabHeader, SLAB_MAGIC, VERSION,
};
use crate::format::resiliency::{Integrity, Resiliency};
use crate::format::spec::{SpaceSpec, Standing, cache_spec};
use crate::layout::Shape;
use crate::layout::shape::ranges_of_page;
use crate::table::page::{Page, PageName};
use crate::table::row;
use crate::table::row::{RowLaid, RowPlace, RowRecord, SLABS_MAX, Slab, Slabs, encode_place};

/// Bytes of a slot of a table page, and of the header of a slab.
pub const TABLE_PAGE_BYTES: usize = PAGE_BYTES;
/// Slabs that a column of a row has, at most.
pub const SLABS_OF_A_COLUMN_MAX: usize = SLABS_MAX;

const _: () =
    assert!(TABLE_PAGE_BLOCKS as usize == PAGE_ENTRIES, "a page is about as many blocks as it has entries");

/// The shape of a row, as a header of a slab has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct RowShape {
    /// Bytes of the row.
    pub row: Bytes,
    /// Bytes written to one column before the next.
    pub interleave: Bytes,
    /// Data columns.
    pub columns: u8,
    /// Parity columns.
    pub parity: u8,
}

/// Where a copy of a page of a table is: on the slabs of a column, at these bytes of the slab.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PagePlace {
    /// The column whose slabs have it.
    pub holder: usize,
    /// The column that it is about.
    pub column: usize,
    /// Which page of that column.
    pub index: usize,
    /// First byte of each of its two slots.
    pub slots: [u64; 2],
}

impl RowShape {
    fn shape(self) -> Option<Shape> {
        Shape::new(self.row, self.interleave, u32::from(self.columns), u32::from(self.parity))
    }

    /// Columns, those of parity included.
    #[must_use]
    pub fn column_count(self) -> usize {
        usize::from(self.columns) + usize::from(self.parity)
    }

    /// Allocation units of a slab of a column; `None` if no row has this shape.
    #[must_use]
    pub fn units(self, column: usize) -> Option<u64> {
        let shape = self.shape().filter(|shape| column < shape.columns())?;
        Some(shape.slab_map(column).units())
    }

    /// Every page of every table of the row, with all columns that have it.
    #[must_use]
    pub fn pages(self) -> Vec<PagePlace> {
        let Some(shape) = self.shape() else { return Vec::new() };
        let mut pages = Vec::new();
        for column in 0..shape.columns() {
            for index in 0..shape.slab_map(column).pages() {
                for (holder, table) in shape.table_holders(column) {
                    let at = |generation| shape.slab_map(holder).page_at(table, index, generation);
                    pages.push(PagePlace { holder, column, index, slots: [at(0), at(1)] });
                }
            }
        }
        pages
    }

    /// The blocks of the row that a page of a column is about, as ranges.
    #[must_use]
    pub fn blocks_of(self, column: usize, index: usize) -> Vec<Range<u64>> {
        self.shape().map_or_else(Vec::new, |shape| ranges_of_page(&shape, column, index))
    }
}

/// What the header of a slab says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlabHeader {
    /// The pool.
    pub pool: PoolId,
    /// The disk.
    pub disk: DiskId,
    /// The space.
    pub space: SpaceId,
    /// Index of the row in the space.
    pub row_index: u64,
    /// Incarnation of the row.
    pub row: RowId,
    /// Epoch in which the header was written.
    pub epoch: Epoch,
    /// The row's shape.
    pub shape: RowShape,
    /// Which column the slab serves.
    pub column: u8,
    /// Its allocation units, in order.
    pub runs: Vec<Run>,
}

impl SlabHeader {
    /// Whether a block begins as a header does.
    #[must_use]
    pub fn is_likely(block: &[u8]) -> bool {
        block.starts_with(&SLAB_MAGIC)
    }

    /// The header in a block; `None` unless all of it is sound and describes a slab that can be.
    #[must_use]
    pub fn parse(block: &[u8]) -> Option<Self> {
        let raw = RawSlabHeader::ref_from_bytes(block).ok()?;
        let mut bare = *raw;
        bare.checksum = 0.into();
        let sound = raw.magic == SLAB_MAGIC
            && raw.version.get() == VERSION
            && raw.reserved.iter().all(|byte| *byte == 0)
            && raw.checksum.get() == crc64(bare.as_bytes());
        if !sound {
            return None;
        }
        let shape = RowShape {
            row: Bytes(raw.row_length.get()),
            interleave: Bytes(u64::from(raw.interleave.get())),
            columns: raw.columns,
            parity: raw.parity,
        };
        let is_used = |run: &&crate::format::raw::RawRun| run.count.get() > 0;
        let used = raw.runs.iter().take_while(is_used).count();
        if raw.runs.iter().skip(used).any(|run| run.count.get() != 0 || run.first.get() != 0) {
            return None;
        }
        let runs: Vec<Run> = raw
            .runs
            .iter()
            .take(used)
            .map(|run| Run { first: run.first.get(), count: u64::from(run.count.get()) })
            .collect();
        let total: u64 = runs.iter().map(|run| run.count).sum();
        let fits = runs.iter().all(|run| run.first < u64::MAX >> 16);
        if !fits || shape.units(usize::from(raw.column)) != Some(total) {
            return None;
        }
        Some(Self {
            pool: PoolId(raw.pool),
            disk: DiskId(raw.disk),
            space: SpaceId(raw.space.get()),
            row_index: raw.row_index.get(),
            row: RowId(raw.row.get()),
            epoch: Epoch(raw.epoch.get()),
            shape,
            column: raw.column,
            runs,
        })
    }

    /// The allocation unit that the header itself is in: the last of the slab.
    #[must_use]
    pub fn own_unit(&self) -> u64 {
        self.runs.last().map_or(0, |run| run.first + run.count - 1)
    }
}

/// The generation of a slot of a table page, if it is sound and of this row, column and index.
#[must_use]
pub fn generation_of(slot: &[u8], pool: PoolId, row: RowId, column: usize, index: usize) -> Option<u64> {
    let name = PageName { pool, row, column: u16::try_from(column).ok()?, index: u32::try_from(index).ok()? };
    let generation = Page::generation_in(slot, name)?;
    // A slot has those generations that belong there; which slot it is, the caller knows.
    Some(generation)
}

/// A slab of a row that is put together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundSlab {
    /// The disk, by its place among the members.
    pub disk: DiskSlot,
    /// The column that it serves.
    pub column: usize,
    /// Its allocation units.
    pub runs: Vec<Run>,
    /// It misses what was written since this epoch, or may.
    pub stale: Option<Epoch>,
}

/// Which of the two layouts that a space may have at once a row has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RowLayout {
    /// The space's own.
    Own,
    /// The other one ([`space_values`]).
    Other,
}

/// The value of the key of a place in which a row stands.
#[must_use]
pub fn place_value(row: RowId) -> Vec<u8> {
    encode_place(row)
}

/// The row that stands in a place, by the value of its key; `None` for what no version writes.
#[must_use]
pub fn parse_place(value: &[u8]) -> Option<RowId> {
    row::parse_place(value).ok()
}

/// A row's value that says that its tables are on its slabs; `None` if it is no row.
#[must_use]
pub fn as_formatted(value: &[u8]) -> Option<Vec<u8>> {
    let mut record = RowRecord::parse(value).ok()?;
    record.formatted = true;
    Some(record.encode())
}

/// Whether a row's value says that its tables are on its slabs; `None` if it is no row.
#[must_use]
pub fn is_formatted(value: &[u8]) -> Option<bool> {
    RowRecord::parse(value).ok().map(|record| record.formatted)
}

/// The space in the value of its key, whole or not.
#[must_use]
pub fn parse_space(value: &[u8]) -> Option<SpaceSpec> {
    SpaceSpec::parse(value).map(|(spec, ..)| spec)
}

/// The values of the keys of a space: its own, and those of the hidden spaces of the write caches that it needs. `other` is what
/// rows have that are called [`RowLayout::Other`].
#[must_use]
pub fn space_values(id: SpaceId, spec: &SpaceSpec, other: Option<&SpaceSpec>) -> Vec<(SpaceId, Vec<u8>)> {
    let layouts = Layouts { now: 0, before: other.map(SpaceSpec::layout) };
    let mut values = vec![(id, spec.encode(Standing::Whole, layouts))];
    for redundancy in [Some(spec), other].into_iter().flatten().filter_map(SpaceSpec::write_cache) {
        // What lay in it is not to be found without the log, so any size will do.
        let cache = cache_spec(redundancy, Bytes::gib(1));
        values.push((cache_id(redundancy), cache.encode(Standing::Whole, Layouts::default())));
    }
    values
}

/// A space of this resiliency as it is without the log: what lies in a write cache is not to be found, so a space needs none
/// unless no other can be.
#[must_use]
pub fn without_cache(mut spec: SpaceSpec) -> SpaceSpec {
    spec.integrity = match spec.resiliency {
        Resiliency::Parity { .. } => Integrity::Strict,
        Resiliency::Simple | Resiliency::Span | Resiliency::Mirror { .. } => Integrity::Relaxed,
    };
    spec
}

/// What a space is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// People's.
    People,
    /// Shadow rows of a space.
    ShadowRows(SpaceId),
    /// Conversion shadows of rows of a space that is converted.
    ConversionShadows(SpaceId),
    /// The write cache of spaces that survive the loss of so many disks.
    WriteCache(u8),
}

/// What the space with this id is for.
#[must_use]
pub fn purpose_of(id: SpaceId) -> Purpose {
    if is_of_shadows(id) {
        return Purpose::ShadowRows(seen_as(id));
    }
    if is_of_conversion_shadows(id) {
        return Purpose::ConversionShadows(seen_as(id));
    }
    match id.0.checked_sub(cache_id(0).0).and_then(|redundancy| u8::try_from(redundancy).ok()) {
        Some(redundancy) => Purpose::WriteCache(redundancy),
        None => Purpose::People,
    }
}

/// What stands in a slot of a table, for whoever prints it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TablePage {
    /// The pool.
    pub pool: PoolId,
    /// The row.
    pub row: RowId,
    /// Which column.
    pub column: u16,
    /// Which page of it.
    pub index: u32,
    /// Counts the writes of the page.
    pub generation: u64,
    /// Whether its checksum is right.
    pub is_sound: bool,
    /// State, checksum and stamp of each block.
    pub entries: Vec<(u8, u32, u32)>,
}

impl TablePage {
    /// What stands in a slot; `None` if it does not begin as a page does.
    #[must_use]
    pub fn parse(slot: &[u8]) -> Option<Self> {
        let raw = RawPage::ref_from_bytes(slot).ok().filter(|raw| raw.magic == PAGE_MAGIC)?;
        let mut bare = RawPage::new_zeroed();
        bare.as_mut_bytes().copy_from_slice(raw.as_bytes());
        bare.checksum = 0.into();
        let stamp = |[a, b, c]: [u8; 3]| u32::from_le_bytes([a, b, c, 0]);
        let entries = raw.entries.iter();
        Some(Self {
            pool: PoolId(raw.pool),
            row: RowId(raw.row.get()),
            column: raw.column.get(),
            index: raw.index.get(),
            generation: raw.generation.get(),
            is_sound: crc64(bare.as_bytes()) == raw.checksum.get() && raw.version.get() == VERSION,
            entries: entries.map(|entry| (entry.state, entry.checksum.get(), stamp(entry.stamp))).collect(),
        })
    }
}

/// What the map says of a row, for whoever prints it, looks for its slabs, or puts it together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MappedRow {
    /// Its incarnation.
    pub id: RowId,
    /// The space whose place names it.
    pub space: SpaceId,
    /// Index of that place.
    pub index: u64,
    /// Whether its tables are on its slabs.
    pub is_formatted: bool,
    /// Which of the layouts of its space it has.
    pub layout: RowLayout,
    /// How it survives the loss of disks.
    pub resiliency: Resiliency,
    /// How its flushed content is written over.
    pub integrity: Integrity,
    /// Its shape.
    pub shape: RowShape,
    /// Its slabs.
    pub slabs: Vec<FoundSlab>,
}

impl MappedRow {
    /// The row in the value of its key; `None` for what no version writes.
    #[must_use]
    pub fn parse(value: &[u8]) -> Option<Self> {
        let record = RowRecord::parse(value).ok()?;
        let shape = RowShape {
            row: record.bytes(),
            interleave: record.shape.interleave(),
            columns: u8::try_from(record.shape.data_columns()).ok()?,
            parity: u8::try_from(record.shape.parity_columns()).ok()?,
        };
        let slabs = record.columns.iter().enumerate();
        let slabs = slabs.flat_map(|(column, slabs)| slabs.iter().map(move |slab| (column, slab)));
        let slabs = slabs.map(|(column, slab)| {
            let runs = slab.runs.clone();
            FoundSlab { disk: slab.disk, column, runs, stale: slab.stale }
        });
        Some(Self {
            id: record.id,
            space: record.place.space,
            index: record.place.index,
            is_formatted: record.formatted,
            layout: if record.laid.layout == 0 { RowLayout::Own } else { RowLayout::Other },
            resiliency: record.laid.resiliency,
            integrity: record.laid.integrity,
            shape,
            slabs: slabs.collect(),
        })
    }

    /// The value of its key; `None` if no map can have such a row.
    #[must_use]
    pub fn value(&self) -> Option<Vec<u8>> {
        let shape = self.shape.shape()?;
        let mut columns = vec![Slabs::new(); shape.columns()];
        for slab in &self.slabs {
            let of = Slab { disk: slab.disk, runs: slab.runs.clone(), stale: slab.stale };
            columns.get_mut(slab.column)?.push(of);
        }
        let laid = RowLaid {
            layout: u8::from(self.layout == RowLayout::Other),
            resiliency: self.resiliency,
            integrity: self.integrity,
        };
        let place = RowPlace { space: self.space, index: self.index };
        let record = RowRecord { id: self.id, place, formatted: self.is_formatted, laid, shape, columns };
        let value = record.encode();
        RowRecord::parse(&value).ok()?;
        Some(value)
    }
}

/// An entry of a record of blocks, for whoever prints it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlockEntry {
    /// What it is about, in one word.
    pub what: &'static str,
    /// The row.
    pub row: RowId,
    /// The row whose blocks it is about, where it says so of a shadow row.
    pub owner: Option<RowId>,
    /// The column, where it has one.
    pub column: u8,
    /// First block, and how many.
    pub first: u32,
    /// How many.
    pub count: u32,
    /// Bits that say how it counts.
    pub intent: u8,
    /// Low bits of the generation of the page.
    pub generation: u16,
    /// The low bits of the epoch.
    pub stamp: u32,
    /// Bytes that follow its head of [`BLOCK_ENTRY_BYTES`].
    pub tail_bytes: usize,
}

/// Bytes of the head of an entry of a record of blocks.
pub const BLOCK_ENTRY_BYTES: usize = size_of::<RawBlockExtent>();

/// The entries of a record of blocks, as far as they can be told apart, and whether that is to its end.
#[must_use]
pub fn block_entries(mut body: &[u8]) -> (Vec<BlockEntry>, bool) {
    use crate::format::raw::{
        RECORD_CACHED, RECORD_DISCARDED, RECORD_DONE, RECORD_REDO, RawMapping, RawOwner, RawRedo,
        STATE_DAMAGED, STATE_NEVER, STATE_VALID,
    };
    let mut entries = Vec::new();
    while let Ok((raw, rest)) = RawBlockExtent::ref_from_prefix(body) {
        let count = usize::try_from(raw.count.get()).unwrap_or(usize::MAX);
        let is_redo = matches!(raw.state, RECORD_REDO | RECORD_DONE);
        let owner = RawOwner::read_from_prefix(rest).ok().filter(|_| is_redo && raw.column == 1);
        if is_redo && (raw.column > 1 || owner.is_some() != (raw.column == 1)) {
            return (entries, false);
        }
        let owner = owner.map(|(raw, _)| RowId(raw.owner.get()));
        let of_owner = if owner.is_some() { size_of::<RawOwner>() } else { 0 };
        let (what, tail) = match raw.state {
            STATE_NEVER => ("never_written", Some(0)),
            STATE_VALID => ("valid", count.checked_mul(4)),
            STATE_DAMAGED => ("damaged", Some(0)),
            RECORD_CACHED => {
                ("cached", count.checked_mul(4).and_then(|sums| sums.checked_add(size_of::<RawMapping>())))
            }
            RECORD_DISCARDED => ("discarded", Some(size_of::<RawMapping>())),
            RECORD_REDO => {
                ("redo", count.checked_mul(size_of::<RawRedo>()).and_then(|tail| tail.checked_add(of_owner)))
            }
            RECORD_DONE => ("done", Some(of_owner)),
            _ => return (entries, false),
        };
        let Some((tail, after)) = tail.and_then(|tail| rest.split_at_checked(tail)) else {
            return (entries, false);
        };
        let [a, b, c] = raw.stamp;
        entries.push(BlockEntry {
            what,
            row: RowId(raw.row.get()),
            owner,
            column: raw.column,
            first: raw.first.get(),
            count: raw.count.get(),
            intent: raw.intent,
            generation: raw.generation.get(),
            stamp: u32::from_le_bytes([a, b, c, 0]),
            tail_bytes: tail.len(),
        });
        body = after;
    }
    (entries, body.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SHAPE: RowShape =
        RowShape { row: Bytes::mib(1), interleave: Bytes::kib(64), columns: 3, parity: 1 };

    fn header() -> RawSlabHeader {
        let mut raw = RawSlabHeader::new_zeroed();
        raw.magic = SLAB_MAGIC;
        raw.version = VERSION.into();
        raw.row_length = SHAPE.row.0.into();
        raw.interleave = u32::try_from(SHAPE.interleave.0).unwrap().into();
        raw.columns = SHAPE.columns;
        raw.parity = SHAPE.parity;
        raw.column = 2;
        let units = u32::try_from(SHAPE.units(2).unwrap()).unwrap();
        raw.runs[0] = crate::format::raw::RawRun { first: 7.into(), count: units.into() };
        seal(&mut raw);
        raw
    }

    fn seal(raw: &mut RawSlabHeader) {
        raw.checksum = 0.into();
        raw.checksum = crc64(raw.as_bytes()).into();
    }

    #[test]
    fn a_header_is_believed_only_as_a_whole() {
        let sound = header();
        let read = SlabHeader::parse(sound.as_bytes()).unwrap();
        assert_eq!((read.shape, read.column), (SHAPE, 2));
        assert_eq!(read.own_unit(), 7 + SHAPE.units(2).unwrap() - 1);
        let mut longer = sound;
        longer.runs[0].count = (longer.runs[0].count.get() + 1).into();
        seal(&mut longer);
        assert_eq!(SlabHeader::parse(longer.as_bytes()), None, "a slab that is longer than its column");
    }

    proptest! {
        #[test]
        fn no_turned_bit_of_a_header_is_believed(bit in 0usize..4096 * 8) {
            let mut bytes = header().as_bytes().to_vec();
            bytes[bit / 8] ^= 1 << (bit % 8);
            prop_assert_eq!(SlabHeader::parse(&bytes), None);
        }

        // Somebody can seal anything: that is an error or a value, never a panic, and a value can be asked for all that it has.
        #[test]
        fn sealed_nonsense_does_no_harm(edits in proptest::collection::vec((0usize..137, any::<u8>()), 1..30)) {
            let mut raw = header();
            for (at, value) in edits {
                raw.as_mut_bytes()[at] = value;
            }
            raw.magic = SLAB_MAGIC;
            seal(&mut raw);
            if let Some(read) = SlabHeader::parse(raw.as_bytes()) {
                let _ = (read.own_unit(), read.shape.pages().len());
                let slab = FoundSlab { disk: DiskSlot(1), column: usize::from(read.column), runs: read.runs, stale: None };
                let row = MappedRow {
                    id: read.row,
                    space: read.space,
                    index: read.row_index,
                    is_formatted: true,
                    layout: RowLayout::Own,
                    resiliency: Resiliency::Simple,
                    integrity: Integrity::Relaxed,
                    shape: read.shape,
                    slabs: vec![slab],
                };
                let _ = row.value();
            }
        }

        #[test]
        fn any_bytes_can_be_shown(bytes in proptest::collection::vec(any::<u8>(), 0..5000)) {
            let _ = (TablePage::parse(&bytes), block_entries(&bytes), parse_space(&bytes));
            let _ = (MappedRow::parse(&bytes), as_formatted(&bytes));
        }
    }

    #[test]
    fn a_page_is_about_blocks_that_no_other_page_is_about() {
        let mut seen = std::collections::BTreeSet::new();
        for page in SHAPE.pages().iter().filter(|page| page.holder == page.column) {
            for block in SHAPE.blocks_of(page.column, page.index).into_iter().flatten() {
                assert!(seen.insert(block), "block {block} is in two pages");
            }
        }
        assert_eq!(seen.len() as u64, SHAPE.row.0 / 4096);
    }
}
