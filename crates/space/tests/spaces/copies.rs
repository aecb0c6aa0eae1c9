//! Rows of the write cache whose copies are on a disk that is away: they are brought to other disks, and a stripe that is half in
//! place waits for that.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;

use dolmen_block_io::{Geometry, Instant};
use dolmen_sim::{DiskProfile, Fate, Ran, StateOptions, StopAt};
use dolmen_space::{Progress, Resiliency, Space, SpaceError, SpaceSpec, Spaces, UnreadableReason};
use dolmen_units::{Bytes, DiskSlot};

use crate::harness::slow_disks::{Dial, pause};
use crate::harness::{Bench, Lab, NotedHost, Outcome, ROW};

/// The second block of the first stripe: an interleave behind the first.
const NEIGHBOUR: u64 = 64 * 1024;
/// So many that each disk has each part of a stripe in some.
const ROWS: u64 = 12;

/// Disks of which the first two are fast, so that all rows of the cache lie on them.
fn bench_of(seed: u64, count: usize, dial: &Dial) -> Bench {
    let made = Cell::new(0);
    Bench::with_profile(seed, count, || {
        let profile = dial.profile();
        let geometry = Geometry { rotational: made.replace(made.get() + 1) >= 2, ..profile.geometry };
        DiskProfile { geometry, ..profile }
    })
}

async fn make(lab: &Lab, spaces: &Spaces, parity: u8) -> Result<Space, Box<dyn std::error::Error>> {
    let mut spec = SpaceSpec::usual("data".parse()?, Bytes(ROWS * ROW.0), Resiliency::Parity { parity });
    (spec.row, spec.columns, spec.interleave) = (Some(ROW), Some(2), Bytes(NEIGHBOUR));
    let space = spaces.create(spec).await?;
    for row in 0..ROWS {
        lab.write(&space, row * ROW.0, 4096, 1).await?;
        lab.write(&space, row * ROW.0 + NEIGHBOUR, 4096, 1).await?;
    }
    spaces.caches().destage().await?;
    Ok(space)
}

/// The first stripe of each row is in place, and its first block is written again and flushed: cached.
async fn write_stripes(lab: Lab) -> Outcome {
    let spaces = lab.create().await?;
    let space = make(&lab, &spaces, 1).await?;
    for row in 0..ROWS {
        lab.write(&space, row * ROW.0, 4096, 2).await?;
    }
    space.flush().await?;
    drop(space);
    spaces.close().await?;
    Ok(())
}

/// The disks that rows of the write caches lie on.
async fn cache_disks(spaces: &Spaces) -> Result<BTreeSet<u16>, Box<dyn std::error::Error>> {
    let caches = spaces.caches().write_caches().await?;
    Ok(caches.iter().flat_map(|cache| cache.disks.iter().map(|slot| slot.0)).collect())
}

/// The rows whose neighbour of what was written is what was flushed; the others are out of reach.
async fn rows_there(lab: &Lab, spaces: &Spaces) -> Result<BTreeSet<u64>, Box<dyn std::error::Error>> {
    let space = spaces.find("data")?;
    let mut there = BTreeSet::new();
    for row in 0..ROWS {
        let at = row * ROW.0 + NEIGHBOUR;
        match space.read(at, 4096).await {
            Ok(_) => lab.expect(&space, at, 4096, 1).await?,
            Err(SpaceError::Unreadable { why: UnreadableReason::Absent, .. }) => continue,
            Err(error) => return Err(format!("row {row}: {error}").into()),
        }
        there.insert(row);
    }
    Ok(there)
}

/// What a kill within a destage leaves, some milliseconds after its beginning; how long it would have taken.
fn killed_in_destage(millis: Option<u64>) -> (Rc<Bench>, u64) {
    let dial = Dial::default();
    let bench = Rc::new(bench_of(71, 4, &dial));
    bench.run(write_stripes).unwrap();
    let began = Rc::new(Cell::new(Instant(0)));
    let (noted, outside, slowly) = (Rc::clone(&began), Rc::clone(&bench), dial.clone());
    let lab = bench.lab();
    let body = async move {
        let spaces = lab.open().await?;
        noted.set(outside.world.now());
        slowly.write.set(5);
        slowly.flush.set(5);
        spaces.caches().destage().await?;
        Ok::<(), Box<dyn std::error::Error>>(())
    };
    // Openings take the same time in each run.
    thread_local!(static BEGAN: Cell<u64> = const { Cell::new(0) });
    let stop = millis.map_or(u64::MAX, |millis| BEGAN.get() + millis * 1_000_000);
    if let Ran::Finished(outcome) = bench.world.run_to(StopAt::Time(Instant(stop)), body).unwrap() {
        outcome.unwrap();
    }
    BEGAN.set(began.get().0);
    dial.write.set(0);
    dial.flush.set(0);
    let took = (bench.world.now().0 - began.get().0) / 1_000_000;
    (bench, took)
}

