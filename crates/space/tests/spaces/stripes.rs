//! Whole stripes that go in place at once, while disks leave before a flush has covered them.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use std::cell::{Cell, RefCell};
use std::error::Error;
use std::rc::Rc;

use dolmen_block_io::Durability;
use dolmen_block_io::sync::join_all;
use dolmen_pool::{ExcludeReason, OpenMode};
use dolmen_sim::{Cut, Fate, FaultKind, Recorder, SimDisk, StateOptions};
use dolmen_space::{Progress, Resiliency, Space, SpaceError, SpaceSpec, Spaces};
use dolmen_units::{Bytes, DiskSlot};

use crate::harness::slow_disks::{Dial, extra, opened, pause, text};
use crate::harness::{Bench, Lab, NotedHost, Outcome, ROW};

/// Bytes of an interleave, and of a stripe of two.
const INTERLEAVE: u64 = 16 << 10;
const STRIPE: usize = 32 << 10;
/// Bytes of a stripe of three.
const WIDE: usize = 48 << 10;

async fn make(lab: &Lab, spaces: &Spaces) -> Result<Space, Box<dyn Error>> {
    let mut spec = SpaceSpec::usual("data".parse()?, Bytes::mib(8), Resiliency::Parity { parity: 1 });
    (spec.row, spec.columns, spec.interleave) = (Some(ROW), Some(2), Bytes(INTERLEAVE));
    let space = spaces.create(spec).await?;
    // The row is there, and another stripe of it is flushed.
    lab.write(&space, 8 * STRIPE as u64, STRIPE, 9).await?;
    spaces.flush().await?;
    Ok(space)
}

/// Disks that hold blocks of the first stripe with this fill, each of one column.
fn holders(bench: &Bench, fill: u8) -> Vec<usize> {
    let has_it = |disk: &usize| !crate::harness::places_of(&bench.disks[*disk], 0..8, fill).is_empty();
    (0..bench.disks.len()).filter(has_it).collect()
}

async fn take_in(bench: &Bench, spaces: &Spaces, disks: &[usize]) -> Outcome {
    for disk in disks {
        bench.disks[*disk].come_back();
        spaces.members().rejoin(bench.disks[*disk].attach(&bench.world)).await?;
    }
    spaces.members().resync(&Progress::default()).await?;
    Ok(())
}

/// Writes a block of the first stripe, which parity is carried over for.
async fn update_parity(lab: &Lab, spaces: &Spaces) -> Outcome {
    let space = spaces.find("data")?;
    lab.write(&space, 0, 4096, 5).await?;
    space.flush().await?;
    Ok(spaces.caches().destage().await?)
}

/// The first stripe has this fill, zeros for 0, and every disk may be gone in turn; then also when a block of it was written.
fn expect(bench: &Bench, fill: u8) {
    expect_both(bench, (fill, fill));
    let relogged = bench.run(async |lab| {
        let spaces = lab.open().await?;
        update_parity(&lab, &spaces).await?;
        Ok(spaces.close().await?)
    });
    relogged.unwrap();
    expect_both(bench, (5, fill));
}

/// The first block has the first of these fills, and the rest of the first stripe the second.
fn expect_both(bench: &Bench, (first, rest): (u8, u8)) {
    for absent in (0..bench.disks.len()).map(Some).chain([None]) {
        let mode = if absent.is_some() { OpenMode::Read } else { OpenMode::Write };
        let verified = bench.run_in(bench.lab_with(|disk| Some(disk) != absent), async move |lab| {
            let spaces = lab.open_as(mode).await?;
            let space = spaces.find("data")?;
            lab.expect(&space, 0, 4096, first).await?;
            lab.expect(&space, 4096, STRIPE - 4096, rest).await?;
            lab.expect(&space, 8 * STRIPE as u64, STRIPE, 9).await?;
            assert_eq!((spaces.data_loss_events().len(), spaces.counters().lost_blocks), (0, 0));
            drop(space);
            match mode {
                OpenMode::Write => lab.check_and_close(spaces).await,
                OpenMode::Read | OpenMode::Confirmed => Ok(()),
            }
        });
        verified.unwrap_or_else(|error| panic!("without disk {absent:?}: {error}"));
        bench.world.kill();
    }
}

