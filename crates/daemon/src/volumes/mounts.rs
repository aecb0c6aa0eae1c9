//! Where volumes are mounted, and which processes use a mount: read from `/proc`, never from the file system itself.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use dolmen_volume::mount_table::{DeviceNumber, MountTable};

/// Processes that are named, at most.
const PROCESSES_MAX: usize = 16;

/// Returns where devices are mounted, as far as they are. For a thread that may wait.
pub(super) fn mounted(devices: &[PathBuf]) -> io::Result<BTreeMap<PathBuf, String>> {
    let table = MountTable::parse(&fs::read("/proc/self/mountinfo")?).map_err(io::Error::other)?;
    let of = |device: &PathBuf| {
        let found = fs::metadata(device).ok().filter(|found| found.file_type().is_block_device())?;
        let number = found.rdev();
        let number = DeviceNumber { major: rustix::fs::major(number), minor: rustix::fs::minor(number) };
        let mount = table.of_device(number, device.to_str()?).next()?;
        Some((device.clone(), String::from_utf8_lossy(&mount.path).into_owned()))
    };
    Ok(devices.iter().filter_map(of).collect())
}

/// Returns the processes that have something below a mount point open, in words, without those of the process group `own`. For a
/// thread that may wait.
///
/// It reads links of `/proc` alone: a look at the files themselves could wait for the device.
pub(super) fn users(mount_point: &Path, own: Option<u32>) -> Vec<String> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let is_own = |pid: u32| pid == std::process::id() || own.is_some_and(|own| group_of(pid) == Some(own));
    let using = pids.filter(|pid| !is_own(*pid) && is_using(*pid, mount_point));
    using.take(PROCESSES_MAX).map(|pid| format!("process {pid} ({})", name_of(pid))).collect()
}

/// Returns the process group of a process. It is 0 for one of the kernel, and for one whose group is not seen here.
fn group_of(pid: u32) -> Option<u32> {
    let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
    let stat = String::from_utf8_lossy(&stat);
    // The name before may hold spaces and parentheses. State and parent come first.
    let (_, fields) = stat.rsplit_once(')')?;
    fields.split_whitespace().nth(2)?.parse().ok()
}

fn is_using(pid: u32, mount_point: &Path) -> bool {
    let folder = PathBuf::from(format!("/proc/{pid}"));
    let is_below = |link: &Path| fs::read_link(link).is_ok_and(|target| target.starts_with(mount_point));
    if ["cwd", "root", "exe"].iter().any(|link| is_below(&folder.join(link))) {
        return true;
    }
    let files = fs::read_dir(folder.join("fd")).into_iter().flatten().flatten();
    let mut files = files.map(|entry| entry.path());
    files.any(|link| is_below(&link)) || has_mapped(&folder, mount_point)
}

fn has_mapped(process: &Path, mount_point: &Path) -> bool {
    let maps = fs::read(process.join("maps")).unwrap_or_default();
    let maps = String::from_utf8_lossy(&maps);
    let mut paths = maps.lines().filter_map(|line| line.find('/').and_then(|at| line.get(at..)));
    paths.any(|path| Path::new(path).starts_with(mount_point))
}

fn name_of(pid: u32) -> String {
    fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default().trim().to_owned()
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::process::CommandExt as _;
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn a_process_has_its_group_and_one_that_is_absent_has_none() {
        let own = rustix::process::getpgrp().as_raw_nonzero().get();
        assert_eq!(group_of(std::process::id()), u32::try_from(own).ok());
        assert_eq!(group_of(u32::MAX), None);
    }

    #[test]
    fn a_process_with_a_file_below_the_folder_open_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        File::create(&path).unwrap();
        assert!(users(folder.path(), None).is_empty());
        let mut holder = Command::new("sleep");
        let holder = holder.arg("60").stdin(Stdio::from(File::open(&path).unwrap()));
        let mut holder = holder.process_group(0).spawn().unwrap();
        let found = users(folder.path(), None);
        let others = users(folder.path(), Some(holder.id()));
        holder.kill().unwrap();
        holder.wait().unwrap();
        assert_eq!(found, [format!("process {} (sleep)", holder.id())]);
        assert!(others.is_empty(), "{others:?}");
    }
}
