//! The write path of simple and mirror spaces, over every short sequence of operations on one block.
//!
//! Block X is written, discarded, flushed and checkpointed; block Y beside it was flushed long ago and is never
//! touched. Each copy holds both blocks, their table page in two slots, and the log. After every step that
//! changes what a crash may leave, the power fails or the daemon is killed, at most one disk is gone, at most
//! one block, page slot or log record is flipped, and recovery is judged:
//!
//! - X reads as what was flushed or anything issued since (killed: what was acknowledged, or is in flight);
//! - Y reads as it is;
//! - an error only when the faults exceed the redundancy; content taken as found only for a block in flight,
//!   and then only beyond the redundancy or where blocks tear;
//! - what recovery serves stays, through another crash at any of its steps with another disk missing.
//!
//! Each [`Bug`] is a control: a rule left out, which the same judge must catch.

mod engine;
mod recovery;

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};

use crate::media::{Address, Media, Script, Step};
use engine::{Engine, OPERATIONS, Operation};
use recovery::{Read, Span, recover};

const DISKS: usize = 2;
const FULL: Mask = 3;
const X: u8 = 0;
const Y: u8 = 1;
const Y_CONTENT: [u8; 2] = [200; 2];
/// What X holds in a world where it was flushed before.
const BEFORE: u8 = 100;
/// What an earlier owner of the slab left where X was never written.
const STRANGER: u8 = 101;
const GARBAGE: u8 = 255;

type Mask = u8;
type Disks = Media<Place, Value>;
type Steps = Script<Place, Value, Note>;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Place {
    Block {
        block: u8,
        parts: u8,
    },
    Page {
        slot: u8,
    },
    /// A record, told apart by who wrote it: 1 is the epoch that crashed, 2 the one that recovery opens.
    Log {
        lsn: u8,
        epoch: u8,
    },
    Tail,
}

impl Address for Place {
    fn parts(&self) -> u8 {
        match self {
            Self::Block { parts, .. } => *parts,
            // A torn page leaves a slot that is neither old nor new.
            Self::Page { .. } => 2,
            Self::Log { .. } | Self::Tail => 1,
        }
    }
}

/// A table entry; the checksum of a content is the content.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Entry {
    Never,
    Valid([u8; 2]),
    Damaged,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Kind {
    Plain,
    Intent,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Value {
    Content([u8; 2]),
    Page {
        version: u8,
        entries: [Entry; 2],
    },
    /// A block's new entry, and the last durable mark when it was written.
    Record {
        block: u8,
        entry: Entry,
        kind: Kind,
        mark: u8,
    },
    /// Everything up to here was flushed.
    Mark {
        settled: u8,
    },
    /// A table page of this version is about to be written.
    Announce {
        version: u8,
    },
    /// Records up to here are no longer needed.
    Tail(u8),
    Flipped,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Note {
    Issued { sequence: u8, content: u8 },
    Acknowledged { content: u8 },
    Flushed { sequence: u8 },
}

/// A rule of the write path, left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Bug {
    /// Overwrites do not wait for their intent.
    IntentNotAwaited,
    /// A flush is acknowledged before its mark is durable.
    PromiseBeforeMark,
    /// The mark of a flush covers what began after it closed its batch.
    MarkCoversLater,
    /// An acknowledged, unflushed block is written again in parallel with the record.
    RewriteInParallel,
    /// The log is trimmed before the table pages are flushed.
    TrimBeforePages,
    /// Table pages carry entries of writes that no flush has covered.
    PageOfUnsettled,
    /// A write that begins while a flush is under way is classed by what was flushed before.
    ClassedBeforeFlush,
    /// Records do not repeat the last mark.
    MarkNotRepeated,
    /// Records count whichever epoch wrote them.
    SpansIgnored,
    /// Table pages are written without a record that says so.
    PageNotAnnounced,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct World {
    copies: usize,
    /// Atomic units of a block.
    parts: u8,
    bug: Option<Bug>,
}

impl World {
    fn block(self, block: u8) -> Place {
        Place::Block { block, parts: self.parts }
    }

    fn disks(self, mask: Mask) -> impl Iterator<Item = usize> {
        (0..self.copies).filter(move |disk| mask & (1 << disk) != 0)
    }

    fn start(self, settled: Entry) -> Disks {
        let mut media = Disks::default();
        let x = if settled == Entry::Never { STRANGER } else { BEFORE };
        for disk in 0..self.copies {
            media.set(disk, self.block(X), Value::Content([x; 2]));
            media.set(disk, self.block(Y), Value::Content(Y_CONTENT));
            let entries = [settled, Entry::Valid(Y_CONTENT)];
            media.set(disk, Place::Page { slot: 0 }, Value::Page { version: 0, entries: [Entry::Never; 2] });
            media.set(disk, Place::Page { slot: 1 }, Value::Page { version: 1, entries });
        }
        media
    }

    fn losses(self) -> Vec<Mask> {
        if self.copies == 1 { vec![FULL] } else { vec![FULL, 1, 2] }
    }
}

/// How hard a walk is on the disks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Harm {
    /// Crashes and lost disks.
    Crash,
    /// And one flip.
    Flip,
    /// And a second crash during recovery.
    CrashTwice,
}

/// What a crash may leave of X, by what was promised.
#[derive(Debug, Clone, Default)]
struct Promise {
    /// Issued and not superseded by a flush, in order.
    unflushed: BTreeMap<u8, u8>,
    /// Acknowledged last, and in flight.
    running: BTreeSet<u8>,
}

impl Promise {
    fn note(&mut self, note: Note) {
        match note {
            Note::Issued { sequence, content } => {
                self.unflushed.insert(sequence, content);
                self.running.insert(content);
            }
            Note::Acknowledged { content } => self.running = BTreeSet::from([content]),
            Note::Flushed { sequence } => self.unflushed.retain(|other, _| *other >= sequence),
        }
    }
}

/// One crash: what X may be, what faults there were.
#[derive(Debug, Clone)]
struct Case<'a> {
    allowed: &'a BTreeSet<u8>,
    world: World,
    is_flipped: bool,
    live: Mask,
}

