//! Where the bytes of a pool are, and what still fits.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::space::ResiliencyKind;

/// Where the bytes of a pool are. `raw` = `metadata` + `tail` + `data`, and `data` = `used` + `free`, over the disks that
/// are here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Df {
    /// [`SCHEMA`](crate::SCHEMA).
    pub schema: u32,
    /// The pool.
    pub pool: String,
    /// The disks themselves.
    pub raw_bytes: u64,
    /// Of them, labels, log and the pool's metadata.
    pub metadata_bytes: u64,
    /// Of them, left empty at the end, so that a disk may lose a few megabytes there.
    pub tail_bytes: u64,
    /// Of them, room for slabs.
    pub data_bytes: u64,
    /// Of that, used by slabs.
    pub used_bytes: u64,
    /// Of `used`, addresses of spaces for which room is claimed.
    pub claimed_bytes: u64,
    /// Of `used`, their further copies and parity.
    pub redundancy_bytes: u64,
    /// Of `used`, write caches of spaces with parity, copies and tables included.
    #[serde(default)]
    pub write_cache_bytes: u64,
    /// Of `used`, spaces in the trash and those that are being purged, copies and tables included: what a purge gives back.
    #[serde(default)]
    pub trash_bytes: u64,
    /// Of `used`, checksums, states, headers, and rounding up.
    pub tables_bytes: u64,
    /// Of `data`, not used.
    pub free_bytes: u64,
    /// Of `free`, kept for moves and repairs.
    pub reserve_bytes: u64,
    /// Of `free`, kept beside that so that lost disks can be repaired on the others, as rows of two copies find it.
    #[serde(default)]
    pub kept_bytes: u64,
    /// Sizes that thin spaces were given beyond what is claimed.
    pub promised_bytes: u64,
    /// What still fits, at each level of protection.
    pub fits: Vec<Fits>,
    /// Room on each disk, by slot.
    pub disks: Vec<DiskRoom>,
    /// Names of disks that are absent. Of the figures, the parts of `used` alone count what lies on them.
    #[serde(default)]
    pub absent_disks: Vec<String>,
}

/// What still fits at one level of protection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Fits {
    /// How it survives the loss of disks.
    pub resiliency: ResiliencyKind,
    /// Copies of every block.
    pub copies: u8,
    /// Parity columns of every row.
    #[serde(default)]
    pub parity: u8,
    /// Lost disks that it survives.
    pub survives: u8,
    /// Bytes that a space of this kind could still take; 0 also when there are too few disks.
    pub usable_bytes: u64,
    /// The same as a fixed space, which has longer rows: the largest one that can be made now.
    #[serde(default)]
    pub usable_fixed_bytes: Option<u64>,
}

/// Room on one disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DiskRoom {
    /// Its place in the pool.
    pub slot: u16,
    /// Where it is, or its identity.
    pub name: String,
    /// The disk itself.
    pub raw_bytes: u64,
    /// Room for slabs.
    pub data_bytes: u64,
    /// Of it, not used.
    pub free_bytes: u64,
    /// Of that, kept for moves and repairs.
    pub reserve_bytes: u64,
}
