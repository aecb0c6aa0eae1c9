//! What every block may hold: the oracle of the simulator.
//!
//! For each block of each space it keeps the versions that were issued and may still be seen: those a running daemon may
//! show, and those that a power cut may bring back. A version tells for each sector which operation wrote it; the bytes
//! of a sector follow from that number and its place, so any byte that a read brings is judged.
//!
//! - A read may show an acknowledged version that none acknowledged later has replaced, or one under way.
//! - A killed daemon changes nothing in that.
//! - After a power cut any version may be there that none made durable has replaced.
//! - What a read has shown stays, until somebody writes or power fails.
//! - What recovery accepted unverified of a single copy, and said so, is whatever its place held: its disk may have put a write of
//!   before elsewhere, and nobody can tell that from a block that tore. The first read decides.
//! - So is what recovery accepted unverified of several copies, and said so, once a disk has damaged what it holds: that copy may be
//!   the accepted one, where the power cut tore the others.

use std::collections::{BTreeMap, BTreeSet};

use dolmen_block_io::Instant;
use dolmen_space::SpaceRange;

pub const BLOCK: usize = 4096;
pub const SECTOR: usize = 512;
pub const SECTORS: usize = BLOCK / SECTOR;

/// Which operation wrote each sector of a block; 0 for zeros.
pub type Version = [u32; SECTORS];

/// In the place of an operation: the sector holds what belongs elsewhere.
const FOREIGN: u32 = u32::MAX;

const KEY: u64 = 0x51d0_c0de_91e1_a55a;
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Crash {
    Kill,
    PowerCut,
}

#[derive(Debug, Clone)]
struct Entry {
    versions: Vec<Version>,
    begun: u64,
    /// `u64::MAX` while it is under way.
    acked: u64,
    /// Whether it took effect for certain.
    certain: bool,
    durable: bool,
    /// A read has shown that something else replaced it.
    hidden: bool,
}

#[derive(Debug, Default, Clone)]
struct Block {
    /// Nothing here: never written, zeros for certain.
    entries: Vec<Entry>,
    in_flight: u16,
    partial: bool,
    begun_count: u32,
    /// Its only copy was on a disk that went away before a flush: it may be unreadable.
    doubt: bool,
    /// When that happened: what began before may have been lost although it was acknowledged later.
    doubted_at: u64,
    /// It was in flight at a power cut: its sectors may be mixed, if recovery says so.
    mixable: bool,
    /// It was in flight at a power cut, or when its only disk went away, and it was said that its only copy was neither old nor new.
    unverified: bool,
    /// The latest of these departures for which that was said.
    excused_at: u64,
}

/// A space as the oracle knows it.
#[derive(Debug)]
pub struct Model {
    pub name: String,
    pub size: u64,
    pub copies: u8,
    pub sector: u64,
    pub thin: bool,
    /// Somebody is deleting it.
    pub leaving: bool,
    /// When it was taken out of the trash last.
    pub restored: Option<Instant>,
    /// Being resized to this.
    pub resizing: Option<u64>,
    blocks: Vec<Block>,
    uid: u64,
}

impl Model {
    /// Whether a block lies in one of these ranges.
    fn is_among(&self, index: usize, ranges: &[SpaceRange]) -> bool {
        let at = (index * BLOCK) as u64;
        ranges.iter().any(|range| {
            range.space.as_str() == self.name && range.at <= at && at < range.at + range.length.0
        })
    }
}

/// An operation that changes blocks, under way.
#[derive(Debug)]
pub struct Op {
    uid: u64,
    token: u64,
    first: usize,
    end: usize,
}

impl Op {
    pub fn stamp(&self) -> u32 {
        u32::try_from(self.token).unwrap()
    }
}

/// A read under way.
#[derive(Debug)]
pub struct Reading {
    uid: u64,
    at: u64,
    seen: Vec<Seen>,
}

/// A block when a read of it began.
#[derive(Debug)]
struct Seen {
    versions: Vec<Version>,
    begun_count: u32,
    in_flight: u16,
    mixable: bool,
    unverified: bool,
}

