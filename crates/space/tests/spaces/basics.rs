//! The plain life of spaces: made, written, read, flushed, reopened, each time ending in a check.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use dolmen_block_io::sync::join_all;
use dolmen_buffer::ArenaConfig;
use dolmen_pool::MemoryArbiter;
use dolmen_sim::{CommandKind, DiskProfile, LatencyModel, Random, Request, World};
use dolmen_space::{Resiliency, SpaceSpec};
use dolmen_units::{Bytes, HostId};

use crate::harness::Bench;

/// Every resiliency: what was written is read, before and after the pool was closed and opened again.
#[test]
fn what_was_written_is_read_after_reopening() {
    for resiliency in crate::harness::RESILIENCIES {
        let bench = Bench::new(1, 4, Bytes::mib(96));
        let outcome = bench.run(async move |lab| {
            let spaces = lab.create().await?;
            let space = lab.space(&spaces, "data", Bytes::mib(24), resiliency).await?;
            for (at, length, fill) in
                [(0, 4096, 1), (1 << 20, 256 * 1024, 2), (5 * 1024 * 1024 + 4096, 1 << 20, 3)]
            {
                lab.write(&space, at, length, fill).await?;
            }
            lab.expect(&space, 0, 4096, 1).await?;
            spaces.flush().await?;
            lab.write(&space, 1 << 20, 4096, 9).await?;
            spaces.close().await?;
            drop((space, spaces));
            let spaces = lab.open().await?;
            let space = spaces.find("data")?;
            lab.expect(&space, 0, 4096, 1).await?;
            lab.expect(&space, 1 << 20, 4096, 9).await?;
            lab.expect(&space, (1 << 20) + 4096, 252 * 1024, 2).await?;
            lab.expect(&space, 5 * 1024 * 1024 + 4096, 1 << 20, 3).await?;
            lab.expect(&space, 9 << 20, 8192, 0).await?;
            lab.check_and_close(spaces).await
        });
        outcome.unwrap();
    }
}

/// A thin space with rows that lie apart. Pages of any length show exactly the rows that are claimed, before and after an opening, and a
/// row that is discarded is in none.
#[test]
fn claimed_rows_are_listed_page_by_page() {
    let bench = Bench::new(1, 4, Bytes::mib(96));
    let outcome = bench.run(async move |lab| {
        let spaces = lab.create().await?;
        let space = lab.space(&spaces, "data", Bytes::mib(24), Resiliency::Mirror { copies: 2 }).await?;
        let row = space.row_bytes();
        for index in [0, 1, 2, 5, 7, 8] {
            lab.write(&space, index * row, 4096, 1).await?;
        }
        let listed = async |space: &dolmen_space::Space, ranges_max| {
            let (mut ranges, mut from) = (Vec::new(), Some(0));
            while let Some(first) = from {
                let page = space.claimed_rows(first, ranges_max).await?;
                assert!(page.ranges.len() <= ranges_max.max(1));
                ranges.extend(page.ranges);
                from = page.next;
            }
            Ok::<_, dolmen_space::SpaceError>(ranges)
        };
        for ranges_max in [0, 1, 2, 3, 100] {
            assert_eq!(listed(&space, ranges_max).await?, [0..3, 5..6, 7..9], "{ranges_max}");
        }
        assert_eq!(space.claimed(), Bytes(6 * row));
        space.discard(5 * row, row).await?;
        spaces.flush().await?;
        spaces.close().await?;
        drop((space, spaces));
        let spaces = lab.open().await?;
        let space = spaces.find("data")?;
        assert_eq!(listed(&space, 1).await?, [0..3, 7..9]);
        assert_eq!(space.claimed(), Bytes(5 * row));
        drop(space);
        lab.check_and_close(spaces).await
    });
    outcome.unwrap();
}

