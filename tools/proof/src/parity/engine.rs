//! The writer: turns operations on the stripe into the steps that the write path prescribes.

use super::{Body, COLUMNS, DATA, Entries, Entry, Mutant, PARITY, Place, Steps, Value, World, version};
use crate::media::Step;
use crate::walk::{Content, Note};

/// What clients or the engine itself do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operation {
    /// A write of one block, up to its acknowledgement.
    Write(usize),
    /// A write of the whole stripe, up to its acknowledgement.
    WriteStripe,
    /// A discard of one block, up to its acknowledgement.
    Discard(usize),
    /// A discard of the whole stripe, up to its acknowledgement.
    DiscardStripe,
    /// A flush, up to its acknowledgement.
    Flush,
    /// A flush beside a write of block A that began before it and ends behind it.
    FlushDuringWrite,
    /// A flush beside a write of the whole stripe that began before it and ends behind it.
    FlushDuringStripe,
    /// What is cached and was flushed is put in place.
    Destage,
    /// The same; between the redo record and what it announces there is something else.
    DestageAround(Within),
    /// Tables are written back and the log is trimmed.
    Checkpoint,
}

/// What goes on while a stripe is being destaged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Within {
    Write(usize),
    Flush,
    Checkpoint,
}

pub(super) const OPERATIONS: [Operation; 15] = [
    Operation::Write(0),
    Operation::Write(1),
    Operation::WriteStripe,
    Operation::Discard(0),
    Operation::Discard(1),
    Operation::DiscardStripe,
    Operation::Flush,
    Operation::FlushDuringWrite,
    Operation::FlushDuringStripe,
    Operation::Destage,
    Operation::DestageAround(Within::Write(0)),
    Operation::DestageAround(Within::Write(1)),
    Operation::DestageAround(Within::Flush),
    Operation::DestageAround(Within::Checkpoint),
    Operation::Checkpoint,
];

pub(super) const NEVER: Entries = [Entry::Never; COLUMNS];

/// The parity of two blocks, of which one that was never written counts as zeros.
pub(super) fn parity(data: [Entry; 2]) -> Entry {
    match data {
        [Entry::Never, Entry::Never] => Entry::Never,
        [a, b] => match (a.content(), b.content()) {
            (Some(a), Some(b)) => Entry::Valid(xor(a, b)),
            _ => Entry::Damaged,
        },
    }
}

pub(super) fn xor(a: Content, b: Content) -> Content {
    [a[0] ^ b[0], a[1] ^ b[1]]
}

/// What the running engine knows.
#[derive(Debug, Clone)]
pub(super) struct Engine {
    world: World,
    lsn: u8,
    /// The last durable mark, which every record repeats.
    mark: u8,
    /// What is in place.
    in_place: Entries,
    /// The same as of the last acknowledged flush.
    durable: Entries,
    /// A record of the whole stripe was written since.
    is_dirty: bool,
    /// What waits in the log to be put in place, oldest first.
    cached: [Vec<(u8, Entry)>; 2],
    page_version: u8,
    sequence: u8,
}

impl Engine {
    pub(super) fn new(world: World, entries: Entries) -> Self {
        Self {
            world,
            lsn: 0,
            mark: 0,
            in_place: entries,
            durable: entries,
            is_dirty: false,
            cached: [Vec::new(), Vec::new()],
            page_version: 1,
            sequence: 0,
        }
    }

    pub(super) fn steps(&mut self, operation: Operation) -> Steps {
        match operation {
            Operation::Write(column) => self.write(column).whole(),
            Operation::WriteStripe => self.write_stripe().whole(),
            Operation::Discard(column) => self.cache(column, Entry::Never, 0).whole(),
            Operation::DiscardStripe => self.discard_stripe(),
            Operation::Flush => self.flush(),
            Operation::FlushDuringWrite => self.flush_during(|engine| engine.write(0)),
            Operation::FlushDuringStripe => self.flush_during(Self::write_stripe),
            Operation::Destage => self.destage(None),
            Operation::DestageAround(within) => self.destage(Some(within)),
            Operation::Checkpoint => self.checkpoint(),
        }
    }

