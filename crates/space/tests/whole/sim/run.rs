//! The course of one seed: lives of the daemon, and what befalls it and its disks.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use dolmen_buffer::ArenaConfig;
use dolmen_pool::MemoryArbiter;
use dolmen_sim::{FaultCounters, FaultKind, FaultRates, Random, World};
use dolmen_units::HostId;

use super::by_layout::FaultsByLayout;
use super::daemon_run::{Course, Goal, live};
use super::operator::want_replaced;
use super::oracle::{Crash, Oracle};
use super::setup::{Setup, policy, stream};
use super::tally::{Rare, Tally, Work};

/// What a seed showed.
#[derive(Debug, Clone)]
pub struct Report {
    pub seed: u64,
    pub trace_hash: u64,
    pub faults: FaultCounters,
    pub by_layout: FaultsByLayout,
    pub tally: Tally,
    pub steps: u64,
    pub failure: Option<String>,
    pub trace: Vec<String>,
}

struct Run {
    course: Rc<Course>,
    /// How many times as long as usual each life is.
    length: u64,
    victim: Rc<Cell<usize>>,
    random: Random,
    rates: FaultRates,
    others: FaultRates,
    spare_used: bool,
    /// The daemon before ended while it recovered.
    recovery_cut: bool,
    /// Lies of the disk that suffers, up to the last crash.
    lies_exposed: u64,
}

/// Runs a seed; a broken invariant of the engine is a failure like any other.
pub fn run_seed_caught(seed: u64, length: u64, trace_lines: usize) -> Report {
    let run = std::panic::AssertUnwindSafe(|| run_seed(seed, length, trace_lines));
    std::panic::catch_unwind(run).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        Report {
            seed,
            trace_hash: 0,
            faults: FaultCounters::default(),
            by_layout: FaultsByLayout::default(),
            tally: Tally::default(),
            steps: 0,
            failure: Some(format!("a panic: {}", text.unwrap_or_default())),
            trace: Vec::new(),
        }
    })
}

/// Runs a seed, of which each life is `length` times as long as usual; `trace_lines` events are kept for a failure.
pub fn run_seed(seed: u64, length: u64, trace_lines: usize) -> Report {
    let mut setup = Setup::of(seed);
    setup.operations *= length;
    let world = Rc::new(World::new(seed));
    world.set_arenas(
        ArenaConfig { small_count: 1024, medium_count: 640, large_count: 24 },
        ArenaConfig { small_count: 1024, medium_count: 64, large_count: 8 },
    );
    world.set_steps_max(length * 1_000_000);
    world.keep_trace(trace_lines);
    let mut disks: Vec<_> = setup
        .profiles
        .iter()
        .enumerate()
        .map(|(number, profile)| world.add_disk(&format!("disk{number}"), profile.clone()))
        .collect();
    let member_count = disks.len();
    for (number, profile) in setup.spares.iter().enumerate() {
        disks.push(world.add_disk(&format!("spare{number}"), profile.clone()));
    }
    let spares = (member_count..disks.len()).rev().collect();
    let mut random = stream(seed, 901);
    let victim = Rc::new(Cell::new(random.index(member_count)));
    world.set_damage_policy(policy(&victim, setup.redundant || setup.frail));
    let oracle = Oracle::new(setup.tearing);
    let (rates, others) = (setup.rates, setup.others);
    let course = Rc::new(Course {
        seed,
        world,
        disks: RefCell::new(disks),
        members: RefCell::new((0..member_count).collect()),
        arbiter: MemoryArbiter::new(HostId([9; 16])),
        redundant: setup.redundant,
        unrest: setup.unrest,
        removes: setup.removes,
        converts: setup.converts,
        evens: setup.evens,
        settings: setup.settings,
        reserves: RefCell::default(),
        shrinking: Cell::default(),
        pairs: setup.pairs,
        one_suffers: if setup.redundant { !setup.pairs } else { !setup.unrest },
        frail: setup.frail,
        declared_lost: Cell::default(),
        failed: Cell::default(),
        operations_left: Cell::new(setup.operations),
        setup: RefCell::new(setup),
        oracle: RefCell::new(oracle),
        making: RefCell::default(),
        failure: RefCell::default(),
        created: Cell::new(false),
        serving: Cell::new(false),
        lost: Cell::new(false),
        unnoticed: Cell::new(false),
        rolled_back: Cell::new(false),
        whole: Cell::new(true),
        hard: Cell::new(false),
        cache_lost: Cell::new(false),
        wanted: RefCell::default(),
        leaving: RefCell::default(),
        shadows: RefCell::default(),
        removals: RefCell::default(),
        spares: RefCell::new(spares),
        barred: RefCell::default(),
        replaced: RefCell::default(),
        victim: Rc::clone(&victim),
        at_work: RefCell::default(),
        works: Cell::new(0),
        left_during: RefCell::default(),
        back_at: RefCell::default(),
        absent: RefCell::default(),
        back_within: RefCell::default(),
        ripe: Cell::new(0),
        departures: Cell::new(0),
        last_lost: Cell::new(None),
        run_operations: Cell::new(0),
        tally: Cell::default(),
        faults: RefCell::default(),
        ids: RefCell::default(),
        pool: RefCell::default(),
        daemon: RefCell::default(),
        heard: Cell::default(),
        doing: RefCell::default(),
        made: RefCell::default(),
    });
    let mut run = Run {
        course,
        length,
        victim,
        random,
        rates,
        others,
        spare_used: false,
        recovery_cut: false,
        lies_exposed: 0,
    };
    let failure = run.all().err();
    let course = Rc::clone(&run.course);
    course.world.kill();
    course.faults.borrow_mut().count_end(course.world.fault_counters());
    course.note(|tally| {
        tally.mixtures = course.oracle.borrow().mixtures;
        tally.blocks_checked = course.oracle.borrow().blocks_checked;
    });
    let mut trace = course.world.trace_lines();
    trace.extend(course.made.take());
    trace.extend(course.doing.borrow().iter().map(|(client, what)| format!("client {client} was at {what}")));
    Report {
        seed,
        trace_hash: course.world.trace_hash(),
        faults: course.world.fault_counters(),
        by_layout: course.faults.borrow().by_layout,
        tally: course.tally.get(),
        steps: course.world.step_count(),
        failure,
        trace,
    }
}

