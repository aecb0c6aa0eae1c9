//! A disk that is gone for good is forgotten (docs/design/0023): first it is told, range by range, what was on it alone.

use std::rc::Rc;

use dolmen_api::{Change, ErrorBody, ErrorCode, Simple};
use dolmen_pool::Disk;
use dolmen_space::Lost;

use crate::caller::Answer;
use crate::engine::{Engine, OpenPool};
use crate::fault;
use crate::findings::is_here;
use crate::plan::{Undo, made, planned};
use crate::removal::{check_that_it_stands_alone, figures_of_removing, steps_of_removing};
use crate::widening::narrowings;

/// Ranges that are named one by one, of each space.
const RANGES_MAX: usize = 8;

impl Engine {
    /// Does without a disk that is gone: what it had is rebuilt on the others. Where something was on it alone, nothing is done.
    pub(crate) async fn forget_disk(
        self: Rc<Self>,
        name: String,
        what: String,
        request: Simple,
    ) -> Answer<Change> {
        let pool = self.pool_to_change(&name)?;
        let _turn = self.turn_to_change(&pool).await?;
        self.check_job_room(&pool)?;
        let disk = Self::find_disk(&pool, &what)?;
        pool.spaces.pool().check_writable().map_err(|error| fault::pool(&error))?;
        check_that_it_is_gone(&pool, &disk).map_err(|error| error.on(what.as_str()))?;
        check_that_it_stands_alone(&pool, &disk).map_err(|error| error.on(what.as_str()))?;
        let lost = pool.spaces.only_on_absent().await.map_err(|error| fault::space(&error))?;
        if !lost.is_nothing() {
            return Err(would_be_lost(&pool, &disk, &lost).on(what));
        }
        let more = pool.offer_of_spare_for(&disk);
        let forecast = pool.spaces.forecast_removal_with(disk.slot(), &more).await;
        let forecast = forecast.map_err(|error| fault::space(&error))?;
        let narrower = narrowings(&pool, &disk, &forecast).await.map_err(|error| error.on(what))?;
        let undo =
            Undo::By(format!("dolmen pool remove {name} {} --cancel, until it has ended", disk.slot().0));
        let steps = steps_of_removing(&pool, &disk, &forecast, &narrower);
        let plan = figures_of_removing(&pool, &forecast, &narrower).plan(undo, steps);
        if request.dry_run {
            return Ok(planned(plan, format!("{} would be forgotten; nothing is on it alone", disk.name())));
        }
        let _coming = pool.job_turn.announce();
        self.retire_disk(&pool, &disk, pool.spaces.pool().role_of(&disk).is_none()).await?;
        pool.absences.take_back(disk.id());
        self.keep_history(&pool).await;
        let mut change = made(plan, format!("{} is being forgotten; nothing is on it alone", disk.name()));
        change.job = Some(self.start_draining(&pool, disk).await);
        Ok(change)
    }
}

fn check_that_it_is_gone(pool: &OpenPool, disk: &Rc<Disk>) -> Answer<()> {
    let (name, slot) = (pool.name(), disk.slot().0);
    if is_here(disk) {
        let message = format!("{} is here, and no ghost; nothing was changed", disk.name());
        return Err(ErrorBody::new(ErrorCode::Busy, message).hint(format!(
            "`dolmen pool remove {name} {slot}` moves what it has to the others first, `dolmen disk retire {name} {slot}` empties it"
        )));
    }
    if pool.spaces.pool().is_drained(disk) {
        let message = format!("{} is leaving the pool already; nothing was changed", disk.name());
        return Err(ErrorBody::new(ErrorCode::Busy, message).hint("`dolmen jobs` shows how far that is"));
    }
    Ok(())
}

/// What nobody has any more when the disk does not come back.
fn would_be_lost(pool: &OpenPool, disk: &Disk, lost: &Lost) -> ErrorBody {
    let name = pool.name();
    let mut parts: Vec<String> = Vec::new();
    for (space, ranges) in &lost.ranges {
        let told = ranges.iter().take(RANGES_MAX).map(|range| format!("{}-{}", range.start.0, range.end.0));
        let mut told: Vec<String> = told.collect();
        if ranges.len() > RANGES_MAX {
            told.push(format!("and {} more", ranges.len() - RANGES_MAX));
        }
        parts.push(format!("of {name}/{space} in bytes {}", told.join(", ")));
    }
    if lost.on_its_way {
        parts.push("of what waits in the write cache or is being moved".to_owned());
    }
    let message =
        format!("without {} nobody has parts {}; nothing was changed", disk.name(), parts.join(", "));
    let spaces: Vec<String> =
        lost.ranges.keys().map(|space| format!("`dolmen space delete {name}/{space} --purge`")).collect();
    let give_up = match spaces.is_empty() {
        true => String::new(),
        false => format!(
            "; if it is lost for good, copy what can be read of these spaces elsewhere, then {}",
            spaces.join(", ")
        ),
    };
    ErrorBody::new(ErrorCode::NoSuchDevice, message)
        .hint(format!("attach it and `dolmen disk online {name} {}`{give_up}", disk.slot().0))
}
