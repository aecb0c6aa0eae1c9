//! What only certain disks have: what would be lost with them (docs/design/0023).
//!
//! Left to others: blocks that have rotted on all other copies; a removal of the disk finds those, and waits for it.

use std::collections::BTreeMap;
use std::ops::Range;

use dolmen_future_pool::pooled;
use dolmen_pool::{Disk, Pool};
use dolmen_units::{Bytes, DiskSlot, Name, SpaceId};

use crate::format::error::SpaceError;
use crate::format::ids::{is_hidden, is_of_conversion_shadows};
use crate::policy::handles::Members;
use crate::row_io::absence::is_other_holder;
use crate::table::row::{RowRecord, Slab, Slabs, can_be_had};

/// What would be lost, by space: ranges of its addresses in which at least a part is, whole rows each.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Lost {
    /// In order, none touching the next.
    pub ranges: BTreeMap<SpaceId, Vec<Range<Bytes>>>,
    /// Whether what is on its way is lost too, in a write cache, a stream or a conversion: whose that is is unknown.
    pub on_its_way: bool,
}

impl Lost {
    /// Whether nothing is.
    #[must_use]
    pub fn is_nothing(&self) -> bool {
        self.ranges.is_empty() && !self.on_its_way
    }
}

/// Whether a row cannot be read in whole from disks that are here and up to date.
pub(crate) fn is_lost(pool: &Pool, record: &RowRecord) -> bool {
    record.is_lost_without(|slab| slab.stale.is_none() && slab.present(pool).is_some())
}

/// Columns of a row that nobody can give any more when absent disks that are declared lost do not come back: none of their slabs
/// holds everything and is here, or is away with something and not declared lost.
pub(crate) fn missing(pool: &Pool, record: &RowRecord, is_off: impl Fn(&Disk) -> bool) -> Vec<usize> {
    let may_be_had = |slab: &Slab| {
        pool.disk(slab.disk).is_some_and(|disk| match disk.is_present() {
            true => slab.stale.is_none(),
            // Out of date, it may have some of it nevertheless.
            false => !slab.has_nothing() && !is_off(&disk),
        })
    };
    let columns = record.columns.iter().enumerate();
    columns.filter(|(_, slabs)| !slabs.iter().any(may_be_had)).map(|(column, _)| column).collect()
}

fn is_on(record: &RowRecord, disk: &Disk) -> bool {
    record.columns.iter().flatten().any(|slab| slab.disk == disk.slot())
}

impl Members<'_> {
    /// What the absent disks alone have, of all rows with a part on one of them.
    ///
    /// # Errors
    /// [`SpaceError`] when the metadata cannot be read.
    #[pooled]
    pub async fn only_on_absent(self) -> Result<Lost, SpaceError> {
        self.lost_where(|record| is_lost(self.spaces.pool(), record)).await
    }

    /// The same of rows with a part on one absent disk: without it and the others that are away, nobody has them.
    ///
    /// # Errors
    /// [`SpaceError`] when the metadata cannot be read.
    #[pooled]
    pub async fn only_on_absent_with(self, disk: &Disk) -> Result<Lost, SpaceError> {
        self.lost_where(|record| is_on(record, disk) && is_lost(self.spaces.pool(), record)).await
    }

    /// Of these, what is lost at once when the disk is declared lost beside those that are; the rest waits for others that are
    /// away.
    ///
    /// # Errors
    /// [`SpaceError`] when the metadata cannot be read.
    #[pooled]
    pub async fn lost_without(self, disk: &Disk) -> Result<Lost, SpaceError> {
        let pool = self.spaces.pool();
        let is_off = |other: &Disk| other.id() == disk.id() || pool.members().is_declared_lost(other);
        self.lost_where(|record| {
            is_on(record, disk) && !record.row_shape().decodable_without(missing(pool, record, is_off))
        })
        .await
    }

    async fn lost_where(self, is_lost: impl Fn(&RowRecord) -> bool) -> Result<Lost, SpaceError> {
        let mut lost = Lost::default();
        // Conversion shadows are made again.
        for space in self.spaces.all().into_iter().filter(|space| !is_of_conversion_shadows(space.id())) {
            let row_bytes = space.row_bytes();
            let mut ranges: Vec<Range<Bytes>> = Vec::new();
            space
                .for_each_record(|index, record| {
                    if !is_lost(record) {
                        return;
                    }
                    let (from, to) = (Bytes(index * row_bytes), Bytes((index + 1) * row_bytes));
                    match ranges.last_mut() {
                        Some(last) if last.end == from => last.end = to,
                        _ => ranges.push(from..to),
                    }
                })
                .await?;
            if ranges.is_empty() {
                continue;
            }
            if is_hidden(space.id()) {
                lost.on_its_way = true;
            } else {
                lost.ranges.insert(space.id(), ranges);
            }
        }
        Ok(lost)
    }
}

impl Members<'_> {
    /// Spaces of which a disk has something that no other disk holds, here or absent: should it be as it was before, what it has of these is as
    /// old as it is, once it is taken back in.
    ///
    /// # Errors
    /// [`SpaceError`].
    pub async fn alone_on(self, slot: DiskSlot) -> Result<Vec<Name>, SpaceError> {
        let mut names = Vec::new();
        let is_held = |slab: &Slab| slab.stale.is_none() && is_other_holder(self.spaces.pool(), slab, slot);
        for space in self.spaces.all() {
            let mut is_alone = false;
            let look = |_, record: &RowRecord| {
                let is_there =
                    |slabs: &Slabs| slabs.iter().any(|slab| slab.disk == slot && slab.stale.is_none());
                let is_elsewhere = |column| can_be_had(&record.row_shape(), &record.columns, column, is_held);
                let mut columns = record.columns.iter().enumerate();
                is_alone |= columns.any(|(column, slabs)| is_there(slabs) && !is_elsewhere(column));
            };
            space.for_each_record(look).await?;
            if is_alone && !names.contains(&space.name()) {
                names.push(space.name());
            }
        }
        Ok(names)
    }
}
