//! `dolmen bench` as a process, with a played `fio` in front of the path: what it refuses, what it leaves, and how it
//! ends when somebody stops it.
#![allow(clippy::unwrap_used)] // helpers of tests unwrap as tests do

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use dolmen_api::BenchmarkFigures;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// What fio once answered, with reads and writes.
const ANSWER: &str = include_str!("../../bench/recorded/mixed.json");

/// What the played fio does when it is given a job.
enum Play {
    /// Answers at once.
    Answers,
    /// Answers twice, then takes its time until it is told to end.
    StallsAtThird,
    /// Fails as on a full disk.
    Fails,
}

struct Stage {
    folder: tempfile::TempDir,
}

impl Stage {
    fn with(play: &Play) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let stage = Self { folder };
        fs::create_dir(stage.path("bin")).unwrap();
        fs::create_dir(stage.path("data")).unwrap();
        fs::create_dir(stage.path("tmp")).unwrap();
        fs::write(stage.path("answer"), ANSWER).unwrap();
        let (answer, count) = (stage.path("answer"), stage.path("count"));
        let (answer, count) = (answer.display(), count.display());
        let job = match play {
            Play::Answers => format!("/bin/cat {answer}"),
            Play::StallsAtThird => format!(
                "echo x >>{count}; [ $(/bin/grep -c x {count}) -lt 3 ] || exec /bin/sleep 60; /bin/cat {answer}"
            ),
            Play::Fails => "echo 'fio: io_u error on file x: No space left on device' >&2; exit 1".to_owned(),
        };
        let script = format!(
            "#!/bin/sh\ncase $1 in\n--version) echo fio-3.33 ;;\n--enghelp) echo 'libaio io_uring' ;;\n*) {job} ;;\nesac\n"
        );
        fs::write(stage.path("bin/fio"), script).unwrap();
        fs::set_permissions(stage.path("bin/fio"), fs::Permissions::from_mode(0o755)).unwrap();
        stage
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn command(&self, words: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_dolmen"));
        command.arg("bench").args(words.split_whitespace()).current_dir(self.folder.path());
        command.env_clear().env("PATH", self.path("bin")).env("TMPDIR", self.path("tmp"));
        command.env("DOLMEN_SOCKET", "/nowhere/dolmen.sock").stdin(Stdio::null());
        command
    }

    fn run(&self, words: &str) -> Output {
        self.command(words).output().unwrap()
    }

    /// Nothing is left of a run: no file on the target, no working folder.
    fn is_clean(&self) -> bool {
        let is_empty = |name: &str| fs::read_dir(self.path(name)).unwrap().next().is_none();
        is_empty("data") && is_empty("tmp")
    }

