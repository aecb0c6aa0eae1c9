//! Where volumes are mounted: places that another host chose, and places that two volumes want. They need what those of volumes need.

use std::io::Read as _;
use std::path::Path;

use serde_json::{Value, json};

use crate::client::eventually;
use crate::mounts;
use crate::shares::move_to_host;
use crate::volumes::{Rig, SHOW};

/// Imports the pool, and returns the answer.
fn import(rig: &Rig, accept: bool) -> Value {
    let look_in = [rig.world.disk("d0"), rig.world.disk("d1")];
    rig.world.post("/v1/pools/import", &json!({"pool": "tank", "paths": look_in, "accept": accept}))
}

/// Checks that a volume is held, with the command that accepts it, and that no worker got an order to make or mount it.
fn is_held(rig: &Rig, orders_before: usize) {
    let volume = rig.volume();
    let held = (&volume["is_held"], &volume["mounted_at"], &volume["health"]);
    assert_eq!(
        held,
        (&json!(true), &Value::Null, &json!("warning")),
        "a place of another host is obeyed: {volume}"
    );
    let command = format!("dolmen volume mount --mount {} tank/v", rig.mount().display());
    assert!(volume["why"].to_string().contains(&command), "{volume}");
    assert_eq!(rig.orders("make") + rig.orders("mount"), orders_before, "a place of another host is obeyed");
    let refused = rig.world.refused(&format!("{SHOW}/mount"), &json!({}));
    assert_eq!(refused["code"], "needs_confirmation", "{refused}");
}

/// Scenario: a pool with a volume moves to another host, to a third one by an import that accepts it, and back into that one. The
/// second host mounts it when people name its place, also after a restart in between.
#[test]
fn a_volume_of_another_host_is_held_until_its_place_is_accepted() {
    let _mounts = mounts::mounting();
    let Some(mut rig) = Rig::new() else { return };
    rig.ended(rig.create());
    assert_eq!(rig.mounted()["is_held"], false);
    std::fs::write(rig.mount().join("file"), "kept").unwrap();
    move_to_host(&mut rig, '2');
    let orders = rig.orders("make") + rig.orders("mount");
    let imported = import(&rig, false);
    is_held(&rig, orders);
    assert!(imported["warnings"].to_string().contains("dolmen volume mount --mount"), "{imported}");
    rig.stop();
    rig.start();
    is_held(&rig, orders);
    let place = json!({"mount_point": rig.mount(), "dry_run": true});
    assert_eq!(rig.world.post(&format!("{SHOW}/mount"), &place)["is_changed"], false);
    is_held(&rig, orders);
    rig.world.post(&format!("{SHOW}/mount"), &json!({"mount_point": rig.mount()}));
    assert_eq!(rig.mounted()["is_held"], false);
    assert_eq!(std::fs::read_to_string(rig.mount().join("file")).unwrap(), "kept");
    rig.world.post("/v1/pools/tank/export", &json!({}));
    assert_eq!(import(&rig, false)["warnings"], json!([]), "the same host again");
    rig.mounted();
    move_to_host(&mut rig, '3');
    assert_eq!(import(&rig, true)["warnings"], json!([]));
    let volume = rig.mounted();
    assert_eq!((&volume["is_held"], &volume["health"]), (&json!(false), &json!("healthy")), "{volume}");
    rig.stop();
}

/// Scenario: a pool with a volume that was not made moves to another host, which makes it when people name its place.
#[test]
fn a_volume_that_another_host_began_is_made_when_it_is_accepted() {
    let _mounts = mounts::mounting();
    let Some(mut rig) = Rig::new() else { return };
    rig.plant("fails-make");
    assert_eq!(rig.ended(rig.create())["state"], "failed");
    rig.world.post("/v1/pools/tank/spaces/v/detach", &json!({}));
    move_to_host(&mut rig, '2');
    let orders = rig.orders("make") + rig.orders("mount");
    rig.lift("fails-make");
    import(&rig, false);
    is_held(&rig, orders);
    let made = rig.world.post(&format!("{SHOW}/mount"), &json!({"mount_point": rig.mount()}));
    rig.ended(made["job"]["id"].as_u64().unwrap());
    assert_eq!(rig.mounted()["is_held"], false);
    rig.stop();
}

