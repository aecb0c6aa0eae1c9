//! What stands where on the disks of an image: read off them by the documents of the format, with the rows as the engine has
//! them.

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::rc::Rc;

use dolmen_checksum::crc64;
use dolmen_disk::Extent;
use dolmen_pool::keys;
use dolmen_space::Spaces;
use dolmen_units::{Bytes, RowId, SpaceId};

use super::stored::blocks_of;
use super::{BLOCK, Golden};

/// What ids of spaces of shadow rows have, beside that of the space.
pub const SHADOWS: u64 = 1 << 63;
pub const B: u64 = BLOCK as u64;
pub const MIB: u64 = 1 << 20;
pub const PAGE_ENTRIES: u64 = 504;
/// The spaces of write caches are this and how many disks their spaces survive.
const CACHES: u64 = u64::MAX - 255;
/// As many as that, and one.
const CACHES_MAX: u64 = 4;

/// What a block of a disk is part of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Structure {
    LabelFront,
    LabelBack,
    Checkpoint,
    /// Batches that the newest checkpoint needs.
    Log,
    /// Batches of before.
    OldLog,
    MapPage,
    TableEven,
    TableOdd,
    SlabHeader,
    Data,
    Parity,
    Cache,
    /// Tables of the rows of a write cache.
    CacheTable,
    /// What a slab that is stale holds.
    Stale,
    /// What belonged to somebody once.
    Remains,
}

impl Structure {
    pub const ALL: [Self; 15] = [
        Self::LabelFront,
        Self::LabelBack,
        Self::Checkpoint,
        Self::Log,
        Self::OldLog,
        Self::MapPage,
        Self::TableEven,
        Self::TableOdd,
        Self::SlabHeader,
        Self::Data,
        Self::Parity,
        Self::Cache,
        Self::CacheTable,
        Self::Stale,
        Self::Remains,
    ];
}

/// A block of a disk that is not zeros.
#[derive(Debug, Clone)]
pub struct Place {
    pub structure: Structure,
    pub disk: usize,
    /// First byte.
    pub at: u64,
    /// Blocks that may be lost if this one is: by space. Nothing where there is another copy, or parity.
    pub at_stake: Vec<(SpaceId, BTreeSet<u64>)>,
    /// The block of a space that stands here in place.
    pub holds: Option<(SpaceId, u64)>,
}

/// A row, read from its value on the map.
pub struct Row {
    pub space: SpaceId,
    pub index: u64,
    pub id: u64,
    columns: u64,
    pub parity: u64,
    interleave_blocks: u64,
    row_blocks: u64,
    /// Whether its tables are on its slabs.
    pub is_formatted: bool,
    pub slabs: Vec<Slab>,
}

pub struct Slab {
    pub disk: usize,
    pub column: u64,
    is_stale: bool,
    /// First allocation unit and count.
    pub runs: Vec<(u64, u64)>,
}

/// All places of an image, by structure.
pub async fn places(golden: &Golden, spaces: &Rc<Spaces>) -> Result<Vec<Place>, Box<dyn Error>> {
    let rows = rows(spaces).await?;
    let mut owned = BTreeMap::new();
    for row in &rows {
        let away: Vec<usize> = spaces
            .pool()
            .disks()
            .iter()
            .filter(|disk| !disk.is_present())
            .map(|disk| usize::from(disk.slot().0))
            .collect();
        row.claim(golden, &away, &mut owned)?;
    }
    let tail = tail_of(golden);
    let mut places = Vec::new();
    for (number, disk) in golden.disks.iter().enumerate() {
        let layout = Layout::of(golden, number);
        for (block, bytes) in blocks_of(disk) {
            let at = block * B;
            let place = |structure| Place { structure, disk: number, at, at_stake: Vec::new(), holds: None };
            places.push(match layout.outside(at, &bytes, tail) {
                Some(structure) => place(structure),
                None => owned.remove(&(number, at)).unwrap_or_else(|| place(Structure::Remains)),
            });
        }
    }
    Ok(mark_batches(golden, places))
}