    fn document(&self, name: &str) -> Value {
        serde_json::from_str(&fs::read_to_string(self.path(name)).unwrap()).unwrap()
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

const SHORT: &str = "--size 4M --runtime 1 --ramp 0 --rounds 2 --outstanding 1,8 -p restore";

/// A folder is measured: the table, the documents, and nothing left behind.
#[test]
fn a_folder_is_measured_and_left_as_it_was() {
    let stage = Stage::with(&Play::Answers);
    let output = stage.run(&format!("./data {SHORT} --json r.json --csv r.csv --html r.html"));
    let (results, messages) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{messages}");
    assert!(results.starts_with("Restore (restore): sequential, writes, 64 KiB\n"), "{results}");
    assert!(results.contains("every 32"), "{results}");
    for needle in ["writing ./data once", "round 2 of 2, restore", "the page is in r.html"] {
        assert!(messages.contains(needle), "{messages}");
    }
    let document = stage.document("r.json");
    assert_eq!((&document["schema"], &document["is_complete"]), (&1.into(), &true.into()));
    assert_eq!(document["runs"].as_array().unwrap().len(), 8);
    assert_eq!(fs::read_to_string(stage.path("r.csv")).unwrap().lines().count(), 5);
    let page = fs::read_to_string(stage.path("r.html")).unwrap();
    assert!(page.ends_with("</html>\n"));
    let command = stage.document("r.json")["command"].as_str().unwrap().to_owned();
    assert!(command.starts_with("dolmen bench ./data ") && command.ends_with("--html r.html"), "{command}");
    assert!(page.contains(&format!(" UTC: {command}</p>")), "{page}");
    assert!(stage.is_clean());
}

/// Scenario: a run as the daemon asks for it. Each step is a line of JSON among the messages, and the report is one that the API
/// shows.
#[test]
fn the_daemon_reads_steps_and_the_report() {
    let stage = Stage::with(&Play::Answers);
    let output = stage.run(&format!("./data {SHORT} --steps --json r.json"));
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let steps: Vec<Value> =
        text(&output.stderr).lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let done: Vec<u64> = steps.iter().map(|step| step["done"].as_u64().unwrap()).collect();
    // The file is written once before the first of eight measurements.
    assert_eq!(done, [0, 0, 1, 2, 3, 4, 5, 6, 7]);
    assert!(steps.iter().all(|step| step["total"] == 8), "{steps:?}");
    assert!(steps[0]["step"].as_str().unwrap().starts_with("writing ./data once"), "{steps:?}");
    assert!(steps[8]["step"].as_str().unwrap().starts_with("round 2 of 2, restore"), "{steps:?}");
    assert!(steps[8]["left_s"].is_u64() && steps[0]["left_s"].is_null(), "{steps:?}");
    let figures: BenchmarkFigures =
        serde_json::from_str(&fs::read_to_string(stage.path("r.json")).unwrap()).unwrap();
    assert_eq!((figures.points.len(), figures.is_complete), (4, true));
    assert_eq!((figures.points[0].flush.as_str(), figures.profiles[0].reads_percent), ("none", 0));
}

/// A report that goes where the results go stands behind them, also where that is a file.
#[test]
fn a_report_among_the_results_overwrites_none_of_them() {
    let stage = Stage::with(&Play::Answers);
    let results = fs::File::create(stage.path("results")).unwrap();
    let mut command = stage.command(&format!("./data {SHORT} --csv /dev/stdout"));
    let output = command.stdout(results).stderr(Stdio::piped()).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let results = fs::read_to_string(stage.path("results")).unwrap();
    let (table, csv) = results.split_once("profile,target,flush,").unwrap();
    assert!(table.starts_with("Restore (restore)") && csv.lines().count() == 5, "{results}");
}

/// With `-n` nothing is written, not even the file in a folder.
#[test]
fn a_dry_run_reports_what_would_be_done() {
    let stage = Stage::with(&Play::Fails);
    let output = stage.run(&format!("./data {SHORT} -n"));
    let results = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(results.contains("written once") && results.contains("8 measurements in 2 rounds"), "{results}");
    let output = stage.run(&format!("./data {SHORT} -n -o json"));
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&document["schema"], &document["measurements"]), (&1.into(), &8.into()));
    assert_eq!(document["profiles"][0]["flushes"][1], "every 32");
    assert!(stage.is_clean());
}

fn wait_for(mut is_there: impl FnMut() -> bool) {
    for _ in 0..1000 {
        if is_there() {
            return;
        }
        // There is nothing to wait for but another process.
        #[allow(clippy::disallowed_methods)]
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    panic!("it did not come to that");
}

fn stop(child: &Child, signal: Signal) {
    let pid = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    kill_process(pid, signal).unwrap();
}

/// A signal ends fio, removes the file, keeps what was measured, and ends the process as signals do.
#[test]
fn a_signal_keeps_what_was_measured_and_clears_away_the_rest() {
    for signal in [Signal::INT, Signal::TERM, Signal::HUP, Signal::QUIT] {
        let stage = Stage::with(&Play::StallsAtThird);
        let mut command = stage.command(&format!("./data {SHORT} --json part.json"));
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let stalls = || fs::read_to_string(stage.path("count")).is_ok_and(|text| text.lines().count() == 3);
        wait_for(stalls);
        stop(&child, signal);
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.signal(), Some(signal.as_raw()), "{}", text(&output.stderr));
        let document = stage.document("part.json");
        assert_eq!(
            (&document["is_complete"], &document["ending"]["how"]),
            (&false.into(), &"interrupted".into())
        );
        // One answer went to the filling of the file.
        assert_eq!(document["runs"].as_array().unwrap().len(), 1);
        assert!(text(&output.stdout).contains("interrupted"));
        assert!(stage.is_clean());
    }
}

