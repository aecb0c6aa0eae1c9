//! What this host remembers of jobs: the last number that was given, jobs that go on, and those that ended lately
//! (docs/design/0011).
//!
//! Two small files, each replaced whole. Nothing in here decides anything about data: what a pool has to go on with stands on
//! its disks. A file that cannot be used is named in the log and kept aside; numbers go on from the other one.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use dolmen_api::{JobKind, JobPriority, JobState};
use dolmen_space::{JobShare, Provisioning};
use dolmen_units::{Bytes, PoolId, SpaceId};
use rustix::time::{ClockId, clock_gettime};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use crate::config::POOLS_MAX;
use crate::files::{FILE_BYTES_MAX, read_if_any, write_durably};
use crate::io_worker::IoWorker;
use crate::jobs::aim::Aim;
use crate::jobs::kind::{Kind, Lookup, OwnState};
use crate::jobs::limits::{ENDED_MAX, UNFINISHED_MAX};
use crate::jobs::share as job_share;

/// The version of the file.
const VERSION: u32 = 1;
const JOBS_FILE: &str = "jobs.json";
const NUMBER_FILE: &str = "job-number";
/// The longest text of a job that is kept: what it works on, and what came of it.
pub(crate) const TEXT_BYTES_MAX: usize = 512;
/// What a job takes in the file, at most: each byte of a text may need six.
const JOB_TEXT_MAX: usize = 1024 + 2 * 6 * TEXT_BYTES_MAX;
/// What the state of its own of a job takes in the file, at most; of a pool one job at a time has such a state.
pub(crate) const OWN_TEXT_MAX: usize = 48 << 10;
/// The same of a job of a volume, of which a pool may have several at a time.
pub(crate) const VOLUME_TEXT_MAX: usize = 2560;
/// Jobs that nobody asked for and that are not counted with the others, for each pool.
const BY_ITSELF_MAX: usize = 3;
const _: () = assert!(
    ((ENDED_MAX + UNFINISHED_MAX + BY_ITSELF_MAX * POOLS_MAX) * JOB_TEXT_MAX
        + POOLS_MAX * OWN_TEXT_MAX
        + UNFINISHED_MAX * VOLUME_TEXT_MAX) as u64
        <= FILE_BYTES_MAX,
    "a file that was written is read whole"
);

/// The size that a write cache is to have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct RecordedSize {
    survives: u8,
    size_bytes: u64,
}

/// The space that is converted, and what it is to be beside its layout, which its pool knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct RecordedSpace {
    id: u64,
    #[serde(default)]
    provisioning: Option<dolmen_api::Provisioning>,
}

/// A job as it is on record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RecordedJob {
    pub(crate) id: u64,
    pool: String,
    pub(crate) pool_name: String,
    pub(crate) kind: JobKind,
    pub(crate) subject: String,
    #[serde(default)]
    disk: Option<String>,
    #[serde(default)]
    write_cache: Option<RecordedSize>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    space: Option<RecordedSpace>,
    /// Number of the space of a volume.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    volume: Option<u64>,
    pub(crate) state: JobState,
    /// Missing, or none that this version knows: as usual.
    #[serde(default, deserialize_with = "if_known")]
    priority: Option<JobPriority>,
    /// The same; 0 for no limit.
    #[serde(default, deserialize_with = "if_known")]
    latency_limit_ms: Option<u64>,
    #[serde(default)]
    pub(crate) began_s: Option<u64>,
    #[serde(default)]
    pub(crate) ended_s: Option<u64>,
    #[serde(default)]
    pub(crate) ran_s: u64,
    #[serde(default)]
    pub(crate) result: Option<String>,
    #[serde(default)]
    pub(crate) rows_total: u64,
    #[serde(default)]
    pub(crate) rows_done: u64,
    #[serde(default)]
    pub(crate) total_bytes: u64,
    #[serde(default)]
    pub(crate) done_bytes: u64,
    /// State of its own, of a job that has not ended, under the word of its kind; in addition, fields of later versions.
    #[serde(flatten)]
    own: BTreeMap<String, Value>,
}

