//! Rot and failing reads: healed where another replica has the page, named where none has.

use std::rc::Rc;

use dolmen_block_io::DeviceError;
use dolmen_store::{Finding, PAGE_BYTES, Store, StoreError};

use crate::world::{Content, PAGES_AT, World, arena, key, value};

fn filled(disks: usize) -> (World, Content) {
    let world = World::blank(disks, 64);
    world.format();
    let store = world.open();
    let mut content = Content::new();
    for number in 0..60 {
        content.insert(key(number), value(number, 3, 1500));
        store.put(key(number), &value(number, 3, 1500));
    }
    world.checkpoint(&store, 1);
    (world, content)
}

fn used_pages(world: &World) -> Vec<u64> {
    let image = world.disks[0].image.borrow();
    let pages = (0..64u64).filter(|page| {
        let at = usize::try_from(PAGES_AT).unwrap() + usize::try_from(*page).unwrap() * PAGE_BYTES;
        image[at..at + 8] == *b"DOLMENPG"
    });
    pages.collect()
}

#[test]
fn a_flipped_bit_in_any_page_of_one_replica_is_healed_by_reading() {
    let (world, content) = filled(2);
    let sound = world.images();
    let mut live = 0;
    for page in used_pages(&world) {
        for victim in 0..2 {
            let world = World::on(sound.clone(), &arena());
            world.disks[victim].flip_bit(PAGES_AT + page * PAGE_BYTES as u64 + 100 + page * 37);
            let store = world.open();
            // Page numbers decide which replica is asked first; the other is compared by check.
            let found = world.check(&store);
            assert!(world.content(&store).unwrap() == content);
            let healer = Rc::clone(&store);
            world.run(async move { healer.heals_done().await });
            if found.is_empty() && store.stats().pages_healed == 0 {
                continue; // a page that no checkpoint uses any more, or that opening has healed
            }
            live += 1;
            if store.stats().pages_healed == 1 {
                assert!(world.images() == sound, "page {page} of disk {victim} is as it was");
            } else {
                let expected = |finding: &Finding| matches!(finding, Finding::PageOnReplica { page: p, fault, .. } if *p == page && fault.disk == crate::world::disk_id(victim));
                assert!(found.len() == 1 && expected(&found[0]), "{found:?}");
            }
        }
    }
    assert!(live > 10, "only {live} pages were hit");
}

#[test]
fn a_page_that_no_replica_has_is_named_with_every_answer() {
    let (world, _) = filled(2);
    let sound = world.images();
    let mut lost = 0;
    for page in used_pages(&world) {
        let world = World::on(sound.clone(), &arena());
        world.disks.iter().for_each(|disk| disk.flip_bit(PAGES_AT + page * PAGE_BYTES as u64 + 3000));
        let result = world.try_open(&[0, 1], 64).and_then(|(store, _)| {
            let findings = world.check(&store);
            let named = findings
                .iter()
                .any(|finding| matches!(finding, Finding::PageLost { page: p, .. } if *p == page));
            world.content(&store).inspect(|_| assert!(!named)).inspect_err(|_| assert!(named))
        });
        if let Err(StoreError::PageLost { page: named, faults, .. }) = result {
            assert_eq!((named, faults.len()), (page, 2));
            lost += 1;
        }
    }
    assert!(lost > 5, "only {lost} pages were lost");
}

#[test]
fn a_stale_or_misdirected_page_is_not_believed() {
    // Scenario: one replica lost a whole checkpoint's page writes but kept its block, and another page lies on top of
    // one of them. End: the other replica answers, and the first is made whole.
    let (world, mut content) = filled(2);
    let before = world.disks[0].image.borrow()[PAGES_AT as usize..].to_vec();
    let store = world.open();
    for number in 0..60 {
        store.put(key(number), &value(number, 4, 1500));
        content.insert(key(number), value(number, 4, 1500));
    }
    world.checkpoint(&store, 2);
    world.disks[0].image.borrow_mut()[PAGES_AT as usize..].copy_from_slice(&before);
    let misdirected = before[PAGE_BYTES..2 * PAGE_BYTES].to_vec();
    world.disks[0].image.borrow_mut()[PAGES_AT as usize + 20 * PAGE_BYTES..][..PAGE_BYTES]
        .copy_from_slice(&misdirected);
    let store = world.open();
    assert!(world.content(&store).unwrap() == content);
    let found = world.check(&store).len() as u64;
    let stats = store.stats();
    assert!(stats.pages_healed > 1 && found > 1, "{stats:?}");
    assert_eq!(stats.pages_healed + found, stats.pages_used, "each page is stale on the first replica");
}

