//! Free allocation units of the members.

pub(crate) mod free_map;
pub(crate) mod free_space;
