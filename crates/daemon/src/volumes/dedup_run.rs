//! Steps of deduplication, undo and estimate of a volume. Those of a compaction stand in `compaction_run`.
//!
//! A deduplication shares, compacts and trims. The pool counts what it got back when the rows of the space are at rest: a file system
//! ends a trim before its discards have reached the device.
//!
//! Invariants:
//! - A job holds the lock of its volume from its first process to its last, so no change of the volume comes in between.
//! - Each step is safe to repeat: a job that another daemon goes on with gives the same order again.
//! - Numbers that were reached are on record before the next step begins.

use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use dolmen_api::{ErrorBody, ErrorCode};
use dolmen_attach::SpaceKey;
use dolmen_block_io::Instant;
use dolmen_block_io::sleep;
use dolmen_block_io::sync::{Either, either};
use dolmen_space::Space;
use dolmen_units::{Bytes, SpaceId};
use dolmen_volume::record::{Deduplication, DeduplicationMode, DeduplicationRun, Unknown};
use dolmen_worker::protocol::long::{Load, Progress, SampleSize, Selection, Undone};
use dolmen_worker::protocol::{Operation, Outcome as Done};

use crate::answer::Answer;
use crate::jobs::{Aim, Course, Entry, Outcome, seconds_now};
use crate::open_pool::OpenPool;
use crate::volumes::dedup::{Dedups, check_sharing};
use crate::volumes::dedup_task::{LongState, Reached, Task};
use crate::volumes::pool_room::{is_short, pool_is_short, pool_room};
use crate::volumes::records;
use crate::volumes::service::Volumes;
use crate::volumes::steer::Steer;
use crate::volumes::volume::Volume;
use crate::volumes::words::percent_words;
use crate::volumes::yielding::Yielding;

/// Pause between two looks at the commands of a job.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// Looks after which a count that grew goes on record.
const LOOKS_PER_CHECKPOINT: u32 = 8;
/// Time for which the rows of a space do not change when they are at rest.
const REST: Duration = Duration::from_secs(3);
/// Time that rows get to come to rest.
const REST_LIMIT: Duration = Duration::from_secs(60);
/// Part of the bytes that an estimate reads, in millionths.
const SAMPLE_PPM: u32 = 10_000;

/// A long operation that is registered as long as this lives.
pub(super) struct Registered<'a> {
    volumes: &'a Volumes,
    key: SpaceKey,
    pub(super) steer: Rc<Steer>,
}

impl<'a> Registered<'a> {
    pub(super) fn new(volumes: &'a Volumes, key: SpaceKey) -> Self {
        let steer = Steer::new();
        volumes.steered.borrow_mut().insert(key, Rc::clone(&steer));
        Self { volumes, key, steer }
    }
}

impl Drop for Registered<'_> {
    fn drop(&mut self) {
        let mut steered = self.volumes.steered.borrow_mut();
        if steered.get(&self.key).is_some_and(|steer| Rc::ptr_eq(steer, &self.steer)) {
            steered.remove(&self.key);
        }
    }
}

/// A mounted volume, the state of its job, and what steers its processes.
pub(super) struct Run<'a> {
    pub(super) volume: Volume,
    pub(super) device: PathBuf,
    policy: Deduplication,
    pub(super) state: &'a LongState,
    pub(super) steer: &'a Steer,
}

impl Run<'_> {
    pub(super) fn load(&self, mode: DeduplicationMode) -> Load {
        let memory_bytes = self.policy.memory_bytes.unwrap_or(Deduplication::MEMORY_BYTES);
        Load { mode, memory_bytes }
    }

    fn selection(&self) -> Selection {
        Selection {
            age_seconds_min: u64::from(self.policy.age_days_min) * 86_400,
            file_bytes_min: self.policy.file_bytes_min,
            excluded_folders: self.policy.excluded.clone(),
            excluded_names: self.policy.excluded_names.clone(),
        }
    }
}

