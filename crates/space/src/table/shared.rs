//! What all spaces of a pool share above their rows: blocks in doubt, write caches, and memory of jobs.

use std::cell::{Cell, RefCell};
use std::ops::Deref;
use std::rc::{Rc, Weak};

use dolmen_buffer::FRAME_BYTES_MAX;
use dolmen_pool::PoolError;
use dolmen_pool::{LocalFuture, Pool};
use dolmen_units::Lsn;
use dolmen_units::SpaceId;

use crate::format::error::SpaceError;
use crate::format::raw::PAGE_BYTES;
use crate::layout::shape::PARITY_BYTES_MAX;
use crate::resources::clients::Clients;
use crate::resources::progress::Closing;
use crate::resources::ranks;
use crate::resources::share::Share;
use crate::resources::throttle::Throttle;
use crate::table::row::BlocksOfRows;
use crate::table::row_store::{Defer, RowStore};
use crate::table::space::{Cache, Shared, UpperLayers};

impl Deref for Shared {
    type Target = RowStore;

    fn deref(&self) -> &RowStore {
        &self.rows
    }
}

impl Defer for Shared {
    fn defer(&self, blocks: BlocksOfRows) -> LocalFuture<'_, Result<(), SpaceError>> {
        self.upper.defer(self, blocks)
    }
}

impl Shared {
    pub(crate) fn new(pool: Rc<Pool>, upper: &'static dyn UpperLayers) -> Rc<Self> {
        let frames = pool.seams().metadata.frame_count(PAGE_BYTES) as u64;
        let medium = pool.seams().metadata.frame_count(PARITY_BYTES_MAX) as u64;
        let large = pool.seams().metadata.frame_count(FRAME_BYTES_MAX) as u64;
        Rc::new_cyclic(|this: &Weak<Self>| Self {
            rows: RowStore::new(pool, Weak::<Self>::clone(this)),
            upper,
            unfound: RefCell::default(),
            clients: Cell::new(Clients::Ended),
            nothing_on: RefCell::default(),
            claims_on_absent: Cell::new(0),
            resolve_mutex: ranks::resolve(),
            deciding: Cell::default(),
            durability_mutex: ranks::durability(),
            write_back_mutex: ranks::write_back(),
            refill_mutex: ranks::refill(),
            looks: Share::of_looks(frames / 4),
            lines: Share::of(frames / 8, ranks::stripe_read_memory()),
            throttle: Throttle::default(),
            stripes: Share::of(medium / 2, ranks::stripe_memory()),
            refills: Share::of(medium / 4, ranks::refill_memory()),
            conversion_shadows: Share::of(large / 4, ranks::conversion_memory()),
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

    /// Notes that a row of a space has a part on a member that is away.
    pub(crate) fn has_claimed_on_absent(&self, space: SpaceId) {
        self.claims_on_absent.set(self.claims_on_absent.get() + 1);
        self.nothing_on.borrow_mut().values_mut().for_each(|(_, spaces)| spaces.retain(|id| *id != space));
    }

    /// The error for a record of blocks that makes no sense.
    pub(crate) fn malformed(&self, lsn: Lsn) -> PoolError {
        let what = format!("a malformed record of blocks at {lsn}");
        PoolError::Corrupt { name: self.pool_name().clone(), what }
    }
}