    /// What a reader of each block gets.
    pub(super) fn contents(&self) -> [u32; 2] {
        DATA.map(|column| {
            let newest = self.cached[column].last().map_or(self.in_place[column], |(_, entry)| *entry);
            newest.content().map_or(0, |content| content[0])
        })
    }

    fn log(&mut self, body: Body, is_through: bool) -> Steps {
        self.lsn += 1;
        let address = Place::Log { lsn: self.lsn, epoch: 1 };
        let value = Value::Record { body, mark: self.mark };
        let write = |disk| match is_through {
            true => Step::WriteThrough { disk, address, value },
            false => Step::Write { disk, address, value },
        };
        self.world.logs().map(write).collect()
    }

    fn put(&self, column: usize, entry: Entry) -> Option<Step<Place, Value, Note>> {
        let Entry::Valid(content) = entry else { return None };
        Some(Step::Write { disk: column, address: self.world.block(), value: Value::Content(content) })
    }

    /// A record with the new content; its place is not touched.
    fn cache(&mut self, column: usize, entry: Entry, content: u32) -> Request {
        self.sequence += 1;
        let mut begin = vec![Step::Note(Note::Issued { block: column, sequence: self.sequence, content })];
        begin.extend(self.log(Body::Data { column, entry }, false));
        self.cached[column].push((self.lsn, entry));
        Request { begin, end: vec![Step::Note(Note::Acknowledged { block: column, content })] }
    }

    fn write(&mut self, column: usize) -> Request {
        let content = version(column, self.sequence + 1);
        let entry = Entry::Valid([content; 2]);
        if self.world.has(Mutant::PartInPlace)
            && self.in_place[column] == Entry::Never
            && self.cached[column].is_empty()
        {
            let mut entries = self.in_place;
            entries[column] = entry;
            entries[PARITY] = parity([entries[0], entries[1]]);
            return self.stripe_in_place(entries, &[column]);
        }
        self.cache(column, entry, content)
    }

    fn is_fresh(&self) -> bool {
        let is_durable = self.durable == NEVER && !self.is_dirty;
        let is_empty = self.in_place == NEVER && self.cached.iter().all(Vec::is_empty);
        is_empty && (is_durable || self.world.has(Mutant::FreshOverUnflushed))
    }

    fn write_stripe(&mut self) -> Request {
        if self.is_fresh() {
            let data = DATA.map(|column| version(column, self.sequence + 1 + u8::from(column == 1)));
            let data = data.map(|content| Entry::Valid([content; 2]));
            return self.stripe_in_place([data[0], data[1], parity(data)], &DATA);
        }
        let mut request = self.write(0);
        let other = self.write(1);
        request.begin.extend(other.begin);
        request.end.extend(other.end);
        request
    }

    /// Blocks and parity in place, beside the record that says what they are.
    fn stripe_in_place(&mut self, entries: Entries, written: &[usize]) -> Request {
        let mut request = Request::default();
        for column in written.iter().copied() {
            self.sequence += 1;
            let content = entries[column].content().map_or(0, |content| content[0]);
            request.begin.push(Step::Note(Note::Issued { block: column, sequence: self.sequence, content }));
            request.end.push(Step::Note(Note::Acknowledged { block: column, content }));
        }
        request.begin.extend(self.log(Body::Stripe { entries }, false));
        let puts = written.iter().copied().chain([PARITY]);
        request.begin.extend(puts.filter_map(|column| self.put(column, entries[column])));
        self.in_place = entries;
        self.is_dirty = true;
        request
    }

    /// A record alone, which ends what is older.
    fn discard_stripe(&mut self) -> Steps {
        self.sequence += 1;
        let issued = |block| Step::Note(Note::Issued { block, sequence: self.sequence, content: 0 });
        let mut steps: Steps = DATA.map(issued).into();
        steps.extend(self.log(Body::Stripe { entries: NEVER }, false));
        steps.push(Step::Wait);
        steps.extend(DATA.map(|block| Step::Note(Note::Acknowledged { block, content: 0 })));
        self.in_place = NEVER;
        self.cached = [Vec::new(), Vec::new()];
        self.is_dirty = true;
        steps
    }

    fn flush(&mut self) -> Steps {
        self.flush_up_to(self.lsn, self.sequence)
    }

