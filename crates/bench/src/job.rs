//! What is asked of `fio`, as the text of a job file (fio's HOWTO, "Job file format").
//!
//! Everything is read again in each run: percentiles are those of the whole time from the wish for an I/O to its end
//! (`lat`), so that the number of I/Os under way is their rate times their mean latency. One process with threads, so
//! that one signal ends all of it. The same seed for each target of a round gives each the same addresses.

use std::fmt::Write;

use dolmen_units::Bytes;

use crate::plan::{Flush, Plan, Settings, Step};
use crate::profile::{Load, Pattern, Profile};
use crate::target::{Path, Target, TargetPath};

/// The name of the log of bandwidths, in the folder that `fio` runs in.
pub(crate) const BANDWIDTH_LOG: &str = "step";
/// Milliseconds of one point over time: where a load lasts long, where it does not, and where a file may be done in a
/// second.
const LONG_INTERVAL_MS: u32 = 1000;
const SHORT_INTERVAL_MS: u32 = 250;
const FILE_INTERVAL_MS: u32 = 100;
/// A load that lasts longer does so long, in seconds.
const LONG_S: u32 = 60;
/// The I/O with which targets are filled, and how many of them are under way.
const FILL_BLOCK: Bytes = Bytes::mib(1);
const FILL_OUTSTANDING: u32 = 8;
/// Percentiles of latency that are asked for.
const PERCENTILES: &str = "50:90:95:99:99.9:99.99";

/// What carries I/Os to devices and files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Engine {
    /// The kernel's older asynchronous interface.
    Libaio,
    /// Its newer one.
    IoUring,
}

impl Engine {
    /// As `fio` calls it.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Libaio => "libaio",
            Self::IoUring => "io_uring",
        }
    }
}

/// A target that `fio` cannot address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum JobError {
    /// Its path has a character with a meaning in job files. Links are followed before, so that one does not help.
    #[error(
        "{path:?}, where {target} is, has {found:?} in it, which fio would not take as it is; rename what has it in its name, or bind-mount its folder at another path"
    )]
    Character {
        /// The target.
        target: String,
        /// Where it is.
        path: String,
        /// The character.
        found: char,
    },
    /// Its address has one.
    #[error(
        "the address of {target} has {found:?} in it, which fio would not take as it is; write it as {encoded}"
    )]
    Address {
        /// The target.
        target: String,
        /// The character.
        found: char,
        /// The same for addresses (RFC 3986, section 2.1).
        encoded: String,
    },
}

/// A part of a target that is to be written once, before anything is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fill {
    /// Where it begins.
    pub at: Bytes,
    /// How long it is.
    pub length: Bytes,
}

/// The job file of a step.
///
/// # Errors
/// When `fio` cannot address the target.
pub fn step_job(plan: &Plan, step: &Step) -> Result<String, JobError> {
    let mut text = String::new();
    let (Some(target), Some(profile)) = (plan.targets.get(step.target), plan.profiles.get(step.profile))
    else {
        unreachable!("steps are made of the targets and profiles of their plan");
    };
    common(&mut text, target, &plan.settings)?;
    put(&mut text, "unified_rw_reporting", "both");
    put(&mut text, "lat_percentiles", 1);
    put(&mut text, "clat_percentiles", 0);
    put(&mut text, "percentile_list", PERCENTILES);
    // fio up to 3.33 takes addresses from a seed of its own, unless an option forbids it (axboe/fio, issue 1502).
    put(&mut text, "randrepeat", 0);
    put(&mut text, "randseed", seed_of(step));
    put(&mut text, "norandommap", 1);
    put(&mut text, "bs", profile.block.0);
    put(&mut text, "rw", word_of(profile));
    if !matches!(profile.reads_percent, 0 | 100) {
        put(&mut text, "rwmixread", profile.reads_percent);
    }
    put(&mut text, "iodepth", step.load.outstanding);
    match step.flush {
        Flush::Never => {}
        Flush::Every(writes) => put(&mut text, "fsync", writes),
        Flush::End => put(&mut text, "end_fsync", 1),
    }
    put(&mut text, "write_bw_log", BANDWIDTH_LOG);
    put(&mut text, "per_job_logs", 0);
    put(&mut text, "log_avg_msec", interval_ms(&plan.settings, &step.load));
    match step.load.file {
        Some(size) => put(&mut text, "size", size.align_down(profile.block.0).0),
        None => lasting(&mut text, plan, target, profile),
    }
    Ok(text)
}

