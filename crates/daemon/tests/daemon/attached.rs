//! Attached spaces. They need root, FUSE and loop devices; where one of them is missing the test says so and ends.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::client::{World, eventually, pattern};
use crate::mounts;

/// Takes away what a test that failed would leave.
pub(crate) struct Cleaned<'a> {
    pub(crate) world: &'a mut World,
    pub(crate) mount: std::path::PathBuf,
}

impl Drop for Cleaned<'_> {
    fn drop(&mut self) {
        // Whatever waits is given up first: to unmount would wait with it.
        if !self.world.is_running() {
            self.world.start();
        }
        let detach = "/v1/pools/tank/spaces/m/detach";
        let abandon = br#"{"discard_unflushed": "tank/m"}"#;
        let _ = self.world.try_ask("POST", detach, abandon);
        let _ = Command::new("umount").arg("-l").arg(&self.mount).output();
        let _ = self.world.try_ask("POST", detach, abandon);
        let _ = self.world.try_ask("POST", "/v1/shutdown", b"{}");
        // With the folder gone the descriptor holder, if it is still there, sees the end of its connection.
        let _ = Command::new("umount").arg("-l").arg(self.world.folder.path().join("run/attached")).output();
    }
}

/// Whether the space is attached now and served no more; says why not where the machine cannot.
fn is_attached(world: &World) -> bool {
    world.post("/v1/pools/tank/spaces/m/unserve", &json!({}));
    let (status, answer) = world.try_ask("POST", "/v1/pools/tank/spaces/m/attach", b"{}").unwrap();
    if status == 200 {
        return true;
    }
    let code = &answer["error"]["code"];
    assert!(code == "missing" || code == "permission", "{answer}");
    println!("skipped: {}", answer["error"]["message"]);
    false
}

/// A tank whose mirror is attached, with ext4 that is mounted; says why not where the machine cannot.
pub(crate) fn mounted(world: &mut World) -> Option<Cleaned<'_>> {
    world.make_tank(&["d0", "d1"]);
    if !is_attached(world) {
        return None;
    }
    let (link, mount) = (link_of(world), world.folder.path().join("mnt"));
    std::fs::create_dir(&mount).unwrap();
    let cleaned = Cleaned { world, mount };
    if !run("mkfs.ext4", &[Path::new("-q"), Path::new("-F"), &link]) {
        println!("skipped: mkfs.ext4 is missing");
        return None;
    }
    assert!(run("mount", &[&link, &cleaned.mount]));
    Some(cleaned)
}

pub(crate) fn link_of(world: &World) -> PathBuf {
    world.folder.path().join("dev/tank/m")
}

pub(crate) fn run(program: &str, arguments: &[&Path]) -> bool {
    Command::new(program).args(arguments).output().is_ok_and(|output| output.status.success())
}

#[test]
fn a_mounted_file_system_survives_the_daemon() {
    // Scenario: ext4 on an attached mirror, mounted; the daemon is killed while a file is being written and synced; the
    // next daemon takes it up, the write ends without an error, and what is in use is neither detached nor left behind.
    let _mounts = mounts::mounting();
    let mut world = World::new(2);
    let Some(cleaned) = mounted(&mut world) else { return };
    let (world, mount) = (&mut *cleaned.world, &cleaned.mount);
    let file = mount.join("file").display().to_string();
    let mut writer = Command::new("dd")
        .args(["if=/dev/zero", &format!("of={file}"), "bs=64K", "count=160", "oflag=dsync", "status=none"])
        .spawn()
        .unwrap();
    eventually("the file is being written", || {
        std::fs::metadata(&file).ok().filter(|status| status.len() > 1 << 20)
    });
    world.kill();
    world.start();
    assert!(writer.wait().unwrap().success(), "no error reaches whoever writes");
    let destroy = json!({"destroy": "tank"});
    for (path, request) in [
        ("/v1/pools/tank/spaces/m/detach", &json!({})),
        ("/v1/pools/tank/export", &json!({})),
        ("/v1/pools/tank/destroy", &destroy),
        ("/v1/shutdown", &json!({})),
    ] {
        let error = world.refused(path, request);
        assert_eq!(error["code"], "busy");
        assert!(error["message"].as_str().unwrap().contains(&mount.display().to_string()), "{error}");
    }
    let uses = world.get("/v1/attachments")["attachments"][0]["used_by"].clone();
    assert_eq!(uses.as_array().unwrap().len(), 1, "{uses}");
    // It may get larger as it is; to get smaller again, it has to be detached.
    let larger = json!({"size_bytes": 64 << 20, "dry_run": true});
    let planned = world.post("/v1/pools/tank/spaces/m/resize", &larger);
    let undo = format!("dolmen space detach tank/m, then dolmen space resize tank/m {}", 32 << 20);
    assert_eq!(planned["plan"]["undo"], json!(undo), "{planned}");
    assert!(run("umount", &[mount]));
    assert!(run("fsck.ext4", &[Path::new("-fn"), &link_of(world)]));
    world.post("/v1/pools/tank/spaces/m/detach", &json!({}));
    assert_eq!(world.get("/v1/attachments")["attachments"], json!([]));
    world.post("/v1/shutdown", &json!({}));
    assert!(world.ended().success());
}

