//! Commands against a daemon that is played: every question and every answer is known.
// The played daemon runs on a thread of its own, because the command waits for it.
// Helpers of tests unwrap and index as tests do.
#![allow(clippy::disallowed_methods, clippy::unwrap_used, clippy::indexing_slicing)]

mod benchmarks;
mod changes;
pub(crate) mod fake;
mod history;
mod images;
mod load;
mod manual;
mod plans;
mod repetition;
mod sight;
mod slab_map;
mod trouble;
mod views;
