//! The spaces of an open pool, as those see them that change them.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use dolmen_block_io::sync::AsyncMutex;
use dolmen_units::{DiskId, SpaceId};

use crate::cache::space::{AllSpaces, Cache, Shared, SpaceList};
use crate::relocation::slab_moves::SlabMoves;
use crate::resolution::recovery::Recovery;

/// The spaces of an open pool.
pub struct Spaces {
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

impl Spaces {
    /// Returns the executor of slab moves.
    pub(crate) fn slab_moves(&self) -> SlabMoves<'_> {
        SlabMoves { shared: &self.shared }
    }
}
