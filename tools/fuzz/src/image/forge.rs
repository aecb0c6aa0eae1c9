//! Forging: structures of an image are found by how they begin, edited on all disks that have them, and sealed again, together with
//! whatever names them by their checksum. And records are added to the log, as an engine would have.

use std::collections::BTreeMap;

use dolmen_pool::keys;
use dolmen_sim::Image;
use dolmen_store::Key;
use dolmen_units::{EpochId, PoolId};

use crate::edits::Edit;
use crate::image::base::Base;
use crate::lab::DISK;
use crate::log::{Head, batch_bytes};
use crate::script::Script;
use crate::seal;

const BLOCK: usize = 4096;
/// Where labels say how long the log is.
const LOG_LENGTH_AT: usize = 184;
/// Where the ring of the log begins.
const RING_AT: u64 = (1 << 20) + 64 * 1024;
/// Entries of a map record that somebody adds, at most.
const EDITS_MAX: u64 = 4;

/// What a structure is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Label,
    Checkpoint,
    Page,
    Batch,
    Table,
    Slab,
}

const KINDS: [(Kind, &[u8]); 6] = [
    (Kind::Label, b"DOLMENLB"),
    (Kind::Checkpoint, b"DOLMENCP"),
    (Kind::Page, b"DOLMENPG"),
    (Kind::Batch, b"DOLMNLOG"),
    (Kind::Table, b"DTAB"),
    (Kind::Slab, b"DOLMENSL"),
];

impl Kind {
    fn seal(self, bytes: &mut [u8]) {
        match self {
            Self::Label => seal::label(bytes),
            Self::Checkpoint => seal::checkpoint(bytes),
            Self::Page => seal::page(bytes),
            Self::Batch => seal::batch(bytes),
            Self::Table => seal::table(bytes),
            Self::Slab => seal::slab(bytes),
        }
    }

    fn length(self, block: &[u8]) -> usize {
        let named = |at| (seal::number(block, at, 4) as usize).clamp(BLOCK, 64 * BLOCK);
        match self {
            Self::Label => named(12),
            Self::Batch => named(80),
            Self::Page => 4 * BLOCK,
            Self::Checkpoint | Self::Table | Self::Slab => BLOCK,
        }
    }

    /// What tells copies of one structure from others of its kind, and which of them is the newest.
    fn name(self, block: &[u8]) -> [u64; 4] {
        let field = |at, length| seal::number(block, at, length);
        match self {
            Self::Label | Self::Checkpoint => [field(56, 8) % 2, 0, 0, 0],
            Self::Page => [field(40, 8), field(48, 8), field(8, 8), 0],
            Self::Batch => [field(56, 8), 0, 0, 0],
            Self::Table => [field(24, 8), field(6, 2), field(40, 4), field(32, 8) % 2],
            Self::Slab => [field(56, 8), field(86, 1), field(24, 8), 0],
        }
    }
}

/// Copies of one structure: disk, and address on it.
#[derive(Debug, Clone)]
pub(crate) struct Structure {
    kind: Kind,
    length: usize,
    copies: Vec<(usize, u64)>,
}

/// An image that is being forged.
pub(crate) struct Forge {
    pub(crate) images: Vec<Image>,
    structures: Vec<Structure>,
    entries: Vec<(Key, Vec<u8>)>,
}

/// All structures on disks.
pub(crate) fn structures_of(images: &[Image]) -> Vec<Structure> {
    let mut found: BTreeMap<(Kind, [u64; 4]), Structure> = BTreeMap::new();
    for (disk, image) in images.iter().enumerate() {
        let mut block = [0; BLOCK];
        for at in (0..DISK.0).step_by(BLOCK) {
            image.read(at, &mut block);
            let Some((kind, _)) = KINDS.iter().find(|(_, magic)| block.starts_with(magic)) else {
                continue;
            };
            let structure = found.entry((*kind, kind.name(&block))).or_insert_with(|| Structure {
                kind: *kind,
                length: kind.length(&block),
                copies: Vec::new(),
            });
            structure.copies.push((disk, at));
        }
    }
    found.into_values().collect()
}

impl Forge {
    /// What is on a base.
    pub(crate) fn new(base: &Base) -> Self {
        let (images, structures) = (base.images.clone(), base.structures.clone());
        Self { images, structures, entries: base.entries.clone() }
    }

    fn read(&self, disk: usize, at: u64, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        self.images[disk].read(at, &mut bytes);
        bytes
    }

