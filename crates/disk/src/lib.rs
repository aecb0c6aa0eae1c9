//! Disks: how a device becomes a member of a pool, and how it says so ever after.
//!
//! - [`Extent`]: which bytes of a device are labels, metadata and allocation units, fixed when it is claimed.
//! - [`Label`]: the pool, the disk, the epoch in force and the pending one, the members. Written to two slots at each end.
//! - [`look`]: what a device holds: a label of ours, somebody else's data, or nothing.
//!
//! Which copy of a label is valid after a crash: update *n* goes to slot *n* mod 2 at the front and at the back, then the
//! device is flushed. Until that flush the two slots of *n* − 1 are untouched. A reader takes the valid copy with the
//! highest sequence, so it sees *n* if any copy of it became durable, else *n* − 1.
//!
//! Invariant: a device that holds anything else is never written to before its owner was named and confirmed.

mod extent;
mod foreign;
mod format;
mod label;
mod label_io;

pub use extent::{
    DISK_BYTES_MIN, Extent, ExtentError, LOG_BYTES_MAX, LOG_BYTES_MIN, METADATA_AT, TAIL_BYTES,
};
pub use foreign::{Foreign, signature_of};
pub use format::{FORMAT_VERSION, LABEL_BYTES_MAX};
pub use label::{Generation, Label, LabelError, Medium, Member, MemberState, SEQUENCE_MAX};
pub use label_io::{
    Contents, LOOK_TIMEOUT, LabelIoError, clear_back_labels, look, renew_label, wipe, write_label,
};
