//! New slabs go to disks that are slow or failing last, and a failing one is emptied (docs/design/0022).
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use std::cell::Cell;
use std::error::Error;
use std::rc::Rc;

use dolmen_pool::{Ailment, ExcludeReason, Pool, Purpose};
use dolmen_space::{Emptied, Progress, Resiliency, Space, SpaceSpec, Spaces};
use dolmen_units::Bytes;

use crate::harness::slow_disks::{ROWS, Slow, expect_all, extra, pause, text, write_on};
use crate::harness::{Bench, Lab, Outcome, ROW};

const MIRROR: Resiliency = Resiliency::Mirror { copies: 2 };
const SIZE: Bytes = Bytes::mib(16);

/// Every kind of space that five disks carry with one to spare, with columns where rows must not be as wide as there are disks.
const KINDS: [(Resiliency, Option<u8>); 6] = [
    (Resiliency::Simple, None),
    (Resiliency::Span, None),
    (MIRROR, None),
    (Resiliency::Mirror { copies: 3 }, None),
    (Resiliency::Parity { parity: 1 }, Some(3)),
    (Resiliency::Parity { parity: 2 }, Some(2)),
];

async fn space_of(
    spaces: &Spaces,
    size: Bytes,
    (resiliency, columns): (Resiliency, Option<u8>),
) -> Result<Space, Box<dyn Error>> {
    let mut spec = SpaceSpec::usual("data".parse()?, size, resiliency);
    (spec.row, spec.interleave) = (Some(ROW), Bytes::kib(64));
    spec.columns = columns.or(spec.columns);
    Ok(spaces.create(spec).await?)
}

/// Says what is known against some disks.
fn ail(pool: &Pool, names: &[&str], ailment: Ailment) -> Outcome {
    for name in names {
        pool.members().find_disk(name)?.set_ailment(Some(ailment));
    }
    Ok(())
}

fn used_on(pool: &Pool, name: &str) -> Result<u64, Box<dyn Error>> {
    let slot = pool.members().find_disk(name)?.slot();
    let room = pool.free_space().room().into_iter().find(|room| room.slot == slot).unwrap();
    Ok(room.data.0 - room.free.0)
}

/// How many rows were laid before a disk was first used, and in all before the pool was full.
async fn fill(
    lab: Lab,
    resiliency: Resiliency,
    failing: &[&str],
    ailment: Ailment,
) -> Result<(u64, u64), Box<dyn Error>> {
    let spaces = lab.create().await?;
    let space = space_of(&spaces, Bytes::gib(1), (resiliency, None)).await?;
    ail(spaces.pool(), failing, ailment)?;
    let watched = failing.first().copied().unwrap_or("disk1");
    let unused = used_on(spaces.pool(), watched)?;
    let (mut before, mut all) = (0, 0);
    while lab.write(&space, all << 20, 4096, 1).await.is_ok() {
        all += 1;
        if used_on(spaces.pool(), watched)? == unused {
            before = all;
        }
    }
    for row in 0..all {
        lab.expect(&space, row << 20, 4096, 1).await?;
    }
    drop(space);
    lab.check_and_close(spaces).await?;
    Ok((before, all))
}

fn filled(resiliency: Resiliency, failing: &'static [&'static str], ailment: Ailment) -> (u64, u64) {
    let bench = Bench::new(7200, 4, Bytes::mib(96));
    let found = Rc::new(Cell::default());
    let into = Rc::clone(&found);
    let run = bench.run(async move |lab| {
        into.set(fill(lab, resiliency, failing, ailment).await?);
        Ok(())
    });
    run.unwrap();
    found.get()
}

