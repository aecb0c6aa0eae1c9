//! The trash: moved into it, restored, purged; at every crash (docs/design/0018).
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::too_many_lines,
    clippy::await_holding_refcell_ref
)] // a model is lent for reading while nobody else has it

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use dolmen_pool::{OpenMode, PoolError, Purpose, keys};
use dolmen_sim::{Cut, Ran, Random, StateOptions, StopAt};
use dolmen_space::{Progress, Provisioning, Resiliency, Space, SpaceError, SpaceSpec, Spaces};
use dolmen_units::{Bytes, SpaceId};

use crate::harness::{Bench, Lab, Outcome, ROW};

const MIRROR: Resiliency = Resiliency::Mirror { copies: 2 };
const PARITY: Resiliency = Resiliency::Parity { parity: 1 };
/// When spaces come into the trash: an odd number, which nothing decides by.
const NOW_S: u64 = 1_234_567;
/// What is written of each row.
const PIECE: usize = 16 << 10;

/// A thin space with so many rows, each of which has something.
async fn filled(
    lab: &Lab,
    spaces: &Spaces,
    (name, resiliency): (&str, Resiliency),
    rows: u64,
    fill: u8,
) -> Result<Space, Box<dyn std::error::Error>> {
    let space = lab.space(spaces, name, Bytes(rows * ROW.0), resiliency).await?;
    for row in 0..rows {
        lab.write(&space, row * ROW.0, PIECE, fill).await?;
    }
    spaces.flush().await?;
    Ok(space)
}

async fn expect_all(lab: &Lab, space: &Space, fill: u8) -> Outcome {
    for row in 0..space.size().0 / ROW.0 {
        lab.expect(space, row * ROW.0, PIECE, fill).await?;
        lab.expect(space, row * ROW.0 + PIECE as u64, PIECE, 0).await?;
    }
    Ok(())
}

fn names(spaces: &[Space]) -> Vec<String> {
    spaces.iter().map(|space| space.name().to_string()).collect()
}

fn used(spaces: &Spaces) -> u64 {
    spaces.pool().free_space().room().iter().map(|room| room.data.0 - room.free.0).sum()
}

async fn purge(spaces: &Spaces) -> Outcome {
    let all = spaces.trash().purge(&Progress::default()).await?;
    if all && spaces.condemned().is_empty() { Ok(()) } else { Err("something is left of a purge".into()) }
}

/// What a space is in the course of a life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    Whole(&'static str),
    Trashed(&'static str),
    /// With all, some or none of its rows; or struck.
    Condemned,
}

/// What a pool says of its one space.
fn stage_of(spaces: &Spaces) -> Result<Stage, String> {
    let known = |found: &Space| {
        ["data", "back"].into_iter().find(|name| found.name().as_str() == *name).ok_or("an odd name")
    };
    match (spaces.list().as_slice(), spaces.in_trash().as_slice(), spaces.condemned().len()) {
        ([one], [], 0) => Ok(Stage::Whole(known(one)?)),
        ([], [one], 0) => Ok(Stage::Trashed(known(one)?)),
        ([], [], _) => Ok(Stage::Condemned),
        (list, trash, condemned) => {
            Err(format!("{:?}, {:?} in the trash, {condemned} condemned", names(list), names(trash)))
        }
    }
}

/// Opens what a crash has left: the space is at one of these stages, has every byte where it is not condemned, and all room comes
/// back when it is purged.
async fn verify(lab: Lab, allowed: BTreeSet<Stage>) -> Outcome {
    let spaces = lab.open().await?;
    let stage = stage_of(&spaces)?;
    if !allowed.contains(&stage) {
        return Err(format!("{stage:?} instead of {allowed:?}").into());
    }
    crate::harness::check(&spaces).await?;
    let space = match stage {
        Stage::Whole(name) => Some(spaces.find(name)?),
        Stage::Trashed(_) => {
            let space = spaces.in_trash().remove(0);
            assert_eq!(space.trashed_at(), Some(NOW_S));
            spaces.trash().restore(&space, None).await?;
            Some(space)
        }
        Stage::Condemned => None,
    };
    if let Some(space) = space {
        expect_all(&lab, &space, 1).await?;
        spaces.trash().condemn(&space).await?;
    }
    purge(&spaces).await?;
    if used(&spaces) != 0 || !spaces.caches().write_caches().await?.is_empty() {
        return Err(format!("{} bytes are taken by nothing", used(&spaces)).into());
    }
    crate::harness::check(&spaces).await?;
    spaces.close().await?;
    Ok(())
}

