//! The figures as a table for people and as JSON for programs.

use std::fmt::Write;

use serde::Serialize;

use crate::case::{Case, Kind};
use crate::heap::Heap;
use crate::run::{Measured, Setting};
use crate::tally::Tally;

/// Headings and widths of the table; docs/bench_io.md says what each means.
const COLUMNS: [(&str, usize); 25] = [
    ("what", 9),
    ("size", 5),
    ("depth", 5),
    ("flush", 5),
    ("IO/s", 8),
    ("MB/s", 7),
    ("cpu us", 8),
    ("user", 8),
    ("raw cpu", 8),
    ("x cpu", 6),
    ("x IO/s", 6),
    ("alloc", 6),
    ("alloc B", 8),
    ("copied B", 8),
    ("polls", 6),
    ("locks", 6),
    ("enters", 6),
    ("msgs", 5),
    ("reads", 6),
    ("writes", 6),
    ("flushes", 7),
    ("durable", 7),
    ("read B", 9),
    ("write B", 9),
    ("class", 16),
];

/// Places of allocations shown per case.
const PLACES_MAX: usize = 12;

fn heading() -> String {
    let mut line = String::new();
    for (name, width) in COLUMNS {
        let _ = write!(line, "{name:>width$} ");
    }
    line.trim_end().to_owned()
}

/// The table of one layout.
pub(crate) fn table(measured: &[Measured]) -> String {
    let layout = measured.first().map_or("", |first| first.case.layout.name());
    let mut text = format!("\n{layout}\n{}\n", heading());
    for one in measured {
        text.push_str(&line(one));
        text.push('\n');
        for (place, heap) in one.places.iter().take(PLACES_MAX) {
            let Heap { allocations, bytes } = heap;
            let _ = writeln!(text, "          {allocations} allocations, {bytes} bytes: {place}");
        }
    }
    text
}

fn line(one: &Measured) -> String {
    let Measured { case, engine, raw, .. } = one;
    let per = |count| format!("{:.2}", engine.per_operation(count));
    let whole = |count| format!("{:.0}", engine.per_operation(count));
    let cells = [
        case.kind.name().to_owned(),
        size(case.size_bytes),
        case.depth.to_string(),
        case.flush_every.map_or_else(|| "-".to_owned(), |every| format!("1/{every}")),
        format!("{:.0}", engine.rate()),
        format!("{:.1}", megabytes(case, engine)),
        format!("{:.1}", engine.cpu_us()),
        per(engine.user_us),
        format!("{:.1}", raw.cpu_us()),
        ratio(engine.cpu_us(), raw.cpu_us()),
        ratio(engine.rate(), raw.rate()),
        per(engine.allocations),
        whole(engine.allocated_bytes),
        whole(engine.copied_bytes),
        per(engine.polls),
        per(engine.locks),
        per(engine.enters),
        per(engine.messages + engine.unparks),
        per(engine.disk_reads),
        per(engine.disk_writes),
        per(engine.disk_flushes),
        per(engine.disk_durable_writes),
        whole(engine.disk_read_bytes),
        whole(engine.disk_write_bytes),
        class(case, engine),
    ];
    let mut line = String::new();
    for (cell, (_, width)) in cells.iter().zip(COLUMNS) {
        let _ = write!(line, "{cell:>width$} ");
    }
    line.trim_end().to_owned()
}

fn ratio(of: f64, to: f64) -> String {
    if to > 0.0 { format!("{:.2}", of / to) } else { "-".to_owned() }
}

#[allow(clippy::cast_precision_loss)] // sizes of I/Os are small
fn megabytes(case: &Case, tally: &Tally) -> f64 {
    tally.rate() * case.size_bytes as f64 / 1e6
}

fn size(bytes: u64) -> String {
    if bytes >= 1 << 20 { format!("{}M", bytes >> 20) } else { format!("{}K", bytes >> 10) }
}

/// How the engine classed the writes, in per cent, or how many table pages a read took.
fn class(case: &Case, tally: &Tally) -> String {
    if case.kind.is_write() {
        let total = (tally.fresh_writes + tally.rewrites + tally.overwrites).max(1);
        let percent = |count: u64| count * 100 / total;
        let parts = [percent(tally.fresh_writes), percent(tally.rewrites), percent(tally.overwrites)];
        return format!("f{} r{} o{}", parts[0], parts[1], parts[2]);
    }
    let pages = tally.per_operation(tally.page_reads);
    if case.kind == Kind::Cold { format!("{pages:.2} pages") } else { format!("{pages:.2}") }
}

#[derive(Serialize)]
struct Document<'a> {
    version: u32,
    profile: &'static str,
    driver: &'static str,
    registered_buffers: bool,
    grown_bytes: u64,
    cases: Vec<Line<'a>>,
}

#[derive(Serialize)]
struct Line<'a> {
    #[serde(flatten)]
    case: Case,
    engine: Tally,
    raw: Tally,
    places: Vec<Place<'a>>,
}

#[derive(Serialize)]
struct Place<'a> {
    place: &'a str,
    allocations: u64,
    bytes: u64,
}

/// How this program was built: only an optimised build tells anything about time.
pub(crate) fn profile() -> &'static str {
    if cfg!(debug_assertions) { "unoptimised" } else { "optimised" }
}

/// Everything as one document.
pub(crate) fn json(measured: &[Measured], setting: &Setting) -> serde_json::Result<String> {
    let cases = measured.iter().map(|one| {
        let places = one.places.iter();
        Line {
            case: one.case,
            engine: one.engine,
            raw: one.raw,
            places: places
                .map(|(place, heap)| Place { place, allocations: heap.allocations, bytes: heap.bytes })
                .collect(),
        }
    });
    let document = Document {
        version: 1,
        profile: profile(),
        driver: setting.driver,
        registered_buffers: setting.has_registered_buffers,
        grown_bytes: setting.grown_bytes,
        cases: cases.collect(),
    };
    serde_json::to_string(&document)
}
