//! Spaces, rows, tables and block records as bytes; `docs/format/space.md` is this file as tables.

use dolmen_units::{BLOCK_BYTES, Bytes};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Blocks of a row, at most: rows are at most 1 GiB.
pub(crate) const BLOCKS_MAX: u64 = (1 << 30) / BLOCK_BYTES;

/// Entries of a table page.
pub(crate) const PAGE_ENTRIES: usize = 504;
/// Bytes of a table page; each page has two slots of this length.
pub(crate) const PAGE_BYTES: usize = 4096;
pub(crate) const PAGE_MAGIC: [u8; 4] = *b"DTAB";
pub(crate) const SLAB_MAGIC: [u8; 8] = *b"DOLMENSL";
/// Version of headers and pages of tables.
pub(crate) const VERSION: u16 = 1;
/// Version of the records of spaces and rows.
pub(crate) const RECORD_VERSION: u16 = 2;

/// The block was never written, or was discarded: reads as zeros.
pub(crate) const STATE_NEVER: u8 = 0;
/// The block holds data that matches its checksum.
pub(crate) const STATE_VALID: u8 = 1;
/// The block's data is lost: reads fail until it is written.
pub(crate) const STATE_DAMAGED: u8 = 2;
/// In a record: blocks of a row with parity lie in the write cache (`RawMapping`).
pub(crate) const RECORD_CACHED: u8 = 3;
/// In a record: blocks of a row with parity were discarded, in the write cache alone (`RawMapping`).
pub(crate) const RECORD_DISCARDED: u8 = 4;
/// In a record: a stripe of a row with parity is about to be written in place (`RawRedo`).
pub(crate) const RECORD_REDO: u8 = 5;
/// In a record: stripes of a row with parity are in place. Never relogged.
pub(crate) const RECORD_DONE: u8 = 6;

/// A space, as the value of its key.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct RawSpace {
    /// Version of this record.
    pub(crate) version: U16,
    /// 1 simple, 2 span, 3 mirror, 4 parity.
    pub(crate) resiliency: u8,
    /// Copies of every column.
    pub(crate) copies: u8,
    /// Data columns of a row; 0 for automatic.
    pub(crate) columns: u8,
    /// 1 thin, 2 fixed.
    pub(crate) provisioning: u8,
    /// 1 relaxed, 2 strict.
    pub(crate) integrity: u8,
    /// Logical sector: 9 for 512 bytes, 12 for 4096.
    pub(crate) sector_shift: u8,
    /// Bytes of the space.
    pub(crate) size: U64,
    /// Bytes of a row.
    pub(crate) row_length: U64,
    /// Bytes written to one column before the next.
    pub(crate) interleave: U32,
    /// 0 whole, 1 unfinished, 2 in the trash.
    pub(crate) standing: u8,
    /// Parity columns of a row.
    pub(crate) parity: u8,
    /// Zero.
    pub(crate) reserved: [u8; 2],
    /// When it came into the trash, in seconds since 1970, for people; 0 of one that is not there.
    pub(crate) trashed_at: U64,
    /// Requests in a second that it gets at most; 0 for no limit.
    pub(crate) iops_max: U32,
    /// Requests in a second that others leave to it; 0 for none.
    pub(crate) iops_min: U32,
    /// KiB in a second that it gets at most; 0 for no limit.
    pub(crate) rate_max: U32,
    /// KiB in a second that others leave to it; 0 for none.
    pub(crate) rate_min: U32,
    /// While the space is converted, what rows of the round before had: as `resiliency`; else 0, as all of these.
    pub(crate) before_resiliency: u8,
    /// See `before_resiliency`: as `copies`.
    pub(crate) before_copies: u8,
    /// See `before_resiliency`: as `parity`.
    pub(crate) before_parity: u8,
    /// See `before_resiliency`: as `columns`.
    pub(crate) before_columns: u8,
    /// See `before_resiliency`: as `integrity`.
    pub(crate) before_integrity: u8,
    /// See `before_resiliency`: the interleave as a power of two.
    pub(crate) before_interleave_shift: u8,
    /// 0 or 1: the conversion round that lays rows as this record says.
    pub(crate) round: u8,
    /// Zero.
    pub(crate) reserved_after: u8,
    /// Name, UTF-8, filled up with zeros.
    pub(crate) name: [u8; 64],
}

