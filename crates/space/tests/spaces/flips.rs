//! Single whole stripes over old content: lines that go to and fro between a row and its heir (docs/design/0026).
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::cast_possible_truncation)]

use std::cell::RefCell;
use std::error::Error;
use std::rc::Rc;
use std::time::Duration;

use dolmen_block_io::sleep;
use dolmen_block_io::sync::join_all;
use dolmen_sim::Random;
use dolmen_space::{Resiliency, Space, SpaceSpec, Spaces};
use dolmen_units::Bytes;

use crate::harness::{Bench, Lab, Outcome, ROW};

/// Of two columns with an interleave of 16 KiB.
const STRIPE: u64 = 32 << 10;
const ROW_BYTES: u64 = 1 << 20;
/// Stripes of a row.
const OF_ROW: u64 = ROW_BYTES / STRIPE;
const BLOCK: u64 = 4096;

async fn make(spaces: &Spaces, size: Bytes) -> Result<Rc<Space>, Box<dyn Error>> {
    let mut spec = SpaceSpec::usual("data".parse()?, size, Resiliency::Parity { parity: 1 });
    (spec.row, spec.columns, spec.interleave) = (Some(ROW), Some(2), Bytes::kib(16));
    Ok(spaces.create(spec).await?)
}

/// Writes rows from their beginning to their end, and has a flush cover them.
async fn fill(lab: &Lab, spaces: &Spaces, space: &Rc<Space>, rows: u64) -> Outcome {
    for half in 0..2 * rows {
        lab.write(space, half * ROW_BYTES / 2, ROW_BYTES as usize / 2, 1).await?;
    }
    spaces.flush().await?;
    Ok(spaces.pool().checkpoint().await?)
}

/// Longer than an heir of which lines go to and fro waits for more of them.
async fn wait_for_idle(lab: &Lab) {
    sleep(lab.seams.clock.as_ref(), Duration::from_secs(660)).await;
}

fn written(lab: &Lab) -> u64 {
    lab.devices.iter().map(|device| device.counters().write_bytes).sum()
}

/// Scenario: eight rows in place; whole stripes are written again and again in no order, one after another and many together, twelve
/// times what the rows hold. None goes through the write cache: data and parity are written once, with records and tables.
/// When nobody has used them for long, the heirs are none any more; each stripe has what was written last.
#[test]
fn single_stripes_are_written_once() {
    const STRIPES: u64 = 8 * OF_ROW;
    let bench = Rc::new(Bench::new(21, 5, Bytes::mib(256)));
    let fills = Rc::new(RefCell::new(Vec::new()));
    let left = Rc::clone(&fills);
    bench
        .run(async move |lab| {
            let spaces = lab.create().await?;
            let space = make(&spaces, Bytes::mib(8)).await?;
            fill(&lab, &spaces, &space, 8).await?;
            let (mut random, mut fills) = (Random::new(3), vec![1; STRIPES as usize]);
            let before = written(&lab);
            let rounds = 12 * STRIPES / 8;
            for round in 0..rounds {
                let mut places: Vec<u64> = (0..8).map(|_| random.below(STRIPES)).collect();
                places.sort_unstable();
                places.dedup();
                let fill = 2 + (round % 250) as u8;
                places.iter().for_each(|stripe| fills[*stripe as usize] = fill);
                let writes = places.iter().map(|stripe| lab.write(&space, stripe * STRIPE, STRIPE as usize, fill));
                join_all(writes).await.into_iter().collect::<Outcome>()?;
            }
            spaces.flush().await?;
            let counters = spaces.counters();
            assert!(counters.lines_flipped > 0);
            assert_eq!(counters.heirs_made, 8, "one for each row");
            let data = rounds * 8 * STRIPE * 3 / 2;
            let more = (written(&lab) - before) as f64 / data as f64;
            println!("{more:.3} times data and parity, {counters:?}");
            assert!(more < 1.25, "written {more:.3} times data and parity");
            expect(&lab, &space, &fills).await?;
            wait_for_idle(&lab).await;
            let counters = spaces.counters();
            assert_eq!(counters.heirs_taken_over + counters.heirs_given_back, 8);
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

async fn expect(lab: &Lab, space: &Rc<Space>, fills: &[u8]) -> Outcome {
    for (stripe, fill) in (0..).zip(fills) {
        lab.expect(space, stripe * STRIPE, STRIPE as usize, *fill).await?;
    }
    Ok(())
}

/// Scenario: few stripes of a row are written. Its heir gives them back when nobody has used it for long, and all of its room is
/// free again; where a block was discarded of one, the heir takes the row's place. Where most of a row was written, it does
/// anyhow.
#[test]
fn an_heir_ends_the_cheaper_way() {
    for (count, discards, given_back) in [(3, false, true), (3, true, false), (OF_ROW - 3, false, false)] {
        let bench = Bench::new(22, 5, Bytes::mib(128));
        bench
            .run(async move |lab| {
                let spaces = lab.create().await?;
                let space = make(&spaces, Bytes::mib(8)).await?;
                fill(&lab, &spaces, &space, 1).await?;
                let free = || spaces.pool().room().iter().map(|room| room.free.0).sum::<u64>();
                let before = free();
                for stripe in 0..count {
                    lab.write(&space, stripe * STRIPE, STRIPE as usize, 2).await?;
                }
                assert!(free() < before, "there is an heir");
                if discards {
                    space.discard(STRIPE, BLOCK).await?;
                    spaces.flush().await?;
                    spaces.destage().await?;
                }
                wait_for_idle(&lab).await;
                let counters = spaces.counters();
                let found = (counters.heirs_given_back, counters.heirs_taken_over);
                assert_eq!(found, (given_back.into(), (!given_back).into()), "{count}, {discards}");
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

/// Scenario: a pool with little room; single stripes of many rows are written. Their heirs take no more than is free beside them, the
/// write cache takes the other stripes, and when rows are claimed until nothing is free, all heirs are given up for them.
#[test]
fn heirs_for_single_stripes_keep_nobody_from_the_last_room() {
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
            for row in 0..left {
                lab.write(&space, row * ROW_BYTES + 5 * STRIPE, STRIPE as usize, 2).await?;
            }
            let made = spaces.counters().heirs_made;
            assert!((2..=6).contains(&made), "{made} heirs where nine rows are free");
            for row in left..whole {
                write_row(row, 3).await?;
            }
            let counters = spaces.counters();
            assert_eq!(counters.heirs_given_back + counters.heirs_taken_over, counters.heirs_made);
            for row in 0..left {
                lab.expect(&space, row * ROW_BYTES, 5 * STRIPE as usize, 1).await?;
                lab.expect(&space, row * ROW_BYTES + 5 * STRIPE, STRIPE as usize, 2).await?;
            }
            drop(space);
            lab.check_and_close(spaces).await
        })
        .unwrap();
}
