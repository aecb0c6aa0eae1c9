//! Disks that leave a pool without another in their place: planned, begun, gone on with, called off (docs/design/0010).

use std::rc::Rc;

use dolmen_api::{Change, DiskRole, ErrorBody, ErrorCode, SetDiskRole, Simple};
use dolmen_pool::{Disk, LocalFuture, PoolState};
use dolmen_space::Progress;
use dolmen_units::DiskId;

use crate::answer::Answer;
use crate::base::Base;
use crate::disks::declared_lost::abandon;
use crate::disks::devices::Devices;
use crate::disks::drain_job::DrainJob;
use crate::disks::find::find_disk;
use crate::disks::leaving::{
    check_that_it_may_leave, figures_of_removing, offer_of_spare, role_in_words, steps_of_removing,
    undo_of_removing,
};
use crate::disks::replacement::Replacements;
use crate::fault;
use crate::job::{Ending, JobWorker, ending, not_open};
use crate::jobs::{Aim, Entry, Jobs, Outcome, Start};
use crate::open_pool::OpenPool;
use crate::open_pools::OpenPools;
use crate::plan::{Undo, made, planned};
use crate::pool_jobs::PoolJobs;
use crate::pools::Widths;
use crate::records::Records;
use crate::spaces::{narrow, narrowings};
use crate::state::is_here;

impl JobWorker for Drains {
    fn resume<'a>(self: Rc<Self>, pool: &'a Rc<OpenPool>, _entry: &'a Rc<Entry>) -> LocalFuture<'a, ()> {
        Box::pin(async move {
            self.go_on_draining(pool).await;
        })
    }

    fn ending(&self, _entry: &Entry) -> Ending {
        Ending { step: "what was moved stays where it is", undo: Undo::NotNeeded }
    }

    fn stop<'a>(self: Rc<Self>, entry: &'a Rc<Entry>, request: Simple) -> LocalFuture<'a, Answer<Change>> {
        Box::pin(async move {
            let Aim::Disk(disk) = entry.aim else { return Err(ending(entry)) };
            let Some(pool) = self.pools.open_pool_of(entry.pool) else { return Err(not_open(entry)) };
            if let Some(kept) = slot_with_role(&pool, disk) {
                let role = SetDiskRole { role: DiskRole::Member, dry_run: request.dry_run };
                return self.set_disk_role(pool.name(), kept, role).await;
            }
            let drains = pool.spaces.moves().drains();
            let leaving = drains.iter().find(|leaving| leaving.id() == disk).ok_or_else(|| ending(entry))?;
            self.cancel_remove(pool.name(), leaving.slot().0.to_string(), request).await
        })
    }
}

/// Returns the number of the disk, if it is to be empty because of its role, and not to leave.
fn slot_with_role(pool: &OpenPool, disk: DiskId) -> Option<String> {
    let to_empty = pool.spaces.moves().to_empty();
    to_empty.iter().find(|emptied| emptied.id() == disk).map(|emptied| emptied.slot().0.to_string())
}

/// Which spare takes data in the place of a disk that is removed.
pub(crate) enum SpareToCall {
    /// The fittest, where the disk is lost or no other disk can take what it holds.
    WhereNeeded,
    /// This one.
    This(Rc<Disk>),
}