/// Scenario: a space goes into the trash, is restored under another name, goes there again and is purged; power fails at each write
/// and flush of all that, and of what was not flushed some, all or nothing is there. It is at the stage that was acknowledged last,
/// or at the next one, with every byte; what was purged in part is not there, and gives all room back.
#[test]
fn whatever_a_crash_leaves_of_the_trash_is_one_stage_or_the_next() {
    for (resiliency, disks, rows) in [(MIRROR, 2, 12), (PARITY, 3, 4)] {
        let bench = Rc::new(Bench::new(31, disks, Bytes::mib(96)));
        let reported: Rc<RefCell<Vec<(Cut, Cut, Stage)>>> = Rc::default();
        let recorded = Rc::new(RefCell::new(None));
        let (outside, stages, record) = (Rc::clone(&bench), Rc::clone(&reported), Rc::clone(&recorded));
        let lived = bench.run(async move |lab| {
            let spaces = lab.create().await?;
            let space = filled(&lab, &spaces, ("data", resiliency), rows, 1).await?;
            // The feature, which takes an epoch, is there from now on: the host's record stays as it is.
            spaces.trash().move_to_trash(&space, NOW_S).await?;
            spaces.trash().restore(&space, None).await?;
            spaces.flush().await?;
            let recorder = Rc::new(outside.world.record());
            record.replace(Some((Rc::clone(&recorder), outside.arbiter.snapshot())));
            let step = async |stage: Stage, done: crate::harness::Boxed<Result<(), SpaceError>>| {
                let begun = recorder.now();
                done.await?;
                stages.borrow_mut().push((begun, recorder.now(), stage));
                Ok::<(), SpaceError>(())
            };
            let (all, one) = (&spaces, &space);
            let owned = || (Rc::clone(all), Rc::clone(one));
            let trash = || {
                let (all, one) = owned();
                Box::pin(async move { all.trash().move_to_trash(&one, NOW_S).await })
            };
            let restore = |name: &'static str| {
                let (all, one) = owned();
                Box::pin(async move { all.trash().restore(&one, Some(name.parse().unwrap())).await })
            };
            step(Stage::Trashed("data"), trash()).await?;
            step(Stage::Whole("back"), restore("back")).await?;
            step(Stage::Trashed("back"), trash()).await?;
            // What is in the write cache is put in place meanwhile.
            spaces.caches().destage().await?;
            spaces.pool().checkpoint().await?;
            let (all, one) = owned();
            step(Stage::Condemned, Box::pin(async move { all.trash().condemn(&one).await })).await?;
            purge(&spaces).await?;
            outside.world.stop_recording();
            assert_eq!(used(&spaces), 0);
            drop(space);
            spaces.close().await?;
            Ok(())
        });
        lived.unwrap_or_else(|error| panic!("{resiliency}: {error}"));
        let (recorder, arbiter) = recorded.borrow_mut().take().unwrap();
        let (mut verified, mut seen) = (0, BTreeMap::new());
        for cut in recorder.cuts() {
            let mut allowed = BTreeSet::from([Stage::Whole("data")]);
            for (begun, acked, stage) in reported.borrow().iter() {
                if *acked <= cut {
                    allowed.clear();
                }
                if *begun <= cut {
                    allowed.insert(*stage);
                }
            }
            *seen.entry(allowed.clone()).or_insert(0) += 1;
            let states: Vec<_> = recorder.states(cut, &StateOptions::default()).take(64).collect();
            // Nothing of what waits, all of it, and one between them.
            let some = [0, states.len() / 2, states.len() - 1];
            for state in some.into_iter().collect::<BTreeSet<usize>>().into_iter().map(|at| &states[at]) {
                let left = state.reopen(7);
                left.world.set_arenas(dolmen_buffer::ArenaConfig::MODEST, dolmen_buffer::ArenaConfig::MODEST);
                let disks = left.disks.iter().flatten().cloned().collect();
                let left = Bench { world: left.world, disks, arbiter: arbiter.snapshot() };
                let allowed = allowed.clone();
                let outcome = left.run(async move |lab| verify(lab, allowed).await);
                outcome.unwrap_or_else(|error| panic!("{resiliency}, {cut:?}: {error}\n{state}"));
                verified += 1;
            }
        }
        assert!(verified > 60 && seen.len() >= 6, "{verified} states, with {seen:?}");
    }
}

