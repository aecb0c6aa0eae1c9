//! Free allocation units of one disk: a map of runs, kept whole in memory while they are few, and changed only together with the
//! metadata that says so.

use std::collections::{BTreeMap, BTreeSet};

use dolmen_units::DiskSlot;

use crate::keys;
use crate::metadata::edits::Edit;

/// Runs that one slab may be cut into, at most: so that disks of mixed sizes fill up whatever was freed before.
pub const RUNS_MAX: usize = 4;

/// A run of allocation units on one disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Run {
    /// First allocation unit.
    pub first: u64,
    /// Length in allocation units.
    pub count: u64,
}

/// A run that cannot be given back: some of it is free already, or is none of the disk's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NotOwned;

/// The free runs of one disk.
#[derive(Debug, Clone)]
pub(crate) struct FreeMap {
    /// Allocation units of the disk.
    units: u64,
    runs: BTreeMap<u64, u64>,
    total: u64,
    /// First allocation units whose entry in the metadata may differ from `runs`.
    touched: BTreeSet<u64>,
}

impl FreeMap {
    /// One run of everything.
    pub(crate) fn whole(units: u64) -> Self {
        Self { units, runs: BTreeMap::from([(0, units)]), total: units, touched: BTreeSet::from([0]) }
    }

    /// Nothing is free yet of so many allocation units.
    pub(crate) fn full(units: u64) -> Self {
        Self { units, runs: BTreeMap::new(), total: 0, touched: BTreeSet::new() }
    }

    /// Has the disk so many allocation units. Those beyond the ones before are not free until they are given.
    pub(crate) fn extend(&mut self, units: u64) {
        self.units = units.max(self.units);
    }

    /// Adds a run as read from the metadata.
    pub(crate) fn load(&mut self, run: Run) {
        self.runs.insert(run.first, run.count);
        self.total += run.count;
    }

    /// Free allocation units.
    pub(crate) fn total(&self) -> u64 {
        self.total
    }

    /// Allocation units that one slab of up to [`RUNS_MAX`] runs could get.
    #[cfg(test)]
    fn largest_slab(&self) -> u64 {
        if self.runs.len() <= RUNS_MAX {
            return self.total;
        }
        let mut largest = [0; RUNS_MAX];
        for count in self.runs.values() {
            let least = largest.iter_mut().min();
            if let Some(least) = least.filter(|least| **least < *count) {
                *least = *count;
            }
        }
        largest.iter().sum()
    }

    /// Takes `units` in as few runs as possible, lowest addresses first among equals; `None`, and nothing changed, when
    /// [`RUNS_MAX`] runs are not enough.
    pub(crate) fn take(&mut self, units: u64) -> Option<Vec<Run>> {
        if let Some((&first, _)) = self.runs.iter().find(|(_, count)| **count >= units) {
            self.cut(first, units);
            return Some(vec![Run { first, count: units }]);
        }
        let mut by_size: Vec<Run> =
            self.runs.iter().map(|(first, count)| Run { first: *first, count: *count }).collect();
        by_size.sort_by_key(|run| (std::cmp::Reverse(run.count), run.first));
        let mut missing = units;
        let mut taken = Vec::with_capacity(RUNS_MAX);
        for run in by_size.into_iter().take(RUNS_MAX) {
            let count = run.count.min(missing);
            taken.push(Run { first: run.first, count });
            missing -= count;
            if missing == 0 {
                break;
            }
        }
        if missing > 0 {
            return None;
        }
        for run in &taken {
            self.cut(run.first, run.count);
        }
        Some(taken)
    }

    fn cut(&mut self, first: u64, units: u64) {
        let Some(count) = self.runs.remove(&first) else {
            panic!("allocation unit {first} begins a free run")
        };
        assert!(count >= units, "a run of {count} free allocation units holds {units}");
        self.touched.insert(first);
        if count > units {
            self.runs.insert(first + units, count - units);
            self.touched.insert(first + units);
        }
        self.total -= units;
    }

    /// Gives a run back, joined with its neighbours.
    ///
    /// # Errors
    /// [`NotOwned`], with nothing changed. Free maps and rows are read from disks, each for itself: that they fit each other is
    /// unknown before a row is freed, and data would be handed out twice where they do not.
    pub(crate) fn give(&mut self, run: Run) -> Result<(), NotOwned> {
        let end = run.first.checked_add(run.count).filter(|end| *end <= self.units).ok_or(NotOwned)?;
        let before = self.runs.range(..end).next_back();
        if before.is_some_and(|(first, count)| first + count > run.first) {
            return Err(NotOwned);
        }
        let mut merged = run;
        if let Some((&first, &count)) = self.runs.range(..=run.first).next_back()
            && first + count == run.first
        {
            merged = Run { first, count: count + run.count };
        }
        if let Some(count) = self.runs.remove(&end) {
            self.touched.insert(end);
            merged.count += count;
        }
        self.runs.insert(merged.first, merged.count);
        self.touched.insert(merged.first);
        self.total += run.count;
        Ok(())
    }

