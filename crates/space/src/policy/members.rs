//! The disks of an open pool as its spaces see them: added, taken back in, distrusted, and brought up to date.

use std::collections::{BTreeSet, VecDeque};
use std::rc::Rc;

use dolmen_block_io::BlockDevice;
use dolmen_block_io::sync::join_all;
use dolmen_future_pool::pooled;
use dolmen_mutation::mutation;
use dolmen_pool::{Disk, keys};
use dolmen_units::{DiskSlot, Epoch, RowId, SpaceId};

use crate::format::error::SpaceError;
use crate::format::ids::{is_of_shadows, seen_as};
use crate::policy::handles::{Caches, Members};
use crate::policy::replacement::{PlaceOfRow, rows_of_spaces_on};
use crate::relocation::allocator::Allocator;
use crate::relocation::refill::{neediest_first, next_lot, not_begun, of_spaces};
use crate::relocation::resync::{Refilled, Resynced, SlabTrust};
use crate::resolution::decided_rows::DecidedRows;
use crate::resources::locks::Range;
use crate::resources::progress::Progress;
use crate::row_io::absence::RowRecords;
use crate::row_io::flusher::Flusher;
use crate::table::place::holder_of;
use crate::table::row::Slabs;
use crate::table::space::SpaceRows;

/// Rows that waited for a disk and are decided at once: one checkpoint makes all of them durable.
const ROWS_DECIDED_TOGETHER: usize = 256;
/// Rows that are looked up together when a disk is not believed any more.
const ROWS_DISTRUSTED_TOGETHER: usize = 256;
/// The epoch in which a pool is made: nothing is older.
const FIRST_EPOCH: Epoch = Epoch(1);

