//! Walks every short sequence of a protocol's operations, crashes it at every step, and judges what recovery gives.
//!
//! After every step that changes what a crash may leave, the power fails or the daemon is killed, at most one disk is gone,
//! at most one address is flipped, and recovery is judged:
//!
//! - a block reads as what was flushed or anything issued since (killed: what was acknowledged, or is in flight);
//! - an error only when the faults exceed the redundancy; content accepted unverified only for a block in flight, and then only
//!   beyond the redundancy or where blocks tear;
//! - what recovery serves stays, through another crash at any of its steps with another disk missing.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::hash::{DefaultHasher, Hash, Hasher};

use crate::media::{Address, Media, Script, Step};

/// A set of disks, a bit each.
pub(crate) type Mask = u8;
/// A block's content: one number for each half, which differ when the block is torn.
pub(crate) type Content = [u32; 2];
/// The steps of a protocol.
pub(crate) type Steps<P> = Script<<P as Protocol>::Address, <P as Protocol>::Value, Note>;
/// The disks of a protocol.
pub(crate) type Disks<P> = Media<<P as Protocol>::Address, <P as Protocol>::Value>;

/// What a flipped block holds.
pub(crate) const GARBAGE: u32 = u32::MAX;

/// What was promised of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Note {
    Issued {
        block: usize,
        sequence: u8,
        content: u32,
    },
    Acknowledged {
        block: usize,
        content: u32,
    },
    /// Of all blocks, what was acknowledged before this number of the sequence was issued.
    Flushed {
        sequence: u8,
    },
}

/// What a reader of a block gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Read {
    /// Verified, or zeros because nothing was ever written.
    Content(Content),
    /// Accepted unverified: the exception for blocks that were being overwritten.
    Unverified(Content),
    Error,
}

/// Where the second epoch, which recovery opens, begins to write; the end of time while it is not in force.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) second: u8,
}

impl Span {
    pub(crate) const FIRST_ONLY: Self = Self { second: u8::MAX };
}

/// The outcome for each block, and the steps that make it final.
pub(crate) struct Recovered<P: Protocol> {
    pub(crate) reads: Vec<Read>,
    /// The spans once the steps have been taken.
    pub(crate) span: Span,
    pub(crate) steps: Steps<P>,
}

/// Where a walk begins: disks, the engine that runs on them, and what each block holds.
pub(crate) struct Start<P: Protocol> {
    pub(crate) engine: P::Engine,
    pub(crate) disks: Disks<P>,
    pub(crate) contents: Vec<u32>,
}

/// A write protocol.
pub(crate) trait Protocol: Copy + Debug {
    type Address: Address + Debug + Hash;
    type Value: Copy + Ord + Debug + Hash;
    type Operation: Copy + Debug + 'static;
    type Engine: Clone;

    const OPERATIONS: &'static [Self::Operation];

    fn starts(self) -> Vec<Start<Self>>;
    /// What the running engine does for an operation.
    fn steps(self, engine: &mut Self::Engine, operation: Self::Operation) -> Steps<Self>;
    /// Recovers with the `live` disks, all of which belong to the newest epoch.
    fn recover(self, disks: &Disks<Self>, live: Mask, span: Span) -> Recovered<Self>;
    fn disk_count(self) -> usize;
    /// Disks that may be gone without an error.
    fn redundancy(self) -> usize;
    /// Disks on which addresses are flipped.
    fn corrupted_disks(self) -> usize;
    /// What is found where an address was flipped; nothing where that cannot happen.
    fn corrupted(self, address: Self::Address) -> Option<Self::Value>;
    /// Whether a block in flight may be accepted unverified although enough disks are there.
    fn accepts_unverified(self) -> bool;

    /// The disks of a set.
    fn disks_of(self, mask: Mask) -> impl Iterator<Item = usize> {
        (0..self.disk_count()).filter(move |disk| mask & (1 << disk) != 0)
    }

    fn all(self) -> Mask {
        (1 << self.disk_count()) - 1
    }

    /// All disks, and all but one if one may be gone.
    fn losses(self) -> Vec<Mask> {
        let but_one = (0..self.disk_count()).map(|disk| self.all() & !(1 << disk));
        let but_one = but_one.filter(|_| self.redundancy() > 0);
        std::iter::once(self.all()).chain(but_one).collect()
    }
}

/// How hard a walk is on the disks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Harm {
    /// Crashes and lost disks.
    Crash,
    /// And one flip.
    Corruption,
    /// And a second crash during recovery.
    CrashTwice,
}

/// What a crash may leave of a block, by what was promised.
#[derive(Debug, Clone, Default)]
struct Promise {
    /// Issued and not superseded by a flush, in order.
    unflushed: BTreeMap<u8, u32>,
    /// Acknowledged last, and in flight.
    running: BTreeSet<u32>,
}

