//! What a set of disks holds in rows of one layout, and what the rest of their bytes is for.

use dolmen_placement::{ONE_BY_ONE_MAX, Placement, Placer, Request, Width};
use dolmen_space::{INTERLEAVE_BYTES, LARGE_ROW_BYTES, LARGE_SPACE_BYTES, ROW_BYTES};
use dolmen_units::{Bytes, GRAIN_BYTES};
use serde::Serialize;

use crate::disks::{Disks, slab_grains};
use crate::error::Problem;
use crate::layout::{Code, Layout};
use crate::{mixed, nested, wide};

/// Bytes written to one column before the next where parity protects: whole stripes stay short.
const PARITY_INTERLEAVE_BYTES: Bytes = Bytes::kib(64);

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
    /// Claimable bytes that are left on each disk.
    pub(crate) left: Vec<u64>,
}

impl Fill {
    fn into_room(self, disks: &Disks) -> Room {
        let sum = |of: &dyn Fn(&crate::disks::Disk) -> u64| disks.list().iter().map(of).sum::<u64>();
        let stranded: u64 = self.left.iter().sum();
        let slabs = sum(&|disk| disk.claimable_bytes()) - stranded;
        let usable = self.rows * self.row;
        assert!(slabs >= usable + self.redundancy, "slabs hold what is in them");
        Room {
            row_bytes: self.row,
            rows: self.rows,
            usable_bytes: usable,
            redundancy_bytes: self.redundancy,
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
    rows_bound(code, disks, row.or_usual())
}

/// Rows of one code that the disks hold at most.
pub(crate) fn rows_bound(code: Code, disks: &Disks, row: Bytes) -> u64 {
    match request(code, row) {
        Some(request) => Placer::new(request, slab_grains).bound(&disks.offers()).data.0 / row.0,
        None => wide::fill(code, disks, row).rows,
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
        Layout::Plain(code) => fill_plain(code, disks, row),
        Layout::Mixed { mirror_percent } => mixed::fill(mirror_percent, disks, row),
        Layout::Nested { copies, inner } => nested::fill(copies, inner, disks, row),
    }
}

/// What one code takes of the disks.
pub(crate) fn fill_plain(code: Code, disks: &Disks, row: Bytes) -> Fill {
    let Some(request) = request(code, row) else { return wide::fill(code, disks, row) };
    let capacity = Placer::new(request, slab_grains).usable(&disks.offers());
    Fill {
        row: row.0,
        rows: capacity.rows,
        redundancy: capacity.redundancy.0,
        left: capacity.stranded.iter().map(|disk| disk.grains * GRAIN_BYTES).collect(),
    }
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

/// The rows of a set small enough to be placed one by one, in the order of a new pool; `None` for larger ones.
pub(crate) fn rows(code: Code, disks: &Disks, room: &Room) -> Option<Vec<Placement>> {
    let request = request(code, Bytes(room.row_bytes)).filter(|_| room.rows <= ONE_BY_ONE_MAX)?;
    let placer = Placer::new(request, slab_grains);
    let mut offers = disks.offers();
    let mut rows = Vec::new();
    for turn in 0..room.rows {
        let Ok(placement) = placer.place(&offers, turn) else { break };
        for slab in &placement.slabs {
            if let Some(offer) = offers.iter_mut().find(|offer| offer.slot == slab.slot) {
                offer.free_grains -= slab.grains;
                offer.space_rows += slab.grains;
            }
        }
        rows.push(placement);
    }
    Some(rows)
}

/// Data columns of the first row that a new pool places.
pub(crate) fn first_width(code: Code, disks: &Disks, row: Bytes) -> Option<u32> {
    if let Code::Wide { data, .. } = code {
        return Some(data);
    }
    let placement = Placer::new(request(code, row)?, slab_grains).place(&disks.offers(), 0).ok()?;
    let parity = if let Code::Parity { parity } = code { parity } else { 0 };
    Some(placement.columns - parity)
}
