//! Deaths of the process and power cuts.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use dolmen_block_io::write_zeroes;
use proptest::prelude::*;

use super::*;
use crate::{Fate, FaultKind, FenceScope, PendingWrite, Random, Rate, StopAt, Tear};

#[test]
fn what_completed_stays_when_the_process_dies() {
    for seed in 0..50 {
        let bench = Bench::new(seed, profile().tearing());
        bench.write_all(&[(0, 1), (1, 2), (0, 3)], Durability::Cached);
        bench.world.kill();
        assert_eq!(blocks(&bench.disk.truth(), 2), [3, 2]);
        assert_eq!(bench.read(0).unwrap(), vec![3; 4096]);
    }
}

#[test]
fn each_write_in_flight_at_a_kill_lands_or_not() {
    let mut seen = BTreeSet::new();
    for seed in 0..100 {
        let bench = Bench::new(seed, profile());
        let (device, seams) = bench.open();
        let writes: Vec<_> =
            (0..3).map(|block| put(device.as_ref(), &seams, block, 1, Durability::Cached)).collect();
        bench.world.kill();
        seen.insert(blocks(&bench.disk.truth(), 3));
        drop(writes);
        assert_eq!(seams.data.lent_count(), 0, "memory of a dead process is given back");
        bench.world.run_until_idle().unwrap();
    }
    assert_eq!(seen.len(), 8);
}

#[test]
fn a_dead_process_reaches_no_disk() {
    let bench = Bench::new(1, profile());
    let (device, seams) = bench.open();
    bench.world.kill();
    let refused = bench.world.run(put(device.as_ref(), &seams, 0, 1, Durability::Cached));
    assert_eq!(refused.unwrap(), Err(DeviceError::Detached));
    bench.world.run_until_idle().unwrap();
    assert_eq!(blocks(&bench.disk.truth(), 1), [0]);
}

/// A write is left in flight by a process that dies, and the next process fences and overwrites; what is there in the
/// end, and how often a delayed write was let through.
fn after_a_late_write(scope: FenceScope) -> (u8, u64) {
    let profile = DiskProfile { fence_scope: scope, ..profile() }.with_delayed_writes(Rate::ALWAYS);
    let bench = Bench::new(1, profile);
    let (device, seams) = bench.open();
    drop(put(device.as_ref(), &seams, 0, 1, Durability::Cached));
    bench.world.kill();
    bench.world.run_until_idle().unwrap();
    assert_eq!(blocks(&bench.disk.truth(), 1), [0], "nothing lands before the next attach");
    let (device, seams) = bench.open();
    device.fence(Epoch(2));
    let mut buffer = seams.data.try_take(4096).unwrap();
    buffer.fill(2);
    let overwrite = write(device.as_ref(), Epoch(2), 0, buffer.freeze(), Durability::Durable);
    // The delayed write has up to 50 ms, the new one takes less than 0.1 ms.
    assert_eq!(bench.world.run(overwrite).unwrap(), Ok(()));
    bench.world.run_until_idle().unwrap();
    (blocks(&bench.disk.truth(), 1)[0], bench.disk.fault_counters().of(FaultKind::DelayedWrite))
}

#[test]
fn a_late_write_lands_late_unless_the_disk_itself_remembers_the_fence() {
    assert_eq!(after_a_late_write(FenceScope::Handle), (1, 1));
    assert_eq!(after_a_late_write(FenceScope::Disk), (2, 0));
}

#[test]
fn who_outlasts_the_dead_sees_all_that_they_left_under_way() {
    let bench = Bench::new(1, profile().with_delayed_writes(Rate::ALWAYS));
    let (device, seams) = bench.open();
    (0..4).for_each(|at| drop(put(device.as_ref(), &seams, at, 1, Durability::Cached)));
    bench.world.kill();
    bench.disk.outlast_the_dead();
    assert_eq!(blocks(&bench.disk.truth(), 4), [1; 4]);
    assert_eq!(bench.disk.fault_counters().of(FaultKind::DelayedWrite), 4);
    let _device = bench.disk.attach(&bench.world);
    bench.world.run_until_idle().unwrap();
    assert_eq!(bench.disk.fault_counters().of(FaultKind::DelayedWrite), 4, "nothing is left to land");
}

