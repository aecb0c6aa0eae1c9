//! What the engine keeps in memory and on record, of all pools and of each: types that know neither the engine nor an open pool.

pub(crate) mod absences;
pub(crate) mod backing;
pub(crate) mod emptyings;
pub(crate) mod events;
pub(crate) mod failing;
pub(crate) mod filling;
pub(crate) mod history;
pub(crate) mod latencies;
pub(crate) mod listeners;
pub(crate) mod locates;
pub(crate) mod places;
pub(crate) mod smarts;
pub(crate) mod transports;
