//! Disks that are the wrong ones, missing, late, or gone for good.

use std::fs;

use serde_json::{Value, json};

use crate::bench::{
    Content, MIB, attempts, client, df, disks, expect_sound, health, idle, job, jobs, make_pool, make_space,
    mirror, parity, patiently, restart, slot_of,
};
use crate::client::{World, eventually};

const DISKS: &str = "/v1/pools/tank/disks";

fn todo(world: &World) -> String {
    world.get("/v1/status")["todo"].to_string()
}

fn take_away(world: &World, name: &str) {
    fs::rename(world.disk(name), world.folder.path().join(name)).unwrap();
}

fn bring_back(world: &World, name: &str) {
    fs::rename(world.folder.path().join(name), world.disk(name)).unwrap();
}

/// No row has less than its redundancy.
fn expect_redundancy(world: &World, when: &str) {
    let (health, why) = health(world);
    assert!(!why.contains("not on all"), "{when} there is less redundancy: {health} {why}");
}

/// What is written beside what is there while the wrong disk is used.
const NEW_MIB: usize = 32;

/// Adds a disk to a pool, writes meanwhile, and removes it.
fn add_and_remove(world: &World, wrong: &str, content: &mut Content, filled: usize) {
    world.post(DISKS, &json!({"disks": [wrong]}));
    // What is written meanwhile: over what is there, and beside it.
    for round in 2..6 {
        let mut client = client(world, "p");
        for nth in 0..8 {
            let at = usize::from(round - 2) * 8 + nth;
            content.write(&mut client, (nth * 7 + usize::from(round)) % filled * MIB, 64 << 10, round);
            content.write(&mut client, (filled + at) * MIB, MIB, round);
        }
        client.flush();
        expect_redundancy(world, "while it is used");
    }
    idle(world);
    let remove = format!("{DISKS}/{}/remove", slot_of(world, wrong));
    let (status, answer) = world.try_ask("POST", &remove, b"{}").unwrap();
    println!("asked to remove it: {status} {answer}");
    assert_eq!(status, 200, "{answer}");
    let id = answer["job"]["id"].clone();
    let mut looks = 0;
    let done = patiently("the disk leaves", || {
        for _ in 0..8 {
            expect_redundancy(world, "while it leaves");
            looks += 1;
        }
        let job = world.get(&format!("/v1/jobs/{id}"))["job"].clone();
        (job["state"] != "running" && job["state"] != "waiting").then_some(job)
    });
    println!("{looks} looks while it left");
    assert_eq!(done["state"], "done", "{done}");
    idle(world);
    assert_eq!(disks(world).len(), 4);
}

/// The incident: a disk of 8 GB is added to a pool of large ones by mistake, the pool is written to for an hour, and the disk is to
/// go again. Here it has 96 MiB beside four of 256, with parity and 60 percent full. Expected: the disk goes, if it must be by what
/// the refusal says; no row had less redundancy at any look meanwhile; room and content are what they were.
#[test]
fn incident_03_wrong_disk() {
    let mut world = World::new(4);
    make_pool(&world, &["d0", "d1", "d2", "d3"].map(|name| world.disk(name)));
    make_space(&world, "p", 1024, parity());
    let mut content = Content::new("p", 1024);
    let room = df(&world, "free_bytes");
    let mut filled = 0;
    while df(&world, "free_bytes") > room / 10 * 4 {
        let mut client = client(&world, "p");
        (filled..filled + 8).for_each(|at| content.write(&mut client, at * MIB, MIB, 1));
        client.flush();
        filled += 8;
    }
    let wrong = world.make_disk("wrong", 96 << 20);
    for _ in 0..attempts(1) {
        add_and_remove(&world, &wrong, &mut content, filled);
        content.expect(&world, "behind the removal");
        expect_sound(&world);
    }
    filled += NEW_MIB;
    restart(&mut world);
    world.kill();
    take_away(&world, "d1");
    world.start();
    content.expect(&world, "without one of the old disks");
    world.kill();
    bring_back(&world, "d1");
    world.start();
    let mut client = client(&world, "p");
    (0..filled).for_each(|at| content.trim(&mut client, at * MIB, MIB));
    client.flush();
    idle(&world);
    assert_eq!(df(&world, "free_bytes"), room, "there is less room than before the disk was added");
}

