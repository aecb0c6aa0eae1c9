//! A host over plain files that survive a kill, a rig that cleans up whatever a test made, and a process to kill.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::print_stdout, clippy::print_stderr)]
#![allow(unreachable_pub)]

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use dolmen_attach::{Access, Fault, SpaceKey, Wanted};
use dolmen_block_io::Durability;
use dolmen_ublk::{
    Abandoned, Attached, Devices, DevicesConfig, Host, Made, Operation, Record, RecordError, RecordFile,
    Request, StartError, TakenUp,
};
use dolmen_units::{Bytes, PoolId, SpaceId};

/// Why tests that need a kernel with ublk cannot run here.
pub fn missing(tools: &[&str]) -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("needs root".to_owned());
    }
    let folder = tempfile::tempdir().unwrap();
    let host = FolderHost::new(folder.path(), Duration::ZERO);
    if let Err(error) = Devices::start(config(folder.path()), host, record(folder.path())) {
        assert!(matches!(error, StartError::Unusable(_)), "{error}");
        return Some(error.to_string());
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders: Vec<PathBuf> =
        std::env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]).collect();
    let absent = tools.iter().find(|tool| !folders.iter().any(|folder| folder.join(tool).exists()));
    absent.map(|tool| format!("needs {tool}"))
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

#[derive(Default)]
pub struct Seen {
    pub reads: AtomicU64,
    pub writes: AtomicU64,
    pub durable_writes: AtomicU64,
    pub flushes: AtomicU64,
    pub discarded_bytes: AtomicU64,
    pub zeroed_bytes: AtomicU64,
}

/// Spaces as files of a folder in memory, named by their numbers.
pub struct FolderHost {
    folder: PathBuf,
    jobs: Mutex<mpsc::Sender<Request>>,
    pub seen: Arc<Seen>,
    pub fault: Arc<Mutex<Option<Fault>>>,
}

impl FolderHost {
    pub fn new(folder: &Path, delay: Duration) -> Arc<Self> {
        let (jobs, inbox) = mpsc::channel::<Request>();
        let inbox = Arc::new(Mutex::new(inbox));
        let seen = Arc::new(Seen::default());
        let fault = Arc::new(Mutex::new(None));
        for _ in 0..4 {
            let (folder, inbox) = (folder.to_owned(), Arc::clone(&inbox));
            let (seen, fault) = (Arc::clone(&seen), Arc::clone(&fault));
            let work = move || {
                loop {
                    let next = inbox.lock().unwrap().recv();
                    let Ok(request) = next else { return };
                    nap(delay);
                    let fault = *fault.lock().unwrap();
                    match fault {
                        Some(fault) => request.fail(fault),
                        None => carry_out(&folder, request, &seen),
                    }
                }
            };
            std::thread::Builder::new().spawn(work).unwrap();
        }
        Arc::new(Self { folder: folder.to_owned(), jobs: Mutex::new(jobs), seen, fault })
    }
}

fn carry_out(folder: &Path, request: Request, seen: &Seen) {
    let name = folder.join(request.space().space.0.to_string());
    let file = File::options().read(true).write(true).open(name).unwrap();
    let (at, len) = (request.at().0, request.len().0);
    match request.operation() {
        Operation::Read => {
            let mut content = vec![0; usize::try_from(len).unwrap()];
            file.read_exact_at(&mut content, at).unwrap();
            seen.reads.fetch_add(1, Ordering::SeqCst);
            // More pieces than are handed over together.
            return request.answer_read(content.chunks(1000));
        }
        Operation::Write(durability) => {
            let mut content = vec![0; usize::try_from(len).unwrap()];
            if let Err(fault) = request.copy_payload(&mut content) {
                return request.fail(fault);
            }
            file.write_all_at(&content, at).unwrap();
            seen.writes.fetch_add(1, Ordering::SeqCst);
            if durability == Durability::Durable {
                seen.durable_writes.fetch_add(1, Ordering::SeqCst);
            }
        }
        Operation::Flush => {
            seen.flushes.fetch_add(1, Ordering::SeqCst);
        }
        Operation::Discard | Operation::WriteZeroes => {
            let flags = rustix::fs::FallocateFlags::PUNCH_HOLE | rustix::fs::FallocateFlags::KEEP_SIZE;
            rustix::fs::fallocate(&file, flags, at, len).unwrap();
            let counter = match request.operation() {
                Operation::Discard => &seen.discarded_bytes,
                _ => &seen.zeroed_bytes,
            };
            counter.fetch_add(len, Ordering::SeqCst);
        }
    }
    request.answer();
}

impl Host for FolderHost {
    fn size(&self, space: SpaceKey) -> Option<Bytes> {
        fs::metadata(self.folder.join(space.space.0.to_string())).ok().map(|found| Bytes(found.len()))
    }
    fn take(&self, request: Request) {
        self.jobs.lock().unwrap().send(request).unwrap();
    }
}

pub fn nap(span: Duration) {
    dolmen_attach::pause(span);
}

/// Waits for up to twenty seconds.
pub fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    for _ in 0..2000 {
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
    pub devices: Option<Devices>,
    pub children: Vec<Child>,
}

