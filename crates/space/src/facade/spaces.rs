//! The spaces of an open pool: made, found, changed, repaired, deleted.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::rc::{Rc, Weak};
use std::time::Duration;

use dolmen_block_io::sleep;
use dolmen_disk::{Medium, Member, MemberState};
use dolmen_future_pool::pooled;
use dolmen_pool::{Opened, PoolState, keys};
use dolmen_units::{Bytes, DiskId, DiskSlot, Epoch, SpaceId};

use crate::facade::space::Space;
use crate::facade::upper::Layers;
use crate::format::attributes::Attribute;
use crate::format::error::SpaceError;
use crate::format::ids::{cache_id, is_hidden, is_of_shadows, seen_as};
use crate::format::resiliency::Resiliency;
use crate::format::spec::{SpaceSpec, Standing};
use crate::policy::copies::CacheCopies;
use crate::policy::handles::{Caches, Changes, Conversions, Members, Moves, Scrubs, Trash};
use crate::policy::pool_spaces::PoolSpaces;
use crate::policy::reserve::Reserves;
use crate::relocation::shadow_rows::ShadowClaims;
use crate::relocation::shadow_watch::ShadowWatch;
use crate::resolution::row_recovery::recover;
use crate::resolution::space_doubt::SpaceDoubt;
use crate::resources::clients::Clients;
use crate::resources::ranks;
use crate::row_io::flusher::Flusher;
use crate::table::pages::TableStore;
use crate::table::space::{Cache, Shared, SpaceList, SpaceRows};
use std::ops::Deref;

/// How often idle pages and overfull tables are looked at.
const TEND_EVERY: Duration = Duration::from_secs(2);

/// The spaces of an open pool, for the daemon and the tools that open one.
pub struct Spaces {
    pub(crate) pool_spaces: Rc<PoolSpaces>,
}

impl Deref for Spaces {
    type Target = PoolSpaces;

    fn deref(&self) -> &PoolSpaces {
        &self.pool_spaces
    }
}

impl Spaces {
    /// Changes of spaces, and checks of them.
    #[must_use]
    pub fn changes(&self) -> Changes<'_> {
        Changes::of(&self.pool_spaces)
    }

    /// Conversions to other layouts.
    #[must_use]
    pub fn conversions(&self) -> Conversions<'_> {
        Conversions::of(&self.pool_spaces)
    }

    /// Moves of slabs between disks.
    #[must_use]
    pub fn moves(&self) -> Moves<'_> {
        Moves::of(&self.pool_spaces)
    }

    /// Write caches.
    #[must_use]
    pub fn caches(&self) -> Caches<'_> {
        Caches::of(&self.pool_spaces)
    }

    /// Deleted spaces.
    #[must_use]
    pub fn trash(&self) -> Trash<'_> {
        Trash::of(&self.pool_spaces)
    }

    /// Scrub and verification.
    #[must_use]
    pub fn scrubs(&self) -> Scrubs<'_> {
        Scrubs::of(&self.pool_spaces)
    }

    /// Member disks as the rows see them.
    #[must_use]
    pub fn members(&self) -> Members<'_> {
        Members::of(&self.pool_spaces)
    }

    /// Spaces that people made and may use, by id: none that is in the trash or being deleted.
    #[must_use]
    pub fn list(&self) -> Vec<Space> {
        self.pool_spaces.list().into_iter().map(Space::from).collect()
    }

    /// The space with this id, if it is one of [`list`](Self::list). Takes no memory.
    #[must_use]
    pub fn get(&self, id: SpaceId) -> Option<Space> {
        self.pool_spaces.get(id).map(Space::from)
    }

    /// The space with this name.
    ///
    /// # Errors
    /// [`SpaceError::NoSuchSpace`].
    pub fn find(&self, name: &str) -> Result<Space, SpaceError> {
        self.pool_spaces.find(name).map(Space::from)
    }

    /// Makes a space.
    ///
    /// # Errors
    /// [`SpaceError`]; nothing is left of it then.
    pub async fn create(&self, spec: SpaceSpec) -> Result<Space, SpaceError> {
        self.create_with(spec, Vec::new()).await
    }

    /// Makes a space with attributes: one change of the map has both.
    ///
    /// # Errors
    /// [`SpaceError`]; nothing is left of it then.
    pub async fn create_with(
        &self,
        spec: SpaceSpec,
        attributes: Vec<Attribute>,
    ) -> Result<Space, SpaceError> {
        self.changes().create(spec, attributes).await.map(Space::from)
    }

    /// Spaces that people made, those in the trash among them.
    #[must_use]
    pub fn kept(&self) -> Vec<Space> {
        self.trash().kept().into_iter().map(Space::from).collect()
    }

    /// The space with this id, if it is one of [`kept`](Self::kept).
    #[must_use]
    pub fn get_kept(&self, id: SpaceId) -> Option<Space> {
        self.trash().get_kept(id).map(Space::from)
    }

    /// Spaces in the trash.
    #[must_use]
    pub fn in_trash(&self) -> Vec<Space> {
        self.trash().trash().into_iter().map(Space::from).collect()
    }

    /// Spaces that are being deleted, until their rows are freed.
    #[must_use]
    pub fn condemned(&self) -> Vec<Space> {
        self.trash().condemned().into_iter().map(Space::from).collect()
    }

    /// Spaces that are in the trash or being deleted.
    #[must_use]
    pub fn discarded(&self) -> Vec<Space> {
        self.trash().discarded().into_iter().map(Space::from).collect()
    }

    /// Spaces whose slabs could not all be moved away from a disk, when that was tried last.
    #[must_use]
    pub fn left_on(&self, disk: DiskId) -> Option<Vec<Space>> {
        let left = self.moves().left_on(disk)?;
        Some(left.into_iter().map(Space::from).collect())
    }

    /// Blocks that no flush has covered and that are in doubt now, by space and first byte.
    ///
    /// # Errors
    /// [`SpaceError`].
    pub async fn in_doubt_blocks(&self) -> Result<Vec<(Space, u64)>, SpaceError> {
        let blocks = self.scrubs().in_doubt_blocks().await?;
        Ok(blocks.into_iter().map(|(space, at)| (Space::from(space), at)).collect())
    }
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
        let shared = Shared::new(Rc::clone(&pool), &Layers);
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
            let space = SpaceRows::new(Rc::clone(&shared), Rc::clone(&list), SpaceId(id), spec, layouts)?;
            let count = pool.map().get(&keys::row_count(SpaceId(id))).await?;
            space.row_count.set(count.and_then(|count| count.try_into().ok()).map_or(0, u64::from_le_bytes));
            if !is_hidden(space.id()) {
                Reserves::of(&space).load_reserve(&pool).await?;
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
        let this = Rc::new(PoolSpaces { shared, list, spaces, caches, cache_mutex, recovery, left });
        this.note_minimums();
        if this.shared.may_write() {
            pool.voter_tender().start();
            Caches::of(&this).finish_stripes().await?;
            Changes::of(&this).finish(&unfinished).await;
        }
        pool.seams().spawner.spawn("space tender", Box::pin(tend(Rc::downgrade(&this))));
        Ok(Rc::new(Self { pool_spaces: this }))
    }

    /// Makes everything that was acknowledged before durable.
    ///
    /// # Errors
    /// [`SpaceError`].
    #[pooled]
    pub async fn flush(&self) -> Result<(), SpaceError> {
        Flusher::of(&self.pool_spaces.shared).flush().await
    }

    async fn shadows_end(&self) {
        for space in self.pool_spaces.all() {
            space.shadows.end().await;
        }
    }

    /// Has the loops of jobs end behind the lot that is under way; [`close`](Self::close) does so as well, and does not wait for them.
    /// What they write behind a close fails, and the next opening recovers what they left half done.
    pub fn end_jobs(&self) {
        self.pool_spaces.shared.closing.begin();
    }

    /// Closes the spaces and the pool.
    ///
    /// # Errors
    /// [`SpaceError`]; the next opening recovers then, as after a crash.
    #[pooled]
    pub async fn close(&self) -> Result<(), SpaceError> {
        self.pool_spaces.shared.closing.begin();
        self.shadows_end().await;
        if self.pool_spaces.pool().state() == PoolState::Writable {
            self.flush().await?;
        }
        self.log_reverted();
        Ok(self.pool_spaces.pool().close().await?)
    }

    /// Closes the spaces and gives the pool up, so that any host may open it.
    ///
    /// # Errors
    /// [`SpaceError`].
    #[pooled]
    pub async fn export(&self) -> Result<(), SpaceError> {
        self.pool_spaces.shared.closing.begin();
        self.shadows_end().await;
        self.flush().await?;
        self.log_reverted();
        Ok(self.pool_spaces.pool().export().await?)
    }

    /// Logs which spaces close before a flush of a client came that would have told it of what went back.
    fn log_reverted(&self) {
        for space in self.pool_spaces.list().into_iter().filter(|space| SpaceDoubt::of(space).has_reverted())
        {
            tracing::error!(pool = %self.pool_spaces.pool().name(), space = %space.name(),
                "acknowledged writes that no flush had covered are what was there before, and no flush came that would have said so");
        }
    }
}