/// Scenario: power fails when stripes are on record and none is in place. It opens without a disk that has copies of all
/// rows of the cache; power fails at every stage of that, the disk with the other copies is gone for good, and the first one is
/// back. What nobody wrote of stripes that have lost one column by that is what it was.
#[test]
fn a_half_destaged_stripe_is_finished_with_all_possible_copies() {
    let (_, whole) = killed_in_destage(None);
    assert!(whole > 20, "{whole} ms");
    let is_in_place = |millis: &u64| {
        let (bench, _) = killed_in_destage(Some(*millis));
        let of_row = |row: u64| (0..4).map(move |disk| (disk, row << 8));
        let copies = (0..ROWS).flat_map(of_row);
        let written =
            copies.map(|(disk, at)| crate::harness::places_of(&bench.disks[disk], at..at + 1, 2).len());
        written.sum::<usize>() as u64 > 2 * ROWS
    };
    let first = (1..whole).find(is_in_place).unwrap();
    let (mut verified, mut brought) = (0, 0);
    for millis in first - 3..first {
        let (bench, _) = killed_in_destage(Some(millis));
        // What is on its way to its place does not get there.
        bench.world.power_cut_choosing(&mut |_| Fate::Lost);
        let host = NotedHost::new(&bench);
        let is_brought: Rc<Cell<bool>> = Rc::default();
        let report = Rc::clone(&is_brought);
        let without = Lab { noted: Some(Rc::clone(&host)), ..bench.lab_with(|disk| disk != 0) };
        let finished = bench.run_in(without, async move |lab| {
            let spaces = lab.open().await?;
            // Nobody asked for it, and no time has passed: a stripe waited.
            report.set(!cache_disks(&spaces).await?.contains(&0));
            spaces.caches().destage().await?;
            spaces.flush().await?;
            lab.hold(spaces);
            Ok(())
        });
        finished.unwrap_or_else(|error| panic!("killed after {millis} ms: {error}"));
        bench.world.kill();
        brought += u32::from(is_brought.get());
        if !is_brought.get() || brought > 1 {
            continue;
        }
        let lasting: Rc<RefCell<Option<BTreeSet<u64>>>> = Rc::default();
        for cut in host.recorder().cuts().into_iter().rev().step_by(2) {
            for state in host.recorder().states(cut, &StateOptions::default()).take(40).step_by(8) {
                let left = host.left(&state, cut, &bench);
                let known = Rc::clone(&lasting);
                let outcome = left.run_in(left.lab_with(|disk| disk != 1), async move |lab| {
                    let spaces = lab.open().await?;
                    let there = rows_there(&lab, &spaces).await?;
                    let needed = known.borrow_mut().get_or_insert_with(|| there.clone()).clone();
                    assert!(!needed.is_empty(), "no row lies apart from the disk that was away");
                    if !needed.is_subset(&there) {
                        return Err(format!("rows {needed:?} should be there, and {there:?} are").into());
                    }
                    Ok(())
                });
                outcome.unwrap_or_else(|error| panic!("killed after {millis} ms, {cut:?}: {error}\n{state}"));
                verified += 1;
            }
        }
    }
    assert!(brought > 1, "no stripe had to be finished");
    assert!(verified > 100, "{verified} states are too few to tell");
}

