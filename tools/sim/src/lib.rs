//! A seeded world: modelled disks that fail, virtual time, and an order of tasks that a seed draws.
//!
//! The engine runs here unchanged, on the seams that a [`World`] gives it. Everything that is left to chance outside is
//! drawn from the seed inside: which ready task runs, which command completes first, what fails, what a crash leaves.
//! The same seed gives the same run, which [`World::trace_hash`] shows; a seed that fails becomes a test.
//!
//! Two ways to crash. *Sampled*: [`World::run_to`] some point, [`World::kill`] or [`World::power_cut`], attach the disks
//! again. *Exhaustive*: [`World::record`] a run, then open every state that a crash at any of its [`Recorder::cuts`]
//! could have left.
//!
//! What a disk may do is what the contract of [`BlockDevice`](dolmen_block_io::BlockDevice) allows, used to the full,
//! and then the faults that no contract allows, by [`FaultKind`]: injected by rate or on demand, counted always.
//!
//! - Commands take effect when they complete, and may overtake each other; overlapping ones mix by unit.
//! - A [`SimDisk`] survives the process. What completed stays when the process dies; a power cut takes any of what was
//!   not durable.
//! - Faults of content lie over reads, beside an image of the truth, until their sectors are written; an [`Atlas`] keeps
//!   them within what redundancy can repair.
//!
//! Invariant: nothing here depends on the time of day, on addresses in memory, or on anything but seeds and calls.

mod agenda;
mod arenas;
mod atlas;
mod command;
mod crash;
mod damage;
mod disk;
mod disk_faults;
mod fault;
mod image;
mod profile;
mod random;
mod recorder;
#[cfg(test)]
mod tests;
mod trace;
mod world;

pub use atlas::{Atlas, AtlasGroup, DamagePolicy};
pub use crash::{CrashPlan, DRAWN_STATES, Fate, PendingWrite, SUBSETS_MAX, Tear, Tearing};
pub use disk::SimDisk;
pub use fault::{FaultCounters, FaultKind, FaultRates};
pub use image::Image;
pub use profile::{DiskProfile, FenceScope, LatencyModel, Request, SimpleLatency};
pub use random::{Random, Rate, Seeds};
pub use recorder::{BitFlip, CrashState, Cut, DelayedWrites, Recorder, Reopened, StateOptions};
pub use trace::{CommandKind, DiskIndex, TraceEvent};
pub use world::{Ran, StopAt, Stuck, StuckReason, World};
