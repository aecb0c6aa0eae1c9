//! Disks that leave, and come back, at the worst moments: in the middle of a resync, of a write-back, of a flush, of an epoch.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use dolmen_block_io::sync::join_all;
use dolmen_block_io::{sleep, within};
use dolmen_pool::{
    Arbiter, ArbiterError, CreateOptions, ExcludeReason, HostRecord, LocalFuture, MemoryArbiter, PoolState,
};
use dolmen_sim::{BitFlip, DiskIndex};
use dolmen_space::{DataLossKind, Progress, Resiliency, SpaceError, SpaceSpec, Spaces, UnreadableReason};
use dolmen_units::{Bytes, DiskSlot, HostId, PoolId};

use crate::harness::slow_disks::{CAPACITY, Dial, PowerCut, Slow, Task, extra, pause, text};
use crate::harness::{Bench, Lab, check, places_of};

const MIRROR: Resiliency = Resiliency::Mirror { copies: 2 };

/// Scenario: a disk comes back and is being resynced; it goes again, misses writes, and comes back, at every stage of that.
/// After the next resync it holds everything, and the other copy may go.
#[test]
fn a_disk_that_flaps_during_its_resync_is_not_trusted_for_it() {
    for offset in 0..30 {
        let bench = Rc::new(Bench::with_profile(3000 + offset, 2, || Slow::FLUSHES.profile()));
        let outside = Rc::clone(&bench);
        bench
            .run(async move |lab| {
                let disk = Rc::clone(&outside.disks[0]);
                let spaces = lab.create().await?;
                let space = lab.space(&spaces, "data", Bytes::mib(16), MIRROR).await?;
                for fill in [1, 2] {
                    for row in 0..8 {
                        lab.write(&space, row << 20, 64 * 1024, fill).await?;
                    }
                    spaces.flush().await?;
                    if fill == 1 {
                        disk.vanish();
                    }
                }
                disk.come_back();
                spaces.members().rejoin(disk.attach(&outside.world)).await?;
                let progress = Progress::default();
                let resync = async { spaces.members().resync(&progress).await.map(drop).map_err(text) };
                let flap = async {
                    pause(&lab, 5 * offset).await;
                    disk.vanish();
                    for row in 0..8 {
                        lab.write(&space, row << 20, 64 * 1024, 3).await.map_err(text)?;
                    }
                    disk.come_back();
                    spaces.members().rejoin(disk.attach(&outside.world)).await.map(drop).map_err(text)
                };
                extra(vec![Box::pin(resync), Box::pin(flap)]).await?;
                spaces.flush().await?;
                spaces.members().resync(&Progress::default()).await?;
                check(&spaces).await?;
                spaces.pool().exclude(DiskSlot(1), ExcludeReason::Asked).await?;
                for row in 0..8 {
                    lab.expect(&space, row << 20, 64 * 1024, 3).await?;
                }
                spaces.close().await?;
                Ok(())
            })
            .unwrap_or_else(|error| panic!("after {} ms: {error}", 5 * offset));
    }
}

/// Scenario: a disk comes back, while something is written without it, and is being resynced. Meanwhile another disk leaves,
/// which is a new epoch, and a flush records under that what had not been flushed. The resync gives the disk that too, and the
/// other copy may go.
#[test]
fn what_is_relogged_under_a_later_epoch_is_resynced() {
    for offset in 0..30 {
        let dials: Vec<Dial> = (0..3).map(|_| Dial::default()).collect();
        let next = Cell::new(0);
        let bench = Rc::new(Bench::with_profile(41, 3, || dials[next.replace(next.get() + 1)].profile()));
        let outside = Rc::clone(&bench);
        bench
            .run(async move |lab| {
                let disks = &outside.disks;
                let spaces = lab.create().await?;
                let space = lab.space(&spaces, "data", Bytes::mib(16), MIRROR).await?;
                for row in 0..8 {
                    lab.write(&space, row << 20, 64 * 4096, 1).await?;
                }
                spaces.flush().await?;
                let is_on =
                    |disk: usize, row: u64| !places_of(&disks[disk], row << 8..(row << 8) + 1, 1).is_empty();
                let row = (0..8).find(|row| !is_on(2, *row)).ok_or("every row is on disk 2")?;
                disks[0].vanish();
                lab.write(&space, row << 20, 4096, 2).await?;
                spaces.flush().await?;
                disks[0].come_back();
                dials[2].flush.set(20);
                let later = (row << 20) + 40 * 4096;
                let rejoin = async {
                    spaces.members().rejoin(disks[0].attach(&outside.world)).await.map(drop).map_err(text)
                };
                let write = async {
                    pause(&lab, 10 * offset).await;
                    lab.write(&space, later, 4096, 2).await.map_err(text)
                };
                extra(vec![Box::pin(rejoin), Box::pin(write)]).await?;
                dials[2].flush.set(0);
                // The resync reads the first block for a second, while all else goes on.
                dials[1].read.set(1000);
                let progress = Progress::default();
                let resync = async { spaces.members().resync(&progress).await.map(drop).map_err(text) };
                let leave = async {
                    pause(&lab, 500).await;
                    dials[1].read.set(0);
                    spaces.pool().exclude(DiskSlot(2), ExcludeReason::Asked).await.map_err(text)?;
                    spaces.flush().await.map_err(text)
                };
                extra(vec![Box::pin(resync), Box::pin(leave)]).await?;
                let after = spaces.members().stale_rows().await?;
                assert!(!after.contains(&(space.id(), row)), "the row was not resynced: {after:?}");
                spaces.pool().exclude(DiskSlot(1), ExcludeReason::Asked).await?;
                lab.expect(&space, row << 20, 4096, 2).await?;
                lab.expect(&space, later, 4096, 2).await?;
                spaces.close().await?;
                Ok(())
            })
            .unwrap_or_else(|error| panic!("after {} ms: {error}", 10 * offset));
    }
}

