//! Position of a scrub: where it reads next, what it has seen so far, and the checkpoint from which it resumes after a kill
//! (docs/design/0011).
//!
//! A scrub reads spaces by identity and the rows of a space by index. Rows that are claimed behind the position are not read: what
//! was written there is younger than the scrub.
//!
//! Invariant: whatever was healed before the position of a checkpoint is flushed before the checkpoint is taken. A scrub that
//! resumes there may count on it.

use std::cell::{Cell, RefCell};
use std::num::NonZeroUsize;
use std::rc::Rc;
use std::time::Duration;

use dolmen_block_io::sync::join_all;
use dolmen_future_pool::pooled;
use dolmen_mutation::mutation;
use dolmen_units::SpaceId;

use crate::format::error::SpaceError;
use crate::policy::handles::Scrubs;
use crate::policy::verify::{Verification, verify_one};
use crate::resources::progress::Progress;
use crate::table::space::SpaceRows;

/// Longest time between two checkpoints of a scrub that runs: as much is read again after a kill.
pub const SCRUB_CHECKPOINT_EVERY: Duration = Duration::from_secs(10);

/// Place in the order in which a scrub reads a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct ScrubPlace {
    /// Space of the row.
    pub space: SpaceId,
    /// Index of the row in its space.
    pub row: u64,
}

/// Position of a scrub: what is left to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ScrubPosition {
    /// First row that is left in this lap.
    pub next: ScrubPlace,
    /// Last row of this lap; the lap ends with the pool where this is absent.
    pub last: Option<ScrubPlace>,
    /// Last row of another lap, which begins at the first row after this lap.
    pub another: Option<ScrubPlace>,
}

/// A scrub that runs, is held, or waits to be resumed.
#[derive(Debug, Default)]
pub struct Scrub {
    position: Cell<ScrubPosition>,
    /// Findings since the last checkpoint.
    seen: RefCell<Verification>,
    checkpoint: Cell<ScrubPosition>,
    /// Number of checkpoints so far.
    checkpoints: Cell<u64>,
    /// Number of requests to read everything again. The list of a lap that began before the last of them is out of date.
    generation: Cell<u64>,
    /// Last of the rows that are under way.
    under_way: Cell<Option<ScrubPlace>>,
    /// Whether everything that was asked for has been read.
    is_complete: Cell<bool>,
}

/// Reason why a lap ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LapEnd {
    /// All of its rows are read.
    Read,
    /// Its list of rows is out of date.
    OutOfDate,
    /// The scrub was stopped.
    Stopped,
}

impl Scrub {
    /// Returns a scrub that resumes at a position.
    #[must_use]
    pub fn at(position: ScrubPosition) -> Self {
        let (position, checkpoint) = (Cell::new(position), Cell::new(position));
        Self { position, checkpoint, ..Self::default() }
    }

    /// Returns the position of the last checkpoint: a scrub that resumes there misses nothing.
    #[must_use]
    pub fn checkpoint(&self) -> ScrubPosition {
        self.checkpoint.get()
    }

    /// Returns the number of checkpoints so far, which tells whether there is a new one.
    #[must_use]
    pub fn checkpoints(&self) -> u64 {
        self.checkpoints.get()
    }

    /// Has it read everything from now on: what was claimed since its lap began is read in this lap, and what lies before its position
    /// or is under way in another lap.
    pub fn read_all_again(&self) {
        let position = self.position.get();
        let is_begun = position.next > ScrubPlace::default();
        // A row under way may lie in the space after that of the position.
        let another = self.under_way.get().max(is_begun.then_some(position.next));
        self.position.set(ScrubPosition { another, last: None, ..position });
        self.checkpoint.set(ScrubPosition { another, last: None, ..self.checkpoint.get() });
        self.checkpoints.set(self.checkpoints.get() + 1);
        self.generation.set(self.generation.get() + 1);
        self.is_complete.set(false);
    }

    /// Returns whether everything that was asked for has been read. A later [`read_all_again`](Self::read_all_again) asks for more, and
    /// only another call of [`scrub`](Scrubs::scrub) reads it.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.is_complete.get()
    }

    fn set_next(&self, next: ScrubPlace) {
        self.position.set(ScrubPosition { next, ..self.position.get() });
    }

    /// Begins another lap, if there is to be one.
    fn begin_another(&self) -> bool {
        let Some(last) = self.position.get().another else { return false };
        self.position.set(ScrubPosition { next: ScrubPlace::default(), last: Some(last), another: None });
        true
    }
}

/// Taker of what was seen.
struct Noting<N> {
    /// Copies that the pool had healed at the last checkpoint.
    healed: u64,
    note: N,
}

