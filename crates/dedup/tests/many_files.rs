//! Many small files through the seams, with scratch in a folder: time and peak memory of the process.
//!
//! ```sh
//! cargo test --release -p dolmen-dedup --test many_files -- --ignored --nocapture
//! ```

#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    clippy::disallowed_methods,
    clippy::print_stdout,
    clippy::indexing_slicing
)]

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::time::Instant;

use dolmen_dedup::{
    Control, Counts, DeviceRange, Extent, ExtentKind, FileError, FileId, FileInfo, Files, Next, Phase,
    Policy, Progress, Scratch, ScratchAction, ScratchError, ShareRange, Shared, Skipped, deduplicate,
};

const SIZE: u64 = 1000;

/// A volume of so many files of [`SIZE`] bytes. Four of 25 files have the content of another.
struct Synthetic {
    files: u64,
    listed: u64,
    calls: u64,
}

impl Synthetic {
    fn state(inode: u64) -> FileInfo {
        let id = FileId { inode, generation: 1 };
        FileInfo { id, size: SIZE, changed_ns: 1, modified_ns: 1, links: 1 }
    }

    fn content(&self, inode: u64) -> u64 {
        if inode.is_multiple_of(5) { (inode / 5) % (self.files / 4) + 1 } else { inode }
    }
}

impl Files for Synthetic {
    type Handle = u64;

    fn block_bytes(&self) -> u64 {
        4096
    }
    fn rewind(&mut self) -> Result<(), FileError> {
        self.listed = 0;
        Ok(())
    }
    fn list(&mut self, into: &mut Vec<FileInfo>) -> Result<bool, FileError> {
        let end = (self.listed + 4096).min(self.files);
        into.extend((self.listed + 1..=end).map(Self::state));
        self.listed = end;
        Ok(end < self.files)
    }
    fn path(&mut self, _: FileId, into: &mut Vec<u8>) -> Result<(), FileError> {
        into.clear();
        Ok(())
    }
    fn open(&mut self, file: FileId) -> Result<u64, FileError> {
        Ok(file.inode)
    }
    fn info(&mut self, handle: &u64) -> Result<FileInfo, FileError> {
        Ok(Self::state(*handle))
    }
    fn read(&mut self, handle: &u64, _: u64, into: &mut [u8]) -> Result<usize, FileError> {
        let content = self.content(*handle).to_le_bytes();
        for part in into.chunks_mut(8) {
            part.copy_from_slice(&content[..part.len()]);
        }
        Ok(into.len())
    }
    fn extents(
        &mut self,
        handle: &u64,
        _: std::ops::Range<u64>,
        _: usize,
        into: &mut Vec<Extent>,
    ) -> Result<bool, FileError> {
        let physical = *handle * 4096;
        into.push(Extent { logical: 0, physical, length: 4096, kind: ExtentKind::Plain, shared: false });
        Ok(true)
    }
    fn share(&mut self, source: &u64, target: &u64, range: ShareRange) -> Result<Shared, FileError> {
        self.calls += 1;
        Ok(if self.content(*source) == self.content(*target) {
            Shared::Bytes(range.length)
        } else {
            Shared::Differs
        })
    }
    fn pack(&mut self, bytes: u64) -> Result<u64, FileError> {
        Err(FileError::NoRoom { bytes })
    }
    fn pack_at(&mut self, _: &[DeviceRange], _: &mut Vec<DeviceRange>) -> Result<u64, FileError> {
        Err(FileError::NoRoom { bytes: 0 })
    }
    fn copy(&mut self, _: &u64, _: &u64, range: ShareRange) -> Result<u64, FileError> {
        Err(FileError::NoRoom { bytes: range.length })
    }
    fn cut(&mut self, _: &u64, bytes: u64) -> Result<(), FileError> {
        Err(FileError::NoRoom { bytes })
    }
    fn sync(&mut self, _: &u64) -> Result<(), FileError> {
        Ok(())
    }
    fn fixed(&mut self, _: &mut Vec<DeviceRange>) -> Result<(), FileError> {
        Ok(())
    }
    fn free(&mut self, _: &mut dyn FnMut(DeviceRange)) -> Result<(), FileError> {
        Ok(())
    }
    fn available(&mut self) -> Result<u64, FileError> {
        Ok(u64::MAX)
    }
    fn trim(&mut self) -> Result<u64, FileError> {
        Ok(0)
    }
}

struct Folder {
    path: PathBuf,
    next: u64,
    bytes: u64,
}

struct ScratchFile {
    path: PathBuf,
    file: File,
    length: u64,
}

impl Drop for ScratchFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

