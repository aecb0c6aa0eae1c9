//! The trash: spaces that were deleted and can be restored.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::space::ResiliencyKind;

/// A space in the trash, or one that is purged.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TrashedSpace {
    /// The pool that it lies on.
    pub pool: String,
    /// Its number in the pool, which names it where several had one name.
    pub id: u64,
    /// The name that it had, and has when it is restored without another.
    pub name: String,
    /// Its size.
    pub size_bytes: u64,
    /// How it survives the loss of disks.
    pub resiliency: ResiliencyKind,
    /// Copies of every block.
    pub copies: u8,
    /// Parity columns of every row.
    pub parity: u8,
    /// Room that it takes on all disks, and that a purge gives back.
    pub footprint_bytes: u64,
    /// When it came into the trash, in seconds since 1970 by the clock of the host that put it there; absent of one that is being
    /// purged.
    #[serde(default)]
    pub trashed_s: Option<u64>,
    /// Whether it can be restored: not once a purge was asked for.
    pub can_be_restored: bool,
    /// How long it stays before it is purged by itself, in seconds in which the daemon runs and its pool is open; absent where that
    /// is never done.
    #[serde(default)]
    pub stays_s: Option<u64>,
}

/// What is in the trash.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Trash {
    /// [`SCHEMA`](crate::SCHEMA).
    pub schema: u32,
    /// By pool and number.
    pub spaces: Vec<TrashedSpace>,
    /// When this was said, in seconds since 1970 by the clock of the system.
    pub now_s: u64,
}

/// Deletes a space.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DeleteSpace {
    /// For good and at once, instead of into the trash.
    #[serde(default)]
    pub purge: bool,
    /// To purge it, its name, typed again by whoever wants it gone.
    #[serde(default)]
    pub destroy: Option<String>,
    /// Only tell what would happen.
    #[serde(default)]
    pub dry_run: bool,
}

/// Takes a space out of the trash.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RestoreSpace {
    /// The name that it is to have; the one that it had when left out.
    #[serde(default)]
    pub name: Option<String>,
    /// Only tell what would happen.
    #[serde(default)]
    pub dry_run: bool,
}

/// Deletes spaces in the trash for good.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PurgeTrash {
    /// Which, by name or number.
    #[serde(default)]
    pub spaces: Vec<String>,
    /// All of them, instead.
    #[serde(default)]
    pub all: bool,
    /// Typed again by whoever wants them gone: the name of the one space, or with several or all that of the pool.
    #[serde(default)]
    pub destroy: Option<String>,
    /// Only tell what would happen.
    #[serde(default)]
    pub dry_run: bool,
}
