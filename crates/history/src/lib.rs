//! History of the figures of a pool, its spaces and its disks, at falling resolution (docs/design/0040).
//!
//! ```text
//! sample, every 10 s ─ note ─ current point of 10 s ─ of 1 min ─ of 10 min ─ of 1 h ─ of 1 day
//!                                   │ complete          │            │           │        │
//!                                 slots of ring       slots        slots       slots    slots
//! ```
//!
//! A [`Point`] says what an object did in a stretch of time. Points fold: sums are added, the least and the most are kept, and
//! latency counts are added bucket by bucket, so a percentile of an hour is one of the requests, not a mean of percentiles. A
//! [`Recorder`] folds samples and puts complete points into *slots* of at most 3,072 bytes. Slots of one resolution and one group
//! of objects form a [`ring`](SlotKey): the oldest go first.
//!
//! Invariants:
//! - A damaged slot loses the points in it, and no others.
//! - All slots together take at most the budget, whatever the number of objects and their load.
//! - What was saved and loaded again goes on as if it had not been.
//! - Bytes from a disk never cause a panic, nor work or memory without a bound, whatever their checksum says.
//! - A save that is cut short anywhere leaves what was saved before it, or all of it.
//!
//! Left to others: sampling, and where slots lie.

mod bounds;
mod codec;
mod forecast;
mod index;
mod latencies;
mod level;
mod point;
mod question;
mod recorder;
mod ring;
mod sample;
mod slot;
#[cfg(test)]
mod tests;

pub use bounds::{HISTORY_BYTES_MAX, REWRITES_MAX, budget_of};
pub use forecast::{Fill, Use, forecast};
pub use index::{Index, Rebuilding, SlotKey};
pub use latencies::Latencies;
pub use level::{LEVELS, Level};
pub use point::{Gauge, Object, Point, Requests, Span};
pub use question::{Found, Question, Reach, Unsaved};
pub use recorder::{Points, Recorder, Saving};
pub use sample::{Sample, read_samples, write_sample};
pub use slot::{Entry, SLOT_BYTES_MAX, begin_of, parse_slot};
