//! Who uses a block device: the kernel, by mounts, swap and devices built on it; and processes that have it open.

use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::path::Path;
use std::time::Duration;

use dolmen_block_linux::Use;
use rustix::fs::{AtFlags, CWD, StatxFlags};

/// Processes that are named, at most; who has more needs no complete list to begin with.
const PROCESSES_MAX: usize = 16;
/// How often a change of a device is looked for, and the pause between: who looks at a new device, as udev does, has it
/// open for a moment.
pub const LOOKS_MAX: usize = 20;
/// Pause between two of these looks.
pub const PAUSE: Duration = Duration::from_millis(50);

/// One user of a block device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Holder {
    /// The kernel.
    Kernel(Use),
    /// A process that has the device or one of its partitions open.
    Process {
        /// Its id.
        pid: u32,
        /// Its name.
        name: String,
    },
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kernel(kernel) => write!(f, "{kernel}"),
            Self::Process { pid, name } => write!(f, "open in process {pid} ({name})"),
        }
    }
}

/// All of them, in one line.
#[must_use]
pub fn list(by: &[Holder]) -> String {
    let texts: Vec<String> = by.iter().map(ToString::to_string).collect();
    if texts.is_empty() {
        "in use by somebody who cannot be seen from here".to_owned()
    } else {
        texts.join(", ")
    }
}

/// Who uses the device, except this process.
#[must_use]
pub fn holders(device: &Path) -> Vec<Holder> {
    let kernel = dolmen_block_linux::in_use(device).ok().flatten();
    let kernel = kernel.into_iter().flat_map(|found| found.by);
    let mut by: Vec<Holder> =
        kernel.chain(dolmen_block_linux::mounted_elsewhere(device)).map(Holder::Kernel).collect();
    let Some(numbers) = with_partitions(device) else { return by };
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let others = pids.filter(|pid| *pid != std::process::id() && !is_about_to_exec(*pid));
    let open = others.filter(|pid| has_open(*pid, &numbers)).take(PROCESSES_MAX);
    by.extend(open.map(|pid| Holder::Process { pid, name: name_of(pid) }));
    by
}

/// Who uses the device and goes on to: nobody, where all were processes that let go of it in a moment, as udev does, or mount
/// namespaces that a tool has for a moment.
#[must_use]
pub fn lasting_holders(device: &Path) -> Vec<Holder> {
    let lasts = |holder: &Holder| match holder {
        Holder::Process { .. } | Holder::Kernel(Use::MountedElsewhere { .. }) => false,
        Holder::Kernel(Use::Mounted { .. } | Use::Swap | Use::HeldBy { .. } | Use::Loop { .. }) => true,
    };
    let mut by = holders(device);
    for _ in 0..LOOKS_MAX {
        if by.is_empty() || by.iter().any(lasts) {
            break;
        }
        pause(PAUSE);
        by = holders(device);
    }
    by
}

/// Waits; these waits are for the kernel and udev, not for anything with a clock of its own.
pub fn pause(span: Duration) {
    let nanoseconds = i64::from(span.subsec_nanos());
    let seconds = i64::try_from(span.as_secs()).unwrap_or(0);
    // A signal that cuts it short costs one more look.
    let _ = rustix::thread::nanosleep(&rustix::time::Timespec { tv_sec: seconds, tv_nsec: nanoseconds });
}

/// The numbers of a device and its partitions.
fn with_partitions(device: &Path) -> Option<BTreeSet<(u32, u32)>> {
    let status = rustix::fs::statx(CWD, device, AtFlags::empty(), StatxFlags::BASIC_STATS).ok()?;
    let (major, minor) = (status.stx_rdev_major, status.stx_rdev_minor);
    let folder = format!("/sys/dev/block/{major}:{minor}");
    let parts = fs::read_dir(folder).into_iter().flatten().flatten();
    let numbers = parts.filter_map(|entry| {
        let text = fs::read_to_string(entry.path().join("dev")).ok()?;
        let (major, minor) = text.trim().split_once(':')?;
        Some((major.parse().ok()?, minor.parse().ok()?))
    });
    Some(std::iter::once((major, minor)).chain(numbers).collect())
}

/// Returns whether a process is a child of this one that has not become its program yet. Until then it has the descriptors of this
/// process, which it closes with the change.
fn is_about_to_exec(pid: u32) -> bool {
    let program = |pid: u32| fs::read_link(format!("/proc/{pid}/exe")).ok();
    let parent = || {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        status.lines().find_map(|line| line.strip_prefix("PPid:"))?.trim().parse::<u32>().ok()
    };
    parent() == Some(std::process::id())
        && program(pid).is_some_and(|found| Some(found) == program(std::process::id()))
}

fn has_open(pid: u32, numbers: &BTreeSet<(u32, u32)>) -> bool {
    let fds = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    fds.filter(|entry| leads_to_device(&entry.path())).any(|entry| {
        let status = rustix::fs::statx(CWD, entry.path(), AtFlags::empty(), StatxFlags::BASIC_STATS);
        let is_block =
            |status: &rustix::fs::Statx| u32::from(status.stx_mode) & libc::S_IFMT == libc::S_IFBLK;
        status.is_ok_and(|status| {
            is_block(&status) && numbers.contains(&(status.stx_rdev_major, status.stx_rdev_minor))
        })
    })
}

/// Looking at a descriptor's file may wait for a network or for ourselves; only those that lead to `/dev` are looked at.
fn leads_to_device(fd: &Path) -> bool {
    fs::read_link(fd).is_ok_and(|target| target.starts_with("/dev"))
}

fn name_of(pid: u32) -> String {
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    name.trim().to_owned()
}
