//! What people and restarts do with jobs: listed, paused, resumed, stopped, set, gone on with (docs/design/0011).

use std::rc::Rc;
use std::time::Duration;

use dolmen_api::{
    Change, DiskRole, ErrorBody, ErrorCode, JobDocument, JobKind, JobState, Plan, SCHEMA, SetDiskRole,
    SetJob, Simple,
};
use dolmen_block_io::within;
use dolmen_pool::Disk;
use dolmen_units::{DiskId, PoolId};

use crate::caller::Answer;
use crate::conversion::full_name;
use crate::engine::{Engine, OpenPool};
use crate::findings::is_here;
use crate::jobs::record::{Aim, seconds_now};
use crate::jobs::registry::Entry;
use crate::jobs::share as job_share;
use crate::plan::{Figures, Undo, made, planned};
use crate::trash::to_go_on;

/// How long an answer waits for what is under way of a job that is to pause or to end.
const TIMEOUT: Duration = Duration::from_secs(2);

/// What a pool says of a job for which nobody works.
enum Standing {
    /// It goes on.
    GoesOn,
    /// It has ended, and its end is not on record.
    Ended(JobState, &'static str),
}

impl Standing {
    fn ended(is_done: bool) -> Self {
        match is_done {
            true => Self::Ended(JobState::Done, "it had ended when the daemon looked for it"),
            false => Self::Ended(JobState::CalledOff, "it is wanted no more"),
        }
    }
}

impl Engine {
    /// Takes over what the last daemon has left on record.
    pub(crate) async fn recall_jobs(&self) {
        self.jobs.recall().await;
    }

    /// Ends jobs of pools that nobody waits for any more.
    pub(crate) async fn end_jobs_of_lost_pools(&self) {
        let is_known =
            |pool| self.pools.borrow().contains_key(&pool) || self.closed.borrow().contains_key(&pool);
        for entry in self.jobs.unfinished().iter().filter(|entry| !is_known(entry.pool)) {
            let why = format!("pool {} is not known here any more", entry.pool_name);
            tracing::warn!(
                job = entry.id,
                pool = entry.pool_name,
                "a job is called off: its pool is not known here"
            );
            entry.end(JobState::CalledOff, why);
        }
        self.jobs.keep().await;
    }

    /// What a pool says of one of its jobs.
    async fn standing(&self, pool: &OpenPool, entry: &Entry) -> Standing {
        let inner = pool.spaces.pool();
        let disk = |wanted: DiskId| inner.disks().into_iter().find(|disk| disk.id() == wanted);
        match (entry.kind, entry.aim) {
            (JobKind::Convert, Aim::Space { id, .. }) if pool.spaces.get(id).is_none() => {
                Standing::Ended(JobState::CalledOff, "its space is there no more")
            }
            (JobKind::Replace, Aim::Disk(new)) => {
                let begun = inner.replacements();
                if begun.iter().any(|(_, other)| other.id() == new) {
                    return Standing::GoesOn;
                }
                let is_turned = begun.iter().any(|(one, _)| one.id() == new);
                Standing::ended(disk(new).is_some() && !is_turned)
            }
            (JobKind::Drain, Aim::Disk(leaving)) => match disk(leaving) {
                Some(disk) if inner.is_drained(&disk) => Standing::GoesOn,
                Some(disk) if inner.role_of(&disk).is_some() => match inner.holds_rows(&disk) {
                    true => Standing::GoesOn,
                    false => Standing::Ended(JobState::Done, "it holds nothing any more"),
                },
                left => Standing::ended(left.is_none()),
            },
            (JobKind::Resync, _) => match pool.spaces.is_stale().await {
                Ok(false) => Standing::Ended(JobState::Done, "nothing is left to be brought up to date"),
                Ok(true) | Err(_) => Standing::GoesOn,
            },
            // What is rebuilt of one that is away is begun again when that is time, but for what somebody has paused.
            (JobKind::Empty, Aim::Disk(gone))
                if disk(gone).is_some_and(|disk| !is_here(&disk) && inner.is_active(&disk)) =>
            {
                match entry.is_paused() {
                    true => Standing::GoesOn,
                    false => Standing::Ended(JobState::CalledOff, "its disk is away by now"),
                }
            }
            (JobKind::Empty, Aim::Disk(failing))
                if !disk(failing).is_some_and(|disk| pool.is_to_be_empty(&disk)) =>
            {
                Standing::Ended(JobState::CalledOff, "its disk is well by now, or none of the pool any more")
            }
            (JobKind::Purge, _) if pool.spaces.condemned().is_empty() => {
                Standing::Ended(JobState::Done, "nothing is left to be purged")
            }
            (
                JobKind::Scrub
                | JobKind::WriteCache
                | JobKind::Rebalance
                | JobKind::Replace
                | JobKind::Drain
                | JobKind::Convert
                | JobKind::Purge
                | JobKind::Empty,
                _,
            ) => Standing::GoesOn,
        }
    }