/// Scenario: a stripe is written, and power fails behind the flush that follows. It lay on one disk for each column, nowhere
/// else.
#[test]
fn a_stripe_that_was_never_written_goes_in_place() {
    let bench = Rc::new(Bench::new(31, 5, Bytes::mib(96)));
    let outside = Rc::clone(&bench);
    bench
        .run(async move |lab| {
            let spaces = lab.create().await?;
            let space = make(&lab, &spaces).await?;
            lab.write(&space, 0, STRIPE, 1).await?;
            assert_eq!(holders(&outside, 1).len(), 2);
            space.flush().await?;
            lab.hold((spaces, space));
            Ok(())
        })
        .unwrap();
    bench.world.power_cut();
    expect(&bench, 1);
}

/// Scenario: parts of two stripes are under way together, some of which belong to both. Each stripe is whole when the last of
/// its parts comes, and goes in place. Two writes of the same part are no stripe, and a part without the rest of its stripe
/// does not wait for ever: these are cached, and one of two that are written at once stands.
#[test]
fn parts_that_are_under_way_together_form_stripes() {
    let bench = Rc::new(Bench::new(60, 5, Bytes::mib(96)));
    let outside = Rc::clone(&bench);
    bench
        .run(async move |lab| {
            let spaces = lab.create().await?;
            let space = make(&lab, &spaces).await?;
            let parts = [(0, 12288), (12288, 40960), (53248, 8192), (61440, 4096)];
            let written = join_all(parts.map(|(at, length)| lab.write(&space, at, length, 1))).await;
            written.into_iter().collect::<Outcome>()?;
            assert_eq!(holders(&outside, 1).len(), 2, "of the first stripe nothing was cached");
            let again = [(2 * STRIPE as u64, 3), (2 * STRIPE as u64, 4), (5 * STRIPE as u64, 6)];
            let written = join_all(again.map(|(at, fill)| lab.write(&space, at, STRIPE / 2, fill))).await;
            written.into_iter().collect::<Outcome>()?;
            lab.expect(&space, 0, 2 * STRIPE, 1).await?;
            lab.expect(&space, 5 * STRIPE as u64, STRIPE / 2, 6).await?;
            let one_of_two =
                async |fill| lab.expect(&space, 2 * STRIPE as u64, STRIPE / 2, fill).await.is_ok();
            assert!(one_of_two(3).await || one_of_two(4).await);
            space.flush().await?;
            lab.hold((spaces, space));
            Ok(())
        })
        .unwrap();
    bench.world.power_cut();
    expect(&bench, 1);
}