/// The answer to an attachment in a way, and whether it came about.
fn attach_by(world: &World, transport: &str) -> (bool, Value) {
    let request = json!({"transport": transport}).to_string();
    let (status, answer) =
        world.try_ask("POST", "/v1/pools/tank/spaces/m/attach", request.as_bytes()).unwrap();
    (status == 200, answer)
}

/// Has a daemon in the place of the one that runs, for which `set` has changed what it finds.
fn restart_with(world: &mut World, set: impl FnOnce(Command) -> Command) {
    let next = set(world.command("state", "run"));
    world.kill();
    world.begin(next);
}

/// The same program, for which `/dev` has everything but one file.
fn without(world: &World, file: &str) -> impl FnOnce(Command) -> Command + use<> {
    let bare = world.folder.path().join("bare");
    std::fs::create_dir_all(&bare).unwrap();
    let script = format!(
        r#"mount -t tmpfs none {bare} && for node in /dev/*; do
               [ -d "$node" ] || [ "$node" = {file} ] || cp -a "$node" {bare} || exit 1
           done && mount --bind {bare} /dev && exec "$0" "$@""#,
        bare = bare.display()
    );
    move |of: Command| {
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", &script]).arg(of.get_program()).args(of.get_args());
        command.env("DOLMEN_LOG", "warn").stdin(Stdio::null());
        command
    }
}

#[test]
fn the_fastest_working_transport_is_chosen_and_named() {
    // Scenario: a space is attached without a word about the way. Expected: by ublk where this kernel has it; by a loop device where
    // not, where the daemon is to use threads, and where the driver's file is hidden from it; each time the answer and the list say
    // which it is, and the answer why it is not a faster one.
    let _mounts = mounts::taking_mounts_along();
    let mut world = World::new(2);
    world.make_tank(&["d0", "d1"]);
    if !is_attached(&world) {
        return;
    }
    let mount = world.folder.path().join("mnt");
    let cleaned = Cleaned { world: &mut world, mount };
    let world = &mut *cleaned.world;
    let detach = |world: &World| world.post("/v1/pools/tank/spaces/m/detach", &json!({}));
    detach(world);
    // What ublk alone says is what the other way says of it.
    let (has_ublk, direct) = attach_by(world, "ublk");
    let why_not = direct["error"]["message"].clone();
    if has_ublk {
        assert_eq!(direct["attachment"]["transport"], "ublk");
        detach(world);
    }
    let expect = |world: &World, transport: &str, why: &Value| {
        let (is_attached, answer) = attach_by(world, "auto");
        assert!(is_attached, "{answer}");
        let reported = &answer["attachment"];
        assert_eq!(
            (&reported["transport"], &reported["not_faster_because"]),
            (&json!(transport), why),
            "{answer}"
        );
        let words = if transport == "ublk" { "by ublk" } else { "by a loop device" };
        assert!(answer["message"].as_str().unwrap().contains(words), "{answer}");
        assert_eq!(world.get("/v1/attachments")["attachments"][0]["transport"], transport);
        let again = attach_by(world, "auto").1;
        assert_eq!(
            (&again["is_changed"], &again["attachment"]["transport"]),
            (&json!(false), &json!(transport))
        );
        detach(world);
    };
    let fastest = if has_ublk { "ublk" } else { "loop" };
    expect(world, fastest, &why_not);
    restart_with(world, |mut command| {
        command.env("DOLMEN_IO", "threads");
        command
    });
    expect(world, "loop", &json!("ublk needs io_uring, and threads were asked for instead"));
    let control = "/dev/ublk-control";
    if has_ublk {
        let hidden = without(world, control);
        restart_with(world, hidden);
        let (is_attached, answer) = attach_by(world, "ublk");
        assert!(!is_attached, "{answer}");
        expect(world, "loop", &answer["error"]["message"]);
    } else {
        println!("skipped: {control} is hidden (there is none: {why_not})");
    }
    restart_with(world, |command| command);
    expect(world, fastest, &why_not);
}

