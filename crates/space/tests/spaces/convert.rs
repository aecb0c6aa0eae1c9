//! A space is converted while it is used (docs/design/0020): any layout becomes any other, and no byte differs.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::cast_possible_truncation)]

use std::cell::Cell;
use std::collections::BTreeMap;
use std::error::Error;
use std::rc::Rc;
use std::time::Duration;

use dolmen_block_io::sleep;
use dolmen_block_io::sync::join_all;
use dolmen_sim::Random;
use dolmen_space::{
    Integrity, Layout, Progress, Provisioning, Resiliency, Space, SpaceError, SpaceSpec, Spaces,
};
use dolmen_units::Bytes;

use crate::harness::slow_disks::Slow;
use crate::harness::{Bench, Boxed, Lab, Outcome, ROW, places_of, read};

const BLOCK: u64 = 4096;
const SIZE: Bytes = Bytes::mib(6);
const BLOCKS: u64 = SIZE.0 / BLOCK;
/// What one of many clients has to itself.
const ZONE: u64 = 8 * BLOCK;

const fn layout(resiliency: Resiliency, columns: Option<u8>, kib: u64, integrity: Integrity) -> Layout {
    Layout { resiliency, columns, interleave: Bytes::kib(kib), integrity }
}

const SIMPLE: Layout = layout(Resiliency::Simple, None, 64, Integrity::Relaxed);
const SPAN: Layout = layout(Resiliency::Span, None, 64, Integrity::Relaxed);
const MIRROR: Layout = layout(Resiliency::Mirror { copies: 2 }, None, 64, Integrity::Relaxed);
const STRICT: Layout = layout(Resiliency::Mirror { copies: 2 }, Some(1), 128, Integrity::Strict);
const THREE: Layout = layout(Resiliency::Mirror { copies: 3 }, Some(2), 16, Integrity::Relaxed);
const PARITY: Layout = layout(Resiliency::Parity { parity: 1 }, Some(3), 16, Integrity::Strict);
const DUAL: Layout = layout(Resiliency::Parity { parity: 2 }, Some(4), 64, Integrity::Strict);
const ALL: [Layout; 7] = [SIMPLE, SPAN, MIRROR, STRICT, THREE, PARITY, DUAL];

/// What each block of a space holds, as clients know it.
#[derive(Default, Clone)]
struct Model(Rc<std::cell::RefCell<BTreeMap<u64, u8>>>);

impl Model {
    fn set(&self, block: u64, count: u64, fill: u8) {
        self.0.borrow_mut().extend((block..block + count).map(|block| (block, fill)));
    }

    async fn expect(&self, lab: &Lab, space: &Space) -> Outcome {
        let blocks: Vec<u8> =
            (0..BLOCKS).map(|block| self.0.borrow().get(&block).copied().unwrap_or(0)).collect();
        let mut from = 0;
        for is_same in blocks.chunk_by(PartialEq::eq) {
            for some in is_same.chunks(64) {
                lab.expect(space, from * BLOCK, some.len() * BLOCK as usize, some[0]).await?;
                from += some.len() as u64;
            }
        }
        Ok(())
    }
}

async fn make(spaces: &Spaces, layout: Layout, size: Bytes) -> Result<Space, Box<dyn Error>> {
    make_with(spaces, layout, size, ROW).await
}

async fn make_with(
    spaces: &Spaces,
    layout: Layout,
    size: Bytes,
    row: Bytes,
) -> Result<Space, Box<dyn Error>> {
    let spec = SpaceSpec::usual("data".parse()?, size, layout.resiliency).laid(layout);
    Ok(spaces.create(SpaceSpec { row: Some(row), ..spec }).await?)
}

/// Rows in whole and in part, with what was discarded of them, and one that was never written.
async fn fill(lab: &Lab, space: &Space, model: &Model) -> Outcome {
    for (block, count) in [(0, 256), (256, 100), (500, 3), (520, 40), (768, 1), (1279, 64), (1530, 6)] {
        lab.write(space, block * BLOCK, (count * BLOCK) as usize, 1).await?;
        model.set(block, count, 1);
    }
    for (block, count) in [(20, 30), (300, 10), (522, 1)] {
        space.discard(block * BLOCK, count * BLOCK).await?;
        model.set(block, count, 0);
    }
    space.flush().await?;
    Ok(())
}