impl Promise {
    fn of(content: u32) -> Self {
        Self { unflushed: BTreeMap::from([(0, content)]), running: BTreeSet::from([content]) }
    }
}

fn note(promises: &mut [Promise], note: Note) {
    match note {
        Note::Issued { block, sequence, content } => {
            promises[block].unflushed.insert(sequence, content);
            promises[block].running.insert(content);
        }
        Note::Acknowledged { block, content } => promises[block].running = BTreeSet::from([content]),
        Note::Flushed { sequence } => {
            for promise in promises {
                // What a block held when the flush began stays possible until something newer was issued.
                let newest = promise.unflushed.range(..=sequence).next_back().map(|(at, _)| *at);
                promise.unflushed.retain(|at, _| Some(*at) >= newest);
            }
        }
    }
}

/// What each block may be.
type Allowed = Vec<BTreeSet<u32>>;

/// One crash: what the blocks may be, what faults there were.
#[derive(Debug, Clone)]
struct Case<'a> {
    allowed: &'a Allowed,
    is_corrupted: bool,
    live: Mask,
}

#[derive(Default)]
pub(crate) struct Tally {
    pub(crate) crashes: usize,
    pub(crate) wrong: Option<String>,
}

struct Walk<P: Protocol> {
    world: P,
    harm: Harm,
    way: Vec<P::Operation>,
    /// Fingerprints of the cases that were judged: different ways leave the same disks.
    seen: BTreeSet<u64>,
    tally: Tally,
}

/// Walks every sequence of `length` operations from every start.
pub(crate) fn walk<P: Protocol>(world: P, harm: Harm, length: usize) -> Tally {
    let mut walk = Walk { world, harm, way: Vec::new(), seen: BTreeSet::new(), tally: Tally::default() };
    for start in world.starts() {
        let promises: Vec<Promise> = start.contents.iter().map(|content| Promise::of(*content)).collect();
        walk.extend(&start.engine, &start.disks, &promises, length);
    }
    walk.tally
}

/// No crash of any sequence of `length` operations loses anything.
pub(crate) fn assert_holds<P: Protocol>(world: P, harm: Harm, length: usize) {
    let tally = walk(world, harm, length);
    println!("{world:?} {harm:?} length {length}: {} crashes", tally.crashes);
    assert_eq!(tally.wrong, None);
    assert!(tally.crashes > 500, "only {} crashes", tally.crashes);
}

/// Some crash does: a control.
pub(crate) fn assert_fails<P: Protocol>(world: P, harm: Harm, length: usize) {
    let tally = walk(world, harm, length);
    assert!(tally.wrong.is_some(), "{world:?} failed in none of {} crashes", tally.crashes);
}

/// Sequence lengths: `DOLMEN_DEPTH` adds to them.
pub(crate) fn longer() -> usize {
    std::env::var("DOLMEN_DEPTH").ok().and_then(|text| text.parse().ok()).unwrap_or(0)
}

impl<P: Protocol> Walk<P> {
    fn extend(&mut self, engine: &P::Engine, media: &Disks<P>, promises: &[Promise], left: usize) {
        for operation in P::OPERATIONS {
            if left == 0 || self.tally.wrong.is_some() {
                return;
            }
            let (mut engine, mut media, mut promises) = (engine.clone(), media.clone(), promises.to_vec());
            self.way.push(*operation);
            let steps = self.world.steps(&mut engine, *operation);
            for (at, step) in steps.iter().enumerate() {
                media.play(step);
                if let Step::Note(what) = step {
                    note(&mut promises, *what);
                }
                // A later crash point leaves all that an earlier one does, until something becomes durable
                // or is promised.
                let is_last = matches!(steps.get(at + 1), None | Some(Step::Wait | Step::Flush));
                if is_last || matches!(step, Step::Note(_)) {
                    self.crash(&media, &promises);
                }
            }
            self.extend(&engine, &media, &promises, left - 1);
            self.way.pop();
        }
    }

    fn crash(&mut self, media: &Disks<P>, promises: &[Promise]) {
        let unflushed: Allowed =
            promises.iter().map(|promise| promise.unflushed.values().copied().collect()).collect();
        let running: Allowed = promises.iter().map(|promise| promise.running.clone()).collect();
        for state in media.after_power_cut() {
            self.lose(&state, &unflushed, &unflushed);
        }
        for state in media.after_kill() {
            self.lose(&state, &running, &unflushed);
        }
    }

