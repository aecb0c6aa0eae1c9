//! A modelled disk: what it holds, who is attached to it, and what a test may look at or break.
//!
//! A disk survives the process that uses it. It holds three things: the image that every read should see (the truth),
//! the medium with the completed writes in front of it, and the damage that lies over reads. What commands do stands in
//! `command`, what kills, power cuts and absences do in `disk_faults`.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::ops::Range;
use std::rc::Rc;

use dolmen_block_io::{
    BlockDevice, Command, CompletionKey, Completions, Geometry, Instant, IoCounters, IoKind, Meter,
    Submission,
};
use dolmen_buffer::{Buffer, Shared};
use dolmen_units::{BLOCK_BYTES, Epoch};

use crate::agenda::{Agenda, EventAction, WorldClock};
use crate::atlas::DamagePolicy;
use crate::crash::{Content, PendingWrite, WriteCache};
use crate::damage::Damage;
use crate::fault::{FaultCounters, FaultKind, FaultRates, Faults};
use crate::image::{Image, Page, SECTOR, parts_mut, sector_mask};
use crate::profile::DiskProfile;
use crate::random::Random;
use crate::recorder::Recording;
use crate::trace::{DiskIndex, Trace, TraceEvent};
use crate::world::World;

/// One opening of a disk by a process.
pub(crate) struct Port {
    pub(crate) completions: Rc<Completions>,
    pub(crate) counters: Cell<IoCounters>,
    pub(crate) fence: Cell<Epoch>,
    /// Cleared when the process dies or the disk goes.
    pub(crate) open: Cell<bool>,
}

/// What a command under way will do.
pub(crate) enum Work {
    Read {
        at: u64,
        into: Buffer,
    },
    /// What of it took effect before its end is in the cache under the numbers `early`.
    Write {
        content: Rc<Content>,
        from: Option<Shared>,
        certain: bool,
        early: Vec<u64>,
    },
    Flush {
        mark: u64,
    },
    Refused(dolmen_block_io::Outcome),
}

pub(crate) struct Flight {
    pub(crate) number: u64,
    pub(crate) port: Rc<Port>,
    pub(crate) key: CompletionKey,
    pub(crate) token: Epoch,
    pub(crate) work: Work,
    pub(crate) hung: bool,
}

/// A write that survived whoever asked for it.
#[derive(Clone)]
pub(crate) struct DelayedWrite {
    pub(crate) token: Epoch,
    pub(crate) content: Rc<Content>,
}

/// A stretch of time in which commands of some kinds take longer.
#[derive(Clone, Copy, Default)]
pub(crate) struct SlowPeriod {
    pub(crate) until: Instant,
    /// So many times as long.
    pub(crate) factor: u32,
    pub(crate) reads: bool,
    pub(crate) writes: bool,
    pub(crate) flushes: bool,
}

#[derive(Default)]
pub(crate) struct State {
    /// What a faultless disk would show.
    pub(crate) truth: Image,
    pub(crate) cache: WriteCache,
    pub(crate) damage: Damage,
    pub(crate) flights: Vec<Option<Flight>>,
    pub(crate) free: Vec<usize>,
    pub(crate) next_number: u64,
    pub(crate) newest_completed: u64,
    pub(crate) under_way: usize,
    pub(crate) writes_under_way: usize,
    pub(crate) previous_end: u64,
    pub(crate) ports: Vec<Rc<Port>>,
    /// The newest fence that the disk itself remembers.
    pub(crate) fence: Epoch,
    pub(crate) delayed: BTreeMap<u64, DelayedWrite>,
    pub(crate) cache_lost: bool,
    /// The newest one; it may be over.
    pub(crate) period: SlowPeriod,
    pub(crate) absent: bool,
    pub(crate) absences: u64,
    /// Images of the medium at earlier good flushes, oldest first.
    pub(crate) earlier: VecDeque<Image>,
}

/// A modelled disk. Made by [`World::add_disk`].
pub struct SimDisk {
    name: String,
    pub(crate) index: DiskIndex,
    pub(crate) profile: DiskProfile,
    pub(crate) agenda: Rc<Agenda>,
    pub(crate) trace: Rc<Trace>,
    pub(crate) faults: Faults,
    pub(crate) speeds: RefCell<Random>,
    pub(crate) policy: RefCell<Option<Rc<dyn DamagePolicy>>>,
    pub(crate) recording: RefCell<Option<Rc<Recording>>>,
    pub(crate) state: RefCell<State>,
}

