//! Deduplication and compaction of volumes, as requests ask for them.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use dolmen_api::{
    Change, CompactVolume, Dedup, DedupRun, DedupWork, EnableDedup, ErrorBody, ErrorCode, EstimateDedup,
    RunDedup, SCHEMA, UndoDedup,
};
use dolmen_attach::SpaceKey;
use dolmen_block_io::within;
use dolmen_units::Bytes;
use dolmen_volume::file_system::FileSystem;
use dolmen_volume::mount_point::Folder;
use dolmen_volume::record::{DeduplicationMode, DeduplicationRun};
use dolmen_volume::schedule::Schedule;
use dolmen_worker::protocol::{Operation, Outcome};

use crate::answer::Answer;
use crate::jobs::{Aim, Entry, Start, seconds_now};
use crate::open_pool::OpenPool;
use crate::plan::{Undo, made, planned};
use crate::volumes::dedup_policy::{folder_of, shown_policy, wanted};
use crate::volumes::dedup_task::{COMPACT, DEDUP, ESTIMATE, LongState, PATHS_TEXT_MAX, Task, UNDO};
use crate::volumes::host::utc_offset_minutes;
use crate::volumes::locks::Lane;
use crate::volumes::records;
use crate::volumes::service::{Volumes, pool_to_change};
use crate::volumes::view::shown;
use crate::volumes::volume::Volume;
use crate::volumes::words::{kind_of, mode_of, shown_mode, step_word};
use crate::volumes::workers::Wait;

/// Time that a request waits for a look for paths.
const LOOK_LIMIT: Duration = Duration::from_secs(5);

/// Deduplication and compaction of volumes.
pub(crate) struct Dedups {
    pub(super) volumes: Rc<Volumes>,
    /// Distance of the local time from UTC when the host told it last.
    utc_offset: LastKnown,
}

/// The distance of the local time from UTC in minutes, as the host told it last.
#[derive(Debug, Default)]
struct LastKnown(Cell<Option<i32>>);

impl LastKnown {
    /// Returns what was asked for now, or else what is known of before; none if nothing is.
    fn or_kept(&self, asked: std::io::Result<i32>) -> Option<i32> {
        match asked {
            Ok(offset) => self.0.set(Some(offset)),
            Err(error) => {
                tracing::warn!(%error, kept = ?self.0.get(), "the host does not tell its local time now");
            }
        }
        self.0.get()
    }
}

impl Dedups {
    pub(crate) fn new(volumes: &Rc<Volumes>) -> Self {
        Self { volumes: Rc::clone(volumes), utc_offset: LastKnown::default() }
    }

    /// Shows the deduplication of a volume.
    pub(crate) async fn show_dedup(&self, pool: String, space: String) -> Answer<Dedup> {
        let pool = self.volumes.pools.pool(&pool)?;
        let volume = self.volumes.find(&pool, &space).await?;
        let record = &volume.record;
        let schedule = record.schedules.deduplication;
        let policy = record.deduplication.as_ref();
        let next_s = match policy {
            Some(_) => self.next_of(schedule).await,
            None => None,
        };
        let last = records::read_run(&volume.space).await?;
        Ok(Dedup {
            schema: SCHEMA,
            pool: pool.name(),
            name: volume.space.name().to_string(),
            file_system: kind_of(record.file_system),
            unsupported: why_not(record.file_system).map(str::to_owned),
            policy: policy.map(|policy| shown_policy(policy, schedule)),
            next_s,
            last: last.as_ref().map(shown_run),
            work: self.work_on(&volume),
            now_s: seconds_now(),
        })
    }

    /// Returns the seconds from 1970 to the next run of a schedule.
    async fn next_of(&self, schedule: Schedule) -> Option<u64> {
        if schedule == Schedule::Never {
            return None;
        }
        let offset = self.utc_offset().await?;
        let now = i64::try_from(seconds_now() / 60).ok()?;
        let next = schedule.next(now, offset).ok().flatten()?;
        u64::try_from(next.checked_mul(60)?).ok()
    }