/// Scenario: the daemon is killed at every few steps of making a space, its first way into the trash, which takes an epoch, a
/// restore and a purge of two of them. Each is whole or in the trash with every byte, or gone for good.
#[test]
fn a_daemon_that_is_killed_on_the_way_loses_nothing_that_can_be_restored() {
    let run = async |lab: Lab, acked: Rc<Cell<usize>>| {
        let spaces = lab.open().await?;
        let space = spaces.find("data")?;
        spaces.trash().move_to_trash(&space, NOW_S).await?;
        acked.set(1);
        spaces.trash().restore(&space, Some("back".parse()?)).await?;
        acked.set(2);
        spaces.trash().move_to_trash(&space, NOW_S).await?;
        acked.set(3);
        spaces.trash().condemn(&space).await?;
        acked.set(4);
        purge(&spaces).await?;
        drop(space);
        spaces.close().await?;
        Outcome::Ok(())
    };
    let stages = [
        Stage::Whole("data"),
        Stage::Trashed("data"),
        Stage::Whole("back"),
        Stage::Trashed("back"),
        Stage::Condemned,
    ];
    let mut seen = BTreeSet::new();
    for steps in 0.. {
        let bench = Bench::new(steps, 2, Bytes::mib(96));
        let made = bench.run(async move |lab| {
            let spaces = lab.create().await?;
            filled(&lab, &spaces, ("data", MIRROR), 6, 1).await?;
            Ok(spaces.close().await?)
        });
        made.unwrap();
        let acked = Rc::new(Cell::new(0));
        let ran = bench.world.run_to(StopAt::Steps(steps), run(bench.lab(), Rc::clone(&acked))).unwrap();
        if let Ran::Finished(outcome) = ran {
            outcome.unwrap();
            break;
        }
        bench.world.kill();
        let at = acked.get();
        let allowed: BTreeSet<Stage> = stages[at..stages.len().min(at + 2)].iter().copied().collect();
        seen.insert(at);
        let verified = bench.run(async move |lab| verify(lab, allowed).await);
        verified
            .unwrap_or_else(|error| panic!("killed after {steps} steps, with {at} acknowledged: {error}"));
    }
    assert_eq!(seen.len(), stages.len(), "{seen:?}");
}