/// What a new disk is made of.
pub(crate) struct NewDisk {
    pub(crate) name: String,
    pub(crate) index: DiskIndex,
    pub(crate) profile: DiskProfile,
    pub(crate) image: Image,
    pub(crate) faults: Random,
    pub(crate) speeds: Random,
}

impl SimDisk {
    pub(crate) fn new(new: NewDisk, agenda: Rc<Agenda>, trace: Rc<Trace>) -> Rc<Self> {
        let atomic = new.profile.geometry.atomic_write_bytes;
        assert!(
            matches!(atomic, 512 | 4096),
            "a modelled disk writes 512 or 4096 bytes atomically, not {atomic}"
        );
        let state = State { truth: new.image.clone(), cache: WriteCache::new(new.image), ..State::default() };
        Rc::new(Self {
            name: new.name,
            index: new.index,
            faults: Faults::new(new.profile.rates, new.faults),
            profile: new.profile,
            agenda,
            trace,
            speeds: RefCell::new(new.speeds),
            policy: RefCell::default(),
            recording: RefCell::default(),
            state: RefCell::new(state),
        })
    }

    /// Opens the disk for the process that lives now. Writes of dead processes that were left under way land from now
    /// on. Commands to a disk that is away are answered [`Detached`](dolmen_block_io::DeviceError::Detached).
    ///
    /// # Panics
    /// When the disk belongs to another world.
    #[must_use]
    pub fn attach(self: &Rc<Self>, world: &World) -> Rc<dyn BlockDevice> {
        assert!(world.owns(&self.agenda), "a disk is attached in its own world");
        let mut state = self.state.borrow_mut();
        let port = Rc::new(Port {
            completions: Completions::new(),
            counters: Cell::default(),
            fence: Cell::default(),
            open: Cell::new(!state.absent),
        });
        state.ports.push(Rc::clone(&port));
        for number in state.delayed.keys() {
            self.plan_delayed(*number);
        }
        let meter = Meter::new(Rc::new(WorldClock(Rc::clone(&self.agenda))));
        Rc::new(SimHandle { disk: Rc::clone(self), port, meter })
    }

    /// The name it was given.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its place in the world.
    #[must_use]
    pub fn index(&self) -> DiskIndex {
        self.index
    }

    /// What it is like.
    #[must_use]
    pub fn profile(&self) -> &DiskProfile {
        &self.profile
    }

    /// What a faultless disk would show now, cached writes included.
    #[must_use]
    pub fn truth(&self) -> Image {
        self.state.borrow().truth.clone()
    }

    /// What of the truth would survive a power cut that takes all it can.
    #[must_use]
    pub fn durable(&self) -> Image {
        self.state.borrow().cache.image_after(self.atomic_bytes(), &mut std::iter::empty())
    }

    /// What a read would show, faults that strike only once left aside; `false` when a part cannot be read.
    #[must_use]
    pub fn show(&self, at: u64, into: &mut [u8]) -> bool {
        self.state.borrow().show(at, into)
    }

    /// The ranges, by sector and in order, that do not read as they should.
    #[must_use]
    pub fn damaged(&self) -> Vec<Range<u64>> {
        let state = self.state.borrow();
        let mut ranges: Vec<Range<u64>> = Vec::new();
        for page in state.damage.pages() {
            let (unreadable, wrong) = state.damage.sectors(page);
            for sector in (0..8).filter(|sector| (unreadable | wrong) & (1 << sector) != 0) {
                let start = page * BLOCK_BYTES + sector * SECTOR as u64;
                match ranges.last_mut().filter(|range| range.end == start) {
                    Some(range) => range.end += SECTOR as u64,
                    None => ranges.push(start..start + SECTOR as u64),
                }
            }
        }
        ranges
    }

    /// How often each kind of fault happened.
    #[must_use]
    pub fn fault_counters(&self) -> FaultCounters {
        self.faults.counters.get()
    }

    /// Commands that were submitted and not answered.
    #[must_use]
    pub fn under_way(&self) -> usize {
        self.state.borrow().under_way
    }

    /// Completed writes that a power cut could take.
    #[must_use]
    pub fn pending_writes(&self) -> Vec<PendingWrite> {
        let state = self.state.borrow();
        state.cache.uncertain().map(|content| self.describe(content, true)).collect()
    }

    /// Other rates from now on.
    pub fn set_rates(&self, rates: FaultRates) {
        self.faults.rates.set(rates);
    }

    /// The next command that a fault of this kind can strike is struck. Kinds that are never drawn wait for ever.
    pub fn arm(&self, kind: FaultKind) {
        self.faults.arm(kind);
    }

