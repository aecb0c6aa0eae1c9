//! What is on the disks is evened out when one was added (docs/design/0012).
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use std::cell::Cell;
use std::rc::Rc;

use dolmen_block_io::BlockDevice;
use dolmen_placement::{DomainId, Offer};
use dolmen_pool::{Ailment, ExcludeReason, Purpose};
use dolmen_space::{Progress, Resiliency, Space, SpaceSpec, Spaces};
use dolmen_units::{ALLOCATION_UNIT_BYTES, Bytes, DiskSlot};

use crate::harness::slow_disks::{ROWS, Slow, expect_all, extra, pause, text, write_on};
use crate::harness::{Bench, Lab, Outcome, ROW};

const SIZE: Bytes = Bytes::mib(16);

/// Every kind of space of which something moves, with its columns on four disks.
const KINDS: [(Resiliency, u8); 5] = [
    (Resiliency::Simple, 3),
    (Resiliency::Mirror { copies: 2 }, 1),
    (Resiliency::Mirror { copies: 3 }, 1),
    (Resiliency::Parity { parity: 1 }, 3),
    (Resiliency::Parity { parity: 2 }, 2),
];

/// A pool on four disks with a space that is filled, and a fifth disk that was added behind that.
async fn with_a_disk_more(
    lab: &Lab,
    (resiliency, columns): (Resiliency, u8),
) -> Result<(Rc<Spaces>, Space), Box<dyn std::error::Error>> {
    let four = Lab { devices: lab.devices[..4].to_vec(), ..lab.clone() };
    let spaces = four.create().await?;
    let mut spec = SpaceSpec::usual("data".parse()?, SIZE, resiliency);
    (spec.row, spec.columns, spec.interleave) = (Some(ROW), Some(columns), Bytes::kib(64));
    let space = spaces.create(spec).await?;
    for row in 0..ROWS {
        lab.write(&space, row << 20, 512 << 10, 1).await?;
    }
    spaces.flush().await?;
    let before = spaces.moves().forecast_rebalance(&[]).await?;
    let next = spaces.pool().free_space().offers(Purpose::Claim)[0];
    let next = Offer { slot: DiskSlot(4), domain: DomainId(400), free_units: 2 * next.free_units, ..next };
    let expected = spaces.moves().forecast_rebalance(&[next]).await?;
    assert!(expected.rows > before.rows, "{before:?} before, {expected:?} with a disk that is empty");
    spaces.pool().membership().add_device(Rc::clone(&lab.devices[4]), &[], 0).await?;
    Ok((spaces, space))
}

async fn expect_flushed(lab: &Lab, space: &Space) -> Outcome {
    for row in 0..ROWS {
        lab.expect(space, row << 20, 512 << 10, 1).await?;
    }
    Ok(())
}

/// By how much the fullest disk is fuller than the emptiest.
fn unevenness(spaces: &Spaces) -> Bytes {
    let free: Vec<u64> = spaces
        .pool()
        .free_space()
        .offers(Purpose::Claim)
        .iter()
        .map(|offer| offer.claimable_units())
        .collect();
    Bytes((free.iter().max().unwrap() - free.iter().min().unwrap()) * ALLOCATION_UNIT_BYTES)
}