impl Dedups {
    /// Does the work of a job.
    pub(super) async fn work(
        self: &Rc<Self>,
        pool: Rc<OpenPool>,
        space: SpaceId,
        task: Option<Task>,
        course: Rc<Course>,
    ) -> Answer<Outcome> {
        let begun = LongState::default();
        let state = course.own::<LongState>().unwrap_or(&begun);
        if let Some(task) = task {
            state.note(|reached| {
                reached.task = Some(task);
                reached.began_s = seconds_now();
            });
        }
        let Some(space) = pool.spaces.get(space) else {
            return Ok(Outcome::CalledOff("its volume does not exist any more".to_owned()));
        };
        let volume = self.volumes.find(&pool, space.name().as_str()).await?;
        let registered = Registered::new(&self.volumes, volume.key);
        let steer = &registered.steer;
        let aim = Aim::Volume(space.id());
        let entry = self.volumes.jobs.unfinished_of(pool.id());
        let entry = entry.into_iter().find(|entry| entry.aim == aim && entry.is_in_hand());
        let key = volume.key;
        let steps = self.steps(volume, state, steer, &course);
        let look = self.look_after((&pool, &space), key, entry.as_deref(), state, steer, &course);
        match either(steps, look).await {
            Either::First(outcome) | Either::Second(outcome) => outcome,
        }
    }

    /// Passes wishes of users and needs of clients on to the processes of a job, and their progress to the job. It has no end.
    async fn look_after(
        &self,
        (pool, space): (&OpenPool, &Space),
        key: SpaceKey,
        entry: Option<&Entry>,
        state: &LongState,
        steer: &Steer,
        course: &Course,
    ) -> Answer<Outcome> {
        let clock = self.volumes.seams.clock.as_ref();
        let mut yielding = Yielding::new(space.figures());
        let (mut looked, mut looks) = (clock.now(), 0_u32);
        let mut steps = Steps::default();
        loop {
            sleep(clock, LOOK_EVERY).await;
            if course.progress.is_to_stop() {
                steer.stop();
            }
            let now = clock.now();
            if now.since(looked) >= yielding.window() {
                looked = now;
                let limit = entry.and_then(|entry| entry.job_share().latency_limit);
                let is_background = self.mode_of(state) == Some(DeduplicationMode::Background);
                state.is_yielding.set(yielding.look(space.figures(), limit) && is_background);
                if let Some(progress) = steer.progress().filter(|_| state.takes_pool_room())
                    && is_short(pool_room(pool, space).await, progress)
                    && !state.lacks_pool_room.replace(true)
                {
                    steer.stop();
                }
            }
            let is_held = course.progress.is_held();
            steer.hold(is_held || state.is_yielding.get());
            let progress = steer.progress();
            let is_at_work = self.volumes.workers.at_work(key).is_some();
            let stands = !is_at_work || progress.is_some_and(|one| one.paused);
            course.progress.set_halted(is_held && stands);
            if let Some(progress) = progress {
                steps.show(progress, course);
            }
            looks = looks.wrapping_add(1);
            if looks.is_multiple_of(LOOKS_PER_CHECKPOINT) && is_at_work {
                state.note_saving(progress.map_or(0, |progress| progress.saved));
            }
        }
    }

    /// Returns the load that a job may cause, as far as it is known.
    fn mode_of(&self, state: &LongState) -> Option<DeduplicationMode> {
        match &state.reached.borrow().task {
            Some(Task::Dedup { mode }) => *mode,
            Some(Task::Compact { .. } | Task::Undo { .. } | Task::Estimate { .. }) => {
                Some(DeduplicationMode::Background)
            }
            None => None,
        }
    }

