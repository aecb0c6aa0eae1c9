//! The program on loop devices, with the tools of this machine.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout)]

mod rig;

use std::fs::{self, File};
use std::io::{Seek as _, SeekFrom, Write as _};
use std::num::NonZeroU32;
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Child, Command, Stdio};

use dolmen_volume::record::QuotaRecord;
use dolmen_worker::protocol::{FailureCode, Operation, Order, Outcome, Volume};
use rig::{MIB, Rig, work};

/// Whether this process may grow a mounted ext4.
fn may_grow_ext4() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:")).unwrap();
    let cap_sys_resource = 24;
    u64::from_str_radix(effective.trim(), 16).unwrap() >> cap_sys_resource & 1 == 1
}

fn a_volume_lives(kind: &'static str) {
    let Some(rig) = Rig::made(kind) else { return };
    let volume = rig.volume();
    let mount = || rig.run(Operation::Mount { volume: volume.clone() });
    let unmount = || rig.run(Operation::Unmount { volume: volume.clone() });
    assert_eq!(mount(), Ok(Outcome::Done));
    assert_eq!(mount(), Ok(Outcome::WasDone));
    fs::write(rig.path("home/file"), vec![7; 1 << 20]).unwrap();
    let total = || match rig.run(Operation::Usage { volume: volume.clone() }) {
        Ok(Outcome::Usage(usage)) if usage.free < usage.total => usage.total,
        other => panic!("{other:?}"),
    };
    let before = total();
    File::options().write(true).open(&rig.image).unwrap().set_len(800 * MIB).unwrap();
    assert!(Command::new("losetup").arg("-c").arg(&rig.device).status().unwrap().success());
    let grows = kind != "ext4" || may_grow_ext4();
    if !grows {
        println!("skipped: a mounted ext4 grows with CAP_SYS_RESOURCE alone");
    }
    for _ in 0..if grows { 2 } else { 0 } {
        assert_eq!(rig.run(Operation::Grow { volume: volume.clone() }), Ok(Outcome::Done));
    }
    assert!(!grows || total() > before + 300 * MIB, "{before}");
    let trimmed = rig.run(Operation::Trim { volume: volume.clone(), minimum: 4096 });
    assert!(matches!(trimmed, Ok(Outcome::Trimmed { bytes }) if bytes > 0), "{trimmed:?}");
    let check = |repair| rig.run(Operation::Check { volume: volume.clone(), repair, drop_log: false });
    assert_eq!(check(false).unwrap_err().code, FailureCode::InUse);
    assert_eq!(unmount(), Ok(Outcome::Done));
    assert_eq!(unmount(), Ok(Outcome::WasDone));
    let checked = check(false);
    assert!(matches!(checked, Ok(Outcome::Checked { code: 0, .. })), "{checked:?}");
    assert_eq!(
        rig.run(Operation::Trim { volume: volume.clone(), minimum: 0 }).unwrap_err().code,
        FailureCode::InUse
    );
    assert_eq!(mount(), Ok(Outcome::Done));
    assert_eq!(fs::read(rig.path("home/file")).unwrap(), vec![7; 1 << 20]);
    assert_eq!(unmount(), Ok(Outcome::Done));
}

#[test]
fn a_volume_on_xfs_is_made_mounted_grown_trimmed_and_checked() {
    a_volume_lives("xfs");
}

#[test]
fn a_volume_on_btrfs_is_made_mounted_grown_trimmed_and_checked() {
    a_volume_lives("btrfs");
}

#[test]
fn a_volume_on_ext4_is_made_mounted_grown_trimmed_and_checked() {
    a_volume_lives("ext4");
}

