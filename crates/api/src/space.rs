//! Spaces.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::status::Health;

/// How a space survives the loss of disks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ResiliencyKind {
    /// Striped over disks, one copy.
    Simple,
    /// One disk after another, one copy.
    Span,
    /// Copies, striped.
    Mirror,
    /// Striped, with parity over the columns.
    Parity,
}

/// Whether rows are claimed when they are first written, or all at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Provisioning {
    /// When first written.
    #[default]
    Thin,
    /// All when the space is made.
    Fixed,
}

/// How content that a flush has covered is written over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Integrity {
    /// In place: a block whose every copy was damaged meanwhile is accepted unverified, counted and listed.
    #[default]
    Relaxed,
    /// Through a write cache: until the new content is safe, nothing touches the old one.
    Strict,
}

/// A space.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Space {
    /// The pool that it lies on.
    pub pool: String,
    /// Its name.
    pub name: String,
    /// How it is.
    pub health: Health,
    /// Why, if it is not healthy.
    pub why: Vec<String>,
    /// Its size.
    pub size_bytes: u64,
    /// How it survives the loss of disks.
    pub resiliency: ResiliencyKind,
    /// Copies of every block.
    pub copies: u8,
    /// Parity columns of every row.
    #[serde(default)]
    pub parity: u8,
    /// Data columns; absent when each row chooses its own.
    #[serde(default)]
    pub columns: Option<u8>,
    /// Bytes written to one column before the next.
    pub interleave_bytes: u64,
    /// Bytes of a row.
    pub row_bytes: u64,
    /// Thin or fixed.
    pub provisioning: Provisioning,
    /// Relaxed or strict.
    pub integrity: Integrity,
    /// While it is converted, what those of its rows have that have not been moved yet; all of the above is what it is to be.
    #[serde(default)]
    pub converted_from: Option<FormerLayout>,
    /// Logical sector that its devices present; the physical one has 4096 bytes. Requests over NBD may begin and end at any
    /// byte.
    pub sector_bytes: u64,
    /// Bytes of its own addresses for which room is claimed.
    pub claimed_bytes: u64,
    /// Room that it takes on all disks, copies and tables included.
    pub footprint_bytes: u64,
    /// Bytes of a thin space that can be written however full its pool is; 0 for none.
    #[serde(default)]
    pub reserve_bytes: u64,
    /// What of that was never written.
    #[serde(default)]
    pub reserve_unused_bytes: u64,
    /// What it may have of its pool's disks, and what others leave to it; absent where there are no limits.
    #[serde(default)]
    pub limits: Option<SpaceLimits>,
    /// Where it is attached as a block device.
    #[serde(default)]
    pub attached_at: Option<String>,
    /// Where it is served on this machine.
    #[serde(default)]
    pub served_at: Option<String>,
    /// Where on a network it is served as well.
    #[serde(default)]
    pub network_at: Option<String>,
}

/// What rows of a space have that is converted, as long as they have not been moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FormerLayout {
    /// How they survive the loss of disks.
    pub resiliency: ResiliencyKind,
    /// Copies of every block.
    pub copies: u8,
    /// Parity columns of every row.
    #[serde(default)]
    pub parity: u8,
    /// Data columns; absent where each row chose its own.
    #[serde(default)]
    pub columns: Option<u8>,
    /// Bytes written to one column before the next.
    pub interleave_bytes: u64,
    /// Relaxed or strict.
    pub integrity: Integrity,
}

/// What a space may have of its pool's disks, and what others leave to it. Reads, writes and discards count, flushes do not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
pub struct SpaceLimits {
    /// Requests in a second that it gets at most.
    #[serde(default)]
    pub iops_max: Option<u64>,
    /// Requests in a second that others leave to it.
    #[serde(default)]
    pub iops_min: Option<u64>,
    /// Bytes in a second that it gets at most.
    #[serde(default)]
    pub bytes_per_s_max: Option<u64>,
    /// Bytes in a second that others leave to it.
    #[serde(default)]
    pub bytes_per_s_min: Option<u64>,
}

/// Spaces.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Spaces {
    /// [`SCHEMA`](crate::SCHEMA).
    pub schema: u32,
    /// By pool and name.
    pub spaces: Vec<Space>,
}

/// One space.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SpaceDocument {
    /// [`SCHEMA`](crate::SCHEMA).
    pub schema: u32,
    /// The space.
    pub space: Space,
}

