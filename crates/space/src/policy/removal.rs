//! A disk leaves the pool without another in its place: what it has goes to those that stay (docs/design/0010).
//!
//! Invariants:
//! - A slab is given up only where its column has as many others that count as it has copies.
//! - Nothing is begun that has no room by what is free at that moment.
//!
//! Left to others: where slabs go (`slab_targets`), moving them (`slab_moves`), striking the disk (crate `pool`).

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use dolmen_future_pool::pooled;
use dolmen_mutation::mutation;
use dolmen_placement::Offer;
use dolmen_pool::{Disk, Purpose};
use dolmen_units::{ALLOCATION_UNIT_BYTES, Bytes, DiskSlot, Name, SpaceId};

use crate::format::error::SpaceError;
use crate::policy::handles::{Caches, Moves};
use crate::policy::slab_targets::{SlabTargets, columns_to_move};
use crate::policy::sole_copy::is_lost;
use crate::relocation::allocator::Allocator;
use crate::relocation::resync::Resynced;
use crate::relocation::slab_moves::{Planner, RowToMove, SlabMove, Tried};
use crate::resources::progress::Progress;

/// What it takes to move everything off a disk, with what is free now.
#[derive(Debug, Clone, Default)]
pub struct RemovalForecast {
    /// Rows with a slab on the disk.
    pub rows: u64,
    /// Bytes that are claimed on other disks.
    pub moved: Bytes,
    /// Rows of which a slab has nowhere to go, by their space.
    pub stuck: BTreeMap<SpaceId, StuckRows>,
    /// What the other disks have to offer behind that.
    pub left: Vec<Offer>,
}

/// Rows of a space of which a slab has nowhere to go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StuckRows {
    /// What the space is called. One in the trash may be called as another one is.
    pub name: Name,
    /// How many.
    pub rows: u64,
}

/// Planner of a disk that is to hold nothing: its slabs go to the other disks.
struct Emptying<'a> {
    from: DiskSlot,
    /// Disks that take nothing.
    but: &'a dyn Fn() -> BTreeSet<DiskSlot>,
    goes_on: &'a dyn Fn() -> bool,
}

impl Planner for Emptying<'_> {
    fn next(&self, row: &RowToMove<'_>, tried: &Tried) -> Option<SlabMove> {
        let RowToMove { pool, record } = row;
        // What nobody here has fills no slab.
        if is_lost(pool, record) {
            return None;
        }
        let columns = columns_to_move(pool, record, self.from, record.copies());
        columns.into_iter().filter(|column| !tried.has_ended(*column)).find_map(|column| {
            let mut targets_for_slabs = SlabTargets::of(pool);
            (self.but)()
                .into_iter()
                .chain(tried.refused(column))
                .for_each(|slot| targets_for_slabs.refuse(slot));
            let to = targets_for_slabs.choose(pool, record, column, self.from)?;
            Some(SlabMove { column, from: self.from, to })
        })
    }

    fn leaves(&self, _: &Tried) -> Vec<DiskSlot> {
        vec![self.from]
    }

    fn goes_on(&self) -> bool {
        (self.goes_on)()
    }
}

