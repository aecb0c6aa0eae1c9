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
use super::daemon_run::DaemonRun;
use super::operator::{member, missing_disks, want_replaced};
use super::tally::{Rare, Work};

/// Something that goes on beside other things.
type Task<'a> = Pin<Box<dyn Future<Output = Result<(), String>> + 'a>>;

/// Stirs until the clients have gone.
pub async fn unrest(run: Rc<DaemonRun>, mut random: Random) {
    let longest_us = 1000 << random.below(6);
    while run.is_served() {
        pause(&run, &mut random, longest_us).await;
        if run.is_served()
            && let Err(cause) = scene(&run, &mut random).await
        {
            run.fail(cause);
        }
    }
    run.helper_done();
}

async fn pause(run: &DaemonRun, random: &mut Random, longest_us: u64) {
    sleep(run.clock.as_ref(), Duration::from_micros(random.below(longest_us))).await;
}

/// A few things at once, each after a while of its own.
async fn scene(run: &Rc<DaemonRun>, random: &mut Random) -> Result<(), String> {
    let mut draws = || Random::derived(random.next_u64(), 1);
    let mut own = draws();
    if own.coin() {
        for _ in 0..=own.below(2) {
            let disks = run.disks.borrow();
            disks[own.index(disks.len())].arm(FaultKind::SlowPeriod);
        }
    }
    let mut tasks: Vec<Task<'_>> = Vec::new();
    match own.below(8) {
        0..=3 => tasks.push(Box::pin(checkpoints(run, draws()))),
        4 => tasks.push(Box::pin(resync(run))),
        5 => tasks.push(Box::pin(replace_again(run))),
        6 => tasks.push(Box::pin(flush(run))),
        _ => {}
    }
    if own.below(3) > 0 {
        tasks.push(Box::pin(come_and_go(run, draws())));
    }
    if own.below(4) == 0 {
        tasks.push(Box::pin(hold_the_map(run, draws())));
    }
    if own.below(4) == 0 {
        tasks.push(Box::pin(remove(run, draws())));
    }
    if own.below(12) == 0 {
        tasks.push(Box::pin(chain(run, draws())));
    }
    join_all(tasks).await.into_iter().collect()
}

/// Checkpoints, one behind the other.
async fn checkpoints(run: &Rc<DaemonRun>, mut random: Random) -> Result<(), String> {
    for _ in 0..=random.below(3) {
        let pool = Rc::clone(run.spaces.pool());
        let done = run.during(Work::Checkpoint, pool.checkpoint()).await;
        done.map_err(|error| format!("a checkpoint: {}", in_one_line(&error)))?;
        if random.coin() {
            pause(run, &mut random, 2000).await;
        }
    }
    Ok(())
}

/// A resync, perhaps beside that of the operator.
async fn resync(run: &Rc<DaemonRun>) -> Result<(), String> {
    let progress = Progress::default();
    if let Err(error) = run.during(Work::Resync, run.spaces.members().resync(&progress)).await {
        run.trouble(format!("resync: {}", in_one_line(&error)));
    }
    Ok(())
}

/// Asks for replacements that are under way once more.
async fn replace_again(run: &Rc<DaemonRun>) -> Result<(), String> {
    let is_at_it = run.at_work.borrow().values().any(|work| *work == Work::Replacement);
    for (old, new) in run.spaces.pool().members().replacements() {
        if is_at_it {
            run.note(|tally| tally.saw(Rare::ReplacementTwice));
        }
        let progress = Progress::default();
        if let Err(error) = run.spaces.moves().finish_replacing(&old, &new, &progress).await {
            run.trouble(format!("replacing once more: {}", in_one_line(&error)));
        }
    }
    Ok(())
}

async fn flush(run: &Rc<DaemonRun>) -> Result<(), String> {
    if let Err(error) = run.spaces.flush().await {
        run.trouble(format!("flushing: {}", in_one_line(&error)));
    }
    Ok(())
}

async fn hold_the_map(run: &Rc<DaemonRun>, mut random: Random) -> Result<(), String> {
    pause(run, &mut random, 3000).await;
    let change = run.spaces.pool().change(Purpose::Release).await;
    run.note(|tally| tally.saw(Rare::MapHeld));
    let longest_us = 1000 << random.below(6);
    pause(run, &mut random, longest_us).await;
    drop(change);
    Ok(())
}

