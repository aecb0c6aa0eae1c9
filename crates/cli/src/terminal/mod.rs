//! The terminal: streams, colour, tables, and lines that fit.

pub(crate) mod out;
pub(crate) mod paint;
pub(crate) mod table;
pub(crate) mod wrap;
