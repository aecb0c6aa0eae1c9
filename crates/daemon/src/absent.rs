//! Disks that stay away: once a set time has passed, what they had is rebuilt on the others (docs/design/0015).

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

use dolmen_api::{Change, ErrorBody, ErrorCode, JobKind, SetRepairAfter, duration};
use dolmen_block_io::Moment;
use dolmen_pool::Disk;
use dolmen_units::DiskId;

use crate::caller::Answer;
use crate::engine::{Engine, OpenPool};
use crate::fault;
use crate::health::is_here;
use crate::job_record::Aim;
use crate::plan::{Undo, made, planned};
use crate::removal::check_that_it_ends;

/// What this daemon has seen of absent disks of a pool.
#[derive(Default)]
pub(crate) struct Absences {
    since: RefCell<BTreeMap<DiskId, Moment>>,
    /// How long one may be away, as it was at the last look; `None` for ever.
    limit: Cell<Option<Duration>>,
    /// Members that the pool does without because they stayed away, and that no person removed.
    given_up: RefCell<BTreeSet<DiskId>>,
    /// Why one that has been away for too long was not given up, at the last try.
    refused: RefCell<Option<(DiskId, ErrorBody)>>,
}

impl Absences {
    /// Whether the pool gave a disk up by itself.
    pub(crate) fn is_given_up(&self, disk: DiskId) -> bool {
        self.given_up.borrow().contains(&disk)
    }

    pub(crate) fn give_up(&self, disk: DiskId) {
        self.given_up.borrow_mut().insert(disk);
    }

    pub(crate) fn take_back(&self, disk: DiskId) {
        self.given_up.borrow_mut().remove(&disk);
    }

    /// What becomes of an absent disk if nobody does anything, in words.
    pub(crate) fn outlook(&self, disk: &Disk, now: Moment) -> Option<String> {
        let limit = self.limit.get()?;
        let refused = self.refused.borrow();
        if let Some((_, why)) = refused.as_ref().filter(|(id, _)| *id == disk.id()) {
            let why = why.message.trim_end_matches("; nothing was changed");
            return Some(format!("what it had is not rebuilt on other disks: {why}"));
        }
        let away = self.since.borrow().get(&disk.id()).map(|since| now.since(*since)).unwrap_or_default();
        Some(format!(
            "else what it had is rebuilt on the other disks in {}, if they have room",
            duration(limit.saturating_sub(away).as_secs())
        ))
    }
}

impl OpenPool {
    /// Members that are away, and how long each of them has been; those that take part again are forgotten.
    fn away(&self, now: Moment) -> Vec<(Rc<Disk>, Duration)> {
        let mut since = self.absences.since.borrow_mut();
        let disks = self.spaces.pool().disks();
        let absent: Vec<&Rc<Disk>> = disks.iter().filter(|disk| !is_here(disk)).collect();
        since.retain(|id, _| absent.iter().any(|disk| disk.id() == *id));
        let mut length = |disk: &Disk| now.since(*since.entry(disk.id()).or_insert(now));
        let lengths = absent.into_iter().map(|disk| (Rc::clone(disk), length(disk)));
        let mut away: Vec<(Rc<Disk>, Duration)> = lengths.collect();
        away.sort_by_key(|(_, length)| std::cmp::Reverse(*length));
        away
    }
}

impl Engine {
    /// Sets how long a disk of a pool may be absent.
    pub(crate) async fn set_repair_after(
        self: Rc<Self>,
        name: String,
        request: SetRepairAfter,
    ) -> Answer<Change> {
        let pool = self.pool_to_change(&name)?;
        let _turn = self.turn_to_change(&pool).await?;
        pool.spaces.pool().check_writable().map_err(|error| fault::pool(&error))?;
        if request.seconds > SetRepairAfter::SECONDS_MAX {
            let message = format!("{} seconds are too many; nothing was changed", request.seconds);
            return Err(ErrorBody::new(ErrorCode::BadRequest, message)
                .on(name)
                .hint("up to 365 days, or 0 for ever"));
        }
        let before = pool.spaces.pool().repair_after().await.map_err(|error| fault::pool(&error))?;
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
        let set = pool.spaces.pool().set_repair_after(after).await;
        set.map_err(|error| fault::pool(&error))?;
        pool.absences.limit.set(after);
        pool.absences.refused.take();
        Ok(made(plan, format!("pool {name} {}", in_words(after))))
    }

