//! The life of a pool by commands alone: a daemon that `dolmen daemon` starts, disks that are files, no root.
// Helpers of tests unwrap as tests do; another process is waited for.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

mod support;

use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

struct Bench {
    folder: tempfile::TempDir,
    daemon: Option<Child>,
}

impl Bench {
    fn new() -> Self {
        support::check_daemon_program();
        let folder = tempfile::tempdir().unwrap();
        for name in ["a", "b", "c", "new"] {
            std::fs::File::create(folder.path().join(name)).unwrap().set_len(200 << 20).unwrap();
        }
        let mut bench = Self { folder, daemon: None };
        bench.start();
        bench
    }

    fn command(&self, line: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_dolmen"));
        command.args(line.split_whitespace()).current_dir(self.folder.path()).stdin(Stdio::null());
        command.env("DOLMEN_SOCKET", self.folder.path().join("api")).env_remove("DOLMEN_LOG");
        command
    }

    fn start(&mut self) {
        let log = std::fs::File::create(self.folder.path().join("log")).unwrap();
        let links = self.folder.path().join("links").display().to_string();
        let mut daemon = self.command(&format!("daemon --state state --named-only --links {links}"));
        self.daemon = Some(daemon.stderr(log).stdout(Stdio::null()).spawn().unwrap());
        for _ in 0..200 {
            if self.output("status").status.code() != Some(75) {
                return;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        panic!(
            "the daemon does not answer: {}",
            std::fs::read_to_string(self.folder.path().join("log")).unwrap()
        );
    }

    fn output(&self, line: &str) -> Output {
        self.command(line).output().unwrap()
    }

    /// Runs a command that has to end with this code; its results and messages.
    fn run(&self, line: &str, code: i32) -> (String, String) {
        let output = self.output(line);
        let (results, messages) =
            (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
        assert_eq!(output.status.code(), Some(code), "{line}: {results}{messages}");
        (results, messages)
    }

    /// Repeats a command until its results have this text: a daemon answers before it has opened its pools.
    fn wait_for(&self, line: &str, text: &str) {
        for _ in 0..200 {
            if self.run(line, 0).0.contains(text) {
                return;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        panic!("{line}: still without {text:?}");
    }

    fn stop(&mut self) {
        self.run("stop", 0);
        let ended = self.daemon.take().unwrap().wait().unwrap();
        assert!(ended.success());
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

#[test]
fn commands_create_and_destroy_a_pool() {
    let mut bench = Bench::new();
    assert!(bench.run("", 0).0.starts_with("healthy: "));
    bench.run("pool create tank a b c -n", 0);
    assert!(bench.run("pool list", 0).0.starts_with("no pools"), "a dry run made a pool");
    bench.run("pool create tank a b c", 0);
    bench.run("space create tank/x --size 64M", 0);
    let (uri, _) = bench.run("serve tank/x", 0);
    assert!(
        uri.starts_with("nbd+unix:///tank/x?socket=")
            && Path::new(uri.trim().split_once('=').unwrap().1).exists()
    );
    bench.run("unserve tank/x", 0);
    assert!(bench.run("df", 0).0.contains("STILL FITS"));
    let (_, progress) = bench.run("disk replace tank ./b new", 0);
    assert!(progress.contains("100 %"), "{progress}");
    assert!(bench.run("disk list tank", 0).0.contains("/new"));
    bench.run("scrub tank", 0);
    bench.run("check a", 75);
    bench.stop();
    bench.start();
    bench.wait_for("space list", "tank/x");
    assert!(bench.run("pool create other b", 0).0.contains("other"), "a disk that was replaced is free");
    bench.run("pool destroy other", 73);
    bench.run("pool destroy other --destroy=other", 0);
    bench.run("pool export tank", 0);
    bench.stop();
    for _ in 0..2 {
        assert!(bench.run("check a c new", 0).0.ends_with("clean: no findings\n"));
    }
    assert!(bench.run("check a new", 1).0.contains("D105 tank: "), "a missing disk is a finding");
}

/// Scenario: a script starts `dolmen daemon` with relative folders, and a supervisor watches the process that it started. That
/// process is the daemon's program, answers at the socket of the environment, ends with success on SIGTERM, and ends with the
/// status of the refusal where another daemon has the state.
#[test]
fn the_process_of_dolmen_daemon_is_the_daemon() {
    let mut bench = Bench::new();
    let pid = bench.daemon.as_ref().unwrap().id();
    let program = std::fs::read_link(format!("/proc/{pid}/exe")).unwrap();
    assert_eq!(program.file_name().unwrap(), "dolmend", "{}", program.display());
    assert!(bench.folder.path().join("state/run/lock").exists(), "the run folder follows from the state");
    let (status, _) = bench.run("-o json status", 0);
    assert!(status.contains(&format!("\"pid\":{pid},")), "{status}");
    let (_, refused) = bench.run("daemon --state state --socket other --named-only", 75);
    assert!(refused.contains("is held by another daemon"), "{refused}");
    rustix::process::kill_process(
        rustix::process::Pid::from_child(bench.daemon.as_ref().unwrap()),
        rustix::process::Signal::TERM,
    )
    .unwrap();
    assert!(bench.daemon.take().unwrap().wait().unwrap().success());
}

/// Scenario: the command is installed without the daemon's program. `dolmen daemon` ends with 69, names the folders that it looked
/// in, and says what to install; the rest of the command works.
#[test]
fn a_command_without_the_daemon_program_says_what_to_install() {
    let folder = tempfile::tempdir().unwrap();
    let alone = folder.path().join("dolmen");
    std::fs::copy(env!("CARGO_BIN_EXE_dolmen"), &alone).unwrap();
    let usual = ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin"];
    if usual.iter().any(|folder| Path::new(folder).join("dolmend").exists()) {
        println!("skipped: a daemon is installed on this machine, and would be started");
        return;
    }
    let output = Command::new(&alone).arg("daemon").env_clear().output().unwrap();
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(69), "{message}");
    let folder = folder.path().to_str().unwrap();
    assert!(
        message.starts_with(&format!("dolmen: starting the daemon: no program dolmend in {folder}, ")),
        "{message}"
    );
    assert!(message.contains("\nhint: install dolmend"), "{message}");
}
