//! What happens between two looks at the same thing: disks that leave or come back, and writes that come, while somebody
//! acts on what was so a moment ago.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use std::cell::Cell;
use std::error::Error;
use std::rc::Rc;

use dolmen_block_io::ranks::scoped;
use dolmen_block_io::sync::join_all;
use dolmen_buffer::ArenaConfig;
use dolmen_pool::{ExcludeReason, Pool, PoolError, Purpose, keys};
use dolmen_sim::{Cut, StateOptions};
use dolmen_space::{Progress, Resiliency, Space, SpaceSpec, Spaces};
use dolmen_units::{Bytes, DiskSlot, SpaceId};

use crate::harness::slow_disks::{CAPACITY, Slow, Task, extra, pause, text};
use crate::harness::{Bench, Lab, ROW};

const MIRROR: Resiliency = Resiliency::Mirror { copies: 2 };

/// Scenario: a disk that is here and sound is being replaced, and the new one dies at every stage of that at which nothing on the
/// old one was dropped. It has everything, so everything is read.
#[test]
fn a_new_disk_that_dies_within_a_replacement_takes_nothing_along() {
    let mut failed = Vec::new();
    for offset in 0..40 {
        let bench = Bench::with_profile(131 + offset, 1, || Slow::WRITES.profile());
        let spare = bench.world.add_disk("spare", Slow::WRITES.profile());
        let device = spare.attach(&bench.world);
        let reported = Rc::new(Cell::new(None));
        let report = Rc::clone(&reported);
        bench
            .run(async move |lab| {
                let spaces = lab.create().await?;
                let space = lab.space(&spaces, "data", Bytes::mib(48), Resiliency::Simple).await?;
                for row in 0..40 {
                    lab.write(&space, row << 20, 8192, 1).await?;
                }
                spaces.flush().await?;
                let old = spaces.pool().members().find_disk("disk0")?;
                let ended = Cell::new(false);
                let progress = Progress::default();
                let replace = async {
                    let _ = spaces.moves().replace(&old, device, &[], &progress).await;
                    ended.set(true);
                    Ok(())
                };
                let dies = async {
                    pause(&lab, 100 * offset).await;
                    // Once a slab is dropped on the old disk, the new one has the only copy of it.
                    if !ended.get() && progress.done.get() < 40 {
                        report.set(Some(0));
                        spare.vanish();
                    }
                    Ok(())
                };
                extra(vec![Box::pin(replace), Box::pin(dies)]).await?;
                let was_within = report.get().is_some();
                let mut lost = 0;
                for row in 0..40 {
                    lost += u64::from(lab.expect(&space, row << 20, 8192, 1).await.is_err());
                }
                if was_within {
                    report.set(Some(lost));
                }
                lab.hold((spaces, space));
                Ok(())
            })
            .unwrap();
        if let Some(lost) = reported.get().filter(|lost| *lost > 0) {
            failed.push((100 * offset, lost));
        }
    }
    assert!(failed.is_empty(), "(new disk dies after ms, rows that cannot be read): {failed:?}");
}

