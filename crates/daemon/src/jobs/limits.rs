//! Limits of the number of jobs.

/// Jobs that ended and are still remembered, at most.
pub(crate) const ENDED_MAX: usize = 64;
/// Jobs of a pool that have not ended, at most, of those that somebody asks for.
pub(crate) const RUNNING_MAX: usize = 64;
/// The same of all pools.
pub(crate) const UNFINISHED_MAX: usize = 256;
