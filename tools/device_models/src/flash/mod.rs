//! Solid-state disks: a controller, channels of flash dies, a write buffer, and garbage collection behind it.
//!
//! A read passes the controller, waits for the die that holds its page, crosses the channel and the interface. A write
//! is answered when the buffer has it; the buffer empties at the rate at which flash is programmed, divided by what the
//! collector moves for each byte. While it empties, a read may find its die programming and waits for the rest of it.
//!
//! Not modelled: read-ahead, caches of single-bit cells, thermal limits, wear, reads that are suspended into programs, and trims.

mod collector;
mod parameters;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

pub use collector::Condition;
pub use parameters::{FlashParameters, WriteBuffer};

use crate::device::{Answers, Device, Server, earlier};
use crate::error::ParameterError;
use crate::random::{Random, scatter};
use crate::request::{Completion, Op, Request, SubmitError, Ticket, check};
use crate::time::{SECOND_NS, Time, mul_div, span_ns, wide};
use collector::Collector;

/// What happens next to a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    /// A page comes to its die.
    Sense { read: usize, page: u64, bytes: u64 },
    /// A page leaves its die.
    Transfer { read: usize, die: usize, bytes: u64 },
    /// A page is in the controller.
    Arrive { read: usize },
}

/// A read under way.
#[derive(Debug, Clone, Copy)]
struct Reading {
    ticket: Ticket,
    request: Request,
    submitted: Time,
    pages_left: u64,
}

/// A solid-state disk in virtual time.
#[derive(Debug, Clone)]
pub struct Flash {
    parameters: FlashParameters,
    random: Random,
    collector: Collector,
    clock: Time,
    tickets: u64,
    /// Commands beyond the queue depth.
    backlog: VecDeque<(Ticket, Request, Time)>,
    controller: Server,
    to_host: Server,
    from_host: Server,
    channels: Vec<Server>,
    dies: Vec<Server>,
    /// Empties the write buffer.
    drain: Server,
    steps: BinaryHeap<Reverse<(Time, u64, Step)>>,
    steps_made: u64,
    /// Reads under way; idle places are reused.
    reads: Vec<Reading>,
    idle_reads: Vec<usize>,
    answers: Answers,
    /// What was done before the caller asked.
    done: VecDeque<Completion>,
    inside: usize,
}

impl Flash {
    /// A device at rest.
    ///
    /// # Errors
    /// When a parameter describes no device.
    pub fn new(parameters: FlashParameters, condition: Condition, seed: u64) -> Result<Self, ParameterError> {
        parameters.check()?;
        let mut random = Random::new(seed);
        let amplification = parameters.amplification_per_mille();
        let collector = Collector::new(parameters.capacity_bytes, amplification, condition, &mut random);
        Ok(Self {
            random,
            collector,
            clock: Time::ZERO,
            tickets: 0,
            backlog: VecDeque::new(),
            controller: Server::default(),
            to_host: Server::default(),
            from_host: Server::default(),
            channels: vec![Server::default(); parameters.channels],
            dies: vec![Server::default(); parameters.dies],
            drain: Server::default(),
            steps: BinaryHeap::new(),
            steps_made: 0,
            reads: Vec::new(),
            idle_reads: Vec::new(),
            answers: Answers::default(),
            done: VecDeque::new(),
            inside: 0,
            parameters,
        })
    }

    /// How many bytes were programmed for each byte written so far, in thousandths.
    #[must_use]
    pub fn write_amplification_per_mille(&self) -> u64 {
        self.collector.amplification_per_mille()
    }

    /// How many bytes of the write buffer wait to be programmed.
    #[must_use]
    pub fn buffered_bytes(&self, now: Time) -> u64 {
        let left_ns = self.drain.free_at().since(now);
        mul_div(left_ns, self.parameters.program_bytes_per_second, SECOND_NS)
    }

    fn start(&mut self, ticket: Ticket, request: Request, submitted: Time) {
        self.inside += 1;
        let completed = match request.op {
            Op::Read => {
                self.read(Reading { ticket, request, submitted, pages_left: 0 });
                return;
            }
            Op::Write => self.write(request),
            Op::WriteThrough => {
                let received = self.write(request);
                match self.parameters.buffer {
                    WriteBuffer::Volatile => received.max(self.drain.free_at()),
                    WriteBuffer::Protected => received,
                }
            }
            Op::Flush => {
                let durable = match self.parameters.buffer {
                    WriteBuffer::Volatile => self.drain.free_at().max(self.clock),
                    WriteBuffer::Protected => self.from_host.free_at().max(self.clock),
                };
                durable.after(self.parameters.write_overhead_ns)
            }
        };
        self.answers.push(Completion { ticket, request, submitted, completed });
    }

    fn later(&mut self, at: Time, step: Step) {
        self.steps_made += 1;
        self.steps.push(Reverse((at, self.steps_made, step)));
    }

