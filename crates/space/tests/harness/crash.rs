//! What a crash may leave: a tape of everything that was asked for and acknowledged, and a judge that opens a state and
//! compares it with the tape.
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

use dolmen_block_io::{BlockDevice, Durability, Seams};
use dolmen_disk::MemberState;
use dolmen_pool::{
    Arbiter, ArbiterError, LocalFuture, MemoryArbiter, OpenError, OpenMode, OpenOptions, Pool, PoolError,
    Purpose, discover, keys, open,
};
use dolmen_sim::{Cut, Recorder, Reopened, StopAt, World};
use dolmen_space::{
    HeaderFault, IncidentKind, Integrity, Progress, Space, SpaceError, SpaceRange, SpaceSpec, Spaces,
    UnreadableReason, WrongHeader,
};
use dolmen_units::{Bytes, EpochId, HostId, PoolId, SpaceId};

use crate::harness::{Kind, Outcome, ROW, pattern, read};

pub const BLOCK: u64 = 4096;
const INTERLEAVE: Bytes = Bytes::kib(16);
/// Steps of one opening with all that follows, at most.
const STEPS_MAX: u64 = 300_000;
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
pub enum Deed {
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
const FILLER_BYTES: usize = 200;

#[derive(Debug, Clone)]
pub struct Entry {
    pub name: &'static str,
    pub deed: Deed,
    pub begun: Mark,
    pub acked: Option<Mark>,
}

/// The tape.
pub struct Tape {
    recorder: OnceCell<Recorder>,
    order: Cell<u64>,
    pub entries: RefCell<Vec<Entry>>,
    pub epochs: RefCell<Vec<(Mark, Option<EpochId>)>>,
    fills: Cell<u8>,
}

impl Tape {
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
        assert!(self.recorder.set(world.record()).is_ok(), "a tape records once");
    }

    fn cut(&self) -> usize {
        self.recorder.get().map_or(0, |recorder| recorder.now().0)
    }

    pub fn mark(&self) -> Mark {
        self.order.set(self.order.get() + 1);
        Mark { cut: self.cut(), order: self.order.get() }
    }

    pub fn begin(&self, name: &'static str, deed: Deed) -> usize {
        let entry = Entry { name, deed, begun: self.mark(), acked: None };
        self.entries.borrow_mut().push(entry);
        self.entries.borrow().len() - 1
    }

    pub fn ack(&self, index: usize) {
        let mark = self.mark();
        self.entries.borrow_mut()[index].acked = Some(mark);
    }

    pub fn refused(&self, index: usize) {
        self.entries.borrow_mut()[index].deed = Deed::Refused;
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
    pub tape: Rc<Tape>,
    pub pool: Cell<PoolId>,
}

impl NotingArbiter {
    pub fn new(tape: &Rc<Tape>) -> Rc<Self> {
        Rc::new(Self {
            inner: MemoryArbiter::new(HOST),
            tape: Rc::clone(tape),
            pool: Cell::new(PoolId::NONE),
        })
    }
}

impl Arbiter for NotingArbiter {
    fn host(&self) -> HostId {
        self.inner.host()
    }

    fn named(&self, pool: PoolId) -> LocalFuture<'_, Result<Option<EpochId>, ArbiterError>> {
        self.inner.named(pool)
    }

    fn record(&self, pool: PoolId, epoch: EpochId) -> LocalFuture<'_, Result<(), ArbiterError>> {
        self.pool.set(pool);
        let mark = self.tape.mark();
        self.tape.epochs.borrow_mut().push((mark, Some(epoch)));
        self.inner.record(pool, epoch)
    }

    fn withdraw(&self, pool: PoolId) -> LocalFuture<'_, Result<(), ArbiterError>> {
        let mark = self.tape.mark();
        self.tape.epochs.borrow_mut().push((mark, None));
        self.inner.withdraw(pool)
    }
}

/// A host that has this on record.
pub fn host_with(pool: PoolId, named: Option<EpochId>, tape: &Rc<Tape>) -> Rc<NotingArbiter> {
    let arbiter = NotingArbiter::new(tape);
    arbiter.pool.set(pool);
    if let Some(epoch) = named {
        // It takes effect at the call; the future has nothing left to do.
        drop(arbiter.inner.record(pool, epoch));
        tape.epochs.borrow_mut().push((Mark { cut: 0, order: 0 }, Some(epoch)));
    }
    arbiter
}

