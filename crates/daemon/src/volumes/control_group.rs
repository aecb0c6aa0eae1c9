//! A control group for a process of a worker, where one can be made.
//!
//! It shows what the process and its children take of the host, and keeps them together. Where control groups are absent or may not be
//! made, the process runs without one.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Places where the unified hierarchy is mounted.
const HIERARCHIES: [&str; 2] = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"];

/// A control group, removed when it is dropped and empty.
#[derive(Debug)]
pub(super) struct ControlGroup {
    folder: PathBuf,
}

impl ControlGroup {
    /// Makes a group of this name below that of the daemon, and moves a process into it.
    pub(super) fn with(name: &str, pid: u32) -> Option<Self> {
        let own = fs::read_to_string("/proc/self/cgroup").ok()?;
        let own = own.lines().find_map(|line| line.strip_prefix("0::/"))?;
        let is_unified = |hierarchy: &&str| Path::new(*hierarchy).join("cgroup.controllers").exists();
        let hierarchy = HIERARCHIES.into_iter().find(is_unified)?;
        let folder = Path::new(hierarchy).join(own).join(name);
        match fs::create_dir(&folder) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(_) => return None,
        }
        let group = Self { folder };
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
