//! Reading the log back: the union of all copies by LSN, the holes, and what is damage rather than a hole.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::RangeInclusive;

use dolmen_block_io::sync::join_all;
use dolmen_block_io::{self as block_io, DeviceError, Seams};
use dolmen_future_pool::pooled;
use dolmen_mutation::mutation;
use dolmen_units::{BLOCK_BYTES, DiskId, Epoch, Lsn, PoolId};

use crate::format::{Batch, BatchError, BatchHeader, Expected, Header, KIND_HOLES, Record, hole_ranges};
use crate::ranges::LsnRanges;
use crate::ring::{Place, Ring, RingError};
use crate::{COPIES_MAX, CopyFailure, LogCopy, Owner, list};

/// What is read at once from a copy.
const PIECE_BYTES: u64 = 1 << 20;

const _: () = assert!(COPIES_MAX <= 32, "a bit per copy fits into the mask of those that have a batch");

/// Why a log cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RecoverError {
    /// The ring that the label names is none.
    #[error("the log of pool {pool} cannot be read: {error}")]
    Ring {
        /// Whose.
        pool: PoolId,
        /// What is wrong.
        #[source]
        error: RingError,
    },
    /// Too many copies, or none.
    #[error("the log of pool {pool} cannot be read from {found} copies; 1 to {COPIES_MAX} are expected")]
    Copies {
        /// Whose.
        pool: PoolId,
        /// How many were given.
        found: usize,
    },
    /// No copy could be read to its end.
    #[error("no copy of the log of pool {pool} can be read: {}; the pool stays closed", list(failures))]
    Unreadable {
        /// Whose.
        pool: PoolId,
        /// What each copy answered.
        failures: Vec<CopyFailure>,
    },
    /// A live batch was written by a later Dolmen.
    #[error(
        "the log of pool {pool} on disk {disk} has at {address} a batch of kind {kind}, version {version}, which this \
         version cannot read; nothing was changed, use a newer Dolmen"
    )]
    Version {
        /// Whose.
        pool: PoolId,
        /// On which disk.
        disk: DiskId,
        /// Where on it.
        address: u64,
        /// The kind found.
        kind: u8,
        /// The version found.
        version: u8,
    },
}

/// Something that must be in the log and is not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Damage {
    /// Batches at or below the durable mark, on no copy.
    #[error(
        "{first} to {last} are on no copy of the log, although everything up to {durable_mark} was durable"
    )]
    MarkedDurable {
        /// The first one missing.
        first: Lsn,
        /// The last one of the range.
        last: Lsn,
        /// The durable mark.
        durable_mark: Lsn,
    },
    /// A batch above the durable mark that was durable, on no copy.
    #[error("{lsn} is on no copy of the log, although {named_by} says that it was durable")]
    Durable {
        /// The one missing.
        lsn: Lsn,
        /// The batch that names it.
        named_by: Lsn,
    },
    /// Two different whole batches with one LSN: the first found was taken.
    #[error("{lsn} on disk {disk} differs from the one on another copy of the log; the other was taken")]
    Conflict {
        /// Which one.
        lsn: Lsn,
        /// Where the one stands that was not taken.
        disk: DiskId,
    },
}

/// A batch of the union and the copies that have it, a bit each.
pub(crate) struct Sighting {
    pub(crate) batch: Batch,
    pub(crate) present: u32,
}

/// The log as the copies tell it.
pub struct Recovered {
    pub(crate) seams: Seams,
    pub(crate) token: Epoch,
    pub(crate) ring: Ring,
    pub(crate) copies: Vec<LogCopy>,
    pub(crate) batches: Vec<Sighting>,
    pub(crate) tail: Place,
    durable_mark: Lsn,
    holes: Vec<RangeInclusive<Lsn>>,
    damage: Vec<Damage>,
    failures: Vec<CopyFailure>,
    unreadable_blocks: u64,
    next: Place,
}

/// What all copies are searched for.
struct Search<'a> {
    seams: &'a Seams,
    token: Epoch,
    pool: PoolId,
    ring: Ring,
    tail: Place,
    spans: &'a [Owner],
    found: RefCell<Found>,
}

