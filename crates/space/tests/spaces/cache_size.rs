//! The size of write caches: changed while clients write, while power fails, and where disks lack room; what is seen of them; and
//! on which disks they lie.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use std::cell::Cell;
use std::collections::BTreeSet;
use std::rc::Rc;

use dolmen_disk::Medium;
use dolmen_pool::ExcludeReason;
use dolmen_sim::{DiskProfile, Ran, Random, StateOptions, StopAt};
use dolmen_space::{CacheLimit, Progress, Resiliency, Space, SpaceError, Spaces, WriteCache};
use dolmen_units::{Bytes, DiskSlot};

use crate::harness::slow_disks::{Dial, extra, opened, pause, text};
use crate::harness::{Bench, Lab, Outcome};

const PARITY: Resiliency = Resiliency::Parity { parity: 1 };
const CAPACITY: Bytes = Bytes::mib(96);
/// Blocks of the spaces that are written to.
const BLOCKS: u64 = 6 * 256;

async fn cache(spaces: &Spaces) -> Result<WriteCache, Box<dyn std::error::Error>> {
    spaces.caches().write_caches().await?.pop().ok_or_else(|| "there is no write cache".into())
}

async fn size(spaces: &Spaces) -> Result<u64, Box<dyn std::error::Error>> {
    Ok(cache(spaces).await?.size.0 >> 20)
}

async fn resize(spaces: &Spaces, mib: u64) -> Outcome {
    let change = spaces.caches().resize_write_cache(1, Bytes::mib(mib), &Progress::default()).await?;
    assert_eq!((change.after, size(spaces).await?), (Bytes::mib(mib), mib));
    Ok(())
}

async fn check_rows(spaces: &Spaces) -> Outcome {
    let findings = spaces.scrubs().check_map().await?;
    if findings.is_empty() { Ok(()) } else { Err(findings.join("; ").into()) }
}

/// It has the size that was chosen, at once and after the pool was opened again, and takes as much more or less of the disks as
/// was foretold; what is written before and behind each change is there.
#[test]
fn a_cache_has_the_size_that_was_chosen() {
    let bench = Bench::new(31, 5, CAPACITY);
    bench
        .run(async move |lab| {
            let spaces = lab.create().await?;
            let space = lab.space(&spaces, "data", Bytes::mib(8), PARITY).await?;
            let first = size(&spaces).await?;
            assert!((8..30).contains(&first), "{first}");
            drop(space);
            let mut spaces = spaces;
            let mut fill = 0;
            for mib in [first - 1, 4, first, 5, first - 2] {
                let space = spaces.find("data")?;
                fill += 1;
                for row in 0..4 {
                    lab.write(&space, row << 20, 256 << 10, fill).await?;
                }
                let before = cache(&spaces).await?;
                let plan = spaces.caches().plan_write_cache(1, Bytes::mib(mib))?;
                resize(&spaces, mib).await?;
                let after = cache(&spaces).await?;
                let foretold = before.footprint.total + plan.claimed();
                assert_eq!(after.footprint.total + plan.released(), foretold);
                check_rows(&spaces).await?;
                drop(space);
                spaces.close().await?;
                drop(spaces);
                spaces = lab.open().await?;
                assert_eq!(size(&spaces).await?, mib);
                let space = spaces.find("data")?;
                for row in 0..4 {
                    lab.expect(&space, row << 20, 256 << 10, fill).await?;
                }
            }
            lab.check_and_close(spaces).await
        })
        .unwrap();
}