#[derive(Debug, Default)]
pub struct Oracle {
    clock: u64,
    next_uid: u64,
    pub models: BTreeMap<u64, Model>,
    dirty: BTreeSet<(u64, usize)>,
    /// The worst end of a process since the last recovery that finished.
    crash: Option<Crash>,
    /// Recoveries that were cut short since the last that finished.
    interrupted: bool,
    /// Whether blocks can be torn at all in this world.
    pub tearing: bool,
    /// Whether a disk has damaged what it holds: what a single copy had may be anything then.
    pub damaged: bool,
    /// Whether a disk has damaged a copy of what other disks have too.
    pub copy_damaged: bool,
    pub mixtures: u64,
    pub blocks_checked: u64,
}

/// In which spaces a block that was accepted unverified may hold what a disk made of it.
#[derive(Debug, Clone, Copy)]
struct Damage {
    of_only_copies: bool,
    of_copies: bool,
}

impl Damage {
    fn is_of(self, copies: u8) -> bool {
        if copies == 1 { self.of_only_copies } else { self.of_copies }
    }
}

impl Block {
    /// Whether a running daemon may show the entry.
    fn is_current(&self, entry: &Entry) -> bool {
        let replaced = |other: &Entry| other.certain && other.acked != u64::MAX && other.begun > entry.acked;
        !entry.hidden && !self.entries.iter().any(replaced)
    }

    fn current(&self) -> Vec<Version> {
        if self.entries.is_empty() {
            return vec![[0; SECTORS]];
        }
        // The disk may have come back with any state since the last flush.
        let shown = self.entries.iter().filter(|entry| self.doubt || self.is_current(entry));
        let mut versions: Vec<Version> = shown.flat_map(|entry| entry.versions.iter().copied()).collect();
        versions.sort_unstable();
        versions.dedup();
        versions
    }

    /// Forgets what no power cut can bring back.
    fn prune(&mut self) {
        let durable: u64 =
            self.entries.iter().filter(|e| e.durable && e.certain).map(|e| e.begun).max().unwrap_or(0);
        self.entries.retain(|entry| entry.acked >= durable || entry.begun >= durable);
    }

    fn open(&mut self, versions: Vec<Version>, token: u64) {
        if self.entries.is_empty() {
            let base = Entry {
                versions: vec![[0; SECTORS]],
                begun: 0,
                acked: 0,
                certain: true,
                durable: true,
                hidden: false,
            };
            self.entries.push(base);
        }
        let entry =
            Entry { versions, begun: token, acked: u64::MAX, certain: true, durable: false, hidden: false };
        self.entries.push(entry);
        self.in_flight += 1;
        self.begun_count += 1;
    }

    /// A read showed `version` while nobody was writing.
    fn collapse(&mut self, version: Version) {
        let Some(shown) =
            self.entries.iter().position(|entry| self.is_current(entry) && entry.versions.contains(&version))
        else {
            return;
        };
        let current: Vec<bool> = self.entries.iter().map(|entry| self.is_current(entry)).collect();
        for (index, entry) in self.entries.iter_mut().enumerate() {
            if index == shown {
                entry.versions = vec![version];
                entry.certain = true;
            } else if current[index] {
                entry.hidden = true;
            }
        }
        self.mixable = false;
        self.unverified = false;
    }
}

impl Oracle {
    /// An oracle of no spaces; `tearing` tells whether any disk can tear a block.
    pub fn new(tearing: bool) -> Self {
        Self { tearing, ..Self::default() }
    }

    fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    pub fn add(&mut self, name: &str, size: u64, copies: u8, sector: u64, thin: bool) -> u64 {
        self.next_uid += 1;
        let blocks = vec![Block::default(); usize::try_from(size).unwrap() / BLOCK];
        let (name, uid) = (name.to_owned(), self.next_uid);
        let model = Model {
            name,
            size,
            copies,
            sector,
            thin,
            leaving: false,
            restored: None,
            resizing: None,
            blocks,
            uid,
        };
        self.models.insert(uid, model);
        uid
    }

