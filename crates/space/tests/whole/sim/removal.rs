//! Removals: disks that leave without another in their place, under clients and faults, and disks that are added.
//!
//! - One disk leaves after another; which one, when it is called off, and when a disk is added is drawn here.
//! - As the daemon does it: what the removal would take is looked at first, and nothing is begun that cannot end.
//! - The operator is at it between other things; whoever comes next goes on with it.
//! - A disk that has left is as good as new, and may be added again.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use dolmen_block_io::sleep;
use dolmen_causes::in_one_line;
use dolmen_pool::{Disk, PoolError};
use dolmen_sim::{Random, SimDisk};
use dolmen_space::{Progress, RemovalForecast, Space};
use dolmen_units::{Epoch, SpaceId};

use super::life::{Course, Life};
use super::operator::{learn_members, member, want_replaced};
use super::tally::{Rare, Work};

/// Members below which nobody lets a disk go: log and map are on three.
const MEMBERS_MIN: usize = 3;
/// How often a removal that finds no room is tried in the end before it is called off.
const TRIES_MAX: u64 = 3;

/// What is known of removals beyond a daemon's life.
#[derive(Debug, Default)]
pub struct Removals {
    /// The disk that somebody wants to leave, and of which that has not begun.
    pub wanted: Option<usize>,
    /// Members that were retired for it. Whether they left is seen later.
    pub begun: Vec<Begun>,
    /// Disks that somebody wants to add.
    pub added: Vec<usize>,
    /// Disks that left so, and are to be had.
    pub struck: Vec<usize>,
}

impl Removals {
    /// A disk that left and is here, which nobody has any more.
    pub fn take_struck(&mut self, disks: &RefCell<Vec<Rc<SimDisk>>>) -> Option<usize> {
        let at = self.struck.iter().position(|index| !disks.borrow()[*index].is_absent())?;
        Some(self.struck.swap_remove(at))
    }
}

/// A removal that was begun.
#[derive(Debug, Clone, Copy)]
pub struct Begun {
    pub index: usize,
    /// The life that was at it last.
    life: u64,
    /// How often something was left although nothing was away.
    tries: u64,
    has_cache_rows: bool,
}

impl Course {
    /// Whether a disk is to leave without another in its place, or does.
    pub fn is_removed(&self, index: usize) -> bool {
        let removals = self.removals.borrow();
        removals.wanted == Some(index) || removals.begun.iter().any(|begun| begun.index == index)
    }

    /// Whether somebody waits for a disk to leave or to be added.
    pub fn is_removing(&self) -> bool {
        let removals = self.removals.borrow();
        removals.wanted.is_some() || !removals.begun.is_empty() || !removals.added.is_empty()
    }

    /// Notes that a disk was struck; whether it left without another in its place.
    pub fn has_left(&self, index: usize) -> bool {
        let mut removals = self.removals.borrow_mut();
        let Some(at) = removals.begun.iter().position(|begun| begun.index == index) else { return false };
        let begun = removals.begun.swap_remove(at);
        removals.struck.push(index);
        self.note(|tally| {
            tally.removals += 1;
            if begun.has_cache_rows {
                tally.saw(Rare::RemovedWithCacheRows);
            }
            if self.disks.borrow()[index].is_absent() || self.gone.borrow().contains(&index) {
                tally.saw(Rare::RemovedWhileAway);
            }
        });
        // Should it be added again, it is another one.
        self.ids.borrow_mut().remove(&index);
        true
    }
}

/// Wants disks to leave, to stay after all, and others to come, until the clients have gone.
pub async fn remover(life: Rc<Life>, mut random: Random) {
    let longest_us = 2000 << random.below(5);
    while life.is_served() {
        sleep(life.clock.as_ref(), Duration::from_micros(random.below(longest_us))).await;
        if !life.is_served() {
            break;
        }
        match random.below(8) {
            0..=3 => want_removed(&life, &mut random),
            4 => want_added(&life),
            5 => {
                if let Err(cause) = call_off(&life).await {
                    life.fail(cause);
                }
            }
            6 => replace_the_leaving(&life, &mut random),
            _ => {}
        }
    }
    life.helper_done();
}

