//! A crash after every write and every flush of a checkpoint, whatever subset of the unflushed writes survived, with all
//! disks or without any one of them: the old content with its anchor, or the new with its own, never a third.

use std::rc::Rc;

use dolmen_block_io::DeviceError;
use dolmen_buffer::Arena;
use dolmen_store::PAGE_BYTES;

use crate::world::{Content, Event, World, anchor, arena, key, value};

/// Above this many unflushed writes, subsets are drawn.
const SUBSETS_WHOLE_MAX: usize = 10;
/// Pages of an area in which so many values have room, and their successors have none beside them.
const TIGHT_PAGES: usize = 32;
const TIGHT_KEYS: u64 = 440;

struct Crash<'a> {
    base: &'a [Vec<u8>],
    arena: Arena,
    old: (Content, u8),
    new: (Content, u8),
    seen: [u64; 2],
}

impl Crash<'_> {
    /// The state in which the writes of `events` named by `kept` are on the disks, each whole but for `torn`.
    fn state(&self, events: &[Event], kept: &dyn Fn(usize) -> bool, torn: Option<usize>) -> Vec<Vec<u8>> {
        let mut images = self.base.to_vec();
        for (index, event) in events.iter().enumerate() {
            if let Event::Write { disk, at, bytes } = event {
                let flushed = events[index..]
                    .iter()
                    .any(|later| matches!(later, Event::Flush { disk: d } if d == disk));
                if flushed || kept(index) {
                    let length = if torn == Some(index) { bytes.len() / 2 } else { bytes.len() };
                    images[*disk][*at..*at + length].copy_from_slice(&bytes[..length]);
                }
            }
        }
        images
    }

    fn expect_old_or_new(&mut self, images: Vec<Vec<u8>>, go_on: bool) {
        let count = images.len();
        let all: Vec<usize> = (0..count).collect();
        let mut sets = vec![all.clone()];
        if count > 1 {
            sets.extend(all.iter().map(|gone| all.iter().copied().filter(|disk| disk != gone).collect()));
        }
        for members in sets {
            let world = World::on(images.clone(), &self.arena);
            let (store, opened) = world.try_open(&members, 64).unwrap();
            let content = world.content(&store).unwrap();
            let which = if opened.anchor == anchor(self.new.1) { &self.new } else { &self.old };
            assert!(opened.anchor == anchor(which.1), "the anchor is the old or the new one");
            assert!(content == which.0, "the content is that of anchor {}", which.1);
            self.seen[usize::from(which.1 == self.new.1)] += 1;
            if go_on {
                self.expect_to_go_on(&world, &store, content, &members);
            }
        }
    }

    /// After the crash the store is healed, changed and opened once more.
    fn expect_to_go_on(
        &self,
        world: &World,
        store: &Rc<dolmen_store::Store>,
        mut content: Content,
        members: &[usize],
    ) {
        let healer = Rc::clone(store);
        world.run(async move { healer.heal_stale().await }).unwrap();
        assert_eq!(world.check(store), []);
        store.put(key(77), b"after");
        content.insert(key(77), b"after".to_vec());
        world.checkpoint(store, 9);
        let (again, opened) = world.try_open(members, 64).unwrap();
        assert!(opened.stale.is_empty() && opened.anchor == anchor(9));
        assert!(world.content(&again).unwrap() == content);
        assert_eq!(world.check(&again), []);
    }

    /// All crash points of the events recorded.
    fn enumerate(&mut self, events: &[Event]) {
        let mut draw = 1u64;
        for end in 0..=events.len() {
            let events = &events[..end];
            let open: Vec<usize> = (0..end).filter(|index| is_unflushed(events, *index)).collect();
            for (number, subset) in subsets(open.len(), &mut draw).into_iter().enumerate() {
                let kept =
                    |index: usize| open.iter().position(|at| *at == index).is_some_and(|at| subset[at]);
                self.expect_old_or_new(self.state(events, &kept, None), number % 16 == 0);
            }
            for torn in &open {
                self.expect_old_or_new(self.state(events, &|_| true, Some(*torn)), false);
            }
        }
        // Once the checkpoint has returned nothing may be lost any more, so this one is the new content alone.
        let before = self.seen[0];
        self.expect_old_or_new(self.state(events, &|_| false, None), true);
        assert_eq!(self.seen[0], before, "what was returned as made is durable");
        assert!(self.seen[0] > 10 && self.seen[1] > 0, "both ends were seen: {:?}", self.seen);
    }
}

