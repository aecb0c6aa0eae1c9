//! The audit log: one line of JSON for each change, each sign-in and each refusal.
//!
//! Two files keep apart what callers may cause at will from what was done: `audit.log` has the changes that were carried out,
//! `access.log` sign-ins and refusals. So a flood of refusals pushes no change out, however long it lasts. In `access.log` each
//! identity and each network has a number of lines a minute: one caller's flood hides nothing of another's.
//!
//! A log that cannot be written stops no request: the storage stays in reach of its administrators. The program's own log says so.

use std::collections::BTreeMap;
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
use crate::limits::network_of;

/// File of the changes that were carried out.
const CHANGES: &str = "audit.log";
/// File of sign-ins and refusals.
const ACCESS: &str = "access.log";
/// Name of their lock.
const LOCK: &str = "audit.lock";
/// Bytes of a file before a new one is begun.
const FILE_BYTES_MAX: u64 = 8 << 20;
/// Earlier files of each that are kept.
const KEPT: u32 = 4;
/// Lines of each file that are shown.
const SHOWN: usize = 200;
/// Bytes at the end of a file that are read for them.
const SHOWN_BYTES: u64 = 256 * 1024;
/// Letters of a field, at most.
const FIELD_CHARS_MAX: usize = 300;
/// Lines of access that are written for a user, a token or a network in a minute.
const ACCESS_LINES_MAX: u32 = 60;
/// Users, tokens and networks that have lines of their own in a minute; those beyond share them.
const CALLERS_MAX: usize = 512;

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
    access: Mutex<Access>,
}

/// Lines of access in a minute.
#[derive(Debug, Default)]
struct Access {
    minute: u64,
    written: BTreeMap<Caller, u32>,
}

/// Whose lines are counted together.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Caller {
    User(String),
    Network(IpAddr),
    Others,
}

impl Caller {
    /// Returns the caller of an entry. A name counts only with its role: without one, a stranger has typed it.
    fn of(entry: &Entry) -> Self {
        match (&entry.user, entry.role, entry.address) {
            (Some(user), Some(_), _) => Self::User(user.clone()),
            (_, _, Some(address)) => Self::Network(network_of(address)),
            (_, _, None) => Self::Others,
        }
    }
}

impl Audit {
    pub(crate) fn in_folder(folder: &Path) -> Self {
        Self { folder: folder.to_path_buf(), access: Mutex::default() }
    }

    /// Writes a line about a change that was carried out.
    pub(crate) fn write(&self, entry: &Entry) {
        self.write_to(CHANGES, entry);
    }

    fn write_to(&self, file: &str, entry: &Entry) {
        if let Err(error) = self.append(file, entry) {
            let causes = dolmen_causes::in_one_line(&error);
            tracing::error!(
                causes,
                what = entry.what,
                outcome = entry.outcome,
                "the audit log is not written"
            );
        }
    }

    /// Writes a line about a sign-in or a refusal, unless its caller has caused a flood of them.
    pub(crate) fn note_access(&self, entry: &Entry) {
        let minute = clock::boot_ms() / 60_000;
        let mut access = self.access.lock().unwrap_or_else(PoisonError::into_inner);
        if access.minute != minute {
            *access = Access { minute, written: BTreeMap::new() };
        }
        let mut caller = Caller::of(entry);
        if access.written.len() >= CALLERS_MAX && !access.written.contains_key(&caller) {
            caller = Caller::Others;
        }
        let written = access.written.entry(caller).or_default();
        *written = written.saturating_add(1);
        let written = *written;
        drop(access);
        if written < ACCESS_LINES_MAX {
            self.write_to(ACCESS, entry);
        } else if written == ACCESS_LINES_MAX {
            let (what, outcome) = ("more requests", "more of them in this minute are not written".to_owned());
            self.write_to(ACCESS, &Entry { what: what.to_owned(), outcome, ..entry.clone() });
        }
    }

