//! Check of a mounted btrfs: a scrub, as a job with progress that can be paused and stopped.

use std::rc::Rc;
use std::time::Duration;

use dolmen_api::{Change, CheckKind, ErrorBody, ErrorCode};
use dolmen_block_io::sleep;
use dolmen_block_io::sync::{Either, either};
use dolmen_units::Bytes;
use dolmen_volume::check_output::{CheckFinding, CheckOutcome, CheckReport, Severity, scrub_finding};
use dolmen_worker::protocol::long::Scrubbed;
use dolmen_worker::protocol::{Operation, Outcome as Done};

use crate::answer::Answer;
use crate::jobs::{Aim, Course, Outcome, Start};
use crate::open_pool::OpenPool;
use crate::plan::{Undo, made, planned};
use crate::volumes::check::{VolumeCheckJob, VolumeChecks};
use crate::volumes::check_report::EndedCheck;
use crate::volumes::dedup_run::Registered;
use crate::volumes::steer::Steer;
use crate::volumes::volume::Volume;

/// Pause between two looks at the commands of a job.
const LOOK_EVERY: Duration = Duration::from_millis(250);

impl VolumeChecks {
    /// Starts the scrub of a volume that is mounted at `path`.
    pub(super) async fn start_scrub(
        self: &Rc<Self>,
        pool: &Rc<OpenPool>,
        volume: Volume,
        path: &str,
        dry_run: bool,
    ) -> Answer<Change> {
        let name = volume.name.clone();
        let step = format!(
            "scrub btrfs of {name} at {path}: read all of it, compare its checksums, and correct what it has two copies of"
        );
        let plan = pool.plan(Undo::NotNeeded, vec![step]);
        if dry_run {
            return Ok(planned(plan, format!("volume {name} would be scrubbed while it is used")));
        }
        self.volumes.pool_jobs.check_job_room(pool)?;
        self.volumes.check_no_job(&volume)?;
        let aim = Aim::Volume(volume.space.id());
        let start = Start { kind: &VolumeCheckJob, subject: format!("volume {name}"), aim, again: None };
        let checks = Rc::clone(self);
        let work = move |course| async move { checks.scrub(volume, course).await };
        let job = self.volumes.pool_jobs.start_job(pool, start, work).await;
        let mut change = made(plan, format!("volume {name} is being scrubbed, job {}", job.id));
        change.job = Some(job);
        Ok(change)
    }

    async fn scrub(&self, volume: Volume, course: Rc<Course>) -> Answer<Outcome> {
        let registered = Registered::new(&self.volumes, volume.key);
        let steer = &registered.steer;
        let key = volume.key;
        let work = self.scrub_held(volume, steer);
        let look = async {
            loop {
                sleep(self.volumes.seams.clock.as_ref(), LOOK_EVERY).await;
                if course.progress.is_to_stop() {
                    steer.stop();
                }
                let is_held = course.progress.is_held();
                steer.hold(is_held);
                let progress = steer.progress();
                let is_at_work = self.volumes.workers.at_work(key).is_some();
                course
                    .progress
                    .set_halted(is_held && (!is_at_work || progress.is_some_and(|one| one.paused)));
                if let Some(progress) = progress {
                    course.progress.bytes.set(progress.done.max(course.progress.bytes.get()));
                    course.bytes_max.set(progress.total);
                }
            }
        };
        match either(work, look).await {
            Either::First(outcome) => outcome,
            Either::Second(never) => never,
        }
    }

    async fn scrub_held(&self, volume: Volume, steer: &Steer) -> Answer<Outcome> {
        let mutex = self.volumes.mutex_of(volume.key);
        let _exclusive = mutex.take().await;
        let volume = self.volumes.again(volume).await?;
        let name = &volume.name;
        let (Some(device), Some(_)) = self.volumes.mount_of(volume.key).await? else {
            return Ok(Outcome::CalledOff(format!("volume {name} is not mounted any more; check it again")));
        };
        let operation = Operation::Scrub { volume: volume.for_worker(device) };
        match self.volumes.workers.long(volume.key, name, operation, steer).await? {
            Done::Scrubbed(found) => {
                let report = report_of(&found);
                let output = found.messages.iter().fold(summary(&found), |all, line| all + line + "\n");
                let job = self.job_of(&volume);
                let kept = EndedCheck { job, kind: CheckKind::Scrub, report: report.clone(), output };
                self.keep(&volume, kept).await;
                judged(name, &found, &report)
            }
            Done::Stopped => Ok(Outcome::CalledOff("nothing was read".to_owned())),
            other => Err(ErrorBody::new(ErrorCode::Internal, format!("a scrub was answered with {other:?}"))),
        }
    }
}