/// One client, which writes and discards here and there until it is told to end, and reads what it has written.
async fn client(lab: Lab, space: Space, model: Model, seed: u64, end: Rc<Cell<bool>>) -> Outcome {
    let mut random = Random::new(seed);
    while !end.get() {
        let (block, fill) = (random.below(BLOCKS - 16), random.below(250) as u8 + 2);
        let count = random.below(16) + 1;
        match random.below(10) {
            0 => {
                space.discard(block * BLOCK, count * BLOCK).await?;
                model.set(block, count, 0);
            }
            1 => space.flush().await?,
            2 => {
                // As much as a stripe, and more.
                let block = block / 64 * 64;
                lab.write(&space, block * BLOCK, 64 * BLOCK as usize, fill).await?;
                model.set(block, 64, fill);
            }
            _ => {
                lab.write(&space, block * BLOCK, (count * BLOCK) as usize, fill).await?;
                model.set(block, count, fill);
            }
        }
        let known = model.0.borrow().get(&block).copied().unwrap_or(0);
        lab.expect(&space, block * BLOCK, BLOCK as usize, known).await?;
        sleep(lab.seams.clock.as_ref(), Duration::from_micros(random.below(3000))).await;
    }
    Ok(())
}

/// Converts a space, and says when it is done.
fn convert_to_its_end(
    spaces: &Rc<Spaces>,
    space: &Space,
    to: Layout,
    end: Rc<Cell<bool>>,
) -> impl Future<Output = Outcome> + use<> {
    let (spaces, space) = (Rc::clone(spaces), space.clone());
    async move {
        spaces.conversions().begin_conversion(&space, to).await?;
        let mut is_done = false;
        for _ in 0..4 {
            is_done = spaces.conversions().convert(&space, &Progress::default()).await?;
            if is_done {
                break;
            }
        }
        end.set(true);
        if is_done { Ok(()) } else { Err("it comes to no end".into()) }
    }
}

/// Converts a space under a client.
async fn convert_under_load(
    lab: &Lab,
    (spaces, space): (&Rc<Spaces>, &Space),
    model: &Model,
    (to, seed): (Layout, u64),
) -> Outcome {
    let end = Rc::new(Cell::new(false));
    let convert: Boxed<Outcome> = Box::pin(convert_to_its_end(spaces, space, to, Rc::clone(&end)));
    let client: Boxed<Outcome> = Box::pin(client(lab.clone(), space.clone(), model.clone(), seed, end));
    join_all([convert, client]).await.into_iter().collect()
}

/// Scenario: each layout becomes each other one while a client writes, discards, flushes and reads. What the client knows is there
/// then, also when the pool is opened again; what only the old layout needed is gone.
#[test]
fn any_layout_becomes_any_other_under_a_client() {
    for (number, (from, to)) in ALL.iter().flat_map(|from| ALL.iter().map(move |to| (*from, *to))).enumerate()
    {
        let bench = Bench::new(100 + number as u64, 7, Bytes::mib(160));
        let model = Model::default();
        let known = model.clone();
        bench
            .run(async move |lab| {
                let spaces = lab.create().await?;
                let space = make(&spaces, from, SIZE).await?;
                fill(&lab, &space, &known).await?;
                convert_under_load(&lab, (&spaces, &space), &known, (to, number as u64)).await?;
                assert_eq!((space.spec().layout(), space.layout_before()), (to, None));
                let rows = spaces.counters().converted_rows;
                assert_eq!(rows > 0, from != to, "{rows} rows were moved");
                let caches: Vec<u8> =
                    spaces.caches().write_caches().await?.iter().map(|one| one.redundancy).collect();
                assert_eq!(caches, to.write_cache().into_iter().collect::<Vec<u8>>());
                known.expect(&lab, &space).await?;
                space.flush().await?;
                drop(space);
                lab.check_and_close(spaces).await
            })
            .unwrap_or_else(|error| panic!("{from:?} to {to:?}: {error}"));
        bench
            .run(async move |lab| {
                let spaces = lab.open().await?;
                let space = spaces.find("data")?;
                assert_eq!(space.spec().layout(), to);
                model.expect(&lab, &space).await?;
                lab.write(&space, 7 * BLOCK, 3 * BLOCK as usize, 9).await?;
                lab.expect(&space, 7 * BLOCK, 3 * BLOCK as usize, 9).await?;
                drop(space);
                lab.check_and_close(spaces).await
            })
            .unwrap_or_else(|error| panic!("{from:?} to {to:?}, opened again: {error}"));
    }
}

