//! What the transports of attached spaces share.
//!
//! A transport shows a space to this host as a disk: `fuse` over a loop device, `ublk` as a device of its own. Both name a space by
//! the same [`SpaceKey`], answer requests with the same [`Fault`]s, put the same links into a folder ([`link`]), and look for the
//! same [`Holder`]s before they detach. Both give results from any thread to the thread of a ring, over a [`Board`].
//!
//! Left to others: what a device is, its record, and how it survives the daemon.

mod board;
mod cores;
mod holders;
mod links;
mod space;

pub use board::{Board, Wait, enter};
pub use holders::{Holder, LOOKS_MAX, PAUSE, holders, lasting_holders, list, pause};
pub use links::{link, unlink};
pub use space::{Access, Fault, SpaceKey, Wanted};
