//! Disks that stay away: once a set time has passed, what they had is rebuilt on the others (docs/design/0015).

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use dolmen_api::{Change, ErrorBody, ErrorCode, SetRepairAfter, duration};
use dolmen_block_io::{Instant, Seams};
use dolmen_causes::in_one_line;
use dolmen_placement::Offer;
use dolmen_pool::{Disk, PoolState};
use dolmen_space::{Emptied, Progress};
use dolmen_units::{DiskId, SpaceId};

use crate::answer::Answer;
use crate::base::Base;
use crate::disks::drain_job::DrainJob;
use crate::disks::empty_job::EmptyJob;
use crate::disks::leaving::{check_that_it_is_alone, check_that_it_may_leave};
use crate::disks::removal::Drains;
use crate::fault;
use crate::jobs::{Aim, Entry, Jobs, Outcome, Start};
use crate::open_pool::OpenPool;
use crate::open_pools::OpenPools;
use crate::plan::{Undo, made, planned};
use crate::pool_jobs::PoolJobs;
use crate::records::Records;
use crate::spaces::narrowings;
use crate::state::{Occupant, is_here};

/// How soon, and how seldom, it is tried to give a disk up for which the others had no room.
const PAUSE_MIN: Duration = Duration::from_secs(2);
const PAUSE_MAX: Duration = Duration::from_secs(600);

impl OpenPool {
    /// Where absent disks were, as far as that is a path.
    pub(crate) fn places_of_absent(&self) -> Vec<PathBuf> {
        let disks = self.spaces.pool().disks();
        let absent = disks.iter().filter(|disk| !is_here(disk));
        absent.map(|disk| PathBuf::from(disk.name())).filter(|path| path.is_absolute()).collect()
    }

    /// Notes what is at these places.
    pub(crate) fn note_places(&self, seen: &BTreeMap<PathBuf, Occupant>) {
        let disks = self.spaces.pool().disks();
        let place =
            |disk: &Rc<Disk>| seen.get(Path::new(&disk.name())).map(|occupant| (disk.id(), *occupant));
        let absent = disks.iter().filter(|disk| !is_here(disk));
        *self.absences.places.borrow_mut() = absent.filter_map(place).collect();
    }
}

/// Forgets that disks were given up which are not about to leave any more: they are members as before, were replaced, or are
/// gone; and that somebody stopped what was rebuilt without one that is back. Whether there was one: both are on record.
fn forget_returned(pool: &OpenPool) -> bool {
    let leaving: BTreeSet<DiskId> = pool.spaces.moves().drains().iter().map(|disk| disk.id()).collect();
    let disks = pool.spaces.pool().disks();
    let absent: BTreeSet<DiskId> = disks.iter().filter(|disk| !is_here(disk)).map(|disk| disk.id()).collect();
    let (mut excluded, mut stopped) =
        (pool.absences.excluded.borrow_mut(), pool.absences.stopped.borrow_mut());
    let before = excluded.len() + stopped.len();
    excluded.retain(|id| leaving.contains(id));
    stopped.retain(|id| absent.contains(id));
    excluded.len() + stopped.len() < before
}

/// Members that are away, and how long each of them has been; those that take part again are forgotten.
fn away_from(pool: &OpenPool, now: Instant) -> Vec<(Rc<Disk>, Duration)> {
    let mut since = pool.absences.since.borrow_mut();
    let disks = pool.spaces.pool().disks();
    let absent: Vec<&Rc<Disk>> = disks.iter().filter(|disk| !is_here(disk)).collect();
    since.retain(|id, _| absent.iter().any(|disk| disk.id() == *id));
    for noted in [&pool.absences.let_go, &pool.absences.rebuilt] {
        noted.borrow_mut().retain(|id| absent.iter().any(|disk| disk.id() == *id));
    }
    let mut length = |disk: &Disk| now.since(*since.entry(disk.id()).or_insert(now));
    let lengths = absent.into_iter().map(|disk| (Rc::clone(disk), length(disk)));
    let mut away: Vec<(Rc<Disk>, Duration)> = lengths.collect();
    away.sort_by_key(|(_, length)| std::cmp::Reverse(*length));
    away
}

/// Redundancy rebuilt without disks that are absent or failing.
pub(crate) struct Rebuilds {
    pub(super) pools: Rc<OpenPools>,
    pub(super) records: Rc<Records>,
    pub(super) pool_jobs: Rc<PoolJobs>,
    drains: Rc<Drains>,
    pub(super) seams: Seams,
    pub(super) jobs: Rc<Jobs>,
}

impl Rebuilds {
    pub(crate) fn new(base: &Base, drains: &Rc<Drains>) -> Self {
        Self {
            pools: Rc::clone(&base.pools),
            records: Rc::clone(&base.records),
            pool_jobs: Rc::clone(&base.pool_jobs),
            drains: Rc::clone(drains),
            seams: base.seams.clone(),
            jobs: Rc::clone(&base.jobs),
        }
    }
}