/// A place of a space, as the value of its key.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct RawPlaceRow {
    /// Id of the row that stands there, not 0.
    pub(crate) row: U64,
    /// Id of its shadow row: 0, none.
    pub(crate) shadow: U64,
    /// What the shadow row is for: 0 without one.
    pub(crate) purpose: u8,
    /// Zero.
    pub(crate) reserved: [u8; 7],
}

/// The fixed part of a row, as the value of its key; slabs follow.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct RawRow {
    /// Version of this record.
    pub(crate) version: U16,
    /// 1 once every table page was written.
    pub(crate) formatted: u8,
    /// 1 simple, 2 span, 3 mirror, 4 parity.
    pub(crate) layout: u8,
    /// Copies of every column.
    pub(crate) copies: u8,
    /// Data columns.
    pub(crate) columns: u8,
    /// Parity columns, behind the data columns.
    pub(crate) parity: u8,
    /// 1 relaxed, 2 strict.
    pub(crate) integrity: u8,
    /// Bytes written to one column before the next, as a power of two.
    pub(crate) interleave_shift: u8,
    /// 0 or 1: the conversion round of its space that laid it (`RawSpace::round`).
    pub(crate) round: u8,
    /// Zero.
    pub(crate) reserved: [u8; 2],
    /// Places and shadows that name the row: 1. A row that others need as well is never taken for one of its own.
    pub(crate) references: U32,
    /// This incarnation of the row: records of another one are dead.
    pub(crate) row: U64,
    /// The space whose place names the row: a record in a wrong place is noticed.
    pub(crate) space: U64,
    /// Index of that place.
    pub(crate) index: U64,
    /// Blocks of the row.
    pub(crate) blocks: U32,
    /// Zero.
    pub(crate) reserved_tail: U32,
}

/// A slab of a row; its runs follow.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct RawSlab {
    /// Place of the disk in the table of members.
    pub(crate) disk: U16,
    /// Which column it serves.
    pub(crate) column: u8,
    /// Runs that follow.
    pub(crate) run_count: u8,
    /// 1 if it misses what was written since epoch `since`.
    pub(crate) stale: U32,
    /// See `stale`.
    pub(crate) since: U64,
}

/// A run of allocation units of a slab.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct RawRun {
    /// First allocation unit of the disk.
    pub(crate) first: U64,
    /// Length in allocation units.
    pub(crate) count: U32,
}

/// An entry of a table: what is known of one block.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub(crate) struct RawEntry {
    /// CRC-32C of the block, if it is valid.
    pub(crate) checksum: U32,
    /// Low 24 bits of the epoch in which it was written.
    pub(crate) stamp: [u8; 3],
    /// 0 never written, 1 valid, 2 damaged.
    pub(crate) state: u8,
}

/// A table page.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct RawPage {
    /// `DTAB`: what this block is.
    pub(crate) magic: [u8; 4],
    /// Version of this structure.
    pub(crate) version: U16,
    /// Which column of the row.
    pub(crate) column: U16,
    /// The pool: a page of another pool on a recycled disk is noticed.
    pub(crate) pool: [u8; 16],
    /// The row: a page of an earlier owner of the slab is noticed.
    pub(crate) row: U64,
    /// Counts the writes of this page; the slot is its lowest bit, the higher one counts.
    pub(crate) generation: U64,
    /// Index of the page in the column: a misdirected page is noticed.
    pub(crate) index: U32,
    /// Zero.
    pub(crate) reserved: [u8; 12],
    /// CRC-64/NVME of the page with this field zero.
    pub(crate) checksum: U64,
    /// What is known of each block.
    pub(crate) entries: [RawEntry; PAGE_ENTRIES],
}

