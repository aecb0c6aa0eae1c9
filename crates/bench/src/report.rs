//! The document of a run: what was measured, summed up, and what may be concluded from it.

mod warnings;

use dolmen_api::SCHEMA;
use serde::Serialize;

use crate::fio::Measured;
use crate::plan::{Flush, Plan, Step};
use crate::profile::{Load, Pattern, Profile};
use crate::stats::{Ratio, Summary, Verdict, knee};
use crate::target::Path;

/// A generator that flushes more often than asked by more than this factor is named, and targets whose flushes differ
/// by more are not compared.
const FLUSHES_FACTOR: f64 = 1.25;

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "how")]
pub enum Ending {
    /// Everything was measured.
    Complete,
    /// A signal stopped it.
    Interrupted,
    /// It could not go on.
    Failed {
        /// Why.
        why: String,
    },
}

/// The machine that made the load.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Machine {
    /// Its processors.
    pub processors: u64,
    /// Its memory.
    pub memory_bytes: u64,
    /// Its kernel.
    pub kernel: String,
}

/// What others used while nothing was measured.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Idle {
    /// Before which round, from 1.
    pub round: u32,
    /// Of all processors.
    pub others_percent: Option<f64>,
}

/// A target.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TargetDocument {
    /// As it was named.
    pub name: String,
    /// What it is.
    pub what: String,
    /// How I/Os reach it.
    pub access: Path,
    /// With which engine of `fio`.
    pub engine: &'static str,
    /// What a flush is there.
    pub flush: &'static str,
    /// The part that is used.
    pub working_set_bytes: u64,
    /// Whether each known cache is small against that.
    pub outgrows_caches: bool,
    /// What is to be said of caches.
    pub notes: Vec<String>,
}

/// A profile.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ProfileDocument {
    /// Its name.
    pub name: String,
    /// What it stands for.
    pub title: String,
    /// What is done.
    pub summary: String,
    /// The size of an I/O.
    pub block_bytes: u64,
    /// Whether I/Os go anywhere.
    pub is_random: bool,
    /// The share of reads.
    pub reads_percent: u8,
    /// Who makes I/Os at the same time.
    pub workers: u32,
}

/// What a figure belongs to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Place {
    /// The profile.
    pub profile: String,
    /// The target.
    pub target: String,
    /// The flushes.
    pub flush: Flush,
    /// I/Os under way, of all workers.
    pub outstanding: u64,
    /// The length of the file, where one was read or written once.
    pub file_bytes: Option<u64>,
}

/// One measurement.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Run {
    /// Of what.
    #[serde(flatten)]
    pub place: Place,
    /// In which round, from 1.
    pub round: u32,
    /// The figures.
    #[serde(flatten)]
    pub measured: Measured,
}

/// All rounds of one load on one target. Latencies are medians of the rounds.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Point {
    /// Of what.
    #[serde(flatten)]
    pub place: Place,
    /// How many rounds there are.
    pub rounds: usize,
    /// I/Os in a second.
    pub ios_per_s: Summary,
    /// Bytes in a second.
    pub bytes_per_s: Summary,
    /// The mean latency.
    pub mean_ns: f64,
    /// Percentiles of latency.
    pub p50_ns: f64,
    /// 95 %.
    pub p95_ns: f64,
    /// 99 %.
    pub p99_ns: f64,
    /// 99.9 %.
    pub p999_ns: f64,
    /// The median of writes for each flush that there really were.
    pub writes_per_flush: Option<f64>,
    /// How long half of all flushes took at most.
    pub flush_p50_ns: Option<f64>,
    /// Whether rounds lie too far apart.
    pub is_noisy: bool,
}

/// Where a curve bends.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Knee {
    /// Of which profile.
    pub profile: String,
    /// On which target.
    pub target: String,
    /// With which flushes.
    pub flush: Flush,
    /// At so many outstanding I/Os; nothing when the curve was not followed that far.
    pub outstanding: Option<u64>,
}

/// A target against the first one, under one load.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Comparison {
    /// Of what.
    #[serde(flatten)]
    pub place: Place,
    /// The first target.
    pub against: String,
    /// Rates of this target divided by those of the first, round by round.
    pub ratio: Ratio,
}

/// Everything.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    /// The schema of all documents.
    pub schema: u32,
    /// Whether everything was measured.
    pub is_complete: bool,
    /// How it ended.
    pub ending: Ending,
    /// When it began, in seconds from 1970 on.
    pub started_s: u64,
    /// The command that asked for it.
    pub command: String,
    /// Where.
    pub machine: Machine,
    /// With which `fio`.
    pub fio_version: Option<String>,
    /// How long each load was measured.
    pub runtime_s: u32,
    /// How long it ran before that.
    pub ramp_s: u32,
    /// How often.
    pub rounds: u32,
    /// What is to be known before anything is concluded.
    pub warnings: Vec<String>,
    /// What others used of the machine.
    pub idle: Vec<Idle>,
    /// The targets.
    pub targets: Vec<TargetDocument>,
    /// The profiles.
    pub profiles: Vec<ProfileDocument>,
    /// Summed up.
    pub points: Vec<Point>,
    /// Where curves bend.
    pub knees: Vec<Knee>,
    /// Targets against the first.
    pub comparisons: Vec<Comparison>,
    /// Each measurement.
    pub runs: Vec<Run>,
}

