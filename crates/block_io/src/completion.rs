//! Completions: the slots in which submitted commands wait for their outcome.
//!
//! A driver keeps one table. `begin` gives it a key, which it hands to the kernel (or to the simulator's heap of events)
//! and a [`Submission`], which the caller awaits. A submission that is dropped leaves its slot behind as an orphan that
//! the completion then clears, so memory under way is never freed early. In the steady state nothing is allocated: slots
//! are reused.

use std::cell::RefCell;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use dolmen_buffer::{Buffer, Shared};

use crate::device::DeviceError;
use crate::meter::{Meter, Started};

/// Memory that a command carried, on its way back.
#[derive(Debug)]
pub enum Payload {
    /// The command carried none.
    None,
    /// The buffer of a read.
    Buffer(Buffer),
    /// The bytes of a write.
    Shared(Shared),
}

/// What became of a command.
#[derive(Debug)]
pub struct Outcome {
    /// Success, or why not.
    pub result: Result<(), DeviceError>,
    /// The memory it carried.
    pub payload: Payload,
}

/// Names a slot; a driver passes it through the kernel as the request's user data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct CompletionKey(pub u64);

enum Slot {
    Free,
    Waiting(Option<Waker>),
    Orphan,
    Done(Outcome),
}

struct Entry {
    slot: Slot,
    /// Counts the uses of the slot, so that a completion that comes twice is noticed.
    generation: u32,
    /// Who counts the command when it completes, whether or not anybody waits for it.
    metered: Option<(Rc<Meter>, Started)>,
}

#[derive(Default)]
struct Table {
    entries: Vec<Entry>,
    free: Vec<u32>,
}

/// A driver's table of commands under way.
#[derive(Default)]
pub struct Completions {
    table: RefCell<Table>,
}

impl Completions {
    /// An empty table.
    #[must_use]
    pub fn new() -> Rc<Self> {
        Rc::new(Self::default())
    }

    /// A slot for a command that is about to be submitted.
    #[must_use]
    pub fn begin(self: &Rc<Self>) -> (CompletionKey, Submission) {
        let mut table = self.table.borrow_mut();
        let index = match table.free.pop() {
            Some(index) => index,
            None => {
                let Ok(index) = u32::try_from(table.entries.len()) else {
                    panic!("too many commands under way")
                };
                table.entries.push(Entry { slot: Slot::Free, generation: 0, metered: None });
                index
            }
        };
        let entry = table.entry(index);
        entry.generation = entry.generation.wrapping_add(1);
        entry.slot = Slot::Waiting(None);
        let key = CompletionKey(u64::from(entry.generation) << 32 | u64::from(index));
        (key, Submission { table: Rc::clone(self), key, finished: false })
    }

    /// A submission that is complete from the start.
    #[must_use]
    pub fn ready(self: &Rc<Self>, outcome: Outcome) -> Submission {
        let (key, submission) = self.begin();
        self.complete(key, outcome);
        submission
    }

    /// Stores the outcome of a command and wakes whoever awaits it.
    ///
    /// # Panics
    /// When the key names no command under way: a driver that completes twice has lost track of memory.
    pub fn complete(&self, key: CompletionKey, outcome: Outcome) {
        let mut table = self.table.borrow_mut();
        let index = key.index();
        let entry = table.entry(index);
        assert!(entry.generation == key.generation(), "a command completes once");
        if let Some((meter, started)) = entry.metered.take() {
            meter.end(started, outcome.result.is_ok());
        }
        match std::mem::replace(&mut entry.slot, Slot::Free) {
            Slot::Waiting(waker) => {
                entry.slot = Slot::Done(outcome);
                drop(table);
                if let Some(waker) = waker {
                    waker.wake();
                }
            }
            Slot::Orphan => {
                table.free.push(index);
                drop(table);
                drop(outcome);
            }
            Slot::Free | Slot::Done(_) => panic!("a command completes once"),
        }
    }

    /// Commands that were begun and whose outcome nobody has taken yet.
    #[must_use]
    pub fn pending_count(&self) -> usize {
        let table = self.table.borrow();
        table.entries.len() - table.free.len()
    }
}

impl fmt::Debug for Completions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Completions({} pending)", self.pending_count())
    }
}

impl Table {
    #[allow(clippy::indexing_slicing)] // indices come from this table's own keys and free list
    fn entry(&mut self, index: u32) -> &mut Entry {
        &mut self.entries[index as usize]
    }
}

impl CompletionKey {
    #[allow(clippy::cast_possible_truncation)] // the key is made of two 32-bit halves
    fn index(self) -> u32 {
        self.0 as u32
    }

