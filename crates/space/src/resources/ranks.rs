//! Ranks of the locks of spaces: what a task holds is below what it takes next (docs/design/0031).
//!
//! The pool's locks stand between them: checkpoint at 38, stamp at 39, commit at 58, epoch at 60. The metadata store and the log
//! follow at 62 and 64, and the labels of disks, which an epoch change of the log writes, at 66. Locks of the daemon stand below 10.

use dolmen_block_io::ranks::{LockRank, Rank};
use dolmen_block_io::sync::AsyncMutex;
use dolmen_mutation::mutation;
use dolmen_units::SpaceId;

const CONVERSION: Rank = Rank::new(10, "conversion of a space");
const SPEC: Rank = Rank::new(12, "spec of a space");
const CACHE_LIST: Rank = Rank::new(14, "list of write caches");
const CACHE_SIZE: Rank = Rank::new(16, "size of a write cache");
const HIDDEN_SPACE: Rank = Rank::new(18, "conversion or spec of a hidden space");
const CLAIM: Rank = Rank::new(20, "claim of slabs");
const SHADOW_CLAIM: Rank = Rank::new(22, "claim of shadow rows");
const SHADOW_END: Rank = Rank::new(24, "end of shadow rows");
const REFILL: Rank = Rank::new(26, "refill of slabs");
const REFILL_SCAN: Rank = Rank::new(27, "scan of a slab's missing blocks");
const STRIPE_MEMORY: Rank = Rank::new(28, "memory of stripes, refills and conversions");
const RESOLVE: Rank = Rank::new(34, "resolution of in-doubt blocks");
const DURABILITY: Rank = Rank::new(36, "durability of decisions");
const CACHE: Rank = Rank::new(40, "write cache");
const WRITE_BACK: Rank = Rank::new(42, "write-back of table pages");
const STRIPE_READ_MEMORY: Rank = Rank::new(44, "memory of stripes that are read");
const STRIPE_ROW: Rank = Rank::new(46, "blocks of a row with parity");
const FLUSH: Rank = Rank::new(48, "flush");
const BLOCK_ROW: Rank = Rank::new(50, "blocks of a row of copies");
const RESERVE: Rank = Rank::new(52, "reserve of a space");
const DEFER: Rank = Rank::new(54, "deferral of in-doubt blocks");
const TABLE: Rank = Rank::new(56, "table pages");
const TABLE_MEMORY: Rank = Rank::new(57, "memory of table pages");

/// Whether people see a space.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Visibility {
    User,
    Hidden,
}

fn single(rank: Rank) -> AsyncMutex {
    AsyncMutex::ranked(rank.single())
}

pub(crate) fn conversion(space: SpaceId, visibility: Visibility) -> AsyncMutex {
    AsyncMutex::ranked(match visibility {
        Visibility::User => CONVERSION.single(),
        Visibility::Hidden => HIDDEN_SPACE.nth((space.0, 0)),
    })
}

pub(crate) fn spec(space: SpaceId, visibility: Visibility) -> AsyncMutex {
    AsyncMutex::ranked(match visibility {
        Visibility::User => SPEC.single(),
        Visibility::Hidden => HIDDEN_SPACE.nth((space.0, 1)),
    })
}

pub(crate) fn cache_list() -> AsyncMutex {
    single(CACHE_LIST)
}

pub(crate) fn cache_size() -> AsyncMutex {
    single(CACHE_SIZE)
}

pub(crate) fn claim() -> AsyncMutex {
    single(CLAIM)
}

pub(crate) fn shadow_claim() -> AsyncMutex {
    single(SHADOW_CLAIM)
}

pub(crate) fn shadow_end() -> AsyncMutex {
    single(SHADOW_END)
}

pub(crate) fn refill() -> AsyncMutex {
    single(REFILL)
}

pub(crate) fn refill_scan() -> AsyncMutex {
    single(REFILL_SCAN)
}

/// Returns the rank of the memory of stripes that are written as a whole: conversions and refills write such stripes.
pub(crate) fn stripe_memory() -> LockRank {
    STRIPE_MEMORY.nth((0, 2))
}

pub(crate) fn refill_memory() -> LockRank {
    STRIPE_MEMORY.nth((0, 1))
}

