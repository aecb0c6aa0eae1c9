//! Rotating disks: an arm, platters, memory, and a queue.
//!
//! A command passes the electronics (`command_ns`), then it is answered from memory or waits for the arm. When the arm
//! is free it takes the command, or the answered write, that the scheduler likes best; the seek follows the curve of
//! the data sheet, then the first byte has to come round. While nobody asks, the head reads on behind the last read
//! until a segment is full, so that a stream costs one seek.
//!
//! Not modelled: retries, recalibration, sectors that were replaced, and heads that differ from each other.

mod cache;
mod geometry;
mod parameters;
mod queue;
mod seek;

use std::collections::VecDeque;

pub(crate) use cache::JOINED_BYTES_MAX;
pub use parameters::{DiskParameters, Scheduler, Seeks, WriteCache};
pub(crate) use queue::AGING_TURNS;

use crate::device::{Answers, Device, Server, earlier};
use crate::error::ParameterError;
use crate::random::Random;
use crate::request::{Completion, Op, Request, SubmitError, Ticket, check};
use crate::time::{Time, span_ns};
use cache::{DirtyRuns, ReadCache, Run};
use geometry::Layout;
use queue::{Arm, Choice, Command, Target, Work};
use seek::SeekCurve;

/// A command in the arm's hands.
#[derive(Debug, Clone, Copy)]
struct Active {
    work: Work,
    run: Run,
    ends: Time,
}

/// Reading on behind the last read, while nobody asks.
#[derive(Debug, Clone, Copy)]
struct Stream {
    /// What is in memory begins here.
    start: u64,
    /// Here the head was at `since`.
    from: u64,
    since: Time,
    track_bytes: u64,
    /// The segment is full here.
    limit: u64,
}

/// A disk in virtual time.
#[derive(Debug, Clone)]
pub struct Disk {
    parameters: DiskParameters,
    layout: Layout,
    read_curve: SeekCurve,
    write_curve: SeekCurve,
    /// Where the platters stood at the beginning, in nanoseconds of a turn.
    phase_ns: u64,
    clock: Time,
    tickets: u64,
    arm: Arm,
    /// Commands beyond the queue depth: the host keeps them.
    backlog: VecDeque<Command>,
    /// Commands that the electronics work on, in their order.
    arriving: VecDeque<Command>,
    /// Commands that wait for the arm.
    waiting: Vec<Target>,
    /// Writes that wait for room in the cache.
    stalled: VecDeque<Command>,
    flushes: Vec<Command>,
    active: Option<Active>,
    stream: Option<Stream>,
    reads: ReadCache,
    dirty: DirtyRuns,
    link: Server,
    answers: Answers,
    held: usize,
    under_way: usize,
}

impl Disk {
    /// A disk at rest, with its platters somewhere.
    ///
    /// # Errors
    /// When a parameter describes no disk.
    pub fn new(parameters: DiskParameters, seed: u64) -> Result<Self, ParameterError> {
        let layout = Layout::new(&parameters)?;
        let curve = |seeks, fields| SeekCurve::new(seeks, fields, layout.tracks());
        let read_fields = ["read_seeks.single_ns", "read_seeks.average_ns", "read_seeks.full_ns"];
        let write_fields = ["write_seeks.single_ns", "write_seeks.average_ns", "write_seeks.full_ns"];
        let read_curve = curve(parameters.read_seeks, read_fields)?;
        let write_curve = curve(parameters.write_seeks, write_fields)?;
        let segments = usize::try_from(parameters.buffer_bytes / parameters.segment_bytes).unwrap_or(1);
        let mut random = Random::new(seed);
        Ok(Self {
            layout,
            read_curve,
            write_curve,
            phase_ns: random.below(parameters.revolution_ns()),
            clock: Time::ZERO,
            tickets: 0,
            arm: Arm::default(),
            backlog: VecDeque::new(),
            arriving: VecDeque::with_capacity(parameters.queue_depth),
            waiting: Vec::with_capacity(parameters.queue_depth),
            stalled: VecDeque::with_capacity(parameters.queue_depth),
            flushes: Vec::new(),
            active: None,
            stream: None,
            reads: ReadCache::new(segments.min(64)),
            dirty: DirtyRuns::new(parameters.queue_depth, parameters.buffer_bytes / 2),
            link: Server::default(),
            answers: Answers::default(),
            held: 0,
            under_way: 0,
            parameters,
        })
    }

    /// The sustained rate of the zone in which a byte lies, in bytes a second.
    #[must_use]
    pub fn zone_rate(&self, at: u64) -> u64 {
        self.layout.transferred(self.layout.place(at).track_bytes, crate::time::SECOND_NS)
    }

