//! The bytes of a batch, as they stand on every copy.
//!
//! A batch is one [`BatchHeader`], then records, then zeros up to a multiple of 4 KiB. Each record is a
//! [`RecordHeader`] and its body, padded with zeros to 8 bytes. The batch is the same on every copy, byte for byte,
//! which is why it names no disk: its own address and the pool tell a misdirected one.

use dolmen_buffer::is_zeros;
use dolmen_units::{BLOCK_BYTES, EpochId, Lsn, PoolId};
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::ring::{BATCH_BYTES_MAX, Ring};

/// The first bytes of every batch.
pub const MAGIC: [u8; 8] = *b"DOLMNLOG";
/// The one kind of block in a ring.
pub const KIND_BATCH: u8 = 1;
/// The version that is written.
pub const VERSION: u8 = 1;
/// The kind of the record that the log writes for itself: which LSNs are holes for ever.
pub const KIND_HOLES: u8 = 0;
/// Bytes before the first record.
pub const HEADER_BYTES: usize = size_of::<BatchHeader>();
/// Bytes before a record's body.
pub const RECORD_HEADER_BYTES: usize = size_of::<RecordHeader>();
/// Records begin at multiples of this.
pub const RECORD_ALIGN_BYTES: usize = 8;

/// The front of a batch.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct BatchHeader {
    /// [`MAGIC`]: something else stands here.
    pub magic: [u8; 8],
    /// CRC-64/NVME of the whole batch, padding included, with this field zero: a torn or corrupt batch.
    pub checksum: U64,
    /// [`KIND_BATCH`].
    pub kind: u8,
    /// [`VERSION`]: a batch written by a later Dolmen.
    pub version: u8,
    /// Zero.
    pub reserved_front: [u8; 2],
    /// Records in the batch: a list that was cut.
    pub record_count: U32,
    /// The pool: what an earlier pool left on the disk.
    pub pool: [u8; 16],
    /// Number of the epoch that wrote it: an opener that never came to be in force.
    pub epoch_number: U64,
    /// Random bits of that epoch: two halves of a pool that counted alike.
    pub epoch_nonce: U64,
    /// Its place in the order of the log.
    pub lsn: U64,
    /// Bytes of log before it since the pool was made: an earlier lap of the ring.
    pub position: U64,
    /// Its own address on the disk: a misdirected write or read.
    pub address: U64,
    /// Bytes from the header to the end of the padding.
    pub length: U32,
    /// Bytes from the header to the end of the last record; zeros follow.
    pub used: U32,
    /// The durable mark: no batch up to this LSN may be missing.
    pub durable_mark: U64,
    /// The last LSN before this that was written durably: it may not be missing either. 0 is none.
    pub durable_before: U64,
    /// Zero.
    pub reserved: [u8; 24],
}

/// The front of a record.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct RecordHeader {
    /// What it is; [`KIND_HOLES`] is the log's own, the others are its user's.
    pub kind: u8,
    /// Zero.
    pub reserved: [u8; 3],
    /// Bytes of the body, padding not included.
    pub length: U32,
}

/// One entry in the body of a [`KIND_HOLES`] record.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct HoleRange {
    /// The first LSN that is missing for ever.
    pub first: U64,
    /// The last one of the range.
    pub last: U64,
}

const _: () = assert!(HEADER_BYTES == 128);
const _: () = assert!(RECORD_HEADER_BYTES == 8);
const _: () = assert!(size_of::<HoleRange>() == 16);
const _: () = assert!(std::mem::offset_of!(BatchHeader, checksum) == 8);
const _: () = assert!(std::mem::offset_of!(BatchHeader, pool) == 24);
const _: () = assert!(std::mem::offset_of!(BatchHeader, lsn) == 56);
const _: () = assert!(std::mem::offset_of!(BatchHeader, durable_mark) == 88);
const _: () = assert!(HEADER_BYTES.is_multiple_of(RECORD_ALIGN_BYTES), "the first record is aligned");
const _: () = assert!(BATCH_BYTES_MAX <= u32::MAX as u64, "a batch's length fits its field");

