//! Crash tests: a life of a pool is recorded, power is cut after every write and flush, and what may be left is opened by
//! the engine that ships. Every block is old or new, never a third; what a flush covered is there; the pool is sound,
//! works, and opens again.
//!
//! States are drawn, evenly over the kinds of steps, until a budget is spent: `DOLMEN_CRASH_STATES` states for each life
//! and way of crashing, half as many of pools of more than three disks, or `all`. `DOLMEN_CRASH_SEED` draws others;
//! `DOLMEN_CRASH_RUNS=parity` takes these spaces alone, `DOLMEN_CRASH_SCENARIO=Destage` these scenarios. Of a short life nothing
//! is drawn, but which bit of a page turns: see [`everything`].
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::disallowed_methods,
    clippy::cast_possible_truncation,
    clippy::filter_map_bool_then,
    clippy::type_complexity
)] // a test may fail, print its seed and its figures, and look at a clock for them

mod everything;

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Instant as Clock;

use crate::crash_oracle::{Case, Devices, FlippedBit, attach, open_pool, run_for, verify, verify_in};
use crate::harness::Kind;
use crate::recorded_run::{RecordedRun, Scenario, parity_of};
use crate::recording::{
    BLOCK, Death, Expected, Instant, Mark, NotingArbiter, Operation, Recording, host_with,
};
use crate::{crash_oracle, recorded_run};
use dolmen_pool::{Arbiter, OpenMode};
use dolmen_sim::{
    BitFlip, CrashState, Cut, DiskIndex, Fate, PendingWrite, Random, Rate, SimDisk, StateOptions, Tearing,
    World,
};
use dolmen_space::{Integrity, Resiliency};

const KINDS: [Kind; 9] = [
    Kind::usual(Resiliency::Simple),
    Kind::usual(Resiliency::Span),
    MIRROR,
    Kind::usual(Resiliency::Mirror { copies: 3 }),
    Kind::usual(Resiliency::Parity { parity: 1 }),
    Kind::strict(Resiliency::Simple),
    Kind::strict(Resiliency::Mirror { copies: 2 }),
    Kind::usual(Resiliency::Mirror { copies: 4 }),
    Kind::usual(Resiliency::Parity { parity: 2 }),
];
const MIRROR: Kind = Kind::usual(Resiliency::Mirror { copies: 2 });
/// The kind whose every cut is tried in every run.
const EVERY_CUT: Kind = MIRROR;
/// More cuts than any life has.
const CUTS_MAX: usize = 10_000;
/// States of each life and way of crashing.
const STATES: u64 = 16;
/// How often each command of a life that rewrites is followed by a kill.
const REWRITE_ROUNDS: u64 = 2;
/// States of one cut that are opened before another is drawn.
const STATES_OF_A_CUT: u64 = 3;

fn budget() -> u64 {
    match std::env::var("DOLMEN_CRASH_STATES").ok().as_deref() {
        None => STATES,
        Some("all") => u64::MAX,
        Some(count) => count.parse().unwrap(),
    }
}

/// States of a life of this kind: pools of many disks take longer, and have half as many.
fn budget_of(kind: Kind) -> u64 {
    let states = budget();
    if states == u64::MAX || recorded_run::disks_of(kind.resiliency) == recorded_run::DISKS {
        states
    } else {
        states.div_ceil(2)
    }
}

fn seed() -> u64 {
    std::env::var("DOLMEN_CRASH_SEED").ok().map_or(1, |seed| seed.parse().unwrap())
}

/// The spaces whose lives are gone through. A variable that names none fails: a run over nothing would pass.
fn kinds() -> Vec<Kind> {
    let only = std::env::var("DOLMEN_CRASH_RUNS").unwrap_or_default();
    let kinds: Vec<Kind> = KINDS.into_iter().filter(|kind| kind.to_string().starts_with(&only)).collect();
    assert!(!kinds.is_empty(), "DOLMEN_CRASH_RUNS={only} names no space");
    let scenario = scenario_asked();
    assert!(
        kinds.iter().flat_map(|&kind| scenarios_of(kind)).any(|one| is_asked(*one, &scenario)),
        "DOLMEN_CRASH_SCENARIO={scenario} names no scenario of these spaces"
    );
    kinds
}

