//! What stands beside data: headers of slabs, pages of tables, and the values of the map for spaces and rows, changes of the map
//! and records of blocks, each by itself.
//!
//! Oracle: this file writes headers, pages, rows and changes from `docs/format` alone. What the engine reads of them is written
//! again, to the same bytes; of spaces, what is read of what the engine writes is what was read before.

use dolmen_pool::{RUNS_MAX, Run, decode_edits};
use dolmen_space::salvage::{
    BLOCK_ENTRY_BYTES, FoundSlab, MappedRow, RowLayout, RowShape, SlabHeader, TablePage, as_formatted,
    block_entries, generation_of, is_formatted, parse_space, space_values,
};
use dolmen_space::{Integrity, Resiliency, SpaceSpec};
use dolmen_units::{Bytes, DiskId, DiskSlot, Epoch, PoolId, RowId, SpaceId};

use crate::labels::first_difference;
use crate::script::Script;
use crate::{Reached, edits, seal};

const POOL: PoolId = PoolId([7; 16]);
const ROW: RowId = RowId(5);
const BLOCK: usize = 4096;
/// Entries of a page of a table.
const ENTRIES: usize = 504;
const NAME: &str = "data";

fn shape_of(script: &mut Script<'_>) -> RowShape {
    let row = script.pick(&[Bytes::mib(1), Bytes::mib(4), Bytes::mib(8), Bytes::mib(64)]);
    let interleave = script.pick(&[Bytes::kib(16), Bytes::kib(64), Bytes::kib(256), Bytes::mib(1)]);
    RowShape { row, interleave, columns: 1 + script.below(12) as u8, parity: script.below(3) as u8 }
}

fn run_bytes(run: &Run) -> [u8; 12] {
    let mut bytes = [0; 12];
    seal::put(&mut bytes, 0, &run.first.to_le_bytes());
    seal::put(&mut bytes, 8, &(run.count as u32).to_le_bytes());
    bytes
}

/// A header of a slab, as the document has it.
fn header_bytes(header: &SlabHeader) -> Vec<u8> {
    let mut bytes = vec![0; BLOCK];
    seal::put(&mut bytes, 0, b"DOLMENSL");
    seal::put(&mut bytes, 8, &header.pool.0);
    seal::put(&mut bytes, 24, &header.disk.0);
    let numbers = [header.space.0, header.row_index, header.row.0, header.epoch.0, header.shape.row.0];
    for (place, number) in numbers.into_iter().enumerate() {
        seal::put(&mut bytes, 40 + 8 * place, &number.to_le_bytes());
    }
    seal::put(&mut bytes, 80, &(header.shape.interleave.0 as u32).to_le_bytes());
    seal::put(&mut bytes, 84, &[1, 0, header.column, header.shape.columns]);
    for (place, run) in header.runs.iter().enumerate() {
        seal::put(&mut bytes, 88 + 12 * place, &run_bytes(run));
    }
    bytes[136] = header.shape.parity;
    seal::slab(&mut bytes);
    bytes
}

fn header(script: &mut Script<'_>, shape: u8) -> Reached {
    let of = shape_of(script);
    let column = script.index(of.column_count());
    let units = of.units(column).unwrap_or(1);
    let cut = 1 + script.below(units);
    let parts = [Run { first: 100, count: cut }, Run { first: 900_000, count: units - cut.min(units) }];
    let sound = SlabHeader {
        pool: POOL,
        disk: DiskId([2; 16]),
        space: SpaceId(1),
        row_index: 4,
        row: ROW,
        epoch: Epoch(3),
        shape: of,
        column: column as u8,
        runs: parts.into_iter().filter(|run| run.count > 0).collect(),
    };
    let mut bytes = header_bytes(&sound);
    if of.units(column).is_some() {
        assert_eq!(SlabHeader::parse(&bytes).as_ref(), Some(&sound), "a header that the document describes");
    }
    edits::edit(script, &mut bytes);
    if shape & 8 != 0 {
        seal::slab(&mut bytes);
    }
    let Some(read) = SlabHeader::parse(&bytes) else { return Reached::Refused };
    assert_eq!(first_difference(&header_bytes(&read), &bytes), None, "a field of a header was passed over");
    assert!(!read.runs.is_empty() && read.runs.len() <= RUNS_MAX);
    let total: u64 = read.runs.iter().map(|run| run.count).sum();
    assert_eq!(Some(total), read.shape.units(usize::from(read.column)), "a slab is as long as its column");
    let last = read.runs.last().map_or(0, |run| run.first + run.count - 1);
    assert_eq!(read.own_unit(), last, "a header is in the last allocation unit of its slab");
    covers_each_block_once(read.shape);
    Reached::Held
}

