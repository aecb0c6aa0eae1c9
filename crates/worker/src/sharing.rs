//! Deduplication, its estimate and its undo.

use std::fs::File;
use std::path::Path;

use dolmen_dedup::{
    BACKGROUND_CALL_BYTES, Exclusion, FileError, FileId, Files, Policy, RunError, Sample, SharedSum,
    THROUGHPUT_CALL_BYTES, follow_undos, mark_moved,
};
use dolmen_dedup::{Control, Next, Phase};
use dolmen_files::FilesError;
use dolmen_mutation::mutation;
use dolmen_volume::file_system::FileSystem;
use dolmen_volume::mount_point::Folder;
use dolmen_volume::record::DeduplicationMode;
use rustix::time::{ClockId, clock_gettime};

use crate::free_room::{free_at_rest, free_bytes};
use crate::limits::limit;
use crate::protocol::long::{Deduplicated, Estimated, Load, SampleSize, Selection, Undone};
use crate::protocol::{Failure, FailureCode, Outcome, Volume};
use crate::state_folder::StateFolder;
use crate::steering::{Steering, with_causes};
use crate::volume_files::VolumeFiles;

const MILLION: f64 = 1_000_000.0;

/// Fails unless the file system of a volume can share extents.
pub(crate) fn require_sharing(volume: &Volume, root: &File) -> Result<(), Failure> {
    let refused = |finding: &str, hint: &str| Failure {
        code: FailureCode::Unsupported,
        message: format!(
            "the file system at {}: {finding}; nothing was changed",
            volume.record.mount_point.as_str()
        ),
        hint: hint.to_owned(),
    };
    match volume.record.file_system {
        FileSystem::Btrfs => Ok(()),
        FileSystem::Ext4 => Err(refused("ext4 files share no bytes", "use a volume on XFS or btrfs")),
        FileSystem::Xfs => match dolmen_files::volume::xfs_geometry(root) {
            Ok(geometry) if geometry.has_reflink => Ok(()),
            Ok(_) => Err(refused("it was made without reflink", "make a volume with `-m reflink=1`")),
            Err(error) => Err(refused(&error.to_string(), "mount the volume of the record there")),
        },
    }
}

/// Words an end of a run before its time.
pub(crate) fn run_failure(volume: &Volume, error: &RunError) -> Failure {
    let code = match error {
        RunError::Scratch(_) => FailureCode::BadPath,
        RunError::List(error) => return file_failure(volume, error),
        RunError::Trim(_) => FailureCode::Refused,
        RunError::TooManyRows { .. } | RunError::RowLength { .. } => FailureCode::BadOrder,
    };
    let message = format!("volume at {}: {}", volume.record.mount_point.as_str(), with_causes(error));
    Failure { code, message, hint: NEXT_STEP.to_owned() }
}

/// Hint about a run that the file system of its volume, or the folder of its state, ended.
const NEXT_STEP: &str =
    "what was done stays, and is sound; `dmesg` shows what the kernel found; begin it again then";

/// Words a failure of a call on a file.
pub(crate) fn file_failure(volume: &Volume, error: &FileError) -> Failure {
    let code = match error {
        FileError::NoRoom { .. } => FailureCode::NoRoom,
        FileError::Deleted { .. } | FileError::Failed { .. } => FailureCode::Refused,
    };
    let message = format!("volume at {}: {}", volume.record.mount_point.as_str(), with_causes(error));
    let hint = match error {
        FileError::NoRoom { .. } => {
            "free room in the volume or in its pool, or make one of them larger, and begin it again"
        }
        FileError::Deleted { .. } | FileError::Failed { .. } => NEXT_STEP,
    };
    Failure { code, message, hint: hint.to_owned() }
}

pub(crate) fn call_bytes(mode: DeduplicationMode) -> u64 {
    match mode {
        DeduplicationMode::Background => BACKGROUND_CALL_BYTES,
        DeduplicationMode::Throughput => THROUGHPUT_CALL_BYTES,
    }
}

/// Files and settings of a run.
fn prepare(
    volume: &Volume,
    root: File,
    selection: &Selection,
    load: &Load,
) -> Result<(VolumeFiles, Policy), Failure> {
    require_sharing(volume, &root)?;
    let memory_bytes = limit(load)?;
    let folders = selection.excluded_folders.iter();
    let folders = folders.map(|folder| Exclusion::Folder(folder.as_str().to_owned()));
    let names = selection.excluded_names.iter().cloned().map(Exclusion::Name);
    let files = VolumeFiles::new(root, folders.chain(names).collect())
        .map_err(|error| file_failure(volume, &error))?;
    let now = clock_gettime(ClockId::Realtime);
    let policy = Policy {
        now_ns: now.tv_sec.saturating_mul(1_000_000_000).saturating_add(now.tv_nsec),
        age_min_ns: i64::try_from(selection.age_seconds_min)
            .unwrap_or(i64::MAX)
            .saturating_mul(1_000_000_000),
        size_min: selection.file_bytes_min,
        excluded: Vec::new(),
        memory_bytes,
        call_bytes: call_bytes(load.mode),
    };
    Ok((files, policy))
}

