//! Compaction: rows of the space that hold little are emptied, and a trim gives them back.

use std::fs::File;
use std::path::Path;

use dolmen_dedup::{CompactPolicy, RowKept};
use dolmen_files::volume::xfs_geometry;
use dolmen_volume::file_system::FileSystem;

use crate::balance;
use crate::limits::limit;
use crate::protocol::long::{Claimed, Compacted, KeptReason, KeptRows, Load, Occupancy};
use crate::protocol::{Failure, FailureCode, Outcome, Volume};
use crate::sharing::{call_bytes, file_failure, require_sharing, run_failure};
use crate::state_folder::StateFolder;
use crate::steering::Steering;
use crate::volume_files::VolumeFiles;

/// An order of a compaction.
pub(crate) struct Order<'a> {
    pub(crate) volume: &'a Volume,
    pub(crate) occupancy: &'a Occupancy,
    pub(crate) budget_bytes: Option<u64>,
    pub(crate) pool_room_bytes: Option<u64>,
    pub(crate) load: &'a Load,
    pub(crate) state: &'a Path,
}

/// Empties rows and gives them back.
pub(crate) fn compact(
    order: &Order<'_>,
    root: File,
    steering: &mut Steering<'_>,
) -> Result<Outcome, Failure> {
    let volume = order.volume;
    require_sharing(volume, &root)?;
    if volume.record.file_system == FileSystem::Btrfs {
        return balance::compact(order, &root, steering);
    }
    if !xfs_geometry(&root).is_ok_and(|geometry| geometry.has_reverse_map) {
        return Err(Failure {
            code: FailureCode::Unsupported,
            message: format!(
                "the file system at {} does not name the owner of each block; nothing was changed",
                volume.record.mount_point.as_str()
            ),
            hint: "XFS does if it was made with `-m rmapbt=1`".to_owned(),
        });
    }
    let claimed = claimed_rows(&order.occupancy.claimed)?;
    let memory_bytes = limit(order.load)?;
    let mut files = VolumeFiles::new(root, Vec::new()).map_err(|error| file_failure(volume, &error))?;
    let mut state = StateFolder::open(order.state)?;
    let policy = CompactPolicy {
        row_bytes: order.occupancy.row_bytes,
        claimed,
        budget_bytes: order.budget_bytes.unwrap_or(u64::MAX),
        memory_bytes,
        call_bytes: call_bytes(order.load.mode),
    };
    let counts = dolmen_dedup::compact(&mut files, &mut state, steering, &policy)
        .map_err(|error| run_failure(volume, &error))?;
    Ok(Outcome::Compacted(Compacted {
        rows_emptied: counts.rows_emptied,
        rows_empty: counts.rows_empty,
        rows_taken: counts.rows_taken,
        bytes_moved: counts.bytes_moved,
        trimmed: counts.trimmed,
        kept: counts
            .kept
            .into_iter()
            .map(|(why, rows, first)| KeptRows { why: reason(why), rows, first })
            .collect(),
        skipped: steering.take_skipped(),
        stopped: counts.stopped,
    }))
}

/// Reads and checks the ranges of claimed rows.
pub(crate) fn claimed_rows(claimed: &Claimed) -> Result<Vec<std::ops::Range<u64>>, Failure> {
    let bad = |code, message: String| Failure { code, message, hint: String::new() };
    let read;
    let ranges = match claimed {
        Claimed::Ranges(ranges) => ranges,
        Claimed::File(path) => {
            let bytes = std::fs::read(path).map_err(|error| {
                bad(FailureCode::BadPath, format!("claimed rows in {}: {error}", path.display()))
            })?;
            read = serde_json::from_slice::<Vec<(u64, u64)>>(&bytes).map_err(|error| {
                bad(FailureCode::BadOrder, format!("claimed rows in {}: {error}", path.display()))
            })?;
            &read
        }
    };
    if let Some((first, end)) = ranges.iter().find(|(first, end)| first >= end) {
        return Err(bad(
            FailureCode::BadOrder,
            format!("the range of claimed rows from {first} to {end} has no row; nothing was changed"),
        ));
    }
    Ok(ranges.iter().map(|(first, end)| *first..*end).collect())
}

fn reason(why: RowKept) -> KeptReason {
    match why {
        RowKept::Fixed => KeptReason::Fixed,
        RowKept::Unmovable => KeptReason::Unmovable,
        RowKept::Owners => KeptReason::Owners,
        RowKept::Fitting => KeptReason::Fitting,
        RowKept::NoRoom => KeptReason::NoRoom,
        RowKept::Changed => KeptReason::Changed,
    }
}
