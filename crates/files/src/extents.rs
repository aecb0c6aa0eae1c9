//! Where the bytes of a file lie on its device.

use std::fs::File;

use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::FilesError;
use crate::call::{Request, call};

const MAP: Request = Request::both(b'f', 11, 32);
/// Extents that one call asks for.
const AT_ONCE: usize = 128;
/// Asks the file system to write what is only in memory first, so that it has a place.
const SYNC: u32 = 1;

const LAST: u32 = 0x1;
const UNKNOWN: u32 = 0x2;
const DELAYED: u32 = 0x4;
const ENCODED: u32 = 0x8;
const INLINE: u32 = 0x200;
const TAIL: u32 = 0x400;
const UNWRITTEN: u32 = 0x800;
const SHARED: u32 = 0x2000;

#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
struct RawExtent {
    logical: u64,
    physical: u64,
    length: u64,
    reserved_1: [u64; 2],
    flags: u32,
    reserved_2: [u32; 3],
}

#[derive(Debug, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
struct RawMap {
    start: u64,
    length: u64,
    flags: u32,
    mapped: u32,
    count: u32,
    reserved: u32,
    extents: [RawExtent; AT_ONCE],
}

/// A part of a file in one piece.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// First byte in the file.
    pub logical: u64,
    /// First byte on the device; meaningless where [`has_place`](Self::has_place) is false.
    pub physical: u64,
    /// Bytes.
    pub length: u64,
    flags: u32,
}

impl Extent {
    /// Returns whether it lies at `physical`, byte for byte: not within metadata, not compressed, not yet to be placed.
    #[must_use]
    pub fn has_place(&self) -> bool {
        self.flags & (UNKNOWN | DELAYED | ENCODED | INLINE | TAIL) == 0
    }

    /// Returns whether it is compressed or encrypted: its place holds other bytes than the file has.
    #[must_use]
    pub fn is_encoded(&self) -> bool {
        self.flags & ENCODED != 0
    }

    /// Returns whether it has room, and reads as zeros.
    #[must_use]
    pub fn is_unwritten(&self) -> bool {
        self.flags & UNWRITTEN != 0
    }

    /// Returns whether other files, or other parts of this one, lie there too.
    #[must_use]
    pub fn is_shared(&self) -> bool {
        self.flags & SHARED != 0
    }

    /// Returns the byte behind it in the file.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.logical.saturating_add(self.length)
    }
}

/// Appends the extents of a file between `start` and `start + length` to `into`, in the order of the file; holes are left out.
/// What is only in memory is written first.
///
/// # Errors
/// [`FilesError`]; `into` may then hold some of them.
pub fn extents(file: &File, start: u64, length: u64, into: &mut Vec<Extent>) -> Result<(), FilesError> {
    extents_at_most(file, start, length, usize::MAX, into).map(drop)
}

/// Appends extents as [`extents`] does, and ends after at least `limit` of them. Returns `false` if that ended it.
///
/// # Errors
/// [`FilesError`]; `into` may then hold some of them.
pub fn extents_at_most(
    file: &File,
    start: u64,
    length: u64,
    limit: usize,
    into: &mut Vec<Extent>,
) -> Result<bool, FilesError> {
    let before = into.len();
    let end = start.saturating_add(length);
    let none =
        RawExtent { logical: 0, physical: 0, length: 0, reserved_1: [0; 2], flags: 0, reserved_2: [0; 3] };
    let mut map = RawMap {
        start,
        length,
        flags: SYNC,
        mapped: 0,
        count: u32::try_from(AT_ONCE).unwrap_or(0),
        reserved: 0,
        extents: [none; AT_ONCE],
    };
    while map.start < end {
        if into.len().saturating_sub(before) >= limit {
            return Ok(false);
        }
        map.length = end - map.start;
        map.mapped = 0;
        call(file, MAP, &mut map).map_err(FilesError::of("show where a file lies"))?;
        let mapped = usize::try_from(map.mapped).unwrap_or(0);
        let found = map.extents.get(..mapped.min(AT_ONCE)).unwrap_or_default();
        into.extend(found.iter().map(|raw| Extent {
            logical: raw.logical,
            physical: raw.physical,
            length: raw.length,
            flags: raw.flags,
        }));
        let Some(last) = found.last() else { break };
        let next = last.logical.saturating_add(last.length);
        if last.flags & LAST != 0 || next <= map.start {
            break;
        }
        map.start = next;
        map.flags = 0;
    }
    Ok(true)
}
