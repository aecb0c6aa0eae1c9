//! Samples of a pool that its disks do not have yet, in a file of the run folder, which lies in memory: they survive a daemon that is
//! killed, and neither wake a disk nor wear one (docs/design/0040).
//!
//! The file begins with eight letters and with the number of saves, little-endian, that it comes after: of another number, the pool
//! has these samples already, or another host had the pool since.
//!
//! The daemon has the same samples in memory. A file that is removed, cut short or half written is begun again with all of them.

use std::cell::{Cell, RefCell};
use std::fs::{self, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use dolmen_mutation::mutation;
use dolmen_units::PoolId;

use crate::files::FILE_BYTES_MAX;
use crate::io_worker::IoWorker;

const MAGIC: &[u8; 8] = b"DLMTAIL1";
/// Bytes before the samples.
const HEAD_BYTES: usize = MAGIC.len() + size_of::<u64>();

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
    async fn begin(&self, pool: PoolId, tail: Tail) -> io::Result<()> {
        let path = self.path(pool);
        self.file_worker.run(move || begin_tail(&path, &tail)).await
    }

    /// Adds a sample to a file that has so many bytes of samples.
    async fn append(&self, pool: PoolId, before: usize, sample: Vec<u8>) -> io::Result<()> {
        let path = self.path(pool);
        self.file_worker.run(move || append_sample(&path, before, &sample)).await
    }

    /// Removes the file: the pool has all samples.
    pub(crate) async fn remove(&self, pool: PoolId) {
        let path = self.path(pool);
        // One that stays comes after another number of saves.
        let _ = self.file_worker.run(move || fs::remove_file(&path)).await;
    }
}

/// The samples of a pool since its last save: in memory, and in its file as far as that can be written.
#[derive(Default)]
pub(crate) struct Samples {
    saves: Cell<u64>,
    bytes: RefCell<Vec<u8>>,
    /// Whether the file is known to lack some.
    is_behind: Cell<bool>,
    /// Whether it was reported that the file was lost.
    is_reported: Cell<bool>,
}

/// A file of samples that was lost.
#[derive(Debug)]
pub(crate) enum TailLoss {
    /// It was begun again with all samples.
    BegunAgain(io::Error),
    /// It cannot be written.
    Stays(io::Error),
}

impl Samples {
    /// Returns how many bytes they have.
    pub(crate) fn len(&self) -> usize {
        self.bytes.borrow().len()
    }

    /// Begins with those of a file that comes after so many saves, and writes it again. Returns the loss that is to be reported.
    pub(crate) async fn begin(&self, tails: &Tails, pool: PoolId, tail: Tail) -> Option<TailLoss> {
        self.saves.set(tail.saves);
        self.bytes.replace(tail.samples.clone());
        let begun = tails.begin(pool, tail).await;
        self.is_behind.set(begun.is_err());
        begun.err().filter(|_| !self.is_reported.replace(true)).map(TailLoss::Stays)
    }

