//! The write path of simple and mirror spaces, over every short sequence of operations on one block.
//!
//! Block X is written, discarded, flushed and checkpointed; block Y beside it was flushed long ago and is never
//! touched. Each copy holds both blocks, their table page in two slots, and the log. How a crash is made and judged stands in
//! [`crate::walk`].
//!
//! Each [`Mutant`] is a control: a rule left out, which the same judge must catch.

mod engine;
mod recovery;

use crate::media::{Address, Media};
use crate::walk::{
    Content, GARBAGE, Harm, Mask, Protocol, Recovered, Span, Start, assert_fails, assert_holds, longer,
};
use engine::{Engine, OPERATIONS, Operation};
use recovery::recover;

const X: u8 = 0;
const Y: u8 = 1;
const Y_CONTENT: Content = [200; 2];
/// What X holds in a world where it was flushed before.
const BEFORE: u32 = 100;
/// What an earlier owner of the slab left where X was never written.
const STRANGER: u32 = 101;

type Disks = crate::walk::Disks<World>;
type Steps = crate::walk::Steps<World>;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Place {
    Block {
        block: u8,
        parts: u8,
    },
    Page {
        slot: u8,
    },
    /// A record, distinguished by its writer: 1 is the epoch that crashed, 2 the one that recovery opens.
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
    Valid(Content),
    Damaged,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Kind {
    Plain,
    Intent,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Value {
    Content(Content),
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
        durable: u8,
    },
    /// A table page of this version is about to be written.
    Announce {
        version: u8,
    },
    /// Records up to here are no longer needed.
    Tail(u8),
    Flipped,
}

/// A rule of the write path, left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mutant {
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
    PageOfUnflushed,
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
    mutant: Option<Mutant>,
}

impl World {
    fn block(self, block: u8) -> Place {
        Place::Block { block, parts: self.parts }
    }

    fn start(self, durable: Entry) -> Start<Self> {
        let mut disks = Media::default();
        let (before, found) = if durable == Entry::Never { (0, STRANGER) } else { (BEFORE, BEFORE) };
        for disk in 0..self.copies {
            disks.set(disk, self.block(X), Value::Content([found; 2]));
            disks.set(disk, self.block(Y), Value::Content(Y_CONTENT));
            let entries = [durable, Entry::Valid(Y_CONTENT)];
            disks.set(disk, Place::Page { slot: 0 }, Value::Page { version: 0, entries: [Entry::Never; 2] });
            disks.set(disk, Place::Page { slot: 1 }, Value::Page { version: 1, entries });
        }
        Start { engine: Engine::new(self, durable), disks, contents: vec![before, Y_CONTENT[0]] }
    }
}

impl Protocol for World {
    type Address = Place;
    type Value = Value;
    type Operation = Operation;
    type Engine = Engine;

    const OPERATIONS: &'static [Operation] = &OPERATIONS;

    fn starts(self) -> Vec<Start<Self>> {
        [Entry::Never, Entry::Valid([BEFORE; 2])].map(|durable| self.start(durable)).into()
    }

    fn steps(self, engine: &mut Engine, operation: Operation) -> Steps {
        engine.steps(operation)
    }

    fn recover(self, disks: &Disks, live: Mask, span: Span) -> Recovered<Self> {
        recover(self, disks, live, span)
    }

    fn disk_count(self) -> usize {
        self.copies
    }

    fn redundancy(self) -> usize {
        self.copies - 1
    }

    /// Copies are alike: one of them stands for all.
    fn corrupted_disks(self) -> usize {
        1
    }

    fn corrupted(self, address: Place) -> Option<Value> {
        match address {
            Place::Block { .. } => Some(Value::Content([GARBAGE; 2])),
            Place::Page { .. } | Place::Log { .. } => Some(Value::Flipped),
            Place::Tail => None,
        }
    }

    fn accepts_unverified(self) -> bool {
        self.parts == 2
    }
}

fn shipped(copies: usize, parts: u8) -> World {
    World { copies, parts, mutant: None }
}

fn without(mutant: Mutant, copies: usize) -> World {
    World { copies, parts: 1, mutant: Some(mutant) }
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
fn a_crash_with_a_bit_flip_is_never_wrong() {
    assert_holds(shipped(2, 1), Harm::Corruption, 2 + longer());
    assert_holds(shipped(1, 1), Harm::Corruption, 3 + longer());
    assert_holds(shipped(1, 2), Harm::Corruption, 2 + longer());
}

/// What recovery has served stays, through a second crash with another disk missing.
#[test]
fn what_recovery_serves_is_final() {
    assert_holds(shipped(2, 1), Harm::CrashTwice, 2 + longer());
    assert_holds(shipped(1, 1), Harm::CrashTwice, 2 + longer());
}

#[test]
fn control_an_intent_that_is_not_awaited_fails() {
    assert_fails(without(Mutant::IntentNotAwaited, 2), Harm::Crash, 1);
    assert_fails(without(Mutant::IntentNotAwaited, 1), Harm::Crash, 1);
}

#[test]
fn control_a_flush_acknowledged_before_its_mark_fails_with_a_bit_flip() {
    assert_fails(without(Mutant::PromiseBeforeMark, 2), Harm::Corruption, 2);
    assert_fails(without(Mutant::PromiseBeforeMark, 1), Harm::Corruption, 2);
}

#[test]
fn control_a_mark_that_covers_later_writes_fails() {
    assert_fails(without(Mutant::MarkCoversLater, 2), Harm::Crash, 2);
}

#[test]
fn control_a_rewrite_in_parallel_with_its_record_loses_acknowledged_data() {
    assert_fails(without(Mutant::RewriteInParallel, 2), Harm::Crash, 2);
    assert_fails(without(Mutant::RewriteInParallel, 1), Harm::Crash, 2);
}

#[test]
fn control_a_log_trimmed_before_its_pages_are_flushed_fails() {
    assert_fails(without(Mutant::TrimBeforePages, 2), Harm::Crash, 2);
    assert_fails(without(Mutant::TrimBeforePages, 1), Harm::Crash, 2);
}

#[test]
fn control_a_page_with_unflushed_entries_fails() {
    assert_fails(without(Mutant::PageOfUnflushed, 1), Harm::Crash, 2);
}

#[test]
fn control_a_write_during_a_flush_classed_as_before_it_fails() {
    assert_fails(without(Mutant::ClassedBeforeFlush, 2), Harm::Crash, 2);
}

#[test]
fn control_records_that_do_not_repeat_the_mark_fail() {
    let world = World { copies: 1, parts: 2, mutant: Some(Mutant::MarkNotRepeated) };
    assert_fails(world, Harm::Corruption, 3);
}

#[test]
fn control_records_of_an_epoch_not_in_force_fail() {
    assert_fails(without(Mutant::SpansIgnored, 2), Harm::CrashTwice, 1);
}

#[test]
fn control_a_page_that_was_not_announced_fails() {
    assert_fails(without(Mutant::PageNotAnnounced, 1), Harm::Crash, 2);
}
