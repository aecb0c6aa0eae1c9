//! Checkpoints: the overlay goes to the tree, tables to their rows, and the log is trimmed.

use std::rc::{Rc, Weak};

use dolmen_epoch::SPANS_MAX;
use dolmen_journal::Place;
use dolmen_planted::{Bug, is_planted};
use dolmen_store::{Anchor, CheckpointError};
use dolmen_units::Lsn;

use crate::arbiter::LocalFuture;
use crate::error::PoolError;
use crate::pool::{ExcludeReason, Pool};

/// Whoever keeps in memory what records of blocks in the log say.
pub trait TableOwner {
    /// Writes back and flushes everything that records below `below` changed, so that the log need not keep them.
    fn write_back(&self, below: Lsn) -> LocalFuture<'_, Result<(), PoolError>>;
}

/// The place in the log from which it is needed, as the checkpoint keeps it.
pub(crate) fn anchor_of(place: Place) -> Anchor {
    let mut anchor = [0; 64];
    for (to, from) in anchor.iter_mut().zip(place.to_bytes()) {
        *to = from;
    }
    Anchor(anchor)
}

impl Pool {
    /// Tells the pool whom to ask before the log is trimmed. The owner holds the pool, so the pool does not hold the owner;
    /// while there is none, the log is not trimmed.
    pub fn set_table_owner(&self, owner: Weak<dyn TableOwner>) {
        *self.table_owner.borrow_mut() = Some(owner);
    }

    fn table_owner(&self) -> Option<Rc<dyn TableOwner>> {
        self.table_owner.borrow().as_ref().and_then(Weak::upgrade)
    }

    /// Empties the log up to here: tables first, then the map, then the tail.
    ///
    /// # Errors
    /// When the pool cannot be written. The old checkpoint and the log stand then.
    pub async fn checkpoint(self: &Rc<Self>) -> Result<(), PoolError> {
        let _turn = self.checkpoint_turn.take().await;
        let log = Rc::clone(self.writable_log()?);
        let cut = log.cut();
        self.written_below(cut).await?;
        let owner = self.table_owner();
        if let Some(owner) = &owner {
            owner.write_back(cut).await?;
        }
        let cut = if is_planted(Bug::TrimAhead) { log.cut() } else { cut };
        // Without an owner nobody has block records yet, or recovery has not read them: then they must stay.
        let place = if owner.is_some() { log.place_of(cut) } else { None };
        let place = place.unwrap_or(self.tail.get());
        loop {
            match self.store.checkpoint(anchor_of(place)).await {
                Ok(()) => break,
                Err(CheckpointError::Replicas { failed, .. }) => {
                    for failure in failed {
                        self.exclude_id(failure.disk, ExcludeReason::MissedCommit).await?;
                    }
                }
                Err(CheckpointError::Full { .. }) => {
                    return Err(PoolError::MetadataFull { name: self.name.clone() });
                }
                Err(source) => return Err(PoolError::Checkpoint { name: self.name.clone(), source }),
            }
        }
        self.tail.set(place);
        log.trim(place);
        self.carried.set(log.usage().used_bytes);
        self.changed.notify_all();
        Ok(())
    }

    /// Whether the log is half full, and a quarter of it was written since the last checkpoint left what it could not trim; or was written by so many epochs that a label will soon not tell them apart.
    fn wants_checkpoint(&self) -> bool {
        let half_full = self.log.as_ref().is_some_and(|log| {
            let usage = log.usage();
            let written = usage.used_bytes.saturating_sub(self.carried.get());
            let half_full = usage.used_bytes * 2 > usage.capacity_bytes && written * 4 > usage.capacity_bytes;
            half_full || self.is_full(usage)
        });
        self.table_owner().is_some() && (half_full || self.now.borrow().epoch.spans().len() > SPANS_MAX / 2)
    }

    /// Starts the task that keeps the log from filling up.
    pub(crate) fn start_checkpointer(self: &Rc<Self>) {
        let weak = Rc::downgrade(self);
        self.seams.spawner.spawn("checkpointer", Box::pin(checkpointer(weak)));
    }
}

async fn checkpointer(pool: Weak<Pool>) {
    loop {
        let Some(pool) = pool.upgrade() else { return };
        let bell = pool.checkpoint_bell.wait();
        if pool.stopping.get() {
            return;
        }
        if pool.wants_checkpoint() {
            if let Err(error) = pool.checkpoint().await {
                pool.latch(error.to_string());
                return;
            }
            continue;
        }
        bell.await;
    }
}