/// Scenario: a pool is filled while a disk of it is slow. Nothing goes there as long as that takes no room from what comes later,
/// and as much fits as if it was well.
#[test]
fn a_slow_disk_gets_new_rows_last_and_as_much_fits() {
    for resiliency in [MIRROR, Resiliency::Mirror { copies: 3 }, Resiliency::Parity { parity: 1 }] {
        let (early, well) = filled(resiliency, &[], Ailment::Slow);
        assert!(early <= 2, "{resiliency}: a disk that is well is used at once");
        let (before, all) = filled(resiliency, &["disk1"], Ailment::Slow);
        assert!(all + 1 >= well, "{resiliency}: {all} rows fit instead of {well}");
        let least = match resiliency {
            MIRROR => well / 2,
            // Rows that are as wide as there are disks, or nearly, need it from the first on.
            _ => 0,
        };
        assert!(before >= least, "{resiliency}: {before} of {all} rows were laid before it was used");
    }
}

/// Scenario: the same with disks that are failing. They are used where a row cannot be laid otherwise, and no write is refused that
/// found a place otherwise.
#[test]
fn a_failing_disk_gets_new_rows_only_where_no_other_can() {
    let (before, all) = filled(MIRROR, &["disk1"], Ailment::Failing);
    assert!(
        before > 0 && before == all,
        "a single disk takes no copy more than the others: {before} of {all}"
    );
    let (before, all) = filled(MIRROR, &["disk1", "disk2"], Ailment::Failing);
    let (_, well) = filled(MIRROR, &[], Ailment::Failing);
    assert!(before >= well / 3 && all + 1 >= well, "{before}, {all} of {well}");
    for three in [&["disk1", "disk2", "disk3"][..], &["disk0", "disk1", "disk2", "disk3"]] {
        let (_, all) = filled(MIRROR, three, Ailment::Failing);
        assert!(all + 1 >= well, "{all} of {well} with {three:?}");
    }
}

/// Scenario: all disks of one enclosure are slow, or failing. Copies are in two enclosures all the same.
#[test]
fn copies_stay_apart_where_a_whole_enclosure_ails() {
    for ailment in [Ailment::Slow, Ailment::Failing] {
        let bench = Bench::new(7300, 4, Bytes::mib(96));
        let verified = bench.run(async move |lab| {
            let two = Lab { devices: lab.devices[..2].to_vec(), ..lab.clone() };
            let spaces = two.create().await?;
            for device in &lab.devices[2..] {
                spaces.pool().membership().add_device(Rc::clone(device), &[], 7).await?;
            }
            // Two domains beside: those of the first disks; without them there is one.
            ail(spaces.pool(), &["disk0", "disk1"], ailment)?;
            let space = space_of(&spaces, SIZE, (MIRROR, None)).await?;
            for row in 0..8 {
                lab.write(&space, row << 20, 4096, 1).await?;
            }
            let pool = spaces.pool();
            for lost in ["disk2", "disk3"] {
                pool.exclude(pool.members().find_disk(lost)?.slot(), ExcludeReason::Asked).await?;
            }
            for row in 0..8 {
                lab.expect(&space, row << 20, 4096, 1).await?;
            }
            Ok(spaces.close().await?)
        });
        verified.unwrap_or_else(|error| panic!("{ailment:?}: {error}"));
    }
}

/// Scenario: a failing disk is emptied while clients write, spaces of every kind on it, and another one is failing, too. Everything is
/// there, nothing is left on the one and nothing was moved to the other, and as many disks may be lost as before.
#[test]
fn a_failing_disk_is_emptied_and_redundancy_stays() {
    for kind in KINDS {
        let bench = Bench::with_profile(7400, 6, || Slow::BRIEFLY.profile());
        let verified = bench.run(async move |lab| {
            let spaces = lab.create().await?;
            let pool = spaces.pool();
            let from = if kind.0 == Resiliency::Span { "disk0" } else { "disk1" };
            // Failing before there is anything: new rows leave it alone, and moves have to.
            ail(pool, &["disk5"], Ailment::Failing)?;
            let space = space_of(&spaces, SIZE, kind).await?;
            for row in 0..ROWS {
                lab.write(&space, row << 20, 512 << 10, 1).await?;
            }
            spaces.flush().await?;
            ail(pool, &[from], Ailment::Failing)?;
            let disk = pool.members().find_disk(from)?;
            let forecast = spaces.moves().forecast_emptying(disk.slot()).await?;
            assert!(forecast.rows > 0 && forecast.stuck.is_empty(), "{forecast:?}");
            let progress = Progress::default();
            let empty = async {
                let emptied = spaces.moves().empty_disk(&disk, || true, &progress).await.map_err(text)?;
                if emptied == Emptied::All { Ok(()) } else { Err(format!("{emptied:?}")) }
            };
            extra(vec![Box::pin(empty), Box::pin(write_on(&lab, &space))]).await?;
            spaces.flush().await?;
            for name in [from, "disk5"] {
                assert_eq!(used_on(pool, name)?, 0, "{name} holds something");
            }
            assert!(pool.members().is_active(&disk), "it stays in the pool");
            expect_all(&lab, &space).await?;
            crate::harness::check(&spaces).await?;
            for lost in ["disk2", "disk4"].iter().take(usize::from(kind.0.redundancy())) {
                pool.exclude(pool.members().find_disk(lost)?.slot(), ExcludeReason::Asked).await?;
                expect_all(&lab, &space).await?;
            }
            Ok(spaces.close().await?)
        });
        verified.unwrap_or_else(|error| panic!("{kind:?}: {error}"));
    }
}

