//! Disks whose content moves to another that takes their place: begun, gone on with, ended (docs/design/0010).

use std::rc::Rc;

use dolmen_api::{Change, ErrorBody, ErrorCode, Simple};
use dolmen_pool::{Disk, LocalFuture};
use dolmen_space::Progress;
use dolmen_units::ALLOCATION_UNIT_BYTES;

use crate::answer::Answer;
use crate::base::Base;
use crate::disks::declared_lost::abandon;
use crate::disks::devices::Devices;
use crate::disks::find::find_disk;
use crate::disks::replace_job::ReplaceJob;
use crate::fault;
use crate::job::{Ending, JobWorker, ending, not_open};
use crate::jobs::{Aim, Entry, Jobs, Outcome, Start};
use crate::open_pool::OpenPool;
use crate::open_pools::OpenPools;
use crate::plan::{Figures, Undo, made, offer_of, planned, usual_room};
use crate::pool_jobs::PoolJobs;
use crate::records::Records;

impl JobWorker for Replacements {
    fn resume<'a>(self: Rc<Self>, pool: &'a Rc<OpenPool>, _entry: &'a Rc<Entry>) -> LocalFuture<'a, ()> {
        Box::pin(async move {
            self.go_on_replacing(pool).await;
        })
    }

    fn ending(&self, _entry: &Entry) -> Ending {
        Ending { step: "what was moved goes back", undo: Undo::NotNeeded }
    }

    fn stop<'a>(self: Rc<Self>, entry: &'a Rc<Entry>, request: Simple) -> LocalFuture<'a, Answer<Change>> {
        Box::pin(async move {
            let Aim::Disk(disk) = entry.aim else { return Err(ending(entry)) };
            let Some(pool) = self.pools.open_pool_of(entry.pool) else { return Err(not_open(entry)) };
            let begun = pool.spaces.pool().members().replacements();
            let (old, _) = begun.iter().find(|(_, new)| new.id() == disk).ok_or_else(|| ending(entry))?;
            self.cancel_replace(pool.name(), old.slot().0.to_string(), request).await
        })
    }
}

/// Replacements of disks.
pub(crate) struct Replacements {
    pools: Rc<OpenPools>,
    records: Rc<Records>,
    pool_jobs: Rc<PoolJobs>,
    devices: Rc<Devices>,
    jobs: Rc<Jobs>,
}

impl Replacements {
    pub(crate) fn new(base: &Base, devices: &Rc<Devices>) -> Self {
        Self {
            pools: Rc::clone(&base.pools),
            records: Rc::clone(&base.records),
            pool_jobs: Rc::clone(&base.pool_jobs),
            devices: Rc::clone(devices),
            jobs: Rc::clone(&base.jobs),
        }
    }
}

impl Replacements {
    /// Goes on with replacements that were begun before the pool was opened, or that had to wait for a disk. Whether one was
    /// begun that can move something: it brings up to date whatever is here.
    pub(crate) async fn go_on_replacing(self: &Rc<Self>, pool: &Rc<OpenPool>) -> bool {
        let mut is_begun = false;
        for (old, new) in pool.spaces.pool().members().replacements() {
            if !self.jobs.is_taken(pool.id(), &ReplaceJob, Some(Aim::Disk(new.id()))) {
                is_begun |= new.is_present();
                self.start_replacing(pool, old, new).await;
            }
        }
        is_begun
    }

    /// The job that moves everything and strikes the old disk.
    pub(crate) async fn start_replacing(
        self: &Rc<Self>,
        pool: &Rc<OpenPool>,
        old: Rc<Disk>,
        new: Rc<Disk>,
    ) -> dolmen_api::Job {
        let subject = format!("{} by {}", old.name(), new.name());
        let start = Start { kind: &ReplaceJob, subject, aim: Aim::Disk(new.id()), again: None };
        let (service, owner) = (Rc::clone(self), Rc::clone(pool));
        self.pool_jobs
            .start_job(pool, start, move |course| async move {
                course.bytes_max.set(owner.bytes_on(&old));
                let result = service.move_all(&owner, &old, &new, &course.progress).await;
                service.records.remember(&owner).await;
                result
            })
            .await
    }

