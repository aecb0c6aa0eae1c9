//! Attached spaces against the real kernel: ublk devices, ext4, and a daemon that is killed under them.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::print_stdout, clippy::print_stderr)]

mod support;

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::Ordering;
use std::time::Duration;

use dolmen_attach::{Access, Fault, Holder};
use dolmen_ublk::{Abandoned, AttachError, ClearError, DEVICES_MAX, DetachError};
use dolmen_units::Bytes;
use support::{Rig, eventually, key, run, wanted};

const MIB: u64 = 1 << 20;

fn attribute(device: &Path, name: &str) -> String {
    let name = Path::new("/sys/block").join(device.file_name().unwrap()).join(name);
    fs::read_to_string(name).unwrap().trim().to_owned()
}

#[test]
fn daemon_process() {
    // Not a test: the process that other tests kill.
    if let Some(folder) = std::env::var_os("DOLMEN_UBLK_TEST_DAEMON") {
        if std::env::var_os("DOLMEN_UBLK_TEST_RESTLESS").is_some() {
            support::restless_daemon(Path::new(&folder));
        }
        if let Ok(step) = std::env::var("DOLMEN_UBLK_TEST_DIE_AT") {
            support::dying_daemon(Path::new(&folder), step.parse().unwrap());
        }
        support::daemon(Path::new(&folder));
    }
}

#[test]
fn an_attached_space_is_a_disk() {
    // Scenario: a space is attached; the device has its length and its sectors; what is written to it is in the space;
    // flushes, durable writes, discards and zeroes arrive; it is known as a space; it is detached and nothing is left.
    need!("blkdiscard", "dd");
    let mut rig = Rig::new();
    let content = rig.space(1, 32 * MIB);
    rig.start();
    let attached = rig.attach(1, "vm");
    let device = attached.device.clone();
    assert_eq!(fs::read_link(&attached.link).unwrap(), device);
    assert_eq!(attached.link, rig.path("dev/tank/vm"));
    assert_eq!(rig.attach(1, "vm"), attached, "attaching twice changes nothing");
    assert_eq!(attribute(&device, "size"), (32 * MIB / 512).to_string());
    assert_eq!(attribute(&device, "queue/logical_block_size"), "4096");
    assert_eq!(attribute(&device, "queue/physical_block_size"), "4096");
    assert_eq!(attribute(&device, "queue/read_ahead_kb"), "1024");
    assert_eq!(attribute(&device, "queue/write_cache"), "write back");
    assert_eq!(attribute(&device, "queue/fua"), "1");
    assert_eq!(attribute(&device, "queue/discard_granularity"), "4096");
    assert_ne!(attribute(&device, "queue/discard_max_bytes"), "0");
    assert!(dolmen_ublk::is_attached_space(&attached.link));
    let channel = device.display().to_string().replace("ublkb", "ublkc");
    for path in [device.as_path(), Path::new(&channel)] {
        let status = fs::metadata(path).unwrap();
        assert_eq!(
            (status.mode() & 0o7, status.uid()),
            (0, 0),
            "{path:?} is for root, and for who may use disks"
        );
    }

    let text = b"what is written is in the space".repeat(1000);
    let disk = File::options().read(true).write(true).open(&attached.link).unwrap();
    disk.write_all_at(&text, 5 * MIB + 77).unwrap();
    let flushes = rig.host.seen.flushes.load(Ordering::SeqCst);
    disk.sync_all().unwrap();
    assert!(rig.host.seen.flushes.load(Ordering::SeqCst) > flushes);
    let mut found = vec![0; text.len()];
    File::open(&content).unwrap().read_exact_at(&mut found, 5 * MIB + 77).unwrap();
    assert!(found == text);
    let page = Aligned([7; 4096]);
    let flags = libc::O_DIRECT | libc::O_DSYNC;
    let direct = File::options().read(true).write(true).custom_flags(flags).open(&attached.link).unwrap();
    direct.write_all_at(&page.0, 4096).unwrap();
    assert_eq!(rig.host.seen.durable_writes.load(Ordering::SeqCst), 1, "one write, and no flush beside it");
    let mut page = Aligned([0; 4096]);
    direct.read_exact_at(&mut page.0, 4096).unwrap();
    assert_eq!(page.0, [7; 4096]);
    drop(direct);

    // The longest requests, and more pieces than are handed over together.
    let noise: Vec<u8> = (0..8 * MIB).map(|at| (at.wrapping_mul(at) >> 7).to_le_bytes()[0]).collect();
    disk.write_all_at(&noise, 16 * MIB).unwrap();
    disk.sync_all().unwrap();
    fs::write("/proc/sys/vm/drop_caches", "3").unwrap();
    let mut back = vec![0; noise.len()];
    disk.read_exact_at(&mut back, 16 * MIB).unwrap();
    assert!(back == noise);
    drop(disk);

    let link = attached.link.to_str().unwrap();
    run("blkdiscard", &["-o", "4194304", "-l", "2097152", link]);
    assert_eq!(rig.host.seen.discarded_bytes.load(Ordering::SeqCst), 2 * MIB);
    File::open(&attached.link).unwrap().read_exact_at(&mut found, 5 * MIB + 77).unwrap();
    assert!(found.iter().all(|byte| *byte == 0));
    run("blkdiscard", &["-z", "-o", "8192", "-l", "65536", link]);
    assert_eq!(rig.host.seen.zeroed_bytes.load(Ordering::SeqCst), 65536);

    rig.devices().detach(key(1)).unwrap();
    assert!(!attached.link.exists() && !rig.path("dev/tank").exists());
    assert!(!device.exists());
    assert!(matches!(rig.devices().detach(key(1)), Err(DetachError::NotAttached { .. })));
}

