//! What callers of the crate hold: spaces, and what is asked of them.

pub mod salvage;

pub(crate) mod space;
pub(crate) mod spaces;
pub(crate) mod upper;