    fn flush_up_to(&mut self, durable: u8, sequence: u8) -> Steps {
        let mut steps = vec![Step::Flush];
        steps.extend(self.log(Body::Mark { durable }, true));
        steps.extend([Step::Wait, Step::Note(Note::Flushed { sequence })]);
        self.mark = durable;
        self.durable = self.in_place;
        self.is_dirty = false;
        steps
    }

    fn flush_during(&mut self, request: impl FnOnce(&mut Self) -> Request) -> Steps {
        let (lsn, sequence, in_place) = (self.lsn, self.sequence, self.in_place);
        let Request { begin, end } = request(self);
        let written = self.in_place;
        self.in_place = in_place;
        let flush = self.flush_up_to(lsn, sequence);
        self.in_place = written;
        self.is_dirty = written != in_place;
        begin.into_iter().chain(flush).chain([Step::Wait]).chain(end).collect()
    }

    fn destage(&mut self, within: Option<Within>) -> Steps {
        let covered = if self.world.has(Mutant::DestageOfUnflushed) { u8::MAX } else { self.mark };
        let newest = |cached: &Vec<(u8, Entry)>| cached.iter().rfind(|(lsn, _)| *lsn <= covered).copied();
        let taken = DATA.map(|column| newest(&self.cached[column]));
        if taken == [None; 2] {
            return Steps::new();
        }
        let data = DATA.map(|column| taken[column].map_or(self.in_place[column], |(_, entry)| entry));
        let entries = [data[0], data[1], parity(data)];
        let content = entries[PARITY].content().filter(|_| !self.world.has(Mutant::RedoWithoutParity));
        let redo = Body::Redo { data: taken.map(|taken| Some(taken?.0)), parity: content, entries };
        let mut steps = self.log(redo, !self.world.has(Mutant::RedoNotAwaited));
        let lsn = self.lsn;
        if !self.world.has(Mutant::RedoNotAwaited) {
            steps.push(Step::Wait);
        }
        steps.extend(match within {
            None => Steps::new(),
            Some(Within::Write(column)) => self.write(column).whole(),
            Some(Within::Flush) => self.flush(),
            Some(Within::Checkpoint) => self.checkpoint(),
        });
        let puts = DATA.into_iter().filter(|column| taken[*column].is_some()).chain([PARITY]);
        steps.extend(puts.filter_map(|column| self.put(column, entries[column])));
        steps.push(Step::Wait);
        if !self.world.has(Mutant::DoneBeforeFlush) {
            steps.push(Step::Flush);
        }
        steps.extend(self.log(Body::Done { redo: lsn }, false));
        steps.push(Step::Wait);
        self.in_place = entries;
        for (cached, taken) in self.cached.iter_mut().zip(taken) {
            cached.retain(|(lsn, _)| taken.is_none_or(|(up_to, _)| *lsn > up_to));
        }
        steps
    }

    /// Announces, writes back, flushes and trims.
    fn checkpoint(&mut self) -> Steps {
        let mut steps = self.flush();
        self.page_version += 1;
        let version = self.page_version;
        steps.extend(self.log(Body::Announce { version }, true));
        steps.push(Step::Wait);
        for (column, entry) in self.in_place.into_iter().enumerate() {
            let (address, value) =
                (Place::Page { column, slot: version % 2 }, Value::Page { version, entry });
            steps.extend(self.world.tables(column).map(|disk| Step::Write { disk, address, value }));
            // Columns have no order among them; one after another there are fewer subsets to try.
            if !self.world.has(Mutant::TrimBeforePages) {
                steps.extend([Step::Wait, Step::Flush]);
            }
        }
        let waiting = self.cached.iter().flatten().map(|(lsn, _)| lsn - 1).min();
        let tail = waiting.filter(|_| !self.world.has(Mutant::TrimOfCached)).unwrap_or(self.lsn);
        let value = Value::Tail { up_to: tail, version };
        let trim = |disk| Step::WriteThrough { disk, address: Place::Tail, value };
        steps.extend(self.world.logs().map(trim));
        steps.push(Step::Wait);
        steps
    }
}

/// A request: what is given to the disks, and what is acknowledged when they have it.
#[derive(Default)]
struct Request {
    begin: Steps,
    end: Steps,
}

impl Request {
    fn whole(self) -> Steps {
        self.begin.into_iter().chain([Step::Wait]).chain(self.end).collect()
    }
}
