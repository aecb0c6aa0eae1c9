//! Disks and rows that the tests of this crate share.
#![allow(dead_code, unreachable_pub)]

use std::collections::BTreeSet;

use dolmen_placement::{Code, DomainId, Offer, Placement, Placer, Request, Resiliency, Standing, Width};
use dolmen_units::{ALLOCATION_UNIT_BYTES, BLOCK_BYTES, Bytes, DiskSlot};

pub const MIRROR2: Resiliency = Resiliency::Striped { copies: 2 };
pub const MIRROR3: Resiliency = Resiliency::Striped { copies: 3 };
pub const SIMPLE: Resiliency = Resiliency::Striped { copies: 1 };
pub const PARITY: Resiliency = Resiliency::Parity { parity: 1 };
pub const DUAL: Resiliency = Resiliency::Parity { parity: 2 };

/// A slab with a header of 4 KiB and two slots of a table page for every 504 blocks.
pub fn with_tables(data: Bytes) -> u64 {
    let tables = (data.0 / BLOCK_BYTES).div_ceil(504) * 2 * BLOCK_BYTES;
    (BLOCK_BYTES + data.0 + tables).div_ceil(ALLOCATION_UNIT_BYTES)
}

/// A slab that needs nothing beside its data.
pub fn bare(data: Bytes) -> u64 {
    data.0.div_ceil(ALLOCATION_UNIT_BYTES)
}

pub fn disks(free: &[u64]) -> Vec<Offer> {
    free.iter().zip(0u16..).map(|(free, slot)| Offer::alone(DiskSlot(slot), *free)).collect()
}

pub fn in_domains(free: &[(u64, u32)]) -> Vec<Offer> {
    let offer = |((free, domain), slot): (&(u64, u32), u16)| Offer {
        domain: DomainId(*domain),
        ..Offer::alone(DiskSlot(slot), *free)
    };
    free.iter().zip(0u16..).map(offer).collect()
}

/// A row of `units` allocation units dealt allocation unit by allocation unit.
pub fn small(resiliency: Resiliency, width: Width, units: u64) -> Placer {
    let row = Bytes(units * ALLOCATION_UNIT_BYTES);
    Placer::new(Request::new(resiliency, width, row, Bytes(ALLOCATION_UNIT_BYTES)).unwrap(), bare)
}

/// Takes a placement's slabs from the offers, and checks everything that holds for any placement.
pub fn take(offers: &mut [Offer], placement: &Placement) {
    let domains: BTreeSet<_> =
        offers.iter().filter(|o| o.standing == Standing::Claimable).map(|o| o.domain).collect();
    let mut used = BTreeSet::new();
    let mut held = BTreeSet::new();
    let (copies, apart) = match placement.code {
        Code::Striped { copies } => (copies, copies as usize),
        Code::Parity { data, parity } => {
            assert_eq!(placement.columns, data + parity);
            (1, placement.columns as usize)
        }
    };
    for slab in &placement.slabs {
        let offer = offers.iter_mut().find(|offer| offer.slot == slab.slot).unwrap();
        assert_eq!(offer.standing, Standing::Claimable);
        assert!(offer.free_units - offer.reserve_units >= slab.units, "{offer:?} {slab:?}");
        offer.free_units -= slab.units;
        offer.space_rows += 1;
        assert!(used.insert(slab.slot), "two slabs on {}", slab.slot);
        let key = if matches!(placement.code, Code::Parity { .. }) { 0 } else { slab.column };
        let alone = held.insert((key, offer.domain));
        assert!(
            alone || domains.len() < apart || copies == 1 && key == slab.column && apart == 1,
            "{placement:?}"
        );
    }
    let columns: Vec<_> = placement.slabs.iter().map(|slab| (slab.column, slab.copy)).collect();
    let expected: Vec<_> =
        (0..placement.columns).flat_map(|column| (0..copies).map(move |copy| (column, copy))).collect();
    assert_eq!(columns, expected, "every column has every copy");
}

/// Places rows until there is no room.
pub fn fill(placer: &Placer, offers: &mut [Offer]) -> Vec<Placement> {
    let mut rows = Vec::new();
    while let Ok(placement) = placer.place(offers, rows.len() as u64) {
        take(offers, &placement);
        rows.push(placement);
    }
    rows
}

/// SplitMix64, so that a set of disks is named by its seed.
pub struct Draw(pub u64);

impl Draw {
    pub fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % end
    }
}