    fn append(&self, name: &str, entry: &Entry) -> Result<(), WebError> {
        let path = self.folder.join(name);
        let failed = |doing| move |path: &Path, error| WebError::file(doing, path)(error);
        let cut = |text: &str| text.chars().take(FIELD_CHARS_MAX).collect::<String>();
        let entry = Entry { what: cut(&entry.what), outcome: cut(&entry.outcome), ..entry.clone() };
        let mut line =
            serde_json::to_vec(&entry).map_err(|source| WebError::Line { path: path.clone(), source })?;
        line.push(b'\n');
        let _lock = crate::accounts::take_lock(&self.folder.join(LOCK))?;
        if fs::metadata(&path).is_ok_and(|found| found.len() >= FILE_BYTES_MAX) {
            self.rotate(name).map_err(|error| failed("beginning a new file in place of")(&path, error))?;
        }
        let opened = OpenOptions::new().create(true).append(true).mode(0o600).open(&path);
        let mut file = opened.map_err(|error| failed("opening the audit log")(&path, error))?;
        file.write_all(&line).map_err(|error| failed("writing the audit log")(&path, error))
    }

    fn rotate(&self, name: &str) -> std::io::Result<()> {
        let numbered = |number: u32| match number {
            0 => self.folder.join(name),
            number => self.folder.join(format!("{name}.{number}")),
        };
        for number in (0..KEPT).rev() {
            match fs::rename(numbered(number), numbered(number + 1)) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
                Ok(()) | Err(_) => {}
            }
        }
        Ok(())
    }

    /// Returns the last lines of both files, oldest first. Lines that a crash has cut are left out.
    pub(crate) fn last(&self) -> Result<Vec<Entry>, WebError> {
        let mut lines = self.last_of(CHANGES)?;
        lines.extend(self.last_of(ACCESS)?);
        lines.sort_by_key(|entry: &Entry| entry.time_s);
        Ok(lines)
    }

    fn last_of(&self, name: &str) -> Result<Vec<Entry>, WebError> {
        let mut lines = Vec::new();
        for name in [format!("{name}.1"), name.to_owned()] {
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
            let path = folder.path().join(CHANGES);
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
        assert!(!folder.path().join(ACCESS).exists());
    }

    /// Scenario: a viewer's token is refused 10,000 times, and strangers of many networks are, too. The change of an administrator is
    /// still shown, and so is the one refusal of somebody else. Each caller has a bounded number of lines.
    #[test]
    fn a_flood_of_refusals_hides_no_change_and_no_other_refusal() {
        let folder = tempfile::tempdir().unwrap();
        let audit = Audit::in_folder(folder.path());
        let viewer = Some(Role(dolmen_api::CallerRole::Viewer));
        audit.write(&Entry::new("DestroyPool /v1/pools/tank", "200").by("anna", None));
        let refused = Entry::new("ScrubPool", "403").by("token/t", viewer);
        (0..10_000).for_each(|_| audit.note_access(&refused));
        for number in 0..2000u32 {
            let network = std::net::Ipv4Addr::from(number);
            audit.note_access(&Entry::new("sign-in", "401").from(network.into()).by("anna", None));
        }
        audit.note_access(&Entry::new("ScrubPool", "403").by("otto", viewer));
        let text = fs::read_to_string(folder.path().join(CHANGES)).unwrap();
        assert_eq!(text.lines().count(), 1, "{text}");
        let lines = fs::read_to_string(folder.path().join(ACCESS)).unwrap();
        let count = |word: &str| lines.lines().filter(|line| line.contains(word)).count();
        let most = usize::try_from(ACCESS_LINES_MAX).unwrap();
        // A minute may end while the test runs.
        assert!((most..=2 * most).contains(&count("token/t")), "{}", count("token/t"));
        assert!(count("sign-in") <= 2 * (CALLERS_MAX + most));
        let shown = audit.last().unwrap();
        assert!(shown.iter().any(|entry| entry.what.starts_with("DestroyPool")));
    }
}
