//! Checkpoints: the overlay goes to the tree, tables to their rows, and the log is trimmed.

use std::rc::{Rc, Weak};

use dolmen_causes::in_one_line;
use dolmen_epoch::SPANS_MAX;
use dolmen_future_pool::pooled;
use dolmen_journal::Place;
use dolmen_mutation::mutation;
use dolmen_store::{Anchor, CheckpointError};
use dolmen_units::{Epoch, Lsn};

use crate::arbiter::LocalFuture;
use crate::error::PoolError;
use crate::pool::{ExcludeReason, Pool};

/// Whoever keeps in memory what records of blocks in the log say.
pub trait TableOwner {
    /// Writes back and flushes everything that records below `below` changed, so that the log need not keep them. What has
    /// no home but the log it appends again; it may call [`Pool::trim_log`] on the way. How many bytes it has appended again.
    fn write_back(&self, below: Lsn) -> LocalFuture<'_, Result<u64, PoolError>>;
}

/// What a checkpoint says of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogNeed {
    /// The place from which it is needed.
    pub from: Place,
    /// Changes of the map in batches before this one are in the checkpoint.
    pub applied: Lsn,
}

/// What the last checkpoint has left in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Left {
    /// Bytes that it had to append again.
    pub(crate) relogged: u64,
    /// Bytes that were in use at its end: these, and what others had written meanwhile.
    pub(crate) used: u64,
    /// The epoch in which it began.
    pub(crate) epoch: Epoch,
}

impl LogNeed {
    /// A log of which nothing was written.
    pub const ALL: Self = Self { from: Place::FIRST, applied: Place::FIRST.lsn };

    /// As the checkpoint keeps it.
    #[must_use]
    pub fn to_anchor(self) -> Anchor {
        let mut anchor = [0; 64];
        let bytes = self.from.to_bytes().into_iter().chain(self.applied.0.to_le_bytes());
        anchor.iter_mut().zip(bytes).for_each(|(to, from)| *to = from);
        Anchor(anchor)
    }

    /// What a checkpoint kept.
    #[must_use]
    pub fn from_anchor(Anchor(anchor): Anchor) -> Self {
        let place = anchor.first_chunk().copied().unwrap_or_default();
        let (_, after) = anchor.split_at(place.len());
        let applied = after.first_chunk().copied().unwrap_or_default();
        Self { from: Place::from_bytes(place), applied: Lsn(u64::from_le_bytes(applied)) }
    }
}

impl Pool {
    /// Tells the pool whom to ask before the log is trimmed. The owner holds the pool, so the pool does not hold the owner;
    /// while there is none, the log is not trimmed.
    pub fn set_table_owner(&self, owner: Weak<dyn TableOwner>) {
        *self.table_owner.borrow_mut() = Some(owner);
    }

    pub(crate) fn table_owner(&self) -> Option<Rc<dyn TableOwner>> {
        self.table_owner.borrow().as_ref().and_then(Weak::upgrade)
    }

    /// Empties the log up to here: tables first, then the map, then the tail.
    ///
    /// # Errors
    /// When the pool cannot be written. The old checkpoint and the log stand then.
    #[pooled]
    pub async fn checkpoint(self: &Rc<Self>) -> Result<(), PoolError> {
        let _exclusive = self.checkpoint_mutex.take().await;
        let log = Rc::clone(self.writable_log()?);
        let epoch = self.epoch().number;
        let cut = log.cut();
        self.written_below(cut).await?;
        self.applied_below(cut).await;
        let relogged = match self.table_owner() {
            Some(owner) => {
                let relogged = owner.write_back(cut).await?;
                let cut = if mutation!(TrimAhead) { log.cut() } else { cut };
                self.trim_log(cut, cut).await?;
                relogged
            }
            // Nobody has block records yet, or recovery has not read them: then they must stay.
            None => {
                self.commit_map(LogNeed { from: self.tail.get(), applied: cut }).await?;
                log.usage().used_bytes
            }
        };
        self.left.set(Left { relogged, used: log.usage().used_bytes, epoch });
        self.changed.notify_all();
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
        let log = Rc::clone(self.writable_log()?);
        let begun = log.place_of(needed);
        let from = begun.unwrap_or(self.tail.get());
        self.commit_map(LogNeed { from, applied }).await?;
        self.tail.set(from);
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
        self.room_notify.notify_all();
        Ok(())
    }

