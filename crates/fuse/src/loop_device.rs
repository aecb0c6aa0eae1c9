//! Loop devices: a block device of the kernel's over the file of a space, with direct I/O.
//!
//! The device carries a tag, so that a device of ours is never taken for somebody else's, nor the other way round, even
//! when the file under it is out of sight.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::{fmt, fs, io};

use dolmen_attach::{Access, LOOKS_MAX, PAUSE, pause};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

use crate::ledger::Attachment;

const CONTROL: &str = "/dev/loop-control";
const CONTROL_GET_FREE: libc::c_ulong = 0x4C82;
const CONFIGURE: libc::c_ulong = 0x4C0A;
const CLEAR: libc::c_ulong = 0x4C01;
const SET_STATUS: libc::c_ulong = 0x4C04;
const GET_STATUS: libc::c_ulong = 0x4C05;
const SET_CAPACITY: libc::c_ulong = 0x4C07;
const FLAG_READ_ONLY: u32 = 1;
const FLAG_AUTOCLEAR: u32 = 4;
const FLAG_PARTITIONS: u32 = 8;
const FLAG_DIRECT_IO: u32 = 16;

/// What `queue/write_cache` says of a device that is given no flushes, and of one that is.
const WRITE_THROUGH: &str = "write through";
const WRITE_BACK: &str = "write back";
/// How often a free device is looked for when others take it first.
const TRIES_MAX: usize = 64;
/// The largest request that a loop device makes, in KiB: what one FUSE request carries at most.
const REQUEST_KIB_MAX: u64 = 1024;

/// `loop_info64` of the kernel.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
struct Info {
    device: u64,
    inode: u64,
    real_device: u64,
    offset: u64,
    size_limit: u64,
    number: u32,
    encryption: u32,
    key_bytes: u32,
    flags: u32,
    tag: [u8; 64],
    encryption_name: [u8; 64],
    key: [u8; 32],
    init: [u64; 2],
}

/// `loop_config` of the kernel.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
struct Configuration {
    fd: u32,
    block_bytes: u32,
    info: Info,
    reserved: [u64; 8],
}

const _: () = assert!(size_of::<Info>() == 232 && size_of::<Configuration>() == 304);

/// Why a loop device did not carry out a request.
#[derive(Debug, thiserror::Error)]
pub enum LoopError {
    /// The kernel has no loop devices, or their module is not loaded.
    #[error(
        "opening {CONTROL}: {source}; load it with `modprobe loop`, or use the space over NBD with `dolmen serve`"
    )]
    NoLoop {
        /// What the system said.
        source: io::Error,
    },
    /// Only root may.
    #[error("{doing} {}: {source}; run the daemon as root, or use the space over NBD with `dolmen serve`", device.display())]
    NotPermitted {
        /// What was done.
        doing: &'static str,
        /// The device.
        device: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Others took every device that was free.
    #[error("looking for a free loop device: others took {TRIES_MAX} of them first; try again")]
    Contended,
    /// The device works through the page cache, which would lose what was flushed and can lock up the machine.
    #[error("{} does not do direct I/O on the file of the space; the kernel is too old for loop devices with {block_bytes}-byte sectors; use the space over NBD with `dolmen serve`", device.display())]
    NotDirect {
        /// The device.
        device: PathBuf,
        /// The sector that was asked for.
        block_bytes: u32,
    },
    /// The device passes no flushes on: what programs synced would be lost with the power.
    #[error("{} passes no flushes on, and cannot be told to: its queue/write_cache in /sys/block says \"{WRITE_THROUGH}\"; write \"{WRITE_BACK}\" there, and attach again", device.display())]
    WithoutFlushes {
        /// The device.
        device: PathBuf,
    },
    /// Something else.
    #[error("{doing} {}: {source}", device.display())]
    Failed {
        /// What was done.
        doing: &'static str,
        /// The device.
        device: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

/// The name that the kernel keeps with the device.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tag([u8; 64]);

impl Tag {
    /// The tag of a file in the folder mounted at `at`: another daemon's folder may hold a copy of the same pool.
    pub(crate) fn of(attachment: &Attachment, at: &Path) -> Self {
        let Attachment { space, node, .. } = attachment;
        let folder = fnv_1a(at.as_os_str().as_bytes());
        let text = format!("dolmen-{}-{}-{node}-{folder:x}", space.pool.short(), space.space.0);
        let mut tag = [0; 64];
        // The last byte stays zero, as the kernel wants it.
        tag.iter_mut().take(63).zip(text.bytes()).for_each(|(to, from)| *to = from);
        Self(tag)
    }
}

/// The hash of Fowler, Noll and Vo, to shorten a path; nothing depends on its being hard to forge.
fn fnv_1a(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193))
}