    /// Does what the script says, to its end.
    pub(crate) fn forge(&mut self, script: &mut Script<'_>, steps_max: usize) {
        for _ in 0..steps_max {
            if script.is_over() {
                break;
            }
            match script.byte() % 8 {
                0..=3 => self.edit(script),
                4 | 5 => self.append_change(script),
                6 => self.append_blocks(script),
                _ => self.append_any(script),
            }
        }
    }

    /// Edits the copies of one structure, all of them unless the script says otherwise.
    fn edit(&mut self, script: &mut Script<'_>) {
        let kind = KINDS[script.index(KINDS.len())].0;
        let of: Vec<usize> =
            (0..self.structures.len()).filter(|index| self.structures[*index].kind == kind).collect();
        if of.is_empty() {
            return;
        }
        let structure = self.structures[of[script.index(of.len())]].clone();
        let how = script.byte();
        let edits: Vec<Edit> = (0..=how % 3).map(|_| Edit::draw(script, structure.length)).collect();
        let is_sealed = how & 0x30 != 0x30;
        for (number, (disk, at)) in structure.copies.iter().enumerate() {
            let is_spared = how & 0xc0 == 0xc0 && number % 2 == 1;
            if !is_spared {
                let mut bytes = self.read(*disk, *at, structure.length);
                let before = page_name(&bytes);
                edits.iter().for_each(|edit| edit.apply(&mut bytes));
                if is_sealed {
                    kind.seal(&mut bytes);
                }
                self.images[*disk].write(*at, &bytes);
                if kind == Kind::Page && is_sealed {
                    let sum = bytes[8..16].try_into().unwrap();
                    self.rename(*disk, before, sum);
                }
            }
        }
    }

    /// Gives a page of a disk the checksum that it now has wherever it is named, and so on upwards.
    fn rename(&mut self, disk: usize, name: [u8; 24], sum: [u8; 8]) {
        let parents: Vec<Structure> = self
            .structures
            .iter()
            .filter(|of| matches!(of.kind, Kind::Page | Kind::Checkpoint))
            .cloned()
            .collect();
        for parent in parents {
            for (_, at) in parent.copies.iter().filter(|(of, _)| *of == disk) {
                let mut bytes = self.read(disk, *at, parent.length);
                let Some(place) =
                    (64..bytes.len() - 24).step_by(8).find(|place| bytes[*place..place + 24] == name)
                else {
                    continue;
                };
                let own = page_name(&bytes);
                seal::put(&mut bytes, place + 16, &sum);
                parent.kind.seal(&mut bytes);
                self.images[disk].write(*at, &bytes);
                if parent.kind == Kind::Page && own != name {
                    let sum = bytes[8..16].try_into().unwrap();
                    self.rename(disk, own, sum);
                }
            }
        }
    }

    /// The newest batch of a disk's log.
    fn last_batch(&self, disk: usize) -> Option<Vec<u8>> {
        let of = self.structures.iter().filter(|of| of.kind == Kind::Batch);
        let copies = of.flat_map(|of| of.copies.iter().map(|(disk, at)| (*disk, *at, of.length)));
        copies
            .filter(|(of, at, _)| *of == disk && *at >= RING_AT)
            .map(|(_, at, length)| self.read(disk, at, length))
            .max_by_key(|batch| seal::number(batch, 56, 8))
    }

    /// Adds a batch with one record behind the log, on every disk that has one.
    fn append(&mut self, kind: u8, body: &[u8]) {
        for disk in 0..self.images.len() {
            let Some(last) = self.last_batch(disk) else { continue };
            let label = self.read(disk, 64 * 1024, BLOCK);
            let ring = seal::number(&label, LOG_LENGTH_AT, 8).max(1 << 20);
            let field = |at| seal::number(&last, at, 8);
            let mut head = Head {
                pool: PoolId(last[24..40].try_into().unwrap()),
                epoch: EpochId { number: dolmen_units::Epoch(field(40)), nonce: field(48) },
                lsn: field(56).wrapping_add(1),
                position: field(64).wrapping_add(seal::number(&last, 80, 4)),
                address: 0,
                durable_mark: field(88),
                durable_before: field(96),
            };
            let length = (128 + 16 + body.len()).next_multiple_of(BLOCK) as u64;
            let left = ring - head.position % ring;
            head.position = if length > left { head.position.wrapping_add(left) } else { head.position };
            head.address = RING_AT + head.position % ring;
            let bytes = batch_bytes(&head, &[(kind, body.to_vec())]);
            if head.address + bytes.len() as u64 > DISK.0 {
                continue;
            }
            self.images[disk].write(head.address, &bytes);
            self.structures.push(Structure {
                kind: Kind::Batch,
                length: bytes.len(),
                copies: vec![(disk, head.address)],
            });
        }
    }