fn scenario_asked() -> String {
    std::env::var("DOLMEN_CRASH_SCENARIO").unwrap_or_default()
}

fn is_asked(scenario: Scenario, asked: &str) -> bool {
    format!("{scenario:?}").starts_with(asked)
}

/// The lives of a kind that are gone through.
fn scenarios(kind: Kind) -> impl Iterator<Item = Scenario> {
    let asked = scenario_asked();
    scenarios_of(kind).iter().copied().filter(move |&scenario| is_asked(scenario, &asked))
}

/// The lives of a kind.
fn scenarios_of(kind: Kind) -> &'static [Scenario] {
    match (kind.resiliency, kind.integrity) {
        (Resiliency::Parity { .. }, _) => &[
            Scenario::Blocks,
            Scenario::Owners,
            Scenario::Destage,
            Scenario::Stripes,
            Scenario::ShadowRows,
            Scenario::AlternatingSlots,
            Scenario::Converted,
        ],
        (_, Integrity::Strict) => {
            &[Scenario::Blocks, Scenario::Owners, Scenario::Destage, Scenario::Converted]
        }
        (_, Integrity::Relaxed) if kind == MIRROR => {
            &[Scenario::Blocks, Scenario::Owners, Scenario::Shipped, Scenario::Converted]
        }
        (_, Integrity::Relaxed) => &[Scenario::Blocks, Scenario::Owners],
    }
}

/// What was tried.
#[derive(Default)]
struct Tally {
    states: u64,
    cuts: BTreeSet<usize>,
    steps: BTreeMap<&'static str, u64>,
}

impl Tally {
    fn note(&mut self, run: &RecordedRun, cut: Cut) {
        self.states += 1;
        self.cuts.insert(cut.0);
        for step in run.steps_at(cut.0) {
            *self.steps.entry(step).or_insert(0) += 1;
        }
    }
}

/// Cuts in an order that visits the kinds of steps in turn, and within a kind draws.
fn cuts_in_order(run: &RecordedRun, random: &mut Random) -> Vec<Cut> {
    let mut by_step: BTreeMap<Vec<&'static str>, Vec<Cut>> = BTreeMap::new();
    for cut in run.recording.recorder().cuts() {
        by_step.entry(run.steps_at(cut.0)).or_default().push(cut);
    }
    let mut order = Vec::new();
    while !by_step.is_empty() {
        for cuts in by_step.values_mut() {
            let index = random.index(cuts.len());
            order.push(cuts.swap_remove(index));
        }
        by_step.retain(|_, cuts| !cuts.is_empty());
    }
    order
}

/// A few states of a cut, by draws; all when the budget is without end.
fn some_states(run: &RecordedRun, cut: Cut, options: &StateOptions, random: &mut Random) -> Vec<CrashState> {
    let states = run.recording.recorder().states(cut, options);
    if budget() == u64::MAX {
        return states.collect();
    }
    let writes: Vec<u64> =
        run.recording.recorder().pending(cut).iter().map(|write| write.unit_count).collect();
    let tearing = if options.torn_equally.is_some() { Tearing::Whole } else { options.tearing };
    let count = dolmen_sim::CrashPlan::new(writes, tearing, options.seed).state_count();
    // Drawn within the first thousand: each write of up to ten lands and is lost among them.
    let drawn: BTreeSet<u64> = (0..STATES_OF_A_CUT).map(|_| random.below(count.min(1100))).collect();
    let last = drawn.last().copied().unwrap_or(0);
    let kept = (0..=last).zip(states).filter(|(index, _)| drawn.contains(index));
    kept.map(|(_, state)| state).collect()
}

fn case(run: &RecordedRun, instant: Instant, states: u64) -> Case {
    Case {
        expected: Expected::at(&run.recording, instant, Death::PowerCut),
        disks: run.disks,
        copies: run.kind.resiliency.redundancy() + 1,
        parity_of: run.parity_of(),
        lost: BTreeSet::new(),
        absent_then: BTreeSet::new(),
        flipped_bit: None,
        lost_later: states as usize / 3,
        torn: true,
        torn_headers: false,
        thorough: states.is_multiple_of(3),
    }
}

