//! A host over plain files that survive a kill, a rig that cleans up whatever a test made, and a process to kill.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::print_stdout, clippy::print_stderr)]
#![allow(unreachable_pub)]
// Each of the tests uses a part of it.
#![allow(dead_code)]

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use dolmen_attach::{Access, Fault, SpaceKey, Wanted};
use dolmen_fuse::{
    Attached, DescriptorHolderProgram, Files, FilesConfig, FlushRequest, Host, Ledger, LedgerError,
    LedgerFile, Made, RangeRequest, ReadRequest, Recovery, TakenUp, WriteRequest,
};
use dolmen_units::{Bytes, PoolId, SpaceId};

/// Why tests that need a kernel with everything cannot run here.
pub fn missing(tools: &[&str]) -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("needs root".to_owned());
    }
    for device in ["/dev/fuse", "/dev/loop-control"] {
        if File::options().read(true).write(true).open(device).is_err() {
            return Some(format!("needs {device}"));
        }
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders: Vec<PathBuf> =
        std::env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]).collect();
    let absent = tools.iter().find(|tool| !folders.iter().any(|folder| folder.join(tool).exists()));
    absent.map(|tool| format!("needs {tool}"))
}

/// Whether the system lets root do what CAP_SYS_RESOURCE stands for.
pub fn may_exempt_from_oom() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:")).unwrap();
    u64::from_str_radix(line.trim(), 16).unwrap() & 1 << 24 != 0
}

/// Ends a test early, saying why, where something is missing.
#[macro_export]
macro_rules! need {
    ($($tool:literal),*) => {
        if let Some(why) = support::missing(&[$($tool),*]) {
            println!("skipped: {why}");
            return;
        }
    };
}

pub fn key(space: u64) -> SpaceKey {
    SpaceKey { pool: PoolId([9; 16]), space: SpaceId(space) }
}

pub fn wanted(space: u64, name: &str) -> Wanted {
    Wanted {
        space: key(space),
        pool_name: "tank".parse().unwrap(),
        space_name: name.parse().unwrap(),
        access: Access::ReadWrite,
        sector_bytes: 4096,
    }
}

enum Job {
    Read(ReadRequest),
    Write(WriteRequest),
    Flush(FlushRequest),
    Discard(RangeRequest),
    Zero(RangeRequest),
}

#[derive(Default)]
pub struct Seen {
    pub reads: AtomicU64,
    pub writes: AtomicU64,
    pub flushes: AtomicU64,
    pub discarded_bytes: AtomicU64,
    pub zeroed_bytes: AtomicU64,
}

/// Spaces as files of a folder in memory, named by their numbers.
pub struct FolderHost {
    folder: PathBuf,
    jobs: Mutex<mpsc::Sender<Job>>,
    pub seen: Arc<Seen>,
    pub fault: Arc<Mutex<Option<Fault>>>,
}

impl FolderHost {
    pub fn new(folder: &Path, delay: Duration) -> Arc<Self> {
        let (jobs, inbox) = mpsc::channel::<Job>();
        let inbox = Arc::new(Mutex::new(inbox));
        let seen = Arc::new(Seen::default());
        let fault = Arc::new(Mutex::new(None));
        for _ in 0..4 {
            let (folder, inbox) = (folder.to_owned(), Arc::clone(&inbox));
            let (seen, fault) = (Arc::clone(&seen), Arc::clone(&fault));
            let work = move || {
                loop {
                    let next = inbox.lock().unwrap().recv();
                    let Ok(job) = next else { return };
                    nap(delay);
                    let fault = *fault.lock().unwrap();
                    carry_out(&folder, job, &seen, fault);
                    // A kill falls between carrying out and answering, too.
                }
            };
            std::thread::Builder::new().spawn(work).unwrap();
        }
        Arc::new(Self { folder: folder.to_owned(), jobs: Mutex::new(jobs), seen, fault })
    }

    fn post(&self, job: Job) {
        self.jobs.lock().unwrap().send(job).unwrap();
    }
}

