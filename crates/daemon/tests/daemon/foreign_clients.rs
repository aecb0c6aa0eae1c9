//! Clients that never ask for block sizes, and send requests of any alignment and of up to 64 MiB.

use std::thread;

use serde_json::json;

use crate::client::{Nbd, World, pattern};

const MIB: u64 = 1 << 20;

/// Clients that write at once.
const CLIENTS: u64 = 6;
/// Bytes of the turn of one client; a prime, so that borders fall on every byte of a block.
const TURN: usize = 997;
/// Turns that all clients have together.
const TURNS: u64 = 600;
/// Bytes of the longest request.
const LONGEST: usize = 64 << 20;

/// The first byte of a turn.
fn start_of(turn: u64) -> u64 {
    1 + turn * TURN as u64
}

/// What a turn writes.
fn fill_of(turn: u64) -> u8 {
    u8::try_from(turn % 251 + 1).unwrap()
}

fn serve(world: &World, name: &str, space: &serde_json::Value) {
    world.post("/v1/pools/tank/spaces", space);
    world.post(&format!("/v1/pools/tank/spaces/{name}/serve"), &json!({}));
}

fn connect(world: &World, name: &str) -> Nbd {
    Nbd::connect(&world.folder.path().join("run/nbd.sock"), &format!("tank/{name}"))
}

/// Scenario: spaces that are made without a sector and with each. Expected: 512 bytes, for the disks are files, and what was
/// asked for.
#[test]
fn a_space_has_sectors_of_512_bytes_unless_others_are_asked_for() {
    let world = World::new(2);
    world.post("/v1/pools", &json!({"name": "tank", "disks": [world.disk("d0"), world.disk("d1")]}));
    for (name, asked, sector) in [("a", None, 512), ("b", Some(512), 512), ("c", Some(4096), 4096)] {
        let space = json!({"name": name, "size_bytes": MIB, "resiliency": "mirror", "sector_bytes": asked});
        let made = world.post("/v1/pools/tank/spaces", &space);
        assert_eq!(made["space"]["sector_bytes"], sector, "{made}");
    }
}

/// Scenario: six clients write in turns of 997 bytes at once, to spaces of every kind and sector, so that most blocks are shared
/// by five of them. Expected: every byte is of the client whose turn it was, also after the daemon was killed.
#[test]
fn clients_that_write_any_bytes_keep_those_of_each_other() {
    let mut world = World::new(4);
    let disks: Vec<String> = (0..4).map(|disk| world.disk(&format!("d{disk}"))).collect();
    world.post("/v1/pools", &json!({"name": "tank", "disks": disks}));
    let kinds = [("simple", 512), ("mirror", 4096), ("parity", 4096)];
    for (resiliency, sector) in kinds {
        let space = json!({"name": resiliency, "size_bytes": 16 * MIB, "resiliency": resiliency,
            "sector_bytes": sector, "row_bytes": MIB});
        serve(&world, resiliency, &space);
    }
    for (resiliency, _) in kinds {
        let write = |number: u64| {
            let mut client = connect(&world, resiliency);
            for turn in (0..TURNS).filter(|turn| turn % CLIENTS == number) {
                client.write(start_of(turn), &[fill_of(turn); TURN]);
            }
            client.flush();
        };
        thread::scope(|scope| {
            for number in 0..CLIENTS {
                let write = &write;
                scope.spawn(move || write(number));
            }
        });
    }
    world.kill();
    world.start();
    for (resiliency, _) in kinds {
        let mut client = connect(&world, resiliency);
        assert_eq!(client.read(0, 1), [0]);
        for turn in 0..TURNS {
            let found = client.read(start_of(turn), TURN);
            assert_eq!(found, [fill_of(turn); TURN], "turn {turn} of {resiliency}");
        }
        assert_eq!(client.read(start_of(TURNS), 1), [0]);
    }
}

/// Scenario: a client writes, reads, zeroes and trims 64 MiB from an odd byte on, in one request each, and asks for a byte more.
/// Expected: the first are done, and the last is refused with EINVAL; the connection goes on.
#[test]
fn a_request_has_64_mib_at_most_and_begins_at_any_byte() {
    let world = World::new(2);
    world.post("/v1/pools", &json!({"name": "tank", "disks": [world.disk("d0"), world.disk("d1")]}));
    serve(&world, "s", &json!({"name": "s", "size_bytes": 96 * MIB, "resiliency": "simple"}));
    let mut client = connect(&world, "s");
    let content = pattern(7, LONGEST);
    client.write(4097, &content);
    assert!(client.read(4097, LONGEST) == content, "64 MiB are read as they were written");
    assert_eq!((client.read(4096, 1), client.read(4097 + 64 * MIB, 1)), (vec![0], vec![0]));
    assert_eq!(client.try_read(0, LONGEST + 1), Err(22));
    client.trim(5000, LONGEST);
    assert_eq!(client.read(4097, 903), content[..903]);
    assert!(client.read(8192, 60 << 20).iter().all(|byte| *byte == 0), "whole blocks were trimmed");
    assert_eq!(client.try_write(96 * MIB - 1, &[1; 2]), 28);
    client.write(96 * MIB - 1, &[1]);
}