impl fmt::Debug for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tag({})", String::from_utf8_lossy(&self.0).trim_end_matches('\0'))
    }
}

/// What a new device is made of.
#[derive(Debug)]
pub(crate) struct Plan<'a> {
    pub(crate) file: BorrowedFd<'a>,
    pub(crate) tag: Tag,
    pub(crate) access: Access,
    pub(crate) sector_bytes: u32,
    pub(crate) read_ahead_kib: u64,
}

/// A loop device by its number; it may or may not be configured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LoopDevice {
    pub(crate) number: u32,
}

/// How an attempt to clear a device ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cleared {
    Done,
    InUse,
}

/// An ioctl whose argument is a number, or the address of a struct of the size that the request says.
fn ioctl(fd: BorrowedFd<'_>, request: libc::c_ulong, argument: libc::c_ulong) -> Result<u32, Errno> {
    // SAFETY: all callers pass either a number or the address of a live struct of the request's own type, exclusively
    // borrowed where the kernel writes.
    let result = unsafe { libc::ioctl(fd.as_raw_fd(), request, argument) };
    u32::try_from(result).map_err(|_| {
        let errno = io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO);
        Errno::from_raw_os_error(errno)
    })
}

fn address<T>(of: &mut T) -> libc::c_ulong {
    (&raw mut *of).expose_provenance() as libc::c_ulong
}

impl LoopDevice {
    pub(crate) fn path(self) -> PathBuf {
        PathBuf::from(format!("/dev/loop{}", self.number))
    }

    fn sysfs(self, attribute: &str) -> PathBuf {
        PathBuf::from(format!("/sys/block/loop{}/{attribute}", self.number))
    }

    fn error(self, doing: &'static str, error: Errno) -> LoopError {
        let device = self.path();
        match error {
            Errno::PERM | Errno::ACCESS => LoopError::NotPermitted { doing, device, source: error.into() },
            _ => LoopError::Failed { doing, device, source: error.into() },
        }
    }

    /// A number that is free now; somebody else may take it next.
    fn next_free() -> Result<Self, LoopError> {
        let control = rustix::fs::open(CONTROL, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty());
        let control = control.map_err(|error| match error {
            Errno::PERM | Errno::ACCESS => {
                LoopError::NotPermitted { doing: "opening", device: CONTROL.into(), source: error.into() }
            }
            _ => LoopError::NoLoop { source: error.into() },
        })?;
        let number = ioctl(control.as_fd(), CONTROL_GET_FREE, 0);
        number.map(|number| Self { number }).map_err(|error| LoopError::Failed {
            doing: "looking for a free loop device at",
            device: CONTROL.into(),
            source: error.into(),
        })
    }

    /// Configures a free device, which `record` gets before it is taken.
    pub(crate) fn configure<E: From<LoopError>>(
        plan: &Plan<'_>,
        mut record: impl FnMut(Self) -> Result<(), E>,
    ) -> Result<Self, E> {
        for _ in 0..TRIES_MAX {
            let device = Self::next_free()?;
            record(device)?;
            if device.take(plan)? {
                device.tune(plan.read_ahead_kib);
                return Ok(device);
            }
        }
        Err(LoopError::Contended.into())
    }

