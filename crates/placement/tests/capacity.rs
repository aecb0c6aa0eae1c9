//! What a pool holds: the published figures, and batches against rows one by one.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    reason = "helpers of tests: a panic here is a failed test, and the numbers are small"
)]

mod common;

use common::*;
use dolmen_placement::{ONE_BY_ONE_MAX, Offer, Placer, Request, Resiliency, Standing, Width};
use dolmen_units::{ALLOCATION_UNIT_BYTES, DiskSlot};

/// Allocation units of a slab that holds 64 MiB: 33 pages of its table, twice, and a header.
const SLAB: u64 = 16_384 + 66 + 1;

/// A disk as a pool offers it when it is new: a thousandth for metadata, four of the largest slabs kept back.
fn new_disk(slot: u16, bytes: u64, placer_slab: u64) -> Offer {
    let units = (bytes - bytes / 1000) / ALLOCATION_UNIT_BYTES;
    Offer { reserve_units: 4 * placer_slab, ..Offer::alone(DiskSlot(slot), units) }
}

/// Three copies on 5 to 8 disks of 147 GB, all overheads and reserves counted.
#[test]
fn three_copies_use_98_percent_of_raw_by_three() {
    let placer = Placer::new(Request::usual(MIRROR3).unwrap(), with_tables);
    for count in 5..=8u16 {
        let raw = 147_000_000_000 * u64::from(count);
        let offers: Vec<Offer> = (0..count).map(|slot| new_disk(slot, 147_000_000_000, SLAB)).collect();
        let capacity = placer.usable(&offers);
        assert!(capacity.data.0 * 3 * 100 >= raw * 98, "{count} disks: {capacity:?}");
        assert!(capacity.overhead.0 * 100 <= capacity.slabs().0, "{count} disks: {capacity:?}");
        let stranded: u64 = capacity.stranded.iter().map(|disk| disk.units * ALLOCATION_UNIT_BYTES).sum();
        let metadata = u64::from(count) * 147_000_000;
        let listed = capacity.slabs().0 + capacity.reserve.0 + stranded + metadata;
        assert!(raw - listed <= u64::from(count) * 2 * ALLOCATION_UNIT_BYTES, "every byte is accounted for");
    }
}

/// With tables and uneven columns, mirrors of random disks fill 99.5 % of the room that the bound allows them.
#[test]
fn mirrors_with_all_overheads_fill_the_bound() {
    for seed in 0..40 {
        let mut draw = Draw(seed);
        let copies = 1 + draw.below(4) as u32;
        let count = u64::from(copies) + 1 + draw.below(7);
        let free: Vec<u64> = (0..count).map(|_| 17_600_000 * (1 + draw.below(20))).collect();
        let placer = Placer::new(Request::usual(Resiliency::Striped { copies }).unwrap(), with_tables);
        let (bound, capacity) = (placer.bound(&disks(&free)), placer.usable(&disks(&free)));
        let filled = capacity.slabs().0 / u64::from(copies);
        assert!(filled <= bound.column_units * ALLOCATION_UNIT_BYTES, "seed {seed}: {capacity:?} {bound:?}");
        assert!(
            filled / 199 * 200 >= bound.column_units * ALLOCATION_UNIT_BYTES,
            "seed {seed}: {capacity:?} {bound:?}"
        );
        assert!(capacity.data <= bound.data, "seed {seed}");
        assert!(capacity.overhead.0 * 100 <= capacity.slabs().0, "seed {seed}: {capacity:?}");
    }
}

/// Slabs of every permitted width stay within the published overhead.
#[test]
fn overhead_is_within_one_percent_for_mirrors_and_two_for_parity() {
    for (resiliency, percent, most) in
        [(SIMPLE, 1, 8), (MIRROR2, 1, 8), (MIRROR3, 1, 8), (PARITY, 2, 8), (DUAL, 2, 12)]
    {
        for columns in resiliency.survives().min(1) + 1..=most {
            if matches!(resiliency, Resiliency::Parity { .. }) && columns < 2 {
                continue;
            }
            let row = Request::usual(resiliency).unwrap();
            let request =
                Request::new(resiliency, Width::Columns(columns), row.row(), row.interleave()).unwrap();
            let capacity = Placer::new(request, with_tables).usable(&disks(&[48_000_000; 24]));
            let all = capacity.slabs().0;
            assert!(capacity.overhead.0 * 100 <= all * percent, "{resiliency:?} × {columns}: {capacity:?}");
        }
    }
}

