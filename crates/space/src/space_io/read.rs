//! Reading: every block is verified against its table; a bad copy is healed from a good one.

use std::rc::Rc;

use dolmen_block_io::{DeviceError, IoKind};
use dolmen_buffer::{Arena, Buffer};
use dolmen_checksum::crc32c;
use dolmen_future_pool::pooled;
use dolmen_mutation::mutation;
use dolmen_pool::Disk;
use dolmen_units::BLOCK_BYTES;
use smallvec::SmallVec;

use crate::cache::cached_blocks::CachedBlocks;
use crate::cache::segment_io::SegmentIo;
use crate::cache::stripe_read::{Rebuilt, StripeReads};
use crate::format::error::{SpaceError, UnreadableReason};
use crate::format::record::{BlockState, Place};
use crate::layout::BLOCK;
use crate::layout::shape::{READ_BYTES_MAX, RUN_BLOCKS};
use crate::resolution::decided_rows::DecidedRows;
use crate::resolution::space_doubt::SpaceDoubt;
use crate::resources::events::DataLossKind;
use crate::resources::hedge_delay::{HedgeDelay, is_silence};
use crate::resources::locks::{Range, blocks_of};
use crate::row_io::copies::{RowCopies, matches_state};
use crate::row_io::read_hedging::Hedging;
use crate::row_io::segments::{Segment, Segments};
use crate::row_io::stripe_places::StripePlaces;
use crate::space_io::request::Requests;
use crate::table::mapping::Content;
use crate::table::pages::TableStore;
use crate::table::row::Row;
use crate::table::space::SpaceRows;

/// Blocks that are read before their table is known, at most: of a thin space, they may turn out never to have been written.
const BEFORE_TABLE_BLOCKS_MAX: u32 = 16;

/// Blocks of one column and one state that follow each other on a disk.
struct Run {
    /// Where they are: the row itself, or one of the write cache.
    row: Rc<Row>,
    column: usize,
    range: Range,
    /// The first of them in the row that is read.
    first: u32,
    /// Whether none of them was ever written.
    is_never: bool,
    /// Where the states of its blocks begin among those of all runs.
    states_at: usize,
}

/// A read of blocks of a column that began before their table was known.
struct Begun<F> {
    column: usize,
    range: Range,
    reading: F,
}

/// Runs that follow each other. States are in one list, which is in the future of each read: one per run would be mostly empty.
#[derive(Default)]
struct Runs {
    runs: SmallVec<[Run; 4]>,
    states: SmallVec<[BlockState; 64]>,
}

impl Runs {
    /// What the table says of the blocks of a run.
    fn states_of(&self, run: &Run) -> &[BlockState] {
        self.states.get(run.states_at..run.states_at + run.range.count as usize).unwrap_or_default()
    }

    /// The run, if there is only one, and it holds something at this place of the row.
    fn only_at(&self, row: &Row, place: (usize, Range)) -> Option<&Run> {
        let [run] = self.runs.as_slice() else { return None };
        (!run.is_never && run.row.id == row.id && (run.column, run.range) == place).then_some(run)
    }
}

/// What the table says of blocks from one of them on, each with its place among them.
fn states_from(states: &[BlockState], first: u32) -> impl Iterator<Item = (u32, BlockState)> {
    (0..).zip(states.iter().copied()).skip(first as usize)
}

/// Reads of a space.
#[derive(Clone, Copy)]
pub(crate) struct Reader<'a> {
    space: &'a SpaceRows,
}

impl<'a> Reader<'a> {
    /// Returns the service for a space.
    pub(crate) fn of(space: &'a SpaceRows) -> Self {
        Self { space }
    }
}