/// Scenario: two strict mirrors share a write cache. The second becomes one with parity while both are overwritten and the cache is
/// destaged: its rows come to the locks of parity, which are taken before those of copies.
#[test]
fn a_destage_and_a_conversion_take_locks_in_their_order() {
    for seed in 0..6 {
        let bench = Bench::with_profile(900 + seed, 7, || Slow::WRITES.profile());
        let outcome = bench.run(async move |lab| {
            let spaces = lab.create().await?;
            let other = SpaceSpec::usual("aside".parse()?, SIZE, STRICT.resiliency).laid(STRICT);
            let other = spaces.create(SpaceSpec { row: Some(ROW), ..other }).await?;
            let space = make(&spaces, STRICT, SIZE).await?;
            let known = [(&other, Model::default()), (&space, Model::default())];
            for (space, model) in &known {
                fill(&lab, space, model).await?;
            }
            let end = Rc::new(Cell::new(false));
            let convert: Boxed<Outcome> =
                Box::pin(convert_to_its_end(&spaces, &space, PARITY, Rc::clone(&end)));
            let clients = known.map(|(space, model)| -> Boxed<Outcome> {
                Box::pin(client(lab.clone(), space.clone(), model, seed, Rc::clone(&end)))
            });
            let (emptied, ended) = (Rc::clone(&spaces), Rc::clone(&end));
            let destage: Boxed<Outcome> = Box::pin(async move {
                while !ended.get() {
                    emptied.caches().destage().await?;
                }
                Ok(())
            });
            join_all(clients.into_iter().chain([convert, destage])).await.into_iter().collect::<Outcome>()?;
            drop((space, other));
            lab.check_and_close(spaces).await
        });
        outcome.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    }
}

/// Scenario: rows are moved while discards of their blocks are on their way. Whoever comes to a row that was moved meanwhile finds
/// the one that has the blocks by then.
#[test]
fn what_is_discarded_while_its_row_is_moved_stays_discarded() {
    for (number, (from, to)) in [(MIRROR, THREE), (MIRROR, PARITY), (DUAL, MIRROR)].into_iter().enumerate() {
        let outcome = Bench::new(340 + number as u64, 7, Bytes::mib(160)).run(async move |lab| {
            let spaces = lab.create().await?;
            let space = make(&spaces, from, SIZE).await?;
            for row in 0..SIZE.0 / ROW.0 {
                lab.write(&space, row * ROW.0, ROW.0 as usize, 7).await?;
            }
            space.flush().await?;
            let mut random = Random::new(number as u64);
            let discards = (0..SIZE.0 / ZONE).map(|zone| -> Boxed<Outcome> {
                let (lab, space) = (lab.clone(), space.clone());
                let after = Duration::from_micros(random.below(20_000));
                Box::pin(async move {
                    sleep(lab.seams.clock.as_ref(), after).await;
                    space.discard(zone * ZONE, ZONE).await?;
                    lab.expect(&space, zone * ZONE, ZONE as usize, 0).await
                })
            });
            let convert: Boxed<Outcome> = Box::pin(convert_to_its_end(&spaces, &space, to, Rc::default()));
            join_all(discards.chain([convert])).await.into_iter().collect::<Outcome>()?;
            drop(space);
            lab.check_and_close(spaces).await
        });
        outcome.unwrap_or_else(|error| panic!("{from:?} to {to:?}: {error}"));
    }
}