#[repr(align(4096))]
struct Aligned([u8; 4096]);

#[test]
fn a_resized_space_is_notified_or_refused() {
    // Scenario: the space grows. A kernel that can tells the device; another refuses, with the way out, and the device
    // has the new length when it is attached again.
    need!();
    let mut rig = Rig::new();
    rig.space(1, 8 * MIB);
    rig.start();
    let attached = rig.attach(1, "vm");
    rig.space(1, 16 * MIB);
    if rig.devices().can_resize() {
        assert_eq!(rig.devices().resize(key(1)).unwrap(), Bytes(16 * MIB));
    } else {
        let refused = rig.devices().resize(key(1)).unwrap_err();
        assert!(refused.to_string().contains("attach it again"), "{refused}");
        assert_eq!(attribute(&attached.device, "size"), (8 * MIB / 512).to_string());
        rig.devices().detach(key(1)).unwrap();
        rig.attach(1, "vm");
    }
    assert_eq!(attribute(&attached.device, "size"), (16 * MIB / 512).to_string());
    let disk = File::options().write(true).open(&attached.link).unwrap();
    disk.write_all_at(&[1; 4096], 15 * MIB).unwrap();
    disk.sync_all().unwrap();
}

#[test]
fn a_file_system_works_on_an_attached_space() {
    // Scenario: ext4 is made, mounted, filled, trimmed and unmounted; the trim reaches the space, the check is clean,
    // and while it is mounted the space cannot be detached and the refusal names the mount point.
    need!("mkfs.ext4", "fsck.ext4", "mount", "fstrim");
    let mut rig = Rig::new();
    rig.space(1, 96 * MIB);
    rig.start();
    let attached = rig.attach(1, "vm");
    let (link, mnt) = (attached.link.to_str().unwrap(), rig.path("mnt"));
    run("mkfs.ext4", &["-q", link]);
    run("mount", &[link, mnt.to_str().unwrap()]);
    let noise: Vec<u8> = (0..20 * MIB).map(|at| (at.wrapping_mul(at) >> 7).to_le_bytes()[0]).collect();
    fs::write(mnt.join("a"), &noise).unwrap();
    fs::write(mnt.join("b"), &noise).unwrap();
    run("sync", &["-f", mnt.to_str().unwrap()]);
    match rig.devices().detach(key(1)) {
        Err(error @ DetachError::Busy { .. }) => {
            assert!(error.to_string().contains(&format!("mounted at {}", mnt.display())), "{error}");
        }
        other => panic!("{other:?}"),
    }
    fs::remove_file(mnt.join("a")).unwrap();
    let before = rig.host.seen.discarded_bytes.load(Ordering::SeqCst);
    run("fstrim", &[mnt.to_str().unwrap()]);
    assert!(rig.host.seen.discarded_bytes.load(Ordering::SeqCst) - before > 20 * MIB);
    run("umount", &[mnt.to_str().unwrap()]);
    run("fsck.ext4", &["-fn", link]);
    rig.devices().detach(key(1)).unwrap();

    let attached = rig.attach(1, "vm");
    run("mount", &[attached.link.to_str().unwrap(), mnt.to_str().unwrap()]);
    assert!(fs::read(mnt.join("b")).unwrap() == noise);
    run("umount", &[mnt.to_str().unwrap()]);
}

