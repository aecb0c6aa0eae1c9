//! A tape of everything that was asked for and acknowledged, and what it allows a crash to leave.
//!
//! - A *mark* is a place on the tape: behind so many events of the disks, and behind so many things that the host did
//!   without a disk (an epoch put on record, an acknowledgement).
//! - An *instant* is when the crash came. Several instants share one state of the disks.

#![allow(
    dead_code,
    unreachable_pub,
    missing_docs,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation
)]

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use dolmen_block_io::{Durability, Seams};
use dolmen_pool::{
    Arbiter, ArbiterError, HostRecord, LocalFuture, MemoryArbiter, Pool, PoolError, Purpose, keys,
};
use dolmen_sim::{Cut, Recorder, World};
use dolmen_space::{Space, SpaceError, SpaceSpec, Spaces};
use dolmen_units::{Bytes, EpochId, HostId, PoolId, SpaceId};

use crate::harness::{Outcome, pattern};

pub const BLOCK: u64 = 4096;
pub const INTERLEAVE: Bytes = Bytes::kib(16);
pub const HOST: HostId = HostId([7; 16]);

/// A place on the tape.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mark {
    pub cut: usize,
    pub order: u64,
}

/// When a crash came.
#[derive(Debug, Clone, Copy)]
pub struct Instant {
    pub cut: usize,
    /// What the host did at this cut with a lower number has happened.
    pub limit: u64,
}

impl Mark {
    pub fn is_past(self, instant: Instant) -> bool {
        self.cut < instant.cut || (self.cut == instant.cut && self.order < instant.limit)
    }
}

/// How the process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Death {
    PowerCut,
    /// What completed stays.
    Kill,
}

/// What was asked for.
#[derive(Debug, Clone)]
pub enum Operation {
    Pool,
    Make {
        size: u64,
    },
    Resize {
        size: u64,
    },
    Delete,
    /// Content of a range of blocks; 0 for a discard.
    Put {
        first: u64,
        count: u64,
        fill: u8,
    },
    Flush,
    Export,
    /// A disk becomes a member.
    Join {
        disk: usize,
    },
    /// One takes the place of another.
    Replace {
        old: usize,
        new: usize,
    },
    /// One leaves without another in its place.
    Remove {
        disk: usize,
    },
    /// A disk misses what is written from here until the deed is acknowledged.
    Weak {
        disk: usize,
    },
    /// Rows of [`FILLER`] are put on the map, or taken off it, by one change.
    Map {
        rows: Rc<[u64]>,
        value: Option<u8>,
    },
    /// Something that was refused, and so changed nothing.
    Refused,
    /// A kind of step: only a name for a stretch of the tape.
    Step,
}

/// A space that is not there, and whose rows fill the map.
pub const FILLER: SpaceId = SpaceId(999);
/// Bytes of the record of such a row.
pub const FILLER_BYTES: usize = 200;

#[derive(Debug, Clone)]
pub struct Entry {
    pub name: &'static str,
    pub operation: Operation,
    pub begun: Mark,
    pub acked: Option<Mark>,
}

/// The tape.
pub struct Recording {
    recorder: OnceCell<Recorder>,
    order: Cell<u64>,
    pub entries: RefCell<Vec<Entry>>,
    pub epochs: RefCell<Vec<(Mark, Option<EpochId>)>>,
    fills: Cell<u8>,
}

impl Recording {
    pub fn new(recorder: Option<Recorder>) -> Rc<Self> {
        Rc::new(Self {
            recorder: recorder.map_or_else(OnceCell::new, OnceCell::from),
            order: Cell::new(0),
            entries: RefCell::default(),
            epochs: RefCell::default(),
            fills: Cell::new(0),
        })
    }

    pub fn recorder(&self) -> &Recorder {
        self.recorder.get().unwrap()
    }

    /// Records from now on. What was noted before has happened before every cut.
    pub fn record(&self, world: &World) {
        self.epochs.borrow_mut().iter_mut().for_each(|(mark, _)| mark.order = 0);
        assert!(self.recorder.set(world.record()).is_ok(), "a tape records once");
    }

    fn cut(&self) -> usize {
        self.recorder.get().map_or(0, |recorder| recorder.now().0)
    }

    pub fn mark(&self) -> Mark {
        self.order.set(self.order.get() + 1);
        Mark { cut: self.cut(), order: self.order.get() }
    }

    pub fn begin(&self, name: &'static str, operation: Operation) -> usize {
        let entry = Entry { name, operation, begun: self.mark(), acked: None };
        self.entries.borrow_mut().push(entry);
        self.entries.borrow().len() - 1
    }

    pub fn ack(&self, index: usize) {
        let mark = self.mark();
        self.entries.borrow_mut()[index].acked = Some(mark);
    }

    pub fn refused(&self, index: usize) {
        self.entries.borrow_mut()[index].operation = Operation::Refused;
    }

    /// The crash that comes now, behind everything.
    pub fn end(&self) -> Instant {
        Instant { cut: self.cut(), limit: u64::MAX }
    }

