//! What people set while clients work: room that is reserved for spaces, room that is kept for repair, disks that are spares or
//! stay empty, and disks that turn out to be failing.

use std::rc::Rc;

use dolmen_causes::in_one_line;
use dolmen_pool::{Ailment, Disk, PoolError, Role};
use dolmen_sim::Random;
use dolmen_space::{Emptied, Progress, Provisioning, Space, SpaceError};
use dolmen_units::Bytes;

use super::daemon_run::DaemonRun;
use super::tally::{Rare, Work};

/// Disks that take rows below which no disk gets a role.
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
    run: &'a DaemonRun,
    space: u64,
}

impl<'a> Shrinking<'a> {
    pub fn begin(run: &'a DaemonRun, space: &Space) -> Self {
        run.shrinking.set(run.shrinking.get() + 1);
        Self { run, space: space.id().0 }
    }
}

impl Drop for Shrinking<'_> {
    fn drop(&mut self) {
        self.run.shrinking.set(self.run.shrinking.get() - 1);
        let mut reserves = self.run.reserves.borrow_mut();
        reserves.entry(self.space).and_modify(|reserved| reserved.may_lack = true);
    }
}

/// Now and then sets something, and goes on with what was set.
pub async fn tend_settings(run: &Rc<DaemonRun>) -> Result<(), String> {
    if !run.settings {
        return Ok(());
    }
    let mut draws = Random::derived(run.seed, 917 ^ run.clock.now().0);
    match draws.below(8) {
        0 | 1 => reserve(run, &mut draws).await?,
        2 => keep_room(run, &mut draws).await,
        3 | 4 => give_role(run, &mut draws).await?,
        5 => take_role(run).await,
        6 => mark_failing(run, &mut draws),
        _ => get_well(run),
    }
    empty_those_without_rows(run).await?;
    empty_failing(run).await;
    Ok(())
}

async fn reserve(run: &Rc<DaemonRun>, draws: &mut Random) -> Result<(), String> {
    let Some((_, space)) = run.pick(draws) else { return Ok(()) };
    if space.spec().provisioning == Provisioning::Fixed {
        return Ok(());
    }
    let bytes = match draws.below(4) {
        0 => 0,
        _ => draws.below(space.size().0 + 1),
    };
    let id = space.id().0;
    let known = run.reserves.borrow().get(&id).copied();
    let before = space.reserve().0;
    let is_known = known.is_some_and(|known| known.bytes == before || known.wanted == Some(before));
    if before > 0 && !is_known {
        return Err(format!("{before} bytes are reserved for {} by nobody: {known:?}", space.name()));
    }
    let set = |bytes, wanted, may_lack| {
        run.reserves.borrow_mut().insert(id, Reserved { bytes, wanted, may_lack });
    };
    set(before, Some(bytes), true);
    match run.during(Work::Reserve, run.spaces.changes().set_reserve(&space, Bytes(bytes))).await {
        Ok(()) => {
            run.note(|tally| tally.saw(Rare::ReserveSet));
            set(bytes, None, run.shrinking.get() > 0);
            let lacks = space.lacks_of_reserve();
            if lacks > Bytes::ZERO && run.shrinking.get() == 0 {
                return Err(format!(
                    "{} lacks {lacks} of the {bytes} bytes that were reserved",
                    space.name()
                ));
            }
        }
        Err(error) => {
            let is_refusal = matches!(error, SpaceError::Reserve { .. });
            if is_refusal {
                run.note(|tally| tally.saw(Rare::ReserveRefused));
            }
            run.trouble(format!("reserving {bytes} for {}: {}", space.name(), in_one_line(&error)));
            // What stands in the way of a change may have come before or behind it.
            let wanted = (!is_refusal).then_some(bytes);
            set(before, wanted, known.is_some_and(|known| known.may_lack) || !is_refusal);
        }
    }
    Ok(())
}

/// What is reserved is what was acknowledged, or what was being set when the daemon ended.
pub fn verify_reserves(run: &Rc<DaemonRun>) -> Result<(), String> {
    let spaces = run.spaces.list();
    run.reserves.borrow_mut().retain(|id, _| spaces.iter().any(|space| space.id().0 == *id));
    for space in spaces {
        let known = run.reserves.borrow().get(&space.id().0).copied();
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
        run.reserves.borrow_mut().insert(space.id().0, Reserved { bytes: found, wanted: None, may_lack });
    }
    Ok(())
}

async fn keep_room(run: &Rc<DaemonRun>, draws: &mut Random) {
    let losses = draws.below(3) as u32;
    match run.spaces.pool().settings().set_keep_room_for(losses).await {
        Ok(()) => run.note(|tally| tally.saw(Rare::RoomKept)),
        Err(error) => run.trouble(format!("keeping room for {losses}: {}", in_one_line(&error))),
    }
}

