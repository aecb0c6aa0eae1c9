//! Attached spaces over io_uring, against the real kernel: a disk, a file system, and a daemon that dies under it.
//!
//! They run where the kernel has FUSE over io_uring switched on (`/sys/module/fuse/parameters/enable_uring`), which no test
//! here ever does; elsewhere they say why they do not.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::print_stdout, clippy::print_stderr)]

mod support;

use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use dolmen_fuse::{
    Attached, Channel, DetachError, Files, FilesConfig, Host, Ledger, LedgerFile, RingsUnusable, StartError,
    TakenUp, Unanswered,
};
use dolmen_units::Bytes;
use support::{DyingLedger, FolderHost, Rig, eventually, key, run, wanted};

const MIB: u64 = 1 << 20;

/// Ends a test early, saying why, where the kernel has no rings for FUSE.
macro_rules! need_rings {
    ($($tool:literal),*) => {
        need!($($tool),*);
        if let Err(why) = dolmen_fuse::rings_usable() {
            println!("skipped: {why}");
            return;
        }
    };
}

fn config(folder: &Path) -> FilesConfig {
    FilesConfig { channel: Channel::Rings, ..support::config(folder) }
}

fn ledger(folder: &Path) -> Box<dyn Ledger> {
    Box::new(LedgerFile::new(folder.join("attached_uring.json")))
}

/// The name of the space of a rig, which tells its devices from those of other tests.
fn name_of(folder: &Path) -> String {
    let mut hasher = DefaultHasher::new();
    folder.hash(&mut hasher);
    format!("vm-{:x}", hasher.finish())
}

/// A rig whose spaces are attached over rings, and which clears them away at its end.
struct Ringed(Rig);

impl Ringed {
    fn new() -> Self {
        Self(Rig::new())
    }

    fn start(&mut self) -> TakenUp {
        let host: Arc<dyn Host> = self.0.host.clone();
        let folder = self.0.folder.path();
        let (files, taken_up) = Files::start(config(folder), host, ledger(folder)).unwrap();
        self.0.files = Some(files);
        taken_up
    }

    fn attach(&self) -> Attached {
        self.0.attach(1, &name_of(self.0.folder.path()))
    }

    fn clear(&self) -> Result<TakenUp, StartError> {
        let host: Arc<dyn Host> = self.0.host.clone();
        Files::clear_rings(config(self.0.folder.path()), host, ledger(self.0.folder.path()))
    }

    /// A process that attaches space 1 over rings and serves it until it is killed, or to its own death at a step of its
    /// record.
    fn spawn(&mut self, dies_at: Option<u64>) {
        let ready = self.0.path("ready");
        let _ = fs::remove_file(&ready);
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["ring_process", "--exact", "--nocapture"])
            .env("DOLMEN_FUSE_TEST_RINGS", self.0.folder.path());
        if let Some(step) = dies_at {
            command.env("DOLMEN_FUSE_TEST_DIE_AT", step.to_string());
        }
        let child = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        self.0.children.push(child);
        if dies_at.is_none() {
            eventually("the process serves", || ready.exists());
        }
    }

    fn is_mounted(&self) -> bool {
        let at = self.0.path("run/attached-uring");
        fs::read_to_string("/proc/self/mountinfo").unwrap().contains(at.to_str().unwrap())
    }

    /// Loop devices over this rig's space, also where its folder is out of sight.
    fn loops(&self) -> usize {
        let name = format!(":{}", name_of(self.0.folder.path()));
        let devices = fs::read_dir("/sys/block").unwrap().flatten();
        let files = devices.filter_map(|one| fs::read_to_string(one.path().join("loop/backing_file")).ok());
        files.filter(|file| file.trim().ends_with(&name)).count()
    }
}

impl Drop for Ringed {
    fn drop(&mut self) {
        let _ = Command::new("umount")
            .args(["-l", self.0.path("mnt").to_str().unwrap()])
            .stderr(Stdio::null())
            .status();
        for mut child in self.0.children.drain(..) {
            let _ = child.kill();
            let _ = child.wait();
        }
        drop(self.0.files.take());
        for _ in 0..100 {
            match self.clear() {
                Ok(found) if found.stranded.is_empty() => break,
                other => eprintln!("cleaning up: {other:?}"),
            }
            support::nap(Duration::from_millis(50));
        }
    }
}

