//! Shadow rows of which a row has more than they have are given back: their stripes go back to the row, and nothing is left of them
//! (docs/design/0026, *The end*).
//!
//! 1. Each stripe that the shadow row has is flipped back, verified.
//! 2. A checkpoint: a flush covers that, and the shadow rows' tables say that they have nothing.
//! 3. Under the lock of the whole row, if the shadow row still has nothing: one change of the map.
//!
//! What the log says of the shadow row names no row any more behind that; its *done* still end versions of the row.
//!
//! Left to others: shadow rows that have more than their rows (`promote`).

use std::rc::Rc;

use dolmen_buffer::Buffer;
use dolmen_future_pool::pooled;
use dolmen_units::BLOCK_BYTES;
use smallvec::SmallVec;

use crate::cache::destage::stripes;
use crate::cache::segments::CacheIndex;
use crate::cache::stripe_read::StripeReads;
use crate::format::error::SpaceError;
use crate::format::record::BlockState;
use crate::layout::BLOCK;
use crate::layout::shape::PARITY_BYTES_MAX;
use crate::relocation::destage_stripes::Destage;
use crate::relocation::exchange::{Exchange, Exchanges, HeldPages};
use crate::relocation::obstacles::EndCause;
use crate::relocation::shadow_stripes::ShadowStripes;
use crate::relocation::slot_switch::{Slot, StripeSlots};
use crate::resolution::decided_rows::DecidedRows;
use crate::resources::hedge_delay::HedgeDelay;
use crate::resources::locks::Range;
use crate::row_io::flusher::Flusher;
use crate::row_io::parts::{Part, Parts};
use crate::table::page::place_in_page;
use crate::table::pages::TableStore;
use crate::table::row::Row;
use crate::table::space::SpaceRows;

/// Shadow rows that are dropped: their stripes go back.
#[derive(Clone, Copy)]
pub(crate) struct ShadowDrop<'a> {
    space: &'a SpaceRows,
}

impl<'a> ShadowDrop<'a> {
    /// Returns the service for a space.
    pub(crate) fn of(space: &'a SpaceRows) -> Self {
        Self { space }
    }
}

