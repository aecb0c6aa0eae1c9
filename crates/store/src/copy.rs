//! Bringing a disk up to date: a new voter, or one that lacks the newest checkpoint.
//!
//! Order: pages that the disk lacks, flush, block, flush. The pages go to places that are free in the checkpoint before,
//! so a disk that is one checkpoint behind, and may be all that is left after a crash, stays whole until the new block is
//! durable on it. Only a disk whose blocks would win over ours (of another history) is erased first.

use std::rc::Rc;

use dolmen_future_pool::pooled;
use dolmen_units::DiskId;

use crate::bitmap::Bitmap;
use crate::block::Checkpoint;
use crate::error::{Defect, Failure, Step, StoreError};
use crate::page::Page;
use crate::replica::{Port, Replica};
use crate::store::{Pin, Store};
use crate::walk::Walk;

/// What bringing a disk up to date took.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[must_use]
pub struct Copied {
    /// Pages of the checkpoint.
    pub pages: u64,
    /// Pages that the disk lacked.
    pub pages_written: u64,
}

impl Store {
    /// Brings a disk that is to become a replica: all pages of the checkpoint, those that it has already being verified
    /// and left alone, then the newest checkpoint block, all flushed. Checkpoints wait until this is done; one that is
    /// made between this and [`set_replicas`](Self::set_replicas) makes the disk stale again, which the next one mends.
    ///
    /// # Errors
    /// [`StoreError::Write`] when the disk fails, [`StoreError::PageLost`] when a page cannot be read anywhere. The disk
    /// is then no replica; no other disk has changed.
    #[pooled]
    pub async fn copy_to(&self, replica: &Replica) -> Result<Copied, StoreError> {
        let replica = replica.clone();
        self.as_task("copy metadata", move |store| async move {
            let _exclusive = store.mutex.take().await;
            store.older_readers_done().await;
            store.bring(&replica).await
        })
        .await
    }

    /// Brings every replica up to date that lacks the newest checkpoint or of which nobody knows; returns which.
    ///
    /// # Errors
    /// As [`copy_to`](Self::copy_to); replicas before the failing one are done.
    #[pooled]
    pub async fn heal_stale(&self) -> Result<Vec<DiskId>, StoreError> {
        self.as_task("heal stale metadata", |store| async move {
            let _exclusive = store.mutex.take().await;
            store.older_readers_done().await;
            store.bring_stale().await
        })
        .await
    }

    /// As [`heal_stale`](Self::heal_stale), for who has the turn.
    #[pooled]
    pub(crate) async fn bring_stale(&self) -> Result<Vec<DiskId>, StoreError> {
        let sequence = self.tree.borrow().sequence;
        let stale = self.set.borrow().stale(sequence);
        let mut done = Vec::with_capacity(stale.len());
        for replica in stale {
            let _ = self.bring(&replica).await?;
            done.push(replica.disk);
        }
        Ok(done)
    }

    #[pooled]
    async fn bring(&self, target: &Replica) -> Result<Copied, StoreError> {
        let pin = self.pin();
        let port = self.port();
        let to = std::slice::from_ref(target);
        let has_block = self.prepare(&port, target, pin.tree()).await?;
        let copied = self.bring_pages(&port, &pin, target).await?;
        self.written(port.flush_all(to, Step::PagesFlush).await)?;
        if !has_block {
            self.written(port.write_block(to, pin.tree()).await)?;
            self.written(port.flush_all(to, Step::BlockFlush).await)?;
        }
        self.set.borrow_mut().learn(target.disk, pin.tree().sequence);
        Ok(copied)
    }

    /// Erases blocks that would win over ours; whether the disk has our block already.
    async fn prepare(&self, port: &Port, target: &Replica, ours: &Checkpoint) -> Result<bool, StoreError> {
        let mut has_block = false;
        for slot in 0..2 {
            let Ok(Some(theirs)) = port.read_block(target, slot).await else { continue };
            if theirs == *ours {
                has_block = true;
            } else if theirs.sequence >= ours.sequence {
                self.written(port.erase_slot(std::slice::from_ref(target), slot).await)?;
            }
        }
        Ok(has_block)
    }

    #[pooled]
    async fn bring_pages(&self, port: &Port, pin: &Pin, target: &Replica) -> Result<Copied, StoreError> {
        let mut copied = Copied::default();
        let mut walk = Walk::new(self, pin);
        // A forged tree may name a page many times on each level; looked at once each, the walk ends.
        let mut seen = Bitmap::new(self.area.pages());
        while let Some(group) = walk.group() {
            if let Some(twice) = group.iter().map(|step| step.expect.at.page).find(|page| !seen.insert(*page))
            {
                return Err(self.unfit(twice, Defect::Place { found: twice, expected: twice }));
            }
            let expected: Vec<_> = group.iter().map(|step| step.expect).collect();
            let found = port.read_pages(target, &expected, None).await;
            let mut missing: Vec<Rc<Page>> = Vec::new();
            for (step, found) in group.iter().zip(found) {
                if let Ok(page) = found {
                    walk.descend(self, step, &page);
                } else {
                    let page = self.sound_page(pin, &step.expect).await?;
                    walk.descend(self, step, &page);
                    missing.push(page);
                }
            }
            copied.pages += group.len() as u64;
            copied.pages_written += missing.len() as u64;
            missing.sort_by_key(|page| page.at().page);
            self.written(port.write_pages(std::slice::from_ref(target), &missing).await)?;
        }
        Ok(copied)
    }

    fn written(&self, failed: Vec<Failure>) -> Result<(), StoreError> {
        if failed.is_empty() {
            return Ok(());
        }
        self.set.borrow_mut().note(&failed);
        Err(StoreError::Write { pool: self.pool, failed })
    }
}