/// A disk goes and comes back, perhaps twice; with luck, another one goes meanwhile.
async fn come_and_go(run: &Rc<DaemonRun>, mut random: Random) -> Result<(), String> {
    for _ in 0..=random.below(2) {
        let longest_us = 200 << random.below(9);
        pause(run, &mut random, longest_us).await;
        let away = missing_disks(run);
        let may_leave = who_may_leave(run, &away, &mut random).filter(|index| !run.votes_alone(*index));
        let Some(index) = may_leave else { continue };
        let is_barred = random.below(3) == 0;
        if is_barred {
            run.barred.borrow_mut().insert(index);
        }
        leave(run, index, &away, &mut random).await?;
        if !is_barred && random.below(8) == 0 && !run.is_leaving(index) {
            // Just when it comes back.
            want_replaced(run, index);
        }
        if is_barred {
            let longest_us = 1000 << random.below(7);
            pause(run, &mut random, longest_us).await;
            run.barred.borrow_mut().remove(&index);
        }
    }
    Ok(())
}

/// A member that may leave now: no more disks are away at once than should be survived.
fn who_may_leave(run: &DaemonRun, away: &[usize], random: &mut Random) -> Option<usize> {
    let members: Vec<usize> =
        run.members.borrow().iter().copied().filter(|index| !away.contains(index)).collect();
    let any = members.get(random.index(members.len().max(1))).copied();
    if members.len() < 3 {
        return None;
    }
    if run.pairs || !run.redundant {
        return any.filter(|_| away.len() < 2);
    }
    let replacements = run.spaces.pool().members().replacements();
    let victim = run.victim.get();
    let newcomer = any.filter(|index| {
        let id = run.ids.borrow().get(index).copied();
        let old = replacements.iter().find(|(_, new)| Some(new.id()) == id);
        old.is_some_and(|(old, _)| run.ids.borrow().get(&victim) == Some(&old.id()))
    });
    if newcomer.is_some() && random.coin() && away.iter().all(|index| *index == victim) {
        return newcomer;
    }
    members.contains(&victim).then_some(victim).filter(|_| away.is_empty())
}

async fn leave(run: &Rc<DaemonRun>, index: usize, away: &[usize], random: &mut Random) -> Result<(), String> {
    let disk = Rc::clone(&run.disks.borrow()[index]);
    let Some(known) = member(run, index) else { return Ok(()) };
    let loses_cache = !run.pairs || (away.is_empty() && !run.lost.get());
    run.leaves(index);
    if loses_cache && random.below(3) == 0 {
        run.lost_with_cache();
        disk.vanish();
        let longest_us = 100 << random.below(8);
        pause(run, random, longest_us).await;
        disk.come_back();
        return Ok(());
    }
    let left = run.spaces.pool().exclude(known.slot(), ExcludeReason::Asked).await;
    left.map_err(|error| format!("letting disk {index} go: {}", in_one_line(&error)))
}

/// Something is deleted, discarded or made smaller.
async fn remove(run: &Rc<DaemonRun>, mut random: Random) -> Result<(), String> {
    let longest_us = 500 << random.below(6);
    pause(run, &mut random, longest_us).await;
    let Some((uid, space)) = run.pick(&mut random) else { return Ok(()) };
    let is_at_work = run.is_at_work();
    let met = match random.below(6) {
        0 if run.oracle.borrow().models.len() > 1 => {
            delete(run, uid, &space).await?;
            Rare::DeletedAtWork
        }
        0..=2 => {
            discard_rows(run, uid, &space, &mut random).await?;
            Rare::DiscardedAtWork
        }
        _ => {
            if !shrink(run, uid, &space, &mut random).await? {
                return Ok(());
            }
            Rare::ShrunkAtWork
        }
    };
    if is_at_work {
        run.note(|tally| tally.saw(met));
    }
    Ok(())
}

/// A disk is to be replaced: the one that suffers, or one that is just taking the place of another.
async fn chain(run: &Rc<DaemonRun>, mut random: Random) -> Result<(), String> {
    pause(run, &mut random, 2000).await;
    let replacements = run.spaces.pool().members().replacements();
    let index_of = |id| run.ids.borrow().iter().find(|(_, other)| **other == id).map(|(index, _)| *index);
    let newcomer = replacements.first().and_then(|(_, new)| index_of(new.id()));
    let index = match newcomer {
        Some(newcomer) => newcomer,
        None if run.redundant && !run.pairs => run.victim.get(),
        None => {
            let members = run.members.borrow();
            members[random.index(members.len())]
        }
    };
    if run.members.borrow().contains(&index) && !run.is_leaving(index) {
        want_replaced(run, index);
    }
    Ok(())
}
