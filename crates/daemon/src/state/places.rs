//! Disks in use, and what lies where absent ones were.

use dolmen_units::Bytes;

use crate::state::identity::Identity;

/// A disk in use.
#[derive(Debug, Clone)]
pub(crate) struct Held {
    /// What it is called.
    pub(crate) name: String,
    /// What it is.
    pub(crate) identity: Identity,
    /// How long it was when it was opened.
    pub(crate) capacity: Bytes,
}

/// What is at a place where a disk was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Occupant {
    Nothing,
    /// A file of this length.
    File(Bytes),
    /// A device, or what else is no file.
    Other,
}