fn failed(action: ScratchAction, offset: u64) -> impl FnOnce(std::io::Error) -> ScratchError {
    move |source| ScratchError { action, offset, source: Box::new(source) }
}

impl Scratch for Folder {
    type File = ScratchFile;

    fn create(&mut self) -> Result<ScratchFile, ScratchError> {
        self.next += 1;
        let path = self.path.join(self.next.to_string());
        let options = File::options().read(true).write(true).create_new(true).open(&path);
        Ok(ScratchFile { path, file: options.map_err(failed(ScratchAction::Create, 0))?, length: 0 })
    }
    fn append(&mut self, file: &mut ScratchFile, bytes: &[u8]) -> Result<(), ScratchError> {
        file.file.write_all_at(bytes, file.length).map_err(failed(ScratchAction::Append, file.length))?;
        file.length += bytes.len() as u64;
        self.bytes += bytes.len() as u64;
        Ok(())
    }
    fn read(&mut self, file: &ScratchFile, offset: u64, into: &mut [u8]) -> Result<usize, ScratchError> {
        let mut done = 0;
        while done < into.len() {
            let read = file.file.read_at(&mut into[done..], offset + done as u64);
            match read.map_err(failed(ScratchAction::Read, offset))? {
                0 => break,
                count => done += count,
            }
        }
        Ok(done)
    }
    fn keep(&mut self, mut file: ScratchFile, name: &'static str) -> Result<(), ScratchError> {
        let from = std::mem::take(&mut file.path);
        std::fs::rename(from, self.path.join(name)).map_err(failed(ScratchAction::Name, 0))
    }
    fn kept(&mut self, name: &'static str) -> Result<Option<ScratchFile>, ScratchError> {
        let file = File::open(self.path.join(name)).ok();
        Ok(file.map(|file| ScratchFile { path: PathBuf::new(), file, length: 0 }))
    }
}

/// A caller that prints when each phase began.
struct Print {
    phase: Option<Phase>,
    begin: Instant,
}

impl Control for Print {
    fn next(&mut self, progress: &Progress) -> Next {
        if self.phase.replace(progress.phase) != Some(progress.phase) {
            println!(
                "{:6.1} s  {:?} begins, peak {} MiB",
                self.begin.elapsed().as_secs_f64(),
                progress.phase,
                peak() >> 20
            );
        }
        Next::Go
    }
    fn skipped(&mut self, file: FileId, reason: Skipped) {
        panic!("{file:?}: {reason}");
    }
}

/// Returns the peak of the memory that the process has had, in bytes.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}

fn run(files: u64, memory_bytes: usize) -> (Counts, Counts) {
    let path = std::env::temp_dir().join(format!("dolmen-dedup-{}-{files}", std::process::id()));
    std::fs::create_dir(&path).unwrap();
    let mut scratch = Folder { path, next: 0, bytes: 0 };
    let mut volume = Synthetic { files, listed: 0, calls: 0 };
    let policy = Policy { age_min_ns: 0, size_min: 1, memory_bytes, ..Policy::background(i64::MAX) };
    let mut run = |what: &str| {
        let begin = Instant::now();
        let mut control = Print { phase: None, begin };
        let counts = deduplicate(&mut volume, &mut scratch, &mut control, &policy).unwrap();
        println!("{:6.1} s  {what}: {counts:?}", begin.elapsed().as_secs_f64());
        println!("          {} MiB written to scratch, peak {} MiB", scratch.bytes >> 20, peak() >> 20);
        counts
    };
    (run("first run"), run("second run"))
}

/// Scenario: 300,000 files and 2 MiB of memory for buffers, a tenth of the records of one sort. Expected: equal files are found,
/// the second run reads none, and the process grows by the memory it was given and a fixed part.
#[test]
fn memory_stays_within_its_limit() {
    let before = peak();
    let (first, second) = run(300_000, 2 << 20);
    let grown = peak() - before;
    assert_eq!((first.calls, first.differing, first.files_skipped), (48_000, 0, 0));
    assert_eq!((second.files, second.files_read), (300_000, 0));
    assert!(grown < (2 << 20) + (3 << 20), "grown by {grown} bytes");
}

/// Scenario: ten million files within 256 MiB. Expected: the process stays below.
#[test]
#[ignore = "takes minutes in a debug build"]
fn ten_million_files_fit_256_mib() {
    let (first, second) = run(10_000_000, 200 << 20);
    assert_eq!((first.calls, first.differing, first.files_skipped), (1_600_000, 0, 0));
    assert_eq!((second.files, second.files_read), (10_000_000, 0));
    assert!(peak() < 256 << 20, "{} MiB", peak() >> 20);
}