/// Where the kernel counts the requests that a device has.
fn inflight(device: &str) -> PathBuf {
    Path::new("/sys/block").join(Path::new(device).file_name().unwrap()).join("inflight")
}

#[test]
fn ring_process() {
    // Not a test: the process that other tests kill.
    let Some(folder) = std::env::var_os("DOLMEN_FUSE_TEST_RINGS") else { return };
    let folder = Path::new(&folder);
    let host = FolderHost::new(&folder.join("spaces"), Duration::from_micros(1500));
    let steps = std::env::var("DOLMEN_FUSE_TEST_DIE_AT").ok().map(|step| step.parse().unwrap());
    let ledger: Box<dyn Ledger> = match steps {
        Some(step) => Box::new(DyingLedger { inner: ledger(folder), steps_left: AtomicU64::new(step) }),
        None => ledger(folder),
    };
    let (files, _) = Files::start(config(folder), host, ledger).unwrap();
    let attached = files.attach(&wanted(1, &name_of(folder))).unwrap();
    if steps.is_some() {
        files.detach(key(1)).unwrap();
        files.close().unwrap();
        std::process::exit(0);
    }
    fs::write(folder.join("ready"), attached.device.to_str().unwrap()).unwrap();
    // The test's process closes the pipe when it ends, however it ends.
    let _ = std::io::stdin().read_line(&mut String::new());
    std::process::exit(0);
}

#[test]
fn what_the_kernel_has_not_is_refused_before_anything_is_made() {
    // Scenario: the kernel has no FUSE over io_uring, or has it switched off: the start says so, and nothing is there.
    need!();
    let unusable = match dolmen_fuse::rings_usable() {
        Ok(()) => {
            println!("skipped: this kernel has FUSE over io_uring switched on");
            return;
        }
        Err(unusable) => unusable,
    };
    let rig = Ringed::new();
    rig.0.space(1, MIB);
    let host: Arc<dyn Host> = rig.0.host.clone();
    let refused = Files::start(config(rig.0.folder.path()), host, ledger(rig.0.folder.path()));
    let Err(StartError::Rings(error)) = refused else { panic!("{refused:?}") };
    assert_eq!(error.to_string(), unusable.to_string());
    if matches!(unusable, RingsUnusable::Off) {
        assert!(error.to_string().contains("echo 1 > /sys/module/fuse/parameters/enable_uring"), "{error}");
    }
    assert_eq!(fs::read_dir(rig.0.path("run")).unwrap().count(), 0);
    assert!(!rig.0.path("attached_uring.json").exists());
}

#[test]
fn who_looks_for_rings_is_not_interrupted_afterwards() {
    // Scenario: a thread looks whether there are rings, then waits for a message: it waits to the end of its time. The end
    // of a ring would interrupt the thread that made it.
    need_rings!();
    let (here, _there) = std::os::unix::net::UnixDatagram::pair().unwrap();
    here.set_read_timeout(Some(Duration::from_millis(40))).unwrap();
    for _ in 0..20 {
        dolmen_fuse::rings_usable().unwrap();
        let error = here.recv(&mut [0]).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock, "{error}");
    }
}

