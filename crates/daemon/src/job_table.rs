//! The table of jobs: one line for each kind.

use std::rc::Rc;

use dolmen_api::JobKind;

use crate::benchmarks::{BenchJob, Benchmarks};
use crate::disks::{DrainJob, Drains, EmptyJob, Rebuilds, ReplaceJob, Replacements};
use crate::job::{Job, JobWorker};
use crate::jobs::Kind;
use crate::pools::{RebalanceJob, Rebalances, ResyncJob, Resyncs};
use crate::spaces::{
    Conversions, ConvertJob, PurgeJob, Purges, ScrubJob, Scrubs, WriteCacheJob, WriteCaches,
};

use crate::volumes::{
    COMPACT, DEDUP, Dedups, ESTIMATE, UNDO, VolumeCheckJob, VolumeChecks, VolumeCreateJob, VolumeGrowJob,
    VolumeGrowth, Volumes,
};

#[cfg(test)]
use crate::pool_jobs::PoolJobs;
#[cfg(test)]
use crate::test_job::{TestJob, TestJobs};

/// Services that work on jobs.
pub(crate) struct JobServices {
    pub(crate) resyncs: Rc<Resyncs>,
    pub(crate) replacements: Rc<Replacements>,
    pub(crate) drains: Rc<Drains>,
    pub(crate) scrubs: Rc<Scrubs>,
    pub(crate) write_caches: Rc<WriteCaches>,
    pub(crate) rebalances: Rc<Rebalances>,
    pub(crate) conversions: Rc<Conversions>,
    pub(crate) purges: Rc<Purges>,
    pub(crate) rebuilds: Rc<Rebuilds>,
    pub(crate) volumes: Rc<Volumes>,
    pub(crate) volume_checks: Rc<VolumeChecks>,
    pub(crate) volume_growth: Rc<VolumeGrowth>,
    pub(crate) dedups: Rc<Dedups>,
    pub(crate) benchmarks: Rc<Benchmarks>,
    #[cfg(test)]
    pub(crate) pool_jobs: Rc<PoolJobs>,
}

/// A kind of job, and how its worker is made.
struct Line {
    job: &'static dyn Job,
    worker: fn(&JobServices) -> Rc<dyn JobWorker>,
}

/// All kinds of jobs.
#[rustfmt::skip] // one line for each kind
static JOBS: &[Line] = &[
    Line { job: &ResyncJob, worker: |services| services.resyncs.clone() },
    Line { job: &ReplaceJob, worker: |services| services.replacements.clone() },
    Line { job: &DrainJob, worker: |services| services.drains.clone() },
    Line { job: &ScrubJob, worker: |services| services.scrubs.clone() },
    Line { job: &WriteCacheJob, worker: |services| services.write_caches.clone() },
    Line { job: &RebalanceJob, worker: |services| services.rebalances.clone() },
    Line { job: &ConvertJob, worker: |services| services.conversions.clone() },
    Line { job: &PurgeJob, worker: |services| services.purges.clone() },
    Line { job: &EmptyJob, worker: |services| services.rebuilds.clone() },
    Line { job: &VolumeCreateJob, worker: |services| services.volumes.clone() },
    Line { job: &VolumeCheckJob, worker: |services| services.volume_checks.clone() },
    Line { job: &VolumeGrowJob, worker: |services| services.volume_growth.clone() },
    Line { job: &DEDUP, worker: |services| services.dedups.clone() },
    Line { job: &COMPACT, worker: |services| services.dedups.clone() },
    Line { job: &UNDO, worker: |services| services.dedups.clone() },
    Line { job: &ESTIMATE, worker: |services| services.dedups.clone() },
    Line { job: &BenchJob, worker: |services| services.benchmarks.clone() },
    #[cfg(test)]
    Line { job: &TestJob, worker: |services| Rc::new(TestJobs { pool_jobs: services.pool_jobs.clone() }) },
];

/// Workers of all kinds of jobs.
pub(crate) struct JobWorkers {
    workers: Vec<(&'static dyn Job, Rc<dyn JobWorker>)>,
}

impl JobWorkers {
    pub(crate) fn new(services: &JobServices) -> Self {
        Self { workers: JOBS.iter().map(|line| (line.job, (line.worker)(services))).collect() }
    }

    /// Returns the worker of a kind.
    pub(crate) fn of(&self, kind: &dyn Kind) -> Option<Rc<dyn JobWorker>> {
        let found = self.workers.iter().find(|(job, _)| job.word() == kind.word());
        found.map(|(_, worker)| Rc::clone(worker))
    }
}

/// Returns the job that the API and the record call so.
pub(crate) fn job_of(kind: &JobKind) -> Option<&'static dyn Job> {
    JOBS.iter().map(|line| line.job).find(|job| job.word() == kind.as_str())
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
        let words: Vec<&str> = JOBS.iter().map(|line| line.job.word()).collect();
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
                "volume_create",
                "volume_check",
                "volume_grow",
                "dedup",
                "compact",
                "dedup_undo",
                "estimate",
                "bench",
                "test_only"
            ]
        );
        assert_eq!(words.iter().collect::<BTreeSet<_>>().len(), words.len());
        for job in JOBS.iter().map(|line| line.job) {
            assert_eq!(job_of(&JobKind::new(job.word())).map(|found| found.word()), Some(job.word()));
        }
        assert!(job_of(&JobKind::new("defragment")).is_none());
    }
}
