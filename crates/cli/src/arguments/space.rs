//! `dolmen space` and its commands.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use dolmen_api::{Provisioning, ResiliencyKind};
use dolmen_units::{Bytes, Name};

use crate::arguments::common::{DestroyName, DryRun, PoolFilter, Waiting};
use crate::arguments::values::{IopsLimit, RateLimit, Reserve, SpaceName, parse_size, parse_space_size};

/// `dolmen space …`
#[derive(Debug, Subcommand)]
pub(crate) enum SpaceCommand {
    /// Make a space
    Create(SpaceCreate),
    /// List spaces
    List(PoolFilter),
    /// Show a space
    Show(SpaceTarget),
    /// Change a setting of a space
    Set(SpaceSet),
    /// Change the size of a space
    Resize(SpaceResize),
    /// Convert a space to another resiliency or width while it is used
    Convert(SpaceConvert),
    /// Delete a space: into the trash, or with --purge for good
    Delete(SpaceDelete),
    /// Attach a space as a block device, and print its path
    Attach(AttachArguments),
    /// Detach a space
    Detach(SpaceDetach),
    /// Clear away the device of an attached space whose daemon does not come back; what waits for it fails
    Clear(ClearArguments),
}

/// A space.
#[derive(Debug, Args)]
pub(crate) struct SpaceTarget {
    /// The space
    #[arg(value_name = "POOL/SPACE")]
    pub space: SpaceName,
}

/// A change of a space that says no more.
#[derive(Debug, Args)]
pub(crate) struct SpaceChange {
    /// The space
    #[arg(value_name = "POOL/SPACE")]
    pub space: SpaceName,
    /// Whether to do it.
    #[command(flatten)]
    pub dry: DryRun,
}

/// What `space attach` takes.
#[derive(Debug, Args)]
pub(crate) struct AttachArguments {
    /// The space
    #[arg(value_name = "POOL/SPACE")]
    pub space: SpaceName,
    /// What shows it as a block device
    #[arg(long, value_enum, default_value = "auto", value_name = "TRANSPORT")]
    pub transport: TransportWord,
    /// Whether to do it.
    #[command(flatten)]
    pub dry: DryRun,
}

/// `dolmen space detach`
#[derive(Debug, Args)]
pub(crate) struct SpaceDetach {
    /// The space
    #[arg(value_name = "POOL/SPACE")]
    pub space: SpaceName,
    /// Detach it although it cannot be flushed, because disks with the only copy are gone: what was written last is lost. NAME is its name again
    #[arg(long, value_name = "NAME")]
    pub discard_unflushed: Option<String>,
    /// Whether to do it.
    #[command(flatten)]
    pub dry: DryRun,
}

/// `dolmen space clear`
#[derive(Debug, Args)]
pub(crate) struct ClearArguments {
    /// The device, /dev/ublkbN, or a link to it
    #[arg(value_name = "DEVICE")]
    pub device: PathBuf,
    /// The name again.
    #[command(flatten)]
    pub consent: DestroyName,
    /// Whether to do it.
    #[command(flatten)]
    pub dry: DryRun,
}

/// What shows an attached space as a block device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum TransportWord {
    /// The fastest that works here and survives the daemon
    Auto,
    /// A ublk device: fastest; needs Linux 6.5 or newer with ublk
    Ublk,
    /// A loop device over FUSE: shows partitions and takes a new size on every kernel
    Loop,
    /// The same over io_uring, where the kernel has that switched on (Linux 6.14 or newer). It does not survive the daemon: when
    /// that ends, is killed or upgraded, I/O fails and the space has to be attached again
    LoopUring,
}

/// How a space survives the loss of disks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ResiliencyWord {
    /// Striped over disks, one copy: the loss of any disk loses data
    Simple,
    /// One disk after another, one copy: the loss of any disk loses data
    Span,
    /// 2 to 4 copies on different disks: all but one of them may be lost
    Mirror,
    /// Striped, with 1 or 2 parities: as many disks may be lost, at the room of as many
    Parity,
}

