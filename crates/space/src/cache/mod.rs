//! The write cache of strict rows with parity: what lies in it, and how it is put in place.

pub(crate) mod ahead;
pub(crate) mod cache_size;
pub(crate) mod cached_read;
pub(crate) mod destage;
pub(crate) mod drain;
pub(crate) mod drain_settings;
pub(crate) mod fill;
pub(crate) mod gather;
pub(crate) mod gathering;
pub(crate) mod kept;
pub(crate) mod promise;
pub(crate) mod redo;
pub(crate) mod relog;
pub(crate) mod shared;
pub(crate) mod space;
pub(crate) mod stripe_read;
pub(crate) mod write_cache;
