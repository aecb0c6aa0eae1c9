//! Blocks of a pool in which nothing is stored that anybody could need: read off the disks by the documents of the format.
//!
//! It is asked of a pool that was closed: its tables say of every block what it is, and its log names nothing but what lies in
//! write caches.

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::rc::Rc;

use dolmen_checksum::crc64;
use dolmen_space::Spaces;
use dolmen_units::SpaceId;

use super::places::{B, Layout, MIB, PAGE_ENTRIES, Row, rows, tail_of};
use super::{BLOCK, Golden};

/// Bytes of a page of the map, and how many of them a bitmap page tells of.
const PAGE: u64 = 16 << 10;
const BITS: u64 = 130_560;
/// The state of a block that was never written.
const NEVER: u8 = 0;

/// What is where on the disks of a closed pool.
pub struct Stored {
    golden: Golden,
    rows: Vec<Row>,
    /// Whether a disk carries log and map, by number.
    votes: Vec<bool>,
    /// Pages of the map that are in use.
    pages: BTreeSet<u64>,
    /// The address of the newest checkpoint block.
    checkpoint: u64,
    /// Blocks of write caches that hold what counts: row id and block.
    cached: BTreeSet<(u64, u64)>,
    /// Blocks of rows of which a version lives that a flush has covered.
    waiting: BTreeSet<Block>,
}

/// A block of a row, by space, index of the row and block.
type Block = (u64, u64, u64);

/// What the log says of write caches.
#[derive(Default)]
struct Cached {
    /// Versions of blocks by their first records, with row id and block of their places.
    versions: BTreeMap<Block, BTreeMap<u64, Option<(u64, u64)>>>,
    /// Redos, by space, index of the row and block of the column.
    redos: BTreeMap<Block, Redo>,
    /// The newest version of each block that was put in place.
    ended: BTreeMap<Block, u64>,
}

fn number(bytes: &[u8], at: usize, count: usize) -> u64 {
    bytes[at..at + count].iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte))
}

/// A line that is about to be in place: the places in write caches that it needs, and the versions that end with it.
#[derive(Default)]
struct Redo {
    places: Vec<(u64, u64)>,
    ends: Vec<(Block, u64)>,
}

impl Stored {
    /// What stands on disks, with the rows as the engine has them.
    pub async fn of(golden: &Golden, spaces: &Rc<Spaces>) -> Result<Self, Box<dyn Error>> {
        let voters: BTreeSet<_> = spaces.pool().members().voters().into_iter().collect();
        let votes = |number: usize| {
            let disks = spaces.pool().disks();
            disks.iter().any(|disk| usize::from(disk.slot().0) == number && voters.contains(&disk.id()))
        };
        let votes: Vec<bool> = (0..golden.disks.len()).map(votes).collect();
        let mut newest = (0, 0, vec![]);
        for disk in golden.disks.iter().zip(&votes).filter(|(_, votes)| **votes).map(|(disk, _)| disk) {
            for at in [MIB, MIB + B] {
                let mut bytes = vec![0; BLOCK];
                disk.image.read(at, &mut bytes);
                if bytes.starts_with(b"DOLMENCP") && crc64(&bytes[..4088]) == number(&bytes, 4088, 8) {
                    newest = newest.max((number(&bytes, 56, 8), at, bytes));
                }
            }
        }
        let (_, checkpoint, block) = newest;
        let rows = rows(spaces).await?;
        let pages = used_pages(golden, &votes, &block)?;
        let mut cached = Cached::default();
        let voter = votes.iter().position(|votes| *votes).ok_or("nobody votes")?;
        for (lsn, batch) in batches(golden, voter) {
            cached.add_batch(lsn, &batch, &rows);
        }
        let waiting = cached.alive().map(|(block, _)| *block).collect();
        Ok(Self { golden: golden.clone(), rows, votes, pages, checkpoint, waiting, cached: cached.places() })
    }

    /// Whether an address is one of allocation units.
    pub fn is_of_slabs(&self, disk: usize, at: u64) -> bool {
        let Layout { extent, back, .. } = Layout::of(&self.golden, disk);
        (extent.data_start..back).contains(&at)
    }

