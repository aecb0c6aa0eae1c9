//! Locks, budgets and progress, which know no row.

pub(crate) mod bucket;
pub(crate) mod flow;
pub(crate) mod locks;
pub(crate) mod progress;
pub(crate) mod ranks;
pub(crate) mod throttle;
pub(crate) mod tickets;
