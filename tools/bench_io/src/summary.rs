//! What sustained writes cost, for people and for programs.

use std::fmt::Write;

use dolmen_units::{BLOCK_BYTES, Bytes};
use serde::Serialize;

use crate::areas::Commands;
use crate::error::BenchError;
use crate::report::profile;
use crate::sustained::{Look, Outcome, Window};

/// Reads of a table page that is not in memory, for each copy: both of its slots.
const SLOTS: u64 = 2;
/// Stretches of the sustained window whose rates are shown.
const WINDOWS: usize = 10;
const SECOND_NS: u64 = 1_000_000_000;
/// What is compared of the beginning and the end, at most.
const MINUTE_NS: u64 = 60 * SECOND_NS;

/// Rates at the beginning and at the end of the sustained window, in client writes a second.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct Rates {
    pub(crate) seconds: f64,
    pub(crate) first: f64,
    pub(crate) last: f64,
}

#[derive(Serialize)]
struct Document<'a> {
    version: u32,
    profile: &'static str,
    #[serde(flatten)]
    outcome: &'a Outcome,
    ios_sustained: f64,
    ios_all: f64,
    rates: Option<Rates>,
}

#[allow(clippy::cast_precision_loss)] // counts of a benchmark stay far below 2^52
fn ratio(of: u64, to: u64) -> f64 {
    if to == 0 { 0.0 } else { of as f64 / to as f64 }
}

/// Everything that disks were asked for, for each client write.
fn ios(window: &Window) -> f64 {
    ratio(window.asked.commands(), window.writes)
}

/// Fails if a client write costs more disk I/Os than that, altogether or sustained. A window with fewer writes than the write
/// cache has blocks says nothing of the latter: what was put in place meanwhile may be of other writes altogether.
pub(crate) fn check(outcome: &Outcome, limit: f64) -> Result<(), BenchError> {
    let is_long = outcome.sustained.writes >= outcome.cache_bytes / BLOCK_BYTES;
    let sustained = is_long.then_some(("sustained", &outcome.sustained));
    for (of, window) in [("all of it", &outcome.all)].into_iter().chain(sustained) {
        let found = ios(window);
        if found > limit {
            return Err(BenchError::OverLimit { of, found, limit });
        }
    }
    Ok(())
}

/// Everything as one document.
pub(crate) fn json(outcome: &Outcome) -> serde_json::Result<String> {
    serde_json::to_string(&Document {
        version: 1,
        profile: profile(),
        outcome,
        ios_sustained: ios(&outcome.sustained),
        ios_all: ios(&outcome.all),
        rates: rates(&outcome.looks),
    })
}

/// Everything as text.
pub(crate) fn text(outcome: &Outcome) -> String {
    let mut text = String::new();
    let Outcome { load, disks, .. } = outcome;
    let provisioning = if load.is_fixed { "fixed" } else { "thin" };
    let _ = writeln!(
        text,
        "random writes of 4K over {}, {} + {}, {provisioning}, on {disks} disks of {}; write cache {}, log {}; {} build",
        Bytes(load.span_bytes),
        load.columns,
        load.parity,
        Bytes(outcome.disk_bytes),
        Bytes(outcome.cache_bytes),
        Bytes(outcome.log_bytes),
        profile()
    );
    let flushes = match load.flush_every {
        0 => "none".to_owned(),
        every => format!("one after each {every} writes"),
    };
    let _ = writeln!(text, "depth {}, flushes: {flushes}", load.depth);
    let _ = writeln!(
        text,
        "\n{:>12} {:>9} {:>7} {:>7} {:>7} {:>8} {:>8} {:>8} {:>8}",
        "per write", "count", "I/Os", "reads", "writes", "flushes", "durable", "read B", "write B"
    );
    let copies = u64::from(load.parity) + 1;
    window(&mut text, "sustained", &outcome.sustained, copies);
    window(&mut text, "all of it", &outcome.all, copies);
    rate(&mut text, outcome);
    text
}

/// A window, and its parts.
fn window(text: &mut String, name: &str, window: &Window, copies: u64) {
    let asked = &window.asked;
    line(text, name, window, asked.all(), Some(asked.flushes));
    let (reads, writes) = (window.page_reads * copies * SLOTS, window.page_writes * copies);
    let tables = Commands {
        reads,
        writes,
        durable_writes: 0,
        read_bytes: reads * BLOCK_BYTES,
        write_bytes: writes * BLOCK_BYTES,
    };
    line(text, "data", window, asked.slabs.since(tables), None);
    line(text, "tables", window, tables, None);
    line(text, "log", window, asked.log, None);
    line(text, "map", window, asked.map, None);
    line(text, "labels", window, asked.labels, None);
}

fn line(text: &mut String, name: &str, window: &Window, commands: Commands, flushes: Option<u64>) {
    let per = |count: u64| ratio(count, window.writes);
    let count = flushes.map(|_| window.writes.to_string()).unwrap_or_default();
    let ios = per(commands.reads + commands.writes + flushes.unwrap_or_default());
    let flushes = flushes.map(|flushes| format!("{:.3}", per(flushes))).unwrap_or_default();
    let _ = writeln!(
        text,
        "{name:>12} {count:>9} {ios:>7.3} {:>7.3} {:>7.3} {flushes:>8} {:>8.3} {:>8.0} {:>8.0}",
        per(commands.reads),
        per(commands.writes),
        per(commands.durable_writes),
        per(commands.read_bytes),
        per(commands.write_bytes)
    );
}

