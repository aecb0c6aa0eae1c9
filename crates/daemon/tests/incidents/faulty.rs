//! Disks that err or are slow, for a daemon that knows nothing of it: files of a FUSE file system in this process. What is asked of
//! one is asked of a file in another folder, and before that it may be made to wait, or fail.
//!
//! That takes root and `/dev/fuse`. Only as much of the protocol is here as a file needs that is opened, read, written, flushed,
//! allocated and punched.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

const PAYLOAD_MAX: usize = 1 << 20;
/// Requests that are answered at a time: more than slow disks keep waiting.
const WORKERS: usize = 32;
const ROOT: u64 = 1;
const HEAD: usize = 40;
/// Whole files, and folders.
const FILE_MODE: u32 = 0o100_600;
const FOLDER_MODE: u32 = 0o040_700;

/// Operations, as the kernel numbers them.
mod op {
    pub(super) const LOOKUP: u32 = 1;
    pub(super) const FORGET: u32 = 2;
    pub(super) const GETATTR: u32 = 3;
    pub(super) const SETATTR: u32 = 4;
    pub(super) const OPEN: u32 = 14;
    pub(super) const READ: u32 = 15;
    pub(super) const WRITE: u32 = 16;
    pub(super) const STATFS: u32 = 17;
    pub(super) const RELEASE: u32 = 18;
    pub(super) const FSYNC: u32 = 20;
    pub(super) const FLUSH: u32 = 25;
    pub(super) const INIT: u32 = 26;
    pub(super) const DESTROY: u32 = 38;
    pub(super) const BATCH_FORGET: u32 = 42;
    pub(super) const FALLOCATE: u32 = 43;
}

/// A disk, and what is the matter with it.
pub(crate) struct Faulty {
    name: String,
    file: File,
    bytes: u64,
    /// How long each read, write and flush waits, in microseconds.
    wait_us: AtomicU64,
    /// Of a hundred reads, how many fail.
    errors_percent: AtomicU32,
    reads: AtomicU64,
}

impl Faulty {
    pub(crate) fn wait(&self, time: Duration) {
        self.wait_us.store(u64::try_from(time.as_micros()).unwrap(), Ordering::Relaxed);
    }

    pub(crate) fn fail_reads(&self, percent: u32) {
        self.errors_percent.store(percent, Ordering::Relaxed);
    }

    /// Reads that came here.
    pub(crate) fn reads(&self) -> u64 {
        self.reads.load(Ordering::Relaxed)
    }

    #[allow(clippy::disallowed_methods, reason = "the daemon under test lives in real time")]
    fn pause(&self) {
        match self.wait_us.load(Ordering::Relaxed) {
            0 => {}
            us => thread::sleep(Duration::from_micros(us)),
        }
    }

    fn read(&self, at: u64, length: usize) -> Result<Vec<u8>, Errno> {
        self.pause();
        let number = self.reads.fetch_add(1, Ordering::Relaxed);
        // Spread over all reads, and the same in each run of as many.
        let drawn = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
        if drawn % 100 < u64::from(self.errors_percent.load(Ordering::Relaxed)) {
            return Err(Errno::IO);
        }
        let end = self.bytes.min(at + length as u64);
        let mut bytes = vec![0; usize::try_from(end.saturating_sub(at)).unwrap()];
        self.file.read_exact_at(&mut bytes, at).map_err(|_| Errno::IO)?;
        Ok(bytes)
    }

    fn write(&self, at: u64, bytes: &[u8]) -> Result<(), Errno> {
        self.pause();
        self.file.write_all_at(bytes, at).map_err(|_| Errno::IO)
    }
}

/// A folder of such disks, while it is mounted.
pub(crate) struct Faults {
    at: PathBuf,
    disks: Arc<Vec<Faulty>>,
}

impl Faults {
    /// Mounts `count` disks of so many bytes below a folder; nothing where that cannot be done here.
    pub(crate) fn mount(folder: &Path, count: usize, bytes: u64) -> Option<Self> {
        let (at, below) = (folder.join("faulty"), folder.join("below"));
        [&at, &below].into_iter().for_each(|path| std::fs::create_dir(path).unwrap());
        let disk = |nth: usize| {
            let name = format!("d{nth}");
            let options = OpenOptions::new().read(true).write(true).create(true).truncate(true).clone();
            let file = options.open(below.join(&name)).unwrap();
            file.set_len(bytes).unwrap();
            let (wait_us, errors_percent, reads) = Default::default();
            Faulty { name, file, bytes, wait_us, errors_percent, reads }
        };
        let disks = Arc::new((0..count).map(disk).collect::<Vec<_>>());
        let fuse = Arc::new(OpenOptions::new().read(true).write(true).open("/dev/fuse").ok()?);
        let options = format!("fd={},rootmode=40000,user_id=0,group_id=0\0", fuse.as_raw_fd());
        let options = std::ffi::CStr::from_bytes_with_nul(options.as_bytes()).unwrap();
        let flags = MountFlags::NOSUID | MountFlags::NODEV;
        mount("dolmen-faulty", &at, "fuse", flags, Some(options)).ok()?;
        for _ in 0..WORKERS {
            let (fuse, disks) = (Arc::clone(&fuse), Arc::clone(&disks));
            thread::Builder::new().spawn(move || serve(&fuse, &disks)).ok()?;
        }
        Some(Self { at, disks })
    }

    pub(crate) fn paths(&self) -> Vec<String> {
        self.disks.iter().map(|disk| self.at.join(&disk.name).display().to_string()).collect()
    }

    pub(crate) fn disk(&self, nth: usize) -> &Faulty {
        &self.disks[nth]
    }
}

