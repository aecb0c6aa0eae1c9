//! Conversions: spaces get another layout under clients and faults, are turned round, and go on in the next daemon.

use std::rc::Rc;

use dolmen_causes::in_one_line;
use dolmen_pool::PoolError;
use dolmen_sim::Random;
use dolmen_space::{Integrity, Layout, Progress, Resiliency, Space, SpaceError};
use dolmen_units::Bytes;

use super::daemon_run::DaemonRun;
use super::tally::{Rare, Work};

/// Converts spaces on the way to another layout, and now and then begins with one.
pub async fn tend_conversions(run: &Rc<DaemonRun>) -> Result<(), String> {
    if !run.converts {
        return Ok(());
    }
    let mut draws = Random::derived(run.seed, 911 ^ run.clock.now().0);
    for space in run.spaces.list() {
        let before = space.layout_before();
        match before {
            Some(_) => run.note(|tally| tally.saw(Rare::ConversionResumed)),
            None if draws.below(4) > 0 => continue,
            None => {}
        }
        let to = match before {
            Some(before) if draws.below(4) == 0 => {
                run.note(|tally| tally.saw(Rare::ConversionReversed));
                before
            }
            Some(_) => space.spec().layout(),
            None => drawn(run, &space, &mut draws),
        };
        survive_less(run, &space, to);
        if let Err(error) = run.spaces.conversions().begin_conversion(&space, to).await {
            if matches!(error, SpaceError::NoRoomToConvert { .. }) {
                run.note(|tally| tally.saw(Rare::ConversionRefused));
            }
            run.trouble(format!("beginning to convert {}: {}", space.name(), in_one_line(&error)));
            continue;
        }
        convert(run, &space).await;
    }
    Ok(())
}

/// From here on a space may survive the loss of fewer disks than the one that was made, and nobody may expect more.
fn survive_less(run: &DaemonRun, space: &Space, to: Layout) {
    let mut oracle = run.oracle.borrow_mut();
    let name = space.name();
    for model in oracle.models.values_mut().filter(|model| model.name == name.as_str()) {
        model.copies = model.copies.min(to.resiliency.redundancy() + 1);
    }
}

/// Goes on with a conversion; whether it has come to its end.
async fn convert(run: &Rc<DaemonRun>, space: &Space) -> bool {
    let progress = Progress::default();
    let before = run.spaces.counters().converted_rows;
    let done = run.during(Work::Conversion, run.spaces.conversions().convert(space, &progress)).await;
    if run.spaces.counters().converted_rows > before {
        run.note(|tally| tally.conversions += 1);
    }
    match done {
        Ok(true) => return true,
        Ok(false) => run.note(|tally| tally.saw(Rare::ConversionWaited)),
        Err(error) => run.trouble(format!("converting {}: {}", space.name(), in_one_line(&error))),
    }
    false
}

/// With everything here, conversions come to their end, unless there is no room.
pub async fn end_conversions(run: &Rc<DaemonRun>) -> Result<(), String> {
    for space in run.spaces.list().into_iter().filter(|space| space.layout_before().is_some()) {
        match run.spaces.conversions().convert(&space, &Progress::default()).await {
            Ok(true) => {}
            Ok(false) if !run.redundant => {}
            Err(SpaceError::Pool(PoolError::NoSpace { .. }) | SpaceError::NoSpaceBelow { .. }) => {}
            other => return Err(format!("converting {} does not end: {other:?}", space.name())),
        }
    }
    Ok(())
}

/// A layout that the disks allow.
fn drawn(run: &DaemonRun, space: &Space, draws: &mut Random) -> Layout {
    let disks = run.members.borrow().len() as u64;
    let least = if run.redundant { 2 } else { 0 };
    let resiliency = match least + draws.below(6 - least) {
        0 => Resiliency::Simple,
        1 => Resiliency::Span,
        2 | 3 => Resiliency::Mirror { copies: (2 + draws.below(2)) as u8 },
        _ => Resiliency::Parity { parity: 1 + u8::from(disks > 3 && draws.coin()) },
    };
    let (copies, parity) = (u64::from(resiliency.copies()), u64::from(resiliency.parity_columns()));
    let widest = (disks - parity) / copies;
    let columns = match resiliency {
        _ if draws.coin() => None,
        Resiliency::Span => None,
        Resiliency::Parity { .. } => u8::try_from(2 + draws.below(widest.saturating_sub(1).max(1))).ok(),
        Resiliency::Simple | Resiliency::Mirror { .. } => u8::try_from(1 + draws.below(widest.max(1))).ok(),
    };
    let integrity = match resiliency {
        Resiliency::Parity { .. } => Integrity::Strict,
        _ if draws.below(3) == 0 => Integrity::Strict,
        _ => Integrity::Relaxed,
    };
    let interleave = Bytes((16 << 10 << draws.below(5)).min(space.row_bytes()));
    Layout { resiliency, columns, interleave, integrity }
}