fn looked(volume: &Volume, free: Result<u64, FilesError>) -> Result<u64, Failure> {
    free.map_err(|error| Failure {
        code: FailureCode::Refused,
        message: format!("volume at {}: {}", volume.record.mount_point.as_str(), with_causes(&error)),
        hint: String::new(),
    })
}

/// Shares equal content.
pub(crate) fn deduplicate(
    (volume, root): (&Volume, File),
    (selection, load): (&Selection, &Load),
    (state, undos): (&Path, u64),
    steering: &mut Steering<'_>,
) -> Result<Outcome, Failure> {
    let (mut files, policy) = prepare(volume, root, selection, load)?;
    let mut state = StateFolder::open(state)?;
    follow_undos(&mut state, undos).map_err(|error| run_failure(volume, &error.into()))?;
    let before = looked(volume, free_bytes(files.root()))?;
    let counts = dolmen_dedup::deduplicate(&mut files, &mut state, steering, &policy)
        .map_err(|error| run_failure(volume, &error))?;
    Ok(Outcome::Deduplicated(Deduplicated {
        files: counts.files,
        files_read: counts.files_read,
        bytes_read: counts.bytes_read,
        planned: counts.planned_bytes,
        left_out: counts.left_out_bytes,
        shared: counts.shared_bytes,
        differing: counts.differing,
        saved: counts.saved_bytes,
        encoded: counts.encoded_bytes,
        freed: looked(volume, free_at_rest(files.root()))?.saturating_sub(before),
        held: counts.held_bytes,
        folders_left_out: files.left_out(),
        skipped: steering.take_skipped(),
        stopped: counts.stopped,
    }))
}

/// Estimates what [`deduplicate`] would free.
pub(crate) fn estimate(
    volume: &Volume,
    root: File,
    (selection, load): (&Selection, &Load),
    state: &Path,
    sample: Option<SampleSize>,
    steering: &mut Steering<'_>,
) -> Result<Outcome, Failure> {
    let (mut files, policy) = prepare(volume, root, selection, load)?;
    let mut state = StateFolder::open(state)?;
    let sample = sample.map_or_else(Sample::default, |size| Sample {
        part: (f64::from(size.part_ppm) / MILLION).min(1.0),
        bytes_min: size.bytes_min,
    });
    let found = dolmen_dedup::estimate(&mut files, &mut state, steering, &policy, sample)
        .map_err(|error| run_failure(volume, &error))?;
    let Some(found) = found else { return Ok(Outcome::Stopped) };
    Ok(Outcome::Estimated(Estimated {
        files: found.files,
        bytes: found.bytes,
        sample_bytes: found.sample_bytes,
        saving_ppm: ppm(found.saving),
        low_ppm: ppm(found.low),
        high_ppm: ppm(found.high),
        skipped: steering.take_skipped(),
    }))
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // between 0 and a million
fn ppm(part: f64) -> u32 {
    (part.clamp(0.0, 1.0) * MILLION).round() as u32
}

/// Files that an undo goes over: all of the volume, or those of some paths.
struct Scope<'a> {
    volume: &'a Volume,
    paths: &'a [Folder],
}

impl Scope<'_> {
    /// Shows each file, and returns whether `each` went over all of them.
    fn each(
        &self,
        files: &mut VolumeFiles,
        mut each: impl FnMut(&mut VolumeFiles, FileId) -> Result<Next, Failure>,
    ) -> Result<Next, Failure> {
        let failed = |error: &FileError| file_failure(self.volume, error);
        let mut batch = Vec::new();
        for at in 0..self.paths.len().max(1) {
            if let Some(path) = self.paths.get(at) {
                let selected = files.select(Path::new(path.as_str()));
                let selected = selected.map_err(|error| Failure {
                    code: FailureCode::BadPath,
                    message: format!("{:?} of the volume: {}", path.as_str(), with_causes(&error)),
                    hint: "name a file or folder of the volume, without symbolic links".to_owned(),
                })?;
                if let Some(file) = selected {
                    if each(files, file)? == Next::Stop {
                        return Ok(Next::Stop);
                    }
                    continue;
                }
            }
            files.rewind().map_err(|error| failed(&error))?;
            let mut more = true;
            while more {
                batch.clear();
                more = files.list(&mut batch).map_err(|error| failed(&error))?;
                for info in &batch {
                    if each(files, info.id)? == Next::Stop {
                        return Ok(Next::Stop);
                    }
                }
            }
        }
        Ok(Next::Go)
    }
}

