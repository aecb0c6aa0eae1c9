//! Fuzzing: what comes from disks, clients and people, as bytes and as lists of actions.
//!
//! A [`Target`] is a plain function of bytes. It has an oracle that is stronger than "it did not panic", and panics itself where
//! that is broken. Whoever has bytes can drive it: the seeded tests of this crate, which replay the corpus and mutate it, or a
//! fuzzer that is led by coverage (`scripts/fuzz.sh`). docs/fuzzing.md says what each target demands.
//!
//! Invariant: a target is a function of its bytes alone. The same bytes do the same, on every machine.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation
)] // a target may fail: that is what it is for

mod actions;
mod api;
mod content;
mod edits;
mod image;
mod lab;
mod labels;
mod log;
mod log_reference;
mod map;
pub mod mutate;
mod nbd;
mod script;
mod seal;
mod tables;

use std::error::Error;

use dolmen_causes::in_one_line;

/// How far an input came.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reached {
    /// It was refused, with a reason.
    Refused,
    /// It was taken, and all that is demanded of it held.
    Held,
}

/// Something to be fuzzed.
#[derive(Debug, Clone, Copy)]
pub struct Target {
    /// Its name: that of its folder in the corpus, and of its test.
    pub name: &'static str,
    /// Tries an input; panics where the oracle is broken.
    pub run: fn(&[u8]) -> Reached,
    /// Inputs to begin with, beside the corpus.
    pub seeds: fn() -> Vec<Vec<u8>>,
}

/// All targets.
pub const TARGETS: [Target; 8] = [
    Target { name: "labels", run: labels::run, seeds: labels::seeds },
    Target { name: "map", run: map::run, seeds: map::seeds },
    Target { name: "log", run: log::run, seeds: log::seeds },
    Target { name: "tables", run: tables::run, seeds: tables::seeds },
    Target { name: "image", run: image::run, seeds: image::seeds },
    Target { name: "actions", run: actions::run, seeds: actions::seeds },
    Target { name: "nbd", run: nbd::run, seeds: nbd::seeds },
    Target { name: "api", run: api::run, seeds: api::seeds },
];

/// The target with this name.
#[must_use]
pub fn target(name: &str) -> Option<Target> {
    TARGETS.into_iter().find(|target| target.name == name)
}

/// A refusal: its reason is one line, and says something.
pub(crate) fn named(error: &dyn Error) -> Reached {
    let text = in_one_line(error);
    assert!(!text.trim().is_empty(), "a refusal without a reason: {error:?}");
    assert!(!text.contains('\n'), "a reason of several lines: {text:?}");
    Reached::Refused
}
