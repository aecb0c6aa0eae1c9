//! Whether the kernel uses a disk already, and for what.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fmt;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError};
use std::sync::{Mutex, PoisonError, mpsc};
use std::thread;
use std::time::Duration;

use rustix::fs::{AtFlags, CWD, StatxFlags};

use crate::geometry::{self, DeviceNumber, FileNumber, Kind};
use crate::path_name::path_of;

/// The type, in the kernel's table of mounts, of the folder in which a daemon shows its spaces to loop devices.
pub const SPACES_FILE_SYSTEM: &str = "fuse.dolmen";

/// How long the kernel may take to say which file a loop device shows.
const LOOP_TIMEOUT: Duration = Duration::from_secs(2);

/// Answers about loop devices that did not come in time. Until one comes, nobody waits for that device again.
static OVERDUE: Mutex<BTreeMap<String, Receiver<Option<FileNumber>>>> = Mutex::new(BTreeMap::new());

/// A use that forbids to take a disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Use {
    /// A file system on it is mounted there.
    Mounted {
        /// Where.
        at: PathBuf,
    },
    /// A file system on it is mounted in another mount namespace, such as that of a container.
    MountedElsewhere {
        /// Where, as it is called there.
        at: PathBuf,
        /// A process that lives there.
        pid: u32,
        /// Its name.
        process: String,
    },
    /// The kernel swaps to it.
    Swap,
    /// Another block device is built on it: a RAID array, a mapping, a cache.
    HeldBy {
        /// Its name under `/dev`.
        device: String,
    },
    /// A loop device shows it.
    Loop {
        /// Its name under `/dev`.
        device: String,
    },
}

/// The uses of a disk, of which there is at least one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InUse {
    /// Each of them, in the order in which they were found.
    pub by: Vec<Use>,
}

impl fmt::Display for Use {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mounted { at } => write!(f, "mounted at {}", at.display()),
            Self::MountedElsewhere { at, pid, process } => {
                write!(f, "mounted at {} in the mount namespace of process {pid} ({process})", at.display())
            }
            Self::Swap => f.write_str("used as swap"),
            Self::HeldBy { device } => write!(f, "part of /dev/{device}"),
            Self::Loop { device } => write!(f, "shown by /dev/{device}"),
        }
    }
}

impl fmt::Display for InUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, one) in self.by.iter().enumerate() {
            let separator = if index == 0 { "" } else { ", " };
            write!(f, "{separator}{one}")?;
        }
        Ok(())
    }
}

/// How the kernel uses what is at `path`: a disk by itself or by one of its partitions, a file as swap or under a loop
/// device. What other processes do with it is not seen here; opening it exclusively finds that out.
///
/// # Errors
/// When the path cannot be looked at.
pub fn in_use(path: &Path) -> io::Result<Option<InUse>> {
    let path = fs::canonicalize(path_of(path))?;
    let status = rustix::fs::statx(CWD, &path, AtFlags::empty(), StatxFlags::BASIC_STATS)?;
    let mut by = Vec::new();
    match geometry::kind(&status) {
        Some(Kind::Block(number)) => uses_of_disk(number, &mut by),
        Some(Kind::File) => uses_of_file(FileNumber::of(&status), &mut by),
        None => {}
    }
    Ok(if by.is_empty() { None } else { Some(InUse { by }) })
}

/// Where file systems on a disk, or on one of its partitions, are mounted in other mount namespaces, as far as their processes may
/// be looked at: a copy of a mount that a container took along keeps a disk in use after it was unmounted here. All processes of
/// the host are gone through: it is for a disk that is said to be busy, and for which nothing here accounts.
#[must_use]
pub fn mounted_elsewhere(path: &Path) -> Vec<Use> {
    let Ok(status) = rustix::fs::statx(CWD, path, AtFlags::empty(), StatxFlags::BASIC_STATS) else {
        return Vec::new();
    };
    let Some(Kind::Block(number)) = geometry::kind(&status) else { return Vec::new() };
    let disk = Disk::at(&number.sysfs());
    let namespace = |process: &Path| fs::read_link(process.join("ns/mnt")).ok();
    let mut seen: BTreeSet<PathBuf> = namespace(Path::new("/proc/self")).into_iter().collect();
    let mut by = Vec::new();
    for name in names(Path::new("/proc")) {
        let Ok(pid) = name.parse::<u32>() else { continue };
        let process = Path::new("/proc").join(&name);
        if !namespace(&process).is_some_and(|namespace| seen.insert(namespace)) {
            continue;
        }
        let found = mounts_of(&process).into_iter().filter(|mount| disk.is_under(mount));
        let process = geometry::attribute(&process.join("comm")).unwrap_or_default();
        by.extend(found.map(|mount| Use::MountedElsewhere { at: mount.at, pid, process: process.clone() }));
    }
    by
}

