//! Benchmarks through the daemon, with a script in place of the command line: what is refused, the job, its end, and reports that are kept.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use serde_json::{Value, json};

use crate::client::{World, eventually};
use crate::mounts;
use crate::volumes::{Rig, SHOW};

/// What stands in for `dolmen`: it plans what a file says, notes its words, prints a step, and writes a report once it is let go, also
/// when it is told to end.
const SCRIPT: &str = r#"#!/bin/sh
case "$*" in
*' -n') cat FOLDER/rehearsal; exit "$(cat FOLDER/status)" ;;
esac
echo "$*" >>FOLDER/orders
echo $$ >FOLDER/pid
for word; do case $word in --json=*) json=${word#--json=} ;; esac; done
trap 'cp FOLDER/report "$json"; exit 143' TERM
echo '{"step":"round 1 of 1","done":1,"total":2,"left_s":9}' >&2
while [ -e FOLDER/hold ]; do sleep 0.05; done
cp FOLDER/report "$json"
[ ! -e FOLDER/fail ] || { printf 'dolmen: making the load: odd\nhint: mend it\n' >&2; exit 74; }
"#;
const BENCH: &str = "/v1/pools/tank/spaces/m/bench";

/// A daemon with a served space, whose command line is a script.
struct Bench {
    world: World,
    control: PathBuf,
}

impl Bench {
    fn new() -> Self {
        let mut world = World::new(2);
        world.make_tank(&["d0", "d1"]);
        world.kill();
        let control = world.folder.path().join("control");
        std::fs::create_dir(&control).unwrap();
        let mut bench = Self { world, control };
        let script = SCRIPT.replace("FOLDER", &bench.control.display().to_string());
        bench.write("dolmen", &script);
        std::fs::set_permissions(bench.control.join("dolmen"), PermissionsExt::from_mode(0o755)).unwrap();
        bench.rehearses(0, &json!({"measurements": 2, "rounds": 1, "expected_s": 4}));
        bench.write("report", &report(true).to_string());
        bench.start();
        bench
    }

    fn start(&mut self) {
        let mut command = self.world.command("state", "run");
        command.env("DOLMEN_COMMAND", self.control.join("dolmen"));
        self.world.begin(command);
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.control.join(name), text).unwrap();
    }

    fn remove(&self, name: &str) {
        std::fs::remove_file(self.control.join(name)).unwrap();
    }

    fn rehearses(&self, status: i32, document: &Value) {
        self.write("status", &status.to_string());
        self.write("rehearsal", &document.to_string());
    }

    fn orders(&self) -> String {
        std::fs::read_to_string(self.control.join("orders")).unwrap_or_default()
    }

    /// Begins a benchmark that only reads.
    fn begin(&self) -> u64 {
        let begun = self.world.post(BENCH, &json!({"profiles": ["streaming"]}));
        assert_eq!(begun["plan"]["is_reversible"], true, "{begun}");
        begun["job"]["id"].as_u64().unwrap()
    }

    /// Waits until the process of a held benchmark has printed its step.
    fn is_held(&self) -> Value {
        eventually("the benchmark is at its step", || {
            let work = self.list()["work"].clone();
            (work["step"] == "round 1 of 1").then_some(work)
        })
    }

    fn list(&self) -> Value {
        self.world.get("/v1/benchmarks")
    }

    fn reports(&self) -> Vec<u64> {
        let list = self.list();
        list["reports"].as_array().unwrap().iter().map(|report| report["job"].as_u64().unwrap()).collect()
    }

    fn job(&self, id: u64) -> Value {
        self.world.get(&format!("/v1/jobs/{id}"))["job"].clone()
    }

    fn ended(&self, id: u64) -> Value {
        eventually("the job ends", || {
            let job = self.job(id);
            job["ended_s"].is_u64().then_some(job)
        })
    }
}

/// A report as the command writes it.
fn report(is_complete: bool) -> Value {
    let figure = |value: f64| json!({"median": value, "least": value, "most": value, "spread_percent": null});
    json!({
        "schema": 1, "is_complete": is_complete, "started_s": 7, "fio_version": "fio-3.33", "runtime_s": 1, "rounds": 1, "warnings": [],
        "targets": [{"name": "tank/m", "what": "an NBD export", "working_set_bytes": 1 << 25, "notes": []}],
        "profiles": [{"name": "streaming", "title": "Streaming", "summary": "sequential", "reads_percent": 100}],
        "points": [{"profile": "streaming", "target": "tank/m", "flush": "none", "outstanding": 8, "rounds": 1,
                    "ios_per_s": figure(100.0), "bytes_per_s": figure(6.5e6), "mean_ns": 1.0, "p50_ns": 1.0, "p95_ns": 1.0, "p99_ns": 2.0,
                    "p999_ns": 3.0, "is_noisy": false}],
        "knees": [], "comparisons": [], "runs": []
    })
}

