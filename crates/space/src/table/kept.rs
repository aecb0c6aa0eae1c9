//! Content of the write cache that is kept in memory until it is in place, so that it need not be read again.
//!
//! A part of it is for what is read ahead of being put in place (`ahead`): what is written takes no more than the rest.
//!
//! Invariant: nothing depends on it. What is kept is compared with the checksum of its mapping, and what is not is read.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use dolmen_buffer::{Arena, ArenaConfig, Buffer};
use dolmen_checksum::crc32c;
use dolmen_units::RowId;

use crate::format::record::Place;
use crate::layout::BLOCK;
use crate::table::row::Row;

/// Blocks by their place in the cache.
pub(crate) struct Kept {
    memory: Arena,
    /// How many there can be, and how many of what was written.
    most: usize,
    most_written: usize,
    blocks: RefCell<BTreeMap<(RowId, u32), Buffer>>,
}

impl Kept {
    /// With room for so many blocks, of which a row of the cache, or half of them where that is less, are for what is read
    /// ahead.
    pub(crate) fn new(blocks: usize, of_row: u32) -> Self {
        let config = ArenaConfig { small_count: blocks, medium_count: 0, large_count: 0 };
        let ahead = usize::try_from(of_row).unwrap_or(usize::MAX).min(blocks / 2);
        let most_written = blocks - ahead;
        Self { memory: Arena::new(config), most: blocks, most_written, blocks: RefCell::default() }
    }

    /// Keeps blocks that were written and follow each other, as many of them as there is room for.
    pub(crate) fn put(&self, place: Place, data: &[u8]) {
        let mut blocks = self.blocks.borrow_mut();
        for (number, bytes) in (0..).zip(data.chunks_exact(BLOCK)) {
            let at = place.plus(number);
            blocks.remove(&(at.row, at.block));
            if blocks.len() >= self.most_written {
                continue;
            }
            let Some(mut memory) = self.memory.try_take(BLOCK) else { return };
            memory.copy_from_slice(bytes);
            blocks.insert((at.row, at.block), memory);
        }
    }

    /// How many more blocks there is room for that are read ahead.
    pub(crate) fn room(&self) -> usize {
        self.most.saturating_sub(self.blocks.borrow().len())
    }

    /// Keeps a block of a row of the cache that was read ahead, unless it is kept.
    pub(crate) fn put_read(&self, (row, block): (&Row, u32), bytes: &[u8]) {
        let mut blocks = self.blocks.borrow_mut();
        let Entry::Vacant(place) = blocks.entry(key((row, block))) else { return };
        if let Some(mut memory) = self.memory.try_take(BLOCK) {
            memory.copy_from_slice(bytes);
            place.insert(memory);
        }
    }

    /// Whether a block of a row of the cache is kept.
    pub(crate) fn has(&self, place: (&Row, u32)) -> bool {
        self.blocks.borrow().contains_key(&key(place))
    }

    /// Copies what is kept of a place, if that has the checksum.
    pub(crate) fn copy(&self, place: Place, checksum: u32, into: &mut [u8]) -> bool {
        let blocks = self.blocks.borrow();
        let found = blocks.get(&(place.row, place.block)).filter(|bytes| crc32c(bytes) == checksum);
        found.inspect(|bytes| into.copy_from_slice(bytes)).is_some()
    }

    /// Forgets a place.
    pub(crate) fn forget(&self, place: Place) {
        self.blocks.borrow_mut().remove(&(place.row, place.block));
    }
}

/// The key of a block of a row of the cache: as its mappings name it.
fn key((row, block): (&Row, u32)) -> (RowId, u32) {
    (row.id, block)
}
