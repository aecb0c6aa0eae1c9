//! One operation on a volume in a process of its own: file systems are made, mounted, grown, trimmed and checked here.
//!
//! The daemon serves the devices that volumes lie on. If it called into their file systems itself, such a call could wait for an
//! answer that only the daemon gives. So it starts this program, which may wait, hang or be killed alone.
//!
//! Invariants:
//! - An operation asks first whether its result is there, so that it can be asked for again after any death.
//! - Nothing is written to a device that holds anything but zeros, or a file system with the UUID that the order names.
//! - Two workers never have one volume: each holds the lock file that its order names.

mod content;
mod grow;
mod make;
mod mount;
pub mod protocol;
mod run;
pub mod shares;
mod tool;

pub use run::run;