/// The job file that writes a part of a target once.
///
/// # Errors
/// When `fio` cannot address the target.
pub fn fill_job(plan: &Plan, target: &Target, fill: Fill) -> Result<String, JobError> {
    let mut text = String::new();
    common(&mut text, target, &plan.settings)?;
    put(&mut text, "rw", "write");
    put(&mut text, "bs", FILL_BLOCK.0.min(fill.length.0));
    put(&mut text, "iodepth", FILL_OUTSTANDING);
    put(&mut text, "offset", fill.at.0);
    put(&mut text, "size", fill.length.0);
    put(&mut text, "end_fsync", 1);
    Ok(text)
}

/// Milliseconds between two points over time.
#[must_use]
pub(crate) fn interval_ms(settings: &Settings, load: &Load) -> u32 {
    match load.file {
        Some(_) => FILE_INTERVAL_MS,
        None if settings.runtime_s <= LONG_S => SHORT_INTERVAL_MS,
        None => LONG_INTERVAL_MS,
    }
}

fn put(text: &mut String, name: &str, value: impl std::fmt::Display) {
    // Writing to a string cannot fail.
    let _ = writeln!(text, "{name}={value}");
}

fn common(text: &mut String, target: &Target, settings: &Settings) -> Result<(), JobError> {
    text.push_str("[step]\n");
    put(text, "ioengine", settings.engine_for(target.access));
    match &target.path {
        TargetPath::File { path } => {
            put(text, "filename", escaped(path, &target.name)?);
            put(text, "direct", u8::from(target.access == Path::Direct));
            // What is there is used; nothing is laid out, lengthened or cut off behind anybody's back.
            put(text, "allow_file_create", 0);
        }
        TargetPath::Nbd { uri } => put(text, "uri", plain(uri, &target.name)?),
    }
    put(text, "thread", 1);
    put(text, "group_reporting", 1);
    Ok(())
}

fn lasting(text: &mut String, plan: &Plan, target: &Target, profile: &Profile) {
    let part = Bytes(target.working_set.0 / u64::from(profile.workers)).align_down(profile.block.0);
    put(text, "size", part.0);
    if profile.workers > 1 {
        put(text, "numjobs", profile.workers);
        put(text, "offset_increment", part.0);
    }
    put(text, "time_based", 1);
    put(text, "runtime", format_args!("{}s", plan.settings.runtime_s));
    put(text, "ramp_time", format_args!("{}s", plan.settings.ramp_s));
}

fn word_of(profile: &Profile) -> &'static str {
    match (profile.pattern, profile.reads_percent) {
        (Pattern::Random, 100) => "randread",
        (Pattern::Random, 0) => "randwrite",
        (Pattern::Random, _) => "randrw",
        (Pattern::Sequential, 100) => "read",
        (Pattern::Sequential, 0) => "write",
        (Pattern::Sequential, _) => "rw",
    }
}

/// The same for all targets of a round; another one for each round, profile, load and way of flushing, so that no load
/// meets what the one before it left in a cache.
fn seed_of(step: &Step) -> u64 {
    let flush = match step.flush {
        Flush::Never => 0,
        Flush::Every(writes) => u64::from(writes),
        Flush::End => u64::MAX,
    };
    let file = step.load.file.map_or(0, |size| size.0);
    let parts = [u64::from(step.round), step.profile as u64, u64::from(step.load.outstanding), file, flush];
    let seed = parts.into_iter().fold(0, |seed, part| mixed(seed ^ part));
    // fio reads a signed number, and 0 is not one of its seeds.
    (seed >> 1).max(1)
}

