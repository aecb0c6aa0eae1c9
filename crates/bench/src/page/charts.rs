//! The curves of the page.

use dolmen_page::{Anchor, Drawing, Point as At, Stroke};
use dolmen_units::Bytes;

use super::Line;
use crate::plan::Flush;
use crate::report::{Point, ProfileDocument, Report, Run};

/// Percentiles that are drawn, with their colours.
pub(crate) const PERCENTILES: [(&str, &str); 4] =
    [("50 %", "#56b4e9"), ("95 %", "#0072b2"), ("99 %", "#e69f00"), ("99.9 %", "#d55e00")];

const WIDTH: u64 = 9200;
const HEIGHT: u64 = 3000;
/// Room for numbers at both sides, above and below.
const SIDE: u64 = 800;
const TOP: u64 = 260;
const BOTTOM: u64 = 350;
/// Numbers below are not nearer than this.
const LABEL_GAP: u64 = 420;
/// From this ratio of the largest to the least load on, each doubling gets the same room.
const DOUBLINGS_FROM: f64 = 48.0;

/// The loads of a profile, as places from left to right.
pub(crate) struct Loads {
    values: Vec<u64>,
    are_files: bool,
}

impl Loads {
    pub(crate) fn of(points: &[&Point]) -> Self {
        let mut values: Vec<u64> = points.iter().map(|point| value_of(point)).collect();
        values.sort_unstable();
        values.dedup();
        Self { values, are_files: points.iter().any(|point| point.place.file_bytes.is_some()) }
    }

    /// Whether there is a curve to draw.
    pub(crate) fn are_varied(&self) -> bool {
        self.values.len() > 1
    }

    fn x_of(&self, value: u64) -> u64 {
        let (Some(first), Some(last)) = (self.values.first(), self.values.last()) else { return SIDE };
        let (first, last, value) = (real(*first), real(*last), real(value));
        let is_log = self.are_files || last / first >= DOUBLINGS_FROM;
        let share = if is_log {
            (value / first).log2() / (last / first).log2()
        } else {
            (value - first) / (last - first)
        };
        SIDE + whole(share * real(WIDTH - 2 * SIDE))
    }

    fn label(&self, value: u64) -> String {
        if self.are_files { Bytes(value).to_string() } else { value.to_string() }
    }
}

fn value_of(point: &Point) -> u64 {
    point.place.file_bytes.unwrap_or(point.place.outstanding)
}

/// Places of a drawing and counts stay far below 2^52.
#[allow(clippy::cast_precision_loss)]
fn real(value: u64) -> f64 {
    value as f64
}

/// A place of a drawing, which nothing outside of it can have.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // clamped before
fn whole(value: f64) -> u64 {
    value.clamp(0.0, 100_000.0).round() as u64
}

/// A scale from below to above.
#[derive(Clone, Copy)]
enum Scale {
    /// From nothing to so much.
    Even { most: f64 },
    /// Each power of ten gets the same room.
    Tenfold { least: f64, most: f64 },
}

impl Scale {
    /// A round number that is not below `most`.
    fn even(most: f64) -> Self {
        let step = step_for(most);
        Self::Even { most: (most / step).ceil().max(1.0) * step }
    }

    fn tenfold(values: &[f64]) -> Self {
        let least = values.iter().copied().filter(|value| *value > 0.0).fold(f64::MAX, f64::min);
        let most = values.iter().copied().fold(0.0, f64::max);
        if most <= 0.0 {
            return Self::Tenfold { least: 1.0, most: 10.0 };
        }
        let (low, high) = (least.log10().floor(), most.log10().ceil());
        Self::Tenfold { least: 10f64.powf(low), most: 10f64.powf(high.max(low + 1.0)) }
    }

    fn y_of(self, value: f64) -> u64 {
        let share = match self {
            Self::Even { most } => value / most,
            Self::Tenfold { least, most } => (value.max(least) / least).log10() / (most / least).log10(),
        };
        let room = HEIGHT - TOP - BOTTOM;
        TOP + room - whole(share * real(room)).min(room)
    }

    fn marks(self) -> Vec<f64> {
        match self {
            Self::Even { most } => {
                let step = step_for(most);
                (0u32..=12).map(|at| f64::from(at) * step).take_while(|mark| *mark <= most * 1.001).collect()
            }
            Self::Tenfold { least, most } => (0..20)
                .map(|power| least * 10f64.powi(power))
                .take_while(|mark| *mark <= most * 1.001)
                .collect(),
        }
    }
}