#[test]
fn where_there_is_no_way_nothing_is_attached() {
    // Scenario: a daemon that finds no FUSE is asked for a loop device, or, where there is no ublk either, for whatever works.
    // Expected: it is said what is missing, and nothing is attached.
    let _mounts = mounts::taking_mounts_along();
    let file = "/dev/fuse";
    if !rustix::process::geteuid().is_root() || !Path::new(file).exists() {
        return println!("skipped: {file} cannot be hidden here");
    }
    let mut world = World::new(2);
    world.make_tank(&["d0", "d1"]);
    world.post("/v1/pools/tank/spaces/m/unserve", &json!({}));
    let hidden = without(&world, file);
    restart_with(&mut world, hidden);
    let has_ublk = Path::new("/dev/ublk-control").exists();
    for transport in if has_ublk { &["loop"][..] } else { &["loop", "auto"] } {
        let (is_attached, answer) = attach_by(&world, transport);
        let error = &answer["error"];
        assert!(!is_attached && error["code"] == "missing", "{transport}: {answer}");
        assert!(error["message"].as_str().unwrap().contains(file), "{transport}: {answer}");
        assert_eq!(world.get("/v1/attachments")["attachments"], json!([]));
    }
}

#[test]
fn a_mount_that_a_container_took_along_is_named() {
    // Scenario: ext4 on an attached space is mounted when a container is begun, which gets a mount of its own by that, and unmounted
    // here. The space stays attached, the refusal says who has it and where, and it is detached when the container is gone.
    let _mounts = mounts::taking_mounts_along();
    let mut world = World::new(2);
    let Some(cleaned) = mounted(&mut world) else { return };
    let (world, mount) = (&*cleaned.world, &cleaned.mount);
    let mut container =
        Command::new("unshare").args(["--mount", "cat"]).stdin(Stdio::piped()).spawn().unwrap();
    let pid = container.id();
    let name = format!("in the mount namespace of process {pid} (cat)");
    eventually("the container is there", || {
        let process = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap();
        (process.trim() == "cat").then_some(())
    });
    assert!(run("umount", &[mount]));
    let detach = "/v1/pools/tank/spaces/m/detach";
    for request in [json!({"dry_run": true}), json!({})] {
        let error = world.refused(detach, &request);
        let message = error["message"].as_str().unwrap();
        let is_named = message.contains(&name) && message.contains(&mount.display().to_string());
        assert!(error["code"] == "busy" && is_named, "{error}");
    }
    drop(container.stdin.take());
    assert!(container.wait().unwrap().success());
    world.post(detach, &json!({}));
    assert_eq!(world.get("/v1/attachments")["attachments"], json!([]));
}

#[test]
fn a_space_has_one_way_in_that_writes() {
    // Scenario: a space that is served for writing, as the tank's is, is not attached, one that is attached is not served for writing, and
    // served for reading it is, in either order.
    let _mounts = mounts::mounting();
    let mut world = World::new(2);
    world.make_tank(&["d0", "d1"]);
    let space = |verb: &str| format!("/v1/pools/tank/spaces/m/{verb}");
    let busy = |world: &World, verb: &str| {
        let error = world.refused(&space(verb), &json!({}));
        assert_eq!(error["code"], "busy", "{error}");
        assert!(error["message"].as_str().unwrap().contains("two sides"), "{error}");
    };
    busy(&world, "attach");
    if !is_attached(&world) {
        return;
    }
    let mount = world.folder.path().join("mnt");
    let cleaned = Cleaned { world: &mut world, mount };
    busy(cleaned.world, "serve");
    let read_only = json!({"read_only": true});
    cleaned.world.post(&space("serve"), &read_only);
    cleaned.world.post(&space("detach"), &json!({}));
    cleaned.world.post(&space("attach"), &json!({}));
    cleaned.world.post(&space("detach"), &json!({}));
}

