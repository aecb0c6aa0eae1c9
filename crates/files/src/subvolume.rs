//! Subvolumes of btrfs and their quotas.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;

use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes};

use crate::FilesError;
use crate::call::{Request, call};
use crate::handle::Handle;
use crate::tree_search::{Items, items, u64_at};

const CREATE: Request = Request::reads(0x94, 14, 4096);
const SWITCH: Request = Request::both(0x94, 40, 16);
const LIMIT: Request = Request::fills(0x94, 43, 48);
const NAME_BYTES: usize = 4088;
/// Inode of the root of each subvolume.
const ROOT_INODE: u64 = 256;
/// Counts extents for the subvolume that wrote them: cheap, and from then on.
const COUNT_SIMPLY: u64 = 4;
/// Counts extents for all subvolumes that have them.
const COUNT_ALL: u64 = 1;
/// Limits referenced bytes.
const REFERENCED: u64 = 1;
/// No limit.
const NONE: u64 = u64::MAX;
/// Tree of quotas, and its items.
const QUOTA_TREE: u64 = 8;
const USAGE_ITEM: u32 = 242;
const LIMIT_ITEM: u32 = 244;

#[derive(Debug, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
struct RawName {
    file: i64,
    name: [u8; NAME_BYTES],
}

#[derive(Debug, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
struct RawLimit {
    group: u64,
    flags: u64,
    referenced: u64,
    exclusive: u64,
    reserved: [u64; 2],
}

/// What a subvolume holds, and its limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SubvolumeUsage {
    /// Bytes that it references, as of the last commit; none if they are not counted.
    pub bytes: Option<u64>,
    /// Bytes that it may reference; none for no limit.
    pub limit_bytes: Option<u64>,
}

/// Returns the number of the subvolume that a folder is the root of, or nothing if it is none.
///
/// # Errors
/// [`FilesError`].
pub fn subvolume(folder: &File) -> Result<Option<u64>, FilesError> {
    let status = folder.metadata().map_err(FilesError::of("look at a folder"))?;
    if status.ino() != ROOT_INODE {
        return Ok(None);
    }
    Ok(Handle::of_entry(folder, ".".as_ref())?.subvolume())
}

/// Makes a subvolume in a folder.
///
/// # Errors
/// [`FilesError`], also if the name is taken.
pub fn create_subvolume(folder: &File, name: &OsStr) -> Result<(), FilesError> {
    let failed = FilesError::of("make a subvolume");
    let mut raw = Box::new(RawName::new_zeroed());
    if name.len() >= NAME_BYTES {
        return Err(failed(io::ErrorKind::InvalidFilename.into()));
    }
    raw.name.iter_mut().zip(name.as_bytes()).for_each(|(to, from)| *to = *from);
    call(folder, CREATE, raw.as_mut()).map_err(failed)?;
    Ok(())
}

/// Lets the btrfs that `file` is on count what subvolumes hold; one that does so already stays as it is.
///
/// Kernels before 6.7 count in the older, slower way.
///
/// # Errors
/// [`FilesError`].
pub fn count_subvolumes(file: &File) -> Result<(), FilesError> {
    let switch = |mode: u64| match call(file, SWITCH, &mut [mode, 0]) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    };
    let switched = switch(COUNT_SIMPLY).or_else(|_| switch(COUNT_ALL));
    switched.map_err(FilesError::of("count what subvolumes hold"))
}

/// Sets the bytes that a subvolume may reference; none for no limit.
///
/// # Errors
/// [`FilesError`], also if subvolumes are not counted.
pub fn limit_subvolume(file: &File, subvolume: u64, bytes: Option<u64>) -> Result<(), FilesError> {
    let mut raw = RawLimit::new_zeroed();
    (raw.group, raw.flags, raw.referenced) = (subvolume, REFERENCED, bytes.unwrap_or(NONE));
    call(file, LIMIT, &mut raw).map_err(FilesError::of("limit a subvolume"))?;
    Ok(())
}

/// Returns what a subvolume holds, as of the last commit.
///
/// # Errors
/// [`FilesError`].
pub fn subvolume_usage(file: &File, subvolume: u64) -> Result<SubvolumeUsage, FilesError> {
    let mut found = SubvolumeUsage::default();
    let look = |kind, each: &mut dyn FnMut(&[u8])| {
        let wanted = Items { tree: QUOTA_TREE, object: 0, kind, offsets: subvolume..=subvolume };
        match items(file, wanted, |_, item| each(item)) {
            // There is no such tree before subvolumes are counted.
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(FilesError::of("show what a subvolume holds")(error))
            }
            _ => Ok(()),
        }
    };
    look(USAGE_ITEM, &mut |item| found.bytes = u64_at(item, 8))?;
    let mut limit = None;
    look(LIMIT_ITEM, &mut |item| {
        let is_limited = u64_at(item, 0).is_some_and(|flags| flags & REFERENCED != 0);
        limit = u64_at(item, 8).filter(|limit| is_limited && *limit != NONE);
    })?;
    found.limit_bytes = limit;
    Ok(found)
}
