//! Jobs: long work with progress.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What a job does, in one word, such as `resync`, `replace`, `drain`, `scrub`, `write_cache`, `rebalance`, `convert`, `purge` or
/// `empty`. A later daemon may have others.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(transparent)]
#[schema(value_type = String)]
pub struct JobKind(Cow<'static, str>);

impl JobKind {
    /// The kind of job that has this word.
    #[must_use]
    pub const fn new(word: &'static str) -> Self {
        Self(Cow::Borrowed(word))
    }

    /// Returns its word.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// How far a job is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum JobState {
    /// Another job of the pool is running; or the rest of it waits for what `waits_for` says, and it goes on by itself.
    Waiting,
    /// It runs.
    Running,
    /// It was paused, and stands until it is resumed.
    Paused,
    /// It has done what it was to do.
    Done,
    /// It was stopped, or is wanted no more, and has ended; what it did stays done, unless `result` says otherwise.
    CalledOff,
    /// It has ended with an error; what it did stays done.
    Failed,
}

/// How much of the disks' time a job takes at most while clients use the pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum JobPriority {
    /// An eighth.
    Low,
    /// Half.
    Normal,
    /// All that it can get.
    High,
}

/// How long a job may still take: a range, because rates vary.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Eta {
    /// If it goes as fast as it ever went.
    pub earliest_s: u64,
    /// If it goes as slowly as it ever went.
    pub latest_s: u64,
}

/// A job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Job {
    /// Its number. Numbers grow, also over restarts of the daemon, and none is given twice.
    pub id: u64,
    /// The pool that it works on.
    pub pool: String,
    /// What it does.
    pub kind: JobKind,
    /// What it is to do, in a word in front of its subject; absent where that is the word of its kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verb: Option<String>,
    /// What it works on, in words, such as the disks that it moves between.
    pub subject: String,
    /// How far it is.
    pub state: JobState,
    /// Whether it was asked to pause, and what is under way is not done yet.
    #[serde(default)]
    pub is_pausing: bool,
    /// Whether it was asked to end, and what is under way is not done yet.
    #[serde(default)]
    pub is_stopping: bool,
    /// Rows to look at.
    pub rows_total: u64,
    /// Rows done.
    pub rows_done: u64,
    /// Bytes that it copies or verifies at most: those for which room is claimed. What of them was never written is passed over.
    pub total_bytes: u64,
    /// Bytes copied or verified so far.
    pub done_bytes: u64,
    /// Bytes a second, lately.
    pub rate_bytes_per_s: u64,
    /// How long it has been running, without what it was paused or put off.
    pub elapsed_s: u64,
    /// When it began, in seconds since 1970 by the clock of the system; absent before.
    #[serde(default)]
    pub began_s: Option<u64>,
    /// When it ended, in the same way; absent before.
    #[serde(default)]
    pub ended_s: Option<u64>,
    /// How long it may still take; absent when that cannot be told.
    #[serde(default)]
    pub eta: Option<Eta>,
    /// How much of the disks' time it takes at most while clients use the pool.
    #[serde(default)]
    pub priority: Option<JobPriority>,
    /// How long one in twenty of the clients' reads and writes may take before it takes less, in milliseconds; absent for no
    /// limit.
    #[serde(default)]
    pub latency_limit_ms: Option<u64>,
    /// What came of it, when it has ended or is put off; what became of it, when it goes on behind a restart.
    #[serde(default)]
    pub result: Option<String>,
    /// What the rest of it waits for, such as an absent disk, when all that can be done now is done, or its pool is not open.
    #[serde(default)]
    pub waits_for: Option<String>,
}

impl Job {
    /// Returns what it is to do, in a word in front of its subject.
    #[must_use]
    pub fn verb(&self) -> &str {
        self.verb.as_deref().unwrap_or(self.kind.as_str())
    }

    /// How far it is in percent, as near as rows or bytes tell: rows count when they are done, bytes while they are copied, but of as
    /// many as there may be at most. Only a job that has ended well is complete, also when there was nothing to do. Absent where
    /// nothing is known.
    #[must_use]
    pub fn done_percent(&self) -> Option<u64> {
        if self.state == JobState::Done {
            return Some(100);
        }
        let part = |done: u64, of: u64| {
            let percent = (u128::from(done) * 100).checked_div(u128::from(of))?;
            Some(u64::try_from(percent).map_or(99, |percent| percent.min(99)))
        };
        let by_bytes =
            part(self.done_bytes, self.total_bytes).filter(|_| self.done_bytes <= self.total_bytes);
        part(self.rows_done, self.rows_total).max(by_bytes)
    }
}

/// Sets how a job shares the disks with clients. What is left out stays as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SetJob {
    /// How much of the disks' time it takes at most while clients use the pool.
    #[serde(default)]
    pub priority: Option<JobPriority>,
    /// How long one in twenty of the clients' reads and writes may take before it takes less, in milliseconds: 1 to 60000, or
    /// 0 for no limit.
    #[serde(default)]
    pub latency_limit_ms: Option<u64>,
    /// Only tell what would happen.
    #[serde(default)]
    pub dry_run: bool,
}

/// All jobs that run, wait, or ended lately.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Jobs {
    /// [`SCHEMA`](crate::SCHEMA).
    pub schema: u32,
    /// By number.
    pub jobs: Vec<Job>,
    /// When this was said, in seconds since 1970 by the clock of the system.
    #[serde(default)]
    pub now_s: u64,
}

/// One job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct JobDocument {
    /// [`SCHEMA`](crate::SCHEMA).
    pub schema: u32,
    /// The job.
    pub job: Job,
    /// When this was said, in seconds since 1970 by the clock of the system.
    #[serde(default)]
    pub now_s: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(state: JobState, rows: [u64; 2], bytes: [u64; 2]) -> Job {
        Job {
            id: 1,
            pool: "tank".to_owned(),
            kind: JobKind::new("drain"),
            verb: None,
            subject: String::new(),
            state,
            is_pausing: false,
            is_stopping: false,
            rows_total: rows[1],
            rows_done: rows[0],
            total_bytes: bytes[1],
            done_bytes: bytes[0],
            rate_bytes_per_s: 0,
            elapsed_s: 0,
            began_s: None,
            ended_s: None,
            eta: None,
            priority: None,
            latency_limit_ms: None,
            result: None,
            waits_for: None,
        }
    }

    #[test]
    fn the_percent_follows_what_is_ahead_and_is_whole_only_at_the_end() {
        for (state, rows, bytes, expected) in [
            (JobState::Running, [0, 11], [107, 144], Some(74)),
            (JobState::Running, [9, 11], [20, 144], Some(81)),
            (JobState::Running, [0, 11], [146, 120], Some(0)),
            (JobState::Running, [11, 11], [120, 120], Some(99)),
            (JobState::Waiting, [12, 11], [0, 0], Some(99)),
            (JobState::Running, [3, 7], [0, 0], Some(42)),
            (JobState::Waiting, [0, 0], [0, 0], None),
            (JobState::Done, [0, 0], [0, 0], Some(100)),
            (JobState::Done, [1, 4], [5, 9], Some(100)),
            (JobState::CalledOff, [1, 4], [0, u64::MAX], Some(25)),
            (JobState::Running, [u64::MAX, u64::MAX], [u64::MAX, u64::MAX], Some(99)),
        ] {
            assert_eq!(job(state, rows, bytes).done_percent(), expected, "{state:?} {rows:?} {bytes:?}");
        }
    }
}