impl RecordedJob {
    /// A job of a pool, with what it is about.
    pub(crate) fn new(id: u64, (pool, pool_name): (PoolId, &str), kind: &dyn Kind, aim: Aim) -> Self {
        let volume = match aim {
            Aim::Volume(space) => Some(space.0),
            Aim::Pool | Aim::Disk(_) | Aim::WriteCache { .. } | Aim::Space { .. } => None,
        };
        let (disk, write_cache, space) = match aim {
            Aim::Pool | Aim::Volume(_) => (None, None, None),
            Aim::Disk(disk) => (Some(disk.to_string()), None, None),
            Aim::WriteCache { survives, size } => {
                (None, Some(RecordedSize { survives, size_bytes: size.0 }), None)
            }
            Aim::Space { id, provisioning } => {
                let provisioning = provisioning.map(|provisioning| match provisioning {
                    Provisioning::Thin => dolmen_api::Provisioning::Thin,
                    Provisioning::Fixed => dolmen_api::Provisioning::Fixed,
                });
                (None, None, Some(RecordedSpace { id: id.0, provisioning }))
            }
        };
        Self {
            id,
            pool: pool.to_string(),
            pool_name: pool_name.to_owned(),
            kind: kind.wire(),
            subject: String::new(),
            disk,
            write_cache,
            space,
            volume,
            state: JobState::Waiting,
            priority: None,
            latency_limit_ms: None,
            began_s: None,
            ended_s: None,
            ran_s: 0,
            result: None,
            rows_total: 0,
            rows_done: 0,
            total_bytes: 0,
            done_bytes: 0,
            own: BTreeMap::new(),
        }
    }

    /// How it shares the disks with clients.
    pub(crate) fn job_share(&self, kind: &dyn Kind) -> JobShare {
        job_share::recorded(kind.usual_share(), self.priority, self.latency_limit_ms)
    }

    /// Returns the state of its own, unless there is none that this version knows.
    pub(crate) fn own_state(&self, kind: &dyn Kind) -> Option<Rc<dyn OwnState>> {
        self.own.get(kind.word()).and_then(|recorded| kind.recalled_state(recorded))
    }

    pub(crate) fn set_own_state(&mut self, recorded: Value) {
        self.own.insert(self.kind.as_str().to_owned(), recorded);
    }

    pub(crate) fn set_job_share(&mut self, job_share: JobShare) {
        self.priority = Some(job_share::priority_of(job_share));
        self.latency_limit_ms = Some(job_share::limit_ms_of(job_share).unwrap_or(0));
    }

    /// Its pool, unless that is none.
    pub(crate) fn pool(&self) -> Option<PoolId> {
        self.pool.parse().ok()
    }

    /// What it is about, unless that does not fit what it does.
    pub(crate) fn aim(&self, kind: &dyn Kind) -> Option<Aim> {
        if let Some(volume) = self.volume {
            let is_alone = self.disk.is_none() && self.write_cache.is_none() && self.space.is_none();
            let aim = Aim::Volume(SpaceId(volume));
            return Some(aim).filter(|aim| is_alone && kind.is_about(*aim));
        }
        let aim = match (&self.disk, self.write_cache, self.space) {
            (None, None, None) => Aim::Pool,
            (Some(disk), None, None) => Aim::Disk(disk.parse().ok()?),
            (None, Some(RecordedSize { survives, size_bytes }), None) => {
                Aim::WriteCache { survives, size: Bytes(size_bytes) }
            }
            (None, None, Some(RecordedSpace { id, provisioning })) => {
                let provisioning = provisioning.map(|provisioning| match provisioning {
                    dolmen_api::Provisioning::Thin => Provisioning::Thin,
                    dolmen_api::Provisioning::Fixed => Provisioning::Fixed,
                });
                Aim::Space { id: SpaceId(id), provisioning }
            }
            (Some(_) | None, _, _) => return None,
        };
        kind.is_about(aim).then_some(aim)
    }
}

