//! Modelled disks: what is durable, what is not yet, and what each kind of crash may leave.

use std::collections::{BTreeMap, BTreeSet};

/// Unflushed writes at a crash, at most: their subsets are all tried.
const PENDING_MAX: usize = 20;

/// A place on a disk that is written as a whole.
pub trait Address: Copy + Ord {
    /// Units that are written atomically each: 1 for what carries a checksum of its own and is absent when
    /// torn, 2 for a block that may be half old and half new.
    fn parts(&self) -> u8;
}

/// One step of a protocol.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step<A, V, N> {
    /// A write is given to a disk.
    Write {
        /// The disk.
        disk: usize,
        /// Where.
        address: A,
        /// What.
        value: V,
    },
    /// A write is given to a disk that is durable when it completes.
    WriteThrough {
        /// The disk.
        disk: usize,
        /// Where.
        address: A,
        /// What.
        value: V,
    },
    /// All writes so far complete.
    Wait,
    /// All completed writes of every disk become durable.
    Flush,
    /// Something was promised or begun; for the oracle.
    Note(N),
}

/// The steps of a protocol, in the order in which they are taken.
pub type Script<A, V, N> = Vec<Step<A, V, N>>;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Stage {
    InFlight,
    InFlightThrough,
    Completed,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Pending<A, V> {
    at: (usize, A, u8),
    value: V,
    stage: Stage,
}

/// Some disks and the writes under way to them.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Media<A, V> {
    durable: BTreeMap<(usize, A, u8), V>,
    pending: Vec<Pending<A, V>>,
}

impl<A: Address, V: Copy + Ord> Default for Media<A, V> {
    fn default() -> Self {
        Self { durable: BTreeMap::new(), pending: Vec::new() }
    }
}

impl<A: Address, V: Copy + Ord> Media<A, V> {
    /// Puts a value on a disk as if it had always been there.
    pub fn set(&mut self, disk: usize, address: A, value: V) {
        for part in 0..address.parts() {
            self.durable.insert((disk, address, part), value);
        }
    }

    /// What a disk returns for an address: all its parts, or nothing if one was never written.
    #[must_use]
    pub fn read(&self, disk: usize, address: A) -> Option<Vec<V>> {
        (0..address.parts()).map(|part| self.read_part((disk, address, part))).collect()
    }

    fn read_part(&self, at: (usize, A, u8)) -> Option<V> {
        let newest = self.pending.iter().rev().find(|pending| pending.at == at);
        newest.map(|pending| pending.value).or_else(|| self.durable.get(&at).copied())
    }

    /// All places of a disk that hold something.
    #[must_use]
    pub fn addresses(&self, disk: usize) -> BTreeSet<A> {
        let pending = self.pending.iter().map(|pending| pending.at);
        let all = self.durable.keys().copied().chain(pending);
        all.filter(|at| at.0 == disk).map(|at| at.1).collect()
    }

    /// Takes one step.
    pub fn play<N>(&mut self, step: &Step<A, V, N>) {
        match step {
            Step::Write { disk, address, value } => self.issue(*disk, *address, *value, Stage::InFlight),
            Step::WriteThrough { disk, address, value } => {
                self.issue(*disk, *address, *value, Stage::InFlightThrough);
            }
            Step::Wait => self.wait(),
            Step::Flush => self.make_durable(|stage| stage == Stage::Completed),
            Step::Note(_) => {}
        }
    }

    fn issue(&mut self, disk: usize, address: A, value: V, stage: Stage) {
        for part in 0..address.parts() {
            self.pending.push(Pending { at: (disk, address, part), value, stage });
        }
    }

    fn wait(&mut self) {
        self.make_durable(|stage| stage == Stage::InFlightThrough);
        for pending in &mut self.pending {
            pending.stage = Stage::Completed;
        }
    }

    /// Makes pending writes durable, in the order in which they were given.
    fn make_durable(&mut self, chosen: impl Fn(Stage) -> bool) {
        let (durable, left): (Vec<_>, Vec<_>) =
            self.pending.drain(..).partition(|pending| chosen(pending.stage));
        for pending in durable {
            self.durable.insert(pending.at, pending.value);
        }
        self.pending = left;
    }

    /// Every state that a loss of power may leave: any subset of what is not durable.
    #[must_use]
    pub fn after_power_cut(&self) -> BTreeSet<Self> {
        self.subsets(&self.pending, |media, pending| {
            media.durable.insert(pending.at, pending.value);
        })
    }