    pub fn remove(&mut self, uid: u64) {
        self.models.remove(&uid);
        self.dirty.retain(|(other, _)| *other != uid);
    }

    /// The space grew or shrank; what was behind its end may only be zeros by now, or what a power cut brings back.
    pub fn resized(&mut self, uid: u64, size: u64) {
        let Some(model) = self.models.get_mut(&uid) else { return };
        model.size = size;
        model.resizing = None;
        let count = usize::try_from(size).unwrap() / BLOCK;
        if model.blocks.len() < count {
            model.blocks.resize(count, Block::default());
        }
    }

    /// A space is to end earlier: nobody changes or reads what is behind that any more. Whether that can be done now.
    pub fn shrink_begins(&mut self, uid: u64, size: u64) -> bool {
        let free = |model: &&mut Model| model.resizing.is_none() && !model.leaving && size < model.size;
        let Some(model) = self.models.get_mut(&uid).filter(free) else { return false };
        model.resizing = Some(model.size);
        model.size = size;
        true
    }

    /// Whether a change is under way behind this byte.
    pub fn is_busy_after(&self, uid: u64, at: u64) -> bool {
        let first = usize::try_from(at).unwrap() / BLOCK;
        self.models
            .get(&uid)
            .is_some_and(|model| model.blocks[first..].iter().any(|block| block.in_flight > 0))
    }

    /// Whether a change of this range may begin now: changes of parts of a block are not raced with others, because then
    /// too many mixtures would be right.
    pub fn may_begin(&self, uid: u64, at: u64, length: u64) -> bool {
        let Some(model) = self.models.get(&uid) else { return false };
        let (first, end) = blocks_of(at, length);
        if at + length > model.size {
            return false;
        }
        (first..end).all(|index| {
            let block = &model.blocks[index];
            block.in_flight == 0 || (!block.partial && covers(at, length, index))
        })
    }

    /// Begins a write of the range; sectors take the operation's stamp, or become zeros.
    pub fn begin(&mut self, uid: u64, at: u64, length: u64, zeros: bool) -> Op {
        let token = self.tick();
        let stamp = if zeros { 0 } else { u32::try_from(token).unwrap() };
        let (first, end) = blocks_of(at, length);
        self.change(uid, token, (first, end), |index, version| {
            for (sector, place) in version.iter_mut().enumerate() {
                let byte = (index * BLOCK + sector * SECTOR) as u64;
                if byte >= at && byte < at + length {
                    *place = stamp;
                }
            }
        });
        let model = self.models.get_mut(&uid).unwrap();
        for index in first..end {
            model.blocks[index].partial |= !covers(at, length, index);
        }
        Op { uid, token, first, end }
    }

    fn change(
        &mut self,
        uid: u64,
        token: u64,
        (first, end): (usize, usize),
        apply: impl Fn(usize, &mut Version),
    ) {
        let model = self.models.get_mut(&uid).unwrap();
        for index in first..end {
            let block = &mut model.blocks[index];
            let mut versions = block.current();
            versions.iter_mut().for_each(|version| apply(index, version));
            versions.sort_unstable();
            versions.dedup();
            block.open(versions, token);
            self.dirty.insert((uid, index));
        }
    }

    /// The operation was acknowledged.
    pub fn done(&mut self, op: &Op, durable: bool) {
        let now = self.tick();
        self.finish(op, |block, entry| {
            let entry = &mut block.entries[entry];
            entry.acked = now;
            let sure = entry.begun > block.doubted_at;
            entry.durable = durable && sure;
            block.doubt &= !sure;
            // A part of the block leaves the others as they were.
            block.mixable &= block.partial;
            block.unverified &= block.partial;
        });
    }

    /// The operation failed: each of its blocks is old or new.
    pub fn failed(&mut self, op: &Op) {
        let now = self.tick();
        self.finish(op, |block, entry| {
            let entry = &mut block.entries[entry];
            entry.acked = now;
            entry.certain = false;
        });
    }

