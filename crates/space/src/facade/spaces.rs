//! The spaces of an open pool: made, found, changed, repaired, deleted.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::rc::{Rc, Weak};
use std::time::Duration;

use dolmen_block_io::sleep;
use dolmen_block_io::sync::Permit;
use dolmen_disk::{Medium, Member, MemberState};
use dolmen_future_pool::pooled;
use dolmen_placement::{NoRoom, Offer, Placer, Request};
use dolmen_pool::{Disk, Opened, Pool, PoolError, PoolState, Purpose, keys};
use dolmen_units::{BLOCK_BYTES, Bytes, DiskId, DiskSlot, Epoch, Name, SpaceId};

use crate::cache::cache_size::WriteCache;
use crate::cache::drain_settings::settings_of;
use crate::cache::space::{Cache, Shared, Space, SpaceList};
use crate::format::error::SpaceError;
use crate::format::ids::{COUNTER_SPACE, cache_id, is_hidden, is_of_shadows, seen_as};
use crate::format::layouts::Layouts;
use crate::format::limits::Limits;
use crate::format::resiliency::Resiliency;
use crate::format::spec::{Provisioning, SpaceSpec, Standing, cache_spec};
use crate::policy::forecast::{WriteCacheRows, is_fast, write_cache_rows};
use crate::policy::reserve::unless_full;
use crate::policy::spaces::Spaces;
use crate::resolution::recovery::Recovery;
use crate::resolution::replay::FINISHED_TOGETHER;
use crate::resolution::row_recovery::recover;
use crate::resources::clients::Clients;
use crate::resources::events::{DataLossEvent, SpaceCounters};
use crate::resources::progress::Progress;
use crate::resources::ranks;
use crate::resources::throttle::JobShare;
use crate::table::candidates::Candidate;

/// How often idle pages and overfull tables are looked at.
const TEND_EVERY: Duration = Duration::from_secs(2);

/// The outcome of making a space.
enum Made {
    Whole(Rc<Space>),
    /// The space could not claim all that it was to have, and has to be deleted.
    Lacking(Rc<Space>, SpaceError),
}

impl Spaces {
    /// Recovers the spaces of a pool that was just opened. Nothing of them may be served before.
    ///
    /// # Errors
    /// [`SpaceError`] when the metadata makes no sense or cannot be read.
    #[pooled]
    pub async fn start(opened: Opened) -> Result<Rc<Self>, SpaceError> {
        Self::start_among(opened, Clients::Ended).await
    }