/// The places of an image in which something is stored, zeros at the ends of batches, pages and labels among them.
pub fn used(golden: &Golden, places: &[Place]) -> Vec<Place> {
    let is_used = |place: &&Place| !matches!(place.structure, Structure::Remains | Structure::OldLog);
    let mut used: BTreeMap<(usize, u64), Place> = BTreeMap::new();
    for place in places.iter().filter(is_used) {
        let length = |at| {
            let mut length = [0; 4];
            golden.disks[place.disk].image.read(place.at + at, &mut length);
            u64::from(u32::from_le_bytes(length))
        };
        let mut head = [0; 8];
        golden.disks[place.disk].image.read(place.at, &mut head);
        let length = match &head {
            b"DOLMENLB" => length(12),
            b"DOLMNLOG" => length(80),
            b"DOLMENPG" => 4 * B,
            _ => B,
        };
        for at in (place.at..place.at + length).step_by(BLOCK) {
            used.entry((place.disk, at)).or_insert_with(|| Place { at, ..place.clone() });
        }
        used.insert((place.disk, place.at), place.clone());
    }
    used.into_values().collect()
}

/// Disks that have a slab which misses something.
pub async fn stale_disks(spaces: &Rc<Spaces>) -> Result<BTreeSet<usize>, Box<dyn Error>> {
    let rows = rows(spaces).await?;
    let stale = rows.iter().flat_map(|row| &row.slabs).filter(|slab| slab.is_stale);
    Ok(stale.map(|slab| slab.disk).collect())
}

/// How a disk is cut.
pub struct Layout {
    pub extent: Extent,
    pub back: u64,
    pub log: u64,
}

impl Layout {
    pub fn of(golden: &Golden, number: usize) -> Self {
        let disk = &golden.disks[number];
        let mut log_length = [0; 8];
        disk.image.read(64 * 1024 + 184, &mut log_length);
        let back = disk.capacity / MIB * MIB - MIB;
        let log = u64::from_le_bytes(log_length);
        Self { extent: Extent::of(Bytes(disk.capacity)).unwrap(), back, log }
    }

    /// The structure of what is not in an allocation unit; a batch is told by its header.
    fn outside(&self, at: u64, bytes: &[u8], tail: u64) -> Option<Structure> {
        let (checkpoints, log) = (MIB, MIB + 64 * 1024);
        if at < MIB {
            Some(Structure::LabelFront)
        } else if at < log {
            assert!(at < checkpoints + 2 * B, "nothing stands behind the checkpoints");
            Some(Structure::Checkpoint)
        } else if at < log + self.log {
            let lsn = u64::from_le_bytes(bytes[56..64].try_into().unwrap());
            Some(if &bytes[..8] == b"DOLMNLOG" && lsn >= tail { Structure::Log } else { Structure::OldLog })
        } else if at < self.extent.data_start {
            Some(Structure::MapPage)
        } else if at >= self.back {
            Some(Structure::LabelBack)
        } else {
            assert!(at < self.extent.data_end, "nothing stands behind the allocation units");
            None
        }
    }
}

/// The LSN from which on the newest checkpoint needs the log.
pub fn tail_of(golden: &Golden) -> u64 {
    let number = |bytes: &[u8], at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
    let mut newest = (0, 0);
    for disk in &golden.disks {
        for at in [MIB, MIB + B] {
            let mut bytes = [0; BLOCK];
            disk.image.read(at, &mut bytes);
            if bytes.starts_with(b"DOLMENCP") && crc64(&bytes[..4088]) == number(&bytes, 4088) {
                newest = newest.max((number(&bytes, 56), number(&bytes, 152)));
            }
        }
    }
    newest.1
}

/// Blocks behind the first one of a batch are of its kind.
fn mark_batches(golden: &Golden, mut places: Vec<Place>) -> Vec<Place> {
    let mut until = (0, 0);
    for place in &mut places {
        match place.structure {
            Structure::Log => {
                let mut length = [0; 4];
                golden.disks[place.disk].image.read(place.at + 80, &mut length);
                until = (place.disk, place.at + u64::from(u32::from_le_bytes(length)));
            }
            Structure::OldLog if place.disk == until.0 && place.at < until.1 => {
                place.structure = Structure::Log
            }
            _ => {}
        }
    }
    places
}

