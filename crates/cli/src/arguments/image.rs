//! The command line of `dolmen image`.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, Subcommand};
use dolmen_files::images::{ImageName, ParseImageNameError};
use dolmen_units::Bytes;

use crate::arguments::common::{DestroyName, DryRun};
use crate::arguments::values::{ParseSpaceNameError, SpaceName, parse_size};

/// Clones of one command: each is an open file until all have their names.
const CLONES_MAX: usize = 256;

/// Help of `add` after that of the options.
const ADD_HELP: &str = "\
A raw file or a block device is taken as it is: its extents are shared where it lies on the same volume, else its bytes are copied \
without zeros. qcow2, VMDK, VHD, VHDX and VDI are converted by qemu-img. An image that takes data from another file is refused. \
Give the image of a stopped machine: what a running one writes meanwhile may be in it or not.

Examples:
  dolmen image add tank/vms debian-12.qcow2
  dolmen image add tank/vms /dev/vg/golden --name golden";

/// Help of `clone` after that of the options.
const CLONE_HELP: &str = "\
A clone shares the bytes of its image until it is written. It belongs to the user who makes it, and only that user reads it. \
Nothing is replaced. All clones are made before the first one gets its name.

Examples:
  dolmen image clone tank/vms/debian-12 web1 web2 --size 40G
  dolmen image clone tank/vms/debian-12 /srv/vms/tests/t1.img
  dolmen image clone tank/vms/debian-12 --space tank/web1";

/// An image with its volume, written `POOL/VOLUME/NAME`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ImagePath {
    /// Volume that has it.
    pub volume: SpaceName,
    /// Its name.
    pub name: ImageName,
}

impl fmt::Display for ImagePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.volume, self.name)
    }
}

/// A text that names no image of a volume.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ParseImagePathError {
    /// Fewer than two slashes.
    #[error("an image is named with its volume, as POOL/VOLUME/NAME")]
    NoVolume,
    /// The volume cannot be one.
    #[error(transparent)]
    Volume(#[from] ParseSpaceNameError),
    /// The name cannot be one.
    #[error(transparent)]
    Name(#[from] ParseImageNameError),
}

impl FromStr for ImagePath {
    type Err = ParseImagePathError;

    fn from_str(text: &str) -> Result<Self, ParseImagePathError> {
        let (pool, rest) = text.split_once('/').ok_or(ParseImagePathError::NoVolume)?;
        let (volume, name) = rest.split_once('/').ok_or(ParseImagePathError::NoVolume)?;
        Ok(Self { volume: format!("{pool}/{volume}").parse()?, name: name.parse()? })
    }
}

/// `dolmen image …`
#[derive(Debug, Subcommand)]
pub(crate) enum ImageCommand {
    /// Add a file, a block device or an image of another system to the library of a volume
    #[command(after_help = ADD_HELP)]
    Add(ImageAdd),
    /// List the images of a volume
    List(ImageList),
    /// Make clones of an image, which share its bytes
    #[command(after_help = CLONE_HELP)]
    Clone(ImageClone),
    /// Delete an image for good; its clones stay
    Delete(ImageDelete),
}

/// `dolmen image add`
#[derive(Debug, Args)]
pub(crate) struct ImageAdd {
    /// The volume, which is mounted
    #[arg(value_name = "POOL/VOLUME")]
    pub volume: SpaceName,
    /// A file or a block device
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Name of the image; usually that of the file, without its ending
    #[arg(long, value_name = "NAME", allow_hyphen_values = true)]
    pub name: Option<ImageName>,
    /// Take the bytes of the file as they are, whatever format they look like
    #[arg(long)]
    pub raw: bool,
    /// Change nothing; show name, format and size of the image, and the room of the volume
    #[arg(short = 'n', long = "dry-run")]
    pub dry_run: bool,
}

/// `dolmen image list`
#[derive(Debug, Args)]
pub(crate) struct ImageList {
    /// The volume, which is mounted
    #[arg(value_name = "POOL/VOLUME")]
    pub volume: SpaceName,
}

/// `dolmen image clone`
#[derive(Debug, Args)]
pub(crate) struct ImageClone {
    /// The image
    #[arg(value_name = "POOL/VOLUME/NAME")]
    pub image: ImagePath,
    /// Names in the folder `machines` of the volume, or paths on it
    #[arg(value_name = "TARGET", num_args = 1..=CLONES_MAX, required_unless_present = "space")]
    pub targets: Vec<PathBuf>,
    /// Grow the clones to this size
    #[arg(long, value_name = "SIZE", value_parser = parse_size, allow_hyphen_values = true)]
    pub size: Option<Bytes>,
    /// Copy the bytes where the file system of the volume shares none, such as ext4; without it such a clone is refused
    #[arg(long, conflicts_with = "space")]
    pub or_copy: bool,
    /// Make a thin space and write the image to it, instead of a file; its layout is that of the space of the volume
    #[arg(long, value_name = "POOL/SPACE", conflicts_with = "targets")]
    pub space: Option<SpaceName>,
    /// Whether to do it.
    #[command(flatten)]
    pub dry: DryRun,
}

/// `dolmen image delete`
#[derive(Debug, Args)]
pub(crate) struct ImageDelete {
    /// The image
    #[arg(value_name = "POOL/VOLUME/NAME")]
    pub image: ImagePath,
    /// The name again.
    #[command(flatten)]
    pub consent: DestroyName,
    /// Change nothing; show what would be deleted
    #[arg(short = 'n', long = "dry-run")]
    pub dry_run: bool,
}

/// Returns what a flag of a dry run says.
pub(crate) fn intent(dry_run: bool) -> crate::arguments::common::Intent {
    DryRun { dry_run }.intent()
}
