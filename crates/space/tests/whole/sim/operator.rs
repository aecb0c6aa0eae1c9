//! The operator: what came back is taken in, what is to be replaced is replaced, what is stale is brought up to date.

use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;

use dolmen_block_io::{DeviceError, sleep};
use dolmen_causes::in_one_line;
use dolmen_pool::{Disk, PoolError};
use dolmen_sim::{FaultKind, Random};
use dolmen_space::{Progress, SpaceError, WriteCache, WriteCacheDrain};
use dolmen_units::Bytes;

use super::conversion::{end_conversions, tend_conversions};
use super::jobs::{end_evening, tend_jobs};
use super::life::{Life, OPERATOR, USHER};
use super::removal::tend_removals;
use super::tally::{Rare, Work};
use super::wishes::{end_wishes, tend_wishes};

/// Looks after disks once.
pub async fn tend(life: &Rc<Life>) -> Result<(), String> {
    let doing = |what: &str| drop(life.doing.borrow_mut().insert(OPERATOR, format!("operator: {what}")));
    doing("replace");
    begin_replacements(life).await;
    finish_replacements(life).await;
    doing("remove");
    tend_removals(life).await?;
    doing("resync");
    let joined = life.joined.take();
    let stale = life.spaces.stale_rows().await.map_err(|error| in_one_line(&error))?;
    if (joined || !stale.is_empty()) && missing_disks(life).is_empty() {
        let progress = Progress::default();
        match life.during(Work::Resync, life.spaces.resync(&progress)).await {
            Ok(done) if done.waiting == 0 => {}
            Ok(done) => life.trouble(format!("resync: {done:?}")),
            Err(error) => life.trouble(format!("resync: {}", in_one_line(&error))),
        }
    }
    doing("convert");
    tend_conversions(life).await?;
    doing("even out or verify");
    tend_jobs(life).await;
    doing("set what people want");
    tend_wishes(life).await?;
    doing("set write caches");
    resize_write_caches(life).await?;
    doing("destage");
    if let Err(error) = life.spaces.destage().await {
        life.trouble(format!("destage: {}", in_one_line(&error)));
    }
    doing("nothing");
    if life.lost.get() && is_whole(life).await? {
        life.lost.set(false);
        life.hard.set(false);
        life.cache_lost.set(false);
    }
    Ok(())
}

/// Gives write caches another size, larger and smaller in turn. While disks are away that may fail; then it has the size that
/// it had.
async fn resize_write_caches(life: &Rc<Life>) -> Result<(), String> {
    let sizes = |caches: Vec<WriteCache>| caches.into_iter().map(|cache| (cache.redundancy, cache.size));
    let seen = async || life.spaces.write_caches().await.map(sizes).map_err(|error| in_one_line(&error));
    for (redundancy, before) in seen().await? {
        let turn = life.clock.now().0 / 1000 % 7;
        let size = Bytes(Bytes::mib(4 + u64::from(redundancy) + turn).0.max(before.0 / 2));
        // From little or much on, held back or not.
        let rate = turn.is_multiple_of(3).then_some(Bytes::mib(1 + turn));
        let drain = WriteCacheDrain { fill: 5 + u8::try_from(turn).unwrap_or(0) * 12, rate };
        if let Err(error) = life.spaces.set_write_cache_drain(redundancy, drain).await {
            life.trouble(format!("another drain of a write cache: {}", in_one_line(&error)));
        }
        let progress = Progress::default();
        match life.spaces.resize_write_cache(redundancy, size, &progress).await {
            Ok(change) => life.note(|tally| tally.resizes += u64::from(change.after != change.before)),
            Err(error) => {
                life.trouble(format!("resizing a write cache to {size}: {}", in_one_line(&error)));
                if seen().await?.any(|(other, now)| other == redundancy && now != before) {
                    return Err(format!("the write cache for redundancy {redundancy} changed and failed"));
                }
            }
        }
    }
    Ok(())
}

/// Takes disks back in as they come, beside whatever the operator is at.
pub async fn usher(life: Rc<Life>, mut random: Random) {
    let longest_us = 100 << random.below(8);
    while life.is_served() {
        sleep(life.clock.as_ref(), Duration::from_micros(200 + random.below(longest_us))).await;
        take_in(&life).await;
    }
    life.helper_done();
}

