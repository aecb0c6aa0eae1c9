//! An array controller: stripes, mirrors or parity over member disks, with a cache that survives a power cut.
//!
//! Writes are answered when the cache has them. Behind that, whole rows are written as soon as they are whole; parts of
//! rows wait for their other parts until the cache is half full or a while has passed. A part of a row with parity costs
//! a read of the old data and of the old parity before both are written. Without the cache, the same work is done before
//! the answer.
//!
//! Left to the members: everything below a command. Not modelled: rebuilds, read-ahead of the controller, and the order
//! between two parts of one row that are written back at the same time.

mod layout;

use std::collections::{BTreeMap, VecDeque};

use crate::device::{Answers, Device, Server, earlier};
use crate::error::{ParameterError, within};
use crate::request::{Completion, Op, Request, SubmitError, Ticket, check};
use crate::time::{SECOND_NS, Time, span_ns, wide};
use layout::Layout;

/// How long a part of a row waits for the rest at most.
pub(crate) const LINGER_NS: u64 = SECOND_NS;

/// How an array spreads its data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    /// Over all members, with no copy (RAID 0).
    Stripe,
    /// Over pairs of members that hold the same (RAID 10).
    Mirror,
    /// Over all members but one, and parity that moves on from row to row (RAID 5).
    Parity,
}

/// What the controller does with writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ArrayCache {
    /// It answers when all members have answered.
    WriteThrough,
    /// It answers when its own memory, kept by a battery, has them.
    WriteBack,
}

/// An array controller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ArrayParameters {
    /// How data is spread.
    pub level: Level,
    /// What lies on one member before the next one's turn, in bytes.
    pub interleave_bytes: u64,
    /// What the controller works for each command, in nanoseconds, one after another.
    pub command_ns: u64,
    /// The bus to the host, in bytes a second.
    pub bus_bytes_per_second: u64,
    /// What happens to writes.
    pub cache: ArrayCache,
    /// The cache, in bytes.
    pub cache_bytes: u64,
    /// Rows written back at the same time for each member.
    pub rows_per_member: usize,
}

/// A command to a member.
#[derive(Debug, Clone, Copy)]
struct MemberOp {
    member: usize,
    request: Request,
}

/// For whom members work.
#[derive(Debug, Clone, Copy)]
enum Owner {
    Host { ticket: Ticket, request: Request, submitted: Time },
    WriteBack { bytes: u64 },
}

/// Work of members that ends together, and what follows it.
#[derive(Debug, Clone)]
struct Job {
    owner: Owner,
    left: usize,
    then: Vec<MemberOp>,
}

/// What the cache holds of a row.
#[derive(Debug, Clone)]
struct DirtyRow {
    /// Of each column, from where to where.
    columns: Vec<Option<(u64, u64)>>,
    bytes: u64,
    since: Time,
}

/// An array controller and its members in virtual time.
pub struct Array {
    parameters: ArrayParameters,
    layout: Layout,
    members: Vec<Box<dyn Device>>,
    capacity_bytes: u64,
    clock: Time,
    tickets: u64,
    controller: Server,
    bus: Server,
    arriving: VecDeque<(Time, Owner)>,
    stalled: VecDeque<Owner>,
    jobs: Vec<Option<Job>>,
    idle_jobs: Vec<usize>,
    owners: BTreeMap<(usize, Ticket), usize>,
    dirty: BTreeMap<u64, DirtyRow>,
    /// Rows by age; those that were written back meanwhile are skipped.
    ages: VecDeque<(Time, u64)>,
    whole: VecDeque<u64>,
    dirty_bytes: u64,
    /// Where the last part of a row was taken from.
    cursor: u64,
    writing_back: usize,
    answers: Answers,
    under_way: usize,
}