/// A disk and its partitions, as mounts and the kernel name them.
struct Disk {
    folders: Vec<PathBuf>,
    numbers: BTreeSet<DeviceNumber>,
    /// Other devices of the file systems over several devices that these belong to.
    siblings: BTreeSet<DeviceNumber>,
}

impl Disk {
    fn at(folder: &Path) -> Self {
        let folders = with_partitions(folder);
        let numbers = folders.iter().filter_map(|folder| number_of(folder)).collect();
        let siblings = btrfs_siblings(&folders);
        Self { folders, numbers, siblings }
    }

    fn is_under(&self, mount: &Mount) -> bool {
        let is_one = |number: &DeviceNumber| self.numbers.contains(number) || self.siblings.contains(number);
        self.numbers.contains(&mount.number) || mount.devices().iter().any(is_one)
    }
}

fn uses_of_disk(number: DeviceNumber, by: &mut Vec<Use>) {
    let disk = Disk::at(&number.sysfs());
    let mounted = mounts().into_iter().filter(|mount| disk.is_under(mount));
    by.extend(mounted.map(|mount| Use::Mounted { at: mount.at }));
    let swapped = swaps().into_iter().filter_map(|path| {
        let status = rustix::fs::statx(CWD, &path, AtFlags::empty(), StatxFlags::BASIC_STATS).ok()?;
        geometry::kind(&status)
    });
    let is_ours = |kind: &Kind| matches!(kind, Kind::Block(number) if disk.numbers.contains(number));
    by.extend(swapped.filter(is_ours).map(|_| Use::Swap));
    for folder in &disk.folders {
        by.extend(names(&folder.join("holders")).into_iter().map(|device| Use::HeldBy { device }));
    }
}

/// The devices of the btrfs file systems that have one of these: a mount names one of its devices only.
pub(crate) fn btrfs_siblings(folders: &[PathBuf]) -> BTreeSet<DeviceNumber> {
    let own: BTreeSet<_> = folders.iter().filter_map(|folder| fs::canonicalize(folder).ok()).collect();
    let mut siblings = BTreeSet::new();
    for file_system in names(Path::new("/sys/fs/btrfs")) {
        let devices = Path::new("/sys/fs/btrfs").join(file_system).join("devices");
        let devices: Vec<PathBuf> =
            names(&devices).iter().filter_map(|name| fs::canonicalize(devices.join(name)).ok()).collect();
        if devices.iter().any(|device| own.contains(device)) {
            siblings.extend(devices.iter().filter_map(|device| number_of(device)));
        }
    }
    siblings
}

fn uses_of_file(file: FileNumber, by: &mut Vec<Use>) {
    let mounts = mounts();
    let is_it = |path: &PathBuf| number_at(path) == Some(file);
    by.extend(swaps().iter().filter(|swap| is_it(swap)).map(|_| Use::Swap));
    for device in names(Path::new("/sys/block")) {
        let backing = Path::new("/sys/block").join(&device).join("loop/backing_file");
        let Some(name) = geometry::attribute(&backing) else { continue };
        if is_elsewhere_in_fuse(Path::new(&name), file, &mounts) {
            continue;
        }
        // The name is that of the file when it was attached, in the mounts of whoever did it. The kernel knows the file
        // itself, and tells whoever may open the device.
        if file_under(&device).or_else(|| number_at(Path::new(&name))) == Some(file) {
            by.push(Use::Loop { device });
        }
    }
}

/// Whether the file of a loop device is another one than `file`, on a file system that a process serves. To be told more,
/// the kernel would ask that process, which may be gone or hang.
fn is_elsewhere_in_fuse(name: &Path, file: FileNumber, mounts: &[Mount]) -> bool {
    mount_of(name, mounts).is_some_and(|mount| {
        mount.is_fuse() && rustix::fs::makedev(mount.number.major, mount.number.minor) != file.device
    })
}