#[test]
fn a_daemon_does_not_wait_for_the_space_of_another_that_was_killed() {
    // Scenario: a space is attached, its daemon is killed, and a read of the device waits for the next one. Another daemon
    // makes a pool meanwhile, and refuses the device as a disk. The read ends when the first daemon is back.
    let _mounts = mounts::mounting();
    let mut world = World::new(2);
    world.make_tank(&["d0", "d1"]);
    if !is_attached(&world) {
        return;
    }
    let link = world.folder.path().join("dev/tank/m");
    let mount = world.folder.path().join("mnt");
    let cleaned = Cleaned { world: &mut world, mount };
    let world = &mut *cleaned.world;
    let device = std::fs::canonicalize(&link).unwrap().display().to_string();
    world.kill();
    let mut reader = Command::new("dd")
        .args([&format!("if={device}"), "of=/dev/null", "bs=64K", "count=16", "iflag=direct", "status=none"])
        .spawn()
        .unwrap();
    let other = World::new(2);
    other.make_tank(&["d0", "d1"]);
    let error = other.refused("/v1/pools", &json!({"name": "pond", "disks": [device]}));
    assert_eq!(error["code"], "unfit_device");
    assert!(error["message"].as_str().unwrap().contains("an attached space"), "{error}");
    assert!(reader.try_wait().unwrap().is_none(), "nobody answers the read");
    world.start();
    assert!(reader.wait().unwrap().success());
    world.post("/v1/pools/tank/spaces/m/detach", &json!({}));
}

#[test]
fn an_attached_space_of_a_closed_pool_is_reported() {
    // Scenario: the daemon is killed, and the disks are away when the next one begins. The status names the device that
    // somebody waits for; with the disks back and the pool imported, it goes on.
    let _mounts = mounts::mounting();
    let mut world = World::new(2);
    world.make_tank(&["d0", "d1"]);
    if !is_attached(&world) {
        return;
    }
    let mount = world.folder.path().join("mnt");
    let cleaned = Cleaned { world: &mut world, mount };
    let world = &mut *cleaned.world;
    let device = std::fs::canonicalize(world.folder.path().join("dev/tank/m")).unwrap().display().to_string();
    let reported = format!("space tank/m is attached as {device}, and its pool is not open");
    assert!(!world.get("/v1/status")["why"].to_string().contains(&reported));
    world.kill();
    let away = world.folder.path().join("away");
    std::fs::rename(world.folder.path().join("disks"), &away).unwrap();
    world.start();
    let status = world.get("/v1/status");
    assert!(status["why"].to_string().contains(&reported), "{status}");
    assert!(status["todo"].to_string().contains("open the pool of tank/m, and it goes on"), "{status}");
    std::fs::rename(&away, world.folder.path().join("disks")).unwrap();
    world.post("/v1/pools/import", &json!({"pool": "tank"}));
    assert!(!world.get("/v1/status")["why"].to_string().contains(&reported));
    world.post("/v1/pools/tank/spaces/m/detach", &json!({}));
}

