//! Plans and reports as text.

use dolmen_api::SCHEMA;
use dolmen_bench::page::{megabytes, ms, verdict_word};
use dolmen_bench::{Flush, Plan, Point, Profile, ProfileDocument, Report, Verdict};
use dolmen_units::Bytes;
use serde::Serialize;

use super::target::Prepared;
use crate::terminal::out::Out;
use crate::terminal::paint::Tone;
use crate::terminal::table::{Align, Cell, Table};
use crate::views::words::count;
use dolmen_api::duration;

/// What would be done, for programs.
#[derive(Debug, Serialize)]
pub(crate) struct PlanDocument {
    schema: u32,
    is_dry_run: bool,
    targets: Vec<PlannedTarget>,
    profiles: Vec<PlannedProfile>,
    measurements: usize,
    rounds: u32,
    expected_s: u64,
}

#[derive(Debug, Serialize)]
struct PlannedTarget {
    name: String,
    what: String,
    working_set_bytes: u64,
    holds: Option<String>,
    is_written_first: bool,
    notes: Vec<String>,
}

#[derive(Debug, Serialize)]
struct PlannedProfile {
    name: String,
    summary: String,
    loads: Vec<String>,
    flushes: Vec<Flush>,
}

impl PlanDocument {
    /// The document of a plan.
    pub(crate) fn new(plan: &Plan, prepared: &[Prepared]) -> Self {
        let target = |one: &Prepared| PlannedTarget {
            name: one.target.name.clone(),
            what: one.target.what.clone(),
            working_set_bytes: one.target.working_set.0,
            holds: one.holds.clone(),
            is_written_first: one.target.is_filled,
            notes: plan.notes(&one.target),
        };
        let profile = |of: &Profile| PlannedProfile {
            name: of.name.clone(),
            summary: of.summary(),
            loads: of.loads().iter().map(ToString::to_string).collect(),
            flushes: plan.flushes(of),
        };
        Self {
            schema: SCHEMA,
            is_dry_run: true,
            targets: prepared.iter().map(target).collect(),
            profiles: plan.profiles.iter().map(profile).collect(),
            measurements: plan.steps().len(),
            rounds: plan.settings.rounds,
            expected_s: expected_ms(plan).div_ceil(1000),
        }
    }
}

/// What all measurements are expected to take; filling the targets comes before.
fn expected_ms(plan: &Plan) -> u64 {
    plan.steps().iter().map(|step| plan.expected_ms(step)).sum()
}

/// Shows what would be done.
pub(crate) fn show_plan(plan: &Plan, prepared: &[Prepared], out: &mut Out<'_>) {
    let paint = out.paint_results;
    out.line("dry run, nothing was written; this would be measured:");
    let mut targets = Table::new(&[
        ("TARGET", Align::Left),
        ("WHAT", Align::Left),
        ("USED", Align::Right),
        ("HOLDS", Align::Left),
        ("FIRST", Align::Left),
    ]);
    for one in prepared {
        let holds = one
            .holds
            .as_ref()
            .map_or_else(|| "".into(), |holds| Cell::toned(format!("{holds}, lost"), Tone::Bad));
        targets.row(vec![
            one.target.name.clone().into(),
            one.target.what.clone().into(),
            one.target.working_set.to_string().into(),
            holds,
            if one.target.is_filled { "written once" } else { "" }.into(),
        ]);
    }
    out.show(&targets.render(2, paint));
    let mut profiles = Table::new(&[
        ("PROFILE", Align::Left),
        ("LOAD", Align::Left),
        ("LOADS", Align::Left),
        ("FLUSH", Align::Left),
    ]);
    for profile in &plan.profiles {
        let join = |texts: Vec<String>| texts.join(", ");
        profiles.row(vec![
            profile.name.clone().into(),
            profile.summary().into(),
            join(profile.loads().iter().map(ToString::to_string).collect()).into(),
            join(plan.flushes(profile).iter().map(ToString::to_string).collect()).into(),
        ]);
    }
    out.show(&profiles.render(2, paint));
    let time = duration(expected_ms(plan).div_ceil(1000));
    let steps = count(u64::try_from(plan.steps().len()).unwrap_or(u64::MAX), "measurement", "measurements");
    let rounds = count(plan.settings.rounds.into(), "round", "rounds");
    out.line(format_args!("{steps} in {rounds}, about {time}"));
    for target in &plan.targets {
        for note in plan.notes(target) {
            out.line(format_args!("{}: {note}", target.name));
        }
    }
}

