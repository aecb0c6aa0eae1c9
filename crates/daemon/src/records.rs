//! Records of pools for the next daemon: places of disks, what is served, and history.

use std::path::PathBuf;
use std::rc::Rc;

use dolmen_block_io::Seams;
use dolmen_nbd::Access;

use crate::exports::NbdServer;
use crate::open_pool::OpenPool;
use crate::open_pools::OpenPools;
use crate::state::{Histories, Ledger, Remembered, ServedSpace};

/// Records of pools for the next daemon: places of disks, what is served, and history.
pub(crate) struct Records {
    pub(crate) pools: Rc<OpenPools>,
    pub(crate) seams: Seams,
    pub(crate) ledger: Rc<Ledger>,
    pub(crate) histories: Rc<Histories>,
    pub(crate) nbd: Rc<NbdServer>,
}

impl Records {
    /// Records where the pool's disks are and what of it is served, so that the next daemon takes it up.
    pub(crate) async fn remember(&self, pool: &OpenPool) {
        if !self.pools.open.borrow().contains_key(&pool.id()) {
            // It was given up while whoever calls this was at it.
            return;
        }
        if let Err(error) = self.try_remember(pool).await {
            tracing::warn!(pool = pool.name(), %error, "the pool is open but not on record; import it by hand after a restart");
        }
        // It has the path of each disk: one that is away at the next start is called by it, and looked for there.
        self.keep_history(pool).await;
    }

    pub(crate) async fn try_remember(&self, pool: &OpenPool) -> std::io::Result<()> {
        self.ledger.put(pool.id(), &self.remembered(pool)).await
    }

    pub(crate) fn remembered(&self, pool: &OpenPool) -> Remembered {
        let disks = pool.spaces.pool().disks();
        // Where absent disks were stays a hint for as long as they are members: also a pool that has lost all of them, and
        // stopped, is looked for there by the next daemon.
        let names = disks.iter().map(|disk| PathBuf::from(disk.name()));
        let mut paths: Vec<PathBuf> = names.filter(|path| path.is_absolute()).collect();
        let known = self.pools.closed.borrow().get(&pool.id()).map(|closed| closed.remembered.paths.clone());
        paths.extend(known.into_iter().flatten());
        paths.sort();
        paths.dedup();
        let mut what = Remembered::new(pool.id(), &pool.name(), pool.mode, paths);
        let served = self.nbd.list();
        what.served = served
            .iter()
            .filter(|served| served.pool == pool.id())
            .map(|served| ServedSpace {
                space: served.space.id().0,
                read_only: served.access == Access::ReadOnly,
                network: served.network.borrow().clone(),
            })
            .collect();
        what
    }
}
