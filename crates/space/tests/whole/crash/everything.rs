//! Everything that a short life may leave: nothing is drawn, but which bit of a page turns.
//!
//! Each test goes through a product, and holds how many states it opened against what the product comes to, which it counts
//! without opening any.
//! - *Whole writes*: each cut, each subset of what no flush has covered, each set of disks that may be lost.
//! - *Torn*: each cut, each block in flight torn at each sector, on all of its copies alike, and each subset of the other writes;
//!   with each set of disks lost, at one sector. So is each page of what tells of blocks, with no disk lost.
//! - *Flipped*: each cut, each set of disks lost, a bit in each copy of each block in flight and in the pages before and behind it;
//!   of what was in flight nothing has landed, all, that copy alone, or all but it.
//! - *A second crash*: each cut with a block in flight and the first of each stretch of steps, or with `DOLMEN_CRASH_STATES=all`
//!   each cut, opened with all disks and without each; each cut of that opening, without each other disk; of both cuts what has
//!   lost all it can, and what has lost nothing.

#![allow(
    dead_code,
    unreachable_pub,
    missing_docs,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::disallowed_methods,
    clippy::cast_possible_truncation
)]

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant as Clock;

use dolmen_sim::{
    BitFlip, CrashState, Cut, DiskIndex, Fate, PendingWrite, Random, Recorder, SUBSETS_MAX, StateOptions,
    Tear,
};
use dolmen_space::Resiliency;

use crate::crash::{
    Beginnings, Context, Tally, beginnings, block_at, budget, case, open_recorded, seed, try_state,
};
use crate::crash_oracle::{FlippedBit, verify};
use crate::harness::Kind;
use crate::recorded_run::{RecordedRun, Scenario};
use crate::recording::{BLOCK, Death, Expected, Instant, Recording};

const MIRROR: Resiliency = Resiliency::Mirror { copies: 2 };
const THREE_COPIES: Resiliency = Resiliency::Mirror { copies: 3 };
const PARITY: Resiliency = Resiliency::Parity { parity: 1 };

/// Sectors of a block, which a disk writes one by one.
const SECTORS: u64 = 8;
/// The sector at which blocks are torn while disks are lost.
const TORN_AT: u64 = 4;
/// Among so many crashes in front of one it is looked for one that left the same.
const LOOKED_BACK_MAX: usize = 4;

/// Every set of disks that a space survives the loss of, none first.
fn tolerated(run: &RecordedRun) -> Vec<BTreeSet<usize>> {
    let redundancy = u32::from(run.kind.resiliency.redundancy());
    let sets = (0u32..1 << run.disks).filter(|set| set.count_ones() <= redundancy);
    sets.map(|set| (0..run.disks).filter(|disk| set & (1 << disk) != 0).collect()).collect()
}

/// Each choice of landed or lost for the writes to disks that are here, beside those whose fate is given. What disks would have
/// that are gone makes no difference, and is lost.
fn choices(
    pending: &[PendingWrite],
    lost: &BTreeSet<usize>,
    given: &BTreeMap<usize, Fate>,
) -> impl Iterator<Item = Vec<Fate>> {
    assert!(pending.len() <= SUBSETS_MAX, "{} writes have too many subsets", pending.len());
    let is_here = |write: &usize| !lost.contains(&pending[*write].disk.0);
    let open: Vec<usize> =
        (0..pending.len()).filter(is_here).filter(|write| !given.contains_key(write)).collect();
    let mut fates = vec![Fate::Lost; pending.len()];
    given.iter().filter(|(write, _)| is_here(write)).for_each(|(write, fate)| fates[*write] = *fate);
    (0u64..1 << open.len()).map(move |subset| {
        let mut fates = fates.clone();
        let landed = (0..).zip(&open).filter(|(bit, _)| subset & (1 << bit) != 0);
        landed.for_each(|(_, write)| fates[*write] = Fate::Landed);
        fates
    })
}

/// How many pending writes are to disks that are here.
fn here_count(pending: &[PendingWrite], lost: &BTreeSet<usize>) -> u32 {
    pending.iter().filter(|write| !lost.contains(&write.disk.0)).count() as u32
}

/// What lies in a page that is in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum InFlight {
    /// A block of a space, or parity of what shares a line with it.
    Block(&'static str, u64),
    /// What tells of blocks: the same place on every disk that has it.
    Page(u64),
}

