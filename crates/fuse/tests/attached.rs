//! Attached spaces against the real kernel: FUSE, loop devices, ext4, and a daemon that is killed under them.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::print_stdout, clippy::print_stderr)]

mod support;

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::Ordering;
use std::time::Duration;

use dolmen_attach::{Access, Fault, Holder};
use dolmen_fuse::{AttachError, CloseError, DescriptorHolderHealth, DetachError, Recovery, Unanswered};
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
    if let Some(folder) = std::env::var_os("DOLMEN_FUSE_TEST_DAEMON") {
        if let Ok(step) = std::env::var("DOLMEN_FUSE_TEST_DIE_AT") {
            support::dying_daemon(Path::new(&folder), step.parse().unwrap());
        }
        support::daemon(Path::new(&folder));
    }
}

#[test]
fn an_attached_space_is_a_disk() {
    // Scenario: a space is attached; the device has its length, its sectors and direct I/O; what is written to it is in
    // the space; flushes, discards and zeroes arrive; it is resized; it is detached and nothing is left.
    need!("blkdiscard");
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
    assert_eq!(attribute(&device, "loop/dio"), "1");
    assert_eq!(attribute(&device, "queue/read_ahead_kb"), "1024");
    assert_ne!(attribute(&device, "queue/discard_max_bytes"), "0");

    let text = b"what is written is in the space".repeat(1000);
    let disk = File::options().read(true).write(true).open(&attached.link).unwrap();
    disk.write_all_at(&text, 5 * MIB + 77).unwrap();
    let flushes = rig.host.seen.flushes.load(Ordering::SeqCst);
    disk.sync_all().unwrap();
    assert!(rig.host.seen.flushes.load(Ordering::SeqCst) > flushes);
    let mut found = vec![0; text.len()];
    File::open(&content).unwrap().read_exact_at(&mut found, 5 * MIB + 77).unwrap();
    assert_eq!(found, text);
    drop(disk);

    let link = attached.link.to_str().unwrap();
    run("blkdiscard", &["-o", "4194304", "-l", "2097152", link]);
    assert_eq!(rig.host.seen.discarded_bytes.load(Ordering::SeqCst), 2 * MIB);
    File::open(&attached.link).unwrap().read_exact_at(&mut found, 5 * MIB + 77).unwrap();
    assert!(found.iter().all(|byte| *byte == 0));
    run("blkdiscard", &["-z", "-o", "8192", "-l", "65536", link]);
    let zeroed = rig.host.seen.zeroed_bytes.load(Ordering::SeqCst);
    assert!(zeroed + rig.host.seen.discarded_bytes.load(Ordering::SeqCst) == 2 * MIB + 65536);

    rig.space(1, 48 * MIB);
    assert_eq!(rig.files().resize(key(1)).unwrap(), Bytes(48 * MIB));
    let disk = File::options().read(true).write(true).open(&attached.link).unwrap();
    disk.write_all_at(&text, 47 * MIB).unwrap();
    disk.sync_all().unwrap();
    drop(disk);

    assert!(matches!(rig.files().close(), Err(CloseError::Attached { count: 1, .. })));
    rig.files().detach(key(1)).unwrap();
    assert!(!attached.link.exists() && !rig.path("dev/tank").exists());
    // The number of the device may be another test's by now.
    assert!(loops_over(rig.path("").to_str().unwrap()).is_empty());
    assert!(matches!(rig.files().detach(key(1)), Err(DetachError::NotAttached { .. })));
    let descriptor_holder = rig.files().descriptor_holder_pid().unwrap();
    rig.files().close().unwrap();
    assert!(!Path::new(&format!("/proc/{descriptor_holder}")).exists());
    assert_eq!(fs::read_dir(rig.path("run/attached")).unwrap().count(), 0);
    assert!(matches!(rig.files().attach(&wanted(1, "vm")), Err(AttachError::Ended { .. })));
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
    match rig.files().detach(key(1)) {
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
    rig.files().detach(key(1)).unwrap();

    let attached = rig.attach(1, "vm");
    run("mount", &[attached.link.to_str().unwrap(), mnt.to_str().unwrap()]);
    assert!(fs::read(mnt.join("b")).unwrap() == noise);
    run("umount", &[mnt.to_str().unwrap()]);
}

#[test]
fn a_process_that_has_the_device_open_is_named() {
    // Scenario: another process reads from the device and rests; a detach names it and leaves the device whole; once it
    // is gone, the detach succeeds.
    need!("sleep");
    let mut rig = Rig::new();
    rig.space(1, 8 * MIB);
    rig.start();
    let attached = rig.attach(1, "vm");
    let disk = File::open(&attached.link).unwrap();
    let sleeper = rig.sleep_on(disk);
    let refused = rig.files().detach(key(1));
    let expected = Holder::Process { pid: sleeper, name: "sleep".to_owned() };
    let is_named = matches!(&refused, Err(DetachError::Busy { by, .. }) if *by == [expected]);
    File::open(&attached.link).unwrap().read_exact(&mut [0; 4096]).unwrap();
    rig.kill_child();
    assert!(is_named, "{refused:?}");
    rig.files().detach(key(1)).unwrap();
}

#[test]
fn faults_of_the_engine_reach_the_reader_and_the_writer() {
    need!();
    let mut rig = Rig::new();
    rig.space(1, 8 * MIB);
    rig.start();
    let attached = rig.attach(1, "vm");
    let errno = |result: std::io::Result<()>| result.unwrap_err().raw_os_error();
    // The file itself passes on more than the block layer does.
    let file = File::options().read(true).write(true).open(rig.path("run/attached/tank:vm")).unwrap();
    let cases = [(Fault::Io, libc::EIO), (Fault::NoRoom, libc::ENOSPC), (Fault::ReadOnly, libc::EROFS)];
    for (fault, expected) in cases {
        *rig.host.fault.lock().unwrap() = Some(fault);
        assert_eq!(errno(file.read_exact_at(&mut [0; 4096], 0)), Some(expected));
        assert_eq!(errno(file.write_all_at(&[1; 4096], 0)), Some(expected));
        assert_eq!(errno(file.sync_all()), Some(expected));
    }
    let disk = File::open(&attached.link).unwrap();
    assert_eq!(errno(disk.read_exact_at(&mut [0; 4096], 0)), Some(libc::EIO));
    *rig.host.fault.lock().unwrap() = None;
    disk.read_exact_at(&mut [0; 4096], 0).unwrap();
    file.write_all_at(&[1; 100], 4000).unwrap();
    let mut found = [9; 102];
    file.read_exact_at(&mut found, 3999).unwrap();
    assert_eq!((found[0], &found[1..101], found[101]), (0, &[1; 100][..], 0), "a range of any alignment");
    assert_eq!(errno(file.write_all_at(&[1; 4096], 8 * MIB)), Some(libc::EINVAL), "behind the end");
    assert_eq!(file.read_at(&mut [0; 8192], 8 * MIB - 4096).unwrap(), 4096);
    assert_eq!(errno(file.set_len(5)), Some(libc::EPERM));
    assert_eq!(errno(File::open(rig.path("run/attached/tank:x")).map(|_| ())), Some(libc::ENOENT));
    let names: Vec<_> =
        fs::read_dir(rig.path("run/attached")).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(names, ["tank:vm"]);
}

#[test]
fn what_cannot_be_attached_is_refused_and_leaves_nothing() {
    need!();
    let mut rig = Rig::new();
    rig.space(1, 8 * MIB);
    rig.space(2, 8 * MIB + 512);
    rig.start();
    let attach = |wanted| rig.files().attach(&wanted);
    assert!(matches!(attach(wanted(7, "x")), Err(AttachError::NoSpace { .. })));
    assert!(matches!(attach(wanted(2, "odd")), Err(AttachError::Shape { .. })));
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
    assert_eq!(rig.files().attached().len(), 2);
}

/// Kills the daemon again and again while fio writes to and verifies a mounted file system.
fn kill_under_fio(recovery: Recovery, counter: &str) {
    let mut rig = Rig::new();
    rig.space(1, 128 * MIB);
    rig.spawn_daemon(recovery);
    let device = fs::read_to_string(rig.path("ready")).unwrap();
    let mnt = rig.path("mnt");
    run("mkfs.ext4", &["-q", &device]);
    run("mount", &["-o", "errors=remount-ro", &device, mnt.to_str().unwrap()]);
    let mut fio = Command::new("fio")
        .args([
            "--name=v",
            "--size=24M",
            "--rw=randwrite",
            "--bsrange=4k-64k",
            "--ioengine=libaio",
            "--iodepth=16",
        ])
        .args([
            "--direct=1",
            "--verify=crc32c",
            "--verify_fatal=1",
            "--verify_state_save=0",
            "--do_verify=1",
            "--fsync=64",
            "--loops=2",
        ])
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
        rig.spawn_daemon(recovery);
        kills += 1;
    }
    let output = fio.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
    assert!(kills >= 3, "fio ended before the daemon was killed three times");
    assert_eq!(fs::read_to_string(rig.path("ready")).unwrap(), device, "the device is the same");
    run("umount", &[mnt.to_str().unwrap()]);
    run("fsck.ext4", &["-fn", &device]);
    let log = fs::read_to_string(rig.path("log")).unwrap();
    let counts = log.lines().filter_map(|line| {
        line.split_once(&format!(" {counter}: "))?.1.split(',').next()?.parse::<u64>().ok()
    });
    assert!(counts.sum::<u64>() > 0, "requests under way were taken up: {log}");
}

