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
use super::daemon_run::{DaemonRun, OPERATOR, REJOIN_TASK};
use super::jobs::{end_evening, tend_jobs};
use super::removal::tend_removals;
use super::settings::{end_settings, tend_settings};
use super::tally::{Rare, Work};

/// Looks after disks once.
pub async fn tend(run: &Rc<DaemonRun>) -> Result<(), String> {
    let doing = |what: &str| drop(run.doing.borrow_mut().insert(OPERATOR, format!("operator: {what}")));
    doing("replace");
    begin_replacements(run).await;
    finish_replacements(run).await;
    doing("remove");
    tend_removals(run).await?;
    doing("resync");
    let joined = run.joined.take();
    let stale = run.spaces.members().stale_rows().await.map_err(|error| in_one_line(&error))?;
    if (joined || !stale.is_empty()) && missing_disks(run).is_empty() {
        let progress = Progress::default();
        match run.during(Work::Resync, run.spaces.members().resync(&progress)).await {
            Ok(done) if done.waiting == 0 => {}
            Ok(done) => run.trouble(format!("resync: {done:?}")),
            Err(error) => run.trouble(format!("resync: {}", in_one_line(&error))),
        }
    }
    doing("convert");
    tend_conversions(run).await?;
    doing("even out or verify");
    tend_jobs(run).await;
    doing("set what people want");
    tend_settings(run).await?;
    doing("set write caches");
    resize_write_caches(run).await?;
    doing("destage");
    if let Err(error) = run.spaces.caches().destage().await {
        run.trouble(format!("destage: {}", in_one_line(&error)));
    }
    doing("nothing");
    if run.lost.get() && is_whole(run).await? {
        run.lost.set(false);
        run.hard.set(false);
        run.cache_lost.set(false);
    }
    Ok(())
}

/// Gives write caches another size, larger and smaller in turn. While disks are away that may fail; then it has the size that
/// it had.
async fn resize_write_caches(run: &Rc<DaemonRun>) -> Result<(), String> {
    let sizes = |caches: Vec<WriteCache>| caches.into_iter().map(|cache| (cache.redundancy, cache.size));
    let seen =
        async || run.spaces.caches().write_caches().await.map(sizes).map_err(|error| in_one_line(&error));
    for (redundancy, before) in seen().await? {
        let variant = run.clock.now().0 / 1000 % 7;
        let size = Bytes(Bytes::mib(4 + u64::from(redundancy) + variant).0.max(before.0 / 2));
        // From little or much on, held back or not.
        let rate = variant.is_multiple_of(3).then_some(Bytes::mib(1 + variant));
        let drain = WriteCacheDrain { fill: 5 + u8::try_from(variant).unwrap_or(0) * 12, rate };
        if let Err(error) = run.spaces.caches().set_write_cache_drain(redundancy, drain).await {
            run.trouble(format!("another drain of a write cache: {}", in_one_line(&error)));
        }
        let progress = Progress::default();
        match run.spaces.caches().resize_write_cache(redundancy, size, &progress).await {
            Ok(change) => run.note(|tally| tally.resizes += u64::from(change.after != change.before)),
            Err(error) => {
                run.trouble(format!("resizing a write cache to {size}: {}", in_one_line(&error)));
                if seen().await?.any(|(other, now)| other == redundancy && now != before) {
                    return Err(format!("the write cache for redundancy {redundancy} changed and failed"));
                }
            }
        }
    }
    Ok(())
}

/// Takes disks back in as they come, beside whatever the operator is at.
pub async fn rejoin_disks(run: Rc<DaemonRun>, mut random: Random) {
    let longest_us = 100 << random.below(8);
    while run.is_served() {
        sleep(run.clock.as_ref(), Duration::from_micros(200 + random.below(longest_us))).await;
        take_in(&run).await;
    }
    run.helper_done();
}

