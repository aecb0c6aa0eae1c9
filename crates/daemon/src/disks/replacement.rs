//! Disks whose content moves to another that takes their place: begun, gone on with, ended (docs/design/0010).

use std::rc::Rc;

use dolmen_api::{Change, Simple};
use dolmen_pool::{Disk, LocalFuture};
use dolmen_space::Progress;

use crate::answer::Answer;
use crate::disks::declared_lost::abandon;
use crate::engine::Engine;
use crate::fault;
use crate::job::{Ending, Job, Standing, disk_of, ending, not_open};
use crate::jobs::{Aim, Entry, Kind, Outcome, Rank, Start};
use crate::open_pool::OpenPool;
use crate::plan::Undo;

/// Moves everything from one disk to another.
pub(crate) struct ReplaceJob;

impl Kind for ReplaceJob {
    fn word(&self) -> &'static str {
        "replace"
    }

    fn doing(&self) -> &'static str {
        "replacing"
    }

    fn rank(&self) -> Option<Rank> {
        Some(Rank::Urgent)
    }

    fn is_known_to_pool(&self) -> bool {
        true
    }

    fn takes_disk_out(&self) -> bool {
        true
    }

    fn is_about(&self, aim: Aim) -> bool {
        matches!(aim, Aim::Disk(_))
    }
}

impl Job for ReplaceJob {
    fn standing<'a>(&'a self, pool: &'a OpenPool, entry: &'a Entry) -> LocalFuture<'a, Standing> {
        let Aim::Disk(new) = entry.aim else { return Box::pin(async { Standing::GoesOn }) };
        let begun = pool.spaces.pool().replacements();
        let standing = if begun.iter().any(|(_, other)| other.id() == new) {
            Standing::GoesOn
        } else {
            let is_turned = begun.iter().any(|(one, _)| one.id() == new);
            Standing::ended(disk_of(pool, new).is_some() && !is_turned)
        };
        Box::pin(async { standing })
    }

    fn resume<'a>(
        &'a self,
        engine: &'a Rc<Engine>,
        pool: &'a Rc<OpenPool>,
        _entry: &'a Rc<Entry>,
    ) -> LocalFuture<'a, ()> {
        Box::pin(async move {
            engine.go_on_replacing(pool).await;
        })
    }

    fn ending(&self, _engine: &Engine, _entry: &Entry) -> Ending {
        Ending { step: "what was moved goes back", undo: Undo::NotNeeded }
    }

    fn stop<'a>(
        &'a self,
        engine: &'a Rc<Engine>,
        entry: &'a Rc<Entry>,
        request: Simple,
    ) -> LocalFuture<'a, Answer<Change>> {
        Box::pin(async move {
            let Aim::Disk(disk) = entry.aim else { return Err(ending(entry)) };
            let Some(pool) = engine.pools.open_pool_of(entry.pool) else { return Err(not_open(entry)) };
            let begun = pool.spaces.pool().replacements();
            let (old, _) = begun.iter().find(|(_, new)| new.id() == disk).ok_or_else(|| ending(entry))?;
            Rc::clone(engine).cancel_replace(pool.name(), old.slot().0.to_string(), request).await
        })
    }
}

impl Engine {
    /// Goes on with replacements that were begun before the pool was opened, or that had to wait for a disk. Whether one was
    /// begun that can move something: it brings up to date whatever is here.
    pub(crate) async fn go_on_replacing(self: &Rc<Self>, pool: &Rc<OpenPool>) -> bool {
        let mut is_begun = false;
        for (old, new) in pool.spaces.pool().replacements() {
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
        let (engine, owner) = (Rc::clone(self), Rc::clone(pool));
        self.pool_jobs
            .start_job(pool, start, move |course| async move {
                course.bytes_max.set(owner.bytes_on(&old));
                let result = engine.move_all(&owner, &old, &new, &course.progress).await;
                engine.records.remember(&owner).await;
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
            !progress.is_to_stop() && pool.replacements().iter().any(is_so)
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
        let moved = owner.spaces.move_slabs(old.slot(), new.slot(), progress).await;
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
        .filter(|disk| !disk.is_present() && !pool.is_declared_lost(disk))
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