/// Too little, too much, and more than there is room for is refused with the limit, and changes nothing. What is no whole row
/// becomes one.
#[test]
fn a_size_that_cannot_be_is_refused_with_the_limit() {
    for (parity, least) in [(1, 4), (2, 5)] {
        let bench = Bench::new(32, 6, CAPACITY);
        bench
            .run(async move |lab| {
                let spaces = lab.create().await?;
                let none = &Progress::default();
                assert!(matches!(
                    spaces.caches().resize_write_cache(parity, Bytes::mib(8), none).await,
                    Err(SpaceError::NoWriteCache { .. })
                ));
                let space = lab.space(&spaces, "data", Bytes::mib(8), Resiliency::Parity { parity }).await?;
                let before = cache(&spaces).await?;
                let limit = |size| match spaces.caches().plan_write_cache(parity, size) {
                    Err(SpaceError::CacheSize { limit, .. }) => Some(limit),
                    _ => None,
                };
                for bytes in [0, 1, Bytes::mib(least - 1).0] {
                    assert_eq!(limit(Bytes(bytes)), Some(CacheLimit::Least(Bytes::mib(least))));
                }
                let Some(CacheLimit::OfPool(most)) = limit(Bytes::gib(1 << 20)) else {
                    return Err("it has no upper limit".into());
                };
                let pool: u64 = spaces.pool().disks().iter().map(|disk| disk.data_bytes().0).sum();
                let copies = u64::from(parity) + 1;
                assert!(most.0 * copies <= pool / 16 && (most.0 + (1 << 20)) * copies > pool / 16);
                assert!(spaces.caches().resize_write_cache(parity, most + Bytes(1), none).await.is_err());
                assert_eq!(cache(&spaces).await?, before);
                assert_eq!(
                    spaces.caches().plan_write_cache(parity, Bytes::mib(least) - Bytes(4000))?.after,
                    Bytes::mib(least)
                );
                spaces.caches().resize_write_cache(parity, Bytes::mib(least), none).await?;
                // The smallest one serves the largest of writes.
                for fill in [3, 4] {
                    for at in [4096, 0, 1 << 20, 2 << 20, 3 << 20] {
                        lab.write(&space, at, 1 << 20, fill).await?;
                    }
                }
                lab.expect(&space, 0, 4 << 20, 4).await?;
                // A mirror takes all that is left, but for what is kept for moves.
                let mut spec =
                    dolmen_space::SpaceSpec::usual("full".parse()?, Bytes::gib(1), Resiliency::Simple);
                spec.row = Some(crate::harness::ROW);
                let full = spaces.create(spec).await?;
                let mut at = 0;
                while lab.write(&full, at << 20, 4096, 1).await.is_ok() {
                    at += 1;
                }
                let Some(CacheLimit::Room(room)) = limit(most) else {
                    return Err("there seems to be room".into());
                };
                assert!(room.0 >= Bytes::mib(least).0 && room < most, "{room} of {most}");
                assert!(spaces.caches().resize_write_cache(parity, most, none).await.is_err());
                assert_eq!(cache(&spaces).await?.size, Bytes::mib(least));
                drop((space, full));
                lab.check_and_close(spaces).await
            })
            .unwrap_or_else(|error| panic!("parity {parity}: {error}"));
    }
}

/// On large disks with a small log: what the log cannot name the blocks of would stay empty, and is refused.
#[test]
fn a_cache_is_no_larger_than_the_log_can_use() {
    Bench::new(7, 6, Bytes::gib(8))
        .run(async move |lab| {
            let spaces = lab.create().await?;
            let space = lab.space(&spaces, "data", Bytes::mib(8), PARITY).await?;
            let before = cache(&spaces).await?.size;
            let asked = Bytes::gib(1);
            let refused = spaces.caches().plan_write_cache(1, asked);
            let Err(SpaceError::CacheSize { limit: CacheLimit::OfLog(most), .. }) = refused else {
                return Err(format!("{refused:?}").into());
            };
            assert!(most >= before && most < asked, "{most}");
            assert_eq!(spaces.caches().plan_write_cache(1, most)?.after, most);
            drop(space);
            lab.check_and_close(spaces).await
        })
        .unwrap();
}

