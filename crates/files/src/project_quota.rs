//! Project quotas of XFS and ext4: files carry the number of a project, and the file system bounds what each project holds.
#![allow(unsafe_code)]

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes};

use crate::FilesError;
use crate::call::{Request, call};

const GET_ATTRIBUTES: Request = Request::fills(b'X', 31, 28);
const SET_ATTRIBUTES: Request = Request::reads(b'X', 32, 28);
/// New files of a folder get its project.
const INHERIT: u32 = 0x200;
/// `PRJQUOTA`.
const PROJECT: libc::c_int = 2;
const SET_LIMITS: libc::c_int = 0x80_0008;
const GET_LIMITS: libc::c_int = 0x80_0007;
/// Bytes in which limits are counted.
const LIMIT_BYTES: u64 = 1024;

#[derive(Debug, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
struct RawAttributes {
    flags: u32,
    extent_bytes: u32,
    extents: u32,
    project: u32,
    copy_extent_bytes: u32,
    reserved: [u8; 8],
}

/// `if_dqblk`.
#[derive(Debug, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
struct RawLimits {
    blocks_hard: u64,
    blocks_soft: u64,
    bytes: u64,
    files_hard: u64,
    files_soft: u64,
    files: u64,
    times: [u64; 2],
    valid: u32,
    reserved: u32,
}

/// `QIF_LIMITS`: limits of bytes and of files.
const LIMITS: u32 = 1 | 4;

/// Limits of a project; none for no limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Limits {
    /// Bytes, rounded up to whole KiB.
    pub bytes: Option<u64>,
    /// Files and folders.
    pub files: Option<u64>,
}

/// What a project holds, and its limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProjectUsage {
    /// Bytes.
    pub bytes: u64,
    /// Files and folders.
    pub files: u64,
    /// Limits.
    pub limits: Limits,
}

/// Returns the project of a file.
///
/// # Errors
/// [`FilesError`]; some file systems have no projects.
pub fn project(file: &File) -> Result<u32, FilesError> {
    let mut raw = RawAttributes::new_zeroed();
    call(file, GET_ATTRIBUTES, &mut raw).map_err(FilesError::of("show the project of a file"))?;
    Ok(raw.project)
}

/// Sets the project of a file; new files of a folder get it, too, unless it is 0. Returns whether something changed.
///
/// # Errors
/// [`FilesError`].
pub fn set_project(file: &File, project: u32) -> Result<bool, FilesError> {
    let failed = FilesError::of("set the project of a file");
    let is_folder = file.metadata().map_err(&failed)?.is_dir();
    let mut raw = RawAttributes::new_zeroed();
    call(file, GET_ATTRIBUTES, &mut raw).map_err(&failed)?;
    let flags = if is_folder && project != 0 { raw.flags | INHERIT } else { raw.flags & !INHERIT };
    if (raw.project, raw.flags) == (project, flags) {
        return Ok(false);
    }
    (raw.project, raw.flags) = (project, flags);
    call(file, SET_ATTRIBUTES, &mut raw).map_err(&failed)?;
    Ok(true)
}

/// Sets the limits of a project of the file system on a device.
///
/// # Errors
/// [`FilesError`], also if the file system does not count projects: it was made or mounted without.
pub fn set_limits(device: &Path, project: u32, limits: Limits) -> Result<(), FilesError> {
    let mut raw = RawLimits::new_zeroed();
    raw.blocks_hard = limits.bytes.map_or(0, |bytes| bytes.div_ceil(LIMIT_BYTES).max(1));
    raw.files_hard = limits.files.map_or(0, |files| files.max(1));
    raw.valid = LIMITS;
    quota(device, SET_LIMITS, project, &mut raw).map_err(FilesError::of("limit a project"))
}

/// Returns what a project holds.
///
/// # Errors
/// As [`set_limits`].
pub fn project_usage(device: &Path, project: u32) -> Result<ProjectUsage, FilesError> {
    let mut raw = RawLimits::new_zeroed();
    match quota(device, GET_LIMITS, project, &mut raw) {
        // It holds nothing and has no limit.
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => raw = RawLimits::new_zeroed(),
        other => other.map_err(FilesError::of("show what a project holds"))?,
    }
    let limit = |limit: u64, unit: u64| (limit > 0).then(|| limit.saturating_mul(unit));
    Ok(ProjectUsage {
        bytes: raw.bytes,
        files: raw.files,
        limits: Limits { bytes: limit(raw.blocks_hard, LIMIT_BYTES), files: limit(raw.files_hard, 1) },
    })
}

fn quota(device: &Path, command: libc::c_int, project: u32, raw: &mut RawLimits) -> io::Result<()> {
    let device = CString::new(device.as_os_str().as_bytes())?;
    // SAFETY: the device ends with zero, and the structure is as long as the kernel takes it for; both live for the call.
    let result = unsafe {
        libc::quotactl(
            command << 8 | PROJECT,
            device.as_ptr(),
            libc::c_int::from_ne_bytes(project.to_ne_bytes()),
            std::ptr::from_mut(raw).cast(),
        )
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
