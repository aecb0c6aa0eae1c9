//! Rows of a write cache that lack copies, because disks of theirs are away, are brought to other disks (docs/design/0004,
//! *Copies that are brought to other disks*).
//!
//! Invariants:
//! - A copy is dropped only when the row has all of its copies on disks that are here, and none of its blocks was found without
//!   a good one.
//! - Nobody brings rows with the cache's turn in hand: that takes a checkpoint, which takes the turn.
//! - A row that could not be brought is not tried again under the same epoch, so nobody waits for it.
//!
//! Left to others: filling a slab (`resync`); who waits for the copies (`destage`, `replay`).

use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;

use dolmen_causes::in_one_line;
use dolmen_disk::MemberState;
use dolmen_future_pool::pooled;
use dolmen_units::Epoch;

use crate::cache::segment_copies::SegmentCopies;
use crate::cache::segments::CacheIndex;
use crate::format::error::SpaceError;
use crate::relocation::refill::RowRefill;
use crate::relocation::resync::{Resynced, SlabChanges, SlabTrust};
use crate::row_io::flusher::Flusher;
use crate::table::row::{Row, Slab};
use crate::table::space::Cache;

/// How long copies may be away before they are brought to other disks although no stripe waits for them: a disk that is back by
/// then is brought up to date with less.
const AWAY_MAX: Duration = Duration::from_secs(60);

/// Copies of segments that a write cache gets on other disks.
#[derive(Clone, Copy)]
pub(crate) struct CacheCopies<'a> {
    cache: &'a Rc<Cache>,
}

impl<'a> CacheCopies<'a> {
    /// Returns the service for a write cache.
    pub(crate) fn of(cache: &'a Rc<Cache>) -> Self {
        Self { cache }
    }
}

impl CacheCopies<'_> {
    /// Brings rows that lack copies to disks that are here, so many at most; whether any has all of its copies now. Called
    /// without any lock or turn.
    ///
    /// # Errors
    /// [`SpaceError`] when the pool has stopped.
    pub(crate) async fn bring_rows(self, most: usize) -> Result<bool, SpaceError> {
        let mut has_brought = false;
        for _ in 0..most {
            let lacking = {
                let segments = self.cache.segments.borrow();
                let found = segments
                    .iter()
                    .find(|segment| SegmentCopies::of(self.cache).can_be_brought(&segment.row));
                found.map(|segment| Rc::clone(&segment.row))
            };
            let Some(row) = lacking else { break };
            // Where the new disk leaves midway, another epoch begins, and with it another try.
            let tried_under = self.cache.shared().pool.epoch().number;
            let brought = self.bring_row(&row).await;
            if let Err(error) = &brought {
                self.cache.shared().pool.log().check_writable()?;
                tracing::warn!(pool = %self.cache.shared().pool.name(), row = row.index, error = %in_one_line(error),
                    "copies of a row of the write cache cannot be brought to another disk now");
            }
            match SegmentCopies::of(self.cache).has_all_copies(&row) {
                true => has_brought = true,
                false => self.note_not_brought(&row, tried_under),
            }
        }
        if has_brought {
            self.cache.notify.notify_all();
        }
        Ok(has_brought)
    }

    fn note_not_brought(self, row: &Row, now: Epoch) {
        let mut not_brought = self.cache.not_brought.borrow_mut();
        if not_brought.0 != now {
            *not_brought = (now, BTreeSet::new());
        }
        not_brought.1.insert(row.index);
    }

    #[pooled]
    async fn bring_row(self, row: &Rc<Row>) -> Result<(), SpaceError> {
        let (space, shared) = (self.cache.space(), self.cache.shared());
        Flusher::of(shared).gate().await?;
        let _exclusive = shared.refill_mutex.take().await;
        while SegmentCopies::of(self.cache).lacks_slabs(row) > 0
            && let Some((from, to)) = SegmentCopies::of(self.cache).next_place(row)
        {
            if !SlabChanges::of(space).add_slab(row, (from, to), |_| true).await? {
                break;
            }
            tracing::info!(pool = %shared.pool.name(), row = row.index, ?from, ?to, "a copy of a row of the write cache goes to another disk");
        }
        // One that was filled before says nothing of what no copy had then.
        let is_refilled = row.with_slabs(0, |slabs| {
            slabs.iter().any(|slab| slab.stale == Some(Epoch(0)) && slab.present(&shared.pool).is_some())
        });
        let mut result = Resynced::default();
        if let Some(refilled) = RowRefill::of(space).refill_row(row.index, &mut result).await? {
            SlabTrust::of(shared).trust_all(&[(Rc::clone(space), refilled)], &mut result).await?;
        }
        // What no copy here has may be on the one that is away.
        if is_refilled && result.lost_blocks == 0 {
            self.drop_surplus(row, |slab| slab.present(&shared.pool).is_none()).await?;
        }
        Ok(())
    }

    /// Drops slabs that a row has beyond its copies, among those that may be.
    async fn drop_surplus(self, row: &Rc<Row>, may_go: impl Fn(&Slab) -> bool) -> Result<(), SpaceError> {
        let pool = &self.cache.shared().pool;
        let slabs = row.with_slabs(0, <[Slab]>::to_vec);
        let mut surplus: Vec<&Slab> = slabs.iter().filter(|slab| may_go(slab)).collect();
        // What is on disks that are to leave first, then what came last.
        let stays =
            |slab: &Slab| pool.disk(slab.disk).is_some_and(|disk| disk.member().state == MemberState::Active);
        surplus.reverse();
        surplus.sort_by_key(|slab| stays(slab));
        for slab in surplus {
            if row.with_slabs(0, <[Slab]>::len) > SegmentCopies::of(self.cache).copies()
                && SegmentCopies::of(self.cache).has_all_copies(row)
            {
                SlabChanges::of(self.cache.space()).drop_slab(row, slab.disk).await?;
            }
        }
        Ok(())
    }

    /// Brings a row whose copies have been away for long, and drops what a row has beyond its copies since its disks are back.
    ///
    /// # Errors
    /// [`SpaceError`] when the pool has stopped.
    #[pooled]
    pub(crate) async fn tend_copies(self) -> Result<(), SpaceError> {
        if SegmentCopies::of(self.cache).can_be_brought_any() {
            let since = self.cache.lacks_since.get().unwrap_or(CacheIndex::of(self.cache).now());
            self.cache.lacks_since.set(Some(since));
            if CacheIndex::of(self.cache).now() >= since + AWAY_MAX {
                self.bring_rows(1).await?;
            }
            return Ok(());
        }
        self.cache.lacks_since.set(None);
        let pool = Rc::clone(&self.cache.shared().pool);
        let has_surplus = |row: &Rc<Row>| {
            row.with_slabs(0, |slabs| {
                slabs.len() > SegmentCopies::of(self.cache).copies()
                    && slabs.iter().all(|slab| slab.readable(&pool).is_some())
            })
        };
        let found =
            self.cache.segments.borrow().iter().map(|segment| Rc::clone(&segment.row)).find(has_surplus);
        let Some(row) = found else { return Ok(()) };
        let _exclusive = self.cache.shared().refill_mutex.take().await;
        if has_surplus(&row) {
            self.drop_surplus(&row, |_| true).await?;
        }
        Ok(())
    }
}