#[derive(Default)]
struct Found {
    batches: BTreeMap<Lsn, Sighting>,
    damage: Vec<Damage>,
    unknown: Option<RecoverError>,
    unreadable_blocks: u64,
}

/// Reads the whole ring of each copy and takes the union by LSN from `tail` on. Writes nothing.
///
/// `spans` says which epoch owned which stretch of the live log, oldest first. Copies are read side by side, each
/// with one buffer of the metadata arena at a time. The live batches stay in memory until the result is dropped.
///
/// # Errors
/// See [`RecoverError`]. A copy that fails while another can be read is told by [`Recovered::failures`].
#[pooled]
pub async fn recover(
    seams: &Seams,
    token: Epoch,
    pool: PoolId,
    ring: Ring,
    copies: &[LogCopy],
    tail: Place,
    spans: &[Owner],
) -> Result<Recovered, RecoverError> {
    ring.check().map_err(|error| RecoverError::Ring { pool, error })?;
    if copies.is_empty() || copies.len() > COPIES_MAX {
        return Err(RecoverError::Copies { pool, found: copies.len() });
    }
    let search = Search { seams, token, pool, ring, tail, spans, found: RefCell::default() };
    let scans = copies.iter().zip(0..).map(|(copy, number)| search.scan(copy, number));
    let failures: Vec<CopyFailure> = join_all(scans).await.into_iter().filter_map(Result::err).collect();
    if failures.len() == copies.len() {
        return Err(RecoverError::Unreadable { pool, failures });
    }
    search.conclude(copies, failures)
}

