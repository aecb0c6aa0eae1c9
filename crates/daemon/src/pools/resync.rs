//! Bringing up to date what was away: begun where something lacks what it missed, and tried again where something is left.

use std::collections::BTreeMap;
use std::rc::Rc;

use dolmen_api::{Change, ErrorBody, ErrorCode, JobState, Simple};
use dolmen_pool::LocalFuture;
use dolmen_space::{Resynced, Spaces};

use crate::answer::Answer;
use crate::base::Base;
use crate::fault;
use crate::job::{Ending, Job, JobWorker, Standing};
use crate::jobs::{Aim, Course, Entry, Jobs, Kind, Outcome, Rank, Start};
use crate::open_pool::OpenPool;
use crate::plan::Undo;
use crate::pool_jobs::PoolJobs;
use crate::words::counted;

/// Copies what a disk missed while it was away.
pub(crate) struct ResyncJob;

impl Kind for ResyncJob {
    fn word(&self) -> &'static str {
        "resync"
    }

    fn doing(&self) -> &'static str {
        "bringing up to date"
    }

    fn rank(&self) -> Option<Rank> {
        Some(Rank::Urgent)
    }

    fn is_known_to_pool(&self) -> bool {
        true
    }

    fn is_about(&self, aim: Aim) -> bool {
        aim == Aim::Pool
    }
}

impl Job for ResyncJob {
    fn standing<'a>(&'a self, pool: &'a OpenPool, _entry: &'a Entry) -> LocalFuture<'a, Standing> {
        Box::pin(async {
            match pool.spaces.members().is_stale().await {
                Ok(false) => Standing::Ended(JobState::Done, "nothing is left to be brought up to date"),
                Ok(true) | Err(_) => Standing::GoesOn,
            }
        })
    }
}

impl JobWorker for Resyncs {
    fn resume<'a>(self: Rc<Self>, pool: &'a Rc<OpenPool>, _entry: &'a Rc<Entry>) -> LocalFuture<'a, ()> {
        Box::pin(async move {
            self.resync_if_needed(pool).await;
        })
    }

    fn ending(&self, _entry: &Entry) -> Ending {
        Ending { step: "what was copied stays copied", undo: Undo::NotNeeded }
    }

    fn stop<'a>(self: Rc<Self>, entry: &'a Rc<Entry>, _request: Simple) -> LocalFuture<'a, Answer<Change>> {
        let id = entry.id;
        let message = format!(
            "{} cannot be stopped: pool {} lacks copies until it is done, and would begin it again; nothing was changed",
            entry.what(),
            entry.pool_name
        );
        let hint = format!("`dolmen job pause {id}` holds it until it is resumed");
        let refused = ErrorBody::new(ErrorCode::BadRequest, message).on(id.to_string()).hint(hint);
        Box::pin(async { Err(refused) })
    }
}

/// Resyncs.
pub(crate) struct Resyncs {
    pool_jobs: Rc<PoolJobs>,
    jobs: Rc<Jobs>,
}

impl Resyncs {
    pub(crate) fn new(base: &Base) -> Self {
        Self { pool_jobs: Rc::clone(&base.pool_jobs), jobs: Rc::clone(&base.jobs) }
    }
}

impl Resyncs {
    /// Begins to bring up to date what was away, if there is anything, and no such job waits already or is paused.
    pub(crate) async fn resync_if_needed(&self, pool: &Rc<OpenPool>) -> Option<dolmen_api::Job> {
        let is_stale = pool.spaces.members().is_stale().await.unwrap_or_default();
        let unfinished = self.jobs.unfinished_of(pool.id());
        let begins_later = unfinished
            .iter()
            .any(|entry| entry.is(&ResyncJob) && entry.is_taken() && entry.state() != JobState::Running);
        if !is_stale || begins_later {
            return None;
        }
        Some(self.start_resync(pool).await)
    }

    pub(crate) async fn start_resync(&self, pool: &Rc<OpenPool>) -> dolmen_api::Job {
        let spaces = Rc::clone(&pool.spaces);
        let subject = format!("pool {}", pool.name());
        let start = Start { kind: &ResyncJob, subject, aim: Aim::Pool, again: None };
        self.pool_jobs
            .start_job(pool, start, move |course| async move { bring_up_to_date(&spaces, &course).await })
            .await
    }
}

async fn bring_up_to_date(spaces: &Spaces, course: &Course) -> Answer<Outcome> {
    let is_stale = async || spaces.members().is_stale().await.map_err(|error| fault::space(&error));
    if !is_stale().await? {
        return Ok(Outcome::Done(
            "nothing was left: another job has brought everything up to date".to_owned(),
        ));
    }
    let stale = spaces.members().stale_rows().await.unwrap_or_default();
    let lengths: BTreeMap<_, _> = spaces.kept().iter().map(|space| (space.id(), space.row_bytes())).collect();
    course.bytes_max.set(stale.iter().filter_map(|(space, _)| lengths.get(space)).sum());
    let done = spaces.members().resync(&course.progress).await.map_err(|error| fault::space(&error))?;
    let off = reported(&done);
    let has_left = done.waiting > 0 && is_stale().await?;
    Ok(match has_left {
        true if done.backing_full > 0 => {
            Outcome::Put { off, waits_for: "room below the files of its disks".to_owned() }
        }
        true => Outcome::Put { off, waits_for: "disks that are absent".to_owned() },
        false => Outcome::Done(off),
    })
}

/// What a resync has done, in words.
fn reported(done: &Resynced) -> String {
    let mut text = format!(
        "{} brought up to date, {} copied",
        counted(done.slabs, "slab", "slabs"),
        counted(done.blocks, "block", "blocks")
    );
    if done.waiting > done.backing_full {
        let slabs = counted(done.waiting - done.backing_full, "slab waits", "slabs wait");
        text.push_str(&format!("; {slabs} for disks that are absent"));
    }
    if done.backing_full > 0 {
        let slabs = counted(done.backing_full, "slab waits", "slabs wait");
        text.push_str(&format!("; {slabs} for room below the files of their disks"));
    }
    if done.lost_blocks > 0 {
        text.push_str(&format!("; {} lost", counted(done.lost_blocks, "block is", "blocks are")));
    }
    text
}