/// The last block of a slab says what it is, so that the map can be rebuilt from the slabs alone.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct RawSlabHeader {
    /// `DOLMENSL`: what this block is.
    pub(crate) magic: [u8; 8],
    /// The pool.
    pub(crate) pool: [u8; 16],
    /// The disk: a header that was copied or misdirected is noticed.
    pub(crate) disk: [u8; 16],
    /// The space.
    pub(crate) space: U64,
    /// Index of the row in the space.
    pub(crate) row_index: U64,
    /// Incarnation of the row: the highest one counts.
    pub(crate) row: U64,
    /// Epoch in which the header was written.
    pub(crate) epoch: U64,
    /// Bytes of a row of the space.
    pub(crate) row_length: U64,
    /// Bytes written to one column before the next.
    pub(crate) interleave: U32,
    /// Version of this structure.
    pub(crate) version: U16,
    /// Which column this slab serves.
    pub(crate) column: u8,
    /// Data columns of the row.
    pub(crate) columns: u8,
    /// Runs of allocation units of this slab.
    pub(crate) runs: [RawRun; 4],
    /// Parity columns of the row.
    pub(crate) parity: u8,
    /// Zero.
    pub(crate) reserved: [u8; 3951],
    /// CRC-64/NVME of the block with this field zero.
    pub(crate) checksum: U64,
}

/// The head of an extent of blocks in a record of the log; checksums follow if the state is valid.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct RawBlockExtent {
    /// Row id: a record of an id that the map does not have is dead.
    pub(crate) row: U64,
    /// First block of the column.
    pub(crate) first: U32,
    /// Blocks.
    pub(crate) count: U32,
    /// Low 24 bits of the epoch.
    pub(crate) stamp: [u8; 3],
    /// State of the blocks.
    pub(crate) state: u8,
    /// Which column of the row; of a redo or a *done*, 1 if `RawOwner` follows, else 0.
    pub(crate) column: u8,
    /// 1 if the record was durable before the data was touched, 2 if nobody could decide it yet, 3 for both.
    pub(crate) intent: u8,
    /// Low bits of the generation that the table page of these blocks had on disk: an older page is not believed.
    pub(crate) generation: U16,
}

/// A block of the write cache.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct RawPlace {
    /// Row id of the cache row.
    pub(crate) row: U64,
    /// Block of the row.
    pub(crate) block: U32,
}

/// Follows the head of a redo or of a *done* of a shadow row.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct RawOwner {
    /// Row id of the row whose blocks the stripe has, not 0: versions of that row end with the stripe, also where the shadow row
    /// was dropped since.
    pub(crate) owner: U64,
}

/// Follows the head of an extent that says where blocks of a row lie in the write cache.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct RawMapping {
    /// Where the first of the blocks is; the others follow it. Zeros where they were discarded.
    pub(crate) place: RawPlace,
    /// LSN of the record that said so first; 0: this one.
    pub(crate) since: U64,
}

/// A block of a stripe that is about to be written in place. As many as the extent before them counts.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct RawRedo {
    /// Which column of the row.
    pub(crate) column: u8,
    /// What the block will be: 0 never written, 1 valid, 2 damaged.
    pub(crate) state: u8,
    /// Zero.
    pub(crate) reserved: [u8; 2],
    /// CRC-32C of the block, if it will be valid.
    pub(crate) checksum: U32,
    /// Where its content is, if it will be valid.
    pub(crate) place: RawPlace,
    /// Number of the record that first said of the cached version that this is; 0 of parity.
    pub(crate) since: U64,
}

const _: () = assert!(size_of::<RawPlace>() == 12);
const _: () = assert!(size_of::<RawOwner>() == 8);
const _: () = assert!(size_of::<RawMapping>() == 20);
const _: () = assert!(size_of::<RawRedo>() == 28);
const _: () = assert!(size_of::<RawSpace>() == 128);
const _: () = assert!(size_of::<RawPlaceRow>() == 24);
const _: () = assert!(size_of::<RawRow>() == 48);
const _: () = assert!(std::mem::offset_of!(RawRow, references) == 12);
const _: () = assert!(size_of::<RawSlab>() == 16);
const _: () = assert!(size_of::<RawRun>() == 12);
const _: () = assert!(size_of::<RawEntry>() == 8);
const _: () = assert!(size_of::<RawPage>() == PAGE_BYTES);
const _: () = assert!(size_of::<RawSlabHeader>() == PAGE_BYTES);
const _: () = assert!(size_of::<RawBlockExtent>() == 24);

/// Bytes written to one column before the next when nobody says otherwise.
pub const INTERLEAVE_BYTES: Bytes = Bytes::kib(256);

/// The interleaves that can be chosen.
pub const INTERLEAVE_RANGE: (Bytes, Bytes) = (Bytes::kib(16), Bytes::mib(1));
