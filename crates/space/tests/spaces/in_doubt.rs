//! Blocks that a flush leaves in doubt, because the only disk that has them left, while a checkpoint is under way.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use std::cell::Cell;
use std::error::Error;
use std::rc::Rc;
use std::time::Duration;

use dolmen_block_io::ranks::scoped;
use dolmen_block_io::sync::join_all;
use dolmen_pool::{ExcludeReason, Purpose};
use dolmen_sim::{CommandKind, DiskProfile, LatencyModel, Ran, Random, Request, StopAt};
use dolmen_space::{Progress, Resiliency, Space, SpaceSpec, Spaces};
use dolmen_units::{Bytes, DiskSlot};

use crate::harness::slow_disks::{Dial, PowerCut, Slow, extra, pause, text};
use crate::harness::{Bench, Lab, Outcome, ROW};

const MIRROR: Resiliency = Resiliency::Mirror { copies: 2 };

/// Where the data of a disk begins.
const DATA_AT: u64 = 9 << 20;
/// The length of a row.
const WHOLE: usize = 1 << 20;
/// How often blocks are written over without a flush: what is known of them takes more than one record.
const ROUNDS: u8 = 30;
/// Milliseconds that a write takes while blocks are left in doubt.
const SLOW: u64 = 20;

/// Every other block of the second column of a row of two.
fn blocks(row: u64) -> impl Iterator<Item = u64> {
    (0..ROW.0 / 4096)
        .filter(|block| block / 16 % 2 == 1 && block % 2 == 0)
        .map(move |block| row * 256 + block)
}

/// Writes the blocks, all beside each other, once for each fill.
async fn write_over(lab: &Lab, space: &Space, row: u64, fills: std::ops::RangeInclusive<u8>) -> Outcome {
    for fill in fills {
        let written = join_all(blocks(row).map(|block| lab.write(space, block * 4096, 4096, fill))).await;
        written.into_iter().collect::<Outcome>()?;
    }
    Ok(())
}

/// A space of two columns and one copy, and a row of it whose first column is on the first disk and whose second one is on the
/// second.
async fn space_of_two_columns(
    lab: &Lab,
    bench: &Bench,
    spaces: &Spaces,
) -> Result<(Space, u64), Box<dyn Error>> {
    let mut spec = SpaceSpec::usual("data".parse()?, Bytes::mib(16), Resiliency::Simple);
    (spec.row, spec.columns, spec.interleave) = (Some(ROW), Some(2), Bytes::kib(64));
    let space = spaces.create(spec).await?;
    for row in 0..8 {
        lab.write(&space, row * ROW.0, 32 * 4096, 1).await?;
        let is_on = |disk: usize, block: u64| {
            let block = row * 256 + block;
            !crate::harness::places_of(&bench.disks[disk], block..block + 1, 1).is_empty()
        };
        if is_on(0, 0) && is_on(1, 16) {
            return Ok((space, row));
        }
    }
    Err("no row is as it should be".into())
}

/// Scenario: the only disk that has unflushed blocks leaves. A flush says in the log what is known of them, which takes more
/// than one record on slow disks; a checkpoint begins at every stage of that. The daemon is killed: what was acknowledged is
/// there when the disk is back.
#[test]
fn a_checkpoint_keeps_records_of_blocks_out_of_reach() {
    for offset in 0..8 {
        let dial = Dial::default();
        let bench = Rc::new(Bench::with_profile(1400, 2, || dial.profile()));
        let (outside, slowly) = (Rc::clone(&bench), dial.clone());
        let row = Rc::new(Cell::new(0));
        let report = Rc::clone(&row);
        bench
            .run(async move |lab| {
                let spaces = lab.create().await?;
                let (space, row) = space_of_two_columns(&lab, &outside, &spaces).await?;
                report.set(row);
                write_over(&lab, &space, row, 1..=1).await?;
                spaces.flush().await?;
                spaces.pool().checkpoint().await?;
                write_over(&lab, &space, row, 2..=ROUNDS).await?;
                spaces.pool().exclude(DiskSlot(1), ExcludeReason::Asked).await?;
                slowly.write.set(SLOW);
                let flush = async { spaces.flush().await.map_err(text) };
                let checkpoint = async {
                    pause(&lab, 5 * offset).await;
                    spaces.pool().checkpoint().await.map_err(text)
                };
                extra(vec![Box::pin(flush), Box::pin(checkpoint)]).await?;
                lab.hold((spaces, space));
                Ok(())
            })
            .unwrap();
        bench.world.kill();
        dial.write.set(0);
        let row = row.get();
        let verified = bench.run(async move |lab| {
            let spaces = lab.open().await?;
            let space = spaces.find("data")?;
            for block in blocks(row) {
                lab.expect(&space, block * 4096, 4096, ROUNDS).await?;
            }
            drop(space);
            lab.check_and_close(spaces).await
        });
        verified.unwrap_or_else(|error| panic!("checkpoint after {} ms: {error}", 5 * offset));
    }
}

