//! The slab map says of each allocation unit what the records of rows and the free map say.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;

use dolmen_block_io::sync::{join_all, yield_now};
use dolmen_pool::ExcludeReason;
use dolmen_sim::Random;
use dolmen_space::{
    CellCount, Integrity, Layout, Progress, Provisioning, Resiliency, SlabCell, SlabMap, SlabPurpose,
    SpaceSpec, Spaces,
};
use dolmen_units::{ALLOCATION_UNIT_BYTES, Bytes, DiskSlot};

use crate::harness::slow_disks::{extra, pause, text};
use crate::harness::{Bench, Outcome, ROW};

const MIRROR: Resiliency = Resiliency::Mirror { copies: 2 };
const COUNTS: [u64; 4] = [1, 7, 64, 512];

fn cells(count: u64) -> CellCount {
    CellCount::new(count).unwrap()
}

fn used(cell: &SlabCell) -> u64 {
    cell.owners.iter().map(|share| share.units).sum::<u64>() + cell.other_units
}

/// Allocation units of each purpose and name.
fn owned(map: &SlabMap, is_meant: impl Fn(SlabPurpose) -> bool) -> BTreeMap<String, u64> {
    let mut owned = BTreeMap::new();
    for owner in map.owners.iter().filter(|owner| is_meant(owner.purpose)) {
        *owned.entry(owner.space.to_string()).or_insert(0) += owner.units;
    }
    owned
}

/// Holds a map against what the spaces and the free map claim.
async fn hold(spaces: &Spaces, map: &SlabMap) -> Outcome {
    let mut footprints = BTreeMap::new();
    for space in spaces.kept() {
        let units = space.footprint().await?.total.0 / ALLOCATION_UNIT_BYTES;
        if units > 0 {
            footprints.insert(space.name().to_string(), units);
        }
    }
    let is_cache = |purpose| matches!(purpose, SlabPurpose::WriteCache { .. });
    assert_eq!(owned(map, |purpose| !is_cache(purpose)), footprints);
    let caches = spaces.caches().write_caches().await?;
    let cached: u64 = caches.iter().map(|cache| cache.footprint.total.0 / ALLOCATION_UNIT_BYTES).sum();
    assert_eq!(owned(map, is_cache).values().sum::<u64>(), cached);
    let mut of_owners = vec![0; map.owners.len()];
    let mut others = 0;
    for disk in &map.disks {
        let free: u64 = disk.cells.iter().map(|cell| cell.free_units).sum();
        let expected = spaces.pool().free_space().free_on(disk.slot).unwrap().0 / ALLOCATION_UNIT_BYTES;
        assert_eq!(free, expected, "{}", disk.slot);
        for cell in &disk.cells {
            assert_eq!(used(cell) + cell.free_units, cell.units, "{cell:?}");
            cell.owners.iter().for_each(|share| of_owners[share.owner] += share.units);
            others += cell.other_units;
        }
    }
    assert_eq!(map.disks.len(), spaces.pool().disks().len());
    let claimed: Vec<u64> = map.owners.iter().map(|owner| owner.units).collect();
    assert!(of_owners.iter().zip(&claimed).all(|(cells, all)| cells <= all), "{of_owners:?} {claimed:?}");
    assert_eq!(of_owners.iter().sum::<u64>() + others, claimed.iter().sum::<u64>());
    if map.owners.len() <= dolmen_space::CELL_OWNERS_MAX {
        assert_eq!((of_owners, others), (claimed, 0));
    }
    Ok(())
}

