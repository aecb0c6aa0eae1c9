//! Disks that are lost for good are declared lost: what they alone had is an error, and nothing else is (docs/design/0025).
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::error::Error;
use std::rc::Rc;
use std::time::Duration;

use dolmen_block_io::sleep;
use dolmen_pool::{Disk, ExcludeReason, PoolError, Role};
use dolmen_sim::{Fate, PendingWrite};
use dolmen_space::{Clients, DeclaredLost, Progress, Resiliency, Space, SpaceError, SpaceSpec, Spaces};
use dolmen_units::Bytes;

use crate::harness::slow_disks::{Dial, Slow};
use crate::harness::{Bench, Lab, Outcome, ROW, pattern, places_of, read};

/// Where the data of a disk begins.
const DATA_AT: u64 = 9 << 20;
const SIZE: Bytes = Bytes::mib(16);
const BLOCK: u64 = 4096;
const INTERLEAVE: u64 = 64 << 10;
/// Rows that are written, and how much of each.
const ROWS: u64 = 12;
const WRITTEN: u64 = 512 << 10;
/// What a space held that is no more: it stands on all disks wherever nobody has written since.
const OF_ANOTHER: u8 = 99;

/// Spaces, their columns, and how many disks are lost at once.
const LOSSES: [(Resiliency, Option<u8>, usize); 8] = [
    (Resiliency::Simple, None, 1),
    (Resiliency::Span, None, 1),
    (Resiliency::Mirror { copies: 2 }, Some(1), 2),
    (Resiliency::Mirror { copies: 2 }, Some(2), 2),
    (Resiliency::Mirror { copies: 2 }, Some(1), 3),
    (Resiliency::Parity { parity: 1 }, Some(2), 2),
    (Resiliency::Parity { parity: 1 }, Some(2), 3),
    (Resiliency::Parity { parity: 2 }, Some(2), 3),
];

fn spec_of(name: &str, (resiliency, columns): (Resiliency, Option<u8>)) -> SpaceSpec {
    let mut spec = SpaceSpec::usual(name.parse().unwrap(), SIZE, resiliency);
    (spec.row, spec.columns) = (Some(ROW), columns);
    if columns.is_some() {
        spec.interleave = Bytes(INTERLEAVE);
    }
    spec
}

/// Writes all over the disks, and gives the room back.
async fn leave_traces(lab: &Lab, spaces: &Rc<Spaces>, rows: u64) -> Outcome {
    let mut spec = spec_of("before", (Resiliency::Simple, Some(1)));
    spec.size = Bytes::mib(rows);
    let space = spaces.create(spec).await?;
    for row in 0..rows {
        lab.write(&space, row << 20, 1 << 20, OF_ANOTHER).await?;
    }
    spaces.flush().await?;
    Ok(spaces.changes().delete(&space).await?)
}

async fn fill(lab: &Lab, spaces: &Spaces, space: &Space, fill: u8) -> Outcome {
    for row in 0..ROWS {
        lab.write(space, row << 20, usize::try_from(WRITTEN)?, fill).await?;
    }
    Ok(spaces.flush().await?)
}

/// A space with content 1, where somebody else's was before.
async fn filled_over_traces(
    lab: &Lab,
    spaces: &Rc<Spaces>,
    of_space: (Resiliency, Option<u8>),
) -> Result<Space, Box<dyn Error>> {
    leave_traces(lab, spaces, 150).await?;
    let space = spaces.create(spec_of("data", of_space)).await?;
    fill(lab, spaces, &space, 1).await?;
    Ok(space)
}

/// Writes content 2 over the first blocks of each row, and flushes nothing.
async fn write_over(lab: &Lab, space: &Space) -> Outcome {
    for row in 0..ROWS {
        lab.write(space, row << 20, 16 << 10, 2).await?;
    }
    Ok(())
}

/// Disks are lost one after another, and each but the last misses what is written and flushed behind that.
async fn lose_one_by_one(lab: &Lab, spaces: &Rc<Spaces>, space: &Space, names: &[&str]) -> Outcome {
    for name in names {
        lose(spaces, &[name]).await?;
        if Some(name) != names.last() {
            fill(lab, spaces, space, 1).await?;
        }
    }
    Ok(())
}

/// Power takes what was on its way to data along, and nothing else.
fn data_is_lost(write: &PendingWrite) -> Fate {
    if write.at < DATA_AT { Fate::Landed } else { Fate::Lost }
}

