//! Spaces attached as ublk devices: the daemon is the driver of the block device, and the kernel keeps the device and
//! its requests when the daemon dies.
//!
//! [`Devices`] makes and unmakes them and takes up what a daemon before has left; the engine is reached through
//! [`Host`]. What is on record, in which order, and what each crash leaves: `docs/design/0006-ublk.md`.
//!
//! ```text
//! file system on the space ─ /dev/ublkbN ═ queue's thread ─ Host ─ engine
//!                                ╚════ content: /dev/ublkcN ═════════╝
//! ```
//!
//! # Memory, and why this does not lock up
//! As in crate `fuse`: the queue's thread allocates nothing for a request, is an I/O flusher, and the daemon's memory is
//! locked. There are no buffers here: content goes between the pages of the kernel's client and the engine's arena.
//!
//! Invariant: no thread of this process waits for I/O of an attached space in the kernel: it could not be killed, and the
//! next daemon, which would answer, waits for its end. Devices of daemons are not read to see what is on them, and not
//! synced.
//!
//! Invariant: a thread that holds a lock of this crate never waits for I/O on an attached space, except the caller of
//! [`Devices`], whose lock neither a queue's thread nor an answer ever takes.
#![allow(unsafe_code)]

mod abandoned;
mod control;
mod devices;
mod queue;
mod record;
mod request;
mod start;
mod wire;

pub use abandoned::{Abandoned, ClearError};
pub use control::{Unusable, is_attached_space};
pub use devices::{AttachError, Attached, DetachError, DeviceError, Devices, DevicesConfig};
pub use queue::QueueCounters;
pub use record::{Attachment, Made, Record, RecordError, RecordFile};
pub use request::{Host, IO_BYTES_MAX, Operation, Request};
pub use start::{StartError, TakenUp, Waiting};

/// Requests of a device that the kernel has outstanding, at most.
pub const DEPTH: u16 = 128;

/// Devices of one daemon, at most: so that the requests of all of them find room where the engine gets them from.
pub const DEVICES_MAX: usize = 30;
