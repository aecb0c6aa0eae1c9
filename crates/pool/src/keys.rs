//! Keys of the pool's metadata map. Bytes compare as the tuples do, so a prefix is a range.

use std::ops::Range;

use dolmen_store::Key;
use dolmen_units::{DiskSlot, RowId, SpaceId};

/// What a key is about; the first byte of every key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Kind {
    /// Numbers that are given once: next space, next row.
    Counter = 1,
    /// A run of free allocation units.
    Free = 2,
    /// Free allocation units of a disk.
    FreeTotal = 3,
    /// A space.
    Space = 4,
    /// A place of a space: which row stands there. Places come before rows, and these before stale keys: a checkpoint that goes
    /// in parts, in the order of keys, never leaves a stale key whose row has no stale slab.
    Place = 5,
    /// A row, by its id.
    Row = 6,
    /// A row with a stale slab on a disk.
    Stale = 7,
    /// An attribute of a space: its type, the space, its number.
    Attribute = 8,
}

/// Kind, then three numbers: {kind u8, zero u8, a u16, zero u32, b u64, c u64}, big-endian so that bytes sort as numbers.
#[must_use]
pub fn key(kind: Kind, a: u16, b: u64, c: u64) -> Key {
    let mut bytes = [0; 24];
    let parts = [kind as u8, 0].into_iter().chain(a.to_be_bytes()).chain([0; 4]);
    let parts = parts.chain(b.to_be_bytes()).chain(c.to_be_bytes());
    for (to, from) in bytes.iter_mut().zip(parts) {
        *to = from;
    }
    Key(bytes)
}

/// The three numbers of a key.
#[must_use]
pub fn parts(key: &Key) -> (u16, u64, u64) {
    let number = |range: Range<usize>| {
        key.0.get(range).unwrap_or_default().iter().fold(0u64, |value, byte| value << 8 | u64::from(*byte))
    };
    (u16::try_from(number(2..4)).unwrap_or(0), number(8..16), number(16..24))
}

/// All keys of a kind.
#[must_use]
pub fn all(kind: Kind) -> Range<Key> {
    let mut end = [0; 24];
    if let Some(first) = end.first_mut() {
        *first = kind as u8 + 1;
    }
    key(kind, 0, 0, 0)..Key(end)
}

/// A run of free allocation units.
#[must_use]
pub fn free(slot: DiskSlot, first: u64) -> Key {
    key(Kind::Free, slot.0, first, 0)
}

/// All free runs of a disk from `first` on.
#[must_use]
pub fn free_from(slot: DiskSlot, first: u64) -> Range<Key> {
    free(slot, first)..key(Kind::Free, slot.0, u64::MAX, u64::MAX)
}

/// Free allocation units of a disk.
#[must_use]
pub fn free_total(slot: DiskSlot) -> Key {
    key(Kind::FreeTotal, slot.0, 0, 0)
}

/// A counter.
#[must_use]
pub fn counter(which: u64) -> Key {
    key(Kind::Counter, 0, which, 0)
}

/// How many rows a space has.
#[must_use]
pub fn row_count(id: SpaceId) -> Key {
    key(Kind::Counter, 1, id.0, 0)
}

/// A setting of a write cache.
#[must_use]
pub fn setting(cache: SpaceId, which: u64) -> Key {
    key(Kind::Counter, 2, cache.0, which)
}

/// A setting of the pool itself: no space has number 0.
#[must_use]
pub fn pool_setting(which: u64) -> Key {
    setting(SpaceId(0), which)
}

/// A setting of a member, by its slot.
#[must_use]
pub fn member_setting(slot: DiskSlot, which: u64) -> Key {
    key(Kind::Counter, 3, slot.0.into(), which)
}

/// The number of the setting of a member whose device has grown: the allocation units that its free runs and slabs make up.
pub(crate) const UNITS: u64 = 3;

/// What is on record of a member beside its room.
#[must_use]
pub fn of_member(slot: DiskSlot) -> [Key; 3] {
    [member_setting(slot, 1), member_setting(slot, 2), member_setting(slot, UNITS)]
}

/// All settings of members.
#[must_use]
pub fn member_settings() -> Range<Key> {
    key(Kind::Counter, 3, 0, 0)..key(Kind::Counter, 4, 0, 0)
}

