//! Checkpoints: the overlay goes to the tree, tables to their rows, and the log is trimmed.

use std::rc::{Rc, Weak};

use dolmen_block_io::sync::AsyncMutex;
use dolmen_causes::in_one_line;
use dolmen_epoch::SPANS_MAX;
use dolmen_future_pool::pooled;
use dolmen_mutation::mutation;
use dolmen_store::CheckpointError;
use dolmen_units::Lsn;

use crate::epochs::change::{Epochs, ExcludeReason};
use crate::error::PoolError;
use crate::log::need::{Left, LogNeed};
use crate::log::pool_log::PoolLog;
use crate::members::identity::Identity;
use crate::members::table::Members;
use crate::metadata::map::MetadataMap;
use crate::ranks;

/// Empties the log of an open pool: tables first, then the map, then the tail.
pub struct Checkpoints {
    pub(crate) identity: Rc<Identity>,
    pub(crate) members: Rc<Members>,
    pub(crate) map: Rc<MetadataMap>,
    pub(crate) log: Rc<PoolLog>,
    pub(crate) epochs: Rc<Epochs>,
    pub(crate) mutex: AsyncMutex,
}

impl Checkpoints {
    pub(crate) fn new(
        identity: &Rc<Identity>,
        members: &Rc<Members>,
        map: &Rc<MetadataMap>,
        log: &Rc<PoolLog>,
        epochs: &Rc<Epochs>,
    ) -> Rc<Self> {
        Rc::new(Self {
            identity: Rc::clone(identity),
            members: Rc::clone(members),
            map: Rc::clone(map),
            log: Rc::clone(log),
            epochs: Rc::clone(epochs),
            mutex: AsyncMutex::ranked(ranks::CHECKPOINT.single()),
        })
    }

    /// Empties the log up to here: tables first, then the map, then the tail.
    ///
    /// # Errors
    /// When the pool cannot be written. The old checkpoint and the log stand then.
    #[pooled]
    pub async fn checkpoint(self: &Rc<Self>) -> Result<(), PoolError> {
        let _exclusive = self.mutex.take().await;
        let log = Rc::clone(self.log.writable()?);
        let epoch = self.members.epoch().number;
        let cut = log.cut();
        self.log.written_below(cut).await?;
        self.applied_below(cut).await;
        let relogged = match self.log.table_owner() {
            Some(owner) => {
                let relogged = owner.write_back(cut).await?;
                let cut = if mutation!(TrimAhead) { log.cut() } else { cut };
                self.trim_log(cut, cut).await?;
                relogged
            }
            // Nobody has block records yet, or recovery has not read them: then they must stay.
            None => {
                self.commit_map(LogNeed { from: self.log.tail.get(), applied: cut }).await?;
                log.usage().used_bytes
            }
        };
        self.log.left.set(Left { relogged, used: log.usage().used_bytes, epoch });
        self.members.changed.notify_all();
        Ok(())
    }

    /// Commits the map, and that the log is needed from `needed` on, with changes of the map before `applied` in it; then
    /// trims the log. For a checkpoint, and for the owner of the tables within one: there is no other order in which the log
    /// could be given up piece by piece.
    ///
    /// # Errors
    /// As [`checkpoint`](Self::checkpoint).
    #[pooled]
    pub async fn trim_log(self: &Rc<Self>, needed: Lsn, applied: Lsn) -> Result<(), PoolError> {
        let log = Rc::clone(self.log.writable()?);
        let begun = log.place_of(needed);
        let from = begun.unwrap_or(self.log.tail.get());
        self.commit_map(LogNeed { from, applied }).await?;
        self.log.tail.set(from);
        let beyond = log.place_of(Lsn(needed.0 + 1)).filter(|_| mutation!(TrimPastNeed));
        log.trim(beyond.unwrap_or(from));
        // A batch that was not begun may have been placed a little later meanwhile; its LSN is the same.
        let (needed_lsn, left_lsn) =
            (begun.map(|place| place.lsn), log.place_of(needed).map(|place| place.lsn));
        let has_all = needed_lsn.is_none() || needed_lsn == left_lsn;
        assert!(
            has_all,
            "a trim leaves all batches from {from:?} on, where the map says that the log is needed from"
        );
        self.log.room_notify.notify_all();
        Ok(())
    }

    /// Waits until the map has every change whose record is below `cut` and written: whoever made it may not have come to
    /// that yet, and with the record trimmed nobody would know of it.
    async fn applied_below(&self, cut: Lsn) {
        let is_applied = || self.map.applying.get().is_none_or(|lsn| lsn >= cut) || mutation!(TrimUnapplied);
        self.members.changed.wait_for(|| is_applied().then_some(())).await;
    }

    #[pooled]
    async fn commit_map(self: &Rc<Self>, need: LogNeed) -> Result<(), PoolError> {
        loop {
            match self.map.store.checkpoint(need.to_anchor()).await {
                Ok(()) => {
                    self.map.is_full.set(false);
                    return Ok(());
                }
                Err(CheckpointError::Replicas { failed, .. }) => {
                    for failure in failed {
                        self.epochs.exclude_id(failure.disk, ExcludeReason::MissedCommit).await?;
                    }
                }
                Err(CheckpointError::Full { .. }) => {
                    self.map.is_full.set(true);
                    self.members.changed.notify_all();
                    return Err(PoolError::MetadataFull { name: self.identity.name.clone() });
                }
                Err(source) => {
                    return Err(PoolError::Checkpoint { name: self.identity.name.clone(), source });
                }
            }
        }
    }

    /// Whether the log is half full, and a quarter of it is what the last checkpoint did not have to leave; or was written by so many epochs that a label will soon not tell them apart.
    fn wants_checkpoint(&self) -> bool {
        let half_full = self.log.journal.as_ref().is_some_and(|log| {
            let usage = log.usage();
            let written = usage.used_bytes.saturating_sub(self.log.left.get().relogged);
            let half_full = usage.used_bytes * 2 > usage.capacity_bytes && written * 4 > usage.capacity_bytes;
            let worth_a_try = self.log.is_occupied(usage) && self.log.may_relog_less(usage);
            half_full || self.log.is_full(usage) && !self.log.is_occupied(usage) || worth_a_try
        });
        let is_wanted = half_full || self.map.wants_room.get();
        self.log.table_owner().is_some() && (is_wanted || self.log.spans_needed() > SPANS_MAX / 2)
    }

    /// Starts the task that keeps the log from filling up.
    pub(crate) fn start_checkpointer(self: &Rc<Self>) {
        let weak = Rc::downgrade(self);
        self.identity.seams.spawner.spawn("checkpointer", Box::pin(checkpointer(weak)));
    }
}

#[pooled]
async fn checkpointer(weak: Weak<Checkpoints>) {
    loop {
        let Some(checkpoints) = weak.upgrade() else { return };
        let notify = checkpoints.log.checkpoint_notify.wait();
        if checkpoints.log.stopping.get() {
            return;
        }
        if checkpoints.wants_checkpoint() {
            checkpoints.map.wants_room.set(false);
            match checkpoints.checkpoint().await {
                Ok(()) => continue,
                // Nothing is lost, and what is deleted may make it possible: every change rings again.
                Err(error @ PoolError::MetadataFull { .. }) => {
                    tracing::error!(pool = %checkpoints.identity.name, %error, "the log cannot be trimmed");
                }
                Err(error) => {
                    checkpoints.log.latch(in_one_line(&error));
                    return;
                }
            }
        }
        notify.await;
    }
}
