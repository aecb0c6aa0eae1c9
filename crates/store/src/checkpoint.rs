//! Making a checkpoint, whole or in parts; the order of writes is drawn on the crate's front page.

use std::rc::Rc;

use dolmen_future_pool::pooled;
use dolmen_mutation::mutation;

use crate::block::Checkpoint;
use crate::error::{CheckpointError, Failure, Step, StoreError};
use crate::key::{Anchor, Key};
use crate::merge::{Merge, Merged, Reach};
use crate::overlay::Changes;
use crate::replica::Replica;
use crate::store::Store;

/// How far an attempt came before it failed: only a written block leaves doubt.
enum Attempt {
    Pages(CheckpointError),
    Block(CheckpointError, Box<Merged>),
}

impl Store {
    /// Merges the changes so far into the tree, durably on all replicas, together with `anchor`. Changes made meanwhile
    /// are visible and belong to the next one. Replicas that are stale are brought up to date first.
    ///
    /// Where the free pages do not do for all changes at once, they are merged in parts, each a checkpoint that stands. All
    /// but the last repeat the anchor of the one before: they hold some changes and not others, and the log from that anchor
    /// on, repeated over them, gives what was there.
    ///
    /// Once this returned without error, nothing before it is needed: the caller may trim its log to what `anchor` says.
    ///
    /// # Errors
    /// [`CheckpointError`]; in all cases but [`CheckpointError::JoinersLackIt`] the old checkpoint stands, or a part with its
    /// anchor, and all changes that are not in it are in the overlay again. After [`CheckpointError::Replicas`] the caller says by
    /// [`set_replicas`](Self::set_replicas) who goes on.
    #[pooled]
    pub async fn checkpoint(&self, anchor: Anchor) -> Result<(), CheckpointError> {
        self.as_task("checkpoint", move |store| async move { store.checkpoint_now(anchor).await }).await
    }

    #[pooled]
    async fn checkpoint_now(&self, anchor: Anchor) -> Result<(), CheckpointError> {
        let _exclusive = self.mutex.take().await;
        let mut reach = Reach::Whole;
        loop {
            match self.part(anchor, reach).await {
                Ok(None) => break,
                Ok(Some(_)) => {}
                Err(CheckpointError::Full { .. }) if reach == Reach::Whole => reach = Reach::Part,
                Err(error) => {
                    // What a part before this one left.
                    self.overlay.borrow_mut().thaw();
                    self.note_move();
                    return Err(error);
                }
            }
        }
        let sequence = self.tree.borrow().sequence;
        let after =
            |source| CheckpointError::JoinersLackIt { pool: self.pool, sequence, source: Box::new(source) };
        self.bring_stale().await.map(|_| ()).map_err(after)
    }

    /// Makes a checkpoint of the changes, or of as many as there is room for; the first that it left.
    #[pooled]
    async fn part(&self, anchor: Anchor, reach: Reach) -> Result<Option<Key>, CheckpointError> {
        self.older_readers_done().await;
        self.refuse_failed()?;
        self.erase_doubtful().await?;
        let current = self.tree.borrow().sequence;
        self.bring_stale().await.map_err(|error| self.as_checkpoint_error(error))?;
        let to = self.set.borrow().list.clone();
        let sequence = self.space.borrow().sequence_next;
        assert!(sequence % 2 != current % 2, "an attempt never overwrites the checkpoint that stands");
        let changes = self.overlay.borrow_mut().freeze();
        self.note_move();
        let attempt = self.attempt(&to, sequence, &changes, anchor, reach).await;
        drop(changes);
        match attempt {
            Ok((checkpoint, merged)) => {
                let rest = merged.rest;
                self.publish(&to, checkpoint, merged);
                Ok(rest)
            }
            Err(failed) => Err(self.withdraw(failed)),
        }
    }

    /// Waits for readers of checkpoints before the one that stands: the pages that they look at are free now.
    pub(crate) async fn older_readers_done(&self) {
        self.notify
            .wait_for(|| {
                let mut older = self.older.borrow_mut();
                older.retain(|tree| tree.strong_count() > 0);
                older.is_empty().then_some(())
            })
            .await;
    }

