//! The log while it runs: grouping, a full ring, failing copies, changes of epoch.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use dolmen_block_io::{DeviceError, Spawner};
use dolmen_units::{Epoch, EpochId, Lsn};

use super::{RING, World, contents, epoch, owner};
use crate::{Class, CopyError, Log, LogCopy, LogError, Place, Start, Wait};

type Outcomes = Rc<RefCell<Vec<Result<Lsn, LogError>>>>;

fn spawn_append(world: &World, log: &Rc<Log>, body: Vec<u8>, class: Class, wait: Wait, outcomes: &Outcomes) {
    let (log, outcomes) = (Rc::clone(log), Rc::clone(outcomes));
    world.executor.spawn(
        "append",
        Box::pin(async move {
            let outcome = log.append(1, &[&body], class, wait).await;
            outcomes.borrow_mut().push(outcome);
        }),
    );
}

/// An epoch change that keeps these copies.
fn change(world: &World, log: &Rc<Log>, number: u64, copies: Vec<LogCopy>) -> Lsn {
    let log = Rc::clone(log);
    let first = Rc::new(Cell::new(Lsn(0)));
    let seen = Rc::clone(&first);
    let result: Result<(), ()> = world.block_on(async move {
        log.change_epoch(async |first| {
            seen.set(first);
            Ok((epoch(number), Epoch(number), copies))
        })
        .await
    });
    assert_eq!(result, Ok(()));
    first.get()
}

// A hundred appends at once, while one batch is held back on a disk: they cost one more batch, and one of them that
// wants it makes it durable.
#[test]
fn concurrent_appends_share_a_batch() {
    let world = World::new(2);
    let log = world.fresh();
    let outcomes = Outcomes::default();
    world.disks[0].holding.set(true);
    for number in 0..101u8 {
        let wait = if number == 50 { Wait::Durable } else { Wait::Written };
        spawn_append(&world, &log, vec![number; 20], Class::Ordinary, wait, &outcomes);
        if number == 0 {
            world.run_until_idle();
        }
    }
    world.run_until_idle();
    assert_eq!(outcomes.borrow().len(), 0, "nothing is acknowledged while a copy lacks it");
    world.disks[0].holding.set(false);
    world.disks[0].release_all();
    world.run_until_idle();
    assert_eq!(outcomes.borrow().len(), 101);
    let counters = log.counters();
    assert_eq!((counters.batches, counters.durable_batches, counters.records), (2, 2, 101));
}

// Three thousand appends take no buffer beyond the first two, and go round the ring many times.
#[test]
fn many_laps_need_two_buffers_and_lose_nothing() {
    let world = World::new(2);
    let log = world.fresh();
    let running = Rc::clone(&log);
    let tail = world.block_on(async move {
        let mut tail = Place::FIRST;
        for number in 0..3000u64 {
            let body = vec![7; usize::try_from(number * 37 % 5000).unwrap()];
            let front = number.to_le_bytes();
            let lsn = running.append(1, &[&front, &body], Class::Ordinary, Wait::Written).await.unwrap();
            assert_eq!(lsn, Lsn(number + 1));
            if number >= 3 {
                tail = running.place_of(Lsn(number - 2)).unwrap();
                running.trim(tail);
            }
        }
        tail
    });
    assert_eq!(log.counters().buffers, 2);
    assert!(log.counters().written_bytes > 100 * RING.length);
    let recovered = world.recover(&[0, 1], tail, &[owner(1, 1)]);
    let found: Vec<u64> = contents(&recovered)
        .iter()
        .map(|(_, _, body)| u64::from_le_bytes(body[..8].try_into().unwrap()))
        .collect();
    assert_eq!(found, [2996, 2997, 2998, 2999]);
    assert_eq!((recovered.next(), recovered.holes()), (log.place_of(Lsn(3001)).unwrap(), &[][..]));
}

// Nothing is trimmed: ordinary appends stop at three quarters, reserved ones at the last sixteenth, a mark still goes,
// and each goes on after a trim.
#[test]
fn a_full_ring_waits_for_a_trim() {
    let world = World::new(1);
    let log = world.fresh();
    let (ordinary, reserved) = (Outcomes::default(), Outcomes::default());
    let fill = |class, outcomes: &Outcomes| {
        for _ in 0..20 {
            spawn_append(&world, &log, vec![1; 3000], class, Wait::Written, outcomes);
            world.run_until_idle();
        }
    };
    fill(Class::Ordinary, &ordinary);
    assert_eq!((ordinary.borrow().len(), log.usage().used_bytes), (12, RING.length * 3 / 4));
    fill(Class::Reserved, &reserved);
    assert_eq!((reserved.borrow().len(), log.usage().used_bytes), (3, RING.length - 4096));
    let marking = Rc::clone(&log);
    assert_eq!(world.block_on(async move { marking.mark().await }), Ok(Lsn(16)));
    assert_eq!(log.usage().used_bytes, RING.length);
    log.trim(log.place_of(Lsn(13)).unwrap());
    world.run_until_idle();
    assert!(reserved.borrow().len() > 3 && ordinary.borrow().len() > 12);
    while ordinary.borrow().len() < 20 || reserved.borrow().len() < 20 {
        let used = log.usage().used_bytes;
        log.trim((1..200).rev().find_map(|lsn| log.place_of(Lsn(lsn))).unwrap());
        world.run_until_idle();
        assert!(used > 0, "an empty ring takes whatever waits");
    }
}