/// Scenario: a disk is added to a pool with rows of every kind, and what is there is evened out while clients write. Disks differ
/// by a slab or two then, everything is there, nothing is there too often, and as many disks may be lost as before.
#[test]
fn what_is_there_is_evened_out_over_a_disk_more() {
    for kind in KINDS {
        let bench = Bench::with_profile(6600, 5, || Slow::BRIEFLY.profile());
        let again: Vec<Rc<dyn BlockDevice>> =
            bench.disks.iter().map(|disk| disk.attach(&bench.world) as Rc<dyn BlockDevice>).collect();
        let verified = bench.run(async move |lab| {
            let (spaces, space) = with_a_disk_more(&lab, kind).await?;
            let (before, taken) = (unevenness(&spaces), space.footprint().await?.total);
            let forecast = spaces.moves().forecast_rebalance(&[]).await?;
            assert!(
                forecast.rows > 0 && forecast.moved > Bytes::ZERO && forecast.surplus == 0,
                "{forecast:?}"
            );
            let progress = Progress::default();
            let even_out = async {
                assert!(spaces.moves().rebalance(&progress).await.map_err(text)?, "it is not even");
                Ok(())
            };
            extra(vec![Box::pin(even_out), Box::pin(write_on(&lab, &space))]).await?;
            assert!(progress.done.get() >= forecast.rows && progress.bytes.get() > 0);
            let after = unevenness(&spaces);
            assert!(after.0 < before.0 / 2, "{before} before, {after} behind it");
            // With parity each row has a column on the new disk by then, and can have no second one there.
            assert!(kind.0.parity_columns() > 0 || after <= Bytes::kib(2300), "{after} behind it");
            assert_eq!(space.footprint().await?.total, taken, "each slab is there once");
            assert!(spaces.moves().forecast_rebalance(&[]).await?.is_even());
            spaces.flush().await?;
            expect_all(&lab, &space).await?;
            crate::harness::check(&spaces).await?;
            let is_redundant = kind.0.redundancy() > 0;
            for (lost, back) in again.into_iter().enumerate().filter(|_| is_redundant) {
                let pool = spaces.pool();
                pool.exclude(pool.members().find_disk(&format!("disk{lost}"))?.slot(), ExcludeReason::Asked)
                    .await?;
                expect_all(&lab, &space).await?;
                spaces.members().rejoin(back).await?;
                spaces.members().resync(&Progress::default()).await?;
            }
            Ok(spaces.close().await?)
        });
        verified.unwrap_or_else(|error| panic!("{kind:?}: {error}"));
    }
}

/// Scenario: power fails somewhere while slabs move under writes. All that was flushed is there, whichever disk is gone; the next
/// rebalance ends it, and no slab is there twice.
#[test]
fn a_rebalance_that_power_cuts_short_is_ended_by_the_next() {
    let mut backing_full = 0;
    for (kind, offset) in
        [KINDS[1], KINDS[3], KINDS[4]].into_iter().flat_map(|kind| (0..6).map(move |offset| (kind, offset)))
    {
        let bench = Bench::with_profile(6700 + offset, 5, || Slow::BRIEFLY.profile());
        let taken = Rc::new(Cell::new(Bytes::ZERO));
        let reported = Rc::clone(&taken);
        bench
            .run(async move |lab| {
                let (spaces, space) = with_a_disk_more(&lab, kind).await?;
                reported.set(space.footprint().await?.total);
                let inner = Rc::clone(&spaces);
                let even_out = async move {
                    inner.moves().rebalance(&Progress::default()).await.unwrap();
                };
                lab.seams.spawner.spawn("rebalance", Box::pin(even_out));
                pause(&lab, 3 + 12 * offset * offset).await;
                lab.hold(spaces);
                Ok(())
            })
            .unwrap();
        bench.world.power_cut();
        let freed = usize::try_from(offset % 5).unwrap();
        let is_left = bench.run_in(bench.lab_with(|number| number != freed), async move |lab| {
            let spaces = lab.open().await?;
            expect_flushed(&lab, &spaces.find("data")?).await?;
            Ok(spaces.close().await?)
        });
        is_left.unwrap_or_else(|error| panic!("{kind:?}, cut {offset}: {error}"));
        let found = Rc::new(Cell::new(0));
        let seen = Rc::clone(&found);
        let verified = bench.run(async move |lab| {
            let spaces = lab.open().await?;
            let space = spaces.find("data")?;
            if offset % 2 == 0 {
                // What the disk that was gone missed is left alone by it.
                spaces.moves().rebalance(&Progress::default()).await?;
            }
            spaces.members().resync(&Progress::default()).await?;
            seen.set(spaces.moves().forecast_rebalance(&[]).await?.surplus);
            assert!(spaces.moves().rebalance(&Progress::default()).await?, "it is not even");
            assert!(spaces.moves().forecast_rebalance(&[]).await?.is_even());
            assert_eq!(space.footprint().await?.total, taken.get(), "a slab is left too much");
            expect_flushed(&lab, &space).await?;
            lab.check_and_close(spaces).await
        });
        verified.unwrap_or_else(|error| panic!("{kind:?}, cut {offset}: {error}"));
        backing_full += found.get();
    }
    assert!(backing_full > 4, "rows were cut between their new slabs and their old ones: {backing_full}");
}

