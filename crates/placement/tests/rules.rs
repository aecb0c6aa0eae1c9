//! What every placement obeys, and which of the permitted ones is chosen.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    reason = "helpers of tests: a panic here is a failed test, and the numbers are small"
)]

mod common;

use common::*;
use dolmen_placement::{Code, DomainId, NoRoom, Offer, Placer, Request, Resiliency, Standing, Width};
use dolmen_units::{ALLOCATION_UNIT_BYTES, Bytes, DiskSlot};
use proptest::prelude::*;

fn any_resiliency() -> impl Strategy<Value = Resiliency> {
    prop_oneof![
        Just(Resiliency::Span),
        (1u32..=4).prop_map(|copies| Resiliency::Striped { copies }),
        (1u32..=2).prop_map(|parity| Resiliency::Parity { parity }),
    ]
}

/// Allocation units of an interleave that is so long that the allocation unit a slab needs beside it permits all widths.
const UNIT: u64 = 256;

fn any_offers() -> impl Strategy<Value = Vec<Offer>> {
    let one = (0..400 * UNIT, 0..60 * UNIT, 0u32..6, 0u8..8);
    proptest::collection::vec(one, 1..14).prop_map(|list| {
        list.into_iter()
            .zip(0u16..)
            .map(|((free_units, reserve_units, domain, out), slot)| Offer {
                reserve_units,
                domain: DomainId(domain),
                standing: if out == 0 { Standing::Excluded } else { Standing::Claimable },
                ..Offer::alone(DiskSlot(slot), free_units)
            })
            .collect()
    })
}

proptest! {
    // Random disks, domains, reserves and widths are filled row by row. Every row obeys the rules (`take` checks
    // them), the bound is never passed, and what the capacity says is what was reached.
    #[test]
    fn any_disks_are_filled_within_the_rules_and_the_bound(
        offers in any_offers(), resiliency in any_resiliency(), fixed in 0u32..6, units in 1u64..30,
    ) {
        let width = if fixed == 0 { Width::Auto } else { Width::Columns(fixed) };
        let interleave = Bytes(UNIT * ALLOCATION_UNIT_BYTES);
        let row = Bytes(units * interleave.0);
        let Ok(request) = Request::new(resiliency, width, row, interleave) else { return Ok(()) };
        let placer = Placer::new(request, |data| bare(data) + 1);
        let bound = placer.bound(&offers);
        let mut left = offers.clone();
        let rows = fill(&placer, &mut left);
        let data = rows.len() as u64 * row.0;
        prop_assert!(data <= bound.data.0, "{} of {:?}", data, bound);
        if rows.len() < 64 {
            let capacity = placer.usable(&offers);
            prop_assert_eq!(capacity.rows, rows.len() as u64);
            prop_assert_eq!(capacity.data.0, data);
        }
        prop_assert_eq!(placer.place(&offers, 7), placer.place(&offers, 7));
    }
}

/// On equal disks a row is as wide as the disks allow, up to the published limits.
#[test]
fn an_automatic_row_is_as_wide_as_the_fault_domains_allow() {
    for (resiliency, count, columns) in [
        (SIMPLE, 1, 1),
        (SIMPLE, 6, 6),
        (SIMPLE, 12, 8),
        (MIRROR2, 2, 1),
        (MIRROR2, 3, 1),
        (MIRROR2, 8, 4),
        (MIRROR2, 40, 8),
        (MIRROR3, 5, 1),
        (MIRROR3, 6, 2),
        (PARITY, 3, 3),
        (PARITY, 7, 7),
        (PARITY, 20, 9),
        (DUAL, 4, 4),
        (DUAL, 20, 14),
        (Resiliency::Span, 9, 1),
    ] {
        let placer = Placer::new(Request::usual(resiliency).unwrap(), with_tables);
        let mut offers = disks(&vec![16_000_000; count]);
        for turn in 0..100 {
            let placement = placer.place(&offers, turn).unwrap();
            assert_eq!(placement.columns, columns, "{resiliency:?} on {count} disks, row {turn}");
            take(&mut offers, &placement);
        }
    }
    // With four enclosures of three disks, a mirror row has a slab in each.
    let offers = in_domains(&(0..12).map(|disk| (16_000_000, disk / 3)).collect::<Vec<_>>());
    let placer = Placer::new(Request::usual(MIRROR2).unwrap(), with_tables);
    assert_eq!(placer.place(&offers, 0).unwrap().columns, 2);
}

/// A large disk that the small ones only just match is in every row, so rows are narrow until it is even.
#[test]
fn a_row_is_narrowed_only_where_width_would_strand_room() {
    let placer = small(MIRROR2, Width::Auto, 8);
    let mut offers = disks(&[400, 96, 96, 96, 96]);
    let rows = fill(&placer, &mut offers);
    assert_eq!(rows.len(), 48, "every small disk is paired with the large one");
    assert!(rows.iter().all(|row| row.columns == 1));

    let mut offers = disks(&[400, 200, 200, 200, 200]);
    let rows = fill(&placer, &mut offers);
    assert!(
        rows.len() >= 74,
        "{} of 75 rows: all room but the last few allocation units is used",
        rows.len()
    );
    assert!(rows.iter().filter(|row| row.columns == 2).count() > 30, "{}", rows.len());
}

