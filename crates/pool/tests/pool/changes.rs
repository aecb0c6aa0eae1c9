//! Changes of the map while checkpoints trim the log, cut short anywhere: what was committed is there when the pool is
//! opened again.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use std::cell::Cell;
use std::rc::Rc;

use dolmen_block_io::{BlockDevice, Seams};
use dolmen_buffer::ArenaConfig;
use dolmen_pool::{
    Arbiter, CreateOptions, LocalFuture, MemoryArbiter, OpenMode, OpenOptions, Pool, PoolError, Purpose,
    TableOwner, create, discover, keys, open,
};
use dolmen_sim::{DiskProfile, SimDisk, StopAt, World};
use dolmen_units::{Bytes, HostId, Lsn};

const CAPACITY: Bytes = Bytes::mib(64);
const ARENAS: ArenaConfig = ArenaConfig { small_count: 256, medium_count: 16, large_count: 6 };
const CLIENTS: usize = 3;
/// Runs, each cut at another place and with another order of tasks.
const SEEDS: u64 = 100;
/// Steps after which a run is cut, at most.
const STEPS: u64 = 1200;

/// Nothing is kept in memory but the map.
struct NoTables;

impl TableOwner for NoTables {
    fn write_back(&self, _: Lsn) -> LocalFuture<'_, Result<u64, PoolError>> {
        Box::pin(async { Ok(0) })
    }
}

/// A counter that client `number` raises.
fn counter(number: usize) -> dolmen_store::Key {
    keys::counter(1000 + number as u64)
}

fn devices(world: &World, disks: &[Rc<SimDisk>]) -> Vec<Rc<dyn BlockDevice>> {
    disks.iter().map(|disk| disk.attach(world)).collect()
}

/// Clients that raise their counters, and checkpoints as often as they can be had, for as long as the process lives.
async fn change_and_checkpoint(pool: Rc<Pool>, seams: Seams, committed: Rc<[Cell<u64>; CLIENTS]>) {
    let owner: Rc<dyn TableOwner> = Rc::new(NoTables);
    pool.log().set_table_owner(Rc::downgrade(&owner));
    for number in 0..CLIENTS {
        let (pool, committed) = (Rc::clone(&pool), Rc::clone(&committed));
        let client = async move {
            loop {
                let mut change = pool.change(Purpose::Release).await;
                let value = change.number(counter(number)).await.unwrap();
                change.commit().await.unwrap();
                committed[number].set(value);
            }
        };
        seams.spawner.spawn("client", Box::pin(client));
    }
    loop {
        pool.checkpoint().await.unwrap();
    }
}

/// Scenario: three clients and a checkpointer, cut by a kill or a power cut at a step that is drawn; every counter is then
/// at least what its client got acknowledged, and at most one further.
#[test]
fn a_checkpoint_includes_every_change_that_it_trims() {
    let mut reported = 0;
    for seed in 0..SEEDS {
        let world = World::new(seed);
        world.set_arenas(ARENAS, ARENAS);
        let disks: Vec<_> = (0..2)
            .map(|number| world.add_disk(&format!("disk{number}"), DiskProfile::new(CAPACITY)))
            .collect();
        let arbiter = MemoryArbiter::new(HostId([1; 16]));
        let (seams, host) = (world.seams(), Rc::clone(&arbiter) as Rc<dyn Arbiter>);
        let attached = devices(&world, &disks);
        let options =
            CreateOptions { name: "tank".parse().unwrap(), overwrite: Vec::new(), fault_domains: Vec::new() };
        let pool =
            world.run(async move { create(&seams, host, &attached, &options).await.unwrap().pool }).unwrap();
        let committed: Rc<[Cell<u64>; CLIENTS]> = Rc::default();
        let steps = 1 + world.workload().next_u64() % STEPS;
        let work = change_and_checkpoint(pool, world.seams(), Rc::clone(&committed));
        let _ = world.run_to(StopAt::Steps(steps), work).unwrap();
        if seed % 2 == 0 {
            world.kill()
        } else {
            world.power_cut()
        }
        let (seams, host) = (world.seams(), arbiter.snapshot() as Rc<dyn Arbiter>);
        let attached = devices(&world, &disks);
        let values = world
            .run(async move {
                let found = discover(&seams, &attached).await;
                let candidates = found.pools.into_values().flatten().collect();
                let mode = OpenOptions { mode: OpenMode::Write };
                let pool = open(&seams, host, candidates, &mode).await.unwrap().pool;
                let mut values = Vec::new();
                for number in 0..CLIENTS {
                    let value = pool.map().get(&counter(number)).await.unwrap();
                    let next = value.and_then(|value| value.try_into().ok()).map_or(1, u64::from_le_bytes);
                    values.push(next - 1);
                }
                pool.close().await.unwrap();
                values
            })
            .unwrap();
        for (value, committed) in values.into_iter().zip(committed.iter().map(Cell::get)) {
            let is_right = value == committed || value == committed + 1;
            assert!(is_right, "seed {seed}: {value} of {committed} committed changes are there");
            reported += committed;
        }
    }
    println!("{SEEDS} runs, {reported} changes committed");
    assert!(reported > 10 * SEEDS, "a run commits more than a few changes");
}
