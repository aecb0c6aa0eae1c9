//! The trace: one number that two equal runs share, and, when asked for, the last events in words.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fmt;

use dolmen_block_io::Instant;

use crate::fault::FaultKind;
use crate::random::scatter;

/// A disk of a world, in the order they were added.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct DiskIndex(pub usize);

/// What kind of command a disk was given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommandKind {
    /// A read.
    Read,
    /// A write.
    Write,
    /// A write that is durable by itself.
    DurableWrite,
    /// A flush.
    Flush,
    /// A discard.
    Discard,
    /// A zeroing.
    WriteZeroes,
}

/// Something that happened in a world.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TraceEvent {
    /// A disk was given a command.
    Submitted {
        /// To which.
        disk: DiskIndex,
        /// What.
        kind: CommandKind,
        /// Where, in bytes.
        at: u64,
        /// How much, in bytes.
        length: u64,
        /// Mixed from the bytes of a write.
        content: u64,
    },
    /// A command was answered.
    Completed {
        /// By which disk.
        disk: DiskIndex,
        /// The command's number on that disk, from 0.
        command: u64,
        /// Whether it succeeded.
        good: bool,
    },
    /// A write survived its process and took effect now.
    LandedDelayed {
        /// Where.
        disk: DiskIndex,
        /// Where on it, in bytes.
        at: u64,
    },
    /// A fault was injected.
    Fault {
        /// Where; the first disk for a fault of the world.
        disk: DiskIndex,
        /// Which.
        kind: FaultKind,
        /// Where on it, in bytes, for faults of content.
        at: u64,
    },
    /// One of several ready tasks was chosen.
    Picked {
        /// How many were ready.
        ready: u64,
        /// Which ran.
        chosen: u64,
    },
    /// An alarm rang.
    Alarm,
    /// The process died.
    Killed,
}

#[derive(Default)]
struct Ring {
    events: VecDeque<(Instant, TraceEvent)>,
    length_max: usize,
}

/// The trace of a world.
#[derive(Default)]
pub(crate) struct Trace {
    hash: Cell<u64>,
    changes: Cell<u64>,
    ring: RefCell<Ring>,
}

impl Trace {
    pub(crate) fn note(&self, now: Instant, event: TraceEvent) {
        let words = event.words();
        let hash = words.iter().fold(self.hash.get() ^ now.0, |hash, word| mix(hash, *word));
        self.hash.set(hash);
        if let TraceEvent::Submitted { kind, .. } = event
            && kind != CommandKind::Read
        {
            self.changes.set(self.changes.get() + 1);
        }
        let mut ring = self.ring.borrow_mut();
        if ring.length_max > 0 {
            if ring.events.len() == ring.length_max {
                ring.events.pop_front();
            }
            ring.events.push_back((now, event));
        }
    }

    pub(crate) fn hash(&self) -> u64 {
        scatter(self.hash.get())
    }

    /// Commands other than reads that were submitted.
    pub(crate) fn changes(&self) -> u64 {
        self.changes.get()
    }

    pub(crate) fn keep(&self, length_max: usize) {
        self.ring.borrow_mut().length_max = length_max;
    }

    /// The kept events, oldest first, one a line.
    pub(crate) fn lines(&self) -> Vec<String> {
        self.ring.borrow().events.iter().map(|(at, event)| format!("{:>14} ns  {event}", at.0)).collect()
    }
}

/// One step of a hash that is fast rather than strong: it guards against incident, not against malice.
fn mix(hash: u64, word: u64) -> u64 {
    (hash ^ word).wrapping_mul(0x9fb2_1c65_1e98_df25).rotate_left(29)
}

/// Mixes the bytes of a write in four lanes, which a processor works on side by side.
pub(crate) fn mix_bytes(bytes: &[u8]) -> u64 {
    let mut lanes = [1u64, 2, 3, 4];
    let (chunks, tail) = bytes.as_chunks::<32>();
    for chunk in chunks {
        let (words, _) = chunk.as_chunks::<8>();
        for (lane, word) in lanes.iter_mut().zip(words) {
            *lane = mix(*lane, u64::from_le_bytes(*word));
        }
    }
    let tail = tail.iter().fold(bytes.len() as u64, |hash, byte| mix(hash, u64::from(*byte)));
    lanes.iter().fold(tail, |hash, lane| mix(hash, *lane))
}

impl TraceEvent {
    fn words(&self) -> [u64; 5] {
        match *self {
            Self::Submitted { disk, kind, at, length, content } => {
                [1 + ((kind as u64) << 8), disk.0 as u64, at, length, content]
            }
            Self::Completed { disk, command, good } => [2, disk.0 as u64, command, u64::from(good), 0],
            Self::LandedDelayed { disk, at } => [3, disk.0 as u64, at, 0, 0],
            Self::Fault { disk, kind, at } => [4, disk.0 as u64, kind as u64, at, 0],
            Self::Picked { ready, chosen } => [5, ready, chosen, 0, 0],
            Self::Alarm => [6, 0, 0, 0, 0],
            Self::Killed => [7, 0, 0, 0, 0],
        }
    }
}

impl fmt::Display for DiskIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "disk {}", self.0)
    }
}

impl fmt::Display for CommandKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::DurableWrite => "durable write",
            Self::Flush => "flush",
            Self::Discard => "discard",
            Self::WriteZeroes => "write zeroes",
        })
    }
}

impl fmt::Display for TraceEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Submitted { disk, kind: CommandKind::Flush, .. } => write!(f, "{disk}: flush"),
            Self::Submitted { disk, kind, at, length, .. } => {
                write!(f, "{disk}: {kind} of {length} bytes at {at}")
            }
            Self::Completed { disk, command, good: true } => write!(f, "{disk}: command {command} done"),
            Self::Completed { disk, command, good: false } => write!(f, "{disk}: command {command} failed"),
            Self::LandedDelayed { disk, at } => write!(f, "{disk}: a write at {at} landed late"),
            Self::Fault { disk, kind, at } => write!(f, "{disk}: fault: {kind} (at {at})"),
            Self::Picked { ready, chosen } => write!(f, "task {chosen} of {ready} ready ones runs"),
            Self::Alarm => f.write_str("an alarm rings"),
            Self::Killed => f.write_str("the process dies"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_and_every_order_counts() {
        let base: Vec<u8> = (0..100).collect();
        for index in 0..base.len() {
            let mut other = base.clone();
            other[index] ^= 1;
            assert_ne!(mix_bytes(&base), mix_bytes(&other), "byte {index}");
        }
        let (one, two) = (Trace::default(), Trace::default());
        let (a, b) = (TraceEvent::Alarm, TraceEvent::Picked { ready: 2, chosen: 1 });
        for (trace, events) in [(&one, [a, b]), (&two, [b, a])] {
            events.iter().for_each(|event| trace.note(Instant(0), *event));
        }
        assert_ne!(one.hash(), two.hash());
    }

    #[test]
    fn the_readable_trace_is_bounded_and_keeps_the_newest() {
        let trace = Trace::default();
        trace.keep(2);
        for chosen in 0..5 {
            trace.note(Instant(chosen), TraceEvent::Picked { ready: 9, chosen });
        }
        let lines = trace.lines();
        assert_eq!(lines.len(), 2);
        assert!(lines[1].contains("task 4 of 9"), "{lines:?}");
    }
}