    /// Returns the distance of the local time from UTC in minutes; none as long as the host has never told it.
    pub(super) async fn utc_offset(&self) -> Option<i32> {
        self.utc_offset.or_kept(self.volumes.looks.run(utc_offset_minutes).await)
    }

    /// Returns the job of a volume that is one of these, unless it has ended.
    pub(super) fn job_of(&self, key: SpaceKey) -> Option<Rc<Entry>> {
        let aim = Aim::Volume(key.space);
        let is_one = |entry: &Rc<Entry>| {
            entry.aim == aim && [&DEDUP, &COMPACT, &UNDO, &ESTIMATE].into_iter().any(|kind| entry.is(kind))
        };
        self.volumes.jobs.unfinished_of(key.pool).into_iter().find(is_one)
    }

    fn work_on(&self, volume: &Volume) -> Option<DedupWork> {
        let entry = self.job_of(volume.key)?;
        let steer = self.volumes.steered.borrow().get(&volume.key).cloned();
        let is_at_work = self.volumes.workers.at_work(volume.key).is_some();
        let progress = steer.and_then(|steer| steer.progress()).filter(|_| is_at_work);
        let state = entry.course().own::<LongState>();
        let before = state.map_or(0, |state| state.reached.borrow().saved);
        let saving = progress.filter(|_| state.is_some_and(LongState::shares)).map_or(0, |one| one.saved);
        Some(DedupWork {
            job: entry.id,
            step: progress.map(|progress| step_word(progress.step).to_owned()),
            done_bytes: progress.map_or(0, |progress| progress.done),
            total_bytes: progress.map_or(0, |progress| progress.total),
            files: progress.map_or(0, |progress| progress.files),
            saved_bytes: before.saturating_add(saving),
            is_yielding: state.is_some_and(|state| state.is_yielding.get()),
        })
    }

    /// Sets the policy of a volume, or takes it away.
    pub(crate) async fn enable_dedup(
        &self,
        pool: String,
        space: String,
        request: EnableDedup,
    ) -> Answer<Change> {
        let pool = pool_to_change(&self.volumes.pools, &pool)?;
        let volume = self.volumes.find(&pool, &space).await?;
        let name = volume.name.clone();
        if !request.off {
            check_sharing(volume.record.file_system, &name)?;
        }
        self.volumes.check_made(&volume)?;
        let change_of = |volume: &Volume| {
            let record = &volume.record;
            wanted(&request, record.deduplication.as_ref(), &record.schedules, &name)
        };
        let (policy, schedule) = change_of(&volume)?;
        let (step, undo) = match &policy {
            Some(policy) => {
                let mode = match policy.mode {
                    DeduplicationMode::Background => "in the background",
                    DeduplicationMode::Throughput => "as fast as it can",
                };
                let step = format!(
                    "deduplicate {name} {schedule}, {mode}: files of {} and more that did not change for {} days",
                    Bytes(policy.file_bytes_min),
                    policy.age_days_min
                );
                (step, format!("dolmen dedup enable {name} --off"))
            }
            None => {
                let step = format!("end the deduplication of {name}; bytes that are shared stay shared");
                (step, format!("dolmen dedup enable {name}"))
            }
        };
        let plan = pool.plan(Undo::By(undo), vec![step]);
        let warnings = self.warnings(&volume, &request).await;
        let is_same =
            volume.record.deduplication == policy && volume.record.schedules.deduplication == schedule;
        if is_same {
            let plan = pool.plan(Undo::NotNeeded, Vec::new());
            let message = format!("volume {name} has that policy already");
            return Ok(Change { warnings, ..planned(plan, message) });
        }
        let words = match (&policy, schedule) {
            (None, _) => "deduplicated no more".to_owned(),
            (Some(_), Schedule::Never) => "deduplicated when `dolmen dedup run` asks for it".to_owned(),
            (Some(_), schedule) => format!("deduplicated {schedule}"),
        };
        if request.dry_run {
            let message = format!("volume {name} would be {words}");
            return Ok(Change { warnings, ..planned(plan, message) });
        }
        let mut volume = volume;
        {
            let mutex = self.volumes.mutex_of(volume.key);
            let _exclusive = self.volumes.turn(&mutex, volume.key, &name).await?;
            volume = self.volumes.again(volume).await?;
            let (policy, schedule) = change_of(&volume)?;
            (volume.record.deduplication, volume.record.schedules.deduplication) = (policy, schedule);
            volume.put().await?;
        }
        let mut change = Change { warnings, ..made(plan, format!("volume {name} is {words}")) };
        change.volume = Some(shown(&self.volumes, &volume).await?);
        Ok(change)
    }