/// What a report is made of beside the plan.
#[derive(Debug, Clone)]
pub struct Facts {
    /// How it ended.
    pub ending: Ending,
    /// When it began.
    pub started_s: u64,
    /// The command that asked for it.
    pub command: String,
    /// Where.
    pub machine: Machine,
    /// What others used, by round.
    pub idle: Vec<Option<f64>>,
}

impl Report {
    /// Sums up what was measured.
    #[must_use]
    pub fn new(plan: &Plan, runs: Vec<(Step, Measured)>, facts: Facts) -> Self {
        let points = points(plan, &runs);
        let comparisons = comparisons(plan, &runs);
        let knees = knees(plan, &points);
        let idle = (1u32..).zip(&facts.idle);
        let idle = idle.map(|(round, others_percent)| Idle { round, others_percent: *others_percent });
        let mut report = Self {
            schema: SCHEMA,
            is_complete: facts.ending == Ending::Complete,
            ending: facts.ending,
            started_s: facts.started_s,
            command: facts.command,
            machine: facts.machine,
            fio_version: runs.first().map(|(_, measured)| measured.fio_version.clone()),
            runtime_s: plan.settings.runtime_s,
            ramp_s: plan.settings.ramp_s,
            rounds: plan.settings.rounds,
            warnings: Vec::new(),
            idle: idle.collect(),
            targets: targets(plan),
            profiles: plan.profiles.iter().map(profile).collect(),
            points,
            knees,
            comparisons,
            runs: runs.into_iter().map(|(step, measured)| run(plan, &step, measured)).collect(),
        };
        report.warnings = warnings::of(&report);
        report
    }

    /// The points of a profile on a target with these flushes, in order of the load.
    pub fn curve<'a>(
        &'a self,
        profile: &'a str,
        target: &'a str,
        flush: Flush,
    ) -> impl Iterator<Item = &'a Point> {
        self.points.iter().filter(move |point| {
            (point.place.profile.as_str(), point.place.target.as_str(), point.place.flush)
                == (profile, target, flush)
        })
    }

    /// The ways in which a profile was flushed.
    #[must_use]
    pub fn flushes(&self, profile: &str) -> Vec<Flush> {
        let mut flushes: Vec<Flush> = Vec::new();
        for point in self.points.iter().filter(|point| point.place.profile == profile) {
            if !flushes.contains(&point.place.flush) {
                flushes.push(point.place.flush);
            }
        }
        flushes
    }

    /// The knee of a curve.
    #[must_use]
    pub fn knee(&self, profile: &str, target: &str, flush: Flush) -> Option<u64> {
        let found = self.knees.iter().find(|knee| {
            (knee.profile.as_str(), knee.target.as_str(), knee.flush) == (profile, target, flush)
        });
        found.and_then(|knee| knee.outstanding)
    }
}

fn targets(plan: &Plan) -> Vec<TargetDocument> {
    let document = |target: &crate::target::Target| TargetDocument {
        name: target.name.clone(),
        what: target.what.clone(),
        access: target.access,
        engine: plan.settings.engine_for(target.access),
        flush: if target.access == Path::Nbd { "NBD flush command" } else { "fsync" },
        working_set_bytes: target.working_set.0,
        outgrows_caches: target.outgrows_caches(),
        notes: plan.notes(target),
    };
    plan.targets.iter().map(document).collect()
}

fn profile(of: &Profile) -> ProfileDocument {
    ProfileDocument {
        name: of.name.clone(),
        title: of.title.clone(),
        summary: of.summary(),
        block_bytes: of.block.0,
        is_random: of.pattern == Pattern::Random,
        reads_percent: of.reads_percent,
        workers: of.workers,
    }
}

fn place(plan: &Plan, target: usize, at: usize, load: Load, flush: Flush) -> Place {
    let profile = plan.profiles.get(at);
    let workers = profile.map_or(1, |profile| u64::from(profile.workers));
    Place {
        profile: profile.map(|profile| profile.name.clone()).unwrap_or_default(),
        target: plan.targets.get(target).map(|target| target.name.clone()).unwrap_or_default(),
        flush,
        outstanding: u64::from(load.outstanding) * workers,
        file_bytes: load.file.map(|file| file.0),
    }
}

fn run(plan: &Plan, step: &Step, measured: Measured) -> Run {
    let place = place(plan, step.target, step.profile, step.load, step.flush);
    Run { place, round: step.round + 1, measured }
}

/// Calls `each` for every load of every profile with every kind of flush.
fn for_each_load(plan: &Plan, mut each: impl FnMut(usize, Load, Flush)) {
    for (at, profile) in plan.profiles.iter().enumerate() {
        for flush in plan.flushes(profile) {
            profile.loads().into_iter().for_each(|load| each(at, load, flush));
        }
    }
}