impl Array {
    /// An array over members of one size, or as much of each as the smallest has.
    ///
    /// # Errors
    /// When the members are too few, or a parameter describes no array.
    pub fn new(parameters: ArrayParameters, members: Vec<Box<dyn Device>>) -> Result<Self, ParameterError> {
        let count = members.len();
        let (least, step) = match parameters.level {
            Level::Stripe => (1, 1),
            Level::Mirror => (2, 2),
            Level::Parity => (3, 1),
        };
        within("members", wide(count), least, 1_000)?;
        if !wide(count).is_multiple_of(step) {
            return Err(ParameterError::new("members", wide(count), "mirrors need an even number"));
        }
        within("interleave_bytes", parameters.interleave_bytes, 4_096, 1 << 30)?;
        within("command_ns", parameters.command_ns, 0, SECOND_NS)?;
        within("bus_bytes_per_second", parameters.bus_bytes_per_second, 1_000_000, 1 << 50)?;
        within("cache_bytes", parameters.cache_bytes, 0, 1 << 50)?;
        within("rows_per_member", wide(parameters.rows_per_member), 1, 1_024)?;
        let layout = Layout::new(&parameters, count);
        let smallest = members.iter().map(|member| member.capacity_bytes()).min().unwrap_or(0);
        let capacity_bytes = smallest / parameters.interleave_bytes * layout.row_bytes();
        within("members[..].capacity_bytes", smallest, parameters.interleave_bytes, u64::MAX)?;
        Ok(Self {
            layout,
            members,
            capacity_bytes,
            clock: Time::ZERO,
            tickets: 0,
            controller: Server::default(),
            bus: Server::default(),
            arriving: VecDeque::new(),
            stalled: VecDeque::new(),
            jobs: Vec::new(),
            idle_jobs: Vec::new(),
            owners: BTreeMap::new(),
            dirty: BTreeMap::new(),
            ages: VecDeque::new(),
            whole: VecDeque::new(),
            dirty_bytes: 0,
            cursor: 0,
            writing_back: 0,
            answers: Answers::default(),
            under_way: 0,
            parameters,
        })
    }

    /// What the cache holds that no member has, in bytes.
    #[must_use]
    pub const fn dirty_bytes(&self) -> u64 {
        self.dirty_bytes
    }

    fn advance(&mut self, now: Time) {
        while let Some(next) = self.next_step().filter(|next| *next <= now) {
            self.clock = self.clock.max(next);
            self.step();
        }
        self.clock = self.clock.max(now);
    }

    fn next_step(&self) -> Option<Time> {
        let members = self.members.iter().filter_map(|member| member.next_event()).min();
        let arrives = self.arriving.front().map(|(ready, _)| *ready);
        let lingers = self.ages.front().map(|(since, _)| since.after(LINGER_NS));
        let may_start = self.writing_back < self.write_back_max();
        earlier(earlier(members, arrives), lingers.filter(|_| may_start))
    }

    fn write_back_max(&self) -> usize {
        self.parameters.rows_per_member.saturating_mul(self.members.len())
    }

    fn step(&mut self) {
        for member in 0..self.members.len() {
            while let Some(done) = self.members.get_mut(member).and_then(|device| device.poll(self.clock)) {
                if let Some(job) = self.owners.remove(&(member, done.ticket)) {
                    self.member_done(job);
                }
            }
        }
        while let Some((_, owner)) = self.arriving.pop_front_if(|(ready, _)| *ready <= self.clock) {
            self.dispatch(owner);
        }
        self.absorb();
        self.write_back();
    }

    /// Hands commands to members; with none to hand over, the job is done at once.
    fn begin(&mut self, owner: Owner, now: &[MemberOp], then: Vec<MemberOp>) {
        let index = self.idle_jobs.pop().unwrap_or_else(|| {
            self.jobs.push(None);
            self.jobs.len() - 1
        });
        let job = Job { owner, left: now.len(), then };
        if let Some(slot) = self.jobs.get_mut(index) {
            *slot = Some(job);
        }
        self.hand_over(index, now);
        if now.is_empty() {
            self.phase_done(index);
        }
    }

    fn hand_over(&mut self, job: usize, ops: &[MemberOp]) {
        for MemberOp { member, request } in ops {
            let Some(device) = self.members.get_mut(*member) else { continue };
            let taken = device.submit(self.clock, *request);
            // The layout keeps within the smallest member, and the array's clock leads its members'.
            assert!(taken.is_ok(), "member {member} refused {request:?}: {taken:?}");
            if let Ok(ticket) = taken {
                self.owners.insert((*member, ticket), job);
            }
        }
    }

    fn member_done(&mut self, index: usize) {
        let Some(job) = self.jobs.get_mut(index).and_then(Option::as_mut) else { return };
        job.left -= 1;
        if job.left == 0 {
            self.phase_done(index);
        }
    }

