//! The record of a volume: what its file system is, where it is mounted, and what is done to it when.

use super::{Unknown, host_id, value_of_the_map};
use crate::file_system::{FileSystem, FileSystemUuid};
use crate::mount_point::MountPoint;
use crate::profile::{Purpose, option_of_no_profile};
use crate::schedule::Schedule;
use crate::version::Version;
use dolmen_mutation::mutation;
use dolmen_units::HostId;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// State of a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum VolumeState {
    /// `mkfs` has not been seen to end.
    Making,
    /// The file system is whole.
    Ready,
    /// Adopted: Dolmen never runs `mkfs` on it.
    Foreign,
    /// On its way to the trash.
    Deleting,
}

impl VolumeState {
    /// All states.
    pub const ALL: [Self; 4] = [Self::Making, Self::Ready, Self::Foreign, Self::Deleting];
}

/// State of a volume that people asked for last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DesiredVolume {
    /// Mounted whenever its pool is open.
    Mounted,
    /// Not mounted.
    Unmounted,
}

/// One option of a mount: a word, or a word and a value.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct MountOption(String);

/// Options that a mount obeys, beside a level of compression: those of profiles and quotas, and those that only take rights away.
const OBEYED: [&str; 9] =
    ["noatime", "nodev", "nosuid", "noexec", "ro", "nodiscard", "prjquota", "pquota", "pqnoenforce"];
/// Beginning of the option for compression.
const COMPRESSION: &str = "compress=zstd:";

/// A text that is no option of a mount.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MountOptionError {
    /// No character.
    #[error("an option of a mount has at least one character; leave it out")]
    Empty,
    /// A comma would begin another option; a space or a control character is in none.
    #[error("the mount option {text:?} has {character:?} in it; give one option at a time, without it")]
    Character {
        /// Text that was given, cut to 80 characters.
        text: String,
        /// First such character.
        character: char,
    },
}

impl MountOption {
    /// The option.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for MountOption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl FromStr for MountOption {
    type Err = MountOptionError;

    fn from_str(text: &str) -> Result<Self, MountOptionError> {
        if text.is_empty() {
            return Err(MountOptionError::Empty);
        }
        match text.chars().find(|c| *c == ',' || c.is_whitespace() || c.is_control()) {
            Some(character) => {
                Err(MountOptionError::Character { text: text.chars().take(80).collect(), character })
            }
            None => Ok(Self(text.to_owned())),
        }
    }
}

impl From<MountOption> for String {
    fn from(option: MountOption) -> Self {
        option.0
    }
}

impl TryFrom<String> for MountOption {
    type Error = MountOptionError;

    fn try_from(text: String) -> Result<Self, MountOptionError> {
        text.parse()
    }
}

/// When a volume is looked after.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Schedules {
    /// Check of the file system.
    #[serde(default)]
    pub check: Schedule,
    /// Return of free room to the pool.
    #[serde(default)]
    pub trim: Schedule,
    /// Deduplication.
    #[serde(default)]
    pub deduplication: Schedule,
    /// Fields of later builds.
    #[serde(flatten)]
    pub unknown: Unknown,
}

/// How much of the host a deduplication takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DeduplicationMode {
    /// It yields to clients.
    Background,
    /// It runs as fast as it can.
    Throughput,
}

/// Policy of deduplication.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Deduplication {
    /// Load that it may cause.
    pub mode: DeduplicationMode,
    /// Days since the last change of a file, at least.
    pub age_days_min: u32,
    /// Bytes of a file, at least.
    pub file_bytes_min: u64,
    /// Folders that it leaves out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub excluded: Vec<crate::mount_point::Folder>,
    /// Patterns of names that it leaves out: `*` is any number of bytes, `?` is one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub excluded_names: Vec<String>,
    /// Memory that it may take; none for [`MEMORY_BYTES`](Self::MEMORY_BYTES).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    /// Fields of later builds.
    #[serde(flatten)]
    pub unknown: Unknown,
}

impl Deduplication {
    /// Memory of a run whose policy has no bound of its own.
    pub const MEMORY_BYTES: u64 = 256 << 20;
}

