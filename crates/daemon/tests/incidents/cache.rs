//! Write caches that die with what is not in place yet.

use std::fs;

use dolmen_units::Bytes;
use serde_json::{Value, json};

use crate::bench::{
    BLOCK, Content, client, disks, health, idle, make_pool, make_space, parity, patiently, scrub,
};
use crate::client::World;

const MIB_SPACE: usize = 16;
/// Between the beginnings of two writes over what is there: less than a stripe is written each time, so that it is cached.
const APART: usize = 64 << 10;

fn cache(world: &World) -> Value {
    world.get("/v1/pools/tank")["pool"]["write_caches"][0].clone()
}

/// Writes over parts of stripes all over the space, and kills the daemon before that is in place.
fn write_and_kill(world: &mut World, content: &mut Content, round: u8) {
    let mut client = client(world, "p");
    for (nth, at) in (0..content.len()).step_by(APART).enumerate() {
        content.write(&mut client, at, (1 + nth % 3) * BLOCK, round);
        if at == content.len() / 2 {
            client.flush();
        }
    }
    let waiting = cache(world)["waiting_bytes"].as_u64().unwrap();
    assert!(waiting >= 1 << 20, "{waiting} bytes are not in place yet");
    world.kill();
}

/// The incident: the device that has a write cache dies, and with it what was acknowledged and not in place. Expected: a cache of a
/// space that survives a disk is on two; each disk in turn dies with what is not in place, and nothing is lost. Two die: the pool
/// starts, what can be read is what was acknowledged, and what cannot is named, block by block, and nothing else is. A pool that
/// has no second disk for a cache gets no space that needs one.
#[test]
fn incident_08_cache_device_dies() {
    let names = ["d0", "d1", "d2", "d3"];
    let mut world = World::new(4);
    make_pool(&world, &names.map(|name| world.disk(name)));
    make_space(&world, "p", MIB_SPACE, parity());
    let mut content = Content::new("p", MIB_SPACE);
    content.fill(&world, MIB_SPACE, 1);
    let of_cache = cache(&world);
    let on = of_cache["disks"].as_array().unwrap().len();
    let away = |world: &World, name: &str| world.folder.path().join(name);
    for (round, gone) in names.iter().enumerate() {
        write_and_kill(&mut world, &mut content, 2 + u8::try_from(round).unwrap());
        fs::rename(world.disk(gone), away(&world, gone)).unwrap();
        world.start();
        content.expect(&world, &format!("the cache has lost {gone}"));
        world.kill();
        fs::rename(away(&world, gone), world.disk(gone)).unwrap();
        world.start();
        patiently("all disks have all of it", || {
            idle(&world);
            (health(&world).0 == "healthy").then_some(())
        });
    }
    assert!(of_cache["copies"] == 2 && on >= 2, "{of_cache}");
    write_and_kill(&mut world, &mut content, 9);
    for gone in ["d1", "d2"] {
        fs::remove_file(world.disk(gone)).unwrap();
    }
    world.start();
    let lost = content.unreadable(&world, "with two disks lost for good");
    let job = scrub(&world);
    assert!(!lost.is_empty() && lost.len() < content.len() / BLOCK, "{} blocks", lost.len());
    let named = format!("; out of reach: {} of space p, in ", Bytes((lost.len() * BLOCK) as u64));
    assert!(job["result"].as_str().unwrap().contains(&named), "{named} is expected of {job}");
    let (health, why) = health(&world);
    assert!(health == "unhealthy" && why.contains("parts of space tank/p may be out of reach"), "{why}");
    let few = World::new(1);
    few.post("/v1/pools", &json!({"name": "tank", "disks": [few.disk("d0")]}));
    for spec in [parity(), json!({"resiliency": "mirror", "integrity": "strict"})] {
        let mut spec = spec;
        spec["name"] = json!("p");
        spec["size_bytes"] = json!(16 << 20);
        let refused = few.refused("/v1/pools/tank/spaces", &spec);
        assert_eq!(refused["code"], "too_few_disks", "{refused}");
    }
    assert_eq!(disks(&few).len(), 1);
}
