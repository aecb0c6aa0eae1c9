//! All inodes of XFS, in the order in which they lie: far faster than a walk of folders.

use std::fs::File;

use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes};

use crate::FilesError;
use crate::call::{Request, call};

const BULKSTAT: Request = Request::fills(b'X', 127, 64);
const AT_ONCE: usize = 256;

#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
struct RawInode {
    inode: u64,
    size: u64,
    blocks: u64,
    flags: u64,
    seconds: [i64; 4],
    generation: u32,
    user: u32,
    group: u32,
    project: u32,
    nanoseconds: [u32; 4],
    block_bytes: u32,
    device: u32,
    extent_hints: [u32; 2],
    links: u32,
    extents_32: u32,
    attribute_extents: u32,
    version: u16,
    fork_offset: u16,
    sick: u16,
    checked: u16,
    mode: u16,
    reserved_1: u16,
    extents: u64,
    reserved_2: [u64; 6],
}

const _: () = assert!(size_of::<RawInode>() == 192);

#[derive(Debug, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
struct RawRequest {
    inode: u64,
    flags: u32,
    count: u32,
    found: u32,
    group: u32,
    reserved: [u64; 5],
    inodes: [RawInode; AT_ONCE],
}

/// An inode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Inode {
    /// Its number.
    pub number: u64,
    /// Changes when a number is given to another file.
    pub generation: u32,
    /// Kind and permissions, as in `stat`.
    pub mode: u16,
    /// Names that it has.
    pub links: u32,
    /// Bytes.
    pub size: u64,
    /// Last change of content, in nanoseconds since 1970.
    pub modified: i128,
    /// Last change of content or metadata, in nanoseconds since 1970.
    pub changed: i128,
    /// Whether the file system has found something wrong with it.
    pub is_sick: bool,
    /// Extents of its content; 0 if that lies within the inode.
    pub extents: u64,
}

impl Inode {
    /// Returns whether it is a regular file.
    #[must_use]
    pub fn is_file(&self) -> bool {
        u32::from(self.mode) & libc::S_IFMT == libc::S_IFREG
    }
}

/// A list of inodes that is continued call by call.
#[derive(Debug)]
pub struct Inodes(Box<RawRequest>);

impl Default for Inodes {
    fn default() -> Self {
        Self::new()
    }
}

impl Inodes {
    /// Begins before the first inode.
    #[must_use]
    pub fn new() -> Self {
        let mut request = Box::new(RawRequest::new_zeroed());
        request.count = u32::try_from(AT_ONCE).unwrap_or(0);
        Self(request)
    }

    /// Appends the next few hundred inodes of the XFS that `file` is on, and returns `false` after the last.
    ///
    /// # Errors
    /// [`FilesError`]; file systems other than XFS do not have the call.
    pub fn next(&mut self, file: &File, into: &mut Vec<Inode>) -> Result<bool, FilesError> {
        self.0.found = 0;
        // The kernel sets `inode` to the number behind the last one that it gives.
        call(file, BULKSTAT, self.0.as_mut()).map_err(FilesError::of("list its inodes"))?;
        let found = usize::try_from(self.0.found).unwrap_or(0).min(AT_ONCE);
        into.extend(self.0.inodes.get(..found).unwrap_or_default().iter().map(inode));
        Ok(found > 0)
    }
}

/// Returns the inode of the XFS that `file` is on with this number, or none if it is free.
///
/// # Errors
/// [`FilesError`]; file systems other than XFS do not have the call.
pub fn inode_of(file: &File, number: u64) -> Result<Option<Inode>, FilesError> {
    let mut list = Inodes::new();
    (list.0.inode, list.0.count) = (number, 1);
    let mut found = Vec::new();
    list.next(file, &mut found)?;
    // The kernel gives the next inode in place of one that is free.
    Ok(found.into_iter().find(|inode| inode.number == number))
}

/// Shows each inode of the XFS that `file` is on. `each` returns whether to go on.
///
/// # Errors
/// [`FilesError`]; file systems other than XFS do not have the call.
pub fn inodes(file: &File, mut each: impl FnMut(Inode) -> bool) -> Result<(), FilesError> {
    let (mut list, mut batch) = (Inodes::new(), Vec::new());
    while list.next(file, &mut batch)? {
        for inode in batch.drain(..) {
            if !each(inode) {
                return Ok(());
            }
        }
    }
    Ok(())
}

fn inode(raw: &RawInode) -> Inode {
    let time = |which: usize| {
        let seconds = raw.seconds.get(which).copied().unwrap_or(0);
        let nanoseconds = raw.nanoseconds.get(which).copied().unwrap_or(0);
        i128::from(seconds) * 1_000_000_000 + i128::from(nanoseconds)
    };
    Inode {
        number: raw.inode,
        generation: raw.generation,
        mode: raw.mode,
        links: raw.links,
        size: raw.size,
        modified: time(1),
        changed: time(2),
        is_sick: raw.sick != 0,
        extents: raw.extents.max(raw.extents_32.into()),
    }
}
