//! An index and slots with sound checksums that no save of ours made: disks may come from anywhere.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::{BEGIN_S, LARGE, busy};
use crate::bounds::{NUMBERS_MAX, open_max, slots_max};
use crate::index::{RINGS, Slots, level_of};
use crate::level::LEVELS;
use crate::slot::{SlotWriter, seal};
use crate::*;

/// Slots of all rings, at most.
fn all_slots_max() -> u64 {
    (0..RINGS).map(|ring| slots_max(ring, level_of(ring).unwrap(), HISTORY_BYTES_MAX)).sum()
}

fn number() -> impl Strategy<Value = u64> {
    let near = |at: u64| (at - 40)..=at.saturating_add(40);
    prop_oneof![4 => 0..60_u64, 1 => near(NUMBERS_MAX), 2 => near(1 << 40), 1 => (u64::MAX - 40)..=u64::MAX, 1 => any::<u64>()]
}

fn slots() -> impl Strategy<Value = Slots> {
    let of = |(first, open, end): (u64, u64, u64)| Slots { first, open, end };
    let short = (number(), 0_u64..30, 0_u64..2).prop_map(|(first, complete, open)| {
        let open_at = first.saturating_add(complete);
        Slots { first, open: open_at, end: open_at.saturating_add(open) }
    });
    let sorted = (number(), number(), number()).prop_map(|(one, two, three)| {
        let mut all = [one, two, three];
        all.sort_unstable();
        Slots { first: all[0], open: all[1], end: all[2] }
    });
    let filled = (0_usize..RINGS, number()).prop_map(|(ring, first)| {
        let most = slots_max(ring, level_of(ring).unwrap(), HISTORY_BYTES_MAX);
        let first = first.min(NUMBERS_MAX - most);
        Slots { first, open: first + most, end: first + most }
    });
    prop_oneof![4 => short, 2 => filled, 2 => sorted, 1 => (number(), number(), number()).prop_map(of)]
}

fn begin_s() -> impl Strategy<Value = u64> {
    prop_oneof![8 => Just(BEGIN_S - BEGIN_S % 86_400), 1 => Just(0), 1 => number(), 1 => (0..u64::MAX / 86_400).prop_map(|day| day * 86_400)]
}

fn index() -> impl Strategy<Value = Index> {
    let begins_s = proptest::collection::vec(begin_s(), LEVELS);
    let rings = proptest::collection::vec((0_usize..RINGS, slots()), 0..4);
    (prop_oneof![4 => 0..60_u64, 1 => number()], begins_s, rings).prop_map(|(saves, begins_s, rings)| {
        let mut index = Index { saves, begins_s: begins_s.try_into().unwrap(), ..Index::default() };
        rings.into_iter().for_each(|(ring, slots)| index.rings[ring] = slots);
        index
    })
}

/// A slot with a sound checksum: of points at any times of as many objects as it takes, or of nonsense.
fn slot(key: SlotKey, begin_s: u64, seed: u64, nonsense: &[u8]) -> Vec<u8> {
    let Some(level) = key.level() else { return Vec::new() };
    if seed.is_multiple_of(4) {
        let mut slot = vec![1, key.ring, 0, 0, 0, 0, 0, 0];
        slot.extend(key.sequence.to_le_bytes());
        slot.extend(begin_s.to_le_bytes());
        slot.extend(nonsense);
        seal(&mut slot);
        return slot;
    }
    let mut writer = SlotWriter::default();
    let point = if seed % 4 == 1 { busy(seed % 1000) } else { Point { samples: 1, ..Point::default() } };
    for nth in 0..300 {
        let at_s = level.begin(begin_s.saturating_sub((seed >> 8) % 3 * nth * level.step_s()));
        let object = if seed % 4 == 3 { Object::Disk(seed ^ nth) } else { Object::Disk(nth % 3) };
        if !writer.push(level, at_s, object, &point) {
            break;
        }
    }
    writer.finish(key)
}