/// The file that a loop device shows, if the kernel can tell in time: where it is on a file system that is served by a
/// process, or over a network, and could not be seen to be, the kernel has to ask.
fn file_under(device: &str) -> Option<FileNumber> {
    let mut late = OVERDUE.lock().unwrap_or_else(PoisonError::into_inner);
    if late.get(device).is_some_and(|answer| answer.try_recv() == Err(TryRecvError::Empty)) {
        return None;
    }
    late.remove(device);
    drop(late);
    let (notify, reported) = mpsc::channel();
    let path = Path::new("/dev").join(device);
    let ask = move || {
        let number = fs::File::open(&path).and_then(FileNumber::under_loop);
        // Nobody waits for it any more if it took too long.
        let _ = notify.send(number.ok());
    };
    thread::Builder::new().name("loop file".to_owned()).spawn(ask).ok()?;
    match reported.recv_timeout(LOOP_TIMEOUT) {
        Ok(number) => number,
        Err(RecvTimeoutError::Disconnected) => None,
        Err(RecvTimeoutError::Timeout) => {
            OVERDUE.lock().unwrap_or_else(PoisonError::into_inner).insert(device.to_owned(), reported);
            None
        }
    }
}

fn number_at(path: &Path) -> Option<FileNumber> {
    let status = rustix::fs::statx(CWD, path, AtFlags::empty(), StatxFlags::BASIC_STATS).ok()?;
    Some(FileNumber::of(&status))
}

/// A disk's folder in sysfs, and those of its partitions.
fn with_partitions(disk: &Path) -> Vec<PathBuf> {
    let partitions =
        names(disk).into_iter().map(|name| disk.join(name)).filter(|path| path.join("partition").exists());
    std::iter::once(disk.to_path_buf()).chain(partitions).collect()
}

pub(crate) fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<_> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort();
    names
}

pub(crate) fn number_of(folder: &Path) -> Option<DeviceNumber> {
    parse_number(&geometry::attribute(&folder.join("dev"))?)
}

fn parse_number(text: &str) -> Option<DeviceNumber> {
    let (major, minor) = text.split_once(':')?;
    Some(DeviceNumber { major: major.parse().ok()?, minor: minor.parse().ok()? })
}

/// A line of `mountinfo`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mount {
    pub(crate) id: u32,
    /// The mount that this one is in.
    pub(crate) parent: u32,
    pub(crate) number: DeviceNumber,
    pub(crate) at: PathBuf,
    pub(crate) file_system: String,
    /// What is mounted, in the words of whoever did it.
    source: String,
    /// The options of the file system, with the escapes of the kernel: an escaped comma does not end an option.
    options: String,
}

impl Mount {
    /// The devices that its source names. File systems over several of them, such as btrfs, have a number of their own, which is
    /// that of no device.
    pub(crate) fn devices(&self) -> Vec<DeviceNumber> {
        if self.number.major != 0 {
            return Vec::new();
        }
        // Nothing else is looked at: the path could lead to a process that has to answer, and may be this one.
        let paths = self.source.split(':').filter(|path| path.starts_with("/dev/"));
        let number = |path: &str| {
            let status = rustix::fs::statx(CWD, path, AtFlags::empty(), StatxFlags::BASIC_STATS).ok()?;
            match geometry::kind(&status)? {
                Kind::Block(number) => Some(number),
                Kind::File => None,
            }
        };
        paths.filter_map(number).collect()
    }

    /// Folders of other file systems that this one shows, as far as it names them.
    pub(crate) fn folders_below(&self) -> Vec<PathBuf> {
        let named: Vec<String> = match self.file_system.as_str() {
            "overlay" => layers_in(&self.options),
            "ecryptfs" => vec![self.source.clone()],
            _ if self.is_fuse() => self.source.split(':').map(str::to_owned).collect(),
            _ => Vec::new(),
        };
        // `host:/folder` lies elsewhere, whatever is at that folder here.
        let is_here = named.iter().all(|folder| folder.starts_with('/')) || self.file_system == "overlay";
        let folders = named.into_iter().filter(|folder| is_here && folder.starts_with('/'));
        folders.filter(|folder| !folder.starts_with("/dev/")).map(PathBuf::from).collect()
    }

    fn is_fuse(&self) -> bool {
        matches!(self.file_system.as_str(), "fuse" | "fuseblk") || self.file_system.starts_with("fuse.")
    }

