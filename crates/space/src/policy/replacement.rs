//! Disks take the place of others: what one has moves to another, whole.
//!
//! Left to others: moving slabs (`slab_moves`), disks that leave without another in their place (`removal`), who is a member
//! (crate `pool`).

use std::collections::BTreeSet;
use std::rc::Rc;

use dolmen_block_io::BlockDevice;
use dolmen_future_pool::pooled;
use dolmen_pool::{Disk, Purpose};
use dolmen_units::{ALLOCATION_UNIT_BYTES, Bytes, DiskId, DiskSlot, SpaceId};

use crate::format::error::SpaceError;
use crate::policy::handles::Moves;
use crate::relocation::resync::Resynced;
use crate::relocation::slab_moves::{Planner, RowToMove, SlabMove, Tried};
use crate::resources::progress::Progress;
use crate::table::row::Slabs;
use crate::table::space::SpaceRows;

/// How often rows are looked for on a disk that is being replaced, because others have come up where nobody looked.
const PASSES_MAX: usize = 8;

/// Planner of a disk that has a successor: all of its slabs go there.
struct Replacing<'a> {
    from: DiskSlot,
    to: DiskSlot,
    goes_on: &'a dyn Fn() -> bool,
}

impl Planner for Replacing<'_> {
    fn next(&self, row: &RowToMove<'_>, tried: &Tried) -> Option<SlabMove> {
        let has = |slabs: &Slabs, slot| slabs.iter().any(|slab| slab.disk == slot);
        let mut columns = row.record.columns.iter().enumerate();
        let is_next = |(column, slabs): &(usize, &Slabs)| {
            has(slabs, self.from) && !has(slabs, self.to) && !tried.has_ended(*column)
        };
        let (column, _) = columns.find(is_next)?;
        Some(SlabMove { column, from: self.from, to: self.to })
    }

    fn leaves(&self, _: &Tried) -> Vec<DiskSlot> {
        vec![self.from]
    }

    /// No other disk takes what the successor does not.
    fn note_refusal(&self, _: SlabMove, error: Option<SpaceError>) -> Result<(), SpaceError> {
        error.map_or(Ok(()), Err)
    }

    fn goes_on(&self) -> bool {
        (self.goes_on)()
    }

    /// A new disk may well fail, and then the old one has everything. A replacement that is called off has less to move back.
    fn drops_last(&self) -> bool {
        true
    }
}

/// A space, and the index of a row in it.
pub(crate) type PlaceOfRow = (Rc<SpaceRows>, u64);

