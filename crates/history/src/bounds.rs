//! Bounds of what there is: bytes and slots of a history, and numbers that none of ours exceeds. An index from elsewhere that does is
//! damaged, whatever its checksum says.

use crate::index::RINGS;
use crate::level::{LEVELS, Level};
use crate::slot::SLOT_BYTES_MAX;

/// Bytes that the history of a pool takes, at most, before the map's own overhead, which is less than half of it.
pub const HISTORY_BYTES_MAX: u64 = 40 << 20;
/// What a slot takes in the map beside its value.
const SLOT_EXTRA_BYTES: u64 = 64;
/// The part of the room of a map that history may take.
const MAP_PARTS: u64 = 16;
/// The part of the budget that is the pool's own.
const POOL_PARTS: u64 = 8;
/// A ring is no shorter than this: a slot that is dropped, one that is read, and one that is written.
const SLOTS_MIN: u64 = 3;
/// Numbers of slots and of saves lie below: a slot each millisecond for 8,000 years.
pub(crate) const NUMBERS_MAX: u64 = 1 << 48;
/// Slots with points that are not complete, of spaces and disks: those of 10 s of 300 busy objects.
const OPEN_MAX: u64 = 32;
/// The same of the pool: a slot with room, and one for a point that does not fit into it.
const POOL_OPEN_MAX: u64 = 2;
/// Objects that are taken up from slots, at most: 240 disks, and more spaces than a pool has.
pub(crate) const OBJECTS_MAX: usize = 1 << 14;

/// Slots that a save writes again, at most. They have room in one change of the map, with the index.
pub const REWRITES_MAX: usize = 42;

const _: () =
    assert!(REWRITES_MAX as u64 == OPEN_MAX + POOL_OPEN_MAX + RINGS as u64 - 2, "one of each other ring");
const _: () = assert!(OPEN_MAX < HISTORY_BYTES_MAX / SLOT_BYTES_MAX as u64, "a ring has room for them");

/// Returns the bytes that history may take in a map of so many bytes.
#[must_use]
pub fn budget_of(map_bytes: u64) -> u64 {
    (map_bytes / MAP_PARTS).min(HISTORY_BYTES_MAX)
}

/// Returns the number of slots that a ring keeps with this budget, at most.
pub(crate) fn slots_max(ring: usize, level: Level, budget: u64) -> u64 {
    let weights: u64 = Level::all().map(Level::points).sum();
    let own = budget / POOL_PARTS;
    let group = if ring < LEVELS { own } else { budget - own };
    (group * level.points() / weights / (SLOT_BYTES_MAX as u64 + SLOT_EXTRA_BYTES)).max(SLOTS_MIN)
}

/// Returns the number of slots that are not complete, at most. The finest points have those of the moment behind them.
pub(crate) fn open_max(ring: usize, level: Level) -> u64 {
    match (level == Level::FINEST, ring < LEVELS) {
        (true, true) => POOL_OPEN_MAX,
        (true, false) => OPEN_MAX,
        (false, _) => 1,
    }
}
