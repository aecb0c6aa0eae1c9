//! Stripes that moved between a row and its shadow row since the last flush.

use std::cell::RefCell;

use crate::resources::locks::Range;
use crate::resources::tickets::FlushPoint;

/// Notes of stripes that are kept before those are looked for that a flush has covered.
pub(crate) const MOVED_USUAL: usize = 32;

/// Stripes of a row and its shadow row that were written in place as a whole, until a flush has covered that: none of them flips
/// before. Their claims would else be of three versions, of which a crash may leave none.
#[derive(Default)]
pub(crate) struct Moved(pub(crate) RefCell<Vec<(Range, FlushPoint)>>);

impl Moved {
    /// Notes stripes that were written, or may have been, by now.
    pub(crate) fn note(&self, lines: Range, now: FlushPoint, has_covered: impl Fn(FlushPoint) -> bool) {
        let mut moved = self.0.borrow_mut();
        if moved.len() >= MOVED_USUAL && moved.len().is_power_of_two() {
            moved.retain(|(_, flush_point)| !has_covered(*flush_point));
        }
        moved.push((lines, now));
    }

    /// Whether no flush has covered what was written of some of these stripes.
    pub(crate) fn has_open(&self, lines: Range, has_covered: impl Fn(FlushPoint) -> bool) -> bool {
        let mut moved = self.0.borrow_mut();
        moved.retain(|(_, flush_point)| !has_covered(*flush_point));
        moved.iter().any(|(other, _)| other.overlaps(lines))
    }
}