    /// Returns what a policy excludes and its volume does not have, as far as the volume is mounted.
    async fn warnings(&self, volume: &Volume, request: &EnableDedup) -> Vec<String> {
        let excluded = request.excluded_folders.iter().flatten();
        let excluded = excluded.filter_map(|folder| folder_of(folder, "", &volume.name).ok());
        let excluded: Vec<Folder> = excluded.collect();
        let missing = self.missing(volume, excluded).await;
        let words = |path: &Folder| {
            format!(
                "volume {} has no folder {} now; it is excluded from the time it is made",
                volume.name,
                path.as_str()
            )
        };
        missing.iter().map(words).collect()
    }

    /// Returns the paths that name nothing on a volume: none where it is not mounted, or does not answer in time.
    async fn missing(&self, volume: &Volume, paths: Vec<Folder>) -> Vec<Folder> {
        if paths.is_empty() {
            return Vec::new();
        }
        let (key, name) = (volume.key, &volume.name);
        let look = async {
            let mutex = self.volumes.locks.of(key, Lane::Quotas);
            let _exclusive = self.volumes.workers.turn_in(Lane::Quotas, &mutex, key, name).await?;
            let (Some(device), Some(_)) = self.volumes.mount_of(key).await? else { return Ok(Vec::new()) };
            let operation = Operation::Missing { volume: volume.for_worker(device), paths };
            match self.volumes.workers.run(key, name, operation, Wait::Request).await? {
                Outcome::Missing { paths } => Ok(paths),
                other => {
                    Err(ErrorBody::new(ErrorCode::Internal, format!("a look was answered with {other:?}")))
                }
            }
        };
        let clock = self.volumes.seams.clock.as_ref();
        match within(clock, clock.now() + LOOK_LIMIT, look).await {
            Some(Ok(missing)) => missing,
            Some(Err(error)) => {
                tracing::debug!(volume = name, %error, "it is not known which paths are missing");
                Vec::new()
            }
            None => Vec::new(),
        }
    }

    /// Runs a deduplication.
    pub(crate) async fn run_dedup(
        self: &Rc<Self>,
        pool: String,
        space: String,
        request: RunDedup,
    ) -> Answer<Change> {
        let (pool, volume) = self.ready(&pool, &space).await?;
        let name = &volume.name;
        let mode = request.mode.map(mode_of);
        let last = match volume.record.file_system {
            FileSystem::Xfs => format!("empty rows of {name} that hold little, and discard what is free"),
            FileSystem::Btrfs | FileSystem::Ext4 => format!("discard the free room of {name}"),
        };
        let steps = vec![
            format!("hash files of {name} that are new or changed"),
            "share equal bytes, which the kernel compares first".to_owned(),
            last,
        ];
        let begin =
            Begin { task: Task::Dedup { mode }, steps, undo: Undo::By(format!("dolmen dedup undo {name}")) };
        self.begin(&pool, &volume, begin, request.dry_run, "deduplicated").await
    }

    /// Estimates what a deduplication would save.
    pub(crate) async fn estimate_dedup(
        self: &Rc<Self>,
        pool: String,
        space: String,
        request: EstimateDedup,
    ) -> Answer<Change> {
        let (pool, volume) = self.ready(&pool, &space).await?;
        let steps = vec![format!("read a sample of the files of {}, without a change", volume.name)];
        let task = Task::Estimate { sample_bytes: request.sample_bytes };
        let begin = Begin { task, steps, undo: Undo::NotNeeded };
        self.begin(&pool, &volume, begin, request.dry_run, "estimated").await
    }

