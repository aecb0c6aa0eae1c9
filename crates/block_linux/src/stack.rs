//! The stack of devices and file systems below a path, followed from the kernel's tables alone.
//!
//! A file on an attached space is served by the daemon that would use it as a disk: the daemon waits for the file system, and
//! the file system for the daemon. To look at the file is enough for that, so nothing here opens, stats or reads anything
//! on a file system before it is known what that file system lies on. A path is resolved component by component; the walk
//! ends at the first mount that lies on a space.
//!
//! ```text
//! path ─ mount ┬ block device ┬ partition ─ its disk
//!              │              ├ loop device ─ backing file ─ path
//!              │              ├ dm, md, bcache ─ their slaves
//!              │              └ a space
//!              ├ btrfs ─ each of its devices
//!              ├ overlay, eCryptfs, FUSE over a folder ─ path
//!              └ the folder of attached spaces ─ a space
//! ```
//!
//! Left out, because no table of the kernel names what is below: network block devices and network file systems that lead
//! back to this host, ZFS, and FUSE file systems that do not name a folder as their source.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use crate::geometry::{self, DeviceNumber, Kind};
use crate::in_use::{Mount, SPACES_FILE_SYSTEM, btrfs_siblings, known_mounts, names, number_of};

/// Layers below a path that are followed; the kernel itself allows far fewer.
const LAYERS_MAX: usize = 64;
/// Links in a path that are followed, as the kernel does.
const LINKS_MAX: usize = 40;

/// The attached space that a path lies on.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct OnSpace {
    /// The mount point of the first file system that lies on the space, as seen from the path; none for its device itself.
    pub mounted_at: Option<PathBuf>,
    /// The device that shows the space; none for a file in the folder of attached spaces.
    pub device: Option<PathBuf>,
    /// The space as `POOL/SPACE`, where its file's name says it.
    pub name: Option<String>,
}

/// Tells the device of an attached space that no table of the kernel shows to be one.
pub type IsSpace<'a> = dyn Fn(&Path) -> bool + 'a;

/// The kernel's tables of mounts and devices, as they were when this was made.
pub struct DeviceStacks<'a> {
    mounts: Vec<Mount>,
    /// The uppermost mount at a place of another mount, by the identity of that one.
    inner: BTreeMap<(u32, PathBuf), usize>,
    points: BTreeSet<PathBuf>,
    sys: PathBuf,
    is_space: &'a IsSpace<'a>,
    known: RefCell<BTreeMap<u32, Option<OnSpace>>>,
}

impl<'a> DeviceStacks<'a> {
    /// Reads the table of mounts.
    ///
    /// # Errors
    /// When the table cannot be read: what any path lies on is not known then.
    pub fn read(is_space: &'a IsSpace<'a>) -> io::Result<Self> {
        Ok(Self::of(known_mounts()?, PathBuf::from("/sys"), is_space))
    }

    fn of(mounts: Vec<Mount>, sys: PathBuf, is_space: &'a IsSpace<'a>) -> Self {
        let inside = mounts.iter().enumerate().filter(|(_, mount)| mount.id != mount.parent);
        let inner = inside.map(|(index, mount)| ((mount.parent, mount.at.clone()), index)).collect();
        let points = mounts.iter().map(|mount| mount.at.clone()).collect();
        Self { mounts, inner, points, sys, is_space, known: RefCell::default() }
    }

    /// Returns the attached space that a path lies on, or that it is. Nothing on that space is touched; what is not there
    /// lies on nothing.
    #[must_use]
    pub fn space_below(&self, path: &Path) -> Option<OnSpace> {
        match self.resolve(path, LAYERS_MAX) {
            Walk::OnSpace(found) => Some(found),
            Walk::Nowhere => None,
            Walk::At(path) => {
                let status = rustix::fs::statx(
                    rustix::fs::CWD,
                    &path,
                    rustix::fs::AtFlags::SYMLINK_NOFOLLOW,
                    rustix::fs::StatxFlags::BASIC_STATS,
                );
                match geometry::kind(&status.ok()?)? {
                    Kind::Block(number) => self.below_device(number, LAYERS_MAX),
                    Kind::File => None,
                }
            }
        }
    }