/// Scenario: a row without tables has no home but the log while one of its disks is away, and a checkpoint says all of it again.
/// While it is at that, the other disk leaves with blocks that were not flushed, and a flush says what is known of them. When
/// that flush has ended, power fails, and the disk comes back without its cache: each block reads as one of its states.
#[test]
fn a_checkpoint_does_not_override_new_records_of_blocks_out_of_reach() {
    let mut wrong = Vec::new();
    for offset in 8..20 {
        let dial = Dial::default();
        let bench = Rc::new(Bench::with_profile(1500, 3, || dial.profile()));
        let cut = PowerCut::of(&bench);
        let (outside, slowly, power) = (Rc::clone(&bench), dial.clone(), Rc::clone(&cut));
        let row = Rc::new(Cell::new(0));
        let report = Rc::clone(&row);
        bench
            .run(async move |lab| {
                let spaces = lab.create().await?;
                let (space, row) = space_of_two_columns(&lab, &outside, &spaces).await?;
                report.set(row);
                write_over(&lab, &space, row, 1..=1).await?;
                spaces.flush().await?;
                spaces.pool().exclude(DiskSlot(0), ExcludeReason::Asked).await?;
                spaces.flush().await?;
                // A row that a checkpoint has to tell the map of, which is kept from it for now.
                let other = lab.space(&spaces, "other", ROW, MIRROR).await?;
                lab.write(&other, 0, 4096, 1).await?;
                let change = scoped(spaces.pool().change(Purpose::Release)).await;
                slowly.write.set(SLOW);
                let checkpoint = async { spaces.pool().checkpoint().await.map_err(text) };
                let leave = async {
                    pause(&lab, 2000).await;
                    slowly.write.set(0);
                    write_over(&lab, &space, row, 2..=ROUNDS).await.map_err(text)?;
                    slowly.write.set(3 * SLOW);
                    slowly.read.set(SLOW);
                    let go_on = async {
                        pause(&lab, SLOW * offset).await;
                        drop(change);
                        Ok(())
                    };
                    let leave = async {
                        spaces.pool().exclude(DiskSlot(1), ExcludeReason::Asked).await.map_err(text)?;
                        spaces.flush().await.map_err(text)?;
                        power.now();
                        Ok(())
                    };
                    extra(vec![Box::pin(go_on), Box::pin(leave)]).await
                };
                extra(vec![Box::pin(checkpoint), Box::pin(leave)]).await?;
                lab.hold((spaces, space, other));
                Ok(())
            })
            .unwrap();
        let row = row.get();
        let verified = cut.left(&bench, None).run(async move |lab| {
            let spaces = lab.open().await?;
            let space = spaces.find("data")?;
            for block in blocks(row) {
                crate::harness::read(&space, block * 4096, 4096).await?;
            }
            drop(space);
            lab.check_and_close(spaces).await
        });
        if let Err(error) = verified {
            wrong.push(format!("{} ms: {error}", SLOW * offset));
        }
    }
    assert!(wrong.is_empty(), "checkpoint goes on after {wrong:#?}");
}