impl Run {
    fn log_note(&self, what: impl Into<String>) {
        self.course.log_note(what);
    }

    fn all(&mut self) -> Result<(), String> {
        self.run(Goal::Serve, 20)?;
        loop {
            let tally = self.course.tally.get();
            if self.course.operations_left.get() == 0 && tally.power_cuts > 0 && tally.losses > 0 {
                break;
            }
            if self.course.operations_left.get() == 0 {
                // Not before everything that a seed owes has happened.
                self.course.operations_left.set(self.length * 60);
            }
            let operations = self.length * (20 + self.random.below(180));
            self.run(Goal::Serve, operations)?;
        }
        self.calm();
        if self.may_check_without_each() {
            self.check_without_each()?;
        }
        self.run(Goal::Finish, 0)?;
        self.run(Goal::Compare, 0)
    }

    /// Nothing fails from here on, and who is away comes back.
    fn calm(&self) {
        for disk in self.course.world.disks() {
            disk.set_rates(FaultRates::NONE);
            disk.come_back();
        }
        self.course.barred.borrow_mut().clear();
    }

    /// Whether every disk has all that it was told to keep, so that after a resync each may be the one that is left.
    fn may_check_without_each(&self) -> bool {
        let faults = self.course.world.fault_counters();
        let kept_less = [FaultKind::DroppedFlush, FaultKind::ReturnedOld, FaultKind::DelayedWrite];
        self.course.redundant && kept_less.iter().all(|kind| faults.of(*kind) == 0)
    }

    /// Everything is there without any one of the disks: what a resync, a replacement or a write-back left behind on another
    /// would else be healed before anybody saw it.
    fn check_without_each(&mut self) -> Result<(), String> {
        let course = Rc::clone(&self.course);
        // What faults did to content is mended; what the engine did is not.
        course.world.disks().iter().for_each(|disk| disk.replace_content(disk.truth()));
        self.run(Goal::Mend, 0)?;
        let members = course.members.borrow().clone();
        for index in members {
            course.barred.borrow_mut().insert(index);
            let kept = self.run(Goal::Without, 0);
            kept.map_err(|cause| format!("without disk {index}: {cause}"))?;
            course.barred.borrow_mut().clear();
            self.run(Goal::Mend, 0)?;
        }
        course.note(|tally| tally.saw(Rare::IntactWithoutEach));
        Ok(())
    }