#[test]
fn a_space_over_rings_is_a_disk() {
    // Scenario: a space is attached; what is written is in the space, flushes, discards and zeroes arrive, it is resized,
    // faults come through, it is detached and nothing is left. Afterwards it is attached and detached once more.
    need_rings!("blkdiscard");
    let mut rig = Ringed::new();
    let content = rig.0.space(1, 32 * MIB);
    rig.start();
    let attached = rig.attach();
    assert_eq!(attached.survival.unanswered, Unanswered::Failed);
    assert!(attached.survival.to_string().contains("does not survive its daemon"));
    assert_eq!(rig.0.files().descriptor_holder_pid(), None);
    let text = b"what is written is in the space".repeat(20_000);
    let disk = File::options().read(true).write(true).open(&attached.link).unwrap();
    disk.write_all_at(&text, 5 * MIB + 77).unwrap();
    let flushes = rig.0.host.seen.flushes.load(Ordering::SeqCst);
    disk.sync_all().unwrap();
    assert!(rig.0.host.seen.flushes.load(Ordering::SeqCst) > flushes);
    let mut found = vec![0; text.len()];
    File::open(&content).unwrap().read_exact_at(&mut found, 5 * MIB + 77).unwrap();
    assert_eq!(found, text);
    drop(disk);
    let link = attached.link.to_str().unwrap();
    run("blkdiscard", &["-o", "4194304", "-l", "2097152", link]);
    assert_eq!(rig.0.host.seen.discarded_bytes.load(Ordering::SeqCst), 2 * MIB);
    found.truncate(usize::try_from(MIB / 4).unwrap());
    File::open(&attached.link).unwrap().read_exact_at(&mut found, 5 * MIB + 77).unwrap();
    assert!(found.iter().all(|byte| *byte == 0));

    rig.0.space(1, 48 * MIB);
    assert_eq!(rig.0.files().resize(key(1)).unwrap(), Bytes(48 * MIB));
    let counters = rig.0.files().counters();
    assert!(counters.requests > 0 && counters.answers > 0 && counters.resent == 0, "{counters:?}");

    let held = File::open(&attached.link).unwrap();
    let pid = rig.0.sleep_on(held);
    assert!(matches!(rig.0.files().detach(key(1)), Err(DetachError::Busy { .. })), "{pid} has it open");
    rig.0.kill_child();
    for _ in 0..2 {
        rig.0.files().detach(key(1)).unwrap();
        assert_eq!(rig.loops(), 0);
        rig.attach();
    }
    rig.0.files().detach(key(1)).unwrap();
    rig.0.files().close().unwrap();
    assert!(!rig.is_mounted());
}

#[test]
fn faults_of_the_space_are_faults_of_the_disk() {
    // Scenario: the space fails: reads and flushes of the disk fail; it mends: they succeed.
    need_rings!();
    let mut rig = Ringed::new();
    rig.0.space(1, 8 * MIB);
    rig.start();
    let attached = rig.attach();
    *rig.0.host.fault.lock().unwrap() = Some(dolmen_attach::Fault::Io);
    let disk = File::options().read(true).write(true).open(&attached.link).unwrap();
    let mut block = vec![0; 4096];
    assert!(disk.read_exact_at(&mut block, MIB).is_err());
    assert!(disk.sync_all().is_err());
    rig.0.host.fault.lock().unwrap().take();
    disk.read_exact_at(&mut block, 2 * MIB).unwrap();
}

#[test]
fn a_file_system_over_rings_keeps_what_fio_writes() {
    // Scenario: ext4, mounted; fio writes 64 MiB in pieces of 4 to 64 KiB, 32 at a time, and reads them back by checksum.
    need_rings!("mkfs.ext4", "fsck.ext4", "fio");
    let mut rig = Ringed::new();
    rig.0.space(1, 160 * MIB);
    rig.start();
    let attached = rig.attach();
    let (link, mnt) = (attached.link.to_str().unwrap(), rig.0.path("mnt"));
    let mnt = mnt.to_str().unwrap();
    run("mkfs.ext4", &["-q", link]);
    run("mount", &[link, mnt]);
    let arguments = [
        "--name=v",
        "--size=64M",
        "--rw=randwrite",
        "--bsrange=4k-64k",
        "--ioengine=libaio",
        "--iodepth=32",
        "--direct=1",
        "--verify=crc32c",
        "--verify_fatal=1",
        "--verify_state_save=0",
        "--do_verify=1",
        "--fsync=128",
    ];
    let folder = format!("--directory={mnt}");
    run("fio", &[&arguments[..], &[&folder]].concat());
    assert!(matches!(rig.0.files().detach(key(1)), Err(DetachError::Busy { .. })));
    run("umount", &[mnt]);
    run("fsck.ext4", &["-fn", link]);
    rig.0.files().detach(key(1)).unwrap();
    rig.0.files().close().unwrap();
}