    /// Ends jobs of an open pool for which nobody works and that the pool knows nothing of any more.
    pub(crate) async fn end_what_is_over(&self, pool: &OpenPool) {
        let idle = |entry: &Rc<Entry>| !entry.is_in_hand();
        for entry in self.jobs.unfinished_of(pool.id()).into_iter().filter(idle) {
            if let Standing::Ended(state, why) = self.standing(pool, &entry).await
                && !entry.has_ended()
                && !entry.is_in_hand()
            {
                entry.end(state, why.to_owned());
            }
        }
        self.jobs.keep().await;
    }

    async fn end_all_that_is_over(&self) {
        for pool in self.open_pools().iter().filter(|pool| !pool.is_closing.get()) {
            self.end_what_is_over(pool).await;
        }
    }

    /// Goes on with what a pool has to do, and with what people had asked for, when it was opened.
    pub(crate) async fn go_on_with_jobs(self: &Rc<Self>, pool: &Rc<OpenPool>) {
        self.end_what_is_over(pool).await;
        // A replacement brings up to date what it meets, which is everything that is here.
        if !self.go_on_replacing(pool).await {
            self.resync_if_needed(pool).await;
        }
        self.go_on_draining(pool).await;
        self.purge_if_needed(pool).await;
        self.go_on_with_asked(pool).await;
        if pool.spaces.drains().is_empty() {
            self.finish_widths(pool).await;
        }
    }

    /// Goes on with jobs that only the record knows.
    pub(crate) async fn go_on_with_asked(self: &Rc<Self>, pool: &Rc<OpenPool>) {
        for entry in self.jobs.unfinished_of(pool.id()) {
            if self.jobs.is_left(&entry) && !entry.is_paused() {
                self.go_on_with_one(pool, &entry).await;
            }
        }
    }

    /// Goes on with a job that only the record knows.
    async fn go_on_with_one(self: &Rc<Self>, pool: &Rc<OpenPool>, entry: &Rc<Entry>) {
        match (entry.kind, entry.aim) {
            (JobKind::Scrub, _) => match self.scrub_of(pool).filter(|other| other.id < entry.id) {
                Some(other) => {
                    entry.end(JobState::CalledOff, format!("job {} verifies the same", other.id));
                }
                None => drop(self.start_scrub(pool, Some(Rc::clone(entry))).await),
            },
            (JobKind::Rebalance, _) => {
                self.start_rebalance(pool, Some(Rc::clone(entry))).await;
            }
            (JobKind::WriteCache, Aim::WriteCache { survives, size }) => {
                self.start_resizing(pool, (survives, size), Some(Rc::clone(entry))).await;
            }
            (JobKind::Convert, Aim::Space { .. }) => self.go_on_converting(pool, entry).await,
            (JobKind::Empty, Aim::Disk(failing)) => self.go_on_emptying(pool, failing, entry).await,
            (
                JobKind::Resync
                | JobKind::Replace
                | JobKind::Drain
                | JobKind::WriteCache
                | JobKind::Convert
                | JobKind::Purge
                | JobKind::Empty,
                _,
            ) => {}
        }
    }

    /// Goes on with a job for which nobody works, as its pool needs it.
    async fn take_up(self: &Rc<Self>, pool: &Rc<OpenPool>, entry: &Rc<Entry>) {
        match entry.kind {
            JobKind::Scrub | JobKind::WriteCache | JobKind::Rebalance | JobKind::Convert | JobKind::Empty => {
                self.go_on_with_one(pool, entry).await;
            }
            JobKind::Resync => drop(self.resync_if_needed(pool).await),
            JobKind::Replace => drop(self.go_on_replacing(pool).await),
            JobKind::Drain => self.go_on_draining(pool).await,
            JobKind::Purge => drop(self.purge_if_needed(pool).await),
        }
    }

    pub(crate) async fn jobs(self: Rc<Self>) -> Answer<dolmen_api::Jobs> {
        self.end_all_that_is_over().await;
        let jobs = self.jobs.list(self.seams.clock.now());
        Ok(dolmen_api::Jobs { schema: SCHEMA, jobs, now_s: seconds_now() })
    }

