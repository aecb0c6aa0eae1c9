//! Placement: which disks hold a row, and how much a set of disks can hold. Pure arithmetic.
//!
//! # The model
//! A disk offers free *allocation units* and belongs to a fault domain. A row is cut into interleaves that are dealt to its
//! data columns in turn, so that columns differ by one interleave at most. A striped row keeps every column on
//! `copies` disks; a parity row keeps every data column once and adds parity columns as long as the longest data
//! column. Every slab of a row lies on a disk of its own. What a slab needs beside its data is the caller's
//! business and comes in as a function from bytes to allocation units.
//!
//! *Groups* are what the rules speak of. Of a mirror, a group is a fault domain: no two copies of a column lie in
//! one group, and so a group holds at most one slab per column. Of parity, a group is a fault domain and holds at
//! most one slab of a row. Where there are fewer domains than the narrowest row needs, and where there is no
//! redundancy to protect, each disk is a group of its own.
//!
//! # How a row is chosen
//! Of an automatic width are permitted: the narrowest, and those whose slabs, tables and headers included, consist of
//! data and redundancy but for one percent, or two with parity. A wide row has short slabs, and
//! what stands in each beside the data would cost more than width is worth. Widths that were asked for are obeyed.
//!
//! Each claim takes the widest permitted row that does not lower what the remaining space can hold ([`Placer::bound`] gives
//! that figure; `bound.rs` proves it), and within that width the groups with the most room. Groups
//! that are about even take turns in an order that is drawn afresh from the caller's turn number, so that every
//! pair of disks shares rows and a rebuild reads from all of them.
//!
//! Invariants:
//! - The slabs of a placement lie on different disks and never reach into a reserve.
//! - The same offers, request and turn give the same placement.
//! - [`Placer::usable`] never exceeds [`Placer::bound`].
//!
//! Left to others: which runs of allocation units a slab gets, how parity rotates inside a row, and when rows move.

mod bound;
mod capacity;
mod field;
mod keep;
mod place;
mod request;
mod shape;

pub use bound::Bound;
pub use capacity::{Capacity, ONE_BY_ONE_MAX, Stranded};
pub use field::{DomainId, Offer, Standing};
pub use keep::{Kept, kept};
pub use place::{Code, NoRoom, Placement, Placer, SlabPlace};
pub use request::{Request, RequestError, Resiliency, Width};

/// Data columns of a striped row, and of a row with one parity column, at most: wider rows gain little and make
/// every whole-stripe write larger.
pub const DATA_COLUMNS_MAX: u32 = 8;
/// Data columns of a row with two parity columns, at most.
pub const DUAL_PARITY_DATA_COLUMNS_MAX: u32 = 12;
/// Copies of a column, at most.
pub const COPIES_MAX: u32 = 4;
/// Parity columns of a row, at most.
pub const PARITY_MAX: u32 = 2;
/// Data columns of a parity row, at least. With one, parity would be a mirror that costs arithmetic.
pub const PARITY_DATA_COLUMNS_MIN: u32 = 2;
/// Hundredths of its slabs that a striped row of automatic width may need beside its data.
pub const STRIPED_OVERHEAD_PERCENT_MAX: u64 = 1;
/// Hundredths of its slabs that a parity row of automatic width may need beside data and parity.
pub const PARITY_OVERHEAD_PERCENT_MAX: u64 = 2;
/// The longest row that a space may have.
pub const ROW_BYTES_MAX: u64 = 1 << 30;