#[test]
fn a_reset_ends_late_writes() {
    let bench = Bench::new(1, profile().with_delayed_writes(Rate::ALWAYS));
    let (device, seams) = bench.open();
    drop(put(device.as_ref(), &seams, 0, 1, Durability::Cached));
    bench.world.kill();
    bench.disk.reset();
    let _device = bench.disk.attach(&bench.world);
    bench.world.run_until_idle().unwrap();
    assert_eq!(blocks(&bench.disk.truth(), 1), [0]);
}

#[test]
fn a_fence_of_the_disk_holds_for_other_handles_and_one_of_a_handle_does_not() {
    for (scope, expected) in [(FenceScope::Handle, Ok(())), (FenceScope::Disk, Err(DeviceError::Fenced))] {
        let bench = Bench::new(1, DiskProfile { fence_scope: scope, ..profile() });
        let ((zombie, seams), (owner, _)) = (bench.open(), bench.open());
        owner.fence(Epoch(2));
        let result = bench.world.run(put(zombie.as_ref(), &seams, 0, 1, Durability::Cached));
        assert_eq!(result.unwrap(), expected);
        assert_eq!(zombie.counters().errors, u64::from(expected.is_err()));
    }
}

#[test]
fn a_power_cut_leaves_each_subset_of_three_unflushed_writes() {
    let mut seen: BTreeMap<Vec<u8>, u32> = BTreeMap::new();
    for seed in 0..400 {
        let bench = Bench::new(seed, profile());
        bench.write_all(&[(0, 9), (1, 9), (2, 9)], Durability::Cached);
        assert_eq!(bench.flush(), Ok(()));
        bench.write_all(&[(0, 1), (1, 1), (2, 1)], Durability::Cached);
        bench.world.power_cut();
        *seen.entry(blocks(&bench.disk.truth(), 3)).or_default() += 1;
    }
    assert_eq!(seen.len(), 8, "{seen:?}");
    assert!(seen.keys().flatten().all(|byte| matches!(byte, 1 | 9)), "{seen:?}");
    assert!(seen.values().all(|count| *count > 20), "{seen:?}");
}

#[test]
fn writes_in_flight_at_a_power_cut_land_or_are_lost_or_torn() {
    let mut seen = BTreeSet::new();
    for seed in 0..200 {
        let bench = Bench::new(seed, profile().tearing().without_cache());
        let (device, seams) = bench.open();
        let _unfinished = put(device.as_ref(), &seams, 0, 1, Durability::Durable);
        bench.world.power_cut();
        let sectors = sectors(&bench.disk.truth(), 8);
        seen.insert(sectors.iter().filter(|byte| **byte == 1).count());
        assert!(sectors.iter().all(|byte| matches!(byte, 0 | 1)));
    }
    assert!(seen.contains(&0) && seen.contains(&8) && seen.len() > 4, "{seen:?}");
}

#[test]
fn the_unit_of_tearing_is_the_disks_atomic_write() {
    let (mut torn_blocks, mut torn_between) = (0, 0);
    for seed in 0..200 {
        for (profile, tears_blocks) in [(profile(), false), (profile().tearing(), true)] {
            let bench = Bench::new(seed, profile);
            let (device, seams) = bench.open();
            bench
                .world
                .run(put_many(device.as_ref(), &seams, 0, &[1, 2, 3], Durability::Cached))
                .unwrap()
                .unwrap();
            bench.world.power_cut();
            let found = blocks(&bench.disk.truth(), 3);
            let whole = found.iter().zip([1, 2, 3]).all(|(byte, new)| *byte == 0 || *byte == new);
            assert!(whole || tears_blocks, "{found:?}");
            torn_blocks += u32::from(!whole);
            torn_between += u32::from(whole && found != [0, 0, 0] && found != [1, 2, 3]);
        }
    }
    assert!(torn_blocks > 20 && torn_between > 20, "{torn_blocks} {torn_between}");
}

