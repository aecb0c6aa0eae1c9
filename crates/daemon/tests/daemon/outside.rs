//! What attached spaces need is taken away by somebody else. These need root, FUSE and loop devices; where one of them is missing
//! the test says so and ends.

use std::path::Path;

use serde_json::json;

use crate::attached::{link_of, mounted, run};
use crate::client::{World, eventually, pattern};
use crate::mounts;

/// Scenario: a program that cleans folders removes both sockets of a daemon that serves a client. The client goes on, both sockets are
/// made again, and both are used.
#[test]
fn a_socket_that_is_removed_is_made_again() {
    let mut world = World::new(2);
    world.make_tank(&["d0", "d1"]);
    let mut before = world.nbd();
    before.write(0, &pattern(1, 4096));
    let nbd = world.folder.path().join("run/nbd.sock");
    for socket in [&nbd, &world.socket()] {
        std::fs::remove_file(socket).unwrap();
    }
    before.write(4096, &pattern(2, 4096));
    eventually("the sockets are there again", || (nbd.exists() && world.socket().exists()).then_some(()));
    assert_eq!(world.get("/v1/status")["health"], "healthy");
    assert_eq!(world.nbd().read(4096, 4096), pattern(2, 4096));
    assert_eq!(before.read(0, 4096), pattern(1, 4096));
    drop(before);
    world.post("/v1/shutdown", &json!({}));
    assert!(world.ended().success());
}

fn is_mounted(at: &Path) -> bool {
    let table = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    table.lines().any(|line| line.split(' ').nth(4).is_some_and(|found| Path::new(found) == at))
}

/// Scenario: the folder of attached spaces is unmounted lazily under a mounted file system, and a link is removed. Both are put
/// back; another space is attached meanwhile, and both go on with the next daemon. The folder is unmounted once more when nothing
/// is attached, and a space is attached after that.
#[test]
fn what_attached_spaces_need_is_put_back() {
    let _mounts = mounts::mounting();
    let mut world = World::new(2);
    let Some(cleaned) = mounted(&mut world) else { return };
    let (world, mount) = (&mut *cleaned.world, &cleaned.mount);
    let folder = world.folder.path().join("run/attached");
    if !is_mounted(&folder) {
        println!("skipped: spaces are not attached by loop devices here");
        return;
    }
    let other = json!({"name": "n", "size_bytes": 16 << 20, "resiliency": "mirror", "row_bytes": 1 << 20});
    world.post("/v1/pools/tank/spaces", &other);
    let attach = |world: &World| world.post("/v1/pools/tank/spaces/n/attach", &json!({"transport": "loop"}));
    assert!(run("umount", &[Path::new("-l"), &folder]));
    assert!(!is_mounted(&folder));
    attach(world);
    assert!(is_mounted(&folder), "attaching has put it back");
    assert!(run("umount", &[Path::new("-l"), &folder]));
    std::fs::remove_file(link_of(world)).unwrap();
    eventually("folder and link are put back", || {
        (is_mounted(&folder) && link_of(world).exists()).then_some(())
    });
    std::fs::write(mount.join("file"), vec![7; 1 << 20]).unwrap();
    assert!(run("sync", &[Path::new("-f"), mount]));
    world.kill();
    world.start();
    let attachments = world.get("/v1/attachments");
    assert_eq!(attachments["attachments"].as_array().unwrap().len(), 2, "{attachments}");
    assert_eq!(std::fs::read(mount.join("file")).unwrap(), vec![7; 1 << 20]);
    world.post("/v1/pools/tank/spaces/n/detach", &json!({}));
    assert!(run("umount", &[mount]));
    world.post("/v1/pools/tank/spaces/m/detach", &json!({}));
    assert!(run("umount", &[&folder]));
    attach(world);
    let error = world.refused("/v1/pools/tank/spaces/n/rename", &json!({"name": "new"}));
    assert_eq!(error["code"], "busy");
    assert!(error["message"].as_str().unwrap().contains("while it is attached at"), "{error}");
    world.post("/v1/pools/tank/spaces/n/detach", &json!({}));
    world.post("/v1/shutdown", &json!({}));
    assert!(world.ended().success());
    assert!(!is_mounted(&folder));
}