/// How fast it was, and when.
fn rate(text: &mut String, outcome: &Outcome) {
    let (sustained, looks) = (&outcome.sustained, &outcome.looks);
    let rate = ratio(sustained.writes * SECOND_NS, sustained.nanoseconds);
    let _ = writeln!(
        text,
        "\nsustained for {:.0} s: {}; in place meanwhile: {:.0} %",
        ratio(sustained.nanoseconds, SECOND_NS),
        speed(rate),
        100.0 * ratio(sustained.destaged_bytes, sustained.writes * BLOCK_BYTES)
    );
    if let Some(rates) = rates(looks) {
        let (first, last) = (speed(rates.first), speed(rates.last));
        let _ = writeln!(text, "first {:.0} s: {first}; last {:.0} s: {last}", rates.seconds, rates.seconds);
        let of_windows: Vec<String> = windows(looks).iter().map(|rate| format!("{rate:.0}")).collect();
        let _ = writeln!(text, "IO/s by tenths of that time: {}", of_windows.join(" "));
    }
    let waiting = looks.iter().map(|look| look.waiting_bytes);
    let (least, most) = (waiting.clone().min().unwrap_or(0), waiting.max().unwrap_or(0));
    let _ = writeln!(text, "in the write cache meanwhile: {} to {}", Bytes(least), Bytes(most));
    let _ = writeln!(
        text,
        "filled in {:.0} s; put in place at the end in {:.0} s; {} blocks compared after opening again: all are what was written last",
        ratio(outcome.fill_nanoseconds, SECOND_NS),
        ratio(outcome.quiesce_nanoseconds, SECOND_NS),
        outcome.compared
    );
}

fn speed(rate: f64) -> String {
    format!("{rate:.0} IO/s, {:.1} MB/s", rate * 4096.0 / 1e6)
}

fn rate_between(from: &Look, to: &Look) -> f64 {
    ratio((to.writes - from.writes) * SECOND_NS, to.nanoseconds - from.nanoseconds)
}

/// Of the first and the last minute; of halves, where it was shorter than two.
fn rates(looks: &[Look]) -> Option<Rates> {
    let (first, last) = (looks.first()?, looks.last()?);
    let span = ((last.nanoseconds - first.nanoseconds) / 2).min(MINUTE_NS);
    let until = looks.iter().take_while(|look| look.nanoseconds - first.nanoseconds <= span).last()?;
    let from = looks.iter().find(|look| last.nanoseconds - look.nanoseconds <= span)?;
    if until.nanoseconds == first.nanoseconds || from.nanoseconds == last.nanoseconds {
        return None;
    }
    let (first, last) = (rate_between(first, until), rate_between(from, last));
    Some(Rates { seconds: ratio(span, SECOND_NS), first, last })
}

fn windows(looks: &[Look]) -> Vec<f64> {
    let steps = looks.len().saturating_sub(1);
    let bounds: Vec<usize> = (0..=WINDOWS).map(|nth| nth * steps / WINDOWS).collect();
    let of = |pair: &[usize]| match pair {
        [from, to] if from < to => Some(rate_between(looks.get(*from)?, looks.get(*to)?)),
        _ => None,
    };
    bounds.windows(2).filter_map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::areas::Asked;

    fn looks(rates: &[u64]) -> Vec<Look> {
        let mut look = Look { nanoseconds: 5 * SECOND_NS, writes: 7, waiting_bytes: 0 };
        let mut looks = vec![look];
        for rate in rates {
            look = Look { nanoseconds: look.nanoseconds + SECOND_NS, writes: look.writes + rate, ..look };
            looks.push(look);
        }
        looks
    }

    #[test]
    fn rates_are_of_the_first_and_the_last_minute_and_of_tenths() {
        let mut seconds = vec![300; 60];
        seconds.extend([200; 80]);
        seconds.extend([100; 60]);
        let found = rates(&looks(&seconds)).unwrap();
        assert_eq!((found.first.round(), found.last.round(), found.seconds.round()), (300.0, 100.0, 60.0));
        let tenths: Vec<f64> = windows(&looks(&seconds)).iter().map(|rate| rate.round()).collect();
        assert_eq!(tenths, [300.0, 300.0, 300.0, 200.0, 200.0, 200.0, 200.0, 100.0, 100.0, 100.0]);
        let short = rates(&looks(&[400, 300, 200, 100])).unwrap();
        assert_eq!((short.first.round(), short.last.round()), (350.0, 150.0));
        assert!(rates(&looks(&[])).is_none());
    }

    fn outcome(sustained: (u64, u64), all: (u64, u64)) -> Outcome {
        let window = |(writes, ios): (u64, u64)| Window {
            writes,
            asked: Asked { flushes: writes * ios, ..Asked::default() },
            ..Window::default()
        };
        Outcome {
            cache_bytes: 100 * BLOCK_BYTES,
            sustained: window(sustained),
            all: window(all),
            ..Outcome::default()
        }
    }

    #[test]
    fn a_window_over_the_limit_fails_unless_it_is_too_short_to_report() {
        let is_within = |sustained, all| check(&outcome(sustained, all), 5.5).is_ok();
        assert!(is_within((100, 5), (200, 5)));
        assert!(!is_within((100, 6), (200, 5)) && !is_within((100, 5), (200, 6)));
        assert!(is_within((99, 6), (200, 5)), "shorter than the cache");
    }
}
