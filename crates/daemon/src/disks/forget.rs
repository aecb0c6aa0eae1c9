//! A disk that is lost for good is forgotten (docs/design/0023): the answer first lists, range by range, what was on it alone. That
//! is declared lost only on request, with the name of the pool typed (docs/design/0025).

use std::rc::Rc;

use dolmen_api::{Change, ErrorBody, ErrorCode, ForgetDisk};
use dolmen_pool::Disk;
use dolmen_space::{Lost, Space};

use crate::answer::Answer;
use crate::disks::drain_job::DrainJob;
use crate::disks::find::find_disk;
use crate::disks::leaving::{check_that_it_is_alone, figures_of_removing, steps_of_removing};
use crate::disks::removal::Drains;
use crate::fault;
use crate::jobs::Aim;
use crate::open_pool::OpenPool;
use crate::plan::{Undo, check_typed, made, planned};
use crate::spaces::{called, narrowings, to_lose};
use crate::state::is_here;

/// Ranges that are named one by one, of each space.
const RANGES_MAX: usize = 8;

impl Drains {
    /// Does without a disk that is gone: what it had is rebuilt on the others. Where something was on it alone, nothing is done unless
    /// that is to be given up.
    pub(crate) async fn forget_disk(
        self: &Rc<Self>,
        name: String,
        what: String,
        request: ForgetDisk,
    ) -> Answer<Change> {
        let pool = self.pools.pool_to_change(&name)?;
        let _exclusive = self.pools.lock_for_change(&pool).await?;
        self.pool_jobs.check_job_room(&pool)?;
        let disk = find_disk(&pool, &what)?;
        pool.spaces.pool().log().check_writable().map_err(|error| fault::pool(&error))?;
        check_that_it_is_absent(&pool, &disk, &request).map_err(|error| error.on(what.as_str()))?;
        let begun = pool.spaces.pool().members().replacements();
        let successor = begun.into_iter().find(|(old, _)| old.id() == disk.id()).map(|(_, new)| new);
        if let Some(new) = successor.filter(|_| request.accept_data_loss) {
            return self.drop_replaced(&pool, (&disk, &new), &request).await.map_err(|error| error.on(what));
        }
        check_that_it_is_alone(&pool, &disk).map_err(|error| error.on(what.as_str()))?;
        let alone = Alone::of(&pool, &disk).await?;
        if !alone.is_nothing() && !request.accept_data_loss {
            return Err(would_be_lost(&pool, &disk, &alone.all).on(what));
        }
        let more = pool.offer_of_spare_for(&disk);
        let forecast = pool.spaces.moves().forecast_removal_with(disk.slot(), &more).await;
        let forecast = forecast.map_err(|error| fault::space(&error))?;
        let narrower = narrowings(&pool, &disk, &forecast).await.map_err(|error| error.on(what))?;
        let mut undo =
            Undo::By(format!("dolmen pool remove {name} {} --cancel, until it has ended", disk.slot().0));
        let mut steps = steps_of_removing(&pool, &disk, &forecast, &narrower);
        let mut on_it = "nothing is on it alone".to_owned();
        if !alone.is_nothing() {
            undo = Undo::ByNothing;
            let parts = alone.in_words(&pool, &disk);
            steps.insert(0, format!("declare lost {parts}"));
            on_it = format!("declared lost: {parts}");
        }
        let plan = figures_of_removing(&pool, &forecast, &narrower).plan(undo, steps);
        if request.dry_run {
            return Ok(planned(plan, format!("{} would be forgotten; {on_it}", disk.name())));
        }
        if !alone.is_nothing() {
            check_consent(&pool, &request)?;
        }
        let _coming = pool.job_slot.announce();
        if !pool.spaces.pool().members().is_drained(&disk) {
            let spare =
                pool.spare_for(&disk).filter(|_| pool.spaces.pool().members().role_of(&disk).is_none());
            self.retire_disk(&pool, &disk, spare).await?;
        }
        if !alone.is_nothing() {
            pool.spaces.pool().membership().declare_lost(&disk).await.map_err(|error| fault::pool(&error))?;
        }
        pool.absences.take_back(disk.id());
        self.records.keep_history(&pool).await;
        let mut change = made(plan, format!("{} is being forgotten; {on_it}", disk.name()));
        if !self.jobs.is_taken(pool.id(), &DrainJob, Some(Aim::Disk(disk.id()))) {
            change.job = Some(self.start_draining(&pool, disk).await);
        }
        Ok(change)
    }

    /// Has a disk that is lost for good waited for no longer by what is to take its place.
    async fn drop_replaced(
        &self,
        pool: &Rc<OpenPool>,
        (disk, new): (&Rc<Disk>, &Rc<Disk>),
        request: &ForgetDisk,
    ) -> Answer<Change> {
        let alone = Alone::of(pool, disk).await?;
        if alone.is_nothing() {
            let message =
                format!("{} can be given all that {} had; nothing was changed", new.name(), disk.name());
            return Err(ErrorBody::new(ErrorCode::Busy, message).hint("`dolmen jobs` shows how far that is"));
        }
        let parts = alone.in_words(pool, disk);
        let takes = format!("let {} take the place of {} without that", new.name(), disk.name());
        let plan = pool.plan(Undo::ByNothing, vec![format!("declare lost {parts}"), takes]);
        if request.dry_run {
            return Ok(planned(
                plan,
                format!("{} would be waited for no longer; declared lost: {parts}", disk.name()),
            ));
        }
        check_consent(pool, request)?;
        pool.spaces.pool().membership().declare_lost(disk).await.map_err(|error| fault::pool(&error))?;
        self.replacements.go_on_replacing(pool).await;
        Ok(made(plan, format!("{} is waited for no longer; declared lost: {parts}", disk.name())))
    }
}

