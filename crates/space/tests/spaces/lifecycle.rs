//! Disks go and come: a space with redundancy goes on, and what was missed is brought back.

use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

use dolmen_block_io::sync::join_all;
use dolmen_block_io::{Durability, sleep};
use dolmen_pool::{Pool, PoolError, PoolState, Purpose, keys};
use dolmen_sim::{CommandKind, DiskProfile, FaultKind, LatencyModel, Random, Request, SimpleLatency};
use dolmen_space::{Progress, Provisioning, Resiliency, Space, SpaceSpec, Spaces};
use dolmen_units::{Bytes, DiskSlot, RowId, SpaceId};

use crate::harness::{Bench, Lab, Outcome, check};

const MIRROR: Resiliency = Resiliency::Mirror { copies: 2 };

/// A disk vanishes while a mirror is written: no write fails, everything reads back degraded; the disk comes back, is
/// resynced with about as many bytes as it missed, and then the other copy may vanish.
#[test]
fn a_vanished_disk_is_resynced_with_what_it_missed() {
    let bench = Bench::new(3, 3, Bytes::mib(96));
    let disk = Rc::clone(&bench.disks[0]);
    let kept = Rc::new(RefCell::new(None));
    let keep = Rc::clone(&kept);
    bench
        .run(async move |lab| {
            let spaces = lab.create().await?;
            let space = lab.space(&spaces, "data", Bytes::mib(16), MIRROR).await?;
            for row in 0..16 {
                lab.write(&space, row << 20, 1 << 20, 1).await?;
            }
            spaces.flush().await?;
            disk.vanish();
            for row in 0..8 {
                lab.write(&space, row << 20, 64 * 1024, 2).await?;
            }
            spaces.flush().await?;
            assert_eq!(spaces.pool().members().voters().len(), 2, "a voter that vanished was voted out");
            for row in 0..16 {
                lab.expect(&space, row << 20, 64 * 1024, if row < 8 { 2 } else { 1 }).await?;
            }
            *keep.borrow_mut() = Some((spaces, space));
            Ok(())
        })
        .unwrap();
    bench.disks[0].come_back();
    let again = bench.disks[0].attach(&bench.world);
    bench
        .run(async move |lab| {
            let (spaces, space) = kept.borrow_mut().take().ok_or("the pool is open")?;
            spaces.members().rejoin(again).await?;
            let resynced = spaces.members().resync(&Progress::default()).await?;
            assert_eq!((resynced.lost_blocks, resynced.waiting), (0, 0), "{resynced:?}");
            assert!(resynced.slabs > 0 && resynced.blocks <= 2 * 8 * 16, "{resynced:?}");
            assert_eq!(spaces.members().stale_rows().await?, vec![]);
            check(&spaces).await?;
            spaces.pool().exclude(dolmen_units::DiskSlot(1), dolmen_pool::ExcludeReason::Asked).await?;
            for row in 0..16 {
                lab.expect(&space, row << 20, 64 * 1024, if row < 8 { 2 } else { 1 }).await?;
            }
            spaces.close().await?;
            Ok(())
        })
        .unwrap();
}

/// A disk is missing when the pool is opened on its own host: it opens degraded without a flag, is written, and the disk
/// is brought up to date when it is there at the next opening.
#[test]
fn a_disk_that_was_away_over_a_restart_is_resynced() {
    let bench = Bench::new(4, 3, Bytes::mib(96));
    bench
        .run(async move |lab| {
            let spaces = lab.create().await?;
            let space = lab.space(&spaces, "data", Bytes::mib(8), MIRROR).await?;
            lab.write(&space, 0, 1 << 20, 1).await?;
            lab.write(&space, 3 << 20, 1 << 20, 1).await?;
            spaces.close().await?;
            Ok(())
        })
        .unwrap();
    bench
        .run_in(bench.lab_with(|number| number != 2), async move |lab| {
            let spaces = lab.open().await?;
            let space = spaces.find("data")?;
            lab.write(&space, 4096, 8192, 5).await?;
            lab.write(&space, 3 << 20, 4096, 5).await?;
            lab.expect(&space, 0, 4096, 1).await?;
            lab.expect(&space, 4096, 8192, 5).await?;
            spaces.close().await?;
            Ok(())
        })
        .unwrap();
    bench
        .run(async move |lab| {
            let spaces = lab.open().await?;
            let space = spaces.find("data")?;
            lab.expect(&space, 4096, 8192, 5).await?;
            spaces.members().resync(&Progress::default()).await?;
            assert_eq!(spaces.members().stale_rows().await?, vec![]);
            lab.expect(&space, 3 << 20, 4096, 5).await?;
            lab.check_and_close(spaces).await
        })
        .unwrap();
}

