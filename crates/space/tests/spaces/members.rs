//! Members that leave, come back and are replaced, while others write or ask for the same.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use std::cell::Cell;
use std::error::Error;
use std::rc::Rc;
use std::time::Duration;

use dolmen_pool::{DiskState, ExcludeReason, Purpose};
use dolmen_sim::{DiskProfile, FaultKind, SimDisk};
use dolmen_space::{Progress, Resiliency, Space, Spaces};
use dolmen_units::{Bytes, DiskSlot};

use crate::harness::slow_disks::{CAPACITY, Dial, PowerCut, Slow, Task, extra, pause, text};
use crate::harness::{Bench, Lab};

const MIRROR: Resiliency = Resiliency::Mirror { copies: 2 };

/// Scenario: a write is on its way to both copies. The one is done with it and leaves, in a new epoch; a flush that began
/// before the write records again what it has to; then the other copy is done. All is flushed, power fails, the disk that left
/// comes back without its cache and is resynced. Then the other one dies: what was flushed is there.
#[test]
fn a_write_that_ends_in_a_later_epoch_than_it_began_is_resynced() {
    let dials: Vec<Dial> = (0..6).map(|_| Dial::default()).collect();
    let next = Cell::new(0);
    let bench = Bench::with_profile(3, 6, || {
        let number = next.replace(next.get() + 1);
        dials[number].profile()
    });
    let cut = PowerCut::of(&bench);
    let (acked, reported) = (Rc::clone(&cut), Rc::new(Cell::new(None)));
    let report = Rc::clone(&reported);
    let disks = bench.disks.clone();
    bench
        .run(async move |lab| {
            let spaces = lab.create().await?;
            let space = lab.space(&spaces, "data", Bytes::mib(32), MIRROR).await?;
            for row in 0..24 {
                lab.write(&space, row << 20, 8192, 1).await?;
            }
            spaces.flush().await?;
            spaces.pool().checkpoint().await?;
            let holders = |row: u64| -> Vec<usize> {
                let has = |disk: &usize| {
                    !crate::harness::places_of(&disks[*disk], row << 8..(row << 8) + 1, 1).is_empty()
                };
                (0..6).filter(has).collect()
            };
            // Disks 4 and 5 do not vote, so that an epoch does not wait for them.
            let row = (0..24).find(|row| holders(*row) == [0, 4]).ok_or("no row on disks 0 and 4")?;
            let other = (0..24).find(|row| holders(*row).contains(&5)).ok_or("no row on disk 5")?;
            lab.write(&space, other << 20, 4096, 3).await?;
            dials[5].flush.set(300);
            dials[4].write.set(1000);
            let flush = async { spaces.flush().await.map_err(text) };
            let write = async {
                pause(&lab, 50).await;
                lab.write(&space, row << 20, 4096, 2).await.map_err(text)?;
                spaces.flush().await.map_err(text)?;
                acked.now();
                Ok(())
            };
            let leave = async {
                pause(&lab, 150).await;
                spaces.pool().exclude(DiskSlot(0), ExcludeReason::Asked).await.map_err(text)
            };
            extra(vec![Box::pin(flush), Box::pin(write), Box::pin(leave)]).await?;
            report.set(Some(row));
            lab.hold((spaces, space));
            Ok(())
        })
        .unwrap();
    let row = reported.get().unwrap();
    let wrong = [true, false].into_iter().filter_map(|is_there| left_alone(&cut, &bench, row, is_there));
    assert_eq!(wrong.collect::<Vec<_>>(), Vec::<String>::new());
}

/// What is wrong with a row of disks 0 and 4 after a power cut, when disk 0, there at once or taken back in, was resynced, and
/// disk 4 has gone.
fn left_alone(cut: &PowerCut, bench: &Bench, row: u64, is_there_at_once: bool) -> Option<String> {
    let left = Bench { arbiter: bench.arbiter.snapshot(), ..cut.left(bench, None) };
    let back = left.disks[0].attach(&left.world);
    let lab = left.lab_with(|disk| disk != 0 || is_there_at_once);
    left.run_in(lab, async move |lab| {
        let spaces = lab.open().await?;
        if !is_there_at_once {
            spaces.members().rejoin(back).await?;
        }
        spaces.members().resync(&Progress::default()).await?;
        assert!(spaces.members().stale_rows().await?.is_empty());
        spaces.close().await?;
        Ok(())
    })
    .unwrap();
    let alone = left.run_in(left.lab_with(|disk| disk != 4), async move |lab| {
        let spaces = lab.open().await?;
        let space = spaces.find("data")?;
        lab.expect(&space, row << 20, 4096, 2).await?;
        drop(space);
        spaces.close().await?;
        Ok(())
    });
    alone.err().map(|error| format!("there at once: {is_there_at_once}: {error}"))
}

