//! What a set of disks holds in rows of one layout, and what the rest of their bytes is for.

use dolmen_placement::{ONE_BY_ONE_MAX, Placement, Placer, Request, Width};
use dolmen_space::{
    INTERLEAVE_BYTES, LARGE_ROW_BYTES, LARGE_SPACE_BYTES, PARITY_INTERLEAVE_BYTES, ROW_BYTES, WriteCacheRows,
    slab_units, write_cache_rows,
};
use dolmen_units::{ALLOCATION_UNIT_BYTES, Bytes};
use serde::Serialize;

use crate::disks::Disks;
use crate::error::Problem;
use crate::layout::{Code, Layout};
use crate::{mixed, nested, wide};

/// What all bytes of a disk set are for, under one layout. The fields that end in `_bytes`, without `row_bytes` and
/// `stranded`, add up to the raw size.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Room {
    /// Length of a row.
    pub row_bytes: u64,
    /// Whole rows.
    pub rows: u64,
    /// What clients can write.
    pub usable_bytes: u64,
    /// Further copies of it, or parity.
    pub redundancy_bytes: u64,
    /// The write cache that spaces with parity share, with its copies and tables.
    pub write_cache_bytes: u64,
    /// Checksums, states and headers.
    pub tables_bytes: u64,
    /// Left in pieces that no further row of this layout can use.
    pub stranded_bytes: u64,
    /// Kept for moves and repairs.
    pub reserve_bytes: u64,
    /// Labels, log and map.
    pub metadata_bytes: u64,
    /// Left empty at the end of each disk.
    pub tail_bytes: u64,
    /// What is stranded on each disk, in the order of the list.
    pub stranded: Vec<u64>,
}

impl Room {
    /// The sum of what the bytes are for.
    #[must_use]
    pub fn total_bytes(&self) -> u64 {
        self.usable_bytes
            + self.redundancy_bytes
            + self.write_cache_bytes
            + self.tables_bytes
            + self.stranded_bytes
            + self.reserve_bytes
            + self.metadata_bytes
            + self.tail_bytes
    }
}

/// What rows took of the disks.
#[derive(Debug, Clone, Default)]
pub(crate) struct Fill {
    pub(crate) row: u64,
    pub(crate) rows: u64,
    pub(crate) redundancy: u64,
    pub(crate) write_cache: u64,
    /// Claimable bytes that are left on each disk.
    pub(crate) left: Vec<u64>,
}

impl Fill {
    fn into_room(self, disks: &Disks) -> Room {
        let sum = |of: &dyn Fn(&crate::disks::Disk) -> u64| disks.list().iter().map(of).sum::<u64>();
        let stranded: u64 = self.left.iter().sum();
        let slabs = sum(&|disk| disk.claimable_bytes()) - stranded - self.write_cache;
        let usable = self.rows * self.row;
        assert!(slabs >= usable + self.redundancy, "slabs hold what is in them");
        Room {
            row_bytes: self.row,
            rows: self.rows,
            usable_bytes: usable,
            redundancy_bytes: self.redundancy,
            write_cache_bytes: self.write_cache,
            tables_bytes: slabs - usable - self.redundancy,
            stranded_bytes: stranded,
            reserve_bytes: sum(&|disk| disk.cut.reserve_bytes),
            metadata_bytes: sum(&|disk| disk.cut.metadata_bytes),
            tail_bytes: sum(&|disk| disk.cut.tail_bytes),
            stranded: self.left,
        }
    }
}

/// Length of rows: given, or that of a fixed space, which grows with it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RowLength(pub(crate) Option<Bytes>);

impl RowLength {
    pub(crate) fn or_usual(self) -> Bytes {
        self.0.unwrap_or(ROW_BYTES)
    }
}

/// What the disks hold under a layout.
pub(crate) fn room(layout: Layout, disks: &Disks, row: RowLength) -> Result<Room, Problem> {
    check(layout, disks)?;
    let small = fill(layout, disks, row.or_usual());
    // A space above the limit gets longer rows; where only the shorter ones reach it, two spaces take all the room.
    if row.0.is_none() && small.rows * small.row > LARGE_SPACE_BYTES.0 {
        let large = fill(layout, disks, LARGE_ROW_BYTES);
        if large.rows * large.row > LARGE_SPACE_BYTES.0 {
            return Ok(large.into_room(disks));
        }
    }
    Ok(small.into_room(disks))
}

/// The exact bound of what the disks hold, or of the part of a layout that needs most fault domains: quick, and in the
/// same order as what is reached but for half a per cent.
pub(crate) fn bound(layout: Layout, disks: &Disks, row: RowLength) -> u64 {
    if check(layout, disks).is_err() {
        return 0;
    }
    let code = match layout {
        Layout::Plain(code) => code,
        Layout::Mixed { .. } => Code::Parity { parity: mixed::PARITY },
        Layout::Nested { copies, inner } => {
            return nested::rows_bound(copies, inner, disks, row.or_usual());
        }
    };
    rows_bound(code, disks, row.or_usual(), claimed_first(code, disks))
}

/// Rows of one code that the disks hold at most, behind what was claimed first.
pub(crate) fn rows_bound(code: Code, disks: &Disks, row: Bytes, first: Option<WriteCacheRows>) -> u64 {
    match (request(code, row), first) {
        (None, _) => wide::fill(code, disks, row).rows,
        (Some(_), None) => 0,
        (Some(request), Some(first)) => {
            Placer::new(request, units_for(code)).bound(&first.left).data.0 / row.0
        }
    }
}

