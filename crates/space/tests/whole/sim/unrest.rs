//! The unrest: members that leave and come back, replacements of replacements, spaces that are deleted, discarded and made
//! smaller, all within write-backs, resyncs and replacements that are under way.
//!
//! - A disk leaves by being asked to, with all that it was given, or by losing its power, with its cache.
//! - Whatever redundancy has to survive befalls one disk at a time: the one that suffers, or one that takes its place and
//!   has nothing of its own yet. Where two may be away at once (`pairs`), nothing else fails.
//! - Somebody else may be at a change of the map, so that who wants to say something there waits.

use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

use dolmen_block_io::sleep;
use dolmen_block_io::sync::join_all;
use dolmen_causes::in_one_line;
use dolmen_pool::{ExcludeReason, Purpose};
use dolmen_sim::{FaultKind, Random};
use dolmen_space::Progress;

use super::client::{delete, discard_rows, shrink};
use super::life::Life;
use super::operator::{member, missing_disks, want_replaced};
use super::tally::{Rare, Work};

/// Something that goes on beside other things.
type Task<'a> = Pin<Box<dyn Future<Output = Result<(), String>> + 'a>>;

/// Stirs until the clients have gone.
pub async fn unrest(life: Rc<Life>, mut random: Random) {
    let longest_us = 1000 << random.below(6);
    while life.is_served() {
        pause(&life, &mut random, longest_us).await;
        if life.is_served()
            && let Err(cause) = scene(&life, &mut random).await
        {
            life.fail(cause);
        }
    }
    life.helper_done();
}

async fn pause(life: &Life, random: &mut Random, longest_us: u64) {
    sleep(life.clock.as_ref(), Duration::from_micros(random.below(longest_us))).await;
}

/// A few things at once, each after a while of its own.
async fn scene(life: &Rc<Life>, random: &mut Random) -> Result<(), String> {
    let mut draws = || Random::derived(random.next_u64(), 1);
    let mut own = draws();
    if own.coin() {
        for _ in 0..=own.below(2) {
            let disks = life.disks.borrow();
            disks[own.index(disks.len())].arm(FaultKind::SlowStretch);
        }
    }
    let mut tasks: Vec<Task<'_>> = Vec::new();
    match own.below(8) {
        0..=3 => tasks.push(Box::pin(checkpoints(life, draws()))),
        4 => tasks.push(Box::pin(resync(life))),
        5 => tasks.push(Box::pin(replace_again(life))),
        6 => tasks.push(Box::pin(flush(life))),
        _ => {}
    }
    if own.below(3) > 0 {
        tasks.push(Box::pin(come_and_go(life, draws())));
    }
    if own.below(4) == 0 {
        tasks.push(Box::pin(hold_the_map(life, draws())));
    }
    if own.below(4) == 0 {
        tasks.push(Box::pin(remove(life, draws())));
    }
    if own.below(12) == 0 {
        tasks.push(Box::pin(chain(life, draws())));
    }
    join_all(tasks).await.into_iter().collect()
}

/// Checkpoints, one behind the other.
async fn checkpoints(life: &Rc<Life>, mut random: Random) -> Result<(), String> {
    for _ in 0..=random.below(3) {
        let pool = Rc::clone(life.spaces.pool());
        let done = life.during(Work::Checkpoint, pool.checkpoint()).await;
        done.map_err(|error| format!("a checkpoint: {}", in_one_line(&error)))?;
        if random.coin() {
            pause(life, &mut random, 2000).await;
        }
    }
    Ok(())
}

/// A resync, perhaps beside that of the operator.
async fn resync(life: &Rc<Life>) -> Result<(), String> {
    let progress = Progress::default();
    if let Err(error) = life.during(Work::Resync, life.spaces.resync(&progress)).await {
        life.trouble(format!("resync: {}", in_one_line(&error)));
    }
    Ok(())
}

/// Asks for replacements that are under way once more.
async fn replace_again(life: &Rc<Life>) -> Result<(), String> {
    let is_at_it = life.at_work.borrow().values().any(|work| *work == Work::Replacement);
    for (old, new) in life.spaces.pool().replacements() {
        if is_at_it {
            life.note(|tally| tally.saw(Rare::ReplacementTwice));
        }
        let progress = Progress::default();
        if let Err(error) = life.spaces.finish_replacing(&old, &new, &progress).await {
            life.trouble(format!("replacing once more: {}", in_one_line(&error)));
        }
    }
    Ok(())
}

async fn flush(life: &Rc<Life>) -> Result<(), String> {
    if let Err(error) = life.spaces.flush().await {
        life.trouble(format!("flushing: {}", in_one_line(&error)));
    }
    Ok(())
}

