//! Making a store and opening it again.

use std::rc::Rc;

use dolmen_block_io::Seams;
use dolmen_future_pool::pooled;
use dolmen_units::{DiskId, Epoch, PoolId};

use crate::bitmap::Bitmap;
use crate::block::Checkpoint;
use crate::error::{Answer, Defect, Failure, Fault, PAGES_MIN, Step, StoreError};
use crate::format::BITMAP_PAGES;
use crate::key::Anchor;
use crate::page::{Expect, Shape, UnplacedPage};
use crate::replica::{Area, Port, Replica, ReplicaSet};
use crate::store::{Store, StoreOptions};

/// What was found when a store was opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Opened {
    /// The number of the checkpoint that stands.
    pub sequence: u64,
    /// What the caller kept with it.
    pub anchor: Anchor,
    /// Replicas that lack it: they are to be healed before the caller forgets what the checkpoint covers.
    pub stale: Vec<DiskId>,
}

/// The newest checkpoint, and who has it.
struct Newest {
    checkpoint: Checkpoint,
    holders: Vec<DiskId>,
}

impl Store {
    /// Makes an empty store on all of `replicas`: whatever checkpoint stood there is erased first.
    ///
    /// # Errors
    /// [`StoreError::Area`] when it does not fit, [`StoreError::Write`] when a disk fails: then there is no store.
    #[pooled]
    pub async fn format(
        seams: &Seams,
        token: Epoch,
        pool: PoolId,
        area: Area,
        replicas: &[Replica],
        anchor: Anchor,
    ) -> Result<(), StoreError> {
        check_area(pool, area, replicas)?;
        let port = Port { arena: seams.metadata.clone(), token, pool, area };
        let written = |failed: Vec<Failure>| {
            if failed.is_empty() { Ok(()) } else { Err(StoreError::Write { pool, failed }) }
        };
        written(port.erase_slot(replicas, 0).await)?;
        written(port.erase_slot(replicas, 1).await)?;
        let mut used = Bitmap::new(area.pages());
        let count = area.pages().div_ceil(BITMAP_PAGES);
        (0..count).for_each(|page| assert!(used.insert(page), "an empty area has room for its bitmap"));
        let conversion_shadows = (0u16..).zip(0..count).map(|(index, page)| {
            let unplaced = UnplacedPage::bitmap(index, &used.chunk(usize::from(index)));
            Rc::new(unplaced.seal(pool, page, 1))
        });
        let pages: Vec<_> = conversion_shadows.collect();
        written(port.write_pages(replicas, &pages).await)?;
        written(port.flush_all(replicas, Step::PagesFlush).await)?;
        let bitmaps = pages.iter().map(|page| page.at()).collect();
        let checkpoint =
            Checkpoint { sequence: 1, root: None, entries: 0, used_pages: count, bitmaps, anchor };
        written(port.write_block(replicas, &checkpoint).await)?;
        written(port.flush_all(replicas, Step::BlockFlush).await)
    }

    /// Opens the newest checkpoint that any of `replicas` has. Writes nothing. The caller gives the disks of the epoch in
    /// force only: a disk of another history may hold a higher number.
    ///
    /// # Errors
    /// [`StoreError::NoCheckpoint`], [`StoreError::TooNew`], [`StoreError::Diverged`], [`StoreError::Area`], or
    /// [`StoreError::PageLost`] when the bitmap cannot be read anywhere.
    #[pooled]
    pub async fn open(
        seams: &Seams,
        token: Epoch,
        pool: PoolId,
        area: Area,
        replicas: &[Replica],
        options: StoreOptions,
    ) -> Result<(Rc<Self>, Opened), StoreError> {
        check_area(pool, area, replicas)?;
        let port = Port { arena: seams.metadata.clone(), token, pool, area };
        let Newest { checkpoint, holders } = find_newest(&port, replicas).await?;
        let mut set = ReplicaSet::new(token, replicas.to_vec());
        holders.iter().for_each(|disk| set.learn(*disk, checkpoint.sequence));
        let stale = set.stale(checkpoint.sequence).iter().map(|replica| replica.disk).collect();
        let opened = Opened { sequence: checkpoint.sequence, anchor: checkpoint.anchor, stale };
        let used = Bitmap::new(area.pages());
        let store = Self::assemble(seams.clone(), &port, set, checkpoint, used, options);
        let used = store.load_bitmap().await?;
        store.space.borrow_mut().used = used;
        Ok((store, opened))
    }

    #[pooled]
    async fn load_bitmap(&self) -> Result<Bitmap, StoreError> {
        let pin = self.pin();
        let mut used = Bitmap::new(self.area.pages());
        let bitmaps = &pin.tree().bitmaps;
        for (index, at) in (0u16..).zip(bitmaps) {
            let expect = Expect { pool: self.pool, at: *at, shape: Shape::Bitmap { index }, key: None };
            let page = self.sound_page(&pin, &expect).await?;
            if !used.load_chunk(usize::from(index), page.body()) {
                return Err(self.unfit(at.page, Defect::Entries { entry: usize::from(index) }));
            }
        }
        let complete = bitmaps.len() as u64 == self.area.pages().div_ceil(BITMAP_PAGES);
        if !complete || used.used() != pin.tree().used_pages {
            let page = bitmaps.first().map_or(0, |at| at.page);
            return Err(self.unfit(page, Defect::Entries { entry: bitmaps.len() }));
        }
        Ok(used)
    }
}

fn check_area(pool: PoolId, area: Area, replicas: &[Replica]) -> Result<(), StoreError> {
    if area.pages() < PAGES_MIN || replicas.is_empty() {
        return Err(StoreError::Area { pool, pages: area.pages(), replicas: replicas.len() });
    }
    Ok(())
}

#[pooled]
async fn find_newest(port: &Port, replicas: &[Replica]) -> Result<Newest, StoreError> {
    let pool = port.pool;
    let mut newest: Option<Newest> = None;
    let mut faults = Vec::new();
    for replica in replicas {
        for slot in 0..2 {
            match port.read_block(replica, slot).await {
                Ok(Some(found)) => newest = Some(newer(pool, newest, found, replica.disk)?),
                Ok(None) => {}
                Err(fault) => {
                    refuse_too_new(pool, &fault)?;
                    faults.push(fault);
                }
            }
        }
    }
    newest.ok_or(StoreError::NoCheckpoint { pool, faults })
}

fn newer(
    pool: PoolId,
    so_far: Option<Newest>,
    found: Checkpoint,
    disk: DiskId,
) -> Result<Newest, StoreError> {
    let Some(mut best) = so_far.filter(|best| best.checkpoint.sequence >= found.sequence) else {
        return Ok(Newest { checkpoint: found, holders: vec![disk] });
    };
    if best.checkpoint == found {
        best.holders.push(disk);
    } else if best.checkpoint.sequence == found.sequence {
        let first = best.holders.first().copied().unwrap_or(disk);
        return Err(StoreError::Diverged { pool, sequence: found.sequence, first, second: disk });
    }
    Ok(best)
}

fn refuse_too_new(pool: PoolId, fault: &Fault) -> Result<(), StoreError> {
    match fault.answer {
        Answer::Defect(Defect::Version { found, supported }) if found > supported => {
            Err(StoreError::TooNew { pool, disk: fault.disk, found, supported })
        }
        Answer::Defect(_) | Answer::Device(_) => Ok(()),
    }
}