    pub(crate) async fn job(self: Rc<Self>, id: u64) -> Answer<JobDocument> {
        self.end_all_that_is_over().await;
        let entry = self.find_job(&id.to_string())?;
        Ok(JobDocument { schema: SCHEMA, job: entry.view(self.seams.clock.now()), now_s: seconds_now() })
    }

    fn find_job(&self, id: &str) -> Answer<Rc<Entry>> {
        let found = id.parse().ok().and_then(|id| self.jobs.find(id));
        found.ok_or_else(|| {
            ErrorBody::new(ErrorCode::NoSuchJob, format!("there is no job {id}, or it is forgotten already"))
                .on(id)
                .hint("`dolmen jobs` shows all of them")
        })
    }

    /// A job that has not ended, to be changed.
    async fn job_to_change(&self, id: &str) -> Answer<Rc<Entry>> {
        self.check_running()?;
        self.end_all_that_is_over().await;
        let entry = self.find_job(id)?;
        let how = match entry.state() {
            JobState::Waiting | JobState::Running | JobState::Paused => return Ok(entry),
            JobState::Done => "it is done",
            JobState::CalledOff => "it was called off",
            JobState::Failed => "it failed",
        };
        let message = format!("job {id} has ended already: {how}; nothing was changed");
        let hint = format!("`dolmen jobs {id}` shows what came of it");
        Err(ErrorBody::new(ErrorCode::BadRequest, message).on(id).hint(hint))
    }

    fn open_pool_of(&self, pool: PoolId) -> Option<Rc<OpenPool>> {
        self.pools.borrow().get(&pool).cloned()
    }

    fn plan_of(&self, entry: &Entry, undo: Undo, steps: Vec<String>) -> Plan {
        match self.open_pool_of(entry.pool) {
            Some(pool) => pool.plan(undo, steps),
            None => Figures::of_room(0, 0).plan(undo, steps),
        }
    }

    fn stated(&self, entry: &Entry, plan: Plan, message: String) -> Change {
        let mut change = made(plan, message);
        change.job = Some(entry.view(self.seams.clock.now()));
        change
    }

    pub(crate) fn unchanged(&self, entry: &Entry, message: String) -> Change {
        let mut change = planned(self.plan_of(entry, Undo::NotNeeded, Vec::new()), message);
        change.job = Some(entry.view(self.seams.clock.now()));
        change
    }

    /// Has a job stand until it is resumed, also over restarts.
    pub(crate) async fn pause_job(self: Rc<Self>, id: String, request: Simple) -> Answer<Change> {
        let entry = self.job_to_change(&id).await?;
        let what = entry.what();
        if entry.is_paused() {
            return Ok(self.unchanged(&entry, format!("{what} is paused already")));
        }
        if entry.is_to_stop() {
            return Err(ending(&entry));
        }
        let steps = vec![format!("let {what} end what is under way, and hold it; others of its pool go on")];
        let plan = self.plan_of(&entry, Undo::By(format!("dolmen job resume {id}")), steps);
        if request.dry_run {
            return Ok(planned(plan, format!("{what} would be paused")));
        }
        entry.pause();
        let recorded = self.jobs.record().await;
        let limit = self.seams.clock.now() + TIMEOUT;
        let _ = within(self.seams.clock.as_ref(), limit, entry.rests()).await;
        if recorded.is_ok() {
            // Where a scrub stands now.
            self.jobs.keep().await;
        }
        let message = match entry.state() {
            JobState::Paused => format!("{what} is paused"),
            JobState::Waiting | JobState::Running => {
                format!("{what} pauses as soon as the rows that are under way are done")
            }
            JobState::Done | JobState::CalledOff | JobState::Failed => {
                return Ok(self.unchanged(&entry, format!("{what} ended before it could be paused")));
            }
        };
        let mut change = self.stated(&entry, plan, message);
        change.warnings.extend(
            recorded
                .err()
                .map(|error| format!("that is not on record, and the next daemon goes on with it: {error}")),
        );
        Ok(change)
    }