/// A mirror on seven disks, of which 4 to 6 do not vote, so that an epoch does not wait for them. All of it is flushed, but for
/// what makes a flush wait for disk 6; and a row of it that lies on disks 4 and 5.
async fn rows_apart(lab: &Lab, disks: &[Rc<SimDisk>]) -> Result<(Rc<Spaces>, Space, u64), Box<dyn Error>> {
    let spaces = lab.create().await?;
    let space = lab.space(&spaces, "data", Bytes::mib(64), MIRROR).await?;
    for row in 0..60 {
        lab.write(&space, row << 20, 8192, 1).await?;
    }
    spaces.flush().await?;
    spaces.pool().checkpoint().await?;
    let has =
        |disk: &SimDisk, row: u64| !crate::harness::places_of(disk, row << 8..(row << 8) + 1, 1).is_empty();
    let holders = |row: u64| -> Vec<usize> { (0..7).filter(|disk| has(&disks[*disk], row)).collect() };
    let row = (0..60).find(|row| holders(*row) == [4, 5]).ok_or("no row on disks 4 and 5")?;
    let is_other = |row: &u64| holders(*row)[0] < 4 && holders(*row)[1] == 6;
    let other = (0..60).find(is_other).ok_or("no row on disk 6 and one that votes")?;
    lab.write(&space, other << 20, 4096, 3).await?;
    Ok((spaces, space, row))
}

/// What is wrong with a block, of which fill 1 was flushed and over which 2 was written, where these disks are.
fn neither_old_nor_new(left: &Bench, here: impl Fn(usize) -> bool, at: u64) -> Option<String> {
    let verified = left.run_in(left.lab_with(here), async move |lab| {
        let spaces = lab.open().await?;
        let space = spaces.find("data")?;
        if lab.expect(&space, at, 4096, 2).await.is_err() {
            lab.expect(&space, at, 4096, 1).await?;
        }
        drop(space);
        spaces.close().await?;
        Ok(())
    });
    verified.err().map(|error| error.to_string())
}

/// Scenario: a flushed block is written over on both copies. The one copy misses it; while that is put on record, the other one
/// leaves too, and a flush that began before finds that nobody can tell what the block holds. Then the write ends: refused, for who
/// missed it could not be put on record. Everybody flushes, power fails, and the disks come back without their caches: the block
/// has its old or its new content.
#[test]
fn a_write_that_ends_after_the_loss_of_all_copies_calls_nothing_flushed() {
    let dial = Dial::default();
    let next = Cell::new(0);
    let bench = Bench::with_profile(5, 7, || {
        // Disks 4 to 6 do not vote, so that an epoch does not wait for them.
        let slow = next.replace(next.get() + 1) == 6;
        if slow { dial.profile() } else { Dial::default().profile() }
    });
    let cut = PowerCut::of(&bench);
    let (fails, reported) = (Rc::clone(&cut), Rc::new(Cell::new(0)));
    let report = Rc::clone(&reported);
    let disks = bench.disks.clone();
    bench
        .run(async move |lab| {
            let (spaces, space, row) = rows_apart(&lab, &disks).await?;
            dial.flush.set(1000);
            let flush = async { spaces.flush().await.map_err(text) };
            let change = async {
                pause(&lab, 20).await;
                disks[5].vanish();
                // Somebody changes the map, so that what the disk misses goes on record later.
                let change = spaces.pool().change(Purpose::Release).await;
                pause(&lab, 5000).await;
                drop(change);
                Ok(())
            };
            let write = async {
                pause(&lab, 50).await;
                let refused = lab.write(&space, row << 20, 4096, 2).await;
                refused.map_or(Ok(()), |()| Err("it was acknowledged".to_owned()))
            };
            let leave = async {
                pause(&lab, 500).await;
                spaces.pool().exclude(DiskSlot(4), ExcludeReason::Asked).await.map_err(text)?;
                dial.flush.set(0);
                Ok(())
            };
            extra(vec![Box::pin(flush), Box::pin(change), Box::pin(write), Box::pin(leave)]).await?;
            spaces.flush().await?;
            fails.now();
            report.set(row);
            lab.hold((spaces, space));
            Ok(())
        })
        .unwrap();
    let at = reported.get() << 20;
    let wrong = cut.all_left(&bench).filter_map(|left| neither_old_nor_new(&left, |_| true, at));
    assert_eq!(wrong.collect::<Vec<_>>(), Vec::<String>::new());
}

