//! Benchmarks that the daemon has run, for people.

use dolmen_api::{BenchmarkFigures, BenchmarkPoint, Benchmarks};
use dolmen_bench::page::{megabytes, ms};
use dolmen_units::Bytes;

use crate::terminal::out::Out;
use crate::terminal::paint::Tone;
use crate::terminal::table::{Align, Cell, Table};
use crate::views::jobs::ago;
use crate::views::words::seconds_now;

/// Shows the benchmark under way, and the reports.
pub(crate) fn show_benchmarks(document: &Benchmarks, out: &mut Out<'_>) {
    if let Some(work) = &document.work {
        let step = work.step.as_deref().unwrap_or("it begins");
        out.line(format_args!("job {} measures, {} of {} done: {step}", work.job, work.done, work.total));
    }
    if document.reports.is_empty() {
        return out.line("no reports; the page Bench of the console runs benchmarks");
    }
    let mut table = Table::new(&[
        ("JOB", Align::Right),
        ("SPACES", Align::Left),
        ("PROFILES", Align::Left),
        ("POINTS", Align::Right),
        ("BEGAN", Align::Left),
        ("", Align::Left),
    ]);
    let now_s = seconds_now();
    for report in &document.reports {
        table.row(vec![
            report.job.to_string().into(),
            report.spaces.join(", ").into(),
            report.profiles.join(", ").into(),
            report.points.to_string().into(),
            ago(now_s, report.started_s).into(),
            if report.is_complete { "".into() } else { Cell::toned("incomplete", Tone::Caution) },
        ]);
    }
    out.table(0, &table);
}

/// Shows a report.
pub(crate) fn show_benchmark(figures: &BenchmarkFigures, out: &mut Out<'_>) {
    let paint = out.paint_results;
    for profile in &figures.profiles {
        let points: Vec<&BenchmarkPoint> =
            figures.points.iter().filter(|point| point.profile == profile.name).collect();
        if points.is_empty() {
            continue;
        }
        let heading = format!("{} ({}): {}", profile.title, profile.name, profile.summary);
        out.line(paint.tone(&heading, Tone::Heading));
        out.show(&format!("{}\n", table_of(&points).render(2, paint)));
    }
    for one in &figures.comparisons {
        let load = load_of(one.file_bytes, one.outstanding);
        let (times, verdict) = (one.ratio.median, one.ratio.verdict.replace('_', " "));
        let place = format!("{}, {load} outstanding, flush {}", one.profile, one.flush);
        out.line(format_args!("{place}: {} has {times:.2} times {}: {verdict}", one.target, one.against));
    }
    for warning in &figures.warnings {
        out.line(format_args!("{} {warning}", paint.tone("note:", Tone::Caution)));
    }
}

fn table_of(points: &[&BenchmarkPoint]) -> Table {
    let mut table = Table::new(&[
        ("LOAD", Align::Right),
        ("FLUSH", Align::Left),
        ("SPACE", Align::Left),
        ("MB/s", Align::Right),
        ("IO/s", Align::Right),
        ("", Align::Left),
        ("50 %", Align::Right),
        ("99 %", Align::Right),
        ("W/FLUSH", Align::Right),
    ]);
    for point in points {
        table.row(vec![
            load_of(point.file_bytes, point.outstanding).into(),
            point.flush.clone().into(),
            point.target.clone().into(),
            megabytes(point.bytes_per_s.median).into(),
            format!("{:.0}", point.ios_per_s.median).into(),
            if point.is_noisy { Cell::toned("~", Tone::Caution) } else { "".into() },
            ms(point.p50_ns).into(),
            ms(point.p99_ns).into(),
            point.writes_per_flush.map(|writes| format!("{writes:.1}")).unwrap_or_default().into(),
        ]);
    }
    table
}

/// Returns outstanding I/Os, or the size of the file that was read or written once.
fn load_of(file_bytes: Option<u64>, outstanding: u64) -> String {
    file_bytes.map_or_else(|| outstanding.to_string(), |file| Bytes(file).to_string())
}
