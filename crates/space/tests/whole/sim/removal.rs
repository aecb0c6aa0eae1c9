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

use super::daemon_run::{Course, DaemonRun};
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
    pub evicted: Vec<usize>,
}

impl Removals {
    /// A disk that left and is here, which nobody has any more.
    pub fn take_evicted(&mut self, disks: &RefCell<Vec<Rc<SimDisk>>>) -> Option<usize> {
        let at = self.evicted.iter().position(|index| !disks.borrow()[*index].is_absent())?;
        Some(self.evicted.swap_remove(at))
    }
}

/// A removal that was begun.
#[derive(Debug, Clone, Copy)]
pub struct Begun {
    pub index: usize,
    /// The life that was at it last.
    run: u64,
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
        removals.evicted.push(index);
        self.note(|tally| {
            tally.removals += 1;
            if begun.has_cache_rows {
                tally.saw(Rare::RemovedWithCacheRows);
            }
            if self.disks.borrow()[index].is_absent() || self.absent.borrow().contains(&index) {
                tally.saw(Rare::RemovedWhileAway);
            }
        });
        // Should it be added again, it is another one.
        self.ids.borrow_mut().remove(&index);
        true
    }
}

/// Wants disks to leave, to stay after all, and others to come, until the clients have gone.
pub async fn remover(run: Rc<DaemonRun>, mut random: Random) {
    let longest_us = 2000 << random.below(5);
    while run.is_served() {
        sleep(run.clock.as_ref(), Duration::from_micros(random.below(longest_us))).await;
        if !run.is_served() {
            break;
        }
        match random.below(8) {
            0..=3 => want_removed(&run, &mut random),
            4 => want_added(&run),
            5 => {
                if let Err(cause) = call_off(&run).await {
                    run.fail(cause);
                }
            }
            6 => replace_the_leaving(&run, &mut random),
            _ => {}
        }
    }
    run.helper_done();
}

/// A member is to leave, if none does: the one that suffers, or any.
fn want_removed(run: &DaemonRun, random: &mut Random) {
    let (victim, any) = {
        let members = run.members.borrow();
        (run.victim.get(), members[random.index(members.len())])
    };
    // Where spaces of one copy may lose something, whoever is away may never come back.
    let is_lost = !run.redundant && run.disks.borrow()[victim].is_absent();
    let index = if random.below(3) == 0 || is_lost { victim } else { any };
    let mut removals = run.removals.borrow_mut();
    if removals.wanted.is_none() && removals.begun.is_empty() {
        removals.wanted = Some(index);
    }
}

/// A disk that left, or one that was in no pool yet, is to be added.
fn want_added(run: &DaemonRun) {
    let mut removals = run.removals.borrow_mut();
    if !removals.added.is_empty() {
        return;
    }
    let next = match removals.take_evicted(&run.disks) {
        Some(again) => {
            run.note(|tally| tally.saw(Rare::RemovedIsBack));
            Some(again)
        }
        // One is left for replacements.
        None if run.spares.borrow().len() > 1 => run.spares.borrow_mut().pop(),
        None => None,
    };
    removals.added.extend(next);
}

/// A disk that is leaving is to stay after all.
async fn call_off(run: &Rc<DaemonRun>) -> Result<(), String> {
    let begun = run.removals.borrow().begun.first().copied();
    let Some(disk) = begun.and_then(|begun| member(run, begun.index)) else { return Ok(()) };
    let is_at_it = run.at_work.borrow().values().any(|work| *work == Work::Removal);
    match run.spaces.pool().membership().reinstate(&disk).await {
        Ok(()) => {
            run.log_note(format!("disk {} stays after all", disk.slot()));
            if is_at_it {
                run.note(|tally| tally.saw(Rare::RemovalCalledOff));
            }
            Ok(())
        }
        // It is being replaced by now, or is as good as struck.
        Err(PoolError::NotReplaced { .. }) => Ok(()),
        Err(error) => Err(format!("calling off the removal of {}: {}", disk.slot(), in_one_line(&error))),
    }
}

/// A disk that is leaving is to be replaced.
fn replace_the_leaving(run: &DaemonRun, random: &mut Random) {
    let begun = run.removals.borrow().begun.first().copied();
    let Some(begun) = begun.filter(|begun| !run.is_leaving(begun.index) && random.below(3) == 0) else {
        return;
    };
    if want_replaced(run, begun.index) {
        run.note(|tally| tally.saw(Rare::RemovalReplaced));
    }
}