/// Scenario: a write finds no room on one copy and is taken back; while that is put on record, the other copy leaves, and a flush
/// that began before records again, under the new epoch, what it knows of. All is flushed, power fails, the disk that left comes
/// back with any part of what it had in its cache, and is resynced. Then the other one dies: what was flushed is there.
#[test]
fn a_write_that_is_taken_back_while_a_disk_leaves_is_resynced() {
    let dials: Vec<Dial> = (0..7).map(|_| Dial::default()).collect();
    let next = Cell::new(0);
    let bench = Bench::with_profile(6, 7, || dials[next.replace(next.get() + 1)].profile());
    let cut = PowerCut::of(&bench);
    let (fails, reported) = (Rc::clone(&cut), Rc::new(Cell::new(0)));
    let report = Rc::clone(&reported);
    let disks = bench.disks.clone();
    bench
        .run(async move |lab| {
            let (spaces, space, row) = rows_apart(&lab, &disks).await?;
            let log_takes = |millis: u64| dials.iter().take(4).for_each(|dial| dial.write.set(millis));
            dials[6].flush.set(1000);
            dials[4].write.set(100);
            disks[5].arm(FaultKind::NoSpace);
            let flush = async { spaces.flush().await.map_err(text) };
            let write = async {
                pause(&lab, 50).await;
                // Over a block that was flushed, and one that was never written. Taken back at 250 ms.
                let refused = lab.write(&space, (row << 20) + 4096, 8192, 2).await;
                refused.map_or(Ok(()), |()| Err("there was room".to_owned()))
            };
            let leave = async {
                pause(&lab, 200).await;
                log_takes(5000);
                pause(&lab, 100).await;
                log_takes(0);
                pause(&lab, 100).await;
                spaces.pool().exclude(DiskSlot(4), ExcludeReason::Asked).await.map_err(text)?;
                dials[6].flush.set(0);
                Ok(())
            };
            extra(vec![Box::pin(flush), Box::pin(write), Box::pin(leave)]).await?;
            spaces.flush().await?;
            fails.now();
            report.set(row);
            lab.hold((spaces, space));
            Ok(())
        })
        .unwrap();
    let block = (reported.get() << 8) + 1;
    let holds = |left: &Bench, disk: usize, fill| {
        !crate::harness::places_of(&left.disks[disk], block..block + 1, fill).is_empty()
    };
    // The write that found no room was answered, and is over; the recording takes it for one that may still land.
    let states: Vec<Bench> = cut.all_left(&bench).filter(|left| holds(left, 5, 1)).collect();
    let is_worst = |left: &Bench| holds(left, 4, 2);
    assert!(states.iter().any(is_worst), "what was taken back may be all that is left in the cache");
    for left in states {
        left.run(async move |lab| {
            let spaces = lab.open().await?;
            spaces.members().resync(&Progress::default()).await?;
            assert!(spaces.members().stale_rows().await?.is_empty());
            spaces.close().await?;
            Ok(())
        })
        .unwrap();
        assert_eq!(neither_old_nor_new(&left, |disk| disk != 5, block << 12), None);
    }
}