/// Writes blocks of a part of a space over and over until it is told to stop; what was written to each of them last.
async fn write_on(
    lab: &Lab,
    space: &Space,
    (nth, of): (u64, u64),
    stop: &Cell<bool>,
) -> Result<Vec<u8>, String> {
    let mut random = Random::new(nth);
    let mut fills = vec![0; usize::try_from(BLOCKS).unwrap()];
    let (first, count) = (BLOCKS / of * nth, BLOCKS / of);
    let mut rounds = 0;
    while !stop.get() {
        rounds += 1;
        let at = random.below(count);
        let length = (1 + random.below(40)).min(count - at);
        let fill = 1 + u8::try_from(random.below(250)).unwrap();
        if rounds % 16 == 0 {
            space.discard((first + at) * 4096, length * 4096).await.map_err(text)?;
        } else {
            let bytes = usize::try_from(length * 4096).unwrap();
            lab.write(space, (first + at) * 4096, bytes, fill).await.map_err(text)?;
        }
        let fill = if rounds % 16 == 0 { 0 } else { fill };
        for block in first + at..first + at + length {
            fills[usize::try_from(block).unwrap()] = fill;
        }
        if rounds % 32 == 0 {
            space.flush().await.map_err(text)?;
        }
    }
    Ok(fills)
}

/// While clients write as fast as they can, it shrinks to the least and grows again: each change ends, no write is refused, and
/// all that was written is there.
#[test]
fn a_cache_grows_and_shrinks_while_it_is_written_to() {
    for (seed, millis) in [(43, 0), (44, 2)] {
        let dial = Dial::default();
        dial.write.set(millis);
        dial.flush.set(millis);
        let bench = Bench::with_profile(seed, 5, || dial.profile());
        bench.world.set_steps_max(40_000_000);
        bench
            .run(async move |lab| {
                let spaces = lab.create().await?;
                let space = lab.space(&spaces, "data", Bytes(BLOCKS * 4096), PARITY).await?;
                let most = size(&spaces).await?;
                let stop = Cell::new(false);
                let written = std::cell::RefCell::new(Vec::new());
                let mut tasks: Vec<crate::harness::slow_disks::Task<'_>> = Vec::new();
                for nth in 0..4 {
                    let (lab, space, stop, written) = (&lab, &space, &stop, &written);
                    tasks.push(Box::pin(async move {
                        let fills = write_on(lab, space, (nth, 4), stop).await;
                        stop.set(stop.get() || fills.is_err());
                        written.borrow_mut().push((nth, fills?));
                        Ok(())
                    }));
                }
                let (spaces_, stop_) = (&spaces, &stop);
                let pausing = &lab;
                tasks.push(Box::pin(async move {
                    pause(pausing, 200).await;
                    for mib in [4, most, most - 3, 6, 5, 4, 5, most - 1, 4] {
                        let resized = resize(spaces_, mib).await.map_err(text);
                        stop_.set(stop_.get() || resized.is_err());
                        resized?;
                        let before = cache(spaces_).await.map_err(text)?.filled.bytes;
                        while cache(spaces_).await.map_err(text)?.filled.bytes < before + (3 << 20) {
                            pause(pausing, 5).await;
                        }
                    }
                    stop_.set(true);
                    Ok(())
                }));
                extra(tasks).await?;
                for (nth, fills) in written.take() {
                    for block in BLOCKS / 4 * nth..BLOCKS / 4 * (nth + 1) {
                        lab.expect(&space, block * 4096, 4096, fills[usize::try_from(block).unwrap()])
                            .await?;
                    }
                }
                spaces.caches().destage().await?;
                drop(space);
                lab.check_and_close(spaces).await
            })
            .unwrap();
    }
}

/// A change to a size and back, with writes before, between and beside: what is written, block by block, so that each block is
/// written twice, the first time flushed before `record` is called.
async fn change_size(lab: &Lab, spaces: &Rc<Spaces>, sizes: [u64; 2], done: &Cell<usize>) -> Outcome {
    let space = spaces.find("data")?;
    for (nth, mib) in (0..).zip(sizes) {
        let rewriting = async {
            for block in 0..40_u64 {
                lab.write(&space, (nth * 40 + block) * 16 * 4096, 8192, 2).await.map_err(text)?;
                if block % 16 == 7 {
                    space.flush().await.map_err(text)?;
                }
            }
            Ok(())
        };
        let resizing = async {
            resize(spaces, mib).await.map_err(text)?;
            done.set(done.get() + 1);
            Ok(())
        };
        extra(vec![Box::pin(rewriting), Box::pin(resizing)]).await?;
    }
    space.flush().await?;
    Ok(())
}

