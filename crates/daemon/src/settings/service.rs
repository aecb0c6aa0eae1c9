//! Changes of what is set of pools, as a service.

use std::rc::Rc;

use dolmen_api::{
    Change, ErrorBody, ErrorCode, SetAlertAt, SetDisk, SetEnclosure, SetKeepRoom, SetLimits, SetReserve,
};
use dolmen_pool::{Disk, KEEP_ROOM_FOR_MAX};
use dolmen_units::Bytes;

use crate::answer::Answer;
use crate::base::Base;
use crate::disks::find_disk;
use crate::fault;
use crate::open_pools::OpenPools;
use crate::plan::{Figures, Undo, made, planned, usual_room};
use crate::settings::{bay, enclosure, filling, keep_room, limits, reserve};
use crate::views::Views;
use crate::words::counted;

/// Changes of what is set of pools.
pub(crate) struct Settings {
    pub(super) pools: Rc<OpenPools>,
    pub(super) views: Rc<Views>,
}

impl Settings {
    pub(crate) fn new(base: &Base) -> Self {
        Self { pools: Rc::clone(&base.pools), views: Rc::clone(&base.views) }
    }

    /// Names the bay of a disk.
    pub(crate) async fn set_disk(&self, name: String, what: String, request: SetDisk) -> Answer<Change> {
        let pool = self.pools.pool_to_change(&name)?;
        let _exclusive = self.pools.lock_for_change(&pool).await?;
        let disk = find_disk(&pool, &what)?;
        pool.spaces.pool().log().check_writable().map_err(|error| fault::pool(&error))?;
        let bay = request.bay.trim();
        bay::check(bay).map_err(|error| error.on(what.as_str()))?;
        let before = pool.bay_of(disk.id());
        let same_bay = |other: &&Rc<Disk>| {
            other.id() != disk.id() && !bay.is_empty() && pool.bay_of(other.id()).as_deref() == Some(bay)
        };
        let disks = pool.spaces.pool().disks();
        if let Some(other) = disks.iter().find(same_bay) {
            let (other, slot) = (other.name(), other.slot().0);
            let message = format!("bay {bay} is that of {other} already; nothing was changed");
            return Err(ErrorBody::new(ErrorCode::NameTaken, message).on(what).hint(format!(
                "name another one, or take it from {other} first: `dolmen disk set {name} {slot} --bay ''`"
            )));
        }
        if before.as_deref().unwrap_or_default() == bay {
            let text = bay::recorded(&disk, bay, "is already");
            return Ok(planned(pool.plan(Undo::NotNeeded, Vec::new()), text));
        }
        let (old, slot) = (before.as_deref().unwrap_or_default(), disk.slot().0);
        let undo = Undo::By(format!("dolmen disk set {name} {slot} --bay '{old}'"));
        let step = match bay {
            "" => format!("forget in which bay {} is", disk.name()),
            bay => format!("note that {} is in bay {bay}", disk.name()),
        };
        let plan = pool.plan(undo, vec![step]);
        if request.dry_run {
            return Ok(planned(plan, bay::recorded(&disk, bay, "would be")));
        }
        let set = pool.spaces.pool().settings().set_bay(&disk, bay).await;
        set.map_err(|error| fault::pool(&error).on(disk.name()))?;
        match bay {
            "" => drop(pool.bays.borrow_mut().remove(&disk.id())),
            bay => drop(pool.bays.borrow_mut().insert(disk.id(), bay.to_owned())),
        }
        Ok(made(plan, bay::recorded(&disk, bay, "is")))
    }

