//! Every kind of fault, struck on demand and by rate.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;

use dolmen_block_io::{discard, sleep};

use super::*;
use crate::{Atlas, AtlasGroup, DiskIndex, FaultKind, FaultRates, Rate};

fn fired(bench: &Bench, kind: FaultKind) -> u64 {
    bench.disk.fault_counters().of(kind)
}

/// A bench whose first four blocks hold 1 to 4, durably, and on which one fault waits.
fn armed(kind: FaultKind) -> Bench {
    let bench = Bench::new(7, profile().tearing());
    bench.write_all(&[(0, 1), (1, 2), (2, 3), (3, 4)], Durability::Cached);
    assert_eq!(bench.flush(), Ok(()));
    bench.disk.arm(kind);
    bench
}

#[test]
fn bit_rot_changes_one_bit_for_good_and_not_the_truth() {
    let bench = armed(FaultKind::BitRot);
    for _ in 0..2 {
        let bytes = bench.read(0).unwrap();
        assert_eq!(bytes.iter().map(|byte| (byte ^ 1).count_ones()).sum::<u32>(), 1);
    }
    assert_eq!((blocks(&bench.disk.truth(), 1)[0], fired(&bench, FaultKind::BitRot)), (1, 1));
    assert_eq!(bench.disk.damaged().len(), 1);
    bench.write_all(&[(0, 9)], Durability::Cached);
    assert_eq!(bench.read(0).unwrap(), vec![9; 4096]);
    assert!(bench.disk.damaged().is_empty());
}

#[test]
fn rot_on_demand_turns_the_bit_that_was_named() {
    let bench = armed(FaultKind::ClockJump);
    bench.disk.rot(4096 + 10, 7);
    bench.disk.rot(4096 + 11, 0);
    let bytes = bench.read(1).unwrap();
    assert_eq!((bytes[10], bytes[11], bytes[12]), (2 ^ 128, 2 ^ 1, 2));
    assert_eq!(bench.disk.damaged().as_slice(), std::slice::from_ref(&(4096..4096 + 512)));
}

#[test]
fn a_latent_error_lasts_until_its_sector_is_written() {
    let bench = armed(FaultKind::LatentError);
    assert_eq!(bench.read(0), Err(DeviceError::Medium { errno: 5 }));
    assert_eq!(bench.read(0), Err(DeviceError::Medium { errno: 5 }));
    assert_eq!(bench.read(1).unwrap(), vec![2; 4096]);
    bench.write_all(&[(0, 9)], Durability::Cached);
    assert_eq!(bench.read(0).unwrap(), vec![9; 4096]);
    assert_eq!(fired(&bench, FaultKind::LatentError), 1);
}

#[test]
fn a_sector_can_read_stale_after_its_error_was_cleared() {
    let bench = armed(FaultKind::StaleAfterError);
    bench.disk.make_unreadable(512);
    bench.write_all(&[(0, 9)], Durability::Cached);
    let bytes = bench.read(0).unwrap();
    assert!(bytes[512..1024].iter().all(|byte| *byte == 1));
    assert_eq!(bytes.iter().filter(|byte| **byte == 9).count(), 4096 - 512);
    assert_eq!(fired(&bench, FaultKind::StaleAfterError), 1);
}

#[test]
fn a_lost_write_is_acknowledged_and_reads_as_before() {
    let bench = armed(FaultKind::LostWrite);
    bench.write_all(&[(0, 9)], Durability::Durable);
    assert_eq!(bench.read(0).unwrap(), vec![1; 4096]);
    assert_eq!((blocks(&bench.disk.truth(), 1)[0], fired(&bench, FaultKind::LostWrite)), (9, 1));
}

#[test]
fn a_misdirected_write_shows_somewhere_else() {
    let bench = armed(FaultKind::MisdirectedWrite);
    bench.write_all(&[(0, 9)], Durability::Durable);
    assert_eq!(bench.read(0).unwrap(), vec![1; 4096]);
    let damaged = bench.disk.damaged();
    let victim = damaged.iter().find(|range| range.start > 0).unwrap();
    let mut bytes = vec![0; 4096];
    assert!(bench.disk.show(victim.start, &mut bytes));
    assert_eq!(bytes, vec![9; 4096]);
    assert_eq!(fired(&bench, FaultKind::MisdirectedWrite), 1);
}