    fn finish(&mut self, op: &Op, action: impl Fn(&mut Block, usize)) {
        let Some(model) = self.models.get_mut(&op.uid) else { return };
        for block in &mut model.blocks[op.first..op.end] {
            let Some(entry) = block.entries.iter().position(|entry| entry.begun == op.token) else {
                continue;
            };
            action(block, entry);
            block.in_flight -= 1;
            block.partial &= block.in_flight > 0;
            block.prune();
        }
    }

    /// A flush begins; everything acknowledged before this moment will be durable when it is done.
    pub fn flush_begins(&mut self) -> u64 {
        self.tick()
    }

    /// A flush is done, of one space or of all, but for ranges that wait for disks.
    pub fn flushed(&mut self, began: u64, name: Option<&str>, waiting: &[SpaceRange]) {
        let mut clean = Vec::new();
        for (uid, index) in &self.dirty {
            let Some(model) = self.models.get_mut(uid) else { continue };
            if name.is_some_and(|name| name != model.name) {
                continue;
            }
            if model.is_among(*index, waiting) {
                continue;
            }
            let block = &mut model.blocks[*index];
            if block.doubt {
                continue;
            }
            for entry in block.entries.iter_mut().filter(|entry| entry.acked <= began && entry.certain) {
                entry.durable = true;
            }
            block.prune();
            if block.entries.iter().all(|entry| entry.durable) {
                clean.push((*uid, *index));
            }
        }
        clean.iter().for_each(|place| {
            self.dirty.remove(place);
        });
    }

    /// A disk went away, with its cache: unflushed blocks of spaces with no more copies than this may have been on it alone.
    pub fn disk_lost(&mut self, copies_max: u8) {
        let now = self.tick();
        for (uid, index) in &self.dirty {
            let Some(model) = self.models.get_mut(uid).filter(|model| model.copies <= copies_max) else {
                continue;
            };
            model.blocks[*index].doubt = true;
            model.blocks[*index].doubted_at = now;
        }
    }

    /// A flush of a space failed because what was written is on disks that left, or is not there any more: whoever is told so expects
    /// nothing of what no flush had covered, where the space has no more copies than this.
    pub fn unflushed(&mut self, name: &str, copies_max: u8) {
        let now = self.tick();
        for (uid, index) in &self.dirty {
            let Some(model) = self.models.get_mut(uid) else { continue };
            if model.name == name && model.copies <= copies_max {
                model.blocks[*index].doubt = true;
                model.blocks[*index].doubted_at = now;
            }
        }
    }

    /// The process ended.
    pub fn crashed(&mut self, crash: Crash, recovering: bool) {
        let now = self.tick();
        self.interrupted |= recovering;
        self.crash = self.crash.max(Some(crash));
        for (uid, index) in &self.dirty {
            let Some(model) = self.models.get_mut(uid) else { continue };
            let block = &mut model.blocks[*index];
            block.in_flight = 0;
            block.partial = false;
            for entry in block.entries.iter_mut().filter(|entry| entry.acked == u64::MAX) {
                entry.acked = now;
                entry.certain = false;
            }
        }
    }

    /// Recovery may leave blocks in doubt: what is accepted unverified of them is told later, in the life that decides.
    pub fn decides_later(&mut self) {
        self.interrupted = true;
    }

    /// Recovery has finished: what it decided stays decided. `taken` names what it accepted unverified, `waiting` what it could not
    /// decide because disks are away.
    pub fn recovered(&mut self, taken: &[SpaceRange], waiting: &[SpaceRange]) {
        let now = self.tick();
        self.reported(taken);
        let Some(crash) = self.crash.take() else { return };
        let damage = self.damage();
        for (uid, index) in std::mem::take(&mut self.dirty) {
            let Some(model) = self.models.get_mut(&uid) else { continue };
            let listed = model.is_among(index, taken);
            if model.is_among(index, waiting) {
                if crash == Crash::PowerCut {
                    model.blocks[index].doubt = true;
                    model.blocks[index].doubted_at = now;
                }
                self.dirty.insert((uid, index));
                continue;
            }
            let block = &mut model.blocks[index];
            let mut versions = match crash {
                Crash::Kill if !block.doubt => block.current(),
                Crash::Kill | Crash::PowerCut => {
                    block.entries.iter().flat_map(|entry| entry.versions.iter().copied()).collect()
                }
            };
            versions.sort_unstable();
            versions.dedup();
            // A mixture of before stays one until the block is written.
            block.unverified |= crash == Crash::PowerCut && listed && damage.is_of(model.copies);
            block.mixable |= crash == Crash::PowerCut
                && self.tearing
                && versions.len() > 1
                && (listed || self.interrupted);
            block.entries =
                vec![Entry { versions, begun: now, acked: now, certain: true, durable: true, hidden: false }];
        }
        self.interrupted = false;
    }

