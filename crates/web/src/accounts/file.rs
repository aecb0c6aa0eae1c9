//! The file of accounts on disk: read when it has changed, replaced under a lock.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::{FlockOperation, flock};

use super::document::Accounts;
use crate::error::WebError;

/// Name of the file in the state folder.
const FILE: &str = "accounts.json";
/// Name of its lock.
const LOCK: &str = "accounts.lock";
/// Bytes of the file that are read, at most; the limits of users, tokens and sessions keep it far below.
const FILE_BYTES_MAX: u64 = 4 << 20;

/// The file of accounts in a state folder.
#[derive(Debug, Clone)]
pub(crate) struct AccountsFile {
    folder: PathBuf,
    path: PathBuf,
}

impl AccountsFile {
    pub(crate) fn in_folder(folder: &Path) -> Self {
        Self { folder: folder.to_path_buf(), path: folder.join(FILE) }
    }

    /// Reads the accounts; none where there is no file yet.
    pub(crate) fn read(&self) -> Result<Accounts, WebError> {
        self.open()?.map_or_else(|| Ok(Accounts::default()), |file| self.read_from(&file))
    }

    fn open(&self) -> Result<Option<File>, WebError> {
        match File::open(&self.path) {
            Ok(file) => Ok(Some(file)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(WebError::file("opening the file of accounts", &self.path)(error)),
        }
    }

    fn read_from(&self, file: &File) -> Result<Accounts, WebError> {
        let mut bytes = Vec::new();
        let read = file.take(FILE_BYTES_MAX).read_to_end(&mut bytes);
        read.map_err(WebError::file("reading the file of accounts", &self.path))?;
        let accounts: Accounts = serde_json::from_slice(&bytes)
            .map_err(|source| WebError::Accounts { path: self.path.clone(), source })?;
        match accounts.contradiction() {
            None => Ok(accounts),
            Some(why) => Err(WebError::Contradiction { path: self.path.clone(), why }),
        }
    }

    /// Changes the accounts under the lock. Where `change` refuses, or changes nothing, the file stays as it is.
    pub(crate) fn update<T>(
        &self,
        change: impl FnOnce(&mut Accounts) -> Result<T, WebError>,
    ) -> Result<T, WebError> {
        make_folder(&self.folder)?;
        let _lock = take_lock(&self.folder.join(LOCK))?;
        let before = self.read()?;
        let mut accounts = before.clone();
        let made = change(&mut accounts)?;
        if accounts != before {
            self.write(&accounts)?;
        }
        Ok(made)
    }

    fn write(&self, accounts: &Accounts) -> Result<(), WebError> {
        let mut text = serde_json::to_vec_pretty(accounts)
            .map_err(|source| WebError::Accounts { path: self.path.clone(), source })?;
        text.push(b'\n');
        replace(&self.path, &text)
    }
}

/// What tells one content of the file from another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stamp {
    inode: u64,
    length: u64,
    changed: (i64, i64),
    modified: (i64, i64),
}

impl Stamp {
    pub(crate) fn of(found: &fs::Metadata) -> Self {
        Self {
            inode: found.ino(),
            length: found.len(),
            changed: (found.ctime(), found.ctime_nsec()),
            modified: (found.mtime(), found.mtime_nsec()),
        }
    }
}

/// Content of the file, as it was read.
#[derive(Debug)]
struct Read {
    stamp: Option<Stamp>,
    /// Held open: the next content has another inode, however soon it comes.
    _file: Option<File>,
    accounts: Arc<Accounts>,
}

/// The file of accounts, with what was read of it last.
#[derive(Debug)]
pub(crate) struct Watched {
    file: AccountsFile,
    last: Mutex<Option<Read>>,
}

impl Watched {
    pub(crate) fn new(file: AccountsFile) -> Self {
        Self { file, last: Mutex::new(None) }
    }

