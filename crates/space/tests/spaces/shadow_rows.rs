//! Shadow rows: streams over old content, what lies in the row and in its shadow row, and the change of the two
//! (docs/design/0007).
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::cast_possible_truncation)]

use std::cell::{Cell, RefCell};
use std::error::Error;
use std::rc::Rc;
use std::time::Duration;

use dolmen_block_io::sleep;
use dolmen_block_io::sync::join_all;
use dolmen_sim::Random;
use dolmen_space::{Progress, Resiliency, Space, SpaceCounters, SpaceSpec, Spaces};
use dolmen_units::Bytes;

use crate::harness::{Bench, Lab, Outcome, ROW};

/// Bytes of a request of a stream: two stripes of two columns.
const REQUEST: u64 = 64 << 10;
/// Requests that are under way together.
const DEPTH: usize = 8;
const ROW_BYTES: u64 = 1 << 20;
const BLOCK: u64 = 4096;

async fn make(spaces: &Spaces, (columns, parity): (u8, u8)) -> Result<Space, Box<dyn Error>> {
    let mut spec = SpaceSpec::usual("data".parse()?, Bytes::mib(8), Resiliency::Parity { parity });
    (spec.row, spec.columns, spec.interleave) = (Some(ROW), Some(columns), Bytes::kib(16));
    Ok(spaces.create(spec).await?)
}

/// Requests one after another, some of them under way together.
async fn stream(lab: &Lab, space: &Space, range: std::ops::Range<u64>, fill: u8) -> Outcome {
    let next = Cell::new(range.start);
    let write_on = async |_: usize| {
        while next.get() < range.end {
            let at = next.get();
            let length = REQUEST.min(range.end - at);
            next.set(at + length);
            lab.write(space, at, length as usize, fill).await?;
        }
        Ok::<_, Box<dyn Error>>(())
    };
    join_all((0..DEPTH).map(write_on)).await.into_iter().collect()
}

/// Waits until shadow rows that nobody uses have been promoted.
async fn wait_for_idle(lab: &Lab) {
    sleep(lab.seams.clock.as_ref(), Duration::from_secs(70)).await;
}

fn shadows(spaces: &Spaces) -> (u64, u64, u64) {
    let SpaceCounters { shadows_made, shadows_promoted, shadow_stripes_copied, .. } = spaces.counters();
    (shadows_made, shadows_promoted, shadow_stripes_copied)
}

/// Scenario: four rows are written, flushed and put in place, and a stream goes over all of them. Each has a shadow row that takes
/// its place; nothing is read for it or copied, and it is written once.
#[test]
fn a_stream_over_old_content_is_written_once() {
    for shape in [(2, 1), (4, 1), (3, 2)] {
        let bench = Bench::new(5, 7, Bytes::mib(128));
        bench
            .run(async move |lab| {
                let spaces = lab.create().await?;
                let space = make(&spaces, shape).await?;
                stream(&lab, &space, 0..4 * ROW_BYTES, 1).await?;
                spaces.flush().await?;
                spaces.caches().destage().await?;
                spaces.pool().checkpoint().await?;
                let reads = || lab.devices.iter().map(|device| device.counters().read_bytes).sum::<u64>();
                let before = reads();
                stream(&lab, &space, 0..4 * ROW_BYTES, 2).await?;
                spaces.flush().await?;
                wait_for_idle(&lab).await;
                let (made, taken, copied) = shadows(&spaces);
                assert_eq!((made, taken), (4, 4), "{shape:?}");
                assert_eq!(copied, 0, "{shape:?}");
                assert!(reads() - before < ROW_BYTES, "{shape:?}: {} bytes were read", reads() - before);
                lab.expect(&space, 0, 1 << 20, 2).await?;
                lab.expect(&space, 3 << 20, 1 << 20, 2).await?;
                drop(space);
                lab.check_and_close(spaces).await
            })
            .unwrap_or_else(|error| panic!("{shape:?}: {error}"));
        bench
            .run(async move |lab| {
                let spaces = lab.open().await?;
                let space = spaces.find("data")?;
                for row in 0..4 {
                    lab.expect(&space, row << 20, 1 << 20, 2).await?;
                }
                drop(space);
                lab.check_and_close(spaces).await
            })
            .unwrap_or_else(|error| panic!("{shape:?}: {error}"));
    }
}