/// The incident: a server is started with a disk missing, and what should run does not, or runs without a report. Expected: the
/// pool is open and its spaces are served by the next daemon alone, and can be read and written; the status warns, names the disk
/// and says what to do, although no event has told of it to this daemon; and so does that behind it.
#[test]
fn incident_04_missing_disk_at_boot() {
    let mut world = World::new(4);
    make_pool(&world, &["d0", "d1", "d2", "d3"].map(|name| world.disk(name)));
    make_space(&world, "m", 16, mirror());
    make_space(&world, "p", 16, parity());
    let (mut m, mut p) = (Content::new("m", 16), Content::new("p", 16));
    m.fill(&world, 12, 1);
    p.fill(&world, 12, 1);
    world.post("/v1/shutdown", &json!({}));
    assert!(world.ended().success());
    take_away(&world, "d2");
    for boot in 0..3u8 {
        world.start();
        let pool = world.get("/v1/pools")["pools"][0].clone();
        assert_eq!(pool["state"], "writable", "it is not up by itself: {pool}");
        m.expect(&world, "with a disk missing");
        p.expect(&world, "with a disk missing");
        let mut clients = [client(&world, "m"), client(&world, "p")];
        m.write(&mut clients[0], 3 * MIB, MIB, 2 + boot);
        p.write(&mut clients[1], (12 + usize::from(boot)) * MIB, MIB, 2 + boot);
        clients.iter_mut().for_each(|client| client.flush());
        drop(clients);
        let (health, why) = health(&world);
        let is_reported =
            health == "warning" && why.contains(&format!("{} of pool tank is absent", world.disk("d2")));
        assert!(is_reported, "nobody is told of the disk that is missing: {health} {why}");
        assert!(todo(&world).contains("disk online tank 2"), "{}", todo(&world));
        world.post("/v1/shutdown", &json!({}));
        assert!(world.ended().success());
    }
    bring_back(&world, "d2");
    world.start();
    idle(&world);
    assert_eq!(health(&world).0, "healthy");
    world.kill();
    take_away(&world, "d0");
    world.start();
    m.expect(&world, "with another disk missing");
    p.expect(&world, "with another disk missing");
}

/// Whether a daemon lets anybody write to the mirror; it is asked for the pool first.
fn takes_writes(world: &World, disk: &str) -> bool {
    let import = json!({"paths": [world.disk(disk)]}).to_string();
    let _ = world.try_ask("POST", "/v1/pools/import", import.as_bytes());
    let _ = world.try_ask("POST", "/v1/pools/tank/spaces/m/serve", b"{}");
    let pools = world.get("/v1/pools")["pools"].clone();
    let exports = world.get("/v1/exports")["exports"].clone();
    let is_served = exports.as_array().unwrap().iter().any(|one| one["is_read_only"] == false);
    pools[0]["state"] == "writable" || is_served
}

/// The incident: a mirror is started with its one disk, then with its other one, then with both. Expected: the half that was
/// started second takes no write, neither here nor on another server that nobody has confirmed anything to; with both disks, what
/// the first half acknowledged is there, and the second one has it too.
#[test]
fn incident_05_stale_half() {
    let mut world = World::new(2);
    make_pool(&world, &["d0", "d1"].map(|name| world.disk(name)));
    make_space(&world, "m", 16, mirror());
    let mut content = Content::new("m", 16);
    content.fill(&world, 12, 1);
    world.kill();
    take_away(&world, "d1");
    world.start();
    let mut alone = client(&world, "m");
    content.write(&mut alone, 2 * MIB, 4 * MIB, 2);
    alone.flush();
    drop(alone);
    world.kill();
    take_away(&world, "d0");
    bring_back(&world, "d1");
    world.start();
    assert!(!takes_writes(&world, "d1"), "the stale half takes writes");
    world.kill();
    let other = World::new(0);
    fs::rename(world.disk("d1"), other.disk("d1")).unwrap();
    assert!(!takes_writes(&other, "d1"), "a half takes writes on another server");
    let mut other = other;
    other.kill();
    fs::rename(other.disk("d1"), world.disk("d1")).unwrap();
    bring_back(&world, "d0");
    world.start();
    content.expect(&world, "with both halves");
    idle(&world);
    assert_eq!(health(&world).0, "healthy");
    world.kill();
    take_away(&world, "d0");
    world.start();
    content.expect(&world, "with the half that was stale");
}

