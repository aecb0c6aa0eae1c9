//! The write cache of strict rows with parity: what lies in it, and how it is put in place.

pub(crate) mod ahead;
pub(crate) mod block_discard;
pub(crate) mod cache_size;
pub(crate) mod cached_blocks;
pub(crate) mod cached_read;
pub(crate) mod destage;
pub(crate) mod drain;
pub(crate) mod fill;
pub(crate) mod gather;
pub(crate) mod promise;
pub(crate) mod recycle;
pub(crate) mod relog;
pub(crate) mod segment_copies;
pub(crate) mod segment_io;
pub(crate) mod segments;
pub(crate) mod stripe_read;
pub(crate) mod write_cache;
