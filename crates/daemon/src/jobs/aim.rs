//! The subject of a job, by which its pool finds it again after a restart.

use dolmen_space::Provisioning;
use dolmen_units::{Bytes, DiskId, SpaceId};

/// What a job is about, beside its pool. What was put off, or went on when the daemon ended, is found again by it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Aim {
    /// All of the pool.
    Pool,
    /// The disk that a replacement fills, or that is removed or emptied.
    Disk(DiskId),
    /// The size that the write cache for spaces that survive the loss of so many disks is to have.
    WriteCache { survives: u8, size: Bytes },
    /// The space that is converted, and whether it is to be thin or fixed behind that.
    Space { id: SpaceId, provisioning: Option<Provisioning> },
    /// The space of the volume that is made.
    Volume(SpaceId),
}