    pub(crate) fn parse(line: &str) -> Option<Self> {
        let mut fields = line.split(' ');
        let (id, parent) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
        let number = parse_number(fields.next()?)?;
        let at = PathBuf::from(unescape(fields.nth(1)?));
        // Optional fields end with a hyphen.
        let mut after = fields.skip_while(|field| *field != "-").skip(1);
        let file_system = after.next()?.to_owned();
        let source = after.next().map(plain).unwrap_or_default();
        let options = after.next().unwrap_or_default().to_owned();
        Some(Self { id, parent, number, at, file_system, source, options })
    }
}

/// Returns the folders that options of an overlay name, as `lowerdir=A:B` or one by one as `lowerdir+=A`. A folder with escapes of its
/// own is named with and without them: kernels differ in which of them they show.
fn layers_in(options: &str) -> Vec<String> {
    let mut folders = Vec::new();
    for (name, value) in options.split(',').filter_map(|option| option.split_once('=')) {
        let value = plain(value);
        match name {
            "lowerdir" => folders.extend(split_layers(&value)),
            "lowerdir+" | "datadir+" | "upperdir" | "workdir" => folders.push(value),
            _ => {}
        }
    }
    let without = |folder: &String| folder.replace("\\:", ":").replace("\\,", ",").replace("\\\\", "\\");
    let bare: Vec<String> = folders.iter().filter(|folder| folder.contains('\\')).map(without).collect();
    folders.extend(bare);
    folders
}

/// Splits a list of folders at its colons, but not at those behind a backslash.
fn split_layers(list: &str) -> Vec<String> {
    let mut folders = vec![String::new()];
    let mut is_escaped = false;
    for letter in list.chars() {
        if letter == ':' && !is_escaped {
            folders.push(String::new());
        } else if let Some(folder) = folders.last_mut() {
            folder.push(letter);
        }
        is_escaped = letter == '\\' && !is_escaped;
    }
    folders
}

/// Returns a text of the kernel's tables without its escapes.
fn plain(text: &str) -> String {
    unescape(text).to_string_lossy().into_owned()
}

fn mounts() -> Vec<Mount> {
    mounts_of(Path::new("/proc/self"))
}

/// What is mounted for this process; an error where the kernel does not say.
pub(crate) fn known_mounts() -> io::Result<Vec<Mount>> {
    table_of(Path::new("/proc/self"))
}

/// What is mounted for a process.
fn mounts_of(process: &Path) -> Vec<Mount> {
    table_of(process).unwrap_or_default()
}

fn table_of(process: &Path) -> io::Result<Vec<Mount>> {
    let table = fs::read(process.join("mountinfo"))?;
    Ok(in_ascii(&table).lines().filter_map(Mount::parse).collect())
}

/// Returns a table of the kernel with escapes for the bytes that the kernel leaves as they are: names need not be UTF-8.
fn in_ascii(table: &[u8]) -> String {
    let mut text = String::with_capacity(table.len());
    for byte in table {
        match byte.is_ascii() {
            true => text.push(char::from(*byte)),
            false => text.push_str(&format!("\\{byte:03o}")),
        }
    }
    text
}

/// The mount that a path leads to: of those at the longest part of it, the last covers the others.
fn mount_of<'a>(path: &Path, mounts: &'a [Mount]) -> Option<&'a Mount> {
    let above = mounts.iter().filter(|mount| path.starts_with(&mount.at));
    above.max_by_key(|mount| mount.at.components().count())
}

fn swaps() -> Vec<PathBuf> {
    let text = fs::read_to_string("/proc/swaps").unwrap_or_default();
    text.lines()
        .skip(1)
        .filter_map(|line| line.split_whitespace().next())
        .map(|path| unescape(path).into())
        .collect()
}