/// Whoever ends the command by force ends fio with it: nothing writes to a target that nobody holds any more.
#[test]
fn fio_ends_with_the_command() {
    let Some(setpriv) =
        ["/usr/bin/setpriv", "/bin/setpriv"].into_iter().find(|path| Path::new(path).exists())
    else {
        return println!("skipped: no setpriv");
    };
    let stage = Stage::with(&Play::StallsAtThird);
    std::os::unix::fs::symlink(setpriv, stage.path("bin/setpriv")).unwrap();
    let mut child = stage.command(&format!("./data {SHORT}")).stdout(Stdio::null()).spawn().unwrap();
    wait_for(|| fs::read_to_string(stage.path("count")).is_ok_and(|text| text.lines().count() == 3));
    let children = format!("/proc/{0}/task/{0}/children", child.id());
    let fio = fs::read_to_string(children).unwrap().trim().to_owned();
    assert!(fio.parse::<u32>().is_ok(), "one process makes the load: {fio:?}");
    child.kill().unwrap();
    child.wait().unwrap();
    // It is gone, or dead and not yet waited for.
    let state = || fs::read_to_string(format!("/proc/{fio}/stat"));
    wait_for(|| state().map_or(true, |state| state.contains(") Z ")));
}

#[test]
fn a_failure_of_fio_is_reported_in_its_words() {
    let stage = Stage::with(&Play::Fails);
    let output = stage.run(&format!("./data {SHORT} --json part.json"));
    let messages = text(&output.stderr);
    assert_eq!(output.status.code(), Some(74), "{messages}");
    assert!(messages.contains("io_u error on file x: No space left on device"), "{messages}");
    assert_eq!(stage.document("part.json")["ending"]["how"], "failed");
    assert!(stage.is_clean());
}

/// What holds data is never written to without its name; what was refused is unchanged.
#[test]
fn data_is_not_overwritten_without_its_name() {
    let stage = Stage::with(&Play::Answers);
    let file = stage.path("precious");
    fs::write(&file, vec![7; 8 << 20]).unwrap();
    let refused = stage.run(&format!("./precious {SHORT}"));
    assert_eq!(refused.status.code(), Some(73), "{}", text(&refused.stderr));
    let messages = text(&refused.stderr);
    for needle in
        ["./precious, which holds data of an unknown kind", "--destroy=./precious", "nothing was changed"]
    {
        assert!(messages.contains(needle), "{messages}");
    }
    let with = stage.run(&format!("./data ./precious {SHORT}"));
    assert_eq!(with.status.code(), Some(73), "{}", text(&with.stderr));
    assert!(stage.is_clean(), "no file is made while anything may still be refused");
    let other = stage.run(&format!("./precious {SHORT} --destroy=./other"));
    assert_eq!(other.status.code(), Some(73), "{}", text(&other.stderr));
    let reading = stage.run("./precious -p streaming --runtime 1 --rounds 1 --outstanding 1");
    assert_eq!(reading.status.code(), Some(0), "{}", text(&reading.stderr));
    assert_eq!(fs::read(&file).unwrap(), vec![7; 8 << 20]);
    // Where the data is makes no difference: behind zeros, between zeros, in the last block.
    for (size, at) in
        [(8 << 20, 1 << 20), (8 << 20, 4 << 20), (1 << 20, (1 << 20) - 1), (12 << 20, (12 << 20) - 1)]
    {
        let mut bytes: Vec<u8> = vec![0; size];
        bytes[at] = 7;
        fs::write(stage.path("hidden"), &bytes).unwrap();
        let refused =
            stage.run("./hidden --size 12M --runtime 1 --ramp 0 --rounds 1 --outstanding 1 -p restore");
        let messages = text(&refused.stderr);
        assert_eq!(refused.status.code(), Some(73), "{size} {at}: {messages}");
        assert!(messages.contains(&format!("first at byte {at}")), "{messages}");
        assert!(fs::read(stage.path("hidden")).unwrap() == bytes);
    }
    let named = stage.run(&format!("./precious {SHORT} --destroy=./precious"));
    assert_eq!(named.status.code(), Some(0), "{}", text(&named.stderr));
    assert!(file.exists(), "what was there before stays there");
}

