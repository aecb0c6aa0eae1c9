//! A large pool after a crash: how long it takes to open, what is read, and what it holds in memory.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use std::rc::Rc;
use std::time::Duration;

use dolmen_block_io::BlockDevice;
use dolmen_buffer::ArenaConfig;
use dolmen_journal::Wait;
use dolmen_pool::{
    Arbiter, CreateOptions, MemoryArbiter, OpenMode, OpenOptions, Purpose, create, discover, keys, open,
};
use dolmen_sim::{DiskProfile, LatencyModel, Random, Request, SimDisk, World};
use dolmen_units::{Bytes, HostId, SpaceId};

const DISKS: usize = 240;
/// 240 of them hold 4 PiB.
const CAPACITY: Bytes = Bytes::gib(17_476);
/// Bytes of one record of blocks.
const RECORD_BYTES: usize = 200 * 1024;
/// Rows whose records the log holds beside.
const ROWS: u64 = 20_000;
const ROWS_OF_A_CHANGE: u64 = 400;
/// The longest that an opening may take.
const LIMIT: Duration = Duration::from_secs(10);

/// A disk that seeks for ten milliseconds and transfers 200 MB/s.
struct Seeking;

impl LatencyModel for Seeking {
    fn latency(&self, request: Request, _: &mut Random) -> Duration {
        let seek = if request.at == request.previous_end { 0 } else { 10_000_000 };
        Duration::from_nanos(seek + request.length * 5)
    }
}

fn attach(world: &World, disks: &[Rc<SimDisk>]) -> Vec<Rc<dyn BlockDevice>> {
    disks.iter().map(|disk| disk.attach(world)).collect()
}

/// Fills three quarters of the log with changes of rows and records of blocks, none of which a checkpoint has taken.
fn fill(world: &World, disks: &[Rc<SimDisk>], arbiter: &Rc<MemoryArbiter>) {
    let (seams, devices, host) = (world.seams(), attach(world, disks), Rc::clone(arbiter) as Rc<dyn Arbiter>);
    let body = async move {
        let options = CreateOptions { name: "tank".parse().unwrap(), overwrite: Vec::new(), fault_domains: Vec::new() };
        let pool = create(&seams, host, &devices, &options).await.unwrap().pool;
        for first in (0..ROWS).step_by(ROWS_OF_A_CHANGE as usize) {
            let mut change = pool.change(Purpose::Release).await;
            for index in first..first + ROWS_OF_A_CHANGE {
                change.put(keys::row(SpaceId(1), index), vec![7; 256]);
            }
            change.commit().await.unwrap();
        }
        let left = pool.metadata_bytes().0.0 / 4 * 3 - ROWS * 300;
        for _ in 0..left / (RECORD_BYTES as u64 + 8192) {
            pool.append_blocks(&vec![0x5a; RECORD_BYTES], Wait::Written).await.unwrap();
        }
    };
    world.run(body).unwrap();
    world.kill();
}

/// 240 disks and 4 PiB, three quarters of the log in use, after a kill: open in ten seconds of the disks' time.
#[test]
fn a_pool_of_240_disks_opens_in_ten_seconds() {
    let world = World::new(1);
    let arenas = ArenaConfig { small_count: 1024, medium_count: 64, large_count: 24 };
    world.set_arenas(arenas, arenas);
    let profile = || DiskProfile { latency: Rc::new(Seeking), ..DiskProfile::new(CAPACITY) };
    let disks: Vec<_> = (0..DISKS).map(|number| world.add_disk(&format!("disk{number}"), profile())).collect();
    let arbiter = MemoryArbiter::new(HostId([1; 16]));
    fill(&world, &disks, &arbiter);
    let devices = attach(&world, &disks);
    let (seams, given, clock) = (world.seams(), devices.clone(), world.now());
    let (records, log, overlay) = world
        .run(async move {
            let found = discover(&seams, &given).await;
            let candidates = found.pools.into_values().next().unwrap();
            let host = arbiter as Rc<dyn Arbiter>;
            let opened = open(&seams, host, candidates, &OpenOptions { mode: OpenMode::Write }).await.unwrap();
            (opened.blocks.len(), opened.pool.metadata_bytes().0, 0usize)
        })
        .unwrap();
    let took = Duration::from_nanos(world.now().0 - clock.0);
    let sum = devices.iter().map(|device| device.counters()).fold((0, 0, 0, 0), |sum, counters| {
        (sum.0 + counters.reads, sum.1 + counters.read_bytes, sum.2 + counters.writes, sum.3 + counters.flushes)
    });
    println!(
        "opened in {took:?}: {} reads of {}, {} writes, {} flushes; log of {log}, {records} records of blocks, overlay of {}",
        sum.0,
        Bytes(sum.1),
        sum.2,
        sum.3,
        Bytes(overlay as u64),
    );
    assert!(records > 200, "the log was to be full");
    assert!(took < LIMIT, "opening took {took:?}");
}