/// Moves everything off a disk, with a spare in its place where one is called. The pool is locked for the change.
pub(crate) async fn remove_with(
    drains: &Rc<Drains>,
    pool: &Rc<OpenPool>,
    disk: Rc<Disk>,
    what: String,
    call: SpareToCall,
    dry_run: bool,
) -> Answer<Change> {
    let name = pool.name();
    // One that waits may be tried again.
    let is_at_it = drains.is_draining(pool);
    let leaving =
        pool.spaces.moves().drains().into_iter().find(|leaving| is_at_it || leaving.id() != disk.id());
    if let Some(leaving) = leaving {
        let message = format!("{} is being removed already; nothing was changed", leaving.name());
        return Err(ErrorBody::new(ErrorCode::Busy, message).on(what).hint(format!(
            "`dolmen jobs` shows how far that is; one disk leaves after another, or `dolmen pool remove {name} {} --cancel`",
            leaving.slot().0
        )));
    }
    let forecast = pool.spaces.moves().forecast_removal(disk.slot()).await;
    let mut forecast = forecast.map_err(|error| fault::space(&error))?;
    // A spare is for disks that are lost, or that no other disk can take the data of.
    let is_spare = pool.spaces.pool().members().role_of(&disk).is_some();
    let is_needed = !is_spare && (!disk.is_present() || !forecast.stuck.is_empty());
    let deed = match &call {
        SpareToCall::WhereNeeded => "removed".to_owned(),
        SpareToCall::This(spare) => format!("replaced by the spare {}", spare.name()),
    };
    let spare = match call {
        SpareToCall::WhereNeeded => pool.spare_for(&disk).filter(|_| is_needed),
        SpareToCall::This(spare) => Some(spare),
    };
    if spare.is_some() {
        let more = offer_of_spare(pool, spare.as_ref());
        let with = pool.spaces.moves().forecast_removal_with(disk.slot(), &more).await;
        forecast = with.map_err(|error| fault::space(&error))?;
    }
    check_that_it_may_leave(pool, &disk).map_err(|error| error.on(what.as_str()))?;
    let narrower = narrowings(pool, &disk, &forecast).await.map_err(|error| error.on(what))?;
    let mut steps = steps_of_removing(pool, &disk, &forecast, &narrower);
    if let Some(spare) = &spare {
        steps.insert(0, format!("let the spare {} take data in its place", spare.name()));
    }
    let plan = figures_of_removing(pool, &forecast, &narrower).plan(undo_of_removing(pool, &disk), steps);
    if dry_run {
        return Ok(planned(plan, format!("{} would be {deed}", disk.name())));
    }
    let _coming = pool.job_slot.announce();
    drains.retire_disk(pool, &disk, spare).await?;
    // Whatever the pool had made of it by itself, a person wants it gone.
    pool.absences.take_back(disk.id());
    drains.records.keep_history(pool).await;
    let mut change = made(plan, format!("{} is being {deed}", disk.name()));
    change.job = Some(drains.start_draining(pool, disk).await);
    Ok(change)
}

/// Disks that leave their pool, or change their role in it.
pub(crate) struct Drains {
    pub(super) pools: Rc<OpenPools>,
    pub(super) records: Rc<Records>,
    pub(super) pool_jobs: Rc<PoolJobs>,
    devices: Rc<Devices>,
    widths: Rc<Widths>,
    pub(super) replacements: Rc<Replacements>,
    pub(super) jobs: Rc<Jobs>,
}

impl Drains {
    pub(crate) fn new(
        base: &Base,
        devices: &Rc<Devices>,
        widths: &Rc<Widths>,
        replacements: &Rc<Replacements>,
    ) -> Self {
        Self {
            pools: Rc::clone(&base.pools),
            records: Rc::clone(&base.records),
            pool_jobs: Rc::clone(&base.pool_jobs),
            devices: Rc::clone(devices),
            widths: Rc::clone(widths),
            replacements: Rc::clone(replacements),
            jobs: Rc::clone(&base.jobs),
        }
    }
}

impl Drains {
    /// Moves everything off a disk, to the others, and strikes it from the pool.
    pub(crate) async fn remove_disk(
        self: &Rc<Self>,
        name: String,
        what: String,
        request: Simple,
    ) -> Answer<Change> {
        let pool = self.pools.pool_to_change(&name)?;
        let _exclusive = self.pools.lock_for_change(&pool).await?;
        self.pool_jobs.check_job_room(&pool)?;
        let disk = find_disk(&pool, &what)?;
        remove_with(self, &pool, disk, what, SpareToCall::WhereNeeded, request.dry_run).await
    }

