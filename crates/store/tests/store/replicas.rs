//! Disks that join, leave, lag behind or come from elsewhere; changes during a checkpoint; a full area.

use std::rc::Rc;

use dolmen_block_io::{DeviceError, Spawner};
use dolmen_store::{CheckpointError, Key, StoreError};

use crate::world::{Content, TOKEN, World, anchor, arena, disk_id, key, row, value};

fn fill(world: &World, store: &Rc<dolmen_store::Store>, version: u8) -> Content {
    let content: Content = (0..50).map(|number| (key(number), value(number, version, 900))).collect();
    content.iter().for_each(|(key, value)| store.put(*key, value));
    world.checkpoint(store, version);
    content
}

#[test]
fn a_new_voter_gets_all_and_serves_alone() {
    let world = World::blank(2, 64);
    world.format();
    let (store, _) = world.try_open(&[0], 64).unwrap();
    fill(&world, &store, 1);
    let content = fill(&world, &store, 2);
    let (copier, target) = (Rc::clone(&store), world.replica(1));
    let copied = world.run(async move { copier.copy_to(&target).await }).unwrap();
    assert!(copied.pages_written > 3 && copied.pages >= copied.pages_written);
    store.set_replicas(TOKEN, world.replicas());
    assert_eq!((store.stale(), world.check(&store)), (vec![], vec![]));
    let (alone, opened) = world.try_open(&[1], 64).unwrap();
    assert!(opened.anchor == anchor(2) && world.content(&alone).unwrap() == content);
}

#[test]
fn a_replica_that_missed_checkpoints_is_reported_and_healed() {
    let world = World::blank(2, 64);
    world.format();
    fill(&world, &world.open(), 1);
    let (one, _) = world.try_open(&[0], 64).unwrap();
    one.put(key(3), b"only on the first");
    world.checkpoint(&one, 2);
    let (store, opened) = world.try_open(&[0, 1], 64).unwrap();
    assert_eq!((opened.sequence, opened.anchor, opened.stale), (3, anchor(2), vec![disk_id(1)]));
    let healer = Rc::clone(&store);
    assert_eq!(world.run(async move { healer.heal_stale().await }), Ok(vec![disk_id(1)]));
    assert_eq!(world.check(&store), []);
    assert_eq!(world.try_open(&[1], 64).unwrap().1.sequence, 3);
}

#[test]
fn a_disk_of_another_history_never_wins_over_the_one_it_joins() {
    // Scenario: two halves go on apart, the second further than the first, and the second disk then joins the first.
    let world = World::blank(2, 64);
    world.format();
    fill(&world, &world.open(), 1);
    let apart = |disk: usize, rounds: u8| {
        let (store, _) = world.try_open(&[disk], 64).unwrap();
        (0..rounds).for_each(|round| drop(fill(&world, &store, 10 * u8::try_from(disk).unwrap() + round)));
        store
    };
    let (store, _) = (apart(0, 2), apart(1, 2));
    let diverged = world.try_open(&[0, 1], 64).map(|(_, opened)| opened);
    assert!(
        matches!(diverged, Err(StoreError::Diverged { first, second, .. }) if (first, second) == (disk_id(0), disk_id(1)))
    );
    apart(1, 5);
    let ours = world.content(&store).unwrap();
    let (copier, target) = (Rc::clone(&store), world.replica(1));
    let _ = world.run(async move { copier.copy_to(&target).await }).unwrap();
    let (again, opened) = world.try_open(&[0, 1], 64).unwrap();
    assert!(opened.stale.is_empty() && world.content(&again).unwrap() == ours);
    assert_eq!(world.check(&again), []);
}

#[test]
fn changes_during_a_checkpoint_are_visible_and_belong_to_the_next() {
    let world = World::blank(1, 64);
    world.format();
    let store = world.open();
    store.put(row(1), b"first");
    store.put(row(2), b"doomed");
    store.put(row(5), b"merging");
    *world.disks[0].held.borrow_mut() = Some(Vec::new());
    let running = Rc::clone(&store);
    let task = async move { running.checkpoint(anchor(1)).await.unwrap() };
    world.executor.spawn("checkpoint", Box::pin(task));
    while world.executor.run_one(|_| 0) {}
    store.put(row(1), b"second");
    store.delete(row(2));
    store.put(row(3), b"third");
    let expected: Content =
        [(row(1), b"second".to_vec()), (row(3), b"third".to_vec()), (row(5), b"merging".to_vec())]
            .into_iter()
            .collect();
    assert_eq!(world.content(&store).unwrap(), expected);
    assert_eq!(world.get(&store, row(5)).unwrap(), Some(b"merging".to_vec()));
    world.disks[0].release();
    while world.executor.run_one(|_| 0) {}
    assert_eq!(store.stats().checkpoints, 1);
    assert_eq!(world.content(&store).unwrap(), expected);
    let old: Content =
        [(row(1), b"first".to_vec()), (row(2), b"doomed".to_vec()), (row(5), b"merging".to_vec())]
            .into_iter()
            .collect();
    assert_eq!(world.content(&world.open()).unwrap(), old);
    world.checkpoint(&store, 2);
    assert_eq!(world.content(&world.open()).unwrap(), expected);
}