/// Scenario: a conversion is stopped behind its first rows, the pool is closed and opened, it goes on, is turned round in the middle,
/// and goes back to where it began.
#[test]
fn a_conversion_continues_after_an_opening_and_can_be_reversed() {
    for (from, to) in [(MIRROR, PARITY), (DUAL, MIRROR), (PARITY, DUAL)] {
        let bench = Bench::new(7, 7, Bytes::mib(160));
        let model = Model::default();
        let (first, second) = (model.clone(), model.clone());
        bench
            .run(async move |lab| {
                let spaces = lab.create().await?;
                let space = make(&spaces, from, SIZE).await?;
                fill(&lab, &space, &first).await?;
                spaces.conversions().begin_conversion(&space, to).await?;
                let progress = Progress::default();
                progress.stop();
                assert!(!spaces.conversions().convert(&space, &progress).await?);
                assert_eq!(space.layout_before(), Some(from));
                // What is claimed from now on is laid as it is to be.
                lab.write(&space, 1100 * BLOCK, 8 * BLOCK as usize, 5).await?;
                first.set(1100, 8, 5);
                first.expect(&lab, &space).await?;
                drop(space);
                lab.check_and_close(spaces).await
            })
            .unwrap();
        bench
            .run(async move |lab| {
                let spaces = lab.open().await?;
                let space = spaces.find("data")?;
                assert_eq!((space.spec().layout(), space.layout_before()), (to, Some(from)));
                second.expect(&lab, &space).await?;
                let third = if to == THREE { SPAN } else { THREE };
                let refused = spaces.conversions().begin_conversion(&space, third).await;
                assert!(matches!(refused, Err(SpaceError::Converting { .. })), "{refused:?}");
                convert_under_load(&lab, (&spaces, &space), &second, (from, 3)).await?;
                assert_eq!((space.spec().layout(), space.layout_before()), (from, None));
                second.expect(&lab, &space).await?;
                drop(space);
                lab.check_and_close(spaces).await
            })
            .unwrap();
        bench
            .run(async move |lab| {
                let spaces = lab.open().await?;
                let space = spaces.find("data")?;
                model.expect(&lab, &space).await?;
                drop(space);
                lab.check_and_close(spaces).await
            })
            .unwrap();
    }
}

/// Scenario: a block whose only copy has rotted moves with its row. It reads as an error before and behind that, what is beside it is
/// whole, and when it is written it is as any other.
#[test]
fn a_conversion_preserves_losses_and_adds_none() {
    for to in [SPAN, MIRROR, STRICT, PARITY, DUAL] {
        let bench = Bench::new(17, 7, Bytes::mib(160));
        bench
            .run(async move |lab| {
                let spaces = lab.create().await?;
                let space = make(&spaces, SIMPLE, SIZE).await?;
                lab.write(&space, 0, 256 * BLOCK as usize, 1).await?;
                spaces.flush().await?;
                drop(space);
                lab.check_and_close(spaces).await
            })
            .unwrap();
        for disk in &bench.disks {
            places_of(disk, 10..11, 1).into_iter().for_each(|at| disk.rot(at + 5, 3));
        }
        bench
            .run(async move |lab| {
                let spaces = lab.open().await?;
                let space = spaces.find("data")?;
                spaces.conversions().begin_conversion(&space, to).await?;
                assert!(spaces.conversions().convert(&space, &Progress::default()).await?);
                let lost = read(&space, 10 * BLOCK, BLOCK as usize).await;
                assert!(lost.is_err(), "what nobody can read is not to be read behind a conversion");
                lab.expect(&space, 0, 10 * BLOCK as usize, 1).await?;
                lab.expect(&space, 11 * BLOCK, 200 * BLOCK as usize, 1).await?;
                lab.write(&space, 10 * BLOCK, BLOCK as usize, 2).await?;
                lab.expect(&space, 10 * BLOCK, BLOCK as usize, 2).await?;
                spaces.flush().await?;
                spaces.caches().destage().await?;
                drop(space);
                lab.check_and_close(spaces).await
            })
            .unwrap_or_else(|error| panic!("to {to:?}: {error}"));
    }
}

