//! The log of an open pool, and what checkpoints need of it.

pub(crate) mod blocks;
pub(crate) mod need;
pub(crate) mod pool_log;
