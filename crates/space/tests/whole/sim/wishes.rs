//! What people set while clients work: room that is reserved for spaces, room that is kept for repair, disks that are spares or
//! stay empty, and disks that turn out to be sick.

use std::rc::Rc;

use dolmen_causes::in_one_line;
use dolmen_pool::{Ailment, Disk, PoolError, Role};
use dolmen_sim::Random;
use dolmen_space::{Emptied, Progress, Provisioning, Space, SpaceError};
use dolmen_units::Bytes;

use super::life::Life;
use super::tally::{Rare, Work};

/// Disks that take rows below which none is told to take none.
const TAKING_MIN: usize = 3;

/// What is known of what is reserved for a space.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reserved {
    /// What was acknowledged last.
    pub bytes: u64,
    /// What is being set, if anything is.
    pub wanted: Option<u64>,
    /// It may lack some of it: the daemon ended while it was claimed, or it became smaller.
    pub may_lack: bool,
}

/// A space that becomes smaller: what goes is a part of what is reserved for it, and others may be faster.
pub struct Shrinking<'a> {
    life: &'a Life,
    space: u64,
}

impl<'a> Shrinking<'a> {
    pub fn begin(life: &'a Life, space: &Space) -> Self {
        life.shrinking.set(life.shrinking.get() + 1);
        Self { life, space: space.id().0 }
    }
}

impl Drop for Shrinking<'_> {
    fn drop(&mut self) {
        self.life.shrinking.set(self.life.shrinking.get() - 1);
        let mut reserves = self.life.reserves.borrow_mut();
        reserves.entry(self.space).and_modify(|reserved| reserved.may_lack = true);
    }
}

/// Now and then sets something, and goes on with what was set.
pub async fn tend_wishes(life: &Rc<Life>) -> Result<(), String> {
    if !life.wishes {
        return Ok(());
    }
    let mut draws = Random::derived(life.seed, 917 ^ life.clock.now().0);
    match draws.below(8) {
        0 | 1 => reserve(life, &mut draws).await?,
        2 => keep_room(life, &mut draws).await,
        3 | 4 => give_role(life, &mut draws).await?,
        5 => take_role(life).await,
        6 => fall_sick(life, &mut draws),
        _ => get_well(life),
    }
    empty_those_without_rows(life).await?;
    empty_the_sick(life).await;
    Ok(())
}

async fn reserve(life: &Rc<Life>, draws: &mut Random) -> Result<(), String> {
    let Some((_, space)) = life.pick(draws) else { return Ok(()) };
    if space.spec().provisioning == Provisioning::Fixed {
        return Ok(());
    }
    let bytes = match draws.below(4) {
        0 => 0,
        _ => draws.below(space.size().0 + 1),
    };
    let id = space.id().0;
    let known = life.reserves.borrow().get(&id).copied();
    let before = space.reserve().0;
    let is_known = known.is_some_and(|known| known.bytes == before || known.wanted == Some(before));
    if before > 0 && !is_known {
        return Err(format!("{before} bytes are reserved for {} by nobody: {known:?}", space.name()));
    }
    let set = |bytes, wanted, may_lack| {
        life.reserves.borrow_mut().insert(id, Reserved { bytes, wanted, may_lack });
    };
    set(before, Some(bytes), true);
    match life.during(Work::Reserve, life.spaces.set_reserve(&space, Bytes(bytes))).await {
        Ok(()) => {
            life.note(|tally| tally.saw(Rare::ReserveSet));
            set(bytes, None, life.shrinking.get() > 0);
            let lacks = space.lacks_of_reserve();
            if lacks > Bytes::ZERO && life.shrinking.get() == 0 {
                return Err(format!(
                    "{} lacks {lacks} of the {bytes} bytes that were reserved",
                    space.name()
                ));
            }
        }
        Err(error) => {
            let is_refusal = matches!(error, SpaceError::Reserve { .. });
            if is_refusal {
                life.note(|tally| tally.saw(Rare::ReserveRefused));
            }
            life.trouble(format!("reserving {bytes} for {}: {}", space.name(), in_one_line(&error)));
            // What stands in the way of a change may have come before or behind it.
            let wanted = (!is_refusal).then_some(bytes);
            set(before, wanted, known.is_some_and(|known| known.may_lack) || !is_refusal);
        }
    }
    Ok(())
}

/// What is reserved is what was acknowledged, or what was being set when the daemon ended.
pub fn judge_reserves(life: &Rc<Life>) -> Result<(), String> {
    let spaces = life.spaces.list();
    life.reserves.borrow_mut().retain(|id, _| spaces.iter().any(|space| space.id().0 == *id));
    for space in spaces {
        let known = life.reserves.borrow().get(&space.id().0).copied();
        let Some(Reserved { bytes, wanted, may_lack }) = known else {
            if space.reserve() > Bytes::ZERO {
                return Err(format!("nobody has reserved {} for {}", space.reserve(), space.name()));
            }
            continue;
        };
        let found = space.reserve().0;
        if found != bytes && Some(found) != wanted {
            return Err(format!(
                "{found} bytes are reserved for {} instead of {bytes} or {wanted:?}",
                space.name()
            ));
        }
        if !may_lack && space.lacks_of_reserve() > Bytes::ZERO {
            return Err(format!("{} lacks {} of its reserve", space.name(), space.lacks_of_reserve()));
        }
        life.reserves.borrow_mut().insert(space.id().0, Reserved { bytes: found, wanted: None, may_lack });
    }
    Ok(())
}

