//! The table of jobs: one line for each kind.

use dolmen_api::JobKind;

use crate::disks::{DrainJob, EmptyJob, ReplaceJob};
use crate::job::Job;
use crate::jobs::Kind;
use crate::pools::{RebalanceJob, ResyncJob};
use crate::spaces::{ConvertJob, PurgeJob, ScrubJob, WriteCacheJob};

/// All kinds of jobs.
static JOBS: &[&dyn Job] = &[
    &ResyncJob,
    &ReplaceJob,
    &DrainJob,
    &ScrubJob,
    &WriteCacheJob,
    &RebalanceJob,
    &ConvertJob,
    &PurgeJob,
    &EmptyJob,
    #[cfg(test)]
    &crate::test_job::TestJob,
];

/// Returns the job that the API and the record call so.
pub(crate) fn job_of(kind: &JobKind) -> Option<&'static dyn Job> {
    JOBS.iter().copied().find(|job| job.word() == kind.as_str())
}

/// Returns the kind that the API and the record call so.
pub(crate) fn kind_of(kind: &JobKind) -> Option<&'static dyn Kind> {
    job_of(kind).map(|job| -> &'static dyn Kind { job })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Scenario: all kinds, with the one of this test program. Words are those of the API and of records, and tell the kinds
    /// apart.
    #[test]
    fn each_kind_of_job_is_found_by_its_own_word() {
        let words: Vec<&str> = JOBS.iter().map(|job| job.word()).collect();
        assert_eq!(
            words,
            [
                "resync",
                "replace",
                "drain",
                "scrub",
                "write_cache",
                "rebalance",
                "convert",
                "purge",
                "empty",
                "test_only"
            ]
        );
        assert_eq!(words.iter().collect::<BTreeSet<_>>().len(), words.len());
        for job in JOBS {
            assert_eq!(job_of(&JobKind::new(job.word())).map(|found| found.word()), Some(job.word()));
        }
        assert!(job_of(&JobKind::new("defragment")).is_none());
    }
}