#[test]
fn a_kill_under_a_mounted_file_system_is_a_pause() {
    // Scenario: the daemon is killed again and again while fio writes and verifies on a mounted ext4. The kernel hands out
    // again what had been read; fio and the file system see no error, and the check is clean.
    need!("fio", "mkfs.ext4", "fsck.ext4");
    kill_under_fio(Recovery::Best, "resent");
}

#[test]
fn a_kill_is_a_pause_also_where_the_kernel_cannot_resend() {
    // Scenario: the same, with the requests taken from the slots that the descriptor holder holds.
    need!("fio", "mkfs.ext4", "fsck.ext4");
    kill_under_fio(Recovery::Replay, "replayed");
}

#[test]
fn what_was_read_and_not_answered_is_served_by_the_next() {
    // Scenario: a daemon lets go while a read is in its engine; the engine drops it; the next daemon answers it. Then
    // the same with a write, and the file numbers and the device stay what they were.
    need!();
    let mut rig = Rig::new();
    let content = rig.space(1, 8 * MIB);
    rig.start();
    let attached = rig.attach(1, "vm");
    let link = attached.link.clone();
    let held = std::sync::Arc::clone(&rig.host.fault);
    let guard = held.lock().unwrap();
    let writer = std::thread::Builder::new()
        .spawn(move || {
            let disk =
                File::options().write(true).custom_flags(libc::O_DIRECT | libc::O_DSYNC).open(link).unwrap();
            let page = Aligned([7; 4096]);
            disk.write_all_at(&page.0, 3 * MIB).unwrap();
        })
        .unwrap();
    let before = rig.files().counters().requests;
    eventually("the write is in the engine", || rig.files().counters().requests > before);
    rig.files().let_go();
    let old = rig.files.take();
    let taken_up = {
        // The old engine still sits on the request; a new one takes over.
        rig.host = support::FolderHost::new(&rig.path("spaces"), Duration::ZERO);
        rig.start()
    };
    assert_eq!(taken_up.resumed, std::slice::from_ref(&attached));
    writer.join().unwrap();
    let counters = rig.files().counters();
    assert_eq!(rig.files().survival().unanswered == Unanswered::Resent, counters.resent > 0);
    assert!(counters.resent + counters.replayed > 0);
    let mut found = [0; 4096];
    File::open(content).unwrap().read_exact_at(&mut found, 3 * MIB).unwrap();
    assert_eq!(found, [7; 4096]);
    drop(guard);
    drop(old);
    rig.files().detach(key(1)).unwrap();
}