    /// The daemon has said that it accepted these ranges unverified: of blocks that were on a disk that went away, once for each
    /// time that it did.
    pub fn reported(&mut self, taken: &[SpaceRange]) {
        let damage = self.damage();
        for model in self.models.values_mut().filter(|model| damage.is_of(model.copies)) {
            for index in 0..model.blocks.len() {
                let Block { doubt, doubted_at, excused_at, .. } = model.blocks[index];
                if doubt && doubted_at > excused_at && model.is_among(index, taken) {
                    model.blocks[index].excused_at = doubted_at;
                    model.blocks[index].unverified = true;
                }
            }
        }
    }

    fn damage(&self) -> Damage {
        Damage { of_only_copies: self.tearing && self.damaged, of_copies: self.tearing && self.copy_damaged }
    }

    pub fn read_begins(&self, uid: u64, at: u64, length: u64) -> Option<Reading> {
        let model = self.models.get(&uid)?;
        let (first, end) = blocks_of(at, length);
        let seen = model.blocks[first..end]
            .iter()
            .map(|block| Seen {
                versions: block.current(),
                begun_count: block.begun_count,
                in_flight: block.in_flight,
                mixable: block.mixable,
                unverified: block.unverified,
            })
            .collect();
        Some(Reading { uid, at, seen })
    }

    /// Whether a read of this range may fail: its only copy is, or was, out of reach.
    pub fn may_be_unreadable(&self, uid: u64, at: u64, length: u64) -> bool {
        let Some(model) = self.models.get(&uid) else { return true };
        let (first, end) = blocks_of(at, length);
        model.blocks[first..end].iter().any(|block| block.doubt)
    }

    /// What is known of a range, for messages.
    pub fn describe(&self, uid: u64, at: u64, length: u64) -> String {
        let Some(model) = self.models.get(&uid) else { return "the space is gone".to_owned() };
        let (first, end) = blocks_of(at, length);
        let blocks: Vec<String> =
            (first..end.min(first + 4)).map(|index| format!("{index}: {:?}", model.blocks[index])).collect();
        format!("{} with {} copies has {}", model.name, model.copies, blocks.join("; "))
    }

    /// Judges what a read brought.
    pub fn read_ends(&mut self, reading: &Reading, bytes: &[u8]) -> Result<(), String> {
        let Some(model) = self.models.get_mut(&reading.uid) else { return Ok(()) };
        let (first, end) = blocks_of(reading.at, bytes.len() as u64);
        for (index, seen) in (first..end).zip(&reading.seen) {
            let start = (index * BLOCK) as u64;
            let from = start.max(reading.at);
            let to = (start + BLOCK as u64).min(reading.at + bytes.len() as u64);
            let part = &bytes
                [usize::try_from(from - reading.at).unwrap()..usize::try_from(to - reading.at).unwrap()];
            let skip = usize::try_from(from - start).unwrap() / SECTOR;
            let block = &mut model.blocks[index];
            let unverified = block.unverified || seen.unverified;
            let mut allowed = block.current();
            allowed.extend_from_slice(&seen.versions);
            let mut found = Vec::with_capacity(SECTORS);
            for (number, sector) in part.chunks(SECTOR).enumerate() {
                let place = from / SECTOR as u64 + number as u64;
                let is_foreign =
                    || unverified || allowed.iter().any(|version| version[skip + number] == FOREIGN);
                let stamp = decode(model.uid, place, sector).or_else(|| is_foreign().then_some(FOREIGN));
                found.push(stamp.ok_or_else(|| {
                    format!("sector {place} of {} holds what nobody wrote there", model.name)
                })?);
            }
            self.blocks_checked += 1;
            let begun = block.begun_count - seen.begun_count;
            if begun > 1 {
                continue;
            }
            let fits = |version: &Version| version[skip..skip + found.len()] == found[..];
            let whole = found.len() == SECTORS;
            let quiet = begun == 0 && block.in_flight == 0 && seen.in_flight == 0;
            if !allowed.iter().any(fits) {
                let mixed = (block.mixable
                    || seen.mixable
                    || (block.doubted_at > 0 && self.tearing)
                    || (block.doubt && self.tearing))
                    && (0..found.len())
                        .all(|at| allowed.iter().any(|version| version[skip + at] == found[at]));
                if !mixed && !unverified {
                    return Err(format!(
                        "block {index} of {} shows {found:?} from sector {skip} on, allowed is {allowed:?}; it has {block:?}",
                        model.name
                    ));
                }
                self.mixtures += 1;
                if whole && quiet {
                    let version: Version = found.clone().try_into().unwrap();
                    block.entries[0].versions.push(version);
                }
            }
            if whole && quiet {
                block.collapse(found.try_into().unwrap());
            }
        }
        Ok(())
    }
}

