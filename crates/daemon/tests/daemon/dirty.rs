//! Write caches that hold what is not in place yet, and the disks of log and cache that go with it.

use std::fs;
use std::path::PathBuf;

use serde_json::{Value, json};

use crate::client::{Nbd, World, eventually, pattern};
use crate::jobs::idle;

const BLOCK: usize = 4096;
/// All of the space.
const SIZE: usize = 16 << 20;
/// Between the beginnings of two writes over what is there: less than a stripe is written each time, so that it is cached.
const APART: usize = 64 << 10;
const SCRUB: &str = "/v1/pools/tank/scrub";

/// A space of one parity on four disks, and what it holds.
struct Dirty {
    world: World,
    content: Vec<u8>,
    round: u8,
}

impl Dirty {
    /// The space is full, in place, and a flush has covered that.
    fn new() -> Self {
        let world = World::new(4);
        let disks = ["d0", "d1", "d2", "d3"].map(|name| world.disk(name));
        world.post("/v1/pools", &json!({"name": "tank", "disks": disks}));
        let space = json!({"name": "p", "size_bytes": SIZE, "resiliency": "parity", "row_bytes": 1 << 20});
        world.post("/v1/pools/tank/spaces", &space);
        world.post("/v1/pools/tank/spaces/p/serve", &json!({}));
        let content = pattern(1, SIZE);
        let new = Self { world, content, round: 1 };
        let mut client = new.client();
        for (nth, piece) in new.content.chunks(1 << 20).enumerate() {
            client.write((nth << 20) as u64, piece);
        }
        client.flush();
        let all = disks_of(&new.world);
        assert!(all.iter().all(|disk| disk["is_voter"] == true), "each disk carries the log: {all:?}");
        new
    }

    fn client(&self) -> Nbd {
        Nbd::connect(&self.world.folder.path().join("run/nbd.sock"), "tank/p")
    }

    /// Writes over parts of stripes all over the space, of which a flush covers the first half, and kills the daemon before it
    /// has put in place what it acknowledged.
    fn write_and_kill(&mut self) {
        self.round += 1;
        let mut client = self.client();
        for (nth, at) in (0..SIZE).step_by(APART).enumerate() {
            let length = (1 + nth % 3) * BLOCK;
            let new = pattern(self.round.wrapping_mul(17), length);
            client.write(at as u64, &new);
            self.content[at..at + length].copy_from_slice(&new);
            if at == SIZE / 2 {
                client.flush();
            }
        }
        let waiting = cache_of(&self.world)["waiting_bytes"].as_u64().unwrap();
        assert!(waiting >= 1 << 20, "{waiting} bytes are not in place yet");
        self.world.kill();
    }

    fn away(&self, name: &str) -> PathBuf {
        self.world.folder.path().join(name)
    }

    fn take(&self, names: &[&str]) {
        names.iter().for_each(|name| fs::rename(self.world.disk(name), self.away(name)).unwrap());
    }

    fn release(&self, names: &[&str]) {
        names.iter().for_each(|name| fs::rename(self.away(name), self.world.disk(name)).unwrap());
    }

    /// The numbers of the blocks that cannot be read; whatever can is what was acknowledged last.
    fn unreadable(&self) -> Vec<usize> {
        let mut client = self.client();
        let mut refused = Vec::new();
        for (block, expected) in self.content.chunks(BLOCK).enumerate() {
            match client.try_read((block * BLOCK) as u64, BLOCK) {
                Ok(found) => assert!(found == expected, "block {block} is not what was acknowledged"),
                Err(_) => refused.push(block),
            }
        }
        refused
    }
}

fn disks_of(world: &World) -> Vec<Value> {
    world.get("/v1/pools/tank/disks")["disks"].as_array().unwrap().clone()
}

fn cache_of(world: &World) -> Value {
    world.get("/v1/pools/tank")["pool"]["write_caches"][0].clone()
}

/// Health and why.
fn health(world: &World) -> (String, String) {
    let status = world.get("/v1/status");
    (status["health"].as_str().unwrap().to_owned(), status["why"].to_string())
}