/// Scenario: a disk leaves and comes back within one write-back of tables, at every stage of it, and is resynced. Opened with
/// that disk alone, everything is there.
#[test]
fn a_disk_that_flaps_within_a_write_back_lacks_no_table() {
    for offset in 0..30 {
        let bench = Rc::new(Bench::with_profile(171 + offset, 2, || Slow::WRITES.profile()));
        let outside = Rc::clone(&bench);
        bench
            .run(async move |lab| {
                let spaces = lab.create().await?;
                let space = lab.space(&spaces, "data", Bytes::mib(16), MIRROR).await?;
                for row in 0..8 {
                    lab.write(&space, row << 20, 64 * 1024, 2).await?;
                }
                spaces.flush().await?;
                let pool = Rc::clone(spaces.pool());
                let checkpoint = async { pool.checkpoint().await.map_err(text) };
                let flap = async {
                    pause(&lab, 10 * offset).await;
                    pool.exclude(DiskSlot(0), ExcludeReason::Asked).await.map_err(text)?;
                    spaces.members().rejoin(outside.disks[0].attach(&outside.world)).await.map_err(text)?;
                    spaces.members().resync(&Progress::default()).await.map(drop).map_err(text)
                };
                extra(vec![Box::pin(checkpoint), Box::pin(flap)]).await?;
                assert_eq!(spaces.members().stale_rows().await?, vec![]);
                spaces.close().await?;
                Ok(())
            })
            .unwrap_or_else(|error| panic!("after {} ms: {error}", 10 * offset));
        let alone =
            bench.is_complete_alone(0, &[0, 1, 2, 3, 4, 5, 6, 7].map(|row| (row << 20, 64 * 1024, 2)));
        alone.unwrap_or_else(|error| panic!("after {} ms, alone: {error}", 10 * offset));
    }
}

/// Scenario: flushed blocks are written over and flushed while a disk that does not vote is being excluded. What the disk
/// missed is known by the time that the flush is acknowledged, so that its resync leaves nothing wrong there.
#[test]
fn a_flush_waits_for_the_epoch_without_a_disk_that_was_passed_over() {
    for offset in [2, 5, 8] {
        let bench = Rc::new(Bench::with_profile(131 + offset, 6, || Slow::WRITES.profile()));
        let outside = Rc::clone(&bench);
        bench
            .run(async move |lab| {
                let spaces = lab.create().await?;
                let space = lab.space(&spaces, "data", Bytes::mib(16), MIRROR).await?;
                for row in 0..16 {
                    lab.write(&space, row << 20, 4096, 1).await?;
                }
                spaces.flush().await?;
                let pool = Rc::clone(spaces.pool());
                let voters = pool.members().voters();
                let victim =
                    pool.disks().into_iter().find(|disk| !voters.contains(&disk.id())).ok_or("all vote")?;
                let writes = async {
                    let all = join_all((0..16).map(|row| lab.write(&space, row << 20, 4096, 2))).await;
                    all.into_iter().collect::<Result<Vec<()>, _>>().map_err(text)?;
                    spaces.flush().await.map_err(text)
                };
                let exclude = async {
                    pause(&lab, offset).await;
                    pool.exclude(victim.slot(), ExcludeReason::Asked).await.map_err(text)
                };
                extra(vec![Box::pin(writes), Box::pin(exclude)]).await?;
                let index =
                    outside.disks.iter().position(|disk| disk.name() == victim.name()).ok_or("a disk")?;
                spaces.members().rejoin(outside.disks[index].attach(&outside.world)).await?;
                spaces.members().resync(&Progress::default()).await?;
                spaces.scrubs().verify(&Progress::default()).await?;
                assert_eq!(victim.counters().checksum_errors, 0, "what it missed was copied");
                spaces.close().await?;
                Ok(())
            })
            .unwrap_or_else(|error| panic!("after {offset} ms: {error}"));
    }
}

