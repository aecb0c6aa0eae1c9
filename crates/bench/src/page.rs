//! A report as one page that needs nothing else: curves as SVG, every figure as a table, how each was made.

mod charts;

use std::fmt::Write;

use dolmen_page::{CLOSING, LINES, cells, escaped, heads, keys, opening};
use dolmen_units::Bytes;

use crate::plan::Flush;
use crate::report::{Point, ProfileDocument, Report};
use crate::stats::{EQUAL_PERCENT, NOISY_PERCENT, ROUNDS_FOR_VERDICT, Verdict};

/// The page.
#[must_use]
pub fn render(report: &Report) -> String {
    let mut page = opening("What was measured");
    let names: Vec<&str> = report.targets.iter().map(|target| target.name.as_str()).collect();
    push(&mut page, format_args!("<p>{}</p>", escaped(&names.join(", "))));
    push(&mut page, format_args!("<p class=\"soft\">{}</p>", escaped(&how(report))));
    let made = format!("{}: {}", date_of(report.started_s), report.command);
    push(&mut page, format_args!("<p class=\"soft\">{}</p>", escaped(&made)));
    for warning in &report.warnings {
        push(&mut page, format_args!("<p>&#9888; {}</p>", escaped(warning)));
    }
    push_targets(&mut page, report);
    for profile in &report.profiles {
        push_profile(&mut page, report, profile);
    }
    push_comparisons(&mut page, report);
    push_method(&mut page, report);
    page.push_str(CLOSING);
    page
}

fn push(page: &mut String, text: std::fmt::Arguments<'_>) {
    // Writing to a string cannot fail.
    let _ = writeln!(page, "{text}");
}

fn how(report: &Report) -> String {
    let machine = &report.machine;
    format!(
        "{}, Linux {}, {} processors, {} of memory; {} s each after {} s, {} rounds",
        report.fio_version.as_deref().unwrap_or("fio"),
        machine.kernel,
        machine.processors,
        Bytes(machine.memory_bytes),
        report.runtime_s,
        report.ramp_s,
        report.rounds
    )
}

/// A moment in seconds from 1970 on, as a date of the Gregorian calendar. Days are counted from the first of March of the year
/// 0, so that a leap day ends its year: 146,097 of them are 400 years.
fn date_of(seconds: u64) -> String {
    let (days, rest) = (seconds / 86_400 + 719_468, seconds % 86_400);
    let (cycle, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year + cycle * 400 + u64::from(month <= 2);
    format!("{year}-{month:02}-{day:02} {:02}:{:02} UTC", rest / 3600, rest / 60 % 60)
}

fn push_targets(page: &mut String, report: &Report) {
    let head = word_heads(&["target", "what", "way", "engine", "a flush is", "working set"]);
    push(page, format_args!("<h2>Targets</h2><div><table><tr>{head}</tr>"));
    for target in &report.targets {
        let access = match target.access {
            crate::target::Path::Direct => "past the page cache (O_DIRECT)",
            crate::target::Path::Buffered => "through the page cache",
            crate::target::Path::Nbd => "NBD requests",
        };
        let working_set = Bytes(target.working_set_bytes).to_string();
        let row = words(&[&target.name, &target.what, access, target.engine, target.flush, &working_set]);
        push(page, format_args!("<tr>{row}</tr>"));
    }
    push(page, format_args!("</table></div>"));
}

/// Fields of words stand at the left.
fn words(values: &[&str]) -> String {
    values.iter().map(|value| format!("<td class=\"l\">{}</td>", escaped(value))).collect()
}

/// Headings above such fields.
fn word_heads(values: &[&str]) -> String {
    values.iter().map(|value| format!("<th class=\"l\">{}</th>", escaped(value))).collect()
}

/// A line of a chart: a target with flushes, and how it is drawn.
pub(crate) struct Line<'a> {
    pub(crate) target: &'a str,
    pub(crate) flush: Flush,
    pub(crate) colour: &'static str,
}

fn lines<'a>(report: &'a Report, profile: &str) -> Vec<Line<'a>> {
    let flushes = report.flushes(profile);
    let colours = LINES.iter().cycle();
    let targets = report.targets.iter().zip(colours);
    let line = |target: &'a str, colour, flush| Line { target, flush, colour };
    targets
        .flat_map(|(target, colour)| flushes.iter().map(move |flush| line(&target.name, *colour, *flush)))
        .collect()
}

