//! Creation and opening of a pool, and the open pool itself.

pub(crate) mod create;
pub(crate) mod open;
pub(crate) mod pool;