async fn keep_room(life: &Rc<Life>, draws: &mut Random) {
    let losses = draws.below(3) as u32;
    match life.spaces.pool().set_keep_room_for(losses).await {
        Ok(()) => life.note(|tally| tally.saw(Rare::RoomKept)),
        Err(error) => life.trouble(format!("keeping room for {losses}: {}", in_one_line(&error))),
    }
}

/// A disk becomes a spare, or stays empty, where the others can take what it has.
async fn give_role(life: &Rc<Life>, draws: &mut Random) -> Result<(), String> {
    let pool = life.spaces.pool();
    let here: Vec<Rc<Disk>> = pool.disks().into_iter().filter(|disk| disk.is_present()).collect();
    let taking = here.iter().filter(|disk| pool.takes_rows(disk)).count();
    let is_quiet = life.spaces.drains().is_empty() && pool.replacements().is_empty();
    if taking <= TAKING_MIN || !is_quiet || here.len() < pool.disks().len() {
        return Ok(());
    }
    let Some(disk) = here.get(draws.index(here.len())).filter(|disk| pool.takes_rows(disk)) else {
        return Ok(());
    };
    let forecast = life.spaces.forecast_removal(disk.slot()).await.map_err(|error| in_one_line(&error))?;
    if !forecast.stuck.is_empty() {
        life.note(|tally| tally.saw(Rare::RoleRefused));
        return Ok(());
    }
    let role = if draws.coin() { Role::Spare } else { Role::Idle };
    match pool.set_role(disk, Some(role)).await {
        Ok(()) => life.note(|tally| tally.saw(Rare::RoleGiven)),
        Err(error) => life.trouble(format!("making {} {role:?}: {}", disk.slot(), in_one_line(&error))),
    }
    Ok(())
}

/// A disk without rows takes some again.
async fn take_role(life: &Rc<Life>) {
    let pool = life.spaces.pool();
    let disk = pool.disks().into_iter().find(|disk| pool.role_of(disk).is_some());
    if let Some(disk) = disk {
        match pool.set_role(&disk, None).await {
            Ok(()) => life.note(|tally| tally.saw(Rare::RoleTaken)),
            Err(error) => life.trouble(format!("having {} take rows: {}", disk.slot(), in_one_line(&error))),
        }
    }
}

async fn empty_those_without_rows(life: &Rc<Life>) -> Result<(), String> {
    for disk in life.spaces.to_empty() {
        let progress = Progress::default();
        match life.during(Work::Emptying, life.spaces.drain_disk(&disk, &progress)).await {
            Ok(true) => {
                let pool = life.spaces.pool();
                let is_meant = pool.is_to_be_empty(&disk) && !pool.is_drained(&disk);
                if is_meant && pool.holds_rows(&disk) {
                    return Err(format!("{} is said to be empty, and holds rows", disk.slot()));
                }
                life.note(|tally| tally.saw(Rare::EmptiedByRole));
            }
            Ok(false) => life.trouble(format!("something is left on {}", disk.slot())),
            Err(error) => life.trouble(format!("emptying {}: {}", disk.slot(), in_one_line(&error))),
        }
    }
    Ok(())
}

/// A disk is known to be sick, or to be slow.
fn fall_sick(life: &Life, draws: &mut Random) {
    let disks = life.spaces.pool().disks();
    if let Some(disk) = disks.get(draws.index(disks.len())) {
        let ailment = if draws.coin() { Ailment::Sick } else { Ailment::Slow };
        disk.set_ailment(Some(ailment));
    }
}

fn get_well(life: &Life) {
    life.spaces.pool().disks().iter().for_each(|disk| disk.set_ailment(None));
}

async fn empty_the_sick(life: &Rc<Life>) {
    let is_sick = |disk: &Rc<Disk>| disk.ailment() == Some(Ailment::Sick);
    let pool = life.spaces.pool();
    let sick = pool.disks().into_iter().find(|disk| is_sick(disk) && disk.is_present());
    let Some(disk) = sick.filter(|disk| pool.is_active(disk)) else { return };
    let progress = Progress::default();
    let emptied = life.spaces.empty_disk(&disk, || is_sick(&disk), &progress);
    match life.during(Work::Emptying, emptied).await {
        Ok(Emptied::All) => life.note(|tally| tally.saw(Rare::SickEmptied)),
        Ok(Emptied::AllBut(_)) => life.note(|tally| tally.saw(Rare::SickKeepsSome)),
        Ok(Emptied::CutShort) => {}
        Err(error) => life.trouble(format!("emptying {}: {}", disk.slot(), in_one_line(&error))),
    }
}

/// With everything here, what has a role holds nothing, unless there is no room.
pub async fn end_wishes(life: &Rc<Life>) -> Result<(), String> {
    get_well(life);
    for disk in life.spaces.to_empty() {
        match life.spaces.drain_disk(&disk, &Progress::default()).await {
            Ok(_) => {}
            Err(SpaceError::Pool(PoolError::NoSpace { .. }) | SpaceError::NoSpaceBelow { .. }) => {}
            Err(error) => {
                return Err(format!("emptying {} in the end: {}", disk.slot(), in_one_line(&error)));
            }
        }
    }
    judge_reserves(life)
}
