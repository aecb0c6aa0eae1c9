//! A disk that has become slow, as the kernel's throttle makes one. That needs root, loop devices and the blkio controller of
//! control groups; where one of them is missing the test says so and ends.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::client::{World, pattern};

const DISK_BYTES: u64 = 128 << 20;
const BLOCK: usize = 4096;
/// I/Os in a second that the slow disk has left.
const SLOW_IOPS: u32 = 20;
/// How long clients are at it until it has to be known: a few looks.
const KNOWN_WITHIN: Duration = Duration::from_secs(90);

fn run(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).output().ok()?;
    output.status.success().then(|| String::from_utf8(output.stdout).unwrap().trim().to_owned())
}

struct Loop(String);

impl Loop {
    fn new(world: &World, name: &str) -> Option<Self> {
        let file = world.make_disk(name, DISK_BYTES);
        run("losetup", &["--find", "--show", &file]).map(Self)
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = run("losetup", &["--detach", &self.0]);
    }
}

/// A control group with few I/Os for a device.
struct Throttle(PathBuf);

impl Throttle {
    fn new(device: &str) -> Option<Self> {
        let numbers = run("lsblk", &["--nodeps", "--noheadings", "--output", "MAJ:MIN", device])?;
        let group = PathBuf::from(format!("/sys/fs/cgroup/blkio/dolmen-test-{}", std::process::id()));
        fs::create_dir(&group).ok()?;
        let throttle = Self(group);
        let limit = format!("{} {SLOW_IOPS}", numbers.trim());
        let set = |file: &str| fs::write(throttle.0.join(file), &limit).ok();
        set("blkio.throttle.read_iops_device")?;
        set("blkio.throttle.write_iops_device")?;
        Some(throttle)
    }

    fn begin(&self, process: u32) {
        fs::write(self.0.join("cgroup.procs"), process.to_string()).unwrap();
    }
}

impl Drop for Throttle {
    fn drop(&mut self) {
        // Whoever is left in it goes back to where all are.
        for process in fs::read_to_string(self.0.join("cgroup.procs")).unwrap_or_default().lines() {
            let _ = fs::write("/sys/fs/cgroup/blkio/cgroup.procs", process);
        }
        let _ = fs::remove_dir(&self.0);
    }
}

/// The warning about a slow disk.
fn warning(world: &World) -> Option<String> {
    let status = world.get("/v1/status");
    let why = status["why"].as_array().unwrap().iter().filter_map(Value::as_str);
    why.map(str::to_owned).find(|text| text.contains("times as slow"))
}

/// Scenario: one of three disks of a mirror has twenty I/Os a second left, while a client writes and reads. Within a minute or so it
/// is named, with what to do; `disk list` says how slow it is; reads are as fast as the other disks. A daemon that takes the place of
/// the one that was killed knows it, and an acknowledgement ends the warning.
#[test]
#[allow(clippy::disallowed_methods, reason = "the daemon under test lives in real time")]
fn a_disk_that_is_slow_is_named_avoided_and_known_to_the_next_daemon() {
    let world = World::new(0);
    let disks: Vec<Loop> = ["a", "b", "c"].iter().filter_map(|name| Loop::new(&world, name)).collect();
    let throttle = disks.get(1).filter(|_| disks.len() == 3).and_then(|disk| Throttle::new(&disk.0));
    let Some(throttle) = throttle else {
        println!("skipped: that takes root, loop devices and the blkio controller");
        return;
    };
    // The daemon ends before its disks do.
    let mut stage = (world, disks, throttle);
    let (world, disks, throttle) = (&mut stage.0, &stage.1, &stage.2);
    let paths: Vec<&String> = disks.iter().map(|disk| &disk.0).collect();
    world.post("/v1/pools", &json!({"name": "tank", "disks": paths}));
    let space = json!({"name": "m", "size_bytes": 32 << 20, "resiliency": "mirror", "row_bytes": 1 << 20});
    world.post("/v1/pools/tank/spaces", &space);
    world.post("/v1/pools/tank/spaces/m/serve", &json!({}));
    let content = pattern(5, 16 << 20);
    world.nbd().write(0, &content);
    world.nbd().flush();
    throttle.begin(world.pid());

    let (mut client, begun, mut turn) = (world.nbd(), Instant::now(), 0u64);
    let warned = loop {
        for _ in 0..8 {
            turn += 1;
            client.write((16 << 20) + turn % 64 * BLOCK as u64, &content[..BLOCK]);
            let at = (turn * 7919 % 4096) * BLOCK as u64;
            assert!(client.read(at, BLOCK) == content[usize::try_from(at).unwrap()..][..BLOCK]);
        }
        client.flush();
        if let Some(text) = warning(world) {
            break text;
        }
        assert!(begun.elapsed() < KNOWN_WITHIN, "nothing is said of the slow disk");
    };
    assert!(warned.contains(&disks[1].0), "{warned}");
    println!("after {:?}: {warned}", begun.elapsed());
    let status = world.get("/v1/status");
    assert_eq!(status["health"], "warning");
    assert!(status["todo"].to_string().contains("dolmen disk replace tank 1 NEW"), "{status}");
    let listed = world.get("/v1/pools/tank/disks")["disks"][1].clone();
    assert!(listed["times_slower"].as_u64().unwrap() >= 8, "{listed}");
    assert!(listed["score"].as_u64().unwrap() < 80, "{listed}");

    // What is asked of the slow disk alone would take a twentieth of a second.
    let (reads, begun) = (400u64, Instant::now());
    for turn in 0..reads {
        client.read((turn * 7919 % 4096) * BLOCK as u64, BLOCK);
    }
    let took = begun.elapsed();
    println!("{reads} reads in {took:?}");
    assert!(took < Duration::from_millis(1000 / u64::from(SLOW_IOPS)) * u32::try_from(reads / 4).unwrap());

    drop(client);
    world.kill();
    world.start();
    assert_eq!(warning(world), Some(warned), "what was known is known");
    let listed = world.get("/v1/pools/tank/disks")["disks"][1].clone();
    assert!(listed["times_slower"].as_u64().unwrap() >= 8, "{listed}");
    world.post("/v1/pools/tank/acknowledge", &json!({}));
    assert_eq!(warning(world), None);
    assert_eq!(world.get("/v1/pools/tank/disks")["disks"][1]["score"], 100);
    world.post("/v1/pools/tank/spaces/m/unserve", &json!({}));
    world.post("/v1/pools/tank/destroy", &json!({"destroy": "tank"}));
}