impl Moves<'_> {
    /// Moves every slab of one disk to another: refilled from the copies that hold everything, the old slab itself among
    /// them if its disk is here. Redundancy is never lower on the way; killed, it goes on when called again. Whether nothing
    /// is left; what a replacement asked for ends early, with something left, when that is called off or given another target,
    /// and when it is stopped. Held and stopped between lots of rows, and between rows while old slabs are dropped, which
    /// begins when all rows have their new slabs.
    ///
    /// # Errors
    /// [`SpaceError`].
    #[pooled]
    pub async fn move_slabs(
        self,
        from: DiskSlot,
        to: DiskSlot,
        progress: &Progress,
    ) -> Result<bool, SpaceError> {
        for _ in 0..PASSES_MAX {
            if !self.move_slabs_once((from, to), progress).await? {
                return Ok(false);
            }
            // A row that held nothing may have become another one on the way, in a place that nobody looked at.
            if self.rows_on(from).await?.is_empty() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Moves the slabs of the rows that there are when it begins; whether none of these is left.
    #[pooled]
    async fn move_slabs_once(
        self,
        (from, to): (DiskSlot, DiskSlot),
        progress: &Progress,
    ) -> Result<bool, SpaceError> {
        let target = || self.spaces.pool().disk(from).and_then(|disk| disk.member().successor);
        let wanted = target();
        let goes_on = || wanted.is_none() || target() == wanted;
        // Whoever chose the disk before it was retired has put that on record then.
        drop(self.spaces.pool().change(Purpose::Release).await);
        self.end_what_has_begun().await?;
        let rows = self.rows_on(from).await?;
        let planner = Replacing { from, to, goes_on: &goes_on };
        let moves = self.spaces.slab_moves();
        let Some(left) = moves.move_rows(rows, &planner, progress, &mut Resynced::default()).await? else {
            return Ok(false);
        };
        if !goes_on() {
            return Ok(false);
        }
        let all = left.is_empty();
        if let Some(disk) = self.spaces.pool().disk(from) {
            self.note_deferred(&disk, left);
        }
        Ok(all)
    }

    /// Notes the spaces that have slabs left on a disk that is to leave.
    pub(crate) fn note_deferred(self, disk: &Disk, left: BTreeSet<SpaceId>) {
        self.spaces.left.borrow_mut().insert(disk.id(), left);
    }

    /// Forgets what was left on a disk: it takes slabs again, or is about to leave once more.
    pub fn forget_left(self, disk: DiskId) {
        self.spaces.left.borrow_mut().remove(&disk);
    }

    /// The spaces that had slabs left on a disk when it was last tried to move all of them away; nothing before the first
    /// try, and of one that is a member like others. A disk that is being replaced gets no new ones.
    pub(crate) fn left_on(self, disk: DiskId) -> Option<Vec<Rc<SpaceRows>>> {
        let pool = self.spaces.pool();
        let is_usual = |one: &Rc<Disk>| {
            one.id() == disk && pool.members().is_active(one) && pool.members().role_of(one).is_none()
        };
        if pool.disks().iter().any(is_usual) {
            self.forget_left(disk);
        }
        let left = self.spaces.left.borrow();
        let spaces = self.spaces.spaces.borrow();
        Some(left.get(&disk)?.iter().filter_map(|id| spaces.get(id).cloned()).collect())
    }

    /// Calls a replacement off: `old` takes data again, and `new` is replaced by it. [`finish_replacing`](Self::finish_replacing)
    /// of `new` by `old` moves back what was moved, and strikes `new`.
    ///
    /// # Errors
    /// As [`Membership::reverse_replacement`](dolmen_pool::Membership::reverse_replacement).
    #[pooled]
    pub async fn call_off(self, old: &Disk, new: &Disk) -> Result<(), SpaceError> {
        self.spaces.pool().membership().reverse_replacement(old, new).await?;
        // What is known of either was found on the way in the other direction.
        let mut left = self.spaces.left.borrow_mut();
        left.remove(&old.id());
        left.remove(&new.id());
        Ok(())
    }

    /// Bytes that a move from one disk to another has to claim there.
    ///
    /// # Errors
    /// [`SpaceError`].
    #[pooled]
    pub async fn bytes_to_move(self, from: DiskSlot, to: DiskSlot) -> Result<Bytes, SpaceError> {
        let mut units = 0;
        for space in self.spaces.all() {
            space
                .for_each_record(|_, record| {
                    let lacks = |slabs: &&Slabs| !slabs.iter().any(|slab| slab.disk == to);
                    let slabs = record.columns.iter().filter(lacks).flatten();
                    let runs = slabs.filter(|slab| slab.disk == from).flat_map(|slab| &slab.runs);
                    units += runs.map(|run| run.count).sum::<u64>();
                })
                .await?;
        }
        Ok(Bytes(units * ALLOCATION_UNIT_BYTES))
    }

    /// Rows with a slab on a disk.
    pub(crate) async fn rows_on(self, slot: DiskSlot) -> Result<Vec<PlaceOfRow>, SpaceError> {
        rows_of_spaces_on(self.spaces.all(), slot).await
    }

    /// Puts a prepared device in the place of a disk: it joins the pool, gets all of the old disk's slabs, and the old
    /// disk is removed from the members once it holds none.
    ///
    /// # Errors
    /// [`SpaceError`]; the pool goes on with what it had.
    #[pooled]
    pub async fn replace(
        self,
        old: &Rc<Disk>,
        device: Rc<dyn BlockDevice>,
        overwrite: &[String],
        progress: &Progress,
    ) -> Result<Rc<Disk>, SpaceError> {
        let new = self.spaces.pool().membership().add_instead_of(old, device, overwrite).await?;
        self.finish_replacing(old, &new, progress).await?;
        Ok(new)
    }

    /// Brings a replacement to its end, from wherever it is
    /// ([`Members::replacements`](dolmen_pool::Members::replacements) tells which there are). Whether it is there: while disks are
    /// absent that have the only copy of something, the old disk stays.
    ///
    /// # Errors
    /// [`SpaceError`]; the pool goes on with what it had.
    #[pooled]
    pub async fn finish_replacing(
        self,
        old: &Rc<Disk>,
        new: &Rc<Disk>,
        progress: &Progress,
    ) -> Result<bool, SpaceError> {
        if !new.is_present() {
            return Ok(false);
        }
        if !self.spaces.pool().members().is_member(old) {
            // Ended already; its number may be another one's by now.
            return Ok(true);
        }
        let moved = self.move_slabs(old.slot(), new.slot(), progress).await?;
        if moved {
            self.spaces.pool().membership().evict(old).await?;
        }
        self.spaces.pool().voter_tender().tend().await?;
        Ok(moved)
    }
}

/// Rows of some spaces with a slab on a disk, in the order of the spaces.
pub(crate) async fn rows_of_spaces_on(
    spaces: Vec<Rc<SpaceRows>>,
    slot: DiskSlot,
) -> Result<Vec<PlaceOfRow>, SpaceError> {
    let mut rows = Vec::new();
    for space in spaces {
        let mut found = Vec::new();
        space
            .for_each_record(|index, record| {
                if record.columns.iter().flatten().any(|slab| slab.disk == slot) {
                    found.push(index);
                }
            })
            .await?;
        rows.extend(found.into_iter().map(|index| (Rc::clone(&space), index)));
    }
    Ok(rows)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing)]