fn points(plan: &Plan, runs: &[(Step, Measured)]) -> Vec<Point> {
    let mut points = Vec::new();
    for target in 0..plan.targets.len() {
        for_each_load(plan, |profile, load, flush| {
            let wanted = (target, profile, load, flush);
            let is_wanted = |step: &Step| (step.target, step.profile, step.load, step.flush) == wanted;
            let found: Vec<&Measured> =
                runs.iter().filter(|(step, _)| is_wanted(step)).map(|(_, measured)| measured).collect();
            points.extend(point(place(plan, target, profile, load, flush), &found));
        });
    }
    points
}

#[allow(clippy::cast_precision_loss)] // bytes in a second and nanoseconds stay far below 2^52
fn point(place: Place, rounds: &[&Measured]) -> Option<Point> {
    let of = |figure: &dyn Fn(&Measured) -> f64| {
        Summary::of(&rounds.iter().map(|measured| figure(measured)).collect::<Vec<_>>())
    };
    let median = |figure: &dyn Fn(&Measured) -> f64| of(figure).map(|summary| summary.median);
    let maybe = |figure: &dyn Fn(&Measured) -> Option<f64>| {
        let found: Vec<f64> = rounds.iter().filter_map(|measured| figure(measured)).collect();
        Summary::of(&found).map(|summary| summary.median)
    };
    let ios_per_s = of(&|measured| measured.ios_per_s)?;
    Some(Point {
        place,
        rounds: rounds.len(),
        ios_per_s,
        bytes_per_s: of(&|measured| measured.bytes_per_s as f64)?,
        mean_ns: median(&|measured| measured.latency.mean_ns)?,
        p50_ns: median(&|measured| measured.latency.p50_ns as f64)?,
        p95_ns: median(&|measured| measured.latency.p95_ns as f64)?,
        p99_ns: median(&|measured| measured.latency.p99_ns as f64)?,
        p999_ns: median(&|measured| measured.latency.p999_ns as f64)?,
        writes_per_flush: maybe(&|measured| measured.writes_per_flush),
        flush_p50_ns: maybe(&|measured| measured.flush_p50_ns.map(|ns| ns as f64)),
        is_noisy: ios_per_s.is_noisy(),
    })
}

fn knees(plan: &Plan, points: &[Point]) -> Vec<Knee> {
    let mut knees = Vec::new();
    for profile in &plan.profiles {
        for target in &plan.targets {
            for flush in plan.flushes(profile) {
                let is_of = |place: &Place| {
                    place.file_bytes.is_none()
                        && (&place.profile, &place.target, place.flush)
                            == (&profile.name, &target.name, flush)
                };
                let mut curve: Vec<&Point> = points.iter().filter(|point| is_of(&point.place)).collect();
                curve.sort_by_key(|point| point.place.outstanding);
                if curve.len() < 3 {
                    continue;
                }
                let figures: Vec<(f64, f64)> =
                    curve.iter().map(|point| (point.ios_per_s.median, point.mean_ns)).collect();
                let at = knee(&figures).and_then(|at| curve.get(at));
                let outstanding = at.map(|point| point.place.outstanding);
                let (profile, target) = (profile.name.clone(), target.name.clone());
                knees.push(Knee { profile, target, flush, outstanding });
            }
        }
    }
    knees
}

fn comparisons(plan: &Plan, runs: &[(Step, Measured)]) -> Vec<Comparison> {
    let mut comparisons = Vec::new();
    let Some(first) = plan.targets.first() else { return comparisons };
    for target in 1..plan.targets.len() {
        for_each_load(plan, |profile, load, flush| {
            let rate = |target: usize, round: u32| {
                let wanted = Step { round, target, profile, load, flush };
                runs.iter().find(|(step, _)| *step == wanted).map(|(_, measured)| measured.ios_per_s)
            };
            let ratios: Vec<f64> = (0..plan.settings.rounds)
                .filter_map(|round| Some(rate(target, round)? / rate(0, round)?))
                .collect();
            if let Some(mut ratio) = Ratio::of(&ratios) {
                let per_flush = |target: usize| {
                    let of_load = |step: &Step| {
                        (step.target, step.profile, step.load, step.flush) == (target, profile, load, flush)
                    };
                    let found = runs.iter().filter(|(step, _)| of_load(step));
                    let found: Vec<f64> =
                        found.filter_map(|(_, measured)| measured.writes_per_flush).collect();
                    Summary::of(&found).map(|summary| summary.median)
                };
                if differ(per_flush(0), per_flush(target)) {
                    ratio.verdict = Verdict::OtherFlushes;
                }
                let place = place(plan, target, profile, load, flush);
                comparisons.push(Comparison { place, against: first.name.clone(), ratio });
            }
        });
    }
    comparisons
}

/// Whether writes for each flush are so different that the loads are not the same.
fn differ(one: Option<f64>, other: Option<f64>) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => one.max(other) > one.min(other) * FLUSHES_FACTOR,
        (None, None) => false,
        (Some(_), None) | (None, Some(_)) => true,
    }
}

#[cfg(test)]
mod tests;
