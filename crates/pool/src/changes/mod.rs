//! Changes of the metadata in one durable step, the placement of rows, and checkpoints.

pub(crate) mod change;
pub(crate) mod checkpoints;
pub(crate) mod place;
pub(crate) mod sparing;