/// Shows what was measured.
pub(crate) fn show_report(report: &Report, out: &mut Out<'_>) {
    let paint = out.paint_results;
    for profile in &report.profiles {
        let table = figures(report, profile);
        if table.is_empty() {
            continue;
        }
        out.line(
            paint.tone(&format!("{} ({}): {}", profile.title, profile.name, profile.summary), Tone::Heading),
        );
        out.show(&format!("{}\n", table.render(2, paint)));
    }
    let compared = comparisons(report);
    if !compared.is_empty() {
        out.show(&format!("{}\n", compared.render(0, paint)));
    }
    for warning in &report.warnings {
        out.line(format_args!("{} {warning}", paint.tone("note:", Tone::Caution)));
    }
}

fn load_of(point: &dolmen_bench::Place) -> String {
    point.file_bytes.map_or_else(|| point.outstanding.to_string(), |file| Bytes(file).to_string())
}

fn figures(report: &Report, profile: &ProfileDocument) -> Table {
    let is_one = report.targets.len() == 1;
    let of_profile = || report.points.iter().filter(|point| point.place.profile == profile.name);
    let are_files = of_profile().any(|point| point.place.file_bytes.is_some());
    let mut table = Table::new(&[
        (if are_files { "FILE" } else { "OUTSTANDING" }, Align::Right),
        ("FLUSH", Align::Left),
        (if is_one { "" } else { "TARGET" }, Align::Left),
        ("MB/s", Align::Right),
        ("IO/s", Align::Right),
        ("SPREAD", Align::Right),
        ("MEAN ms", Align::Right),
        ("50 %", Align::Right),
        ("95 %", Align::Right),
        ("99 %", Align::Right),
        ("99.9 %", Align::Right),
        ("W/FLUSH", Align::Right),
        ("", Align::Left),
    ]);
    let mut points: Vec<&Point> = of_profile().collect();
    // Targets below each other under one load.
    points.sort_by_key(|point| (point.place.flush, point.place.file_bytes, point.place.outstanding));
    for point in points {
        let spread =
            point.ios_per_s.spread_percent.map(|spread| format!("{spread:.0} %")).unwrap_or_default();
        let spread = match point.is_noisy {
            true => Cell::toned(format!("~{spread}"), Tone::Caution),
            false => spread.into(),
        };
        let place = &point.place;
        let is_knee = place.file_bytes.is_none()
            && report.knee(&place.profile, &place.target, place.flush) == Some(place.outstanding);
        table.row(vec![
            load_of(place).into(),
            place.flush.to_string().into(),
            if is_one { String::new() } else { place.target.clone() }.into(),
            megabytes(point.bytes_per_s.median).into(),
            format!("{:.0}", point.ios_per_s.median).into(),
            spread,
            ms(point.mean_ns).into(),
            ms(point.p50_ns).into(),
            ms(point.p95_ns).into(),
            ms(point.p99_ns).into(),
            ms(point.p999_ns).into(),
            point.writes_per_flush.map(|writes| format!("{writes:.1}")).unwrap_or_default().into(),
            if is_knee { "knee" } else { "" }.into(),
        ]);
    }
    table
}

fn comparisons(report: &Report) -> Table {
    let mut table = Table::new(&[
        ("SIDE BY SIDE", Align::Left),
        ("LOAD", Align::Right),
        ("FLUSH", Align::Left),
        ("TARGET", Align::Left),
        ("TIMES THE FIRST", Align::Right),
        ("LEAST", Align::Right),
        ("MOST", Align::Right),
        ("VERDICT", Align::Left),
    ]);
    for comparison in &report.comparisons {
        let (place, ratio) = (&comparison.place, &comparison.ratio);
        let tone = match ratio.verdict {
            Verdict::Faster | Verdict::Slower | Verdict::Equal => Tone::Plain,
            Verdict::TooNoisy | Verdict::TooFewRounds | Verdict::OtherFlushes => Tone::Caution,
        };
        table.row(vec![
            place.profile.clone().into(),
            load_of(place).into(),
            place.flush.to_string().into(),
            place.target.clone().into(),
            format!("{:.2}", ratio.median).into(),
            format!("{:.2}", ratio.least).into(),
            format!("{:.2}", ratio.most).into(),
            Cell::toned(verdict_word(ratio.verdict), tone),
        ]);
    }
    table
}