/// On n equal disks, every pair shares rows within a fifth of the mean.
#[test]
fn equal_disks_share_rows_evenly_pair_by_pair() {
    let mirror_pairs = Placer::new(
        Request::new(MIRROR2, Width::Columns(1), Bytes::mib(64), Bytes::kib(256)).unwrap(),
        with_tables,
    );
    let mirrors = Placer::new(Request::usual(MIRROR2).unwrap(), with_tables);
    let uneven = Placer::new(
        Request::new(PARITY, Width::Columns(3), Bytes::mib(64), Bytes::kib(64)).unwrap(),
        with_tables,
    );
    for (placer, counts) in [(&mirror_pairs, [4, 6, 9]), (&mirrors, [5, 7, 16]), (&uneven, [5, 6, 10])] {
        for count in counts {
            let mut offers = disks(&vec![1_600_000_000; count]);
            let mut shared = vec![vec![0u64; count]; count];
            let slabs = placer.place(&offers, 0).unwrap().slabs.len();
            let rows = 500 * count * (count - 1) / (slabs * (slabs - 1));
            for turn in 0..rows {
                let placement = placer.place(&offers, turn as u64).unwrap();
                take(&mut offers, &placement);
                for one in &placement.slabs {
                    for other in &placement.slabs {
                        shared[usize::from(one.slot.0)][usize::from(other.slot.0)] += 1;
                    }
                }
            }
            let pairs = || (0..count).flat_map(|a| (0..a).map(move |b| (a, b)));
            let mean = pairs().map(|(a, b)| shared[a][b]).sum::<u64>() as f64 / pairs().count() as f64;
            for (a, b) in pairs() {
                let ratio = shared[a][b] as f64 / mean;
                assert!(
                    (0.8..=1.2).contains(&ratio),
                    "{:?}: disks {a}, {b} of {count}: {ratio:.2} × {mean:.0}",
                    placer.request()
                );
            }
        }
    }
}

/// Too few disks and too little room are told apart, with figures.
#[test]
fn a_refusal_says_what_is_missing() {
    let placer = Placer::new(Request::usual(MIRROR3).unwrap(), with_tables);
    let refusal = placer.place(&disks(&[144_000, 144_000]), 0).unwrap_err();
    assert_eq!(refusal, NoRoom::TooFewDisks { disks: 2, groups: 2, slabs_needed: 3, groups_needed: 3 });
    let mut offers = disks(&[144_000, 144_000, 144_000, 16_450]);
    offers[0].reserve_units = 128_000;
    offers[3].standing = Standing::Claimable;
    let refusal = placer.place(&offers, 0).unwrap_err();
    let full = NoRoom::Full {
        groups_with_room: 2,
        groups_needed: 3,
        slabs_with_room: 2,
        slabs_needed: 3,
        slab: Bytes(16_451 * ALLOCATION_UNIT_BYTES),
    };
    assert_eq!(refusal, full);
    assert_eq!(
        refusal.to_string(),
        "cannot place a row: it needs 3 slabs of 64.2 MiB in 3 fault domains, but only 2 domains have room, for 2 slabs; add a disk, or free space"
    );
    offers[0].standing = Standing::Excluded;
    offers[3].standing = Standing::Excluded;
    assert!(matches!(placer.place(&offers, 0), Err(NoRoom::TooFewDisks { disks: 2, .. })));
    let span = Placer::new(Request::usual(Resiliency::Span).unwrap(), with_tables);
    assert!(matches!(span.place(&disks(&[16_450]), 0), Err(NoRoom::Full { slabs_with_room: 0, .. })));
}

/// Each resiliency is placed on as few disks as promised, in domains of their own, and on no fewer.
#[test]
fn the_minimum_number_of_disks_suffices_and_is_needed() {
    for resiliency in
        [Resiliency::Span, SIMPLE, MIRROR2, MIRROR3, Resiliency::Striped { copies: 4 }, PARITY, DUAL]
    {
        let placer = Placer::new(Request::usual(resiliency).unwrap(), with_tables);
        let minimum = resiliency.minimum_disks() as usize;
        assert!(placer.place(&disks(&vec![80_000; minimum]), 0).is_ok(), "{resiliency:?}");
        assert!(placer.place(&disks(&vec![80_000; minimum - 1]), 0).is_err(), "{resiliency:?}");
    }
}

/// Copies keep to different domains even when one domain holds all the large disks.
#[test]
fn a_large_domain_of_small_disks_is_paired_with_the_others() {
    let mut free = vec![(80, 0); 10];
    free.extend([(400, 1), (400, 2)]);
    let mut offers = in_domains(&free);
    assert_eq!(fill(&small(MIRROR2, Width::Columns(1), 8), &mut offers).len(), 100);
    // Nested: with one domain only, copies fall back to different disks.
    let mut offers = in_domains(&[(80, 5), (80, 5), (80, 5)]);
    assert_eq!(fill(&small(MIRROR2, Width::Auto, 8), &mut offers).len(), 15);
}

/// A span fills one disk, then the next, and goes on where it was even when another disk has more room.
#[test]
fn a_span_fills_one_disk_at_a_time() {
    let mut offers = disks(&[40, 100, 70]);
    let rows = fill(&small(Resiliency::Span, Width::Auto, 10), &mut offers);
    let slots: Vec<u16> = rows.iter().map(|row| row.slabs[0].slot.0).collect();
    let expected: Vec<u16> = [[1; 10].as_slice(), &[2; 7], &[0; 4]].concat();
    assert_eq!(slots, expected);
    assert!(rows.iter().all(|row| row.code == Code::Striped { copies: 1 } && row.columns == 1));
}
