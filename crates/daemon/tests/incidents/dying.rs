//! A disk that dies slowly: it makes errors, or takes fifty times as long as the others.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::bench::{
    BLOCK, Content, MIB, client, disks, expect_sound, health, idle, jobs, make_pool, make_space, mirror,
};
use crate::client::World;
use crate::faulty::Faults;

const DISK_BYTES: u64 = 256 << 20;
/// What the space has, what of it is written before the disk begins to die, and where new rows begin behind that.
const SPACE_MIB: usize = 96;
const FILLED_MIB: usize = 48;
/// How long it may take until it is known: minutes, in life.
const KNOWN_WITHIN: Duration = Duration::from_secs(150);
/// Reads by which it is seen whom they ask.
const LOOKED_AT: u64 = 400;
/// What a disk does in life that is no solid-state disk, and one that is fifty times slower.
const USUAL: Duration = Duration::from_millis(1);
const SLOW: Duration = Duration::from_millis(50);

/// A daemon with a pool of four disks of which number 1 is about to die; nothing where there can be none here.
fn stage() -> Option<(World, Faults, Content)> {
    let world = World::new(0);
    let Some(faults) = Faults::mount(world.folder.path(), 4, DISK_BYTES) else {
        println!("skipped: that takes root and /dev/fuse");
        return None;
    };
    make_pool(&world, &faults.paths());
    make_space(&world, "m", SPACE_MIB, mirror());
    let mut content = Content::new("m", SPACE_MIB);
    content.fill(&world, FILLED_MIB, 1);
    Some((world, faults, content))
}

fn dying(world: &World) -> Value {
    disks(world)[1].clone()
}

fn used(disk: &Value) -> u64 {
    disk["data_bytes"].as_u64().unwrap() - disk["free_bytes"].as_u64().unwrap()
}

fn todo(world: &World) -> String {
    world.get("/v1/status")["todo"].to_string()
}

/// Reads blocks, and writes some over, until the status says something; what it says. Nobody ever reads anything but what was
/// acknowledged.
#[allow(clippy::disallowed_methods, reason = "the daemon under test lives in real time")]
fn live_until(world: &World, content: &mut Content, what: &str) -> String {
    let (mut client, begun, mut turn) = (client(world, "m"), Instant::now(), 0usize);
    loop {
        for _ in 0..64 {
            turn += 1;
            let at = turn * 7919 % (FILLED_MIB * MIB / BLOCK) * BLOCK;
            assert!(
                client.read(at as u64, BLOCK) == content.block(at),
                "block {at} is not what was acknowledged"
            );
            if turn.is_multiple_of(4) {
                content.write(&mut client, at, BLOCK, 2);
            }
        }
        client.flush();
        let (_, why) = health(world);
        if why.contains(what) {
            println!("after {:?} and {turn} reads: {why}", begun.elapsed());
            return why;
        }
        assert!(begun.elapsed() < KNOWN_WITHIN, "the disk is not marked: {why}");
    }
}

/// How many of some reads ask the disk.
fn reads_of(world: &World, faults: &Faults, content: &Content) -> u64 {
    let (mut client, before) = (client(world, "m"), faults.disk(1).reads());
    for turn in 0..LOOKED_AT {
        let at = usize::try_from(turn).unwrap() * 7919 % (FILLED_MIB * MIB / BLOCK) * BLOCK;
        assert!(client.read(at as u64, BLOCK) == content.block(at));
    }
    faults.disk(1).reads() - before
}

#[allow(clippy::disallowed_methods, reason = "the daemon under test lives in real time")]
fn pause(time: Duration) {
    std::thread::sleep(time);
}

/// Reads until the disk holds nothing.
#[allow(clippy::disallowed_methods, reason = "the daemon under test lives in real time")]
fn read_until_empty(world: &World, content: &Content) {
    let (mut client, begun, mut turn) = (client(world, "m"), Instant::now(), 0);
    while used(&dying(world)) > 0 {
        for _ in 0..200 {
            turn += 1;
            let at = turn * 104_729 % (FILLED_MIB * MIB / BLOCK) * BLOCK;
            assert!(client.read(at as u64, BLOCK) == content.block(at));
        }
        assert!(begun.elapsed() < KNOWN_WITHIN, "the disk that makes errors is not emptied");
    }
}

