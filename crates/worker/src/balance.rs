//! Compaction of a mounted btrfs: block groups whose rows hold little are moved by the kernel, and a trim gives their rows back.
//!
//! 1. **Map.** The extents of each group are counted by row.
//! 2. **Choose.** Groups of data are moved from the least on that their rows hold, up to three quarters, while budget and pool have room.
//! 3. **Move.** The kernel balances one group at a time. It copies extents as they are, so what files share stays shared.
//! 4. **Trim**, and a second map, which counts the rows.
//!
//! The kernel cannot halt within a group; a cancelled group has moved nothing. So a stop cancels it, and a pause waits for its end
//! before it does. Each pause of one group waits twice as long as the one before, so a slow group is moved at last.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Seek, SeekFrom};
use std::ops::Range;
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::Duration;

use dolmen_dedup::{Control, Next, Phase, Progress};
use dolmen_files::FilesError;
use dolmen_files::allocated::{allocated, node_bytes};
use dolmen_files::balance::{BalanceEnd, Standing, balance, cancel, standing};
use dolmen_files::block_groups::{BlockGroup, block_groups};
use dolmen_files::scrub::only_device;

use crate::compaction::{Order, claimed_rows};
use crate::free_room::{free_bytes, trim_at_rest};
use crate::limits::limit;
use crate::protocol::long::{Compacted, KeptReason, KeptRows, POOL_ROOM_BYTES_MIN};
use crate::protocol::{Failure, FailureCode, Outcome, Volume};
use crate::row_map::{Fill, Filling, RowSet};
use crate::steering::{Steering, with_causes};

/// Part of its rows that a group holds at most if it is moved.
const LIVE_PERCENT_MAX: u64 = 75;
/// Part of a group that writers may fill between its map and its move.
const GROWTH_PERCENT: u64 = 2;
/// Time between two looks at commands, and looks for which the first pause waits for a group.
const LOOK: Duration = Duration::from_millis(50);
const PATIENCE_LOOKS: u32 = 40;
/// Groups without room after which no other one is tried.
const NO_ROOM_MAX: u32 = 2;
/// Groups that are left out with their reasons.
const NAMED_MAX: usize = 8;
/// Bytes of the stack of the thread that waits for the kernel.
const STACK_BYTES: usize = 128 << 10;
/// Ranges of the device that hold no extent and are never free: the head, and copies of the superblock.
const RESERVED: [Range<u64>; 3] =
    [0..1 << 20, 64 << 20..(64 << 20) + (64 << 10), 256 << 30..(256 << 30) + (64 << 10)];

/// A compaction that is at work.
struct Run<'a, 'b> {
    volume: &'a Volume,
    root: &'a File,
    steering: &'a mut Steering<'b>,
    row_bytes: u64,
    node_bytes: u64,
    /// Bytes that may be moved.
    budget: u64,
    /// Bytes that the space can take from its pool; none if it has all its room. Rows that a trim will give back are not in it.
    room: Option<u64>,
    to_trim: u64,
    planned: u64,
    counts: Compacted,
    kept: BTreeMap<u64, KeptReason>,
}

/// End of the work on a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum GroupEnd {
    Moved,
    Kept(KeptReason),
    /// A command, or somebody else, ended the run.
    Stopped,
}