/// Undoes the octal escapes (`\040` for a space) of the kernel's tables.
fn unescape(text: &str) -> OsString {
    let mut plain = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, tail)) = rest.split_first() {
        let code =
            tail.get(..3).filter(|_| *first == b'\\').and_then(|digits| std::str::from_utf8(digits).ok());
        if let Some(byte) = code.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            plain.push(byte);
            rest = tail.get(3..).unwrap_or_default();
        } else {
            plain.push(*first);
            rest = tail;
        }
    }
    OsString::from_vec(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Scenario: overlays are mounted by the older call and by the newer one; names of folders have colons and commas.
    #[test]
    fn all_layers_of_an_overlay_are_named() {
        let folders = |options: &str| {
            let line = format!("40 1 0:50 / /over rw - overlay over {options}");
            let below = Mount::parse(&line).unwrap().folders_below();
            below.into_iter().map(|path| path.display().to_string()).collect::<Vec<_>>()
        };
        assert_eq!(
            folders("rw,lowerdir=/a:/b,upperdir=/c:c,workdir=/d"),
            ["/a", "/b", "/c:c", "/d"].map(str::to_owned)
        );
        assert_eq!(
            folders("rw,lowerdir+=/a:a,lowerdir+=/b\\054b,datadir+=/c"),
            ["/a:a", "/b,b", "/c"].map(str::to_owned)
        );
        let escaped = folders("rw,lowerdir=/a\\134:a:/b\\134\\054b");
        assert!(["/a:a", "/b,b"].iter().all(|path| escaped.iter().any(|one| one == path)), "{escaped:?}");
    }

    #[test]
    fn mount_points_are_read_with_their_escapes() {
        let line =
            r"36 35 98:7 /root /mnt/a\040b\134c rw,noatime master:1 - ext3 /dev/root rw,errors=continue";
        let number = DeviceNumber { major: 98, minor: 7 };
        let mount = Mount {
            id: 36,
            parent: 35,
            number,
            at: PathBuf::from(r"/mnt/a b\c"),
            file_system: "ext3".to_owned(),
            source: "/dev/root".to_owned(),
            options: "rw,errors=continue".to_owned(),
        };
        assert_eq!(Mount::parse(line), Some(mount));
        let mount =
            Mount::parse(&in_ascii(b"36 35 98:7 / /mnt/\xff\xc3\xb6 rw - ext3 /dev/root rw")).unwrap();
        assert_eq!(mount.at.as_os_str().as_encoded_bytes(), b"/mnt/\xff\xc3\xb6");
        assert_eq!(Mount::parse("torn line"), None);
        assert_eq!(Mount::parse("36 35 98:7 / /mnt rw"), None, "torn before the type");
    }

    #[test]
    fn a_file_served_by_another_process_is_not_asked_for() {
        // Scenario: the file of a loop device lies in a folder that a process serves, on a disk that is mounted over it,
        // or beside it. Only in the first case is it known without a question that it is not the file wanted.
        let mount = |minor, at: &str, file_system: &str| Mount {
            id: minor,
            parent: 0,
            number: DeviceNumber { major: 0, minor },
            at: PathBuf::from(at),
            file_system: file_system.to_owned(),
            source: String::new(),
            options: String::new(),
        };
        let mounts = [
            mount(1, "/", "ext4"),
            mount(2, "/run/spaces", "fuse.dolmen"),
            mount(3, "/run/spaces/over", "fuseblk"),
            mount(4, "/run/spaces/over", "xfs"),
        ];
        let wanted = FileNumber { device: rustix::fs::makedev(0, 1), inode: 12 };
        let served = FileNumber { device: rustix::fs::makedev(0, 2), inode: 12 };
        assert!(is_elsewhere_in_fuse(Path::new("/run/spaces/one"), wanted, &mounts));
        assert!(!is_elsewhere_in_fuse(Path::new("/run/spaces/one"), served, &mounts));
        assert!(!is_elsewhere_in_fuse(Path::new("/run/spaces/over/one"), wanted, &mounts));
        assert!(!is_elsewhere_in_fuse(Path::new("/run/spacesuit"), wanted, &mounts));
    }

    #[test]
    fn all_uses_are_named() {
        let by = vec![Use::Mounted { at: PathBuf::from("/mnt") }, Use::HeldBy { device: "md0".to_owned() }];
        assert_eq!(InUse { by }.to_string(), "mounted at /mnt, part of /dev/md0");
    }

    #[test]
    fn the_disk_under_the_root_is_in_use() {
        // Scenario: every mounted block device that the system lists; each is found to be in use, with that mount point.
        for mount in mounts() {
            let own = Some(mount.number).filter(|number| number.sysfs().exists());
            for number in own.into_iter().chain(mount.devices()) {
                let mut by = Vec::new();
                uses_of_disk(number, &mut by);
                assert!(by.contains(&Use::Mounted { at: mount.at.clone() }), "{number:?}: {mount:?}, {by:?}");
            }
        }
    }
}
