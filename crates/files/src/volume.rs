//! Whole file systems: what they are, how full they are, and their free room.

use std::fs::File;

use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes};

use crate::FilesError;
use crate::call::{Request, call};

const TRIM: Request = Request::both(b'X', 121, 24);
const FREEZE: Request = Request::both(b'X', 119, 4);
const THAW: Request = Request::both(b'X', 120, 4);
const GEOMETRY: Request = Request::fills(b'X', 126, 256);

#[derive(Debug, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
struct RawTrim {
    start: u64,
    length: u64,
    minimum: u64,
}

#[derive(Debug, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
struct RawGeometry {
    block_bytes: u32,
    realtime_extent_blocks: u32,
    group_blocks: u32,
    group_count: u32,
    log_blocks: u32,
    sector_bytes: u32,
    inode_bytes: u32,
    inode_percent_max: u32,
    data_blocks: u64,
    realtime_blocks: u64,
    realtime_extents: u64,
    log_start: u64,
    uuid: [u8; 16],
    data_interleave: u32,
    data_columns: u32,
    version: i32,
    flags: u32,
    sizes: [u32; 4],
    sick: u32,
    checked: u32,
    reserved: [u64; 17],
}

const _: () = assert!(size_of::<RawGeometry>() == 256);

const REFLINK: u32 = 1 << 20;
const REVERSE_MAP: u32 = 1 << 19;
const PARENTS: u32 = 1 << 25;

/// What an XFS is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct XfsGeometry {
    /// Bytes of a block.
    pub block_bytes: u32,
    /// Blocks of its data area.
    pub data_blocks: u64,
    /// Blocks of an allocation group; the last one may be shorter.
    pub group_blocks: u32,
    /// Blocks of the log within the data area; 0 if the log is elsewhere.
    pub log_blocks: u32,
    /// Its UUID.
    pub uuid: [u8; 16],
    /// Whether files can share extents.
    pub has_reflink: bool,
    /// Whether it knows the owner of each block.
    pub has_reverse_map: bool,
    /// Whether inodes know their folders.
    pub has_parents: bool,
    /// What the kernel has found wrong with the whole file system, as bits; 0 if nothing.
    pub sick: u32,
}

/// Returns what the XFS is that `file` is on.
///
/// # Errors
/// [`FilesError`]; other file systems do not have the call.
pub fn xfs_geometry(file: &File) -> Result<XfsGeometry, FilesError> {
    let mut raw = RawGeometry::new_zeroed();
    call(file, GEOMETRY, &mut raw).map_err(FilesError::of("show its geometry"))?;
    Ok(XfsGeometry {
        block_bytes: raw.block_bytes,
        data_blocks: raw.data_blocks,
        group_blocks: raw.group_blocks,
        log_blocks: if raw.log_start == 0 { 0 } else { raw.log_blocks },
        uuid: raw.uuid,
        has_reflink: raw.flags & REFLINK != 0,
        has_reverse_map: raw.flags & REVERSE_MAP != 0,
        has_parents: raw.flags & PARENTS != 0,
        sick: raw.sick,
    })
}

const GROUP_GEOMETRY: Request = Request::both(b'X', 61, 128);

#[derive(Debug, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
struct RawGroupGeometry {
    number: u32,
    length: u32,
    free_blocks: u32,
    inodes: u32,
    free_inodes: u32,
    sick: u32,
    checked: u32,
    flags: u32,
    reserved: [u64; 12],
}

const _: () = assert!(size_of::<RawGroupGeometry>() == 128);

/// Returns what the kernel has found wrong with an allocation group of XFS, as bits; 0 if nothing.
///
/// # Errors
/// [`FilesError`]; kernels before 5.2 and other file systems do not have the call.
pub fn xfs_group_damage(file: &File, group: u32) -> Result<u32, FilesError> {
    let mut raw = RawGroupGeometry { number: group, ..RawGroupGeometry::new_zeroed() };
    call(file, GROUP_GEOMETRY, &mut raw).map_err(FilesError::of("show an allocation group"))?;
    Ok(raw.sick)
}