/// An arbiter whose folder can be full.
struct Full {
    inner: Rc<MemoryArbiter>,
    is_full: Cell<bool>,
}

impl Arbiter for Full {
    fn host(&self) -> HostId {
        self.inner.host()
    }

    fn named(&self, pool: PoolId) -> LocalFuture<'_, Result<Option<HostRecord>, ArbiterError>> {
        self.inner.named(pool)
    }

    fn record(&self, pool: PoolId, record: HostRecord) -> LocalFuture<'_, Result<(), ArbiterError>> {
        if self.is_full.get() {
            let error = ArbiterError { doing: "writing", pool, cause: "no space left".to_owned() };
            return Box::pin(async move { Err(error) });
        }
        self.inner.record(pool, record)
    }

    fn withdraw(&self, pool: PoolId) -> LocalFuture<'_, Result<(), ArbiterError>> {
        self.inner.withdraw(pool)
    }
}

/// Scenario: a voter vanishes, and the epoch without it cannot be put on record. The pool stops, and everybody who waits for
/// it is told: the write, the exclusion, and whoever closes it.
#[test]
fn a_pool_that_stops_leaves_nobody_waiting() {
    for by_a_write in [false, true] {
        let bench = Bench::new(77, 2, CAPACITY);
        let disk = Rc::clone(&bench.disks[0]);
        bench
            .run(async move |lab| {
                let arbiter = Rc::new(Full { inner: Rc::clone(&lab.arbiter), is_full: Cell::new(false) });
                let options =
                    CreateOptions { name: "tank".parse()?, overwrite: Vec::new(), fault_domains: Vec::new() };
                let host = Rc::clone(&arbiter) as Rc<dyn Arbiter>;
                let opened = dolmen_pool::create(&lab.seams, host, &lab.devices, &options).await?;
                let spaces = Spaces::start(opened).await?;
                let space = lab.space(&spaces, "data", Bytes::mib(16), MIRROR).await?;
                lab.write(&space, 0, 4096, 1).await?;
                spaces.flush().await?;
                arbiter.is_full.set(true);
                disk.vanish();
                if by_a_write {
                    lab.write(&space, 0, 4096, 2).await.unwrap_err();
                } else {
                    spaces.pool().exclude(DiskSlot(0), ExcludeReason::Asked).await.unwrap_err();
                }
                let state = spaces.pool().state();
                assert!(
                    matches!(&state, PoolState::Latched(cause) if cause.contains("no space left")),
                    "{state:?}"
                );
                spaces.close().await.unwrap_err();
                Ok(())
            })
            .unwrap_or_else(|error| panic!("by a write: {by_a_write}: {error}"));
    }
}

/// Scenario: a row is discarded while a write waits for it, and all disks vanish at every stage of that. Both end.
#[test]
fn a_row_that_could_not_be_freed_keeps_nobody_busy() {
    for tenth in 10..60 {
        let slow = || Slow::BRIEFLY.profile();
        let bench = Bench::with_profile(88, 2, slow);
        let disks = bench.disks.clone();
        bench
            .run(async move |lab| {
                let spaces = lab.create().await?;
                let space = lab.space(&spaces, "data", Bytes::mib(16), MIRROR).await?;
                lab.write(&space, 0, 4096, 1).await?;
                spaces.flush().await?;
                let at = |tenths: u64| sleep(lab.seams.clock.as_ref(), Duration::from_micros(100 * tenths));
                // Each may fail, and none may hang.
                let discard = async {
                    let _ = space.discard(0, 1 << 20).await;
                    Ok(())
                };
                let write = async {
                    at(tenth - 2).await;
                    let _ = lab.write(&space, 0, 4096, 2).await;
                    Ok(())
                };
                let lose = async {
                    at(tenth).await;
                    disks.iter().for_each(|disk| disk.vanish());
                    Ok(())
                };
                extra(vec![Box::pin(discard), Box::pin(write), Box::pin(lose)]).await?;
                Ok(())
            })
            .unwrap_or_else(|error| panic!("after {tenth} tenths: {error}"));
    }
}