impl Case<'_> {
    fn is_excessive(&self) -> bool {
        usize::from(self.is_flipped) + usize::from(self.world.copies == 2 && self.live != FULL)
            > self.world.copies - 1
    }

    fn complaint(&self, x: Read, y: Read) -> Option<&'static str> {
        let may_tear = self.allowed.len() > 1 && (self.is_excessive() || self.world.parts == 2);
        let is_known = |half: &u8| self.allowed.contains(half) || (self.is_flipped && *half == GARBAGE);
        let x_is_fine = match x {
            Read::Content([first, second]) => first == second && self.allowed.contains(&first),
            Read::AsFound(halves) => may_tear && halves.iter().all(is_known),
            Read::Error => self.is_excessive(),
        };
        let y_is_fine = y == Read::Content(Y_CONTENT) || (y == Read::Error && self.is_excessive());
        match (x_is_fine, y_is_fine) {
            (false, _) => Some("the block in flight"),
            (_, false) => Some("the block beside it"),
            (true, true) => None,
        }
    }
}

#[derive(Default)]
struct Tally {
    crashes: usize,
    wrong: Option<String>,
}

struct Walk {
    world: World,
    harm: Harm,
    way: Vec<Operation>,
    /// Fingerprints of the cases that were judged: different ways leave the same disks.
    seen: BTreeSet<u64>,
    tally: Tally,
}

/// Walks every sequence of `length` operations from both starts.
fn walk(world: World, harm: Harm, length: usize) -> Tally {
    let mut walk = Walk { world, harm, way: Vec::new(), seen: BTreeSet::new(), tally: Tally::default() };
    for settled in [Entry::Never, Entry::Valid([BEFORE; 2])] {
        let before = if settled == Entry::Never { 0 } else { BEFORE };
        let promise = Promise { unflushed: BTreeMap::from([(0, before)]), running: BTreeSet::from([before]) };
        walk.extend(&Engine::new(world, settled), &world.start(settled), &promise, length);
    }
    walk.tally
}

impl Walk {
    fn extend(&mut self, engine: &Engine, media: &Disks, promise: &Promise, left: usize) {
        for operation in OPERATIONS {
            if left == 0 || self.tally.wrong.is_some() {
                return;
            }
            let (mut engine, mut media, mut promise) = (engine.clone(), media.clone(), promise.clone());
            self.way.push(operation);
            let steps = engine.steps(operation);
            for (at, step) in steps.iter().enumerate() {
                media.play(step);
                if let Step::Note(note) = step {
                    promise.note(*note);
                }
                // A later crash point leaves all that an earlier one does, until something becomes durable
                // or is promised.
                let is_last = matches!(steps.get(at + 1), None | Some(Step::Wait | Step::Flush));
                if is_last || matches!(step, Step::Note(_)) {
                    self.crash(&media, &promise);
                }
            }
            self.extend(&engine, &media, &promise, left - 1);
            self.way.pop();
        }
    }

