//! Reports of benchmarks in the state folder of the daemon: the document of the API, and the file that the command wrote.
//!
//! Invariants:
//! - The command writes into the folder [`NEW`]. What was left there by a daemon that ended is removed, and never listed.
//! - The document is renamed into place last: one that can be read is whole, and its file is there.
//! - The last [`KEPT`] are kept.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use dolmen_api::{BenchmarkFigures, BenchmarkReport, BenchmarkSummary, SCHEMA};

/// Reports that are kept.
const KEPT: usize = 20;
/// Folder of the benchmark under way.
const NEW: &str = "new";
/// File that the command writes there.
const FILE: &str = "report.json";
/// Bytes of that file that are read, at most.
const FILE_BYTES_MAX: u64 = 64 << 20;
/// Ends of the names of the document and of that file.
const DOCUMENT: &str = ".json";
const WHOLE: &str = ".whole.json";

/// Returns the folder of the benchmark under way.
pub(super) fn new_folder(folder: &Path) -> PathBuf {
    folder.join(NEW)
}

/// Returns the file that the command is to write.
pub(super) fn new_file(folder: &Path) -> PathBuf {
    new_folder(folder).join(FILE)
}

/// Makes the folder of a benchmark that begins, without anything of one before.
pub(super) fn begin(folder: &Path) -> io::Result<()> {
    clear(folder)?;
    fs::create_dir_all(new_folder(folder))
}