pub async fn rows(spaces: &Rc<Spaces>) -> Result<Vec<Row>, Box<dyn Error>> {
    let mut rows = Vec::new();
    let ids: Vec<SpaceId> = spaces.list().iter().map(|space| space.id()).collect();
    for id in ids.into_iter().chain((0..CACHES_MAX).map(|redundancy| SpaceId(CACHES + redundancy))) {
        let Some(space) = spaces.pool().map().get(&keys::space(id)).await? else { continue };
        let row_length = u64::from_le_bytes(space[16..24].try_into()?);
        for (key, value) in spaces.pool().map().scan(keys::places(id, 0..u64::MAX), 1000).await? {
            let value = row_of(spaces, &value).await?;
            rows.push(Row::parse(id, keys::parts(&key).2, row_length, &value)?);
        }
        if id.0 >= SHADOWS {
            continue;
        }
        // What shadow rows of its rows hold is the space's.
        let shadows = SpaceId(id.0 | SHADOWS);
        for (key, value) in spaces.pool().map().scan(keys::places(shadows, 0..u64::MAX), 1000).await? {
            let value = row_of(spaces, &value).await?;
            rows.push(Row::parse(id, keys::parts(&key).2, row_length, &value)?);
        }
    }
    Ok(rows)
}

/// The record of the row that a place names.
pub async fn row_of(spaces: &Rc<Spaces>, place: &[u8]) -> Result<Vec<u8>, Box<dyn Error>> {
    let id = RowId(u64::from_le_bytes(place[..8].try_into()?));
    Ok(spaces.pool().map().get(&keys::row(id)).await?.ok_or("a place names a row that is there")?)
}

impl Row {
    fn parse(space: SpaceId, index: u64, row_length: u64, value: &[u8]) -> Result<Self, Box<dyn Error>> {
        let (front, mut rest) = value.split_at(48);
        let mut slabs = Vec::new();
        while !rest.is_empty() {
            let number = |at: usize, count: usize| {
                rest[at..at + count].iter().rev().fold(0u64, |sum, byte| sum << 8 | u64::from(*byte))
            };
            let runs = usize::try_from(number(3, 1))?;
            slabs.push(Slab {
                disk: usize::try_from(number(0, 2))?,
                column: number(2, 1),
                is_stale: number(4, 4) == 1,
                runs: (0..runs).map(|run| (number(16 + 12 * run, 8), number(24 + 12 * run, 4))).collect(),
            });
            rest = &rest[16 + 12 * runs..];
        }
        Ok(Self {
            space,
            index,
            id: u64::from_le_bytes(front[16..24].try_into()?),
            columns: u64::from(front[5]),
            parity: u64::from(front[6]),
            interleave_blocks: (1 << front[8]) / B,
            row_blocks: row_length / B,
            is_formatted: front[2] == 1,
            slabs,
        })
    }

    pub fn is_cache(&self) -> bool {
        self.space.0 >= CACHES
    }

    /// Its data columns.
    pub fn columns(&self) -> u64 {
        self.columns
    }

    /// Its blocks.
    pub fn blocks(&self) -> u64 {
        self.row_blocks
    }

    /// Blocks of a column.
    pub fn column_blocks(&self, column: u64) -> u64 {
        let column = if column < self.columns { column } else { 0 };
        let interleaves = self.row_blocks / self.interleave_blocks;
        (interleaves - column).div_ceil(self.columns) * self.interleave_blocks
    }

    /// The block of the space that is this block of a data column.
    pub fn block_of(&self, column: u64, block: u64) -> u64 {
        let interleave = block / self.interleave_blocks * self.columns + column;
        self.index * self.row_blocks + interleave * self.interleave_blocks + block % self.interleave_blocks
    }

    /// The blocks of the space in lines.
    fn lines(
        &self,
        lines: impl Iterator<Item = u64>,
        columns: impl Iterator<Item = u64> + Clone,
    ) -> BTreeSet<u64> {
        let of_stripe = |stripe: u64| {
            let there = columns.clone().filter(move |column| stripe < self.column_blocks(*column));
            there.map(move |column| self.block_of(column, stripe)).collect::<Vec<_>>()
        };
        lines.flat_map(of_stripe).collect()
    }