/// The blocks of what was written that cannot be read; all others are what was written last.
async fn unreadable(space: &Space, fill: u8) -> Result<BTreeSet<u64>, Box<dyn Error>> {
    let mut lost = BTreeSet::new();
    let mut expected = vec![0; usize::try_from(BLOCK)?];
    for at in (0..ROWS).flat_map(|row| ((row << 20)..(row << 20) + WRITTEN).step_by(4096)) {
        match space.read(at, expected.len()).await {
            Ok(_) => {
                pattern(at, fill, &mut expected);
                if read(space, at, expected.len()).await? != expected {
                    return Err(format!("the block at {at} is not what was written").into());
                }
            }
            Err(SpaceError::Unreadable { .. }) => drop(lost.insert(at)),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(lost)
}

/// What was said to be lost, of what was written.
fn reported(declared_lost: &DeclaredLost) -> BTreeSet<u64> {
    let blocks =
        declared_lost.lost.iter().flat_map(|range| (range.at..range.at + range.length.0).step_by(4096));
    blocks.filter(|at| at % ROW.0 < WRITTEN && at / ROW.0 < ROWS).collect()
}

/// Looks whether the map is sound, of a pool that has lost something, and closes it.
async fn close(spaces: &Rc<Spaces>) -> Outcome {
    assert_eq!(spaces.scrubs().check_map().await?, Vec::<String>::new());
    Ok(spaces.close().await?)
}

async fn lose(spaces: &Rc<Spaces>, names: &[&str]) -> Outcome {
    let pool = spaces.pool();
    for name in names {
        pool.exclude(pool.members().find_disk(name)?.slot(), ExcludeReason::Asked).await?;
    }
    Ok(())
}

/// Writes disks off and has them leave.
async fn declare_lost(spaces: &Rc<Spaces>, names: &[&str]) -> Result<DeclaredLost, Box<dyn Error>> {
    let pool = spaces.pool();
    for name in names {
        let disk = pool.members().find_disk(name)?;
        pool.membership().retire(&disk).await?;
        pool.membership().declare_lost(&disk).await?;
    }
    leave(spaces).await
}

/// Has those leave that are about to, and exchanges what was declared lost.
async fn leave(spaces: &Rc<Spaces>) -> Result<DeclaredLost, Box<dyn Error>> {
    let declared_lost = spaces.members().declare_rows_lost(&Progress::default()).await?;
    // A row that lacks several copies keeps its slabs on lost disks until it has all of the others.
    for _ in 0..2 * spaces.moves().drains().len() {
        for disk in spaces.moves().drains() {
            if spaces.moves().drain_disk(&disk, &Progress::default()).await? {
                spaces.pool().membership().evict(&disk).await?;
            }
        }
    }
    let left: Vec<String> = spaces.moves().drains().iter().map(|disk| disk.name()).collect();
    if left.is_empty() { Ok(declared_lost) } else { Err(format!("{left:?} keep something").into()) }
}

/// Scenario: more disks are lost than a space survives, beside one that survives it. What it said that would be lost is what is
/// lost, block by block; all the rest is there; writing mends; the disks have left, and the pool is sound, also when it is opened
/// again.
#[test]
fn what_lost_disks_alone_had_is_an_error_and_nothing_else_is() {
    for (resiliency, columns, count) in LOSSES {
        let names = &["disk0", "disk1", "disk2"][..count];
        let bench = Bench::new(7900, 8, Bytes::mib(96));
        let had_losses = Rc::new(Cell::new(false));
        let noted = Rc::clone(&had_losses);
        let verified = bench.run(async move |lab| {
            let spaces = lab.create().await?;
            leave_traces(&lab, &spaces, 300).await?;
            let space = spaces.create(spec_of("data", (resiliency, columns))).await?;
            let safe = spaces
                .create(spec_of("safe", (Resiliency::Mirror { copies: u8::try_from(count)? + 1 }, Some(1))))
                .await?;
            fill(&lab, &spaces, &space, 1).await?;
            fill(&lab, &spaces, &safe, 2).await?;
            lose(&spaces, names).await?;
            let before = unreadable(&space, 1).await?;
            noted.set(!before.is_empty());
            let alone = spaces.members().only_on_absent().await?;
            assert!(alone.ranges.keys().all(|id| *id == space.id()), "{alone:?}");
            assert_eq!(before.is_empty(), !alone.ranges.contains_key(&space.id()), "{alone:?}");
            let declared_lost = declare_lost(&spaces, names).await?;
            assert_eq!(unreadable(&space, 1).await?, before);
            assert_eq!(reported(&declared_lost), before);
            assert!(unreadable(&safe, 2).await?.is_empty());
            assert_eq!(spaces.pool().disks().len(), 8 - count);
            spaces.flush().await?;
            assert_eq!(spaces.scrubs().check_map().await?, Vec::<String>::new());
            let seen = spaces.scrubs().verify(&Progress::default()).await?;
            assert_eq!(seen.lost, declared_lost.lost);
            drop((space, safe));
            spaces.close().await?;
            Ok(())
        });
        verified.unwrap_or_else(|error| panic!("{resiliency:?} {columns:?} without {names:?}: {error}"));
        assert!(had_losses.get(), "{resiliency:?} {columns:?} survives {names:?}");
        let reopened = bench.run(async move |lab| {
            let spaces = lab.open().await?;
            let (space, safe) = (spaces.find("data")?, spaces.find("safe")?);
            let lost = unreadable(&space, 1).await?;
            assert!(unreadable(&safe, 2).await?.is_empty());
            // What is given back is nothing again.
            let first = *lost.first().unwrap();
            space.discard(first, BLOCK).await?;
            assert_eq!(read(&space, first, usize::try_from(BLOCK)?).await?, [0; 4096]);
            // All of the rows: of what shares a page with what is lost nobody knows whether it was ever written.
            for row in 0..SIZE.0 / ROW.0 {
                lab.write(&space, row << 20, 1 << 20, 3).await?;
            }
            spaces.flush().await?;
            assert!(unreadable(&space, 3).await?.is_empty());
            let seen = spaces.scrubs().verify(&Progress::default()).await?;
            assert!(seen.is_sound(), "{:?}", seen.lost);
            drop((space, safe));
            lab.check_and_close(spaces).await
        });
        reopened.unwrap_or_else(|error| panic!("{resiliency:?} {columns:?} opened again: {error}"));
    }
}

/// Scenario: of two disks that are away one is declared lost. What the other may have is waited for, and comes back with it; what
/// the first alone had is declared lost.
#[test]
fn what_may_come_back_is_not_declared_lost() {
    let bench = Bench::new(7910, 6, Bytes::mib(96));
    let other = bench.disks[1].attach(&bench.world);
    let verified = bench.run(async move |lab| {
        let spaces = lab.create().await?;
        let mirror = spaces.create(spec_of("mirror", (Resiliency::Mirror { copies: 2 }, Some(1)))).await?;
        let parity = spaces.create(spec_of("parity", (Resiliency::Parity { parity: 1 }, Some(2)))).await?;
        fill(&lab, &spaces, &mirror, 1).await?;
        fill(&lab, &spaces, &parity, 2).await?;
        lose(&spaces, &["disk0", "disk1"]).await?;
        assert!(!unreadable(&mirror, 1).await?.is_empty() && !unreadable(&parity, 2).await?.is_empty());
        let pool = spaces.pool();
        let disk = pool.members().find_disk("disk0")?;
        assert!(
            matches!(pool.membership().declare_lost(&disk).await, Err(PoolError::NotReplaced { .. })),
            "it is to stay"
        );
        assert!(spaces.members().lost_without(&disk).await?.is_nothing());
        pool.membership().retire(&disk).await?;
        pool.membership().declare_lost(&disk).await?;
        let declared_lost = spaces.members().declare_rows_lost(&Progress::default()).await?;
        assert_eq!(declared_lost, DeclaredLost::default());
        assert!(
            !spaces.moves().drain_disk(&disk, &Progress::default()).await?,
            "the other one may come back"
        );
        spaces.members().rejoin(other).await?;
        spaces.members().resync(&Progress::default()).await?;
        assert!(unreadable(&mirror, 1).await?.is_empty() && unreadable(&parity, 2).await?.is_empty());
        assert_eq!(leave(&spaces).await?, DeclaredLost::default());
        assert_eq!(pool.disks().len(), 5);
        drop((mirror, parity));
        lab.check_and_close(spaces).await
    });
    verified.unwrap();
}

/// A space with content 1, of which the first blocks of each row have content 2 since `disk1` is away; and `disk0` is lost, is about to leave
/// and declared lost.
async fn one_lost_one_out_of_date(
    lab: &Lab,
    of_space: (Resiliency, Option<u8>),
) -> Result<(Rc<Spaces>, Space, Rc<Disk>), Box<dyn Error>> {
    let spaces = lab.create().await?;
    let space = filled_over_traces(lab, &spaces, of_space).await?;
    lose(&spaces, &["disk1"]).await?;
    write_over(lab, &space).await?;
    spaces.flush().await?;
    spaces.caches().destage().await?;
    spaces.pool().checkpoint().await?;
    lose(&spaces, &["disk0"]).await?;
    let disk = spaces.pool().members().find_disk("disk0")?;
    spaces.pool().membership().retire(&disk).await?;
    spaces.pool().membership().declare_lost(&disk).await?;
    Ok((spaces, space, disk))
}

/// Scenario: a disk is away and out of date when another one is lost and declared lost. It may have some of that, and is waited
/// for; when it is back, what was not written since it left is there, what was is an error, and nothing is what it was before.
#[test]
fn what_is_out_of_date_is_waited_for_and_gives_what_it_has() {
    let parity = (Resiliency::Parity { parity: 1 }, Some(2));
    for (number, of_space) in (0..).zip([MIRROR.0, parity]) {
        let bench = Bench::new(7917 + number, 6, Bytes::mib(96));
        let other = bench.disks[1].attach(&bench.world);
        let verified = bench.run(async move |lab| {
            let (spaces, space, disk) = one_lost_one_out_of_date(&lab, of_space).await?;
            let away = unreadable_of(&space, 2..=2).await?;
            assert!(spaces.members().lost_without(&disk).await?.is_nothing());
            let declared_lost = spaces.members().declare_rows_lost(&Progress::default()).await?;
            assert_eq!(
                (declared_lost, unreadable_of(&space, 2..=2).await?),
                (DeclaredLost::default(), away.clone())
            );
            spaces.members().rejoin(other).await?;
            spaces.members().resync(&Progress::default()).await?;
            leave(&spaces).await?;
            let lost = unreadable_of(&space, 2..=2).await?;
            assert!(lost.is_subset(&away) && !lost.is_empty(), "{lost:?} of {away:?}");
            // With parity, what shares a stripe with what was written is lost with it.
            let was_written = |at: &u64| at % INTERLEAVE < 16 << 10;
            assert!(lost.iter().all(was_written), "what was not written since is there: {lost:?}");
            fill(&lab, &spaces, &space, 3).await?;
            assert!(unreadable(&space, 3).await?.is_empty());
            drop(space);
            lab.check_and_close(spaces).await
        });
        verified.unwrap_or_else(|error| panic!("{of_space:?}: {error}"));
    }
}

/// Scenario: the same, and the pool is opened again in between, so that nobody knows any more what was written behind the back of
/// the disk that is out of date. What it has is not taken for that.
#[test]
fn what_is_out_of_date_is_not_believed_by_its_own_table() {
    let bench = Bench::new(8040, 6, Bytes::mib(96));
    let begun = bench.run(async move |lab| {
        let (spaces, space, _) = one_lost_one_out_of_date(&lab, MIRROR.0).await?;
        lab.hold((spaces, space));
        Ok(())
    });
    begun.unwrap();
    bench.world.power_cut();
    let verified = bench.run_in(bench.lab_with(|number| number != 0), async move |lab| {
        let spaces = lab.open().await?;
        let space = spaces.find("data")?;
        go_on(&spaces).await?;
        assert!(!unreadable_of(&space, 2..=2).await?.is_empty());
        drop(space);
        close(&spaces).await
    });
    verified.unwrap();
}

/// Scenario: the same, and that disk leaves once more, anywhere while the other one is declared lost, and comes back. Nothing more is
/// lost for that.
#[test]
fn a_disk_that_leaves_while_it_is_asked_for_what_it_has_is_not_passed_over() {
    const TIMES: u32 = 8;
    let mut expected = None;
    let seen = Rc::new(Cell::new(0));
    let all = Rc::new(Cell::new(Duration::ZERO));
    for time in [None].into_iter().chain((0..TIMES).map(Some)) {
        let at = time.map(|time| all.get() * time / TIMES);
        let measured = Rc::clone(&all);
        let dial = Dial::default();
        let bench = Bench::with_profile(8050, 6, || dial.profile());
        let attach = || bench.disks[1].attach(&bench.world);
        let [first, second] = [attach(), attach()];
        let found = Rc::new(RefCell::new(BTreeSet::new()));
        let (noted, cut) = (Rc::clone(&found), Rc::clone(&seen));
        let verified = bench.run(async move |lab| {
            let (spaces, space, _) = one_lost_one_out_of_date(&lab, MIRROR.0).await?;
            spaces.members().rejoin(first).await?;
            if let Some(at) = at {
                let (working, clock) = (Rc::clone(&spaces), Rc::clone(&lab.seams.clock));
                let leaves = async move {
                    sleep(clock.as_ref(), at).await;
                    lose(&working, &["disk1"]).await.unwrap();
                };
                lab.seams.spawner.spawn("leave", Box::pin(leaves));
            }
            let began = lab.seams.clock.now();
            dial.read.set(1);
            let declared_lost = spaces.members().declare_rows_lost(&Progress::default()).await?;
            dial.read.set(0);
            cut.set(cut.get() + u32::from(declared_lost.rows == 0));
            if at.is_none() {
                measured.set(lab.seams.clock.now().since(began));
            } else {
                sleep(lab.seams.clock.as_ref(), measured.get()).await;
                spaces.members().rejoin(second).await?;
            }
            leave(&spaces).await?;
            spaces.members().resync(&Progress::default()).await?;
            noted.replace(unreadable_of(&space, 2..=2).await?);
            drop(space);
            close(&spaces).await
        });
        verified.unwrap_or_else(|error| panic!("left after {at:?}: {error}"));
        let lost = found.take();
        assert_eq!(expected.get_or_insert_with(|| lost.clone()), &lost, "left after {at:?}");
    }
    assert!(seen.get() > 2, "it left within: {seen:?}");
}

/// A pool whose space has one copy, of which a disk is lost for good, has begun to leave and is declared lost.
async fn lost_with_what_it_alone_has(lab: &Lab) -> Result<(Rc<Spaces>, Space, Rc<Disk>), Box<dyn Error>> {
    let spaces = lab.create().await?;
    let space = spaces.create(spec_of("data", (Resiliency::Simple, Some(1)))).await?;
    fill(lab, &spaces, &space, 1).await?;
    let disk = spaces.pool().members().find_disk("disk0")?;
    lose(&spaces, &["disk0"]).await?;
    spaces.pool().membership().retire(&disk).await?;
    spaces.pool().membership().declare_lost(&disk).await?;
    Ok((spaces, space, disk))
}

/// Scenario: a disk that is declared lost is back before it has left, and goes again. What is on it is wanted by then: it is waited
/// for, and when it is back all of it comes to the others.
#[test]
fn a_disk_that_is_back_is_not_declared_lost() {
    let bench = Bench::new(7915, 4, Bytes::mib(96));
    let attach = |bench: &Bench| bench.disks[0].attach(&bench.world);
    let [again, at_last] = [attach(&bench), attach(&bench)];
    let verified = bench.run(async move |lab| {
        let (spaces, space, disk) = lost_with_what_it_alone_has(&lab).await?;
        let pool = spaces.pool();
        assert!(pool.members().is_declared_lost(&disk));
        spaces.members().rejoin(again).await?;
        assert!(!pool.members().is_declared_lost(&disk));
        lose(&spaces, &["disk0"]).await?;
        assert_eq!(leave(&spaces).await.unwrap_err().to_string(), "[\"disk0\"] keep something");
        spaces.members().rejoin(at_last).await?;
        assert_eq!(leave(&spaces).await?, DeclaredLost::default());
        assert!(unreadable(&space, 1).await?.is_empty());
        assert_eq!(pool.disks().len(), 3);
        drop(space);
        lab.check_and_close(spaces).await
    });
    verified.unwrap();
}

/// Scenario: a removal that gives up is called off, and the disk is removed again one day by somebody who gives nothing up.
#[test]
fn declaring_a_disk_lost_counts_for_one_removal() {
    let bench = Bench::new(7920, 4, Bytes::mib(96));
    let verified = bench.run(async move |lab| {
        let (spaces, space, disk) = lost_with_what_it_alone_has(&lab).await?;
        let pool = spaces.pool();
        pool.membership().reinstate(&disk).await?;
        pool.membership().retire(&disk).await?;
        assert!(!pool.members().is_declared_lost(&disk));
        assert_eq!(spaces.members().declare_rows_lost(&Progress::default()).await?, DeclaredLost::default());
        assert!(!spaces.moves().drain_disk(&disk, &Progress::default()).await?);
        drop(space);
        close(&spaces).await
    });
    verified.unwrap();
}

/// Scenario: blocks are being written over when the last disk that has them leaves, and nobody has flushed. Then it is declared
/// lost, and perhaps power fails behind that. What somebody else left where its slabs are now is nobody's.
#[test]
fn what_was_being_written_is_not_what_somebody_else_left_there() {
    for is_cut in [false, true] {
        let bench = Bench::new(7930, 4, Bytes::mib(96));
        let verified = bench.run(async move |lab| {
            let spaces = lab.create().await?;
            let space = filled_over_traces(&lab, &spaces, SIMPLE.0).await?;
            write_over(&lab, &space).await?;
            lose(&spaces, &["disk0"]).await?;
            let lost = unreadable_of_either(&space).await?;
            assert!(!lost.is_empty());
            declare_lost(&spaces, &["disk0"]).await?;
            assert_eq!(unreadable_of_either(&space).await?, lost);
            let reported = space.flush().await;
            assert!(matches!(reported, Err(SpaceError::Unflushed { .. })), "what was acknowledged is gone");
            space.flush().await?;
            if is_cut {
                lab.hold((spaces, space));
                return Ok(());
            }
            drop(space);
            close(&spaces).await
        });
        verified.unwrap_or_else(|error| panic!("power fails: {is_cut}: {error}"));
        if is_cut {
            bench.world.power_cut();
        }
        let reopened = reopen(&bench);
        reopened.unwrap_or_else(|error| panic!("opened again, power failed: {is_cut}: {error}"));
    }
}

/// Opens the pool once more: something is lost, and nothing is read that was never written.
fn reopen(bench: &Bench) -> Outcome {
    bench.run(async move |lab| {
        let spaces = lab.open().await?;
        let space = spaces.find("data")?;
        assert!(!unreadable_of_either(&space).await?.is_empty());
        drop(space);
        close(&spaces).await
    })
}

/// As [`unreadable`], of blocks of which the first of each row were written over and not flushed.
async fn unreadable_of_either(space: &Space) -> Result<BTreeSet<u64>, Box<dyn Error>> {
    unreadable_of(space, 1..=2).await
}

/// The same, where the first blocks of each row may have one of these contents, and all others have 1.
async fn unreadable_of(
    space: &Space,
    of_first: std::ops::RangeInclusive<u8>,
) -> Result<BTreeSet<u64>, Box<dyn Error>> {
    let mut lost = BTreeSet::new();
    let mut expected = vec![0; usize::try_from(BLOCK)?];
    for at in (0..ROWS).flat_map(|row| ((row << 20)..(row << 20) + WRITTEN).step_by(4096)) {
        let Ok(found) = read(space, at, expected.len()).await else {
            lost.insert(at);
            continue;
        };
        let fills = if at % ROW.0 < 16 << 10 { of_first.clone() } else { 1..=1 };
        let is_one = fills.into_iter().any(|fill| {
            pattern(at, fill, &mut expected);
            found == expected
        });
        if !is_one {
            return Err(format!("the block at {at} is nothing that was ever written there").into());
        }
    }
    Ok(lost)
}

/// Scenario: what was lost is written over, and power fails when that has begun, so that it is neither here nor there. What lies in its
/// place is somebody else's: it is an error, also where nobody could decide any more what the block was.
#[test]
fn what_is_written_over_what_was_lost_is_not_what_somebody_else_left_there() {
    for (number, (loss, is_in_doubt)) in
        (0..).zip([(SIMPLE, false), (SIMPLE, true), (MIRROR, false), (MIRROR, true)])
    {
        let bench = Bench::new(7950 + number, 6, Bytes::mib(96));
        let begun = bench.run(async move |lab| {
            let spaces = lab.create().await?;
            let (of_space, names) = loss;
            let space = filled_over_traces(&lab, &spaces, of_space).await?;
            let (last, others) = names.split_last().ok_or("a disk is lost")?;
            lose(&spaces, others).await?;
            write_over(&lab, &space).await?;
            if !is_in_doubt {
                spaces.flush().await?;
            }
            lose(&spaces, &[last]).await?;
            assert!(!unreadable_of_either(&space).await?.is_empty());
            declare_lost(&spaces, names).await?;
            spaces.flush().await?;
            write_over(&lab, &space).await?;
            lab.hold((spaces, space));
            Ok(())
        });
        begun.unwrap();
        bench.world.power_cut_choosing(&mut data_is_lost);
        let reopened = reopen(&bench);
        reopened.unwrap_or_else(|error| panic!("{loss:?}, in doubt: {is_in_doubt}: {error}"));
    }
}

/// Scenario: a row lay on a disk, went to another one, was written over there, and comes back to the very place because that one
/// is lost. What its tables said when it lay there first does not count.
#[test]
fn tables_of_before_are_not_believed() {
    let bench = Bench::new(7940, 3, Bytes::mib(96));
    let lost = Rc::new(Cell::new(String::new()));
    let noted = Rc::clone(&lost);
    let filled = bench.run(async move |lab| {
        let spaces = lab.create().await?;
        let pool = spaces.pool();
        let [first, second, third] =
            ["disk0", "disk1", "disk2"].map(|name| pool.members().find_disk(name).unwrap());
        // One takes nothing, so that what leaves the one goes to the other.
        pool.membership().set_role(&third, Some(Role::Idle)).await?;
        let mut spec = spec_of("data", (Resiliency::Span, None));
        spec.size = Bytes::mib(4);
        let space = spaces.create(spec).await?;
        let write_all = async |fill: u8| -> Outcome {
            for row in 0..4 {
                lab.write(&space, row << 20, 1 << 20, fill).await?;
            }
            Ok(spaces.flush().await?)
        };
        write_all(1).await?;
        pool.checkpoint().await?;
        let [from, to] = match spaces.moves().has_nothing_on(&first, space.id()) {
            true => [second, first],
            false => [first, second],
        };
        let held = room_taken(&spaces, &from);
        pool.membership().retire(&from).await?;
        assert!(spaces.moves().drain_disk(&from, &Progress::default()).await?);
        pool.membership().reinstate(&from).await?;
        write_all(2).await?;
        assert!(room_taken(&spaces, &from) < held && held == room_taken(&spaces, &to));
        noted.set(to.name());
        drop(space);
        lab.check_and_close(spaces).await
    });
    filled.unwrap();
    let lost = lost.take();
    let number: usize = lost.trim_start_matches("disk").parse().unwrap();
    let verified = bench.run_in(bench.lab_with(|other| other != number), async move |lab| {
        let spaces = lab.open().await?;
        let space = spaces.find("data")?;
        let disk = spaces.pool().disks().into_iter().find(|disk| !disk.is_present()).unwrap();
        spaces.pool().membership().retire(&disk).await?;
        spaces.pool().membership().declare_lost(&disk).await?;
        let declared_lost = leave(&spaces).await?;
        assert_eq!(declared_lost.rows, 4, "{declared_lost:?}");
        for at in (0..4 << 20).step_by(4096) {
            assert!(read(&space, at, 4096).await.is_err(), "the block at {at} is what it was before");
        }
        drop(space);
        close(&spaces).await
    });
    verified.unwrap();
}

fn room_taken(spaces: &Spaces, disk: &Disk) -> Bytes {
    let room = spaces.pool().free_space().room().into_iter().find(|room| room.slot == disk.slot());
    room.map_or(Bytes::ZERO, |room| Bytes(room.data.0 - room.free.0))
}

/// Power fails so often, spread evenly over all that it takes to declare disks lost.
const CUTS: u32 = 48;

/// What is declared lost: a space, and disks that it is lost with.
type Loss = ((Resiliency, Option<u8>), &'static [&'static str]);

/// A mirror has lost both disks of some of its rows.
const MIRROR: Loss = ((Resiliency::Mirror { copies: 2 }, Some(1)), &["disk0", "disk1"]);
const SIMPLE: Loss = ((Resiliency::Simple, Some(1)), &["disk0"]);

/// A space has lost all copies of some of its rows, and the disks are declared lost from some moment on, for so long; how long it
/// took, and what cannot be read.
fn write_lost_off(bench: &Bench, loss: Loss, within: Option<Duration>) -> (Duration, BTreeSet<u64>) {
    let (of_space, names) = loss;
    let seen = Rc::new(Cell::new((Duration::ZERO, BTreeSet::new())));
    let noted = Rc::clone(&seen);
    let begun = bench.run(async move |lab| {
        let spaces = lab.create().await?;
        let space = filled_over_traces(&lab, &spaces, of_space).await?;
        lose_one_by_one(&lab, &spaces, &space, names).await?;
        let lost = unreadable(&space, 1).await?;
        let began = lab.seams.clock.now();
        match within {
            None => drop(declare_lost(&spaces, names).await?),
            Some(within) => {
                let working = Rc::clone(&spaces);
                let work = async move {
                    declare_lost(&working, names).await.unwrap();
                };
                lab.seams.spawner.spawn("declare lost", Box::pin(work));
                sleep(lab.seams.clock.as_ref(), within).await;
            }
        }
        noted.set((lab.seams.clock.now().since(began), lost));
        lab.hold((spaces, space));
        Ok(())
    });
    begun.unwrap();
    bench.world.power_cut();
    seen.take()
}

/// Scenario: power fails anywhere while two of a mirror's disks are declared lost. What can be had is there all the time, and what
/// is lost is an error; the next opening goes on by itself.
#[test]
fn an_interrupted_declaration_of_loss_continues() {
    let bench = |seed| Bench::with_profile(7950 + seed, 6, || Slow::BRIEFLY.profile());
    let (all, _) = write_lost_off(&bench(0), MIRROR, None);
    let mut seen = [0, 0];
    for cut in 0..CUTS {
        let bench = bench(u64::from(cut));
        let (_, expected) = write_lost_off(&bench, MIRROR, Some(all * cut / CUTS));
        assert!(!expected.is_empty());
        let goes_on = Rc::new(Cell::new(false));
        let reported = Rc::clone(&goes_on);
        let lab = bench.lab_with(|number| number > 1);
        let verified = bench.run_in(lab, async move |lab| {
            let spaces = lab.open_among(Clients::MayLive).await?;
            let space = spaces.find("data")?;
            assert_eq!(unreadable(&space, 1).await?, expected);
            let pool = spaces.pool();
            let are_off: Vec<bool> =
                spaces.moves().drains().iter().map(|disk| pool.members().is_declared_lost(disk)).collect();
            reported.set(!are_off.is_empty() && are_off.iter().all(|is_off| *is_off));
            go_on(&spaces).await?;
            assert_eq!(unreadable(&space, 1).await?, expected);
            assert_eq!(pool.disks().len(), 4);
            // Nothing that a client wrote went back: what is lost was lost before.
            space.flush().await?;
            drop(space);
            close(&spaces).await
        });
        verified.unwrap_or_else(|error| panic!("cut {cut}: {error}"));
        seen[usize::from(goes_on.get())] += 1;
    }
    assert!(seen[0] > 3 && seen[1] > CUTS / 2, "before it is on record, and within: {seen:?}");
}

/// Has absent disks leave; whoever was not heard to write them off is told again.
async fn go_on(spaces: &Rc<Spaces>) -> Outcome {
    let pool = spaces.pool();
    let is_reported = |disk: &Rc<Disk>| disk.is_present() || pool.members().is_declared_lost(disk);
    for disk in pool.disks().into_iter().filter(|disk| !is_reported(disk)) {
        pool.membership().retire(&disk).await?;
        pool.membership().declare_lost(&disk).await?;
    }
    leave(spaces).await.map(drop)
}

/// Scenario: power fails anywhere while a disk is declared lost, and again when what was lost is being written over. It is
/// forgotten nowhere that this was lost: nothing is read that somebody else left in its place.
#[test]
fn what_was_lost_stays_lost_over_two_power_cuts() {
    for (loss, cuts) in [(SIMPLE, CUTS), (MIRROR, CUTS / 3)] {
        let bench = |seed| Bench::with_profile(7980 + seed, 6, || Slow::BRIEFLY.profile());
        let is_here = |number: usize| number >= loss.1.len();
        let (all, _) = write_lost_off(&bench(0), loss, None);
        for cut in 0..cuts {
            let bench = bench(u64::from(cut));
            let (_, lost) = write_lost_off(&bench, loss, Some(all * cut / cuts));
            assert!(!lost.is_empty());
            let over = bench.run_in(bench.lab_with(is_here), async move |lab| {
                let spaces = lab.open().await?;
                let space = spaces.find("data")?;
                go_on(&spaces).await?;
                write_over(&lab, &space).await?;
                lab.hold((spaces, space));
                Ok(())
            });
            over.unwrap_or_else(|error| panic!("{loss:?}, cut {cut}: {error}"));
            bench.world.power_cut_choosing(&mut data_is_lost);
            let verified = bench.run_in(bench.lab_with(is_here), async move |lab| {
                let spaces = lab.open().await?;
                let space = spaces.find("data")?;
                assert_eq!(unreadable_of_either(&space).await?, lost);
                drop(space);
                close(&spaces).await
            });
            verified.unwrap_or_else(|error| panic!("{loss:?}, cut {cut}: {error}"));
        }
    }
}

/// Scenario: a replacement of a lost disk waits for what that alone had, and has claimed room for it. That is given up: the new disk
/// takes its place, and nothing takes more room than before.
#[test]
fn a_replacement_of_a_disk_declared_lost_ends() {
    let bench = Bench::new(7960, 4, Bytes::mib(96));
    let device = bench.world.add_disk("new", crate::harness::file(Bytes::mib(96))).attach(&bench.world);
    let verified = bench.run(async move |lab| {
        let spaces = lab.create().await?;
        let space = spaces.create(spec_of("data", (Resiliency::Simple, Some(2)))).await?;
        fill(&lab, &spaces, &space, 1).await?;
        let pool = spaces.pool();
        let held = pool.free_space().used();
        let old = pool.members().find_disk("disk0")?;
        lose(&spaces, &["disk0"]).await?;
        let lost = unreadable(&space, 1).await?;
        let new = pool.membership().add_instead_of(&old, device, &[]).await?;
        assert!(!spaces.moves().finish_replacing(&old, &new, &Progress::default()).await?, "nobody has it");
        assert!(!pool.members().is_declared_lost(&old));
        pool.membership().declare_lost(&old).await?;
        assert!(pool.members().is_declared_lost(&old));
        let declared_lost = spaces.members().declare_rows_lost(&Progress::default()).await?;
        assert_eq!(reported(&declared_lost), lost);
        assert!(spaces.moves().finish_replacing(&old, &new, &Progress::default()).await?);
        assert_eq!(unreadable(&space, 1).await?, lost);
        assert_eq!((pool.free_space().used(), pool.disks().len()), (held, 4));
        drop(space);
        close(&spaces).await
    });
    verified.unwrap();
}

/// Scenario: a disk that is being replaced cannot read much of what it has, so that no row is trusted on the new one; then it is lost.
/// What the new disk was given before is kept.
#[test]
fn what_a_new_disk_was_given_is_not_declared_lost() {
    let bench = Rc::new(Bench::new(8030, 4, Bytes::mib(96)));
    let device = bench.world.add_disk("new", crate::harness::file(Bytes::mib(96))).attach(&bench.world);
    let inside = Rc::clone(&bench);
    let verified = bench.run(async move |lab| {
        let spaces = lab.create().await?;
        let space = filled_over_traces(&lab, &spaces, SIMPLE.0).await?;
        let pool = spaces.pool();
        let old = pool.members().find_disk("disk0")?;
        let there = places_of(&inside.disks[0], 0..ROWS * ROW.0 / BLOCK, 1);
        there.iter().step_by(4).for_each(|at| inside.disks[0].make_unreadable(*at));
        let new = pool.membership().add_instead_of(&old, device, &[]).await?;
        assert!(
            !spaces.moves().finish_replacing(&old, &new, &Progress::default()).await?,
            "it reads too little"
        );
        lose(&spaces, &["disk0"]).await?;
        let away = unreadable(&space, 1).await?;
        assert_eq!(away.len(), there.len());
        pool.membership().declare_lost(&old).await?;
        spaces.members().declare_rows_lost(&Progress::default()).await?;
        let lost = unreadable(&space, 1).await?;
        assert!(lost.is_subset(&away));
        assert!(lost.len() < away.len(), "all of it is given up: {} blocks", lost.len());
        assert!(spaces.moves().finish_replacing(&old, &new, &Progress::default()).await?);
        assert_eq!(unreadable(&space, 1).await?, lost);
        drop(space);
        close(&spaces).await
    });
    verified.unwrap();
}

/// Scenario: the replacement is called off behind that. The old disk is a member like any other, and nothing of it is declared lost, also
/// when it is replaced after all.
#[test]
fn a_replacement_that_is_called_off_is_not_declared_lost() {
    let bench = Bench::new(7970, 4, Bytes::mib(96));
    let device = bench.world.add_disk("new", crate::harness::file(Bytes::mib(96))).attach(&bench.world);
    let verified = bench.run(async move |lab| {
        let spaces = lab.create().await?;
        let space = spaces.create(spec_of("data", (Resiliency::Simple, Some(2)))).await?;
        fill(&lab, &spaces, &space, 1).await?;
        let pool = spaces.pool();
        let old = pool.members().find_disk("disk0")?;
        lose(&spaces, &["disk0"]).await?;
        let new = pool.membership().add_instead_of(&old, device, &[]).await?;
        pool.membership().declare_lost(&old).await?;
        spaces.moves().call_off(&old, &new).await?;
        assert!(!pool.members().is_declared_lost(&old));
        // That is called off as well.
        spaces.moves().call_off(&new, &old).await?;
        assert!(!pool.members().is_declared_lost(&old));
        assert_eq!(spaces.members().declare_rows_lost(&Progress::default()).await?, DeclaredLost::default());
        drop(space);
        close(&spaces).await
    });
    verified.unwrap();
}
