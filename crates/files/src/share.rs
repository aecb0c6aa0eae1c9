//! Shared extents: ranges of files that lie in one place.

use std::fs::File;
use std::num::NonZeroU64;
use std::os::fd::AsRawFd;

use rustix::fs::Advice;
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::FilesError;
use crate::call::{Request, call};

const DEDUPE: Request = Request::both(0x94, 54, 24);
const CLONE: Request = Request::reads(0x94, 13, 32);

/// Bytes that one call to share may name, at most: the file systems cut longer ones.
pub const SHARE_BYTES_MAX: u64 = 16 << 20;

/// Bytes that one hint names: the kernel cuts longer ones at what the device reads ahead, 128 KiB at least by default.
const READ_AHEAD_BYTES: u64 = 128 << 10;

/// `file_dedupe_range` with one target.
#[derive(Debug, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
struct Dedupe {
    source_offset: u64,
    length: u64,
    target_count: u16,
    reserved_1: u16,
    reserved_2: u32,
    target: i64,
    target_offset: u64,
    shared: u64,
    status: i32,
    reserved_3: u32,
}

/// `file_clone_range`.
#[derive(Debug, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
struct Clone_ {
    source: i64,
    source_offset: u64,
    length: u64,
    target_offset: u64,
}

/// What became of a range that was to be shared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shared {
    /// So many bytes from its beginning on lie in one place now.
    Bytes(u64),
    /// The bytes differ, and nothing was changed.
    Differs,
}

/// Lets a range of `target` lie where the same bytes of `source` lie. The kernel locks both, compares them, and shares what is
/// equal; content never changes.
///
/// Offsets and length are multiples of the file system's block, but a length may end at the end of both files.
///
/// # Errors
/// [`FilesError`] if the call is unknown, a file is not on the same file system, or the kernel refuses the target. Nothing has
/// changed then.
pub fn share(
    source: &File,
    source_offset: u64,
    target: &File,
    target_offset: u64,
    length: u64,
) -> Result<Shared, FilesError> {
    let failed = FilesError::of("share a range of two files");
    read_ahead(source, source_offset, length);
    read_ahead(target, target_offset, length);
    let mut request = Dedupe {
        source_offset,
        length,
        target_count: 1,
        reserved_1: 0,
        reserved_2: 0,
        target: i64::from(target.as_raw_fd()),
        target_offset,
        shared: 0,
        status: 0,
        reserved_3: 0,
    };
    call(source, DEDUPE, &mut request).map_err(&failed)?;
    match request.status {
        0 => Ok(Shared::Bytes(request.shared.min(length))),
        1 => Ok(Shared::Differs),
        error => Err(failed(std::io::Error::from_raw_os_error(-error))),
    }
}

/// Has the kernel read a range, which it would else read page by page while it compares. This is a hint: where it fails, the
/// comparison is slow.
fn read_ahead(file: &File, offset: u64, length: u64) {
    let end = offset.saturating_add(length);
    let mut at = offset;
    while at < end {
        let piece = READ_AHEAD_BYTES.min(end - at);
        let _ = rustix::fs::fadvise(file, at, NonZeroU64::new(piece), Advice::WillNeed);
        at += piece;
    }
}

/// Lets a range of `target` be the content of a range of `source`, without a copy. Replaces what `target` had there.
///
/// # Errors
/// [`FilesError`].
pub fn clone_range(
    source: &File,
    source_offset: u64,
    target: &File,
    target_offset: u64,
    length: u64,
) -> Result<(), FilesError> {
    let source = i64::from(source.as_raw_fd());
    let mut request = Clone_ { source, source_offset, length, target_offset };
    call(target, CLONE, &mut request).map_err(FilesError::of("clone a range of a file"))?;
    Ok(())
}
