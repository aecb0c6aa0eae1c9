//! Heirs of which a row has more than they have are given back: their lines go back to the row, and nothing is left of them
//! (docs/design/0026, *The end*).
//!
//! 1. Each line that the heir has is flipped back, verified.
//! 2. A checkpoint: a flush covers that, and the heirs' tables say that they have nothing.
//! 3. Under the lock of the whole row, if the heir still has nothing: one change of the map.
//!
//! What the log says of the heir is of a row that is no more behind that.
//!
//! Left to others: heirs that have more than their rows (`take_over`).

use std::rc::Rc;

use dolmen_buffer::Buffer;
use dolmen_future_pool::pooled;
use dolmen_planted::mutation;
use dolmen_pool::Purpose;
use dolmen_units::BLOCK_BYTES;
use smallvec::SmallVec;

use crate::destage::stripes;
use crate::error::SpaceError;
use crate::flips::Slot;
use crate::haste::Patience;
use crate::layout::BLOCK;
use crate::line::encode;
use crate::locks::Range;
use crate::record::BlockState;
use crate::row::Row;
use crate::shared::place_in_page;
use crate::space::Space;
use crate::stripe::PARITY_BYTES_MAX;
use crate::write::{Part, Parts};

impl Space {
    /// Brings the lines of an heir back to its row, if those are fewer than the heir lacks, and nothing stands in the way: the two, if
    /// a checkpoint is all that they need then.
    ///
    /// # Errors
    /// [`SpaceError`]: what stands in the way. Each line is in the row or in the heir.
    #[pooled]
    pub(crate) async fn bring_back(&self, index: u64) -> Result<Option<(Rc<Row>, Rc<Row>)>, SpaceError> {
        let row = self.row(index).await?;
        let Some((row, heir)) = row.and_then(|row| Some((Rc::clone(&row), row.heir()?))) else {
            return Ok(None);
        };
        if !self.heirs.goes_to_and_fro(&row) {
            return Ok(None);
        }
        let lines = self.lines_of_heir(&heir).await?;
        if lines.len() > self.lacking(&row, &heir).await?.len() {
            return Ok(None);
        }
        if !lines.is_empty() {
            if let Some(cache) = self.cache_of(&row) {
                cache.empty_row(&row).await?;
            }
            // Slots that lines have just left are free behind that.
            self.shared.flush().await?;
        }
        // Where memory has no frames for longer runs, it has them for single lines.
        let is_short = self.shared.stripes.all() < row.shape.columns() as u64;
        let longest = if is_short { 1 } else { PARITY_BYTES_MAX / BLOCK };
        for run in runs_of(&row, &lines, longest) {
            if self.heirs.is_ending.get() || !self.flip_back(&row, &heir, run).await? {
                return Ok(None);
            }
        }
        Ok(Some((row, heir)))
    }

    /// Lines that an heir has.
    async fn lines_of_heir(&self, heir: &Rc<Row>) -> Result<Vec<u32>, SpaceError> {
        let mut lines = Vec::new();
        for line in 0..heir.shape.column_blocks(heir.shape.data_columns()) {
            if self.parity_of_heir(heir, line).await? != BlockState::Never {
                lines.push(line);
            }
        }
        Ok(lines)
    }

    /// Brings lines of a stripe from an heir to its row; whether the row has them then.
    #[pooled]
    async fn flip_back(&self, row: &Rc<Row>, heir: &Rc<Row>, lines: Range) -> Result<bool, SpaceError> {
        let columns = row.shape.columns();
        let blocks = u32::try_from(2 * columns).unwrap_or(u32::MAX).saturating_mul(lines.count);
        // As others take them: room in the log in front of frames for lines, and behind those for stripes.
        let (is_single, columns) = (lines.count == 1, columns as u64);
        let _of_stripe = if is_single { None } else { Some(self.shared.stripes.take(columns).await) };
        let _log_room = self.shared.room_for(blocks).await?;
        let _of_line = if is_single { Some(self.shared.lines.take(columns).await) } else { None };
        let _guard = row.locks.lock_all(&stripes(row, &lines.blocks().collect())).await;
        let is_unfinished = || self.cache_of(row).is_some_and(|cache| cache.has_unfinished_beside(row));
        let is_heir = row.heir().is_some_and(|other| Rc::ptr_eq(&other, heir));
        if row.gone.get() || !is_heir || self.shared.is_unresolved(row) || is_unfinished() {
            return Ok(false);
        }
        // What is cached goes in place first: its home must not change before.
        let of_lines = stripes(row, &lines.blocks().collect());
        if of_lines.into_iter().any(|range| row.mappings.has_any_of(range)) {
            return Ok(false);
        }
        // Somebody may have written them since.
        if self.are_heirs(heir, lines.blocks()).await? == Some(false) {
            return Ok(true);
        }
        let Some(parts) = self.parts_of_lines(heir, lines).await? else { return Ok(false) };
        let slot = self.slot_of(row, lines.blocks(), &parts).await?;
        let is_back = matches!(&slot, Slot::Flip { source, .. } if Rc::ptr_eq(source, heir));
        if !is_back || !self.write_to_slot(row, slot, lines, parts).await? {
            return Ok(false);
        }
        self.shared.count(|counters| counters.heir_lines_copied += u64::from(lines.count));
        Ok(true)
    }

