//! File systems of this kernel, each on a loop device over a file.
#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "each test uses a part of it, and may fail"
)]

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A file system that is unmounted when it is dropped.
pub struct Mounted {
    folder: tempfile::TempDir,
}

impl Mounted {
    /// Makes one of so many bytes by a command; none, with its reason printed, where this machine cannot.
    pub fn new(make: &[&str], bytes: u64) -> Option<Self> {
        if !rustix::process::geteuid().is_root() || !Path::new("/dev/loop-control").exists() {
            println!("skipped: that takes root and loop devices");
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        let image = folder.path().join("image");
        File::create(&image).unwrap().set_len(bytes).unwrap();
        let (program, arguments) = make.split_first()?;
        let Ok(made) = Command::new(program).args(arguments).arg(&image).output() else {
            println!("skipped: {program} is missing");
            return None;
        };
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        let root = folder.path().join("root");
        fs::create_dir(&root).unwrap();
        let mounted = Command::new("mount").arg("-o").arg("loop").arg(&image).arg(&root).output().unwrap();
        if !mounted.status.success() {
            println!("skipped: {}", String::from_utf8_lossy(&mounted.stderr).trim());
            return None;
        }
        Some(Self { folder })
    }

    /// Returns the file below the loop device.
    pub fn image(&self) -> PathBuf {
        self.folder.path().join("image")
    }

    pub fn root(&self) -> PathBuf {
        self.folder.path().join("root")
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.root().join(name)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let unmounted = Command::new("umount").arg(self.root()).status().unwrap();
        assert!(unmounted.success() || std::thread::panicking());
    }
}
