//! What most of these tests ask a daemon, and what they write.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::client::{Nbd, World, eventually, pattern};

pub(crate) const BLOCK: usize = 4096;
pub(crate) const MIB: usize = 1 << 20;
/// Polls, a twentieth of a second apart each, in which a job has to come to its end.
const ENDS_MAX: u32 = 12;

/// A pool `tank` of these disks.
pub(crate) fn make_pool(world: &World, disks: &[String]) {
    world.post("/v1/pools", &json!({"name": "tank", "disks": disks}));
}

/// A space of the tank with rows of 1 MiB, served.
pub(crate) fn make_space(world: &World, name: &str, mib: usize, mut spec: Value) {
    spec["name"] = json!(name);
    spec["size_bytes"] = json!(mib * MIB);
    spec["row_bytes"] = json!(MIB);
    world.post("/v1/pools/tank/spaces", &spec);
    world.post(&format!("/v1/pools/tank/spaces/{name}/serve"), &json!({}));
}

pub(crate) fn mirror() -> Value {
    json!({"resiliency": "mirror"})
}

pub(crate) fn parity() -> Value {
    json!({"resiliency": "parity"})
}

pub(crate) fn client(world: &World, name: &str) -> Nbd {
    Nbd::connect(&world.folder.path().join("run/nbd.sock"), &format!("tank/{name}"))
}

/// Blocks of a space as they were acknowledged last, of which each says where it is and in which round it was written.
pub(crate) struct Content {
    name: String,
    bytes: Vec<u8>,
    /// Where the last of what was written ends; a little behind it is read as well.
    end: usize,
}

impl Content {
    pub(crate) fn new(name: &str, mib: usize) -> Self {
        Self { name: name.to_owned(), bytes: vec![0; mib * MIB], end: 0 }
    }

    /// Writes a stretch of whole blocks, and keeps what it holds; the error that it met.
    pub(crate) fn try_write(&mut self, client: &mut Nbd, at: usize, length: usize, round: u8) -> u32 {
        let new = blocks(at, length, round);
        let error = client.try_write(at as u64, &new);
        if error == 0 {
            self.bytes[at..at + length].copy_from_slice(&new);
            self.end = self.end.max(at + length);
        }
        error
    }

    pub(crate) fn write(&mut self, client: &mut Nbd, at: usize, length: usize, round: u8) {
        let error = self.try_write(client, at, length, round);
        assert_eq!(error, 0, "writing {length} bytes of {} at {at}", self.name);
    }

    /// Writes all of the space up to there, and flushes it.
    pub(crate) fn fill(&mut self, world: &World, mib: usize, round: u8) {
        let mut client = client(world, &self.name);
        (0..mib).for_each(|at| self.write(&mut client, at * MIB, MIB, round));
        client.flush();
    }

    pub(crate) fn trim(&mut self, client: &mut Nbd, at: usize, length: usize) {
        let error = client.try_trim(at as u64, length);
        assert_eq!(error, 0, "a discard of {length} bytes of {} was refused", self.name);
        self.bytes[at..at + length].fill(0);
    }

    pub(crate) fn block(&self, at: usize) -> &[u8] {
        &self.bytes[at..at + BLOCK]
    }

    /// Counts as what was acknowledged: what was written by other means, or was found behind the end of the power.
    pub(crate) fn accept(&mut self, at: usize, found: &[u8]) {
        self.bytes[at..at + found.len()].copy_from_slice(found);
    }

    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Everything reads as it was acknowledged.
    pub(crate) fn expect(&self, world: &World, when: &str) {
        let bad = self.unreadable(world, when);
        assert!(bad.is_empty(), "{when}: blocks {bad:?} of {} cannot be read", self.name);
    }

    /// The numbers of blocks that cannot be read; all others have to be what was acknowledged.
    pub(crate) fn unreadable(&self, world: &World, when: &str) -> Vec<usize> {
        let mut client = client(world, &self.name);
        let mut bad = Vec::new();
        for (nth, expected) in self.bytes.chunks(MIB).enumerate().take(self.end.div_ceil(MIB) + 4) {
            match client.try_read((nth * MIB) as u64, expected.len()) {
                Ok(found) => self.compare(nth * MIB, &found, expected, when),
                Err(_) => bad.extend(self.unreadable_of(&mut client, nth * MIB, expected, when)),
            }
        }
        bad
    }

