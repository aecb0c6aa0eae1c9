//! What a running log knows: the batch being collected, the one under way, and what is live in the ring.
//!
//! Everything here is immediate; the waiting is in `log` and `writer`.

use std::collections::VecDeque;
use std::ops::RangeInclusive;
use std::task::Waker;

use dolmen_block_io::{DeviceError, Submission};
use dolmen_buffer::{Buffer, Shared};
use dolmen_units::{BLOCK_BYTES, Epoch, EpochId, Lsn, PoolId};
use zerocopy::IntoBytes;
use zerocopy::little_endian::U64;

use crate::LogCopy;
use crate::format::{self, HEADER_BYTES, Header, HoleRange, KIND_HOLES, RECORD_HEADER_BYTES, Seal};
use crate::log::{Counters, LogError, Start};
use crate::ring::{Limit, Place, Ring};

/// A live batch: where it stands and what its bytes add up to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Live {
    pub(crate) lsn: Lsn,
    pub(crate) position: u64,
    pub(crate) length: u32,
    pub(crate) checksum: u64,
}

/// The batch that records are placed into.
#[derive(Debug, Default)]
pub(crate) struct Collecting {
    /// `None` only until the arena had one to lend.
    pub(crate) buffer: Option<Buffer>,
    /// Bytes up to the end of the last record; 0 when there is none.
    used: usize,
    record_count: u32,
    /// Some record is not the log's own.
    placed: bool,
    /// Somebody needs it durable.
    durable: bool,
    /// It is written even without a record.
    marked: bool,
    /// Nothing more is placed into it.
    closed: bool,
}

#[derive(Debug)]
pub(crate) enum FlightState {
    Waiting(Submission),
    Done,
    Failed(DeviceError),
}

/// One copy's part of the batch under way.
#[derive(Debug)]
pub(crate) struct Flight {
    pub(crate) copy: LogCopy,
    pub(crate) state: FlightState,
}

/// The batch that was given to the copies.
#[derive(Debug)]
pub(crate) struct UnderWay {
    pub(crate) live: Live,
    pub(crate) bytes: Shared,
    pub(crate) durable: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    Running,
    /// What was placed is still written, nothing else is placed.
    Stopping,
    /// Every waiter has been or is being told so.
    Lost,
}

/// Whether the next batch may be begun for an epoch's sake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hold {
    Free,
    Held,
}

pub(crate) struct State {
    pub(crate) pool: PoolId,
    pub(crate) ring: Ring,
    pub(crate) copies: Vec<LogCopy>,
    pub(crate) token: Epoch,
    pub(crate) epoch: EpochId,
    pub(crate) phase: Phase,
    pub(crate) hold: Hold,
    /// Disks that were given the live log since the hold began.
    pub(crate) copied: Vec<LogCopy>,
    pub(crate) collecting: Collecting,
    pub(crate) spare: Option<Buffer>,
    pub(crate) under_way: Option<UnderWay>,
    /// Kept between batches for its memory.
    pub(crate) flights: Vec<Flight>,
    pub(crate) live: VecDeque<Live>,
    pub(crate) tail: Place,
    /// The LSN of the batch being collected and the end of the one before it.
    pub(crate) next: Place,
    pub(crate) completed: Lsn,
    pub(crate) last_durable: Lsn,
    /// The last batch that is complete and was not written as a durable one.
    pub(crate) last_cached: Lsn,
    pub(crate) durable_mark: Lsn,
    /// Holes that no batch lists yet, last one first, so that they are taken from the end.
    pub(crate) holes: Vec<RangeInclusive<Lsn>>,
    pub(crate) writer: Option<Waker>,
    /// The writer has ended and holds nothing any more.
    pub(crate) ended: bool,
    pub(crate) counters: Counters,
}

/// What came of an attempt to place something: `None` when it has to wait.
pub(crate) type Placed = Option<Result<Lsn, LogError>>;

impl Collecting {
    /// What there is to write, as the length of the batch.
    fn length_with(&self, more: usize) -> u64 {
        let used = if self.used == 0 { HEADER_BYTES } else { self.used };
        ((used + more) as u64).next_multiple_of(BLOCK_BYTES)
    }

    fn is_wanted(&self) -> bool {
        self.used > 0 || self.marked
    }

    pub(crate) fn set_durable(&mut self) {
        self.durable = true;
    }
}