impl Search<'_> {
    /// Reads one copy's ring from end to end.
    #[pooled]
    async fn scan(&self, copy: &LogCopy, number: u32) -> Result<(), CopyFailure> {
        let end = self.ring.at + self.ring.length;
        let mut window = Vec::new();
        let mut window_at = self.ring.at;
        let mut read_to = self.ring.at;
        while read_to < end {
            let length = PIECE_BYTES.min(end - read_to);
            self.read(copy, read_to, length, &mut window)
                .await
                .map_err(|error| CopyFailure { disk: copy.disk, error })?;
            read_to += length;
            let done = self.sift(copy, number, &window, window_at, read_to == end);
            window.drain(..done);
            window_at += done as u64;
        }
        Ok(())
    }

    /// Appends a piece to the window. Blocks that the medium does not give are read as zeros: what stood there is
    /// missing on this copy, and healing writes it again.
    async fn read(
        &self,
        copy: &LogCopy,
        at: u64,
        length: u64,
        window: &mut Vec<u8>,
    ) -> Result<(), DeviceError> {
        match self.read_once(copy, at, length, window).await {
            Err(DeviceError::Medium { .. }) => {}
            other => return other,
        }
        for block in (at..at + length).step_by(BLOCK_STEP) {
            match self.read_once(copy, block, BLOCK_BYTES, window).await {
                Err(DeviceError::Medium { .. }) => {
                    window.resize(window.len() + BLOCK_STEP, 0);
                    self.found.borrow_mut().unreadable_blocks += 1;
                }
                other => other?,
            }
        }
        Ok(())
    }

    async fn read_once(
        &self,
        copy: &LogCopy,
        at: u64,
        length: u64,
        window: &mut Vec<u8>,
    ) -> Result<(), DeviceError> {
        let length = usize::try_from(length).unwrap_or(0);
        let into = self.seams.metadata.take(length).await;
        let (buffer, result) = block_io::read(copy.device.as_ref(), self.token, at, into).await;
        result?;
        window.extend_from_slice(&buffer);
        Ok(())
    }

    /// Takes every batch out of the window; returns how much of it needs not be seen again.
    fn sift(&self, copy: &LogCopy, number: u32, window: &[u8], window_at: u64, is_last: bool) -> usize {
        let mut done = 0;
        while let Some(rest) = window.get(done..).filter(|rest| !rest.is_empty()) {
            let address = window_at + done as u64;
            let expected = Expected { pool: self.pool, ring: self.ring, address };
            match Batch::parse(rest, &expected) {
                // The batch is whole, so nothing later was written inside it.
                Ok(batch) => {
                    done += batch.bytes().len();
                    self.take(copy, number, batch);
                    continue;
                }
                Err(BatchError::Short { .. }) if !is_last => return done,
                Err(BatchError::Version { kind, version }) => {
                    if BatchHeader::peek(rest).is_some_and(|header| self.counts(&header)) {
                        let (pool, disk) = (self.pool, copy.disk);
                        let unknown = RecoverError::Version { pool, disk, address, kind, version };
                        self.found.borrow_mut().unknown = Some(unknown);
                    }
                }
                Err(_) => {}
            }
            done = (done + BLOCK_STEP).min(window.len());
        }
        done
    }

    fn take(&self, copy: &LogCopy, number: u32, batch: Batch) {
        if !self.counts(&batch.header) {
            return;
        }
        let mut found = self.found.borrow_mut();
        let lsn = batch.header.lsn;
        let Some(sighting) = found.batches.get_mut(&lsn) else {
            found.batches.insert(lsn, Sighting { batch, present: 1 << number });
            return;
        };
        if sighting.batch == batch {
            sighting.present |= 1 << number;
        } else {
            found.damage.push(Damage::Conflict { lsn, disk: copy.disk });
        }
    }

    /// Whether a whole batch belongs to the live log: not to an earlier lap, nor to an epoch that did not own its
    /// LSN.
    fn counts(&self, header: &Header) -> bool {
        let owner = self.spans.iter().rev().find(|owner| owner.first <= header.lsn);
        let end = header.position.saturating_add(u64::from(header.length));
        owner.is_some_and(|owner| owner.epoch == header.epoch)
            && header.lsn >= self.tail.lsn
            && header.lsn.0 < u64::MAX
            && header.position >= self.tail.position
            && (end - self.tail.position <= self.ring.length || mutation!(BatchBeyondLap))
    }

    fn conclude(self, copies: &[LogCopy], failures: Vec<CopyFailure>) -> Result<Recovered, RecoverError> {
        let mut found = self.found.into_inner();
        if mutation!(OneLogIsEnough) {
            found.batches.retain(|_, sighting| sighting.present & 1 == 1);
        }
        if let Some(error) = found.unknown {
            return Err(error);
        }
        let (batches, recorded) = chain(found.batches);
        let last = batches.last().map(|sighting| sighting.batch.header);
        let after = last.map_or(self.tail, |last| Place {
            lsn: last.lsn.next(),
            position: last.position + u64::from(last.length),
        });
        let owned_from = self.spans.last().map_or(self.tail.lsn, |owner| owner.first);
        let next = Place { lsn: after.lsn.max(owned_from), position: after.position };
        let durable_mark =
            batches.iter().map(|sighting| sighting.batch.header.durable_mark).max().unwrap_or_default();
        let mut damage = found.damage;
        damage.extend(missing(&batches, &recorded, self.tail.lsn, durable_mark));
        Ok(Recovered {
            seams: self.seams.clone(),
            token: self.token,
            ring: self.ring,
            copies: copies.to_vec(),
            holes: holes(&batches, self.tail.lsn, next.lsn),
            batches,
            tail: self.tail,
            durable_mark,
            damage,
            failures,
            unreadable_blocks: found.unreadable_blocks,
            next,
        })
    }
}

/// A block, as a step in memory.
const BLOCK_STEP: usize = 4096;
const _: () = assert!(BLOCK_STEP as u64 == BLOCK_BYTES);

/// Drops what a later batch says is a hole, from the newest back: a batch that is a hole itself has no say. What
/// reaches into the place of a later batch is dropped too: it was overwritten elsewhere, so it was never complete.
fn chain(found: BTreeMap<Lsn, Sighting>) -> (Vec<Sighting>, LsnRanges) {
    let mut recorded = LsnRanges::default();
    let mut kept: Vec<Sighting> = Vec::with_capacity(found.len());
    for (lsn, sighting) in found.into_iter().rev() {
        let header = sighting.batch.header;
        let end = header.position.saturating_add(u64::from(header.length));
        let after = kept.last().map_or(u64::MAX, |later| later.batch.header.position);
        if recorded.contains(lsn) || end > after {
            continue;
        }
        for record in sighting.batch.records().filter(|record| record.kind == KIND_HOLES) {
            for range in hole_ranges(record.body).unwrap_or_default() {
                let last = range.last.get().min(lsn.0.saturating_sub(1));
                recorded.insert(Lsn(range.first.get()), Lsn(last));
            }
        }
        kept.push(sighting);
    }
    kept.reverse();
    (kept, recorded)
}

