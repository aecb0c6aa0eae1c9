//! The pools of this host: which are open, which should be, and whether they take changes.
//!
//! What changes the set of pools takes [`OpenPools::changes`]; what changes one pool takes the mutex of that pool.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use dolmen_api::{ErrorBody, ErrorCode};
use dolmen_block_io::sync::{AsyncMutex, Permit};
use dolmen_units::PoolId;

use crate::answer::Answer;
use crate::config::POOLS_MAX;
use crate::open_pool::{ClosedPool, OpenPool};
use crate::ranks;

/// Pools that are open, and pools that should be.
pub(crate) struct OpenPools {
    pub(crate) open: RefCell<BTreeMap<PoolId, Rc<OpenPool>>>,
    pub(crate) closed: RefCell<BTreeMap<PoolId, ClosedPool>>,
    /// Changes of the set of pools, one at a time.
    pub(crate) changes: AsyncMutex,
    /// What is going on that is no job, in words.
    pub(crate) doing: RefCell<Vec<String>>,
    pub(crate) is_stopping: Cell<bool>,
}

impl Default for OpenPools {
    fn default() -> Self {
        let (open, closed, doing, is_stopping) = Default::default();
        Self { open, closed, changes: AsyncMutex::ranked(ranks::CHANGES.single()), doing, is_stopping }
    }
}

impl OpenPools {
    /// Refuses changes while the daemon is ending.
    pub(crate) fn check_running(&self) -> Answer<()> {
        if self.is_stopping.get() {
            let error = ErrorBody::new(ErrorCode::Stopping, "the daemon is ending; nothing was changed");
            return Err(error.hint("ask again when it has been started again"));
        }
        Ok(())
    }

    /// Refuses one pool more than there is memory for.
    pub(crate) fn check_pool_count(&self, name: &str) -> Answer<()> {
        if self.open.borrow().len() < POOLS_MAX {
            return Ok(());
        }
        let message = format!(
            "{POOLS_MAX} pools are open, which is the most that a daemon has; {name} was not touched"
        );
        let hint =
            "export one of the others first; or put disks together into fewer pools, whose spaces they share";
        Err(ErrorBody::new(ErrorCode::Busy, message).on(name).hint(hint))
    }

    /// The open pool with this name or identity.
    pub(crate) fn pool(&self, name: &str) -> Answer<Rc<OpenPool>> {
        let pools = self.open.borrow();
        let found = pools.values().find(|pool| pool.name() == name || pool.id().to_string() == name);
        if let Some(pool) = found {
            return Ok(Rc::clone(pool));
        }
        let closed = self.closed.borrow();
        if let Some(closed) = closed.values().find(|closed| closed.remembered.name == name) {
            let message = format!("pool {name} is not open: {}", closed.cause.message);
            let mut error = ErrorBody::new(ErrorCode::NoSuchPool, message).on(name);
            error.causes.clone_from(&closed.cause.causes);
            return Err(error.hint(format!("attach its disks, then `dolmen pool import --pool {name}`; `dolmen pool export {name}` has it forgotten here")));
        }
        let message = format!("there is no pool {name} here");
        Err(ErrorBody::new(ErrorCode::NoSuchPool, message)
            .on(name)
            .hint("`dolmen pool list` shows all pools"))
    }

    /// A pool that takes changes.
    pub(crate) fn pool_to_change(&self, name: &str) -> Answer<Rc<OpenPool>> {
        let pool = self.pool(name)?;
        self.check_changing(&pool)?;
        Ok(pool)
    }

    /// The turn to change a pool, which takes changes still when that comes.
    pub(crate) async fn lock_for_change<'a>(&self, pool: &'a OpenPool) -> Answer<Permit<'a>> {
        let mutex = pool.mutex.take().await;
        self.check_changing(pool)?;
        Ok(mutex)
    }

    fn check_changing(&self, pool: &OpenPool) -> Answer<()> {
        self.check_running()?;
        if pool.is_closing.get() {
            let name = pool.name();
            let message = format!("pool {name} is being closed; nothing was changed");
            return Err(ErrorBody::new(ErrorCode::Busy, message).on(name));
        }
        Ok(())
    }

    /// All open pools, by name.
    pub(crate) fn open_pools(&self) -> Vec<Rc<OpenPool>> {
        let mut pools: Vec<_> = self.open.borrow().values().cloned().collect();
        pools.sort_by_key(|pool| pool.name());
        pools
    }

    /// Returns the open pool with this identity.
    pub(crate) fn open_pool_of(&self, pool: PoolId) -> Option<Rc<OpenPool>> {
        self.open.borrow().get(&pool).cloned()
    }

    /// Says what is going on as long as the returned note lives.
    pub(crate) fn note(self: &Rc<Self>, what: String) -> Note {
        self.doing.borrow_mut().push(what.clone());
        Note { pools: Rc::clone(self), what }
    }
}

/// Something that goes on.
pub(crate) struct Note {
    pools: Rc<OpenPools>,
    what: String,
}

impl Drop for Note {
    fn drop(&mut self) {
        let mut doing = self.pools.doing.borrow_mut();
        if let Some(at) = doing.iter().position(|what| *what == self.what) {
            doing.remove(at);
        }
    }
}
