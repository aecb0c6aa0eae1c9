//! What the write cache has of a block that goes to its place.
//!
//! Invariant: nothing is called lost that a disk which comes back, or a disk whose errors pass, may have.

use dolmen_block_io::DeviceError;
use dolmen_buffer::Buffer;
use dolmen_checksum::crc32c;
use dolmen_future_pool::pooled;
use dolmen_units::Lsn;

use crate::cache::segment_io::SegmentIo;
use crate::format::error::{SpaceError, UnreadableReason};
use crate::format::record::Place;
use crate::layout::BLOCK;
use crate::resources::events::DataLossKind;
use crate::table::row::{Row, Slab};
use crate::table::space::Cache;
use std::rc::Rc;

/// What there is of a block of the cache.
pub(crate) enum CachedRead {
    /// Its content.
    Content(Buffer),
    /// Nothing now; its disks may come back, or their errors pass.
    Nothing,
    /// Nothing for good.
    Lost,
    /// Nothing: the row of the write cache was freed. What lay in it is in place, and only the log still names it.
    Freed,
}

/// Reads of cached blocks.
#[derive(Clone, Copy)]
pub(crate) struct CachedReads<'a> {
    cache: &'a Rc<Cache>,
}

impl<'a> CachedReads<'a> {
    /// Returns the service for a write cache.
    pub(crate) fn of(cache: &'a Rc<Cache>) -> Self {
        Self { cache }
    }
}

impl CachedReads<'_> {
    /// The content with this checksum that was put at a place, from memory or from the cache rows.
    ///
    /// # Errors
    /// [`SpaceError`], but not that it cannot be read.
    #[pooled]
    pub(crate) async fn read_cached(self, place: Place, checksum: u32) -> Result<CachedRead, SpaceError> {
        let mut buffer = self.cache.shared().pool.seams().metadata.take(BLOCK).await;
        if self.cache.kept.copy(place, checksum, &mut buffer) {
            return Ok(CachedRead::Content(buffer));
        }
        if self.cache.row_of(place).is_none() {
            return Ok(CachedRead::Freed);
        }
        match SegmentIo::of(self.cache).read(place, &mut buffer).await {
            Ok(()) if crc32c(&buffer) == checksum => Ok(CachedRead::Content(buffer)),
            Ok(()) => Ok(CachedRead::Lost),
            Err(SpaceError::Unreadable { why, .. }) if why.is_final() => Ok(CachedRead::Lost),
            Err(error) if is_of_medium(&error) && self.is_unreadable(place, &mut buffer).await? => {
                self.cache.shared().count(|counters| counters.lost_blocks += 1);
                Ok(CachedRead::Lost)
            }
            Err(SpaceError::Unreadable { .. }) => Ok(CachedRead::Nothing),
            Err(error) => Err(error),
        }
    }

    /// Whether no disk can read a place although each can read what else is in its slab: sectors have gone bad. Where a disk
    /// cannot read that either, it or the way to it has a fault that may pass.
    async fn is_unreadable(self, place: Place, into: &mut [u8]) -> Result<bool, SpaceError> {
        let pool = &self.cache.shared().pool;
        let Some(row) = self.cache.row_of(place) else { return Ok(false) };
        let slabs: Vec<Slab> = row.with_slabs(0, <[Slab]>::to_vec);
        for slab in slabs.iter().filter(|slab| slab.stale.is_none()) {
            let Some(disk) = slab.present(pool) else { return Ok(false) };
            for piece in slab.pieces(row.map(0).header_at(), BLOCK) {
                let (_, result) = disk.read(piece.at, pool.seams().metadata.take(piece.length).await).await;
                if result.is_err() {
                    return Ok(false);
                }
            }
        }
        // Once more: the error may have passed meanwhile.
        Ok(SegmentIo::of(self.cache).read(place, into).await.is_err_and(|error| is_of_medium(&error)))
    }

    /// Notes that a version of a block is lost, if that is what its space reads.
    pub(crate) fn note_lost(self, row: &Row, block: u32, since: Lsn) {
        let is_newest = row.mappings.newest(block).is_none_or(|newest| newest.since <= since);
        if let Some(space) = self.cache.owner(row.space).filter(|_| is_newest) {
            space.note(row, block, DataLossKind::Lost);
        }
    }
}

/// Whether disks are there for a block and cannot read it, none that may have it is away, and none has kept silent.
fn is_of_medium(error: &SpaceError) -> bool {
    let SpaceError::Unreadable { why, .. } = error else { return false };
    matches!(why, UnreadableReason::Device(DeviceError::Medium { .. }))
}
