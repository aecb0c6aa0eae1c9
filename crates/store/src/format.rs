//! Pages and checkpoint blocks as bytes; `docs/format/store.md` is this file as tables, and `tidy` compares the two.
//!
//! Pages name no disk: they are the same bytes on every replica, which is what lets one replica heal another. The
//! checkpoint block does name its disk.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The first bytes of every page.
pub(crate) const PAGE_MAGIC: [u8; 8] = *b"DOLMENPG";
/// The first bytes of every checkpoint block.
pub(crate) const BLOCK_MAGIC: [u8; 8] = *b"DOLMENCP";
/// The version that this build writes. A higher one is refused.
pub const FORMAT_VERSION: u32 = 1;

/// The unit in which the tree is read, written and freed.
pub const PAGE_BYTES: usize = 16 * 1024;
pub(crate) const HEADER_BYTES: usize = 64;
/// What a page holds behind its header.
pub(crate) const BODY_BYTES: usize = PAGE_BYTES - HEADER_BYTES;
/// Where the checksummed part of a page begins.
pub(crate) const CHECKED_FROM: usize = 16;
/// One checkpoint slot.
pub(crate) const BLOCK_BYTES: usize = 4096;
/// Where the checksum of a checkpoint block stands.
pub(crate) const BLOCK_CHECKED_BYTES: usize = BLOCK_BYTES - 8;
/// Bytes of a key.
pub const KEY_BYTES: usize = 24;
/// Bytes of a caller's anchor.
pub(crate) const ANCHOR_BYTES: usize = 64;
/// Pages of free-page bits that one checkpoint block can name.
pub(crate) const BITMAPS_MAX: usize = 160;
/// Pages that one page of bits describes.
pub(crate) const BITMAP_PAGES: u64 = BODY_BYTES as u64 * 8;
/// Pages that a store can use; a larger area is used up to here.
pub const PAGES_MAX: u64 = BITMAPS_MAX as u64 * BITMAP_PAGES;

pub(crate) const KIND_LEAF: u8 = 1;
pub(crate) const KIND_INNER: u8 = 2;
pub(crate) const KIND_BITMAP: u8 = 3;

/// A page's name in its parent: a stale or misdirected page never counts, because all three must agree.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct RawPointer {
    /// Number of the page: its offset in the area, in pages.
    pub(crate) page: U64,
    /// Checkpoint that wrote it: an older page in the same place is noticed.
    pub(crate) sequence: U64,
    /// The page's checksum: any other page of that checkpoint is noticed.
    pub(crate) checksum: U64,
}

/// An entry of an inner page.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct RawChild {
    /// The first key below the child: a child hung into the wrong place is noticed.
    pub(crate) key: [u8; KEY_BYTES],
    /// The child.
    pub(crate) target: RawPointer,
}

/// The first bytes of every page.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct RawPageHeader {
    /// `DOLMENPG`: what this page is.
    pub(crate) magic: [u8; 8],
    /// CRC-64/NVME of all bytes of the page from 16 on: bit rot and torn writes are noticed.
    pub(crate) checksum: U64,
    /// Version of the format; a reader refuses a higher one.
    pub(crate) version: U32,
    /// 1 leaf, 2 inner, 3 bitmap.
    pub(crate) kind: u8,
    /// Distance from the leaves: loops and shortcuts in the tree are noticed.
    pub(crate) level: u8,
    /// Entries of a leaf, children of an inner page, index of a bitmap page.
    pub(crate) count: U16,
    /// The pool: a page of an earlier pool on a recycled disk is noticed.
    pub(crate) pool: [u8; 16],
    /// The page's own number: a misdirected write is noticed.
    pub(crate) page: U64,
    /// Checkpoint that wrote it: a lost write is noticed.
    pub(crate) sequence: U64,
    /// Bytes of the body in use; the rest is zero.
    pub(crate) used: U32,
    /// Zero.
    pub(crate) reserved: [u8; 4],
}

/// The root of everything. Sequence *n* stands in slot *n* mod 2.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct RawCheckpoint {
    /// `DOLMENCP`: what this block is.
    pub(crate) magic: [u8; 8],
    /// Version of the format; a reader refuses a higher one.
    pub(crate) version: U32,
    /// Bytes of the block.
    pub(crate) length: U32,
    /// The pool: a block of an earlier pool on a recycled disk is noticed.
    pub(crate) pool: [u8; 16],
    /// The disk: a block copied from another disk is noticed.
    pub(crate) disk: [u8; 16],
    /// Address of this block: a misdirected write is noticed.
    pub(crate) at: U64,
    /// Counts the checkpoints: the highest valid one counts.
    pub(crate) sequence: U64,
    /// Address of page 0: a reader with other figures would read other bytes.
    pub(crate) pages_at: U64,
    /// Length of the page area.
    pub(crate) pages_length: U64,
    /// The root page; zeros when the map is empty.
    pub(crate) root: RawChild,
    /// Keys in the tree.
    pub(crate) entry_count: U64,
    /// Pages in use, bitmap pages included: a bitmap of another checkpoint is noticed.
    pub(crate) used_pages: U64,
    /// Levels of the tree; 0 when the map is empty.
    pub(crate) height: U16,
    /// Entries of `bitmaps` in use.
    pub(crate) bitmap_count: U16,
    /// Zero.
    pub(crate) reserved: [u8; 4],
    /// What the caller keeps with the checkpoint.
    pub(crate) anchor: [u8; ANCHOR_BYTES],
    /// The pages that say which pages are in use, lowest first.
    pub(crate) bitmaps: [RawPointer; BITMAPS_MAX],
    /// Zero.
    pub(crate) reserved_tail: [u8; 32],
    /// CRC-64/NVME of all bytes before it: bit rot and torn writes are noticed.
    pub(crate) checksum: U64,
}

const _: () = assert!(size_of::<RawPointer>() == 24);
const _: () = assert!(size_of::<RawChild>() == 48);
const _: () = assert!(size_of::<RawPageHeader>() == HEADER_BYTES);
const _: () = assert!(size_of::<RawCheckpoint>() == BLOCK_BYTES);
const _: () = assert!(std::mem::offset_of!(RawPageHeader, version) == CHECKED_FROM);
const _: () = assert!(std::mem::offset_of!(RawCheckpoint, checksum) == BLOCK_CHECKED_BYTES);
const _: () = assert!(BODY_BYTES.is_multiple_of(8), "a page of bits holds whole words");
const _: () = assert!(BITMAPS_MAX <= u16::MAX as usize, "a bitmap page's index fits its count");
