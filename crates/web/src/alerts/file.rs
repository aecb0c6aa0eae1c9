//! The state of alerts in the state folder: read again when a command has changed it, replaced as a whole under a lock.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use dolmen_alerts::{Alerts, Policy, RestoreError, STATE_BYTES_MAX};

use crate::accounts::{Stamp, make_folder, replace, take_lock};
use crate::clock;
use crate::error::WebError;

/// Name of the file in the state folder.
const FILE: &str = "alerts.json";
/// Name of its lock.
const LOCK: &str = "alerts.lock";
/// How long the time that elapsed stays unsaved, where nothing else has changed and something waits for it. A system disk of a host on
/// which nothing happens can sleep.
const CLOCK_SAVED_EVERY_S: u64 = 900;

/// What is kept where a change cannot be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keep {
    /// The change, in memory: it was seen, and the next one writes it.
    Change,
    /// The state before: whoever asked hears that nothing was changed.
    Before,
}

/// State in memory, and what tells its file from a later one.
#[derive(Debug)]
struct Current {
    alerts: Alerts,
    stamp: Option<Stamp>,
    /// Held open: the next content has another inode, however soon it comes.
    _file: Option<File>,
    /// When the file was written, in seconds since the system was started.
    saved_at_s: u64,
    /// Whether a change waits to be written.
    is_unsaved: bool,
}

/// The state of alerts of a state folder.
#[derive(Debug)]
pub(crate) struct StateFile {
    folder: PathBuf,
    path: PathBuf,
    current: Mutex<Option<Current>>,
}

impl StateFile {
    pub(crate) fn in_folder(folder: &Path) -> Self {
        Self { folder: folder.to_path_buf(), path: folder.join(FILE), current: Mutex::new(None) }
    }

    /// Changes the alerts. The change is on disk when this returns; where that fails, `keep` says what stays. A policy is taken by what is
    /// read: without one, channels stay as they are. Waits for the disk.
    pub(crate) fn change<T>(
        &self,
        policy: Option<&Policy>,
        keep: Keep,
        change: impl FnOnce(&mut Alerts) -> Result<T, WebError>,
    ) -> Result<T, WebError> {
        let mut held = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        let locked = make_folder(&self.folder).and_then(|()| take_lock(&self.folder.join(LOCK)));
        let _lock = match locked {
            Ok(lock) => lock,
            Err(error) => {
                if let Some(current) = held.as_mut().filter(|_| keep == Keep::Change) {
                    change(&mut current.alerts)?;
                    current.is_unsaved = true;
                }
                return Err(error);
            }
        };
        let is_stale = held.as_ref().is_none_or(|current| current.stamp != self.stamp());
        let current = match held.as_mut() {
            Some(current) if !is_stale => current,
            Some(_) | None => held.insert(self.read(policy)?),
        };
        let mut next = current.alerts.clone();
        let made = change(&mut next)?;
        let now_s = clock::now().boot_s;
        let is_due = next.measures_time() && now_s.saturating_sub(current.saved_at_s) >= CLOCK_SAVED_EVERY_S;
        if !(current.is_unsaved || is_due || next.differs_from(&current.alerts)) {
            current.alerts = next;
            return Ok(made);
        }
        match self.write(&next) {
            Ok((file, stamp)) => {
                *current = Current { alerts: next, stamp, _file: file, saved_at_s: now_s, is_unsaved: false };
                Ok(made)
            }
            Err(error) => {
                if keep == Keep::Change {
                    (current.alerts, current.is_unsaved) = (next, true);
                }
                Err(error)
            }
        }
    }

    fn stamp(&self) -> Option<Stamp> {
        std::fs::metadata(&self.path).ok().map(|found| Stamp::of(&found))
    }

    fn open(&self) -> Result<Option<File>, WebError> {
        match File::open(&self.path) {
            Ok(file) => Ok(Some(file)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(WebError::file("opening the state of alerts in", &self.path)(error)),
        }
    }

    fn read(&self, policy: Option<&Policy>) -> Result<Current, WebError> {
        let file = self.open()?;
        let stamp = file.as_ref().and_then(|file| file.metadata().ok()).map(|found| Stamp::of(&found));
        let alerts = match &file {
            None => Alerts::new(policy.cloned().unwrap_or_default()),
            Some(file) => {
                let mut text = String::new();
                let most = u64::try_from(STATE_BYTES_MAX).unwrap_or(u64::MAX).saturating_add(1);
                let read = file.take(most).read_to_string(&mut text);
                read.map_err(WebError::file("reading the state of alerts in", &self.path))?;
                let restored = match policy {
                    Some(policy) => Alerts::restore(&text, policy.clone()),
                    None => Alerts::restore_with_all_channels(&text),
                };
                restored.map_err(|source| self.unusable(source))?
            }
        };
        Ok(Current { alerts, stamp, _file: file, saved_at_s: clock::now().boot_s, is_unsaved: false })
    }

    fn unusable(&self, source: RestoreError) -> WebError {
        WebError::Alerts { path: self.path.clone(), source }
    }

    fn write(&self, alerts: &Alerts) -> Result<(Option<File>, Option<Stamp>), WebError> {
        let text = alerts.save().map_err(|source| self.unusable(RestoreError::Damaged(source)))?;
        replace(&self.path, text.as_bytes())?;
        let file = self.open()?;
        let stamp = file.as_ref().and_then(|file| file.metadata().ok()).map(|found| Stamp::of(&found));
        Ok((file, stamp))
    }
}

#[cfg(test)]
mod tests {
    use dolmen_alerts::{NewSilence, Pattern};