/// Scenario: a space is in the trash. Nothing can be done with it but to restore it, its name is another's, its room is taken, and
/// both are there with every byte when it is back under another name.
#[test]
fn what_is_in_the_trash_is_nobodys_and_keeps_all_that_it_has() {
    for resiliency in [Resiliency::Simple, MIRROR, PARITY] {
        let bench = Bench::new(32, 4, Bytes::mib(128));
        let outcome = bench.run(async move |lab| {
            let spaces = lab.create().await?;
            let space = filled(&lab, &spaces, ("data", resiliency), 6, 1).await?;
            let before = used(&spaces);
            spaces.trash().move_to_trash(&space, NOW_S).await?;
            spaces.trash().move_to_trash(&space, NOW_S + 1).await?;
            assert_eq!((used(&spaces), space.trashed_at()), (before, Some(NOW_S)));
            assert!(spaces.list().is_empty() && spaces.get(space.id()).is_none());
            assert!(matches!(spaces.find("data"), Err(SpaceError::NoSuchSpace { .. })));
            let refused = [
                space.read(0, 4096).await.map(drop),
                space.discard(0, 4096).await,
                space.write_zeroes(0, 4096).await,
                spaces.changes().resize(&space, Bytes(8 * ROW.0)).await,
                spaces.changes().resize(&space, ROW).await,
                spaces.changes().rename(&space, "other".parse()?).await,
            ];
            for refusal in refused {
                assert!(matches!(refusal, Err(SpaceError::Trashed { .. })), "{resiliency}: {refusal:?}");
            }
            let written = lab.write(&space, 0, 4096, 2).await.unwrap_err().to_string();
            assert!(written.contains("space data is in the trash"), "{written}");
            let other = filled(&lab, &spaces, ("data", resiliency), 3, 3).await?;
            let taken = spaces.trash().restore(&space, None).await;
            assert!(matches!(taken, Err(SpaceError::NameTaken { .. })), "{taken:?}");
            spaces.trash().restore(&space, Some("back".parse()?)).await?;
            let again = spaces.trash().restore(&space, None).await;
            assert!(matches!(again, Err(SpaceError::NotTrashed { .. })), "{again:?}");
            expect_all(&lab, &space, 1).await?;
            expect_all(&lab, &other, 3).await?;
            lab.write(&space, 0, 4096, 4).await?;
            lab.expect(&space, 0, 4096, 4).await?;
            drop((space, other));
            lab.check_and_close(spaces).await
        });
        outcome.unwrap_or_else(|error| panic!("{resiliency}: {error}"));
        let again = bench.run(async move |lab| {
            let spaces = lab.open().await?;
            assert_eq!(names(&spaces.list()), ["back", "data"]);
            lab.expect(&spaces.find("back")?, 0, 4096, 4).await?;
            expect_all(&lab, &spaces.find("data")?, 3).await
        });
        again.unwrap_or_else(|error| panic!("{resiliency}: {error}"));
    }
}

/// Scenario: a purge is held, stopped, cut short by a kill. Nobody finds what is left, also behind an opening, which does not free
/// it; its name is another's, which nothing happens to; a purge goes on with it, and all room comes back.
#[test]
fn a_purge_that_was_stopped_or_killed_leaves_nothing_that_can_be_used() {
    const ROWS: u64 = 600;
    for (begin, end) in [(0, 1), (1, 1), (1, 400), (1, 900), (1, 1600)] {
        let bench = Bench::new(33, 2, Bytes::mib(1024));
        bench.world.set_steps_max(20_000_000);
        let left = Rc::new(Cell::new(0));
        let report = Rc::clone(&left);
        let outcome = bench.run(async move |lab| {
            let spaces = lab.create().await?;
            let space = filled(&lab, &spaces, ("data", MIRROR), ROWS, 1).await?;
            spaces.trash().move_to_trash(&space, NOW_S).await?;
            spaces.trash().condemn(&space).await?;
            spaces.trash().condemn(&space).await?;
            let back = spaces.trash().restore(&space, None).await;
            assert!(matches!(back, Err(SpaceError::Deleted { .. })), "{back:?}");
            let progress = Rc::new(Progress::default());
            if begin == 0 {
                progress.stop();
            }
            let (stopper, clock) = (Rc::clone(&progress), Rc::clone(&lab.seams.clock));
            lab.seams.spawner.spawn(
                "stop",
                Box::pin(async move {
                    dolmen_block_io::sleep(clock.as_ref(), std::time::Duration::from_micros(100 * end)).await;
                    stopper.stop();
                }),
            );
            let all = spaces.trash().purge(&progress).await?;
            report.set(space.claimed().0 / ROW.0);
            assert_eq!(all, spaces.condemned().is_empty());
            assert_eq!(progress.total.get(), ROWS);
            // The daemon is killed here.
            lab.hold(spaces);
            Ok(())
        });
        outcome.unwrap();
        bench.world.kill();
        let left = left.get();
        let outcome = bench.run(async move |lab| {
            let spaces = lab.open().await?;
            assert_eq!((spaces.list().len(), spaces.in_trash().len()), (0, 0));
            assert_eq!(spaces.condemned().len(), usize::from(left > 0), "{left} rows are left");
            assert_eq!(used(&spaces) > 0, left > 0, "an opening frees nothing");
            let other = filled(&lab, &spaces, ("data", MIRROR), 4, 2).await?;
            crate::harness::check(&spaces).await?;
            purge(&spaces).await?;
            expect_all(&lab, &other, 2).await?;
            assert_eq!(used(&spaces), other.footprint().await?.total.0);
            drop(other);
            lab.check_and_close(spaces).await
        });
        outcome.unwrap_or_else(|error| panic!("stopped after {end}, {left} rows left: {error}"));
    }
}

