//! One operation on a volume in a process of its own: file systems are made, mounted, grown, trimmed, checked, deduplicated and
//! compacted here.
//!
//! The daemon serves the devices that volumes lie on. If it called into their file systems itself, such a call could wait for an
//! answer that only the daemon gives. So it starts this program, which may wait, hang or be killed alone.
//!
//! Invariants:
//! - An operation asks first whether its result is there, so that it can be asked for again after any death.
//! - Nothing is written to a device that holds anything but zeros, or a file system with the UUID that the order names.
//! - Long operations change files by requests to share alone, which the file system grants for equal bytes.
//! - A file system is made, checked and mounted on the device that the order means, and on no later one with its number.
//! - Two workers never have one volume: each holds the lock file that its order names.

mod balance;
mod compaction;
mod content;
mod device;
mod free_room;
mod grow;
mod kernel_errors;
mod leading;
mod limits;
mod make;
mod mount;
mod names;
mod process;
pub mod protocol;
mod quotas;
mod row_map;
mod run;
mod scrub;
pub mod shares;
mod sharing;
mod state_folder;
mod steering;
mod tool;
mod volume_files;

pub use device::incarnation_of;
pub use process::be_usual;
pub use run::run;