/// The shadow rows of a pool that is being opened, each known to its row.
async fn load_shadows(
    shared: &Rc<Shared>,
    spaces: &BTreeMap<SpaceId, Rc<SpaceRows>>,
) -> Result<(), SpaceError> {
    for (id, hidden) in spaces {
        let Some(owner) = is_of_shadows(*id).then(|| seen_as(*id)) else { continue };
        let Some(space) = spaces.get(&owner) else {
            let what = format!("shadow rows of space {owner}, which does not exist");
            return Err(dolmen_pool::PoolError::Corrupt { name: shared.pool_name().clone(), what }.into());
        };
        ShadowClaims::of(space).load_shadows(hidden).await?;
    }
    Ok(())
}

/// The caches of a pool that is being opened, each known to its spaces.
#[pooled]
async fn start_caches(
    shared: &Rc<Shared>,
    spaces: &BTreeMap<SpaceId, Rc<SpaceRows>>,
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
async fn tend(weak: Weak<PoolSpaces>) {
    loop {
        let Some(spaces) = weak.upgrade().filter(|spaces| !spaces.shared.closing.is_closing()) else {
            return;
        };
        let clock = Rc::clone(&spaces.pool().seams().clock);
        if TableStore::of(&spaces.shared).has_many_pages() {
            spaces.all().iter().for_each(|space| space.trim_pages());
        }
        if TableStore::of(&spaces.shared).has_many_dirty_pages()
            && spaces.pool().state() == PoolState::Writable
        {
            // A failure latches the pool, and everybody is told by that; of a full map, whoever wants room is.
            let _ = spaces.pool().checkpoint().await;
        }
        for cache in spaces.shared.caches().into_iter().filter(|_| spaces.shared.may_write()) {
            let _ = CacheCopies::of(&cache).tend_copies().await;
        }
        if spaces.pool().state() == PoolState::Writable {
            for space in spaces.all() {
                ShadowWatch::of(&space).promote_soon(&space.shadows.idle(clock.now()));
                ShadowWatch::of(&space).promote_soon(&ShadowWatch::of(&space).shadows_too_many());
            }
        }
        drop(spaces);
        sleep(clock.as_ref(), TEND_EVERY).await;
    }
}

impl fmt::Debug for PoolSpaces {
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