/// Moves groups that hold little, and gives their rows back.
pub(crate) fn compact(
    order: &Order<'_>,
    root: &File,
    steering: &mut Steering<'_>,
) -> Result<Outcome, Failure> {
    let volume = order.volume;
    let words = |error: FilesError| failed(volume, &error);
    let claimed_ranges = claimed_rows(&order.occupancy.claimed)?;
    let memory_bytes = limit(order.load)?;
    let rows = rows_of(order, memory_bytes)?;
    only_device(root).map_err(words)?;
    let mut run = Run {
        volume,
        root,
        steering,
        row_bytes: order.occupancy.row_bytes,
        node_bytes: node_bytes(root).map_err(words)?,
        budget: order.budget_bytes.unwrap_or(u64::MAX),
        room: order.pool_room_bytes,
        to_trim: 0,
        planned: 0,
        counts: Compacted::default(),
        kept: BTreeMap::new(),
    };
    let (mut claimed, mut before, mut after) = (RowSet::new(rows), RowSet::new(rows), RowSet::new(rows));
    claimed_ranges.into_iter().for_each(|range| claimed.add(range));
    let mut candidates = Vec::new();
    let next = match run.wait_for_last()? {
        Next::Go => run.map(&mut before, |group, fill| candidates.push((group, fill)))?,
        Next::Stop => Next::Stop,
    };
    if next == Next::Stop {
        run.counts.stopped = true;
        return Ok(Outcome::Compacted(run.counts));
    }
    candidates.retain(|(group, fill)| is_movable(group) && pays(fill));
    candidates.sort_by_key(|(_, fill)| (live_parts(fill), fill.used));
    run.move_all(candidates)?;
    run.trim()?;
    let mut left = Vec::new();
    // A stop has ended the moves; what they gave is counted.
    let mut rest = |group: BlockGroup, fill: Fill| left.push((group.logical, is_movable(&group), fill));
    run.map_all(&mut after, &mut rest)?;
    run.count_rows([&claimed, &before, &after], &left);
    run.outcome()
}

impl Run<'_, '_> {
    fn failed(&self, error: &FilesError) -> Failure {
        failed(self.volume, error)
    }

    /// Waits for a balance of one group that a power cut left and the mount went on with; refuses any other one.
    fn wait_for_last(&mut self) -> Result<Next, Failure> {
        loop {
            let finding = match standing(self.root).map_err(|error| self.failed(&error))? {
                Standing::Idle => return Ok(Next::Go),
                Standing::OneGroup if self.steering.next(&self.shown(Phase::Map)) == Next::Stop => {
                    return Ok(Next::Stop);
                }
                Standing::OneGroup => {
                    std::thread::park_timeout(LOOK);
                    continue;
                }
                Standing::Foreign => "a balance of somebody else is under way",
                Standing::Paused => "a balance of somebody else is paused",
            };
            return Err(in_use(self.volume, finding));
        }
    }

    fn shown(&self, phase: Phase) -> Progress {
        let bytes = self.counts.bytes_moved;
        Progress { phase, files: 0, bytes, bytes_planned: self.planned.max(bytes), bytes_saved: 0 }
    }

    /// Maps all groups, until a command ends it.
    fn map(&mut self, rows: &mut RowSet, mut each: impl FnMut(BlockGroup, Fill)) -> Result<Next, Failure> {
        for group in self.groups()? {
            if self.steering.next(&self.shown(Phase::Map)) == Next::Stop {
                return Ok(Next::Stop);
            }
            let fill = self.fill(&group, rows)?;
            each(group, fill);
        }
        self.reserve(rows);
        Ok(Next::Go)
    }

    /// Maps all groups, whatever is asked for.
    fn map_all(&mut self, rows: &mut RowSet, each: &mut dyn FnMut(BlockGroup, Fill)) -> Result<(), Failure> {
        for group in self.groups()? {
            let fill = self.fill(&group, rows)?;
            each(group, fill);
        }
        self.reserve(rows);
        Ok(())
    }

    /// Returns all groups, when what is in memory is written.
    fn groups(&self) -> Result<Vec<BlockGroup>, Failure> {
        free_bytes(self.root).map_err(|error| self.failed(&error))?;
        let mut groups = Vec::new();
        block_groups(self.root, &mut groups).map_err(|error| self.failed(&error))?;
        match groups.iter().find(|group| !group.is_whole) {
            None => Ok(groups),
            Some(group) => Err(Failure {
                code: FailureCode::Unsupported,
                message: format!(
                    "the file system at {} divides its block group at {} among devices; nothing was changed",
                    self.volume.record.mount_point.as_str(),
                    group.logical
                ),
                hint: "use a volume whose data has the profile single or DUP".to_owned(),
            }),
        }
    }

    fn reserve(&self, rows: &mut RowSet) {
        for range in RESERVED {
            rows.add(range.start / self.row_bytes..range.end.div_ceil(self.row_bytes));
        }
    }

