//! Jobs. Only those that have not ended have series of their own, because numbers of jobs are never given twice.

use std::collections::BTreeMap;

use dolmen_api::{Job, JobState, Jobs};

use crate::family::Family;
use crate::text::{Number, Text};

const STATES: [JobState; 6] = [
    JobState::Waiting,
    JobState::Running,
    JobState::Paused,
    JobState::Done,
    JobState::CalledOff,
    JobState::Failed,
];

const fn state_word(state: JobState) -> &'static str {
    match state {
        JobState::Waiting => "waiting",
        JobState::Running => "running",
        JobState::Paused => "paused",
        JobState::Done => "done",
        JobState::CalledOff => "called_off",
        JobState::Failed => "failed",
    }
}

const fn has_ended(state: JobState) -> bool {
    match state {
        JobState::Waiting | JobState::Running | JobState::Paused => false,
        JobState::Done | JobState::CalledOff | JobState::Failed => true,
    }
}

pub(crate) fn put(text: &mut Text, jobs: &Jobs) {
    let mut of_pools: BTreeMap<&str, Vec<&Job>> = BTreeMap::new();
    for job in &jobs.jobs {
        of_pools.entry(&job.pool).or_default().push(job);
    }
    for (pool, of_pool) in of_pools {
        for state in STATES {
            let count = of_pool.iter().filter(|job| job.state == state).count();
            text.put(Family::Jobs, &[pool, state_word(state)], count);
        }
    }
    jobs.jobs.iter().filter(|job| !has_ended(job.state)).for_each(|job| put_job(text, job));
}

fn put_job(text: &mut Text, job: &Job) {
    let number = job.id.to_string();
    let at = [job.pool.as_str(), number.as_str(), job.kind.as_str()];
    let progress = job.done_percent().map(|percent| Number::Ratio { part: percent, of: 100 });
    text.put_some(Family::JobProgress, &at, progress);
    text.put(Family::JobRunning, &at, job.state == JobState::Running);
    text.put(Family::JobDoneBytes, &at, job.done_bytes);
    text.put(Family::JobDoneRows, &at, job.rows_done);
    text.put(Family::JobElapsed, &at, job.elapsed_s);
    if let Some(eta) = job.eta {
        let [pool, number, kind] = at;
        text.put(Family::JobRemaining, &[pool, number, kind, "earliest"], eta.earliest_s);
        text.put(Family::JobRemaining, &[pool, number, kind, "latest"], eta.latest_s);
    }
}