#[test]
fn a_process_that_has_the_device_open_is_named() {
    // Scenario: another process has the device open and rests; a detach names it and leaves the device whole; once it is
    // gone, the detach succeeds. Then one that claims it, as a mount does.
    need!("sleep");
    let mut rig = Rig::new();
    rig.space(1, 8 * MIB);
    rig.start();
    let attached = rig.attach(1, "vm");
    let disk = File::open(&attached.link).unwrap();
    let sleeper = rig.sleep_on(disk);
    let refused = rig.devices().detach(key(1));
    let expected = Holder::Process { pid: sleeper, name: "sleep".to_owned() };
    let is_named = matches!(&refused, Err(DetachError::Busy { by, .. }) if *by == [expected]);
    File::open(&attached.link).unwrap().read_exact(&mut [0; 4096]).unwrap();
    rig.kill_child();
    assert!(is_named, "{refused:?}");
    // This process is not looked for among those who have it open, so that only the claim is left to refuse.
    let claim = File::options().read(true).custom_flags(libc::O_EXCL).open(&attached.device).unwrap();
    assert!(matches!(rig.devices().detach(key(1)), Err(DetachError::Busy { .. })));
    drop(claim);
    // Who has it open all the same, without being seen, has a disk that is pulled, and keeps nobody waiting.
    let unseen = File::open(&attached.device).unwrap();
    rig.devices().detach(key(1)).unwrap();
    let read = (&unseen).read(&mut [0; 4096]);
    assert!(matches!(read, Ok(0) | Err(_)), "{read:?}");
    assert!(!attached.device.exists());
    rig.attach(1, "vm");
    drop(unseen);
}

#[test]
fn faults_of_the_engine_reach_the_reader_and_the_writer() {
    need!();
    let mut rig = Rig::new();
    rig.space(1, 8 * MIB);
    rig.start();
    let attached = rig.attach(1, "vm");
    let errno = |result: std::io::Result<()>| result.unwrap_err().raw_os_error();
    let flags = libc::O_DIRECT;
    let disk = File::options().read(true).write(true).custom_flags(flags).open(&attached.link).unwrap();
    let mut page = Aligned([1; 4096]);
    for (fault, expected) in [(Fault::Io, libc::EIO), (Fault::NoRoom, libc::ENOSPC)] {
        *rig.host.fault.lock().unwrap() = Some(fault);
        assert_eq!(errno(disk.read_exact_at(&mut page.0, 0)), Some(expected));
        assert_eq!(errno(disk.write_all_at(&page.0, 0)), Some(expected));
    }
    *rig.host.fault.lock().unwrap() = None;
    disk.read_exact_at(&mut page.0, 0).unwrap();
}

#[test]
fn what_cannot_be_attached_is_refused_and_leaves_nothing() {
    need!();
    let mut rig = Rig::new();
    rig.space(1, 8 * MIB);
    rig.space(2, 8 * MIB + 512);
    rig.start();
    let attach = |wanted| rig.devices().attach(&wanted);
    assert!(matches!(attach(wanted(7, "x")), Err(AttachError::NoSpace { .. })));
    assert!(matches!(attach(wanted(2, "odd")), Err(AttachError::Shape { .. })));
    assert!(rig.devices().attached().is_empty());
    let mut small = wanted(2, "odd");
    small.sector_bytes = 512;
    let attached = attach(small.clone()).unwrap();
    assert_eq!(attribute(&attached.device, "queue/logical_block_size"), "512");
    assert_eq!(attribute(&attached.device, "size"), (16 * 1024 + 1).to_string());
    assert!(matches!(attach(wanted(1, "odd")), Err(AttachError::NameTaken { .. })));
    small.access = Access::ReadOnly;
    assert!(matches!(attach(small), Err(AttachError::Attached { .. })));
    let mut read_only = wanted(1, "ro");
    read_only.access = Access::ReadOnly;
    let attached = attach(read_only).unwrap();
    assert_eq!(attribute(&attached.device, "ro"), "1");
    let failure =
        File::options().write(true).open(&attached.link).and_then(|mut disk| disk.write_all(&[1; 4096]));
    assert!(failure.is_err());
    assert_eq!(rig.host.seen.writes.load(Ordering::SeqCst), 0);
    assert_eq!(rig.devices().attached().len(), 2);
    // A device in the way of a link: nothing of the attempt stays.
    fs::create_dir_all(rig.path("dev/tank/blocked/full")).unwrap();
    let mut blocked = wanted(3, "blocked");
    rig.space(3, 8 * MIB);
    blocked.sector_bytes = 512;
    assert!(matches!(attach(blocked), Err(AttachError::Link { .. })));
    assert_eq!(rig.devices().attached().len(), 2);
}