    fn fill(&self, group: &BlockGroup, rows: &mut RowSet) -> Result<Fill, Failure> {
        let mut filling = Filling::of(group, self.row_bytes);
        let range = group.logical..group.logical.saturating_add(group.length);
        allocated(self.root, range, self.node_bytes, |extent| filling.add(&extent, rows))
            .map_err(|error| self.failed(&error))?;
        Ok(filling.finish())
    }

    /// Moves groups in their order, until a command or the room ends it.
    fn move_all(&mut self, candidates: Vec<(BlockGroup, Fill)>) -> Result<(), Failure> {
        self.planned =
            candidates.iter().fold(0u64, |sum, (_, fill)| sum.saturating_add(fill.used)).min(self.budget);
        let mut without_room = 0;
        for (group, _) in candidates {
            if self.counts.stopped || without_room == NO_ROOM_MAX {
                self.kept.insert(group.logical, self.reason_to_end());
                continue;
            }
            match self.move_group(&group)? {
                GroupEnd::Moved => without_room = 0,
                GroupEnd::Kept(reason) => {
                    without_room += u32::from(reason == KeptReason::NoRoom);
                    self.kept.insert(group.logical, reason);
                }
                GroupEnd::Stopped => {
                    self.counts.stopped = true;
                    self.kept.insert(group.logical, KeptReason::Changed);
                }
            }
        }
        Ok(())
    }

    fn reason_to_end(&self) -> KeptReason {
        if self.counts.stopped { KeptReason::Changed } else { KeptReason::NoRoom }
    }

    /// Moves a group, unless that no longer pays.
    fn move_group(&mut self, group: &BlockGroup) -> Result<GroupEnd, Failure> {
        let mut patience = PATIENCE_LOOKS;
        loop {
            if self.steering.next(&self.shown(Phase::Compact)) == Next::Stop {
                return Ok(GroupEnd::Stopped);
            }
            // What other groups held may have filled it.
            let fill = self.fill(group, &mut RowSet::new(0))?;
            if !pays(&fill) {
                return Ok(GroupEnd::Kept(KeptReason::Dense));
            }
            if fill.used > self.budget {
                return Ok(GroupEnd::Kept(KeptReason::Fitting));
            }
            if fill.used > 0 && !self.has_pool_room(fill.stored)? {
                return Ok(GroupEnd::Kept(KeptReason::NoRoom));
            }
            match self.moved(group, usage_percent(&fill, group.length), patience) {
                Ok(BalanceEnd::Moved) => {
                    self.count(&fill);
                    return Ok(GroupEnd::Moved);
                }
                // The file system frees empty groups by itself.
                Ok(BalanceEnd::Unmatched) if fill.used == 0 => return Ok(GroupEnd::Moved),
                Ok(BalanceEnd::Unmatched) => return Ok(GroupEnd::Kept(KeptReason::Changed)),
                Ok(BalanceEnd::NoRoom) => return Ok(GroupEnd::Kept(KeptReason::NoRoom)),
                Ok(BalanceEnd::Pinned) => return Ok(GroupEnd::Kept(KeptReason::Unmovable)),
                Ok(BalanceEnd::Cancelled) if self.steering.is_to_halt() => {
                    patience = patience.saturating_mul(2)
                }
                // Somebody else ended it, or has one of his own.
                Ok(BalanceEnd::Cancelled | BalanceEnd::Busy) => return Ok(GroupEnd::Stopped),
                Err(error) => return self.left_out(group, &error),
            }
        }
    }

    /// Leaves a group out that the kernel cannot read or write, unless no other one can be moved either.
    fn left_out(&mut self, group: &BlockGroup, error: &FilesError) -> Result<GroupEnd, Failure> {
        let is_read_only = dolmen_files::volume::is_read_only(self.root).unwrap_or(true);
        if is_read_only || error.is_unsupported() {
            return Err(self.failed(error));
        }
        let skipped = &mut self.counts.skipped;
        skipped.count = skipped.count.saturating_add(1);
        if skipped.first.len() < NAMED_MAX {
            skipped.first.push(format!("block group {}: {}", group.logical, with_causes(error)));
        }
        Ok(GroupEnd::Kept(KeptReason::Changed))
    }

