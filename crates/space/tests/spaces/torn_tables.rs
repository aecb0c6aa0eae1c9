//! Table pages that power tears while they are written: the one that stands is in the other slot.
#![allow(clippy::unwrap_used)]

use std::cell::Cell;
use std::rc::Rc;

use dolmen_sim::{Fate, PendingWrite, Tear};
use dolmen_space::Resiliency;
use dolmen_units::Bytes;

use crate::harness::{Bench, file};

/// Where the data of a disk begins.
const DATA_AT: u64 = 9 << 20;
/// Write-backs of the one table that there is.
const TIMES: u8 = 4;

/// A part of a space for each time.
fn part(time: u8) -> u64 {
    u64::from(time) << 16
}

/// Writes, flushes and writes tables back over and over, and stops at a write or flush of the last write-back; whether it came so far.
fn stopped_in_a_write_back(bench: &Bench, steps: u64) -> bool {
    let (is_last, is_over): (Rc<Cell<bool>>, Rc<Cell<bool>>) = Default::default();
    let (lab, last, over) = (bench.lab(), Rc::clone(&is_last), Rc::clone(&is_over));
    let run = async move {
        let spaces = lab.create().await.unwrap();
        let space = lab.space(&spaces, "data", Bytes::mib(2), Resiliency::Simple).await.unwrap();
        for time in 1..=TIMES {
            lab.write(&space, part(time), 1 << 16, time).await.unwrap();
            spaces.flush().await.unwrap();
            last.set(time == TIMES);
            spaces.pool().checkpoint().await.unwrap();
        }
        over.set(true);
        std::future::pending::<()>().await;
    };
    bench.world.spawn("run", Box::pin(run));
    bench.world.run_until(|_| is_last.get()).unwrap();
    let begun = bench.world.change_count();
    bench.world.run_until(|world| is_over.get() || world.change_count() >= begun + steps).unwrap();
    !is_over.get()
}

/// Has power fail at each write and flush of a write-back, and tear whatever is on its way to the data of the disk; where the rest of
/// it cannot be read then, if that is asked for. All that was flushed before has to be there.
fn expect_the_page_before(is_unreadable: bool) {
    let mut torn = 0;
    for steps in 0.. {
        let bench = Bench::with_profile(77, 1, || file(Bytes::mib(96)).tearing());
        if !stopped_in_a_write_back(&bench, steps) {
            break;
        }
        let mut torn_at = Vec::new();
        bench.world.power_cut_choosing(&mut |write: &PendingWrite| {
            if write.at < DATA_AT || write.unit_count < 2 {
                return Fate::Landed;
            }
            torn += 1;
            torn_at.push(write.at);
            // The head of the new page, and what the one before says of blocks.
            Fate::Torn(Tear::First(1))
        });
        for at in torn_at.into_iter().filter(|_| is_unreadable) {
            bench.disks.first().unwrap().make_unreadable(at + 512);
        }
        let found = bench.run(async |lab| {
            let spaces = lab.open().await?;
            let space = spaces.find("data")?;
            for time in 1..=TIMES {
                lab.expect(&space, part(time), 1 << 16, time).await?;
            }
            drop(space);
            lab.check_and_close(spaces).await
        });
        found.unwrap_or_else(|error| panic!("behind {steps} writes and flushes: {error}"));
    }
    assert!(torn > 0, "no page was torn");
}

/// Scenario: a space of one copy, whose table has been written to both slots and since. Power fails at each write and flush of a
/// write-back, and tears whatever was on its way to the data of the disk. All that was flushed before is there.
#[test]
fn a_page_that_power_tears_leaves_the_one_before() {
    expect_the_page_before(false);
}

/// Scenario: the same, and a sector of what was torn cannot be read. Both slots are read with one command, which fails; all that was
/// flushed before is there.
#[test]
fn a_page_that_power_makes_unreadable_leaves_the_one_before() {
    expect_the_page_before(true);
}
