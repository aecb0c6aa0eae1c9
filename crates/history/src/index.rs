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

/// Which slots there are.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Index {
    pub(crate) saves: u64,
    pub(crate) begins_s: [u64; LEVELS],
    pub(crate) rings: [Slots; RINGS],
}

impl Index {
    /// Reads it; `None` of one that is damaged or of another version.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader(bytes);
        if !is_sealed(bytes) || reader.fixed()? != [VERSION, 0, 0, 0] {
            return None;
        }
        let _checksum = reader.u32()?;
        let mut index = Self { saves: reader.u64()?, ..Self::default() };
        for begin_s in &mut index.begins_s {
            *begin_s = reader.u64()?;
        }
        for slots in &mut index.rings {
            *slots = Slots { first: reader.u64()?, open: reader.u64()?, end: reader.u64()? };
            if slots.first > slots.open || slots.open > slots.end {
                return None;
            }
        }
        reader.0.is_empty().then_some(index)
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

    /// Makes one for the slots that are there, where the index itself is lost. All of their points count as complete.
    #[must_use]
    pub fn rebuilt(found: impl IntoIterator<Item = SlotKey>) -> Self {
        let mut index = Self::default();
        for key in found {
            let Some(slots) = index.rings.get_mut(usize::from(key.ring)) else { continue };
            let Some(end) = key.sequence.checked_add(1) else { continue };
            let first = if slots.end == 0 { key.sequence } else { slots.first.min(key.sequence) };
            let end = slots.end.max(end);
            *slots = Slots { first, open: end, end };
        }
        index
    }

    /// Returns how many times it was saved.
    #[must_use]
    pub fn saves(&self) -> u64 {
        self.saves
    }
}