    /// Gives files bytes of their own again.
    pub(crate) async fn undo_dedup(
        self: &Rc<Self>,
        pool: String,
        space: String,
        request: UndoDedup,
    ) -> Answer<Change> {
        let (pool, volume) = self.ready(&pool, &space).await?;
        let name = &volume.name;
        let mount_point = volume.record.mount_point.as_str();
        let paths = request.paths.iter().map(|path| folder_of(path, mount_point, name));
        let paths: Vec<Folder> = paths.collect::<Answer<_>>()?;
        let missing = self.missing(&volume, paths.clone()).await;
        if let Some(path) = missing.first() {
            let message =
                format!("no file or folder {} on volume {name}; nothing was changed", path.as_str());
            let hint = format!("list the volume at {mount_point}, and give a path as it is below that");
            return Err(ErrorBody::new(ErrorCode::BadRequest, message).on(name).hint(hint));
        }
        let bytes = serde_json::to_string(&paths).map_or(usize::MAX, |text| text.len());
        if bytes > PATHS_TEXT_MAX {
            let message = format!(
                "the paths of an undo take {bytes} bytes on record, and {PATHS_TEXT_MAX} at most; nothing was changed"
            );
            let hint = "name a folder above them, or undo them in several runs";
            return Err(ErrorBody::new(ErrorCode::BadRequest, message).on(name).hint(hint));
        }
        let which = match request.paths.as_slice() {
            [] => format!("all files of {name}"),
            paths => format!("files below {} of {name}", paths.join(", ")),
        };
        let steps =
            vec![format!("copy the shared bytes of {which}, which takes room for one copy of each at most")];
        let begin =
            Begin { task: Task::Undo { paths }, steps, undo: Undo::By(format!("dolmen dedup run {name}")) };
        self.begin(&pool, &volume, begin, request.dry_run, "given bytes of its own").await
    }

    /// Empties rows that hold little, and gives them back.
    pub(crate) async fn compact_volume(
        self: &Rc<Self>,
        pool: String,
        space: String,
        request: CompactVolume,
    ) -> Answer<Change> {
        let (pool, volume) = self.ready(&pool, &space).await?;
        let name = &volume.name;
        let budget =
            request.budget_bytes.map_or(String::new(), |bytes| format!(", {} at most", Bytes(bytes)));
        let mut steps = vec![
            format!("move bytes of {name} out of rows that hold little{budget}"),
            format!("discard what is free, which gives these rows back to pool {}", pool.name()),
        ];
        if volume.record.file_system == FileSystem::Btrfs {
            steps.insert(
                0,
                "discard what is free already: a block group is copied before its rows are free".to_owned(),
            );
        }
        let task = Task::Compact { budget_bytes: request.budget_bytes };
        let begin = Begin { task, steps, undo: Undo::NotNeeded };
        self.begin(&pool, &volume, begin, request.dry_run, "compacted").await
    }

    /// Returns a volume whose files can share bytes, mounted and without a job.
    async fn ready(&self, pool: &str, space: &str) -> Answer<(Rc<OpenPool>, Volume)> {
        let pool = pool_to_change(&self.volumes.pools, pool)?;
        let volume = self.volumes.find(&pool, space).await?;
        self.check_ready(&volume).await?;
        Ok((pool, volume))
    }

    pub(super) async fn check_ready(&self, volume: &Volume) -> Answer<()> {
        let name = &volume.name;
        check_sharing(volume.record.file_system, name)?;
        self.volumes.check_made(volume)?;
        if let (Some(_), Some(_)) = self.volumes.mount_of(volume.key).await? {
            return Ok(());
        }
        let message =
            format!("volume {name} is not mounted, so its files are not known; nothing was changed");
        let hint = format!("`dolmen volume mount {name}` first");
        Err(ErrorBody::new(ErrorCode::Busy, message).on(name).hint(hint))
    }