/// Scenario: a flushed block is being written over, on disks that take their time, when a flush begins and power fails. The flush
/// waits for the write, so that the log does not call settled what the disks do not have: the block is old or new.
#[test]
fn a_flush_waits_for_the_writes_that_began_before_it() {
    let dials: Vec<Dial> = (0..7).map(|_| Dial::default()).collect();
    let next = Cell::new(0);
    let bench = Bench::with_profile(8, 7, || dials[next.replace(next.get() + 1)].profile());
    let cut = PowerCut::of(&bench);
    let (fails, reported) = (Rc::clone(&cut), Rc::new(Cell::new(0)));
    let report = Rc::clone(&reported);
    let disks = bench.disks.clone();
    bench
        .run(async move |lab| {
            let (spaces, space, row) = rows_apart(&lab, &disks).await?;
            dials[4].write.set(1000);
            dials[5].write.set(1000);
            let write = async { lab.write(&space, row << 20, 4096, 2).await.map_err(text) };
            let flush = async {
                pause(&lab, 100).await;
                spaces.flush().await.map_err(text)
            };
            let failure = async {
                pause(&lab, 500).await;
                fails.now();
                Ok(())
            };
            extra(vec![Box::pin(write), Box::pin(flush), Box::pin(failure)]).await?;
            report.set(row);
            Ok(())
        })
        .unwrap();
    let at = reported.get() << 20;
    let wrong = cut.all_left(&bench).filter_map(|left| neither_old_nor_new(&left, |_| true, at));
    assert_eq!(wrong.collect::<Vec<_>>(), Vec::<String>::new());
}

async fn replaced_alone(
    lab: crate::harness::Lab,
    device: Rc<dyn dolmen_block_io::BlockDevice>,
    rows: u64,
) -> crate::harness::Outcome {
    let spaces = lab.create().await?;
    let space = lab.space(&spaces, "data", Bytes::mib(16), Resiliency::Simple).await?;
    for row in 0..rows {
        lab.write(&space, row << 20, 4096, 1).await?;
    }
    spaces.flush().await?;
    let old = spaces.pool().members().find_disk("disk0")?;
    // It may be refused, or wait.
    let _ = spaces.moves().replace(&old, device, &[], &Progress::default()).await;
    for row in 0..rows {
        lab.expect(&space, row << 20, 4096, 1).await?;
    }
    lab.write(&space, 0, 4096, 2).await?;
    spaces.flush().await?;
    spaces.close().await?;
    Ok(())
}

/// Scenario: the only disk of a pool, with nothing on it yet, is replaced by one of the same size: the new one does not carry
/// the metadata yet when the old one is to be struck.
#[test]
fn the_last_voter_is_not_evicted_before_another_votes() {
    for rows in [0, 1, 3] {
        let bench = Bench::new(5, 1, CAPACITY);
        let spare = bench.world.add_disk("spare", crate::harness::file(CAPACITY));
        let device = spare.attach(&bench.world);
        let verified = bench.run(move |lab| replaced_alone(lab, device, rows));
        verified.unwrap_or_else(|error| panic!("{rows} rows: {error}"));
    }
}

/// Scenario: the only disk of a pool is replaced by a smaller one on which everything has room, but not the log and the pages
/// of the map: the old one carries them alone and stays.
#[test]
fn the_last_voter_is_not_evicted_for_one_that_cannot_vote() {
    let bench = Bench::new(5, 1, Bytes::gib(20));
    let spare = bench.world.add_disk("spare", crate::harness::file(Bytes::gib(4)));
    let all = [bench.disks[0].attach(&bench.world), spare.attach(&bench.world)];
    let again = crate::harness::Lab { devices: all.to_vec(), ..bench.lab() };
    let device = spare.attach(&bench.world);
    let verified = bench.run(move |lab| replaced_alone(lab, device, 3));
    let after = bench.run_in(again, async move |lab| {
        let spaces = lab.open().await?;
        for (old, new) in spaces.pool().members().replacements() {
            assert!(spaces.moves().finish_replacing(&old, &new, &Progress::default()).await.is_err());
        }
        Ok(spaces.pool().log().check_writable()?)
    });
    verified.unwrap();
    after.unwrap();
}

/// Scenario: an enclosure with half of the disks of a pool is pulled while others write. Every write that can be made is.
#[test]
fn many_disks_that_leave_at_once_do_not_stop_the_pool() {
    let bench = Bench::with_profile(7, 40, || Slow::WRITES.profile());
    let disks = bench.disks.clone();
    bench
        .run(async move |lab| {
            let spaces = lab.create().await?;
            let mirror = Resiliency::Mirror { copies: 2 };
            let space = lab.space(&spaces, "data", Bytes::mib(64), mirror).await?;
            for row in 0..60 {
                lab.write(&space, row << 20, 4096, 1).await?;
            }
            spaces.flush().await?;
            // Not the voters.
            (10..40).step_by(1).for_each(|disk| disks[disk].vanish());
            let writes = (0..60).map(async |row: u64| {
                for block in 0..60 {
                    let _ = lab.write(&space, (row << 20) + block * 4096, 4096, 2).await;
                }
            });
            dolmen_block_io::sync::join_all(writes).await;
            spaces.pool().log().check_writable()?;
            lab.hold((spaces, space));
            Ok(())
        })
        .unwrap();
}