/// Scenario: a stream fills the shadow rows of eight short rows. None is promoted by itself; when nobody has used them for a
/// minute, one write-back of tables does for all of them.
#[test]
fn shadow_rows_are_promoted_together() {
    let bench = Bench::new(11, 5, Bytes::mib(128));
    bench
        .run(async move |lab| {
            let spaces = lab.create().await?;
            let space = make(&spaces, (2, 1)).await?;
            stream(&lab, &space, 0..8 * ROW_BYTES, 1).await?;
            spaces.flush().await?;
            stream(&lab, &space, 0..8 * ROW_BYTES, 2).await?;
            spaces.flush().await?;
            assert_eq!(shadows(&spaces), (8, 0, 0), "half of those that there may be are more than these");
            let before = spaces.counters().flushes;
            wait_for_idle(&lab).await;
            assert_eq!(shadows(&spaces), (8, 8, 0));
            let flushes = spaces.counters().flushes - before;
            assert!(flushes <= 2, "{flushes} flushes for eight shadow rows");
            lab.expect(&space, 0, 8 * ROW_BYTES as usize, 2).await?;
            drop(space);
            lab.check_and_close(spaces).await
        })
        .unwrap();
}

/// Scenario: the same stream three times, one behind the other. Shadow rows that are whole make room for others when it comes to
/// their rows again; nothing is copied, and nothing goes through the write cache.
#[test]
fn a_restarted_stream_has_shadow_rows_again() {
    let bench = Bench::new(12, 5, Bytes::mib(128));
    bench
        .run(async move |lab| {
            let spaces = lab.create().await?;
            let space = make(&spaces, (2, 1)).await?;
            for fill in 1..=4 {
                stream(&lab, &space, 0..4 * ROW_BYTES, fill).await?;
                spaces.flush().await?;
            }
            let (made, taken, copied) = shadows(&spaces);
            assert_eq!((made, copied), (12, 0));
            assert!(taken >= 8, "{taken} have been promoted");
            lab.expect(&space, 0, 4 * ROW_BYTES as usize, 4).await?;
            drop(space);
            lab.check_and_close(spaces).await
        })
        .unwrap();
}

/// Scenario: a pool in which little is free, and a stream over many rows. No more than two of them have shadow rows at a time.
#[test]
fn shadow_rows_take_little_of_what_is_free() {
    let bench = Bench::new(13, 3, Bytes::mib(96));
    bench
        .run(async move |lab| {
            let spaces = lab.create().await?;
            let mut spec = SpaceSpec::usual("data".parse()?, Bytes::gib(1), Resiliency::Parity { parity: 1 });
            (spec.row, spec.columns, spec.interleave) = (Some(ROW), Some(2), Bytes::kib(16));
            let space = spaces.create(spec).await?;
            let mut rows = 0;
            while stream(&lab, &space, rows * ROW_BYTES..(rows + 1) * ROW_BYTES, 1).await.is_ok() {
                rows += 1;
            }
            space.discard((rows - 10) * ROW_BYTES, 10 * ROW_BYTES).await?;
            spaces.flush().await?;
            let next = Cell::new(0);
            let write_on = async |_: usize| {
                while next.get() < 6 * ROW_BYTES {
                    let at = next.replace(next.get() + REQUEST);
                    lab.write(&space, at, REQUEST as usize, 2).await?;
                    let (made, taken, _) = shadows(&spaces);
                    assert!(
                        made - taken <= 2,
                        "{made} shadow rows were made, {taken} of them are none any more"
                    );
                }
                Ok::<_, Box<dyn Error>>(())
            };
            join_all((0..4 * DEPTH).map(write_on)).await.into_iter().collect::<Outcome>()?;
            assert!(shadows(&spaces).0 > 2);
            lab.expect(&space, 0, 6 * ROW_BYTES as usize, 2).await?;
            drop(space);
            lab.check_and_close(spaces).await
        })
        .unwrap();
}

