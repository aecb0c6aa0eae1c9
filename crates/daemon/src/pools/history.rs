//! What this host remembers of its pools beside what stands on their disks: errors that were counted and which of them
//! somebody has acknowledged, where disks were seen last, and ranges that were found damaged.
//!
//! One small file for each pool, replaced whole when something has changed, a few seconds late at most. Nothing in here
//! decides anything about data: losing it loses history. A range that was lost is looked at again whenever the pool is
//! opened, was scrubbed, or is acknowledged, and is listed no more once all of it can be read.
//!
//! The engine's own list of what it met is kept from one look to the next: what is new in it is added here, so that a range
//! that was taken off the list stays off.

use std::io;
use std::rc::Rc;

use dolmen_space::{DataLossEvent, DataLossKind, Space, failed_reads};
use dolmen_units::{BLOCK_BYTES, Bytes};

use crate::disks::tend_slow_disks;
use crate::open_pool::OpenPool;
use crate::records::Records;
use crate::state::{
    LABELS, LOOK_BYTES, PATH_BYTES_MAX, Recorded, RecordedDisk, RecordedRange, Slow, VERSION, add,
    is_unreadable,
};

impl OpenPool {
    /// Ranges of spaces that were damaged, found since the pool was opened or before.
    pub(crate) fn data_loss_events(&self) -> Vec<DataLossEvent> {
        self.history.see(self.spaces.data_loss_events());
        let mut ranges = self.history.ranges.borrow_mut();
        // A number of a space is given once: what was deleted is lost on purpose.
        ranges.retain(|one| self.spaces.get_kept(one.space).is_some());
        ranges.clone()
    }

    /// Ends the warning about what was accepted unverified.
    pub(crate) fn acknowledge_taken(&self, taken: &[DataLossEvent]) {
        for one in taken {
            let range = (one.at, one.at + one.length.0);
            self.history.take_off(one.space, range, |kind| kind == DataLossKind::AcceptedUnverified);
        }
    }

    /// Reads again what could not be read, and lists no more what can be by now. Returns how many bytes that were.
    pub(crate) async fn look_again(&self) -> Bytes {
        let mut readable = 0;
        for one in self.data_loss_events().iter().filter(|one| is_unreadable(one.kind)) {
            let Some(space) = self.spaces.get(one.space) else { continue };
            let end = one.at.saturating_add(one.length.0).min(space.size().0);
            let mut at = one.at;
            while at < end && !self.is_closing.get() {
                let length = LOOK_BYTES.min(end - at);
                readable += look_at_piece(self, &space, at, length).await;
                at += length;
            }
            // Behind the end of a space there is nothing to be lost.
            self.history.take_off(one.space, (space.size().0, u64::MAX), is_unreadable);
        }
        for space in self.spaces.list() {
            for one in failed_reads(&space) {
                look_at_piece(self, &space, one.at, one.length.0).await;
            }
        }
        Bytes(readable)
    }
}

/// A piece at once, and where that fails, block by block.
async fn look_at_piece(pool: &OpenPool, space: &Space, at: u64, length: u64) -> u64 {
    if look_at_range(pool, space, at, length).await {
        return length;
    }
    let mut readable = 0;
    let (mut block, end) = (at, at + length);
    while block < end {
        let length = BLOCK_BYTES.min(end - block);
        readable += if look_at_range(pool, space, block, length).await { length } else { 0 };
        block += length;
    }
    readable
}

async fn look_at_range(pool: &OpenPool, space: &Space, at: u64, length: u64) -> bool {
    let Ok(bytes) = usize::try_from(length) else { return false };
    let is_readable = space.read(at, bytes).await.is_ok();
    if is_readable {
        pool.history.take_off(space.id(), (at, at + length), is_unreadable);
    }
    is_readable
}