    /// Waits until the map has every change whose record is below `cut` and written: whoever made it may not have come to
    /// that yet, and with the record trimmed nobody would know of it.
    async fn applied_below(&self, cut: Lsn) {
        let is_applied = || self.applying.get().is_none_or(|lsn| lsn >= cut) || mutation!(TrimUnapplied);
        self.changed.wait_for(|| is_applied().then_some(())).await;
    }

    #[pooled]
    async fn commit_map(self: &Rc<Self>, need: LogNeed) -> Result<(), PoolError> {
        loop {
            match self.store.checkpoint(need.to_anchor()).await {
                Ok(()) => {
                    self.is_map_full.set(false);
                    return Ok(());
                }
                Err(CheckpointError::Replicas { failed, .. }) => {
                    for failure in failed {
                        self.exclude_id(failure.disk, ExcludeReason::MissedCommit).await?;
                    }
                }
                Err(CheckpointError::Full { .. }) => {
                    self.is_map_full.set(true);
                    self.changed.notify_all();
                    return Err(PoolError::MetadataFull { name: self.name.clone() });
                }
                Err(source) => return Err(PoolError::Checkpoint { name: self.name.clone(), source }),
            }
        }
    }

    /// Whether the log is half full, and a quarter of it is what the last checkpoint did not have to leave; or was written by so many epochs that a label will soon not tell them apart.
    fn wants_checkpoint(&self) -> bool {
        let half_full = self.log.as_ref().is_some_and(|log| {
            let usage = log.usage();
            let written = usage.used_bytes.saturating_sub(self.left.get().relogged);
            let half_full = usage.used_bytes * 2 > usage.capacity_bytes && written * 4 > usage.capacity_bytes;
            let worth_a_try = self.is_occupied(usage) && self.may_relog_less(usage);
            half_full || self.is_full(usage) && !self.is_occupied(usage) || worth_a_try
        });
        let is_wanted = half_full || self.wants_map_room.get();
        self.table_owner().is_some() && (is_wanted || self.spans_needed() > SPANS_MAX / 2)
    }

    /// Epochs whose stretches of the log are not trimmed: the next epoch has to name them.
    pub(crate) fn spans_needed(&self) -> usize {
        let tail = self.tail.get().lsn;
        let now = self.now.borrow();
        let spans = now.epoch.spans();
        let ended = spans.iter().skip(1).filter(|next| next.first <= tail).count();
        spans.len() - ended
    }

    /// Starts the task that keeps the log from filling up.
    pub(crate) fn start_checkpointer(self: &Rc<Self>) {
        let weak = Rc::downgrade(self);
        self.seams.spawner.spawn("checkpointer", Box::pin(checkpointer(weak)));
    }
}

#[pooled]
async fn checkpointer(pool: Weak<Pool>) {
    loop {
        let Some(pool) = pool.upgrade() else { return };
        let notify = pool.checkpoint_notify.wait();
        if pool.stopping.get() {
            return;
        }
        if pool.wants_checkpoint() {
            pool.wants_map_room.set(false);
            match pool.checkpoint().await {
                Ok(()) => continue,
                // Nothing is lost, and what is deleted may make it possible: every change rings again.
                Err(error @ PoolError::MetadataFull { .. }) => {
                    tracing::error!(pool = %pool.name, %error, "the log cannot be trimmed");
                }
                Err(error) => {
                    pool.latch(in_one_line(&error));
                    return;
                }
            }
        }
        notify.await;
    }
}
