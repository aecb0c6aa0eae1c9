//! An exhaustive model of two hosts and three disks around the shipping decision.
//!
//! Breadth first over every order of: a disk moves (to a host or to the shelf), a host opens what it has, writes,
//! half writes and dies, votes an absent disk out, exports, crashes; each change of epoch stops after every
//! durable step. Where the shipping code refuses, a person may confirm. What must hold:
//!
//! - **served stays served**: an opening recovers everything that was ever served on its line of history;
//! - **one writer** a line;
//! - **nothing silent**: no opening ignores, unconfirmed, what a disk in front of it holds and once served;
//! - **liveness**: while nothing was ever confirmed, all disks together open anywhere, and the owner opens
//!   with any voter of the epoch that its arbiter names, also where another one has lost its label of it.
//!
//! `DOLMEN_DEPTH` sets how many events the orders have (4); `./test` goes to 6.

mod explore;
mod members;
mod state;

use dolmen_mutation::mutation;

use explore::{Bounds, ExportOrder, Nonces, Outcome, explore};

fn depth(usual: usize) -> usize {
    std::env::var("DOLMEN_DEPTH").ok().and_then(|text| text.parse().ok()).unwrap_or(usual)
}

fn shipped(depth: usize) -> Bounds {
    Bounds {
        depth,
        writes_max: 2,
        confirmations_max: 0,
        nonces: Nonces::Ascending,
        export: if mutation!(ExportRecordLast) { ExportOrder::RecordLast } else { ExportOrder::RecordFirst },
    }
}

fn assert_found(outcome: &Outcome) {
    assert!(outcome.violation.is_some(), "no violation in {} states", outcome.states);
}

fn assert_holds(what: &str, bounds: Bounds) {
    let outcome = explore(bounds);
    println!(
        "{what}: {} states by every order of up to {} events, {} events tried in them",
        outcome.states, bounds.depth, outcome.events
    );
    assert_eq!(outcome.violation, None);
    assert!(outcome.states > 10_000, "only {} states: the model hardly moved", outcome.states);
}

/// Every order of events without a confirmation: nothing served is lost, one writer, both live.
#[test]
fn no_order_of_events_loses_a_served_write_or_makes_two_writers() {
    assert_holds("nobody confirms", shipped(depth(4)));
}

/// The same with random bits that happen to order equal numbers the other way round.
#[test]
fn the_order_of_random_bits_does_not_matter() {
    let bounds = Bounds { nonces: Nonces::Descending, writes_max: 1, ..shipped(depth(4)) };
    assert_holds("other random bits", bounds);
}

/// With confirmations: sides that went apart are never merged, and none wins silently.
#[test]
fn after_a_confirmation_no_side_wins_silently() {
    let bounds = Bounds { confirmations_max: 2, writes_max: 1, ..shipped(depth(4)) };
    assert_holds("somebody confirms", bounds);
}

/// Control: an export that withdraws the host's record after it wrote the disks makes two writers.
#[test]
fn control_an_export_that_withdraws_the_record_last_fails() {
    assert_found(&explore(Bounds { export: ExportOrder::RecordLast, writes_max: 0, ..shipped(6) }));
}