/// Why bytes are no batch of this log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BatchError {
    /// Other bytes at the front.
    #[error("no batch begins here")]
    Magic,
    /// Of another pool.
    #[error("a batch of pool {found} stands in the log of pool {expected}")]
    Pool {
        /// Whose it is.
        found: PoolId,
        /// Whose it should be.
        expected: PoolId,
    },
    /// Written for another place.
    #[error("a batch for address {written_for} stands at {found_at}")]
    Address {
        /// Where it says that it is.
        written_for: u64,
        /// Where it was found.
        found_at: u64,
    },
    /// A length that no batch has there.
    #[error("a batch of {length} bytes, {used} of them in use, does not fit where it stands")]
    Length {
        /// The length it names.
        length: u32,
        /// The bytes in use that it names.
        used: u32,
    },
    /// More bytes are needed than were given.
    #[error("a batch of {length} bytes is not all there")]
    Short {
        /// The length it names.
        length: u32,
    },
    /// Torn or corrupt.
    #[error("a batch has checksum {found:016x}, {expected:016x} was expected")]
    Checksum {
        /// Computed.
        found: u64,
        /// Stored.
        expected: u64,
    },
    /// Whole, but of a kind or version that this code does not know.
    #[error("a batch is of kind {kind}, version {version}; version {VERSION} of kind {KIND_BATCH} is known")]
    Version {
        /// The kind it names.
        kind: u8,
        /// The version it names.
        version: u8,
    },
    /// Reserved bytes or padding that are not zero.
    #[error("reserved bytes of a batch are not zero")]
    Reserved,
    /// The records do not add up to what the header says.
    #[error("record {index} of a batch does not fit it")]
    Records {
        /// The first one that does not fit.
        index: u32,
    },
}

/// What a batch at some address has to be.
#[derive(Debug, Clone, Copy)]
pub struct Expected {
    /// Whose.
    pub pool: PoolId,
    /// In which ring.
    pub ring: Ring,
    /// At which address on the disk.
    pub address: u64,
}

/// One record of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record<'a> {
    /// What it is, for the log's user; never [`KIND_HOLES`] outside this crate.
    pub kind: u8,
    /// Its content.
    pub body: &'a [u8],
}

/// What a header says, once it is believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Who wrote it.
    pub epoch: EpochId,
    /// Its LSN.
    pub lsn: Lsn,
    /// Its position.
    pub position: u64,
    /// Its length in bytes.
    pub length: u32,
    /// The durable mark.
    pub durable_mark: Lsn,
    /// The last LSN before it that was written durably.
    pub durable_before: Lsn,
}

/// A batch that was checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Batch {
    /// What its header says.
    pub header: Header,
    bytes: Box<[u8]>,
}

impl Batch {
    /// Checks bytes that begin at `expected.address`; more may follow the batch.
    ///
    /// # Errors
    /// Why they are no batch. [`BatchError::Version`] only when checksum, pool and address are right.
    pub fn parse(raw: &[u8], expected: &Expected) -> Result<Self, BatchError> {
        let (header, _) = BatchHeader::ref_from_prefix(raw).map_err(|_| BatchError::Magic)?;
        let length = header.check_front(expected)?;
        Self::parse_whole(raw, header, length)
    }

    /// Checks bytes that begin at `address` by their own word alone: a batch of whatever pool and ring, for whoever prints it.
    ///
    /// # Errors
    /// Why they are no batch.
    pub fn parse_alone(raw: &[u8], address: u64) -> Result<Self, BatchError> {
        let (header, _) = BatchHeader::ref_from_prefix(raw).map_err(|_| BatchError::Magic)?;
        let (length, used) = (header.length.get(), header.used.get());
        if header.magic != MAGIC {
            return Err(BatchError::Magic);
        }
        if header.address.get() != address {
            return Err(BatchError::Address { written_for: header.address.get(), found_at: address });
        }
        let fits = u64::from(length).is_multiple_of(BLOCK_BYTES) && u64::from(length) <= BATCH_BYTES_MAX;
        if !fits || used > length || size(used) < HEADER_BYTES {
            return Err(BatchError::Length { length, used });
        }
        Self::parse_whole(raw, header, size(length))
    }