/// Scenario: a space is deleted for good, from the trash or at once. While the change of the map is under way it is in neither of the
/// two lists, cannot be restored, and is never missing among what was deleted.
#[test]
fn a_space_that_leaves_the_trash_is_listed_all_the_time() {
    for is_trashed in [false, true] {
        let bench = Bench::new(39, 2, Bytes::mib(1024));
        let outcome = bench.run(async move |lab| {
            let spaces = lab.create().await?;
            let space = filled(&lab, &spaces, ("data", MIRROR), 3, 1).await?;
            if is_trashed {
                spaces.trash().move_to_trash(&space, NOW_S).await?;
            }
            let (all, one) = (Rc::clone(&spaces), space.clone());
            lab.seams
                .spawner
                .spawn("condemn", Box::pin(async move { all.trash().condemn(&one).await.unwrap() }));
            let mut between = 0;
            while spaces.condemned().is_empty() {
                dolmen_block_io::sleep(lab.seams.clock.as_ref(), std::time::Duration::from_micros(20)).await;
                let is_on_its_way = spaces.kept().is_empty() && spaces.condemned().is_empty();
                between += usize::from(is_on_its_way);
                assert_eq!(names(&spaces.discarded()), ["data"]);
                assert_eq!(space.trashed_at(), None);
            }
            assert!(between > 0, "nobody saw it on its way");
            purge(&spaces).await?;
            assert!(spaces.discarded().is_empty());
            lab.check_and_close(spaces).await
        });
        outcome.unwrap_or_else(|error| panic!("from the trash: {is_trashed}: {error}"));
    }
}

/// Scenario: a purge is held before its first lot, and behind it: nothing is freed while it is, and it ends when it is released, and
/// where the spaces close under it.
#[test]
fn a_purge_that_is_held_frees_nothing_until_it_is_released() {
    for closes in [false, true] {
        let bench = Bench::new(38, 2, Bytes::mib(1024));
        bench.world.set_steps_max(20_000_000);
        let outcome = bench.run(async move |lab| {
            let spaces = lab.create().await?;
            let space = filled(&lab, &spaces, ("data", MIRROR), 600, 1).await?;
            spaces.trash().condemn(&space).await?;
            let progress = Rc::new(Progress::default());
            progress.hold();
            let (all, held) = (Rc::clone(&spaces), Rc::clone(&progress));
            let ended: Rc<Cell<Option<bool>>> = Rc::default();
            let report = Rc::clone(&ended);
            let task = async move { report.set(all.trash().purge(&held).await.ok()) };
            lab.seams.spawner.spawn("purge", Box::pin(task));
            progress.halted().await;
            let before = used(&spaces);
            spaces.pool().checkpoint().await?;
            assert_eq!((used(&spaces), progress.done.get(), ended.get()), (before, 0, None));
            // What asks for the same space meanwhile does not wait for whoever holds the purge.
            spaces.trash().condemn(&space).await?;
            if closes {
                spaces.close().await?;
            } else {
                progress.release();
            }
            while ended.get().is_none() {
                dolmen_block_io::sleep(lab.seams.clock.as_ref(), std::time::Duration::from_millis(1)).await;
            }
            assert_eq!((ended.get(), progress.done.get()), (Some(!closes), if closes { 0 } else { 600 }));
            if closes {
                return Ok(());
            }
            assert_eq!(used(&spaces), 0);
            lab.check_and_close(spaces).await
        });
        outcome.unwrap();
    }
}