/// Scenario: the same replacement is brought to its end twice, because it was asked for twice; in between, a new disk got the
/// number of the one that was struck. The new disk, and what was written to it, stays.
#[test]
fn a_replacement_that_ends_twice_evicts_no_other_disk() {
    let bench = Bench::new(9, 1, CAPACITY);
    let spare = bench.world.add_disk("spare", crate::harness::file(CAPACITY));
    let third = bench.world.add_disk("third", crate::harness::file(Bytes::mib(512)));
    let (device, new) = (spare.attach(&bench.world), third.attach(&bench.world));
    bench
        .run(async move |lab| {
            let spaces = lab.create().await?;
            let space = lab.space(&spaces, "data", Bytes::mib(64), Resiliency::Simple).await?;
            lab.write(&space, 0, 4096, 1).await?;
            spaces.flush().await?;
            let old = spaces.pool().members().find_disk("disk0")?;
            let progress = Progress::default();
            let with = spaces.moves().replace(&old, device, &[], &progress).await?;
            let third = spaces.members().add(new, &[]).await?;
            assert_eq!(third.slot(), old.slot());
            spaces.pool().voter_tender().tend().await?;
            for row in 1..8 {
                lab.write(&space, row << 20, 4096, 1).await?;
            }
            let again = async {
                spaces.moves().finish_replacing(&old, &with, &progress).await.map(drop).map_err(text)
            };
            let writes = async {
                for row in 8..40 {
                    lab.write(&space, row << 20, 4096, 1).await.map_err(text)?;
                }
                spaces.flush().await.map_err(text)
            };
            extra(vec![Box::pin(again), Box::pin(writes)]).await?;
            for row in 0..40 {
                lab.expect(&space, row << 20, 4096, 1).await?;
            }
            assert!(spaces.pool().disk(third.slot()).is_some(), "the new disk was struck");
            Ok(())
        })
        .unwrap();
}

/// Scenario: disks leave one by one while another one takes its time over a write, so that no checkpoint ends. Whether or not
/// the pool goes on, it can be opened again, and nothing is lost.
#[test]
fn disks_that_leave_one_by_one_while_one_hangs_leave_a_pool_that_opens() {
    let dials: Vec<Dial> = (0..40).map(|_| Dial::default()).collect();
    let next = Cell::new(0);
    let bench = Bench::with_profile(7, 40, || dials[next.replace(next.get() + 1)].profile());
    let disks = bench.disks.clone();
    bench
        .run(async move |lab| {
            let spaces = lab.create().await?;
            let space = lab.space(&spaces, "data", Bytes::mib(64), MIRROR).await?;
            for row in 0..60 {
                lab.write(&space, row << 20, 4096, 1).await?;
            }
            spaces.flush().await?;
            spaces.pool().checkpoint().await?;
            let slow = (0..60)
                .find(|row| !crate::harness::places_of(&disks[4], row << 8..(row << 8) + 1, 1).is_empty());
            let slow = slow.ok_or("no row on disk 4")?;
            dials[4].write.set(25_000);
            let hang = async { lab.write(&space, slow << 20, 4096, 2).await.map_err(text) };
            let leave = async {
                for disk in 10..40_u16 {
                    pause(&lab, 500).await;
                    spaces.pool().exclude(DiskSlot(disk), ExcludeReason::Asked).await.map_err(text)?;
                    let here = (0..60).rev().find(|row| {
                        *row != slow
                            && (0..4).any(|disk| {
                                !crate::harness::places_of(&disks[disk], row << 8..(row << 8) + 1, 1)
                                    .is_empty()
                            })
                    });
                    let here = here.ok_or("no row on the voters")?;
                    let at = (here << 20) + u64::from(disk) * 4096;
                    lab.write(&space, at, 4096, 2).await.map_err(|error| format!("disk {disk}: {error}"))?;
                }
                Ok(())
            };
            // So many epochs are more than a label can name; then the pool stops.
            let _ = extra(vec![Box::pin(hang), Box::pin(leave)]).await;
            lab.hold((spaces, space));
            Ok(())
        })
        .unwrap();
    bench.world.kill();
    let opened = bench.run(async move |lab| {
        let spaces = lab.open().await?;
        lab.check_and_close(spaces).await
    });
    opened.unwrap();
}