/// One, two or five of a power of ten, so that there are four to ten marks.
fn step_for(most: f64) -> f64 {
    if most <= 0.0 {
        return 1.0;
    }
    let rough = most / 5.0;
    let power = 10f64.powf(rough.log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0].map(|factor| factor * power);
    steps.into_iter().find(|step| *step >= rough).unwrap_or(10.0 * power)
}

/// A number of an axis, short.
fn short(value: f64) -> String {
    match value {
        ..0.001 if value > 0.0 => format!("{value:.4}"),
        ..0.01 if value > 0.0 => format!("{value:.3}"),
        ..0.1 if value > 0.0 => format!("{value:.2}"),
        ..10.0 if value.fract() != 0.0 => format!("{value:.1}"),
        ..10_000.0 => format!("{value:.0}"),
        ..1_000_000.0 => format!("{:.0}k", value / 1e3),
        _ => format!("{:.1}M", value / 1e6),
    }
}

fn stroke_of(flush: Flush) -> Stroke {
    if flush == Flush::Never { Stroke::Solid } else { Stroke::Dashed }
}

/// Rules with the numbers at the left; `right` gives those at the right.
fn frame(drawing: &mut Drawing, scale: Scale, unit: &str, right: Option<(f64, &str)>) {
    drawing.text(At { x: SIDE, y: TOP - 100 }, Anchor::End, unit);
    if let Some((_, unit)) = right {
        drawing.text(At { x: WIDTH - SIDE, y: TOP - 100 }, Anchor::Start, unit);
    }
    for mark in scale.marks() {
        let y = scale.y_of(mark);
        drawing.rule(At { x: SIDE, y }, At { x: WIDTH - SIDE, y });
        drawing.text(At { x: SIDE - 60, y: y + 40 }, Anchor::End, &short(mark));
        if let Some((factor, _)) = right {
            drawing.text(At { x: WIDTH - SIDE + 60, y: y + 40 }, Anchor::Start, &short(mark * factor));
        }
    }
}

fn loads_below(drawing: &mut Drawing, loads: &Loads) {
    let mut free_from = 0;
    for value in &loads.values {
        let x = loads.x_of(*value);
        if x >= free_from {
            drawing.text(At { x, y: HEIGHT - BOTTOM + 180 }, Anchor::Middle, &loads.label(*value));
            free_from = x + LABEL_GAP;
        }
    }
}