/// Scenario: the last stripe of a row lacks columns, for the row has no interleave left for them. It comes whole, or in two parts
/// under way together, and goes in place; power fails at any moment of
/// that or behind it. Each stripe of it is there or not, without two disks as with all.
#[test]
fn the_short_stripe_at_the_end_of_a_row_is_one() {
    let wide = 5 * INTERLEAVE;
    let first = ROW.0 / wide * wide;
    let length = usize::try_from(ROW.0 - first).unwrap();
    for parts in [vec![length], vec![3 * 4096, length - 3 * 4096]] {
        let bench = Rc::new(Bench::new(61, 8, Bytes::mib(96)));
        let recorded: Rc<RefCell<Option<(Recorder, Cut)>>> = Rc::default();
        let (noted, outside) = (Rc::clone(&recorded), Rc::clone(&bench));
        bench
            .run(async move |lab| {
                let spaces = lab.create().await?;
                let mut spec =
                    SpaceSpec::usual("data".parse()?, Bytes::mib(8), Resiliency::Parity { parity: 2 });
                (spec.row, spec.columns, spec.interleave) = (Some(ROW), Some(5), Bytes(INTERLEAVE));
                let space = spaces.create(spec).await?;
                lab.write(&space, 0, 4096, 9).await?;
                spaces.flush().await?;
                let recorder = outside.world.record();
                let begun = recorder.now();
                // Another is under way: who comes alone waits for nobody.
                let mut requests = vec![(0, 4096, 9)];
                let mut at = first;
                for part in parts {
                    requests.push((at, part, 1));
                    at += part as u64;
                }
                let written = requests.into_iter().map(|(at, part, fill)| lab.write(&space, at, part, fill));
                join_all(written).await.into_iter().collect::<Outcome>()?;
                // Each interleave on a disk of its own, and nowhere else: not in three cache rows.
                let blocks = first / 4096..ROW.0 / 4096;
                let has_some =
                    |disk: &&Rc<SimDisk>| !crate::harness::places_of(disk, blocks.clone(), 1).is_empty();
                assert_eq!(outside.disks.iter().filter(has_some).count(), length / 16384);
                *noted.borrow_mut() = Some((recorder, begun));
                space.flush().await?;
                lab.hold((spaces, space));
                Ok(())
            })
            .unwrap();
        bench.world.kill();
        let (recorder, begun) = recorded.take().unwrap();
        for cut in recorder.cuts().into_iter().filter(|cut| *cut >= begun) {
            for (nth, state) in recorder.states(cut, &StateOptions::default()).take(6).enumerate() {
                let left = opened(&state, &bench);
                let verified = expect_stripes(&left, first, nth % 8);
                verified.unwrap_or_else(|error| panic!("{cut:?}, state {nth}: {error}\n{state}"));
            }
        }
    }
}

/// Each stripe of four interleaves from a byte on has fill 1 or none, all of it, without two disks as with all.
fn expect_stripes(bench: &Bench, first: u64, absent: usize) -> Outcome {
    let known: Rc<RefCell<Vec<u8>>> = Rc::default();
    let freed = [absent, (absent + 3) % bench.disks.len()];
    for (mode, freed) in [(OpenMode::Write, vec![]), (OpenMode::Read, freed.to_vec())] {
        let seen = Rc::clone(&known);
        bench.run_in(bench.lab_with(|disk| !freed.contains(&disk)), async move |lab| {
            let spaces = lab.open_as(mode).await?;
            let space = spaces.find("data")?;
            lab.expect(&space, 0, 4096, 9).await?;
            let mut fills = Vec::new();
            for stripe in 0..INTERLEAVE / 4096 {
                let at = first + stripe * 4096;
                fills.push(u8::from(lab.expect(&space, at, 4096, 0).await.is_err()));
                for column in 0..4 {
                    lab.expect(&space, at + column * INTERLEAVE, 4096, fills[fills.len() - 1]).await?;
                }
            }
            if mode == OpenMode::Read {
                assert_eq!(fills, *seen.borrow(), "without disks {freed:?}");
                return Ok(());
            }
            *seen.borrow_mut() = fills;
            drop(space);
            lab.check_and_close(spaces).await
        })?;
        bench.world.kill();
    }
    Ok(())
}

/// Scenario: a disk loses its power with what it had cached of a stripe, before the flush that covers the stripe and after.
#[test]
fn a_stripe_in_flight_survives_the_disk_that_leaves() {
    for column in 0..2 {
        let bench = Rc::new(Bench::new(32 + column as u64, 5, Bytes::mib(96)));
        let outside = Rc::clone(&bench);
        bench
            .run(async move |lab| {
                let spaces = lab.create().await?;
                let space = make(&lab, &spaces).await?;
                lab.write(&space, 0, STRIPE, 1).await?;
                outside.disks[holders(&outside, 1)[column]].vanish();
                lab.expect(&space, 0, STRIPE, 1).await?;
                space.flush().await?;
                lab.hold((spaces, space));
                Ok(())
            })
            .unwrap();
        bench.world.power_cut();
        let back = bench.disks.iter().find(|disk| disk.is_absent()).unwrap();
        back.come_back();
        assert!(back.return_to(0));
        let again = Rc::clone(&bench);
        bench
            .run(async move |lab| {
                let spaces = lab.open().await?;
                take_in(&again, &spaces, &[]).await?;
                lab.check_and_close(spaces).await
            })
            .unwrap();
        expect(&bench, 1);
    }
}