/// Adds disks, begins removals that are wanted, and goes on with those that were begun.
pub async fn tend_removals(run: &Rc<DaemonRun>) -> Result<(), String> {
    add_disks(run).await;
    let wanted = run.removals.borrow_mut().wanted.take();
    if let Some(index) = wanted {
        begin(run, index).await?;
    }
    for disk in run.spaces.moves().drains() {
        go_on(run, &disk).await?;
    }
    // Whoever stays after all, or is replaced, does not leave so.
    let ids = run.ids.borrow();
    let drains = run.spaces.moves().drains();
    let is_drained = |index: usize| drains.iter().any(|disk| ids.get(&index) == Some(&disk.id()));
    run.removals.borrow_mut().begun.retain(|begun| is_drained(begun.index));
    Ok(())
}

async fn add_disks(run: &Rc<DaemonRun>) {
    let added = run.removals.borrow().added.clone();
    for index in added {
        let disk = Rc::clone(&run.disks.borrow()[index]);
        let device = disk.attach(&run.world);
        let pool = run.spaces.pool();
        if disk.is_absent() {
            continue;
        }
        // Whoever was taken in, and went before anybody was told, is taken back in and not made again.
        if pool.membership().absent_member(device.as_ref()).await.is_ok() {
            run.removals.borrow_mut().added.retain(|other| *other != index);
            run.members.borrow_mut().push(index);
            continue;
        }
        let all = [disk.name().to_owned()];
        if let Err(error) = run.spaces.members().add(device, &all).await {
            run.trouble(format!("adding disk {index}: {}", in_one_line(&error)));
        }
        learn_members(run);
    }
}

/// Retires a disk, where its removal can end by what is free now.
async fn begin(run: &Rc<DaemonRun>, index: usize) -> Result<(), String> {
    let Some(disk) = member(run, index).filter(|_| !run.is_leaving(index)) else { return Ok(()) };
    let has_single = run.oracle.borrow().models.values().any(|model| model.copies == 1);
    let is_few = run.spaces.pool().disks().len() <= MEMBERS_MIN;
    if is_few || !run.spaces.moves().drains().is_empty() {
        return Ok(());
    }
    let is_declared_lost = has_single && !disk.is_present();
    if is_declared_lost && !may_be_declared_lost(run, &disk).await? {
        return Ok(());
    }
    let forecast =
        run.spaces.moves().forecast_removal(disk.slot()).await.map_err(|error| in_one_line(&error))?;
    if !forecast.stuck.is_empty() && !can_be_narrower(run, &disk, &forecast).await? {
        run.note(|tally| tally.saw(Rare::RemovalRefused));
        return Ok(());
    }
    let caches = run.spaces.caches().write_caches().await.map_err(|error| in_one_line(&error))?;
    let has_cache_rows = caches.iter().any(|cache| cache.disks.contains(&disk.slot()));
    let begun = Begun { index, run: run.tally.get().runs, tries: 0, has_cache_rows };
    // On record before the pool's: the daemon may end in between.
    run.removals.borrow_mut().begun.push(begun);
    if let Err(error) = run.spaces.pool().membership().retire(&disk).await {
        run.trouble(format!("retiring disk {index}: {}", in_one_line(&error)));
        return Ok(());
    }
    if is_declared_lost {
        run.log_note(format!("disk {} is declared lost", disk.slot()));
        // It may be in force although nobody is told.
        run.declared_lost.set(true);
        if let Err(error) = run.spaces.pool().membership().declare_lost(&disk).await {
            run.trouble(format!("writing disk {index} off: {}", in_one_line(&error)));
        }
    }
    Ok(())
}

/// Whether only spaces of one copy lose something with a disk that is away, where nobody expects anything else of them.
async fn may_be_declared_lost(run: &DaemonRun, disk: &Disk) -> Result<bool, String> {
    if run.redundant {
        return Ok(false);
    }
    let lost = run.spaces.members().lost_without(disk).await.map_err(|error| in_one_line(&error))?;
    let kept = run.spaces.kept();
    let has_one_copy = |space: &Space| {
        let before = space.layout_before().map(|before| before.resiliency);
        let mut layouts = [Some(space.spec().resiliency), before].into_iter().flatten();
        layouts.all(|resiliency| resiliency.redundancy() == 0)
    };
    let of_one_copy: Vec<SpaceId> =
        kept.iter().filter(|space| has_one_copy(space)).map(|one| one.id()).collect();
    Ok(!lost.on_its_way && lost.ranges.keys().all(|id| of_one_copy.contains(id)))
}

/// Exchanges what a disk that is declared lost has alone.
async fn declare_lost(run: &Rc<DaemonRun>, disk: &Disk) -> Result<(), String> {
    if disk.is_present() || !run.spaces.pool().members().is_declared_lost(disk) {
        return Ok(());
    }
    let declared_lost = run.spaces.members().declare_rows_lost(&Progress::default()).await;
    let declared_lost = declared_lost.map_err(|error| in_one_line(&error))?;
    if declared_lost.rows > 0 {
        run.note(|tally| tally.saw(Rare::DeclaredLost));
    }
    Ok(())
}

