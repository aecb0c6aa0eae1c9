//! A slot: points of one resolution in at most 3,072 bytes, with a checksum.
//!
//! | from | bytes | what |
//! |---:|---:|---|
//! | 0 | 1 | version, 1: a slot of another version is none |
//! | 1 | 1 | ring: a slot in a wrong place is none |
//! | 2 | 2 | zero |
//! | 4 | 4 | CRC-32C of the slot with zeros here: damage, and a slot that was cut short |
//! | 8 | 8 | sequence number: an older slot of the same place is none |
//! | 16 | 8 | seconds since 1970 at which its first point begins, a multiple of those of a point |
//! | 24 | | points |
//!
//! A point begins with the steps since the point before, zigzag. The number of its object follows, counted from 1 in the order in
//! which the slot names them; 0 names another object, a kind of 1 byte and a number of 8.

use std::collections::BTreeMap;

use dolmen_checksum::crc32c;

use crate::codec::{Reader, Room, put, put_object, put_point};
use crate::index::SlotKey;
use crate::level::Level;
use crate::point::{Object, Point};

/// Length of a slot, at most: a value of the map of a pool.
pub const SLOT_BYTES_MAX: usize = 3072;
const VERSION: u8 = 1;
const HEAD_BYTES: usize = 24;

/// A point with its time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Seconds since 1970 at which it begins.
    pub at_s: u64,
    /// What it is about.
    pub object: Object,
    /// The point.
    pub point: Point,
}

/// A slot that is being filled.
#[derive(Debug, Clone, Default)]
pub(crate) struct SlotWriter {
    body: Vec<u8>,
    begin_s: u64,
    last_s: u64,
    objects: BTreeMap<Object, (u64, Room)>,
}

impl SlotWriter {
    pub(crate) fn is_empty(&self) -> bool {
        self.body.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        HEAD_BYTES + self.body.len()
    }

    /// Adds a point; whether it has room. An empty slot takes every point, without latencies if need be.
    pub(crate) fn push(&mut self, level: Level, at_s: u64, object: Object, point: &Point) -> bool {
        if self.body.is_empty() {
            (self.begin_s, self.last_s) = (at_s, at_s);
        }
        let mut bytes = Vec::new();
        put(&mut bytes, zigzag(at_s, self.last_s, level.step_s()));
        let known = self.objects.get(&object).copied();
        match known {
            Some((number, _)) => put(&mut bytes, number),
            None => {
                put(&mut bytes, 0);
                put_object(&mut bytes, object);
            }
        }
        let before = known.map(|(_, room)| room).unwrap_or_default();
        let head = bytes.len();
        put_point(&mut bytes, point, before);
        if self.len() + bytes.len() > SLOT_BYTES_MAX {
            if !self.body.is_empty() {
                return false;
            }
            bytes.truncate(head);
            put_point(&mut bytes, &point.without_latencies(), before);
        }
        let number = known.map_or(self.objects.len() as u64 + 1, |(number, _)| number);
        self.objects.insert(object, (number, Room::after(point)));
        self.body.extend(bytes);
        self.last_s = at_s;
        true
    }

    /// Returns the slot.
    pub(crate) fn finish(&self, key: SlotKey) -> Vec<u8> {
        let mut slot = vec![VERSION, key.ring, 0, 0, 0, 0, 0, 0];
        slot.extend(key.sequence.to_le_bytes());
        slot.extend(self.begin_s.to_le_bytes());
        slot.extend(&self.body);
        seal(&mut slot);
        slot
    }
}

/// Puts the checksum into bytes 4 to 8.
pub(crate) fn seal(bytes: &mut [u8]) {
    let sum = crc32c(bytes).to_le_bytes();
    bytes.iter_mut().skip(4).zip(sum).for_each(|(to, from)| *to = from);
}

/// Whether bytes 4 to 8 are the checksum of the others.
pub(crate) fn is_sealed(bytes: &[u8]) -> bool {
    let Some(found) = bytes.get(4..8).and_then(|sum| sum.try_into().ok()).map(u32::from_le_bytes) else {
        return false;
    };
    let mut bare = bytes.to_vec();
    bare.iter_mut().skip(4).take(4).for_each(|byte| *byte = 0);
    crc32c(&bare) == found
}

fn zigzag(at_s: u64, last_s: u64, step_s: u64) -> u64 {
    if at_s >= last_s { (at_s - last_s) / step_s * 2 } else { (last_s - at_s) / step_s * 2 - 1 }
}

fn unzigzag(number: u64, last_s: u64, step_s: u64) -> Option<u64> {
    let steps = number.div_ceil(2).checked_mul(step_s)?;
    if number.is_multiple_of(2) { last_s.checked_add(steps) } else { last_s.checked_sub(steps) }
}

fn head(slot: &[u8], key: SlotKey) -> Option<(u64, Reader<'_>)> {
    let mut reader = Reader(slot);
    let is_known = reader.byte()? == VERSION && reader.byte()? == key.ring && reader.fixed()? == [0, 0];
    let _checksum = reader.u32()?;
    let is_own = reader.u64()? == key.sequence;
    let begin_s = reader.u64()?;
    let is_aligned = key.level().is_some_and(|level| level.begin(begin_s) == begin_s);
    (is_known && is_own && is_aligned && is_sealed(slot)).then_some((begin_s, reader))
}

/// Returns the time at which the first point of a slot begins; `None` of a damaged one.
#[must_use]
pub fn begin_of(slot: &[u8], key: SlotKey) -> Option<u64> {
    head(slot, key).map(|(begin_s, _)| begin_s)
}

/// Returns the points of a slot; `None` of one that is damaged, in a wrong place, or of another version.
#[must_use]
pub fn parse_slot(slot: &[u8], key: SlotKey) -> Option<Vec<Entry>> {
    let level = key.level()?;
    let (begin_s, mut reader) = head(slot, key)?;
    let (mut last_s, mut entries) = (begin_s, Vec::new());
    let mut objects: Vec<(Object, Room)> = Vec::new();
    while !reader.0.is_empty() {
        last_s = unzigzag(reader.number()?, last_s, level.step_s())?;
        let number = usize::try_from(reader.number()?).ok()?;
        let at = match number.checked_sub(1) {
            Some(at) => at,
            None => {
                objects.push((reader.object()?, Room::default()));
                objects.len() - 1
            }
        };
        let (object, room) = objects.get_mut(at)?;
        let point = reader.point(*room)?;
        *room = Room::after(&point);
        entries.push(Entry { at_s: last_s, object: *object, point });
    }
    Some(entries)
}
