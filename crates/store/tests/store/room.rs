//! A map that is full: what is asked of an area whose pages are nearly all in use.

use std::rc::Rc;

use dolmen_store::Store;
use proptest::prelude::*;

use crate::world::{Content, World, key, row, value};

/// Puts values until no more than what a checkpoint in parts needs is free, whatever that leaves for anything else.
fn fill(world: &World, store: &Rc<Store>, keys: fn(u64) -> dolmen_store::Key, length: usize) -> Content {
    let mut content = Content::new();
    let mut number = 0;
    loop {
        let room = store.room();
        // A value splits a page on each of three levels at most.
        let values = (room.pages_free - room.pages_part.min(room.pages_free)) / 3;
        if values == 0 {
            break;
        }
        for number in number..number + values {
            store.put(keys(number), &value(number, 1, length));
            content.insert(keys(number), value(number, 1, length));
        }
        number += values;
        world.checkpoint(store, 1);
    }
    world.checkpoint(store, 2);
    content
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(6))]

    // Scenario: an area filled to what a checkpoint in parts needs; then many values are removed or replaced by others of
    // the same length, in any order, and brought down by one checkpoint; again and again. End: none of them fails, nothing
    // else has changed, check finds nothing, and what is removed in the end gives its room back.
    #[test]
    fn a_full_map_takes_any_deletes_and_replacements_at_once(
        pages in 64usize..110,
        length in 200usize..900,
        dense in any::<bool>(),
        rounds in proptest::collection::vec((1u64..60, any::<bool>()), 1..4),
    ) {
        let world = World::blank(1, pages);
        world.format();
        let store = world.open();
        let keys = if dense { row } else { key };
        let mut content = fill(&world, &store, keys, length);
        let count = content.len() as u64;
        let full = store.stats().pages_used;
        for (number, (step, removes)) in (3u8..).zip(rounds) {
            for index in (0..count).step_by(step as usize) {
                let key = keys(index);
                if !content.contains_key(&key) {
                    continue;
                }
                if removes && index % 3 != 0 {
                    store.delete(key);
                    content.remove(&key);
                } else {
                    store.put(key, &value(index, number, length));
                    content.insert(key, value(index, number, length));
                }
            }
            prop_assert!(world.try_checkpoint(&store, number).is_ok(), "{:?}", store.room());
            prop_assert!(world.content(&store).unwrap() == content);
        }
        prop_assert_eq!(world.check(&store), []);
        let store = world.open();
        prop_assert!(world.content(&store).unwrap() == content);
        (0..count).filter(|index| index % 16 != 0).for_each(|index| store.delete(keys(index)));
        prop_assert!(world.try_checkpoint(&store, 100).is_ok(), "{:?}", store.room());
        prop_assert!(store.stats().pages_used < full / 2, "{} of {full}", store.stats().pages_used);
    }
}

/// An area is filled until no checkpoint finds room. Every other value is deleted then: the checkpoint that does it takes
/// about as many parts as the values lie in leaves, though each holds many.
#[test]
fn a_part_takes_all_that_is_deleted_from_a_leaf() {
    let world = World::blank(1, 100);
    world.format();
    let store = world.open();
    let mut count = 0;
    while world.try_checkpoint(&store, 1).is_ok() {
        (count..count + 10).for_each(|number| store.put(key(number), &value(number, 1, 200)));
        count += 10;
    }
    let leaves = store.stats().pages_used;
    assert!(count > 10 * leaves, "{count} values in {leaves} pages");
    (0..count).filter(|number| number % 2 == 0).for_each(|number| store.delete(key(number)));
    let before = store.stats().checkpoints;
    world.checkpoint(&store, 2);
    let parts = store.stats().checkpoints - before;
    // A thin leaf is joined with its neighbour, which may be opened once more.
    assert!(parts <= leaves * 5 / 4, "{parts} parts for {leaves} leaves");
    assert_eq!(world.content(&store).unwrap().len() as u64, count / 2);
    assert_eq!(world.check(&store), []);
}
