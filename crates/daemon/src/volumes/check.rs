//! Check and repair of the file system of a volume that is not mounted: a job, because it reads all metadata. A mounted btrfs is scrubbed.

use std::rc::Rc;

use dolmen_api::{Change, CheckKind, CheckVolume, ErrorBody, ErrorCode, JobState, Simple, VolumeCheck};
use dolmen_pool::LocalFuture;
use dolmen_volume::check_output::{CheckOutcome, CheckReport, RepairOutcome, parse, repair_outcome};
use dolmen_volume::file_system::FileSystem;
use dolmen_worker::protocol::{Operation, Outcome as Done};

use crate::answer::Answer;
use crate::job::{Ending, Job, JobWorker, Standing};
use crate::jobs::{Aim, Entry, Kind, Outcome, Rank, Start};
use crate::open_pool::OpenPool;
use crate::plan::{Undo, check_typed, made, planned};
use crate::volumes::check_report::{self, EndedCheck};
use crate::volumes::service::{Volumes, pool_to_change};
use crate::volumes::volume::Volume;
use crate::volumes::workers::Wait;

/// Findings that the result of a job names.
const NAMED_MAX: usize = 3;

/// Checks the file system of a volume, or repairs it.
pub(crate) struct VolumeCheckJob;

impl Kind for VolumeCheckJob {
    fn word(&self) -> &'static str {
        "volume_check"
    }

    fn verb(&self) -> &'static str {
        "check"
    }

    fn doing(&self) -> &'static str {
        "checking"
    }

    /// It takes no slot: it reads one space, as a client does.
    fn rank(&self) -> Option<Rank> {
        None
    }

    fn is_about(&self, aim: Aim) -> bool {
        matches!(aim, Aim::Volume(_))
    }
}

/// What is said of a check that another daemon began.
const CUT_SHORT: &str = "the daemon or its pool was closed meanwhile; check the volume again";

impl Job for VolumeCheckJob {
    fn standing<'a>(&'a self, _pool: &'a OpenPool, _entry: &'a Entry) -> LocalFuture<'a, Standing> {
        Box::pin(async { Standing::Ended(JobState::CalledOff, CUT_SHORT) })
    }
}

/// Checks of volumes.
pub(crate) struct VolumeChecks {
    pub(super) volumes: Rc<Volumes>,
}

impl JobWorker for VolumeChecks {
    fn resume<'a>(self: Rc<Self>, _pool: &'a Rc<OpenPool>, entry: &'a Rc<Entry>) -> LocalFuture<'a, ()> {
        entry.end(JobState::CalledOff, CUT_SHORT.to_owned());
        Box::pin(async {})
    }

    fn ending(&self, _entry: &Entry) -> Ending {
        Ending {
            step: "a scrub ends; another process ends by itself, and its result is dropped",
            undo: Undo::NotNeeded,
        }
    }

    fn stop<'a>(self: Rc<Self>, entry: &'a Rc<Entry>, request: Simple) -> LocalFuture<'a, Answer<Change>> {
        Box::pin(async move { self.volumes.pool_jobs.stop_asked(self.as_ref(), entry, request).await })
    }
}

impl VolumeChecks {
    pub(crate) fn new(volumes: &Rc<Volumes>) -> Self {
        Self { volumes: Rc::clone(volumes) }
    }

