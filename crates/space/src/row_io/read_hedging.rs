//! Which copy is asked, and how long it is waited for: some disks are slow, and some answer nothing (docs/design/0021).

use std::rc::Rc;
use std::time::Duration;

use dolmen_block_io::{DeviceError, READ_HEDGE_DELAY};
use dolmen_buffer::Buffer;
use dolmen_future_pool::pooled;
use dolmen_mutation::mutation;
use dolmen_pool::Disk;
use dolmen_units::{BLOCK_BYTES, DiskSlot};
use smallvec::SmallVec;

use crate::layout::BLOCK;
use crate::resources::hedge_delay::{FAST, HedgeDelay, hedge_delay, is_much_slower, second_hedge_delay};
use crate::resources::locks::Range;
use crate::table::row::{Row, Slab};
use crate::table::row_store::RowStore;

/// By how many times a disk may be slower than the fastest copy and is still asked like that.
const SLOWER: u32 = 4;
/// Choice among the copies of a block, and hedged reads of them.
#[derive(Clone, Copy)]
pub(crate) struct Hedging<'a> {
    store: &'a RowStore,
}

impl<'a> Hedging<'a> {
    /// Returns the service for the rows of a pool.
    pub(crate) fn of(store: &'a RowStore) -> Self {
        Self { store }
    }
}

impl Hedging<'_> {
    /// The least busy copy of a range, and where on it the range is. Among equally idle ones the place decides, so that
    /// each copy serves its part and a sequential reader stays on one disk for an interleave. Much slower ones are not asked.
    pub(crate) fn choose_copy(self, row: &Row, column: usize, range: Range) -> Option<(Rc<Disk>, Places)> {
        self.choose_copy_except(row, (column, range), None)
    }

    /// As [`choose_copy`](Self::choose_copy), but not on that disk.
    fn choose_copy_except(
        self,
        row: &Row,
        (column, range): (usize, Range),
        extra: Option<DiskSlot>,
    ) -> Option<(Rc<Disk>, Places)> {
        row.with_slabs(column, |slabs| {
            let rotation = usize::try_from(row.index % 64).unwrap_or(0) + range.first as usize / 64;
            let count = slabs.len().max(1);
            let order = (0..count).map(|step| (rotation + step) % count);
            let readable: SmallVec<[(Rc<Disk>, &Slab); 4]> = order
                .filter_map(|at| {
                    let slab = slabs.get(at).filter(|slab| Some(slab.disk) != extra)?;
                    Some((slab.readable(&self.store.pool)?, slab))
                })
                .collect();
            let (disk, slab) = least_busy(&readable)?;
            let start = u64::from(range.first) * BLOCK_BYTES;
            let pieces = slab.pieces(start, range.count as usize * BLOCK);
            Some((Rc::clone(disk), pieces.iter().map(|piece| (piece.at, piece.length)).collect()))
        })
    }

    /// Whether what a disk has of a column comes sooner when it is computed from the others.
    pub(crate) fn is_better_computed(self, row: &Row, column: usize, disk: &Disk) -> bool {
        row.shape.is_computable() && self.comes_sooner_elsewhere(row, column, disk)
    }

    /// How long each copy of a block is waited for by somebody who looks at all that are here: `None` for as long as it takes, zero for
    /// one that is not asked, because others have the block much sooner.
    pub(crate) fn hedge_delay_with_copy(
        self,
        row: &Row,
        column: usize,
        disk: &Disk,
        wait: HedgeDelay,
    ) -> Option<Duration> {
        if wait == HedgeDelay::Long || mutation!(HungIsAwaited) {
            return None;
        }
        let others = self.latency_without(row, column, disk)?;
        let is_passed_over = disk.is_unresponsive() || is_much_slower(disk.read_latency(), others);
        Some(if is_passed_over { Duration::ZERO } else { second_hedge_delay(others) })
    }

    /// Reads a range of a column from where it was found. Where the disk takes too long, another copy is asked, once; the answer is
    /// [`DeviceError::TimedOut`] where there is none but its content can be computed, or where that takes too long as well and there
    /// is a third.
    pub(crate) async fn read_soon(
        self,
        row: &Row,
        (column, range): (usize, Range),
        (disk, at): (&Rc<Disk>, u64),
        into: Buffer,
    ) -> (Buffer, Result<(), DeviceError>) {
        let within = self.hedge_delay(row, column, disk);
        let (buffer, result) = disk.read_within(at, into, within).await;
        if within.is_none() || result != Err(DeviceError::TimedOut) {
            return (buffer, result);
        }
        match self.choose_copy_except(row, (column, range), Some(disk.slot())) {
            Some((other, places)) => {
                let within = self.hedge_delay_with_second(row, column, [disk.slot(), other.slot()]);
                self.read_places((&other, &places), within, buffer).await
            }
            // It is computed by whoever asked.
            None => (buffer, result),
        }
    }
}

