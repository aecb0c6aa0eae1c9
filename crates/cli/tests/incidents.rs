//! Incidents of people at the command line, against a daemon that `dolmen daemon` starts (docs/incidents.md).
// Helpers of tests unwrap as tests do; another process is waited for.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

mod support;

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

/// Status of a command that would destroy something and was not told to, and of one that makes no sense.
const NEEDS_CONFIRMATION: i32 = 73;
const BAD_REQUEST: i32 = 2;
const BUSY: i32 = 75;

/// A daemon on four disks that are files, of which a pool has two and something else has one.
struct Bench {
    folder: tempfile::TempDir,
    daemon: Option<Child>,
}

impl Bench {
    fn new() -> Self {
        support::check_daemon_program();
        let folder = tempfile::tempdir().unwrap();
        for name in ["a", "b", "c", "d"] {
            fs::File::create(folder.path().join(name)).unwrap().set_len(200 << 20).unwrap();
        }
        let mut bench = Self { folder, daemon: None };
        let links = bench.folder.path().join("links").display().to_string();
        let mut daemon = bench.command(&["daemon", "--state", "state", "--named-only", "--links", &links]);
        bench.daemon = Some(daemon.stderr(Stdio::null()).stdout(Stdio::null()).spawn().unwrap());
        let answers = (0..200).any(|_| {
            std::thread::sleep(Duration::from_millis(50));
            bench.reply(&["status"]).status.success()
        });
        assert!(answers, "the daemon does not answer");
        bench
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_dolmen"));
        command.args(words).current_dir(self.folder.path()).stdin(Stdio::null());
        command.env("DOLMEN_SOCKET", self.folder.path().join("api")).env_remove("DOLMEN_LOG");
        command
    }

    fn reply(&self, words: &[&str]) -> Output {
        self.command(words).output().unwrap()
    }

    fn done(&self, words: &[&str]) {
        let output = self.reply(words);
        assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    }

    /// What is on all disks.
    fn disks(&self) -> Vec<Vec<u8>> {
        ["a", "b", "c", "d"]
            .iter()
            .map(|name| fs::read(Path::new(self.folder.path()).join(name)).unwrap())
            .collect()
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        if let Some(mut daemon) = self.daemon.take() {
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
    }
}

/// The incident: a script destroys, deletes, makes or replaces with `--yes`, with a variable that is empty, with a name that is not
/// quite it, on a disk that is in use, and nobody is at a terminal. Expected: each is refused with the status that says so, no byte
/// of any disk is another, and the pool is there; the right name does what it says.
#[test]
fn incident_10_slip_of_the_hand_at_the_command_line() {
    let bench = Bench::new();
    fs::write(bench.folder.path().join("d"), vec![0x5a; 200 << 20]).unwrap();
    bench.done(&["pool", "create", "tank", "a", "b"]);
    bench.done(&["space", "create", "tank/x", "--size", "64M"]);
    let before = bench.disks();
    let slips: &[(&[&str], i32)] = &[
        (&["pool", "destroy", "tank"], NEEDS_CONFIRMATION),
        (&["pool", "destroy", "tank", "--yes"], NEEDS_CONFIRMATION),
        (&["pool", "destroy", "tank", "--destroy="], NEEDS_CONFIRMATION),
        (&["pool", "destroy", "tank", "--destroy=yes"], NEEDS_CONFIRMATION),
        (&["pool", "destroy", "tank", "--destroy=tan"], NEEDS_CONFIRMATION),
        (&["pool", "destroy", "tank", "--destroy=Tank", "--yes"], NEEDS_CONFIRMATION),
        (&["pool", "destroy", "", "--destroy="], BAD_REQUEST),
        (&["pool", "destroy"], BAD_REQUEST),
        (&["space", "delete", "tank/x", "--purge"], NEEDS_CONFIRMATION),
        (&["space", "delete", "tank/x", "--purge", "--yes"], NEEDS_CONFIRMATION),
        (&["space", "delete", "tank/x", "--purge", "--destroy="], NEEDS_CONFIRMATION),
        (&["space", "delete", "tank/x", "--purge", "--destroy=tank"], NEEDS_CONFIRMATION),
        (&["space", "delete", "tank/", "--purge", "--destroy="], BAD_REQUEST),
        (&["pool", "create", "new", "d"], NEEDS_CONFIRMATION),
        (&["pool", "create", "new", "d", "--yes"], NEEDS_CONFIRMATION),
        (&["pool", "create", "new", "d", "--destroy="], BAD_REQUEST),
        (&["pool", "create", "new", "a", "--destroy=a"], BUSY),
        (&["pool", "create", "", "c"], BAD_REQUEST),
        (&["pool", "create", "new"], BAD_REQUEST),
        (&["pool", "create", "new", ""], BAD_REQUEST),
        (&["pool", "add", "tank", "d", "--yes"], NEEDS_CONFIRMATION),
        (&["pool", "add", "tank", "a"], BUSY),
        (&["disk", "replace", "tank", "1", "d", "--yes"], NEEDS_CONFIRMATION),
        (&["disk", "replace", "tank", "1", "a", "--destroy=a"], BUSY),
        (&["disk", "replace", "tank", "", "c"], BAD_REQUEST),
        (&["trash", "purge", "tank/", "--yes"], BAD_REQUEST),
    ];
    let mut wrong = Vec::new();
    for (words, status) in slips {
        let output = bench.reply(words);
        let stated = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success(), "{words:?} was not refused: {stated}");
        if output.status.code() != Some(*status) {
            wrong.push(format!("{words:?}: {:?}, not {status}: {stated}", output.status.code()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(bench.disks() == before, "something was written by what was refused");
    bench.done(&["space", "list", "tank"]);
    bench.done(&["pool", "destroy", "tank", "--destroy=tank"]);
    assert!(bench.disks() != before);
}
