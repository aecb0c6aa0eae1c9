//! Rows, their pages and the mappings of what is cached.

pub(crate) mod cache;
pub(crate) mod candidates;
pub(crate) mod drain_settings;
pub(crate) mod gathering;
pub(crate) mod kept;
pub(crate) mod mapping;
pub(crate) mod moved;
pub(crate) mod moves;
pub(crate) mod moving;
pub(crate) mod page;
pub(crate) mod pages;
pub(crate) mod place;
pub(crate) mod redo;
pub(crate) mod reserve;
pub(crate) mod row;
pub(crate) mod row_store;
pub(crate) mod shared;
pub(crate) mod space;
