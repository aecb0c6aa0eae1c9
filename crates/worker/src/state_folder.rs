//! The folder for the index and scratch files of deduplication.
//!
//! Scratch files have no names, so a kill frees them. The index gets its name by a link and a rename; a run that is killed
//! between both leaves the former index in force.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use dolmen_dedup::{Scratch, ScratchAction, ScratchError};
use rustix::fs::{AtFlags, Mode, OFlags};

use crate::protocol::{Failure, FailureCode};

/// The folder.
pub(crate) struct StateFolder {
    path: PathBuf,
    folder: File,
}

/// A scratch file, and its length.
pub(crate) struct ScratchFile {
    file: File,
    bytes: u64,
}

impl StateFolder {
    /// Opens the folder, and makes it where there is none.
    pub(crate) fn open(path: &Path) -> Result<Self, Failure> {
        let opened = fs::create_dir_all(path).and_then(|()| File::open(path));
        let folder = opened.map_err(|error| Failure {
            code: FailureCode::BadPath,
            message: format!("state folder {} cannot be used: {error}; nothing was changed", path.display()),
            hint: "name a folder on another file system that can be written".to_owned(),
        })?;
        Ok(Self { path: path.to_owned(), folder })
    }
}

fn failed(
    action: ScratchAction,
    offset: u64,
    source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
) -> ScratchError {
    ScratchError { action, offset, source: source.into() }
}

impl Scratch for StateFolder {
    type File = ScratchFile;

    fn create(&mut self) -> Result<ScratchFile, ScratchError> {
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&self.folder, ".", flags, Mode::RUSR | Mode::WUSR)
            .map_err(|error| failed(ScratchAction::Create, 0, error))?;
        Ok(ScratchFile { file: File::from(file), bytes: 0 })
    }

    fn append(&mut self, file: &mut ScratchFile, bytes: &[u8]) -> Result<(), ScratchError> {
        file.file.write_all(bytes).map_err(|error| failed(ScratchAction::Append, file.bytes, error))?;
        file.bytes = file.bytes.saturating_add(u64::try_from(bytes.len()).unwrap_or(u64::MAX));
        Ok(())
    }

    fn read(&mut self, file: &ScratchFile, offset: u64, into: &mut [u8]) -> Result<usize, ScratchError> {
        let mut done = 0;
        while let Some(rest) = into.get_mut(done..).filter(|rest| !rest.is_empty()) {
            let at = offset.saturating_add(u64::try_from(done).unwrap_or(u64::MAX));
            match file.file.read_at(rest, at) {
                Ok(0) => break,
                Ok(read) => done = done.saturating_add(read),
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(failed(ScratchAction::Read, at, error)),
            }
        }
        Ok(done)
    }

    fn keep(&mut self, file: ScratchFile, name: &'static str) -> Result<(), ScratchError> {
        let error = |error: rustix::io::Errno| failed(ScratchAction::Name, 0, error);
        let new = format!("{name}.new");
        match rustix::fs::unlinkat(&self.folder, new.as_str(), AtFlags::empty()) {
            Ok(()) | Err(rustix::io::Errno::NOENT) => {}
            Err(other) => return Err(error(other)),
        }
        rustix::fs::fdatasync(&file.file).map_err(error)?;
        rustix::fs::linkat(&file.file, "", &self.folder, new.as_str(), AtFlags::EMPTY_PATH).map_err(error)?;
        rustix::fs::renameat(&self.folder, new.as_str(), &self.folder, name).map_err(error)?;
        rustix::fs::fsync(&self.folder).map_err(error)
    }

    fn kept(&mut self, name: &'static str) -> Result<Option<ScratchFile>, ScratchError> {
        match File::open(self.path.join(name)) {
            Ok(file) => Ok(Some(ScratchFile { file, bytes: 0 })),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(failed(ScratchAction::Name, 0, error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_kept_file_has_a_name_and_it_replaces_the_former_one() {
        // Scenario: files are made, one is kept, another replaces it while the first is read; a stale link is in the way.
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a/b");
        let mut state = StateFolder::open(&path).unwrap();
        assert!(state.kept("index").unwrap().is_none());
        fs::write(path.join("index.new"), "stale").unwrap();
        let mut first = state.create().unwrap();
        state.append(&mut first, b"fir").unwrap();
        state.append(&mut first, b"st").unwrap();
        let _unnamed = state.create().unwrap();
        state.keep(first, "index").unwrap();
        let held = state.kept("index").unwrap().unwrap();
        let mut second = state.create().unwrap();
        state.append(&mut second, b"second").unwrap();
        state.keep(second, "index").unwrap();
        let mut bytes = [0; 16];
        assert_eq!(state.read(&held, 1, &mut bytes).unwrap(), 4);
        assert_eq!(&bytes[..4], b"irst");
        assert_eq!(fs::read(path.join("index")).unwrap(), b"second");
        assert_eq!(fs::read_dir(&path).unwrap().count(), 1);
        assert!(StateFolder::open(&path.join("index")).is_err());
    }
}