impl Reader<'_> {
    /// Reads `length` bytes from byte `at` on, at most [`READ_BYTES_MAX`].
    #[pooled]
    pub(crate) async fn read(self, at: u64, length: usize) -> Result<Segments, SpaceError> {
        self.space.check_range(at, length as u64)?;
        let request = Requests::of(self.space).asked(IoKind::Read, length as u64).await;
        let read = self.read_range(at, length).await;
        if read.is_ok() {
            self.space.failed_reads.succeeded(at, length as u64);
        }
        request.ended(read)
    }

    /// As [`read`](Self::read), also of a space in the trash, for whoever gets data out of a pool that nobody uses: limits do not
    /// count.
    #[pooled]
    pub(crate) async fn read_kept(self, at: u64, length: usize) -> Result<Segments, SpaceError> {
        self.space.check_bounds(at, length as u64)?;
        self.read_range(at, length).await
    }

    async fn read_range(self, at: u64, length: usize) -> Result<Segments, SpaceError> {
        let mut segments = Segments::new();
        let mut done = 0;
        while done < length {
            let (index, within) =
                ((at + done as u64) / self.space.row_bytes(), (at + done as u64) % self.space.row_bytes());
            let room = usize::try_from(self.space.row_bytes() - within).unwrap_or(usize::MAX);
            // Parts of blocks at the ends are read as whole blocks, which have to fit the buffer too.
            let fits = READ_BYTES_MAX - usize::try_from(within % BLOCK_BYTES).unwrap_or(0);
            let part = room.min(length - done).min(fits);
            let memory = &self.space.shared.pool.seams().data;
            self.read_in_row(index, (within, part), memory, &mut segments).await?;
            done += part;
        }
        Ok(segments)
    }

    /// Reads whole blocks of a row into memory that clients do not use, 1 MiB of them at most. Called without any lock.
    pub(crate) async fn read_for_job(self, index: u64, blocks: Range) -> Result<Segments, SpaceError> {
        let mut segments = Segments::new();
        let (within, length) = (u64::from(blocks.first) * BLOCK_BYTES, blocks.count as usize * BLOCK);
        let memory = &self.space.shared.pool.seams().metadata;
        self.read_in_row(index, (within, length), memory, &mut segments).await?;
        Ok(segments)
    }

    async fn read_in_row(
        self,
        index: u64,
        (within, length): (u64, usize),
        memory: &Arena,
        into: &mut Segments,
    ) -> Result<(), SpaceError> {
        let blocks = blocks_of(within, within + length as u64);
        let skip = usize::try_from(within % BLOCK_BYTES).unwrap_or(0);
        let whole = loop {
            let Some(row) = DecidedRows::of(self.space).row(index).await? else {
                // Rows of a space that is being deleted are gone, which is not the same as never written.
                self.space.check_stays()?;
                push(into, Segment::Zeros(length));
                return Ok(());
            };
            SpaceDoubt::of(self.space).decide_cached(&row, blocks).await?;
            let shadow = row.shadow();
            let read = self.read_blocks(&row, blocks, memory).await;
            // A row that was freed meanwhile has given its tables away: what they say now is no error. Nor is what lies in place
            // its content, if the write cache had something newer. One that is only about to be freed is as it was: who frees it
            // has no turn before this ends.
            // Nor is what a shadow row says that has given its stripes back.
            let is_released = read.is_err() && shadow.is_some_and(|shadow| shadow.freed.get());
            if !self.is_freed(&row) && !is_released {
                break read?;
            }
        };
        let mut at = 0;
        for segment in whole {
            let (start, end) = (at, at + segment.len());
            at = end;
            let from = skip.clamp(start, end) - start;
            let to = (skip + length).clamp(start, end) - start;
            if from < to {
                push(into, segment.slice(from, to));
            }
        }
        Ok(())
    }

    /// Whether somebody who looks a row up does not find it any more.
    fn is_freed(self, row: &Rc<Row>) -> bool {
        let rows = self.space.rows.borrow();
        let found = rows.get(&row.index).and_then(Option::as_ref);
        row.freed.get() && found.is_none_or(|found| !Rc::ptr_eq(found, row))
    }

    async fn read_blocks(self, row: &Rc<Row>, blocks: Range, arena: &Arena) -> Result<Segments, SpaceError> {
        let mut runs = Runs::default();
        let begun = self.begin_before_table(row, blocks, arena);
        self.find_runs(row, blocks, &mut runs).await?;
        let mut whole = Segments::new();
        if let Some(Begun { column, range, reading }) = begun
            && let Some(run) = runs.only_at(row, (column, range))
            && let (mut buffer, Ok(())) = reading.await
        {
            self.verify_piece(row, (run, runs.states_of(run)), 0, (&mut buffer, true)).await?;
            push(&mut whole, Segment::Data(buffer.freeze()));
            return Ok(whole);
        }
        // Memory for all of it is taken in one go: reads that each hold a part and wait for more would wait for each other.
        let with_data = runs.runs.iter().filter(|run| !run.is_never);
        let length: usize = with_data.map(|run| run.range.count as usize * BLOCK).sum();
        let mut memory = None;
        if length > 0 {
            memory = Some(arena.take(length).await);
        }
        for run in &runs.runs {
            self.read_run(row, (run, runs.states_of(run)), &mut memory, &mut whole).await?;
        }
        Ok(whole)
    }

    /// Begins to read a few blocks of one column while their table is still to be read, so that both take the time of one: where they
    /// are follows from the row alone. What comes is verified by the table as it is then. Nobody waits here: a client's memory that is
    /// not there at once is taken when the table is known.
    fn begin_before_table(
        self,
        row: &Rc<Row>,
        blocks: Range,
        arena: &Arena,
    ) -> Option<Begun<impl Future<Output = (Buffer, Result<(), DeviceError>)> + use<>>> {
        let shared = &self.space.shared;
        // A job's memory is that of tables, for which this read would wait while it holds some.
        let is_for_client = std::ptr::eq(arena, &raw const shared.pool.seams().data);
        let spot = row.shape.locate(blocks.first);
        let range = Range { first: spot.block, count: blocks.count };
        let is_worth_it = is_for_client
            && blocks.count <= BEFORE_TABLE_BLOCKS_MAX.min(spot.contiguous)
            && row.is_formatted()
            && row.shadow().is_none()
            && row.mappings.is_empty()
            && row.state_in_memory((spot.column, spot.block)).is_none();
        if !is_worth_it {
            return None;
        }
        let (disk, places) = Hedging::of(shared).choose_copy(row, spot.column, range)?;
        let [(at, length)] = *places.as_slice() else { return None };
        let within = Hedging::of(shared).hedge_delay(row, spot.column, &disk);
        let buffer = arena.try_take_fitting(length)?;
        let reading = disk.read_within(at, buffer, within);
        Some(Begun { column: spot.column, range, reading })
    }

    /// Compares what was read of a run, from the block at `done` on, with what the table says, and reads again what differs.
    async fn verify_piece(
        self,
        row: &Rc<Row>,
        (run, states): (&Run, &[BlockState]),
        done: u32,
        (bytes, is_read): (&mut [u8], bool),
    ) -> Result<(), SpaceError> {
        for ((place, state), bytes) in states_from(states, done).zip(bytes.chunks_exact_mut(BLOCK)) {
            let good = is_read && (matches_state(bytes, state) || mutation!(ChecksumNotChecked));
            if !good {
                self.read_block_again(row, run.first + place, bytes).await?;
            }
        }
        Ok(())
    }

    /// Adds the runs that a range of a row falls into.
    async fn find_runs(self, row: &Rc<Row>, blocks: Range, into: &mut Runs) -> Result<(), SpaceError> {
        for block in blocks.first..blocks.first + blocks.count {
            let (at, (column, place), state) = self.find_block(row, block).await?;
            let is_never = state == BlockState::Never;
            let extends = |run: &&mut Run| {
                let follows = run.column == column && run.range.first + run.range.count == place;
                follows && run.is_never == is_never && run.row.id == at.id
            };
            match into.runs.last_mut().filter(extends) {
                Some(run) => run.range.count += 1,
                None => {
                    let range = Range { first: place, count: 1 };
                    let states_at = into.states.len();
                    into.runs.push(Run { row: at, column, range, first: block, is_never, states_at });
                }
            }
            into.states.push(state);
        }
        Ok(())
    }

    /// Where a block of a row is, and what it holds: the row, its column, and the block of that.
    async fn find_block(
        self,
        row: &Rc<Row>,
        block: u32,
    ) -> Result<(Rc<Row>, (usize, u32), BlockState), SpaceError> {
        match CachedBlocks::of(self.space).cached(row, block).await? {
            Some(Content::Discarded) => Ok((Rc::clone(row), (usize::MAX, block), BlockState::Never)),
            Some(Content::Cached { place, checksum }) => {
                let at = self
                    .cache_row(row, place)
                    .await
                    .map_err(|error| CachedBlocks::of(self.space).of_ours(row, block, error))?;
                Ok((at, (0, place.block), BlockState::Valid(checksum)))
            }
            None => {
                let spot = row.shape.locate(block);
                let place = (spot.column, spot.block);
                let found = RowCopies::of(self.space).main_location(row, place).await;
                let (stripe_location, state) =
                    found.map_err(|error| CachedBlocks::of(self.space).of_ours(row, block, error))?;
                Ok((stripe_location, (spot.column, spot.block), state))
            }
        }
    }

    /// The row of the write cache that a place is in.
    async fn cache_row(self, row: &Row, place: Place) -> Result<Rc<Row>, SpaceError> {
        let cache = self.space.cache_of(row);
        let cache_row = cache.and_then(|cache| Some((cache.row_of(place)?, cache)));
        let row = match cache_row {
            Some((row, cache)) => DecidedRows::of(cache.space()).row(row.index).await?,
            None => None,
        };
        row.ok_or_else(|| SpaceError::Deleted { name: self.space.name() })
    }

    async fn read_run(
        self,
        row: &Rc<Row>,
        (run, states): (&Run, &[BlockState]),
        memory: &mut Option<Buffer>,
        into: &mut Segments,
    ) -> Result<(), SpaceError> {
        let length = run.range.count as usize * BLOCK;
        if run.is_never {
            push(into, Segment::Zeros(length));
            return Ok(());
        }
        let is_slow =
            |disk: &Rc<Disk>| Hedging::of(&self.space.shared).is_better_computed(&run.row, run.column, disk);
        let mut done = 0;
        // What lies in several pieces is chosen again for each: the disk may have been silent on the one before.
        while done < run.range.count {
            let rest = Range { first: run.range.first + done, count: run.range.count - done };
            let chosen = Hedging::of(&self.space.shared)
                .choose_copy(&run.row, run.column, rest)
                .filter(|(disk, _)| !is_slow(disk));
            let Some((disk, (at, length))) = chosen.and_then(|(disk, places)| Some((disk, *places.first()?)))
            else {
                if row.shape.is_computable() || run.row.id != row.id {
                    return self.read_run_again(row, (run, states), done, memory, into).await;
                }
                let first = rest.first as usize;
                return Err(TableStore::of(&self.space.shared).unreadable(
                    row,
                    run.column,
                    first,
                    UnreadableReason::Absent,
                ));
            };
            let Some(mut buffer) = memory.take() else { unreachable!("memory was taken for every run") };
            if buffer.len() > length {
                *memory = Some(buffer.split_off(length));
            }
            let piece = Range { first: run.range.first + done, count: blocks_in(length) };
            let (mut buffer, result) = Hedging::of(&self.space.shared)
                .read_soon(&run.row, (run.column, piece), (&disk, at), buffer)
                .await;
            if result.is_err_and(is_silence) {
                self.read_again(row, (run, states), done, &mut buffer).await?;
            } else {
                self.verify_piece(row, (run, states), done, (&mut buffer, result.is_ok())).await?;
            }
            done += blocks_in(length);
            push(into, Segment::Data(buffer.freeze()));
        }
        Ok(())
    }

    /// Reads blocks of a run from the one at `done` on, none of whose own slabs is here.
    async fn read_run_again(
        self,
        row: &Rc<Row>,
        (run, states): (&Run, &[BlockState]),
        done: u32,
        memory: &mut Option<Buffer>,
        into: &mut Segments,
    ) -> Result<(), SpaceError> {
        let Some(mut buffer) = memory.take() else { unreachable!("memory was taken for every run") };
        let length = (run.range.count - done) as usize * BLOCK;
        if buffer.len() > length {
            *memory = Some(buffer.split_off(length));
        }
        self.read_again(row, (run, states), done, &mut buffer).await?;
        push(into, Segment::Data(buffer.freeze()));
        Ok(())
    }

    /// Reads blocks of a run, from the one at `done` on, that their own slabs do not give: with parity computed in whole pieces
    /// from the others of their stripes, and one by one where that fails.
    #[pooled]
    async fn read_again(
        self,
        row: &Rc<Row>,
        (run, all): (&Run, &[BlockState]),
        done: u32,
        into: &mut [u8],
    ) -> Result<(), SpaceError> {
        let mut done = done;
        for bytes in into.chunks_mut(RUN_BLOCKS as usize * BLOCK) {
            let states: SmallVec<[BlockState; RUN_BLOCKS as usize]> =
                states_from(all, done).take(bytes.len() / BLOCK).map(|(_, state)| state).collect();
            if !self.read_piece_rebuilt(run, (run.range.first + done, &states), bytes).await? {
                for (block, bytes) in (run.first + done..).zip(bytes.chunks_exact_mut(BLOCK)) {
                    self.read_block_again(row, block, bytes).await?;
                }
            }
            done += u32::try_from(states.len()).unwrap_or(u32::MAX);
        }
        Ok(())
    }

    /// Computes a piece of a run from the other columns; whether that could be done. Without a lock: what is computed is what
    /// the table said when the read began, or nothing.
    async fn read_piece_rebuilt(
        self,
        run: &Run,
        piece: (u32, &[BlockState]),
        into: &mut [u8],
    ) -> Result<bool, SpaceError> {
        if !run.row.shape.is_computable() {
            return Ok(false);
        }
        // Who was late is asked last the next time, if there are others.
        for _ in 0..=run.row.shape.losses() {
            match StripeReads::of(self.space)
                .rebuild_run(&run.row, run.column, piece, HedgeDelay::Short, into)
                .await
            {
                Ok(Rebuilt::TimedOut) => {}
                Ok(rebuilt) => return Ok(rebuilt == Rebuilt::Whole),
                Err(SpaceError::Unreadable { .. }) => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Ok(false)
    }

    /// A block that was not what its table says: perhaps a write has just passed, perhaps a copy is bad. Looks again
    /// under the block's lock, where the table cannot change.
    async fn read_block_again(
        self,
        row: &Rc<Row>,
        row_block: u32,
        into: &mut [u8],
    ) -> Result<(), SpaceError> {
        let spot = row.shape.locate(row_block);
        let range = row.shape.lock_range(spot.column, Range { first: spot.block, count: 1 });
        loop {
            let Some(row) = DecidedRows::of(self.space).row(row.index).await? else {
                self.space.check_stays()?;
                into.fill(0);
                return Ok(());
            };
            SpaceDoubt::of(self.space).decide_cached(&row, Range { first: row_block, count: 1 }).await?;
            let _guard = row.locks.lock(range).await;
            if !row.freed.get() {
                return self.read_block_locked(&row, row_block, into).await;
            }
        }
    }

    /// Reads one block of a row from whichever copy verifies, and heals the others. The caller holds its lock.
    #[pooled]
    pub(crate) async fn read_block_locked(
        self,
        row: &Rc<Row>,
        row_block: u32,
        into: &mut [u8],
    ) -> Result<(), SpaceError> {
        match CachedBlocks::of(self.space).cached(row, row_block).await? {
            Some(Content::Discarded) => {
                into.fill(0);
                return Ok(());
            }
            Some(Content::Cached { place, checksum }) => {
                let Some(cache) = self.space.cache_of(row) else {
                    return Err(SpaceError::Deleted { name: self.space.name() });
                };
                SegmentIo::of(&cache)
                    .read(place, into)
                    .await
                    .map_err(|error| CachedBlocks::of(self.space).of_ours(row, row_block, error))?;
                // Its row may say another thing of the place than whoever lies there.
                if crc32c(into) != checksum {
                    return Err(self.lost_in_cache(row, row_block));
                }
                return Ok(());
            }
            None => {}
        }
        if !row.shape.is_computable() {
            return RowCopies::of(self.space)
                .read_copied_block(row, row_block, HedgeDelay::Short, into)
                .await;
        }
        let spot = row.shape.locate(row_block);
        let row = &StripePlaces::of(self.space)
            .stripe_location(row, spot.block)
            .await
            .map_err(|error| CachedBlocks::of(self.space).of_ours(row, row_block, error))?;
        match RowCopies::of(self.space).state_to_read(row, row_block).await? {
            BlockState::Valid(_) => {}
            _ => {
                into.fill(0);
                return Ok(());
            }
        }
        let read = StripeReads::of(self.space)
            .read_main(row, (spot.column, spot.block), HedgeDelay::Short, into)
            .await;
        if let Err(SpaceError::Unreadable { why: UnreadableReason::NoGoodCopy, .. }) = &read {
            self.space.shared.count(|counters| counters.lost_blocks += 1);
            self.space.note(row, row_block, DataLossKind::Lost);
        }
        read
    }

    /// The error for a block whose place in the write cache holds something else.
    fn lost_in_cache(self, row: &Row, row_block: u32) -> SpaceError {
        let spot = row.shape.locate(row_block);
        self.space.shared.count(|counters| counters.lost_blocks += 1);
        self.space.note(row, row_block, DataLossKind::Lost);
        TableStore::of(&self.space.shared).unreadable(
            row,
            spot.column,
            spot.block as usize,
            UnreadableReason::NoGoodCopy,
        )
    }
}

/// How many blocks so many bytes are.
fn blocks_in(bytes: usize) -> u32 {
    u32::try_from(bytes / BLOCK).unwrap_or(u32::MAX)
}

/// Appends a segment, joining zeros with zeros.
pub(crate) fn push(into: &mut Segments, segment: Segment) {
    if segment.is_empty() {
        return;
    }
    match (into.last_mut(), &segment) {
        (Some(Segment::Zeros(before)), Segment::Zeros(length)) => *before += length,
        _ => into.push(segment),
    }
}
