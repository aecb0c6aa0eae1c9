//! Pools: made, opened, closed, watched, and evened out.

mod changes;
mod history;
mod opening;
mod rebalance;
mod resync;
mod watch;
mod widening;

pub(crate) use rebalance::RebalanceJob;
#[cfg(test)]
pub(crate) use rebalance::even_out;
pub(crate) use resync::ResyncJob;
