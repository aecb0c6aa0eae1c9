//! Samba.

mod name;

pub use name::{AccountName, NameError, ShareName};