    /// A change of the map: values that are there, edited, moved to other keys, or taken away.
    fn append_change(&mut self, script: &mut Script<'_>) {
        let mut body = Vec::new();
        for _ in 0..=script.below(EDITS_MAX) {
            let (mut key, mut value) = self.entries[script.index(self.entries.len())].clone();
            let how = script.byte();
            if how & 1 != 0 {
                Edit::draw(script, 24).apply(&mut key.0);
            }
            if how & 2 != 0 {
                value.clone_from(&self.entries[script.index(self.entries.len())].1);
            }
            for _ in 0..how >> 2 & 3 {
                Edit::draw(script, value.len()).apply(&mut value);
            }
            if how & 0x30 == 0x30 {
                value.truncate(script.index(value.len() + 1));
            }
            body.extend(key.0);
            if how & 0xc0 == 0xc0 {
                body.extend(u16::MAX.to_le_bytes());
            } else {
                body.extend((value.len() as u16).to_le_bytes());
                body.extend(value);
            }
        }
        self.append(1, &body);
    }

    /// A change of the map that puts one value.
    #[cfg(test)]
    pub(crate) fn append_value(&mut self, key: &Key, value: &[u8]) {
        let mut body = key.0.to_vec();
        body.extend((value.len() as u16).to_le_bytes());
        body.extend(value);
        self.append(1, &body);
    }

    /// Ids of the rows that places name.
    fn rows(&self) -> Vec<u64> {
        let is_place = |(key, _): &&(Key, Vec<u8>)| key.0[0] == keys::Kind::Place as u8;
        let places = self.entries.iter().filter(is_place);
        places.map(|(_, value)| seal::number(value, 0, 8)).collect()
    }

    /// A record of blocks of rows that are there.
    fn append_blocks(&mut self, script: &mut Script<'_>) {
        let rows = self.rows();
        if rows.is_empty() {
            return;
        }
        let mut body = Vec::new();
        for _ in 0..=script.below(3) {
            let id = rows[script.index(rows.len())];
            let state = script.byte() % 8;
            let count = if script.seldom() { script.edge() as u32 } else { 1 + script.below(6) as u32 };
            let mut head = id.to_le_bytes().to_vec();
            let first = if script.seldom() { script.edge() as u32 } else { script.below(300) as u32 };
            head.extend(first.to_le_bytes());
            head.extend(count.to_le_bytes());
            head.extend([script.byte(), 0, 0, state, script.byte() % 4, script.byte() % 16, 0, 0]);
            if script.seldom() {
                Edit::draw(script, 24).apply(&mut head);
            }
            let tail = tail_bytes(state, count) + if matches!(state, 5 | 6) && head[20] == 1 { 8 } else { 0 };
            let other_row = rows[script.index(rows.len())];
            let mut rest = Vec::new();
            if matches!(state, 3 | 4) {
                rest.extend(other_row.to_le_bytes());
                rest.extend((script.edge() as u32).to_le_bytes());
                rest.extend(script.below(4).to_le_bytes());
            }
            if matches!(state, 5 | 6) && head[20] == 1 {
                rest.extend(other_row.to_le_bytes());
            }
            while rest.len() < tail {
                rest.push(script.byte());
            }
            body.extend(head);
            body.extend(rest);
        }
        self.append(2, &body);
    }

    /// A record of any kind with any content, the log's own lists of holes among them.
    fn append_any(&mut self, script: &mut Script<'_>) {
        let kind = script.byte() % 5;
        let mut body = Vec::new();
        for _ in 0..script.below(8) {
            body.extend(script.edge().to_le_bytes());
        }
        self.append(kind, &body);
    }
}

/// Bytes behind the head of an entry, if that is not too long for a record.
fn tail_bytes(state: u8, count: u32) -> usize {
    let count = count.min(256) as usize;
    match state {
        1 => 4 * count,
        3 => 20 + 4 * count,
        4 => 20,
        5 => 28 * count,
        _ => 0,
    }
}

/// How its parent names a page: number, checkpoint, checksum.
fn page_name(page: &[u8]) -> [u8; 24] {
    let mut name = [0; 24];
    name[..16].copy_from_slice(&page[40..56]);
    name[16..].copy_from_slice(&page[8..16]);
    name
}