/// Scenario: a stream ends in the midst of a row, and the pool is closed and opened again. The shadow row is there, stripes of it
/// and of the row are read, with every disk gone in turn; then what it lacks is copied and it is promoted.
#[test]
fn a_leftover_shadow_row_is_found_again() {
    let bench = Rc::new(Bench::new(7, 5, Bytes::mib(128)));
    bench
        .run(async move |lab| {
            let spaces = lab.create().await?;
            let space = make(&spaces, (2, 1)).await?;
            stream(&lab, &space, 0..2 * ROW_BYTES, 1).await?;
            spaces.flush().await?;
            stream(&lab, &space, 0..ROW_BYTES + 10 * REQUEST, 2).await?;
            lab.write(&space, ROW_BYTES + 4 * BLOCK, 2 * BLOCK as usize, 3).await?;
            lab.write(&space, 2 * ROW_BYTES - 2 * BLOCK, BLOCK as usize, 4).await?;
            assert_eq!(shadows(&spaces).0, 2);
            spaces.flush().await?;
            Ok(spaces.close().await?)
        })
        .unwrap();
    let expect = async |lab: &Lab, space: &Space| {
        lab.expect(space, 0, ROW_BYTES as usize + 4 * BLOCK as usize, 2).await?;
        lab.expect(space, ROW_BYTES + 4 * BLOCK, 2 * BLOCK as usize, 3).await?;
        lab.expect(space, ROW_BYTES + 6 * BLOCK, (10 * REQUEST - 6 * BLOCK) as usize, 2).await?;
        let after = ROW_BYTES + 10 * REQUEST;
        lab.expect(space, after, (2 * ROW_BYTES - 2 * BLOCK - after) as usize, 1).await?;
        lab.expect(space, 2 * ROW_BYTES - 2 * BLOCK, BLOCK as usize, 4).await?;
        lab.expect(space, 2 * ROW_BYTES - BLOCK, BLOCK as usize, 1).await
    };
    for freed in (0..5).map(Some).chain([None]) {
        bench
            .run_in(bench.lab_with(|disk| Some(disk) != freed), async move |lab| {
                let spaces = lab.open_as(dolmen_pool::OpenMode::Read).await?;
                expect(&lab, &spaces.find("data")?).await?;
                assert!(spaces.counters().shadows_found > 0);
                Ok(())
            })
            .unwrap_or_else(|error| panic!("without disk {freed:?}: {error}"));
        bench.world.kill();
    }
    bench
        .run(async move |lab| {
            let spaces = lab.open().await?;
            let space = spaces.find("data")?;
            let found = spaces.counters().shadows_found;
            expect(&lab, &space).await?;
            crate::harness::check(&spaces).await?;
            wait_for_idle(&lab).await;
            let (_, taken, copied) = shadows(&spaces);
            assert_eq!(taken, found);
            assert!(copied > 0);
            expect(&lab, &space).await?;
            drop(space);
            lab.check_and_close(spaces).await
        })
        .unwrap();
}

/// Scenario: a stripe of a shadow row is discarded in whole, put in place, and found again: it reads as zeros, not as what the row
/// had.
#[test]
fn what_is_discarded_of_a_shadow_row_does_not_come_back() {
    let bench = Rc::new(Bench::new(8, 5, Bytes::mib(128)));
    bench
        .run(async move |lab| {
            let spaces = lab.create().await?;
            let space = make(&spaces, (2, 1)).await?;
            stream(&lab, &space, 0..ROW_BYTES, 1).await?;
            spaces.flush().await?;
            stream(&lab, &space, 0..10 * REQUEST, 2).await?;
            spaces.flush().await?;
            assert_eq!(shadows(&spaces).0, 1);
            space.discard(REQUEST, REQUEST).await?;
            spaces.flush().await?;
            spaces.caches().destage().await?;
            lab.expect(&space, REQUEST, REQUEST as usize, 0).await?;
            Ok(spaces.close().await?)
        })
        .unwrap();
    for idle in [false, true] {
        bench
            .run(async move |lab| {
                let spaces = lab.open().await?;
                let space = spaces.find("data")?;
                if idle {
                    wait_for_idle(&lab).await;
                    assert_eq!(shadows(&spaces).1, 1);
                }
                lab.expect(&space, 0, REQUEST as usize, 2).await?;
                lab.expect(&space, REQUEST, REQUEST as usize, 0).await?;
                lab.expect(&space, 2 * REQUEST, 8 * REQUEST as usize, 2).await?;
                lab.expect(&space, 10 * REQUEST, 6 * REQUEST as usize, 1).await?;
                drop(space);
                lab.check_and_close(spaces).await
            })
            .unwrap_or_else(|error| panic!("idle {idle}: {error}"));
    }
}

