//! The four seams on Linux: disks, time, randomness and tasks, on one io_uring per core.
//!
//! - [`Runtime`] runs the tasks of one thread, submits their requests in batches and reaps the answers.
//! - [`LinuxDevice`] is a disk, a partition or a file; [`in_use()`] says whether the kernel uses it already.
//! - [`unused_disks()`] lists the disks that nothing uses; [`MediumExtent`] tells whether two paths lead to one.
//! - [`DeviceStacks`] follows what a path lies on, down to an attached space.
//! - [`Listener`] and [`Socket`] are streams with payloads in the arena's buffers.
//! - [`Mailbox`] is how other threads reach the runtime.
//!
//! Where the system forbids io_uring, a bounded set of threads carries the same requests out (`DOLMEN_IO=threads` asks
//! for it); the same suite tests both.
//!
//! Invariant: memory that the kernel may touch belongs to the `reactor`, from submission to answer, whatever becomes of
//! the future that asked for it. When the answer never comes, the memory is given up, not freed.
//!
//! What is on a disk, and whether it may be overwritten, is the business of other crates.
#![allow(unsafe_code)]

mod clock;
mod cores;
mod device;
mod driver;
mod entropy;
mod errno;
mod geometry;
mod holder;
mod in_use;
mod mailbox;
mod medium;
mod open;
mod park;
mod path_name;
mod reach;
mod reactor;
mod runtime;
mod socket;
mod stack;
mod table;
mod threads;
mod unused;
mod uring;
mod work;

pub use device::{COMMAND_LIMIT, LinuxDevice};
pub use driver::DriverCounters;
pub use geometry::BlockAtomicity;
pub use holder::Holder;
pub use in_use::{InUse, SPACES_FILE_SYSTEM, Use, in_use, mounted_elsewhere};
pub use mailbox::{Awaited, Inbox, MAILBOX_MESSAGES_MAX, Mailbox, NoReply, PostError, Reply, reply};
pub use medium::{MediumExtent, by_medium};
pub use open::{FileLimit, OpenError, OpenOptions};
pub use path_name::{name_of, path_of, unescaped};
pub use runtime::{
    CLOSE_LIMIT, DRIVER_VARIABLE, DriverChoice, Handle, Runtime, RuntimeConfig, RuntimeCounters,
    RuntimeError, driver_asked_for,
};
pub use socket::{Family, Listener, SEND_PIECES_MAX, Socket, SocketError};
pub use stack::{DeviceStacks, IsSpace, OnSpace};
pub use unused::{UnusedDisk, is_read_only, unused_devices, unused_disks};