impl Drop for Faults {
    fn drop(&mut self) {
        // A daemon that has files of it open keeps it, and those who answer, until it ends.
        let _ = unmount(&self.at, UnmountFlags::DETACH);
    }
}

/// Answers requests until the file system is unmounted.
fn serve(fuse: &File, disks: &[Faulty]) {
    let mut request = vec![0; HEAD + 40 + PAYLOAD_MAX + 4096];
    let mut from = fuse;
    loop {
        let length = match from.read(&mut request) {
            Ok(length) => length,
            Err(error) if [Some(libc::EINTR), Some(libc::ENOENT)].contains(&error.raw_os_error()) => continue,
            Err(_) => return,
        };
        let request = Request(&request[..length]);
        match request.u32(4) {
            op::FORGET | op::BATCH_FORGET => {}
            op::DESTROY => return,
            _ => answer(fuse, request.u64(8), &request.carry_out(disks)),
        }
    }
}

fn answer(mut fuse: &File, unique: u64, result: &Result<Vec<u8>, Errno>) {
    let (error, body) = match result {
        Ok(body) => (0, body.as_slice()),
        Err(error) => (-error.raw_os_error(), &[][..]),
    };
    let mut bytes = Vec::with_capacity(16 + body.len());
    bytes.extend(u32::try_from(16 + body.len()).unwrap().to_ne_bytes());
    bytes.extend(error.to_ne_bytes());
    bytes.extend(unique.to_ne_bytes());
    bytes.extend(body);
    // Whoever asked may have died.
    let _ = fuse.write(&bytes);
}

/// A request, as it came.
struct Request<'a>(&'a [u8]);

impl Request<'_> {
    fn u32(&self, at: usize) -> u32 {
        u32::from_ne_bytes(self.0[at..at + 4].try_into().unwrap())
    }

    fn u64(&self, at: usize) -> u64 {
        u64::from_ne_bytes(self.0[at..at + 8].try_into().unwrap())
    }

    /// The number of what it is about; disks are numbered from 2 on.
    fn node(&self) -> u64 {
        self.u64(16)
    }

    fn carry_out(&self, disks: &[Faulty]) -> Result<Vec<u8>, Errno> {
        let disk = || {
            let nth = usize::try_from(self.node()).unwrap().checked_sub(2);
            nth.and_then(|nth| disks.get(nth)).ok_or(Errno::ISDIR)
        };
        match self.u32(4) {
            op::INIT => Ok(init()),
            op::LOOKUP => {
                let name = self.0[HEAD..].split(|byte| *byte == 0).next().unwrap_or_default();
                let found = disks.iter().position(|disk| disk.name.as_bytes() == name).ok_or(Errno::NOENT)?;
                let mut out = words(&[found as u64 + 2, 0, 0, 0, 0]);
                out.extend(attributes(found as u64 + 2, disks));
                Ok(out)
            }
            op::GETATTR | op::SETATTR => {
                let mut out = words(&[0, 0]);
                out.extend(attributes(self.node(), disks));
                Ok(out)
            }
            // Past the page cache, and writes beside each other.
            op::OPEN => Ok(words(&[0, 1 | 1 << 6])),
            op::READ => disk()?.read(self.u64(HEAD + 8), self.u32(HEAD + 16) as usize),
            op::WRITE => {
                disk()?.write(self.u64(HEAD + 8), &self.0[HEAD + 40..])?;
                Ok(words(&[u64::from(self.u32(HEAD + 16))]))
            }
            op::FSYNC => {
                disk()?.pause();
                Ok(Vec::new())
            }
            op::FLUSH | op::RELEASE => Ok(Vec::new()),
            op::STATFS => Ok(words(&[1 << 20, 1 << 19, 1 << 19, 9, 0, 4096 | 255 << 32, 4096, 0, 0, 0])),
            op::FALLOCATE => {
                let mode = FallocateFlags::from_bits_retain(self.u32(HEAD + 24));
                fallocate(&disk()?.file, mode, self.u64(HEAD + 8), self.u64(HEAD + 16))?;
                Ok(Vec::new())
            }
            _ => Err(Errno::NOSYS),
        }
    }
}

fn words(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

fn init() -> Vec<u8> {
    // Reads and writes at a time, large ones, and of many pages.
    let flags = 1 | 1 << 5 | 1 << 15 | 1 << 18 | 1 << 22;
    let halves: [u32; 4] = [7, 31, 0, flags];
    let mut out: Vec<u8> = halves.iter().flat_map(|half| half.to_ne_bytes()).collect();
    out.extend([64u16, 64].iter().flat_map(|half| half.to_ne_bytes()));
    out.extend([u32::try_from(PAYLOAD_MAX).unwrap(), 1].iter().flat_map(|half| half.to_ne_bytes()));
    out.extend(u16::try_from(PAYLOAD_MAX / 4096).unwrap().to_ne_bytes());
    out.resize(64, 0);
    out
}

fn attributes(node: u64, disks: &[Faulty]) -> Vec<u8> {
    let disk = usize::try_from(node).unwrap().checked_sub(2).and_then(|nth| disks.get(nth));
    let (mode, bytes) = match disk {
        Some(disk) => (FILE_MODE, disk.bytes),
        None => (FOLDER_MODE, 4096),
    };
    assert!(disk.is_some() || node == ROOT, "the kernel asks for what was never looked up");
    let mut out = words(&[node, bytes, bytes / 512, 0, 0, 0]);
    let halves: [u32; 10] = [0, 0, 0, mode, 1, 0, 0, 0, 4096, 0];
    out.extend(halves.iter().flat_map(|half| half.to_ne_bytes()));
    out
}