/// Scenario: a row and its shadow row are discarded as a whole; then a space with shadow rows is deleted. All room is free again.
#[test]
fn rows_and_spaces_free_their_shadow_rows() {
    let bench = Bench::new(9, 5, Bytes::mib(128));
    bench
        .run(async move |lab| {
            let spaces = lab.create().await?;
            let free = || spaces.pool().free_space().room().iter().map(|room| room.free.0).sum::<u64>();
            let space = make(&spaces, (2, 1)).await?;
            let empty = free();
            for _ in 0..2 {
                stream(&lab, &space, 0..ROW_BYTES, 1).await?;
                spaces.flush().await?;
                let with_row = free();
                stream(&lab, &space, 0..10 * REQUEST, 2).await?;
                assert!(free() < with_row, "there is a shadow row");
                space.discard(0, ROW_BYTES).await?;
                assert_eq!(free(), empty);
                lab.expect(&space, 0, ROW_BYTES as usize, 0).await?;
            }
            stream(&lab, &space, 0..ROW_BYTES, 1).await?;
            spaces.flush().await?;
            stream(&lab, &space, 0..10 * REQUEST, 2).await?;
            crate::harness::check(&spaces).await?;
            spaces.changes().delete(&space).await?;
            drop(space);
            let other = make(&spaces, (2, 1)).await?;
            assert_eq!(free(), empty);
            spaces.changes().resize(&other, Bytes::mib(6)).await?;
            drop(other);
            lab.check_and_close(spaces).await
        })
        .unwrap();
}

/// Scenario: a pool that is full but for a shadow row. The shadow row is promoted, whose room goes to whoever needs it.
#[test]
fn a_shadow_row_leaves_the_last_room_to_writes() {
    let bench = Bench::new(10, 3, Bytes::mib(96));
    bench
        .run(async move |lab| {
            let spaces = lab.create().await?;
            let mut spec = SpaceSpec::usual("data".parse()?, Bytes::gib(1), Resiliency::Parity { parity: 1 });
            (spec.row, spec.columns, spec.interleave) = (Some(ROW), Some(2), Bytes::kib(16));
            let space = spaces.create(spec).await?;
            let mut rows = 0;
            let fill = async |from: u64| {
                let mut row = from;
                while stream(&lab, &space, row * ROW_BYTES..(row + 1) * ROW_BYTES, 1).await.is_ok() {
                    row += 1;
                }
                row
            };
            rows += fill(0).await;
            // Room for two rows more: one gets the shadow row.
            space.discard((rows - 2) * ROW_BYTES, 2 * ROW_BYTES).await?;
            spaces.flush().await?;
            stream(&lab, &space, 0..10 * REQUEST, 2).await?;
            let (made, taken, _) = shadows(&spaces);
            assert_eq!((made, taken), (1, 0));
            for row in [rows - 2, rows - 1] {
                stream(&lab, &space, row * ROW_BYTES..(row + 1) * ROW_BYTES, 3).await?;
            }
            assert_eq!(shadows(&spaces).1, 1, "its room was wanted");
            lab.expect(&space, 0, 10 * REQUEST as usize, 2).await?;
            lab.expect(&space, 10 * REQUEST, 6 * REQUEST as usize, 1).await?;
            drop(space);
            lab.check_and_close(spaces).await
        })
        .unwrap();
}

/// What each block of the space holds: a fill.
type Model = Vec<u8>;

/// A change of the space, and of the model.
async fn change(lab: &Lab, spaces: &Rc<Spaces>, random: &mut Random, model: &mut Model) -> Outcome {
    let space = spaces.find("data")?;
    let size = 4 * ROW_BYTES;
    let fill = 1 + random.below(250) as u8;
    let set = |model: &mut Model, range: std::ops::Range<u64>, fill| {
        model[(range.start / BLOCK) as usize..(range.end / BLOCK) as usize].fill(fill);
    };
    match random.below(20) {
        16.. => {
            // Single stripes, some of them again and again.
            let stripe = space.spec().interleave.0 * u64::from(space.spec().columns.unwrap_or(1));
            let near = random.below(size / stripe);
            for nth in 0..1 + random.below(12) {
                let at = (near + random.below(4)) % (size / stripe) * stripe;
                let fill = fill.wrapping_add(nth as u8).max(1);
                // Rows hold no whole number of these where there are three columns.
                let length = stripe.min(ROW_BYTES - at % ROW_BYTES);
                lab.write(&space, at, length as usize, fill).await?;
                set(model, at..at + length, fill);
                if random.below(4) == 0 {
                    spaces.flush().await?;
                }
            }
        }
        0..=6 => {
            let start = random.below(size / REQUEST) * REQUEST + random.below(3) * BLOCK;
            let range = start..size.min(start + (4 + random.below(40)) * REQUEST);
            stream(lab, &space, range.clone(), fill).await?;
            set(model, range, fill);
        }
        7..=9 => {
            for _ in 0..random.below(12) {
                let at = random.below(size / BLOCK) * BLOCK;
                let length = (1 + random.below(6)) * BLOCK;
                let length = length.min(size - at);
                lab.write(&space, at, length as usize, fill).await?;
                set(model, at..at + length, fill);
            }
        }
        10 => {
            let at = random.below(size / BLOCK) * BLOCK;
            let length = (random.below(ROW_BYTES / BLOCK) * BLOCK).min(size - at);
            space.discard(at, length).await?;
            set(model, at..at + length, 0);
        }
        11 => {
            let row = random.below(4) * ROW_BYTES;
            space.discard(row, ROW_BYTES).await?;
            set(model, row..row + ROW_BYTES, 0);
        }
        12 => spaces.flush().await?,
        13 => spaces.caches().destage().await?,
        14 if random.below(2) == 0 => wait_for_idle(lab).await,
        14 => sleep(lab.seams.clock.as_ref(), Duration::from_secs(700)).await,
        _ => drop(spaces.scrubs().verify(&Progress::default()).await?),
    }
    Ok(())
}