/// Scenario: a row has no tables yet and one of its two disks is away. What is written to the other column goes to its disk's pages,
/// by one write-back after another, and they do not count, since the row has not all. The daemon is killed, and the next one, which
/// has both disks, begins with blank pages and writes them; it is killed after so many commands, before the log is trimmed perhaps.
/// What the log says of generations is not of more than the pages have.
#[test]
fn pages_of_a_row_that_has_not_all_of_them_have_no_generation_that_counts() {
    const LAST: u8 = 6;
    for commands in 1.. {
        let bench = Rc::new(Bench::new(1600, 2, Bytes::mib(96)));
        let outside = Rc::clone(&bench);
        let row = Rc::new(Cell::new(0));
        let report = Rc::clone(&row);
        let first = bench.run(async move |lab| {
            let spaces = lab.create().await?;
            let (space, row) = space_of_two_columns(&lab, &outside, &spaces).await?;
            report.set(row);
            write_over(&lab, &space, row, 1..=1).await?;
            spaces.flush().await?;
            spaces.pool().exclude(DiskSlot(0), ExcludeReason::Asked).await?;
            for fill in 2..=LAST {
                write_over(&lab, &space, row, fill..=fill).await?;
                spaces.pool().checkpoint().await?;
            }
            lab.hold((spaces, space));
            Ok(())
        });
        first.unwrap();
        bench.world.kill();
        let lab = bench.lab();
        let second = async move {
            let spaces = lab.open().await.map_err(text)?;
            spaces.pool().checkpoint().await.map_err(text)?;
            lab.hold(spaces);
            Ok::<(), String>(())
        };
        let has_ended = match bench.world.run_to(StopAt::Commands(commands), second).unwrap() {
            Ran::Finished(result) => result.map(|()| true).unwrap(),
            Ran::Stopped => false,
        };
        bench.world.kill();
        let row = row.get();
        let verified = bench.run(async move |lab| {
            let spaces = lab.open().await?;
            let space = spaces.find("data")?;
            for block in blocks(row) {
                lab.expect(&space, block * 4096, 4096, LAST).await?;
            }
            drop(space);
            if spaces.counters().lost_pages > 0 {
                return Err("a page of a table is lost".into());
            }
            lab.check_and_close(spaces).await
        });
        verified.unwrap_or_else(|error| panic!("killed after {commands} commands: {error}"));
        if has_ended {
            break;
        }
    }
}

/// Which of some fills each sector of the first block of a space holds.
async fn fills_of(
    space: &Space,
    fills: std::ops::RangeInclusive<u8>,
) -> Result<Vec<Option<u8>>, Box<dyn Error>> {
    let bytes = crate::harness::read(space, 0, 4096).await?;
    let sectors = bytes.chunks(512).enumerate().map(|(number, sector)| {
        fills.clone().find(|fill| {
            let mut block = vec![0; 4096];
            crate::harness::pattern(0, *fill, &mut block);
            block[number * 512..][..512] == *sector
        })
    });
    Ok(sectors.collect())
}

/// Scenario: a block that a flush has covered, and of which its table says nothing yet, is written over in part when the only disk that
/// has it leaves. Two find that out before the next flush: a write that fails, and the flush itself. Power fails, and the disk
/// is back with a block that is torn. What was flushed is a part of it, or all; it is never taken for one that nobody wrote.
#[test]
fn flushed_content_is_known_however_often_its_block_is_in_doubt() {
    let torn = Rc::new(Cell::new(0));
    for seed in 1600..1640 {
        let dial = Dial::default();
        let bench = Rc::new(Bench::with_profile(seed, 3, || dial.profile().tearing()));
        let (outside, slowly) = (Rc::clone(&bench), dial.clone());
        let held = Rc::new(Cell::new(0));
        let report = Rc::clone(&held);
        let served = bench.run(async move |lab| {
            let spaces = lab.create().await?;
            let space = lab.space(&spaces, "data", Bytes::mib(2), Resiliency::Span).await?;
            lab.write(&space, 1 << 20, 4096, 9).await?;
            spaces.flush().await?;
            spaces.pool().checkpoint().await?;
            lab.write(&space, 0, 4096, 1).await?;
            spaces.flush().await?;
            lab.write(&space, 0, 4096, 2).await?;
            let has_it = |disk: &usize| !crate::harness::places_of(&outside.disks[*disk], 0..1, 2).is_empty();
            let disk = (0..3).find(has_it).ok_or("no disk has the block")?;
            report.set(disk);
            slowly.write.set(SLOW);
            // Neither write nor flush can end as it was meant to.
            let write = async {
                let _ = lab.write(&space, 0, 4096, 3).await;
                Ok(())
            };
            let leave = async {
                pause(&lab, SLOW / 2).await;
                outside.disks[disk].vanish();
                pause(&lab, SLOW).await;
                let _ = spaces.flush().await;
                Ok(())
            };
            extra(vec![Box::pin(write), Box::pin(leave)]).await?;
            lab.hold((spaces, space));
            Ok(())
        });
        served.unwrap();
        bench.world.power_cut();
        dial.write.set(0);
        bench.disks[held.get()].come_back();
        let count = Rc::clone(&torn);
        let verified = bench.run(async move |lab| {
            let spaces = lab.open().await?;
            let mut fills = fills_of(&spaces.find("data")?, 1..=3).await?;
            assert!(!fills.contains(&None), "with seed {seed}: {fills:?}");
            fills.dedup();
            count.set(count.get() + u64::from(fills.len() > 1));
            spaces.close().await?;
            Ok(())
        });
        verified.unwrap_or_else(|error| panic!("with seed {seed}: {error}"));
    }
    assert!(torn.get() > 5, "blocks were to tear: {}", torn.get());
}