#[test]
fn nothing_is_mounted_over_what_is_there() {
    // Scenario: a folder with a file; a symbolic link on the way; a file; the volume mounted elsewhere; another mount there.
    let Some(rig) = Rig::made("xfs") else { return };
    let mount = |name: &str| rig.run(Operation::Mount { volume: rig.volume_at("ready", name) });
    fs::create_dir(rig.path("full")).unwrap();
    fs::write(rig.path("full/kept"), b"x").unwrap();
    let refused = mount("full").unwrap_err();
    assert!(refused.code == FailureCode::InUse && refused.message.contains("kept"), "{refused}");
    std::os::unix::fs::symlink(rig.path("full"), rig.path("link")).unwrap();
    for name in ["link", "link/below"] {
        let refused = mount(name).unwrap_err();
        assert!(refused.code == FailureCode::BadPath && refused.message.contains("\"link\""), "{refused}");
    }
    assert_eq!(mount("full/kept").unwrap_err().code, FailureCode::BadPath);
    assert_eq!(mount("elsewhere"), Ok(Outcome::Done));
    let refused = mount("home").unwrap_err();
    assert!(refused.code == FailureCode::InUse && refused.message.contains("elsewhere"), "{refused}");
    assert!(!rig.path("home").exists());
    let other = Rig::made("ext4").unwrap();
    let mut over = other.volume();
    over.record.mount_point = rig.path("elsewhere").to_str().unwrap().parse().unwrap();
    let refused = other.run(Operation::Mount { volume: over.clone() }).unwrap_err();
    assert_eq!(refused.code, FailureCode::InUse);
    assert_eq!(other.run(Operation::Unmount { volume: over }), Ok(Outcome::WasDone));
    assert!(mount("elsewhere") == Ok(Outcome::WasDone));
}

#[test]
fn a_volume_in_use_stays_mounted_and_another_file_system_is_not_mounted() {
    let Some(rig) = Rig::made("xfs") else { return };
    assert_eq!(rig.run(Operation::Mount { volume: rig.volume() }), Ok(Outcome::Done));
    let held = File::create(rig.path("home/held")).unwrap();
    let refused = rig.run(Operation::Unmount { volume: rig.volume() }).unwrap_err();
    assert_eq!(refused.code, FailureCode::InUse);
    drop(held);
    assert_eq!(rig.run(Operation::Unmount { volume: rig.volume() }), Ok(Outcome::Done));
    let mut other = rig.volume();
    other.record.uuid = "7f8e2c1a-0b7d-4a55-9a1e-52d0a3c4b5e7".parse().unwrap();
    let refused = rig.run(Operation::Mount { volume: other }).unwrap_err();
    assert!(refused.code == FailureCode::ForeignData && refused.message.contains(&rig.uuid), "{refused}");
    let making = rig.volume_at("making", "home");
    assert!(rig.run(Operation::Mount { volume: making }).is_err());
}

#[test]
fn a_device_with_the_number_of_the_one_meant_is_left_alone() {
    // Scenario: before an order is carried out, the number of its loop device shows another image, whose ends are zeros.
    let (Some(rig), Some(other)) = (Rig::new("ext4"), Rig::new("ext4")) else { return };
    let mut image = File::options().write(true).open(other.path("image")).unwrap();
    image.seek(SeekFrom::Start(200 * MIB)).unwrap();
    image.write_all(b"of another space").unwrap();
    image.sync_all().unwrap();
    let before = fs::read(other.path("image")).unwrap();
    let volume = Volume { device: other.device.clone(), ..rig.volume_at("making", "home") };
    let orders = [
        Operation::Make { volume: volume.clone() },
        Operation::Check { volume: rig_meant(&volume, "ready"), repair: true, drop_log: false },
        Operation::Mount { volume: rig_meant(&volume, "ready") },
        Operation::Make { volume: Volume { incarnation: None, ..volume } },
    ];
    for order in orders {
        let refused = rig.run(order.clone()).expect_err("an order took another device");
        assert!(
            refused.code == FailureCode::ForeignData && refused.message.contains("another device"),
            "{order:?} took another device: {refused}"
        );
    }
    assert!(fs::read(other.path("image")).unwrap() == before, "another image was changed");
}

fn rig_meant(volume: &Volume, state: &str) -> Volume {
    let mut volume = volume.clone();
    volume.record.state = serde_json::from_value(state.into()).unwrap();
    volume
}

/// Waits for something that other processes do, for half a minute at most.
fn wait_until(mut is_so: impl FnMut() -> bool, what: &str) {
    for _ in 0..3000 {
        if is_so() {
            return;
        }
        std::thread::park_timeout(std::time::Duration::from_millis(10));
    }
    panic!("{what} did not come");
}

