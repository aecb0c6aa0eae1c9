//! The store against models: what it holds, what survives a crash, what is healed, and what it costs.
// Helpers of tests are tests too, which clippy's own exemption does not see.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation
)]

mod cost;
mod crash;
mod damage;
mod model;
mod replicas;
mod room;
mod world;
