//! The order of a run: the baseline of every case first, because it overwrites the disks, then a pool per layout.
//!
//! Whatever opens the disks runs in a runtime of its own, as in a daemon that was started again, so that nothing is
//! left in memory that a reopened pool should have to read.

use std::cell::Cell;
use std::future::Future;
use std::rc::Rc;
use std::time::Duration;

use dolmen_block_linux::{CLOSE_LIMIT, DriverChoice, Handle, Runtime, RuntimeConfig};
use dolmen_buffer::{ArenaConfig, Shared};
use dolmen_pool::MemoryArbiter;
use dolmen_units::HostId;

use crate::case::{Case, Choice, FRESH_BYTES, Kind, Layout};
use crate::disks::{Disks, fill, noise};
use crate::drive::{Span, Target, drive};
use crate::error::BenchError;
use crate::heap::{self, Heap};
use crate::pool::{BASE, FRESH, OpenPool, SpaceTarget};
use crate::raw::RawTarget;
use crate::tally::Tally;

/// The memory that a daemon has which has one pool open.
const CONFIG: RuntimeConfig = RuntimeConfig {
    data: ArenaConfig { small_count: 2048, medium_count: 256, large_count: 96 },
    metadata: ArenaConfig { small_count: 8192, medium_count: 192, large_count: 10 },
    driver: DriverChoice::Automatic,
    close_limit: CLOSE_LIMIT,
};
/// Rounds of one case, at most, however short they are.
const ROUNDS_MAX: u32 = 8;

/// How long, and how closely, each case is looked at.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Precision {
    pub(crate) time_max: Duration,
    /// I/Os of a round, at most, where the case itself sets no limit.
    pub(crate) operations_max: Option<u64>,
    /// Allocations per case whose places are reported.
    pub(crate) traced: u64,
}

/// What came of a case.
#[derive(Debug, Clone)]
pub(crate) struct Measured {
    pub(crate) case: Case,
    pub(crate) engine: Tally,
    pub(crate) raw: Tally,
    /// Where the engine allocated.
    pub(crate) places: Vec<(String, Heap)>,
}

/// What is true of the whole run.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Setting {
    pub(crate) driver: &'static str,
    pub(crate) has_registered_buffers: bool,
    /// What the files grew by while pools were measured: writes that waited for the file system to find room.
    pub(crate) grown_bytes: u64,
}

/// Measures everything, and calls back after each layout.
pub(crate) fn run(
    disks: &Rc<Disks>,
    choice: &Choice,
    precision: Precision,
    mut done: impl FnMut(&[Measured]) -> Result<(), BenchError>,
) -> Result<Setting, BenchError> {
    let mut setting = Setting::default();
    let mut raw = Vec::new();
    for &layout in &choice.layouts {
        let cases = choice.cases(layout);
        let is_first = raw.is_empty();
        let disks = Rc::clone(disks);
        let (facts, tallies) = in_runtime(move |handle| baseline(handle, disks, cases, precision, is_first))?;
        setting = facts;
        raw.extend(tallies);
    }
    let before = disks.allocated_bytes();
    for &layout in &choice.layouts {
        done(&measure_layout(disks, choice, layout, precision, &raw)?)?;
    }
    setting.grown_bytes = disks.allocated_bytes().saturating_sub(before);
    Ok(setting)
}

/// Runs a body in a runtime of its own, and waits until the kernel has let go of its disks.
pub(crate) fn in_runtime<T, F>(body: impl FnOnce(Handle) -> F) -> Result<T, BenchError>
where
    T: 'static,
    F: Future<Output = Result<T, BenchError>> + 'static,
{
    let runtime = Runtime::new(CONFIG)?;
    let body = body(runtime.handle());
    runtime.run(body)
}

async fn baseline(
    handle: Handle,
    disks: Rc<Disks>,
    cases: Vec<Case>,
    precision: Precision,
    is_first: bool,
) -> Result<(Setting, Vec<(Case, Tally)>), BenchError> {
    let devices: Rc<[_]> = disks.open(&handle)?.into();
    if is_first {
        fill(&handle, &disks, &devices).await?;
    }
    let mut tallies = Vec::new();
    for case in cases {
        disks.check_wanted()?;
        let target = RawTarget::new(&handle, &devices, case.layout.copies());
        let span = Span {
            operations_max: precision.operations_max,
            warmup: case.depth * 4,
            time_max: precision.time_max,
            traced: 0,
        };
        tallies
            .push((case, drive(&handle, target, case, span, payload(&handle, case.size_bytes).await).await?));
    }
    let has_registered_buffers = handle.has_registered_buffers();
    Ok((Setting { driver: handle.driver_name(), has_registered_buffers, grown_bytes: 0 }, tallies))
}