#[test]
fn a_misdirected_read_is_wrong_once() {
    let bench = armed(FaultKind::MisdirectedRead);
    assert_ne!(bench.read(0).unwrap(), vec![1; 4096]);
    assert_eq!(bench.read(0).unwrap(), vec![1; 4096]);
    assert_eq!(fired(&bench, FaultKind::MisdirectedRead), 1);
}

#[test]
fn a_torn_write_is_acknowledged_and_shows_its_first_part() {
    let bench = armed(FaultKind::TornWrite);
    bench.write_all(&[(0, 9)], Durability::Durable);
    let bytes = bench.read(0).unwrap();
    let new = bytes.iter().take_while(|byte| **byte == 9).count();
    assert!(new > 0 && new < 4096 && new.is_multiple_of(512), "{new}");
    assert!(bytes[new..].iter().all(|byte| *byte == 1));
    assert_eq!(fired(&bench, FaultKind::TornWrite), 1);
}

#[test]
fn a_dropped_flush_leaves_everything_at_risk() {
    let bench = armed(FaultKind::DroppedFlush);
    bench.write_all(&[(0, 9)], Durability::Cached);
    assert_eq!(bench.flush(), Ok(()));
    assert_eq!(bench.disk.pending_writes().len(), 1);
    assert_eq!(fired(&bench, FaultKind::DroppedFlush), 1);
    bench.world.power_cut_choosing(&mut |_| crate::Fate::Lost);
    assert_eq!(bench.read(0).unwrap(), vec![1; 4096]);
}

#[test]
fn a_failed_flush_may_lose_what_it_should_have_kept_and_the_next_does_not_bring_it_back() {
    let mut seen = BTreeSet::new();
    for seed in 0..40 {
        let bench = Bench::new(seed, profile());
        bench.write_all(&[(0, 9)], Durability::Cached);
        bench.disk.arm(FaultKind::FlushError);
        assert_eq!(bench.flush(), Err(DeviceError::Medium { errno: 5 }));
        assert_eq!(bench.flush(), Ok(()));
        let shown = bench.read(0).unwrap()[0];
        assert_eq!(blocks(&bench.disk.durable(), 1), [shown]);
        seen.insert(shown);
    }
    assert_eq!(seen, BTreeSet::from([0, 9]));
}

#[test]
fn a_write_error_leaves_old_new_or_torn() {
    let mut seen = BTreeSet::new();
    for seed in 0..60 {
        let bench = Bench::new(seed, profile().tearing());
        bench.disk.arm(FaultKind::WriteError);
        let (device, seams) = bench.open();
        let result = bench.world.run(put(device.as_ref(), &seams, 0, 9, Durability::Cached)).unwrap();
        assert_eq!(result, Err(DeviceError::Medium { errno: 5 }));
        assert_eq!(device.counters().errors, 1);
        seen.insert(blocks(&bench.disk.truth(), 1)[0]);
    }
    assert_eq!(seen, BTreeSet::from([0, 9, 255]));
}

#[test]
fn a_slow_command_takes_ten_to_a_thousand_times_as_long() {
    for seed in 0..20 {
        let bench = Bench::new(seed, profile());
        bench.disk.arm(FaultKind::Slow);
        bench.write_all(&[(0, 1)], Durability::Cached);
        // A write of 4 KiB takes 21.2 to 81.2 µs.
        assert!((212_000..=81_200_000).contains(&bench.world.now().0), "{:?}", bench.world.now());
        assert_eq!(fired(&bench, FaultKind::Slow), 1);
    }
}