/// One copy of what is in flight.
#[derive(Debug, Clone, Copy)]
struct Copy {
    /// Which of the pending writes brings it.
    write: usize,
    disk: DiskIndex,
    at: u64,
    /// Pages of the write in front of it.
    pages_before: u64,
}

impl Copy {
    /// The write torn in this page: pages in front of it land, so many sectors of it, and nothing behind.
    fn torn_at(&self, sector: u64) -> Fate {
        Fate::Torn(Tear::First(self.pages_before * SECTORS + sector))
    }

    fn is_here(&self, lost: &BTreeSet<usize>) -> bool {
        !lost.contains(&self.disk.0)
    }
}

/// What is in flight at a cut, each with its copies.
fn in_flight(recorder: &Recorder, known: &Beginnings, cut: Cut) -> BTreeMap<InFlight, Vec<Copy>> {
    let pending = recorder.pending(cut);
    let mut found: BTreeMap<InFlight, Vec<Copy>> = BTreeMap::new();
    for (number, write) in pending.iter().enumerate() {
        assert_eq!(
            write.unit_count,
            write.length / BLOCK * SECTORS,
            "a write of whole blocks, torn by sectors"
        );
        let mut fates = vec![Fate::Lost; pending.len()];
        fates[number] = Fate::Landed;
        let state = recorder.state(cut, &fates, &StateOptions::default());
        for pages_before in 0..write.length / BLOCK {
            let at = write.at + pages_before * BLOCK;
            let what = match block_at(known, &state, (write.disk, at)) {
                Some((name, block)) => InFlight::Block(name, block),
                None => InFlight::Page(at),
            };
            found.entry(what).or_default().push(Copy { write: number, disk: write.disk, at, pages_before });
        }
    }
    found
}

/// A short life, and what was tried of it.
struct Trial {
    run: RecordedRun,
    known: Beginnings,
    losses: Vec<BTreeSet<usize>>,
    cuts: Vec<Cut>,
    tally: Tally,
    begun: Clock,
}

impl Trial {
    fn new(resiliency: Resiliency) -> Self {
        let run = RecordedRun::record(Kind::usual(resiliency), Scenario::Short, seed());
        let (known, losses) = (beginnings(&run), tolerated(&run));
        let cuts = run.recording.recorder().cuts();
        Self { run, known, losses, cuts, tally: Tally::default(), begun: Clock::now() }
    }

    fn recorder(&self) -> &Recorder {
        self.run.recording.recorder()
    }

    fn instant_count(&self, cut: Cut) -> u64 {
        self.run.recording.instants(cut).len() as u64
    }

    fn in_flight(&self, cut: Cut) -> BTreeMap<InFlight, Vec<Copy>> {
        in_flight(self.recorder(), &self.known, cut)
    }

    /// Copies of blocks in flight on disks that are here.
    fn copies_of_blocks(&self, cut: Cut, lost: &BTreeSet<usize>) -> Vec<Copy> {
        let blocks = self.in_flight(cut).into_iter().filter(|(what, _)| matches!(what, InFlight::Block(..)));
        blocks.flat_map(|(_, copies)| copies).filter(|copy| copy.is_here(lost)).collect()
    }

    /// Each cut with each set of disks that may be lost.
    fn cuts_and_losses(&self) -> Vec<(Cut, BTreeSet<usize>)> {
        let with = |cut: &Cut| self.losses.iter().cloned().map(|lost| (*cut, lost)).collect::<Vec<_>>();
        self.cuts.iter().flat_map(with).collect()
    }

    /// What a product comes to that has so many members for each cut and set of disks.
    fn product(&self, members: impl Fn(Cut, &BTreeSet<usize>) -> u64) -> u64 {
        self.cuts_and_losses().iter().map(|(cut, lost)| self.instant_count(*cut) * members(*cut, lost)).sum()
    }

    /// Says what was tried, and that nothing was left out.
    fn end(&self, what: &str, expected: u64) {
        println!(
            "everything, {}, {what}: {} states in {:?}, at {} of {} cuts, {} kinds of steps, {} sets of disks lost",
            self.run.kind,
            self.tally.states,
            self.begun.elapsed(),
            self.tally.cuts.len(),
            self.cuts.len(),
            self.tally.steps.len(),
            self.losses.len()
        );
        assert!(expected > 0, "there is nothing to try");
        assert_eq!(self.tally.states, expected, "something was left out");
    }
}