    /// What it is made of.
    #[must_use]
    pub const fn parameters(&self) -> &DiskParameters {
        &self.parameters
    }

    fn link_ns(&self, bytes: u64) -> u64 {
        span_ns(bytes, self.parameters.interface_bytes_per_second)
    }

    fn answer(&mut self, command: Command, completed: Time) {
        let Command { ticket, request, submitted, .. } = command;
        self.answers.push(Completion { ticket: Ticket(ticket), request, submitted, completed });
        self.held -= 1;
    }

    /// Moves everything on to `now`.
    fn advance(&mut self, now: Time) {
        while let Some(next) = self.next_step().filter(|next| *next <= now) {
            self.clock = next;
            self.step();
        }
        self.clock = self.clock.max(now);
    }

    fn next_step(&self) -> Option<Time> {
        let arrives = self.arriving.front().map(|command| command.ready);
        earlier(self.active.map(|active| active.ends), arrives)
    }

    fn step(&mut self) {
        if let Some(active) = self.active.take_if(|active| active.ends <= self.clock) {
            self.finish(active);
        }
        while let Some(command) = self.arriving.pop_front_if(|command| command.ready <= self.clock) {
            self.classify(command);
        }
        self.absorb();
        if self.active.is_none() {
            self.start_next();
        }
        self.admit();
    }

    /// What the arm did is done.
    fn finish(&mut self, active: Active) {
        let track = self.layout.place(active.run.end.saturating_sub(1)).track;
        self.arm.ended(active.run.end, track, active.ends, active.work.is_read());
        match active.work {
            Work::Host(command) => {
                let link_ns = self.link_ns(command.request.length);
                // Data crosses the interface while it is read; only what the interface lags behind comes after.
                let done = match command.request.op {
                    Op::Read => self.link.serve(active.ends.before(link_ns), link_ns).max(active.ends),
                    Op::Write | Op::WriteThrough | Op::Flush => active.ends,
                };
                if command.request.op == Op::Read {
                    self.read_on(active);
                } else {
                    self.reads.forget(&active.run);
                }
                self.answer(command, done);
            }
            Work::WriteBack(_) => self.reads.forget(&active.run),
        }
    }

    /// Keeps the head reading behind a read.
    fn read_on(&mut self, active: Active) {
        let Run { at, end } = active.run;
        let segment = self.parameters.segment_bytes;
        let limit = end.saturating_add(segment).min(self.parameters.capacity_bytes);
        let followed = self.stream.filter(|stream| stream.start <= at);
        // What was behind the head already does not take it back.
        if let Some(mut stream) = followed.filter(|stream| end < stream.from) {
            stream.limit = stream.limit.max(limit);
            self.stream = Some(stream);
            return;
        }
        let start = followed.map_or(at, |stream| stream.start.max(end.saturating_sub(segment)));
        let track_bytes = self.layout.place(end.saturating_sub(1)).track_bytes;
        self.stream = Some(Stream { start, from: end, since: active.ends, track_bytes, limit });
    }

    /// How far the head has read on.
    fn frontier(&self, stream: &Stream) -> u64 {
        let read = self.layout.transferred(stream.track_bytes, self.clock.since(stream.since));
        stream.from.saturating_add(read).min(stream.limit)
    }

    /// The arm goes elsewhere; what was read stays in memory.
    fn end_stream(&mut self) {
        if let Some(stream) = self.stream.take() {
            let end = self.frontier(&stream);
            self.reads.keep(Run { at: stream.start, end });
            let track = self.layout.place(end.saturating_sub(1)).track;
            self.arm.moved(end, track);
        }
    }

    /// A command has passed the electronics: it is answered from memory, or it waits.
    fn classify(&mut self, command: Command) {
        let run = Run::of(&command.request);
        match (command.request.op, self.parameters.write_cache) {
            (Op::Flush, _) => self.flushes.push(command),
            (Op::Write, WriteCache::On) => self.stalled.push_back(command),
            (Op::Read, _) if self.in_memory(&run) => {
                let done = self.link.serve(self.clock, self.link_ns(run.bytes()));
                self.answer(command, done);
            }
            (Op::Read | Op::Write | Op::WriteThrough, _) => {
                let place = self.layout.place(run.at);
                self.waiting.push(Target { command, place });
            }
        }
    }