/// Scenario: a rebalance is called off, and a disk leaves before the next one. Rows that lack something are left to those who
/// repair them, nothing is lost, and it ends when all are back.
#[test]
fn rows_that_lack_something_stay_where_they_are() {
    for kind in KINDS.into_iter().skip(1) {
        let bench = Bench::with_profile(6800, 5, || Slow::BRIEFLY.profile());
        let back = bench.disks[1].attach(&bench.world);
        let verified = bench.run(async move |lab| {
            let (spaces, space) = with_a_disk_more(&lab, kind).await?;
            let progress = Progress::default();
            let is_even = Cell::new(true);
            let even_out = async {
                is_even.set(spaces.moves().rebalance(&progress).await.map_err(text)?);
                Ok(())
            };
            let call_off = async {
                while progress.bytes.get() == 0 {
                    pause(&lab, 1).await;
                }
                progress.stop();
                Ok(())
            };
            extra(vec![Box::pin(even_out), Box::pin(call_off)]).await?;
            assert_eq!(is_even.get(), spaces.moves().forecast_rebalance(&[]).await?.is_even());
            let pool = spaces.pool();
            let disk = pool.members().find_disk("disk1")?;
            pool.exclude(disk.slot(), ExcludeReason::Asked).await?;
            let moved_before = spaces.moves().forecast_rebalance(&[]).await?;
            let on_it = pool.free_space().offers_with_absent(Purpose::Claim)[1].free_units;
            spaces.moves().rebalance(&Progress::default()).await?;
            assert_eq!(
                pool.free_space().offers_with_absent(Purpose::Claim)[1].free_units,
                on_it,
                "nothing of it has moved"
            );
            write_on(&lab, &space).await?;
            spaces.flush().await?;
            expect_all(&lab, &space).await?;
            assert_eq!(moved_before.surplus, 0);
            spaces.members().rejoin(back).await?;
            spaces.members().resync(&Progress::default()).await?;
            assert!(spaces.moves().rebalance(&Progress::default()).await?);
            expect_all(&lab, &space).await?;
            lab.check_and_close(spaces).await
        });
        verified.unwrap_or_else(|error| panic!("{kind:?}: {error}"));
    }
}

/// Scenario: both copies of all rows lie in what has become one fault domain, and the disk that is added in a second one
/// is failing. Nothing goes there as long as it is; once it is well, one copy of each row does.
#[test]
fn nothing_moves_to_a_failing_disk_for_its_fault_domain() {
    let bench = Bench::new(9230, 3, Bytes::mib(96));
    bench
        .run(async move |lab| {
            let two = Lab { devices: lab.devices[..2].to_vec(), ..lab.clone() };
            let spaces = two.create().await?;
            let space = lab.space(&spaces, "data", SIZE, Resiliency::Mirror { copies: 2 }).await?;
            for row in 0..ROWS {
                lab.write(&space, row << 20, 512 << 10, 1).await?;
            }
            let pool = spaces.pool();
            for disk in pool.disks() {
                pool.membership().set_fault_domain(&disk, 1).await?;
            }
            let third = pool.membership().add_device(Rc::clone(&lab.devices[2]), &[], 2).await?;
            third.set_ailment(Some(Ailment::Failing));
            spaces.moves().rebalance(&Progress::default()).await?;
            assert!(!pool.free_space().holds_rows(&third), "it is failing");
            third.set_ailment(None);
            spaces.moves().rebalance(&Progress::default()).await?;
            assert!(pool.free_space().holds_rows(&third), "it is well");
            drop(space);
            lab.check_and_close(spaces).await
        })
        .unwrap();
}
