//! Volumes: file systems on spaces.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::space::{Integrity, Provisioning, ResiliencyKind};
use crate::status::Health;

/// Purpose of a volume, which decides its file system and options.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum VolumePurpose {
    /// Files of any kind.
    Files,
    /// Documents, which compress well.
    Documents,
    /// Images of virtual machines, written in place.
    Vms,
    /// Files of a database, written in place.
    Database,
    /// Copies that are seldom read, which compress well.
    Backup,
}

/// File system of a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum FileSystemKind {
    /// XFS.
    Xfs,
    /// btrfs.
    Btrfs,
    /// ext4.
    Ext4,
}

/// State of a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum VolumeState {
    /// Its file system is being made.
    Making,
    /// Its file system is whole.
    Ready,
    /// Adopted: Dolmen never runs mkfs on it.
    Foreign,
    /// On its way to the trash.
    Deleting,
    /// Its record is of a later version, or damaged.
    NotUnderstood,
}

/// State of the mount of a volume.
///
/// While it is `mounted` or `unmounted`, no step is under way: the next request for the volume waits for none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum MountState {
    /// Its file system is not made yet.
    Making,
    /// It is being mounted, or taken up by a daemon that started.
    Mounting,
    /// It is mounted, and its shares are offered.
    Mounted,
    /// It is being unmounted.
    Unmounting,
    /// It is not mounted.
    #[default]
    Unmounted,
}

/// A process that works on a volume.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct VolumeWorker {
    /// Id of the process.
    pub pid: u32,
    /// Operation, such as `mkfs`.
    pub operation: String,
    /// Seconds since it began.
    pub elapsed_s: u64,
    /// Whether the operation takes long by its nature, such as a deduplication: its job shows how far it is.
    #[serde(default)]
    pub is_long: bool,
}

/// A volume.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Volume {
    /// Pool that it lies on.
    pub pool: String,
    /// Name of its space, which is its own.
    pub name: String,
    /// Its health; that of its space stands with the space.
    pub health: Health,
    /// Reasons, if it is not healthy.
    pub why: Vec<String>,
    /// State.
    pub state: VolumeState,
    /// Size of its space.
    pub size_bytes: u64,
    /// Bytes of its space for which room is claimed.
    pub claimed_bytes: u64,
    /// File system; absent if its record is not understood, as all below that comes from the record.
    #[serde(default)]
    pub file_system: Option<FileSystemKind>,
    /// UUID of the file system.
    #[serde(default)]
    pub uuid: Option<String>,
    /// Label of the file system.
    #[serde(default)]
    pub label: Option<String>,
    /// Purpose; absent if it was adopted.
    #[serde(default)]
    pub purpose: Option<VolumePurpose>,
    /// Oldest kernel that is to mount it; absent if none was named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oldest_kernel: Option<String>,
    /// Options of mkfs.
    #[serde(default)]
    pub mkfs_options: Vec<String>,
    /// Options of the mount.
    #[serde(default)]
    pub mount_options: Vec<String>,
    /// Place to mount it on.
    #[serde(default)]
    pub mount_point: Option<String>,
    /// Whether it is to be mounted whenever its pool is open.
    #[serde(default)]
    pub is_to_be_mounted: bool,
    /// Whether it is neither made nor mounted because another host chose its mount point, and nobody has accepted that here.
    #[serde(default)]
    pub is_held: bool,
    /// State of its mount.
    #[serde(default)]
    pub mount_state: MountState,
    /// Place that it is mounted on; absent in every other state of its mount.
    #[serde(default)]
    pub mounted_at: Option<String>,
    /// Device, while its space is attached.
    #[serde(default)]
    pub device: Option<String>,
    /// Bytes that the file system can hold, when they were counted last.
    #[serde(default)]
    pub total_bytes: Option<u64>,
    /// Bytes free in it, when they were counted last.
    #[serde(default)]
    pub free_bytes: Option<u64>,
    /// Inodes that it can hold, when they were counted last; none where that has no limit.
    #[serde(default)]
    pub inodes: Option<u64>,
    /// Inodes free in it, when they were counted last.
    #[serde(default)]
    pub free_inodes: Option<u64>,
    /// Days until it is full at the rate of the last week; none if it does not grow, or less than a day is known.
    #[serde(default)]
    pub days_until_full: Option<u64>,
    /// Errors that the kernel found in the file system, a sentence each.
    #[serde(default)]
    pub errors: Vec<String>,
    /// Process that works on it now.
    #[serde(default)]
    pub worker: Option<VolumeWorker>,
}