/// Scenario: both disks with data of a stripe leave before a flush has covered it. The flush fails, and nobody can read the
/// stripe. They come back with what they had, or without what they had cached: then the stripe is what it was, all of it, and
/// one flush says so.
#[test]
fn a_stripe_in_flight_waits_for_its_disks_as_a_whole() {
    for has_lost in [false, true] {
        let bench = Rc::new(Bench::new(40 + u64::from(has_lost), 6, Bytes::mib(96)));
        let outside = Rc::clone(&bench);
        bench
            .run(async move |lab| {
                let spaces = lab.create().await?;
                let space = make(&lab, &spaces).await?;
                lab.write(&space, 0, STRIPE, 1).await?;
                let freed = holders(&outside, 1);
                for disk in &freed {
                    match has_lost {
                        true => outside.disks[*disk].vanish(),
                        false => {
                            let slot = DiskSlot(u16::try_from(*disk)?);
                            spaces.pool().exclude(slot, ExcludeReason::Asked).await?;
                        }
                    }
                }
                assert!(matches!(space.flush().await, Err(SpaceError::Unflushed { .. })));
                assert!(matches!(space.read(0, 4096).await, Err(SpaceError::Unreadable { .. })));
                for disk in freed.iter().filter(|_| has_lost) {
                    assert!(outside.disks[*disk].return_to(0));
                }
                take_in(&outside, &spaces, &freed).await?;
                lab.expect(&space, 0, STRIPE, if has_lost { 0 } else { 1 }).await?;
                assert_eq!(space.flush().await.is_err(), has_lost);
                space.flush().await?;
                lab.hold((spaces, space));
                Ok(())
            })
            .unwrap_or_else(|error| panic!("lost {has_lost}: {error}"));
        bench.world.power_cut();
        expect(&bench, if has_lost { 0 } else { 1 });
    }
}

/// Scenario: stripes that no flush has covered are out of reach, but for their first three columns. Whoever asks for one learns
/// that from few reads, however many of them wait: each page of the tables is looked up once, and no block for which there are
/// too few others.
#[test]
fn stripes_that_are_out_of_reach_cost_who_asks_few_reads() {
    const STRIPES: usize = 16;
    const BLOCKS: u64 = INTERLEAVE / 4096;
    let bench = Rc::new(Bench::new(42, 6, Bytes::mib(96)));
    let outside = Rc::clone(&bench);
    bench
        .run(async move |lab| {
            let spaces = lab.create().await?;
            let mut spec = SpaceSpec::usual("data".parse()?, Bytes::mib(8), Resiliency::Parity { parity: 1 });
            (spec.row, spec.columns, spec.interleave) = (Some(ROW), Some(4), Bytes(INTERLEAVE));
            let space = spaces.create(spec).await?;
            lab.write(&space, 0, 2 * STRIPE, 9).await?;
            spaces.flush().await?;
            spaces.pool().checkpoint().await?;
            lab.write(&space, 2 * STRIPE as u64, STRIPES * 2 * STRIPE, 1).await?;
            let stays = |disk: &SimDisk| !crate::harness::places_of(disk, 0..3 * BLOCKS, 9).is_empty();
            for (slot, _) in (0..).zip(&outside.disks).filter(|(_, disk)| !stays(disk)) {
                spaces.pool().exclude(DiskSlot(slot), ExcludeReason::Asked).await?;
            }
            assert!(matches!(space.flush().await, Err(SpaceError::Unflushed { .. })));
            let commands = || lab.devices.iter().map(|device| device.counters().reads).sum::<u64>();
            let before = commands();
            let read = space.read(2 * STRIPE as u64, 4096).await;
            assert!(matches!(read, Err(SpaceError::Unreadable { .. })));
            let reads = commands() - before;
            println!("{reads} reads for {} blocks that are out of reach", STRIPES * 2 * STRIPE / 4096);
            assert!(reads <= 5 * 4, "both slots of two copies for each column: {reads}");
            lab.hold((spaces, space));
            Ok(())
        })
        .unwrap();
}