fn assert_bounded(index: &Index) {
    for (ring, slots) in index.rings.iter().enumerate() {
        let level = level_of(ring).unwrap();
        let Slots { first, open, end } = *slots;
        assert!(
            end - first <= slots_max(ring, level, HISTORY_BYTES_MAX) && end - open <= open_max(ring, level),
            "an index names more slots than its pool has room for: {slots:?}"
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    /// An index of any numbers, sealed, and slots of any content at its ends, sealed: it is damaged, or it is loaded, recorded into,
    /// asked, saved and loaded again, in no more steps and no more memory than the largest history of ours takes.
    #[test]
    fn an_index_from_elsewhere_takes_no_more_than_the_largest_of_ours(
        index in index(), found in proptest::collection::vec((0_u8..12, number()), 0..20), begin_s in begin_s(), seed in any::<u64>(),
        nonsense in proptest::collection::vec(any::<u8>(), 0..60), budget in prop_oneof![Just(0_u64), Just(LARGE)]
    ) {
        let read = Index::parse(&index.encode());
        if let Some(read) = &read {
            assert_eq!(read, &index);
            assert!(index.saves <= NUMBERS_MAX && index.rings.iter().all(|slots| slots.end <= NUMBERS_MAX));
        }
        let index = read.unwrap_or_else(|| {
            let mut rebuilding = Rebuilding::default();
            found.iter().for_each(|(ring, sequence)| rebuilding.note(SlotKey { ring: *ring, sequence: *sequence }));
            rebuilding.index()
        });
        assert_bounded(&index);
        let mut kept = BTreeMap::new();
        let mut make = |key: SlotKey| {
            let end = index.rings[usize::from(key.ring)].end;
            let is_made = key.sequence < end && end - key.sequence < 40;
            is_made.then(|| kept.entry(key).or_insert_with(|| slot(key, begin_s, seed ^ key.sequence, &nonsense)).clone())
        };
        let mut recorder = Recorder::load(&index, budget);
        let mut steps = 0;
        while let Some(key) = recorder.wanted() {
            steps += 1;
            assert!(steps <= all_slots_max(), "a load reads each slot once");
            recorder.recall(key, make(key).as_deref());
        }
        let question = |ring: usize| {
            let object = if ring < LEVELS { Object::Pool } else { Object::Disk(1) };
            Question { object, level: level_of(ring).unwrap(), from_s: BEGIN_S, to_s: BEGIN_S + 3600 }
        };
        for now_s in [BEGIN_S, BEGIN_S + 86_400] {
            for nth in 0..20 {
                let objects = [Object::Pool, Object::Disk(1), Object::Space(2)];
                recorder.note(now_s + nth * 10, &objects.into_iter().map(|object| (object, busy(nth))).collect());
            }
            let mut checks = 0;
            recorder.check_ages_again(now_s);
            while let Some(key) = recorder.unchecked_ages().first().copied() {
                checks += 1;
                assert!(checks <= all_slots_max() + RINGS as u64, "each slot is checked once");
                recorder.check_age(key, make(key).as_deref(), now_s);
            }
            for ring in 0..RINGS {
                let (mut found, within) = (Found::new(question(ring)), index.rings[ring].first..index.rings[ring].open);
                let (mut from, mut reads) = (within.start, 0);
                while let Some(asked) = recorder.asked_slots(&question(ring), from..within.end, 32) {
                    from = asked.end;
                    for key in asked.map(|sequence| SlotKey { ring: u8::try_from(ring).unwrap(), sequence }) {
                        reads += 1;
                        let reach = make(key).and_then(|slot| found.add_slot(key, &slot));
                        recorder.note_reach(key, reach);
                    }
                }
                assert!(reads <= all_slots_max(), "each slot is read once");
                found.add_unsaved(&recorder.unsaved(question(ring).object, question(ring).level));
                assert!(found.into_points().len() <= 361, "no points but those of the range");
            }
            let saving = recorder.save();
            let puts = saving.full.len() + saving.open.len() + saving.rewrites.len();
            assert!(puts <= RINGS * 600 && saving.rewrites.len() + saving.withdrawn.len() <= REWRITES_MAX);
            assert!(saving.deletes.len() as u64 <= all_slots_max(), "no more deletes than slots");
            assert_bounded(&saving.index);
            recorder.note_saved(&saving.index, saving.deletes);
            recorder.note_undeleted(Vec::new());
        }
        assert!(recorder.save().index.gaps().len() <= RINGS + 1);
        assert!(recorder.unsaved_bytes() <= RINGS * 600 * SLOT_BYTES_MAX);
    }
}