    fn lose(&mut self, state: &Disks<P>, allowed: &Allowed, unflushed: &Allowed) {
        if !self.is_new((state, allowed, unflushed)) {
            return;
        }
        for live in self.world.losses() {
            let case = Case { allowed, is_corrupted: false, live };
            self.verify(state, &case);
            if self.harm == Harm::Corruption {
                let corrupted_case = Case { is_corrupted: true, ..case.clone() };
                // What was only acknowledged survives the daemon, but not with more faults on top than the
                // redundancy takes; what was flushed still is never replaced by anything older.
                let allowed = if self.is_excessive(&corrupted_case) { unflushed } else { allowed };
                for corrupted in self.corruptions(state) {
                    self.verify(&corrupted, &Case { allowed, ..corrupted_case.clone() });
                }
            }
            if self.harm == Harm::CrashTwice {
                self.crash_again(state, &case, unflushed);
            }
        }
    }

    fn is_new(&mut self, case: impl Hash) -> bool {
        let mut hasher = DefaultHasher::new();
        case.hash(&mut hasher);
        self.seen.insert(hasher.finish())
    }

    fn lost(&self, live: Mask) -> usize {
        self.world.disk_count() - self.world.disks_of(live).count()
    }

    fn is_excessive(&self, case: &Case<'_>) -> bool {
        usize::from(case.is_corrupted) + self.lost(case.live) > self.world.redundancy()
    }

    /// The first block that reads as it must not.
    fn complaint(&self, case: &Case<'_>, reads: &[Read]) -> Option<usize> {
        let is_excessive = self.is_excessive(case);
        (0..reads.len()).find(|block| {
            let allowed = &case.allowed[*block];
            let may_tear = allowed.len() > 1 && (is_excessive || self.world.accepts_unverified());
            let is_known = |half: &u32| allowed.contains(half) || (case.is_corrupted && *half == GARBAGE);
            let is_fine = match reads[*block] {
                Read::Content([first, second]) => first == second && allowed.contains(&first),
                Read::Unverified(halves) => may_tear && halves.iter().all(is_known),
                Read::Error => is_excessive,
            };
            !is_fine
        })
    }

    fn verify(&mut self, state: &Disks<P>, case: &Case<'_>) {
        self.tally.crashes += 1;
        let recovered = self.world.recover(state, case.live, Span::FIRST_ONLY);
        if let Some(block) = self.complaint(case, &recovered.reads) {
            self.complain(&format!("block {block}"), state, case, &recovered.reads);
        }
    }

    fn complain(&mut self, what: &str, state: &Disks<P>, case: &Case<'_>, reads: &[Read]) {
        let way = &self.way;
        self.tally.wrong.get_or_insert_with(|| format!("{what}: {way:?} {case:?} {reads:?} {state:?}"));
    }

    /// Blocks, page slots and log records, one flipped at a time.
    fn corruptions(&self, state: &Disks<P>) -> Vec<Disks<P>> {
        let of_disk = |disk: usize| {
            state.addresses(disk).into_iter().filter_map(move |address| {
                let value = self.world.corrupted(address)?;
                let mut corrupted = state.clone();
                // A flip sits on the medium; what a cache still holds for the address goes with it.
                corrupted.play::<Note>(&Step::Write { disk, address, value });
                Some(corrupted)
            })
        };
        (0..self.world.corrupted_disks()).flat_map(of_disk).collect()
    }

    /// Crashes at every step of recovery, with any disk missing the second time.
    fn crash_again(&mut self, state: &Disks<P>, first: &Case<'_>, unflushed: &Allowed) {
        let recovered = self.world.recover(state, first.live, Span::FIRST_ONLY);
        // The second crash is a loss of power, whatever the first was.
        let first = &Case { allowed: unflushed, ..first.clone() };
        let mut media = state.clone();
        for (at, step) in recovered.steps.iter().enumerate() {
            media.play(step);
            let is_served = at + 1 == recovered.steps.len();
            for again in media.after_power_cut() {
                let case = (&again, first.allowed, first.live, &recovered.reads, is_served);
                if !self.is_new(case) {
                    continue;
                }
                for live in self.world.losses() {
                    let span = if is_served { recovered.span } else { Span::FIRST_ONLY };
                    self.verify_again(&again, first, live, (&recovered.reads, span));
                }
            }
        }
    }

    fn verify_again(
        &mut self,
        state: &Disks<P>,
        first: &Case<'_>,
        live: Mask,
        (served, span): (&[Read], Span),
    ) {
        let is_served = span != Span::FIRST_ONLY;
        self.tally.crashes += 1;
        // Once recovery has served, a disk that was missing is out by the epoch, and comes back only by resync.
        let trusted = if is_served { live & first.live } else { live };
        if self.lost(trusted) > self.world.redundancy() {
            return;
        }
        let second = self.world.recover(state, trusted, span);
        let case = Case { live, ..first.clone() };
        let kept = second.reads.iter().zip(served).all(|(now, served)| match served {
            Read::Content(before) | Read::Unverified(before) => *now == Read::Content(*before),
            Read::Error => true,
        });
        let fine = if is_served { kept } else { kept || self.complaint(&case, &second.reads).is_none() };
        if !fine {
            self.complain("after a second crash", state, &case, &second.reads);
        }
    }
}
