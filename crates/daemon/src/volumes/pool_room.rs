//! Room that the space of a volume can still take from its pool, and the end of an operation that would take the last of it.
//!
//! A file system counts the room of its space, which a thin space may not have. The write-back of what clients wrote fails when the
//! pool is full, so an operation that takes room ends before that.

use dolmen_api::{ErrorBody, ErrorCode};
use dolmen_space::{Provisioning, Space};
use dolmen_worker::protocol::long::{POOL_ROOM_BYTES_MIN, Progress, Step};

use crate::open_pool::OpenPool;
use crate::plan::room_for;
use crate::volumes::volume::Volume;

/// Bytes that an undo copies at a time.
const PACK_BYTES: u64 = 64 << 20;
/// Packs of an undo that the pool has room for as long as it goes on: the one that is written, and one for clients.
const PACKS_MIN: u64 = 2;
const _: () = assert!(PACKS_MIN * PACK_BYTES == POOL_ROOM_BYTES_MIN);

/// Returns the bytes that a thin space can still take from its pool; none if the space has all its room, or the pool has it.
pub(super) async fn pool_room(pool: &OpenPool, space: &Space) -> Option<u64> {
    let spec = space.spec();
    let unclaimed = spec.size.0.saturating_sub(space.claimed().0);
    if spec.provisioning == Provisioning::Fixed || unclaimed == 0 {
        return None;
    }
    let room = room_for(&spec, &pool.offered()).await.0.saturating_add(space.blank_bytes().0);
    (room < unclaimed).then_some(room)
}

/// Returns whether a pool has too little room for what an undo, or a balance of btrfs, still copies.
pub(super) fn is_short(room: Option<u64>, progress: Progress) -> bool {
    let left = progress.total.saturating_sub(progress.done);
    let copies = matches!(progress.step, Step::Undo | Step::Compact);
    copies && room.is_some_and(|room| room < left.min(POOL_ROOM_BYTES_MIN))
}

/// Returns the end of an undo that would fill its pool.
pub(super) fn pool_is_short(volume: &Volume, done: &str) -> ErrorBody {
    let pool = volume.pool.name();
    let message = format!(
        "the undo was ended: pool {pool} has too little room for what volume {} still shares; {done}",
        volume.name
    );
    let hint = format!("add a disk to pool {pool}, or delete something in it, and undo the rest then");
    ErrorBody::new(ErrorCode::NoSpace, message).on(&volume.name).hint(hint)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_copies_ends_before_the_rest_of_it_fills_the_pool() {
        let progress = |step, done, total| Progress { step, done, total, files: 0, saved: 0, paused: false };
        let pack = PACK_BYTES;
        for (room, done, total, expected) in [
            (None, 0, u64::MAX, false),
            (Some(2 * pack), 0, 100 * pack, false),
            (Some(2 * pack - 1), 0, 100 * pack, true),
            (Some(pack), 99 * pack, 100 * pack, false),
            (Some(pack - 1), 99 * pack, 100 * pack, true),
            (Some(0), 100 * pack, 100 * pack, false),
        ] {
            for step in [Step::Undo, Step::Compact] {
                assert_eq!(is_short(room, progress(step, done, total)), expected, "{room:?} {done}");
            }
        }
        assert!(!is_short(Some(0), progress(Step::Map, 0, 100 * pack)), "nothing is copied yet");
    }
}