    /// Returns whether the pool has room for what a group holds, after a trim if that makes it.
    fn has_pool_room(&mut self, bytes: u64) -> Result<bool, Failure> {
        let needed = bytes.saturating_add(POOL_ROOM_BYTES_MIN);
        if self.room.is_some_and(|room| room < needed) && self.to_trim > 0 {
            self.trim()?;
        }
        Ok(self.room.is_none_or(|room| room >= needed))
    }

    /// Discards what is free, and counts the rows that this gives back.
    fn trim(&mut self) -> Result<(), Failure> {
        let trimmed = trim_at_rest(self.root, 0).map_err(|error| self.failed(&error))?;
        self.counts.trimmed = self.counts.trimmed.saturating_add(trimmed);
        let given_back = std::mem::take(&mut self.to_trim);
        self.room = self.room.map(|room| room.saturating_add(given_back));
        Ok(())
    }

    fn count(&mut self, fill: &Fill) {
        self.counts.bytes_moved = self.counts.bytes_moved.saturating_add(fill.used);
        self.budget = self.budget.saturating_sub(fill.used);
        self.room = self.room.map(|room| room.saturating_sub(fill.stored));
        self.to_trim = self.to_trim.saturating_add(fill.rows_alone.saturating_mul(self.row_bytes));
    }

    /// Has the kernel move a group, and ends that for a command: at once for a stop, after so many looks for a pause.
    fn moved(
        &mut self,
        group: &BlockGroup,
        usage_percent: u64,
        patience: u32,
    ) -> Result<BalanceEnd, FilesError> {
        let (root, shown) = (self.root, self.shown(Phase::Compact));
        std::thread::scope(|scope| {
            let (sender, ended) = sync_channel(1);
            let thread = std::thread::Builder::new().name("balance".to_owned()).stack_size(STACK_BYTES);
            thread
                .spawn_scoped(scope, move || {
                    let _ = sender.send(balance(root, group, usage_percent));
                })
                .map_err(|source| FilesError { what: "have a thread for its balance", source })?;
            let mut paused_looks = 0;
            loop {
                match ended.recv_timeout(LOOK) {
                    Ok(end) => return end,
                    Err(RecvTimeoutError::Timeout) => {}
                    Err(RecvTimeoutError::Disconnected) => return Ok(BalanceEnd::Cancelled),
                }
                paused_looks = if self.steering.is_to_halt() { paused_looks + 1 } else { 0 };
                if paused_looks == 0 {
                    self.steering.show(&shown);
                }
                if paused_looks > patience || self.steering.is_to_stop() {
                    // One that has not begun yet is ended at the next look.
                    cancel(root)?;
                }
            }
        })
    }

    /// Counts rows by what was claimed, and what held anything before and after.
    fn count_rows(&mut self, sets: [&RowSet; 3], left: &[(u64, bool, Fill)]) {
        let ones = |words: u64| u64::from(words.count_ones());
        for [claimed, before, after] in RowSet::words(sets) {
            self.counts.rows_emptied += ones(claimed & before & !after);
            self.counts.rows_empty += ones(claimed & !before & !after);
            self.counts.rows_taken += ones(after & !claimed);
        }
        for (logical, is_movable, fill) in left.iter().filter(|(_, _, fill)| fill.rows_with_room > 0) {
            let usual = if *is_movable { KeptReason::Dense } else { KeptReason::Fixed };
            let why = self.kept.get(logical).copied().unwrap_or(usual);
            let (rows, first) = (fill.rows_with_room, fill.first_with_room);
            match self.counts.kept.iter_mut().find(|kept| kept.why == why) {
                Some(kept) => (kept.rows, kept.first) = (kept.rows + rows, kept.first.min(first)),
                None => self.counts.kept.push(KeptRows { why, rows, first }),
            }
        }
    }

