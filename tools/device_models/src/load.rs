//! A closed load: so many commands outstanding, the next one handed over as soon as one is done.

use std::collections::VecDeque;

use crate::device::{Device, earlier};
use crate::random::Random;
use crate::request::{Completion, Op, Request, SubmitError};
use crate::time::{SECOND_NS, Time, mul_div};

/// Where the commands of a load lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pattern {
    /// Anywhere in a range, at a multiple of the size.
    Random {
        /// Where the range begins, in bytes.
        from: u64,
        /// How long it is, in bytes.
        bytes: u64,
    },
    /// One behind the other.
    Sequential {
        /// Where the first one lies, in bytes.
        from: u64,
    },
}

/// A closed load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Load {
    /// Where.
    pub pattern: Pattern,
    /// How long each command is, in bytes.
    pub length: u64,
    /// How many of 1,000 commands read; the others write.
    pub reads_per_mille: u64,
    /// Commands outstanding.
    pub depth: usize,
    /// What the host needs between a completion and the next command, in nanoseconds. It counts to the response, as
    /// the tools that measure devices count it.
    pub host_ns: u64,
    /// How long the load runs before anything is counted.
    pub warm_ns: u64,
    /// How long it is counted.
    pub counted_ns: u64,
}

impl Load {
    /// Random commands over a whole range.
    #[must_use]
    pub const fn random(bytes: u64, length: u64, reads_per_mille: u64, depth: usize) -> Self {
        Self {
            pattern: Pattern::Random { from: 0, bytes },
            length,
            reads_per_mille,
            depth,
            host_ns: 0,
            warm_ns: 5 * SECOND_NS,
            counted_ns: 60 * SECOND_NS,
        }
    }

    /// The same load, counted for so long after a warm-up.
    #[must_use]
    pub const fn lasting(mut self, warm_ns: u64, counted_ns: u64) -> Self {
        self.warm_ns = warm_ns;
        self.counted_ns = counted_ns;
        self
    }

    /// The same load from a host that needs so long for each command.
    #[must_use]
    pub const fn from_host(mut self, host_ns: u64) -> Self {
        self.host_ns = host_ns;
        self
    }
}

/// What a load got.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Outcome {
    /// Commands done in the counted time.
    pub commands: u64,
    /// Bytes they moved.
    pub bytes: u64,
    /// The counted time.
    pub span_ns: u64,
    /// The sum of their responses.
    pub responses_ns: u64,
    /// The longest response.
    pub longest_ns: u64,
    /// The integral of the commands outstanding over the counted time, in nanoseconds.
    pub outstanding_ns: u64,
    /// A number that differs if any completion differs.
    pub trace: u64,
}

impl Outcome {
    /// Commands in a second.
    #[must_use]
    pub fn per_second(&self) -> u64 {
        mul_div(self.commands, SECOND_NS, self.span_ns)
    }

    /// Bytes in a second.
    #[must_use]
    pub fn bytes_per_second(&self) -> u64 {
        mul_div(self.bytes, SECOND_NS, self.span_ns)
    }

    /// The mean response, in nanoseconds.
    #[must_use]
    pub fn mean_ns(&self) -> u64 {
        self.responses_ns / self.commands.max(1)
    }
}

/// A load on its way.
struct Run<'a> {
    load: &'a Load,
    random: Random,
    next: u64,
    /// When commands come back from the host, the earliest first.
    thinking: VecDeque<Time>,
    begins: Time,
    ends: Time,
    latest: Time,
    outcome: Outcome,
}

impl Run<'_> {
    fn request(&mut self, capacity: u64) -> Request {
        let Load { length, reads_per_mille, .. } = *self.load;
        let at = match self.load.pattern {
            Pattern::Random { from, bytes } => {
                from + self.random.below((bytes / length.max(1)).max(1)) * length
            }
            Pattern::Sequential { .. } => {
                let at = if self.next + length > capacity { 0 } else { self.next };
                self.next = at + length;
                at
            }
        };
        let reads = self.random.below(1_000) < reads_per_mille;
        if reads { Request::read(at, length) } else { Request::write(at, length) }
    }

    /// Adds the commands that were outstanding since the last call.
    fn pass(&mut self, now: Time, outstanding: usize) {
        let from = self.latest.max(self.begins).min(self.ends);
        let to = now.max(self.begins).min(self.ends);
        let span = to.since(from);
        self.outcome.outstanding_ns += span.saturating_mul(crate::time::wide(outstanding));
        self.latest = now;
    }

    fn count(&mut self, done: &Completion) {
        let Completion { ticket, request, completed, .. } = *done;
        self.outcome.trace = crate::random::scatter(
            self.outcome.trace ^ completed.ns() ^ ticket.0.rotate_left(32) ^ request.at,
        );
        if completed < self.begins || completed >= self.ends {
            return;
        }
        let response = done.response_ns() + self.load.host_ns;
        self.outcome.commands += 1;
        self.outcome.bytes += if request.op == Op::Flush { 0 } else { request.length };
        self.outcome.responses_ns += response;
        self.outcome.longest_ns = self.outcome.longest_ns.max(response);
    }
}

/// Runs a load against a device from `from` on, and says what it got. What is still under way at the end stays so.
///
/// # Errors
/// When the load does not fit the device.
pub fn run<D: Device + ?Sized>(
    device: &mut D,
    load: &Load,
    from: Time,
    seed: u64,
) -> Result<Outcome, SubmitError> {
    let begins = from.after(load.warm_ns);
    let next = match load.pattern {
        Pattern::Sequential { from } => from,
        Pattern::Random { .. } => 0,
    };
    let mut run = Run {
        load,
        random: Random::new(seed),
        next,
        thinking: VecDeque::with_capacity(load.depth),
        begins,
        ends: begins.after(load.counted_ns),
        latest: from,
        outcome: Outcome { span_ns: load.counted_ns, ..Outcome::default() },
    };
    run.thinking.extend((0..load.depth).map(|_| from.after(load.host_ns)));
    let capacity = device.capacity_bytes();
    while let Some(now) = earlier(device.next_event(), run.thinking.front().copied()) {
        if now > run.ends {
            break;
        }
        // A command is outstanding from the moment at which the host turns to it.
        run.pass(now, load.depth);
        while let Some(done) = device.poll(now) {
            run.count(&done);
            run.thinking.push_back(done.completed.max(now).after(load.host_ns));
        }
        while run.thinking.front().is_some_and(|time| *time <= now) {
            run.thinking.pop_front();
            let request = run.request(capacity);
            device.submit(now, request)?;
        }
    }
    run.pass(run.ends, load.depth);
    Ok(run.outcome)
}
