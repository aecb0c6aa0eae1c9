//! Changes of spaces that were cut short, finished before anything is served.
//!
//! A change of a space is many commits, one a row. The map alone shows what the daemon's end leaves of it, and is made
//! whole or nothing at the next opening:
//!
//! | what the map says | what was cut short | what is done |
//! |---|---|---|
//! | the space is unfinished | it was being deleted, or made with all of its rows | nobody finds it; a purge frees its rows, behind the opening (`trash`) |
//! | rows behind its end | it was being made smaller | they are freed |
//! | a fixed space lacks rows | it was being made larger | they are claimed |
//! | a space lacks rows that are reserved for it | they were being claimed | they are |
//! | a write cache that no space needs | its last space was being deleted, or its first made | it is deleted |

use std::rc::Rc;

use dolmen_pool::keys;

use crate::format::error::SpaceError;
use crate::format::spec::{Provisioning, REDUNDANCY_MAX};
use crate::policy::handles::{Caches, Changes};
use crate::policy::reserve::Reserves;
use crate::relocation::allocator::Allocator;
use crate::relocation::blanks::Blanks;
use crate::table::space::SpaceRows;

impl Changes<'_> {
    /// Finishes what was cut short, hidden spaces that are `unfinished` among it. Whatever cannot be finished stays as it is, for
    /// the next opening to try again: nothing of it is lost, and no pool stays closed for it.
    pub(crate) async fn finish(self, unfinished: &[Rc<SpaceRows>]) {
        for space in unfinished {
            let _ = self.delete(space).await;
        }
        for space in self.spaces.all().into_iter().filter(|space| space.check_stays().is_ok()) {
            let _ = self.finish_resize(&space).await;
        }
        for redundancy in 0..=REDUNDANCY_MAX {
            let _ = Caches::of(self.spaces).drop_cache(redundancy).await;
        }
    }

    async fn finish_resize(self, space: &Rc<SpaceRows>) -> Result<(), SpaceError> {
        let rows = space.size().0.div_ceil(space.row_bytes());
        if !self.spaces.pool().map().scan(keys::places(space.id(), rows..u64::MAX), 1).await?.is_empty() {
            self.free_after(space, space.size()).await?;
        }
        if space.spec().provisioning == Provisioning::Fixed && space.row_count.get() < rows {
            Allocator::of(space).claim_all().await?;
        }
        if Blanks::of(space).reserve_rows() > 0 {
            Blanks::of(space).look_for_unformatted().await?;
        }
        Reserves::of(space).fill_reserve().await
    }
}
