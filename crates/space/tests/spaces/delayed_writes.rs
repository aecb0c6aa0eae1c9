//! Writes for which a disk was excluded and that land late: over what was written since, before the disk is back and behind that.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::print_stdout)]

use std::cell::Cell;
use std::error::Error;
use std::rc::Rc;
use std::time::Duration;

use dolmen_block_io::sleep;
use dolmen_block_io::sync::join_all;
use dolmen_sim::{DiskProfile, FaultKind, FaultRates, Rate};
use dolmen_space::{Progress, Resiliency, Space, Spaces};
use dolmen_units::Bytes;

use crate::harness::slow_disks::{CAPACITY, extra, text};
use crate::harness::{Bench, Kind, Lab, Outcome, ROW, file, read};

/// The disk that hangs.
const TIMED_OUT: usize = 1;
const ROWS: u64 = 4;
const BLOCK: usize = 4096;
/// Lives of each kind; in each the disk hangs somewhat later.
const SEEDS: u64 = 24;
const KINDS: [Kind; 3] = [
    Kind::usual(Resiliency::Mirror { copies: 2 }),
    Kind::strict(Resiliency::Mirror { copies: 2 }),
    Kind::usual(Resiliency::Parity { parity: 1 }),
];
const LENGTH: usize = 8192;
/// After how long a command times out.
const WAIT_MAX: Duration = Duration::from_millis(400);

/// When what timed out takes effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Landing {
    /// While the disk is away, behind newer writes.
    Away,
    /// When it is back and has what it missed. Its lock is free only when its last command is over, so that no daemon gets
    /// there; it is what stands if a kernel breaks that.
    Back,
}

/// A disk that answers nothing that hangs, and on which that never lands by itself.
fn profile() -> DiskProfile {
    DiskProfile { hang_limit: Some(WAIT_MAX), delayed_by_max: Duration::from_secs(1 << 32), ..file(CAPACITY) }
}

/// All of them at once, so that several are under way on each disk.
async fn write_all(lab: &Lab, space: &Space, fill: u8) -> Outcome {
    let writes = (0..ROWS).map(|row| lab.write(space, row * ROW.0, LENGTH, fill));
    join_all(writes).await.into_iter().collect()
}

async fn expect_all(lab: &Lab, space: &Space, fill: u8) -> Outcome {
    for row in 0..ROWS {
        lab.expect(space, row * ROW.0, LENGTH, fill).await?;
    }
    Ok(())
}

/// Writes, flushes and a checkpoint, while every command to one disk from a moment on hangs, so that the disk leaves.
async fn write_until_it_leaves(
    lab: &Lab,
    spaces: &Spaces,
    space: &Space,
    hang: impl Fn(),
    after: Duration,
) -> Outcome {
    let writes = async {
        for _ in 0..2 {
            write_all(lab, space, 2).await.map_err(text)?;
            spaces.flush().await.map_err(text)?;
            spaces.pool().checkpoint().await.map_err(text)?;
        }
        Ok(())
    };
    let hangs = async {
        sleep(lab.seams.clock.as_ref(), after).await;
        hang();
        Ok(())
    };
    extra(vec![Box::pin(writes), Box::pin(hangs)]).await?;
    // Whatever the moment, it is met by then.
    write_all(lab, space, 2).await?;
    Ok(spaces.flush().await?)
}

/// What a life showed.
#[derive(Debug, Clone, Copy, Default)]
struct Seen {
    /// Writes that landed late.
    landed: u64,
    /// Blocks that nobody could read without the disk that never hung.
    unreadable: u64,
}