/// Scenario: the table of a mirror's row goes to one disk, because the other one is away and misses nothing but that. When the
/// write-back has flushed it, and waits for its turn to say that the other one lacks it, this disk leaves too. The other one
/// comes back, and the daemon is killed: what was flushed is there, or an error.
#[test]
fn a_disk_that_leaves_after_a_write_back_leaves_no_older_table_that_counts() {
    let bench = Bench::new(17, 3, CAPACITY);
    let disks = bench.disks.clone();
    let others: Vec<_> = bench.disks.iter().map(|disk| disk.attach(&bench.world)).collect();
    let left = Rc::new(Cell::new(0));
    let leaves = Rc::clone(&left);
    bench
        .run(async move |lab| {
            let spaces = lab.create().await?;
            let space = lab.space(&spaces, "data", Bytes::mib(4), MIRROR).await?;
            lab.write(&space, 0, 4096, 1).await?;
            spaces.flush().await?;
            spaces.pool().checkpoint().await?;
            lab.write(&space, 4096, 4096, 1).await?;
            spaces.flush().await?;
            let holders: Vec<usize> =
                (0..3).filter(|disk| !crate::harness::places_of(&disks[*disk], 1..2, 1).is_empty()).collect();
            assert_eq!(holders.len(), 2);
            let slot = |disk: usize| DiskSlot(u16::try_from(disk).unwrap());
            spaces.pool().exclude(slot(holders[1]), ExcludeReason::Asked).await?;
            // Somebody changes the map while the tables are written back.
            let change = scoped(spaces.pool().change(Purpose::Release)).await;
            let write_back = async { spaces.pool().checkpoint().await.map_err(text) };
            let leave = async {
                pause(&lab, 1000).await;
                spaces.pool().exclude(slot(holders[0]), ExcludeReason::Asked).await.map_err(text)?;
                drop(change);
                Ok(())
            };
            extra(vec![Box::pin(write_back), Box::pin(leave)]).await?;
            spaces.members().rejoin(Rc::clone(&others[holders[1]])).await?;
            leaves.set(holders[0]);
            lab.hold((spaces, space));
            Ok(())
        })
        .unwrap();
    bench.world.kill();
    let freed = left.get();
    let verified = bench.run_in(bench.lab_with(|disk| disk != freed), async move |lab| {
        let spaces = lab.open().await?;
        let space = spaces.find("data")?;
        for at in [0, 4096] {
            match crate::harness::read(&space, at, 4096).await {
                Ok(bytes) if bytes.iter().all(|byte| *byte == 0) => {
                    return Err("flushed data reads as zeros".into());
                }
                Ok(_) => lab.expect(&space, at, 4096, 1).await?,
                // An error is right while its disk is away.
                Err(_) => {}
            }
        }
        drop(space);
        spaces.close().await?;
        Ok(())
    });
    verified.unwrap();
    let verified = bench.run(async move |lab| {
        let spaces = lab.open().await?;
        lab.expect(&spaces.find("data")?, 0, 8192, 1).await?;
        lab.check_and_close(spaces).await
    });
    verified.unwrap();
}