/// Scenario: a disk with copies of all rows of the cache stays away. A while later its copies are on another disk, and the disk
/// that had the only ones may be lost: what was cached is there. The first disk comes back: its copies are nobody's, and what
/// it has does not count.
#[test]
fn copies_that_stay_away_are_brought_to_another_disk() {
    let bench = Rc::new(bench_of(72, 5, &Dial::default()));
    let outside = Rc::clone(&bench);
    bench
        .run(async move |lab| {
            let spaces = lab.create().await?;
            let space = make(&lab, &spaces, 1).await?;
            for row in 0..ROWS {
                lab.write(&space, row * ROW.0, 4096, 2).await?;
            }
            space.flush().await?;
            assert_eq!(cache_disks(&spaces).await?, BTreeSet::from([0, 1]));
            outside.disks[0].vanish();
            lab.write(&space, 8192, 4096, 2).await?;
            pause(&lab, 20_000).await;
            assert!(
                cache_disks(&spaces).await?.contains(&0),
                "a disk that is away for a moment keeps its copies"
            );
            pause(&lab, 100_000).await;
            assert!(!cache_disks(&spaces).await?.contains(&0), "{:?}", cache_disks(&spaces).await?);
            outside.disks[0].come_back();
            spaces.members().rejoin(outside.disks[0].attach(&outside.world)).await?;
            spaces.members().resync(&Progress::default()).await?;
            assert_eq!(spaces.members().stale_rows().await?, vec![]);
            assert!(!cache_disks(&spaces).await?.contains(&0));
            crate::harness::check(&spaces).await?;
            outside.disks[1].vanish();
            for row in 0..ROWS {
                lab.expect(&space, row * ROW.0, 4096, 2).await?;
            }
            lab.expect(&space, 8192, 4096, 2).await?;
            lab.write(&space, 12288, 4096, 2).await?;
            pause(&lab, 120_000).await;
            assert!(!cache_disks(&spaces).await?.contains(&1));
            spaces.caches().destage().await?;
            for row in 0..ROWS {
                lab.expect(&space, row * ROW.0, 4096, 2).await?;
                lab.expect(&space, row * ROW.0 + NEIGHBOUR, 4096, 1).await?;
            }
            drop(space);
            lab.check_and_close(spaces).await
        })
        .unwrap();
}

/// Scenario: the disk is back when its copies have another place but not all of them were dropped: a row has one copy too many
/// then, and gives it up.
#[test]
fn a_row_of_the_cache_has_no_more_copies_than_it_needs() {
    for millis in (58_000..90_000).step_by(1_500) {
        let bench = Rc::new(bench_of(73, 5, &Dial::default()));
        let outside = Rc::clone(&bench);
        let outcome = bench.run(async move |lab| {
            let spaces = lab.create().await?;
            let space = make(&lab, &spaces, 1).await?;
            lab.write(&space, 0, 4096, 2).await?;
            space.flush().await?;
            let before = spaces.caches().write_caches().await?[0].footprint;
            outside.disks[0].vanish();
            lab.write(&space, 8192, 4096, 2).await?;
            pause(&lab, millis).await;
            outside.disks[0].come_back();
            spaces.members().rejoin(outside.disks[0].attach(&outside.world)).await?;
            spaces.members().resync(&Progress::default()).await?;
            pause(&lab, 100_000).await;
            assert_eq!(
                (
                    spaces.caches().write_caches().await?[0].footprint,
                    spaces.members().stale_rows().await?.len()
                ),
                (before, 0)
            );
            lab.expect(&space, 0, 4096, 2).await?;
            drop(space);
            lab.check_and_close(spaces).await
        });
        outcome.unwrap_or_else(|error| panic!("back after {millis} ms: {error}"));
    }
}

/// Scenario: so many disks are away that none can take a copy. Much more is written than the cache holds: stripes go on with the
/// copies that there are, and nobody is refused. The disks come back, and all is there whichever is gone then.
#[test]
fn stripes_continue_with_existing_copies_where_no_disk_can_take_one() {
    let bench = Rc::new(Bench::new(74, 4, Bytes::mib(96)));
    let outside = Rc::clone(&bench);
    bench
        .run(async move |lab| {
            let spaces = lab.create().await?;
            let space = make(&lab, &spaces, 2).await?;
            for disk in [0, 1] {
                outside.disks[disk].vanish();
                lab.write(&space, 0, 4096, 2).await?;
            }
            let size = spaces.caches().write_caches().await?[0].size.0;
            for round in 0..4 {
                for at in (0..size).step_by(64 << 10) {
                    let at = (at + 4096) % (ROWS * ROW.0 - (64 << 10));
                    let wrote = lab.write(&space, at, 64 << 10, round + 3).await;
                    wrote.map_err(|error| format!("round {round}, at {at}: {error}"))?;
                }
                space.flush().await?;
            }
            spaces.caches().destage().await?;
            for disk in [0, 1] {
                outside.disks[disk].come_back();
                spaces.members().rejoin(outside.disks[disk].attach(&outside.world)).await?;
            }
            spaces.members().resync(&Progress::default()).await?;
            assert_eq!(spaces.members().stale_rows().await?, vec![]);
            for freed in [DiskSlot(2), DiskSlot(3)] {
                spaces.pool().exclude(freed, dolmen_pool::ExcludeReason::Asked).await?;
            }
            lab.expect(&space, 8192, 4096, 6).await?;
            spaces.close().await?;
            Ok(())
        })
        .unwrap();
}
