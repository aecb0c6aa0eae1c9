//! Every state that a crash could have left: a workload is run once, and its writes and flushes are recorded in order.
//!
//! A *cut* is a point between two of the recorded events. What was durable by then is in every state of that cut; each
//! other write that was submitted by then is in it or not, or torn, by a [`CrashPlan`]. Images share what they have in
//! common, so a state costs little more than the writes that are in question.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::rc::Rc;

use crate::crash::{Content, CrashPlan, Fate, PendingWrite, Tear, Tearing, WriteCache};
use crate::disk::{DelayedWrite, SimDisk};
use crate::image::Image;
use crate::profile::DiskProfile;
use crate::trace::DiskIndex;
use crate::world::World;

#[derive(Clone)]
struct Base {
    name: String,
    profile: DiskProfile,
    image: Image,
}

enum Step {
    WriteBegun { disk: DiskIndex, number: u64, content: Rc<Content>, certain: bool },
    WriteDone { disk: DiskIndex, number: u64 },
    FlushBegun { disk: DiskIndex, number: u64 },
    FlushDone { disk: DiskIndex, number: u64 },
}

/// What disks tell while they are recorded.
#[derive(Default)]
pub(crate) struct Recording {
    bases: RefCell<Vec<Base>>,
    steps: RefCell<Vec<Step>>,
}

impl Recording {
    pub(crate) fn add_disk(&self, disk: &SimDisk) {
        let base =
            Base { name: disk.name().to_owned(), profile: disk.profile().clone(), image: disk.truth() };
        self.bases.borrow_mut().push(base);
    }

    pub(crate) fn write_begun(&self, disk: DiskIndex, number: u64, content: &Rc<Content>, certain: bool) {
        let content = Rc::clone(content);
        self.steps.borrow_mut().push(Step::WriteBegun { disk, number, content, certain });
    }

    pub(crate) fn write_done(&self, disk: DiskIndex, number: u64) {
        self.steps.borrow_mut().push(Step::WriteDone { disk, number });
    }

    pub(crate) fn flush_begun(&self, disk: DiskIndex, number: u64) {
        self.steps.borrow_mut().push(Step::FlushBegun { disk, number });
    }

    pub(crate) fn flush_done(&self, disk: DiskIndex, number: u64) {
        self.steps.borrow_mut().push(Step::FlushDone { disk, number });
    }
}

/// A point of a recording: behind so many events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cut(pub usize);

/// What befalls the states of a cut in addition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StateOptions {
    /// Whether writes are torn.
    pub tearing: Tearing,
    /// In every state, of all writes that land only the first so many sectors of each block land: all copies of a block
    /// are torn at the same place. For disks that write single sectors atomically; replaces `tearing`.
    pub torn_equally: Option<u8>,
    /// A disk that is gone.
    pub missing: Option<DiskIndex>,
    /// A bit that turned.
    pub flip: Option<BitFlip>,
    /// Whether unanswered writes that a state lost land after the disks are attached again.
    pub delayed_writes: DelayedWrites,
    /// For what a plan draws.
    pub seed: u64,
}

/// Whether unanswered writes land after a crash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DelayedWrites {
    /// What a crash lost is lost.
    Never,
    /// Writes that were not answered land once their disk is attached: the process died, its disks did not.
    Unanswered,
}

/// A bit that turned on the medium.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BitFlip {
    /// On which disk.
    pub disk: DiskIndex,
    /// In which byte.
    pub at: u64,
    /// Which bit of it.
    pub bit: u8,
}

impl Default for StateOptions {
    fn default() -> Self {
        let tearing = Tearing::Whole;
        let delayed_writes = DelayedWrites::Never;
        Self { tearing, torn_equally: None, missing: None, flip: None, delayed_writes, seed: 0 }
    }
}

/// A recording, while it grows and afterwards.
pub struct Recorder {
    recording: Rc<Recording>,
}

/// One disk at a cut.
struct Replay {
    base: Base,
    cache: WriteCache,
    /// Writes without an answer, by the number of their command.
    unanswered: BTreeMap<u64, (Rc<Content>, bool)>,
    flushes: BTreeMap<u64, u64>,
}

impl Recorder {
    pub(crate) fn new(recording: Rc<Recording>) -> Self {
        Self { recording }
    }

    /// The point behind all that was recorded so far: what an oracle notes when something is acknowledged.
    #[must_use]
    pub fn now(&self) -> Cut {
        Cut(self.recording.steps.borrow().len())
    }