/// One life. Somebody looks at everything before the other disk goes, or nobody.
fn live(kind: Kind, landing: Landing, seed: u64) -> Seen {
    let disks = if kind.resiliency.parity_columns() > 0 { 3 } else { 2 };
    let bench = Rc::new(Bench::with_profile(seed, disks, profile));
    let outside = Rc::clone(&bench);
    let after = Duration::from_micros(90 * seed);
    let lived = bench.run(async move |lab| {
        let disk = Rc::clone(&outside.disks[TIMED_OUT]);
        let spaces = lab.create().await?;
        let space = lab.space_of_kind(&spaces, "data", Bytes(ROWS * ROW.0), kind).await?;
        write_all(&lab, &space, 1).await?;
        spaces.flush().await?;
        spaces.pool().checkpoint().await?;
        let hang = || disk.set_rates(FaultRates::NONE.with(FaultKind::Hung, Rate::one_in(1)));
        write_until_it_leaves(&lab, &spaces, &space, hang, after).await?;
        disk.set_rates(FaultRates::NONE);
        write_all(&lab, &space, 3).await?;
        spaces.flush().await?;
        spaces.pool().checkpoint().await?;
        if landing == Landing::Away {
            disk.outlast_the_dead();
        }
        expect_all(&lab, &space, 3).await?;
        spaces.members().rejoin(disk.attach(&outside.world)).await?;
        spaces.members().resync(&Progress::default()).await?;
        if landing == Landing::Back {
            disk.outlast_the_dead();
        }
        if seed.is_multiple_of(2) {
            for _ in 0..4 {
                expect_all(&lab, &space, 3).await?;
            }
        }
        lab.hold((spaces, space));
        Ok(())
    });
    lived.unwrap_or_else(|error| panic!("{kind}, {landing:?}, seed {seed}: {error}"));
    bench.world.kill();
    let landed = bench.disks[TIMED_OUT].fault_counters().of(FaultKind::DelayedWrite);
    let unreadable = unreadable_without_the_other(&bench)
        .unwrap_or_else(|error| panic!("{kind}, {landing:?}, seed {seed}, without the other disk: {error}"));
    Seen { landed, unreadable }
}

/// Opens the pool without a disk that never hung: what can be read is what was written last. How many blocks cannot.
fn unreadable_without_the_other(bench: &Bench) -> Result<u64, Box<dyn Error>> {
    let reported = Rc::new(Cell::new(0));
    let report = Rc::clone(&reported);
    bench.run_in(bench.lab_with(|disk| disk > 0), async move |lab| {
        let spaces = lab.open().await?;
        let space = spaces.find("data")?;
        for at in (0..ROWS).flat_map(|row| [row * ROW.0, row * ROW.0 + BLOCK as u64]) {
            match read(&space, at, BLOCK).await {
                Ok(_) => lab.expect(&space, at, BLOCK, 3).await?,
                Err(_) => report.set(report.get() + 1),
            }
        }
        drop(space);
        Ok(spaces.close().await?)
    })?;
    Ok(reported.get())
}

fn live_all(landing: Landing) -> Seen {
    let mut all = Seen::default();
    for kind in KINDS {
        let mut seen = Seen::default();
        for seed in 0..SEEDS {
            let run = live(kind, landing, seed);
            (seen.landed, seen.unreadable) = (seen.landed + run.landed, seen.unreadable + run.unreadable);
        }
        println!("{kind}, {landing:?}: {SEEDS} lives, {seen:?}");
        assert!(seen.landed > SEEDS / 3, "hardly anything landed late");
        all = Seen { landed: all.landed + seen.landed, unreadable: all.unreadable + seen.unreadable };
    }
    all
}

/// Scenario: all commands to a disk hang from a moment on, within writes, flushes, or a checkpoint. They are timed out, the disk
/// leaves, and the pool goes on: everything is written again. Then the write for which the disk was excluded lands. The disk comes back and
/// gets what it missed: nothing old is read, then or from that disk without the others.
#[test]
fn a_write_that_lands_late_while_its_disk_is_away_is_never_read() {
    let seen = live_all(Landing::Away);
    assert_eq!(seen.unreadable, 0, "what a resync has written can be read");
}

/// The same, and it lands when the disk is back: it is healed from the others, or an error where none is left, and never read.
#[test]
fn a_write_that_lands_late_on_a_disk_that_is_back_is_never_read() {
    live_all(Landing::Back);
}
