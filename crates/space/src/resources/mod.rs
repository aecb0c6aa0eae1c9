//! Locks, budgets and progress, which know no row.

pub(crate) mod bucket;
pub(crate) mod clients;
pub(crate) mod events;
pub(crate) mod failed_reads;
pub(crate) mod fast_disks;
pub(crate) mod flow;
pub(crate) mod forming;
pub(crate) mod hedge_delay;
pub(crate) mod locks;
pub(crate) mod minimum_rate;
pub(crate) mod progress;
pub(crate) mod ranks;
pub(crate) mod share;
pub(crate) mod streams;
pub(crate) mod throttle;
pub(crate) mod tickets;
