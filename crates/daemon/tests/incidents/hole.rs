//! Stripes that are half written, and damage that is healed the wrong way.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

use serde_json::json;

use crate::bench::{
    BLOCK, Content, MIB, attempts, blocks, client, ended, expect_sound, find_block, health, idle, make_pool,
    make_space, patiently, scrub,
};
use crate::client::{Nbd, World};
use crate::power::{Machine, wait};

const MIB_SPACE: usize = 12;
/// Columns of data.
const COLUMNS: usize = 3;
const INTERLEAVE: usize = 64 << 10;
/// The smallest that the daemon makes.
const CACHE_MIB: usize = 5;
const NAMES: [&str; 4] = ["d0", "d1", "d2", "d3"];
/// What waits in the cache while lines are put in place all the time.
const BUSY_BYTES: u64 = 512 << 10;
/// What a client asks for, by the numbers of NBD.
const WRITE: u16 = 1;
const FLUSH: u16 = 3;
/// What is written only to have something else put in place begins here.
const AFTER: usize = 7 << 20;
/// Cuts in the midst of stripes, behind each of which another disk is lost.
const CUTS: u8 = 8;

fn bench() -> (Machine, Content) {
    let machine = Machine::new(NAMES.len());
    make_pool(&machine.world, &NAMES.map(|name| machine.disk(name)));
    make_space(
        &machine.world,
        "p",
        MIB_SPACE,
        json!({"resiliency": "parity", "columns": COLUMNS, "interleave_bytes": INTERLEAVE}),
    );
    let mut content = Content::new("p", MIB_SPACE);
    content.fill(&machine.world, MIB_SPACE, 1);
    // What is cached is put in place soon.
    let of_cache = |what: &str| format!("/v1/pools/tank/write_cache/{what}");
    let resize = machine.world.post(&of_cache("resize"), &json!({"size_bytes": CACHE_MIB * MIB}));
    ended(&machine.world, &resize["job"]["id"]);
    machine.world.post(&of_cache("drain"), &json!({"fill_percent": 5}));
    (machine, content)
}

/// Writes over parts of stripes behind a place until the write cache has put in place whatever was in it before.
fn push_out(world: &World, content: &mut Content, from: usize, round: u8) {
    let mut client = client(world, "p");
    let mut written = 0;
    while written < 2 * CACHE_MIB * MIB {
        for at in (from..content.len()).step_by(64 << 10) {
            content.write(&mut client, at, 2 * BLOCK, round);
            written += 2 * BLOCK;
        }
        client.flush();
    }
}

/// All disks have all of it.
fn whole_again(world: &World) {
    patiently("all disks have all of it", || {
        idle(world);
        (health(world).0 == "healthy").then_some(())
    });
}

/// A number that differs from call to call, and is the same in each run.
struct Drawn(u64);

impl Drawn {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % end
    }
}

/// What blocks may hold behind a cut of the power, beside what was acknowledged last: whatever they held, or were about to hold,
/// since the last flush.
type Doubt = BTreeMap<usize, Vec<Vec<u8>>>;

/// Writes blocks here and there, of which some are flushed, until the daemon is gone.
fn write_until_dead(content: &mut Content, client: &mut Nbd, drawn: &mut Drawn, round: u8) -> Doubt {
    let mut doubt = Doubt::new();
    for nth in 1u32.. {
        let length = (1 + drawn.below(2)) * BLOCK;
        let at = drawn.below((content.len() - length) / BLOCK) * BLOCK;
        let new = blocks(at, length, round.wrapping_add(u8::try_from(nth % 251).unwrap()));
        for (block, new) in (at..at + length).step_by(BLOCK).zip(new.chunks(BLOCK)) {
            let maybe = doubt.entry(block).or_default();
            maybe.extend([content.block(block).to_vec(), new.to_vec()]);
        }
        match client.asked(WRITE, at as u64, length, &new, &mut []) {
            Ok(error) => assert_eq!(error, 0, "a write of {length} bytes at {at}"),
            Err(_) => return doubt,
        }
        content.accept(at, &new);
        if nth % 96 == 0 {
            match client.asked(FLUSH, 0, 0, &[], &mut []) {
                Ok(error) => assert_eq!(error, 0, "a flush"),
                Err(_) => return doubt,
            }
            doubt.clear();
        }
    }
    doubt
}

/// Every block is what was acknowledged last, or what it was since the last flush; what it is counts from here on.
fn accept(world: &World, content: &mut Content, doubt: &Doubt, when: &str) {
    let mut client = client(world, "p");
    for (at, maybe) in doubt {
        let found = client.try_read(*at as u64, BLOCK);
        let found = found
            .unwrap_or_else(|error| panic!("{when}: block at {at} is neither old nor new: error {error}"));
        let is_one = found == content.block(*at) || maybe.contains(&found);
        assert!(is_one, "{when}: block at {at} is neither old nor new");
        content.accept(*at, &found);
    }
    content.expect(world, when);
}