/// Every interleave there is, with rows of the length that a space has when nobody gives one: what is written across several of
/// them is read with any one disk gone.
#[test]
fn every_interleave_is_read_without_any_one_disk() {
    /// Mebibytes that are written, from the second block on.
    const PIECES: u64 = 3;
    let place = |piece: u64| 4096 + (piece << 20);
    let kinds = [Resiliency::Mirror { copies: 2 }, Resiliency::Parity { parity: 1 }];
    for (interleave, resiliency) in (4..=10).flat_map(|bits| kinds.map(|kind| (Bytes::kib(1 << bits), kind)))
    {
        let bench = Bench::new(3, 4, Bytes::mib(384));
        let made = bench.run(async move |lab| {
            let spaces = lab.create().await?;
            let mut spec = SpaceSpec::usual("data".parse()?, Bytes::mib(32), resiliency);
            spec.interleave = interleave;
            let space = spaces.create(spec).await?;
            for piece in 0..PIECES {
                lab.write(&space, place(piece), 1 << 20, 5).await?;
            }
            lab.write(&space, place(1), 65536, 6).await?;
            spaces.flush().await?;
            drop(space);
            lab.check_and_close(spaces).await
        });
        made.unwrap_or_else(|error| panic!("{interleave} of {resiliency:?}: {error}"));
        for freed in 0..4 {
            let without = bench.run_in(bench.lab_with(|disk| disk != freed), async move |lab| {
                let spaces = lab.open().await?;
                let space = spaces.find("data")?;
                lab.expect(&space, place(0), 1 << 20, 5).await?;
                lab.expect(&space, place(1), 65536, 6).await?;
                lab.expect(&space, place(1) + 65536, (1 << 20) - 65536, 5).await?;
                lab.expect(&space, place(2), 1 << 20, 5).await?;
                lab.expect(&space, place(PIECES), 65536, 0).await?;
                Ok(spaces.close().await?)
            });
            without.unwrap_or_else(|error| panic!("{interleave} of {resiliency:?} without {freed}: {error}"));
        }
    }
}

/// How fast a disk is whose every command takes the same time; it counts reads.
struct Counted {
    each: Duration,
    reads: Rc<Cell<u64>>,
}

impl LatencyModel for Counted {
    fn latency(&self, request: Request, _: &mut Random) -> Duration {
        self.reads.set(self.reads.get() + u64::from(request.kind == CommandKind::Read));
        self.each
    }
}

/// A mirror over a slow disk and a fast one, read at random with eight requests under way: the fast copy
/// answers more than seven of eight.
#[test]
fn reads_go_to_the_copy_that_is_less_busy() {
    let world = World::new(4);
    world.set_arenas(ArenaConfig::MODEST, ArenaConfig::MODEST);
    let counts: [Rc<Cell<u64>>; 2] = Default::default();
    let disks = counts.iter().zip([20, 1]).map(|(reads, millis)| {
        let latency = Counted { each: Duration::from_millis(millis), reads: Rc::clone(reads) };
        let profile = DiskProfile { latency: Rc::new(latency), ..crate::harness::file(Bytes::mib(96)) };
        world.add_disk(&format!("{millis}"), profile)
    });
    let disks = disks.collect();
    let bench = Bench { world, disks, arbiter: MemoryArbiter::new(HostId([7; 16])) };
    let seen = counts.clone();
    bench
        .run(async move |lab| {
            let spaces = lab.create().await?;
            let mirror = dolmen_space::Resiliency::Mirror { copies: 2 };
            let space = lab.space(&spaces, "data", Bytes::mib(8), mirror).await?;
            for row in 0..8 {
                lab.write(&space, row << 20, 1 << 20, 1).await?;
            }
            spaces.flush().await?;
            seen.iter().for_each(|reads| reads.set(0));
            let reader = async |first: u64| {
                for number in 0..50 {
                    space.read((first * 50 + number) * 7919 % 2048 * 4096, 4096).await?;
                }
                Ok::<_, dolmen_space::SpaceError>(())
            };
            join_all((0..8).map(reader)).await.into_iter().collect::<Result<(), _>>()?;
            let [slow, fast] = [0, 1].map(|disk: usize| seen[disk].get());
            assert!(fast > 7 * slow, "{slow} reads from the slow disk, {fast} from the fast one");
            lab.check_and_close(spaces).await
        })
        .unwrap();
}
