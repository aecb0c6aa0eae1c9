//! A sector that cannot be read: a file system of one file shows a disk file in its own place, and fails each read of that sector
//! until the sector is written.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::thread::JoinHandle;

use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use serde_json::{Value, json};

use crate::client::{World, pattern};

const PART: usize = 1 << 20;
const PARTS: u64 = 32;
const SECTOR: u64 = 512;
const BLOCK: usize = 4096;

/// The longest write, and what stands before its content (`linux/fuse.h`).
const WRITE_BYTES_MAX: usize = 1 << 20;
const HEADER_BYTES: usize = 40;

/// A disk file in whose place the file system stands; the file itself is there again when this is dropped.
struct Shown {
    path: String,
    server: Option<JoinHandle<()>>,
}

/// What the file system serves.
struct Medium {
    file: File,
    /// First byte of the sector that cannot be read, until it is written.
    bad: Option<u64>,
}

impl Shown {
    /// `None` where the machine mounts nothing.
    fn new(path: &str, bad: u64) -> Option<Self> {
        let file = File::options().read(true).write(true).open(path).unwrap();
        let Ok(fuse) = File::options().read(true).write(true).open("/dev/fuse") else {
            println!("skipped: /dev/fuse cannot be opened");
            return None;
        };
        let options = format!("fd={},rootmode=100000,user_id=0,group_id=0", fuse.as_raw_fd());
        let options = std::ffi::CString::new(options).unwrap();
        if let Err(error) = mount("medium", path, "fuse", MountFlags::empty(), options.as_c_str()) {
            println!("skipped: mounting is refused: {error}");
            return None;
        }
        let medium = Medium { file, bad: Some(bad) };
        #[allow(
            clippy::disallowed_methods,
            reason = "the kernel waits for the file system while the test waits for the daemon"
        )]
        let server = Some(std::thread::spawn(move || medium.serve(fuse)));
        Some(Self { path: path.to_owned(), server })
    }
}

impl Drop for Shown {
    fn drop(&mut self) {
        let _ = unmount(self.path.as_str(), UnmountFlags::DETACH);
        self.server.take().map(JoinHandle::join);
    }
}

fn number(request: &[u8], at: usize) -> u64 {
    u64::from_ne_bytes(request[at..at + 8].try_into().unwrap())
}

fn short(request: &[u8], at: usize) -> usize {
    u32::from_ne_bytes(request[at..at + 4].try_into().unwrap()) as usize
}

impl Medium {
    /// Answers requests one after another until the file system is unmounted.
    fn serve(mut self, mut fuse: File) {
        let mut request = vec![0; WRITE_BYTES_MAX + (64 << 10)];
        while let Ok(length) = fuse.read(&mut request) {
            let Some(answer) = self.answer(&request[..length]) else { continue };
            let (error, content) = match answer {
                Ok(content) => (0i32, content),
                Err(errno) => (-errno, Vec::new()),
            };
            let length = u32::try_from(16 + content.len()).unwrap();
            let head = [&length.to_ne_bytes()[..], &error.to_ne_bytes(), &request[8..16]].concat();
            if fuse.write_all(&[head, content].concat()).is_err() {
                return;
            }
        }
    }

    /// The answer to a request, or its error; `None` for what is not answered.
    fn answer(&mut self, request: &[u8]) -> Option<Result<Vec<u8>, i32>> {
        Some(match short(request, 4) {
            // Forget, interrupt, destroy, forget many.
            2 | 36 | 38 | 42 => return None,
            3 => Ok(self.attributes()),
            // Open, past the page cache.
            14 => Ok([&[0; 8][..], &1u32.to_ne_bytes(), &[0; 4]].concat()),
            15 => self.read(number(request, HEADER_BYTES + 8), short(request, HEADER_BYTES + 16)),
            16 => Ok(self.write(number(request, HEADER_BYTES + 8), &request[HEADER_BYTES + 40..])),
            // Release, sync, flush.
            18 | 20 | 25 => self.file.sync_data().map(|()| Vec::new()).map_err(|_| 5),
            26 => Ok(opened()),
            _ => Err(38),
        })
    }

    fn attributes(&self) -> Vec<u8> {
        let status = self.file.metadata().unwrap();
        let longs = [1, 0, status.ino(), status.len(), status.blocks(), 0, 0, 0];
        let shorts = [0, 0, 0, status.mode(), 1, 0, 0, 0, 4096, 0];
        let longs = longs.iter().flat_map(|long| long.to_ne_bytes());
        longs.chain(shorts.iter().flat_map(|short: &u32| short.to_ne_bytes())).collect()
    }

