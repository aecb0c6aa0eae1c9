//! Exhaustive crash models of the write protocols.
//!
//! A protocol is written down as a [`Script`]: writes, waits, flushes and notes of what was promised when. The
//! models play it up to every step, then let the power fail (any subset of the unflushed writes is on the disks,
//! blocks torn if they can tear) or the daemon die (completed writes are there, those in flight in any subset),
//! take disks away, flip a block, run the recovery rule and judge what is read.
//!
//! `schemes` compares ways to write, among them those that lose data: each is kept as a control that must
//! fail. `walk` takes a protocol through every short sequence of its operations, crashes it everywhere, recovery
//! included, and judges what is read. `write_path` is the protocol of simple and mirror spaces,
//! `parity` the one of parity rows, which no engine follows yet.
//!
//! The models are small: one block in flight and one beside it, two copies, few operations. They find holes in
//! rules; that the engine follows the rules is shown by the crash tests of crate `space`.

mod media;
#[cfg(test)]
mod parity;
#[cfg(test)]
mod schemes;
#[cfg(test)]
mod walk;
#[cfg(test)]
mod write_path;

pub use media::{Address, Media, Script, Step};
