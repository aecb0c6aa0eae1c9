//! A daemon that may not open enough files: it says so, and takes no disk for absent.

use std::process::Command;

use serde_json::{Value, json};

use crate::client::World;

const DISKS: usize = 24;

/// The daemon, with a limit of open files that it cannot raise.
fn limited(world: &World, files: usize) -> Command {
    let of = world.command("state", "run");
    // Root could raise its limits.
    let is_root = rustix::process::geteuid().is_root();
    let mut command = Command::new(if is_root { "setpriv" } else { "env" });
    command.args(if is_root { &["--bounding-set", "-sys_resource"][..] } else { &[] }).args(["sh", "-c"]);
    command.arg(format!(r#"ulimit -n {files} && exec "$0" "$@""#)).arg(of.get_program()).args(of.get_args());
    command.env("DOLMEN_LOG", "error");
    command
}

/// Whether each disk is present; `None` where the pool is not open, which has to say why.
fn all_present(world: &World, files: usize) -> Option<bool> {
    let (status, answer) = world.try_ask("GET", "/v1/pools/tank/disks", b"").unwrap();
    if status != 200 {
        let reported = answer.to_string();
        assert!(
            [
                "cannot be opened",
                "cannot be looked at",
                "reading the host's record",
                "writing the host's record"
            ]
            .iter()
            .any(|what| reported.contains(what)),
            "{files}: {reported}"
        );
        assert_eq!(
            reported.matches(&format!("this process may have {files} files open")).count(),
            1,
            "{files}: {reported}"
        );
        return None;
    }
    let disks = answer["disks"].as_array().unwrap().clone();
    assert_eq!(disks.len(), DISKS);
    Some(disks.iter().all(|disk: &Value| disk["state"] == "present"))
}

/// Scenario: a pool is opened under limits that let the daemon open none of its disks, some, all but one, and all. It is open with
/// all of them, or it is closed and says once which limit is short; without the limit it is as it was.
#[test]
fn a_disk_that_may_not_be_opened_is_not_absent() {
    let mut world = World::new(DISKS);
    let names: Vec<String> = (0..DISKS).map(|disk| format!("d{disk}")).collect();
    world.make_tank(&names.iter().map(String::as_str).collect::<Vec<_>>());
    let (mut closed, mut open) = (0, 0);
    for files in (48..112).step_by(4) {
        world.kill();
        let command = limited(&world, files);
        world.begin(command);
        match all_present(&world, files) {
            None => closed += 1,
            Some(is_so) => {
                assert!(is_so, "with {files} open files disks count as absent");
                open += 1;
            }
        }
    }
    assert!(closed > 0 && open > 0, "no limit was short, or each: {closed}, {open}");
    world.kill();
    world.start();
    assert_eq!(all_present(&world, 0), Some(true));
    world.post("/v1/pools/tank/scrub", &json!({}));
    world.last_job();
}