/// A disk is replaced by a larger one while it is there, and another after it has vanished: everything is on the new
/// ones afterwards, the old ones are no members any more.
#[test]
fn a_disk_is_replaced_present_or_not() {
    let bench = Bench::new(5, 3, Bytes::mib(96));
    let spare = bench.world.add_disk("spare", dolmen_sim::DiskProfile::new(Bytes::mib(128)));
    let second = bench.world.add_disk("second", dolmen_sim::DiskProfile::new(Bytes::mib(96)));
    let (spare, second) = (spare.attach(&bench.world), second.attach(&bench.world));
    let doomed = Rc::clone(&bench.disks[1]);
    bench
        .run(async move |lab| {
            let spaces = lab.create().await?;
            let space = lab.space(&spaces, "data", Bytes::mib(8), MIRROR).await?;
            lab.write(&space, 0, 1 << 20, 1).await?;
            lab.write(&space, 5 << 20, 1 << 20, 2).await?;
            let old = spaces.pool().members().find_disk("disk0")?;
            spaces.moves().replace(&old, spare, &[], &Progress::default()).await?;
            assert!(spaces.pool().members().find_disk("disk0").is_err());
            check(&spaces).await?;
            doomed.vanish();
            lab.write(&space, 0, 4096, 3).await?;
            spaces.flush().await?;
            let freed =
                spaces.pool().disks().into_iter().find(|disk| !disk.is_present()).ok_or("one is gone")?;
            spaces.moves().replace(&freed, second, &[], &Progress::default()).await?;
            assert_eq!(spaces.pool().disks().len(), 3);
            lab.expect(&space, 0, 4096, 3).await?;
            lab.expect(&space, 4096, 4096, 1).await?;
            lab.expect(&space, 5 << 20, 1 << 20, 2).await?;
            lab.check_and_close(spaces).await
        })
        .unwrap();
}

/// A disk has all data when it leaves, and tables are written back without it: of a row without tables, and of one that has
/// some. When it is back it is brought up to date, and stands by itself when the other copy goes and the pool is opened again.
#[test]
fn a_disk_that_missed_tables_only_is_brought_up_to_date() {
    for formatted in [false, true] {
        let bench = Bench::new(43, 2, Bytes::mib(96));
        let disk = Rc::clone(&bench.disks[0]);
        let kept = Rc::new(RefCell::new(None));
        let keep = Rc::clone(&kept);
        bench
            .run(async move |lab| {
                let spaces = lab.create().await?;
                let space = lab.space(&spaces, "data", Bytes::mib(2), MIRROR).await?;
                lab.write(&space, 0, 4096, 1).await?;
                if formatted {
                    spaces.pool().checkpoint().await?;
                }
                lab.write(&space, 64 * 1024, 64 * 1024, 2).await?;
                spaces.flush().await?;
                disk.vanish();
                spaces.pool().exclude(dolmen_units::DiskSlot(0), dolmen_pool::ExcludeReason::Asked).await?;
                spaces.pool().checkpoint().await?;
                *keep.borrow_mut() = Some((spaces, space));
                Ok(())
            })
            .unwrap();
        bench.disks[0].come_back();
        let again = bench.disks[0].attach(&bench.world);
        bench
            .run(async move |_| {
                let (spaces, _) = kept.borrow_mut().take().ok_or("the pool is open")?;
                spaces.members().rejoin(again).await?;
                spaces.members().resync(&Progress::default()).await?;
                assert_eq!(spaces.members().stale_rows().await?, vec![]);
                spaces.close().await?;
                Ok(())
            })
            .unwrap();
        bench.is_complete_alone(0, &[(0, 4096, 1), (64 * 1024, 64 * 1024, 2)]).unwrap();
    }
}

/// All of one copy's tables rot while they are in memory, where nobody reads them from the disk. A scrub finds that and mends
/// it, so that this copy stands by itself.
#[test]
fn a_scrub_mends_tables_that_are_in_memory() {
    let capacity = Bytes::mib(96);
    let bench = Bench::new(47, 2, capacity);
    let disk = Rc::clone(&bench.disks[0]);
    bench
        .run(async move |lab| {
            let spaces = lab.create().await?;
            let space = lab.space(&spaces, "data", Bytes::mib(4), MIRROR).await?;
            for fill in 1..4 {
                lab.write(&space, 0, 256 * 1024, fill).await?;
                lab.write(&space, 2 << 20, 4096, fill).await?;
                spaces.pool().checkpoint().await?;
            }
            // As docs/format/space.md has it.
            let begins = *b"DTAB";
            let mut found = vec![0; begins.len()];
            let holds = |at: &u64| disk.show(*at, &mut found) && found == begins;
            let pages: Vec<u64> = (9 << 20..capacity.0).step_by(4096).filter(holds).collect();
            assert!(pages.len() >= 4, "two slots for each of two rows: {pages:?}");
            pages.iter().for_each(|at| disk.rot(at + 77, 3));
            spaces.scrubs().verify(&Progress::default()).await?;
            spaces.flush().await?;
            check(&spaces).await?;
            spaces.close().await?;
            Ok(())
        })
        .unwrap();
    bench.is_complete_alone(0, &[(0, 256 * 1024, 3), (2 << 20, 4096, 3)]).unwrap();
}

/// The file system below a disk is full: a task that needs new room gets an error, and nothing else fails. Tables of rows that are
/// there have their room, so no sound disk is excluded for them.
#[test]
fn no_room_below_a_disk_fails_writes_and_not_the_disk() {
    let bench = Bench::new(41, 2, Bytes::mib(96));
    let disks = bench.disks.clone();
    bench
        .run(async move |lab| {
            let spaces = lab.create().await?;
            let space = lab.space(&spaces, "data", Bytes::mib(8), MIRROR).await?;
            lab.write(&space, 0, 64 * 1024, 1).await?;
            disks[0].arm(FaultKind::NoSpace);
            spaces.pool().checkpoint().await?;
            assert!(spaces.pool().disks().iter().all(|disk| disk.is_present()), "tables have their room");
            let error = lab.write(&space, 4 << 20, 4096, 2).await.unwrap_err();
            assert!(error.to_string().contains("no space"), "{error}");
            assert!(spaces.pool().disks().iter().all(|disk| disk.is_present()), "{error}");
            // Room was made.
            lab.write(&space, 4 << 20, 4096, 3).await?;
            lab.expect(&space, 0, 64 * 1024, 1).await?;
            lab.expect(&space, 4 << 20, 4096, 3).await?;
            lab.check_and_close(spaces).await
        })
        .unwrap();
}

