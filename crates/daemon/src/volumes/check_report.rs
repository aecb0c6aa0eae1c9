//! Reports of checks of volumes, in the state folder of the daemon: the findings as the API has them, and the output of the tool.
//!
//! Invariants:
//! - A report is there before its job ends, and of each volume the last [`KEPT`] are kept.
//! - The document is written after the output, under another name first: one that can be read is whole.

use std::fs;
use std::io;
use std::path::Path;

use dolmen_api::{CheckFinding, CheckKind, CheckResult, CheckSeverity, SCHEMA, VolumeCheck};
use dolmen_attach::SpaceKey;
use dolmen_volume::check_output::{CheckOutcome, CheckReport, Severity};

use crate::jobs::seconds_now;

/// Reports of one volume that are kept.
const KEPT: usize = 8;
/// Ends of the names of a document and of the output of a tool.
const DOCUMENT: &str = ".check.json";
const OUTPUT: &str = ".check.txt";

/// A check that has ended.
#[derive(Debug)]
pub(super) struct EndedCheck {
    pub(super) job: u64,
    pub(super) kind: CheckKind,
    pub(super) report: CheckReport,
    /// What the tools wrote.
    pub(super) output: String,
}

/// Returns the beginning of the names of the reports of a volume.
fn prefix_of(volume: SpaceKey) -> String {
    format!("{}-{}-", volume.pool, volume.space.0)
}

/// Keeps the report of a check.
pub(super) fn keep(folder: &Path, volume: SpaceKey, ended: EndedCheck) -> io::Result<()> {
    let prefix = prefix_of(volume);
    let name = |end: &str| folder.join(format!("{prefix}{}{end}", ended.job));
    let file = name(OUTPUT);
    fs::write(&file, ended.output)?;
    let CheckReport { outcome, findings, omitted } = ended.report;
    let document = VolumeCheck {
        schema: SCHEMA,
        job: ended.job,
        ended_s: seconds_now(),
        now_s: 0,
        kind: ended.kind,
        result: match outcome {
            CheckOutcome::Clean => CheckResult::Clean,
            CheckOutcome::Damaged => CheckResult::Damaged,
            CheckOutcome::LogNotReplayed => CheckResult::LogNotReplayed,
            CheckOutcome::Failed => CheckResult::Failed,
        },
        findings: findings.into_iter().map(shown).collect(),
        omitted: u64::try_from(omitted).unwrap_or(u64::MAX),
        file: file.display().to_string(),
    };
    let text = serde_json::to_vec(&document).map_err(io::Error::other)?;
    let new = name(".check.new");
    fs::write(&new, text)?;
    fs::rename(&new, name(DOCUMENT))?;
    let mut jobs = jobs_of(folder, &prefix)?;
    jobs.sort_unstable();
    for job in jobs.iter().rev().skip(KEPT) {
        for end in [DOCUMENT, OUTPUT] {
            // One that cannot be removed is tried again at the next check.
            let _ = fs::remove_file(folder.join(format!("{prefix}{job}{end}")));
        }
    }
    Ok(())
}

fn shown(finding: dolmen_volume::check_output::CheckFinding) -> CheckFinding {
    let severity = match finding.severity {
        Severity::Unknown => CheckSeverity::Unknown,
        Severity::Warning => CheckSeverity::Warning,
        Severity::Error => CheckSeverity::Error,
    };
    CheckFinding { severity, text: finding.text, inode: finding.inode, path: finding.path }
}

/// Returns the numbers of the jobs whose documents are there.
fn jobs_of(folder: &Path, prefix: &str) -> io::Result<Vec<u64>> {
    let mut jobs = Vec::new();
    for entry in fs::read_dir(folder)? {
        let name = entry?.file_name();
        let job = name.to_str().and_then(|name| name.strip_prefix(prefix)?.strip_suffix(DOCUMENT));
        jobs.extend(job.and_then(|job| job.parse::<u64>().ok()));
    }
    Ok(jobs)
}

/// Reads the report of the last check of a volume; none if there is none.
pub(super) fn last(folder: &Path, volume: SpaceKey) -> io::Result<Option<VolumeCheck>> {
    let prefix = prefix_of(volume);
    let jobs = match jobs_of(folder, &prefix) {
        Ok(jobs) => jobs,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let Some(job) = jobs.into_iter().max() else { return Ok(None) };
    let text = fs::read(folder.join(format!("{prefix}{job}{DOCUMENT}")))?;
    let document: VolumeCheck = serde_json::from_slice(&text).map_err(io::Error::other)?;
    Ok(Some(VolumeCheck { now_s: seconds_now(), ..document }))
}

#[cfg(test)]
mod tests {
    use dolmen_units::{PoolId, SpaceId};
    use dolmen_volume::check_output::parse;
    use dolmen_volume::file_system::FileSystem;

    use super::*;

    fn key(space: u64) -> SpaceKey {
        SpaceKey { pool: PoolId([7; 16]), space: SpaceId(space) }
    }

    /// Scenario: twenty checks of one volume and one of another whose number begins alike. The last one is shown with all of its
    /// findings, and eight are kept.
    #[test]
    fn the_last_report_is_whole_and_old_ones_go() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().to_owned();
        assert_eq!(last(&path.join("absent"), key(1)).unwrap(), None);
        assert_eq!(last(&path, key(1)).unwrap(), None);
        let check = |job: u64, lines: usize| {
            let output =
                format!("Phase 3\n{}", "disconnected inode 5, would move to lost+found\n".repeat(lines));
            let report = parse(FileSystem::Xfs, Some(1), output.as_bytes());
            EndedCheck { job, kind: CheckKind::Check, report, output }
        };
        for job in 1..=20 {
            keep(&path, key(1), check(job, 5)).unwrap();
        }
        keep(&path, key(11), check(99, 1100)).unwrap();
        let found = last(&path, key(1)).unwrap().unwrap();
        assert_eq!((found.job, found.result, found.findings.len()), (20, CheckResult::Damaged, 5));
        assert_eq!((found.findings[0].inode, found.findings[0].severity), (Some(5), CheckSeverity::Error));
        assert_eq!(fs::read_to_string(&found.file).unwrap().lines().count(), 6);
        let other = last(&path, key(11)).unwrap().unwrap();
        assert_eq!((other.job, other.findings.len(), other.omitted), (99, 1000, 100));
        assert_eq!(fs::read_dir(&path).unwrap().count(), 2 * KEPT + 2);
    }
}
