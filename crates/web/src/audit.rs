//! The audit log: one line of JSON for each change, each sign-in and each refusal.
//!
//! A log that cannot be written stops no request: the storage stays in reach of its administrators. The program's own log says so.

use std::fs::{self, OpenOptions};
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::net::IpAddr;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize};

use crate::accounts::Role;
use crate::clock;
use crate::error::WebError;

/// Name of the file in the state folder.
const FILE: &str = "audit.log";
/// Name of its lock.
const LOCK: &str = "audit.lock";
/// Bytes of the file before a new one is begun.
const FILE_BYTES_MAX: u64 = 8 << 20;
/// Earlier files that are kept.
const KEPT: u32 = 4;
/// Lines that are shown.
const SHOWN: usize = 200;
/// Bytes at the end of the file that are read for them.
const SHOWN_BYTES: u64 = 256 * 1024;
/// Letters of a field, at most.
const FIELD_CHARS_MAX: usize = 300;
/// Refusals that are written at once, and in each minute: a flood of them pushes no other line out of the files.
const REFUSALS_MAX: u32 = 120;

/// A line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Entry {
    /// Seconds since 1970.
    pub time_s: u64,
    /// The user, or `token/NAME`; none where nobody is signed in.
    pub user: Option<String>,
    /// Its role.
    pub role: Option<Role>,
    /// Address of the client; none for a command on the host.
    pub address: Option<IpAddr>,
    /// What was asked for.
    pub what: String,
    /// What came of it.
    pub outcome: String,
}

impl Entry {
    /// Returns an entry of now about nobody.
    pub(crate) fn new(what: impl Into<String>, outcome: impl Into<String>) -> Self {
        let time_s = clock::now().wall_s;
        Self { time_s, user: None, role: None, address: None, what: what.into(), outcome: outcome.into() }
    }

    pub(crate) fn by(mut self, user: &str, role: Option<Role>) -> Self {
        (self.user, self.role) = (Some(user.to_owned()), role);
        self
    }

    pub(crate) fn from(mut self, address: IpAddr) -> Self {
        self.address = Some(address);
        self
    }
}

/// The log of a state folder.
#[derive(Debug)]
pub(crate) struct Audit {
    folder: PathBuf,
    refusals: Mutex<Refusals>,
}

#[derive(Debug, Default)]
struct Refusals {
    minute: u64,
    written: u32,
}

impl Audit {
    pub(crate) fn in_folder(folder: &Path) -> Self {
        Self { folder: folder.to_path_buf(), refusals: Mutex::default() }
    }

    /// Writes a line.
    pub(crate) fn write(&self, entry: &Entry) {
        if let Err(error) = self.append(entry) {
            let causes = dolmen_causes::in_one_line(&error);
            tracing::error!(
                causes,
                what = entry.what,
                outcome = entry.outcome,
                "the audit log is not written"
            );
        }
    }

    /// Writes a line about a refusal, unless there was a flood of them.
    pub(crate) fn refuse(&self, entry: &Entry) {
        let minute = clock::boot_ms() / 60_000;
        let mut refusals = self.refusals.lock().unwrap_or_else(PoisonError::into_inner);
        if refusals.minute != minute {
            *refusals = Refusals { minute, written: 0 };
        }
        refusals.written = refusals.written.saturating_add(1);
        let written = refusals.written;
        drop(refusals);
        if written < REFUSALS_MAX {
            self.write(entry);
        } else if written == REFUSALS_MAX {
            self.write(&Entry::new("refusals", "more of them in this minute are not written"));
        }
    }

    fn append(&self, entry: &Entry) -> Result<(), WebError> {
        let path = self.folder.join(FILE);
        let failed = |doing| move |path: &Path, error| WebError::file(doing, path)(error);
        let cut = |text: &str| text.chars().take(FIELD_CHARS_MAX).collect::<String>();
        let entry = Entry { what: cut(&entry.what), outcome: cut(&entry.outcome), ..entry.clone() };
        let mut line =
            serde_json::to_vec(&entry).map_err(|source| WebError::Accounts { path: path.clone(), source })?;
        line.push(b'\n');
        let _lock = crate::accounts::take_lock(&self.folder.join(LOCK))?;
        if fs::metadata(&path).is_ok_and(|found| found.len() >= FILE_BYTES_MAX) {
            self.rotate().map_err(|error| failed("beginning a new file in place of")(&path, error))?;
        }
        let opened = OpenOptions::new().create(true).append(true).mode(0o600).open(&path);
        let mut file = opened.map_err(|error| failed("opening the audit log")(&path, error))?;
        file.write_all(&line).map_err(|error| failed("writing the audit log")(&path, error))
    }

    fn rotate(&self) -> std::io::Result<()> {
        let name = |number: u32| match number {
            0 => self.folder.join(FILE),
            number => self.folder.join(format!("{FILE}.{number}")),
        };
        for number in (0..KEPT).rev() {
            match fs::rename(name(number), name(number + 1)) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
                Ok(()) | Err(_) => {}
            }
        }
        Ok(())
    }

    /// Returns the last lines, oldest first. Lines that a crash has cut are left out.
    pub(crate) fn last(&self) -> Result<Vec<Entry>, WebError> {
        let mut lines = Vec::new();
        for name in [format!("{FILE}.1"), FILE.to_owned()] {
            let path = self.folder.join(name);
            let text = match tail(&path) {
                Ok(text) => text,
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
                Err(error) => return Err(WebError::file("reading the audit log", &path)(error)),
            };
            lines.extend(text.lines().filter_map(|line| serde_json::from_str(line).ok()));
        }
        Ok(lines.split_off(lines.len().saturating_sub(SHOWN)))
    }
}

fn tail(path: &Path) -> std::io::Result<String> {
    let mut file = fs::File::open(path)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(SHOWN_BYTES)))?;
    let mut bytes = Vec::new();
    file.take(SHOWN_BYTES).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Scenario: more lines than one file holds. Five files are left, none much longer than the limit, and the last lines are shown.
    #[test]
    fn files_are_bounded_and_the_last_lines_are_shown() {
        let folder = tempfile::tempdir().unwrap();
        let audit = Audit::in_folder(folder.path());
        for round in 0..7 {
            let path = folder.path().join(FILE);
            let long = fs::read(&path).unwrap_or_default();
            fs::write(&path, [vec![b'x'; 8 << 20], vec![b'\n'], long].concat()).unwrap();
            for number in 0..150 {
                audit.write(&Entry::new(format!("{round} {number}"), "done"));
            }
        }
        let files: Vec<u64> = fs::read_dir(folder.path())
            .unwrap()
            .map(|file| file.unwrap().metadata().unwrap().len())
            .collect();
        assert_eq!(files.len(), 6, "five files and the lock: {files:?}");
        let last = audit.last().unwrap();
        assert_eq!(last.len(), SHOWN);
        assert_eq!(last.last().unwrap().what, "6 149");
    }

    #[test]
    fn a_flood_of_refusals_writes_a_bounded_number_of_lines() {
        let folder = tempfile::tempdir().unwrap();
        let audit = Audit::in_folder(folder.path());
        (0..5000).for_each(|_| audit.refuse(&Entry::new("sign-in", "refused")));
        let text = fs::read_to_string(folder.path().join(FILE)).unwrap();
        // A minute may end while the test runs.
        assert!(text.lines().count() <= 2 * usize::try_from(REFUSALS_MAX).unwrap());
    }
}