/// Scenario: two disks are added to a pool of three. A space with parity is laid again as it is, and gets as wide as it can; when
/// it is done once more, nothing moves.
#[test]
fn rows_become_as_wide_as_the_pool() {
    let bench = Bench::new(23, 5, Bytes::mib(160));
    bench
        .run_in(bench.lab_with(|number| number < 3), async move |lab| {
            let spaces = lab.create().await?;
            let to = Layout { columns: None, ..PARITY };
            // Short rows are narrow, whatever there is.
            let space = make_with(&spaces, to, Bytes::mib(32), Bytes::mib(8)).await?;
            for row in 0..4 {
                lab.write(&space, row * (8 << 20), 256 * BLOCK as usize, 1).await?;
            }
            assert_eq!(spaces.conversions().forecast_conversion(&space, to).await?.rows, 0);
            drop(space);
            lab.check_and_close(spaces).await
        })
        .unwrap();
    let world_lab = bench.lab();
    bench
        .run_in(bench.lab_with(|number| number < 3), async move |lab| {
            let spaces = lab.open().await?;
            for device in world_lab.devices.iter().skip(3) {
                spaces.members().add(Rc::clone(device), &[]).await?;
            }
            let space = spaces.find("data")?;
            let to = space.spec().layout();
            let before = space.footprint().await?;
            let forecast = spaces.conversions().forecast_conversion(&space, to).await?;
            assert!(forecast.rows > 0 && forecast.claimed < forecast.freed, "{forecast:?}");
            spaces.conversions().begin_conversion(&space, to).await?;
            assert!(spaces.conversions().convert(&space, &Progress::default()).await?);
            for row in 0..4 {
                lab.expect(&space, row * (8 << 20), 256 * BLOCK as usize, 1).await?;
            }
            let after = space.footprint().await?;
            assert!(after.redundancy.0 * 10 < before.redundancy.0 * 7, "{before:?}, {after:?}");
            let forecast = spaces.conversions().forecast_conversion(&space, to).await?;
            assert_eq!((forecast.rows, forecast.stuck), (0, 0), "{forecast:?}");
            spaces.conversions().begin_conversion(&space, to).await?;
            let moved = spaces.counters().converted_rows;
            assert!(spaces.conversions().convert(&space, &Progress::default()).await?);
            assert_eq!(spaces.counters().converted_rows, moved, "what is laid as wanted stays");
            drop(space);
            lab.check_and_close(spaces).await
        })
        .unwrap();
}

/// Scenario: a stream has left shadow rows behind, which hold newer content than the rows. The space is laid again as it
/// is, where nothing has to move; in another run it is on its way to something else, and turned round before a row has moved. What
/// the shadow rows hold stays, also behind an opening, and all room has an owner.
#[test]
fn content_of_shadow_rows_is_kept_where_rows_need_not_move() {
    for is_reversed in [false, true] {
        let bench = Bench::new(43, 7, Bytes::mib(160));
        let request = 64 * BLOCK;
        let newer = ROW.0 / 2 / request * request;
        bench
            .run(async move |lab| {
                let spaces = lab.create().await?;
                let space = make(&spaces, PARITY, SIZE).await?;
                for at in (0..2 * ROW.0).step_by(request as usize) {
                    lab.write(&space, at, request as usize, 1).await?;
                }
                spaces.flush().await?;
                spaces.caches().destage().await?;
                spaces.pool().checkpoint().await?;
                let stream = (0..newer).step_by(request as usize);
                let stream = stream.map(|at| lab.write(&space, at, request as usize, 2));
                join_all(stream).await.into_iter().collect::<Outcome>()?;
                spaces.flush().await?;
                let counters = spaces.counters();
                assert_eq!((counters.shadows_made, counters.shadows_promoted), (1, 0));
                if is_reversed {
                    spaces.conversions().begin_conversion(&space, MIRROR).await?;
                }
                spaces.conversions().begin_conversion(&space, PARITY).await?;
                assert!(spaces.conversions().convert(&space, &Progress::default()).await?);
                lab.expect(&space, 0, newer as usize, 2).await?;
                drop(space);
                lab.check_and_close(spaces).await
            })
            .unwrap_or_else(|error| panic!("turned {is_reversed}: {error}"));
        bench
            .run(async move |lab| {
                let spaces = lab.open().await?;
                let space = spaces.find("data")?;
                lab.expect(&space, 0, newer as usize, 2).await?;
                lab.expect(&space, newer, (2 * ROW.0 - newer) as usize, 1).await?;
                drop(space);
                lab.check_and_close(spaces).await
            })
            .unwrap_or_else(|error| panic!("turned {is_reversed}, opened again: {error}"));
    }
}

/// Scenario: a pool is so full that a mirror has no room to become one of three copies, but has to become parity.
#[test]
fn a_conversion_without_room_is_refused_and_one_that_frees_room_works() {
    let bench = Bench::new(29, 6, Bytes::mib(64));
    bench
        .run(async move |lab| {
            let spaces = lab.create().await?;
            let space = make(&spaces, MIRROR, Bytes::mib(512)).await?;
            let mut rows = 0;
            while lab.write(&space, rows * ROW.0, 2 * BLOCK as usize, 1).await.is_ok() {
                rows += 1;
            }
            assert!(rows > 20, "{rows} rows");
            space.flush().await?;
            let refused = spaces.conversions().begin_conversion(&space, THREE).await;
            assert!(matches!(refused, Err(SpaceError::NoRoomToConvert { .. })), "{refused:?}");
            assert_eq!((space.spec().layout(), space.layout_before()), (MIRROR, None));
            // There is no room for a write cache either, before something goes.
            space.discard(0, 8 * ROW.0).await?;
            spaces.conversions().begin_conversion(&space, Layout { columns: Some(4), ..PARITY }).await?;
            assert!(spaces.conversions().convert(&space, &Progress::default()).await?);
            for row in 8..rows {
                lab.expect(&space, row * ROW.0, 2 * BLOCK as usize, 1).await?;
            }
            drop(space);
            lab.check_and_close(spaces).await
        })
        .unwrap();
}

