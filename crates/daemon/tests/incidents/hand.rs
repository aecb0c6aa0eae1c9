//! Slips of the hand.

use std::fs;
use std::path::PathBuf;

use serde_json::{Value, json};

use crate::bench::{Content, health, make_pool, make_space, mirror};
use crate::client::World;

/// What is on all disks, and what the host keeps of its pools.
fn everything(world: &World) -> Vec<(PathBuf, Vec<u8>)> {
    let folder = world.folder.path();
    let mut files: Vec<PathBuf> = ["disks", "state/pools"]
        .iter()
        .flat_map(|name| fs::read_dir(folder.join(name)).into_iter().flatten())
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    files.into_iter().map(|path| (path.clone(), fs::read(path).unwrap())).collect()
}

/// The incident: somebody destroys, purges, makes, adds or replaces with a wrong name, an empty one, none, or a disk that is in
/// use. What the command line refuses before it asks a daemon is in `crates/cli/tests/data_loss_events.rs`. Expected: each is
/// refused, and no byte of any disk or record is another behind that; the right name does what it says.
#[test]
fn incident_10_slip_of_the_hand() {
    let mut world = World::new(5);
    make_pool(&world, &["d0", "d1"].map(|name| world.disk(name)));
    make_space(&world, "m", 16, mirror());
    world.post("/v1/pools", &json!({"name": "pond", "disks": [world.disk("d2")]}));
    let mut content = Content::new("m", 16);
    content.fill(&world, 8, 1);
    // A file that is no disk of a pool and not empty.
    fs::write(world.disk("d4"), vec![0x5a; 256 << 20]).unwrap();
    // Nothing but the name stands between the two and their end.
    world.post("/v1/pools/tank/spaces/m/unserve", &json!({}));
    let before = everything(&world);
    let (d0, d2, d3, d4) = (world.disk("d0"), world.disk("d2"), world.disk("d3"), world.disk("d4"));
    let nowhere = world.disk("nowhere");
    let (destroy, delete) = ("/v1/pools/tank/destroy", "/v1/pools/tank/spaces/m/delete");
    let purged = |name: Value| json!({"purge": true, "destroy": name});
    let slips: Vec<(&str, Value)> = vec![
        (destroy, json!({})),
        (destroy, json!({"destroy": ""})),
        (destroy, json!({"destroy": " "})),
        (destroy, json!({"destroy": "yes"})),
        (destroy, json!({"destroy": "TANK"})),
        (destroy, json!({"destroy": "pond"})),
        (destroy, json!({"destroy": "tank/m"})),
        (destroy, json!({"destroy": "*"})),
        ("/v1/pools/pond/destroy", json!({"destroy": "tank"})),
        ("/v1/pools//destroy", json!({"destroy": ""})),
        (delete, json!({"purge": true})),
        (delete, purged(json!(""))),
        (delete, purged(json!("tank"))),
        (delete, purged(json!("pond/m"))),
        (delete, purged(json!("tank/n"))),
        ("/v1/pools", json!({"name": "new", "disks": [d0]})),
        ("/v1/pools", json!({"name": "new", "disks": [d0], "destroy": [d0]})),
        ("/v1/pools", json!({"name": "new", "disks": [d2], "destroy": [d2]})),
        ("/v1/pools", json!({"name": "new", "disks": [d4]})),
        ("/v1/pools", json!({"name": "new", "disks": [d4], "destroy": [d3]})),
        ("/v1/pools", json!({"name": "new", "disks": [d3, d4], "destroy": ["d4"]})),
        ("/v1/pools", json!({"name": "new", "disks": []})),
        ("/v1/pools", json!({"name": "", "disks": [d3]})),
        ("/v1/pools", json!({"name": "tank", "disks": [d3]})),
        ("/v1/pools", json!({"name": "new", "disks": [""]})),
        ("/v1/pools", json!({"name": "new", "disks": [d3, nowhere]})),
        ("/v1/pools", json!({"name": "new", "disks": [d3, d3]})),
        ("/v1/pools/tank/disks", json!({"disks": [d0]})),
        ("/v1/pools/tank/disks", json!({"disks": [d2], "destroy": [d2]})),
        ("/v1/pools/tank/disks", json!({"disks": [d4]})),
        ("/v1/pools/tank/disks", json!({"disks": [d3, d4]})),
        ("/v1/pools/tank/disks/1/replace", json!({"with": d0})),
        ("/v1/pools/tank/disks/1/replace", json!({"with": d2, "destroy": [d2]})),
        ("/v1/pools/tank/disks/1/replace", json!({"with": d4})),
        ("/v1/pools/tank/disks/1/replace", json!({"with": ""})),
        ("/v1/pools/tank/disks/7/replace", json!({"with": d3})),
        ("/v1/pools/tank/disks/1/remove", json!({})),
        ("/v1/pools/tank/disks/9/remove", json!({})),
        ("/v1/pools/tank/spaces/m/resize", json!({"size_bytes": 4 << 20})),
        ("/v1/pools/pond/disks/0/remove", json!({})),
    ];
    for (path, request) in &slips {
        let (status, answer) = world.try_ask("POST", path, request.to_string().as_bytes()).unwrap();
        assert!(status >= 400, "{path} {request} was not refused: {answer}");
    }
    for ((path, was), (now, is)) in before.iter().zip(everything(&world)) {
        assert!(*path == now && *was == is, "{} was written to by what was refused", path.display());
    }
    assert_eq!(health(&world).0, "healthy");
    world.kill();
    world.start();
    world.post("/v1/pools/tank/spaces/m/serve", &json!({}));
    content.expect(&world, "behind a restart");
    world.post("/v1/pools/tank/spaces/m/unserve", &json!({}));
    world.post(destroy, &json!({"destroy": "tank"}));
    assert_eq!(world.get("/v1/pools")["pools"].as_array().unwrap().len(), 1);
}