impl Moves<'_> {
    /// What it would take to move everything off a disk.
    ///
    /// # Errors
    /// [`SpaceError`] when the metadata cannot be read.
    #[pooled]
    pub async fn forecast_removal(self, from: DiskSlot) -> Result<RemovalForecast, SpaceError> {
        self.forecast_removal_with(from, &[]).await
    }

    /// As [`forecast_removal`](Self::forecast_removal), with disks that may take rows by then.
    ///
    /// # Errors
    /// As there.
    #[pooled]
    pub async fn forecast_removal_with(
        self,
        from: DiskSlot,
        more: &[Offer],
    ) -> Result<RemovalForecast, SpaceError> {
        self.forecast_leaving(from, SlabTargets::with_more(self.spaces.pool(), more)).await
    }

    /// The same, to disks with such room.
    #[pooled]
    pub(crate) async fn forecast_leaving(
        self,
        from: DiskSlot,
        mut targets_for_slabs: SlabTargets,
    ) -> Result<RemovalForecast, SpaceError> {
        let mut forecast = RemovalForecast::default();
        for space in self.spaces.all() {
            space
                .for_each_record(|_, record| {
                    let copies = record.copies();
                    if !record.columns.iter().flatten().any(|slab| slab.disk == from) {
                        return;
                    }
                    forecast.rows += 1;
                    let mut is_stuck = false;
                    let mut after = record.clone();
                    for column in columns_to_move(self.spaces.pool(), record, from, copies) {
                        match targets_for_slabs.choose(self.spaces.pool(), &after, column, from) {
                            Some(to) => {
                                forecast.moved.0 +=
                                    record.shape.slab_map(column).units() * ALLOCATION_UNIT_BYTES;
                                let slabs = after.columns.get_mut(column).into_iter().flatten();
                                slabs.filter(|slab| slab.disk == from).for_each(|slab| slab.disk = to);
                            }
                            None => is_stuck = true,
                        }
                    }
                    if is_stuck {
                        let stuck = forecast.stuck.entry(space.id());
                        stuck.or_insert_with(|| StuckRows { name: space.name(), rows: 0 }).rows += 1;
                    }
                })
                .await?;
        }
        forecast.left = targets_for_slabs.left();
        Ok(forecast)
    }

    /// Moves everything off a disk that is to hold nothing and has no successor, to the others. Redundancy is never lower on the way;
    /// killed, it goes on when called again. Whether nothing is left; it ends early, with something left, when the disk is
    /// to stay after all or is to be replaced, and when it is stopped. Held and stopped between lots of rows.
    ///
    /// # Errors
    /// [`SpaceError`].
    #[pooled]
    pub async fn drain_disk(self, disk: &Rc<Disk>, progress: &Progress) -> Result<bool, SpaceError> {
        let goes_on = || self.spaces.pool().members().is_to_be_empty(disk);
        // Whoever chose the disk before it was retired has put that on record then.
        drop(self.spaces.pool().change(Purpose::Release).await);
        self.end_what_has_begun().await?;
        if mutation!(DrainNeedsItsDisk) && !disk.is_present() {
            return Ok(false);
        }
        let moved = self.move_off(disk.slot(), BTreeSet::new(), &goes_on, &BTreeSet::new, progress).await?;
        let Some(left) = moved else { return Ok(false) };
        let all = left.is_empty();
        self.note_deferred(disk, left);
        Ok(all && goes_on())
    }

    /// Waits for claims that began before and may lay something on a disk that is looked at next, and ends stripes that are half in
    /// place.
    pub(crate) async fn end_what_has_begun(self) -> Result<(), SpaceError> {
        for space in self.spaces.all() {
            Allocator::of(&space).claims_end().await;
        }
        Caches::of(self.spaces).finish_stripes().await
    }

    /// Moves what is on a disk to others, but for those that `but` names, and but for the rows of spaces that stay. The spaces of what
    /// is left there, those that stay among them, or nothing where it was to end before.
    #[pooled]
    pub(crate) async fn move_off(
        self,
        from: DiskSlot,
        stays: BTreeSet<SpaceId>,
        goes_on: &dyn Fn() -> bool,
        but: &dyn Fn() -> BTreeSet<DiskSlot>,
        progress: &Progress,
    ) -> Result<Option<BTreeSet<SpaceId>>, SpaceError> {
        let planner = Emptying { from, but, goes_on };
        let (mut left, mut result) = (stays, Resynced::default());
        // A row may take the place of another on the way, or one of a space be made there that waited: looked for again.
        loop {
            let mut rows = self.rows_on(from).await?;
            rows.retain(|(space, _)| !left.contains(&space.id()));
            if rows.is_empty() {
                return Ok(Some(left));
            }
            match self.spaces.slab_moves().move_rows(rows, &planner, progress, &mut result).await? {
                Some(more) => left.extend(more),
                None => return Ok(None),
            }
        }
    }

    /// Members that stay and are to hold nothing, and hold something.
    #[must_use]
    pub fn to_empty(self) -> Vec<Rc<Disk>> {
        let is_meant = |disk: &Rc<Disk>| {
            let pool = self.spaces.pool();
            pool.members().role_of(disk).is_some()
                && !pool.members().is_drained(disk)
                && pool.free_space().holds_rows(disk)
        };
        self.spaces.pool().disks().into_iter().filter(is_meant).collect()
    }

    /// The disks that are to leave without another in their place.
    #[must_use]
    pub fn drains(self) -> Vec<Rc<Disk>> {
        let disks = self.spaces.pool().disks();
        disks.into_iter().filter(|disk| self.spaces.pool().members().is_drained(disk)).collect()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing)]
mod tests {
    use super::*;
    use crate::format::resiliency::Resiliency;
    use crate::harness::Bench;
    use crate::resolution::decided_rows::DecidedRows;

    /// Scenario: a disk of a mirrored row is to hold nothing. The planner names another disk for its column; one more where that has no
    /// room; and none where all others refuse, are not to take anything, or the column has its slab.
    #[test]
    fn a_leaving_disk_gives_its_slabs_to_disks_that_the_row_is_not_on() {
        let bench = Bench::new(84, 4, Bytes::mib(128));
        bench
            .run(async move |lab| {
                let spaces = lab.create().await?;
                let resiliency = Resiliency::Mirror { copies: 2 };
                let space = lab.space(&spaces, "data", Bytes::mib(4), resiliency).await?;
                lab.write(&space, 0, 4096, 1).await?;
                let record = DecidedRows::of(&space).row(0).await?.ok_or("there is a row")?.record();
                let disks: Vec<DiskSlot> = record.columns.iter().flatten().map(|slab| slab.disk).collect();
                let pool = spaces.pool();
                let row = RowToMove { pool, record: &record };
                let nothing = BTreeSet::new;
                let emptying = Emptying { from: disks[0], but: &nothing, goes_on: &|| true };
                let mut tried = Tried::default();
                let mut targets = BTreeSet::new();
                while let Some(one) = emptying.next(&row, &tried) {
                    assert_eq!((one.column, one.from), (0, disks[0]));
                    assert!(
                        !disks.contains(&one.to) && targets.insert(one.to),
                        "{one:?} again, or on a disk of the row"
                    );
                    tried.refused.push(one);
                }
                assert_eq!(targets.len(), 2, "all disks that the row is not on");
                assert_eq!(emptying.leaves(&tried), [disks[0]]);
                let done = Tried { done: tried.refused.split_off(1), ..Tried::default() };
                assert_eq!(emptying.next(&row, &done), None, "its column has a slab");
                let all = || targets.clone();
                let refusing = Emptying { but: &all, ..emptying };
                assert_eq!(refusing.next(&row, &Tried::default()), None, "no disk takes anything");
                drop(space);
                lab.check_and_close(spaces).await
            })
            .unwrap();
    }
}