mod tests {
    use std::time::Duration;

    use dolmen_block_io::sleep;

    use super::*;
    use crate::harness::slow_disks::{Slow, Task, extra, text};
    use crate::harness::{Bench, ROW, places_of};
    use crate::relocation::obstacles::EndCause;
    use crate::relocation::promote::Promotion;
    use crate::relocation::refill::RowRefill;
    use crate::relocation::resync::SlabChanges;
    use crate::relocation::resync::SlabTrust;
    use crate::resolution::decided_rows::DecidedRows;

    /// Scenario: a disk is replaced on which a row and its shadow row lie. An earlier try has filled the slab of the shadow row, where
    /// a block rots, as does another one of its stripe. The shadow row is promoted when the row has its new slab. The old slab, which alone
    /// has the block, is not dropped before the row is verified and healed.
    #[test]
    fn a_row_promoted_while_its_disk_is_replaced_is_verified_first() {
        let bench = Rc::new(Bench::with_profile(56, 3, || Slow::BRIEFLY.profile()));
        let spare = bench.world.add_disk("spare", Slow::BRIEFLY.profile());
        let (device, outside) = (spare.attach(&bench.world), Rc::clone(&bench));
        bench
            .run(async move |lab| {
                let spaces = lab.create().await?;
                let space = lab.with_shadow(&spaces, ROW.0).await?;
                spaces.pool().checkpoint().await?;
                let row = DecidedRows::of(&space).row(0).await?.ok_or("there is a row")?;
                let shadow = row.shadow().ok_or("there is a shadow row")?;
                let hidden = space.shadows.space().ok_or("there is a hidden space")?;
                let disks: Vec<DiskSlot> =
                    (0..2).map(|column| shadow.with_slabs(column, |slabs| slabs[0].disk)).collect();
                let old = spaces.pool().disk(disks[0]).ok_or("it is a member")?;
                let new = spaces.pool().membership().add_instead_of(&old, device, &[]).await?;
                let (from, to) = (old.slot(), new.slot());
                let mut result = Resynced::default();
                assert!(SlabChanges::of(&hidden).add_slab(&shadow, (from, to), |_| true).await?);
                let refilled =
                    RowRefill::of(&hidden).refill_row(0, &mut result).await?.ok_or("it was filled")?;
                SlabTrust::of(&spaces.shared).trust_all(&[(hidden, refilled)], &mut result).await?;
                let next = &outside.disks[usize::from(disks[1].0)];
                for (disk, blocks) in [(&spare, 0..1), (next, 4..5)] {
                    let places = places_of(disk, blocks, 2);
                    assert!(!places.is_empty());
                    places.into_iter().for_each(|at| disk.rot(at + 77, 3));
                }
                let progress = Progress::default();
                let replace: Task<'_> = Box::pin(async {
                    spaces.moves().move_slabs_once((from, to), &progress).await.map_err(text)?;
                    Ok(())
                });
                let promote: Task<'_> = Box::pin(async {
                    while row.count_columns(|slab| slab.disk == to && slab.stale.is_none()) == 0 {
                        sleep(lab.seams.clock.as_ref(), Duration::from_micros(50)).await;
                    }
                    progress.hold();
                    Promotion::of(&space).promote(&[0], EndCause::Unused).await.map_err(text)?;
                    progress.release();
                    Ok(())
                });
                extra(vec![replace, promote]).await?;
                assert_eq!(spaces.counters().shadows_promoted, 1);
                let read = lab.expect(&space, 0, 1 << 20, 2).await;
                read.map_err(|error| format!("the last copy was dropped: {error}"))?;
                drop((space, row, shadow));
                spaces.close().await?;
                Ok(())
            })
            .unwrap();
    }
}