/// LSNs from `first` up to `end` that no batch has.
fn holes(batches: &[Sighting], first: Lsn, end: Lsn) -> Vec<RangeInclusive<Lsn>> {
    let mut holes = Vec::new();
    let mut from = first;
    let present = batches.iter().map(|sighting| sighting.batch.header.lsn);
    for lsn in present.chain(std::iter::once(end)) {
        if lsn > from {
            holes.push(from..=Lsn(lsn.0 - 1));
        }
        from = lsn.next();
    }
    holes
}

/// What must be there and is not.
fn missing(batches: &[Sighting], recorded: &LsnRanges, first: Lsn, durable_mark: Lsn) -> Vec<Damage> {
    let mut known = recorded.clone();
    for sighting in batches {
        known.insert(sighting.batch.header.lsn, sighting.batch.header.lsn);
    }
    let mut damage: Vec<Damage> = known
        .missing_in(first, durable_mark)
        .into_iter()
        .map(|range| Damage::MarkedDurable { first: *range.start(), last: *range.end(), durable_mark })
        .collect();
    for header in batches.iter().map(|sighting| sighting.batch.header) {
        let lsn = header.durable_before;
        if lsn >= first && lsn > durable_mark && !known.contains(lsn) {
            damage.push(Damage::Durable { lsn, named_by: header.lsn });
            known.insert(lsn, lsn);
        }
    }
    damage
}

impl Recovered {
    /// The records in the order of the log.
    pub fn records(&self) -> impl Iterator<Item = (Lsn, Record<'_>)> {
        self.batches.iter().flat_map(|sighting| {
            let lsn = sighting.batch.header.lsn;
            sighting
                .batch
                .records()
                .filter(|record| record.kind != KIND_HOLES)
                .map(move |record| (lsn, record))
        })
    }

    /// The durable mark: block records up to it describe data that a flush has covered. Zero when none was found.
    #[must_use]
    pub fn durable_mark(&self) -> Lsn {
        self.durable_mark
    }

    /// LSNs from the tail up to [`next`](Self::next) that are in no batch, in order: damage, holes recorded by an
    /// earlier opener, and new ones. The log that is started from this records them all.
    #[must_use]
    pub fn holes(&self) -> &[RangeInclusive<Lsn>] {
        &self.holes
    }

    /// What was lost although it had to be there. A batch lost at the very end of the log, behind which nothing was
    /// written, is known to nobody and not named.
    #[must_use]
    pub fn damage(&self) -> &[Damage] {
        &self.damage
    }

    /// Copies that could not be read to their ends. What was found on them before counts.
    #[must_use]
    pub fn failures(&self) -> &[CopyFailure] {
        &self.failures
    }

    /// Blocks of all copies that the medium did not give; healing writes those again that are needed.
    #[must_use]
    pub fn unreadable_blocks(&self) -> u64 {
        self.unreadable_blocks
    }

    /// Where the log goes on. Its LSN is the first of the opener's epoch.
    #[must_use]
    pub fn next(&self) -> Place {
        self.next
    }

    /// Holes and end as a test wants them.
    #[cfg(test)]
    pub(crate) fn pretend(&mut self, next: Lsn, holes: Vec<RangeInclusive<Lsn>>) {
        self.next.lsn = next;
        self.holes = holes;
    }

    /// The highest LSN that was recovered; zero when none was.
    pub(crate) fn last(&self) -> Lsn {
        self.batches.last().map_or(Lsn(0), |sighting| sighting.batch.header.lsn)
    }
}

impl fmt::Debug for Recovered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recovered")
            .field("batches", &self.batches.len())
            .field("settled", &self.durable_mark)
            .field("holes", &self.holes)
            .field("damage", &self.damage)
            .field("failures", &self.failures)
            .field("next", &self.next)
            .finish_non_exhaustive()
    }
}