#[test]
fn a_slow_period_slows_commands_of_its_kinds_until_it_ends() {
    let (mut slow_kinds, mut outlasted) = (BTreeSet::new(), 0);
    for seed in 0..60 {
        let bench = Bench::new(seed, profile());
        bench.write_all(&[(0, 1)], Durability::Cached);
        bench.disk.arm(FaultKind::SlowPeriod);
        let took = |action: &dyn Fn()| {
            let began = bench.world.now().0;
            action();
            bench.world.now().0 - began
        };
        // None of these takes more than 100 µs on a disk that is not slow, nor less than 200 µs on one that is.
        let slow = || {
            let read = took(&|| drop(bench.read(0).unwrap())) > 150_000;
            let write = took(&|| bench.write_all(&[(1, 1)], Durability::Cached)) > 150_000;
            (read, write, took(&|| bench.flush().unwrap()) > 150_000)
        };
        let first = slow();
        slow_kinds.insert(first);
        outlasted += u64::from((0..1000).any(|_| slow() == (false, false, false)));
        assert_eq!(fired(&bench, FaultKind::SlowPeriod), 1);
    }
    assert!(slow_kinds.len() > 6, "{slow_kinds:?}");
    assert_eq!(outlasted, 60);
}

#[test]
fn a_hung_command_is_answered_when_released() {
    let bench = armed(FaultKind::Hung);
    let (device, seams) = bench.open();
    let writing = put(device.as_ref(), &seams, 0, 9, Durability::Cached);
    bench.world.run_until_idle().unwrap();
    assert_eq!((bench.disk.under_way(), blocks(&bench.disk.truth(), 1)[0]), (1, 1));
    bench.disk.release_hung();
    assert_eq!(bench.world.run(writing).unwrap(), Ok(()));
    assert_eq!((blocks(&bench.disk.truth(), 1)[0], fired(&bench, FaultKind::Hung)), (9, 1));
}

#[test]
fn a_hung_command_times_out_at_its_limit_and_may_take_effect_later() {
    let mut seen = BTreeSet::new();
    for seed in 0..40 {
        let bench = Bench::new(seed, DiskProfile { hang_limit: Some(Duration::from_secs(30)), ..profile() });
        bench.disk.arm(FaultKind::Hung);
        let (device, seams) = bench.open();
        let result = bench.world.run(put(device.as_ref(), &seams, 0, 9, Durability::Cached)).unwrap();
        assert_eq!(result, Err(DeviceError::TimedOut));
        assert!((30_000_000_000..30_001_000_000).contains(&bench.world.now().0));
        bench.world.run_until_idle().unwrap();
        seen.insert((blocks(&bench.disk.truth(), 1)[0], fired(&bench, FaultKind::DelayedWrite)));
    }
    assert_eq!(seen, BTreeSet::from([(0, 0), (9, 1)]));
}

#[test]
fn a_vanished_disk_answers_detached_until_it_is_attached_again() {
    let bench = armed(FaultKind::Vanished);
    let (device, seams) = bench.open();
    for _ in 0..2 {
        let result = bench.world.run(put(device.as_ref(), &seams, 0, 9, Durability::Cached)).unwrap();
        assert_eq!(result, Err(DeviceError::Detached));
    }
    assert!(bench.disk.is_absent());
    assert_eq!(bench.read(0), Err(DeviceError::Detached));
    bench.disk.come_back();
    assert_eq!(bench.read(0).unwrap(), vec![1; 4096]);
    let (counters, gone) = (bench.disk.fault_counters(), device.counters().errors);
    assert_eq!((counters.of(FaultKind::Vanished), counters.of(FaultKind::CameBack), gone), (1, 1, 2));
}

#[test]
fn commands_in_flight_are_answered_detached_when_their_disk_vanishes() {
    let bench = armed(FaultKind::ClockJump);
    let (device, seams) = bench.open();
    let writing = put(device.as_ref(), &seams, 0, 9, Durability::Cached);
    bench.disk.vanish();
    assert_eq!(bench.world.run(writing).unwrap(), Err(DeviceError::Detached));
    assert_eq!(seams.data.lent_count(), 0);
}

#[test]
fn a_disk_that_vanished_comes_back_by_itself_after_its_absence() {
    let absence = Some(Duration::from_secs(5));
    let bench = Bench::new(1, DiskProfile { absence, ..profile() });
    bench.disk.vanish();
    let clock = bench.world.seams().clock;
    bench.world.run(async move { sleep(clock.as_ref(), Duration::from_secs(6)).await }).unwrap();
    assert!(!bench.disk.is_absent());
}