/// A member is to leave, if none does: the one that suffers, or any.
fn want_removed(life: &Life, random: &mut Random) {
    let (victim, any) = {
        let members = life.members.borrow();
        (life.victim.get(), members[random.index(members.len())])
    };
    // Where spaces of one copy may lose something, whoever is away may never come back.
    let is_lost = !life.redundant && life.disks.borrow()[victim].is_absent();
    let index = if random.below(3) == 0 || is_lost { victim } else { any };
    let mut removals = life.removals.borrow_mut();
    if removals.wanted.is_none() && removals.begun.is_empty() {
        removals.wanted = Some(index);
    }
}

/// A disk that left, or one that was in no pool yet, is to be added.
fn want_added(life: &Life) {
    let mut removals = life.removals.borrow_mut();
    if !removals.added.is_empty() {
        return;
    }
    let next = match removals.take_struck(&life.disks) {
        Some(again) => {
            life.note(|tally| tally.saw(Rare::RemovedIsBack));
            Some(again)
        }
        // One is left for replacements.
        None if life.spares.borrow().len() > 1 => life.spares.borrow_mut().pop(),
        None => None,
    };
    removals.added.extend(next);
}

/// A disk that is leaving is to stay after all.
async fn call_off(life: &Rc<Life>) -> Result<(), String> {
    let begun = life.removals.borrow().begun.first().copied();
    let Some(disk) = begun.and_then(|begun| member(life, begun.index)) else { return Ok(()) };
    let is_at_it = life.at_work.borrow().values().any(|work| *work == Work::Removal);
    match life.spaces.pool().reinstate(&disk).await {
        Ok(()) => {
            life.say(format!("disk {} stays after all", disk.slot()));
            if is_at_it {
                life.note(|tally| tally.saw(Rare::RemovalCalledOff));
            }
            Ok(())
        }
        // It is being replaced by now, or is as good as struck.
        Err(PoolError::NotReplaced { .. }) => Ok(()),
        Err(error) => Err(format!("calling off the removal of {}: {}", disk.slot(), in_one_line(&error))),
    }
}

/// A disk that is leaving is to be replaced.
fn replace_the_leaving(life: &Life, random: &mut Random) {
    let begun = life.removals.borrow().begun.first().copied();
    let Some(begun) = begun.filter(|begun| !life.is_leaving(begun.index) && random.below(3) == 0) else {
        return;
    };
    if want_replaced(life, begun.index) {
        life.note(|tally| tally.saw(Rare::RemovalReplaced));
    }
}

/// Adds disks, begins removals that are wanted, and goes on with those that were begun.
pub async fn tend_removals(life: &Rc<Life>) -> Result<(), String> {
    add_disks(life).await;
    let wanted = life.removals.borrow_mut().wanted.take();
    if let Some(index) = wanted {
        begin(life, index).await?;
    }
    for disk in life.spaces.drains() {
        go_on(life, &disk).await?;
    }
    // Whoever stays after all, or is replaced, does not leave so.
    let ids = life.ids.borrow();
    let drains = life.spaces.drains();
    let is_drained = |index: usize| drains.iter().any(|disk| ids.get(&index) == Some(&disk.id()));
    life.removals.borrow_mut().begun.retain(|begun| is_drained(begun.index));
    Ok(())
}

async fn add_disks(life: &Rc<Life>) {
    let added = life.removals.borrow().added.clone();
    for index in added {
        let disk = Rc::clone(&life.disks.borrow()[index]);
        let device = disk.attach(&life.world);
        let pool = life.spaces.pool();
        if disk.is_absent() {
            continue;
        }
        // Whoever was taken in, and went before anybody was told, is taken back in and not made anew.
        if pool.absent_member(device.as_ref()).await.is_ok() {
            life.removals.borrow_mut().added.retain(|other| *other != index);
            life.members.borrow_mut().push(index);
            continue;
        }
        let all = [disk.name().to_owned()];
        if let Err(error) = life.spaces.add(device, &all).await {
            life.trouble(format!("adding disk {index}: {}", in_one_line(&error)));
        }
        learn_members(life);
    }
}

