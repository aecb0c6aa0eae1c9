//! A pool that was not closed, opened for reading only: it shows what an opening for writing would serve, the last writes
//! included, and not a byte on its disks has changed. `DOLMEN_LOOKED_SEEDS` says how many lives are drawn.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::disallowed_methods)]

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use dolmen_pool::OpenMode;
use dolmen_sim::Random;
use dolmen_space::{Resiliency, Space};
use dolmen_units::Bytes;

use crate::harness::{Bench, Kind, ROW, read};

const BLOCK: u64 = 4096;
const SIZE: Bytes = Bytes::mib(4);
const CAPACITY: Bytes = Bytes::mib(96);

const KINDS: [(Kind, usize); 7] = [
    (Kind::usual(Resiliency::Simple), 3),
    (Kind::usual(Resiliency::Span), 2),
    (Kind::usual(Resiliency::Mirror { copies: 2 }), 3),
    (Kind::usual(Resiliency::Mirror { copies: 3 }), 3),
    (Kind::strict(Resiliency::Mirror { copies: 2 }), 3),
    (Kind::usual(Resiliency::Parity { parity: 1 }), 4),
    (Kind::usual(Resiliency::Parity { parity: 2 }), 5),
];

fn seeds() -> u64 {
    std::env::var("DOLMEN_LOOKED_SEEDS").ok().map_or(6, |count| count.parse().unwrap())
}

/// What a space shows, block by block; `None` for what cannot be read.
async fn shown(space: &Space) -> Vec<Option<Vec<u8>>> {
    let mut blocks = Vec::new();
    for at in (0..SIZE.0).step_by(4096) {
        blocks.push(read(space, at, 4096).await.ok());
    }
    blocks
}

/// Writes, flushes, discards and puts in place for a while; ends in the midst of it.
fn live(bench: &Bench, kind: Kind, seed: u64) {
    let lab = bench.lab();
    let steps = 400 + 37 * seed;
    let is_over = Rc::new(Cell::new(false));
    let over = Rc::clone(&is_over);
    let run = async move {
        let spaces = lab.create().await.unwrap();
        let space = lab.space_of_kind(&spaces, "data", SIZE, kind).await.unwrap();
        let mut random = Random::new(seed);
        for fill in 1..=200u8 {
            let at = random.below(SIZE.0 / BLOCK);
            let count =
                [1, 1, 2, 16, 48, 64][usize::try_from(random.below(6)).unwrap()].min(SIZE.0 / BLOCK - at);
            let length = usize::try_from(count * BLOCK).unwrap();
            match random.below(12) {
                0 => spaces.flush().await.unwrap(),
                1 => space.discard(at * BLOCK, count * BLOCK).await.unwrap(),
                2 => spaces.caches().destage().await.unwrap(),
                3 => spaces.pool().checkpoint().await.unwrap(),
                // A whole row in order.
                4 => {
                    let row = at * BLOCK / ROW.0 * ROW.0;
                    lab.write(&space, row, usize::try_from(ROW.0).unwrap(), fill).await.unwrap();
                }
                _ => lab.write(&space, at * BLOCK, length, fill).await.unwrap(),
            }
        }
        over.set(true);
        std::future::pending::<()>().await;
    };
    bench.world.spawn("run", Box::pin(run));
    let begun = bench.world.change_count();
    bench.world.run_until(|world| is_over.get() || world.change_count() >= begun + steps).unwrap();
}

fn looked_and_served(kind: Kind, disks: usize, seed: u64) {
    let bench = Bench::new(seed, disks, CAPACITY);
    live(&bench, kind, seed);
    match seed % 2 {
        0 => bench.world.power_cut(),
        _ => bench.world.kill(),
    }
    bench.world.run_until_idle().unwrap();
    let before: Vec<_> = bench.disks.iter().map(|disk| disk.truth()).collect();
    let show = |mode| {
        let blocks = Rc::new(RefCell::new(Vec::new()));
        let into = Rc::clone(&blocks);
        let opened = bench.run(async move |lab| {
            let spaces = lab.open_as(mode).await?;
            if let Ok(space) = spaces.find("data") {
                *into.borrow_mut() = shown(&space).await;
            }
            Ok(spaces.close().await?)
        });
        opened.unwrap_or_else(|error| panic!("{kind}, seed {seed}, {mode:?}: {error}"));
        bench.world.kill();
        blocks.take()
    };
    let looked = show(OpenMode::Read);
    for (disk, before) in bench.disks.iter().zip(&before) {
        let changed = before.first_difference(&disk.truth(), CAPACITY.0);
        assert_eq!(changed, None, "{kind}, seed {seed}: looking has changed {}", disk.name());
    }
    let served = show(OpenMode::Write);
    assert_eq!(looked.len(), served.len());
    let differs = (0..served.len()).find(|block| looked[*block] != served[*block]);
    let state = |block: &Option<Vec<u8>>| block.as_ref().map(|bytes| bytes[..8].to_vec());
    let shown = differs.map(|block| (block, state(&looked[block]), state(&served[block])));
    assert_eq!(shown, None, "{kind}, seed {seed}: what is looked at is not what is served");
}

#[test]
fn what_is_looked_at_is_what_would_be_served() {
    // Scenario: a daemon dies, or power fails, anywhere in a life of writes, flushes, discards, checkpoints and putting in place.
    // The pool is opened for reading, and then for writing: both show the same, block for block.
    for seed in 1..=seeds() {
        for (kind, disks) in KINDS {
            looked_and_served(kind, disks, seed);
        }
    }
}