impl Members<'_> {
    /// Rows with a stale slab.
    ///
    /// # Errors
    /// [`SpaceError`].
    #[pooled]
    pub async fn stale_rows(self) -> Result<Vec<(SpaceId, u64)>, SpaceError> {
        let found = self.spaces.pool().map().scan(keys::all(keys::Kind::Stale), usize::MAX).await?;
        let ids: BTreeSet<RowId> = found.iter().map(|(key, _)| RowId(keys::parts(key).1)).collect();
        let mut rows = Vec::with_capacity(ids.len());
        for id in ids {
            rows.extend(holder_of(self.spaces.pool(), id).await?);
        }
        rows.sort_unstable();
        Ok(rows)
    }

    /// Rows that do not have all of their copies, or columns, whole: those of which a slab lacks something and no other one of
    /// its column is in its place. A slab that is being filled beside the one that it comes for makes a row no shorter.
    ///
    /// # Errors
    /// [`SpaceError`].
    #[pooled]
    pub async fn short_rows(self) -> Result<u64, SpaceError> {
        let stale = self.stale_rows().await?;
        let mut short = 0;
        for space in self.spaces.all() {
            let is_whole =
                |slabs: &Slabs, copies| slabs.iter().filter(|slab| slab.stale.is_none()).count() >= copies;
            let first = stale.partition_point(|(id, _)| *id < space.id());
            if stale.get(first).is_none_or(|(id, _)| *id != space.id()) {
                continue;
            }
            space
                .for_each_record(|index, record| {
                    let lacks = stale.binary_search(&(space.id(), index)).is_ok();
                    let copies = record.copies();
                    short += u64::from(lacks && !record.columns.iter().all(|slabs| is_whole(slabs, copies)));
                })
                .await?;
        }
        Ok(short)
    }

    /// Whether a slab on a disk that is here lacks something that it missed. A resync ends that, unless what it lacks is out
    /// of reach.
    ///
    /// # Errors
    /// [`SpaceError`].
    #[pooled]
    pub async fn is_stale(self) -> Result<bool, SpaceError> {
        for disk in self.spaces.pool().disks().iter().filter(|disk| disk.is_present()) {
            if !self.spaces.pool().map().scan(keys::stale_on(disk.slot()), 1).await?.is_empty() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Brings every stale slab whose disk is here up to date; held and stopped between batches of rows.
    ///
    /// # Errors
    /// [`SpaceError`]; what was done stays done, and the rest can be tried again.
    #[pooled]
    pub async fn resync(self, progress: &Progress) -> Result<Resynced, SpaceError> {
        self.resync_while(progress, || true).await
    }

    /// Brings slabs up to date for as long as `goes_on` and the progress say so; both are asked before each batch of rows.
    pub(crate) async fn resync_while(
        self,
        progress: &Progress,
        goes_on: impl Fn() -> bool,
    ) -> Result<Resynced, SpaceError> {
        // A claim that began while a disk was absent may have left it a stale slab.
        for space in self.spaces.all() {
            Allocator::of(&space).claims_end().await;
        }
        Caches::of(self.spaces).finish_stripes().await?;
        let of_space =
            |(id, index): (SpaceId, u64)| Some((self.spaces.spaces.borrow().get(&id).cloned()?, index));
        let rows: Vec<(Rc<SpaceRows>, u64)> =
            self.stale_rows().await?.into_iter().filter_map(of_space).collect();
        let rows = neediest_first(rows).await?;
        progress.total.set(rows.len() as u64);
        let mut result = Resynced::default();
        let mut waiting: VecDeque<_> = rows.into();
        while !waiting.is_empty() {
            if !progress.may_go_on(&self.spaces.shared.closing).await || !goes_on() {
                break;
            }
            let lot = next_lot(&mut waiting).await?;
            let _exclusive = self.spaces.shared.refill_mutex.take().await;
            let done = self.spaces.slab_moves().refill_lot(&lot, progress, &mut result).await?;
            not_begun(&lot, &done).rev().for_each(|row| waiting.push_front(row));
            progress.done.set(progress.done.get() + done.len() as u64);
            let refilled: Vec<(Rc<SpaceRows>, Refilled)> = of_spaces(&lot, done).collect();
            SlabTrust::of(&self.spaces.shared).trust_all(&refilled, &mut result).await?;
        }
        Ok(result)
    }

    /// Decides the rows that waited for a disk, as far as it can be done now: until then the log keeps what it says of them.
    #[pooled]
    async fn decide_what_waited(self) -> Result<(), SpaceError> {
        let waiting: Vec<(SpaceId, u64)> = self.spaces.shared.deferred.borrow().keys().copied().collect();
        for some in waiting.chunks(ROWS_DECIDED_TOGETHER) {
            let decided = join_all(some.iter().map(async |(id, index)| {
                let space = self.spaces.spaces.borrow().get(id).cloned();
                match space {
                    Some(space) => DecidedRows::of(&space).row(*index).await.map(drop),
                    None => Ok(()),
                }
            }));
            for result in decided.await {
                match result {
                    // Those of another disk go on waiting.
                    Ok(()) | Err(SpaceError::Unreadable { .. }) => {}
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(())
    }

    /// Adds a device to the pool.
    ///
    /// # Errors
    /// [`SpaceError`]; nothing was written to the device unless it was fit.
    #[pooled]
    pub async fn add(
        self,
        device: Rc<dyn BlockDevice>,
        overwrite: &[String],
    ) -> Result<Rc<Disk>, SpaceError> {
        self.add_in(device, overwrite, 0).await
    }

    /// As [`add`](Self::add), in a fault domain.
    ///
    /// # Errors
    /// As there.
    #[pooled]
    pub async fn add_in(
        self,
        device: Rc<dyn BlockDevice>,
        overwrite: &[String],
        fault_domain: u32,
    ) -> Result<Rc<Disk>, SpaceError> {
        Ok(self.spaces.pool().membership().add_device(device, overwrite, fault_domain).await?)
    }

    /// Takes a device that belongs to the pool and was away back in; [`resync`](Self::resync) brings it up to date.
    ///
    /// # Errors
    /// [`SpaceError`].
    #[pooled]
    pub async fn rejoin(self, device: Rc<dyn BlockDevice>) -> Result<Rc<Disk>, SpaceError> {
        // Blocks that no flush had covered when it left are recorded again before it counts as a copy; so it has to have
        // left before that.
        let absent = self.spaces.pool().membership().absent_member(device.as_ref()).await?;
        Flusher::of(&self.spaces.shared).force_flush().await?;
        // A write-back that passed the disk over has marked its slabs stale when it has ended, and not before.
        self.spaces.pool().checkpoint().await?;
        if absent.old.is_some() && !mutation!(OldImageAsAbsent) {
            self.distrust(absent.disk.slot()).await?;
        }
        let disk = self.spaces.pool().membership().readmit(device, &absent).await?;
        self.decide_what_waited().await?;
        Ok(disk)
    }

    /// Commits that a disk lacks everything, wherever another copy has it. Since when it is out of date does not bound what it
    /// lacks: later than that, a resync or a move may have given it what had been written long before.
    ///
    /// A shadow row may be promoted meanwhile. Hidden spaces are scanned first: the scan of the user space finds what was promoted
    /// before it. What is promoted later is at a place that is on the list, and is looked up there again.
    async fn distrust(self, slot: DiskSlot) -> Result<(), SpaceError> {
        let hidden_first = self.spaces.all().into_iter().rev().collect();
        let places = rows_of_spaces_on(hidden_first, slot).await?;
        for together in places.chunks(ROWS_DISTRUSTED_TOGETHER) {
            let mut left = together.to_vec();
            while !left.is_empty() {
                left = self.distrust_places(left, slot).await?;
            }
        }
        Ok(())
    }

    /// Marks the rows at some places, and their shadow rows. Returns the places where another row took over before it was marked.
    async fn distrust_places(
        self,
        places: Vec<PlaceOfRow>,
        slot: DiskSlot,
    ) -> Result<Vec<PlaceOfRow>, SpaceError> {
        let (mut rows, mut at) = (Vec::new(), Vec::new());
        for (space, index) in places {
            // A shadow row is promoted to the place of its row.
            let owner = self.spaces.spaces.borrow().get(&seen_as(space.id())).cloned();
            let space = owner.filter(|_| is_of_shadows(space.id())).unwrap_or(space);
            let Some(row) = space.in_doubt_row(index).await? else { continue };
            let shadow = row.shadow();
            for row in [Some(row), shadow].into_iter().flatten() {
                rows.push(row);
                at.push((Rc::clone(&space), index));
            }
        }
        RowRecords::of(&self.spaces.shared).mark_old(&rows, slot, FIRST_EPOCH).await?;
        let mut left = Vec::new();
        for (row, place) in rows.iter().zip(at) {
            if RowRecords::of(&self.spaces.shared).is_marked_old(row, slot, FIRST_EPOCH)
                || mutation!(DistrustScansOnce)
            {
                continue;
            }
            // The exchange holds this lock until the row in its place is known.
            drop(row.locks.lock(Range { first: 0, count: row.shape.row_blocks() }).await);
            left.push(place);
        }
        Ok(left)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing)]
mod tests {
    use std::cell::Cell;

    use dolmen_pool::ExcludeReason;

    use super::*;
    use crate::harness::slow_disks::{Slow, Task, extra, pause, text};
    use crate::harness::{Bench, ROW};
    use crate::relocation::obstacles::EndCause;
    use crate::relocation::promote::Promotion;

    /// Scenario: a disk as it was long ago is about to be taken back in, and all that it has is marked. A shadow row on it is promoted
    /// meanwhile, at any moment. The row in its place does not trust the disk.
    #[test]
    fn a_disk_as_it_was_before_is_not_trusted_for_a_row_promoted_meanwhile() {
        let met = Rc::new(Cell::new(0));
        for offset in 0..60 {
            let bench = Bench::with_profile(54, 3, || Slow::BRIEFLY.profile());
            let met = Rc::clone(&met);
            bench
                .run(async move |lab| {
                    let spaces = lab.create().await?;
                    let space = lab.with_shadow(&spaces, ROW.0).await?;
                    let old = DiskSlot(2);
                    spaces.pool().exclude(old, ExcludeReason::Asked).await?;
                    let promote: Task<'_> = Box::pin(async {
                        Promotion::of(&space).promote(&[0], EndCause::Unused).await.map_err(text)?;
                        Ok(())
                    });
                    let distrust: Task<'_> = Box::pin(async {
                        pause(&lab, offset).await;
                        let before = spaces.counters().shadows_promoted;
                        spaces.members().distrust(old).await.map_err(text)?;
                        met.set(met.get() + (spaces.counters().shadows_promoted - before));
                        Ok(())
                    });
                    extra(vec![promote, distrust]).await?;
                    assert_eq!(spaces.counters().shadows_promoted, 1);
                    let row = DecidedRows::of(&space).row(0).await?.ok_or("there is a row")?;
                    let since =
                        |slab: &crate::table::row::Slab| slab.disk == old && slab.stale == Some(FIRST_EPOCH);
                    assert_eq!(
                        row.count_columns(since),
                        1,
                        "content of before is trusted: {:?}",
                        row.record()
                    );
                    drop((space, row));
                    spaces.close().await?;
                    Ok(())
                })
                .unwrap_or_else(|error| panic!("after {offset} ms: {error}"));
        }
        assert!(met.get() > 0, "no promotion came in between");
    }
}