/// Bytes that this daemon has written to each disk.
fn written(world: &World) -> Vec<u64> {
    let figures = world.get("/v1/figures");
    let bytes = |disk: &Value| disk["load"]["writes"]["bytes"].as_u64().unwrap();
    figures["disks"].as_array().unwrap().iter().map(bytes).collect()
}

/// The incident: a disk is away for ten minutes, and everything is copied. Here a mirror has 192 MiB, of which 12 are written while
/// a disk is away. Expected: behind its return it is written at most twice what was changed, and has all of it.
#[test]
fn incident_06_short_absence() {
    let mut world = World::new(3);
    make_pool(&world, &["d0", "d1", "d2"].map(|name| world.disk(name)));
    make_space(&world, "m", 192, mirror());
    let mut content = Content::new("m", 192);
    content.fill(&world, 192, 1);
    world.post(&format!("{DISKS}/1/offline"), &json!({}));
    let changed = 12 * MIB;
    let mut client = client(&world, "m");
    for nth in 0..changed / (128 << 10) {
        content.write(&mut client, nth * 2 * MIB % (192 * MIB) + nth / 96 * (256 << 10), 128 << 10, 2);
    }
    client.flush();
    drop(client);
    let before = written(&world);
    world.post(&format!("{DISKS}/1/online"), &json!({}));
    idle(&world);
    // A disk that is opened again is counted from nothing.
    let since = |after: &u64, before: u64| after.checked_sub(before).unwrap_or(*after);
    let moved: u64 = written(&world).iter().zip(before).map(|(after, before)| since(after, before)).sum();
    println!("{moved} bytes were written behind the return of a disk that had missed {changed}");
    assert!(moved <= 2 * changed as u64, "{moved} bytes were moved for {changed} that were changed");
    assert_eq!(health(&world).0, "healthy");
    world.kill();
    take_away(&world, "d0");
    world.start();
    content.expect(&world, "with what the disk has that was away");
}

/// The incident: a disk that is being emptied is yanked for good, the server is started again, and the disk can neither be emptied
/// nor forgotten. Expected: the removal goes on under its number from what the other disks have, and ends; the disk is no member
/// any more, all is as redundant as it was, and nothing is lost.
#[test]
fn incident_11_unlisted_disk() {
    const TRIES_MAX: u32 = 8;
    let mut world = World::new(4);
    make_pool(&world, &["d0", "d1", "d2", "d3"].map(|name| world.disk(name)));
    make_space(&world, "m", 96, mirror());
    let mut content = Content::new("m", 96);
    content.fill(&world, 96, 1);
    let in_the_midst = (0..TRIES_MAX).find_map(|_| {
        let ghost = disks(&world).into_iter().find(|disk| disk["path"] == world.disk("d3").as_str())?;
        let begun = world.post(&format!("{DISKS}/{}/remove", ghost["slot"]), &json!({}));
        let id = begun["job"]["id"].clone();
        world.kill();
        let record = fs::read(world.folder.path().join("state/jobs.json")).unwrap();
        let record: Value = serde_json::from_slice(&record).unwrap();
        let recorded = record["jobs"].as_array().unwrap().iter().find(|job| job["id"] == id).cloned();
        if recorded.is_some_and(|job| job["state"] == "waiting") {
            return Some(id);
        }
        // It was too fast: the disk has left, and is added again.
        world.start();
        idle(&world);
        let path = world.disk("d3");
        world.post(DISKS, &json!({"disks": [path], "destroy": [path]}));
        idle(&world);
        None
    });
    let id = in_the_midst.expect("each removal ended before the daemon was killed");
    fs::remove_file(world.disk("d3")).unwrap();
    world.start();
    eventually("the removal ends", || (job(&world, &id)["state"] == "done").then_some(()));
    idle(&world);
    let left = disks(&world);
    assert!(left.len() == 3 && left.iter().all(|disk| disk["state"] == "present"), "{left:?}");
    assert_eq!(health(&world), ("healthy".to_owned(), "[]".to_owned()));
    assert!(jobs(&world).iter().all(|job| job["state"] != "waiting"));
    content.expect(&world, "behind the removal");
    expect_sound(&world);
    world.kill();
    take_away(&world, "d0");
    world.start();
    content.expect(&world, "without one disk more");
}