    /// Returns the accounts as the file has them.
    pub(crate) fn current(&self) -> Result<Arc<Accounts>, WebError> {
        let stamp = fs::metadata(&self.file.path).ok().map(|found| Stamp::of(&found));
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(last) = last.as_ref().filter(|last| last.stamp == stamp) {
            return Ok(Arc::clone(&last.accounts));
        }
        let file = self.file.open()?;
        // Taken before the content: a change in between is read again.
        let stamp = file.as_ref().and_then(|file| file.metadata().ok()).map(|found| Stamp::of(&found));
        let accounts =
            file.as_ref().map_or_else(|| Ok(Accounts::default()), |file| self.file.read_from(file))?;
        let accounts = Arc::new(accounts);
        *last = Some(Read { stamp, _file: file, accounts: Arc::clone(&accounts) });
        Ok(accounts)
    }

    /// Changes the accounts; waits for the disk.
    pub(crate) fn update<T>(
        &self,
        change: impl FnOnce(&mut Accounts) -> Result<T, WebError>,
    ) -> Result<T, WebError> {
        self.file.update(change)
    }
}

/// Makes a folder that only its owner may enter.
pub(crate) fn make_folder(path: &Path) -> Result<(), WebError> {
    let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(path);
    made.map_err(WebError::file("making the folder", path))
}

/// Takes a lock, which ends with the file that is returned.
pub(crate) fn take_lock(path: &Path) -> Result<File, WebError> {
    let opened = OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(path);
    let file = opened.map_err(WebError::file("opening the lock", path))?;
    let taken = flock(&file, FlockOperation::LockExclusive);
    taken.map_err(|error| WebError::file("taking the lock", path)(error.into()))?;
    Ok(file)
}

/// Replaces a file that only its owner may read: after a crash it has its old or its new content.
pub(crate) fn replace(path: &Path, content: &[u8]) -> Result<(), WebError> {
    let failed = |doing| move |error| WebError::file(doing, path)(error);
    let folder = path.parent().unwrap_or(Path::new("/"));
    let mut name = path.file_name().unwrap_or_default().to_os_string();
    name.push(".new");
    let fresh = folder.join(name);
    let _ = fs::remove_file(&fresh);
    let opened = OpenOptions::new().create_new(true).write(true).mode(0o600).open(&fresh);
    let mut file = opened.map_err(failed("making the new content of"))?;
    let written = file.write_all(content).and_then(|()| file.sync_all());
    written.map_err(failed("writing the new content of"))?;
    fs::rename(&fresh, path).map_err(failed("replacing"))?;
    let synced = File::open(folder).and_then(|folder| folder.sync_all());
    synced.map_err(failed("syncing the folder of"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Scenario: the file is damaged in several ways. Reading and changing name it, and its bytes stay.
    #[test]
    fn a_damaged_file_is_refused_by_name_and_stays() {
        let folder = tempfile::tempdir().unwrap();
        let file = AccountsFile::in_folder(folder.path());
        let twice =
            r#"{"name":"a","role":"admin","digest":"0","created_s":0,"expires_s":1,"created_by":"b"}"#;
        for content in [
            "",
            "{}",
            "{\"schema\":1",
            r#"{"schema":2,"users":[],"tokens":[],"sessions":[],"code":null}"#,
            r#"{"schema":1,"users":[],"tokens":[],"sessions":[],"code":null,"more":1}"#,
            &format!(r#"{{"schema":1,"users":[],"tokens":[{twice},{twice}],"sessions":[],"code":null}}"#),
        ] {
            fs::write(&file.path, content).unwrap();
            for error in [file.read().unwrap_err(), file.update(|_| Ok(())).unwrap_err()] {
                assert!(error.to_string().contains("accounts.json"), "{error}");
            }
            assert_eq!(fs::read_to_string(&file.path).unwrap(), content);
        }
    }

    /// Scenario: the file is replaced by another one while the server runs. The next look finds the new content.
    #[test]
    fn a_change_by_a_command_is_seen_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let file = AccountsFile::in_folder(folder.path());
        let watched = Watched::new(file.clone());
        assert!(watched.current().unwrap().code.is_none());
        for expires_s in 1..20 {
            let code = super::super::document::Code { digest: "0".to_owned(), created_s: 0, expires_s };
            let set = |accounts: &mut Accounts| {
                accounts.code = Some(code.clone());
                Ok(())
            };
            file.update(set).unwrap();
            assert_eq!(watched.current().unwrap().code.as_ref(), Some(&code));
        }
        let mode = fs::metadata(folder.path().join(FILE)).unwrap().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
}