/// Counts of a scrub that name damage, with their words.
fn damage(found: &Scrubbed) -> Vec<String> {
    let counts = [
        (found.checksum_errors, "blocks with a wrong checksum"),
        (found.verify_errors, "blocks of metadata with a wrong content"),
        (found.read_errors, "blocks that cannot be read"),
        (found.super_errors, "wrong superblocks"),
    ];
    let words = counts.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}"));
    words.collect()
}

/// Returns the counts of a scrub as lines of the report.
fn summary(found: &Scrubbed) -> String {
    let mut lines = vec![format!("{} read", Bytes(found.bytes))];
    lines.extend(damage(found));
    lines.push(format!("{} corrected, {} not", found.corrected, found.uncorrectable));
    lines.join("\n") + "\n"
}

/// Returns the report of a scrub: its counts, and what the kernel said of single blocks.
fn report_of(found: &Scrubbed) -> CheckReport {
    let counts = damage(found).into_iter().map(|text| CheckFinding {
        severity: Severity::Error,
        text,
        inode: None,
        path: None,
    });
    let findings: Vec<CheckFinding> =
        counts.chain(found.messages.iter().map(|line| scrub_finding(line))).collect();
    let is_whole = damage(found).is_empty()
        || found.uncorrectable == 0 && found.super_errors == 0 && found.corrected > 0;
    let outcome = match is_whole {
        _ if found.stopped => CheckOutcome::Failed,
        true => CheckOutcome::Clean,
        false => CheckOutcome::Damaged,
    };
    CheckReport { outcome, findings, omitted: 0 }
}

fn judged(name: &str, found: &Scrubbed, report: &CheckReport) -> Answer<Outcome> {
    let counted = damage(found).join(", ");
    let read = Bytes(found.bytes);
    if found.stopped {
        let so_far = if counted.is_empty() { "no damage".to_owned() } else { counted };
        return Ok(Outcome::CalledOff(format!("{read} of volume {name} were read by then, with {so_far}")));
    }
    if report.outcome == CheckOutcome::Clean {
        let corrected = match found.corrected {
            0 => String::new(),
            blocks => format!("; {blocks} blocks were corrected from their second copy"),
        };
        return Ok(Outcome::Done(format!("volume {name} is clean, {read} read{corrected}")));
    }
    let mut files: Vec<&str> = report.findings.iter().filter_map(|one| one.path.as_deref()).collect();
    files.dedup();
    files.truncate(3);
    let named = if files.is_empty() { String::new() } else { format!(", in {}", files.join(", ")) };
    let message = format!("volume {name} is damaged: {counted}{named}; {} were corrected", found.corrected);
    let hint = format!(
        "`dolmen volume check {name} --report` shows all; restore these files from a copy, and `dolmen why {name}` names the disk"
    );
    Err(ErrorBody::new(ErrorCode::Io, message).on(name).hint(hint))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = "BTRFS warning (device loop3): checksum error at logical 1 on dev /dev/loop3, physical 1, root 5, \
                        inode 257, offset 0, length 4096, links 1 (path: docs/a)";

    /// Scenario: nothing; one bad block with its file; one that a second copy corrected; a bad superblock; a stop.
    #[test]
    fn a_scrub_is_damaged_by_what_nothing_corrected() {
        let clean = Scrubbed { bytes: 4096, ..Scrubbed::default() };
        let bad = Scrubbed {
            checksum_errors: 1,
            uncorrectable: 1,
            messages: vec![LINE.to_owned()],
            ..clean.clone()
        };
        let corrected = Scrubbed { checksum_errors: 2, corrected: 2, ..clean.clone() };
        let superblock = Scrubbed { super_errors: 1, corrected: 1, ..clean.clone() };
        let stopped = Scrubbed { stopped: true, ..clean.clone() };
        let outcomes =
            [&clean, &bad, &corrected, &superblock, &stopped].map(|found| report_of(found).outcome);
        let expected = [
            CheckOutcome::Clean,
            CheckOutcome::Damaged,
            CheckOutcome::Clean,
            CheckOutcome::Damaged,
            CheckOutcome::Failed,
        ];
        assert_eq!(outcomes, expected);
        let error = judged("tank/v", &bad, &report_of(&bad)).err().unwrap();
        assert!(error.message.contains("1 blocks with a wrong checksum, in /docs/a;"), "{error}");
        let Ok(Outcome::Done(text)) = judged("tank/v", &corrected, &report_of(&corrected)) else { panic!() };
        assert!(text.contains("2 blocks were corrected"), "{text}");
        assert!(matches!(judged("tank/v", &stopped, &report_of(&stopped)), Ok(Outcome::CalledOff(_))));
    }
}