/// Scenario: a disk leaves, stripes are written without it, and the daemon is killed before a flush has covered them. The pool is
/// opened with that disk and one of the others, whose tables have rotted or not: nobody can tell what the stripes are. The opening
/// and whoever asks learn that from few reads, however many blocks wait: a page that is out of reach is looked up once for all of
/// them, and not at all where only a disk that missed something has it. When all disks are here, everything is.
#[test]
fn tables_that_are_out_of_reach_cost_an_opening_few_reads() {
    const STRIPES: usize = 8;
    let capacity = Bytes::mib(96);
    for has_rotted in [false, true] {
        let bench = Rc::new(Bench::new(43, 3, capacity));
        bench
            .run(async move |lab| {
                let spaces = lab.create().await?;
                let space = make(&lab, &spaces).await?;
                spaces.pool().checkpoint().await?;
                spaces.pool().exclude(DiskSlot(0), ExcludeReason::Asked).await?;
                lab.write(&space, 0, STRIPES * STRIPE, 1).await?;
                lab.hold((spaces, space));
                Ok(())
            })
            .unwrap();
        bench.world.kill();
        if has_rotted {
            let (disk, mut found) = (&bench.disks[1], [0; 4]);
            let holds = |at: &u64| disk.show(*at, &mut found) && found == *b"DTAB";
            let pages: Vec<u64> = (0..capacity.0).step_by(4096).filter(holds).collect();
            pages.iter().for_each(|at| disk.rot(at + 77, 3));
        }
        bench
            .run_in(bench.lab_with(|disk| disk != 2), async move |lab| {
                let spaces = lab.open().await?;
                let space = spaces.find("data")?;
                let looked_up = spaces.counters().page_reads;
                let commands = || lab.devices.iter().map(|device| device.counters().reads).sum::<u64>();
                let before = commands();
                let read = space.read(0, 4096).await;
                assert!(matches!(read, Err(SpaceError::Unreadable { .. })), "{read:?}");
                let reads = commands() - before;
                println!("rotted {has_rotted}: {looked_up} pages looked up by the opening, {reads} reads by who asks");
                assert!(looked_up <= 2 * 3, "a page of each column: {looked_up}");
                assert!(reads <= 4 * 3, "both slots of two copies for each column: {reads}");
                lab.hold((spaces, space));
                Ok(())
            })
            .unwrap_or_else(|error| panic!("rotted {has_rotted}: {error}"));
        bench.world.kill();
        if has_rotted {
            continue;
        }
        bench
            .run(async move |lab| {
                let spaces = lab.open().await?;
                let space = spaces.find("data")?;
                lab.expect(&space, 0, STRIPES * STRIPE, 1).await?;
                spaces.members().resync(&Progress::default()).await?;
                drop(space);
                lab.check_and_close(spaces).await
            })
            .unwrap();
    }
}

