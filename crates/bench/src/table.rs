//! Points as a table for spreadsheets: one line for each, with a heading.

use serde::Serialize;

use crate::report::{Point, Report};

/// A line. Units stand in the names; shares of a second are milliseconds.
#[derive(Debug, Serialize)]
struct Line<'a> {
    profile: &'a str,
    target: &'a str,
    flush: String,
    outstanding: u64,
    file_bytes: Option<u64>,
    rounds: usize,
    ios_per_s: f64,
    ios_per_s_least: f64,
    ios_per_s_most: f64,
    bytes_per_s: f64,
    mean_ms: f64,
    p50_ms: f64,
    p95_ms: f64,
    p99_ms: f64,
    p999_ms: f64,
    writes_per_flush: Option<f64>,
    flush_p50_ms: Option<f64>,
    is_knee: bool,
    is_noisy: bool,
}

/// The table.
///
/// # Errors
/// Never for a report of this crate; the writer of tables may refuse what is no row.
pub fn render(report: &Report) -> Result<String, csv::Error> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    for point in &report.points {
        writer.serialize(line(report, point))?;
    }
    let bytes = writer.into_inner().map_err(|error| csv::Error::from(error.into_error()))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn line<'a>(report: &Report, point: &'a Point) -> Line<'a> {
    let place = &point.place;
    let ms = |ns: f64| (ns / 1000.0).round() / 1000.0;
    let knee = report.knee(&place.profile, &place.target, place.flush);
    Line {
        profile: &place.profile,
        target: &place.target,
        flush: place.flush.to_string(),
        outstanding: place.outstanding,
        file_bytes: place.file_bytes,
        rounds: point.rounds,
        ios_per_s: point.ios_per_s.median,
        ios_per_s_least: point.ios_per_s.least,
        ios_per_s_most: point.ios_per_s.most,
        bytes_per_s: point.bytes_per_s.median,
        mean_ms: ms(point.mean_ns),
        p50_ms: ms(point.p50_ns),
        p95_ms: ms(point.p95_ns),
        p99_ms: ms(point.p99_ns),
        p999_ms: ms(point.p999_ns),
        writes_per_flush: point.writes_per_flush,
        flush_p50_ms: point.flush_p50_ns.map(ms),
        is_knee: place.file_bytes.is_none() && knee == Some(place.outstanding),
        is_noisy: point.is_noisy,
    }
}