    fn unreadable_of(&self, client: &mut Nbd, at: usize, expected: &[u8], when: &str) -> Vec<usize> {
        let mut bad = Vec::new();
        for (nth, expected) in expected.chunks(BLOCK).enumerate() {
            let at = at + nth * BLOCK;
            match client.try_read(at as u64, BLOCK) {
                Ok(found) => self.compare(at, &found, expected, when),
                Err(_) => bad.push(at / BLOCK),
            }
        }
        bad
    }

    fn compare(&self, at: usize, found: &[u8], expected: &[u8], when: &str) {
        if found == expected {
            return;
        }
        let differs = found.chunks(BLOCK).zip(expected.chunks(BLOCK)).position(|(one, other)| one != other);
        let block = at / BLOCK + differs.unwrap_or_default();
        panic!("{when}: block {block} of {} is not what was acknowledged", self.name);
    }
}

/// Whole blocks, each of which says where it is and in which round it was written.
pub(crate) fn blocks(at: usize, length: usize, round: u8) -> Vec<u8> {
    let mut new = pattern(round.wrapping_mul(37).wrapping_add(1), BLOCK).repeat(length / BLOCK);
    for (nth, block) in new.chunks_mut(BLOCK).enumerate() {
        block[..8].copy_from_slice(&((at + nth * BLOCK) as u64).to_le_bytes());
        block[8] = round;
    }
    new
}

pub(crate) fn disks(world: &World) -> Vec<Value> {
    world.get("/v1/pools/tank/disks")["disks"].as_array().unwrap().clone()
}

/// The number of the place that a disk has in the pool.
pub(crate) fn slot_of(world: &World, path: &str) -> Value {
    disks(world).into_iter().find(|disk| disk["path"] == path).unwrap()["slot"].clone()
}

pub(crate) fn df(world: &World, what: &str) -> u64 {
    world.get("/v1/pools/tank/df")[what].as_u64().unwrap()
}

/// Health and why.
pub(crate) fn health(world: &World) -> (String, String) {
    let status = world.get("/v1/status");
    (status["health"].as_str().unwrap().to_owned(), status["why"].to_string())
}

/// How often what a safeguard prevents is tried: as often as usual, where `DOLMEN_INCIDENT_ATTEMPTS` does not say how often.
pub(crate) fn attempts(usual: u8) -> u8 {
    std::env::var("DOLMEN_INCIDENT_ATTEMPTS").map_or(usual, |attempts| attempts.parse().unwrap())
}

pub(crate) fn jobs(world: &World) -> Vec<Value> {
    world.get("/v1/jobs")["jobs"].as_array().unwrap().clone()
}

pub(crate) fn job(world: &World, id: &Value) -> Value {
    world.get(&format!("/v1/jobs/{id}"))["job"].clone()
}

fn is_at_it(job: &Value) -> bool {
    job["state"] == "running" || job["state"] == "waiting"
}

/// How a job ended.
pub(crate) fn ended(world: &World, id: &Value) -> Value {
    patiently("a job ends", || Some(job(world, id)).filter(|job| !is_at_it(job)))
}

/// Waits until no job runs or waits for the slot.
pub(crate) fn idle(world: &World) {
    patiently("jobs end", || (!jobs(world).iter().any(is_at_it)).then_some(()));
}

/// As [`eventually`], for what may take minutes where much else is built or tested beside it.
pub(crate) fn patiently<T>(what: &str, mut ready: impl FnMut() -> Option<T>) -> T {
    for _ in 1..ENDS_MAX {
        let mut polls = 0;
        let found = eventually(what, || {
            polls += 1;
            let found = ready();
            (found.is_some() || polls > 200).then_some(found)
        });
        if let Some(found) = found {
            return found;
        }
    }
    eventually(what, ready)
}

/// Reads all of the pool, and says what came of it.
pub(crate) fn scrub(world: &World) -> Value {
    let id = world.post("/v1/pools/tank/scrub", &json!({}))["job"]["id"].clone();
    ended(world, &id)
}

pub(crate) fn expect_sound(world: &World) {
    let job = scrub(world);
    assert!(job["state"] == "done" && job["result"].as_str().unwrap().ends_with("all sound"), "{job}");
}

/// Ends the daemon in good order and starts another one.
pub(crate) fn restart(world: &mut World) {
    world.post("/v1/shutdown", &json!({}));
    assert!(world.ended().success());
    world.start();
}

/// Where an image has a block of this content.
pub(crate) fn find_block(image: &Path, block: &[u8]) -> Option<u64> {
    let image = fs::read(image).unwrap();
    image.chunks(BLOCK).position(|other| other == block).map(|nth| (nth * BLOCK) as u64)
}
