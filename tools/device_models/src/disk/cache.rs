//! The disk's memory: pieces that were read, and writes that were answered but are not on the medium yet.

use crate::request::Request;

/// The longest run of writes that is joined into one.
pub(crate) const JOINED_BYTES_MAX: u64 = 1 << 20;

/// A run of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) at: u64,
    pub(crate) end: u64,
}

impl Run {
    pub(crate) const fn of(request: &Request) -> Self {
        Self { at: request.at, end: request.end() }
    }

    const fn overlaps(&self, other: &Self) -> bool {
        self.at < other.end && other.at < self.end
    }

    const fn holds(&self, other: &Self) -> bool {
        self.at <= other.at && other.end <= self.end
    }

    pub(crate) const fn bytes(&self) -> u64 {
        self.end.saturating_sub(self.at)
    }
}

/// What was read and may be read again, the oldest first.
#[derive(Debug, Clone)]
pub(crate) struct ReadCache {
    runs: Vec<Run>,
    runs_max: usize,
}

impl ReadCache {
    pub(crate) fn new(runs_max: usize) -> Self {
        Self { runs: Vec::with_capacity(runs_max), runs_max }
    }

    pub(crate) fn holds(&self, run: &Run) -> bool {
        self.runs.iter().any(|kept| kept.holds(run))
    }

    pub(crate) fn keep(&mut self, run: Run) {
        if self.runs_max == 0 || run.bytes() == 0 {
            return;
        }
        if self.runs.len() >= self.runs_max {
            self.runs.remove(0);
        }
        self.runs.push(run);
    }

    pub(crate) fn forget(&mut self, run: &Run) {
        self.runs.retain(|kept| !kept.overlaps(run));
    }
}

/// Writes that were answered and wait for the medium.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Dirty {
    pub(crate) run: Run,
    /// The ticket of its oldest write.
    pub(crate) oldest: u64,
}

/// The write cache.
#[derive(Debug, Clone)]
pub(crate) struct DirtyRuns {
    runs: Vec<Dirty>,
    runs_max: usize,
    bytes: u64,
    bytes_max: u64,
}

impl DirtyRuns {
    pub(crate) fn new(runs_max: usize, bytes_max: u64) -> Self {
        Self { runs: Vec::with_capacity(runs_max), runs_max, bytes: 0, bytes_max }
    }

    pub(crate) fn runs(&self) -> &[Dirty] {
        &self.runs
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Whether it is time to write back although the caller waits for other things.
    pub(crate) fn presses(&self) -> bool {
        self.runs.len() * 4 >= self.runs_max * 3
            || self.bytes.saturating_mul(4) >= self.bytes_max.saturating_mul(3)
    }

    /// Whether a read can be answered from what waits here.
    pub(crate) fn holds(&self, run: &Run) -> bool {
        self.runs.iter().any(|dirty| dirty.run.holds(run))
    }

    /// Takes a write if there is room. `bytes_leaving` are on their way to the medium and still fill memory. While a
    /// flush waits, nothing is joined to what it waits for.
    pub(crate) fn take(&mut self, run: Run, ticket: u64, bytes_leaving: u64, flushing: bool) -> bool {
        if self.holds(&run) {
            return true;
        }
        let room = self.bytes_max.saturating_sub(self.bytes.saturating_add(bytes_leaving));
        // A write longer than the memory passes through it piece by piece; it has to wait until nothing else is there.
        if run.bytes() > room && (self.bytes > 0 || bytes_leaving > 0) {
            return false;
        }
        let joined = |dirty: &&mut Dirty| {
            !flushing && dirty.run.end == run.at && dirty.run.bytes() + run.bytes() <= JOINED_BYTES_MAX
        };
        if let Some(dirty) = self.runs.iter_mut().find(joined) {
            dirty.run.end = run.end;
        } else if self.runs.len() < self.runs_max {
            self.runs.push(Dirty { run, oldest: ticket });
        } else {
            return false;
        }
        self.bytes = self.bytes.saturating_add(run.bytes());
        true
    }

    /// Takes one out, to write it back.
    pub(crate) fn remove(&mut self, index: usize) -> Option<Dirty> {
        if index >= self.runs.len() {
            return None;
        }
        let dirty = self.runs.swap_remove(index);
        self.bytes = self.bytes.saturating_sub(dirty.run.bytes());
        Some(dirty)
    }

    /// Whether anything older than a ticket waits.
    pub(crate) fn older_than(&self, ticket: u64) -> bool {
        self.runs.iter().any(|dirty| dirty.oldest < ticket)
    }
}