/// A disk becomes a spare, or stays empty, where the others can take what it has.
async fn give_role(run: &Rc<DaemonRun>, draws: &mut Random) -> Result<(), String> {
    let pool = run.spaces.pool();
    let here: Vec<Rc<Disk>> = pool.disks().into_iter().filter(|disk| disk.is_present()).collect();
    let taking = here.iter().filter(|disk| pool.members().takes_rows(disk)).count();
    let is_quiet = run.spaces.moves().drains().is_empty() && pool.members().replacements().is_empty();
    if taking <= TAKING_MIN || !is_quiet || here.len() < pool.disks().len() {
        return Ok(());
    }
    let Some(disk) = here.get(draws.index(here.len())).filter(|disk| pool.members().takes_rows(disk)) else {
        return Ok(());
    };
    let forecast =
        run.spaces.moves().forecast_removal(disk.slot()).await.map_err(|error| in_one_line(&error))?;
    if !forecast.stuck.is_empty() {
        run.note(|tally| tally.saw(Rare::RoleRefused));
        return Ok(());
    }
    let role = if draws.coin() { Role::Spare } else { Role::Idle };
    match pool.membership().set_role(disk, Some(role)).await {
        Ok(()) => run.note(|tally| tally.saw(Rare::RoleGiven)),
        Err(error) => run.trouble(format!("making {} {role:?}: {}", disk.slot(), in_one_line(&error))),
    }
    Ok(())
}

/// A disk without rows takes some again.
async fn take_role(run: &Rc<DaemonRun>) {
    let pool = run.spaces.pool();
    let disk = pool.disks().into_iter().find(|disk| pool.members().role_of(disk).is_some());
    if let Some(disk) = disk {
        match pool.membership().set_role(&disk, None).await {
            Ok(()) => run.note(|tally| tally.saw(Rare::RoleTaken)),
            Err(error) => run.trouble(format!("having {} take rows: {}", disk.slot(), in_one_line(&error))),
        }
    }
}

async fn empty_those_without_rows(run: &Rc<DaemonRun>) -> Result<(), String> {
    for disk in run.spaces.moves().to_empty() {
        let progress = Progress::default();
        match run.during(Work::Emptying, run.spaces.moves().drain_disk(&disk, &progress)).await {
            Ok(true) => {
                let pool = run.spaces.pool();
                let is_meant = pool.members().is_to_be_empty(&disk) && !pool.members().is_drained(&disk);
                if is_meant && pool.free_space().holds_rows(&disk) {
                    return Err(format!("{} is said to be empty, and holds rows", disk.slot()));
                }
                run.note(|tally| tally.saw(Rare::EmptiedByRole));
            }
            Ok(false) => run.trouble(format!("something is left on {}", disk.slot())),
            Err(error) => run.trouble(format!("emptying {}: {}", disk.slot(), in_one_line(&error))),
        }
    }
    Ok(())
}

/// A disk is known to be failing, or to be slow.
fn mark_failing(run: &DaemonRun, draws: &mut Random) {
    let disks = run.spaces.pool().disks();
    if let Some(disk) = disks.get(draws.index(disks.len())) {
        let ailment = if draws.coin() { Ailment::Failing } else { Ailment::Slow };
        disk.set_ailment(Some(ailment));
    }
}

fn get_well(run: &DaemonRun) {
    run.spaces.pool().disks().iter().for_each(|disk| disk.set_ailment(None));
}

async fn empty_failing(run: &Rc<DaemonRun>) {
    let is_failing = |disk: &Rc<Disk>| disk.ailment() == Some(Ailment::Failing);
    let pool = run.spaces.pool();
    let failing = pool.disks().into_iter().find(|disk| is_failing(disk) && disk.is_present());
    let Some(disk) = failing.filter(|disk| pool.members().is_active(disk)) else { return };
    let progress = Progress::default();
    let emptied = run.spaces.moves().empty_disk(&disk, || is_failing(&disk), &progress);
    match run.during(Work::Emptying, emptied).await {
        Ok(Emptied::All) => run.note(|tally| tally.saw(Rare::FailingEmptied)),
        Ok(Emptied::AllBut(_)) => run.note(|tally| tally.saw(Rare::FailingKeepsSome)),
        Ok(Emptied::CutShort) => {}
        Err(error) => run.trouble(format!("emptying {}: {}", disk.slot(), in_one_line(&error))),
    }
}

/// With everything here, what has a role holds nothing, unless there is no room.
pub async fn end_settings(run: &Rc<DaemonRun>) -> Result<(), String> {
    get_well(run);
    for disk in run.spaces.moves().to_empty() {
        match run.spaces.moves().drain_disk(&disk, &Progress::default()).await {
            Ok(_) => {}
            Err(SpaceError::Pool(PoolError::NoSpace { .. }) | SpaceError::NoSpaceBelow { .. }) => {}
            Err(error) => {
                return Err(format!("emptying {} in the end: {}", disk.slot(), in_one_line(&error)));
            }
        }
    }
    verify_reserves(run)
}