/// Turns a bit of a block on a disk.
fn flip_a_bit(image: &Path, at: u64) {
    let disk = File::options().read(true).write(true).open(image).unwrap();
    let mut byte = [0];
    disk.read_exact_at(&mut byte, at + 99).unwrap();
    disk.write_all_at(&[byte[0] ^ 4], at + 99).unwrap();
    disk.sync_all().unwrap();
}

/// The disk that has a block of this content, and where.
fn whereabouts(machine: &Machine, block: &[u8]) -> Option<(&'static str, u64)> {
    NAMES.iter().find_map(|name| Some((*name, find_block(&machine.image(name), block)?)))
}

/// The incident, in its first half: power fails in the midst of stripes, and with it a disk dies. Each write and flush of such a
/// stripe is tried by the crash tests of crate `space` with lives of parity (`a_power_cut_that_takes_disks_along_loses_nothing_flushed`).
/// Expected: each block is what was written last, or what it was since the last flush, with each of the disks gone.
#[test]
fn incident_13_write_hole() {
    let (mut machine, mut content) = bench();
    let mut drawn = Drawn(13);
    for cut in 0..attempts(CUTS) {
        let gone = NAMES[usize::from(cut) % NAMES.len()];
        // Of what is on its way to its place, two of those that are left have written what they were given.
        let kept = [1, 2 + usize::from(cut) / NAMES.len() % 2]
            .map(|nth| NAMES[(usize::from(cut) + nth) % NAMES.len()]);
        let mut writer = client(&machine.world, "p");
        let doubt = std::thread::scope(|scope| {
            let writing =
                scope.spawn(|| write_until_dead(&mut content, &mut writer, &mut drawn, cut.wrapping_mul(40)));
            patiently("the cache has more than can be put in place at once", || {
                let caches = machine.world.get("/v1/pools/tank")["pool"]["write_caches"].clone();
                (caches[0]["waiting_bytes"].as_u64().unwrap() > BUSY_BYTES).then_some(())
            });
            wait(Duration::from_millis(20 * u64::from(cut % 5)));
            machine.cut_keeping(&kept);
            writing.join().unwrap()
        });
        machine.pull(gone);
        machine.boot();
        accept(&machine.world, &mut content, &doubt, &format!("a hole behind cut {cut}, without {gone}"));
        machine.cut();
        machine.put_back(gone);
        machine.boot();
        whole_again(&machine.world);
        content.expect(&machine.world, &format!("a hole behind cut {cut}, with {gone} again"));
    }
    expect_sound(&machine.world);
}

/// A line of blocks that parity is made of, by where they are in the space, and that parity.
fn line(content: &Content, row: usize) -> (Vec<usize>, Vec<u8>) {
    let line: Vec<usize> = (0..COLUMNS).map(|column| row * MIB + column * INTERLEAVE).collect();
    let mut sum = vec![0; BLOCK];
    for at in &line {
        sum.iter_mut().zip(content.block(*at)).for_each(|(sum, byte)| *sum ^= byte);
    }
    (line, sum)
}

/// The incident, in its second half: a bit turns in data or in parity, a neighbour is written over, and what is wrong becomes what
/// others are healed from. Expected: with a bit turned in a block beside the one that is written over, in that block itself, and in
/// their parity, all reads as it was acknowledged; a scrub mends that, and data and parity that nobody has written to since as well;
/// and then each of the disks may die.
#[test]
fn incident_13_healing_the_wrong_way() {
    let (mut machine, mut content) = bench();
    // Whatever is turned below lies in its place, and nowhere else.
    push_out(&machine.world, &mut content, AFTER, 9);
    for (row, is_written) in [(2, true), (3, true), (4, true), (5, false), (6, false)] {
        let (line, parity) = line(&content, row);
        let wrong = match row {
            2 | 5 => content.block(line[0]).to_vec(),
            3 => content.block(line[1]).to_vec(),
            _ => parity,
        };
        let (disk, at) = whereabouts(&machine, &wrong).expect("each block of a line is on some disk");
        flip_a_bit(&machine.image(disk), at);
        if is_written {
            let mut client = client(&machine.world, "p");
            content.write(&mut client, line[1], BLOCK, 20);
            client.flush();
        }
    }
    push_out(&machine.world, &mut content, AFTER, 10);
    content.expect(&machine.world, "with bits that have turned");
    let job = scrub(&machine.world);
    let result = job["result"].as_str().unwrap();
    assert!(job["state"] == "done" && result.ends_with("all sound now"), "{job}");
    expect_sound(&machine.world);
    machine.world.post("/v1/pools/tank/acknowledge", &json!({}));
    for gone in NAMES {
        machine.cut();
        machine.pull(gone);
        machine.boot();
        content.expect(&machine.world, &format!("bits have turned, and {gone} is dead"));
        machine.cut();
        machine.put_back(gone);
        machine.boot();
        whole_again(&machine.world);
    }
}