/// Each mistake has its code, and a message that names the object.
#[test]
fn bad_input_is_refused_with_the_reason() {
    let stage = Stage::with(&Play::Answers);
    let nonsense =
        "[[profile]]\nname = \"a\"\nblock = \"4K\"\npattern = \"random\"\nreads = 500\noutstanding = [1]\n";
    fs::write(stage.path("own.toml"), nonsense).unwrap();
    fs::write(stage.path("image"), [0xff; 64]).unwrap();
    let locked = fs::File::create(stage.path("locked")).unwrap();
    locked.set_len(8 << 20).unwrap();
    std::os::unix::fs::symlink("locked", stage.path("link")).unwrap();
    rustix::fs::flock(&locked, rustix::fs::FlockOperation::LockExclusive).unwrap();
    for (words, code, needle) in [
        ("", 2, "<TARGET>..."),
        ("./data -p nothing", 2, "no profile is called \"nothing\"; there are load, files, striping, fleet"),
        ("./data --runtime 0", 2, "a runtime of 0 s; it is 1 to 86400"),
        ("./data --rounds 0", 2, "0 rounds; it is 1 to 100"),
        ("./data --outstanding 8,8", 2, "the load 8 is listed twice"),
        ("./data --workers 0", 2, "0 workers; it is 1 to 256"),
        ("./data --flush 0", 2, "a flush every 0 writes"),
        ("./data --flush often", 2, "expected a number of writes, `end` or `none`"),
        ("./data --size 0", 2, "a size of 0 holds nothing"),
        ("./data --size 4P", 74, "free, and the file for ./data needs 4 PiB"),
        ("./data --size 4M -p file-write", 2, "has 4 MiB to work on, and profile file-write needs 1 GiB"),
        ("./data --profiles own.toml", 2, "own.toml:5: profile \"a\": 500 % reads; it is 0 to 100"),
        ("./data --profiles nowhere.toml", 2, "reading the profiles in nowhere.toml failed"),
        ("./data --profiles image", 2, "stream did not contain valid UTF-8"),
        ("./data --json /nowhere/x", 74, "writing /nowhere/x failed"),
        ("./data --csv ./fresh --html fresh", 2, "would be written over the report in ./fresh"),
        ("./made --json ./data/../made", 2, "would be written over the target ./made"),
        (
            "./locked -p streaming --json link",
            2,
            "would be written over a file that is no text, and may be a disk",
        ),
        ("./data --html /dev/zero", 2, "would be written over a device"),
        ("./data ./data", 2, "./data is the same target as ./data"),
        ("./image --size 1M", 2, "has 0 B to work on"),
        ("./locked --size 1M", 75, "in use by "),
        ("data", 2, "\"data\" is no target: a path in this folder begins with ./"),
        ("tank/home", 75, "the dolmen daemon does not run"),
        ("./nothing/x", 2, "there is nothing at this path, and no folder to make it in"),
        ("/dev/nothing", 2, "no file is made among devices"),
        ("/dev/null", 2, "expected a disk, a partition or a regular file"),
        ("nbd+unix:///x?socket=/nowhere", 75, "connecting to nbd+unix:///x?socket=/nowhere failed"),
        ("nbds://host", 2, "is no address of an NBD export: encrypted"),
    ] {
        let words = if words.is_empty() || words.contains("--size") {
            words.to_owned()
        } else {
            format!("{words} --size 2M")
        };
        let output = stage.run(&words);
        let messages = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{words}: {messages}");
        assert!(messages.contains(needle), "{words}: {messages}");
        assert!(stage.is_clean(), "{words}");
    }
}

/// A server that is no NBD server is named, and one that is has to have the engine for it.
#[test]
fn what_answers_at_an_address_is_looked_at() {
    let stage = Stage::with(&Play::Answers);
    let socket = stage.path("socket");
    let listener = UnixListener::bind(&socket).unwrap();
    // The played server runs on a thread of its own, because the command waits for it.
    #[allow(clippy::disallowed_methods)]
    let server = std::thread::spawn(move || {
        use std::io::Write;
        let (mut stream, _) = listener.accept().unwrap();
        stream.write_all(b"220 mail.example.org ESMTP\r\n").unwrap();
    });
    let output = stage.run(&format!("nbd+unix:///?socket={}", socket.display()));
    server.join().unwrap();
    let messages = text(&output.stderr);
    assert_eq!(output.status.code(), Some(74), "{messages}");
    assert!(
        messages.contains("does not answer as an NBD server: its greeting is another protocol's"),
        "{messages}"
    );
}

#[test]
fn without_fio_it_says_what_to_install() {
    let stage = Stage::with(&Play::Answers);
    fs::remove_file(stage.path("bin/fio")).unwrap();
    let output = stage.run(&format!("./data {SHORT}"));
    let messages = text(&output.stderr);
    assert_eq!(output.status.code(), Some(69), "{messages}");
    assert!(
        messages.contains("fio is not installed") && messages.contains("apt-get install fio"),
        "{messages}"
    );
    assert!(stage.is_clean());
    assert!(!Path::new("/nowhere").exists());
}
