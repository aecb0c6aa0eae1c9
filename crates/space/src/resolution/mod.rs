//! In-doubt resolution: what collects the facts that the tables of `in_doubt` decide by, and acts on their decisions.

pub(crate) mod cache_doubt;
pub(crate) mod checkpoint;
pub(crate) mod decided_rows;
pub(crate) mod holders;
pub(crate) mod in_flight;
pub(crate) mod log_forward;
pub(crate) mod mention;
pub(crate) mod reach;
pub(crate) mod recovery;
pub(crate) mod replay;
pub(crate) mod resolver;
pub(crate) mod row_recovery;
pub(crate) mod space_doubt;
