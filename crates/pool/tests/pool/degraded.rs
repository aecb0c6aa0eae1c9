//! Rows that are placed while disks are absent.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use std::collections::BTreeSet;
use std::rc::Rc;

use dolmen_block_io::BlockDevice;
use dolmen_buffer::ArenaConfig;
use dolmen_disk::Extent;
use dolmen_placement::{DomainId, Offer, Request, Resiliency, Width};
use dolmen_pool::{CreateOptions, ExcludeReason, MemoryArbiter, Pool, PoolState, Purpose, create};
use dolmen_sim::{DiskProfile, Random, World};
use dolmen_units::{ALLOCATION_UNIT_BYTES, Bytes, DiskSlot, HostId};

const ARENAS: ArenaConfig = ArenaConfig { small_count: 256, medium_count: 16, large_count: 6 };
const SEEDS: u64 = 150;
/// Rows of two mebibytes, and of a disk no more than some fifty.
const ROW: Bytes = Bytes::mib(2);
const CAPACITY_MAX: u64 = 128;

fn slab_units(data: Bytes) -> u64 {
    data.0.div_ceil(ALLOCATION_UNIT_BYTES) + 1
}

fn is_here(pool: &Pool, slot: DiskSlot) -> bool {
    pool.disk(slot).is_some_and(|disk| disk.is_present())
}

/// Whether a mirror of two has a disk here with room, and another one, in another fault domain if there are two of those.
fn could_place(offers: &[Offer], pool: &Pool, units: u64) -> bool {
    let domains: BTreeSet<DomainId> = offers.iter().map(|offer| offer.domain).collect();
    let has_room = |offer: &&Offer| offer.claimable_units() >= units;
    offers.iter().filter(has_room).filter(|one| is_here(pool, one.slot)).any(|one| {
        let others = offers.iter().filter(has_room).filter(|other| other.slot != one.slot);
        others.into_iter().any(|other| domains.len() < 2 || other.domain != one.domain)
    })
}

/// Fills a pool of drawn disks, some of which are absent, with rows; how many of them have a slab on one of those.
async fn fill(pool: Rc<Pool>, mut random: Random) -> usize {
    let copies = 2 + u32::try_from(random.below(2)).unwrap();
    let width = if random.below(2) == 0 { Width::Auto } else { Width::Columns(1) };
    let request = Request::new(Resiliency::Striped { copies }, width, ROW, Bytes::kib(64)).unwrap();
    let members = pool.free_space().offers_with_absent(Purpose::Claim);
    let domains: BTreeSet<DomainId> = members.iter().map(|offer| offer.domain).collect();
    let domain = |slot: DiskSlot| members.iter().find(|offer| offer.slot == slot).unwrap().domain;
    let units = slab_units(ROW);
    let mut degraded = 0;
    loop {
        let before = pool.free_space().offers_with_absent(Purpose::Claim);
        let mut change = pool.change(Purpose::Claim).await;
        let Ok((placement, claims)) = change.place(&request, slab_units, |_| 0) else { break };
        assert_eq!(placement.slabs.len(), claims.len());
        assert_eq!(placement.slabs.len(), (placement.columns * copies) as usize);
        let columns: Vec<_> = placement.slabs.chunk_by(|one, next| one.column == next.column).collect();
        assert_eq!(columns.len(), placement.columns as usize);
        for column in columns {
            let slots: BTreeSet<DiskSlot> = column.iter().map(|slab| slab.slot).collect();
            assert_eq!(slots.len(), copies as usize, "copies on different disks");
            assert!(slots.iter().any(|slot| is_here(&pool, *slot)), "a copy is here");
            let apart: BTreeSet<DomainId> = slots.iter().map(|slot| domain(*slot)).collect();
            let is_apart = apart.len() > 1 || domains.len() < 2 || !could_place(&before, &pool, units);
            assert!(copies > 2 || is_apart, "{slots:?} are of one domain");
            let copies: Vec<u32> = column.iter().map(|slab| slab.copy).collect();
            assert!(copies.iter().zip(0..).all(|(copy, number)| *copy == number), "{copies:?}");
        }
        for (slab, claim) in placement.slabs.iter().zip(&claims) {
            assert_eq!(slab.slot, claim.slot);
            assert_eq!(claim.runs.iter().map(|run| run.count).sum::<u64>(), slab.units);
        }
        let taken: u64 = placement.slabs.iter().map(|slab| slab.units).sum();
        let free = |offers: &[Offer]| offers.iter().map(|offer| offer.free_units).sum::<u64>();
        assert_eq!(free(&before) - free(&pool.free_space().offers_with_absent(Purpose::Claim)), taken);
        degraded += usize::from(placement.slabs.iter().any(|slab| !is_here(&pool, slab.slot)));
        change.commit().await.unwrap();
    }
    let left = pool.free_space().offers_with_absent(Purpose::Claim);
    assert!(copies > 2 || !could_place(&left, &pool, units), "refused, with room: {left:?}");
    for room in pool.free_space().room() {
        let whole = Extent::of(pool.disk(room.slot).unwrap().member().capacity).unwrap();
        assert!(
            room.free.0 / ALLOCATION_UNIT_BYTES >= whole.unit_count() / 16,
            "the reserve of {room:?} is left"
        );
    }
    degraded
}

