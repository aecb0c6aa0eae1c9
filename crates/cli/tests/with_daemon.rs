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

/// The words that a shell offers at the end of a line, of which `name` is one, by a script that asks it; `None` where it is not
/// installed.
fn offered(bench: &Bench, shell: &str, line: &str, name: &str) -> Option<String> {
    let script = match shell {
        "bash" => {
            "source ./script
             line=\"$LINE\"; COMP_LINE=$line; COMP_POINT=${#line}; read -ra COMP_WORDS <<< \"$line\"
             [[ $line == *' ' ]] && COMP_WORDS+=('')
             COMP_CWORD=$(( ${#COMP_WORDS[@]} - 1 ))
             _dolmen_names dolmen \"${COMP_WORDS[COMP_CWORD]}\" \"${COMP_WORDS[COMP_CWORD-1]}\"
             printf '%s\\n' \"${COMPREPLY[@]}\""
        }
        "fish" => "source ./script; complete -C \"$LINE\" | cut -f1",
        // A terminal of its own, in which TAB is pressed until the name is there.
        "zsh" => {
            "zmodload zsh/zpty; zpty shell zsh -f -i
             zpty -w shell 'autoload -U compinit; compinit -u -D; source ./script; unsetopt list_beep; LISTMAX=0; PS1=re\"\"ady%%'
             zpty -r shell out '*ready%*'; zpty -n -w shell \"$LINE\"$'\\t\\t'
             zpty -r shell out \"*$NAME*\"; print -rn -- $out; zpty -d shell"
        }
        _ => unreachable!(),
    };
    let path = format!(
        "{}:{}",
        Path::new(env!("CARGO_BIN_EXE_dolmen")).parent().unwrap().display(),
        std::env::var("PATH").unwrap()
    );
    let is_installed = std::env::split_paths(&path).any(|folder| folder.join(shell).exists());
    if !is_installed {
        return None;
    }
    let mut command = Command::new("timeout");
    command.args(["60", shell]);
    if shell == "bash" {
        command.arg("--norc");
    }
    command
        .args(["-c", script])
        .env("LINE", line)
        .env("NAME", name)
        .env("PATH", path)
        .env("HOME", bench.folder.path());
    command.env("DOLMEN_SOCKET", bench.folder.path().join("api")).env("TERM", "dumb");
    let output = command.current_dir(bench.folder.path()).stdin(Stdio::null()).output().unwrap();
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Scenario: TAB behind commands that take names, in each shell that is installed, with a daemon and after it has ended. Expected:
/// the names that there are; then none, no message, and commands and files as ever.
#[test]
fn shells_complete_the_names_that_the_daemon_has() {
    let mut bench = Bench::new();
    for (from, to) in [("a", "d:1"), ("b", "d 2"), ("c", "d3")] {
        std::fs::rename(bench.folder.path().join(from), bench.folder.path().join(to)).unwrap();
    }
    let create = |disks: &[&str]| {
        let mut command = bench.command("pool create tank");
        assert!(command.args(disks).output().unwrap().status.success());
    };
    create(&["d:1", "d 2", "d3"]);
    bench.run("space create tank/first --size 64M", 0);
    bench.run("space create tank/second --size 64M", 0);
    bench.run("space create tank/thrown --size 64M", 0);
    bench.run("space delete tank/thrown", 0);
    bench.run("scrub tank", 0);
    let folder = bench.folder.path().canonicalize().unwrap().display().to_string();
    let cases = [
        ("dolmen pool show ", vec!["tank"]),
        ("dolmen df ta", vec!["tank"]),
        ("dolmen space show ", vec!["tank/first", "tank/second"]),
        ("dolmen space attach tank/s", vec!["tank/second"]),
        ("dolmen -o json space show tank/f", vec!["tank/first"]),
        ("dolmen trash restore ", vec!["tank/thrown"]),
        ("dolmen events --pool ", vec!["tank"]),
        ("dolmen explain disk_abs", vec!["disk_absent"]),
        ("dolmen why tank/", vec!["tank/first", "tank/second"]),
        ("dolmen jobs ", vec!["1"]),
    ];
    let mut tried = Vec::new();
    for shell in ["bash", "fish", "zsh"] {
        bench.run(&format!("completion {shell}"), 0);
        let script = bench.output(&format!("completion {shell}")).stdout;
        std::fs::write(bench.folder.path().join("script"), script).unwrap();
        for (line, names) in &cases {
            let Some(found) = offered(&bench, shell, line, names[names.len() - 1]) else { break };
            match shell {
                "zsh" => {
                    assert!(names.iter().all(|name| found.contains(name)), "{line:?}, {names:?}: {found:?}");
                }
                _ => assert_eq!(found.lines().collect::<Vec<_>>(), *names, "{shell}: {line:?}"),
            }
            tried.push(shell);
        }
    }
    assert!(tried.contains(&"bash"), "bash is installed where tests run");
    std::fs::write(bench.folder.path().join("script"), bench.output("completion bash").stdout).unwrap();
    let disks = offered(&bench, "bash", "dolmen disk offline tank ", "").unwrap();
    let mut disks: Vec<&str> = disks.lines().collect();
    disks.sort_unstable();
    assert_eq!(disks, [format!("{folder}/d3"), format!("{folder}/d:1"), format!("{folder}/d\\ 2")]);
    bench.stop();
    for (line, expected) in [("dolmen pool show ", None), ("dolmen space sh", Some("show"))] {
        let found = offered(&bench, "bash", line, "").unwrap();
        let words: Vec<&str> = found.lines().filter(|word| !word.starts_with('-')).collect();
        assert_eq!(words, expected.into_iter().collect::<Vec<_>>(), "{line:?}");
    }
}