    fn phase_done(&mut self, index: usize) {
        let Some(job) = self.jobs.get_mut(index).and_then(Option::as_mut) else { return };
        let then = std::mem::take(&mut job.then);
        job.left = then.len();
        if !then.is_empty() {
            self.hand_over(index, &then);
            return;
        }
        let done = self.jobs.get_mut(index).and_then(Option::take);
        self.idle_jobs.push(index);
        match done.map(|job| job.owner) {
            Some(Owner::WriteBack { bytes }) => {
                self.writing_back -= 1;
                self.dirty_bytes = self.dirty_bytes.saturating_sub(bytes);
            }
            Some(owner) => self.answer(owner),
            None => {}
        }
    }

    fn answer(&mut self, owner: Owner) {
        if let Owner::Host { ticket, request, submitted } = owner {
            let bytes = if request.op == Op::Flush { 0 } else { request.length };
            let completed = self.bus.serve(self.clock, span_ns(bytes, self.parameters.bus_bytes_per_second));
            self.answers.push(Completion { ticket, request, submitted, completed });
        }
    }

    fn dispatch(&mut self, owner: Owner) {
        let Owner::Host { request, .. } = owner else { return };
        match (request.op, self.parameters.cache) {
            (Op::Read, _) => {
                let reads = self.reads(&request);
                self.begin(owner, &reads, Vec::new());
            }
            (Op::Flush, ArrayCache::WriteBack) => self.answer(owner),
            (Op::Flush, ArrayCache::WriteThrough) => {
                let flush = |member| MemberOp { member, request: Request::flush() };
                let flushes: Vec<_> = (0..self.members.len()).map(flush).collect();
                self.begin(owner, &flushes, Vec::new());
            }
            (Op::Write | Op::WriteThrough, ArrayCache::WriteBack) => self.stalled.push_back(owner),
            (Op::Write | Op::WriteThrough, ArrayCache::WriteThrough) => {
                let (mut before, mut writes) = (Vec::new(), Vec::new());
                for (row, columns) in self.rows(&request) {
                    self.plan(row, &columns, &mut before, &mut writes);
                }
                if before.is_empty() {
                    self.begin(owner, &writes, Vec::new());
                } else {
                    self.begin(owner, &before, writes);
                }
            }
        }
    }

    /// What must be read of members; what the cache holds need not be.
    fn reads(&self, request: &Request) -> Vec<MemberOp> {
        let cached = |row: u64, column: usize, from: u64, to: u64| {
            let held = self.dirty.get(&row).and_then(|dirty| dirty.columns.get(column).copied().flatten());
            held.is_some_and(|(start, end)| start <= from && to <= end)
        };
        let pieces = self.layout.pieces(request.at, request.length);
        let missing = pieces.filter(|piece| !cached(piece.row, piece.column, piece.from, piece.to));
        let read = missing.map(|piece| {
            let (first, second) = self.layout.holders(piece.row, piece.column);
            let busy = |member: usize| self.members.get(member).map_or(usize::MAX, |m| m.under_way());
            let member = match second {
                Some(second) if (busy(second), piece.row % 2) < (busy(first), (piece.row + 1) % 2) => second,
                Some(_) | None => first,
            };
            let at = self.layout.member_at(piece.row, piece.from);
            MemberOp { member, request: Request::read(at, piece.to - piece.from) }
        });
        read.collect()
    }

    /// A command by rows.
    fn rows(&self, request: &Request) -> BTreeMap<u64, Vec<Option<(u64, u64)>>> {
        let mut rows = BTreeMap::new();
        for piece in self.layout.pieces(request.at, request.length) {
            let columns = rows.entry(piece.row).or_insert_with(|| vec![None; self.layout.columns]);
            if let Some(column) = columns.get_mut(piece.column) {
                *column = Some((piece.from, piece.to));
            }
        }
        rows
    }

    /// What writing these parts of a row takes: what to read first, and what to write then.
    fn plan(
        &self,
        row: u64,
        columns: &[Option<(u64, u64)>],
        before: &mut Vec<MemberOp>,
        writes: &mut Vec<MemberOp>,
    ) {
        let parity = self.layout.parity(row);
        let interleave = self.layout.interleave;
        let partial = columns.iter().any(|column| *column != Some((0, interleave)));
        let mut hull: Option<(u64, u64)> = None;
        for (index, column) in columns.iter().enumerate() {
            let Some((from, to)) = *column else { continue };
            hull = Some(hull.map_or((from, to), |(start, end)| (start.min(from), end.max(to))));
            let at = self.layout.member_at(row, from);
            let (first, second) = self.layout.holders(row, index);
            for member in std::iter::once(first).chain(second) {
                writes.push(MemberOp { member, request: Request::write(at, to - from) });
            }
            if parity.is_some() && partial {
                before.push(MemberOp { member: first, request: Request::read(at, to - from) });
            }
        }
        if let (Some(member), Some((from, to))) = (parity, hull) {
            let at = self.layout.member_at(row, from);
            if partial {
                before.push(MemberOp { member, request: Request::read(at, to - from) });
            }
            writes.push(MemberOp { member, request: Request::write(at, to - from) });
        }
    }

