//! `dolmen volume` and its commands.

use clap::{Args, Subcommand, ValueEnum};
use dolmen_api::{FileSystemKind, VolumePurpose};
use dolmen_units::Bytes;

use crate::arguments::common::{DestroyName, DryRun, PoolFilter, Waiting};
use crate::arguments::quota::QuotaCommand;
use crate::arguments::space::{NewSpace, SpaceTarget};
use crate::arguments::values::{SpaceName, parse_size, parse_space_size};

/// `dolmen volume …`
#[derive(Debug, Subcommand)]
pub(crate) enum VolumeCommand {
    /// Make a volume: a file system on a new space, mounted now and whenever its pool is opened
    Create(VolumeCreate),
    /// List volumes
    List(PoolFilter),
    /// Show a volume
    Show(SpaceTarget),
    /// Mount a volume, now and whenever its pool is opened
    Mount(VolumeMount),
    /// Unmount a volume, and leave it so
    Unmount(VolumeChange),
    /// Grow a volume: its space, its device and its file system
    Grow(VolumeGrow),
    /// Give free room of a mounted volume back to its pool
    Trim(VolumeChange),
    /// Empty rows of a volume that hold little, and give them back to its pool
    Compact(VolumeCompact),
    /// Check the file system of a volume, unmounted or a mounted btrfs; repair it; or see what the last check found
    Check(VolumeCheck),
    /// Make a volume of a space with a file system, and mount it; nothing is written to the space
    Adopt(VolumeAdopt),
    /// Bound folders of a volume, and see what they hold
    #[command(subcommand)]
    Quota(QuotaCommand),
    /// Delete a volume: its space goes into the trash with its record
    Delete(VolumeChange),
}

/// A change of a volume that says no more.
#[derive(Debug, Args)]
pub(crate) struct VolumeChange {
    /// The volume, by the name of its space
    #[arg(value_name = "POOL/SPACE")]
    pub volume: SpaceName,
    /// Whether to do it.
    #[command(flatten)]
    pub dry: DryRun,
}

/// `dolmen volume mount`
#[derive(Debug, Args)]
pub(crate) struct VolumeMount {
    /// The volume, by the name of its space
    #[arg(value_name = "POOL/SPACE")]
    pub volume: SpaceName,
    /// Another place to mount it on from now on, an absolute path
    #[arg(long, value_name = "PATH")]
    pub mount: Option<String>,
    /// Whether to do it.
    #[command(flatten)]
    pub dry: DryRun,
}

/// `dolmen volume grow`
#[derive(Debug, Args)]
pub(crate) struct VolumeGrow {
    /// The volume, by the name of its space
    #[arg(value_name = "POOL/SPACE")]
    pub volume: SpaceName,
    /// The size wanted, a multiple of 4 KiB; not smaller than it is
    #[arg(value_parser = parse_space_size, allow_hyphen_values = true)]
    pub size: Bytes,
    /// Whether to do it.
    #[command(flatten)]
    pub dry: DryRun,
}

/// `dolmen volume compact`
#[derive(Debug, Args)]
pub(crate) struct VolumeCompact {
    /// The volume, by the name of its space
    #[arg(value_name = "POOL/SPACE")]
    pub volume: SpaceName,
    /// Bytes that may be moved, such as 10G; usually no bound
    #[arg(long, value_name = "SIZE", value_parser = parse_size, allow_hyphen_values = true)]
    pub budget: Option<Bytes>,
    /// Whether to wait.
    #[command(flatten)]
    pub waiting: Waiting,
    /// Whether to do it.
    #[command(flatten)]
    pub dry: DryRun,
}

/// `dolmen volume check`
#[derive(Debug, Args)]
pub(crate) struct VolumeCheck {
    /// The volume, by the name of its space
    #[arg(value_name = "POOL/SPACE")]
    pub volume: SpaceName,
    /// Show all that the last check found, and check nothing
    #[arg(long, conflicts_with_all = ["repair", "destroy", "dry_run", "no_wait"])]
    pub report: bool,
    /// Repair what is found, which may lose parts of files
    #[arg(long)]
    pub repair: bool,
    /// Drop the log in the repair, with the changes in it: for a volume that no mount gets to replay it
    #[arg(long, requires = "repair")]
    pub drop_log: bool,
    /// The name again, to repair it.
    #[command(flatten)]
    pub consent: DestroyName,
    /// Whether to wait.
    #[command(flatten)]
    pub waiting: Waiting,
    /// Whether to do it.
    #[command(flatten)]
    pub dry: DryRun,
}

/// `dolmen volume adopt`
#[derive(Debug, Args)]
pub(crate) struct VolumeAdopt {
    /// The space with the file system
    #[arg(value_name = "POOL/SPACE")]
    pub space: SpaceName,
    /// The place to mount it on, an absolute path; usually /srv/POOL/NAME
    #[arg(long, value_name = "PATH")]
    pub mount: Option<String>,
    /// Whether to do it.
    #[command(flatten)]
    pub dry: DryRun,
}

/// Purpose of a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum PurposeWord {
    /// Files of any kind
    Files,
    /// Documents, which compress well
    Documents,
    /// Images of virtual machines, written in place
    Vms,
    /// Files of a database, written in place
    Database,
    /// Copies that are seldom read, which compress well
    Backup,
}

impl PurposeWord {
    /// Returns the purpose as the daemon calls it.
    pub(crate) fn purpose(self) -> VolumePurpose {
        match self {
            Self::Files => VolumePurpose::Files,
            Self::Documents => VolumePurpose::Documents,
            Self::Vms => VolumePurpose::Vms,
            Self::Database => VolumePurpose::Database,
            Self::Backup => VolumePurpose::Backup,
        }
    }
}

/// File system of a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum FileSystemWord {
    /// XFS: instant copies of files, deduplication
    Xfs,
    /// btrfs: compression, instant copies of files
    Btrfs,
    /// ext4: the widest compatibility
    Ext4,
}

impl FileSystemWord {
    /// Returns the file system as the daemon calls it.
    pub(crate) fn kind(self) -> FileSystemKind {
        match self {
            Self::Xfs => FileSystemKind::Xfs,
            Self::Btrfs => FileSystemKind::Btrfs,
            Self::Ext4 => FileSystemKind::Ext4,
        }
    }
}

/// `dolmen volume create`
#[derive(Debug, Args)]
pub(crate) struct VolumeCreate {
    /// The name of the volume and its space, after the pool that it is to lie on
    #[arg(value_name = "POOL/SPACE")]
    pub volume: SpaceName,
    /// What it is for, which decides its file system and options; -n shows them with their reasons
    #[arg(long = "for", value_enum, value_name = "PURPOSE")]
    pub purpose: PurposeWord,
    /// Its file system; usually that of the purpose
    #[arg(long = "fs", value_enum, value_name = "FILE SYSTEM")]
    pub file_system: Option<FileSystemWord>,
    /// The place to mount it on, an absolute path; usually /srv/POOL/NAME
    #[arg(long, value_name = "PATH")]
    pub mount: Option<String>,
    /// The oldest kernel that is to mount it, on this host or another, such as 6.1; usually that of this host. -n shows what it costs
    #[arg(long, value_name = "VERSION")]
    pub oldest_kernel: Option<String>,
    /// Label of the file system; usually none
    #[arg(long, value_name = "LABEL")]
    pub label: Option<String>,
    /// Size and layout of its space.
    #[command(flatten)]
    pub new: NewSpace,
    /// Whether to wait.
    #[command(flatten)]
    pub waiting: Waiting,
    /// Whether to do it.
    #[command(flatten)]
    pub dry: DryRun,
}
