//! What is moved, converted, kept or given up, and when.

pub(crate) mod attributes;
pub(crate) mod cache_size;
pub(crate) mod caches;
pub(crate) mod changes;
pub(crate) mod conversion_shadow;
pub(crate) mod convert;
pub(crate) mod copies;
pub(crate) mod declare_lost;
pub(crate) mod destage_rounds;
pub(crate) mod emptying;
pub(crate) mod finish;
pub(crate) mod forecast;
pub(crate) mod handles;
pub(crate) mod members;
pub(crate) mod pool_spaces;
pub(crate) mod provision;
pub(crate) mod rebalance;
pub(crate) mod removal;
pub(crate) mod replacement;
pub(crate) mod reserve;
pub(crate) mod retiring;
pub(crate) mod scrub;
pub(crate) mod slab_targets;
pub(crate) mod sole_copy;
pub(crate) mod trash;
pub(crate) mod verify;
