//! Slab maps that were made last. A map takes a walk over all rows of a pool, so one walk is under way at a time, and questions
//! within a few seconds after it get the same map.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use dolmen_api::{ErrorBody, ErrorCode, SlabMap};
use dolmen_block_io::Instant;
use dolmen_block_io::sync::AsyncMutex;
use dolmen_space::CellCount;
use dolmen_units::PoolId;

use crate::answer::Answer;
use crate::ranks;

/// Time for which a map is kept, at least.
const KEPT_FOR: Duration = Duration::from_secs(5);
/// The same in multiples of what its walk took: walks take a small part of the engine's time, however often they are asked for.
const KEPT_FOR_WALKS: u32 = 10;
/// Maps that are kept, at most.
const KEPT_MAX: usize = 8;
/// Questions that wait, at most. Others are refused, so that they take a part of the requests that the daemon has at a time.
const WAITING_MAX: usize = 16;

/// A map that was made.
struct Kept {
    pool: PoolId,
    cells: CellCount,
    made: Instant,
    until: Instant,
    map: Rc<SlabMap>,
}

/// Maps that were made last.
pub(super) struct RecentSlabMaps {
    /// Held by the question whose walk is under way.
    pub(super) mutex: AsyncMutex,
    waiting: Cell<usize>,
    kept: RefCell<Vec<Kept>>,
}

impl Default for RecentSlabMaps {
    fn default() -> Self {
        let mutex = AsyncMutex::ranked(ranks::SLAB_MAPS.single());
        Self { mutex, waiting: Cell::default(), kept: RefCell::default() }
    }
}

impl RecentSlabMaps {
    /// Counts a question until the guard is dropped, or refuses it.
    pub(super) fn wait(&self) -> Answer<Waiting<'_>> {
        if self.waiting.get() >= WAITING_MAX {
            let message = format!("{WAITING_MAX} questions about slab maps wait already");
            return Err(ErrorBody::new(ErrorCode::Busy, message).hint("ask again later"));
        }
        self.waiting.set(self.waiting.get() + 1);
        Ok(Waiting(&self.waiting))
    }

    /// Returns a map that is new enough, with its age.
    pub(super) fn find(&self, pool: PoolId, cells: CellCount, now: Instant) -> Option<SlabMap> {
        let mut kept = self.kept.borrow_mut();
        kept.retain(|one| now < one.until);
        let found = kept.iter().find(|one| one.pool == pool && one.cells == cells)?;
        Some(SlabMap { age_s: now.since(found.made).as_secs(), ..SlabMap::clone(&found.map) })
    }

    /// Keeps a map whose walk began and ended at such times.
    pub(super) fn keep(
        &self,
        (pool, cells): (PoolId, CellCount),
        (began, made): (Instant, Instant),
        map: &Rc<SlabMap>,
    ) {
        let mut kept = self.kept.borrow_mut();
        if kept.len() >= KEPT_MAX {
            kept.remove(0);
        }
        let until = made + KEPT_FOR.max(made.since(began) * KEPT_FOR_WALKS);
        kept.push(Kept { pool, cells, made, until, map: Rc::clone(map) });
    }
}

/// A question that waits or is being answered.
pub(super) struct Waiting<'a>(&'a Cell<usize>);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

#[cfg(test)]
mod tests {
    use dolmen_api::SCHEMA;
    use dolmen_units::ALLOCATION_UNIT_BYTES;

    use super::*;

    fn map(pool: &str) -> Rc<SlabMap> {
        let (owners, disks) = (Vec::new(), Vec::new());
        let unit_bytes = ALLOCATION_UNIT_BYTES;
        Rc::new(SlabMap { schema: SCHEMA, pool: pool.to_owned(), age_s: 0, unit_bytes, owners, disks })
    }

    /// Scenario: the walk of one map takes a millisecond, that of another ten seconds. The first is found for five seconds, the second
    /// for a hundred; neither is found for another pool or another number of cells.
    #[test]
    fn a_map_is_kept_for_seconds_and_longer_where_its_walk_is_long() {
        let (maps, zero) = (RecentSlabMaps::default(), Instant::default());
        let at = |ms: u64| zero + Duration::from_millis(ms);
        let [few, many] = [1, 512].map(|count| CellCount::new(count).unwrap());
        let (one, other) = (PoolId([1; 16]), PoolId([2; 16]));
        maps.keep((one, few), (at(0), at(1)), &map("short"));
        maps.keep((one, many), (at(0), at(10_000)), &map("long"));
        let found = |cells, ms| maps.find(one, cells, at(ms)).map(|map| (map.pool, map.age_s));
        assert_eq!(maps.find(other, few, at(2)), None);
        assert_eq!(found(few, 5_000), Some(("short".to_owned(), 4)));
        assert_eq!(found(few, 5_001), None);
        assert_eq!(found(many, 109_999), Some(("long".to_owned(), 99)));
        assert_eq!(found(many, 110_000), None);
        for _ in 0..2 * KEPT_MAX {
            maps.keep((one, few), (at(0), at(1)), &map("short"));
        }
        assert_eq!(maps.kept.borrow().len(), KEPT_MAX);
    }
}
