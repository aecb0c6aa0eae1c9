//! What is moved, converted, kept or given up, and when.

pub(crate) mod cache_size;
pub(crate) mod convert;
pub(crate) mod copies;
pub(crate) mod declare_lost;
pub(crate) mod emptying;
pub(crate) mod forecast;
pub(crate) mod provision;
pub(crate) mod rebalance;
pub(crate) mod removal;
pub(crate) mod replacement;
pub(crate) mod reserve;
pub(crate) mod slab_targets;
pub(crate) mod sole_copy;
pub(crate) mod spaces;
pub(crate) mod trash;