async fn compare(lab: &Lab, spaces: &Spaces, model: &Model) -> Outcome {
    let space = spaces.find("data")?;
    let mut at = 0;
    for run in model.chunk_by(|one, other| one == other) {
        let mut left = run.len() as u64 * BLOCK;
        while left > 0 {
            let length = left.min(512 << 10);
            lab.expect(&space, at, length as usize, run[0]).await?;
            (at, left) = (at + length, left - length);
        }
    }
    Ok(())
}

/// Scenario, drawn from seeds: streams, small writes, discards, flushes and pauses over the same rows, the daemon killed in
/// between, a disk gone at times. Each block reads as what was written last, wherever it lies; the shadow rows that it takes are
/// there.
#[test]
fn every_block_is_where_its_stripe_is() {
    let seeds = std::env::var("DOLMEN_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(12);
    let sum = Rc::new(RefCell::new((0, 0, 0, 0, 0, 0)));
    for seed in 0..seeds {
        println!("seed {seed}");
        let bench = Rc::new(Bench::new(seed, 6, Bytes::mib(128)));
        let shape = [(2, 1), (3, 1), (3, 2), (4, 1)][seed as usize % 4];
        let state = Rc::new(RefCell::new((Random::new(seed), vec![0; (4 * ROW_BYTES / BLOCK) as usize])));
        for run in 0..4 {
            let (of_run, seen) = (Rc::clone(&state), Rc::clone(&sum));
            let freed = (run % 2 == 1).then(|| state.borrow_mut().0.index(6));
            let lived = bench.run_in(bench.lab_with(|disk| Some(disk) != freed), async move |lab| {
                let spaces = if run == 0 { lab.create().await? } else { lab.open().await? };
                if run == 0 {
                    make(&spaces, shape).await?;
                }
                if freed.is_none() {
                    spaces.members().resync(&Progress::default()).await?;
                }
                let (mut random, mut model) = of_run.replace((Random::new(0), Vec::new()));
                compare(&lab, &spaces, &model).await?;
                for _ in 0..8 + random.below(16) {
                    change(&lab, &spaces, &mut random, &mut model).await?;
                }
                compare(&lab, &spaces, &model).await?;
                *of_run.borrow_mut() = (random, model);
                let findings = spaces.scrubs().check_map().await?;
                assert!(findings.is_empty(), "{findings:?}");
                let counters = spaces.counters();
                let mut sum = seen.borrow_mut();
                *sum = (
                    sum.0 + counters.shadows_made,
                    sum.1 + counters.shadows_promoted,
                    sum.2 + counters.shadow_stripes_copied,
                    sum.3 + counters.shadows_found,
                    sum.4 + counters.stripes_switched,
                    sum.5 + counters.shadows_dropped,
                );
                lab.hold(spaces);
                Ok(())
            });
            lived.unwrap_or_else(|error| panic!("seed {seed}, life {run}: {error}"));
            bench.world.kill();
        }
    }
    let (made, taken, copied, found, switched, released) = *sum.borrow();
    println!(
        "{made} shadow rows made, {taken} taken over, {released} given back, {copied} stripes copied, {found} found, {switched} flipped"
    );
    assert!(made > 0 && taken > 0 && copied > 0 && found > 0 && switched > 0 && released > 0);
}