    /// Lines with parity as they are to be written, if each of their blocks holds something that can be read. The caller holds their
    /// lock.
    #[pooled]
    async fn parts_of_lines(&self, row: &Rc<Row>, lines: Range) -> Result<Option<Parts>, SpaceError> {
        let (shape, memory) = (&row.shape, &self.shared.pool.seams().metadata);
        let length = lines.count as usize * BLOCK;
        let mut data: SmallVec<[Option<Buffer>; 12]> = SmallVec::new();
        for column in 0..shape.data_columns() {
            if lines.first >= shape.column_blocks(column) {
                data.push(None);
                continue;
            }
            let mut buffer = memory.take(length).await;
            for (line, into) in lines.blocks().zip(buffer.chunks_exact_mut(BLOCK)) {
                let (index, entry) = place_in_page(line);
                let state = self.shared.page(row, column, index).await?.state(entry);
                if !matches!(state, BlockState::Valid(_)) {
                    return Ok(None);
                }
                match self.read_in_place(row, (column, line), Patience::Long, into).await {
                    Err(SpaceError::Unreadable { why, .. }) if why.is_final() => return Ok(None),
                    read => read?,
                }
            }
            data.push(Some(buffer));
        }
        let mut parity: SmallVec<[Buffer; 2]> = SmallVec::new();
        for _ in 0..shape.parity_columns() {
            parity.push(memory.take(length).await);
        }
        let blocks: SmallVec<[Option<&[u8]>; 12]> = data.iter().map(Option::as_deref).collect();
        let mut into: SmallVec<[Option<&mut [u8]>; 2]> =
            parity.iter_mut().map(|buffer| Some(&mut **buffer)).collect();
        encode(shape, &blocks, &mut into);
        drop((blocks, into));
        let with_data = data.into_iter().enumerate().filter_map(|(column, buffer)| Some((column, buffer?)));
        let all = with_data.chain((shape.data_columns()..).zip(parity));
        Ok(Some(all.map(|(column, buffer)| Part::new(column, lines.first, buffer.freeze())).collect()))
    }

    /// Strikes an heir that has nothing from the map and gives its grains back, if its tables say so on its disks and that still holds;
    /// whether it did.
    #[pooled]
    pub(crate) async fn strike_empty_heir(&self, row: &Rc<Row>, heir: &Rc<Row>) -> Result<bool, SpaceError> {
        let _guard = row.locks.lock(Range { first: 0, count: row.shape.row_blocks() }).await;
        let is_heir = row.heir().is_some_and(|other| Rc::ptr_eq(&other, heir));
        let cache = self.cache_of(row);
        let is_unfinished = || cache.as_ref().is_some_and(|cache| cache.has_unfinished_beside(row));
        if row.gone.get() || !is_heir || self.shared.is_unresolved(row) || is_unfinished() {
            return Ok(false);
        }
        let is_unflushed = || {
            !self.shared.unsettled_of(row).is_empty()
                || !self.shared.unsettled_of(heir).is_empty()
                || self.shared.is_unflushed_away(row)
        };
        if !self.lines_of_heir(heir).await?.is_empty() {
            return Ok(false);
        }
        // A write-back that is under way may have taken pages of it.
        let _tables = self.shared.table_turn.take().await;
        // Whoever finds its slabs later, and no map, is not to take what it had for its row's.
        let is_untabled = || heir.dirty.get() || heir.pages().iter().any(|(_, _, page)| !page.is_settled());
        if (is_unflushed() || is_untabled()) && !mutation!(GivenBackBeforeFlush) {
            return Ok(false);
        }
        let mut change = self.shared.pool.change(Purpose::Release).await;
        if row.gone.get() || heir.gone.get() {
            return Ok(false);
        }
        self.release_heir(&mut change, heir).await?;
        heir.gone.set(true);
        if let Err(error) = change.commit().await {
            heir.gone.set(false);
            return Err(error.into());
        }
        self.shared.forget_pages(heir);
        self.forget_heir(row);
        self.shared.count(|counters| counters.heirs_given_back += 1);
        tracing::debug!(space = %self.name(), row = row.index, "an heir was given back");
        Ok(true)
    }
}

/// Lines as runs that each lie in one stripe and are no longer than this.
fn runs_of(row: &Row, lines: &[u32], longest: usize) -> Vec<Range> {
    let interleave = u32::try_from(row.shape.interleave().0 / BLOCK_BYTES).unwrap_or(u32::MAX);
    let longest = u32::try_from(longest).unwrap_or(u32::MAX);
    let mut runs: Vec<Range> = Vec::new();
    for line in lines {
        let goes_on = |run: &&mut Range| {
            run.first + run.count == *line && line % interleave != 0 && run.count < longest
        };
        match runs.last_mut().filter(goes_on) {
            Some(run) => run.count += 1,
            None => runs.push(Range { first: *line, count: 1 }),
        }
    }
    runs
}
