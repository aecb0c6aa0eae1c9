//! Heirs take the places of their rows (docs/design/0007, *Taking over*), or give their lines back where those are fewer (`give_back`).
//!
//! 1. What is cached of the row is put in place; what the heir lacks is copied, verified, line by line.
//! 2. A flush covers that, and the heir's tables are written: a checkpoint does both, for all heirs that are due. Nobody waits
//!    for it but a stream for whose next row there may be no heir more.
//! 3. Under the lock of the whole row, if all of it still holds: one change of the map, for each row by itself.
//!
//! What came between is found in the third step, and it begins again.
//!
//! Left to others: which rows have heirs, and when they are wanted (`heirs`).

use std::collections::{BTreeMap, BTreeSet};
use std::rc::{Rc, Weak};

use dolmen_buffer::Buffer;
use dolmen_causes::in_one_line;
use dolmen_checksum::crc32c;
use dolmen_future_pool::pooled;
use dolmen_planted::mutation;
use dolmen_pool::{Change, PoolState, Purpose, keys};
use dolmen_units::Lsn;
use smallvec::SmallVec;

use crate::cache::Cache;
use crate::destage::{Prepared, Redo, stripes};
use crate::error::SpaceError;
use crate::haste::Patience;
use crate::heirs::GIVEN_UP_TOGETHER;
use crate::layout::{BLOCK, Shape};
use crate::line::{LineStates, encode};
use crate::locks::Range;
use crate::record::{BlockState, Place, RedoBlock};
use crate::row::{Row, RowRecord};
use crate::shared::Shared;
use crate::space::Space;

/// Data of a line, by column; `None` where there is none.
type OfLine = SmallVec<[Option<Buffer>; 12]>;

/// Lines that are copied to an heir between two flushes, at most.
const LINES_TOGETHER: u64 = 64;
/// How often it is begun again, because something came between.
const TRIES: usize = 3;

/// How an heir ends, once a checkpoint has come.
enum Ending {
    /// It takes its row's place.
    TakesOver { cache: Rc<Cache>, row: Rc<Row>, heir: Rc<Row> },
    /// It has nothing, and gives its grains back.
    GivenBack { row: Rc<Row>, heir: Rc<Row> },
}

impl Space {
    /// Has the heirs of rows take their places, behind those who asked for it.
    pub(crate) fn take_over_soon(&self, rows: &[u64]) {
        if self.heirs.is_ending.get() || rows.is_empty() {
            return;
        }
        self.heirs.wanted.borrow_mut().extend(rows);
        if !self.heirs.is_running.replace(true) {
            let all = take_over_all(Weak::clone(&self.this));
            self.shared.pool.seams().spawner.spawn("take over", Box::pin(all));
        }
    }

