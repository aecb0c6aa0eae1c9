//! The label as bytes; `docs/format/label.md` is this file as tables, and the two are compared by `tidy`.

use dolmen_epoch::{SPANS_MAX, VOTERS_MAX};
use dolmen_units::DISKS_MAX;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The first bytes of every label.
pub(crate) const LABEL_MAGIC: [u8; 8] = *b"DOLMENLB";
/// The version that this build writes, and the only one it reads: until 1.0 the format of all structures changes with it, and
/// nothing reads what an older one left.
pub const FORMAT_VERSION: u32 = 4;

pub(crate) const EPOCH_PRESENT: u32 = 1;
pub(crate) const EPOCH_FORKED: u32 = 2;
pub(crate) const EPOCH_EXPORTED: u32 = 4;

pub(crate) const HEADER_BYTES: usize = 4096;
pub(crate) const MEMBER_BYTES: usize = 64;
/// A label with two full tables of members, rounded up to whole blocks.
pub const LABEL_BYTES_MAX: usize = (HEADER_BYTES + 2 * DISKS_MAX * MEMBER_BYTES).next_multiple_of(4096);

const _: () = assert!(LABEL_BYTES_MAX <= 64 * 1024, "a label fits its slot");

/// Which epoch wrote the log from `first` on.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct RawSpan {
    /// Number of the epoch.
    pub(crate) number: U64,
    /// Random bits of the epoch: two epochs may share a number.
    pub(crate) nonce: U64,
    /// Its first LSN: tells a batch of a never-installed epoch from one that counts.
    pub(crate) first: U64,
}

/// An epoch.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct RawEpoch {
    /// Number: orders epochs of one history.
    pub(crate) number: U64,
    /// Random bits: tells histories apart.
    pub(crate) nonce: U64,
    /// Number of the epoch it was built on.
    pub(crate) predecessor_number: U64,
    /// Random bits of the epoch it was built on.
    pub(crate) predecessor_nonce: U64,
    /// The host that may write; zeros after an export.
    pub(crate) owner: [u8; 16],
    /// 1 present, 2 on a line that a confirmed opening began, 4 exported.
    pub(crate) flags: U32,
    /// Entries of `voters` in use.
    pub(crate) voter_count: U16,
    /// Entries of `spans` in use.
    pub(crate) span_count: U16,
    /// Disks that must hold every commit.
    pub(crate) voters: [[u8; 16]; VOTERS_MAX],
    /// Owners of the live log, oldest first.
    pub(crate) spans: [RawSpan; SPANS_MAX],
    /// Number of the confirmed opening that began this line.
    pub(crate) fork_number: U64,
    /// Its random bits.
    pub(crate) fork_nonce: U64,
    /// Number of the epoch that it was built on: later ones of the other line are never merged.
    pub(crate) fork_root: U64,
    /// Bit *i*: voter *i* carries the log. Every bit of `voter_count` is set.
    pub(crate) log_voters: U32,
    /// Zero.
    pub(crate) reserved: [u8; 28],
}

/// A member of the pool.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct RawMember {
    /// Identity: never a device name.
    pub(crate) disk: [u8; 16],
    /// Size of the device when it was claimed.
    pub(crate) capacity: U64,
    /// Place in the table; slabs name disks by it.
    pub(crate) slot: U16,
    /// 1 active, 2 absent, 3 retired.
    pub(crate) state: U16,
    /// What may fail as one with other disks of the same number; 0: the disk alone.
    pub(crate) fault_domain: U32,
    /// First epoch without this disk, 0 while active: what it missed has a stamp of at least this.
    pub(crate) left: U64,
    /// Of a retired disk the slot that gets its slabs, plus one; 0: none.
    pub(crate) successor: U16,
    /// 0 unknown, 1 rotational, 2 solid state, 3 persistent memory.
    pub(crate) medium: u8,
    /// Zero.
    pub(crate) reserved: [u8; 5],
    /// The least `sequence` that this disk's newest label has: an older image of the disk is noticed.
    pub(crate) sequence: U64,
    /// Zero.
    pub(crate) reserved_tail: [u8; 8],
}

/// The fixed part of a label; the members of the epoch in force follow, then those of the pending epoch.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct RawLabel {
    /// `DOLMENLB`: what this block is.
    pub(crate) magic: [u8; 8],
    /// Version of the format; a reader refuses any other.
    pub(crate) version: U32,
    /// Bytes of the whole label: an image cut inside it is noticed.
    pub(crate) length: U32,
    /// The pool: a label of another pool on a recycled disk is noticed.
    pub(crate) pool: [u8; 16],
    /// This disk: a label copied to another disk together with its data is a duplicate.
    pub(crate) disk: [u8; 16],
    /// Address of this slot: a misdirected write is noticed.
    pub(crate) at: U64,
    /// Counts the updates of this disk's label: the highest valid one counts.
    pub(crate) sequence: U64,
    /// Zero: features that a later version may have and an earlier one may ignore.
    pub(crate) features_compat: U64,
    /// Zero: features that a later version may need to write.
    pub(crate) features_ro_compat: U64,
    /// Zero: features that a later version may need to read.
    pub(crate) features_incompat: U64,
    /// Name of the pool, UTF-8, filled up with zeros.
    pub(crate) pool_name: [u8; 64],
    /// Size of the device when it was claimed.
    pub(crate) capacity: U64,
    /// Length of the metadata area, which begins at 1 MiB.
    pub(crate) metadata_length: U64,
    /// First byte of the first allocation unit.
    pub(crate) data_start: U64,
    /// First byte behind the last allocation unit.
    pub(crate) data_end: U64,
    /// Bytes of the log on every voter.
    pub(crate) log_length: U64,
    /// Bytes of metadata pages on every voter.
    pub(crate) pages_length: U64,
    /// Counts while the owner has the pool open: another host that sees the disk watches it.
    pub(crate) heartbeat: U64,
    /// Members of the epoch in force.
    pub(crate) base_member_count: U16,
    /// Members of the pending epoch.
    pub(crate) pending_member_count: U16,
    /// Zero.
    pub(crate) reserved: [u8; 36],
    /// The epoch that was in force when this label was written.
    pub(crate) base: RawEpoch,
    /// An epoch that is about to be in force, or is, if the arbiter says so.
    pub(crate) pending: RawEpoch,
    /// Zero.
    pub(crate) reserved_tail: [u8; 2560],
    /// CRC-64/NVME of the whole label with this field zero: bit rot and torn writes are noticed.
    pub(crate) checksum: U64,
}

const _: () = assert!(size_of::<RawSpan>() == 24);
const _: () = assert!(size_of::<RawEpoch>() == 640);
const _: () = assert!(size_of::<RawMember>() == MEMBER_BYTES);
const _: () = assert!(size_of::<RawLabel>() == HEADER_BYTES);
const _: () = assert!(std::mem::offset_of!(RawLabel, base) == 248);
const _: () = assert!(std::mem::offset_of!(RawMember, medium) == 42);
const _: () = assert!(std::mem::offset_of!(RawMember, sequence) == 48);
const _: () = assert!(std::mem::offset_of!(RawEpoch, log_voters) == 608);
const _: () = assert!(VOTERS_MAX < 32, "each voter has a bit");