/// Scenario: a process in a mount namespace of its own keeps the mount that the host takes off.
fn a_mount_of_a_container_is_not_checked(kind: &'static str, repair: bool) {
    let Some(rig) = Rig::made(kind) else { return };
    assert_eq!(rig.run(Operation::Mount { volume: rig.volume() }), Ok(Outcome::Done));
    let ready = rig.path("ready");
    let script = format!("touch {} && exec sleep 60", ready.display());
    let mut container = Command::new("unshare");
    let container = container.args(["-m", "--propagation", "private", "sh", "-c", &script]);
    let mut container = container.spawn().unwrap();
    wait_until(|| ready.exists(), "the container");
    assert_eq!(rig.run(Operation::Unmount { volume: rig.volume() }), Ok(Outcome::Done));
    let check = || rig.run(Operation::Check { volume: rig.volume(), repair, drop_log: false });
    let checked = check();
    container.kill().unwrap();
    container.wait().unwrap();
    let refused = checked.expect_err("a mounted file system was checked");
    let process = format!("process {} (sleep)", container.id());
    assert!(refused.code == FailureCode::InUse && refused.message.contains(&process), "{refused}");
    wait_until(|| matches!(check(), Ok(Outcome::Checked { code: 0, .. })), "a clean check");
}

#[test]
fn a_btrfs_that_a_container_has_mounted_is_not_repaired() {
    a_mount_of_a_container_is_not_checked("btrfs", true);
}

#[test]
fn an_xfs_that_a_container_has_mounted_is_not_checked() {
    a_mount_of_a_container_is_not_checked("xfs", false);
}

/// Puts a script in the place of a tool, for [`with_tools`].
#[test]
fn a_scrub_of_a_mounted_btrfs_names_the_file_of_a_bad_block() {
    // Scenario: a btrfs is scrubbed while it is whole; then a block of a file is overwritten on the device. Expected: the second scrub
    // counts it, and names the file where the kernel's log can be read. An XFS has no scrub.
    let Some(rig) = Rig::made("btrfs") else { return };
    let mount = || rig.run(Operation::Mount { volume: rig.volume() });
    let scrubbed = || match rig.run(Operation::Scrub { volume: rig.volume() }) {
        Ok(Outcome::Scrubbed(found)) => found,
        other => panic!("{other:?}"),
    };
    assert_eq!(mount(), Ok(Outcome::Done));
    let content: Vec<u8> = (0..16 << 10).flat_map(|word: u32| word.to_le_bytes()).collect();
    fs::create_dir(rig.path("home/docs")).unwrap();
    fs::write(rig.path("home/docs/a (b)"), &content).unwrap();
    rustix::fs::syncfs(File::open(rig.path("home")).unwrap()).unwrap();
    let whole = scrubbed();
    assert!(whole.bytes >= 64 << 10 && !whole.stopped, "{whole:?}");
    assert_eq!((whole.checksum_errors, whole.uncorrectable), (0, 0), "{whole:?}");
    assert_eq!(rig.run(Operation::Unmount { volume: rig.volume() }), Ok(Outcome::Done));
    let image = fs::read(&rig.device).unwrap();
    let place =
        image.windows(content.len()).position(|part| part == content).expect("the file lies in one piece");
    let mut device = File::options().write(true).open(&rig.device).unwrap();
    device.seek(SeekFrom::Start(u64::try_from(place).unwrap() + 100)).unwrap();
    device.write_all(b"bad").unwrap();
    device.sync_all().unwrap();
    drop(device);
    assert_eq!(mount(), Ok(Outcome::Done));
    let found = scrubbed();
    assert!(found.checksum_errors >= 1 && found.uncorrectable >= 1, "{found:?}");
    match fs::File::open("/dev/kmsg") {
        Ok(_) => assert!(found.messages.iter().any(|line| line.ends_with("(path: docs/a (b))")), "{found:?}"),
        Err(error) => println!("skipped: the log of the kernel cannot be read: {error}"),
    }
    let Some(other) = Rig::made("xfs") else { return };
    assert_eq!(other.run(Operation::Mount { volume: other.volume() }), Ok(Outcome::Done));
    let refused = other.run(Operation::Scrub { volume: other.volume() }).unwrap_err();
    assert_eq!(refused.code, FailureCode::Unsupported);
}

#[test]
fn a_log_that_no_mount_replays_is_dropped_when_that_is_asked_for_alone() {
    // Scenario: an XFS is shut down with changes in its log, and unmounted. A check and a repair say so and change nothing; a repair
    // that drops the log is followed by a clean check.
    let Some(rig) = Rig::made("xfs") else { return };
    if Command::new("xfs_io").arg("-V").output().is_err() {
        println!("skipped: that takes xfs_io");
        return;
    }
    assert_eq!(rig.run(Operation::Mount { volume: rig.volume() }), Ok(Outcome::Done));
    fs::write(rig.path("home/file"), vec![7; 1 << 20]).unwrap();
    rustix::fs::syncfs(File::open(rig.path("home")).unwrap()).unwrap();
    let down = Command::new("xfs_io").args(["-x", "-c", "shutdown"]).arg(rig.path("home")).status().unwrap();
    assert!(down.success());
    assert_eq!(rig.run(Operation::Unmount { volume: rig.volume() }), Ok(Outcome::Done));
    let run = |repair, drop_log| match rig.run(Operation::Check { volume: rig.volume(), repair, drop_log }) {
        Ok(Outcome::Checked { code, text }) => (code, text),
        other => panic!("{other:?}"),
    };
    for (repair, expected) in [(false, 1), (true, 2), (false, 1)] {
        let (code, text) = run(repair, false);
        let has_log = text.contains("valuable metadata changes in a log");
        assert!(code == expected && has_log, "a repair dropped the log unasked: {code}\n{text}");
    }
    assert_eq!(run(true, true).0, 0);
    assert_eq!(run(false, false).0, 0);
}

