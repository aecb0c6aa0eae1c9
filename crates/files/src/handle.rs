//! Files by their handles: inode and generation, whatever they are called by now.
#![allow(unsafe_code)]

use std::ffi::{CString, OsStr};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::ffi::OsStrExt;

use crate::FilesError;

/// Bytes of the longest handle of the file systems that are used here.
const HANDLE_BYTES_MAX: usize = 32;
/// Handles of XFS: inode of 64 bits, generation of 32.
const XFS_64: i32 = 0x81;

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

    /// Returns the handle of an entry of a folder; of a symbolic link, its own.
    ///
    /// # Errors
    /// [`FilesError`] if the entry is gone, or its file system has no handles.
    pub fn of_entry(folder: &File, name: &OsStr) -> Result<Self, FilesError> {
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
