//! Two pools of one name: the second is opened under another name, which it keeps.

use std::fs;

use serde_json::{Value, json};

use crate::client::{World, pattern};

/// A pool `tank` whose first space holds this pattern, exported, with its files moved to a folder of their own; its identity.
fn put_aside(world: &World, disks: &[&str], seed: u8) -> (String, String) {
    world.make_tank(disks);
    let mut client = world.nbd();
    client.write(0, &pattern(seed, 1 << 20));
    client.flush();
    drop(client);
    let id = world.get("/v1/pools/tank")["pool"]["id"].as_str().unwrap().to_owned();
    crate::client::eventually("the pool is exported", || {
        let (status, _) = world.try_ask("POST", "/v1/pools/tank/export", b"{}").unwrap();
        (status == 200).then_some(())
    });
    let folder = world.folder.path().join("theirs");
    fs::create_dir(&folder).unwrap();
    for disk in disks {
        fs::rename(world.disk(disk), folder.join(disk)).unwrap();
    }
    (id, folder.to_str().unwrap().to_owned())
}

fn names(world: &World) -> Vec<String> {
    let pools = world.get("/v1/pools")["pools"].clone();
    let name =
        |pool: &Value| format!("{} {}", pool["name"].as_str().unwrap(), pool["state"].as_str().unwrap());
    pools.as_array().unwrap().iter().map(name).collect()
}

/// Scenario: a pool of a name that is taken is imported: refused, with what helps; in a dry run and for good under another name, which
/// must be one and free. Both are open then, also behind a kill; and the name stands on its disks: a later import finds it by that.
#[test]
fn a_pool_of_a_name_that_is_taken_is_opened_under_another_which_it_keeps() {
    let mut world = World::new(4);
    let (id, folder) = put_aside(&world, &["d0", "d1"], 7);
    world.make_tank(&["d2", "d3"]);
    world.nbd().write(0, &pattern(8, 1 << 20));
    let import = |more: Value| {
        let mut request = json!({"pool": id, "paths": [folder]});
        request.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        request
    };
    let path = "/v1/pools/import";
    let disks = || ["d0", "d1"].map(|disk| fs::read(format!("{folder}/{disk}")).unwrap());
    let before = disks();
    let error = world.refused(path, &import(json!({})));
    assert_eq!(error["code"], "name_taken", "{error}");
    assert!(error["hint"].as_str().unwrap().contains(&format!("--pool {id} --as NAME")), "{error}");
    for (name, code) in [("tank", "name_taken"), ("not a name", "bad_name"), ("", "bad_name")] {
        assert_eq!(world.refused(path, &import(json!({"rename": name})))["code"], code, "{name}");
    }
    let planned = world.post(path, &import(json!({"rename": "theirs", "dry_run": true})));
    assert!(
        planned["plan"]["steps"].to_string().contains("call it theirs from now on, also on its disks"),
        "{planned}"
    );
    assert!(disks() == before, "its disks were written");
    let made = world.post(path, &import(json!({"rename": "theirs"})));
    assert_eq!(made["pool"]["name"], "theirs", "{made}");
    for is_killed in [false, true] {
        if is_killed {
            world.kill();
            world.start();
        }
        assert_eq!(names(&world), ["tank writable", "theirs writable"]);
    }
    for (name, seed) in [("theirs", 7), ("tank", 8)] {
        world.post(&format!("/v1/pools/{name}/spaces/m/serve"), &json!({}));
        let mut client =
            crate::client::Nbd::connect(&world.folder.path().join("run/nbd.sock"), &format!("{name}/m"));
        assert!(client.read(0, 1 << 20) == pattern(seed, 1 << 20), "{name}");
    }
    crate::client::eventually("the pool is exported", || {
        let (status, _) = world.try_ask("POST", "/v1/pools/theirs/export", b"{}").unwrap();
        (status == 200).then_some(())
    });
    world.post(path, &json!({"pool": "theirs", "paths": [folder]}));
    assert_eq!(names(&world), ["tank writable", "theirs writable"]);
    assert_eq!(world.get("/v1/status")["health"], "healthy");
}

/// Scenario: the same for reading only. Nothing is written to its disks, and it is called so here, also behind a kill.
#[test]
fn a_pool_that_is_opened_for_reading_only_under_another_name_keeps_its_own_on_its_disks() {
    let mut world = World::new(4);
    let (id, folder) = put_aside(&world, &["d0", "d1"], 7);
    world.make_tank(&["d2", "d3"]);
    let disks = || ["d0", "d1"].map(|disk| fs::read(format!("{folder}/{disk}")).unwrap());
    let before = disks();
    let request = json!({"pool": id, "paths": [folder], "mode": "read", "rename": "theirs"});
    world.post("/v1/pools/import", &request);
    for is_killed in [false, true] {
        if is_killed {
            world.kill();
            world.start();
        }
        assert_eq!(names(&world), ["tank writable", "theirs read_only"]);
    }
    assert!(disks() == before, "its disks were written");
}
