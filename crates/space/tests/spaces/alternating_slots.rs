//! Single whole stripes over old content: alternating stripes between a row and its shadow row (docs/design/0026).
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::cast_possible_truncation)]

use std::cell::{Cell, RefCell};
use std::error::Error;
use std::rc::Rc;
use std::time::Duration;

use dolmen_block_io::sleep;
use dolmen_block_io::sync::join_all;
use dolmen_pool::ExcludeReason;
use dolmen_sim::{Fate, FaultKind, Ran, Random, SimDisk, StopAt};
use dolmen_space::{Progress, Resiliency, Space, SpaceSpec, Spaces};
use dolmen_units::{Bytes, DiskSlot};

use crate::harness::{Bench, Lab, Outcome, ROW, pattern, read};

/// Of two columns with an interleave of 16 KiB.
const STRIPE: u64 = 32 << 10;
const ROW_BYTES: u64 = 1 << 20;
/// Stripes of a row.
const OF_ROW: u64 = ROW_BYTES / STRIPE;
const BLOCK: u64 = 4096;
/// Where the data of a disk begins.
const DATA_AT: u64 = 9 << 20;

async fn make(spaces: &Spaces, size: Bytes) -> Result<Space, Box<dyn Error>> {
    let mut spec = SpaceSpec::usual("data".parse()?, size, Resiliency::Parity { parity: 1 });
    (spec.row, spec.columns, spec.interleave) = (Some(ROW), Some(2), Bytes::kib(16));
    Ok(spaces.create(spec).await?)
}

/// Writes rows from their beginning to their end, and has a flush cover them.
async fn fill(lab: &Lab, spaces: &Spaces, space: &Space, rows: u64) -> Outcome {
    for half in 0..2 * rows {
        lab.write(space, half * ROW_BYTES / 2, ROW_BYTES as usize / 2, 1).await?;
    }
    spaces.flush().await?;
    Ok(spaces.pool().checkpoint().await?)
}

/// A pool with a space of eight rows, so many of which are in place.
async fn filled(lab: &Lab, rows: u64) -> Result<(Rc<Spaces>, Space), Box<dyn Error>> {
    let spaces = lab.create().await?;
    let space = make(&spaces, Bytes::mib(8)).await?;
    fill(lab, &spaces, &space, rows).await?;
    Ok((spaces, space))
}

/// Longer than a shadow row of which stripes alternate waits for more of them.
async fn wait_for_idle(lab: &Lab) {
    sleep(lab.seams.clock.as_ref(), Duration::from_secs(660)).await;
}

fn written(lab: &Lab) -> u64 {
    lab.devices.iter().map(|device| device.counters().write_bytes).sum()
}