fn tool(rig: &Rig, name: &str, script: &str) {
    fs::create_dir_all(rig.path("tools")).unwrap();
    let path = rig.path("tools").join(name);
    fs::write(&path, format!("#!/bin/sh\n{script}")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
}

/// Starts the program where scripts are its tools, in a mount namespace of its own. Commands of a shell follow it there.
fn with_tools(rig: &Rig, operation: Operation, after: &str) -> Child {
    let order = Order { lock: rig.path("lock"), operation };
    let run = if after.is_empty() { "exec \"$0\"".to_owned() } else { format!("\"$0\"; {after}") };
    let script = format!("mount --bind {} /usr/local/sbin && {run}", rig.path("tools").display());
    let mut worker = Command::new("unshare")
        .args(["-m", "--propagation", "private", "sh", "-c", &script, env!("CARGO_BIN_EXE_dolmen-worker")])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    worker.stdin.take().unwrap().write_all(&serde_json::to_vec(&order).unwrap()).unwrap();
    worker
}

#[test]
fn a_mount_point_that_is_moved_under_a_mount_gets_no_other_folder() {
    // Scenario: a folder above the mount point is replaced by a link, between the look at it and mount(2).
    let Some(rig) = Rig::made("ext4") else { return };
    let (parent, victim) = (rig.path("parent"), rig.path("victim"));
    fs::create_dir_all(victim.join("home")).unwrap();
    let (parent, victim) = (parent.display(), victim.display());
    let seen = rig.path("seen");
    let look = format!(
        "grep ' {}/[pv]' /proc/self/mountinfo",
        rig.path("").display().to_string().trim_end_matches('/')
    );
    let swap = format!("mv {parent} {parent}.moved && ln -s {victim} {parent}");
    tool(&rig, "mount", &format!("{swap}\n/bin/mount \"$@\"\n{look} > {}\n", seen.display()));
    let volume = rig.volume_at("ready", "parent/home");
    let worker = with_tools(&rig, Operation::Mount { volume }, &format!("{look}; true"));
    let output = worker.wait_with_output().unwrap();
    let output = String::from_utf8(output.stdout).unwrap();
    let seen = fs::read_to_string(&seen).unwrap();
    assert!(
        seen.contains("/parent.moved/home ") && !seen.contains("victim"),
        "it was mounted by its path: {seen}"
    );
    assert!(output.contains("\"in_use\""), "{output}");
    assert_eq!(output.lines().count(), 1, "a mount that is not at its path stays: {output}");
}

#[test]
fn an_unmount_whose_path_leads_elsewhere_leaves_that_alone() {
    // Scenario: the folder above a mounted volume is covered by another one, so that the path leads to a folder there.
    let Some(rig) = Rig::made("ext4") else { return };
    let volume = rig.volume_at("ready", "parent/home");
    assert_eq!(rig.run(Operation::Mount { volume: volume.clone() }), Ok(Outcome::Done));
    fs::create_dir_all(rig.path("other/home")).unwrap();
    let (parent, other, called) = (rig.path("parent"), rig.path("other"), rig.path("called"));
    let bind = Command::new("mount").arg("--bind").arg(&other).arg(&parent).status().unwrap();
    assert!(bind.success());
    tool(&rig, "umount", &format!("echo \"$*\" > {}\n", called.display()));
    let worker = with_tools(&rig, Operation::Unmount { volume: volume.clone() }, "");
    let output = String::from_utf8(worker.wait_with_output().unwrap().stdout).unwrap();
    assert!(Command::new("umount").arg(&parent).status().unwrap().success());
    let is_called = called.exists();
    assert_eq!(rig.run(Operation::Unmount { volume }), Ok(Outcome::Done));
    assert!(!is_called, "what the path leads to was unmounted: {output}");
    assert!(output.contains("leads to another mount"), "{output}");
}

#[test]
fn a_mount_that_is_refused_leaves_no_folder() {
    // Scenario: the device has another file system than the record; a folder on the way is no folder; mount(8) fails.
    let Some(rig) = Rig::made("ext4") else { return };
    fs::create_dir(rig.path("kept")).unwrap();
    fs::write(rig.path("kept/file"), b"x").unwrap();
    let mut other = rig.volume_at("ready", "kept/a/b");
    other.record.uuid = "7f8e2c1a-0b7d-4a55-9a1e-52d0a3c4b5e7".parse().unwrap();
    let refused = rig.run(Operation::Mount { volume: other }).unwrap_err();
    assert_eq!(refused.code, FailureCode::ForeignData, "{refused}");
    assert!(!rig.path("kept/a").exists(), "a mount that was refused left a folder");
    rig.run(Operation::Mount { volume: rig.volume_at("ready", "kept/file/a") }).unwrap_err();
    tool(&rig, "mount", "echo planted >&2; exit 32\n");
    let volume = rig.volume_at("ready", "kept/a/b");
    let output = with_tools(&rig, Operation::Mount { volume }, "").wait_with_output().unwrap();
    let output = String::from_utf8(output.stdout).unwrap();
    assert!(output.contains("planted"), "{output}");
    assert!(
        !rig.path("kept/a").exists() && rig.path("kept").exists(),
        "a mount that was refused left a folder"
    );
}

#[test]
fn the_tool_of_a_killed_worker_keeps_its_volume() {
    // Scenario: a worker is killed within a repair; the tool that it started goes on.
    let Some(rig) = Rig::made("ext4") else { return };
    let pid = rig.path("pid");
    let script = format!("echo $$ > {0}.new\nmv {0}.new {0}\nexec sleep 60\n", pid.display());
    tool(&rig, "e2fsck", &script);
    let repair = Operation::Check { volume: rig.volume(), repair: true, drop_log: false };
    let mut worker = with_tools(&rig, repair, "");
    wait_until(|| pid.exists(), "the repair");
    worker.kill().unwrap();
    worker.wait().unwrap();
    let mounted = rig.run(Operation::Mount { volume: rig.volume() });
    let tool = fs::read_to_string(&pid).unwrap();
    assert!(Command::new("kill").args(["-9", tool.trim()]).status().unwrap().success());
    let refused = mounted.expect_err("a volume was mounted while a tool repairs it");
    assert_eq!(refused.code, FailureCode::Busy, "{refused}");
    wait_until(|| rig.run(Operation::Mount { volume: rig.volume() }) == Ok(Outcome::Done), "the mount");
}

#[test]
fn two_workers_never_have_one_volume_and_nonsense_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let lock = folder.path().join("lock");
    let held = File::create(&lock).unwrap();
    rustix::fs::flock(&held, rustix::fs::FlockOperation::NonBlockingLockExclusive).unwrap();
    let order = Order { lock, operation: Operation::Probe { device: "/dev/null".into() } };
    let (is_done, output) = work(&serde_json::to_vec(&order).unwrap());
    assert!(!is_done && output.contains("\"busy\""), "{output}");
    for nonsense in
        ["", "{}", "{\"lock\": 7}", "\u{0}", "{\"lock\":\"/x\",\"operation\":{\"do\":\"format\"}}"]
    {
        let (is_done, output) = work(nonsense.as_bytes());
        assert!(!is_done && output.contains("bad_order"), "{nonsense}: {output}");
    }
}