/// One I/O's bytes. All writes carry the same, so that making them up costs nothing while it is counted.
async fn payload(handle: &Handle, bytes: u64) -> Shared {
    let mut buffer = handle.seams().data.take(usize::try_from(bytes).unwrap_or(usize::MAX)).await;
    noise(&mut buffer);
    buffer.freeze()
}

fn measure_layout(
    disks: &Rc<Disks>,
    choice: &Choice,
    layout: Layout,
    precision: Precision,
    raw: &[(Case, Tally)],
) -> Result<Vec<Measured>, BenchError> {
    let arbiter = MemoryArbiter::new(HostId([1; 16]));
    let raw_of = |case: Case| {
        raw.iter().find(|(other, _)| *other == case).map_or(Tally::default(), |(_, tally)| *tally)
    };
    let (cold, others): (Vec<Case>, Vec<Case>) =
        choice.cases(layout).into_iter().partition(|case| case.kind == Kind::Cold);
    let (with, host) = (Rc::clone(disks), Rc::clone(&arbiter));
    let mut measured = in_runtime(move |handle| measure_open(handle, with, host, layout, others, precision))?;
    for case in cold {
        disks.check_wanted()?;
        measured.push(measure_cold(disks, &arbiter, case, precision)?);
    }
    let (with, host) = (Rc::clone(disks), Rc::clone(&arbiter));
    in_runtime(move |handle| async move {
        let pool = OpenPool::open(&handle, &with, host, layout).await?;
        pool.check().await?;
        pool.close().await
    })?;
    let found = measured.into_iter();
    Ok(found.map(|(case, engine, places)| Measured { case, engine, raw: raw_of(case), places }).collect())
}

type Found = (Case, Tally, Vec<(String, Heap)>);

/// Cases of one layout that need no reopening.
async fn measure_open(
    handle: Handle,
    disks: Rc<Disks>,
    arbiter: Rc<MemoryArbiter>,
    layout: Layout,
    cases: Vec<Case>,
    precision: Precision,
) -> Result<Vec<Found>, BenchError> {
    let pool = OpenPool::create(&handle, &disks, arbiter, layout).await?;
    pool.prepare(&payload(&handle, 1 << 20).await).await?;
    let mut measured = Vec::new();
    for case in cases {
        disks.check_wanted()?;
        let (mut total, mut rounds) = (Tally::default(), 0);
        // What the last case left in the log is not this one's to make room for.
        empty_log(&pool, case).await?;
        while let Some(span) = next_round(case, precision, total, rounds) {
            let target = match case.kind {
                Kind::Fresh => pool.new_space(FRESH, FRESH_BYTES).await?,
                Kind::Rewrite => written_window(&handle, &pool, case).await?,
                Kind::Overwrite | Kind::Warm | Kind::Cold => pool.space(BASE)?,
            };
            let payload = payload(&handle, case.size_bytes).await;
            total = total.plus(drive(&handle, target, case, span, payload).await?);
            rounds += 1;
        }
        // What a case leaves unflushed is not the next one's to flush.
        pool.space(BASE)?.flush().await?;
        measured.push((case, total, heap::take_places()));
    }
    pool.close().await?;
    Ok(measured)
}

/// The next round of a case while there is time.
fn next_round(case: Case, precision: Precision, so_far: Tally, rounds: u32) -> Option<Span> {
    let round = case.round();
    let left = precision.time_max.saturating_sub(Duration::from_nanos(so_far.nanoseconds));
    if left.is_zero() || rounds == ROUNDS_MAX || (rounds > 0 && round.operations_max.is_none()) {
        return None;
    }
    let traced = if rounds == 0 { precision.traced } else { 0 };
    let operations_max = round.operations_max.or(precision.operations_max);
    Some(Span { operations_max, warmup: round.warmup, time_max: left, traced })
}

/// Leaves the log as empty as can be.
async fn empty_log(pool: &OpenPool, case: Case) -> Result<(), BenchError> {
    let emptied = pool.spaces.pool().checkpoint().await;
    emptied.map_err(|source| BenchError::Space { layout: case.layout.name(), source: source.into() })
}