fn covers(at: u64, length: u64, index: usize) -> bool {
    let start = (index * BLOCK) as u64;
    at <= start && start + BLOCK as u64 <= at + length
}

pub fn blocks_of(at: u64, length: u64) -> (usize, usize) {
    let first = usize::try_from(at).unwrap() / BLOCK;
    (first, usize::try_from(at + length).unwrap().div_ceil(BLOCK))
}

/// The bytes of sectors that an operation writes from byte `at` of a space on.
pub fn fill(uid: u64, at: u64, stamp: u32, into: &mut [u8]) {
    for (number, sector) in into.chunks_mut(SECTOR).enumerate() {
        let head = head_of(uid, at / SECTOR as u64 + number as u64, stamp);
        for (word, place) in (0u64..).zip(sector.chunks_exact_mut(8)) {
            place.copy_from_slice(&head.wrapping_add(word.wrapping_mul(STEP)).to_le_bytes());
        }
    }
}

fn head_of(uid: u64, place: u64, stamp: u32) -> u64 {
    (u64::from(stamp) << 32 | (uid & 0xff) << 24 | place & 0xff_ffff) ^ KEY
}

/// The stamp of a sector, if it holds what belongs at its place.
fn decode(uid: u64, place: u64, sector: &[u8]) -> Option<u32> {
    if sector.iter().all(|byte| *byte == 0) {
        return Some(0);
    }
    let head = u64::from_le_bytes(sector.first_chunk().copied()?);
    let stamp = u32::try_from((head ^ KEY) >> 32).ok()?;
    let right = head == head_of(uid, place, stamp)
        && (0u64..)
            .zip(sector.chunks_exact(8))
            .all(|(word, found)| found == head.wrapping_add(word.wrapping_mul(STEP)).to_le_bytes());
    right.then_some(stamp)
}

#[cfg(test)]
mod tests {
    use dolmen_units::Bytes;

    use super::*;

    fn oracle() -> (Oracle, u64) {
        let mut oracle = Oracle::new(true);
        let uid = oracle.add("a", 1 << 20, 2, 512, true);
        (oracle, uid)
    }

    fn write(oracle: &mut Oracle, uid: u64, durable: bool) -> (u32, Vec<u8>) {
        let op = oracle.begin(uid, 0, BLOCK as u64, false);
        let mut bytes = vec![0; BLOCK];
        fill(uid, 0, op.stamp(), &mut bytes);
        oracle.done(&op, durable);
        (op.stamp(), bytes)
    }

    fn shows(oracle: &mut Oracle, uid: u64, bytes: &[u8]) -> bool {
        let reading = oracle.read_begins(uid, 0, bytes.len() as u64).unwrap();
        oracle.read_ends(&reading, bytes).is_ok()
    }