/// Scenario: a pool is full to its last row. Nothing more can be claimed, whether something is in the trash or not; purging gives
/// the room back, and what stays is as it was.
#[test]
fn a_full_pool_is_given_room_by_a_purge() {
    for resiliency in [MIRROR, PARITY] {
        let bench = Bench::new(34, 3, Bytes::mib(96));
        let outcome = bench.run(async move |lab| {
            let spaces = lab.create().await?;
            let kept = filled(&lab, &spaces, ("kept", resiliency), 2, 1).await?;
            let space = lab.space(&spaces, "data", Bytes::mib(512), resiliency).await?;
            let mut row = 0;
            let full = loop {
                match lab.write(&space, row * ROW.0, PIECE, 2).await {
                    Ok(()) => row += 1,
                    Err(error) => break error,
                }
            };
            let is_full = |error: &SpaceError| matches!(error, SpaceError::Pool(PoolError::NoSpace { .. }));
            assert!(full.downcast_ref().is_some_and(is_full), "{full}");
            spaces.flush().await?;
            spaces.trash().move_to_trash(&space, NOW_S).await?;
            let other = lab.space(&spaces, "data", Bytes::mib(8), resiliency).await?;
            let full = lab.write(&other, 0, PIECE, 3).await.unwrap_err();
            assert!(full.downcast_ref().is_some_and(is_full), "the trash keeps its room: {full}");
            spaces.trash().condemn(&space).await?;
            purge(&spaces).await?;
            for row in 0..8 {
                lab.write(&other, row * ROW.0, PIECE, 3).await?;
            }
            expect_all(&lab, &kept, 1).await?;
            expect_all(&lab, &other, 3).await?;
            drop((kept, other, space));
            lab.check_and_close(spaces).await
        });
        outcome.unwrap_or_else(|error| panic!("{resiliency}: {error}"));
    }
}

/// Scenario: map and log are full, so that nothing can be written. A space is purged for good all the same, and gives its rows back.
#[test]
fn a_full_map_and_a_full_log_take_a_purge() {
    let bench = Bench::new(35, 2, Bytes::mib(2048));
    bench.world.set_steps_max(20_000_000);
    let outcome = bench.run(async |lab| {
        let spaces = lab.create().await?;
        let kept = filled(&lab, &spaces, ("kept", MIRROR), 2, 1).await?;
        let trashed = filled(&lab, &spaces, ("trashed", MIRROR), 4, 2).await?;
        let deleted = filled(&lab, &spaces, ("deleted", MIRROR), 4, 3).await?;
        spaces.trash().move_to_trash(&trashed, NOW_S).await?;
        let pool = spaces.pool();
        let mut count = 0;
        loop {
            let mut change = pool.change(Purpose::Release).await;
            (count..count + 100).for_each(|row| change.put(keys::place(SpaceId(999), row), vec![7; 200]));
            change.commit().await?;
            count += 100;
            match pool.checkpoint().await {
                Ok(()) => {}
                Err(PoolError::MetadataFull { .. }) => break,
                Err(error) => return Err(error.into()),
            }
        }
        let mut blocks = (0..500).cycle();
        while lab.write(&kept, blocks.next().unwrap() * 4096, 4096, 1).await.is_ok() {}
        let before = used(&spaces);
        spaces.trash().condemn(&trashed).await?;
        spaces.trash().condemn(&deleted).await?;
        purge(&spaces).await?;
        assert_eq!(names(&spaces.list()), ["kept"]);
        assert_eq!(used(&spaces), kept.footprint().await?.total.0);
        assert!(used(&spaces) < before);
        lab.expect(&kept, ROW.0, PIECE, 1).await
    });
    outcome.unwrap();
}

