//! Disks of the benchmark: files that are written from end to end where they will be used, so that no measured write
//! waits for the file system to find room.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use dolmen_block_io::{Durability, write};
use dolmen_block_linux::{Handle, LinuxDevice, OpenOptions};
use dolmen_units::{Bytes, Epoch};

use crate::error::BenchError;
use crate::signals::Signals;

/// Bytes at the front of each file that are written before anything is measured: the metadata area, and the slabs of
/// all ranges at three copies.
pub(crate) const FILLED_BYTES: u64 = 640 << 20;
const MEBIBYTE: usize = 1 << 20;
/// Writes under way while a file is filled.
const FILL_DEPTH: usize = 8;

/// The files.
#[derive(Debug)]
pub(crate) struct Disks {
    paths: Vec<PathBuf>,
    filled_bytes: u64,
    signals: Signals,
}

impl Disks {
    /// Makes `count` sparse files of `size` in a folder, of which [`fill`] will write the first `filled`. Files of an
    /// earlier run are replaced.
    pub(crate) fn make(
        folder: &Path,
        (count, size, filled): (usize, Bytes, Bytes),
        signals: &Signals,
    ) -> Result<Self, BenchError> {
        let paths: Vec<PathBuf> =
            (0..count).map(|number| folder.join(format!("bench-disk-{number}"))).collect();
        let this = Self { paths, filled_bytes: filled.0.min(size.0), signals: signals.clone() };
        for path in &this.paths {
            if let Err(source) = File::create(path).and_then(|file| file.set_len(size.0)) {
                this.remove();
                return Err(BenchError::File { path: path.clone(), source });
            }
        }
        Ok(this)
    }

    /// Fails once a signal has come, behind which the files are to be removed.
    pub(crate) fn check_wanted(&self) -> Result<(), BenchError> {
        self.signals.check()
    }

    /// Opens all of them.
    pub(crate) fn open(&self, handle: &Handle) -> Result<Vec<Rc<LinuxDevice>>, BenchError> {
        let opened = self.paths.iter().map(|path| LinuxDevice::open(handle, path, OpenOptions::default()));
        Ok(opened.collect::<Result<_, _>>()?)
    }

    /// Bytes that the file system has given the files.
    pub(crate) fn allocated_bytes(&self) -> u64 {
        self.paths.iter().filter_map(|path| fs::metadata(path).ok()).map(|data| data.blocks() * 512).sum()
    }

    /// Removes the files.
    pub(crate) fn remove(&self) {
        for path in &self.paths {
            // What cannot be removed is in a folder that the caller named, and says by its name what it is.
            let _ = fs::remove_file(path);
        }
    }
}

/// Writes the front of every disk with bytes that do not compress, and nothing that looks like a label.
pub(crate) async fn fill(
    handle: &Handle,
    disks: &Disks,
    devices: &[Rc<LinuxDevice>],
) -> Result<(), BenchError> {
    let mut buffer = handle.seams().data.take(MEBIBYTE).await;
    noise(&mut buffer);
    let payload = buffer.freeze();
    for device in devices {
        let places: Vec<u64> = (0..disks.filled_bytes).step_by(MEBIBYTE).collect();
        for batch in places.chunks(FILL_DEPTH) {
            disks.check_wanted()?;
            let writes = batch
                .iter()
                .map(|at| write(device.as_ref(), Epoch(1), *at, payload.clone(), Durability::Cached));
            let writes: Vec<_> = writes.collect();
            for one in writes {
                one.await?;
            }
        }
        dolmen_block_io::flush(device.as_ref(), Epoch(1)).await?;
    }
    Ok(())
}

/// Fills memory with bytes that no disk can make smaller.
pub(crate) fn noise(into: &mut [u8]) {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    for chunk in into.chunks_mut(8) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        for (to, from) in chunk.iter_mut().zip(state.to_le_bytes()) {
            *to = from;
        }
    }
}