impl Scrubs<'_> {
    /// Reads and verifies what is left of a scrub: every block of every copy, tables and headers of slabs; heals what can be
    /// healed. It is held and stopped between rows, and takes a checkpoint before it is held, at its end, and at least each
    /// [`SCRUB_CHECKPOINT_EVERY`]. Each checkpoint hands what was seen since the one before to `note`; the position changes in the
    /// same step, so that both are written down together. Returns whether it came to its end.
    ///
    /// # Errors
    /// [`SpaceError`] when the metadata cannot be read, or healed blocks cannot be flushed.
    pub async fn scrub(
        self,
        scrub: &Scrub,
        progress: &Progress,
        note: impl FnMut(Verification),
    ) -> Result<bool, SpaceError> {
        self.scrub_together(scrub, progress, NonZeroUsize::MIN, note).await
    }

    pub(crate) async fn scrub_together(
        self,
        scrub: &Scrub,
        progress: &Progress,
        rows_at_a_time: NonZeroUsize,
        note: impl FnMut(Verification),
    ) -> Result<bool, SpaceError> {
        let mut noting = Noting { healed: self.healed_blocks(), note };
        loop {
            match self.read_lap(scrub, progress, rows_at_a_time, &mut noting).await? {
                LapEnd::OutOfDate => continue,
                LapEnd::Stopped => {
                    self.checkpoint(scrub, &mut noting).await?;
                    return Ok(false);
                }
                LapEnd::Read => {}
            }
            scrub.is_complete.set(!scrub.begin_another());
            self.checkpoint(scrub, &mut noting).await?;
            // While the checkpoint was taken, everything may have been asked for again.
            if scrub.is_complete() {
                return Ok(true);
            }
        }
    }

    /// Reads what is left of a lap; returns why it ended.
    async fn read_lap(
        self,
        scrub: &Scrub,
        progress: &Progress,
        rows_at_a_time: NonZeroUsize,
        noting: &mut Noting<impl FnMut(Verification)>,
    ) -> Result<LapEnd, SpaceError> {
        let generation = scrub.generation.get();
        let is_out_of_date = || scrub.generation.get() != generation;
        let clock = Rc::clone(&self.spaces.shared.pool.seams().clock);
        let lap = self.rows_left(scrub, progress).await?;
        let mut last_checkpoint = clock.now();
        for (space, rows) in lap {
            for together in rows.chunks(rows_at_a_time.get()) {
                let is_due = clock.now().since(last_checkpoint) >= SCRUB_CHECKPOINT_EVERY;
                if is_due || !progress.goes_on() {
                    self.checkpoint(scrub, noting).await?;
                    last_checkpoint = clock.now();
                }
                if !progress.may_go_on(&self.spaces.shared.closing).await {
                    return Ok(LapEnd::Stopped);
                }
                if is_out_of_date() {
                    return Ok(LapEnd::OutOfDate);
                }
                scrub.under_way.set(together.last().map(|row| ScrubPlace { space: space.id(), row: *row }));
                let looked_at = together.iter().map(|index| verify_one(&space, *index, progress));
                for verdict in join_all(looked_at).await {
                    let verdict = verdict?;
                    let mut seen = scrub.seen.borrow_mut();
                    match self.spaces.cache_in(&space) {
                        Some(cache) => seen.add_cached(&cache, &space, verdict),
                        None => seen.add(&space.name(), verdict),
                    }
                }
                let read = together.last().map_or(0, |index| index + 1);
                scrub.set_next(ScrubPlace { space: space.id(), row: read });
                scrub.under_way.set(None);
            }
        }
        Ok(if is_out_of_date() { LapEnd::OutOfDate } else { LapEnd::Read })
    }

    /// Rows of a lap that are left, in order. Sets how far the scrub is in one step, so that every observer sees one total.
    async fn rows_left(
        self,
        scrub: &Scrub,
        progress: &Progress,
    ) -> Result<Vec<(Rc<SpaceRows>, Vec<u64>)>, SpaceError> {
        let position = scrub.position.get();
        let (mut all, mut before, mut beyond, mut again) = (0_u64, 0_u64, 0_u64, 0_u64);
        let mut lap = Vec::new();
        for space in self.spaces.all() {
            let mut rows = Vec::new();
            space
                .for_each_record(|row, _| {
                    let place = ScrubPlace { space: space.id(), row };
                    let is_before = place < position.next;
                    let is_beyond = position.last.is_some_and(|last| place > last);
                    all += 1;
                    before += u64::from(is_before);
                    beyond += u64::from(is_beyond);
                    again += u64::from(position.another.is_some_and(|another| place <= another));
                    if !is_before && !is_beyond {
                        rows.push(row);
                    }
                })
                .await?;
            lap.push((space, rows));
        }
        // A second lap comes after a whole one.
        let first_lap = if position.last.is_some() { all } else { 0 };
        progress.done.set(first_lap + before);
        progress.total.set(first_lap + all.saturating_sub(beyond) + again);
        Ok(lap)
    }

    /// Flushes what was healed since the last checkpoint, and takes one.
    async fn checkpoint(
        self,
        scrub: &Scrub,
        noting: &mut Noting<impl FnMut(Verification)>,
    ) -> Result<(), SpaceError> {
        let healed = self.healed_blocks();
        let is_flushed = healed == noting.healed || mutation!(ScrubCheckpointUnflushed);
        if !is_flushed && self.spaces.shared.may_write() {
            // Power that fails would bring back what was mended, and nothing reads it again before the next scrub.
            self.spaces.pool().flusher().flush_disks().await?;
        }
        let mut seen = scrub.seen.take();
        seen.healed = healed.saturating_sub(noting.healed);
        noting.healed = healed;
        scrub.checkpoint.set(scrub.position.get());
        scrub.checkpoints.set(scrub.checkpoints.get() + 1);
        (noting.note)(seen);
        Ok(())
    }
}

impl Scrubs<'_> {
    /// The same with several rows under way at a time, for whoever has the disks to themselves; each of them holds a
    /// buffer of 64 KiB of metadata memory.
    ///
    /// # Errors
    /// As [`verify`](Self::verify).
    #[pooled]
    pub async fn verify_together(
        self,
        progress: &Progress,
        rows_at_a_time: NonZeroUsize,
    ) -> Result<Verification, SpaceError> {
        let mut all = Verification::default();
        let scrub = Scrub::default();
        let is_at_end =
            self.scrub_together(&scrub, progress, rows_at_a_time, |seen| all.absorb(seen)).await?;
        Ok(Verification { was_stopped: !is_at_end, ..all })
    }
}
