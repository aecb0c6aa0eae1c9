//! What is in the write cache while disks leave, the daemon is killed, and power fails.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

mod harness;

use std::rc::Rc;

use dolmen_space::{Resiliency, Spaces};
use dolmen_units::Bytes;
use harness::pace::{Dial, beside, pause, text};
use harness::{Bench, Lab, Outcome};

const PARITY: Resiliency = Resiliency::Parity { parity: 1 };

/// Disks that have a block of the space as it was written last: where it is cached.
fn holders(bench: &Bench, block: u64, fill: u8) -> Vec<usize> {
    let has_it = |disk: &usize| !harness::places_of(&bench.disks[*disk], block..block + 1, fill).is_empty();
    (0..bench.disks.len()).filter(has_it).collect()
}

/// Takes disks back in that left.
async fn take_in(bench: &Bench, spaces: &Spaces, disks: &[usize]) -> Outcome {
    for disk in disks {
        bench.disks[*disk].come_back();
        spaces.rejoin(bench.disks[*disk].attach(&bench.world)).await?;
    }
    Ok(())
}

/// The first block reads as 1, cached and in place, and nothing is lost.
async fn expect_one(lab: &Lab, spaces: Rc<Spaces>) -> Outcome {
    let space = spaces.find("data")?;
    lab.expect(&space, 0, 4096, 1).await?;
    spaces.destage().await?;
    lab.expect(&space, 0, 4096, 1).await?;
    assert_eq!((spaces.incidents().len(), spaces.counters().lost_blocks), (0, 0));
    drop(space);
    lab.check_and_close(spaces).await
}

/// Scenario: both disks with copies of a cache row leave under a write, which fails. A flush passes over what it has recorded,
/// and the daemon is killed. They come back without the write: the block is what it was before.
#[test]
fn a_cached_write_that_failed_counts_for_nothing() {
    let dial = Dial::default();
    let bench = Rc::new(Bench::with_profile(21, 5, || dial.profile()));
    let (outside, slowly) = (Rc::clone(&bench), dial.clone());
    bench
        .run(async move |lab| {
            let spaces = lab.create().await?;
            let space = lab.space(&spaces, "data", Bytes::mib(8), PARITY).await?;
            lab.write(&space, 0, 4096, 1).await?;
            space.flush().await?;
            let holders = holders(&outside, 0, 1);
            assert_eq!(holders.len(), 2);
            slowly.write.set(20);
            let writing = async { lab.write(&space, 0, 4096, 2).await.map_err(text) };
            let leaving = async {
                pause(&lab, 10).await;
                slowly.write.set(0);
                holders.iter().for_each(|disk| outside.disks[*disk].vanish());
                Ok(())
            };
            let failed = beside(vec![Box::pin(writing), Box::pin(leaving)]).await.unwrap_err();
            assert!(failed.contains("could not be written"), "{failed}");
            Ok(spaces.flush().await?)
        })
        .unwrap();
    bench.world.kill();
    for disk in bench.disks.iter().filter(|disk| disk.is_absent()) {
        disk.come_back();
        assert!(disk.return_to(0));
    }
    bench.run(async move |lab| expect_one(&lab, lab.open().await?).await).unwrap();
}

/// Scenario: both disks with copies of a cache row lose their power after a write was acknowledged, and with it what they had
/// not flushed. A flush of other spaces passes over the record of the write. They come back: the flush of the space says that
/// something is lost, the block is what it was before the write, and is that at the next opening.
#[test]
fn a_cached_write_that_left_with_its_copies_goes_back_in_time() {
    let bench = Rc::new(Bench::new(22, 5, Bytes::mib(96)));
    let outside = Rc::clone(&bench);
    bench
        .run(async move |lab| {
            let spaces = lab.create().await?;
            let space = lab.space(&spaces, "data", Bytes::mib(8), PARITY).await?;
            lab.write(&space, 0, 4096, 1).await?;
            space.flush().await?;
            lab.write(&space, 0, 4096, 2).await?;
            let holders = holders(&outside, 0, 2);
            assert_eq!(holders.len(), 2);
            holders.iter().for_each(|disk| outside.disks[*disk].vanish());
            assert!(space.flush().await.is_err());
            spaces.flush().await?;
            holders.iter().for_each(|disk| assert!(outside.disks[*disk].return_to(0)));
            take_in(&outside, &spaces, &holders).await?;
            lab.expect(&space, 0, 4096, 1).await?;
            assert!(space.flush().await.is_err());
            space.flush().await?;
            lab.expect(&space, 0, 4096, 1).await
        })
        .unwrap();
    bench.world.kill();
    bench.run(async move |lab| expect_one(&lab, lab.open().await?).await).unwrap();
}