    /// Calls the removal of a disk off: it takes data again, and keeps what was not moved.
    pub(crate) async fn cancel_remove(&self, name: String, what: String, request: Simple) -> Answer<Change> {
        let pool = self.pools.pool_to_change(&name)?;
        let _exclusive = self.pools.lock_for_change(&pool).await?;
        let disk = find_disk(&pool, &what)?;
        if !pool.spaces.pool().members().is_drained(&disk) {
            let message = format!("{} is not being removed; nothing was changed", disk.name());
            return Err(ErrorBody::new(ErrorCode::BadRequest, message)
                .on(what)
                .hint("one that has left already is added again with `dolmen pool add`"));
        }
        let stays = match pool.spaces.pool().members().role_of(&disk) {
            None => format!("let {} take data again", disk.name()),
            role => format!("keep {} in the pool, where it {}", disk.name(), role_in_words(role)),
        };
        let excluded = match pool.spaces.pool().members().is_declared_lost(&disk) {
            true => ", and what was declared lost by then stays lost",
            false => "",
        };
        let steps = vec![format!("{stays}; what was moved stays where it is{excluded}")];
        let undo = Undo::By(format!("dolmen pool remove {name} {}", disk.slot().0));
        let plan = pool.plan(undo, steps);
        if request.dry_run {
            return Ok(planned(plan, format!("the removal of {} would be called off", disk.name())));
        }
        pool.spaces
            .pool()
            .membership()
            .reinstate(&disk)
            .await
            .map_err(|error| fault::pool(&error).on(disk.name()))?;
        pool.absences.take_back(disk.id());
        let aim = Aim::Disk(disk.id());
        self.jobs.stop(pool.id(), &DrainJob, aim, &format!("{} is not removed any more", disk.name()));
        self.jobs.keep().await;
        self.widths.finish_widths(&pool).await;
        Ok(made(plan, format!("the removal of {} is called off", disk.name())))
    }

    /// Goes on with removals that were begun before the pool was opened, or that had to wait.
    pub(crate) async fn go_on_draining(self: &Rc<Self>, pool: &Rc<OpenPool>) {
        self.reinstate_returned(pool).await;
        for disk in pool.spaces.moves().drains() {
            if !self.jobs.is_taken(pool.id(), &DrainJob, Some(Aim::Disk(disk.id()))) {
                self.start_draining(pool, disk).await;
            }
        }
        for disk in pool.spaces.moves().to_empty() {
            if !self.jobs.is_taken(pool.id(), &DrainJob, Some(Aim::Disk(disk.id()))) {
                self.start_draining(pool, disk).await;
            }
        }
    }

    /// Whether a removal is at work, waits for the slot, or is paused.
    fn is_draining(&self, pool: &OpenPool) -> bool {
        self.jobs.is_taken(pool.id(), &DrainJob, None)
    }

    pub(crate) async fn start_draining(
        self: &Rc<Self>,
        pool: &Rc<OpenPool>,
        disk: Rc<Disk>,
    ) -> dolmen_api::Job {
        let start = Start { kind: &DrainJob, subject: disk.name(), aim: Aim::Disk(disk.id()), again: None };
        let (service, owner) = (Rc::clone(self), Rc::clone(pool));
        self.pool_jobs
            .start_job(pool, start, move |course| async move {
                course.bytes_max.set(owner.bytes_on(&disk));
                let result = service.drain(&owner, &disk, &course.progress).await;
                if !owner.spaces.pool().members().is_drained(&disk) {
                    service.widths.finish_widths(&owner).await;
                }
                service.records.remember(&owner).await;
                result
            })
            .await
    }