    /// Has the heirs of rows take their places or give their lines back, those that can now; whether any did. One checkpoint does for all
    /// of them.
    ///
    /// # Errors
    /// [`SpaceError`]: what stands in the way. Rows and heirs are as they were.
    #[pooled]
    pub(crate) async fn take_over(&self, rows: &[u64]) -> Result<bool, SpaceError> {
        // Two at once would bring lines of one row to and fro.
        let _turn = self.heirs.ending_turn.take().await;
        let (mut left, mut has_any) = (rows.to_vec(), false);
        for _ in 0..TRIES {
            let mut prepared = Vec::new();
            for index in std::mem::take(&mut left) {
                let back = self.bring_back(index).await;
                if let Some((row, heir)) = self.unless_hindered(index, back) {
                    prepared.push(Ending::GivenBack { row, heir });
                    continue;
                }
                let of_row = self.prepare(index).await;
                let of_row = self.unless_hindered(index, of_row);
                prepared.extend(of_row.map(|(cache, row, heir)| Ending::TakesOver { cache, row, heir }));
            }
            if prepared.is_empty() {
                break;
            }
            let all_go_back = prepared.iter().all(|ending| matches!(ending, Ending::GivenBack { .. }));
            let is_early = all_go_back && mutation!(GivenBackBeforeFlush);
            if mutation!(HeirBeforeTables) {
                self.shared.force_flush().await?;
            } else if !mutation!(HeirBeforeFlush) && !is_early {
                self.shared.pool.checkpoint().await?;
            }
            for ending in prepared {
                if self.heirs.is_ending.get() {
                    return Ok(has_any);
                }
                let (index, done) = match &ending {
                    Ending::TakesOver { cache, row, heir } => {
                        (row.index, self.change_places(cache, row, heir).await)
                    }
                    Ending::GivenBack { row, heir } => (row.index, self.strike_empty_heir(row, heir).await),
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

    /// What came of a step for the heir of a row, if nothing stands in the way: that keeps no others back.
    fn unless_hindered<T>(&self, row: u64, outcome: Result<Option<T>, SpaceError>) -> Option<T> {
        outcome.unwrap_or_else(|error| {
            tracing::debug!(space = %self.name(), row, error = %in_one_line(&error), "an heir cannot take over now");
            None
        })
    }

    /// Puts what is cached of a row in place, and copies what its heir lacks: the two, if a checkpoint is all that they need then.
    #[pooled]
    async fn prepare(&self, index: u64) -> Result<Option<(Rc<Cache>, Rc<Row>, Rc<Row>)>, SpaceError> {
        let row = self.row(index).await?;
        let Some((row, heir)) = row.and_then(|row| Some((Rc::clone(&row), row.heir()?))) else {
            return Ok(None);
        };
        let Some(cache) = self.cache_of(&row) else { return Ok(None) };
        if !mutation!(HeirBeforeCached) {
            cache.empty_row(&row).await?;
            if !row.mappings.is_empty() {
                // It waits for disks, or somebody is at it: then it is not the time.
                return Ok(None);
            }
        }
        Ok(self.copy_to_heir(&cache, &row, &heir).await?.then_some((cache, row, heir)))
    }

    /// Lines of a row that hold something and that its heir lacks.
    #[pooled]
    pub(crate) async fn lacking(&self, row: &Rc<Row>, heir: &Rc<Row>) -> Result<Vec<u32>, SpaceError> {
        let mut lacking = Vec::new();
        for line in 0..row.shape.column_blocks(row.shape.data_columns()) {
            match self.parity_of_heir(heir, line).await? {
                BlockState::Valid(_) => {}
                // Whose its blocks are is not known; a write to them makes it known.
                BlockState::Damaged => return Err(self.unknown_line(row, line)),
                BlockState::Never => {
                    let states = self.shared.line_states(row, line).await?;
                    let mut data = states.iter().take(row.shape.data_columns());
                    if data.any(|state| *state != BlockState::Never) {
                        lacking.push(line);
                    }
                }
            }
        }
        Ok(lacking)
    }

    /// Copies to an heir what it lacks; whether it has all of it then.
    #[pooled]
    async fn copy_to_heir(
        &self,
        cache: &Rc<Cache>,
        row: &Rc<Row>,
        heir: &Rc<Row>,
    ) -> Result<bool, SpaceError> {
        let lacking = self.lacking(row, heir).await?;
        if !lacking.is_empty() && self.heirs.goes_to_and_fro(row) {
            // Slots that lines have just left are free behind that.
            self.shared.flush().await?;
        }
        let columns = row.shape.columns() as u64;
        let together = (self.shared.lines.all() / (2 * columns)).clamp(1, LINES_TOGETHER);
        for some in lacking.chunks(usize::try_from(together).unwrap_or(1)) {
            if self.heirs.is_ending.get() {
                return Ok(false);
            }
            let blocks = u32::try_from(some.len() * row.shape.columns()).unwrap_or(u32::MAX);
            let _log_room = self.shared.room_for(blocks).await?;
            let _turn = cache.turn.take().await;
            let _frames = self.shared.lines.take(2 * columns * some.len() as u64).await;
            let of_row: BTreeSet<u32> = some.iter().copied().collect();
            let _guard = row.locks.lock_all(&stripes(row, &of_row)).await;
            if row.gone.get() || self.shared.is_unresolved(row) || cache.has_unfinished_beside(row) {
                return Ok(false);
            }
            let mut prepared = Vec::new();
            for line in some {
                // A stream may have brought it since.
                if self.parity_of_heir(heir, *line).await? == BlockState::Never {
                    if !self.is_slot_free(heir, *line).await? {
                        return Ok(false);
                    }
                    prepared.push(self.copied_line(row, heir, *line).await?);
                }
            }
            let (done, left) = cache.put_out(&prepared).await?;
            self.shared.count(|counters| counters.heir_lines_copied += done as u64);
            if !left.is_empty() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// A line of a row as its heir will have it. The caller holds its lock.
    #[pooled]
    async fn copied_line(&self, row: &Rc<Row>, heir: &Rc<Row>, line: u32) -> Result<Prepared, SpaceError> {
        let shape = &row.shape;
        let (states, data) = self.read_line(row, line).await?;
        let is_lost = states.contains(&BlockState::Damaged);
        let parity = self.parity_of(shape, &data).await;
        let block = |column, state| RedoBlock { column, state, place: Place::default(), since: None };
        let of_data = (0..).zip(states).map(|(column, state)| block(column, state));
        let with_data: Vec<(RedoBlock, Option<Buffer>)> =
            of_data.zip(data).filter(|(block, _)| line < shape.column_blocks(block.column)).collect();
        let with_parity = (shape.data_columns()..).zip(parity).map(|(column, buffer)| match is_lost {
            // Nobody knows what parity should be of.
            true => (block(column, BlockState::Damaged), None),
            false => (block(column, BlockState::Valid(crc32c(&buffer))), Some(buffer)),
        });
        let (blocks, contents): (Vec<RedoBlock>, Vec<Option<Buffer>>) =
            with_data.into_iter().chain(with_parity).unzip();
        let row = Rc::clone(heir);
        let redo = Redo { row, line, blocks, ends: Vec::new(), said: Lsn::default(), owns_all: false };
        let contents = contents.into_iter().map(|content| content.map(Buffer::freeze)).collect();
        Ok(Prepared { redo, contents })
    }

    /// The data of a line in place, by column, and what its blocks are.
    #[pooled]
    async fn read_line(&self, row: &Rc<Row>, line: u32) -> Result<(LineStates, OfLine), SpaceError> {
        let mut states = self.shared.line_states(row, line).await?;
        states.truncate(row.shape.data_columns());
        let mut data = OfLine::new();
        for (column, state) in states.iter_mut().enumerate() {
            let BlockState::Valid(_) = state else {
                data.push(None);
                continue;
            };
            let mut buffer = self.shared.pool.seams().metadata.take(BLOCK).await;
            match self.read_in_place(row, (column, line), Patience::Long, &mut buffer).await {
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

    /// Parity of the data of a line.
    async fn parity_of(&self, shape: &Shape, data: &OfLine) -> SmallVec<[Buffer; 2]> {
        let mut parity: SmallVec<[Buffer; 2]> = SmallVec::new();
        for _ in 0..shape.parity_columns() {
            parity.push(self.shared.pool.seams().metadata.take(BLOCK).await);
        }
        let bytes: SmallVec<[Option<&[u8]>; 12]> = data.iter().map(Option::as_deref).collect();
        let mut into: SmallVec<[Option<&mut [u8]>; 2]> =
            parity.iter_mut().map(|buffer| Some(&mut **buffer)).collect();
        encode(shape, &bytes, &mut into);
        drop(into);
        parity
    }

    /// Whether an heir can take the place of its row now. The caller holds the lock of all of it.
    #[pooled]
    async fn is_ready(&self, cache: &Cache, row: &Rc<Row>, heir: &Rc<Row>) -> Result<bool, SpaceError> {
        let is_heir = row.heir().is_some_and(|other| Rc::ptr_eq(&other, heir));
        if row.gone.get() || !is_heir || self.gone.get() || self.shared.is_unresolved(row) {
            return Ok(false);
        }
        let is_cached = !row.mappings.is_empty() && !mutation!(HeirBeforeCached);
        if is_cached || cache.has_unfinished_beside(row) || !self.lacking(row, heir).await?.is_empty() {
            return Ok(false);
        }
        let is_unflushed =
            || self.shared.is_unflushed_away(row) || !self.shared.unsettled_of(heir).is_empty();
        if is_unflushed() && !mutation!(HeirBeforeFlush) {
            return Ok(false);
        }
        let is_untabled = !heir.is_formatted() || heir.pages().iter().any(|(_, _, page)| !page.is_settled());
        Ok(!is_untabled || mutation!(HeirBeforeFlush) || mutation!(HeirBeforeTables))
    }

    /// The heir takes the row's place, if nothing has come between; whether it did.
    #[pooled]
    async fn change_places(
        &self,
        cache: &Rc<Cache>,
        row: &Rc<Row>,
        heir: &Rc<Row>,
    ) -> Result<bool, SpaceError> {
        let _guard = row.locks.lock(Range { first: 0, count: row.shape.row_blocks() }).await;
        if !self.is_ready(cache, row, heir).await? {
            return Ok(false);
        }
        // A write-back that is under way may have taken pages since.
        let _tables = self.shared.table_turn.take().await;
        let is_settled = |row: &Row| row.pages().iter().all(|(_, _, page)| page.is_settled());
        let must_be = !mutation!(HeirBeforeFlush) && !mutation!(HeirBeforeTables);
        if must_be && !is_settled(heir) {
            return Ok(false);
        }
        let mut change = self.shared.pool.change(Purpose::Release).await;
        if row.gone.get() || heir.gone.get() {
            return Ok(false);
        }
        let (old, record) = (row.record(), heir.record());
        for slab in old.columns.iter().flatten() {
            change.release(slab.disk, &slab.runs);
            change.delete(keys::stale(slab.disk, self.id(), row.index));
        }
        self.strike_heir(&mut change, heir, &record).await?;
        self.shared.has_claimed_on_absent(self.id());
        for slab in record.columns.iter().flatten().filter(|slab| slab.stale.is_some()) {
            change.put(keys::stale(slab.disk, self.id(), row.index), Vec::new());
        }
        change.put(keys::row(self.id(), row.index), record.encode());
        let set_gone = |is_gone| [row, heir].into_iter().for_each(|row| row.gone.set(is_gone));
        // Whoever waits for the row's lock must look it up again.
        set_gone(true);
        if let Err(error) = change.commit().await {
            set_gone(false);
            return Err(error.into());
        }
        let new = heir.in_place_of(row, record);
        self.rows.borrow_mut().insert(row.index, Some(Rc::clone(&new)));
        self.shared.forget_pages(row);
        cache.forget_row(row);
        self.shared.forget_row(self.id(), row.index);
        self.forget_heir(row);
        self.shared.count(|counters| counters.heirs_taken_over += 1);
        tracing::debug!(space = %self.name(), row = row.index, "an heir has taken the place of its row");
        self.shared.write_headers(&new, |_| true).await?;
        Ok(true)
    }

    /// Strikes an heir from the map. Its grains stay whose they are.
    async fn strike_heir(
        &self,
        change: &mut Change<'_>,
        heir: &Row,
        record: &RowRecord,
    ) -> Result<(), SpaceError> {
        for slab in record.columns.iter().flatten() {
            change.delete(keys::stale(slab.disk, heir.space, heir.index));
        }
        change.delete(keys::row(heir.space, heir.index));
        change.add(keys::row_count(heir.space), -1).await?;
        Ok(())
    }

    /// Strikes an heir whose row is freed, and gives its grains back.
    pub(crate) async fn release_heir(&self, change: &mut Change<'_>, heir: &Row) -> Result<(), SpaceError> {
        let record = heir.record();
        for slab in record.columns.iter().flatten() {
            change.release(slab.disk, &slab.runs);
        }
        self.strike_heir(change, heir, &record).await
    }
}

impl Shared {
    /// How often some heirs have to be given up until none of those of now is left, at most.
    pub(crate) fn rounds_to_give_up_heirs(&self) -> usize {
        let spaces = self.spaces.borrow().upgrade();
        let counts = spaces.map(|spaces| spaces.borrow().values().map(|space| space.heirs.count()).max());
        counts.flatten().unwrap_or(0) + 1
    }

    /// Has heirs of all spaces take the places of their rows or give their lines back, which gives room back; whether any did.
    #[pooled]
    pub(crate) async fn give_up_heirs(&self) -> bool {
        let spaces = self.spaces.borrow().upgrade();
        let spaces: Vec<Rc<Space>> =
            spaces.map(|spaces| spaces.borrow().values().cloned().collect()).unwrap_or_default();
        let mut has_freed = false;
        for space in spaces {
            space.heirs.note_lack_of_room(self.pool.seams().clock.now());
            // Some at a time: each may have a row to copy. Where something stands in the way of all of them, the next.
            for some in space.heirs.idlest(usize::MAX).chunks(GIVEN_UP_TOGETHER) {
                // Whoever wanted room hears that there is none.
                if space.take_over(some).await.unwrap_or(false) {
                    has_freed = true;
                    break;
                }
            }
        }
        has_freed
    }
}

async fn take_over_all(space: Weak<Space>) {
    while let Some(space) = space.upgrade() {
        let next: Vec<u64> = space.heirs.wanted.borrow().iter().copied().collect();
        let goes_on = space.shared.pool.state() == PoolState::Writable && !space.heirs.is_ending.get();
        if next.is_empty() || !goes_on {
            space.heirs.is_running.set(false);
            space.heirs.wanted.borrow_mut().clear();
            space.heirs.bell.notify_all();
            return;
        }
        if let Err(error) = space.take_over(&next).await {
            tracing::debug!(space = %space.name(), error = %in_one_line(&error), "heirs cannot take over now");
        }
        // Those that are none any more are not among the others.
        space.heirs.put_off(&next, space.shared.pool.seams().clock.now());
        space.heirs.wanted.borrow_mut().retain(|index| !next.contains(index));
        space.heirs.bell.notify_all();
    }
}

impl Cache {
    /// Puts what is cached of a row in place, as far as that can be now.
    ///
    /// # Errors
    /// [`SpaceError`]: what stands in the way.
    pub(crate) async fn empty_row(&self, row: &Rc<Row>) -> Result<(), SpaceError> {
        let rounds = u64::from(row.shape.row_blocks());
        for _ in 0..rounds {
            let _log_room = self.shared().room_for(crate::destage::ROUND_BLOCKS).await?;
            let _turn = self.turn.take().await;
            let blocks: Vec<u32> = row.mappings.all().into_iter().map(|(block, _)| block).collect();
            if blocks.is_empty() || row.gone.get() {
                break;
            }
            let of_row = BTreeMap::from([((row.space, row.index), (Rc::clone(row), blocks))]);
            if !self.put_in_place_of(of_row, None).await? {
                break;
            }
        }
        Ok(())
    }

    /// Puts what is cached of blocks of a row in place, as far as that can be now.
    ///
    /// # Errors
    /// [`SpaceError`]: what stands in the way.
    pub(crate) async fn put_range_in_place(&self, row: &Rc<Row>, range: Range) -> Result<(), SpaceError> {
        let _log_room = self.shared().room_for(crate::destage::ROUND_BLOCKS).await?;
        let _turn = self.turn.take().await;
        let blocks: Vec<u32> = range.blocks().filter(|block| row.mappings.newest(*block).is_some()).collect();
        if !blocks.is_empty() && !row.gone.get() {
            let of_row = BTreeMap::from([((row.space, row.index), (Rc::clone(row), blocks))]);
            self.put_in_place_of(of_row, None).await?;
        }
        Ok(())
    }

    /// Whether lines of a row or of its heir may be half in place.
    pub(crate) fn has_unfinished_beside(&self, row: &Row) -> bool {
        self.unfinished.borrow().iter().any(|redo| redo.row.is_beside(row))
    }
}
