//! What the kernel tells of a disk or a file: size, units, caches, and what it writes wholly or not at all.
//!
//! **Atomic writes.** A disk's physical block is, by the kernel's own definition, the smallest unit that it writes
//! atomically, so that is what a disk promises here; a disk that announces a larger atomic unit is taken at its word up
//! to one engine block, above which writes would have to be marked one by one.
//! A file promises what [`BlockAtomicity`] says. By default one engine block is assumed, because a file cannot tell:
//! the file system writes an aligned 4 KiB of one extent as one request, or elsewhere and then switches over; and a
//! disk that stores 4 KiB sectors, or flash, writes it wholly or not at all. A file on a disk with 512-byte sectors
//! does not keep that promise, which is why the assumption is a setting, and why the disks themselves, not files, are
//! the members to trust.

use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::path::{Path, PathBuf};

use dolmen_block_io::{Geometry, Zoning};
use dolmen_units::{BLOCK_BYTES, Bytes, SECTOR_BYTES};
use rustix::fs::{AtFlags, FileType, Statx, StatxFlags};

use crate::reach;

/// `BLKGETSIZE64` of `linux/fs.h`.
const BLKGETSIZE64: libc::c_ulong = 0x8008_1272;
/// `BLKIOOPT` of `linux/fs.h`.
const BLKIOOPT: libc::c_ulong = 0x1279;
/// `LOOP_GET_STATUS64` of `linux/loop.h`.
const LOOP_GET_STATUS64: libc::c_ulong = 0x4C05;
/// `struct loop_info64` in 64-bit words, of which the first two are the device and the inode of the file.
const LOOP_INFO_WORDS: usize = 29;
/// One engine block, as the geometry states it.
const BLOCK: u32 = 4096;
const SECTOR: u32 = 512;

const _: () = assert!(
    LOOP_INFO_WORDS * 8 == 5 * 8 + 4 * 4 + 64 + 64 + 32 + 2 * 8,
    "five numbers, four short ones, two names, a key and two more numbers"
);
const _: () =
    assert!(BLOCK as u64 == BLOCK_BYTES && SECTOR as u64 == SECTOR_BYTES, "the same units as the engine's");

/// What is assumed about writes of one engine block at a power failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum BlockAtomicity {
    /// Disks as they report it; files are assumed to write a block wholly or not at all.
    #[default]
    Usual,
    /// Only what is reported: files promise one sector.
    Reported,
    /// One engine block, whatever is reported: for disks behind a cache that power failures do not touch.
    Assumed,
}

/// A device number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct DeviceNumber {
    pub(crate) major: u32,
    pub(crate) minor: u32,
}

impl DeviceNumber {
    /// The device's folder in sysfs.
    pub(crate) fn sysfs(self) -> PathBuf {
        PathBuf::from(format!("/sys/dev/block/{}:{}", self.major, self.minor))
    }
}

/// How a path can be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    File,
    Block(DeviceNumber),
}

/// What the path is; `None` when it can be no disk.
pub(crate) fn kind(status: &Statx) -> Option<Kind> {
    match FileType::from_raw_mode(u32::from(status.stx_mode)) {
        FileType::RegularFile => Some(Kind::File),
        FileType::BlockDevice => {
            let number = DeviceNumber { major: status.stx_rdev_major, minor: status.stx_rdev_minor };
            Some(Kind::Block(number))
        }
        _ => None,
    }
}

/// The state of an open file, with its rules for direct I/O.
pub(crate) fn status(fd: impl AsFd) -> rustix::io::Result<Statx> {
    rustix::fs::statx(fd, "", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS | StatxFlags::DIOALIGN)
}

/// The length of an open file as this host knows it, without asking a server for it; `None` where the system will not say.
pub(crate) fn length(fd: impl AsFd) -> Option<Bytes> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    rustix::fs::statx(fd, "", flags, StatxFlags::SIZE).ok().map(|status| Bytes(status.stx_size))
}