#[test]
fn a_disk_can_return_as_it_was_at_an_earlier_flush() {
    let bench = Bench::new(1, profile());
    for byte in 1..=3 {
        bench.write_all(&[(0, byte)], Durability::Cached);
        assert_eq!(bench.flush(), Ok(()));
    }
    bench.disk.vanish();
    assert!(bench.disk.return_to(1));
    bench.disk.come_back();
    assert_eq!(bench.read(0).unwrap(), vec![2; 4096]);
    assert_eq!(fired(&bench, FaultKind::ReturnedOld), 1);
    bench.disk.vanish();
    assert!(!bench.disk.return_to(2));
    bench.disk.arm(FaultKind::ReturnedOld);
    bench.disk.come_back();
    assert_eq!(fired(&bench, FaultKind::ReturnedOld), 2);
}

#[test]
fn no_space_fires_only_where_nothing_was_written() {
    let bench = armed(FaultKind::NoSpace);
    let (device, seams) = bench.open();
    let result = bench.world.run(put(device.as_ref(), &seams, 100, 9, Durability::Cached)).unwrap();
    assert_eq!(result, Err(DeviceError::NoSpace));
    bench.disk.arm(FaultKind::NoSpace);
    bench.write_all(&[(0, 9)], Durability::Cached);
    assert_eq!((blocks(&bench.disk.truth(), 1)[0], fired(&bench, FaultKind::NoSpace)), (9, 1));
}

#[test]
fn a_reset_fails_commands_in_flight_and_the_next_flush() {
    let bench = armed(FaultKind::ClockJump);
    bench.write_all(&[(0, 9)], Durability::Cached);
    let (device, seams) = bench.open();
    let writing = put(device.as_ref(), &seams, 1, 9, Durability::Cached);
    bench.disk.arm(FaultKind::Reset);
    let after = put(device.as_ref(), &seams, 2, 8, Durability::Cached);
    let results = bench.world.run(async move { (writing.await, after.await) }).unwrap();
    assert_eq!(results, (Err(DeviceError::CacheLost), Ok(())));
    assert_eq!(bench.flush(), Err(DeviceError::CacheLost));
    assert_eq!(bench.flush(), Ok(()));
    assert_eq!((blocks(&bench.disk.truth(), 3)[2], fired(&bench, FaultKind::Reset)), (8, 1));
}

#[test]
fn a_discard_forgets_whole_units_or_nothing() {
    let mut seen = BTreeSet::new();
    for seed in 0..20 {
        let bench = Bench::new(seed, profile());
        bench.write_all(&[(0, 1), (1, 2), (2, 3)], Durability::Cached);
        let (device, _) = bench.open();
        let forgotten = discard(device.as_ref(), TOKEN, 512, 3 * 4096 - 1024);
        assert_eq!(bench.world.run(forgotten).unwrap(), Ok(()));
        seen.insert(blocks(&bench.disk.truth(), 3));
    }
    assert_eq!(seen, BTreeSet::from([vec![1, 0, 3], vec![1, 2, 3]]));
}