fn is_unflushed(events: &[Event], index: usize) -> bool {
    let Event::Write { disk, .. } = &events[index] else { return false };
    !events[index..].iter().any(|later| matches!(later, Event::Flush { disk: d } if d == disk))
}

/// Which of so many writes survive: all subsets, or else prefixes, single losses, single survivors and drawn ones.
fn subsets(count: usize, draw: &mut u64) -> Vec<Vec<bool>> {
    if count <= SUBSETS_WHOLE_MAX {
        return (0..1usize << count)
            .map(|mask| (0..count).map(|bit| mask & (1 << bit) != 0).collect())
            .collect();
    }
    let mut all: Vec<Vec<bool>> = Vec::new();
    for at in 0..=count {
        all.push((0..count).map(|index| index < at).collect());
        all.push((0..count).map(|index| index != at).collect());
        all.push((0..count).map(|index| index == at).collect());
        all.push(
            (0..count)
                .map(|_| {
                    *draw ^= *draw << 13;
                    *draw ^= *draw >> 7;
                    *draw ^= *draw << 17;
                    *draw & 1 == 0
                })
                .collect(),
        );
    }
    all
}

/// A world with a checkpoint, and changes over it that are not in it yet.
fn prepared(disks: usize, rounds: u8) -> (World, Rc<dolmen_store::Store>, Content, Content) {
    prepared_in(disks, rounds, 20, 40, 1000)
}

fn prepared_in(
    disks: usize,
    rounds: u8,
    pages: usize,
    keys: u64,
    length: usize,
) -> (World, Rc<dolmen_store::Store>, Content, Content) {
    let world = World::blank(disks, pages);
    world.format();
    let store = world.open();
    let mut old = Content::new();
    for round in 0..rounds {
        for number in 0..keys {
            let bytes = value(number, round, 400 + usize::from(round % 3) * 50);
            store.put(key(number), &bytes);
            old.insert(key(number), bytes);
        }
        world.checkpoint(&store, round);
    }
    let mut new = old.clone();
    for number in (0..2 * keys).step_by(7) {
        store.put(key(number), &value(number, 99, length));
        new.insert(key(number), value(number, 99, length));
        store.delete(key(number + 1));
        new.remove(&key(number + 1));
    }
    (world, store, old, new)
}

/// The events with writes cut into pieces that may survive one by one.
fn cut(events: &[Event], piece: usize) -> Vec<Event> {
    let pieces = events.iter().flat_map(|event| match event {
        Event::Write { disk, at, bytes } => {
            let parts = bytes.chunks(piece).enumerate();
            parts
                .map(|(index, part)| Event::Write {
                    disk: *disk,
                    at: at + index * piece,
                    bytes: part.to_vec(),
                })
                .collect()
        }
        Event::Flush { .. } => vec![event.clone()],
    });
    pieces.collect()
}

fn crash_everywhere(disks: usize, rounds: u8, piece: usize) {
    let (world, store, old, new) = prepared(disks, rounds);
    let base = world.images();
    world.events.borrow_mut().clear();
    world.checkpoint(&store, 50);
    let events = cut(&world.events.borrow(), piece);
    let mut crash =
        Crash { base: &base, arena: arena(), old: (old, rounds - 1), new: (new, 50), seen: [0; 2] };
    crash.enumerate(&events);
}

#[test]
fn a_crash_in_a_checkpoint_on_one_disk_leaves_old_or_new() {
    (3..9).for_each(|rounds| crash_everywhere(1, rounds, PAGE_BYTES));
}

