//! Partitions as disks of a pool. They need root and loop devices; where one of them is missing the test says so and ends.

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::client::{World, eventually, pattern};
use crate::mounts;

const MIB: u64 = 1 << 20;
/// A disk with a file system first, and what is a pool's to its very end.
const DISK_BYTES: u64 = 384 * MIB;
const SECTOR: u64 = 512;
const FIRST: (u64, u64) = (MIB, 64 * MIB);
const SECOND: (u64, u64) = (66 * MIB, DISK_BYTES - 66 * MIB);

/// What a program prints, `None` where it fails.
fn run(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).output().ok()?;
    output.status.success().then(|| String::from_utf8(output.stdout).unwrap().trim().to_owned())
}

/// A loop device with partitions.
struct Disk(String);

impl Disk {
    /// Says why there is none.
    fn new(world: &World, name: &str) -> Option<Self> {
        let file = world.make_disk(name, DISK_BYTES);
        let device = run("losetup", &["--find", "--show", "--partscan", &file]);
        let Some(disk) = device.map(Self) else {
            println!("skipped: that takes root and loop devices");
            return None;
        };
        if !(disk.add(1, FIRST) && disk.add(2, SECOND)) {
            println!("skipped: that takes partitions on loop devices, and addpart");
            return None;
        }
        Some(disk)
    }

    /// Makes a part of the disk a partition with this number.
    fn add(&self, number: u32, (start, length): (u64, u64)) -> bool {
        let sectors = |bytes: u64| (bytes / SECTOR).to_string();
        run("addpart", &[&self.0, &number.to_string(), &sectors(start), &sectors(length)]).is_some()
    }

    /// Gives a partition another number.
    fn renumber(&self, from: u32, to: u32) {
        eventually("the partition is used by nobody", || {
            run("delpart", &[&self.0, &from.to_string()]).is_some().then_some(())
        });
        assert!(self.add(to, SECOND));
    }

    fn part(&self, number: u32) -> String {
        format!("{}p{number}", self.0)
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = run("losetup", &["--detach", &self.0]);
    }
}

/// A mount, taken down in the end.
struct Mount<'a>(&'a str);

impl Drop for Mount<'_> {
    fn drop(&mut self) {
        let _ = run("umount", &[self.0]);
    }
}

fn message(error: &Value) -> &str {
    error["message"].as_str().unwrap()
}

/// Scenario: two disks have a partition with a file system and one that is a pool's, which ends where the disk does, so that the
/// label at its end is the disk's as well. The pool has these and no more of the disks; what is mounted, has a file system, is the
/// whole of a disk or the same partition by another name is refused by name. After a kill the pool is there, and under other numbers
/// of its partitions it is found again.
#[test]
fn partitions_are_disks_of_a_pool() {
    let _mounts = mounts::mounting();
    let world = World::new(0);
    let (Some(a), Some(b)) = (Disk::new(&world, "a"), Disk::new(&world, "b")) else { return };
    // The daemon ends before its disks do.
    let mut stage = (world, a, b);
    let (world, a, b) = (&mut stage.0, &stage.1, &stage.2);
    world.post("/v1/pools", &json!({"name": "tank", "disks": [a.part(2), b.part(2)]}));
    let space = json!({"name": "m", "size_bytes": 32 << 20, "resiliency": "mirror", "row_bytes": 1 << 20});
    world.post("/v1/pools/tank/spaces", &space);
    world.post("/v1/pools/tank/spaces/m/serve", &json!({}));
    let content = pattern(5, 1 << 20);
    world.nbd().write(0, &content);
    world.nbd().flush();

    let same = world.folder.path().join("same").display().to_string();
    std::os::unix::fs::symlink(b.part(2), &same).unwrap();
    let add = |disks: &[&str]| world.refused("/v1/pools/tank/disks", &json!({"disks": disks}));
    for (path, named) in [(&a.0, &a.0), (&same, &b.part(2))] {
        let error = add(&[path]);
        assert!(message(&error).contains(named.as_str()) && error["code"] == "device_in_use", "{error}");
    }
    if run("mkfs.ext4", &["-q", &a.part(1)]).is_some() {
        let error = add(&[&a.part(1)]);
        assert!(message(&error).contains("ext4") && error["code"] == "foreign_data", "{error}");
        let at = world.folder.path().join("mnt").display().to_string();
        std::fs::create_dir(&at).unwrap();
        if run("mount", &[&a.part(1), &at]).is_some() {
            let _mount = Mount(&at);
            let error = add(&[&a.part(1)]);
            assert!(message(&error).contains(&at) && error["code"] == "device_in_use", "{error}");
        }
    }
    assert_eq!(world.get("/v1/pools/tank/disks")["disks"].as_array().unwrap().len(), 2);

    world.kill();
    world.start();
    assert_eq!(world.get("/v1/status")["health"], "healthy");
    assert!(world.nbd().read(0, content.len()) == content);

    world.kill();
    a.renumber(2, 5);
    b.renumber(2, 6);
    world.start();
    assert_eq!(world.get("/v1/pools")["pools"][0]["state"], "closed");
    // The whole of a disk has the label that is at its end, and is not the disk of the pool.
    let whole = world.refused("/v1/pools/import", &json!({"paths": [a.0, b.0]}));
    assert_eq!(whole["code"], "no_such_pool", "{whole}");
    let import = json!({"paths": [a.part(5), b.part(6)]});
    // What was served is served again.
    let opened = world.post("/v1/pools/import", &import);
    assert!(opened["plan"]["steps"].to_string().contains("serve 1 space over NBD again"), "{opened}");
    assert_eq!(world.get("/v1/status")["health"], "healthy");
    assert!(world.nbd().read(0, content.len()) == content);
    for path in [a.part(5), b.part(6)] {
        assert!(Path::new(&path).exists());
        let disks = world.get("/v1/pools/tank/disks")["disks"].clone();
        assert!(disks.as_array().unwrap().iter().any(|disk| disk["path"] == path), "{disks}");
    }
    world.post("/v1/pools/tank/spaces/m/unserve", &json!({}));
    world.post("/v1/pools/tank/destroy", &json!({"destroy": "tank"}));
}

/// Scenario: a pool has the second partitions of two disks, of which nothing is mounted. Another host, with another state folder, finds
/// it by looking at all of both disks: the whole of a disk does not hide its partitions.
#[test]
fn a_disk_does_not_hide_its_partitions() {
    let world = World::new(0);
    let (Some(a), Some(b)) = (Disk::new(&world, "a"), Disk::new(&world, "b")) else { return };
    let mut stage = (world, a, b);
    let (world, a, b) = (&mut stage.0, &stage.1, &stage.2);
    world.post("/v1/pools", &json!({"name": "tank", "disks": [a.part(2), b.part(2)]}));
    world.post("/v1/pools/tank/export", &json!({}));
    let paths = [&a.0, &b.0, &a.part(2), &b.part(2)];
    world.post("/v1/pools/import", &json!({"pool": "tank", "paths": paths}));
    assert_eq!(world.get("/v1/status")["health"], "healthy");
    let disks = world.get("/v1/pools/tank/disks")["disks"].clone();
    for path in [a.part(2), b.part(2)] {
        assert!(disks.as_array().unwrap().iter().any(|disk| disk["path"] == path), "{disks}");
    }
    world.post("/v1/pools/tank/destroy", &json!({"destroy": "tank"}));
}
