//! Shadow rows are promoted (docs/design/0007, *Promotion*), or give their stripes back where those are fewer (`drop_shadow`).
//!
//! 1. What is cached of the row is put in place; what the shadow row lacks is copied, verified, stripe by stripe.
//! 2. A flush covers that, and the shadow row's tables are written: a checkpoint does both, for all shadow rows that are due.
//!    Nobody waits for it but a stream for whose next row there may be no shadow row more.
//! 3. Under the lock of the whole row, if all of it still holds: one change of the map, for each row by itself.
//!
//! What came between is found in the third step, and it begins again.
//!
//! Left to others: which rows have shadow rows, and when they are wanted (`shadow_rows`).

use std::collections::BTreeSet;
use std::rc::{Rc, Weak};

use dolmen_block_io::Clock;
use dolmen_buffer::Buffer;
use dolmen_causes::in_one_line;
use dolmen_checksum::crc32c;
use dolmen_future_pool::pooled;
use dolmen_mutation::mutation;
use dolmen_pool::PoolState;
use dolmen_units::Lsn;
use smallvec::SmallVec;

use crate::cache::destage::{DestageWrites, Prepared, stripes};
use crate::cache::segments::CacheIndex;
use crate::cache::stripe_read::StripeReads;
use crate::format::error::SpaceError;
use crate::format::record::{BlockState, Place, RedoBlock};
use crate::layout::{BLOCK, RowShape};
use crate::relocation::destage_stripes::Destage;
use crate::relocation::drop_shadow::ShadowDrop;
use crate::relocation::exchange::{Exchange, Exchanges, HeldPages};
use crate::relocation::obstacles::EndCause;
use crate::relocation::shadow_stripes::ShadowStripes;
use crate::relocation::shadow_watch::FREED_TOGETHER;
use crate::relocation::slot_switch::StripeSlots;
use crate::resolution::decided_rows::DecidedRows;
use crate::resources::hedge_delay::HedgeDelay;
use crate::resources::locks::Range;
use crate::row_io::flusher::Flusher;
use crate::row_io::stripe_places::StripePlaces;
use crate::table::pages::{StripeStates, TableStore};
use crate::table::redo::Redo;
use crate::table::row::Row;
use crate::table::space::{Cache, SpaceList, SpaceRows};

/// Data of a stripe, by column; `None` where there is none.
type StripeData = SmallVec<[Option<Buffer>; 12]>;

/// Stripes that are copied to a shadow row between two flushes, at most.
const STRIPES_TOGETHER: u64 = 64;
/// How often it is begun again, because something came between.
const TRIES: usize = 3;

/// How a shadow row ends, once a checkpoint has come.
enum Ending {
    /// It is promoted.
    Promote { row: Rc<Row>, shadow: Rc<Row> },
    /// It has nothing, and gives its allocation units back.
    Dropped { row: Rc<Row>, shadow: Rc<Row> },
}

/// Promotion of shadow rows.
#[derive(Clone, Copy)]
pub(crate) struct Promotion<'a> {
    space: &'a SpaceRows,
}

impl<'a> Promotion<'a> {
    /// Returns the service for a space.
    pub(crate) fn of(space: &'a SpaceRows) -> Self {
        Self { space }
    }
}