#[test]
fn a_quota_of_btrfs_bounds_a_folder_until_it_is_removed() {
    // Scenario: a quota of 20 MiB makes a subvolume; it is set again; 30 MiB are written; it is raised, listed and removed.
    let Some(rig) = Rig::made("btrfs") else { return };
    assert_eq!(rig.run(Operation::Mount { volume: rig.volume() }), Ok(Outcome::Done));
    let quota = |folder: &str, limit: Option<u64>, number: u32| QuotaRecord {
        folder: folder.parse().unwrap(),
        limit_bytes: limit,
        limit_files: None,
        project_id: NonZeroU32::new(number).unwrap(),
        is_pending: false,
        is_being_removed: false,
        unknown: Default::default(),
    };
    let set = |quota: QuotaRecord| rig.run(Operation::QuotaSet { volume: rig.volume(), quota });
    let Ok(Outcome::QuotaSet { project_id, skipped }) = set(quota("docs", Some(20 * MIB), 1)) else {
        panic!()
    };
    assert_eq!(set(quota("docs", Some(20 * MIB), 1)), Ok(Outcome::QuotaSet { project_id, skipped }));
    let fill = |name: &str, mib: usize| {
        let written = fs::write(rig.path("home/docs").join(name), vec![7; mib << 20]);
        written.and_then(|()| File::open(rig.path("home/docs").join(name))?.sync_all())
    };
    fill("small", 5).unwrap();
    assert!(fill("large", 30).is_err());
    fs::remove_file(rig.path("home/docs/large")).unwrap();
    let list = || match rig.run(Operation::QuotaList {
        volume: rig.volume(),
        quotas: vec![quota("docs", None, project_id.get())],
    }) {
        Ok(Outcome::Quotas { quotas }) => quotas[0].clone(),
        other => panic!("{other:?}"),
    };
    let found = list();
    assert_eq!((found.limit_bytes, found.limit_files, found.files), (Some(20 * MIB), None, None));
    assert!(found.bytes.is_some_and(|bytes| (5 * MIB..7 * MIB).contains(&bytes)), "{found:?}");
    let remove = || {
        let quota = quota("docs", None, project_id.get());
        rig.run(Operation::QuotaRemove { volume: rig.volume(), quota })
    };
    assert_eq!(remove(), Ok(Outcome::Done));
    assert_eq!(remove(), Ok(Outcome::WasDone));
    assert_eq!(list().limit_bytes, None);
    fill("large", 30).unwrap();
    fs::create_dir(rig.path("home/plain")).unwrap();
    let refused = |quota| set(quota).unwrap_err();
    let failure = refused(quota("plain", Some(MIB), 1));
    assert!(failure.code == FailureCode::Unsupported && failure.message.contains("subvolume"), "{failure}");
    assert_eq!(refused(quota("none/below", Some(MIB), 1)).code, FailureCode::BadPath);
    let files = QuotaRecord { limit_files: Some(5), ..quota("more", Some(MIB), 1) };
    assert_eq!(refused(files).code, FailureCode::Unsupported);
    assert!(!rig.path("home/more").exists());
}