    /// Every state that the death of the daemon may leave: what completed is there (if not yet durable), and
    /// any subset of what did not. A block is not torn then, since its disk keeps its power.
    #[must_use]
    pub fn after_kill(&self) -> BTreeSet<Self> {
        let (completed, flying): (Vec<_>, Vec<_>) =
            self.pending.iter().copied().partition(|pending| pending.stage == Stage::Completed);
        let whole: Vec<_> = flying.iter().copied().filter(|pending| pending.at.2 == 0).collect();
        let landed = self.subsets(&whole, |media, pending| {
            let (disk, address, _) = pending.at;
            media.issue(disk, address, pending.value, Stage::Completed);
        });
        let with_completed = |mut media: Self| {
            media.pending.splice(0..0, completed.iter().copied());
            media
        };
        landed.into_iter().map(with_completed).collect()
    }

    fn subsets(&self, of: &[Pending<A, V>], apply: impl Fn(&mut Self, &Pending<A, V>)) -> BTreeSet<Self> {
        assert!(of.len() <= PENDING_MAX, "{} unflushed writes are too many to try all subsets", of.len());
        let none = Self { durable: self.durable.clone(), pending: Vec::new() };
        let mut states = BTreeSet::from([none]);
        // One write at a time, so that equal states are merged on the way and not only at the end.
        for pending in of {
            let with = states.iter().map(|state| {
                let mut state = state.clone();
                apply(&mut state, pending);
                state
            });
            let with: Vec<_> = with.collect();
            states.extend(with);
        }
        states
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
    struct Place {
        parts: u8,
    }

    impl Address for Place {
        fn parts(&self) -> u8 {
            self.parts
        }
    }

    const BLOCK: Place = Place { parts: 2 };
    const RECORD: Place = Place { parts: 1 };

    fn played(steps: &[Step<Place, u8, ()>]) -> Media<Place, u8> {
        let mut media = Media::default();
        media.set(0, BLOCK, 1);
        steps.iter().for_each(|step| media.play(step));
        media
    }

    fn blocks(states: &BTreeSet<Media<Place, u8>>) -> BTreeSet<Vec<u8>> {
        states.iter().map(|media| media.read(0, BLOCK).unwrap()).collect()
    }

    /// An unflushed block of two parts is found old, new and half of each, whether completed or not.
    #[test]
    fn a_power_cut_leaves_any_subset_of_parts() {
        let write = Step::Write { disk: 0, address: BLOCK, value: 2 };
        let all = BTreeSet::from([vec![1, 1], vec![1, 2], vec![2, 1], vec![2, 2]]);
        assert_eq!(blocks(&played(std::slice::from_ref(&write)).after_power_cut()), all);
        assert_eq!(blocks(&played(&[write, Step::Wait]).after_power_cut()), all);
    }

    /// What a flush covered is never taken back, and a flush covers only what had completed.
    #[test]
    fn a_flush_keeps_what_completed_before_it() {
        let write = Step::Write { disk: 0, address: BLOCK, value: 2 };
        let flushed = played(&[write.clone(), Step::Wait, Step::Flush]);
        assert_eq!(blocks(&flushed.after_power_cut()), BTreeSet::from([vec![2, 2]]));
        assert_eq!(blocks(&played(&[write, Step::Flush]).after_power_cut()).len(), 4);
    }

    /// A write-through write is durable when it has completed, alone.
    #[test]
    fn a_completed_write_through_is_durable() {
        let steps = [
            Step::Write { disk: 0, address: BLOCK, value: 2 },
            Step::WriteThrough { disk: 0, address: RECORD, value: 3 },
            Step::Wait,
        ];
        let states = played(&steps).after_power_cut();
        assert_eq!(states.len(), 4);
        assert!(states.iter().all(|media| media.read(0, RECORD) == Some(vec![3])));
    }

    /// A killed daemon loses nothing that completed; a later loss of power still may.
    #[test]
    fn a_kill_keeps_what_completed_but_not_for_ever() {
        let write = Step::Write { disk: 0, address: BLOCK, value: 2 };
        assert_eq!(blocks(&played(std::slice::from_ref(&write)).after_kill()).len(), 2);
        let completed = played(&[write, Step::Wait]).after_kill();
        assert_eq!(blocks(&completed), BTreeSet::from([vec![2, 2]]));
        assert_eq!(blocks(&completed.first().unwrap().after_power_cut()).len(), 4);
    }
}