/// Who works on spaces and notes it on the tape.
#[derive(Clone)]
pub struct Scribe {
    pub tape: Rc<Tape>,
    pub seams: Seams,
}

impl Scribe {
    pub async fn make(
        &self,
        spaces: &Spaces,
        name: &'static str,
        size: Bytes,
        kind: Kind,
    ) -> Result<Rc<Space>, SpaceError> {
        let index = self.tape.begin(name, Deed::Make { size: size.0 });
        let mut spec = SpaceSpec::usual(name.parse().unwrap(), size, kind.resiliency);
        spec.integrity = kind.integrity;
        spec.row = Some(ROW);
        spec.interleave = INTERLEAVE;
        let space = spaces.create(spec).await?;
        self.tape.ack(index);
        Ok(space)
    }

    /// Writes blocks with content that nobody wrote before.
    pub async fn put(&self, name: &'static str, space: &Space, first: u64, count: u64) -> Outcome {
        let fill = self.tape.next_fill();
        let mut buffer = self.seams.data.take((count * BLOCK) as usize).await;
        pattern(first * BLOCK, fill, &mut buffer);
        let index = self.tape.begin(name, Deed::Put { first, count, fill });
        // Lives are long functions of many of these, each of which takes stack for all of it where nothing is optimised.
        Box::pin(space.write(first * BLOCK, &buffer.freeze(), Durability::Cached)).await?;
        self.tape.ack(index);
        Ok(())
    }

    pub async fn discard(&self, name: &'static str, space: &Space, first: u64, count: u64) -> Outcome {
        let index = self.tape.begin(name, Deed::Put { first, count, fill: 0 });
        space.discard(first * BLOCK, count * BLOCK).await?;
        self.tape.ack(index);
        Ok(())
    }