/// Scenario: eight rows in place; whole stripes are written again and again in no order, one after another and many together, twelve
/// times what the rows hold. None goes through the write cache: data and parity are written once, with records and tables.
/// When nobody has used them for long, the shadow rows are none any more; each stripe has what was written last.
#[test]
fn single_stripes_are_written_once() {
    const STRIPES: u64 = 8 * OF_ROW;
    let bench = Rc::new(Bench::new(21, 5, Bytes::mib(256)));
    let fills = Rc::new(RefCell::new(Vec::new()));
    let left = Rc::clone(&fills);
    bench
        .run(async move |lab| {
            let (spaces, space) = filled(&lab, 8).await?;
            let (mut random, mut fills) = (Random::new(3), vec![1; STRIPES as usize]);
            let before = written(&lab);
            let rounds = 12 * STRIPES / 8;
            for round in 0..rounds {
                let mut places: Vec<u64> = (0..8).map(|_| random.below(STRIPES)).collect();
                places.sort_unstable();
                places.dedup();
                let fill = 2 + (round % 250) as u8;
                places.iter().for_each(|stripe| fills[*stripe as usize] = fill);
                let writes =
                    places.iter().map(|stripe| lab.write(&space, stripe * STRIPE, STRIPE as usize, fill));
                join_all(writes).await.into_iter().collect::<Outcome>()?;
            }
            spaces.flush().await?;
            let counters = spaces.counters();
            assert!(counters.stripes_switched > 0);
            assert_eq!(counters.shadows_made, 8, "one for each row");
            let data = rounds * 8 * STRIPE * 3 / 2;
            let more = (written(&lab) - before) as f64 / data as f64;
            println!("{more:.3} times data and parity, {counters:?}");
            assert!(more < 1.25, "written {more:.3} times data and parity");
            expect(&lab, &space, &fills).await?;
            wait_for_idle(&lab).await;
            let counters = spaces.counters();
            assert_eq!(counters.shadows_promoted + counters.shadows_dropped, 8);
            expect(&lab, &space, &fills).await?;
            drop(space);
            left.replace(fills);
            lab.check_and_close(spaces).await
        })
        .unwrap();
    bench
        .run(async move |lab| {
            let spaces = lab.open().await?;
            let space = spaces.find("data")?;
            let fills = fills.borrow().clone();
            expect(&lab, &space, &fills).await?;
            drop(space);
            lab.check_and_close(spaces).await
        })
        .unwrap();
}

async fn expect(lab: &Lab, space: &Space, fills: &[u8]) -> Outcome {
    for (stripe, fill) in (0..).zip(fills) {
        lab.expect(space, stripe * STRIPE, STRIPE as usize, *fill).await?;
    }
    Ok(())
}

/// Scenario: few stripes of a row are written. Its shadow row gives them back when nobody has used it for long, and all of its room
/// is free again; where a block was discarded of one, the shadow row is promoted. Where most of a row was written, it does anyhow.
#[test]
fn a_shadow_row_ends_the_cheaper_way() {
    for (count, discards, released) in [(3, false, true), (3, true, false), (OF_ROW - 3, false, false)] {
        let bench = Bench::new(22, 5, Bytes::mib(128));
        bench
            .run(async move |lab| {
                let (spaces, space) = filled(&lab, 1).await?;
                let free = || spaces.pool().free_space().room().iter().map(|room| room.free.0).sum::<u64>();
                let before = free();
                for stripe in 0..count {
                    lab.write(&space, stripe * STRIPE, STRIPE as usize, 2).await?;
                }
                assert!(free() < before, "there is a shadow row");
                if discards {
                    space.discard(STRIPE, BLOCK).await?;
                    spaces.flush().await?;
                    spaces.caches().destage().await?;
                }
                wait_for_idle(&lab).await;
                let counters = spaces.counters();
                let found = (counters.shadows_dropped, counters.shadows_promoted);
                assert_eq!(found, (released.into(), (!released).into()), "{count}, {discards}");
                assert_eq!(free(), before);
                if discards {
                    lab.expect(&space, STRIPE, BLOCK as usize, 0).await?;
                    lab.expect(&space, STRIPE + BLOCK, (STRIPE - BLOCK) as usize, 2).await?;
                } else {
                    lab.expect(&space, 0, (count * STRIPE) as usize, 2).await?;
                }
                lab.expect(&space, count * STRIPE, (ROW_BYTES - count * STRIPE) as usize, 1).await?;
                drop(space);
                lab.check_and_close(spaces).await
            })
            .unwrap_or_else(|error| panic!("{count}, {discards}: {error}"));
    }
}