/// Scenario: a disk fails while a space is in the trash, comes back and is brought up to date; another one leaves for good. What is
/// restored then has every byte on each disk that is left.
#[test]
fn what_is_in_the_trash_keeps_its_redundancy() {
    for resiliency in [MIRROR, PARITY] {
        let bench = Rc::new(Bench::new(36, 5, Bytes::mib(128)));
        let outside = Rc::clone(&bench);
        let outcome = bench.run(async move |lab| {
            let spaces = lab.create().await?;
            let space = filled(&lab, &spaces, ("data", resiliency), 8, 1).await?;
            let other = filled(&lab, &spaces, ("other", resiliency), 2, 1).await?;
            // Unflushed, and in the write cache, when it goes.
            lab.write(&space, 0, PIECE, 1).await?;
            spaces.trash().move_to_trash(&space, NOW_S).await?;
            outside.disks[0].vanish();
            for row in 0..2 {
                lab.write(&other, row * ROW.0, PIECE, 2).await?;
            }
            outside.disks[0].come_back();
            spaces.members().rejoin(outside.disks[0].attach(&outside.world)).await?;
            spaces.members().resync(&Progress::default()).await?;
            spaces.caches().destage().await?;
            assert_eq!(spaces.members().stale_rows().await?, vec![]);
            let leaving = spaces.pool().members().find_disk("disk1")?;
            spaces.pool().membership().retire(&leaving).await?;
            assert!(spaces.moves().drain_disk(&leaving, &Progress::default()).await?);
            spaces.pool().membership().evict(&leaving).await?;
            crate::harness::check(&spaces).await?;
            spaces.trash().restore(&space, None).await?;
            outside.disks[2].vanish();
            lab.write(&other, 0, PIECE, 3).await?;
            expect_all(&lab, &space, 1).await?;
            assert!(spaces.data_loss_events().is_empty());
            Ok(())
        });
        outcome.unwrap_or_else(|error| panic!("{resiliency}: {error}"));
    }
}

/// Scenario: a fixed space is in the trash when the pool is opened, for writing and for reading. It is there, with all of its rows,
/// and with nothing claimed for it.
#[test]
fn an_opening_leaves_the_trash_as_it_is() {
    let bench = Bench::new(37, 3, Bytes::mib(96));
    let made = bench.run(async move |lab| {
        let spaces = lab.create().await?;
        let mut spec = SpaceSpec::usual("data".parse()?, Bytes::mib(12), MIRROR);
        (spec.row, spec.provisioning) = (Some(ROW), Provisioning::Fixed);
        let space = spaces.create(spec).await?;
        lab.write(&space, 0, PIECE, 1).await?;
        spaces.trash().move_to_trash(&space, NOW_S).await?;
        Ok(spaces.export().await?)
    });
    made.unwrap();
    for mode in [OpenMode::Read, OpenMode::Write] {
        let opened = bench.run(async move |lab| {
            let spaces = lab.open_as(mode).await?;
            assert!(spaces.list().is_empty());
            let space = spaces.in_trash().remove(0);
            assert_eq!((space.claimed(), space.trashed_at()), (Bytes::mib(12), Some(NOW_S)));
            if mode == OpenMode::Read {
                let refused =
                    [spaces.trash().restore(&space, None).await, spaces.trash().condemn(&space).await];
                assert!(refused.iter().all(Result::is_err), "{refused:?}");
                assert_eq!(spaces.in_trash().len(), 1);
                return Ok(());
            }
            spaces.trash().restore(&space, None).await?;
            lab.expect(&space, 0, PIECE, 1).await
        });
        opened.unwrap();
    }
}

/// Scenario: spaces of a few names are made, written, deleted, restored under their own names and others, purged in whole and in
/// part, while the daemon ends and is killed. A model of sets says what is there, with what in it.
#[test]
fn a_model_knows_what_is_there_and_what_is_in_the_trash() {
    for seed in 0..10 {
        let bench = Rc::new(Bench::new(seed, 3, Bytes::mib(160)));
        let model: Rc<RefCell<Model>> = Rc::default();
        model.borrow_mut().random = Some(Random::new(seed));
        for round in 0..6 {
            let (known, ends_well, is_new) = (Rc::clone(&model), round % 2 == 0, round == 0);
            let outcome = bench.run(async move |lab| {
                let spaces = if is_new { lab.create().await? } else { lab.open().await? };
                known.borrow().compare(&lab, &spaces).await?;
                for _ in 0..8 {
                    act(&known, &lab, &spaces).await?;
                }
                known.borrow().compare(&lab, &spaces).await?;
                crate::harness::check(&spaces).await?;
                match ends_well {
                    true => Ok(spaces.close().await?),
                    false => {
                        spaces.flush().await?;
                        lab.hold(spaces);
                        Ok(())
                    }
                }
            });
            outcome.unwrap_or_else(|error| panic!("seed {seed}, round {round}: {error}"));
            if !ends_well {
                bench.world.kill();
            }
        }
    }
}

