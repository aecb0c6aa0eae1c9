//! Disks that come back other than they left.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

mod harness;

use std::rc::Rc;

use dolmen_pool::{MemoryArbiter, OpenMode};
use dolmen_space::{Progress, Resiliency, Space};
use dolmen_units::{Bytes, HostId};
use harness::pace::CAPACITY;
use harness::{Bench, Lab, Outcome};

const MIRROR: Resiliency = Resiliency::Mirror { copies: 2 };

/// Two disks of a mirror that went on apart: the first one here, where the first row was written again, the second one on
/// another host, where somebody confirmed that the rest lives on nowhere else and wrote the second row again.
fn gone_apart() -> Rc<Bench> {
    let bench = Rc::new(Bench::new(7, 2, CAPACITY));
    bench
        .run(async move |lab| {
            let spaces = lab.create().await?;
            let space = lab.space(&spaces, "data", Bytes::mib(8), MIRROR).await?;
            for row in 0..4 {
                lab.write(&space, row << 20, 65536, 1).await?;
            }
            drop(space);
            lab.check_and_close(spaces).await
        })
        .unwrap();
    let write = |row: u64, fill: u8, mode: OpenMode| {
        async move |lab: Lab| {
            let spaces = lab.open_as(mode).await?;
            let space = spaces.find("data")?;
            lab.write(&space, row << 20, 65536, fill).await?;
            drop(space);
            lab.check_and_close(spaces).await
        }
    };
    bench.run_in(bench.lab_with(|disk| disk == 0), write(0, 2, OpenMode::Write)).unwrap();
    let there = Lab { arbiter: MemoryArbiter::new(HostId([9; 16])), ..bench.lab_with(|disk| disk == 1) };
    bench.run_in(there, write(1, 3, OpenMode::Confirmed)).unwrap();
    bench
}

/// What was flushed here, and not what was written elsewhere, though nobody wrote over it here.
async fn expect_this_side(lab: &Lab, space: &Space) -> Outcome {
    lab.expect(space, 0, 65536, 2).await?;
    lab.expect(space, 1 << 20, 65536, 1).await
}

/// Scenario: a disk is carried to another host, where somebody confirms that the rest lives on nowhere else, and writes. Then
/// it is brought back and taken in again where the pool is open: it is refused, and the two sides are not merged.
#[test]
fn a_disk_that_went_on_elsewhere_is_not_taken_back_in() {
    let bench = gone_apart();
    let outside = Rc::clone(&bench);
    bench
        .run_in(bench.lab_with(|disk| disk == 0), async move |lab| {
            let spaces = lab.open().await?;
            let space = spaces.find("data")?;
            let taken = spaces.rejoin(outside.disks[1].attach(&outside.world)).await.map(drop);
            let _ = spaces.resync(&Progress::default()).await;
            expect_this_side(&lab, &space).await?;
            let refused = taken.unwrap_err().to_string();
            assert!(refused.contains("gone on apart"), "{refused}");
            drop(space);
            lab.check_and_close(spaces).await
        })
        .unwrap();
}

/// The same, and the two sides are opened together, which somebody has to confirm: one is kept, and nothing of the other.
#[test]
fn sides_that_went_on_apart_are_not_merged_by_a_confirmation() {
    let bench = gone_apart();
    bench
        .run(async move |lab| {
            assert!(lab.open().await.is_err());
            let spaces = lab.open_as(OpenMode::Confirmed).await?;
            let _ = spaces.resync(&Progress::default()).await;
            let space = spaces.find("data")?;
            expect_this_side(&lab, &space).await?;
            drop(space);
            lab.check_and_close(spaces).await
        })
        .unwrap();
}