    /// Says what a disk is in.
    pub(crate) async fn set_enclosure(
        &self,
        name: String,
        what: String,
        request: SetEnclosure,
    ) -> Answer<Change> {
        let pool = self.pools.pool_to_change(&name)?;
        let _exclusive = self.pools.lock_for_change(&pool).await?;
        let disk = find_disk(&pool, &what)?;
        let inner = pool.spaces.pool();
        inner.log().check_writable().map_err(|error| fault::pool(&error))?;
        let wanted = request.name.as_deref().map(enclosure::enclosure_name).transpose()?;
        let text = wanted.as_ref().map(ToString::to_string).unwrap_or_default();
        let domains = enclosure::Domains::of(&[text], Some(inner))?;
        let (before, after) = (disk.member().fault_domain, domains.number(0));
        if before == after {
            let text = format!("{} is {} already", disk.name(), enclosure::in_words(inner, after, &domains));
            return Ok(planned(pool.plan(Undo::NotNeeded, Vec::new()), text));
        }
        enclosure::check_that_spaces_can_be(&pool, &disk, after).map_err(|error| error.on(what))?;
        let undo = match inner.settings().domain_name(before) {
            Some(old) => Undo::By(format!("dolmen disk set {name} {} --enclosure {old}", disk.slot().0)),
            None if before == 0 => Undo::By(format!("dolmen disk set {name} {} --alone", disk.slot().0)),
            None => Undo::ByNothing,
        };
        let (is, was) =
            (enclosure::in_words(inner, after, &domains), enclosure::in_words(inner, before, &domains));
        let steps = vec![
            format!("note that {} is {is}, where it was {was}", disk.name()),
            "lay new rows apart by that; those that are there stay until a rebalance".to_owned(),
        ];
        let plan = enclosure::figures(&pool, &disk, after).plan(undo, steps);
        if request.dry_run {
            return Ok(planned(plan, format!("{} would be {is}", disk.name())));
        }
        let fault = |error: dolmen_pool::PoolError| fault::pool(&error).on(disk.name());
        // The name first: a disk never is in what nobody can name.
        inner.settings().name_domains(&domains.named).await.map_err(fault)?;
        inner.membership().set_fault_domain(&disk, after).await.map_err(fault)?;
        pool.count_badly_laid().await;
        let mut change = made(plan, format!("{} is {is}", disk.name()));
        let badly = pool.laid_badly.get();
        if badly > 0 {
            let rows = counted(badly, "row", "rows");
            change
                .warnings
                .push(format!("{rows} lie badly now; `dolmen pool rebalance {name}` moves them apart"));
        }
        Ok(change)
    }

    /// Sets the percents of fullness at which a pool warns.
    pub(crate) async fn set_alert_at(&self, name: String, request: SetAlertAt) -> Answer<Change> {
        let pool = self.pools.pool_to_change(&name)?;
        let _exclusive = self.pools.lock_for_change(&pool).await?;
        let inner = pool.spaces.pool();
        inner.log().check_writable().map_err(|error| fault::pool(&error))?;
        let mut after = request.percents.clone();
        after.sort_unstable();
        after.dedup();
        if after.len() > dolmen_pool::ALERTS_MAX || after.iter().any(|percent| !(1..=99).contains(percent)) {
            let message = "thresholds are up to four percents from 1 to 99; nothing was changed";
            return Err(ErrorBody::new(ErrorCode::BadRequest, message).on(name));
        }
        let before = inner.settings().alert_at().await.map_err(|error| fault::pool(&error))?;
        if before == after {
            let text = format!("pool {name} warns {} already", filling::in_words(&after));
            return Ok(planned(pool.plan(Undo::NotNeeded, Vec::new()), text));
        }
        let listed: Vec<String> = before.iter().map(ToString::to_string).collect();
        let listed = if listed.is_empty() { "never".to_owned() } else { listed.join(",") };
        let steps =
            vec![format!("warn {}, instead of {}", filling::in_words(&after), filling::in_words(&before))];
        let plan = pool.plan(Undo::By(format!("dolmen pool set {name} --alert-at {listed}")), steps);
        if request.dry_run {
            return Ok(planned(plan, format!("pool {name} would warn {}", filling::in_words(&after))));
        }
        inner.settings().set_alert_at(&after).await.map_err(|error| fault::pool(&error))?;
        pool.filling.thresholds.replace(after.clone());
        pool.filling.is_known.set(true);
        Ok(made(plan, format!("pool {name} warns {}", filling::in_words(&after))))
    }

    /// Sets for how many lost disks a pool keeps room.
    pub(crate) async fn set_keep_room(&self, name: String, request: SetKeepRoom) -> Answer<Change> {
        let pool = self.pools.pool_to_change(&name)?;
        let _exclusive = self.pools.lock_for_change(&pool).await?;
        let inner = pool.spaces.pool();
        inner.log().check_writable().map_err(|error| fault::pool(&error))?;
        let (before, after) = (inner.free_space().keeps_room_for(), request.losses);
        if after > KEEP_ROOM_FOR_MAX {
            let message =
                format!("room for the loss of {after} disks is more than a pool keeps; nothing was changed");
            let hint = format!("up to {KEEP_ROOM_FOR_MAX} disks, or 0 for none");
            return Err(ErrorBody::new(ErrorCode::BadRequest, message).on(name).hint(hint));
        }
        let offers = keep_room::offers_keeping(&pool, after);
        if before == after {
            let text = format!("pool {name} keeps {} already", keep_room::in_words(after));
            return Ok(planned(pool.plan(Undo::NotNeeded, Vec::new()), text));
        }
        if after > before {
            keep_room::check_that_it_is_there(&pool, &offers, after).await?;
        }
        let figures = Figures::of_room(usual_room(&pool.offers()), usual_room(&offers));
        let steps = vec![format!(
            "keep {} on the disks of {name}, where it keeps {}",
            keep_room::in_words(after),
            keep_room::in_words(before)
        )];
        let room = format!("usable are {}, and were {}", Bytes(figures.after), Bytes(figures.before));
        let plan = figures.plan(Undo::By(format!("dolmen pool set {name} --keep-room-for {before}")), steps);
        if request.dry_run {
            return Ok(planned(plan, format!("pool {name} would keep {}", keep_room::in_words(after))));
        }
        inner.settings().set_keep_room_for(after).await.map_err(|error| fault::pool(&error))?;
        pool.absences.retry();
        Ok(made(plan, format!("pool {name} keeps {}; {room}", keep_room::in_words(after))))
    }

