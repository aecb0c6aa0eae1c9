//! Plans of writes: where the blocks of a write go and in which order, decided from facts, without I/O.
//!
//! The executor that carries plans out comes with the new loop of the writer; until then the tests are their one caller.

use super::shape::PartPlan;
use crate::resources::locks::Range;

/// A write of whole blocks of one row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PlannedWrite {
    /// Blocks of the row.
    pub(crate) blocks: Range,
}

/// The most that any block of a write holds before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Content {
    /// Nothing was written.
    Nothing,
    /// Acknowledged content, which no flush has covered.
    Unflushed,
    /// Content that a flush has covered.
    Flushed,
}

/// Where whole stripes can go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StripeSlot {
    /// Nowhere: both slots may be needed.
    Taken,
    /// To the row itself.
    Own,
    /// To its shadow row.
    Other,
}

/// What a plan needs to know of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RowFacts {
    /// The most that any block of the write holds.
    pub(crate) content: Content,
    /// Whether the write cache has a version of a block of it, or has not finished destaging one.
    pub(crate) is_cached: bool,
    /// Whether flushed content may be overwritten by way of the write cache alone.
    pub(crate) is_strict: bool,
    /// Where the first stripe of the write can go.
    pub(crate) slot: StripeSlot,
    /// Where the stripes after it can go.
    pub(crate) next_slot: StripeSlot,
}

/// When the record of a write in place is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    /// Before the data.
    RecordFirst,
    /// Before the data, and durable before it.
    RecordDurable,
}

/// The slot that whole stripes go to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Slot {
    /// The row's own.
    Own,
    /// The shadow row's.
    Other {
        /// Whether the record names the row's own slot as the source of the switch.
        switches_from_own: bool,
    },
}

/// What becomes of a write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum WritePlan {
    /// In place, with a record beside it: nothing was there.
    Fresh(PartPlan),
    /// In place.
    InPlace {
        /// Where it goes.
        parts: PartPlan,
        /// When its record is written.
        order: Order,
    },
    /// To the write cache.
    Cached(Range),
    /// As whole stripes, computed columns included.
    WholeStripes {
        /// Where it goes.
        parts: PartPlan,
        /// The slot that it goes to.
        slot: Slot,
    },
    /// As two writes, of which the second begins at this block of the row: they go to different places.
    Split {
        /// First block of the second write.
        at: u32,
    },
}
