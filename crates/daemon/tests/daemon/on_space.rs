//! Disks that lie on a space. They need root, FUSE and loop devices; where one of them is missing the test says so and ends.

use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::attached::{link_of, mounted, run};
use crate::client::{World, eventually};
use crate::mounts;

/// A loop device over a file, which goes with this.
struct Loop(String);

impl Loop {
    fn over(file: &Path) -> Self {
        let made = Command::new("losetup").args(["-f", "--show"]).arg(file).output().unwrap();
        assert!(made.status.success(), "{made:?}");
        Self(String::from_utf8(made.stdout).unwrap().trim().to_owned())
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").args(["-d", &self.0]).output();
    }
}

/// Each request that takes a disk, with this one.
fn requests(disk: &str) -> [(&'static str, Value); 5] {
    [
        ("/v1/pools", json!({"name": "inner", "disks": [disk]})),
        ("/v1/pools/tank/disks", json!({"disks": [disk]})),
        ("/v1/pools/tank/disks/0/replace", json!({"with": disk})),
        ("/v1/pools/tank/disks/0/online", json!({"path": disk})),
        ("/v1/pools/import", json!({"paths": [disk]})),
    ]
}

/// Each request that takes a disk refuses this one, by its name, the space, the pool and the mount point.
fn is_refused(world: &World, mount: &Path, disk: &str) {
    for dry_run in [true, false] {
        for (path, mut request) in requests(disk) {
            request["dry_run"] = json!(dry_run);
            let error = world.refused(path, &request);
            assert_eq!(error["code"], "unfit_device", "{path}: {error}");
            let message = error["message"].as_str().unwrap();
            let named = [disk, "space tank/m of pool tank", &mount.display().to_string()];
            assert!(named.iter().all(|name| message.contains(*name)), "{path}: {message}");
            assert!(error["hint"].is_string(), "{path}: {error}");
        }
    }
}

/// Scenario: ext4 on an attached space, and a file on it: by its path, by a link, under a loop device. Every request that
/// takes a disk refuses it by the file, the space and the pool, first in a dry run, and the file system goes on.
#[test]
fn what_lies_on_a_space_becomes_no_disk() {
    let _mounts = mounts::mounting();
    let mut world = World::new(3);
    let Some(cleaned) = mounted(&mut world) else { return };
    let (world, mount) = (&*cleaned.world, &cleaned.mount);
    world.post("/v1/pools/tank/disks/0/offline", &json!({}));
    let own = mount.join("own");
    std::fs::File::create(&own).unwrap().set_len(128 << 20).unwrap();
    let link = world.disk("link");
    symlink(&own, &link).unwrap();
    let own = own.display().to_string();
    for disk in [&own, &link] {
        is_refused(world, mount, disk);
    }
    let device = Loop::over(Path::new(&own));
    is_refused(world, mount, &device.0);
    // Nor does the daemon keep its own records there.
    let mut own_state = world.command("mnt/state", "run");
    let ended = own_state.stderr(Stdio::piped()).spawn().unwrap().wait_with_output().unwrap();
    let reported = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert!(
        !ended.status.success() && reported.contains("lies on a space of this very daemon"),
        "{reported}"
    );
    let attached = link_of(world).display().to_string();
    let error = world.refused("/v1/pools", &json!({"name": "inner", "disks": [attached]}));
    assert!(error["message"].as_str().unwrap().contains("is an attached space"), "{error}");
    // What is beside it is taken as ever.
    world.post("/v1/pools", &json!({"name": "inner", "disks": [world.disk("d2")], "dry_run": true}));
    std::fs::write(mount.join("after"), "x").unwrap();
    assert!(run("sync", &[Path::new("-f"), mount]));
    drop(device);
    assert!(run("umount", &[mount]));
}

/// Scenario: the record of a pool says that its disk is a file on a space of another pool, which an older daemon may have
/// taken; the caches are empty. The daemon starts without touching the file, the space goes on, and the pool says why it is
/// not open.
#[test]
fn a_daemon_starts_next_to_a_pool_on_a_space() {
    let _mounts = mounts::mounting();
    let mut world = World::new(3);
    let Some(cleaned) = mounted(&mut world) else { return };
    let (world, mount) = (&mut *cleaned.world, &cleaned.mount);
    let (disk, own) = (world.disk("d2"), mount.join("own").display().to_string());
    let made = world.post("/v1/pools", &json!({"name": "inner", "disks": [&disk]}));
    std::fs::File::create(&own).unwrap().set_len(128 << 20).unwrap();
    assert!(run("sync", &[Path::new("-f"), mount]));
    world.kill();
    let record = format!("state/pools/{}.json", made["pool"]["id"].as_str().unwrap());
    let record = world.folder.path().join(record);
    let text = std::fs::read_to_string(&record).unwrap();
    assert!(text.contains(&disk), "{text}");
    std::fs::write(&record, text.replace(&disk, &own)).unwrap();
    std::fs::remove_file(&disk).unwrap();
    let _ = std::fs::write("/proc/sys/vm/drop_caches", "2");
    world.start();
    let error = world.refused("/v1/pools/inner/disks", &json!({"disks": [world.disk("d0")]}));
    let reported = error.to_string();
    assert!(reported.contains("lies on space tank/m of pool tank") && reported.contains(&own), "{reported}");
    let after = mount.join("after");
    let mut writer = Command::new("dd");
    writer.args([
        "if=/dev/zero",
        &format!("of={}", after.display()),
        "bs=64K",
        "count=4",
        "oflag=dsync",
        "status=none",
    ]);
    let mut writer = writer.spawn().unwrap();
    assert!(eventually("the file system goes on", || writer.try_wait().unwrap()).success());
    assert!(run("umount", &[mount]));
}