#[repr(align(4096))]
struct Aligned([u8; 4096]);

use std::os::unix::fs::OpenOptionsExt;

#[test]
fn without_its_descriptor_holder_the_next_start_clears_and_names_leftovers() {
    // Scenario: daemon and descriptor holder die together. A device that is in use is named with its user and cleared by a later
    // start; one that is not is cleared at once; both are reported as lost; new attachments work at once.
    need!("sleep");
    let mut rig = Rig::new();
    rig.space(1, 8 * MIB);
    rig.space(2, 8 * MIB);
    rig.start();
    let (busy, idle) = (rig.attach(1, "busy"), rig.attach(2, "idle"));
    let disk = File::open(&busy.device).unwrap();
    let sleeper = rig.sleep_on(disk);
    let descriptor_holder = rig.files().descriptor_holder_pid().unwrap();
    rig.files().let_go();
    drop(rig.files.take());
    rustix::process::kill_process(
        rustix::process::Pid::from_raw(descriptor_holder).unwrap(),
        rustix::process::Signal::KILL,
    )
    .unwrap();
    let dead = || File::open(&busy.device).and_then(|mut disk| disk.read_exact(&mut [0; 4096])).is_err();
    eventually("the connection has ended", dead);
    let taken_up = rig.start();
    assert_eq!(taken_up.lost, [busy.attachment.clone(), idle.attachment.clone()]);
    assert_eq!(taken_up.stranded.len(), 1, "{taken_up:?}");
    assert_eq!(taken_up.stranded[0].device, busy.device);
    let names: Vec<_> = taken_up.stranded[0].by.iter().map(ToString::to_string).collect();
    assert_eq!(names, [format!("open in process {} (sleep)", sleeper)]);
    let again = rig.attach(1, "busy");
    assert_ne!(again.device, busy.device);
    File::open(&again.link).unwrap().read_exact(&mut [0; 4096]).unwrap();
    rig.kill_child();
    drop(rig.files.take());
    let taken_up = rig.start();
    assert!(taken_up.stranded.is_empty() && taken_up.lost.is_empty(), "{taken_up:?}");
    assert_eq!(taken_up.resumed, [again]);
}

