//! Pools: states, room, redundancy, counters, write caches.

use dolmen_api::{
    Counters, Df, DiskState, Finding, FindingCode, Pool, PoolState, PoolTally, ResiliencyKind, Status,
};

use crate::daemon::health_number;
use crate::disks::{DISK_STATES, disk_state_word};
use crate::family::Family;
use crate::spaces::redundancy_left;
use crate::text::Text;

const POOL_STATES: [(PoolState, &str); 4] = [
    (PoolState::Writable, "writable"),
    (PoolState::ReadOnly, "read_only"),
    (PoolState::Stopped, "stopped"),
    (PoolState::Closed, "closed"),
];

const fn resiliency_word(kind: ResiliencyKind) -> &'static str {
    match kind {
        ResiliencyKind::Simple => "simple",
        ResiliencyKind::Span => "span",
        ResiliencyKind::Mirror => "mirror",
        ResiliencyKind::Parity => "parity",
    }
}

pub(crate) fn put(text: &mut Text, status: &Status, findings: Option<&[Finding]>) {
    for pool in &status.pools {
        put_pool(text, pool);
        let left = redundancy_of_pool(status, pool, findings);
        text.put_some(Family::PoolRedundancyLeft, &[&pool.name], left);
    }
}

fn put_pool(text: &mut Text, pool: &Pool) {
    let name = pool.name.as_str();
    text.put(Family::PoolHealth, &[name], health_number(pool.health));
    for (state, word) in POOL_STATES {
        text.put(Family::PoolState, &[name, word], pool.state == state);
    }
    text.put(Family::PoolSpaces, &[name], pool.space_count);
    if pool.state == PoolState::Closed {
        // Of its disks and its room nothing is known.
        return;
    }
    text.put(Family::PoolBytes, &[name, "used"], pool.used_bytes);
    text.put(Family::PoolBytes, &[name, "free"], pool.free_bytes);
    text.put(Family::PoolTrashBytes, &[name], pool.trash_bytes);
    if let Some(fill) = &pool.fill {
        let estimates =
            [("expected", fill.full_at_s), ("earliest", fill.earliest_s), ("latest", fill.latest_s)];
        for (estimate, full_s) in estimates {
            text.put_some(Family::PoolFull, &[name, estimate], full_s);
        }
    }
    text.put(Family::PoolRoomForLost, &[name], u64::from(pool.has_room_for));
    text.put(Family::PoolKeepRoomFor, &[name], u64::from(pool.keep_room_for));
    for state in DISK_STATES {
        let count = pool.disks.iter().filter(|disk| disk.state == state).count();
        text.put(Family::PoolDisks, &[name, disk_state_word(state)], count);
    }
    for cache in &pool.write_caches {
        let survives = cache.survives.to_string();
        for (family, bytes) in [
            (Family::WriteCacheSizeBytes, cache.size_bytes),
            (Family::WriteCacheWaitingBytes, cache.waiting_bytes),
            (Family::WriteCacheFilledBytes, cache.filled_bytes),
            (Family::WriteCacheDestagedBytes, cache.destaged_bytes),
        ] {
            text.put(family, &[name, &survives], bytes);
        }
    }
}

/// Returns the least redundancy of the spaces of a pool that hold data.
fn redundancy_of_pool(status: &Status, pool: &Pool, findings: Option<&[Finding]>) -> Option<u64> {
    let is_out_of_action = matches!(pool.state, PoolState::Stopped | PoolState::Closed);
    let of_pool = status.spaces.iter().filter(|space| space.pool == pool.name && space.claimed_bytes > 0);
    of_pool
        .filter(|_| !is_out_of_action)
        .filter_map(|space| redundancy_left(space, Some(pool), findings))
        .min()
}

pub(crate) fn put_room(text: &mut Text, room: &Df) {
    let name = room.pool.as_str();
    for (part, bytes) in [
        ("claimed", room.claimed_bytes),
        ("redundancy", room.redundancy_bytes),
        ("write_cache", room.write_cache_bytes),
        ("trash", room.trash_bytes),
        ("tables", room.tables_bytes),
    ] {
        text.put(Family::PoolUsedBytes, &[name, part], bytes);
    }
    text.put(Family::PoolReserveBytes, &[name], room.reserve_bytes.saturating_add(room.kept_bytes));
    text.put(Family::PoolPromisedBytes, &[name], room.promised_bytes);
    for fit in &room.fits {
        let (copies, parity) = (fit.copies.to_string(), fit.parity.to_string());
        let labels = [name, resiliency_word(fit.resiliency), &copies, &parity];
        text.put(Family::PoolUsableBytes, &labels, fit.usable_bytes);
    }
}

pub(crate) fn put_counters(text: &mut Text, counters: &Counters) {
    counters.pools.iter().for_each(|tally| put_tally(text, tally));
}

fn put_tally(text: &mut Text, tally: &PoolTally) {
    let (name, spaces) = (tally.pool.as_str(), &tally.spaces);
    for (family, count) in [
        (Family::PoolChecksumErrors, spaces.checksum_errors),
        (Family::PoolHealedBlocks, spaces.healed_blocks),
        (Family::PoolLostBlocks, spaces.lost_blocks),
        (Family::PoolUnverifiedBlocks, spaces.accepted_unverified_blocks),
        (Family::PoolResyncedBlocks, spaces.resynced_blocks),
        (Family::PoolTablePageReads, spaces.page_reads),
        (Family::PoolTablePageWrites, spaces.page_writes),
    ] {
        text.put(family, &[name], count);
    }
    for (class, count) in
        [("fresh", spaces.fresh_writes), ("rewrite", spaces.rewrites), ("overwrite", spaces.overwrites)]
    {
        text.put(Family::PoolBlockWrites, &[name, class], count);
    }
    text.put(Family::PoolFlushes, &[name, "own"], spaces.flushes);
    text.put(Family::PoolFlushes, &[name, "shared"], spaces.shared_flushes);
}

/// Returns the absent disks of a pool. Those of one fault domain count one by one, as the daemon counts them.
pub(crate) fn absent_disks(pool: &Pool) -> u64 {
    let absent = pool.disks.iter().filter(|disk| disk.state == DiskState::Absent).count();
    u64::try_from(absent).unwrap_or(u64::MAX)
}

/// Whether a code says that a space survives fewer losses than it was made to.
pub(crate) const fn is_reduction(code: FindingCode) -> bool {
    matches!(code, FindingCode::SpaceDegraded | FindingCode::SpaceOutOfReach)
}
