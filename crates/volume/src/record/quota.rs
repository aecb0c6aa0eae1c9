//! The record of a quota: a bound for one folder of a volume.

use super::{Unknown, value_of_the_map};
use crate::mount_point::Folder;
use serde::{Deserialize, Serialize};
use std::num::NonZeroU32;

/// Bounds of what a folder may hold.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuotaRecord {
    /// Folder that it bounds.
    pub folder: Folder,
    /// Bytes, at most; none for no bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit_bytes: Option<u64>,
    /// Files and folders, at most; none for no bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit_files: Option<u64>,
    /// Project of XFS and ext4, or level-0 group of btrfs, that counts the folder. Zero counts what no quota covers.
    pub project_id: NonZeroU32,
    /// Whether the file system has not been seen to take the bounds.
    #[serde(default, rename = "pending", skip_serializing_if = "std::ops::Not::not")]
    pub is_pending: bool,
    /// Whether the file system has not been seen to drop the bounds, which it is to do. The record is deleted after that.
    #[serde(default, rename = "removing", skip_serializing_if = "std::ops::Not::not")]
    pub is_being_removed: bool,
    /// Fields of later builds.
    #[serde(flatten)]
    pub unknown: Unknown,
}

value_of_the_map!(QuotaRecord, "quota");