    async fn move_all(
        &self,
        owner: &OpenPool,
        old: &Rc<Disk>,
        new: &Disk,
        progress: &Progress,
    ) -> Answer<Outcome> {
        let pool = owner.spaces.pool();
        let name = old.name();
        let is_wanted = || {
            let is_so = |(one, other): &(Rc<Disk>, Rc<Disk>)| one.id() == old.id() && other.id() == new.id();
            // It may have been called off, and begun again, by another job, before this one noticed.
            !progress.is_to_stop() && pool.members().replacements().iter().any(is_so)
        };
        let called_off =
            || Ok(Outcome::CalledOff(format!("{name} is not replaced by {} any more", new.name())));
        if !is_wanted() {
            return called_off();
        }
        if !new.is_present() {
            let off = format!("{} is not here to take the place of {name}", new.name());
            return Ok(Outcome::Put { off, waits_for: new.name() });
        }
        let excluded = abandon(owner, old, progress).await?;
        let moved = owner.spaces.moves().move_slabs(old.slot(), new.slot(), progress).await;
        if !is_wanted() {
            return called_off();
        }
        if !moved.map_err(|error| fault::space(&error))? {
            return Ok(put_off(owner, old, new));
        }
        match self.devices.evict(owner, old, is_wanted).await? {
            Some(notes) => {
                Ok(Outcome::Done(format!("{} has taken the place of {name}{notes}{excluded}", new.name())))
            }
            None => called_off(),
        }
    }

    /// Calls a replacement off: what was moved goes back, and the new disk leaves the pool.
    pub(crate) async fn cancel_replace(
        self: &Rc<Self>,
        name: String,
        what: String,
        request: Simple,
    ) -> Answer<Change> {
        let pool = self.pools.pool_to_change(&name)?;
        let _exclusive = self.pools.lock_for_change(&pool).await?;
        self.pool_jobs.check_job_room(&pool)?;
        let disk = find_disk(&pool, &what)?;
        let (old, new) = replacement_of(&pool, &disk)?;
        if !old.is_present() {
            return Err(only_on(&old, &new).on(what));
        }
        let back = pool.spaces.moves().bytes_to_move(new.slot(), old.slot()).await;
        let back = back.map_err(|error| fault::space(&error))?;
        // An eviction forgets the room first; a disk without room on record has not run out of it.
        let Some(free) = pool.spaces.pool().free_space().free_on(old.slot()) else {
            return Err(has_ended(&old, &new).on(what));
        };
        if back > free {
            let message = format!(
                "{back} of what {} has would have to go back to {}, which has room for {free}; nothing was changed",
                new.name(),
                old.name()
            );
            return Err(ErrorBody::new(ErrorCode::NoSpace, message)
                .on(what)
                .hint("purge or trim something first, or let the replacement end"));
        }
        let before = pool.offers();
        let mut after: Vec<_> = before.iter().filter(|offer| offer.slot != new.slot()).copied().collect();
        after.extend(old.extent().map(|extent| {
            let mut offer = offer_of(old.slot().0, &extent, old.member().fault_domain);
            offer.free_units = (free.0 - back.0) / ALLOCATION_UNIT_BYTES;
            offer
        }));
        let steps = vec![
            format!("move back to {} what {} has", old.name(), new.name()),
            format!("evict {} from the pool", new.name()),
        ];
        let undo = match new.is_present() {
            true => Undo::By(format!("dolmen disk replace {name} {} {}", old.name(), new.name())),
            false => Undo::ByNothing,
        };
        let figures = Figures { before: usual_room(&before), after: usual_room(&after), moved: back.0 };
        let plan = figures.plan(undo, steps);
        let subject = format!("the replacement of {} by {}", old.name(), new.name());
        if request.dry_run {
            return Ok(planned(plan, format!("{subject} would be called off")));
        }
        let _coming = pool.job_slot.announce();
        pool.spaces.moves().call_off(&old, &new).await.map_err(|error| fault::space(&error))?;
        // The job of the replacement ends before this one begins.
        let why = format!("{} is not replaced by {} any more", old.name(), new.name());
        self.jobs.stop(pool.id(), &ReplaceJob, Aim::Disk(new.id()), &why);
        let mut change = made(plan, format!("{subject} is called off"));
        change.job = Some(self.start_replacing(&pool, new, old).await);
        Ok(change)
    }
}

