//! Mixed spaces: hot rows as a mirror of three, the others as dual parity, both on the same disks.
//!
//! The two kinds are placed in turn, so that at every moment their shares differ from what was asked for by one
//! placement at most. As in `placement`, many rows alike are placed at once while much is left, and single ones at the
//! end: a row that fits disks with so many times less room gives the choice for all of them. Slabs keep their length,
//! because the width of a row follows from it.

use dolmen_placement::{Offer, Placement, Placer, Request};
use dolmen_units::{ALLOCATION_UNIT_BYTES, Bytes};

use crate::capacity::{Fill, request, units_for};
use crate::disks::{Disk, Disks};
use crate::layout::{Code, MIXED_COPIES};
use crate::wide::column_bytes;

pub(crate) use crate::layout::MIXED_PARITY as PARITY;

/// A placement of several rows at once takes at most so small a part of what is left.
const PARTS: u64 = 256;

/// One of the two kinds of rows.
struct Part {
    code: Code,
    request: Request,
    rows: u64,
}

impl Part {
    fn new(code: Code, row: Bytes) -> Self {
        let Some(request) = request(code, row) else { panic!("placement knows mirrors and parity") };
        Self { code, request, rows: 0 }
    }

    /// A choice that so many rows can share.
    fn place(&self, offers: &[Offer], rows: u64, turn: u64) -> Option<Placement> {
        let share =
            |offer: &Offer| Offer { free_units: offer.claimable_units() / rows, reserve_units: 0, ..*offer };
        let shares: Vec<Offer> = offers.iter().map(share).collect();
        Placer::new(self.request, units_for(self.code)).place(&shares, turn).ok()
    }

    /// Bytes of copies or parity in one row so placed.
    fn redundancy(&self, placement: &Placement) -> u64 {
        let row = self.request.row();
        match self.code {
            Code::Parity { parity } => {
                u64::from(parity) * column_bytes(self.code, row, placement.columns - parity)
            }
            Code::Simple | Code::Span | Code::Mirror { .. } | Code::Wide { .. } => {
                row.0 * u64::from(self.code.redundancy())
            }
        }
    }
}

/// What such rows take of the disks.
pub(crate) fn fill(mirror_percent: u32, disks: &Disks, row: Bytes) -> Fill {
    let mut mirror = Part::new(Code::Mirror { copies: MIXED_COPIES }, row);
    let mut parity = Part::new(Code::Parity { parity: PARITY }, row);
    let (hot, cold) = (u64::from(mirror_percent), u64::from(100 - mirror_percent));
    let mut offers = disks.offers();
    let mut redundancy = 0;
    let mut at_once_max = u64::MAX;
    for turn in 0u64.. {
        let at_once = at_once(&offers, row).min(at_once_max);
        let part = if mirror.rows * cold <= parity.rows * hot { &mut mirror } else { &mut parity };
        match part.place(&offers, at_once, turn) {
            Some(placement) => {
                redundancy += part.redundancy(&placement) * at_once;
                part.rows += at_once;
                take(&mut offers, &placement, at_once);
            }
            None if at_once > 1 => at_once_max = at_once / 2,
            None => break,
        }
    }
    let left = |(offer, disk): (&Offer, &Disk)| {
        (offer.free_units * ALLOCATION_UNIT_BYTES).saturating_sub(disk.cut.reserve_bytes)
    };
    let left = offers.iter().zip(disks.list()).map(left).collect();
    Fill { row: row.0, rows: mirror.rows + parity.rows, redundancy, left, ..Fill::default() }
}

/// A power of two, so that smaller numbers of rows level what larger ones left.
fn at_once(offers: &[Offer], row: Bytes) -> u64 {
    let free: u64 = offers.iter().map(Offer::claimable_units).sum();
    let rows = free / (row.0 / ALLOCATION_UNIT_BYTES).max(1) / PARTS;
    if rows == 0 { 1 } else { 1 << rows.ilog2() }
}

fn take(offers: &mut [Offer], placement: &Placement, rows: u64) {
    for slab in &placement.slabs {
        if let Some(offer) = offers.iter_mut().find(|offer| offer.slot == slab.slot) {
            offer.free_units -= slab.units * rows;
        }
    }
}
