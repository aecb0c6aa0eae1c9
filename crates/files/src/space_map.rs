//! What lies at each address of a file system: who owns a range of the device.

use std::fs::File;

use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::FilesError;
use crate::call::{Request, call};

const MAP: Request = Request::both(b'X', 59, 192);
const AT_ONCE: usize = 128;

const ATTRIBUTES: u32 = 0x2;
const EXTENT_MAP: u32 = 0x4;
const SHARED: u32 = 0x8;
const SPECIAL: u32 = 0x10;
const LAST: u32 = 0x20;
const UNWRITTEN: u32 = 0x1;
/// The owner of free room. Numbers without a file system in their high half mean the same everywhere.
const FREE: u64 = 1;
/// The owner of what is used for something that the file system does not name.
const UNKNOWN: u64 = 2;

#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
struct RawRecord {
    device: u32,
    flags: u32,
    physical: u64,
    owner: u64,
    offset: u64,
    length: u64,
    reserved: [u64; 3],
}

#[derive(Debug, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
struct RawMap {
    flags_in: u32,
    flags_out: u32,
    count: u32,
    entries: u32,
    reserved: [u64; 6],
    keys: [RawRecord; 2],
    records: [RawRecord; AT_ONCE],
}

/// What a range of a device is used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owner {
    /// Nothing.
    Free,
    /// Content of an inode, from byte `offset` of the file on.
    File {
        /// The inode.
        inode: u64,
        /// First byte in the file.
        offset: u64,
        /// Whether it has room only, and reads as zeros.
        is_unwritten: bool,
    },
    /// Extended attributes, or the map of extents, of an inode.
    OfInode(u64),
    /// The file system's own, by a number of its kind.
    Metadata(u64),
    /// Used, and the file system does not say by whom.
    Unknown,
}

/// A range of a device, and who owns it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Used {
    /// First byte on the device.
    pub physical: u64,
    /// Bytes.
    pub length: u64,
    /// Who owns it.
    pub owner: Owner,
    /// Whether several files have it.
    pub is_shared: bool,
}

/// Shows each range of the file system that `file` is on, between two addresses of its device, in their order. `each` returns
/// whether to go on. A log or a real-time area on a device of its own is left out.
///
/// # Errors
/// [`FilesError`]; btrfs does not have the call. Owners are known on XFS with `rmapbt` only.
pub fn space_map(
    file: &File,
    first: u64,
    end: u64,
    mut each: impl FnMut(Used) -> bool,
) -> Result<(), FilesError> {
    let failed = FilesError::of("show what lies on its device");
    let status = rustix::fs::fstat(file).map_err(|error| failed(error.into()))?;
    let device = encoded(status.st_dev);
    let none = RawRecord { device, flags: 0, physical: 0, owner: 0, offset: 0, length: 0, reserved: [0; 3] };
    let high = RawRecord {
        flags: u32::MAX,
        physical: end.saturating_sub(1),
        owner: u64::MAX,
        offset: u64::MAX,
        ..none
    };
    let mut map = RawMap {
        flags_in: 0,
        flags_out: 0,
        count: u32::try_from(AT_ONCE).unwrap_or(0),
        entries: 0,
        reserved: [0; 6],
        keys: [RawRecord { physical: first, ..none }, high],
        records: [none; AT_ONCE],
    };
    loop {
        call(file, MAP, &mut map).map_err(&failed)?;
        let entries = usize::try_from(map.entries).unwrap_or(0).min(AT_ONCE);
        let found = map.records.get(..entries).unwrap_or_default();
        for raw in found {
            if !each(used(raw)) {
                return Ok(());
            }
        }
        let Some(last) = found.last().copied() else { return Ok(()) };
        if last.flags & LAST != 0 {
            return Ok(());
        }
        // The kernel goes on behind a record that is given as the low key, length included.
        let [low, _] = &mut map.keys;
        *low = last;
    }
}

/// Returns the number of a device as the kernel encodes it in 32 bits.
fn encoded(device: u64) -> u32 {
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    minor & 0xff | major << 8 | (minor & !0xff) << 12
}

fn used(raw: &RawRecord) -> Used {
    let owner = if raw.flags & SPECIAL != 0 {
        match raw.owner {
            FREE => Owner::Free,
            UNKNOWN => Owner::Unknown,
            _ => Owner::Metadata(raw.owner),
        }
    } else if raw.flags & (ATTRIBUTES | EXTENT_MAP) != 0 {
        Owner::OfInode(raw.owner)
    } else {
        Owner::File { inode: raw.owner, offset: raw.offset, is_unwritten: raw.flags & UNWRITTEN != 0 }
    };
    let is_shared = raw.flags & SHARED != 0;
    Used { physical: raw.physical, length: raw.length, owner, is_shared }
}
