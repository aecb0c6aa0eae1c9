//! What threads share, run in every order that they could run in.
//!
//! Modules of other crates are compiled here again, with models in the place of what they take from `std` by way of their module
//! `cores`. Their own tests run them on real threads, which meet the orders that the machine of the moment likes.
//!
//! - [shuttle](https://github.com/awslabs/shuttle) runs one thread at a time and switches wherever they touch what they share: it finds
//!   what is wrong in an order of steps. All orders of the smaller tests are run, drawn ones of the others.
//! - [loom](https://github.com/tokio-rs/loom) knows that cores see writes of others later, in all the ways that the memory model
//!   allows: for what is not *sequentially consistent*.
#![allow(clippy::unwrap_used, clippy::missing_panics_doc, reason = "scenes of tests, which are in `tests`")]

pub mod orders;
pub mod weak;
