//! Two daemons that cannot see each other, over the disks of one pool.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::json;

use crate::client::{IN_A_CONTAINER, Numbering, World, pattern};
use crate::mounts;

const SEEN: &str = "in use by process ";
const UNSEEN: &str = "in use by a process that cannot be seen from here";

fn has_succeeded(command: &mut Command) -> bool {
    command.output().is_ok_and(|output| output.status.success())
}

/// A file system of its own, taken down in the end.
struct Mount(PathBuf);

impl Mount {
    /// One of the kind, over a folder that is empty; `None` where the system does not let it.
    fn over(folder: &Path, kind: &str) -> Option<Self> {
        let image = tempfile::NamedTempFile::new().unwrap();
        image.as_file().set_len(1 << 30).unwrap();
        let is_made = has_succeeded(Command::new(format!("mkfs.{kind}")).arg("-q").arg(image.path()));
        let mut mount = Command::new("mount");
        mount.args(["-o", "loop", "-t", kind]).args([image.path(), folder]);
        if !is_made || !has_succeeded(&mut mount) {
            println!("skipped on {kind}: that takes mkfs.{kind}, root, loop devices and the right to mount");
            return None;
        }
        Some(Self(folder.to_path_buf()))
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        has_succeeded(Command::new("umount").arg("--lazy").arg(&self.0));
    }
}

/// Scenario: the pool was opened with one of two disks, elsewhere, while this daemon was away and that disk was all there was.
/// Back with both, this daemon's own record would let it go on with the other one alone, beside a living owner of the first.
fn not_opened_concurrently(mut first: World, mut second: World, by: &str) {
    // The disk that is away comes back, and is to stay free.
    second.leave_returned_disks();
    first.make_tank(&["d0", "d1"]);
    first.nbd().write(0, &pattern(3, 1 << 20));
    first.nbd().flush();
    first.kill();
    let away = first.folder.path().join("disks/away");
    std::fs::create_dir(&away).unwrap();
    std::fs::rename(first.disk("d0"), away.join("d0")).unwrap();
    let import = json!({"paths": [first.disk("d1")], "mode": "confirmed"});
    second.post("/v1/pools/import", &import);
    std::fs::rename(away.join("d0"), first.disk("d0")).unwrap();
    first.start();
    let pool = first.get("/v1/pools")["pools"][0].clone();
    assert_eq!(pool["state"], "closed", "{pool}");
    assert!(pool["state_cause"].as_str().unwrap().contains("in other hands on this host"), "{pool}");
    let refused = first.refused("/v1/pools/import", &json!({"paths": [first.disk("d0"), first.disk("d1")]}));
    assert_eq!(refused["code"], "device_in_use", "{refused}");
    let cause = refused["causes"][0].as_str().unwrap();
    assert!(cause.contains(&first.disk("d1")) && cause.contains(by), "{refused}");
    second.post("/v1/pools/tank/spaces/m/serve", &json!({}));
    assert!(second.nbd().read(0, 1 << 20) == pattern(3, 1 << 20));
}

fn can_be_contained() -> bool {
    let can = has_succeeded(Command::new("unshare").args(IN_A_CONTAINER).arg("true"));
    if !can {
        println!("skipped: a namespace of process numbers needs root, and unshare");
    }
    can
}

#[test]
fn a_pool_of_which_another_container_holds_a_disk_is_not_opened_without_it() {
    let _mounts = mounts::taking_mounts_along();
    if can_be_contained() {
        // Whoever stands outside sees into a container, and nobody out of it.
        not_opened_concurrently(World::new(2), World::numbered(0, Numbering::Own), SEEN);
        not_opened_concurrently(World::numbered(2, Numbering::Own), World::new(0), UNSEEN);
        not_opened_concurrently(
            World::numbered(2, Numbering::Own),
            World::numbered(0, Numbering::Own),
            UNSEEN,
        );
    }
}

#[test]
fn a_pool_of_which_another_holds_a_disk_on_btrfs_is_not_opened_without_it() {
    let _mounts = mounts::mounting();
    let first = World::new(0);
    let Some(_mount) = Mount::over(&first.folder.path().join("disks"), "btrfs") else { return };
    for name in ["d0", "d1"] {
        first.make_disk(name, 256 << 20);
    }
    let second = World::new(0);
    not_opened_concurrently(first, second, UNSEEN);
}

#[test]
fn commands_of_a_contained_daemon_that_has_ended_keep_nobody_out() {
    // Scenario: a daemon in a container is killed, and the next one, in another, finds all as it was.
    let _mounts = mounts::taking_mounts_along();
    if !can_be_contained() {
        return;
    }
    let mut world = World::numbered(2, Numbering::Own);
    world.make_tank(&["d0", "d1"]);
    world.nbd().write(0, &pattern(4, 1 << 20));
    world.kill();
    world.start();
    assert_eq!(world.get("/v1/status")["health"], "healthy");
    assert!(world.nbd().read(0, 1 << 20) == pattern(4, 1 << 20));
}