/// What nobody has without an absent disk and the others that are away.
struct Alone {
    all: Lost,
    /// Of it, what no other disk may bring back.
    at_once: Lost,
}

impl Alone {
    async fn of(pool: &OpenPool, disk: &Disk) -> Answer<Self> {
        let all =
            pool.spaces.members().only_on_absent_with(disk).await.map_err(|error| fault::space(&error))?;
        let at_once = pool.spaces.members().lost_without(disk).await.map_err(|error| fault::space(&error))?;
        Ok(Self { all, at_once })
    }

    fn is_nothing(&self) -> bool {
        self.all.is_nothing()
    }

    /// What becomes of it when the disk is declared lost.
    fn in_words(&self, pool: &OpenPool, disk: &Disk) -> String {
        let parts = parts_of(pool, &self.all).join(", ");
        let text = format!("parts {parts}, which cannot be read before they are written again");
        if self.all == self.at_once {
            return text;
        }
        let mut others = pool.spaces.pool().disks();
        let is_off = |other: &Disk| pool.spaces.pool().members().is_declared_lost(other);
        others.retain(|other| !is_here(other) && other.id() != disk.id() && !is_off(other));
        let others: Vec<String> = others.iter().map(|other| other.name()).collect();
        format!(
            "{text}; but what {} may have of them is waited for, unless it is declared lost as well",
            others.join(", ")
        )
    }
}

fn check_consent(pool: &OpenPool, request: &ForgetDisk) -> Answer<()> {
    check_typed(request.destroy.as_deref(), pool.name().as_str(), "what a lost disk alone had of pool")
}

fn check_that_it_is_absent(pool: &OpenPool, disk: &Rc<Disk>, request: &ForgetDisk) -> Answer<()> {
    let (name, slot) = (pool.name(), disk.slot().0);
    if is_here(disk) {
        let message =
            format!("{} is present, and only an absent disk is forgotten; nothing was changed", disk.name());
        return Err(ErrorBody::new(ErrorCode::Busy, message).hint(format!(
            "`dolmen pool remove {name} {slot}` moves what it has to the others first, `dolmen disk retire {name} {slot}` empties it"
        )));
    }
    // One that leaves and waits for what it alone has may be declared lost.
    let pool = pool.spaces.pool();
    if pool.members().is_drained(disk) && (!request.accept_data_loss || pool.members().is_declared_lost(disk))
    {
        let message = format!("{} is leaving the pool already; nothing was changed", disk.name());
        return Err(ErrorBody::new(ErrorCode::Busy, message).hint("`dolmen jobs` shows how far that is"));
    }
    Ok(())
}

/// Parts of spaces that nobody has without some disks, in words.
fn parts_of(pool: &OpenPool, lost: &Lost) -> Vec<String> {
    let mut parts: Vec<String> = Vec::new();
    for space in pool.spaces.kept() {
        let Some(ranges) = lost.ranges.get(&space.id()) else { continue };
        let reported =
            ranges.iter().take(RANGES_MAX).map(|range| format!("{}-{}", range.start.0, range.end.0));
        let mut reported: Vec<String> = reported.collect();
        if ranges.len() > RANGES_MAX {
            reported.push(format!("and {} more", ranges.len() - RANGES_MAX));
        }
        parts.push(format!("of {} in bytes {}", called(pool, &space), reported.join(", ")));
    }
    if lost.on_its_way {
        parts.push("of what waits in the write cache or is being moved".to_owned());
    }
    parts
}

/// What nobody has any more when the disk, and others that are away, do not come back.
fn would_be_lost(pool: &OpenPool, disk: &Rc<Disk>, lost: &Lost) -> ErrorBody {
    let name = pool.name();
    let kept = pool.spaces.kept();
    let spaces: Vec<&Space> = kept.iter().filter(|space| lost.ranges.contains_key(&space.id())).collect();
    let parts = parts_of(pool, lost);
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
    let message = format!("without {without} no disk has parts {}; nothing was changed", parts.join(", "));
    let purges: Vec<String> = spaces.iter().map(|space| to_lose(pool, space)).collect();
    let forgets = std::iter::once(disk).chain(&absent);
    let forgets: Vec<String> = forgets
        .map(|disk| format!("`dolmen disk forget {name} {} --accept-data-loss`", disk.slot().0))
        .collect();
    let mut abandon = format!(
        "; if {is_lost} lost for good, {} {} lost those parts and nothing else",
        forgets.join(" and "),
        if forgets.len() == 1 { "declares" } else { "declare" }
    );
    if !purges.is_empty() {
        abandon += &format!("; for the whole of what has them: {}", purges.join(", "));
    }
    ErrorBody::new(ErrorCode::NoSuchDevice, message).hint(format!("{attach}{abandon}"))
}

fn is_or_are(count: usize) -> &'static str {
    if count == 1 { "is" } else { "are" }
}
