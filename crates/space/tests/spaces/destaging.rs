//! Stripes on their way from the write cache to their places: what cannot be read any more, and what fails half-way.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;

use dolmen_block_io::Instant;
use dolmen_disk::Extent;
use dolmen_sim::{DiskProfile, Ran, StopAt};
use dolmen_space::{DataLossKind, Progress, Resiliency, SpaceSpec, Spaces};
use dolmen_units::Bytes;

use crate::harness::slow_disks::{Dial, extra, pause};
use crate::harness::{Bench, Lab, Outcome};

/// Disks, and where on each of them something is.
type Copies = Vec<(usize, u64)>;

const PARITY: Resiliency = Resiliency::Parity { parity: 1 };
/// What a slab's header begins with.
const SLAB_MAGIC: [u8; 8] = *b"DOLMENSL";
/// The second block of the first stripe: an interleave behind the first.
const NEIGHBOUR: u64 = 64 * 1024;

/// Where disks have a block of the space as it was written once: where it is cached, and in place. Only where rows lie that were
/// claimed first.
fn places(bench: &Bench, block: u64, fill: u8) -> Copies {
    let mut content = [0; 16];
    crate::harness::pattern(block * 4096, fill, &mut content);
    let on = |disk: usize| {
        let capacity = bench.disks[disk].profile().geometry.capacity;
        let extent = Extent::of(capacity).unwrap();
        let within = extent.data_start..capacity.0.min(extent.data_start + (1 << 30));
        let mut found = [0; 16];
        let is_there = move |at: &u64| bench.disks[disk].show(*at, &mut found) && found == content;
        within.step_by(4096).filter(is_there).map(move |at| (disk, at))
    };
    (0..bench.disks.len()).flat_map(on).collect()
}

/// Bytes that wait in write caches.
async fn waiting(spaces: &Spaces) -> Result<u64, Box<dyn std::error::Error>> {
    Ok(spaces.caches().write_caches().await?.iter().map(|cache| cache.waiting.0).sum())
}

/// What was lost of the space, by first byte.
fn lost_of(spaces: &Spaces, name: &str) -> Vec<u64> {
    let id = spaces.find(name).unwrap().id();
    let data_loss_events = spaces.data_loss_events().into_iter().filter(|one| one.space == id);
    let lost = data_loss_events.filter(|one| one.kind == DataLossKind::Lost);
    lost.flat_map(|one| (one.at..one.at + one.length.0).step_by(4096)).collect()
}

/// The first stripe is in place, and its first block is written again and flushed: cached.
async fn write_stripe(lab: Lab) -> Outcome {
    let spaces = lab.create().await?;
    let space = lab.space(&spaces, "data", Bytes::mib(8), PARITY).await?;
    lab.write(&space, 0, 4096, 1).await?;
    lab.write(&space, NEIGHBOUR, 4096, 1).await?;
    spaces.caches().destage().await?;
    lab.write(&space, 0, 4096, 2).await?;
    space.flush().await?;
    drop(space);
    spaces.close().await?;
    Ok(())
}

/// Scenario: the sectors of both copies of a cached block go bad. It is lost, which the space records, and waits no more; the
/// rest of its stripe is there, and the block is whole again with the next write.
#[test]
fn a_cached_block_with_unreadable_copies_is_lost_and_does_not_wait() {
    let bench = Bench::new(31, 4, Bytes::mib(96));
    bench.run(write_stripe).unwrap();
    let cached = places(&bench, 0, 2);
    assert_eq!(cached.len(), 2);
    cached.iter().for_each(|(disk, at)| bench.disks[*disk].make_unreadable(*at));
    bench
        .run(async move |lab| {
            let spaces = lab.open().await?;
            let space = spaces.find("data")?;
            spaces.caches().destage().await?;
            assert_eq!((waiting(&spaces).await?, lost_of(&spaces, "data")), (0, vec![0]));
            let refused = space.read(0, 4096).await.unwrap_err().to_string();
            assert!(refused.contains("its data was lost"), "{refused}");
            lab.expect(&space, NEIGHBOUR, 4096, 1).await?;
            lab.write(&space, 0, 4096, 3).await?;
            spaces.caches().destage().await?;
            lab.expect(&space, 0, 4096, 3).await?;
            drop(space);
            lab.check_and_close(spaces).await
        })
        .unwrap();
}