#[test]
fn the_chooser_sees_every_write_that_could_be_lost_and_decides() {
    let bench = Bench::new(1, profile().tearing());
    bench.write_all(&[(0, 1)], Durability::Durable);
    bench.write_all(&[(1, 2), (2, 3)], Durability::Cached);
    let (device, seams) = bench.open();
    let _unanswered = put(device.as_ref(), &seams, 3, 4, Durability::Durable);
    let mut asked = Vec::new();
    bench.world.power_cut_choosing(&mut |write: &PendingWrite| {
        asked.push((write.at / BLOCK, write.completed, write.unit_count));
        if write.at == BLOCK { Fate::Lost } else { Fate::Torn(Tear::First(3)) }
    });
    assert_eq!(asked, [(1, true, 8), (2, true, 8), (3, false, 8)]);
    let expected = [[1; 8], [0; 8], [3, 3, 3, 0, 0, 0, 0, 0], [4, 4, 4, 0, 0, 0, 0, 0]].concat();
    assert_eq!(sectors(&bench.disk.truth(), 32), expected);
    assert!(bench.disk.pending_writes().is_empty());
}

#[test]
fn a_flush_covers_what_completed_before_it_was_submitted() {
    for seed in 0..20 {
        let bench = Bench::new(seed, profile());
        bench.write_all(&[(0, 1)], Durability::Cached);
        let (device, seams) = bench.open();
        let flushing = flush(device.as_ref(), TOKEN);
        let writing = put(device.as_ref(), &seams, 1, 2, Durability::Cached);
        bench.world.run(async move { (writing.await.unwrap(), flushing.await.unwrap()) }).unwrap();
        assert_eq!(bench.disk.pending_writes().iter().map(|write| write.at).collect::<Vec<_>>(), [BLOCK]);
        assert_eq!(blocks(&bench.disk.durable(), 2), [1, 0]);
    }
}

#[derive(Debug, Clone)]
enum Step {
    Write { block: u64, count: usize, byte: u8, durable: bool },
    Zero { block: u64 },
    Flush,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0u64..12, 1usize..4, 1u8..250, any::<bool>())
            .prop_map(|(block, count, byte, durable)| Step::Write { block, count, byte, durable }),
        1 => (0u64..12).prop_map(|block| Step::Zero { block }),
        2 => Just(Step::Flush),
    ]
}