impl ShadowDrop<'_> {
    /// Brings the stripes of a shadow row back to its row, if those are fewer than the shadow row lacks, and nothing stands in the
    /// way: the two, if a checkpoint is all that they need then.
    ///
    /// # Errors
    /// [`SpaceError`]: what stands in the way. Each stripe is in the row or in the shadow row.
    #[pooled]
    pub(crate) async fn bring_back(
        self,
        index: u64,
        cause: EndCause,
    ) -> Result<Option<(Rc<Row>, Rc<Row>)>, SpaceError> {
        let row = DecidedRows::of(self.space).row(index).await?;
        let Some((row, shadow)) = row.and_then(|row| Some((Rc::clone(&row), row.shadow()?))) else {
            return Ok(None);
        };
        if !self.space.shadows.alternates(&row)
            || !ShadowStripes::of(self.space).may_replace(&row, &shadow, cause)
        {
            return Ok(None);
        }
        let lines = ShadowStripes::of(self.space).stripes_of_shadow(&shadow, &mut HeldPages::new()).await?;
        if lines.len()
            > ShadowStripes::of(self.space).lacking(&row, &shadow, &mut HeldPages::new()).await?.len()
        {
            return Ok(None);
        }
        if !lines.is_empty() {
            if let Some(cache) = self.space.cache_of(&row) {
                Destage::of(&cache).empty_row(&row).await?;
            }
            // Slots that stripes have just left are free behind that.
            Flusher::of(&self.space.shared).flush().await?;
        }
        // Where memory has no frames for longer runs, it has them for single stripes.
        let is_short = self.space.shared.stripes.all() < row.shape.columns() as u64;
        let longest = if is_short { 1 } else { PARITY_BYTES_MAX / BLOCK };
        for run in runs_of(&row, &lines, longest) {
            let is_hindered = self.space.shadows.is_ending.get()
                || !ShadowStripes::of(self.space).may_replace(&row, &shadow, cause);
            if is_hindered || !self.switch_back(&row, &shadow, run).await? {
                return Ok(None);
            }
        }
        Ok(Some((row, shadow)))
    }

    /// Brings stripes from a shadow row to its row. Returns whether the row has them then.
    #[pooled]
    async fn switch_back(self, row: &Rc<Row>, shadow: &Rc<Row>, lines: Range) -> Result<bool, SpaceError> {
        let columns = row.shape.columns();
        let blocks = u32::try_from(2 * columns).unwrap_or(u32::MAX).saturating_mul(lines.count);
        // As others take them: room in the log in front of frames for stripes, and behind those for stripes.
        let (is_single, columns) = (lines.count == 1, columns as u64);
        let _of_stripe = if is_single { None } else { Some(self.space.shared.stripes.take(columns).await) };
        let _log_room = Flusher::of(&self.space.shared).room_for(blocks).await?;
        let _stripe_lock = if is_single { Some(self.space.shared.lines.take(columns).await) } else { None };
        let _guard = row.locks.lock_all(&stripes(row, &lines.blocks().collect())).await;
        let is_unfinished =
            || self.space.cache_of(row).is_some_and(|cache| CacheIndex::of(&cache).has_unfinished_pair(row));
        let is_shadow = row.shadow().is_some_and(|other| Rc::ptr_eq(&other, shadow));
        if row.freed.get() || !is_shadow || self.space.shared.is_deferred(row) || is_unfinished() {
            return Ok(false);
        }
        // What is cached goes in place first: its home must not change before.
        let of_stripes = stripes(row, &lines.blocks().collect());
        if of_stripes.into_iter().any(|range| row.mappings.has_any_of(range)) {
            return Ok(false);
        }
        // Somebody may have written them since.
        if StripeSlots::of(self.space).are_shadows(shadow, lines.blocks()).await? == Some(false) {
            return Ok(true);
        }
        let Some(parts) = self.parts_of_stripes(shadow, lines).await? else { return Ok(false) };
        let slot = StripeSlots::of(self.space).slot_of(row, lines.blocks(), &parts).await?;
        let is_back = matches!(&slot, Slot::Switch { source, .. } if Rc::ptr_eq(source, shadow));
        if !is_back || !StripeSlots::of(self.space).write_to_slot(row, slot, lines, parts).await? {
            return Ok(false);
        }
        self.space.shared.count(|counters| counters.shadow_stripes_copied += u64::from(lines.count));
        Ok(true)
    }

    /// Stripes with parity as they are to be written, if each of their blocks holds something that can be read. The caller holds
    /// their lock.
    #[pooled]
    async fn parts_of_stripes(self, row: &Rc<Row>, lines: Range) -> Result<Option<Parts>, SpaceError> {
        let (shape, memory) = (&row.shape, &self.space.shared.pool.seams().metadata);
        let length = lines.count as usize * BLOCK;
        let mut data: SmallVec<[Option<Buffer>; 12]> = SmallVec::new();
        for column in 0..shape.data_columns() {
            if lines.first >= shape.column_blocks(column) {
                data.push(None);
                continue;
            }
            let mut buffer = memory.take(length).await;
            for (stripe, into) in lines.blocks().zip(buffer.chunks_exact_mut(BLOCK)) {
                let (index, entry) = place_in_page(stripe);
                let state = TableStore::of(&self.space.shared).page(row, column, index).await?.state(entry);
                if !matches!(state, BlockState::Valid(_)) {
                    return Ok(None);
                }
                match StripeReads::of(self.space)
                    .read_main(row, (column, stripe), HedgeDelay::Long, into)
                    .await
                {
                    Err(SpaceError::Unreadable { why, .. }) if why.is_final() => return Ok(None),
                    read => read?,
                }
            }
            data.push(Some(buffer));
        }
        let mut parity: SmallVec<[Buffer; 2]> = SmallVec::new();
        for _ in shape.computed_columns() {
            parity.push(memory.take(length).await);
        }
        let blocks: SmallVec<[Option<&[u8]>; 12]> = data.iter().map(Option::as_deref).collect();
        let mut into: SmallVec<[Option<&mut [u8]>; 2]> =
            parity.iter_mut().map(|buffer| Some(&mut **buffer)).collect();
        shape.encode(&blocks, &mut into);
        drop((blocks, into));
        let with_data = data.into_iter().enumerate().filter_map(|(column, buffer)| Some((column, buffer?)));
        let all = with_data.chain((shape.data_columns()..).zip(parity));
        Ok(Some(all.map(|(column, buffer)| Part::new(column, lines.first, buffer.freeze())).collect()))
    }

    /// Drops a shadow row that has no stripe, if its tables say so on its disks and nothing has come between; returns whether it did.
    #[pooled]
    pub(crate) async fn remove_empty_shadow(
        self,
        row: &Rc<Row>,
        shadow: &Rc<Row>,
        cause: EndCause,
    ) -> Result<bool, SpaceError> {
        let _guard = row.locks.lock(Range { first: 0, count: row.shape.row_blocks() }).await;
        let mut held = HeldPages::new();
        ShadowStripes::of(self.space).stripes_of_shadow(shadow, &mut held).await?;
        let exchange = Exchange::Drop { shadow, cause };
        Ok(Exchanges::of(self.space).commit_exchange(&[row], &exchange).await?.is_done())
    }
}