#[test]
fn a_kill_under_a_mounted_file_system_is_a_pause() {
    // Scenario: the daemon is killed again and again while fio writes and verifies on a mounted ext4. The kernel gives
    // the next one what was not answered; fio and the file system see no error, and the check is clean.
    need!("fio", "mkfs.ext4", "fsck.ext4");
    let mut rig = Rig::new();
    rig.space(1, 128 * MIB);
    rig.spawn_daemon();
    let device = fs::read_to_string(rig.path("ready")).unwrap();
    let mnt = rig.path("mnt");
    run("mkfs.ext4", &["-q", &device]);
    run("mount", &["-o", "errors=remount-ro", &device, mnt.to_str().unwrap()]);
    let mut fio = Command::new("fio")
        .args(["--name=v", "--size=24M", "--rw=randwrite", "--bsrange=4k-64k", "--ioengine=libaio"])
        .args(["--iodepth=16", "--direct=1", "--verify=crc32c", "--verify_fatal=1", "--verify_state_save=0"])
        .args(["--do_verify=1", "--fsync=64", "--loops=2"])
        .arg(format!("--directory={}", mnt.display()))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut kills = 0;
    while fio.try_wait().unwrap().is_none() && kills < 6 {
        support::nap(Duration::from_millis(350));
        rig.kill_child();
        support::nap(Duration::from_millis(150));
        rig.spawn_daemon();
        kills += 1;
    }
    let output = fio.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
    assert!(kills >= 3, "fio ended before the daemon was killed three times");
    assert_eq!(fs::read_to_string(rig.path("ready")).unwrap(), device, "the device is the same");
    run("umount", &[mnt.to_str().unwrap()]);
    run("fsck.ext4", &["-fn", &device]);
}

#[test]
fn what_was_given_and_not_answered_is_given_to_the_next() {
    // Scenario: a daemon is killed while a write is in its engine; the writer waits; the next daemon is given the write,
    // and the writer sees no error.
    need!();
    let mut rig = Rig::new();
    let content = rig.space(1, 8 * MIB);
    rig.spawn_daemon();
    let device = fs::read_to_string(rig.path("ready")).unwrap();
    let at = device.clone();
    let writer = std::thread::Builder::new()
        .spawn(move || {
            let flags = libc::O_DIRECT | libc::O_DSYNC;
            let disk = File::options().write(true).custom_flags(flags).open(at).unwrap();
            for number in 0..200 {
                disk.write_all_at(&Aligned([number; 4096]).0, 3 * MIB + u64::from(number) * 4096).unwrap();
            }
        })
        .unwrap();
    support::nap(Duration::from_millis(40));
    rig.kill_child();
    assert!(!writer.is_finished(), "the kill came before the end");
    rig.start();
    writer.join().unwrap();
    assert!(rig.host.seen.durable_writes.load(Ordering::SeqCst) > 0);
    for number in 0..200u8 {
        let mut found = [0; 4096];
        let file = File::open(&content).unwrap();
        file.read_exact_at(&mut found, 3 * MIB + u64::from(number) * 4096).unwrap();
        assert_eq!(found, [number; 4096]);
    }
    rig.devices().detach(key(1)).unwrap();
}