impl Default for Deduplication {
    /// Returns the policy of a volume without one: files that were left alone for three days, without load for clients.
    fn default() -> Self {
        Self {
            mode: DeduplicationMode::Background,
            age_days_min: 3,
            file_bytes_min: 32 << 10,
            excluded: Vec::new(),
            excluded_names: Vec::new(),
            memory_bytes: None,
            unknown: Unknown::new(),
        }
    }
}

/// A volume.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeRecord {
    /// State of the file system.
    pub state: VolumeState,
    /// State that people asked for last.
    pub desired: DesiredVolume,
    /// File system.
    pub file_system: FileSystem,
    /// UUID of the file system, drawn before it is made or read when it is adopted.
    pub uuid: FileSystemUuid,
    /// Label of the file system.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// Purpose that its options were chosen for; none if it was adopted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub purpose: Option<Purpose>,
    /// Options of `mkfs`, without device and force, in the order in which they are given.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mkfs_options: Vec<String>,
    /// Whether `mkfs` was begun on a device that read as zeros, and has not been seen to end.
    #[serde(default, rename = "mkfs_begun", skip_serializing_if = "std::ops::Not::not")]
    pub is_mkfs_begun: bool,
    /// Whether its space grows or has grown, and its file system has not been seen to follow.
    #[serde(default, rename = "growing", skip_serializing_if = "std::ops::Not::not")]
    pub is_growing: bool,
    /// Options of the mount.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mount_options: Vec<MountOption>,
    /// Place to mount it on.
    pub mount_point: MountPoint,
    /// Host that chose the mount point, or accepted it. On another host, the same path may be a folder that others look into.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "host_id")]
    pub placed_by: Option<HostId>,
    /// Oldest kernel that is to mount it; none if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oldest_kernel: Option<Version>,
    /// When it is looked after.
    #[serde(default)]
    pub schedules: Schedules,
    /// Policy of deduplication; none for no deduplication.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deduplication: Option<Deduplication>,
    /// Fields of later builds.
    #[serde(flatten)]
    pub unknown: Unknown,
}

value_of_the_map!(VolumeRecord, "volume");

impl VolumeRecord {
    /// Returns whether the volume waits until people of a host accept its mount point, because another host chose it: it is neither
    /// made nor mounted.
    #[must_use]
    pub fn is_held(&self, host: HostId) -> bool {
        self.placed_by != Some(host) && !mutation!(ForeignPlaceObeyed)
    }

    /// Notes that the mount point is that of a host.
    pub fn accept(&mut self, host: HostId) {
        self.placed_by = Some(host);
    }

    /// Returns the first option of `mkfs` that no profile gives, with its value. A pool may come from another host, whose record could
    /// have `mkfs` write to a device of this one.
    #[must_use]
    pub fn mkfs_option_not_obeyed(&self) -> Option<String> {
        let found = option_of_no_profile(self.file_system, &self.mkfs_options);
        found.filter(|_| !mutation!(RecordMkfsOptionsObeyed))
    }

    /// Returns the first option that no mount obeys. A pool may come from another host, whose record could name a log on a device of
    /// this one (`logdev`), give rights (`suid`), or let `mount` run programs.
    #[must_use]
    pub fn option_not_obeyed(&self) -> Option<&MountOption> {
        let is_level = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let is_obeyed = |option: &&MountOption| {
            let text = option.as_str();
            OBEYED.contains(&text) || text.strip_prefix(COMPRESSION).is_some_and(is_level)
        };
        self.mount_options.iter().find(|option| !is_obeyed(option) && !mutation!(RecordOptionsObeyed))
    }

    /// Options for `mount -o`: those of the record, with `nodev` and `nosuid` unless the record has their opposites, which
    /// [`option_not_obeyed`](Self::option_not_obeyed) names.
    ///
    /// A volume may come from another host, whose set-user-id programs and device files are not to be obeyed here.
    #[must_use]
    pub fn options_for_mount(&self) -> String {
        let has = |word: &str| self.mount_options.iter().any(|option| option.as_str() == word);
        let mut options: Vec<&str> = self.mount_options.iter().map(MountOption::as_str).collect();
        for (guard, opposite) in [("nodev", "dev"), ("nosuid", "suid")] {
            if !has(guard) && !has(opposite) && !mutation!(MountedWithDevices) {
                options.push(guard);
            }
        }
        options.join(",")
    }
}
