//! A machine whose power can be cut: what its disks had not flushed is gone then, and so is all that ran.
//!
//! Each disk is a loop device over a file of one file system, the *board*, so that a command to the disk goes to the kernel's
//! memory, and a flush brings it to the file. To cut the power is to shut the board down without its log, as the kernel can: from
//! that instant nothing reaches it, and when it is mounted again the files have what was flushed, and of the rest whatever the
//! kernel had happened to write. The host's own records are on the board as well.
//!
//! Where the machine that runs the tests cannot do that, the daemon is killed and its disks are files: what was acknowledged has
//! to be there all the same, and what only a power cut can show is shown by the crash tests of crate `space`.

use std::fs::{self, File};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rustix::ioctl::{self, Setter, opcode};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::client::{World, eventually};
use crate::mounted::{Mounted, children_of};

/// Asks a file system to take nothing more, and to forget what it has not written.
const SHUT_DOWN: ioctl::Opcode = opcode::read::<u32>(b'X', 125);
/// Without writing the log.
const WITHOUT_LOG: u32 = 2;
const LOOP_ADD: ioctl::Opcode = 0x4C80;
const LOOP_REMOVE: ioctl::Opcode = 0x4C81;
/// Loop devices of these tests have numbers that nobody gets who asks for any that is free: a disk has the same before a cut and
/// behind it.
const LOOP_FIRST: u32 = 1 << 14;
/// Devices of one process, at most, and processes whose numbers differ.
const LOOPS_MAX: u32 = 128;
const PROCESSES: u32 = 1 << 12;
/// Tries to take a disk away when a test has ended.
const UNPLUG_TRIES_MAX: u32 = 100;
/// What the board may hold. It is a sparse file.
const BOARD_BYTES: u64 = 8 << 30;

/// What a program prints, or says while it fails.
pub(crate) fn run(program: &str, arguments: &[&str]) -> Result<String, String> {
    let output = Command::new(program).args(arguments).output();
    let output = output.map_err(|error| format!("{program}: {error}"))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    match output.status.success() {
        true => Ok(text(&output.stdout)),
        false => Err(format!("{program} {}: {}", arguments.join(" "), text(&output.stderr))),
    }
}

/// Asks the kernel for something about an open file, which takes a number.
#[allow(unsafe_code, reason = "the kernel has no other way for what these tests ask of it")]
fn ask(file: &File, by_value: bool, what: ioctl::Opcode, number: u32) -> Result<(), rustix::io::Errno> {
    /// A request whose argument is the number itself.
    struct ByValue(ioctl::Opcode, u32);
    // SAFETY: these requests take a number and touch no memory of this process.
    unsafe impl ioctl::Ioctl for ByValue {
        type Output = ();
        const IS_MUTATING: bool = false;
        fn opcode(&self) -> ioctl::Opcode {
            self.0
        }
        fn as_ptr(&mut self) -> *mut std::ffi::c_void {
            std::ptr::without_provenance_mut(self.1 as usize)
        }
        unsafe fn output_from_ptr(_: ioctl::IoctlOutput, _: *mut std::ffi::c_void) -> rustix::io::Result<()> {
            Ok(())
        }
    }
    if by_value {
        // SAFETY: as above.
        return unsafe { ioctl::ioctl(file.as_fd(), ByValue(what, number)) };
    }
    // SAFETY: the kernel reads four bytes from where it is pointed to, and writes none.
    unsafe { ioctl::ioctl(file.as_fd(), Setter::<SHUT_DOWN, u32>::new(number)) }
}

/// Has a file system lose all that it has not written.
pub(crate) fn shut_down(mount: &Path) {
    ask(&File::open(mount).unwrap(), false, SHUT_DOWN, WITHOUT_LOG).unwrap();
}

fn loop_control(what: ioctl::Opcode, number: u32) -> Result<(), String> {
    let control = File::options().read(true).write(true).open("/dev/loop-control");
    let control = control.map_err(|error| format!("/dev/loop-control: {error}"))?;
    ask(&control, true, what, number).map_err(|error| format!("loop device {number}: {error}"))
}