/// Makes a space.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateSpace {
    /// Its name.
    pub name: String,
    /// Its size, a multiple of 4 KiB.
    pub size_bytes: u64,
    /// How it survives the loss of disks.
    pub resiliency: ResiliencyKind,
    /// Copies of a mirror, 2 to 4; 2 when left out.
    #[serde(default)]
    pub copies: Option<u8>,
    /// Parity columns of a space with parity, 1 or 2; 1 when left out.
    #[serde(default)]
    pub parity: Option<u8>,
    /// Data columns; automatic when left out.
    #[serde(default)]
    pub columns: Option<u8>,
    /// Bytes written to one column before the next; when left out 256 KiB, with parity 64 KiB.
    #[serde(default)]
    pub interleave_bytes: Option<u64>,
    /// Bytes of a row, fixed when the space is made. When left out: of a thin space 8 MiB up to 2 TiB, then a 2^18th of
    /// its size up to 64 MiB, and never below 32 MiB with two parities; of a fixed one 64 MiB; of either 256 MiB above 64 TiB.
    #[serde(default)]
    pub row_bytes: Option<u64>,
    /// Thin or fixed.
    #[serde(default)]
    pub provisioning: Provisioning,
    /// Relaxed or strict; with parity strict, otherwise relaxed, when left out.
    #[serde(default)]
    pub integrity: Option<Integrity>,
    /// Logical sector, 512 or 4096. When left out: 512, and 4096 where every disk of the pool has sectors of 4096 bytes.
    #[serde(default)]
    pub sector_bytes: Option<u64>,
    /// Only tell what would happen.
    #[serde(default)]
    pub dry_run: bool,
}

/// Changes the size of a space.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ResizeSpace {
    /// The size wanted, a multiple of 4 KiB.
    pub size_bytes: u64,
    /// Only tell what would happen.
    #[serde(default)]
    pub dry_run: bool,
}

/// Converts a space while it is used. What is left out stays as it is, as far as it fits the rest; without anything, its rows are
/// laid again as they are, as wide as the pool allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ConvertSpace {
    /// How it is to survive the loss of disks.
    #[serde(default)]
    pub resiliency: Option<ResiliencyKind>,
    /// Copies of a mirror, 2 to 4; when left out those that it has, else 2.
    #[serde(default)]
    pub copies: Option<u8>,
    /// Parity columns of a space with parity, 1 or 2; when left out those that it has, else 1.
    #[serde(default)]
    pub parity: Option<u8>,
    /// Data columns, 0 for automatic; automatic when left out and the resiliency is of another kind.
    #[serde(default)]
    pub columns: Option<u8>,
    /// Bytes written to one column before the next; as usual when left out and the resiliency is of another kind.
    #[serde(default)]
    pub interleave_bytes: Option<u64>,
    /// Relaxed or strict; as usual when left out and the resiliency is of another kind.
    #[serde(default)]
    pub integrity: Option<Integrity>,
    /// Thin or fixed.
    #[serde(default)]
    pub provisioning: Option<Provisioning>,
    /// Only tell what would happen.
    #[serde(default)]
    pub dry_run: bool,
}

/// Gives a space another name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RenameSpace {
    /// The name wanted.
    pub name: String,
    /// Only tell what would happen.
    #[serde(default)]
    pub dry_run: bool,
}

/// Reserves room for a thin space.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SetReserve {
    /// Bytes of it that can be written however full its pool is, in whole rows; 0 for none.
    pub bytes: u64,
    /// Only tell what would happen.
    #[serde(default)]
    pub dry_run: bool,
}

/// Sets what a space may have of its pool's disks, and what others leave to it. What is left out stays; 0 takes a limit away.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SetLimits {
    /// Requests in a second that it gets at most.
    #[serde(default)]
    pub iops_max: Option<u64>,
    /// Requests in a second that others leave to it.
    #[serde(default)]
    pub iops_min: Option<u64>,
    /// Bytes in a second that it gets at most, a multiple of 1 KiB.
    #[serde(default)]
    pub bytes_per_s_max: Option<u64>,
    /// Bytes in a second that others leave to it, a multiple of 1 KiB.
    #[serde(default)]
    pub bytes_per_s_min: Option<u64>,
    /// Only tell what would happen.
    #[serde(default)]
    pub dry_run: bool,
}