    async fn begin(
        self: &Rc<Self>,
        pool: &Rc<OpenPool>,
        volume: &Volume,
        begin: Begin,
        dry_run: bool,
        word: &str,
    ) -> Answer<Change> {
        let name = &volume.name;
        let plan = pool.plan(begin.undo, begin.steps);
        if dry_run {
            return Ok(planned(plan, format!("volume {name} would be {word}")));
        }
        self.volumes.pool_jobs.check_job_room(pool)?;
        // Nothing waits between this look and the beginning of the job.
        self.volumes.check_no_job(volume)?;
        if let Some(entry) = self.job_of(volume.key) {
            let message =
                format!("{} waits for volume {name} to be mounted; nothing was begun", entry.what());
            let hint = format!("it goes on by itself; `dolmen job stop {}` ends it", entry.id);
            return Err(ErrorBody::new(ErrorCode::Busy, message).on(name).hint(hint));
        }
        let job = self.start(pool, volume.key, name, begin.task, None).await;
        let mut change = made(plan, format!("volume {name} is being {word}, job {}", job.id));
        change.job = Some(job);
        Ok(change)
    }

    /// Starts a job, or goes on with one under its number.
    pub(super) async fn start(
        self: &Rc<Self>,
        pool: &Rc<OpenPool>,
        key: SpaceKey,
        name: &str,
        task: Task,
        again: Option<Rc<Entry>>,
    ) -> dolmen_api::Job {
        let (subject, aim) = (format!("volume {name}"), Aim::Volume(key.space));
        let task_now = again.is_none().then(|| task.clone());
        let start = Start { kind: task.kind(), subject, aim, again };
        let (dedups, owner) = (Rc::clone(self), Rc::clone(pool));
        let work = move |course| async move { dedups.work(owner, key.space, task_now, course).await };
        self.volumes.pool_jobs.start_job(pool, start, work).await
    }

    /// Goes on with a job for which nothing works.
    pub(super) async fn go_on(self: &Rc<Self>, pool: &Rc<OpenPool>, entry: &Rc<Entry>) {
        let Aim::Volume(space) = entry.aim else { return };
        let task = entry.course().own::<LongState>().and_then(|state| state.reached.borrow().task.clone());
        let Some(task) = task else { return };
        let Some(space) = pool.spaces.get(space) else { return };
        let key = SpaceKey { pool: pool.id(), space: space.id() };
        let name = format!("{}/{}", pool.name(), space.name());
        self.start(pool, key, &name, task, Some(Rc::clone(entry))).await;
    }
}

/// A job that is to begin.
struct Begin {
    task: Task,
    steps: Vec<String>,
    undo: Undo,
}

/// Returns why files of a file system cannot share bytes; none if they can.
fn why_not(file_system: FileSystem) -> Option<&'static str> {
    match file_system {
        FileSystem::Xfs | FileSystem::Btrfs => None,
        FileSystem::Ext4 => Some("files of ext4 cannot share bytes"),
    }
}

/// Refuses a file system whose files cannot share bytes.
pub(super) fn check_sharing(file_system: FileSystem, name: &str) -> Answer<()> {
    let Some(why) = why_not(file_system) else { return Ok(()) };
    let message = format!("volume {name} cannot be deduplicated or compacted: {why}; nothing was changed");
    let hint = "make a volume on xfs or btrfs, and copy the files there with `dolmen copy --or-copy`";
    Err(ErrorBody::new(ErrorCode::Unsupported, message).on(name).hint(hint))
}

fn shown_run(run: &DeduplicationRun) -> DedupRun {
    DedupRun {
        began_s: run.began_s,
        ended_s: run.ended_s,
        mode: shown_mode(run.mode),
        saved_bytes: run.saved_bytes,
        released_bytes: run.released_bytes,
        held_bytes: run.held_bytes,
        compressed_bytes: run.compressed_bytes,
        freed_bytes: run.freed_bytes,
        undone_bytes: run.undone_bytes,
        is_stopped: run.is_stopped,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Scenario: the host is too busy to tell its local time at first, tells it, is busy again, and tells another one in summer.
    #[test]
    fn a_busy_host_does_not_shift_the_local_time() {
        let known = LastKnown::default();
        let busy = || Err(std::io::Error::other("busy"));
        assert_eq!(known.or_kept(busy()), None);
        let offsets = [Ok(60), busy(), Ok(120), busy()].map(|asked| known.or_kept(asked));
        assert_eq!(offsets, [Some(60), Some(60), Some(120), Some(120)]);
    }
}
