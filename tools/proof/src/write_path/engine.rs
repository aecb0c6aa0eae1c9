//! The writer: turns operations on one block into the steps that the write path prescribes.

use super::{Entry, Kind, Mutant, Place, Steps, Value, World, X, Y_CONTENT};
use crate::media::Step;
use crate::walk::Note;

/// What a client or the engine itself does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operation {
    /// A write, up to its acknowledgement.
    Write,
    /// A discard, up to its acknowledgement.
    Discard,
    /// A flush, up to its acknowledgement.
    Flush,
    /// A flush beside a write whose record was written before the disks were flushed.
    FlushDuringWrite,
    /// A flush, and a write that begins when the disks were flushed and the mark is not yet durable.
    WriteBeforeMark,
    /// Tables are written back and the log is trimmed.
    Checkpoint,
}

pub(super) const OPERATIONS: [Operation; 6] = [
    Operation::Write,
    Operation::Discard,
    Operation::Flush,
    Operation::FlushDuringWrite,
    Operation::WriteBeforeMark,
    Operation::Checkpoint,
];

/// The order that a write needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Class {
    Fresh,
    Rewrite,
    Overwrite,
}

/// What the running engine knows.
#[derive(Debug, Clone)]
pub(super) struct Engine {
    world: World,
    lsn: u8,
    /// Entry as of the last acknowledged flush.
    durable: Entry,
    /// The last durable mark, which every record repeats.
    mark: u8,
    /// Entry in memory.
    current: Entry,
    /// Something was acknowledged since the last flush.
    is_dirty: bool,
    page_version: u8,
    sequence: u8,
}

impl Engine {
    pub(super) fn new(world: World, durable: Entry) -> Self {
        Self {
            world,
            lsn: 0,
            durable,
            mark: 0,
            current: durable,
            is_dirty: false,
            page_version: 1,
            sequence: 0,
        }
    }

    pub(super) fn steps(&mut self, operation: Operation) -> Steps {
        match operation {
            Operation::Write => {
                let (mut steps, rest) = self.write();
                steps.extend(rest);
                steps
            }
            Operation::Discard => self.discard(),
            Operation::Flush => self.flush(None),
            Operation::FlushDuringWrite | Operation::WriteBeforeMark => self.flush_and_write(operation),
            Operation::Checkpoint => self.checkpoint(),
        }
    }

    /// A write joins a flush that has closed its batch.
    fn flush_and_write(&mut self, operation: Operation) -> Steps {
        let is_trusting = self.world.mutant == Some(Mutant::ClassedBeforeFlush);
        if self.class() == Class::Rewrite && !is_trusting {
            // The flush is about to settle the first content that the block ever had. Until its mark is durable
            // nothing could tell recovery, beside an intent, that "never written" is no longer true.
            let mut steps = self.flush(None);
            steps.extend(self.steps(Operation::Write));
            return steps;
        }
        let closed = (self.lsn, self.current, self.sequence);
        let (begin, data) = self.write();
        let written = self.current;
        self.current = closed.1;
        let mut flush = self.flush(Some((closed.0, closed.2)));
        self.current = written;
        self.is_dirty = true;
        let mut steps = Steps::new();
        if operation == Operation::WriteBeforeMark {
            steps.push(flush.remove(0));
            steps.extend(begin);
            // The data is given to the disks before the mark is, and waited for with it.
            let (data, ends): (Steps, Steps) =
                data.into_iter().partition(|step| matches!(step, Step::Write { .. }));
            steps.extend(data.into_iter().chain(flush).chain(ends));
        } else {
            steps.extend(begin.into_iter().chain(flush).chain(data));
        }
        steps
    }

    fn log_to_all(&mut self, value: Value, is_through: bool) -> Steps {
        self.lsn += 1;
        let address = Place::Log { lsn: self.lsn, epoch: 1 };
        let write = |disk| match is_through {
            true => Step::WriteThrough { disk, address, value },
            false => Step::Write { disk, address, value },
        };
        (0..self.world.copies).map(write).collect()
    }

    fn record(&self, entry: Entry, kind: Kind) -> Value {
        let mark = if self.world.mutant == Some(Mutant::MarkNotRepeated) { 0 } else { self.mark };
        Value::Record { block: X, entry, kind, mark }
    }

    fn data_to_all(&self, address: Place, value: Value) -> Steps {
        (0..self.world.copies).map(|disk| Step::Write { disk, address, value }).collect()
    }