#[test]
fn any_disk_of_log_and_cache_may_die_with_what_is_not_in_place_yet() {
    // Scenario: the daemon is killed with lines in the write cache, half of them unflushed, and one disk, each in its turn, is gone
    // when the next one starts. Expected: every byte that was acknowledged, and no more than a warning.
    let mut dirty = Dirty::new();
    for gone in ["d0", "d1", "d2", "d3"] {
        dirty.write_and_kill();
        dirty.take(&[gone]);
        dirty.world.start();
        assert_eq!(dirty.unreadable(), [0; 0], "without {gone}");
        let (health_now, why) = health(&dirty.world);
        assert!(
            health_now == "warning" && why.contains("space tank/p is degraded: it survives the loss of 0"),
            "{why}"
        );
        dirty.world.kill();
        dirty.release(&[gone]);
        dirty.world.start();
        eventually("all disks have all of it", || {
            idle(&dirty.world);
            (health(&dirty.world).0 == "healthy").then_some(())
        });
        assert_eq!(dirty.unreadable(), [0; 0], "with {gone} again");
    }
}

#[test]
fn of_too_many_disks_that_die_what_is_out_of_reach_is_named_and_nothing_wrong_is_read() {
    // Scenario: two disks of four are gone, of a space that survives one, with lines in its write cache. Expected: the status names the
    // space, and so does a scrub; every block is what was acknowledged last, or cannot be read; and when the disks are back, all of
    // it is there.
    let mut dirty = Dirty::new();
    for gone in [["d0", "d1"], ["d1", "d3"]] {
        dirty.write_and_kill();
        dirty.take(&gone);
        dirty.world.start();
        let refused = dirty.unreadable();
        assert!(!refused.is_empty(), "two of four columns are gone");
        let (health_now, why) = health(&dirty.world);
        let names = "parts of space tank/p may be out of reach: 2 disks are absent, it survives 1";
        assert!(health_now == "unhealthy" && why.contains(names), "{health_now} {why}");
        dirty.world.post(SCRUB, &json!({}));
        let scrub = dirty.world.last_job();
        assert!(
            scrub["state"] == "failed" && scrub["result"].to_string().contains(" of space p, in "),
            "{scrub}"
        );
        dirty.world.kill();
        dirty.release(&gone);
        dirty.world.start();
        eventually("all disks have all of it", || {
            idle(&dirty.world);
            (health(&dirty.world).0 == "healthy").then_some(())
        });
        assert_eq!(dirty.unreadable(), [0; 0], "with all disks again");
    }
}

#[test]
fn of_too_many_disks_that_are_lost_for_good_what_they_alone_had_is_named_until_it_is_deleted() {
    // Scenario: two disks of four are gone, with lines in the write cache, and others take their places. Expected: both replacements
    // name the space as what waits for the old disks, over the next daemon too, and every block is what was acknowledged last, or
    // cannot be read; when the space is deleted, they end by themselves, and the pool is healthy without the old disks.
    let mut dirty = Dirty::new();
    dirty.write_and_kill();
    dirty.take(&["d1", "d2"]);
    dirty.world.start();
    for (slot, name) in [(1, "n1"), (2, "n2")] {
        let new = dirty.world.make_disk(name, 256 << 20);
        dirty.world.post(&format!("/v1/pools/tank/disks/{slot}/replace"), &json!({"with": new}));
    }
    for is_next in [false, true] {
        if is_next {
            dirty.world.kill();
            dirty.world.start();
        }
        eventually("both replacements have all but what is gone", || {
            let (health_now, why) = health(&dirty.world);
            let waiting = why.matches("which has all but the parts of tank/p").count();
            (health_now == "unhealthy" && waiting == 2).then_some(())
        });
        assert!(!dirty.unreadable().is_empty(), "two of four columns are gone");
    }
    dirty.world.post("/v1/pools/tank/spaces/p/unserve", &json!({}));
    dirty.world.post("/v1/pools/tank/spaces/p/delete", &json!({"purge": true, "destroy": "tank/p"}));
    eventually("the old disks are left behind", || {
        let disks = disks_of(&dirty.world);
        let is_here = |disk: &Value| disk["state"] == "present";
        (disks.len() == 4 && disks.iter().all(is_here)).then_some(())
    });
    eventually("all is well", || (health(&dirty.world).0 == "healthy").then_some(()));
}