    /// Follows the links of an absolute path, as far as no component lies on a space.
    fn resolve(&self, path: &Path, layers: usize) -> Walk {
        let mut at = PathBuf::from("/");
        let mut left: Vec<OsString> = components_of(path);
        left.reverse();
        let mut links = 0;
        while let Some(component) = left.pop() {
            if let Some(found) = self.below_place(&at, layers) {
                let in_folder = || name_in_folder(&component).filter(|_| found.device.is_none());
                return Walk::OnSpace(OnSpace { name: found.name.clone().or_else(in_folder), ..found });
            }
            if component == ".." {
                at.pop();
                continue;
            }
            let next = at.join(&component);
            // What is mounted there covers whatever the folder has under this name.
            if self.points.contains(&next) {
                at = next;
                continue;
            }
            match fs::read_link(&next) {
                Ok(target) if links < LINKS_MAX => {
                    links += 1;
                    if target.is_absolute() {
                        at = PathBuf::from("/");
                    }
                    left.extend(components_of(&target).into_iter().rev());
                }
                Ok(_) => return Walk::Nowhere,
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Walk::Nowhere,
                // No link.
                Err(_) => at = next,
            }
        }
        match self.below_place(&at, layers) {
            Some(found) => Walk::OnSpace(found),
            None => Walk::At(at),
        }
    }

    /// Returns the mount that a path without links is on: from the root downwards, because a later mount on a folder hides
    /// those below it.
    fn mount_of(&self, path: &Path) -> Option<&Mount> {
        let is_root = |mount: &&Mount| {
            let is_inside =
                mount.parent != mount.id && self.mounts.iter().any(|other| other.id == mount.parent);
            mount.at == Path::new("/") && !is_inside
        };
        let mut found = self.mounts.iter().rfind(is_root)?;
        let mut place = PathBuf::from("/");
        let mut components = components_of(path).into_iter();
        loop {
            // Several may be stacked at one place; a mount is never inside of one that came later.
            for _ in 0..self.mounts.len() {
                let over =
                    self.inner.get(&(found.id, place.clone())).and_then(|index| self.mounts.get(*index));
                let Some(over) = over else { break };
                found = over;
            }
            let Some(component) = components.next() else { return Some(found) };
            place.push(component);
        }
    }

    /// Returns the space that a place without links lies on.
    fn below_place(&self, place: &Path, layers: usize) -> Option<OnSpace> {
        let mount = self.mount_of(place)?;
        if mount.file_system == SPACES_FILE_SYSTEM {
            let name = place.strip_prefix(&mount.at).ok().and_then(|file| name_in_folder(file.as_os_str()));
            return Some(OnSpace { mounted_at: Some(mount.at.clone()), device: None, name });
        }
        if let Some(known) = self.known.borrow().get(&mount.id) {
            return known.clone();
        }
        // A mount that lies on itself would ask for itself: until more is known, it lies on nothing.
        self.known.borrow_mut().insert(mount.id, None);
        let found = self
            .below_mount(mount, layers)
            .map(|found| OnSpace { mounted_at: Some(mount.at.clone()), ..found });
        self.known.borrow_mut().insert(mount.id, found.clone());
        found
    }

    fn below_mount(&self, mount: &Mount, layers: usize) -> Option<OnSpace> {
        let layers = layers.checked_sub(1)?;
        let mut numbers: BTreeSet<DeviceNumber> = mount.devices().into_iter().collect();
        if mount.number.major != 0 {
            numbers.insert(mount.number);
        }
        if mount.file_system == "btrfs" {
            let folders: Vec<PathBuf> = numbers.iter().map(|number| number.sysfs()).collect();
            numbers.extend(btrfs_siblings(&folders));
        }
        let by_device = numbers.into_iter().find_map(|number| self.below_device(number, layers));
        by_device.or_else(|| mount.folders_below().iter().find_map(|folder| self.below_path(folder, layers)))
    }

    fn below_path(&self, path: &Path, layers: usize) -> Option<OnSpace> {
        match self.resolve(path, layers) {
            Walk::OnSpace(found) => Some(found),
            Walk::At(_) | Walk::Nowhere => None,
        }
    }