/// Retires a disk, where its removal can end by what is free now.
async fn begin(life: &Rc<Life>, index: usize) -> Result<(), String> {
    let Some(disk) = member(life, index).filter(|_| !life.is_leaving(index)) else { return Ok(()) };
    let has_single = life.oracle.borrow().models.values().any(|model| model.copies == 1);
    let is_few = life.spaces.pool().disks().len() <= MEMBERS_MIN;
    if is_few || !life.spaces.drains().is_empty() {
        return Ok(());
    }
    let is_written_off = has_single && !disk.is_present();
    if is_written_off && !may_be_written_off(life, &disk).await? {
        return Ok(());
    }
    let forecast = life.spaces.forecast_removal(disk.slot()).await.map_err(|error| in_one_line(&error))?;
    if !forecast.stuck.is_empty() && !can_be_narrower(life, &disk, &forecast).await? {
        life.note(|tally| tally.saw(Rare::RemovalRefused));
        return Ok(());
    }
    let caches = life.spaces.write_caches().await.map_err(|error| in_one_line(&error))?;
    let has_cache_rows = caches.iter().any(|cache| cache.disks.contains(&disk.slot()));
    let begun = Begun { index, life: life.tally.get().lives, tries: 0, has_cache_rows };
    // On record before the pool's: the daemon may end in between.
    life.removals.borrow_mut().begun.push(begun);
    if let Err(error) = life.spaces.pool().retire(&disk).await {
        life.trouble(format!("retiring disk {index}: {}", in_one_line(&error)));
        return Ok(());
    }
    if is_written_off {
        life.say(format!("disk {} is written off", disk.slot()));
        // It may be in force although nobody is told.
        life.given_up.set(true);
        if let Err(error) = life.spaces.pool().write_off(&disk).await {
            life.trouble(format!("writing disk {index} off: {}", in_one_line(&error)));
        }
    }
    Ok(())
}

/// Whether only spaces of one copy lose something with a disk that is away, where nobody expects anything else of them.
async fn may_be_written_off(life: &Life, disk: &Disk) -> Result<bool, String> {
    if life.redundant {
        return Ok(false);
    }
    let lost = life.spaces.lost_without(disk).await.map_err(|error| in_one_line(&error))?;
    let kept = life.spaces.kept();
    let has_one_copy = |space: &Rc<Space>| {
        let before = space.layout_before().map(|before| before.resiliency);
        let mut layouts = [Some(space.spec().resiliency), before].into_iter().flatten();
        layouts.all(|resiliency| resiliency.redundancy() == 0)
    };
    let of_one_copy: Vec<SpaceId> =
        kept.iter().filter(|space| has_one_copy(space)).map(|one| one.id()).collect();
    Ok(!lost.on_its_way && lost.ranges.keys().all(|id| of_one_copy.contains(id)))
}

/// Gives up what a disk that is written off has alone.
async fn give_up(life: &Rc<Life>, disk: &Disk) -> Result<(), String> {
    if disk.is_present() || !life.spaces.pool().is_written_off(disk) {
        return Ok(());
    }
    let given_up = life.spaces.give_up_written_off(&Progress::default()).await;
    let given_up = given_up.map_err(|error| in_one_line(&error))?;
    if given_up.rows > 0 {
        life.note(|tally| tally.saw(Rare::WrittenOff));
    }
    Ok(())
}

