//! The simulator: whole lives of a pool, drawn from seeds. Disks fail in every way that redundancy can repair, the
//! daemon is killed, power fails; no acknowledged byte may be lost or wrong.
//!
//! `DOLMEN_SEEDS` says how many seeds to run, `DOLMEN_FIRST_SEED` where to begin, `DOLMEN_SEED` replays one and prints
//! the end of its trace; `DOLMEN_LENGTH` makes each life so many times as long, which are other lives then. `DOLMEN_TRACES`
//! prints the hash of each seed's trace: what does not change the order of anything leaves all of them as they are.
#![allow(clippy::unwrap_used, clippy::print_stdout, clippy::disallowed_methods)]

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::sim::by_layout::{FaultsByLayout, LayoutKind};
use crate::sim::run::{Report, run_seed_caught as run_seed};
use crate::sim::tally::{Rare, Tally};
use dolmen_sim::{FaultCounters, FaultKind};

/// Seeds that run unless set otherwise.
const SEEDS: u64 = 12;
/// Seeds that are run twice.
const SEEDS_TWICE: u64 = 8;
/// Seeds over which every kind of fault and every rare state has to be met.
const SEEDS_FOR_ALL: u64 = 200;
/// Seeds over which every kind of fault has to be met by every layout.
const SEEDS_FOR_EVERY_LAYOUT: u64 = 20_000;
/// A disk that remembers fences itself refuses delayed writes of older epochs. The engine does not ask a disk to: it fences its
/// own handle, for ever, and takes a disk back in by a new handle, which a disk with a memory of that would refuse too.
const CANNOT_HAPPEN: FaultKind = FaultKind::FencedDelayedWrite;
/// Lines of the trace that a failure shows.
const TRACE_LINES: usize = 60;
/// A long run says behind so many seeds how far it is.
const REPORTED_EVERY: usize = 500;
/// Failures after which a run stops.
const FAILURES_MAX: usize = 20;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// How many times as long as usual lives are.
fn length() -> u64 {
    number("DOLMEN_LENGTH").unwrap_or(1)
}

/// Whole lives under faults: everything that was acknowledged is there in the end, and at every read on the way.
#[test]
fn no_acknowledged_byte_is_lost_or_wrong() {
    let only = number("DOLMEN_SEED");
    let first = only.or(number("DOLMEN_FIRST_SEED")).unwrap_or(1);
    let count = if only.is_some() { 1 } else { number("DOLMEN_SEEDS").unwrap_or(SEEDS) };
    println!("seeds {first} to {}", first + count - 1);
    let began = std::time::Instant::now();
    let reports = run_all(first, count);
    let (mut faults, mut tally) = (FaultCounters::default(), Tally::default());
    let mut by_layout = FaultsByLayout::default();
    for report in &reports {
        faults += report.faults;
        by_layout += report.by_layout;
        tally.add(&report.tally);
        if std::env::var_os("DOLMEN_TRACES").is_some() {
            println!(
                "trace of seed {}: {:016x} after {} steps",
                report.seed, report.trace_hash, report.steps
            );
        }
    }
    let seconds = began.elapsed().as_secs_f64();
    println!("{faults}");
    println!("{tally:#?}");
    Rare::ALL.iter().for_each(|state| println!("{:<24}{:>12}", format!("{state:?}"), tally.of(*state)));
    let per_second = tally.operations as f64 / seconds;
    println!("by layout:\n{by_layout}");
    println!("{} seeds in {seconds:.1} s, {per_second:.0} operations of clients a second", reports.len());
    let failed: Vec<&Report> = reports.iter().filter(|report| report.failure.is_some()).collect();
    for report in &failed {
        let again = run_seed(report.seed, length(), if only.is_some() { 100_000 } else { TRACE_LINES });
        println!("\nseed {}: {}", report.seed, report.failure.as_deref().unwrap_or_default());
        again.trace.iter().for_each(|stripe| println!("    {stripe}"));
    }
    let seeds: Vec<u64> = failed.iter().map(|report| report.seed).collect();
    assert!(seeds.is_empty(), "failed: {seeds:?}; DOLMEN_SEED=n replays one, of the same DOLMEN_LENGTH");
    if count >= SEEDS_FOR_ALL {
        expect_everything(faults, tally);
    }
    if count >= SEEDS_FOR_EVERY_LAYOUT {
        let unseen: Vec<_> = by_layout.unseen(can_meet).collect();
        assert!(unseen.is_empty(), "faults that no space of a layout met: {unseen:?}");
    }
    for report in reports.iter().filter(|report| report.failure.is_none()) {
        assert!(
            report.tally.power_cuts > 0 && report.tally.losses > 0,
            "seed {} had it too easy",
            report.seed
        );
        assert!(report.tally.operations >= 1000 * length(), "seed {} did too little", report.seed);
    }
}

/// Whether a space of this layout can meet a fault in a life. Where there is one copy, nothing tells that all of it is as it was
/// some flushes ago, and nobody is to expect anything.
fn can_meet(layout: LayoutKind, kind: FaultKind) -> bool {
    kind != CANNOT_HAPPEN
        && !(layout.has_one_copy() && matches!(kind, FaultKind::DroppedFlush | FaultKind::ReturnedOld))
}

/// Over so many seeds, whatever can happen has happened.
fn expect_everything(faults: FaultCounters, tally: Tally) {
    let kinds = FaultKind::ALL.into_iter().filter(|kind| *kind != CANNOT_HAPPEN);
    let unseen: Vec<_> = kinds.filter(|kind| faults.of(*kind) == 0).collect();
    assert!(unseen.is_empty(), "faults that were never injected: {unseen:?}");
    assert_eq!(faults.of(CANNOT_HAPPEN), 0, "it can happen, and belongs among the others");
    let unseen: Vec<_> = Rare::ALL.into_iter().filter(|state| tally.of(*state) == 0).collect();
    assert!(unseen.is_empty(), "states that no life came through: {unseen:?}");
}

fn run_all(first: u64, count: u64) -> Vec<Report> {
    let next = AtomicU64::new(first);
    let reports = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..2.min(count) {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    let failures =
                        |reports: &Vec<Report>| reports.iter().filter(|r| r.failure.is_some()).count();
                    if seed >= first + count || failures(&reports.lock().unwrap()) >= FAILURES_MAX {
                        return;
                    }
                    let report = run_seed(seed, length(), 0);
                    if let Some(failure) = &report.failure {
                        println!("seed {seed} failed: {failure}");
                    }
                    let mut reports = reports.lock().unwrap();
                    reports.push(report);
                    if reports.len().is_multiple_of(REPORTED_EVERY) {
                        println!("{} of {count} seeds", reports.len());
                    }
                }
            });
        }
    });
    let mut reports = reports.into_inner().unwrap();
    reports.sort_by_key(|report| report.seed);
    reports
}

/// Each of these seeds twice does the same in the same order, whatever runs beside it, and no two of them do the same.
#[test]
fn a_seed_repeats_exactly() {
    let reported = |report: &Report| (report.seed, report.trace_hash, report.steps, report.failure.clone());
    let seen = || -> Vec<_> { run_all(1, SEEDS_TWICE).iter().map(reported).collect() };
    let (once, again) = (seen(), seen());
    assert_eq!(once.len() as u64, SEEDS_TWICE);
    assert_eq!(once, again);
    let hashes: BTreeSet<u64> = once.iter().map(|(_, hash, ..)| *hash).collect();
    assert_eq!(hashes.len(), once.len(), "two seeds did the same: {once:?}");
}