/// A value of a record, unless it is none that this version knows: nothing is lost with it but a wish.
fn if_known<'de, D: Deserializer<'de>, T: DeserializeOwned>(from: D) -> Result<Option<T>, D::Error> {
    let value = Value::deserialize(from)?;
    Ok(serde_json::from_value(value).ok())
}

/// A text, as much of it as is kept.
pub(crate) fn kept(text: &str) -> String {
    let fits = |(at, character): &(usize, char)| at + character.len_utf8() <= TEXT_BYTES_MAX;
    text.char_indices().take_while(fits).map(|(_, character)| character).collect()
}

/// The file, as it is on record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Recorded {
    version: u32,
    /// The last number that was given.
    last: u64,
    jobs: Vec<RecordedJob>,
}

impl Recorded {
    pub(crate) fn new(last: u64, jobs: Vec<RecordedJob>) -> Self {
        Self { version: VERSION, last, jobs }
    }
}

/// Only what tells how the rest is to be read.
#[derive(Deserialize)]
struct Versioned {
    version: u32,
}

/// Why a file cannot be used.
#[derive(Debug, thiserror::Error)]
enum Unfit {
    #[error("it makes no sense")]
    Json(#[from] serde_json::Error),
    #[error("it is of version {found}, and this is a daemon for version {VERSION}")]
    Version { found: u32 },
    #[error("what it says of job {id} makes no sense")]
    Job { id: u64 },
    #[error("it is no number")]
    Number(#[from] std::num::ParseIntError),
}

fn parse(text: &str, kinds: Lookup) -> Result<Recorded, Unfit> {
    let Versioned { version } = serde_json::from_str(text)?;
    if version != VERSION {
        return Err(Unfit::Version { found: version });
    }
    let recorded: Recorded = serde_json::from_str(text)?;
    let mut before = 0;
    for job in &recorded.jobs {
        let is_next = job.id > before && job.id <= recorded.last;
        let aim = kinds(&job.kind).and_then(|kind| job.aim(kind));
        if !is_next || job.pool().is_none() || aim.is_none() {
            return Err(Unfit::Job { id: job.id });
        }
        before = job.id;
    }
    Ok(recorded)
}

/// What is on record.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Found {
    /// No larger number was given to anybody.
    pub(crate) last: u64,
    pub(crate) jobs: Vec<RecordedJob>,
}

/// What a file has.
pub(crate) enum Content<T> {
    Missing,
    Unusable,
    Usable(T),
}

/// Reads a file of what is called so; one that cannot be used is told, and kept aside.
pub(crate) fn read<T, E: std::error::Error + 'static>(
    what: &str,
    path: &Path,
    now_s: u64,
    parse: impl Fn(&str) -> Result<T, E>,
) -> Content<T> {
    let shown = path.display();
    let why = match read_if_any(path).map(|text| text.map(|text| parse(&text))) {
        Ok(None) => return Content::Missing,
        Ok(Some(Ok(value))) => return Content::Usable(value),
        Ok(Some(Err(unfit))) => dolmen_causes::in_one_line(&unfit),
        Err(error) => error.to_string(),
    };
    let mut aside = path.as_os_str().to_owned();
    aside.push(format!(".aside-{now_s}"));
    let aside = PathBuf::from(aside);
    match std::fs::rename(path, &aside) {
        Ok(()) => {
            tracing::warn!(path = %shown, why, aside = %aside.display(), "the record of {what} cannot be used; it is kept aside, and begun again");
        }
        Err(error) => {
            tracing::warn!(path = %shown, why, %error, "the record of {what} cannot be used, nor kept aside; it is begun again");
        }
    }
    Content::Unusable
}

