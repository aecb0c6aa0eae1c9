//! Room for the tables of new slabs on disks that take theirs as it is written.
//!
//! A write-back that finds no room below would have to give a sound disk up, since what it says has no other place there.
//! So the claim of a slab writes zeros where tables and header will be: if there is no room, it is the claim that fails.

use std::ops::Range;

use dolmen_block_io::{DeviceError, Durability};
use dolmen_future_pool::pooled;
use dolmen_pool::Disk;
use dolmen_units::{DiskSlot, SpaceId};
use smallvec::SmallVec;

use crate::format::error::SpaceError;
use crate::layout::Shape;
use crate::table::row::Slab;
use crate::table::row_store::RowStore;

/// Zeros that are written at once, in bytes.
const ZEROS: u64 = 64 * 1024;

/// Room for tables on the disks of new slabs.
#[derive(Clone, Copy)]
pub(crate) struct TableRoom<'a> {
    store: &'a RowStore,
}

impl<'a> TableRoom<'a> {
    /// Returns the service for the rows of a pool.
    pub(crate) fn of(store: &'a RowStore) -> Self {
        Self { store }
    }
}

impl TableRoom<'_> {
    /// Takes the room for the tables of slabs that are being claimed, with their columns. Disks that failed otherwise than
    /// for lack of room: whoever claims has to give them up and claim again.
    ///
    /// # Errors
    /// [`SpaceError::NoSpaceBelow`].
    #[pooled]
    pub(crate) async fn take_table_room(
        self,
        space: SpaceId,
        shape: &Shape,
        slabs: &[(usize, Slab)],
    ) -> Result<SmallVec<[DiskSlot; 2]>, SpaceError> {
        let is_thin = |disk: &Disk| disk.geometry().is_some_and(|geometry| geometry.thin);
        self.write_zeros_to_tables(space, shape, slabs, is_thin).await
    }

    /// Writes zeros where the tables and headers of slabs are, on those disks that are meant and are here; those that failed.
    ///
    /// # Errors
    /// As [`take_table_room`](Self::take_table_room).
    pub(crate) async fn write_zeros_to_tables(
        self,
        space: SpaceId,
        shape: &Shape,
        slabs: &[(usize, Slab)],
        is_meant: impl Fn(&Disk) -> bool,
    ) -> Result<SmallVec<[DiskSlot; 2]>, SpaceError> {
        let mut writes: SmallVec<[_; 8]> = SmallVec::new();
        for (column, slab) in slabs {
            let Some(disk) = slab.present(&self.store.pool) else { continue };
            if !is_meant(&disk) {
                continue;
            }
            let Range { start: first, end } = shape.slab_map(*column).tables_at();
            let length = (end - first).min(ZEROS);
            let mut buffer =
                self.store.pool.seams().metadata.take(usize::try_from(length).unwrap_or(0)).await;
            buffer.fill(0);
            let zeros = buffer.freeze();
            let mut at = first;
            while at < end {
                for piece in slab.pieces(at, zeros.len().min(usize::try_from(end - at).unwrap_or(0))) {
                    let part = zeros.slice(piece.offset..piece.offset + piece.length);
                    writes.push((disk.slot(), disk.write(piece.at, part, Durability::Cached)));
                }
                at += length;
            }
        }
        let (mut full, mut failed) = (false, SmallVec::new());
        for (slot, write) in writes {
            match write.await {
                Ok(()) => {}
                Err(DeviceError::NoSpace) => full = true,
                Err(_) => failed.push(slot),
            }
        }
        if full { Err(SpaceError::NoSpaceBelow { name: self.store.name_of(space) }) } else { Ok(failed) }
    }
}