/// Scenario: one disk, or both, leave while a stripe is being written. With one away the write stands; else it fails, and
/// nothing of it is there.
#[test]
fn a_stripe_that_failed_was_never_written() {
    for count in 1..=2 {
        let dial = Dial::default();
        let bench = Rc::new(Bench::with_profile(50 + count as u64, 6, || dial.profile()));
        let (outside, slowly) = (Rc::clone(&bench), dial.clone());
        bench
            .run(async move |lab| {
                let spaces = lab.create().await?;
                let space = make(&lab, &spaces).await?;
                let columns: Vec<usize> = (0..outside.disks.len())
                    .filter(|disk| !crate::harness::places_of(&outside.disks[*disk], 64..72, 9).is_empty())
                    .collect();
                slowly.write.set(20);
                let writing = async { lab.write(&space, 0, STRIPE, 1).await.map_err(text) };
                let leaving = async {
                    pause(&lab, 10).await;
                    slowly.write.set(0);
                    columns.iter().take(count).for_each(|disk| outside.disks[*disk].vanish());
                    Ok(())
                };
                let written = extra(vec![Box::pin(writing), Box::pin(leaving)]).await;
                assert_eq!(written.is_ok(), count == 1, "{written:?}");
                assert!(
                    written.err().is_none_or(|error| error.starts_with("32 KiB at byte 0 of space data"))
                );
                if count == 1 {
                    lab.expect(&space, 0, STRIPE, 1).await?;
                    space.flush().await?;
                }
                lab.hold((spaces, space));
                Ok(())
            })
            .unwrap_or_else(|error| panic!("{count} left: {error}"));
        bench.world.power_cut();
        bench.disks.iter().filter(|disk| disk.is_absent()).for_each(|disk| disk.come_back());
        let again = Rc::clone(&bench);
        bench
            .run(async move |lab| {
                let spaces = lab.open().await?;
                take_in(&again, &spaces, &[]).await?;
                lab.check_and_close(spaces).await
            })
            .unwrap();
        expect(&bench, if count == 1 { 1 } else { 0 });
    }
}

/// Each block of the first stripe has one of these fills, the same as the other of its stripe, whichever disk is gone.
fn expect_whole_stripes(bench: &Bench, fills: &'static [u8]) -> Outcome {
    let found: Rc<RefCell<Vec<u8>>> = Rc::default();
    for absent in [None].into_iter().chain((0..bench.disks.len()).map(Some)) {
        let mode = if absent.is_some() { OpenMode::Read } else { OpenMode::Write };
        let known = Rc::clone(&found);
        bench.run_in(bench.lab_with(|disk| Some(disk) != absent), async move |lab| {
            let spaces = lab.open_as(mode).await?;
            let space = spaces.find("data")?;
            let mut seen = Vec::new();
            for block in 0..8 {
                let error = space.read(block * 4096, 4096).await.err();
                let mut has = None;
                for fill in fills {
                    has =
                        has.or(lab.expect(&space, block * 4096, 4096, *fill).await.is_ok().then_some(*fill));
                }
                let has =
                    has.ok_or_else(|| format!("without disk {absent:?}, block {block} is lost: {error:?}"));
                seen.push(has?);
            }
            if (0..4).any(|stripe| seen[stripe] != seen[stripe + 4]) {
                return Err(format!("without disk {absent:?}, stripes are in parts: {seen:?}").into());
            }
            if mode == OpenMode::Write {
                *known.borrow_mut() = seen;
                drop(space);
                return lab.check_and_close(spaces).await;
            }
            let was = known.borrow().clone();
            if was == seen {
                Ok(())
            } else {
                Err(format!("without disk {absent:?}: {seen:?}, was {was:?}").into())
            }
        })?;
        bench.world.kill();
    }
    Ok(())
}

/// All that may be left from a step on has whole stripes.
fn expect_whole_stripes_from(bench: &Bench, recorder: &Recorder, first: Cut, fills: &'static [u8]) {
    let cuts: Vec<Cut> = recorder.cuts().into_iter().filter(|cut| *cut >= first).collect();
    let mut tried = 0;
    for cut in cuts {
        for (nth, state) in recorder.states(cut, &StateOptions::default()).take(12).enumerate() {
            tried += 1;
            let left = opened(&state, bench);
            if let Err(error) = expect_whole_stripes(&left, fills) {
                panic!("{cut:?} of {first:?} on, state {nth}: {error}\n{state}");
            }
        }
    }
    assert!(tried > 10, "{tried} states are too few to tell");
}