/// Writes 80 pieces so often that they lie far from the beginning of the cache, whose first rows hold nothing any more.
async fn write_far(lab: &Lab, spaces: &Spaces, space: &Space, fill: u8) -> Outcome {
    let rows = size(spaces).await?;
    // But for the rows that are kept back and the one that is filled: no row is emptied before room is wanted.
    for _ in 0..(rows - 3) * 256 / 160 {
        for piece in 0..80 {
            lab.write(space, piece * 16 * 4096, 8192, fill).await?;
        }
        space.flush().await?;
    }
    assert_eq!(cache(spaces).await?.destaged.bytes, 0, "they were put in place");
    Ok(())
}

/// A pool with a space of which 80 pieces are written and flushed, in the last rows of the cache that can be filled.
async fn begin(lab: &Lab) -> Result<Rc<Spaces>, Box<dyn std::error::Error>> {
    let spaces = lab.create().await?;
    let space = lab.space(&spaces, "data", Bytes::mib(8), PARITY).await?;
    write_far(lab, &spaces, &space, 1).await?;
    Ok(spaces)
}

/// What a crash left: the cache has one of these sizes, each block is old or new, the pool is sound and its cache can be
/// changed on; the size.
async fn verify(lab: Lab, sizes: BTreeSet<u64>, found: Rc<Cell<u64>>) -> Outcome {
    let spaces = lab.open().await?;
    let now = size(&spaces).await?;
    assert!(sizes.contains(&now), "{now} MiB, not one of {sizes:?}");
    found.set(now);
    check_rows(&spaces).await?;
    let rows = cache(&spaces).await?.footprint.total.0 / now;
    let space = spaces.find("data")?;
    for piece in 0..80 {
        for block in [piece * 16, piece * 16 + 1] {
            if lab.expect(&space, block * 4096, 4096, 1).await.is_err() {
                lab.expect(&space, block * 4096, 4096, 2).await?;
            }
        }
    }
    assert_eq!((spaces.data_loss_events().len(), spaces.counters().lost_blocks), (0, 0));
    resize(&spaces, if now == 4 { 6 } else { 4 }).await?;
    assert_eq!(cache(&spaces).await?.footprint.total.0 / size(&spaces).await?, rows);
    lab.write(&space, 0, 1 << 20, 3).await?;
    spaces.caches().destage().await?;
    lab.expect(&space, 0, 1 << 20, 3).await?;
    drop(space);
    lab.check_and_close(spaces).await
}

/// Which of so many are tried: all of them with `DOLMEN_CRASH_STATES=all`.
fn tried(count: usize, usual: usize) -> impl Iterator<Item = usize> {
    let is_all = std::env::var("DOLMEN_CRASH_STATES").is_ok_and(|states| states == "all");
    (0..count).step_by(if is_all { 1 } else { (count / usual).max(1) })
}