/// That a replacement waits for what only absent disks have.
fn put_off(owner: &OpenPool, old: &Disk, new: &Disk) -> Outcome {
    let left = owner.spaces.left_on(old.id()).unwrap_or_default();
    let left: Vec<String> = left.iter().map(|space| space.name().to_string()).collect();
    let left = left.join(", ");
    let pool = owner.spaces.pool();
    let has = format!("{} has all that could be read", new.name());
    // One that is declared lost is waited for by nobody.
    let (first, others): (Vec<_>, Vec<_>) = pool
        .disks()
        .into_iter()
        .filter(|disk| !disk.is_present() && !pool.members().is_declared_lost(disk))
        .partition(|disk| disk.id() == old.id());
    let absent: Vec<String> = first.iter().chain(&others).map(|disk| disk.name()).collect();
    if absent.is_empty() {
        let off = format!("{has}; the rest, of {left}, could not be moved, although no disk is waited for");
        return Outcome::Put { off, waits_for: "another try, which is made by itself".to_owned() };
    }
    let waits_for = absent.join(" or ");
    let off = format!(
        "{has}; the rest, of {left}, waits for {waits_for}: take what is absent back in, delete what waits, or give it up \
         with `dolmen disk forget --accept-data-loss`, and it goes on by itself"
    );
    Outcome::Put { off, waits_for }
}

/// The replacement that a disk is part of: as the one that leaves, else as the one that comes.
fn replacement_of(pool: &OpenPool, disk: &Disk) -> Answer<(Rc<Disk>, Rc<Disk>)> {
    let begun = pool.spaces.pool().members().replacements();
    let leaves = begun.iter().find(|(old, _)| old.id() == disk.id());
    let comes: Vec<_> = begun.iter().filter(|(_, new)| new.id() == disk.id()).collect();
    match (leaves, comes.as_slice()) {
        (Some((old, new)), _) | (None, [(old, new)]) => Ok((Rc::clone(old), Rc::clone(new))),
        (None, []) => {
            let message = format!("{} is not being replaced; nothing was changed", disk.name());
            Err(ErrorBody::new(ErrorCode::BadRequest, message)
                .on(disk.name())
                .hint("one that has ended is undone by another, which puts the old disk in the place of the new one"))
        }
        (None, several) => {
            let names: Vec<String> = several.iter().map(|(old, _)| old.name()).collect();
            let message =
                format!("{} takes the place of {}; nothing was changed", disk.name(), names.join(" and of "));
            Err(ErrorBody::new(ErrorCode::BadRequest, message).on(disk.name()).hint("name one of these"))
        }
    }
}

/// Refusal to call off a replacement that has moved everything.
fn has_ended(old: &Disk, new: &Disk) -> ErrorBody {
    let message = format!(
        "{} has everything by now, and {} is being removed from the pool; nothing was changed",
        new.name(),
        old.name()
    );
    ErrorBody::new(ErrorCode::Busy, message)
        .hint("wait for the job to end; another replacement, with the two exchanged, moves everything back")
}

/// What goes back to an absent disk would go nowhere.
fn only_on(old: &Disk, new: &Disk) -> ErrorBody {
    let message = format!(
        "{} is absent, and what {} has by now is the copy that would be lacking; nothing was changed",
        old.name(),
        new.name()
    );
    ErrorBody::new(ErrorCode::NoSuchDevice, message).hint(format!(
        "take {} back in with `dolmen disk online` first, or let the replacement end",
        old.name()
    ))
}
