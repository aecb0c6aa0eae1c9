//! Stripes of rows with parity: a block of each column, and what becomes of one that is gone (docs/design/0004).

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use dolmen_block_io::DeviceError;
use dolmen_block_io::sync::join_all;
use dolmen_buffer::Buffer;
use dolmen_future_pool::pooled;
use dolmen_mutation::mutation;
use dolmen_pool::Disk;
use dolmen_units::BLOCK_BYTES;
use smallvec::SmallVec;

use crate::format::error::{SpaceError, UnreadableReason};
use crate::format::record::BlockState;
use crate::layout::BLOCK;
use crate::layout::shape::RUN_BLOCKS;
use crate::resources::hedge_delay::{HedgeDelay, is_much_slower, is_silence, second_hedge_delay};
use crate::resources::locks::Range;
use crate::row_io::copies::{Copy, RowCopies, matches_state};
use crate::row_io::read_hedging::{Hedging, nth_fastest};
use crate::table::page::place_in_page;
use crate::table::pages::{StripeStates, TableStore};
use crate::table::row::Row;
use crate::table::space::SpaceRows;

/// A block of a stripe as it was found.
pub(crate) enum Found {
    /// Zeros, which nobody wrote.
    Never,
    /// It is what its table says.
    Good(Buffer),
    /// It is lost, or its parity does not say what it is of.
    Damaged,
    /// Its disk is away or silent.
    Away,
    /// It is there, and is not what its table says.
    Bad,
}

impl Found {
    /// Its bytes, for parity to be computed with: `None` for zeros.
    pub(crate) fn bytes(&self) -> Option<&[u8]> {
        match self {
            Self::Good(buffer) => Some(buffer),
            Self::Never | Self::Damaged | Self::Away | Self::Bad => None,
        }
    }

    /// Whether its content is known.
    pub(crate) fn is_known(&self) -> bool {
        matches!(self, Self::Never | Self::Good(_))
    }
}

/// Where a run of a column is read that another one is computed from.
struct RunSource {
    column: usize,
    /// Its disk, where on it, and the memory for it; none where nobody wrote any of it.
    place: Option<(Rc<Disk>, u64, Option<Buffer>)>,
}

/// What came of a run that was to be computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rebuilt {
    /// All of it is what its tables say.
    Whole,
    /// A disk that it needs was not waited for any longer.
    TimedOut,
    /// Some of it is to be looked at block by block.
    Not,
}

/// What a run of a column has, if it is as its table says.
enum RunContent {
    Zeros,
    Blocks(Buffer),
}

impl RunContent {
    fn bytes(&self) -> Option<&[u8]> {
        match self {
            Self::Zeros => None,
            Self::Blocks(buffer) => Some(buffer),
        }
    }
}

impl RunSource {
    /// How long a read of it takes these days.
    fn read_latency(&self) -> Duration {
        self.place.as_ref().map(|(disk, ..)| disk.read_latency()).unwrap_or_default()
    }

    fn is_unresponsive(&self) -> bool {
        self.place.as_ref().is_some_and(|(disk, ..)| disk.is_unresponsive())
    }

    /// Reads it; `None` when any of it is not as its table says, or does not come in time, which is noted. What nobody wrote is zeros,
    /// whatever the disk has there.
    async fn read(
        self,
        lines: &[StripeStates],
        within: Option<Duration>,
        is_timed_out: &Cell<bool>,
    ) -> Option<RunContent> {
        let Some((disk, at, memory)) = self.place else { return Some(RunContent::Zeros) };
        let (mut buffer, read) = disk.read_within(at, memory?, within).await;
        is_timed_out.set(is_timed_out.get() || (within.is_some() && read == Err(DeviceError::TimedOut)));
        read.ok()?;
        for (bytes, stripe) in buffer.chunks_exact_mut(BLOCK).zip(lines) {
            match stripe.get(self.column).copied().unwrap_or_default() {
                BlockState::Never => bytes.fill(0),
                state if matches_state(bytes, state) => {}
                _ => return None,
            }
        }
        Some(RunContent::Blocks(buffer))
    }
}