    /// The instants of a cut: before each change of the host's record, and behind all.
    pub fn instants(&self, cut: Cut) -> Vec<Instant> {
        let epochs = self.epochs.borrow();
        let at =
            epochs.iter().filter(|(mark, _)| mark.cut == cut.0 && mark.order > 0).map(|(mark, _)| mark.order);
        at.chain([u64::MAX]).map(|limit| Instant { cut: cut.0, limit }).collect()
    }

    /// The host's record at an instant, beginning with what it was before the tape.
    pub fn named(&self, instant: Instant) -> Option<EpochId> {
        let epochs = self.epochs.borrow();
        epochs.iter().rev().find(|(mark, _)| mark.is_past(instant)).and_then(|(_, epoch)| *epoch)
    }

    fn next_fill(&self) -> u8 {
        self.fills.set(self.fills.get() + 1);
        self.fills.get()
    }
}

/// A host whose record is kept with its history.
pub struct NotingArbiter {
    pub inner: Rc<MemoryArbiter>,
    pub recording: Rc<Recording>,
    pub pool: Cell<PoolId>,
}

impl NotingArbiter {
    pub fn new(recording: &Rc<Recording>) -> Rc<Self> {
        Rc::new(Self {
            inner: MemoryArbiter::new(HOST),
            recording: Rc::clone(recording),
            pool: Cell::new(PoolId::NONE),
        })
    }
}

impl Arbiter for NotingArbiter {
    fn host(&self) -> HostId {
        self.inner.host()
    }

    fn named(&self, pool: PoolId) -> LocalFuture<'_, Result<Option<HostRecord>, ArbiterError>> {
        self.inner.named(pool)
    }

    fn record(&self, pool: PoolId, record: HostRecord) -> LocalFuture<'_, Result<(), ArbiterError>> {
        self.pool.set(pool);
        let mark = self.recording.mark();
        self.recording.epochs.borrow_mut().push((mark, Some(record.epoch)));
        self.inner.record(pool, record)
    }

    fn withdraw(&self, pool: PoolId) -> LocalFuture<'_, Result<(), ArbiterError>> {
        let mark = self.recording.mark();
        self.recording.epochs.borrow_mut().push((mark, None));
        self.inner.withdraw(pool)
    }
}

/// A host that has this on record.
pub fn host_with(pool: PoolId, named: Option<EpochId>, recording: &Rc<Recording>) -> Rc<NotingArbiter> {
    let arbiter = NotingArbiter::new(recording);
    arbiter.pool.set(pool);
    if let Some(epoch) = named {
        // It takes effect at the call; the future has nothing left to do.
        drop(arbiter.inner.record(pool, epoch.into()));
        recording.epochs.borrow_mut().push((Mark { cut: 0, order: 0 }, Some(epoch)));
    }
    arbiter
}

/// Who works on spaces and notes it on the tape.
#[derive(Clone)]
pub struct OperationRecorder {
    pub recording: Rc<Recording>,
    pub seams: Seams,
}

impl OperationRecorder {
    pub async fn make(
        &self,
        spaces: &Spaces,
        name: &'static str,
        spec: SpaceSpec,
    ) -> Result<Space, SpaceError> {
        let index = self.recording.begin(name, Operation::Make { size: spec.size.0 });
        let space = spaces.create(spec).await?;
        self.recording.ack(index);
        Ok(space)
    }

    /// Writes blocks with content that nobody wrote before.
    pub async fn put(&self, name: &'static str, space: &Space, first: u64, count: u64) -> Outcome {
        let fill = self.recording.next_fill();
        let mut buffer = self.seams.data.take((count * BLOCK) as usize).await;
        pattern(first * BLOCK, fill, &mut buffer);
        let index = self.recording.begin(name, Operation::Put { first, count, fill });
        // Lives are long functions of many of these, each of which takes stack for all of it where nothing is optimised.
        Box::pin(space.write(first * BLOCK, &buffer.freeze(), Durability::Cached)).await?;
        self.recording.ack(index);
        Ok(())
    }

    pub async fn discard(&self, name: &'static str, space: &Space, first: u64, count: u64) -> Outcome {
        let index = self.recording.begin(name, Operation::Put { first, count, fill: 0 });
        space.discard(first * BLOCK, count * BLOCK).await?;
        self.recording.ack(index);
        Ok(())
    }

    pub async fn flush(&self, spaces: &Spaces) -> Outcome {
        let index = self.recording.begin("", Operation::Flush);
        spaces.flush().await?;
        self.recording.ack(index);
        Ok(())
    }

