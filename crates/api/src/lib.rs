//! The documents that the daemon and whoever drives it exchange: JSON over HTTP/1.1 on a Unix socket, below `/v1`.
//!
//! | method and path | request | answer |
//! |---|---|---|
//! | `GET /v1/version` | | [`Version`] |
//! | `GET /v1/status` | | [`Status`] |
//! | `GET /v1/openapi.json` | | the OpenAPI description of all this |
//! | `GET /v1/pools`, `POST /v1/pools` | [`CreatePool`] | [`Pools`], [`Change`] |
//! | `GET /v1/pools/{pool}` | | [`PoolDocument`] |
//! | `POST /v1/pools/import` | [`ImportPool`] | [`Change`] |
//! | `POST /v1/pools/{pool}/export`, `…/scrub`, `…/resync` | [`Simple`] | [`Change`] |
//! | `POST /v1/pools/{pool}/acknowledge` | [`Simple`] | [`Change`] |
//! | `POST /v1/pools/{pool}/rebalance` | [`Simple`] | [`Change`] with a job, unless all is even |
//! | `POST /v1/pools/{pool}/rebalance/cancel` | [`Simple`] | [`Change`] with a job |
//! | `POST /v1/pools/{pool}/write_cache/drain` | [`DrainWriteCache`] | [`Change`] |
//! | `POST /v1/pools/{pool}/disks/{disk}/enclosure` | [`SetEnclosure`] | [`Change`] |
//! | `POST /v1/pools/{pool}/disks/{disk}/forget` | [`ForgetDisk`] | [`Change`] |
//! | `POST /v1/pools/{pool}/disks/{disk}/role` | [`SetDiskRole`] | [`Change`] |
//! | `POST /v1/pools/{pool}/alert_at` | [`SetAlertAt`] | [`Change`] |
//! | `POST /v1/pools/{pool}/keep_room` | [`SetKeepRoom`] | [`Change`] |
//! | `POST /v1/pools/{pool}/repair_after` | [`SetRepairAfter`] | [`Change`] |
//! | `POST /v1/pools/{pool}/write_cache/resize` | [`ResizeWriteCache`] | [`Change`] with a job |
//! | `POST /v1/pools/{pool}/destroy` | [`Destroy`] | [`Change`] |
//! | `GET /v1/pools/{pool}/disks`, `POST …` | [`AddDisks`] | [`Disks`], [`Change`], with a job where a rebalance follows |
//! | `POST /v1/pools/{pool}/disks/{disk}/replace` | [`ReplaceDisk`] | [`Change`] with a job |
//! | `POST /v1/pools/{pool}/disks/{disk}/replace/cancel` | [`Simple`] | [`Change`] with a job |
//! | `POST /v1/pools/{pool}/disks/{disk}/remove` | [`Simple`] | [`Change`] with a job |
//! | `POST /v1/pools/{pool}/disks/{disk}/remove/cancel` | [`Simple`] | [`Change`] |
//! | `POST /v1/pools/{pool}/disks/{disk}/online` | [`OnlineDisk`] | [`Change`] with a job |
//! | `POST /v1/pools/{pool}/disks/{disk}/offline` | [`Simple`] | [`Change`] |
//! | `POST /v1/pools/{pool}/disks/{disk}/locate` | [`LocateDisk`] | [`Change`] |
//! | `POST /v1/pools/{pool}/disks/{disk}/set` | [`SetDisk`] | [`Change`] |
//! | `GET /v1/pools/{pool}/df` | | [`Df`] |
//! | `GET /v1/pools/{pool}/spaces`, `POST …` | [`CreateSpace`] | [`Spaces`], [`Change`] |
//! | `GET /v1/pools/{pool}/spaces/{space}` | | [`SpaceDocument`] |
//! | `POST /v1/pools/{pool}/spaces/{space}/resize` | [`ResizeSpace`] | [`Change`] |
//! | `POST /v1/pools/{pool}/spaces/{space}/convert` | [`ConvertSpace`] | [`Change`] with a job, unless it is laid so already |
//! | `POST /v1/pools/{pool}/spaces/{space}/rename` | [`RenameSpace`] | [`Change`] |
//! | `POST /v1/pools/{pool}/spaces/{space}/limits` | [`SetLimits`] | [`Change`] |
//! | `POST /v1/pools/{pool}/spaces/{space}/reserve` | [`SetReserve`] | [`Change`] |
//! | `POST /v1/pools/{pool}/spaces/{space}/delete` | [`DeleteSpace`] | [`Change`], with a job where it is purged |
//! | `GET /v1/pools/{pool}/trash`, `/v1/trash` | | [`Trash`] |
//! | `POST /v1/pools/{pool}/trash/{space}/restore` | [`RestoreSpace`] | [`Change`] |
//! | `POST /v1/pools/{pool}/trash/purge` | [`PurgeTrash`] | [`Change`] with a job |
//! | `POST /v1/pools/{pool}/spaces/{space}/attach` | [`AttachSpace`] | [`Change`] |
//! | `POST /v1/pools/{pool}/spaces/{space}/detach` | [`DetachSpace`] | [`Change`] |
//! | `POST /v1/pools/{pool}/spaces/{space}/unserve` | [`Simple`] | [`Change`] |
//! | `POST /v1/pools/{pool}/spaces/{space}/serve` | [`ServeSpace`] | [`Change`] |
//! | `GET /v1/devices`, `/v1/spaces`, `/v1/attachments`, `/v1/exports` | | [`Devices`], [`Spaces`], [`Attachments`], [`Exports`] |
//! | `GET /v1/jobs`, `/v1/jobs/{id}` | | [`Jobs`], [`JobDocument`] |
//! | `POST /v1/jobs/{id}/pause`, `…/resume`, `…/stop` | [`Simple`] | [`Change`] |
//! | `POST /v1/jobs/{id}/set` | [`SetJob`] | [`Change`] with the job |
//! | `GET /v1/why/{object}` | | [`Why`] |
//! | `GET /v1/events?since=…&pool=…` | | [`Events`] |
//! | `GET /v1/counters` | | [`Counters`] |
//! | `GET /v1/figures` | | [`Figures`] |
//! | `POST /v1/shutdown` | [`Shutdown`] | [`Change`] |
//!
//! `{object}` is the name of a pool, a disk by its path or id, `POOL/SPACE`, `POOL/SLOT`, or the number of a job, percent-encoded.
//!
//! `{disk}` is what [`Disk`] shows as path, id (or its first digits) or slot, percent-encoded. A `POST` without a body is
//! the same as with `{}` where every field has a default.
//!
//! Rules, for both sides:
//! - Every answer has `schema`, which is [`SCHEMA`]. It goes up when a field changes its meaning or goes away; new fields
//!   come without notice, so readers ignore those that they do not know. Requests with unknown fields are refused: an old
//!   daemon must not silently do less than it was asked for.
//! - An answer whose status is not 2xx is an [`ErrorDocument`].
//! - Every request for a change has `dry_run`: it is then answered with the [`Plan`], and nothing is changed.
//! - Sizes are bytes and end in `_bytes`; times are seconds and end in `_s`, milliseconds and end in `_ms`, or microseconds and end
//!   in `_us`.