/// Scenario: a pool with little room; single stripes of many rows are written. Their shadow rows take no more than is free beside
/// them, the write cache takes the other stripes, and when rows are claimed until nothing is free, all shadow rows are dropped for
/// them.
#[test]
fn shadow_rows_for_single_stripes_leave_the_last_room_to_writes() {
    let bench = Bench::new(23, 3, Bytes::mib(96));
    bench
        .run(async move |lab| {
            let spaces = lab.create().await?;
            let space = make(&spaces, Bytes::gib(1)).await?;
            let mut rows = 0;
            let write_row = async |row: u64, fill: u8| {
                for half in 0..2 {
                    let at = row * ROW_BYTES + half * ROW_BYTES / 2;
                    lab.write(&space, at, ROW_BYTES as usize / 2, fill).await?;
                }
                Ok::<_, Box<dyn Error>>(())
            };
            while write_row(rows, 1).await.is_ok() {
                rows += 1;
            }
            let whole = rows;
            space.discard((rows - 9) * ROW_BYTES, 9 * ROW_BYTES).await?;
            spaces.flush().await?;
            let left = rows - 9;
            // Whoever found no room asks again in a while.
            sleep(lab.seams.clock.as_ref(), Duration::from_secs(2)).await;
            for row in 0..left {
                lab.write(&space, row * ROW_BYTES + 5 * STRIPE, STRIPE as usize, 2).await?;
            }
            let made = spaces.counters().shadows_made;
            assert!((2..=6).contains(&made), "{made} shadow rows where nine rows are free");
            for row in left..whole {
                write_row(row, 3).await?;
            }
            let counters = spaces.counters();
            assert_eq!(counters.shadows_dropped + counters.shadows_promoted, counters.shadows_made);
            for row in 0..left {
                lab.expect(&space, row * ROW_BYTES, 5 * STRIPE as usize, 1).await?;
                lab.expect(&space, row * ROW_BYTES + 5 * STRIPE, STRIPE as usize, 2).await?;
            }
            drop(space);
            lab.check_and_close(spaces).await
        })
        .unwrap();
}

/// Whether all of a stripe is what one write made of it; which.
async fn one_of(space: &Space, stripe: u64, fills: &[u8]) -> Result<u8, Box<dyn Error>> {
    let found = read(space, stripe * STRIPE, STRIPE as usize).await?;
    for fill in fills {
        let mut expected = vec![0; found.len()];
        pattern(stripe * STRIPE, *fill, &mut expected);
        if found == expected {
            return Ok(*fill);
        }
    }
    Err(format!("stripe {stripe} is none of {fills:?}, but begins with {:?}", &found[..8]).into())
}

/// Scenario: one stripe goes to a shadow row and another one back from it, and before a flush two of five disks leave, any two. A
/// flush says so where nobody can tell what the stripes are; a checkpoint comes as well. Power fails, and all disks are back,
/// without what was in their caches: each stripe is what it was or what was written, and what the flush has covered.
#[test]
fn a_stripe_whose_new_slot_leaves_is_in_its_old_one() {
    let (mut went_back, left) = (0, Rc::new(Cell::new(0)));
    for (first, second) in (0..5).flat_map(|first| (first + 1..5).map(move |second| (first, second))) {
        let bench = Rc::new(Bench::new(24, 5, Bytes::mib(128)));
        let has_flushed = Rc::new(Cell::new(false));
        let (report, in_doubt) = (Rc::clone(&has_flushed), Rc::clone(&left));
        bench
            .run(async move |lab| {
                let (spaces, space) = filled(&lab, 1).await?;
                lab.write(&space, 3 * STRIPE, STRIPE as usize, 2).await?;
                spaces.flush().await?;
                spaces.pool().checkpoint().await?;
                lab.write(&space, 3 * STRIPE, STRIPE as usize, 3).await?;
                lab.write(&space, 5 * STRIPE, STRIPE as usize, 2).await?;
                assert_eq!(spaces.counters().stripes_switched, 3 * 4);
                for slot in [first, second] {
                    spaces.pool().exclude(DiskSlot(slot), ExcludeReason::Asked).await?;
                }
                report.set(space.flush().await.is_ok());
                in_doubt.set(in_doubt.get() + spaces.in_doubt_blocks().await?.len());
                spaces.pool().checkpoint().await?;
                lab.hold((spaces, space));
                Ok(())
            })
            .unwrap_or_else(|error| panic!("without {first} and {second}: {error}"));
        bench.world.power_cut_choosing(&mut |_| Fate::Lost);
        let back = Rc::new(Cell::new(0));
        let found = Rc::clone(&back);
        bench
            .run(async move |lab| {
                let spaces = lab.open().await?;
                let space = spaces.find("data")?;
                for (stripe, fills) in [(3, [3, 2]), (5, [2, 1])] {
                    let fill = one_of(&space, stripe, &fills).await?;
                    assert!(fill == fills[0] || !has_flushed.get(), "a flush had covered stripe {stripe}");
                    found.set(found.get() + u64::from(fill != fills[0]));
                }
                lab.expect(&space, 0, 3 * STRIPE as usize, 1).await?;
                spaces.members().resync(&Progress::default()).await?;
                lab.write(&space, 3 * STRIPE, STRIPE as usize, 9).await?;
                lab.expect(&space, 3 * STRIPE, STRIPE as usize, 9).await?;
                drop(space);
                lab.check_and_close(spaces).await
            })
            .unwrap_or_else(|error| panic!("without {first} and {second}: {error}"));
        went_back += back.get();
    }
    println!("{} blocks were left in doubt, {went_back} stripes are what they were", left.get());
    assert!(left.get() > 0 && went_back > 0, "no stripe was ever left in doubt");
}

