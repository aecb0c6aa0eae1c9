//! Quotas: bounds of folders of volumes.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A quota.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Quota {
    /// Folder in the volume; empty for all of it.
    pub folder: String,
    /// Bytes, at most; absent for no bound.
    #[serde(default)]
    pub limit_bytes: Option<u64>,
    /// Files and folders, at most; absent for no bound.
    #[serde(default)]
    pub limit_files: Option<u64>,
    /// Number that counts the folder: a project, or a subvolume of btrfs.
    #[serde(default)]
    pub project_id: Option<u32>,
    /// Bytes that the folder holds, if they are counted.
    #[serde(default)]
    pub used_bytes: Option<u64>,
    /// Files and folders in it, if they are counted.
    #[serde(default)]
    pub used_files: Option<u64>,
    /// Reasons why it does not bound the folder as its record says.
    #[serde(default)]
    pub why: Vec<String>,
}

/// Quotas of a volume.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Quotas {
    /// [`SCHEMA`](crate::SCHEMA).
    pub schema: u32,
    /// By folder.
    pub quotas: Vec<Quota>,
    /// Reason why nothing is counted, if that is so.
    #[serde(default)]
    pub unavailable: Option<String>,
}

/// Bounds a folder of a volume. A folder that is missing is made.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SetQuota {
    /// Folder in the volume; empty for all of it.
    pub folder: String,
    /// Bytes, at most; no bound when left out.
    #[serde(default)]
    pub limit_bytes: Option<u64>,
    /// Files and folders, at most; no bound when left out.
    #[serde(default)]
    pub limit_files: Option<u64>,
    /// Return only the plan.
    #[serde(default)]
    pub dry_run: bool,
}

/// Removes the bound of a folder; its content stays.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RemoveQuota {
    /// Folder in the volume; empty for all of it.
    pub folder: String,
    /// Return only the plan.
    #[serde(default)]
    pub dry_run: bool,
}