    /// Turns a bit of what the medium shows at byte `at`, whatever a policy says.
    pub fn rot(&self, at: u64, bit: u8) {
        let page = at / BLOCK_BYTES;
        let mut state = self.state.borrow_mut();
        let state = &mut *state;
        let mut image = Image::new();
        image.set_page(0, state.damage.shown(page, state.truth.page(page)));
        image.flip_bit(at % BLOCK_BYTES, bit);
        state.damage.show(page, sectors_at(at), image.page(0));
        self.note_fault(FaultKind::BitRot, at);
    }

    /// Makes the sector at byte `at` unreadable until it is written, whatever a policy says.
    pub fn make_unreadable(&self, at: u64) {
        self.state.borrow_mut().damage.make_unreadable(at / BLOCK_BYTES, sectors_at(at));
        self.note_fault(FaultKind::LatentError, at);
    }

    pub(crate) fn set_policy(&self, policy: Option<Rc<dyn DamagePolicy>>) {
        self.policy.replace(policy);
    }

    pub(crate) fn atomic_bytes(&self) -> u32 {
        self.profile.geometry.atomic_write_bytes
    }

    pub(crate) fn describe(&self, content: &Content, completed: bool) -> PendingWrite {
        let unit_count = content.unit_count(self.atomic_bytes());
        PendingWrite { disk: self.index, at: content.at, length: content.length, unit_count, completed }
    }

    pub(crate) fn note_fault(&self, kind: FaultKind, at: u64) {
        self.faults.count(kind);
        self.trace.note(self.agenda.now(), TraceEvent::Fault { disk: self.index, kind, at });
    }

    /// Whether the ranges may be damaged now, which counts them as damaged with whoever keeps the atlas.
    pub(crate) fn may_damage(&self, range: Range<u64>) -> bool {
        let policy = self.policy.borrow().clone();
        let allowed = policy.is_none_or(|policy| policy.may_damage(self.index, range));
        if !allowed {
            self.faults.count_spared();
        }
        allowed
    }

    pub(crate) fn plan_delayed(&self, number: u64) {
        let longest = u64::try_from(self.profile.delayed_by_max.as_nanos()).unwrap_or(u64::MAX);
        let after = std::time::Duration::from_nanos(self.speeds.borrow_mut().below(longest));
        self.agenda.plan(after, EventAction::LandDelayed { disk: self.index.0, number });
    }
}

impl State {
    /// Reads with the damage laid over; whether all of it could be read.
    pub(crate) fn show(&self, at: u64, into: &mut [u8]) -> bool {
        self.truth.read(at, into);
        if self.damage.is_empty() {
            return true;
        }
        let mut good = true;
        for (page, within, part) in parts_mut(at, into) {
            good &= self.damage.lay_over(page, within, part);
        }
        good
    }

    /// What the medium shows of each page that a write touches.
    pub(crate) fn shown_under(&self, content: &Content) -> Vec<Option<Page>> {
        content
            .pieces
            .iter()
            .map(|piece| self.damage.shown(piece.page, self.truth.page(piece.page)))
            .collect()
    }
}

impl fmt::Debug for SimDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SimDisk({}, {})", self.name, self.profile.geometry.capacity)
    }
}

fn sectors_at(at: u64) -> u8 {
    sector_mask(usize::try_from(at % BLOCK_BYTES).unwrap_or(0), 1)
}

struct SimHandle {
    disk: Rc<SimDisk>,
    port: Rc<Port>,
    meter: Rc<Meter>,
}

impl BlockDevice for SimHandle {
    fn geometry(&self) -> Geometry {
        self.disk.profile.geometry
    }

    fn name(&self) -> String {
        self.disk.name.clone()
    }

    fn submit(&self, command: Command) -> Submission {
        IoCounters::note(&self.port.counters, &command.action);
        let (kind, bytes) = IoKind::of(&command.action);
        let started = self.meter.begin(kind, bytes);
        self.disk.begin(&self.port, command).metered(&self.meter, started)
    }

    fn fence(&self, epoch: Epoch) {
        self.port.fence.set(self.port.fence.get().max(epoch));
        let mut state = self.disk.state.borrow_mut();
        state.fence = state.fence.max(epoch);
    }

    fn counters(&self) -> IoCounters {
        self.port.counters.get()
    }

    fn meter(&self) -> Option<Rc<Meter>> {
        Some(Rc::clone(&self.meter))
    }
}
