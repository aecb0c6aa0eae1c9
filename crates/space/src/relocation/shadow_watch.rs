//! Number of shadow rows of a space, and the start of their promotion.

use std::rc::Rc;
use std::rc::Weak;

use crate::format::spec::ROW_BYTES;
use crate::layout::Shape;
use crate::table::row::Row;
use crate::table::space::SpaceRows;

/// Number of shadow rows of a space, and the start of their promotion.
#[derive(Clone, Copy)]
pub(crate) struct ShadowWatch<'a> {
    space: &'a SpaceRows,
}

impl<'a> ShadowWatch<'a> {
    /// Returns the service for a space.
    pub(crate) fn of(space: &'a SpaceRows) -> Self {
        Self { space }
    }
}

impl ShadowWatch<'_> {
    /// Promotes the shadow rows of rows in a task of its own, after those requested before.
    pub(crate) fn promote_soon(self, rows: &[u64]) {
        if self.space.shadows.is_ending.get() || rows.is_empty() {
            return;
        }
        self.space.shadows.wanted.borrow_mut().extend(rows);
        if !self.space.shadows.is_running.replace(true) {
            let all = self.space.shared.upper.promote(Weak::clone(&self.space.this));
            self.space.shared.pool.seams().spawner.spawn("promote", all);
        }
    }

    /// Notes that whole stripes were brought to a row or its shadow row, from the other one if they went alternately.
    pub(crate) fn note_moved(self, row: &Rc<Row>, target: &Rc<Row>, lines: u32, has_switched: bool) {
        let is_whole = {
            let live = self.space.shadows.live.borrow();
            let Some(one) =
                live.get(&row.index).filter(|one| row.shadow().is_some_and(|shadow| shadow.id == one.row.id))
            else {
                return;
            };
            one.used.set(self.space.shared.pool.seams().clock.now());
            one.taken.set(match (target.is_shadow(), has_switched) {
                (true, _) => one.taken.get().saturating_add(lines),
                (false, true) => one.taken.get().saturating_sub(lines),
                (false, false) => return,
            });
            one.is_whole()
        };
        if has_switched {
            self.space.shared.count(|counters| counters.stripes_switched += u64::from(lines));
        }
        // The flush and the tables that they wait for are those of all of them.
        let whole = if is_whole { self.space.shadows.whole() } else { Vec::new() };
        if !whole.is_empty() && whole.len() * 2 >= self.shadows_max(&row.shape) {
            self.promote_soon(&whole);
        }
    }

    /// How many shadow rows there may be of rows like this one: more than two while they take little of what is free beside them.
    pub(crate) fn shadows_max(self, shape: &Shape) -> usize {
        let most = (SHADOWS_BYTES_MAX / self.space.row_bytes())
            .min(self.free_bytes() / SHARE_OF_FREE / self.shadow_bytes(shape));
        usize::try_from(most).unwrap_or(usize::MAX).max(SHADOWS_USUAL)
    }

    /// What is free beside the room that is kept.
    fn free_bytes(self) -> u64 {
        let room = self.space.shared.pool.free_space().room();
        room.iter().map(|room| room.free.0.saturating_sub(room.reserve.0)).sum()
    }

    /// What a row of a shape takes, but for its tables.
    fn shadow_bytes(self, shape: &Shape) -> u64 {
        self.space.row_bytes() / shape.data_columns() as u64 * shape.columns() as u64
    }

    /// Rows whose shadow rows are to be given up because all shadow rows take more than is free beside them.
    pub(crate) fn shadows_too_many(self) -> Vec<u64> {
        let Some(shape) = self.space.shadows.live.borrow().values().next().map(|one| one.row.shape) else {
            return Vec::new();
        };
        let allowed = self.shadows_allowed(&shape).max(SHADOWS_USUAL as u64);
        let surplus = (self.space.shadows.count() as u64).saturating_sub(allowed);
        self.space.shadows.idlest(usize::try_from(surplus).unwrap_or(usize::MAX).min(FREED_TOGETHER))
    }

    /// How many shadow rows may take as much as is free beside them.
    pub(crate) fn shadows_allowed(self, shape: &Shape) -> u64 {
        let extra = self.free_bytes() / self.shadow_bytes(shape);
        extra.min(TO_AND_FRO_MAX)
    }
}

/// Shadow rows that are given up at once for want of room: each may have a row to copy.
pub(crate) const FREED_TOGETHER: usize = 16;

/// Data of the rows of one space that have shadow rows, at most: as much as two long rows hold, one that a stream fills and one
/// whose shadow row takes its place. In short rows, a stream with many requests under way is in several at once.
pub(crate) const SHADOWS_BYTES_MAX: u64 = 2 * ROW_BYTES.0;

/// Shadow rows that a space may have however long its rows are.
pub(crate) const SHADOWS_USUAL: usize = 2;

/// What more shadow rows than that take is one of so many parts of the free room, at most.
pub(crate) const SHARE_OF_FREE: u64 = 8;

/// Shadow rows that a space may have, at most, for stripes to alternate: rows that have one stay in memory.
pub(crate) const TO_AND_FRO_MAX: u64 = 4096;