/// Power fails at any moment of a change: the cache has the one size or the other, durably what was acknowledged; nothing is
/// lost.
#[test]
fn power_that_fails_leaves_one_size_or_the_other() {
    for sizes in [[4, 8], [5, 4]] {
        let bench = Rc::new(Bench::new(35, 4, CAPACITY));
        let done = Rc::new(Cell::new(0));
        let (recorder, marks) = (Rc::new(std::cell::RefCell::new(None)), Rc::new(Cell::new([0; 2])));
        let first = Rc::new(Cell::new(0));
        // The record of the host at the end names labels that are younger than a cut.
        let host = Rc::new(std::cell::RefCell::new(None));
        bench
            .run({
                let (done, recorder, first) = (Rc::clone(&done), Rc::clone(&recorder), Rc::clone(&first));
                let (marks, outside, host) = (Rc::clone(&marks), Rc::clone(&bench), Rc::clone(&host));
                async move |lab| {
                    let spaces = begin(&lab).await?;
                    first.set(size(&spaces).await?);
                    let record = Rc::new(outside.world.record());
                    *host.borrow_mut() = Some(outside.arbiter.snapshot());
                    *recorder.borrow_mut() = Some(Rc::clone(&record));
                    let watch = async {
                        for nth in 0..2 {
                            while done.get() <= nth {
                                pause(&lab, 1).await;
                            }
                            let mut seen = marks.get();
                            seen[nth] = record.now().0;
                            marks.set(seen);
                        }
                        Ok(())
                    };
                    let changing = async { change_size(&lab, &spaces, sizes, &done).await.map_err(text) };
                    extra(vec![Box::pin(watch), Box::pin(changing)]).await?;
                    lab.check_and_close(spaces).await
                }
            })
            .unwrap();
        let (recorder, host) = (recorder.take().unwrap(), host.take().unwrap());
        let cuts = recorder.cuts();
        let seen = Rc::new(Cell::new(0));
        let (mut found, mut undone) = (BTreeSet::new(), 0);
        for nth in tried(cuts.len(), 40) {
            let acked = marks.get().iter().filter(|mark| cuts[nth].0 >= **mark).count();
            let all = [first.get(), sizes[0], sizes[1]];
            let may_be: BTreeSet<u64> = all[acked..].iter().copied().collect();
            let options = StateOptions { seed: nth as u64, ..StateOptions::default() };
            // All of what was not flushed lost, and some of it.
            for state in recorder.states(cuts[nth], &options).step_by(7).take(2) {
                let left = Bench { arbiter: host.snapshot(), ..opened(&state, &bench) };
                let verified = left.run({
                    let (may_be, seen) = (may_be.clone(), Rc::clone(&seen));
                    async move |lab| verify(lab, may_be, seen).await
                });
                verified.unwrap_or_else(|error| panic!("{sizes:?}, cut {} {state}: {error}", cuts[nth].0));
                found.insert(seen.get());
                undone += usize::from(acked < 2 && seen.get() == all[acked]);
            }
        }
        assert_eq!(found, BTreeSet::from([first.get(), sizes[0], sizes[1]]));
        assert!(undone > 0, "no change was undone");
    }
}

/// The daemon is killed at any moment of a change: the same.
#[test]
fn a_kill_leaves_one_size_or_the_other() {
    for sizes in [[4, 8], [5, 4]] {
        let run = |commands: u64| {
            let bench = Bench::new(36, 4, CAPACITY);
            let (done, first) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
            let prepared = {
                let first = Rc::clone(&first);
                bench.run(async move |lab| {
                    let spaces = begin(&lab).await?;
                    first.set(size(&spaces).await?);
                    Ok(spaces.close().await?)
                })
            };
            prepared.unwrap();
            let lab = bench.lab();
            let body = {
                let done = Rc::clone(&done);
                async move {
                    let spaces = lab.open().await?;
                    change_size(&lab, &spaces, sizes, &done).await?;
                    Outcome::Ok(())
                }
            };
            let ended = match bench.world.run_to(StopAt::Commands(commands), body).unwrap() {
                Ran::Finished(outcome) => outcome.map(|()| true).unwrap(),
                Ran::Stopped => false,
            };
            (bench, done.get(), first.get(), ended)
        };
        // How many commands it takes: not before the last of them it has ended.
        let (mut too_few, mut enough) = (0, 1);
        while !run(enough).3 {
            (too_few, enough) = (enough, enough * 2);
        }
        while enough - too_few > 1 {
            let middle = too_few.midpoint(enough);
            if run(middle).3 { enough = middle } else { too_few = middle }
        }
        let mut found = BTreeSet::new();
        let all = usize::try_from(enough).unwrap();
        for killed_at in tried(all, 25).map(|nth| nth as u64).chain([enough]) {
            let (bench, acked, first, _) = run(killed_at);
            bench.world.kill();
            let may_be: BTreeSet<u64> = [first, sizes[0], sizes[1]][acked..].iter().copied().collect();
            let seen = Rc::new(Cell::new(0));
            let report = Rc::clone(&seen);
            let verified = bench.run(async move |lab| verify(lab, may_be, report).await);
            verified.unwrap_or_else(|error| panic!("{sizes:?}, killed at {killed_at}: {error}"));
            found.insert(seen.get());
        }
        assert!(found.len() > 1 && found.contains(&sizes[1]), "{found:?}");
    }
}