    /// The cuts whose states can differ from those of the cut before: the beginning, behind each write that was
    /// submitted, behind each durable write and each flush that completed.
    #[must_use]
    pub fn cuts(&self) -> Vec<Cut> {
        let steps = self.recording.steps.borrow();
        let mut certain = std::collections::BTreeSet::new();
        let mut cuts = vec![Cut(0)];
        for (index, step) in steps.iter().enumerate() {
            let counts = match step {
                Step::WriteBegun { disk, number, certain: is_certain, .. } => {
                    if *is_certain {
                        certain.insert((*disk, *number));
                    }
                    true
                }
                Step::WriteDone { disk, number } => certain.contains(&(*disk, *number)),
                Step::FlushDone { .. } => true,
                Step::FlushBegun { .. } => false,
            };
            if counts {
                cuts.push(Cut(index + 1));
            }
        }
        cuts
    }

    fn replay(&self, cut: Cut) -> Vec<Replay> {
        let bases = self.recording.bases.borrow();
        let mut disks: Vec<Replay> = bases.iter().cloned().map(Replay::new).collect();
        for step in self.recording.steps.borrow().iter().take(cut.0) {
            match step {
                Step::WriteBegun { disk, number, content, certain } => {
                    if let Some(disk) = disks.get_mut(disk.0) {
                        disk.unanswered.insert(*number, (Rc::clone(content), *certain));
                    }
                }
                Step::WriteDone { disk, number } => {
                    if let Some(disk) = disks.get_mut(disk.0) {
                        disk.write_done(*number);
                    }
                }
                Step::FlushBegun { disk, number } => {
                    if let Some(disk) = disks.get_mut(disk.0) {
                        disk.flushes.insert(*number, disk.cache.mark());
                    }
                }
                Step::FlushDone { disk, number } => {
                    if let Some(disk) = disks.get_mut(disk.0) {
                        disk.flush_done(*number);
                    }
                }
            }
        }
        disks
    }

    /// The writes on whose fate the states of a cut differ, disk by disk.
    #[must_use]
    pub fn pending(&self, cut: Cut) -> Vec<PendingWrite> {
        pending(&self.replay(cut))
    }

    /// The states of a cut, each made as it is asked for. A disk that is missing has no say: its writes are not tried.
    pub fn states(&self, cut: Cut, options: &StateOptions) -> impl Iterator<Item = CrashState> + use<> {
        let options = *options;
        let replay = self.replay_with(cut, &options);
        let writes = pending(&replay);
        let units = writes.iter().map(|write| write.unit_count).collect();
        let tearing = if options.torn_equally.is_some() { Tearing::Whole } else { options.tearing };
        CrashPlan::new(units, tearing, options.seed).map(move |mut fates| {
            if let Some(sectors) = options.torn_equally {
                for fate in fates.iter_mut().filter(|fate| **fate == Fate::Landed) {
                    *fate = Fate::Torn(Tear::SectorsOfEachBlock(sectors));
                }
            }
            state_of(&replay, &writes, cut, &options, &fates)
        })
    }

    /// The one state of a cut in which its [pending](Self::pending) writes have these fates, in their order; one without a
    /// fate is lost. What the options say of tearing is passed over.
    #[must_use]
    pub fn state(&self, cut: Cut, fates: &[Fate], options: &StateOptions) -> CrashState {
        let replay = self.replay_with(cut, options);
        state_of(&replay, &pending(&replay), cut, options, fates)
    }

    fn replay_with(&self, cut: Cut, options: &StateOptions) -> Vec<Replay> {
        let mut replay = self.replay(cut);
        if let Some(gone) = options.missing.and_then(|disk| replay.get_mut(disk.0)) {
            *gone = Replay::new(Base { image: Image::new(), ..gone.base.clone() });
        }
        replay
    }
}

fn state_of(
    disks: &[Replay],
    writes: &[PendingWrite],
    cut: Cut,
    options: &StateOptions,
    fates: &[Fate],
) -> CrashState {
    let mut left = fates.iter().copied();
    let numbered = disks.iter().zip((0..).map(DiskIndex));
    let disks = numbered.map(|(disk, index)| disk.state(index, options, &mut left)).collect();
    let fates = fates.iter().copied().chain(std::iter::repeat(Fate::Lost));
    CrashState { cut, options: *options, fates: writes.iter().copied().zip(fates).collect(), disks }
}

fn pending(disks: &[Replay]) -> Vec<PendingWrite> {
    let mut writes = Vec::new();
    for (disk, index) in disks.iter().zip((0..).map(DiskIndex)) {
        let atomic = disk.atomic_bytes();
        let describe = |content: &Content, completed| {
            let unit_count = content.unit_count(atomic);
            PendingWrite { disk: index, at: content.at, length: content.length, unit_count, completed }
        };
        writes.extend(disk.cache.uncertain().map(|content| describe(content, true)));
        writes.extend(disk.unanswered.values().map(|(content, _)| describe(content, false)));
    }
    writes
}