/// Scenario: disks cannot read a cached block, nor another block of its slab. That may be an error that passes:
/// the stripe waits, and nothing is called lost.
#[test]
fn a_cached_block_that_is_not_all_that_cannot_be_read_waits() {
    let bench = Bench::new(31, 4, Bytes::mib(96));
    bench.run(write_stripe).unwrap();
    for (disk, at) in places(&bench, 0, 2) {
        let disk = &bench.disks[disk];
        let is_header = |at: &u64| {
            let mut magic = [0; 8];
            disk.show(*at, &mut magic) && magic == SLAB_MAGIC
        };
        let header = (at..at + (2 << 20)).step_by(4096).find(is_header).unwrap();
        [at, header].iter().for_each(|at| disk.make_unreadable(*at));
    }
    bench
        .run(async move |lab| {
            let spaces = lab.open().await?;
            let _ = spaces.caches().destage().await;
            assert_eq!((waiting(&spaces).await?, lost_of(&spaces, "data")), (4096, vec![]));
            spaces.close().await?;
            Ok(())
        })
        .unwrap();
}

/// The first stripe is put in place slowly; when that began, and where its first block was cached.
async fn destage_slowly(
    (bench, dial): (Rc<Bench>, Dial),
    lab: Lab,
    began: Rc<RefCell<Option<(Instant, Copies)>>>,
) -> Outcome {
    let spaces = lab.open().await?;
    *began.borrow_mut() = Some((bench.world.now(), places(&bench, 0, 2)));
    dial.write.set(5);
    dial.flush.set(5);
    spaces.caches().destage().await?;
    Ok(())
}

/// The first block is what was written last or known to be lost, nothing waits, and the stripe can be written; whether the block
/// is there.
async fn verify(lab: Lab) -> Result<bool, Box<dyn std::error::Error>> {
    let spaces = lab.open().await?;
    let space = spaces.find("data")?;
    spaces.caches().destage().await?;
    assert_eq!(waiting(&spaces).await?, 0, "bytes wait");
    let is_there = lab.expect(&space, 0, 4096, 2).await.is_ok();
    assert_eq!(lost_of(&spaces, "data").is_empty(), is_there, "what is lost is told, and nothing else");
    lab.expect(&space, NEIGHBOUR, 4096, 1).await?;
    spaces.members().resync(&Progress::default()).await?;
    assert!(spaces.members().stale_rows().await?.is_empty());
    lab.write(&space, 0, 4096, 3).await?;
    spaces.caches().destage().await?;
    lab.expect(&space, 0, 4096, 3).await?;
    drop(space);
    lab.check_and_close(spaces).await?;
    Ok(is_there)
}

/// Scenario: the daemon is killed at some time while a stripe is put in place, and the sectors of both cached copies of its first
/// block go bad. Where the block got in place it is what was written; else it is lost, which is told. The stripe waits in no case.
#[test]
fn a_half_destaged_stripe_is_finished_with_what_is_left_of_it() {
    let run = |millis: Option<u64>| {
        let dial = Dial::default();
        let bench = Rc::new(Bench::with_profile(32, 4, || dial.profile()));
        bench.run(write_stripe).unwrap();
        let began = Rc::new(RefCell::new(None));
        let body = destage_slowly((Rc::clone(&bench), dial.clone()), bench.lab(), Rc::clone(&began));
        let stop = StopAt::Time(millis.map_or(Instant(u64::MAX), |millis| Instant(millis * 1_000_000)));
        if let Ran::Finished(outcome) = bench.world.run_to(stop, body).unwrap() {
            outcome.unwrap();
        }
        dial.flush.set(0);
        dial.write.set(0);
        let found = began.borrow().clone();
        (bench, found)
    };
    let (bench, began) = run(None);
    let (from, cached) = began.unwrap();
    assert_eq!(cached.len(), 2);
    let times = from.0 / 1_000_000 + 1..bench.world.now().0 / 1_000_000;
    assert!(times.end - times.start > 20, "{times:?}");
    let (mut whole, mut lost) = (0, 0);
    for millis in times {
        let (bench, _) = run(Some(millis));
        bench.world.kill();
        cached.iter().for_each(|(disk, at)| bench.disks[*disk].make_unreadable(*at));
        let verified = bench.world.run(verify(bench.lab()));
        match verified.unwrap().unwrap_or_else(|error| panic!("killed at {millis} ms: {error}")) {
            true => whole += 1,
            false => lost += 1,
        }
    }
    assert!(whole > 0 && lost > 0, "{whole} whole, {lost} lost");
}