#[test]
fn a_file_system_waits_for_a_pool_that_does_not_open() {
    // Scenario: ext4 on an attached space, and somebody who writes and syncs. The daemon is killed, and the disks are away when the
    // next one begins: the writer waits. The disks are back, the pool is imported, and the writer sees no error. Then the same, and
    // the pool stays away: what waits is given up, which is refused while the file system is mounted and lets the writer end with an
    // error; unmounted, the space is detached.
    let _mounts = mounts::mounting();
    let mut world = World::new(2);
    let Some(cleaned) = mounted(&mut world) else { return };
    let (world, mount) = (&mut *cleaned.world, &cleaned.mount);
    let file = mount.join("file").display().to_string();
    let begun = |world: &mut World| {
        let _ = std::fs::remove_file(&file);
        let writer = Command::new("dd")
            .args([
                "if=/dev/zero",
                &format!("of={file}"),
                "bs=64K",
                "count=160",
                "oflag=dsync",
                "status=none",
            ])
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        eventually("the file is being written", || {
            std::fs::metadata(&file).ok().filter(|status| status.len() > 1 << 20)
        });
        world.kill();
        let (disks, away) = (world.folder.path().join("disks"), world.folder.path().join("away"));
        std::fs::rename(disks, away).unwrap();
        world.start();
        assert_eq!(world.get("/v1/pools")["pools"][0]["state"], "closed");
        writer
    };
    let mut writer = begun(world);
    let reported = world.get("/v1/status")["why"].to_string();
    assert!(reported.contains("its pool is not open: what is asked of it waits"), "{reported}");
    assert!(writer.try_wait().unwrap().is_none(), "the writer waits");
    std::fs::rename(world.folder.path().join("away"), world.folder.path().join("disks")).unwrap();
    world.post("/v1/pools/import", &json!({"pool": "tank"}));
    assert!(writer.wait().unwrap().success(), "no error reaches whoever writes");
    assert_eq!(std::fs::metadata(&file).unwrap().len(), 160 << 16);

    let mut writer = begun(world);
    let (detach, abandon) = ("/v1/pools/tank/spaces/m/detach", json!({"discard_unflushed": "tank/m"}));
    let error = world.refused(detach, &json!({}));
    assert!(error["message"].as_str().unwrap().contains("pool tank is not open"), "{error}");
    let mut dry = abandon.clone();
    dry["dry_run"] = json!(true);
    let error = world.refused(detach, &dry);
    assert!(error["message"].as_str().unwrap().contains(&mount.display().to_string()), "{error}");
    assert!(writer.try_wait().unwrap().is_none(), "a dry run gives up nothing");
    let error = world.refused(detach, &abandon);
    assert!(error["message"].as_str().unwrap().contains(&mount.display().to_string()), "{error}");
    assert!(error["hint"].as_str().unwrap().contains("unmount it, then ask for this again"), "{error}");
    assert!(!writer.wait().unwrap().success());
    assert!(run("umount", &[mount]));
    world.post(detach, &abandon);
    assert_eq!(world.get("/v1/attachments")["attachments"], json!([]));
    std::fs::rename(world.folder.path().join("away"), world.folder.path().join("disks")).unwrap();
    world.post("/v1/pools/import", &json!({"pool": "tank"}));
}

#[test]
fn a_file_system_does_not_go_on_over_what_others_have_changed() {
    // Scenario: ext4 on an attached space is mounted, and the daemon killed. Another daemon imports the pool, writes to the space, and
    // exports it. The first one is started again: it does not open the pool by itself, and refuses to as long as the old device is
    // there. That is given up, unmounted and detached; then the pool is opened, with what the other wrote.
    let _mounts = mounts::mounting();
    let mut world = World::new(2);
    let Some(cleaned) = mounted(&mut world) else { return };
    let (world, mount) = (&mut *cleaned.world, &cleaned.mount);
    assert!(run("sync", &[Path::new("-f"), mount]));
    world.kill();
    let other = World::new(0);
    let import = json!({"paths": [world.disk("d0"), world.disk("d1")]});
    other.post("/v1/pools/import", &import);
    other.post("/v1/pools/tank/spaces/m/serve", &json!({}));
    let content = pattern(8, 1 << 20);
    other.nbd().write(0, &content);
    other.nbd().flush();
    other.post("/v1/pools/tank/spaces/m/unserve", &json!({}));
    other.post("/v1/pools/tank/export", &json!({}));

    world.start();
    let pool = world.get("/v1/pools")["pools"][0].clone();
    assert_eq!(pool["state"], "closed", "{pool}");
    assert!(pool["state_cause"].as_str().unwrap().contains("was exported since it was open here"), "{pool}");
    let todo = world.get("/v1/status")["todo"].to_string();
    assert!(todo.contains("`dolmen pool import --pool tank` opens it"), "{todo}");
    let error = world.refused("/v1/pools/import", &json!({"pool": "tank"}));
    assert!(error["message"].as_str().unwrap().contains("space tank/m is attached here as /dev/"), "{error}");
    assert!(error["hint"].as_str().unwrap().contains("--discard-unflushed=tank/m"), "{error}");
    let (detach, abandon) = ("/v1/pools/tank/spaces/m/detach", json!({"discard_unflushed": "tank/m"}));
    world.refused(detach, &abandon);
    assert!(run("umount", &[mount]));
    world.refused("/v1/pools/import", &json!({"pool": "tank"}));
    world.post(detach, &abandon);
    world.post("/v1/pools/import", &json!({"pool": "tank"}));
    world.post("/v1/pools/tank/spaces/m/serve", &json!({}));
    assert!(world.nbd().read(0, content.len()) == content);
}