    /// Says of every block of its slabs what it is.
    fn claim(
        &self,
        golden: &Golden,
        away: &[usize],
        owned: &mut BTreeMap<(usize, u64), Place>,
    ) -> Result<(), Box<dyn Error>> {
        let is_good = |slab: &Slab| !slab.is_stale && !away.contains(&slab.disk);
        for slab in &self.slabs {
            let good =
                |column: u64| self.slabs.iter().filter(|slab| slab.column == column && is_good(slab)).count();
            let missing = (0..self.columns + self.parity).filter(|column| good(*column) == 0).count() as u64;
            let all = self.columns + self.parity;
            let extent = Extent::of(Bytes(golden.disks[slab.disk].capacity))?;
            let units = slab.runs.iter().flat_map(|(first, count)| *first..first + count);
            for (block, unit) in units.enumerate() {
                let at = extent.data_start + unit * B;
                let mut place = self.place(slab, block as u64);
                (place.disk, place.at) = (slab.disk, at);
                let at_stake = std::mem::take(&mut place.at_stake);
                place.at_stake = at_stake
                    .into_iter()
                    .filter(|_| is_good(slab))
                    .filter(|_| match place.structure {
                        Structure::TableEven | Structure::TableOdd | Structure::CacheTable
                            if self.parity > 0 =>
                        {
                            let table = self.table_of(slab, block as u64);
                            let column = (slab.column + all - table) % all;
                            (0..=self.parity).filter(|nth| good((column + nth) % all) > 0).count() <= 1
                        }
                        _ if self.parity > 0 => missing >= self.parity,
                        _ => good(slab.column) <= 1,
                    })
                    .collect();
                if !is_good(slab) {
                    (place.structure, place.holds) = (Structure::Stale, None);
                }
                assert!(
                    owned.insert((slab.disk, at), place).is_none(),
                    "an allocation unit belongs to one slab"
                );
            }
        }
        Ok(())
    }

    /// Pages of each of its tables.
    pub fn pages(&self, column: u64) -> u64 {
        let longer = if self.parity > 0 { self.interleave_blocks } else { 0 };
        (self.column_blocks(column) + longer).div_ceil(PAGE_ENTRIES)
    }

    /// Which of the tables of a slab a block behind the data is in.
    fn table_of(&self, slab: &Slab, block: u64) -> u64 {
        (block - self.column_blocks(slab.column)) / 2 / self.pages(slab.column)
    }

    /// A block of a slab, with what needs it, whether or not there is more of that.
    fn place(&self, slab: &Slab, block: u64) -> Place {
        let data = self.column_blocks(slab.column);
        let pages = self.pages(slab.column);
        let cached = |blocks: BTreeSet<u64>| vec![(self.space, blocks)];
        let of = |structure, at_stake| Place { structure, disk: 0, at: 0, at_stake, holds: None };
        if block < data {
            let at_stake = match self.parity {
                0 => self.lines(block..block + 1, slab.column..slab.column + 1),
                _ => self.lines(block..block + 1, 0..self.columns),
            };
            if slab.column >= self.columns {
                return of(Structure::Parity, cached(at_stake));
            }
            let structure = if self.is_cache() { Structure::Cache } else { Structure::Data };
            let holds = Some((self.space, self.block_of(slab.column, block)));
            return Place { holds, ..of(structure, cached(at_stake)) };
        }
        if block >= data + 2 * pages * (self.parity + 1) {
            return of(Structure::SlabHeader, Vec::new());
        }
        let (page, slot) = ((block - data) / 2 % pages, (block - data) % 2);
        let lines = page * PAGE_ENTRIES..(page + 1) * PAGE_ENTRIES;
        let at_stake = match self.parity {
            0 => self.lines(lines, slab.column..slab.column + 1),
            _ => self.lines(lines, 0..self.columns),
        };
        let structure = match slot {
            _ if self.is_cache() => Structure::CacheTable,
            0 => Structure::TableEven,
            _ => Structure::TableOdd,
        };
        of(structure, cached(at_stake))
    }
}