/// An undo: what gets bytes of its own, and what that may take.
pub(crate) struct UndoOrder<'a> {
    pub(crate) volume: &'a Volume,
    pub(crate) paths: &'a [Folder],
    pub(crate) load: &'a Load,
    pub(crate) state: &'a Path,
    pub(crate) pool_room_bytes: Option<u64>,
}

/// Gives files bytes of their own.
pub(crate) fn undo(
    order: &UndoOrder<'_>,
    root: File,
    steering: &mut Steering<'_>,
) -> Result<Outcome, Failure> {
    let UndoOrder { volume, paths, load, state, pool_room_bytes } = *order;
    require_sharing(volume, &root)?;
    let memory_bytes = limit(load)?;
    let mut state = StateFolder::open(state)?;
    let mut files = VolumeFiles::new(root, Vec::new()).map_err(|error| file_failure(volume, &error))?;
    let scope = Scope { volume, paths };
    let mut undone = Undone::default();
    let mut sum = SharedSum::new(memory_bytes);
    let next = scope.each(&mut files, |files, file| {
        // What is skipped is found again below.
        let _ = sum.add(files, &mut state, file).map_err(|error| run_failure(volume, &error.into()))?;
        let phase = Phase::Map;
        Ok(steering.next(&dolmen_dedup::Progress {
            phase,
            files: 0,
            bytes: 0,
            bytes_planned: 0,
            bytes_saved: 0,
        }))
    })?;
    if next == Next::Stop {
        return Ok(Outcome::Undone(Undone { stopped: true, ..undone }));
    }
    let sum = sum.finish(&mut state).map_err(|error| run_failure(volume, &error.into()))?;
    // Of files that share bytes with one another alone, the last one keeps them. Files of some paths may share all with others.
    let planned = if paths.is_empty() { sum.read.saturating_sub(sum.stored) } else { sum.read };
    require_room(volume, files.root(), planned)?;
    require_pool_room(volume, planned, pool_room_bytes)?;
    let before = looked(volume, free_bytes(files.root()))?;
    mark_moved(&mut state).map_err(|error| run_failure(volume, &error.into()))?;
    let call_bytes = call_bytes(load.mode);
    let next = scope.each(&mut files, |files, file| {
        steering.set_whole(undone.bytes, planned);
        match dolmen_dedup::undo(files, steering, file, call_bytes) {
            Ok(of_file) => {
                undone.files = undone.files.saturating_add(u64::from(of_file.bytes > 0));
                undone.bytes = undone.bytes.saturating_add(of_file.bytes);
                undone.differing = undone.differing.saturating_add(of_file.differing);
                Ok(if of_file.stopped { Next::Stop } else { Next::Go })
            }
            Err(error @ FileError::NoRoom { .. }) => Err(file_failure(volume, &error)),
            Err(error) => {
                steering.skipped(file, error.into());
                Ok(Next::Go)
            }
        }
    })?;
    undone.taken = before.saturating_sub(looked(volume, free_at_rest(files.root()))?);
    undone.stopped = next == Next::Stop;
    undone.skipped = steering.take_skipped();
    Ok(Outcome::Undone(undone))
}

/// Fails if the pool cannot hold the copies that an undo makes on a thin space: its full pool fails the writes of all clients, also
/// those that the file system has acknowledged and not flushed.
fn require_pool_room(volume: &Volume, needed: u64, room: Option<u64>) -> Result<(), Failure> {
    let Some(room) = room.filter(|room| needed > *room && !mutation!(UndoBeyondPool)) else { return Ok(()) };
    Err(Failure {
        code: FailureCode::NoRoom,
        message: format!(
            "volume at {}: own copies need {needed} bytes, and its pool has room for {room}; nothing was changed",
            volume.record.mount_point.as_str(),
        ),
        hint: "trim the volume, add a disk to its pool, or undo fewer folders".to_owned(),
    })
}

/// Fails if a volume cannot hold the copies that an undo makes.
fn require_room(volume: &Volume, root: &File, needed: u64) -> Result<(), Failure> {
    let found = dolmen_files::volume::usage(root).map_err(|error| Failure {
        code: FailureCode::Refused,
        message: format!("volume at {}: {error}", volume.record.mount_point.as_str()),
        hint: String::new(),
    })?;
    if needed <= found.available {
        return Ok(());
    }
    Err(Failure {
        code: FailureCode::NoRoom,
        message: format!(
            "volume at {}: own copies need {needed} bytes, and {} are free; nothing was changed",
            volume.record.mount_point.as_str(),
            found.available
        ),
        hint: "grow the volume, or undo fewer folders".to_owned(),
    })
}