    /// Lets a job that was paused go on.
    pub(crate) async fn resume_job(self: Rc<Self>, id: String, request: Simple) -> Answer<Change> {
        let entry = self.job_to_change(&id).await?;
        let what = entry.what();
        if !entry.is_paused() {
            return Ok(self.unchanged(&entry, format!("{what} is not paused")));
        }
        let steps = vec![format!("go on with {what} when the slot is free")];
        let plan = self.plan_of(&entry, Undo::By(format!("dolmen job pause {id}")), steps);
        if request.dry_run {
            return Ok(planned(plan, format!("{what} would go on")));
        }
        entry.resume();
        let recorded = self.jobs.record().await;
        let mut message = format!("{what} goes on");
        match self.open_pool_of(entry.pool) {
            // The pool may have gone on with it by itself meanwhile, or somebody have stopped it.
            Some(pool) if self.jobs.is_left(&entry) => self.take_up(&pool, &entry).await,
            Some(_) => {}
            None => message.push_str(&format!(" when pool {} is open", entry.pool_name)),
        }
        let entry = self.find_job(&id)?;
        let mut change = self.stated(&entry, plan, message);
        change.warnings.extend(
            recorded
                .err()
                .map(|error| format!("that is not on record, and the next daemon finds it paused: {error}")),
        );
        Ok(change)
    }

    /// Sets how a job shares the disks of its pool with clients, also over restarts.
    pub(crate) async fn set_job(self: Rc<Self>, id: String, request: SetJob) -> Answer<Change> {
        let entry = self.job_to_change(&id).await?;
        let (what, before) = (entry.what(), entry.job_share());
        let after = job_share::asked_for(&request, before).map_err(|error| error.on(id.as_str()))?;
        let words = job_share::words_of(after);
        if after == before {
            return Ok(self.unchanged(&entry, format!("{what} has {words} already")));
        }
        let steps = vec![format!("give {what} {words}, instead of {}", job_share::words_of(before))];
        let plan = self.plan_of(&entry, Undo::By(job_share::command_for(entry.id, before)), steps);
        if request.dry_run {
            return Ok(planned(plan, format!("{what} would have {words}")));
        }
        entry.set_job_share(self.open_pool_of(entry.pool).as_deref(), after);
        let recorded = self.jobs.record().await;
        let mut change = self.stated(&entry, plan, format!("{what} has {words}"));
        change.warnings.extend(
            recorded
                .err()
                .map(|error| format!("that is not on record, and the next daemon forgets it: {error}")),
        );
        Ok(change)
    }

    /// Ends a job before it is done, as far as its kind can be.
    pub(crate) async fn stop_job(self: Rc<Self>, id: String, request: Simple) -> Answer<Change> {
        if let Ok(entry) = self.find_job(&id)
            && (entry.state() == JobState::CalledOff || (!entry.has_ended() && entry.is_to_stop()))
        {
            let is = if entry.has_ended() { "is" } else { "is being" };
            return Ok(self.unchanged(&entry, format!("{} {is} called off already", entry.what())));
        }
        let entry = self.job_to_change(&id).await?;
        match (entry.kind, entry.aim) {
            (JobKind::Resync, _) => Err(ErrorBody::new(
                ErrorCode::BadRequest,
                format!(
                    "{} cannot be stopped: pool {} lacks copies until it is done, and would begin it again; nothing was changed",
                    entry.what(),
                    entry.pool_name
                ),
            )
            .on(id.as_str())
            .hint(format!("`dolmen job pause {id}` holds it until it is resumed"))),
            (JobKind::Replace | JobKind::Drain, Aim::Disk(disk)) => {
                let Some(pool) = self.open_pool_of(entry.pool) else { return Err(not_open(&entry)) };
                if let Some(kept) = with_role(&pool, disk).filter(|_| entry.kind == JobKind::Drain) {
                    let role = SetDiskRole { role: DiskRole::Member, dry_run: request.dry_run };
                    return self.set_disk_role(pool.name(), kept, role).await;
                }
                let slot = slot_to_cancel(&pool, entry.kind, disk).ok_or_else(|| ending(&entry))?;
                let pool = pool.name();
                match entry.kind {
                    JobKind::Replace => self.cancel_replace(pool, slot, request).await,
                    _ => self.cancel_remove(pool, slot, request).await,
                }
            }
            (
                JobKind::Scrub
                | JobKind::WriteCache
                | JobKind::Rebalance
                | JobKind::Convert
                | JobKind::Replace
                | JobKind::Drain
                | JobKind::Purge
                | JobKind::Empty,
                _,
            ) => self.stop_asked(&entry, request).await,
        }
    }

    /// Whether a job is about a disk that is away.
    fn is_of_absent(&self, entry: &Entry) -> bool {
        let pool = self.pools.borrow().get(&entry.pool).cloned();
        let is_meant = |disk: &Rc<Disk>| entry.aim == Aim::Disk(disk.id()) && !is_here(disk);
        pool.is_some_and(|pool| pool.spaces.pool().disks().iter().any(is_meant))
    }