    pub(crate) async fn check_volume(
        self: &Rc<Self>,
        pool: String,
        space: String,
        request: CheckVolume,
    ) -> Answer<Change> {
        let pool = match request.repair {
            true => pool_to_change(&self.volumes.pools, &pool)?,
            false => self.volumes.pools.pool_to_change(&pool)?,
        };
        let volume = self.volumes.find(&pool, &space).await?;
        let name = volume.name.clone();
        self.volumes.check_made(&volume)?;
        if request.repair && (!request.dry_run || request.destroy.is_some()) {
            let typed = request.destroy.as_deref();
            let short = volume.space.name().to_string();
            let typed = typed.map(|typed| if typed == name { short.as_str() } else { typed });
            check_typed(typed, &short, "parts of volume")?;
        }
        if let (_, Some(path)) = self.volumes.mount_of(volume.key).await? {
            if volume.record.file_system == FileSystem::Btrfs && !request.repair && !request.drop_log {
                return self.start_scrub(&pool, volume, &path, request.dry_run).await;
            }
            let message =
                format!("volume {name} cannot be checked while it is mounted at {path}; nothing was changed");
            let hint = format!("`dolmen volume unmount {name}` first");
            return Err(ErrorBody::new(ErrorCode::Busy, message).on(name).hint(hint));
        }
        let kind = volume.record.file_system;
        let repair = check_repair(&request, kind, &name)?;
        let (word, undo) = match request.repair {
            true => ("repaired", Undo::ByNothing),
            false => ("checked", Undo::NotNeeded),
        };
        let mut steps = Vec::new();
        if repair == Some(Repair::WithoutLog) {
            steps.push(format!(
                "drop the log of {kind} of {name} with all changes in it: files and folders that were changed last may be lost"
            ));
        }
        steps.push(match repair {
            Some(_) => format!("repair {kind} of {name}, which may lose parts of files, and check it again"),
            None => format!("check {kind} of {name}, without a change"),
        });
        let plan = pool.plan(undo, steps);
        if request.dry_run {
            return Ok(planned(plan, format!("volume {name} would be {word}")));
        }
        self.volumes.pool_jobs.check_job_room(&pool)?;
        let aim = Aim::Volume(volume.space.id());
        let start = Start { kind: &VolumeCheckJob, subject: format!("volume {name}"), aim, again: None };
        let checks = Rc::clone(self);
        let job = self
            .volumes
            .pool_jobs
            .start_job(&pool, start, move |_| async move { checks.check(volume, repair).await })
            .await;
        let mut change = made(plan, format!("volume {name} is being {word}, job {}", job.id));
        change.job = Some(job);
        Ok(change)
    }

    /// Shows what the last check of a volume found.
    pub(crate) async fn show_check(&self, pool: String, space: String) -> Answer<VolumeCheck> {
        let pool = self.volumes.pools.pool(&pool)?;
        let volume = self.volumes.find(&pool, &space).await?;
        let (folder, key, name) = (self.volumes.workers.checks_folder(), volume.key, &volume.name);
        let found = self.volumes.looks.run(move || check_report::last(&folder, key)).await;
        let found = found.map_err(|error| {
            let message = format!("the report of the check of volume {name} cannot be read: {error}");
            ErrorBody::new(ErrorCode::Io, message)
                .on(name)
                .hint(format!("`dolmen volume check {name}` checks it again"))
        })?;
        found.ok_or_else(|| {
            let message = format!("volume {name} has no report of a check: this host has not checked it");
            ErrorBody::new(ErrorCode::NoSuchObject, message)
                .on(name)
                .hint(format!("`dolmen volume check {name}` checks it"))
        })
    }

    /// Keeps what a check found; one that cannot be kept is told in the log.
    pub(super) async fn keep(&self, volume: &Volume, check: EndedCheck) {
        let (folder, key) = (self.volumes.workers.checks_folder(), volume.key);
        let kept = self.volumes.looks.run(move || {
            std::fs::create_dir_all(&folder)?;
            check_report::keep(&folder, key, check)
        });
        if let Err(error) = kept.await {
            tracing::error!(volume = volume.name, %error, "the report of a check is not kept");
        }
    }

    /// Returns the number of the job that checks a volume.
    pub(super) fn job_of(&self, volume: &Volume) -> u64 {
        let aim = Aim::Volume(volume.space.id());
        let entries = self.volumes.jobs.unfinished_of(volume.pool.id());
        let entry = entries.iter().find(|entry| entry.aim == aim && entry.is(&VolumeCheckJob));
        entry.map_or(0, |entry| entry.id)
    }

