//! Whole stripes that go in place at once, while disks leave before a flush has covered them.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

mod harness;

use std::error::Error;
use std::rc::Rc;

use dolmen_block_io::sync::join_all;
use dolmen_pool::{ExcludeReason, OpenMode};
use dolmen_space::{Progress, Resiliency, Space, SpaceError, SpaceSpec, Spaces};
use dolmen_units::{Bytes, DiskSlot};
use harness::pace::{Dial, beside, pause, text};
use harness::{Bench, Lab, Outcome, ROW};

/// Bytes of an interleave, and of a stripe of two.
const INTERLEAVE: u64 = 16 << 10;
const STRIPE: usize = 32 << 10;

async fn make(lab: &Lab, spaces: &Spaces) -> Result<Rc<Space>, Box<dyn Error>> {
    let mut spec = SpaceSpec::usual("data".parse()?, Bytes::mib(8), Resiliency::Parity { parity: 1 });
    (spec.row, spec.columns, spec.interleave) = (Some(ROW), Some(2), Bytes(INTERLEAVE));
    let space = spaces.create(spec).await?;
    // The row is there, and another stripe of it is flushed.
    lab.write(&space, 8 * STRIPE as u64, STRIPE, 9).await?;
    spaces.flush().await?;
    Ok(space)
}

/// Disks that hold blocks of the first stripe with this fill, each of one column.
fn holders(bench: &Bench, fill: u8) -> Vec<usize> {
    let has_it = |disk: &usize| !harness::places_of(&bench.disks[*disk], 0..8, fill).is_empty();
    (0..bench.disks.len()).filter(has_it).collect()
}

async fn take_in(bench: &Bench, spaces: &Spaces, disks: &[usize]) -> Outcome {
    for disk in disks {
        bench.disks[*disk].come_back();
        spaces.rejoin(bench.disks[*disk].attach(&bench.world)).await?;
    }
    spaces.resync(&Progress::default()).await?;
    Ok(())
}

/// Writes a block of the first stripe, which parity is carried over for.
async fn carry(lab: &Lab, spaces: &Spaces) -> Outcome {
    let space = spaces.find("data")?;
    lab.write(&space, 0, 4096, 5).await?;
    space.flush().await?;
    Ok(spaces.destage().await?)
}

/// The first stripe has this fill, zeros for 0, and every disk may be gone in turn; then also when a block of it was written.
fn expect(bench: &Bench, fill: u8) {
    expect_both(bench, (fill, fill));
    let carried = bench.run(async |lab| {
        let spaces = lab.open().await?;
        carry(&lab, &spaces).await?;
        Ok(spaces.close().await?)
    });
    carried.unwrap();
    expect_both(bench, (5, fill));
}

/// The first block has the first of these fills, and the rest of the first stripe the second.
fn expect_both(bench: &Bench, (first, rest): (u8, u8)) {
    for absent in (0..bench.disks.len()).map(Some).chain([None]) {
        let mode = if absent.is_some() { OpenMode::Read } else { OpenMode::Write };
        let judged = bench.run_in(bench.lab_with(|disk| Some(disk) != absent), async move |lab| {
            let spaces = lab.open_as(mode).await?;
            let space = spaces.find("data")?;
            lab.expect(&space, 0, 4096, first).await?;
            lab.expect(&space, 4096, STRIPE - 4096, rest).await?;
            lab.expect(&space, 8 * STRIPE as u64, STRIPE, 9).await?;
            assert_eq!((spaces.incidents().len(), spaces.counters().lost_blocks), (0, 0));
            drop(space);
            match mode {
                OpenMode::Write => lab.check_and_close(spaces).await,
                OpenMode::Read | OpenMode::Confirmed => Ok(()),
            }
        });
        judged.unwrap_or_else(|error| panic!("without disk {absent:?}: {error}"));
        bench.world.kill();
    }
}

/// Scenario: a stripe is written, and power fails behind the flush that follows. It lay on one disk for each column, nowhere
/// else.
#[test]
fn a_stripe_that_was_never_written_goes_in_place() {
    let bench = Rc::new(Bench::new(31, 5, Bytes::mib(96)));
    let outside = Rc::clone(&bench);
    bench
        .run(async move |lab| {
            let spaces = lab.create().await?;
            let space = make(&lab, &spaces).await?;
            lab.write(&space, 0, STRIPE, 1).await?;
            assert_eq!(holders(&outside, 1).len(), 2);
            space.flush().await?;
            std::mem::forget((spaces, space));
            Ok(())
        })
        .unwrap();
    bench.world.power_cut();
    expect(&bench, 1);
}

/// Scenario: parts of two stripes are under way together, some of which belong to both. Each stripe is whole when the last of
/// its parts comes, and goes in place. Two writes of the same part are no stripe, and a part without the rest of its stripe
/// does not wait for ever: these are cached, and one of two that are written at once stands.
#[test]
fn parts_that_are_under_way_together_form_stripes() {
    let bench = Rc::new(Bench::new(60, 5, Bytes::mib(96)));
    let outside = Rc::clone(&bench);
    bench
        .run(async move |lab| {
            let spaces = lab.create().await?;
            let space = make(&lab, &spaces).await?;
            let parts = [(0, 12288), (12288, 40960), (53248, 8192), (61440, 4096)];
            let written = join_all(parts.map(|(at, length)| lab.write(&space, at, length, 1))).await;
            written.into_iter().collect::<Outcome>()?;
            assert_eq!(holders(&outside, 1).len(), 2, "of the first stripe nothing was cached");
            let again = [(2 * STRIPE as u64, 3), (2 * STRIPE as u64, 4), (5 * STRIPE as u64, 6)];
            let written = join_all(again.map(|(at, fill)| lab.write(&space, at, STRIPE / 2, fill))).await;
            written.into_iter().collect::<Outcome>()?;
            lab.expect(&space, 0, 2 * STRIPE, 1).await?;
            lab.expect(&space, 5 * STRIPE as u64, STRIPE / 2, 6).await?;
            let one_of_two =
                async |fill| lab.expect(&space, 2 * STRIPE as u64, STRIPE / 2, fill).await.is_ok();
            assert!(one_of_two(3).await || one_of_two(4).await);
            space.flush().await?;
            std::mem::forget((spaces, space));
            Ok(())
        })
        .unwrap();
    bench.world.power_cut();
    expect(&bench, 1);
}