/// Scenario: somebody looks for a row in the map, and the disk takes its time. Meanwhile the row is given back, its allocation
/// units are given to another row, and memory is made free. What was looked up then is of the past.
#[test]
fn a_row_that_was_freed_while_it_was_looked_up_is_not_found() {
    let dial = Dial::default();
    let large = DiskProfile { latency: Rc::new(dial.clone()), ..crate::harness::file(Bytes::mib(1200)) };
    let bench = Bench::with_profile(11, 1, || large.clone());
    bench.world.set_steps_max(50_000_000);
    bench
        .run(async move |lab| {
            let spaces = lab.create().await?;
            let space = lab.space(&spaces, "data", Bytes::gib(16), Resiliency::Simple).await?;
            for row in 0..900 {
                lab.write(&space, row << 20, 4096, 1).await?;
            }
            drop(space);
            spaces.close().await?;
            Ok(())
        })
        .unwrap();
    bench
        .run(async move |lab| {
            let spaces = lab.open().await?;
            let space = spaces.find("data")?;
            let (row, next) = (450 << 20, 950 << 20);
            dial.read.set(100_000);
            let delayed_writes = async {
                // It finds the row as it is now: gone.
                lab.write(&space, row, 4096, 3).await.map_err(text)
            };
            let others = async {
                pause(&lab, 1).await;
                dial.read.set(0);
                space.discard(row, 1 << 20).await.map_err(text)?;
                for row in 1000..9500 {
                    space.read(row << 20, 4096).await.map_err(text)?;
                }
                lab.write(&space, next, 256 * 1024, 6).await.map_err(text)?;
                spaces.flush().await.map_err(text)
            };
            extra(vec![Box::pin(delayed_writes), Box::pin(others)]).await?;
            lab.expect(&space, next, 256 * 1024, 6).await?;
            lab.expect(&space, row, 4096, 3).await?;
            drop(space);
            lab.check_and_close(spaces).await
        })
        .unwrap();
}

/// Scenario: a replacement is replaced: F is to take the place of the first disk, and before it has, T is to take the place of
/// F. Then a disk is added. Nobody waits for ever, and the disk that was added is not drawn into it.
#[test]
fn a_chain_of_replacements_ends() {
    let bench = Bench::new(13, 2, CAPACITY);
    let spares: Vec<_> =
        ["f", "t", "n"].map(|name| bench.world.add_disk(name, crate::harness::file(CAPACITY))).into();
    let devices: Vec<_> = spares.iter().map(|disk| disk.attach(&bench.world)).collect();
    bench
        .run(async move |lab| {
            let spaces = lab.create().await?;
            let space = lab.space(&spaces, "data", Bytes::mib(64), MIRROR).await?;
            for row in 0..8 {
                lab.write(&space, row << 20, 4096, 1).await?;
            }
            spaces.flush().await?;
            let pool = spaces.pool();
            let progress = Progress::default();
            let x = pool.members().find_disk("disk0")?;
            let f = pool.membership().add_instead_of(&x, Rc::clone(&devices[0]), &[]).await?;
            spares[0].vanish();
            pool.exclude(f.slot(), ExcludeReason::Asked).await?;
            let t = pool.membership().add_instead_of(&f, Rc::clone(&devices[1]), &[]).await?;
            for (old, new) in pool.members().replacements() {
                drop(spaces.moves().finish_replacing(&old, &new, &progress).await);
            }
            let n = spaces.members().add(Rc::clone(&devices[2]), &[]).await?;
            let drawn: Vec<_> = pool.members().replacements();
            assert!(drawn.iter().all(|(_, new)| new.slot() != n.slot()), "who was added replaces somebody");
            assert!(
                pool.disk(x.slot()).is_none_or(|disk| disk.id() != x.id()),
                "the first disk waits for ever"
            );
            assert_eq!(t.state(), DiskState::Present);
            Ok(())
        })
        .unwrap();
}