    /// Checks what is left once the header says that a batch of this length may stand here.
    fn parse_whole(raw: &[u8], header: &BatchHeader, length: usize) -> Result<Self, BatchError> {
        let mut bytes: Box<[u8]> =
            raw.get(..length).ok_or(BatchError::Short { length: header.length.get() })?.into();
        let (stored, found) = (header.checksum.get(), checksum(&mut bytes));
        if found != stored {
            return Err(BatchError::Checksum { found, expected: stored });
        }
        header.check_back(&bytes)?;
        Ok(Self { header: header.content(), bytes })
    }

    /// The bytes as they stand on disk.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The checksum that the batch carries.
    #[must_use]
    pub fn checksum(&self) -> u64 {
        BatchHeader::stored_checksum(&self.bytes).unwrap_or(0)
    }

    /// Its records, the log's own included, in the order in which they were placed.
    pub fn records(&self) -> impl Iterator<Item = Record<'_>> {
        let used = BatchHeader::ref_from_prefix(&self.bytes).map_or(0, |(header, _)| size(header.used.get()));
        Records { rest: self.bytes.get(HEADER_BYTES..used).unwrap_or_default() }.map_while(Result::ok)
    }
}

impl BatchHeader {
    /// The checksum that bytes carry if they are a batch.
    pub(crate) fn stored_checksum(bytes: &[u8]) -> Option<u64> {
        Self::ref_from_prefix(bytes).ok().map(|(header, _)| header.checksum.get())
    }

    /// Everything that can be told before the checksum, so that it is computed only where a batch seems to be.
    fn check_front(&self, expected: &Expected) -> Result<usize, BatchError> {
        if self.magic != MAGIC {
            return Err(BatchError::Magic);
        }
        if self.pool != expected.pool.0 {
            return Err(BatchError::Pool { found: PoolId(self.pool), expected: expected.pool });
        }
        let (position, address) = (self.position.get(), self.address.get());
        if address != expected.address || expected.ring.address(position) != address {
            return Err(BatchError::Address { written_for: address, found_at: expected.address });
        }
        let (length, used) = (self.length.get(), self.used.get());
        let left = (expected.ring.at + expected.ring.length).saturating_sub(address);
        let length_max = expected.ring.batch_bytes_max().min(left);
        let fits = u64::from(length).is_multiple_of(BLOCK_BYTES) && u64::from(length) <= length_max;
        let ends = position.checked_add(u64::from(length)).is_some();
        if !fits || !ends || used > length || size(used) < HEADER_BYTES {
            return Err(BatchError::Length { length, used });
        }
        Ok(size(length))
    }

    /// What is left to check of a batch whose checksum is right.
    fn check_back(&self, bytes: &[u8]) -> Result<(), BatchError> {
        if (self.kind, self.version) != (KIND_BATCH, VERSION) {
            return Err(BatchError::Version { kind: self.kind, version: self.version });
        }
        let used = size(self.used.get());
        let padding = bytes.get(used..).unwrap_or_default();
        if ![&self.reserved_front[..], &self.reserved[..], padding].into_iter().all(is_zeros) {
            return Err(BatchError::Reserved);
        }
        let mut index = 0;
        for record in (Records { rest: bytes.get(HEADER_BYTES..used).unwrap_or_default() }) {
            let record = record.map_err(|Malformed| BatchError::Records { index })?;
            if record.kind == KIND_HOLES && hole_ranges(record.body).is_none() {
                return Err(BatchError::Records { index });
            }
            index += 1;
        }
        if index == self.record_count.get() { Ok(()) } else { Err(BatchError::Records { index }) }
    }

    /// What a header says, whether or not it may be believed.
    pub(crate) fn peek(bytes: &[u8]) -> Option<Header> {
        Self::ref_from_prefix(bytes).ok().map(|(header, _)| header.content())
    }

    fn content(&self) -> Header {
        Header {
            epoch: EpochId {
                number: dolmen_units::Epoch(self.epoch_number.get()),
                nonce: self.epoch_nonce.get(),
            },
            lsn: Lsn(self.lsn.get()),
            position: self.position.get(),
            length: self.length.get(),
            durable_mark: Lsn(self.durable_mark.get()),
            durable_before: Lsn(self.durable_before.get()),
        }
    }
}

struct Malformed;

struct Records<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for Records<'a> {
    type Item = Result<Record<'a>, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let record = cut_record(self.rest);
        self.rest = record.map_or(&[], |(_, rest)| rest);
        Some(record.map(|(record, _)| record).ok_or(Malformed))
    }
}