    fn refuse_failed(&self) -> Result<(), CheckpointError> {
        let failed = self.set.borrow().failures();
        if failed.is_empty() { Ok(()) } else { Err(self.failed(failed)) }
    }

    fn failed(&self, failed: Vec<Failure>) -> CheckpointError {
        self.set.borrow_mut().note(&failed);
        CheckpointError::Replicas { pool: self.pool, failed }
    }

    fn as_checkpoint_error(&self, error: StoreError) -> CheckpointError {
        match error {
            StoreError::Write { failed, .. } => self.failed(failed),
            other => CheckpointError::Read { pool: self.pool, source: Box::new(other) },
        }
    }

    /// Makes sure that a block of a failed attempt does not count after a crash, so that its pages are free.
    async fn erase_doubtful(&self) -> Result<(), CheckpointError> {
        if self.space.borrow().doubtful.is_none() {
            return Ok(());
        }
        let to = self.set.borrow().list.clone();
        let slot = (self.tree.borrow().sequence + 1) % 2;
        let failed = self.port().erase_slot(&to, slot).await;
        if !failed.is_empty() {
            return Err(self.failed(failed));
        }
        self.space.borrow_mut().doubtful = None;
        Ok(())
    }

    #[pooled]
    async fn attempt(
        &self,
        to: &[Replica],
        sequence: u64,
        changes: &Changes,
        anchor: Anchor,
        reach: Reach,
    ) -> Result<(Checkpoint, Merged), Attempt> {
        let merged = Merge::new(self, to, sequence, changes, reach).run().await.map_err(Attempt::Pages)?;
        let port = self.port();
        let mut failed = Vec::new();
        if !mutation!(BlockBeforePages) {
            failed = port.flush_all(to, Step::PagesFlush).await;
        }
        if !failed.is_empty() {
            return Err(Attempt::Pages(self.failed(failed)));
        }
        let is_whole = merged.rest.is_none() || mutation!(PartAnchoredAsWhole);
        let checkpoint = Checkpoint {
            sequence,
            root: merged.root,
            entries: merged.entries,
            used_pages: merged.allocation.next().used(),
            bitmaps: merged.bitmaps.clone(),
            anchor: if is_whole { anchor } else { self.tree.borrow().anchor },
        };
        let mut failed = port.write_block(to, &checkpoint).await;
        if failed.is_empty() {
            failed = port.flush_all(to, Step::BlockFlush).await;
        }
        if failed.is_empty() {
            return Ok((checkpoint, merged));
        }
        Err(Attempt::Block(self.failed(failed), Box::new(merged)))
    }

    /// The new checkpoint stands, in memory too, in one step: no reader sees the changes twice or not at all.
    fn publish(&self, to: &[Replica], checkpoint: Checkpoint, merged: Merged) {
        let sequence = checkpoint.sequence;
        let old = self.tree.replace(Rc::new(checkpoint));
        for replica in to {
            // A heal that failed meanwhile has made it stale: it lacks a page that may still be in use.
            let mut set = self.set.borrow_mut();
            if set.is_current(replica.disk, old.sequence) {
                set.learn(replica.disk, sequence);
            }
        }
        self.older.borrow_mut().push(Rc::downgrade(&old));
        let mut space = self.space.borrow_mut();
        space.cursor = merged.allocation.cursor();
        space.used = merged.allocation.into_next();
        space.sequence_next = sequence + 1;
        match merged.rest {
            None => self.overlay.borrow_mut().drop_frozen(),
            Some(rest) => self.overlay.borrow_mut().drop_frozen_before(rest),
        }
        self.note_move();
        self.count(|counters| counters.checkpoints += 1);
    }

    /// The attempt counts for nothing, in memory; on the disks it may, if its block was written.
    fn withdraw(&self, attempt: Attempt) -> CheckpointError {
        let mut space = self.space.borrow_mut();
        space.sequence_next += 2;
        let error = match attempt {
            Attempt::Pages(error) => error,
            Attempt::Block(error, merged) => {
                space.doubtful = Some(merged.allocation.into_next());
                error
            }
        };
        self.overlay.borrow_mut().thaw();
        self.note_move();
        if let CheckpointError::Replicas { failed, .. } = &error {
            self.set.borrow_mut().note(failed);
        }
        error
    }
}