fn push_profile(page: &mut String, report: &Report, profile: &ProfileDocument) {
    let lines = lines(report, &profile.name);
    let points: Vec<&Point> =
        report.points.iter().filter(|point| point.place.profile == profile.name).collect();
    let (Some(first), false) = (points.first(), lines.is_empty()) else { return };
    push(page, format_args!("<h2>{}</h2><p>{}</p>", escaped(&profile.title), escaped(&profile.summary)));
    let is_flushed = lines.iter().any(|line| line.flush != Flush::Never);
    let dashes =
        if is_flushed { format!(" Dashed: with flushes ({}).", flush_words(&lines)) } else { String::new() };
    let names: Vec<(&str, &str)> = lines
        .iter()
        .filter(|line| line.flush == Flush::Never)
        .map(|line| (line.colour, line.target))
        .collect();
    let loads = charts::Loads::of(&points);
    if loads.are_varied() {
        let ring = if first.place.file_bytes.is_some() { "" } else { " A ring marks the knee." };
        let axis = if first.place.file_bytes.is_some() { "length of the file" } else { "outstanding I/Os" };
        push(
            page,
            format_args!("<p><b>Throughput</b> by {axis}, I/Os in a second at the right.{dashes}{ring}</p>"),
        );
        page.push_str(&keys(&names));
        page.push_str(&charts::throughput(report, profile, &lines, &loads));
        push(
            page,
            format_args!("<p><b>Latency</b>, from the wish for an I/O to its end, by {axis}.{dashes}</p>"),
        );
        for target in &report.targets {
            let own: Vec<&Line<'_>> = lines.iter().filter(|line| line.target == target.name).collect();
            push(page, format_args!("<p class=\"soft\">{}</p>", escaped(&target.name)));
            page.push_str(&keys(&charts::PERCENTILES.map(|(name, colour)| (colour, name))));
            page.push_str(&charts::latency(report, profile, &own, &loads));
        }
    }
    push_time(page, report, profile, &lines, &names);
    push_figures(page, &points, report);
}

fn flush_words(lines: &[Line<'_>]) -> String {
    let found = lines.iter().map(|line| line.flush).find(|flush| *flush != Flush::Never);
    match found {
        Some(Flush::Every(writes)) => format!("after every {writes} writes"),
        Some(Flush::End) => "one at the end, whose time counts".to_owned(),
        Some(Flush::Never) | None => String::new(),
    }
}

fn push_time(
    page: &mut String,
    report: &Report,
    profile: &ProfileDocument,
    lines: &[Line<'_>],
    names: &[(&str, &str)],
) {
    let drawn = charts::over_time(report, profile, lines);
    if drawn.is_empty() {
        return;
    }
    for (title, picture) in drawn {
        push(page, format_args!("<p><b>Throughput over time</b>, {}, round 1</p>", escaped(&title)));
        page.push_str(&keys(names));
        page.push_str(&picture);
    }
}

fn push_figures(page: &mut String, points: &[&Point], report: &Report) {
    let numbers = heads(&[
        "MB/s",
        "IO/s",
        "spread",
        "mean ms",
        "50 %",
        "95 %",
        "99 %",
        "99.9 %",
        "w/flush",
        "flush 50 % ms",
        "",
    ]);
    let head = word_heads(&["load", "target", "flush"]) + &numbers;
    push(page, format_args!("<div><table><tr>{head}</tr>"));
    for point in points {
        let place = &point.place;
        let load =
            place.file_bytes.map_or_else(|| place.outstanding.to_string(), |file| Bytes(file).to_string());
        let knee = report.knee(&place.profile, &place.target, place.flush);
        let is_knee = place.file_bytes.is_none() && knee == Some(place.outstanding);
        let spread =
            point.ios_per_s.spread_percent.map(|spread| format!("{spread:.0} %")).unwrap_or_default();
        let mark = if point.is_noisy { "~" } else { "" };
        let row = words(&[&load, &place.target, &place.flush.to_string()]);
        let numbers = cells(&[
            megabytes(point.bytes_per_s.median),
            format!("{:.0}", point.ios_per_s.median),
            format!("{mark}{spread}"),
            ms(point.mean_ns),
            ms(point.p50_ns),
            ms(point.p95_ns),
            ms(point.p99_ns),
            ms(point.p999_ns),
            point.writes_per_flush.map(|writes| format!("{writes:.1}")).unwrap_or_default(),
            point.flush_p50_ns.map(ms).unwrap_or_default(),
            if is_knee { "knee".to_owned() } else { String::new() },
        ]);
        push(page, format_args!("<tr>{row}{numbers}</tr>"));
    }
    push(page, format_args!("</table></div>"));
}

/// Millions of bytes, with three digits where there are fewer.
#[must_use]
pub fn megabytes(bytes: f64) -> String {
    let megabytes = bytes / 1e6;
    if megabytes < 10.0 { format!("{megabytes:.2}") } else { format!("{megabytes:.0}") }
}

/// Milliseconds, with three digits where there are fewer.
#[must_use]
pub fn ms(ns: f64) -> String {
    let ms = ns / 1e6;
    match ms {
        ..1.0 => format!("{ms:.3}"),
        ..100.0 => format!("{ms:.2}"),
        _ => format!("{ms:.0}"),
    }
}

/// A verdict in words.
#[must_use]
pub fn verdict_word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Faster => "faster",
        Verdict::Slower => "slower",
        Verdict::Equal => "equal",
        Verdict::TooNoisy => "too noisy to tell",
        Verdict::TooFewRounds => "too few rounds",
        Verdict::OtherFlushes => "other flushes, not the same load",
    }
}