    /// Returns the space that a block device shows or lies on.
    fn below_device(&self, number: DeviceNumber, layers: usize) -> Option<OnSpace> {
        let layers = layers.checked_sub(1)?;
        let own = self.sys.join(format!("dev/block/{}:{}", number.major, number.minor));
        let own = fs::canonicalize(&own).ok()?;
        // The folder of a partition lies in that of its disk.
        let folder = match own.join("partition").exists() {
            true => own.parent()?.to_path_buf(),
            false => own,
        };
        let device = Path::new("/dev").join(folder.file_name()?);
        let backing = backing_file(&folder);
        if (self.is_space)(&device) {
            let name = backing.as_deref().and_then(Path::file_name).and_then(name_in_folder);
            return Some(OnSpace { mounted_at: None, device: Some(device), name });
        }
        if let Some(backing) = backing {
            // The kernel names it without links.
            let below = self.below_place(&backing, layers);
            return below.map(|below| OnSpace {
                mounted_at: below.mounted_at.filter(|_| below.device.is_some()),
                device: Some(below.device.unwrap_or(device)),
                name: below.name,
            });
        }
        let slaves = folder.join("slaves");
        let mut numbers = names(&slaves).into_iter().filter_map(|name| number_of(&slaves.join(name)));
        numbers.find_map(|number| self.below_device(number, layers))
    }
}

/// The end of a walk along a path.
enum Walk {
    /// Here, without links.
    At(PathBuf),
    OnSpace(OnSpace),
    Nowhere,
}

fn components_of(path: &Path) -> Vec<OsString> {
    let named = path.components().filter_map(|component| match component {
        Component::Normal(name) => Some(name.to_os_string()),
        Component::ParentDir => Some("..".into()),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    });
    named.collect()
}

/// Returns the file that a loop device shows, as the kernel names it.
fn backing_file(folder: &Path) -> Option<PathBuf> {
    let name = fs::read(folder.join("loop/backing_file")).ok()?;
    let name = name.strip_suffix(b"\n").unwrap_or(&name);
    Some(PathBuf::from(OsStr::from_bytes(name)))
}