#[test]
fn too_few_or_too_small_disks_for_log_and_cache_are_refused_before_anything_is_made() {
    // Scenario: a disk that is too small to carry anything, and spaces with a write cache on fewer disks than that has copies, or on
    // disks that have no room for it. Expected: each is refused, in words that say what is lacking, and nothing is there.
    let world = World::new(3);
    let [d0, d1, d2] = ["d0", "d1", "d2"].map(|name| world.disk(name));
    let tiny = world.make_disk("tiny", 48 << 20);
    for dry_run in [true, false] {
        let request = json!({"name": "tank", "disks": [&d0, &tiny], "dry_run": dry_run});
        let error = world.refused("/v1/pools", &request);
        let text = error.to_string();
        assert!(
            error["code"] == "unfit_device" && text.contains(&tiny) && text.contains("64 MiB"),
            "{error}"
        );
    }
    assert_eq!(world.get("/v1/pools")["pools"], json!([]));
    world.post("/v1/pools", &json!({"name": "tank", "disks": [d0, d1]}));
    let free = || world.get("/v1/pools/tank/df")["free_bytes"].clone();
    let before = free();
    let refused = |space: &Value, words: &[&str]| {
        for dry_run in [true, false] {
            let mut request = space.clone();
            request["dry_run"] = json!(dry_run);
            let error = world.refused("/v1/pools/tank/spaces", &request);
            let text = error.to_string();
            assert!(words.iter().all(|word| text.contains(word)), "{words:?}: {error}");
        }
        assert_eq!(world.get("/v1/pools/tank/spaces")["spaces"], json!([]));
        assert_eq!(world.get("/v1/pools/tank")["pool"]["write_caches"], json!([]));
        assert_eq!(free(), before);
    };
    let space =
        |resiliency: &str, size: u64| json!({"name": "s", "size_bytes": size, "resiliency": resiliency});
    // Two disks: one parity needs three.
    refused(&space("parity", 16 << 20), &["parity needs at least 3 disks", "the pool has 2"]);
    let mut dual = space("parity", 16 << 20);
    dual["parity"] = json!(2);
    world.post("/v1/pools/tank/disks", &json!({"disks": [d2]}));
    idle(&world);
    let before = free();
    let error = world.refused("/v1/pools/tank/spaces", &dual);
    assert!(error.to_string().contains("needs at least 4 disks"), "{error}");
    assert_eq!(free(), before);
    // The largest fixed mirror that there is room for has none for a write cache beside it.
    let mut fixed = space("mirror", 0);
    fixed["provisioning"] = json!("fixed");
    fixed["row_bytes"] = json!(1 << 20);
    let ask = |fixed: &Value, integrity: &str, dry_run: bool| {
        let mut request = fixed.clone();
        (request["integrity"], request["dry_run"]) = (json!(integrity), json!(dry_run));
        world.try_ask("POST", "/v1/pools/tank/spaces", request.to_string().as_bytes()).unwrap()
    };
    let half = (before.as_u64().unwrap() / 2) >> 20;
    let fits = (half / 2..=half).rev().find(|mib| {
        fixed["size_bytes"] = json!(mib << 20);
        ask(&fixed, "relaxed", true).0 == 200
    });
    assert!(fits.is_some(), "{before} bytes are free");
    for dry_run in [true, false] {
        let (status, answer) = ask(&fixed, "strict", dry_run);
        let error = &answer["error"];
        assert!(status >= 400 && error["code"] == "bad_size", "{answer}");
        let message = error["message"].as_str().unwrap();
        assert!(message.contains("it is fixed, so all of it has to fit pool tank"), "{answer}");
        let (_, most) = error["hint"].as_str().unwrap().split_once("--size ").unwrap();
        let most: u64 = most.split_once('M').unwrap().0.parse().unwrap();
        for (mib, status) in [(most, 200), (most + 1, 400)] {
            fixed["size_bytes"] = json!(mib << 20);
            assert_eq!(ask(&fixed, "strict", true).0.min(400), status, "{mib} MiB: {answer}");
        }
    }
    assert_eq!(world.get("/v1/pools/tank/spaces")["spaces"], json!([]));
    assert_eq!(free(), before);
}
