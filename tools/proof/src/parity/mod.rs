//! The write path of parity rows, over every short sequence of operations on one stripe of two data blocks and their parity.
//!
//! Each of three disks holds a column: block A, block B, their parity. Table pages of a column, in two slots, stand on its
//! own disk and on the next one. The write cache, which is a log that carries data, has a copy on two of the disks. Blocks are
//! written, discarded, flushed, destaged and checkpointed. How a crash is made and judged stands in [`crate::walk`].
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

/// Columns, each on the disk of its number: data, data, parity.
const COLUMNS: usize = 3;
const PARITY: usize = 2;
/// The data columns.
const DATA: [usize; 2] = [0, 1];

type Disks = crate::walk::Disks<World>;
type Steps = crate::walk::Steps<World>;
type Entries = [Entry; COLUMNS];

/// A content of a data column: a bit of its own, so that no two sets of contents have the same parity.
fn version(column: usize, number: u8) -> u32 {
    1 << (u32::from(number) + if column == 0 { 0 } else { 12 })
}

/// What each column held when the stripe was written long ago.
const BEFORE: [u32; COLUMNS] = [1 << 24, 1 << 25, 1 << 24 | 1 << 25];
/// What an earlier owner of the slabs left.
const STRANGER: [u32; COLUMNS] = [1 << 26, 1 << 27, 1 << 28];

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Place {
    /// The block of the stripe on the disk of its column.
    Block {
        parts: u8,
    },
    Page {
        column: usize,
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
            Self::Block { parts } => *parts,
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

impl Entry {
    /// What it says about a block that can be read: zeros where nothing was written.
    fn content(self) -> Option<Content> {
        match self {
            Self::Never => Some([0; 2]),
            Self::Valid(content) => Some(content),
            Self::Damaged => None,
        }
    }
}

/// What a log record says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Body {
    /// A block's new content, to be put in place later.
    Data { column: usize, entry: Entry },
    /// The whole stripe was written in place, or discarded.
    Stripe { entries: Entries },
    /// What is about to be put in place: data by the records that have it, parity itself, and what the entries are then.
    Redo { data: [Option<u8>; 2], parity: Option<Content>, entries: Entries },
    /// The redo with this number is in place.
    Done { redo: u8 },
    /// Everything up to here was flushed.
    Mark { durable: u8 },
    /// A table page of this version is about to be written.
    Announce { version: u8 },
    /// What recovery found the stripe to be; nothing older has a say, but for data that was not put in place.
    Decided { entries: Entries },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Value {
    Content(Content),
    Page {
        version: u8,
        entry: Entry,
    },
    /// A record, and the last durable mark when it was written.
    Record {
        body: Body,
        mark: u8,
    },
    /// Records up to here are no longer needed; pages of this version are there.
    Tail {
        up_to: u8,
        version: u8,
    },
    Flipped,
}

/// A rule of the write path, left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mutant {
    /// Redo records have no parity; recovery computes it from the data columns that it can read.
    RedoWithoutParity,
    /// Blocks are put in place beside their redo record.
    RedoNotAwaited,
    /// What no flush has covered is destaged.
    DestageOfUnflushed,
    /// A destage is done, and said to be, before the disks were flushed.
    DoneBeforeFlush,
    /// A redo record below the durable mark counts as done.
    MarkMeansDone,
    /// The log is trimmed before the table pages are flushed.
    TrimBeforePages,
    /// An announcement of pages counts for as long as it is in the log, also when they were written.
    AnnouncedForEver,
    /// What was not destaged yet is trimmed.
    TrimOfCached,
    /// A column's table stands on its own disk alone.
    TableOnOneDisk,
    /// A stripe is written in place as fresh while its discard is not flushed.
    FreshOverUnflushed,
    /// A part of a fresh stripe is written in place, with its parity.
    PartInPlace,
    /// The write cache has one copy.
    CacheOnOneDisk,
    /// Recovery puts things in place before it has given each log what the others have.
    ReplayBeforeHealing,
    /// Recovery puts things in place while a disk with a copy of the write cache is away and no other has taken its place.
    CopyNotReplaced,
    /// A read does not verify what it reconstructs from.
    UnverifiedInputs,
    /// Of a fresh stripe in flight each block is decided by itself.
    StripeInParts,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct World {
    /// Disks with a copy of the write cache.
    logs: [usize; 2],
    /// Atomic units of a block.
    parts: u8,
    mutant: Option<Mutant>,
}

impl World {
    fn has(self, mutant: Mutant) -> bool {
        self.mutant == Some(mutant)
    }

    fn block(self) -> Place {
        Place::Block { parts: self.parts }
    }

    fn logs(self) -> impl Iterator<Item = usize> {
        let copies = if self.has(Mutant::CacheOnOneDisk) { 1 } else { 2 };
        self.logs.into_iter().take(copies)
    }

    /// The disks with a column's table.
    fn tables(self, column: usize) -> impl Iterator<Item = usize> {
        let copies = if self.has(Mutant::TableOnOneDisk) { 1 } else { 2 };
        (0..copies).map(move |copy| (column + copy) % COLUMNS)
    }

    /// A stripe in which the entries stand, and after which these operations were carried out and a flush.
    fn start(self, entries: Entries, before: &[Operation]) -> Start<Self> {
        let mut disks = Media::default();
        for (column, entry) in entries.into_iter().enumerate() {
            let found = if entry == Entry::Never { STRANGER[column] } else { BEFORE[column] };
            disks.set(column, self.block(), Value::Content([found; 2]));
            for disk in self.tables(column) {
                let never = Value::Page { version: 0, entry: Entry::Never };
                disks.set(disk, Place::Page { column, slot: 0 }, never);
                disks.set(disk, Place::Page { column, slot: 1 }, Value::Page { version: 1, entry });
            }
        }
        let mut engine = Engine::new(self, entries);
        for operation in before.iter().copied().chain([Operation::Flush]) {
            engine.steps(operation).iter().for_each(|step| disks.play(step));
        }
        Start { contents: engine.contents().into(), engine, disks }
    }
}

impl Protocol for World {
    type Address = Place;
    type Value = Value;
    type Operation = Operation;
    type Engine = Engine;

    const OPERATIONS: &'static [Operation] = &OPERATIONS;

    fn starts(self) -> Vec<Start<Self>> {
        let never = [Entry::Never; COLUMNS];
        let written = BEFORE.map(|content| Entry::Valid([content; 2]));
        vec![
            self.start(never, &[]),
            self.start(written, &[]),
            // What a destage needs is there from the beginning, so that short sequences go beyond it.
            self.start(never, &[Operation::Write(0)]),
            self.start(written, &[Operation::Write(0)]),
            self.start(written, &[Operation::Discard(0), Operation::Write(1)]),
        ]
    }

    fn steps(self, engine: &mut Engine, operation: Operation) -> Steps {
        engine.steps(operation)
    }

    fn recover(self, disks: &Disks, live: Mask, span: Span) -> Recovered<Self> {
        recover(self, disks, live, span)
    }

    fn disk_count(self) -> usize {
        COLUMNS
    }

    fn redundancy(self) -> usize {
        1
    }

    fn corrupted_disks(self) -> usize {
        COLUMNS
    }

    fn corrupted(self, address: Place) -> Option<Value> {
        match address {
            Place::Block { .. } => Some(Value::Content([GARBAGE; 2])),
            Place::Page { .. } | Place::Log { .. } => Some(Value::Flipped),
            Place::Tail => None,
        }
    }

    /// Nothing is ever overwritten in place without a redo record.
    fn accepts_unverified(self) -> bool {
        false
    }
}

fn shipped(logs: [usize; 2], parts: u8) -> World {
    World { logs, parts, mutant: None }
}

fn without(mutant: Mutant) -> World {
    World { logs: [0, 1], parts: 1, mutant: Some(mutant) }
}

/// Any crash, any disk lost: each block old or new, wherever the write cache is, torn or not.
#[test]
fn a_crash_leaves_each_block_old_or_new() {
    for logs in [[0, 1], [1, 2], [2, 0]] {
        assert_holds(shipped(logs, 1), Harm::Crash, 2 + longer());
        assert_holds(shipped(logs, 2), Harm::Crash, 2 + longer());
    }
}

/// A crash with a flipped block, page or record, a disk lost or not: never a wrong byte.
#[test]
fn a_crash_with_a_bit_flip_is_never_wrong() {
    for logs in [[0, 1], [1, 2], [2, 0]] {
        assert_holds(shipped(logs, 1), Harm::Corruption, 1 + longer());
    }
}

/// What recovery has served stays, through a second crash with another disk missing.
#[test]
fn what_recovery_serves_is_final() {
    for logs in [[0, 1], [1, 2], [2, 0]] {
        assert_holds(shipped(logs, 1), Harm::CrashTwice, 1 + longer());
    }
}

#[test]
fn control_a_redo_record_without_parity_loses_a_neighbour() {
    assert_fails(without(Mutant::RedoWithoutParity), Harm::Crash, 1);
}

#[test]
fn control_a_redo_record_that_is_not_awaited_fails() {
    assert_fails(without(Mutant::RedoNotAwaited), Harm::Crash, 1);
}

#[test]
fn control_a_destage_of_what_no_flush_has_covered_fails() {
    assert_fails(without(Mutant::DestageOfUnflushed), Harm::Crash, 2);
}

#[test]
fn control_a_destage_that_is_done_before_its_flush_fails() {
    assert_fails(without(Mutant::DoneBeforeFlush), Harm::Crash, 1);
}

#[test]
fn control_a_redo_record_that_a_mark_settles_fails() {
    assert_fails(without(Mutant::MarkMeansDone), Harm::Crash, 1);
}

#[test]
fn control_a_log_trimmed_before_its_pages_are_flushed_fails() {
    assert_fails(without(Mutant::TrimBeforePages), Harm::Crash, 2);
}

/// What is cached holds the announcement in the log.
#[test]
fn control_an_announcement_that_survives_its_pages_fails() {
    assert_fails(without(Mutant::AnnouncedForEver), Harm::Corruption, 2);
}

#[test]
fn control_a_log_trimmed_of_what_is_cached_fails() {
    assert_fails(without(Mutant::TrimOfCached), Harm::Crash, 1);
}

#[test]
fn control_a_table_on_one_disk_fails() {
    assert_fails(without(Mutant::TableOnOneDisk), Harm::Crash, 1);
}

#[test]
fn control_a_fresh_stripe_over_an_unflushed_discard_fails() {
    assert_fails(without(Mutant::FreshOverUnflushed), Harm::Crash, 2);
}

#[test]
fn control_a_part_of_a_fresh_stripe_in_place_fails() {
    assert_fails(without(Mutant::PartInPlace), Harm::Crash, 2);
}

#[test]
fn control_a_write_cache_on_one_disk_fails() {
    assert_fails(without(Mutant::CacheOnOneDisk), Harm::Crash, 1);
}

#[test]
fn control_a_replay_before_the_logs_are_equal_fails() {
    assert_fails(without(Mutant::ReplayBeforeHealing), Harm::CrashTwice, 1);
}

#[test]
fn control_a_replay_with_fewer_copies_of_the_cache_fails() {
    assert_fails(without(Mutant::CopyNotReplaced), Harm::CrashTwice, 1);
}

#[test]
fn control_inputs_that_are_not_verified_fail() {
    assert_fails(without(Mutant::UnverifiedInputs), Harm::Corruption, 1);
}

#[test]
fn control_a_stripe_in_flight_that_is_decided_in_parts_fails() {
    assert_fails(without(Mutant::StripeInParts), Harm::CrashTwice, 1);
}
