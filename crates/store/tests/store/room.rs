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