    #[test]
    fn a_replaced_version_is_wrong_until_power_fails_before_a_flush() {
        let (mut oracle, uid) = oracle();
        let (_, one) = write(&mut oracle, uid, true);
        let (_, two) = write(&mut oracle, uid, false);
        assert!(!shows(&mut oracle, uid, &one));
        oracle.crashed(Crash::Kill, false);
        oracle.recovered(&[], &[]);
        assert!(!shows(&mut oracle, uid, &one) && shows(&mut oracle, uid, &two));
        let (_, three) = write(&mut oracle, uid, false);
        oracle.crashed(Crash::PowerCut, false);
        oracle.recovered(&[], &[]);
        assert!(!shows(&mut oracle, uid, &one) && shows(&mut oracle, uid, &two));
        assert!(!shows(&mut oracle, uid, &three), "what was read stays");
    }

    fn first_block() -> SpaceRange {
        SpaceRange { space: "a".parse().unwrap(), at: 0, length: Bytes(BLOCK as u64) }
    }

    #[test]
    fn what_waits_for_a_disk_is_flushed_and_decided_with_it_and_not_before() {
        let (mut oracle, uid) = oracle();
        let (_, one) = write(&mut oracle, uid, true);
        let (_, two) = write(&mut oracle, uid, false);
        oracle.crashed(Crash::Kill, false);
        oracle.recovered(&[], &[first_block()]);
        assert!(!shows(&mut oracle, uid, &one), "the disk that is away may not say what was replaced");
        let began = oracle.flush_begins();
        oracle.flushed(began, None, &[first_block()]);
        oracle.crashed(Crash::PowerCut, false);
        oracle.recovered(&[], &[first_block()]);
        oracle.crashed(Crash::Kill, false);
        oracle.recovered(&[], &[]);
        assert!(shows(&mut oracle, uid, &one) && !shows(&mut oracle, uid, &two), "what was read stays");
    }

    #[test]
    fn a_flush_covers_what_was_acknowledged_before_it() {
        let (mut oracle, uid) = oracle();
        let (_, one) = write(&mut oracle, uid, false);
        let began = oracle.flush_begins();
        let (_, two) = write(&mut oracle, uid, false);
        oracle.flushed(began, None, &[]);
        oracle.crashed(Crash::PowerCut, false);
        oracle.recovered(&[], &[]);
        let zeros = vec![0; BLOCK];
        assert!(!shows(&mut oracle, uid, &zeros));
        assert!(shows(&mut oracle, uid, &one) && !shows(&mut oracle, uid, &two));
    }

    #[test]
    fn a_mixture_is_right_only_where_recovery_accepted_the_block_unverified() {
        let first = [first_block()];
        for listed in [false, true] {
            let (mut oracle, uid) = oracle();
            let (_, one) = write(&mut oracle, uid, true);
            let (_, two) = write(&mut oracle, uid, false);
            oracle.crashed(Crash::PowerCut, false);
            oracle.recovered(if listed { &first } else { &[] }, &[]);
            let mixed = [&one[..512], &two[512..]].concat();
            assert_eq!(shows(&mut oracle, uid, &mixed), listed);
            assert_eq!(shows(&mut oracle, uid, &two), !listed, "what was read stays");
        }
    }

    #[test]
    fn a_single_copy_accepted_unverified_is_whatever_its_place_held() {
        let first = [first_block()];
        for (copies, listed, damaged) in
            [(1, true, true), (1, false, true), (2, true, true), (1, true, false)]
        {
            let mut oracle = Oracle { damaged, ..Oracle::new(true) };
            let uid = oracle.add("a", 1 << 20, copies, 512, true);
            let (_, one) = write(&mut oracle, uid, true);
            write(&mut oracle, uid, true);
            let (_, three) = write(&mut oracle, uid, false);
            oracle.crashed(Crash::PowerCut, false);
            oracle.recovered(if listed { &first } else { &[] }, &[]);
            let may_be = copies == 1 && listed && damaged;
            let mut foreign = vec![0; BLOCK];
            fill(uid, 1 << 19, 1, &mut foreign);
            let before = oracle.models[&uid].blocks[0].clone();
            for held in [one, vec![0; BLOCK], foreign] {
                oracle.models.get_mut(&uid).unwrap().blocks[0] = before.clone();
                assert_eq!(shows(&mut oracle, uid, &held), may_be);
                assert_eq!(shows(&mut oracle, uid, &three), !may_be, "what was read stays");
                assert_eq!(shows(&mut oracle, uid, &held), may_be, "what was read stays");
            }
        }
    }

