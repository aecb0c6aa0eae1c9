//! Disks that take no rows although they are sound: spares, and retired ones that stay (docs/design/0023).

use std::rc::Rc;

use dolmen_api::{Change, DiskRole, ErrorBody, ErrorCode, SetDiskRole};
use dolmen_causes::in_one_line;
use dolmen_placement::Offer;
use dolmen_pool::{Disk, Role};
use dolmen_space::RemovalForecast;

use crate::answer::Answer;
use crate::disks::drain_job::DrainJob;
use crate::disks::find::find_disk;
use crate::disks::leaving::{
    check_that_it_fits, check_that_it_may_leave, offer_of_spare, role_in_words, steps_of_moving,
};
use crate::disks::removal::Drains;
use crate::fault;
use crate::jobs::Aim;
use crate::open_pool::OpenPool;
use crate::plan::{Figures, Undo, made, planned, usual_room};
use crate::state::is_here;

impl Drains {
    /// Sets what a disk is to the pool: one that takes rows, a spare, or one that stays empty.
    pub(crate) async fn set_disk_role(
        self: &Rc<Self>,
        name: String,
        what: String,
        request: SetDiskRole,
    ) -> Answer<Change> {
        let pool = self.pools.pool_to_change(&name)?;
        let _exclusive = self.pools.lock_for_change(&pool).await?;
        let disk = find_disk(&pool, &what)?;
        let inner = pool.spaces.pool();
        inner.log().check_writable().map_err(|error| fault::pool(&error))?;
        let (before, after) = (inner.members().role_of(&disk), role_of(request.role));
        if before == after {
            let text = format!("{} {} already", disk.name(), role_in_words(after));
            return Ok(planned(pool.plan(Undo::NotNeeded, Vec::new()), text));
        }
        check_that_it_may(&pool, &disk, after).map_err(|error| error.on(what.as_str()))?;
        let forecast = match after {
            Some(_) if before.is_none() => {
                let forecast = pool.spaces.moves().forecast_removal(disk.slot()).await;
                let forecast = forecast.map_err(|error| fault::space(&error))?;
                check_that_it_may_leave(&pool, &disk)
                    .and_then(|()| check_that_it_fits(&pool, &disk, &forecast))
                    .map_err(|error| error.on(what))?;
                forecast
            }
            Some(_) | None => RemovalForecast::default(),
        };
        let undo = Undo::By(command_for(&name, &disk, before));
        let mut steps = Vec::new();
        if forecast.rows > 0 {
            self.pool_jobs.check_job_room(&pool)?;
            steps.push(steps_of_moving(&pool, &disk, &forecast));
        }
        steps.push(format!(
            "note that {} {}, where it {}",
            disk.name(),
            role_in_words(after),
            role_in_words(before)
        ));
        let left = room_after(&pool, &disk, after, &forecast);
        let figures = Figures { before: usual_room(&pool.offers()), after: left, moved: forecast.moved.0 };
        let plan = figures.plan(undo, steps);
        if request.dry_run {
            return Ok(planned(plan, format!("{} would be one that {}", disk.name(), role_in_words(after))));
        }
        let _coming = pool.job_slot.announce();
        inner
            .membership()
            .set_role(&disk, after)
            .await
            .map_err(|error| fault::pool(&error).on(disk.name()))?;
        pool.absences.retry();
        let mut change = made(plan, format!("{} {}", disk.name(), role_in_words(after)));
        let aim = Aim::Disk(disk.id());
        match after {
            None => {
                let why = format!("{} takes data again", disk.name());
                self.jobs.stop(pool.id(), &DrainJob, aim, &why);
                self.jobs.keep().await;
            }
            Some(_)
                if inner.free_space().holds_rows(&disk)
                    && !self.jobs.is_taken(pool.id(), &DrainJob, Some(aim)) =>
            {
                change.job = Some(self.start_draining(&pool, disk).await);
            }
            Some(_) => {}
        }
        Ok(change)
    }

    /// Retires a disk that is lost or leaves, with this spare in its place. Where it cannot be retired, the spare stays one.
    pub(crate) async fn retire_disk(
        &self,
        pool: &OpenPool,
        disk: &Rc<Disk>,
        spare: Option<Rc<Disk>>,
    ) -> Answer<()> {
        let inner = pool.spaces.pool();
        if let Some(spare) = &spare {
            call(pool, disk, spare).await?;
        }
        let retired =
            inner.membership().retire(disk).await.map_err(|error| fault::pool(&error).on(disk.name()));
        if let (Err(_), Some(spare)) = (&retired, spare)
            && let Err(error) = inner.membership().set_role(&spare, Some(Role::Spare)).await
        {
            tracing::warn!(spare = spare.name(), error = %in_one_line(&error), "a spare that was called in vain takes rows");
        }
        retired
    }

