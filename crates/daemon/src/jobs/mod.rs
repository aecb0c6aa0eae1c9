//! The service of jobs: numbers, order, throttling, progress and record of long work (docs/design/0011).
//!
//! Nothing here knows a kind of job, a pool or the engine: what a kind says of itself comes through [`kind::Kind`], and what a
//! pool has for its jobs is its slot.

mod aim;
mod course;
mod entry;
mod kind;
mod limits;
mod record;
mod registry;
pub(crate) mod share;
mod slot;
#[cfg(test)]
mod tests;

pub(crate) use aim::Aim;
pub(crate) use course::Course;
pub(crate) use entry::{Entry, JobView, Outcome, Start, has_ended};
pub(crate) use kind::{Kind, OwnState, Rank};
pub(crate) use record::{
    Content, JobFiles, OWN_TEXT_MAX, TEXT_BYTES_MAX, VOLUME_TEXT_MAX, kept, read, seconds_now,
};
pub(crate) use registry::{JobPool, Jobs};
pub(crate) use slot::JobSlot;
