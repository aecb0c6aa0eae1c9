//! Profiles: what a volume is for decides its file system, the arguments of `mkfs` and the options of its mount.
//!
//! [`Profile::choose`] answers with the exact arguments, the reasons as sentences, and what the host lacks. An option is given
//! only if the tool has it and the oldest kernel that is to mount the volume reads the result. Features that a tool would turn
//! on by itself are turned off for kernels that are too old for them.

mod btrfs;
mod ext4;
mod forms;
mod oldest;
mod purpose;
#[cfg(test)]
mod tests;
mod xfs;

pub(crate) use forms::option_of_no_profile;
pub use purpose::{ParsePurposeError, Purpose};

use dolmen_units::Bytes;

use crate::file_system::{FileSystem, FileSystemUuid, Label, LabelError};
use crate::making::Making;
use crate::record::MountOption;
use crate::version::Version;
use std::collections::BTreeSet;

/// Oldest kernel that any profile makes a volume for: long-term support of earlier ones has ended.
pub const KERNEL_MIN: Version = Version::new(5, 10);

/// What a host has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Host {
    /// Version of xfsprogs, if it is installed.
    pub xfsprogs: Option<Version>,
    /// Version of btrfs-progs, if it is installed.
    pub btrfs_progs: Option<Version>,
    /// Version of e2fsprogs, if it is installed.
    pub e2fsprogs: Option<Version>,
    /// Its kernel.
    pub kernel: Version,
    /// Oldest kernel that is to mount the volume, on this host or another; none for this kernel.
    pub oldest_kernel: Option<Version>,
    /// File systems that its kernel neither has built in nor can load.
    pub not_mountable: BTreeSet<FileSystem>,
}

impl Host {
    /// Version of the tools of a file system, if they are installed.
    #[must_use]
    pub fn tools(&self, file_system: FileSystem) -> Option<Version> {
        match file_system {
            FileSystem::Xfs => self.xfsprogs,
            FileSystem::Btrfs => self.btrfs_progs,
            FileSystem::Ext4 => self.e2fsprogs,
        }
    }

    /// Oldest kernel that must read the volume.
    #[must_use]
    pub fn oldest(&self) -> Version {
        self.oldest_kernel.map_or(self.kernel, |oldest| oldest.min(self.kernel))
    }
}

/// Provisioning of a space.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Provisioning {
    /// Rows are claimed when they are written.
    Thin,
    /// All rows are claimed at once, and keep their layout.
    Fixed,
}

/// Redundancy of a space.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Redundancy {
    /// One copy: a block that a disk loses is lost.
    Absent,
    /// Copies or parity: the pool heals a block.
    Present,
}

/// The stripe of a parity space.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stripe {
    /// Bytes of one column.
    pub interleave_bytes: u64,
    /// Columns with data.
    pub data_columns: u32,
}

/// Shape of the space that carries the volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpaceShape {
    /// Its size.
    pub bytes: u64,
    /// Its provisioning.
    pub provisioning: Provisioning,
    /// Its redundancy.
    pub redundancy: Redundancy,
    /// Its stripe, if it is a parity space.
    pub stripe: Option<Stripe>,
    /// Bytes of a logical sector of its device.
    pub sector_bytes: u32,
}

impl SpaceShape {
    /// Stripe to which a file system can align itself: that of a fixed parity space of some size, in whole blocks.
    fn lasting_stripe(&self) -> Option<Stripe> {
        let whole = |stripe: &Stripe| {
            stripe.interleave_bytes >= BLOCK_BYTES
                && stripe.interleave_bytes.is_multiple_of(BLOCK_BYTES)
                && stripe.data_columns > 0
        };
        let lasts = self.provisioning == Provisioning::Fixed && self.bytes >= ALIGNED_BYTES_MIN;
        self.stripe.filter(|stripe| lasts && whole(stripe))
    }
}

/// Block of every file system here: that of the engine.
const BLOCK_BYTES: u64 = 4096;
/// Place of the first superblock of btrfs; all before it is zeros.
const BTRFS_SUPERBLOCK: u64 = 64 << 10;
/// Bytes of the smallest space that is aligned to: on smaller ones alignment leaves `mkfs.xfs` too little room for its log.
const ALIGNED_BYTES_MIN: u64 = 1 << 30;

/// What people ask for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProfileRequest {
    /// What the volume is for.
    pub purpose: Purpose,
    /// File system, if one was asked for by name.
    pub file_system: Option<FileSystem>,
    /// Label, if one was asked for.
    pub label: Option<String>,
    /// UUID, drawn by the caller.
    pub uuid: FileSystemUuid,
}

/// Something that the host lacks, and what is lost without it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Missing {
    /// Package, as Debian names it; `kernel` for the kernel.
    pub package: &'static str,
    /// Version from which on it would do.
    pub needed: Version,
    /// Version that is there.
    pub found: Option<Version>,
    /// What is lost without it, as a sentence.
    pub lost: String,
}

