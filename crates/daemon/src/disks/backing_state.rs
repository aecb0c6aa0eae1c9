//! What becomes of what a disk lies on while its pool is open: a file is removed or cut, a device taken out.
//!
//! Nothing of it is decided by this. A file that was removed takes reads and writes for as long as the daemon has it open,
//! so to give its disk up at once would cost redundancy that is still there; one that was cut, or is unplugged, fails by
//! itself with the next flush or command. But who is told only then, or when the daemon has ended, is told too late.

use std::rc::Rc;

use dolmen_api::{Finding, Health, Object};
use dolmen_disk::ExtentError;
use dolmen_pool::Disk;

use crate::advice::Advice;
use crate::finding::found;
use crate::health::only_on;
use crate::open_pool::OpenPool;
use crate::state::{Backing, Occupant};

impl OpenPool {
    /// Notes what was seen of disks, by their names; what is new is logged, once.
    pub(crate) fn note_backing_states(&self, seen: &[(String, Backing)]) {
        let mut known = self.backing_states.borrow_mut();
        let mut now = std::collections::BTreeMap::new();
        for disk in self.spaces.pool().disks().iter().filter(|disk| disk.is_present()) {
            let Some((_, backing_state)) = seen.iter().find(|(name, _)| *name == disk.name()) else {
                continue;
            };
            if known.get(&disk.slot()) != Some(backing_state) {
                tracing::error!(pool = self.name(), "{}", backing_state.why(disk));
            }
            now.insert(disk.slot(), *backing_state);
        }
        *known = now;
    }

    /// What was seen last of a disk that takes part.
    pub(crate) fn backing_state_of(&self, disk: &Disk) -> Option<Backing> {
        self.backing_states.borrow().get(&disk.slot()).copied().filter(|_| disk.is_present())
    }

    /// How an absent disk was cut, where its file is too short to be taken back in.
    pub(crate) fn cut_of_absent(&self, disk: &Disk) -> Option<ExtentError> {
        let seen_before = || match self.backing_states.borrow().get(&disk.slot()) {
            Some(Backing::CutTo(found)) => Some(*found),
            Some(Backing::Removed | Backing::Unplugged) | None => None,
        };
        let found = match self.absences.at_place_of(disk.id()) {
            Some(Occupant::File(found)) => Some(found),
            Some(Occupant::Nothing | Occupant::Other) => None,
            // It has just left.
            None => seen_before(),
        };
        let extent = disk.size().extent()?;
        extent.fits(found.filter(|_| !disk.is_present())?).err()
    }

    /// What has become of what disks lie on.
    pub(crate) fn backing_state_findings(&self) -> Vec<Finding> {
        let disks = self.spaces.pool().disks();
        let finding = |disk: &Rc<Disk>| {
            let backing_state = self.backing_state_of(disk)?;
            let object = Object::disk(self.name(), disk.slot().0);
            Some(found(backing_state.code(), Health::Warning, object, backing_state.why(disk)))
        };
        disks.iter().filter_map(finding).collect()
    }

    /// What to do about it.
    pub(crate) fn backing_state_advice(&self) -> Vec<Advice> {
        let name = self.name();
        let disks = self.spaces.pool().disks();
        let advice = |disk: &Rc<Disk>| {
            let backing_state = self.backing_state_of(disk)?;
            let object = Object::disk(name.as_str(), disk.slot().0);
            Some(Advice::new(
                backing_state.code(),
                object,
                backing_state.todo(&name, &self.called(disk), disk, &only_on(self, disk)),
            ))
        };
        disks.iter().filter_map(advice).collect()
    }
}