// A copy fails: the append is not acknowledged and trouble names the disk, until an epoch without it; what came
// meanwhile goes into the new epoch, and everything is recovered from what is left.
#[test]
fn a_failed_copy_is_excluded_before_anything_is_acknowledged() {
    let world = World::new(3);
    let log = world.fresh();
    let outcomes = Outcomes::default();
    world.disks[2].failing.set(Some(DeviceError::Detached));
    for number in 0..3 {
        spawn_append(&world, &log, vec![number], Class::Ordinary, Wait::Durable, &outcomes);
        world.run_until_idle();
    }
    let asked = Rc::clone(&log);
    assert_eq!(world.block_on(async move { asked.trouble().await }), world.copy(2).disk);
    assert_eq!((outcomes.borrow().len(), log.failures().len()), (0, 1));
    let first = change(&world, &log, 2, world.copies(&[0, 1]));
    world.run_until_idle();
    assert_eq!(*outcomes.borrow(), [Ok(Lsn(1)), Ok(Lsn(2)), Ok(Lsn(2))]);
    assert_eq!((first, log.failures().len()), (Lsn(2), 0));
    for copy in [0, 1] {
        let recovered = world.recover(&[copy], Place::FIRST, &[owner(1, 1), owner(2, 2)]);
        assert_eq!(contents(&recovered).len(), 3);
    }
}

// A copy fails while the epoch is changed for another reason, and remains: the batch stays open and trouble still names the
// disk; only the change that leaves it out lets the append be acknowledged.
#[test]
fn a_copy_that_fails_under_another_change_holds_its_batch_open() {
    let world = World::new(2);
    let log = world.fresh();
    let outcomes = Outcomes::default();
    world.disks[1].failing.set(Some(DeviceError::Detached));
    spawn_append(&world, &log, vec![1], Class::Ordinary, Wait::Durable, &outcomes);
    world.run_until_idle();
    change(&world, &log, 2, world.copies(&[0, 1]));
    world.run_until_idle();
    assert_eq!((outcomes.borrow().len(), log.failures().len()), (0, 1));
    let asked = Rc::clone(&log);
    assert_eq!(world.block_on(async move { asked.trouble().await }), world.copy(1).disk);
    change(&world, &log, 3, world.copies(&[0]));
    world.run_until_idle();
    assert_eq!((outcomes.borrow().len(), log.failures().len()), (1, 0));
    assert_eq!(*outcomes.borrow(), [Ok(Lsn(1))]);
}

#[test]
fn a_change_that_fails_changes_nothing_and_may_be_tried_again() {
    let world = World::new(2);
    let log = world.fresh();
    let outcomes = Outcomes::default();
    world.disks[1].failing.set(Some(DeviceError::Medium { errno: 5 }));
    spawn_append(&world, &log, vec![1], Class::Ordinary, Wait::Written, &outcomes);
    world.run_until_idle();
    let changing = Rc::clone(&log);
    let result = world.block_on(async move {
        changing.change_epoch(async |_| Err::<(EpochId, Epoch, Vec<LogCopy>), &str>("no label")).await
    });
    assert_eq!(result, Err("no label"));
    world.run_until_idle();
    assert_eq!(outcomes.borrow().len(), 0);
    change(&world, &log, 2, world.copies(&[0]));
    world.run_until_idle();
    assert_eq!(*outcomes.borrow(), [Ok(Lsn(1))]);
}

// All copies fail: every waiter, that under way, that collected and that to come, gets the loss; nobody hangs.
#[test]
fn the_loss_of_all_copies_is_latched() {
    let world = World::new(2);
    let log = world.fresh();
    let outcomes = Outcomes::default();
    world.disks.iter().for_each(|disk| disk.holding.set(true));
    for number in 0..3 {
        spawn_append(&world, &log, vec![number; 16000], Class::Ordinary, Wait::Written, &outcomes);
        world.run_until_idle();
    }
    world.disks.iter().for_each(|disk| disk.failing.set(Some(DeviceError::Detached)));
    world.disks.iter().for_each(|disk| disk.release_all());
    world.run_until_idle();
    assert_eq!(outcomes.borrow().len(), 3);
    assert!(outcomes.borrow().iter().all(|outcome| matches!(outcome, Err(LogError::Lost { .. }))));
    let late = Rc::clone(&log);
    assert!(matches!(world.block_on(async move { late.mark().await }), Err(LogError::Lost { .. })));
    drop(log);
    world.run_until_idle();
    assert_eq!((world.executor.waiting(), world.seams.metadata.lent_count()), (vec![], 0));
}