    fn in_memory(&mut self, run: &Run) -> bool {
        let Some(mut stream) = self.stream.filter(|_| self.active.is_none()) else {
            return self.reads.holds(run) || self.dirty.holds(run);
        };
        let frontier = self.frontier(&stream);
        let held = stream.start <= run.at && run.end <= frontier;
        if held && frontier < stream.limit {
            // The reader follows, so the head goes on.
            let segment = self.parameters.segment_bytes;
            stream.limit =
                stream.limit.max(run.end.saturating_add(segment)).min(self.parameters.capacity_bytes);
            self.stream = Some(stream);
        }
        held || self.reads.holds(run) || self.dirty.holds(run)
    }

    /// Takes writes into the cache, and answers flushes that nothing holds up.
    fn absorb(&mut self) {
        while let Some(command) = self.stalled.front().copied() {
            let run = Run::of(&command.request);
            let leaving = self.active.filter(|active| !active.work.is_host()).map_or(0, |a| a.run.bytes());
            if !self.dirty.take(run, command.ticket, leaving, !self.flushes.is_empty()) {
                break;
            }
            self.stalled.pop_front();
            self.reads.forget(&run);
            if self.stream.is_some_and(|stream| run.at < stream.limit && stream.start < run.end) {
                self.end_stream();
                self.reads.forget(&run);
            }
            let done = self.link.serve(self.clock, self.link_ns(run.bytes()));
            self.answer(command, done);
        }
        let leaving = self.active.and_then(|active| active.work.oldest());
        let held = |command: &Command, dirty: &DirtyRuns| {
            dirty.older_than(command.ticket) || leaving.is_some_and(|oldest| oldest < command.ticket)
        };
        while let Some(at) = self.flushes.iter().position(|command| !held(command, &self.dirty)) {
            let command = self.flushes.swap_remove(at);
            self.answer(command, self.clock);
        }
    }

    /// Gives the arm what is best to do now, if anything.
    fn start_next(&mut self) {
        if self.waiting.is_empty() && self.dirty.is_empty() {
            return;
        }
        if let Some(index) = self.follows_stream().filter(|_| self.overdue().is_none()) {
            let target = self.waiting.swap_remove(index);
            self.start_following(target);
            return;
        }
        self.end_stream();
        let Some(choice) = self.choose() else { return };
        match choice {
            Choice::Host(index) => {
                let target = self.waiting.swap_remove(index);
                self.start(Work::Host(target.command), Run::of(&target.command.request));
            }
            Choice::WriteBack(index) => {
                if let Some(dirty) = self.dirty.remove(index) {
                    self.start(Work::WriteBack(dirty), dirty.run);
                }
            }
        }
    }

    /// A read that begins in what the stream holds or is about to read costs no seek.
    fn follows_stream(&self) -> Option<usize> {
        let stream = self.stream?;
        let follows = |target: &Target| {
            let run = Run::of(&target.command.request);
            target.command.request.op == Op::Read
                && stream.start <= run.at
                && run.at < stream.limit.max(stream.from.saturating_add(1))
                && self.frontier(&stream) < stream.limit
        };
        let following = self.waiting.iter().enumerate().filter(|(_, target)| follows(target));
        following.min_by_key(|(_, target)| target.command.request.at).map(|(index, _)| index)
    }

    fn start_following(&mut self, target: Target) {
        let Some(stream) = self.stream else { return };
        let run = Run::of(&target.command.request);
        let missing = run.end.saturating_sub(stream.from);
        let ends = stream.since.after(self.layout.transfer_ns(stream.track_bytes, missing));
        self.active = Some(Active { work: Work::Host(target.command), run, ends: ends.max(self.clock) });
    }

    fn start(&mut self, work: Work, run: Run) {
        let place = self.layout.place(run.at);
        let reach_ns = self.reach_ns(&place, run.at, work.is_read());
        let ends = self.clock.after(reach_ns + self.layout.transfer_ns(place.track_bytes, run.bytes()));
        self.arm.aimed(place.track);
        self.active = Some(Active { work, run, ends });
    }

    /// Takes commands from the host while there are places for them.
    fn admit(&mut self) {
        while self.held < self.parameters.queue_depth {
            let Some(mut command) = self.backlog.pop_front() else { return };
            command.ready = self.clock.after(self.parameters.command_ns);
            self.held += 1;
            self.arriving.push_back(command);
        }
    }
}

impl Device for Disk {
    fn capacity_bytes(&self) -> u64 {
        self.parameters.capacity_bytes
    }

    fn submit(&mut self, now: Time, request: Request) -> Result<Ticket, SubmitError> {
        check(&request, self.parameters.capacity_bytes, now, self.clock)?;
        self.advance(now);
        let ticket = self.tickets;
        self.tickets += 1;
        self.under_way += 1;
        self.backlog.push_back(Command { ticket, request, submitted: now, ready: now });
        self.admit();
        Ok(Ticket(ticket))
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