    /// Ends a job that only somebody's request has begun.
    async fn stop_asked(&self, entry: &Entry, request: Simple) -> Answer<Change> {
        let what = entry.what();
        let (step, undo) = match entry.kind {
            JobKind::Purge => {
                ("what it has freed is free, and what is left cannot be restored", self.undo_of_purge(entry))
            }
            JobKind::WriteCache => ("the write cache keeps the size that it has", Undo::NotNeeded),
            JobKind::Rebalance => (
                "what was moved stays where it is",
                Undo::By(format!("dolmen pool rebalance {}", entry.pool_name)),
            ),
            JobKind::Convert => (
                "rows that were moved stay as they are, and so do the others",
                self.undo_of_conversion(entry),
            ),
            JobKind::Empty if self.is_of_absent(entry) => (
                "what was rebuilt stays where it is, and nothing more is rebuilt by itself before the disk has been back",
                Undo::NotNeeded,
            ),
            JobKind::Empty => (
                "what was moved stays where it is, and it is not begun again before more happens; `dolmen pool remove` empties \
                 the disk nevertheless, and takes it out",
                Undo::NotNeeded,
            ),
            _ => (
                "what it has healed stays healed",
                Undo::By(format!("dolmen scrub {}, which begins again", entry.pool_name)),
            ),
        };
        let plan = self.plan_of(entry, undo, vec![format!("end {what}; {step}")]);
        if request.dry_run {
            return Ok(planned(plan, format!("{what} would be called off")));
        }
        self.hold_off_emptying(entry).await;
        entry.stop("it was called off");
        let limit = self.seams.clock.now() + TIMEOUT;
        let _ = within(self.seams.clock.as_ref(), limit, entry.ends()).await;
        self.jobs.keep().await;
        let message = match entry.state() {
            JobState::CalledOff => format!("{what} is called off"),
            JobState::Done | JobState::Failed => format!("{what} ended before it could be called off"),
            JobState::Waiting | JobState::Running | JobState::Paused => {
                format!("{what} ends as soon as the rows that are under way are done")
            }
        };
        Ok(self.stated(entry, plan, message))
    }
}

impl Engine {
    /// How a conversion that is stopped goes on.
    fn undo_of_conversion(&self, entry: &Entry) -> Undo {
        let (Aim::Space { id, .. }, Some(pool)) = (entry.aim, self.open_pool_of(entry.pool)) else {
            return Undo::NotNeeded;
        };
        let space = pool.spaces.get(id);
        space.map_or(Undo::NotNeeded, |space| {
            Undo::By(format!("dolmen space convert {}, which goes on with it", full_name(&pool, &space)))
        })
    }

    /// How a purge that is stopped goes on.
    fn undo_of_purge(&self, entry: &Entry) -> Undo {
        let condemned = self.open_pool_of(entry.pool).map(|pool| pool.spaces.condemned());
        let first = condemned.and_then(|condemned| condemned.first().map(|space| space.id().0));
        first.map_or(Undo::NotNeeded, |first| {
            Undo::By(to_go_on(&entry.pool_name, first).trim_matches('`').to_owned())
        })
    }
}

/// The number of the disk, if it is to be empty because of its role, and not to leave.
fn with_role(pool: &OpenPool, disk: DiskId) -> Option<String> {
    let to_empty = pool.spaces.to_empty();
    to_empty.iter().find(|emptied| emptied.id() == disk).map(|emptied| emptied.slot().0.to_string())
}

/// The number of the disk whose replacement, or removal, is called off.
fn slot_to_cancel(pool: &OpenPool, kind: JobKind, disk: DiskId) -> Option<String> {
    let inner = pool.spaces.pool();
    let slot = |disk: &Rc<Disk>| disk.slot().0.to_string();
    match kind {
        JobKind::Replace => {
            inner.replacements().iter().find(|(_, new)| new.id() == disk).map(|(old, _)| slot(old))
        }
        _ => pool.spaces.drains().iter().find(|leaving| leaving.id() == disk).map(slot),
    }
}

fn ending(entry: &Entry) -> ErrorBody {
    let message = format!("{} is ending already; nothing was changed", entry.what());
    let hint = format!("`dolmen jobs {}` shows what comes of it", entry.id);
    ErrorBody::new(ErrorCode::Busy, message).on(entry.id.to_string()).hint(hint)
}

fn not_open(entry: &Entry) -> ErrorBody {
    let message = format!("pool {} is not open; nothing was changed", entry.pool_name);
    let hint = format!("attach its disks, then `dolmen pool import --pool {}`", entry.pool_name);
    ErrorBody::new(ErrorCode::NoSuchPool, message).on(entry.id.to_string()).hint(hint)
}
