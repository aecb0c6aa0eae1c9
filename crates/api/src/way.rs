//! The ways in: spaces attached as block devices, and spaces served over NBD.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A space that is attached as a block device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Attachment {
    /// The pool.
    pub pool: String,
    /// The space.
    pub space: String,
    /// The stable name: `/dev/dolmen/POOL/SPACE`.
    pub path: String,
    /// The loop device behind it.
    pub device: String,
    /// Where file systems on it are mounted, and who else uses it.
    pub used_by: Vec<String>,
    /// Whether I/O only pauses when the daemon dies, and goes on with the next one.
    pub survives_daemon: bool,
    /// What this kernel cannot do.
    #[serde(default)]
    pub limits: Vec<String>,
}

/// All attached spaces.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Attachments {
    /// [`SCHEMA`](crate::SCHEMA).
    pub schema: u32,
    /// By pool and space.
    pub attachments: Vec<Attachment>,
}

/// A space that is served over NBD.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Export {
    /// The pool.
    pub pool: String,
    /// The space.
    pub space: String,
    /// The name that clients ask for: `POOL/SPACE`.
    pub name: String,
    /// The Unix socket.
    pub socket: String,
    /// The address in the form that NBD clients take.
    pub uri: String,
    /// Whether it takes no changes.
    pub is_read_only: bool,
    /// Clients that have it open.
    pub client_count: u64,
}

/// All served spaces.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Exports {
    /// [`SCHEMA`](crate::SCHEMA).
    pub schema: u32,
    /// By pool and space.
    pub exports: Vec<Export>,
}

/// Serves a space over NBD on the daemon's own socket for that.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ServeSpace {
    /// Take no changes.
    #[serde(default)]
    pub read_only: bool,
    /// Only tell what would happen.
    #[serde(default)]
    pub dry_run: bool,
}