/// Throughput by load, for all targets.
pub(crate) fn throughput(
    report: &Report,
    profile: &ProfileDocument,
    lines: &[Line<'_>],
    loads: &Loads,
) -> String {
    let all = report.points.iter().filter(|point| point.place.profile == profile.name);
    let most = all.map(|point| point.bytes_per_s.median / 1e6).fold(0.0, f64::max);
    let scale = Scale::even(most);
    let mut drawing = Drawing::new(WIDTH, HEIGHT);
    frame(&mut drawing, scale, "MB/s", Some((1e6 / real(profile.block_bytes), "IO/s")));
    loads_below(&mut drawing, loads);
    for line in lines {
        let curve: Vec<&Point> = report.curve(&profile.name, line.target, line.flush).collect();
        let place = |point: &Point| At {
            x: loads.x_of(value_of(point)),
            y: scale.y_of(point.bytes_per_s.median / 1e6),
        };
        let places: Vec<At> = curve.iter().map(|point| place(point)).collect();
        let title = format!("{}, flush {}", line.target, line.flush);
        drawing.curve(&places, line.colour, stroke_of(line.flush), &title);
        let knee = report.knee(&profile.name, line.target, line.flush);
        let bend = curve
            .iter()
            .find(|point| point.place.file_bytes.is_none() && knee == Some(point.place.outstanding));
        if let Some(point) = bend {
            let tip = format!("{title}: knee at {} outstanding", point.place.outstanding);
            drawing.ring(place(point), line.colour, &tip);
        }
    }
    drawing.finish(&format!("throughput of {}", profile.title))
}

/// Percentiles of latency by load, for one target.
pub(crate) fn latency(
    report: &Report,
    profile: &ProfileDocument,
    lines: &[&Line<'_>],
    loads: &Loads,
) -> String {
    let figures =
        |point: &Point| [point.p50_ns, point.p95_ns, point.p99_ns, point.p999_ns].map(|ns| ns / 1e6);
    let all = report.points.iter().filter(|point| point.place.profile == profile.name);
    // One scale for all targets, so that drawings below each other can be compared.
    let scale = Scale::tenfold(&all.flat_map(figures).collect::<Vec<_>>());
    let mut drawing = Drawing::new(WIDTH, HEIGHT);
    frame(&mut drawing, scale, "ms", None);
    loads_below(&mut drawing, loads);
    for line in lines {
        let curve: Vec<&Point> = report.curve(&profile.name, line.target, line.flush).collect();
        for (at, (name, colour)) in PERCENTILES.iter().enumerate() {
            let place = |point: &&Point| {
                let value = figures(point).get(at).copied().unwrap_or(0.0);
                At { x: loads.x_of(value_of(point)), y: scale.y_of(value) }
            };
            let places: Vec<At> = curve.iter().map(place).collect();
            let title = format!("{name} of I/Os, {}, flush {}", line.target, line.flush);
            drawing.curve(&places, colour, stroke_of(line.flush), &title);
        }
    }
    drawing.finish(&format!("latency of {}", profile.title))
}

/// Throughput over time in the first round: one drawing for the greatest load, or one for each length of a file.
pub(crate) fn over_time(
    report: &Report,
    profile: &ProfileDocument,
    lines: &[Line<'_>],
) -> Vec<(String, String)> {
    let of_profile = |run: &&Run| run.place.profile == profile.name && run.round == 1;
    let mut files: Vec<Option<u64>> =
        report.runs.iter().filter(of_profile).map(|run| run.place.file_bytes).collect();
    files.sort_unstable();
    files.dedup();
    let most = report.runs.iter().filter(of_profile).map(|run| run.place.outstanding).max().unwrap_or(0);
    let mut drawn = Vec::new();
    for file in files {
        let is_wanted =
            |run: &&Run| of_profile(run) && run.place.file_bytes == file && run.place.outstanding == most;
        let runs: Vec<&Run> =
            report.runs.iter().filter(is_wanted).filter(|run| run.measured.samples.len() > 1).collect();
        if runs.is_empty() {
            continue;
        }
        let title = file
            .map_or_else(|| format!("{most} outstanding I/Os"), |file| format!("a file of {}", Bytes(file)));
        let picture = time_picture(&runs, lines, &profile.title);
        drawn.push((title, picture));
    }
    drawn
}

fn time_picture(runs: &[&Run], lines: &[Line<'_>], title: &str) -> String {
    let samples = || runs.iter().flat_map(|run| &run.measured.samples);
    let most = samples().map(|sample| real(sample.bytes_per_s) / 1e6).fold(0.0, f64::max);
    let last = samples().map(|sample| sample.at_ms).max().unwrap_or(1);
    let scale = Scale::even(most);
    let mut drawing = Drawing::new(WIDTH, HEIGHT);
    frame(&mut drawing, scale, "MB/s", None);
    let x_of = |at_ms: f64| SIDE + whole(at_ms / real(last) * real(WIDTH - 2 * SIDE));
    for mark in (Scale::Even { most: real(last) / 1000.0 }).marks() {
        let at = At { x: x_of(mark * 1000.0), y: HEIGHT - BOTTOM + 180 };
        drawing.text(at, Anchor::Middle, &format!("{} s", short(mark)));
    }
    for line in lines {
        let own = |run: &&&Run| (run.place.target.as_str(), run.place.flush) == (line.target, line.flush);
        let Some(run) = runs.iter().find(own) else { continue };
        let place = |sample: &crate::fio::Sample| At {
            x: x_of(real(sample.at_ms)),
            y: scale.y_of(real(sample.bytes_per_s) / 1e6),
        };
        let places: Vec<At> = run.measured.samples.iter().map(place).collect();
        drawing.line(
            &places,
            line.colour,
            stroke_of(line.flush),
            &format!("{}, flush {}", line.target, line.flush),
        );
    }
    drawing.finish(&format!("throughput of {title} over time"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_round_numbers() {
        let marks = |most: f64| -> Vec<String> { Scale::even(most).marks().into_iter().map(short).collect() };
        assert_eq!(marks(870.0), ["0", "200", "400", "600", "800", "1000"]);
        assert_eq!(marks(0.0), ["0", "0.2", "0.4", "0.6", "0.8", "1"]);
        assert_eq!(marks(3.0), ["0", "1", "2", "3"]);
        let tenfold: Vec<String> = Scale::tenfold(&[0.07, 30.0]).marks().into_iter().map(short).collect();
        assert_eq!(tenfold, ["0.01", "0.1", "1", "10", "100"]);
    }

    /// Values at the ends of a scale stay inside of the drawing.
    #[test]
    fn nothing_is_drawn_outside() {
        for scale in [Scale::even(100.0), Scale::tenfold(&[0.1, 50.0])] {
            for value in [0.0, 1e-9, 100.0, 1e12, f64::NAN] {
                assert!((TOP..=HEIGHT - BOTTOM).contains(&scale.y_of(value)));
            }
        }
    }
}