    /// Gives rows of the map one value, or takes them off it; whether there was room.
    pub async fn map(
        &self,
        pool: &Rc<Pool>,
        purpose: Purpose,
        rows: Vec<u64>,
        value: Option<u8>,
    ) -> Result<bool, PoolError> {
        let mut change = pool.change(purpose).await;
        for row in &rows {
            match value {
                Some(value) => change.put(keys::place(FILLER, *row), vec![value; FILLER_BYTES]),
                None => change.delete(keys::place(FILLER, *row)),
            }
        }
        let index = self.recording.begin("", Operation::Map { rows: rows.into(), value });
        match change.commit().await {
            Ok(()) => {
                self.recording.ack(index);
                Ok(true)
            }
            Err(PoolError::MetadataFull { .. }) => {
                self.recording.refused(index);
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    pub async fn resize(&self, name: &'static str, spaces: &Spaces, space: &Space, size: Bytes) -> Outcome {
        let index = self.recording.begin(name, Operation::Resize { size: size.0 });
        spaces.changes().resize(space, size).await?;
        self.recording.ack(index);
        Ok(())
    }

    pub async fn delete(&self, name: &'static str, spaces: &Spaces, space: &Space) -> Outcome {
        let index = self.recording.begin(name, Operation::Delete);
        spaces.changes().delete(space).await?;
        self.recording.ack(index);
        Ok(())
    }

    /// Names a stretch of the tape.
    pub async fn step<T>(&self, name: &'static str, body: impl Future<Output = T>) -> T {
        let index = self.recording.begin(name, Operation::Step);
        let value = body.await;
        self.recording.ack(index);
        value
    }
}

/// What one space may be.
#[derive(Debug, Clone, Default)]
pub struct ExpectedSpace {
    pub must_be: bool,
    pub may_be: bool,
    pub sizes: BTreeSet<u64>,
    /// For each block that was ever written, what it may hold; 0 for zeros.
    pub blocks: BTreeMap<u64, BTreeSet<u8>>,
}

/// What a crash may have left.
#[derive(Debug, Clone, Default)]
pub struct Expected {
    pub pool_must_be: bool,
    pub export_begun: bool,
    /// Disks that miss something at this instant.
    pub weak: BTreeSet<usize>,
    /// Disks that were to become members, and whether they must be by now.
    pub joins: Vec<(usize, bool)>,
    /// Replacements: old disk, new disk, and whether it must have been made by now.
    pub replacements: Vec<(usize, usize, bool)>,
    /// Disks that were to leave without another in their place, and whether they must have left by now.
    pub removals: Vec<(usize, bool)>,
    pub spaces: BTreeMap<&'static str, ExpectedSpace>,
    /// For each row of [`FILLER`] that ever was, what the map may say of it.
    pub map: BTreeMap<u64, BTreeSet<Option<u8>>>,
}

impl Expected {
    /// What the tape allows after a crash.
    pub fn at(recording: &Recording, instant: Instant, death: Death) -> Self {
        let mut expected = Self::default();
        let entries = recording.entries.borrow();
        let past = |mark: Option<Mark>| mark.is_some_and(|mark| mark.is_past(instant));
        let flushes: Vec<&Entry> =
            entries.iter().filter(|e| matches!(e.operation, Operation::Flush) && past(e.acked)).collect();
        for entry in entries.iter().filter(|entry| entry.begun.is_past(instant)) {
            let acked = past(entry.acked);
            match entry.operation {
                Operation::Map { ref rows, value } => {
                    for row in rows.iter() {
                        let values = expected.map.entry(*row).or_insert_with(|| BTreeSet::from([None]));
                        if acked {
                            values.clear();
                        }
                        values.insert(value);
                    }
                }
                Operation::Pool => expected.pool_must_be |= acked,
                Operation::Export => expected.export_begun = true,
                Operation::Join { disk } => expected.joins.push((disk, acked)),
                Operation::Replace { old, new } => expected.replacements.push((old, new, acked)),
                Operation::Remove { disk } => expected.removals.push((disk, acked)),
                Operation::Weak { disk } if !acked => _ = expected.weak.insert(disk),
                Operation::Weak { .. } | Operation::Flush | Operation::Refused | Operation::Step => {}
                Operation::Make { size } => {
                    let space = expected.spaces.entry(entry.name).or_default();
                    (space.must_be, space.may_be) = (acked, true);
                    space.sizes.insert(size);
                }
                Operation::Resize { size } => {
                    let space = expected.spaces.entry(entry.name).or_default();
                    if acked {
                        space.sizes.clear();
                    }
                    space.sizes.insert(size);
                }
                Operation::Delete => {
                    let space = expected.spaces.entry(entry.name).or_default();
                    (space.must_be, space.may_be) = (false, !acked);
                    space.blocks.values_mut().for_each(|fills| _ = fills.insert(0));
                }
                Operation::Put { first, count, fill } => {
                    let kept = match death {
                        Death::Kill => acked,
                        Death::PowerCut => {
                            flushes.iter().any(|flush| entry.acked.is_some_and(|acked| acked < flush.begun))
                        }
                    };
                    let space = expected.spaces.entry(entry.name).or_default();
                    for block in first..first + count {
                        let fills = space.blocks.entry(block).or_insert_with(|| BTreeSet::from([0]));
                        if kept {
                            fills.clear();
                        }
                        fills.insert(fill);
                    }
                }
            }
        }
        expected
    }
}