// A new voter joins while a batch is under way and the old copies are corrupt in different places: it alone then tells
// everything, and what is appended later reaches it.
#[test]
fn a_new_voter_gets_the_live_log() {
    let world = World::new(3);
    let log = world.start(1, world.copies(&[0, 1]), Start::Fresh(Place::FIRST));
    let outcomes = Outcomes::default();
    for number in 0..5 {
        spawn_append(&world, &log, vec![number; 3000], Class::Ordinary, Wait::Written, &outcomes);
        world.run_until_idle();
    }
    world.disks[0].damage(|content| content[8192 + 500] ^= 1);
    world.disks[1].damage(|content| content[8192 + 4096 + 500] ^= 1);
    world.disks[0].holding.set(true);
    spawn_append(&world, &log, vec![5; 3000], Class::Ordinary, Wait::Written, &outcomes);
    world.run_until_idle();
    let (changing, copies, new) = (Rc::clone(&log), world.all(), world.copy(2));
    let result: Result<(), CopyError> = world.block_on(async move {
        changing
            .change_epoch(async |first| {
                assert_eq!(first, Lsn(7));
                changing.copy_to(&new).await?;
                Ok((epoch(2), Epoch(2), copies))
            })
            .await
    });
    assert_eq!((result, outcomes.borrow().len()), (Ok(()), 5));
    world.disks[0].holding.set(false);
    world.disks[0].release_all();
    spawn_append(&world, &log, vec![6; 3000], Class::Ordinary, Wait::Written, &outcomes);
    world.run_until_idle();
    assert_eq!(outcomes.borrow().len(), 7);
    let recovered = world.recover(&[2], Place::FIRST, &[owner(1, 1), owner(2, 7)]);
    let found: Vec<u8> = contents(&recovered).iter().map(|(_, _, body)| body[0]).collect();
    assert_eq!(found, [0, 1, 2, 3, 4, 5, 6]);
}

// A new voter was given the batch that is under way, and then all that had it before fail: it is not lost.
#[test]
fn a_batch_on_a_new_voter_survives_the_old_ones() {
    let world = World::new(2);
    let log = world.start(1, world.copies(&[0]), Start::Fresh(Place::FIRST));
    let outcomes = Outcomes::default();
    world.disks[0].holding.set(true);
    spawn_append(&world, &log, vec![1], Class::Ordinary, Wait::Durable, &outcomes);
    world.run_until_idle();
    let (changing, copies, new) = (Rc::clone(&log), world.all(), world.copy(1));
    let joined: Result<(), CopyError> = world.block_on(async move {
        changing
            .change_epoch(async |_| {
                changing.copy_to(&new).await?;
                Ok((epoch(2), Epoch(2), copies))
            })
            .await
    });
    assert_eq!(joined, Ok(()));
    world.disks[0].failing.set(Some(DeviceError::Detached));
    world.disks[0].release_all();
    world.run_until_idle();
    let asked = Rc::clone(&log);
    assert_eq!(world.block_on(async move { asked.trouble().await }), world.copy(0).disk);
    assert_eq!(*outcomes.borrow(), []);
    change(&world, &log, 3, world.copies(&[1]));
    world.run_until_idle();
    assert_eq!(*outcomes.borrow(), [Ok(Lsn(1))]);
    let recovered = world.recover(&[1], Place::FIRST, &[owner(1, 1), owner(3, 2)]);
    assert_eq!(contents(&recovered).len(), 1);
}

#[test]
fn a_batch_that_no_copy_gives_is_not_copied() {
    let world = World::new(2);
    let log = world.start(1, world.copies(&[0]), Start::Fresh(Place::FIRST));
    let outcomes = Outcomes::default();
    spawn_append(&world, &log, vec![1], Class::Ordinary, Wait::Written, &outcomes);
    world.run_until_idle();
    world.disks[0].damage(|content| content[8192 + 500] ^= 1);
    let new = world.copy(1);
    let expected = CopyError::Source { lsn: Lsn(1), disk: new.disk };
    let result = world.block_on(async move {
        let copying = Rc::clone(&log);
        log.change_epoch(async |_| {
            copying.copy_to(&new).await?;
            Ok((epoch(2), Epoch(2), vec![new.clone()]))
        })
        .await
    });
    assert_eq!(result, Err(expected));
}