/// The answer: how the volume is made and mounted, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Profile {
    /// File system.
    pub file_system: FileSystem,
    /// Options of `mkfs` on a device that reads as zeros; the record keeps these.
    pub mkfs_options: Vec<String>,
    /// Options of `mkfs` with force, on a device that an earlier run has written.
    mkfs_options_again: Vec<String>,
    /// Options of the mount.
    pub mount_options: Vec<MountOption>,
    /// Reasons, as sentences.
    pub reasons: Vec<String>,
    /// What the host lacks.
    pub missing: Vec<Missing>,
}

/// A volume that cannot be made as asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProfileError {
    /// The tools are not installed, or are too old.
    #[error("making {file_system} needs {package} {needed} or later, and {}; install it, or choose another file system", found_as_text(*.found))]
    Tools {
        /// File system that was chosen.
        file_system: FileSystem,
        /// Package with its tools.
        package: &'static str,
        /// Version that is needed.
        needed: Version,
        /// Version that is there.
        found: Option<Version>,
    },
    /// The kernel cannot mount it.
    #[error(
        "the kernel {kernel} of this host has no {file_system}; install its module, or choose another file system"
    )]
    NotMountable {
        /// File system that was chosen.
        file_system: FileSystem,
        /// Kernel of the host.
        kernel: Version,
    },
    /// The oldest kernel is older than any that a profile is for.
    #[error(
        "the oldest kernel that is to mount the volume is {found}, and volumes are made for {KERNEL_MIN} and later; name a later one"
    )]
    Kernel {
        /// Oldest kernel.
        found: Version,
    },
    /// The space is too small.
    #[error(
        "the space has {}, and a volume of {file_system} has at least {}; make the space larger", Bytes(*found), Bytes(*needed)
    )]
    TooSmall {
        /// File system that was chosen.
        file_system: FileSystem,
        /// Bytes of the space.
        found: u64,
        /// Bytes that it needs.
        needed: u64,
    },
    /// The device has sectors that are larger than blocks of file systems.
    #[error(
        "the device has sectors of {found} bytes, and a file system writes blocks of {BLOCK_BYTES}; attach the space with sectors of 512 or 4096 bytes"
    )]
    Sector {
        /// Bytes of its sectors.
        found: u32,
    },
    /// The label.
    #[error(transparent)]
    Label(#[from] LabelError),
    /// The path of the device.
    #[error("the device {text:?} is no absolute path; name it as /dev/…")]
    Device {
        /// Path that was given.
        text: String,
    },
}

fn found_as_text(found: Option<Version>) -> String {
    found.map_or_else(|| "it is not installed".to_owned(), |version| format!("{version} is installed"))
}

/// Options of one file system, before they become a profile.
#[derive(Debug, Default)]
struct Options {
    over_zeros: Vec<String>,
    again: Vec<String>,
    mount: Vec<&'static str>,
    reasons: Vec<String>,
    missing: Vec<Missing>,
}

impl Options {
    /// Appends arguments to both runs of `mkfs`.
    fn both<const N: usize>(&mut self, arguments: [&str; N]) {
        for list in [&mut self.over_zeros, &mut self.again] {
            list.extend(arguments.iter().map(|argument| (*argument).to_owned()));
        }
    }

    fn because(&mut self, reason: impl Into<String>) {
        self.reasons.push(reason.into());
    }
}

/// What each file system sees of the request.
struct Question<'a> {
    purpose: Purpose,
    label: Option<Label>,
    uuid: FileSystemUuid,
    host: &'a Host,
    tools: Version,
    space: SpaceShape,
}

/// Oldest tools whose options a profile uses.
const fn tools_min(file_system: FileSystem) -> Version {
    match file_system {
        FileSystem::Xfs => Version::new(5, 10),
        FileSystem::Btrfs => Version::new(5, 15),
        FileSystem::Ext4 => Version::new(1, 45),
    }
}

impl Profile {
    /// Chooses file system and options.
    ///
    /// # Errors
    /// Fails if the host cannot make or mount the file system, or the label or the space does not suit it.
    pub fn choose(request: &ProfileRequest, host: &Host, space: SpaceShape) -> Result<Self, ProfileError> {
        if host.oldest() < KERNEL_MIN {
            return Err(ProfileError::Kernel { found: host.oldest() });
        }
        if u64::from(space.sector_bytes) > BLOCK_BYTES {
            return Err(ProfileError::Sector { found: space.sector_bytes });
        }
        let (file_system, mut reasons, missing) = choose_file_system(request, host);
        let needed = tools_min(file_system);
        let found = host.tools(file_system);
        let tools = found.filter(|tools| *tools >= needed).ok_or_else(|| ProfileError::Tools {
            file_system,
            package: file_system.package(),
            needed,
            found,
        })?;
        if host.not_mountable.contains(&file_system) {
            return Err(ProfileError::NotMountable { file_system, kernel: host.kernel });
        }
        if space.bytes < file_system.bytes_min() {
            let (found, needed) = (space.bytes, file_system.bytes_min());
            return Err(ProfileError::TooSmall { file_system, found, needed });
        }
        let label = request.label.as_deref().map(|text| Label::new(text, file_system)).transpose()?;
        let question = Question { purpose: request.purpose, label, uuid: request.uuid, host, tools, space };
        let mut options = options_of(file_system, &question);
        if let Some(oldest) = host.oldest_kernel {
            let any = Host { oldest_kernel: None, ..host.clone() };
            let unbound =
                options_of(file_system, &Question { host: &any, label: question.label.clone(), ..question });
            options.because(oldest::cost(oldest, &unbound.over_zeros, &options.over_zeros));
        }
        options.because("No mount has discard: a weekly trim gives free room back without delaying deletes.");
        reasons.append(&mut options.reasons);
        let mut all_missing = missing;
        all_missing.append(&mut options.missing);
        let mount_options = ["noatime", "nodev", "nosuid"].into_iter().chain(options.mount);
        Ok(Self {
            file_system,
            mkfs_options: options.over_zeros,
            mkfs_options_again: options.again,
            mount_options: mount_options.filter_map(|option| option.parse().ok()).collect(),
            reasons,
            missing: all_missing,
        })
    }

