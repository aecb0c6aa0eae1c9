//! Documents of the API as text for people.
//!
//! Invariant: a view asks nothing of the daemon; it gets a document and writes to `terminal`.

pub(crate) mod benchmarks;
pub(crate) mod dedup;
pub(crate) mod history;
pub(crate) mod jobs;
pub(crate) mod load;
pub(crate) mod plan;
pub(crate) mod pools;
pub(crate) mod quotas;
pub(crate) mod room;
pub(crate) mod shares;
pub(crate) mod slab_map;
pub(crate) mod spaces;
pub(crate) mod status;
pub(crate) mod tables;
pub(crate) mod trash;
pub(crate) mod volumes;
pub(crate) mod why;
pub(crate) mod words;