/// Takes in who is missing and could be here.
pub async fn take_in(life: &Rc<Life>) {
    for index in missing_disks(life) {
        let disk = Rc::clone(&life.disks.borrow()[index]);
        if disk.is_absent() || life.barred.borrow().contains(&index) {
            continue;
        }
        life.doing.borrow_mut().insert(USHER, "operator: rejoin".to_owned());
        // It may fail again on the way; then it stays out until the next time.
        match life.during(Work::Rejoin, life.spaces.rejoin(disk.attach(&life.world))).await {
            Ok(_) => {
                life.joined.set(true);
                life.unnoticed.set(false);
                life.note(|tally| tally.rejoins += 1);
                life.is_back(index);
                learn_members(life);
            }
            Err(error) => {
                life.trouble(format!("rejoining disk {index}: {}", in_one_line(&error)));
                let is_unknown = match &error {
                    SpaceError::Pool(PoolError::NoSuchDisk { .. }) => true,
                    // What one of its labels was cannot be told, and there is no other.
                    SpaceError::Pool(PoolError::Label { source, .. }) => {
                        matches!(source.source, DeviceError::Medium { .. })
                    }
                    _ => false,
                };
                if is_unknown {
                    give_up(life, index);
                }
            }
        }
        life.doing.borrow_mut().remove(&USHER);
    }
}

/// A disk that lied about flushes may have lost all of its labels with its cache, and one that is as it was before may be as it
/// was before it was added. Nobody knows it then, and whoever looks after the pool replaces it, and buys a disk for that if there is
/// none. One that never did the one or the other has no such excuse.
fn give_up(life: &Life, index: usize) {
    let faults = life.disks.borrow()[index].fault_counters();
    let is_excused = [FaultKind::LyingFlush, FaultKind::ReturnedOld].iter().any(|kind| faults.of(*kind) > 0);
    if is_excused && !life.is_leaving(index) && !want_replaced(life, index) {
        let number = life.disks.borrow().len();
        let profile = life.disks.borrow()[index].profile().clone();
        let bought = life.world.add_disk(&format!("bought{number}"), profile);
        life.disks.borrow_mut().push(bought);
        life.spares.borrow_mut().push(number);
        want_replaced(life, index);
    }
}

/// Asks for a disk to be replaced by the next spare one, if there is one; else by one that has left, which is as good as new.
pub fn want_replaced(life: &super::life::Course, index: usize) -> bool {
    let spare =
        life.spares.borrow_mut().pop().or_else(|| life.removals.borrow_mut().take_struck(&life.disks));
    if let Some(new) = spare {
        life.wanted.borrow_mut().push((index, new));
    }
    spare.is_some()
}

/// Members whose disks the pool does without.
pub fn missing_disks(life: &Life) -> Vec<usize> {
    let here: BTreeSet<String> = present(life).map(|disk| disk.name()).collect();
    let disks = life.disks.borrow();
    let members = life.members.borrow();
    members.iter().copied().filter(|index| !here.contains(disks[*index].name())).collect()
}

fn present(life: &Life) -> impl Iterator<Item = Rc<Disk>> {
    life.spaces.pool().disks().into_iter().filter(|disk| disk.is_present())
}

/// The member that a disk is.
pub fn member(life: &Life, index: usize) -> Option<Rc<Disk>> {
    let id = life.ids.borrow().get(&index).copied()?;
    life.spaces.pool().disks().into_iter().find(|disk| disk.id() == id)
}

/// Notes who is a member: by identity, because the name of one that is away says nothing, and numbers are given again.
pub fn learn_members(life: &Life) {
    for disk in present(life) {
        let index = life.disks.borrow().iter().position(|other| other.name() == disk.name());
        let Some(index) = index else { continue };
        life.ids.borrow_mut().insert(index, disk.id());
        if !life.members.borrow().contains(&index) {
            life.members.borrow_mut().push(index);
        }
        // Whoever asked for it has it.
        let begun = life.wanted.borrow().iter().find(|(_, new)| *new == index).copied();
        life.wanted.borrow_mut().retain(|(_, new)| *new != index);
        life.leaving.borrow_mut().extend(begun.map(|(old, _)| old));
        life.removals.borrow_mut().added.retain(|added| *added != index);
    }
    let is_struck = |index: &usize| life.ids.borrow().contains_key(index) && member(life, *index).is_none();
    let struck: Vec<usize> = life.members.borrow().iter().copied().filter(is_struck).collect();
    for index in struck {
        life.members.borrow_mut().retain(|other| *other != index);
        let has_left = !life.leaving.borrow_mut().remove(&index) && life.has_left(index);
        life.gone.borrow_mut().remove(&index);
        if !has_left {
            life.note(|tally| tally.replacements += 1);
        }
    }
}