    /// Why nobody needs a block of a disk; `None` where somebody may.
    pub fn is_unused(&self, disk: usize, at: u64) -> Option<&'static str> {
        let layout = Layout::of(&self.golden, disk);
        let (log, pages) = (MIB + 64 * 1024, MIB + 64 * 1024 + layout.log);
        if at < MIB || at >= layout.back {
            return self.is_unused_label(disk, at, &layout);
        }
        if at >= layout.extent.data_start {
            return self.is_unused_unit(disk, (at - layout.extent.data_start) / B);
        }
        if !self.votes[disk] {
            return Some("no voter");
        }
        if at < log {
            return (at != self.checkpoint).then_some("an older checkpoint");
        }
        if at < pages {
            return (!self.is_needed_batch(disk, at, log)).then_some("no batch that the checkpoint needs");
        }
        (!self.pages.contains(&((at - pages) / PAGE))).then_some("a page of the map that is free")
    }

    /// What stands behind a label in its slot, and a label that another one has taken the place of.
    fn is_unused_label(&self, disk: usize, at: u64, layout: &Layout) -> Option<&'static str> {
        let image = &self.golden.disks[disk].image;
        let slots = [64 * 1024, 128 * 1024, layout.back, layout.back + 64 * 1024];
        let head = |slot: u64| {
            let mut bytes = vec![0; BLOCK];
            image.read(slot, &mut bytes);
            let mut whole = vec![0; number(&bytes, 12, 4).clamp(B, 36 * 1024) as usize];
            image.read(slot, &mut whole);
            let sum = number(&whole, 4088, 8);
            whole[4088..4096].fill(0);
            (crc64(&whole) == sum, number(&bytes, 56, 8), number(&bytes, 12, 4))
        };
        let newest = slots.iter().map(|slot| head(*slot)).filter(|(is_sound, ..)| *is_sound).max();
        let Some(slot) = slots.into_iter().find(|slot| (*slot..slot + 64 * 1024).contains(&at)) else {
            return Some("no slot of a label");
        };
        let (_, sequence, length) = newest?;
        if slots[(sequence % 2) as usize] != slot && slots[(sequence % 2) as usize + 2] != slot {
            return Some("an older label");
        }
        (at >= slot + length).then_some("behind a label")
    }

    /// Whether a block is part of a whole batch from the tail on.
    fn is_needed_batch(&self, disk: usize, at: u64, log: u64) -> bool {
        let image = &self.golden.disks[disk].image;
        let tail = tail_of(&self.golden);
        let longest = 256 * 1024;
        (at.saturating_sub(longest).max(log)..=at).step_by(BLOCK).any(|head| {
            let mut bytes = vec![0; BLOCK];
            image.read(head, &mut bytes);
            let length = number(&bytes, 80, 4);
            let is_there = bytes.starts_with(b"DOLMNLOG") && number(&bytes, 72, 8) == head;
            is_there && number(&bytes, 56, 8) >= tail && at < head + length
        })
    }

    fn is_unused_unit(&self, disk: usize, unit: u64) -> Option<&'static str> {
        for row in &self.rows {
            for slab in row.slabs.iter().filter(|slab| slab.disk == disk) {
                let units = slab.runs.iter().flat_map(|(first, count)| *first..first + count);
                if let Some(block) = units.into_iter().position(|other| other == unit) {
                    let data = row.column_blocks(slab.column);
                    if !row.is_formatted && block as u64 >= data {
                        return Some("the table of a row that has none yet");
                    }
                    if block as u64 > data + 2 * row.pages(slab.column) * (row.parity + 1) {
                        return Some("behind the header of a slab");
                    }
                    if self.state(row, (disk, slab), block as u64) == Some(NEVER) {
                        return Some("a block that was never written");
                    }
                    if block as u64 >= data {
                        return None;
                    }
                    let row_block = row.block_of(slab.column, block as u64) - row.index * row.blocks();
                    let waits = self.waiting.contains(&(row.space.0, row.index, row_block));
                    if row.parity == 0 && waits {
                        return Some("in place of what waits in a write cache");
                    }
                    // A row of a write cache has one column.
                    let is_over = row.is_cache()
                        && (block as u64) < data
                        && !self.cached.contains(&(row.id, block as u64));
                    return is_over
                        .then_some("a block of a write cache whose content is in place, or superseded");
                }
            }
        }
        Some("a free allocation unit")
    }

    /// What the table of a slab says of a block of its column.
    fn state(&self, row: &Row, (disk, slab): (usize, &super::places::Slab), block: u64) -> Option<u8> {
        let layout = Layout::of(&self.golden, disk);
        let data = row.column_blocks(slab.column);
        if block >= data {
            return None;
        }
        let units: Vec<u64> = slab.runs.iter().flat_map(|(first, count)| *first..first + count).collect();
        let mut newest = None;
        for slot in 0..2 {
            let unit = units[(data + 2 * (block / PAGE_ENTRIES) + slot) as usize];
            let mut page = vec![0; BLOCK];
            self.golden.disks[disk].image.read(layout.extent.data_start + unit * B, &mut page);
            let sum = number(&page, 56, 8);
            page[56..64].fill(0);
            if page.starts_with(b"DTAB") && crc64(&page) == sum && number(&page, 24, 8) == row.id {
                let state = page[64 + 8 * (block % PAGE_ENTRIES) as usize + 7];
                newest = newest.max(Some((number(&page, 32, 8), state)));
            }
        }
        newest.map(|(_, state)| state)
    }
}