#[test]
fn a_replica_whose_reads_fail_is_read_around_and_a_dead_one_is_not_written() {
    let (world, content) = filled(2);
    let store = world.open();
    world.disks[0].reads_fail.set(Some(DeviceError::Detached));
    world.events.borrow_mut().clear();
    assert!(world.content(&store).unwrap() == content);
    world.check(&store);
    assert_eq!((store.stats().pages_healed, world.events.borrow().len()), (0, 0));
}

#[test]
fn a_heal_that_fails_is_made_good_by_the_next_checkpoint() {
    let (world, content) = filled(2);
    let store = world.open();
    for page in used_pages(&world) {
        world.disks[0].flip_bit(PAGES_AT + page * PAGE_BYTES as u64 + 3000);
    }
    world.disks[0].fail_in.set(Some((0, DeviceError::Medium { errno: 5 })));
    assert!(world.content(&store).unwrap() == content);
    world.check(&store);
    assert_eq!((store.stats().heals_failed, store.stale()), (1, vec![crate::world::disk_id(0)]));
    world.checkpoint(&store, 2);
    assert_eq!((store.stale(), world.check(&store)), (vec![], vec![]));
}

#[test]
fn a_late_heal_never_lands_on_a_reused_page() {
    // Scenario: a heal hangs while two checkpoints follow and change everything. End: the second waits for the heal.
    let (world, _) = filled(2);
    let store = world.open();
    for page in used_pages(&world) {
        world.disks[0].flip_bit(PAGES_AT + page * PAGE_BYTES as u64 + 3000);
    }
    *world.disks[0].held.borrow_mut() = Some(Vec::new());
    world.content(&store).unwrap();
    while world.executor.run_one(|_| 0) {}
    let held = world.disks[0].held.borrow().as_ref().map_or(0, Vec::len);
    assert!(held > 2, "heals are under way");
    store.set_replicas(crate::world::TOKEN, vec![world.replica(1)]);
    let change = |version| (0..60).for_each(|number| store.put(key(number), &value(number, version, 1500)));
    change(5);
    world.checkpoint(&store, 2);
    change(6);
    let done = Rc::new(std::cell::Cell::new(false));
    let (late, flag) = (Rc::clone(&store), Rc::clone(&done));
    let task = async move {
        late.checkpoint(crate::world::anchor(3)).await.unwrap();
        flag.set(true);
    };
    dolmen_block_io::Spawner::spawn(world.executor.as_ref(), "late", Box::pin(task));
    while world.executor.run_one(|_| 0) {}
    assert!(!done.get(), "pages under a heal are not reused");
    world.disks[0].release();
    while world.executor.run_one(|_| 0) {}
    assert!(done.get());
    assert_eq!(world.check(&store), []);
}

#[test]
fn forged_counts_in_the_newest_block_never_panic() {
    // Scenario: bytes of both blocks change and their checksums with them. End: an error or a store, never a panic.
    let (world, _) = filled(1);
    let image = world.images().remove(0);
    for at in (80..4088).step_by(3).take(260) {
        let mut image = image.clone();
        for slot in [0, 4096] {
            if image[slot..slot + 8] == *b"DOLMENCP" {
                image[slot + at] = image[slot + at].wrapping_add(1);
                let checksum = checksum(&image[slot..slot + 4088]);
                image[slot + 4088..slot + 4096].copy_from_slice(&checksum.to_le_bytes());
            }
        }
        let world = World::on(vec![image], &arena());
        if let Ok((store, _)) = world.try_open(&[0], 16) {
            let _ = world.content(&store);
            let _ = world.check(&store);
            Store::put(&store, key(1), b"x");
            let _ = world.try_checkpoint(&store, 2);
        }
    }
}

fn checksum(bytes: &[u8]) -> u64 {
    dolmen_checksum::crc64(bytes)
}