fn record_of(pool: &OpenPool) -> Recorded {
    let acknowledged = pool.history.acknowledged.borrow();
    let disk = |disk: &Rc<dolmen_pool::Disk>| RecordedDisk {
        id: disk.id().to_string(),
        path: Some(disk.name()).filter(|path| path.starts_with('/') && path.len() <= PATH_BYTES_MAX),
        counted: disk.counters().into(),
        acknowledged: acknowledged.get(&disk.id()).copied().unwrap_or_default().into(),
        excluded: pool.absences.is_excluded(disk.id()),
        lost_labels: disk.labels().lost(),
        slow: pool.latencies.slow(disk.id()),
        emptying_held_off: pool.emptyings.held_off(disk.id()),
        rebuilding_stopped: pool.absences.is_stopped(disk.id()),
        is_failing: pool.smarts.is_failing(disk.id()),
        acknowledged_defects: pool.smarts.acknowledged(disk.id()),
    };
    let disks = pool.spaces.pool().disks().iter().map(disk).collect();
    Recorded {
        version: VERSION,
        disks,
        ranges: pool.data_loss_events().iter().map(RecordedRange::from).collect(),
        filled: pool.filling.looks(),
        volumes_filled: pool.volume_fillings.looks(),
    }
}

/// Takes over what was on record. What has been counted since the pool was opened is added to it.
fn take_history(pool: &OpenPool, recorded: &Recorded) {
    for disk in pool.spaces.pool().disks() {
        let id = disk.id().to_string();
        let Some(known) = recorded.disks.iter().find(|known| known.id == id) else { continue };
        if known.excluded {
            pool.absences.abandon(disk.id());
        }
        let earlier = known.counted.counters();
        disk.note(|counters| {
            counters.read_errors = counters.read_errors.saturating_add(earlier.read_errors);
            counters.write_errors = counters.write_errors.saturating_add(earlier.write_errors);
            counters.backing_full_writes =
                counters.backing_full_writes.saturating_add(earlier.backing_full_writes);
            counters.timed_out_reads = counters.timed_out_reads.saturating_add(earlier.timed_out_reads);
            counters.checksum_errors = counters.checksum_errors.saturating_add(earlier.checksum_errors);
            counters.healed_blocks = counters.healed_blocks.saturating_add(earlier.healed_blocks);
        });
        disk.labels().note_lost(known.lost_labels.get(..LABELS).unwrap_or(&known.lost_labels));
        if let Some(slow) = known.slow {
            pool.latencies.note(disk.id(), Slow { others_us: slow.others_us.max(1), ..slow });
        }
        pool.smarts.acknowledge(disk.id(), known.acknowledged_defects);
        if known.is_failing {
            pool.smarts.recall_failing(disk.id());
        }
        if known.rebuilding_stopped && !disk.is_present() {
            pool.absences.note_stopped(disk.id());
        }
        known.emptying_held_off.iter().for_each(|errors| pool.emptyings.hold_off(disk.id(), *errors));
        known.path.iter().for_each(|path| disk.note_last_name(path.clone()));
        pool.history.acknowledged.borrow_mut().insert(disk.id(), known.acknowledged.counters());
    }
    pool.filling.recall(&recorded.filled);
    pool.volume_fillings.recall(&recorded.volumes_filled);
    let mut ranges = pool.history.ranges.borrow_mut();
    recorded.ranges.iter().filter_map(RecordedRange::loss_of).for_each(|one| add(&mut ranges, one));
}

impl Records {
    /// Takes over what is known of a pool that was just opened, and looks again at what was lost.
    pub(crate) async fn recall(&self, pool: &Rc<OpenPool>) {
        if let Some(recorded) = self.histories.read(pool.id()).await {
            take_history(pool, &recorded);
            // What it writes first goes where it is to.
            tend_slow_disks(pool, self.seams.clock.now());
        }
        let again = Rc::clone(pool);
        let looking = async move {
            again.look_again().await;
        };
        self.seams.spawner.spawn("history", Box::pin(looking));
    }

    /// Puts the history of a pool on record, if it has changed.
    ///
    /// # Errors
    /// What the file system says. It is tried again at the next change, or the next look.
    pub(crate) async fn record_history(&self, pool: &OpenPool) -> io::Result<()> {
        let mut text = serde_json::to_vec(&record_of(pool)).map_err(io::Error::other)?;
        text.push(b'\n');
        if *pool.history.written.borrow() == text {
            return Ok(());
        }
        self.histories.write(pool.id(), text.clone()).await?;
        pool.history.written.replace(text);
        Ok(())
    }

    /// The same for whoever can do nothing about it; a failure is logged once.
    pub(crate) async fn keep_history(&self, pool: &OpenPool) {
        let result = self.record_history(pool).await;
        let was_failing = pool.history.is_failing.replace(result.is_err());
        if let Err(error) = result
            && !was_failing
        {
            tracing::warn!(pool = pool.name(), %error, "errors and damage of the pool are not on record; the next daemon will not know of them");
        }
    }
}