/// The area has no room for two trees of this size, so the search for free pages goes round and comes by those that this
/// very checkpoint frees, and which belong to the tree that stands. The checkpoint is made in parts. Wherever it is cut,
/// the anchor is the old one and every key before some place has its new value and every other its old one, so that the
/// changes made once more give the new content; or all of it is there, with the new anchor.
#[test]
fn a_checkpoint_in_parts_repeats_the_old_anchor_until_it_holds_all_changes() {
    for rounds in [3, 6] {
        let (world, store, old, new) = prepared_in(1, rounds, TIGHT_PAGES, TIGHT_KEYS, 450);
        let base = world.images();
        world.events.borrow_mut().clear();
        world.checkpoint(&store, 50);
        assert!(world.content(&store).unwrap() == new);
        let events = world.events.borrow().clone();
        let ends = (old.clone(), rounds - 1);
        let crash = Crash { base: &base, arena: arena(), old: ends, new: (new.clone(), 50), seen: [0; 2] };
        let mut seen_between = 0;
        for end in 0..=events.len() {
            let reopened = World::on(crash.state(&events[..end], &|_| true, None), &crash.arena);
            let (store, opened) = reopened.try_open(&[0], 64).unwrap();
            let content = reopened.content(&store).unwrap();
            if end % 61 == 0 {
                assert_eq!(reopened.check(&store), []);
            }
            if opened.anchor == anchor(50) {
                assert!(content == new, "with all changes");
                continue;
            }
            assert!(opened.anchor == anchor(rounds - 1), "a part says what the one before it said");
            assert!(is_part_of_the_way(&content, &old, &new), "the changes before one key, and no others");
            seen_between += u32::from(content != old);
            if content != old && end % 61 == 0 {
                new.iter().for_each(|(key, value)| store.put(*key, value));
                old.keys().filter(|key| !new.contains_key(*key)).for_each(|key| store.delete(*key));
                reopened.checkpoint(&store, 60);
                assert!(reopened.content(&reopened.open()).unwrap() == new, "the log repeats them all");
            }
        }
        assert!(seen_between > 0, "there were parts");
    }
}

/// Whether every key before some place is as in `new`, and every other as in `old`.
fn is_part_of_the_way(content: &Content, old: &Content, new: &Content) -> bool {
    let mut keys: Vec<_> =
        old.keys().chain(new.keys()).filter(|key| old.get(*key) != new.get(*key)).collect();
    keys.sort();
    keys.dedup();
    let is_new = |key: &&dolmen_store::Key| content.get(*key) == new.get(*key);
    let before = keys.iter().take_while(|key| is_new(key)).count();
    let is_old_after = keys[before..].iter().all(|key| content.get(*key) == old.get(*key));
    let unchanged = old.iter().filter(|(key, value)| new.get(*key) == Some(*value));
    is_old_after && unchanged.into_iter().all(|(key, value)| content.get(key) == Some(value))
}

#[test]
fn a_crash_in_a_checkpoint_on_three_disks_leaves_old_or_new_whichever_is_missing() {
    crash_everywhere(3, 4, 4 * PAGE_BYTES);
}

#[test]
fn a_checkpoint_that_fails_at_any_command_leaves_the_old_one_and_all_changes() {
    // Scenario: the n-th write or flush of disk 0 fails, once or for ever, with every kind of error. End: the old
    // checkpoint or the new one is on the disks, everything is still in memory, and a second attempt brings it down.
    for error in [DeviceError::Medium { errno: 5 }, DeviceError::TimedOut, DeviceError::Detached] {
        for lasting in [false, true] {
            for number in 0..6 {
                fail_at(number, error, lasting);
            }
        }
    }
}

fn fail_at(number: u64, error: DeviceError, lasting: bool) {
    let (world, store, old, new) = prepared(2, 3);
    world.disks[0].fail_in.set(Some((number, error)));
    world.disks[0].lasting.set(lasting);
    let result = world.try_checkpoint(&store, 5);
    assert!(world.content(&store).unwrap() == new, "all changes are visible");
    if result.is_ok() {
        assert!(number >= 4, "the command belongs to a checkpoint");
        return;
    }
    let reopened = World::on(world.images(), &arena());
    let (other, opened) = reopened.try_open(&[0, 1], 64).unwrap();
    let content = reopened.content(&other).unwrap();
    assert!(if opened.anchor == anchor(5) { content == new } else { content == old });
    // The disk is taken out, a crash in the second attempt included.
    store.set_replicas(crate::world::TOKEN, vec![world.replica(1)]);
    let base = world.images();
    world.events.borrow_mut().clear();
    world.checkpoint(&store, 6);
    let events = world.events.borrow().clone();
    for end in 0..=events.len() {
        let crash =
            Crash { base: &base, arena: arena(), old: (old.clone(), 2), new: (new.clone(), 6), seen: [0; 2] };
        let world = World::on(crash.state(&events[..end], &|_| true, None), &crash.arena);
        let (store, opened) = world.try_open(&[1], 64).unwrap();
        assert!(
            world.content(&store).unwrap()
                == if opened.anchor == anchor(2) { old.clone() } else { new.clone() }
        );
    }
    assert!(world.content(&store).unwrap() == new);
    assert_eq!(store.stats().sequence, 7, "no number stands for two contents, and the slot is the same");
    assert_eq!(world.check(&store), []);
}
