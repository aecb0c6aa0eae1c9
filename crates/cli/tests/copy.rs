//! `dolmen copy` as a process: what it tells, what it refuses, and what a kill leaves.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// A folder with a tree `source` of sixteen files.
struct Rig {
    folder: tempfile::TempDir,
}

const FILES: usize = 16;
const FILE_BYTES: usize = 4 << 20;

impl Rig {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("source")).unwrap();
        for number in 0..FILES {
            let content: Vec<u8> =
                (0..FILE_BYTES).map(|at| u8::try_from((at / 4096 + number) % 256).unwrap()).collect();
            fs::write(folder.path().join(format!("source/{number:02}")), content).unwrap();
        }
        Self { folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_dolmen"));
        command.arg("copy").args(words).current_dir(self.folder.path());
        command
    }

    fn run(&self, words: &[&str]) -> Output {
        self.command(words).output().unwrap()
    }

    /// Names in the folder, without those that the tests made.
    fn others(&self) -> Vec<String> {
        let names = fs::read_dir(self.folder.path()).unwrap();
        let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.filter(|name| name != "source").collect()
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn is_whole(source: &Path, copy: &Path) -> bool {
    let names = |folder: &Path| fs::read_dir(folder).map_or(0, Iterator::count);
    names(copy) == FILES
        && (0..FILES).map(|number| format!("{number:02}")).all(|name| {
            fs::read(copy.join(&name)).is_ok_and(|found| found == fs::read(source.join(&name)).unwrap())
        })
}

#[test]
fn a_copy_tells_what_it_shared_and_copied() {
    let rig = Rig::new();
    let planned = rig.run(&["-n", "source", "copy"]);
    assert_eq!(planned.status.code(), Some(0), "{}", text(&planned.stderr));
    let line = "source would be copied to copy: 16 files in 1 folder; 64 MiB on its own device, 0 B on another one\n";
    assert_eq!(text(&planned.stdout), line);
    assert_eq!(rig.others(), Vec::<String>::new());
    let copied = rig.run(&["--or-copy", "source", "copy"]);
    assert_eq!(copied.status.code(), Some(0), "{}", text(&copied.stderr));
    let said = text(&copied.stdout);
    let shared = said.contains("64 MiB shared, 0 B of 0 files copied");
    assert!(shared || said.contains("0 B shared, 64 MiB of 16 files copied"), "{said}");
    assert!(is_whole(&rig.path("source"), &rig.path("copy")));
    // Into a folder that is there, for programs.
    fs::create_dir(rig.path("into")).unwrap();
    let copied = rig.run(&["--or-copy", "-o", "json", "source/00", "source/01", "into"]);
    let document: serde_json::Value = serde_json::from_slice(&copied.stdout).unwrap();
    let copies = document["copies"].as_array().unwrap();
    assert_eq!((copies.len(), &document["is_copied"]), (2, &serde_json::json!(true)));
    assert_eq!(copies[1]["target"], "into/01");
    let bytes = copies[1]["shared_bytes"].as_u64().unwrap() + copies[1]["copied_bytes"].as_u64().unwrap();
    assert_eq!(bytes, FILE_BYTES as u64);
}

#[test]
fn a_taken_name_and_sources_without_a_folder_are_refused() {
    let rig = Rig::new();
    fs::write(rig.path("taken"), "mine").unwrap();
    for (words, code, part) in [
        (&["--or-copy", "source", "taken"][..], 73, "taken exists"),
        (&["--or-copy", "source/00", "source/01"], 73, "source/01 exists"),
        (&["--or-copy", "source", "taken", "absent"], 2, "absent, which is no folder"),
        (&["--or-copy", "source", "source"], 2, "cannot hold itself"),
        (&["--or-copy", "absent", "copy"], 74, "absent"),
        (&["source"], 2, "2 values"),
    ] {
        let refused = rig.run(words);
        assert_eq!(refused.status.code(), Some(code), "{words:?}: {}", text(&refused.stderr));
        assert!(text(&refused.stderr).contains(part), "{words:?}: {}", text(&refused.stderr));
    }
    assert_eq!(fs::read_to_string(rig.path("taken")).unwrap(), "mine");
    assert_eq!(rig.others(), ["taken"]);
}

/// The process is killed as soon as something of the copy is there, and later.
#[test]
fn a_killed_copy_leaves_nothing_under_its_final_name() {
    let rig = Rig::new();
    for pause in [0, 5, 20, 60] {
        let mut child = rig
            .command(&["--or-copy", "source", "copy"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        while rig.others().is_empty() && child.try_wait().unwrap().is_none() {}
        std::thread::park_timeout(std::time::Duration::from_millis(pause));
        child.kill().unwrap();
        child.wait().unwrap();
        let copy = rig.path("copy");
        assert!(!copy.exists() || is_whole(&rig.path("source"), &copy), "half a copy has its final name");
        for name in rig.others() {
            assert!(name == "copy" || name.starts_with(".dolmen-copy-"), "{name}");
            fs::remove_dir_all(rig.path(&name)).unwrap();
        }
    }
    assert_eq!(rig.run(&["--or-copy", "source", "copy"]).status.code(), Some(0));
    assert!(is_whole(&rig.path("source"), &rig.path("copy")));
}