/// Scenario: what is cached cannot be put in place, because more columns are away than there is parity. Making the cache smaller
/// ends with an error and leaves it as it is; with the disks back it is made smaller.
#[test]
fn a_cache_that_cannot_be_emptied_keeps_its_size() {
    let bench = Rc::new(Bench::new(37, 6, CAPACITY));
    let outside = Rc::clone(&bench);
    bench
        .run(async move |lab| {
            let spaces = lab.create().await?;
            let space = lab.space(&spaces, "data", Bytes::mib(24), PARITY).await?;
            let before = size(&spaces).await?;
            for row in 0..24 {
                lab.write(&space, row << 20, 1 << 20, 1).await?;
            }
            spaces.caches().destage().await?;
            // Blocks in all rows of the space, so many that they lie in many rows of the cache.
            for piece in (0..24).flat_map(|row| (0..15).map(move |nth| (row << 20) + nth * (20 << 10))) {
                lab.write(&space, piece, 20 << 10, 2).await?;
            }
            space.flush().await?;
            for disk in [1, 2] {
                outside.disks[disk].vanish();
                let slot = spaces.pool().members().find_disk(outside.disks[disk].name())?.slot();
                spaces.pool().exclude(slot, ExcludeReason::MissedWrite).await?;
            }
            let refused =
                spaces.caches().resize_write_cache(1, Bytes::mib(4), &Progress::default()).await.unwrap_err();
            assert!(
                matches!(refused, SpaceError::CacheFull { .. } | SpaceError::Unreadable { .. }),
                "{refused}"
            );
            assert_eq!(size(&spaces).await?, before);
            for disk in [1, 2] {
                outside.disks[disk].come_back();
                spaces.members().rejoin(outside.disks[disk].attach(&outside.world)).await?;
            }
            spaces.members().resync(&Progress::default()).await?;
            // More than there is room for: what was tried in vain keeps nobody waiting.
            for fill in [3, 4, 2] {
                for piece in (0..24).flat_map(|row| (0..15).map(move |nth| (row << 20) + nth * (20 << 10))) {
                    lab.write(&space, piece, 20 << 10, fill).await?;
                }
                space.flush().await?;
            }
            resize(&spaces, 4).await?;
            for row in 0..24 {
                lab.expect(&space, row << 20, 300 << 10, 2).await?;
                lab.expect(&space, (row << 20) + (300 << 10), 724 << 10, 1).await?;
            }
            drop(space);
            lab.check_and_close(spaces).await
        })
        .unwrap();
}

/// Scenario: the rows at the beginning of a cache are full, and what is free lies at its end. It is made as small as can be:
/// the rows that are left have room to be emptied, and take new writes.
#[test]
fn a_full_cache_that_was_made_smaller_can_be_emptied() {
    let dial = Dial::default();
    let bench = Bench::with_profile(41, 5, || dial.profile());
    bench
        .run(async move |lab| {
            let spaces = lab.create().await?;
            let space = lab.space(&spaces, "data", Bytes::mib(8), PARITY).await?;
            resize(&spaces, 8).await?;
            let write = async |fill: u8| -> Outcome {
                for piece in 0..100 {
                    lab.write(&space, piece * 65_536, 61_440, fill).await?;
                }
                Ok(())
            };
            // While flushes take their time, nothing is put in place.
            dial.flush.set(60_000);
            write(1).await?;
            assert_eq!(cache(&spaces).await?.waiting, Bytes(100 * 61_440));
            dial.flush.set(0);
            resize(&spaces, 4).await?;
            write(2).await?;
            for piece in 0..100 {
                lab.expect(&space, piece * 65_536, 61_440, 2).await?;
            }
            spaces.caches().destage().await?;
            assert_eq!(cache(&spaces).await?.waiting, Bytes::ZERO);
            drop(space);
            lab.check_and_close(spaces).await
        })
        .unwrap();
}