struct Drawn {
    placer: Placer,
    offers: Vec<Offer>,
    width: Width,
    name: String,
}

fn drawn(seed: u64, smallest: u64, spread: u64) -> Drawn {
    let mut draw = Draw(seed);
    let count = 2 + draw.below(9) as usize;
    let free: Vec<u64> = (0..count).map(|_| smallest + draw.below(spread)).collect();
    let kinds = [(SIMPLE, 2), (MIRROR2, 1), (MIRROR2, 2), (MIRROR3, 1), (PARITY, 2), (DUAL, 4)];
    let (resiliency, columns) = kinds[draw.below(6) as usize];
    let width = if draw.below(2) == 0 { Width::Auto } else { Width::Columns(columns) };
    let name = format!("seed {seed}: {resiliency:?} {width:?} {free:?}");
    Drawn { placer: small(resiliency, width, 8), offers: disks(&free), width, name }
}

/// Sets small enough to be counted row by row: rows, data and what is left on each disk are those of the placer.
#[test]
fn a_small_set_holds_exactly_what_the_placer_places() {
    for seed in 0..60 {
        let Drawn { placer, offers, name, .. } = drawn(seed, 20, 900);
        let mut left = offers.clone();
        let rows = fill(&placer, &mut left).len() as u64;
        let capacity = placer.usable(&offers);
        assert!(rows < ONE_BY_ONE_MAX, "{name}");
        assert_eq!(capacity.rows, rows, "{name}");
        assert_eq!(capacity.data.0, rows * 8 * ALLOCATION_UNIT_BYTES, "{name}");
        for (stranded, offer) in capacity.stranded.iter().zip(&left) {
            assert_eq!((stranded.slot, stranded.units), (offer.slot, offer.free_units), "{name}");
        }
    }
}

/// Larger sets, counted in batches, against the placer row by row: the same for a fixed width, and for an
/// automatic width, where a batch may change width a little earlier, within a thousandth.
#[test]
fn batches_reach_what_rows_one_by_one_reach() {
    let mut batched = 0;
    for seed in 0..24 {
        let Drawn { placer, offers, width, name } = drawn(seed, 2_000, 15_000);
        let mut left = offers.clone();
        let rows = fill(&placer, &mut left).len() as u64;
        batched += usize::from(rows > ONE_BY_ONE_MAX);
        let counted = placer.usable(&offers).rows;
        let apart = if width == Width::Auto { rows / 1000 } else { 0 };
        assert!(counted.abs_diff(rows) <= apart, "{name}: {counted} in batches, {rows} one by one");
    }
    assert!(batched > 10, "only {batched} sets were large enough for batches");
}

/// The largest pool, of disks of five sizes in twenty enclosures, one of them retired.
#[test]
fn the_largest_pool_is_counted_and_nearly_filled() {
    let mut offers: Vec<Offer> = (0..240u16)
        .map(|slot| {
            let terabytes = [20, 16, 18, 8, 20][usize::from(slot) % 5];
            let disk = new_disk(slot, terabytes * 1_000_000_000_000, SLAB);
            Offer { domain: dolmen_placement::DomainId(u32::from(slot / 12)), ..disk }
        })
        .collect();
    offers[17].standing = Standing::Excluded;
    for resiliency in [Resiliency::Span, SIMPLE, MIRROR3, DUAL] {
        let placer = Placer::new(Request::usual(resiliency).unwrap(), with_tables);
        let capacity = placer.usable(&offers);
        let bound = placer.bound(&offers);
        assert!(capacity.data <= bound.data);
        assert!(
            u128::from(capacity.data.0) * 1000 >= u128::from(bound.data.0) * 990,
            "{resiliency:?}: {capacity:?}"
        );
        assert!(capacity.rows > 10_000_000);
        assert_eq!(capacity.stranded.len(), 239);
    }
}
