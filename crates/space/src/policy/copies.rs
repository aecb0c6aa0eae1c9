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

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;

use dolmen_causes::in_one_line;
use dolmen_disk::MemberState;
use dolmen_future_pool::pooled;
use dolmen_placement::DomainId;
use dolmen_pool::Purpose;
use dolmen_units::{DiskSlot, Epoch};

use crate::cache::destage::Prepared;
use crate::cache::redo::Redo;
use crate::cache::space::Cache;
use crate::format::error::SpaceError;
use crate::format::record::BlockState;
use crate::policy::forecast::is_fast;
use crate::relocation::resync::Resynced;
use crate::table::row::{Row, Slab};

/// How long copies may be away before they are brought to other disks although no stripe waits for them: a disk that is back by
/// then is brought up to date with less.
const AWAY_MAX: Duration = Duration::from_secs(60);

impl Cache {
    fn copies(&self) -> usize {
        usize::from(self.space().spec().resiliency.copies())
    }

    /// Whether a row has all of its copies on disks that are here, and nothing that the log says of it waits for disks.
    pub(crate) fn has_all_copies(&self, row: &Row) -> bool {
        let pool = &self.shared().pool;
        let is_good = |slab: &Slab| slab.readable(pool).is_some();
        self.count_apart(row, is_good) >= self.copies() && !self.shared().is_deferred(row)
    }

    /// Disks with slabs of a row that are as wanted; those that go to one disk in the end are one.
    fn count_apart(&self, row: &Row, is_wanted: impl Fn(&Slab) -> bool) -> usize {
        let pool = &self.shared().pool;
        row.with_slabs(0, |slabs| {
            let wanted = slabs.iter().filter(|slab| is_wanted(slab));
            // Mostly nothing of it moves.
            if slabs.len() <= self.copies() {
                return wanted.count();
            }
            wanted.map(|slab| pool.members().destination(slab.disk)).collect::<BTreeSet<DiskSlot>>().len()
        })
    }

    /// Whether all that a stripe becomes lies in rows with all of their copies.
    pub(crate) fn is_whole(&self, redo: &Redo) -> bool {
        let segments = self.segments.borrow();
        let has_all = |index: u32| {
            let mut rows = segments.iter().map(|segment| &segment.row);
            rows.any(|row| row.index == u64::from(index) && self.has_all_copies(row))
        };
        let valid = redo.blocks.iter().filter(|block| matches!(block.state, BlockState::Valid(_)));
        valid.into_iter().all(|block| has_all(block.place.index))
    }

    /// Leaves stripes to be finished of which the cache lacks copies that it can have: what is begun to be written in place must
    /// not stand against fewer. Those that need not wait.
    pub(crate) fn without_those_that_lack(&self, prepared: Vec<Prepared>) -> Vec<Prepared> {
        if !self.can_be_brought_any() {
            return prepared;
        }
        let (whole, lack): (Vec<Prepared>, Vec<Prepared>) =
            prepared.into_iter().partition(|one| self.is_whole(&one.redo));
        self.waits_for_copies.set(self.waits_for_copies.get() || !lack.is_empty());
        lack.into_iter().for_each(|one| self.leave_unfinished(one.redo));
        whole
    }

    /// Whether some row lacks copies and can have them now.
    pub(crate) fn can_be_brought_any(&self) -> bool {
        let segments = self.segments.borrow();
        segments.iter().any(|segment| self.can_be_brought(&segment.row))
    }

    /// Whether a row lacks copies and can have them now, as far as is known.
    fn can_be_brought(&self, row: &Row) -> bool {
        let is_tried = {
            let (epoch, rows) = &*self.not_brought.borrow();
            *epoch == self.shared().pool.epoch().number && rows.contains(&row.index)
        };
        !is_tried
            && !self.has_all_copies(row)
            && self.can_be_filled(row)
            && (self.lacks_slabs(row) == 0 || self.next_place(row).is_some())
    }

    /// How many slabs on disks that are here a row lacks, whether they hold everything yet or not.
    fn lacks_slabs(&self, row: &Row) -> usize {
        let is_here = |slab: &Slab| slab.present(&self.shared().pool).is_some();
        self.copies().saturating_sub(self.count_apart(row, is_here))
    }

    /// A disk of a row that is away, and one that can take its copy.
    fn next_place(&self, row: &Row) -> Option<(DiskSlot, DiskSlot)> {
        let pool = &self.shared().pool;
        let slabs = row.with_slabs(0, <[Slab]>::to_vec);
        let mut away: Vec<&Slab> = slabs.iter().filter(|slab| slab.present(pool).is_none()).collect();
        // One that never held anything goes first.
        away.sort_by_key(|slab| (slab.stale.is_none(), slab.stale));
        let is_used = |slot: DiskSlot| slabs.iter().any(|slab| slab.disk == slot);
        let is_fit = |slot: &DiskSlot| {
            let disk = pool.disk(*slot).filter(|disk| disk.is_present());
            disk.is_some_and(|disk| disk.member().state == MemberState::Active) && !is_used(*slot)
        };
        // What is being replaced goes where all of it goes.
        let successors = away.iter().map(|slab| (slab.disk, pool.members().destination(slab.disk)));
        if let Some(found) = successors.into_iter().find(|(from, to)| from != to && is_fit(to)) {
            return Some(found);
        }
        let from = away.first()?.disk;
        let kept: BTreeSet<DomainId> = slabs
            .iter()
            .filter(|slab| slab.present(pool).is_some())
            .filter_map(|slab| pool.members().domain_of(pool.members().destination(slab.disk)))
            .collect();
        let all = pool.free_space().offers_with_absent(Purpose::Move);
        let domains: BTreeSet<DomainId> = all.iter().map(|offer| offer.domain).collect();
        let keeps_apart = domains.len() >= self.copies();
        let units = row.map(0).units();
        let fit = pool.free_space().offers(Purpose::Move).into_iter().filter(|offer| {
            is_fit(&offer.slot)
                && !slabs.iter().any(|slab| pool.members().destination(slab.disk) == offer.slot)
                && offer.claimable_units() >= units
                && !(keeps_apart && kept.contains(&offer.domain))
        });
        let best = fit.max_by_key(|offer| {
            let fitness = Reverse(pool.members().ailment_of(offer.slot));
            (fitness, is_fast(pool, offer.slot), offer.claimable_units(), offer.slot)
        });
        Some((from, best?.slot))
    }

