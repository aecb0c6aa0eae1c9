//! A disk that is gone for good is forgotten (docs/design/0023): first it is told, range by range, what was on it alone.

use std::rc::Rc;

use dolmen_api::{Change, ErrorBody, ErrorCode, Simple};
use dolmen_pool::Disk;
use dolmen_space::{Lost, Space};

use crate::caller::Answer;
use crate::engine::{Engine, OpenPool};
use crate::fault;
use crate::findings::is_here;
use crate::plan::{Undo, made, planned};
use crate::removal::{check_that_it_stands_alone, figures_of_removing, steps_of_removing};
use crate::trash::{called, to_lose};
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

/// What nobody has any more when the disk, and others that are away, do not come back.
fn would_be_lost(pool: &OpenPool, disk: &Rc<Disk>, lost: &Lost) -> ErrorBody {
    let name = pool.name();
    let kept = pool.spaces.kept();
    let spaces: Vec<&Rc<Space>> = kept.iter().filter(|space| lost.ranges.contains_key(&space.id())).collect();
    let mut parts: Vec<String> = Vec::new();
    for space in &spaces {
        let ranges = lost.ranges.get(&space.id()).map_or(&[] as &[_], Vec::as_slice);
        let told = ranges.iter().take(RANGES_MAX).map(|range| format!("{}-{}", range.start.0, range.end.0));
        let mut told: Vec<String> = told.collect();
        if ranges.len() > RANGES_MAX {
            told.push(format!("and {} more", ranges.len() - RANGES_MAX));
        }
        parts.push(format!("of {} in bytes {}", called(pool, space), told.join(", ")));
    }
    if lost.on_its_way {
        parts.push("of what waits in the write cache or is being moved".to_owned());
    }
    let mut absent = pool.spaces.pool().disks();
    absent.retain(|other| !is_here(other) && other.id() != disk.id());
    let others: Vec<String> = absent.iter().map(|other| other.name()).collect();
    let (without, attach, is_lost) = match others.is_empty() {
        true => {
            (disk.name(), format!("attach it and `dolmen disk online {name} {}`", disk.slot().0), "it is")
        }
        false => (
            format!(
                "{} and {}, which {} absent too,",
                disk.name(),
                others.join(", "),
                is_or_are(others.len())
            ),
            format!("attach {} or {}, and `dolmen disk online` it", others.join(", "), disk.name()),
            "all of them are",
        ),
    };
    let message = format!("without {without} nobody has parts {}; nothing was changed", parts.join(", "));
    let purges: Vec<String> = spaces.iter().map(|space| to_lose(pool, space)).collect();
    let give_up = match purges.is_empty() {
        true => String::new(),
        false => format!(
            "; if {is_lost} lost for good, copy what can be read of these spaces elsewhere, then {}",
            purges.join(", ")
        ),
    };
    ErrorBody::new(ErrorCode::NoSuchDevice, message).hint(format!("{attach}{give_up}"))
}

fn is_or_are(count: usize) -> &'static str {
    if count == 1 { "is" } else { "are" }
}