    fn read(&mut self, mut reading: Reading) {
        let FlashParameters { page_bytes, reads_per_second, .. } = self.parameters;
        // The controller is a pipeline: it begins a read on each beat, and what a read takes inside is in the overhead.
        let beat_ns = SECOND_NS / reads_per_second;
        let begins = self.controller.serve(self.clock, beat_ns).before(beat_ns);
        let read = self.idle_reads.pop().unwrap_or(self.reads.len());
        let Request { at, .. } = reading.request;
        let end = reading.request.end();
        let mut from = at;
        while from < end {
            let page = from / page_bytes;
            let to = (page + 1).saturating_mul(page_bytes).min(end);
            self.later(begins, Step::Sense { read, page, bytes: to - from });
            reading.pages_left += 1;
            from = to;
        }
        match self.reads.get_mut(read) {
            Some(place) => *place = reading,
            None => self.reads.push(reading),
        }
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Sense { read, page, bytes } => {
                let die = usize::try_from(page % wide(self.dies.len())).unwrap_or(0);
                let twice = scatter(page) & 1 == 1;
                let slowest_ns = self.parameters.page_read_ns;
                let sense_ns = if twice { slowest_ns } else { slowest_ns / 2 };
                let from = self.clock.after(self.programming_ns());
                let sensed = self.dies.get_mut(die).map_or(from, |server| server.serve(from, sense_ns));
                self.later(sensed, Step::Transfer { read, die, bytes });
            }
            Step::Transfer { read, die, bytes } => {
                let channel = die % self.channels.len().max(1);
                let transfer_ns = span_ns(bytes, self.parameters.channel_bytes_per_second);
                let clock = self.clock;
                let there = self.channels.get_mut(channel).map_or(clock, |c| c.serve(clock, transfer_ns));
                self.later(there, Step::Arrive { read });
            }
            Step::Arrive { read } => self.arrive(read),
        }
    }

    fn arrive(&mut self, read: usize) {
        let Some(reading) = self.reads.get_mut(read) else { return };
        reading.pages_left -= 1;
        let Reading { ticket, request, submitted, pages_left } = *reading;
        if pages_left > 0 {
            return;
        }
        self.idle_reads.push(read);
        let link_ns = span_ns(request.length, self.parameters.interface_bytes_per_second);
        let completed = self.to_host.serve(self.clock, link_ns).after(self.parameters.read_overhead_ns);
        self.answers.push(Completion { ticket, request, submitted, completed });
    }

    /// How long a die is still programming when a read comes to it: mostly not at all, else part of a page.
    fn programming_ns(&mut self) -> u64 {
        if self.drain.free_at() <= self.clock {
            return 0;
        }
        let FlashParameters { program_bytes_per_second, page_program_ns, page_bytes, .. } = self.parameters;
        // Two planes of a die are programmed together.
        let busy_ns = mul_div(program_bytes_per_second, page_program_ns, page_bytes * 2);
        let share_per_mille = (busy_ns / 1_000_000 / wide(self.dies.len()).max(1)).min(950);
        if self.random.below(1_000) < share_per_mille { self.random.below(page_program_ns) } else { 0 }
    }

    fn write(&mut self, request: Request) -> Time {
        let FlashParameters { writes_per_second, interface_bytes_per_second, buffer_bytes, .. } =
            self.parameters;
        let beat_ns = SECOND_NS / writes_per_second;
        let begins = self.controller.serve(self.clock, beat_ns).before(beat_ns);
        let link_ns = span_ns(request.length, interface_bytes_per_second);
        let received = self.from_host.serve(begins, link_ns);
        let programmed = self.collector.write(request.at, request.length);
        let rate = self.parameters.program_bytes_per_second;
        let empty = self.drain.serve(received, span_ns(programmed, rate));
        // The buffer has room again when everything but its size has been programmed.
        let roomy = empty.before(span_ns(buffer_bytes, rate));
        received.max(roomy).after(self.parameters.write_overhead_ns)
    }

    fn admit(&mut self) {
        while self.inside < self.parameters.queue_depth {
            let Some((ticket, request, submitted)) = self.backlog.pop_front() else { return };
            self.start(ticket, request, submitted);
        }
    }

    /// Moves everything on to `now`.
    fn advance(&mut self, now: Time) {
        loop {
            let steps_at = self.steps.peek().map(|Reverse((at, ..))| *at);
            let answers_at = self.answers.next();
            let Some(next) = earlier(steps_at, answers_at).filter(|next| *next <= now) else { break };
            self.clock = self.clock.max(next);
            if steps_at == Some(next) {
                if let Some(Reverse((_, _, step))) = self.steps.pop() {
                    self.step(step);
                }
            } else if let Some(completion) = self.answers.due(next) {
                self.inside -= 1;
                self.done.push_back(completion);
                self.admit();
            }
        }
        self.clock = self.clock.max(now);
    }
}

impl Device for Flash {
    fn capacity_bytes(&self) -> u64 {
        self.parameters.capacity_bytes
    }

    fn submit(&mut self, now: Time, request: Request) -> Result<Ticket, SubmitError> {
        check(&request, self.parameters.capacity_bytes, now, self.clock)?;
        self.advance(now);
        let ticket = Ticket(self.tickets);
        self.tickets += 1;
        self.backlog.push_back((ticket, request, now));
        self.admit();
        Ok(ticket)
    }

    fn next_event(&self) -> Option<Time> {
        // Programming what the buffer holds ends without an answer.
        let drained = Some(self.drain.free_at()).filter(|at| *at > self.clock);
        let done = self.done.front().map(|completion| completion.completed);
        let steps = self.steps.peek().map(|Reverse((at, ..))| *at);
        earlier(earlier(done, steps), earlier(self.answers.next(), drained))
    }

    fn poll(&mut self, now: Time) -> Option<Completion> {
        self.advance(now);
        self.done.pop_front()
    }

    fn under_way(&self) -> usize {
        self.done.len() + self.inside + self.backlog.len()
    }
}