impl Promotion<'_> {
    /// Promotes the shadow rows of rows or drops their stripes, where that can be done now; returns whether any did. One
    /// checkpoint covers all of them.
    ///
    /// # Errors
    /// [`SpaceError`]: what stands in the way. Rows and shadow rows are as they were.
    #[pooled]
    pub(crate) async fn promote(self, rows: &[u64], cause: EndCause) -> Result<bool, SpaceError> {
        // Two at once would bring stripes of one row alternately.
        let _exclusive = self.space.shadows.ending_mutex.take().await;
        let (mut left, mut has_any) = (rows.to_vec(), false);
        for _ in 0..TRIES {
            let mut prepared = Vec::new();
            for index in std::mem::take(&mut left) {
                let back = ShadowDrop::of(self.space).bring_back(index, cause).await;
                if let Some((row, shadow)) = self.unless_hindered(index, back) {
                    prepared.push(Ending::Dropped { row, shadow });
                    continue;
                }
                let of_row = self.prepare(index, cause).await;
                let of_row = self.unless_hindered(index, of_row);
                prepared.extend(of_row.map(|(row, shadow)| Ending::Promote { row, shadow }));
            }
            if prepared.is_empty() {
                break;
            }
            let all_go_back = prepared.iter().all(|ending| matches!(ending, Ending::Dropped { .. }));
            let is_early = all_go_back && mutation!(ShadowDroppedBeforeFlush);
            if mutation!(ShadowBeforeTables) {
                Flusher::of(&self.space.shared).force_flush().await?;
            } else if !mutation!(ShadowBeforeFlush) && !is_early {
                self.space.shared.pool.checkpoint().await?;
            }
            for ending in prepared {
                if self.space.shadows.is_ending.get() {
                    return Ok(has_any);
                }
                let (index, done) = match &ending {
                    Ending::Promote { row, shadow } => {
                        (row.index, self.change_places(row, shadow, cause).await)
                    }
                    Ending::Dropped { row, shadow } => {
                        (row.index, ShadowDrop::of(self.space).remove_empty_shadow(row, shadow, cause).await)
                    }
                };
                match self.unless_hindered(index, done.map(Some)) {
                    Some(true) => has_any = true,
                    Some(false) => left.push(index),
                    None => {}
                }
            }
        }
        Ok(has_any)
    }

    /// What came of a step for the shadow row of a row, if nothing stands in the way: that keeps no others back.
    fn unless_hindered<T>(self, row: u64, outcome: Result<Option<T>, SpaceError>) -> Option<T> {
        outcome.unwrap_or_else(|error| {
            tracing::debug!(space = %self.space.name(), row, error = %in_one_line(&error), "a shadow row cannot take over now");
            None
        })
    }

    /// Puts what is cached of a row in place, and copies what its shadow row lacks: the two, if a checkpoint is all that they need
    /// then.
    #[pooled]
    async fn prepare(self, index: u64, cause: EndCause) -> Result<Option<(Rc<Row>, Rc<Row>)>, SpaceError> {
        let row = DecidedRows::of(self.space).row(index).await?;
        let Some((row, shadow)) = row.and_then(|row| Some((Rc::clone(&row), row.shadow()?))) else {
            return Ok(None);
        };
        let Some(cache) = self.space.cache_of(&row) else { return Ok(None) };
        if !ShadowStripes::of(self.space).may_replace(&shadow, &row, cause) {
            return Ok(None);
        }
        if !mutation!(ShadowBeforeCached) {
            Destage::of(&cache).empty_row(&row).await?;
            if !row.mappings.is_empty() {
                // It waits for disks, or somebody is at it: then it is not the time.
                return Ok(None);
            }
        }
        Ok(self.copy_to_shadow(&cache, &row, &shadow).await?.then_some((row, shadow)))
    }

    /// Copies to a shadow row what it lacks; whether it has all of it then.
    #[pooled]
    async fn copy_to_shadow(
        self,
        cache: &Rc<Cache>,
        row: &Rc<Row>,
        shadow: &Rc<Row>,
    ) -> Result<bool, SpaceError> {
        let lacking = ShadowStripes::of(self.space).lacking(row, shadow, &mut HeldPages::new()).await?;
        if !lacking.is_empty() && self.space.shadows.alternates(row) {
            // Slots that stripes have just left are free behind that.
            Flusher::of(&self.space.shared).flush().await?;
        }
        let columns = row.shape.columns() as u64;
        let together = (self.space.shared.lines.all() / (2 * columns)).clamp(1, STRIPES_TOGETHER);
        for some in lacking.chunks(usize::try_from(together).unwrap_or(1)) {
            if self.space.shadows.is_ending.get() {
                return Ok(false);
            }
            let blocks = u32::try_from(some.len() * row.shape.columns()).unwrap_or(u32::MAX);
            let _log_room = Flusher::of(&self.space.shared).room_for(blocks).await?;
            let _exclusive = cache.mutex.take().await;
            let _frames = self.space.shared.lines.take(2 * columns * some.len() as u64).await;
            let of_row: BTreeSet<u32> = some.iter().copied().collect();
            let _guard = row.locks.lock_all(&stripes(row, &of_row)).await;
            if row.freed.get()
                || self.space.shared.is_deferred(row)
                || CacheIndex::of(cache).has_unfinished_pair(row)
            {
                return Ok(false);
            }
            let mut prepared = Vec::new();
            for stripe in some {
                // A stream may have brought it since.
                if StripePlaces::of(self.space).parity_of_shadow(shadow, *stripe).await? == BlockState::Never
                {
                    if !StripeSlots::of(self.space).is_slot_free(shadow, *stripe).await? {
                        return Ok(false);
                    }
                    prepared.push(self.copied_stripe(row, shadow, *stripe).await?);
                }
            }
            let (done, left) = DestageWrites::of(cache).put_out(&prepared).await?;
            self.space.shared.count(|counters| counters.shadow_stripes_copied += done as u64);
            if !left.is_empty() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// A stripe of a row as its shadow row will have it. The caller holds its lock.
    #[pooled]
    async fn copied_stripe(
        self,
        row: &Rc<Row>,
        shadow: &Rc<Row>,
        stripe: u32,
    ) -> Result<Prepared, SpaceError> {
        let shape = &row.shape;
        let (states, data) = self.read_stripe(row, stripe).await?;
        let is_lost = states.contains(&BlockState::Damaged);
        let parity = self.parity_of(shape, &data).await;
        let block = |column, state| RedoBlock { column, state, place: Place::default(), since: None };
        let of_data = (0..).zip(states).map(|(column, state)| block(column, state));
        let with_data: Vec<(RedoBlock, Option<Buffer>)> =
            of_data.zip(data).filter(|(block, _)| stripe < shape.column_blocks(block.column)).collect();
        let with_parity = (shape.data_columns()..).zip(parity).map(|(column, buffer)| match is_lost {
            // Nobody knows what parity should be of.
            true => (block(column, BlockState::Damaged), None),
            false => (block(column, BlockState::Valid(crc32c(&buffer))), Some(buffer)),
        });
        let (blocks, contents): (Vec<RedoBlock>, Vec<Option<Buffer>>) =
            with_data.into_iter().chain(with_parity).unzip();
        let row = Rc::clone(shadow);
        let redo = Redo { row, stripe, blocks, ends: Vec::new(), relogged: Lsn::default(), owns_all: false };
        let contents = contents.into_iter().map(|content| content.map(Buffer::freeze)).collect();
        Ok(Prepared { redo, contents })
    }

    /// The data of a stripe in place, by column, and what its blocks are.
    #[pooled]
    async fn read_stripe(self, row: &Rc<Row>, stripe: u32) -> Result<(StripeStates, StripeData), SpaceError> {
        let mut states = TableStore::of(&self.space.shared).stripe_states(row, stripe).await?;
        states.truncate(row.shape.data_columns());
        let mut data = StripeData::new();
        for (column, state) in states.iter_mut().enumerate() {
            let BlockState::Valid(_) = state else {
                data.push(None);
                continue;
            };
            let mut buffer = self.space.shared.pool.seams().metadata.take(BLOCK).await;
            match StripeReads::of(self.space)
                .read_main(row, (column, stripe), HedgeDelay::Long, &mut buffer)
                .await
            {
                Ok(()) => data.push(Some(buffer)),
                // What cannot be read is lost there as well: nobody makes a checksum of unverified data.
                Err(SpaceError::Unreadable { why, .. }) if why.is_final() => {
                    *state = BlockState::Damaged;
                    data.push(None);
                }
                Err(error) => return Err(error),
            }
        }
        Ok((states, data))
    }

    /// Parity of the data of a stripe.
    async fn parity_of(self, shape: &RowShape, data: &StripeData) -> SmallVec<[Buffer; 2]> {
        let mut parity: SmallVec<[Buffer; 2]> = SmallVec::new();
        for _ in shape.computed_columns() {
            parity.push(self.space.shared.pool.seams().metadata.take(BLOCK).await);
        }
        let bytes: SmallVec<[Option<&[u8]>; 12]> = data.iter().map(Option::as_deref).collect();
        let mut into: SmallVec<[Option<&mut [u8]>; 2]> =
            parity.iter_mut().map(|buffer| Some(&mut **buffer)).collect();
        shape.encode(&bytes, &mut into);
        drop(into);
        parity
    }

    /// Promotes the shadow row, if nothing has come between; returns whether it did.
    #[pooled]
    async fn change_places(
        self,
        row: &Rc<Row>,
        shadow: &Rc<Row>,
        cause: EndCause,
    ) -> Result<bool, SpaceError> {
        let _guard = row.locks.lock(Range { first: 0, count: row.shape.row_blocks() }).await;
        let mut held = HeldPages::new();
        ShadowStripes::of(self.space).lacking(row, shadow, &mut held).await?;
        let exchange = Exchange::Promotion { shadow, cause };
        Ok(Exchanges::of(self.space).commit_exchange(&[row], &exchange).await?.is_done())
    }
}

/// How often some shadow rows have to be given up until none of those of now is left, at most.
pub(crate) fn rounds_to_free_shadows(list: &SpaceList) -> usize {
    let spaces = list.spaces.borrow().upgrade();
    let counts = spaces.map(|spaces| spaces.borrow().values().map(|space| space.shadows.count()).max());
    counts.flatten().unwrap_or(0) + 1
}

/// Promotes shadow rows of all spaces, or drops their stripes, to free room; returns whether any did.
#[pooled]
pub(crate) async fn promote_or_drop_shadows(list: &SpaceList, clock: &dyn Clock) -> bool {
    let spaces = list.spaces.borrow().upgrade();
    let spaces: Vec<Rc<SpaceRows>> =
        spaces.map(|spaces| spaces.borrow().values().cloned().collect()).unwrap_or_default();
    let mut has_freed = false;
    for space in spaces {
        space.shadows.note_lack_of_room(clock.now());
        // Some at a time: each may have a row to copy. Where something stands in the way of all of them, the next.
        for some in space.shadows.idlest(usize::MAX).chunks(FREED_TOGETHER) {
            // Whoever wanted room hears that there is none.
            if Promotion::of(&space).promote(some, EndCause::LackOfRoom).await.unwrap_or(false) {
                has_freed = true;
                break;
            }
        }
    }
    has_freed
}

pub(crate) async fn promote_all(space: Weak<SpaceRows>) {
    while let Some(space) = space.upgrade() {
        let next: Vec<u64> = space.shadows.wanted.borrow().iter().copied().collect();
        let goes_on = space.shared.pool.state() == PoolState::Writable && !space.shadows.is_ending.get();
        if next.is_empty() || !goes_on {
            space.shadows.is_running.set(false);
            space.shadows.wanted.borrow_mut().clear();
            space.shadows.notify.notify_all();
            return;
        }
        if let Err(error) = Promotion::of(&space).promote(&next, EndCause::Unused).await {
            tracing::debug!(space = %space.name(), error = %in_one_line(&error), "shadow rows cannot take over now");
        }
        // Those that are none any more are not among the others.
        space.shadows.put_off(&next, space.shared.pool.seams().clock.now());
        space.shadows.wanted.borrow_mut().retain(|index| !next.contains(index));
        space.shadows.notify.notify_all();
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::cast_possible_truncation)]
mod tests {
    use std::collections::BTreeSet;

    use dolmen_pool::ExcludeReason;
    use dolmen_units::{Bytes, DiskSlot};

    use super::*;
    use crate::harness::{Bench, ROW};
    use crate::relocation::promote::Promotion;
    use crate::resources::progress::Progress;
    use crate::table::row::Slab;

    fn disks_of(row: &Row) -> BTreeSet<DiskSlot> {
        row.record().columns.iter().flatten().map(|slab| slab.disk).collect()
    }

    /// Scenario: a stream has brought a part of a row to a shadow row, and a disk leaves that only the shadow row is on. The shadow
    /// row is not promoted, and the row tolerates the loss of another disk. It is promoted for room that a claim lacks, or once
    /// the disk is back.
    #[test]
    fn a_promotion_waits_for_a_disk_that_its_shadow_lacks() {
        for for_room in [false, true] {
            let bench = Rc::new(Bench::new(51, 6, Bytes::mib(128)));
            let outside = Rc::clone(&bench);
            bench
                .run(async move |lab| {
                    let spaces = lab.create().await?;
                    let end = ROW.0 / 2;
                    let space = lab.with_shadow(&spaces, end).await?;
                    let row = DecidedRows::of(&space).row(0).await?.ok_or("there is a row")?;
                    let shadow = row.shadow().ok_or("there is a shadow row")?;
                    let away = disks_of(&shadow).difference(&disks_of(&row)).next().copied();
                    let away = away.ok_or("they lie on the same disks")?;
                    let next =
                        disks_of(&shadow).into_iter().find(|slot| *slot != away).ok_or("it has columns")?;
                    spaces.pool().exclude(away, ExcludeReason::Asked).await?;
                    let promoted = Promotion::of(&space).promote(&[0], EndCause::Unused).await?;
                    assert!(!promoted, "the shadow row was promoted and lacks a column");
                    if for_room {
                        assert!(
                            Promotion::of(&space).promote(&[0], EndCause::LackOfRoom).await?,
                            "a claim lacks room"
                        );
                    } else {
                        spaces.pool().exclude(next, ExcludeReason::Asked).await?;
                        lab.expect(&space, end, (ROW.0 - end) as usize, 1).await?;
                        for slot in [away, next] {
                            spaces
                                .members()
                                .rejoin(outside.disks[usize::from(slot.0)].attach(&outside.world))
                                .await?;
                        }
                        spaces.members().resync(&Progress::default()).await?;
                        assert!(
                            Promotion::of(&space).promote(&[0], EndCause::Unused).await?,
                            "all disks are here"
                        );
                    }
                    assert_eq!(spaces.counters().shadows_promoted, 1);
                    lab.expect(&space, 0, end as usize, 2).await?;
                    lab.expect(&space, end, (ROW.0 - end) as usize, 1).await?;
                    drop((space, row, shadow));
                    lab.check_and_close(spaces).await
                })
                .unwrap_or_else(|error| panic!("for room {for_room}: {error}"));
        }
    }

    /// Scenario: a write-back has given all pages of a shadow row to its disks but one, which has failed, and has yet to mark what
    /// is there. The shadow row is promoted in between: the row in its place says that the slab missed them.
    #[test]
    fn a_promotion_while_missed_pages_are_marked_marks_them_itself() {
        let bench = Rc::new(Bench::new(52, 3, Bytes::mib(128)));
        let outside = Rc::clone(&bench);
        bench
            .run(async move |lab| {
                let spaces = lab.create().await?;
                let space = lab.with_shadow(&spaces, ROW.0).await?;
                spaces.pool().checkpoint().await?;
                spaces.pool().exclude(DiskSlot(2), ExcludeReason::Asked).await?;
                assert!(
                    Promotion::of(&space).promote(&[0], EndCause::Unused).await?,
                    "it lacks no more than its row"
                );
                let row = DecidedRows::of(&space).row(0).await?.ok_or("there is a row")?;
                let trusted = |slab: &Slab| slab.disk == DiskSlot(2) && slab.stale.is_none();
                assert_eq!(row.count_columns(trusted), 0, "a slab that missed pages is trusted");
                let stale = spaces.members().stale_rows().await?;
                assert!(stale.contains(&(space.id(), 0)), "{stale:?}");
                spaces.members().rejoin(outside.disks[2].attach(&outside.world)).await?;
                spaces.members().resync(&Progress::default()).await?;
                assert!(spaces.members().stale_rows().await?.is_empty());
                lab.expect(&space, 0, ROW.0 as usize, 2).await?;
                drop((space, row));
                lab.check_and_close(spaces).await
            })
            .unwrap();
    }
}
