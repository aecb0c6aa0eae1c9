//! Reads of blocks whose tables are not in memory.
#![allow(clippy::unwrap_used)]

use std::rc::Rc;
use std::time::Duration;

use dolmen_block_io::BlockDevice;
use dolmen_sim::{DiskProfile, SimpleLatency};
use dolmen_space::{Resiliency, SpaceSpec};
use dolmen_units::Bytes;

use crate::harness::{Bench, file};

/// What each command takes.
const STEP: Duration = Duration::from_millis(1);
const ROW: Bytes = Bytes::mib(16);
/// Blocks far enough from each other that each has a table page of its own.
const APART: u64 = 4 << 20;

fn reads(disks: &[Rc<dyn BlockDevice>]) -> u64 {
    disks.iter().map(|disk| disk.counters().reads).sum()
}

/// Scenario: each command of a disk takes a millisecond, and a pool with a mirror is opened again. The first read of a row reads the map
/// too; the next one, of a block with another table page, reads both slots of the page with one command of each copy, and the block
/// beside them: three commands, in the time of one. What was never written is read as zeros, and what is known takes one command.
#[test]
fn a_cold_read_takes_the_time_of_one_command() {
    let latency = SimpleLatency { fixed_ns: 1_000_000, per_kib_ns: 0, jitter_ns: 0 };
    let profile = || DiskProfile { latency: Rc::new(latency), ..file(Bytes::mib(128)) };
    let bench = Bench::with_profile(5, 2, profile);
    let made = bench.run(async |lab| {
        let spaces = lab.create().await?;
        let mut spec = SpaceSpec::usual("data".parse()?, ROW, Resiliency::Mirror { copies: 2 });
        spec.row = Some(ROW);
        let space = spaces.create(spec).await?;
        for number in 0..3 {
            lab.write(&space, number * APART, 4096, 1).await?;
        }
        drop(space);
        lab.check_and_close(spaces).await
    });
    made.unwrap();
    let found = bench.run(async move |lab| {
        let spaces = lab.open().await?;
        let space = spaces.find("data")?;
        let clock = Rc::clone(&lab.seams.clock);
        lab.expect(&space, 0, 4096, 1).await?;
        let mut seen = Vec::new();
        for (at, fill) in [(APART, 1), (APART, 1), (2 * APART, 1), (3 * APART, 0)] {
            let (begun, before) = (clock.now(), reads(&lab.devices));
            lab.expect(&space, at, 4096, fill).await?;
            seen.push((clock.now().since(begun), reads(&lab.devices) - before));
        }
        assert_eq!(seen, [(STEP, 3), (STEP, 1), (STEP, 3), (STEP, 3)]);
        drop(space);
        lab.check_and_close(spaces).await
    });
    found.unwrap();
}