/// Scenario: a disk that was away comes back in the same moment in which it is replaced. The replacement is on record with the
/// members, whichever comes first.
#[test]
fn a_disk_that_comes_back_while_it_is_replaced_stays_retired() {
    let mut forgotten = Vec::new();
    for offset in 0..100 {
        let bench = Bench::with_profile(700 + offset, 5, || Slow::WRITES.profile());
        let spare = bench.world.add_disk("spare", Slow::WRITES.profile());
        let (device, back) = (spare.attach(&bench.world), bench.disks[4].attach(&bench.world));
        let retired = Rc::new(Cell::new(false));
        let report = Rc::clone(&retired);
        bench
            .run(async move |lab| {
                let spaces = lab.create().await?;
                let pool = spaces.pool();
                let old = pool.members().find_disk("disk4")?;
                pool.exclude(old.slot(), ExcludeReason::Asked).await?;
                let begin = async {
                    pause(&lab, 10 * offset).await;
                    pool.membership().add_instead_of(&old, device, &[]).await.map(drop).map_err(text)
                };
                let rejoin = async {
                    pause(&lab, 1000).await;
                    let seen = pool.membership().absent_member(back.as_ref()).await.map_err(text)?;
                    pool.membership().readmit(back, &seen).await.map(drop).map_err(text)
                };
                extra(vec![Box::pin(begin), Box::pin(rejoin)]).await?;
                report.set(pool.members().replacements().len() == 1);
                lab.hold(spaces);
                Ok(())
            })
            .unwrap();
        if !retired.get() {
            forgotten.push(10 * offset);
        }
    }
    assert!(forgotten.is_empty(), "replacement begun after ms and forgotten: {forgotten:?}");
}

