//! Any list of actions, against a map in memory.

use dolmen_store::{Key, PAGE_BYTES};
use proptest::prelude::*;

use crate::world::{Content, World, key, row, value};

#[derive(Debug, Clone)]
enum Act {
    Put { number: u64, version: u8, length: usize },
    Delete { number: u64 },
    Flood { from: u64, count: u64, length: usize },
    Purge { from: u64, count: u64 },
    Get { number: u64 },
    Scan { from: u64, to: u64, max: usize },
    Checkpoint,
    Reopen,
}

fn act() -> impl Strategy<Value = Act> {
    let number = 0u64..400;
    prop_oneof![
        6 => (number.clone(), any::<u8>(), 0usize..=3072).prop_map(|(number, version, length)| Act::Put { number, version, length }),
        4 => number.clone().prop_map(|number| Act::Delete { number }),
        2 => (number.clone(), 1u64..120, 0usize..1500).prop_map(|(from, count, length)| Act::Flood { from, count, length }),
        3 => (number.clone(), 1u64..200).prop_map(|(from, count)| Act::Purge { from, count }),
        2 => number.clone().prop_map(|number| Act::Get { number }),
        2 => (number.clone(), number, 0usize..60).prop_map(|(from, to, max)| Act::Scan { from, to, max }),
        4 => Just(Act::Checkpoint),
        1 => Just(Act::Reopen),
    ]
}

struct Bench {
    world: World,
    store: std::rc::Rc<dolmen_store::Store>,
    live: Content,
    /// What the last checkpoint holds.
    kept: Content,
    keys: fn(u64) -> Key,
}

impl Bench {
    fn new(keys: fn(u64) -> Key) -> Self {
        let world = World::blank(2, 400);
        world.format();
        let store = world.open();
        Self { world, store, live: Content::new(), kept: Content::new(), keys }
    }

    fn put(&mut self, number: u64, bytes: Vec<u8>) {
        self.store.put((self.keys)(number), &bytes);
        self.live.insert((self.keys)(number), bytes);
    }

    fn delete(&mut self, number: u64) {
        self.store.delete((self.keys)(number));
        self.live.remove(&(self.keys)(number));
    }

    fn act(&mut self, act: Act) {
        match act {
            Act::Put { number, version, length } => self.put(number, value(number, version, length)),
            Act::Delete { number } => self.delete(number),
            Act::Flood { from, count, length } => {
                (from..from + count).for_each(|number| self.put(number, value(number, 1, length)));
            }
            Act::Purge { from, count } => (from..from + count).for_each(|number| self.delete(number)),
            Act::Get { number } => {
                let key = (self.keys)(number);
                assert_eq!(self.world.get(&self.store, key).unwrap().as_ref(), self.live.get(&key));
            }
            Act::Scan { from, to, max } => {
                self.scan((self.keys)(from.min(to)), (self.keys)(from.max(to)), max)
            }
            Act::Checkpoint => self.checkpoint(),
            Act::Reopen => {
                self.live = self.kept.clone();
                self.store = self.world.open();
            }
        }
    }

    fn scan(&self, a: Key, b: Key, max: usize) {
        let range = a.min(b)..a.max(b);
        let store = std::rc::Rc::clone(&self.store);
        let asked = range.clone();
        let found = self.world.run(async move { store.scan(asked, max).await }).unwrap();
        let found: Vec<(Key, Vec<u8>)> =
            found.into_iter().map(|(key, value)| (key, value.to_vec())).collect();
        let expected: Vec<(Key, Vec<u8>)> =
            self.live.range(range).take(max).map(|(key, value)| (*key, value.clone())).collect();
        assert_eq!(found, expected);
    }

    fn checkpoint(&mut self) {
        let (room, before) = (self.store.room(), self.store.stats());
        self.world.checkpoint(&self.store, 1);
        let after = self.store.stats();
        let written = after.page_writes - before.page_writes;
        assert!(written <= room.pages_needed_max, "{written} pages, promised {room:?}");
        self.kept = self.live.clone();
        assert_eq!(after.entries, self.kept.len() as u64);
        // Pages are a third full at least, but for the last on each level; some 340 leaves share an inner page.
        let bytes: usize = self.kept.values().map(|value| value.len() + 26).sum();
        let leaves = 3 * bytes / (PAGE_BYTES - 64) + 1;
        let fair = leaves + leaves / 100 + 4;
        assert!(after.pages_used <= fair as u64, "{} pages for {bytes} bytes", after.pages_used);
        assert_eq!(self.store.overlay_bytes(), 0);
    }

    fn finish(mut self) {
        self.checkpoint();
        self.store = self.world.open();
        assert_eq!(self.world.content(&self.store).unwrap(), self.live);
        assert_eq!(self.world.check(&self.store), []);
        let images = self.world.images();
        assert_eq!(self.world.seams.metadata.lent_count(), 0, "every buffer came back");
        assert!(images[0][64 * 1024..] == images[1][64 * 1024..], "replicas hold the same pages");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    // Scenario: any actions, keys scattered or dense. End: every answer is the map's, pages stay a third full, no
    // checkpoint takes more pages than `room` promised, and check finds nothing.
    #[test]
    fn any_actions_give_what_a_map_gives(acts in proptest::collection::vec(act(), 1..60), dense in any::<bool>()) {
        let mut bench = Bench::new(if dense { row } else { key });
        acts.into_iter().for_each(|act| bench.act(act));
        bench.finish();
    }
}

#[test]
fn a_tree_of_three_levels_grows_and_shrinks_to_nothing() {
    // Scenario: 2,500 values of 3 KiB (some 500 leaves), then deleted from the front, the back and the middle.
    let world = World::blank(1, 1400);
    world.format();
    let store = world.open();
    for number in 0..2500 {
        store.put(row(number), &value(number, 0, 3072));
        if number % 500 == 499 {
            world.checkpoint(&store, 1);
        }
    }
    assert_eq!(store.stats().height, 3);
    (0..2500).step_by(97).for_each(|number| store.put(row(number), &value(number, 9, 10)));
    world.checkpoint(&store, 1);
    assert_eq!((store.stats().entries, world.check(&store)), (2500, vec![]));
    assert_eq!(world.get(&store, row(970)).unwrap(), Some(value(970, 9, 10)));
    for range in [0..900, 1600..2500, 901..1599] {
        range.for_each(|number| store.delete(row(number)));
        world.checkpoint(&store, 2);
        assert_eq!(world.check(&store), []);
    }
    assert_eq!(store.stats().height, 1);
    let left = world.content(&store).unwrap();
    let expected: Content =
        [900, 1599].map(|number| (row(number), value(number, 0, 3072))).into_iter().collect();
    assert!(left == expected);
    store.delete(row(900));
    store.delete(row(1599));
    world.checkpoint(&store, 3);
    let stats = world.open().stats();
    assert_eq!((stats.height, stats.entries, stats.pages_used), (0, 0, 1));
}