    /// What has to be written so that the metadata says what this map says, since the last call.
    pub(crate) fn edits(&mut self, slot: DiskSlot) -> Vec<Edit> {
        let touched = std::mem::take(&mut self.touched);
        if touched.is_empty() {
            return Vec::new();
        }
        let entry = |first: u64| self.runs.get(&first).map(|count| count.to_le_bytes().to_vec());
        let mut edits: Vec<Edit> =
            touched.into_iter().map(|first| (keys::free(slot, first), entry(first))).collect();
        edits.push((keys::free_total(slot), Some(self.total.to_le_bytes().to_vec())));
        edits
    }

    /// Returns the allocation units of the disk.
    pub(crate) fn units(&self) -> u64 {
        self.units
    }

    /// Returns the first free runs that begin at an allocation unit or behind it, in order of address, so many at most.
    pub(crate) fn runs_from(&self, first: u64, max: usize) -> Vec<Run> {
        self.runs
            .range(first..)
            .take(max)
            .map(|(first, count)| Run { first: *first, count: *count })
            .collect()
    }

    /// The free runs in order of address.
    pub(crate) fn runs(&self) -> impl Iterator<Item = Run> + '_ {
        self.runs.iter().map(|(first, count)| Run { first: *first, count: *count })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        // Any mix of taking and giving back: no allocation unit is handed out twice, none is lost, and the edits turn the old map
        // into the new one.
        #[test]
        fn allocation_units_are_neither_lost_nor_allocated_twice(actions in proptest::collection::vec((0u64..40, any::<bool>(), 0usize..64), 1..200)) {
            let units = 500;
            let mut map = FreeMap::whole(units);
            let mut owned = vec![false; 500];
            let mut slabs: Vec<Vec<Run>> = Vec::new();
            let mut written = BTreeMap::new();
            for (key, value) in map.edits(DiskSlot(3)) {
                written.insert(key, value.unwrap());
            }
            for (want, give, which) in actions {
                if give && !slabs.is_empty() {
                    let index = which % slabs.len();
                    for run in slabs.swap_remove(index) {
                        for unit in run.first..run.first + run.count {
                            owned[usize::try_from(unit).unwrap()] = false;
                        }
                        map.give(run).unwrap();
                        let mut same = map.clone();
                        prop_assert_eq!(same.give(run), Err(NotOwned));
                        prop_assert_eq!(same.give(Run { first: run.first + run.count - 1, count: 2 }), Err(NotOwned));
                        prop_assert_eq!(same.give(Run { first: 400, count: 101 }), Err(NotOwned));
                        prop_assert_eq!(same.give(Run { first: u64::MAX, count: 2 }), Err(NotOwned));
                        prop_assert_eq!((&same.runs, same.total), (&map.runs, map.total));
                    }
                } else if let Some(runs) = map.take(want + 1) {
                    prop_assert!(runs.len() <= RUNS_MAX);
                    prop_assert_eq!(runs.iter().map(|run| run.count).sum::<u64>(), want + 1);
                    for unit in runs.iter().flat_map(|run| run.first..run.first + run.count) {
                        let unit = usize::try_from(unit).unwrap();
                        prop_assert!(!owned[unit]);
                        owned[unit] = true;
                    }
                    slabs.push(runs);
                } else {
                    prop_assert!(map.largest_slab() < want + 1);
                }
                prop_assert_eq!(map.total(), owned.iter().filter(|owned| !**owned).count() as u64);
                for (key, value) in map.edits(DiskSlot(3)) {
                    match value {
                        Some(value) => written.insert(key, value),
                        None => written.remove(&key),
                    };
                }
            }
            written.remove(&keys::free_total(DiskSlot(3)));
            let read: Vec<Run> = written.iter().map(|(key, value)| Run { first: keys::parts(key).1, count: u64::from_le_bytes(value.as_slice().try_into().unwrap()) }).collect();
            prop_assert_eq!(read, map.runs().collect::<Vec<_>>());
        }
    }
}
