//! What is true of pools as a whole: over whole lives, at every crash, between two hosts, and where they are large.
//!
//! One program for all of it: whoever drives the engine compiles most of it again, and it is run as users have it.

mod crash_oracle;
#[path = "../harness/mod.rs"]
mod harness;
mod recorded_run;
mod recording;
mod sim;

mod crash;
mod futures;
mod hosts;
mod scale;
mod simulator;
mod write_costs;
