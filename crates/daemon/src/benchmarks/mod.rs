//! Benchmarks of spaces: `dolmen bench` as a process of the daemon, one at a time.
//!
//! | file | content |
//! |---|---|
//! | `service` | requests: what is refused, the job, the list |
//! | `process` | the process: its rehearsal, its progress, its end |
//! | `reports` | reports in the state folder |
//!
//! The command line measures, so that figures of the console and of a terminal come from one implementation. The network names spaces
//! of open pools and built-in profiles, and neither devices nor files.
//!
//! Invariants:
//! - Nothing is begun that the command has not accepted as a dry run.
//! - The kernel ends the process with the daemon, and fio with the process.
//! - A report that is listed is whole.

mod process;
mod reports;
mod service;

pub(crate) use service::{BenchJob, Benchmarks};
