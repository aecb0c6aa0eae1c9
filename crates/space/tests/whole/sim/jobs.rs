//! Jobs that even out and verify, under clients and faults: somebody holds them, lets them go on, and ends them in their midst.
//!
//! As the daemon does it, one is at work at a time, beside disks that are taken back in and brought up to date.

use std::convert::Infallible;
use std::rc::Rc;
use std::time::Duration;

use dolmen_block_io::sleep;
use dolmen_block_io::sync::{Either, either};
use dolmen_causes::in_one_line;
use dolmen_sim::Random;
use dolmen_space::{Emptied, Progress, SpaceError};

use super::life::Life;
use super::tally::{Rare, Work};

/// Now and then evens out what is where, or verifies everything.
pub async fn tend_jobs(life: &Rc<Life>) {
    if !life.evens {
        return;
    }
    let mut draws = Random::derived(life.seed, 913 ^ life.clock.now().0);
    match draws.below(6) {
        0 | 1 => even_out(life, draws).await,
        2 => scrub(life, draws).await,
        3 => rebuild(life, draws).await,
        _ => {}
    }
}

async fn even_out(life: &Rc<Life>, draws: Random) {
    let progress = Progress::default();
    let job = life.during(Work::Rebalance, life.spaces.rebalance(&progress));
    match whims_beside(life, &progress, draws, job).await {
        Ok(_) if progress.done.get() > 0 => life.note(|tally| tally.rebalances += 1),
        Ok(_) => {}
        Err(error) => life.trouble(format!("a rebalance: {}", in_one_line(&error))),
    }
}

async fn scrub(life: &Rc<Life>, draws: Random) {
    let (progress, before) = (Progress::default(), life.tally.get().operations);
    let job = life.during(Work::Scrub, life.spaces.verify(&progress));
    match whims_beside(life, &progress, draws, job).await {
        Ok(_) if life.tally.get().operations > before => life.note(|tally| tally.saw(Rare::ScrubUnderLoad)),
        Ok(_) => {}
        Err(error) => life.trouble(format!("a scrub: {}", in_one_line(&error))),
    }
}

/// A disk is away, and some spaces need not wait for it.
async fn rebuild(life: &Rc<Life>, draws: Random) {
    let pool = life.spaces.pool();
    let away = pool.disks().into_iter().find(|disk| !disk.is_present() && pool.is_active(disk));
    let Some(disk) = away else { return };
    let spaces = match life.spaces.rebuildable(&disk, &[]).await {
        Ok(spaces) if spaces.is_empty() => return,
        Ok(spaces) => spaces,
        Err(error) => return life.trouble(format!("what can be rebuilt: {}", in_one_line(&error))),
    };
    let progress = Progress::default();
    let rebuilt = life.spaces.rebuild_without(&disk, &spaces, || true, &progress);
    let job = life.during(Work::Emptying, rebuilt);
    match whims_beside(life, &progress, draws, job).await {
        Ok(Emptied::All) => life.note(|tally| tally.saw(Rare::RebuiltWithout)),
        Ok(Emptied::AllBut(_) | Emptied::CutShort) => {}
        Err(error) => life.trouble(format!("rebuilding without {}: {}", disk.slot(), in_one_line(&error))),
    }
}

/// A job, and somebody who does not know what to want of it.
async fn whims_beside<T>(
    life: &Life,
    progress: &Progress,
    draws: Random,
    job: impl Future<Output = Result<T, SpaceError>>,
) -> Result<T, SpaceError> {
    match either(job, whims(life, progress, draws)).await {
        Either::First(done) => done,
        Either::Second(never) => match never {},
    }
}

/// Holds a job and lets it go on, again and again; half of the time ends it once.
async fn whims(life: &Life, progress: &Progress, mut draws: Random) -> Infallible {
    let clock = life.clock.as_ref();
    let longest_us = 500 << draws.below(6);
    let pause = |draws: &mut Random| Duration::from_micros(draws.below(longest_us));
    let holds = draws.below(3);
    for _ in 0..holds {
        sleep(clock, pause(&mut draws)).await;
        progress.hold();
        if let Either::First(()) = either(progress.stands(), sleep(clock, pause(&mut draws))).await {
            life.note(|tally| tally.saw(Rare::JobHeld));
            sleep(clock, pause(&mut draws)).await;
        }
        progress.release();
    }
    if draws.coin() {
        sleep(clock, pause(&mut draws)).await;
        progress.stop();
        life.note(|tally| tally.saw(Rare::JobStopped));
    }
    std::future::pending().await
}

/// With everything here, what is where can be evened out.
pub async fn end_evening(life: &Rc<Life>) -> Result<(), String> {
    if !life.evens {
        return Ok(());
    }
    let done = life.spaces.rebalance(&Progress::default()).await;
    done.map(drop).map_err(|error| format!("a rebalance in the end: {}", in_one_line(&error)))
}