/// Scenario: the disk that replaces another in a mirror of four dies on the way, and is replaced itself. Rows stay readable
/// all the time, and the next opening finds nothing wrong.
#[test]
fn a_replacement_that_dies_is_replaced() {
    let bench = Bench::with_profile(121, 4, || Slow::FLUSHES.profile());
    let fifth = bench.world.add_disk("fifth", crate::harness::file(CAPACITY));
    let sixth = bench.world.add_disk("sixth", crate::harness::file(CAPACITY));
    let (five, six) = (fifth.attach(&bench.world), sixth.attach(&bench.world));
    let all = bench.disks.iter().map(|disk| disk.attach(&bench.world)).chain([sixth.attach(&bench.world)]);
    let again = Lab { devices: all.collect(), ..bench.lab() };
    bench
        .run(async move |lab| {
            let spaces = lab.create().await?;
            let four = Resiliency::Mirror { copies: 4 };
            let space = lab.space(&spaces, "data", Bytes::mib(8), four).await?;
            for row in 0..8 {
                lab.write(&space, row << 20, 64 * 1024, 1).await?;
            }
            spaces.flush().await?;
            let old = spaces.pool().members().find_disk("disk0")?;
            let freed = async {
                pause(&lab, 90).await;
                fifth.vanish();
                Ok(())
            };
            let progress = Progress::default();
            // It may end before the disk dies or because of that.
            let replace = async {
                let _ = spaces.moves().replace(&old, five, &[], &progress).await;
                Ok(())
            };
            extra(vec![Box::pin(replace), Box::pin(freed)]).await?;
            let dead = spaces.pool().disks().into_iter().find(|disk| disk.name() == "fifth");
            let dead = dead.ok_or("it is a member")?;
            assert!(!spaces.members().stale_rows().await?.is_empty(), "it died before it had everything");
            let second =
                async { spaces.moves().replace(&dead, six, &[], &progress).await.map(drop).map_err(text) };
            let look = async {
                for _ in 0..12 {
                    pause(&lab, 15).await;
                    spaces.scrubs().check_map().await.map_err(text)?;
                }
                Ok(())
            };
            extra(vec![Box::pin(second), Box::pin(look)]).await?;
            spaces.scrubs().check_map().await?;
            spaces.close().await?;
            Ok(())
        })
        .unwrap();
    bench
        .run_in(again, async move |lab| {
            let spaces = lab.open().await?;
            let space = spaces.find("data")?;
            for row in 0..8 {
                lab.expect(&space, row << 20, 64 * 1024, 1).await?;
            }
            spaces.close().await?;
            Ok(())
        })
        .unwrap();
}

/// Scenario: the disk of one of two columns is away when a write-back of tables begins, and comes back at every stage of it.
/// Then the daemon is killed: what was flushed is there, whether or not the row had tables on its disks before.
#[test]
fn a_disk_that_is_back_within_a_write_back_lacks_no_table() {
    for (offset, has_tables) in (0..50).flat_map(|offset| [(offset, false), (offset, true)]) {
        let bench = Rc::new(Bench::with_profile(271 + offset, 2, || Slow::WRITES.profile()));
        let outside = Rc::clone(&bench);
        bench
            .run(async move |lab| {
                let spaces = lab.create().await?;
                let mut spec = SpaceSpec::usual("data".parse()?, Bytes::mib(4), Resiliency::Simple);
                (spec.row, spec.columns, spec.interleave) = (Some(Bytes::mib(1)), Some(2), Bytes::kib(64));
                let space = spaces.create(spec).await?;
                lab.write(&space, 0, 256 * 1024, 1).await?;
                spaces.flush().await?;
                if has_tables {
                    spaces.pool().checkpoint().await?;
                    lab.write(&space, 256 * 1024, 256 * 1024, 1).await?;
                    spaces.flush().await?;
                }
                spaces.pool().exclude(DiskSlot(0), ExcludeReason::Asked).await?;
                let (device, back) = (outside.disks[0].attach(&outside.world), Rc::clone(&spaces));
                lab.seams
                    .spawner
                    .spawn("back", Box::pin(async move { drop(back.members().rejoin(device).await) }));
                pause(&lab, 10 * offset).await;
                spaces.pool().checkpoint().await?;
                lab.hold((spaces, space));
                Ok(())
            })
            .unwrap();
        bench.world.kill();
        let verified = bench.run(async move |lab| {
            let spaces = lab.open().await?;
            let space = spaces.find("data")?;
            lab.expect(&space, 0, if has_tables { 512 } else { 256 } * 1024, 1).await?;
            drop(space);
            lab.check_and_close(spaces).await
        });
        verified.unwrap_or_else(|error| {
            panic!("written back after {} ms, tables {has_tables}: {error}", 10 * offset)
        });
    }
}

