//! A recorder against an oracle that keeps every sample.

use std::collections::BTreeMap;

use proptest::prelude::*;

mod hostile;

use crate::codec::{Reader, put};
use crate::*;

/// Slots and index, as the map of a pool has them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Kept {
    pub(crate) slots: BTreeMap<SlotKey, Vec<u8>>,
    index: Vec<u8>,
}

/// How far a save gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cut {
    /// It ends.
    Never,
    /// It is broken off before so many changes, if that many come before the index, and goes on later.
    Off(usize),
    /// The daemon is killed before so many changes.
    Killed(usize),
}

impl Kept {
    /// Saves as the daemon does, a change for each slot that may have one of its own. Returns whether all is saved.
    fn save(&mut self, recorder: &mut Recorder, cut: Cut) -> bool {
        let saving = recorder.save();
        let mut changes = 0;
        let mut is_cut = |may_go_on: bool| {
            changes += 1;
            match cut {
                Cut::Never => false,
                Cut::Off(at) => may_go_on && changes > at,
                Cut::Killed(at) => changes > at,
            }
        };
        for (key, slot) in saving.full {
            if is_cut(true) {
                return false;
            }
            self.slots.insert(key, slot.to_vec());
            recorder.note_placed(key);
        }
        for (key, slot) in saving.open {
            if is_cut(false) {
                return false;
            }
            self.slots.insert(key, slot.to_vec());
        }
        if is_cut(false) {
            return false;
        }
        assert!(saving.rewrites.len() <= REWRITES_MAX);
        self.slots.extend(saving.rewrites.into_iter().map(|(key, slot)| (key, slot.to_vec())));
        for key in &saving.withdrawn {
            self.slots.remove(key);
        }
        self.index = saving.index.encode();
        assert_eq!(Index::parse(&self.index).as_ref(), Some(&saving.index), "a save makes what a load takes");
        let mut undeleted = saving.deletes;
        while let Some(key) = undeleted.pop() {
            if is_cut(true) {
                undeleted.push(key);
                break;
            }
            self.slots.remove(&key);
        }
        recorder.note_saved(&saving.index, undeleted);
        true
    }

    /// Deletes what the index does not name, as the daemon does before its first save.
    fn sweep(&mut self) {
        let gaps = Index::parse(&self.index).unwrap_or_default().gaps();
        self.slots
            .retain(|key, _| !gaps.iter().any(|(from, to)| from <= key && to.is_none_or(|to| *key < to)));
    }

    fn rebuilt(&self) -> Index {
        let mut rebuilding = Rebuilding::default();
        self.slots.keys().for_each(|key| rebuilding.note(*key));
        rebuilding.index()
    }

    pub(crate) fn load(&self, budget: u64) -> Recorder {
        let index = Index::parse(&self.index).unwrap_or_else(|| self.rebuilt());
        let mut recorder = Recorder::load(&index, budget);
        while let Some(key) = recorder.wanted() {
            recorder.recall(key, self.slots.get(&key).map(Vec::as_slice));
        }
        recorder
    }

    fn bytes(&self) -> u64 {
        self.slots.values().map(|slot| slot.len() as u64 + 64).sum()
    }

    /// All points of an object, complete or not, folded where a time has several.
    fn points(&self, recorder: &Recorder, object: Object, level: Level) -> BTreeMap<u64, Point> {
        let mut found = Found::new(Question::of_all(object, level));
        let (ring, saved) = recorder.saved_slots(object, level);
        for key in saved.map(|sequence| SlotKey { ring, sequence }) {
            if let Some(slot) = self.slots.get(&key) {
                found.add_slot(key, slot);
            }
        }
        found.add_unsaved(&recorder.unsaved(object, level));
        found.into_points()
    }

    /// The points that a question is about, and the number of slots that were read for it.
    fn answer(&self, recorder: &mut Recorder, question: Question) -> (BTreeMap<u64, Point>, usize) {
        let (mut found, mut slots) = (Found::new(question), 0);
        let (ring, saved) = recorder.saved_slots(question.object, question.level);
        let mut from = saved.start;
        while let Some(asked) = recorder.asked_slots(&question, from..saved.end, 4) {
            assert!(asked.start >= from && asked.end - asked.start <= 4, "{asked:?}");
            from = asked.end;
            for key in asked.map(|sequence| SlotKey { ring, sequence }) {
                slots += 1;
                let reach = self.slots.get(&key).and_then(|slot| found.add_slot(key, slot));
                recorder.note_reach(key, reach);
            }
        }
        found.add_unsaved(&recorder.unsaved(question.object, question.level));
        (found.into_points(), slots)
    }
}

