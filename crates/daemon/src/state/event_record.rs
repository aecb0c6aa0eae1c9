//! What this host remembers of events: those that are kept, and the state that they led to.
//!
//! One file, replaced whole, in which both stand: what has changed since is told by the next look, also by the next daemon, and
//! nothing is told twice. Nothing in here decides anything about data. A file that cannot be used is named in the log and kept
//! aside; numbers go on from the seconds since 1970 then, to which nobody has counted.

use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use dolmen_api::{Event, FindingCode, JobState, Object, SCHEMA};
use serde::{Deserialize, Serialize};

use crate::files::{FILE_BYTES_MAX, write_durably};
use crate::io_worker::IoWorker;
use crate::jobs::{Content, read, seconds_now};

/// The version of the file: 2 since the names of its fields changed.
const VERSION: u32 = 2;
const FILE: &str = "events.json";
/// Events that are kept, at most; the oldest go first.
const EVENTS_MAX: usize = 1000;

/// A disk of a pool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ReportedDisk {
    pub(crate) id: String,
    pub(crate) slot: u16,
    pub(crate) name: String,
    pub(crate) is_leaving: bool,
    pub(crate) is_excluded: bool,
}

/// A space of a pool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ReportedSpace {
    pub(crate) id: u64,
    pub(crate) name: String,
    pub(crate) size_bytes: u64,
    pub(crate) attached_at: Option<String>,
    pub(crate) is_served: bool,
    #[serde(default)]
    pub(crate) is_in_trash: bool,
    /// Path at which the volume on it is mounted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) mounted_at: Option<String>,
}

/// What is the matter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Trouble {
    pub(crate) code: FindingCode,
    pub(crate) object: Object,
    pub(crate) text: String,
    pub(crate) since_s: u64,
    pub(crate) amount: u64,
}

/// A pool that is open, or was and should be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ReportedPool {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) disks: Vec<ReportedDisk>,
    pub(crate) spaces: Vec<ReportedSpace>,
    pub(crate) troubles: Vec<Trouble>,
    /// Whether this daemon has told that it is open.
    #[serde(skip)]
    pub(crate) is_open: bool,
}

/// A job that has not ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ReportedJob {
    pub(crate) id: u64,
    pub(crate) state: JobState,
}

/// The state that events led to.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct ReportedState {
    pub(crate) pools: Vec<ReportedPool>,
    /// What is the matter with none of them.
    pub(crate) besides: Vec<Trouble>,
    pub(crate) jobs: Vec<ReportedJob>,
    /// No job with a larger number was told of.
    pub(crate) last_job: u64,
}

/// All of it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct Recorded {
    version: u32,
    /// The last number that was given.
    pub(crate) last: u64,
    pub(crate) events: VecDeque<Event>,
    pub(crate) reported: ReportedState,
}

impl Recorded {
    /// Nothing, behind numbers up to this one.
    pub(crate) fn empty(last: u64) -> Self {
        Self { last, ..Self::default() }
    }

    /// Adds an event under the next number.
    pub(crate) fn add(&mut self, event: Event) {
        self.last += 1;
        self.events.push_back(Event { number: self.last, ..event });
        if self.events.len() > EVENTS_MAX {
            self.events.pop_front();
        }
    }

    /// Events behind a number and up to another, of one pool or all.
    pub(crate) fn after(&self, since: u64, last: u64, pool: Option<&str>) -> dolmen_api::Events {
        let first = self.events.front().map_or(self.last + 1, |event| event.number);
        let is_meant = |event: &&Event| {
            let is_stale = event.number > since && event.number <= last;
            is_stale && pool.is_none_or(|pool| event.object.pool.as_deref() == Some(pool))
        };
        dolmen_api::Events {
            schema: SCHEMA,
            events: self.events.iter().filter(is_meant).cloned().collect(),
            last,
            dropped: first.saturating_sub(since.saturating_add(1)),
            now_s: seconds_now(),
        }
    }

    /// As it goes into the file. Where it would be too long to be read again, the oldest events go; what they led to is told again
    /// where even that is not enough.
    pub(crate) fn text(&mut self) -> io::Result<Vec<u8>> {
        self.version = VERSION;
        let longest = usize::try_from(FILE_BYTES_MAX).unwrap_or(usize::MAX);
        loop {
            let text = serde_json::to_vec(self).map_err(io::Error::other)?;
            if text.len() <= longest {
                return Ok(text);
            }
            if self.events.is_empty() {
                let reported = ReportedState::default();
                return serde_json::to_vec(&Self { reported, ..self.clone() }).map_err(io::Error::other);
            }
            self.events.drain(..self.events.len().div_ceil(2));
        }
    }
}