    #[test]
    fn a_copy_accepted_unverified_where_the_others_tore_may_be_the_damaged_one() {
        let first = [first_block()];
        for (copies, listed, copy_damaged) in
            [(2, true, true), (3, true, true), (2, false, true), (2, true, false), (1, true, true)]
        {
            let mut oracle = Oracle { copy_damaged, ..Oracle::new(true) };
            let uid = oracle.add("a", 1 << 20, copies, 512, true);
            write(&mut oracle, uid, true);
            let (_, mut rotten) = write(&mut oracle, uid, false);
            rotten[3 * SECTOR + 277] ^= 0x20;
            oracle.crashed(Crash::PowerCut, false);
            oracle.recovered(if listed { &first } else { &[] }, &[]);
            let may_be = copies > 1 && listed && copy_damaged;
            assert_eq!(shows(&mut oracle, uid, &rotten), may_be, "{copies}, {listed}, {copy_damaged}");
            let (_, after) = write(&mut oracle, uid, true);
            assert!(!shows(&mut oracle, uid, &rotten), "a write ends what was accepted unverified");
            assert!(shows(&mut oracle, uid, &after));
        }
    }

    #[test]
    fn what_an_opening_says_of_a_disk_that_was_away_excuses_a_block() {
        for crash in [None, Some(Crash::Kill)] {
            let mut oracle = Oracle { damaged: true, ..Oracle::new(true) };
            let uid = oracle.add("a", 1 << 20, 1, 512, true);
            write(&mut oracle, uid, true);
            write(&mut oracle, uid, false);
            oracle.disk_lost(1);
            crash.into_iter().for_each(|crash| oracle.crashed(crash, false));
            let before = oracle.models[&uid].blocks[0].clone();
            let mut foreign = vec![0; BLOCK];
            fill(uid, 1 << 19, 1, &mut foreign);
            for (taken, is_excused) in [(&[][..], false), (&[first_block()], true)] {
                oracle.crash = crash;
                oracle.models.get_mut(&uid).unwrap().blocks[0] = before.clone();
                oracle.recovered(taken, &[]);
                assert_eq!(shows(&mut oracle, uid, &foreign), is_excused, "behind {crash:?}");
            }
        }
    }

    #[test]
    fn a_report_about_an_absent_disk_excuses_a_block_once() {
        let mut oracle = Oracle { damaged: true, ..Oracle::new(true) };
        let uid = oracle.add("a", 1 << 20, 1, 512, true);
        write(&mut oracle, uid, true);
        write(&mut oracle, uid, false);
        let mut foreign = vec![0; BLOCK];
        fill(uid, 1 << 19, 1, &mut foreign);
        oracle.reported(&[first_block()]);
        assert!(!shows(&mut oracle, uid, &foreign), "no disk was away");
        oracle.disk_lost(1);
        assert!(!shows(&mut oracle, uid, &foreign), "nothing was said");
        oracle.reported(&[first_block()]);
        assert!(shows(&mut oracle, uid, &foreign));
        let (_, three) = write(&mut oracle, uid, true);
        oracle.reported(&[first_block()]);
        assert!(!shows(&mut oracle, uid, &foreign) && shows(&mut oracle, uid, &three));
    }

    #[test]
    fn a_sector_from_elsewhere_or_with_a_flipped_bit_is_garbage() {
        let (mut oracle, uid) = oracle();
        let (_, mut one) = write(&mut oracle, uid, true);
        one[700] ^= 1;
        assert!(!shows(&mut oracle, uid, &one));
        fill(uid, 512, 1, &mut one);
        assert!(!shows(&mut oracle, uid, &one));
    }
}