/// Writes rows that were never written.
fn write_new(world: &World, content: &mut Content, first_mib: usize) {
    let mut client = client(world, "m");
    (first_mib..first_mib + 12).for_each(|at| content.write(&mut client, at * MIB, MIB, 3));
    client.flush();
}

/// The incident: of a hundred reads of a disk one fails, for weeks, until a second disk dies and what only the first has is lost.
/// Expected: within minutes the disk is named, and emptied by itself while clients go on; it stays in the pool, nothing new is laid
/// there, and any other disk can be lost then; what was counted is known to the daemon behind a kill.
#[test]
fn incident_12_dying_disk_with_errors() {
    let Some((mut world, faults, mut content)) = stage() else { return };
    faults.disk(1).fail_reads(1);
    assert!(used(&dying(&world)) > 0);
    let path = faults.paths()[1].clone();
    live_until(&world, &mut content, &format!("{path} had "));
    read_until_empty(&world, &content);
    idle(&world);
    let of_it = |job: &Value| job["kind"] == "empty" && job["subject"] == path.as_str();
    let job = jobs(&world).into_iter().find(of_it).expect("a job has emptied it");
    assert_eq!(job["state"], "done", "{job}");
    let disk = dying(&world);
    let errors = disk["read_errors"].as_u64().unwrap();
    assert!(disk["state"] == "present" && errors >= 10, "{disk}");
    let advice = todo(&world);
    assert!(
        advice.contains("dolmen disk replace tank 1 NEW") && advice.contains("holds nothing"),
        "{advice}"
    );
    assert!(reads_of(&world, &faults, &content) == 0, "reads ask a disk that makes errors");
    write_new(&world, &mut content, FILLED_MIB);
    assert_eq!(used(&dying(&world)), 0, "new rows are laid on a disk that makes errors");

    // What it counted in the last two seconds a daemon forgets that is killed.
    pause(Duration::from_secs(3));
    world.kill();
    world.start();
    let disk = dying(&world);
    assert!(disk["read_errors"].as_u64().unwrap() >= errors, "what was counted is forgotten: {disk}");
    assert!(health(&world).1.contains(&format!("{path} had ")), "the next daemon does not name it");
    write_new(&world, &mut content, FILLED_MIB + 12);
    assert_eq!(used(&dying(&world)), 0, "the next daemon lays new rows there");
    expect_sound(&world);
    world.post("/v1/pools/tank/disks/2/offline", &json!({}));
    content.expect(&world, "with another disk lost");
    world.post("/v1/pools/tank/disks/2/online", &json!({}));
    idle(&world);
    world.kill();
}

/// The incident: a disk takes fifty times as long as the others, and with it everything that is stored, until somebody measures
/// each of them. Expected: within minutes it is named, with the command that takes it out; reads ask others, and new rows are laid
/// elsewhere; the daemon behind a kill knows it.
#[test]
fn incident_12_dying_disk_that_is_slow() {
    let Some((mut world, faults, mut content)) = stage() else { return };
    (0..4).for_each(|disk| faults.disk(disk).wait(USUAL));
    faults.disk(1).wait(SLOW);
    let path = faults.paths()[1].clone();
    live_until(&world, &mut content, &format!("{path} is "));
    let advice = todo(&world);
    assert!(advice.contains("dolmen pool remove tank 1"), "{advice}");
    let asked = reads_of(&world, &faults, &content);
    assert!(asked <= LOOKED_AT / 20, "{asked} of {LOOKED_AT} reads ask the slow disk");
    let before = used(&dying(&world));
    write_new(&world, &mut content, FILLED_MIB);
    assert_eq!(used(&dying(&world)), before, "new rows are laid on the slow disk");

    world.kill();
    world.start();
    let disk = dying(&world);
    assert!(
        disk["times_slower"].as_u64().is_some_and(|times| times >= 8),
        "the next daemon knows nothing: {disk}"
    );
    write_new(&world, &mut content, FILLED_MIB + 12);
    assert_eq!(used(&dying(&world)), before, "the next daemon lays new rows there");
    (0..4).for_each(|disk| faults.disk(disk).wait(Duration::ZERO));
    content.expect(&world, "at the end");
    expect_sound(&world);
    world.kill();
}