    async fn steps(
        &self,
        volume: Volume,
        state: &LongState,
        steer: &Steer,
        course: &Course,
    ) -> Answer<Outcome> {
        let clock = self.volumes.seams.clock.as_ref();
        let mutex = self.volumes.mutex_of(volume.key);
        let _exclusive = loop {
            if steer.is_stopped() {
                return Ok(ended_early(steer, &volume.name, "it had not begun"));
            }
            match mutex.try_take().filter(|_| !course.progress.is_held()) {
                Some(exclusive) => break exclusive,
                None => sleep(clock, LOOK_EVERY).await,
            }
        };
        let volume = self.volumes.again(volume).await?;
        check_sharing(volume.record.file_system, &volume.name)?;
        let (Some(device), Some(_)) = self.volumes.mount_of(volume.key).await? else {
            return Ok(Outcome::Put {
                off: format!("volume {} is not mounted", volume.name),
                waits_for: format!("volume {} to be mounted", volume.name),
            });
        };
        let policy = volume.record.deduplication.clone().unwrap_or_default();
        let task = state.reached.borrow().task.clone();
        let run = Run { volume, device, policy, state, steer };
        match task {
            Some(Task::Dedup { mode }) => {
                let mode = mode.unwrap_or(run.policy.mode);
                self.dedup(&run, mode).await
            }
            Some(Task::Compact { budget_bytes }) => self.compact(&run, budget_bytes).await,
            Some(Task::Undo { paths }) => {
                let load = run.load(DeduplicationMode::Background);
                let volume = run.volume.for_worker(run.device.clone());
                let state = self.volumes.workers.state_folder(run.volume.key);
                note_begun_undo(&run).await?;
                let pool_room_bytes = pool_room(&run.volume.pool, &run.volume.space).await;
                let operation = Operation::Undo { volume, paths, load, state, pool_room_bytes };
                match self.long(&run, operation).await? {
                    Done::Undone(undone) => {
                        note_undone(&run, undone.bytes).await?;
                        let lacks_room = undone.stopped && run.state.lacks_pool_room.get();
                        let done = undone_words(&run.volume.name, &undone);
                        if lacks_room {
                            Err(pool_is_short(&run.volume, &done))
                        } else {
                            Ok(undone_outcome(&run, &undone))
                        }
                    }
                    Done::Stopped if run.state.lacks_pool_room.get() => {
                        Err(pool_is_short(&run.volume, "nothing was changed"))
                    }
                    Done::Stopped => Ok(ended_early(steer, &run.volume.name, "nothing was changed")),
                    other => Err(unexpected(&run, &other)),
                }
            }
            Some(Task::Estimate { sample_bytes }) => self.estimate(&run, sample_bytes).await,
            None => Ok(Outcome::CalledOff("its order is not on record".to_owned())),
        }
    }

    pub(super) async fn long(&self, run: &Run<'_>, operation: Operation) -> Answer<Done> {
        let (key, name) = (run.volume.key, run.volume.name.as_str());
        self.volumes.workers.long(key, name, operation, run.steer).await
    }

    /// Waits while the job is held between two processes.
    pub(super) async fn go_on_when_released(&self, run: &Run<'_>) {
        while run.steer.is_held() && !run.steer.is_stopped() {
            sleep(self.volumes.seams.clock.as_ref(), LOOK_EVERY).await;
        }
    }

    async fn dedup(&self, run: &Run<'_>, mode: DeduplicationMode) -> Answer<Outcome> {
        let name = &run.volume.name;
        run.state.note(|reached| {
            reached.task = Some(Task::Dedup { mode: Some(mode) });
            reached.claimed_before.get_or_insert(run.volume.space.claimed().0);
        });
        let mut files = None;
        if !run.state.reached.borrow().is_shared {
            let operation = Operation::Dedup {
                volume: run.volume.for_worker(run.device.clone()),
                selection: run.selection(),
                load: run.load(mode),
                state: self.volumes.workers.state_folder(run.volume.key),
                undos: records::read_run(&run.volume.space).await?.map_or(0, |last| last.undos),
            };
            match self.long(run, operation).await? {
                Done::Deduplicated(found) => {
                    files = Some(found.files);
                    run.state.note(|reached| {
                        reached.saved = reached.saved.saturating_add(found.saved);
                        reached.held = reached.held.saturating_add(found.held);
                        reached.encoded = reached.encoded.saturating_add(found.encoded);
                        reached.freed = reached.freed.saturating_add(found.freed);
                        (reached.saving, reached.is_shared) = (0, !found.stopped);
                    });
                }
                Done::Stopped => return Ok(ended_early(run.steer, name, "nothing was changed")),
                other => return Err(unexpected(run, &other)),
            }
        }
        self.go_on_when_released(run).await;
        let mut notes = String::new();
        if !run.steer.is_stopped() {
            notes = match self.release(run, None, mode).await {
                Ok(given) => given.words(),
                // What is shared stays shared, and the report says what failed.
                Err(error) => format!("; room was not given back: {}", error.message),
            };
        }
        if run.steer.is_interrupted() {
            return Ok(ended_early(run.steer, name, "bytes that are shared stay shared"));
        }
        self.wait_for_rest(run).await;
        let (mut record, text) = self.report(run, mode, run.steer.is_stopped());
        record.undos = records::read_run(&run.volume.space).await?.map_or(0, |last| last.undos);
        records::put_run(&run.volume.space, &record, name).await?;
        let looked = files.map_or(String::new(), |files| format!("; {files} files were looked at"));
        let text = format!("{text}{looked}{notes}");
        match run.steer.is_stopped() {
            true => Ok(Outcome::CalledOff(format!("by then {text}"))),
            false => Ok(Outcome::Done(text)),
        }
    }