/// Volumes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Volumes {
    /// [`SCHEMA`](crate::SCHEMA).
    pub schema: u32,
    /// By pool and name.
    pub volumes: Vec<Volume>,
}

/// One volume.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct VolumeDocument {
    /// [`SCHEMA`](crate::SCHEMA).
    pub schema: u32,
    /// The volume.
    pub volume: Volume,
}

/// Package that the host lacks, and what is lost without it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MissingPackage {
    /// Its name, as Debian has it; `kernel` for the kernel.
    pub package: String,
    /// Version from which on it would do.
    pub needed: String,
    /// Version that is here.
    #[serde(default)]
    pub found: Option<String>,
    /// What is lost, as a sentence.
    pub lost: String,
}

/// How the file system of a volume is made and mounted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct VolumePlan {
    /// File system.
    pub file_system: FileSystemKind,
    /// Program that makes it, with its arguments; `DEVICE` stands for the device.
    pub mkfs: Vec<String>,
    /// Options of the mount.
    pub mount_options: Vec<String>,
    /// Place to mount it on.
    pub mount_point: String,
    /// Reasons for file system and options, as sentences.
    pub reasons: Vec<String>,
    /// What this host lacks.
    pub missing: Vec<MissingPackage>,
}

/// Makes a volume on a new space.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateVolume {
    /// Its name, and that of its space.
    pub name: String,
    /// Size of the space, a multiple of 4 KiB.
    pub size_bytes: u64,
    /// What the volume is for.
    pub purpose: VolumePurpose,
    /// File system; that of the purpose when left out.
    #[serde(default)]
    pub file_system: Option<FileSystemKind>,
    /// Label of the file system; none when left out.
    #[serde(default)]
    pub label: Option<String>,
    /// Oldest kernel that is to mount it, on this host or another, such as `6.1`; that of this host when left out.
    #[serde(default)]
    pub oldest_kernel: Option<String>,
    /// Place to mount it on, an absolute path; `/srv/POOL/NAME` when left out.
    #[serde(default)]
    pub mount_point: Option<String>,
    /// How the space survives the loss of disks.
    pub resiliency: ResiliencyKind,
    /// Copies of a mirror, 2 to 4; 2 when left out.
    #[serde(default)]
    pub copies: Option<u8>,
    /// Parity columns of a space with parity, 1 or 2; 1 when left out.
    #[serde(default)]
    pub parity: Option<u8>,
    /// Data columns; automatic when left out.
    #[serde(default)]
    pub columns: Option<u8>,
    /// Bytes written to one column before the next; when left out as for a space.
    #[serde(default)]
    pub interleave_bytes: Option<u64>,
    /// Bytes of a row; when left out as for a space, but 4 MiB of a thin mirror, simple or span for files or documents up to 1 TiB.
    #[serde(default)]
    pub row_bytes: Option<u64>,
    /// Thin or fixed.
    #[serde(default)]
    pub provisioning: Provisioning,
    /// Relaxed or strict; with parity strict, otherwise relaxed, when left out.
    #[serde(default)]
    pub integrity: Option<Integrity>,
    /// Logical sector, 512 or 4096; when left out as for a space.
    #[serde(default)]
    pub sector_bytes: Option<u64>,
    /// Only tell what would happen.
    #[serde(default)]
    pub dry_run: bool,
}

/// Mounts a volume, now and whenever its pool is opened.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct MountVolume {
    /// Place to mount it on from now on; the one on record when left out.
    #[serde(default)]
    pub mount_point: Option<String>,
    /// Only tell what would happen.
    #[serde(default)]
    pub dry_run: bool,
}

/// Checks a volume that is not mounted, or scrubs a mounted btrfs.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CheckVolume {
    /// Repair what is found, which may lose parts of files.
    #[serde(default)]
    pub repair: bool,
    /// Drop the log in the repair, with the changes in it, where no mount replays it.
    #[serde(default)]
    pub drop_log: bool,
    /// To repair it, its name, typed again by whoever wants that.
    #[serde(default)]
    pub destroy: Option<String>,
    /// Only tell what would happen.
    #[serde(default)]
    pub dry_run: bool,
}

/// Makes a volume of a space with a file system.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AdoptVolume {
    /// Place to mount it on; `/srv/POOL/NAME` when left out.
    #[serde(default)]
    pub mount_point: Option<String>,
    /// Only tell what would happen.
    #[serde(default)]
    pub dry_run: bool,
}
