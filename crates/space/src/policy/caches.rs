//! Write caches of the spaces: makes, resizes, destages and deletes them.

use std::rc::Rc;
use std::rc::Weak;

use dolmen_block_io::sync::Permit;
use dolmen_future_pool::pooled;
use dolmen_pool::PoolError;
use dolmen_pool::Purpose;
use dolmen_pool::keys;
use dolmen_units::Bytes;

use crate::cache::cache_size::{CacheResize, WriteCache};
use crate::cache::recycle::Recycling;
use crate::format::error::SpaceError;
use crate::format::ids::cache_id;
use crate::format::layouts::Layouts;
use crate::format::spec::{SpaceSpec, Standing, cache_spec};
use crate::policy::copies::CacheCopies;
use crate::policy::destage_rounds::DestageRounds;
use crate::policy::handles::{Caches, Changes};
use crate::resolution::replay::{CacheReplay, FINISHED_TOGETHER};
use crate::table::drain_settings::settings_of;
use crate::table::space::{Cache, SpaceRows};

impl<'s> Caches<'s> {
    /// Gives a space the write caches that its rows need.
    pub(crate) fn give_caches(self, space: &Rc<SpaceRows>) {
        for (layout, redundancy) in space.write_caches() {
            if let Some(cache) = self.spaces.caches.borrow().get(&redundancy) {
                cache.add_owner(space, layout);
            }
        }
    }

    /// Makes the write cache for spaces of a redundancy, unless there is one; the turn in which it stays.
    #[pooled]
    pub(crate) async fn make_cache(self, redundancy: u8) -> Result<Permit<'s>, SpaceError> {
        let mutex = self.spaces.cache_mutex.take().await;
        if self.spaces.caches.borrow().contains_key(&redundancy) {
            return Ok(mutex);
        }
        let spec = cache_spec(redundancy, self.spaces.data_bytes());
        let id = cache_id(redundancy);
        let space = SpaceRows::new(
            Rc::clone(&self.spaces.shared),
            Rc::clone(&self.spaces.list),
            id,
            spec.clone(),
            Layouts::default(),
        )?;
        let mut change = self.spaces.pool().change(Purpose::Claim).await;
        change.put(keys::space(id), space.encode(&spec, Standing::Unfinished));
        settings_of(id).into_iter().for_each(|key| change.delete(key));
        change.commit().await?;
        self.spaces.spaces.borrow_mut().insert(id, Rc::clone(&space));
        if let Err(error) = Changes::of(self.spaces).claim_and_finish(&space, spec).await {
            Changes::of(self.spaces).delete_but_for_its_cache(&space).await?;
            return Err(error);
        }
        let cache = Cache::start(space).await?;
        self.spaces.shared.caches.borrow_mut().push(Rc::downgrade(&cache));
        self.spaces.caches.borrow_mut().insert(redundancy, cache);
        Ok(mutex)
    }

    /// Finishes stripes of parity that may be half in place, as far as their disks are here.
    #[pooled]
    pub(crate) async fn finish_stripes(self) -> Result<(), SpaceError> {
        for cache in self.spaces.shared.caches() {
            // Those that cannot be finished come again behind the others; once each of them was tried is enough.
            let mut left = cache.unfinished.borrow().len();
            while left > 0 {
                match self.spaces.pool().log().wait_for_room().await {
                    // They wait for room there as well.
                    Err(PoolError::LogOccupied { .. } | PoolError::MetadataFull { .. }) => return Ok(()),
                    other => other?,
                }
                CacheCopies::of(&cache).bring_rows(usize::MAX).await?;
                let _exclusive = cache.mutex.take().await;
                Recycling::of(&cache).make_ready().await?;
                match CacheReplay::of(&cache).finish_stripes().await {
                    // They wait, and no pool stays closed for it.
                    Err(error) if !error.may_pass() => return Err(error),
                    Ok(_) | Err(_) => {}
                }
                left = left.saturating_sub(FINISHED_TOGETHER);
            }
        }
        Ok(())
    }

    /// The write caches.
    ///
    /// # Errors
    /// When the metadata cannot be read.
    #[pooled]
    pub async fn write_caches(self) -> Result<Vec<WriteCache>, SpaceError> {
        let mut caches = Vec::new();
        for cache in self.spaces.shared.caches() {
            caches.push(CacheResize::of(&cache).view().await?);
        }
        Ok(caches)
    }

    /// What making a space would claim at once for its write cache: nothing if it has one already.
    #[must_use]
    pub fn new_write_cache(self, spec: &SpaceSpec) -> Option<Bytes> {
        let missing =
            spec.write_cache().filter(|redundancy| !self.spaces.caches.borrow().contains_key(redundancy));
        missing.map(|redundancy| cache_spec(redundancy, self.spaces.data_bytes()).size)
    }

    /// Puts everything that is in the write caches in place.
    ///
    /// # Errors
    /// [`SpaceError`]: what stands in the way.
    #[pooled]
    pub async fn destage(self) -> Result<(), SpaceError> {
        for cache in self.spaces.shared.caches() {
            DestageRounds::of(&cache).empty_all().await?;
        }
        Ok(())
    }

    /// Deletes the write cache for spaces of a redundancy when none is left that needs it.
    pub(crate) async fn drop_cache(self, redundancy: u8) -> Result<(), SpaceError> {
        let _exclusive = self.spaces.cache_mutex.take().await;
        let needed = self
            .spaces
            .all()
            .iter()
            .any(|space| space.write_caches().any(|(_, needed)| needed == redundancy));
        if needed {
            return Ok(());
        }
        let cache = self.spaces.caches.borrow_mut().remove(&redundancy);
        if let Some(cache) = &cache {
            CacheResize::of(cache).note_deleting().await;
            // Whoever was at it is done then. A checkpoint may want the turn while the rows are given back.
            drop(cache.mutex.take().await);
        }
        let hidden = self.spaces.spaces.borrow().get(&cache_id(redundancy)).cloned();
        if let Some(hidden) = hidden {
            Changes::of(self.spaces).delete_but_for_its_cache(&hidden).await?;
        }
        // Whoever holds a deleted space holds its cache too.
        let is_deleting =
            |other: &Weak<Cache>| cache.as_ref().is_some_and(|cache| other.as_ptr() == Rc::as_ptr(cache));
        self.spaces.shared.caches.borrow_mut().retain(|other| !is_deleting(other));
        Ok(())
    }
}
