//! A benchmark through the daemon with both programs and fio: the daemon runs the command line beside it. Where fio is missing, the test
//! looks for the refusal alone.
// Helpers of tests unwrap as tests do; another process is waited for.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

mod support;

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

/// Looks at something that should happen soon, a twentieth of a second apart.
const LOOKS_MAX: u32 = 1200;

/// A daemon with a pool of two files.
struct Rig {
    folder: tempfile::TempDir,
    daemon: Child,
}

impl Rig {
    fn new() -> Self {
        support::check_daemon_program();
        let folder = tempfile::tempdir().unwrap();
        for name in ["a", "b"] {
            std::fs::File::create(folder.path().join(name)).unwrap().set_len(400 << 20).unwrap();
        }
        let mut command = Command::new(env!("CARGO_BIN_EXE_dolmen"));
        command.args(["daemon", "--state", "state", "--named-only", "--links", "links"]);
        command.current_dir(folder.path()).env("DOLMEN_SOCKET", folder.path().join("api"));
        let daemon =
            command.stdin(Stdio::null()).stderr(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
        let rig = Self { folder, daemon };
        rig.eventually("the daemon answers", || rig.dolmen("version").status.success().then_some(()));
        rig
    }

    fn eventually<T>(&self, what: &str, mut ready: impl FnMut() -> Option<T>) -> T {
        for _ in 0..LOOKS_MAX {
            if let Some(value) = ready() {
                return value;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        panic!("waited in vain: {what}");
    }

    fn dolmen(&self, line: &str) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_dolmen"));
        command.args(line.split_whitespace()).current_dir(self.folder.path()).stdin(Stdio::null());
        command.env("DOLMEN_SOCKET", self.folder.path().join("api")).output().unwrap()
    }

    /// Runs a command that has to do well; its results.
    fn run(&self, line: &str) -> String {
        let output = self.dolmen(line);
        assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    fn post(&self, path: &str, body: &Value) -> Value {
        let mut stream = UnixStream::connect(self.folder.path().join("api")).unwrap();
        let body = body.to_string();
        let length = body.len();
        write!(
            stream,
            "POST {path} HTTP/1.1\r\nhost: d\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}"
        )
        .unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        serde_json::from_str(text.split_once("\r\n\r\n").unwrap().1).unwrap()
    }

    fn json(&self, line: &str) -> Value {
        serde_json::from_str(&self.run(&format!("-o json {line}"))).unwrap()
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        let _ = self.daemon.kill();
        let _ = self.daemon.wait();
    }
}

/// Scenario: a served space that nothing was written to is measured against another one, with reads and writes. The report has all
/// points of both, a ratio for each load, and is shown and listed by the command line.
#[test]
fn a_space_of_a_pool_is_measured_by_fio() {
    let rig = Rig::new();
    rig.run("pool create tank a b");
    for name in ["x", "y"] {
        rig.run(&format!("space create tank/{name} --size 32M --resiliency simple"));
    }
    let request = json!({"against": "tank/y", "profiles": ["database", "streaming"], "size_bytes": 16 << 20, "rounds": 1, "runtime_s": 1,
                         "outstanding": [1, 8], "destroy": ["tank/x", "tank/y"]});
    let path = "/v1/pools/tank/spaces/x/bench";
    if !Path::new("/usr/bin/fio").exists() {
        let refused = rig.post(path, &request);
        assert_eq!(refused["error"]["code"], "missing", "{refused}");
        println!("skipped: fio is missing");
        return;
    }
    let unreachable = rig.post(path, &request);
    assert_eq!(unreachable["error"]["code"], "busy", "{unreachable}");
    assert!(unreachable["error"]["hint"].as_str().unwrap().contains("dolmen serve tank/x"), "{unreachable}");
    for name in ["x", "y"] {
        rig.run(&format!("serve tank/{name}"));
    }
    let begun = rig.post(path, &request);
    let job = begun["job"]["id"].as_u64().unwrap_or_else(|| panic!("{begun}"));
    rig.eventually("a step is shown", || {
        let work = rig.json("bench --reports")["work"].clone();
        work["step"].as_str().is_some_and(|step| step.starts_with("round 1 of 1")).then_some(())
    });
    rig.run(&format!("jobs {job} --wait"));
    let shown = rig.json(&format!("bench --report {job}"));
    let figures = &shown["figures"];
    assert_eq!(figures["is_complete"], true, "{shown}");
    // Two loads without and with flushes, two that read alone, on two spaces.
    assert_eq!(figures["points"].as_array().unwrap().len(), 12, "{shown}");
    assert_eq!(figures["comparisons"].as_array().unwrap().len(), 6, "{shown}");
    assert!(
        figures["points"]
            .as_array()
            .unwrap()
            .iter()
            .all(|point| point["ios_per_s"]["median"].as_f64() > Some(0.0))
    );
    assert!(rig.run("bench --reports").contains("tank/x, tank/y"));
    let text = rig.run(&format!("bench --report {job}"));
    for needle in ["Database (database): ", "every 32", "too few rounds"] {
        assert!(text.contains(needle), "{needle}: {text}");
    }
    // A long one is stopped: fio ends, and nothing of it is left.
    let long = json!({"profiles": ["streaming"], "size_bytes": 16 << 20, "rounds": 1, "runtime_s": 60, "outstanding": [1]});
    let long = rig.post(path, &long)["job"]["id"].as_u64().unwrap();
    rig.eventually("it is at its step", || {
        rig.json("bench --reports")["work"]["step"].is_string().then_some(())
    });
    rig.run(&format!("job stop {long}"));
    rig.eventually("it has ended", || {
        (rig.json(&format!("jobs {long}"))["job"]["state"] == "called_off").then_some(())
    });
    assert_eq!(rig.json("bench --reports")["reports"].as_array().unwrap().len(), 1);
    assert!(!rig.folder.path().join("state/benchmarks/new").exists());
    rig.run("stop");
}