/// The name of a fault domain.
#[must_use]
pub fn domain_name(number: u32) -> Key {
    key(Kind::Counter, 4, number.into(), 0)
}

/// All names of fault domains.
#[must_use]
pub fn domain_names() -> Range<Key> {
    key(Kind::Counter, 4, 0, 0)..key(Kind::Counter, 5, 0, 0)
}

/// What people note of a disk. The setting comes first: whoever wants one of all disks has a range.
#[must_use]
pub fn disk_setting(which: u64, slot: DiskSlot) -> Key {
    key(Kind::Counter, 5, which, u64::from(slot.0))
}

/// The same of all disks.
#[must_use]
pub fn disk_settings(which: u64) -> Range<Key> {
    disk_setting(which, DiskSlot(0))..key(Kind::Counter, 5, which + 1, 0)
}

/// The index of the history of the pool (docs/design/0040).
#[must_use]
pub fn history_index() -> Key {
    key(Kind::Counter, 6, 0, 0)
}

/// A slot of that history, by its ring and its sequence number.
#[must_use]
pub fn history_slot(ring: u8, sequence: u64) -> Key {
    key(Kind::Counter, 6, u64::from(ring) + 1, sequence)
}

/// All slots of that history.
#[must_use]
pub fn history_slots() -> Range<Key> {
    history_slot(0, 0)..key(Kind::Counter, 7, 0, 0)
}

/// A space.
#[must_use]
pub fn space(id: SpaceId) -> Key {
    key(Kind::Space, 0, id.0, 0)
}

/// A place of a space, by its index.
#[must_use]
pub fn place(space: SpaceId, index: u64) -> Key {
    key(Kind::Place, 0, space.0, index)
}

/// The places of a space in a range of indices.
#[must_use]
pub fn places(space: SpaceId, indices: Range<u64>) -> Range<Key> {
    place(space, indices.start)..place(space, indices.end)
}

/// A row, by its id.
#[must_use]
pub fn row(id: RowId) -> Key {
    key(Kind::Row, 0, id.0, 0)
}

/// All rows from an id on.
#[must_use]
pub fn rows_from(id: RowId) -> Range<Key> {
    row(id)..all(Kind::Row).end
}

/// A row with a stale slab on a disk.
#[must_use]
pub fn stale(slot: DiskSlot, id: RowId) -> Key {
    key(Kind::Stale, slot.0, id.0, 0)
}

/// All rows with a stale slab on a disk.
#[must_use]
pub fn stale_on(slot: DiskSlot) -> Range<Key> {
    key(Kind::Stale, slot.0, 0, 0)..key(Kind::Stale, slot.0, u64::MAX, u64::MAX)
}

/// An attribute of a space.
#[must_use]
pub fn attribute(kind: u16, space: SpaceId, number: u64) -> Key {
    key(Kind::Attribute, kind, space.0, number)
}

/// All attributes of a type that a space may have.
#[must_use]
pub fn attributes_of(kind: u16, space: SpaceId) -> Range<Key> {
    let last = attribute(kind, space, u64::MAX);
    attribute(kind, space, 0)..last.next().unwrap_or(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_sort_as_their_numbers_and_read_back() {
        let a = key(Kind::Place, 0, 1, u64::MAX);
        let b = key(Kind::Place, 0, 2, 0);
        assert!(a < b && b < row(RowId(0)) && row(RowId(u64::MAX)) < stale(DiskSlot(0), RowId(0)));
        assert!(
            rows_from(RowId(3)).contains(&row(RowId(u64::MAX)))
                && !rows_from(RowId(3)).contains(&row(RowId(2)))
        );
        assert_eq!(parts(&key(Kind::Free, 239, 7, 9)), (239, 7, 9));
        assert!(
            !history_slots().contains(&history_index())
                && history_slots().contains(&history_slot(9, u64::MAX))
        );
        assert!(all(Kind::Place).contains(&a) && !all(Kind::Free).contains(&a));
        let of_space = attributes_of(3, SpaceId(7));
        assert!(
            of_space.contains(&attribute(3, SpaceId(7), u64::MAX))
                && stale(DiskSlot(9), RowId(1)) < of_space.start
        );
        assert!(
            ![attribute(3, SpaceId(8), 0), attribute(2, SpaceId(7), 0)]
                .iter()
                .any(|key| of_space.contains(key))
        );
    }
}