    #[allow(clippy::cast_possible_truncation)]
    fn generation(self) -> u32 {
        (self.0 >> 32) as u32
    }
}

/// The wait for a command's outcome. Dropping it abandons the wait, not the command.
#[derive(Debug)]
pub struct Submission {
    table: Rc<Completions>,
    key: CompletionKey,
    finished: bool,
}

impl Submission {
    /// The same, counted by a meter from now until it completes.
    #[must_use]
    pub fn metered(self, meter: &Rc<Meter>, started: Started) -> Self {
        let mut table = self.table.table.borrow_mut();
        let entry = table.entry(self.key.index());
        match &entry.slot {
            Slot::Done(outcome) => drop(meter.end(started, outcome.result.is_ok())),
            Slot::Waiting(_) => entry.metered = Some((Rc::clone(meter), started)),
            Slot::Free | Slot::Orphan => panic!("a submission is metered by whoever made it"),
        }
        drop(table);
        self
    }
}

impl Future for Submission {
    type Output = Outcome;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Outcome> {
        let index = self.key.index();
        let outcome = {
            let mut table = self.table.table.borrow_mut();
            let entry = table.entry(index);
            match &mut entry.slot {
                Slot::Waiting(Some(waker)) => {
                    waker.clone_from(cx.waker());
                    return Poll::Pending;
                }
                Slot::Waiting(empty) => {
                    *empty = Some(cx.waker().clone());
                    return Poll::Pending;
                }
                Slot::Free | Slot::Orphan => panic!("a submission is not polled after it was ready"),
                Slot::Done(_) => {}
            }
            let Slot::Done(outcome) = std::mem::replace(&mut entry.slot, Slot::Free) else {
                return Poll::Pending;
            };
            table.free.push(index);
            outcome
        };
        self.finished = true;
        Poll::Ready(outcome)
    }
}

impl Drop for Submission {
    fn drop(&mut self) {
        if self.finished {
            return;
        }
        let index = self.key.index();
        let mut table = self.table.table.borrow_mut();
        let entry = table.entry(index);
        match std::mem::replace(&mut entry.slot, Slot::Orphan) {
            Slot::Done(outcome) => {
                entry.slot = Slot::Free;
                table.free.push(index);
                drop(table);
                drop(outcome);
            }
            Slot::Waiting(waker) => {
                drop(table);
                drop(waker);
            }
            Slot::Free | Slot::Orphan => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::MemoryClock;
    use crate::meter::IoKind;

    fn done() -> Outcome {
        Outcome { result: Ok(()), payload: Payload::None }
    }

    #[test]
    fn a_dropped_submission_frees_its_slot_at_completion_and_not_before() {
        let completions = Completions::new();
        let (key, submission) = completions.begin();
        drop(submission);
        assert_eq!(completions.pending_count(), 1);
        completions.complete(key, done());
        assert_eq!(completions.pending_count(), 0);
    }

    #[test]
    fn an_outcome_that_nobody_takes_is_dropped_with_its_submission() {
        let completions = Completions::new();
        let submission = completions.ready(done());
        drop(submission);
        assert_eq!(completions.pending_count(), 0);
    }

    /// A command that nobody waits for any more is under way until it completes, and is counted then; one that was complete at
    /// once is counted too.
    #[test]
    fn a_command_is_counted_when_it_completes_whoever_waits_for_it() {
        let (completions, clock) = (Completions::new(), MemoryClock::new());
        let meter = Meter::new(clock);
        let started = meter.begin(IoKind::Read, 512);
        let (key, submission) = completions.begin();
        drop(submission.metered(&meter, started));
        assert_eq!((meter.look().under_way, meter.look().reads.latency.count()), (1, 0));
        completions.complete(key, done());
        assert_eq!((meter.look().under_way, meter.look().reads.latency.count()), (0, 1));
        let started = meter.begin(IoKind::Flush, 0);
        let failed = Outcome { result: Err(DeviceError::Detached), payload: Payload::None };
        drop(completions.ready(failed).metered(&meter, started));
        let seen = meter.look();
        assert_eq!((seen.under_way, seen.flushes.latency.count(), seen.errors), (0, 0, 1));
        assert_eq!(completions.pending_count(), 0);
    }

    #[test]
    #[should_panic(expected = "completes once")]
    fn completing_twice_is_noticed() {
        let completions = Completions::new();
        let (key, _submission) = completions.begin();
        completions.complete(key, done());
        completions.complete(key, done());
    }
}