    fn read(&self, at: u64, length: usize) -> Result<Vec<u8>, i32> {
        if self.bad.is_some_and(|bad| bad < at + length as u64 && at < bad + SECTOR) {
            return Err(5);
        }
        let mut content = vec![0; length];
        self.file.read_exact_at(&mut content, at).map(|()| content).map_err(|_| 5)
    }

    fn write(&mut self, at: u64, content: &[u8]) -> Vec<u8> {
        self.file.write_all_at(content, at).unwrap();
        self.bad = self.bad.filter(|bad| *bad < at || bad + SECTOR > at + content.len() as u64);
        let length = u32::try_from(content.len()).unwrap();
        [length.to_ne_bytes(), [0; 4]].concat()
    }
}

/// The answer to the first request: version 7.31, writes as long as they may be.
fn opened() -> Vec<u8> {
    let long_writes = 1u32 << 5 | 1 << 22;
    let first = [7, 31, 0, long_writes, 16 | 12 << 16, 1 << 20, 1, 256, 0, 0, 0, 0, 0, 0, 0, 0];
    first.iter().flat_map(|word: &u32| word.to_ne_bytes()).collect()
}

/// Where a block stands in the data area of a disk file: the log in front of it may have the same.
pub(crate) fn place_of(path: &Path, bytes: &[u8]) -> u64 {
    let content = fs::read(path).unwrap();
    let found: Vec<usize> =
        (9 << 20..content.len()).step_by(BLOCK).filter(|at| content[*at..].starts_with(bytes)).collect();
    assert_eq!(found.len(), 1, "{found:?}");
    found[0] as u64
}

fn read_all(world: &World) -> u64 {
    let mut client = world.nbd();
    let is_right = |part: &u64| {
        client.read(part * PART as u64, PART) == pattern(u8::try_from(part % 200).unwrap() + 1, PART)
    };
    (0..PARTS).filter(is_right).count() as u64
}

fn errors(world: &World, slot: usize) -> u64 {
    let disk: Value = world.get("/v1/pools/tank/disks")["disks"][slot].clone();
    disk["read_errors"].as_u64().unwrap()
}

/// Scenario: one sector of one disk of a mirror cannot be read, and what stands there is lost. The client gets every byte. The disk
/// stays, its error is counted and named with what to do, and the block is rewritten from the other copy: it is on the disk when that
/// is looked at without the fault.
#[test]
fn a_sector_that_cannot_be_read_is_read_elsewhere_and_healed() {
    let mut world = World::new(2);
    world.make_tank(&["d0", "d1"]);
    let mut client = world.nbd();
    for part in 0..PARTS {
        client.write(part * PART as u64, &pattern(u8::try_from(part % 200).unwrap() + 1, PART));
    }
    // One block that is found again among all bytes of the disk.
    let unique: Vec<u8> = (0..BLOCK).map(|at| u8::try_from(at * 7 / 3 % 253).unwrap()).collect();
    let expected = [&unique[..], &pattern(6, PART)[BLOCK..]].concat();
    client.write(5 * PART as u64, &expected);
    client.flush();
    drop(client);
    world.kill();
    let path = world.disk("d0");
    let at = place_of(Path::new(&path), &unique);
    let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
    let bad = at + 3 * SECTOR;
    file.write_all_at(&[0xee; 512], bad).unwrap();
    let Some(shown) = Shown::new(&path, bad) else { return };
    world.start();
    // A read asks one of the copies; a scrub asks both.
    let mut client = world.nbd();
    assert!(client.read(5 * PART as u64, PART) == expected, "a client got what the disk has");
    drop(client);
    assert_eq!(read_all(&world), PARTS - 1, "all but the part with the unique block is as it was written");
    world.post("/v1/pools/tank/scrub", &json!({}));
    let job = world.last_job();
    assert!(errors(&world, 0) > 0 && errors(&world, 1) == 0, "{job}");
    let status = world.get("/v1/status");
    let disk = world.get("/v1/pools/tank/disks")["disks"][0].clone();
    assert_eq!((&status["health"], &disk["state"]), (&"warning".into(), &"present".into()), "{status}");
    let why = status["why"].to_string();
    assert!(why.contains(&path) && why.contains("failed read") && why.contains("1 damaged block"), "{why}");
    assert!(!why.contains("lost data"), "{why}");
    let todo = status["todo"].to_string();
    assert!(todo.contains("scrub") || todo.contains("replace"), "{todo}");
    let explained = world.get("/v1/why/tank").to_string();
    assert!(explained.contains("disk_errors") && explained.contains(&path), "{explained}");
    world.kill();
    drop(shown);
    let healed = fs::read(&path).unwrap();
    let at = usize::try_from(at).unwrap();
    assert!(healed[at..at + BLOCK] == unique, "the block was not rewritten");
}
