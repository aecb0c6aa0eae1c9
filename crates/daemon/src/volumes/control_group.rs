//! A control group for a process of a worker, where one can be made.
//!
//! It shows what the process and its children take of the host, keeps them together, and bounds their memory: a check of a large file
//! system takes as much as there is, and the daemon that serves the device needs its own. Where control groups are absent or may not be
//! made, the process runs without one, and its addresses are bounded in place of its memory.
//!
//! A group with processes has no groups with bounds below it. So a daemon in a group of this [`NAME`] makes those of workers beside it:
//! systemd 254 and newer put it there by `Delegate=yes` and `DelegateSubgroup=daemon` of its unit. Under an older one the daemon does not
//! move itself: a group of the service with bounds below it would refuse the next daemon while the holder of descriptors goes on.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rustix::process::{Resource, Rlimit, prlimit};

/// Places where the unified hierarchy is mounted.
const HIERARCHIES: [&str; 2] = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"];
/// Name of a group that is the daemon's alone.
const NAME: &str = "daemon";
/// Controllers that bounds need.
const CONTROLLERS: [&str; 3] = ["+memory", "+cpu", "+io"];
/// Part of the memory of the host that a worker may take: one in this many.
const MEMORY_PART: u64 = 2;
/// Weight of a worker for processors and disks; the usual one is 100.
const WEIGHT: &str = "50";

/// A control group, removed when it is dropped and empty.
#[derive(Debug)]
struct ControlGroup {
    folder: PathBuf,
}

/// Bounds of a process of a worker, and of the tools that it starts.
#[derive(Debug)]
pub(crate) struct Bounds {
    /// Kept for as long as the process lives.
    _group: Option<ControlGroup>,
}

impl Bounds {
    /// Bounds a process that has not begun to work: by a group of this name, and by the size of its address space where no group
    /// bounds its memory.
    pub(crate) fn of(name: &str, pid: u32) -> Self {
        let group = ControlGroup::with(name, pid);
        let memory = memory_of(&fs::read_to_string("/proc/meminfo").unwrap_or_default());
        if !group.as_ref().is_some_and(ControlGroup::bounds_memory) {
            bound_addresses(pid, memory);
        }
        Self { _group: group }
    }
}

impl ControlGroup {
    /// Makes a group of this name beside that of the daemon or below it, with bounds where it can have them, and moves a process into
    /// it.
    fn with(name: &str, pid: u32) -> Option<Self> {
        let own = fs::read_to_string("/proc/self/cgroup").ok()?;
        let own = own.lines().find_map(|line| line.strip_prefix("0::/"))?;
        let is_unified = |hierarchy: &&str| Path::new(*hierarchy).join("cgroup.controllers").exists();
        let hierarchy = HIERARCHIES.into_iter().find(is_unified)?;
        let relative = parent_of(Path::new(own));
        let parent = Path::new(hierarchy).join(relative);
        // Without a group of its own the daemon was delegated none, and others may be below this one.
        for controller in CONTROLLERS.iter().filter(|_| relative != Path::new(own)) {
            let _ = fs::write(parent.join("cgroup.subtree_control"), controller);
        }
        let folder = parent.join(name);
        match fs::create_dir(&folder) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(_) => return None,
        }
        let group = Self { folder };
        let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
        bound(&group.folder, memory_of(&meminfo));
        fs::write(group.folder.join("cgroup.procs"), pid.to_string()).ok()?;
        Some(group)
    }

    /// Returns whether the group has a bound of memory.
    fn bounds_memory(&self) -> bool {
        let bound = fs::read_to_string(self.folder.join("memory.max")).unwrap_or_default();
        !matches!(bound.trim(), "" | "max")
    }
}

impl Drop for ControlGroup {
    fn drop(&mut self) {
        // Children that go on keep it.
        let _ = fs::remove_dir(&self.folder);
    }
}