/// Points without what depends on the order of folding: the room at the end.
fn compared(points: BTreeMap<u64, Point>) -> BTreeMap<u64, Point> {
    let of = |point: Point| Point { size_kib: 0, ..point };
    points.into_iter().map(|(at_s, point)| (at_s, of(point))).collect()
}

fn requests() -> impl Strategy<Value = Requests> {
    let times = proptest::collection::vec((0_u64..10_000_000, 1_u64..1000), 0..6);
    prop_oneof![
        Just(Requests::default()),
        (times, 0_u64..1 << 40).prop_map(|(times, bytes)| {
            let count = times.iter().map(|one| one.1).sum();
            let total_us = times.iter().map(|one| one.0 * one.1).sum();
            Requests::sampled(10, count, bytes, total_us, Latencies::of(times))
        }),
    ]
}

fn quiet() -> impl Strategy<Value = Point> {
    (requests(), requests(), 0_u64..3, 0_u64..9, prop_oneof![Just(7_u64), 0..1_u64 << 40]).prop_map(
        |(reads, writes, errors, busy_ms, used)| Point {
            samples: 1,
            seconds: 10,
            reads,
            writes,
            errors,
            busy_ms,
            queue_ms: busy_ms * 3,
            used: Gauge::sampled(used),
            waiting: Gauge::sampled(errors),
            size_kib: 1 << 30,
        },
    )
}

fn point() -> impl Strategy<Value = Point> {
    prop_oneof![3 => quiet(), 1 => (0_u64..1000).prop_map(busy)]
}

fn sampled() -> impl Strategy<Value = Points> {
    proptest::collection::btree_map(
        prop_oneof![
            Just(Object::Pool),
            (1_u64..4).prop_map(Object::Space),
            (0_u64..3).prop_map(|disk| Object::Disk(disk << 60))
        ],
        point(),
        1..5,
    )
}

/// What happens: a sample some steps later, a save that gets so far, a save and another daemon.
#[derive(Debug, Clone)]
enum Step {
    Sample(u64, Points),
    Save(Cut),
    Restart,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let gap = prop_oneof![8 => Just(10_u64), 1 => 10_u64..1000, 1 => 1000_u64..200_000];
    let step = prop_oneof![
        8 => (gap, sampled()).prop_map(|(gap, points)| Step::Sample(gap, points)),
        1 => prop_oneof![Just(Cut::Never), (0_usize..9).prop_map(Cut::Off), (0_usize..20).prop_map(Cut::Killed)].prop_map(Step::Save),
        1 => Just(Step::Restart),
    ];
    proptest::collection::vec(step, 1..120)
}

const LARGE: u64 = HISTORY_BYTES_MAX;
const BEGIN_S: u64 = 1_700_000_000;

/// Carries steps out; returns the oracle as well.
fn run(steps: Vec<Step>, budget: u64) -> (Kept, Recorder, Vec<(u64, Points)>) {
    let (mut kept, mut oracle, mut at_s) = (Kept::default(), Vec::new(), BEGIN_S);
    let mut recorder = kept.load(budget);
    // What the file in the run folder has: the number of saves, and the samples since.
    let (mut saves, mut tail) = (0, 0);
    for step in steps {
        let cut = match step {
            Step::Sample(gap, points) => {
                at_s += gap;
                recorder.note(at_s, &points);
                oracle.push((at_s, points));
                continue;
            }
            Step::Save(cut) => cut,
            Step::Restart => Cut::Never,
        };
        if kept.save(&mut recorder, cut) {
            (saves, tail) = (recorder.saves(), oracle.len());
        }
        if matches!(step, Step::Restart) || matches!(cut, Cut::Killed(_)) {
            kept.sweep();
            recorder = kept.load(budget);
            let is_behind = recorder.saves() == saves;
            let behind = oracle.iter().skip(tail).filter(|_| is_behind);
            behind.for_each(|(at_s, points)| recorder.note(*at_s, points));
            (saves, tail) = (recorder.saves(), if is_behind { tail } else { oracle.len() });
        }
    }
    (kept, recorder, oracle)
}

fn folded(oracle: &[(u64, Points)], object: Object, level: Level) -> BTreeMap<u64, Point> {
    let mut points = BTreeMap::<u64, Point>::new();
    for (at_s, sample) in oracle {
        if let Some(point) = sample.get(&object) {
            points.entry(level.begin(*at_s)).or_default().add(point);
        }
    }
    points
}