/// Takes in who is missing and could be here.
pub async fn take_in(run: &Rc<DaemonRun>) {
    for index in missing_disks(run) {
        let disk = Rc::clone(&run.disks.borrow()[index]);
        if disk.is_absent() || run.barred.borrow().contains(&index) {
            continue;
        }
        run.doing.borrow_mut().insert(REJOIN_TASK, "operator: rejoin".to_owned());
        // It may fail again on the way; then it stays out until the next time.
        match run.during(Work::Rejoin, run.spaces.members().rejoin(disk.attach(&run.world))).await {
            Ok(_) => {
                run.joined.set(true);
                run.unnoticed.set(false);
                run.note(|tally| tally.rejoins += 1);
                run.is_back(index);
                learn_members(run);
            }
            Err(error) => {
                run.trouble(format!("rejoining disk {index}: {}", in_one_line(&error)));
                let is_unknown = match &error {
                    SpaceError::Pool(PoolError::NoSuchDisk { .. }) => true,
                    // What one of its labels was cannot be told, and there is no other.
                    SpaceError::Pool(PoolError::Label { source, .. }) => {
                        matches!(source.source, DeviceError::Medium { .. })
                    }
                    _ => false,
                };
                if is_unknown {
                    declare_lost(run, index);
                }
            }
        }
        run.doing.borrow_mut().remove(&REJOIN_TASK);
    }
}

/// A disk that lied about flushes may have lost all of its labels with its cache, and one that is as it was before may be as it
/// was before it was added. Nobody knows it then, and whoever looks after the pool replaces it, and buys a disk for that if there is
/// none. One that never did the one or the other has no such excuse.
fn declare_lost(run: &DaemonRun, index: usize) {
    let faults = run.disks.borrow()[index].fault_counters();
    let is_excused =
        [FaultKind::DroppedFlush, FaultKind::ReturnedOld].iter().any(|kind| faults.of(*kind) > 0);
    if is_excused && !run.is_leaving(index) && !want_replaced(run, index) {
        let number = run.disks.borrow().len();
        let profile = run.disks.borrow()[index].profile().clone();
        let bought = run.world.add_disk(&format!("bought{number}"), profile);
        run.disks.borrow_mut().push(bought);
        run.spares.borrow_mut().push(number);
        want_replaced(run, index);
    }
}

/// Asks for a disk to be replaced by the next spare one, if there is one; else by one that has left, which is as good as new.
pub fn want_replaced(run: &super::daemon_run::Course, index: usize) -> bool {
    let spare = run.spares.borrow_mut().pop().or_else(|| run.removals.borrow_mut().take_evicted(&run.disks));
    if let Some(new) = spare {
        run.wanted.borrow_mut().push((index, new));
    }
    spare.is_some()
}

/// Members whose disks the pool does without.
pub fn missing_disks(run: &DaemonRun) -> Vec<usize> {
    let here: BTreeSet<String> = present(run).map(|disk| disk.name()).collect();
    let disks = run.disks.borrow();
    let members = run.members.borrow();
    members.iter().copied().filter(|index| !here.contains(disks[*index].name())).collect()
}

fn present(run: &DaemonRun) -> impl Iterator<Item = Rc<Disk>> {
    run.spaces.pool().disks().into_iter().filter(|disk| disk.is_present())
}

/// The member that a disk is.
pub fn member(run: &DaemonRun, index: usize) -> Option<Rc<Disk>> {
    let id = run.ids.borrow().get(&index).copied()?;
    run.spaces.pool().disks().into_iter().find(|disk| disk.id() == id)
}

/// Notes who is a member: by identity, because the name of one that is away says nothing, and numbers are given again.
pub fn learn_members(run: &DaemonRun) {
    for disk in present(run) {
        let index = run.disks.borrow().iter().position(|other| other.name() == disk.name());
        let Some(index) = index else { continue };
        run.ids.borrow_mut().insert(index, disk.id());
        if !run.members.borrow().contains(&index) {
            run.members.borrow_mut().push(index);
        }
        // Whoever asked for it has it.
        let begun = run.wanted.borrow().iter().find(|(_, new)| *new == index).copied();
        run.wanted.borrow_mut().retain(|(_, new)| *new != index);
        run.leaving.borrow_mut().extend(begun.map(|(old, _)| old));
        run.removals.borrow_mut().added.retain(|added| *added != index);
    }
    let is_struck = |index: &usize| run.ids.borrow().contains_key(index) && member(run, *index).is_none();
    let evicted: Vec<usize> = run.members.borrow().iter().copied().filter(is_struck).collect();
    for index in evicted {
        run.members.borrow_mut().retain(|other| *other != index);
        let has_left = !run.leaving.borrow_mut().remove(&index) && run.has_left(index);
        run.absent.borrow_mut().remove(&index);
        if !has_left {
            run.note(|tally| tally.replacements += 1);
        }
    }
}

