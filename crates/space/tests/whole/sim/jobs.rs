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

use super::daemon_run::DaemonRun;
use super::tally::{Rare, Work};

/// Now and then evens out what is where, or verifies everything.
pub async fn tend_jobs(run: &Rc<DaemonRun>) {
    if !run.evens {
        return;
    }
    let mut draws = Random::derived(run.seed, 913 ^ run.clock.now().0);
    match draws.below(6) {
        0 | 1 => even_out(run, draws).await,
        2 => scrub(run, draws).await,
        3 => rebuild(run, draws).await,
        _ => {}
    }
}

async fn even_out(run: &Rc<DaemonRun>, draws: Random) {
    let progress = Progress::default();
    let job = run.during(Work::Rebalance, run.spaces.moves().rebalance(&progress));
    match job_with_whims(run, &progress, draws, job).await {
        Ok(_) if progress.done.get() > 0 => run.note(|tally| tally.rebalances += 1),
        Ok(_) => {}
        Err(error) => run.trouble(format!("a rebalance: {}", in_one_line(&error))),
    }
}

async fn scrub(run: &Rc<DaemonRun>, draws: Random) {
    let (progress, before) = (Progress::default(), run.tally.get().operations);
    let job = run.during(Work::Scrub, run.spaces.scrubs().verify(&progress));
    match job_with_whims(run, &progress, draws, job).await {
        Ok(_) if run.tally.get().operations > before => run.note(|tally| tally.saw(Rare::ScrubUnderLoad)),
        Ok(_) => {}
        Err(error) => run.trouble(format!("a scrub: {}", in_one_line(&error))),
    }
}

/// A disk is away, and some spaces need not wait for it.
async fn rebuild(run: &Rc<DaemonRun>, draws: Random) {
    let pool = run.spaces.pool();
    let away = pool.disks().into_iter().find(|disk| !disk.is_present() && pool.members().is_active(disk));
    let Some(disk) = away else { return };
    let spaces = match run.spaces.moves().rebuildable(&disk, &[]).await {
        Ok(spaces) if spaces.is_empty() => return,
        Ok(spaces) => spaces,
        Err(error) => return run.trouble(format!("what can be rebuilt: {}", in_one_line(&error))),
    };
    let progress = Progress::default();
    let rebuilt = run.spaces.moves().rebuild_without(&disk, &spaces, || true, &progress);
    let job = run.during(Work::Emptying, rebuilt);
    match job_with_whims(run, &progress, draws, job).await {
        Ok(Emptied::All) => run.note(|tally| tally.saw(Rare::RebuiltWithout)),
        Ok(Emptied::AllBut(_) | Emptied::CutShort) => {}
        Err(error) => run.trouble(format!("rebuilding without {}: {}", disk.slot(), in_one_line(&error))),
    }
}

/// A job, and somebody who does not know what to want of it.
async fn job_with_whims<T>(
    run: &DaemonRun,
    progress: &Progress,
    draws: Random,
    job: impl Future<Output = Result<T, SpaceError>>,
) -> Result<T, SpaceError> {
    match either(job, whims(run, progress, draws)).await {
        Either::First(done) => done,
        Either::Second(never) => match never {},
    }
}

/// Holds a job and lets it go on, again and again; half of the time ends it once.
async fn whims(run: &DaemonRun, progress: &Progress, mut draws: Random) -> Infallible {
    let clock = run.clock.as_ref();
    let longest_us = 500 << draws.below(6);
    let pause = |draws: &mut Random| Duration::from_micros(draws.below(longest_us));
    let holds = draws.below(3);
    for _ in 0..holds {
        sleep(clock, pause(&mut draws)).await;
        progress.hold();
        if let Either::First(()) = either(progress.halted(), sleep(clock, pause(&mut draws))).await {
            run.note(|tally| tally.saw(Rare::JobHeld));
            sleep(clock, pause(&mut draws)).await;
        }
        progress.release();
    }
    if draws.coin() {
        sleep(clock, pause(&mut draws)).await;
        progress.stop();
        run.note(|tally| tally.saw(Rare::JobStopped));
    }
    std::future::pending().await
}

/// With everything here, what is where can be evened out.
pub async fn end_evening(run: &Rc<DaemonRun>) -> Result<(), String> {
    if !run.evens {
        return Ok(());
    }
    let done = run.spaces.moves().rebalance(&Progress::default()).await;
    done.map(drop).map_err(|error| format!("a rebalance in the end: {}", in_one_line(&error)))
}