/// When room is claimed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ProvisioningWord {
    /// When it is first written
    Thin,
    /// All when the space is made
    Fixed,
}

impl ResiliencyWord {
    /// As the daemon calls it.
    pub(crate) fn kind(self) -> ResiliencyKind {
        match self {
            Self::Simple => ResiliencyKind::Simple,
            Self::Span => ResiliencyKind::Span,
            Self::Mirror => ResiliencyKind::Mirror,
            Self::Parity => ResiliencyKind::Parity,
        }
    }
}

impl ProvisioningWord {
    /// As the daemon calls it.
    pub(crate) fn when(self) -> Provisioning {
        match self {
            Self::Thin => Provisioning::Thin,
            Self::Fixed => Provisioning::Fixed,
        }
    }
}

/// The logical sector of a space.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum SectorWord {
    /// 512 bytes, as software and images of disks expect
    #[value(name = "512")]
    Small,
    /// 4096 bytes
    #[value(name = "4096")]
    Large,
}

impl SectorWord {
    /// As a number.
    pub(crate) fn bytes(self) -> u64 {
        match self {
            Self::Small => 512,
            Self::Large => 4096,
        }
    }
}

/// Size and layout of a new space.
#[derive(Debug, Args)]
pub(crate) struct NewSpace {
    /// Its size, a multiple of 4 KiB, such as 10G
    #[arg(short, long, value_parser = parse_space_size, allow_hyphen_values = true)]
    pub size: Bytes,
    /// How it survives the loss of disks
    #[arg(short, long, value_enum, default_value = "mirror", value_name = "KIND")]
    pub resiliency: ResiliencyWord,
    /// Copies of a mirror, 2 to 4; usually 2
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(2..=4))]
    pub copies: Option<u8>,
    /// Parities of a space with parity, 1 or 2; usually 1
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=2))]
    pub parity: Option<u8>,
    /// Data columns; usually as many as the disks allow, row by row
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=240))]
    pub columns: Option<u8>,
    /// Bytes written to one column before the next: a power of two, 16K to 1M; usually 256K, with parity 64K
    #[arg(long, value_name = "SIZE", value_parser = parse_size, allow_hyphen_values = true)]
    pub interleave: Option<Bytes>,
    /// The unit in which room is claimed and given back, 1M to 1G; usually 8M and more by the size, fixed 64M, above 64T 256M
    #[arg(long, value_name = "SIZE", value_parser = parse_size, allow_hyphen_values = true)]
    pub row: Option<Bytes>,
    /// When room is claimed
    #[arg(long, value_enum, default_value = "thin", value_name = "WHEN")]
    pub provisioning: ProvisioningWord,
    /// Write flushed content over through a write cache, so that a power cut in the midst of it harms none; with parity always
    #[arg(long)]
    pub strict: bool,
    /// Logical sector in bytes that its devices present; usually 512, and 4096 if all disks have sectors of 4096 bytes
    #[arg(long, value_enum, value_name = "BYTES")]
    pub sector: Option<SectorWord>,
}

/// `dolmen space create`
#[derive(Debug, Args)]
pub(crate) struct SpaceCreate {
    /// The name of the space, after the pool that it is to lie on
    #[arg(value_name = "POOL/SPACE")]
    pub space: SpaceName,
    /// Size and layout.
    #[command(flatten)]
    pub new: NewSpace,
    /// Whether to do it.
    #[command(flatten)]
    pub dry: DryRun,
}