/// Something that is done beside something else.
type Task<'a> = Pin<Box<dyn Future<Output = Result<(), String>> + 'a>>;

/// How fast a disk is whose flushes take long.
struct SlowFlushes;

impl LatencyModel for SlowFlushes {
    fn latency(&self, request: Request, random: &mut Random) -> Duration {
        match request.kind {
            CommandKind::Flush => Duration::from_millis(20),
            _ => SimpleLatency::FAST.latency(request, random),
        }
    }
}

/// Slabs move to another disk while the tables of their rows are written for the first time: wherever in that the new slab
/// comes, it gets both slots of every page, so that it counts alone. Each disk is then missing once.
#[test]
fn a_slab_that_joins_while_tables_are_first_written_is_complete() {
    for seed in 0..20 {
        let capacity = Bytes::mib(96);
        let slow = || DiskProfile { latency: Rc::new(SlowFlushes), ..DiskProfile::new(capacity) };
        let bench = Bench::with_profile(1000 + seed, 3, slow);
        bench
            .run(async move |lab| {
                let spaces = lab.create().await?;
                let rows = 1 + seed % 3;
                let space = lab.space(&spaces, "data", Bytes::mib(6), MIRROR).await?;
                for row in 0..rows {
                    lab.write(&space, row << 20, 16 * 1024, 1).await?;
                }
                let (from, to) = (
                    spaces.pool().members().find_disk("disk0")?,
                    spaces.pool().members().find_disk("disk2")?,
                );
                let pool = Rc::clone(spaces.pool());
                let checkpoint = async { pool.checkpoint().await.map_err(|error| error.to_string()) };
                let movement = async {
                    sleep(lab.seams.clock.as_ref(), Duration::from_millis(5 * seed)).await;
                    let moved = spaces.moves().move_slabs(from.slot(), to.slot(), &Progress::default()).await;
                    moved.map(drop).map_err(|error| error.to_string())
                };
                let both: [Task<'_>; 2] = [Box::pin(checkpoint), Box::pin(movement)];
                for result in join_all(both).await {
                    result?;
                }
                spaces.close().await?;
                Ok(())
            })
            .unwrap();
        // The one with the other copy first: as long as that is there, what a slab lacks is given to it.
        for missing in [1, 0, 2] {
            bench
                .run_in(bench.lab_with(|number| number != missing), async move |lab| {
                    let spaces = lab.open().await?;
                    let space = spaces.find("data")?;
                    for row in 0..1 + seed % 3 {
                        lab.expect(&space, row << 20, 16 * 1024, 1).await?;
                    }
                    assert_eq!(spaces.data_loss_events().len(), 0, "seed {seed}, without disk{missing}");
                    spaces.close().await?;
                    Ok(())
                })
                .unwrap();
            bench
                .run(async move |lab| {
                    let spaces = lab.open().await?;
                    spaces.members().resync(&Progress::default()).await?;
                    spaces.close().await?;
                    Ok(())
                })
                .unwrap();
        }
    }
}

/// Every block of one copy rots and is healed by a scrub; then the copy that it was healed from goes. What was healed stands
/// by itself, now and when the pool is opened again.
#[test]
fn a_healed_copy_is_complete_alone() {
    let capacity = Bytes::mib(96);
    let bench = Bench::new(21, 2, capacity);
    let disk = Rc::clone(&bench.disks[0]);
    bench
        .run(async move |lab| {
            let spaces = lab.create().await?;
            let space = lab.space(&spaces, "data", Bytes::mib(4), MIRROR).await?;
            lab.write(&space, 0, 1 << 20, 1).await?;
            spaces.flush().await?;
            let corrupt = crate::harness::places_of(&disk, 0..256, 1);
            assert_eq!(corrupt.len(), 256, "each block is once on each disk");
            corrupt.iter().for_each(|at| disk.rot(at + 77, 3));
            check(&spaces).await?;
            assert_eq!(spaces.counters().healed_blocks, 256);
            spaces.pool().exclude(dolmen_units::DiskSlot(1), dolmen_pool::ExcludeReason::Asked).await?;
            lab.expect(&space, 0, 1 << 20, 1).await?;
            spaces.close().await?;
            Ok(())
        })
        .unwrap();
    bench.is_complete_alone(0, &[(0, 1 << 20, 1)]).unwrap();
}

/// A bit of each block turns on one disk, and a scrub mends that: when it has ended, no cut of the power takes that back.
#[test]
fn what_a_scrub_has_mended_is_flushed_when_it_ends() {
    let bench = Bench::new(22, 2, Bytes::mib(96));
    let disk = Rc::clone(&bench.disks[0]);
    bench
        .run(async move |lab| {
            let spaces = lab.create().await?;
            let space = lab.space(&spaces, "data", Bytes::mib(4), MIRROR).await?;
            lab.write(&space, 0, 1 << 20, 1).await?;
            spaces.flush().await?;
            crate::harness::places_of(&disk, 0..256, 1).iter().for_each(|at| disk.rot(at + 77, 3));
            check(&spaces).await?;
            assert_eq!(spaces.counters().healed_blocks, 256);
            assert_eq!(disk.pending_writes().len(), 0, "writes that a cut of the power may take");
            Ok(())
        })
        .unwrap();
}

/// How fast a disk is of which one read takes long: the one that comes after so many others, counted from when it is told.
struct OneSlowRead(Cell<Option<usize>>);

impl LatencyModel for OneSlowRead {
    fn latency(&self, request: Request, random: &mut Random) -> Duration {
        let usual = SimpleLatency::FAST.latency(request, random);
        if request.kind != CommandKind::Read {
            return usual;
        }
        let left = self.0.get();
        self.0.set(left.and_then(|left| left.checked_sub(1)));
        if left == Some(0) { Duration::from_millis(200) } else { usual }
    }
}

/// Two requests look for a page of a table at the same time, and one of them waits long for one slot of one copy. Meanwhile
/// the other has the page, changes it, and it is written back twice. What the first one has seen by then is of two times, and
/// nothing of it may go to a disk: the copy on the other disk stands by itself afterwards. Whichever read is the slow one.
#[test]
fn a_late_look_at_a_table_gives_nothing_old_to_other_copies() {
    for slow in 0..8 {
        let capacity = Bytes::mib(96);
        let mut bench = Bench::new(31, 1, capacity);
        let latency = Rc::new(OneSlowRead(Cell::new(None)));
        let profile = DiskProfile { latency: Rc::clone(&latency) as _, ..DiskProfile::new(capacity) };
        bench.disks.push(bench.world.add_disk("slow", profile));
        bench
            .run(async move |lab| {
                let spaces = lab.create().await?;
                let space = lab.space(&spaces, "data", Bytes::mib(4), MIRROR).await?;
                lab.write(&space, 0, 1 << 20, 1).await?;
                spaces.close().await?;
                Ok(())
            })
            .unwrap();
        bench
            .run(async move |lab| {
                let spaces = lab.open().await?;
                let space = spaces.find("data")?;
                latency.0.set(Some(slow));
                let (delayed_writes, late_space) = (lab.clone(), space.clone());
                let look: crate::harness::Boxed<Outcome> =
                    Box::pin(async move { delayed_writes.expect(&late_space, 0, 4096, 1).await });
                let (other, pool) = (lab.clone(), Rc::clone(&spaces));
                let write: crate::harness::Boxed<Outcome> = Box::pin(async move {
                    sleep(other.seams.clock.as_ref(), Duration::from_millis(5)).await;
                    for block in 5..7 {
                        other.write(&space, block * 4096, 4096, 2).await?;
                        pool.pool().checkpoint().await?;
                    }
                    Ok(())
                });
                join_all([look, write]).await.into_iter().collect::<Outcome>()?;
                lab.check_and_close(spaces).await
            })
            .unwrap();
        let alone = bench.is_complete_alone(0, &[(0, 5 * 4096, 1), (5 * 4096, 2 * 4096, 2)]);
        alone.unwrap_or_else(|error| panic!("read {slow} was slow: {error}"));
    }
}

/// A thin space on a pool that is too small: writes fail with no-space, everything else goes on, discards give room back.
#[test]
fn a_full_pool_is_not_a_trap() {
    let bench = Bench::new(6, 2, Bytes::mib(72));
    bench
        .run(async move |lab| {
            let spaces = lab.create().await?;
            let space = lab.space(&spaces, "data", Bytes::gib(1), MIRROR).await?;
            let mut full_at = 0;
            for row in 0..1024u64 {
                if let Err(error) = lab.write(&space, row << 20, 1 << 20, 1).await {
                    assert!(error.to_string().contains("no room"), "{error}");
                    full_at = row;
                    break;
                }
            }
            assert!(full_at > 20, "{full_at} rows fitted");
            lab.write(&space, 0, 1 << 20, 2).await?;
            lab.expect(&space, (full_at - 1) << 20, 1 << 20, 1).await?;
            lab.expect(&space, full_at << 20, 4096, 0).await?;
            for row in 0..full_at {
                space.discard(row << 20, 1 << 20).await?;
            }
            assert_eq!(space.claimed(), Bytes::ZERO);
            lab.expect(&space, 0, 1 << 20, 0).await?;
            lab.write(&space, full_at << 20, 1 << 20, 4).await?;
            spaces.flush().await?;
            lab.check_and_close(spaces).await?;
            let spaces = lab.open().await?;
            let space = spaces.find("data")?;
            lab.expect(&space, full_at << 20, 1 << 20, 4).await?;
            lab.expect(&space, 0, 1 << 20, 0).await?;
            spaces.changes().delete(&space).await?;
            drop(space);
            lab.check_and_close(spaces).await
        })
        .unwrap();
}

/// An exported pool opens on another host; the old owner may not open half of it.
#[test]
fn an_exported_pool_moves() {
    let bench = Bench::new(7, 3, Bytes::mib(72));
    bench
        .run(async move |lab| {
            let spaces = lab.create().await?;
            let space = lab.space(&spaces, "data", Bytes::mib(8), MIRROR).await?;
            lab.write(&space, 0, 1 << 20, 1).await?;
            spaces.export().await?;
            Ok(())
        })
        .unwrap();
    let mut lab = bench.lab_with(|number| number != 0);
    lab.arbiter = dolmen_pool::MemoryArbiter::new(dolmen_units::HostId([8; 16]));
    bench
        .run_in(lab, async move |lab| {
            let spaces = lab.open().await?;
            let space = spaces.find("data")?;
            lab.expect(&space, 0, 1 << 20, 1).await?;
            lab.write(&space, 0, 4096, 2).await?;
            spaces.close().await?;
            Ok(())
        })
        .unwrap();
    bench
        .run_in(bench.lab_with(|number| number == 0), async move |lab| {
            let error = lab.open().await.err().ok_or("half of a pool that lives elsewhere must not open")?;
            assert!(error.to_string().contains("may not be written here"), "{error}");
            Ok(())
        })
        .unwrap();
}

/// The daemon dies with acknowledged overwrites that no flush covered, and a disk is away at the next opening: what lies on
/// it is out of reach, neither guessed nor forgotten over two openings and a checkpoint; back again, it reads as it was
/// acknowledged.
#[test]
fn what_cannot_be_decided_waits_for_its_disk() {
    let bench = Bench::new(8, 2, Bytes::mib(96));
    bench
        .run(async move |lab| {
            let spaces = lab.create().await?;
            let space = lab.space(&spaces, "data", Bytes::mib(8), Resiliency::Simple).await?;
            for row in 0..8 {
                lab.write(&space, row << 20, 1 << 20, 1).await?;
            }
            spaces.pool().checkpoint().await?;
            for row in 0..8 {
                lab.write(&space, row << 20, 512 * 1024, 2).await?;
            }
            lab.hold(spaces);
            Ok(())
        })
        .unwrap();
    bench.world.kill();
    for _ in 0..2 {
        bench
            .run_in(bench.lab_with(|number| number == 0), async move |lab| {
                let spaces = lab.open().await?;
                let space = spaces.find("data")?;
                let error = space.read(0, 1 << 20).await.err().ok_or("half of the stripes are away")?;
                assert!(error.to_string().contains("absent"), "{error}");
                spaces.pool().checkpoint().await?;
                spaces.close().await?;
                Ok(())
            })
            .unwrap();
    }
    bench
        .run(async move |lab| {
            let spaces = lab.open().await?;
            let space = spaces.find("data")?;
            for row in 0..8 {
                lab.expect(&space, row << 20, 512 * 1024, 2).await?;
                lab.expect(&space, (row << 20) + 512 * 1024, 512 * 1024, 1).await?;
            }
            lab.check_and_close(spaces).await
        })
        .unwrap();
}

/// Zeros are written to a thin space: they claim nothing, take the place of what was there, give rows back, and are there
/// after the pool was opened again. A fixed space stores them.
#[test]
fn zeros_written_to_a_thin_space_are_forgotten() {
    let bench = Bench::new(15, 3, Bytes::mib(96));
    bench
        .run(async move |lab| {
            let spaces = lab.create().await?;
            let space = lab.space(&spaces, "data", Bytes::mib(8), MIRROR).await?;
            lab.write(&space, 0, 1 << 20, 0).await?;
            lab.write(&space, 5 << 20, 4096, 0).await?;
            assert_eq!(space.claimed(), Bytes::ZERO, "zeros claim nothing");
            for row in 1..4 {
                lab.write(&space, row << 20, 1 << 20, 1).await?;
            }
            spaces.flush().await?;
            lab.write(&space, (1 << 20) + 4096, 8192, 0).await?;
            lab.write_as(&space, 3 << 20, 1 << 20, 0, Durability::Durable).await?;
            assert_eq!(space.claimed(), Bytes::mib(2), "the row of nothing but zeros went back");
            // A request over two rows, zeros in both.
            lab.write(&space, (2 << 20) - 4096, 8192, 0).await?;
            spaces.flush().await?;
            check_zeroed(&lab, &space).await?;
            lab.check_and_close(spaces).await
        })
        .unwrap();
    bench
        .run(async move |lab| {
            let spaces = lab.open().await?;
            let space = spaces.find("data")?;
            check_zeroed(&lab, &space).await?;
            lab.check_and_close(spaces).await
        })
        .unwrap();
}

async fn check_zeroed(lab: &Lab, space: &Space) -> Outcome {
    let mib = 1 << 20;
    lab.expect(space, 0, mib, 0).await?;
    lab.expect(space, 1 << 20, 4096, 1).await?;
    lab.expect(space, (1 << 20) + 4096, 8192, 0).await?;
    lab.expect(space, (1 << 20) + 12288, mib - 16384, 1).await?;
    lab.expect(space, (2 << 20) - 4096, 8192, 0).await?;
    lab.expect(space, (2 << 20) + 4096, mib - 4096, 1).await?;
    lab.expect(space, 3 << 20, mib, 0).await
}

/// Zeros that are asked to take room do so in a thin space too, across rows and from the middle of a block on.
#[test]
fn zeros_that_are_to_take_room_take_it() {
    let bench = Bench::new(18, 3, Bytes::mib(96));
    bench
        .run(async move |lab| {
            let spaces = lab.create().await?;
            let mut spec = SpaceSpec::usual("data".parse()?, Bytes::mib(8), MIRROR);
            spec.row = Some(Bytes::mib(1));
            spec.sector = Bytes(512);
            let space = spaces.create(spec).await?;
            lab.write(&space, 1 << 20, 4096, 1).await?;
            space.write_allocated_zeroes((1 << 20) + 512, 1 << 20).await?;
            assert_eq!(space.claimed(), Bytes::mib(2), "both rows that the zeros touch");
            let extents = space.block_status(1 << 20, 1 << 20, usize::MAX).await?;
            assert!(extents.iter().all(|extent| extent.is_data), "no hole: {extents:?}");
            lab.expect(&space, 1 << 20, 512, 1).await?;
            lab.expect(&space, (1 << 20) + 512, 1 << 20, 0).await?;
            lab.check_and_close(spaces).await
        })
        .unwrap();
}

/// Of zeros that begin and end inside blocks, the blocks at the ends keep what the zeros did not reach.
#[test]
fn zeros_leave_the_rest_of_a_block_as_it_was() {
    let bench = Bench::new(16, 3, Bytes::mib(96));
    bench
        .run(async move |lab| {
            let spaces = lab.create().await?;
            let mut spec = SpaceSpec::usual("data".parse()?, Bytes::mib(8), MIRROR);
            spec.row = Some(Bytes::mib(1));
            spec.sector = Bytes(512);
            let space = spaces.create(spec).await?;
            lab.write(&space, 0, 32768, 1).await?;
            lab.write(&space, 512, 512, 0).await?;
            lab.write(&space, 4096 + 512, 16384, 0).await?;
            lab.expect(&space, 0, 512, 1).await?;
            lab.expect(&space, 512, 512, 0).await?;
            lab.expect(&space, 1024, 4096 - 512, 1).await?;
            lab.expect(&space, 4096 + 512, 16384, 0).await?;
            lab.expect(&space, 4096 + 512 + 16384, 32768 - 4096 - 512 - 16384, 1).await?;
            lab.check_and_close(spaces).await
        })
        .unwrap();
}

/// A fixed space has its room and keeps it: zeros are stored like anything else.
#[test]
fn zeros_written_to_a_fixed_space_are_stored() {
    let bench = Bench::new(17, 3, Bytes::mib(96));
    bench
        .run(async move |lab| {
            let spaces = lab.create().await?;
            let mut spec = SpaceSpec::usual("data".parse()?, Bytes::mib(2), MIRROR);
            spec.row = Some(Bytes::mib(1));
            spec.provisioning = Provisioning::Fixed;
            let space = spaces.create(spec).await?;
            lab.write(&space, 0, 1 << 20, 1).await?;
            lab.write(&space, 0, 1 << 20, 0).await?;
            assert_eq!(space.claimed(), Bytes::mib(2));
            assert_eq!(space.used_end(0).await?, Some(1 << 20), "the blocks hold zeros");
            lab.expect(&space, 0, 1 << 20, 0).await?;
            lab.check_and_close(spaces).await
        })
        .unwrap();
}

/// Bytes of what the log has to keep of a write of one block: the head of an extent and a checksum.
const ENTRY_BYTES: u64 = 28;

/// Nearly half of the log tells what the table of a space has to be told whose only disk has left. Other spaces are
/// written as if nothing were: the log is trimmed around it, however often it goes round; and when the disk is back, all of
/// it is there.
#[test]
fn what_the_log_keeps_for_a_disk_that_left_stops_nobody() {
    let bench = Bench::new(19, 3, Bytes::mib(128));
    let large = bench.world.add_disk("large", dolmen_sim::DiskProfile::new(Bytes::gib(1)));
    let mut lab = bench.lab();
    lab.devices.push(large.attach(&bench.world));
    let kept = Rc::new(RefCell::new(None));
    let (keep, leaving) = (Rc::clone(&kept), Rc::clone(&large));
    bench
        .run_in(lab, async move |lab| {
            let spaces = lab.create().await?;
            let mut spec = SpaceSpec::usual("alone".parse()?, Bytes::mib(512), Resiliency::Simple);
            spec.columns = Some(1);
            let alone = spaces.create(spec).await?;
            let wide = lab.space(&spaces, "wide", Bytes::mib(32), MIRROR).await?;
            let mut written = 0;
            while log_percent(&spaces) < 46 {
                write_scattered(&lab, &alone, written..written + 128, 1).await?;
                written += 128;
            }
            spaces.flush().await?;
            leaving.vanish();
            for fill in 2..10 {
                write_scattered(&lab, &wide, 0..4000, fill).await?;
                wide.flush().await?;
            }
            let (used, _) = spaces.pool().log().usage().unwrap();
            assert!(
                used.0 > written * ENTRY_BYTES,
                "the log keeps an entry of each of {written} writes: {used}"
            );
            assert!(alone.read(0, 4096).await.is_err(), "its disk is away");
            lab.expect(&wide, 8192, 4096, 9).await?;
            *keep.borrow_mut() = Some((spaces, alone, written));
            Ok(())
        })
        .unwrap();
    large.come_back();
    let again = large.attach(&bench.world);
    bench
        .run(async move |lab| {
            let (spaces, alone, written) = kept.borrow_mut().take().ok_or("the pool is open")?;
            spaces.members().rejoin(again).await?;
            spaces.members().resync(&Progress::default()).await?;
            for number in 0..written {
                lab.expect(&alone, number * 8192, 4096, 1).await?;
            }
            spaces.pool().checkpoint().await?;
            assert!(log_percent(&spaces) < 5, "nothing is left to keep");
            lab.check_and_close(spaces).await
        })
        .unwrap();
}

fn log_percent(spaces: &Spaces) -> u64 {
    let (used, capacity) = spaces.pool().log().usage().unwrap_or_default();
    used.0 * 100 / capacity.0.max(1)
}

/// Writes every other block, many at a time, so that records share batches.
async fn write_scattered(lab: &Lab, space: &Space, numbers: Range<u64>, fill: u8) -> Outcome {
    for first in numbers.clone().step_by(128) {
        let together = first..numbers.end.min(first + 128);
        let written = join_all(together.map(|number| lab.write(space, number * 8192, 4096, fill)));
        written.await.into_iter().collect::<Result<(), _>>()?;
    }
    Ok(())
}

/// A disk of 1 GiB comes to two of 64 GiB, whose log and pages take more than its metadata area: it takes data and does not
/// vote. The log then goes round on the others while rows on all three are written; every block is what was written, and
/// the pool opens again.
#[test]
fn a_disk_that_has_no_room_for_the_metadata_takes_data_and_does_not_vote() {
    let bench = Bench::new(111, 2, Bytes::gib(64));
    let small = bench.world.add_disk("small", DiskProfile::new(Bytes::gib(1)));
    let attached = small.attach(&bench.world);
    bench.world.set_steps_max(20_000_000);
    bench
        .run(async move |lab| {
            let spaces = lab.create().await?;
            let disk = spaces.members().add(attached, &[]).await?;
            spaces.pool().voter_tender().tend().await?;
            let (log, pages) = spaces.pool().identity().metadata_bytes();
            let area = disk.extent().ok_or("it is here")?.metadata;
            assert!(area < Bytes(log.0 + pages.0), "{area} are too small for {log} and {pages}");
            // It would survive the loss of both disks that have the metadata, and be lost with that.
            let refused = lab.space(&spaces, "three", Bytes::mib(64), Resiliency::Mirror { copies: 3 }).await;
            assert!(refused.is_err_and(|error| error.to_string().contains("would survive its pool")));
            let three = lab.space(&spaces, "three", Bytes::mib(64), Resiliency::Simple).await?;
            for row in 0..32 {
                lab.write(&three, row << 20, 1 << 20, 1).await?;
            }
            let two = lab.space(&spaces, "two", Bytes::mib(64), MIRROR).await?;
            for round in 0..40 {
                for row in 0..32 {
                    for part in 0..16 {
                        lab.write(&two, (row << 20) + part * 4096, 4096, 1 + round).await?;
                    }
                }
                two.flush().await?;
            }
            let seen = spaces.scrubs().verify(&Progress::default()).await?;
            assert!(seen.is_sound(), "{seen:?}");
            assert_eq!(disk.counters().checksum_errors, 0, "its data is what was written");
            assert!(!spaces.pool().members().voters().contains(&disk.id()), "it does not vote");
            assert_eq!(spaces.pool().members().voters().len(), 2);
            spaces.close().await?;
            Ok(())
        })
        .unwrap();
    let devices = bench.disks.iter().chain([&small]).map(|disk| disk.attach(&bench.world)).collect();
    bench
        .run_in(Lab { devices, ..bench.lab() }, async move |lab| {
            let spaces = lab.open().await?;
            assert_eq!((spaces.pool().disks().len(), spaces.pool().members().voters().len()), (3, 2));
            let three = spaces.find("three")?;
            lab.expect(&three, 31 << 20, 1 << 20, 1).await?;
            check(&spaces).await
        })
        .unwrap();
}

/// Rows of a space that nobody opens, to fill the map with.
const FILLER: SpaceId = SpaceId(999);

/// Claims rows, some at a time, until not even one fits behind a checkpoint; how many there are then.
async fn fill_the_map(pool: &Rc<Pool>, from: u64) -> Result<u64, Box<dyn std::error::Error>> {
    let claim = async |rows: Range<u64>| {
        let mut change = pool.change(Purpose::Claim).await;
        rows.for_each(|index| change.put(keys::place(FILLER, index), vec![7; 200]));
        match change.commit().await {
            Ok(()) => Ok(true),
            Err(PoolError::MetadataFull { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    };
    let mut next = from;
    loop {
        while claim(next..next + 100).await? {
            next += 100;
        }
        pool.checkpoint().await?;
        if !claim(next..next + 1).await? {
            return Ok(next);
        }
        next += 1;
    }
}

/// Claims follow each other on a map that is nearly empty. None waits for a checkpoint, which would trim the log: what is in
/// use of it only grows.
#[test]
fn claims_on_a_map_with_room_wait_for_no_checkpoint() {
    let bench = Bench::new(102, 2, Bytes::mib(2048));
    bench
        .run(async |lab| {
            let spaces = lab.create().await?;
            let pool = spaces.pool();
            for index in 0..100 {
                let (before, capacity) = pool.log().usage().unwrap();
                let mut change = pool.change(Purpose::Claim).await;
                change.put(keys::place(FILLER, index), vec![7; 200]);
                change.commit().await?;
                let (used, _) = pool.log().usage().unwrap();
                assert!(used > before && used.0 * 2 < capacity.0, "{used} in use after {before}");
            }
            spaces.close().await?;
            Ok(())
        })
        .unwrap();
}

/// A claim costs as many writes and flushes on a map with 5,000 rows as on an empty one: one batch of the log on each voter.
#[test]
fn a_claim_costs_the_same_on_any_map() {
    let bench = Rc::new(Bench::new(104, 2, Bytes::mib(2048)));
    bench.world.set_steps_max(20_000_000);
    let outside = Rc::clone(&bench);
    bench
        .run(async move |lab| {
            let spaces = lab.create().await?;
            let pool = Rc::clone(spaces.pool());
            let mut costs = Vec::new();
            for rows in [0, 5000] {
                for first in (0..rows).step_by(100) {
                    let mut change = pool.change(Purpose::Claim).await;
                    (first..first + 100)
                        .for_each(|index| change.put(keys::place(FILLER, index), vec![7; 200]));
                    change.commit().await?;
                }
                pool.checkpoint().await?;
                let before = outside.world.change_count();
                let mut change = pool.change(Purpose::Claim).await;
                change.put(keys::place(FILLER, rows), vec![7; 200]);
                change.commit().await?;
                costs.push(outside.world.change_count() - before);
            }
            assert_eq!(costs[0], costs[1], "writes and flushes of a claim");
            assert!(costs[0] <= 4, "{} writes and flushes on two voters", costs[0]);
            spaces.close().await?;
            Ok(())
        })
        .unwrap();
}

#[derive(Clone, Copy, PartialEq)]
enum Burden {
    Delete { every: u64 },
    MarkStale,
}

/// Puts a burden on the rows of a full map, in an order that goes from leaf to leaf.
async fn burden(pool: &Rc<Pool>, rows: u64, burden: Burden) -> Outcome {
    let every = if let Burden::Delete { every } = burden { every } else { 1 };
    let scattered = |number: u64| (number * 7919) % rows;
    let numbers: Vec<u64> = (0..rows).map(scattered).filter(|row| row % every == 0).collect();
    for some in numbers.chunks(200) {
        let mut change = pool.change(Purpose::Release).await;
        for index in some {
            if burden == Burden::MarkStale {
                change.put(keys::place(FILLER, *index), vec![8; 200]);
                change.put(keys::stale(DiskSlot(1), RowId(*index)), Vec::new());
            } else {
                change.delete(keys::place(FILLER, *index));
            }
        }
        change.commit().await?;
    }
    Ok(())
}

/// The map is filled until claims are refused. Then rows are deleted in scattered order, all or one in 40, or marked as
/// stale, as they are when a disk is lost; none of it is refused, the pool goes on, is closed or killed, opens again, and
/// where rows were deleted, new ones find room.
#[test]
fn a_full_map_takes_deletes_and_stale_marks_in_any_order_and_opens_again() {
    for what in [Burden::Delete { every: 1 }, Burden::Delete { every: 40 }, Burden::MarkStale] {
        for closes in [true, false] {
            let bench = Bench::new(101, 2, Bytes::mib(2048));
            bench.world.set_steps_max(20_000_000);
            let filled = Rc::new(Cell::new(0));
            let count = Rc::clone(&filled);
            bench
                .run(async move |lab| {
                    let spaces = lab.create().await?;
                    let pool = Rc::clone(spaces.pool());
                    count.set(fill_the_map(&pool, 0).await?);
                    burden(&pool, count.get(), what).await?;
                    if closes {
                        pool.checkpoint().await?;
                        assert_eq!(pool.state(), PoolState::Writable);
                        spaces.close().await?;
                    }
                    Ok(())
                })
                .unwrap();
            assert!(filled.get() > 5000, "{} rows", filled.get());
            bench.world.kill();
            bench
                .run(async move |lab| {
                    let spaces = lab.open().await?;
                    let pool = Rc::clone(spaces.pool());
                    let rows = pool.map().scan(keys::places(FILLER, 0..u64::MAX), usize::MAX).await?;
                    let expected = match what {
                        Burden::Delete { every } => filled.get() - filled.get().div_ceil(every),
                        Burden::MarkStale => filled.get(),
                    };
                    assert_eq!(rows.len() as u64, expected);
                    let stale = pool.map().scan(keys::stale_on(DiskSlot(1)), usize::MAX).await?;
                    assert_eq!(stale.len() as u64, if what == Burden::MarkStale { filled.get() } else { 0 });
                    if what == (Burden::Delete { every: 1 }) {
                        let again = fill_the_map(&pool, 1 << 20).await? - (1 << 20);
                        assert!(again > filled.get() / 2, "{again} of {} rows fit again", filled.get());
                    }
                    pool.checkpoint().await?;
                    spaces.close().await?;
                    Ok(())
                })
                .unwrap();
        }
    }
}

/// Changes that nothing refuses fill the map to its last pages, far beyond what claims leave. The log cannot be trimmed then,
/// and the pool is not stopped: what it holds can be read, and once rows are deleted it is as before, also opened again.
#[test]
fn a_map_without_a_page_left_stops_nothing_and_is_got_out_of_by_deletes() {
    let bench = Bench::new(103, 2, Bytes::mib(2048));
    bench.world.set_steps_max(20_000_000);
    let rows = Rc::new(Cell::new(0u64));
    let count = Rc::clone(&rows);
    bench
        .run(async move |lab| {
            let spaces = lab.create().await?;
            let pool = Rc::clone(spaces.pool());
            let ending = loop {
                let from = count.get();
                let mut change = pool.change(Purpose::Release).await;
                (from..from + 100).for_each(|index| change.put(keys::place(FILLER, index), vec![7; 200]));
                change.commit().await?;
                count.set(from + 100);
                if let Err(error) = pool.checkpoint().await {
                    break error;
                }
            };
            assert!(matches!(ending, PoolError::MetadataFull { .. }), "{ending}");
            assert_eq!(pool.state(), PoolState::Writable);
            let last = pool.map().get(&keys::place(FILLER, count.get() - 1)).await?;
            assert_eq!(last, Some(vec![7; 200]));
            burden(&pool, count.get(), Burden::Delete { every: 2 }).await?;
            pool.checkpoint().await?;
            spaces.close().await?;
            Ok(())
        })
        .unwrap();
    bench
        .run(async move |lab| {
            let spaces = lab.open().await?;
            let left = spaces.pool().map().scan(keys::places(FILLER, 0..u64::MAX), usize::MAX).await?;
            assert_eq!(left.len() as u64, rows.get() / 2);
            spaces.close().await?;
            Ok(())
        })
        .unwrap();
}
