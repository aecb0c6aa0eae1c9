//! Changes of spaces: makes, resizes, renames and deletes them, and reserves room for them.

use std::rc::Rc;

use dolmen_future_pool::pooled;
use dolmen_placement::NoRoom;
use dolmen_placement::Offer;
use dolmen_placement::Placer;
use dolmen_placement::Request;
use dolmen_pool::Disk;
use dolmen_pool::PoolError;
use dolmen_pool::Purpose;
use dolmen_pool::keys;
use dolmen_units::Bytes;
use dolmen_units::Name;
use dolmen_units::SpaceId;

use crate::format::attributes::{Attribute, check_attributes_at_creation};
use crate::format::error::SpaceError;
use crate::format::ids::COUNTER_SPACE;
use crate::format::layouts::Layouts;
use crate::format::limits::Limits;
use crate::format::spec::{Provisioning, SpaceSpec, Standing};
use crate::policy::attributes::put_attributes;
use crate::policy::forecast::{WriteCacheRows, write_cache_rows};
use crate::policy::handles::{Caches, Changes, Trash};
use crate::policy::reserve::{Reserves, unless_full};
use crate::relocation::allocator::Allocator;
use crate::relocation::exchange::Exchanges;
use crate::resources::fast_disks::is_fast;
use crate::resources::progress::Progress;
use crate::space_io::discard::Discards;
use crate::table::space::SpaceRows;

