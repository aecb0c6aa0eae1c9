//! Disks that come back other than they left: from another host, or as they were long ago.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use std::rc::Rc;

use dolmen_pool::{ExcludeReason, MemoryArbiter, OpenMode};
use dolmen_sim::SimDisk;
use dolmen_space::{Progress, Resiliency, Space};
use dolmen_units::{Bytes, DiskSlot, HostId};

use crate::harness::slow_disks::CAPACITY;
use crate::harness::{Bench, Lab, Outcome};

const MIRROR: Resiliency = Resiliency::Mirror { copies: 2 };

/// Two disks of a mirror that went on apart: the first one here, where the first row was written again, the second one on
/// another host, where somebody confirmed that the rest lives on nowhere else and wrote the second row again.
fn diverged() -> Rc<Bench> {
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
    let bench = diverged();
    let outside = Rc::clone(&bench);
    bench
        .run_in(bench.lab_with(|disk| disk == 0), async move |lab| {
            let spaces = lab.open().await?;
            let space = spaces.find("data")?;
            let taken = spaces.members().rejoin(outside.disks[1].attach(&outside.world)).await.map(drop);
            let _ = spaces.members().resync(&Progress::default()).await;
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
    let bench = diverged();
    bench
        .run(async move |lab| {
            assert!(lab.open().await.is_err());
            let spaces = lab.open_as(OpenMode::Confirmed).await?;
            let _ = spaces.members().resync(&Progress::default()).await;
            let space = spaces.find("data")?;
            expect_this_side(&lab, &space).await?;
            drop(space);
            lab.check_and_close(spaces).await
        })
        .unwrap();
}
const ROWS: u64 = 6;

/// Writes all rows of the space, which is made if there is none.
async fn write_all(lab: Lab, fill: u8) -> Outcome {
    let spaces = if fill == 1 { lab.create().await? } else { lab.open().await? };
    let space = match spaces.find("data") {
        Ok(space) => space,
        Err(_) => lab.space(&spaces, "data", Bytes::mib(8), MIRROR).await?,
    };
    for row in 0..ROWS {
        lab.write(&space, row << 20, 65536, fill).await?;
    }
    drop(space);
    lab.check_and_close(spaces).await
}

/// Three disks of a pool that was closed, of which one is as it was before everything was written again.
fn with_an_old_disk(old: usize) -> Rc<Bench> {
    let bench = Rc::new(Bench::new(11, 3, CAPACITY));
    bench.run(|lab| write_all(lab, 1)).unwrap();
    bench.world.kill();
    let image = bench.disks[old].truth();
    bench.run(|lab| write_all(lab, 2)).unwrap();
    bench.world.kill();
    bench.disks[old].replace_content(image);
    bench
}

/// Scenario: while the pool is closed, an image of long ago is put on one of its disks. The pool is opened with it, and another
/// disk dies before anybody has compared the two. What was flushed is read, or an error.
#[test]
fn a_disk_that_is_as_it_was_long_ago_is_not_believed() {
    for old in 0..3 {
        let opened = with_an_old_disk(old).run(async move |lab| {
            let spaces = lab.open().await?;
            let space = spaces.find("data")?;
            spaces.pool().voter_tender().tend().await?;
            let freed = (old + 1) % 3;
            spaces.pool().exclude(DiskSlot(u16::try_from(freed)?), ExcludeReason::Asked).await?;
            let mut read = 0;
            for row in 0..ROWS {
                // Where it cannot be read, its other copy is on the disk that died.
                if crate::harness::read(&space, row << 20, 4096).await.is_ok() {
                    lab.expect(&space, row << 20, 65536, 2).await?;
                    read += 1;
                }
            }
            assert!(read > 0, "no row is on the third disk");
            lab.hold((spaces, space));
            Ok(())
        });
        opened.unwrap_or_else(|error| panic!("disk {old} is old: {error}"));
    }
}

/// The same, and the disk is not taken in by the next opening either, until somebody says so; then it gets what it lacks, and
/// any other disk may go.
#[test]
fn a_disk_that_is_as_it_was_long_ago_gets_what_it_lacks() {
    for old in 0..3 {
        let bench = with_an_old_disk(old);
        for _ in 0..2 {
            bench
                .run(async move |lab| {
                    let spaces = lab.open().await?;
                    let disk = spaces.pool().disk(DiskSlot(u16::try_from(old)?)).ok_or("it is a member")?;
                    assert!(!disk.is_present());
                    assert!(disk.absence().unfit().is_some_and(|why| why.contains("as it was in epoch")));
                    let space = spaces.find("data")?;
                    lab.write(&space, 0, 65536, 3).await?;
                    drop(space);
                    lab.check_and_close(spaces).await
                })
                .unwrap();
            bench.world.kill();
        }
        let outside = Rc::clone(&bench);
        bench
            .run(async move |lab| {
                let spaces = lab.open().await?;
                spaces.members().rejoin(outside.disks[old].attach(&outside.world)).await?;
                spaces.members().resync(&Progress::default()).await?;
                assert!(spaces.members().stale_rows().await?.is_empty());
                lab.check_and_close(spaces).await
            })
            .unwrap();
        bench.world.kill();
        for freed in (0..3).filter(|disk| *disk != old) {
            let left = Bench { arbiter: bench.arbiter.snapshot(), ..copy_of(&bench) };
            let verified = left.run_in(left.lab_with(|disk| disk != freed), async move |lab| {
                let spaces = lab.open().await?;
                let space = spaces.find("data")?;
                lab.expect(&space, 0, 65536, 3).await?;
                for row in 1..ROWS {
                    lab.expect(&space, row << 20, 65536, 2).await?;
                }
                assert_eq!((spaces.counters().checksum_errors, spaces.counters().lost_pages), (0, 0));
                drop(space);
                lab.check_and_close(spaces).await
            });
            verified.unwrap_or_else(|error| panic!("disk {old} was old, disk {freed} is gone: {error}"));
        }
    }
}

/// Scenario: a disk comes back, and an image of it is taken before it is given what it missed. That goes on, the pool is opened
/// again, and closed; then the image is put on the disk. When it was taken back in and is up to date again, it can be the only one.
#[test]
fn an_image_from_within_a_resync_gets_all_that_the_disk_was_given_since() {
    let bench = Rc::new(Bench::new(13, 2, CAPACITY));
    let outside = Rc::clone(&bench);
    let image = Rc::new(std::cell::RefCell::new(None));
    let taken = Rc::clone(&image);
    bench
        .run(async move |lab| {
            let spaces = lab.create().await?;
            let space = lab.space(&spaces, "data", Bytes::mib(8), MIRROR).await?;
            lab.write(&space, 0, 65536, 1).await?;
            spaces.flush().await?;
            spaces.pool().exclude(DiskSlot(1), ExcludeReason::Asked).await?;
            lab.write(&space, 0, 32768, 2).await?;
            spaces.flush().await?;
            spaces.members().rejoin(outside.disks[1].attach(&outside.world)).await?;
            *taken.borrow_mut() = Some(outside.disks[1].truth());
            spaces.members().resync(&Progress::default()).await?;
            assert!(spaces.members().stale_rows().await?.is_empty());
            drop(space);
            lab.check_and_close(spaces).await
        })
        .unwrap();
    bench.run(async |lab| lab.check_and_close(lab.open().await?).await).unwrap();
    bench.world.kill();
    bench.disks[1].replace_content(image.take().unwrap());
    let outside = Rc::clone(&bench);
    bench
        .run(async move |lab| {
            let spaces = lab.open().await?;
            assert!(!spaces.pool().disk(DiskSlot(1)).ok_or("it is a member")?.is_present());
            spaces.members().rejoin(outside.disks[1].attach(&outside.world)).await?;
            spaces.members().resync(&Progress::default()).await?;
            assert!(spaces.members().stale_rows().await?.is_empty());
            spaces.close().await?;
            Ok(())
        })
        .unwrap();
    bench.world.kill();
    bench.is_complete_alone(1, &[(0, 32768, 2), (32768, 32768, 1)]).unwrap();
}

/// The same disks in a world of their own.
fn copy_of(bench: &Bench) -> Bench {
    let copy = Bench::new(12, 0, CAPACITY);
    let add =
        |disk: &Rc<SimDisk>| copy.world.add_disk_with(disk.name(), disk.profile().clone(), disk.truth());
    Bench { disks: bench.disks.iter().map(add).collect(), ..copy }
}
