//! A way back from damaged metadata: what the disks of a pool still hold, read without a daemon and without a write.
//!
//! The engine reads; a rescue only puts the metadata in front of it that it reads by. Whatever differs from what stands on the
//! disks lies in an overlay in memory (`dolmen_check::Overlay`). docs/design/0019 says what can be trusted when what is gone.
//!
//! - [`scan`] tells what is there: labels, members, checkpoints, the log, spaces; and slabs, where it reads whole disks.
//! - [`open`] opens a pool in one of four [`RescueMode`]s, and says of which moment it is.
//! - [`Export`] gives a space piece by piece, and names what cannot be given.
//! - [`dump`] shows any structure.
//!
//! Invariants:
//! - Nothing is written to a device.
//! - A byte that is given is what the pool would have given at the moment that is named; else its range is called bad.
//! - What is not certain is said: a [`Note`] for the whole, a bad or doubtful range for a part.

pub mod dump;
mod error;
mod export;
mod gather;
mod open;
mod point_in_time;
mod rebuild;
mod scan;
mod slabs;
mod weigh;

pub use error::RescueError;
pub use export::{BadKind, BadRange, Export, Piece};
pub use gather::Note;
pub use open::{FoundSpace, Options, RescueMode, Rescued, open};
pub use point_in_time::PointInTime;
pub use scan::{
    CheckpointScan, DeviceScan, LogScan, MemberScan, PoolScan, ScanReport, SlabsScan, SpaceScan, scan,
};
pub use slabs::Depth;
