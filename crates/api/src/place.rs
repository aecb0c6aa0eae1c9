//! Where a disk is in the hands of people: the bay that they name, and the light that shows it.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Has a disk show where it is, or ends that.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LocateDisk {
    /// Whether it is to end.
    pub off: bool,
    /// For how long, up to an hour; a minute if left out.
    pub seconds: Option<u64>,
    /// Only tell what would happen.
    pub dry_run: bool,
}

impl LocateDisk {
    /// How long it lasts where nobody says.
    pub const SECONDS_USUAL: u64 = 60;
    /// The longest time, in seconds.
    pub const SECONDS_MAX: u64 = 3600;
}

/// Changes what people note of a disk.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SetDisk {
    /// What its bay is called: up to 64 bytes of text in one line; empty for nothing.
    pub bay: String,
    /// Only tell what would happen.
    #[serde(default)]
    pub dry_run: bool,
}

impl SetDisk {
    /// The longest name of a bay, in bytes.
    pub const BAY_BYTES_MAX: usize = 64;
}