impl Changes<'_> {
    /// Checks whether a space could be made, and changes nothing.
    ///
    /// # Errors
    /// The first reason why not.
    pub fn check_create(self, spec: &SpaceSpec) -> Result<Request, SpaceError> {
        if self.spaces.find(spec.name.as_str()).is_ok() {
            return Err(SpaceError::NameTaken { name: spec.name.clone() });
        }
        let request = self.check_disks(spec)?;
        self.check_repairable(spec)?;
        // Also where it is thin, it needs its write cache at once.
        self.claimed_first(spec.write_cache())?;
        let rows = spec.size.0.div_ceil(spec.row_bytes().0);
        if spec.provisioning == Provisioning::Fixed && self.rows_that_fit(spec)? < rows {
            return Err(SpaceError::Size {
                found: spec.size,
                why: "a fixed space has to fit the pool; make it smaller, thin, or add disks",
            });
        }
        Ok(request)
    }

    /// Checks whether there are disks for the rows of a space.
    ///
    /// # Errors
    /// [`SpaceError`] names what there is too little of.
    pub(crate) fn check_disks(self, spec: &SpaceSpec) -> Result<Request, SpaceError> {
        let request = spec.check()?;
        let takes =
            |disk: &Rc<Disk>| disk.is_present() && self.spaces.pool().members().role_of(disk).is_none();
        let disks = self.spaces.pool().disks().into_iter().filter(takes);
        let mut domains: Vec<_> =
            disks.filter_map(|disk| self.spaces.pool().members().domain_of(disk.slot())).collect();
        domains.sort_unstable();
        domains.dedup();
        let needed = spec.domains_needed(request.resiliency().minimum_disks());
        if (domains.len() as u64) < u64::from(needed) {
            let what = spec
                .columns
                .map_or(format!("{}", spec.resiliency), |c| format!("{} with {c} columns", spec.resiliency));
            return Err(SpaceError::TooFewDisks { what, needed, found: domains.len() });
        }
        self.check_voters(spec)?;
        Ok(request)
    }

    /// Refuses a space that survives the loss of as many disks as carry the metadata, where there will not be more of these:
    /// the others are too small for it.
    fn check_voters(self, spec: &SpaceSpec) -> Result<(), SpaceError> {
        let (small, found) = (
            self.spaces.pool().voter_tender().too_small_to_vote(),
            self.spaces.pool().members().voters().len(),
        );
        let redundancy = usize::from(spec.resiliency.losses());
        if small.is_empty() || redundancy == 0 || found > redundancy {
            return Ok(());
        }
        Err(SpaceError::TooFewVoters {
            what: spec.resiliency.to_string(),
            found,
            small: small.iter().map(|disk| disk.name()).collect::<Vec<_>>().join(", "),
            area: self.spaces.pool().identity().voter_metadata_min(),
        })
    }

    /// Refuses a space whose rows need disks that have to be left for their repair.
    fn check_repairable(self, spec: &SpaceSpec) -> Result<(), SpaceError> {
        let units = spec.resiliency.slab_units(spec.interleave);
        let losses = self.spaces.pool().free_space().keeps_room_for();
        let offers = self.spaces.pool().free_space().offers_keeping(losses);
        if Placer::new(spec.check()?, units).repairable(&offers) >= losses {
            return Ok(());
        }
        let name = self.spaces.pool().name().clone();
        Err(PoolError::NoSpace { name, source: NoRoom::Kept { losses } }.into())
    }

    /// Rows of a space that the pool's free room holds.
    ///
    /// # Errors
    /// [`SpaceError`] when the space cannot be, or its write cache finds no room.
    pub(crate) fn rows_that_fit(self, spec: &SpaceSpec) -> Result<u64, SpaceError> {
        let units = spec.resiliency.slab_units(spec.interleave);
        let first = self.claimed_first(spec.write_cache())?;
        let rotation = self.spaces.pool().free_space().next_in_order() + first.rows.len() as u64;
        Ok(Placer::new(spec.check()?, units).usable_from(&first.left, rotation).rows)
    }

    /// What disks offer to a space, once it has the write cache of this redundancy, if it needs one.
    ///
    /// # Errors
    /// [`SpaceError`] when there is no room for that.
    pub fn offers_with_cache(self, write_cache: Option<u8>) -> Result<Vec<Offer>, SpaceError> {
        Ok(self.claimed_first(write_cache)?.left)
    }

    /// The write cache of this redundancy, if it is needed and not there.
    fn claimed_first(self, write_cache: Option<u8>) -> Result<WriteCacheRows, SpaceError> {
        let offers = self.spaces.pool().free_space().offers(Purpose::Claim);
        let is_missing = |redundancy: &u8| !self.spaces.caches.borrow().contains_key(redundancy);
        let Some(redundancy) = write_cache.filter(is_missing) else {
            return Ok(WriteCacheRows { rows: Vec::new(), left: offers });
        };
        let rotation = self.spaces.pool().free_space().next_in_order();
        let is_fast = |slot| is_fast(self.spaces.pool(), slot);
        let cache = write_cache_rows(&offers, redundancy, self.spaces.data_bytes(), rotation, is_fast);
        Ok(cache.map_err(|source| PoolError::NoSpace { name: self.spaces.pool().name().clone(), source })?)
    }

    /// Makes a space, with its first attributes in the same change of the map.
    ///
    /// # Errors
    /// [`SpaceError`]; nothing is left of it then.
    #[pooled]
    pub(crate) async fn create(
        self,
        spec: SpaceSpec,
        attributes: Vec<Attribute>,
    ) -> Result<Rc<SpaceRows>, SpaceError> {
        self.check_create(&spec)?;
        check_attributes_at_creation(&spec.name, &attributes)?;
        let redundancy = spec.write_cache();
        // Until it is known that the space needs the cache, it must not be dropped as one that no space needs.
        let mutex = match redundancy {
            Some(redundancy) => Some(Caches::of(self.spaces).make_cache(redundancy).await?),
            None => None,
        };
        let made = self.make_space(spec, attributes).await;
        drop(mutex);
        let made = match made {
            Ok(Made::Whole(space)) => return Ok(space),
            // Its locks are taken before that of the list of caches, which is free again.
            Ok(Made::Lacking(space, error)) => self.delete_but_for_its_cache(&space).await.and(Err(error)),
            Err(error) => Err(error),
        };
        if let Some(redundancy) = redundancy {
            // Where that fails, the next opening does it.
            let _ = Caches::of(self.spaces).drop_cache(redundancy).await;
        }
        made
    }

    #[pooled]
    async fn make_space(self, spec: SpaceSpec, attributes: Vec<Attribute>) -> Result<Made, SpaceError> {
        let mut change = self.spaces.pool().change(Purpose::Claim).await;
        let id = SpaceId(change.number(keys::counter(COUNTER_SPACE)).await?);
        // Somebody may have taken the name while this waited for its turn.
        self.check_name(&spec.name, None)?;
        let space = SpaceRows::new(
            Rc::clone(&self.spaces.shared),
            Rc::clone(&self.spaces.list),
            id,
            spec.clone(),
            Layouts::default(),
        )?;
        let standing = match spec.provisioning {
            Provisioning::Thin => Standing::Whole,
            Provisioning::Fixed => Standing::Unfinished,
        };
        change.put(keys::space(id), space.encode(&spec, standing));
        put_attributes(&mut change, id, attributes);
        change.commit().await?;
        // Its spec does not change before it is whole. No other task knows it yet, so nothing waits here with the list of write
        // caches locked, whose lock comes after that of a spec.
        let Some(mutex) = space.spec_mutex.try_take() else {
            panic!("a space that was just made is not locked")
        };
        self.adopt(&space);
        if standing == Standing::Whole {
            drop(mutex);
            return Ok(Made::Whole(space));
        }
        let claimed = self.claim_and_finish(&space, spec).await;
        drop(mutex);
        match claimed {
            Ok(()) => Ok(Made::Whole(space)),
            Err(error) => {
                // The map says that it is unfinished: also where that cannot be cleared away now, nobody uses it.
                space.freed.set(true);
                Ok(Made::Lacking(space, error))
            }
        }
    }

    /// Makes a space known, and gives it its write cache if it needs one.
    fn adopt(self, space: &Rc<SpaceRows>) {
        Caches::of(self.spaces).give_caches(space);
        self.spaces.spaces.borrow_mut().insert(space.id(), Rc::clone(space));
        self.spaces.note_minimums();
    }

    pub(crate) async fn claim_and_finish(
        self,
        space: &Rc<SpaceRows>,
        spec: SpaceSpec,
    ) -> Result<(), SpaceError> {
        Allocator::of(space).claim_all().await?;
        self.put_spec(space, spec).await
    }

    /// Deletes a space and gives its rows back. Killed half-way, the rest goes with the next [`purge`](crate::Trash::purge).
    ///
    /// # Errors
    /// [`SpaceError`].
    #[pooled]
    pub async fn delete(self, space: &Rc<SpaceRows>) -> Result<(), SpaceError> {
        self.delete_but_for_its_cache(space).await?;
        for (_, redundancy) in space.write_caches() {
            Caches::of(self.spaces).drop_cache(redundancy).await?;
        }
        Ok(())
    }

    #[pooled]
    pub(crate) async fn delete_but_for_its_cache(self, space: &Rc<SpaceRows>) -> Result<(), SpaceError> {
        Trash::of(self.spaces).condemn(space).await?;
        Trash::of(self.spaces).free_condemned(space, &Progress::default()).await.map(drop)
    }

    /// Changes the size of a space: larger always, smaller where nothing is in the way.
    ///
    /// # Errors
    /// [`SpaceError::NotEmpty`], [`SpaceError::Size`], [`SpaceError::TooLarge`], or what the pool says.
    #[pooled]
    pub async fn resize(self, space: &Rc<SpaceRows>, size: Bytes) -> Result<(), SpaceError> {
        let _exclusive = space.spec_mutex.take().await;
        space.check_stays()?;
        let mut spec = space.spec();
        let before = spec.size;
        spec.size = size;
        // The length of rows was fixed when the space was made, whatever its size would ask for now.
        spec.row = Some(Bytes(space.row_bytes()));
        spec.check()?;
        if size < before {
            let shrunk = self.shrink(space, spec).await;
            // What went, or was given back on the way to a size that could not be, was a part of what is reserved. Where others
            // were faster, that is said.
            let filled = Reserves::of(space).fill_reserve().await.or_else(unless_full);
            return shrunk.and(filled);
        }
        self.check_grow(space, size)?;
        self.put_spec(space, spec.clone()).await?;
        if spec.provisioning == Provisioning::Fixed
            && let Err(error) = Allocator::of(space).claim_all().await
        {
            // As large as it was, unless somebody has used what is new.
            spec.size = before;
            let _ = self.shrink(space, spec).await;
            return Err(error);
        }
        Reserves::of(space).fill_reserve().await.or_else(unless_full)
    }

    /// Whether a space can have this size, larger than it has: a fixed one needs all of its rows at once.
    ///
    /// # Errors
    /// [`SpaceError::TooLarge`], or what the pool says.
    pub fn check_grow(self, space: &SpaceRows, size: Bytes) -> Result<(), SpaceError> {
        let spec = space.spec();
        if spec.provisioning == Provisioning::Thin {
            return Ok(());
        }
        let row = space.row_bytes();
        let (has, needs) = (spec.size.0.div_ceil(row), size.0.div_ceil(row));
        if needs <= has {
            return Ok(());
        }
        let most = has + self.rows_that_fit(&SpaceSpec { row: Some(Bytes(row)), ..spec.clone() })?;
        if needs <= most {
            return Ok(());
        }
        Err(SpaceError::TooLarge { name: spec.name, wanted: size, most: Bytes(most * row) })
    }

    /// Makes a space smaller. Requests behind its new end are refused first, then those that began before end; so what is
    /// found empty stays empty.
    #[pooled]
    async fn shrink(self, space: &Rc<SpaceRows>, spec: SpaceSpec) -> Result<(), SpaceError> {
        let (wanted, before) = (spec.size, space.size());
        space.spec.borrow_mut().size = wanted;
        let shrunk = async {
            Allocator::of(space).claims_end().await;
            Allocator::of(space).writes_end_after(wanted.0).await?;
            if let Some(used_end) = Discards::of(space).used_end(wanted.0).await? {
                return Err(SpaceError::NotEmpty { name: spec.name.clone(), wanted, used_end });
            }
            self.put_spec(space, spec).await
        };
        if let Err(error) = shrunk.await {
            space.spec.borrow_mut().size = before;
            return Err(error);
        }
        self.free_after(space, wanted).await
    }

    pub(crate) async fn free_after(self, space: &Rc<SpaceRows>, size: Bytes) -> Result<(), SpaceError> {
        let first = size.0.div_ceil(space.row_bytes());
        let mut rows = Vec::new();
        space.for_each_record(|index, _| rows.push(index)).await?;
        rows.retain(|index| *index >= first);
        Exchanges::of(space).free_rows_decided(&rows).await
    }

    /// Gives a space another name.
    ///
    /// # Errors
    /// [`SpaceError::NameTaken`] or what the pool says.
    #[pooled]
    pub async fn rename(self, space: &Rc<SpaceRows>, name: Name) -> Result<(), SpaceError> {
        self.check_name(&name, None)?;
        let _exclusive = space.spec_mutex.take().await;
        let mut spec = space.spec();
        spec.name = name;
        self.put_spec(space, spec).await
    }

    /// Gives a space other limits, at once.
    ///
    /// # Errors
    /// [`SpaceError::Limit`] or what the pool says; the limits are what they were then.
    #[pooled]
    pub async fn set_limits(self, space: &Rc<SpaceRows>, limits: Limits) -> Result<(), SpaceError> {
        limits.check(&space.name())?;
        let _exclusive = space.spec_mutex.take().await;
        self.put_spec(space, SpaceSpec { limits, ..space.spec() }).await?;
        space.terms.set(limits, self.spaces.pool().seams().clock.now());
        self.spaces.note_minimums();
        Ok(())
    }

    /// Lets all that wait go, and keeps to no limits any more: the pool is about to be closed, and that waits for them. The
    /// limits stay on record.
    pub fn lift_limits(self) {
        let now = self.spaces.pool().seams().clock.now();
        self.spaces.all().iter().for_each(|space| space.terms.set(Limits::default(), now));
        self.spaces.note_minimums();
    }

    /// Whether a space may have this name, or `own` keep it.
    fn check_name(self, name: &Name, own: Option<SpaceId>) -> Result<(), SpaceError> {
        match self.spaces.find(name.as_str()) {
            Ok(space) if Some(space.id()) != own => Err(SpaceError::NameTaken { name: name.clone() }),
            _ => Ok(()),
        }
    }

    /// Commits what a space is from now on. Whoever calls it has read what it was in the same turn of `spec_mutex`.
    pub(crate) async fn put_spec(self, space: &Rc<SpaceRows>, spec: SpaceSpec) -> Result<(), SpaceError> {
        let mut change = self.spaces.pool().change(Purpose::Release).await;
        // While this waited, it may have been deleted, which nobody may take back, and another may have taken the name.
        space.check_stays()?;
        // A write cache may be called what people call a space of theirs.
        if spec.name != space.name() {
            self.check_name(&spec.name, Some(space.id()))?;
        }
        change.put(keys::space(space.id()), space.encode(&spec, Standing::Whole));
        change.commit().await?;
        self.spaces.shared.note_name(space.id(), spec.name.clone());
        *space.spec.borrow_mut() = spec;
        Ok(())
    }
}

/// The outcome of making a space.
pub(crate) enum Made {
    Whole(Rc<SpaceRows>),
    /// The space could not claim all that it was to have, and has to be deleted.
    Lacking(Rc<SpaceRows>, SpaceError),
}