/// Returns `POOL/SPACE` for the name of a file in the folder of attached spaces. A colon is in no name of a pool or space.
fn name_in_folder(file: &OsStr) -> Option<String> {
    let (pool, space) = file.to_str()?.split_once(':')?;
    Some(format!("{pool}/{space}"))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// A machine of files: a root, `/dev` and `/sys` in a folder of their own.
    struct Machine {
        root: tempfile::TempDir,
        table: String,
    }

    impl Machine {
        fn new() -> Self {
            let root = tempfile::tempdir().unwrap();
            let machine = Self { root, table: "1 0 254:0 / / rw - ext4 /dev/root rw\n".to_owned() };
            fs::create_dir_all(machine.path("sys/dev/block")).unwrap();
            machine
        }

        fn path(&self, name: &str) -> PathBuf {
            self.root.path().canonicalize().unwrap().join(name)
        }

        /// A line of the table of mounts: identity, parent, device and place below the root.
        fn mount(&mut self, [id, parent, device, at, kind]: [&str; 5], source: &str, options: &str) {
            fs::create_dir_all(self.path(at)).unwrap();
            let at = self.path(at).display().to_string();
            self.table += &format!("{id} {parent} {device} / {at} rw - {kind} {source} {options}\n");
        }

        fn device(&self, number: &str, name: &str) -> PathBuf {
            let folder = self.path("sys/block").join(name);
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join("dev"), format!("{number}\n")).unwrap();
            symlink(&folder, self.path("sys/dev/block").join(number)).unwrap();
            folder
        }

        fn loop_device(&self, number: &str, name: &str, backing: &str) {
            let folder = self.device(number, name).join("loop");
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join("backing_file"), format!("{}\n", self.path(backing).display())).unwrap();
        }

        fn space_below(&self, path: &str) -> Option<OnSpace> {
            let mounts = self.table.lines().filter_map(Mount::parse).collect();
            let is_space = |device: &Path| device == Path::new("/dev/ublkb3");
            let stacks = DeviceStacks::of(mounts, self.path("sys"), &is_space);
            stacks.space_below(&self.path(path))
        }

        /// A file system on the space `tank/home`, shown by a loop device.
        fn with_home() -> Self {
            let mut machine = Self::new();
            machine.mount(["2", "1", "0:40", "run/attached", SPACES_FILE_SYSTEM], "dolmen", "rw");
            machine.loop_device("7:0", "loop0", "run/attached/tank:home");
            machine.mount(["3", "1", "7:0", "home", "ext4"], "/dev/loop0", "rw");
            machine
        }
    }

    fn home(mounted_at: PathBuf) -> Option<OnSpace> {
        let (device, name) = (Some(PathBuf::from("/dev/loop0")), Some("tank/home".to_owned()));
        Some(OnSpace { mounted_at: Some(mounted_at), device, name })
    }

    /// Scenario: a path below a file system on a space, by a link, by dots, and by a name that is not there. Each lies on
    /// the space; what is beside it does not.
    #[test]
    fn a_path_lies_on_the_space_below_its_file_system() {
        let machine = Machine::with_home();
        let on = home(machine.path("home"));
        assert_eq!(machine.space_below("home/own"), on);
        assert_eq!(machine.space_below("home"), on);
        symlink(machine.path("home/deep/own"), machine.path("link")).unwrap();
        symlink("link", machine.path("again")).unwrap();
        assert_eq!(machine.space_below("again"), on);
        fs::create_dir(machine.path("beside")).unwrap();
        assert_eq!(machine.space_below("beside/../home/own"), on);
        fs::write(machine.path("beside/file"), "").unwrap();
        assert_eq!(machine.space_below("beside/file"), None);
        assert_eq!(machine.space_below("nothing/there"), None);
        symlink("round", machine.path("round")).unwrap();
        assert_eq!(machine.space_below("round"), None);
    }

    /// Scenario: loop device on a file, array on that, partition of the array, file system on that, overlay above.
    #[test]
    fn a_stack_is_followed_to_its_end() {
        let mut machine = Machine::with_home();
        machine.loop_device("7:1", "loop1", "home/image");
        let md = machine.device("9:0", "md0");
        fs::create_dir(md.join("slaves")).unwrap();
        symlink(machine.path("sys/block/loop1"), md.join("slaves/loop1")).unwrap();
        let part = md.join("md0p1");
        fs::create_dir(&part).unwrap();
        fs::write(part.join("partition"), "1\n").unwrap();
        fs::write(part.join("dev"), "259:1\n").unwrap();
        symlink(&part, machine.path("sys/dev/block/259:1")).unwrap();
        machine.mount(["4", "1", "259:1", "deep", "xfs"], "/dev/md0p1", "rw");
        assert_eq!(machine.space_below("deep/file"), home(machine.path("deep")));
        let upper = format!("rw,lowerdir=/nowhere:/nothing,upperdir={}", machine.path("deep/up").display());
        machine.mount(["5", "1", "0:50", "over", "overlay"], "overlay", &upper);
        assert_eq!(machine.space_below("over/file"), home(machine.path("over")));
        let source = machine.path("over").display().to_string();
        machine.mount(["6", "1", "0:51", "bound", "fuse.bindfs"], &source, "rw");
        assert_eq!(machine.space_below("bound/file"), home(machine.path("bound")));
    }

    /// Scenario: a device that the caller knows to be a space, the folder of spaces itself, and a mount that hides the one on
    /// the space.
    #[test]
    fn what_hides_a_space_does_not_lie_on_it() {
        let mut machine = Machine::with_home();
        machine.device("240:3", "ublkb3");
        machine.mount(["4", "1", "240:3", "fast", "xfs"], "/dev/ublkb3", "rw");
        let found = machine.space_below("fast/file").unwrap();
        assert_eq!((found.device, found.name), (Some(PathBuf::from("/dev/ublkb3")), None));
        let found = machine.space_below("run/attached/tank:home").unwrap();
        assert_eq!((found.device, found.name.as_deref()), (None, Some("tank/home")));
        machine.mount(["5", "3", "8:1", "home", "ext4"], "/dev/sda1", "rw");
        fs::write(machine.path("home/file"), "").unwrap();
        assert_eq!(machine.space_below("home/file"), None);
    }

    /// Scenario: file systems that lie on each other, as no kernel makes them. The walk ends.
    #[test]
    fn a_circle_of_layers_ends() {
        let mut machine = Machine::new();
        machine.loop_device("7:0", "loop0", "b/image");
        machine.loop_device("7:1", "loop1", "a/image");
        machine.mount(["2", "1", "7:0", "a", "ext4"], "/dev/loop0", "rw");
        machine.mount(["3", "1", "7:1", "b", "ext4"], "/dev/loop1", "rw");
        assert_eq!(machine.space_below("a/file"), None);
    }

    #[test]
    fn the_real_tables_are_followed_without_a_space() {
        let stacks = DeviceStacks::read(&|_| false).unwrap();
        assert!(stacks.mount_of(Path::new("/")).is_some(), "{:?}", stacks.mounts);
        assert_eq!(stacks.space_below(Path::new("/proc/self/exe")), None);
    }
}
