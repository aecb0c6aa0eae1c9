//! What takes the log hangs, fills up, goes away or was never there: the daemon serves all the same.

use std::fs::File;
use std::io::Read;
use std::process::{Command, Stdio};

use serde_json::json;

use crate::client::{World, pattern};

/// Starts the daemon again, with a log of everything that goes there.
fn restart_with(world: &mut World, log: impl Into<Stdio>) {
    let mut command = world.command("state", "run");
    command.env("DOLMEN_LOG", "trace").stderr(log);
    world.kill();
    world.begin(command);
}

/// Has much logged, and then something written and read.
fn is_served(world: &World) {
    for _ in 0..200 {
        world.get("/v1/status");
    }
    let mut nbd = world.nbd();
    let content = pattern(7, 1 << 20);
    world.post("/v1/pools/tank/disks/1/offline", &json!({}));
    nbd.write(0, &content);
    nbd.flush();
    world.post("/v1/pools/tank/disks/1/online", &json!({}));
    world.last_job();
    assert_eq!(nbd.read(0, 1 << 20), content);
}

/// Scenario: standard error is a pipe of one page with a reader that hangs. Nothing waits for it, the end of the daemon least of
/// all; what is read later begins with the first line.
#[test]
fn a_reader_of_the_log_that_hangs_stops_nothing() {
    let mut world = World::new(2);
    world.make_tank(&["d0", "d1"]);
    let (mut read, write) = std::io::pipe().unwrap();
    rustix::pipe::fcntl_setpipe_size(&write, 4096).unwrap();
    restart_with(&mut world, write);
    is_served(&world);
    world.post("/v1/shutdown", &json!({}));
    assert!(world.ended().success());
    let mut text = String::new();
    read.read_to_string(&mut text).unwrap();
    // A line that does not fit into what is left of the page waits as a whole.
    assert!((3072..=4096).contains(&text.len()), "{}: {text}", text.len());
    assert!(text.contains("the daemon is running"), "{text}");
}

/// Scenario: the reader of the log ends, before the daemon starts and while it runs; the file with the log is on a full file
/// system; standard error is closed.
#[test]
fn a_log_that_cannot_be_written_stops_nothing() {
    let mut world = World::new(2);
    world.make_tank(&["d0", "d1"]);
    let (read, write) = std::io::pipe().unwrap();
    restart_with(&mut world, write);
    drop(read);
    is_served(&world);
    let (read, write) = std::io::pipe().unwrap();
    drop(read);
    restart_with(&mut world, write);
    is_served(&world);
    let full = File::options().write(true).open("/dev/full").unwrap();
    restart_with(&mut world, full);
    is_served(&world);
    let closed = world.command("state", "run");
    let mut command = Command::new("sh");
    command.args(["-c", "exec \"$0\" \"$@\" 2>&-"]).arg(closed.get_program()).args(closed.get_args());
    world.kill();
    world.begin(command);
    is_served(&world);
    world.post("/v1/shutdown", &json!({}));
    assert!(world.ended().success());
}
