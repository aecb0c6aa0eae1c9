//! Slab map: where on the disks of a pool slabs of which space lie.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The query of a question about the slab map.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SlabMapQuery {
    /// Cells of each disk, from 1 to 512; 64 without it.
    #[serde(default)]
    pub cells: Option<u64>,
}

impl SlabMapQuery {
    /// Cells of each disk, at most.
    pub const CELLS_MAX: u64 = 512;
    /// Cells of each disk in a map whose query has no number.
    pub const CELLS_USUAL: u64 = 64;
}

/// Where on the disks of a pool slabs lie. Allocation units that are neither free nor of an owner were claimed or freed while the map was made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SlabMap {
    /// [`SCHEMA`](crate::SCHEMA).
    pub schema: u32,
    /// The pool.
    pub pool: String,
    /// Seconds since the map was made: questions within a few seconds get the same map.
    pub age_s: u64,
    /// Bytes of an allocation unit.
    pub unit_bytes: u64,
    /// What has slabs.
    pub owners: Vec<SlabOwner>,
    /// The disks, by slot.
    pub disks: Vec<DiskSlabs>,
}

/// What slabs are for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum SlabPurpose {
    /// Rows of a space.
    Space,
    /// Rows of a space in the trash.
    Trash,
    /// Rows of a space that is being deleted for good.
    Deleted,
    /// A write cache.
    WriteCache,
    /// New content of rows of a space, which takes their places once it is whole.
    Shadow,
    /// Rows of a space in the layout that it is being converted to.
    Conversion,
}

/// What has slabs, with what it has on all disks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SlabOwner {
    /// What its slabs are for.
    pub purpose: SlabPurpose,
    /// The space; left out of a write cache.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub space: Option<String>,
    /// What people call it: the name of the space, with what its slabs are for unless these are its rows.
    pub name: String,
    /// Bytes of its slabs.
    pub used_bytes: u64,
    /// Of them, bytes of slabs that miss something: they are being filled, or wait for a resync.
    pub stale_bytes: u64,
}

/// Cells of a disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DiskSlabs {
    /// Its place in the pool.
    pub slot: u16,
    /// Where it is, or its identity.
    pub name: String,
    /// Whether it is absent: the cells are what the pool has on record of it.
    pub is_absent: bool,
    /// Its allocation units.
    pub units: u64,
    /// Of them, those that no slab has.
    pub free_units: u64,
    /// Of them, those of slabs that miss something.
    pub stale_units: u64,
    /// Its cells, in order of address: as many as were asked for, but no more than it has allocation units. They differ by one allocation
    /// unit at most.
    pub cells: Vec<SlabCell>,
}

/// A range of allocation units of a disk.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
pub struct SlabCell {
    /// Its allocation units.
    pub units: u64,
    /// Of them, those that no slab has.
    pub free_units: u64,
    /// Of them, those of slabs that miss something; left out where there are none.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub stale_units: u64,
    /// The three owners with the most of it, the largest first; left out where it is free.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub owners: Vec<SlabShare>,
    /// What all other owners have of it; left out where there are none.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub other_units: u64,
}

/// Part of a cell that one owner has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SlabShare {
    /// Place of the owner in the list of owners, from 0 on.
    pub owner: u32,
    /// Its allocation units in the cell.
    pub units: u64,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(count: &u64) -> bool {
    *count == 0
}