#[test]
fn every_kind_fires_by_its_rate_and_is_counted() {
    let drawn = [
        FaultKind::BitRot,
        FaultKind::LatentError,
        FaultKind::LostWrite,
        FaultKind::MisdirectedWrite,
        FaultKind::MisdirectedRead,
        FaultKind::TornWrite,
        FaultKind::DroppedFlush,
        FaultKind::WriteError,
        FaultKind::FlushError,
        FaultKind::Slow,
        FaultKind::SlowPeriod,
        FaultKind::Hung,
        FaultKind::Reset,
    ];
    let mut rates = drawn.iter().fold(FaultRates::NONE, |rates, kind| rates.with(*kind, Rate::one_in(60)));
    for kind in
        [FaultKind::StaleAfterError, FaultKind::DelayedWrite, FaultKind::ReturnedOld, FaultKind::NoSpace]
    {
        rates = rates.with(kind, Rate::one_in(3));
    }
    rates = rates.with(FaultKind::Vanished, Rate::one_in(400));
    let profile = DiskProfile {
        hang_limit: Some(Duration::from_millis(500)),
        absence: Some(Duration::from_millis(100)),
        fence_scope: crate::FenceScope::Disk,
        delayed_by_max: Duration::from_millis(1),
        ..profile().tearing().with_rates(rates)
    };
    let bench = Bench::new(12, profile);
    for life in 0..40u64 {
        let (device, seams) = bench.open();
        let token = Epoch(life / 3);
        device.fence(token);
        let mut draws = crate::Random::new(life);
        for _ in 0..60 {
            let block = draws.below(40);
            let mut buffer = seams.data.try_take(4096).unwrap();
            buffer.fill(1);
            drop(write(device.as_ref(), token, block * BLOCK, buffer.freeze(), Durability::Cached));
            drop(flush(device.as_ref(), token));
            drop(read(device.as_ref(), token, block * BLOCK, seams.data.try_take(4096).unwrap()));
            let clock = Rc::clone(&seams.clock);
            bench.world.run(async move { sleep(clock.as_ref(), Duration::from_micros(50)).await }).unwrap();
        }
        bench.world.jump_clock(Duration::from_secs(1));
        if life % 2 == 0 {
            bench.world.kill()
        } else {
            bench.world.power_cut()
        }
        bench.world.run_until_idle().unwrap();
    }
    let counters = bench.world.fault_counters();
    for kind in FaultKind::ALL {
        assert!(counters.of(kind) > 0, "{kind} never fired\n{counters}");
    }
    assert_eq!(counters.spared, 0);
}

#[test]
fn a_policy_is_asked_before_content_is_damaged_and_refusals_are_counted() {
    let bench = armed(FaultKind::LostWrite);
    let asked = Rc::new(Cell::new(0));
    let seen = Rc::clone(&asked);
    bench.world.set_damage_policy(Rc::new(move |disk: DiskIndex, range: std::ops::Range<u64>| {
        seen.set(seen.get() + 1);
        assert_eq!((disk, range), (DiskIndex(0), 0..4096));
        false
    }));
    bench.write_all(&[(0, 9)], Durability::Cached);
    assert_eq!(bench.read(0).unwrap(), vec![9; 4096]);
    let counters = bench.disk.fault_counters();
    assert_eq!((asked.get(), counters.spared, counters.of(FaultKind::LostWrite)), (1, 1, 0));
}

#[test]
fn an_atlas_leaves_one_good_copy_of_everything() {
    let world = World::new(5);
    let rates =
        [FaultKind::BitRot, FaultKind::LatentError, FaultKind::LostWrite, FaultKind::MisdirectedWrite]
            .into_iter()
            .fold(FaultRates::NONE, |rates, kind| rates.with(kind, Rate::one_in(8)));
    let disks: Vec<_> =
        (0..3).map(|_| world.add_disk("copy", profile().tearing().with_rates(rates))).collect();
    let group = AtlasGroup { disks: (0..3).map(DiskIndex).collect(), tolerance: 2 };
    world.set_damage_policy(Rc::new(Atlas::new(vec![group], 16 * 4096)));
    let devices: Vec<_> = disks.iter().map(|disk| disk.attach(&world)).collect();
    let seams = world.seams();
    world
        .run(async move {
            for step in 0..600u64 {
                for device in &devices {
                    let byte = u8::try_from(step % 200).unwrap();
                    put(device.as_ref(), &seams, step * 7 % 64, byte, Durability::Cached).await.unwrap();
                    let _ = read(device.as_ref(), TOKEN, 0, seams.data.take(4 * 4096).await).await;
                }
            }
        })
        .unwrap();
    let damaged: Vec<_> = disks.iter().map(|disk| disk.damaged()).collect();
    for sector in (0..64 * 8).map(|sector| sector * 512) {
        let hurt = damaged.iter().filter(|ranges| ranges.iter().any(|range| range.contains(&sector))).count();
        assert!(hurt <= 2, "byte {sector} is damaged on {hurt} disks");
    }
    let counters = world.fault_counters();
    assert!(counters.spared > 0 && counters.of(FaultKind::LostWrite) > 50, "{counters}");
}