/// Scenario: a disk of three comes back and is resynced, which records blocks once more that nobody writes over; the daemon is
/// killed at every stage of that, and a copy of such a block rots. Opened with that copy alone, the block cannot be read,
/// twice and over a checkpoint; with another disk it can, and the bad copy is healed.
#[test]
fn a_corrupt_block_that_the_log_names_may_be_good_on_an_absent_disk() {
    let decided = Rc::new(Cell::new(0));
    for offset in 0..20 {
        let bench = Rc::new(Bench::with_profile(911 + offset, 3, || Slow::FLUSHES.profile()));
        let outside = Rc::clone(&bench);
        bench
            .run(async move |lab| {
                let disk = &outside.disks[2];
                let spaces = lab.create().await?;
                let mirror = Resiliency::Mirror { copies: 3 };
                let space = lab.space(&spaces, "data", Bytes::mib(4), mirror).await?;
                lab.write(&space, 0, 8192, 1).await?;
                spaces.flush().await?;
                disk.vanish();
                lab.write(&space, 4096, 4096, 2).await?;
                spaces.pool().checkpoint().await?;
                disk.come_back();
                spaces.members().rejoin(disk.attach(&outside.world)).await?;
                let killed = lab.seams.clock.now() + Duration::from_millis(5 * offset);
                drop(
                    within(lab.seams.clock.as_ref(), killed, spaces.members().resync(&Progress::default()))
                        .await,
                );
                lab.hold((spaces, space));
                Ok(())
            })
            .unwrap();
        bench.world.kill();
        let corrupt = crate::harness::places_of(&bench.disks[0], 0..1, 1);
        assert_eq!(corrupt.len(), 1, "the block is once on each disk");
        corrupt.iter().for_each(|at| bench.disks[0].rot(at + 77, 3));
        for _ in 0..2 {
            let (lab, reached) = (bench.lab_with(|disk| disk == 0), Rc::clone(&decided));
            let opened = bench.run_in(lab, async move |lab| {
                let spaces = lab.open().await?;
                let space = spaces.find("data")?;
                let recovery = spaces.recovery();
                assert_eq!(recovery.damaged, 0, "{recovery:?}");
                reached.set(reached.get() + recovery.corrupt_here);
                let Err(error) = space.read(0, 4096).await else { return Err("corrupt, and read".into()) };
                // Where the log does not name the row, its absent slabs do not count as stale yet.
                let waits = |why| matches!(why, UnreadableReason::CorruptHere | UnreadableReason::Absent);
                let is_right = matches!(error, SpaceError::Unreadable { why, .. } if waits(why));
                assert!(is_right, "{error}");
                let seen = spaces.scrubs().verify(&Progress::default()).await?;
                assert!(seen.lost.is_empty() && seen.out_of_reach.len() == 1, "{seen:?}");
                let lost = spaces
                    .data_loss_events()
                    .iter()
                    .filter(|one| one.kind != DataLossKind::CorruptHere)
                    .count();
                assert_eq!((lost, spaces.counters().lost_blocks), (0, 0));
                spaces.pool().checkpoint().await?;
                Ok(spaces.close().await?)
            });
            opened.unwrap_or_else(|error| panic!("alone, killed after {} ms: {error}", 5 * offset));
        }
        let opened = bench.run_in(bench.lab_with(|disk| disk != 2), async move |lab| {
            let spaces = lab.open().await?;
            let space = spaces.find("data")?;
            lab.expect(&space, 0, 4096, 1).await?;
            lab.expect(&space, 4096, 4096, 2).await?;
            drop(space);
            lab.check_and_close(spaces).await
        });
        opened.unwrap_or_else(|error| panic!("with another, killed after {} ms: {error}", 5 * offset));
    }
    assert!(decided.get() > 0, "no opening had to decide about the block");
}