#[test]
fn the_descriptor_holder_ignores_signals_is_locked_and_ends_with_the_folder() {
    // Scenario: SIGTERM and SIGHUP do nothing to it; its memory is locked; when the folder is unmounted behind the
    // daemon's back it ends by itself, and a new start begins again.
    need!("umount");
    let mut rig = Rig::new();
    rig.start();
    let descriptor_holder = rig.files().descriptor_holder_pid().unwrap();
    let pid = rustix::process::Pid::from_raw(descriptor_holder).unwrap();
    for signal in [rustix::process::Signal::TERM, rustix::process::Signal::HUP, rustix::process::Signal::INT]
    {
        rustix::process::kill_process(pid, signal).unwrap();
    }
    let status = fs::read_to_string(format!("/proc/{descriptor_holder}/status")).unwrap();
    let locked = status.lines().find(|line| line.starts_with("VmLck:")).unwrap();
    assert_ne!(locked.split_whitespace().nth(1), Some("0"), "{locked}");
    if support::may_exempt_from_oom() {
        let score = fs::read_to_string(format!("/proc/{descriptor_holder}/oom_score_adj")).unwrap();
        assert_eq!(score.trim(), "-1000");
    } else {
        println!("skipped: the exemption from the out-of-memory killer needs CAP_SYS_RESOURCE");
    }
    run("umount", &[rig.path("run/attached").to_str().unwrap()]);
    let is_closed = || {
        let status = fs::read_to_string(format!("/proc/{descriptor_holder}/status")).unwrap_or_default();
        status.is_empty() || status.contains("State:\tZ")
    };
    eventually("the descriptor holder ends", is_closed);
    drop(rig.files.take());
    rig.space(1, 8 * MIB);
    rig.start();
    rig.attach(1, "vm");
}

