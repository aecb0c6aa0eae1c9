//! What all spaces of a pool share above their rows: blocks in doubt, write caches, and memory of jobs.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Deref;
use std::rc::{Rc, Weak};

use dolmen_block_io::sync::AsyncMutex;
use dolmen_buffer::FRAME_BYTES_MAX;
use dolmen_pool::{LocalFuture, Pool};
use dolmen_units::{DiskId, SpaceId};

use crate::cache::write_cache::Cache;
use crate::format::error::SpaceError;
use crate::format::raw::PAGE_BYTES;
use crate::layout::shape::PARITY_BYTES_MAX;
use crate::resources::clients::Clients;
use crate::resources::progress::Closing;
use crate::resources::share::Share;
use crate::resources::throttle::Throttle;
use crate::table::candidates::Unfound;
use crate::table::row::BlocksOfRows;
use crate::table::row_store::{Defer, RowStore};

/// What decides blocks in doubt, keeps the log short and gives jobs their memory, for all spaces of a pool.
pub(crate) struct Shared {
    /// The rows, on which all of this works.
    rows: RowStore,
    /// What was just found to have no good copy, unless a write cache has it.
    pub(crate) unfound: RefCell<Vec<Unfound>>,
    /// Who may have been told of writes before the pool was opened.
    pub(crate) clients: Cell<Clients>,
    /// Spaces that have nothing on members that are away, as they were looked at when a disk had left for the last time (its
    /// seating), and that have claimed nothing there since.
    pub(crate) nothing_on: RefCell<BTreeMap<DiskId, (u64, BTreeSet<SpaceId>)>>,
    /// How often something was claimed on a member that is away.
    pub(crate) claims_on_absent: Cell<u64>,
    pub(crate) resolve_mutex: AsyncMutex,
    /// The row that is being decided, and whether blocks of it were left in doubt again meanwhile.
    pub(crate) deciding: Cell<Option<((SpaceId, u64), bool)>>,
    /// Held while decisions are made durable, for all that were taken before.
    pub(crate) durability_mutex: AsyncMutex,
    /// Held by write-backs from the moment on that they look at what is in doubt and at what pages say, and while slabs get the
    /// places of lost ones: what a write-back relogs and writes is of the slabs that a row had then.
    pub(crate) write_back_mutex: AsyncMutex,
    /// Held while slabs are filled until they are trusted: who fills one begins with zeros where its tables are.
    pub(crate) refill_mutex: AsyncMutex,
    /// The same for looks at the copies of blocks that are decided.
    pub(crate) looks: Share,
    /// The same for stripes with parity that are put in place: on the way, blocks may have to be decided.
    pub(crate) lines: Share,
    /// How hard jobs work while clients do.
    pub(crate) throttle: Throttle,
    /// A part of the medium frames, for parity of fresh stripes.
    pub(crate) stripes: Share,
    /// Another part of them, for runs that are copied to slabs.
    pub(crate) refills: Share,
    /// A part of the large frames, for pieces that are copied to conversion shadows.
    pub(crate) conversion_shadows: Share,
    pub(crate) closing: Closing,
    /// Write caches.
    pub(crate) caches: RefCell<Vec<Weak<Cache>>>,
}

impl Deref for Shared {
    type Target = RowStore;

    fn deref(&self) -> &RowStore {
        &self.rows
    }
}

impl Defer for Shared {
    fn defer(&self, blocks: BlocksOfRows) -> LocalFuture<'_, Result<(), SpaceError>> {
        Box::pin(self.leave_in_doubt(blocks))
    }
}

impl Shared {
    pub(crate) fn new(pool: Rc<Pool>) -> Rc<Self> {
        let frames = pool.seams().metadata.frame_count(PAGE_BYTES) as u64;
        let medium = pool.seams().metadata.frame_count(PARITY_BYTES_MAX) as u64;
        let large = pool.seams().metadata.frame_count(FRAME_BYTES_MAX) as u64;
        Rc::new_cyclic(|this: &Weak<Self>| Self {
            rows: RowStore::new(pool, Weak::<Self>::clone(this)),
            unfound: RefCell::default(),
            clients: Cell::new(Clients::Ended),
            nothing_on: RefCell::default(),
            claims_on_absent: Cell::new(0),
            resolve_mutex: AsyncMutex::default(),
            deciding: Cell::default(),
            durability_mutex: AsyncMutex::default(),
            write_back_mutex: AsyncMutex::default(),
            refill_mutex: AsyncMutex::default(),
            looks: Share::of(frames / 4),
            lines: Share::of(frames / 8),
            throttle: Throttle::default(),
            stripes: Share::of(medium / 2),
            refills: Share::of(medium / 4),
            conversion_shadows: Share::of(large / 4),
            closing: Closing::default(),
            caches: RefCell::default(),
        })
    }

    /// The write caches.
    pub(crate) fn caches(&self) -> Vec<Rc<Cache>> {
        self.caches.borrow().iter().filter_map(Weak::upgrade).collect()
    }

    /// How many write caches there are.
    pub(crate) fn cache_count(&self) -> u64 {
        self.caches.borrow().iter().filter(|cache| cache.strong_count() > 0).count() as u64
    }
}