fn objects() -> [Object; 7] {
    let disk = |disk: u64| Object::Disk(disk << 60);
    [Object::Pool, Object::Space(1), Object::Space(2), Object::Space(3), disk(0), disk(1), disk(2)]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Samples with gaps, saves and restarts in any order, saves that are broken off, and daemons that are killed between any two
    /// changes of a save: each resolution has what folding all samples gives.
    #[test]
    fn each_resolution_is_what_folding_all_samples_gives(steps in steps()) {
        let (kept, recorder, oracle) = run(steps, LARGE);
        for object in objects() {
            for level in Level::all() {
                let found = compared(kept.points(&recorder, object, level));
                prop_assert_eq!(&found, &compared(folded(&oracle, object, level)), "{:?} {:?}", object, level);
            }
        }
    }

    /// Questions about ranges of time, in any order, each of which reads no slot that an earlier one has shown to be of other times: each
    /// has the points of its range, and all of them.
    #[test]
    fn a_question_has_all_points_of_its_range(
        steps in steps(), ranges in proptest::collection::vec((0_u64..100_000, 0_u64..100_000), 1..6)
    ) {
        let (kept, mut recorder, _) = run(steps, LARGE);
        for (from_s, length_s) in ranges {
            for object in objects() {
                for level in Level::all() {
                    let from_s = BEGIN_S + from_s;
                    let question = Question { object, level, from_s, to_s: from_s + length_s };
                    let (found, _) = kept.answer(&mut recorder, question);
                    let all = kept.points(&recorder, object, level);
                    let is_asked = |at_s: &u64| *at_s + level.step_s() > from_s && *at_s <= from_s + length_s;
                    let expected: BTreeMap<u64, Point> =
                        all.into_iter().filter(|(at_s, _)| is_asked(at_s)).collect();
                    prop_assert_eq!(found, expected);
                }
            }
        }
    }

    /// One slot is damaged at any byte, cut short, lost, or in another's place: every point outside of it stays as it was.
    #[test]
    fn a_damaged_slot_loses_its_own_points_alone(
        steps in steps(), chosen in any::<prop::sample::Index>(), at in any::<prop::sample::Index>(), how in 0_u8..4, flip in 1_u8..=255
    ) {
        let (mut kept, mut recorder, _) = run(steps, LARGE);
        kept.save(&mut recorder, Cut::Never);
        prop_assume!(!kept.slots.is_empty());
        let whole = kept.clone();
        let key = *kept.slots.keys().nth(chosen.index(kept.slots.len())).unwrap();
        let other = whole.slots.iter().find(|(other, _)| **other != key).map(|one| one.1.clone());
        let own = parse_slot(&kept.slots[&key], key).unwrap();
        let slot = kept.slots.get_mut(&key).unwrap();
        let place = at.index(slot.len());
        match how {
            0 => slot[place] ^= flip,
            1 => slot.truncate(place),
            2 => *slot = other.unwrap_or_default(),
            _ => drop(kept.slots.remove(&key)),
        }
        prop_assert_eq!(kept.slots.get(&key).and_then(|slot| parse_slot(slot, key)), None);
        let (before, after) = (whole.load(LARGE), kept.load(LARGE));
        for object in objects() {
            for level in Level::all() {
                let is_lost = |at_s: &u64| {
                    // A point that is not complete is shown in coarser ones as well.
                    let is_in = |entry: &Entry| entry.object == object && level.begin(entry.at_s) == *at_s;
                    own.iter().any(is_in) && key.level().unwrap() <= level
                };
                let kept_of = |points: BTreeMap<u64, Point>| -> BTreeMap<u64, Point> {
                    points.into_iter().filter(|(at_s, _)| !is_lost(at_s)).collect()
                };
                prop_assert_eq!(
                    kept_of(whole.points(&before, object, level)), kept_of(kept.points(&after, object, level))
                );
            }
        }
    }

    /// The index is damaged: the slots are found by their names, and no complete point is lost.
    #[test]
    fn a_damaged_index_loses_nothing(steps in steps(), at in any::<prop::sample::Index>(), flip in 1_u8..=255) {
        let (mut kept, mut recorder, oracle) = run(steps, LARGE);
        kept.save(&mut recorder, Cut::Never);
        let place = at.index(kept.index.len());
        kept.index[place] ^= flip;
        prop_assert_eq!(Index::parse(&kept.index), None);
        let recorder = kept.load(LARGE);
        for object in objects() {
            let found = compared(kept.points(&recorder, object, Level::FINEST));
            prop_assert_eq!(found, compared(folded(&oracle, object, Level::FINEST)));
        }
    }

    /// Bytes of any kind are no slot, no index and no sample, and no panic.
    #[test]
    fn nonsense_is_nothing(mut bytes in proptest::collection::vec(any::<u8>(), 0..200), ring in 0_u8..12) {
        let key = SlotKey { ring, sequence: 0 };
        prop_assert_eq!(parse_slot(&bytes, key), None);
        prop_assert_eq!(Index::parse(&bytes), None);
        let _ = read_samples(&bytes);
        // As nonsense with a sound checksum, from a version to come or from a mistake.
        if bytes.len() >= 24 {
            bytes[0] = 1;
            bytes[1] = ring;
            bytes[2..24].fill(0);
            crate::slot::seal(&mut bytes);
            let _ = parse_slot(&bytes, key);
        }
    }

    /// Samples in a file read back, up to where the file is cut short.
    #[test]
    fn samples_of_a_torn_file_read_back_up_to_the_tear(all in proptest::collection::vec(sampled(), 0..5), cut in any::<prop::sample::Index>()) {
        let written: Vec<Vec<u8>> = all.iter().zip(1..).map(|(points, at_s)| write_sample(at_s, points)).collect();
        let bytes = written.concat();
        let cut = cut.index(bytes.len() + 1);
        let mut end = 0;
        let whole = written.iter().take_while(|one| { end += one.len(); end <= cut }).count();
        let found = read_samples(&bytes[..cut]);
        prop_assert_eq!(found.len(), whole);
        for (sample, (points, at_s)) in found.into_iter().zip(all.into_iter().zip(1..)) {
            prop_assert_eq!(sample, Sample { at_s, points });
        }
    }

    #[test]
    fn numbers_read_back(number in any::<u64>()) {
        let mut bytes = Vec::new();
        put(&mut bytes, number);
        prop_assert_eq!(Reader(&bytes).number(), Some(number));
    }
}

