//! Which slots there are.
//!
//! | from | bytes | what |
//! |---:|---:|---|
//! | 0 | 1 | version, 1 |
//! | 1 | 3 | zero |
//! | 4 | 4 | CRC-32C of the index with zeros here |
//! | 8 | 8 | how many times it was saved |
//! | 16 | 5 × 8 | of each resolution: seconds at which the point begins that is not complete |
//! | 56 | 10 × 24 | of each ring: first slot, first slot that is not complete, end |
//!
//! The disks of a pool may come from anywhere, and anybody can make a checksum. So numbers that no save of ours makes are damage: an
//! index never names more slots than a ring has room for.

use std::collections::BTreeSet;

use dolmen_mutation::mutation;

use crate::bounds::{HISTORY_BYTES_MAX, NUMBERS_MAX, open_max, slots_max};
use crate::codec::Reader;
use crate::level::{LEVELS, Level};
use crate::point::Object;
use crate::slot::{is_sealed, seal};

const VERSION: u8 = 1;
/// Groups of objects: the pool, and everything else. Many disks shorten the history of disks, and not that of the pool.
const GROUPS: usize = 2;
pub(crate) const RINGS: usize = GROUPS * LEVELS;

/// Name of a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct SlotKey {
    /// Number of the ring.
    pub ring: u8,
    /// Sequence number of the slot in the ring.
    pub sequence: u64,
}

impl SlotKey {
    pub(crate) fn level(self) -> Option<Level> {
        let is_ring = usize::from(self.ring) < RINGS;
        Level::of(self.ring % u8::try_from(LEVELS).ok()?).filter(|_| is_ring)
    }
}

/// Returns the resolution of a ring.
pub(crate) fn level_of(ring: usize) -> Option<Level> {
    SlotKey { ring: u8::try_from(ring).ok()?, sequence: 0 }.level()
}

/// Returns the number of the ring with the points of an object.
pub(crate) fn ring_of(object: Object, level: Level) -> u8 {
    let first = match object {
        Object::Pool => 0,
        Object::Space(_) | Object::Disk(_) => LEVELS,
    };
    u8::try_from(first + level.index()).unwrap_or(0)
}

/// Slots of a ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Slots {
    pub(crate) first: u64,
    /// From here on slots have points that are not complete, or have room.
    pub(crate) open: u64,
    pub(crate) end: u64,
}

impl Slots {
    /// Whether a save of ours makes these of that ring.
    fn is_sound(self, ring: usize) -> bool {
        let Some(level) = level_of(ring) else { return false };
        let Self { first, open, end } = self;
        let is_ordered = first <= open && open <= end && end <= NUMBERS_MAX;
        let is_short = || end - first <= slots_max(ring, level, HISTORY_BYTES_MAX);
        is_ordered && (mutation!(HistoryIndexUnbounded) || is_short() && end - open <= open_max(ring, level))
    }
}

/// Which slots there are.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Index {
    pub(crate) saves: u64,
    pub(crate) begins_s: [u64; LEVELS],
    pub(crate) rings: [Slots; RINGS],
}

impl Index {
    /// Reads it; `None` of one that is damaged, of another version, or with numbers that no save makes.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader(bytes);
        if !is_sealed(bytes) || reader.fixed()? != [VERSION, 0, 0, 0] {
            return None;
        }
        let _checksum = reader.u32()?;
        let mut index = Self { saves: reader.u64()?, ..Self::default() };
        for (level, begin_s) in Level::all().zip(&mut index.begins_s) {
            *begin_s = reader.u64()?;
            if level.begin(*begin_s) != *begin_s {
                return None;
            }
        }
        for (ring, slots) in index.rings.iter_mut().enumerate() {
            *slots = Slots { first: reader.u64()?, open: reader.u64()?, end: reader.u64()? };
            if !slots.is_sound(ring) {
                return None;
            }
        }
        (reader.0.is_empty() && index.saves <= NUMBERS_MAX).then_some(index)
    }

    /// Writes it.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![VERSION, 0, 0, 0, 0, 0, 0, 0];
        bytes.extend(self.saves.to_le_bytes());
        self.begins_s.iter().for_each(|begin_s| bytes.extend(begin_s.to_le_bytes()));
        for Slots { first, open, end } in self.rings {
            [first, open, end].iter().for_each(|number| bytes.extend(number.to_le_bytes()));
        }
        seal(&mut bytes);
        bytes
    }

    /// Returns how many times it was saved.
    #[must_use]
    pub fn saves(&self) -> u64 {
        self.saves
    }

    /// Returns the gaps between the slots that it names, ascending: each from a name on and up to another one, the last one up to the
    /// end of all names. A slot in a gap is of no use: a save that was cut short has left it, or a delete that was lost.
    #[must_use]
    pub fn gaps(&self) -> Vec<(SlotKey, Option<SlotKey>)> {
        let (mut gaps, mut from) = (Vec::new(), SlotKey { ring: 0, sequence: 0 });
        for (ring, slots) in (0..).zip(&self.rings) {
            let to = SlotKey { ring, sequence: slots.first };
            gaps.extend((from < to).then_some((from, Some(to))));
            from = SlotKey { ring, sequence: slots.end };
        }
        gaps.push((from, None));
        gaps
    }
}

/// Makes an index of the slots that are there, where the index itself is lost. All of their points count as complete.
#[derive(Debug, Default)]
pub struct Rebuilding {
    /// Of each ring the newest slots, no more than it has room for: others are none of its own.
    rings: [BTreeSet<u64>; RINGS],
}

impl Rebuilding {
    /// Notes a slot that was found.
    pub fn note(&mut self, key: SlotKey) {
        let ring = usize::from(key.ring);
        let (Some(level), Some(found)) = (key.level(), self.rings.get_mut(ring)) else { return };
        if key.sequence >= NUMBERS_MAX / 2 {
            // Nothing of ours, and the next saves need numbers as well.
            return;
        }
        found.insert(key.sequence);
        let slots_max = slots_max(ring, level, HISTORY_BYTES_MAX);
        while let Some((first, last)) = found.first().copied().zip(found.last().copied())
            && last - first >= slots_max
        {
            found.pop_first();
        }
    }

    /// Returns the index.
    #[must_use]
    pub fn index(&self) -> Index {
        let slots = |found: &BTreeSet<u64>| {
            let ends = found.first().copied().zip(found.last().copied());
            ends.map_or(Slots::default(), |(first, last)| Slots { first, open: last + 1, end: last + 1 })
        };
        let mut index = Index::default();
        index.rings.iter_mut().zip(&self.rings).for_each(|(ring, found)| *ring = slots(found));
        index
    }
}
