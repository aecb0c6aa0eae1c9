//! The offline check of pools: labels, metadata, map and every block.
//!
//! Nothing is written to a disk. A pool that was not closed has writes under way in its log, and only recovery can say
//! which content is right; so each disk is put behind an [`Overlay`], which keeps writes in memory, and the pool is opened
//! on those exactly as the daemon would open it. What is checked is therefore what the daemon would serve.
//!
//! Every deviation is a [`Finding`] with a number that stays the same for ever.

mod check;
mod explain;
mod finding;
mod overlay;

pub use check::{CheckError, CheckOptions, Depth, FINDINGS_MAX, PoolReport, Report, check};
pub use explain::{EXPLAINED, Explained};
pub use finding::{Finding, FindingKind};
pub use overlay::{OVERLAY_BYTES_MAX, Overlay};