    use super::*;

    fn silence(code: &str) -> NewSilence {
        NewSilence {
            code: Pattern::new(code).unwrap(),
            object: Pattern::new("*").unwrap(),
            author: "anna".to_owned(),
            comment: String::new(),
            for_s: 3600,
        }
    }

    fn set(file: &StateFile, code: &str) {
        file.change(None, Keep::Before, |alerts| Ok(alerts.silence(silence(code), 1_800_000_000)?)).unwrap();
    }

    fn codes(file: &StateFile) -> Vec<String> {
        let list = |alerts: &mut Alerts| {
            Ok(alerts.silences().iter().map(|silence| silence.code.as_str().to_owned()).collect())
        };
        file.change(Some(&Policy::default()), Keep::Before, list).unwrap()
    }

    /// Scenario: the server and a command change the state by turns. Neither loses what the other one has set.
    #[test]
    fn a_server_and_a_command_lose_no_silence_of_each_other() {
        let folder = tempfile::tempdir().unwrap();
        let [server, command] = [(); 2].map(|()| StateFile::in_folder(folder.path()));
        for number in 0..10 {
            set(&server, &format!("s{number}"));
            set(&command, &format!("c{number}"));
        }
        assert_eq!(codes(&server).len(), 20);
        assert_eq!(codes(&server), codes(&StateFile::in_folder(folder.path())));
    }

    /// Scenario: the folder cannot be written. A change that must not be lost silently is refused and undone; one that was seen stays.
    #[test]
    fn a_change_that_cannot_be_written_is_undone_or_waits() {
        let folder = tempfile::tempdir().unwrap();
        let file = StateFile::in_folder(folder.path());
        set(&file, "first");
        // A folder in the place of the next content.
        let next = folder.path().join("alerts.json.new");
        std::fs::create_dir_all(next.join("full")).unwrap();
        let change = |keep, code: &str| {
            file.change(None, keep, |alerts| Ok(alerts.silence(silence(code), 1_800_000_000)?))
        };
        assert!(change(Keep::Before, "refused").is_err());
        assert!(change(Keep::Change, "seen").is_err());
        std::fs::remove_dir_all(&next).unwrap();
        assert_eq!(codes(&file), ["first", "seen"]);
        assert_eq!(codes(&StateFile::in_folder(folder.path())), ["first", "seen"]);
    }

    /// Scenario: nothing happens for a day, with a silence and without one. The file is written for the silence alone, whose time
    /// elapses.
    #[test]
    fn a_host_on_which_nothing_happens_writes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let file = StateFile::in_folder(folder.path());
        set(&file, "c");
        let age = || file.current.lock().unwrap().as_mut().unwrap().saved_at_s = 0;
        let look = |now_s: u64| {
            age();
            let stamp = file.stamp();
            let look = |alerts: &mut Alerts| {
                alerts.look(now_s, dolmen_alerts::Look::Answered(&[]));
                Ok(())
            };
            file.change(None, Keep::Change, look).unwrap();
            file.stamp() != stamp
        };
        assert!(look(1_800_000_005), "the silence waits for time to elapse");
        let end = |alerts: &mut Alerts| Ok(alerts.end_silence(alerts.silences()[0].id)?);
        file.change(None, Keep::Before, end).unwrap();
        look(1_800_000_010);
        assert!(!look(1_800_000_015));
    }

    #[test]
    fn a_damaged_state_is_refused_by_name_and_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(FILE);
        for content in ["", "{}", r#"{"version":9,"state":{}}"#, r#"{"version":1,"state":{"a":1}}"#] {
            std::fs::write(&path, content).unwrap();
            let file = StateFile::in_folder(folder.path());
            let error = file.change(None, Keep::Change, |_| Ok(())).unwrap_err();
            assert!(error.to_string().contains("alerts.json"), "{error}");
            assert_eq!(std::fs::read_to_string(&path).unwrap(), content);
        }
    }
}
