//! Clients that survive a daemon: of what they were told that it was done and that is not there any more, the next flush tells.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use dolmen_block_io::{Durability, sleep};
use dolmen_pool::ExcludeReason;
use dolmen_space::{Clients, Resiliency, Space, SpaceError, SpaceSpec, Spaces};
use dolmen_units::{Bytes, DiskSlot};

use crate::harness::slow_disks::Dial;
use crate::harness::{Bench, Lab, ROW};

const BLOCK: usize = 4096;

/// A space, and what is written to it at once.
#[derive(Debug, Clone, Copy)]
struct Case {
    resiliency: Resiliency,
    columns: u8,
    length: usize,
    /// Disks that a block is on.
    copies: usize,
}

const CASES: [Case; 4] = [
    Case { resiliency: Resiliency::Simple, columns: 1, length: BLOCK, copies: 1 },
    Case { resiliency: Resiliency::Mirror { copies: 2 }, columns: 1, length: BLOCK, copies: 2 },
    // A stripe goes in place at once, a part of one to the write cache, which has two copies.
    Case { resiliency: Resiliency::Parity { parity: 1 }, columns: 2, length: 2 * 64 * 1024, copies: 2 },
    Case { resiliency: Resiliency::Parity { parity: 1 }, columns: 2, length: BLOCK, copies: 2 },
];

impl Case {
    async fn make(&self, lab: &Lab, spaces: &Spaces) -> Result<Space, Box<dyn std::error::Error>> {
        let mut spec = SpaceSpec::usual("data".parse()?, Bytes::mib(8), self.resiliency);
        (spec.row, spec.interleave) = (Some(ROW), Bytes::kib(64));
        spec.columns = Some(self.columns);
        let space = spaces.create(spec).await?;
        // The row is there, and something else of it is flushed.
        lab.write(&space, 4 * 128 * 1024, 128 * 1024, 9).await?;
        space.flush().await?;
        Ok(space)
    }
}

/// How the disks leave that have what was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Leaving {
    /// Their power fails, and what they had cached is gone.
    WithoutCache,
    /// They are asked to leave.
    WithAll,
}

/// All disks with what was written leave before a flush has covered it; the flush fails, as it has to, and the daemon is killed.
/// The disks come back.
fn left_by(case: Case, seed: u64, leaving: Leaving) -> Rc<Bench> {
    let bench = Rc::new(Bench::new(seed, 6, Bytes::mib(96)));
    let outside = Rc::clone(&bench);
    bench
        .run(async move |lab| {
            let spaces = lab.create().await?;
            let space = case.make(&lab, &spaces).await?;
            lab.write(&space, 0, case.length, 1).await?;
            let blocks = (case.length / BLOCK) as u64;
            let has_it =
                |disk: &usize| !crate::harness::places_of(&outside.disks[*disk], 0..blocks, 1).is_empty();
            let freed: Vec<usize> = (0..outside.disks.len()).filter(has_it).collect();
            assert_eq!(freed.len(), case.copies, "{freed:?}");
            for disk in freed {
                match leaving {
                    Leaving::WithoutCache => outside.disks[disk].vanish(),
                    Leaving::WithAll => {
                        let slot = DiskSlot(u16::try_from(disk)?);
                        spaces.pool().exclude(slot, ExcludeReason::Asked).await?;
                    }
                }
            }
            assert!(matches!(space.flush().await, Err(SpaceError::Unflushed { .. })));
            lab.hold((spaces, space));
            Ok(())
        })
        .unwrap_or_else(|error| panic!("{case:?}: {error}"));
    bench.world.kill();
    for disk in bench.disks.iter().filter(|disk| disk.is_absent()) {
        disk.come_back();
        assert!(disk.return_to(0));
    }
    bench
}

/// Scenario: what was acknowledged left with its disks, and they are back without it when the next daemon opens the pool. The
/// first flush says so, to whoever has survived the daemon, and no other; where nobody can have, none does.
#[test]
fn one_flush_reports_what_an_opening_finds_lost() {
    for (number, case) in (0..).zip(CASES) {
        for clients in [Clients::MayLive, Clients::Ended] {
            let bench = left_by(case, 4100 + number, Leaving::WithoutCache);
            let verified = bench.run(async move |lab| {
                let spaces = lab.open_among(clients).await?;
                let space = spaces.find("data")?;
                lab.expect(&space, 0, case.length, 0).await?;
                let is_reported = clients == Clients::MayLive;
                assert_eq!(space.has_reverted(), is_reported);
                let first = space.flush().await;
                assert_eq!(matches!(first, Err(SpaceError::Unflushed { .. })), is_reported, "{first:?}");
                space.flush().await?;
                lab.write(&space, 0, case.length, 3).await?;
                space.flush().await?;
                drop(space);
                lab.check_and_close(spaces).await
            });
            verified.unwrap_or_else(|error| panic!("{case:?}, {clients:?}: {error}"));
        }
    }
}

/// Scenario: the disks are back with what they had. Nothing is gone, and no flush fails.
#[test]
fn what_an_opening_finds_whole_fails_no_flush() {
    for (number, case) in (0..).zip(CASES) {
        let bench = left_by(case, 4200 + number, Leaving::WithAll);
        let verified = bench.run(async move |lab| {
            let spaces = lab.open_among(Clients::MayLive).await?;
            let space = spaces.find("data")?;
            lab.expect(&space, 0, case.length, 1).await?;
            assert!(!space.has_reverted());
            space.flush().await?;
            drop(space);
            lab.check_and_close(spaces).await
        });
        verified.unwrap_or_else(|error| panic!("{case:?}: {error}"));
    }
}

/// Scenario: a daemon is killed under writes, at many moments. What was under way was acknowledged to nobody, and may be what it
/// was before; whoever sends it again must not have a flush fail for it.
#[test]
fn what_was_under_way_when_the_daemon_was_killed_fails_no_flush() {
    let mut reverted = 0;
    for (number, case) in (0..).zip(CASES) {
        for instant in 0..12 {
            let dial = Dial::default();
            let bench = Rc::new(Bench::with_profile(4300 + number, 6, || dial.profile()));
            let slowly = dial.clone();
            bench
                .run(async move |lab| {
                    let spaces = lab.create().await?;
                    let space = case.make(&lab, &spaces).await?;
                    lab.write(&space, 0, case.length, 1).await?;
                    // Written over since the last flush: the record goes before the data.
                    slowly.write.set(2);
                    let (writing, writer) = (space.clone(), lab.seams.clone());
                    let again = async move {
                        let mut buffer = writer.data.take(case.length).await;
                        crate::harness::pattern(0, 2, &mut buffer);
                        drop(writing.write(0, &buffer.freeze(), Durability::Cached).await);
                    };
                    lab.seams.spawner.spawn("writer", Box::pin(again));
                    sleep(lab.seams.clock.as_ref(), Duration::from_millis(instant)).await;
                    lab.hold((spaces, space));
                    Ok(())
                })
                .unwrap_or_else(|error| panic!("{case:?}: {error}"));
            bench.world.kill();
            dial.write.set(0);
            let found = Rc::new(Cell::new(0));
            let report = Rc::clone(&found);
            let verified = bench.run(async move |lab| {
                let spaces = lab.open_among(Clients::MayLive).await?;
                report.set(spaces.recovery().reverted);
                let space = spaces.find("data")?;
                space.flush().await?;
                drop(space);
                lab.check_and_close(spaces).await
            });
            verified.unwrap_or_else(|error| panic!("{case:?} after {instant} ms: {error}"));
            reverted += found.get();
        }
    }
    assert!(reverted > 0, "no write was under way when it was killed");
}
