//! How hard jobs work while clients do: by what they do, unless somebody has said otherwise (docs/design/0014, *Defaults*).

use std::time::Duration;

use dolmen_api::{ErrorBody, ErrorCode, JobPriority, SetJob};
use dolmen_space::{JobShare, Priority};

use crate::answer::Answer;

/// The longest latency limit; the shortest is a millisecond.
const LIMIT_MS_MAX: u64 = 60_000;
/// The latency limit of what can wait.
const USUAL_LIMIT: Duration = Duration::from_millis(50);

/// Share of what restores redundancy or room, which is to end in a time that has a bound.
pub(crate) const NORMAL: JobShare = JobShare { priority: Priority::Normal, latency_limit: None };
/// Share of what can wait.
pub(crate) const PATIENT: JobShare = JobShare { priority: Priority::Low, latency_limit: Some(USUAL_LIMIT) };

/// The effort that is on record, as far as it can be one; the rest is as usual.
pub(crate) fn recorded(usual: JobShare, priority: Option<JobPriority>, limit_ms: Option<u64>) -> JobShare {
    JobShare {
        priority: priority.map_or(usual.priority, priority_for),
        latency_limit: limit_ms.and_then(limit_of).unwrap_or(usual.latency_limit),
    }
}

/// The effort that a request asks for, of a job that has one.
pub(crate) fn asked_for(request: &SetJob, now: JobShare) -> Answer<JobShare> {
    let refused = |message: String| {
        let error = ErrorBody::new(ErrorCode::BadRequest, format!("{message}; nothing was changed"));
        Err(error.hint("give a priority, low, normal or high, or a latency limit from 1ms to 60s, or none"))
    };
    if request.priority.is_none() && request.latency_limit_ms.is_none() {
        return refused("neither a priority nor a latency limit was given".to_owned());
    }
    let latency_limit = match request.latency_limit_ms.map(|ms| (ms, limit_of(ms))) {
        None => now.latency_limit,
        Some((_, Some(limit))) => limit,
        Some((ms, None)) => {
            return refused(format!("a latency limit of {ms} ms is more than {LIMIT_MS_MAX} ms"));
        }
    };
    Ok(JobShare { priority: request.priority.map_or(now.priority, priority_for), latency_limit })
}

/// A latency limit from what documents say, where 0 is none; nothing for what is too long.
fn limit_of(ms: u64) -> Option<Option<Duration>> {
    match ms {
        0 => Some(None),
        1..=LIMIT_MS_MAX => Some(Some(Duration::from_millis(ms))),
        _ => None,
    }
}

fn priority_for(priority: JobPriority) -> Priority {
    match priority {
        JobPriority::Low => Priority::Low,
        JobPriority::Normal => Priority::Normal,
        JobPriority::High => Priority::High,
    }
}

/// The priority, as documents say it.
pub(crate) fn priority_of(job_share: JobShare) -> JobPriority {
    match job_share.priority {
        Priority::Low => JobPriority::Low,
        Priority::Normal => JobPriority::Normal,
        Priority::High => JobPriority::High,
    }
}

/// The latency limit in milliseconds, if there is one.
pub(crate) fn limit_ms_of(job_share: JobShare) -> Option<u64> {
    job_share.latency_limit.map(|limit| u64::try_from(limit.as_millis()).unwrap_or(u64::MAX))
}

fn priority_word(job_share: JobShare) -> &'static str {
    match job_share.priority {
        Priority::Low => "low",
        Priority::Normal => "normal",
        Priority::High => "high",
    }
}

/// In words.
pub(crate) fn words_of(job_share: JobShare) -> String {
    let limit = limit_ms_of(job_share)
        .map_or("no latency limit".to_owned(), |ms| format!("a latency limit of {ms} ms"));
    format!("priority {} and {limit}", priority_word(job_share))
}

/// The command that gives a job this effort.
pub(crate) fn command_for(id: u64, job_share: JobShare) -> String {
    let limit = limit_ms_of(job_share).map_or("none".to_owned(), |ms| format!("{ms}ms"));
    format!("dolmen job set {id} --priority {} --latency-limit {limit}", priority_word(job_share))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HIGH: JobShare = JobShare { priority: Priority::High, latency_limit: None };

    fn asked(priority: Option<JobPriority>, latency_limit_ms: Option<u64>) -> Answer<JobShare> {
        asked_for(&SetJob { priority, latency_limit_ms, dry_run: false }, HIGH)
    }

    #[test]
    fn what_is_left_out_stays_and_what_cannot_be_is_refused() {
        let two = Some(Duration::from_secs(2));
        assert_eq!(
            asked(Some(JobPriority::Low), None),
            Ok(JobShare { priority: Priority::Low, latency_limit: None })
        );
        assert_eq!(asked(None, Some(2000)), Ok(JobShare { latency_limit: two, ..HIGH }));
        assert_eq!(
            asked_for(
                &SetJob { priority: None, latency_limit_ms: Some(0), dry_run: false },
                JobShare { latency_limit: two, ..HIGH }
            ),
            Ok(HIGH)
        );
        for (limit, reported) in
            [(None, "neither a priority nor"), (Some(60_001), "60001 ms is more than 60000 ms")]
        {
            assert!(asked(None, limit).unwrap_err().message.contains(reported), "{limit:?}");
        }
    }

    #[test]
    fn what_is_on_record_and_cannot_be_is_as_usual() {
        let usual = PATIENT;
        assert_eq!(recorded(usual, None, Some(u64::MAX)), usual);
        assert_eq!(
            recorded(usual, Some(JobPriority::High), None),
            JobShare { priority: Priority::High, ..usual }
        );
        assert_eq!(recorded(usual, None, Some(0)), JobShare { latency_limit: None, ..usual });
    }
}