/// Every block of a row is in one page of one table, whatever shape a header gave it.
fn covers_each_block_once(shape: RowShape) {
    let own = shape.pages().into_iter().filter(|page| page.holder == page.column);
    let ranges = own.flat_map(|page| shape.blocks_of(page.column, page.index));
    let mut ranges: Vec<(u64, u64)> = ranges.map(|range| (range.start, range.end)).collect();
    ranges.sort_unstable();
    let end = ranges.into_iter().fold(0, |end, (first, last)| {
        assert_eq!(first, end, "a block of {shape:?} is in two pages, or in none");
        last
    });
    assert_eq!(end, shape.row.0 / BLOCK as u64, "{shape:?}");
}

/// A page of a table, as the document has it.
fn page_bytes(page: &TablePage) -> Vec<u8> {
    let mut bytes = vec![0; BLOCK];
    seal::put(&mut bytes, 0, b"DTAB\x01\0");
    seal::put(&mut bytes, 6, &page.column.to_le_bytes());
    seal::put(&mut bytes, 8, &page.pool.0);
    seal::put(&mut bytes, 24, &page.row.0.to_le_bytes());
    seal::put(&mut bytes, 32, &page.generation.to_le_bytes());
    seal::put(&mut bytes, 40, &page.index.to_le_bytes());
    for (place, (state, checksum, stamp)) in page.entries.iter().enumerate() {
        let at = 64 + 8 * place;
        seal::put(&mut bytes, at, &checksum.to_le_bytes());
        seal::put(&mut bytes, at + 4, &stamp.to_le_bytes()[..3]);
        bytes[at + 7] = *state;
    }
    seal::table(&mut bytes);
    bytes
}

fn table(script: &mut Script<'_>, shape: u8) -> Reached {
    let entries = (0..ENTRIES as u32).map(|block| ((block % 3) as u8, block * 7, block % 5)).collect();
    let sound =
        TablePage { pool: POOL, row: ROW, column: 1, index: 2, generation: 9, is_sound: true, entries };
    let mut bytes = page_bytes(&sound);
    assert_eq!(generation_of(&bytes, POOL, ROW, 1, 2), Some(9), "a page that the document describes");
    edits::edit(script, &mut bytes);
    if shape & 8 != 0 {
        seal::table(&mut bytes);
    }
    let Some(read) = TablePage::parse(&bytes) else { return Reached::Refused };
    let (column, index) = (usize::from(read.column), read.index as usize);
    let believed = generation_of(&bytes, read.pool, read.row, column, index);
    let is_written_so = page_bytes(&read) == bytes;
    assert_eq!(believed.is_some(), is_written_so, "a page is believed if no field of it is passed over");
    assert_eq!(believed, believed.map(|_| read.generation));
    assert!(!is_written_so || read.is_sound);
    for other in [RowId(read.row.0 ^ 1), RowId(read.row.0 ^ 1 << 40)] {
        assert_eq!(generation_of(&bytes, read.pool, other, column, index), None, "a page of another row");
    }
    if believed.is_some() { Reached::Held } else { Reached::Refused }
}