    /// Configures this device; false when somebody else was faster.
    fn take(self, plan: &Plan<'_>) -> Result<bool, LoopError> {
        let open = match self.open() {
            Ok(open) => open,
            Err(Errno::NXIO | Errno::NODEV | Errno::NOENT | Errno::BUSY) => return Ok(false),
            Err(error) => return Err(self.error("opening", error)),
        };
        let read_only = if plan.access == Access::ReadOnly { FLAG_READ_ONLY } else { 0 };
        let fd = u32::try_from(plan.file.as_raw_fd()).unwrap_or(0);
        let mut info = Info::new_zeroed();
        info.flags = FLAG_DIRECT_IO | FLAG_PARTITIONS | read_only;
        info.tag = plan.tag.0;
        let mut configuration = Configuration { fd, block_bytes: plan.sector_bytes, info, reserved: [0; 8] };
        match ioctl(open.as_fd(), CONFIGURE, address(&mut configuration)) {
            Ok(_) => {}
            Err(Errno::BUSY) => return Ok(false),
            Err(error) => return Err(self.error("configuring", error)),
        }
        drop(open);
        let passes_flushes =
            plan.access == Access::ReadOnly || pass_flushes(&self.sysfs("queue/write_cache"));
        if self.is_direct() && passes_flushes {
            return Ok(true);
        }
        self.clear()?;
        if !passes_flushes {
            return Err(LoopError::WithoutFlushes { device: self.path() });
        }
        Err(LoopError::NotDirect { device: self.path(), block_bytes: plan.sector_bytes })
    }

