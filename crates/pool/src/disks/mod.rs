//! Disks and devices: labels found on them, their preparation, and I/O to the slabs of a member.

pub(crate) mod condition;
pub(crate) mod discover;
pub(crate) mod disk;
pub(crate) mod prepare;