/// Scenario: a write-back has flushed and waits for the turn of those who write tables (a row is being given back), when a
/// block is written for the first time whose page nothing had changed before. Then power fails at every stage: the block reads
/// zeros or what was written.
#[test]
fn a_write_back_takes_no_page_that_was_changed_after_its_flush() {
    let bench = Bench::with_profile(23, 1, || Slow::WRITES.profile());
    let recorder = Rc::new(bench.world.record());
    let (from, to) = (Rc::new(Cell::new(Cut(0))), Rc::new(Cell::new(Cut(0))));
    let (inside, begin, end) = (Rc::clone(&recorder), Rc::clone(&from), Rc::clone(&to));
    const TIMED_OUT: u64 = 600 * 4096;
    bench
        .run(async move |lab| {
            let spaces = lab.create().await?;
            let mut spec = SpaceSpec::usual("data".parse()?, Bytes::mib(16), Resiliency::Simple);
            (spec.row, spec.interleave) = (Some(Bytes::mib(4)), Bytes::kib(64));
            let space = spaces.create(spec).await?;
            lab.write(&space, 0, 4096, 1).await?;
            lab.write(&space, 4 << 20, 4096, 1).await?;
            spaces.flush().await?;
            spaces.pool().checkpoint().await?;
            lab.write(&space, 0, 4096, 2).await?;
            spaces.flush().await?;
            // Somebody changes the map, so that the row that is given back waits, with the turn for tables in hand.
            let change = scoped(spaces.pool().change(Purpose::Release)).await;
            let discard = async { space.discard(4 << 20, 4 << 20).await.map_err(text) };
            let write_back = async {
                pause(&lab, 200).await;
                spaces.pool().checkpoint().await.map_err(text)
            };
            let write = async {
                pause(&lab, 1000).await;
                lab.write(&space, TIMED_OUT, 4096, 3).await.map_err(text)?;
                begin.set(inside.now());
                drop(change);
                Ok(())
            };
            extra(vec![Box::pin(discard), Box::pin(write_back), Box::pin(write)]).await?;
            end.set(inside.now());
            lab.hold((spaces, space));
            Ok(())
        })
        .unwrap();
    let arbiter = bench.arbiter.snapshot();
    let (mut states, mut wrong) = (0, Vec::new());
    for cut in recorder.cuts().into_iter().filter(|cut| *cut >= from.get() && *cut <= to.get()) {
        for state in recorder.states(cut, &StateOptions::default()).take(600) {
            let reopened = state.reopen(1);
            reopened.world.set_arenas(ArenaConfig::MODEST, ArenaConfig::MODEST);
            let disks = reopened.disks.into_iter().flatten().collect();
            let left = Bench { world: reopened.world, disks, arbiter: arbiter.snapshot() };
            let verified = left.run(async |lab| {
                let spaces = lab.open().await?;
                let space = spaces.find("data")?;
                lab.expect(&space, 0, 4096, 2).await?;
                if lab.expect(&space, TIMED_OUT, 4096, 3).await.is_err() {
                    lab.expect(&space, TIMED_OUT, 4096, 0).await?;
                }
                drop(space);
                spaces.close().await?;
                Ok(())
            });
            states += 1;
            if let Err(error) = verified {
                wrong.push(format!("{cut:?}: {error}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{} of {states} states: {}", wrong.len(), wrong[0]);
}

/// Scenario: the table of a row has rotted on the only disk that is here; the other copy comes back while the table is being
/// read. It is sound, so the table is not lost.
#[test]
fn a_table_is_not_lost_with_a_copy_that_came_back_while_it_was_looked_for() {
    let mut failed = Vec::new();
    for offset in 0..60 {
        let bench = Rc::new(Bench::with_profile(41, 2, || Slow::READS.profile()));
        bench
            .run(async move |lab| {
                let spaces = lab.create().await?;
                let space = lab.space(&spaces, "data", Bytes::mib(4), MIRROR).await?;
                lab.write(&space, 0, 65536, 1).await?;
                spaces.flush().await?;
                drop(space);
                lab.check_and_close(spaces).await
            })
            .unwrap();
        let disk = &bench.disks[1];
        let mut found = vec![0; 4];
        let tables: Vec<u64> = (0..CAPACITY.0)
            .step_by(4096)
            .filter(|at| disk.show(*at, &mut found) && found == *b"DTAB")
            .collect();
        assert_eq!(tables.len(), 2);
        tables.iter().for_each(|at| disk.rot(at + 777, 1));
        let outside = Rc::clone(&bench);
        let verified = bench.run(async move |lab| {
            let spaces = lab.open().await?;
            let space = spaces.find("data")?;
            spaces.pool().exclude(DiskSlot(0), ExcludeReason::Asked).await?;
            let device = outside.disks[0].attach(&outside.world);
            let back = async { spaces.members().rejoin(device).await.map(drop).map_err(text) };
            let look = async {
                pause(&lab, 10 * offset).await;
                // It is out of reach for as long as the other disk is away.
                let _ = lab.expect(&space, 0, 4096, 1).await;
                Ok(())
            };
            extra(vec![Box::pin(back), Box::pin(look)]).await?;
            let seen = (spaces.counters().lost_pages, lab.expect(&space, 0, 65536, 1).await.is_ok());
            lab.hold((spaces, space));
            if seen == (0, true) { Ok(()) } else { Err(format!("pages lost, read: {seen:?}").into()) }
        });
        if let Err(error) = verified {
            failed.push(format!("looked for after {} ms: {error}", 10 * offset));
        }
    }
    assert!(failed.is_empty(), "{failed:?}");
}

const FILLER: SpaceId = SpaceId(1 << 20);

async fn fill(pool: &Rc<Pool>, rows: std::ops::Range<u64>, value: Option<u8>) -> Result<(), PoolError> {
    let mut change = pool.change(Purpose::Release).await;
    for row in rows {
        match value {
            Some(byte) => change.put(keys::place(FILLER, row), vec![byte; 200]),
            None => change.delete(keys::place(FILLER, row)),
        }
    }
    change.commit().await
}

/// Scenario: rows without tables on their disks have no home but the log while the disk of one of their columns is away, and
/// it takes several parts to say them again. The map is full, so that a checkpoint ends after the first part; then it has room
/// again, and the next one ends well. The daemon is killed: what was flushed is there.
#[test]
fn a_checkpoint_that_found_the_map_full_forgets_no_row_of_the_log() {
    let bench = Bench::new(57, 2, CAPACITY);
    bench.world.set_steps_max(50_000_000);
    let found = Rc::new(Cell::new(0));
    let report = Rc::clone(&found);
    let disk = Rc::clone(&bench.disks[1]);
    bench
        .run(async move |lab| {
            let spaces = lab.create().await?;
            let mut spec = SpaceSpec::usual("data".parse()?, Bytes::mib(64), Resiliency::Simple);
            (spec.row, spec.columns, spec.interleave) = (Some(Bytes::mib(1)), Some(2), Bytes::kib(64));
            let space = spaces.create(spec).await?;
            for row in 0..47 {
                lab.write(&space, row << 20, 128 * 1024, 1).await?;
            }
            for row in 0..47_u64 {
                let some = |block: u64| lab.write(&space, (row << 20) + (32 + 2 * block) * 4096, 4096, 1);
                let done = join_all((0..112).map(some)).await;
                assert_eq!(done.into_iter().filter(Result::is_ok).count(), 112);
            }
            // Of the last row only the column of the disk that stays is ever written.
            let mut delayed_writes = 0;
            for row in 47..52_u64 {
                lab.write(&space, row << 20, 4096, 1).await?;
                if !crate::harness::places_of(&disk, row << 8..(row << 8) + 1, 1).is_empty() {
                    delayed_writes = (row << 20) + 4096;
                    break;
                }
            }
            assert!(delayed_writes > 0);
            spaces.flush().await?;
            spaces.pool().exclude(DiskSlot(0), ExcludeReason::Asked).await?;
            lab.write(&space, delayed_writes, 4096, 1).await?;
            spaces.flush().await?;
            report.set(delayed_writes);
            let pool = Rc::clone(spaces.pool());
            let mut rows = 0;
            loop {
                fill(&pool, rows..rows + 100, Some(7)).await?;
                rows += 100;
                match pool.checkpoint().await {
                    Ok(()) => {}
                    Err(PoolError::MetadataFull { .. }) => break,
                    Err(error) => return Err(error.into()),
                }
            }
            fill(&pool, rows - 100..rows, None).await?;
            fill(&pool, rows - 200..rows - 100, None).await?;
            pool.checkpoint().await?;
            pool.checkpoint().await?;
            lab.expect(&space, delayed_writes, 4096, 1).await?;
            lab.hold((spaces, space));
            Ok(())
        })
        .unwrap();
    bench.world.kill();
    let delayed_writes = found.get();
    let verified = bench.run(async move |lab| {
        let spaces = lab.open().await?;
        let space = spaces.find("data")?;
        lab.expect(&space, delayed_writes, 4096, 1).await?;
        drop(space);
        spaces.close().await?;
        Ok(())
    });
    verified.unwrap();
}

/// Scenario: a block was written and not flushed; then it is discarded, and the discard waits for its place in the log, or for
/// the map to say that another copy has left before. The last disk that has the block leaves, and a flush of another client
/// leaves the block in doubt meanwhile. What was acknowledged stands: when the disk is back, the block reads zeros.
#[test]
fn a_discard_holds_although_the_last_copy_is_lost_meanwhile() {
    for resiliency in [Resiliency::Simple, MIRROR] {
        let (mut wrong, mut acknowledged) = (Vec::new(), 0);
        for offset in (0..5).chain((5..45).step_by(5)) {
            match discarded_as_a_disk_leaves(resiliency, offset) {
                Ok(acked) => acknowledged += u32::from(acked),
                Err(error) => wrong.push(format!("{offset}: {error}")),
            }
        }
        assert!(wrong.is_empty(), "{resiliency}, disk leaves after ms: {wrong:#?}");
        assert!(acknowledged > 0, "{resiliency}: no discard was acknowledged");
    }
}

/// Whether the discard was acknowledged.
fn discarded_as_a_disk_leaves(resiliency: Resiliency, offset: u64) -> Result<bool, Box<dyn Error>> {
    let bench = Rc::new(Bench::with_profile(1200 + offset, 3, || Slow::WRITES.profile()));
    let outside = Rc::clone(&bench);
    let acked = Rc::new(Cell::new(false));
    let ack = Rc::clone(&acked);
    bench.run(async move |lab| {
        let spaces = lab.create().await?;
        let space = lab.space(&spaces, "data", Bytes::mib(12), resiliency).await?;
        let other = lab.space(&spaces, "other", Bytes::mib(12), Resiliency::Simple).await?;
        for row in 0..6 {
            lab.write(&space, row << 20, 8192, 1).await?;
            lab.write(&other, row << 20, 8192, 2).await?;
        }
        spaces.flush().await?;
        let is_on = |disk: usize, row: u64, fill: u8| {
            !crate::harness::places_of(&outside.disks[disk], row << 8..(row << 8) + 1, fill).is_empty()
        };
        let leaves = (0..6).find(|row| is_on(1, *row, 1) && !is_on(0, *row, 1));
        let stays = (0..6).find(|row| is_on(0, *row, 2));
        let (at, stays) =
            (leaves.ok_or("no row leaves")? * ROW.0 + 16384, stays.ok_or("no row stays")? * ROW.0);
        lab.write(&space, at, 4096, 2).await?;
        spaces.pool().exclude(DiskSlot(2), ExcludeReason::Asked).await?;
        let flush = async { spaces.flush().await.map_err(text) };
        let write = async |wait: u64, block: u64| {
            pause(&lab, wait).await;
            lab.write(&other, stays + block * 4096, 4096, 2).await.map_err(text)
        };
        let checkpoint = async {
            pause(&lab, 8).await;
            spaces.pool().checkpoint().await.map_err(text)
        };
        let discard = async {
            pause(&lab, 9).await;
            ack.set(space.discard(at, 4096).await.is_ok());
            Ok(())
        };
        let leave = async {
            pause(&lab, 9 + offset).await;
            spaces.pool().exclude(DiskSlot(1), ExcludeReason::Asked).await.map_err(text)
        };
        let (first, second) = (write(5, 10), write(7, 11));
        let (first, second): (Task<'_>, Task<'_>) = (Box::pin(first), Box::pin(second));
        extra(vec![Box::pin(flush), first, second, Box::pin(checkpoint), Box::pin(discard), Box::pin(leave)])
            .await?;
        for disk in [1, 2] {
            spaces.members().rejoin(outside.disks[disk].attach(&outside.world)).await?;
        }
        spaces.members().resync(&Progress::default()).await?;
        if ack.get() {
            lab.expect(&space, at, 4096, 0).await?;
        }
        drop((space, other));
        lab.check_and_close(spaces).await
    })?;
    Ok(acked.get())
}

/// Scenario: a disk leaves while something is written, which then only others have. One of these leaves too, before the map says
/// that the first disk lacks it, or behind that. The first disk is back before the other: nobody reads there what was before a
/// write that was acknowledged, and when both are back, that stands.
#[test]
fn a_write_that_one_disk_missed_is_acknowledged_only_where_that_is_on_record() {
    for (resiliency, length) in [(Resiliency::Parity { parity: 1 }, 128 << 10), (MIRROR, 4096)] {
        let (mut wrong, mut failed, mut acknowledged) = (Vec::new(), 0, 0);
        for (offset, later) in (0..60).flat_map(|offset| [(offset, 0), (offset, 500)]) {
            match written_as_disks_leave(resiliency, length, (offset, later)) {
                Ok(Written::Failed) => failed += 1,
                Ok(Written::Acknowledged) => acknowledged += 1,
                Ok(Written::Before) => {}
                Err(error) => wrong.push(format!("{offset}, {later}: {error}")),
            }
        }
        assert!(wrong.is_empty(), "{resiliency}, disks leave after ms: {wrong:#?}");
        assert!(failed > 0 && acknowledged > 0, "{resiliency}: {failed} failed, {acknowledged} acknowledged");
    }
}

/// What became of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Written {
    /// It was acknowledged before any disk left.
    Before,
    Acknowledged,
    Failed,
}

fn written_as_disks_leave(
    resiliency: Resiliency,
    length: usize,
    (offset, later): (u64, u64),
) -> Result<Written, Box<dyn Error>> {
    let bench = Rc::new(Bench::with_profile(1600, 6, || Slow::WRITES.profile()));
    let outside = Rc::clone(&bench);
    let written = Rc::new(Cell::new(None));
    let report = Rc::clone(&written);
    bench.run(async move |lab| {
        let spaces = lab.create().await?;
        let (space, at, [missing, other]) =
            row_beyond_the_log(&lab, &outside, &spaces, (resiliency, length)).await?;
        let before = u8::from(resiliency == MIRROR);
        let exclude = async |disk: usize| {
            let slot = DiskSlot(u16::try_from(disk).unwrap());
            spaces.pool().exclude(slot, ExcludeReason::Asked).await.map_err(text)
        };
        let write = async {
            let is_done = lab.write(&space, at, length, 2).await.is_ok();
            report.set(report.get().or(Some(if is_done { Written::Acknowledged } else { Written::Failed })));
            Ok(())
        };
        let leave = async {
            pause(&lab, offset).await;
            if report.get().is_some() {
                report.set(Some(Written::Before));
                return Ok(());
            }
            outside.disks[missing].vanish();
            let leave_too = async {
                if later > 0 {
                    pause(&lab, later).await;
                }
                exclude(other).await
            };
            extra(vec![Box::pin(exclude(missing)), Box::pin(leave_too)]).await
        };
        extra(vec![Box::pin(write), Box::pin(leave)]).await?;
        if report.get() == Some(Written::Before) {
            drop(space);
            return lab.check_and_close(spaces).await;
        }
        outside.disks[missing].come_back();
        spaces.members().rejoin(outside.disks[missing].attach(&outside.world)).await?;
        let verify = async |found: Result<Vec<u8>, Box<dyn Error>>| {
            let Ok(bytes) = found else { return Ok(()) };
            let mut fits = false;
            for fill in [2, before] {
                let mut expected = vec![0; length];
                crate::harness::pattern(at, fill, &mut expected);
                fits |= bytes == expected && (fill == 2 || report.get() == Some(Written::Failed));
            }
            if fits { Ok(()) } else { Err("what was acknowledged is not there".to_owned()) }
        };
        verify(crate::harness::read(&space, at, length).await).await?;
        spaces.members().rejoin(outside.disks[other].attach(&outside.world)).await?;
        spaces.members().resync(&Progress::default()).await?;
        verify(Ok(crate::harness::read(&space, at, length).await?)).await?;
        drop(space);
        lab.check_and_close(spaces).await
    })?;
    written.get().ok_or_else(|| "the write did not end".into())
}

/// A space, the first byte of a row of it, and two disks of that of which the first carries no log, so that nothing that is
/// recorded waits for it. A mirror is written over; with parity only what was never written is written in place.
async fn row_beyond_the_log(
    lab: &Lab,
    bench: &Bench,
    spaces: &Spaces,
    (resiliency, length): (Resiliency, usize),
) -> Result<(Space, u64, [usize; 2]), Box<dyn Error>> {
    let mut spec = SpaceSpec::usual("data".parse()?, Bytes::mib(4), resiliency);
    (spec.row, spec.interleave) = (Some(ROW), Bytes::kib(64));
    spec.columns = (resiliency != MIRROR).then_some(2);
    let space = spaces.create(spec).await?;
    for row in 0..4 {
        lab.write(&space, row * ROW.0 + (256 << 10), 256 << 10, 1).await?;
        if resiliency == MIRROR {
            lab.write(&space, row * ROW.0, length, 1).await?;
        }
    }
    spaces.flush().await?;
    for row in 0..4 {
        let blocks = row * 256 + 64..row * 256 + 128;
        let is_on =
            |disk: &usize| !crate::harness::places_of(&bench.disks[*disk], blocks.clone(), 1).is_empty();
        let holders: Vec<usize> = (0..6).filter(is_on).collect();
        if let [first, .., last] = holders[..]
            && last > 3
        {
            return Ok((space, row * ROW.0, [last, first]));
        }
    }
    Err("every row lies on disks with a log".into())
}

/// Scenario: a client writes to a row while a discard of all of it frees the row, at every stage of that. The write goes to the row
/// that takes its place.
#[test]
fn a_write_that_waits_for_a_row_that_is_freed_finds_the_next_one() {
    Bench::with_profile(171, 2, || Slow::WRITES.profile())
        .run(async |lab| {
            let spaces = lab.create().await?;
            let space = lab.space(&spaces, "data", Bytes(4 * ROW.0), MIRROR).await?;
            for offset in (0..160).step_by(4) {
                lab.write(&space, 0, 8192, 1).await?;
                let discard = async { space.discard(0, ROW.0).await.map_err(text) };
                let write = async {
                    pause(&lab, offset).await;
                    lab.write(&space, 4096, 4096, 2).await.map_err(text)
                };
                extra(vec![Box::pin(discard), Box::pin(write)]).await?;
                // Either of the two may have come last.
                lab.write(&space, 4096, 4096, 3).await?;
                lab.expect(&space, 4096, 4096, 3).await?;
            }
            drop(space);
            lab.check_and_close(spaces).await
        })
        .unwrap();
}

/// Scenario: a client writes to other blocks at every stage of a flush, which counts for none that is under way at its end.
#[test]
fn a_flush_counts_for_no_write_that_it_does_not_cover() {
    Bench::with_profile(172, 2, || Slow::WRITES.profile())
        .run(async |lab| {
            let spaces = lab.create().await?;
            let space = lab.space(&spaces, "data", Bytes(4 * ROW.0), MIRROR).await?;
            for offset in (0..120).step_by(4) {
                lab.write(&space, 0, 4096, 1).await?;
                let flush = async { spaces.flush().await.map_err(text) };
                let write = async {
                    pause(&lab, offset).await;
                    lab.write(&space, 4096 * (1 + offset), 4096, 2).await.map_err(text)
                };
                extra(vec![Box::pin(flush), Box::pin(write)]).await?;
            }
            spaces.flush().await?;
            for offset in (0..120).step_by(4) {
                lab.expect(&space, 4096 * (1 + offset), 4096, 2).await?;
            }
            drop(space);
            lab.check_and_close(spaces).await
        })
        .unwrap();
}

/// Scenario: a client writes to a row, discards all of it, and writes to the row that takes its place; no flush has covered either.
/// A disk leaves, and the flush records the blocks of both rows again.
#[test]
fn a_flush_after_a_loss_locks_a_freed_row_and_the_next_one_singly() {
    Bench::with_profile(173, 3, || Slow::WRITES.profile())
        .run(async |lab| {
            let spaces = lab.create().await?;
            let space = lab.space(&spaces, "data", Bytes(4 * ROW.0), MIRROR).await?;
            lab.write(&space, 0, 4096, 1).await?;
            space.discard(0, ROW.0).await?;
            lab.write(&space, 0, 8192, 2).await?;
            spaces.pool().exclude(DiskSlot(0), ExcludeReason::Asked).await?;
            spaces.flush().await?;
            lab.expect(&space, 0, 8192, 2).await?;
            drop(space);
            lab.check_and_close(spaces).await
        })
        .unwrap();
}