/// Why a file cannot be used.
#[derive(Debug, thiserror::Error)]
enum Unfit {
    #[error("it makes no sense")]
    Json(#[from] serde_json::Error),
    #[error("it is of version {found}, and this is a daemon for version {VERSION}")]
    Version { found: u32 },
    #[error("event {number} does not follow the one before")]
    Order { number: u64 },
}

#[derive(Deserialize)]
struct Versioned {
    version: u32,
}

fn parse(text: &str) -> Result<Recorded, Unfit> {
    let Versioned { version } = serde_json::from_str(text)?;
    if version != VERSION {
        return Err(Unfit::Version { found: version });
    }
    let recorded: Recorded = serde_json::from_str(text)?;
    let numbers = recorded.events.iter().map(|event| event.number);
    for (number, next) in numbers.clone().zip(numbers.skip(1).chain([recorded.last + 1])) {
        if next != number + 1 {
            return Err(Unfit::Order { number: next });
        }
    }
    Ok(recorded)
}

fn read_record(folder: &Path, now_s: u64) -> Option<Recorded> {
    match read("events", &folder.join(FILE), now_s, parse) {
        Content::Missing => None,
        Content::Unusable => Some(Recorded::empty(now_s)),
        Content::Usable(recorded) => Some(recorded),
    }
}

/// The file.
#[derive(Debug)]
pub(crate) struct EventFile {
    folder: PathBuf,
    file_worker: Rc<IoWorker>,
}

impl EventFile {
    pub(crate) fn new(folder: PathBuf, file_worker: Rc<IoWorker>) -> Self {
        Self { folder, file_worker }
    }

    /// What is on record; `None` where nothing ever was.
    ///
    /// # Errors
    /// When nobody could look.
    pub(crate) async fn read(&self) -> io::Result<Option<Recorded>> {
        let folder = self.folder.clone();
        self.file_worker.run(move || Ok(read_record(&folder, seconds_now()))).await
    }

    /// Puts all of it on record.
    ///
    /// # Errors
    /// What the file system says.
    pub(crate) async fn write(&self, text: Vec<u8>) -> io::Result<()> {
        let path = self.folder.join(FILE);
        self.file_worker.run(move || write_durably(&path, &text)).await
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use dolmen_api::EventCode;

    use super::*;

    const NOW: u64 = 1_700_000_000;

    fn event(number: u64, text: &str) -> Event {
        let (code, object) = (EventCode::PoolOpened, Object::pool("tank"));
        Event { number, at_s: NOW, code, finding: None, object, text: text.to_owned() }
    }

    fn record(events: Vec<Event>, last: u64) -> Recorded {
        let job = ReportedJob { id: 7, state: JobState::Paused };
        let reported = ReportedState { jobs: vec![job], last_job: 9, ..ReportedState::default() };
        Recorded { version: VERSION, last, events: events.into(), reported }
    }

    /// What is written reads back; what is torn, of another version or out of order is kept aside, and no number is given again.
    #[test]
    fn a_record_reads_back_and_what_makes_no_sense_is_kept_aside() {
        let sound = String::from_utf8(record(vec![event(3, "a"), event(4, "b")], 4).text().unwrap()).unwrap();
        let skips = String::from_utf8(record(vec![event(3, "a"), event(5, "b")], 5).text().unwrap()).unwrap();
        let other = sound.replace("\"version\":2", "\"version\":1");
        assert_ne!(other, sound);
        for (text, last, count) in
            [(sound.as_str(), 4, 2), (&sound[..60], NOW, 0), (&other, NOW, 0), (&skips, NOW, 0), ("", NOW, 0)]
        {
            let folder = tempfile::tempdir().unwrap();
            fs::write(folder.path().join(FILE), text).unwrap();
            let found = read_record(folder.path(), NOW).unwrap();
            assert_eq!((found.last, found.events.len()), (last, count), "{text}");
            assert_eq!(found.reported.last_job, if count == 2 { 9 } else { 0 });
            assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing is thrown away");
        }
        assert_eq!(read_record(tempfile::tempdir().unwrap().path(), NOW), None);
    }

    /// Scenario: more events than are kept. Who asks on from a number gets each behind it once, or is told how many are gone.
    #[test]
    fn events_are_bounded_and_dropped_ones_are_counted() {
        let mut all = Recorded::default();
        let count = EVENTS_MAX as u64 + 5;
        (0..count).for_each(|_| all.add(event(0, "x")));
        let numbers = |since, last| -> Vec<u64> {
            all.after(since, last, None).events.iter().map(|event| event.number).collect()
        };
        assert_eq!((numbers(0, count).len(), numbers(0, count)[0]), (EVENTS_MAX, 6));
        assert_eq!(numbers(count - 3, count - 1), [count - 2, count - 1], "one is not on record yet");
        let dropped = |since| all.after(since, count, None).dropped;
        assert_eq!([0, 2, 4, 5, 6, count, u64::MAX].map(dropped), [5, 3, 1, 0, 0, 0, 0]);
        assert!(all.after(0, count, Some("other")).events.is_empty());
    }

    /// However long its texts, what is written is read again.
    #[test]
    fn a_record_is_never_too_long_to_be_read() {
        let long = "\u{1}".repeat(4096);
        let mut all = record((1..=EVENTS_MAX as u64).map(|number| event(number, &long)).collect(), 1000);
        let text = all.text().unwrap();
        assert!(text.len() as u64 <= FILE_BYTES_MAX);
        let read = parse(std::str::from_utf8(&text).unwrap()).unwrap();
        assert!(!read.events.is_empty() && read.events.len() < EVENTS_MAX);
        assert_eq!((read.last, read.reported.last_job), (1000, 9));
    }
}