#[test]
fn the_death_of_the_daemon_ends_the_attachment_and_hangs_nothing() {
    // Scenario: five times the process is killed while many writers and readers are at work, with more requests than there
    // are entries. Each of them sees errors and ends; the next start reports the space as lost, and its device as stranded while a file is open; once that is
    // closed it is cleared, and the space is attached again, by rings again. A space on the ordinary connection, of another
    // process, never sees anything.
    need_rings!("fio");
    let mut rig = Ringed::new();
    rig.0.space(1, 64 * MIB);
    rig.0.space(2, 8 * MIB);
    rig.0.start();
    let other = rig.0.attach(2, "other");
    for round in 0..5 {
        rig.spawn(None);
        let device = fs::read_to_string(rig.0.path("ready")).unwrap();
        let worker = |load: &[&str]| {
            let common = ["--name=w", "--ioengine=libaio", "--time_based", "--runtime=60", "--direct=1"];
            let mut command = Command::new("fio");
            command.args(common).arg(format!("--filename={device}")).args(load);
            command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
        };
        let mut workers = [
            worker(&["--rw=randread", "--bs=4k", "--iodepth=250"]),
            worker(&["--rw=randwrite", "--bs=4k-64k", "--iodepth=100", "--fsync=16"]),
            worker(&["--rw=read", "--bs=16k", "--iodepth=1"]),
            worker(&["--rw=write", "--bs=256k", "--iodepth=4"]),
        ];
        let at_work =
            || fs::read_to_string(inflight(&device)).unwrap().split_whitespace().any(|count| count != "0");
        eventually("they are at work", at_work);
        support::nap(Duration::from_millis(300 + 37 * round));
        let held = File::open(&device).unwrap();
        rig.0.kill_child();
        for worker in &mut workers {
            eventually("whoever was at work ends", || worker.try_wait().unwrap().is_some());
            assert!(!worker.wait().unwrap().success(), "it saw an error");
        }
        let mut block = vec![0; 4096];
        assert!(held.read_exact_at(&mut block, 0).is_err(), "all I/O fails");

        let pid = rig.0.sleep_on(held);
        let found = rig.clear().unwrap();
        assert_eq!(found.lost.iter().map(|one| one.space).collect::<Vec<_>>(), [key(1)]);
        assert_eq!(found.stranded.len(), 1, "{pid} has it open");
        rig.0.kill_child();
        let found = rig.clear().unwrap();
        assert!(found.lost.is_empty() && found.stranded.is_empty(), "{found:?}");
        assert!(!rig.is_mounted() && rig.loops() == 0);
        assert!(!rig.0.path("dev/tank").join(name_of(rig.0.folder.path())).is_symlink());
        File::open(&other.device).unwrap().read_exact_at(&mut block, 0).unwrap();
    }
    rig.0.files().detach(key(2)).unwrap();
}

#[test]
fn a_death_at_any_step_leaves_nothing_that_the_next_start_does_not_clear() {
    // Scenario: attaching and detaching over rings, killed before and after each write of the record; the next start finds
    // and clears what is there, and attaches the space again.
    need_rings!();
    for step in 1.. {
        let mut rig = Ringed::new();
        rig.0.space(1, MIB);
        rig.spawn(Some(step));
        let status = rig.0.children.pop().unwrap().wait().unwrap();
        let found = rig.clear().unwrap();
        assert!(found.stranded.is_empty() && found.resumed.is_empty(), "step {step}: {found:?}");
        assert!(!rig.is_mounted() && rig.loops() == 0, "step {step}");
        rig.start();
        rig.attach();
        rig.0.files().detach(key(1)).unwrap();
        rig.0.files().close().unwrap();
        if status.success() {
            println!("{} steps", step - 1);
            assert!(step > 8, "attaching and detaching are more than {step} steps");
            break;
        }
    }
}