impl State {
    /// Takes over where the log begins, what is live in it, and what it has to remember.
    pub(crate) fn go_on(&mut self, from: Start<'_>) {
        self.collecting.durable = true;
        let recovered = match from {
            Start::Fresh(place) => {
                self.tail = place;
                self.next = place;
                self.completed = Lsn(place.lsn.0.saturating_sub(1));
                return;
            }
            Start::Recovered(recovered) => recovered,
        };
        self.tail = recovered.tail;
        self.next = recovered.next();
        self.durable_mark = recovered.durable_mark();
        self.completed = Lsn(self.next.lsn.0.saturating_sub(1));
        // Healing has made all of it durable on every copy.
        self.last_durable = recovered.last();
        self.holes.extend(recovered.holes().iter().rev().cloned());
        self.live.extend(recovered.batches.iter().map(|sighting| {
            let Header { lsn, position, length, .. } = sighting.batch.header;
            Live { lsn, position, length, checksum: sighting.batch.checksum() }
        }));
    }

    /// The length of a buffer that holds any batch.
    pub(crate) fn buffer_bytes(&self) -> usize {
        usize::try_from(self.ring.batch_bytes_max()).unwrap_or(0)
    }

    /// Gives up everything that the writer held.
    pub(crate) fn release(&mut self) {
        self.ended = true;
        self.flights.clear();
        self.under_way = None;
        self.collecting = Collecting::default();
        self.spare = None;
    }

    pub(crate) fn has_ended(&self) -> Option<()> {
        self.ended.then_some(())
    }

    fn refusal(&self) -> Option<LogError> {
        match self.phase {
            Phase::Running => None,
            Phase::Stopping => Some(LogError::Stopped { pool: self.pool }),
            Phase::Lost => Some(LogError::Lost { pool: self.pool, epoch: self.epoch }),
        }
    }

    /// Places a record if there is a batch to take it and the ring may be filled that far.
    pub(crate) fn place(&mut self, kind: u8, parts: &[&[u8]], limit: Limit) -> Placed {
        if let Some(error) = self.refusal() {
            return Some(Err(error));
        }
        let body: usize = parts.iter().map(|part| part.len()).sum();
        let room = format::record_bytes(body);
        let batch = &mut self.collecting;
        let length = batch.length_with(room);
        let fits = self.ring.fits(self.tail.position, self.next.position, length, limit);
        if batch.closed || length > self.ring.batch_bytes_max() || !fits {
            return None;
        }
        batch.write(kind, parts, room)?;
        batch.placed = true;
        self.counters.records += 1;
        self.counters.record_bytes += body as u64;
        Some(Ok(self.next.lsn))
    }

    /// Makes the batch being collected durable, and begins one if there is none.
    pub(crate) fn mark(&mut self) -> Placed {
        if let Some(error) = self.refusal() {
            return Some(Err(error));
        }
        let fits = self.ring.fits(self.tail.position, self.next.position, BLOCK_BYTES, Limit::Whole);
        if !self.collecting.is_wanted() && !fits {
            return None;
        }
        self.collecting.marked = true;
        self.collecting.durable = true;
        Some(Ok(self.next.lsn))
    }

    /// Sees to it that nothing is placed any more into a batch that has records of the log's user.
    pub(crate) fn cut(&mut self) -> Lsn {
        if !self.collecting.placed {
            return self.next.lsn;
        }
        self.collecting.closed = true;
        self.next.lsn.next()
    }

    /// Lists holes in the batch being collected. While some are left for the next one nothing else may join: a
    /// record acknowledged before all holes are known as such could be followed by what a hole has swallowed.
    pub(crate) fn list_holes(&mut self) {
        if self.holes.is_empty() || self.collecting.buffer.is_none() || self.collecting.used > 0 {
            return;
        }
        let fit = (self.buffer_bytes() - HEADER_BYTES - RECORD_HEADER_BYTES) / size_of::<HoleRange>();
        let from = self.holes.len().saturating_sub(fit);
        let ranges: Vec<HoleRange> = self
            .holes
            .drain(from..)
            .map(|hole| HoleRange { first: U64::new(hole.start().0), last: U64::new(hole.end().0) })
            .collect();
        let body = ranges.as_bytes();
        let written = self.collecting.write(KIND_HOLES, &[body], format::record_bytes(body.len()));
        assert!(written.is_some(), "an empty batch takes the list that was cut for it");
        self.collecting.durable = true;
        self.collecting.closed = !self.holes.is_empty();
    }

    /// Whether the next batch can go out now.
    pub(crate) fn can_begin(&self) -> bool {
        // Records were placed only where the ring had room; a list of holes was not.
        let length = self.collecting.length_with(0);
        self.hold == Hold::Free
            && self.collecting.is_wanted()
            && self.collecting.buffer.is_some()
            && self.ring.fits(self.tail.position, self.next.position, length, Limit::Whole)
    }

    /// Whether something was placed and is not written yet.
    pub(crate) fn has_work(&self) -> bool {
        self.collecting.is_wanted() || self.under_way.is_some()
    }