/// The first record and what follows it.
fn cut_record(bytes: &[u8]) -> Option<(Record<'_>, &[u8])> {
    let (header, rest) = RecordHeader::ref_from_prefix(bytes).ok()?;
    let (body, rest) = rest.split_at_checked(size(header.length.get()))?;
    let (padding, rest) = rest.split_at_checked(record_padding(body.len()))?;
    let zero = header.reserved.iter().chain(padding).all(|byte| *byte == 0);
    zero.then_some((Record { kind: header.kind, body }, rest))
}

fn record_padding(body_bytes: usize) -> usize {
    body_bytes.next_multiple_of(RECORD_ALIGN_BYTES) - body_bytes
}

/// Bytes that a record takes in a batch.
pub(crate) fn record_bytes(body_bytes: usize) -> usize {
    RECORD_HEADER_BYTES + body_bytes + record_padding(body_bytes)
}

/// Writes a record whose body is `parts` one behind the other; `into` has exactly [`record_bytes`].
pub(crate) fn write_record(into: &mut [u8], kind: u8, parts: &[&[u8]]) {
    let length: usize = parts.iter().map(|part| part.len()).sum();
    assert!(into.len() == record_bytes(length), "a record is written into the room that was made for it");
    let length = u32::try_from(length).unwrap_or(u32::MAX);
    let header = RecordHeader { kind, reserved: [0; 3], length: U32::new(length) };
    let Ok(rest) = header.write_to_prefix(into).map(|()| into.get_mut(RECORD_HEADER_BYTES..)) else { return };
    let mut rest = rest.unwrap_or_default();
    for part in parts {
        let Some((now, later)) = rest.split_at_mut_checked(part.len()) else { return };
        now.copy_from_slice(part);
        rest = later;
    }
    rest.fill(0);
}

/// What the writer knows of a batch beside its records.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Seal {
    pub(crate) pool: PoolId,
    pub(crate) ring: Ring,
    pub(crate) content: Header,
    pub(crate) used: u32,
    pub(crate) record_count: u32,
}

/// Writes header, padding and checksum around the records in `bytes`, which is the whole batch; returns the checksum.
pub(crate) fn seal(bytes: &mut [u8], seal: &Seal) -> u64 {
    let content = seal.content;
    let mut header = BatchHeader {
        magic: MAGIC,
        checksum: U64::new(0),
        kind: KIND_BATCH,
        version: VERSION,
        reserved_front: [0; 2],
        record_count: U32::new(seal.record_count),
        pool: seal.pool.0,
        epoch_number: U64::new(content.epoch.number.0),
        epoch_nonce: U64::new(content.epoch.nonce),
        lsn: U64::new(content.lsn.0),
        position: U64::new(content.position),
        address: U64::new(seal.ring.address(content.position)),
        length: U32::new(content.length),
        used: U32::new(seal.used),
        durable_mark: U64::new(content.durable_mark.0),
        durable_before: U64::new(content.durable_before.0),
        reserved: [0; 24],
    };
    assert!(bytes.len() == size(content.length), "a batch is sealed whole");
    bytes.get_mut(size(seal.used)..).unwrap_or_default().fill(0);
    let _ = header.write_to_prefix(bytes);
    let checksum = dolmen_checksum::crc64(bytes);
    header.checksum = U64::new(checksum);
    let _ = header.write_to_prefix(bytes);
    checksum
}

/// The checksum of a batch: of all its bytes, with the field for it zero. The field is left as it was.
pub(crate) fn checksum(batch: &mut [u8]) -> u64 {
    let Ok((header, _)) = BatchHeader::mut_from_prefix(batch) else { return 0 };
    let stored = std::mem::replace(&mut header.checksum, U64::new(0));
    let found = dolmen_checksum::crc64(batch);
    if let Ok((header, _)) = BatchHeader::mut_from_prefix(batch) {
        header.checksum = stored;
    }
    found
}

/// A length of a field as a length in memory.
pub(crate) fn size(bytes: u32) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

/// The ranges in the body of a [`KIND_HOLES`] record; `None` when the body is no list of ranges.
pub(crate) fn hole_ranges(body: &[u8]) -> Option<&[HoleRange]> {
    <[HoleRange]>::ref_from_bytes(body).ok()
}