/// `dolmen space set`
#[derive(Debug, Args)]
#[command(group(clap::ArgGroup::new("setting").required(true).multiple(true).args(["name", "reserve", "iops_max", "iops_min", "rate_max", "rate_min"])))]
pub(crate) struct SpaceSet {
    /// The space
    #[arg(value_name = "POOL/SPACE")]
    pub space: SpaceName,
    /// Another name
    #[arg(long, value_name = "NAME")]
    pub name: Option<Name>,
    /// Bytes of a thin space that can be written however full its pool is, such as 20G; or none
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    pub reserve: Option<Reserve>,
    /// Reads, writes and discards that it gets in a second at most, or none for as many as the disks give
    #[arg(long, value_name = "COUNT", allow_hyphen_values = true)]
    pub iops_max: Option<IopsLimit>,
    /// Reads, writes and discards a second that jobs and other spaces of the pool leave to it, as far as its disks give as
    /// many; or none
    #[arg(long, value_name = "COUNT", allow_hyphen_values = true)]
    pub iops_min: Option<IopsLimit>,
    /// Bytes that it reads and writes in a second at most, such as 50M, in whole KiB; or none
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    pub rate_max: Option<RateLimit>,
    /// Bytes a second that jobs and other spaces of the pool leave to it, in whole KiB; or none
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    pub rate_min: Option<RateLimit>,
    /// Whether to do it.
    #[command(flatten)]
    pub dry: DryRun,
}

/// `dolmen space resize`
#[derive(Debug, Args)]
pub(crate) struct SpaceResize {
    /// The space
    #[arg(value_name = "POOL/SPACE")]
    pub space: SpaceName,
    /// The size wanted, a multiple of 4 KiB; smaller only where nothing is cut off
    #[arg(value_parser = parse_space_size, allow_hyphen_values = true)]
    pub size: Bytes,
    /// Whether to do it.
    #[command(flatten)]
    pub dry: DryRun,
}

/// How flushed content is written over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum IntegrityWord {
    /// In place
    Relaxed,
    /// Through a write cache; with parity always
    Strict,
}

/// Data columns that were asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Columns(pub u8);

/// Reads data columns: `auto`, or a number.
fn parse_columns(text: &str) -> Result<Columns, String> {
    match text {
        "auto" => Ok(Columns(0)),
        number => match number.parse() {
            Ok(columns @ 1..=240) => Ok(Columns(columns)),
            _ => Err("give a number from 1 to 240, or auto".to_owned()),
        },
    }
}

/// `dolmen space convert`
#[derive(Debug, Args)]
pub(crate) struct SpaceConvert {
    /// The space. Without anything else, its rows are laid again as they are, as wide as the pool allows
    #[arg(value_name = "POOL/SPACE")]
    pub space: SpaceName,
    /// How it is to survive the loss of disks
    #[arg(short, long, value_enum, value_name = "KIND")]
    pub resiliency: Option<ResiliencyWord>,
    /// Copies of a mirror, 2 to 4
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(2..=4))]
    pub copies: Option<u8>,
    /// Parities of a space with parity, 1 or 2
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=2))]
    pub parity: Option<u8>,
    /// Data columns, or `auto` for as many as the disks allow, row by row
    #[arg(long, value_name = "N", value_parser = parse_columns)]
    pub columns: Option<Columns>,
    /// Bytes written to one column before the next: a power of two, 16K to 1M
    #[arg(long, value_name = "SIZE", value_parser = parse_size, allow_hyphen_values = true)]
    pub interleave: Option<Bytes>,
    /// How flushed content is written over
    #[arg(long, value_enum, value_name = "HOW")]
    pub integrity: Option<IntegrityWord>,
    /// When room is claimed
    #[arg(long, value_enum, value_name = "WHEN")]
    pub provisioning: Option<ProvisioningWord>,
    /// Whether to wait.
    #[command(flatten)]
    pub waiting: Waiting,
    /// Whether to do it.
    #[command(flatten)]
    pub dry: DryRun,
}

/// `dolmen space delete`
#[derive(Debug, Args)]
pub(crate) struct SpaceDelete {
    /// The space
    #[arg(value_name = "POOL/SPACE")]
    pub space: SpaceName,
    /// For good and at once, with all that it holds, instead of into the trash
    #[arg(long)]
    pub purge: bool,
    /// The name again.
    #[command(flatten)]
    pub consent: DestroyName,
    /// Whether to wait.
    #[command(flatten)]
    pub waiting: Waiting,
    /// Whether to do it.
    #[command(flatten)]
    pub dry: DryRun,
}