/// One step of SplitMix64 (G. L. Steele, D. Lea, C. H. Flood, "Fast splittable pseudorandom number generators", OOPSLA
/// 2014): each bit of the outcome depends on each bit that is put in.
fn mixed(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

/// A path for a job file: `:` would begin another file, and what else has a meaning there is refused.
fn escaped(path: &str, target: &str) -> Result<String, JobError> {
    match character_with_meaning(path) {
        Some(found) => Err(JobError::Character { target: target.to_owned(), path: path.to_owned(), found }),
        None => Ok(path.replace(':', "\\:")),
    }
}

/// An address for a job file.
fn plain<'a>(uri: &'a str, target: &str) -> Result<&'a str, JobError> {
    match character_with_meaning(uri) {
        Some(found) => {
            let encoded = found.to_string().bytes().map(|byte| format!("%{byte:02X}")).collect();
            Err(JobError::Address { target: target.to_owned(), found, encoded })
        }
        None => Ok(uri),
    }
}

fn character_with_meaning(text: &str) -> Option<char> {
    let has_meaning =
        |c: char| c.is_control() || c.is_whitespace() || matches!(c, '$' | '\\' | '"' | '#' | ';');
    text.chars().find(|c| has_meaning(*c))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::tests::{plan, target};

    #[test]
    fn a_step_asks_for_its_load_and_nothing_else() {
        let mut plan = plan(&["database", "fleet-4k-70", "file-write"]);
        plan.targets[0] = target("dev/disk/by-path/pci-0000:00", Path::Direct);
        let find = |profile: usize, target: usize, flush: Flush| {
            let steps = plan.steps();
            let wanted = |step: &&Step| (step.profile, step.target, step.flush) == (profile, target, flush);
            *steps.iter().find(wanted).unwrap()
        };
        let database = step_job(&plan, &find(0, 0, Flush::Every(32))).unwrap();
        for line in [
            "ioengine=libaio",
            "filename=/dev/disk/by-path/pci-0000\\:00",
            "direct=1",
            "rw=randrw",
            "rwmixread=67",
            "bs=8192",
            "iodepth=1",
            "fsync=32",
            "size=4294967296",
            "runtime=10s",
            "ramp_time=1s",
            "log_avg_msec=250",
        ] {
            assert!(database.lines().any(|found| found == line), "{line}:\n{database}");
        }
        let fleet = step_job(&plan, &find(1, 1, Flush::Never)).unwrap();
        for line in
            ["ioengine=nbd", "numjobs=4", "size=1073741824", "offset_increment=1073741824", "iodepth=40"]
        {
            assert!(fleet.lines().any(|found| found == line), "{line}:\n{fleet}");
        }
        assert!(!fleet.contains("fsync") && !fleet.contains("filename"));
        let file = step_job(&plan, &find(2, 0, Flush::End)).unwrap();
        assert!(file.contains("end_fsync=1\n") && file.contains("size=134217728\n"));
        assert!(!file.contains("time_based") && file.contains("log_avg_msec=100\n"));
    }

    /// Back to back, targets get the same addresses; another round, load, profile or way of flushing gets others.
    #[test]
    fn seeds_belong_to_rounds_not_to_targets() {
        let plan = plan(&["restore", "database", "files"]);
        let mut seeds: Vec<(Step, u64)> = Vec::new();
        for step in plan.steps() {
            let job = step_job(&plan, &step).unwrap();
            assert!(job.contains("\nrandrepeat=0\n"), "without it fio heeds no seed");
            let line = job.lines().find_map(|line| line.strip_prefix("randseed=")).unwrap();
            let seed = line.parse().unwrap();
            assert!((1..=i64::MAX as u64).contains(&seed));
            for (other, found) in &seeds {
                let is_same = Step { target: step.target, ..*other } == step;
                assert_eq!(*found == seed, is_same, "{other:?} {step:?}");
            }
            seeds.push((step, seed));
        }
    }

    /// A path that fio would read as something else never reaches it.
    #[test]
    fn paths_that_fio_would_expand_are_refused() {
        let mut plan = plan(&["restore"]);
        for path in ["a b", "$HOME", "a\\b", "a\nrw=write"] {
            plan.targets[0] = target(path, Path::Direct);
            let error = step_job(&plan, &plan.steps()[0]).unwrap_err();
            assert!(error.to_string().contains("rename what has it in its name"), "{error}");
        }
        plan.targets[0] = target("an export", Path::Nbd);
        let error = step_job(&plan, &plan.steps()[0]).unwrap_err();
        assert!(
            error.to_string().ends_with("has ' ' in it, which fio would not take as it is; write it as %20"),
            "{error}"
        );
    }
}
