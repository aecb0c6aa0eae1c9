//! Kinds of faults, how often each happens on a disk, and how often each did.
//!
//! A fault that was asked for and did not fire proves nothing, so all of them are counted, the ones that an atlas
//! refused too.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::ops::AddAssign;

use crate::random::{Random, Rate};

/// What can go wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum FaultKind {
    /// A bit of what rests on the medium turned. Drawn per read.
    BitRot,
    /// A sector cannot be read until it is written again. Drawn per read.
    LatentError,
    /// A write was acknowledged and changed nothing. Drawn per write.
    LostWrite,
    /// A write was acknowledged and went to another address. Drawn per write.
    MisdirectedWrite,
    /// A read brought what stands at another address. Drawn per read.
    MisdirectedRead,
    /// A write was acknowledged, or cut by a power failure, and took effect in part. Drawn per write.
    TornWrite,
    /// A command was answered after one that was submitted later. Counted, never drawn: it follows from latencies.
    Reordering,
    /// A flush was acknowledged and made nothing durable. Drawn per flush.
    DroppedFlush,
    /// A sector that could not be read was written again, and reads as before that write. Drawn per such write.
    StaleAfterError,
    /// A write failed; what stands there is old, new or torn. Drawn per write.
    WriteError,
    /// A flush failed, and some of what it should have kept is gone. Drawn per flush.
    FlushError,
    /// A command took 10 to 1,000 times as long. Drawn per command.
    Slow,
    /// For a stretch of time some or all kinds of commands took 10 to 1,000 times as long. Drawn per command, while none lasts.
    SlowPeriod,
    /// A command was not answered until released or timed out. Drawn per command.
    Hung,
    /// The disk went away. Drawn per command.
    Vanished,
    /// The disk came back. Drawn never: it follows from having vanished.
    CameBack,
    /// The disk came back as it was at an earlier flush. Drawn when it comes back.
    ReturnedOld,
    /// A file-backed disk had no room for a block that was never written. Drawn per write to such a block.
    NoSpace,
    /// The disk was reset: cached writes may be gone, and it says so. Drawn per command.
    Reset,
    /// A write of a dead process, or one that timed out, took effect later. Drawn per write in flight at a kill.
    DelayedWrite,
    /// A delayed write was refused because its epoch had been fenced.
    FencedDelayedWrite,
    /// Power failed.
    PowerCut,
    /// The clock leapt forward.
    ClockJump,
}

impl FaultKind {
    /// All kinds.
    pub const ALL: [Self; 23] = [
        Self::BitRot,
        Self::LatentError,
        Self::LostWrite,
        Self::MisdirectedWrite,
        Self::MisdirectedRead,
        Self::TornWrite,
        Self::Reordering,
        Self::DroppedFlush,
        Self::StaleAfterError,
        Self::WriteError,
        Self::FlushError,
        Self::Slow,
        Self::SlowPeriod,
        Self::Hung,
        Self::Vanished,
        Self::CameBack,
        Self::ReturnedOld,
        Self::NoSpace,
        Self::Reset,
        Self::DelayedWrite,
        Self::FencedDelayedWrite,
        Self::PowerCut,
        Self::ClockJump,
    ];
}

const KIND_COUNT: usize = FaultKind::ALL.len();
const _: () =
    assert!(FaultKind::ClockJump as usize + 1 == KIND_COUNT, "every kind has a place in the tables");

impl fmt::Display for FaultKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::BitRot => "bit rot",
            Self::LatentError => "latent sector error",
            Self::LostWrite => "lost write",
            Self::MisdirectedWrite => "misdirected write",
            Self::MisdirectedRead => "misdirected read",
            Self::TornWrite => "torn write",
            Self::Reordering => "reordering",
            Self::DroppedFlush => "dropped flush",
            Self::StaleAfterError => "stale after an error",
            Self::WriteError => "write error",
            Self::FlushError => "flush error",
            Self::Slow => "slow",
            Self::SlowPeriod => "slow period",
            Self::Hung => "hung",
            Self::Vanished => "vanished",
            Self::CameBack => "came back",
            Self::ReturnedOld => "returned old",
            Self::NoSpace => "no space",
            Self::Reset => "reset",
            Self::DelayedWrite => "delayed write",
            Self::FencedDelayedWrite => "delayed write fenced",
            Self::PowerCut => "power cut",
            Self::ClockJump => "clock jump",
        })
    }
}

/// How often each kind of fault happens on one disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FaultRates {
    rates: [Rate; KIND_COUNT],
}

impl FaultRates {
    /// A disk that does what it should.
    pub const NONE: Self = Self { rates: [Rate::NEVER; KIND_COUNT] };

