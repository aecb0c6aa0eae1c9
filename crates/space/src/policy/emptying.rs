//! A disk that is failing is emptied and stays in the pool (docs/design/0022): what it has goes to the others, as with one that leaves
//! (`removal`). Of one that stays away, and that the others could not do without, what has a place elsewhere is rebuilt there
//! (docs/design/0015).
//!
//! Invariants:
//! - Nothing of it goes to another disk that is known to be failing.
//! - Each row is where it was or elsewhere, with the redundancy that it had; whoever ends it early leaves it at that.
//!
//! Left to others: whether a disk is failing, and whether it is to be emptied (the daemon).

use std::collections::BTreeSet;
use std::rc::Rc;

use dolmen_future_pool::pooled;
use dolmen_placement::Offer;
use dolmen_pool::{Ailment, Disk};
use dolmen_units::{DiskSlot, Name, SpaceId};

use crate::format::error::SpaceError;
use crate::format::ids::is_hidden;
use crate::policy::handles::Moves;
use crate::policy::removal::RemovalForecast;
use crate::policy::slab_targets::SlabTargets;
use crate::resources::progress::Progress;
use crate::table::space::SpaceRows;

/// What came of emptying a disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Emptied {
    /// Nothing was left on it at the last look.
    All,
    /// Rows of these spaces have a part there that no other disk took, or that nobody could fill elsewhere.
    AllBut(Vec<Name>),
    /// It was to end before.
    CutShort,
}

impl Moves<'_> {
    /// What it would take to empty a disk that stays in the pool.
    ///
    /// # Errors
    /// [`SpaceError`] when the metadata cannot be read.
    #[pooled]
    pub async fn forecast_emptying(self, from: DiskSlot) -> Result<RemovalForecast, SpaceError> {
        let mut targets_for_slabs = SlabTargets::of(self.spaces.pool());
        self.failing().iter().for_each(|slot| targets_for_slabs.refuse(*slot));
        self.forecast_leaving(from, targets_for_slabs).await
    }

    /// Moves what is on a disk to the others, for as long as that is wanted. The disk stays a member that takes slabs where a row
    /// cannot be laid otherwise. Redundancy is never lower on the way; killed, it goes on when called again. Held and stopped
    /// between lots of rows.
    ///
    /// # Errors
    /// [`SpaceError`].
    pub async fn empty_disk(
        self,
        disk: &Rc<Disk>,
        is_wanted: impl Fn() -> bool,
        progress: &Progress,
    ) -> Result<Emptied, SpaceError> {
        self.end_what_has_begun().await?;
        let goes_on = || is_wanted() && self.spaces.pool().members().is_active(disk) && disk.is_present();
        let moved =
            self.move_off(disk.slot(), BTreeSet::new(), &goes_on, &|| self.failing(), progress).await?;
        Ok(moved.map_or(Emptied::CutShort, |left| self.emptied_but(&left)))
    }

    /// Spaces of which a member that is away has a part, and that can have it on other disks: they survive the loss of one, and
    /// there is room for all of it, with disks that may take rows by then.
    ///
    /// # Errors
    /// [`SpaceError`] when the metadata cannot be read.
    #[pooled]
    pub async fn rebuildable(self, disk: &Disk, more: &[Offer]) -> Result<BTreeSet<SpaceId>, SpaceError> {
        let stuck = self.forecast_removal_with(disk.slot(), more).await?.stuck;
        let mut spaces = self.look_who_is_on(disk).await?;
        spaces.retain(|space| space.spec().resiliency.losses() > 0 && !stuck.contains_key(&space.id()));
        Ok(spaces.into_iter().map(|space| space.id()).collect())
    }

    /// Spaces with a part on a member that is away; of the others it is noted that they have none.
    async fn look_who_is_on(self, disk: &Disk) -> Result<Vec<Rc<SpaceRows>>, SpaceError> {
        let before = (disk.seating(), self.spaces.shared.claims_on_absent.get());
        let mut spaces = self.spaces.all();
        let rows = self.rows_on(disk.slot()).await?;
        let on: BTreeSet<SpaceId> = rows.iter().map(|(space, _)| space.id()).collect();
        let nothing = spaces.iter().map(|space| space.id()).filter(|id| !on.contains(id)).collect();
        // Where somebody has claimed something there meanwhile, nothing is known.
        if before == (disk.seating(), self.spaces.shared.claims_on_absent.get()) && !disk.is_present() {
            self.spaces.shared.nothing_on.borrow_mut().insert(disk.id(), (before.0, nothing));
        }
        spaces.retain(|space| on.contains(&space.id()));
        Ok(spaces)
    }

    /// Whether it is known that a space has nothing on a member that is away: it was looked at since the disk left, when it was tried
    /// to rebuild what is there.
    #[must_use]
    pub fn has_nothing_on(self, disk: &Disk, space: SpaceId) -> bool {
        let nothing_on = self.spaces.shared.nothing_on.borrow();
        let is_meant = |seating: u64| seating == disk.seating() && !disk.is_present();
        let known = nothing_on.get(&disk.id()).filter(|(seating, _)| is_meant(*seating));
        // What is on its way to a space is in hidden ones.
        let counts = |id: SpaceId| id == space || is_hidden(id);
        known.is_some_and(|(_, spaces)| {
            self.spaces
                .all()
                .iter()
                .map(|one| one.id())
                .filter(|id| counts(*id))
                .all(|id| spaces.contains(&id))
        })
    }

    /// Rebuilds on the other disks what a member that is away has of some spaces, for as long as that is wanted. It stays a member: what
    /// it has of others is there when it is back, and of these it has nothing any more. Killed, it goes on when called again. Held
    /// and stopped between lots of rows.
    ///
    /// # Errors
    /// [`SpaceError`].
    pub async fn rebuild_without(
        self,
        disk: &Rc<Disk>,
        spaces: &BTreeSet<SpaceId>,
        is_wanted: impl Fn() -> bool,
        progress: &Progress,
    ) -> Result<Emptied, SpaceError> {
        self.end_what_has_begun().await?;
        let stays: BTreeSet<SpaceId> =
            self.spaces.all().iter().map(|space| space.id()).filter(|id| !spaces.contains(id)).collect();
        let goes_on = || is_wanted() && self.spaces.pool().members().is_active(disk) && !disk.is_present();
        let moved = self.move_off(disk.slot(), stays, &goes_on, &BTreeSet::new, progress).await?;
        self.look_who_is_on(disk).await?;
        let is_of_these = |left: BTreeSet<SpaceId>| left.intersection(spaces).copied().collect();
        Ok(moved.map(is_of_these).map_or(Emptied::CutShort, |left| self.emptied_but(&left)))
    }

    /// What came of it, if rows of some spaces were left.
    fn emptied_but(self, left: &BTreeSet<SpaceId>) -> Emptied {
        if left.is_empty() {
            return Emptied::All;
        }
        let names = self.spaces.all().into_iter().filter(|space| left.contains(&space.id()));
        Emptied::AllBut(names.map(|space| space.name()).collect())
    }

    fn failing(self) -> BTreeSet<DiskSlot> {
        let disks = self.spaces.pool().disks();
        let failing = disks.iter().filter(|disk| disk.ailment() == Some(Ailment::Failing));
        failing.map(|disk| disk.slot()).collect()
    }
}
