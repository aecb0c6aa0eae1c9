//! What a change would do, and what it did.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::job::Job;
use crate::pool::Pool;
use crate::share::Share;
use crate::space::Space;
use crate::transport::{Attachment, Export};
use crate::volume::{Volume, VolumePlan};

/// What a change would do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Plan {
    /// Bytes that the pool could still take as a mirror of two copies (or, on a single disk, as one copy) before.
    pub usable_before_bytes: u64,
    /// The same afterwards.
    pub usable_after_bytes: u64,
    /// Bytes that would be copied between disks, at most: what is claimed there. What was never written is not copied.
    pub moved_bytes: u64,
    /// Whether a command of this version takes it back without loss, or there is nothing to take back.
    pub is_reversible: bool,
    /// The command that takes it back, if there is one.
    #[serde(default)]
    pub undo: Option<String>,
    /// What would happen, in order.
    pub steps: Vec<String>,
}

/// The answer to a request for a change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Change {
    /// [`SCHEMA`](crate::SCHEMA).
    pub schema: u32,
    /// Whether anything was changed; `false` for a dry run, and when all was as wanted before.
    pub is_changed: bool,
    /// What would happen, or has happened.
    pub plan: Plan,
    /// One sentence for people.
    pub message: String,
    /// What they should know beside.
    #[serde(default)]
    pub warnings: Vec<String>,
    /// The job that goes on with it.
    #[serde(default)]
    pub job: Option<Job>,
    /// Further jobs that go on with it beside that one or behind it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub further_jobs: Vec<Job>,
    /// The pool, afterwards.
    #[serde(default)]
    pub pool: Option<Pool>,
    /// The space, afterwards.
    #[serde(default)]
    pub space: Option<Space>,
    /// How the space is attached.
    #[serde(default)]
    pub attachment: Option<Attachment>,
    /// How the space is served.
    #[serde(default)]
    pub export: Option<Export>,
    /// The volume, afterwards.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume: Option<Volume>,
    /// The share, afterwards.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share: Option<Share>,
    /// How the file system of a volume is made and mounted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume_plan: Option<VolumePlan>,
}

/// A request that has nothing to say but whether to try only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Simple {
    /// Only tell what would happen.
    #[serde(default)]
    pub dry_run: bool,
}