/// Blocks of a table page.
const PAGE_BLOCKS: u64 = 504;
/// More table pages than stay in memory when they are not in use.
const PAGES: u64 = 16 * 1024 + 512;

/// Brings more tables into memory than may stay there, of rows whose tables are nowhere else and so have to.
async fn fill_memory(lab: &Lab, spaces: &Spaces) -> Outcome {
    let (row, of_row) = (Bytes::gib(1), Bytes::gib(1).0 / 4096 / PAGE_BLOCKS);
    let rows = PAGES.div_ceil(of_row);
    let mut spec = SpaceSpec::usual("many".parse()?, Bytes(rows * row.0), Resiliency::Simple);
    (spec.row, spec.columns) = (Some(row), Some(1));
    let space = spaces.create(spec).await?;
    for index in 0..rows {
        lab.write(&space, index * row.0, 4096, 1).await?;
        for page in 0..of_row {
            space.read(index * row.0 + page * PAGE_BLOCKS * 4096, 4096).await?;
        }
    }
    Ok(())
}

/// Scenario: a stripe is in place, and the tables that should say so have left memory. The disks that have them leave in that
/// moment. When they are back, the disk of another block of the stripe is lost: that block can be made of the others.
#[test]
fn a_destaged_stripe_is_finished_although_its_record_is_missing() {
    let dial = Dial::default();
    let slow = || DiskProfile { latency: dial.profile().latency, ..crate::harness::file(Bytes::gib(20)) };
    let bench = Rc::new(Bench::with_profile(33, 3, slow));
    let (outside, slowly) = (Rc::clone(&bench), dial.clone());
    bench
        .run(async move |lab| {
            let spaces = lab.create().await?;
            let space = lab.space(&spaces, "data", Bytes::mib(8), PARITY).await?;
            lab.write(&space, NEIGHBOUR, 4096, 1).await?;
            let cached = places(&outside, 16, 1);
            lab.write(&space, 0, 4096, 1).await?;
            spaces.caches().destage().await?;
            let neighbour = places(&outside, 16, 1).into_iter().find(|place| !cached.contains(place));
            let (neighbour, _) = neighbour.unwrap();
            spaces.pool().checkpoint().await?;
            fill_memory(&lab, &spaces).await?;
            lab.write(&space, 0, 4096, 2).await?;
            space.flush().await?;
            let before = places(&outside, 0, 2);
            slowly.flush.set(10_000);
            let others: Vec<usize> = (0..3).filter(|disk| *disk != neighbour).collect();
            let destaging = async {
                let refused = spaces.caches().destage().await.unwrap_err().to_string();
                assert!(refused.contains("the disks that hold it are absent"), "{refused}");
                Ok(())
            };
            let leaving = async {
                while places(&outside, 0, 2).len() == before.len() {
                    pause(&lab, 1000).await;
                }
                slowly.read.set(5000);
                pause(&lab, 11_000).await;
                others.iter().for_each(|disk| outside.disks[*disk].vanish());
                slowly.read.set(0);
                slowly.flush.set(0);
                Ok(())
            };
            extra(vec![Box::pin(destaging), Box::pin(leaving)]).await?;
            spaces.flush().await?;
            for disk in others {
                outside.disks[disk].come_back();
                spaces.members().rejoin(outside.disks[disk].attach(&outside.world)).await?;
            }
            spaces.flush().await?;
            outside.disks[neighbour].vanish();
            let _ = spaces.caches().destage().await;
            lab.expect(&space, 0, 4096, 2).await?;
            lab.expect(&space, NEIGHBOUR, 4096, 1).await?;
            assert_eq!(waiting(&spaces).await?, 0);
            Ok(())
        })
        .unwrap();
}