    /// Lets a spare take the place of a disk that is lost or leaves, if there is one that does: it takes rows from then on.
    pub(crate) async fn call_spare(&self, pool: &OpenPool, disk: &Disk) -> Answer<Option<Rc<Disk>>> {
        let Some(spare) = pool.spare_for(disk) else { return Ok(None) };
        call(pool, disk, &spare).await?;
        Ok(Some(spare))
    }
}

/// Makes a spare take rows, in the place of a disk.
async fn call(pool: &OpenPool, disk: &Disk, spare: &Rc<Disk>) -> Answer<()> {
    pool.spaces.pool().membership().set_role(spare, None).await.map_err(|error| fault::pool(&error))?;
    tracing::warn!(disk = disk.name(), spare = spare.name(), "a spare takes the place of a disk");
    Ok(())
}

impl OpenPool {
    /// Spares that are here, well and empty.
    pub(crate) fn spares(&self) -> Vec<Rc<Disk>> {
        let pool = self.spaces.pool();
        let is_spare = |disk: &Rc<Disk>| {
            is_here(disk)
                && !self.is_failing(disk)
                && self.backing_state_of(disk).is_none()
                && pool.members().role_of(disk) == Some(Role::Spare)
                && !pool.members().is_drained(disk)
                && !pool.free_space().holds_rows(disk)
        };
        pool.disks().into_iter().filter(is_spare).collect()
    }

    /// The spare that takes the place of a disk: of its fault domain if there is one, then the smallest that is as large, then
    /// the largest.
    pub(crate) fn spare_for(&self, disk: &Disk) -> Option<Rc<Disk>> {
        let (size, domain) = (disk.size().capacity(), disk.member().fault_domain);
        self.spares().into_iter().min_by_key(|spare| {
            let of = spare.size().capacity();
            let by_size = if of >= size { of.0 } else { u64::MAX - of.0 };
            (spare.member().fault_domain != domain, of < size, by_size, spare.slot())
        })
    }

    /// What the spare that takes a disk's place will offer.
    pub(crate) fn offer_of_spare_for(&self, disk: &Disk) -> Vec<Offer> {
        offer_of_spare(self, self.spare_for(disk).as_ref())
    }
}

fn role_of(role: DiskRole) -> Option<Role> {
    match role {
        DiskRole::Member => None,
        DiskRole::Spare => Some(Role::Spare),
        DiskRole::Retired => Some(Role::Idle),
    }
}

fn command_for(pool: &str, disk: &Disk, role: Option<Role>) -> String {
    let slot = disk.slot().0;
    match role {
        None => format!("dolmen disk set {pool} {slot} --member"),
        Some(Role::Spare) => format!("dolmen disk set {pool} {slot} --spare"),
        Some(Role::Idle) => format!("dolmen disk retire {pool} {slot}"),
    }
}

/// What a disk has to be before it gets a role.
fn check_that_it_may(pool: &OpenPool, disk: &Disk, role: Option<Role>) -> Answer<()> {
    let inner = pool.spaces.pool();
    if inner.members().is_drained(disk) {
        let message = format!("{} is leaving the pool; nothing was changed", disk.name());
        let hint = format!("`dolmen pool remove {} {} --cancel` keeps it", pool.name(), disk.slot().0);
        return Err(ErrorBody::new(ErrorCode::Busy, message).hint(hint));
    }
    if role.is_some() && !is_here(disk) {
        let message = format!("{} is absent, and could not be emptied; nothing was changed", disk.name());
        let hint = format!(
            "bring it back, or do without it: `dolmen pool remove {0} {1}`, `dolmen disk forget {0} {1}`",
            pool.name(),
            disk.slot().0
        );
        return Err(ErrorBody::new(ErrorCode::NoSuchDevice, message).hint(hint));
    }
    let takes =
        |other: &Rc<Disk>| other.id() != disk.id() && is_here(other) && inner.members().takes_rows(other);
    if role.is_some() && !inner.disks().iter().any(takes) {
        let message = format!("{} is the last disk that takes data; nothing was changed", disk.name());
        return Err(ErrorBody::new(ErrorCode::Busy, message)
            .hint(format!("add another one first: `dolmen pool add {} DISK`", pool.name())));
    }
    Ok(())
}

/// Room for usual spaces once the role is in force.
fn room_after(pool: &OpenPool, disk: &Disk, role: Option<Role>, forecast: &RemovalForecast) -> u64 {
    let mut offers = match role {
        Some(_) if forecast.rows > 0 => forecast.left.clone(),
        _ => pool.offers(),
    };
    offers.retain(|offer| offer.slot != disk.slot());
    if role.is_none() {
        offers.extend(pool.spaces.pool().free_space().offer_as_member(disk));
    }
    usual_room(&offers)
}
