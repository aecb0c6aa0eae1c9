//! Opening and locking a disk, a partition or a file.
//!
//! Two locks keep others out. `flock` on the open file keeps a second daemon from the same disk or file; it belongs to
//! the open file, which commands under way hold as well, so it ends only after the last of them. `O_EXCL` on a block
//! device keeps the kernel's own users out (a mount, a RAID array, a swap), and is refused while they are there. A mark
//! beside them ends with the process, and so tells a living owner from commands of one that has ended (see `holder`).

use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use dolmen_block_io::{Geometry, Zoning};
use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};

use crate::device::{Access, COMMAND_LIMIT, Opened};
use crate::geometry::{self, BlockAtomicity, DirectIo, Kind};
use crate::holder::{Holder, holder, mark};
use crate::in_use::{InUse, in_use, mounted_elsewhere};
use crate::path_name::path_of;
use crate::reactor::OpenFile;
use crate::runtime::Handle;

/// How to open a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenOptions {
    /// Whether commands that change anything are refused.
    pub read_only: bool,
    /// Whether to keep everybody else out; else others may open it at the same time, and nothing is locked.
    pub exclusive: bool,
    /// How long a command may take.
    pub command_limit: Duration,
    /// What is assumed about writes of one block at a power failure.
    pub atomicity: BlockAtomicity,
}

impl Default for OpenOptions {
    /// For a member of a pool: writable, exclusive, with the usual limits.
    fn default() -> Self {
        let atomicity = BlockAtomicity::Usual;
        Self { read_only: false, exclusive: true, command_limit: COMMAND_LIMIT, atomicity }
    }
}

/// Why a device was not opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// There is nothing at the path.
    #[error("opening {}: there is nothing at this path", path.display())]
    NotFound {
        /// The path.
        path: PathBuf,
    },
    /// The process may not.
    #[error("opening {}: permission denied; run as root, or grant access to it", path.display())]
    Denied {
        /// The path.
        path: PathBuf,
    },
    /// It accepts no writes.
    #[error("opening {} for writing: it is read-only; open it read-only, or lift its write protection", path.display())]
    ReadOnly {
        /// The path.
        path: PathBuf,
    },
    /// Neither a block device nor a regular file.
    #[error("opening {}: expected a disk, a partition or a regular file", path.display())]
    NotADisk {
        /// The path.
        path: PathBuf,
    },
    /// Another process holds the lock, or commands of an earlier one are still under way.
    #[error("opening {}: {}", path.display(), held(by.as_ref()))]
    Locked {
        /// The path.
        path: PathBuf,
        /// The process, unless it has ended.
        by: Option<Holder>,
    },
    /// The kernel uses it.
    #[error("opening {}: {by}; release it first", path.display())]
    InUse {
        /// The path.
        path: PathBuf,
        /// How it is used.
        by: InUse,
    },
    /// It demands that writes follow an order that the engine does not keep.
    #[error("opening {}: a host-managed zoned disk, which cannot be used; use a conventional one", path.display())]
    Zoned {
        /// The path.
        path: PathBuf,
    },
    /// The size of its blocks is none that the engine can use.
    #[error("opening {}: logical blocks of {found_bytes} bytes, expected 512 or 4096", path.display())]
    BlockSize {
        /// The path.
        path: PathBuf,
        /// What it reports.
        found_bytes: u32,
    },
    /// No further file may be open.
    #[error("opening {}: {limit}", path.display())]
    TooManyFiles {
        /// The path.
        path: PathBuf,
        /// Which limit says so.
        limit: FileLimit,
    },
    /// The system says something else.
    #[error("opening {}: the system refused", path.display())]
    System {
        /// The path.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
}

impl OpenError {
    /// Returns the path that was not opened.
    #[must_use]
    pub fn path(&self) -> &Path {
        match self {
            Self::NotFound { path }
            | Self::Denied { path }
            | Self::ReadOnly { path }
            | Self::NotADisk { path }
            | Self::Locked { path, .. }
            | Self::InUse { path, .. }
            | Self::Zoned { path }
            | Self::BlockSize { path, .. }
            | Self::TooManyFiles { path, .. }
            | Self::System { path, .. } => path,
        }
    }
}

/// A limit of open files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileLimit {
    /// That of this process; unknown where the system does not say it.
    Process(Option<u64>),
    /// That of the whole system.
    System,
}

impl FileLimit {
    /// Returns the limit that kept a file from being opened, if it was one.
    #[must_use]
    pub fn reached(error: &std::io::Error) -> Option<Self> {
        match Errno::from_io_error(error)? {
            Errno::MFILE => Some(Self::Process(getrlimit(Resource::Nofile).current)),
            Errno::NFILE => Some(Self::System),
            _ => None,
        }
    }
}

impl fmt::Display for FileLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Process(Some(limit)) => write!(
                f,
                "this process may have {limit} files open, and has; raise the limit (LimitNOFILE= of its unit, `ulimit -n`)"
            ),
            Self::Process(None) => f.write_str(
                "this process has as many files open as it may; raise the limit (LimitNOFILE= of its unit, `ulimit -n`)",
            ),
            Self::System => {
                f.write_str("the system has as many files open as it may; raise its limit (sysctl fs.file-max)")
            }
        }
    }
}