impl Rig {
    pub fn new() -> Self {
        let folder = tempfile::Builder::new().prefix("dolmen-ublk-").tempdir_in("/dev/shm").unwrap();
        for name in ["spaces", "mnt", "run"] {
            fs::create_dir(folder.path().join(name)).unwrap();
        }
        let host = FolderHost::new(&folder.path().join("spaces"), Duration::ZERO);
        Self { folder, host, devices: None, children: Vec::new() }
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
        let (devices, taken_up) =
            Devices::start(config(self.folder.path()), host, record(self.folder.path())).unwrap();
        self.devices = Some(devices);
        taken_up
    }

    pub fn devices(&self) -> &Devices {
        self.devices.as_ref().unwrap()
    }

    pub fn attach(&self, space: u64, name: &str) -> Attached {
        self.devices().attach(&wanted(space, name)).unwrap()
    }

    /// A process that serves what this rig holds until it is killed; returns when it serves.
    pub fn spawn_daemon(&mut self) {
        let _ = fs::remove_file(self.path("ready"));
        let child = self.process().spawn().unwrap();
        self.children.push(child);
        let ready = self.path("ready");
        eventually("the daemon's process serves", || ready.exists());
    }

    /// A process of this program that serves this rig.
    pub fn process(&self) -> Command {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["daemon_process", "--exact", "--nocapture"])
            .env("DOLMEN_UBLK_TEST_DAEMON", self.folder.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::null());
        command
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

pub fn config(folder: &Path) -> DevicesConfig {
    let mut config = DevicesConfig::new(folder.join("run"));
    config.links = folder.join("dev");
    config
}

pub fn record(folder: &Path) -> Box<dyn Record> {
    Box::new(RecordFile::new(folder.join("ublk.json")))
}

/// A record whose writer dies at one of its writes, before or after it.
pub struct DyingRecord {
    pub inner: Box<dyn Record>,
    pub steps_left: AtomicU64,
}

impl Record for DyingRecord {
    fn load(&self) -> Result<Made, RecordError> {
        self.inner.load()
    }
    fn store(&self, made: &Made) -> Result<(), RecordError> {
        self.step();
        self.inner.store(made)?;
        self.step();
        Ok(())
    }
}

impl DyingRecord {
    fn step(&self) {
        if self.steps_left.fetch_sub(1, Ordering::SeqCst) == 1 {
            let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
        }
    }
}

/// What the process that dies at a step does: attaches space 1, detaches it.
pub fn dying_daemon(folder: &Path, step: u64) -> ! {
    let host = FolderHost::new(&folder.join("spaces"), Duration::ZERO);
    let record = DyingRecord { inner: record(folder), steps_left: AtomicU64::new(step) };
    let (devices, _) = Devices::start(config(folder), host, Box::new(record)).unwrap();
    devices.attach(&wanted(1, "vm")).unwrap();
    devices.detach(key(1)).unwrap();
    std::process::exit(0);
}

/// Attaches and detaches until it is killed.
pub fn restless_daemon(folder: &Path) -> ! {
    let host = FolderHost::new(&folder.join("spaces"), Duration::ZERO);
    let (devices, _) = Devices::start(config(folder), host, record(folder)).unwrap();
    fs::write(folder.join("ready"), "").unwrap();
    loop {
        devices.attach(&wanted(1, "vm")).unwrap();
        devices.detach(key(1)).unwrap();
    }
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
    let (devices, taken_up) = Devices::start(config(folder), host, record(folder)).unwrap();
    assert!(taken_up.waiting.is_empty() && taken_up.lost.is_empty(), "{taken_up:?}");
    let attached = devices.attach(&wanted(1, "vm")).unwrap();
    fs::write(folder.join("ready"), attached.device.to_str().unwrap()).unwrap();
    let mut end = String::new();
    // The test's process closes the pipe when it ends, however it ends.
    let _ = std::io::stdin().read_line(&mut end);
    std::process::exit(0);
}

impl Drop for Rig {
    fn drop(&mut self) {
        let quiet = |program: &str, arguments: &[&str]| {
            let _ =
                Command::new(program).args(arguments).stdout(Stdio::null()).stderr(Stdio::null()).status();
        };
        quiet("umount", &["-l", self.path("mnt").to_str().unwrap()]);
        for mut child in self.children.drain(..) {
            let _ = child.kill();
            let _ = child.wait();
        }
        if let Some(devices) = self.devices.take() {
            devices.finish();
        }
        // A last daemon takes up and takes down what is left.
        self.host.fault.lock().unwrap().take();
        let host: Arc<dyn Host> = self.host.clone();
        if let Ok((devices, _)) = Devices::start(config(self.folder.path()), host, record(self.folder.path()))
        {
            for attached in devices.attached() {
                for _ in 0..100 {
                    match devices.detach(attached.attachment.space) {
                        Ok(()) => break,
                        Err(error) => {
                            eprintln!("cleaning up: {error}");
                            nap(Duration::from_millis(50));
                        }
                    }
                }
            }
            let left = devices.attached();
            devices.finish();
            // Whoever waits for one of these, perhaps a thread of this process, could not end.
            for attached in left {
                eventually("a device that stays is cleared away", || {
                    Abandoned::find(&attached.device).and_then(Abandoned::clear).is_ok()
                });
            }
        }
    }
}