/// Disks of the columns of data, by what is flushed of another stripe of the row.
fn columns_of(bench: &Bench) -> [usize; 2] {
    [64..68, 68..72].map(|blocks| {
        let has_it =
            |disk: &usize| !crate::harness::places_of(&bench.disks[*disk], blocks.clone(), 9).is_empty();
        (0..bench.disks.len()).find(has_it).unwrap()
    })
}

/// Scenario: a disk that is a file has no room for its part of a stripe. The write fails, and power fails while that is put on
/// record, or behind it.
#[test]
fn a_stripe_that_found_no_room_is_whole_or_was_never_written() {
    let bench = Rc::new(Bench::new(70, 5, Bytes::mib(96)));
    let outside = Rc::clone(&bench);
    let recorded: Rc<RefCell<Option<(Recorder, Cut)>>> = Rc::default();
    let noted = Rc::clone(&recorded);
    bench
        .run(async move |lab| {
            let spaces = lab.create().await?;
            let space = make(&lab, &spaces).await?;
            let recorder = outside.world.record();
            let begun = recorder.now();
            outside.disks[columns_of(&outside)[0]].arm(FaultKind::NoSpace);
            let written = space.write(0, &fill(&lab, 1).await, Durability::Cached).await;
            assert!(matches!(written, Err(SpaceError::NoSpaceBelow { .. })), "{written:?}");
            *noted.borrow_mut() = Some((recorder, begun));
            lab.hold((spaces, space));
            Ok(())
        })
        .unwrap();
    bench.world.kill();
    let (recorder, begun) = recorded.take().unwrap();
    expect_whole_stripes_from(&bench, &recorder, begun, &[0, 1]);
}

/// Scenario: a flush waits for a stripe whose write fails then. It is written once more, and power fails before another flush.
#[test]
fn a_stripe_that_failed_before_a_flush_ended_is_not_durable() {
    let dial = Dial::default();
    let bench = Rc::new(Bench::with_profile(80, 5, || dial.profile()));
    let (outside, slowly) = (Rc::clone(&bench), dial.clone());
    let recorded: Rc<RefCell<Option<(Recorder, Cut)>>> = Rc::default();
    let noted = Rc::clone(&recorded);
    bench
        .run(async move |lab| {
            let spaces = lab.create().await?;
            let space = make(&lab, &spaces).await?;
            let recorder = outside.world.record();
            slowly.write.set(20);
            outside.disks[columns_of(&outside)[0]].arm(FaultKind::NoSpace);
            let writing = async {
                let written = space.write(0, &fill(&lab, 1).await, Durability::Cached).await;
                assert!(matches!(written, Err(SpaceError::NoSpaceBelow { .. })), "{written:?}");
                Ok(())
            };
            let flushing = async {
                pause(&lab, 5).await;
                spaces.flush().await.map_err(text)
            };
            extra(vec![Box::pin(writing), Box::pin(flushing)]).await?;
            slowly.write.set(0);
            let begun = recorder.now();
            lab.write(&space, 0, STRIPE, 2).await?;
            *noted.borrow_mut() = Some((recorder, begun));
            lab.hold((spaces, space));
            Ok(())
        })
        .unwrap();
    bench.world.kill();
    let (recorder, begun) = recorded.take().unwrap();
    expect_whole_stripes_from(&bench, &recorder, begun, &[0, 2]);
}

async fn fill(lab: &Lab, fill: u8) -> dolmen_buffer::Shared {
    let mut buffer = lab.seams.data.take(STRIPE).await;
    crate::harness::pattern(0, fill, &mut buffer);
    buffer.freeze()
}

