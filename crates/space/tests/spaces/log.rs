//! What the log of a small pool has room for: those who write at once, and what is relogged before it is trimmed.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use dolmen_block_io::Durability;
use dolmen_block_io::sync::join_all;
use dolmen_sim::{DiskProfile, Ran, Random, StopAt};
use dolmen_space::{Resiliency, Space, SpaceSpec, Spaces};
use dolmen_units::Bytes;

use crate::harness::slow_disks::{Dial, text};
use crate::harness::{Bench, Lab, Outcome};

const KINDS: [Resiliency; 2] = [Resiliency::Parity { parity: 1 }, Resiliency::Parity { parity: 2 }];

/// Five disks, of which a pool has the shortest log that there is.
fn small(seed: u64, dial: &Dial) -> Bench {
    Bench::with_profile(seed, 5, || DiskProfile {
        latency: dial.profile().latency,
        ..crate::harness::file(Bytes::mib(640))
    })
}

async fn spaces_of(spaces: &Spaces, kinds: &[Resiliency]) -> Result<Vec<Space>, Box<dyn std::error::Error>> {
    let mut made = Vec::new();
    for (number, kind) in kinds.iter().enumerate() {
        made.push(
            spaces.create(SpaceSpec::usual(format!("data{number}").parse()?, Bytes::mib(128), *kind)).await?,
        );
    }
    Ok(made)
}

/// Writes that are under way together.
const WRITES: usize = 16_000;

/// So many writes are under way together that their records alone would fill the log: all of them come to an end.
#[test]
fn writes_that_are_under_way_together_do_not_fill_the_log() {
    let dial = Dial::default();
    let bench = small(1, &dial);
    let slowly = dial.clone();
    bench
        .run(async move |lab| {
            let spaces = lab.create().await?;
            let made = spaces_of(&spaces, &KINDS).await?;
            let mut buffer = lab.seams.data.take(4096).await;
            buffer.fill(7);
            let block = buffer.freeze();
            slowly.write.set(5);
            // Each is a task of its own: whoever waits for all of them in one asks all when one of them has moved.
            let (under_way, refused) = (Rc::new(Cell::new(WRITES)), Rc::new(RefCell::new(None)));
            for number in 0..WRITES {
                let (space, block) = (made[number % made.len()].clone(), block.clone());
                let (under_way, refused) = (Rc::clone(&under_way), Rc::clone(&refused));
                // No two of them beside each other: each is said by itself.
                let at = (number / made.len()) as u64 * 3 * 4096;
                let write = async move {
                    if let Err(error) = space.write(at, &block, Durability::Cached).await {
                        refused.replace(Some(text(error)));
                    }
                    under_way.set(under_way.get() - 1);
                };
                lab.seams.spawner.spawn("write", Box::pin(write));
            }
            while under_way.get() > 0 {
                dolmen_block_io::sleep(lab.seams.clock.as_ref(), Duration::from_millis(1)).await;
            }
            refused.take().map_or(Ok(()), Err)?;
            spaces.flush().await?;
            drop(made);
            lab.check_and_close(spaces).await
        })
        .unwrap();
}

/// Clients that write single blocks here and there, for as long as the daemon lives.
async fn write_here_and_there(lab: Lab, seed: u64) -> Outcome {
    let spaces = lab.create().await?;
    let made = spaces_of(&spaces, &KINDS).await?;
    let writers = (0..8).map(|number| {
        let (lab, space) = (lab.clone(), made[number % made.len()].clone());
        let mut random = Random::derived(seed, number as u64);
        async move {
            loop {
                lab.write(&space, random.below(128 << 8) * 4096, 4096, 1).await.map_err(text)?;
                if random.below(50) == 0 {
                    space.flush().await.map_err(text)?;
                }
            }
        }
    });
    join_all(writers).await.into_iter().collect::<Result<(), String>>()?;
    Ok(())
}

/// The daemon is killed under load, and again while it opens the pool, as often as a label can tell openings apart: what it says
/// again of what is cached does not fill the log, and the opening that is left alone ends.
#[test]
fn openings_that_die_one_after_another_do_not_fill_the_log() {
    for seed in 0..4 {
        let bench = small(seed, &Dial::default());
        let ran =
            bench.world.run_to(StopAt::Steps(60_000 + seed * 7000), write_here_and_there(bench.lab(), seed));
        assert!(matches!(ran, Ok(Ran::Stopped)), "the clients have ended");
        bench.world.kill();
        let mut random = Random::derived(seed, 100);
        for _ in 0..12 {
            let lab = bench.lab();
            let opening = async move { lab.open().await.map(drop).map_err(text) };
            let _ = bench.world.run_to(StopAt::Steps(100 + random.below(500)), opening);
            bench.world.kill();
        }
        bench
            .run(async move |lab| {
                let spaces = lab.open().await?;
                lab.check_and_close(spaces).await
            })
            .unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    }
}

/// More is written at once, and discarded at once, than an empty write cache may have said of it: those who find no room wait for
/// the others, and nobody is refused.
#[test]
fn whoever_waits_for_what_others_are_about_to_cache_is_not_refused() {
    let dial = Dial::default();
    let bench = small(2, &dial);
    bench
        .run(async move |lab| {
            let spaces = lab.create().await?;
            let made = spaces_of(&spaces, &KINDS[..1]).await?;
            let space = &made[0];
            let mut buffer = lab.seams.data.take(1 << 20).await;
            buffer.fill(7);
            let content = buffer.freeze();
            dial.write.set(5);
            let writes = (0..40).map(|number| space.write(number << 20, &content, Durability::Cached));
            for outcome in join_all(writes).await {
                outcome?;
            }
            spaces.flush().await?;
            for outcome in join_all((0..40).map(|number| space.discard(number << 20, 1 << 20))).await {
                outcome?;
            }
            drop(made);
            lab.check_and_close(spaces).await
        })
        .unwrap();
}
