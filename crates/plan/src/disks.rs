//! Disks of a plan, and how the engine will cut them.
//!
//! The reserve is an internal figure of crate `pool`; it is stated here again, and the test against real pools fails when they
//! part.

use std::collections::BTreeSet;

use dolmen_disk::Extent;
use dolmen_placement::{DomainId, Offer, Standing};
use dolmen_units::{ALLOCATION_UNIT_BYTES, Bytes, DiskSlot};
use serde::Serialize;

/// Larger disks are taken for a slip of the unit. 240 of them stay far below what 64 bits count.
pub const DISK_BYTES_MAX: Bytes = Bytes::gib(1024 * 1024);

/// What ordinary claims leave free on each disk: four slabs of 64 MiB with half a MiB each for their tables, on a small
/// disk a sixteenth.
const RESERVE_UNITS: u64 = 4 * (64 * 1024 * 1024 + 512 * 1024) / ALLOCATION_UNIT_BYTES;
const RESERVE_PART: u64 = 16;
/// Domains of disks that stand alone are numbered from here; those below have names.
const ALONE: u32 = 1 << 31;

/// What the bytes of one disk are set aside for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Cut {
    /// Labels, log and map, at the front.
    pub metadata_bytes: u64,
    /// What is left empty at the end, so that a disk may be a little smaller.
    pub tail_bytes: u64,
    /// Room for slabs, the reserve among it.
    pub data_bytes: u64,
    /// Kept for moves and repairs.
    pub reserve_bytes: u64,
}

/// A disk of a plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Disk {
    /// Its name, given or made up.
    pub name: String,
    /// Its size.
    pub size_bytes: u64,
    /// What it may fail together with; none: it stands alone.
    pub domain: Option<String>,
    /// How it is cut.
    #[serde(flatten)]
    pub cut: Cut,
}

impl Disk {
    /// A disk of this size; `None` where it is too small for a pool.
    #[must_use]
    pub fn new(name: String, size: Bytes, domain: Option<String>) -> Option<Self> {
        let extent = Extent::of(size).ok()?;
        let units = extent.unit_count();
        let cut = Cut {
            metadata_bytes: extent.data_start,
            tail_bytes: size.0 - extent.data_end,
            data_bytes: units * ALLOCATION_UNIT_BYTES,
            reserve_bytes: RESERVE_UNITS.min(units / RESERVE_PART) * ALLOCATION_UNIT_BYTES,
        };
        Some(Self { name, size_bytes: size.0, domain, cut })
    }

    /// Bytes that ordinary claims may take.
    pub(crate) fn claimable_bytes(&self) -> u64 {
        self.cut.data_bytes - self.cut.reserve_bytes
    }
}

/// The disks of a plan, with their fault domains numbered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Disks {
    disks: Vec<Disk>,
}

impl Disks {
    /// These disks.
    #[must_use]
    pub fn new(disks: Vec<Disk>) -> Self {
        Self { disks }
    }

    /// Each disk, in the order of the list.
    #[must_use]
    pub fn list(&self) -> &[Disk] {
        &self.disks
    }

    /// Bytes of all disks.
    #[must_use]
    pub fn raw_bytes(&self) -> u64 {
        self.disks.iter().map(|disk| disk.size_bytes).sum()
    }

    /// All of these and one more.
    #[must_use]
    pub fn with(&self, disk: Disk) -> Self {
        let mut disks = self.disks.clone();
        disks.push(disk);
        Self { disks }
    }

    /// Those that are kept.
    pub(crate) fn without(&self, is_lost: impl Fn(usize, &Disk) -> bool) -> Self {
        let kept = self.disks.iter().enumerate().filter(|(at, disk)| !is_lost(*at, disk));
        Self { disks: kept.map(|(_, disk)| disk.clone()).collect() }
    }

    /// The fault domain of each disk, as a number.
    pub(crate) fn domains(&self) -> Vec<u32> {
        let names: BTreeSet<&str> = self.disks.iter().filter_map(|disk| disk.domain.as_deref()).collect();
        let number = |(at, disk): (u32, &Disk)| match &disk.domain {
            None => ALONE + at,
            Some(name) => (0u32..).zip(&names).find(|(_, other)| **other == name).map_or(0, |(at, _)| at) + 1,
        };
        (0u32..).zip(&self.disks).map(number).collect()
    }

    /// The disks of each fault domain, by place in the list; domains in the order of their first disk.
    pub(crate) fn by_domain(&self) -> Vec<Vec<usize>> {
        let domains = self.domains();
        let mut groups: Vec<(u32, Vec<usize>)> = Vec::new();
        for (at, domain) in domains.iter().enumerate() {
            match groups.iter_mut().find(|(other, _)| other == domain) {
                Some((_, members)) => members.push(at),
                None => groups.push((*domain, vec![at])),
            }
        }
        groups.into_iter().map(|(_, members)| members).collect()
    }

    /// How many fault domains there are.
    #[must_use]
    pub fn domain_count(&self) -> u32 {
        u32::try_from(self.by_domain().len()).unwrap_or(u32::MAX)
    }

    /// Whether every disk is a fault domain of its own.
    #[must_use]
    pub fn are_alone(&self) -> bool {
        self.by_domain().iter().all(|members| members.len() == 1)
    }

    /// Room for slabs on all of them.
    pub(crate) fn data_bytes(&self) -> Bytes {
        Bytes(self.disks.iter().map(|disk| disk.cut.data_bytes).sum())
    }

    /// What placement is told of them, as of a new pool.
    pub(crate) fn offers(&self) -> Vec<Offer> {
        let offer = |((slot, disk), domain): ((u16, &Disk), u32)| Offer {
            slot: DiskSlot(slot),
            domain: DomainId(domain),
            free_units: disk.cut.data_bytes / ALLOCATION_UNIT_BYTES,
            reserve_units: disk.cut.reserve_bytes / ALLOCATION_UNIT_BYTES,
            standing: Standing::Claimable,
            space_rows: 0,
            size_units: disk.cut.data_bytes / ALLOCATION_UNIT_BYTES,
            keep: 0,
        };
        (0u16..).zip(&self.disks).zip(self.domains()).map(offer).collect()
    }
}
