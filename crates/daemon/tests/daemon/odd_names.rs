//! Disks whose names are no text.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use serde_json::json;

use crate::client::{World, pattern};

/// Scenario: the file of a disk is renamed to a name that is no UTF-8, while the daemon is away and while it runs. The disk is found,
/// has a name in text, and is let go of and taken back by that name.
#[test]
fn a_disk_whose_name_is_no_text_is_found() {
    let mut world = World::new(3);
    world.make_tank(&["d0", "d1", "d2"]);
    let content = pattern(3, 1 << 20);
    world.nbd().write(0, &content);
    world.nbd().flush();
    world.kill();
    let bad = Path::new(&world.disk("")).join(OsStr::from_bytes(b"bad\xffname"));
    std::fs::rename(world.disk("d1"), &bad).unwrap();
    world.start();
    let name = world.disk("bad\\xffname");
    let named = |world: &World, slot: usize| world.get("/v1/pools/tank/disks")["disks"][slot].clone();
    let disk = named(&world, 1);
    assert_eq!((&disk["state"], &disk["path"]), (&json!("present"), &json!(name)), "{disk}");
    let path = name.replace('/', "%2F").replace('\\', "%5C");
    world.post(&format!("/v1/pools/tank/disks/{path}/offline"), &json!({}));
    world.nbd().write(0, &content);
    world.post(&format!("/v1/pools/tank/disks/{path}/online"), &json!({}));
    world.last_job();
    assert_eq!(named(&world, 1)["state"], "present");
    // It is on record by that name, too.
    world.kill();
    world.start();
    assert_eq!(named(&world, 1)["path"], json!(name));
    assert_eq!(world.nbd().read(0, 1 << 20), content);
    // A second one is made of such a file by its name in text.
    std::fs::rename(&bad, world.disk("d1")).unwrap();
    let other = Path::new(&world.disk("")).join(OsStr::from_bytes(b"\xf0new"));
    std::fs::File::create(&other).unwrap().set_len(256 << 20).unwrap();
    world.post("/v1/pools/tank/disks", &json!({"disks": [world.disk("\\xf0new")]}));
    world.last_job();
    assert_eq!(named(&world, 3)["path"], json!(world.disk("\\xf0new")));
}
