//! Plans of writes: where whole blocks of a row go, decided from facts, without I/O.
//!
//! Invariant: a plan never overwrites content that a flush has covered where the write cache has to take it, and never writes below
//! content that is cached.

/// How a block may be written, by the most that it holds; see docs/design/0002.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum WriteClass {
    /// Durably never written: data and record at once.
    Fresh,
    /// Written since the last flush, with nothing flushed below: record, then data.
    Rewrite,
    /// Flushed content below: durable record, then data.
    Overwrite,
}

/// What a plan needs to know of the blocks of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WriteFacts {
    /// The most demanding class of these blocks.
    pub(crate) class: WriteClass,
    /// Whether the write cache has a version of one of them, or has not finished destaging one.
    pub(crate) is_cached: bool,
    /// Whether flushed content may be overwritten by way of the write cache alone.
    pub(crate) is_strict: bool,
    /// Whether they are whole stripes with a slot that holds nothing.
    pub(crate) has_free_slot: bool,
}

/// What becomes of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WritePlan {
    /// To its place, in the order of its class.
    InPlace,
    /// To the write cache.
    Cached,
    /// To a free slot as whole stripes, computed columns included.
    WholeStripes,
}