/// Scenario: disks leave while the flush behind the writes in place is under way, and lose what they have not flushed. Few enough
/// of them miss the stripe, which is done; or it is finished when they are back. It is what was written, whichever disk is gone
/// then.
#[test]
fn a_disk_that_leaves_in_the_flush_after_a_stripe_lacks_the_stripe() {
    let mut were_left = [0, 0];
    for leaving in [[0, 0], [1, 1], [2, 2], [3, 3], [0, 1], [0, 2], [0, 3], [1, 2], [1, 3], [2, 3]] {
        let dial = Dial::default();
        let bench = Rc::new(Bench::with_profile(34, 4, || dial.profile()));
        let (outside, slowly) = (Rc::clone(&bench), dial.clone());
        let was_deferred = Rc::new(Cell::new(0));
        let report = Rc::clone(&was_deferred);
        let body = async move |lab: Lab| {
            let spaces = lab.create().await?;
            let mut spec = SpaceSpec::usual("data".parse()?, Bytes::mib(1), PARITY);
            (spec.row, spec.columns) = (Some(crate::harness::ROW), Some(2));
            let space = spaces.create(spec).await?;
            lab.write(&space, 0, 4096, 1).await?;
            lab.write(&space, NEIGHBOUR, 4096, 1).await?;
            spaces.caches().destage().await?;
            lab.write(&space, 0, 4096, 2).await?;
            space.flush().await?;
            let before = places(&outside, 0, 2).len();
            slowly.flush.set(50);
            let destaging = async {
                drop(spaces.caches().destage().await);
                Ok(())
            };
            let vanishing = async {
                while places(&outside, 0, 2).len() == before {
                    pause(&lab, 1).await;
                }
                pause(&lab, 25).await;
                leaving.iter().for_each(|disk| outside.disks[*disk].vanish());
                Ok(())
            };
            extra(vec![Box::pin(destaging), Box::pin(vanishing)]).await?;
            slowly.flush.set(0);
            report.set(waiting(&spaces).await?);
            for disk in BTreeSet::from(leaving) {
                assert!(outside.disks[disk].return_to(0));
                outside.disks[disk].come_back();
                spaces.members().rejoin(outside.disks[disk].attach(&outside.world)).await?;
            }
            spaces.caches().destage().await?;
            spaces.members().resync(&Progress::default()).await?;
            assert_eq!((waiting(&spaces).await?, spaces.members().stale_rows().await?.len()), (0, 0));
            lab.expect(&space, 0, 4096, 2).await?;
            crate::harness::check(&spaces).await?;
            assert_eq!(
                spaces.counters().checksum_errors,
                0,
                "what disks have missed is known, and not found"
            );
            drop(space);
            spaces.close().await?;
            Ok(())
        };
        bench.run(body).unwrap_or_else(|error| panic!("{leaving:?} leave: {error}"));
        were_left[usize::from(was_deferred.get() > 0)] += 1;
        for freed in 0..4 {
            let verified = bench.run_in(bench.lab_with(|disk| disk != freed), async move |lab| {
                let spaces = lab.open().await?;
                let space = spaces.find("data")?;
                lab.expect(&space, 0, 4096, 2).await?;
                lab.expect(&space, NEIGHBOUR, 4096, 1).await?;
                drop(space);
                lab.check_and_close(spaces).await
            });
            verified.unwrap_or_else(|error| panic!("{leaving:?} left, {freed} is gone: {error}"));
        }
    }
    assert!(were_left.iter().all(|count| *count > 0), "{were_left:?}");
}
