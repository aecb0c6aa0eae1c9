//! What stays the same of an open pool.

use dolmen_block_io::Seams;
use dolmen_units::{Bytes, Name, PoolId};

use crate::disks::disk::Disk;
use crate::disks::prepare::metadata_needed;
use crate::error::PoolError;

/// Name and id of an open pool, the seams that it runs on, and the lengths of its metadata.
pub struct Identity {
    pub(crate) seams: Seams,
    pub(crate) id: PoolId,
    pub(crate) name: Name,
    pub(crate) log_bytes: Bytes,
    pub(crate) page_bytes: Bytes,
}

impl Identity {
    /// Its identity.
    #[must_use]
    pub fn id(&self) -> PoolId {
        self.id
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &Name {
        &self.name
    }

    /// The seams that it runs on.
    #[must_use]
    pub fn seams(&self) -> &Seams {
        &self.seams
    }

    /// Length of the log's ring and of the page area on every voter.
    #[must_use]
    pub fn metadata_bytes(&self) -> (Bytes, Bytes) {
        (self.log_bytes, self.page_bytes)
    }

    /// The least metadata area of a disk that carries log and pages.
    #[must_use]
    pub fn voter_metadata_min(&self) -> Bytes {
        metadata_needed(self.log_bytes, self.page_bytes)
    }

    /// Whether log and pages end before the disk's data begins. Everything that lets a disk vote asks this: on one where they
    /// do not, each would overwrite the other.
    pub(crate) fn has_metadata_room(&self, disk: &Disk) -> bool {
        disk.extent().is_some_and(|extent| extent.metadata >= self.voter_metadata_min())
    }

    pub(crate) fn not_replaced(&self, disk: &Disk, why: &'static str) -> PoolError {
        PoolError::NotReplaced { name: self.name.clone(), disk: disk.name(), why }
    }
}
