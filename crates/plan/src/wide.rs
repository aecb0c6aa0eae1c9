//! Codes of a fixed width: k data and m parity columns, one slab of a row to a fault domain.
//!
//! n rows of w = k + m slabs, each in another of the domains that hold S₁, S₂, … slabs, exist exactly when
//! Σ min(Sᵢ, n) ≥ w·n: rows are the columns of a matrix of zeros and ones whose sums are w and at most Sᵢ (Gale and
//! Ryser, 1957). The left side less the right is concave in n and 0 at n = 0, so halving finds the largest n.

use dolmen_units::{ALLOCATION_UNIT_BYTES, Bytes};

use crate::capacity::{Fill, interleave, units_for};
use crate::disks::Disks;
use crate::layout::Code;

/// The most rows of `width` slabs that domains with so many slabs each can hold.
pub(crate) fn rows_max(slabs: &[u64], width: u64) -> u64 {
    let total: u128 = slabs.iter().map(|slabs| u128::from(*slabs)).sum();
    let fits = |rows: u64| {
        let held: u128 = slabs.iter().map(|slabs| u128::from((*slabs).min(rows))).sum();
        held >= u128::from(width) * u128::from(rows)
    };
    let mut low = 0;
    let mut high = u64::try_from(total / u128::from(width.max(1))).unwrap_or(u64::MAX);
    while low < high {
        let middle = low + (high - low).div_ceil(2);
        if fits(middle) { low = middle } else { high = middle - 1 }
    }
    low
}

/// How many slabs each domain holds of so many rows, where they fit: no more than it can, nor than there are rows.
pub(crate) fn shares(slabs: &[u64], rows: u64, width: u64) -> Vec<u64> {
    let mut shares: Vec<u64> = slabs.iter().map(|slabs| (*slabs).min(rows)).collect();
    let mut beyond = shares.iter().sum::<u64>().saturating_sub(rows * width);
    for share in &mut shares {
        let dropped = beyond.min(*share);
        *share -= dropped;
        beyond -= dropped;
    }
    shares
}

/// Bytes of the longest column of a row with so many data columns.
pub(crate) fn column_bytes(code: Code, row: Bytes, data: u32) -> u64 {
    let interleave = interleave(code).0;
    (row.0 / interleave).div_ceil(u64::from(data.max(1))) * interleave
}

/// Takes `share` slabs from the disks of one domain, of each in proportion to what it holds.
fn spread(left: &mut [u64], members: &[usize], share: u64, slab: u64) {
    let fits = |left: &[u64], at: usize| left.get(at).map_or(0, |left| left / slab);
    let all: u64 = members.iter().map(|at| fits(left, *at)).sum();
    let mut open = share;
    let mut rest = all;
    for at in members {
        let own = fits(left, *at);
        // Rounded up, and never more than is open: the last disk closes the sum.
        let taken = u64::try_from((u128::from(open) * u128::from(own)).div_ceil(u128::from(rest.max(1))));
        let taken = taken.unwrap_or(u64::MAX).min(open).min(own);
        if let Some(left) = left.get_mut(*at) {
            *left -= taken * slab;
        }
        open -= taken;
        rest -= own;
    }
    assert!(open == 0, "a domain's share is no more than its disks hold");
}

/// What such rows take of the disks. Every column is counted as long as the longest.
pub(crate) fn fill(code: Code, disks: &Disks, row: Bytes) -> Fill {
    let Code::Wide { data, parity } = code else { panic!("placement chooses the width of every other code") };
    let column = column_bytes(code, row, data);
    let slab = units_for(code)(Bytes(column)) * ALLOCATION_UNIT_BYTES;
    let mut left: Vec<u64> = disks.list().iter().map(crate::disks::Disk::claimable_bytes).collect();
    let groups = disks.by_domain();
    let fits =
        |members: &Vec<usize>| members.iter().filter_map(|at| left.get(*at)).map(|left| left / slab).sum();
    let slabs: Vec<u64> = groups.iter().map(fits).collect();
    let width = u64::from(data + parity);
    let rows = rows_max(&slabs, width);
    for (members, share) in groups.iter().zip(shares(&slabs, rows, width)) {
        spread(&mut left, members, share, slab);
    }
    Fill { row: row.0, rows, redundancy: u64::from(parity) * column * rows, left, ..Fill::default() }
}