    fn open(self) -> Result<OwnedFd, Errno> {
        rustix::fs::open(self.path(), OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
            .or_else(|_| rustix::fs::open(self.path(), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()))
    }

    /// What the kernel says of the device, `None` when it is not configured.
    fn info(fd: BorrowedFd<'_>) -> Result<Option<Info>, Errno> {
        let mut info = Info::new_zeroed();
        match ioctl(fd, GET_STATUS, address(&mut info)) {
            Ok(_) => Ok(Some(info)),
            Err(Errno::NXIO) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Whether the device does direct I/O, by both of the kernel's accounts.
    pub(crate) fn is_direct(self) -> bool {
        fs::read_to_string(self.sysfs("loop/dio")).is_ok_and(|text| text.trim() == "1")
    }

    /// Whether the device shows that file under that tag.
    ///
    /// The kernel tells the tag only together with the file's attributes, for which it asks us: so the reading threads
    /// must run. Where the file's connection has ended it tells nothing, and the file's path has to do; it has lost its
    /// folder if that is not mounted any more.
    ///
    /// A device over a file of another name is not asked: the daemon of that file may be gone without an end of its connection, and
    /// then the kernel waits for it.
    pub(crate) fn carries(self, tag: Tag, file: &Path) -> bool {
        if self.backing_file().is_none_or(|found| found.file_name() != file.file_name()) {
            return false;
        }
        let Ok(open) = self.open() else { return false };
        match Self::info(open.as_fd()) {
            Ok(Some(info)) => info.tag == tag.0,
            Ok(None) => false,
            Err(_) => self.backing_file().is_some_and(|found| {
                let without_folder = file.file_name().map(|name| Path::new("/").join(name));
                found == file || without_folder.is_some_and(|name| found == name)
            }),
        }
    }

    fn backing_file(self) -> Option<PathBuf> {
        let text = fs::read_to_string(self.sysfs("loop/backing_file")).ok()?;
        Some(PathBuf::from(text.trim_end_matches('\n')))
    }

    /// What tells the device from what it is with another file under it, `None` when there is none: somebody else may have
    /// taken the number a moment after it was released. The kernel counts each change of a disk since 5.15; before, the
    /// file's path has to do.
    fn incarnation(self) -> Option<String> {
        let file = fs::read_to_string(self.sysfs("loop/backing_file")).ok()?;
        Some(fs::read_to_string(self.sysfs("diskseq")).unwrap_or(file))
    }

    /// Settings that make it faster, none of which it needs to work.
    fn tune(self, read_ahead_kib: u64) {
        for (attribute, value) in
            [("queue/read_ahead_kb", read_ahead_kib), ("queue/max_sectors_kb", REQUEST_KIB_MAX)]
        {
            if let Err(error) = fs::write(self.sysfs(attribute), value.to_string()) {
                tracing::debug!(device = self.number, attribute, value, %error, "setting up a loop device: left at its default");
            }
        }
    }

    /// Takes over the new length of the file.
    pub(crate) fn refresh_capacity(self) -> Result<(), LoopError> {
        let open = self.open().map_err(|error| self.error("opening", error))?;
        ioctl(open.as_fd(), SET_CAPACITY, 0).map(|_| ()).map_err(|error| self.error("resizing", error))
    }

    /// The length of the device.
    pub(crate) fn size_bytes(self) -> Option<u64> {
        let sectors: u64 = fs::read_to_string(self.sysfs("size")).ok()?.trim().parse().ok()?;
        sectors.checked_mul(512)
    }

    /// Writes out what the page cache holds of the device.
    pub(crate) fn write_out(self) -> Result<(), LoopError> {
        let written = self.open().and_then(rustix::fs::fsync);
        written.map_err(|error| self.error("writing out", error))
    }

    /// Takes the file from under the device, if nobody uses it.
    ///
    /// The kernel would put it off until the last user is gone; the caller wants it now or not at all. So a device that
    /// is still there is told to stay. One that shows something else by then is somebody else's.
    pub(crate) fn clear(self) -> Result<Cleared, LoopError> {
        let open = match self.open() {
            Ok(open) => open,
            Err(Errno::NXIO | Errno::NODEV | Errno::NOENT) => return Ok(Cleared::Done),
            Err(error) => return Err(self.error("opening", error)),
        };
        let Some(before) = self.incarnation() else { return Ok(Cleared::Done) };
        match ioctl(open.as_fd(), CLEAR, 0) {
            Ok(_) | Err(Errno::NXIO) => {}
            Err(Errno::BUSY) => return Ok(Cleared::InUse),
            Err(error) => return Err(self.error("clearing", error)),
        }
        drop(open);
        for _ in 0..LOOKS_MAX {
            if self.incarnation().as_ref() != Some(&before) {
                return Ok(Cleared::Done);
            }
            pause(PAUSE);
        }
        self.keep_configured(&before)
    }

    /// Tells a device that is going to be cleared when its last user goes to stay, if it is still the same one.
    fn keep_configured(self, before: &str) -> Result<Cleared, LoopError> {
        // While it is open here, it keeps its file.
        let open = self.open().map_err(|error| self.error("opening", error))?;
        if self.incarnation().as_deref() != Some(before) {
            return Ok(Cleared::Done);
        }
        let Some(mut info) = Self::info(open.as_fd()).map_err(|error| self.error("looking at", error))?
        else {
            return Ok(Cleared::Done);
        };
        info.flags &= !FLAG_AUTOCLEAR;
        ioctl(open.as_fd(), SET_STATUS, address(&mut info)).map_err(|error| self.error("keeping", error))?;
        Ok(Cleared::InUse)
    }
}

/// Has a device pass flushes on; false if it does not. Somebody may have switched its write cache off when another file was under it, and
/// the kernel remembers that with the number of the device.
fn pass_flushes(write_cache: &Path) -> bool {
    let is_off = || fs::read_to_string(write_cache).is_ok_and(|text| text.trim() == WRITE_THROUGH);
    if is_off()
        && let Err(error) = fs::write(write_cache, WRITE_BACK)
    {
        tracing::warn!(file = %write_cache.display(), %error, "a loop device passes no flushes on");
    }
    !is_off()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Scenario: a device whose write cache was switched off, one that passes flushes on, and one of a kernel that does not say.
    #[test]
    fn a_device_is_set_to_pass_flushes_on() {
        let file = std::env::temp_dir().join(format!("dolmen-write-cache-{}", std::process::id()));
        for text in ["write through\n", "write back\n"] {
            fs::write(&file, text).unwrap();
            assert!(pass_flushes(&file), "{text}");
            assert_eq!(fs::read_to_string(&file).unwrap().trim(), WRITE_BACK);
        }
        fs::remove_file(&file).unwrap();
        assert!(pass_flushes(&file));
        assert!(!file.exists(), "a file was made in place of an attribute");
    }

    fn plan_of(file: &fs::File) -> Plan<'_> {
        let tag = Tag([0; 64]);
        Plan { file: file.as_fd(), tag, access: Access::ReadWrite, sector_bytes: 512, read_ahead_kib: 128 }
    }

    /// Scenario: somebody switched the write cache of a device off, when another file was under it. The device has a number of its own
    /// here, so that nobody else gets it so.
    #[test]
    fn a_device_that_is_taken_passes_flushes_on() {
        const CONTROL_ADD: libc::c_ulong = 0x4C80;
        const CONTROL_REMOVE: libc::c_ulong = 0x4C81;
        let number = 700_000 + std::process::id() % 100_000;
        let device = LoopDevice { number };
        let Ok(control) = fs::File::open(CONTROL) else {
            println!("skipped: no {CONTROL}");
            return;
        };
        if ioctl(control.as_fd(), CONTROL_ADD, number.into()).is_err() {
            println!("skipped: no loop device can be added");
            return;
        }
        let path = std::env::temp_dir().join(format!("dolmen-flushes-{number}"));
        let options = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC;
        let file = fs::File::from(rustix::fs::open(&path, options, Mode::RUSR | Mode::WUSR).unwrap());
        file.set_len(1 << 20).unwrap();
        let write_cache = device.sysfs("queue/write_cache");
        let read = || fs::read_to_string(&write_cache).unwrap_or_default().trim().to_owned();
        let switched_off = fs::write(&write_cache, WRITE_THROUGH);
        let taken = device.take(&plan_of(&file));
        let found = read();
        let cleared = device.clear();
        let removed = ioctl(control.as_fd(), CONTROL_REMOVE, number.into());
        fs::remove_file(path).unwrap();
        match taken {
            Ok(true) if switched_off.is_ok() => {
                assert_eq!(found, WRITE_BACK, "what programs sync may be lost")
            }
            other => println!("skipped: {other:?}, {switched_off:?}"),
        }
        assert_eq!(cleared.unwrap(), Cleared::Done);
        removed.unwrap();
    }

    #[test]
    fn a_number_that_somebody_took_is_not_ours_any_more() {
        // Scenario: a device is cleared while somebody has it open for a moment, closes it, so that it goes, and takes its
        // number at once. To clear it has succeeded, quickly, and says and changes nothing of the other's device.
        let at = |name: &str| std::env::temp_dir().join(format!("dolmen-loop-{name}-{}", std::process::id()));
        let paths = [at("ours"), at("theirs")];
        let make = |path: &PathBuf| {
            let options = OFlags::RDWR | OFlags::CREATE | OFlags::DIRECT | OFlags::CLOEXEC;
            let file = fs::File::from(rustix::fs::open(path, options, Mode::RUSR | Mode::WUSR).ok()?);
            file.set_len(1 << 20).ok().map(|()| file)
        };
        let (Some(ours), Some(theirs)) = (make(&paths[0]), make(&paths[1])) else {
            println!("skipped: no files with direct I/O in {}", std::env::temp_dir().display());
            return;
        };
        let device = match LoopDevice::configure::<LoopError>(&plan_of(&ours), |_| Ok(())) {
            Ok(device) => device,
            Err(error) => {
                println!("skipped: {error}");
                return;
            }
        };
        let open = device.open().unwrap();
        let goes = |open: &OwnedFd| {
            let info = LoopDevice::info(open.as_fd()).unwrap();
            info.is_none_or(|info| info.flags & FLAG_AUTOCLEAR != 0)
        };
        let (cleared, taken) = std::thread::scope(|scope| {
            let clearing = scope.spawn(|| device.clear());
            while !goes(&open) && !clearing.is_finished() {
                std::thread::yield_now();
            }
            drop(open);
            let taken = device.take(&plan_of(&theirs));
            (clearing.join().unwrap(), taken)
        });
        let is_there = device.backing_file().is_some();
        let theirs_cleared = device.clear();
        for path in paths {
            fs::remove_file(path).unwrap();
        }
        // Others on this machine may have been faster than somebody.
        if taken.unwrap() {
            assert!(is_there);
            assert_eq!(theirs_cleared.unwrap(), Cleared::Done);
        } else {
            println!("skipped: others took the number");
        }
        assert_eq!(cleared.unwrap(), Cleared::Done);
    }
}