/// What went through is counted, and how fast lately; it does not outlast the opening of the pool.
#[test]
fn throughput_is_reported_with_its_rate() {
    let bench = Bench::new(38, 5, CAPACITY);
    bench
        .run(async move |lab| {
            let spaces = lab.create().await?;
            let space = lab.space(&spaces, "data", Bytes::mib(8), PARITY).await?;
            lab.write(&space, 4096, 40_960, 1).await?;
            let seen = cache(&spaces).await?;
            assert_eq!((seen.filled.bytes, seen.destaged.bytes, seen.waiting), (40_960, 0, Bytes(40_960)));
            assert_eq!((seen.filled.bytes_per_second, seen.disks.len()), (4096, 5));
            spaces.caches().destage().await?;
            let seen = cache(&spaces).await?;
            assert_eq!((seen.destaged.bytes, seen.waiting), (40_960, Bytes::ZERO));
            assert_eq!(seen.destaged.bytes_per_second, 4096);
            pause(&lab, 11_000).await;
            let seen = cache(&spaces).await?;
            assert_eq!((seen.destaged.bytes, seen.destaged.bytes_per_second), (40_960, 0));
            spaces.close().await?;
            drop((space, spaces));
            let spaces = lab.open().await?;
            assert_eq!(cache(&spaces).await?.destaged.bytes, 0);
            lab.check_and_close(spaces).await
        })
        .unwrap();
}

/// A world of disks of which these are not rotational, and have this capacity.
fn with_fast(seed: u64, count: u16, fast: &'static [u16], of_fast: Bytes) -> Bench {
    let next = Cell::new(0);
    Bench::with_profile(seed, count.into(), || {
        let is_fast = fast.contains(&next.get());
        next.set(next.get() + 1);
        let mut profile: DiskProfile = crate::harness::file(if is_fast { of_fast } else { CAPACITY });
        profile.geometry.rotational = !is_fast;
        profile
    })
}

/// Its rows lie on disks whose seeks cost no time, if these keep the copies apart; else on all.
#[test]
fn a_cache_lies_on_the_fastest_disks_that_keep_its_copies_apart() {
    let cases: [(u8, &[u16], &[u16]); 5] = [
        (1, &[1, 4], &[1, 4]),
        (1, &[0, 2, 3], &[0, 2, 3]),
        (2, &[1, 4], &[0, 1, 2, 3, 4, 5]),
        (1, &[3], &[0, 1, 2, 3, 4, 5]),
        (1, &[], &[0, 1, 2, 3, 4, 5]),
    ];
    for (parity, fast, expected) in cases {
        let bench = with_fast(39, 6, fast, CAPACITY);
        bench
            .run(async move |lab| {
                let spaces = lab.create().await?;
                let space = lab.space(&spaces, "data", Bytes::mib(8), Resiliency::Parity { parity }).await?;
                let disks: Vec<DiskSlot> = cache(&spaces).await?.disks;
                assert_eq!(disks, expected.iter().map(|slot| DiskSlot(*slot)).collect::<Vec<_>>());
                lab.write(&space, 0, 1 << 20, 1).await?;
                spaces.caches().destage().await?;
                lab.expect(&space, 0, 1 << 20, 1).await?;
                drop(space);
                lab.check_and_close(spaces).await
            })
            .unwrap_or_else(|error| panic!("{parity}, {fast:?}: {error}"));
    }
}

