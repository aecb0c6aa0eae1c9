//! Reads and writes of one row: copies, stripes, headers, and who misses what.

pub(crate) mod absence;
pub(crate) mod copies;
pub(crate) mod flusher;
pub(crate) mod header;
pub(crate) mod parts;
pub(crate) mod read_hedging;
pub(crate) mod room;
pub(crate) mod segments;