fn a_quota_of_projects_bounds_a_folder(kind: &'static str) {
    // Scenario: a quota for a folder with files, on a kernel with project quotas or without. Expected: it bounds the folder; or a
    // failure says what is missing, and no folder was made.
    let Some(rig) = Rig::made(kind) else { return };
    let mut volume = rig.volume();
    volume.record.mount_options = vec!["prjquota".parse().unwrap()];
    let is_mounted = rig.run(Operation::Mount { volume: volume.clone() }).is_ok();
    if !is_mounted {
        volume = rig.volume();
        assert_eq!(rig.run(Operation::Mount { volume: volume.clone() }), Ok(Outcome::Done));
    }
    let quota = QuotaRecord {
        folder: "docs".parse().unwrap(),
        limit_bytes: Some(20 * MIB),
        limit_files: Some(10),
        project_id: NonZeroU32::new(7).unwrap(),
        is_pending: false,
        is_being_removed: false,
        unknown: Default::default(),
    };
    match rig.run(Operation::QuotaSet { volume: volume.clone(), quota: quota.clone() }) {
        Ok(outcome) => assert_eq!(
            outcome,
            Outcome::QuotaSet { project_id: quota.project_id, skipped: Default::default() }
        ),
        Err(failure) => {
            println!("skipped: {failure}");
            assert!(
                failure.code == FailureCode::Unsupported && failure.hint.contains("QUOTA"),
                "{failure:?}"
            );
            assert!(!rig.path("home/docs").exists());
            return;
        }
    }
    fs::write(rig.path("home/docs/small"), vec![7; 5 << 20]).unwrap();
    let large = fs::write(rig.path("home/docs/large"), vec![7; 30 << 20]);
    assert!(large.is_err());
    assert_eq!(rig.run(Operation::QuotaRemove { volume: volume.clone(), quota }), Ok(Outcome::Done));
    fs::write(rig.path("home/docs/large"), vec![7; 30 << 20]).unwrap();
}

#[test]
fn a_quota_of_xfs_bounds_a_folder_or_says_what_is_missing() {
    a_quota_of_projects_bounds_a_folder("xfs");
}

#[test]
fn a_quota_of_ext4_bounds_a_folder_or_says_what_is_missing() {
    a_quota_of_projects_bounds_a_folder("ext4");
}
