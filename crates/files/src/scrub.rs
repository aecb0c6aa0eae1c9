//! Scrub of a mounted btrfs: the kernel reads all of a device, compares checksums, and corrects what another copy has.

use std::fs::File;
use std::io;

use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes};

use crate::FilesError;
use crate::call::{Request, call};

const SCRUB: Request = Request::both(0x94, 27, 1024);
const CANCEL: Request = Request::plain(0x94, 28);
const PROGRESS: Request = Request::both(0x94, 29, 1024);
const FILE_SYSTEM: Request = Request::fills(0x94, 31, 1024);
/// Nothing is corrected.
const READ_ONLY: u64 = 1;

/// `btrfs_ioctl_scrub_args` with its `btrfs_scrub_progress`.
#[derive(Debug, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
struct RawScrub {
    device: u64,
    start: u64,
    end: u64,
    flags: u64,
    data_extents: u64,
    tree_extents: u64,
    data_bytes: u64,
    tree_bytes: u64,
    read_errors: u64,
    checksum_errors: u64,
    verify_errors: u64,
    without_checksum: u64,
    checksum_discards: u64,
    super_errors: u64,
    malloc_errors: u64,
    uncorrectable: u64,
    corrected: u64,
    last_physical: u64,
    unverified: u64,
    unused: [u64; 109],
}

const _: () = assert!(size_of::<RawScrub>() == 1024);

/// Counts of a scrub.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ScrubCounts {
    /// Bytes that were read.
    pub bytes: u64,
    /// Reads that failed.
    pub read_errors: u64,
    /// Blocks with a wrong checksum.
    pub checksum_errors: u64,
    /// Blocks of metadata with a wrong content.
    pub verify_errors: u64,
    /// Superblocks that are wrong.
    pub super_errors: u64,
    /// Blocks that no copy could correct.
    pub uncorrectable: u64,
    /// Blocks that were corrected.
    pub corrected: u64,
    /// Address on the device up to which it came.
    pub last_physical: u64,
}

impl ScrubCounts {
    fn of(raw: &RawScrub) -> Self {
        Self {
            bytes: raw.data_bytes.saturating_add(raw.tree_bytes),
            read_errors: raw.read_errors,
            checksum_errors: raw.checksum_errors,
            verify_errors: raw.verify_errors,
            super_errors: raw.super_errors,
            uncorrectable: raw.uncorrectable,
            corrected: raw.corrected,
            last_physical: raw.last_physical,
        }
    }

    /// Adds the counts of a scrub that went on where this one was halted. Each looks at all superblocks.
    #[must_use]
    pub fn then(self, next: Self) -> Self {
        Self {
            bytes: self.bytes.saturating_add(next.bytes),
            read_errors: self.read_errors.saturating_add(next.read_errors),
            checksum_errors: self.checksum_errors.saturating_add(next.checksum_errors),
            verify_errors: self.verify_errors.saturating_add(next.verify_errors),
            super_errors: self.super_errors.max(next.super_errors),
            uncorrectable: self.uncorrectable.saturating_add(next.uncorrectable),
            corrected: self.corrected.saturating_add(next.corrected),
            last_physical: self.last_physical.max(next.last_physical),
        }
    }
}

/// Effect of a scrub on what it finds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Correction {
    /// What another copy has is written again.
    FromCopies,
    /// Nothing is written.
    Nothing,
}

/// End of a scrub.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScrubEnd {
    /// The whole device was read.
    Whole,
    /// [`cancel`] or an unmount ended it.
    Cancelled,
}

/// Returns the number of the device of a btrfs that has one.
///
/// # Errors
/// [`FilesError`], also if it has several devices.
pub fn only_device(file: &File) -> Result<u64, FilesError> {
    let failed = FilesError::of("show its devices");
    let mut raw = [0u64; 128];
    call(file, FILE_SYSTEM, &mut raw).map_err(&failed)?;
    let [device, devices, ..] = raw;
    if devices == 1 {
        return Ok(device);
    }
    Err(failed(io::Error::other(format!("it has {devices} devices, and a volume has one"))))
}

/// Scrubs a device from an address on, and returns what was found with the end that it came to. It waits for that end.
///
/// # Errors
/// [`FilesError`], also if a scrub is under way.
pub fn scrub(
    file: &File,
    device: u64,
    start: u64,
    correction: Correction,
) -> Result<(ScrubCounts, ScrubEnd), FilesError> {
    let mut raw = RawScrub::new_zeroed();
    (raw.device, raw.start, raw.end) = (device, start, u64::MAX);
    raw.flags = if correction == Correction::Nothing { READ_ONLY } else { 0 };
    match call(file, SCRUB, &mut raw) {
        Ok(_) => Ok((ScrubCounts::of(&raw), ScrubEnd::Whole)),
        Err(error) if error.raw_os_error() == Some(libc::ECANCELED) => {
            Ok((ScrubCounts::of(&raw), ScrubEnd::Cancelled))
        }
        Err(error) => Err(FilesError::of("scrub")(error)),
    }
}

/// Returns what the scrub that is under way has found so far; none if none is.
///
/// # Errors
/// [`FilesError`].
pub fn progress(file: &File, device: u64) -> Result<Option<ScrubCounts>, FilesError> {
    let mut raw = RawScrub::new_zeroed();
    raw.device = device;
    match call(file, PROGRESS, &mut raw) {
        Ok(_) => Ok(Some(ScrubCounts::of(&raw))),
        Err(error) if error.raw_os_error() == Some(libc::ENOTCONN) => Ok(None),
        Err(error) => Err(FilesError::of("show how far its scrub is")(error)),
    }
}

/// Ends the scrub that is under way, if one is.
///
/// # Errors
/// [`FilesError`].
pub fn cancel(file: &File) -> Result<(), FilesError> {
    match call(file, CANCEL, &mut 0u64) {
        Ok(_) => Ok(()),
        Err(error) if error.raw_os_error() == Some(libc::ENOTCONN) => Ok(()),
        Err(error) => Err(FilesError::of("end its scrub")(error)),
    }
}