#[test]
fn a_full_area_is_an_error_that_loses_nothing_and_deletes_get_out_of_it() {
    let world = World::blank(1, 32);
    world.format();
    let store = world.open();
    let mut content = Content::new();
    let mut number = 0;
    loop {
        store.put(row(number), &value(number, 1, 3000));
        let fits = store.room().pages_free >= store.room().pages_needed_max;
        match world.try_checkpoint(&store, 1) {
            Ok(()) => drop(content.insert(row(number), value(number, 1, 3000))),
            Err(CheckpointError::Full { total: 32, .. }) => break assert!(!fits, "room was promised"),
            Err(other) => panic!("{other}"),
        }
        number += 1;
    }
    assert!(number > 40, "{number}");
    assert_eq!(world.content(&world.open()).unwrap(), content);
    content.insert(row(number), value(number, 1, 3000));
    assert_eq!(world.content(&store).unwrap(), content);
    (0..number).for_each(|number| store.delete(row(number)));
    world.checkpoint(&store, 2);
    assert_eq!(world.content(&world.open()).unwrap().len(), 1);
    assert_eq!(world.check(&store), []);
}

#[test]
fn a_failed_replica_is_named_until_the_caller_says_who_goes_on() {
    let world = World::blank(2, 64);
    world.format();
    let store = world.open();
    store.put(row(1), b"one");
    world.disks[1].fail_in.set(Some((0, DeviceError::TimedOut)));
    for _ in 0..2 {
        let Err(CheckpointError::Replicas { failed, .. }) = world.try_checkpoint(&store, 1) else {
            panic!("it fails")
        };
        assert_eq!(failed.iter().map(|failure| failure.disk).collect::<Vec<_>>(), [disk_id(1)]);
    }
    // The same disk again: it is compared page by page first, then written.
    store.set_replicas(TOKEN, world.replicas());
    assert_eq!(store.stale(), [disk_id(1)]);
    world.checkpoint(&store, 2);
    assert_eq!((store.stale(), world.check(&store)), (vec![], vec![]));
    assert_eq!(world.get(&world.open(), row(1)).unwrap(), Some(b"one".to_vec()));
}

#[test]
fn a_caller_that_stops_waiting_cancels_nothing() {
    let world = World::blank(1, 64);
    world.format();
    let store = world.open();
    store.put(row(1), b"one");
    *world.disks[0].held.borrow_mut() = Some(Vec::new());
    let running = Rc::clone(&store);
    world.run(async move {
        let mut started = Box::pin(running.checkpoint(anchor(1)));
        std::future::poll_fn(|cx| {
            let _ = started.as_mut().poll(cx);
            std::task::Poll::Ready(())
        })
        .await;
    });
    while world.executor.run_one(|_| 0) {}
    world.disks[0].release();
    while world.executor.run_one(|_| 0) {}
    assert_eq!((store.stats().checkpoints, store.overlay_bytes()), (1, 0));
}

#[test]
fn changes_during_a_failed_checkpoint_win_over_those_it_returns() {
    let world = World::blank(1, 64);
    world.format();
    let store = world.open();
    store.put(row(1), b"first");
    store.put(row(2), b"kept");
    *world.disks[0].held.borrow_mut() = Some(Vec::new());
    let running = Rc::clone(&store);
    let task = async move { running.checkpoint(anchor(1)).await.unwrap_err() };
    world.executor.spawn("checkpoint", Box::pin(async move { drop(task.await) }));
    while world.executor.run_one(|_| 0) {}
    store.put(row(1), b"second");
    world.disks[0].fail_in.set(Some((0, DeviceError::Medium { errno: 5 })));
    world.disks[0].release();
    while world.executor.run_one(|_| 0) {}
    let expected: Content = [(row(1), b"second".to_vec()), (row(2), b"kept".to_vec())].into_iter().collect();
    assert_eq!(world.content(&store).unwrap(), expected);
    world.checkpoint(&store, 2);
    assert_eq!(world.content(&world.open()).unwrap(), expected);
}

