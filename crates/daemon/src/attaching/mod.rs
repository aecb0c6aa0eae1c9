//! Spaces attached to this host, and detached.

mod attach;
mod detach;
mod kernel;
mod transports;

pub(crate) use attach::{Leave, SpaceAttachments};
pub(crate) use transports::KernelTransports;
