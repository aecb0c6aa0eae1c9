//! The metadata map of an open pool and the edits that the log keeps of it.

pub(crate) mod edits;
pub(crate) mod map;
