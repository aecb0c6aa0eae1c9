//! The conversation of one command with the daemon: requests, consent, jobs to wait for.

pub(crate) mod change;
pub(crate) mod client;
pub(crate) mod disks;
pub(crate) mod job_watch;
pub(crate) mod poll_interval;
pub(crate) mod repeat;
