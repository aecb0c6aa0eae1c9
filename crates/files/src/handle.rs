//! Files by their handles: inode and generation, whatever they are called by now.
#![allow(unsafe_code)]

use std::ffi::{CString, OsStr};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd};
use std::os::unix::ffi::OsStrExt;

use crate::FilesError;

/// Bytes of the longest handle of the file systems that are used here.
const HANDLE_BYTES_MAX: usize = 32;
/// Handles of ext4, and of XFS whose inodes have 32 bits: inode and generation of 32 bits.
const SHORT: i32 = 1;
/// Handles of XFS: inode of 64 bits, generation of 32.
const XFS_64: i32 = 0x81;
/// Handles of btrfs: inode and subvolume of 64 bits, generation of 32.
const BTRFS: i32 = 0x4d;

/// A handle: which file, in the words of its file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Handle {
    kind: i32,
    length: u32,
    bytes: [u8; HANDLE_BYTES_MAX],
}

#[repr(C)]
struct RawHandle {
    length: u32,
    kind: i32,
    bytes: [u8; HANDLE_BYTES_MAX],
}

impl Handle {
    /// Returns the handle of an inode of XFS.
    #[must_use]
    pub fn of_xfs(inode: u64, generation: u32) -> Self {
        let mut bytes = [0; HANDLE_BYTES_MAX];
        let given = inode.to_ne_bytes().into_iter().chain(generation.to_ne_bytes());
        bytes.iter_mut().zip(given).for_each(|(to, from)| *to = from);
        Self { kind: XFS_64, length: 12, bytes }
    }

    /// Returns the inode and the generation that it names, if its form is known.
    #[must_use]
    pub fn identity(&self) -> Option<(u64, u32)> {
        let word = |at: usize| Some(u32::from_ne_bytes(*self.bytes.get(at..)?.first_chunk()?));
        let long = || Some(u64::from_ne_bytes(*self.bytes.first_chunk()?));
        match self.kind {
            SHORT => Some((word(0)?.into(), word(4)?)),
            XFS_64 => Some((long()?, word(8)?)),
            BTRFS => Some((long()?, word(16)?)),
            _ => None,
        }
    }

    /// Returns the number of the subvolume of btrfs that the file is in.
    #[must_use]
    pub fn subvolume(&self) -> Option<u64> {
        let number = u64::from_ne_bytes(*self.bytes.get(8..)?.first_chunk()?);
        (self.kind == BTRFS).then_some(number)
    }

    /// Returns the handle of another inode of the same file system and subvolume, if its form is known.
    #[must_use]
    pub fn sibling(&self, inode: u64, generation: u32) -> Option<Self> {
        match self.kind {
            SHORT => {
                let mut bytes = [0; HANDLE_BYTES_MAX];
                let short = u32::try_from(inode).ok()?;
                let given = short.to_ne_bytes().into_iter().chain(generation.to_ne_bytes());
                bytes.iter_mut().zip(given).for_each(|(to, from)| *to = from);
                Some(Self { kind: SHORT, length: 8, bytes })
            }
            XFS_64 => Some(Self::of_xfs(inode, generation)),
            BTRFS => {
                let mut bytes = [0; HANDLE_BYTES_MAX];
                let subvolume = self.bytes.get(8..16)?.iter().copied();
                let given = inode.to_ne_bytes().into_iter().chain(subvolume).chain(generation.to_ne_bytes());
                bytes.iter_mut().zip(given).for_each(|(to, from)| *to = from);
                Some(Self { kind: BTRFS, length: 20, bytes })
            }
            _ => None,
        }
    }

    /// Returns the handle of an entry of a folder, or of the folder itself for `.`; of a symbolic link, its own.
    ///
    /// # Errors
    /// [`FilesError`] if the entry is gone, or its file system has no handles.
    pub fn of_entry(folder: &File, name: &OsStr) -> Result<Self, FilesError> {
        Self::of_entry_at(folder.as_fd(), name)
    }

    pub(crate) fn of_entry_at(folder: BorrowedFd<'_>, name: &OsStr) -> Result<Self, FilesError> {
        let failed = FilesError::of("give the handle of a file");
        let name = CString::new(name.as_bytes()).map_err(|_| failed(io::ErrorKind::InvalidInput.into()))?;
        let length = u32::try_from(HANDLE_BYTES_MAX).unwrap_or(0);
        let mut raw = RawHandle { length, kind: 0, bytes: [0; HANDLE_BYTES_MAX] };
        let mut mount = 0;
        // SAFETY: the name ends with zero; the handle has as many bytes behind its head as `length` says; all live for the call.
        let result = unsafe {
            libc::name_to_handle_at(
                folder.as_raw_fd(),
                name.as_ptr(),
                (&raw mut raw).cast::<libc::file_handle>(),
                &raw mut mount,
                0,
            )
        };
        if result < 0 {
            return Err(failed(io::Error::last_os_error()));
        }
        Ok(Self { kind: raw.kind, length: raw.length.min(length), bytes: raw.bytes })
    }

    /// Opens the file, on the file system that `root` is on.
    ///
    /// # Errors
    /// [`FilesError`]; [`is_deleted`](FilesError::is_deleted) if the inode belongs to another file by now.
    pub fn open(&self, root: &File, access: Access) -> Result<File, FilesError> {
        let mut raw = RawHandle { length: self.length, kind: self.kind, bytes: self.bytes };
        let how = match access {
            Access::Read => libc::O_RDONLY,
            Access::ReadWrite => libc::O_RDWR,
        };
        let flags =
            how | libc::O_CLOEXEC | libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_LARGEFILE | libc::O_NOATIME;
        // SAFETY: the handle is as long as its head says, and lives for the call.
        let result = unsafe {
            libc::open_by_handle_at(root.as_raw_fd(), (&raw mut raw).cast::<libc::file_handle>(), flags)
        };
        if result < 0 {
            return Err(FilesError::of("open a file by its handle")(io::Error::last_os_error()));
        }
        // SAFETY: the kernel has just given this descriptor to the process, and nothing else has it.
        Ok(unsafe { File::from_raw_fd(result) })
    }
}

/// How a file is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// For reading.
    Read,
    /// For reading and writing.
    ReadWrite,
}