    fn class(&self) -> Class {
        match (self.durable, self.is_dirty) {
            (Entry::Never, false) => Class::Fresh,
            (Entry::Never, true) => Class::Rewrite,
            (Entry::Valid(_) | Entry::Damaged, _) => Class::Overwrite,
        }
    }

    /// The steps up to where the class makes a write wait, and those behind.
    fn write(&mut self) -> (Steps, Steps) {
        self.sequence += 1;
        let sequence = self.sequence;
        let written = u32::from(sequence);
        let content = [written; 2];
        let class = self.class();
        let entry = Entry::Valid(content);
        let kind = if class == Class::Overwrite { Kind::Intent } else { Kind::Plain };
        let is_through = class == Class::Overwrite && self.world.mutant != Some(Mutant::IntentNotAwaited);
        let mut first = vec![Step::Note(Note::Issued { block: 0, sequence, content: written })];
        let record = self.record(entry, kind);
        first.extend(self.log_to_all(record, is_through));
        let awaits = match class {
            Class::Fresh => false,
            Class::Rewrite => self.world.mutant != Some(Mutant::RewriteInParallel),
            Class::Overwrite => self.world.mutant != Some(Mutant::IntentNotAwaited),
        };
        if awaits {
            first.push(Step::Wait);
        }
        let mut rest = self.data_to_all(self.world.block(X), Value::Content(content));
        rest.extend([Step::Wait, Step::Note(Note::Acknowledged { block: 0, content: written })]);
        self.current = entry;
        self.is_dirty = true;
        (first, rest)
    }

    fn discard(&mut self) -> Steps {
        self.sequence += 1;
        let mut steps = vec![Step::Note(Note::Issued { block: 0, sequence: self.sequence, content: 0 })];
        let record = self.record(Entry::Never, Kind::Plain);
        steps.extend(self.log_to_all(record, false));
        steps.extend([Step::Wait, Step::Note(Note::Acknowledged { block: 0, content: 0 })]);
        self.current = Entry::Never;
        self.is_dirty = true;
        steps
    }

    /// Flushes; the mark covers the log up to where the batch was closed.
    fn flush(&mut self, closed: Option<(u8, u8)>) -> Steps {
        let (durable, sequence) = closed.unwrap_or((self.lsn, self.sequence));
        let durable = if self.world.mutant == Some(Mutant::MarkCoversLater) { self.lsn } else { durable };
        self.mark = durable;
        self.durable = self.current;
        self.is_dirty = false;
        let promise = Step::Note(Note::Flushed { sequence });
        let is_early = self.world.mutant == Some(Mutant::PromiseBeforeMark);
        let mut steps = vec![Step::Flush];
        let mark = self.log_to_all(Value::Mark { durable }, true);
        if is_early {
            steps.push(promise.clone());
        }
        steps.extend(mark);
        steps.push(Step::Wait);
        if !is_early {
            steps.push(promise);
        }
        steps
    }

    /// Announces, writes back, flushes and trims.
    fn checkpoint(&mut self) -> Steps {
        let mut steps = Steps::new();
        if self.world.mutant != Some(Mutant::PageOfUnflushed) {
            steps.extend(self.flush(None));
        }
        let trimmed = self.lsn;
        self.page_version += 1;
        let version = self.page_version;
        if self.world.mutant != Some(Mutant::PageNotAnnounced) {
            steps.extend(self.log_to_all(Value::Announce { version }, true));
            steps.push(Step::Wait);
        }
        let page = Value::Page { version, entries: [self.current, Entry::Valid(Y_CONTENT)] };
        steps.extend(self.data_to_all(Place::Page { slot: version % 2 }, page));
        if self.world.mutant != Some(Mutant::TrimBeforePages) {
            steps.extend([Step::Wait, Step::Flush]);
        }
        if self.world.mutant != Some(Mutant::PageOfUnflushed) {
            // The announcement has done its work once the pages are flushed, and goes with the rest.
            let tail = if self.world.mutant == Some(Mutant::PageNotAnnounced) { trimmed } else { self.lsn };
            let trim = |disk| Step::WriteThrough { disk, address: Place::Tail, value: Value::Tail(tail) };
            steps.extend((0..self.world.copies).map(trim));
            steps.push(Step::Wait);
        }
        steps
    }
}
