//! A large pool after a crash: how long it takes to open, what is read, and what it holds in memory.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    clippy::print_stdout
)]

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
/// Rows whose records the log holds beside, at most.
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
        let options =
            CreateOptions { name: "tank".parse().unwrap(), overwrite: Vec::new(), fault_domains: Vec::new() };
        let pool = create(&seams, host, &devices, &options).await.unwrap().pool;
        let log = pool.identity().metadata_bytes().0.0;
        let rows = ROWS.min(log / 4 / 300 / ROWS_OF_A_CHANGE * ROWS_OF_A_CHANGE);
        for first in (0..rows).step_by(ROWS_OF_A_CHANGE as usize) {
            let mut change = pool.change(Purpose::Release).await;
            for index in first..first + ROWS_OF_A_CHANGE {
                change.put(keys::place(SpaceId(1), index), vec![7; 256]);
            }
            change.commit().await.unwrap();
        }
        let left = log / 4 * 3 - rows * 300;
        for _ in 0..left / (RECORD_BYTES as u64 + 8192) {
            pool.log().append_blocks(&vec![0x5a; RECORD_BYTES], Wait::Written).await.unwrap();
        }
    };
    world.run(body).unwrap();
    world.kill();
}

/// Makes a pool of disks, fills its log, kills the daemon, and opens it again: how long that takes in the disks' time.
fn opening_of(profiles: Vec<DiskProfile>) -> Duration {
    let world = World::new(1);
    let arenas = ArenaConfig { small_count: 1024, medium_count: 64, large_count: 24 };
    world.set_arenas(arenas, arenas);
    let numbered = profiles.into_iter().enumerate();
    let disks: Vec<_> =
        numbered.map(|(number, profile)| world.add_disk(&format!("disk{number}"), profile)).collect();
    let arbiter = MemoryArbiter::new(HostId([1; 16]));
    fill(&world, &disks, &arbiter);
    let devices = attach(&world, &disks);
    let (seams, given, begun) = (world.seams(), devices.clone(), world.now());
    let (records, log) = world
        .run(async move {
            let found = discover(&seams, &given).await;
            let candidates = found.pools.into_values().next().unwrap();
            let host = arbiter as Rc<dyn Arbiter>;
            let opened =
                open(&seams, host, candidates, &OpenOptions { mode: OpenMode::Write }).await.unwrap();
            (opened.blocks.len(), opened.pool.identity().metadata_bytes().0)
        })
        .unwrap();
    let took = Duration::from_nanos(world.now().0 - begun.0);
    let sum = devices.iter().map(|device| device.counters()).fold((0, 0, 0, 0), |sum, counters| {
        (
            sum.0 + counters.reads,
            sum.1 + counters.read_bytes,
            sum.2 + counters.writes,
            sum.3 + counters.flushes,
        )
    });
    let (reads, read_bytes, writes, flushes) = sum;
    println!(
        "{} disks opened in {took:?}: {reads} reads of {} in all, {writes} writes, {flushes} flushes; log of {log}, {records} records of blocks",
        disks.len(),
        Bytes(read_bytes),
    );
    assert!(records as u64 * RECORD_BYTES as u64 > log.0 / 4, "the log was to be full");
    took
}

fn rotating() -> DiskProfile {
    DiskProfile { latency: Rc::new(Seeking), ..DiskProfile::new(CAPACITY) }
}

/// 240 disks that hold 4 PiB, after a kill with the largest log full, small fast disks among them that do not carry it.
#[test]
fn a_pool_of_240_disks_opens_in_ten_seconds() {
    let small = || DiskProfile { latency: Rc::new(Seeking), ..DiskProfile::new(Bytes::gib(8)) };
    let large = || {
        let mut profile = rotating();
        profile.geometry.rotational = true;
        profile
    };
    let profiles = (0..DISKS).map(|number| if number < 4 { small() } else { large() }).collect();
    let took = opening_of(profiles);
    assert!(took < LIMIT, "opening took {took:?}");
}

/// The largest log there is, full, on disks that seek: opening reads all of it, and no more than that takes.
#[test]
#[cfg_attr(debug_assertions, ignore = "writes a gigabyte; with optimisation it takes seconds")]
fn the_largest_log_is_read_in_ten_seconds() {
    let took = opening_of((0..4).map(|_| rotating()).collect());
    assert!(took < LIMIT, "opening took {took:?}");
}