/// What a model knows of spaces, by their numbers.
#[derive(Default)]
struct Model {
    random: Option<Random>,
    /// Name and fill.
    whole: BTreeMap<SpaceId, (String, u8)>,
    trashed: BTreeMap<SpaceId, (String, u8)>,
    condemned: BTreeSet<SpaceId>,
    fills: u8,
}

const ROWS_OF_MODEL: u64 = 3;

impl Model {
    fn below(&mut self, count: usize) -> usize {
        usize::try_from(self.random.as_mut().unwrap().below(count as u64)).unwrap()
    }

    fn name(&mut self) -> String {
        ["a", "b", "c"][self.below(3)].to_owned()
    }

    fn any(&mut self, of: fn(&Self) -> &BTreeMap<SpaceId, (String, u8)>) -> Option<SpaceId> {
        let ids: Vec<SpaceId> = of(self).keys().copied().collect();
        if ids.is_empty() { None } else { Some(ids[self.below(ids.len())]) }
    }

    fn is_taken(&self, name: &str) -> bool {
        self.whole.values().any(|(taken, _)| taken == name)
    }

    async fn compare(&self, lab: &Lab, spaces: &Spaces) -> Outcome {
        let found = |all: Vec<Space>| -> Vec<(SpaceId, String)> {
            all.iter().map(|space| (space.id(), space.name().to_string())).collect()
        };
        let known = |all: &BTreeMap<SpaceId, (String, u8)>| -> Vec<(SpaceId, String)> {
            all.iter().map(|(id, (name, _))| (*id, name.clone())).collect()
        };
        assert_eq!(found(spaces.list()), known(&self.whole));
        assert_eq!(found(spaces.in_trash()), known(&self.trashed));
        let condemned: BTreeSet<SpaceId> = spaces.condemned().iter().map(|space| space.id()).collect();
        assert_eq!(condemned, self.condemned);
        for (id, (_, fill)) in &self.whole {
            expect_all(lab, &spaces.get(*id).ok_or("a space is not found")?, *fill).await?;
        }
        Ok(())
    }
}

async fn act(model: &Rc<RefCell<Model>>, lab: &Lab, spaces: &Rc<Spaces>) -> Outcome {
    let operation = model.borrow_mut().below(9);
    let name = model.borrow_mut().name();
    let is_taken = model.borrow().is_taken(&name);
    match operation {
        0..=2 => {
            model.borrow_mut().fills += 1;
            let (fill, resiliency) = (model.borrow().fills, [MIRROR, PARITY][usize::from(operation == 0)]);
            match filled(lab, spaces, (&name, resiliency), ROWS_OF_MODEL, fill).await {
                Ok(space) if !is_taken => _ = model.borrow_mut().whole.insert(space.id(), (name, fill)),
                Ok(_) => return Err("a name was given twice".into()),
                Err(error) => assert!(is_taken, "{error}"),
            }
        }
        3 | 4 => {
            let Some(id) = model.borrow_mut().any(|model| &model.whole) else { return Ok(()) };
            spaces.trash().move_to_trash(&spaces.get(id).unwrap(), NOW_S).await?;
            let known = model.borrow_mut().whole.remove(&id).unwrap();
            model.borrow_mut().trashed.insert(id, known);
        }
        5 | 6 => {
            let Some(id) = model.borrow_mut().any(|model| &model.trashed) else { return Ok(()) };
            let restored = spaces.trash().restore(&spaces.get_kept(id).unwrap(), Some(name.parse()?)).await;
            assert_eq!(restored.is_ok(), !is_taken, "{restored:?}");
            if !is_taken {
                let (_, fill) = model.borrow_mut().trashed.remove(&id).unwrap();
                model.borrow_mut().whole.insert(id, (name, fill));
            }
        }
        7 => {
            let Some(id) = model.borrow_mut().any(|model| &model.trashed) else { return Ok(()) };
            spaces.trash().condemn(&spaces.get_kept(id).unwrap()).await?;
            model.borrow_mut().trashed.remove(&id);
            model.borrow_mut().condemned.insert(id);
        }
        _ => {
            purge(spaces).await?;
            model.borrow_mut().condemned.clear();
        }
    }
    Ok(())
}
