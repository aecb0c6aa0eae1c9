//! The exposition against a strict parser of its format, as properties over documents of any content.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::cast_possible_wrap)] // tests: a panic is a failure

mod documents;
mod golden;
mod parser;
mod properties;
mod values;