    /// Brings rows that lack copies to disks that are here, so many at most; whether any has all of its copies now. Called
    /// without any lock or turn.
    ///
    /// # Errors
    /// [`SpaceError`] when the pool has stopped.
    pub(crate) async fn bring_rows(&self, most: usize) -> Result<bool, SpaceError> {
        let mut has_brought = false;
        for _ in 0..most {
            let lacking = {
                let segments = self.segments.borrow();
                let found = segments.iter().find(|segment| self.can_be_brought(&segment.row));
                found.map(|segment| Rc::clone(&segment.row))
            };
            let Some(row) = lacking else { break };
            // Where the new disk leaves midway, another epoch begins, and with it another try.
            let tried_under = self.shared().pool.epoch().number;
            let brought = self.bring_row(&row).await;
            if let Err(error) = &brought {
                self.shared().pool.log().check_writable()?;
                tracing::warn!(pool = %self.shared().pool.name(), row = row.index, error = %in_one_line(error),
                    "copies of a row of the write cache cannot be brought to another disk now");
            }
            match self.has_all_copies(&row) {
                true => has_brought = true,
                false => self.note_not_brought(&row, tried_under),
            }
        }
        if has_brought {
            self.notify.notify_all();
        }
        Ok(has_brought)
    }

    fn note_not_brought(&self, row: &Row, now: Epoch) {
        let mut not_brought = self.not_brought.borrow_mut();
        if not_brought.0 != now {
            *not_brought = (now, BTreeSet::new());
        }
        not_brought.1.insert(row.index);
    }

    #[pooled]
    async fn bring_row(&self, row: &Rc<Row>) -> Result<(), SpaceError> {
        let (space, shared) = (self.space(), self.shared());
        shared.gate().await?;
        let _exclusive = shared.refill_mutex.take().await;
        while self.lacks_slabs(row) > 0
            && let Some((from, to)) = self.next_place(row)
        {
            if !space.add_slab(row, (from, to), |_| true).await? {
                break;
            }
            tracing::info!(pool = %shared.pool.name(), row = row.index, ?from, ?to, "a copy of a row of the write cache goes to another disk");
        }
        // One that was filled before says nothing of what no copy had then.
        let is_refilled = row.with_slabs(0, |slabs| {
            slabs.iter().any(|slab| slab.stale == Some(Epoch(0)) && slab.present(&shared.pool).is_some())
        });
        let mut result = Resynced::default();
        if let Some(refilled) = space.refill_row(row.index, &mut result).await? {
            shared.trust_all(&[(Rc::clone(space), refilled)], &mut result).await?;
        }
        // What no copy here has may be on the one that is away.
        if is_refilled && result.lost_blocks == 0 {
            self.drop_surplus(row, |slab| slab.present(&shared.pool).is_none()).await?;
        }
        Ok(())
    }

    /// Drops slabs that a row has beyond its copies, among those that may be.
    async fn drop_surplus(&self, row: &Rc<Row>, may_go: impl Fn(&Slab) -> bool) -> Result<(), SpaceError> {
        let pool = &self.shared().pool;
        let slabs = row.with_slabs(0, <[Slab]>::to_vec);
        let mut surplus: Vec<&Slab> = slabs.iter().filter(|slab| may_go(slab)).collect();
        // What is on disks that are to leave first, then what came last.
        let stays =
            |slab: &Slab| pool.disk(slab.disk).is_some_and(|disk| disk.member().state == MemberState::Active);
        surplus.reverse();
        surplus.sort_by_key(|slab| stays(slab));
        for slab in surplus {
            if row.with_slabs(0, <[Slab]>::len) > self.copies() && self.has_all_copies(row) {
                self.space().drop_slab(row, slab.disk).await?;
            }
        }
        Ok(())
    }

    /// Brings a row whose copies have been away for long, and drops what a row has beyond its copies since its disks are back.
    ///
    /// # Errors
    /// [`SpaceError`] when the pool has stopped.
    #[pooled]
    pub(crate) async fn tend_copies(&self) -> Result<(), SpaceError> {
        if self.can_be_brought_any() {
            let since = self.lacks_since.get().unwrap_or(self.now());
            self.lacks_since.set(Some(since));
            if self.now() >= since + AWAY_MAX {
                self.bring_rows(1).await?;
            }
            return Ok(());
        }
        self.lacks_since.set(None);
        let pool = Rc::clone(&self.shared().pool);
        let has_surplus = |row: &Rc<Row>| {
            row.with_slabs(0, |slabs| {
                slabs.len() > self.copies() && slabs.iter().all(|slab| slab.readable(&pool).is_some())
            })
        };
        let found = self.segments.borrow().iter().map(|segment| Rc::clone(&segment.row)).find(has_surplus);
        let Some(row) = found else { return Ok(()) };
        let _exclusive = self.shared().refill_mutex.take().await;
        if has_surplus(&row) {
            self.drop_surplus(&row, |_| true).await?;
        }
        Ok(())
    }
}
