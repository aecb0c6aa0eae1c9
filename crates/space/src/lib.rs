//! Spaces: virtual disks laid on a pool.
//!
//! A space is a list of rows of one length. A row has columns, a column has copies (slabs on different disks), and a
//! table that says of every block whether it was written, and what its checksum is. Reading and writing index the row and
//! do arithmetic; nothing finer is mapped.
//!
//! ```text
//! request ─ log room, limits ─ row: look up or claim ─ lock blocks, ticket ─ class of the write
//!    ├ fresh        data ∥ record            never written, as a flush has covered
//!    ├ rewrite      record, then data        unflushed content below
//!    ├ overwrite    durable record, data     flushed content below
//!    ├ whole stripe data + parity ∥ record   fresh, or in the other slot: the shadow row
//!    └ cached       cache block ∥ mapping    else in strict rows; destage: redo, flush, in place, flush, done
//!  ─ all copies; a failed disk leaves by a new epoch, and its slab is stale on record ─ acknowledge
//!
//! flush:    close batch ─ wait for earlier writes ─ flush every written disk ─ durable mark ─ acknowledge
//! recovery: blocks that the log names ─ newest candidate that a copy verifies ─ checkpoint ─ serve
//! ```
//!
//! Rows with parity have no copies: what is written to them lies in a *write cache* of mirrored rows first, and is put in
//! place a stripe at a time. The code is docs/design/0004: `cache` and `mapping` hold what is cached, `relog` says it again to the
//! log, `destage` puts it in place, `stripe_read` computes what is gone, `replay` finds it all again after a crash; `cache_size`
//! makes the cache larger and smaller. Whole stripes go in place at once where nothing was (`full_stripe`, `forming`); what a
//! stream (`streams`) of them brings over old content goes to shadow rows (`shadow_rows`), which are promoted (`promote`,
//! docs/design/0007); single ones alternate between the two (`slot_switch`, `drop_shadow`, docs/design/0026).
//!
//! The order of writes, and what a crash leaves behind, is docs/design/0002; the code that carries it:
//! `write` chooses among three orders of record and data, `shared` flushes and settles, `pages` writes tables back,
//! `absence` notes who misses it, `recovery` decides what was in flight by the tables of `in_doubt`, `resync` brings back what was away; `slab_moves` moves
//! slabs as planners say: `replacement` what a disk has to another, `removal` to `slab_targets` on several (docs/design/0010), `declare_lost` gives up what a lost one
//! alone had (docs/design/0025), and `rebalance` to emptier ones (docs/design/0012); `convert` moves rows to another of the
//! `layouts` of their space, by `conversion_shadow`, while clients go on (`moving`, docs/design/0020); `verify` looks at all of it,
//! in the order that `scrub` keeps, and `header` at what slabs say of themselves. `slab_map` tells where they lie. `trash` keeps deleted spaces and purges them
//! (docs/design/0018), and `exchange` frees their rows. [`salvage`] is what slabs say for whoever has no map (docs/design/0019).
//!
//! What clients ask for begins in `request`, which counts it and keeps to the `limits` of spaces: `bucket` to what they may have
//! at most, `minimum_rate` to what others leave to them (docs/design/0017); `throttle` has jobs give way.
//!
//! # Floors
//! A module uses its own folder and those before it; `tidy` refuses what reaches up.
//! ```text
//! format     on-disk structs, errors, specifications      resolution  recovery, redos, what waits for absent disks
//! in_doubt   tables of rules, pure                        relocation  shadow rows, slabs that move, freed rows, new rows
//! resources  locks, budgets, progress                     space_io    reads, writes and discards of a space
//! layout     where blocks lie, what can be decoded        policy      conversions, moves, reserve, trash, changes
//! table      rows, pages, mappings, spaces in memory      facade      `Spaces` and `Space`, as callers see them
//! row_io     reads and writes of one row
//! cache      the write cache of strict rows
//! ```
//!
//! What a layer does is methods of *services*: structs that borrow what is in memory (`RowStore`, `Shared`, `SpaceRows`, `Cache`,
//! `PoolSpaces`) and stand in the layer of their methods. What a lower layer starts in an upper one goes through `UpperLayers`.
//!
//! # Invariants
//! - Writes that overlap are ordered by a lock on their blocks before they fan out to copies.
//! - A table page on disk says only what a flush has covered.
//! - Nothing is acknowledged while a disk that missed it counts as holding it.
//! - A ticket is never held while waiting for room in the log: making room waits for tickets.

