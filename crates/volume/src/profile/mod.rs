//! What a volume is for.

mod purpose;

pub use purpose::{ParsePurposeError, Purpose};