    fn outcome(self) -> Result<Outcome, Failure> {
        let lacks_room = self.kept.values().any(|reason| *reason == KeptReason::NoRoom);
        if lacks_room && self.counts.bytes_moved == 0 && !self.counts.stopped {
            return Err(Failure {
                code: FailureCode::NoRoom,
                message: format!(
                    "the file system at {} has no room for what would be moved; what is free was discarded",
                    self.volume.record.mount_point.as_str()
                ),
                hint:
                    "free room in the volume or in its pool, or make one of them larger, and begin it again"
                        .to_owned(),
            });
        }
        Ok(Outcome::Compacted(self.counts))
    }
}

fn failed(volume: &Volume, error: &FilesError) -> Failure {
    let code = match () {
        () if error.is_unsupported() => FailureCode::Unsupported,
        () if error.is_full() => FailureCode::NoRoom,
        () => FailureCode::Refused,
    };
    Failure {
        code,
        message: format!("the file system at {}: {}", volume.record.mount_point.as_str(), with_causes(error)),
        hint: "what was moved stays, and is sound; `dmesg` shows what the kernel found".to_owned(),
    }
}

fn in_use(volume: &Volume, finding: &str) -> Failure {
    let at = volume.record.mount_point.as_str();
    Failure {
        code: FailureCode::InUse,
        message: format!("the file system at {at}: {finding}; nothing was changed"),
        hint: format!("`btrfs balance status {at}` shows it, and `btrfs balance cancel {at}` ends it"),
    }
}

/// Returns the rows of the space of an order.
fn rows_of(order: &Order<'_>, memory_bytes: usize) -> Result<u64, Failure> {
    let row_bytes = order.occupancy.row_bytes;
    let bad = |message: String| Failure { code: FailureCode::BadOrder, message, hint: String::new() };
    if !row_bytes.is_power_of_two() || row_bytes < 4096 {
        return Err(bad(format!("a row of {row_bytes} bytes is no power of two from 4096 on")));
    }
    let device = File::open(&order.volume.device).and_then(|mut device| device.seek(SeekFrom::End(0)));
    let bytes = device.map_err(|error| Failure {
        code: FailureCode::BadPath,
        message: format!("device {}: {error}; nothing was changed", order.volume.device.display()),
        hint: String::new(),
    })?;
    let rows = bytes.div_ceil(row_bytes);
    if RowSet::bytes(rows).saturating_mul(3) > u64::try_from(memory_bytes).unwrap_or(u64::MAX) {
        return Err(bad(format!(
            "{rows} rows of {row_bytes} bytes take more than the memory of {memory_bytes} bytes; nothing was changed"
        )));
    }
    Ok(rows)
}

fn is_movable(group: &BlockGroup) -> bool {
    group.is_data && group.is_whole
}

/// Returns whether to move what a group holds gives more rows back than it may take.
fn pays(fill: &Fill) -> bool {
    fill.used == 0 || u128::from(fill.stored) * 100 < u128::from(fill.touched) * u128::from(LIVE_PERCENT_MAX)
}

/// Returns the part of its rows that a group holds, in millionths.
fn live_parts(fill: &Fill) -> u128 {
    u128::from(fill.stored) * 1_000_000 / u128::from(fill.touched.max(1))
}

/// Returns the part of a group that is used at most when it is moved.
fn usage_percent(fill: &Fill, length: u64) -> u64 {
    let used = u128::from(fill.used) * 100 / u128::from(length.max(1));
    u64::try_from(used).unwrap_or(100).saturating_add(GROWTH_PERCENT).min(100)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_whose_rows_hold_three_quarters_are_not_moved() {
        let fill = |stored, touched| Fill { used: stored, stored, touched, ..Fill::default() };
        assert!(pays(&fill(0, 0)), "an empty group costs nothing");
        assert!(pays(&fill(74, 100)));
        assert!(!pays(&fill(75, 100)));
        assert!(!pays(&fill(10, 10)), "its rows are full, and the rest of it holds no row");
        assert!(live_parts(&fill(1, 3)) < live_parts(&fill(2, 3)));
        assert_eq!(usage_percent(&fill(30, 50), 100), 32);
        assert_eq!(usage_percent(&fill(99, 50), 100), 100);
        assert_eq!(usage_percent(&Fill::default(), 0), 2);
    }
}