/// Whether all rows that a disk cannot leave as they are can be laid without it, and may be: nobody has chosen their width.
async fn can_be_narrower(life: &Life, disk: &Disk, forecast: &RemovalForecast) -> Result<bool, String> {
    for id in forecast.stuck.keys() {
        let space = life.spaces.list().into_iter().find(|space| space.id() == *id);
        let Some(space) = space.filter(|space| space.spec().columns.is_none()) else { return Ok(false) };
        let narrower = life.spaces.forecast_narrowing(&space, disk.slot()).await;
        if narrower.map_err(|error| in_one_line(&error))?.stuck > 0 {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Lays rows that a disk cannot leave as they are without it.
async fn narrow(life: &Rc<Life>, disk: &Disk) -> Result<(), String> {
    let forecast = life.spaces.forecast_removal(disk.slot()).await.map_err(|error| in_one_line(&error))?;
    for space in life.spaces.list().into_iter().filter(|space| forecast.stuck.contains_key(&space.id())) {
        if space.spec().columns.is_some() {
            continue;
        }
        let begun = match space.layout_before() {
            None => life.spaces.begin_conversion(&space, space.spec().layout()).await,
            Some(_) => Ok(()),
        };
        let narrowed = async {
            begun?;
            life.spaces.convert(&space, &Progress::default()).await
        };
        match life.during(Work::Conversion, narrowed).await {
            Ok(true) => life.note(|tally| tally.saw(Rare::Narrowed)),
            Ok(false) => life.note(|tally| tally.saw(Rare::ConversionWaited)),
            Err(error) => life.trouble(format!("making {} narrower: {}", space.name(), in_one_line(&error))),
        }
    }
    Ok(())
}

/// Moves what is left off a disk, and strikes it when that is nothing.
async fn go_on(life: &Rc<Life>, disk: &Rc<Disk>) -> Result<(), String> {
    note_resumed(life, disk);
    let progress = Progress::default();
    let pool = life.spaces.pool();
    life.say(format!("{} goes on leaving", disk.slot()));
    narrow(life, disk).await?;
    let work = async {
        give_up(life, disk).await?;
        if !life.spaces.drain_disk(disk, &progress).await.map_err(|error| in_one_line(&error))? {
            return Ok(false);
        }
        let device = disk.device();
        pool.strike(disk).await.map_err(|error| in_one_line(&error))?;
        if let Err(error) = pool.tend_voters().await {
            life.trouble(format!("voters behind {}: {}", disk.slot(), in_one_line(&error)));
        }
        if let Some(device) = device
            && let Err(error) = dolmen_disk::wipe(&life.seams, device.as_ref(), Epoch(u64::MAX)).await
        {
            life.trouble(format!("wiping {}: {}", disk.slot(), in_one_line(&error)));
        }
        Ok::<bool, String>(true)
    };
    let done = life.during(Work::Removal, work).await;
    learn_members(life);
    match done {
        Ok(true) => Ok(()),
        Ok(false) => left_over(life, disk).await,
        Err(error) => {
            life.trouble(format!("moving off {}: {error}", disk.slot()));
            Ok(())
        }
    }
}

/// Counts a removal that the daemon before had begun.
fn note_resumed(life: &Life, disk: &Disk) {
    let now = life.tally.get().lives;
    let ids = life.ids.borrow();
    for begun in &mut life.removals.borrow_mut().begun {
        if ids.get(&begun.index) == Some(&disk.id()) && std::mem::replace(&mut begun.life, now) != now {
            life.note(|tally| tally.saw(Rare::RemovalResumed));
        }
    }
}

/// Something is left on a disk. Where nothing is away and the others have no room for it, it stays after all.
async fn left_over(life: &Rc<Life>, disk: &Rc<Disk>) -> Result<(), String> {
    let pool = life.spaces.pool();
    if !pool.is_drained(disk) {
        return Ok(());
    }
    life.note(|tally| tally.saw(Rare::RemovalWaited));
    life.trouble(format!("something is left on {}", disk.slot()));
    let ids = life.ids.borrow().clone();
    let mut tries = 0;
    if let Some(begun) =
        life.removals.borrow_mut().begun.iter_mut().find(|begun| ids.get(&begun.index) == Some(&disk.id()))
    {
        begun.tries += 1;
        tries = begun.tries;
    }
    let forecast = life.spaces.forecast_removal(disk.slot()).await.map_err(|error| in_one_line(&error))?;
    if tries >= TRIES_MAX && !forecast.stuck.is_empty() {
        call_off(life).await?;
    }
    Ok(())
}