    /// Returns the three numbers of a deduplication, as a record and in words.
    fn report(&self, run: &Run<'_>, mode: DeduplicationMode, is_stopped: bool) -> (DeduplicationRun, String) {
        let reached = run.state.reached.borrow();
        let released_bytes = released(&reached, run.volume.space.claimed());
        let record = DeduplicationRun {
            began_s: reached.began_s,
            ended_s: seconds_now(),
            mode,
            saved_bytes: reached.saved,
            released_bytes,
            held_bytes: reached.held,
            compressed_bytes: reached.encoded,
            freed_bytes: reached.freed,
            undone_bytes: 0,
            undos: 0,
            is_stopped,
            unknown: Unknown::new(),
        };
        let text = format!(
            "{}{} saved in volume {}{}, {} given back to pool {}, {} held elsewhere",
            if reached.is_lower_bound { "at least " } else { "" },
            Bytes(record.saved_bytes),
            run.volume.name,
            compressed_words(&record),
            Bytes(record.released_bytes),
            run.volume.pool.name(),
            Bytes(record.held_bytes),
        );
        (record, text)
    }

    /// Waits until the claimed rows of the space do not change any more, or too long.
    pub(super) async fn wait_for_rest(&self, run: &Run<'_>) {
        let clock = self.volumes.seams.clock.as_ref();
        let limit: Instant = clock.now() + REST_LIMIT;
        let mut seen = (run.volume.space.claimed(), clock.now());
        while clock.now() < limit && clock.now().since(seen.1) < REST && !run.steer.is_interrupted() {
            sleep(clock, LOOK_EVERY).await;
            let claimed = run.volume.space.claimed();
            if claimed != seen.0 {
                seen = (claimed, clock.now());
            }
        }
    }

    async fn estimate(&self, run: &Run<'_>, sample_bytes: Option<u64>) -> Answer<Outcome> {
        let name = &run.volume.name;
        let operation = Operation::Estimate {
            volume: run.volume.for_worker(run.device.clone()),
            selection: run.selection(),
            load: run.load(DeduplicationMode::Background),
            state: self.volumes.workers.state_folder(run.volume.key),
            sample: sample_bytes.map(|bytes_min| SampleSize { part_ppm: SAMPLE_PPM, bytes_min }),
        };
        match self.long(run, operation).await? {
            Done::Estimated(found) => {
                let part = |ppm: u32| Bytes(part_of(found.bytes, ppm));
                Ok(Outcome::Done(format!(
                    "about {} of {} in {} files would be saved, {} ({} to {} at 95 %); {} were read",
                    part(found.saving_ppm),
                    Bytes(found.bytes),
                    found.files,
                    percent_words(found.saving_ppm),
                    percent_words(found.low_ppm),
                    percent_words(found.high_ppm),
                    Bytes(found.sample_bytes),
                )))
            }
            Done::Stopped => Ok(ended_early(run.steer, name, "nothing was changed")),
            other => Err(unexpected(run, &other)),
        }
    }
}

/// Returns what saved bytes are worth where files are compressed; empty elsewhere.
fn compressed_words(run: &DeduplicationRun) -> String {
    match run.compressed_bytes {
        0 => String::new(),
        bytes => format!(
            " ({} of them counted before compression; its free room grew by {})",
            Bytes(bytes),
            Bytes(run.freed_bytes)
        ),
    }
}

/// Returns the bytes that the pool got back since a job began.
pub(super) fn released(reached: &Reached, claimed: Bytes) -> u64 {
    reached.claimed_before.map_or(0, |before| before.saturating_sub(claimed.0))
}

/// Returns a part of some bytes in millionths.
fn part_of(bytes: u64, ppm: u32) -> u64 {
    u64::try_from(u128::from(bytes) * u128::from(ppm) / 1_000_000).unwrap_or(u64::MAX)
}

/// Returns the outcome of a job that a command ended; one that the daemon ended for its own sake goes on later.
pub(super) fn ended_early(steer: &Steer, name: &str, what: &str) -> Outcome {
    match steer.is_interrupted() {
        true => Outcome::Put {
            off: format!("volume {name} was unmounted meanwhile; {what}"),
            waits_for: format!("volume {name} to be mounted"),
        },
        false => Outcome::CalledOff(what.to_owned()),
    }
}