    /// One life, with what befalls it.
    fn run(&mut self, goal: Goal, operations: u64) -> Result<(), String> {
        let course = Rc::clone(&self.course);
        course.note(|tally| tally.runs += 1);
        course.run_operations.set(operations);
        course.serving.set(false);
        course.unnoticed.set(false);
        course.at_work.borrow_mut().clear();
        course.left_during.borrow_mut().clear();
        course.absent.borrow_mut().clear();
        self.mend_what_is_added();
        self.set_rates(goal);
        let ended: Rc<RefCell<Option<Result<(), String>>>> = Rc::default();
        let (into, living) = (Rc::clone(&ended), Rc::clone(&course));
        let task = async move {
            let end = live(living, goal).await;
            *into.borrow_mut() = Some(end);
        };
        course.world.spawn("run", Box::pin(task));
        self.log_note(format!("{goal:?} begins"));
        let over = |course: &Course| ended.borrow().is_some() || course.failure.borrow().is_some();
        let first = course.tally.get().runs == 1;
        if goal == Goal::Serve && !first {
            let crash = self.befall(operations, &over)?;
            if let Some(crash) = crash.filter(|_| !over(&course)) {
                self.crash(crash);
                return self.failed();
            }
        }
        self.until(|_| over(&course))?;
        self.failed()?;
        if let Some(Err(cause)) = ended.take() {
            return Err(cause);
        }
        self.log_note("closed");
        course.world.kill();
        if goal == Goal::Serve {
            self.between();
        }
        Ok(())
    }

    /// A disk whose label cannot be read is not added: whoever wants to add it has it mended.
    fn mend_what_is_added(&self) {
        let course = &self.course;
        for index in &course.removals.borrow().added {
            let disk = Rc::clone(&course.disks.borrow()[*index]);
            disk.replace_content(disk.truth());
        }
    }

    fn failed(&self) -> Result<(), String> {
        self.course.failure.borrow().clone().map_or(Ok(()), Err)
    }

    fn until(&self, mut done: impl FnMut(&World) -> bool) -> Result<(), String> {
        self.course.world.run_until(|world| done(world)).map_err(|mut stuck| {
            stuck.trace.clear();
            let seams = self.course.world.seams();
            format!(
                "{stuck}; {} data and {} metadata frames are lent",
                seams.data.lent_count(),
                seams.metadata.lent_count()
            )
        })
    }

    /// Lets the life run while things happen to it; how it is to end, unless by itself.
    fn befall(&mut self, operations: u64, over: &dyn Fn(&Course) -> bool) -> Result<Option<Crash>, String> {
        let course = Rc::clone(&self.course);
        let owes_cut = course.tally.get().power_cuts == 0 && course.tally.get().runs > 3;
        let crash = match self.random.below(10) {
            _ if owes_cut => Some(Crash::PowerCut),
            0..=4 => Some(Crash::PowerCut),
            5..=6 => Some(Crash::Kill),
            _ => None,
        };
        if crash.is_some() && self.random.below(5) == 0 {
            let last = course.world.step_count() + self.random.below(1500);
            self.until(|world| over(&course) || world.step_count() >= last || course.serving.get())?;
            return Ok(crash);
        }
        for _ in 0..1 + self.random.below(3) {
            let at = self.random.below(operations);
            self.until(|_| over(&course) || (course.serving.get() && course.run_operations.get() <= at))?;
            let last = course.world.step_count() + self.random.below(400);
            self.until(|world| over(&course) || world.step_count() >= last)?;
            if over(&course) {
                return Ok(None);
            }
            self.happen();
        }
        if crash.is_some() {
            let at = self.random.below(operations.min(course.run_operations.get() + 1));
            self.until(|_| over(&course) || (course.serving.get() && course.run_operations.get() <= at))?;
            let steps_max = if course.unrest { self.wait_for_unrest(over)? } else { 600 };
            let last = course.world.step_count() + self.random.below(steps_max);
            self.until(|world| over(&course) || world.step_count() >= last)?;
        }
        Ok(crash)
    }

