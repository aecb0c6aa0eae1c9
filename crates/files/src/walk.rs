//! All files below a folder, on one device: neither other mounts nor subvolumes of btrfs are entered.
//!
//! One folder is open at a time. Those above it are known by handle and place, so depth costs a few bytes for each level.

use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, RawMode, Stat, StatxFlags};

use crate::FilesError;
use crate::handle::{Access, Handle};

/// A regular file that a walk found. A file with several names is found by each of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Found {
    /// Its handle.
    pub handle: Handle,
    /// Number of its inode.
    pub inode: u64,
    /// Names that it has.
    pub links: u64,
    /// Bytes.
    pub size: u64,
    /// Last change of content, in nanoseconds since 1970.
    pub modified: i128,
    /// Last change of content or metadata, in nanoseconds since 1970.
    pub changed: i128,
}

/// Folder on the way to the open one.
#[derive(Debug)]
struct Above {
    handle: Handle,
    /// Where its list goes on.
    place: i64,
    path_bytes: usize,
    device: u64,
}

/// A walk.
#[derive(Debug)]
pub struct Walk {
    root: File,
    /// Device of the open folder.
    device: u64,
    /// Mount whose subvolumes are entered.
    mount: Option<u64>,
    above: Vec<Above>,
    open: Option<(Dir, Handle)>,
    /// Path of the open folder, with a slash behind it unless it is empty, then of the file that was found last.
    path: Vec<u8>,
    folder_bytes: usize,
    left_out: u64,
}

/// Reads the state of a file.
pub(crate) fn times(status: &Stat) -> (i128, i128) {
    let time = |seconds: i128, nanoseconds: i128| seconds * 1_000_000_000 + nanoseconds;
    (
        time(status.st_mtime.into(), status.st_mtime_nsec.into()),
        time(status.st_ctime.into(), status.st_ctime_nsec.into()),
    )
}

/// Returns the number of the mount that a file was opened on.
fn mount_of(file: &File) -> rustix::io::Result<u64> {
    rustix::fs::statx(file, "", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID).map(|status| status.stx_mnt_id)
}

impl Walk {
    /// Begins at a folder, which paths begin with `prefix`.
    ///
    /// # Errors
    /// [`FilesError`] if the folder cannot be read, or its file system has no handles.
    pub fn new(folder: &File, prefix: &[u8]) -> Result<Self, FilesError> {
        let failed = FilesError::of("list a folder");
        let status = rustix::fs::fstat(folder).map_err(|error| failed(error.into()))?;
        let handle = Handle::of_entry(folder, ".".as_ref())?;
        let root = folder.try_clone().map_err(&failed)?;
        let mut path = prefix.to_vec();
        if !path.is_empty() {
            path.push(b'/');
        }
        let open = Some((Dir::read_from(folder).map_err(|error| failed(error.into()))?, handle));
        let folder_bytes = path.len();
        let device = status.st_dev;
        Ok(Self { root, device, mount: None, above: Vec::new(), open, path, folder_bytes, left_out: 0 })
    }

    /// Lets the walk enter subvolumes of the same mount, too. Their inodes have numbers of their own.
    ///
    /// # Errors
    /// [`FilesError`] if the folder that it began at cannot be looked at.
    pub fn with_subvolumes(mut self) -> Result<Self, FilesError> {
        let mount = mount_of(&self.root).map_err(|error| FilesError::of("list a folder")(error.into()))?;
        self.mount = Some(mount);
        Ok(self)
    }

    /// Returns the path of the file that was found last.
    #[must_use]
    pub fn path(&self) -> &[u8] {
        &self.path
    }

    /// Returns the number of folders that were left out: other mounts, subvolumes, and what could not be read.
    #[must_use]
    pub fn left_out(&self) -> u64 {
        self.left_out
    }

    /// Returns the next regular file, or nothing after the last. `enter` gets the path of each folder, with a slash behind it,
    /// and its inode, and returns whether to walk it.
    ///
    /// # Errors
    /// [`FilesError`] if a folder that is being listed fails.
    pub fn next(&mut self, mut enter: impl FnMut(&[u8], u64) -> bool) -> Result<Option<Found>, FilesError> {
        let failed = FilesError::of("list a folder");
        loop {
            self.path.truncate(self.folder_bytes);
            let Some((folder, handle)) = &mut self.open else {
                let Some(above) = self.above.pop() else { return Ok(None) };
                self.reopen(&above)?;
                continue;
            };
            let Some(entry) = folder.read() else {
                self.open = None;
                continue;
            };
            let entry = entry.map_err(|error| failed(error.into()))?;
            let name = entry.file_name();
            let may_be = |kind| matches!(entry.file_type(), FileType::Unknown) || entry.file_type() == kind;
            let is_wanted = may_be(FileType::RegularFile) || may_be(FileType::Directory);
            if matches!(name.to_bytes(), b"." | b"..") || !is_wanted {
                continue;
            }
            let Ok(status) =
                folder.fd().and_then(|folder| rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW))
            else {
                continue;
            };
            self.path.extend_from_slice(name.to_bytes());
            let kind = FileType::from_raw_mode(RawMode::from(status.st_mode));
            let at = folder.fd().map_err(|error| failed(error.into()))?;
            if kind == FileType::Directory {
                self.path.push(b'/');
                if !enter(&self.path, status.st_ino) {
                    continue;
                }
                let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NOATIME;
                let opened = rustix::fs::openat(at, name, flags, Mode::empty()).map(File::from);
                let is_entered = |below: &File| {
                    status.st_dev == self.device
                        || self.mount.is_some_and(|mount| mount_of(below).is_ok_and(|found| found == mount))
                };
                let below = opened.ok().filter(is_entered).and_then(|below| {
                    let handle = Handle::of_entry(&below, ".".as_ref()).ok()?;
                    Some((Dir::new(below).ok()?, handle))
                });
                let Some(below) = below else {
                    self.left_out = self.left_out.saturating_add(1);
                    continue;
                };
                let (handle, place) = (*handle, entry.offset());
                let (path_bytes, device) = (self.folder_bytes, self.device);
                self.above.push(Above { handle, place, path_bytes, device });
                self.device = status.st_dev;
                self.open = Some(below);
                self.folder_bytes = self.path.len();
            } else if kind == FileType::RegularFile && status.st_dev == self.device {
                let name = OsStr::from_bytes(name.to_bytes());
                let Ok(handle) = Handle::of_entry_at(at, name) else { continue };
                let (modified, changed) = times(&status);
                return Ok(Some(Found {
                    handle,
                    inode: status.st_ino,
                    links: status.st_nlink,
                    size: u64::try_from(status.st_size).unwrap_or(0),
                    modified,
                    changed,
                }));
            }
        }
    }

    /// Goes on in a folder above; one that was deleted meanwhile has no more files.
    fn reopen(&mut self, above: &Above) -> Result<(), FilesError> {
        let failed = FilesError::of("list a folder");
        self.folder_bytes = above.path_bytes;
        self.device = above.device;
        self.path.truncate(self.folder_bytes);
        let folder = match above.handle.open(&self.root, Access::Read) {
            Ok(folder) => folder,
            Err(error) if error.is_deleted() => return Ok(()),
            Err(error) => return Err(error),
        };
        let mut folder = Dir::new(folder).map_err(|error| failed(error.into()))?;
        folder.seek(above.place).map_err(|error| failed(error.into()))?;
        self.open = Some((folder, above.handle));
        Ok(())
    }
}
