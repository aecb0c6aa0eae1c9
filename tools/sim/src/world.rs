//! A world: one process on modelled disks, under virtual time, in an order that a seed draws.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

use dolmen_block_io::{Executor, Instant, Seams, Spawner};
use dolmen_buffer::ArenaConfig;

use crate::agenda::{Agenda, EventAction, Next, WorldClock};
use crate::arenas::{self, Sizes};
use crate::atlas::DamagePolicy;
use crate::crash::{Fate, PendingWrite};
use crate::disk::{NewDisk, SimDisk};
use crate::fault::{FaultCounters, FaultKind, FaultRates, Faults};
use crate::image::Image;
use crate::profile::DiskProfile;
use crate::random::{Random, Rate, SeededEntropy, Seeds};
use crate::recorder::{Recorder, Recording};
use crate::trace::{DiskIndex, Trace, TraceEvent};

/// Steps of one run, unless set otherwise: far more than a test needs, so reaching it means that something spins.
const STEPS_MAX: u64 = 50_000_000;
/// How often a core is too busy to run a task that is ready, so that a disk moves first.
const BUSY_CORE: Rate = Rate::one_in(16);
/// How long a core is busy, at most: no alarm of seconds rings because of it.
const BUSY_MAX: Duration = Duration::from_micros(200);
/// The arenas of a process unless set otherwise: small, because their memory is cleared for each world.
const DATA_ARENA: ArenaConfig = ArenaConfig { small_count: 256, medium_count: 8, large_count: 4 };
const METADATA_ARENA: ArenaConfig = ArenaConfig { small_count: 256, medium_count: 8, large_count: 1 };

/// Why a run ended without its result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StuckReason {
    /// No task is ready, no command is under way that will be answered, no alarm is set.
    NothingMoves,
    /// The limit of steps was reached.
    TooManySteps,
}

/// A run that ended without its result.
#[derive(Debug, Clone)]
pub struct Stuck {
    /// Why.
    pub reason: StuckReason,
    /// When.
    pub at: Instant,
    /// What repeats the run.
    pub seeds: Seeds,
    /// Names of the tasks that wait.
    pub waiting: Vec<&'static str>,
    /// Disks with commands under way, and how many.
    pub under_way: Vec<(String, usize)>,
    /// The kept part of the trace, oldest first.
    pub trace: Vec<String>,
}

/// Where a run is stopped, so that something can befall the process there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopAt {
    /// After so many more steps: tasks run and events met.
    Steps(u64),
    /// When so many more commands other than reads were submitted.
    Commands(u64),
    /// When the disks' time reaches this.
    Time(Instant),
}

/// How a run ended that could be stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ran<T> {
    /// The future ended before.
    Finished(T),
    /// The stop came first; the tasks still stand.
    Stopped,
}

/// A seeded world.
pub struct World {
    seeds: Seeds,
    executor: RefCell<Rc<Executor>>,
    agenda: Rc<Agenda>,
    trace: Rc<Trace>,
    disks: RefCell<Vec<Rc<SimDisk>>>,
    schedule: RefCell<Random>,
    entropy: Rc<SeededEntropy>,
    seams: RefCell<Option<(Sizes, Seams)>>,
    arenas: Cell<Sizes>,
    /// Faults of the world rather than of a disk.
    faults: Faults,
    policy: RefCell<Option<Rc<dyn DamagePolicy>>>,
    recording: RefCell<Option<Rc<Recording>>>,
    steps: Cell<u64>,
    steps_max: Cell<u64>,
}

impl Drop for World {
    /// Tasks that still stand hold the seams, and those hold the tasks.
    fn drop(&mut self) {
        arenas::leave(self.end_process());
    }
}