    /// Waits for a moment in which something is half done; in how many steps from there the crash is to come, at most.
    fn wait_for_unrest(&mut self, over: &dyn Fn(&Course) -> bool) -> Result<u64, String> {
        let course = Rc::clone(&self.course);
        let (ripe, departures) = (course.ripe.get(), course.departures.get());
        match self.random.below(4) {
            0 => self.until(|_| over(&course) || course.is_at_work())?,
            1 => self.until(|_| over(&course) || course.ripe.get() > ripe)?,
            2 => self.until(|_| over(&course) || course.departures.get() > departures)?,
            _ => return Ok(600),
        }
        Ok(8 << self.random.below(7))
    }

    /// Something happens to the disks or the clock.
    fn happen(&mut self) {
        let course = Rc::clone(&self.course);
        let victim = Rc::clone(&course.disks.borrow()[self.victim.get()]);
        let owes_loss = course.tally.get().losses == 0 && course.tally.get().runs > 2;
        match self.random.below(8) {
            _ if victim.is_absent() => {
                self.log_note("the lost disk comes back");
                victim.come_back();
            }
            0..=3 => self.lose(),
            _ if owes_loss => self.lose(),
            4 => course.world.jump_clock(Duration::from_millis(1 + self.random.below(5000))),
            5 | 6 if !self.spare_used && !course.lost.get() && course.leaving.borrow().is_empty() => {
                let old = if course.one_suffers {
                    self.victim.get()
                } else {
                    let members = course.members.borrow();
                    members[self.random.index(members.len())]
                };
                self.spare_used = true;
                if !course.is_leaving(old) && want_replaced(&course, old) {
                    self.log_note(format!("disk {old} is to be replaced"));
                }
            }
            _ => {}
        }
    }

    fn lose(&mut self) {
        let course = &self.course;
        let index = self.victim.get();
        let is_too_much = course.pairs && course.lost.get();
        if !course.members.borrow().contains(&index) || is_too_much || course.votes_alone(index) {
            return;
        }
        self.log_note(format!("disk {index} goes away"));
        course.leaves(index);
        course.disks.borrow()[index].vanish();
        course.lost_with_cache();
    }

    fn crash(&mut self, crash: Crash) {
        let course = Rc::clone(&self.course);
        let recovering = !course.serving.get();
        self.log_note(format!(
            "{crash:?}, {}",
            if recovering { "while recovering" } else { "while serving" }
        ));
        self.note_rare(crash, recovering);
        course.hear();
        match crash {
            Crash::Kill => course.world.kill(),
            Crash::PowerCut => course.world.power_cut(),
        }
        course.oracle.borrow_mut().crashed(crash, recovering);
        course.whole.set(false);
        course.note(|tally| {
            tally.kills += u64::from(crash == Crash::Kill);
            tally.power_cuts += u64::from(crash == Crash::PowerCut);
            tally.recoveries_cut += u64::from(recovering);
        });
        self.between();
    }

