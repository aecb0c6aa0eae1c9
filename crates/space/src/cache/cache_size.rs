//! How large write caches are: when they are made, as they are seen, and changed while clients write (docs/design/0004, *Room*).
//!
//! - Growing: rows behind the end of the hidden space are claimed, then its size is made durable, then they are filled.
//! - Shrinking: rows at the end are closed, so that no task finds room there; what they hold is put in
//!   place; they are discarded, and a flush covers that; then the size is made durable, and they are freed.
//!
//! Invariants:
//! - Behind the durable end of a cache no row holds anything that counts. So a change that was cut short is undone, or
//!   finished, by freeing what lies there.
//! - What is left of a cache can be emptied: there is room for the parity of its rows before others go.
//!
//! Left to others: putting in place (`destage`), who gets room (`promise`), what is freed at an opening (`finish`).

use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;

use dolmen_block_io::sync::{Either, either};
use dolmen_block_io::{Instant, sleep};
use dolmen_future_pool::pooled;
use dolmen_units::{ALLOCATION_UNIT_BYTES, BLOCK_BYTES, Bytes, DiskSlot};

use crate::cache::drain_settings::WriteCacheDrain;
use crate::cache::space::{Cache, Segment, Space, State};
use crate::cache::write_cache::Filling;
use crate::format::error::SpaceError;
use crate::format::spec::Footprint;
use crate::resources::flow::FlowView;
use crate::resources::locks::Range;
use crate::resources::progress::Progress;
use crate::table::row::{Row, RowRecord};

/// Rows for writes, at least, beside those that are kept back for parity: one that is filled and one that is emptied.
pub(crate) const ROWS_FOR_WRITES_MIN: u64 = 2;
/// Blocks of a cache for each that the log can name: the others were written over, or wait to be filled again.
pub(crate) const USEFUL_PER_NAMED: u64 = 2;
/// Tries to empty rows that come to nothing one after another before it is said that they cannot be emptied now.
const TRIES_IN_VAIN_MAX: u32 = 8;
/// How long to wait after such a try for what holds the rows, where nothing tells its end.
const PAUSE_IN_VAIN: Duration = Duration::from_millis(50);

/// A write cache, as it is seen from outside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WriteCache {
    /// Disks that the spaces that it is for may lose.
    pub redundancy: u8,
    /// Bytes that it holds when it is full.
    pub size: Bytes,
    /// Bytes in it that are not in place yet.
    pub waiting: Bytes,
    /// What its rows take on all disks.
    pub footprint: Footprint,
    /// The disks on which its rows lie.
    pub disks: Vec<DiskSlot>,
    /// From how much on it is emptied, and how fast.
    pub drain: WriteCacheDrain,
    /// What was written to it.
    pub filled: FlowView,
    /// What was put in place out of it.
    pub destaged: FlowView,
}

/// Another size of a write cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WriteCacheResize {
    /// Disks that the spaces that it is for may lose.
    pub redundancy: u8,
    /// What it holds now when it is full.
    pub before: Bytes,
    /// What it is to hold: whole rows.
    pub after: Bytes,
    /// What a byte of it takes on all disks, copies and tables included, as a ratio: allocation units of a row, and bytes of one.
    pub(crate) of_row: (u64, u64),
}

impl WriteCacheResize {
    /// Bytes that growing claims on all disks, copies and tables included.
    #[must_use]
    pub fn claimed(&self) -> Bytes {
        self.on_disks(self.after.saturating_sub(self.before))
    }

    /// Bytes that shrinking gives back on all disks.
    #[must_use]
    pub fn released(&self) -> Bytes {
        self.on_disks(self.before.saturating_sub(self.after))
    }

    fn on_disks(&self, size: Bytes) -> Bytes {
        let (units, row) = self.of_row;
        Bytes(size.0 / row.max(1) * units * ALLOCATION_UNIT_BYTES)
    }
}

impl Cache {
    pub(crate) fn now(&self) -> Instant {
        self.shared().pool.seams().clock.now()
    }

