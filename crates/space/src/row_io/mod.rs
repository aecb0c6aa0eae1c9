//! Reads and writes of one row: copies, stripes, headers, and who misses what.

pub(crate) mod absence;
pub(crate) mod block_log;
pub(crate) mod copies;
pub(crate) mod flusher;
pub(crate) mod header;
pub(crate) mod parts;
pub(crate) mod read_hedging;
pub(crate) mod room;
pub(crate) mod segments;
pub(crate) mod stripe_places;
pub(crate) mod table_writes;
pub(crate) mod write_executor;
