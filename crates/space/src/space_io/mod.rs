//! Reads, writes and discards of spaces.

pub(crate) mod discard;
pub(crate) mod forming;
pub(crate) mod full_stripe;
pub(crate) mod read;
pub(crate) mod request;
pub(crate) mod row_write;
pub(crate) mod stripes_at_once;
pub(crate) mod write;
