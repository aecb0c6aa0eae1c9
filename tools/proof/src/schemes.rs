//! Ways to overwrite a block of a two-way mirror, and a column of a 2 + 1 parity stripe, with one disk lost in
//! the same instant as the power. Those that lose data are controls: the model must see them fail.
//!
//! A block is named by its version number. A checksum record is the number itself; a block whose two halves
//! differ matches none.

use std::collections::{BTreeMap, BTreeSet};

use super::media::{Address, Media, Script, Step};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    /// A block of user data or parity, in so many atomic parts.
    Block { slot: u8, parts: u8 },
    /// A log record: carries its own checksum.
    Log(u8),
}

impl Address for Place {
    fn parts(&self) -> u8 {
        match self {
            Self::Block { parts, .. } => *parts,
            Self::Log(_) => 1,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Value {
    /// A version of the block.
    Content(u8),
    /// Parity over a version of the first column and one of the second.
    Parity(u8, u8),
    /// The checksum of a version.
    Checksum(u8),
    /// The block is in this slot now, in this version.
    Switch { slot: u8, version: u8 },
}

/// What was promised.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Note {
    Issued(u8),
    Flushed(u8),
}

type Disks = Media<Place, Value>;
type Steps = Script<Place, Value, Note>;

/// What a reader gets after recovery: versions, or an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Read {
    Version(u8),
    Error,
    Garbage,
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Verdict {
    states: usize,
    errors: usize,
    wrong: usize,
}

impl Verdict {
    fn holds(&self) -> bool {
        self.errors == 0 && self.wrong == 0
    }
}

/// Crashes after every step, in every subset of what is unflushed, with none or one of the disks gone.
fn verify(disks: usize, start: &Disks, steps: &Steps, recover: impl Fn(&Disks, &[usize]) -> Read) -> Verdict {
    let mut verdict = Verdict::default();
    let mut media = start.clone();
    let mut allowed = BTreeSet::from([0]);
    for cut in 0..=steps.len() {
        for state in media.after_power_cut() {
            for lost in (0..disks).map(Some).chain([None]) {
                let live: Vec<usize> = (0..disks).filter(|disk| Some(*disk) != lost).collect();
                verdict.states += 1;
                match recover(&state, &live) {
                    Read::Version(version) if allowed.contains(&version) => {}
                    Read::Version(_) | Read::Garbage => verdict.wrong += 1,
                    Read::Error => verdict.errors += 1,
                }
            }
        }
        let Some(step) = steps.get(cut) else { break };
        media.play(step);
        match step {
            Step::Note(Note::Issued(version)) => drop(allowed.insert(*version)),
            Step::Note(Note::Flushed(version)) => allowed.retain(|other| other >= version),
            _ => {}
        }
    }
    verdict
}

fn block(media: &Disks, disk: usize, place: Place) -> Option<Value> {
    let parts = media.read(disk, place)?;
    parts.iter().all(|part| *part == parts[0]).then_some(parts[0])
}

/// All records of the live disks, by place in the log.
fn records(media: &Disks, live: &[usize]) -> BTreeMap<u8, Value> {
    let places = live.iter().flat_map(|disk| media.addresses(*disk).into_iter().map(|place| (*disk, place)));
    places
        .filter_map(|(disk, place)| match place {
            Place::Log(lsn) => Some((lsn, media.read(disk, place)?[0])),
            Place::Block { .. } => None,
        })
        .collect()
}

const COPIES: [usize; 2] = [0, 1];

fn main_location(parts: u8) -> Place {
    Place::Block { slot: 0, parts }
}

fn to_both(place: Place, value: Value) -> Steps {
    COPIES.iter().map(|&disk| Step::Write { disk, address: place, value }).collect()
}

fn flush() -> Steps {
    vec![Step::Wait, Step::Flush]
}

fn mirror(value: Value, parts: u8) -> Disks {
    let mut media = Disks::default();
    for disk in COPIES {
        media.set(disk, main_location(parts), Value::Content(0));
        media.set(disk, Place::Log(0), value);
    }
    media
}

mod in_place {
    use super::*;

    fn checksums(media: &Disks, live: &[usize]) -> BTreeSet<u8> {
        let of = |value| match value {
            Value::Checksum(version) => Some(version),
            Value::Content(_) | Value::Parity(..) | Value::Switch { .. } => None,
        };
        records(media, live).into_values().filter_map(of).collect()
    }

    fn strict(media: &Disks, live: &[usize], parts: u8) -> Read {
        let known = checksums(media, live);
        let verified = live.iter().filter_map(|disk| match block(media, *disk, main_location(parts)) {
            Some(Value::Content(version)) if known.contains(&version) => Some(version),
            _ => None,
        });
        verified.max().map_or(Read::Error, Read::Version)
    }

    fn lenient(media: &Disks, live: &[usize], parts: u8) -> Read {
        match (strict(media, live, parts), block(media, live[0], main_location(parts))) {
            (Read::Error, Some(Value::Content(version))) => Read::Version(version),
            (Read::Error, _) => Read::Garbage,
            (read, _) => read,
        }
    }

    /// Versions 1 and 2 flushed, 3 in flight; checksums are written when a flush comes.
    fn checksum_at_flush(parts: u8) -> Steps {
        let mut steps = Steps::new();
        for version in 1..=3 {
            steps.push(Step::Note(Note::Issued(version)));
            steps.extend(to_both(main_location(parts), Value::Content(version)));
            if version < 3 {
                steps.extend(to_both(Place::Log(version), Value::Checksum(version)));
                steps.extend(flush());
                steps.push(Step::Note(Note::Flushed(version)));
            }
        }
        steps
    }

    /// The same with each checksum durable before its data is touched.
    fn intent_first(parts: u8) -> Steps {
        let mut steps = Steps::new();
        for version in 1..=3 {
            steps.push(Step::Note(Note::Issued(version)));
            steps.extend(to_both(Place::Log(version), Value::Checksum(version)));
            steps.extend(flush());
            steps.extend(to_both(main_location(parts), Value::Content(version)));
            if version < 3 {
                steps.extend(flush());
                steps.push(Step::Note(Note::Flushed(version)));
            }
        }
        steps
    }

    /// Control: overwriting in place with checksums persisted at the flush fails, whoever reads: the strict
    /// reader refuses what was in flight, the lenient one returns mixtures.
    #[test]
    fn control_checksums_persisted_at_flush_fail() {
        for parts in [1, 2] {
            let start = mirror(Value::Checksum(0), parts);
            let refused = verify(2, &start, &checksum_at_flush(parts), |m, l| strict(m, l, parts));
            assert!(refused.errors > 0, "{refused:?}");
        }
        let start = mirror(Value::Checksum(0), 2);
        let mixed = verify(2, &start, &checksum_at_flush(2), |m, l| lenient(m, l, 2));
        assert!(mixed.wrong > 0, "{mixed:?}");
    }

    /// A durable intent holds on disks that write a block atomically.
    #[test]
    fn an_intent_holds_on_atomic_blocks() {
        let verdict = verify(2, &mirror(Value::Checksum(0), 1), &intent_first(1), |m, l| strict(m, l, 1));
        assert!(verdict.holds() && verdict.states > 50, "{verdict:?}");
    }

    /// Control: on disks that tear a block an intent is not enough, because neither content is there.
    #[test]
    fn control_an_intent_fails_on_torn_blocks() {
        let verdict = verify(2, &mirror(Value::Checksum(0), 2), &intent_first(2), |m, l| strict(m, l, 2));
        assert!(verdict.errors > 0 && verdict.wrong == 0, "{verdict:?}");
    }
}

mod slots {
    use super::*;

    #[derive(Clone, Copy)]
    enum Reuse {
        AfterFlush,
        AtOnce,
    }

    fn slot(slot: u8) -> Place {
        Place::Block { slot, parts: 2 }
    }

    /// Each version goes to the free one of two slots, beside a record that flips the map.
    fn script(reuse: Reuse) -> Steps {
        let mut steps = Steps::new();
        let last = if matches!(reuse, Reuse::AfterFlush) { 3 } else { 2 };
        for version in 1..=last {
            let target = version % 2;
            steps.push(Step::Note(Note::Issued(version)));
            steps.extend(to_both(slot(target), Value::Content(version)));
            steps.extend(to_both(Place::Log(version), Value::Switch { slot: target, version }));
            let is_flushed = matches!(reuse, Reuse::AfterFlush) && version < 3;
            if is_flushed {
                steps.extend(flush());
                steps.push(Step::Note(Note::Flushed(version)));
            }
        }
        steps
    }

    fn recover(media: &Disks, live: &[usize]) -> Read {
        for record in records(media, live).into_values().rev() {
            let Value::Switch { slot: at, version } = record else { continue };
            let content = Some(Value::Content(version));
            if live.iter().any(|disk| block(media, *disk, slot(at)) == content) {
                return Read::Version(version);
            }
        }
        Read::Error
    }

    /// Slot and record need no order between them, even on disks that tear blocks.
    #[test]
    fn a_free_slot_and_its_record_hold() {
        let start = mirror(Value::Switch { slot: 0, version: 0 }, 2);
        let verdict = verify(2, &start, &script(Reuse::AfterFlush), recover);
        assert!(verdict.holds() && verdict.states > 100, "{verdict:?}");
    }

    /// A row is freed and its slab goes to another row, whose data then replaces the content.
    fn free_and_reuse(reuse: Reuse) -> Steps {
        const LOST: u8 = 1;
        const ANOTHER_ROW: u8 = 50;
        const NO_SLOT: u8 = 9;
        let mut steps = vec![Step::Note(Note::Issued(LOST))];
        steps.extend(to_both(Place::Log(1), Value::Switch { slot: NO_SLOT, version: LOST }));
        if matches!(reuse, Reuse::AfterFlush) {
            steps.extend(flush());
        }
        steps.extend(to_both(slot(0), Value::Content(ANOTHER_ROW)));
        steps
    }

    /// A freed row is either still there, whole, or gone.
    fn recover_row(media: &Disks, live: &[usize]) -> Read {
        match records(media, live).into_values().next_back() {
            Some(Value::Switch { slot: 0, .. }) => recover(media, live),
            _ => Read::Version(1),
        }
    }

    /// A slab is given away when the commit that freed it is durable; before that, a crash brings the row back.
    #[test]
    fn a_slab_reused_after_its_free_is_durable_holds() {
        let start = mirror(Value::Switch { slot: 0, version: 0 }, 2);
        let verdict = verify(2, &start, &free_and_reuse(Reuse::AfterFlush), recover_row);
        assert!(verdict.holds() && verdict.states > 20, "{verdict:?}");
    }

    /// Control: the slab is reused while its free is not durable; the row comes back with another's data.
    #[test]
    fn control_a_slab_reused_before_its_free_is_durable_fails() {
        let start = mirror(Value::Switch { slot: 0, version: 0 }, 2);
        assert!(!verify(2, &start, &free_and_reuse(Reuse::AtOnce), recover_row).holds());
    }

    /// Control: the old slot is written again before the record that freed it was flushed.
    #[test]
    fn control_a_slot_reused_before_its_record_is_flushed_fails() {
        let start = mirror(Value::Switch { slot: 0, version: 0 }, 2);
        let verdict = verify(2, &start, &script(Reuse::AtOnce), recover);
        assert!(!verdict.holds(), "{verdict:?}");
    }
}

mod journal {
    use super::*;

    #[derive(Clone, Copy)]
    enum Destage {
        AfterFlush,
        AtOnce,
    }

    fn script(destage: Destage) -> Steps {
        let mut steps = Steps::new();
        for version in 1..=3 {
            steps.push(Step::Note(Note::Issued(version)));
            steps.extend(to_both(Place::Log(version), Value::Content(version)));
            if matches!(destage, Destage::AtOnce) {
                steps.extend(to_both(main_location(2), Value::Content(version)));
            }
            if version < 3 {
                steps.extend(flush());
                steps.push(Step::Note(Note::Flushed(version)));
                if matches!(destage, Destage::AfterFlush) {
                    steps.extend(to_both(main_location(2), Value::Content(version)));
                }
            }
        }
        steps
    }

    /// The log is empty at first: version 0 stands in place alone.
    fn recover(media: &Disks, live: &[usize]) -> Read {
        let newest = records(media, live).into_values().rfind(|value| matches!(value, Value::Content(_)));
        let in_place = live.iter().find_map(|disk| block(media, *disk, main_location(2)));
        match newest.or_else(|| in_place.filter(|value| *value == Value::Content(0))) {
            Some(Value::Content(version)) => Read::Version(version),
            _ => Read::Error,
        }
    }

    fn start() -> Disks {
        mirror(Value::Checksum(0), 2)
    }

    /// Data in the log, put in place after a flush covered the record.
    #[test]
    fn a_journal_holds_on_torn_blocks() {
        let verdict = verify(2, &start(), &script(Destage::AfterFlush), recover);
        assert!(verdict.holds() && verdict.states > 100, "{verdict:?}");
    }

    /// Control: put in place while the record is not flushed.
    #[test]
    fn control_destaging_before_the_record_is_flushed_fails() {
        assert!(!verify(2, &start(), &script(Destage::AtOnce), recover).holds());
    }
}

mod parity {
    use super::*;

    /// The neighbour's content, which nothing here writes.
    const NEIGHBOUR: u8 = 7;

    #[derive(Clone, Copy, PartialEq, Eq)]
    enum Logged {
        DataOnly,
        DataAndParity,
    }

    fn start() -> Disks {
        let mut media = Disks::default();
        media.set(0, main_location(2), Value::Content(0));
        media.set(1, main_location(2), Value::Content(NEIGHBOUR));
        media.set(2, main_location(2), Value::Parity(0, NEIGHBOUR));
        media
    }

    fn script(logged: Logged, log: [usize; 2]) -> Steps {
        let write = |disk, address, value| Step::Write { disk, address, value };
        let parity = Value::Parity(1, NEIGHBOUR);
        let mut steps = vec![Step::Note(Note::Issued(1))];
        steps.extend(log.map(|disk| write(disk, Place::Log(1), Value::Content(1))));
        steps.extend(flush());
        steps.push(Step::Note(Note::Flushed(1)));
        if logged == Logged::DataAndParity {
            steps.extend(log.map(|disk| write(disk, Place::Log(2), parity)));
            steps.extend(flush());
        }
        steps.extend([write(0, main_location(2), Value::Content(1)), write(2, main_location(2), parity)]);
        steps.extend(flush());
        steps
    }

    /// Reads the column that was written, unless its neighbour turned into garbage or an error.
    fn recover(media: &Disks, live: &[usize]) -> Read {
        let known = records(media, live);
        let stored =
            |disk: usize| live.contains(&disk).then(|| block(media, disk, main_location(2))).flatten();
        let redone = known.get(&2).copied();
        let parity = redone.or_else(|| stored(2));
        let on_disk = if redone.is_some() { known.get(&1).copied() } else { stored(0) };
        let neighbour = match (stored(1), parity, on_disk) {
            (Some(content), _, _) => Some(content),
            (None, Some(Value::Parity(first, second)), Some(Value::Content(data))) if first == data => {
                Some(Value::Content(second))
            }
            _ => None,
        };
        if neighbour != Some(Value::Content(NEIGHBOUR)) {
            return Read::Garbage;
        }
        match (known.get(&1).copied().or(on_disk), parity) {
            (Some(Value::Content(version)), _) | (None, Some(Value::Parity(version, _))) => {
                Read::Version(version)
            }
            _ => Read::Error,
        }
    }

    /// Control: with the new data alone in the log, a crash between data and parity and the loss of a third
    /// column turn a neighbour that nobody wrote into garbage.
    #[test]
    fn control_a_log_without_parity_loses_a_neighbour() {
        for log in [[0, 2], [0, 1], [1, 2]] {
            let verdict = verify(3, &start(), &script(Logged::DataOnly, log), recover);
            assert!(verdict.wrong > 0, "log on {log:?}: {verdict:?}");
        }
    }

    /// With every block of the stripe that is about to be overwritten in the log, nothing is lost.
    #[test]
    fn a_log_with_data_and_parity_holds() {
        for log in [[0, 2], [0, 1], [1, 2]] {
            let verdict = verify(3, &start(), &script(Logged::DataAndParity, log), recover);
            assert!(verdict.holds() && verdict.states > 20, "log on {log:?}: {verdict:?}");
        }
    }
}