    async fn check(&self, volume: Volume, repair: Option<Repair>) -> Answer<Outcome> {
        let mutex = self.volumes.mutex_of(volume.key);
        let _exclusive = mutex.take().await;
        let volume = self.volumes.again(volume).await?;
        let was_attached = self.volumes.transports.find(volume.key).is_some();
        let device = self.volumes.attach(&volume.pool, &volume.space).await?;
        let run = |repair: Option<Repair>| {
            let (is_repair, drop_log) = (repair.is_some(), repair == Some(Repair::WithoutLog));
            let of = volume.for_worker(device.clone());
            let operation = Operation::Check { volume: of, repair: is_repair, drop_log };
            self.volumes.workers.run(volume.key, &volume.name, operation, Wait::UntilDone)
        };
        let (kind, file_system) =
            (if repair.is_some() { CheckKind::Repair } else { CheckKind::Check }, volume.record.file_system);
        let mut output = String::new();
        let (mut done, mut without_end) = (Ok(Done::Done), None);
        if repair.is_some() {
            done = run(repair).await;
            if let Ok(Done::Checked { code, text }) = &done {
                let outcome = repair_outcome(file_system, *code, text);
                without_end = (outcome != RepairOutcome::Ended).then_some(outcome);
                output = format!("{text}\nThe repair ended with {code}.\n");
            }
        }
        if done.is_ok() && without_end.is_none() {
            done = run(None).await;
        }
        if !was_attached {
            let detached = self.volumes.detach(&volume).await;
            detached
                .err()
                .iter()
                .for_each(|error| tracing::warn!(volume = volume.name, %error, "it stays attached"));
        }
        match done? {
            Done::Checked { code, text } => {
                let mut report = parse(file_system, Some(code), text.as_bytes());
                match without_end {
                    Some(RepairOutcome::LogNotReplayed) => report.outcome = CheckOutcome::LogNotReplayed,
                    Some(RepairOutcome::Failed | RepairOutcome::Ended) => {
                        report.outcome = CheckOutcome::Failed
                    }
                    None => output.push_str(&text),
                }
                let check = EndedCheck { job: self.job_of(&volume), kind, report: report.clone(), output };
                self.keep(&volume, check).await;
                judged(&volume, &report, kind)
            }
            other => Err(ErrorBody::new(ErrorCode::Internal, format!("a check was answered with {other:?}"))),
        }
    }
}

/// A repair that was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Repair {
    /// One that leaves the log to a mount.
    WithLog,
    /// One that drops the log.
    WithoutLog,
}

/// Returns the repair of a request.
fn check_repair(request: &CheckVolume, kind: FileSystem, name: &str) -> Answer<Option<Repair>> {
    let refused = |code, finding: &str, hint: String| {
        Err(ErrorBody::new(code, format!("volume {name}: {finding}; nothing was changed"))
            .on(name)
            .hint(hint))
    };
    match (request.repair, request.drop_log) {
        (false, false) => Ok(None),
        (true, false) => Ok(Some(Repair::WithLog)),
        (false, true) => {
            let hint = format!("`dolmen volume check {name} --repair --drop-log`");
            refused(ErrorCode::BadRequest, "a check drops no log, and a repair does", hint)
        }
        (true, true) if kind == FileSystem::Ext4 => {
            let hint = format!("`dolmen volume check {name} --repair`");
            refused(
                ErrorCode::Unsupported,
                "the repair of ext4 replays its log, or drops one that is damaged",
                hint,
            )
        }
        (true, true) => Ok(Some(Repair::WithoutLog)),
    }
}

/// Returns what a report means for the job.
fn judged(volume: &Volume, report: &CheckReport, kind: CheckKind) -> Answer<Outcome> {
    let name = &volume.name;
    let mut named: Vec<&str> = report.findings.iter().take(NAMED_MAX).map(|one| one.text.trim()).collect();
    let count = report.findings.len() + report.omitted;
    let all = format!("`dolmen volume check {name} --report` shows all");
    if count > NAMED_MAX {
        named.push(&all);
    }
    match report.outcome {
        CheckOutcome::Clean if kind == CheckKind::Repair => {
            Ok(Outcome::Done(format!("volume {name} was repaired, and is clean")))
        }
        CheckOutcome::Clean => Ok(Outcome::Done(format!("volume {name} is clean"))),
        CheckOutcome::Damaged => {
            let message = format!("volume {name} is damaged, {count} findings: {}", named.join("; "));
            let hint =
                format!("`dolmen volume check {name} --repair` repairs it, and may lose parts of files");
            Err(ErrorBody::new(ErrorCode::Io, message).on(name).hint(hint))
        }
        CheckOutcome::LogNotReplayed => {
            let (what, again) = match kind {
                CheckKind::Check | CheckKind::Scrub => ("the check", ""),
                CheckKind::Repair => ("the repair", " --repair"),
            };
            let message = format!(
                "{what} of volume {name} has no result: its log was not replayed; nothing was changed"
            );
            let hint = format!(
                "`dolmen volume mount {name}` replays it; then unmount it, and `dolmen volume check {name}{again}`. If the mount fails, \
                 `dolmen volume check {name} --repair --drop-log` drops the log, and the changes in it are lost"
            );
            Err(ErrorBody::new(ErrorCode::Busy, message).on(name).hint(hint))
        }
        CheckOutcome::Failed => {
            let what = if kind == CheckKind::Repair { "repair" } else { "check" };
            let message = format!("the {what} of volume {name} has no result: {}", named.join("; "));
            Err(ErrorBody::new(ErrorCode::Io, message).on(name))
        }
    }
}