    /// As [`start`](Self::start), with clients that may have survived whoever had the pool open before.
    ///
    /// # Errors
    /// [`SpaceError`] when the metadata makes no sense or cannot be read.
    #[pooled]
    pub async fn start_among(opened: Opened, clients: Clients) -> Result<Rc<Self>, SpaceError> {
        let pool = Rc::clone(&opened.pool);
        let shared = Shared::new(Rc::clone(&pool));
        let list = Rc::new(SpaceList::default());
        shared.clients.set(clients);
        let (mut spaces, mut unfinished) = (BTreeMap::new(), Vec::new());
        for (key, value) in pool.map().scan(keys::all(keys::Kind::Space), usize::MAX).await? {
            let (_, id, _) = keys::parts(&key);
            let (spec, standing, layouts) =
                SpaceSpec::parse(&value).ok_or_else(|| dolmen_pool::PoolError::Corrupt {
                    name: pool.name().clone(),
                    what: format!("an impossible space {id}"),
                })?;
            let space = Space::new(Rc::clone(&shared), Rc::clone(&list), SpaceId(id), spec, layouts)?;
            let count = pool.map().get(&keys::row_count(SpaceId(id))).await?;
            space.row_count.set(count.and_then(|count| count.try_into().ok()).map_or(0, u64::from_le_bytes));
            if !is_hidden(space.id()) {
                space.load_reserve(&pool).await?;
            }
            match standing {
                Standing::Whole => {}
                Standing::Trashed { at_s } => space.trashed.set(Some(at_s)),
                // Those of shadow rows go with the spaces that they are for, and those of people behind the opening.
                Standing::Unfinished if is_hidden(space.id()) => {
                    if !is_of_shadows(space.id()) {
                        unfinished.push(Rc::clone(&space));
                    }
                }
                Standing::Unfinished => space.note_condemned(),
            }
            spaces.insert(SpaceId(id), space);
        }
        load_shadows(&shared, &spaces).await?;
        let caches = start_caches(&shared, &spaces).await?;
        let recovery = recover(&shared, &spaces, opened.blocks).await?;
        let (spaces, left) = (Rc::new(RefCell::new(spaces)), RefCell::default());
        *list.spaces.borrow_mut() = Rc::downgrade(&spaces);
        let (caches, cache_mutex) = (RefCell::new(caches), ranks::cache_list());
        let this = Rc::new(Self { shared, list, spaces, caches, cache_mutex, recovery, left });
        this.note_minimums();
        if this.shared.may_write() {
            pool.voter_tender().start();
            this.finish_stripes().await?;
            this.finish(&unfinished).await;
        }
        pool.seams().spawner.spawn("space tender", Box::pin(tend(Rc::downgrade(&this))));
        Ok(this)
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
    #[must_use]
    pub fn list(&self) -> Vec<Rc<Space>> {
        self.all().into_iter().filter(|space| space.is_in_use()).collect()
    }

    /// The space with this id, if it is one of [`list`](Self::list). Takes no memory.
    #[must_use]
    pub fn get(&self, id: SpaceId) -> Option<Rc<Space>> {
        self.spaces.borrow().get(&id).filter(|space| space.is_in_use()).cloned()
    }

    /// All spaces, the hidden ones behind the others.
    pub(crate) fn all(&self) -> Vec<Rc<Space>> {
        self.spaces.borrow().values().cloned().collect()
    }

    /// The space with this name.
    ///
    /// # Errors
    /// [`SpaceError::NoSuchSpace`].
    pub fn find(&self, name: &str) -> Result<Rc<Space>, SpaceError> {
        let found = self.list().into_iter().find(|space| space.name().as_str() == name);
        found.ok_or_else(|| SpaceError::NoSuchSpace { name: name.to_owned() })
    }

    /// Checks whether a space could be made, and changes nothing.
    ///
    /// # Errors
    /// The first reason why not.
    pub fn check_create(&self, spec: &SpaceSpec) -> Result<Request, SpaceError> {
        if self.find(spec.name.as_str()).is_ok() {
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
    pub(crate) fn check_disks(&self, spec: &SpaceSpec) -> Result<Request, SpaceError> {
        let request = spec.check()?;
        let takes = |disk: &Rc<Disk>| disk.is_present() && self.pool().members().role_of(disk).is_none();
        let disks = self.pool().disks().into_iter().filter(takes);
        let mut domains: Vec<_> =
            disks.filter_map(|disk| self.pool().members().domain_of(disk.slot())).collect();
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
    fn check_voters(&self, spec: &SpaceSpec) -> Result<(), SpaceError> {
        let (small, found) =
            (self.pool().voter_tender().too_small_to_vote(), self.pool().members().voters().len());
        let redundancy = usize::from(spec.resiliency.losses());
        if small.is_empty() || redundancy == 0 || found > redundancy {
            return Ok(());
        }
        Err(SpaceError::TooFewVoters {
            what: spec.resiliency.to_string(),
            found,
            small: small.iter().map(|disk| disk.name()).collect::<Vec<_>>().join(", "),
            area: self.pool().identity().voter_metadata_min(),
        })
    }

    /// Refuses a space whose rows need disks that have to be left for their repair.
    fn check_repairable(&self, spec: &SpaceSpec) -> Result<(), SpaceError> {
        let units = spec.resiliency.slab_units(spec.interleave);
        let losses = self.pool().free_space().keeps_room_for();
        let offers = self.pool().free_space().offers_keeping(losses);
        if Placer::new(spec.check()?, units).repairable(&offers) >= losses {
            return Ok(());
        }
        let name = self.pool().name().clone();
        Err(PoolError::NoSpace { name, source: NoRoom::Kept { losses } }.into())
    }

    /// Rows of a space that the pool's free room holds.
    ///
    /// # Errors
    /// [`SpaceError`] when the space cannot be, or its write cache finds no room.
    pub(crate) fn rows_that_fit(&self, spec: &SpaceSpec) -> Result<u64, SpaceError> {
        let units = spec.resiliency.slab_units(spec.interleave);
        let first = self.claimed_first(spec.write_cache())?;
        let rotation = self.pool().free_space().next_in_order() + first.rows.len() as u64;
        Ok(Placer::new(spec.check()?, units).usable_from(&first.left, rotation).rows)
    }

    /// What disks offer to a space, once it has the write cache of this redundancy, if it needs one.
    ///
    /// # Errors
    /// [`SpaceError`] when there is no room for that.
    pub fn offers_with_cache(&self, write_cache: Option<u8>) -> Result<Vec<Offer>, SpaceError> {
        Ok(self.claimed_first(write_cache)?.left)
    }

    /// The write cache of this redundancy, if it is needed and not there.
    fn claimed_first(&self, write_cache: Option<u8>) -> Result<WriteCacheRows, SpaceError> {
        let offers = self.pool().free_space().offers(Purpose::Claim);
        let is_missing = |redundancy: &u8| !self.caches.borrow().contains_key(redundancy);
        let Some(redundancy) = write_cache.filter(is_missing) else {
            return Ok(WriteCacheRows { rows: Vec::new(), left: offers });
        };
        let rotation = self.pool().free_space().next_in_order();
        let is_fast = |slot| is_fast(self.pool(), slot);
        let cache = write_cache_rows(&offers, redundancy, self.data_bytes(), rotation, is_fast);
        Ok(cache.map_err(|source| PoolError::NoSpace { name: self.pool().name().clone(), source })?)
    }

    /// Room for slabs on all members, whether they are here or not.
    pub(crate) fn data_bytes(&self) -> Bytes {
        Bytes(self.pool().disks().iter().map(|disk| disk.data_bytes().0).sum())
    }

    /// Makes a space.
    ///
    /// # Errors
    /// [`SpaceError`]; nothing is left of it then.
    #[pooled]
    pub async fn create(&self, spec: SpaceSpec) -> Result<Rc<Space>, SpaceError> {
        self.check_create(&spec)?;
        let redundancy = spec.write_cache();
        // Until it is known that the space needs the cache, it must not be dropped as one that no space needs.
        let mutex = match redundancy {
            Some(redundancy) => Some(self.make_cache(redundancy).await?),
            None => None,
        };
        let made = self.make_space(spec).await;
        drop(mutex);
        let made = match made {
            Ok(Made::Whole(space)) => return Ok(space),
            // Its locks are taken before that of the list of caches, which is free again.
            Ok(Made::Lacking(space, error)) => self.delete_but_for_its_cache(&space).await.and(Err(error)),
            Err(error) => Err(error),
        };
        if let Some(redundancy) = redundancy {
            // Where that fails, the next opening does it.
            let _ = self.drop_cache(redundancy).await;
        }
        made
    }

    #[pooled]
    async fn make_space(&self, spec: SpaceSpec) -> Result<Made, SpaceError> {
        let mut change = self.pool().change(Purpose::Claim).await;
        let id = SpaceId(change.number(keys::counter(COUNTER_SPACE)).await?);
        // Somebody may have taken the name while this waited for its turn.
        self.check_name(&spec.name, None)?;
        let space =
            Space::new(Rc::clone(&self.shared), Rc::clone(&self.list), id, spec.clone(), Layouts::default())?;
        let standing = match spec.provisioning {
            Provisioning::Thin => Standing::Whole,
            Provisioning::Fixed => Standing::Unfinished,
        };
        change.put(keys::space(id), space.encode(&spec, standing));
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
    fn adopt(&self, space: &Rc<Space>) {
        self.give_caches(space);
        self.spaces.borrow_mut().insert(space.id(), Rc::clone(space));
        self.note_minimums();
    }

    /// Gives a space the write caches that its rows need.
    pub(crate) fn give_caches(&self, space: &Rc<Space>) {
        for (layout, redundancy) in space.write_caches() {
            if let Some(cache) = self.caches.borrow().get(&redundancy) {
                cache.add_owner(space, layout);
            }
        }
    }

    /// Makes the write cache for spaces of a redundancy, unless there is one; the turn in which it stays.
    #[pooled]
    pub(crate) async fn make_cache(&self, redundancy: u8) -> Result<Permit<'_>, SpaceError> {
        let mutex = self.cache_mutex.take().await;
        if self.caches.borrow().contains_key(&redundancy) {
            return Ok(mutex);
        }
        let spec = cache_spec(redundancy, self.data_bytes());
        let id = cache_id(redundancy);
        let space =
            Space::new(Rc::clone(&self.shared), Rc::clone(&self.list), id, spec.clone(), Layouts::default())?;
        let mut change = self.pool().change(Purpose::Claim).await;
        change.put(keys::space(id), space.encode(&spec, Standing::Unfinished));
        settings_of(id).into_iter().for_each(|key| change.delete(key));
        change.commit().await?;
        self.spaces.borrow_mut().insert(id, Rc::clone(&space));
        if let Err(error) = self.claim_and_finish(&space, spec).await {
            self.delete_but_for_its_cache(&space).await?;
            return Err(error);
        }
        let cache = Cache::start(space).await?;
        self.shared.caches.borrow_mut().push(Rc::downgrade(&cache));
        self.caches.borrow_mut().insert(redundancy, cache);
        Ok(mutex)
    }

    /// Finishes stripes of parity that may be half in place, as far as their disks are here.
    #[pooled]
    pub(crate) async fn finish_stripes(&self) -> Result<(), SpaceError> {
        for cache in self.shared.caches() {
            // Those that cannot be finished come again behind the others; once each of them was tried is enough.
            let mut left = cache.unfinished.borrow().len();
            while left > 0 {
                match self.pool().log().wait_for_room().await {
                    // They wait for room there as well.
                    Err(PoolError::LogOccupied { .. } | PoolError::MetadataFull { .. }) => return Ok(()),
                    other => other?,
                }
                cache.bring_rows(usize::MAX).await?;
                let _exclusive = cache.mutex.take().await;
                cache.make_ready().await?;
                match cache.finish_stripes().await {
                    // They wait, and no pool stays closed for it.
                    Err(error) if !error.may_pass() => return Err(error),
                    Ok(_) | Err(_) => {}
                }
                left = left.saturating_sub(FINISHED_TOGETHER);
            }
        }
        Ok(())
    }

    /// The write cache that lies in a space.
    pub(crate) fn cache_in(&self, space: &Space) -> Option<Rc<Cache>> {
        self.shared.caches().into_iter().find(|cache| cache.space().id() == space.id())
    }

    /// The write caches.
    ///
    /// # Errors
    /// When the metadata cannot be read.
    #[pooled]
    pub async fn write_caches(&self) -> Result<Vec<WriteCache>, SpaceError> {
        let mut caches = Vec::new();
        for cache in self.shared.caches() {
            caches.push(cache.view().await?);
        }
        Ok(caches)
    }

    /// What making a space would claim at once for its write cache: nothing if it has one already.
    #[must_use]
    pub fn new_write_cache(&self, spec: &SpaceSpec) -> Option<Bytes> {
        let missing = spec.write_cache().filter(|redundancy| !self.caches.borrow().contains_key(redundancy));
        missing.map(|redundancy| cache_spec(redundancy, self.data_bytes()).size)
    }

    /// Puts everything that is in the write caches in place.
    ///
    /// # Errors
    /// [`SpaceError`]: what stands in the way.
    #[pooled]
    pub async fn destage(&self) -> Result<(), SpaceError> {
        for cache in self.shared.caches() {
            cache.empty_all().await?;
        }
        Ok(())
    }

    async fn claim_and_finish(&self, space: &Rc<Space>, spec: SpaceSpec) -> Result<(), SpaceError> {
        space.claim_all().await?;
        self.put_spec(space, spec).await
    }

    /// Deletes a space and gives its rows back. Killed half-way, the rest goes with the next [`purge`](Self::purge).
    ///
    /// # Errors
    /// [`SpaceError`].
    #[pooled]
    pub async fn delete(&self, space: &Rc<Space>) -> Result<(), SpaceError> {
        self.delete_but_for_its_cache(space).await?;
        for (_, redundancy) in space.write_caches() {
            self.drop_cache(redundancy).await?;
        }
        Ok(())
    }

    #[pooled]
    async fn delete_but_for_its_cache(&self, space: &Rc<Space>) -> Result<(), SpaceError> {
        self.condemn(space).await?;
        self.free_condemned(space, &Progress::default()).await.map(drop)
    }

    /// Deletes the write cache for spaces of a redundancy when none is left that needs it.
    pub(crate) async fn drop_cache(&self, redundancy: u8) -> Result<(), SpaceError> {
        let _exclusive = self.cache_mutex.take().await;
        let needed =
            self.all().iter().any(|space| space.write_caches().any(|(_, needed)| needed == redundancy));
        if needed {
            return Ok(());
        }
        let cache = self.caches.borrow_mut().remove(&redundancy);
        if let Some(cache) = &cache {
            cache.note_deleting().await;
            // Whoever was at it is done then. A checkpoint may want the turn while the rows are given back.
            drop(cache.mutex.take().await);
        }
        let hidden = self.spaces.borrow().get(&cache_id(redundancy)).cloned();
        if let Some(hidden) = hidden {
            self.delete_but_for_its_cache(&hidden).await?;
        }
        // Whoever holds a deleted space holds its cache too.
        let is_deleting =
            |other: &Weak<Cache>| cache.as_ref().is_some_and(|cache| other.as_ptr() == Rc::as_ptr(cache));
        self.shared.caches.borrow_mut().retain(|other| !is_deleting(other));
        Ok(())
    }

    /// Changes the size of a space: larger always, smaller where nothing is in the way.
    ///
    /// # Errors
    /// [`SpaceError::NotEmpty`], [`SpaceError::Size`], [`SpaceError::TooLarge`], or what the pool says.
    #[pooled]
    pub async fn resize(&self, space: &Rc<Space>, size: Bytes) -> Result<(), SpaceError> {
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
            let filled = space.fill_reserve().await.or_else(unless_full);
            return shrunk.and(filled);
        }
        self.check_grow(space, size)?;
        self.put_spec(space, spec.clone()).await?;
        if spec.provisioning == Provisioning::Fixed
            && let Err(error) = space.claim_all().await
        {
            // As large as it was, unless somebody has used what is new.
            spec.size = before;
            let _ = self.shrink(space, spec).await;
            return Err(error);
        }
        space.fill_reserve().await.or_else(unless_full)
    }

    /// Whether a space can have this size, larger than it has: a fixed one needs all of its rows at once.
    ///
    /// # Errors
    /// [`SpaceError::TooLarge`], or what the pool says.
    pub fn check_grow(&self, space: &Space, size: Bytes) -> Result<(), SpaceError> {
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
    async fn shrink(&self, space: &Rc<Space>, spec: SpaceSpec) -> Result<(), SpaceError> {
        let (wanted, before) = (spec.size, space.size());
        space.spec.borrow_mut().size = wanted;
        let shrunk = async {
            space.claims_end().await;
            space.writes_end_after(wanted.0).await?;
            if let Some(used_end) = space.used_end(wanted.0).await? {
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

    pub(crate) async fn free_after(&self, space: &Rc<Space>, size: Bytes) -> Result<(), SpaceError> {
        let first = size.0.div_ceil(space.row_bytes());
        let mut rows = Vec::new();
        space.for_each_record(|index, _| rows.push(index)).await?;
        rows.retain(|index| *index >= first);
        space.free_rows_decided(&rows).await
    }

    /// Gives a space another name.
    ///
    /// # Errors
    /// [`SpaceError::NameTaken`] or what the pool says.
    #[pooled]
    pub async fn rename(&self, space: &Rc<Space>, name: Name) -> Result<(), SpaceError> {
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
    pub async fn set_limits(&self, space: &Rc<Space>, limits: Limits) -> Result<(), SpaceError> {
        limits.check(&space.name())?;
        let _exclusive = space.spec_mutex.take().await;
        self.put_spec(space, SpaceSpec { limits, ..space.spec() }).await?;
        space.terms.set(limits, self.pool().seams().clock.now());
        self.note_minimums();
        Ok(())
    }

    /// Lets all that wait go, and keeps to no limits any more: the pool is about to be closed, and that waits for them. The
    /// limits stay on record.
    pub fn lift_limits(&self) {
        let now = self.pool().seams().clock.now();
        self.all().iter().for_each(|space| space.terms.set(Limits::default(), now));
        self.note_minimums();
    }

    /// Finds the spaces that others leave something to.
    pub(crate) fn note_minimums(&self) {
        self.list
            .minimum_rates
            .set(self.list().iter().map(|space| Rc::clone(&space.terms)), self.pool().seams().clock.now());
    }

    /// Whether a space may have this name, or `own` keep it.
    fn check_name(&self, name: &Name, own: Option<SpaceId>) -> Result<(), SpaceError> {
        match self.find(name.as_str()) {
            Ok(space) if Some(space.id()) != own => Err(SpaceError::NameTaken { name: name.clone() }),
            _ => Ok(()),
        }
    }

    /// Commits what a space is from now on. Whoever calls it has read what it was in the same turn of `spec_mutex`.
    pub(crate) async fn put_spec(&self, space: &Rc<Space>, spec: SpaceSpec) -> Result<(), SpaceError> {
        let mut change = self.pool().change(Purpose::Release).await;
        // While this waited, it may have been deleted, which nobody may take back, and another may have taken the name.
        space.check_stays()?;
        // A write cache may be called what people call a space of theirs.
        if spec.name != space.name() {
            self.check_name(&spec.name, Some(space.id()))?;
        }
        change.put(keys::space(space.id()), space.encode(&spec, Standing::Whole));
        change.commit().await?;
        self.shared.note_name(space.id(), spec.name.clone());
        *space.spec.borrow_mut() = spec;
        Ok(())
    }

    /// Makes everything that was acknowledged before durable.
    ///
    /// # Errors
    /// [`SpaceError`].
    #[pooled]
    pub async fn flush(&self) -> Result<(), SpaceError> {
        self.shared.flush().await
    }

    async fn shadows_end(&self) {
        for space in self.all() {
            space.shadows.end().await;
        }
    }

    /// Closes the spaces and the pool.
    ///
    /// # Errors
    /// [`SpaceError`]; the next opening recovers then, as after a crash.
    #[pooled]
    pub async fn close(&self) -> Result<(), SpaceError> {
        self.shared.closing.begin();
        self.shadows_end().await;
        if self.pool().state() == PoolState::Writable {
            self.flush().await?;
        }
        self.log_reverted();
        Ok(self.pool().close().await?)
    }

    /// Closes the spaces and gives the pool up, so that any host may open it.
    ///
    /// # Errors
    /// [`SpaceError`].
    #[pooled]
    pub async fn export(&self) -> Result<(), SpaceError> {
        self.shared.closing.begin();
        self.shadows_end().await;
        self.flush().await?;
        self.log_reverted();
        Ok(self.pool().export().await?)
    }

    /// Logs which spaces close before a flush of a client came that would have told it of what went back.
    fn log_reverted(&self) {
        for space in self.list().into_iter().filter(|space| space.has_reverted()) {
            tracing::error!(pool = %self.pool().name(), space = %space.name(),
                "acknowledged writes that no flush had covered are what was there before, and no flush came that would have said so");
        }
    }
}

/// The shadow rows of a pool that is being opened, each known to its row.
async fn load_shadows(shared: &Rc<Shared>, spaces: &BTreeMap<SpaceId, Rc<Space>>) -> Result<(), SpaceError> {
    for (id, hidden) in spaces {
        let Some(owner) = is_of_shadows(*id).then(|| seen_as(*id)) else { continue };
        let Some(space) = spaces.get(&owner) else {
            let what = format!("shadow rows of space {owner}, which does not exist");
            return Err(dolmen_pool::PoolError::Corrupt { name: shared.pool_name().clone(), what }.into());
        };
        space.load_shadows(hidden).await?;
    }
    Ok(())
}

/// The caches of a pool that is being opened, each known to its spaces.
#[pooled]
async fn start_caches(
    shared: &Rc<Shared>,
    spaces: &BTreeMap<SpaceId, Rc<Space>>,
) -> Result<BTreeMap<u8, Rc<Cache>>, SpaceError> {
    let mut caches = BTreeMap::new();
    for space in spaces.values() {
        for (layout, redundancy) in space.write_caches() {
            if let Some(cache) = caches.get(&redundancy) {
                Cache::add_owner(cache, space, layout);
                continue;
            }
            let Some(hidden) = spaces.get(&cache_id(redundancy)) else {
                let what = format!("space {} has no write cache", space.name());
                return Err(dolmen_pool::PoolError::Corrupt { name: shared.pool_name().clone(), what }.into());
            };
            let cache = Cache::start(Rc::clone(hidden)).await?;
            shared.caches.borrow_mut().push(Rc::downgrade(&cache));
            cache.add_owner(space, layout);
            caches.insert(redundancy, cache);
        }
    }
    Ok(caches)
}

/// Keeps memory in bounds.
#[pooled]
async fn tend(weak: Weak<Spaces>) {
    loop {
        let Some(spaces) = weak.upgrade().filter(|spaces| !spaces.shared.closing.is_closing()) else {
            return;
        };
        let clock = Rc::clone(&spaces.pool().seams().clock);
        if spaces.shared.has_many_pages() {
            spaces.all().iter().for_each(|space| space.trim_pages());
        }
        if spaces.shared.has_many_dirty_pages() && spaces.pool().state() == PoolState::Writable {
            // A failure latches the pool, and everybody is told by that; of a full map, whoever wants room is.
            let _ = spaces.pool().checkpoint().await;
        }
        for cache in spaces.shared.caches().into_iter().filter(|_| spaces.shared.may_write()) {
            let _ = cache.tend_copies().await;
        }
        if spaces.pool().state() == PoolState::Writable {
            for space in spaces.all() {
                space.promote_soon(&space.shadows.idle(clock.now()));
                space.promote_soon(&space.shadows_too_many());
            }
        }
        drop(spaces);
        sleep(clock.as_ref(), TEND_EVERY).await;
    }
}

impl fmt::Debug for Spaces {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Spaces({} of {:?})", self.spaces.borrow().len(), self.pool())
    }
}

/// A member entry for a device that joins.
#[must_use]
pub fn new_member(disk: DiskId, slot: DiskSlot, capacity: Bytes, fault_domain: u32) -> Member {
    let (state, left) = (MemberState::Active, Epoch(0));
    Member {
        disk,
        capacity,
        slot,
        state,
        fault_domain,
        left,
        successor: None,
        medium: Medium::Unknown,
        sequence: 0,
    }
}

/// Words for a resiliency that people type.
///
/// # Errors
/// [`SpaceError::Unsupported`] names what exists.
pub fn parse_resiliency(text: &str, copies: Option<u8>) -> Result<Resiliency, SpaceError> {
    match (text, copies) {
        ("simple", None | Some(1)) => Ok(Resiliency::Simple),
        ("span", None | Some(1)) => Ok(Resiliency::Span),
        ("mirror", copies) => Ok(Resiliency::Mirror { copies: copies.unwrap_or(2) }),
        ("simple" | "span", Some(_)) => Err(SpaceError::Unsupported {
            what: "more than one copy in a simple or span space",
            instead: "choose mirror",
        }),
        _ => {
            Err(SpaceError::Unsupported { what: "this resiliency", instead: "choose simple, span or mirror" })
        }
    }
}

impl Spaces {
    /// Blocks that no flush has covered and that nobody can decide now, by space and first byte.
    ///
    /// # Errors
    /// [`SpaceError`].
    #[pooled]
    pub async fn in_doubt_blocks(&self) -> Result<Vec<(Rc<Space>, u64)>, SpaceError> {
        let in_doubt = self.shared.deferred.borrow().clone();
        let mut blocks = Vec::new();
        for ((id, index), candidates) in in_doubt {
            let space = self.all().into_iter().find(|space| space.id() == id);
            let Some(space) = space else { continue };
            let Some(row) = space.in_doubt_row(index).await? else { continue };
            let is_data = |(column, _): &(usize, u32)| *column < row.shape.data_columns();
            let open = candidates.iter().filter(|(place, candidates)| {
                is_data(place) && candidates.iter().any(Candidate::is_of_an_open_write)
            });
            let place_of = |(column, block): (usize, u32)| {
                index * space.row_bytes() + u64::from(row.shape.row_block(column, block)) * BLOCK_BYTES
            };
            let mut of_row: Vec<u64> = open.map(|(place, _)| place_of(*place)).collect();
            of_row.sort_unstable();
            blocks.extend(of_row.into_iter().map(|at| (Rc::clone(&space), at)));
        }
        Ok(blocks)
    }
}