/// Scenario: a pool of another host is open for reading. Its volume is mounted where people name its place; the record stays.
#[test]
fn a_held_volume_is_mounted_for_reading_by_its_place() {
    let _mounts = mounts::mounting();
    let Some(mut rig) = Rig::new() else { return };
    rig.ended(rig.create());
    rig.mounted();
    move_to_host(&mut rig, '2');
    let look_in = [rig.world.disk("d0"), rig.world.disk("d1")];
    rig.world.post("/v1/pools/import", &json!({"pool": "tank", "paths": look_in, "mode": "read"}));
    let refused = rig.world.refused(&format!("{SHOW}/mount"), &json!({}));
    assert_eq!(refused["code"], "needs_confirmation", "{refused}");
    rig.world.post(&format!("{SHOW}/mount"), &json!({"mount_point": rig.mount()}));
    eventually("it is mounted", || rig.volume()["mounted_at"].is_string().then_some(()));
    assert_eq!(rig.volume()["is_held"], true, "a pool that is open for reading was written to");
    rig.world.post(&format!("{SHOW}/unmount"), &json!({}));
    rig.stop();
}

/// Makes a second volume, `w`, at a place.
fn create_w(rig: &Rig, place: &Path) {
    let mut request = rig.request(false);
    (request["name"], request["mount_point"]) = (json!("w"), json!(place));
    let made = rig.world.post("/v1/pools/tank/volumes", &request);
    assert_eq!(rig.ended(made["job"]["id"].as_u64().unwrap())["state"], "done");
}

fn w(rig: &Rig) -> Value {
    rig.world.get("/v1/pools/tank/volumes/w")["volume"].clone()
}

/// Scenario: a mount of a volume elsewhere waits for a check, and another volume is made for the place meanwhile. The mount is refused,
/// and the record has the place of before.
#[test]
fn a_mount_that_waits_takes_no_place_that_another_volume_got_meanwhile() {
    let _mounts = mounts::mounting();
    let Some(mut rig) = Rig::new() else { return };
    rig.ended(rig.create());
    rig.mounted();
    rig.world.post(&format!("{SHOW}/unmount"), &json!({}));
    rig.plant("before-check");
    rig.world.post(&format!("{SHOW}/check"), &json!({}));
    rig.is_held();
    let place = rig.world.folder.path().join("other");
    let mut client = rig.send(&format!("{SHOW}/mount"), &json!({"mount_point": place}));
    eventually("the mount waits", || (rig.volume()["mount_state"] == "mounting").then_some(()));
    create_w(&rig, &place);
    rig.lift("before-check");
    let mut answer = [0; 4096];
    let length = client.read(&mut answer).unwrap();
    let answer = String::from_utf8_lossy(&answer[..length]).into_owned();
    let at = (rig.volume()["mount_point"].clone(), w(&rig)["mounted_at"].clone());
    assert_eq!(at, (json!(rig.mount()), json!(place)), "two volumes have one place: {answer}");
    // On a slow machine the turn takes longer than a request waits.
    assert!(answer.contains("volume tank/w has") || answer.contains("\"busy\""), "{answer}");
    rig.world.post("/v1/pools/tank/volumes/w/unmount", &json!({}));
    rig.stop();
}

/// Scenario: a volume is deleted, another one is made for its place, and the first one is restored. It stays unmounted, also over a
/// restart, says why, and is mounted elsewhere.
#[test]
fn a_restored_volume_leaves_its_place_to_the_one_that_has_it() {
    let _mounts = mounts::mounting();
    let Some(mut rig) = Rig::new() else { return };
    rig.ended(rig.create());
    rig.mounted();
    rig.world.post(&format!("{SHOW}/delete"), &json!({}));
    create_w(&rig, &rig.mount());
    let restored = rig.world.post("/v1/pools/tank/trash/v/restore", &json!({}));
    assert!(
        restored["warnings"].to_string().contains("volume tank/w has"),
        "two volumes have one place: {restored}"
    );
    let volume = rig.volume();
    let shown = (&volume["is_to_be_mounted"], &volume["mounted_at"], &volume["health"]);
    assert_eq!(shown, (&json!(false), &Value::Null, &json!("warning")), "{volume}");
    assert!(volume["why"].to_string().contains("--mount PATH tank/v"), "{volume}");
    rig.stop();
    rig.start();
    eventually("the other one is mounted", || (w(&rig)["mounted_at"] == json!(rig.mount())).then_some(()));
    let refused = rig.world.refused(&format!("{SHOW}/mount"), &json!({}));
    assert!(refused["message"].as_str().unwrap().contains("volume tank/w has"), "{refused}");
    let elsewhere = rig.world.folder.path().join("elsewhere");
    let mounted = rig.world.post(&format!("{SHOW}/mount"), &json!({"mount_point": elsewhere}));
    assert_eq!(mounted["volume"]["mounted_at"], json!(elsewhere), "{mounted}");
    rig.stop();
}
