//! What is in the write cache while disks leave, the daemon is killed, and power fails.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use dolmen_block_io::{Durability, Instant};
use dolmen_pool::ExcludeReason;
use dolmen_sim::{CommandKind, DiskProfile, LatencyModel, Ran, Random, Request, SimpleLatency, StopAt};
use dolmen_space::{Progress, Resiliency, Segment, Space, SpaceError, SpaceSpec, Spaces};
use dolmen_units::{Bytes, DiskSlot};

use crate::harness::slow_disks::{Dial, Task, extra, pause, text};
use crate::harness::{Bench, Lab, Outcome};

const PARITY: Resiliency = Resiliency::Parity { parity: 1 };

/// Disks that have a block of the space as it was written last: where it is cached.
fn holders(bench: &Bench, block: u64, fill: u8) -> Vec<usize> {
    let has_it =
        |disk: &usize| !crate::harness::places_of(&bench.disks[*disk], block..block + 1, fill).is_empty();
    (0..bench.disks.len()).filter(has_it).collect()
}

/// Takes disks back in that left.
async fn take_in(bench: &Bench, spaces: &Spaces, disks: &[usize]) -> Outcome {
    for disk in disks {
        bench.disks[*disk].come_back();
        spaces.members().rejoin(bench.disks[*disk].attach(&bench.world)).await?;
    }
    Ok(())
}