/// Scenario: a disk whose slabs are elsewhere by now is struck in the same moment in which it comes back. Whoever is first, it
/// is no member afterwards, and the disk that gets its number next has its own room, and all of it.
#[test]
fn a_disk_that_comes_back_while_it_is_evicted_leaves_no_residue() {
    let mut wrong = Vec::new();
    for offset in 0..60 {
        let bench = Bench::with_profile(900 + offset, 5, || Slow::WRITES.profile());
        let spare = bench.world.add_disk("spare", Slow::WRITES.profile());
        let third = bench.world.add_disk("third", crate::harness::file(Bytes::mib(512)));
        let (device, new) = (spare.attach(&bench.world), third.attach(&bench.world));
        let back = bench.disks[4].attach(&bench.world);
        let verified = bench.run(async move |lab| {
            let spaces = lab.create().await?;
            let pool = spaces.pool();
            let old = pool.members().find_disk("disk4")?;
            pool.exclude(old.slot(), ExcludeReason::Asked).await?;
            pool.membership().add_instead_of(&old, device, &[]).await?;
            let evict = async {
                pause(&lab, 10 * offset).await;
                pool.membership().evict(&old).await.map_err(text)
            };
            let rejoin = async {
                pause(&lab, 300).await;
                // It may be struck before it is back.
                if let Ok(seen) = pool.membership().absent_member(back.as_ref()).await {
                    drop(pool.membership().readmit(back, &seen).await);
                }
                Ok(())
            };
            extra(vec![Box::pin(evict), Box::pin(rejoin)]).await?;
            if pool.members().is_member(&old) {
                return Err("it is a member again".into());
            }
            let next = spaces.members().add(new, &[]).await?;
            assert_eq!(next.slot(), old.slot());
            let findings = spaces.scrubs().check_map().await?;
            if !findings.is_empty() {
                return Err(findings.join("; ").into());
            }
            spaces.close().await?;
            Ok(())
        });
        if let Err(error) = verified {
            wrong.push(format!("struck after {} ms: {error}", 10 * offset));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Scenario: a disk is replaced while several clients write to one row all the time, each to blocks of its own, so that there
/// is no moment in which nobody writes to it. The replacement ends all the same.
#[test]
fn a_replacement_ends_while_a_row_is_written_without_a_pause() {
    const CLIENTS: u64 = 4;
    let bench = Bench::with_profile(1600, 1, || Slow::WRITES.profile());
    let spare = bench.world.add_disk("spare", Slow::WRITES.profile());
    let device = spare.attach(&bench.world);
    bench
        .run(async move |lab| {
            let spaces = lab.create().await?;
            let space = lab.space(&spaces, "data", Bytes::mib(2), Resiliency::Simple).await?;
            lab.write(&space, 0, 65536, 1).await?;
            spaces.flush().await?;
            let old = spaces.pool().members().find_disk("disk0")?;
            let (ended, abandoned) = (Cell::new(false), Cell::new(0));
            let client = async |number: u64| {
                pause(&lab, 3 * number).await;
                let hedge_delay = lab.seams.clock.now() + Duration::from_secs(100);
                while !ended.get() && lab.seams.clock.now() < hedge_delay {
                    lab.write(&space, number * 4096, 4096, 2).await.map_err(text)?;
                }
                abandoned.set(abandoned.get() + u32::from(!ended.get()));
                Ok(())
            };
            let progress = Progress::default();
            let replace = async {
                pause(&lab, 100).await;
                spaces.moves().replace(&old, device, &[], &progress).await.map_err(text)?;
                ended.set(true);
                Ok(())
            };
            let mut tasks: Vec<Task<'_>> = vec![Box::pin(replace)];
            (0..CLIENTS).for_each(|number| tasks.push(Box::pin(client(number))));
            extra(tasks).await?;
            assert_eq!(abandoned.get(), 0, "clients stopped before the replacement ended");
            for number in 0..CLIENTS {
                lab.expect(&space, number * 4096, 4096, 2).await?;
            }
            drop(space);
            lab.check_and_close(spaces).await
        })
        .unwrap();
}

/// Scenario: of a mirror with four copies one disk is away for long, so that a replacement does not end, and what replaces is
/// replaced itself; then another disk is replaced as well, for which the column has no place. When the disk is back, all
/// replacements end, in whichever order they are gone on with: none drops a slab for those of disks that go to one place.
#[test]
fn replacements_that_have_one_target_leave_a_place_for_the_others() {
    for order in [[0, 2, 4], [0, 4, 2], [2, 0, 4], [2, 4, 0], [4, 0, 2], [4, 2, 0]] {
        let bench = Rc::new(Bench::new(1700, 4, CAPACITY));
        let spares: Vec<_> = (0..3)
            .map(|number| bench.world.add_disk(&format!("spare{number}"), crate::harness::file(CAPACITY)))
            .collect();
        let outside = Rc::clone(&bench);
        let verified = bench.run(async move |lab| {
            let spaces = lab.create().await?;
            let space = lab.space(&spaces, "data", Bytes::mib(2), Resiliency::Mirror { copies: 4 }).await?;
            lab.write(&space, 0, 65536, 1).await?;
            spaces.flush().await?;
            let pool = Rc::clone(spaces.pool());
            pool.exclude(DiskSlot(3), ExcludeReason::Asked).await?;
            lab.write(&space, 0, 32768, 2).await?;
            for (old, spare) in [(0, 0), (2, 1), (4, 2)] {
                let old = pool.disk(DiskSlot(old)).ok_or("it is a member")?;
                let device = spares[spare].attach(&outside.world);
                assert!(spaces.moves().replace(&old, device, &[], &Progress::default()).await.is_ok());
            }
            assert_eq!(pool.members().replacements().len(), 3);
            spaces.members().rejoin(outside.disks[3].attach(&outside.world)).await?;
            spaces.members().resync(&Progress::default()).await?;
            for _ in 0..4 {
                for slot in order {
                    let begun = pool
                        .members()
                        .replacements()
                        .into_iter()
                        .find(|(old, _)| old.slot() == DiskSlot(slot));
                    let Some((old, new)) = begun else { continue };
                    spaces.moves().finish_replacing(&old, &new, &Progress::default()).await?;
                }
            }
            let left = pool.members().replacements();
            if !left.is_empty() {
                return Err(format!("{left:?} do not end").into());
            }
            lab.expect(&space, 0, 32768, 2).await?;
            lab.expect(&space, 32768, 32768, 1).await?;
            drop(space);
            lab.check_and_close(spaces).await
        });
        verified.unwrap_or_else(|error| panic!("in the order {order:?}: {error}"));
    }
}