/// The length of an open disk or partition; `None` where the system will not say.
pub(crate) fn block_length(fd: impl AsFd) -> Option<Bytes> {
    ioctl_u64(fd, BLKGETSIZE64).ok().map(Bytes)
}

/// Whether a file can be read and written past the page cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DirectIo {
    No,
    /// In this unit.
    Unit(u32),
    /// The kernel is too old to tell.
    Unknown,
}

pub(crate) fn direct_io(status: &Statx) -> DirectIo {
    if status.stx_mask & StatxFlags::DIOALIGN.bits() == 0 {
        return DirectIo::Unknown;
    }
    match status.stx_dio_offset_align {
        0 => DirectIo::No,
        unit => DirectIo::Unit(unit),
    }
}

/// The logical block of a file: what direct I/O demands, 512 bytes through the page cache.
pub(crate) fn file_unit(direct: DirectIo) -> u32 {
    match direct {
        DirectIo::No => SECTOR,
        DirectIo::Unit(unit) => unit.max(SECTOR),
        // Every file system that does direct I/O does it in units of 4 KiB.
        DirectIo::Unknown => BLOCK,
    }
}

pub(crate) fn of_file(fd: impl AsFd, status: &Statx, unit: u32, atomicity: BlockAtomicity) -> Geometry {
    let size = status.stx_size;
    let atomic_write_bytes = match atomicity {
        BlockAtomicity::Usual | BlockAtomicity::Assumed => BLOCK.max(unit),
        BlockAtomicity::Reported => SECTOR,
    };
    Geometry {
        capacity: Bytes(size - size % u64::from(unit)),
        logical_block_bytes: unit,
        physical_block_bytes: status.stx_blksize.clamp(unit, BLOCK.max(unit)),
        optimal_io_bytes: 0,
        atomic_write_bytes: atomic_write_bytes.max(if atomicity == BlockAtomicity::Reported {
            SECTOR
        } else {
            unit
        }),
        volatile_cache: true,
        // A durable write waits for its own range; a flush would wait for the whole file.
        fua: true,
        discard_granularity_bytes: Some(BLOCK.max(unit)),
        thin: true,
        // Where on the disk below its blocks lie is the file system's affair.
        rotational: false,
        zoning: Zoning::None,
        shareable: reach::of_file(fd),
    }
}

pub(crate) fn of_block(
    fd: impl AsFd,
    number: DeviceNumber,
    atomicity: BlockAtomicity,
) -> io::Result<Geometry> {
    let fd = fd.as_fd();
    let capacity = ioctl_u64(fd, BLKGETSIZE64)?;
    let logical = rustix::fs::ioctl_blksszget(fd)?;
    let physical = rustix::fs::ioctl_blkpbszget(fd).unwrap_or(logical).max(logical);
    let optimal = ioctl_u32(fd, BLKIOOPT).unwrap_or(0);
    let folder = queue_owner(number);
    let queue = |name: &str| attribute(&folder.join("queue").join(name));
    let number_of = |name: &str| queue(name).and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
    let announced = number_of("atomic_write_unit_max_bytes");
    let displaced = attribute(&number.sysfs().join("alignment_offset")).is_some_and(|text| text != "0");
    let unit = u32::try_from(number_of("discard_granularity")).unwrap_or(u32::MAX).max(logical);
    let write_back = queue("write_cache").is_none_or(|text| text != "write through");
    Ok(Geometry {
        capacity: Bytes(capacity - capacity % u64::from(logical)),
        logical_block_bytes: logical,
        physical_block_bytes: physical,
        optimal_io_bytes: optimal,
        atomic_write_bytes: atomic_bytes(Atomic { logical, physical, announced, displaced }, atomicity),
        volatile_cache: write_back,
        fua: !write_back || number_of("fua") == 1,
        discard_granularity_bytes: (number_of("discard_max_bytes") > 0).then_some(unit),
        thin: false,
        rotational: number_of("rotational") == 1,
        zoning: zoning(queue("zoned").as_deref()),
        shareable: reach::of_block(number),
    })
}