/// Stripes as runs that each lie in one stripe and are no longer than this.
fn runs_of(row: &Row, lines: &[u32], longest: usize) -> Vec<Range> {
    let interleave = u32::try_from(row.shape.interleave().0 / BLOCK_BYTES).unwrap_or(u32::MAX);
    let longest = u32::try_from(longest).unwrap_or(u32::MAX);
    let mut runs: Vec<Range> = Vec::new();
    for stripe in lines {
        let goes_on = |run: &&mut Range| {
            run.first + run.count == *stripe && stripe % interleave != 0 && run.count < longest
        };
        match runs.last_mut().filter(goes_on) {
            Some(run) => run.count += 1,
            None => runs.push(Range { first: *stripe, count: 1 }),
        }
    }
    runs
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::cast_possible_truncation)]
mod tests {
    use crate::relocation::promote::Promotion;
    use crate::resolution::decided_rows::DecidedRows;
    use dolmen_pool::ExcludeReason;
    use dolmen_units::Bytes;

    use crate::harness::{Bench, ROW};
    use crate::relocation::obstacles::EndCause;

    /// Scenario: a stripe of a row has gone to its shadow row, and a disk leaves that only the row is on. The stripe does not come back:
    /// the shadow row, which has all its disks, gets the others and is promoted.
    #[test]
    fn a_shadow_is_not_dropped_while_its_row_lacks_a_disk() {
        let bench = Bench::new(57, 6, Bytes::mib(128));
        bench
            .run(async move |lab| {
                let spaces = lab.create().await?;
                let space = lab.parity_space(&spaces, (2, 1)).await?;
                lab.stream(&space, 0..ROW.0, 1).await?;
                spaces.flush().await?;
                spaces.caches().destage().await?;
                spaces.pool().checkpoint().await?;
                lab.write(&space, 0, 32 << 10, 2).await?;
                spaces.flush().await?;
                let row = DecidedRows::of(&space).row(0).await?.ok_or("there is a row")?;
                let shadow = row.shadow().ok_or("there is a shadow row")?;
                let of_shadow = shadow.record();
                let is_shared = |slot| of_shadow.columns.iter().flatten().any(|slab| slab.disk == slot);
                let record = row.record();
                let away =
                    record.columns.iter().flatten().map(|slab| slab.disk).find(|slot| !is_shared(*slot));
                let away = away.ok_or("they lie on the same disks")?;
                spaces.pool().exclude(away, ExcludeReason::Asked).await?;
                assert!(
                    Promotion::of(&space).promote(&[0], EndCause::Unused).await?,
                    "the shadow row lacks nothing"
                );
                let counters = spaces.counters();
                let ended = (counters.shadows_dropped, counters.shadows_promoted);
                assert_eq!(ended, (0, 1), "the shadow row was dropped, and its row lacks a column");
                lab.expect(&space, 0, 32 << 10, 2).await?;
                lab.expect(&space, 32 << 10, (ROW.0 as usize) - (32 << 10), 1).await?;
                drop((space, row, shadow));
                lab.check_and_close(spaces).await
            })
            .unwrap();
    }
}