async fn hold_the_map(life: &Rc<Life>, mut random: Random) -> Result<(), String> {
    pause(life, &mut random, 3000).await;
    let change = life.spaces.pool().change(Purpose::Release).await;
    life.note(|tally| tally.saw(Rare::MapHeld));
    let longest_us = 1000 << random.below(6);
    pause(life, &mut random, longest_us).await;
    drop(change);
    Ok(())
}

/// A disk goes and comes back, perhaps twice; with luck, another one goes meanwhile.
async fn come_and_go(life: &Rc<Life>, mut random: Random) -> Result<(), String> {
    for _ in 0..=random.below(2) {
        let longest_us = 200 << random.below(9);
        pause(life, &mut random, longest_us).await;
        let away = missing_disks(life);
        let may_leave = who_may_leave(life, &away, &mut random).filter(|index| !life.votes_alone(*index));
        let Some(index) = may_leave else { continue };
        let is_barred = random.below(3) == 0;
        if is_barred {
            life.barred.borrow_mut().insert(index);
        }
        leave(life, index, &away, &mut random).await?;
        if !is_barred && random.below(8) == 0 && !life.is_leaving(index) {
            // Just when it comes back.
            want_replaced(life, index);
        }
        if is_barred {
            let longest_us = 1000 << random.below(7);
            pause(life, &mut random, longest_us).await;
            life.barred.borrow_mut().remove(&index);
        }
    }
    Ok(())
}

/// A member that may leave now: no more disks are away at once than should be survived.
fn who_may_leave(life: &Life, away: &[usize], random: &mut Random) -> Option<usize> {
    let members: Vec<usize> =
        life.members.borrow().iter().copied().filter(|index| !away.contains(index)).collect();
    let any = members.get(random.index(members.len().max(1))).copied();
    if members.len() < 3 {
        return None;
    }
    if life.pairs || !life.redundant {
        return any.filter(|_| away.len() < 2);
    }
    let replacements = life.spaces.pool().replacements();
    let victim = life.victim.get();
    let newcomer = any.filter(|index| {
        let id = life.ids.borrow().get(index).copied();
        let old = replacements.iter().find(|(_, new)| Some(new.id()) == id);
        old.is_some_and(|(old, _)| life.ids.borrow().get(&victim) == Some(&old.id()))
    });
    if newcomer.is_some() && random.coin() && away.iter().all(|index| *index == victim) {
        return newcomer;
    }
    members.contains(&victim).then_some(victim).filter(|_| away.is_empty())
}

async fn leave(life: &Rc<Life>, index: usize, away: &[usize], random: &mut Random) -> Result<(), String> {
    let disk = Rc::clone(&life.disks.borrow()[index]);
    let Some(known) = member(life, index) else { return Ok(()) };
    let loses_cache = !life.pairs || (away.is_empty() && !life.lost.get());
    life.leaves(index);
    if loses_cache && random.below(3) == 0 {
        life.lost_with_cache();
        disk.vanish();
        let longest_us = 100 << random.below(8);
        pause(life, random, longest_us).await;
        disk.come_back();
        return Ok(());
    }
    let left = life.spaces.pool().exclude(known.slot(), ExcludeReason::Asked).await;
    left.map_err(|error| format!("letting disk {index} go: {}", in_one_line(&error)))
}

/// Something is deleted, discarded or made smaller.
async fn remove(life: &Rc<Life>, mut random: Random) -> Result<(), String> {
    let longest_us = 500 << random.below(6);
    pause(life, &mut random, longest_us).await;
    let Some((uid, space)) = life.pick(&mut random) else { return Ok(()) };
    let is_at_work = life.is_at_work();
    let met = match random.below(6) {
        0 if life.oracle.borrow().models.len() > 1 => {
            delete(life, uid, &space).await?;
            Rare::DeletedAtWork
        }
        0..=2 => {
            discard_rows(life, uid, &space, &mut random).await?;
            Rare::DiscardedAtWork
        }
        _ => {
            if !shrink(life, uid, &space, &mut random).await? {
                return Ok(());
            }
            Rare::ShrunkAtWork
        }
    };
    if is_at_work {
        life.note(|tally| tally.saw(met));
    }
    Ok(())
}

/// A disk is to be replaced: the one that suffers, or one that is just taking the place of another.
async fn chain(life: &Rc<Life>, mut random: Random) -> Result<(), String> {
    pause(life, &mut random, 2000).await;
    let replacements = life.spaces.pool().replacements();
    let index_of = |id| life.ids.borrow().iter().find(|(_, other)| **other == id).map(|(index, _)| *index);
    let newcomer = replacements.first().and_then(|(_, new)| index_of(new.id()));
    let index = match newcomer {
        Some(newcomer) => newcomer,
        None if life.redundant && !life.pairs => life.victim.get(),
        None => {
            let members = life.members.borrow();
            members[random.index(members.len())]
        }
    };
    if life.members.borrow().contains(&index) && !life.is_leaving(index) {
        want_replaced(life, index);
    }
    Ok(())
}