impl Cached {
    /// Adds the records of a batch.
    fn add_batch(&mut self, lsn: u64, batch: &[u8], rows: &[Row]) {
        let place = |bytes: &[u8]| (number(bytes, 0, 8), number(bytes, 8, 4));
        for (head, owner, bytes) in records_of_blocks(batch).into_iter().flat_map(entries) {
            let of_id = |id: u64| rows.iter().find(|row| row.id == id);
            let (row, owner) = (of_id(number(head, 0, 8)), owner.and_then(of_id));
            let Some((space, index)) = row.or(owner).map(|row| (row.space.0, row.index)) else { continue };
            let (first, count) = (number(head, 8, 4), number(head, 12, 4));
            let (state, is_void) = (head[19], head[21] & 4 != 0);
            match state {
                3 | 4 => {
                    let since = Some(number(bytes, 12, 8)).filter(|since| *since > 0).unwrap_or(lsn);
                    for nth in 0..count {
                        let versions = self.versions.entry((space, index, first + nth)).or_default();
                        let (row, block) = place(bytes);
                        match is_void {
                            true => drop(versions.remove(&since)),
                            false => drop(versions.insert(since, (state == 3).then_some((row, block + nth)))),
                        }
                    }
                }
                5 => {
                    let Some(row) = row else { continue };
                    let blocks = || bytes.chunks_exact(28);
                    let named = |block: &&[u8]| block[1] == 1;
                    let data =
                        |block: &&[u8]| u64::from(block[0]) < row.columns() && number(block, 20, 8) > 0;
                    let places = blocks().filter(named).map(|block| place(&block[8..])).collect();
                    let ended = blocks().filter(data).map(|block| {
                        let block_of = row.block_of(u64::from(block[0]), first) - index * row.blocks();
                        ((space, index, block_of), number(block, 20, 8))
                    });
                    self.redos.insert((space, index, first), Redo { places, ends: ended.collect() });
                    if is_void {
                        self.redos.remove(&(space, index, first));
                    }
                }
                6 => {
                    for (block, since) in self.redos.remove(&(space, index, first)).unwrap_or_default().ends {
                        let newest = self.ended.entry(block).or_default();
                        *newest = since.max(*newest);
                    }
                }
                _ => {}
            }
        }
    }

    /// The newest versions of blocks that are not in place, once a flush has covered all of them.
    fn alive(&self) -> impl Iterator<Item = (&Block, Option<(u64, u64)>)> {
        self.versions.iter().filter_map(|(block, versions)| {
            let (since, place) = versions.last_key_value()?;
            (*since > self.ended.get(block).copied().unwrap_or(0)).then_some((block, *place))
        })
    }

    /// Where they lie, and what lines need that are not in place yet.
    fn places(&self) -> BTreeSet<(u64, u64)> {
        let of_redos = self.redos.values().flat_map(|redo| redo.places.iter().copied());
        self.alive().filter_map(|(_, place)| place).chain(of_redos).collect()
    }
}