#[test]
fn a_daemon_that_dies_at_any_step_leaves_nothing_that_the_next_does_not_know() {
    // Scenario: a daemon starts, attaches, detaches and closes, and is killed before or after each write of its record.
    // The next resumes or reports the space, attaches it, reads from it, and leaves no device and no mount behind.
    need!();
    let mut step = 0;
    loop {
        step += 1;
        let mut rig = Rig::new();
        rig.space(1, 8 * MIB);
        let status = Command::new(std::env::current_exe().unwrap())
            .args(["daemon_process", "--exact"])
            .env("DOLMEN_FUSE_TEST_DAEMON", rig.folder.path())
            .env("DOLMEN_FUSE_TEST_DIE_AT", step.to_string())
            .stdout(Stdio::null())
            .status()
            .unwrap();
        let taken_up = rig.start();
        assert!(
            taken_up.stranded.is_empty() && taken_up.resumed.len() + taken_up.lost.len() <= 1,
            "{taken_up:?}"
        );
        let attached = rig.attach(1, "vm");
        File::open(&attached.link).unwrap().read_exact(&mut [0; 4096]).unwrap();
        let folder = rig.folder.path().to_str().unwrap().to_owned();
        assert_eq!(loops_over(&folder), std::slice::from_ref(&attached.device), "step {step}");
        rig.files().detach(key(1)).unwrap();
        rig.files().close().unwrap();
        assert!(loops_over(&folder).is_empty());
        assert!(!fs::read_to_string("/proc/self/mountinfo").unwrap().contains(&folder));
        if status.success() {
            break;
        }
    }
    assert!(step > 10, "the daemon writes its record at least five times: {step}");
}

/// Loop devices over files below a folder.
fn loops_over(folder: &str) -> Vec<std::path::PathBuf> {
    let devices = fs::read_dir("/sys/block").unwrap().map(|entry| entry.unwrap());
    let over = devices.filter(|entry| {
        let file = fs::read_to_string(entry.path().join("loop/backing_file")).unwrap_or_default();
        file.starts_with(folder)
    });
    over.map(|entry| Path::new("/dev").join(entry.file_name())).collect()
}

#[test]
fn a_dead_descriptor_holder_is_replaced() {
    // Scenario: the descriptor holder is killed while the daemon lives; the daemon finds out when it looks, and the new descriptor
    // holder carries the attached space over to the next daemon.
    need!();
    let mut rig = Rig::new();
    rig.space(1, 8 * MIB);
    rig.start();
    let attached = rig.attach(1, "vm");
    assert_eq!(rig.files().tend().unwrap(), DescriptorHolderHealth::Alive);
    let descriptor_holder =
        rustix::process::Pid::from_raw(rig.files().descriptor_holder_pid().unwrap()).unwrap();
    rustix::process::kill_process(descriptor_holder, rustix::process::Signal::KILL).unwrap();
    eventually("the descriptor holder is replaced", || {
        rig.files().tend().unwrap() == DescriptorHolderHealth::Replaced
    });
    assert_eq!(rig.files().tend().unwrap(), DescriptorHolderHealth::Alive);
    drop(rig.files.take());
    assert_eq!(rig.start().resumed, std::slice::from_ref(&attached));
    File::open(&attached.link).unwrap().read_exact(&mut [0; 4096]).unwrap();
}