fn carry_out(folder: &Path, job: Job, seen: &Seen, fault: Option<Fault>) {
    let open = |space: SpaceKey| {
        File::options().read(true).write(true).open(folder.join(space.space.0.to_string())).unwrap()
    };
    match job {
        Job::Read(request) => {
            if let Some(fault) = fault {
                return request.fail(fault);
            }
            let mut content = vec![0; usize::try_from(request.len().0).unwrap()];
            open(request.space()).read_exact_at(&mut content, request.at().0).unwrap();
            seen.reads.fetch_add(1, Ordering::SeqCst);
            // Pieces of one block, as an engine would have them.
            let pieces: Vec<&[u8]> = content.chunks(3072).collect();
            request.answer(&pieces);
        }
        Job::Write(request) => {
            if let Some(fault) = fault {
                return request.fail(fault);
            }
            assert_eq!(request.payload().as_ptr().addr() % 4096, 0);
            open(request.space()).write_all_at(request.payload(), request.at().0).unwrap();
            seen.writes.fetch_add(1, Ordering::SeqCst);
            request.answer();
        }
        Job::Flush(request) => {
            if let Some(fault) = fault {
                return request.fail(fault);
            }
            seen.flushes.fetch_add(1, Ordering::SeqCst);
            request.answer();
        }
        Job::Discard(request) => {
            zero(&open(request.space()), &request);
            seen.discarded_bytes.fetch_add(request.len().0, Ordering::SeqCst);
            request.answer();
        }
        Job::Zero(request) => {
            zero(&open(request.space()), &request);
            seen.zeroed_bytes.fetch_add(request.len().0, Ordering::SeqCst);
            request.answer();
        }
    }
}

fn zero(file: &File, request: &RangeRequest) {
    let flags = rustix::fs::FallocateFlags::PUNCH_HOLE | rustix::fs::FallocateFlags::KEEP_SIZE;
    rustix::fs::fallocate(file, flags, request.at().0, request.len().0).unwrap();
}

impl Host for FolderHost {
    fn size(&self, space: SpaceKey) -> Option<Bytes> {
        fs::metadata(self.folder.join(space.space.0.to_string())).ok().map(|found| Bytes(found.len()))
    }
    fn read(&self, request: ReadRequest) {
        self.post(Job::Read(request));
    }
    fn write(&self, request: WriteRequest) {
        self.post(Job::Write(request));
    }
    fn flush(&self, request: FlushRequest) {
        self.post(Job::Flush(request));
    }
    fn discard(&self, request: RangeRequest) {
        self.post(Job::Discard(request));
    }
    fn write_zeroes(&self, request: RangeRequest) {
        self.post(Job::Zero(request));
    }
}

pub fn nap(span: Duration) {
    if span.is_zero() {
        return;
    }
    let (tv_sec, tv_nsec) = (i64::try_from(span.as_secs()).unwrap(), i64::from(span.subsec_nanos()));
    let _ = rustix::thread::nanosleep(&rustix::time::Timespec { tv_sec, tv_nsec });
}

/// Waits for up to ten seconds.
pub fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    for _ in 0..1000 {
        if is_so() {
            return;
        }
        nap(Duration::from_millis(10));
    }
    panic!("never came about: {what}");
}

/// A place for one test, in memory, that leaves nothing behind.
pub struct Rig {
    pub folder: tempfile::TempDir,
    pub host: Arc<FolderHost>,
    pub files: Option<Files>,
    pub children: Vec<Child>,
}

impl Rig {
    pub fn new() -> Self {
        let folder = tempfile::Builder::new().prefix("dolmen-fuse-").tempdir_in("/dev/shm").unwrap();
        for name in ["spaces", "mnt", "run"] {
            fs::create_dir(folder.path().join(name)).unwrap();
        }
        let host = FolderHost::new(&folder.path().join("spaces"), Duration::ZERO);
        Self { folder, host, files: None, children: Vec::new() }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn space(&self, space: u64, size: u64) -> PathBuf {
        let path = self.path("spaces").join(space.to_string());
        File::options().create(true).truncate(false).write(true).open(&path).unwrap().set_len(size).unwrap();
        path
    }

    /// Starts, taking up what is there.
    pub fn start(&mut self) -> TakenUp {
        let host: Arc<dyn Host> = self.host.clone();
        let (files, taken_up) =
            Files::start(config(self.folder.path()), host, ledger(self.folder.path())).unwrap();
        self.files = Some(files);
        taken_up
    }

    pub fn files(&self) -> &Files {
        self.files.as_ref().unwrap()
    }

    pub fn attach(&self, space: u64, name: &str) -> Attached {
        self.files().attach(&wanted(space, name)).unwrap()
    }

    /// A process that serves what this rig holds until it is killed; returns when it serves.
    pub fn spawn_daemon(&mut self, recovery: Recovery) {
        let _ = fs::remove_file(self.path("ready"));
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["daemon_process", "--exact", "--nocapture"])
            .env("DOLMEN_FUSE_TEST_DAEMON", self.folder.path())
            .env("DOLMEN_FUSE_TEST_RECOVERY", format!("{recovery:?}"))
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        self.children.push(child);
        let ready = self.path("ready");
        eventually("the daemon's process serves", || ready.exists());
    }

    /// A process that does nothing but have a file open; returns its id.
    pub fn sleep_on(&mut self, file: File) -> u32 {
        let mut command = Command::new("sleep");
        command.arg("60").stdin(Stdio::from(file)).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().unwrap();
        let pid = child.id();
        self.children.push(child);
        pid
    }