/// A point of a busy object: forty buckets of latencies each way.
fn busy(seed: u64) -> Point {
    let requests = |seed: u64| {
        let times =
            (0..40).map(|nth| (1_u64 << (nth / 4)) * (4 + nth % 4) + 3).zip((1..).map(|nth| nth * 97 + seed));
        let count = 1_000_000 + seed;
        Requests::sampled(10, count, count << 16, count * 700, Latencies::of(times))
    };
    Point {
        samples: 1,
        seconds: 10,
        reads: requests(seed),
        writes: requests(seed + 1),
        busy_ms: 9_000 + seed,
        queue_ms: 90_000,
        used: Gauge::sampled(seed << 20),
        ..Point::default()
    }
}

/// Scenario: 64 spaces and 240 disks, all busy, for half an hour, saved each minute, with a small budget and with the largest.
/// All slots stay within the budget. The pool's own history is whole; of spaces and disks the oldest points go first.
#[test]
fn many_busy_objects_stay_within_the_budget_and_lose_the_oldest_points_first() {
    for budget in [512 << 10, 4 << 20, HISTORY_BYTES_MAX] {
        let (mut kept, mut at_s) = (Kept::default(), BEGIN_S);
        let mut recorder = kept.load(budget);
        for nth in 0..180 {
            at_s += 10;
            let spaces = (1..=64).map(Object::Space);
            let objects = spaces.chain((0..240).map(Object::Disk)).chain([Object::Pool]);
            recorder.note(
                at_s,
                &objects.zip(1..).map(|(object, seed)| (object, busy(seed * 31 + nth))).collect(),
            );
            if nth % 6 == 5 {
                kept.save(&mut recorder, Cut::Never);
                assert!(kept.bytes() <= budget, "{} of {budget}", kept.bytes());
            }
        }
        let again = kept.load(budget);
        if budget < 4 << 20 {
            continue; // one moment of so many busy objects is more
        }
        let times: Vec<u64> = kept.points(&again, Object::Disk(3), Level::FINEST).into_keys().collect();
        assert!(times.windows(2).all(|pair| pair[1] == pair[0] + 10), "the newest without a gap");
        assert!(times.last().unwrap() + 20 > at_s);
        if budget == HISTORY_BYTES_MAX {
            assert!(times.len() > 24, "{}", times.len());
        }
        let pool = kept.points(&again, Object::Pool, Level::FINEST);
        assert!(pool.len() >= 60, "the pool has its own: {}", pool.len());
    }
}