/// Table pages on a disk, by the row that they are of (docs/format/space.md).
fn table_pages(disk: &SimDisk) -> Vec<(u64, u64)> {
    let mut page = [0; 32];
    let places = (DATA_AT..Bytes::mib(128).0).step_by(BLOCK as usize);
    let pages = places.filter_map(|at| {
        let is_page = disk.show(at, &mut page) && page.starts_with(b"DTAB");
        is_page.then(|| (u64::from_le_bytes(page[24..32].try_into().unwrap()), at))
    });
    pages.collect()
}

/// Scenario: a stripe goes to a shadow row, unflushed. Power fails and takes the content along, and not the record of it; all
/// copies of the shadow row's tables rot. The stripe is what it was: reads go to the row, and do not fail.
#[test]
fn a_stripe_whose_new_slot_lost_its_table_is_in_its_old_one() {
    let bench = Rc::new(Bench::new(27, 5, Bytes::mib(128)));
    let (outside, rows) = (Rc::clone(&bench), Rc::new(RefCell::new(Vec::new())));
    let known = Rc::clone(&rows);
    bench
        .run(async move |lab| {
            let (spaces, space) = filled(&lab, 1).await?;
            let of_row = outside.disks.iter().flat_map(|disk| table_pages(disk)).map(|(row, _)| row);
            known.borrow_mut().extend(of_row);
            lab.write(&space, 3 * STRIPE, STRIPE as usize, 2).await?;
            spaces.flush().await?;
            spaces.pool().checkpoint().await?;
            lab.write(&space, 5 * STRIPE, STRIPE as usize, 2).await?;
            lab.hold((spaces, space));
            Ok(())
        })
        .unwrap();
    bench.world.power_cut_choosing(&mut |write| match write.at >= DATA_AT {
        true => Fate::Lost,
        false => Fate::Landed,
    });
    let mut rotten = 0;
    for disk in &bench.disks {
        for (_, at) in table_pages(disk).into_iter().filter(|(row, _)| !rows.borrow().contains(row)) {
            disk.rot(at + 77, 3);
            rotten += 1;
        }
    }
    assert!(rotten > 0, "the shadow row has no table");
    bench
        .run(async move |lab| {
            let spaces = lab.open().await?;
            let space = spaces.find("data")?;
            assert!(spaces.counters().lost_pages > 0, "no table was lost");
            lab.expect(&space, 5 * STRIPE, STRIPE as usize, 1).await?;
            lab.hold((spaces, space));
            Ok(())
        })
        .unwrap();
}