/// The rule by which a pool refuses a space before it looks for room.
fn check(layout: Layout, disks: &Disks) -> Result<(), Problem> {
    let (needed, within) = (layout.domains_min(), layout.disks_min_within());
    let groups = disks.by_domain();
    let count = |at_least: u32| {
        let is_enough = |members: &&Vec<usize>| u32::try_from(members.len()).is_ok_and(|n| n >= at_least);
        u32::try_from(groups.iter().filter(is_enough).count()).unwrap_or(u32::MAX)
    };
    if count(1) < needed {
        return Err(Problem::TooFewDomains { needed, found: count(1) });
    }
    if count(within) < needed {
        return Err(Problem::TooFewWithin { needed, disks: within, found: count(within) });
    }
    Ok(())
}

fn fill(layout: Layout, disks: &Disks, row: Bytes) -> Fill {
    match layout {
        Layout::Plain(code) => fill_plain(code, disks, row, claimed_first(code, disks)),
        Layout::Mixed { mirror_percent } => mixed::fill(mirror_percent, disks, row),
        Layout::Nested { copies, inner } => nested::fill(copies, inner, disks, row),
    }
}

/// What one code takes of the disks, behind what was claimed first.
pub(crate) fn fill_plain(code: Code, disks: &Disks, row: Bytes, first: Option<WriteCacheRows>) -> Fill {
    let Some(request) = request(code, row) else { return wide::fill(code, disks, row) };
    let Some(cache) = first else {
        let left = disks.list().iter().map(crate::disks::Disk::claimable_bytes).collect();
        return Fill { row: row.0, left, ..Fill::default() };
    };
    let capacity = Placer::new(request, units_for(code)).usable_from(&cache.left, cache.rows.len() as u64);
    let of_cache = cache.rows.iter().flat_map(|row| &row.slabs).map(|slab| slab.units).sum::<u64>();
    Fill {
        row: row.0,
        rows: capacity.rows,
        redundancy: capacity.redundancy.0,
        write_cache: of_cache * ALLOCATION_UNIT_BYTES,
        left: capacity.stranded.iter().map(|disk| disk.units * ALLOCATION_UNIT_BYTES).collect(),
    }
}

/// What is claimed before the first row of a code, and what is left then: with parity a write cache. `None` where that finds no
/// room, so that there will be no row.
fn claimed_first(code: Code, disks: &Disks) -> Option<WriteCacheRows> {
    match code {
        Code::Parity { parity } => {
            // All disks count as alike.
            let parity = u8::try_from(parity).ok()?;
            write_cache_rows(&disks.offers(), parity, disks.data_bytes(), 0, |_| true).ok()
        }
        Code::Simple | Code::Span | Code::Mirror { .. } | Code::Wide { .. } => Some(nothing_first(disks)),
    }
}

/// That nothing was claimed.
pub(crate) fn nothing_first(disks: &Disks) -> WriteCacheRows {
    WriteCacheRows { rows: Vec::new(), left: disks.offers() }
}

/// Allocation units of a slab by its bytes of data, in rows of a code.
pub(crate) fn units_for(code: Code) -> impl Fn(Bytes) -> u64 + Copy {
    slab_units(interleave(code), code.parity_columns())
}

/// What a pool asks placement for; `None` for codes that placement does not choose.
pub(crate) fn request(code: Code, row: Bytes) -> Option<Request> {
    let interleave = interleave(code);
    let request = Request::new(code.resiliency()?, Width::Auto, row, interleave);
    assert!(request.is_ok(), "a code is checked when it is read, and rows are whole interleaves");
    request.ok()
}

/// Bytes written to one column before the next.
pub(crate) fn interleave(code: Code) -> Bytes {
    match code {
        Code::Simple | Code::Span | Code::Mirror { .. } => INTERLEAVE_BYTES,
        Code::Parity { .. } | Code::Wide { .. } => PARITY_INTERLEAVE_BYTES,
    }
}

/// The rows of a set small enough to be placed one by one, in the order of a new pool, those of a write cache first; `None` for
/// larger ones.
pub(crate) fn rows(code: Code, disks: &Disks, room: &Room) -> Option<Vec<Placement>> {
    let request = request(code, Bytes(room.row_bytes)).filter(|_| room.rows <= ONE_BY_ONE_MAX)?;
    let placer = Placer::new(request, units_for(code));
    let WriteCacheRows { mut rows, left: mut offers } = claimed_first(code, disks)?;
    let first = rows.len() as u64;
    for turn in first..first + room.rows {
        let Ok(placement) = placer.place(&offers, turn) else { break };
        for slab in &placement.slabs {
            if let Some(offer) = offers.iter_mut().find(|offer| offer.slot == slab.slot) {
                offer.free_units -= slab.units;
                offer.space_rows += slab.units;
            }
        }
        rows.push(placement);
    }
    Some(rows)
}

/// Data columns of a row on disks of which nothing is claimed.
pub(crate) fn first_width(code: Code, disks: &Disks, row: Bytes) -> Option<u32> {
    if let Code::Wide { data, .. } = code {
        return Some(data);
    }
    let placer = Placer::new(request(code, row)?, units_for(code));
    let placement = placer.place(&disks.offers(), 0).ok()?;
    let parity = if let Code::Parity { parity } = code { parity } else { 0 };
    Some(placement.columns - parity)
}
