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
//!   with any voter of the epoch that its arbiter names.
//!
//! `DOLMEN_DEPTH` deepens the search.

mod explore;
mod state;

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
        export: if cfg!(feature = "bug-export-record-last") {
            ExportOrder::RecordLast
        } else {
            ExportOrder::RecordFirst
        },
    }
}

fn assert_found(outcome: &Outcome) {
    assert!(outcome.violation.is_some(), "no violation in {} states", outcome.states);
}

#[cfg(not(any(
    feature = "bug-commit-by-majority",
    feature = "bug-export-record-last",
    feature = "bug-stale-disk-wins",
    feature = "bug-foreign-half-writes"
)))]
mod shipping {
    use super::*;

    fn assert_holds(outcome: &Outcome) {
        println!("{} states", outcome.states);
        assert!(outcome.states > 10_000, "only {} states: the model hardly moved", outcome.states);
        assert_eq!(outcome.violation, None);
    }

    /// Every order of events without a confirmation: nothing served is lost, one writer, both live.
    #[test]
    fn no_order_of_events_loses_a_served_write_or_makes_two_writers() {
        assert_holds(&explore(shipped(depth(4))));
    }

    /// The same with random bits that happen to order equal numbers the other way round.
    #[test]
    fn the_order_of_random_bits_does_not_matter() {
        assert_holds(&explore(Bounds { nonces: Nonces::Descending, writes_max: 1, ..shipped(depth(4)) }));
    }

    /// With confirmations: sides that went apart are never merged, and none wins silently.
    #[test]
    fn after_a_confirmation_no_side_wins_silently() {
        assert_holds(&explore(Bounds { confirmations_max: 2, writes_max: 1, ..shipped(depth(4)) }));
    }

    /// Control: an export that withdraws the host's record after it wrote the disks makes two writers.
    #[test]
    fn control_an_export_that_withdraws_the_record_last_fails() {
        assert_found(&explore(Bounds { export: ExportOrder::RecordLast, writes_max: 0, ..shipped(6) }));
    }
}

#[cfg(feature = "bug-commit-by-majority")]
#[test]
fn a_commit_by_majority_is_caught() {
    assert_found(&explore(shipped(depth(6))));
}

#[cfg(feature = "bug-export-record-last")]
#[test]
fn an_export_that_withdraws_the_record_last_is_caught() {
    assert_found(&explore(shipped(depth(6))));
}

#[cfg(feature = "bug-stale-disk-wins")]
#[test]
fn a_stale_disk_that_wins_is_caught() {
    assert_found(&explore(shipped(depth(6))));
}

#[cfg(feature = "bug-foreign-half-writes")]
#[test]
fn a_foreign_half_that_writes_is_caught() {
    assert_found(&explore(shipped(depth(6))));
}
