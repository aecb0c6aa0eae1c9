//! The arbiter: what outside the pool says which epoch is in force. On one server, a synced record on the host itself.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;

use dolmen_units::{DiskId, EpochId, HostId, PoolId};

/// A future of this thread.
pub type LocalFuture<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

/// A record that could not be read or made durable.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{doing} the host's record of pool {pool} failed: {cause}")]
pub struct ArbiterError {
    /// What was tried.
    pub doing: &'static str,
    /// For which pool.
    pub pool: PoolId,
    /// What the system said, and what the user can do about it.
    pub cause: String,
}

/// Record of a host about a pool that it owns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostRecord {
    /// The epoch in force.
    pub epoch: EpochId,
    /// Sequence of a label of each voter of that epoch. Each label was durable when it was recorded (docs/design/0027).
    pub labels: BTreeMap<DiskId, u64>,
}

impl From<EpochId> for HostRecord {
    /// Returns a record that names no labels.
    fn from(epoch: EpochId) -> Self {
        Self { epoch, labels: BTreeMap::new() }
    }
}

/// Names the epoch in force of each pool that this host owns. Every change is durable when its future completes. Changes of
/// one pool take effect in the order of the calls, also where a future is dropped or not yet polled.
pub trait Arbiter {
    /// Who this host is.
    fn host(&self) -> HostId;

    /// Returns the record, if this host has the pool.
    fn named(&self, pool: PoolId) -> LocalFuture<'_, Result<Option<HostRecord>, ArbiterError>>;

    /// Replaces the record.
    fn record(&self, pool: PoolId, record: HostRecord) -> LocalFuture<'_, Result<(), ArbiterError>>;

    /// Forgets the pool: it is exported or destroyed.
    fn withdraw(&self, pool: PoolId) -> LocalFuture<'_, Result<(), ArbiterError>>;
}

/// An arbiter that remembers as long as its owner lives: for tests and simulated hosts, whose memory survives a crash.
#[derive(Debug)]
pub struct MemoryArbiter {
    host: HostId,
    records: RefCell<BTreeMap<PoolId, HostRecord>>,
}

impl MemoryArbiter {
    /// A host without pools.
    #[must_use]
    pub fn new(host: HostId) -> Rc<Self> {
        Rc::new(Self { host, records: RefCell::default() })
    }

    /// A copy of what is on record, for simulating a crash later.
    #[must_use]
    pub fn snapshot(&self) -> Rc<Self> {
        Rc::new(Self { host: self.host, records: RefCell::new(self.records.borrow().clone()) })
    }
}

impl Arbiter for MemoryArbiter {
    fn host(&self) -> HostId {
        self.host
    }

    fn named(&self, pool: PoolId) -> LocalFuture<'_, Result<Option<HostRecord>, ArbiterError>> {
        let named = self.records.borrow().get(&pool).cloned();
        Box::pin(async move { Ok(named) })
    }

    fn record(&self, pool: PoolId, record: HostRecord) -> LocalFuture<'_, Result<(), ArbiterError>> {
        self.records.borrow_mut().insert(pool, record);
        Box::pin(async { Ok(()) })
    }

    fn withdraw(&self, pool: PoolId) -> LocalFuture<'_, Result<(), ArbiterError>> {
        self.records.borrow_mut().remove(&pool);
        Box::pin(async { Ok(()) })
    }
}