fn clear(folder: &Path) -> io::Result<()> {
    match fs::remove_dir_all(new_folder(folder)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Keeps what the command wrote as the report of a job, and returns the number of its points; none if it wrote nothing that counts.
pub(super) fn keep(folder: &Path, job: u64) -> io::Result<Option<usize>> {
    let file = new_file(folder);
    let text = match fs::metadata(&file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(error),
        Ok(status) if status.len() > FILE_BYTES_MAX => {
            return Err(io::Error::other(format!(
                "it has {} bytes; {FILE_BYTES_MAX} are read",
                status.len()
            )));
        }
        // One of a process that was killed may be empty.
        Ok(status) => Some(fs::read(&file)?).filter(|_| status.len() > 0),
    };
    let figures = text.map(|text| serde_json::from_slice::<BenchmarkFigures>(&text)).transpose();
    let figures = figures.map_err(io::Error::other)?.filter(|figures| !figures.points.is_empty());
    let Some(figures) = figures else {
        clear(folder)?;
        return Ok(None);
    };
    let points = figures.points.len();
    let whole = folder.join(format!("{job}{WHOLE}"));
    fs::rename(&file, &whole)?;
    let report = BenchmarkReport { schema: SCHEMA, job, file: whole.display().to_string(), figures };
    let document = new_folder(folder).join("document");
    fs::write(&document, serde_json::to_vec(&report).map_err(io::Error::other)?)?;
    fs::rename(&document, folder.join(format!("{job}{DOCUMENT}")))?;
    let mut jobs = jobs_of(folder)?;
    jobs.sort_unstable();
    for old in jobs.iter().rev().skip(KEPT) {
        for end in [DOCUMENT, WHOLE] {
            // One that cannot be removed is tried again with the next report.
            let _ = fs::remove_file(folder.join(format!("{old}{end}")));
        }
    }
    clear(folder)?;
    Ok(Some(points))
}

/// Returns the jobs whose reports are there.
fn jobs_of(folder: &Path) -> io::Result<Vec<u64>> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut jobs = Vec::new();
    for entry in entries {
        let name = entry?.file_name();
        let job = name.to_str().and_then(|name| name.strip_suffix(DOCUMENT));
        jobs.extend(job.and_then(|job| job.parse::<u64>().ok()));
    }
    Ok(jobs)
}

/// Reads the report of a job; none if there is none.
pub(super) fn read(folder: &Path, job: u64) -> io::Result<Option<BenchmarkReport>> {
    match fs::read(folder.join(format!("{job}{DOCUMENT}"))) {
        Ok(text) => Ok(Some(serde_json::from_slice(&text).map_err(io::Error::other)?)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Lists the reports, the newest first. One that this version cannot read is left out, and named in the log.
pub(super) fn list(folder: &Path) -> io::Result<Vec<BenchmarkSummary>> {
    let mut jobs = jobs_of(folder)?;
    jobs.sort_unstable_by_key(|job| std::cmp::Reverse(*job));
    let mut list = Vec::new();
    for job in jobs {
        match read(folder, job) {
            Ok(report) => list.extend(report.map(|report| summary(&report))),
            Err(error) => tracing::warn!(job, %error, "the report of a benchmark cannot be read"),
        }
    }
    Ok(list)
}

fn summary(report: &BenchmarkReport) -> BenchmarkSummary {
    let figures = &report.figures;
    BenchmarkSummary {
        job: report.job,
        spaces: figures.targets.iter().map(|target| target.name.clone()).collect(),
        profiles: figures.profiles.iter().map(|profile| profile.name.clone()).collect(),
        started_s: figures.started_s,
        points: u64::try_from(figures.points.len()).unwrap_or(u64::MAX),
        is_complete: figures.is_complete,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A document as the command writes it, with fields that the API leaves out.
    const WRITTEN: &str = r#"{"schema":1,"is_complete":false,"ending":{"how":"interrupted"},"started_s":7,"command":"dolmen bench","fio_version":"fio-3.33",
        "runtime_s":1,"ramp_s":1,"rounds":1,"warnings":["w"],"idle":[],"targets":[{"name":"tank/m","what":"an NBD export","access":"nbd",
        "engine":"nbd","flush":"","working_set_bytes":64,"outgrows_caches":true,"notes":[]}],"profiles":[{"name":"streaming","title":"Streaming",
        "summary":"s","block_bytes":65536,"is_random":false,"reads_percent":100,"workers":1}],"points":[{"profile":"streaming","target":"tank/m",
        "flush":"none","outstanding":8,"file_bytes":null,"rounds":1,"ios_per_s":{"median":5.5,"least":5.5,"most":5.5,"spread_percent":null},
        "bytes_per_s":{"median":9.0,"least":9.0,"most":9.0,"spread_percent":null},"mean_ns":1.0,"p50_ns":1.0,"p95_ns":1.0,"p99_ns":2.0,
        "p999_ns":3.0,"writes_per_flush":null,"flush_p50_ns":null,"is_noisy":false}],"knees":[],"comparisons":[],"runs":[{"round":1}]}"#;

    fn write(folder: &Path, text: &str) {
        begin(folder).unwrap();
        fs::write(new_file(folder), text).unwrap();
    }

    /// Scenario: twenty-five reports; one cut short, one empty, one without points, and none. Twenty are kept, the newest first, and what
    /// is not whole is never listed, in a later daemon either.
    #[test]
    fn whole_reports_are_listed_and_old_ones_go() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        assert_eq!(list(&folder.join("absent")).unwrap(), []);
        for job in 1..=25 {
            write(folder, WRITTEN);
            assert_eq!(keep(folder, job).unwrap(), Some(1));
        }
        let found = list(folder).unwrap();
        assert_eq!((found.len(), found[0].job, found[19].job, found[0].is_complete), (20, 25, 6, false));
        assert_eq!((found[0].spaces.as_slice(), found[0].points), (&["tank/m".to_owned()][..], 1));
        let report = read(folder, 25).unwrap().unwrap();
        assert_eq!(fs::read_to_string(&report.file).unwrap(), WRITTEN);
        assert_eq!(read(folder, 5).unwrap(), None);
        write(folder, &WRITTEN[..WRITTEN.len() - 9]);
        keep(folder, 26).unwrap_err();
        for text in ["", &WRITTEN.replace("is_noisy\":false}]", "is_noisy\":false}],\"points\":[]")] {
            write(folder, text);
            let kept = keep(folder, 27);
            assert!(!matches!(kept, Ok(Some(_))), "{kept:?}");
        }
        begin(folder).unwrap();
        assert_eq!(keep(folder, 28).unwrap(), None);
        assert_eq!(list(folder).unwrap(), found);
        assert_eq!(fs::read_dir(folder).unwrap().count(), 2 * KEPT);
    }
}