#[test]
#[should_panic(expected = "only with its content")]
fn a_new_voter_without_the_log_is_refused() {
    let world = World::new(2);
    let log = world.start(1, world.copies(&[0]), Start::Fresh(Place::FIRST));
    change(&world, &log, 2, world.all());
}

// A hung copy is excluded before it answers; the buffer that it still holds is not used again.
#[test]
fn a_hung_copy_is_excluded_and_its_buffer_left_to_it() {
    let world = World::new(2);
    let log = world.fresh();
    let outcomes = Outcomes::default();
    world.disks[1].holding.set(true);
    spawn_append(&world, &log, vec![1], Class::Ordinary, Wait::Written, &outcomes);
    world.run_until_idle();
    change(&world, &log, 2, world.copies(&[0]));
    for number in 2..5 {
        spawn_append(&world, &log, vec![number], Class::Ordinary, Wait::Written, &outcomes);
        world.run_until_idle();
    }
    assert_eq!((outcomes.borrow().len(), log.counters().buffers), (4, 3));
    world.disks[1].release_all();
    assert_eq!(contents(&world.recover(&[1], Place::FIRST, &[owner(1, 1)])).len(), 1);
}

// What is placed before a cut has a lower LSN than what is placed later, also while a batch is under way.
#[test]
fn a_cut_parts_what_came_before_from_what_comes_later() {
    let world = World::new(1);
    let log = world.fresh();
    assert_eq!(log.cut(), Lsn(1), "an empty batch needs no cut");
    let outcomes = Outcomes::default();
    world.disks[0].holding.set(true);
    let append = || {
        spawn_append(&world, &log, vec![1], Class::Ordinary, Wait::Written, &outcomes);
        world.run_until_idle();
    };
    append();
    append();
    assert_eq!((log.cut(), log.cut()), (Lsn(3), Lsn(3)));
    append();
    world.disks[0].holding.set(false);
    world.disks[0].release_all();
    world.run_until_idle();
    assert_eq!(*outcomes.borrow(), [Ok(Lsn(1)), Ok(Lsn(2)), Ok(Lsn(3))]);
}

#[test]
fn a_stopped_log_has_written_everything_and_takes_nothing_more() {
    let world = World::new(1);
    let log = world.fresh();
    let outcomes = Outcomes::default();
    world.disks[0].holding.set(true);
    for _ in 0..2 {
        spawn_append(&world, &log, vec![1], Class::Ordinary, Wait::Written, &outcomes);
        world.run_until_idle();
    }
    let stopping = Rc::clone(&log);
    world.executor.spawn("stop", Box::pin(async move { stopping.stop().await }));
    world.run_until_idle();
    assert!(world.executor.waiting().contains(&"stop"));
    world.disks[0].holding.set(false);
    world.disks[0].release_all();
    world.run_until_idle();
    assert_eq!((outcomes.borrow().len(), world.executor.waiting()), (2, vec![]));
    let late = Rc::clone(&log);
    let late = world.block_on(async move { late.append(1, &[], Class::Ordinary, Wait::Written).await });
    assert!(matches!(late, Err(LogError::Stopped { .. })), "{late:?}");
}

// A record too long for any batch is refused; the longest that fits is taken, by two parts.
#[test]
fn the_longest_record_fits_and_a_longer_one_is_refused() {
    let world = World::new(1);
    let log = world.fresh();
    let max = 16384 - 128 - 8;
    let (fits, longer) = world.block_on(async move {
        let body = vec![3; max];
        let (front, back) = body.split_at(100);
        let fits = log.append(1, &[front, back], Class::Ordinary, Wait::Written).await;
        (fits, log.append(1, &[&body, &[1]], Class::Reserved, Wait::Written).await)
    });
    assert_eq!(fits, Ok(Lsn(1)));
    assert!(matches!(longer, Err(LogError::TooLarge { max_bytes, .. }) if max_bytes == max), "{longer:?}");
}

// More holes than one batch can list: the lists go out one behind the other before anything else is taken.
#[test]
fn a_long_list_of_holes_takes_several_batches() {
    let world = World::new(1);
    let log = world.start(1, world.all(), Start::Fresh(Place { lsn: Lsn(1), position: 0 }));
    drop(log);
    let mut recovered = world.recover(&[0], Place::FIRST, &[owner(1, 1)]);
    recovered.pretend(Lsn(5001), (1..=2500).map(|n| Lsn(2 * n)..=Lsn(2 * n)).collect());
    let log = world.start(1, world.all(), Start::Recovered(&recovered));
    let appended =
        world.block_on(async move { log.append(1, &[b"x"], Class::Ordinary, Wait::Written).await });
    assert_eq!(appended, Ok(Lsn(5004)));
    let again = world.recover(&[0], Place { lsn: Lsn(4999), position: 0 }, &[owner(1, 1)]);
    assert_eq!((contents(&again).len(), again.damage().len()), (1, 0));
}