pub async fn is_whole(life: &Life) -> Result<bool, String> {
    let stale = life.spaces.stale_rows().await.map_err(|error| in_one_line(&error))?;
    let away = life.members.borrow().iter().any(|index| life.disks.borrow()[*index].is_absent());
    Ok(stale.is_empty()
        && !away
        && !life.unnoticed.get()
        && life.barred.borrow().is_empty()
        && life.gone.borrow().is_empty()
        && missing_disks(life).is_empty()
        && life.wanted.borrow().is_empty()
        && life.leaving.borrow().is_empty()
        && !life.is_removing())
}

/// Begins the replacements that are wanted. What fails is tried again later.
async fn begin_replacements(life: &Rc<Life>) {
    let wanted = life.wanted.borrow().clone();
    for (old, new) in wanted {
        let Some(old_disk) = member(life, old) else {
            // It was struck before.
            life.wanted.borrow_mut().retain(|(_, other)| *other != new);
            continue;
        };
        let disk = Rc::clone(&life.disks.borrow()[new]);
        let device = disk.attach(&life.world);
        let pool = life.spaces.pool();
        // Whoever was taken in, and went before anybody was told, is taken back in and not made anew.
        if disk.is_absent() || pool.absent_member(device.as_ref()).await.is_ok() {
            if !life.members.borrow().contains(&new) {
                life.members.borrow_mut().push(new);
            }
            continue;
        }
        if pool.replacements().iter().any(|(_, by)| by.id() == old_disk.id()) {
            life.note(|tally| tally.saw(Rare::ReplacementReplaced));
        }
        match pool.add_instead_of(&old_disk, device, &[disk.name().to_owned()]).await {
            Ok(_) => drop(life.heirs.borrow_mut().insert(old, new)),
            Err(error) => {
                let text = in_one_line(&error);
                life.trouble(format!("replacing disk {old}: {text}"));
                if text.contains("reading the label") && text.contains("the medium failed") {
                    write_over(life, new).await;
                }
            }
        }
        learn_members(life);
    }
}

/// A disk whose labels cannot be read is refused, and would be for ever: who wants it all the same writes over what cannot be read,
/// and the disk puts other sectors in the place of these.
async fn write_over(life: &Rc<Life>, index: usize) {
    let device = life.disks.borrow()[index].attach(&life.world);
    let pool = life.spaces.pool();
    if let Err(error) = dolmen_disk::wipe(pool.seams(), device.as_ref(), pool.epoch().number).await {
        life.trouble(format!("writing over disk {index}: {}", in_one_line(&error)));
    }
}

/// Brings replacements to their end that were begun, by this daemon or by one before it.
async fn finish_replacements(life: &Rc<Life>) {
    for (old, new) in life.spaces.pool().replacements() {
        if !life.replaced.borrow_mut().insert(old.id()) {
            life.note(|tally| tally.saw(Rare::ReplacementResumed));
        }
        let progress = Progress::default();
        let done = life.during(Work::Replacement, life.spaces.finish_replacing(&old, &new, &progress)).await;
        match done {
            Ok(true) => {}
            Ok(false) => life.trouble(format!("slabs stay on {}", old.slot())),
            Err(error) => life.trouble(format!("moving from {}: {}", old.slot(), in_one_line(&error))),
        }
        learn_members(life);
    }
}

/// Everything is here, nothing is stale, every copy of every block is right.
pub async fn make_whole(life: &Rc<Life>) -> Result<(), String> {
    for _ in 0..8 {
        take_in(life).await;
        tend(life).await?;
        if is_whole(life).await? {
            break;
        }
    }
    if !is_whole(life).await? {
        let stale = life.spaces.stale_rows().await.map_err(|error| in_one_line(&error))?;
        let missing = missing_disks(life);
        return Err(format!(
            "not whole in the end: stale {stale:?}, missing {missing:?}, wanted {:?}, leaving {:?}, replacing {:?}, {:?}",
            life.wanted.borrow(),
            life.leaving.borrow(),
            life.spaces.pool().replacements(),
            life.removals.borrow()
        ));
    }
    end_conversions(life).await?;
    end_evening(life).await?;
    end_wishes(life).await?;
    life.spaces.pool().tend_voters().await.map_err(|error| in_one_line(&error))
}