#[cfg(test)]
mod tests {
    use dolmen_units::SpaceId;

    use super::*;
    use crate::state::{History, RANGES_MAX};

    fn lost(at: u64, length: u64) -> DataLossEvent {
        DataLossEvent { space: SpaceId(1), at, length: Bytes(length), kind: DataLossKind::Lost }
    }

    fn ranges(history: &History) -> Vec<(u64, u64)> {
        let mut all: Vec<_> = history.ranges.borrow().iter().map(|one| (one.at, one.length.0)).collect();
        all.sort_unstable();
        all
    }

    /// What the list holds is the set of bytes that were noted and not taken off since, whatever the order; held against a
    /// list of single blocks.
    #[test]
    fn the_list_is_the_blocks_that_were_noted_and_not_taken_off() {
        let (history, mut blocks, mut engine) = (History::default(), [false; 64], Vec::new());
        let mut seed = 7u64;
        let mut draw = |below: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) % below
        };
        for _ in 0..4000 {
            let (mut at, mut length) = (draw(60), 1 + draw(4));
            let is_noted = draw(2) == 0;
            let last: Option<DataLossEvent> = if is_noted && draw(3) == 0 { engine.pop() } else { None };
            if let Some(last) = last {
                // What goes on where another ended is one with it; what was known of it, and was taken off, is not new.
                at = (last.at + last.length.0) / BLOCK_BYTES;
                length = length.min(64 - at);
                let grown =
                    DataLossEvent { length: last.length + Bytes(length * BLOCK_BYTES), ..last.clone() };
                engine.retain(|other| *other != grown);
                engine.push(last);
                history.see(engine.clone());
                engine.pop();
                engine.push(grown);
                history.see(engine.clone());
            } else if is_noted {
                let one = lost(at * BLOCK_BYTES, length * BLOCK_BYTES);
                // The engine notes nothing twice; what it has noted before is not new.
                engine.retain(|other| *other != one);
                history.see(engine.clone());
                engine.push(one);
                history.see(engine.clone());
            } else {
                let range = (at * BLOCK_BYTES, (at + length) * BLOCK_BYTES);
                history.take_off(SpaceId(1), range, is_unreadable);
                history.take_off(SpaceId(2), (0, u64::MAX), is_unreadable);
                history.take_off(SpaceId(1), (0, u64::MAX), |kind| kind == DataLossKind::AcceptedUnverified);
            }
            (at..at + length).for_each(|block| blocks[usize::try_from(block).unwrap()] = is_noted);
            let expected: Vec<u64> = (0..64)
                .zip(blocks)
                .filter(|(_, is_noted)| *is_noted)
                .map(|(block, _)| block * BLOCK_BYTES)
                .collect();
            let found = ranges(&history);
            let held: Vec<u64> = found
                .iter()
                .flat_map(|(at, length)| (0..length / BLOCK_BYTES).map(move |block| at + block * BLOCK_BYTES))
                .collect();
            assert_eq!(held, expected);
        }
    }

    #[test]
    fn the_list_is_bounded_and_what_was_noted_first_goes_first() {
        let history = History::default();
        let all: Vec<DataLossEvent> =
            (0..RANGES_MAX as u64 + 5).map(|at| lost(at * 2 * BLOCK_BYTES, BLOCK_BYTES)).collect();
        history.see(all);
        let held = ranges(&history);
        assert_eq!((held.len(), held.first()), (RANGES_MAX, Some(&(10 * BLOCK_BYTES, BLOCK_BYTES))));
    }

    /// What is written reads back the same; what makes no sense is left out.
    #[test]
    fn a_record_reads_back_and_impossible_ranges_are_left_out() {
        let kinds = [
            DataLossKind::AcceptedUnverified,
            DataLossKind::Lost,
            DataLossKind::CorruptHere,
            DataLossKind::TableLost,
        ];
        for kind in kinds {
            let one = DataLossEvent { kind, ..lost(4096, 8192) };
            assert_eq!(RecordedRange::from(&one).loss_of(), Some(one));
        }
        for (at, length) in [(u64::MAX, 1), (1, u64::MAX), (0, 0)] {
            assert_eq!(RecordedRange::from(&lost(at, length)).loss_of(), None, "{at} {length}");
        }
    }
}
