//! Copies of labels that are damaged while a pool is open: a scrub of them finds each, and leaves none.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use std::rc::Rc;

use dolmen_block_io::{BlockDevice, Seams};
use dolmen_buffer::ArenaConfig;
use dolmen_disk::{Contents, look};
use dolmen_pool::{Arbiter, CreateOptions, MemoryArbiter, OpenMode, OpenOptions, create, discover, open};
use dolmen_sim::{DiskProfile, SimDisk, World};
use dolmen_units::{Bytes, HostId};

const CAPACITY: Bytes = Bytes::mib(64);
const ARENAS: ArenaConfig = ArenaConfig { small_count: 256, medium_count: 16, large_count: 6 };
const SLOT: u64 = 64 * 1024;
const BACK: u64 = 63 << 20;
/// The four label slots of a disk of [`CAPACITY`].
const LABELS: [u64; 4] = [SLOT, 2 * SLOT, BACK, BACK + SLOT];
/// More than vote: a disk without a vote is written to more rarely, and so are its labels.
const DISKS: usize = 6;

/// How copies are damaged.
#[derive(Debug, Clone, Copy)]
enum Damage {
    /// A bit of one copy turns.
    Bit(u64),
    /// A bit of each copy turns.
    AllBits,
}

async fn damaged_copies(seams: &Seams, device: &dyn BlockDevice) -> usize {
    match look(seams, device).await.unwrap() {
        Contents::Member { damage, .. } => damage.len(),
        other => panic!("no member: {other:?}"),
    }
}

/// Scenario: copies of the label of one disk are damaged while the pool is open, those of a voter or of another disk, one copy or
/// all. Verifying finds them and rewrites all copies; verifying again finds nothing; and the pool opens with all of its disks.
#[test]
fn a_copy_damaged_while_the_pool_is_open_is_found_and_rewritten() {
    for disk in [0, DISKS - 1] {
        // A slot that was never written holds no copy that could be damaged.
        let found = LABELS.into_iter().filter(|at| verify_after(disk, Damage::Bit(*at))).count();
        assert!(found >= 2, "disk {disk}: {found} copies");
        assert!(verify_after(disk, Damage::AllBits), "disk {disk}");
    }
}

/// Whether the damage was found; what is found is rewritten.
fn verify_after(damaged: usize, damage: Damage) -> bool {
    let world = World::new(7);
    world.set_arenas(ARENAS, ARENAS);
    let disks: Vec<Rc<SimDisk>> = (0..DISKS)
        .map(|number| world.add_disk(&format!("disk{number}"), DiskProfile::new(CAPACITY)))
        .collect();
    let devices: Vec<_> = disks.iter().map(|disk| disk.attach(&world)).collect();
    let host = MemoryArbiter::new(HostId([1; 16])) as Rc<dyn Arbiter>;
    let seams = world.seams();
    let what = format!("disk {damaged}, {damage:?}");
    world
        .run(async move {
            let options = CreateOptions {
                name: "tank".parse().unwrap(),
                overwrite: Vec::new(),
                fault_domains: Vec::new(),
            };
            let pool = create(&seams, Rc::clone(&host), &devices, &options).await.unwrap().pool;
            assert!(pool.stamps().verify_labels().await.is_empty(), "{what}: all is well");
            let turned = |at: u64| disks[damaged].rot(at + 100, 3);
            match damage {
                Damage::Bit(at) => turned(at),
                Damage::AllBits => LABELS.into_iter().for_each(turned),
            }
            let device = devices[damaged].as_ref();
            let is_readable = matches!(look(&seams, device).await.unwrap(), Contents::Member { .. });
            assert_eq!(is_readable, !matches!(damage, Damage::AllBits), "{what}");
            let found = pool.stamps().verify_labels().await;
            let is_found = !found.is_empty();
            assert!(
                found.iter().all(|found| found.is_mended && found.disk.name() == format!("disk{damaged}")),
                "{what}"
            );
            assert_eq!(damaged_copies(&seams, device).await, 0, "{what}");
            assert!(pool.stamps().verify_labels().await.is_empty(), "{what}: nothing is left");
            pool.close().await.unwrap();
            drop(pool);
            let found = discover(&seams, &devices).await;
            assert!(found.unusable.is_empty(), "{what}");
            let candidates = found.pools.into_values().flatten().collect();
            let opened =
                open(&seams, host, candidates, &OpenOptions { mode: OpenMode::Write }).await.unwrap();
            assert!(opened.pool.disks().iter().all(|disk| disk.is_present()), "{what}");
            opened.pool.close().await.unwrap();
            is_found
        })
        .unwrap()
}
