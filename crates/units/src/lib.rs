//! Units: one type for each id, count and sequence number that the engine passes around.
//!
//! A bare integer says neither what it counts nor from where; two of them swapped in a call compile and lose
//! data. Everything here is a plain value: no I/O, no allocation, no global state.

mod id;
mod name;
mod number;
mod size;

pub use id::{DiskId, HostId, ParseIdError, PoolId};
pub use name::{NAME_BYTES_MAX, Name, ParseNameError};
pub use number::{DiskSlot, Epoch, EpochId, Lsn, RowId, SpaceId};
pub use size::{Bytes, ParseBytesError};

/// The unit of checksums, states and of every write that reaches a disk.
pub const BLOCK_BYTES: u64 = 4096;
/// The unit in which disks are handed out: slabs begin and end on an allocation unit. It is one block, so that nothing is lost to
/// rounding, however short the slabs are.
pub const ALLOCATION_UNIT_BYTES: u64 = BLOCK_BYTES;
/// The smallest unit that a space can be addressed in.
pub const SECTOR_BYTES: u64 = 512;
/// Members of one pool, at most.
pub const DISKS_MAX: usize = 240;

const _: () =
    assert!(ALLOCATION_UNIT_BYTES.is_multiple_of(BLOCK_BYTES), "an allocation unit holds whole blocks");
const _: () = assert!(BLOCK_BYTES.is_multiple_of(SECTOR_BYTES), "a block holds whole sectors");