    /// Kills the youngest process without a warning and waits until it is gone.
    pub fn kill_child(&mut self) {
        let mut child = self.children.pop().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

pub fn config(folder: &Path) -> FilesConfig {
    let descriptor_holder = DescriptorHolderProgram {
        path: env!("CARGO_BIN_EXE_dolmen-descriptor-holder").into(),
        arguments: Vec::new(),
    };
    let mut config = FilesConfig::new(folder.join("run"), descriptor_holder);
    config.links = folder.join("dev");
    config.slot_count = 32;
    config
}

pub fn ledger(folder: &Path) -> Box<dyn Ledger> {
    Box::new(LedgerFile::new(folder.join("attached.json")))
}

/// A record whose writer dies at one of its writes, before or after it.
pub struct DyingLedger {
    pub inner: Box<dyn Ledger>,
    pub steps_left: AtomicU64,
}

impl Ledger for DyingLedger {
    fn load(&self) -> Result<Made, LedgerError> {
        self.inner.load()
    }
    fn store(&self, made: &Made) -> Result<(), LedgerError> {
        self.step();
        self.inner.store(made)?;
        self.step();
        Ok(())
    }
}

impl DyingLedger {
    fn step(&self) {
        if self.steps_left.fetch_sub(1, Ordering::SeqCst) == 1 {
            let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
        }
    }
}

/// What the process that dies at a step does: attaches space 1, detaches it, closes.
pub fn dying_daemon(folder: &Path, step: u64) -> ! {
    let host = FolderHost::new(&folder.join("spaces"), Duration::ZERO);
    let ledger = DyingLedger { inner: ledger(folder), steps_left: AtomicU64::new(step) };
    let (files, _) = Files::start(config(folder), host, Box::new(ledger)).unwrap();
    files.attach(&wanted(1, "vm")).unwrap();
    files.detach(key(1)).unwrap();
    files.close().unwrap();
    std::process::exit(0);
}

/// Runs a tool; its output is shown when it fails.
pub fn run(program: &str, arguments: &[&str]) -> String {
    let path = format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default());
    let output = Command::new(program).args(arguments).env("PATH", path).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?}: {}\n{text}\n{errors}", output.status);
    text
}

/// What the process that is to be killed does: serves, attaches space 1 unless it is attached, and rests.
pub fn daemon(folder: &Path) -> ! {
    let host = FolderHost::new(&folder.join("spaces"), Duration::from_micros(1500));
    let mut config = config(folder);
    if std::env::var("DOLMEN_FUSE_TEST_RECOVERY").unwrap() == "Replay" {
        config.recovery = Recovery::Replay;
    }
    let (files, taken_up) = Files::start(config, host, ledger(folder)).unwrap();
    assert!(taken_up.stranded.is_empty() && taken_up.lost.is_empty(), "{taken_up:?}");
    let counters = files.counters();
    let attached = files.attach(&wanted(1, "vm")).unwrap();
    let mut log = File::options().create(true).append(true).open(folder.join("log")).unwrap();
    std::io::Write::write_all(&mut log, format!("{counters:?}\n").as_bytes()).unwrap();
    fs::write(folder.join("ready"), attached.device.to_str().unwrap()).unwrap();
    let mut end = String::new();
    // The test's process closes the pipe when it ends, however it ends.
    let _ = std::io::stdin().read_line(&mut end);
    if folder.join("linger").exists() {
        println!("{:?}", files.counters());
    }
    std::process::exit(0);
}

impl Drop for Rig {
    fn drop(&mut self) {
        let quiet = |program: &str, arguments: &[&str]| {
            let _ =
                Command::new(program).args(arguments).stdout(Stdio::null()).stderr(Stdio::null()).status();
        };
        let alive = !self.children.is_empty() || self.files.is_some();
        for mount in ["mnt", "mnt/b"] {
            if alive {
                quiet("umount", &["-l", self.path(mount).to_str().unwrap()]);
            }
        }
        for mut child in self.children.drain(..) {
            let _ = child.kill();
            let _ = child.wait();
        }
        drop(self.files.take());
        // A last daemon takes up and takes down what is left.
        self.host.fault.lock().unwrap().take();
        let host: Arc<dyn Host> = self.host.clone();
        if let Ok((files, _)) = Files::start(config(self.folder.path()), host, ledger(self.folder.path())) {
            quiet("umount", &["-l", self.path("mnt").to_str().unwrap()]);
            for attached in files.attached() {
                for _ in 0..100 {
                    match files.detach(attached.attachment.space) {
                        Ok(()) => break,
                        Err(error) => {
                            eprintln!("cleaning up: {error}");
                            nap(Duration::from_millis(50));
                        }
                    }
                }
            }
            if let Err(error) = files.close() {
                eprintln!("cleaning up: {error}");
            }
        }
    }
}