impl Replay {
    fn new(base: Base) -> Self {
        let cache = WriteCache::new(base.image.clone());
        Self { base, cache, unanswered: BTreeMap::new(), flushes: BTreeMap::new() }
    }

    fn atomic_bytes(&self) -> u32 {
        self.base.profile.geometry.atomic_write_bytes
    }

    fn write_done(&mut self, number: u64) {
        if let Some((content, certain)) = self.unanswered.remove(&number) {
            self.cache.hold(content, certain);
        }
    }

    fn flush_done(&mut self, number: u64) {
        if let Some(mark) = self.flushes.remove(&number) {
            self.cache.flush_to(mark);
        }
    }

    fn state(
        &self,
        index: DiskIndex,
        options: &StateOptions,
        fates: &mut impl Iterator<Item = Fate>,
    ) -> StateDisk {
        let Base { name, profile, .. } = self.base.clone();
        let mut image = self.cache.image_after(self.atomic_bytes(), fates);
        let mut delayed = Vec::new();
        for (content, _) in self.unanswered.values() {
            let fate = fates.next().unwrap_or(Fate::Lost);
            content.apply(&mut image, fate, self.atomic_bytes());
            if fate == Fate::Lost && options.delayed_writes == DelayedWrites::Unanswered {
                delayed.push(DelayedWrite { token: dolmen_units::Epoch(0), content: Rc::clone(content) });
            }
        }
        if let Some(flip) = options.flip.filter(|flip| flip.disk == index) {
            image.flip_bit(flip.at, flip.bit);
        }
        let image = (options.missing != Some(index)).then_some(image);
        StateDisk { name, profile, image, delayed }
    }
}

struct StateDisk {
    name: String,
    profile: DiskProfile,
    image: Option<Image>,
    delayed: Vec<DelayedWrite>,
}

/// What a crash could have left.
pub struct CrashState {
    cut: Cut,
    options: StateOptions,
    fates: Vec<(PendingWrite, Fate)>,
    disks: Vec<StateDisk>,
}

/// A world in which a crash left what it did.
#[derive(Debug)]
pub struct Reopened {
    /// The world.
    pub world: World,
    /// Its disks, in the order of the world that was recorded; `None` for a missing one.
    pub disks: Vec<Option<Rc<SimDisk>>>,
}

impl CrashState {
    /// Where the crash was.
    #[must_use]
    pub fn cut(&self) -> Cut {
        self.cut
    }

    /// What became of each write in question.
    #[must_use]
    pub fn fates(&self) -> &[(PendingWrite, Fate)] {
        &self.fates
    }

    /// What a disk holds; `None` for a missing one.
    #[must_use]
    pub fn image(&self, disk: DiskIndex) -> Option<&Image> {
        self.disks.get(disk.0)?.image.as_ref()
    }

    /// A new world of the seed with these disks. Delayed writes land once their disk is attached.
    #[must_use]
    pub fn reopen(&self, seed: u64) -> Reopened {
        let world = World::new(seed);
        let mut disks = Vec::new();
        for from in &self.disks {
            let Some(image) = &from.image else {
                disks.push(None);
                continue;
            };
            let disk = world.add_disk_with(&from.name, from.profile.clone(), image.clone());
            disk.park_delayed(&from.delayed);
            disks.push(Some(disk));
        }
        Reopened { world, disks }
    }
}

impl SimDisk {
    /// All that completed is durable.
    pub(crate) fn complete_cached(&self) {
        let mut state = self.state.borrow_mut();
        let mark = state.cache.mark();
        state.cache.flush_to(mark);
    }

    /// Writes of a process of which this world knows nothing else; they land after the next attach.
    fn park_delayed(&self, writes: &[DelayedWrite]) {
        let mut state = self.state.borrow_mut();
        for write in writes {
            let number = state.next_number;
            state.next_number += 1;
            state.delayed.insert(number, write.clone());
        }
    }
}

impl fmt::Debug for Recorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Recorder({} events)", self.now().0)
    }
}

impl fmt::Debug for CrashState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The crash in words, a line for each write in question.
impl fmt::Display for CrashState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a crash behind event {}", self.cut.0)?;
        if let Some(disk) = self.options.missing {
            write!(f, ", {disk} missing")?;
        }
        if let Some(BitFlip { disk, at, bit }) = self.options.flip {
            write!(f, ", bit {bit} of byte {at} of {disk} turned")?;
        }
        self.fates.iter().try_for_each(|(write, fate)| write!(f, "\n{write}: {fate}"))
    }
}