    /// How it is.
    ///
    /// # Errors
    /// When the metadata cannot be read.
    #[pooled]
    pub(crate) async fn view(&self) -> Result<WriteCache, SpaceError> {
        let footprint = self.space().footprint().await?;
        let mut disks = BTreeSet::new();
        let note =
            |_, record: &RowRecord| disks.extend(record.columns.iter().flatten().map(|slab| slab.disk));
        self.space().for_each_record(note).await?;
        let live: u64 = self.segments.borrow().iter().map(|segment| u64::from(segment.live)).sum();
        Ok(WriteCache {
            redundancy: self.space().spec().resiliency.losses(),
            size: self.space().size(),
            waiting: Bytes(live * BLOCK_BYTES),
            footprint,
            disks: disks.into_iter().collect(),
            drain: self.drain.get(),
            filled: self.filled.view(self.now()),
            destaged: self.destaged.view(self.now()),
        })
    }

    /// Fills these rows too, from now on.
    pub(crate) fn take_in(&self, rows: Vec<Rc<Row>>) {
        let new = rows.into_iter().map(|row| Segment::new(row, State::Free));
        self.segments.borrow_mut().extend(new);
        self.ring();
    }

    /// Wakes those who wait for room: there is some that a try to empty the cache knew nothing of.
    fn ring(&self) {
        self.stuck.borrow_mut().take();
        self.notify.notify_all();
    }

    /// Closes the rows from one on: they count no more as room, and are emptied before others.
    pub(crate) fn retire_from(self: &Rc<Self>, first: u64) -> DeclaredLost {
        let is_meant = |segment: &&mut Segment| segment.row.index >= first;
        self.segments.borrow_mut().iter_mut().filter(is_meant).for_each(|one| one.is_retiring = true);
        DeclaredLost { cache: Rc::clone(self), is_done: false }
    }

    /// Closes rows that are to go and that room was taken from, and has them emptied first.
    fn close_retiring(&self) {
        let is_retiring = |at: usize| self.segments.borrow().get(at).is_some_and(|one| one.is_retiring);
        for filling in [Filling::Writes, Filling::Parity] {
            if self.open_for(filling).get().is_some_and(is_retiring) {
                self.close(filling);
            }
        }
        let mut full = self.full.borrow_mut();
        let (first, others): (Vec<usize>, Vec<usize>) = full.drain(..).partition(|at| is_retiring(*at));
        full.extend(first.into_iter().chain(others));
    }

    /// Whether the rows that are to go are empty, and those that stay can be emptied without them; they are never filled again
    /// then.
    fn can_go(&self) -> bool {
        let is_filled = |one: &Segment| one.is_retiring && one.state != State::Free;
        if self.segments.borrow().iter().any(is_filled) || self.room_missing() > 0 {
            return false;
        }
        self.segments
            .borrow_mut()
            .iter_mut()
            .filter(|one| one.is_retiring)
            .for_each(|one| one.state = State::Leaving);
        true
    }

    /// Blocks that the rows that stay lack for what is promised and kept back.
    fn room_missing(&self) -> u64 {
        (self.kept() + self.reserved.get()).saturating_sub(self.free())
    }

    /// What there is to do before rows can go: whoever works on that makes it less.
    fn left_to_do(&self) -> u64 {
        let missing = self.room_missing();
        let whole = u64::from(self.segment_blocks());
        let segments = self.segments.borrow();
        let of = |segment: &Segment| match segment.state {
            State::Free | State::Leaving => 0,
            // In the order of states that a row goes through: what lives in it counts, then how far it is.
            State::Open | State::Full => 3 + u64::from(segment.live),
            State::Drained(_) => 2,
            State::Discarded(_) => 1,
        };
        let counts = |segment: &&Segment| segment.is_retiring || missing > 0;
        // What is promised lives once it is written, and is then put in place.
        let promised = if missing > 0 { 2 * self.reserved.get() } else { 0 };
        promised + missing.div_ceil(whole) + segments.iter().filter(counts).map(of).sum::<u64>()
    }

