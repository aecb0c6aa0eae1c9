//! Time, order and repetition.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;

use dolmen_block_io::{Durability, Instant, conformance, sleep, within};

use super::*;
use crate::{FaultKind, FaultRates, Ran, Rate, Seeds, StopAt, StuckReason, TraceEvent};

#[test]
fn a_faultless_disk_keeps_the_contract() {
    let profiles = [
        profile(),
        profile().tearing(),
        profile().native_4k().without_cache(),
        profile().native_4k().tearing().without_fua(),
        DiskProfile { geometry: profile().without_fua().without_cache().geometry, ..profile() },
    ];
    for (seed, profile) in (0..10).zip(profiles.iter().cycle()) {
        let bench = Bench::new(seed, profile.clone());
        bench
            .world
            .set_arenas(ArenaConfig::MODEST, ArenaConfig { small_count: 1, medium_count: 0, large_count: 0 });
        let (device, seams) = bench.open();
        let done = bench.world.run(async move { conformance::all(device.as_ref(), &seams.data).await });
        assert!(done.is_ok(), "seed {seed}: {done:?}");
        assert_eq!(bench.disk.under_way(), 0, "seed {seed}");
    }
}

/// Tasks that write, read and flush on two disks with many faults, and pause in between.
fn busy_world(seeds: Seeds) -> (World, u64) {
    let world = World::from_seeds(seeds);
    let rates = FaultRates::NONE
        .with(FaultKind::LostWrite, Rate::one_in(20))
        .with(FaultKind::BitRot, Rate::one_in(20))
        .with(FaultKind::Slow, Rate::one_in(20))
        .with(FaultKind::Reset, Rate::one_in(200));
    let disks: Vec<_> =
        (0..2).map(|_| world.add_disk("busy", profile().tearing().with_rates(rates))).collect();
    let devices: Vec<_> = disks.iter().map(|disk| disk.attach(&world)).collect();
    let (seams, mut workload) = (world.seams(), world.workload());
    for _ in 0..6 {
        let (devices, seams, mut draws) = (devices.clone(), seams.clone(), Random::new(workload.next_u64()));
        let task = async move {
            for _ in 0..30 {
                let device = Rc::clone(&devices[draws.index(2)]);
                let block = draws.below(64);
                let byte = u8::try_from(draws.below(250)).unwrap();
                let _ = put(device.as_ref(), &seams, block, byte, Durability::Cached).await;
                let _ = read(device.as_ref(), TOKEN, 0, seams.data.take(4096).await).await;
                let _ = flush(device.as_ref(), TOKEN).await;
                sleep(seams.clock.as_ref(), Duration::from_micros(draws.below(100))).await;
            }
        };
        world.spawn("busy", Box::pin(task));
    }
    world.run_until_idle().unwrap();
    let hash = world.trace_hash();
    (world, hash)
}

use crate::Random;

#[test]
fn one_seed_is_one_run() {
    let mut hashes = BTreeSet::new();
    for seed in 0..10 {
        let (one, two) = (busy_world(Seeds::from_seed(seed)), busy_world(Seeds::from_seed(seed)));
        assert_eq!(one.1, two.1, "seed {seed}");
        assert_eq!(one.0.fault_counters(), two.0.fault_counters(), "seed {seed}");
        for (mine, other) in one.0.disks().iter().zip(two.0.disks()) {
            assert_eq!(mine.truth().first_difference(&other.truth(), 1 << 22), None);
        }
        hashes.insert(one.1);
    }
    assert_eq!(hashes.len(), 10);
}

#[test]
fn each_stream_changes_the_run_by_itself() {
    let base = Seeds::from_seed(1);
    let changed = [Seeds { schedule: 5, ..base }, Seeds { faults: 5, ..base }, Seeds { workload: 5, ..base }];
    let hashes: BTreeSet<u64> = changed.into_iter().chain([base]).map(|seeds| busy_world(seeds).1).collect();
    assert_eq!(hashes.len(), 4);
}

#[test]
fn the_schedule_draws_every_order_of_three_tasks_and_of_three_completions() {
    let (mut task_orders, mut completion_orders) = (BTreeSet::new(), BTreeSet::new());
    for seed in 0..200 {
        let bench = Bench::new(seed, profile());
        let (device, seams) = bench.open();
        let orders = Rc::new(RefCell::new((Vec::new(), Vec::new())));
        for number in 0..3u8 {
            let (device, seams, orders) = (Rc::clone(&device), seams.clone(), Rc::clone(&orders));
            let task = async move {
                orders.borrow_mut().0.push(number);
                put(device.as_ref(), &seams, u64::from(number), 1, Durability::Cached).await.unwrap();
                orders.borrow_mut().1.push(number);
            };
            bench.world.spawn("numbered", Box::pin(task));
        }
        bench.world.run_until_idle().unwrap();
        let (tasks, completions) = orders.take();
        task_orders.insert(tasks);
        completion_orders.insert(completions);
    }
    assert_eq!((task_orders.len(), completion_orders.len()), (6, 6));
}

