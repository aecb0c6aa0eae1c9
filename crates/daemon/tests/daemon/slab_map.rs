//! The slab map of a pool, against the real daemon.

use serde_json::{Value, json};

use crate::client::{World, eventually, pattern};

const MAP: &str = "/v1/pools/tank/slabs";

fn sum<'a>(list: &'a Value, of: impl Fn(&'a Value) -> u64) -> u64 {
    list.as_array().unwrap().iter().map(of).sum()
}

fn figure(object: &Value, name: &str) -> u64 {
    object.get(name).and_then(Value::as_u64).unwrap_or(0)
}

#[test]
fn a_slab_map_names_the_spaces_of_each_cell_and_is_kept_for_seconds() {
    // Scenario: two spaces, of which one is written. Cells of each disk add up to what df says of it, owners to what the spaces have; a space
    // that is made right after the map is not on it, and is on one with other cells. A map after that says how old it is.
    let world = World::new(3);
    world.make_tank(&["d0", "d1", "d2"]);
    world.nbd().write(0, &pattern(1, 4 << 20));
    let other =
        json!({"name": "other", "size_bytes": 64 << 20, "resiliency": "simple", "provisioning": "fixed"});
    world.post("/v1/pools/tank/spaces", &other);
    let (map, df) = (world.get(&format!("{MAP}?cells=32")), world.get("/v1/pools/tank/df"));
    assert_eq!((&map["pool"], &map["age_s"]), (&json!("tank"), &json!(0)), "{map}");
    let owners = map["owners"].as_array().unwrap();
    let name = |owner: &Value| (owner["name"].clone(), owner["purpose"].clone(), owner["space"].clone());
    let names: Vec<_> = owners.iter().map(name).collect();
    let space = |name: &str| (json!(name), json!("space"), json!(name));
    assert!(names.contains(&space("m")) && names.contains(&space("other")), "{names:?}");
    assert_eq!(sum(&map["owners"], |owner| figure(owner, "used_bytes")), figure(&df, "used_bytes"));
    let unit = figure(&map, "unit_bytes");
    let rooms = df["disks"].as_array().unwrap().iter();
    for (disk, room) in map["disks"].as_array().unwrap().iter().zip(rooms) {
        assert_eq!((&disk["slot"], &disk["name"]), (&room["slot"], &room["name"]));
        assert_eq!(disk["cells"].as_array().unwrap().len(), 32);
        assert_eq!(sum(&disk["cells"], |cell| figure(cell, "units")) * unit, figure(room, "data_bytes"));
        assert_eq!(sum(&disk["cells"], |cell| figure(cell, "free_units")) * unit, figure(room, "free_bytes"));
        assert_eq!((figure(disk, "stale_units"), &disk["is_absent"]), (0, &json!(false)));
    }
    let late =
        json!({"name": "late", "size_bytes": 64 << 20, "resiliency": "simple", "provisioning": "fixed"});
    world.post("/v1/pools/tank/spaces", &late);
    let owners_at = |query: &str| world.get(&format!("{MAP}{query}"))["owners"].as_array().unwrap().len();
    assert_eq!(owners_at("?cells=33"), owners.len() + 1);
    assert_eq!(owners_at(""), owners.len() + 1);
    let aged = eventually("a map that is kept", || {
        let map = world.get(MAP);
        (figure(&map, "age_s") > 0).then_some(map)
    });
    assert_eq!(aged["owners"].as_array().unwrap().len(), owners.len() + 1);
    assert_eq!(world.get(MAP)["disks"][0]["cells"].as_array().unwrap().len(), 64);
}

#[test]
fn a_number_of_cells_that_no_map_has_is_refused() {
    let world = World::new(2);
    world.make_tank(&["d0", "d1"]);
    for (query, says) in [
        ("?cells=0", "0 cells a disk were asked for, and a slab map has 1 to 512"),
        ("?cells=513", "513 cells a disk were asked for, and a slab map has 1 to 512"),
        ("?cells=many", "cannot be read"),
        ("?cells=-1", "cannot be read"),
        ("?columns=3", "cannot be read"),
    ] {
        let (status, answer) = world.try_ask("GET", &format!("{MAP}{query}"), b"").unwrap();
        assert_eq!((status, &answer["error"]["code"]), (400, &json!("bad_request")), "{query}: {answer}");
        assert!(answer["error"]["message"].as_str().unwrap().contains(says), "{query}: {answer}");
    }
    let (status, answer) = world.try_ask("GET", "/v1/pools/nothing/slabs", b"").unwrap();
    assert_eq!((status, &answer["error"]["code"]), (404, &json!("no_such_pool")), "{answer}");
}