pub async fn is_whole(run: &DaemonRun) -> Result<bool, String> {
    let stale = run.spaces.members().stale_rows().await.map_err(|error| in_one_line(&error))?;
    let away = run.members.borrow().iter().any(|index| run.disks.borrow()[*index].is_absent());
    Ok(stale.is_empty()
        && !away
        && !run.unnoticed.get()
        && run.barred.borrow().is_empty()
        && run.absent.borrow().is_empty()
        && missing_disks(run).is_empty()
        && run.wanted.borrow().is_empty()
        && run.leaving.borrow().is_empty()
        && !run.is_removing())
}

/// Begins the replacements that are wanted. What fails is tried again later.
async fn begin_replacements(run: &Rc<DaemonRun>) {
    let wanted = run.wanted.borrow().clone();
    for (old, new) in wanted {
        let Some(old_disk) = member(run, old) else {
            // It was struck before.
            run.wanted.borrow_mut().retain(|(_, other)| *other != new);
            continue;
        };
        let disk = Rc::clone(&run.disks.borrow()[new]);
        let device = disk.attach(&run.world);
        let pool = run.spaces.pool();
        // Whoever was taken in, and went before anybody was told, is taken back in and not made again.
        if disk.is_absent() || pool.membership().absent_member(device.as_ref()).await.is_ok() {
            if !run.members.borrow().contains(&new) {
                run.members.borrow_mut().push(new);
            }
            continue;
        }
        if pool.members().replacements().iter().any(|(_, by)| by.id() == old_disk.id()) {
            run.note(|tally| tally.saw(Rare::ReplacementReplaced));
        }
        match pool.membership().add_instead_of(&old_disk, device, &[disk.name().to_owned()]).await {
            Ok(_) => drop(run.shadows.borrow_mut().insert(old, new)),
            Err(error) => {
                let text = in_one_line(&error);
                run.trouble(format!("replacing disk {old}: {text}"));
                if text.contains("reading the label") && text.contains("the medium failed") {
                    write_over(run, new).await;
                }
            }
        }
        learn_members(run);
    }
}

/// A disk whose labels cannot be read is refused, and would be for ever: who wants it all the same writes over what cannot be read,
/// and the disk puts other sectors in the place of these.
async fn write_over(run: &Rc<DaemonRun>, index: usize) {
    let device = run.disks.borrow()[index].attach(&run.world);
    let pool = run.spaces.pool();
    if let Err(error) = dolmen_disk::wipe(pool.seams(), device.as_ref(), pool.epoch().number).await {
        run.trouble(format!("writing over disk {index}: {}", in_one_line(&error)));
    }
}

/// Brings replacements to their end that were begun, by this daemon or by one before it.
async fn finish_replacements(run: &Rc<DaemonRun>) {
    for (old, new) in run.spaces.pool().members().replacements() {
        if !run.replaced.borrow_mut().insert(old.id()) {
            run.note(|tally| tally.saw(Rare::ReplacementResumed));
        }
        let progress = Progress::default();
        let done =
            run.during(Work::Replacement, run.spaces.moves().finish_replacing(&old, &new, &progress)).await;
        match done {
            Ok(true) => {}
            Ok(false) => run.trouble(format!("slabs stay on {}", old.slot())),
            Err(error) => run.trouble(format!("moving from {}: {}", old.slot(), in_one_line(&error))),
        }
        learn_members(run);
    }
}

/// Everything is here, nothing is stale, every copy of every block is right.
pub async fn make_whole(run: &Rc<DaemonRun>) -> Result<(), String> {
    for _ in 0..8 {
        take_in(run).await;
        tend(run).await?;
        if is_whole(run).await? {
            break;
        }
    }
    if !is_whole(run).await? {
        let stale = run.spaces.members().stale_rows().await.map_err(|error| in_one_line(&error))?;
        let missing = missing_disks(run);
        return Err(format!(
            "not whole in the end: stale {stale:?}, missing {missing:?}, wanted {:?}, leaving {:?}, replacing {:?}, {:?}",
            run.wanted.borrow(),
            run.leaving.borrow(),
            run.spaces.pool().members().replacements(),
            run.removals.borrow()
        ));
    }
    end_conversions(run).await?;
    end_evening(run).await?;
    end_settings(run).await?;
    run.spaces.pool().voter_tender().tend().await.map_err(|error| in_one_line(&error))
}