impl Rebuilds {
    /// Sets how long a disk of a pool may be absent.
    pub(crate) async fn set_repair_after(&self, name: String, request: SetRepairAfter) -> Answer<Change> {
        let pool = self.pools.pool_to_change(&name)?;
        let _exclusive = self.pools.lock_for_change(&pool).await?;
        pool.spaces.pool().log().check_writable().map_err(|error| fault::pool(&error))?;
        if request.seconds > SetRepairAfter::SECONDS_MAX {
            let message = format!("{} seconds are too many; nothing was changed", request.seconds);
            return Err(ErrorBody::new(ErrorCode::BadRequest, message)
                .on(name)
                .hint("up to 365 days, or 0 for ever"));
        }
        let before =
            pool.spaces.pool().settings().repair_after().await.map_err(|error| fault::pool(&error))?;
        let after = Some(Duration::from_secs(request.seconds)).filter(|after| !after.is_zero());
        if before == after {
            let text = format!("pool {name} {} already", in_words(after));
            return Ok(planned(pool.plan(Undo::NotNeeded, Vec::new()), text));
        }
        let undo = before.map_or_else(|| "never".to_owned(), |before| format!("{}s", before.as_secs()));
        let steps = vec![format!("note that pool {name} {}, where it {}", in_words(after), in_words(before))];
        let plan = pool.plan(Undo::By(format!("dolmen pool set {name} --repair-after {undo}")), steps);
        if request.dry_run {
            return Ok(planned(plan, format!("pool {name} would be one that {}", in_words(after))));
        }
        let set = pool.spaces.pool().settings().set_repair_after(after).await;
        set.map_err(|error| fault::pool(&error))?;
        pool.absences.limit.set(after);
        pool.absences.retry();
        Ok(made(plan, format!("pool {name} {}", in_words(after))))
    }

    /// Notes which disks are away, and takes those back that were given up and take part again.
    pub(crate) async fn look_for_absent(&self, pool: &Rc<OpenPool>) {
        away_from(pool, self.seams.clock.now());
        // Where it cannot be read, the pool has more to worry about.
        if let Ok(limit) = pool.spaces.pool().settings().repair_after().await {
            pool.absences.limit.set(limit);
        }
        // Who has a disk again wants what is on it, and is asked once more should it leave.
        if pool.spaces.pool().state() == PoolState::Writable
            && let Err(error) = pool.spaces.pool().membership().take_back_returned().await
        {
            tracing::info!(pool = %pool.name(), %error, "a disk that is back is still on record as declared lost");
        }
        if forget_returned(pool) {
            self.records.keep_history(pool).await;
        }
        self.drains.reinstate_returned(pool).await;
    }

    /// Disks that have been away for too long and about which nothing is done, if it is time to try that.
    pub(crate) fn overdue(&self, pool: &OpenPool) -> Vec<Rc<Disk>> {
        let now = self.seams.clock.now();
        let Some(limit) = pool.absences.limit.get().filter(|_| pool.absences.next.get().0 <= now) else {
            return Vec::new();
        };
        // One leaves after another; one that waits for others may go on when they are given up.
        let is_leaving = self.jobs.is_at_work(pool.id(), &DrainJob);
        let long = away_from(pool, now).into_iter().filter(|(disk, length)| {
            !is_leaving && *length >= limit && pool.spaces.pool().members().is_active(disk)
        });
        long.map(|(disk, _)| disk).collect()
    }

    /// Does without the first of these disks for which that is possible: what it had is rebuilt on the others. Where there is none,
    /// what can be is rebuilt of the first that has such, and all is tried again later, with pauses that double.
    pub(crate) async fn exclude_one(&self, pool: &Rc<OpenPool>, overdue: &[Rc<Disk>]) {
        let mut refused = BTreeMap::new();
        let mut has_begun = false;
        for disk in overdue {
            match self.abandon(pool, disk).await {
                Ok(()) => {
                    has_begun = true;
                    break;
                }
                Err(error) => {
                    tracing::info!(disk = disk.name(), %error, "a disk that stays away is not excluded");
                    refused.insert(disk.id(), error);
                }
            }
        }
        let absences = &pool.absences;
        absences.refused.replace(refused);
        if !has_begun {
            for disk in overdue {
                if self.rebuild_some_of(pool, disk).await {
                    break;
                }
            }
            let pause = (absences.next.get().1 * 2).clamp(PAUSE_MIN, PAUSE_MAX);
            absences.next.set((self.seams.clock.now() + pause, pause));
        }
    }