/// A disk whose writes take a moment, and whose log and labels take as long as is said beside that.
struct SlowLog(Rc<Cell<Duration>>);

impl LatencyModel for SlowLog {
    fn latency(&self, request: Request, random: &mut Random) -> Duration {
        let is_log = request.at < DATA_AT;
        let more = match request.kind {
            CommandKind::Read if is_log && request.length > 64 << 10 => 8 * self.0.get(),
            CommandKind::Write if is_log => self.0.get(),
            _ => Duration::ZERO,
        };
        Slow::BRIEFLY.latency(request, random) + more
    }
}

/// Scenario: a disk gives its only copy to another, and leaves in the moment in which the other one has everything. A flush begins to
/// leave in doubt what it had not covered, and while it reads the log, a client discards that: the row is in reach again. Nothing
/// of what was there before comes back.
#[test]
fn what_is_discarded_while_it_becomes_in_doubt_stays_discarded() {
    // From where the mover has flushed to where it has done.
    for offset in 10..30 {
        let takes = Rc::new(Cell::new(Duration::ZERO));
        let profile =
            || DiskProfile { latency: Rc::new(SlowLog(Rc::clone(&takes))), ..Slow::BRIEFLY.profile() };
        let bench = Rc::new(Bench::with_profile(500, 3, profile));
        let spare = bench.disks[2].attach(&bench.world);
        let inside = Rc::clone(&bench);
        let done = bench.run_in(bench.lab_with(|disk| disk < 2), async move |lab| {
            let spaces = lab.create().await?;
            let space = lab.space(&spaces, "data", ROW, Resiliency::Simple).await?;
            lab.write(&space, 0, WHOLE, 1).await?;
            spaces.flush().await?;
            lab.write(&space, 0, WHOLE, 2).await?;
            let has_it = |disk: &usize| !crate::harness::places_of(&inside.disks[*disk], 0..1, 2).is_empty();
            let name = format!("disk{}", (0..2).find(has_it).ok_or("it is nowhere")?);
            let pool = spaces.pool();
            let old = pool.members().find_disk(&name)?;
            let new = pool.membership().add_instead_of(&old, spare, &[]).await?;
            // It carries metadata by then.
            pause(&lab, 1000).await;
            let has_left = Cell::new(false);
            let replace = async {
                // Whether it came to its end does not matter here.
                drop(spaces.moves().finish_replacing(&old, &new, &Progress::default()).await);
                Ok(())
            };
            let leave = async {
                pause(&lab, offset).await;
                // All that was written before may have been flushed by whoever moves it.
                lab.write(&space, 0, WHOLE, 3).await.map_err(text)?;
                takes.set(Duration::from_millis(15));
                pool.exclude(old.slot(), ExcludeReason::Asked).await.map_err(text)?;
                has_left.set(true);
                // It may be called in doubt by the time that it ends.
                drop(space.flush().await);
                Ok(())
            };
            let discard_one = async |block: u64| {
                pause(&lab, 3 * block).await;
                // Until the row is in reach again, if it ever is.
                for _ in 0..2000 {
                    if space.discard(block * 4096, 4096).await.is_ok() {
                        return true;
                    }
                    pause(&lab, 2).await;
                }
                false
            };
            let discard = async {
                while !has_left.get() {
                    pause(&lab, 1).await;
                }
                let discarded = join_all((1..ROW.0 / 4096).map(discard_one)).await;
                if !discarded.iter().all(|is_done| *is_done) {
                    return Ok(());
                }
                pause(&lab, 1000).await;
                let found = crate::harness::read(&space, 4096, WHOLE - 4096).await.map_err(text)?;
                let back =
                    found.chunks_exact(4096).filter(|block| block.iter().any(|byte| *byte != 0)).count();
                if back == 0 { Ok(()) } else { Err(format!("{back} blocks that were discarded are back")) }
            };
            extra(vec![Box::pin(replace), Box::pin(leave), Box::pin(discard)]).await?;
            lab.hold((spaces, space));
            Ok(())
        });
        done.unwrap_or_else(|error| panic!("after {offset} ms: {error}"));
    }
}
