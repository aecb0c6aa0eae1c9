//! A disk is let go of, to be carried elsewhere or looked at, and stays a member.

use std::rc::Rc;

use dolmen_api::{Change, ErrorBody, ErrorCode, Simple, duration};
use dolmen_pool::{Disk, ExcludeReason};

use crate::answer::Answer;
use crate::disks::find::find_disk;
use crate::disks::membership::Membership;
use crate::fault;
use crate::health::absent_with;
use crate::open_pool::OpenPool;
use crate::plan::{Figures, Undo, made, planned, usual_room};

impl Membership {
    /// Lets go of a disk that takes part, where every space has all of its data without it.
    pub(crate) async fn offline_disk(&self, name: String, what: String, request: Simple) -> Answer<Change> {
        let pool = self.pools.pool_to_change(&name)?;
        let _exclusive = self.pools.lock_for_change(&pool).await?;
        let disk = find_disk(&pool, &what)?;
        pool.spaces.pool().log().check_writable().map_err(|error| fault::pool(&error))?;
        if !disk.is_present() {
            let text = format!("{} is away already", disk.name());
            return Ok(planned(pool.plan(Undo::NotNeeded, vec![format!("leave it: {text}")]), text));
        }
        check_dispensable(&pool, &disk).await.map_err(|error| error.on(what.as_str()))?;
        let mut left = pool.offers();
        left.retain(|offer| offer.slot != disk.slot());
        let figures = Figures { before: usual_room(&pool.offers()), after: usual_room(&left), moved: 0 };
        let undo = Undo::By(format!("dolmen disk online {name} {}", disk.slot().0));
        let plan = figures.plan(undo, steps_of(&pool, &disk).await);
        if request.dry_run {
            return Ok(planned(plan, format!("{} would be offline", disk.name())));
        }
        // What only this disk has of unflushed writes would wait for it.
        pool.spaces.flush().await.map_err(|error| fault::space(&error).on(disk.name()))?;
        // Another one may have left in that.
        check_dispensable(&pool, &disk).await.map_err(|error| error.on(what))?;
        let device = disk.device();
        let asked = ExcludeReason::Asked;
        pool.spaces.pool().exclude(disk.slot(), asked).await.map_err(|error| fault::pool(&error))?;
        pool.absences.note_let_go(disk.id());
        if let Some(device) = device {
            self.members.release(&device);
        }
        let mut change = made(plan, format!("{} is offline and may be taken away", disk.name()));
        change.pool = Some(self.views.view_pool(&pool).await?);
        Ok(change)
    }
}

/// Refuses what would take data out of reach, or the pool its metadata.
async fn check_dispensable(pool: &OpenPool, disk: &Disk) -> Answer<()> {
    let (name, of) = (disk.name(), pool.spaces.pool());
    let is_part = |(old, new): &(Rc<Disk>, Rc<Disk>)| [old.id(), new.id()].contains(&disk.id());
    if of.members().replacements().iter().any(is_part) || of.members().is_drained(disk) {
        let message = format!("{name} is being replaced, or removed; nothing was changed");
        return Err(ErrorBody::new(ErrorCode::Busy, message)
            .hint("`dolmen jobs` shows how far that is; let it end, or call it off"));
    }
    // What others lack may be whole on this one alone.
    if pool.spaces.members().is_stale().await.map_err(|error| fault::space(&error))? {
        let message =
            format!("other disks are not up to date, and may need {name} for that; nothing was changed");
        return Err(ErrorBody::new(ErrorCode::Busy, message)
            .hint("`dolmen jobs` shows the resync; let it end, or resume it"));
    }
    let lost = |space: &dolmen_space::Space| {
        let redundancy = usize::from(space.spec().resiliency.redundancy());
        space.claimed().0 > 0 && absent_with(pool, space) + 1 > redundancy
    };
    let spaces: Vec<String> =
        pool.spaces.list().iter().filter(|space| lost(space)).map(|space| space.name().to_string()).collect();
    if !spaces.is_empty() {
        let message = format!(
            "without {name}, parts of {} may be out of reach; nothing was changed",
            spaces.join(", ")
        );
        return Err(ErrorBody::new(ErrorCode::Busy, message).hint(format!(
            "bring other disks back first, or move its data: `dolmen pool remove {} {}`",
            pool.name(),
            disk.slot().0
        )));
    }
    let others = of.disks();
    let mut others = others.iter().filter(|other| other.id() != disk.id() && other.is_present());
    if !others.any(|other| of.members().voters().contains(&other.id())) {
        let message = format!("{name} alone carries the metadata of the pool; nothing was changed");
        return Err(ErrorBody::new(ErrorCode::Busy, message)
            .hint(format!("`dolmen pool export {}` closes the pool, with all of its disks", pool.name())));
    }
    Ok(())
}

async fn steps_of(pool: &OpenPool, disk: &Disk) -> Vec<String> {
    let mut steps = vec![
        "write back and flush what clients were promised".to_owned(),
        format!("take {} offline; what is written meanwhile is copied to it when it is back", disk.name()),
    ];
    if let Ok(Some(after)) = pool.spaces.pool().settings().repair_after().await {
        steps.push(format!(
            "rebuild what it has on the other disks, if they have room, once it was away for {}",
            duration(after.as_secs())
        ));
    }
    steps
}