/// Returns the group in which groups of workers are made, for a daemon in `own`.
fn parent_of(own: &Path) -> &Path {
    match own.parent() {
        Some(parent) if own.file_name().is_some_and(|name| name == NAME) => parent,
        Some(_) | None => own,
    }
}

/// Returns the bytes of memory that `/proc/meminfo` shows.
fn memory_of(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kibibytes = line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?;
    kibibytes.checked_mul(1024)
}

/// Writes the bounds of a group as far as it has the files for them. A process that goes beyond its memory is ended, and its operation
/// fails; each operation can be asked for again.
fn bound(folder: &Path, memory: Option<u64>) {
    let part = memory.map(|memory| (memory / MEMORY_PART).to_string());
    let weight = Some(WEIGHT.to_owned());
    for (file, value) in [("memory.max", part), ("cpu.weight", weight.clone()), ("io.weight", weight)] {
        let path = folder.join(file);
        if let Some(value) = value.filter(|_| path.exists()) {
            let _ = fs::write(path, value);
        }
    }
}

/// Bounds the address space of a process, and of those that it starts, to the part of the memory that a worker may take. A tool that
/// asks for more fails; `xfs_repair` reads the bound, and asks for less.
fn bound_addresses(pid: u32, memory: Option<u64>) {
    let pid = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw);
    let (Some(pid), Some(memory)) = (pid, memory) else { return };
    let part = Some(memory / MEMORY_PART);
    let bounded = prlimit(Some(pid), Resource::As, Rlimit { current: part, maximum: part });
    if let Err(error) = bounded {
        tracing::debug!(pid = pid.as_raw_nonzero().get(), %error, "the memory of a worker is not bounded");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Scenario: a process without a group of its own, and one in a group without the controller of memory.
    #[test]
    fn a_process_that_no_group_bounds_has_a_bound_of_addresses() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        bound_addresses(child.id(), Some(4 << 30));
        let limits = fs::read_to_string(format!("/proc/{}/limits", child.id())).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        let line = limits.lines().find(|line| line.starts_with("Max address space")).unwrap();
        let bounds: Vec<&str> = line.split_whitespace().skip(3).take(2).collect();
        assert_eq!(bounds, ["2147483648", "2147483648"]);
        let folder = tempfile::tempdir().unwrap();
        // Dropped at the end: it removes its folder.
        let group = ControlGroup { folder: folder.path().to_owned() };
        assert!(!group.bounds_memory());
        for (bound, bounds) in [("max\n", false), ("2048\n", true)] {
            fs::write(folder.path().join("memory.max"), bound).unwrap();
            assert_eq!(group.bounds_memory(), bounds, "{bound}");
        }
    }

    /// Scenario: a group that has two of the controllers.
    #[test]
    fn a_group_is_bounded_as_far_as_it_has_controllers() {
        let folder = tempfile::tempdir().unwrap();
        for file in ["memory.max", "io.weight"] {
            fs::write(folder.path().join(file), "max").unwrap();
        }
        let memory = memory_of("MemFree: 1 kB\nMemTotal:       4096 kB\n");
        assert_eq!((memory, memory_of(""), memory_of("MemTotal: x kB")), (Some(4 << 20), None, None));
        bound(folder.path(), memory);
        let read = |file: &str| fs::read_to_string(folder.path().join(file)).ok();
        let found = ["memory.max", "io.weight", "cpu.weight"].map(read);
        assert_eq!(found, [Some((2 << 20).to_string()), Some(WEIGHT.to_owned()), None]);
    }

    #[test]
    fn groups_of_workers_are_siblings_of_a_daemon_that_is_alone_in_its_group() {
        for (own, parent) in
            [("system.slice/dolmen.service/daemon", "system.slice/dolmen.service"), ("a/b", "a/b"), ("", "")]
        {
            assert_eq!(parent_of(Path::new(own)), Path::new(parent));
        }
    }
}