fn push_comparisons(page: &mut String, report: &Report) {
    let Some(against) = report.comparisons.first().map(|comparison| &comparison.against) else { return };
    push(
        page,
        format_args!(
            "<h2>Side by side</h2><p>I/Os in a second of each target divided by those of {}, round by round.</p>",
            escaped(against)
        ),
    );
    let head =
        word_heads(&["profile", "load", "target", "flush", "verdict"]) + &heads(&["ratio", "least", "most"]);
    push(page, format_args!("<div><table><tr>{head}</tr>"));
    for comparison in &report.comparisons {
        let (place, ratio) = (&comparison.place, &comparison.ratio);
        let load =
            place.file_bytes.map_or_else(|| place.outstanding.to_string(), |file| Bytes(file).to_string());
        let verdict = verdict_word(ratio.verdict);
        let row = words(&[&place.profile, &load, &place.target, &place.flush.to_string(), verdict]);
        let numbers = cells(&[ratio.median, ratio.least, ratio.most].map(|of| format!("{of:.2}")));
        push(page, format_args!("<tr>{row}{numbers}</tr>"));
    }
    push(page, format_args!("</table></div>"));
}

fn push_method(page: &mut String, report: &Report) {
    let idle: Vec<String> =
        report.idle.iter().filter_map(|idle| Some(format!("{:.0} %", idle.others_percent?))).collect();
    let idle = if idle.is_empty() { "not known".to_owned() } else { idle.join(", ") };
    for text in [
        "Each figure is the median of its rounds; the spread is the largest less the least, in per cent of the median.".to_owned(),
        format!("A point whose spread is above {NOISY_PERCENT:.0} % is marked with ~."),
        "MB are millions of bytes. Latency runs from the wish for an I/O to its end, so that outstanding I/Os are I/Os in a second times the mean latency; time spent in flushes is missing from that.".to_owned(),
        "The knee is the load with the greatest power, which is throughput divided by mean latency (L. Kleinrock, 1979): before it, more outstanding I/Os bring more throughput than they cost in latency; behind it, less. A curve whose last point has the greatest power has no knee yet.".to_owned(),
        format!("Targets meet each load directly one after another, in an order that turns round with each round, with the same addresses. From {ROUNDS_FOR_VERDICT} rounds on, the range of the ratios holds the true median with a probability of 93.75 % or more, whatever the distribution. If all of the range is within {EQUAL_PERCENT:.0} % of 1 the verdict is equal; if all of it is above or below 1, and its median by more than {EQUAL_PERCENT:.0} %, faster or slower; else the machine was too noisy to tell. Each verdict may be false with the rest of that probability. Where fio flushed one of two targets more often than the other, there is no verdict."),
        format!("What others used of the processors before each round, while nothing was measured: {idle}."),
    ] {
        if text.starts_with("Each figure") {
            push(page, format_args!("<h2>How to read this</h2>"));
        }
        push(page, format_args!("<p>{}</p>", escaped(&text)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instants_are_dates() {
        for (seconds, date) in [
            (0, "1970-01-01 00:00 UTC"),
            (951_782_399, "2000-02-28 23:59 UTC"),
            (951_782_400, "2000-02-29 00:00 UTC"),
            (951_868_800, "2000-03-01 00:00 UTC"),
            (1_700_000_000, "2023-11-14 22:13 UTC"),
            (4_107_542_399, "2100-02-28 23:59 UTC"),
            (4_107_542_400, "2100-03-01 00:00 UTC"),
        ] {
            assert_eq!(date_of(seconds), date);
        }
    }
}