#[test]
fn a_device_of_a_space_that_is_not_known_yet_waits_for_it() {
    // Scenario: a daemon is killed, and the next one does not know the space, as when its pool does not open. A reader
    // waits and sees no error, the device is not detached; once the space is known, the device is taken up and all goes on.
    need!();
    let mut rig = Rig::new();
    let content = rig.space(1, 8 * MIB);
    File::options().write(true).open(&content).unwrap().write_all_at(&[7; 4096], 0).unwrap();
    rig.spawn_daemon();
    let device = fs::read_to_string(rig.path("ready")).unwrap();
    rig.kill_child();
    let away = rig.path("away");
    fs::rename(&content, &away).unwrap();
    let taken_up = rig.start();
    assert_eq!((taken_up.resumed.len(), taken_up.waiting.len(), taken_up.lost.len()), (0, 1, 0));
    let reader = std::thread::Builder::new()
        .spawn(move || {
            let disk = File::options().read(true).custom_flags(libc::O_DIRECT).open(device).unwrap();
            let mut page = Aligned([0; 4096]);
            disk.read_exact_at(&mut page.0, 0).map(|()| page.0[4095])
        })
        .unwrap();
    let refused = rig.devices().detach(key(1)).unwrap_err();
    assert!(refused.to_string().contains("its I/O waits until the pool is imported"), "{refused}");
    assert!(rig.devices().take_up_waiting().resumed.is_empty(), "the space is not known yet");
    assert!(!reader.is_finished());
    fs::rename(&away, &content).unwrap();
    let taken_up = rig.devices().take_up_waiting();
    assert_eq!((taken_up.resumed.len(), taken_up.waiting.len()), (1, 0));
    assert_eq!(reader.join().unwrap().unwrap(), 7);
    assert!(rig.devices().take_up_waiting().resumed.is_empty(), "it is served already");
    rig.devices().detach(key(1)).unwrap();
}

#[test]
fn a_device_whose_daemon_does_not_come_back_is_cleared_away() {
    // Scenario: a served device is not cleared, nor is what is no device of a space. Its daemon is killed; a reader waits;
    // it is found by its link and cleared: the reader fails, device and link are gone. A daemon that comes back after all,
    // and had it as waiting meanwhile, attaches the space again.
    need!();
    let mut rig = Rig::new();
    let content = rig.space(1, 8 * MIB);
    rig.spawn_daemon();
    let device = fs::read_to_string(rig.path("ready")).unwrap();
    let link = rig.path("dev/tank/vm");
    assert!(matches!(Abandoned::find(&link), Err(ClearError::Served { .. })));
    for other in [Path::new("/dev/null"), content.as_path(), Path::new("/dev/ublkb4000000")] {
        assert!(matches!(Abandoned::find(other), Err(ClearError::NoDevice { .. })), "{other:?}");
    }
    rig.kill_child();
    let away = rig.path("away");
    fs::rename(&content, &away).unwrap();
    assert_eq!(rig.start().waiting.len(), 1);
    let reader_device = device.clone();
    let reader = std::thread::Builder::new()
        .spawn(move || {
            let disk = File::options().read(true).custom_flags(libc::O_DIRECT).open(reader_device)?;
            disk.read_exact_at(&mut Aligned([0; 4096]).0, 0)
        })
        .unwrap();
    // The kernel takes a moment to notice that the server is gone.
    eventually("nobody serves it", || Abandoned::find(&link).is_ok());
    assert!(!reader.is_finished());
    let found = Abandoned::find(&link).unwrap();
    assert_eq!(found.device(), Path::new(&device));
    found.clear().unwrap();
    assert!(reader.join().unwrap().is_err());
    eventually("the device is gone", || !Path::new(&device).exists());
    assert!(!link.exists());
    fs::rename(&away, &content).unwrap();
    let attached = rig.attach(1, "vm");
    File::open(&attached.link).unwrap().read_exact(&mut [0; 4096]).unwrap();
    rig.devices().detach(key(1)).unwrap();
}

#[test]
fn there_are_no_more_devices_than_the_engine_has_room_for() {
    need!();
    let mut rig = Rig::new();
    rig.start();
    for space in 1..=DEVICES_MAX as u64 {
        rig.space(space, MIB);
        rig.attach(space, &format!("vm{space}"));
    }
    rig.space(99, MIB);
    let refused = rig.devices().attach(&wanted(99, "more"));
    assert!(matches!(refused, Err(AttachError::TooMany { .. })), "{refused:?}");
    rig.devices().detach(key(1)).unwrap();
    rig.attach(99, "more");
}