    /// Notes which disks are away, and takes those back that were given up and take part again.
    pub(crate) async fn look_for_absent(&self, pool: &OpenPool) {
        pool.away(self.seams.clock.now());
        // Where it cannot be read, the pool has more to worry about.
        if let Ok(limit) = pool.spaces.pool().repair_after().await {
            pool.absences.limit.set(limit);
        }
        self.reinstate_returned(pool).await;
    }

    /// Lets disks take data again that the pool had given up, and that are back.
    pub(crate) async fn reinstate_returned(&self, pool: &OpenPool) {
        for disk in pool.spaces.drains() {
            if !is_here(&disk) || !pool.absences.is_given_up(disk.id()) {
                continue;
            }
            if let Err(error) = pool.spaces.pool().reinstate(&disk).await {
                tracing::info!(disk = disk.name(), %error, "a disk that is back goes on leaving");
                continue;
            }
            pool.absences.take_back(disk.id());
            let why = format!("{} is back", disk.name());
            self.jobs.stop(pool.id(), JobKind::Drain, Aim::Disk(disk.id()), &why);
            tracing::info!(disk = disk.name(), "a disk that was given up is back and takes data again");
        }
    }

    /// Whether a disk has been away for too long, and nothing is done about it.
    pub(crate) fn has_overdue(&self, pool: &OpenPool) -> bool {
        self.overdue(pool).is_some()
    }

    fn overdue(&self, pool: &OpenPool) -> Option<Rc<Disk>> {
        let limit = pool.absences.limit.get()?;
        let replacements = pool.spaces.pool().replacements();
        let is_cared_for = |disk: &Disk| {
            let is_part = |(old, new): &(Rc<Disk>, Rc<Disk>)| old.id() == disk.id() || new.id() == disk.id();
            replacements.iter().any(is_part)
        };
        let away = pool.away(self.seams.clock.now()).into_iter();
        let mut long = away.filter(|(_, length)| *length >= limit).map(|(disk, _)| disk);
        let is_leaving = !pool.spaces.drains().is_empty();
        long.find(|disk| !is_leaving && !is_cared_for(disk))
    }

    /// Does without a disk that has been away for too long: what it had is rebuilt on the others, if they have room.
    pub(crate) async fn give_up_overdue(self: &Rc<Self>, pool: &Rc<OpenPool>) {
        let Some(disk) = self.overdue(pool) else { return };
        let begun = self.give_up(pool, &disk).await;
        let refused = begun.err().map(|error| (disk.id(), error));
        if let Some((_, error)) = &refused {
            tracing::info!(disk = disk.name(), %error, "a disk that stays away is not given up");
        }
        pool.absences.refused.replace(refused);
    }

    async fn give_up(self: &Rc<Self>, pool: &Rc<OpenPool>, disk: &Rc<Disk>) -> Answer<()> {
        self.check_job_room(pool)?;
        let forecast = pool.spaces.forecast_removal(disk.slot()).await;
        check_that_it_ends(pool, disk, &forecast.map_err(|error| fault::space(&error))?)?;
        pool.spaces.pool().retire(disk).await.map_err(|error| fault::pool(&error))?;
        pool.absences.give_up(disk.id());
        self.keep_history(pool).await;
        tracing::warn!(disk = disk.name(), "a disk stays away; what it had is rebuilt on the others");
        self.start_draining(pool, Rc::clone(disk)).await;
        Ok(())
    }
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