/// Scenario: more disks of a row are away than it has parity, and nothing of it is in flight. Whole stripes are cached then, as
/// everything else is.
#[test]
fn a_stripe_whose_columns_are_away_goes_to_the_write_cache() {
    let bench = Rc::new(Bench::new(90, 6, Bytes::mib(96)));
    let outside = Rc::clone(&bench);
    bench
        .run(async move |lab| {
            let spaces = lab.create().await?;
            let space = make(&lab, &spaces).await?;
            for disk in columns_of(&outside) {
                spaces.pool().exclude(DiskSlot(u16::try_from(disk)?), ExcludeReason::Asked).await?;
            }
            lab.write(&space, 0, STRIPE, 1).await?;
            space.flush().await?;
            lab.expect(&space, 0, STRIPE, 1).await?;
            take_in(&outside, &spaces, &columns_of(&outside)).await?;
            spaces.caches().destage().await?;
            lab.hold((spaces, space));
            Ok(())
        })
        .unwrap();
    bench.world.power_cut();
    expect(&bench, 1);
}

/// Scenario: power fails behind a stripe of three columns that no flush has covered, and the disk with the first has lost it. An
/// opening without that disk finds enough of the stripe. It dies, at any step, and the next one has that disk and lacks another:
/// too little is left, and it is what it was before.
#[test]
fn an_interrupted_decision_is_made_again() {
    let bench = Rc::new(Bench::new(91, 6, Bytes::mib(96)));
    let columns: Rc<RefCell<Vec<usize>>> = Rc::default();
    let (outside, known) = (Rc::clone(&bench), Rc::clone(&columns));
    bench
        .run(async move |lab| {
            let spaces = lab.create().await?;
            let mut spec = SpaceSpec::usual("data".parse()?, Bytes::mib(8), Resiliency::Parity { parity: 1 });
            (spec.row, spec.columns, spec.interleave) = (Some(ROW), Some(3), Bytes(INTERLEAVE));
            let space = spaces.create(spec).await?;
            lab.write(&space, 8 * WIDE as u64, WIDE, 9).await?;
            spaces.flush().await?;
            // Its tables are on the disks.
            spaces.pool().checkpoint().await?;
            lab.write(&space, 0, WIDE, 1).await?;
            for first in [0, 4, 8] {
                let has_it = |disk: &usize| {
                    !crate::harness::places_of(&outside.disks[*disk], first..first + 4, 1).is_empty()
                };
                known.borrow_mut().extend((0..6).find(has_it));
            }
            lab.hold((spaces, space));
            Ok(())
        })
        .unwrap();
    let [first, _, third] = columns.borrow()[..] else { panic!("{columns:?} are not three") };
    bench.world.power_cut_choosing(&mut |write| match write.disk.0 == first {
        true => Fate::Lost,
        false => Fate::Landed,
    });
    let host = NotedHost::new(&bench);
    let without = Lab { noted: Some(Rc::clone(&host)), ..bench.lab_with(|disk| disk != first) };
    bench
        .run_in(without, async |lab| {
            lab.hold(lab.open().await?);
            Ok(())
        })
        .unwrap();
    bench.world.kill();
    let mut tried = 0;
    for cut in host.recorder().cuts() {
        for state in host.recorder().states(cut, &StateOptions::default()).take(2) {
            let left = host.left(&state, cut, &bench);
            // From then on it counts as one that is gone, and too many are.
            let knows_first: Rc<Cell<bool>> = Rc::default();
            let noted = Rc::clone(&knows_first);
            let looked_at = left.run(async move |lab| {
                noted.set(!lab.open_as(OpenMode::Read).await?.members().stale_rows().await?.is_empty());
                Ok(())
            });
            left.world.kill();
            if looked_at.is_ok() && knows_first.get() {
                continue;
            }
            let verified = left.run_in(left.lab_with(|disk| disk != third), async |lab| {
                let spaces = lab.open().await?;
                let space = spaces.find("data")?;
                lab.expect(&space, 0, WIDE, 0).await?;
                lab.expect(&space, 8 * WIDE as u64, WIDE, 9).await
            });
            left.world.kill();
            verified.unwrap_or_else(|error| panic!("{cut:?}: {error}\n{state}"));
            tried += 1;
        }
    }
    assert!(tried > 20, "{tried} states are too few to tell");
}