/// Scenario: a pool opens without a fast disk and a slow one. What each of its disks is, here or absent, is on record.
#[test]
fn the_medium_of_a_disk_is_known_while_it_is_absent() {
    let bench = with_fast(41, 4, &[1, 3], CAPACITY);
    let create = bench.run(async move |lab| {
        let spaces = lab.create().await?;
        lab.check_and_close(spaces).await
    });
    create.unwrap();
    let media = bench.run_in(bench.lab_with(|disk| disk != 0 && disk != 1), async move |lab| {
        let spaces = lab.open().await?;
        let media = (0..4).map(|slot| {
            let disk = spaces.pool().disk(DiskSlot(slot)).unwrap();
            (disk.is_present(), disk.member().medium)
        });
        let expected = [
            (false, Medium::Rotational),
            (false, Medium::SolidState),
            (true, Medium::Rotational),
            (true, Medium::SolidState),
        ];
        assert_eq!(media.collect::<Vec<_>>(), expected);
        lab.check_and_close(spaces).await
    });
    media.unwrap();
}

/// Scenario: the fast disks are too small for all of it. What they have no room for lies on others, until it is made smaller.
#[test]
fn a_cache_lies_on_other_disks_too_when_the_fast_ones_are_full() {
    let bench = with_fast(40, 20, &[1, 4], Bytes::mib(64));
    bench
        .run(async move |lab| {
            let spaces = lab.create().await?;
            let space = lab.space(&spaces, "data", Bytes::mib(8), PARITY).await?;
            let most = size(&spaces).await?;
            let disks = async || Ok::<_, Box<dyn std::error::Error>>(cache(&spaces).await?.disks);
            let fast = [DiskSlot(1), DiskSlot(4)];
            let has_more =
                |disks: Vec<DiskSlot>| disks.len() > 2 && fast.iter().all(|slot| disks.contains(slot));
            assert!(has_more(disks().await?));
            resize(&spaces, 12).await?;
            assert_eq!(disks().await?, fast);
            resize(&spaces, most).await?;
            assert!(has_more(disks().await?));
            drop(space);
            lab.check_and_close(spaces).await
        })
        .unwrap();
}

/// Scenario: the last space with parity is deleted while its cache is made smaller, at several moments of that. The cache goes,
/// and neither waits for ever.
#[test]
fn a_cache_that_shrinks_goes_with_its_last_space() {
    for instant in 0..10 {
        let dial = Dial::default();
        let bench = Bench::with_profile(342, 5, || dial.profile());
        bench
            .run(async move |lab| {
                let spaces = lab.create().await?;
                let space = lab.space(&spaces, "data", Bytes::mib(8), PARITY).await?;
                for piece in 0..60 {
                    lab.write(&space, piece * 65_536, 61_440, 1).await?;
                }
                dial.flush.set(7);
                dial.write.set(3);
                let progress = Progress::default();
                let resizing = async {
                    match spaces.caches().resize_write_cache(1, Bytes::mib(4), &progress).await {
                        Ok(_) | Err(SpaceError::Deleted { .. }) => Ok(()),
                        Err(error) => Err(text(error)),
                    }
                };
                let deleting = async {
                    pause(&lab, instant * 30).await;
                    spaces.changes().delete(&space).await.map_err(text)
                };
                extra(vec![Box::pin(resizing), Box::pin(deleting)]).await?;
                assert_eq!(spaces.caches().write_caches().await?, []);
                drop(space);
                // The next one begins again.
                let space = lab.space(&spaces, "data", Bytes::mib(8), PARITY).await?;
                assert!(size(&spaces).await? > 4);
                lab.write(&space, 0, 1 << 20, 2).await?;
                resize(&spaces, 4).await?;
                lab.expect(&space, 0, 1 << 20, 2).await?;
                drop(space);
                lab.check_and_close(spaces).await
            })
            .unwrap_or_else(|error| panic!("at {instant}: {error}"));
    }
}