#[cfg(test)]
extern crate self as dolmen_space;
/// The bench of the integration tests, for tests that call what the crate keeps to itself.
#[cfg(test)]
#[path = "../tests/harness/mod.rs"]
mod harness;

mod cache;
mod facade;
mod format;
mod in_doubt;
mod layout;
mod policy;
mod relocation;
mod resolution;
mod resources;
mod row_io;
mod space_io;
mod table;

pub use cache::cache_size::{WriteCache, WriteCacheResize};
pub use facade::salvage;
pub use facade::space::Space;
pub use facade::spaces::Spaces;
pub use facade::spaces::{new_member, parse_resiliency};
pub use format::attribute_fault::{
    ATTRIBUTE_BYTES_MAX, ATTRIBUTES_CHANGE_BYTES_MAX, ATTRIBUTES_MAX, AttributeFault,
};
pub use format::attributes::{Attribute, AttributeKey};
pub use format::error::{CacheLimit, DrainLimit, SpaceError, UnreadableReason};
pub use format::layouts::Layout;
pub use format::limit_fault::{LimitFault, LimitKind};
pub use format::limits::Limits;
pub use format::raw::{INTERLEAVE_BYTES, INTERLEAVE_RANGE};
pub use format::resiliency::{Integrity, Resiliency};
pub use format::spec::Footprint;
pub use format::spec::{
    LARGE_ROW_BYTES, LARGE_SPACE_BYTES, PARITY_INTERLEAVE_BYTES, Provisioning, ROW_BYTES, ROW_BYTES_MIN,
    SPACE_BYTES_MAX, SpaceSpec, THIN_DUAL_PARITY_ROW_BYTES, THIN_ROW_BYTES, THIN_ROWS_MAX,
};
pub use layout::shape::READ_BYTES_MAX;
pub use layout::slab_units;
pub use policy::attributes::Attributes;
pub use policy::claimed_rows::ClaimedRows;
pub use policy::convert::ConversionForecast;
pub use policy::declare_lost::DeclaredLost;
pub use policy::disks_at::disks_at;
pub use policy::emptying::Emptied;
pub use policy::forecast::{WriteCacheRows, write_cache_rows};
pub use policy::handles::{Caches, Changes, Conversions, Members, Moves, Scrubs, Trash};
pub use policy::rebalance::RebalanceForecast;
pub use policy::removal::{RemovalForecast, StuckRows};
pub use policy::scrub::{SCRUB_CHECKPOINT_EVERY, Scrub, ScrubPlace, ScrubPosition};
pub use policy::slab_map::{
    CELL_OWNERS_MAX, CellCount, CellShare, DiskCells, SlabCell, SlabMap, SlabOwner, SlabPurpose,
};
pub use policy::sole_copy::Lost;
pub use policy::verify::{HEADERS_NAMED_MAX, Verification};
pub use relocation::resync::Resynced;
pub use resolution::recovery::Recovery;
pub use resources::clients::Clients;
pub use resources::events::SpaceRange;
pub use resources::events::{DataLossEvent, DataLossKind, SpaceCounters};
pub use resources::failed_reads::FailedRead;
pub use resources::flow::FlowView;
pub use resources::progress::Progress;
pub use resources::throttle::{JobShare, Priority};
pub use row_io::header::{HeaderFault, WrongHeader};
pub use row_io::segments::{Segment, Segments};
pub use space_io::discard::Extent;
pub use space_io::request::Request;
pub use table::drain_settings::WriteCacheDrain;
pub use table::space::failed_reads;
