//! Which command the arm takes next.

use super::cache::Dirty;
use super::geometry::Place;
use super::{Disk, Scheduler};
use crate::request::{Op, Request};
use crate::time::{Time, wide};

/// A command may be passed over for so many turns for each place of the queue, then it is the next.
pub(crate) const AGING_TURNS: u64 = 4;

/// A command of the host.
#[derive(Debug, Clone, Copy)]
pub(super) struct Command {
    pub(super) ticket: u64,
    pub(super) request: Request,
    pub(super) submitted: Time,
    /// When the electronics are through with it.
    pub(super) ready: Time,
}

/// A command that waits for the arm, and where it begins.
#[derive(Debug, Clone, Copy)]
pub(super) struct Target {
    pub(super) command: Command,
    pub(super) place: Place,
}

/// What the arm works for.
#[derive(Debug, Clone, Copy)]
pub(super) enum Work {
    Host(Command),
    WriteBack(Dirty),
}

impl Work {
    pub(super) const fn is_host(&self) -> bool {
        matches!(self, Self::Host(_))
    }

    pub(super) fn is_read(&self) -> bool {
        match self {
            Self::Host(command) => command.request.op == Op::Read,
            Self::WriteBack(_) => false,
        }
    }

    /// The oldest answered write that is on its way to the medium.
    pub(super) const fn oldest(&self) -> Option<u64> {
        match self {
            Self::Host(_) => None,
            Self::WriteBack(dirty) => Some(dirty.oldest),
        }
    }
}

/// Which of those that wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Choice {
    Host(usize),
    WriteBack(usize),
}

/// The arm, and how it came to where it is.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Arm {
    track: u64,
    /// The byte behind the last one that passed the head, when, and whether it was read.
    end: u64,
    ended_at: Time,
    was_read: bool,
    inward: bool,
}

impl Arm {
    pub(super) fn aimed(&mut self, track: u64) {
        if track != self.track {
            self.inward = track > self.track;
        }
        self.track = track;
    }

    /// What it was aimed at is done, up to a byte on a track.
    pub(super) const fn ended(&mut self, end: u64, track: u64, at: Time, was_read: bool) {
        self.end = end;
        self.track = track;
        self.ended_at = at;
        self.was_read = was_read;
    }

    /// The head read on to a byte on a track on its own.
    pub(super) fn moved(&mut self, end: u64, track: u64) {
        self.end = end;
        self.aimed(track);
    }
}

impl Disk {
    /// From now until the first byte of a place passes the head.
    pub(super) fn reach_ns(&self, place: &Place, at: u64, read: bool) -> u64 {
        let arm = &self.arm;
        // The very next byte, and no time has passed: the head is there.
        if at == arm.end && arm.ended_at == self.clock && arm.was_read == read {
            return 0;
        }
        let curve = if read { &self.read_curve } else { &self.write_curve };
        let seek_ns = curve.seek_ns(place.track.abs_diff(arm.track));
        let arrives_ns = self.clock.ns().wrapping_add(self.phase_ns).wrapping_add(seek_ns);
        seek_ns + self.layout.wait_ns(arrives_ns, place.angle_ns)
    }

    /// What to do next, by the scheduler's taste.
    pub(super) fn choose(&self) -> Option<Choice> {
        if let Some(index) = self.overdue() {
            return Some(Choice::Host(index));
        }
        let urgent = !self.flushes.is_empty() || !self.stalled.is_empty() || self.dirty.presses();
        let write_back = urgent || self.waiting.is_empty();
        let host = self.waiting.iter().enumerate().map(|(index, target)| {
            let read = target.command.request.op == Op::Read;
            let cost = self.cost(&target.place, target.command.request.at, read);
            ((cost, target.command.ticket), Choice::Host(index))
        });
        let dirty = self.dirty.runs().iter().enumerate().filter(|_| write_back).map(|(index, dirty)| {
            let cost = self.cost(&self.layout.place(dirty.run.at), dirty.run.at, false);
            ((cost, dirty.oldest), Choice::WriteBack(index))
        });
        host.chain(dirty).min_by_key(|(key, _)| *key).map(|(_, choice)| choice)
    }

    /// A command that was passed over for too long.
    pub(super) fn overdue(&self) -> Option<usize> {
        let turns = AGING_TURNS.saturating_mul(wide(self.parameters.queue_depth));
        let aging_ns = self.parameters.revolution_ns().saturating_mul(turns);
        let (index, oldest) =
            self.waiting.iter().enumerate().min_by_key(|(_, target)| target.command.ticket)?;
        (self.clock.since(oldest.command.ready) > aging_ns).then_some(index)
    }

    fn cost(&self, place: &Place, at: u64, read: bool) -> u64 {
        match self.parameters.scheduler {
            Scheduler::InOrder => 0,
            Scheduler::ShortestAccess => self.reach_ns(place, at, read),
            Scheduler::Elevator => {
                let ahead =
                    (place.track >= self.arm.track) == self.arm.inward || place.track == self.arm.track;
                let turn = if ahead { 0 } else { self.layout.tracks() };
                turn + place.track.abs_diff(self.arm.track)
            }
        }
    }
}