impl Hedging<'_> {
    /// How long a read of a disk is waited for, where others have what it has.
    pub(crate) fn hedge_delay(self, row: &Row, column: usize, disk: &Disk) -> Option<Duration> {
        if mutation!(HungIsAwaited) {
            return None;
        }
        let own = disk.read_latency();
        // Most reads end here: nobody else has to be looked at.
        if hedge_delay(own) == READ_HEDGE_DELAY {
            let is_other =
                |slab: &Slab| slab.disk != disk.slot() && slab.readable(&self.store.pool).is_some();
            let has_others =
                row.shape.is_computable() || row.with_slabs(column, |slabs| slabs.iter().any(is_other));
            return has_others.then_some(READ_HEDGE_DELAY);
        }
        let others = self.latency_without(row, column, disk)?;
        Some(hedge_delay(own.min(others)))
    }

    /// How long a second copy is waited for, where a third has what these have.
    fn hedge_delay_with_second(self, row: &Row, column: usize, asked: [DiskSlot; 2]) -> Option<Duration> {
        let third = row.with_slabs(column, |slabs| {
            let others = slabs.iter().filter(|slab| !asked.contains(&slab.disk));
            others.filter_map(|slab| slab.readable(&self.store.pool)).map(|disk| disk.read_latency()).min()
        });
        third.filter(|_| !mutation!(HungIsAwaited)).map(second_hedge_delay)
    }

    /// Reads what lies in several places of a disk, one after another.
    #[pooled]
    async fn read_places(
        self,
        (disk, places): (&Rc<Disk>, &[(u64, usize)]),
        within: Option<Duration>,
        into: Buffer,
    ) -> (Buffer, Result<(), DeviceError>) {
        let whole = into.len();
        let (mut read, mut left): (Option<Buffer>, _) = (None, into);
        let Some(((last, _), before)) = places.split_last() else { return (left, Ok(())) };
        for (at, length) in before {
            let rest = left.split_off(*length);
            let (part, result) = disk.read_within(*at, left, within).await;
            if result.is_err() {
                // What comes back of a read that timed out is other memory, and belongs to none of the parts.
                drop((read, part, rest));
                return (self.store.pool.seams().data.take_or_make(whole), result);
            }
            (read, left) = (Some(joined(read, part)), rest);
        }
        let (part, result) = disk.read_within(*last, left, within).await;
        if result.is_err() && read.is_some() {
            drop((read, part));
            return (self.store.pool.seams().data.take_or_make(whole), result);
        }
        (joined(read, part), result)
    }

    /// Whether others have what a disk has of a column, and much sooner.
    fn comes_sooner_elsewhere(self, row: &Row, column: usize, disk: &Disk) -> bool {
        let read_latency = disk.read_latency();
        // Most reads end here.
        is_much_slower(read_latency, FAST)
            && self
                .latency_without(row, column, disk)
                .is_some_and(|others| is_much_slower(read_latency, others))
    }

    /// How long it takes these days to get what a disk has of a column without it: the fastest other copy, or with parity the
    /// slowest of as many other columns as that takes.
    fn latency_without(self, row: &Row, column: usize, disk: &Disk) -> Option<Duration> {
        let fastest = |column: usize| {
            row.with_slabs(column, |slabs| {
                let others = slabs.iter().filter(|slab| slab.disk != disk.slot());
                let here = others.filter_map(|slab| slab.readable(&self.store.pool));
                here.map(|disk| disk.read_latency()).min()
            })
        };
        if !row.shape.is_computable() {
            return fastest(column);
        }
        let others = (0..row.shape.columns()).filter(|other| *other != column);
        nth_fastest(others.filter_map(fastest), row.shape.sources())
    }
}

/// The slowest of the `count` fastest, if there are so many.
pub(crate) fn nth_fastest(paces: impl Iterator<Item = Duration>, count: usize) -> Option<Duration> {
    let mut paces: SmallVec<[Duration; 16]> = paces.collect();
    paces.sort_unstable();
    paces.get(count.checked_sub(1)?).copied()
}

/// A buffer and the one that was split off it.
fn joined(first: Option<Buffer>, second: Buffer) -> Buffer {
    let Some(first) = first else { return second };
    match first.join(second) {
        Ok(whole) => whole,
        Err(_) => unreachable!("parts of one buffer are joined in their order"),
    }
}

/// The least busy of those that are not much slower than the fastest.
fn least_busy<'a, 'b>(readable: &'a [(Rc<Disk>, &'b Slab)]) -> Option<(&'a Rc<Disk>, &'b Slab)> {
    if let [(disk, slab)] = readable {
        return Some((disk, slab));
    }
    let is_one_well = readable.iter().any(|(disk, _)| !disk.is_shunned());
    let asked = readable.iter().filter(|(disk, _)| !(is_one_well && disk.is_shunned()));
    let throttled: SmallVec<[_; 4]> = asked.map(|(disk, slab)| (disk.read_latency(), disk, *slab)).collect();
    let fastest = throttled.iter().map(|(read_latency, ..)| *read_latency).min()?.max(FAST);
    let bound = if mutation!(SlowIsAsked) { Duration::MAX } else { fastest.saturating_mul(SLOWER) };
    let fast = throttled.into_iter().filter(|(read_latency, ..)| *read_latency <= bound);
    fast.min_by_key(|(_, disk, _)| disk.load()).map(|(_, disk, slab)| (disk, slab))
}

/// Where something is on a disk: bytes of the data area, and lengths.
pub(crate) type Places = SmallVec<[(u64, usize); 2]>;