    /// Begins to rebuild what an absent disk has of spaces that can do without it; whether there is some. The disk stays a member, for
    /// what it has of others.
    async fn rebuild_some_of(&self, pool: &Rc<OpenPool>, disk: &Rc<Disk>) -> bool {
        let aim = Aim::Disk(disk.id());
        let is_free = check_that_it_is_alone(pool, disk).is_ok()
            && self.pool_jobs.check_job_room(pool).is_ok()
            && !self.jobs.is_taken(pool.id(), &EmptyJob, Some(aim))
            && !pool.absences.is_stopped(disk.id());
        // What could not be rebuilt cannot be before disks come or go.
        let tried = pool.absences.tried.borrow().get(&disk.id()).copied();
        if !is_free || tried == Some(pool.spaces.pool().epoch().number) {
            return false;
        }
        let more = pool.offer_of_spare_for(disk);
        let reported = async |more: &[Offer]| {
            let reported = pool.spaces.moves().rebuildable(disk, more).await;
            reported.inspect_err(|error| {
                tracing::warn!(disk = disk.name(), error = %in_one_line(error), "what can be rebuilt of a disk cannot be told");
            })
        };
        let Ok(mut spaces) = reported(&[]).await else { return false };
        // A spare is for what has no place without it.
        if !more.is_empty()
            && let Ok(with) = reported(&more).await
            && with.len() > spaces.len()
            && matches!(self.drains.call_spare(pool, disk).await, Ok(Some(_)))
        {
            spaces = with;
        }
        if spaces.is_empty() {
            return false;
        }
        tracing::warn!(
            disk = disk.name(),
            "a disk stays away; what can do without it is rebuilt on the others"
        );
        self.start_rebuilding(pool, disk, spaces, None).await;
        true
    }

    /// Goes on with what the daemon before had begun to rebuild.
    pub(crate) async fn go_on_rebuilding(&self, pool: &Rc<OpenPool>, disk: &Rc<Disk>, again: &Rc<Entry>) {
        if let Ok(spaces) = pool.spaces.moves().rebuildable(disk, &[]).await {
            self.start_rebuilding(pool, disk, spaces, Some(Rc::clone(again))).await;
        }
    }

    async fn start_rebuilding(
        &self,
        pool: &Rc<OpenPool>,
        disk: &Rc<Disk>,
        spaces: BTreeSet<SpaceId>,
        again: Option<Rc<Entry>>,
    ) {
        let start = Start { kind: &EmptyJob, subject: disk.name(), aim: Aim::Disk(disk.id()), again };
        let (owner, disk) = (Rc::clone(pool), Rc::clone(disk));
        self.pool_jobs
            .start_job(pool, start, move |course| async move {
                course.bytes_max.set(owner.bytes_on(&disk));
                rebuild(&owner, &disk, &spaces, &course.progress).await
            })
            .await;
    }

    async fn abandon(&self, pool: &Rc<OpenPool>, disk: &Rc<Disk>) -> Answer<()> {
        self.pool_jobs.check_job_room(pool)?;
        let more = pool.offer_of_spare_for(disk);
        let forecast = pool.spaces.moves().forecast_removal_with(disk.slot(), &more).await;
        check_that_it_may_leave(pool, disk)?;
        narrowings(pool, disk, &forecast.map_err(|error| fault::space(&error))?).await?;
        let _coming = pool.job_slot.announce();
        // A spare that held nothing is no loss, and needs none in its place.
        let spare = pool.spare_for(disk).filter(|_| pool.spaces.pool().members().role_of(disk).is_none());
        self.drains.retire_disk(pool, disk, spare).await?;
        pool.absences.abandon(disk.id());
        self.records.keep_history(pool).await;
        tracing::warn!(disk = disk.name(), "a disk stays away; what it had is rebuilt on the others");
        self.drains.start_draining(pool, Rc::clone(disk)).await;
        Ok(())
    }
}

async fn rebuild(
    pool: &OpenPool,
    disk: &Rc<Disk>,
    spaces: &BTreeSet<SpaceId>,
    progress: &Progress,
) -> Answer<Outcome> {
    let name = disk.name();
    let rebuilt =
        pool.spaces.moves().rebuild_without(disk, spaces, || !progress.is_to_stop(), progress).await;
    if matches!(rebuilt, Ok(Emptied::All | Emptied::AllBut(_))) {
        pool.absences.rebuilt.borrow_mut().insert(disk.id());
    }
    if matches!(rebuilt, Ok(Emptied::AllBut(_)) | Err(_)) {
        pool.absences.tried.borrow_mut().insert(disk.id(), pool.spaces.pool().epoch().number);
    }
    Ok(match rebuilt.map_err(|error| fault::space(&error))? {
        Emptied::All => {
            let of = pool.spaces.kept().into_iter().filter(|space| spaces.contains(&space.id()));
            let of: Vec<String> = of.map(|space| space.name().to_string()).collect();
            let of = if of.is_empty() { "write caches".to_owned() } else { of.join(", ") };
            Outcome::Done(format!(
                "what {name} had of {of} is on other disks; it stays in the pool for the rest"
            ))
        }
        Emptied::AllBut(left) => {
            let left: Vec<String> = left.iter().map(ToString::to_string).collect();
            Outcome::Done(format!(
                "what could be rebuilt of {name} was; rows of {} have a part left there, which no other disk took, or which could not be \
                 made again",
                left.join(", ")
            ))
        }
        Emptied::CutShort => Outcome::CalledOff(format!(
            "{name} is back, or is done without, or this was stopped; what was rebuilt stays where it is"
        )),
    })
}

fn in_words(after: Option<Duration>) -> String {
    match after {
        Some(after) => {
            format!(
                "rebuilds on its other disks what an absent one had, once that was away for {}",
                duration(after.as_secs())
            )
        }
        None => "waits for absent disks for ever".to_owned(),
    }
}