/// Opens a state at every instant of its cut.
fn try_state(
    run: &RecordedRun,
    state: &CrashState,
    tally: &mut Tally,
    change: impl Fn(&mut Case),
) -> Result<(), String> {
    for instant in run.recording.instants(state.cut()) {
        let mut case = case(run, instant, tally.states);
        change(&mut case);
        let seed = tally.states;
        tally.note(run, state.cut());
        let named = run.recording.named(instant);
        let context = Context(format!(
            "{}, {instant:?}, steps {:?}, {state}, gone {:?}, flipped {:?}",
            run.kind,
            run.steps_at(state.cut().0),
            case.lost,
            case.flipped_bit
        ));
        verify(&state.reopen(seed), case, run.pool, named)
            .map_err(|why| format!("{why}\nafter {}", context.0))?;
    }
    Ok(())
}

/// Tells what was tried when the engine panics.
struct Context(String);

impl Drop for Context {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("under trial: {}", self.0);
        }
    }
}

/// Goes through lives with one way of crashing.
fn go_through(
    way: &str,
    mut attempt: impl FnMut(&RecordedRun, Cut, &mut Random, &mut Tally) -> Result<(), String>,
) {
    let begun = Clock::now();
    let mut states = 0;
    println!("{way}: seed {}", seed());
    for kind in kinds() {
        for scenario in scenarios(kind) {
            let run = RecordedRun::record(kind, scenario, seed());
            let mut random = Random::new(seed());
            let mut tally = Tally::default();
            for cut in cuts_in_order(&run, &mut random) {
                if tally.states >= budget_of(kind) {
                    break;
                }
                if let Err(why) = attempt(&run, cut, &mut random, &mut tally) {
                    panic!("{way}, {scenario:?}, seed {}: {why}", seed());
                }
            }
            states += tally.states;
            let all = run.recording.recorder().cuts().len();
            println!(
                "  {kind}, {scenario:?}: {} states, {} of {all} cuts, {} kinds of steps",
                tally.states,
                tally.cuts.len(),
                tally.steps.len()
            );
        }
    }
    println!("{way}: {states} states in {:?}", begun.elapsed());
}

/// Any subset of what no flush covered is lost; every disk is there.
#[test]
fn a_power_cut_leaves_every_block_old_or_new() {
    go_through("whole writes", |run, cut, random, tally| {
        let options = StateOptions { seed: random.next_u64(), ..StateOptions::default() };
        for state in some_states(run, cut, &options, random) {
            try_state(run, &state, tally, |_| {})?;
        }
        Ok(())
    });
}

/// As many disks as the space survives are gone after the cut, any of them.
#[test]
fn a_power_cut_that_takes_disks_along_loses_nothing_flushed() {
    go_through("disks gone", |run, cut, random, tally| {
        let options = StateOptions { seed: random.next_u64(), ..StateOptions::default() };
        for state in some_states(run, cut, &options, random) {
            let lost = draw_lost(run, random);
            if !lost.is_empty() {
                try_state(run, &state, tally, |case| case.lost.clone_from(&lost))?;
            }
        }
        Ok(())
    });
}

/// Disks that the space survives: none to as many as it has spare copies.
fn draw_lost(run: &RecordedRun, random: &mut Random) -> BTreeSet<usize> {
    draw_lost_of(run.disks, run, random)
}

/// The same of more disks than the pool began with.
fn draw_lost_of(disks: usize, run: &RecordedRun, random: &mut Random) -> BTreeSet<usize> {
    (0..run.kind.resiliency.redundancy())
        .filter_map(|_| (random.below(8) > 0).then(|| random.index(disks)))
        .collect()
}

/// One write is torn at a sector, or all copies of every block at the same sector, and disks may be gone.
#[test]
fn a_torn_block_is_old_or_new_or_listed() {
    go_through("torn writes", |run, cut, random, tally| {
        let torn_equally = random.coin().then(|| 1 + random.below(7) as u8);
        let seed = random.next_u64();
        let options =
            StateOptions { seed, tearing: Tearing::OneTorn, torn_equally, ..StateOptions::default() };
        for state in some_states(run, cut, &options, random) {
            let lost = if random.coin() { draw_lost(run, random) } else { BTreeSet::new() };
            try_state(run, &state, tally, |case| {
                case.lost.clone_from(&lost);
                case.torn_headers =
                    run.scenario == Scenario::Converted || run.kind.resiliency.parity_columns() > 0;
            })?;
        }
        Ok(())
    });
}