/// Whether all rows that a disk cannot leave as they are can be laid without it, and may be: nobody has chosen their width.
async fn can_be_narrower(run: &DaemonRun, disk: &Disk, forecast: &RemovalForecast) -> Result<bool, String> {
    for id in forecast.stuck.keys() {
        let space = run.spaces.list().into_iter().find(|space| space.id() == *id);
        let Some(space) = space.filter(|space| space.spec().columns.is_none()) else { return Ok(false) };
        let narrower = run.spaces.conversions().forecast_narrowing(&space, disk.slot()).await;
        if narrower.map_err(|error| in_one_line(&error))?.stuck > 0 {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Lays rows that a disk cannot leave as they are without it.
async fn narrow(run: &Rc<DaemonRun>, disk: &Disk) -> Result<(), String> {
    let forecast =
        run.spaces.moves().forecast_removal(disk.slot()).await.map_err(|error| in_one_line(&error))?;
    for space in run.spaces.list().into_iter().filter(|space| forecast.stuck.contains_key(&space.id())) {
        if space.spec().columns.is_some() {
            continue;
        }
        let begun = match space.layout_before() {
            None => run.spaces.conversions().begin_conversion(&space, space.spec().layout()).await,
            Some(_) => Ok(()),
        };
        let narrowed = async {
            begun?;
            run.spaces.conversions().convert(&space, &Progress::default()).await
        };
        match run.during(Work::Conversion, narrowed).await {
            Ok(true) => run.note(|tally| tally.saw(Rare::Narrowed)),
            Ok(false) => run.note(|tally| tally.saw(Rare::ConversionWaited)),
            Err(error) => run.trouble(format!("making {} narrower: {}", space.name(), in_one_line(&error))),
        }
    }
    Ok(())
}

/// Moves what is left off a disk, and strikes it when that is nothing.
async fn go_on(run: &Rc<DaemonRun>, disk: &Rc<Disk>) -> Result<(), String> {
    note_resumed(run, disk);
    let progress = Progress::default();
    let pool = run.spaces.pool();
    run.log_note(format!("{} goes on leaving", disk.slot()));
    narrow(run, disk).await?;
    let work = async {
        declare_lost(run, disk).await?;
        if !run.spaces.moves().drain_disk(disk, &progress).await.map_err(|error| in_one_line(&error))? {
            return Ok(false);
        }
        let device = disk.device();
        pool.membership().evict(disk).await.map_err(|error| in_one_line(&error))?;
        if let Err(error) = pool.voter_tender().tend().await {
            run.trouble(format!("voters behind {}: {}", disk.slot(), in_one_line(&error)));
        }
        if let Some(device) = device
            && let Err(error) = dolmen_disk::wipe(&run.seams, device.as_ref(), Epoch(u64::MAX)).await
        {
            run.trouble(format!("wiping {}: {}", disk.slot(), in_one_line(&error)));
        }
        Ok::<bool, String>(true)
    };
    let done = run.during(Work::Removal, work).await;
    learn_members(run);
    match done {
        Ok(true) => Ok(()),
        Ok(false) => left_over(run, disk).await,
        Err(error) => {
            run.trouble(format!("moving off {}: {error}", disk.slot()));
            Ok(())
        }
    }
}

/// Counts a removal that the daemon before had begun.
fn note_resumed(run: &DaemonRun, disk: &Disk) {
    let now = run.tally.get().runs;
    let ids = run.ids.borrow();
    for begun in &mut run.removals.borrow_mut().begun {
        if ids.get(&begun.index) == Some(&disk.id()) && std::mem::replace(&mut begun.run, now) != now {
            run.note(|tally| tally.saw(Rare::RemovalResumed));
        }
    }
}

/// Something is left on a disk. Where nothing is away and the others have no room for it, it stays after all.
async fn left_over(run: &Rc<DaemonRun>, disk: &Rc<Disk>) -> Result<(), String> {
    let pool = run.spaces.pool();
    if !pool.members().is_drained(disk) {
        return Ok(());
    }
    run.note(|tally| tally.saw(Rare::RemovalWaited));
    run.trouble(format!("something is left on {}", disk.slot()));
    let ids = run.ids.borrow().clone();
    let mut tries = 0;
    if let Some(begun) =
        run.removals.borrow_mut().begun.iter_mut().find(|begun| ids.get(&begun.index) == Some(&disk.id()))
    {
        begun.tries += 1;
        tries = begun.tries;
    }
    let forecast =
        run.spaces.moves().forecast_removal(disk.slot()).await.map_err(|error| in_one_line(&error))?;
    if tries >= TRIES_MAX && !forecast.stuck.is_empty() {
        call_off(run).await?;
    }
    Ok(())
}