fn row_bytes(row: &MappedRow) -> Vec<u8> {
    let (layout, copies) = match row.resiliency {
        Resiliency::Simple => (1, 1),
        Resiliency::Span => (2, 1),
        Resiliency::Mirror { copies } => (3, copies),
        Resiliency::Parity { .. } => (4, 1),
    };
    let integrity = if row.integrity == Integrity::Relaxed { 1 } else { 2 };
    let interleave = row.shape.interleave.0.trailing_zeros() as u8;
    let round = u8::from(row.layout == RowLayout::Other);
    let mut bytes = vec![2, 0, u8::from(row.is_formatted), layout, copies, row.shape.columns];
    bytes.extend([row.shape.parity, integrity, interleave, round, 0, 0, 1, 0, 0, 0]);
    for number in [row.id.0, row.space.0, row.index, row.shape.row.0 / BLOCK as u64] {
        bytes.extend(number.to_le_bytes());
    }
    for slab in &row.slabs {
        bytes.extend(slab.disk.0.to_le_bytes());
        bytes.extend([slab.column as u8, slab.runs.len() as u8]);
        bytes.extend(u32::from(slab.stale.is_some()).to_le_bytes());
        bytes.extend(slab.stale.unwrap_or_default().0.to_le_bytes());
        slab.runs.iter().for_each(|run| bytes.extend(run_bytes(run)));
    }
    bytes
}

fn row(script: &mut Script<'_>) -> Reached {
    let shape = shape_of(script);
    let copies = 1 + script.below(3) as u16;
    let slabs = (0..shape.column_count()).flat_map(|column| {
        let units = shape.units(column).unwrap_or(1);
        (0..copies).map(move |copy| FoundSlab {
            disk: DiskSlot(column as u16 * 4 + copy),
            column,
            runs: vec![Run { first: 1000 * u64::from(copy), count: units }],
            stale: (copy == 2).then_some(Epoch(9)),
        })
    });
    let resiliency = match (shape.parity, copies) {
        (0, 1) => Resiliency::Simple,
        (0, copies) => Resiliency::Mirror { copies: copies as u8 },
        (parity, _) => Resiliency::Parity { parity },
    };
    let mapped = MappedRow {
        id: ROW,
        space: SpaceId(1),
        index: 4,
        is_formatted: true,
        layout: RowLayout::Own,
        resiliency,
        integrity: Integrity::usual(resiliency),
        shape,
        slabs: slabs.collect(),
    };
    let mut bytes = row_bytes(&mapped);
    if shape.units(0).is_some() {
        assert_eq!(MappedRow::parse(&bytes).as_ref(), Some(&mapped), "a row as documented");
        assert_eq!(mapped.value().as_ref(), Some(&bytes), "a row is written as documented");
    }
    edits::edit(script, &mut bytes);
    if script.seldom() {
        bytes.truncate(script.index(bytes.len()));
    }
    let Some(read) = MappedRow::parse(&bytes) else {
        assert_eq!(is_formatted(&bytes), None);
        return Reached::Refused;
    };
    // Slabs are told in the order of their columns, in which they are written.
    let mut again = row_bytes(&read);
    if again.len() == bytes.len() && again != bytes {
        let sorted = MappedRow::parse(&again);
        assert_eq!(sorted.as_ref(), Some(&read), "the order of slabs says nothing but their order");
        again.clone_from(&bytes);
    }
    assert_eq!(first_difference(&again, &bytes), None, "a field of a row was passed over");
    for slab in &read.slabs {
        let total: u64 = slab.runs.iter().map(|run| run.count).sum();
        assert_eq!(Some(total), read.shape.units(slab.column), "a slab is as long as its column");
    }
    let mut formatted = as_formatted(&bytes).unwrap_or_default();
    assert_eq!(is_formatted(&formatted), Some(true));
    formatted[2] = bytes[2];
    assert_eq!(formatted.len(), bytes.len());
    Reached::Held
}