    /// Empties the rows that are to go.
    ///
    /// # Errors
    /// What stands in the way.
    #[pooled]
    pub(crate) async fn empty_retiring(&self, progress: &Progress) -> Result<(), SpaceError> {
        let (mut before, mut in_vain) = (u64::MAX, 0);
        loop {
            self.may_resize_on(progress).await?;
            let notify = self.notify.wait();
            self.check_stays()?;
            self.close_retiring();
            progress.done.set(self.empty_retiring_count());
            if self.can_go() {
                return Ok(());
            }
            let left = self.left_to_do();
            in_vain = if left < before { 0 } else { in_vain + 1 };
            before = left;
            let done = if in_vain > TRIES_IN_VAIN_MAX { Ok(false) } else { self.round_for_room().await };
            match done {
                Ok(true) => {}
                Ok(false) if in_vain <= TRIES_IN_VAIN_MAX => {
                    // What clients have reserved may be put in place once it is written: they notify. A deletion whose commit is
                    // under way holds rows as well, and notifies nothing: another look follows soon.
                    self.waits_for_others.set(true);
                    let asked = either(notify, progress.asked_otherwise());
                    if self.has_promised() {
                        asked.await;
                    } else {
                        let clock = &self.shared().pool.seams().clock;
                        either(asked, sleep(clock.as_ref(), PAUSE_IN_VAIN)).await;
                    }
                }
                Ok(false) => return Err(SpaceError::CacheFull { name: self.space().name() }),
                Err(error) => return Err(error),
            }
        }
    }

    /// Waits while a change of the size is held.
    ///
    /// # Errors
    /// [`SpaceError::CalledOff`] when it is to end; or that the cache is being deleted, which nobody may hold up.
    pub(crate) async fn may_resize_on(&self, progress: &Progress) -> Result<(), SpaceError> {
        let goes = self.notify.wait_for(|| self.is_deleting.get().then_some(()));
        let answer = either(progress.may_go_on(&self.shared().closing), goes).await;
        self.check_stays()?;
        match answer {
            Either::First(true) => Ok(()),
            Either::First(false) | Either::Second(()) => {
                Err(SpaceError::CalledOff { name: self.space().name() })
            }
        }
    }

    /// Puts some stripes in place; where the rows that stay lack room, as for somebody who waits for it.
    async fn round_for_room(&self) -> Result<bool, SpaceError> {
        let waits = u64::from(self.room_missing() > 0);
        self.waiting.set(self.waiting.get() + waits);
        let done = self.round().await;
        self.waiting.set(self.waiting.get() - waits);
        done
    }

    fn empty_retiring_count(&self) -> u64 {
        let segments = self.segments.borrow();
        segments.iter().filter(|one| one.is_retiring && one.state == State::Free).count() as u64
    }

    /// Notes that it is being deleted, and waits until nobody changes its size any more.
    pub(crate) async fn note_deleting(&self) {
        self.is_deleting.set(true);
        self.notify.notify_all();
        self.hurry.notify_all();
        drop(self.size_mutex.take().await);
    }

    pub(crate) fn check_stays(&self) -> Result<(), SpaceError> {
        if self.is_deleting.get() { Err(SpaceError::Deleted { name: self.space().name() }) } else { Ok(()) }
    }

    /// Forgets the rows that go; these.
    pub(crate) fn let_go(&self) -> Vec<Rc<Row>> {
        let mut segments = self.segments.borrow_mut();
        let first = segments.iter().position(|one| one.state == State::Leaving).unwrap_or(segments.len());
        segments.drain(first..).map(|segment| segment.row).collect()
    }
}

/// Rows that are closed; dropping it before they are freed opens them again.
pub(crate) struct DeclaredLost {
    pub(crate) cache: Rc<Cache>,
    pub(crate) is_done: bool,
}

impl Drop for DeclaredLost {
    fn drop(&mut self) {
        if self.is_done {
            return;
        }
        for segment in &mut *self.cache.segments.borrow_mut() {
            segment.is_retiring = false;
            if segment.state == State::Leaving {
                segment.state = State::Free;
            }
        }
        self.cache.ring();
    }
}

pub(crate) async fn free_whole(space: &Space, row: &Rc<Row>) -> Result<(), SpaceError> {
    let _guard = row.locks.lock(Range { first: 0, count: row.shape.row_blocks() }).await;
    if row.freed.get() { Ok(()) } else { space.free_row(row).await }
}