    pub(crate) async fn set_limits(&self, pool: String, space: String, request: SetLimits) -> Answer<Change> {
        let pool = self.pools.pool_to_change(&pool)?;
        let _exclusive = self.pools.lock_for_change(&pool).await?;
        let space = pool.space(&space)?;
        pool.spaces.pool().log().check_writable().map_err(|error| fault::pool(&error))?;
        let name = format!("{}/{}", pool.name(), space.name());
        let before = space.limits();
        let after = limits::changed(before, &request);
        let refused = |error| fault::space(&error).on(name.as_str());
        after.check(&space.name()).map_err(refused)?;
        if before == after {
            let plan = pool.plan(Undo::NotNeeded, Vec::new());
            return Ok(planned(plan, format!("{name} has {} already", limits::in_words(after))));
        }
        let steps = vec![format!(
            "give {name} {}, where it has {}",
            limits::in_words(after),
            limits::in_words(before)
        )];
        let plan = pool.plan(Undo::By(limits::undo_of(&name, before, after)), steps);
        if request.dry_run {
            return Ok(planned(plan, format!("{name} would have {}", limits::in_words(after))));
        }
        pool.spaces.changes().set_limits(&space, after).await.map_err(refused)?;
        let mut change = made(plan, format!("{name} has {} now", limits::in_words(after)));
        change.space = Some(self.views.view_space(&pool, &space).await?);
        Ok(change)
    }

    /// Reserves room for a space: so much of it can be written, however full its pool is.
    pub(crate) async fn set_reserve(
        &self,
        pool: String,
        space: String,
        request: SetReserve,
    ) -> Answer<Change> {
        let pool = self.pools.pool_to_change(&pool)?;
        let _exclusive = self.pools.lock_for_change(&pool).await?;
        let space = pool.space(&space)?;
        pool.spaces.pool().log().check_writable().map_err(|error| fault::pool(&error))?;
        let name = format!("{}/{}", pool.name(), space.name());
        let refused = |error| fault::space(&error).on(name.as_str());
        let (before, after) = (space.reserve(), Bytes(request.bytes));
        if before == after && space.lacks_of_reserve() == Bytes::ZERO {
            let text = format!("{name} has {} already", reserve::in_words(after));
            return Ok(planned(pool.plan(Undo::NotNeeded, Vec::new()), text));
        }
        pool.spaces.changes().check_reserve(&space, after).map_err(refused)?;
        let claimed = reserve::claimed_for(&pool, &space, after)?;
        let room = usual_room(&pool.offers());
        let figures = Figures::of_room(room, pool.room_with_free(pool.free().saturating_sub(claimed)));
        let mut steps = vec![match before == after {
            true => format!("complete what {name} lacks of {}", reserve::in_words(after)),
            false => format!(
                "give {name} {}, where it has {}",
                reserve::in_words(after),
                reserve::in_words(before)
            ),
        }];
        match (after >= before, claimed) {
            (true, 1..) => {
                steps.push(format!("claim {} on the disks of {} for it", Bytes(claimed), pool.name()))
            }
            (true, 0) => steps.push(format!("claim nothing: {name} has {} of rows", space.claimed())),
            (false, _) => {
                steps.push("give back rows that hold nothing, as far as they are not reserved".to_owned())
            }
        }
        let undo = match before {
            Bytes::ZERO => "none".to_owned(),
            before => before.0.to_string(),
        };
        let plan = figures.plan(Undo::By(format!("dolmen space set {name} --reserve {undo}")), steps);
        if request.dry_run {
            return Ok(planned(plan, format!("{name} would have {}", reserve::in_words(after))));
        }
        pool.spaces.changes().set_reserve(&space, after).await.map_err(refused)?;
        let mut change = made(plan, format!("{name} has {} now", reserve::in_words(after)));
        change.space = Some(self.views.view_space(&pool, &space).await?);
        Ok(change)
    }
}