    /// Takes writes into the cache while there is room.
    fn absorb(&mut self) {
        while let Some(owner) = self.stalled.front().copied() {
            let Owner::Host { request, .. } = owner else { return };
            let full = self.dirty_bytes.saturating_add(request.length) > self.parameters.cache_bytes;
            if full && self.dirty_bytes > 0 {
                return;
            }
            self.stalled.pop_front();
            for (row, columns) in self.rows(&request) {
                self.remember(row, &columns);
            }
            self.answer(owner);
        }
    }

    /// Notes that the cache holds these parts of a row. Parts of one column that leave a gap are joined over it: the
    /// cache reads lines whole.
    fn remember(&mut self, row: u64, columns: &[Option<(u64, u64)>]) {
        let since = self.clock;
        let count = self.layout.columns;
        let dirty = self.dirty.entry(row).or_insert_with(|| {
            self.ages.push_back((since, row));
            DirtyRow { columns: vec![None; count], bytes: 0, since }
        });
        let before = dirty.bytes;
        for (held, new) in dirty.columns.iter_mut().zip(columns) {
            *held = match (*held, *new) {
                (Some((start, end)), Some((from, to))) => Some((start.min(from), end.max(to))),
                (held, new) => held.or(new),
            };
        }
        dirty.bytes = dirty.columns.iter().flatten().map(|(from, to)| to - from).sum();
        self.dirty_bytes += dirty.bytes - before;
        if dirty.bytes == self.layout.row_bytes() && before != dirty.bytes {
            self.whole.push_back(row);
        }
    }

    /// Starts writing rows back while members can take more.
    fn write_back(&mut self) {
        while self.writing_back < self.write_back_max() {
            let Some(row) = self.next_row() else { return };
            let Some(dirty) = self.dirty.remove(&row) else { continue };
            let (mut before, mut writes) = (Vec::new(), Vec::new());
            self.plan(row, &dirty.columns, &mut before, &mut writes);
            self.writing_back += 1;
            let owner = Owner::WriteBack { bytes: dirty.bytes };
            if before.is_empty() {
                self.begin(owner, &writes, Vec::new());
            } else {
                self.begin(owner, &before, writes);
            }
        }
    }

    /// The row to write back next: whole ones, then, when room is short, parts in the order of their places, then old
    /// ones.
    fn next_row(&mut self) -> Option<u64> {
        if let Some(row) = self.whole.pop_front() {
            return Some(row);
        }
        while self
            .ages
            .pop_front_if(|(since, row)| self.dirty.get(row).is_none_or(|d| d.since != *since))
            .is_some()
        {}
        if self.dirty_bytes.saturating_mul(2) > self.parameters.cache_bytes || !self.stalled.is_empty() {
            let ahead = self.dirty.range(self.cursor..).next().or_else(|| self.dirty.iter().next());
            let row = *ahead?.0;
            self.cursor = row + 1;
            return Some(row);
        }
        let (since, row) = self.ages.front().copied()?;
        (self.clock.since(since) >= LINGER_NS).then_some(row)
    }
}

impl Device for Array {
    fn capacity_bytes(&self) -> u64 {
        self.capacity_bytes
    }

    fn submit(&mut self, now: Time, request: Request) -> Result<Ticket, SubmitError> {
        check(&request, self.capacity_bytes, now, self.clock)?;
        self.advance(now);
        let ticket = Ticket(self.tickets);
        self.tickets += 1;
        self.under_way += 1;
        let ready = self.controller.serve(now, self.parameters.command_ns);
        self.arriving.push_back((ready, Owner::Host { ticket, request, submitted: now }));
        Ok(ticket)
    }

    fn next_event(&self) -> Option<Time> {
        earlier(self.next_step(), self.answers.next())
    }

    fn poll(&mut self, now: Time) -> Option<Completion> {
        self.advance(now);
        let completion = self.answers.due(now)?;
        self.under_way -= 1;
        Some(completion)
    }

    fn under_way(&self) -> usize {
        self.under_way
    }
}