/// Opens all that a short life may leave of whole writes.
fn try_everything(resiliency: Resiliency) -> Result<(), String> {
    let mut trial = Trial::new(resiliency);
    for (cut, lost) in trial.cuts_and_losses() {
        let pending = trial.recorder().pending(cut);
        for fates in choices(&pending, &lost, &BTreeMap::new()) {
            let state = trial.recorder().state(cut, &fates, &StateOptions::default());
            try_state(&trial.run, &state, &mut trial.tally, |case| {
                case.lost.clone_from(&lost);
                case.torn = false;
                case.thorough = true;
            })?;
        }
    }
    trial.end(
        "whole writes",
        trial.product(|cut, lost| 1 << here_count(&trial.recorder().pending(cut), lost)),
    );
    Ok(())
}

/// Sectors at which it is torn while these disks are lost.
fn sectors_torn(what: InFlight, lost: &BTreeSet<usize>) -> Vec<u64> {
    match (what, lost.is_empty()) {
        (InFlight::Block(..), true) => (1..SECTORS).collect(),
        (InFlight::Block(..), false) | (InFlight::Page(_), true) => vec![TORN_AT],
        (InFlight::Page(_), false) => Vec::new(),
    }
}

/// Tears each block in flight, and each page of what tells of blocks, on all of its copies at the same sector.
fn tear_everything(resiliency: Resiliency) -> Result<(), String> {
    let mut trial = Trial::new(resiliency);
    let (mut blocks, mut pages) = (0, 0);
    for (cut, lost) in trial.cuts_and_losses() {
        for (what, copies) in trial.in_flight(cut) {
            let before = trial.tally.states;
            for sector in sectors_torn(what, &lost) {
                tear(&mut trial, cut, &lost, &copies, sector)?;
            }
            let tried = trial.tally.states - before;
            *if matches!(what, InFlight::Block(..)) { &mut blocks } else { &mut pages } += tried;
        }
    }
    let expected = trial.product(|cut, lost| {
        let here = here_count(&trial.recorder().pending(cut), lost);
        let torn = trial.in_flight(cut).into_iter().map(|(what, copies)| {
            let writes = copies.iter().filter(|copy| copy.is_here(lost)).map(|copy| copy.write);
            let writes = writes.collect::<BTreeSet<_>>().len() as u32;
            if writes == 0 { 0 } else { (sectors_torn(what, lost).len() as u64) << (here - writes) }
        });
        torn.sum()
    });
    trial.end(&format!("torn alike, {blocks} of blocks and {pages} of what tells of them"), expected);
    assert!(blocks > 0 && pages > 0, "nothing was torn");
    Ok(())
}

/// Tears one block or page beside each choice for the other writes.
fn tear(
    trial: &mut Trial,
    cut: Cut,
    lost: &BTreeSet<usize>,
    copies: &[Copy],
    sector: u64,
) -> Result<(), String> {
    let here = copies.iter().rev().filter(|copy| copy.is_here(lost));
    let torn: BTreeMap<usize, Fate> = here.map(|copy| (copy.write, copy.torn_at(sector))).collect();
    if torn.is_empty() {
        return Ok(());
    }
    let pending = trial.recorder().pending(cut);
    for fates in choices(&pending, lost, &torn) {
        let state = trial.recorder().state(cut, &fates, &StateOptions::default());
        try_state(&trial.run, &state, &mut trial.tally, |case| {
            case.lost.clone_from(lost);
            case.thorough |= sector == TORN_AT;
        })?;
    }
    Ok(())
}

/// The choices beside which a bit turns in a copy: all lost, all landed, and this write alone or all but it.
fn choices_around(pending: &[PendingWrite], write: usize) -> [Vec<Fate>; 4] {
    let fate = |landed| if landed { Fate::Landed } else { Fate::Lost };
    let all = |is_landed: fn(bool) -> bool| {
        (0..pending.len()).map(|other| fate(is_landed(other == write))).collect::<Vec<_>>()
    };
    [all(|_| false), all(|_| true), all(|is_it| is_it), all(|is_it| !is_it)]
}