/// Scenario: a disk goes in the midst of a conversion. Rows are converted as far as they can be without it, all is there, and when it
/// is back and the space is converted to its end, everything has its redundancy.
#[test]
fn a_disk_that_goes_in_the_midst_takes_nothing_along() {
    for (from, to) in [(MIRROR, PARITY), (PARITY, THREE), (PARITY, DUAL)] {
        let bench = Rc::new(Bench::new(31, 7, Bytes::mib(160)));
        let (world, disk) = (Rc::clone(&bench), Rc::clone(&bench.disks[2]));
        bench
            .run(async move |lab| {
                let spaces = lab.create().await?;
                let space = make(&spaces, from, SIZE).await?;
                let model = Model::default();
                fill(&lab, &space, &model).await?;
                spaces.conversions().begin_conversion(&space, to).await?;
                let vanish: Boxed<Outcome> = {
                    let (lab, disk) = (lab.clone(), Rc::clone(&disk));
                    Box::pin(async move {
                        sleep(lab.seams.clock.as_ref(), Duration::from_millis(20)).await;
                        disk.vanish();
                        Ok(())
                    })
                };
                let convert: Boxed<Outcome> = {
                    let (spaces, space) = (Rc::clone(&spaces), space.clone());
                    Box::pin(async move {
                        spaces.conversions().convert(&space, &Progress::default()).await?;
                        Ok(())
                    })
                };
                join_all([convert, vanish]).await.into_iter().collect::<Outcome>()?;
                model.expect(&lab, &space).await?;
                lab.write(&space, 0, 20 * BLOCK as usize, 3).await?;
                model.set(0, 20, 3);
                space.flush().await?;
                disk.come_back();
                spaces.members().rejoin(disk.attach(&world.world)).await?;
                spaces.members().resync(&Progress::default()).await?;
                assert!(spaces.conversions().convert(&space, &Progress::default()).await?);
                assert_eq!(spaces.members().short_rows().await?, 0);
                model.expect(&lab, &space).await?;
                drop(space);
                lab.check_and_close(spaces).await
            })
            .unwrap_or_else(|error| panic!("{from:?} to {to:?}: {error}"));
    }
}

/// Scenario: a thin space becomes fixed, which claims what it lacks, and thin again, which gives back what it has not written; one
/// that does not fit stays thin.
#[test]
fn thin_becomes_fixed_and_thin_again() {
    let bench = Bench::new(37, 4, Bytes::mib(128));
    bench
        .run(async move |lab| {
            let spaces = lab.create().await?;
            let size = Bytes::mib(9);
            let space = make(&spaces, MIRROR, size).await?;
            let model = Model::default();
            fill(&lab, &space, &model).await?;
            let claimed = space.claimed();
            assert_eq!(claimed, SIZE);
            assert!(spaces.changes().provision(&space, Provisioning::Fixed, &Progress::default()).await?);
            assert_eq!((space.is_thin(), space.claimed()), (false, size));
            model.expect(&lab, &space).await?;
            assert!(spaces.changes().provision(&space, Provisioning::Thin, &Progress::default()).await?);
            assert_eq!((space.is_thin(), space.claimed()), (true, claimed));
            model.expect(&lab, &space).await?;
            spaces.changes().resize(&space, Bytes::gib(4)).await?;
            let refused = spaces.changes().provision(&space, Provisioning::Fixed, &Progress::default()).await;
            assert!(matches!(refused, Err(SpaceError::TooLarge { .. })), "{refused:?}");
            assert!(space.is_thin());
            drop(space);
            lab.check_and_close(spaces).await
        })
        .unwrap();
}