#[test]
fn a_device_that_is_handed_over_goes_on() {
    // Scenario: a daemon lets go with a request in its engine, which is answered afterwards; another device's reader
    // waits; the next daemon takes both up, under the same names.
    need!();
    let mut rig = Rig::new();
    rig.space(1, 8 * MIB);
    rig.start();
    let attached = rig.attach(1, "vm");
    let held = std::sync::Arc::clone(&rig.host.fault);
    let guard = held.lock().unwrap();
    let link = attached.link.clone();
    let reader = std::thread::Builder::new()
        .spawn(move || {
            let disk = File::options().read(true).custom_flags(libc::O_DIRECT).open(link).unwrap();
            for _ in 0..3 {
                disk.read_exact_at(&mut Aligned([0; 4096]).0, 0).unwrap();
            }
        })
        .unwrap();
    let requests = || rig.devices().counters(key(1)).unwrap().requests;
    let before = requests();
    eventually("the read is in the engine", || requests() > before);
    rig.devices().let_go();
    drop(guard);
    rig.devices().finish();
    rig.devices = None;
    assert!(!reader.is_finished(), "the second read waits for the next daemon");
    let taken_up = rig.start();
    assert_eq!(taken_up.resumed, std::slice::from_ref(&attached));
    reader.join().unwrap();
    rig.devices().detach(key(1)).unwrap();
}

#[test]
fn a_daemon_that_dies_at_any_step_leaves_what_the_next_can_use() {
    // Scenario: a daemon attaches and detaches, and dies before or after each of its writes to the record. The next one
    // finds the space attached or not, never something between, can attach it, and leaves no device behind.
    need!();
    let devices = || {
        let names = fs::read_dir("/sys/class/ublk-char").unwrap();
        names.map(|entry| entry.unwrap().file_name()).collect::<std::collections::BTreeSet<_>>()
    };
    let before = devices();
    let mut is_at_end = false;
    for step in 1..100 {
        let mut rig = Rig::new();
        rig.space(1, 8 * MIB);
        let status = rig.process().env("DOLMEN_UBLK_TEST_DIE_AT", step.to_string()).status().unwrap();
        is_at_end = status.success();
        let taken_up = rig.start();
        assert!(taken_up.waiting.is_empty(), "step {step}: {taken_up:?}");
        let attached = rig.attach(1, "vm");
        File::open(&attached.link).unwrap().read_exact(&mut [0; 4096]).unwrap();
        rig.devices().detach(key(1)).unwrap();
        assert_eq!(devices(), before, "step {step}");
        if is_at_end {
            assert!(step > 6, "the daemon died at {step} steps only");
            break;
        }
    }
    assert!(is_at_end);
}

#[test]
fn a_daemon_that_dies_at_any_instant_leaves_what_the_next_can_use() {
    // Scenario: a daemon attaches and detaches in a loop and is killed at moments spread over it; as above.
    need!();
    let mut rig = Rig::new();
    rig.space(1, 8 * MIB);
    for round in 0..20u64 {
        let _ = fs::remove_file(rig.path("ready"));
        let child = rig.process().env("DOLMEN_UBLK_TEST_RESTLESS", "1").spawn().unwrap();
        rig.children.push(child);
        let ready = rig.path("ready");
        eventually("the daemon's process began", || ready.exists());
        support::nap(Duration::from_millis(3 + 17 * round));
        rig.kill_child();
        let taken_up = rig.start();
        assert!(taken_up.waiting.is_empty(), "round {round}: {taken_up:?}");
        let attached = rig.attach(1, "vm");
        File::open(&attached.link).unwrap().read_exact(&mut [0; 4096]).unwrap();
        rig.devices().finish();
        rig.devices = None;
    }
}

#[test]
fn a_device_with_our_number_that_is_not_ours_is_left_alone() {
    // Scenario: the record names the device of somebody else, here another daemon's with another mark: it is neither
    // taken up nor stopped, and goes on. The space is reported as lost and is attached under another number.
    need!();
    let mut theirs = Rig::new();
    theirs.space(1, 8 * MIB);
    theirs.start();
    let other = theirs.attach(1, "vm");
    let mut rig = Rig::new();
    rig.space(1, 8 * MIB);
    let record = fs::read_to_string(theirs.path("ublk.json")).unwrap();
    let mark = format!("{:016x}", other.attachment.mark);
    assert!(record.contains(&mark));
    fs::write(rig.path("ublk.json"), record.replace(&mark, "444c4d4e00000000")).unwrap();
    let taken_up = rig.start();
    assert_eq!((taken_up.resumed.len(), taken_up.waiting.len(), taken_up.lost.len()), (0, 0, 1));
    let ours = rig.attach(1, "vm");
    assert_ne!(ours.device, other.device);
    rig.devices().detach(key(1)).unwrap();
    File::open(&other.link).unwrap().read_exact(&mut [0; 4096]).unwrap();
    theirs.devices().detach(key(1)).unwrap();
}
