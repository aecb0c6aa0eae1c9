//! Steps of a compaction of a volume.
//!
//! XFS is compacted by the worker, file by file. btrfs is balanced by its kernel, a block group at a time. Each ends in a trim.

use dolmen_api::ErrorCode;
use dolmen_units::Bytes;
use dolmen_volume::file_system::FileSystem;
use dolmen_volume::record::DeduplicationMode;
use dolmen_worker::protocol::long::{Claimed, Compacted, KeptReason, KeptRows, Occupancy};
use dolmen_worker::protocol::{Operation, Outcome as Done};

use crate::answer::Answer;
use crate::fault;
use crate::jobs::Outcome;
use crate::volumes::dedup::Dedups;
use crate::volumes::dedup_run::{Run, ended_early, released, unexpected};
use crate::volumes::pool_room::pool_room;
use crate::volumes::workers::Wait;

/// Ranges of claimed rows that one read of the map brings, at most.
const RANGES_PER_PAGE: usize = 4096;
/// Ranges of claimed rows of an order, at most; rows behind them are not emptied by this run.
const RANGES_MAX: usize = 1 << 16;

impl Dedups {
    /// Empties rows that hold little, and counts what the pool got back.
    pub(super) async fn compact(&self, run: &Run<'_>, budget_bytes: Option<u64>) -> Answer<Outcome> {
        let name = &run.volume.name;
        run.state.note(|reached| {
            reached.claimed_before.get_or_insert(run.volume.space.claimed().0);
        });
        let given = match run.volume.record.file_system {
            FileSystem::Btrfs => self.balance(run, budget_bytes).await?,
            FileSystem::Xfs | FileSystem::Ext4 => {
                self.release(run, budget_bytes, DeduplicationMode::Background).await?
            }
        };
        if run.steer.is_interrupted() {
            return Ok(ended_early(run.steer, name, "rows that are empty stay empty"));
        }
        self.wait_for_rest(run).await;
        let bytes = released(&run.state.reached.borrow(), run.volume.space.claimed());
        let pool = run.volume.pool.name();
        let text = format!("{} given back to pool {pool}{}", Bytes(bytes), given.words());
        if run.state.lacks_pool_room.get() {
            return Ok(Outcome::Done(format!("{text}; pool {pool} has too little room for more")));
        }
        match run.steer.is_stopped() {
            true => Ok(Outcome::CalledOff(format!("by then {text}"))),
            false => Ok(Outcome::Done(text)),
        }
    }

    /// Empties rows of XFS, and discards free room.
    pub(super) async fn release(
        &self,
        run: &Run<'_>,
        budget_bytes: Option<u64>,
        mode: DeduplicationMode,
    ) -> Answer<Released> {
        if run.volume.record.file_system == FileSystem::Xfs {
            let operation = Operation::Compact {
                volume: run.volume.for_worker(run.device.clone()),
                occupancy: self.occupancy(run).await?,
                budget_bytes,
                load: run.load(mode),
                state: self.volumes.workers.state_folder(run.volume.key),
                pool_room_bytes: None,
            };
            match self.long(run, operation).await {
                Ok(Done::Compacted(counts)) => return Ok(Released::Compacted(counts)),
                Ok(Done::Stopped) => return Ok(Released::Nothing),
                Ok(other) => return Err(unexpected(run, &other)),
                // An XFS that does not name owners of blocks is trimmed alone.
                Err(error) if error.code == ErrorCode::Unsupported => {}
                Err(error) => return Err(error),
            }
        }
        self.trim(run).await
    }

    /// Has the kernel move block groups of btrfs that hold little, and discards free room before and after.
    ///
    /// A group is copied before its rows come back. So what is free is given back first, and the worker is told the room of the pool.
    async fn balance(&self, run: &Run<'_>, budget_bytes: Option<u64>) -> Answer<Released> {
        let trimmed = self.trim(run).await?;
        self.wait_for_rest(run).await;
        self.go_on_when_released(run).await;
        if run.steer.is_stopped() {
            return Ok(trimmed);
        }
        run.state.is_balancing.set(true);
        let operation = Operation::Compact {
            volume: run.volume.for_worker(run.device.clone()),
            occupancy: self.occupancy(run).await?,
            budget_bytes,
            load: run.load(DeduplicationMode::Background),
            state: self.volumes.workers.state_folder(run.volume.key),
            pool_room_bytes: pool_room(&run.volume.pool, &run.volume.space).await,
        };
        match self.long(run, operation).await? {
            Done::Compacted(counts) => Ok(Released::Compacted(counts)),
            Done::Stopped => Ok(trimmed),
            other => Err(unexpected(run, &other)),
        }
    }