/// Scenario: power fails while a whole stripe is written where nothing was; all that goes to data is lost, and the table that
/// names it is corrupt on every disk. The stripe was never written.
#[test]
fn a_fresh_stripe_that_lost_its_table_was_never_written() {
    let bench = Bench::new(29, 5, Bytes::mib(128));
    bench
        .run(async move |lab| {
            let spaces = lab.create().await?;
            let space = make(&spaces, Bytes::mib(8)).await?;
            lab.write(&space, 0, STRIPE as usize, 1).await?;
            spaces.flush().await?;
            spaces.pool().checkpoint().await?;
            lab.write(&space, 5 * STRIPE, STRIPE as usize, 2).await?;
            lab.hold((spaces, space));
            Ok(())
        })
        .unwrap();
    bench.world.power_cut_choosing(&mut |write| match write.at >= DATA_AT {
        true => Fate::Lost,
        false => Fate::Landed,
    });
    let mut corrupt = 0;
    for disk in &bench.disks {
        for (_, at) in table_pages(disk) {
            disk.rot(at + 77, 3);
            corrupt += 1;
        }
    }
    assert!(corrupt > 0, "the row has no table");
    bench
        .run(async move |lab| {
            let spaces = lab.open().await?;
            let space = spaces.find("data")?;
            assert!(spaces.counters().lost_pages > 0, "no table was lost");
            lab.expect(&space, 5 * STRIPE, STRIPE as usize, 0).await?;
            lab.hold((spaces, space));
            Ok(())
        })
        .unwrap();
}

/// Scenario: a stripe is on its way to the other slot, and one disk, any of five, has no room for it. The write fails where that disk is
/// of the slot; the stripe is where it was, over a flush, a kill and an opening, and is written the next time.
#[test]
fn a_stripe_that_finds_no_room_stays_where_it_was() {
    let mut failed = 0;
    for disk in 0..5 {
        let bench = Rc::new(Bench::new(25, 5, Bytes::mib(128)));
        let has_failed = Rc::new(Cell::new(false));
        let (report, outside) = (Rc::clone(&has_failed), Rc::clone(&bench));
        bench
            .run(async move |lab| {
                let (spaces, space) = filled(&lab, 1).await?;
                lab.write(&space, 7 * STRIPE, STRIPE as usize, 2).await?;
                spaces.flush().await?;
                outside.disks[disk].arm(FaultKind::NoSpace);
                report.set(lab.write(&space, 3 * STRIPE, STRIPE as usize, 3).await.is_err());
                spaces.flush().await?;
                let fill = one_of(&space, 3, &[1, 3]).await?;
                assert_eq!(
                    fill == 1,
                    report.get(),
                    "the stripe is {fill} after a write whose failure was reported: {}",
                    report.get()
                );
                lab.hold((spaces, space));
                Ok(())
            })
            .unwrap_or_else(|error| panic!("disk {disk}: {error}"));
        bench.world.kill();
        let fails = has_failed.get();
        bench
            .run(async move |lab| {
                let spaces = lab.open().await?;
                let space = spaces.find("data")?;
                lab.expect(&space, 3 * STRIPE, STRIPE as usize, if fails { 1 } else { 3 }).await?;
                lab.write(&space, 3 * STRIPE, STRIPE as usize, 4).await?;
                lab.expect(&space, 3 * STRIPE, STRIPE as usize, 4).await?;
                drop(space);
                lab.check_and_close(spaces).await
            })
            .unwrap_or_else(|error| panic!("disk {disk}: {error}"));
        failed += u64::from(fails);
    }
    assert_eq!(failed, 3, "the disks of the slot");
}