impl World {
    /// The world of a seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self::from_seeds(Seeds::from_seed(seed))
    }

    /// A world whose streams are given one by one.
    #[must_use]
    pub fn from_seeds(seeds: Seeds) -> Self {
        Self {
            seeds,
            executor: RefCell::new(Executor::new()),
            agenda: Agenda::new(Random::derived(seeds.schedule, 1)),
            trace: Rc::default(),
            disks: RefCell::default(),
            schedule: RefCell::new(Random::derived(seeds.schedule, 2)),
            entropy: Rc::new(SeededEntropy(RefCell::new(Random::derived(seeds.entropy, 1)))),
            seams: RefCell::default(),
            arenas: Cell::new((DATA_ARENA, METADATA_ARENA)),
            faults: Faults::new(FaultRates::NONE, Random::derived(seeds.faults, 1)),
            policy: RefCell::default(),
            recording: RefCell::default(),
            steps: Cell::new(0),
            steps_max: Cell::new(STEPS_MAX),
        }
    }

    /// What repeats this world.
    #[must_use]
    pub fn seeds(&self) -> Seeds {
        self.seeds
    }

    /// The stream from which a test draws what it does.
    #[must_use]
    pub fn workload(&self) -> Random {
        Random::derived(self.seeds.workload, 1)
    }

    /// Other sizes for the arenas of processes that start from now on: data and metadata.
    pub fn set_arenas(&self, data: ArenaConfig, metadata: ArenaConfig) {
        self.arenas.set((data, metadata));
    }

    /// Another limit of steps for each run.
    pub fn set_steps_max(&self, steps_max: u64) {
        self.steps_max.set(steps_max);
    }

    /// Who says where faults of content may be placed; without one they may be placed anywhere.
    pub fn set_damage_policy(&self, policy: Rc<dyn DamagePolicy>) {
        for disk in self.disks.borrow().iter() {
            disk.set_policy(Some(Rc::clone(&policy)));
        }
        self.policy.replace(Some(policy));
    }

    /// A new disk, all zeros.
    pub fn add_disk(&self, name: &str, profile: DiskProfile) -> Rc<SimDisk> {
        self.add_disk_with(name, profile, Image::new())
    }

    /// A new disk that holds an image, all of it durable.
    pub fn add_disk_with(&self, name: &str, profile: DiskProfile, image: Image) -> Rc<SimDisk> {
        let mut disks = self.disks.borrow_mut();
        let index = DiskIndex(disks.len());
        let label = disks.len() as u64 + 16;
        let (faults, speeds) =
            (Random::derived(self.seeds.faults, label), Random::derived(self.seeds.schedule, label));
        let new = NewDisk { name: name.to_owned(), index, profile, image, faults, speeds };
        let disk = SimDisk::new(new, Rc::clone(&self.agenda), Rc::clone(&self.trace));
        disk.set_policy(self.policy.borrow().clone());
        if let Some(recording) = &*self.recording.borrow() {
            recording.add_disk(&disk);
            disk.recording.replace(Some(Rc::clone(recording)));
        }
        disks.push(Rc::clone(&disk));
        disk
    }

    /// All disks, in the order they were added.
    #[must_use]
    pub fn disks(&self) -> Vec<Rc<SimDisk>> {
        self.disks.borrow().clone()
    }

    pub(crate) fn owns(&self, agenda: &Rc<Agenda>) -> bool {
        Rc::ptr_eq(&self.agenda, agenda)
    }

    /// The seams of the process that lives now. Its arenas are its own; those of a dead process are taken over when all
    /// their memory came back.
    #[must_use]
    pub fn seams(&self) -> Seams {
        let executor = Rc::clone(&self.executor.borrow());
        let mut seams = self.seams.borrow_mut();
        let made = || {
            let sizes = self.arenas.get();
            let (data, metadata) = arenas::take(sizes);
            let seams = Seams {
                clock: Rc::new(WorldClock(Rc::clone(&self.agenda))),
                entropy: Rc::clone(&self.entropy) as Rc<dyn dolmen_block_io::Entropy>,
                spawner: executor,
                data,
                metadata,
            };
            (sizes, seams)
        };
        seams.get_or_insert_with(made).1.clone()
    }

    /// The time in which disks work; the engine's clock is ahead of it by all jumps.
    #[must_use]
    pub fn now(&self) -> Instant {
        self.agenda.now()
    }

    /// A number that two runs share when they did the same in the same order, and hardly ever otherwise: mixed from
    /// every command with its content, every completion, fault, alarm and choice of a task.
    #[must_use]
    pub fn trace_hash(&self) -> u64 {
        self.trace.hash()
    }

    /// Keeps the last so many events in words, for [`trace_lines`](Self::trace_lines) and [`Stuck`].
    pub fn keep_trace(&self, length_max: usize) {
        self.trace.keep(length_max);
    }

    /// The kept events, oldest first.
    #[must_use]
    pub fn trace_lines(&self) -> Vec<String> {
        self.trace.lines()
    }

    /// Tasks run and events met since the beginning.
    #[must_use]
    pub fn step_count(&self) -> u64 {
        self.steps.get()
    }

    /// Commands other than reads that disks were given since the beginning.
    #[must_use]
    pub fn change_count(&self) -> u64 {
        self.trace.changes()
    }

    /// The faults of all disks and of the world.
    #[must_use]
    pub fn fault_counters(&self) -> FaultCounters {
        let mut sum = self.faults.counters.get();
        for disk in self.disks.borrow().iter() {
            sum += disk.fault_counters();
        }
        sum
    }

    /// Adds a task to the process that lives now.
    pub fn spawn(&self, name: &'static str, task: Pin<Box<dyn Future<Output = ()>>>) {
        let executor = Rc::clone(&self.executor.borrow());
        executor.spawn(name, task);
    }

    /// Runs one task, or meets the next event. Whether there was anything to do.
    pub fn step(&self) -> bool {
        self.steps.set(self.steps.get() + 1);
        let executor = Rc::clone(&self.executor.borrow());
        if executor.has_ready() {
            let busy = self.schedule.borrow_mut().happens(BUSY_CORE) && self.agenda.is_near(BUSY_MAX);
            if !busy {
                return self.run_task(&executor);
            }
        }
        match self.agenda.advance() {
            Next::EventAction(event_action) => {
                self.perform(event_action);
                true
            }
            Next::Alarm => {
                self.trace.note(self.agenda.now(), TraceEvent::Alarm);
                true
            }
            Next::Nothing => self.run_task(&executor),
        }
    }

    fn run_task(&self, executor: &Executor) -> bool {
        executor.run_one(|ready| {
            let chosen = self.schedule.borrow_mut().index(ready);
            let event = TraceEvent::Picked { ready: ready as u64, chosen: chosen as u64 };
            self.trace.note(self.agenda.now(), event);
            chosen
        })
    }

    fn perform(&self, event_action: EventAction) {
        let disk = |index: usize| self.disks.borrow().get(index).cloned();
        match event_action {
            EventAction::Complete { disk: index, slot, number } => {
                if let Some(disk) = disk(index) {
                    disk.complete(slot, number);
                }
            }
            EventAction::TimeOut { disk: index, slot, number } => {
                if let Some(disk) = disk(index) {
                    disk.time_out(slot, number);
                }
            }
            EventAction::LandDelayed { disk: index, number } => {
                if let Some(disk) = disk(index) {
                    disk.land_delayed(number);
                }
            }
            EventAction::ComeBack { disk: index, absence } => {
                if let Some(disk) = disk(index) {
                    disk.come_back_from(absence);
                }
            }
        }
    }

    /// Steps until `done` says so, which is asked before each step.
    ///
    /// # Errors
    /// When nothing moves any more, or for ever.
    pub fn run_until(&self, mut done: impl FnMut(&Self) -> bool) -> Result<(), Stuck> {
        let last = self.steps.get().saturating_add(self.steps_max.get());
        while !done(self) {
            if !self.step() {
                return Err(self.stuck(StuckReason::NothingMoves));
            }
            if self.steps.get() >= last {
                return Err(self.stuck(StuckReason::TooManySteps));
            }
        }
        Ok(())
    }

    /// Runs `future` as a task beside the others until it ends. The others stay.
    ///
    /// # Errors
    /// As [`run_until`](Self::run_until).
    pub fn run<T: 'static>(&self, future: impl Future<Output = T> + 'static) -> Result<T, Stuck> {
        let result = self.start(future);
        let mut value = None;
        self.run_until(|_| {
            value = result.take();
            value.is_some()
        })?;
        value.ok_or_else(|| self.stuck(StuckReason::NothingMoves))
    }

    /// Runs `future` until it ends or the stop is reached, whichever comes first.
    ///
    /// # Errors
    /// As [`run_until`](Self::run_until).
    pub fn run_to<T: 'static>(
        &self,
        stop: StopAt,
        future: impl Future<Output = T> + 'static,
    ) -> Result<Ran<T>, Stuck> {
        let result = self.start(future);
        let mut value = None;
        let (steps, changes) = (self.steps.get(), self.trace.changes());
        self.run_until(|world| {
            value = result.take();
            let stopped = match stop {
                StopAt::Steps(count) => world.steps.get() - steps >= count,
                StopAt::Commands(count) => world.trace.changes() - changes >= count,
                StopAt::Time(instant) => world.now() >= instant,
            };
            stopped || value.is_some()
        })?;
        Ok(value.map_or(Ran::Stopped, Ran::Finished))
    }

    fn start<T: 'static>(&self, future: impl Future<Output = T> + 'static) -> Rc<Cell<Option<T>>> {
        let result = Rc::new(Cell::new(None));
        let into = Rc::clone(&result);
        self.spawn("run", Box::pin(async move { into.set(Some(future.await)) }));
        result
    }

    /// Runs until nothing is left to do, and no longer than the limit of steps. Tasks that wait for ever are left.
    ///
    /// # Errors
    /// When the limit was reached.
    pub fn run_until_idle(&self) -> Result<(), Stuck> {
        match self.run_until(|_| false) {
            Err(stuck) if stuck.reason == StuckReason::TooManySteps => Err(stuck),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    fn stuck(&self, reason: StuckReason) -> Stuck {
        let disks = self.disks.borrow();
        let busy = disks.iter().filter(|disk| disk.under_way() > 0);
        Stuck {
            reason,
            at: self.now(),
            seeds: self.seeds,
            waiting: self.executor.borrow().waiting(),
            under_way: busy.map(|disk| (disk.name().to_owned(), disk.under_way())).collect(),
            trace: self.trace.lines(),
        }
    }

    /// The process dies: its tasks are gone, completed writes stay, and each write under way lands, is lost, or lands
    /// once the disk is attached again, by draws.
    pub fn kill(&self) {
        let dead = self.end_process();
        for disk in self.disks() {
            disk.process_died();
        }
        arenas::leave(dead);
    }

    /// Power fails everywhere: each write that was not durable lands, is lost or is torn, by draws.
    pub fn power_cut(&self) {
        let mut draws = Random::new(self.faults.random.borrow_mut().next_u64());
        self.power_cut_choosing(&mut |write| Fate::drawn(write.unit_count, &mut draws));
    }

    /// Power fails everywhere, and `choose` decides on each write that was not durable: disk by disk, the completed
    /// ones in the order of their completion, then the unanswered ones in the order of their submission.
    pub fn power_cut_choosing(&self, choose: &mut dyn FnMut(&PendingWrite) -> Fate) {
        let dead = self.end_process();
        for disk in self.disks() {
            disk.lose_power(choose);
        }
        arenas::leave(dead);
    }

    /// Drops the tasks; the seams that they had.
    fn end_process(&self) -> Option<(Sizes, Seams)> {
        // Closed first: what tasks do while they are dropped must not reach a disk any more.
        for disk in self.disks() {
            disk.close_ports();
        }
        let executor = self.executor.replace(Executor::new());
        executor.abandon();
        self.agenda.silence();
        self.trace.note(self.agenda.now(), TraceEvent::Killed);
        self.seams.replace(None)
    }

    /// The engine's clock leaps forward: alarms are due at once, commands under way take as long as before.
    pub fn jump_clock(&self, by: Duration) {
        self.agenda.jump(by);
        self.faults.count(FaultKind::ClockJump);
        let event = TraceEvent::Fault { disk: DiskIndex(0), kind: FaultKind::ClockJump, at: 0 };
        self.trace.note(self.agenda.now(), event);
    }

    /// Records all writes and flushes from now on, for tests that try every crash. What is on the disks counts as
    /// durable from here. Meant for disks without faults.
    ///
    /// # Panics
    /// When a command is under way.
    #[must_use]
    pub fn record(&self) -> Recorder {
        let recording = Rc::new(Recording::default());
        for disk in self.disks() {
            assert_eq!(disk.under_way(), 0, "a recording begins while nothing is under way");
            disk.complete_cached();
            recording.add_disk(&disk);
            disk.recording.replace(Some(Rc::clone(&recording)));
        }
        self.recording.replace(Some(Rc::clone(&recording)));
        Recorder::new(recording)
    }

    /// Ends the recording; its recorder keeps what it has.
    pub fn stop_recording(&self) {
        self.recording.replace(None);
        for disk in self.disks() {
            disk.recording.replace(None);
        }
    }
}

impl fmt::Debug for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("World").field("seeds", &self.seeds).field("now", &self.now()).finish_non_exhaustive()
    }
}

impl fmt::Display for Stuck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let why = match self.reason {
            StuckReason::NothingMoves => "nothing moves any more",
            StuckReason::TooManySteps => "the limit of steps was reached",
        };
        write!(f, "running a world ({}): {why} at {} ns; waiting tasks: ", self.seeds, self.at.0)?;
        f.write_str(&self.waiting.join(", "))?;
        for (name, count) in &self.under_way {
            write!(f, "; {name} has {count} commands under way")?;
        }
        self.trace.iter().try_for_each(|line| write!(f, "\n{line}"))
    }
}

impl std::error::Error for Stuck {}