/// The batches that the newest checkpoint needs, by LSN, as a voter has them.
fn batches(golden: &Golden, voter: usize) -> BTreeMap<u64, Vec<u8>> {
    let image = &golden.disks[voter].image;
    let (tail, log) = (tail_of(golden), MIB + 64 * 1024);
    let mut found = BTreeMap::new();
    for at in (log..log + Layout::of(golden, voter).log).step_by(BLOCK) {
        let mut head = vec![0; BLOCK];
        image.read(at, &mut head);
        if !head.starts_with(b"DOLMNLOG") || number(&head, 72, 8) != at || number(&head, 56, 8) < tail {
            continue;
        }
        let mut batch = vec![0; number(&head, 80, 4) as usize];
        image.read(at, &mut batch);
        let sum = number(&batch, 8, 8);
        batch[8..16].fill(0);
        if crc64(&batch) == sum {
            found.insert(number(&head, 56, 8), batch);
        }
    }
    found
}

/// Blocks of spaces, in their places, that the log names and that no flush had covered, as the first disk that has such a log
/// says.
pub async fn in_flight(
    golden: &Golden,
    spaces: &Rc<Spaces>,
) -> Result<BTreeSet<(SpaceId, u64)>, Box<dyn Error>> {
    let rows = rows(spaces).await?;
    let mut found = BTreeSet::new();
    for disk in 0..golden.disks.len() {
        let batches = batches(golden, disk);
        let mark = batches.values().map(|batch| number(batch, 88, 8)).max().unwrap_or(0);
        for batch in batches.range(mark + 1..).map(|(_, batch)| batch) {
            for body in records_of_blocks(batch) {
                for (head, _, _) in entries(body).filter(|(head, _, _)| head[19] < 3) {
                    let row = rows.iter().find(|row| row.id == number(head, 0, 8));
                    let Some(row) = row.filter(|row| u64::from(head[20]) < row.columns()) else { continue };
                    let blocks = number(head, 8, 4)..number(head, 8, 4) + number(head, 12, 4);
                    found.extend(blocks.map(|block| (row.space, row.block_of(head[20].into(), block))));
                }
            }
        }
    }
    Ok(found)
}

/// The bodies of records of blocks in a batch.
fn records_of_blocks(batch: &[u8]) -> Vec<&[u8]> {
    let mut at = 128;
    let mut bodies = Vec::new();
    for _ in 0..number(batch, 20, 4) {
        let length = number(batch, at + 4, 4) as usize;
        bodies.extend((batch[at] == 2).then(|| &batch[at + 8..at + 8 + length]));
        at += 8 + length.next_multiple_of(8);
    }
    bodies
}

/// Heads of entries in a record of blocks, the row whose blocks a shadow row has, and what follows each.
fn entries(mut body: &[u8]) -> impl Iterator<Item = (&[u8], Option<u64>, &[u8])> {
    std::iter::from_fn(move || {
        let (head, rest) = body.split_at_checked(24)?;
        let count = number(head, 12, 4);
        let length = match head[19] {
            1 => 4 * count,
            3 => 20 + 4 * count,
            4 => 20,
            5 => 28 * count,
            _ => 0,
        };
        let has_owner = head[19] > 4 && head[20] == 1;
        let (owner, rest) = rest.split_at(if has_owner { 8 } else { 0 });
        let (bytes, after) = rest.split_at(length as usize);
        body = after;
        Some((head, has_owner.then(|| number(owner, 0, 8)), bytes))
    })
}

/// Pages of the map that its newest checkpoint calls used.
fn used_pages(golden: &Golden, votes: &[bool], block: &[u8]) -> Result<BTreeSet<u64>, Box<dyn Error>> {
    let first = votes.iter().position(|votes| *votes).ok_or("nobody votes")?;
    let image = &golden.disks[first].image;
    let pages_at = number(block, 64, 8);
    let mut used = BTreeSet::new();
    for index in 0..number(block, 146, 2) {
        let mut page = vec![0; PAGE as usize];
        image.read(pages_at + number(block, 216 + 24 * index as usize, 8) * PAGE, &mut page);
        if !page.starts_with(b"DOLMENPG") || crc64(&page[16..]) != number(&page, 8, 8) {
            return Err("a bitmap of the newest checkpoint is damaged on the first voter".into());
        }
        let bits =
            (0..8 * number(&page, 56, 4)).filter(|bit| page[64 + (bit / 8) as usize] >> (bit % 8) & 1 == 1);
        used.extend(bits.map(|bit| index * BITS + bit));
    }
    Ok(used)
}