pub(crate) fn open(handle: &Handle, path: &Path, options: OpenOptions) -> Result<Opened, OpenError> {
    let path = &*path_of(path);
    let kind = look(path)?;
    let (fd, direct) = match kind {
        Kind::File => open_file(path, options)?,
        Kind::Block(_) => (open_block(path, options)?, DirectIo::Unknown),
    };
    let mut marked = None;
    if options.exclusive {
        lock(&fd, path)?;
        marked = mark(&fd).map_err(|error| refused(path, error))?;
    }
    let geometry = geometry_of(&fd, path, options.atomicity, direct)?;
    check(path, geometry)?;
    let unit = usize::try_from(geometry.logical_block_bytes).unwrap_or(usize::MAX);
    let access = if options.read_only { Access::ReadOnly } else { Access::ReadWrite };
    let presence = match kind {
        Kind::File => None,
        Kind::Block(number) => Some(number.sysfs()),
    };
    Ok(Opened { file: OpenFile::new(&handle.reactor, fd, unit, presence, marked), kind, access, geometry })
}

/// What is at the path, without the effects that opening a device or a pipe may have.
fn look(path: &Path) -> Result<Kind, OpenError> {
    let fd = rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
        .map_err(|e| refused(path, e))?;
    let status = geometry::status(&fd).map_err(|e| refused(path, e))?;
    geometry::kind(&status).ok_or_else(|| OpenError::NotADisk { path: path.to_path_buf() })
}

fn flags(options: OpenOptions) -> OFlags {
    let mode = if options.read_only { OFlags::RDONLY } else { OFlags::RDWR };
    // NOCTTY in case that the path leads to a terminal by now.
    mode | OFlags::CLOEXEC | OFlags::NOCTTY
}

fn open_block(path: &Path, options: OpenOptions) -> Result<OwnedFd, OpenError> {
    let exclusive = if options.exclusive { OFlags::EXCL } else { OFlags::empty() };
    let opened = rustix::fs::open(path, flags(options) | OFlags::DIRECT | exclusive, Mode::empty());
    opened.map_err(|error| match (error, in_use(path)) {
        (Errno::BUSY, Ok(Some(by))) => OpenError::InUse { path: path.to_path_buf(), by },
        (Errno::BUSY, _) => match mounted_elsewhere(path) {
            by if by.is_empty() => locked(path),
            by => OpenError::InUse { path: path.to_path_buf(), by: InUse { by } },
        },
        (error, _) => refused(path, error),
    })
}

/// Opens a file past the page cache where that is possible, else through it.
fn open_file(path: &Path, options: OpenOptions) -> Result<(OwnedFd, DirectIo), OpenError> {
    let cached = || rustix::fs::open(path, flags(options), Mode::empty()).map_err(|e| refused(path, e));
    match rustix::fs::open(path, flags(options) | OFlags::DIRECT, Mode::empty()) {
        Ok(fd) => {
            let status = geometry::status(&fd).map_err(|e| refused(path, e))?;
            match geometry::direct_io(&status) {
                DirectIo::No => Ok((cached()?, DirectIo::No)),
                direct => Ok((fd, direct)),
            }
        }
        Err(Errno::INVAL) => Ok((cached()?, DirectIo::No)),
        Err(error) => Err(refused(path, error)),
    }
}

fn locked(path: &Path) -> OpenError {
    OpenError::Locked { path: path.to_path_buf(), by: holder(path) }
}

fn held(by: Option<&Holder>) -> String {
    by.map_or_else(
        || "commands of a process that has ended are still under way".to_owned(),
        |by| format!("in use by {by}"),
    )
}

fn lock(fd: &OwnedFd, path: &Path) -> Result<(), OpenError> {
    rustix::fs::flock(fd, FlockOperation::NonBlockingLockExclusive).map_err(|error| match error {
        Errno::WOULDBLOCK => locked(path),
        error => refused(path, error),
    })
}

fn geometry_of(
    fd: &OwnedFd,
    path: &Path,
    atomicity: BlockAtomicity,
    direct: DirectIo,
) -> Result<Geometry, OpenError> {
    // Asked of the open file, not of the path, which may lead elsewhere by now.
    let status = geometry::status(fd).map_err(|e| refused(path, e))?;
    match geometry::kind(&status) {
        Some(Kind::File) => Ok(geometry::of_file(fd, &status, geometry::file_unit(direct), atomicity)),
        Some(Kind::Block(number)) => geometry::of_block(fd, number, atomicity)
            .map_err(|source| OpenError::System { path: path.to_path_buf(), source }),
        None => Err(OpenError::NotADisk { path: path.to_path_buf() }),
    }
}

fn check(path: &Path, geometry: Geometry) -> Result<(), OpenError> {
    if geometry.zoning == Zoning::HostManaged {
        return Err(OpenError::Zoned { path: path.to_path_buf() });
    }
    let found_bytes = geometry.logical_block_bytes;
    if found_bytes != 512 && found_bytes != 4096 {
        return Err(OpenError::BlockSize { path: path.to_path_buf(), found_bytes });
    }
    Ok(())
}

fn refused(path: &Path, error: Errno) -> OpenError {
    let path = path.to_path_buf();
    match error {
        Errno::NOENT | Errno::NOTDIR => OpenError::NotFound { path },
        Errno::ACCESS | Errno::PERM => OpenError::Denied { path },
        Errno::ROFS => OpenError::ReadOnly { path },
        error => {
            let source = error.into();
            match FileLimit::reached(&source) {
                Some(limit) => OpenError::TooManyFiles { path, limit },
                None => OpenError::System { path, source },
            }
        }
    }
}