/// A new space whose first bytes were written, and not flushed.
async fn written_window(handle: &Handle, pool: &OpenPool, case: Case) -> Result<SpaceTarget, BenchError> {
    // No checkpoint of the round flushes half-way.
    empty_log(pool, case).await?;
    let target = pool.new_space(FRESH, FRESH_BYTES).await?;
    let payload = payload(handle, case.size_bytes).await;
    for at in (0..case.round().range_bytes).step_by(payload.len()) {
        target.write(at, &payload).await?;
    }
    Ok(target)
}

/// A case whose every round begins with opening the pool.
fn measure_cold(
    disks: &Rc<Disks>,
    arbiter: &Rc<MemoryArbiter>,
    case: Case,
    precision: Precision,
) -> Result<Found, BenchError> {
    let total = Rc::new(Cell::new(Tally::default()));
    let mut rounds = 0;
    while let Some(span) = next_round(case, precision, total.get(), rounds) {
        let (with, host, sum) = (Rc::clone(disks), Rc::clone(arbiter), Rc::clone(&total));
        in_runtime(move |handle| async move {
            let pool = OpenPool::open(&handle, &with, host, case.layout).await?;
            let payload = payload(&handle, case.size_bytes).await;
            let found = drive(&handle, pool.space(BASE)?, case, span, payload).await?;
            sum.set(sum.get().plus(found));
            pool.close().await
        })?;
        rounds += 1;
    }
    Ok((case, total.get(), heap::take_places()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::signals::Signals;
    use dolmen_units::Bytes;

    /// Every case of the kind on three sparse disks, for a few I/Os: fewer than fill the log, so that whether a
    /// checkpoint is counted along is not up to the speed of the machine.
    fn measured(kind: Kind, layout: Layout) -> Measured {
        let folder = tempfile::tempdir().unwrap();
        let disks = Rc::new(
            Disks::make(folder.path(), (3, Bytes::gib(1), Bytes::ZERO), &Signals::default()).unwrap(),
        );
        let choice =
            Choice { layouts: vec![layout], kinds: vec![kind], sizes: vec![Bytes::kib(4)], depths: vec![4] };
        let precision = Precision { time_max: Duration::from_secs(60), operations_max: Some(128), traced: 0 };
        let mut found = Vec::new();
        run(&disks, &choice, precision, |measured| {
            found.extend_from_slice(measured);
            Ok(())
        })
        .unwrap();
        found.swap_remove(0)
    }

    #[test]
    fn an_overwrite_is_counted_as_what_the_write_path_demands() {
        // Scenario: random overwrites of a flushed mirror. Each writes both copies; the intent goes to every voter,
        // durably, shared by what waits for it; nothing is allocated; and the pool verifies afterwards, or the run fails.
        let Measured { engine, raw, .. } = measured(Kind::Overwrite, Layout::Mirror2);
        assert!(engine.operations > 0 && raw.operations > 0);
        assert_eq!((engine.fresh_writes, engine.rewrites), (0, 0));
        let writes = engine.per_operation(engine.disk_writes);
        assert!(
            (2.0..6.0).contains(&writes) && engine.disk_writes >= 2 * engine.operations,
            "{writes} writes"
        );
        assert_eq!(raw.disk_writes, 2 * raw.operations);
        assert!(engine.disk_durable_writes > 0 && raw.disk_durable_writes == 0);
        assert!(
            engine.per_operation(engine.allocations) < 0.1,
            "{} allocations by {} writes",
            engine.allocations,
            engine.operations
        );
        assert_eq!(engine.messages, 0);
    }

    #[test]
    #[allow(clippy::disallowed_methods, reason = "threads are what is shown")]
    fn a_thread_for_each_of_two_pools_shares_nothing_with_the_other() {
        // Scenario: two threads, each with a ring, memory, a pool and its disks of its own, at the same time. Neither ever
        // sends the other anything, and both pools verify.
        let at_once = || {
            let Measured { engine, .. } = measured(Kind::Overwrite, Layout::Mirror2);
            (engine.operations, engine.messages)
        };
        let threads = [std::thread::spawn(at_once), std::thread::spawn(at_once)];
        for thread in threads {
            let (operations, messages) = thread.join().unwrap();
            assert!(operations > 0 && messages == 0, "{operations} operations, {messages} messages");
        }
    }

    #[test]
    fn a_cold_read_costs_a_table_and_its_data() {
        let Measured { engine, .. } = measured(Kind::Cold, Layout::Simple);
        assert!(engine.operations > 0 && engine.page_reads > 0);
        assert!(engine.per_operation(engine.disk_reads) > 1.5);
        assert_eq!(engine.disk_writes, 0);
    }
}
