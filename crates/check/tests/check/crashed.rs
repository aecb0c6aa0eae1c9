//! What power leaves of a short life, checked from outside: before the pool is opened again, and when it was and was closed.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::print_stdout)]

use std::rc::Rc;

use dolmen_block_io::{BlockDevice, Durability, Seams};
use dolmen_buffer::ArenaConfig;
use dolmen_check::{CheckOptions, Depth, Finding, check};
use dolmen_pool::{Arbiter, CreateOptions, MemoryArbiter, OpenMode, OpenOptions, create, discover, open};
use dolmen_sim::{DiskProfile, Recorder, Reopened, SimDisk, StateOptions, World};
use dolmen_space::{Resiliency, Space, SpaceSpec, Spaces};
use dolmen_units::{Bytes, HostId};

const DISKS: usize = 3;
const DISK: Bytes = Bytes::mib(64);
const ARENAS: ArenaConfig = ArenaConfig { small_count: 256, medium_count: 16, large_count: 6 };
/// Every so many cuts one is looked at.
const EVERY: usize = 2;
const BLOCK: u64 = 4096;

/// How many of the states are looked at that a cut may leave.
fn states_of_a_cut() -> usize {
    std::env::var("DOLMEN_CRASH_STATES").ok().map_or(2, |states| states.parse().unwrap_or(usize::MAX))
}

async fn write(seams: &Seams, space: &Space, block: u64, count: usize, fill: u8) {
    let mut buffer = seams.data.take(count * 4096).await;
    buffer.fill(fill);
    space.write(block * BLOCK, &buffer.freeze(), Durability::Cached).await.unwrap();
}

/// Spaces are made, written, flushed, written over, discarded, made larger and deleted.
async fn live(seams: Seams, spaces: Rc<Spaces>, resiliency: Resiliency) {
    let make = async |name: &str| {
        let mut spec = SpaceSpec::usual(name.parse().unwrap(), Bytes::mib(4), resiliency);
        (spec.row, spec.interleave) = (Some(Bytes::mib(1)), Bytes::kib(16));
        spaces.create(spec).await.unwrap()
    };
    let (data, other) = (make("data").await, make("other").await);
    write(&seams, &data, 0, 16, 1).await;
    write(&seams, &other, 0, 2, 1).await;
    spaces.flush().await.unwrap();
    write(&seams, &data, 3, 2, 2).await;
    write(&seams, &data, 300, 4, 2).await;
    spaces.pool().checkpoint().await.unwrap();
    write(&seams, &data, 4, 8, 3).await;
    data.discard(8 * BLOCK, 4 * BLOCK).await.unwrap();
    spaces.flush().await.unwrap();
    data.discard(256 * BLOCK, 256 * BLOCK).await.unwrap();
    spaces.changes().resize(&data, Bytes::mib(6)).await.unwrap();
    spaces.changes().delete(&other).await.unwrap();
    write(&seams, &data, 1100, 3, 4).await;
    drop(data);
    spaces.close().await.unwrap();
}

fn attach(world: &World, disks: &[Rc<SimDisk>]) -> Vec<Rc<dyn BlockDevice>> {
    disks.iter().map(|disk| disk.attach(world)).collect()
}

/// A recorded life, and the record of its host from before.
fn recorded(resiliency: Resiliency) -> (Recorder, Rc<MemoryArbiter>) {
    let world = World::new(5);
    world.set_arenas(ARENAS, ARENAS);
    let profile = || DiskProfile::new(DISK);
    let disks: Vec<_> =
        (0..DISKS).map(|number| world.add_disk(&format!("disk{number}"), profile())).collect();
    let arbiter = MemoryArbiter::new(HostId([1; 16]));
    let (seams, host, devices) =
        (world.seams(), Rc::clone(&arbiter) as Rc<dyn Arbiter>, attach(&world, &disks));
    let spaces = world
        .run(async move {
            let options = CreateOptions {
                name: "tank".parse().unwrap(),
                overwrite: Vec::new(),
                fault_domains: Vec::new(),
            };
            let spaces =
                Spaces::start(create(&seams, host, &devices, &options).await.unwrap()).await.unwrap();
            spaces.pool().checkpoint().await.unwrap();
            spaces
        })
        .unwrap();
    // What the host has on record at the end names labels that a cut before it has not; the record of the beginning holds for all.
    let before = arbiter.snapshot();
    let recorder = world.record();
    world.run(live(world.seams(), spaces, resiliency)).unwrap();
    (recorder, before)
}

/// What a check of these disks finds.
fn findings(left: &Reopened) -> Vec<Finding> {
    let disks: Vec<Rc<SimDisk>> = left.disks.iter().flatten().cloned().collect();
    let (seams, devices) = (left.world.seams(), attach(&left.world, &disks));
    let options = CheckOptions { depth: Depth::Content };
    let report = left.world.run(async move { check(seams, devices, options, Rc::default()).await }).unwrap();
    let report = report.unwrap();
    assert_eq!((report.pools.len(), report.more_count), (1, 0));
    report.findings
}

/// Opens the pool for writing, and closes it.
fn open_and_close(left: &Reopened, arbiter: &MemoryArbiter) {
    let disks: Vec<Rc<SimDisk>> = left.disks.iter().flatten().cloned().collect();
    let (seams, devices) = (left.world.seams(), attach(&left.world, &disks));
    let host = arbiter.snapshot() as Rc<dyn Arbiter>;
    let body = async move {
        let found = discover(&seams, &devices).await;
        let candidates = found.pools.into_values().flatten().collect();
        let opened = open(&seams, host, candidates, &OpenOptions { mode: OpenMode::Write }).await.unwrap();
        Spaces::start(opened).await.unwrap().close().await.unwrap();
    };
    left.world.run(body).unwrap();
}

#[test]
fn a_pool_that_lost_power_has_no_findings_before_or_after_it_opens() {
    for resiliency in [
        Resiliency::Simple,
        Resiliency::Mirror { copies: 2 },
        Resiliency::Mirror { copies: 3 },
        Resiliency::Parity { parity: 1 },
    ] {
        let (recorder, arbiter) = recorded(resiliency);
        let mut states = 0;
        for cut in recorder.cuts().into_iter().step_by(EVERY) {
            let options = StateOptions { seed: cut.0 as u64, ..StateOptions::default() };
            let all: Vec<_> = recorder.states(cut, &options).collect();
            for state in all.iter().rev().step_by(all.len().div_ceil(states_of_a_cut())) {
                let left = state.reopen(cut.0 as u64);
                left.world.set_arenas(ARENAS, ARENAS);
                assert_eq!(findings(&left), [], "{resiliency:?}, {state:?}, as power left it");
                open_and_close(&left, &arbiter);
                assert_eq!(findings(&left), [], "{resiliency:?}, {state:?}, when it was open again");
                states += 1;
            }
        }
        println!("{resiliency:?}: {states} states checked twice");
        assert!(states > 40, "{states}");
    }
}
