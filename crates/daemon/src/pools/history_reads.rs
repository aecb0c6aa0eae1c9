//! Questions about the history of pools, one at a time.
//!
//! The engine's thread copies slots out of the map, a few at a step, and no others than those that may have points of the range. A
//! thread of its own reads the copies and folds their points. So a client's request waits for no more than one such step, whatever is
//! asked, and by how many.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::io;
use std::rc::Rc;

use dolmen_api::{ErrorBody, ErrorCode};
use dolmen_block_io::sync::{AsyncMutex, yield_now};
use dolmen_history::{Found, Point, Question, SlotKey};
use dolmen_pool::keys;

use crate::answer::Answer;
use crate::fault;
use crate::io_worker::IoWorker;
use crate::open_pool::OpenPool;
use crate::ranks;

/// Slots that a step copies, at most.
const STEP: u64 = 16;
/// Questions that wait, at most. Others are refused, so that they take no more than half of the requests that the daemon has at a time.
const WAITING_MAX: usize = 32;

/// Answers questions about history.
pub(crate) struct HistoryReads {
    mutex: AsyncMutex,
    waiting: Cell<usize>,
    folding: Folding,
    #[cfg(test)]
    pub(crate) slots_read: Cell<u64>,
}

/// Where points are folded.
enum Folding {
    /// On another thread.
    On(Rc<IoWorker>),
    /// On the thread of the question: a simulated world has no other.
    #[cfg(test)]
    Here,
    /// On a thread that the thread of the question waits for: the processor time of that thread is the engine's.
    #[cfg(test)]
    Apart,
}

impl Folding {
    async fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> io::Result<T> {
        match self {
            Self::On(worker) => worker.run(|| Ok(work())).await,
            #[cfg(test)]
            Self::Here => Ok(work()),
            #[cfg(test)]
            #[allow(clippy::disallowed_methods, reason = "a test tells the times of two threads apart")]
            Self::Apart => Ok(std::thread::spawn(work).join().unwrap()),
        }
    }
}

/// A question that waits or is being answered.
struct Waiting<'a>(&'a Cell<usize>);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

impl HistoryReads {
    pub(crate) fn new(worker: Rc<IoWorker>) -> Self {
        Self::folding(Folding::On(worker))
    }

    #[cfg(test)]
    pub(crate) fn here() -> Self {
        Self::folding(Folding::Here)
    }

    #[cfg(test)]
    pub(crate) fn apart() -> Self {
        Self::folding(Folding::Apart)
    }

    fn folding(folding: Folding) -> Self {
        let mutex = AsyncMutex::ranked(ranks::HISTORY_READS.single());
        Self {
            mutex,
            waiting: Cell::default(),
            folding,
            #[cfg(test)]
            slots_read: Cell::default(),
        }
    }

    /// Answers a question of a request with what `show` makes of each point that has samples, by time.
    pub(crate) async fn answer<T: Send + 'static>(
        &self,
        pool: &OpenPool,
        question: Question,
        show: fn(u64, &Point) -> T,
    ) -> Answer<Vec<T>> {
        if self.waiting.get() > WAITING_MAX {
            let message = format!("{WAITING_MAX} questions about history wait already");
            return Err(ErrorBody::new(ErrorCode::Busy, message).on(pool.name()).hint("ask again later"));
        }
        self.waiting.set(self.waiting.get() + 1);
        let _waiting = Waiting(&self.waiting);
        let _turn = self.mutex.take().await;
        let found = self.found(pool, question).await?;
        let shown = move || {
            let points = found.into_points().into_iter().filter(|(_, point)| point.samples > 0);
            points.map(|(at_s, point)| show(at_s, &point)).collect()
        };
        self.folding.run(shown).await.map_err(|error| unfolded(pool, &error))
    }

    /// Returns the points that a question is about, by time.
    pub(crate) async fn points_of(
        &self,
        pool: &OpenPool,
        question: Question,
    ) -> Answer<BTreeMap<u64, Point>> {
        let _turn = self.mutex.take().await;
        Ok(self.found(pool, question).await?.into_points())
    }

    async fn found(&self, pool: &OpenPool, question: Question) -> Answer<Found> {
        let recorder = &pool.recording.recorder;
        let (object, level) = (question.object, question.level);
        let mut found = Found::new(question);
        let kept = recorder.borrow().as_ref().map(|recorder| {
            // Both at one moment: a save moves points from the one to the other.
            (recorder.saved_slots(object, level), recorder.unsaved(object, level))
        });
        let Some(((ring, saved), unsaved)) = kept else { return Ok(found) };
        let next = |from: u64| recorder.borrow().as_ref()?.asked_slots(&question, from..saved.end, STEP);
        let mut from = saved.start;
        while let Some(asked) = next(from) {
            from = asked.end;
            if asked.is_empty() {
                yield_now().await;
                continue;
            }
            let range = keys::history_slot(ring, asked.start)..keys::history_slot(ring, asked.end);
            let slots = pool.spaces.pool().map().scan_aside(range, usize::try_from(STEP).unwrap_or(1)).await;
            let slots = slots.map_err(|error| fault::pool(&error))?;
            #[cfg(test)]
            self.slots_read.set(self.slots_read.get() + slots.len() as u64);
            let fold = move || {
                let key = |sequence| SlotKey { ring, sequence };
                let sequences = slots.into_iter().map(|(key, slot)| (keys::parts(&key).2, slot));
                let reaches: BTreeMap<_, _> = sequences
                    .map(|(sequence, slot)| (sequence, found.add_slot(key(sequence), &slot)))
                    .collect();
                (found, reaches)
            };
            let (folded, reaches) = self.folding.run(fold).await.map_err(|error| unfolded(pool, &error))?;
            found = folded;
            if let Some(recorder) = recorder.borrow_mut().as_mut() {
                for sequence in asked {
                    recorder
                        .note_reach(SlotKey { ring, sequence }, reaches.get(&sequence).copied().flatten());
                }
            }
            // Other tasks of the engine's thread run between two steps.
            yield_now().await;
        }
        let fold = move || {
            found.add_unsaved(&unsaved);
            found
        };
        self.folding.run(fold).await.map_err(|error| unfolded(pool, &error))
    }
}

fn unfolded(pool: &OpenPool, error: &io::Error) -> ErrorBody {
    let message = format!("the history of pool {} cannot be read now: {error}", pool.name());
    ErrorBody::new(ErrorCode::Busy, message).on(pool.name()).hint("ask again later")
}