    fn crash(&mut self, media: &Disks, promise: &Promise) {
        let unflushed: BTreeSet<u8> = promise.unflushed.values().copied().collect();
        for state in media.after_power_cut() {
            self.lose(&state, &unflushed, &unflushed);
        }
        for state in media.after_kill() {
            self.lose(&state, &promise.running, &unflushed);
        }
    }

    fn lose(&mut self, state: &Disks, allowed: &BTreeSet<u8>, unflushed: &BTreeSet<u8>) {
        if !self.is_new((state, allowed, unflushed)) {
            return;
        }
        for live in self.world.losses() {
            let case = Case { allowed, world: self.world, is_flipped: false, live };
            self.judge(state, &case);
            if self.harm == Harm::Flip {
                let flipped_case = Case { is_flipped: true, ..case.clone() };
                // What was only acknowledged survives the daemon, but not with more faults on top than the
                // redundancy takes; what was flushed still is never replaced by anything older.
                let allowed = if flipped_case.is_excessive() { unflushed } else { allowed };
                for flipped in self.flips(state) {
                    self.judge(&flipped, &Case { allowed, ..flipped_case.clone() });
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

    fn judge(&mut self, state: &Disks, case: &Case<'_>) {
        self.tally.crashes += 1;
        let recovered = recover(self.world, state, case.live, Span::FIRST_ONLY);
        if let Some(what) = case.complaint(recovered.x, recovered.y) {
            self.complain(what, state, case, recovered.x, recovered.y);
        }
    }

    fn complain(&mut self, what: &str, state: &Disks, case: &Case<'_>, x: Read, y: Read) {
        let way = &self.way;
        self.tally.wrong.get_or_insert_with(|| format!("{what}: {way:?} {case:?} x {x:?} y {y:?} {state:?}"));
    }

    /// The first disk's blocks, page slots and log records, one flipped at a time.
    fn flips(&self, state: &Disks) -> Vec<Disks> {
        let addresses = state.addresses(0).into_iter().filter(|address| *address != Place::Tail);
        addresses
            .map(|address| {
                let mut flipped = state.clone();
                let is_block = matches!(address, Place::Block { .. });
                let value = if is_block { Value::Content([GARBAGE; 2]) } else { Value::Flipped };
                // A flip sits on the medium; what a cache still holds for the address goes with it.
                flipped.play::<Note>(&Step::Write { disk: 0, address, value });
                flipped
            })
            .collect()
    }

    /// Crashes at every step of recovery, with any disk missing the second time.
    fn crash_again(&mut self, state: &Disks, first: &Case<'_>, unflushed: &BTreeSet<u8>) {
        let recovered = recover(self.world, state, first.live, Span::FIRST_ONLY);
        // The second crash is a loss of power, whatever the first was.
        let first = &Case { allowed: unflushed, ..first.clone() };
        let mut media = state.clone();
        for (at, step) in recovered.steps.iter().enumerate() {
            media.play(step);
            let is_served = at + 1 == recovered.steps.len();
            for again in media.after_power_cut() {
                let case = (&again, first.allowed, first.live, recovered.x, is_served);
                if !self.is_new(case) {
                    continue;
                }
                for live in self.world.losses() {
                    let span = if is_served { recovered.span } else { Span::FIRST_ONLY };
                    self.judge_again(&again, first, live, (recovered.x, span));
                }
            }
        }
    }

    fn judge_again(&mut self, state: &Disks, first: &Case<'_>, live: Mask, (served, span): (Read, Span)) {
        let is_served = span != Span::FIRST_ONLY;
        self.tally.crashes += 1;
        // Once recovery has served, a disk that was missing is out by the epoch, and comes back only by resync.
        let trusted = if is_served { live & first.live } else { live };
        if trusted == 0 {
            return;
        }
        let second = recover(self.world, state, trusted, span);
        let case = Case { live, ..first.clone() };
        let (Read::Content(before) | Read::AsFound(before)) = served else { return };
        let kept = matches!(second.x, Read::Content(now) if now == before);
        let fine = if is_served { kept } else { kept || case.complaint(second.x, second.y).is_none() };
        if !fine {
            self.complain("after a second crash", state, &case, second.x, second.y);
        }
    }
}

fn shipped(copies: usize, parts: u8) -> World {
    World { copies, parts, bug: None }
}

fn assert_holds(world: World, harm: Harm, length: usize) {
    let tally = walk(world, harm, length);
    println!("{world:?} {harm:?} length {length}: {} crashes", tally.crashes);
    assert_eq!(tally.wrong, None);
    assert!(tally.crashes > 500, "only {} crashes", tally.crashes);
}

fn assert_fails(bug: Bug, copies: usize, harm: Harm, length: usize) {
    let tally = walk(World { copies, parts: 1, bug: Some(bug) }, harm, length);
    assert!(tally.wrong.is_some(), "{bug:?} was not seen in {} crashes", tally.crashes);
}

/// Sequence lengths: `DOLMEN_DEPTH` adds to them.
fn longer() -> usize {
    std::env::var("DOLMEN_DEPTH").ok().and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// Any crash, any disk lost: old or new.
#[test]
fn a_crash_leaves_old_or_new() {
    assert_holds(shipped(2, 1), Harm::Crash, 2 + longer());
    assert_holds(shipped(1, 1), Harm::Crash, 3 + longer());
}

/// Where blocks tear, halves are old or new, and only of a block in flight.
#[test]
fn a_torn_block_is_one_in_flight() {
    assert_holds(shipped(2, 2), Harm::Crash, 2 + longer());
    assert_holds(shipped(1, 2), Harm::Crash, 2 + longer());
}

/// A crash with a flipped block, page or record, a disk lost or not: never a wrong byte.
#[test]
fn a_crash_with_a_flip_is_never_wrong() {
    assert_holds(shipped(2, 1), Harm::Flip, 2 + longer());
    assert_holds(shipped(1, 1), Harm::Flip, 3 + longer());
    assert_holds(shipped(1, 2), Harm::Flip, 2 + longer());
}

/// What recovery has served stays, through a second crash with another disk missing.
#[test]
fn what_recovery_serves_is_final() {
    assert_holds(shipped(2, 1), Harm::CrashTwice, 2 + longer());
    assert_holds(shipped(1, 1), Harm::CrashTwice, 2 + longer());
}

#[test]
fn control_an_intent_that_is_not_awaited_fails() {
    assert_fails(Bug::IntentNotAwaited, 2, Harm::Crash, 1);
    assert_fails(Bug::IntentNotAwaited, 1, Harm::Crash, 1);
}

#[test]
fn control_a_flush_acknowledged_before_its_mark_fails_with_a_flip() {
    assert_fails(Bug::PromiseBeforeMark, 2, Harm::Flip, 2);
    assert_fails(Bug::PromiseBeforeMark, 1, Harm::Flip, 2);
}

#[test]
fn control_a_mark_that_covers_later_writes_fails() {
    assert_fails(Bug::MarkCoversLater, 2, Harm::Crash, 2);
}

#[test]
fn control_a_rewrite_in_parallel_with_its_record_loses_acknowledged_data() {
    assert_fails(Bug::RewriteInParallel, 2, Harm::Crash, 2);
    assert_fails(Bug::RewriteInParallel, 1, Harm::Crash, 2);
}

#[test]
fn control_a_log_trimmed_before_its_pages_are_flushed_fails() {
    assert_fails(Bug::TrimBeforePages, 2, Harm::Crash, 2);
    assert_fails(Bug::TrimBeforePages, 1, Harm::Crash, 2);
}

#[test]
fn control_a_page_with_unsettled_entries_fails() {
    assert_fails(Bug::PageOfUnsettled, 1, Harm::Crash, 2);
}

#[test]
fn control_a_write_beside_a_flush_classed_as_if_before_it_fails() {
    assert_fails(Bug::ClassedBeforeFlush, 2, Harm::Crash, 2);
}

#[test]
fn control_records_that_do_not_repeat_the_mark_fail() {
    let world = World { copies: 1, parts: 2, bug: Some(Bug::MarkNotRepeated) };
    assert!(walk(world, Harm::Flip, 3).wrong.is_some());
}

#[test]
fn control_records_of_an_epoch_not_in_force_fail() {
    assert_fails(Bug::SpansIgnored, 2, Harm::CrashTwice, 1);
}

#[test]
fn control_a_page_that_was_not_announced_fails() {
    assert_fails(Bug::PageNotAnnounced, 1, Harm::Crash, 2);
}
