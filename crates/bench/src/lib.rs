//! The measuring stick: what a device, a file or an export does under load, in figures that can be compared.
//!
//! `fio` makes the load; this crate decides what is asked of it, reads what it answers and says what that means. A
//! [`Plan`] is a list of [`Step`]s over [`Profile`]s and [`Target`]s, [`measure`] walks it with a [`Generator`], and a
//! [`Report`] is shown as JSON ([`serde`]), as [`table`] for CSV and as a [`page`]. What each figure means, and how it is
//! made, stands in `docs/bench.md`.
//!
//! The operating system is left to others: who starts `fio`, looks at devices and asks before anything is overwritten.
//! So the tests run on what `fio` once answered.
//!
//! Invariants:
//! - Targets that are compared get the same load, with the same seed, one directly after another, in an order that turns
//!   round each time.
//! - A verdict on two targets is never given on fewer rounds than its method needs.
//! - No figure of a write stands alone: one with flushes stands beside it, and how many flushes there were is counted.

mod built_in;
mod fio;
mod job;
pub mod page;
mod plan;
mod profile;
mod profile_file;
mod report;
mod run;
mod stats;
pub mod table;
mod target;

pub use built_in::{GROUPS, Group, UnknownProfile, profiles_named};
pub use fio::{FioError, Latency, Measured, Sample, Share};
pub use job::{Engine, Fill, JobError, fill_job, step_job};
pub use plan::{FLUSH_WRITES_MAX, Flush, Plan, PlanError, ROUNDS_MAX, RUNTIME_S_MAX, Settings, Step};
pub use profile::{
    BLOCK_BYTES_MAX, LOADS_MAX, Load, Loads, OUTSTANDING_MAX, Pattern, Profile, ProfileError,
    UNDER_WAY_BYTES_MAX, WORKERS_MAX,
};
pub use profile_file::{FileError, FileFault, read_profiles};
pub use report::{
    Comparison, Ending, Facts, Idle, Knee, Machine, Place, Point, ProfileDocument, Report, Run,
    TargetDocument,
};
pub use run::{Answer, Event, Generator, Halt, Order, Outcome, measure};
pub use stats::{EQUAL_PERCENT, NOISY_PERCENT, ROUNDS_FOR_VERDICT, Ratio, Summary, Verdict};
pub use target::{Cache, CacheSize, Path, Target, TargetPath, WORKING_SET_FACTOR};