#[test]
fn time_leaps_to_the_next_event_and_alarms_ring_when_due() {
    let world = World::new(1);
    let seams = world.seams();
    let clock = Rc::clone(&seams.clock);
    let times = world.run(async move {
        sleep(clock.as_ref(), Duration::from_secs(3600)).await;
        let first = clock.now();
        let limit = clock.now() + Duration::from_secs(1);
        let nothing = within(clock.as_ref(), limit, std::future::pending::<()>()).await;
        assert_eq!(nothing, None);
        (first, clock.now())
    });
    assert_eq!(times.unwrap(), (Instant(3600 * 1_000_000_000), Instant(3601 * 1_000_000_000)));
}

#[test]
fn a_clock_jump_rings_alarms_before_commands_that_are_under_way() {
    let bench = Bench::new(1, profile());
    let (device, seams) = bench.open();
    let writing = put(device.as_ref(), &seams, 0, 1, Durability::Cached);
    let clock = Rc::clone(&seams.clock);
    let limit = clock.now() + Duration::from_secs(30);
    bench.world.jump_clock(Duration::from_secs(60));
    let result = bench.world.run(async move { within(clock.as_ref(), limit, writing).await });
    assert_eq!(result.unwrap(), None);
    assert_eq!(bench.world.now(), Instant(0));
    assert_eq!(seams.clock.now(), Instant(60_000_000_000));
    bench.world.run_until_idle().unwrap();
    assert_eq!(blocks(&bench.disk.truth(), 1), [1]);
    assert_eq!(bench.world.fault_counters().of(FaultKind::ClockJump), 1);
}

#[test]
fn a_run_that_cannot_end_says_who_waits() {
    let bench = Bench::new(1, profile());
    bench.world.keep_trace(3);
    bench.disk.arm(FaultKind::Hung);
    let (device, seams) = bench.open();
    bench.world.spawn("heartbeat", Box::pin(std::future::pending()));
    let stuck = bench.world.run(put(device.as_ref(), &seams, 0, 1, Durability::Cached)).unwrap_err();
    assert_eq!(stuck.reason, StuckReason::NothingMoves);
    assert_eq!(stuck.waiting, ["heartbeat", "run"]);
    assert_eq!(stuck.under_way, [("one".to_owned(), 1)]);
    let text = stuck.to_string();
    assert!(text.contains("heartbeat, run; one has 1 commands under way") && text.contains("hung"), "{text}");
}

#[test]
fn a_run_that_goes_on_for_ever_is_stopped() {
    let world = World::new(1);
    world.set_steps_max(1000);
    let clock = world.seams().clock;
    let run = world.run::<()>(async move {
        loop {
            sleep(clock.as_ref(), Duration::from_secs(1)).await;
        }
    });
    assert_eq!(run.unwrap_err().reason, StuckReason::TooManySteps);
}

#[test]
fn runs_stop_at_the_given_step() {
    let bench = Bench::new(3, profile());
    let (device, seams) = bench.open();
    let (device_too, seams_too) = (Rc::clone(&device), seams.clone());
    let work = async move {
        for block in 0..10 {
            put(device_too.as_ref(), &seams_too, block, 1, Durability::Cached).await.unwrap();
        }
    };
    assert_eq!(bench.world.run_to(StopAt::Commands(4), work).unwrap(), Ran::Stopped);
    assert_eq!((bench.world.change_count(), device.counters().writes), (4, 4));
    let later = bench.world.now() + Duration::from_millis(100);
    let waiting = std::future::pending::<()>();
    let clock = seams.clock;
    bench.world.spawn("late", Box::pin(async move { sleep(clock.as_ref(), Duration::from_secs(1)).await }));
    assert_eq!(bench.world.run_to(StopAt::Time(later), waiting).unwrap(), Ran::Stopped);
    assert_eq!(device.counters().writes, 10);
    assert_eq!(bench.world.run_to(StopAt::Steps(5), async { 7 }).unwrap(), Ran::Finished(7));
}

#[test]
fn the_trace_reports_what_happened_in_words() {
    let bench = Bench::new(1, profile());
    bench.world.keep_trace(100);
    bench.write_all(&[(2, 1)], Durability::Durable);
    let lines = bench.world.trace_lines();
    assert!(
        lines.iter().any(|line| line.ends_with("disk 0: durable write of 4096 bytes at 8192")),
        "{lines:?}"
    );
    assert!(lines.iter().any(|line| line.ends_with("disk 0: command 0 done")), "{lines:?}");
    assert_eq!(TraceEvent::Killed.to_string(), "the process dies");
}

#[test]
fn entropy_differs_between_worlds_and_goes_on_after_a_crash() {
    let world = World::new(1);
    let first = world.seams().entropy.next_id();
    world.kill();
    assert_ne!(first, world.seams().entropy.next_id());
    assert_eq!(first, World::new(1).seams().entropy.next_id());
    assert_ne!(first, World::new(2).seams().entropy.next_id());
}
