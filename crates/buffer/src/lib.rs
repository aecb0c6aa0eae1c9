//! Buffers: memory that is aligned for direct I/O, taken from a pool made once, and owned by whoever may touch it.
//!
//! A request to the kernel survives the future that made it: if that future is dropped while the disk still writes
//! into its memory, freeing the memory would be a use after free. So a buffer is a handle. The driver holds one from
//! submission to completion, and memory returns to the [`Arena`] only when the last handle is gone.
//!
//! - [`Buffer`] is the only handle to a range of bytes: it may be written, split and joined.
//! - [`Shared`] is one of many handles to a range that nobody may write any more: it may be cloned and sliced, so that
//!   one payload goes to every copy of a mirror without being copied in memory.
//!
//! An arena is one contiguous region, so that it can be registered with the kernel as a whole. Nothing of it allocates
//! after it was made, nothing is thread-safe, and nothing needs to be: an arena belongs to one core.
//!
//! Invariant: every byte of a frame belongs to at most one `Buffer`, or to any number of `Shared`, never to both.
#![allow(unsafe_code)]

mod arena;
mod handle;
mod scratch;
mod zeros;

pub use arena::{Arena, ArenaConfig, ArenaCounters, Take};
pub use handle::{Buffer, Shared};
pub use scratch::Scratch;
pub use zeros::is_zeros;

/// Alignment of every frame: the largest logical block that direct I/O asks for.
pub const ALIGN_BYTES: usize = 4096;
/// The largest buffer that an arena lends in one piece.
pub const FRAME_BYTES_MAX: usize = 1 << 20;