/// Scenario: a disk loses its power with what it had cached of a stripe, before the flush that covers the stripe and after.
#[test]
fn a_stripe_in_flight_survives_the_disk_that_leaves() {
    for column in 0..2 {
        let bench = Rc::new(Bench::new(32 + column as u64, 5, Bytes::mib(96)));
        let outside = Rc::clone(&bench);
        bench
            .run(async move |lab| {
                let spaces = lab.create().await?;
                let space = make(&lab, &spaces).await?;
                lab.write(&space, 0, STRIPE, 1).await?;
                outside.disks[holders(&outside, 1)[column]].vanish();
                lab.expect(&space, 0, STRIPE, 1).await?;
                space.flush().await?;
                std::mem::forget((spaces, space));
                Ok(())
            })
            .unwrap();
        bench.world.power_cut();
        let back = bench.disks.iter().find(|disk| disk.is_absent()).unwrap();
        back.come_back();
        assert!(back.return_to(0));
        let again = Rc::clone(&bench);
        bench
            .run(async move |lab| {
                let spaces = lab.open().await?;
                take_in(&again, &spaces, &[]).await?;
                lab.check_and_close(spaces).await
            })
            .unwrap();
        expect(&bench, 1);
    }
}

/// Scenario: both disks with data of a stripe leave before a flush has covered it. The flush fails, and nobody can read the
/// stripe. They come back with what they had, or without what they had cached: then the stripe is what it was, all of it, and
/// one flush says so.
#[test]
fn a_stripe_in_flight_waits_for_its_disks_as_a_whole() {
    for has_lost in [false, true] {
        let bench = Rc::new(Bench::new(40 + u64::from(has_lost), 6, Bytes::mib(96)));
        let outside = Rc::clone(&bench);
        bench
            .run(async move |lab| {
                let spaces = lab.create().await?;
                let space = make(&lab, &spaces).await?;
                lab.write(&space, 0, STRIPE, 1).await?;
                let gone = holders(&outside, 1);
                for disk in &gone {
                    match has_lost {
                        true => outside.disks[*disk].vanish(),
                        false => {
                            let slot = DiskSlot(u16::try_from(*disk)?);
                            spaces.pool().exclude(slot, ExcludeReason::Asked).await?;
                        }
                    }
                }
                assert!(matches!(space.flush().await, Err(SpaceError::Unflushed { .. })));
                assert!(matches!(space.read(0, 4096).await, Err(SpaceError::Unreadable { .. })));
                for disk in gone.iter().filter(|_| has_lost) {
                    assert!(outside.disks[*disk].return_to(0));
                }
                take_in(&outside, &spaces, &gone).await?;
                lab.expect(&space, 0, STRIPE, if has_lost { 0 } else { 1 }).await?;
                assert_eq!(space.flush().await.is_err(), has_lost);
                space.flush().await?;
                std::mem::forget((spaces, space));
                Ok(())
            })
            .unwrap_or_else(|error| panic!("lost {has_lost}: {error}"));
        bench.world.power_cut();
        expect(&bench, if has_lost { 0 } else { 1 });
    }
}

/// Scenario: one disk, or both, leave while a stripe is being written. With one away the write stands; else it fails, and
/// nothing of it is there.
#[test]
fn a_stripe_that_failed_was_never_written() {
    for count in 1..=2 {
        let dial = Dial::default();
        let bench = Rc::new(Bench::with_profile(50 + count as u64, 6, || dial.profile()));
        let (outside, slowly) = (Rc::clone(&bench), dial.clone());
        bench
            .run(async move |lab| {
                let spaces = lab.create().await?;
                let space = make(&lab, &spaces).await?;
                let columns: Vec<usize> = (0..outside.disks.len())
                    .filter(|disk| !harness::places_of(&outside.disks[*disk], 64..72, 9).is_empty())
                    .collect();
                slowly.write.set(20);
                let writing = async { lab.write(&space, 0, STRIPE, 1).await.map_err(text) };
                let leaving = async {
                    pause(&lab, 10).await;
                    slowly.write.set(0);
                    columns.iter().take(count).for_each(|disk| outside.disks[*disk].vanish());
                    Ok(())
                };
                let written = beside(vec![Box::pin(writing), Box::pin(leaving)]).await;
                assert_eq!(written.is_ok(), count == 1, "{written:?}");
                if count == 1 {
                    lab.expect(&space, 0, STRIPE, 1).await?;
                    space.flush().await?;
                }
                std::mem::forget((spaces, space));
                Ok(())
            })
            .unwrap_or_else(|error| panic!("{count} left: {error}"));
        bench.world.power_cut();
        bench.disks.iter().filter(|disk| disk.is_absent()).for_each(|disk| disk.come_back());
        let again = Rc::clone(&bench);
        bench
            .run(async move |lab| {
                let spaces = lab.open().await?;
                take_in(&again, &spaces, &[]).await?;
                lab.check_and_close(spaces).await
            })
            .unwrap();
        expect(&bench, if count == 1 { 1 } else { 0 });
    }
}