fn read_all(folder: &Path, now_s: u64, kinds: Lookup) -> Found {
    let number = |text: &str| text.trim().parse::<u64>().map_err(Unfit::from);
    let number = read("jobs", &folder.join(NUMBER_FILE), now_s, number);
    let recorded = read("jobs", &folder.join(JOBS_FILE), now_s, |text| parse(text, kinds));
    let is_new = matches!((&number, &recorded), (Content::Missing, Content::Missing));
    let number = if let Content::Usable(number) = number { Some(number) } else { None };
    let recorded = if let Content::Usable(recorded) = recorded { Some(recorded) } else { None };
    let known = number.max(recorded.as_ref().map(|recorded| recorded.last));
    // Nobody has counted to the seconds since 1970.
    let last = known.unwrap_or(if is_new { 0 } else { now_s });
    Found { last, jobs: recorded.map(|recorded| recorded.jobs).unwrap_or_default() }
}

/// The files.
#[derive(Debug)]
pub(crate) struct JobFiles {
    folder: PathBuf,
    file_worker: Rc<IoWorker>,
    kinds: Lookup,
}

impl JobFiles {
    pub(crate) fn new(folder: PathBuf, file_worker: Rc<IoWorker>, kinds: Lookup) -> Self {
        Self { folder, file_worker, kinds }
    }

    /// Returns the kind that records call so.
    pub(crate) fn kind_of(&self, kind: &JobKind) -> Option<&'static dyn Kind> {
        (self.kinds)(kind)
    }

    /// What is on record.
    ///
    /// # Errors
    /// When nobody could look.
    pub(crate) async fn read(&self) -> io::Result<Found> {
        let (folder, kinds) = (self.folder.clone(), self.kinds);
        self.file_worker.run(move || Ok(read_all(&folder, seconds_now(), kinds))).await
    }

    /// Puts the last number that was given on record.
    ///
    /// # Errors
    /// What the file system says.
    pub(crate) async fn write_number(&self, last: u64) -> io::Result<()> {
        let path = self.folder.join(NUMBER_FILE);
        self.file_worker.run(move || write_durably(&path, format!("{last}\n").as_bytes())).await
    }

    /// Puts jobs on record.
    ///
    /// # Errors
    /// What the file system says.
    pub(crate) async fn write(&self, text: Vec<u8>) -> io::Result<()> {
        let path = self.folder.join(JOBS_FILE);
        self.file_worker.run(move || write_durably(&path, &text)).await
    }
}