/// Scenario: a stripe goes to the other slot, and is acknowledged without a flush; in another run it is new, and written twice. The daemon
/// is killed, and the next one too, after each command of its opening. What was acknowledged is there.
#[test]
fn two_kills_lose_no_stripe_that_was_acknowledged() {
    for back in [false, true] {
        for commands in (0..).step_by(3) {
            let bench = Rc::new(Bench::new(26, 4, Bytes::mib(64)));
            bench
                .run(async move |lab| {
                    let (spaces, space) = filled(&lab, 1).await?;
                    lab.write(&space, 3 * STRIPE, STRIPE as usize, 2).await?;
                    if back {
                        spaces.flush().await?;
                        lab.write(&space, 3 * STRIPE, STRIPE as usize, 3).await?;
                    }
                    for fill in [2, 3] {
                        lab.write(&space, (OF_ROW + 2) * STRIPE, STRIPE as usize, fill).await?;
                    }
                    lab.hold((spaces, space));
                    Ok(())
                })
                .unwrap();
            bench.world.kill();
            let lab = bench.lab();
            let opening = async move { lab.open().await.map(drop).map_err(|error| error.to_string()) };
            let ran = bench.world.run_to(StopAt::Commands(commands), opening).unwrap();
            bench.world.kill();
            bench
                .run(async move |lab| {
                    let spaces = lab.open().await?;
                    let space = spaces.find("data")?;
                    lab.expect(&space, 3 * STRIPE, STRIPE as usize, if back { 3 } else { 2 }).await?;
                    lab.expect(&space, (OF_ROW + 2) * STRIPE, STRIPE as usize, 3).await?;
                    drop(space);
                    lab.check_and_close(spaces).await
                })
                .unwrap_or_else(|error| panic!("back {back}, killed after {commands} commands: {error}"));
            if matches!(ran, Ran::Finished(_)) {
                assert!(commands > 20, "an opening of {commands} commands");
                break;
            }
        }
    }
}

/// Scenario: a stream has brought a part of a row to its shadow row, and a stripe of that is written again; small writes lie in the
/// write cache, and their stripe is written as a whole. Both go to the other slot, behind what stands in the way, and what is read
/// is the newest.
#[test]
fn what_a_stream_or_a_small_write_has_touched_goes_to_and_fro_as_well() {
    let bench = Rc::new(Bench::new(27, 5, Bytes::mib(128)));
    bench
        .run(async move |lab| {
            let (spaces, space) = filled(&lab, 1).await?;
            let pieces = (0..10).map(|nth| lab.write(&space, nth * 2 * STRIPE, 2 * STRIPE as usize, 2));
            join_all(pieces).await.into_iter().collect::<Outcome>()?;
            assert_eq!(
                (spaces.counters().shadows_made, spaces.counters().stripes_switched),
                (1, 0),
                "a stream's"
            );
            lab.write(&space, 3 * STRIPE, STRIPE as usize, 3).await?;
            assert_eq!(spaces.counters().stripes_switched, 4, "back to the row");
            lab.write(&space, 25 * STRIPE, STRIPE as usize, 3).await?;
            assert_eq!(spaces.counters().stripes_switched, 8, "to the shadow row");
            for stripe in [3, 25, 30] {
                lab.write(&space, stripe * STRIPE + BLOCK, 2 * BLOCK as usize, 4).await?;
                lab.write(&space, stripe * STRIPE, STRIPE as usize, 5).await?;
            }
            assert_eq!(spaces.counters().stripes_switched, 20, "behind what was cached");
            let expect = async |lab: &Lab, space: &Space| {
                for stripe in 0..OF_ROW {
                    let fill = match stripe {
                        3 | 25 | 30 => 5,
                        0..20 => 2,
                        _ => 1,
                    };
                    lab.expect(space, stripe * STRIPE, STRIPE as usize, fill).await?;
                }
                Ok::<_, Box<dyn Error>>(())
            };
            expect(&lab, &space).await?;
            spaces.flush().await?;
            wait_for_idle(&lab).await;
            expect(&lab, &space).await?;
            drop(space);
            lab.check_and_close(spaces).await
        })
        .unwrap();
}