/// Scenario: a write waits for its place in the log, because a checkpoint has just closed the batch. A flush of another client
/// begins and ends over it; then the write is acknowledged, and flushed. Power fails as that is acknowledged, and the block
/// rots: it was promised, so it reads as an error, and not as what was there before.
#[test]
fn a_flush_covers_what_came_late_to_the_log() {
    for offset in 0..12 {
        let bench = Bench::with_profile(611, 1, || Slow::WRITES.profile());
        let cut = PowerCut::of(&bench);
        let acked = Rc::clone(&cut);
        bench
            .run(async move |lab| {
                let spaces = lab.create().await?;
                let space = lab.space(&spaces, "data", Bytes::mib(4), Resiliency::Simple).await?;
                lab.write(&space, 0, 4096, 1).await?;
                spaces.flush().await?;
                let write = async |block: u64, wait: u64| {
                    pause(&lab, wait).await;
                    lab.write(&space, block * 4096, 4096, 1).await.map_err(text)
                };
                let promised = async {
                    write(12, 3).await?;
                    spaces.flush().await.map_err(text)?;
                    acked.now();
                    Ok(())
                };
                let checkpoint = async {
                    pause(&lab, 2).await;
                    spaces.pool().checkpoint().await.map_err(text)
                };
                let other = async {
                    pause(&lab, 4 + offset).await;
                    spaces.flush().await.map_err(text)
                };
                let (first, second) = (write(10, 0), write(11, 1));
                let (first, second): (Task<'_>, Task<'_>) = (Box::pin(first), Box::pin(second));
                extra(vec![first, second, Box::pin(promised), Box::pin(checkpoint), Box::pin(other)]).await?;
                lab.hold((spaces, space));
                Ok(())
            })
            .unwrap();
        let corrupt = crate::harness::places_of(&bench.disks[0], 12..13, 1);
        assert_eq!(corrupt.len(), 1, "the block is once on the disk");
        let flip = BitFlip { disk: DiskIndex(0), at: corrupt[0] + 77, bit: 3 };
        let verified = cut.left(&bench, Some(flip)).run(async |lab| {
            let spaces = lab.open().await?;
            match spaces.find("data")?.read(12 * 4096, 4096).await {
                Ok(_) => Err("promised, corrupt, and read".into()),
                Err(_) => Ok(spaces.close().await?),
            }
        });
        verified.unwrap_or_else(|error| panic!("flush at {} ms: {error}", 4 + offset));
    }
}

/// Scenario: a discard is recorded while the flush of another client is under way, so that its record reaches the disks' caches
/// behind that flush; then its own client flushes. Power fails as that is acknowledged, and the caches are lost: the pool
/// opens, and what was discarded reads zeros. Whenever the discard comes.
#[test]
fn a_flush_covers_a_record_that_was_under_way_in_the_flush_before() {
    for offset in 0..40 {
        let bench = Bench::with_profile(613, 2, || Slow::WRITES.profile());
        let cut = PowerCut::of(&bench);
        let acked = Rc::clone(&cut);
        bench
            .run(async move |lab| {
                let spaces = lab.create().await?;
                let space = lab.space(&spaces, "data", Bytes::mib(4), MIRROR).await?;
                for row in 0..3 {
                    lab.write(&space, row << 20, 8192, 1).await?;
                }
                spaces.flush().await?;
                let other = async {
                    lab.write(&space, (1 << 20) + 8192, 4096, 1).await.map_err(text)?;
                    spaces.flush().await.map_err(text)
                };
                let discarded = async {
                    pause(&lab, offset).await;
                    space.discard(4096, 4096).await.map_err(text)?;
                    spaces.flush().await.map_err(text)?;
                    acked.now();
                    Ok(())
                };
                let third = async {
                    pause(&lab, 5).await;
                    lab.write(&space, (2 << 20) + 8192, 4096, 1).await.map_err(text)
                };
                extra(vec![Box::pin(other), Box::pin(third), Box::pin(discarded)]).await?;
                lab.hold((spaces, space));
                Ok(())
            })
            .unwrap();
        let verified = cut.left(&bench, None).run(async |lab| {
            let spaces = lab.open().await?;
            let space = spaces.find("data")?;
            lab.expect(&space, 0, 4096, 1).await?;
            lab.expect(&space, 4096, 4096, 0).await?;
            drop(space);
            lab.check_and_close(spaces).await
        });
        verified.unwrap_or_else(|error| panic!("discarded after {offset} ms: {error}"));
    }
}