/// Pages that were ever written, by disk and address.
fn written_pages(run: &RecordedRun) -> BTreeSet<(DiskIndex, u64)> {
    let recorder = run.recording.recorder();
    let writes = recorder.cuts().into_iter().flat_map(|cut| recorder.pending(cut));
    writes
        .filter(|write| write.length <= 256 * 1024)
        .flat_map(|write| {
            (write.at / BLOCK..(write.at + write.length).div_ceil(BLOCK))
                .map(move |page| (write.disk, page * BLOCK))
        })
        .collect()
}

/// How every block that was ever written begins, and parity of them, which stands for the first block of its line.
type Beginnings = BTreeMap<Vec<u8>, (&'static str, u64)>;

fn beginnings(run: &RecordedRun) -> Beginnings {
    let mut found = Beginnings::new();
    for entry in run.recording.entries.borrow().iter() {
        if let Operation::Put { first, count, fill } = entry.operation {
            let blocks = (first..first + count).filter(|_| fill != 0);
            found.extend(blocks.map(|block| (crash_oracle::beginning(block, fill), (entry.name, block))));
        }
    }
    if let Some(columns) = run.parity_of() {
        let of_parity = parities(&found, columns);
        for (beginning, stripe) in of_parity {
            found.entry(beginning).or_insert(stripe);
        }
    }
    found
}

/// What parity of one column may begin with: of whatever its line's blocks ever held, or of nothing.
fn parities(blocks: &Beginnings, columns: u64) -> Beginnings {
    let mut lines: BTreeMap<_, BTreeMap<u64, Vec<&Vec<u8>>>> = BTreeMap::new();
    for (beginning, (name, block)) in blocks {
        let stripe = lines.entry((*name, crash_oracle::stripe_of(columns, *block))).or_default();
        stripe.entry(*block).or_default().push(beginning);
    }
    let mut found = Beginnings::new();
    for ((name, _), of_stripe) in lines {
        let first = of_stripe.keys().next().copied().unwrap_or_default();
        let mut sums = BTreeSet::from([vec![0; crash_oracle::BEGINNING]]);
        for contents in of_stripe.values() {
            let with = |sum: &Vec<u8>, content: &[u8]| -> Vec<u8> {
                sum.iter().zip(content).map(|(left, right)| left ^ right).collect()
            };
            let more = sums.iter().flat_map(|sum| contents.iter().map(move |content| with(sum, content)));
            let more: Vec<Vec<u8>> = more.collect();
            sums.extend(more);
        }
        sums.remove(&vec![0; crash_oracle::BEGINNING]);
        found.extend(sums.into_iter().map(|sum| (sum, (name, first))));
    }
    found
}

/// The block that a page of a state holds.
fn block_at(known: &Beginnings, state: &CrashState, page: (DiskIndex, u64)) -> Option<(&'static str, u64)> {
    let mut bytes = vec![0; crash_oracle::BEGINNING];
    state.image(page.0)?.read(page.1, &mut bytes);
    known.get(&bytes).copied()
}

/// A bit turns on one disk: in a block in flight, in one beside it, or, where everything has two copies, anywhere.
#[test]
fn a_flipped_bit_is_never_believed() {
    let mut looked: Option<((Kind, usize), Vec<(DiskIndex, u64)>, Beginnings)> = None;
    go_through("a flipped bit", |run, cut, random, tally| {
        let key = (run.kind, run.recording.entries.borrow().len());
        if looked.as_ref().is_none_or(|(of, ..)| *of != key) {
            looked = Some((key, written_pages(run).into_iter().collect(), beginnings(run)));
        }
        let Some((_, pages, known)) = &looked else { return Ok(()) };
        let seed = random.next_u64();
        let options = StateOptions { seed, ..StateOptions::default() };
        let states = some_states(run, cut, &options, &mut Random::new(seed));
        for (number, state) in states.iter().enumerate() {
            let data: Vec<_> =
                pages.iter().filter(|page| block_at(known, state, **page).is_some()).copied().collect();
            let anywhere = run.kind.resiliency.redundancy() > 0 && random.below(4) == 0;
            let from = if anywhere { pages } else { &data };
            if from.is_empty() {
                continue;
            }
            let page = from[random.index(from.len())];
            let flip = BitFlip { disk: page.0, at: page.1 + random.below(BLOCK), bit: random.below(8) as u8 };
            let flipped_bit = block_at(known, state, page);
            let flipped_bit =
                flipped_bit.map_or(FlippedBit::Elsewhere, |(name, block)| FlippedBit::Block(name, block));
            let options = StateOptions { flip: Some(flip), ..options };
            let bad = some_states(run, cut, &options, &mut Random::new(seed)).swap_remove(number);
            let lost = if random.coin() && !anywhere { draw_lost(run, random) } else { BTreeSet::new() };
            try_state(run, &bad, tally, |case| {
                case.lost.clone_from(&lost);
                case.flipped_bit = Some(flipped_bit);
            })?;
        }
        Ok(())
    });
}

/// Power fails a second time while the pool is opened, and another disk is gone then.
#[test]
fn a_second_crash_during_recovery_changes_nothing() {
    go_through("crash during recovery", |run, cut, random, tally| {
        let options = StateOptions { seed: random.next_u64(), ..StateOptions::default() };
        for state in some_states(run, cut, &options, random).into_iter().take(1) {
            let instants = run.recording.instants(state.cut());
            let instant = instants[random.index(instants.len())];
            crash_again(run, &state, instant, random, tally)?;
        }
        Ok(())
    });
}

/// The tape of an opening of a state.
fn open_recorded(
    run: &RecordedRun,
    state: &CrashState,
    instant: Instant,
    lost: &BTreeSet<usize>,
    seed: u64,
) -> Result<Rc<Recording>, String> {
    let again = state.reopen(seed);
    again.world.set_arenas(recorded_run::ARENAS, recorded_run::ARENAS);
    let recording = Recording::new(Some(again.world.record()));
    let arbiter = host_with(run.pool, run.recording.named(instant), &recording);
    let devices = attach(&again.disks, lost, &again.world);
    let seams = again.world.seams();
    let opening = async move {
        let arbiter = arbiter as Rc<dyn Arbiter>;
        open_pool(&seams, &devices, arbiter, OpenMode::Write)
            .await
            .map(drop)
            .map_err(|error| format!("{error:?}"))
    };
    // What cannot be opened here is judged by the other tests.
    let _ = again.world.run(opening).map_err(|stuck| stuck.to_string())?;
    Ok(recording)
}

fn crash_again(
    run: &RecordedRun,
    state: &CrashState,
    instant: Instant,
    random: &mut Random,
    tally: &mut Tally,
) -> Result<(), String> {
    let lost = draw_lost(run, random);
    let recording = open_recorded(run, state, instant, &lost, random.next_u64())?;
    let cuts = recording.recorder().cuts();
    for _ in 0..STATES_OF_A_CUT {
        let second = cuts[random.index(cuts.len())];
        let options = StateOptions { seed: random.next_u64(), ..StateOptions::default() };
        let count = dolmen_sim::CrashPlan::new(
            recording.recorder().pending(second).iter().map(|write| write.unit_count).collect(),
            Tearing::Whole,
            0,
        )
        .state_count();
        let index = random.below(count.min(600)) as usize;
        let Some(state_again) = recording.recorder().states(second, &options).nth(index) else { continue };
        for instant_again in recording.instants(second) {
            let mut case = case(run, instant, tally.states);
            case.expected.weak.extend(&lost);
            case.lost = draw_lost(run, random);
            let context = Context(format!(
                "{:?}, {instant:?}, {state}\nopened without {lost:?}, again at {instant_again:?}, {state_again}\nopened without {:?}",
                run.steps_at(state.cut().0),
                case.lost
            ));
            tally.note(run, state.cut());
            verify(&state_again.reopen(tally.states), case, run.pool, recording.named(instant_again))
                .map_err(|why| format!("{why}\nafter {}", context.0))?;
        }
    }
    Ok(())
}

/// A disk loses what was cached last, and is gone when the pool is opened. Power fails at every step of that, and then it is
/// here, as it was, and another one gone: what the opening found in the cache, and had not made durable, counts for nothing.
#[test]
fn cached_content_is_found_again_by_each_opening_until_it_ends() -> Result<(), String> {
    let run = RecordedRun::record(Kind::usual(Resiliency::Parity { parity: 1 }), Scenario::Cached, seed());
    let end = run.recording.recorder().now();
    let instant = run.recording.end();
    let mut tally = Tally::default();
    for first in 0..run.disks {
        let lost = BTreeSet::from([first]);
        let has_lost =
            |(write, fate): &(PendingWrite, Fate)| (write.disk.0 == first) == (*fate == Fate::Lost);
        let mut states = run.recording.recorder().states(end, &StateOptions::default());
        let state = states.find(|state| state.fates().iter().all(has_lost)).unwrap();
        let recording = open_recorded(&run, &state, instant, &lost, 1)?;
        for cut in recording.recorder().cuts() {
            let is_landed = |(_, fate): &(PendingWrite, Fate)| *fate == Fate::Landed;
            let mut states = recording.recorder().states(cut, &StateOptions::default());
            let Some(again) = states.find(|state| state.fates().iter().all(is_landed)) else { continue };
            for instant_again in recording.instants(cut) {
                for then in (0..run.disks).filter(|then| *then != first) {
                    let mut case = case(&run, instant, tally.states);
                    case.expected.weak.extend(&lost);
                    case.lost = BTreeSet::from([then]);
                    tally.note(&run, end);
                    verify(&again.reopen(tally.states), case, run.pool, recording.named(instant_again))
                        .map_err(|why| {
                            format!("{why}\nopened without {first}, {again}, then without {then}")
                        })?;
                }
            }
        }
    }
    println!("{} states", tally.states);
    Ok(())
}

/// The daemon is killed: what completed stays, what was under way lands, is lost, or lands just before the next daemon gets
/// the locks, in any order; what was acknowledged is there without any flush. Or a client flushes then, and power fails.
#[test]
fn a_killed_daemon_loses_nothing_acknowledged() {
    let begun = Clock::now();
    let mut kills = 0;
    println!("killed: seed {}", seed());
    for kind in kinds() {
        for scenario in scenarios(kind) {
            let all = RecordedRun::record(kind, scenario, seed()).world.change_count();
            let mut random = Random::new(seed());
            let count = budget_of(kind).min(all);
            for number in 0..count {
                let commands = number * all / count + random.below(all.div_ceil(count)) + 1;
                kills += 1;
                if let Err(why) = kill_after(kind, scenario, commands, &mut random) {
                    panic!("killed after {commands} commands, {kind}, {scenario:?}, seed {}: {why}", seed());
                }
            }
        }
    }
    println!("killed: {kills} times in {:?}", begun.elapsed());
}

fn kill_after(kind: Kind, scenario: Scenario, commands: u64, random: &mut Random) -> Result<(), String> {
    let (world, disks, recording) =
        mortal_world(recorded_run::disks_of(kind.resiliency) + scenario.further_disks(), random);
    let (body, arbiter) = recorded_run::body(&world, &disks, &recording, kind, scenario);
    let _context = Context(format!("killed after {commands} commands, {kind}, {scenario:?}"));
    if let Some(Err(error)) = run_for(&world, commands, body) {
        return Err(error);
    }
    verify_after_kill(&world, disks, &recording, arbiter, kind.resiliency, random)
}

/// A world in which what is under way at a kill may land late, its disks, and what notes what was acknowledged.
fn mortal_world(disks: usize, random: &mut Random) -> (Rc<World>, Vec<Rc<SimDisk>>, Rc<Recording>) {
    let world = Rc::new(World::new(random.next_u64()));
    world.set_arenas(recorded_run::ARENAS, recorded_run::ARENAS);
    let profile = || recorded_run::profile().with_delayed_writes(Rate::one_in(3));
    let disks = (0..disks).map(|number| world.add_disk(&recorded_run::name_of(number), profile())).collect();
    (world, disks, Recording::new(None))
}

/// Kills the process, and holds what the next one finds against what was acknowledged.
fn verify_after_kill(
    world: &Rc<World>,
    disks: Vec<Rc<SimDisk>>,
    recording: &Rc<Recording>,
    arbiter: Rc<NotingArbiter>,
    resiliency: Resiliency,
    random: &mut Random,
) -> Result<(), String> {
    world.kill();
    for disk in &disks {
        disk.come_back();
        // The locks on members are held until the last command is over; see docs/fault_model.md, Delayed writes.
        disk.outlast_the_dead();
    }
    let end = recording.end();
    if random.coin() {
        let devices = attach(&disks.iter().cloned().map(Some).collect::<Vec<_>>(), &BTreeSet::new(), world);
        flush_and_fail(world, devices, Rc::clone(&arbiter) as Rc<dyn Arbiter>)?;
    }
    let case = Case {
        expected: Expected::at(recording, end, Death::Kill),
        disks: recorded_run::disks_of(resiliency),
        copies: resiliency.redundancy() + 1,
        parity_of: parity_of(resiliency),
        lost: BTreeSet::new(),
        absent_then: BTreeSet::new(),
        flipped_bit: None,
        lost_later: random.index(recorded_run::disks_of(resiliency)),
        torn: true,
        torn_headers: false,
        thorough: true,
    };
    let disks: Vec<_> = disks.into_iter().map(Some).collect();
    let devices = Devices { here: attach(&disks, &BTreeSet::new(), world), later: Vec::new() };
    verify_in(world, case, devices, arbiter)
}

/// A client finds the next daemon and flushes, and power fails as that is acknowledged: what the first daemon acknowledged has
/// been made durable.
fn flush_and_fail(
    world: &World,
    devices: Vec<Rc<dyn dolmen_block_io::BlockDevice>>,
    arbiter: Rc<dyn Arbiter>,
) -> Result<(), String> {
    let seams = world.seams();
    let flushing = async move {
        // What cannot be opened is judged behind this.
        let Ok(spaces) = open_pool(&seams, &devices, arbiter, OpenMode::Write).await else { return Ok(()) };
        spaces.flush().await.map_err(|error| format!("the next daemon cannot flush: {error}"))
    };
    world.run(flushing).map_err(|stuck| stuck.to_string())??;
    world.power_cut();
    Ok(())
}

/// The daemon is killed after each command of writes over blocks that no flush has covered, several times each: a block is
/// what was acknowledged last, or what was under way.
#[test]
fn a_killed_rewrite_leaves_old_or_new() -> Result<(), String> {
    let mut kills = 0;
    for kind in [Kind::usual(Resiliency::Simple), MIRROR] {
        let mut random = Random::new(seed());
        let (mut commands, mut rounds) = (0, 0);
        while rounds < REWRITE_ROUNDS {
            commands += 1;
            let (world, disks, recording) =
                mortal_world(recorded_run::disks_of(kind.resiliency), &mut random);
            let (again, arbiter) = recorded_run::rewriting(&world, &disks, &recording, kind);
            if run_for(&world, commands, again).transpose()?.is_some() {
                (commands, rounds) = (0, rounds + 1);
                continue;
            }
            kills += 1;
            verify_after_kill(&world, disks, &recording, arbiter, kind.resiliency, &mut random)
                .map_err(|why| format!("killed after {commands} commands, {kind}, seed {}: {why}", seed()))?;
        }
    }
    println!("killed: {kills} times");
    Ok(())
}

/// Power is cut after every single write and flush while a disk is added, replaced, excluded under a write, and taken back
/// in. The members are the old ones or the new ones; a replacement goes on where the pool says that it is; everything that
/// was flushed is there, also with one disk gone for as many as the space survives; nothing stays stale.
#[test]
fn a_cut_while_disks_come_and_go_leaves_old_or_new_members() {
    cut_while_members_change("disks come and go", Scenario::Disks, 0);
}

/// The same while a disk leaves without another in its place, under writes, what it has going to one that was added. It is a
/// member, or was struck and everything is elsewhere; what was cut is gone on with, also without a disk that the space can do
/// without; and then any one disk may go.
#[test]
fn a_cut_while_disks_come_and_go_leaves_a_member_or_all_of_it_elsewhere() {
    cut_while_members_change("a disk is removed", Scenario::Removal, Scenario::Removal.further_disks());
}

/// Cuts a life in which members change, with some of the disks gone: of those that the pool began with, and so many of the others.
fn cut_while_members_change(way: &str, scenario: Scenario, further: usize) {
    let begun = Clock::now();
    println!("{way}: seed {}", seed());
    for kind in kinds() {
        let run = RecordedRun::record(kind, scenario, seed());
        let mut random = Random::new(seed());
        let mut tally = Tally::default();
        let every = kind == EVERY_CUT || budget() == u64::MAX;
        let cuts = cuts_in_order(&run, &mut random);
        let cuts = cuts.into_iter().filter(|cut| !run.steps_at(cut.0).is_empty());
        for cut in cuts.take(if every { CUTS_MAX } else { STATES as usize }) {
            let options = StateOptions { seed: random.next_u64(), ..StateOptions::default() };
            let states = some_states(&run, cut, &options, &mut random);
            for state in states.iter().take(if budget() == u64::MAX { usize::MAX } else { 1 }) {
                let lost = if random.below(3) == 0 {
                    draw_lost_of(run.disks + further, &run, &mut random)
                } else {
                    BTreeSet::new()
                };
                let tried = try_state(&run, state, &mut tally, |case| {
                    case.lost.clone_from(&lost);
                    case.thorough |= !lost.is_empty();
                });
                if let Err(why) = tried {
                    panic!("{way}, seed {}: {why}", seed());
                }
            }
        }
        println!("  {kind}: {} states at {} cuts", tally.states, tally.cuts.len());
    }
    println!("{way}: {:?}", begun.elapsed());
}

/// Power is cut within checkpoints of a map without room, which are made in parts, while blocks are written; disks may be gone
/// then. Every change that was committed is on the map, and every block is old or new.
#[test]
fn a_cut_within_a_checkpoint_in_parts_loses_nothing_of_map_and_blocks() {
    let begun = Clock::now();
    println!("checkpoints in parts: seed {}", seed());
    let run = RecordedRun::record(MIRROR, Scenario::FullMap, seed());
    let mut random = Random::new(seed());
    let mut tally = Tally::default();
    let cuts = cuts_in_order(&run, &mut random).into_iter().filter(|cut| !run.steps_at(cut.0).is_empty());
    let cuts: Vec<Cut> = cuts.collect();
    assert!(cuts.len() > 1000, "{} cuts: checkpoints in one go have some 200", cuts.len());
    for cut in cuts {
        if tally.states >= budget() {
            break;
        }
        let options = StateOptions { seed: random.next_u64(), ..StateOptions::default() };
        for state in some_states(&run, cut, &options, &mut random) {
            let lost = if random.coin() { draw_lost(&run, &mut random) } else { BTreeSet::new() };
            if let Err(why) = try_state(&run, &state, &mut tally, |case| case.lost.clone_from(&lost)) {
                panic!("a checkpoint in parts, seed {}: {why}", seed());
            }
        }
    }
    let (states, cuts) = (tally.states, tally.cuts.len());
    println!("checkpoints in parts: {states} states in {:?}, {cuts} cuts", begun.elapsed());
}

/// Control: a tape that claims a flush was acknowledged when it began. The oracle has to find a state that breaks the claim,
/// or it would not see a lost flush.
#[test]
fn the_oracle_detects_a_missing_flush() {
    let run = RecordedRun::record(MIRROR, Scenario::Blocks, seed());
    for entry in run
        .recording
        .entries
        .borrow_mut()
        .iter_mut()
        .filter(|entry| matches!(entry.operation, Operation::Flush))
    {
        entry.acked = Some(Mark { order: entry.begun.order + 1, ..entry.begun });
    }
    let entries = run.recording.entries.borrow();
    let flushes: Vec<Cut> = entries
        .iter()
        .filter(|entry| matches!(entry.operation, Operation::Flush))
        .map(|entry| Cut(entry.begun.cut))
        .collect();
    drop(entries);
    let mut tally = Tally::default();
    for cut in flushes {
        // The first state is the one that loses all it can.
        for state in run.recording.recorder().states(cut, &StateOptions::default()).take(1) {
            if try_state(&run, &state, &mut tally, |_| {}).is_err() {
                println!("the lie was seen in state {}", tally.states);
                return;
            }
        }
    }
    panic!("none of {} states showed the lie", tally.states);
}