/// Turns a bit in each copy of each block in flight, and in the pages before and behind it.
fn flip_each_bit(resiliency: Resiliency) -> Result<(), String> {
    let mut trial = Trial::new(resiliency);
    let mut random = Random::new(seed());
    let mut tried = [0; 3];
    for (cut, lost) in trial.cuts_and_losses() {
        let pending = trial.recorder().pending(cut);
        for copy in trial.copies_of_blocks(cut, &lost) {
            for fates in choices_around(&pending, copy.write) {
                for (extra, at) in [copy.at - BLOCK, copy.at, copy.at + BLOCK].into_iter().enumerate() {
                    let before = trial.tally.states;
                    flip(&mut trial, cut, &lost, &fates, (copy.disk, at), &mut random)?;
                    tried[extra] += trial.tally.states - before;
                }
            }
        }
    }
    let one = trial.product(|cut, lost| 4 * trial.copies_of_blocks(cut, lost).len() as u64);
    trial.end("a flipped bit before, in and behind a block in flight", 3 * one);
    assert_eq!(tried, [one; 3]);
    Ok(())
}

/// Turns a bit in a page of a state.
fn flip(
    trial: &mut Trial,
    cut: Cut,
    lost: &BTreeSet<usize>,
    fates: &[Fate],
    page: (DiskIndex, u64),
    random: &mut Random,
) -> Result<(), String> {
    let sound = trial.recorder().state(cut, fates, &StateOptions::default());
    let flipped_bit = match block_at(&trial.known, &sound, page) {
        Some((name, block)) => FlippedBit::Block(name, block),
        None => FlippedBit::Elsewhere,
    };
    let flip = BitFlip { disk: page.0, at: page.1 + random.below(BLOCK), bit: random.below(8) as u8 };
    let options = StateOptions { flip: Some(flip), ..StateOptions::default() };
    let state = trial.recorder().state(cut, fates, &options);
    try_state(&trial.run, &state, &mut trial.tally, |case| {
        case.lost.clone_from(lost);
        case.flipped_bit = Some(flipped_bit);
        case.torn = false;
        case.thorough = true;
    })
}

/// A crash: what it left, and when it came.
type Crash = (CrashState, Instant);

/// What each of these cuts has left that has lost all it can, or nothing; what is as another one in all that anybody can see is
/// left out, and counted.
fn extremes(recording: &Recording, cuts: &[Cut], disks: usize) -> (Vec<Crash>, u64) {
    let (mut kept, mut is_same): (Vec<(Crash, String)>, u64) = (Vec::new(), 0);
    for cut in cuts {
        let count = recording.recorder().pending(*cut).len();
        for fate in [Fate::Lost, Fate::Landed] {
            for instant in recording.instants(*cut) {
                let state = recording.recorder().state(*cut, &vec![fate; count], &StateOptions::default());
                // What was promised by then, to the host as well.
                let promised = format!(
                    "{:?} {:?}",
                    recording.named(instant),
                    Expected::at(recording, instant, Death::PowerCut)
                );
                let is_like = |((other, _), as_promised): &(Crash, String)| {
                    *as_promised == promised && are_equal(other, &state, disks)
                };
                if kept.iter().rev().take(LOOKED_BACK_MAX).any(is_like) {
                    is_same += 1;
                } else {
                    kept.push(((state, instant), promised));
                }
            }
        }
    }
    (kept.into_iter().map(|(crash, _)| crash).collect(), is_same)
}

fn are_equal(one: &CrashState, two: &CrashState, disks: usize) -> bool {
    (0..disks).map(DiskIndex).all(|disk| match (one.image(disk), two.image(disk)) {
        (Some(one), Some(two)) => one.is_like(two),
        _ => false,
    })
}

/// The cuts whose openings are crashed: of those with a block in flight all, and of each stretch of steps the first; where
/// everything is asked for, all.
fn cuts_to_recover(trial: &Trial) -> Vec<Cut> {
    let mut steps = BTreeSet::new();
    let is_taken = |cut: &Cut| {
        let begins = steps.insert(trial.run.steps_at(cut.0));
        begins || budget() == u64::MAX || !trial.copies_of_blocks(*cut, &BTreeSet::new()).is_empty()
    };
    trial.cuts.iter().copied().filter(is_taken).collect()
}