/// Discards free room of the file system that `file` is on, between two addresses; runs shorter than `minimum` bytes stay.
/// Returns how many bytes the file system says that it discarded. What was freed a moment ago may be left for the next call.
///
/// Linux 6.18 walks an allocation group of XFS that is asked for whole from the first of its longest free ranges, and passes over
/// the others that are as long. So each request here ends within a group.
///
/// # Errors
/// [`FilesError`].
pub fn trim(file: &File, start: u64, length: u64, minimum: u64) -> Result<u64, FilesError> {
    let cuts = xfs_geometry(file).map(|geometry| trim_cuts(&geometry)).unwrap_or_default();
    let end = start.saturating_add(length);
    let mut discarded = 0u64;
    let (mut from, inside) = (start, cuts.into_iter().filter(|cut| *cut > start && *cut < end));
    for to in inside.chain([end]) {
        let mut range = RawTrim { start: from, length: to - from, minimum };
        call(file, TRIM, &mut range).map_err(FilesError::of("discard its free room"))?;
        (discarded, from) = (discarded.saturating_add(range.length), to);
    }
    Ok(discarded)
}

/// Returns an address within each allocation group, at a multiple of a large power of two: no row lies on both sides of one.
fn trim_cuts(geometry: &XfsGeometry) -> Vec<u64> {
    let block = u64::from(geometry.block_bytes);
    let (group, end) = (u64::from(geometry.group_blocks) * block, geometry.data_blocks.saturating_mul(block));
    let Some(step) = (group / 4).checked_ilog2().map(|bits| 1u64 << bits) else { return Vec::new() };
    let groups = end.div_ceil(group);
    (0..groups).map(|number| (number * group + group / 2) / step * step).filter(|cut| *cut < end).collect()
}

/// Holds all writes of a file system until it is dropped: what is on the device then is consistent.
#[derive(Debug)]
pub struct Frozen<'a> {
    file: &'a File,
}

impl<'a> Frozen<'a> {
    /// Writes everything and holds further writes.
    ///
    /// # Errors
    /// [`FilesError`], also if somebody else holds them.
    pub fn new(file: &'a File) -> Result<Self, FilesError> {
        call(file, FREEZE, &mut 0u32).map_err(FilesError::of("hold its writes"))?;
        Ok(Self { file })
    }
}

impl Drop for Frozen<'_> {
    fn drop(&mut self) {
        // What fails here was thawed by somebody else.
        let _ = call(self.file, THAW, &mut 0u32);
    }
}

/// How full a file system is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    /// Bytes that it can hold, its own metadata included where it counts them.
    pub total: u64,
    /// Bytes free, those that only the super-user may take included.
    pub free: u64,
    /// Bytes that anybody may take.
    pub available: u64,
    /// Inodes that it can hold; 0 where that has no limit.
    pub inodes: u64,
    /// Inodes free.
    pub inodes_free: u64,
}

/// Returns how full the file system is that `file` is on.
///
/// # Errors
/// [`FilesError`].
pub fn usage(file: &File) -> Result<Usage, FilesError> {
    let found = rustix::fs::fstatvfs(file).map_err(|error| FilesError::of("show its fill")(error.into()))?;
    Ok(Usage {
        total: found.f_blocks.saturating_mul(found.f_frsize),
        free: found.f_bfree.saturating_mul(found.f_frsize),
        available: found.f_bavail.saturating_mul(found.f_frsize),
        inodes: found.f_files,
        inodes_free: found.f_ffree,
    })
}

/// Returns whether the file system that `file` is on takes no writes.
///
/// # Errors
/// [`FilesError`].
pub fn is_read_only(file: &File) -> Result<bool, FilesError> {
    let found =
        rustix::fs::fstatvfs(file).map_err(|error| FilesError::of("show its options")(error.into()))?;
    Ok(found.f_flag.contains(rustix::fs::StatVfsMountFlags::RDONLY))
}