/// Scenario: spaces of several layouts, one of them in the trash, with rows claimed at places that a seed chooses. Whatever the number of
/// cells, a space has as many allocation units as its records claim, and what is free is what the free map has.
#[test]
fn cells_add_up_to_what_spaces_claim_and_what_is_free() {
    for seed in 0..6 {
        let bench = Bench::new(seed, 5, Bytes::mib(96 + seed * 7));
        let outcome = bench.run(async move |lab| {
            let mut random = Random::new(seed);
            let spaces = lab.create().await?;
            hold(&spaces, &spaces.moves().slab_map(cells(64)).await?).await?;
            let kinds = [MIRROR, Resiliency::Simple, Resiliency::Mirror { copies: 3 }, Resiliency::Span];
            let kinds = &kinds[..usize::try_from(2 + seed % 3)?];
            for (nth, resiliency) in kinds.iter().enumerate() {
                let space = lab.space(&spaces, &format!("s{nth}"), Bytes::mib(16), *resiliency).await?;
                for _ in 0..8 {
                    lab.write(&space, random.below(16) * ROW.0, 4096, 1).await?;
                }
            }
            if seed % 2 == 0 {
                let parity = lab.parity_space(&spaces, (2, 1)).await?;
                lab.write(&parity, random.below(8) * ROW.0, 65536, 2).await?;
            }
            for count in COUNTS {
                hold(&spaces, &spaces.moves().slab_map(cells(count)).await?).await?;
            }
            let deleted = spaces.find("s1")?;
            spaces.trash().move_to_trash(&deleted, 1).await?;
            let map = spaces.moves().slab_map(cells(64)).await?;
            hold(&spaces, &map).await?;
            let trash = owned(&map, |purpose| purpose == SlabPurpose::Trash);
            assert_eq!(trash.keys().collect::<Vec<_>>(), ["s1"]);
            drop(deleted);
            lab.check_and_close(spaces).await
        });
        outcome.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    }
}

/// Scenario: a stream of writes has filled part of a shadow row, in a space with a write cache. Both are owners of their own.
#[test]
fn shadow_rows_and_write_caches_are_owners_of_their_own() {
    let bench = Bench::new(54, 6, Bytes::mib(128));
    bench
        .run(async move |lab| {
            let spaces = lab.create().await?;
            let space = lab.with_shadow(&spaces, ROW.0 / 2).await?;
            let map = spaces.moves().slab_map(cells(512)).await?;
            hold(&spaces, &map).await?;
            let of = |purpose| owned(&map, |other| other == purpose);
            assert_eq!(of(SlabPurpose::ShadowRows).keys().collect::<Vec<_>>(), ["data"]);
            assert_eq!(of(SlabPurpose::ShadowRows), of(SlabPurpose::Space));
            assert!(
                of(SlabPurpose::WriteCache { survives: 1 }).into_values().sum::<u64>() > 0,
                "{:?}",
                map.owners
            );
            drop(space);
            lab.check_and_close(spaces).await
        })
        .unwrap();
}

/// Scenario: a disk leaves, and each row of a mirror on it is written. Its slabs, and no others, are stale; once a resync has brought them
/// up to date on the disk, or moved them, none is.
#[test]
fn what_a_slab_misses_is_stale_in_its_cells_alone() {
    let bench = Bench::new(55, 3, Bytes::mib(96));
    bench
        .run(async move |lab| {
            let spaces = lab.create().await?;
            let space = lab.space(&spaces, "data", Bytes::mib(16), MIRROR).await?;
            for row in 0..16 {
                lab.write(&space, row * ROW.0, 4096, 1).await?;
            }
            spaces.flush().await?;
            let stale = |map: &SlabMap| -> Vec<u64> {
                map.disks.iter().map(|disk| disk.cells.iter().map(|cell| cell.stale_units).sum()).collect()
            };
            let before = spaces.moves().slab_map(cells(64)).await?;
            assert_eq!(stale(&before), [0; 3]);
            spaces.pool().exclude(DiskSlot(1), ExcludeReason::Asked).await?;
            for row in 0..16 {
                lab.write(&space, row * ROW.0, 4096, 2).await?;
            }
            spaces.flush().await?;
            let map = spaces.moves().slab_map(cells(64)).await?;
            hold(&spaces, &map).await?;
            let used_before: u64 = before.disks[1].cells.iter().map(used).sum();
            assert!(used_before > 0);
            assert_eq!(stale(&map), [0, used_before, 0], "the absent disk is on the map");
            assert_eq!(map.owners[0].stale_units, used_before);
            for cell in &map.disks[1].cells {
                assert_eq!(cell.stale_units, used(cell));
            }
            lab.hold((spaces, space));
            Ok(())
        })
        .unwrap();
}