/// Scenario: the emptying of a disk is called off in the midst. Everything is there, each row as redundant as before, and a
/// rebalance behind it leaves no slab too many, and puts nothing on the failing disk.
#[test]
fn an_emptying_that_is_called_off_leaves_rows_whole() {
    let bench = Bench::with_profile(7500, 5, || Slow::WRITES.profile());
    let verified = bench.run(async |lab| {
        let spaces = lab.create().await?;
        let pool = spaces.pool();
        let space = space_of(&spaces, Bytes::mib(64), (MIRROR, None)).await?;
        for row in 0..64 {
            lab.write(&space, row << 20, 64 << 10, 1).await?;
        }
        spaces.flush().await?;
        let taken = space.footprint().await?.total;
        ail(pool, &["disk1"], Ailment::Failing)?;
        let disk = pool.members().find_disk("disk1")?;
        let progress = Progress::default();
        let empty = async {
            let emptied = spaces.moves().empty_disk(&disk, || true, &progress).await.map_err(text)?;
            if emptied == Emptied::CutShort { Ok(()) } else { Err(format!("{emptied:?}")) }
        };
        let call_off = async {
            while progress.bytes.get() == 0 {
                pause(&lab, 1).await;
            }
            progress.stop();
            Ok(())
        };
        extra(vec![Box::pin(empty), Box::pin(call_off)]).await?;
        crate::harness::check(&spaces).await?;
        let before = used_on(pool, "disk1")?;
        assert!(before > 0, "it was called off in the midst");
        spaces.moves().rebalance(&Progress::default()).await?;
        assert!(used_on(pool, "disk1")? <= before, "a rebalance brings nothing there");
        assert_eq!(space.footprint().await?.total, taken, "each slab is there once");
        for row in 0..64 {
            lab.expect(&space, row << 20, 64 << 10, 1).await?;
        }
        Ok(spaces.close().await?)
    });
    verified.unwrap();
}

/// Scenario: there is no room for what a failing disk has but on another failing one. The forecast says so.
#[test]
fn what_fits_nowhere_is_foreseen() {
    let bench = Bench::new(7600, 3, Bytes::mib(96));
    let verified = bench.run(async |lab| {
        let spaces = lab.create().await?;
        let space = space_of(&spaces, SIZE, (MIRROR, None)).await?;
        for row in 0..6 {
            lab.write(&space, row << 20, 4096, 1).await?;
        }
        let pool = spaces.pool();
        ail(pool, &["disk1", "disk2"], Ailment::Failing)?;
        let slot = pool.members().find_disk("disk1")?.slot();
        let forecast = spaces.moves().forecast_emptying(slot).await?;
        assert!(!forecast.stuck.is_empty(), "{forecast:?}");
        pool.members().find_disk("disk2")?.set_ailment(None);
        assert!(spaces.moves().forecast_emptying(slot).await?.stuck.is_empty());
        assert!(pool.free_space().offers(Purpose::Claim).len() == 3);
        Ok(spaces.close().await?)
    });
    verified.unwrap();
}
