//! The documents that the daemon and whoever drives it exchange: JSON over HTTP/1.1 on a Unix socket, below `/v1`.
//!
//! The verbs stand in one table (`verbs`). From it come the daemon's routes, the client of the command line, the inputs of the fuzzer, and
//! `docs/api` with the OpenAPI description; a test compares these documents with the table and the types.
//!
//! Rules, for both sides:
//! - Every answer has `schema`, which is [`SCHEMA`]. It goes up when a field changes its meaning or goes away; new fields
//!   come without notice, so readers ignore those that they do not know. Requests with unknown fields are refused: an old
//!   daemon must not silently do less than it was asked for.
//! - An answer whose status is not 2xx is an [`ErrorDocument`].
//! - Every request for a change has `dry_run`: it is then answered with the [`Plan`], and nothing is changed.
//! - Sizes are bytes and end in `_bytes`; times are seconds and end in `_s`, milliseconds and end in `_ms`, or microseconds and end
//!   in `_us`.

mod benchmark;
mod check;
mod code;
mod counter;
mod dedup;
mod error;
mod event;
mod exit;
mod figures;
mod finding;
mod history;
mod job;
mod openapi;
mod place;
mod plan;
mod pool;
mod quota;
mod request;
mod room;
mod share;
mod shell;
mod slab_map;
mod smart;
mod space;
mod status;
#[cfg(test)]
mod tests;
mod time;
mod transport;
mod trash;
mod verb_declaration;
mod verb_page;
mod verbs;
mod volume;
mod why;

use std::path::{Path, PathBuf};

pub use benchmark::{
    BenchSpace, BenchmarkComparison, BenchmarkFigure, BenchmarkFigures, BenchmarkGroup, BenchmarkKnee,
    BenchmarkPoint, BenchmarkProfile, BenchmarkRatio, BenchmarkReport, BenchmarkSummary, BenchmarkTarget,
    BenchmarkWork, Benchmarks,
};
pub use check::{CheckFinding, CheckKind, CheckResult, CheckSeverity, VolumeCheck};
pub use code::{CodeKind, Explanation, all_codes};
pub use counter::{Counters, DiskTally, PoolTally, SpaceTally};
pub use dedup::{
    CompactVolume, Dedup, DedupMode, DedupPolicy, DedupRun, DedupWork, EnableDedup, EstimateDedup, RunDedup,
    UndoDedup,
};
pub use error::{ErrorBody, ErrorCode, ErrorDocument};
pub use event::{Event, EventCode, Events, EventsQuery};
pub use exit::ExitCode;
pub use figures::{DiskFigures, Figures, IoFigures, LatencyBucket, Load, SpaceFigures};
pub use finding::{Finding, FindingCode, Object, ObjectKind};
pub use history::{
    FillForecast, FillState, History, HistoryBytes, HistoryPoint, HistoryQuery, HistoryRequests,
};
pub use job::{Eta, Job, JobDocument, JobKind, JobPriority, JobState, Jobs, SetJob};
pub use openapi::{OPENAPI_PATH, openapi};
pub use place::{LocateDisk, SetDisk};
pub use plan::{Change, Plan, Simple};
pub use pool::{
    AddDisks, BackingState, CreatePool, Destroy, Device, DeviceState, Devices, Disk, DiskRole, DiskState,
    Disks, DrainWriteCache, ForgetDisk, ImportMode, ImportPool, OnlineDisk, Pool, PoolDocument, PoolState,
    Pools, ReplaceDisk, ResizeWriteCache, SetAlertAt, SetDiskRole, SetEnclosure, SetKeepRoom, SetRepairAfter,
    WriteCache,
};
pub use quota::{Quota, Quotas, RemoveQuota, SetQuota};
pub use request::{Nothing, RequestError, read_request};
pub use room::{Df, DiskRoom, Fits};
pub use share::{
    CreateShare, GrantShare, OfferedShare, RevokeShare, Share, ShareAccess, ShareAccount, ShareAccountGrant,
    ShareAccountKind, ShareDocument, ShareNetworkGrant, ShareProtocol, ShareSession, ShareSessions,
    ShareState, ShareStep, Shares,
};
pub use shell::shell_word;
pub use slab_map::{DiskSlabs, SlabCell, SlabMap, SlabMapQuery, SlabOwner, SlabPurpose, SlabShare};
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

pub use verb_declaration::{
    CallerRole, Declaration, JobStart, Repeat, Verb, VerbKind, VerbVisitor, query_of, segment,
};
pub use verb_page::verb_page;
pub use verbs::{VerbId, verb, visit_verbs};
pub use volume::{
    AdoptVolume, CheckVolume, CreateVolume, FileSystemKind, MissingPackage, MountState, MountVolume, Volume,
    VolumeDocument, VolumePlan, VolumePurpose, VolumeState, VolumeWorker, Volumes,
};
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
/// Name of the socket for `dolmen-web` in the run folder.
pub const WEB_SOCKET_NAME: &str = "web.sock";
/// Socket on which the daemon answers `dolmen-web` when nobody says otherwise.
pub const WEB_SOCKET_PATH: &str = "/run/dolmen/web.sock";
/// User of the system that `dolmen-web` runs as when nobody says otherwise.
pub const WEB_USER: &str = "dolmen-web";
/// Header with the role that bounds a request.
pub const ROLE_HEADER: &str = "dolmen-role";
/// Header with the user of the console, or the token, that a request is made for.
pub const USER_HEADER: &str = "dolmen-user";
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