    /// Adds a sample. Where the file does not have all samples before it, begins that again with all of them. Returns the loss that is
    /// to be reported: once, until the file takes samples again.
    pub(crate) async fn add(&self, tails: &Tails, pool: PoolId, sample: Vec<u8>) -> Option<TailLoss> {
        let before = self.len();
        self.bytes.borrow_mut().extend_from_slice(&sample);
        let mut loss = None;
        if !self.is_behind.get() {
            match tails.append(pool, before, sample).await {
                Ok(()) => {
                    self.is_reported.set(false);
                    return None;
                }
                Err(error) => loss = Some(error),
            }
        }
        if mutation!(HistoryTailStaysLost) {
            return None;
        }
        let tail = Tail { saves: self.saves.get(), samples: self.bytes.borrow().clone() };
        let begun = tails.begin(pool, tail).await;
        self.is_behind.set(begun.is_err());
        let loss = match begun {
            Ok(()) => loss.map(TailLoss::BegunAgain),
            Err(error) => Some(TailLoss::Stays(error)),
        };
        loss.filter(|_| !self.is_reported.replace(true))
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

/// Adds a sample to a file with so many bytes of samples, or leaves the file as it was.
fn append_sample(path: &Path, before: usize, sample: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().append(true).open(path)?;
    let (found, expected) = (file.metadata()?.len(), (HEAD_BYTES + before) as u64);
    if found != expected {
        let message = format!("{} has {found} bytes, and {expected} were written", path.display());
        return Err(io::Error::new(io::ErrorKind::InvalidData, message));
    }
    file.write_all(sample).inspect_err(|_| {
        // Nothing behind half a sample could be read.
        let _ = file.set_len(expected);
    })
}

/// Replaces the file as a whole. A power cut loses it whatever is done: nothing is synced.
fn begin_tail(path: &Path, tail: &Tail) -> io::Result<()> {
    let fresh = path.with_extension("new");
    let mut file = OpenOptions::new().create(true).truncate(true).write(true).mode(0o600).open(&fresh)?;
    let written = file.write_all(&[MAGIC.as_slice(), &tail.saves.to_le_bytes(), &tail.samples].concat());
    written.and_then(|()| fs::rename(&fresh, path)).inspect_err(|_| {
        // In a full folder it would take the room of the next one.
        let _ = fs::remove_file(&fresh);
    })
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    /// Scenario: a file is begun, gets samples, and is begun again. Foreign content and no file are no samples.
    #[test]
    fn samples_read_back_and_nonsense_is_none() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("history-1");
        assert_eq!(read_tail(&path).unwrap(), None);
        let tail = Tail { saves: 7, samples: vec![1, 2] };
        begin_tail(&path, &tail).unwrap();
        append_sample(&path, 2, &[3]).unwrap();
        assert_eq!(read_tail(&path).unwrap(), Some(Tail { saves: 7, samples: vec![1, 2, 3] }));
        begin_tail(&path, &Tail { saves: 8, samples: Vec::new() }).unwrap();
        assert_eq!(read_tail(&path).unwrap(), Some(Tail { saves: 8, samples: Vec::new() }));
        fs::write(&path, "tank").unwrap();
        assert_eq!(read_tail(&path).unwrap(), None);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    fn ended<T>(future: impl Future<Output = T>) -> T {
        let mut future = pin!(future);
        loop {
            if let Poll::Ready(value) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                return value;
            }
            std::thread::yield_now();
        }
    }

    /// Scenario: the file of samples is removed between two of them, is cut within one, gets half a sample from elsewhere, and has no
    /// folder for a while. Each time it has all samples as soon as it can be written, and each loss is reported once.
    #[test]
    fn a_lost_file_of_samples_is_begun_again_with_all_of_them() {
        let folder = tempfile::tempdir().unwrap();
        let run = folder.path().join("run");
        fs::create_dir(&run).unwrap();
        let tails = Tails::new(run.clone(), Rc::new(IoWorker::start("test").unwrap()));
        let (samples, pool) = (Samples::default(), PoolId([7; 16]));
        let path = tails.path(pool);
        let begun = ended(samples.begin(&tails, pool, Tail { saves: 4, samples: vec![1] }));
        assert!(begun.is_none(), "{begun:?}");
        let mut expected = vec![1];
        let mut add = |sample: u8| {
            expected.extend([sample; 40]);
            let loss = ended(samples.add(&tails, pool, vec![sample; 40]));
            assert_eq!(samples.len(), expected.len());
            (loss, Some(Tail { saves: 4, samples: expected.clone() }))
        };
        let is_again = |loss: &Option<TailLoss>| matches!(loss, Some(TailLoss::BegunAgain(_)));
        type Damage<'a> = &'a dyn Fn();
        let remove: Damage = &|| fs::remove_file(&path).unwrap();
        let cut: Damage = &|| OpenOptions::new().write(true).open(&path).unwrap().set_len(60).unwrap();
        let tear: Damage =
            &|| OpenOptions::new().append(true).open(&path).unwrap().write_all(&[9; 7]).unwrap();
        for damage in [remove, cut, tear] {
            let (loss, tail) = add(2);
            assert!(loss.is_none(), "{loss:?}");
            assert_eq!(read_tail(&path).unwrap(), tail);
            damage();
            let (loss, tail) = add(3);
            assert_eq!(read_tail(&path).unwrap(), tail, "the file has all samples again");
            assert!(is_again(&loss), "{loss:?}");
        }
        add(4);
        fs::remove_dir_all(&run).unwrap();
        assert!(matches!(add(5).0, Some(TailLoss::Stays(_))));
        assert!(add(6).0.is_none(), "it was reported");
        fs::create_dir(&run).unwrap();
        let (loss, tail) = add(7);
        assert!(loss.is_none(), "it was reported: {loss:?}");
        assert_eq!(read_tail(&path).unwrap(), tail);
        assert!(add(8).0.is_none());
        fs::remove_file(&path).unwrap();
        assert!(is_again(&add(9).0), "another loss is reported");
        assert_eq!(fs::read_dir(&run).unwrap().count(), 1);
    }
}
