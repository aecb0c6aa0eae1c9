//! A disk that is sick is emptied and stays in the pool (docs/design/0022): what it has goes to the others, as with one that leaves
//! (`removal`).
//!
//! Invariants:
//! - Nothing of it goes to another disk that is known to be sick.
//! - Each row is where it was or elsewhere, with the redundancy that it had; whoever ends it early leaves it at that.
//!
//! Left to others: whether a disk is sick, and whether it is to be emptied (the daemon).

use std::collections::BTreeSet;
use std::rc::Rc;

use dolmen_pool::{Ailment, Disk};
use dolmen_units::{DiskSlot, Name};

use crate::error::SpaceError;
use crate::homes::Homes;
use crate::progress::Progress;
use crate::removal::RemovalForecast;
use crate::spaces::Spaces;

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

impl Spaces {
    /// What it would take to empty a disk that stays in the pool.
    ///
    /// # Errors
    /// [`SpaceError`] when the metadata cannot be read.
    pub async fn forecast_emptying(&self, from: DiskSlot) -> Result<RemovalForecast, SpaceError> {
        let mut homes = Homes::of(self.pool());
        self.sick().iter().for_each(|slot| homes.refuse(*slot));
        self.forecast_leaving(from, homes).await
    }

    /// Moves what is on a disk to the others, for as long as that is wanted. The disk stays a member that takes slabs where a row
    /// cannot be laid otherwise. Redundancy is never lower on the way; killed, it goes on when called again. Held and stopped
    /// between lots of rows.
    ///
    /// # Errors
    /// [`SpaceError`].
    pub async fn empty_disk(
        &self,
        disk: &Rc<Disk>,
        is_wanted: impl Fn() -> bool,
        progress: &Progress,
    ) -> Result<Emptied, SpaceError> {
        for space in self.all() {
            space.claims_end().await;
        }
        self.finish_lines().await?;
        let goes_on = || is_wanted() && self.pool().is_active(disk) && disk.is_present();
        let Some(left) = self.move_off(disk.slot(), &goes_on, &|| self.sick(), progress).await? else {
            return Ok(Emptied::CutShort);
        };
        if left.is_empty() {
            return Ok(Emptied::All);
        }
        let names = self.all().into_iter().filter(|space| left.contains(&space.id()));
        Ok(Emptied::AllBut(names.map(|space| space.name()).collect()))
    }

    fn sick(&self) -> BTreeSet<DiskSlot> {
        let disks = self.pool().disks();
        let sick = disks.iter().filter(|disk| disk.ailment() == Some(Ailment::Sick));
        sick.map(|disk| disk.slot()).collect()
    }
}