    pub async fn flush(&self, spaces: &Spaces) -> Outcome {
        let index = self.tape.begin("", Deed::Flush);
        spaces.flush().await?;
        self.tape.ack(index);
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
                Some(value) => change.put(keys::row(FILLER, *row), vec![value; FILLER_BYTES]),
                None => change.delete(keys::row(FILLER, *row)),
            }
        }
        let index = self.tape.begin("", Deed::Map { rows: rows.into(), value });
        match change.commit().await {
            Ok(()) => {
                self.tape.ack(index);
                Ok(true)
            }
            Err(PoolError::MetadataFull { .. }) => {
                self.tape.refused(index);
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    pub async fn resize(
        &self,
        name: &'static str,
        spaces: &Spaces,
        space: &Rc<Space>,
        size: Bytes,
    ) -> Outcome {
        let index = self.tape.begin(name, Deed::Resize { size: size.0 });
        spaces.resize(space, size).await?;
        self.tape.ack(index);
        Ok(())
    }

    pub async fn delete(&self, name: &'static str, spaces: &Spaces, space: &Rc<Space>) -> Outcome {
        let index = self.tape.begin(name, Deed::Delete);
        spaces.delete(space).await?;
        self.tape.ack(index);
        Ok(())
    }

    /// Names a stretch of the tape.
    pub async fn step<T>(&self, name: &'static str, body: impl Future<Output = T>) -> T {
        let index = self.tape.begin(name, Deed::Step);
        let value = body.await;
        self.tape.ack(index);
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
    pub fn at(tape: &Tape, instant: Instant, death: Death) -> Self {
        let mut expected = Self::default();
        let entries = tape.entries.borrow();
        let past = |mark: Option<Mark>| mark.is_some_and(|mark| mark.is_past(instant));
        let flushes: Vec<&Entry> =
            entries.iter().filter(|e| matches!(e.deed, Deed::Flush) && past(e.acked)).collect();
        for entry in entries.iter().filter(|entry| entry.begun.is_past(instant)) {
            let acked = past(entry.acked);
            match entry.deed {
                Deed::Map { ref rows, value } => {
                    for row in rows.iter() {
                        let values = expected.map.entry(*row).or_insert_with(|| BTreeSet::from([None]));
                        if acked {
                            values.clear();
                        }
                        values.insert(value);
                    }
                }
                Deed::Pool => expected.pool_must_be |= acked,
                Deed::Export => expected.export_begun = true,
                Deed::Join { disk } => expected.joins.push((disk, acked)),
                Deed::Replace { old, new } => expected.replacements.push((old, new, acked)),
                Deed::Remove { disk } => expected.removals.push((disk, acked)),
                Deed::Weak { disk } if !acked => _ = expected.weak.insert(disk),
                Deed::Weak { .. } | Deed::Flush | Deed::Refused | Deed::Step => {}
                Deed::Make { size } => {
                    let space = expected.spaces.entry(entry.name).or_default();
                    (space.must_be, space.may_be) = (acked, true);
                    space.sizes.insert(size);
                }
                Deed::Resize { size } => {
                    let space = expected.spaces.entry(entry.name).or_default();
                    if acked {
                        space.sizes.clear();
                    }
                    space.sizes.insert(size);
                }
                Deed::Delete => {
                    let space = expected.spaces.entry(entry.name).or_default();
                    (space.must_be, space.may_be) = (false, !acked);
                    space.blocks.values_mut().for_each(|fills| _ = fills.insert(0));
                }
                Deed::Put { first, count, fill } => {
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

/// Where a bit has turned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flipped {
    /// In one copy of a block, or of what shares parity with it.
    Block(&'static str, u64),
    /// In a copy of what tells of blocks, such as a table: of any.
    Elsewhere,
}

/// A crash to be judged.
#[derive(Debug, Clone)]
pub struct Case {
    pub expected: Expected,
    pub copies: u8,
    /// Data columns that share parity; none without.
    pub parity_of: Option<u64>,
    /// Disks that are not attached.
    pub gone: BTreeSet<usize>,
    /// Disks that were not attached when the crash was recovered from.
    pub gone_then: BTreeSet<usize>,
    /// Where a bit has turned.
    pub flipped: Option<Flipped>,
    /// The disk that goes when all has been verified, if the space survives that.
    pub lost_later: usize,
    /// Whether blocks may be torn.
    pub torn: bool,
    /// Whether a header may be: that of an heir which took its row's place is written over what stood there, before a flush.
    pub torn_headers: bool,
    /// Whether everything is tried: writes, closing, and opening again.
    pub thorough: bool,
}

impl Case {
    /// Whether disks that hold all copies of something may be missing or behind.
    pub fn is_beyond_redundancy(&self) -> bool {
        let lost: BTreeSet<usize> = self.gone.union(&self.expected.weak).copied().collect();
        lost.len() >= usize::from(self.copies)
    }

    fn line_of(&self, block: u64) -> (u64, u64) {
        self.parity_of.map_or((0, block), |columns| line_of(columns, block))
    }

    /// Whether a block has one copy left, and that one is damaged.
    fn may_be_lost(&self, name: &str, block: u64) -> bool {
        let fills = self.expected.spaces.get(name).and_then(|space| space.blocks.get(&block));
        // One in flight was decided for good with the disks of then.
        let decided = fills.is_some_and(|fills| fills.len() > 1);
        let absent = if decided { &self.gone_then } else { &self.gone };
        let lost = absent.union(&self.expected.weak).count() + 1;
        let is_hit = |flipped| flipped == block || self.line_of(flipped) == self.line_of(block);
        let hit = match self.flipped {
            Some(Flipped::Block(space, flipped)) => space == name && is_hit(flipped),
            Some(Flipped::Elsewhere) => true,
            None => false,
        };
        hit && lost >= usize::from(self.copies)
    }
}

/// What shares parity with a block: the row, and the block of each of so many columns.
pub fn line_of(columns: u64, block: u64) -> (u64, u64) {
    let (row, within) = (block / (ROW.0 / BLOCK), block % (ROW.0 / BLOCK));
    let (unit, in_unit) = (within / (INTERLEAVE.0 / BLOCK), within % (INTERLEAVE.0 / BLOCK));
    (row, unit / columns * (INTERLEAVE.0 / BLOCK) + in_unit)
}

/// What was found in blocks, by name of the space.
type Contents = BTreeMap<(&'static str, u64), Vec<u8>>;

/// Opens the pool that is on the devices, as the daemon does.
pub async fn open_pool(
    seams: &Seams,
    devices: &[Rc<dyn BlockDevice>],
    arbiter: Rc<dyn Arbiter>,
    mode: OpenMode,
) -> Result<Rc<Spaces>, Refusal> {
    let found = discover(seams, devices).await;
    let candidates = found.pools.into_values().next().unwrap_or_default();
    let opened = open(seams, arbiter, candidates, &OpenOptions { mode }).await.map_err(Refusal::Open)?;
    Spaces::start(opened).await.map_err(|error| Refusal::Start(error.to_string()))
}

#[derive(Debug)]
pub enum Refusal {
    Open(OpenError),
    Start(String),
}

/// The devices of a trial: those that are there from the beginning, and those that come back at its end.
pub struct Devices {
    pub here: Vec<Rc<dyn BlockDevice>>,
    pub later: Vec<Rc<dyn BlockDevice>>,
}

/// Opens what a crash left and judges it.
pub async fn examine(
    case: Rc<Case>,
    seams: Seams,
    devices: Devices,
    arbiter: Rc<NotingArbiter>,
) -> Result<(), String> {
    let host = || Rc::clone(&arbiter) as Rc<dyn Arbiter>;
    let open = |mode| open_pool(&seams, &devices.here, host(), mode);
    let (spaces, confirmed) = match open(OpenMode::Write).await {
        Ok(spaces) => (spaces, false),
        Err(Refusal::Open(_)) if !case.expected.pool_must_be => return Ok(()),
        Err(Refusal::Open(OpenError::ReadOnly { .. }))
            if case.is_beyond_redundancy() || (case.expected.export_begun && !case.gone.is_empty()) =>
        {
            match open(OpenMode::Confirmed).await {
                Ok(spaces) => (spaces, true),
                // Of the newest epoch's disks those are gone that have its map. An older one is not offered.
                Err(Refusal::Open(OpenError::NoMetadata { .. })) if case.is_beyond_redundancy() => {
                    return Ok(());
                }
                Err(error) => return Err(format!("does not open when confirmed: {error:?}")),
            }
        }
        Err(Refusal::Open(OpenError::NoMetadata { .. })) if case.is_beyond_redundancy() => return Ok(()),
        Err(error) => return Err(format!("does not open: {error:?}")),
    };
    if confirmed && case.is_beyond_redundancy() {
        // Whoever confirms accepts what is here; it only has to hang together.
        check_map(&spaces).await?;
        return spaces.close().await.map_err(|error| format!("does not close when confirmed: {error}"));
    }
    let first = judge_contents(&case, &spaces).await?;
    let moved = !case.expected.joins.is_empty() || !case.expected.replacements.is_empty();
    if (moved || case.thorough) && case.gone.is_empty() {
        settle_members(&case, &spaces).await?;
    } else if !confirmed && !case.is_beyond_redundancy() {
        // What is away may be waited for.
        end_removals(&spaces).await?;
    }
    if case.thorough {
        check_clean(&case, &spaces).await?;
        if !case.is_beyond_redundancy() {
            try_writes(&case, &seams, &spaces).await?;
        }
    } else {
        check_map(&spaces).await?;
    }
    spaces.close().await.map_err(|error| format!("does not close: {error}"))?;
    drop(spaces);
    if case.thorough {
        let spaces =
            open(OpenMode::Write).await.map_err(|error| format!("does not open again: {error:?}"))?;
        judge_again(&case, &spaces, &first).await?;
        spaces.close().await.map_err(|error| format!("does not close again: {error}"))?;
    }
    if case.thorough && !confirmed && case.gone.is_empty() && !case.is_beyond_redundancy() && case.copies > 1
    {
        lose_one(&case, &seams, &devices, host(), &first).await?;
    }
    // A confirmed opening goes on without the disks that were not there, for good.
    if case.thorough && !case.gone.is_empty() && !confirmed {
        let all: Vec<_> = devices.here.iter().chain(&devices.later).cloned().collect();
        let opened = open_pool(&seams, &all, host(), OpenMode::Write).await;
        let spaces = opened.map_err(|error| format!("does not open with all disks: {error:?}"))?;
        let whole = Case { gone: BTreeSet::new(), gone_then: case.gone.clone(), ..(*case).clone() };
        let resynced = spaces.resync(&Progress::default()).await.map_err(|error| error.to_string())?;
        if !spaces.stale_rows().await.map_err(|error| error.to_string())?.is_empty() {
            return Err(format!("rows stay stale with all disks: {resynced:?}"));
        }
        settle_members(&whole, &spaces).await.map_err(|why| format!("resynced: {why}"))?;
        judge_again(&whole, &spaces, &first).await.map_err(|why| format!("resynced: {why}"))?;
        check_clean(&whole, &spaces).await.map_err(|why| format!("resynced: {why}"))?;
        spaces.close().await.map_err(|error| format!("does not close with all disks: {error}"))?;
    }
    Ok(())
}

/// After everything was verified, and healed where it had to be, any one disk may go.
async fn lose_one(
    case: &Case,
    seams: &Seams,
    devices: &Devices,
    arbiter: Rc<dyn Arbiter>,
    first: &Contents,
) -> Result<(), String> {
    let mut left = devices.here.clone();
    left.remove(case.lost_later % left.len());
    let opened = open_pool(seams, &left, arbiter, OpenMode::Write).await;
    let spaces = opened.map_err(|error| format!("does not open without one disk: {error:?}"))?;
    // Of a line that has lost a block already, nothing survives the loss of another.
    let is_whole = |(name, block): &(&'static str, u64)| !case.may_be_lost(name, *block);
    let whole = first.iter().filter(|(place, _)| is_whole(place));
    let whole: Contents = whole.map(|(place, bytes)| (*place, bytes.clone())).collect();
    judge_again(case, &spaces, &whole).await.map_err(|why| format!("without one disk: {why}"))?;
    spaces.close().await.map_err(|error| format!("does not close without one disk: {error}"))
}

/// Goes on with removals that were cut; the disk that still has something, if any has.
async fn end_removals(spaces: &Spaces) -> Result<Option<String>, String> {
    let said = |error: &dyn std::fmt::Display| format!("a removal does not go on: {error}");
    for disk in spaces.drains() {
        if !spaces.drain_disk(&disk, &Progress::default()).await.map_err(|error| said(&error))? {
            return Ok(Some(disk.name()));
        }
        spaces.pool().strike(&disk).await.map_err(|error| said(&error))?;
        spaces.pool().tend_voters().await.map_err(|error| said(&error))?;
    }
    Ok(None)
}

/// Replacements and removals that were cut are brought to their end; then the members are the old ones or the new ones, and everything
/// has its full redundancy on them.
async fn settle_members(case: &Case, spaces: &Spaces) -> Result<(), String> {
    if case.is_beyond_redundancy() {
        return Ok(());
    }
    let said = |what: &str, error: &dyn std::fmt::Display| format!("{what}: {error}");
    for (old, new) in spaces.pool().replacements() {
        let done = spaces.finish_replacing(&old, &new, &Progress::default()).await;
        if !done.map_err(|error| said("a replacement does not go on", &error))? {
            return Err(format!("{} cannot be left although all disks are here", old.name()));
        }
    }
    spaces.resync(&Progress::default()).await.map_err(|error| said("resync", &error))?;
    if let Some(disk) = end_removals(spaces).await? {
        return Err(format!("{disk} has something left although all disks are here"));
    }
    let stale = spaces.stale_rows().await.map_err(|error| said("stale rows", &error))?;
    if !stale.is_empty() {
        return Err(format!("rows stay stale although all disks are here: {stale:?}"));
    }
    let members = spaces.pool().disks();
    let retired = members.iter().find(|disk| disk.member().state == MemberState::Retired);
    if let Some(disk) = retired {
        return Err(format!("{} is retired and nobody goes on with it", disk.name()));
    }
    let is_member = |number: usize| members.iter().any(|disk| disk.name() == crate::life::name_of(number));
    for (disk, must) in &case.expected.joins {
        if *must && !is_member(*disk) {
            return Err(format!("disk{disk} was added and is no member"));
        }
    }
    for (old, new, must) in &case.expected.replacements {
        if is_member(*old) == is_member(*new) || (*must && is_member(*old)) {
            let (old_is, new_is) = (is_member(*old), is_member(*new));
            return Err(format!("replaced by halves: disk{old} {old_is}, disk{new} {new_is}"));
        }
    }
    for (disk, must) in &case.expected.removals {
        if *must && is_member(*disk) {
            return Err(format!("disk{disk} was removed and is a member"));
        }
    }
    let left = |number: &usize| case.expected.removals.iter().any(|(disk, _)| disk == number);
    if let Some(number) = (0..crate::life::DISKS).find(|number| {
        let is_replaced = case.expected.replacements.iter().any(|(old, ..)| old == number);
        !is_member(*number) && !left(number) && !is_replaced
    }) {
        return Err(format!("disk{number} is no member although nobody removed it"));
    }
    let joined = |number: &usize| case.expected.joins.iter().any(|(disk, _)| disk == number);
    let replaced = |number: &usize| case.expected.replacements.iter().any(|(_, new, _)| new == number);
    match (crate::life::DISKS..crate::life::DISKS + 2)
        .find(|number| is_member(*number) && !joined(number) && !replaced(number))
    {
        Some(number) => Err(format!("disk{number} is a member although nobody asked for it")),
        None => Ok(()),
    }
}

/// Everything that could be read still reads the same, and the rest as it may.
async fn judge_again(case: &Case, spaces: &Spaces, first: &Contents) -> Result<(), String> {
    check_map(spaces).await?;
    let now = judge_contents_as(case, spaces, Some(first)).await?;
    for ((name, block), before) in first {
        match now.get(&(*name, *block)) {
            Some(now) if now == before => {}
            Some(now) => {
                let (before, now) = (told(*block, before), told(*block, now));
                return Err(format!(
                    "{name} block {block} changed from {before} to {now} by closing and opening"
                ));
            }
            None => return Err(format!("{name} block {block} cannot be read any more")),
        }
    }
    Ok(())
}

async fn judge_contents(case: &Case, spaces: &Spaces) -> Result<Contents, String> {
    judge_contents_as(case, spaces, None).await
}

/// What blocks hold, each judged unless it was before.
async fn judge_contents_as(
    case: &Case,
    spaces: &Spaces,
    before: Option<&Contents>,
) -> Result<Contents, String> {
    let mut contents = Contents::new();
    judge_map(case, spaces).await?;
    for space in spaces.list() {
        if !case.expected.spaces.contains_key(space.name().as_str()) {
            return Err(format!("there is a space {} that nobody made", space.name()));
        }
    }
    for (name, expected) in &case.expected.spaces {
        let Ok(space) = spaces.find(name) else {
            if expected.must_be {
                return Err(format!("space {name} is gone"));
            }
            continue;
        };
        if !expected.may_be {
            return Err(format!("space {name} was deleted and is there"));
        }
        if !expected.sizes.contains(&space.size().0) {
            return Err(format!("space {name} has {} instead of one of {:?}", space.size(), expected.sizes));
        }
        for (block, fills) in &expected.blocks {
            if (block + 1) * BLOCK > space.size().0 {
                continue;
            }
            match space.read(block * BLOCK, BLOCK as usize).await {
                Ok(_) => {
                    let bytes = read(&space, block * BLOCK, BLOCK as usize)
                        .await
                        .map_err(|error| error.to_string())?;
                    if before.is_none_or(|before| !before.contains_key(&(*name, *block))) {
                        judge_block(case, spaces, &space, *block, fills, &bytes)
                            .map_err(|why| format!("{name} block {block} {why}"))?;
                    }
                    contents.insert((*name, *block), bytes);
                }
                Err(SpaceError::Unreadable { why: UnreadableReason::Absent, .. })
                    if case.is_beyond_redundancy() => {}
                Err(_) if case.may_be_lost(name, *block) => {}
                Err(error) => return Err(format!("{name} block {block}: {error}")),
            }
        }
    }
    Ok(contents)
}

/// Whether the map says of the rows that fill it what was committed.
async fn judge_map(case: &Case, spaces: &Spaces) -> Result<(), String> {
    if case.expected.map.is_empty() {
        return Ok(());
    }
    let scanned = spaces.pool().scan(keys::rows(FILLER, 0..u64::MAX), usize::MAX).await;
    let found: BTreeMap<_, _> = scanned.map_err(|error| error.to_string())?.into_iter().collect();
    for (row, values) in &case.expected.map {
        let value = found.get(&keys::row(FILLER, *row));
        let is = |expected: &Option<u8>| match (value, expected) {
            (Some(value), Some(expected)) => **value == [*expected; FILLER_BYTES],
            (None, None) => true,
            _ => false,
        };
        if !values.iter().any(is) {
            let value = value.map(|value| value.first());
            return Err(format!("row {row} of the map begins with {value:?} instead of one of {values:?}"));
        }
    }
    Ok(())
}

fn judge_block(
    case: &Case,
    spaces: &Spaces,
    space: &Space,
    block: u64,
    fills: &BTreeSet<u8>,
    bytes: &[u8],
) -> Result<(), String> {
    let whole = |fill: &u8| *bytes == *content(block, *fill);
    if fills.iter().any(whole) {
        return Ok(());
    }
    let listed = spaces.incidents().iter().any(|incident| {
        let end = incident.at + incident.length.0;
        incident.kind == IncidentKind::TakenAsFound
            && incident.space == space.id()
            && (incident.at..end).contains(&(block * BLOCK))
    });
    let by_sector = |sector: usize| {
        let range = sector * 512..(sector + 1) * 512;
        fills.iter().any(|fill| bytes[range.clone()] == content(block, *fill)[range.clone()])
    };
    let mixed = (0..8).all(by_sector);
    // The one exception of P2, which strict spaces do not have: an overwrite was under way, no copy verifies, and recovery says so.
    if listed
        && space.spec().integrity == Integrity::Relaxed
        && (mixed || case.may_be_lost(space.name().as_str(), block))
        && fills.len() > 1
        && (case.torn || case.flipped.is_some())
    {
        return Ok(());
    }
    Err(format!(
        "holds {}, which is none of {fills:?} (listed: {listed}, a mixture: {mixed})",
        told(block, bytes)
    ))
}

/// The content of a block.
pub fn content(block: u64, fill: u8) -> Vec<u8> {
    let mut bytes = vec![0; BLOCK as usize];
    pattern(block * BLOCK, fill, &mut bytes);
    bytes
}

/// Bytes by which a block is told from all others.
pub const BEGINNING: usize = 16;

pub fn beginning(block: u64, fill: u8) -> Vec<u8> {
    let mut bytes = vec![0; BEGINNING];
    pattern(block * BLOCK, fill, &mut bytes);
    bytes
}

fn told(block: u64, bytes: &[u8]) -> String {
    match (0..=u8::MAX).find(|fill| content(block, *fill) == bytes) {
        Some(fill) => format!("fill {fill}"),
        None => {
            let sector = |sector: usize| {
                let range = sector * 512..(sector + 1) * 512;
                (0..=u8::MAX).find(|fill| content(block, *fill)[range.clone()] == bytes[range.clone()])
            };
            format!("a mixture {:?}", (0..8).map(sector).collect::<Vec<_>>())
        }
    }
}

async fn check_map(spaces: &Spaces) -> Result<(), String> {
    let findings = spaces.check_map().await.map_err(|error| format!("the map cannot be checked: {error}"))?;
    if findings.is_empty() { Ok(()) } else { Err(findings.join("; ")) }
}

async fn check_clean(case: &Case, spaces: &Spaces) -> Result<(), String> {
    check_map(spaces).await?;
    if case.is_beyond_redundancy() {
        return Ok(());
    }
    let seen = spaces.verify(&Progress::default()).await.map_err(|error| format!("verify: {error}"))?;
    let may_be = |range: &&SpaceRange| {
        let mut blocks = range.at / BLOCK..(range.at + range.length.0) / BLOCK;
        blocks.all(|block| case.may_be_lost(range.space.as_str(), block))
    };
    let unexpected: Vec<_> =
        seen.unreadable().filter(|range| !may_be(range)).map(ToString::to_string).collect();
    if !unexpected.is_empty() {
        return Err(format!("blocks without a good copy: {unexpected:?}"));
    }
    let is_torn = |wrong: &WrongHeader| wrong.fault == HeaderFault::Rotten && wrong.is_healed;
    let is_expected = case.flipped.is_some() || (case.torn_headers && seen.headers.iter().all(is_torn));
    if seen.header_count > 0 && !is_expected {
        return Err(format!("headers of slabs that are wrong: {:?}", seen.headers));
    }
    Ok(())
}

/// Writes to the last block of every space and to one in a row of its own, flushes, reads them, and forgets them again.
async fn try_writes(case: &Case, seams: &Seams, spaces: &Spaces) -> Result<(), String> {
    for space in spaces.list() {
        let blocks = space.size().0 / BLOCK;
        let known = |block: &u64| case.expected.spaces.values().any(|space| space.blocks.contains_key(block));
        let free = [blocks - 1, blocks / 2, 100, 3];
        for block in free.into_iter().filter(|block| *block < blocks && !known(block)).take(2) {
            for fill in [251, 252] {
                let mut buffer = seams.data.take(BLOCK as usize).await;
                pattern(block * BLOCK, fill, &mut buffer);
                let written = space.write(block * BLOCK, &buffer.freeze(), Durability::Durable).await;
                match written {
                    // A row needs as many disks as a block has copies.
                    Err(SpaceError::Pool(PoolError::NoSpace { .. })) if !case.gone.is_empty() => break,
                    Err(SpaceError::Pool(PoolError::MetadataFull { .. }))
                        if !case.expected.map.is_empty() =>
                    {
                        break;
                    }
                    Err(error) => {
                        return Err(format!("{} block {block} cannot be written: {error}", space.name()));
                    }
                    Ok(()) => {}
                }
                let found =
                    read(&space, block * BLOCK, BLOCK as usize).await.map_err(|error| error.to_string())?;
                if found != content(block, fill) {
                    return Err(format!(
                        "{} block {block} does not hold what was just written",
                        space.name()
                    ));
                }
            }
        }
    }
    Ok(())
}

/// Judges disks that a crash left, in their own world.
pub fn judge(reopened: &Reopened, case: Case, pool: PoolId, named: Option<EpochId>) -> Result<(), String> {
    reopened.world.set_arenas(crate::life::ARENAS, crate::life::ARENAS);
    let here = (0..reopened.disks.len()).filter(|disk| !case.gone.contains(disk)).collect();
    let devices = Devices {
        here: attach(&reopened.disks, &case.gone, &reopened.world),
        later: attach(&reopened.disks, &here, &reopened.world),
    };
    let arbiter = host_with(pool, named, &Tape::new(None));
    let case = Case { gone_then: case.gone.clone(), ..case };
    judge_in(&reopened.world, case, devices, arbiter)
}

/// Judges in a world that goes on.
pub fn judge_in(
    world: &World,
    case: Case,
    devices: Devices,
    arbiter: Rc<NotingArbiter>,
) -> Result<(), String> {
    world.set_steps_max(STEPS_MAX);
    let seams = world.seams();
    let verdict = world.run(examine(Rc::new(case), seams, devices, arbiter));
    verdict.map_err(|stuck| format!("stuck: {stuck}"))?
}

pub fn attach(
    disks: &[Option<Rc<dolmen_sim::SimDisk>>],
    gone: &BTreeSet<usize>,
    world: &World,
) -> Vec<Rc<dyn BlockDevice>> {
    let here = disks.iter().enumerate().filter(|(index, _)| !gone.contains(index));
    here.filter_map(|(_, disk)| disk.as_ref()).map(|disk| disk.attach(world)).collect()
}

/// Runs something up to a stop, however it ends.
pub fn run_for<T: 'static>(
    world: &World,
    commands: u64,
    body: impl Future<Output = T> + 'static,
) -> Option<T> {
    match world.run_to(StopAt::Commands(commands), body) {
        Ok(dolmen_sim::Ran::Finished(value)) => Some(value),
        Ok(dolmen_sim::Ran::Stopped) => None,
        Err(stuck) => panic!("{stuck}"),
    }
}