#[test]
fn a_scan_across_a_checkpoint_misses_nothing() {
    // Scenario: a scan waits for a page while a checkpoint freezes, merges and publishes what was in the overlay.
    for steps in 0..12 {
        let world = World::blank(1, 64);
        world.format();
        let content = fill(&world, &world.open(), 1);
        let store = world.open();
        let mut content = content;
        for (key, value) in content.iter_mut().step_by(3) {
            *value = b"changed".to_vec();
            store.put(*key, value);
        }
        let (scanner, running) = (Rc::clone(&store), Rc::clone(&store));
        let found = Rc::new(std::cell::RefCell::new(None));
        let into = Rc::clone(&found);
        let scan = async move { *into.borrow_mut() = Some(crate::world::content(&scanner).await.unwrap()) };
        world.disks[0].slow_reads.set(true);
        world.executor.spawn("scan", Box::pin(scan));
        world
            .executor
            .spawn("checkpoint", Box::pin(async move { running.checkpoint(anchor(2)).await.unwrap() }));
        let mut reads = 0;
        while found.borrow().is_none() || store.stats().checkpoints == 0 {
            if !world.executor.run_one(|_| 0) {
                // The oldest read first for a while, then the newest: whoever waits then, waits through the other's work.
                reads += 1;
                world.disks[0].finish_one_read(if reads < steps { 0 } else { usize::MAX });
            }
        }
        assert!(found.take().unwrap() == content, "schedule {steps}");
    }
}

#[test]
fn areas_and_disks_that_cannot_be_used_are_refused_by_name() {
    let world = World::blank(1, 8);
    let (seams, area, replicas) = (world.seams.clone(), world.area, world.replicas());
    let made = world.run(async move {
        dolmen_store::Store::format(&seams, TOKEN, crate::world::POOL, area, &replicas, anchor(0)).await
    });
    assert!(matches!(made, Err(StoreError::Area { pages: 8, .. })));
    let blank = World::on(vec![vec![0; 64 * 1024 + 64 * dolmen_store::PAGE_BYTES]], &arena());
    assert!(
        matches!(blank.try_open(&[0], 64), Err(StoreError::NoCheckpoint { faults, .. }) if faults.is_empty())
    );
    blank.format();
    let mut image = blank.images().remove(0);
    image[4096 + 8] = 2;
    let checksum = dolmen_checksum::crc64(&image[4096..4096 + 4088]);
    image[4096 + 4088..8192].copy_from_slice(&checksum.to_le_bytes());
    let newer = World::on(vec![image], &arena());
    assert!(matches!(newer.try_open(&[0], 64), Err(StoreError::TooNew { found: 2, supported: 1, .. })));
    assert!(Key::MIN < Key::MAX);
}

#[test]
fn a_disk_that_joins_during_a_checkpoint_has_it_or_the_caller_gets_an_error() {
    for fails in [false, true] {
        let world = World::blank(2, 64);
        world.format();
        let (store, _) = world.try_open(&[0], 64).unwrap();
        let content: Content = (0..50).map(|number| (key(number), value(number, 1, 900))).collect();
        content.iter().for_each(|(key, value)| store.put(*key, value));
        *world.disks[0].held.borrow_mut() = Some(Vec::new());
        let (running, result) = (Rc::clone(&store), Rc::new(std::cell::RefCell::new(None)));
        let into = Rc::clone(&result);
        let task = async move { *into.borrow_mut() = Some(running.checkpoint(anchor(1)).await) };
        world.executor.spawn("checkpoint", Box::pin(task));
        while world.executor.run_one(|_| 0) {}
        store.set_replicas(TOKEN, world.replicas());
        world.disks[1].fail_in.set(fails.then_some((1, DeviceError::Medium { errno: 5 })));
        world.disks[0].release();
        while world.executor.run_one(|_| 0) {}
        let result = result.take().unwrap();
        if fails {
            assert!(matches!(result, Err(CheckpointError::JoinersLackIt { sequence: 2, .. })), "{result:?}");
            assert_eq!(store.stale(), [disk_id(1)]);
        } else {
            assert_eq!(result, Ok(()));
            assert_eq!((store.stale(), world.check(&store)), (vec![], vec![]));
            let (alone, _) = world.try_open(&[1], 64).unwrap();
            assert!(world.content(&alone).unwrap() == content);
        }
    }
}
