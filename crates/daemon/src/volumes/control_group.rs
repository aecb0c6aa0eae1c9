//! A control group for a process of a worker, where one can be made.
//!
//! It shows what the process and its children take of the host, keeps them together, and bounds their memory: a check of a large file
//! system takes as much as there is, and the daemon that serves the device needs its own. Where control groups are absent or may not be
//! made, the process runs without one.
//!
//! A group with processes has no groups with bounds below it. So a daemon in a group of this [`NAME`] makes those of workers beside it:
//! systemd puts it there by `Delegate=yes` and `DelegateSubgroup=daemon`.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

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
pub(super) struct ControlGroup {
    folder: PathBuf,
}

impl ControlGroup {
    /// Makes a group of this name beside that of the daemon or below it, with bounds where it can have them, and moves a process into
    /// it.
    pub(super) fn with(name: &str, pid: u32) -> Option<Self> {
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

#[cfg(test)]
mod tests {
    use super::*;

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