    /// Counts what this crash meets.
    fn note_rare(&mut self, crash: Crash, recovering: bool) {
        let course = Rc::clone(&self.course);
        let cut_again = std::mem::replace(&mut self.recovery_cut, recovering) && recovering;
        let victim = Rc::clone(&course.disks.borrow()[self.victim.get()]);
        let lies = victim.fault_counters().of(FaultKind::DroppedFlush);
        let lied = std::mem::replace(&mut self.lies_exposed, lies) < lies;
        let exposed = lied && crash == Crash::PowerCut;
        if exposed {
            // What the disk said was durable is lost without a report: it is as good as damaged.
            course.rolled_back.set(true);
        }
        let cuts = |work: Work| !recovering && course.at_work.borrow().values().any(|other| *other == work);
        let away = course.members.borrow().iter().any(|index| course.disks.borrow()[*index].is_absent());
        let met = [
            (Rare::RecoveryCut, recovering),
            (Rare::RecoveryCutAgain, cut_again),
            (Rare::CrashWithoutADisk, away),
            (Rare::RejoinCut, cuts(Work::Rejoin)),
            (Rare::ResyncCut, cuts(Work::Resync)),
            (Rare::ReplacementCut, cuts(Work::Replacement)),
            (Rare::RemovalCut, crash == Crash::PowerCut && cuts(Work::Removal)),
            (Rare::ReserveCut, crash == Crash::PowerCut && cuts(Work::Reserve)),
            (Rare::EmptyingCut, crash == Crash::PowerCut && cuts(Work::Emptying)),
            (Rare::RebalanceCut, crash == Crash::PowerCut && cuts(Work::Rebalance)),
            (Rare::ConversionCut, crash == Crash::PowerCut && cuts(Work::Conversion)),
            (Rare::CrashAtWork, !recovering && course.is_at_work()),
            (
                Rare::CrashOnUsualRows,
                course.setup.borrow().usual && !course.oracle.borrow().models.is_empty(),
            ),
            (Rare::DroppedFlushExposed, exposed),
        ];
        course.note(|tally| met.iter().filter(|(_, is)| *is).for_each(|(state, _)| tally.saw(*state)));
    }

    /// No daemon runs: disks come back, perhaps as they were, and another disk may be the one that suffers.
    fn between(&mut self) {
        let course = Rc::clone(&self.course);
        let victim = Rc::clone(&course.disks.borrow()[self.victim.get()]);
        if victim.is_absent() && self.random.coin() {
            victim.come_back();
            if course.redundant && !course.pairs && self.random.coin() {
                let ago = self.random.index(3);
                if victim.return_to(ago) {
                    self.log_note(format!("the lost disk is back as it was {ago} flushes before"));
                    course.rolled_back.set(true);
                    course.note(|tally| tally.returned_old += 1);
                }
            } else {
                self.log_note("the lost disk is back");
            }
        }
        let member = course.members.borrow().contains(&self.victim.get());
        if !member || (course.whole.get() && !course.rolled_back.get() && self.random.below(3) == 0) {
            if member {
                victim.replace_content(victim.truth());
            }
            let members = course.members.borrow();
            let choice = self.random.index(members.len());
            // Where not all is as it was, no other may suffer than who took the place: it may lack something.
            let may_lack = course.one_suffers && !course.whole.get();
            let shadow = self.shadow().filter(|shadow| may_lack && members.contains(shadow));
            let victim = shadow.unwrap_or(members[choice]);
            self.victim.set(victim);
            self.lies_exposed = course.disks.borrow()[victim].fault_counters().of(FaultKind::DroppedFlush);
            drop(members);
            self.log_note(format!("disk {} is the one that suffers from here on", self.victim.get()));
        }
        let is_away = |index: &usize| course.disks.borrow()[*index].is_absent();
        let members = course.members.borrow().clone();
        if course.pairs && members.len() > 2 && !members.iter().any(is_away) && self.random.coin() {
            course.barred.borrow_mut().clear();
            // Half of the time it is the one that left last.
            let last = course.last_lost.get().filter(|index| members.contains(index) && self.random.coin());
            let index = last.unwrap_or(members[self.random.index(members.len())]);
            self.keep_out(index);
        }
    }

    /// Who took the place of the disk that suffered, or of who took that.
    fn shadow(&self) -> Option<usize> {
        let shadows = self.course.shadows.borrow();
        std::iter::successors(shadows.get(&self.victim.get()), |disk| shadows.get(disk))
            .take(shadows.len())
            .last()
            .copied()
    }

    /// A disk is kept out of the next life for a while.
    fn keep_out(&self, index: usize) {
        self.log_note(format!("disk {index} is kept out"));
        self.course.barred.borrow_mut().insert(index);
        self.course.lost.set(true);
        self.course.whole.set(false);
        self.course.hard.set(true);
    }

    fn set_rates(&self, goal: Goal) {
        for disk in self.course.world.disks() {
            let is_hard = goal == Goal::Serve && self.course.created.get();
            let suffers = disk.index().0 == self.victim.get();
            disk.set_rates(match (is_hard, suffers) {
                (true, true) => self.rates,
                (true, false) => self.others,
                (false, _) => FaultRates::NONE,
            });
        }
    }
}