    /// These rates with another one for `kind`.
    #[must_use]
    pub fn with(mut self, kind: FaultKind, rate: Rate) -> Self {
        if let Some(place) = self.rates.get_mut(kind as usize) {
            *place = rate;
        }
        self
    }

    /// The rate of a kind.
    #[must_use]
    pub fn of(&self, kind: FaultKind) -> Rate {
        self.rates.get(kind as usize).copied().unwrap_or(Rate::NEVER)
    }
}

/// How often each kind of fault happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FaultCounters {
    counts: [u64; KIND_COUNT],
    /// Faults of content that were drawn and not injected, because redundancy could not have repaired them.
    pub spared: u64,
}

impl FaultCounters {
    /// How often a kind happened.
    #[must_use]
    pub fn of(&self, kind: FaultKind) -> u64 {
        self.counts.get(kind as usize).copied().unwrap_or(0)
    }

    /// What happened since `before`, which were the same counters.
    #[must_use]
    pub fn since(mut self, before: Self) -> Self {
        self.counts.iter_mut().zip(before.counts).for_each(|(now, then)| *now -= then);
        self.spared -= before.spared;
        self
    }

    /// How often anything happened.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.counts.iter().sum()
    }

    fn count(&mut self, kind: FaultKind) {
        if let Some(count) = self.counts.get_mut(kind as usize) {
            *count += 1;
        }
    }
}

impl AddAssign for FaultCounters {
    fn add_assign(&mut self, other: Self) {
        for (mine, more) in self.counts.iter_mut().zip(other.counts) {
            *mine += more;
        }
        self.spared += other.spared;
    }
}

/// A table: a line for each kind, those that never happened included.
impl fmt::Display for FaultCounters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (kind, count) in FaultKind::ALL.iter().zip(self.counts) {
            writeln!(f, "{kind:<22}{count:>12}")?;
        }
        write!(f, "{:<22}{:>12}", "spared", self.spared)
    }
}

/// The faults of one disk: its rates, its draws, what a test has armed, and the counts.
pub(crate) struct Faults {
    pub(crate) rates: Cell<FaultRates>,
    pub(crate) random: RefCell<Random>,
    armed: RefCell<Vec<FaultKind>>,
    pub(crate) counters: Cell<FaultCounters>,
}

impl Faults {
    pub(crate) fn new(rates: FaultRates, random: Random) -> Self {
        let random = RefCell::new(random);
        Self { rates: Cell::new(rates), random, armed: RefCell::default(), counters: Cell::default() }
    }

    /// Whether a fault of this kind happens now: because it was armed, or by its rate.
    pub(crate) fn fires(&self, kind: FaultKind) -> bool {
        let mut armed = self.armed.borrow_mut();
        if let Some(place) = armed.iter().position(|waiting| *waiting == kind) {
            armed.remove(place);
            return true;
        }
        drop(armed);
        let rate = self.rates.get().of(kind);
        !rate.is_never() && self.random.borrow_mut().happens(rate)
    }

    pub(crate) fn arm(&self, kind: FaultKind) {
        self.armed.borrow_mut().push(kind);
    }

    pub(crate) fn count(&self, kind: FaultKind) {
        let mut counters = self.counters.get();
        counters.count(kind);
        self.counters.set(counters);
    }

    pub(crate) fn count_spared(&self) {
        let mut counters = self.counters.get();
        counters.spared += 1;
        self.counters.set(counters);
    }

    pub(crate) fn below(&self, end: u64) -> u64 {
        self.random.borrow_mut().below(end)
    }

    pub(crate) fn coin(&self) -> bool {
        self.random.borrow_mut().coin()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_armed_fault_fires_once() {
        let faults = Faults::new(FaultRates::NONE, Random::new(1));
        faults.arm(FaultKind::Hung);
        assert!(!faults.fires(FaultKind::Slow));
        assert!(faults.fires(FaultKind::Hung));
        assert!(!faults.fires(FaultKind::Hung));
    }

    #[test]
    fn the_table_names_every_kind_once() {
        let mut counters = FaultCounters::default();
        FaultKind::ALL.iter().for_each(|kind| counters.count(*kind));
        let text = counters.to_string();
        for (kind, place) in FaultKind::ALL.iter().zip(0..) {
            assert_eq!((counters.of(*kind), *kind as usize), (1, place));
            assert_eq!(
                text.lines().filter(|line| line.starts_with(&format!("{kind:<22}"))).count(),
                1,
                "{kind}"
            );
        }
        assert_eq!(text.lines().count(), KIND_COUNT + 1);
    }
}