    /// Range of the device that the caller overwrites with zeros, and flushes, before [`Self::mkfs`]; `None` for none.
    ///
    /// `mkfs.btrfs` refuses a UUID that it finds on any device, force or not, and an earlier run has left it on this one. The
    /// range is the block of the superblock: if power fails behind it, the device begins with zeros as a new one does.
    #[must_use]
    pub fn zeros_before(&self, making: Making) -> Option<core::ops::Range<u64>> {
        let again = self.file_system == FileSystem::Btrfs && making == Making::MakeAgain;
        again.then_some(BTRFS_SUPERBLOCK..BTRFS_SUPERBLOCK + BLOCK_BYTES)
    }

    /// Arguments of the process that makes the file system, the program first; `None` if there is nothing to make.
    ///
    /// Without force `mkfs.xfs` and `mkfs.btrfs` refuse a device with content, and `mke2fs` does so on a terminal alone. So the
    /// caller asks [`crate::making::next_making`] just before, in each case.
    ///
    /// # Errors
    /// Fails if the device is no absolute path, which could be taken as an option.
    pub fn mkfs(&self, device: &str, making: Making) -> Result<Option<Vec<String>>, ProfileError> {
        if !device.starts_with('/') {
            return Err(ProfileError::Device { text: device.chars().take(80).collect() });
        }
        let (program, force) = match self.file_system {
            FileSystem::Xfs => ("mkfs.xfs", "-f"),
            FileSystem::Btrfs => ("mkfs.btrfs", "-f"),
            FileSystem::Ext4 => ("mke2fs", "-F"),
        };
        let mut argv = vec![program.to_owned()];
        match making {
            Making::Made => return Ok(None),
            Making::Make => argv.extend(self.mkfs_options.iter().cloned()),
            Making::MakeAgain => {
                argv.push(force.to_owned());
                argv.extend(self.mkfs_options_again.iter().cloned());
            }
        }
        argv.push(device.to_owned());
        Ok(Some(argv))
    }
}

fn options_of(file_system: FileSystem, question: &Question<'_>) -> Options {
    match file_system {
        FileSystem::Xfs => xfs::options(question),
        FileSystem::Btrfs => btrfs::options(question),
        FileSystem::Ext4 => ext4::options(question),
    }
}

/// Chooses the file system: the one that was asked for, else that of the purpose, else XFS.
fn choose_file_system(request: &ProfileRequest, host: &Host) -> (FileSystem, Vec<String>, Vec<Missing>) {
    let purpose = request.purpose;
    if let Some(file_system) = request.file_system {
        return (file_system, vec![format!("{file_system} was asked for.")], Vec::new());
    }
    match purpose {
        Purpose::Files => (
            FileSystem::Xfs,
            vec!["XFS suits files of any kind on every distribution.".to_owned()],
            Vec::new(),
        ),
        Purpose::Vms | Purpose::Database => {
            let reason = format!("XFS writes {purpose} in place, where btrfs would scatter them.");
            (FileSystem::Xfs, vec![reason], Vec::new())
        }
        Purpose::Documents | Purpose::Backup => {
            let needed = tools_min(FileSystem::Btrfs);
            let usable = host.btrfs_progs.is_some_and(|found| found >= needed);
            let mountable = !host.not_mountable.contains(&FileSystem::Btrfs);
            if usable && mountable {
                return (FileSystem::Btrfs, vec![format!("btrfs compresses {purpose}.")], Vec::new());
            }
            let lost = "Without btrfs the volume is XFS, and its files are not compressed.".to_owned();
            let missing = if usable {
                Missing { package: "kernel", needed: KERNEL_MIN, found: Some(host.kernel), lost }
            } else {
                Missing { package: FileSystem::Btrfs.package(), needed, found: host.btrfs_progs, lost }
            };
            let reason =
                format!("btrfs would compress {purpose}, and this host cannot use it; XFS takes its place.");
            (FileSystem::Xfs, vec![reason], vec![missing])
        }
    }
}