fn space(script: &mut Script<'_>) -> Reached {
    let resiliency = script.pick(&[
        Resiliency::Simple,
        Resiliency::Mirror { copies: 3 },
        Resiliency::Parity { parity: 2 },
        Resiliency::Span,
    ]);
    let mut spec = SpaceSpec::usual(NAME.parse().unwrap(), Bytes::gib(1), resiliency);
    spec.integrity = if script.seldom() { Integrity::Strict } else { spec.integrity };
    let made = space_values(SpaceId(1), &spec, None).into_iter().next().map(|(_, value)| value);
    let mut bytes = made.unwrap_or_default();
    edits::edit(script, &mut bytes);
    if script.seldom() {
        bytes.truncate(script.index(bytes.len() + 1));
    }
    let Some(read) = parse_space(&bytes) else { return Reached::Refused };
    let again = space_values(SpaceId(1), &read, None).into_iter().next().map(|(_, value)| value);
    let again = again.and_then(|value| parse_space(&value));
    assert_eq!(again.as_ref(), Some(&read), "a space is read as it is written");
    assert!(read.size.0.is_multiple_of(4096), "{read:?}");
    Reached::Held
}

/// A change of the map, as the document has it.
fn change(script: &mut Script<'_>) -> Reached {
    let body = script.rest();
    let Some(edits) = decode_edits(body) else { return Reached::Refused };
    let mut again = Vec::new();
    for (key, value) in &edits {
        again.extend(key.0);
        again.extend(value.as_ref().map_or(u16::MAX, |value| value.len() as u16).to_le_bytes());
        again.extend(value.iter().flatten());
    }
    assert_eq!(first_difference(&again, body), None, "an edit was passed over");
    Reached::Held
}

/// A record of blocks: entries are told apart by their heads and what these say that follows.
fn blocks(script: &mut Script<'_>) -> Reached {
    let body = script.rest();
    let (entries, is_whole) = block_entries(body);
    let reported: usize = entries.iter().map(|entry| BLOCK_ENTRY_BYTES + entry.tail_bytes).sum();
    assert!(reported <= body.len(), "entries of {reported} bytes in a record of {}", body.len());
    assert_eq!(reported == body.len(), is_whole || reported == body.len(), "a record to its end");
    for entry in &entries {
        let count = entry.count as usize;
        let owner = if entry.owner.is_some() { 8 } else { 0 };
        let tail = match entry.what {
            "valid" => count * 4,
            "cached" => 20 + count * 4,
            "discarded" => 20,
            "redo" => owner + count * 28,
            "done" => owner,
            _ => 0,
        };
        assert_eq!(entry.tail_bytes, tail, "{entry:?}");
    }
    if is_whole && !entries.is_empty() { Reached::Held } else { Reached::Refused }
}

/// One input.
pub(crate) fn run(input: &[u8]) -> Reached {
    let mut script = Script::new(input);
    let shape = script.byte();
    match shape % 8 {
        0 | 6 => header(&mut script, shape),
        1 | 7 => table(&mut script, shape),
        2 => row(&mut script),
        3 => space(&mut script),
        4 => change(&mut script),
        _ => blocks(&mut script),
    }
}

/// Inputs to begin with.
pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let mut seeds: Vec<Vec<u8>> = vec![
        vec![8, 0, 1, 2, 1, 0, 9],
        vec![9],
        vec![2, 0, 1, 2, 1, 2],
        vec![3, 1, 0],
        [&[4][..], &[5; 24], &[2, 0, 1, 2], &[6; 24], &[255, 255]].concat(),
        [&[5][..], &[1; 24], &[0; 4], &[2, 0, 0, 0], &[0; 3], &[1, 0, 0, 0, 0], &[7; 8]].concat(),
        [&[5][..], &[1; 24], &[0; 4], &[1, 0, 0, 0], &[0; 3], &[3, 0, 0, 0, 0], &[7; 28]].concat(),
    ];
    for at in (0..140u8).step_by(4) {
        seeds.push(vec![8, 0, 1, 2, 1, 0, 9, 3, at, 0, at % 24]);
        seeds.push(vec![9, 3, at, 0, at % 24]);
        seeds.push(vec![2, 0, 1, 2, 1, 2, 1, at, 0, at]);
        seeds.push(vec![3, 1, 0, 3, at, 0, at % 24]);
    }
    seeds
}
