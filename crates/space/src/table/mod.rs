//! Rows, their pages and the mappings of what is cached.

pub(crate) mod candidates;
pub(crate) mod mapping;
pub(crate) mod moved;
pub(crate) mod moves;
pub(crate) mod moving;
pub(crate) mod page;
pub(crate) mod pages;
pub(crate) mod reserve;
pub(crate) mod row;
pub(crate) mod row_store;
