//! Copies on several fault domains, each of which protects its copy by a code over its own disks.
//!
//! A row is kept on `copies` domains, as one row of the inner code in each. A domain that holds Rᵢ inner rows is then
//! like a disk with Rᵢ slabs, and the same condition as in `wide` gives the most rows. Copies need no tables of their own:
//! the inner rows have them.

use dolmen_units::Bytes;

use crate::capacity::{Fill, fill_plain, nothing_first};
use crate::disks::{Disk, Disks};
use crate::layout::Code;
use crate::wide::{rows_max, shares};

/// What such rows take of the disks.
pub(crate) fn fill(copies: u32, inner: Code, disks: &Disks, row: Bytes) -> Fill {
    let groups = disks.by_domain();
    let fills: Vec<Fill> = groups.iter().map(|members| fill_within(inner, disks, members, row)).collect();
    let held: Vec<u64> = fills.iter().map(|fill| fill.rows).collect();
    let width = u64::from(copies);
    let rows = rows_max(&held, width);
    let mut left: Vec<u64> = disks.list().iter().map(Disk::claimable_bytes).collect();
    let mut inner_redundancy = 0;
    for ((members, fill), share) in groups.iter().zip(&fills).zip(shares(&held, rows, width)) {
        inner_redundancy += part(fill.redundancy, share, fill.rows);
        for (at, inner_left) in members.iter().zip(&fill.left) {
            let Some(left) = left.get_mut(*at) else { continue };
            // Rounding goes to what is taken, so that the slabs hold what is counted in them.
            let taken = *left - inner_left;
            *left -= part(taken, share, fill.rows) + u64::from(share < fill.rows && taken > 0);
        }
    }
    let redundancy = rows * row.0 * (width - 1) + inner_redundancy;
    Fill { row: row.0, rows, redundancy, left, ..Fill::default() }
}

/// The most rows, by the bound of what each domain holds.
pub(crate) fn rows_bound(copies: u32, inner: Code, disks: &Disks, row: Bytes) -> u64 {
    let held = |members: &Vec<usize>| {
        own(disks, members, inner)
            .map_or(0, |own| crate::capacity::rows_bound(inner, &own, row, Some(nothing_first(&own))))
    };
    let held: Vec<u64> = disks.by_domain().iter().map(held).collect();
    rows_max(&held, u64::from(copies))
}

/// What the disks of one domain hold.
fn fill_within(inner: Code, disks: &Disks, members: &[usize], row: Bytes) -> Fill {
    match own(disks, members, inner) {
        Some(own) => fill_plain(inner, &own, row, Some(nothing_first(&own))),
        None => {
            let whole = members.iter().filter_map(|at| disks.list().get(*at)).map(Disk::claimable_bytes);
            Fill { row: row.0, left: whole.collect(), ..Fill::default() }
        }
    }
}

/// The disks of one domain, each by itself; `None` where they are too few.
fn own(disks: &Disks, members: &[usize], inner: Code) -> Option<Disks> {
    let own = members.iter().filter_map(|at| disks.list().get(*at));
    let own: Vec<Disk> = own.map(|disk| Disk { domain: None, ..disk.clone() }).collect();
    let is_enough = u32::try_from(own.len()).is_ok_and(|count| count >= inner.domains_min());
    is_enough.then(|| Disks::new(own))
}

/// The part of `whole` that `share` of `rows` rows take, rounded down.
fn part(whole: u64, share: u64, rows: u64) -> u64 {
    let part = u128::from(whole) * u128::from(share) / u128::from(rows.max(1));
    u64::try_from(part).unwrap_or(u64::MAX)
}