/// Power fails a second time at each write and flush of an opening, with all disks or without one, and then another is gone.
fn crash_everything_again(resiliency: Resiliency) -> Result<(), String> {
    let mut trial = Trial::new(resiliency);
    let first_losses: Vec<_> = trial.losses.iter().filter(|lost| lost.len() <= 1).cloned().collect();
    let (first, is_same) = extremes(&trial.run.recording, &cuts_to_recover(&trial), trial.run.disks);
    let (mut expected, mut cuts_again, mut equal_again) = (0, 0, 0);
    for (state, instant) in &first {
        for lost in &first_losses {
            let recording = open_recorded(&trial.run, state, *instant, lost, 1)?;
            let cuts = recording.recorder().cuts();
            let (again, left_out) = extremes(&recording, &cuts, trial.run.disks);
            let instants: usize = cuts.iter().map(|cut| recording.instants(*cut).len()).sum();
            assert_eq!(again.len() as u64 + left_out, 2 * instants as u64);
            let others = (0..trial.run.disks).filter(|disk| !lost.contains(disk));
            for (crash, then) in others.flat_map(|then| again.iter().map(move |crash| (crash, then))) {
                verify_again(&mut trial, (state, *instant), lost, &recording, crash, then)?;
            }
            expected += (again.len() * (trial.run.disks - lost.len())) as u64;
            (cuts_again, equal_again) = (cuts_again + cuts.len(), equal_again + left_out);
        }
    }
    let openings = first.len() * first_losses.len();
    let what = format!(
        "a second crash at {cuts_again} cuts of {openings} openings, without what is as another, {is_same} and {equal_again}"
    );
    trial.end(&what, expected);
    Ok(())
}

fn verify_again(
    trial: &mut Trial,
    (state, instant): (&CrashState, Instant),
    lost: &BTreeSet<usize>,
    recording: &Recording,
    (again, instant_again): &Crash,
    then: usize,
) -> Result<(), String> {
    let mut case = case(&trial.run, instant, trial.tally.states);
    case.expected.weak.extend(lost);
    case.lost = BTreeSet::from([then]);
    case.torn = false;
    let context = Context(format!(
        "{}, {instant:?}, {state}\nopened without {lost:?}, again at {instant_again:?}, {again}\nopened without {then}",
        trial.run.kind
    ));
    trial.tally.note(&trial.run, state.cut());
    let reopened = again.reopen(trial.tally.states);
    verify(&reopened, case, trial.run.pool, recording.named(*instant_again))
        .map_err(|why| format!("{why}\nafter {}", context.0))
}

macro_rules! tests {
    ($($(#[$doc:meta])* $name:ident = $body:ident($resiliency:expr);)*) => {$(
        $(#[$doc])*
        #[test]
        #[cfg_attr(debug_assertions, ignore = "opens thousands of pools; scripts/crash.sh does it with optimisation")]
        fn $name() -> Result<(), String> {
            $body($resiliency)
        }
    )*};
}

tests! {
    /// Two copies, one disk of which may be gone.
    everything_that_a_short_life_may_leave_is_old_or_new_with_two_copies = try_everything(MIRROR);
    /// Three copies, two disks of which may be gone.
    everything_that_a_short_life_may_leave_is_old_or_new_with_three_copies = try_everything(THREE_COPIES);
    /// Parity, one disk of which may be gone.
    everything_that_a_short_life_may_leave_is_old_or_new_with_parity = try_everything(PARITY);
    /// Torn on both copies at the same sector: old, new, or, of what is written over in place, listed.
    equally_torn_copies_are_old_new_or_listed_with_two_copies = tear_everything(MIRROR);
    /// Torn on all copies at the same sector.
    equally_torn_copies_are_old_new_or_listed_with_three_copies = tear_everything(THREE_COPIES);
    /// Torn data and parity of what is written through a cache: old or new.
    equally_torn_blocks_are_old_or_new_with_parity = tear_everything(PARITY);
    /// A bit before, in or behind a block in flight, of two copies.
    no_bit_flip_in_or_next_to_a_block_in_flight_counts_with_two_copies = flip_each_bit(MIRROR);
    /// A bit before, in or behind a block in flight, of three copies.
    no_bit_flip_in_or_next_to_a_block_in_flight_counts_with_three_copies = flip_each_bit(THREE_COPIES);
    /// A bit before, in or behind a block in flight, its parity or its copies in the cache.
    no_bit_flip_in_or_next_to_a_block_in_flight_counts_with_parity = flip_each_bit(PARITY);
    /// Two copies: what an opening has decided stands without any one disk, and what it has not is open.
    a_second_crash_at_each_step_of_an_opening_changes_nothing_with_two_copies = crash_everything_again(MIRROR);
    /// Three copies, of which two disks are gone in turn.
    a_second_crash_at_each_step_of_an_opening_changes_nothing_with_three_copies = crash_everything_again(THREE_COPIES);
    /// Parity.
    a_second_crash_at_each_step_of_an_opening_changes_nothing_with_parity = crash_everything_again(PARITY);
}
