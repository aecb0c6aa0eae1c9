//! The parts of the simulator: what a seed draws, what clients do, who judges them, and what befalls the daemon.
#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    clippy::too_many_lines
)]

pub mod by_layout;
pub mod client;
pub mod conversion;
pub mod daemon_run;
pub mod jobs;
pub mod operator;
pub mod oracle;
pub mod removal;
pub mod run;
pub mod settings;
pub mod setup;
pub mod tally;
pub mod unrest;