/// Whether a copy that counts was not among those that were read, or was silent. Its disk may be here by the time that this is
/// asked, which is no reason to call the block lost.
fn is_away(row: &Row, column: usize, copies: &[Copy]) -> bool {
    let was_read = |slot| copies.iter().any(|copy| copy.disk.slot() == slot);
    let is_unresponsive = |copy: &Copy| copy.result.is_err_and(is_silence);
    row.has_other_trusted(column, was_read)
        || copies.iter().any(|copy| copy.trusted && is_unresponsive(copy))
        || copies.iter().all(is_unresponsive)
}

/// Reads of stripes with parity, and of blocks computed from them.
#[derive(Clone, Copy)]
pub(crate) struct StripeReads<'a> {
    space: &'a SpaceRows,
}

impl<'a> StripeReads<'a> {
    /// Returns the service for a space.
    pub(crate) fn of(space: &'a SpaceRows) -> Self {
        Self { space }
    }
}

impl StripeReads<'_> {
    /// A block of a stripe from its own slabs.
    pub(crate) async fn look(self, row: &Rc<Row>, column: usize, stripe: u32, state: BlockState) -> Found {
        self.look_for(row, (column, stripe, state), HedgeDelay::Long).await.0
    }

    /// As [`look`](Self::look); and whether one of its slabs is late.
    async fn look_for(
        self,
        row: &Rc<Row>,
        (column, stripe, state): (usize, u32, BlockState),
        wait: HedgeDelay,
    ) -> (Found, bool) {
        match state {
            BlockState::Never => return (Found::Never, false),
            BlockState::Damaged => return (Found::Damaged, false),
            BlockState::Valid(_) => {}
        }
        let copies = RowCopies::of(self.space).read_copies(row, column, stripe, wait).await;
        let is_timed_out = copies.iter().any(|copy| copy.is_timed_out);
        let is_good = |copy: &Copy| copy.result.is_ok() && matches_state(&copy.bytes, state);
        let is_away = is_away(row, column, &copies);
        let is_there = |copy: &Copy| is_good(copy) || (mutation!(InputsNotVerified) && copy.result.is_ok());
        let found = match copies.into_iter().find(is_there) {
            Some(good) => Found::Good(good.bytes),
            None if is_away => Found::Away,
            None => Found::Bad,
        };
        (found, is_timed_out)
    }

    /// Whether a stripe of a row may be half in place.
    fn is_half_destaged(self, row: &Row, stripe: u32) -> bool {
        let cache = self.space.cache_of(row);
        cache.is_some_and(|cache| cache.unfinished.borrow().iter().any(|redo| redo.is_of(row, stripe)))
    }

    /// Computes a block of a stripe from the others, into `into`. The caller holds the stripe's lock, and what was read of the
    /// block's own slabs, none of which has it.
    ///
    /// # Errors
    /// [`SpaceError::Unreadable`]; because of [`DeviceError::TimedOut`] where somebody might have given it who was not waited for.
    #[pooled]
    async fn reconstruct(
        self,
        row: &Rc<Row>,
        (column, own): (usize, &[Copy]),
        (stripe, wait): (u32, HedgeDelay),
        into: &mut [u8],
    ) -> Result<(), SpaceError> {
        let states = TableStore::of(&self.space.shared).stripe_states(row, stripe).await?;
        let others = states.iter().enumerate().filter(|(other, _)| *other != column);
        let looked =
            join_all(others.map(async |(other, state)| {
                (other, self.look_for(row, (other, stripe, *state), wait).await)
            }));
        let mut is_timed_out = own.iter().any(|copy| copy.is_timed_out);
        let one_of = |(other, (found, delayed_writes))| {
            is_timed_out |= delayed_writes;
            (other, found)
        };
        let found: SmallVec<[(usize, Found); 16]> = looked.await.into_iter().map(one_of).collect();
        let known: SmallVec<[&(usize, Found); 16]> =
            found.iter().filter(|(_, found)| found.is_known()).collect();
        let given: SmallVec<[usize; 16]> = known.iter().map(|(other, _)| *other).collect();
        // The block itself, or others of its stripe, may be whole on disks that are away.
        let mut is_away = is_away(row, column, own);
        is_away |= found.iter().any(|(_, found)| matches!(found, Found::Away));
        row.for_each_slab(|_, slab| {
            is_away |= slab.stale.is_none() && slab.present(&self.space.shared.pool).is_none();
        });
        // What is half in place is no content of anybody's before it is in place.
        is_away |= self.is_half_destaged(row, stripe);
        let why = match (is_timed_out, is_away) {
            (true, _) => TIMED_OUT,
            (false, true) => UnreadableReason::Absent,
            (false, false) => UnreadableReason::NoGoodCopy,
        };
        let error = || TableStore::of(&self.space.shared).unreadable(row, column, stripe as usize, why);
        let Some(plan) = row.shape.rebuild(&given, &[column]) else { return Err(error()) };
        let bytes_of = |source: &usize| {
            known.iter().find(|(other, _)| other == source).and_then(|(_, found)| found.bytes())
        };
        let sources: SmallVec<[Option<&[u8]>; 16]> = plan.sources().iter().map(bytes_of).collect();
        plan.reconstruct(&sources, &mut [&mut *into])
            .unwrap_or_else(|error| panic!("blocks of a stripe are blocks: {error}"));
        match states.get(column) {
            Some(state) if matches_state(into, *state) => Ok(()),
            _ => Err(error()),
        }
    }

    /// Computes blocks of a column that follow each other from the others of their stripes, read in whole pieces, if that can be
    /// done. What of them is not as its table says is left to whoever looks block by block, and heals. Asked without the stripes'
    /// lock, it may fail because somebody writes there; what it gives is what the tables say.
    ///
    /// # Errors
    /// [`SpaceError`] when a table cannot be read.
    #[pooled]
    pub(crate) async fn rebuild_run(
        self,
        row: &Rc<Row>,
        column: usize,
        (first, states): (u32, &[BlockState]),
        wait: HedgeDelay,
        into: &mut [u8],
    ) -> Result<Rebuilt, SpaceError> {
        let mut lines: SmallVec<[StripeStates; RUN_BLOCKS as usize]> = SmallVec::new();
        for stripe in (first..).take(states.len()) {
            lines.push(TableStore::of(&self.space.shared).stripe_states(row, stripe).await?);
        }
        let Some((sources, within)) = self.sources_of_run(row, column, (first, &lines)) else {
            return Ok(Rebuilt::Not);
        };
        let is_short = wait == HedgeDelay::Short && !mutation!(HungIsAwaited);
        let (within, is_timed_out) = (within.filter(|_| is_short), Cell::new(false));
        let given: SmallVec<[usize; 16]> = sources.iter().map(|source| source.column).collect();
        let Some(plan) = row.shape.rebuild(&given, &[column]) else { return Ok(Rebuilt::Not) };
        let read = join_all(
            sources
                .into_iter()
                .map(async |source| (source.column, source.read(&lines, within, &is_timed_out).await)),
        );
        let read: SmallVec<[(usize, Option<RunContent>); 16]> = read.await.into_iter().collect();
        let content_of = |wanted: &usize| read.iter().find(|(column, _)| column == wanted)?.1.as_ref();
        let Some(blocks) = plan.sources().iter().map(content_of).collect::<Option<SmallVec<[_; 16]>>>()
        else {
            return Ok(if is_timed_out.get() { Rebuilt::TimedOut } else { Rebuilt::Not });
        };
        let blocks: SmallVec<[Option<&[u8]>; 16]> = blocks.into_iter().map(RunContent::bytes).collect();
        plan.reconstruct(&blocks, &mut [&mut *into])
            .unwrap_or_else(|error| panic!("blocks of a stripe are blocks: {error}"));
        let is_whole = into
            .chunks_exact(BLOCK)
            .zip(states)
            .all(|(bytes, state)| matches!(state, BlockState::Valid(_)) && matches_state(bytes, *state));
        Ok(if is_whole { Rebuilt::Whole } else { Rebuilt::Not })
    }

    /// As many other columns as it takes to compute one, those first of which nothing has to be read, and those last whose disks
    /// take much longer than others; and how long they are waited for where one more could be asked instead, or the column itself.
    /// `None` where there are not enough, or no memory for them. Of more than enough, the same for all of a row, so that heads go on where they are, and
    /// others for the next.
    fn sources_of_run(
        self,
        row: &Row,
        column: usize,
        (first, lines): (u32, &[StripeStates]),
    ) -> Option<(SmallVec<[RunSource; 16]>, Option<Duration>)> {
        let pool = &self.space.shared.pool;
        let length = lines.len() * BLOCK;
        let columns = row.shape.columns();
        let rotation = usize::try_from(row.index % 64).unwrap_or(0);
        let mut sources: SmallVec<[RunSource; 16]> = SmallVec::new();
        for other in (0..columns).map(|nth| (rotation + nth) % columns).filter(|other| *other != column) {
            let mut states = lines.iter().map(|stripe| stripe.get(other).copied().unwrap_or_default());
            if states.clone().all(|state| state == BlockState::Never) {
                sources.push(RunSource { column: other, place: None });
                continue;
            }
            // A column that ends within the run, in the last stripe of a row, is left to whoever looks block by block.
            let range = Range { first, count: u32::try_from(lines.len()).ok()? };
            let is_whole = range.first + range.count <= row.shape.column_blocks(other);
            if is_whole && states.all(|state| state != BlockState::Damaged) {
                let Some((disk, places)) = Hedging::of(&self.space.shared).choose_copy(row, other, range)
                else {
                    continue;
                };
                if let [(at, whole)] = places.as_slice()
                    && *whole == length
                {
                    sources.push(RunSource { column: other, place: Some((disk, *at, None)) });
                }
            }
        }
        let wanted = row.shape.data_columns();
        let usual = nth_fastest(sources.iter().map(RunSource::read_latency), wanted)?;
        let is_slow =
            |source: &RunSource| source.is_unresponsive() || is_much_slower(source.read_latency(), usual);
        sources.sort_by_key(|source| (source.place.is_some(), is_slow(source)));
        let has_own = row.with_slabs(column, |slabs| {
            slabs.iter().filter_map(|slab| slab.readable(pool)).any(|disk| !disk.is_unresponsive())
        });
        let within = (sources.len() > wanted || has_own).then(|| second_hedge_delay(usual));
        sources.truncate(wanted);
        for (_, _, memory) in sources.iter_mut().filter_map(|source| source.place.as_mut()) {
            *memory = Some(pool.seams().metadata.try_take(length)?);
        }
        Some((sources, within))
    }

    /// A block of a column in place: from its own slabs, or else from the others of its stripe; its own are healed then. With
    /// little time, disks that take theirs are waited for only where it cannot be had without them. The caller holds the stripe's
    /// lock.
    ///
    /// # Errors
    /// [`SpaceError::Unreadable`].
    pub(crate) async fn read_main(
        self,
        row: &Rc<Row>,
        (column, stripe): (usize, u32),
        wait: HedgeDelay,
        into: &mut [u8],
    ) -> Result<(), SpaceError> {
        match self.read_main_once(row, (column, stripe), wait, into).await {
            Err(SpaceError::Unreadable { why, .. }) if why == TIMED_OUT && wait == HedgeDelay::Short => {
                self.read_main_once(row, (column, stripe), HedgeDelay::Long, into).await
            }
            read => read,
        }
    }

    #[pooled]
    async fn read_main_once(
        self,
        row: &Rc<Row>,
        (column, stripe): (usize, u32),
        wait: HedgeDelay,
        into: &mut [u8],
    ) -> Result<(), SpaceError> {
        let (index, entry) = place_in_page(stripe);
        let state = TableStore::of(&self.space.shared).page(row, column, index).await?.state(entry);
        let copies = RowCopies::of(self.space).read_copies(row, column, stripe, wait).await;
        if let Some(good) =
            copies.iter().find(|copy| copy.result.is_ok() && matches_state(&copy.bytes, state))
        {
            into.copy_from_slice(&good.bytes);
            return Ok(());
        }
        self.reconstruct(row, (column, &copies), (stripe, wait), into).await?;
        for copy in copies.iter().filter(|copy| copy.is_to_be_healed(state)) {
            copy.disk.note(|counters| counters.checksum_errors += 1);
            self.space.shared.count(|counters| counters.checksum_errors += 1);
            tracing::warn!(space = %self.space.name(), disk = %copy.disk.name(), row = row.index, column, block = stripe,
                "healing a block");
            RowCopies::of(self.space).write_copy(copy, into).await;
        }
        Ok(())
    }
}

/// Why a block cannot be read that somebody might have who was not waited for.
const TIMED_OUT: UnreadableReason = UnreadableReason::Device(DeviceError::TimedOut);

const _: () = assert!(BLOCK as u64 == BLOCK_BYTES, "a stripe is of blocks");
