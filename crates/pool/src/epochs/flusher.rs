//! Flushes of all disks: a disk whose flush fails leaves.

use std::cell::Cell;
use std::rc::Rc;

use dolmen_future_pool::pooled;
use dolmen_mutation::mutation;
use dolmen_units::Lsn;

use crate::disks::disk::Disk;
use crate::epochs::change::{Epochs, ExcludeReason};
use crate::error::PoolError;
use crate::log::pool_log::PoolLog;
use crate::members::identity::Identity;
use crate::members::table::Members;

/// Flushes the disks of an open pool.
pub struct Flusher {
    pub(crate) identity: Rc<Identity>,
    pub(crate) members: Rc<Members>,
    pub(crate) log: Rc<PoolLog>,
    pub(crate) epochs: Rc<Epochs>,
    /// The last batch that may have been in the voters' caches when they were last flushed.
    pub(crate) log_flushed: Cell<Option<Lsn>>,
}

impl Flusher {
    pub(crate) fn new(
        identity: &Rc<Identity>,
        members: &Rc<Members>,
        log: &Rc<PoolLog>,
        epochs: &Rc<Epochs>,
    ) -> Rc<Self> {
        Rc::new(Self {
            identity: Rc::clone(identity),
            members: Rc::clone(members),
            log: Rc::clone(log),
            epochs: Rc::clone(epochs),
            log_flushed: Cell::default(),
        })
    }

    /// Flushes, in parallel, every disk with writes since its last good flush. A disk whose flush fails is excluded
    /// before this returns; its rows are the caller's business, as after any exclusion.
    ///
    /// # Errors
    /// When the pool cannot be written.
    #[pooled]
    pub async fn flush_disks(self: &Rc<Self>) -> Result<(), PoolError> {
        let log = self.log.writable()?;
        let mut disks: Vec<Rc<Disk>> =
            self.members.disks().into_iter().filter(|disk| disk.is_present()).collect();
        if mutation!(FlushSkipsADisk) {
            disks.pop();
        }
        // What is complete now, and not what was asked for: a flush covers no batch that is still under way.
        let cached = Some(log.last_cached());
        if self.log_flushed.replace(cached) != cached {
            let voters = self.members.voters();
            disks.iter().filter(|disk| voters.contains(&disk.id())).for_each(|disk| disk.note_other_write());
        }
        let flushes: Vec<_> = disks.iter().map(|disk| (Rc::clone(disk), disk.flush())).collect();
        let mut failed = Vec::new();
        for (disk, flushing) in flushes {
            if let Err(error) = flushing.await {
                tracing::warn!(pool = %self.identity.name, disk = %disk.name(), %error, "a flush failed");
                failed.push(disk.slot());
            }
        }
        for slot in failed {
            self.epochs.exclude(slot, ExcludeReason::FailedFlush).await?;
        }
        // A disk that is about to leave was passed over: nothing counts as flushed before the epoch without it is in force.
        drop(self.epochs.mutex.take().await);
        self.log.writable().map(drop)
    }
}