/// The number of a new loop device, which nobody else has.
fn new_number() -> Result<u32, String> {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let mut last = String::new();
    for _ in 0..LOOPS_MAX {
        let count = COUNT.fetch_add(1, Ordering::Relaxed) % LOOPS_MAX;
        let number = LOOP_FIRST + (std::process::id() % PROCESSES) * LOOPS_MAX + count;
        match loop_control(LOOP_ADD, number) {
            Ok(()) => return Ok(number),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// The file system that power is cut from.
struct Board {
    image: PathBuf,
    at: PathBuf,
    /// Its disks: the number of the loop device and the name of the file.
    disks: Vec<(u32, String)>,
}

impl Board {
    fn new(folder: &Path) -> Result<Self, String> {
        let (image, at) = (folder.join("board.image"), folder.join("board"));
        File::create(&image).and_then(|file| file.set_len(BOARD_BYTES)).map_err(|error| error.to_string())?;
        fs::create_dir(&at).map_err(|error| error.to_string())?;
        let text = image.display().to_string();
        run("mkfs.ext4", &["-q", "-F", "-E", "lazy_itable_init=1,nodiscard", &text])?;
        let board = Self { image, at, disks: Vec::new() };
        board.mount()?;
        // A machine that cannot shut a file system down shows it here.
        loop_control(LOOP_REMOVE, new_number()?).map(|()| board)
    }

    fn mount(&self) -> Result<(), String> {
        let (image, at) = (self.image.display().to_string(), self.at.display().to_string());
        run("mount", &["-o", "loop", &image, &at]).map(drop)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.at.join(name)
    }

    fn plug(&self, (number, name): &(u32, String)) {
        let _ = loop_control(LOOP_ADD, *number);
        let file = self.file(name).display().to_string();
        run("losetup", &["--sector-size", "4096", &device(*number), &file]).unwrap();
    }

    fn unplug(&self, (number, _): &(u32, String)) {
        eventually("a disk is held by nobody", || is_unplugged(*number).then_some(()));
    }
}

impl Drop for Board {
    fn drop(&mut self) {
        // Whoever had them open is dead, and lets go of them in a moment.
        for (number, _) in &self.disks {
            let _ = (0..UNPLUG_TRIES_MAX).find(|_| is_unplugged(*number) || pause());
        }
        let at = self.at.display().to_string();
        let _ = run("umount", &[&at]).or_else(|_| run("umount", &["--lazy", &at]));
    }
}

fn device(number: u32) -> String {
    format!("/dev/loop{number}")
}

/// Tries to take a loop device away; whether there is none.
fn is_unplugged(number: u32) -> bool {
    let _ = run("losetup", &["--detach", &device(number)]);
    let is_bound = Path::new(&format!("/sys/block/loop{number}/loop")).exists();
    !is_bound && (loop_control(LOOP_REMOVE, number).is_ok() || !Path::new(&device(number)).exists())
}

/// Never what was looked for.
fn pause() -> bool {
    wait(Duration::from_millis(50));
    false
}

#[allow(clippy::disallowed_methods, reason = "the daemon under test lives in real time")]
pub(crate) fn wait(duration: Duration) {
    std::thread::sleep(duration);
}

/// A daemon on disks that lose their caches with the power.
pub(crate) struct Machine {
    // It goes before the folder that it is in.
    board: Option<Board>,
    pub(crate) world: World,
    /// Disks that are not plugged in.
    pulled: Vec<String>,
}

impl Machine {
    /// One with disks `d0` and so on, of 256 MiB, and a running daemon.
    pub(crate) fn new(disks: usize) -> Self {
        let mut world = World::new(0);
        world.kill();
        let board = Board::new(world.folder.path());
        if let Err(why) = &board {
            println!("skipped: power is not cut, the daemon is killed instead ({why})");
        }
        let mut machine = Self { board: board.ok(), world, pulled: Vec::new() };
        for index in 0..disks {
            machine.make_disk(&format!("d{index}"), 256 << 20);
        }
        machine.start();
        machine
    }

    pub(crate) fn can_be_cut(&self) -> bool {
        self.board.is_some()
    }

    pub(crate) fn make_disk(&mut self, name: &str, bytes: u64) -> String {
        match &mut self.board {
            Some(board) => {
                File::create(board.file(name)).unwrap().set_len(bytes).unwrap();
                let disk = (new_number().unwrap(), name.to_owned());
                board.plug(&disk);
                board.disks.push(disk);
            }
            None => drop(self.world.make_disk(name, bytes)),
        }
        self.disk(name)
    }

    /// The path by which the daemon knows a disk.
    pub(crate) fn disk(&self, name: &str) -> String {
        let Some(board) = &self.board else { return self.world.disk(name) };
        let (number, _) = board.disks.iter().find(|(_, other)| other == name).unwrap();
        device(*number)
    }

    /// The file that has what a disk holds.
    pub(crate) fn image(&self, name: &str) -> PathBuf {
        match &self.board {
            Some(board) => board.file(name),
            None => PathBuf::from(self.world.disk(name)),
        }
    }

    fn command(&self) -> Command {
        self.world.command(if self.board.is_some() { "board/state" } else { "state" }, "run")
    }

    fn start(&mut self) {
        let command = self.command();
        self.world.begin(command);
    }

    /// The power fails: the daemon is gone, and so is what no flush has covered.
    pub(crate) fn cut(&mut self) {
        self.cut_keeping(&[]);
    }

    /// The same, when these disks happen to have written what was not flushed.
    pub(crate) fn cut_keeping(&mut self, names: &[&str]) {
        // It sees nothing of the moment in which the disks are gone and it is not.
        let daemon = Pid::from_raw(i32::try_from(self.world.pid()).unwrap()).unwrap();
        kill_process(daemon, Signal::STOP).unwrap();
        eventually("each thread of the daemon is stopped", || has_stopped(daemon).then_some(()));
        for name in names.iter().filter(|_| self.can_be_cut()) {
            File::open(self.image(name)).and_then(|image| image.sync_data()).unwrap();
        }
        self.cut_under(&[]);
    }

    /// The same, under file systems on its spaces.
    pub(crate) fn cut_under(&mut self, mounted: &[&Mounted]) {
        if let Some(board) = &self.board {
            shut_down(&board.at);
        }
        mounted.iter().for_each(|one| one.dies());
        let descriptor_holders = children_of(self.world.pid());
        self.world.kill();
        for descriptor_holder in descriptor_holders.into_iter().filter_map(Pid::from_raw) {
            let _ = kill_process(descriptor_holder, Signal::KILL);
        }
        mounted.iter().for_each(|one| one.is_released());
        let Some(board) = &self.board else { return };
        board.disks.iter().filter(|disk| !self.pulled.contains(&disk.1)).for_each(|disk| board.unplug(disk));
        eventually("the board is used by nobody", || run("umount", &[&board.at.display().to_string()]).ok());
        board.mount().unwrap();
    }

    /// Power is back, and whatever the daemon begins by itself has ended.
    pub(crate) fn boot(&mut self) {
        self.plug_all();
        self.start();
    }

    /// Power is back; what the daemon says of its pool as soon as it has looked for it.
    pub(crate) fn boot_at_once(&mut self) -> Value {
        self.plug_all();
        let command = self.command();
        self.world.begin_at_once(command);
        eventually("the daemon has looked for its pools", || {
            let (status, pools) = self.world.try_ask("GET", "/v1/pools", b"")?;
            let pool = pools["pools"][0].clone();
            (status == 200 && pool["state"].is_string()).then_some(pool)
        })
    }

    fn plug_all(&self) {
        let Some(board) = &self.board else { return };
        board.disks.iter().filter(|disk| !self.pulled.contains(&disk.1)).for_each(|disk| board.plug(disk));
    }

    /// Takes a disk away for good. The power is off.
    pub(crate) fn pull(&mut self, name: &str) {
        assert!(!self.world.is_running());
        if self.board.is_none() {
            fs::rename(self.world.disk(name), self.world.folder.path().join(name)).unwrap();
        }
        self.pulled.push(name.to_owned());
    }

    /// Plugs a disk in that was pulled. The power is off.
    pub(crate) fn put_back(&mut self, name: &str) {
        assert!(!self.world.is_running());
        if self.board.is_none() {
            fs::rename(self.world.folder.path().join(name), self.world.disk(name)).unwrap();
        }
        self.pulled.retain(|pulled| pulled != name);
    }
}

/// Whether no thread of a process runs any more: a signal that stops it takes a while on a loaded machine.
fn has_stopped(process: Pid) -> bool {
    let threads = fs::read_dir(format!("/proc/{}/task", process.as_raw_nonzero())).unwrap();
    threads.flatten().all(|thread| {
        let stat = fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
        stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with('T'))
    })
}

impl Drop for Machine {
    fn drop(&mut self) {
        if self.world.is_running() {
            self.world.kill();
        }
    }
}