/// The first block reads as 1, cached and in place, and nothing is lost.
async fn expect_one(lab: &Lab, spaces: Rc<Spaces>) -> Outcome {
    let space = spaces.find("data")?;
    lab.expect(&space, 0, 4096, 1).await?;
    spaces.caches().destage().await?;
    lab.expect(&space, 0, 4096, 1).await?;
    assert_eq!((spaces.data_loss_events().len(), spaces.counters().lost_blocks), (0, 0));
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
            let failed = extra(vec![Box::pin(writing), Box::pin(leaving)]).await.unwrap_err();
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
/// something is lost, that of another space does not, the block is what it was before the write, and is that at the next
/// opening.
#[test]
fn a_cached_write_that_left_with_its_copies_goes_back_in_time() {
    let bench = Rc::new(Bench::new(22, 5, Bytes::mib(96)));
    let outside = Rc::clone(&bench);
    bench
        .run(async move |lab| {
            let spaces = lab.create().await?;
            let space = lab.space(&spaces, "data", Bytes::mib(8), PARITY).await?;
            let other = lab.space(&spaces, "other", Bytes::mib(8), PARITY).await?;
            lab.write(&space, 0, 4096, 1).await?;
            space.flush().await?;
            lab.write(&space, 0, 4096, 2).await?;
            let holders = holders(&outside, 0, 2);
            assert_eq!(holders.len(), 2);
            holders.iter().for_each(|disk| outside.disks[*disk].vanish());
            assert!(space.flush().await.is_err());
            other.flush().await?;
            spaces.flush().await?;
            holders.iter().for_each(|disk| assert!(outside.disks[*disk].return_to(0)));
            take_in(&outside, &spaces, &holders).await?;
            other.flush().await?;
            lab.expect(&space, 0, 4096, 1).await?;
            assert!(space.flush().await.is_err());
            space.flush().await?;
            lab.expect(&space, 0, 4096, 1).await
        })
        .unwrap();
    bench.world.kill();
    bench.run(async move |lab| expect_one(&lab, lab.open().await?).await).unwrap();
}

/// Scenario: an acknowledged write left with both copies of its cache row, and is abandoned. Its place in the cache is filled again,
/// with the same content for another block, and the daemon is killed: the block stays what it was.
#[test]
fn an_abandoned_cached_write_does_not_come_back_with_its_place() {
    let bench = Rc::new(Bench::new(25, 5, Bytes::mib(96)));
    let outside = Rc::clone(&bench);
    bench
        .run(async move |lab| {
            let spaces = lab.create().await?;
            let space = lab.space(&spaces, "data", Bytes::mib(8), PARITY).await?;
            lab.write(&space, 0, 4096, 1).await?;
            space.flush().await?;
            lab.write(&space, 0, 4096, 2).await?;
            let places = |disk: &usize| crate::harness::places_of(&outside.disks[*disk], 0..1, 2);
            let holders = holders(&outside, 0, 2);
            assert_eq!(holders.len(), 2);
            let before: Vec<Vec<u64>> = holders.iter().map(places).collect();
            holders.iter().for_each(|disk| outside.disks[*disk].vanish());
            assert!(space.flush().await.is_err());
            holders.iter().for_each(|disk| assert!(outside.disks[*disk].return_to(0)));
            take_in(&outside, &spaces, &holders).await?;
            spaces.members().resync(&Progress::default()).await?;
            lab.expect(&space, 0, 4096, 1).await?;
            assert!(space.flush().await.is_err());
            spaces.caches().destage().await?;
            spaces.caches().destage().await?;
            // The second block of the row, as before.
            lab.write(&space, 4 << 20, 4096, 3).await?;
            let mut content = lab.seams.data.take(4096).await;
            crate::harness::pattern(0, 2, &mut content);
            space.write(5 << 20, &content.freeze(), Durability::Cached).await?;
            space.flush().await?;
            let after: Vec<Vec<u64>> = holders.iter().map(places).collect();
            assert_eq!(after, before, "its place is filled again");
            lab.expect(&space, 0, 4096, 1).await
        })
        .unwrap();
    bench.world.kill();
    bench.run(async move |lab| expect_one(&lab, lab.open().await?).await).unwrap();
}

/// Disks on which a block takes its time, and everything else takes none.
struct SlowBlocks;

impl LatencyModel for SlowBlocks {
    fn latency(&self, request: Request, random: &mut Random) -> Duration {
        if request.kind == CommandKind::Write && request.length == 4096 {
            Duration::from_millis(100)
        } else {
            SimpleLatency::FAST.latency(request, random)
        }
    }
}

/// Stripes are put in place while their slabs move to another disk: whenever the new slab comes, it has in the end what was
/// written.
#[test]
fn a_slab_that_joins_during_destaging_gets_what_is_written() {
    for instant in 0..8 {
        let slow = || DiskProfile { latency: Rc::new(SlowBlocks), ..crate::harness::file(Bytes::mib(96)) };
        let bench = Bench::with_profile(23, 4, slow);
        bench
            .run(async move |lab| {
                let spaces = lab.create().await?;
                let mut spec = SpaceSpec::usual("data".parse()?, Bytes::mib(1), PARITY);
                (spec.row, spec.columns) = (Some(crate::harness::ROW), Some(2));
                let space = spaces.create(spec).await?;
                lab.write(&space, 0, 64 * 1024, 1).await?;
                spaces.flush().await?;
                let destaging = async { spaces.caches().destage().await.map_err(text) };
                let moving = async {
                    pause(&lab, instant * 40).await;
                    // One row on three disks: from each of them to the one that is free by then.
                    let slots: Vec<DiskSlot> = spaces.pool().disks().iter().map(|disk| disk.slot()).collect();
                    for pair in slots.windows(2) {
                        let moved = spaces.moves().move_slabs(pair[1], pair[0], &Progress::default()).await;
                        moved.map_err(text)?;
                    }
                    Ok(())
                };
                extra(vec![Box::pin(destaging), Box::pin(moving)]).await?;
                lab.expect(&space, 0, 64 * 1024, 1).await?;
                let seen = spaces.scrubs().verify(&Progress::default()).await?;
                assert_eq!((seen.is_sound(), spaces.counters().checksum_errors), (true, 0), "at {instant}");
                drop(space);
                lab.check_and_close(spaces).await
            })
            .unwrap();
    }
}

/// Scenario: both disks with copies of a cache row leave with an acknowledged write, and the block is written again meanwhile.
/// That is what the space has: its flush succeeds, before they come back and after.
#[test]
fn a_newer_write_replaces_one_that_left_with_its_copies() {
    let bench = Rc::new(Bench::new(24, 6, Bytes::mib(96)));
    let outside = Rc::clone(&bench);
    bench
        .run(async move |lab| {
            let spaces = lab.create().await?;
            let space = lab.space(&spaces, "data", Bytes::mib(8), PARITY).await?;
            lab.write(&space, 0, 4096, 2).await?;
            let holders = holders(&outside, 0, 2);
            assert_eq!(holders.len(), 2);
            holders.iter().for_each(|disk| outside.disks[*disk].vanish());
            assert!(space.flush().await.is_err());
            lab.write(&space, 0, 4096, 1).await?;
            space.flush().await?;
            lab.expect(&space, 0, 4096, 1).await?;
            holders.iter().for_each(|disk| assert!(outside.disks[*disk].return_to(0)));
            take_in(&outside, &spaces, &holders).await?;
            space.flush().await?;
            Ok(spaces.members().resync(&Progress::default()).await.map(drop)?)
        })
        .unwrap();
    bench.world.kill();
    bench.run(async move |lab| expect_one(&lab, lab.open().await?).await).unwrap();
}

/// Something that is asked of a space, and what comes of it.
type Question = (&'static str, for<'a> fn(&'a Lab, &'a Space) -> Task<'a>);

/// Where two blocks begin that wait for disks, with fill 1. The block at 0 has fill 3 and waits for none.
const WAITING: u64 = 8192;

/// What a client may ask first when the disks are back.
const QUESTIONS: [Question; 5] = [
    ("a read", |lab, space| Box::pin(async { lab.expect(space, WAITING, 8192, 1).await.map_err(text) })),
    ("a status", |_, space| {
        Box::pin(async {
            let found = space.block_status(WAITING, space.size().0 - WAITING, 8).await.map_err(text)?;
            let first = found.first().map(|extent| (extent.length, extent.is_data));
            if first == Some((Bytes(8192), true)) { Ok(()) } else { Err(format!("{found:?}")) }
        })
    }),
    ("the end of what is used", |_, space| {
        Box::pin(async {
            let end = space.used_end(0).await.map_err(text)?;
            if end == Some(WAITING + 8192) { Ok(()) } else { Err(format!("{end:?}")) }
        })
    }),
    ("a discard of it", |lab, space| {
        Box::pin(async {
            space.discard(WAITING, 8192).await.map_err(text)?;
            lab.expect(space, WAITING, 8192, 0).await.map_err(text)?;
            lab.write(space, WAITING, 8192, 1).await.map_err(text)
        })
    }),
    ("a discard beside it", |_, space| Box::pin(async { space.discard(0, 4096).await.map_err(text) })),
];

/// A space with parity of which the first block is flushed, with fill 3.
async fn with_a_block(lab: &Lab, spaces: &Spaces) -> Result<Space, Box<dyn std::error::Error>> {
    let space = lab.space(spaces, "data", Bytes::mib(8), PARITY).await?;
    lab.write(&space, 0, 4096, 3).await?;
    space.flush().await?;
    Ok(space)
}

/// Writes two blocks; the disks with both copies of them leave before a flush. Which these are.
async fn leave_waiting(
    bench: &Bench,
    lab: &Lab,
    (spaces, space): (&Spaces, &Space),
    fill: u8,
) -> Result<Vec<usize>, Box<dyn std::error::Error>> {
    lab.write(space, WAITING, 8192, fill).await?;
    let holders = holders(bench, WAITING / 4096, fill);
    assert_eq!(holders.len(), 2);
    for disk in &holders {
        spaces.pool().exclude(slot(*disk), ExcludeReason::Asked).await?;
    }
    assert!(space.flush().await.is_err());
    Ok(holders)
}

fn slot(disk: usize) -> DiskSlot {
    DiskSlot(u16::try_from(disk).unwrap())
}

/// Asks the first thing of a space, of which these disks come back, in the moment in which they are there, before anybody has
/// decided what waited for the last of them.
async fn ask_as_they_come(
    bench: &Bench,
    lab: Lab,
    (spaces, disks): (Rc<Spaces>, &[usize]),
    (what, question): Question,
) -> Outcome {
    let space = spaces.find("data")?;
    let is_here = |number: &usize| spaces.pool().disk(slot(*number)).is_some_and(|disk| disk.is_present());
    let come = async { take_in(bench, &spaces, disks).await.map_err(text) };
    let ask = async {
        while !disks.iter().all(is_here) {
            pause(&lab, 1).await;
        }
        question(&lab, &space).await.map_err(|error| format!("{what}: {error}"))
    };
    extra(vec![Box::pin(come), Box::pin(ask)]).await?;
    lab.expect(&space, WAITING, 8192, 1).await.map_err(|error| format!("behind {what}: {error}"))?;
    drop(space);
    lab.check_and_close(spaces).await
}

/// What is wrong with the blocks that waited when the pool is opened again, and when they are put in place.
async fn expect_waiting_again(lab: Lab) -> Outcome {
    let spaces = lab.open().await?;
    let space = spaces.find("data")?;
    lab.expect(&space, WAITING, 8192, 1).await?;
    spaces.caches().destage().await?;
    lab.expect(&space, WAITING, 8192, 1).await?;
    assert_eq!((spaces.data_loss_events().len(), spaces.counters().lost_blocks), (0, 0));
    drop(space);
    lab.check_and_close(spaces).await
}

/// Scenario: the disks with both copies of a cache row leave, with blocks that were acknowledged and not flushed, and come back
/// with them. Meanwhile a discard beside them is no matter; whatever is asked of the space in the moment in which they are back
/// decides the blocks, and is answered.
#[test]
fn what_waited_for_disks_is_decided_by_whatever_is_asked_first() {
    let mut wrong = Vec::new();
    for question in QUESTIONS {
        let dial = Dial::default();
        let bench = Rc::new(Bench::with_profile(29, 5, || dial.profile()));
        let outside = Rc::clone(&bench);
        let asked = bench.run(async move |lab| {
            let spaces = lab.create().await?;
            let space = with_a_block(&lab, &spaces).await?;
            lab.write(&space, WAITING, 8192, 2).await?;
            spaces.caches().destage().await?;
            let left = leave_waiting(&outside, &lab, (&spaces, &space), 1).await?;
            space.discard(0, 4096).await.map_err(|error| format!("while they are away: {error}"))?;
            lab.write(&space, 0, 4096, 3).await?;
            drop(space);
            dial.read.set(20);
            // One copy is enough.
            ask_as_they_come(&outside, lab, (spaces, &left[..1]), question).await
        });
        bench.world.kill();
        let verified = asked.and_then(|()| bench.run(expect_waiting_again));
        wrong.extend(verified.err().map(|error| error.to_string()));
    }
    assert_eq!(wrong, Vec::<String>::new());
}

/// Scenario: the disks with both copies of a cache row leave, with blocks that were acknowledged and not flushed; these are
/// written again, and the disks with copies of that leave too. All come back, the later ones without what they had not flushed.
/// Whatever is asked in that moment decides both versions: the newer one is nothing, the older one is what the blocks hold.
#[test]
fn an_older_version_that_waited_for_disks_is_decided_by_whatever_is_asked_first() {
    let mut wrong = Vec::new();
    for question in QUESTIONS {
        let dial = Dial::default();
        let bench = Rc::new(Bench::with_profile(30, 9, || dial.profile()));
        let outside = Rc::clone(&bench);
        let asked = bench.run(async move |lab| {
            let spaces = lab.create().await?;
            let space = with_a_block(&lab, &spaces).await?;
            let older = leave_waiting(&outside, &lab, (&spaces, &space), 1).await?;
            let newer = leave_waiting(&outside, &lab, (&spaces, &space), 2).await?;
            for disk in &newer {
                outside.disks[*disk].vanish();
                assert!(outside.disks[*disk].return_to(0));
            }
            drop(space);
            dial.read.set(20);
            // One copy of each is enough.
            ask_as_they_come(&outside, lab, (spaces, &[newer[0], older[0]]), question).await
        });
        bench.world.kill();
        let verified = asked.and_then(|()| bench.run(expect_waiting_again));
        wrong.extend(verified.err().map(|error| error.to_string()));
    }
    assert_eq!(wrong, Vec::<String>::new());
}

/// Disks that left, and when.
type Detached = Rc<RefCell<Option<(Vec<usize>, Instant)>>>;

/// A block is put in place, and the disks with both copies of the parity that it will have leave before a flush has covered
/// them. Who left, and when.
async fn destage_while_parity_leaves((bench, dial): (Rc<Bench>, Dial), lab: Lab, left: Detached) -> Outcome {
    let spaces = lab.create().await?;
    let space = lab.space(&spaces, "data", Bytes::mib(8), PARITY).await?;
    lab.write(&space, 0, 4096, 1).await?;
    spaces.caches().destage().await?;
    lab.write(&space, 0, 4096, 2).await?;
    space.flush().await?;
    // The stripe has no other block, so its parity is the same as the block.
    let places = || -> Vec<usize> {
        bench.disks.iter().map(|disk| crate::harness::places_of(disk, 0..1, 2).len()).collect()
    };
    let before = places();
    dial.flush.set(50);
    let destaging = async {
        drop(spaces.caches().destage().await);
        Ok(())
    };
    let leaving = async {
        while places() == before {
            pause(&lab, 1).await;
        }
        let now = places();
        let leaving: Vec<usize> = (0..now.len()).filter(|disk| now[*disk] > before[*disk]).collect();
        leaving.iter().for_each(|disk| bench.disks[*disk].vanish());
        dial.flush.set(5);
        dial.write.set(5);
        *left.borrow_mut() = Some((leaving, bench.world.now()));
        Ok(())
    };
    extra(vec![Box::pin(destaging), Box::pin(leaving)]).await?;
    Ok(())
}

/// Scenario: the disks with both copies of parity that is on its way leave before its flush, and the daemon is killed at some
/// time behind that. They come back without it. The stripe is what it was, whichever of its disks is gone then.
#[test]
fn parity_that_left_on_its_way_is_not_missed_at_any_time() {
    let run = |millis: Option<u64>| {
        let dial = Dial::default();
        let bench = Rc::new(Bench::with_profile(24, 5, || dial.profile()));
        let left = Rc::new(RefCell::new(None));
        let body =
            destage_while_parity_leaves((Rc::clone(&bench), dial.clone()), bench.lab(), Rc::clone(&left));
        let stop = StopAt::Time(millis.map_or(Instant(u64::MAX), |millis| Instant(millis * 1_000_000)));
        let ended = match bench.world.run_to(stop, body).unwrap() {
            Ran::Finished(outcome) => outcome.map(|()| true).unwrap(),
            Ran::Stopped => false,
        };
        dial.flush.set(0);
        dial.write.set(0);
        let found = left.borrow().clone();
        (bench, found, ended)
    };
    let (bench, left, _) = run(None);
    let (disks, at) = left.unwrap();
    assert_eq!(disks.len(), 2);
    let end = bench.world.now();
    let times = at.0 / 1_000_000 + 1..end.0 / 1_000_000;
    assert!(times.end - times.start > 20, "{times:?}");
    for millis in times.step_by(4) {
        let (bench, ..) = run(Some(millis));
        bench.world.kill();
        for disk in bench.disks.iter().filter(|disk| disk.is_absent()) {
            disk.come_back();
            assert!(disk.return_to(0));
        }
        for freed in 0..5 {
            let verified = bench.run(async move |lab| {
                let spaces = lab.open().await?;
                spaces.members().resync(&Progress::default()).await?;
                assert_eq!((spaces.data_loss_events().len(), spaces.counters().lost_blocks), (0, 0));
                Ok(spaces.close().await?)
            });
            verified.unwrap_or_else(|error| panic!("killed at {millis} ms: {error}"));
            let verified = bench.run_in(bench.lab_with(|disk| disk != freed), async move |lab| {
                let spaces = lab.open().await?;
                let space = spaces.find("data")?;
                lab.expect(&space, 0, 4096, 2).await?;
                spaces.caches().destage().await?;
                lab.expect(&space, 0, 4096, 2).await?;
                spaces.close().await?;
                Ok(())
            });
            verified.unwrap_or_else(|error| panic!("killed at {millis} ms, {freed} gone: {error}"));
        }
    }
}

/// Bytes that wait in the write caches.
async fn waiting(spaces: &Spaces) -> Result<u64, Box<dyn std::error::Error>> {
    Ok(spaces.caches().write_caches().await?.iter().map(|cache| cache.waiting.0).sum())
}

/// Makes a space with stripes of two data blocks, which block 0 and block 16 of each row share.
async fn stripes_of_two(spaces: &Spaces) -> Result<dolmen_space::Space, Box<dyn std::error::Error>> {
    let mut spec = SpaceSpec::usual("data".parse()?, Bytes::mib(4), PARITY);
    (spec.row, spec.columns, spec.interleave) = (Some(crate::harness::ROW), Some(2), Bytes::kib(64));
    Ok(spaces.create(spec).await?)
}

/// Scenario: two blocks of a stripe have rotted, one more than its parity makes good, and one of them is written. It is put in
/// place: the stripe keeps no room in the write cache. The other one is lost until it is written too, and then the stripe is whole.
#[test]
fn a_stripe_with_a_lost_block_does_not_stay_in_the_cache() {
    let bench = Rc::new(Bench::new(25, 4, Bytes::mib(96)));
    let outside = Rc::clone(&bench);
    bench
        .run(async move |lab| {
            let spaces = lab.create().await?;
            let space = stripes_of_two(&spaces).await?;
            let other = 16 * 4096;
            lab.write(&space, 0, 4096, 1).await?;
            lab.write(&space, other, 4096, 1).await?;
            spaces.caches().destage().await?;
            for disk in &outside.disks {
                for block in [0, 16] {
                    crate::harness::places_of(disk, block..block + 1, 1)
                        .into_iter()
                        .for_each(|at| disk.rot(at, 3));
                }
            }
            lab.write(&space, 0, 4096, 2).await?;
            spaces.caches().destage().await?;
            lab.expect(&space, 0, 4096, 2).await?;
            assert_eq!(waiting(&spaces).await?, 0, "it stays in the cache");
            assert!(space.read(other, 4096).await.is_err());
            lab.write(&space, other, 4096, 3).await?;
            spaces.caches().destage().await?;
            assert_eq!(waiting(&spaces).await?, 0);
            lab.expect(&space, 0, 4096, 2).await?;
            lab.expect(&space, other, 4096, 3).await?;
            drop(space);
            lab.check_and_close(spaces).await
        })
        .unwrap();
}

/// Scenario: of the blocks that are cached in one row of the write cache, the first lie in a row of the space that lacks more
/// columns than it has parity, and others in one that does not. These are put in place. With each pair of disks gone.
#[test]
fn stripes_that_wait_for_disks_keep_no_others_in_the_cache() {
    let mut seen = 0;
    let pairs = (0..8).flat_map(|one| (one + 1..8).map(move |other| [one, other]));
    for pair in pairs {
        let bench = Rc::new(Bench::new(26, 8, Bytes::mib(96)));
        let outside = Rc::clone(&bench);
        let counted = Rc::new(RefCell::new(0));
        let count = Rc::clone(&counted);
        bench
            .run(async move |lab| {
                let spaces = lab.create().await?;
                let space = stripes_of_two(&spaces).await?;
                let rows = [0, crate::harness::ROW.0];
                for row in rows {
                    lab.write(&space, row, 1 << 18, 1).await?;
                }
                spaces.caches().destage().await?;
                // Sixteen stripes of the first, and one of the second.
                lab.write(&space, rows[0], 16 * 4096, 2).await?;
                lab.write(&space, rows[1], 4096, 2).await?;
                space.flush().await?;
                for disk in pair {
                    outside.disks[disk].vanish();
                    let slot = spaces.pool().members().find_disk(outside.disks[disk].name())?.slot();
                    spaces.pool().exclude(slot, ExcludeReason::MissedWrite).await?;
                }
                let is_lost = async |row: u64| space.read(row + (1 << 17), 1 << 17).await.is_err();
                let is_cached = lab.expect(&space, rows[0], 16 * 4096, 2).await.is_ok()
                    && lab.expect(&space, rows[1], 4096, 2).await.is_ok();
                if is_lost(rows[0]).await && !is_lost(rows[1]).await && is_cached {
                    spaces.caches().destage().await?;
                    assert_eq!(waiting(&spaces).await?, 16 * 4096, "without {pair:?}");
                    *count.borrow_mut() += 1;
                }
                Ok(())
            })
            .unwrap();
        seen += *counted.borrow();
    }
    assert!(seen > 0, "no pair of disks is what this is about");
}

/// Scenario: a row of the write cache is full of stripes whose disks are away. More is discarded in other rows than the cache may
/// have said of it, and more is written there than it holds; neither is refused. With the first pair of disks that leaves some
/// rows without too many columns and all that is cached.
#[test]
fn stripes_that_wait_for_disks_block_neither_writes_nor_discards() {
    const ROWS: u64 = 36;
    let pairs = (0..6).flat_map(|one| (one + 1..6).map(move |other| [one, other]));
    for pair in pairs {
        let bench = Rc::new(Bench::new(27, 6, Bytes::mib(96)));
        let outside = Rc::clone(&bench);
        let seen = Rc::new(Cell::new(false));
        let report = Rc::clone(&seen);
        bench
            .run(async move |lab| {
                let spaces = lab.create().await?;
                let mut spec = SpaceSpec::usual("data".parse()?, Bytes::mib(ROWS), PARITY);
                (spec.row, spec.columns, spec.interleave) =
                    (Some(crate::harness::ROW), Some(2), Bytes::kib(64));
                let space = spaces.create(spec).await?;
                for row in 0..ROWS {
                    lab.write(&space, row << 20, 1 << 20, 1).await?;
                }
                for row in 0..ROWS {
                    lab.write(&space, row << 20, 4096, 2).await?;
                }
                space.flush().await?;
                for disk in pair {
                    outside.disks[disk].vanish();
                    let slot = spaces.pool().members().find_disk(outside.disks[disk].name())?.slot();
                    spaces.pool().exclude(slot, ExcludeReason::MissedWrite).await?;
                }
                let mut whole = Vec::new();
                for row in 0..ROWS {
                    if lab.expect(&space, row << 20, 4096, 2).await.is_err() {
                        return Ok(());
                    }
                    if space.read((row << 20) + 4096, (1 << 20) - 4096).await.is_ok() {
                        whole.push(row);
                    }
                }
                if whole.len() as u64 == ROWS {
                    return Ok(());
                }
                spaces.caches().destage().await?;
                assert_eq!(waiting(&spaces).await?, (ROWS - whole.len() as u64) * 4096, "without {pair:?}");
                let (log, _) = spaces.pool().identity().metadata_bytes();
                assert!(whole.len() as u64 * 255 > log.0 / 8 / 68, "the log can say all of it");
                for row in &whole {
                    space.discard((row << 20) + 4096, (1 << 20) - 4096).await?;
                }
                let size = spaces.caches().write_caches().await?[0].size.0;
                let pieces = (size + (2 << 20)) / 61_440;
                for (piece, row) in (0..pieces).zip(whole.iter().cycle()) {
                    lab.write(&space, (row << 20) + piece % 16 * 65_536 + 4096, 61_440, 3).await?;
                }
                report.set(true);
                Ok(())
            })
            .unwrap_or_else(|error| panic!("without {pair:?}: {error}"));
        if seen.get() {
            return;
        }
    }
    panic!("no pair of disks is what this is about");
}

/// Scenario: a space of which a newer block is cached is deleted while somebody reads it, who has to read its tables first. It reads
/// as it was, until it is gone, and never as what it was before.
#[test]
fn a_read_during_a_deletion_shows_nothing_older() {
    let dial = Dial::default();
    let bench = Bench::with_profile(28, 5, || dial.profile());
    for delayed_writes in 0..12 {
        let slowly = dial.clone();
        bench
            .run(async move |lab| {
                let spaces = if delayed_writes == 0 { lab.create().await? } else { lab.open().await? };
                let space = lab.space(&spaces, "data", Bytes::mib(8), PARITY).await?;
                lab.write(&space, 0, 1 << 20, 1).await?;
                space.flush().await?;
                spaces.caches().destage().await?;
                lab.write(&space, 4096, 4096, 2).await?;
                drop(space);
                spaces.close().await?;
                drop(spaces);
                let spaces = lab.open().await?;
                let space = spaces.find("data")?;
                slowly.read.set(4);
                let delete = async {
                    pause(&lab, delayed_writes).await;
                    spaces.changes().delete(&space).await.map_err(text)
                };
                let read = async {
                    let found = match space.read(0, 8192).await {
                        Err(SpaceError::Deleted { .. }) => return Ok(()),
                        found => found.map_err(text)?,
                    };
                    let bytes = found.iter().flat_map(|segment| match segment {
                        Segment::Data(data) => data.to_vec(),
                        Segment::Zeros(length) => vec![0; *length],
                    });
                    let mut newer = vec![0; 8192];
                    crate::harness::pattern(0, 2, &mut newer);
                    let is_newer = bytes.skip(4096).eq(newer.into_iter().skip(4096));
                    if is_newer {
                        Ok(())
                    } else {
                        Err(format!("try {delayed_writes} shows what was written over"))
                    }
                };
                extra(vec![Box::pin(read), Box::pin(delete)]).await?;
                slowly.read.set(0);
                drop(space);
                lab.check_and_close(spaces).await
            })
            .unwrap();
    }
}