/// Scenario: one idle disk for two days, checked as the daemon does. Ten-second points reach back for an hour and an eighth, and not
/// for two days; minutes for a day; and all of it is small.
#[test]
fn points_older_than_they_are_kept_go() {
    let (mut kept, mut at_s) = (Kept::default(), BEGIN_S);
    let mut recorder = kept.load(LARGE);
    let points = Points::from([(Object::Disk(1), Point { samples: 1, seconds: 10, ..Point::default() })]);
    for nth in 0..2 * 8640 {
        at_s += 10;
        recorder.note(at_s, &points);
        if nth % 60 == 0 {
            recorder.check_ages_again(at_s);
            while let Some(key) = recorder.unchecked_ages().first().copied() {
                recorder.check_age(key, kept.slots.get(&key).map(Vec::as_slice), at_s);
            }
            kept.save(&mut recorder, Cut::Never);
        }
    }
    let of = |level| kept.points(&recorder, Object::Disk(1), level);
    let finest = of(Level::FINEST).len();
    assert!((360..3000).contains(&finest), "{finest}");
    let minutes = of(Level::of(1).unwrap()).len();
    assert!((1440..2700).contains(&minutes), "{minutes}");
    assert_eq!(of(Level::HOURS).len(), 49, "two days, from the middle of an hour");
    assert!(kept.bytes() < 40 << 10, "{}", kept.bytes());
}

/// Scenario: thirty busy objects for an hour. A first question about the last minute reads all slots, to learn how far they reach. The
/// next ones read those of their range alone.
#[test]
fn a_question_reads_the_slots_of_its_range_alone() {
    let (mut kept, mut at_s) = (Kept::default(), BEGIN_S);
    let mut recorder = kept.load(LARGE);
    for nth in 0..360 {
        at_s += 10;
        recorder.note(at_s, &(0..30).map(|disk| (Object::Disk(disk), busy(disk + nth))).collect());
        if nth % 6 == 5 {
            kept.save(&mut recorder, Cut::Never);
        }
    }
    let object = Object::Disk(7);
    let (_, saved) = recorder.saved_slots(object, Level::FINEST);
    let question = |from_s, to_s| Question { object, level: Level::FINEST, from_s, to_s };
    let (_, slots) = kept.answer(&mut recorder, question(at_s - 60, at_s));
    assert_eq!(slots as u64, saved.end - saved.start);
    for (from_s, to_s) in [(at_s - 60, at_s), (at_s - 1800, at_s - 1740)] {
        let (points, slots) = kept.answer(&mut recorder, question(from_s, to_s));
        assert!((6..=8).contains(&points.len()), "{}", points.len());
        assert!((1..40).contains(&slots), "{slots} of {saved:?}");
    }
}

/// Scenario: a map has no room for two days, in which the ring of a busy object drops what waits, and the budget has shrunk since. The
/// next save deletes all that it drops, however much that is.
#[test]
fn all_slots_that_are_dropped_are_deleted() {
    let (mut kept, mut at_s) = (Kept::default(), BEGIN_S);
    let mut recorder = kept.load(LARGE);
    let mut sample = |recorder: &mut Recorder, count: u64| {
        for nth in 0..count {
            at_s += 10;
            recorder.note(at_s, &(0..30).map(|disk| (Object::Disk(disk), busy(disk + nth))).collect());
        }
    };
    for _ in 0..30 {
        sample(&mut recorder, 60);
        kept.save(&mut recorder, Cut::Never);
    }
    let before = kept.slots.len();
    assert!(before > 900, "{before}");
    let budget = 256 << 10;
    let mut recorder = kept.load(budget);
    sample(&mut recorder, 1000);
    // The index is on disk, and of the deletes none is.
    let changes = recorder.save().full.len() + recorder.save().open.len() + 1;
    assert!(kept.save(&mut recorder, Cut::Off(changes)));
    assert!(kept.slots.len() >= before, "{} of {before}", kept.slots.len());
    assert!(recorder.undeleted().len() > 900);
    assert!(kept.save(&mut recorder, Cut::Never));
    assert_eq!(recorder.undeleted(), []);
    assert!(kept.bytes() <= budget, "{} of {budget}", kept.bytes());
}
