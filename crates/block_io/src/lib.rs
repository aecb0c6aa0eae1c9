//! The four seams: [`BlockDevice`], [`Clock`], [`Entropy`], [`Spawner`], and what can be built on them alone.
//!
//! Everything above this crate that is not marked EDGE reaches the world through these traits only. That is what lets
//! the simulator run the very code that ships, under its own time, on disks that fail when it says so.
//!
//! All of it belongs to one thread. Futures are not `Send`, shared state is `Rc` and `Cell`, and no lock exists.
//! Another core is reached by a message, which the EDGE crates count.
//!
//! Invariant: no wall clock, no thread, no file, no socket in here or in any crate that is not EDGE.

mod clock;
mod completion;
pub mod conformance;
mod cores;
mod device;
mod executor;
mod memory;
mod meter;
mod queued;
pub mod ranks;
mod seams;
pub mod sync;

pub use clock::{Clock, Instant, sleep, within};
pub use completion::{CompletionKey, Completions, Outcome, Payload, Submission};
pub use device::{
    Action, BlockDevice, Command, DeviceError, Durability, Geometry, IoCounters, READ_HEDGE_DELAY, Zoning,
    discard, flush, read, read_within, write, write_zeroes,
};
pub use executor::{Executor, Spawner};
pub use memory::{MemoryClock, MemoryDevice};
pub use meter::{Figures, IoFigures, IoKind, Meter, Started, Totals};
pub use seams::{Entropy, Seams, fixed_entropy};