async fn perform(device: std::rc::Rc<dyn BlockDevice>, seams: Seams, steps: Vec<Step>) {
    for step in steps {
        let result = match step {
            Step::Write { block, count, byte, durable } => {
                let durability = if durable { Durability::Durable } else { Durability::Cached };
                put_many(device.as_ref(), &seams, block, &vec![byte; count], durability).await
            }
            Step::Zero { block } => write_zeroes(device.as_ref(), TOKEN, block * BLOCK, BLOCK).await,
            Step::Flush => flush(device.as_ref(), TOKEN).await,
        };
        assert_eq!(result, Ok(()));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    // Any writes, zeroings and flushes one after the other, then a power cut: each sector holds what the last durable
    // or flushed write left, or what a later one wrote; a block is whole on a disk that writes blocks atomically.
    #[test]
    fn after_a_power_cut_each_sector_is_as_certain_or_newer(
        steps in proptest::collection::vec(step(), 1..25), seed in any::<u64>(), tearing in any::<bool>(),
    ) {
        let profile = if tearing { profile().tearing() } else { profile() };
        let bench = Bench::new(seed, profile);
        let mut allowed: Vec<BTreeSet<u8>> = vec![BTreeSet::from([0]); 16];
        let mut newest = [0u8; 16];
        for step in &steps {
            match *step {
                Step::Write { block, count, byte, durable } => {
                    for place in usize::try_from(block).unwrap()..usize::try_from(block).unwrap() + count {
                        if durable { allowed[place].clear(); }
                        allowed[place].insert(byte);
                        newest[place] = byte;
                    }
                }
                Step::Zero { block } => {
                    allowed[usize::try_from(block).unwrap()].insert(0);
                    newest[usize::try_from(block).unwrap()] = 0;
                }
                Step::Flush => allowed = newest.iter().map(|byte| BTreeSet::from([*byte])).collect(),
            }
        }
        let (device, seams) = bench.open();
        bench.world.run(perform(device, seams, steps)).unwrap();
        prop_assert_eq!(blocks(&bench.disk.truth(), 16), newest.to_vec());
        bench.world.power_cut();
        for (sector, byte) in sectors(&bench.disk.truth(), 128).iter().enumerate() {
            prop_assert!(allowed[sector / 8].contains(byte), "sector {} holds {}", sector, byte);
        }
        prop_assert!(tearing || !blocks(&bench.disk.truth(), 16).contains(&255));
    }
}

#[test]
fn overlapping_writes_under_way_mix_by_block_and_every_read_sees_what_earlier_ones_saw() {
    let mut mixed = 0;
    for seed in 0..200 {
        let bench = Bench::new(seed, profile());
        let (device, seams) = bench.open();
        let one = put_many(device.as_ref(), &seams, 0, &[1; 4], Durability::Cached);
        let two = put_many(device.as_ref(), &seams, 0, &[2; 4], Durability::Cached);
        let (reader, data) = (std::rc::Rc::clone(&device), seams.data.clone());
        let reading = async move {
            let mut before = vec![0; 4];
            for _ in 0..6 {
                let (buffer, result) = read(reader.as_ref(), TOKEN, 0, data.take(4 * 4096).await).await;
                assert_eq!(result, Ok(()));
                let now: Vec<u8> = buffer.chunks(4096).map(|block| block[0]).collect();
                assert!(
                    now.iter().zip(&before).all(|(now, before)| *now != 0 || *before == 0),
                    "{before:?} {now:?}"
                );
                before = now;
            }
        };
        bench.world.run(async move { (one.await.unwrap(), two.await.unwrap(), reading.await) }).unwrap();
        let found = blocks(&bench.disk.truth(), 4);
        assert!(found.iter().all(|byte| matches!(byte, 1 | 2)), "{found:?}");
        mixed += u32::from(found.contains(&1) && found.contains(&2));
    }
    assert!(mixed > 10, "{mixed}");
}

#[test]
fn a_durable_write_is_durable_in_all_its_parts_also_where_a_read_saw_some_of_it_before_its_end() {
    for fails in [false, true] {
        let mut seen_early = 0;
        for seed in 0..200 {
            let bench = Bench::new(seed, profile().tearing());
            let (device, seams) = bench.open();
            if fails {
                bench.disk.arm(FaultKind::FlushError);
            }
            let flushing = flush(device.as_ref(), TOKEN);
            let writing = put_many(device.as_ref(), &seams, 0, &[1; 4], Durability::Durable);
            let reading = read(device.as_ref(), TOKEN, 0, seams.data.try_take(4 * 4096).unwrap());
            let done = bench.world.run(async move { (writing.await, reading.await, flushing.await) });
            let (written, (buffer, result), flushed) = done.unwrap();
            assert_eq!((written, result, flushed.is_err()), (Ok(()), Ok(()), fails));
            seen_early += u32::from(buffer.contains(&1) && buffer.contains(&0));
            assert_eq!(bench.disk.pending_writes(), [], "seed {seed}");
            bench.world.power_cut_choosing(&mut |_| Fate::Lost);
            assert_eq!(sectors(&bench.disk.truth(), 32), [1; 32], "seed {seed}");
        }
        assert!(seen_early > 10, "{seen_early}");
    }
}

#[test]
fn a_process_can_be_killed_at_any_step_and_the_disk_is_opened_again() {
    for seed in 0..100 {
        let bench = Bench::new(seed, profile().tearing().with_delayed_writes(Rate::one_in(3)));
        let mut draws = Random::new(seed);
        for life in 1..5u8 {
            let (device, seams) = bench.open();
            let work = async move {
                for block in 0..20 {
                    put(device.as_ref(), &seams, block, life, Durability::Cached).await.unwrap();
                }
            };
            bench.world.run_to(StopAt::Steps(draws.below(60)), work).unwrap();
            if draws.coin() { bench.world.kill() } else { bench.world.power_cut() }
        }
        let (device, _) = bench.open();
        assert_eq!(bench.world.run(flush(device.as_ref(), TOKEN)).unwrap(), Ok(()));
        assert!(bench.world.now() < dolmen_block_io::Instant(0) + Duration::from_secs(1));
    }
}
