//! Pools: made, opened, closed, watched, and evened out.

mod arrivals;
mod changes;
mod ends;
mod history;
mod history_reads;
mod opening;
mod rebalance;
mod recording;
mod resync;
mod saved_history;
mod watch;
mod widening;

pub(crate) use arrivals::Arrivals;
pub(crate) use changes::PoolChanges;
pub(crate) use ends::PoolEnds;
pub(crate) use history_reads::HistoryReads;
pub(crate) use opening::Opening;
#[cfg(test)]
pub(crate) use rebalance::even_out;
pub(crate) use rebalance::{RebalanceJob, Rebalances};
pub(crate) use recording::Recordings;
pub(crate) use resync::{ResyncJob, Resyncs};
pub(crate) use watch::Tending;
pub(crate) use widening::Widths;