/// Scenario: a space is deleted in the midst of its conversion. Nothing of it is left, nor of its conversion shadows and its write
/// caches.
#[test]
fn a_space_that_is_deleted_in_the_midst_leaves_nothing() {
    let bench = Bench::new(41, 7, Bytes::mib(160));
    bench
        .run(async move |lab| {
            let spaces = lab.create().await?;
            let free = |spaces: &Spaces| {
                spaces.pool().free_space().room().iter().map(|room| room.free.0).sum::<u64>()
            };
            let before = free(&spaces);
            let space = make(&spaces, DUAL, SIZE).await?;
            let model = Model::default();
            fill(&lab, &space, &model).await?;
            spaces.conversions().begin_conversion(&space, PARITY).await?;
            let convert: Boxed<Outcome> = {
                let (spaces, space) = (Rc::clone(&spaces), space.clone());
                Box::pin(async move {
                    let converted = spaces.conversions().convert(&space, &Progress::default()).await;
                    assert!(
                        matches!(converted, Ok(false) | Err(SpaceError::Deleted { .. })),
                        "{converted:?}"
                    );
                    Ok(())
                })
            };
            let delete: Boxed<Outcome> = {
                let (lab, spaces, space) = (lab.clone(), Rc::clone(&spaces), space.clone());
                Box::pin(async move {
                    sleep(lab.seams.clock.as_ref(), Duration::from_millis(10)).await;
                    Ok(spaces.changes().delete(&space).await?)
                })
            };
            join_all([convert, delete]).await.into_iter().collect::<Outcome>()?;
            assert_eq!(free(&spaces), before);
            assert!(spaces.caches().write_caches().await?.is_empty());
            drop(space);
            lab.check_and_close(spaces).await
        })
        .unwrap();
}

/// Scenario: a pool of four disks keeps room for the loss of one, and gets a fifth; the rows of a space with parity are laid again,
/// as wide as they can be. Whichever disk is lost then, the others have a place for all that it had.
#[test]
fn relaid_rows_can_be_repaired_where_room_is_kept() {
    let bench = Bench::new(29, 5, Bytes::mib(160));
    let fifth = bench.disks[4].attach(&bench.world);
    bench
        .run_in(bench.lab_with(|number| number < 4), async move |lab| {
            let spaces = lab.create().await?;
            spaces.pool().settings().set_keep_room_for(1).await?;
            let to = Layout { columns: None, ..PARITY };
            let space = make_with(&spaces, to, Bytes::mib(32), Bytes::mib(8)).await?;
            for row in 0..4 {
                lab.write(&space, row * (8 << 20), 256 * BLOCK as usize, 1).await?;
            }
            spaces.members().add(fifth, &[]).await?;
            spaces.conversions().begin_conversion(&space, to).await?;
            assert!(spaces.conversions().convert(&space, &Progress::default()).await?);
            assert!(spaces.counters().converted_rows > 0, "they are wider");
            for disk in spaces.pool().disks() {
                let forecast = spaces.moves().forecast_removal(disk.slot()).await?;
                assert!(forecast.stuck.is_empty(), "{} is lost: {forecast:?}", disk.name());
            }
            drop(space);
            lab.check_and_close(spaces).await
        })
        .unwrap();
}

/// Rows that are laid again lie on all disks, and not on those that seek for nothing alone: these are for what is written first.
#[test]
fn rows_that_are_converted_lie_on_slow_disks_too() {
    let made = Cell::new(0);
    let bench = Bench::with_profile(31, 6, || {
        let mut profile = crate::harness::file(Bytes::mib(160));
        profile.geometry.rotational = made.replace(made.get() + 1) >= 3;
        profile
    });
    bench
        .run(async move |lab| {
            let spaces = lab.create().await?;
            let mirror = Layout { resiliency: Resiliency::Mirror { copies: 2 }, columns: None, ..PARITY };
            let space = make_with(&spaces, mirror, Bytes::mib(32), Bytes::mib(8)).await?;
            for row in 0..4 {
                lab.write(&space, row * (8 << 20), 256 * BLOCK as usize, 1).await?;
            }
            spaces.conversions().begin_conversion(&space, Layout { columns: None, ..PARITY }).await?;
            assert!(spaces.conversions().convert(&space, &Progress::default()).await?);
            let pool = spaces.pool();
            for name in ["disk3", "disk4", "disk5"] {
                let disk = pool.members().find_disk(name)?;
                assert!(pool.free_space().holds_rows(&disk), "nothing is on {name}");
            }
            drop(space);
            lab.check_and_close(spaces).await
        })
        .unwrap();
}