pub(crate) fn conversion_memory() -> LockRank {
    STRIPE_MEMORY.nth((0, 0))
}

pub(crate) fn resolve() -> AsyncMutex {
    single(RESOLVE)
}

pub(crate) fn durability() -> AsyncMutex {
    single(DURABILITY)
}

/// Returns the mutex of a write cache; a task that holds several takes them in the order of their spaces.
pub(crate) fn cache(space: SpaceId) -> AsyncMutex {
    AsyncMutex::ranked(CACHE.nth((space.0, 0)))
}

pub(crate) fn write_back() -> AsyncMutex {
    single(WRITE_BACK)
}

pub(crate) fn stripe_read_memory() -> LockRank {
    STRIPE_READ_MEMORY.single()
}

pub(crate) fn flush() -> AsyncMutex {
    single(if mutation!(RanksSwapped) { STRIPE_ROW } else { FLUSH })
}

pub(crate) fn reserve() -> AsyncMutex {
    single(RESERVE)
}

pub(crate) fn defer() -> AsyncMutex {
    single(DEFER)
}

pub(crate) fn table() -> AsyncMutex {
    single(TABLE)
}

pub(crate) fn table_memory() -> LockRank {
    TABLE_MEMORY.single()
}

/// Returns the rank of the locks of a row whose stripes have parity. A flush never takes them: a destage waits for one with
/// them held. A task that holds several takes them in the order of space and index.
pub(crate) fn stripe_row(space: SpaceId, index: u64) -> LockRank {
    STRIPE_ROW.nth((space.0, index))
}

/// Returns the rank of the locks of a row of copies, which a flush takes; several in the same order.
pub(crate) fn block_row(space: SpaceId, index: u64) -> LockRank {
    BLOCK_ROW.nth((space.0, index))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::Command;

    use dolmen_block_io::Executor;

    use super::*;
    use crate::resources::locks::{Range, RangeLocks};

    const BREAKS_ORDER: &str = "DOLMEN_BREAKS_LOCK_ORDER";
    const SIGABRT: i32 = 6;

    async fn flush_then_row_with_parity() {
        let (flush, row) = (flush(), RangeLocks::new(stripe_row(SpaceId(3), 4)));
        let _flush = flush.take().await;
        let _row = row.lock(Range { first: 0, count: 1 }).await;
    }

    #[test]
    fn a_lock_out_of_order_aborts() {
        // Scenario: in a child process a task locks blocks of a row with parity during a flush; the process ends and names both.
        if std::env::var_os(BREAKS_ORDER).is_some() {
            Executor::new().block_on(flush_then_row_with_parity());
            return;
        }
        let name = "resources::ranks::tests::a_lock_out_of_order_aborts";
        let mut child = Command::new(std::env::current_exe().unwrap());
        let ended = child.args(["--exact", name]).env(BREAKS_ORDER, "1").output().unwrap();
        let said = String::from_utf8_lossy(&ended.stderr);
        assert_eq!(ended.status.signal(), Some(SIGABRT), "the child did not abort: {} {said}", ended.status);
        for word in ["blocks of a row with parity 3.4 (rank 46)", "not above flush (rank 48)", "ranks.rs"] {
            assert!(said.contains(word), "no '{word}' in: {said}");
        }
    }

    #[test]
    fn the_engine_takes_its_locks_upward() {
        // Scenario: a destage holds rows with parity and flushes, and the flush locks rows of copies and tables.
        let ended = Executor::new().block_on(async {
            let rows = [(3, 4), (3, 9), (4, 1)]
                .map(|(space, index)| RangeLocks::new(stripe_row(SpaceId(space), index)));
            let copies = RangeLocks::new(block_row(SpaceId(1), 0));
            let (cache, flush, table) = (cache(SpaceId(7)), flush(), table());
            let _cache = cache.take().await;
            let mut held = Vec::new();
            for row in &rows {
                held.push(row.lock(Range { first: 0, count: 1 }).await);
            }
            for _ in 0..2 {
                let _flush = flush.take().await;
                let _copies = copies.lock(Range { first: 0, count: 1 }).await;
                let _table = table.take().await;
            }
        });
        assert_eq!(ended, Some(()));
    }
}
