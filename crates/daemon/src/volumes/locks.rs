//! Locks of volumes, and the lanes in which their orders go.
//!
//! An operation on a volume may take hours. Rights are revoked and quotas set meanwhile: shares and quotas have locks and processes of
//! their own. An unmount takes all three locks, in the order of their ranks.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use dolmen_attach::SpaceKey;
use dolmen_block_io::ranks::LockRank;
use dolmen_block_io::sync::AsyncMutex;
use dolmen_mutation::mutation;
use dolmen_units::PoolId;
use dolmen_worker::protocol::Operation;

use crate::ranks;

/// Orders of a volume that wait for each other, and for no others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Lane {
    /// Its file system: mkfs, mount, check, deduplication.
    Volume,
    /// Its folders: their bounds, and whether they are there.
    Quotas,
    /// Its shares on servers.
    Shares,
}

impl Lane {
    pub(super) const ALL: [Self; 3] = [Self::Volume, Self::Quotas, Self::Shares];

    /// Returns the lane of an operation.
    pub(super) fn of(operation: &Operation) -> Self {
        match operation {
            _ if mutation!(OneLaneOfOrders) => Self::Volume,
            Operation::Probe { .. }
            | Operation::Make { .. }
            | Operation::Mount { .. }
            | Operation::Unmount { .. }
            | Operation::Grow { .. }
            | Operation::Trim { .. }
            | Operation::Usage { .. }
            | Operation::Check { .. }
            | Operation::Scrub { .. }
            | Operation::Dedup { .. }
            | Operation::Estimate { .. }
            | Operation::Undo { .. }
            | Operation::Compact { .. }
            | Operation::Names { .. } => Self::Volume,
            Operation::QuotaSet { .. }
            | Operation::QuotaRemove { .. }
            | Operation::QuotaList { .. }
            | Operation::Missing { .. } => Self::Quotas,
            Operation::SharePut(_)
            | Operation::ShareRemove(_)
            | Operation::ShareList { .. }
            | Operation::ShareProbe(_)
            | Operation::ShareSessions(_) => Self::Shares,
        }
    }

    /// Returns the end of the names of its lock files and control groups.
    pub(super) fn suffix(self) -> &'static str {
        match self {
            Self::Volume => "",
            Self::Quotas => ".quotas",
            Self::Shares => ".shares",
        }
    }

    fn rank(self) -> LockRank {
        match self {
            Self::Volume => ranks::VOLUME.single(),
            Self::Quotas => ranks::QUOTAS.single(),
            Self::Shares => ranks::SHARES.single(),
        }
    }
}

/// Locks of changes of volumes, one for each lane.
#[derive(Debug, Default)]
pub(super) struct VolumeLocks {
    made: RefCell<BTreeMap<(SpaceKey, Lane), Rc<AsyncMutex>>>,
}

impl VolumeLocks {
    /// Returns the lock of changes in a lane of a volume.
    pub(super) fn of(&self, volume: SpaceKey, lane: Lane) -> Rc<AsyncMutex> {
        let mut made = self.made.borrow_mut();
        Rc::clone(made.entry((volume, lane)).or_insert_with(|| Rc::new(AsyncMutex::ranked(lane.rank()))))
    }

    /// Forgets the locks of a pool that was closed, except those that are held.
    pub(super) fn forget_pool(&self, pool: PoolId) {
        let is_held = |mutex: &Rc<AsyncMutex>| Rc::strong_count(mutex) > 1;
        self.made.borrow_mut().retain(|(key, _), mutex| key.pool != pool || is_held(mutex));
    }
}