/// Scenario: while a map of seven hundred rows is made, another task of the thread is ready all the time. It runs again and again, and rows
/// that are claimed meanwhile leave no cell with more than it holds.
#[test]
fn a_walk_lets_other_tasks_run() {
    let bench = Bench::new(56, 2, Bytes::gib(1));
    bench
        .run(async move |lab| {
            let spaces = lab.create().await?;
            let mut spec = SpaceSpec::usual("data".parse()?, Bytes::mib(700), Resiliency::Simple);
            (spec.row, spec.provisioning) = (Some(ROW), Provisioning::Fixed);
            let space = spaces.create(spec).await?;
            let thin = lab.space(&spaces, "thin", Bytes::mib(16), MIRROR).await?;
            let (turns, is_over) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(false)));
            let walk = async {
                let map = spaces.moves().slab_map(cells(64)).await;
                is_over.set(true);
                map
            };
            let (counted, over) = (Rc::clone(&turns), Rc::clone(&is_over));
            lab.seams.spawner.spawn(
                "another task",
                Box::pin(async move {
                    while !over.get() {
                        counted.set(counted.get() + 1);
                        yield_now().await;
                    }
                }),
            );
            let claims = async {
                for row in 0..16 {
                    lab.write(&thin, row * ROW.0, 4096, 1).await.unwrap();
                }
            };
            let map = Cell::new(None);
            let walked = async { map.set(Some(walk.await)) };
            let together: Vec<std::pin::Pin<Box<dyn Future<Output = ()>>>> =
                vec![Box::pin(walked), Box::pin(claims)];
            join_all(together).await;
            let map = map.take().unwrap()?;
            // A walk over 700 rows has at least ten steps.
            assert!(turns.get() >= 10, "{} turns", turns.get());
            let cells_of =
                |map: &SlabMap| map.disks.iter().flat_map(|disk| disk.cells.clone()).collect::<Vec<_>>();
            assert!(cells_of(&map).iter().all(|cell| used(cell) + cell.free_units <= cell.units));
            drop((space, thin));
            lab.check_and_close(spaces).await
        })
        .unwrap();
}

/// Scenario: a space is converted, and its pool mapped again and again meanwhile. Rows of the new layout are seen before they take the places
/// of old ones, no cell has more than it holds, and in the end all is the space's.
#[test]
fn rows_of_a_conversion_are_on_the_map_while_it_goes_on() {
    let bench = Bench::new(57, 5, Bytes::mib(128));
    bench
        .run(async move |lab| {
            let spaces = lab.create().await?;
            let space = lab.space(&spaces, "data", Bytes::mib(16), MIRROR).await?;
            for row in 0..16 {
                lab.write(&space, row * ROW.0, 65536, 1).await?;
            }
            spaces.flush().await?;
            let resiliency = Resiliency::Mirror { copies: 3 };
            let to = Layout {
                resiliency,
                columns: None,
                interleave: Bytes::kib(64),
                integrity: Integrity::usual(resiliency),
            };
            spaces.conversions().begin_conversion(&space, to).await?;
            let (is_done, seen) = (Cell::new(false), Cell::new(0));
            let convert = async {
                let progress = Progress::default();
                let converted = spaces.conversions().convert(&space, &progress).await.map_err(text);
                is_done.set(true);
                converted.map(|all| assert!(all))
            };
            let look = async {
                while !is_done.get() {
                    let map = spaces.moves().slab_map(cells(64)).await.map_err(text)?;
                    let of = owned(&map, |purpose| purpose == SlabPurpose::ConversionShadows);
                    seen.set(seen.get() + u64::from(of.contains_key("data")));
                    for cell in map.disks.iter().flat_map(|disk| &disk.cells) {
                        assert!(used(cell) + cell.free_units <= cell.units, "{cell:?}");
                    }
                    pause(&lab, 1).await;
                }
                Ok(())
            };
            extra(vec![Box::pin(convert), Box::pin(look)]).await?;
            assert!(seen.get() > 0);
            let map = spaces.moves().slab_map(cells(64)).await?;
            hold(&spaces, &map).await?;
            assert_eq!(map.owners.len(), 1);
            drop(space);
            lab.check_and_close(spaces).await
        })
        .unwrap();
}
