//! What the check of a volume found.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What the last check or repair of a volume found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct VolumeCheck {
    /// [`SCHEMA`](crate::SCHEMA).
    pub schema: u32,
    /// Job that checked it.
    pub job: u64,
    /// End of the check, in seconds since 1970.
    pub ended_s: u64,
    /// Now, in the same way.
    pub now_s: u64,
    /// What was done.
    pub kind: CheckKind,
    /// What came of it.
    pub result: CheckResult,
    /// Findings in the order of the tool, 1,000 at most.
    pub findings: Vec<CheckFinding>,
    /// Findings that are left out here.
    pub omitted: u64,
    /// File on the host of the daemon with all that the tool wrote, the middle of very much left out.
    pub file: String,
}

/// Kind of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum CheckKind {
    /// Of the file system, without a change.
    Check,
    /// A repair, and a check after it.
    Repair,
    /// A scrub of a mounted btrfs: all content was compared with its checksums.
    Scrub,
}

/// Outcome of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum CheckResult {
    /// The file system is whole.
    Clean,
    /// It is damaged.
    Damaged,
    /// Its log has changes that only a mount replays, so nothing is known.
    LogNotReplayed,
    /// The check did not run to its end.
    Failed,
}

/// Severity of a finding of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum CheckSeverity {
    /// A line of the tool that is not known.
    Unknown,
    /// A warning of the tool.
    Warning,
    /// Damage.
    Error,
}

/// One finding of a check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CheckFinding {
    /// Its severity.
    pub severity: CheckSeverity,
    /// Line of the tool.
    pub text: String,
    /// Inode that it names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inode: Option<u64>,
    /// Path in the volume that it names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
}