    async fn drain(&self, owner: &OpenPool, disk: &Rc<Disk>, progress: &Progress) -> Answer<Outcome> {
        let (pool, name) = (owner.spaces.pool(), disk.name());
        // It may have been called off, and begun again, by another job, before this one noticed.
        let is_wanted = || pool.members().is_to_be_empty(disk) && !progress.is_to_stop();
        let had_role = pool.members().role_of(disk).is_some();
        let left = |notes: &str| format!("{name} holds nothing any more and has left the pool{notes}");
        let stays = || {
            // A job that emptied it because of its role strikes it as well.
            if !progress.is_to_stop() && !pool.disks().iter().any(|other| other.id() == disk.id()) {
                return Ok(Outcome::Done(left("")));
            }
            let does = if had_role { "emptied" } else { "removed" };
            Ok(Outcome::CalledOff(format!("{name} is not {does} any more")))
        };
        if !is_wanted() {
            return stays();
        }
        owner.spaces.moves().forget_left(disk.id());
        let excluded = abandon(owner, disk, progress).await?;
        let mut moved = owner.spaces.moves().drain_disk(disk, progress).await;
        // What can leave as it is has left, and with it the rows of write caches in which others have blocks. A disk that stays with
        // a role changes no widths: none was given one that rows could not leave as they are.
        if is_wanted() && matches!(moved, Ok(false)) && pool.members().is_drained(disk) {
            // Nothing waits for anybody yet.
            owner.spaces.moves().forget_left(disk.id());
            let narrowed = narrow(owner, disk, progress, is_wanted).await;
            if !is_wanted() {
                return stays();
            }
            narrowed.map_err(|error| fault::space(&error))?;
            moved = owner.spaces.moves().drain_disk(disk, progress).await;
        }
        if !is_wanted() {
            return stays();
        }
        if !moved.map_err(|error| fault::space(&error))? {
            return Ok(put_off(owner, disk, &excluded));
        }
        if !pool.members().is_drained(disk) {
            return Ok(Outcome::Done(format!("{name} holds nothing any more, and stays a disk of the pool")));
        }
        match self.devices.evict(owner, disk, is_wanted).await? {
            Some(notes) => Ok(Outcome::Done(left(&(notes + &excluded)))),
            None => stays(),
        }
    }

    /// Lets disks take data again that the pool had given up, and that are back.
    pub(crate) async fn reinstate_returned(&self, pool: &Rc<OpenPool>) {
        if pool.spaces.pool().state() != PoolState::Writable {
            return;
        }
        for disk in pool.spaces.moves().drains() {
            if !is_here(&disk) || !pool.absences.is_excluded(disk.id()) {
                continue;
            }
            if let Err(error) = pool.spaces.pool().membership().reinstate(&disk).await {
                tracing::info!(disk = disk.name(), %error, "a disk that is back goes on leaving");
                continue;
            }
            pool.absences.take_back(disk.id());
            self.records.keep_history(pool).await;
            let why = format!("{} is back", disk.name());
            self.jobs.stop(pool.id(), &DrainJob, Aim::Disk(disk.id()), &why);
            tracing::info!(disk = disk.name(), "a disk that was excluded is back and takes data again");
            self.widths.finish_widths(pool).await;
        }
    }
}

/// That a removal waits.
fn put_off(owner: &OpenPool, disk: &Disk, excluded: &str) -> Outcome {
    let left = owner.spaces.left_on(disk.id()).unwrap_or_default();
    let left: Vec<String> = left.iter().map(|space| space.name().to_string()).collect();
    let disks = owner.spaces.pool().disks();
    // One that is declared lost is waited for by nobody.
    let may_come_back =
        |disk: &&Rc<Disk>| !disk.is_present() && !owner.spaces.pool().members().is_declared_lost(disk);
    let absent: Vec<String> = disks.iter().filter(may_come_back).map(|disk| disk.name()).collect();
    let waits_for = match absent.is_empty() {
        true => "room on the other disks, or for what could not be read to be mended".to_owned(),
        false => absent.join(" or "),
    };
    let off = format!(
        "what could be moved off {} was; the rest, of {}, waits for {waits_for}, and goes on by itself{excluded}",
        disk.name(),
        left.join(", ")
    );
    Outcome::Put { off, waits_for }
}