/// Pools of two to five disks of any size and fault domain, of which one or two are absent, are filled with rows of mirrors.
/// Copies lie apart, one of each column is on a disk that is here, and nothing is refused that could be placed.
#[test]
fn a_row_has_a_copy_here_and_the_others_apart() {
    let mut degraded = 0;
    for seed in 0..SEEDS {
        let world = World::new(seed);
        world.set_arenas(ARENAS, ARENAS);
        let mut random = world.workload();
        let count = 2 + random.below(4);
        let capacity = |random: &mut Random| Bytes::mib(64 + random.below(CAPACITY_MAX - 64));
        let disks: Vec<_> = (0..count)
            .map(|number| world.add_disk(&format!("disk{number}"), DiskProfile::new(capacity(&mut random))))
            .collect();
        let attached: Vec<Rc<dyn BlockDevice>> = disks.iter().map(|disk| disk.attach(&world)).collect();
        let fault_domains = match random.below(2) {
            0 => Vec::new(),
            _ => (0..count).map(|_| 1 + u32::try_from(random.below(3)).unwrap()).collect(),
        };
        let absent = 1 + random.below(count / 2);
        let seams = world.seams();
        let filled = world.run(async move {
            let options =
                CreateOptions { name: "tank".parse().unwrap(), overwrite: Vec::new(), fault_domains };
            let arbiter = MemoryArbiter::new(HostId([1; 16]));
            let pool = create(&seams, arbiter, &attached, &options).await.unwrap().pool;
            for slot in 0..absent {
                let slot = DiskSlot(u16::try_from(slot).unwrap());
                pool.exclude(slot, ExcludeReason::Asked).await.unwrap();
            }
            fill(pool, random).await
        });
        degraded += filled.unwrap();
    }
    assert!(degraded > 1000, "only {degraded} rows were placed without a disk");
}

/// All disks of a pool vanish, and it is told so of one after another, as whoever writes to them finds out. It stops; and of
/// no disk is it said that it has not failed, although the last ones could not leave any more.
#[test]
fn of_a_pool_that_stopped_for_its_disks_each_of_them_has_failed() {
    for count in 1..5u16 {
        let world = World::new(u64::from(count));
        world.set_arenas(ARENAS, ARENAS);
        let disks: Vec<_> = (0..count)
            .map(|number| world.add_disk(&format!("disk{number}"), DiskProfile::new(Bytes::mib(64))))
            .collect();
        let attached: Vec<Rc<dyn BlockDevice>> = disks.iter().map(|disk| disk.attach(&world)).collect();
        let seams = world.seams();
        let pool = world
            .run(async move {
                let name = "tank".parse().unwrap();
                let options = CreateOptions { name, overwrite: Vec::new(), fault_domains: Vec::new() };
                let arbiter = MemoryArbiter::new(HostId([1; 16]));
                create(&seams, arbiter, &attached, &options).await.unwrap().pool
            })
            .unwrap();
        assert!(pool.disks().iter().all(|disk| !disk.absence().has_failed()));
        disks.iter().for_each(|disk| disk.vanish());
        let stopped = Rc::clone(&pool);
        let reported = async move {
            for slot in 0..count {
                let reported = stopped.exclude(DiskSlot(slot), ExcludeReason::MissedWrite).await;
                assert!(reported.is_err(), "no epoch comes into force without a disk");
            }
        };
        world.run(reported).unwrap();
        assert!(matches!(pool.state(), PoolState::Latched(_)));
        let is_here = |disk: &Rc<dolmen_pool::Disk>| disk.is_present() && !disk.absence().has_failed();
        let here: Vec<String> = pool.disks().into_iter().filter(is_here).map(|disk| disk.name()).collect();
        assert_eq!(here, [""; 0], "of {count}");
    }
}
