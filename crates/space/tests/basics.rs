//! The plain life of spaces: made, written, read, flushed, reopened, each time ending in a check.

mod harness;

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use dolmen_block_io::sync::join_all;
use dolmen_buffer::ArenaConfig;
use dolmen_pool::MemoryArbiter;
use dolmen_sim::{CommandKind, DiskProfile, LatencyModel, Random, Request, World};
use dolmen_units::{Bytes, HostId};
use harness::Bench;

/// Every resiliency: what was written is read, before and after the pool was closed and opened again.
#[test]
fn what_was_written_is_read_after_reopening() {
    for resiliency in harness::RESILIENCIES {
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
        let profile = DiskProfile { latency: Rc::new(latency), ..harness::file(Bytes::mib(96)) };
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