/// Scenario: requests that name no profile, no space, no second space or other names than those that are overwritten; one while a client
/// has the space open; one without fio. Each is refused by name, and nothing is begun.
#[test]
fn a_benchmark_that_is_refused_begins_nothing() {
    let bench = Bench::new();
    for (path, request, code, needle) in [
        (BENCH, json!({"profiles": ["mial"]}), "bad_request", "no profile is called \"mial\""),
        (BENCH, json!({"profiles": ["--html=/x"]}), "bad_request", "no profile is called"),
        (BENCH, json!({"outstanding": vec![1; 65]}), "bad_request", "65 numbers of outstanding I/Os"),
        ("/v1/pools/tank/spaces/n/bench", json!({}), "no_such_space", "n"),
        (BENCH, json!({"profiles": ["streaming"], "against": "/dev/sda"}), "no_such_pool", ""),
        (BENCH, json!({"profiles": ["streaming"], "against": "m"}), "bad_request", "POOL/SPACE"),
        (BENCH, json!({"profiles": ["database"]}), "needs_confirmation", "tank/m"),
        (BENCH, json!({}), "needs_confirmation", "tank/m"),
        (BENCH, json!({"profiles": ["database"], "destroy": ["tank/n"]}), "needs_confirmation", "tank/n"),
        (
            BENCH,
            json!({"profiles": ["database"], "destroy": ["tank/n"], "dry_run": true}),
            "needs_confirmation",
            "tank/n",
        ),
        (BENCH, json!({"target": "/dev/sda"}), "bad_request", "target"),
    ] {
        let error = bench.world.refused(path, &request);
        assert_eq!(error["code"], code, "{request}: {error}");
        assert!(error["message"].as_str().unwrap().contains(needle), "{request}: {error}");
    }
    let client = bench.world.nbd();
    let confirmed = json!({"profiles": ["database"], "destroy": ["tank/m"]});
    let busy = bench.world.refused(BENCH, &confirmed);
    assert!(busy["code"] == "busy" && busy["message"].as_str().unwrap().contains("1 NBD client"), "{busy}");
    drop(client);
    let no_fio = json!({"error": {"code": "missing", "message": "fio is not installed", "hint": "apt-get install fio"}});
    bench.rehearses(69, &no_fio);
    let missing = bench.world.refused(BENCH, &confirmed);
    assert_eq!((&missing["code"], &missing["hint"]), (&json!("missing"), &json!("apt-get install fio")));
    bench.remove("dolmen");
    let missing = bench.world.refused(BENCH, &confirmed);
    assert!(
        missing["code"] == "missing" && missing["hint"].as_str().unwrap().contains("DOLMEN_COMMAND"),
        "{missing}"
    );
    assert_eq!((bench.orders().as_str(), bench.reports()), ("", vec![]));
    assert_eq!(bench.world.get("/v1/jobs")["jobs"], json!([]));
}

/// Scenario: a benchmark that reads is planned and run; meanwhile a second one is refused. One that writes names what is lost, to the
/// command as well. The reports are shown, and a later daemon shows them too.
#[test]
fn a_benchmark_is_a_job_and_its_report_is_kept() {
    let mut bench = Bench::new();
    let plan = bench.world.post(BENCH, &json!({"dry_run": true}));
    assert_eq!(
        (&plan["is_changed"], &plan["plan"]["is_reversible"]),
        (&json!(false), &json!(false)),
        "{plan}"
    );
    assert!(plan["plan"]["steps"][0].as_str().unwrap().contains("what it holds is lost"), "{plan}");
    assert_eq!(bench.orders(), "");
    bench.write("hold", "");
    let first = bench.begin();
    let work = bench.is_held();
    assert_eq!(work, json!({"job": first, "step": "round 1 of 1", "done": 1, "total": 2, "left_s": 9}));
    eventually("the job follows", || {
        let job = bench.job(first);
        ((&job["rows_done"], &job["rows_total"]) == (&json!(1), &json!(2))).then_some(())
    });
    let second = bench.world.refused(BENCH, &json!({"profiles": ["streaming"]}));
    assert!(
        second["code"] == "busy" && second["message"].as_str().unwrap().contains(&format!("job {first}")),
        "{second}"
    );
    bench.remove("hold");
    assert_eq!(bench.ended(first)["state"], "done");
    let request = json!({"profiles": ["database", "fleet"], "size_bytes": 8 << 20, "rounds": 2, "runtime_s": 1, "outstanding": [1, 8],
                         "destroy": ["tank/m"]});
    let begun = bench.world.post(BENCH, &request);
    assert_eq!(begun["plan"]["is_reversible"], false, "{begun}");
    let second = begun["job"]["id"].as_u64().unwrap();
    assert_eq!(bench.ended(second)["state"], "done");
    let orders = bench.orders();
    let [reads, writes] = orders.lines().collect::<Vec<_>>().try_into().unwrap();
    assert!(
        reads.contains(" bench tank/m --profile=streaming --steps ") && !reads.contains("destroy"),
        "{reads}"
    );
    let words = "bench tank/m --profile=database --profile=fleet --size=8388608 --rounds=2 --runtime=1 --outstanding=1,8 --destroy=tank/m";
    assert!(writes.contains(words), "{writes}");
    let shown = bench.world.get(&format!("/v1/benchmarks/{second}"));
    assert_eq!(shown["figures"]["points"][0]["ios_per_s"]["median"], 100.0, "{shown}");
    assert!(std::path::Path::new(shown["file"].as_str().unwrap()).exists(), "{shown}");
    bench.world.kill();
    bench.start();
    assert_eq!(bench.reports(), [second, first]);
    assert_eq!(bench.world.get(&format!("/v1/benchmarks/{second}")), shown);
    let (status, none) = bench.world.try_ask("GET", "/v1/benchmarks/999", b"").unwrap();
    assert_eq!((status, &none["error"]["code"]), (404, &json!("no_such_job")));
}

