//! Samples of a pool that its disks do not have yet, in a file of the run folder, which lies in memory: they survive a daemon that is
//! killed, and neither wake a disk nor wear one (docs/design/0040).
//!
//! The file begins with eight letters and with the number of saves, little-endian, that it comes after: of another number, the pool
//! has these samples already, or another host had the pool since.

use std::fs::{self, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use dolmen_units::PoolId;

use crate::files::FILE_BYTES_MAX;
use crate::io_worker::IoWorker;

const MAGIC: &[u8; 8] = b"DLMTAIL1";

/// Files of samples, one for each pool.
pub(crate) struct Tails {
    folder: PathBuf,
    file_worker: Rc<IoWorker>,
}

/// Samples of a pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Tail {
    /// Number of saves that they come after.
    pub(crate) saves: u64,
    pub(crate) samples: Vec<u8>,
}

impl Tails {
    pub(crate) fn new(folder: PathBuf, file_worker: Rc<IoWorker>) -> Self {
        Self { folder, file_worker }
    }

    fn path(&self, pool: PoolId) -> PathBuf {
        self.folder.join(format!("history-{pool}"))
    }

    /// Reads the samples that a daemon before has left, if there are any.
    pub(crate) async fn read(&self, pool: PoolId) -> Option<Tail> {
        let path = self.path(pool);
        let found = self.file_worker.run(move || read_tail(&path)).await;
        found.unwrap_or_else(|error| {
            tracing::warn!(%pool, %error, "the last samples of a daemon before cannot be read");
            None
        })
    }

    /// Begins the file again.
    pub(crate) async fn begin(&self, pool: PoolId, tail: Tail) -> io::Result<()> {
        let path = self.path(pool);
        self.file_worker.run(move || begin_tail(&path, &tail)).await
    }

    /// Adds a sample.
    pub(crate) async fn append(&self, pool: PoolId, sample: Vec<u8>) -> io::Result<()> {
        let path = self.path(pool);
        let append = move || OpenOptions::new().append(true).open(&path)?.write_all(&sample);
        self.file_worker.run(append).await
    }

    /// Removes the file: the pool has all samples.
    pub(crate) async fn remove(&self, pool: PoolId) {
        let path = self.path(pool);
        // One that stays comes after another number of saves.
        let _ = self.file_worker.run(move || fs::remove_file(&path)).await;
    }
}

fn read_tail(path: &Path) -> io::Result<Option<Tail>> {
    let file = match fs::File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut bytes = Vec::new();
    file.take(FILE_BYTES_MAX).read_to_end(&mut bytes)?;
    let head = bytes.split_first_chunk::<8>().filter(|(magic, _)| *magic == MAGIC);
    let parts = head.and_then(|(_, rest)| rest.split_first_chunk::<8>());
    Ok(parts.map(|(saves, samples)| Tail { saves: u64::from_le_bytes(*saves), samples: samples.to_vec() }))
}

/// Replaces the file as a whole. A power cut loses it whatever is done: nothing is synced.
fn begin_tail(path: &Path, tail: &Tail) -> io::Result<()> {
    let fresh = path.with_extension("new");
    let mut file = OpenOptions::new().create(true).truncate(true).write(true).mode(0o600).open(&fresh)?;
    file.write_all(&[MAGIC.as_slice(), &tail.saves.to_le_bytes(), &tail.samples].concat())?;
    fs::rename(&fresh, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Scenario: a file is begun, gets samples, and is begun again. Foreign content and no file are no samples.
    #[test]
    fn samples_read_back_and_nonsense_is_none() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("history-1");
        assert_eq!(read_tail(&path).unwrap(), None);
        let tail = Tail { saves: 7, samples: vec![1, 2] };
        begin_tail(&path, &tail).unwrap();
        OpenOptions::new().append(true).open(&path).unwrap().write_all(&[3]).unwrap();
        assert_eq!(read_tail(&path).unwrap(), Some(Tail { saves: 7, samples: vec![1, 2, 3] }));
        begin_tail(&path, &Tail { saves: 8, samples: Vec::new() }).unwrap();
        assert_eq!(read_tail(&path).unwrap(), Some(Tail { saves: 8, samples: Vec::new() }));
        fs::write(&path, "tank").unwrap();
        assert_eq!(read_tail(&path).unwrap(), None);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