    /// Seals the batch being collected and puts an empty one in its place; `None` when there is no buffer.
    pub(crate) fn seal(&mut self) -> Option<UnderWay> {
        let fresh = Collecting { buffer: self.spare.take(), ..Collecting::default() };
        let batch = std::mem::replace(&mut self.collecting, fresh);
        let length = batch.length_with(0);
        let mut buffer = batch.buffer?;
        let position = self.ring.begin(self.next.position, length);
        let lsn = self.next.lsn;
        let length_stored = u32::try_from(length).unwrap_or(u32::MAX);
        let content = Header {
            epoch: self.epoch,
            lsn,
            position,
            length: length_stored,
            durable_mark: self.durable_mark,
            durable_before: self.last_durable,
        };
        let used = u32::try_from(batch.used.max(HEADER_BYTES)).unwrap_or(u32::MAX);
        let seal = Seal { pool: self.pool, ring: self.ring, content, used, record_count: batch.record_count };
        let checksum = format::seal(buffer.get_mut(..format::size(length_stored))?, &seal);
        let live = Live { lsn, position, length: length_stored, checksum };
        assert!(self.tail.position + self.ring.length >= position + length, "no live batch is overwritten");
        self.live.push_back(live);
        self.next = Place { lsn: lsn.next(), position: position + length };
        self.counters.batches += 1;
        self.counters.durable_batches += u64::from(batch.durable);
        self.counters.written_bytes += length;
        self.list_holes();
        Some(UnderWay { live, bytes: buffer.freeze(), durable: batch.durable })
    }

    /// Notes that every copy has the batch under way, and takes its buffer back if no device holds it any more.
    pub(crate) fn complete(&mut self) -> Option<Lsn> {
        let done = self.under_way.take()?;
        self.flights.clear();
        self.completed = done.live.lsn;
        let last = if done.durable { &mut self.last_durable } else { &mut self.last_cached };
        *last = done.live.lsn;
        // A device that was excluded may still read from the buffer; then another is taken from the arena.
        if let Ok(buffer) = done.bytes.thaw() {
            self.spare = Some(buffer);
        }
        Some(done.live.lsn)
    }

    /// Whether the batch with this LSN is written, or never will be.
    pub(crate) fn outcome(&self, lsn: Lsn) -> Placed {
        if self.completed >= lsn {
            return Some(Ok(lsn));
        }
        (self.phase == Phase::Lost).then_some(Err(LogError::Lost { pool: self.pool, epoch: self.epoch }))
    }

    /// Where the first live batch with an LSN not below this begins, or will.
    pub(crate) fn place_of(&self, lsn: Lsn) -> Option<Place> {
        let index = self.live.partition_point(|live| live.lsn < lsn);
        let begun = self.live.get(index).map(|live| Place { lsn: live.lsn, position: live.position });
        begun.or_else(|| (lsn <= self.next.lsn).then_some(self.next))
    }

    pub(crate) fn trim(&mut self, to: Place) {
        assert!(to <= self.next, "the log is not trimmed beyond its end");
        if to <= self.tail {
            return;
        }
        assert!(to.position >= self.tail.position, "LSNs and positions grow together");
        self.tail = to;
        while self.live.front().is_some_and(|live| live.lsn < to.lsn) {
            self.live.pop_front();
        }
    }

    /// Replaces the copies. Those of the batch under way that remain go on; those that came were given it. One that failed
    /// that batch while the change was made for another reason may remain for now: the batch stays open, and nobody is told
    /// that it is written, until a further change leaves that copy out.
    ///
    /// # Panics
    /// When a copy is new and was not given the live log under this hold: it would be a voter that lacks acknowledged
    /// batches.
    pub(crate) fn install(&mut self, epoch: EpochId, token: Epoch, copies: Vec<LogCopy>) {
        assert!(!copies.is_empty(), "an epoch has voters");
        for copy in &copies {
            let holds_all = self.copies.iter().any(|old| old.is(copy));
            let given = self.copied.iter().any(|given| given.is(copy));
            assert!(holds_all || given, "{copy:?} becomes a copy of the log only with its content");
        }
        let copied = &self.copied;
        self.flights.retain(|flight| {
            copies.iter().any(|copy| copy.is(&flight.copy))
                && !copied.iter().any(|given| given.is(&flight.copy))
        });
        self.copies = copies;
        self.epoch = epoch;
        self.token = token;
        self.counters.epoch_changes += 1;
    }
}

impl Collecting {
    /// Writes a record of `room` bytes behind the others; `None` without a buffer.
    fn write(&mut self, kind: u8, parts: &[&[u8]], room: usize) -> Option<()> {
        let start = if self.used == 0 { HEADER_BYTES } else { self.used };
        format::write_record(self.buffer.as_mut()?.get_mut(start..start + room)?, kind, parts);
        self.used = start + room;
        self.record_count += 1;
        Some(())
    }
}