/// Scenario: a benchmark is stopped, one fails, and the daemon is told to end during a third. What was measured is kept each time, the
/// jobs say what happened, and the end of the daemon does not wait for the benchmark.
#[test]
fn a_benchmark_that_is_ended_keeps_what_was_measured() {
    let mut bench = Bench::new();
    bench.write("report", &report(false).to_string());
    bench.write("hold", "");
    let stopped = bench.begin();
    bench.is_held();
    let plan = bench.world.post(&format!("/v1/jobs/{stopped}/stop"), &json!({"dry_run": true}));
    assert!(plan["plan"]["steps"][0].as_str().unwrap().contains("fio ends"), "{plan}");
    bench.world.post(&format!("/v1/jobs/{stopped}/stop"), &json!({}));
    let job = bench.ended(stopped);
    assert!(job["state"] == "called_off" && job["result"].as_str().unwrap().contains("1 point"), "{job}");
    assert_eq!(bench.list()["reports"][0]["is_complete"], false);
    bench.remove("hold");
    bench.write("fail", "");
    let failed = bench.begin();
    let job = bench.ended(failed);
    let result = job["result"].as_str().unwrap();
    assert!(job["state"] == "failed" && result.contains("making the load: odd; 1 point"), "{job}");
    bench.remove("fail");
    bench.write("hold", "");
    let ended = bench.begin();
    bench.is_held();
    bench.world.post("/v1/shutdown", &json!({}));
    assert!(bench.world.ended().success());
    bench.start();
    assert_eq!(bench.job(ended)["state"], "called_off");
    assert_eq!(bench.reports(), [ended, failed, stopped]);
}

/// Scenario: the daemon is killed while a benchmark is under way that has written half a report. Its process ends with it; the next daemon
/// shows a failed job and no report, and measures again.
#[test]
fn a_killed_daemon_leaves_neither_process_nor_half_a_report() {
    let mut bench = Bench::new();
    bench.write("hold", "");
    let killed = bench.begin();
    bench.is_held();
    let pid = std::fs::read_to_string(bench.control.join("pid")).unwrap();
    let half = bench.world.folder.path().join("state/benchmarks/new/report.json");
    std::fs::write(&half, &report(true).to_string()[..40]).unwrap();
    bench.world.kill();
    eventually("the process has ended", || {
        let status = std::fs::read_to_string(format!("/proc/{}/stat", pid.trim()));
        status.map_or(true, |status| status.contains(") Z ")).then_some(())
    });
    bench.start();
    let job = bench.ended(killed);
    assert!(
        job["state"] == "failed" && job["result"].as_str().unwrap().contains("the daemon ended"),
        "{job}"
    );
    assert_eq!(bench.reports(), Vec::<u64>::new());
    bench.remove("hold");
    let next = bench.begin();
    assert_eq!(bench.ended(next)["state"], "done");
    assert_eq!(bench.reports(), [next]);
    assert!(!half.exists());
}

/// Scenario: a space whose volume is mounted, and then unmounted. Neither is overwritten, whatever was typed.
#[test]
fn the_space_of_a_volume_is_not_overwritten() {
    let _mounts = mounts::mounting();
    let Some(mut rig) = Rig::new() else { return };
    let id = rig.create();
    rig.ended(id);
    rig.mounted();
    let path = "/v1/pools/tank/spaces/v/bench";
    let request = json!({"profiles": ["database"], "destroy": ["tank/v"]});
    let mounted = rig.world.refused(path, &request);
    assert!(
        mounted["code"] == "busy" && mounted["message"].as_str().unwrap().contains("mounted"),
        "{mounted}"
    );
    rig.world.post(&format!("{SHOW}/unmount"), &json!({}));
    let unmounted = rig.world.refused(path, &request);
    assert!(unmounted["code"] == "foreign_data", "{unmounted}");
    assert!(unmounted["message"].as_str().unwrap().contains("carries a volume"), "{unmounted}");
    rig.stop();
}