/// Counts an undo before its first copy: a host that has an index of the volume, and not this state folder, maps all files again.
async fn note_begun_undo(run: &Run<'_>) -> Answer<()> {
    let space = &run.volume.space;
    let Some(mut last) = records::read_run(space).await? else { return Ok(()) };
    last.undos = last.undos.wrapping_add(1);
    records::put_run(space, &last, &run.volume.name).await
}

/// Adds the bytes of an undo to the record of the last run.
async fn note_undone(run: &Run<'_>, bytes: u64) -> Answer<()> {
    let space = &run.volume.space;
    match records::read_run(space).await? {
        Some(mut last) if bytes > 0 => {
            last.undone_bytes = last.undone_bytes.saturating_add(bytes);
            records::put_run(space, &last, &run.volume.name).await
        }
        Some(_) | None => Ok(()),
    }
}

fn undone_words(name: &str, undone: &Undone) -> String {
    format!(
        "{} files of volume {name} have {} of their own, and its free room fell by {}",
        undone.files,
        Bytes(undone.bytes),
        Bytes(undone.taken)
    )
}

fn undone_outcome(run: &Run<'_>, undone: &Undone) -> Outcome {
    let differing = match undone.differing {
        0 => String::new(),
        ranges => format!("; {ranges} ranges changed meanwhile and stay shared"),
    };
    let text = undone_words(&run.volume.name, undone);
    let skipped = match (undone.skipped.count, undone.skipped.first.first()) {
        (0, _) | (_, None) => String::new(),
        (count, Some(first)) => format!("; {count} files were left out, such as {first}"),
    };
    match (undone.stopped, run.steer.is_interrupted()) {
        (true, true) => ended_early(run.steer, &run.volume.name, &text),
        (true, false) => Outcome::CalledOff(format!("by then {text}{differing}{skipped}")),
        (false, _) => Outcome::Done(format!("{text}{differing}{skipped}")),
    }
}

pub(super) fn unexpected(run: &Run<'_>, outcome: &Done) -> ErrorBody {
    let message = format!("an order for volume {} was answered with {outcome:?}", run.volume.name);
    ErrorBody::new(ErrorCode::Internal, message)
        .on(&run.volume.name)
        .hint("use the daemon and the worker of one version")
}

/// Bytes of steps that have ended, so that the bytes of a job only grow.
#[derive(Debug, Default)]
struct Steps {
    last: Option<Progress>,
    /// Bytes done by steps before the last one.
    done: u64,
}

impl Steps {
    /// Shows progress as that of a job: bytes of the steps so far, and of the one at work.
    fn show(&mut self, progress: Progress, course: &Course) {
        if let Some(last) = self.last.filter(|last| last.step != progress.step) {
            self.done = self.done.saturating_add(last.done);
        }
        self.last = Some(progress);
        let done = self.done.saturating_add(progress.done).max(course.progress.bytes.get());
        course.progress.bytes.set(done);
        course.bytes_max.set(self.done.saturating_add(progress.total).max(done));
    }
}

#[cfg(test)]
mod tests {
    use dolmen_worker::protocol::long::Step;

    use super::*;

    #[test]
    fn bytes_of_a_job_grow_over_its_steps() {
        let (course, mut steps) = (Course::default(), Steps::default());
        let progress = |step, done, total| Progress { step, done, total, files: 0, saved: 0, paused: false };
        let mut seen = Vec::new();
        for one in [
            progress(Step::Scan, 0, 0),
            progress(Step::Hash, 10, 100),
            progress(Step::Hash, 100, 100),
            progress(Step::Share, 0, 40),
            progress(Step::Share, 40, 40),
        ] {
            steps.show(one, &course);
            seen.push((course.progress.bytes.get(), course.bytes_max.get()));
        }
        assert_eq!(seen, [(0, 0), (10, 100), (100, 100), (100, 140), (140, 140)]);
    }

    #[test]
    fn parts_and_returns_of_extreme_counts_are_bounded() {
        assert_eq!(part_of(u64::MAX, 1_000_000), u64::MAX);
        assert_eq!(part_of(1_000, 250_000), 250);
        let reached = |claimed_before| Reached { claimed_before, ..Reached::default() };
        assert_eq!(released(&reached(Some(10)), Bytes(4)), 6);
        assert_eq!(released(&reached(Some(4)), Bytes(10)), 0, "writers claimed more than it gave back");
        assert_eq!(released(&reached(None), Bytes(10)), 0);
    }
}