/// Seconds since 1970 by the clock of the system: for people, who know what day it is.
pub(crate) fn seconds_now() -> u64 {
    u64::try_from(clock_gettime(ClockId::Realtime).tv_sec).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use dolmen_space::Priority;
    use dolmen_units::DiskId;

    use super::*;
    use crate::disks::{DrainJob, ReplaceJob};
    use crate::job_table::kind_of;
    use crate::pools::RebalanceJob;
    use crate::spaces::{ConvertJob, ScrubJob, WriteCacheJob};

    const NOW: u64 = 1_700_000_000;

    fn job(id: u64, kind: &dyn Kind, aim: Aim) -> RecordedJob {
        RecordedJob {
            subject: "d".to_owned(),
            result: Some("3 slabs\n\u{7}".to_owned()),
            ended_s: Some(NOW),
            ..RecordedJob::new(id, (PoolId([1; 16]), "tank"), kind, aim)
        }
    }

    fn all() -> Vec<RecordedJob> {
        vec![
            job(2, &ScrubJob, Aim::Pool),
            job(3, &ReplaceJob, Aim::Disk(DiskId([2; 16]))),
            job(7, &WriteCacheJob, Aim::WriteCache { survives: 2, size: Bytes::mib(64) }),
            job(8, &RebalanceJob, Aim::Pool),
            job(9, &ConvertJob, Aim::Space { id: SpaceId(3), provisioning: Some(Provisioning::Fixed) }),
        ]
    }

    fn text(last: u64, jobs: Vec<RecordedJob>) -> String {
        serde_json::to_string(&Recorded::new(last, jobs)).unwrap()
    }

    #[test]
    fn a_record_reads_back_and_what_makes_no_sense_is_refused() {
        let recorded = parse(&text(9, all()), kind_of).unwrap();
        assert_eq!((recorded.last, &recorded.jobs), (9, &all()));
        assert_eq!(recorded.jobs[1].aim(&ReplaceJob), Some(Aim::Disk(DiskId([2; 16]))));
        let mut backwards = all();
        backwards.reverse();
        let stranger = RecordedJob { pool: "tank".to_owned(), ..job(2, &ScrubJob, Aim::Pool) };
        let aimless = job(2, &DrainJob, Aim::Pool);
        for (last, jobs) in [(8, all()), (9, backwards), (9, vec![stranger]), (9, vec![aimless])] {
            assert!(matches!(parse(&text(last, jobs), kind_of), Err(Unfit::Job { .. })));
        }
        assert!(matches!(parse("{\"version\":2,\"all\":[]}", kind_of), Err(Unfit::Version { found: 2 })));
        assert!(matches!(parse(&text(9, all())[..80], kind_of), Err(Unfit::Json(_))));
    }

    /// Scenario: a record of an earlier version, without an effort; and one of a later version, with words that are none here.
    #[test]
    fn an_unknown_priority_is_the_default_and_refuses_nothing() {
        let usual = ScrubJob.usual_share();
        let mut set = job(2, &ScrubJob, Aim::Pool);
        assert_eq!(set.job_share(&ScrubJob), usual);
        let high = JobShare { priority: Priority::High, latency_limit: None };
        set.set_job_share(high);
        let written = text(2, vec![set]);
        assert_eq!(parse(&written, kind_of).unwrap().jobs[0].job_share(&ScrubJob), high);
        for (one, other) in [
            (r#""priority":"high","latency_limit_ms":0"#, r#""none":0"#),
            (r#""priority":"high","latency_limit_ms":0"#, r#""priority":"utmost","latency_limit_ms":"1s""#),
            (r#""priority":"high","latency_limit_ms":0"#, r#""priority":7,"latency_limit_ms":-5"#),
        ] {
            assert!(written.contains(one), "{written}");
            assert_eq!(
                parse(&written.replace(one, other), kind_of).unwrap().jobs[0].job_share(&ScrubJob),
                usual,
                "{other}"
            );
        }
    }

    /// Scenario: each of the two files is missing, sound, torn, or no text at all. No number is given that may have been given, and
    /// what cannot be used stays beside.
    #[test]
    fn numbers_go_on_from_what_is_safe() {
        let sound = text(9, all());
        for (number, jobs, expected, count) in [
            (None, None, 0, 0),
            (Some("9\n"), Some(sound.as_str()), 9, 5),
            // Killed between the number and the record.
            (Some("10\n"), Some(sound.as_str()), 10, 5),
            (Some("10\n"), Some(&sound[..99]), 10, 0),
            (Some("10\n"), None, 10, 0),
            (Some("\0\0"), Some(sound.as_str()), 9, 5),
            (Some(""), Some("{}"), NOW, 0),
            (None, Some("{\"version\":9}"), NOW, 0),
        ] {
            let folder = tempfile::tempdir().unwrap();
            for (name, content) in [(NUMBER_FILE, number), (JOBS_FILE, jobs)] {
                content.iter().for_each(|content| fs::write(folder.path().join(name), content).unwrap());
            }
            let found = read_all(folder.path(), NOW, kind_of);
            assert_eq!((found.last, found.jobs.len()), (expected, count), "{number:?} {jobs:?}");
            let left = fs::read_dir(folder.path()).unwrap().count();
            assert_eq!(left, usize::from(number.is_some()) + usize::from(jobs.is_some()));
        }
    }

    #[test]
    fn what_is_kept_of_a_text_is_bounded_and_whole_letters() {
        assert_eq!(kept("abc"), "abc");
        let long = "ä".repeat(TEXT_BYTES_MAX);
        assert_eq!(kept(&long), "ä".repeat(TEXT_BYTES_MAX / 2));
        assert_eq!(kept(&format!("a{long}")).len(), TEXT_BYTES_MAX - 1);
    }
}
