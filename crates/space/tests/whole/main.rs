//! What is true of pools as a whole: over whole lives, at every crash, between two hosts, and where they are large.
//!
//! One program for all of it: whoever drives the engine compiles most of it anew, and it is run as users have it.

#[path = "../harness/mod.rs"]
mod harness;
mod judge;
mod life;
mod sim;
mod tape;

mod crash;
mod futures;
mod hosts;
mod scale;
mod simulator;
mod write_costs;
