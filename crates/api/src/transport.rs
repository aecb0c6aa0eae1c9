//! The ways in: spaces attached as block devices, and spaces served over NBD.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What shows an attached space as a block device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum AttachedBy {
    /// A loop device over a file, which the daemon serves over FUSE.
    #[default]
    Loop,
    /// A ublk device, which the daemon serves itself.
    Ublk,
    /// A loop device over a file, which the daemon serves over FUSE by io_uring: it does not survive the daemon.
    LoopUring,
}

/// How a space is to be attached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Transport {
    /// The fastest way that works; one that is attached stays as it is.
    #[default]
    Auto,
    /// By a loop device over FUSE.
    Loop,
    /// By a ublk device.
    Ublk,
    /// By a loop device over FUSE whose requests go over io_uring. Never taken unless it is asked for: it does not survive
    /// the daemon. When that ends, what is under way fails, and the device is gone until it is attached again.
    LoopUring,
}

impl Transport {
    /// Whether nothing was said.
    #[must_use]
    pub fn is_auto(&self) -> bool {
        *self == Self::Auto
    }
}

/// Attaches a space as a block device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AttachSpace {
    /// In which way.
    #[serde(default, skip_serializing_if = "Transport::is_auto")]
    pub transport: Transport,
    /// Only tell what would happen.
    #[serde(default)]
    pub dry_run: bool,
}

/// Detaches a space.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DetachSpace {
    /// Its name, typed again: what was written and cannot be flushed, because disks are away, is discarded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub discard_unflushed: Option<String>,
    /// Only tell what would happen.
    #[serde(default)]
    pub dry_run: bool,
}

/// A space that is attached as a block device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Attachment {
    /// The pool.
    pub pool: String,
    /// The space.
    pub space: String,
    /// The stable name: `/dev/dolmen/POOL/SPACE`.
    pub path: String,
    /// The device behind it.
    pub device: String,
    /// What kind of device that is.
    #[serde(default)]
    pub transport: AttachedBy,
    /// Why a faster way was not taken, in the answer to an attach that left the choice.
    #[serde(default)]
    pub not_faster_because: Option<String>,
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
    /// Where on a network it is served as well.
    #[serde(default)]
    pub network: Option<NetworkExport>,
}

/// A space that is served on an address and port.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NetworkExport {
    /// The address and port.
    pub listen: String,
    /// The address in the form that NBD clients take.
    pub uri: String,
    /// Whether clients need TLS and a certificate.
    pub is_tls: bool,
    /// The names of certificates that may open it; all that its authority has signed when empty.
    pub allow: Vec<String>,
    /// Why nobody can connect at the moment.
    #[serde(default)]
    pub problem: Option<String>,
}

/// All served spaces.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Exports {
    /// [`SCHEMA`](crate::SCHEMA).
    pub schema: u32,
    /// By pool and space.
    pub exports: Vec<Export>,
}

/// The files of a listener with TLS, in PEM form, as paths from the root that the daemon reads.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TlsFiles {
    /// The server's certificate, and those between it and its authority.
    #[schema(value_type = String)]
    pub certificate: PathBuf,
    /// Its key.
    #[schema(value_type = String)]
    pub key: PathBuf,
    /// The authorities that sign the certificates of clients.
    #[schema(value_type = String)]
    pub client_ca: PathBuf,
}

/// Where on a network a space is served, and to whom.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ServeNetwork {
    /// Address and port, as numbers.
    pub listen: String,
    /// The files of TLS; may be left out on a loopback address alone.
    #[serde(default)]
    pub tls: Option<TlsFiles>,
    /// The names of certificates that may open it; all that the authority has signed when empty.
    #[serde(default)]
    pub allow: Vec<String>,
}

/// Serves a space over NBD on the daemon's own socket for that, and on a network where the request says so.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ServeSpace {
    /// Take no changes.
    #[serde(default)]
    pub read_only: bool,
    /// Where on a network as well.
    #[serde(default)]
    pub network: Option<ServeNetwork>,
    /// Only tell what would happen.
    #[serde(default)]
    pub dry_run: bool,
}
