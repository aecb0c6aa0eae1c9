//! Alerts as callers use them.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::cast_possible_wrap)] // tests: a panic is a failure

mod host;
mod model;
mod renderings;
mod saved;
mod scenarios;
