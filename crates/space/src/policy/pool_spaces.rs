//! The spaces of an open pool, as those see them that change them.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use dolmen_block_io::sync::AsyncMutex;
use dolmen_pool::Pool;
use dolmen_units::Bytes;
use dolmen_units::{DiskId, SpaceId};

use crate::format::error::SpaceError;
use crate::format::ids::is_hidden;
use crate::relocation::slab_moves::SlabMoves;
use crate::resolution::recovery::Recovery;
use crate::resources::events::{DataLossEvent, SpaceCounters};
use crate::resources::throttle::JobShare;
use crate::table::space::{AllSpaces, Cache, Shared, SpaceList, SpaceRows};

/// The spaces of an open pool.
pub struct PoolSpaces {
    pub(crate) shared: Rc<Shared>,
    pub(crate) list: Rc<SpaceList>,
    pub(crate) spaces: Rc<AllSpaces>,
    /// Write caches, by the redundancy of the spaces that they are for.
    pub(crate) caches: RefCell<BTreeMap<u8, Rc<Cache>>>,
    pub(crate) cache_mutex: AsyncMutex,
    pub(crate) recovery: Recovery,
    /// Spaces whose slabs could not all be moved away from a disk, when that was tried last.
    pub(crate) left: RefCell<BTreeMap<DiskId, BTreeSet<SpaceId>>>,
}

impl PoolSpaces {
    /// Returns the executor of slab moves.
    pub(crate) fn slab_moves(&self) -> SlabMoves<'_> {
        SlabMoves { shared: &self.shared }
    }

    /// How the jobs of the pool share its disks with clients from now on: until it is said otherwise, they take all that they
    /// can get.
    pub fn set_job_share(&self, job_share: JobShare) {
        self.shared.throttle.set(job_share);
    }

    /// What [`set_job_share`](Self::set_job_share) said last.
    #[must_use]
    pub fn job_share(&self) -> JobShare {
        self.shared.throttle.job_share()
    }

    /// The pool.
    #[must_use]
    pub fn pool(&self) -> &Rc<Pool> {
        &self.shared.pool
    }

    /// What recovery did when the pool was opened.
    #[must_use]
    pub fn recovery(&self) -> Recovery {
        self.recovery
    }

    /// What was done since.
    #[must_use]
    pub fn counters(&self) -> SpaceCounters {
        self.shared.counters.get()
    }

    /// Ranges that were damaged or accepted unverified since the pool was opened, oldest first.
    #[must_use]
    pub fn data_loss_events(&self) -> Vec<DataLossEvent> {
        self.shared.data_loss_events.borrow().iter().cloned().collect()
    }

    /// All spaces that people made and may use, by id: none that is in the trash or being deleted.
    pub(crate) fn list(&self) -> Vec<Rc<SpaceRows>> {
        self.all().into_iter().filter(|space| space.is_in_use()).collect()
    }

    /// The space with this id, if it is one of [`list`](Self::list). Takes no memory.
    pub(crate) fn get(&self, id: SpaceId) -> Option<Rc<SpaceRows>> {
        self.spaces.borrow().get(&id).filter(|space| space.is_in_use()).cloned()
    }

    /// All spaces, the hidden ones behind the others.
    pub(crate) fn all(&self) -> Vec<Rc<SpaceRows>> {
        self.spaces.borrow().values().cloned().collect()
    }

    /// The space with this name.
    ///
    /// # Errors
    /// [`SpaceError::NoSuchSpace`].
    pub(crate) fn find(&self, name: &str) -> Result<Rc<SpaceRows>, SpaceError> {
        let found = self.list().into_iter().find(|space| space.name().as_str() == name);
        found.ok_or_else(|| SpaceError::NoSuchSpace { name: name.to_owned() })
    }

    /// Room for slabs on all members, whether they are here or not.
    pub(crate) fn data_bytes(&self) -> Bytes {
        Bytes(self.pool().disks().iter().map(|disk| disk.data_bytes().0).sum())
    }

    /// The write cache that lies in a space.
    pub(crate) fn cache_in(&self, space: &SpaceRows) -> Option<Rc<Cache>> {
        self.shared.caches().into_iter().find(|cache| cache.space().id() == space.id())
    }

    /// Finds the spaces that others leave something to.
    pub(crate) fn note_minimums(&self) {
        self.list
            .minimum_rates
            .set(self.list().iter().map(|space| Rc::clone(&space.terms)), self.pool().seams().clock.now());
    }

    pub(crate) fn cache_for(&self, redundancy: u8) -> Result<Rc<Cache>, SpaceError> {
        self.caches.borrow().get(&redundancy).cloned().ok_or(SpaceError::NoWriteCache { redundancy })
    }

    /// All spaces that people made, those in the trash and those that are being deleted among them.
    pub(crate) fn made_by_people(&self) -> Vec<Rc<SpaceRows>> {
        self.all().into_iter().filter(|space| !is_hidden(space.id())).collect()
    }
}
