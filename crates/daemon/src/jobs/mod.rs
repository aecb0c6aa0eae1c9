//! The service of jobs: numbers, order, throttling, progress and record of long work (docs/design/0011).
//!
//! Nothing here knows a kind of job, a pool or the engine: what a kind says of itself comes through [`kind::Kind`], and what a
//! pool has for its jobs is its slot.

pub(crate) mod aim;
pub(crate) mod course;
pub(crate) mod entry;
pub(crate) mod kind;
pub(crate) mod limits;
pub(crate) mod record;
pub(crate) mod registry;
pub(crate) mod share;
pub(crate) mod slot;
#[cfg(test)]
mod tests;