    async fn trim(&self, run: &Run<'_>) -> Answer<Released> {
        let operation = Operation::Trim { volume: run.volume.for_worker(run.device.clone()), minimum: 0 };
        let (key, name) = (run.volume.key, run.volume.name.as_str());
        match self.volumes.workers.run(key, name, operation, Wait::UntilDone).await? {
            Done::Trimmed { .. } => Ok(Released::TrimmedAlone(run.volume.record.file_system)),
            other => Err(unexpected(run, &other)),
        }
    }

    /// Returns which rows of the space are claimed.
    async fn occupancy(&self, run: &Run<'_>) -> Answer<Occupancy> {
        let space = &run.volume.space;
        let (mut ranges, mut from) = (Vec::new(), Some(0));
        while let Some(first) = from.filter(|_| ranges.len() < RANGES_MAX) {
            let page = space.claimed_rows(first, RANGES_PER_PAGE).await;
            let page = page.map_err(|error| fault::space(&error).on(&run.volume.name))?;
            ranges.extend(page.ranges.into_iter().map(|range| (range.start, range.end)));
            from = page.next;
        }
        Ok(Occupancy { row_bytes: space.row_bytes(), claimed: Claimed::Ranges(ranges) })
    }
}

/// How room was given back.
pub(super) enum Released {
    /// By a compaction and a trim.
    Compacted(Compacted),
    /// By a trim of this file system.
    TrimmedAlone(FileSystem),
    /// Not at all: a command came before.
    Nothing,
}

impl Released {
    pub(super) fn words(&self) -> String {
        match self {
            Self::Compacted(counts) => compacted_words(counts),
            Self::TrimmedAlone(FileSystem::Btrfs) => {
                "; free room was discarded; `dolmen volume compact` empties rows that hold little".to_owned()
            }
            Self::TrimmedAlone(FileSystem::Xfs | FileSystem::Ext4) => {
                "; free room was discarded, and no row was emptied: compaction needs XFS with rmapbt"
                    .to_owned()
            }
            Self::Nothing => String::new(),
        }
    }
}

fn compacted_words(counts: &Compacted) -> String {
    let rows = |is_counted: &dyn Fn(&KeptRows) -> bool| -> u64 {
        counts.kept.iter().filter(|one| is_counted(one)).map(|one| one.rows).sum()
    };
    let kept = match (rows(&|_| true), rows(&|one| one.why == KeptReason::NoRoom)) {
        (0, _) => String::new(),
        (kept, 0) => format!(", {kept} rows stay"),
        (kept, without_room) => format!(", {kept} rows stay, {without_room} of them for lack of room"),
    };
    let left_out = match (counts.skipped.count, counts.skipped.first.first()) {
        (0, _) | (_, None) => String::new(),
        (count, Some(first)) => format!("; {count} were left out, such as {first}"),
    };
    format!("; {} rows emptied, {} moved{kept}{left_out}", counts.rows_emptied, Bytes(counts.bytes_moved))
}

#[cfg(test)]
mod tests {
    use dolmen_worker::protocol::long::SkippedFiles;

    use super::*;

    /// A compaction that found no room for a part of the rows says so, and names a block group that could not be read.
    #[test]
    fn the_words_of_a_compaction_have_its_reasons() {
        let kept = |why, rows| KeptRows { why, rows, first: 0 };
        let mut counts = Compacted { rows_emptied: 7, bytes_moved: 3 << 20, ..Compacted::default() };
        assert_eq!(compacted_words(&counts), "; 7 rows emptied, 3 MiB moved");
        counts.kept = vec![kept(KeptReason::Dense, 4)];
        assert_eq!(compacted_words(&counts), "; 7 rows emptied, 3 MiB moved, 4 rows stay");
        counts.kept.push(kept(KeptReason::NoRoom, 2));
        counts.skipped = SkippedFiles { count: 1, first: vec!["block group 5: an error".to_owned()] };
        assert_eq!(
            compacted_words(&counts),
            "; 7 rows emptied, 3 MiB moved, 6 rows stay, 2 of them for lack of room; 1 were left out, such as block group 5: an error"
        );
    }
}