/// What a disk reports about the unit that it writes atomically.
#[derive(Debug, Clone, Copy)]
struct Atomic {
    logical: u32,
    physical: u32,
    announced: u64,
    /// Whether the start of a partition lies inside a physical block, so that aligned writes cross two of them.
    displaced: bool,
}

fn atomic_bytes(reported: Atomic, atomicity: BlockAtomicity) -> u32 {
    let announced = if reported.announced >= BLOCK_BYTES { BLOCK } else { 0 };
    match atomicity {
        BlockAtomicity::Assumed => BLOCK.max(reported.logical),
        _ if reported.displaced => reported.logical,
        BlockAtomicity::Usual | BlockAtomicity::Reported => reported.physical.max(announced),
    }
}

fn zoning(text: Option<&str>) -> Zoning {
    match text {
        Some("host-managed") => Zoning::HostManaged,
        Some("host-aware" | "drive-managed") => Zoning::DriveManaged,
        _ => Zoning::None,
    }
}

/// The folder with the queue: a partition's is the whole disk's.
pub(crate) fn queue_owner(number: DeviceNumber) -> PathBuf {
    let own = number.sysfs();
    if own.join("partition").exists() {
        // The link leads to .../sda/sda1; the parent of what it leads to is the disk.
        if let Some(disk) = fs::canonicalize(&own).ok().and_then(|path| path.parent().map(Path::to_path_buf))
        {
            return disk;
        }
    }
    own
}

pub(crate) fn attribute(path: &Path) -> Option<String> {
    fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}

fn ioctl_u64(fd: impl AsFd, request: libc::c_ulong) -> io::Result<u64> {
    let mut value = 0u64;
    // SAFETY: the request writes one 64-bit number, to the variable that lives for the call.
    let result = unsafe { libc::ioctl(fd.as_fd().as_raw_fd(), request, &raw mut value) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(value) }
}

fn ioctl_u32(fd: impl AsFd, request: libc::c_ulong) -> io::Result<u32> {
    let mut value = 0u32;
    // SAFETY: the request writes one 32-bit number, to the variable that lives for the call.
    let result = unsafe { libc::ioctl(fd.as_fd().as_raw_fd(), request, &raw mut value) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(value) }
}

/// A file, by the numbers of its file system and of itself: the same whatever it is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FileNumber {
    pub(crate) device: u64,
    pub(crate) inode: u64,
}

impl FileNumber {
    pub(crate) fn of(status: &Statx) -> Self {
        let device = rustix::fs::makedev(status.stx_dev_major, status.stx_dev_minor);
        Self { device, inode: status.stx_ino }
    }

    /// The file that a loop device shows, as the kernel has it.
    pub(crate) fn under_loop(fd: impl AsFd) -> io::Result<Self> {
        let mut words = [0u64; LOOP_INFO_WORDS];
        // SAFETY: the request writes one `loop_info64`, which is as long as the array that lives for the call.
        let result = unsafe { libc::ioctl(fd.as_fd().as_raw_fd(), LOOP_GET_STATUS64, words.as_mut_ptr()) };
        if result < 0 {
            return Err(io::Error::last_os_error());
        }
        let [device, inode, ..] = words;
        Ok(Self { device, inode })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_promises_its_physical_block_and_no_more() {
        let reported = Atomic { logical: 512, physical: 512, announced: 0, displaced: false };
        assert_eq!(atomic_bytes(reported, BlockAtomicity::Usual), 512);
        assert_eq!(atomic_bytes(Atomic { physical: 4096, ..reported }, BlockAtomicity::Usual), 4096);
        assert_eq!(atomic_bytes(Atomic { announced: 65536, ..reported }, BlockAtomicity::Usual), 4096);
        assert_eq!(atomic_bytes(reported, BlockAtomicity::Assumed), 4096);
    }

    #[test]
    fn a_partition_that_starts_inside_a_physical_block_promises_a_sector() {
        let displaced = Atomic { logical: 512, physical: 4096, announced: 65536, displaced: true };
        assert_eq!(atomic_bytes(displaced, BlockAtomicity::Usual), 512);
    }
}