mod code;
mod counter;
mod error;
mod event;
mod exit;
mod figures;
mod finding;
mod job;
mod place;
mod plan;
mod pool;
mod request;
mod room;
mod smart;
mod space;
mod status;
mod time;
mod transport;
mod trash;
mod why;

use std::path::{Path, PathBuf};

pub use code::{CodeKind, Explanation, all_codes};
pub use counter::{Counters, DiskTally, PoolTally, SpaceTally};
pub use error::{ErrorBody, ErrorCode, ErrorDocument};
pub use event::{Event, EventCode, Events};
pub use exit::ExitCode;
pub use figures::{DiskFigures, Figures, IoFigures, LatencyBucket, Load, SpaceFigures};
pub use finding::{Finding, FindingCode, Object, ObjectKind};
pub use job::{Eta, Job, JobDocument, JobKind, JobPriority, JobState, Jobs, SetJob};
pub use place::{LocateDisk, SetDisk};
pub use plan::{Change, Plan, Simple};
pub use pool::{
    AddDisks, BackingState, CreatePool, Destroy, Device, DeviceState, Devices, Disk, DiskRole, DiskState,
    Disks, DrainWriteCache, ForgetDisk, ImportMode, ImportPool, OnlineDisk, Pool, PoolDocument, PoolState,
    Pools, ReplaceDisk, ResizeWriteCache, SetAlertAt, SetDiskRole, SetEnclosure, SetKeepRoom, SetRepairAfter,
    WriteCache,
};
pub use request::{RequestError, read_request};
pub use room::{Df, DiskRoom, Fits};
pub use smart::Smart;
pub use space::{
    ConvertSpace, CreateSpace, FormerLayout, Integrity, Provisioning, RenameSpace, ResiliencyKind,
    ResizeSpace, SetLimits, SetReserve, Space, SpaceDocument, SpaceLimits, Spaces,
};
pub use status::{Health, Shutdown, Status, Version};
pub use time::duration;
pub use transport::{
    AttachSpace, AttachedBy, Attachment, Attachments, DetachSpace, Export, Exports, NetworkExport,
    ServeNetwork, ServeSpace, TlsFiles, Transport,
};
pub use trash::{DeleteSpace, PurgeTrash, RestoreSpace, Trash, TrashedSpace};

pub use why::{Cause, Why};

/// The version of the documents. Stands in every answer.
pub const SCHEMA: u32 = 1;
/// The version of the API: the first part of every path.
pub const API_VERSION: u32 = 1;
/// Folder in which the daemon keeps what it has to remember, unless a setting names another.
pub const STATE_FOLDER: &str = "/var/lib/dolmen";
/// Folder of the daemon's sockets and locks, unless a setting names another.
pub const RUN_FOLDER: &str = "/run/dolmen";
/// Name of the API's socket in the run folder.
pub const SOCKET_NAME: &str = "dolmen.sock";
/// Where the daemon listens when nobody says otherwise.
pub const SOCKET_PATH: &str = "/run/dolmen/dolmen.sock";
/// The setting in the environment that names another socket.
pub const SOCKET_VARIABLE: &str = "DOLMEN_SOCKET";
/// The longest body of a request that the daemon reads.
pub const REQUEST_BYTES_MAX: usize = 256 * 1024;

/// Returns the lock file of a socket, which holds the process id of its daemon: two daemons with different state may still be
/// given one socket.
#[must_use]
pub fn socket_lock(socket: &Path) -> PathBuf {
    let mut name = socket.file_name().unwrap_or_default().to_os_string();
    name.push(".lock");
    socket.with_file_name(name)
}

/// The schema that every document says of itself.
pub(crate) const fn schema() -> u32 {
    SCHEMA
}
